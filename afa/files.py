"""Writing files so that a killed run leaves nothing that looks complete, and reading one whole.

A temporary lies beside its target as `.<stem>.<8 characters><suffix>`. Its writer holds a lock on it that the kernel
lets go when the process ends in whatever way, so that the next writer of the target can tell what a dead one left, and
removes that.
"""

from __future__ import annotations

import errno
import fcntl
import hashlib
import math
import os
import shutil
import stat
import tempfile
from collections.abc import Callable, Collection, Iterator
from contextlib import contextmanager, suppress
from glob import escape
from pathlib import Path

from afa.errors import ConfigError, Fault

NO_ROOM = (errno.ENOSPC, errno.EDQUOT)

_RANDOM_PART = "[a-z0-9_]" * 8  # what `tempfile` puts between prefix and suffix


@contextmanager
def atomic_file(path: str | Path, *, private: bool = False) -> Iterator[Path]:
    """Yield a temporary path beside `path`; rename it into place on success, remove it on any error.

    The temporary name keeps the suffix of `path`, so that writers which look at it choose the same format. An
    `OSError` for want of room on the disk names `path`.
    private : a new file is for its owner alone; one that is there keeps its owner and mode, and is found through links.
    """
    target = Path(path).resolve() if private else Path(path)
    target.parent.mkdir(parents=True, exist_ok=True)
    with _naming(target), _claimed(target.parent, f".{target.stem}.", target.suffix, _new_file) as temporary:
        try:
            yield temporary
            if private:
                _give_as(target, temporary)
            else:
                temporary.chmod(0o666 & ~_umask())
            temporary.replace(target)
        finally:
            temporary.unlink(missing_ok=True)


@contextmanager
def atomic_folder(path: str | Path) -> Iterator[Path]:
    """Yield a temporary folder beside `path`; on success it takes the place of `path`, on any error it is removed.

    What was at `path` is there whole, or not at all. An `OSError` for want of room on the disk names `path`.
    """
    target = Path(path)
    target.parent.mkdir(parents=True, exist_ok=True)
    prefix = f".{target.name}."
    with _naming(target), _claimed(target.parent, prefix, "", _new_folder) as temporary:
        earlier = None
        try:
            yield temporary
            temporary.chmod(0o777 & ~_umask())
            if target.exists():
                # Set aside by one rename: a kill while it was being removed would leave half of it at `path`.
                earlier = target.replace(_new_folder(target.parent, prefix, ""))
            temporary.replace(target)
        finally:
            shutil.rmtree(temporary, ignore_errors=True)
            if earlier is not None:
                if not target.exists():
                    earlier.replace(target)
                shutil.rmtree(earlier, ignore_errors=True)


def check_place(folder: Path, ours: Collection[str], expected: str) -> None:
    """A `ConfigError` where a new folder would replace a file, or a folder that has other entries than `ours`."""
    others = [] if not folder.is_dir() else sorted(path.name for path in folder.iterdir() if path.name not in ours)
    if others or (folder.exists() and not folder.is_dir()):
        found = f"a folder with other files: {', '.join(others[:3])}" if others else "a file"
        raise ConfigError(Fault(f"--out {folder}", found, expected, "choose another"))


def sha256_of(path: str | Path) -> str:
    """Hexadecimal SHA-256 of a file's bytes, read in blocks."""
    with Path(path).open("rb") as stream:
        return hashlib.file_digest(stream, "sha256").hexdigest()


def _give_as(target: Path, temporary: Path) -> None:
    """Give a new file the owner and the mode of the one whose place it takes; without one, it is its owner's alone."""
    with suppress(FileNotFoundError):
        status, own = target.stat(), temporary.stat()
        if (status.st_uid, status.st_gid) != (own.st_uid, own.st_gid):
            os.chown(temporary, status.st_uid, status.st_gid)
        temporary.chmod(stat.S_IMODE(status.st_mode))


@contextmanager
def _claimed(folder: Path, prefix: str, suffix: str, make: Callable[[Path, str, str], Path]) -> Iterator[Path]:
    """Remove what dead writers left under these names, and yield a new one, locked for as long as this writer lives."""
    _remove_leftovers(folder, prefix, suffix)
    while True:
        temporary = make(folder, prefix, suffix)
        claim = None
        with suppress(FileNotFoundError):
            claim = os.open(temporary, os.O_RDONLY)
            with suppress(OSError):  # a file system without locks: what is left there then stays
                fcntl.flock(claim, fcntl.LOCK_SH)
        try:
            # Another writer may have taken it for a dead one's before the lock was there.
            if claim is not None and temporary.exists():
                yield temporary
                return
        finally:
            if claim is not None:
                os.close(claim)


def _remove_leftovers(folder: Path, prefix: str, suffix: str) -> None:
    """Remove the temporaries of these names that no living process has locked."""
    for path in folder.glob(f"{escape(prefix)}{_RANDOM_PART}{escape(suffix)}"):
        with suppress(OSError):
            is_folder = path.is_dir()
            claim = os.open(path, os.O_RDONLY if is_folder else os.O_RDWR)
            try:
                fcntl.flock(claim, fcntl.LOCK_EX | fcntl.LOCK_NB)
                shutil.rmtree(path) if is_folder else path.unlink()
            finally:
                os.close(claim)


@contextmanager
def _naming(target: Path) -> Iterator[None]:
    """Have an error for want of room say which file there was no room for; a library's own often does not."""
    try:
        yield
    except OSError as error:
        if error.errno in NO_ROOM:
            error.filename = str(target)
        raise


def _new_file(folder: Path, prefix: str, suffix: str) -> Path:
    handle, name = tempfile.mkstemp(dir=folder, prefix=prefix, suffix=suffix)
    os.close(handle)
    return Path(name)


def _new_folder(folder: Path, prefix: str, suffix: str) -> Path:
    return Path(tempfile.mkdtemp(dir=folder, prefix=prefix, suffix=suffix))


def _umask() -> int:
    mask = os.umask(0)
    os.umask(mask)
    return mask


def read_whole(path: Path, largest: float = math.inf) -> bytes:
    """The bytes of a regular file; an `OSError` whose `strerror` says what is there instead, or that it is too large.

    `largest` is in bytes.
    """
    try:
        status = path.stat()
    except ValueError:
        raise OSError(errno.EINVAL, "a path that no file can have") from None
    if not (stat.S_ISREG(status.st_mode) or stat.S_ISDIR(status.st_mode)):
        raise OSError(errno.EINVAL, "a pipe or a device")
    if status.st_size > largest:
        raise OSError(errno.EFBIG, f"{status.st_size} bytes, of which at most {largest:.0f} are read")
    return path.read_bytes()
