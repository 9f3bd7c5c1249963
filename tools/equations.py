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
from pathlib import Path, PurePosixPath
from typing import NamedTuple

import pandas as pd

from afa.codedigest import statements
from afa.errors import AfaError, Fault, ReportError
from afa.files import write_text

LABEL = re.compile(r"\b(?:eq|sec|supp|tab|prop|rem|par|box):[A-Za-z0-9_-]*[A-Za-z0-9]")
COMPLETE = ("eq", "prop", "rem")
"""Kinds of labels that must all be somewhere in the code, or say why not."""
SECTIONS = {
    "## Equations": ("eq",),
    "## Propositions and remarks": COMPLETE[1:],
    "## Sections and tables\n\nThose that a docstring names.": ("sec", "supp", "tab", "par", "box"),
}
COLUMNS = ["label", "what", "not_implemented"]
LABELS, PAGE = Path("docs/equations.csv"), Path("docs/equations.md")
MOST_FILES, MOST_THROUGH = 4, 2
HEAD = """\
# Equation index

Where the equations of the paper (arXiv 2606.18933) are computed. Written by `python tools/equations.py` from
the docstrings, which name the paper's LaTeX labels, and from [equations.csv](equations.csv), which says in our
words what each label is; do not edit it. A test fails where a label has no place and no reason for that, where a
docstring names a label that the paper does not have, where no test leads to a place, and where this page is out of
date.

Tests are given by file: the module's own, then the others that name the function or class. Where no test names it,
they are those that name the nearest code which uses it, after *through*. `afa.engine` is the compiled form of the
readable definitions: tests hold one against the other.
"""


class Definition(NamedTuple):
    """A module, class, function, method or constant with its docstring.

    module, name : `afa.mrf` and `Evidence.observe`; the name of a module itself is empty. uses : the dotted names in
    its code, as they are written there.
    """

    module: str
    name: str
    docstring: str
    uses: frozenset[str]

    @property
    def full(self) -> str:
        return f"{self.module}.{self.name}" if self.name else self.module


class Tested(NamedTuple):
    """Test files that name a definition, or where none does the nearest definitions that use it: `through`."""

    files: tuple[str, ...]
    through: tuple[str, ...] = ()


@dataclass(frozen=True)
class Source:
    """A package and its tests as parsed: modules by dotted name, test files by path from the folder above them."""

    modules: Mapping[str, ast.Module]
    tests: Mapping[str, ast.Module]

    @classmethod
    def read(cls, package: Path, tests: Path) -> Source:
        """Parse every Python file of the one folder and every test file of the other; both may be anywhere."""
        modules = {
            ".".join(path.relative_to(package.parent).with_suffix("").parts).removesuffix(".__init__"): path
            for path in sorted(package.rglob("*.py"))
        }
        files = {path.relative_to(tests.parent).as_posix(): path for path in sorted(tests.rglob("test_*.py"))}
        parsed = ({name: ast.parse(path.read_bytes()) for name, path in part.items()} for part in (modules, files))
        return cls(*parsed)

    @cached_property
    def definitions(self) -> dict[str, Definition]:
        """All definitions by full name, in the order of modules and lines."""
        found: dict[str, Definition] = {}
        for module, tree in self.modules.items():
            found[module] = Definition(module, "", ast.get_docstring(tree) or "", frozenset())
            found |= {each.full: each for each in _within(module, "", tree.body)}
        return found

    def home(self, dotted: str) -> str:
        """Where a dotted name is defined, past any re-export: `afa.exact` is `afa.inference.exact.exact`."""
        parts = dotted.split(".")
        for size in range(len(parts), 0, -1):
            module, rest = ".".join(parts[:size]), parts[size:]
            if module in self.modules:
                is_own = not rest or f"{module}.{rest[0]}" in self.definitions
                return dotted if is_own else self._meant(".".join(rest), self._bound[module]) or dotted
        return dotted

    def _meant(self, dotted: str, bound: Mapping[str, str]) -> str:
        """The full name behind a dotted name where names stand for what is `bound` to them; empty for any other."""
        root, *rest = dotted.split(".")
        return self.home(".".join([bound[root], *rest])) if root in bound else ""

    @cached_property
    def _bound(self) -> dict[str, dict[str, str]]:
        """By module, what the names in it stand for: what it imports, and its own definitions."""
        bound = {module: dict(_imports(tree)) for module, tree in self.modules.items()}
        for each in self.definitions.values():
            if each.name and "." not in each.name:
                bound[each.module][each.name] = each.full
        return bound

    def tested(self, full: str) -> Tested:
        """The test files behind one definition; no files where no test leads to it."""
        seen, level = {full}, [full]
        while level:
            if through := [each for each in level if self._tests[each]]:
                files = set[str]().union(*(self._tests[each] for each in through))
                return Tested(tuple(sorted(files)), tuple(each for each in through if each != full))
            level = sorted({user for each in level for user in self._users.get(each, ())} - seen)
            seen.update(level)
        return Tested(())

    @cached_property
    def _users(self) -> dict[str, set[str]]:
        """By full name, the definitions at the top of a module whose code names it; a class uses its methods."""
        users = defaultdict(set)
        for user in self.definitions.values():
            if "." in user.name:
                users[user.full].add(f"{user.module}.{user.name.split('.')[0]}")
            elif user.name:
                for dotted in user.uses:
                    users[self._meant(dotted, self._bound[user.module])].add(user.full)
        return users

    @cached_property
    def _tests(self) -> dict[str, set[str]]:
        """By full name, the test files whose code names a definition.

        Who names it names the module and class that hold it. An attribute of its name is a method in a file that names
        something of its module.
        """
        tests: dict[str, set[str]] = {name: set() for name in self.definitions}
        methods = defaultdict(list)
        for each in self.definitions.values():
            if "." in each.name:
                methods[each.name.rpartition(".")[2]].append(each)
        for file, tree in self.tests.items():
            bound, used = dict(_imports(tree)), set(_dotted_names(tree))
            parts = [self._meant(dotted, bound).split(".") for dotted in used]
            named = {".".join(each[:size]) for each in parts for size in range(1, len(each) + 1)} & tests.keys()
            attributes = {dotted.rpartition(".")[2] for dotted in used if "." in dotted}
            called = {each.full for name in attributes for each in methods.get(name, ()) if each.module in named}
            for full in named | called:
                tests[full].add(file)
        return tests


class Label(NamedTuple):
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
        found = defaultdict(list)
        for definition in self.source.definitions.values():
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
            if not self.source.tested(place.full).files:
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
        tested = self.source.tested(place.full)
        stems = [PurePosixPath(file).stem for file in tested.files]
        own = place.module.rpartition(".")[2]
        files = _some(sorted(stems, key=lambda stem: (stem != f"test_{own}", own not in stem)), MOST_FILES)
        if not tested.through:
            return files
        return f"through {_some([f'`{name}`' for name in tested.through], MOST_THROUGH)}: {files}"


def read_labels(path: Path) -> tuple[Label, ...]:
    """The labels of docs/equations.csv, in the paper's order; a `ReportError` names every row that is wrong."""
    if not path.is_file():
        step = "run this in the project's folder"
        raise ReportError(Fault(str(path), "no such file", "the labels of the paper", step))
    table = pd.read_csv(path, dtype=str, keep_default_na=False)
    if list(table.columns) != COLUMNS:
        found, header = ",".join(table.columns), ",".join(COLUMNS)
        raise ReportError(Fault(f"{path}, line 1", f"the header {found}", header, "correct the header"))
    expected = "a label of the paper, once, with what it is"
    labels, again = tuple(Label(*row) for row in table.itertuples(index=False)), table["label"].duplicated()
    faults = [
        Fault(f"{path}, line {line}", f"{name!r}{' again' if twice else ''} with {what!r}", expected, "correct the row")
        for line, (name, what, _), twice in zip(range(2, len(labels) + 2), labels, again, strict=True)
        if twice or not LABEL.fullmatch(name) or not what
    ]
    if faults:
        raise ReportError(faults)
    return labels


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
    rooms = ("afa.engine", "afa.stages", "afa.report", "afa.config")
    room = next((i + 1 for i, name in enumerate(rooms) if place.module.startswith(name)), 0)
    return room, "._" in place.full, place.full


def _within(module: str, prefix: str, body: Sequence[ast.stmt]) -> Iterator[Definition]:
    for i, statement in enumerate(body):
        if isinstance(statement, ast.FunctionDef | ast.ClassDef):
            name, docstring = prefix + statement.name, ast.get_docstring(statement) or ""
            yield Definition(module, name, docstring, frozenset(_dotted_names(statement)))
            if isinstance(statement, ast.ClassDef):
                yield from _within(module, f"{name}.", statement.body)
        elif isinstance(statement, ast.Assign | ast.AnnAssign):
            docstring = ast.get_docstring(ast.Module(list(body[i + 1 : i + 2]), [])) or ""  # what stands below it
            for name in _bound_by(statement):
                yield Definition(module, prefix + name, docstring, frozenset(_dotted_names(statement)))


def _bound_by(statement: ast.stmt) -> list[str]:
    """Names that a statement of a module or class defines."""
    if isinstance(statement, ast.FunctionDef | ast.ClassDef):
        return [statement.name]
    if isinstance(statement, ast.Assign | ast.AnnAssign):
        targets = statement.targets if isinstance(statement, ast.Assign) else [statement.target]
        return [inner.id for target in targets for inner in ast.walk(target) if isinstance(inner, ast.Name)]
    return []


def _dotted_names(node: ast.AST) -> Iterator[str]:
    """Every name in a piece of code with the attributes behind it: `a`, `a.b`; of `f().b` only `.b`."""
    for inner in ast.walk(node):
        if isinstance(inner, ast.Name):
            yield inner.id
        elif isinstance(inner, ast.Attribute):
            attributes, root = [inner.attr], inner.value
            while isinstance(root, ast.Attribute):
                attributes.append(root.attr)
                root = root.value
            yield ".".join([root.id if isinstance(root, ast.Name) else "", *reversed(attributes)])


def _imports(tree: ast.Module) -> Iterator[tuple[str, str]]:
    """Pairs (name it is bound to, what it stands for) of every import in a file, wherever it stands."""
    for node in statements(tree.body):
        if isinstance(node, ast.Import):
            for alias in node.names:
                yield (alias.asname, alias.name) if alias.asname else (alias.name.split(".")[0],) * 2
        elif isinstance(node, ast.ImportFrom) and node.module and node.level == 0:
            for alias in node.names:
                yield alias.asname or alias.name, f"{node.module}.{alias.name}"


if __name__ == "__main__":
    main()
