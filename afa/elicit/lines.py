"""Files of JSON lines that are only ever appended to: each writer has one of its own, and all of them are read."""

from __future__ import annotations

import json
import os
import threading
import uuid
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from afa.errors import Fault
from afa.files import read_whole

RESTORE = "restore the file, or take it out of the folder"


class Lines:
    """The files of one suffix in a folder: one file to append to, and all of them to read.

    torn : unfinished last lines, which killed writers left; they are passed over.
    """

    def __init__(self, folder: Path, suffix: str) -> None:
        self.folder, self.suffix = folder, suffix
        self._lock = threading.Lock()
        self._mine: tuple[int, Path] | None = None
        self._read: dict[Path, tuple[int, int]] = {}
        self._torn: set[Path] = set()

    @property
    def torn(self) -> int:
        return len(self._torn)

    def append(self, document: Mapping[str, Any], *, durable: bool = True) -> Path:
        """Write one line and return its file; with `durable` it is on the disk by then. Safe from several threads."""
        line = json.dumps(document, sort_keys=True).encode() + b"\n"
        with self._lock:
            process, path = self._mine or (os.getpid(), self._new())
            if process != os.getpid():
                path = self._new()
            # A failure in between may leave half a line, which must stay the last one of its file.
            self._mine = None
            with path.open("ab") as stream:
                stream.write(line)
                stream.flush()
                if durable:
                    os.fsync(stream.fileno())
            self._mine = os.getpid(), path
        return path

    def new(self, faults: list[Fault]) -> Iterator[tuple[Path, str, bytes]]:
        """Every line of JSON since the last call, with its file and place; what is no JSON is added to `faults`."""
        if self.folder.exists() and not self.folder.is_dir():
            faults.append(Fault(str(self.folder), "a file", "a folder of the record", "name another folder"))
        for path in sorted(self.folder.glob(f"*{self.suffix}")):
            start, number = self._read.get(path, (0, 0))
            try:
                data = _bytes_from(path, start)
            except OSError as error:
                faults.append(Fault(str(path), error.strerror or "an error", "a file that can be read", RESTORE))
                continue
            self._torn.discard(path)
            *whole, tail = data.split(b"\n")
            for line in whole:
                number, where = number + 1, f"{path}, line {number + 1}"
                if trouble := _trouble(line):
                    faults.append(Fault(where, f"no JSON ({trouble})", "a line of the record", RESTORE))
                elif line.strip():
                    yield path, where, line
            self._read[path] = start + len(data) - len(tail), number
            if _trouble(tail):
                self._torn.add(path)
            elif tail.strip():
                self._read[path] = start + len(data), number
                yield path, f"{path}, line {number + 1}", tail

    def forget(self) -> None:
        """Read everything again the next time."""
        self._read.clear()

    def _new(self) -> Path:
        self.folder.mkdir(parents=True, exist_ok=True)
        return self.folder / f"{uuid.uuid4().hex}{self.suffix}"


def _bytes_from(path: Path, start: int) -> bytes:
    if not start:
        return read_whole(path)
    with path.open("rb") as stream:
        stream.seek(start)
        return stream.read()


def _trouble(line: bytes) -> str:
    """Why a line is no JSON; empty for a blank one."""
    try:
        if line.strip():
            json.loads(line.decode())
    except (ValueError, RecursionError) as error:
        return str(error)
    return ""
