"""Records of several people as one: entries, wordings and what was retrieved, each once."""

from __future__ import annotations

import shutil
from collections.abc import Iterator, Sequence
from pathlib import Path

from afa.elicit.lines import Lines
from afa.elicit.literature import CACHE_FOLDER
from afa.elicit.record_file import write_record
from afa.elicit.store import Entry, Store
from afa.elicit.wordings import SUFFIX as WORDINGS
from afa.errors import ElicitationError, Fault
from afa.files import atomic_file

MERGED = "merged"


def merge(records: Sequence[Path], destination: Path, *, model: str = "", prompt: str = "") -> int:
    """Write what several records hold into a folder of its own, the same for any order of them; the number of entries.

    model : only answers of this model, where it is given. prompt : only those to the wording whose digest begins so.

    Raises
    ------
    ElicitationError : a folder that holds no record, a fault of one, or a destination with another record in it.

    """
    chosen: list[Entry] = []
    for record in records:
        entries = list(Store(record).entries())
        if not entries:
            step = "name folders with files of answers"
            raise ElicitationError(Fault(str(record), "no answers", "a record", step))
        chosen += [entry for entry in entries if model in ("", entry.model) and entry.prompt_digest.startswith(prompt)]
    count = write_record(chosen, destination, MERGED)
    lines = sorted({line for record in records for line in _wordings(record)})
    if lines:
        with atomic_file(destination / f"{MERGED}{WORDINGS}") as temporary:
            temporary.write_bytes(b"\n".join(lines) + b"\n")
    for record in records:
        if (record / CACHE_FOLDER).is_dir():
            shutil.copytree(record / CACHE_FOLDER, destination / CACHE_FOLDER, dirs_exist_ok=True)
    return count


def _wordings(record: Path) -> Iterator[bytes]:
    faults: list[Fault] = []
    yield from (line for _, line in Lines(record, WORDINGS).read(faults))
    if faults:
        raise ElicitationError(faults)
