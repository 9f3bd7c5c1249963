"""How kernels are compiled: ahead of use where a cached copy exists, without fast-math, the same bytes on any thread.

Numba invalidates a cached kernel when its own file changes, not when a kernel that it calls does. The cache
folder is therefore named by a digest of Numba's version and of every file of this package, so that no stale machine
code can be run. Numba is not imported before the first kernel is to be compiled, and not at all by a process that does
without compiled kernels (`do_without`).
"""

from __future__ import annotations

import hashlib
import os
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from importlib.metadata import version
from itertools import pairwise
from pathlib import Path
from typing import Any, TypeVar

import numpy as np
from numpy.typing import NDArray

Function = TypeVar("Function", bound=Callable[..., Any])
Scalar = TypeVar("Scalar", bound=np.generic)


def _cache_folder() -> str:
    place = Path(__file__).parent  # Numba keeps kernels by the path of their source: each installation compiles its own
    digest = hashlib.sha256(f"{version('numba')}\0{place}\0".encode())
    for source in sorted(place.glob("*.py")):
        digest.update(source.name.encode() + b"\0" + source.read_bytes())
    home = os.environ.get("NUMBA_CACHE_DIR") or os.environ.get("XDG_CACHE_HOME") or str(Path.home() / ".cache")
    return str(Path(home) / "afa" / f"kernels-{digest.hexdigest()[:16]}")


PARTS = 8
CACHE_FOLDER = _cache_folder()
READY = "planners.ready"
_as_python = False


def planners_are_ready() -> bool:
    """Whether all kernels of the planners have been compiled and kept (`afa.engine.warm`)."""
    return (Path(CACHE_FOLDER) / READY).exists()


def some_are_kept() -> bool:
    """Whether any kernel has been compiled and kept."""
    return any(Path(CACHE_FOLDER).rglob("*.nbc"))


def do_without() -> None:
    """Let kernels run as the Python that they are written in: those of modules imported from now on."""
    global _as_python  # noqa: PLW0603 (what a process does, from its start to its end)
    _as_python = True


def in_threads(work: Callable[..., None], n_jobs: int, threads: int | None, *given: Any) -> None:
    """Call `work(*given, first, last)` on parts of `range(n_jobs)`, in at most `threads` threads; all cores where None.

    `work` must call kernels that write to places of their own for each job: then the number of threads and the order
    of execution do not show in the result.
    """
    threads = threads or len(os.sched_getaffinity(0))
    bounds = [part * n_jobs // (PARTS * threads) for part in range(PARTS * threads + 1)]
    parts = [(first, last) for first, last in pairwise(bounds) if first < last]
    with ThreadPoolExecutor(threads) as pool:
        for _ in pool.map(lambda part: work(*given, *part), parts):
            pass


def laid_out(array: NDArray[Scalar]) -> NDArray[Scalar]:
    """The same numbers, contiguous and writable: for each other layout every kernel is compiled once more."""
    return np.require(array, requirements=["C", "W"])


def kernel(*, entrance: bool = False, inline: bool = False, borrows: bool = False) -> Callable[[Function], Function]:
    """Decorator: compile a function with numba and keep its machine code in `CACHE_FOLDER`; it runs without the GIL.

    `entrance` is of a kernel that Python calls; kernels that only kernels call compile a fifth faster. `inline` puts a
    small function into its callers: a call hands over every array of a layout, which costs more than a short loop.
    `borrows` is of a kernel that works in the arrays it is given, makes none, and is handed none by what it calls: then
    nobody counts who holds them, which otherwise takes most of a round in which little happens.
    """

    def compile_it(function: Function) -> Function:
        if _as_python:
            return function
        from afa.engine.kept import compiled  # noqa: PLC0415 (with Numba, which a process may do without)

        return compiled(function, CACHE_FOLDER, inline=inline, borrows=borrows, entrance=entrance)

    return compile_it
