"""What is said before the first job: the estimate, and the disk, memory and dates that may stop a run."""

import os
import time
from pathlib import Path
from types import SimpleNamespace

import pandas as pd
import pytest

from afa.paper.report import start
from afa.paper.report.benchmarks import StoredRun
from afa.paper.report.start import free_memory, start_notes

RULES = pd.DataFrame(
    {
        "rule": ["sign", "gauge"],
        "jobs": [3, 1],
        "seconds": [300.0, 300.0],
        "longest_seconds": [100.0, 300.0],
        "cpu_seconds": [1.0, 1.0],
        "max_rss_mb": [400.0, 900.0],
    }
)
RUNS = [StoredRun("demo", 20, RULES), StoredRun("gse1", 200, RULES.assign(seconds=1200.0))]


@pytest.fixture(autouse=True)
def machine(monkeypatch):
    """8 GB of memory and a disk with 10 GB free."""
    monkeypatch.setattr(start, "free_memory", lambda: 8_000)
    monkeypatch.setattr(start.shutil, "disk_usage", lambda path: SimpleNamespace(free=10e9))


def notes(tmp_path, cohort="demo", inputs=(), cores=2, here=True):
    return start_notes(RUNS, cohort, tmp_path / "results", inputs, cores=cores, here=here)


def test_a_machine_with_room_is_told_how_long_the_run_of_its_cohort_took(tmp_path):
    (said,) = notes(tmp_path)
    assert said == (
        "a whole run of demo (20 patients) took 4 jobs and 10 min of work on another machine, some 5 min on 2 cores;"
        " its largest job took 900 MB of memory. Results take at most 60 MB"
    )


def test_a_cohort_without_a_stored_run_is_told_of_the_largest_and_no_run_is_faster_than_its_longest_job(tmp_path):
    assert notes(tmp_path, "mine", cores=100)[0].startswith("a whole run of gse1 (200 patients) took 4 jobs and 40 min")
    assert "some 5 min on 100 cores" in notes(tmp_path, "mine", cores=100)[0]
    assert start_notes([], "mine", tmp_path, [], cores=2, here=True) == []


def test_a_full_disk_is_named_before_the_run(tmp_path, monkeypatch):
    monkeypatch.setattr(start.shutil, "disk_usage", lambda path: SimpleNamespace(free=119e6))
    assert "found 119 MB free on its disk; expected 120 MB" in notes(tmp_path)[1]


@pytest.mark.parametrize(
    ("free", "said"),
    [
        (899, ["900 MB for the largest job"]),
        (1_299, ["1.3 GB for the largest jobs together"]),
        (1_300, []),
    ],
)
def test_memory_is_compared_with_the_largest_job_and_with_those_run_together(tmp_path, monkeypatch, free, said):
    monkeypatch.setattr(start, "free_memory", lambda: free)
    found = notes(tmp_path)[1:]
    assert len(found) == len(said)
    assert all(words in line for words, line in zip(said, found, strict=True))
    assert notes(tmp_path, here=False)[1:] == []


def test_an_input_dated_in_the_future_is_named(tmp_path):
    now, later = tmp_path / "now.csv", tmp_path / "later.csv"
    for path in (now, later):
        path.touch()
    os.utime(later, (time.time() + 7200,) * 2)
    (said,) = notes(tmp_path, inputs=[now, later, tmp_path / "absent"])[1:]
    assert said.startswith(f"{later}: found a date in the future")
    assert "touch the file" in said


def test_free_memory_is_the_lesser_of_the_kernel_s_and_the_container_s(tmp_path):
    meminfo, cgroup = tmp_path / "meminfo", tmp_path / "cgroup"
    cgroup.mkdir()
    assert free_memory(meminfo, cgroup) is None
    meminfo.write_text("MemTotal: 9 kB\nMemAvailable: 1000000 kB\n")
    assert free_memory(meminfo, cgroup) == pytest.approx(1024)
    (cgroup / "memory.max").write_text("max\n")
    (cgroup / "memory.current").write_text("5\n")
    assert free_memory(meminfo, cgroup) == pytest.approx(1024)
    (cgroup / "memory.max").write_text("100000005\n")
    assert free_memory(meminfo, cgroup) == pytest.approx(100)
    assert free_memory(Path("/proc/meminfo")) > 0
