"""What a run of the workflow does beside Snakemake: whose lock it is, where its files are, what a killed run has left.

Locks: Snakemake's own is a file that outlives a killed Snakemake and names nobody. Beside it every run, and every job
of it (`workflow/scripts/job.sh`), holds a shared lock of the kernel on one file, which ends with its holder. Where
that file can be locked exclusively nobody is alive, and a lock of Snakemake's that is still there is a dead run's.
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
    """Return True if a command line names a profile, or Snakemake finds the default one for a Snakefile."""
    if any(word.partition("=")[0] in ("--profile", "--workflow-profile") for word in words):
        return True
    places = (Path(), Path("profiles"), Path(snakefile).parent / "profiles")
    return any((place / "default").exists() for place in places)


def remove_shards(run: Path) -> None:
    """Remove the shards of stages whose tables are there; no job needs them any more.

    Snakemake removes them after the job that joined them, but for their empty folders. A kill in between leaves all.
    """
    for shards in (run / "shards").glob("*"):
        if any((run / "tables" / shards.name).glob("*")):
            shutil.rmtree(shards)
    with suppress(OSError):  # not there, or a stage has not joined its shards yet
        (run / "shards").rmdir()


def workflow_folder(rules: SourceFile, state: str | Path) -> Path:
    """The folder of a workflow whose files of rules lie in `rules`, as Snakemake names it.

    Snakemake reads the rules of a workflow in a git repository one by one and has no folder of it. Then its whole
    commit is unpacked, once, into a folder of `state` that is named by the commit.

    Parameters
    ----------
    rules : `<folder>/workflow/rules`, where it is local, in a repository on this machine or with a hosting provider.
    state : `.snakemake` of the run.

    Raises
    ------
    ResourceError : rules from anywhere else, such as a web address.

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
        # Another process may have unpacked it by now: the same commit, so the same files.
        with atomic_folder(folder, ["*"]) as unpacked, tarfile.open(fileobj=packed) as archive:
            archive.extractall(unpacked, filter="data")
    return folder


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
        step = "copy the project to a folder of your own, or correct its permissions"
        fault = Fault(str(folder), error.strerror or str(error), "a folder that can be written", step)
        raise ResourceError(fault) from None
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
