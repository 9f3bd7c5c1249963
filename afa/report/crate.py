"""A finished run as an RO-Crate: its files, and the jobs that made them, for archives and other programs to read."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any
from urllib.parse import quote

from rocrate.model import ContextEntity, Entity
from rocrate.rocrate import ROCrate

from afa.errors import Fault, ReportError

VERSION = "1.1"
"""Of RO-Crate, which the profile below is made for."""
PROFILE = "https://w3id.org/ro/wfrun/process/0.5"
DIGEST = {"sha256": "https://w3id.org/ro/terms/workflow-run#sha256"}
SOFTWARE = "https://arxiv.org/abs/2606.18933"
PAGES = {
    "report.html": "The report",
    "workflow.html": "Snakemake's own report",
    "provenance.json": "How every file was made",
}
Properties = dict[str, Any]


def write_crate(run: Path, license_url: str) -> Path:
    """Make a folder of results an RO-Crate, by its file `ro-crate-metadata.json`, and return that file's path.

    A Process Run Crate: one action for each job of `provenance.json`, with what it read and made. What a job read from
    elsewhere, or what is no longer there, is named with its digest and is no part of the crate.

    Parameters
    ----------
    run : folder of a finished run, `results/<run>`. license_url : under which its results are given away.

    Raises
    ------
    ReportError : a folder without the record of a finished run.

    """
    source = run / "provenance.json"
    try:
        told = json.loads(source.read_text(encoding="utf-8"))
        jobs, environment = told["jobs"], told["environment"]
        published = max(job["ended"] for job in jobs)
    except (OSError, ValueError, KeyError, TypeError) as error:
        found = f"no record of a finished run ({error})"
        raise ReportError(Fault(str(source), found, "results/<run>/provenance.json", "run it first")) from None
    crate = ROCrate(version=VERSION)
    crate.metadata.extra_terms = DIGEST
    name = run.resolve().name
    crate.name, crate.datePublished = f"Run {name} of afa", _time(published)
    crate.description = f"Tables, figures and pages of the run {name}, and the jobs that made them"
    profile = {"name": "Process Run Crate", "version": "0.5"}
    crate.root_dataset["conformsTo"] = _context(crate, PROFILE, "CreativeWork", profile)
    terms = {"name": license_url.rstrip("/").rpartition("/")[2], "description": "What others may do with this run"}
    crate.license = _context(crate, license_url, "CreativeWork", terms)
    paths = _Paths(crate, run, {path: digest for job in jobs for path, digest in job["outputs"].items()})
    for page in PAGES:
        if (run / page).is_file():
            paths.entity(f"results/{name}/{page}", "")
    software, actions = _software(crate, environment), []
    for number, job in enumerate(jobs, start=1):
        action = crate.add_action(software, f"#job-{number}", properties=_action(job))
        actions.append(action)
        for role, files in (("object", job["inputs"]), ("result", job["outputs"])):
            named = [paths.entity(path, digest) for path, digest in files.items()]
            if named:
                action[role] = named if len(named) > 1 else named[0]
    crate.root_dataset["mentions"] = actions
    crate.metadata.write(run)
    return run / "ro-crate-metadata.json"


class _Paths:
    """The entity of each path of a run's jobs, made once."""

    def __init__(self, crate: ROCrate, run: Path, made: Mapping[str, str]) -> None:
        """Of the paths of jobs, those with `results/<run>` are in the folder `run`; `made` has their SHA-256."""
        self._crate, self._run, self._made = crate, run, made
        self._folder = f"results/{run.resolve().name}/"
        self._known: dict[str, Entity] = {}

    def entity(self, path: str, digest: str) -> Entity:
        """What the crate has at `path`, or a name and the digest of what is not in it."""
        if path not in self._known:
            self._known[path] = self._entity(path, digest)
        return self._known[path]

    def _entity(self, path: str, digest: str) -> Entity:
        _, _, inside = path.partition(self._folder)  # of a module with a prefix, that stands before it
        place = self._run / inside
        if not inside or not place.exists():
            return _context(self._crate, f"#{quote(path)}", "CreativeWork", {"name": path, **_digest(digest)})
        if place.is_dir():
            return self._crate.add_dataset(place, inside, properties={"name": inside})
        properties = {"name": PAGES.get(inside, inside), "contentSize": str(place.stat().st_size)}
        return self._crate.add_file(place, inside, properties=properties | _digest(self._made.get(path, digest)))


def _software(crate: ROCrate, environment: Mapping[str, Any]) -> Entity:
    """The package that every job calls, with the packages that numbers depend on."""
    versions = environment["packages"]
    needs = [
        _context(crate, f"#{name}", "SoftwareApplication", {"name": name, "softwareVersion": version})
        for name, version in {"python": environment["python"], **versions}.items()
        if name != "afa"
    ]
    properties = {"name": "afa", "softwareVersion": versions.get("afa", ""), "url": SOFTWARE}
    software = _context(crate, "#afa", "SoftwareApplication", properties)
    software["softwareRequirements"] = needs
    return software


def _action(job: Mapping[str, Any]) -> Properties:
    times = {"startTime": _time(job["started"]), "endTime": _time(job["ended"])}
    return {"name": job["rule"], "description": job["command"], **times}


def _context(crate: ROCrate, identifier: str, kind: str, properties: Properties) -> Entity:
    return crate.add(ContextEntity(crate, identifier, properties={"@type": kind, **properties}))


def _digest(digest: str) -> Properties:
    return {"sha256": digest} if digest else {}


def _time(utc: str) -> str:
    return f"{utc.replace(' ', 'T')}+00:00"
