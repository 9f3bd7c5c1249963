"""How kernels are compiled: ahead of use where a cached copy exists, without fast-math, the same bytes on any thread.

Numba invalidates a cached kernel when its own file changes, not when a kernel that it calls does. The cache
folder is therefore named by a digest of Numba's version and of every file of this package, so that no stale machine
code can be run. Each file in it begins with a digest of what follows: damaged machine code is compiled again, not run.
"""

from __future__ import annotations

import hashlib
import logging
import os
import pickle
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from itertools import pairwise
from pathlib import Path
from typing import Any, TypeVar, cast

import numba
import numpy as np
from numba.core.caching import FunctionCache, IndexDataCacheFile
from numpy.typing import NDArray

from afa.errors import Fault

Function = TypeVar("Function", bound=Callable[..., Any])
Scalar = TypeVar("Scalar", bound=np.generic)


def _cache_folder() -> str:
    digest = hashlib.sha256(numba.__version__.encode())
    for source in sorted(Path(__file__).parent.glob("*.py")):
        digest.update(source.name.encode() + b"\0" + source.read_bytes())
    home = os.environ.get("NUMBA_CACHE_DIR") or os.environ.get("XDG_CACHE_HOME") or str(Path.home() / ".cache")
    return str(Path(home) / "afa" / f"kernels-{digest.hexdigest()[:16]}")


PARTS = 8
CONFIG: Any = numba.config
CACHE_FOLDER = _cache_folder()
DIGEST_SIZE = hashlib.sha256().digest_size
READY = "planners.ready"


def planners_are_ready() -> bool:
    """Whether all kernels of the planners have been compiled and kept (`afa.engine.warm`)."""
    return (Path(CACHE_FOLDER) / READY).exists()


def do_without() -> None:
    """Let kernels run as the Python that they are written in: those of modules imported from now on."""
    CONFIG.DISABLE_JIT = True


class _CheckedFiles(IndexDataCacheFile):
    """The index and the machine code of one kernel, each behind a digest of its file's name and its contents.

    Unpickled or run unchecked, an emptied index ends the process and a flipped byte is an illegal instruction.
    """

    complained = False

    def _load_index(self) -> dict[Any, str]:
        try:
            stamp, overloads = self._read(self._index_name)
        except FileNotFoundError:
            return {}
        return overloads if stamp == self._source_stamp else {}

    def _save_index(self, overloads: dict[Any, str]) -> None:
        self._save_data(self._index_name, (self._source_stamp, overloads))

    def _load_data(self, name: str) -> Any:
        return self._read(name)

    def _save_data(self, name: str, data: Any) -> None:
        contents: bytes = self._dump(data)  # type: ignore[no-untyped-call]
        with self._open_for_write(str(Path(self._cache_path) / name)) as file:
            file.write(_digest(name, contents) + contents)

    def _read(self, name: str) -> Any:
        """What a file holds; a damaged one is removed, which has Numba compile the kernel again."""
        path = Path(self._cache_path) / name
        whole = path.read_bytes()
        contents = whole[DIGEST_SIZE:]
        if whole[:DIGEST_SIZE] == _digest(name, contents):
            return pickle.loads(contents)  # noqa: S301 (our own file, whole)
        if not _CheckedFiles.complained:
            _CheckedFiles.complained = True
            found, expected = f"{name} damaged", "compiled kernels as they were kept"
            fault = Fault(f"kernel cache {CACHE_FOLDER}", found, expected, "none; it is compiled again")
            logging.getLogger("afa").warning("afa: %s", fault)
        with suppress(OSError):
            path.unlink()
        raise FileNotFoundError(path)


class _CheckedCache(FunctionCache):
    """Numba's cache of one kernel, in `_CheckedFiles`."""

    def __init__(self, function: Callable[..., Any]) -> None:
        super().__init__(function)  # type: ignore[no-untyped-call]
        stamp = self._impl.locator.get_source_stamp()
        base = self._impl.filename_base
        self._cache_file = _CheckedFiles(self._cache_path, base, stamp)  # type: ignore[no-untyped-call]


def _digest(name: str, contents: bytes) -> bytes:
    return hashlib.sha256(name.encode() + b"\0" + contents).digest()


def in_threads(work: Callable[[int, int], None], n_jobs: int, threads: int | None) -> None:
    """Call `work(first, last)` on parts of `range(n_jobs)`, in at most `threads` threads; all cores where None.

    `work` must call kernels that write to places of their own for each job: then the number of threads and the order
    of execution do not show in the result.
    """
    threads = threads or len(os.sched_getaffinity(0))
    bounds = [part * n_jobs // (PARTS * threads) for part in range(PARTS * threads + 1)]
    parts = [(first, last) for first, last in pairwise(bounds) if first < last]
    with ThreadPoolExecutor(threads) as pool:
        for _ in pool.map(lambda part: work(*part), parts):
            pass


def laid_out(array: NDArray[Scalar]) -> NDArray[Scalar]:
    """The same numbers, contiguous and writable: for each other layout every kernel is compiled once more."""
    return np.require(array, requirements=["C", "W"])


def kernel(*, inline: bool = False) -> Callable[[Function], Function]:
    """Decorator: compile a function with numba and keep its machine code in `CACHE_FOLDER`; it runs without the GIL.

    `inline` puts a small function into its callers: a call hands over every array of a layout, which costs more than
    a short loop.
    """

    def compile_it(function: Function) -> Function:
        if CONFIG.DISABLE_JIT:
            return function
        before = CONFIG.CACHE_DIR
        CONFIG.CACHE_DIR = CACHE_FOLDER
        try:
            compiled = numba.njit(nogil=True, error_model="numpy", inline="always" if inline else "never")(function)
            compiled._cache = _CheckedCache(function)  # type: ignore[attr-defined]
        finally:
            CONFIG.CACHE_DIR = before
        return cast(Function, compiled)

    return compile_it
