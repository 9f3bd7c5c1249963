"""The package and its tests read as text: what is defined, what its docstrings say, and which tests name it.

Nothing is imported, so that a page made from this is the same whatever is installed.
"""

from __future__ import annotations

import ast
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path


@dataclass(frozen=True)
class Definition:
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


@dataclass(frozen=True)
class Tested:
    """Test files that name a definition, or where none does the nearest definitions that use it: `through`.

    Files with the most tests that do so come first.
    """

    files: tuple[str, ...]
    through: tuple[str, ...] = ()


@dataclass(frozen=True)
class Source:
    """A package and its tests as parsed: modules by dotted name, test files by path from the folder above them."""

    modules: Mapping[str, ast.Module]
    tests: Mapping[str, ast.Module]

    @classmethod
    def read(cls, package: Path, tests: Path) -> Source:
        """Parse every Python file of both folders; both may be anywhere."""
        return cls(
            {_module_of(path, package): _parse(path) for path in sorted(package.rglob("*.py"))},
            {path.relative_to(tests.parent).as_posix(): _parse(path) for path in sorted(tests.rglob("*.py"))},
        )

    @cached_property
    def definitions(self) -> dict[str, Definition]:
        """All definitions by full name, in the order of modules and lines."""
        found = (each for module, tree in self.modules.items() for each in _definitions(module, tree))
        return {each.full: each for each in found}

    def home(self, dotted: str) -> str:
        """Where a dotted name is defined, past any re-export: `afa.exact` is `afa.inference.exact.exact`."""
        parts = dotted.split(".")
        for size in range(len(parts), 0, -1):
            module, rest = ".".join(parts[:size]), parts[size:]
            if module in self.modules:
                if not rest or f"{module}.{rest[0]}" in self.definitions or rest[0] not in self._imported[module]:
                    return dotted
                return self.home(".".join([self._imported[module][rest[0]], *rest[1:]]))
        return dotted

    def tested(self, full: str) -> Tested:
        """The test files behind one definition; no files where no test leads to it.

        A test names what its code, or a helper of its file, names of the package. A method is named by an attribute of
        its name in a file that names something of its module.
        """
        if self._tests[full]:
            return Tested(_most_first(self._tests[full]))
        seen, level = {full}, [full]
        while level:
            level = sorted({user for each in level for user in self._users.get(each, ())} - seen)
            seen.update(level)
            through = [each for each in level if self._tests[each]]
            if through:
                return Tested(_most_first(sum((self._tests[each] for each in through), Counter())), tuple(through))
        return Tested(())

    @cached_property
    def _imported(self) -> dict[str, dict[str, str]]:
        return {module: dict(_imports(tree)) for module, tree in self.modules.items()}

    @cached_property
    def _users(self) -> dict[str, set[str]]:
        """By full name, the definitions at the top of a module whose code names it; a class uses its methods."""
        users: dict[str, set[str]] = {}
        for user in self.definitions.values():
            top = f"{user.module}.{user.name.split('.')[0]}"
            if "." in user.name:
                users.setdefault(user.full, set()).add(top)
            elif user.name:
                for dotted in user.uses:
                    users.setdefault(self._meant(user.module, dotted), set()).add(user.full)
        return users

    def _meant(self, module: str, dotted: str) -> str:
        """The full name behind a dotted name in a module of the package."""
        root, *rest = dotted.split(".")
        if f"{module}.{root}" in self.definitions:
            return f"{module}.{dotted}"
        return self.home(".".join([self._imported[module].get(root, root), *rest]))

    @cached_property
    def _tests(self) -> dict[str, Counter[str]]:
        """By full name, how many test functions of each file name a definition."""
        counts: dict[str, Counter[str]] = {name: Counter() for name in self.definitions}
        for file, tree in self.tests.items():
            bound, used = dict(_imports(tree)), list(_used_by_tests(tree))
            named = [self._named(names, bound) for names in used]
            near = set[str]().union(*named)
            for names, full in zip(used, named, strict=True):
                for each in full | self._methods_named(names, near):
                    counts[each][file] += 1
        return counts

    def _named(self, used: set[str], bound: Mapping[str, str]) -> set[str]:
        """Full names behind the dotted names of a test, with the modules and classes that hold them."""
        named: set[str] = set()
        for dotted in used:
            root, *rest = dotted.split(".")
            parts = self.home(".".join([bound[root], *rest])).split(".") if root in bound else []
            named |= {".".join(parts[:size]) for size in range(1, len(parts) + 1)} & self.definitions.keys()
        return named

    def _methods_named(self, used: set[str], near: set[str]) -> set[str]:
        """Full names of the methods, of modules in `near`, that the attributes of a test may be."""
        attributes = {dotted.rpartition(".")[2] for dotted in used if "." in dotted}
        methods = (method for name in attributes for method in self._methods.get(name, ()))
        return {method.full for method in methods if method.module in near}

    @cached_property
    def _methods(self) -> dict[str, list[Definition]]:
        methods: dict[str, list[Definition]] = {}
        for each in self.definitions.values():
            if "." in each.name:
                methods.setdefault(each.name.rpartition(".")[2], []).append(each)
        return methods


def _most_first(counts: Counter[str]) -> tuple[str, ...]:
    return tuple(sorted(counts, key=lambda file: (-counts[file], file)))


def _parse(path: Path) -> ast.Module:
    return ast.parse(path.read_bytes(), filename=str(path))


def _module_of(path: Path, package: Path) -> str:
    parts = path.relative_to(package.parent).with_suffix("").parts
    return ".".join(parts[:-1] if parts[-1] == "__init__" else parts)


def _definitions(module: str, tree: ast.Module) -> Iterator[Definition]:
    yield Definition(module, "", ast.get_docstring(tree) or "", frozenset())
    yield from _within(module, "", tree.body)


def _within(module: str, prefix: str, body: Sequence[ast.stmt]) -> Iterator[Definition]:
    for i, statement in enumerate(body):
        if isinstance(statement, ast.FunctionDef | ast.ClassDef):
            name, docstring = prefix + statement.name, ast.get_docstring(statement) or ""
            yield Definition(module, name, docstring, frozenset(_dotted_names(statement)))
            if isinstance(statement, ast.ClassDef):
                yield from _within(module, f"{name}.", statement.body)
        elif isinstance(statement, ast.Assign | ast.AnnAssign):
            docstring = _text(body[i + 1]) if i + 1 < len(body) else ""
            for name in _bound_by(statement):
                yield Definition(module, prefix + name, docstring, frozenset(_dotted_names(statement)))


def _text(statement: ast.stmt) -> str:
    """The docstring that stands below a constant, or nothing."""
    value = statement.value if isinstance(statement, ast.Expr) else None
    return value.value if isinstance(value, ast.Constant) and isinstance(value.value, str) else ""


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
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            for alias in node.names:
                yield (alias.asname, alias.name) if alias.asname else (alias.name.split(".")[0],) * 2
        elif isinstance(node, ast.ImportFrom) and node.module and node.level == 0:
            for alias in node.names:
                yield alias.asname or alias.name, f"{node.module}.{alias.name}"


def _used_by_tests(tree: ast.Module) -> Iterator[set[str]]:
    """For each test function of a file, the dotted names in it and in what of the same file it uses."""
    top = {name: statement for statement in tree.body for name in _bound_by(statement)}
    names = {name: set(_dotted_names(statement)) for name, statement in top.items()}
    leads = {
        name: ({each.partition(".")[0] for each in names[name]} | _arguments(statement)) & top.keys()
        for name, statement in top.items()
    }
    for test in top:
        if test.startswith(("test_", "Test")):
            reached, pending = {test}, [test]
            while pending:
                further = leads[pending.pop()] - reached
                reached |= further
                pending.extend(further)
            yield set[str]().union(*(names[name] for name in reached))


def _arguments(statement: ast.stmt) -> set[str]:
    """Names of the arguments in a statement: those of a test are fixtures."""
    return {inner.arg for inner in ast.walk(statement) if isinstance(inner, ast.arg)}
