"""Compile kernels with numba and cache their machine code.

The numba option `fastmath` is off.

Numba compiles a cached kernel again if the kernel's own file changes. But machine code also contains the other kernels
that the kernel calls, and the values of constants. If one of these is defined in another file, and only that file
changes, numba reuses the outdated machine code. The name of the cache folder therefore includes a digest of numba's
version, the processor and all files in the folders that the tuple `SOURCES` lists. A process that has compiled kernels
writes the file `LIST_FILE`, with the digest of each cached file (`write_list`). If a file in `LIST_FILE` is missing or
has changed, the cache folder is deleted, and the kernels are compiled again.

Numba is imported only when a module defines its first kernel. After a call of `do_without`, new kernels are plain
Python functions, and defining them does not import numba.
"""

from __future__ import annotations

import atexit
import hashlib
import json
import logging
import os
import platform
import shutil
import tempfile
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from functools import cache
from importlib.metadata import version
from itertools import pairwise
from pathlib import Path
from typing import Any, TypeVar

import numpy as np
from numpy.typing import NDArray

from afa.errors import Fault
from afa.io.files import DISK_FULL_ERRORS, atomic_file, sha256_of

Function = TypeVar("Function", bound=Callable[..., Any])
Scalar = TypeVar("Scalar", bound=np.generic)

PARTS_PER_THREAD = 8
SOURCES = ("engine", "inference", "model", "scores")
"""Folders of the package `afa` with all kernels, and with all constants that the machine code of kernels contains."""
LIST_FILE = "compiled.json"
"""File in the cache folder that lists the digest of each cached file and the fully compiled kernel groups."""
CACHE_BYTES = 48 * 2**20
"""Upper bound on the size in bytes of all kernels in the cache folder."""
FIRST_MESSAGE = "afa: compiling kernels, about 40 s for a planner, once for this installation ..."
ALL_KERNELS, PLANNER_KERNELS = "all", "planners"
"""Groups of kernels that the list can mark as complete."""
SECONDS_BETWEEN_MESSAGES = 15
"""Seconds between two progress messages of the compilation."""
INT: Any = np.int64
"""Integer type of kernel arguments. If a caller passes another type or a literal, numba compiles the kernel again."""
_kernels: set[Callable[..., Any]] = set()
_as_python = False
_log = logging.getLogger("afa")


def cache_folder() -> Path | None:
    """Return the path of the cache folder, which may not exist yet. Return None if the user has no home folder."""
    place = os.environ.get("NUMBA_CACHE_DIR") or os.environ.get("XDG_CACHE_HOME")
    with suppress(RuntimeError):  # Path.home() fails if HOME is not set and the user is unknown
        place = place or str(Path.home() / ".cache")
    return Path(place, "afa", f"kernels-{_digest_of_code()}") if place else None


@cache
def _digest_of_code() -> str:
    package = Path(__file__).parents[1]  # numba's cache depends on the path of the source file
    digest = hashlib.sha256(f"{version('numba')}\0{_processor()}\0{package}\0".encode())
    for source in sorted(path for folder in SOURCES for path in (package / folder).glob("*.py")):
        digest.update(f"{source.relative_to(package)}\0".encode() + source.read_bytes())
    return digest.hexdigest()[:16]


def _processor() -> str:
    """Return a text that identifies the type of processor."""
    described = Path("/proc/cpuinfo")
    first = described.read_text(encoding="utf-8", errors="replace").partition("\n\n")[0] if described.exists() else ""
    kinds = [line for line in first.splitlines() if line.startswith(("model name", "flags", "CPU part", "Features"))]
    return "\n".join([platform.machine(), *(kinds or [platform.processor()])])  # processor() starts a process


def compiled_groups() -> list[str]:
    """Return the names of the kernel groups (`afa.engine.warm`) that are fully compiled in the cache folder."""
    folder = cache_folder()
    return [] if folder is None else list(_read_list(folder)["groups"])


def cached_files() -> dict[str, str]:
    """Return the saved list of cached files, as a mapping from the path of each file to its digest."""
    folder = cache_folder()
    return {} if folder is None else dict(_read_list(folder)["files"])


def keeps_kernels() -> bool:
    """Return True if compiled kernels can be cached. Otherwise, log the reason (once) and return False."""
    return _usable_folder() is not None


def _read_list(folder: Path) -> dict[str, Any]:
    try:
        found = json.loads((folder / LIST_FILE).read_text(encoding="utf-8"))
        return {"files": dict(found["files"]), "groups": dict(found["groups"])}
    except (OSError, ValueError, KeyError, TypeError):
        return {"files": {}, "groups": {}}


def write_list(*groups: str) -> None:
    """Save the list of cached files with their digests, and mark the kernel groups `groups` as fully compiled."""
    folder = _usable_folder()
    if folder is None:
        return
    done = {**_read_list(folder)["groups"], **dict.fromkeys(groups, True)}
    try:
        with atomic_file(folder / LIST_FILE) as file:
            Path(file).write_text(json.dumps({"groups": done, "files": _digests(folder)}, indent=1) + "\n")
    except OSError as error:
        _warn_not_cached(folder, error)


def _digests(folder: Path) -> dict[str, str]:
    """Return a mapping from the path of each cached file, relative to `folder`, to the digest of the file."""
    found = {}
    for path in sorted(folder.rglob("*.nb[ci]")):
        found[str(path.relative_to(folder))] = sha256_of(path)
    return found


def _is_damaged(folder: Path, listed: dict[str, str]) -> bool:
    """Return True if a listed file is missing, or if a listed file has changed and therefore has another digest.

    A file newer than the list is not checked, because another process compiled it after the list was written.
    """
    for name, digest in listed.items():
        path = folder / name
        if not path.exists():
            return True
        if path.stat().st_mtime_ns <= (folder / LIST_FILE).stat().st_mtime_ns and sha256_of(path) != digest:
            return True
    return False


@cache
def _usable_folder() -> Path | None:
    """Return the cache folder, or None after a warning if the folder cannot be written.

    If the folder is damaged, it is deleted and created again.
    """
    folder = cache_folder()
    if folder is None:
        _warn_not_cached(None, None)
        return None
    try:
        listed = _read_list(folder)
        if _is_damaged(folder, listed["files"]):
            found, step = "files that are not those of its list", "none; kernels are compiled again"
            _log.warning("afa: %s", Fault(f"kernel cache {folder}", found, f"those of {LIST_FILE}", step))
            shutil.rmtree(folder)
            listed = _read_list(folder)
        folder.mkdir(parents=True, exist_ok=True)
        # raise an OSError if the folder is read-only, because numba would silently use another folder
        with tempfile.TemporaryFile(dir=folder) as file:
            if not listed["groups"] and hasattr(os, "posix_fallocate"):
                os.posix_fallocate(file.fileno(), 0, CACHE_BYTES)
    except OSError as error:
        _warn_not_cached(folder, error)
        return None
    return folder


def _warn_not_cached(folder: Path | None, error: OSError | None) -> None:
    found = (
        "no home folder" if error is None else "too little room" if error.errno in DISK_FULL_ERRORS else error.strerror
    )
    where, step = "kernel cache" if folder is None else f"kernel cache {folder}", "name one in NUMBA_CACHE_DIR"
    expected = (
        f"a folder to write to, with {CACHE_BYTES >> 20} MB free; until then each process compiles its own kernels"
    )
    _log.warning("afa: %s", Fault(where, str(found), expected, step))


def do_without() -> None:
    """Make the kernels run as plain Python functions, in all modules that are imported after this call."""
    global _as_python  # noqa: PLW0603 (a property of the process, set once at its start)
    _as_python = True


def in_threads(work: Callable[..., None], n_jobs: int, threads: int | None, *given: Any) -> None:
    """Split `range(n_jobs)` into parts, and call `work(*given, first, last)` for each part in parallel threads.

    The function `work` must write the results of different jobs to different memory. Then, the results do not depend on
    the number of threads.

    Parameters
    ----------
    threads : largest number of threads. None means one for each core

    """
    threads = threads or len(os.sched_getaffinity(0))
    bounds = [part * n_jobs // (PARTS_PER_THREAD * threads) for part in range(PARTS_PER_THREAD * threads + 1)]
    parts = [(first, last) for first, last in pairwise(bounds) if first < last]
    with ThreadPoolExecutor(threads) as pool:
        for _ in pool.map(lambda part: work(*given, *part), parts):
            pass


def laid_out(array: NDArray[Scalar]) -> NDArray[Scalar]:
    """Return the array in a contiguous and writable form, for which the kernels are compiled.

    Parameters
    ----------
    array : array of any shape and dtype

    Returns
    -------
    array : same shape and dtype as the argument

    """
    return np.require(array, requirements=["C", "W"])


def kernel(*, entrance: bool = False, inline: bool = False, borrows: bool = False) -> Callable[[Function], Function]:
    """Return a decorator that compiles a function with numba, caches its machine code, and runs it without the GIL.

    Parameters
    ----------
    entrance : True for a kernel that Python code calls. All other kernels compile faster, because they have no wrapper
        for Python arguments. A call of a kernel without a wrapper from Python code crashes the process
    inline : True to insert the function into its callers. This is useful for a small function, because a call passes
        every array of its arguments. It is also useful for a function with one caller, because numba would otherwise
        compile the function twice
    borrows : True for a kernel that uses only its arguments: it creates no array, and the kernels that it calls return
        none. Reference counting is then switched off (`_nrt`, an undocumented option of numba). With reference
        counting, a walk is two to six times as slow

    """

    def compile_it(function: Function) -> Function:
        if _as_python:
            return function
        import numba  # noqa: PLC0415 (not needed by a process that runs kernels as Python)

        settings: Any = numba.config  # numba has incomplete type stubs
        njit: Any = numba.njit
        folder, before = _usable_folder(), settings.CACHE_DIR
        _tell_of_compiling()
        _kernels.add(function)
        settings.CACHE_DIR = str(folder or before)
        try:
            options = {"inline": "always" if inline else "never", "no_cpython_wrapper": not entrance}
            options |= {"cache": folder is not None, "nogil": True, "error_model": "numpy", "_nrt": not borrows}
            compiled: Function = njit(**options)(function)
        finally:
            settings.CACHE_DIR = before
        return compiled

    return compile_it


@cache
def _tell_of_compiling() -> None:
    """Log a message when the first kernel is compiled, and then the number of compiled kernels at regular intervals."""
    from numba.core import event  # noqa: PLC0415 (numba is loaded here already)

    class CompileCounter(event.Listener):
        """Count the kernels that numba has compiled in this process."""

        def __init__(self) -> None:
            self.n, self.since = 0, 0.0

        def on_start(self, event: Any) -> None:
            if event.data["dispatcher"].py_func not in _kernels:
                return  # a function of another package
            if not self.since:
                _log.warning(FIRST_MESSAGE)
                atexit.register(write_list)
                self.since = time.monotonic()
            self.n += 1
            if time.monotonic() - self.since > SECONDS_BETWEEN_MESSAGES:
                _log.warning("afa: %d kernels compiled", self.n)
                self.since = time.monotonic()

        def on_end(self, event: Any) -> None:
            """Do nothing when a compilation ends, because `on_start` has already counted the kernel."""

    register: Any = event.register
    register("numba:compile", CompileCounter())
