"""What a source found for a query, and why records of it are left out."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Protocol

from afa.elicit.abstracts import Abstract, SourceName
from afa.elicit.queries import Query

NO_ABSTRACT, NO_RECORD, OTHER_FORM = "no abstract", "no record", "another form"
RETRACTED = "retracted or withdrawn"


@dataclass(frozen=True)
class Found:
    """abstracts : in the source's order. total : records that the source holds. left_out : reason -> records."""

    abstracts: tuple[Abstract, ...]
    total: int
    left_out: Mapping[str, int] = field(default_factory=dict)


class Source(Protocol):
    """A service that is searched. written : a query in its syntax, which finds the search again."""

    @property
    def name(self) -> SourceName: ...
    def written(self, query: Query) -> str: ...
    def search(self, query: Query, most: int) -> Found: ...
