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
from afa.regularfile import read_whole


class Lines:
    """The files with one suffix in a folder.

    torn : lines that killed writers left unfinished, counted on reading and otherwise passed over.
    """

    def __init__(self, folder: Path, suffix: str) -> None:
        self.folder, self.suffix, self.torn = folder, suffix, 0
        self._lock = threading.Lock()
        self._mine: tuple[int, Path] | None = None

    def append(self, document: Mapping[str, Any]) -> None:
        """Write one line; it is on the disk when this returns. Safe from several threads and processes."""
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
                os.fsync(stream.fileno())
            self._mine = os.getpid(), path

    def read(self, faults: list[Fault]) -> Iterator[tuple[str, bytes]]:
        """Every line that is JSON, with where it stands; others are added to `faults`, but for torn ones."""
        self.torn = 0
        if self.folder.exists() and not self.folder.is_dir():
            faults.append(Fault(str(self.folder), "a file", "a folder of the record", "name another folder"))
        for path in sorted(self.folder.glob(f"*{self.suffix}")):
            step = "restore the file, or take it out of the folder"
            try:
                lines = read_whole(path).split(b"\n")
            except OSError as error:
                faults.append(Fault(str(path), error.strerror or "an error", "a file that can be read", step))
                continue
            for number, line in enumerate(lines, start=1):
                if not line.strip():
                    continue
                where, trouble = f"{path}, line {number}", _trouble(line)
                if not trouble:
                    yield where, line
                elif number == len(lines):
                    self.torn += 1
                else:
                    faults.append(Fault(where, f"no JSON ({trouble})", "a line of the record", step))

    def _new(self) -> Path:
        self.folder.mkdir(parents=True, exist_ok=True)
        return self.folder / f"{uuid.uuid4().hex}{self.suffix}"


def _trouble(line: bytes) -> str:
    try:
        json.loads(line.decode())
    except (ValueError, RecursionError) as error:
        return str(error)
    return ""
