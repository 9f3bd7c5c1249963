"""Read whole files, and write files and folders so that a killed run leaves no partial result under the final name.

A temporary file is created beside its target, with the name `.<stem>.afa-<8 characters><suffix>`. The writer keeps the
temporary file locked, and the kernel releases the lock when the writer's process ends for any reason. A temporary file
without a lock is therefore a leftover of a dead process, and is removed by the next writer of the same target. A new
folder replaces only an empty folder or an earlier result of the same kind.
"""

from __future__ import annotations

import difflib
import errno
import fcntl
import gzip
import hashlib
import io
import math
import os
import shutil
import stat
import tempfile
import zlib
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from fnmatch import fnmatchcase
from glob import escape
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING, Any

from afa.errors import ConfigError, Fault

if TYPE_CHECKING:
    from _typeshed import WriteableBuffer
    from pandas import DataFrame

DISK_FULL_ERRORS = (errno.ENOSPC, errno.EDQUOT)
LARGEST_UNPACKED = "AFA_LARGEST_UNPACKED_GB"
"""Environment variable with the largest size in GB that a compressed file may unpack to.

The default is `DEFAULT_GB`.
"""
DEFAULT_GB = 2.0
GZIP_ERRORS = (EOFError, gzip.BadGzipFile, zlib.error)
_BLOCK = 1 << 20

_OURS = ".afa-"
_RANDOM_PART = "[a-z0-9_]" * 8  # eight characters that `tempfile` puts between prefix and suffix
_STAMP = ".snakemake_timestamp"  # name of the file that Snakemake adds to a folder made by a job


@contextmanager
def atomic_file(path: str | Path, *, private: bool = False) -> Iterator[Path]:
    """Yield a temporary path beside `path`. The file is renamed to `path` on success, and removed on any error.

    The temporary name has the suffix of `path`, because some writers choose the format by suffix. If the disk is full,
    the `OSError` names `path`.

    Parameters
    ----------
    private : let only the owner read and write a new file; an existing file keeps its owner and mode, and links are
        followed

    """
    target = Path(path).resolve() if private else Path(path)
    target.parent.mkdir(parents=True, exist_ok=True)
    with (
        _set_error_filename(target),
        _locked_temporary(target.parent, f".{target.stem}{_OURS}", target.suffix, _new_file) as temporary,
    ):
        try:
            yield temporary
            if private:
                _copy_owner_and_mode(target, temporary)
            else:
                temporary.chmod(0o666 & ~_umask())
            temporary.replace(target)
        finally:
            temporary.unlink(missing_ok=True)


@contextmanager
def atomic_folder(path: str | Path, ours: Collection[str] = (), card: str = "") -> Iterator[Path]:
    """Yield a temporary folder beside `path`. The folder is renamed to `path` on success, and removed on any error.

    If the process is killed, no half-removed folder remains at `path`. If the disk is full, the `OSError` names `path`.

    Parameters
    ----------
    ours, card : which folder may be replaced, as in `check_place`; by default only an empty folder

    """
    check_place(path, ours, card)
    target = Path(path).resolve() if Path(path).is_symlink() else Path(path)
    target.parent.mkdir(parents=True, exist_ok=True)
    prefix = f".{target.name}{_OURS}"
    with _set_error_filename(target), _locked_temporary(target.parent, prefix, "", _new_folder) as temporary:
        earlier = None
        try:
            yield temporary
            temporary.chmod(0o777 & ~_umask())
            if target.exists():
                check_place(target, ours, card)  # check `target` again, because writing may have taken hours
                # Rename the earlier folder first, because a process killed during removal would leave half of the
                # folder at `path`.
                earlier = target.replace(_new_folder(target.parent, prefix, ""))
            temporary.replace(target)
        finally:
            shutil.rmtree(temporary, ignore_errors=True)
            if earlier is not None:
                if not target.exists():
                    earlier.replace(target)
                shutil.rmtree(earlier, ignore_errors=True)


def check_place(path: str | Path, ours: Collection[str] = (), card: str = "") -> None:
    """Raise a `ConfigError` unless `path` is free, an empty folder or an earlier result of the same kind.

    Parameters
    ----------
    ours : names or patterns of the files that an earlier result may have, as paths inside its folder
    card : the file that every earlier result has

    """
    folder, found = Path(path).resolve(), ""
    if Path.cwd().is_relative_to(folder):
        found = "the folder that you are in, or one around it"
    elif folder.is_dir():
        others = list(islice((name for name in _paths_below(folder) if not _matches(name, [*ours, _STAMP])), 3))
        if others:
            found = f"a folder with other files: {', '.join(others)}"
        elif card and not (folder / card).is_file() and any(folder.iterdir()):
            found = f"a folder without {card}"
    elif folder.exists():
        found = "a file"
    if found:
        expected = "a new or empty folder" + (", or an earlier result of this command" if ours else "")
        raise ConfigError(Fault(str(path), found, expected, "choose another name"))


def read_text(path: str | Path, largest: float = math.inf) -> str:
    """Return the text of a UTF-8 file, without a byte order mark and with line feeds as line ends.

    Parameters
    ----------
    largest : largest size in bytes, as in `read_whole`

    Raises
    ------
    ConfigError : bytes that are not UTF-8.
    OSError : as in `read_whole`.

    """
    try:
        return read_whole(Path(path), largest).decode("utf-8-sig").replace("\r\n", "\n").replace("\r", "\n")
    except UnicodeDecodeError as error:
        found = f"bytes that are not UTF-8 ({error.reason})"
        raise ConfigError(Fault(str(path), found, "UTF-8 text", "save it as UTF-8")) from None


def write_text(path: str | Path, text: str) -> None:
    """Write a text as UTF-8, completely or not at all."""
    with atomic_file(path) as temporary:
        temporary.write_text(text, encoding="utf-8")


def write_csv(table: DataFrame, path: str | Path, **form: Any) -> None:
    """Write a table as CSV without its index. An existing file with other columns raises a `ConfigError`.

    Parameters
    ----------
    form : further arguments of `DataFrame.to_csv`

    """
    form |= {"index": False, "lineterminator": "\n"}
    head = table.head(0).to_csv(**form)
    target = Path(path).resolve()
    if target.is_file():
        with target.open("rb") as stream:
            if stream.readline() not in (b"", head.encode()):
                expected = "a new file, or an earlier result of this command"
                raise ConfigError(Fault(str(path), "a file with other columns", expected, "choose another name"))
    with atomic_file(path) as temporary:
        table.to_csv(temporary, **form)


def _paths_below(folder: Path) -> Iterator[str]:
    """Yield the paths of all files and empty folders below a folder, relative to the folder."""
    for path in sorted(folder.iterdir()):
        within = _paths_below(path) if path.is_dir() and not path.is_symlink() else iter(())
        empty = not (first := next(within, ""))
        yield path.name if empty else f"{path.name}/{first}"
        yield from (f"{path.name}/{name}" for name in within)


def _matches(name: str, patterns: Collection[str]) -> bool:
    return any(name == pattern or fnmatchcase(name, pattern) for pattern in patterns)


def sha256_of(path: str | Path) -> str:
    """Return the SHA-256 of a file as a hexadecimal text. The file is read in blocks."""
    with Path(path).open("rb") as stream:
        return hashlib.file_digest(stream, "sha256").hexdigest()


def digest_faults(card: Path, digests: Mapping[str, Any], known: Sequence[str], step: str) -> Iterator[Fault]:
    """Compare files with the SHA-256 digests in the file `card`, and yield an error for each mismatch.

    Parameters
    ----------
    digests : SHA-256 by name of file
    known : names of the files that may have a digest

    """
    for name, digest in digests.items():
        where, path = f"{card}, key digests.{name}", card.parent / str(name)
        if name not in known:
            close = difflib.get_close_matches(str(name)[:200], known, n=1)
            advice = f"rename it to {close[0]}" if close else "remove the key"
            yield Fault(where, "a digest of an unknown file", ", ".join(known), advice)
        elif not path.is_file():
            yield Fault(where, "no such file in the folder", "the file that was stamped", step)
        elif (found := sha256_of(path)) != str(digest).lower():
            yield Fault(where, f"{name} with SHA-256 {found[:12]}...", f"{str(digest)[:12]}...", step)


def _copy_owner_and_mode(target: Path, temporary: Path) -> None:
    """Set the owner and mode of a temporary file to those of the file that is replaced.

    If no file is replaced, the temporary file keeps mode 600.
    """
    with suppress(FileNotFoundError):
        status, own = target.stat(), temporary.stat()
        if (status.st_uid, status.st_gid) != (own.st_uid, own.st_gid):
            os.chown(temporary, status.st_uid, status.st_gid)
        temporary.chmod(stat.S_IMODE(status.st_mode))


@contextmanager
def _locked_temporary(folder: Path, prefix: str, suffix: str, make: Callable[[Path, str, str], Path]) -> Iterator[Path]:
    """Remove the temporary files of processes that no longer run, and yield a new temporary file.

    The new file stays locked until the block ends or the process dies.
    """
    _remove_leftovers(folder, prefix, suffix)
    while True:
        temporary = make(folder, prefix, suffix)
        claim = None
        with suppress(FileNotFoundError):
            claim = os.open(temporary, os.O_RDONLY)
            with suppress(OSError):  # if the file system has no locks, leftover files are not removed
                fcntl.flock(claim, fcntl.LOCK_SH)
        try:
            # Another writer can remove the new file, as if it were a leftover, until the file is locked.
            if claim is not None and temporary.exists():
                yield temporary
                return
        finally:
            if claim is not None:
                os.close(claim)


def _remove_leftovers(folder: Path, prefix: str, suffix: str) -> None:
    """Remove the temporary files with the given prefix and suffix that no living process has locked."""
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
def _set_error_filename(target: Path) -> Iterator[None]:
    """Set the file name of a disk-full error to `target`, because libraries often omit the name."""
    try:
        yield
    except OSError as error:
        if error.errno in DISK_FULL_ERRORS:
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
    """Return the bytes of a regular file.

    Parameters
    ----------
    largest : largest size in bytes

    Raises
    ------
    OSError : the file is too large or not a regular file; `strerror` describes the file.

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


class _Unpacked(io.RawIOBase):
    """Stream of the unpacked bytes of a gzip file, limited in size."""

    def __init__(self, packed: gzip.GzipFile, share: float) -> None:
        super().__init__()
        self._stream, self._gigabytes = packed, largest_unpacked() * share
        self._left = int(self._gigabytes * 1e9)

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: WriteableBuffer) -> int:
        target = memoryview(buffer).cast("B")
        data = self._stream.read1(len(target))
        self._left -= len(data)
        if self._left < 0:
            found = f"more than {self._gigabytes:g} GB unpacked, the most that {LARGEST_UNPACKED} allows"
            raise OSError(errno.EFBIG, found)
        target[: len(data)] = data
        return len(data)

    def close(self) -> None:
        self._stream.close()
        super().close()


def unpacked(packed: gzip.GzipFile, share: float = 1.0) -> io.BufferedReader:
    """Return a buffered stream of the unpacked bytes of a gzip file.

    Reading more than `share * largest_unpacked()` GB raises an `OSError` with the number `EFBIG`.
    """
    return io.BufferedReader(_Unpacked(packed, share), _BLOCK)


def read_unpacked(path: Path, largest: float = math.inf) -> bytes:
    """Return the bytes of a regular file, unpacked if its name ends in `.gz`.

    Parameters
    ----------
    largest : largest size on disk in bytes

    Raises
    ------
    OSError : as in `read_whole`, or the file unpacks to more than `largest_unpacked`; reading stops there.
    EOFError, gzip.BadGzipFile, zlib.error : the file is not a valid gzip file.

    """
    data = read_whole(path, largest)
    if path.suffix != ".gz":
        return data
    with unpacked(gzip.GzipFile(fileobj=io.BytesIO(data))) as stream:
        return stream.read()


def largest_unpacked() -> float:
    """Return the largest size in GB that a compressed file may unpack to.

    If the environment variable for this size is set to a text that is not a positive number, a `ConfigError` is raised.
    """
    text = os.environ.get(LARGEST_UNPACKED) or str(DEFAULT_GB)
    try:
        gigabytes = float(text)
    except ValueError:
        gigabytes = math.nan
    if not 0 < gigabytes < math.inf:
        where = f"environment variable {LARGEST_UNPACKED}"
        raise ConfigError(Fault(where, repr(text), "a number of GB above 0", "correct it, or unset it"))
    return gigabytes
