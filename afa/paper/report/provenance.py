"""Trace every file of a run back to its source files through Snakemake's job records.

Snakemake saves a record of each job when the job has finished. Jobs that were planned but never ran have no record. A
run can be exported as an RO-Crate. RO-Crate is a standard description of files and jobs, which archives can read.
"""

from __future__ import annotations

import json
import os
import platform
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import asdict, dataclass, replace
from datetime import UTC, datetime
from importlib import metadata
from pathlib import Path
from typing import Any
from urllib.parse import quote

from rocrate.model import ContextEntity, Entity
from rocrate.rocrate import ROCrate
from snakemake.io import IOFile
from snakemake.persistence.db import DbPersistence
from snakemake.persistence.file import FilePersistence

from afa.errors import Fault, ReportError
from afa.io.files import atomic_file, sha256_of, write_text
from afa.paper.codedigest import DIGEST_LENGTH, NUMERICS

MORE_PACKAGES = (
    *("afa", "pyarrow", "llvmlite", "pydantic", "matplotlib", "bokeh", "ipython", "nbconvert", "snakemake"),
)
"""Packages whose versions are written in addition to those in each job's record (`afa.paper.codedigest.NUMERICS`)."""

VERSION = "1.1"
"""Version of RO-Crate that the profile below requires."""
PROFILE = "https://w3id.org/ro/wfrun/process/0.5"
DIGEST = {"sha256": "https://w3id.org/ro/terms/workflow-run#sha256"}
SOFTWARE = "https://arxiv.org/abs/2606.18933"
UNRECORDED_FILES = ("report.html", "workflow.html", "provenance.json")
"""Files of a run that no recorded job made."""


@dataclass(frozen=True)
class Job:
    """One finished job.

    Attributes
    ----------
    rule : name of the workflow rule
    outputs : path of a file that the job wrote -> SHA-256
    inputs : path of an input -> SHA-256 when the job ran; "" for a folder, whose files are also listed
    command : the shell command, with all settings
    code : digests of the package's code that the command runs
    started, ended : times in UTC, to the second
    packages : versions, when the job ran, of packages that affect numbers (`afa.paper.codedigest.versions`); "" if the
        job runs no code of afa

    """

    rule: str
    outputs: dict[str, str]
    inputs: Mapping[str, str]
    command: str
    code: tuple[str, ...]
    started: str
    ended: str
    packages: str = ""


class Records:
    """Find the record that Snakemake saved for a job, given the path of one of the job's outputs.

    `folder` is a project's folder `.snakemake`.

    Snakemake saves its records in files or, with `--persistence-backend db`, in a database. With the option
    `--drop-metadata`, Snakemake saves no records.

    Raises
    ------
    ReportError : the folder does not exist.

    """

    def __init__(self, folder: Path) -> None:
        if not folder.is_dir():
            found, step = "no such folder", "call it from the folder in which the workflow ran"
            raise ReportError(Fault(str(folder), found, "Snakemake's folder .snakemake", step))
        place = folder.resolve()
        files, database = place / "metadata", place / "metadata.db"
        self._records: FilePersistence | DbPersistence | None = None
        if files.is_dir() and any(files.iterdir()):
            self._records = FilePersistence(nolock=True, path=place)
        elif database.is_file():
            self._records = DbPersistence(nolock=True, path=place)

    def job(self, output: str) -> Job | None:
        """Return the job that wrote the file `output`, or None if the job has no record.

        The returned job contains no digests of its outputs.
        """
        record = None if self._records is None else self._records.metadata(IOFile(output))
        if record is None:
            return None
        read = record.input_checksums or {}
        return Job(
            rule=record.rule or "",
            outputs={output: ""},
            inputs={path: read.get(path, "").rpartition(":")[2] for path in record.input or ()},
            command=" ".join((record.shellcmd or "").split()),
            code=tuple(_code_digests(record.params or [])),
            started=_time(record.starttime),
            ended=_time(record.endtime),
            packages=_packages(record.params or []),
        )


def check_jobs(jobs: Iterable[Job], root: Path) -> None:
    """Raise a `ReportError` if inputs of the jobs have changed since the jobs ran.

    Inputs that no longer exist, such as removed shards, are not checked. The paths of the jobs are relative to `root`.
    """
    step, faults, now = "remove what was made of it, and give the same command again", [], dict[str, str]()
    for job in jobs:
        for path, digest in job.inputs.items():
            if digest and path not in now and (root / path).is_file():
                now[path] = sha256_of(root / path)
            if digest and now.get(path, digest) != digest:
                made = f"what {job.rule} read to make {next(iter(job.outputs))}"
                faults.append(Fault(path, "another content", made, step))
    if faults:
        raise ReportError(faults)


def _code_digests(params: Iterable[Any]) -> Iterator[str]:
    """Yield the code digests in the parameters of a job. Snakemake records each parameter as a Python literal."""
    for param in params:
        digits = str(param).strip("'\"").partition(" ")[0]
        if digits and len(digits) % DIGEST_LENGTH == 0 and set(digits) <= set("0123456789abcdef"):
            for start in range(0, len(digits), DIGEST_LENGTH):
                yield digits[start : start + DIGEST_LENGTH]


def _packages(params: Iterable[Any]) -> str:
    """Return the package versions in the parameters of a job.

    The package versions are in a parameter of the form `<code digest> numpy 2.4.0, scipy 1.17.0`.
    """
    texts = (str(param).strip("'\"").partition(" ")[2] for param in params)
    return next((text for text in texts if text.startswith(f"{NUMERICS[0]} ")), "")


def _time(seconds: float | None) -> str:
    return "" if seconds is None else datetime.fromtimestamp(seconds, UTC).strftime("%Y-%m-%d %H:%M:%S")


def trace(targets: Iterable[str], job_of: Callable[[str], Job | None]) -> list[Job]:
    """Return the jobs on which `targets` depend, without duplicates.

    In the list, a job comes after all jobs whose outputs it needs.

    Parameters
    ----------
    job_of : function from a path to the job that made it, or None. If a job made several of the paths, its outputs are
        joined

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


def write_provenance(jobs: Iterable[Job], path: Path, *, root: Path, lock: Path) -> None:
    """Write a JSON file with the jobs, the SHA-256 of every file that the jobs wrote, and the environment.

    In the JSON file, `made_with` maps package versions (`Job.packages`) to the rules that ran with these versions. Jobs
    that ran at different times may have used different versions. In the JSON file, `environment` describes the machine
    and the packages at the time when the file is written.

    Parameters
    ----------
    root : folder that the paths of the jobs are relative to
    lock : the lock file of the environment

    """
    made = [asdict(replace(job, outputs=_output_digests(job.outputs, root))) for job in jobs]
    made_with: dict[str, list[str]] = {}
    for job in made:
        rules = made_with.setdefault(job["packages"], [])
        rules += [] if job["rule"] in rules else [job["rule"]]
    made_with.pop("", None)
    content = {"environment": environment(lock), "made_with": made_with, "jobs": made}
    write_text(path, json.dumps(content, indent=1) + "\n")


def environment(lock: Path) -> dict[str, Any]:
    """Return the versions of Python and packages, the digest of the lock file, and facts about the machine."""
    return {
        "python": platform.python_version(),
        "platform": f"{platform.system()} {platform.machine()}",
        "cores": len(os.sched_getaffinity(0)),
        "memory_gib": round(os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE") / 2**30, 1),
        "lock_sha256": sha256_of(lock),
        "packages": {name: metadata.version(name) for name in MORE_PACKAGES},
    }


def _output_digests(outputs: Iterable[str], root: Path) -> dict[str, str]:
    """Return the SHA-256 of every output file and of every file in an output folder, except hidden files."""
    places = [root / path for path in sorted(outputs)]
    files = [file for place in places for file in (sorted(place.rglob("*")) if place.is_dir() else [place])]
    shown = [file for file in files if file.is_file() and (file in places or not file.name.startswith("."))]
    return {file.relative_to(root).as_posix(): sha256_of(file) for file in shown}


def write_crate(run: Path, license_url: str) -> Path:
    """Write `ro-crate-metadata.json` into a folder of results, and return the path of the file.

    A folder with the file `ro-crate-metadata.json` is an RO-Crate.

    `ro-crate-metadata.json` follows the profile Process Run Crate, and describes each job of `provenance.json` as an
    action with inputs and outputs. If an input or an output is outside the folder or no longer exists, only the path
    and the digest of the input or output are written.

    Parameters
    ----------
    run : folder of a finished run, `results/<run>`
    license_url : licence of the results

    Raises
    ------
    ReportError : the folder has no record of a finished run.

    """
    source = run / "provenance.json"
    try:
        content = json.loads(source.read_text(encoding="utf-8"))
        jobs, version = content["jobs"], content["environment"]["packages"]["afa"]
        published = max(job["ended"] for job in jobs)
    except (OSError, ValueError, KeyError, TypeError) as error:
        found = f"no record of a finished run ({error})"
        raise ReportError(Fault(str(source), found, "results/<run>/provenance.json", "run it first")) from None
    crate = ROCrate(version=VERSION)
    crate.metadata.extra_terms = DIGEST
    name = run.resolve().name
    crate.name, crate.datePublished = f"Run {name} of afa", _iso_time(published)
    crate.description = f"Tables, figures and pages of the run {name}, and the jobs that made them"
    profile = {"name": "Process Run Crate", "version": "0.5"}
    crate.root_dataset["conformsTo"] = _add_context_entity(crate, PROFILE, "CreativeWork", profile)
    terms = {"name": license_url.rstrip("/").rpartition("/")[2], "description": "What others may do with this run"}
    crate.license = _add_context_entity(crate, license_url, "CreativeWork", terms)
    made = {path: digest for job in jobs for path, digest in job["outputs"].items()}
    known: dict[str, Entity] = {}

    def entity(path: str, digest: str) -> Entity:
        """Return the RO-Crate entity of a file or folder that a job read or wrote.

        If the file is not in the run's folder, the RO-Crate entity contains only the file's path and digest.
        """
        if path in known:
            return known[path]
        _, _, inside = path.partition(f"results/{name}/")  # a Snakemake module may add a prefix to the path
        place = run / inside
        if not inside or not place.exists():
            said = {"name": path, **({"sha256": digest} if digest else {})}
            known[path] = _add_context_entity(crate, f"#{quote(path)}", "CreativeWork", said)
        elif place.is_dir():
            known[path] = crate.add_dataset(place, inside, properties={"name": inside})
        else:
            digest = made.get(path, digest)
            said = {"name": inside, "contentSize": str(place.stat().st_size)}
            known[path] = crate.add_file(place, inside, properties=said | ({"sha256": digest} if digest else {}))
        return known[path]

    for page in UNRECORDED_FILES:
        if (run / page).is_file():
            entity(f"results/{name}/{page}", "")
    properties = {"name": "afa", "softwareVersion": version, "url": SOFTWARE}
    software, actions = _add_context_entity(crate, "#afa", "SoftwareApplication", properties), []
    for number, job in enumerate(jobs, start=1):
        said = {"name": job["rule"], "description": job["command"]}
        said |= {"startTime": _iso_time(job["started"]), "endTime": _iso_time(job["ended"])}
        read, wrote = ([entity(*each) for each in job[role].items()] for role in ("inputs", "outputs"))
        actions.append(crate.add_action(software, f"#job-{number}", read, wrote, said))
    crate.root_dataset["mentions"] = actions
    path = run / "ro-crate-metadata.json"
    with atomic_file(path) as temporary:
        temporary.write_bytes(b"".join(part for _, part in crate.metadata.stream()))
    return path


def _add_context_entity(crate: ROCrate, identifier: str, kind: str, properties: dict[str, Any]) -> Entity:
    return crate.add(ContextEntity(crate, identifier, properties={"@type": kind, **properties}))


def _iso_time(utc: str) -> str:
    return f"{utc.replace(' ', 'T')}+00:00"
