"""How every file of a run was made: the workflow's own records, followed from the report back to the sources.

The records are those that Snakemake keeps of each finished job, so that what stands here is what ran and not what
would run now.
"""

from __future__ import annotations

import json
import os
import platform
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import asdict, dataclass, replace
from importlib import metadata
from pathlib import Path
from typing import Any

from afa.files import atomic_file, sha256_of

PACKAGES = (
    "afa",
    "numpy",
    "scipy",
    "pandas",
    "pyarrow",
    "numba",
    "llvmlite",
    "pydantic",
    "matplotlib",
    "bokeh",
    "ipython",
    "nbconvert",
    "snakemake",
)


@dataclass(frozen=True)
class Job:
    """One finished job.

    outputs : what it made, path -> SHA-256; a folder stands as its files. inputs : paths that the job was given, each
    with the digest of what it read (`afa.workflow.content_of`), "" for a folder whose files are named beside it.
    command : the shell command with every setting. code : digests of the package's code behind the command.
    started, ended : UTC, to the second.
    """

    rule: str
    outputs: dict[str, str]
    inputs: Mapping[str, str]
    command: str
    code: tuple[str, ...]
    started: str
    ended: str


def trace(targets: Iterable[str], job_of: Callable[[str], Job | None]) -> list[Job]:
    """Every job behind `targets`, each once and after those that it needs.

    job_of : the job that made a path, or None. Outputs of one job that several paths lead to are gathered in it.
    """
    jobs: dict[tuple[str, str], Job] = {}

    def visit(path: str) -> None:
        job = job_of(path)
        if job is None:
            return
        key = job.rule, job.command
        if key in jobs:
            jobs[key] = replace(jobs[key], outputs=jobs[key].outputs | job.outputs)
            return
        for needed in job.inputs:
            visit(needed)
        jobs[key] = job

    for target in targets:
        visit(target)
    return list(jobs.values())


def upstream(output: str, jobs: Iterable[Mapping[str, Any]]) -> list[Mapping[str, Any]]:
    """The jobs, of a provenance file, that `output` depends on, its own last; a file of a folder may be named."""
    jobs = list(jobs)
    wanted, found = {output}, []
    for job in reversed(jobs):
        if any(_within(path, name) or _within(name, path) for path in job["outputs"] for name in wanted):
            wanted |= set(job["inputs"])
            found.append(job)
    return found[::-1]


def write_provenance(jobs: Iterable[Job], path: Path, *, root: Path, lock: Path) -> None:
    """Write jobs with the SHA-256 of every file they made, and the environment, as JSON.

    root : what the paths of the jobs are relative to. lock : the pinned environment.
    """
    told = {
        "environment": environment(lock),
        "jobs": [asdict(replace(job, outputs=_digests(job.outputs, root))) for job in jobs],
    }
    with atomic_file(path) as temporary:
        temporary.write_text(json.dumps(told, indent=1) + "\n", encoding="utf-8")


def environment(lock: Path) -> dict[str, Any]:
    """Versions of Python and of the packages that numbers depend on, the lock's digest, and the machine's size."""
    return {
        "python": platform.python_version(),
        "platform": f"{platform.system()} {platform.machine()}",
        "cores": len(os.sched_getaffinity(0)),
        "memory_gib": round(os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE") / 2**30, 1),
        "lock_sha256": sha256_of(lock),
        "packages": {name: metadata.version(name) for name in PACKAGES},
    }


def _digests(outputs: Iterable[str], root: Path) -> dict[str, str]:
    return {
        file.relative_to(root).as_posix(): sha256_of(file) for path in sorted(outputs) for file in _files(root / path)
    }


def _files(path: Path) -> Iterator[Path]:
    """The file itself, or what is in the folder without Snakemake's own time stamp."""
    if path.is_dir():
        yield from (each for each in sorted(path.rglob("*")) if each.is_file() and not each.name.startswith("."))
    elif path.is_file():
        yield path


def _within(path: str, folder: str) -> bool:
    return path == folder or path.startswith(f"{folder}/")
