"""Whether the machine can carry a run: network, disk, memory, cores, a cluster's commands."""

from __future__ import annotations

import os
import shutil
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from afa.doctor import Findings, counted, size_text
from afa.yamlfile import read_mapping

PROFILES = Path("workflow/profiles")
MEMINFO, CGROUP = Path("/proc/meminfo"), Path("/sys/fs/cgroup")
TIMEOUT = 3.0
"""Seconds that a server may take to answer."""

_MEGABYTE = 1e6


@dataclass(frozen=True)
class Room:
    """The disk that a path lies on, or would: which one, MB free, and whether files can be written there."""

    device: int
    free_mb: float
    writable: bool


def room_of(path: Path) -> Room:
    """The room at `path`, or where it would be made: at the nearest folder above it that exists."""
    place = path.absolute()
    while not place.exists():
        place = place.parent
    return Room(place.stat().st_dev, shutil.disk_usage(place).free / _MEGABYTE, os.access(place, os.W_OK))


def free_memory(meminfo: Path = MEMINFO, cgroup: Path = CGROUP) -> float | None:
    """MB for new processes: the kernel's estimate or what a container has left, the lesser; None if nothing says."""
    lines = _text(meminfo).splitlines()
    available = [float(line.split()[1]) * 1024 / _MEGABYTE for line in lines if line.startswith("MemAvailable:")]
    limit, used = _text(cgroup / "memory.max").strip(), _text(cgroup / "memory.current").strip()
    if limit.isdigit() and used.isdigit():
        available.append((int(limit) - int(used)) / _MEGABYTE)
    return min(available, default=None)


def _text(path: Path) -> str:
    try:
        return path.read_text(encoding="utf-8")
    except OSError:
        return ""


def check_network(findings: Findings, to_fetch: Sequence[str], *, ask: bool) -> float:
    """What the run will fetch; where `ask`, whether servers have it; and the MB that are known to come."""
    if not to_fetch:
        findings.ok("network", "the run fetches nothing")
        return 0.0
    if not ask:
        found = f"to be fetched, not asked for yet: {', '.join(to_fetch)}"
        findings.warning("network", found, "add --network to ask for them")
        return 0.0
    import requests  # noqa: PLC0415 (only where the network is asked for)

    known_mb, step = 0.0, "check the network, its proxy and the file's name, or give geo_mirror"
    for url in to_fetch:
        try:  # the headers of the file, not the file
            reply = requests.head(url, timeout=TIMEOUT, allow_redirects=True, headers={"Accept-Encoding": "identity"})
        except requests.RequestException as error:
            findings.fault("network", f"{url}: no answer ({type(error).__name__})", step)
            continue
        if reply.ok:
            length = reply.headers.get("Content-Length", "")
            size = int(length) / _MEGABYTE if length.isdigit() else 0.0
            known_mb += size
            said = size_text(size) if size else "size not given"
            findings.ok("network", f"{url}: HTTP status {reply.status_code}, {said}")
        else:
            findings.fault("network", f"{url}: HTTP status {reply.status_code}", step)
    return known_mb


def check_disk(findings: Findings, needs_mb: Mapping[Path, float]) -> None:
    """Room for what each path will hold, MB; paths on one disk share its room."""
    rooms = {path: room_of(path) for path in needs_mb}
    for path, room in rooms.items():
        if not room.writable:
            step = "change its permissions, or choose another folder"
            findings.fault("disk", f"{path}: no permission to write there", step)
    for device in sorted({room.device for room in rooms.values()}):
        paths = [path for path, room in rooms.items() if room.device == device]
        need, free = sum(needs_mb[path] for path in paths), rooms[paths[0]].free_mb
        found = f"{size_text(free)} free for {' and '.join(map(str, paths))}, which will take about {size_text(need)}"
        if free < need:
            findings.fault("disk", found, "make room, or choose another disk")
        elif free < 2 * need:
            findings.warning("disk", found, "make room: the estimate may be wrong by a factor of two")
        else:
            findings.ok("disk", found)


def check_memory(findings: Findings, together_mb: float | None, largest_mb: float | None) -> None:
    """Free memory against the largest jobs that may run together, and against the largest alone."""
    free_mb = free_memory()
    if free_mb is None or together_mb is None or largest_mb is None:
        known = "the system does not say how much is" if free_mb is None else size_text(free_mb)
        findings.warning("memory", f"{known} free; what the jobs need is not known")
        return
    needs = f"the largest job takes {size_text(largest_mb)}, those that may run together {size_text(together_mb)}"
    found = f"{size_text(free_mb)} free; {needs}"
    if free_mb < largest_mb:
        findings.fault("memory", found, "close other programs, or run on a larger machine")
    elif free_mb < together_mb:
        findings.warning("memory", found, "run fewer jobs at a time, for example snakemake --cores 1")
    else:
        findings.ok("memory", found)


def check_cores(findings: Findings, shards: int, cores: int) -> None:
    """Cores that Snakemake will take, against the shards that can fill them."""
    found = f"{counted(cores, 'core')} for jobs, {shards} shards"
    if shards < cores:
        findings.warning("cores", found, "more shards would use more of the cores")
    else:
        findings.ok("cores", found)


def check_profile(findings: Findings, name: str | None) -> str | None:
    """The profile that a run names, with the commands of its cluster, and its executor; None where it names none."""
    if name is None:
        return None
    path = next((place for place in (PROFILES / name, Path(name)) if (place / "config.yaml").is_file()), None)
    if path is None:
        known = ", ".join(sorted(place.parent.name for place in PROFILES.glob("*/config.yaml")))
        found = f"{name}: found no config.yaml in {PROFILES / name}; expected one of {known}, or a folder with one"
        findings.fault("profile", found, "choose one of these, or write the profile")
        return None
    with findings.of_errors("profile"):
        executor = str(read_mapping(path / "config.yaml").get("executor", "local"))
        findings.ok("profile", f"{path / 'config.yaml'}: executor {executor}")
        if executor == "slurm":
            _check_cluster(findings)
        return executor
    return None


def _check_cluster(findings: Findings) -> None:
    """The commands that the Slurm executor calls; of the two that tell a job's state one is enough."""
    lacking = [name for name in ("sbatch", "scancel") if shutil.which(name) is None]
    states = [name for name in ("sacct", "squeue") if shutil.which(name) is not None]
    if not states:
        lacking.append("sacct or squeue")
    if lacking:
        step = "start the run on a node from which jobs are submitted, with Slurm's commands on the PATH"
        findings.fault("cluster", f"no such command: {', '.join(lacking)}", step)
    elif len(states) == 1:
        step = f"set slurm-status-command: {states[0]} in the profile"
        findings.warning("cluster", f"of sacct and squeue only {states[0]} is there", step)
    else:
        findings.ok("cluster", "sbatch, scancel, sacct and squeue are there")
