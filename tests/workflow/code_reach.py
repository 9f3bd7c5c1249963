"""Which modules of `afa` the command of a rule can reach: from bytecode and the graph of imports, not from sources.

The workflow's own account, `afa.paper.codedigest`, walks syntax trees. This one starts at what the command line calls,
follows the names that its compiled functions use within their module, and leaves the rest to grimp, the graph behind
import-linter.
"""

from __future__ import annotations

import dis
import importlib
import inspect
import json
import re
import shlex
from collections.abc import Iterator, Mapping
from functools import cache
from pathlib import Path
from types import CodeType
from typing import Any

import grimp
import typer.main

from afa.cli import app

ROOT = Path(__file__).parents[2]
GLOBALS = ("LOAD_GLOBAL", "LOAD_NAME")
OF_STAGES = {"stage": "run", "summarise": "summarise"}
"""Commands that call a function of the stage they name; with `--rows` the first calls `summarise` too."""


@cache
def graph() -> grimp.ImportGraph:
    """All imports of the package that run, those inside functions too."""
    return grimp.build_graph("afa", cache_dir=None, exclude_type_checking_imports=True)


@cache
def modules_and_names(command: str) -> tuple[frozenset[str], Mapping[str, frozenset[str]]]:
    """What a shell command of the workflow runs of `afa`: whole modules, and names of the modules of its functions.

    A program that is not `afa` runs none of it. The notebook that a command is given counts with its imports.
    """
    names: dict[str, frozenset[str]] = {}
    imported: set[str] = set()
    for function in functions_of(command):
        used, more = _reached(function)
        names[function.__module__] = names.get(function.__module__, frozenset()) | used
        imported |= more
    if names:
        for notebook in notebooks_of(command):
            imported |= _imports_of_notebook(ROOT / notebook)
    whole = {found for module in imported for found in {module, *graph().find_upstream_modules(module)}}
    return frozenset(whole), names


def functions_of(command: str) -> list[Any]:
    """The function that a command line calls, and that of the stage it names; none where its program is not `afa`."""
    program, *words = _words(command)
    if program != "afa":
        return []
    called: Any = typer.main.get_command(app)
    for word in words:
        if not hasattr(called, "commands"):
            break
        called = called.commands[word]
    functions = [inspect.unwrap(called.callback)]
    if words[0] in OF_STAGES:
        stage = importlib.import_module(f"afa.paper.experiments.{words[1]}")
        called_of_stage = {OF_STAGES[words[0]], *(["summarise"] if "--rows" in words else [])}
        functions += [getattr(stage, name) for name in sorted(called_of_stage) if hasattr(stage, name)]
    return functions


def notebooks_of(command: str) -> list[str]:
    """The notebooks of the project that a command line names."""
    return [word for word in _words(command) if word.startswith("notebooks/") and word.endswith(".ipynb")]


def _words(command: str) -> list[str]:
    return shlex.split(command.partition(" > ")[0].rpartition("&& ")[2])


def _reached(function: Any) -> tuple[set[str], set[str]]:
    """Names of the function's own module that it needs, itself too, and modules of `afa` imported on the way."""
    module = importlib.import_module(function.__module__)
    top = compile(Path(module.__file__ or "").read_bytes(), module.__name__, "exec")
    elsewhere, values = _imported_names(top), _values_at_the_top(top)
    used: set[str] = set()
    imported: set[str] = set()
    pending = {function.__name__}
    while pending:
        name = pending.pop()
        thing = module.__dict__.get(name)
        if name in elsewhere and thing is not None:  # not what is imported for the types alone
            imported.add(elsewhere[name])
        elif thing is not None and name not in used:
            used.add(name)
            pending |= values.get(name, set())
            for code in _codes_of(thing):
                imported |= set(_imported_names(code).values())
                pending |= {step.argval for step in dis.get_instructions(code) if step.opname in GLOBALS}
    return used, imported & graph().modules


def _values_at_the_top(top: CodeType) -> dict[str, set[str]]:
    """The names that a module loads to work out each value that it binds at its top."""
    found: dict[str, set[str]] = {}
    loaded: set[str] = set()
    storing = False
    for step in dis.get_instructions(top):
        if step.opname == "STORE_NAME":
            found.setdefault(step.argval, set()).update(loaded)
            storing = True
        elif storing:
            loaded, storing = set(), False
        if step.opname == "LOAD_NAME":
            loaded.add(step.argval)
    return found


def _codes_of(thing: Any) -> Iterator[CodeType]:
    """The code of a function, or of a class's, and of those inside it; and its annotations: typer evaluates them."""
    methods = [value for value in vars(thing).values() if inspect.isfunction(value)] if inspect.isclass(thing) else []
    functions = [inspect.unwrap(each) for each in (thing, *methods) if inspect.isfunction(each)]
    pending = [function.__code__ for function in functions]
    pending += [
        compile(text, "<annotation>", "eval")
        for function in functions
        for text in inspect.get_annotations(function).values()
        if isinstance(text, str)
    ]
    while pending:
        code = pending.pop()
        yield code
        pending += [constant for constant in code.co_consts if isinstance(constant, CodeType)]


def _imported_names(code: CodeType) -> dict[str, str]:
    """The names that the import statements of some code bind, each with the module of it that is imported."""
    found, source, last = {}, "", ""
    for step in dis.get_instructions(code):
        if step.opname == "IMPORT_NAME":
            source = last = step.argval
        elif step.opname == "IMPORT_FROM":
            inner = f"{source}.{step.argval}"
            last = inner if inner in graph().modules else source
        elif step.opname.startswith("STORE_") and last:
            found[step.argval], last = last, ""
    return found


def _imports_of_notebook(notebook: Path) -> set[str]:
    cells = json.loads(notebook.read_text(encoding="utf-8"))["cells"]
    source = "\n".join("".join(cell["source"]) for cell in cells if cell["cell_type"] == "code")
    code = compile(re.sub(r"^[%!].*", "", source, flags=re.MULTILINE), notebook.name, "exec")
    return set(_imported_names(code).values()) & graph().modules
