"""Remove locks and leftovers of killed runs, and find the workflow's folder.

Snakemake's own lock is a file that does not name its owner and remains after Snakemake is killed. Every run and every
job (`workflow/scripts/job.sh`) holds a shared file lock on `.snakemake/alive`. When a process ends, the operating
system releases the locks that the process held. If a process gets an exclusive lock on `.snakemake/alive`, no other run
is alive. If no other run is alive, an existing lock of Snakemake was left by a run that has ended.
"""

from __future__ import annotations

import fcntl
import io
import shutil
import socket
import tarfile
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path
from typing import IO

from git import Repo
from snakemake.sourcecache import HostingProviderFile, LocalGitFile, LocalSourceFile, SourceFile

from afa.errors import Fault, ResourceError
from afa.io.files import atomic_folder


def has_profile(words: Sequence[str], snakefile: str | Path) -> bool:
    """Return True if a command line names a profile, or if Snakemake finds a default profile for the Snakefile."""
    if any(word.partition("=")[0] in ("--profile", "--workflow-profile") for word in words):
        return True
    places = (Path(), Path("profiles"), Path(snakefile).parent / "profiles")
    return any((place / "default").exists() for place in places)


def remove_shards(run: Path) -> None:
    """Remove the shards of every stage whose tables are joined, because no job needs the shards any more.

    After the tables of the shards are joined, Snakemake removes the shards but leaves empty folders. If a run is killed
    before Snakemake removes the shards, the shards remain.
    """
    for shards in (run / "shards").glob("*"):
        if any((run / "tables" / shards.name).glob("*")):
            shutil.rmtree(shards)
    with suppress(OSError):  # the folder may be missing, or may contain shards that are not joined yet
        (run / "shards").rmdir()


def workflow_folder(rules: SourceFile, state: str | Path) -> Path:
    """Return the folder of the workflow whose rules are in `rules`.

    If the rules come from a git repository, Snakemake reads single files from the repository and does not copy the
    whole workflow to a folder. For a workflow in a git repository, this function unpacks all files of the commit into
    the folder `afa-<commit>` in `state`.

    Parameters
    ----------
    rules : `<folder>/workflow/rules` in Snakemake's form. The folder can be local, in a repository on this machine, or
        at a hosting provider
    state : `.snakemake` of the run

    Raises
    ------
    ResourceError : the rules come from anywhere else, such as a web address.

    """
    if isinstance(rules, LocalSourceFile):
        return Path(rules.get_path_or_uri(secret_free=True)).parents[1]
    if isinstance(rules, HostingProviderFile):
        repository = rules.hosted_repo.repo
    elif isinstance(rules, LocalGitFile):
        repository = Repo(rules.repo_path)
    else:
        step = "name the workflow by a path, or by github() or gitlab() with a tag"
        raise ResourceError(Fault(str(rules), "rules that come one by one", "a folder or a git repository", step))
    commit = repository.commit(rules.ref).hexsha
    folder = Path(state) / f"afa-{commit[:12]}"
    if not folder.exists():
        packed = io.BytesIO()
        repository.archive(packed, treeish=commit)
        packed.seek(0)
        # Another process may write the same files to the same folder at the same time, which is harmless.
        with atomic_folder(folder, ["*"]) as unpacked, tarfile.open(fileobj=packed) as archive:
            archive.extractall(unpacked, filter="data")
    return folder


LOCK_FILE = "alive"  # lock file in `.snakemake`; its text is the name of the machine on which the current runs started

_joined: dict[Path, IO[str]] = {}  # open files, each of which holds a lock until this process ends


def hold_run_lock(state: str | Path) -> str | None:
    """Hold a shared lock in the folder `state` (`.snakemake`) until this process ends.

    If Snakemake's lock was certainly left by a run that has ended, the function removes Snakemake's lock. If
    Snakemake's lock possibly belongs to a run that is still active, the function returns a message about possible
    owners. If the file system does not support file locks, Snakemake's lock is kept, and the function returns None.

    Raises
    ------
    ResourceError : the folder cannot be written.

    """
    folder = Path(state).absolute()
    if folder in _joined:
        return None
    try:
        folder.mkdir(exist_ok=True)
        file = _joined[folder] = (folder / LOCK_FILE).open("a+", encoding="utf-8")
    except OSError as error:
        step = "copy the project to a folder of your own, or correct its permissions"
        fault = Fault(str(folder), error.strerror or str(error), "a folder that can be written", step)
        raise ResourceError(fault) from None
    with suppress(OSError):
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
            alone = True
        except BlockingIOError:
            alone = False
        message = _remove_dead_lock(folder, file, alone=alone)
        # Replace the exclusive lock by a shared lock.
        fcntl.flock(file, fcntl.LOCK_SH)
        return message
    return None


def _remove_dead_lock(folder: Path, file: IO[str], *, alone: bool) -> str | None:
    """Remove Snakemake's lock, or keep it and return a message if the lock possibly belongs to an active run."""
    locks = list((folder / "locks").glob("*.lock"))
    here = socket.gethostname()
    file.seek(0)
    last = file.read().strip()
    if locks and not alone:
        pids = ", ".join(map(str, _lock_holder_pids(folder / LOCK_FILE))) or "on another machine"
        return (
            f"{folder}/locks: found the lock of a run, and processes at work here ({pids}); expected no other run on"
            " the same files. Next step: if Snakemake stops now, wait for them or end them, then type the same again."
        )
    # If a network file system keeps separate locks for each machine, processes on other machines are not detected.
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


def _lock_holder_pids(alive: Path) -> list[int]:
    """Return the ids of all other processes on this machine that have the file open."""
    pids = set()
    for link in Path("/proc").glob("[0-9]*/fd/*"):
        with suppress(OSError):
            if link.samefile(alive):
                pids.add(int(link.parts[2]))
    own = Path("/proc/self").resolve().name
    return sorted(pids - {int(own)})
