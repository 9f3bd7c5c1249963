"""Whether the machine and the environment can carry a run: disk, memory, cores, packages, commands, cluster."""

from __future__ import annotations

import re
import tomllib
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from afa.doctor.facts import Facts, Finding, counted, fault, of_error, ok, size_text, warning
from afa.errors import ConfigError
from afa.yamlfile import read_mapping

LOCK = Path("envs/requirements.lock")
PROJECT = Path("pyproject.toml")
PROFILES = Path("workflow/profiles")
COMMANDS = ("afa", "snakemake")
SLURM_PLUGIN = "snakemake-executor-plugin-slurm"
_FEW = 6
_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]*")


def check_disk(needs_mb: Mapping[Path, float], facts: Facts) -> list[Finding]:
    """Room for what each path will hold, MB; paths on one disk share its room."""
    rooms = {path: facts.room(path) for path in needs_mb}
    findings = [
        fault("disk", f"{path}: no permission to write there", "change its permissions, or choose another folder")
        for path, room in rooms.items()
        if not room.writable
    ]
    for device in sorted({room.device for room in rooms.values()}):
        paths = [path for path, room in rooms.items() if room.device == device]
        need, free = sum(needs_mb[path] for path in paths), rooms[paths[0]].free_mb
        found = f"{size_text(free)} free for {' and '.join(map(str, paths))}, which will take about {size_text(need)}"
        if free < need:
            findings.append(fault("disk", found, "make room, or choose another disk"))
        elif free < 2 * need:
            findings.append(warning("disk", found, "make room: the estimate may be wrong by a factor of two"))
        else:
            findings.append(ok("disk", found))
    return findings


def check_memory(together_mb: float | None, largest_mb: float | None, facts: Facts) -> Finding:
    """Free memory against the largest jobs that may run together, and against the largest alone."""
    if facts.memory_mb is None:
        return warning("memory", "the system does not say how much is free")
    if together_mb is None or largest_mb is None:
        return warning("memory", f"{size_text(facts.memory_mb)} free; what the jobs need is not known")
    needs = f"the largest job takes {size_text(largest_mb)}, those that may run together {size_text(together_mb)}"
    found = f"{size_text(facts.memory_mb)} free; {needs}"
    if facts.memory_mb < largest_mb:
        return fault("memory", found, "close other programs, or run on a larger machine")
    if facts.memory_mb < together_mb:
        return warning("memory", found, "run fewer jobs at a time, for example snakemake --cores 1")
    return ok("memory", found)


def check_cores(shards: int, facts: Facts) -> Finding:
    """Cores that Snakemake will take, against what a container allows and the shards that can fill them."""
    found = f"{counted(facts.cores, 'core')} for jobs"
    if facts.core_quota is not None and facts.core_quota < facts.cores:
        step = f"type snakemake --cores {max(1, int(facts.core_quota))}"
        return warning("cores", f"{found}, of which this container may use {facts.core_quota:g}", step)
    if shards < facts.cores:
        return warning("cores", f"{found}, {shards} shards", "more shards would use more of the cores")
    return ok("cores", f"{found}, {shards} shards")


def check_environment(facts: Facts) -> list[Finding]:
    """Python, packages and commands: what the project asks for is there, and is what the lock pins."""
    try:
        project = tomllib.loads(PROJECT.read_text(encoding="utf-8"))["project"]
        pinned = locked(LOCK.read_text(encoding="utf-8"))
    except (OSError, KeyError, ValueError) as error:
        step = "restore pyproject.toml and envs/requirements.lock"
        return [fault("environment", f"the project's own description cannot be read ({error})", step)]
    findings = [*_python(str(project["requires-python"]), facts), *_packages(needed(project), pinned, facts)]
    if facts.package.resolve() != Path("afa").resolve():
        step = "install this folder (make does), or go to the folder that is meant"
        findings.append(warning("environment", f"afa is imported from {facts.package}, not from this folder", step))
    return [*findings, *_commands(facts)]


def locked(text: str) -> dict[str, str]:
    r"""Version by package name of a lock with one `name==version` to an entry.

    >>> locked("numpy==2.4.1 \\\n    --hash=sha256:00")
    {'numpy': '2.4.1'}
    """
    found = re.findall(r"^([A-Za-z0-9._-]+)==([^ ;\\\n]+)", text, flags=re.MULTILINE)
    return {name.lower().replace("_", "-"): version for name, version in found}


def needed(project: Mapping[str, Any]) -> list[str]:
    """The packages that the workflow imports, by the `project` table of pyproject.toml."""
    extras = project["optional-dependencies"]
    listed = [*project["dependencies"], *extras["geo"], *extras["notebooks"], *extras["workflow"]]
    names = [match[0].lower().replace("_", "-") for match in map(_NAME.match, listed) if match]
    return [name for name in dict.fromkeys(names) if name != "afa"]


def _python(bound: str, facts: Facts) -> list[Finding]:
    least = tuple(map(int, re.findall(r"\d+", bound)[:2]))
    if facts.python < least:
        found = f"Python {facts.python[0]}.{facts.python[1]}; expected {bound}"
        return [fault("environment", found, "build the environment with a newer Python: make PYTHON=python3.11")]
    return []


def _packages(names: list[str], pinned: Mapping[str, str], facts: Facts) -> list[Finding]:
    build = "type make reproduce, which builds .venv from envs/requirements.lock"
    missing = [name for name in names if name not in facts.installed]
    if missing:
        return [fault("environment", f"not installed: {', '.join(missing)}", build)]
    others = {
        name: f"{name} {facts.installed[name]}, not {version}"
        for name, version in pinned.items()
        if facts.installed.get(name, version) != version
    }
    if not others:
        shown = ", ".join(f"{name} {facts.installed[name]}" for name in ("numpy", "pandas", "numba", "snakemake"))
        return [ok("environment", f"the packages are those of {LOCK}: {shown} and the rest")]
    main = [text for name, text in others.items() if name in names]
    shown = "; ".join(
        [*main[:_FEW], f"{len(others) - len(main[:_FEW])} others" if len(others) > len(main[:_FEW]) else ""]
    )
    step = f"numbers may differ in the last digits; for those of the lock, {build}"
    return [warning("environment", f"other versions than in {LOCK}: {shown.rstrip('; ')}", step)]


def _commands(facts: Facts) -> list[Finding]:
    lacking = [name for name in COMMANDS if facts.which(name) is None]
    if not lacking:
        return []
    names = ", ".join(lacking)
    if all((facts.scripts / name).is_file() for name in lacking):
        step = f'type export PATH={facts.scripts}:"$PATH", or start the run with make, which does so'
        return [warning("environment", f"not on the PATH: {names}", step)]
    return [fault("environment", f"no such command: {names}", "type make reproduce, which builds .venv")]


def check_profile(name: str | None, facts: Facts) -> tuple[list[Finding], str | None]:
    """The profile that a run names, with the commands of its cluster, and its executor; None where it names none."""
    if name is None:
        return [], None
    path = next(
        (place / "config.yaml" for place in (PROFILES / name, Path(name)) if (place / "config.yaml").is_file()), None
    )
    if path is None:
        known = ", ".join(sorted(place.parent.name for place in PROFILES.glob("*/config.yaml")))
        found = f"{name}: found no config.yaml in {PROFILES / name}; expected one of {known}, or a folder with one"
        return [fault("profile", found, "choose one of these, or write the profile")], None
    try:
        executor = str(read_mapping(path).get("executor", "local"))
    except ConfigError as error:
        return of_error("profile", error), None
    findings = [ok("profile", f"{path}: executor {executor}")]
    if executor == "slurm":
        findings += _cluster(facts)
    return findings, executor


def _cluster(facts: Facts) -> list[Finding]:
    """The commands that the Slurm executor calls; of the two that tell a job's state one is enough."""
    findings = []
    if SLURM_PLUGIN not in facts.installed:
        findings.append(fault("cluster", f"not installed: {SLURM_PLUGIN}", "type make reproduce, which builds .venv"))
    lacking = [name for name in ("sbatch", "scancel") if facts.which(name) is None]
    states = [name for name in ("sacct", "squeue") if facts.which(name) is not None]
    if not states:
        lacking.append("sacct or squeue")
    if lacking:
        step = "start the run on a node from which jobs are submitted, with Slurm's commands on the PATH"
        findings.append(fault("cluster", f"no such command: {', '.join(lacking)}", step))
    elif len(states) == 1:
        step = f"set slurm-status-command: {states[0]} in the profile"
        findings.append(warning("cluster", f"of sacct and squeue only {states[0]} is there", step))
    else:
        findings.append(ok("cluster", "sbatch, scancel, sacct and squeue are there"))
    return findings
