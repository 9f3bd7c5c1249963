"""Abstracts on the disk: each lies under the hash of its content, each search under its words and its date."""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import date
from pathlib import Path
from typing import Any

from afa.elicit.abstracts import Abstract, SourceName, written
from afa.errors import ElicitationError, Fault
from afa.files import atomic_file
from afa.regularfile import read_whole

LARGEST = 16 << 20
"""Bytes of one file."""
_DIGEST = re.compile(r"[0-9a-f]{64}")
_KEYS = frozenset({"source", "query", "most", "retrieved", "total", "abstracts", "left_out"})


@dataclass(frozen=True)
class Search:
    """One search: what was asked of a source for at most `most` records, on which day (ISO), and what it found.

    total : records that the source holds. left_out : reason -> records that were found and not taken.
    """

    source: SourceName
    query: str
    most: int
    retrieved: str
    total: int
    abstracts: tuple[Abstract, ...]
    left_out: Mapping[str, int] = field(default_factory=dict)


class AbstractCache:
    """A folder of searches and abstracts, which several people or processes may fill at the same time."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder

    def keep(self, search: Search) -> None:
        """Write a search and its abstracts; the search last, so that what it names is there."""
        for abstract in search.abstracts:
            path = self._abstract_path(abstract.digest)
            if not path.exists():
                _write(path, abstract.document)
        digests = [abstract.digest for abstract in search.abstracts]
        document = {**vars(search), "abstracts": digests, "left_out": dict(search.left_out)}
        _write(self._folder_of(search.source, search.query, search.most) / f"{search.retrieved}.json", document)

    def latest(self, source: SourceName, query: str, most: int, as_of: date | None = None) -> Search | None:
        """The last search with these words, of those made until `as_of`; None where there is none.

        Raises
        ------
        ElicitationError : a file that is no search or abstract, or not the one that belongs in its place.

        """
        made = sorted(self._folder_of(source, query, most).glob("????-??-??.json"))
        until = [path for path in made if as_of is None or path.stem <= as_of.isoformat()]
        if not until:
            return None
        path = until[-1]
        document = _read(path)
        asked = {"source": source, "query": query, "most": most, "retrieved": path.stem}
        if set(document) != _KEYS or any(document[key] != value for key, value in asked.items()):
            raise _damaged(path, "another search")
        digests, total, left_out = document["abstracts"], document["total"], document["left_out"]
        if type(total) is not int or not isinstance(left_out, dict) or not _are_digests(digests):
            raise _damaged(path, "no search")
        return Search(source, query, most, path.stem, total, tuple(map(self._abstract, digests)), left_out)

    def lacks(self, source: SourceName, query: str, as_of: date | None = None) -> ElicitationError:
        """The error for a search that is not here and may not be made."""
        until = f" until {as_of.isoformat()}" if as_of else ""
        step = "run once with retrieval switched on, or copy a cache that has it"
        return ElicitationError(Fault(str(self.folder), f"no search of {source}{until} for {query}", "one", step))

    def _abstract(self, digest: str) -> Abstract:
        path = self._abstract_path(digest)
        try:
            abstract = Abstract.of(_read(path))
        except ValueError as error:
            raise _damaged(path, str(error)) from None
        if abstract.digest != digest:
            raise _damaged(path, f"content with the hash {abstract.digest}")
        return abstract

    def _abstract_path(self, digest: str) -> Path:
        return self.folder / "abstracts" / digest[:2] / f"{digest}.json"

    def _folder_of(self, source: SourceName, query: str, most: int) -> Path:
        digest = hashlib.sha256(written([source, query, most]).encode()).hexdigest()
        return self.folder / "searches" / source / digest[:2] / digest


def _are_digests(values: Any) -> bool:
    return isinstance(values, list) and all(isinstance(each, str) and _DIGEST.fullmatch(each) for each in values)


def _write(path: Path, document: Any) -> None:
    with atomic_file(path) as temporary:
        temporary.write_text(written(document) + "\n", encoding="utf-8")


def _read(path: Path) -> dict[str, Any]:
    try:
        document = json.loads(read_whole(path, LARGEST))
    except OSError as error:
        raise _damaged(path, error.strerror or "an error") from None
    except (ValueError, RecursionError):
        raise _damaged(path, "text that is no JSON") from None
    if not isinstance(document, dict):
        raise _damaged(path, "JSON that is no object")
    return document


def _damaged(path: Path, found: str) -> ElicitationError:
    step = "remove the search that names it, and retrieve again"
    return ElicitationError(Fault(str(path), found, "what was retrieved, unchanged", step))
