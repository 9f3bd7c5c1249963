"""Compressed files as they come: opening them, and telling whether they are what their name says and are whole."""

from __future__ import annotations

import gzip
import tarfile
import zlib
from pathlib import Path
from typing import BinaryIO, NamedTuple, cast

GZIP_ERRORS = (EOFError, gzip.BadGzipFile, zlib.error)
_GZIP_MAGIC = b"\x1f\x8b"
_HTML_STARTS = (b"<!doctype html", b"<html", b"<head", b"<body", b"<!doctype>")
_BLOCK = 1 << 20


class Damage(NamedTuple):
    """What is wrong with a file: what was found, what was expected, and whether the file merely ends too early."""

    found: str
    expected: str
    truncated: bool = False


def open_binary(path: Path) -> BinaryIO:
    """The file's bytes, decompressed where they begin like gzip; errors while reading are those of `GZIP_ERRORS`."""
    with path.open("rb") as stream:
        compressed = stream.read(2) == _GZIP_MAGIC
    return cast(BinaryIO, gzip.open(path, "rb")) if compressed else path.open("rb")


def damage_of(path: Path) -> Damage | None:
    """What is wrong with a file by its name's suffix (`.gz`, `.tgz`, `.tar`, any other) and its bytes; None if nothing.

    A gzip file is read to its end, so that its length and checksum are tested; of a tar only the headers are read.
    """
    with path.open("rb") as stream:
        start = stream.read(512)
    if not start:
        return Damage("an empty file", "the file's content")
    if _is_html(start):
        return Damage("an HTML page", "the file itself")
    if path.suffix in {".gz", ".tgz"}:
        return _gzip_damage(path, start)
    if path.suffix == ".tar":
        return _tar_damage(path)
    return None


def _is_html(start: bytes) -> bool:
    return start.removeprefix(b"\xef\xbb\xbf").lstrip().lower().startswith(_HTML_STARTS)


def _gzip_damage(path: Path, start: bytes) -> Damage | None:
    if not start.startswith(_GZIP_MAGIC):
        return Damage(f"bytes that are not gzip ({start[:12]!r})", "a gzip file")
    try:
        with gzip.open(path, "rb") as stream:
            first = stream.read(_BLOCK)
            if _is_html(first[:512]):
                return Damage("a compressed HTML page", "the file itself")
            while stream.read(_BLOCK):
                pass
    except EOFError:
        return Damage("a truncated gzip file", "a gzip file that reads to its end", truncated=True)
    except GZIP_ERRORS as error:
        return Damage(f"a damaged gzip file ({error})", "a gzip file that reads to its end")
    return None


def _tar_damage(path: Path) -> Damage | None:
    """A tar must open, and its last member must be followed by a block of zeros, which `tarfile` does not insist on."""
    last = "its start"
    try:
        with tarfile.open(path, "r:") as archive:
            for member in archive:
                last = f"member {member.name}"
            end = archive.offset
    except (tarfile.TarError, OSError, ValueError) as error:
        if last == "its start":
            return Damage(f"bytes that are not a tar archive ({error})", "a tar archive")
        return Damage(f"a tar archive that breaks off after {last}", "one that reads to its end", truncated=True)
    with path.open("rb") as stream:
        stream.seek(end)
        closing = stream.read(tarfile.BLOCKSIZE)
    if len(closing) < tarfile.BLOCKSIZE:
        return Damage(f"a tar archive that breaks off after {last}", "one that reads to its end", truncated=True)
    if any(closing):
        return Damage(f"a tar archive that is damaged after {last}", "one that reads to its end")
    return None
