"""The equation index, docs/equations.md: where each labelled equation of the paper is computed, and what tests it.

`python tools/equations.py` writes it, in the project's folder. Docstrings say which labels a definition is about,
docs/equations.csv says what each label is; a label without a definition, or a definition without a test, is a fault.
The package and its tests are read as text: nothing is imported, so that the page is the same whatever is installed.
"""

from __future__ import annotations

import ast
import re
import sys
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import zip_longest
from pathlib import Path, PurePosixPath
from typing import NamedTuple

import pandas as pd

from afa.errors import AfaError, Fault, ReportError
from afa.io.files import write_text

LABEL = re.compile(r"\b(?:eq|sec|supp|tab|prop|rem|par|box):[A-Za-z0-9_-]*[A-Za-z0-9]")
COMPLETE = ("eq", "prop", "rem")
"""Kinds of labels that must all be somewhere in the code, or say why not."""
SECTIONS = {
    "## Equations": ("eq",),
    "## Propositions and remarks": COMPLETE[1:],
    "## Sections and tables\n\nThese are the sections and tables that a docstring names.": (
        *("sec", "supp", "tab", "par", "box"),
    ),
}
LABELS, PAGE = Path("docs/equations.csv"), Path("docs/equations.md")
MOST_FILES, MOST_THROUGH = 4, 2
HEAD = """\
# Equation index

This page lists where the equations of the paper (arXiv 2606.18933) are computed. Do not edit this page: `python
tools/equations.py` writes it from the docstrings, which name the paper's LaTeX labels, and from
[equations.csv](equations.csv), which describes each label in our words. A test fails if this page is out of date, or
if a docstring names a label that the paper does not have. It also fails if a label of an equation, proposition or
remark is neither named in a docstring nor marked in equations.csv as not computed. Finally, it fails if a function or
class whose docstring names a label of the paper is not used by any test.

The column *tests* lists test files: first the test file of the module, then other test files that use the name of the
function or class. If no test names the function or class, the column begins with *through* and a module: the
function's own module, or the nearest module that imports it. The test files after it import from this module.
`afa.engine` is the compiled form of the readable definitions, and tests compare the two.
"""


class Definition(NamedTuple):
    """A module, class, function, method or constant with its docstring.

    module, name : `afa.model.mrf` and `Evidence.observe`; the name of a module itself is empty.
    """

    module: str
    name: str
    docstring: str

    @property
    def full(self) -> str:
        return f"{self.module}.{self.name}" if self.name else self.module


class Label(NamedTuple):
    """A label of the paper: what it is, and why no code computes it where none does."""

    name: str
    what: str
    not_implemented: str

    @property
    def kind(self) -> str:
        return self.name.partition(":")[0]


class Reach(NamedTuple):
    """What a file imports, past any re-export, the modules that hold it, and the names of all attributes in the file.

    Of a package that is imported itself, the modules are also those that it re-exports from.
    """

    imported: set[str]
    modules: set[str]
    attributes: set[str]


@dataclass(frozen=True)
class Index:
    """The labels of the paper, in its order, and a package with its tests, which may name them.

    modules : as parsed, by dotted name. tests : files, by path from the folder above them.
    """

    labels: Sequence[Label]
    modules: Mapping[str, ast.Module]
    tests: Mapping[str, ast.Module]

    @classmethod
    def read(cls, root: Path) -> Index:
        """The index of a checkout."""
        if not (root / LABELS).is_file():
            step = "run this in the project's folder"
            raise ReportError(Fault(str(root / LABELS), "no such file", "the labels of the paper", step))
        table = pd.read_csv(root / LABELS, dtype=str, keep_default_na=False)
        modules = {
            ".".join(path.relative_to(root).with_suffix("").parts).removesuffix(".__init__"): path
            for path in sorted((root / "afa").rglob("*.py"))
        }
        tests = {path.relative_to(root).as_posix(): path for path in sorted((root / "tests").rglob("test_*.py"))}
        parsed = ({name: ast.parse(path.read_bytes()) for name, path in part.items()} for part in (modules, tests))
        return cls([Label(*row) for row in table.itertuples(index=False)], *parsed)

    @cached_property
    def definitions(self) -> dict[str, Definition]:
        """All definitions by full name, in the order of modules and lines."""
        found: dict[str, Definition] = {}
        for module, tree in self.modules.items():
            found[module] = Definition(module, "", ast.get_docstring(tree) or "")
            found |= {each.full: each for each in _within(module, "", tree.body)}
        return found

    @cached_property
    def _imports(self) -> dict[str, dict[str, str]]:
        return {module: dict(_imports(tree)) for module, tree in self.modules.items()}

    @cached_property
    def _reach(self) -> dict[str, Reach]:
        """Of every test file and every module."""
        reach = {}
        for file, tree in (self.tests | self.modules).items():
            imported = {self.home(dotted) for _, dotted in _imports(tree)}
            packages = [name for name in imported if any(module.startswith(f"{name}.") for module in self.modules)]
            held = imported | {
                self.home(dotted) for name in packages for dotted in self._imports.get(name, {}).values()
            }
            modules = {self.definitions[name].module for name in held if name in self.definitions}
            attributes = {node.attr for node in ast.walk(tree) if isinstance(node, ast.Attribute)}
            reach[file] = Reach(imported, modules, attributes)
        return reach

    def home(self, dotted: str) -> str:
        """Where a dotted name is defined, past any re-export: `afa.exact` is `afa.inference.exact.exact`."""
        module, _, name = dotted.rpartition(".")
        if dotted in self.definitions or name not in self._imports.get(module, {}):
            return dotted
        return self.home(self._imports[module][name])

    def tested(self, full: str) -> tuple[list[str], list[str]]:
        """Test files behind a definition, none where no test leads to it; and the modules that lead there, if not all.

        A file names a definition that it imports, and one whose name is an attribute in a file that imports from its
        module. Where none does, it is those that import from the module or from the nearest that imports from that.
        """
        module, name, _ = self.definitions[full]
        attribute = name.rpartition(".")[2]
        named = [
            file
            for file in self.tests
            if full in (reach := self._reach[file]).imported
            or (module in reach.modules and attribute in {"", *reach.attributes})
        ]
        if named:
            return named, []
        seen, level = {module}, {module}
        while level:
            leading = {file: self._reach[file].modules & level for file in self.tests}
            if files := [file for file, through in leading.items() if through]:
                return files, sorted(set[str]().union(*leading.values()))
            level = {user for user in self.modules if self._reach[user].modules & level} - seen
            seen |= level
        return [], []

    @cached_property
    def places(self) -> Mapping[str, list[Definition]]:
        """Definitions by the label that their docstrings name; a module only where nothing in it names the label."""
        found = defaultdict(list)
        for definition in self.definitions.values():
            for label in dict.fromkeys(LABEL.findall(definition.docstring)):
                found[label].append(definition)
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
            if not self.tested(place.full)[0]:
                faults.append(Fault(place.full, "no test that leads to it", "one or more", "test it"))
        return faults

    def page(self) -> str:
        """docs/equations.md; a `ReportError` lists the faults where there are any."""
        faults = self.faults()
        if faults:
            raise ReportError(faults)
        named = [label for label in self.labels if label.kind in COMPLETE or label.name in self.places]
        lines = [HEAD]
        for title, kinds in SECTIONS.items():
            lines += [title, "", "| label | what it is | where | tests |", "|---|---|---|---|"]
            for label in (label for label in named if label.kind in kinds):
                first = f"| `{label.name}` | {label.what} |"
                if label.not_implemented:
                    lines.append(f"{first} not computed: {label.not_implemented} | |")
                for i, place in enumerate(self.places.get(label.name, ())):
                    lines.append(f"{'| | |' if i else first} `{place.full}` | {self._tests(place)} |")
            lines.append("")
        return "\n".join(lines)

    def _tests(self, place: Definition) -> str:
        files, through = self.tested(place.full)
        own = place.module.rpartition(".")[2]
        stems = sorted(
            (PurePosixPath(file).stem for file in files), key=lambda stem: (stem != f"test_{own}", own not in stem)
        )
        shown = _some(stems, MOST_FILES)
        return f"through {_some([f'`{name}`' for name in through], MOST_THROUGH)}: {shown}" if through else shown


def main() -> None:
    """Write the page of the checkout that is the present folder; what stands in the way goes to standard error."""
    root = Path.cwd()
    try:
        page = Index.read(root).page()
    except AfaError as error:
        sys.stderr.write("".join(f"afa: {fault}\n" for fault in error.faults))
        sys.exit(2)
    write_text(root / PAGE, page)


def _some(names: Sequence[str], most: int) -> str:
    return ", ".join(names[:most]) + (" and others" if len(names) > most else "")


def _narrowest(places: list[Definition]) -> list[Definition]:
    """Without a module whose own definitions name the label, or a class whose methods do."""
    inner = [place for place in places if place.name]
    holders = {place.module for place in inner} | {place.full.rpartition(".")[0] for place in inner}
    return [place for place in places if place.full not in holders]


def _readable_first(place: Definition) -> tuple[int, bool, str]:
    """The readable definition, then the engine, then what is made of them; public names before private ones."""
    rooms = ("afa.engine", "afa.planner", "afa.evaluate", "afa.paper")
    room = next((i + 1 for i, name in enumerate(rooms) if place.module.startswith(name)), 0)
    return room, "._" in place.full, place.full


def _within(module: str, prefix: str, body: Sequence[ast.stmt]) -> Iterator[Definition]:
    for statement, below in zip_longest(body, body[1:]):
        if isinstance(statement, ast.FunctionDef | ast.ClassDef):
            yield Definition(module, prefix + statement.name, ast.get_docstring(statement) or "")
            if isinstance(statement, ast.ClassDef):
                yield from _within(module, f"{statement.name}.", statement.body)
        elif isinstance(statement, ast.Assign | ast.AnnAssign):
            docstring = ast.get_docstring(ast.Module([below] if below else [], [])) or ""
            targets = statement.targets if isinstance(statement, ast.Assign) else [statement.target]
            for name in (inner for target in targets for inner in ast.walk(target) if isinstance(inner, ast.Name)):
                yield Definition(module, prefix + name.id, docstring)


def _imports(tree: ast.Module) -> Iterator[tuple[str, str]]:
    """Pairs (name it is bound to, what it stands for) of every import in a file, wherever it stands."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            yield from ((alias.asname or alias.name, alias.name) for alias in node.names)
        elif isinstance(node, ast.ImportFrom) and node.module and node.level == 0:
            yield from ((alias.asname or alias.name, f"{node.module}.{alias.name}") for alias in node.names)


if __name__ == "__main__":
    main()
