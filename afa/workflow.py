"""What a run of the workflow does beside Snakemake: what is up to date, whose lock it is, where its files are.

Up to date, by content: a job's record says what it read and what it made, and both are there. Snakemake asks by date,
and only after results that another job needs: it forgets a job that failed, as what follows it is still there, and it
does not see that a file was replaced by an older one. Here every job of the plan is asked. It runs again unless its
inputs have the content that it read and its outputs the content that it made. Settings, code and the list of inputs are
Snakemake's to compare.

Locks: Snakemake's own is a file that outlives a killed Snakemake and names nobody. Beside it every run, and every job
of it (`workflow/scripts/job.sh`), holds a shared lock of the kernel on one file, which ends with its holder. Where
that file can be locked exclusively nobody is alive, and a lock of Snakemake's that is still there is a dead run's.
"""

from __future__ import annotations

import fcntl
import hashlib
import io
import os
import re
import shutil
import socket
import tarfile
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import asdict, dataclass
from functools import wraps
from pathlib import Path
from typing import IO, Any

from git import Repo
from snakemake.io import IOFile, is_flagged
from snakemake.logging import logger
from snakemake.persistence import PersistenceBase
from snakemake.sourcecache import HostingProviderFile, LocalGitFile, LocalSourceFile, SourceFile

from afa.errors import Fault, ResourceError
from afa.files import atomic_folder, sha256_of

LARGE = 10_000_000
"""Bytes. A larger file is read again only when its size or its time has changed."""

AGAIN = "give the same command again: it makes this anew"

_KEY = "afa: stamp"  # in a record of Snakemake's, beside its own checksums of inputs


@dataclass(frozen=True)
class Stamp:
    """What a job read and made, path -> content; `temporary` are those outputs that go when they have been used."""

    inputs: Mapping[str, str]
    outputs: Mapping[str, str]
    temporary: tuple[str, ...]


class Contents:
    """Contents and stamps of the paths in Snakemake's `records`; each path is read once."""

    def __init__(self, records: PersistenceBase) -> None:
        self._records = records
        self._known: dict[str, str] = {}

    def stamp(self, output: str) -> Stamp | None:
        """The stamp of the job that made a path; None where no job that ended well did."""
        record = self._records.metadata(IOFile(output))
        kept = (record.input_checksums or {}).get(_KEY) if record is not None else None
        return Stamp(kept["inputs"], kept["outputs"], tuple(kept["temporary"])) if kept else None

    def now(self, path: str, kept: str = "") -> str:
        """The content of a path; of a temporary file that is gone, the content that it had. `kept` as `content_of`."""
        if path not in self._known:
            self._known[path] = content_of(path, kept)
        if not self._known[path] and (maker := self.stamp(path)) and path in maker.temporary:
            return maker.outputs[path]
        return self._known[path]

    def made(self, path: str) -> str:
        """The content of an output that has just been written."""
        self._known.pop(path, None)
        return self.now(path)

    def fault(self, output: str) -> Fault | None:
        """What is not up to date about the job that made a path; None where it is."""
        stamp = self.stamp(output)
        if stamp is None:
            found = "no record of what its job read and made"
            return Fault(output, found, "the record of a job that ended well", AGAIN)
        made, read = "what its job made", f"what was read to make {output}"
        for contents, expected in ((stamp.outputs, made), (stamp.inputs, read)):
            for path, content in contents.items():
                if self.now(path, content).partition(" ")[0] != content.partition(" ")[0]:
                    found = "another content" if self.now(path) else "nothing"
                    return Fault(path, found, expected, AGAIN)
        return None


def content_of(path: str | Path, kept: str = "") -> str:
    """A digest of a file, or of all files in a folder but hidden ones; "" where nothing is there.

    That of a large file has its size and time too. Where these are those of `kept`, `kept` is returned unread.
    """
    path = Path(path)
    if path.is_dir():
        digest = hashlib.sha256()
        for file in sorted(path.rglob("[!.]*")):
            if file.is_file():
                digest.update(f"{file.relative_to(path).as_posix()}\0{sha256_of(file)}\0".encode())
        return digest.hexdigest()
    if not path.is_file():
        return ""
    status = path.stat()
    as_of = f" {status.st_size} {status.st_mtime_ns}" if status.st_size > LARGE else ""
    return kept if as_of and kept.endswith(as_of) else sha256_of(path) + as_of


def decide_by_content(rules: str) -> None:
    """Have Snakemake decide by content too which jobs run, for rules in files under the folder `rules`."""
    _folders.add(rules)
    if PersistenceBase.incomplete is not _incomplete:
        PersistenceBase.incomplete, PersistenceBase.finished = _incomplete, _finished


_folders: set[str] = set()
_contents: dict[PersistenceBase, Contents] = {}
_plain_incomplete, _plain_finished = PersistenceBase.incomplete, PersistenceBase.finished


@wraps(_plain_incomplete)
async def _incomplete(records: PersistenceBase, job: Any) -> list[Any]:
    """Called for every job of a plan: force those that are not up to date."""
    if _decides(job):
        contents = _contents.setdefault(records, Contents(records))
        # Read before any job is: a file that is edited while jobs run may not be what they have read.
        stamp = contents.stamp(job.output[0])
        kept = stamp.inputs if stamp else {}
        for path in _sources(job):
            contents.now(path, kept.get(path, ""))
        fault = next(filter(None, map(contents.fault, map(str, job.output))), None)
        if fault is not None:
            records.dag.forcefiles.update(job.output)
            if records.has_metadata(job):
                logger.info(f"afa: {fault.where}: found {fault.found}; expected {fault.expected}. It is made anew.")
    incomplete: list[Any] = await _plain_incomplete(records, job)
    return incomplete


@wraps(_plain_finished)
async def _finished(records: PersistenceBase, job: Any) -> None:
    """Called after every job: stamp it. One that failed has lost its outputs soon, or has none."""
    await _plain_finished(records, job)
    if not _decides(job):
        return
    contents = _contents.setdefault(records, Contents(records))
    records._clear_cache()
    made = [str(path) for dependency in records.dag.dependencies[job] for path in dependency.output]
    inputs = {path: contents.now(path) for path in map(str, job.input) if path in made or not Path(path).is_dir()}
    outputs = {path: contents.made(path) for path in map(str, job.output)}
    temporary = tuple(str(path) for path in job.output if is_flagged(path, "temp"))
    if all(outputs.values()):
        for path in job.output:
            record = records.metadata(path)
            record.input_checksums[_KEY] = asdict(Stamp(inputs, outputs, temporary))
            records._write_record(str(path), record)


def _decides(job: Any) -> bool:
    main = job.rule.workflow.is_main_process
    return main and bool(job.output) and any(str(job.rule.snakefile).startswith(folder) for folder in _folders)


def _sources(job: Any) -> list[str]:
    """The input files of a job that no job makes; a folder's files are inputs beside it where they count."""
    made = {str(path) for dependency in job.dag.dependencies[job] for path in dependency.output}
    return [path for path in map(str, job.input) if path not in made and not Path(path).is_dir()]


def remove_temporaries(workflow: Any) -> None:
    """Remove temporary outputs of the rules of a run that ended well, all but those asked for.

    Snakemake removes them after the job that used them. A kill in between leaves them to nobody.
    """
    for rule in {job.rule for job in workflow.dag.jobs}:
        for output in rule.output:
            if is_flagged(output, "temp"):
                for path in Path().glob(re.sub(r"\{.*?\}", "*", str(output))):
                    if not any(Path(target).is_relative_to(path) for target in workflow.dag.targetfiles):
                        shutil.rmtree(path) if path.is_dir() else path.unlink()
                        if not any(path.parent.iterdir()):
                            os.removedirs(path.parent)


def remove_timestamps(run: str | Path) -> None:
    """Remove the files in which Snakemake keeps the times of folders: each folder has its own time then, the same."""
    for stamp in Path(run).rglob(".snakemake_timestamp"):
        time = stamp.stat().st_mtime_ns
        stamp.unlink()
        os.utime(stamp.parent, ns=(time, time))


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
