"""Read and write compressed files, and check that a downloaded file is complete and matches its suffix."""

from __future__ import annotations

import errno
import gzip
import tarfile
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import BinaryIO, NamedTuple, TypeVar, cast

from pydantic import TypeAdapter, ValidationError

from afa.errors import CohortError, Fault
from afa.io.files import GZIP_ERRORS, unpacked
from afa.io.yamlfile import first_error

_GZIP_MAGIC = b"\x1f\x8b"
_HTML_STARTS = (b"<!doctype html", b"<html", b"<head", b"<body", b"<!doctype>", b"<?xml", b"<!--")
_BLOCK_BYTES = 1 << 20
LONGEST_EXTENSION = 8 << 10
_MOST_IN_A_ROW = 8
_IMPOSSIBLE = 1 << 60
_PAX = frozenset({tarfile.XHDTYPE, tarfile.XGLTYPE, tarfile.SOLARIS_XHDTYPE})
_EXTENSIONS = _PAX | {tarfile.GNUTYPE_LONGNAME, tarfile.GNUTYPE_LONGLINK}
_REDEFINED = (b" size=", b" GNU.sparse.", b" hdrcharset=")


Listed = TypeVar("Listed")


class Damage(NamedTuple):
    """Damage found in a file, described for an error message.

    Parameters
    ----------
    found, expected : texts of the `Fault`
    truncated : the file ends too early, so that another transfer may succeed

    """

    found: str
    expected: str
    truncated: bool = False


def open_binary(path: Path) -> BinaryIO:
    """Return a binary stream of the file, which is decompressed if the file begins with gzip's magic bytes.

    Reading damaged data raises one of the `GZIP_ERRORS`. Reading more than `largest_unpacked()` GB of unpacked data
    raises an `OSError`.
    """
    with path.open("rb") as stream:
        compressed = stream.read(2) == _GZIP_MAGIC
    return cast(BinaryIO, unpacked(gzip.GzipFile(path))) if compressed else path.open("rb")


@contextmanager
def reading(where: object, again: str = "fetch the file again") -> Iterator[None]:
    """Convert gzip, tar and operating-system errors in the `with` block to a `CohortError`.

    Parameters
    ----------
    where : name of the file in the error message
    again : advice to the user if the file is damaged

    """
    try:
        yield
    except (*GZIP_ERRORS, tarfile.TarError) as error:
        found = f"a truncated or damaged gzip file ({error})"
        raise CohortError(Fault(str(where), found, "one that reads to its end", again)) from None
    except OSError as error:
        found, expected, step = error.strerror or str(error), "a readable file", "check the path"
        if error.errno == errno.EFBIG:
            expected, step = "a smaller file", "allow more if it is the right one"
        raise CohortError(Fault(str(where), found, expected, step)) from None


def read_listed(kind: type[Listed], path: str | Path, expected: str, step: str) -> Listed:
    """Return the content of a JSON file, validated as `kind`.

    If the file is missing or invalid, a `CohortError` is raised.
    """
    try:
        return TypeAdapter(kind).validate_json(Path(path).read_bytes())
    except OSError as error:
        found = error.strerror or str(error)
    except ValidationError as error:
        found = f"other content ({first_error(error, 'the whole')})"
    raise CohortError(Fault(str(path), found, expected, f"check the path, or {step}"))


def write_gzip(path: Path, lines: Iterable[str]) -> None:
    """Write lines as UTF-8 gzip.

    The same lines always give the same bytes, because the gzip header contains no time stamp and no file name.
    """
    path.parent.mkdir(parents=True, exist_ok=True)
    with path.open("wb") as raw, gzip.GzipFile(filename="", mode="wb", compresslevel=6, fileobj=raw, mtime=0) as stream:
        stream.writelines(line.encode() for line in lines)


def damage_of(path: Path) -> Damage | None:
    """Return the damage found in a file, or None if the file is intact.

    A gzip file (`.gz`, `.tgz`) is read to its end, because length and checksum of the content are stored there. In a
    tar archive, only the headers are checked. An empty file or an HTML page counts as damaged, whatever its suffix.
    """
    with path.open("rb") as stream:
        start = stream.read(512)
    if not start:
        return Damage("an empty file", "the file's content", truncated=True)
    if _is_html(start):
        return Damage("an HTML page", "the file itself")
    if path.suffix in {".gz", ".tgz"}:
        return _gzip_damage(path, start)
    if path.suffix == ".tar":
        return tar_damage(path)
    return None


def _is_html(start: bytes) -> bool:
    return start.removeprefix(b"\xef\xbb\xbf").lstrip().lower().startswith(_HTML_STARTS)


def _gzip_damage(path: Path, start: bytes) -> Damage | None:
    if not start.startswith(_GZIP_MAGIC):
        return Damage(f"bytes that are not gzip ({start[:12]!r})", "a gzip file")
    try:
        with open_binary(path) as stream:
            if _is_html(stream.read(512)):
                return Damage("a compressed HTML page", "the file itself")
            while stream.read(_BLOCK_BYTES):
                pass
    except EOFError:
        return Damage("a truncated gzip file", "a gzip file that reads to its end", truncated=True)
    except GZIP_ERRORS as error:
        return Damage(f"a damaged gzip file ({error})", "a gzip file that reads to its end")
    except OSError as error:
        if error.errno != errno.EFBIG:
            raise
        return Damage(str(error.strerror), "a smaller file, or a larger limit")
    return None


def tar_damage(path: Path) -> Damage | None:
    """Return the damage found in the headers of a tar archive, or None if the archive is intact.

    A tar archive must end with a block of zeros. The headers of all members are checked before `tarfile` opens the
    archive, because unusual headers can stop some versions of `tarfile`: a negative size causes an endless loop, a long
    extended header takes hours, and many consecutive extended headers cause deep recursion. Archives that contain only
    ordinary files do not have these unusual headers.
    """
    last, offset, extensions = "", 0, 0
    with path.open("rb") as stream:
        while True:
            stream.seek(offset)
            block = stream.read(tarfile.BLOCKSIZE)
            if block == bytes(tarfile.BLOCKSIZE):
                break
            try:
                header = tarfile.TarInfo.frombuf(block, "utf-8", "surrogateescape")
            except tarfile.HeaderError as error:
                if not last:
                    return Damage(f"bytes that are not a tar archive ({error})", "a tar archive")
                ends = len(block) < tarfile.BLOCKSIZE
                how = "breaks off" if ends else "is damaged"
                return Damage(f"a tar archive that {how} after {last}", "one that reads to its end", truncated=ends)
            extensions = extensions + 1 if header.type in _EXTENSIONS else 0
            if strange := _describe_unusual_header(header, stream, extensions):
                return Damage(f"a tar archive with {strange} at byte {offset}", "one of plain files")
            last = last if header.type in _EXTENSIONS else f"member {header.name}"
            has_data = header.isreg() or header.type not in tarfile.SUPPORTED_TYPES or header.type in _EXTENSIONS
            blocks = -(-header.size // tarfile.BLOCKSIZE) if has_data else 0
            offset += (1 + blocks) * tarfile.BLOCKSIZE
    try:
        with tarfile.open(path, "r:") as archive:
            archive.getmembers()
    except (tarfile.TarError, OSError, ValueError) as error:
        return Damage(f"a tar archive with headers that cannot be read ({error})", "one of plain files")
    return None


def _describe_unusual_header(header: tarfile.TarInfo, stream: BinaryIO, extensions: int) -> str:
    if not 0 <= header.size < _IMPOSSIBLE:
        return "a member of negative or impossible size"
    if header.type == tarfile.GNUTYPE_SPARSE:
        return "a file with holes"
    if header.type in _EXTENSIONS and (header.size > LONGEST_EXTENSION or extensions > _MOST_IN_A_ROW):
        return "an extended header without end"
    records = stream.read(header.size) if header.type in _PAX else b""
    return "an extended header that redefines a member's size" if any(w in records for w in _REDEFINED) else ""
