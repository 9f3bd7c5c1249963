"""Findings, each one thing that was checked; and what the machine says of itself, as one object that can be made up."""

from __future__ import annotations

import os
import shutil
import sys
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from importlib import metadata
from pathlib import Path
from typing import Literal

import afa
from afa.errors import AfaError, Fault

Level = Literal["ok", "warning", "fault"]


@dataclass(frozen=True)
class Finding:
    """`found` is one line; `next_step` is empty only where nothing is to be done.

    A fault stops the run, or would spoil it; a warning leaves it to the reader.
    """

    level: Level
    check: str
    found: str
    next_step: str = ""

    def __str__(self) -> str:
        step = f" Next step: {self.next_step}." if self.next_step else ""
        return f"{self.level:<8} {self.check:<12} {self.found}.{step}"


def ok(check: str, found: str) -> Finding:
    return Finding("ok", check, found)


def warning(check: str, found: str, next_step: str = "") -> Finding:
    return Finding("warning", check, found, next_step)


def fault(check: str, found: str, next_step: str) -> Finding:
    return Finding("fault", check, found, next_step)


def of_error(check: str, error: AfaError | Iterable[Fault]) -> list[Finding]:
    """A fault for everything that an error lists."""
    faults = error.faults if isinstance(error, AfaError) else error
    return [
        fault(check, f"{each.where}: found {each.found}; expected {each.expected}", each.next_step) for each in faults
    ]


def tried(check: str, attempt: Callable[..., object], *arguments: object) -> list[Finding]:
    """A fault for everything that it lists where the attempt is refused."""
    try:
        attempt(*arguments)
    except AfaError as error:
        return of_error(check, error)
    return []


def counted(number: int, noun: str) -> str:
    """`1 fault`, `2 faults`."""
    return f"{number} {noun}" if number == 1 else f"{number} {noun}s"


def size_text(megabytes: float) -> str:
    """A size as people say it, in MB below 1 GB (10^3 MB)."""
    if megabytes < 1:
        return "under 1 MB"
    return f"{megabytes / 1000:.1f} GB" if megabytes >= 1000 else f"{megabytes:.0f} MB"


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
    scripts: Path
    """Where the commands of this Python's environment lie."""
    installed: Mapping[str, str]
    """Version by package name, lower case with hyphens."""
    python: tuple[int, int]
    package: Path
    """The folder that `afa` is imported from."""
    ask: Callable[[str], Reply]


def this_machine() -> Facts:
    """The machine and the environment that this process runs in."""
    return Facts(
        room=room_of,
        memory_mb=_free_memory(Path("/proc/meminfo"), Path("/sys/fs/cgroup")),
        cores=len(os.sched_getaffinity(0)),
        core_quota=_core_quota(Path("/sys/fs/cgroup/cpu.max")),
        which=shutil.which,
        scripts=Path(sys.executable).parent,
        installed={
            str(each.metadata["Name"]).lower().replace("_", "-"): each.version for each in metadata.distributions()
        },
        python=sys.version_info[:2],
        package=Path(afa.__file__).parent,
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
