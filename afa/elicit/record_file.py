"""A record as one file: what a folder of answers holds, in an order that hangs on the answers alone."""

from __future__ import annotations

import json
from collections.abc import Iterable
from dataclasses import asdict
from pathlib import Path

from afa.elicit.store import SUFFIX, Entry
from afa.errors import ElicitationError, Fault
from afa.files import atomic_file


def write_record(entries: Iterable[Entry], folder: str | Path, name: str) -> int:
    """Write entries as `<name>.jsonl` into a folder, each once, sorted by question; the number of them.

    Raises
    ------
    ElicitationError : the folder holds other entries already, which this would lie among.

    """
    path = Path(folder) / f"{name}{SUFFIX}"
    if others := sorted(file.name for file in Path(folder).glob(f"*{SUFFIX}") if file != path):
        step = "name an empty folder; `afa elicit merge` puts several into one"
        raise ElicitationError(Fault(str(folder), f"a record already ({others[0]})", f"nothing but {path.name}", step))
    lines = sorted({(_place(entry), _line(entry)) for entry in entries})
    with atomic_file(path) as temporary, temporary.open("w", encoding="utf-8", newline="\n") as stream:
        stream.writelines(f"{line}\n" for _, line in lines)
    return len(lines)


def _place(entry: Entry) -> tuple[str, ...]:
    question = entry.question
    return question.prompt, question.run, *(value for _, value in sorted(question.values.items())), entry.time


def _line(entry: Entry) -> str:
    return json.dumps(asdict(entry), sort_keys=True)
