"""Numba, and its cache of compiled kernels, in which damaged machine code is compiled again and never run.

Each file of the cache begins with a digest of its name and of what follows. What one process compiles, others wait for.
"""

from __future__ import annotations

import hashlib
import logging
import pickle
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from functools import cache, partial
from pathlib import Path
from typing import Any, TypeVar, cast

import numba
from llvmlite import binding
from numba.core.caching import CompileResultCacheImpl, FunctionCache, IndexDataCacheFile
from numba.core.registry import CPUDispatcher

from afa.errors import Fault

Function = TypeVar("Function", bound=Callable[..., Any])
CONFIG: Any = numba.config
NJIT: Any = numba.njit  # its types do not know `_nrt`, whether to count who holds an array
PATIENCE = 300
"""Seconds that a process waits for another to compile a kernel."""
DIGEST_SIZE = hashlib.sha256().digest_size


def compiled(function: Function, folder: str, *, inline: bool, borrows: bool, entrance: bool) -> Function:
    """The function as a kernel whose machine code is kept in a folder."""
    if CONFIG.DISABLE_JIT:
        return function
    before = CONFIG.CACHE_DIR
    CONFIG.CACHE_DIR = folder
    try:
        inlined = "always" if inline else "never"
        options = {"inline": inlined, "_nrt": not borrows, "no_cpython_wrapper": not entrance}
        kernel = NJIT(nogil=True, error_model="numpy", **options)(function)
        kernel._cache = _CheckedCache(function)
    finally:
        CONFIG.CACHE_DIR = before
    kernel.__class__ = _Kernel if entrance else _InnerKernel
    return cast(Function, kernel)


@contextmanager
def hearing_interrupts() -> Iterator[None]:
    """Raise at the end of the block what Ctrl-C or a signal raised inside a callback of LLVM.

    There Python tells it to `sys.unraisablehook` and goes on, or fails over a kernel that was not handed back.
    """
    lost: list[BaseException] = []
    told = sys.unraisablehook

    def keep(unraisable: Any) -> None:
        if isinstance(unraisable.exc_value, KeyboardInterrupt | SystemExit):
            lost.append(unraisable.exc_value)
        else:
            told(unraisable)

    heard_here = threading.current_thread() is threading.main_thread()
    if heard_here:
        sys.unraisablehook = keep
    try:
        yield
    except Exception as error:
        if lost:
            raise lost[0] from error
        raise
    finally:
        if heard_here:
            sys.unraisablehook = told
    if lost:
        raise lost[0]


class _Kernel(CPUDispatcher):
    """A kernel, and its lock while it is compiled."""

    def compile(self, signature: Any) -> Any:
        try:
            with hearing_interrupts():
                return super().compile(signature)
        finally:
            cast(_CheckedCache, vars(self)["_cache"]).unlock()


class _InnerKernel(_Kernel):
    """A kernel that only kernels call. It has nothing that reads Python's arguments: a call would end the process."""

    def __call__(self, *_: object, **__: object) -> object:
        name = self.py_func.__qualname__
        raise TypeError(f"kernel {name}: found a call from Python, expected `@kernel(entrance=True)` for that")


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
            fault = Fault(f"kernel cache {path.parent.parent}", found, expected, "none; it is compiled again")
            logging.getLogger("afa").warning("afa: %s", fault)
        with suppress(OSError):
            path.unlink()
        raise FileNotFoundError(path)


class _Implementation(CompileResultCacheImpl):
    """What is kept of a kernel. What others are compiled from is read only then: it takes longer than machine code."""

    def reduce(self, result: Any) -> Any:
        (name, kind, (machine_code, bitcode)), *others = super().reduce(result)  # type: ignore[no-untyped-call]
        known = (result.fndesc.llvm_func_name, result.fndesc.llvm_cpython_wrapper_name)
        here = filter(result.library.get_pointer_to_function, known)  # an inner kernel has no wrapper
        outline = binding.parse_assembly("\n".join(f'define void @"{symbol}"() {{ unreachable }}' for symbol in here))
        return ((name, kind, (machine_code, outline.as_bitcode())), *others), bitcode

    def rebuild(self, target_context: Any, kept: Any) -> Any:
        reduced, bitcode = kept
        result = super().rebuild(target_context, reduced)  # type: ignore[no-untyped-call]
        result.library._get_module_for_linking = cache(partial(binding.parse_bitcode, bitcode))
        return result


class _CheckedCache(FunctionCache):
    """Numba's cache of one kernel, in `_CheckedFiles`."""

    _impl_class = _Implementation
    _lock: Any = None

    def __init__(self, function: Callable[..., Any]) -> None:
        super().__init__(function)  # type: ignore[no-untyped-call]
        stamp = self._impl.locator.get_source_stamp()
        base = self._impl.filename_base
        self._cache_file = _CheckedFiles(self._cache_path, base, stamp)  # type: ignore[no-untyped-call]

    def load_overload(self, signature: Any, target_context: Any) -> Any:
        """What is kept; where nothing is, what the process keeps that compiles it now, or the lock to do so here.

        No two processes wait for each other: each locks a kernel before what it calls, and none calls itself.
        """
        found = super().load_overload(signature, target_context)  # type: ignore[no-untyped-call]
        if found is None:
            from filelock import FileLock  # noqa: PLC0415 (a process that finds all kernels does without)

            self._impl.locator.ensure_cache_path()
            self._lock = FileLock(Path(self._cache_path) / f"{self._impl.filename_base}.lock")
            # The lock saves work only: after PATIENCE, or on a file system that has no locks, both compile the same.
            with suppress(OSError, NotImplementedError):
                self._lock.acquire(timeout=PATIENCE)
            found = super().load_overload(signature, target_context)  # type: ignore[no-untyped-call]
        return found

    def unlock(self) -> None:
        """Let other processes have the kernel; nothing where it was not locked."""
        if self._lock is not None:
            self._lock.release()
            self._lock = None


def _digest(name: str, contents: bytes) -> bytes:
    return hashlib.sha256(name.encode() + b"\0" + contents).digest()
