"""What a dead run of the workflow leaves, and when it may be removed: its lock, and folders it was about to remove.

Snakemake's own lock is a file that outlives a killed Snakemake and names nobody. Beside it every run, and every job
of it (`workflow/scripts/job.sh`), holds a shared lock of the kernel on one file, which ends with its holder. Where
that file can be locked exclusively nobody is alive, and a lock of Snakemake's that is still there is a dead run's.
"""

from __future__ import annotations

import base64
import fcntl
import shutil
import socket
from collections.abc import Iterable
from contextlib import suppress
from pathlib import Path
from typing import IO

ALIVE = "alive"  # in the folder `.snakemake`; names the machine that the runs are on
TIME_STAMP = ".snakemake_timestamp"  # in every folder that a job has made

_joined: dict[Path, IO[str]] = {}  # open, and so locked, until this process ends


def join_the_living(state: str | Path) -> str | None:
    """Count this process among the living of the folder `state` (`.snakemake`) until it ends.

    A lock of Snakemake's that is there is removed if it must be a dead run's, with the folders that the run had half
    removed; a text says why it was not, if so. Where the folder cannot be written or the file system has no locks
    nothing is done, and Snakemake's lock stands as it is.
    """
    folder = Path(state).absolute()
    if folder in _joined:
        return None
    with suppress(OSError):
        folder.mkdir(exist_ok=True)
        file = _joined[folder] = (folder / ALIVE).open("a+", encoding="utf-8")
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
            alone = True
        except BlockingIOError:
            alone = False
        kept = _remove_dead_lock(folder, file, alone=alone)
        # Whoever has it exclusively has it for as long as the line above takes.
        fcntl.flock(file, fcntl.LOCK_SH)
        return kept
    return None


def _remove_dead_lock(folder: Path, file: IO[str], *, alone: bool) -> str | None:
    """Remove Snakemake's lock if all who could hold it would be seen in `file`; else say who may hold it."""
    locks = list((folder / "locks").glob("*.lock"))
    here = socket.gethostname()
    file.seek(0)
    last = file.read().strip()
    if locks and not alone:
        pids = ", ".join(map(str, _holders(folder / ALIVE))) or "on another machine"
        return (
            f"{folder}/locks: found the lock of a run, and processes at work here ({pids}); expected no other run on"
            " the same files. Next step: if Snakemake stops now, wait for them or end them, then type the same again."
        )
    # A network file system may keep locks to each machine: then the living of another one are not seen from here.
    if locks and last != here:
        place = last or "an unknown machine"
        return (
            f"{folder}/locks: found the lock of a run on {place}; expected one on {here}, which can be seen to be over."
            f" Next step: if no run is alive on {place}, type snakemake --unlock, then the same again."
        )
    if alone:
        if locks or last not in {"", here}:
            _remove_half_removed(folder)
        for lock in locks:
            lock.unlink()
        file.truncate(0)
        file.write(here)
        file.flush()
    return None


def _remove_half_removed(state: Path) -> None:
    """Remove the folders among the recorded outputs that lack Snakemake's time stamp.

    Snakemake removes a folder file by file, and notes only afterwards that its job has begun. Of one that was being
    removed some files may be left; without the stamp it has the time of that removal, and looks newly made.
    """
    records = state / "metadata"
    for record in records.rglob("*"):
        key = "".join(part.removeprefix("@") for part in record.relative_to(records).parts)
        with suppress(ValueError):  # a folder on the way to a long name
            output = state.parent / base64.urlsafe_b64decode(key).decode()
            if record.is_file() and output.is_dir() and not (output / TIME_STAMP).exists():
                shutil.rmtree(output)


def _holders(alive: Path) -> list[int]:
    """Processes of this machine, but this one, that have the file open."""
    pids = set()
    for link in Path("/proc").glob("[0-9]*/fd/*"):
        with suppress(OSError):
            if link.samefile(alive):
                pids.add(int(link.parts[2]))
    own = Path("/proc/self").resolve().name
    return sorted(pids - {int(own)})


def remove_gathered(run: str | Path, targets: Iterable[str]) -> None:
    """Remove the shards of stages whose tables are complete, unless one of `targets` asks for them.

    Snakemake removes them after the stage's gathering; a kill just before leaves them to nobody.
    """
    for shards in (Path(run) / "shards").glob("*"):
        wanted = any(Path(target).is_relative_to(shards) for target in targets)
        if not wanted and (Path(run) / "tables" / shards.name).is_dir():
            shutil.rmtree(shards)
