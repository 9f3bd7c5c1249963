"""Terms of an ontology and their hierarchy, from OBO or from a table."""

from __future__ import annotations

import csv
import io
import re
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from graphlib import CycleError, TopologicalSorter
from pathlib import Path

from afa.errors import BundleError, Fault
from afa.files import GZIP_ERRORS, read_unpacked

TERM = re.compile(r"HP:\d{7}")
COLUMNS = ("hpo_id", "name", "parents", "alt_ids")
"""Of a table of terms."""


@dataclass(frozen=True, eq=False)
class Ontology:
    """Terms and their is-a hierarchy.

    Parameters
    ----------
    version : as the file says
    names : label by current id, in the order of the file
    parents : direct parents by current id
    other_ids : current id by alternative id, by replaced id, and by the one that an obsolete term suggests

    """

    version: str
    names: Mapping[str, str]
    parents: Mapping[str, tuple[str, ...]]
    other_ids: Mapping[str, str]

    def resolve(self, term: str) -> str | None:
        """The current id that a term stands for, or None."""
        return term if term in self.names else self.other_ids.get(term)

    @cached_property
    def ids(self) -> tuple[str, ...]:
        """Current ids, each after all its ancestors."""
        return tuple(TopologicalSorter(self.parents).static_order())

    @cached_property
    def ancestors(self) -> Mapping[str, frozenset[str]]:
        """All ancestors of each current id, itself among them."""
        found: dict[str, frozenset[str]] = {}
        for term in self.ids:
            found[term] = frozenset({term}).union(*(found[parent] for parent in self.parents[term]))
        return found

    def place(self, term: str, newer: Ontology | None = None) -> tuple[tuple[str, ...], str]:
        """The current ids nearest to a term, and how they were found.

        `same`, `other_id`; by a newer ontology `merged` (an id with which that one merged it) or `ancestor` (nearest
        ones that this ontology knows: only for what was observed, since an absent term says nothing of its ancestors);
        or `unknown`.
        """
        if (found := self.resolve(term)) is not None:
            return (found,), "same" if found == term else "other_id"
        current = None if newer is None else newer.resolve(term)
        if newer is None or current is None:
            return (), "unknown"
        known = {above: found for above in newer.ancestors[current] if (found := self._among(above, newer)) is not None}
        if current in known:
            return (known[current],), "merged"
        return tuple(sorted({known[above] for above in newer.lowest(known)})), "ancestor"

    def lowest(self, terms: Collection[str]) -> set[str]:
        """Those of some terms that are no ancestor of another one."""
        return {one for one in terms if not any(one != other and one in self.ancestors[other] for other in terms)}

    def _among(self, current: str, newer: Ontology) -> str | None:
        """What this ontology calls a term of a newer one, by any of its ids there."""
        ids = (current, *newer.ids_of[current])
        return next((found for other in ids if (found := self.resolve(other)) is not None), None)

    @cached_property
    def ids_of(self) -> Mapping[str, tuple[str, ...]]:
        """The other ids of each current one, sorted."""
        found: dict[str, tuple[str, ...]] = dict.fromkeys(self.names, ())
        for other, current in sorted(self.other_ids.items()):
            found[current] = (*found[current], other)
        return found


def read_ontology(path: str | Path) -> Ontology:
    """Read an ontology: `.obo`, or a table hpo_id, name, parents, alt_ids (`|` between ids); `.gz` or not.

    Raises
    ------
    BundleError : no term, a parent that is no term, a circle.

    """
    text = text_of(Path(path))
    if str(path).removesuffix(".gz").endswith(".csv"):
        rows = list(csv.DictReader(io.StringIO(text), restval=""))
        if lacking := [name for name in COLUMNS if name not in (rows[0] if rows else COLUMNS)]:
            found, expected = f"no column {', '.join(lacking)}", f"the columns {', '.join(COLUMNS)}"
            raise BundleError(Fault(f"{path}, line 1", found, expected, "name hp.obo, or such a table"))
        entries = [
            {
                "id": [row["hpo_id"]],
                "name": [row["name"]],
                "is_a": split_ids(row["parents"]),
                "alt_id": split_ids(row["alt_ids"]),
            }
            for row in rows
        ]
        version = Path(path).name
    else:
        head, *stanzas = re.split(r"^\[(?=\w+\]$)", text, flags=re.MULTILINE)
        entries = [_stanza(stanza) for stanza in stanzas if stanza.startswith("Term]")]
        version = next(iter(_stanza(head).get("data-version", _stanza(head).get("date", [""]))))
    return _ontology(path, version, entries)


def text_of(path: Path) -> str:
    """The text of a file, packed or not; Latin-1 where it is not UTF-8, as some of the older tables are."""
    try:
        data = read_unpacked(path, 1 << 30)
    except (OSError, *GZIP_ERRORS) as error:
        found = getattr(error, "strerror", None) or str(error)
        raise BundleError(Fault(str(path), found, "a readable file", "check the path")) from None
    try:
        return data.decode("utf-8-sig")
    except UnicodeDecodeError:
        return data.decode("latin-1")


def _ontology(path: str | Path, version: str, entries: Sequence[Mapping[str, list[str]]]) -> Ontology:
    names: dict[str, str] = {}
    parents: dict[str, tuple[str, ...]] = {}
    other_ids: dict[str, str] = {}
    for entry in entries:
        (term,) = entry.get("id", [""])[:1]
        if "true" in entry.get("is_obsolete", []):
            successors = entry.get("replaced_by") or entry.get("consider", [])
            if len(successors) == 1:
                other_ids.setdefault(term, successors[0])
        elif term:
            names[term] = next(iter(entry.get("name", [""])))
            parents[term] = tuple(entry.get("is_a", []))
    for entry in entries:
        if entry.get("id", [""])[0] in names:
            other_ids.update(dict.fromkeys(entry.get("alt_id", []), entry["id"][0]))
    faults = [
        Fault(f"{path}, term {term}", f"the parent {above}", "a term of the file", "fetch the ontology again")
        for term, all_above in parents.items()
        for above in all_above
        if above not in names
    ]
    if not names:
        faults = [Fault(str(path), "no term", "an ontology, as OBO", "name hp.obo")]
    BundleError.raise_for(faults[:20])
    try:
        TopologicalSorter(parents).prepare()
    except CycleError as error:
        found = f"a circle through {', '.join(error.args[1][:5])}"
        raise BundleError(Fault(str(path), found, "a hierarchy", "fetch the ontology again")) from None
    current = {other: term for other, term in other_ids.items() if term in names and other not in names}
    return Ontology(version, names, parents, current)


def _stanza(text: str) -> dict[str, list[str]]:
    """Values by key; what stands behind ` ! `, and qualifiers in braces, is no part of an id."""
    found: dict[str, list[str]] = {}
    for line in text.splitlines():
        key, sign, value = line.partition(": ")
        if sign:
            whole = value.strip() if key in ("name", "data-version", "date") else re.split(r"\s*[!{]", value)[0].strip()
            found.setdefault(key, []).append(whole)
    return found


def split_ids(text: str) -> list[str]:
    """The ids in a cell of a table, with `|` between them."""
    return text.split("|") if text else []
