"""The equation index, docs/equations.md: where each labelled equation of the paper is computed, and what tests it.

`python -m afa.report.equations` writes it, in the project's folder. Docstrings say which labels a definition is about,
docs/equations.csv says what each label is; a label without a definition, or a definition without a test, is a fault.
"""

from __future__ import annotations

import re
import sys
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path, PurePosixPath

import pandas as pd

from afa.errors import AfaError, Fault, ReportError
from afa.files import atomic_file
from afa.report.source import Definition, Source

LABEL = re.compile(r"\b(?:eq|sec|supp|tab|prop|rem|par|box):[A-Za-z0-9_-]*[A-Za-z0-9]")
COMPLETE = ("eq", "prop", "rem")
"""Kinds of labels that must all be somewhere in the code, or say why not."""
COLUMNS = ["label", "what", "not_implemented"]
LABELS, PAGE = Path("docs/equations.csv"), Path("docs/equations.md")
MOST_FILES, MOST_THROUGH = 4, 2
HEAD = """\
# Equation index

Where the equations of the paper (arXiv 2606.18933) are computed. Written by `python -m afa.report.equations` from
the docstrings, which name the paper's LaTeX labels, and from [equations.csv](equations.csv), which says in our
words what each label is; do not edit it. A test fails where a label has no place and no reason for that, where a
docstring names a label that the paper does not have, where no test leads to a place, and where this page is out of
date.

Tests are given by file: the module's own, then those with the most tests that name the function or class. Where no
test names it, they are those that name the nearest code which uses it, after *through*. `afa.engine` is the
compiled form of the readable definitions: tests hold one against the other.
"""


@dataclass(frozen=True)
class Label:
    """A label of the paper: what it is, and why no code computes it where none does."""

    name: str
    what: str
    not_implemented: str

    @property
    def kind(self) -> str:
        return self.name.partition(":")[0]


@dataclass(frozen=True)
class Index:
    """The labels of the paper, and the source that may name them."""

    labels: tuple[Label, ...]
    source: Source

    @classmethod
    def read(cls, root: Path) -> Index:
        """The index of a checkout; a `ReportError` names what its docs/equations.csv has wrong."""
        return cls(read_labels(root / LABELS), Source.read(root / "afa", root / "tests"))

    @cached_property
    def places(self) -> Mapping[str, list[Definition]]:
        """Definitions by the label that their docstrings name; a module only where nothing in it names the label."""
        found: dict[str, list[Definition]] = {}
        for definition in self.source.definitions.values():
            for label in dict.fromkeys(LABEL.findall(definition.docstring)):
                found.setdefault(label, []).append(definition)
        return {label: sorted(_narrowest(places), key=_readable_first) for label, places in found.items()}

    def faults(self) -> list[Fault]:
        """Every gap between the paper's labels, the docstrings and the tests."""
        known = {label.name: label for label in self.labels}
        faults = []
        for name, places in self.places.items():
            step = "correct the docstring"
            if name not in known:
                faults += [Fault(place.full, f"the label {name}", f"a label of {LABELS}", step) for place in places]
            elif known[name].not_implemented:
                found, step = f"{name}, which is said not to be implemented", f"empty its reason in {LABELS}"
                faults.append(Fault(places[0].full, found, "no such label", step))
        for label in self.labels:
            if label.kind in COMPLETE and not label.not_implemented and label.name not in self.places:
                expected = "a docstring that names it"
                step = f"name it where it is computed, or say in {LABELS} why it is not"
                faults.append(Fault(f"{LABELS}, {label.name}", "none", expected, step))
        for place in {each.full: each for places in self.places.values() for each in places}.values():
            if not self.source.tested(place.full).files:
                faults.append(Fault(place.full, "no test that leads to it", "one or more", "test it"))
        return faults

    def page(self) -> str:
        """docs/equations.md; a `ReportError` lists the faults where there are any."""
        faults = self.faults()
        if faults:
            raise ReportError(faults)
        equations = [label for label in self.labels if label.kind == "eq"]
        claims = [label for label in self.labels if label.kind in COMPLETE and label.kind != "eq"]
        others = [label for label in self.labels if label.kind not in COMPLETE and label.name in self.places]
        return "\n".join(
            [
                HEAD,
                *("## Equations", "", *self._table(equations), ""),
                *("## Propositions and remarks", "", *self._table(claims), ""),
                *("## Sections and tables", "", "Those that a docstring names.", "", *self._table(others), ""),
            ]
        )

    def _table(self, labels: Iterable[Label]) -> list[str]:
        lines = ["| label | what it is | where | tests |", "|---|---|---|---|"]
        for label in labels:
            if label.not_implemented:
                lines.append(f"| `{label.name}` | {label.what} | not computed: {label.not_implemented} | |")
            for i, place in enumerate(self.places.get(label.name, ())):
                first = f"| `{label.name}` | {label.what} |" if i == 0 else "| | |"
                lines.append(f"{first} `{place.full}` | {self._tests(place)} |")
        return lines

    def _tests(self, place: Definition) -> str:
        tested = self.source.tested(place.full)
        stems = [PurePosixPath(file).stem for file in tested.files]
        own = place.module.rpartition(".")[2]
        files = _some(sorted(stems, key=lambda stem: own not in stem), MOST_FILES)
        if not tested.through:
            return files
        return f"through {_some([f'`{name}`' for name in tested.through], MOST_THROUGH)}: {files}"


def read_labels(path: Path) -> tuple[Label, ...]:
    """The labels of docs/equations.csv, in the paper's order; a `ReportError` names every row that is wrong."""
    if not path.is_file():
        raise ReportError(
            Fault(str(path), "no such file", "the labels of the paper", "run this in the project's folder")
        )
    table = pd.read_csv(path, dtype=str, keep_default_na=False)
    if list(table.columns) != COLUMNS:
        found, expected = ",".join(table.columns), ",".join(COLUMNS)
        raise ReportError(Fault(f"{path}, line 1", f"the header {found}", expected, "correct the header"))
    faults = []
    for line, label, what, again in zip(
        range(2, len(table) + 2), table["label"], table["what"], table["label"].duplicated(), strict=True
    ):
        if again or not LABEL.fullmatch(label) or not what:
            found = f"{label!r}{' again' if again else ''} with {what!r}"
            expected = "a label of the paper, once, with what it is"
            faults.append(Fault(f"{path}, line {line}", found, expected, "correct the row"))
    if faults:
        raise ReportError(faults)
    return tuple(Label(*row) for row in table.itertuples(index=False))


def main() -> None:
    """Write the page of the checkout that is the present folder; what stands in the way goes to standard error."""
    root = Path.cwd()
    try:
        page = Index.read(root).page()
    except AfaError as error:
        sys.stderr.write("".join(f"afa: {fault}\n" for fault in error.faults))
        sys.exit(2)
    with atomic_file(root / PAGE) as path:
        path.write_text(page, encoding="utf-8")


def _some(names: Sequence[str], most: int) -> str:
    return ", ".join(names[:most]) + (" and others" if len(names) > most else "")


def _narrowest(places: list[Definition]) -> list[Definition]:
    """Without a module whose own definitions name the label, or a class whose methods do."""
    inner = [place for place in places if place.name]
    holders = {place.module for place in inner} | {place.full.rpartition(".")[0] for place in inner}
    return [place for place in places if place.full not in holders]


def _readable_first(place: Definition) -> tuple[int, bool, str]:
    """The readable definition, then the engine, then what is made of them; public names before private ones."""
    rooms = ("afa.engine", "afa.stages", "afa.report", "afa.config")
    room = next((i + 1 for i, name in enumerate(rooms) if place.module.startswith(name)), 0)
    return room, "._" in place.full, place.full


if __name__ == "__main__":
    main()
