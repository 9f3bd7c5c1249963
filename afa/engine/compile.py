"""How kernels are compiled and where they are cached: by numba, without fast-math, the same bytes on any thread.

Numba compiles a cached kernel again when the file of that kernel changes, but not when a kernel that it calls does. The
cache folder is therefore named by a digest of numba's version, the kind of processor and every file of this package, so
that no stale machine code is ever run. Whoever has compiled something writes a list of the folder's files with their
digests (`write_list`); a folder that does not match its list is thrown away and compiled again. Numba is not imported
before the first kernel is to be compiled, and not at all by a process that does without compiled kernels
(`do_without`).
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
from afa.io.files import NO_ROOM, atomic_file

Function = TypeVar("Function", bound=Callable[..., Any])
Scalar = TypeVar("Scalar", bound=np.generic)

PARTS = 8
LIST = "compiled.json"
"""In the cache folder: the digest of each of its files, and which groups of kernels have been compiled."""
ROOM = 48 * 2**20
"""Bytes that all kernels together take in the cache folder, generously."""
FIRST = "afa: compiling kernels, about 40 s for a planner, once for this installation ..."
ALL, PLANNERS = "all", "planners"
"""Groups of kernels that the list can name as complete."""
PATIENCE = 15
"""Seconds between two words on how far compiling has come."""
INT: Any = np.int64
"""A whole number as kernels take it: they are compiled once more for each other type, and for each literal."""
_kernels: set[Callable[..., Any]] = set()
_as_python = False
_log = logging.getLogger("afa")


def cache_folder() -> Path | None:
    """Return the folder where kernels are cached, which need not exist; None where no home folder is known."""
    place = os.environ.get("NUMBA_CACHE_DIR") or os.environ.get("XDG_CACHE_HOME")
    with suppress(RuntimeError):  # of a user that the system does not know, without HOME
        place = place or str(Path.home() / ".cache")
    return Path(place, "afa", f"kernels-{_digest_of_code()}") if place else None


@cache
def _digest_of_code() -> str:
    package = Path(__file__).parent  # numba finds kernels by the path of their source: each installation has its own
    digest = hashlib.sha256(f"{version('numba')}\0{_processor()}\0{package}\0".encode())
    for source in sorted(package.glob("*.py")):
        digest.update(source.name.encode() + b"\0" + source.read_bytes())
    return digest.hexdigest()[:16]


def _processor() -> str:
    """Return words that differ between kinds of processors. Numba's cache looks closer, when it finds a kernel."""
    described = Path("/proc/cpuinfo")
    first = described.read_text(encoding="utf-8", errors="replace").partition("\n\n")[0] if described.exists() else ""
    kinds = [line for line in first.splitlines() if line.startswith(("model name", "flags", "CPU part", "Features"))]
    return "\n".join([platform.machine(), *(kinds or [platform.processor()])])  # which starts another process


def compiled_groups() -> list[str]:
    """Return the groups of kernels (`afa.engine.warm`) that the cache folder holds."""
    folder = cache_folder()
    return [] if folder is None else list(_read_list(folder)["groups"])


def cached_files() -> dict[str, str]:
    """Return the digest of each file that the list of the cache folder names."""
    folder = cache_folder()
    return {} if folder is None else dict(_read_list(folder)["files"])


def keeps_kernels() -> bool:
    """Return True if kernels are cached; else one warning says why they are not."""
    return _usable_folder() is not None


def _read_list(folder: Path) -> dict[str, Any]:
    try:
        found = json.loads((folder / LIST).read_text(encoding="utf-8"))
        return {"files": dict(found["files"]), "groups": dict(found["groups"])}
    except (OSError, ValueError, KeyError, TypeError):
        return {"files": {}, "groups": {}}


def write_list(*groups: str) -> None:
    """Write the digests of what the cache folder holds now, and that these groups of kernels are complete."""
    folder = _usable_folder()
    if folder is None:
        return
    done = {**_read_list(folder)["groups"], **dict.fromkeys(groups, True)}
    try:
        with atomic_file(folder / LIST) as file:
            Path(file).write_text(json.dumps({"groups": done, "files": _digests(folder)}, indent=1) + "\n")
    except OSError as error:
        _not_kept(folder, error)


def _digests(folder: Path) -> dict[str, str]:
    """Return the digest of each cached file, by its path in the folder."""
    found = {}
    for path in sorted(folder.rglob("*.nb[ci]")):
        with path.open("rb") as file:
            found[str(path.relative_to(folder))] = hashlib.file_digest(file, "sha256").hexdigest()
    return found


@cache
def _usable_folder() -> Path | None:
    """Return the cache folder, whole and writable; None, with one warning, where kernels cannot be kept."""
    folder = cache_folder()
    if folder is None:
        _not_kept(None, None)
        return None
    try:
        listed = _read_list(folder)
        if not listed["files"].items() <= _digests(folder).items():
            found, step = "files that are not those of its list", "none; kernels are compiled again"
            _log.warning("afa: %s", Fault(f"kernel cache {folder}", found, f"those of {LIST}", step))
            shutil.rmtree(folder)
            listed = _read_list(folder)
        folder.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryFile(dir=folder) as file:  # as numba tries; without it, numba would choose another place
            if not listed["groups"] and hasattr(os, "posix_fallocate"):
                os.posix_fallocate(file.fileno(), 0, ROOM)
    except OSError as error:
        _not_kept(folder, error)
        return None
    return folder


def _not_kept(folder: Path | None, error: OSError | None) -> None:
    found = "no home folder" if error is None else "too little room" if error.errno in NO_ROOM else error.strerror
    where, step = "kernel cache" if folder is None else f"kernel cache {folder}", "name one in NUMBA_CACHE_DIR"
    expected = f"a folder to write to, with {ROOM >> 20} MB free; until then each process compiles its own kernels"
    _log.warning("afa: %s", Fault(where, str(found), expected, step))


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
    """Return a decorator: numba compiles the function and caches its machine code; it runs without the GIL.

    `entrance` is of a kernel that Python calls. Others have nothing that takes in Python's arguments, which makes them
    faster to compile: a call from Python ends the process. `inline` puts a function into its callers: for a small one,
    since a call hands over every array of a layout, and for one with a single caller, since numba compiles what is
    called once for itself and once more for each kernel above it. `borrows` is of a kernel that works in the arrays it
    is given, makes none, and is handed none by what it calls: then nobody counts who holds them (`_nrt`, an option that
    numba does not document), which otherwise makes a walk two to six times as slow.
    """

    def compile_it(function: Function) -> Function:
        if _as_python:
            return function
        import numba  # noqa: PLC0415 (which a process may do without)

        settings: Any = numba.config  # its types, and those of njit, do not know all that there is
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
    """Have one line say that kernels are compiled, once they are, and others how far that has come."""
    from numba.core import event  # noqa: PLC0415 (with numba)

    class Told(event.Listener):
        """Counts the kernels that numba has compiled in this process."""

        def __init__(self) -> None:
            self.n, self.since = 0, 0.0

        def on_start(self, event: Any) -> None:
            if event.data["dispatcher"].py_func not in _kernels:
                return  # of another package
            if not self.since:
                _log.warning(FIRST)
                atexit.register(write_list)
                self.since = time.monotonic()
            self.n += 1
            if time.monotonic() - self.since > PATIENCE:
                _log.warning("afa: %d kernels compiled", self.n)
                self.since = time.monotonic()

        def on_end(self, event: Any) -> None:
            """Do nothing; a kernel counts when it begins."""

    register: Any = event.register
    register("numba:compile", Told())
