"""Kernels compiled ahead of use: all of them, so that no run has to wait for one."""

from __future__ import annotations

import importlib
import os
import pkgutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from numba.core.dispatcher import Dispatcher

import afa.engine
from afa.engine.compile import planners_are_ready
from afa.engine.warm import compile_all


def kernels() -> Iterator[tuple[str, Dispatcher]]:
    """Every kernel of the engine that is called, and not put into its callers, by module and name."""
    for module in pkgutil.iter_modules(afa.engine.__path__, "afa.engine."):
        for name, found in vars(importlib.import_module(module.name)).items():
            own = isinstance(found, Dispatcher) and found.py_func.__module__ == module.name
            if own and found.targetoptions.get("inline") != "always":
                yield f"{module.name}.{name}", found


def test_the_kernels_are_compiled_before_the_tests_that_need_them() -> None:
    """First of all (conftest.py): else each of the workers would compile its own."""
    compile_all(processes=1)
    assert planners_are_ready()


@pytest.mark.slow
def test_no_kernel_is_left_to_be_compiled_in_a_run(tmp_path: Path) -> None:
    environment = {**os.environ, "NUMBA_CACHE_DIR": str(tmp_path)}
    subprocess.run([sys.executable, "-m", "afa.engine.warm"], env=environment, check=True)
    kept = {path.name.split("-")[0] for path in tmp_path.rglob("*.nbi")}
    names = {
        f"{kernel.py_func.__module__.split('.')[-1]}.{kernel.py_func.__qualname__}": name for name, kernel in kernels()
    }
    assert len(names) > 100
    assert sorted(name for short, name in names.items() if short not in kept) == []
