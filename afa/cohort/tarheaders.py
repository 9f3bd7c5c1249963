"""The headers of a tar archive, looked at before `tarfile` follows them.

Some versions of `tarfile` go round in circles after a negative size, take hours over a long extended header, or recurse
once for each header that extends the next.
"""

from __future__ import annotations

import tarfile
from pathlib import Path
from typing import BinaryIO

LONGEST_EXTENSION = 8 << 10
_MOST_IN_A_ROW = 8
_IMPOSSIBLE = 1 << 60
_PAX = frozenset({tarfile.XHDTYPE, tarfile.XGLTYPE, tarfile.SOLARIS_XHDTYPE})
_EXTENSIONS = _PAX | {tarfile.GNUTYPE_LONGNAME, tarfile.GNUTYPE_LONGLINK}
_REDEFINED = (b" size=", b" GNU.sparse.", b" hdrcharset=")


def strange_header(path: Path) -> str | None:
    """What is strange about the first header that no archive of plain files needs; None where there is none.

    Headers that cannot be read end the search: they are for `tarfile` to refuse.
    """
    with path.open("rb") as stream:
        offset, extensions = 0, 0
        while True:
            stream.seek(offset)
            try:
                header = tarfile.TarInfo.frombuf(stream.read(tarfile.BLOCKSIZE), "utf-8", "surrogateescape")
            except tarfile.HeaderError:
                return None
            extensions = extensions + 1 if header.type in _EXTENSIONS else 0
            strange = _strange(header, stream, extensions)
            if strange is not None:
                return f"{strange} at byte {offset}"
            has_data = header.isreg() or header.type not in tarfile.SUPPORTED_TYPES or header.type in _EXTENSIONS
            blocks = -(-header.size // tarfile.BLOCKSIZE) if has_data else 0
            offset += (1 + blocks) * tarfile.BLOCKSIZE


def _strange(header: tarfile.TarInfo, stream: BinaryIO, extensions: int) -> str | None:
    if not 0 <= header.size < _IMPOSSIBLE:
        return "a member of negative or impossible size"
    if header.type == tarfile.GNUTYPE_SPARSE:
        return "a file with holes"
    if header.type in _EXTENSIONS and (header.size > LONGEST_EXTENSION or extensions > _MOST_IN_A_ROW):
        return "an extended header without end"
    records = stream.read(header.size) if header.type in _PAX else b""
    return "an extended header that redefines a member's size" if any(w in records for w in _REDEFINED) else None
