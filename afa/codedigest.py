"""Which code a stage runs: a digest over a function and everything of afa that it can reach.

Snakemake sees a changed rule, not a changed import. Each rule therefore carries, as a parameter, the digest of
the command it calls. Comments, white space and docstrings do not enter it; a change in a module that the
command does not import does not either.
"""

from __future__ import annotations

import ast
import hashlib
import json
import sysconfig
from functools import cache
from importlib.util import find_spec, resolve_name
from pathlib import Path

from afa.errors import ConfigError, Fault

PACKAGE = Path(__file__).parent
DIGEST_LENGTH = 16
"""Hexadecimal digits of a code digest."""


def code_digest(root: str) -> str:
    """SHA-256 over the code reached from `root`: a module, `afa.cohort.encode`, or `module:function`."""
    return _digest(code_parts(root))


def stage_digest(name: str, function: str) -> str:
    """Digest of the code of one job of a stage: its `run` or its `summarise`, and the command that calls it."""
    command = {"run": "stage", "summarise": "summarise"}[function]
    return code_digest(f"afa.stages.{name}:{function}") + code_digest(f"afa.cli.stage:{command}")


def code_parts(root: str) -> dict[str, str]:
    """The code reached from `root`, by the names of the modules and of the function.

    A function reaches the names of its own module that it uses, and the modules that those and itself import.
    """
    module, _, function = root.partition(":")
    if not function:
        return _with_imported({}, {module})
    tree = _tree(_source(module))
    nodes = _reached_nodes(tree, function)
    pending: set[str] = set()
    for node in nodes:
        pending |= _imports(node, module)
    names = {name.id for node in nodes for name in ast.walk(node) if isinstance(name, ast.Name)}
    pending |= {target for statement in tree.body for target, bound in _bindings(statement, module) if bound in names}
    return _with_imported({root: "".join(map(_canonical, nodes))}, pending)


def notebook_digest(notebook: str | Path) -> str:
    """SHA-256 over the code of the package that the cells of a notebook import; "" where there is no such file.

    The notebook's own cells do not enter it: its file is an input of the rule that runs it. A file that is no notebook,
    or a cell that is no Python, is a `ConfigError`.
    """
    return _digest(notebook_parts(notebook)) if Path(notebook).is_file() else ""


def notebook_parts(notebook: str | Path) -> dict[str, str]:
    """The code of the package that the cells of a notebook import, by the names of the modules."""
    try:
        cells = json.loads(Path(notebook).read_bytes())["cells"]
        code = ["".join(cell["source"]) for cell in cells if cell["cell_type"] == "code"]
        imported = _imports(ast.parse("\n".join(map(_without_magics, code))), "")
    except (ValueError, KeyError, TypeError, SyntaxError) as error:
        where = str(notebook)
        raise ConfigError(Fault(where, f"no notebook ({error})", "cells of Python", "mend the notebook")) from None
    return _with_imported({}, imported)


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
        pending += [] if _is_installed(file) else _all_imports(file, package)
    return list(dict.fromkeys(files.values()))


def _all_imports(file: Path, package: str | None) -> list[str]:
    """The names of all modules that a file may import; some are names in modules."""
    try:
        statements = list(ast.walk(ast.parse(file.read_bytes())))
    except (SyntaxError, ValueError) as error:
        raise ConfigError(Fault(str(file), f"no Python ({error})", "a module", "correct the file")) from None
    found: list[str] = []
    for statement in statements:
        if isinstance(statement, ast.Import):
            found += [alias.name for alias in statement.names]
        elif isinstance(statement, ast.ImportFrom):
            base = statement.module or ""
            if statement.level:
                base = resolve_name("." * statement.level + base, package or "")
            found += [base, *(f"{base}.{alias.name}" for alias in statement.names)]
    return found


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


def _with_imported(parts: dict[str, str], pending: set[str]) -> dict[str, str]:
    """`parts`, and the code of the modules in `pending` with all that they import."""
    while pending:
        current = pending.pop()
        if current not in parts:
            parts[current], imported = _module(current, _source(current))
            pending |= imported
    return parts


def _digest(parts: dict[str, str]) -> str:
    digest = hashlib.sha256()
    for name in sorted(parts):
        digest.update(f"{name}\0{parts[name]}\0".encode())
    return digest.hexdigest()[:DIGEST_LENGTH]


@cache
def _module(module: str, source: bytes) -> tuple[str, frozenset[str]]:
    """The code of a module and what it imports: every rule of the workflow asks for nearly the same modules."""
    tree = _tree(source)
    return _canonical(tree), frozenset(_imports(tree, module))


@cache
def _tree(source: bytes) -> ast.Module:
    return ast.parse(source)


def _source(module: str) -> bytes:
    return _file(module).read_bytes()


def _file(module: str) -> Path:
    base = PACKAGE.joinpath(*module.split(".")[1:])
    package = base / "__init__.py"
    # A module may have a folder of data with its name beside it.
    return package if package.is_file() else base.with_suffix(".py")


def _exists(module: str) -> bool:
    return module.split(".", maxsplit=1)[0] == PACKAGE.name and _file(module).is_file()


def _reached_nodes(tree: ast.Module, function: str) -> list[ast.stmt]:
    """The top-level statement that defines `function`, and those that define the names it uses, in file order."""
    defined: dict[str, ast.stmt] = {}
    for statement in tree.body:
        if isinstance(statement, ast.FunctionDef | ast.ClassDef):
            defined[statement.name] = statement
        elif isinstance(statement, ast.Assign | ast.AnnAssign):
            targets = statement.targets if isinstance(statement, ast.Assign) else [statement.target]
            defined.update({t.id: statement for t in targets if isinstance(t, ast.Name)})
    if function not in defined:
        raise KeyError(f"no top-level {function} in this module")
    reached: list[ast.stmt] = []
    pending = [function]
    while pending:
        statement = defined[pending.pop()]
        if statement not in reached:
            reached.append(statement)
            pending += [n.id for n in ast.walk(statement) if isinstance(n, ast.Name) and n.id in defined]
    return sorted(reached, key=lambda statement: statement.lineno)


def definition(tree: ast.Module, name: str) -> list[ast.stmt]:
    """The statements of a module that define a name at its top, all that it needs and those imports, in file order."""
    needed = _reached_nodes(tree, name)
    used = {node.id for statement in needed for node in ast.walk(statement) if isinstance(node, ast.Name)}
    imports: list[ast.stmt] = []
    for statement in tree.body:
        if isinstance(statement, ast.Import | ast.ImportFrom):
            future = isinstance(statement, ast.ImportFrom) and statement.module == "__future__"
            names = [a for a in statement.names if future or (a.asname or a.name.partition(".")[0]) in used]
            if names:
                statement.names = names
                imports.append(statement)
    return [*imports, *needed]


def _imports(node: ast.AST, module: str) -> set[str]:
    """Modules of the package imported anywhere under `node`; a package's `__init__` counts as imported too."""
    return {target for statement in ast.walk(node) for target, _ in _bindings(statement, module)}


def _bindings(statement: ast.AST, module: str) -> set[tuple[str, str]]:
    """Pairs (module of the package, name it is bound to) of one import statement."""
    found: set[tuple[str, str]] = set()
    if isinstance(statement, ast.Import):
        for alias in statement.names:
            if _exists(alias.name):
                found.add((alias.name, alias.asname or alias.name.split(".")[0]))
    elif isinstance(statement, ast.ImportFrom) and statement.level == 0 and statement.module:
        for alias in statement.names:
            inner = f"{statement.module}.{alias.name}"
            for target in (inner, statement.module):
                if _exists(target):
                    found.add((target, alias.asname or alias.name))
                    break
    return {(target, bound) for target, bound in found if target != module}


def _canonical(node: ast.Module | ast.stmt) -> str:
    """A dump of the code without docstrings, positions and comments; takes the docstrings out of `node`."""
    for inner in ast.walk(node):
        body = getattr(inner, "body", None)
        if isinstance(inner, ast.FunctionDef | ast.ClassDef | ast.Module) and body and _is_text(body[0]):
            inner.body = body[1:]
    return ast.dump(node if isinstance(node, ast.Module) else ast.Module([node], []))


def _is_text(statement: ast.stmt) -> bool:
    return (
        isinstance(statement, ast.Expr)
        and isinstance(statement.value, ast.Constant)
        and isinstance(statement.value.value, str)
    )
