"""Whether the machine and the environment can carry a run: disk, memory, cores, packages, commands, cluster.

What the machine says of itself is one object, which can be made up.
"""

from __future__ import annotations

import os
import re
import shutil
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from importlib import metadata
from pathlib import Path

from afa.csvfile import few
from afa.doctor import Checked, Finding, counted, fault, ok, size_text, tried, warning
from afa.yamlfile import read_mapping

LOCK = Path("envs/requirements.lock")
PROFILES = Path("workflow/profiles")
COMMANDS = ("afa", "snakemake")
SLURM_PLUGIN = "snakemake-executor-plugin-slurm"
TIMEOUT = 3.0
"""Seconds that a server may take to answer."""

_MEGABYTE = 1e6


@dataclass(frozen=True)
class Room:
    """The disk that a path lies on, or would: which one, MB free, and whether files can be written there."""

    device: int
    free_mb: float
    writable: bool


@dataclass(frozen=True)
class Reply:
    """What came of asking for an address: whether the file is to be had, in words what was said, its size if given."""

    is_there: bool
    said: str
    size_mb: float | None = None


@dataclass(frozen=True)
class Facts:
    """A machine. The functions only look: none of them writes."""

    room: Callable[[Path], Room]
    memory_mb: float | None
    """Free for new processes; None where the system does not say."""
    cores: int
    """That Snakemake takes for `all`."""
    core_quota: float | None
    """Processor time that a container may use, in cores; None where it is not."""
    which: Callable[[str], str | None]
    installed: Mapping[str, str]
    """Version by package name, lower case with hyphens."""
    ask: Callable[[str], Reply]


def this_machine() -> Facts:
    """The machine and the environment that this process runs in."""
    return Facts(
        room=room_of,
        memory_mb=_free_memory(Path("/proc/meminfo"), Path("/sys/fs/cgroup")),
        cores=len(os.sched_getaffinity(0)),
        core_quota=_core_quota(Path("/sys/fs/cgroup/cpu.max")),
        which=shutil.which,
        installed={
            str(each.metadata["Name"]).lower().replace("_", "-"): each.version for each in metadata.distributions()
        },
        ask=ask_server,
    )


def room_of(path: Path) -> Room:
    """The room at `path`, or where it would be made: at the nearest folder above it that exists."""
    place = path.absolute()
    while not place.exists():
        place = place.parent
    return Room(place.stat().st_dev, shutil.disk_usage(place).free / _MEGABYTE, os.access(place, os.W_OK))


def ask_server(url: str) -> Reply:
    """Ask for the headers of a file, not for the file; no reply within `TIMEOUT` seconds counts as none."""
    import requests  # noqa: PLC0415 (only where the network is asked for)

    try:
        reply = requests.head(url, timeout=TIMEOUT, allow_redirects=True, headers={"Accept-Encoding": "identity"})
    except requests.RequestException as error:
        return Reply(False, f"no answer ({type(error).__name__})")
    length = reply.headers.get("Content-Length", "")
    size = int(length) / _MEGABYTE if length.isdigit() else None
    return Reply(reply.ok, f"HTTP status {reply.status_code}", size)


def _free_memory(meminfo: Path, cgroup: Path) -> float | None:
    """MB that are available, by the kernel's estimate or what a container has left, the lesser of the two."""
    lines = _text(meminfo).splitlines()
    available = [float(line.split()[1]) * 1024 / _MEGABYTE for line in lines if line.startswith("MemAvailable:")]
    limit, used = _text(cgroup / "memory.max").strip(), _text(cgroup / "memory.current").strip()
    if limit.isdigit() and used.isdigit():
        available.append((int(limit) - int(used)) / _MEGABYTE)
    return min(available, default=None)


def _core_quota(path: Path) -> float | None:
    quota, _, period = _text(path).strip().partition(" ")
    return int(quota) / int(period) if quota.isdigit() and period.isdigit() else None


def _text(path: Path) -> str:
    try:
        return path.read_text(encoding="utf-8")
    except OSError:
        return ""


def check_disk(needs_mb: Mapping[Path, float], facts: Facts) -> Checked[None]:
    """Room for what each path will hold, MB; paths on one disk share its room."""
    rooms = {path: facts.room(path) for path in needs_mb}
    for path, room in rooms.items():
        if not room.writable:
            step = "change its permissions, or choose another folder"
            yield fault("disk", f"{path}: no permission to write there", step)
    for device in sorted({room.device for room in rooms.values()}):
        paths = [path for path, room in rooms.items() if room.device == device]
        need, free = sum(needs_mb[path] for path in paths), rooms[paths[0]].free_mb
        found = f"{size_text(free)} free for {' and '.join(map(str, paths))}, which will take about {size_text(need)}"
        if free < need:
            yield fault("disk", found, "make room, or choose another disk")
        elif free < 2 * need:
            yield warning("disk", found, "make room: the estimate may be wrong by a factor of two")
        else:
            yield ok("disk", found)


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


def check_environment(facts: Facts) -> Checked[None]:
    """Packages against what the lock pins, and the commands that a run calls."""
    build = "type make reproduce, which builds .venv from envs/requirements.lock"
    try:
        pinned = locked(LOCK.read_text(encoding="utf-8"))
    except (OSError, ValueError) as error:
        yield fault("environment", f"{LOCK} cannot be read ({error})", "restore it")
        return
    others = [
        f"{name} {facts.installed[name]}, not {version}"
        for name, version in pinned.items()
        if facts.installed.get(name, version) != version
    ]
    if others:
        step = f"numbers may differ in the last digits; for those of the lock, {build}"
        yield warning("environment", f"other versions than in {LOCK}: {few(others)}", step)
    else:
        yield ok("environment", f"the packages are those of {LOCK}")
    if lacking := [name for name in COMMANDS if facts.which(name) is None]:
        step = "start the run with make, which finds them, or put the folder bin of the environment on the PATH"
        yield warning("environment", f"not on the PATH: {', '.join(lacking)}", step)


def locked(text: str) -> dict[str, str]:
    r"""Version by package name of a lock with one `name==version` to an entry.

    >>> locked("numpy==2.4.1 \\\n    --hash=sha256:00")
    {'numpy': '2.4.1'}
    """
    found = re.findall(r"^([A-Za-z0-9._-]+)==([^ ;\\\n]+)", text, flags=re.MULTILINE)
    return {name.lower().replace("_", "-"): version for name, version in found}


def check_profile(name: str | None, facts: Facts) -> Checked[str | None]:
    """The profile that a run names, with the commands of its cluster, and its executor; None where it names none."""
    if name is None:
        return None
    path = next((place for place in (PROFILES / name, Path(name)) if (place / "config.yaml").is_file()), None)
    if path is None:
        known = ", ".join(sorted(place.parent.name for place in PROFILES.glob("*/config.yaml")))
        found = f"{name}: found no config.yaml in {PROFILES / name}; expected one of {known}, or a folder with one"
        yield fault("profile", found, "choose one of these, or write the profile")
        return None
    profile = yield from tried("profile", read_mapping, path / "config.yaml")
    if profile is None:
        return None
    executor = str(profile.get("executor", "local"))
    yield ok("profile", f"{path / 'config.yaml'}: executor {executor}")
    if executor == "slurm":
        yield from _cluster(facts)
    return executor


def _cluster(facts: Facts) -> Iterator[Finding]:
    """The commands that the Slurm executor calls; of the two that tell a job's state one is enough."""
    if SLURM_PLUGIN not in facts.installed:
        yield fault("cluster", f"not installed: {SLURM_PLUGIN}", "type make reproduce, which builds .venv")
    lacking = [name for name in ("sbatch", "scancel") if facts.which(name) is None]
    states = [name for name in ("sacct", "squeue") if facts.which(name) is not None]
    if not states:
        lacking.append("sacct or squeue")
    if lacking:
        step = "start the run on a node from which jobs are submitted, with Slurm's commands on the PATH"
        yield fault("cluster", f"no such command: {', '.join(lacking)}", step)
    elif len(states) == 1:
        step = f"set slurm-status-command: {states[0]} in the profile"
        yield warning("cluster", f"of sacct and squeue only {states[0]} is there", step)
    else:
        yield ok("cluster", "sbatch, scancel, sacct and squeue are there")
