"""Write the messages that are printed before the first job of a run: estimated time and memory, and possible obstacles.

The estimated time and memory are taken from an earlier run on another machine, which is stored in
`resources/benchmarks`. The estimate does not take differences in settings and bundle into account.
"""

from __future__ import annotations

import shutil
import time
from collections.abc import Iterable, Sequence
from pathlib import Path

import pandas as pd

from afa.paper.report.benchmarks import StoredRun

RESULTS_MB = 60.0
"""Largest size of the results of one cohort, in MB (section "Results" of the design)."""
DISK_MARGIN = 2.0
"""Factor on the size of the results. It is needed because shards and the tables made from them are on the disk
together.
"""
MEMINFO, CGROUP = Path("/proc/meminfo"), Path("/sys/fs/cgroup")
MEGABYTE = 1e6


def start_notes(
    runs: Sequence[StoredRun], cohort: str, results: Path, inputs: Iterable[str | Path], *, cores: int, here: bool
) -> list[str]:
    """Return the lines to print before a run starts: an estimate, followed by possible obstacles.

    Parameters
    ----------
    runs : the stored runs. The run of `cohort` is used. If there is none, the run with the most patients is used.
    results : folder of results.
    inputs : files that the run reads.
    cores : number of processors that jobs may use.
    here : True if jobs run on this machine, False if they run on a cluster.

    """
    stored = next((run for run in runs if run.cohort == cohort), max(runs, key=lambda run: run.patients, default=None))
    notes = [] if stored is None else [run_estimate(stored, cores)]
    free_mb = shutil.disk_usage(_nearest_existing(results)).free / MEGABYTE
    if free_mb < DISK_MARGIN * RESULTS_MB:
        expected = f"expected {size_text(DISK_MARGIN * RESULTS_MB)} for tables, shards and pages"
        notes.append(f"{results}: found {size_text(free_mb)} free on its disk; {expected}. Next step: make room")
    free = free_memory()
    if here and stored is not None and free is not None:
        largest, together = _job_memory(stored.rules, cores)
        found, step = f"memory: found {size_text(free)} free", "close other programs, or give --cores 1"
        if free < largest:
            notes.append(f"{found}; expected {size_text(largest)} for the largest job. Next step: {step}")
        elif free < together:
            expected = f"expected {size_text(together)} for the largest jobs together"
            notes.append(f"{found}; {expected}. Next step: {step}")
    now = time.time()
    late = sorted(str(path) for path in map(Path, inputs) if path.exists() and path.stat().st_mtime > now)
    if late:
        more = f" and {len(late) - 1} more" if len(late) > 1 else ""
        step = f"set the clock, or touch {'these files' if more else 'the file'}"
        notes.append(f"{late[0]}{more}: found a date in the future; expected one before now. Next step: {step}")
    return notes


def run_estimate(stored: StoredRun, cores: int) -> str:
    """Return a sentence on the time and memory of a stored run, and on its time with `cores` processors."""
    rules = stored.rules
    work, longest = float(rules["seconds"].sum()), float(rules["longest_seconds"].max())
    on_cores = f"some {minutes(max(longest, work / cores))} on {cores} core{'s' if cores != 1 else ''}"
    return (
        f"a whole run of {stored.cohort} ({stored.patients} patients) took {int(rules['jobs'].sum())} jobs and"
        f" {minutes(work)} of work on another machine, {on_cores}; its largest job took"
        f" {size_text(_job_memory(rules, 1)[0])} of memory. Results take at most {size_text(RESULTS_MB)}"
    )


def _job_memory(rules: pd.DataFrame, cores: int) -> tuple[float, float]:
    """Return the memory in MB of the largest job, and of the `cores` largest jobs together."""
    jobs = rules.loc[rules.index.repeat(rules["jobs"]), "max_rss_mb"].sort_values(ascending=False)
    return float(jobs.max()), float(jobs.head(cores).sum())


def _nearest_existing(path: Path) -> Path:
    """Return `path` if it exists, else the nearest parent folder that exists."""
    place = path.absolute()
    while not place.exists():
        place = place.parent
    return place


def free_memory(meminfo: Path = MEMINFO, cgroup: Path = CGROUP) -> float | None:
    """Return the memory that new processes can use, in MB, or None if kernel and container report no number."""
    lines = _text_or_empty(meminfo).splitlines()
    available = [float(line.split()[1]) * 1024 / MEGABYTE for line in lines if line.startswith("MemAvailable:")]
    limit, used = _text_or_empty(cgroup / "memory.max").strip(), _text_or_empty(cgroup / "memory.current").strip()
    if limit.isdigit() and used.isdigit():
        available.append((int(limit) - int(used)) / MEGABYTE)
    return min(available, default=None)


def _text_or_empty(path: Path) -> str:
    try:
        return path.read_text(encoding="utf-8")
    except OSError:
        return ""


def size_text(megabytes: float) -> str:
    """Return a size in megabytes as text with a unit.

    >>> size_text(0.2), size_text(60), size_text(1500)
    ('under 1 MB', '60 MB', '1.5 GB')
    """
    if megabytes < 1:
        return "under 1 MB"
    return f"{megabytes / 1000:.1f} GB" if megabytes >= 1000 else f"{megabytes:.0f} MB"


def minutes(seconds: float) -> str:
    """Return a time as text: in minutes, or in hours if it is at least ninety minutes.

    >>> minutes(20), minutes(720), minutes(9000)
    ('1 min', '12 min', '2.5 h')
    """
    return f"{seconds / 3600:.1f} h" if seconds >= 5400 else f"{max(1, round(seconds / 60))} min"
