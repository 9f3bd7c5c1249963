"""Which code a stage runs: a digest over a function and everything of afa that it can reach.

Snakemake sees a changed rule, not a changed import. Each rule therefore carries, as a parameter, the digest of
the command it calls. Comments, white space and docstrings do not enter it; a change in a module that the
command does not import does not either.
"""

from __future__ import annotations

import ast
import hashlib
import json
import re
import sys
import sysconfig
from collections.abc import Iterable, Iterator
from contextlib import suppress
from copy import copy
from dataclasses import dataclass
from functools import cache
from importlib.util import find_spec, resolve_name
from pathlib import Path

from afa.errors import ConfigError, Fault
from afa.files import atomic_file

PACKAGE = Path(__file__).parent
DIGEST_LENGTH = 16
"""Hexadecimal digits of a code digest."""


@dataclass(frozen=True)
class _Facts:
    """A source, or a function in it, without docstrings and positions, and what it imports of the package.

    An import is two names, `afa.module.name` and `afa.module`: the first that is a module is imported.
    """

    digest: str
    imports: frozenset[tuple[str, str]]


class Code:
    """The code of the package as it is now; each file is read once.

    Parameters
    ----------
    kept
        A file that keeps from call to call what was found in a source, by the source's content. It only saves time.

    """

    def __init__(self, kept: Path | None = None) -> None:
        self._kept = kept
        self._before = _read(kept) if kept is not None else {}
        self._used: dict[str, _Facts] = {}
        self._files = {
            ".".join(path.relative_to(PACKAGE.parent).with_suffix("").parts).removesuffix(".__init__"): path
            for path in PACKAGE.rglob("*.py")
        }
        self._modules: dict[str, tuple[str, set[str]]] = {}

    def digest(self, root: str) -> str:
        """SHA-256 over the code reached from `root`: a module, `afa.cohort.encode`, or `module:function`."""
        return _digest(self.parts(root))

    def stage(self, name: str, function: str) -> str:
        """Digest of the code of one job of a stage: its `run` or its `summarise`, and the command that calls it."""
        command = {"run": "stage", "summarise": "summarise"}[function]
        return self.digest(f"afa.stages.{name}:{function}") + self.digest(f"afa.cli.stage:{command}")

    def notebook(self, notebook: str | Path) -> str:
        """SHA-256 over the code of the package that the cells of a notebook import; "" where there is no such file.

        The notebook's own cells do not enter it: its file is an input of the rule that runs it. A file that is no
        notebook, or a cell that is no Python, is a `ConfigError`.
        """
        return _digest(self.notebook_parts(notebook)) if Path(notebook).is_file() else ""

    def parts(self, root: str) -> dict[str, str]:
        """Digests of the code reached from `root`, by the names of the modules and of the function.

        A function reaches the names of its own module that it uses, and the modules that those and itself import. One
        that its module only imports, as `from afa.module import run as run`, is that of the other module.
        """
        module, _, function = root.partition(":")
        if not function:
            return self._with_imported({}, {module})
        source = self._files[module].read_bytes()
        if home := re.search(rf"^from (\S+) import {function} as {function}$", source.decode(), re.MULTILINE):
            return self.parts(f"{home[1]}:{function}")
        facts = self._facts(source, function)
        return self._with_imported({root: facts.digest}, self._imported(facts) - {module})

    def notebook_parts(self, notebook: str | Path) -> dict[str, str]:
        """Digests of the code of the package that the cells of a notebook import, by the names of the modules."""
        try:
            cells = json.loads(Path(notebook).read_bytes())["cells"]
            code = ["".join(cell["source"]) for cell in cells if cell["cell_type"] == "code"]
            facts = self._facts("\n".join(map(_without_magics, code)).encode())
        except (ValueError, KeyError, TypeError, SyntaxError, ImportError) as error:
            where = str(notebook)
            raise ConfigError(Fault(where, f"no notebook ({error})", "cells of Python", "correct it")) from None
        return self._with_imported({}, self._imported(facts))

    def keep(self) -> None:
        """Write what this call needed to know of sources, where the file has more or less."""
        if self._kept is not None and self._used.keys() != self._before.keys():
            known = {key: [facts.digest, sorted(facts.imports)] for key, facts in sorted(self._used.items())}
            with suppress(OSError), atomic_file(self._kept) as path:  # a dry run may have no right to write
                path.write_text(json.dumps(known), encoding="utf-8")

    def _with_imported(self, parts: dict[str, str], pending: set[str]) -> dict[str, str]:
        """`parts`, and the code of the modules in `pending` with all that they import."""
        while pending:
            current = pending.pop()
            if current not in parts:
                if current not in self._modules:
                    facts = self._facts(self._files[current].read_bytes())
                    self._modules[current] = facts.digest, self._imported(facts) | self._folder(current)
                parts[current], imported = self._modules[current]
                pending |= imported - parts.keys()
        return parts

    def _facts(self, source: bytes, function: str = "") -> _Facts:
        key = hashlib.sha256(f"{sys.version_info[:2]} {function}\0".encode() + source).hexdigest()
        if key not in self._used:
            self._used[key] = self._before.get(key) or _facts(source, function)
        return self._used[key]

    def _imported(self, facts: _Facts) -> set[str]:
        found = (next((name for name in names if name in self._files), "") for names in facts.imports)
        return set(found) - {""}

    def _folder(self, package: str) -> set[str]:
        """The modules of a package that imports whatever is in its folder, by its own name."""
        if b'import_module(f"{__name__}.' not in self._files[package].read_bytes():
            return set()
        inside = {name: path for name, path in self._files.items() if name.rpartition(".")[0] == package}
        return {name for name, path in inside.items() if not path.stem.startswith("_")}


def _read(kept: Path) -> dict[str, _Facts]:
    """The facts in a file; none where it is not there, or is not whole."""
    try:
        known = json.loads(kept.read_bytes())
        return {key: _Facts(digest, frozenset(map(tuple, names))) for key, (digest, names) in known.items()}
    except (OSError, ValueError, TypeError, AttributeError):
        return {}


def _digest(parts: dict[str, str]) -> str:
    digest = hashlib.sha256()
    for name in sorted(parts):
        digest.update(f"{name}\0{parts[name]}\0".encode())
    return digest.hexdigest()[:DIGEST_LENGTH]


@cache
def _facts(source: bytes, function: str) -> _Facts:
    """What there is to know of a source, or of one of its functions with the names of its module that it uses."""
    tree = _tree(source)
    imports, nodes = definition(tree, function) if function else ([], tree.body)
    found = [names[:2] for statement in statements([*imports, *nodes]) for names in _imports(statement)]
    ours = frozenset(names for names in found if names[1].partition(".")[0] == PACKAGE.name)
    code = "".join(map(_canonical, nodes))
    return _Facts(hashlib.sha256(code.encode()).hexdigest(), ours)


@cache
def _tree(source: bytes) -> ast.Module:
    return ast.parse(source)


def user_files(module: str) -> list[Path]:
    """The file of a module, and of every module that it imports, but of afa, of Python and of installed packages.

    Empty where there is no such module; a file that is no Python is a `ConfigError`.
    """
    files: dict[str, Path] = {}
    pending = [module]
    while pending:
        name = pending.pop()
        # The package first: to find a module in it Python imports the package.
        top, _ = _found(name.partition(".")[0])
        file, package = (None, None) if top is not None and _is_installed(top) and name != module else _found(name)
        if file is None or name in files:
            continue
        files[name] = file
        if not _is_installed(file):
            try:
                tree = ast.parse(file.read_bytes())
            except (SyntaxError, ValueError) as error:
                raise ConfigError(Fault(str(file), f"no Python ({error})", "a module", "correct the file")) from None
            pending += [
                each for node in statements(tree.body) for names in _imports(node, package) for each in names[:2]
            ]
    return list(dict.fromkeys(files.values()))


def _is_installed(file: Path) -> bool:
    folders = [Path(sysconfig.get_path(kind)) for kind in ("stdlib", "purelib", "platlib")]
    return any(file.is_relative_to(folder) for folder in (*folders, PACKAGE))


def _found(module: str) -> tuple[Path | None, str | None]:
    """The source of a module and the package it is in; None where there is no such module."""
    try:
        spec = find_spec(module)
    except (ImportError, ValueError):
        return None, None
    if spec is None or spec.origin is None or not spec.origin.endswith(".py"):
        return None, None
    return Path(spec.origin), spec.parent


def _without_magics(cell: str) -> str:
    return "\n".join(line for line in cell.split("\n") if not line.startswith(("%", "!")))


def statements(nodes: Iterable[ast.AST]) -> Iterator[ast.AST]:
    """These statements and all within them, but no expressions, of which there are ten times as many."""
    for node in nodes:
        yield node
        for name in ("body", "handlers", "orelse", "finalbody", "cases"):
            yield from statements(getattr(node, name, ()))


def definition(tree: ast.Module, name: str) -> tuple[list[ast.stmt], list[ast.stmt]]:
    """What a name at the top of a module needs of it, in file order: imports, of used names alone, and definitions."""
    defined: dict[str, ast.stmt] = {}
    for statement in tree.body:
        if isinstance(statement, ast.FunctionDef | ast.ClassDef):
            defined[statement.name] = statement
        elif isinstance(statement, ast.Assign | ast.AnnAssign):
            targets = statement.targets if isinstance(statement, ast.Assign) else [statement.target]
            defined.update({target.id: statement for target in targets if isinstance(target, ast.Name)})
    if name not in defined:
        raise KeyError(f"no top-level {name} in this module")
    needed, used, pending = set[ast.stmt](), set[str](), [name]
    while pending:
        statement = defined[pending.pop()]
        if statement not in needed:
            needed.add(statement)
            names = {node.id for node in ast.walk(statement) if isinstance(node, ast.Name)}
            used |= names
            pending += names & defined.keys()
    imports: list[ast.stmt] = []
    for statement in tree.body:
        if isinstance(statement, ast.Import | ast.ImportFrom):
            bound = zip(statement.names, _imports(statement), strict=True)
            if kept := [alias for alias, (_, module, to) in bound if to in used or module == "__future__"]:
                imports.append(copy(statement))
                imports[-1].names = kept  # type: ignore[attr-defined]
    return imports, sorted(needed, key=lambda statement: statement.lineno)


def _imports(statement: ast.AST, package: str | None = None) -> list[tuple[str, str, str]]:
    """(`module.name`, `module`, the name it is bound to) of each name that one statement imports.

    package : where the statement stands, for what is relative to it.
    """
    if isinstance(statement, ast.Import):
        return [(each.name, each.name, each.asname or each.name.partition(".")[0]) for each in statement.names]
    if not isinstance(statement, ast.ImportFrom):
        return []
    module = statement.module or ""
    if statement.level:
        module = resolve_name("." * statement.level + module, package)
    return [(f"{module}.{each.name}", module, each.asname or each.name) for each in statement.names]


def _canonical(node: ast.stmt) -> str:
    """A dump of a statement without docstrings, positions and comments; takes the docstrings out of `node`."""
    if _is_text(node):
        return ""
    for inner in statements([node]):
        if isinstance(inner, ast.FunctionDef | ast.ClassDef):
            inner.body = [statement for statement in inner.body if not _is_text(statement)]
    return ast.dump(node)


def _is_text(statement: ast.stmt) -> bool:
    """Whether a statement is a text alone, such as a docstring."""
    return isinstance(statement, ast.Expr) and isinstance(getattr(statement.value, "value", None), str)
