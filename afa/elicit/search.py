"""What is searched for, a phenotype in its several names, the disease and genes; and what a source finds."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Protocol

from afa.csvfile import RowFaults, read_table
from afa.elicit.abstracts import Abstract, SourceName
from afa.errors import ElicitationError, Fault

# In a quoted phrase these have no meaning to either service.
_PLAIN = re.compile(r"[^\w\-/.+' ]|_")


@dataclass(frozen=True)
class Query:
    """Groups of phrases: of each group one must occur."""

    groups: tuple[tuple[str, ...], ...]

    @property
    def phrases(self) -> tuple[str, ...]:
        """All phrases, each once."""
        return tuple(dict.fromkeys(phrase for group in self.groups for phrase in group))


class Keywords:
    """Phenotypes and diseases in the several names that publications use."""

    def __init__(self, names: Mapping[str, Sequence[str]]) -> None:
        self._names = {plain(name).casefold(): tuple(map(plain, phrases)) for name, phrases in names.items()}

    def expanded(self, name: str) -> tuple[tuple[str, ...], str]:
        """The phrases of a name, and a note, empty where the name is known; of others the name itself is the phrase."""
        own = plain(name)
        if own.casefold() in self._names:
            return self._names[own.casefold()], ""
        return (own,), f"no keywords for {name}: searched for by its own words"


def read_keywords(path: str | Path) -> Keywords:
    """Read a CSV file with the columns name, keyword, one row per phrase; an `ElicitationError` lists its faults."""
    faults = RowFaults(path)
    table = read_table(path, required=("name", "keyword"), faults=faults)
    names: dict[str, list[str]] = {}
    for line, name, keyword in zip(table.lines, table.columns["name"], table.columns["keyword"], strict=True):
        for column, text in (("name", name), ("keyword", keyword)):
            if not _PLAIN.sub(" ", text).strip():
                faults.add(int(line), column, repr(text), "letters or digits", "write it, or remove the row")
        if keyword in names.setdefault(name, []):
            faults.add(int(line), "keyword", repr(keyword), "each keyword of a name once", "remove the row")
        names[name].append(keyword)
    if listed := faults.listed():
        raise ElicitationError(listed)
    return Keywords(names)


def unary_query(phenotype: Sequence[str], disease: Sequence[str]) -> Query:
    """Publications on a phenotype of a disease."""
    return Query((tuple(phenotype), tuple(disease)))


def pair_query(genes: Sequence[Sequence[str]], phenotype: Sequence[str], disease: Sequence[str]) -> Query:
    """Publications that name all genes beside a phenotype of a disease; no phenotype, no such condition.

    genes : the names of each, its symbol and its aliases.
    """
    groups = [tuple(map(plain, names)) for names in genes]
    return Query((*groups, *([tuple(phenotype)] if phenotype else []), tuple(disease)))


def plain(name: str) -> str:
    """A name as words that may stand in quotes in a search; an `ElicitationError` where nothing of it is left."""
    words = " ".join(_PLAIN.sub(" ", name).split())
    if not any(map(str.isalnum, words)):
        raise ElicitationError(Fault("a search", repr(name), "a name with letters or digits", "correct the name"))
    return words


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
