"""The lock that a dead run of the workflow leaves, and when it may be removed.

Snakemake's own lock is a file that outlives a killed Snakemake and names nobody. Beside it every run, and every job
of it (`workflow/scripts/job.sh`), holds a shared lock of the kernel on one file, which ends with its holder. Where
that file can be locked exclusively nobody is alive, and a lock of Snakemake's that is still there is a dead run's.
"""

from __future__ import annotations

import fcntl
import socket
from contextlib import suppress
from pathlib import Path
from typing import IO

from afa.errors import Fault, ResourceError

ALIVE = "alive"  # in the folder `.snakemake`; names the machine that the runs are on

_joined: dict[Path, IO[str]] = {}  # open, and so locked, until this process ends


def join_the_living(state: str | Path) -> str | None:
    """Count this process among the living of the folder `state` (`.snakemake`) until it ends.

    A lock of Snakemake's that is there is removed if it must be a dead run's; a text says why it was not, if so. Where
    the file system has no locks nothing is done, and Snakemake's lock stands as it is.

    Raises
    ------
    ResourceError : a folder that cannot be written.

    """
    folder = Path(state).absolute()
    if folder in _joined:
        return None
    try:
        folder.mkdir(exist_ok=True)
        file = _joined[folder] = (folder / ALIVE).open("a+", encoding="utf-8")
    except OSError as error:
        found, step = (
            error.strerror or str(error),
            "copy the project to a folder of your own, or correct its permissions",
        )
        raise ResourceError(Fault(str(folder), found, "a folder that can be written", step)) from None
    with suppress(OSError):
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
        for lock in locks:
            lock.unlink()
        file.truncate(0)
        file.write(here)
        file.flush()
    return None


def _holders(alive: Path) -> list[int]:
    """Processes of this machine, but this one, that have the file open."""
    pids = set()
    for link in Path("/proc").glob("[0-9]*/fd/*"):
        with suppress(OSError):
            if link.samefile(alive):
                pids.add(int(link.parts[2]))
    own = Path("/proc/self").resolve().name
    return sorted(pids - {int(own)})
