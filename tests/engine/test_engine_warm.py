"""Kernels compiled ahead of use: all of them, so that no run has to wait for one."""

from __future__ import annotations

import ast
import importlib
import os
import pkgutil
import subprocess
import sys
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import pytest
from numba.core.dispatcher import Dispatcher

import afa.engine
from afa.engine.compile import ALL_KERNELS, PLANNER_KERNELS, SOURCES, compiled_groups
from afa.engine.warm import compile_all

PACKAGE = Path(afa.engine.__file__).parents[1]


def kernels() -> Iterator[tuple[str, Dispatcher]]:
    """Every kernel of the engine that is called, and not put into its callers, by module and name."""
    for module in pkgutil.iter_modules(afa.engine.__path__, "afa.engine."):
        for name, found in vars(importlib.import_module(module.name)).items():
            own = isinstance(found, Dispatcher) and found.py_func.__module__ == module.name
            if own and found.targetoptions.get("inline") != "always":
                yield f"{module.name}.{name}", found


def test_all_kernels_are_compiled_and_listed() -> None:
    compile_all(processes=1)
    assert compiled_groups() == [PLANNER_KERNELS, ALL_KERNELS]


@pytest.mark.slow
def test_each_kernel_is_compiled_once_and_none_is_left_to_be_compiled_in_a_run(tmp_path: Path) -> None:
    environment = {**os.environ, "NUMBA_CACHE_DIR": str(tmp_path)}
    subprocess.run([sys.executable, "-m", "afa.engine.warm"], env=environment, check=True)
    kept = Counter(path.name.split("-")[0] for path in tmp_path.rglob("*.nbc"))
    names = {
        f"{kernel.py_func.__module__.split('.')[-1]}.{kernel.py_func.__qualname__}": name for name, kernel in kernels()
    }
    assert len(names) > 50
    assert sorted(name for short, name in names.items() if short not in kept) == []
    twice = [name for name, n in kept.items() if n > 1]
    assert twice == [], "a second compilation would change a file that the list already has, for all other processes"


def test_python_calls_no_kernel_that_only_kernels_may_call() -> None:
    """Such a call would end the process without a word."""
    trees = {_module(path): ast.parse(path.read_text(encoding="utf-8")) for path in PACKAGE.rglob("*.py")}
    inner = {
        (module, function.name)
        for module, tree in trees.items()
        for function in tree.body
        if isinstance(function, ast.FunctionDef) and _as_kernel(function) not in (None, "entrance")
    }
    assert len(inner) > 50
    wrong = [
        f"{module}:{call.lineno} {call.func.id}"
        for module, tree in trees.items()
        for origins in [_origins(tree)]
        for call in _calls(tree)
        if origins.get(call.func.id, (module, call.func.id)) in inner
    ]
    assert wrong == []


def test_the_name_of_the_cache_follows_from_every_file_with_a_constant_of_a_kernel() -> None:
    """If such a constant changed and the name did not, the machine code would still have the old value."""
    named = {f"afa.{folder}" for folder in SOURCES}
    origins = {}
    for module in {found.py_func.__module__ for _, found in kernels()}:
        loaded = importlib.import_module(module)
        for name, (origin, _) in _origins(ast.parse(Path(loaded.__file__).read_text(encoding="utf-8"))).items():
            if origin.startswith("afa.") and not callable(getattr(loaded, name)):
                origins[f"{origin}.{name}"] = origin.rpartition(".")[0]
    assert {"afa.scores.bracket.GAMMA", "afa.model.rule_names.IN_THE_GRID"} <= origins.keys()
    assert [name for name, room in origins.items() if room not in named] == []


def _module(path: Path) -> str:
    return ".".join(path.relative_to(PACKAGE.parent).with_suffix("").parts)


def _as_kernel(function: ast.FunctionDef) -> str | None:
    """How a kernel is declared: "entrance" where Python may call it, else its other words; None if it is no kernel."""
    for mark in function.decorator_list:
        if isinstance(mark, ast.Call) and isinstance(mark.func, ast.Name) and mark.func.id == "kernel":
            words = [word.arg or "" for word in mark.keywords]
            return "entrance" if "entrance" in words else " ".join(words)
    return None


def _calls(tree: ast.Module) -> Iterator[ast.Call]:
    """The calls of a name by what Python runs of a module: all but its kernels."""
    for statement in tree.body:
        if not isinstance(statement, ast.FunctionDef) or _as_kernel(statement) is None:
            calls = (node for node in ast.walk(statement) if isinstance(node, ast.Call))
            yield from (call for call in calls if isinstance(call.func, ast.Name))


def _origins(tree: ast.Module) -> dict[str, tuple[str, str]]:
    """The module and the name there of each name that a module imports."""
    return {
        alias.asname or alias.name: (node.module or "", alias.name)
        for node in ast.walk(tree)
        if isinstance(node, ast.ImportFrom)
        for alias in node.names
    }
