"""The workflow on a Slurm cluster of this machine against the same workflow run locally.

For `make test-cluster`, as root; `make test` does not collect it. One run on the cluster serves all tests: it is
cancelled on its way, looked at, and taken up again, and one of its jobs first asks for too little memory.
"""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

import pytest
from small_run import RUN, SmallRun

from afa.io.files import sha256_of

SLURM = Path(__file__).parent / "slurm.sh"
PARTS = ("tables", "curves", "published", "notebooks", "comparison")
TARGETS = [
    *(f"{RUN}/{made}" for made in ("summary.csv", "published/data_dictionary.csv", "comparison/comparison.csv")),
    *(f"{RUN}/notebooks/{name}.ipynb" for name in ("comparison", "cohort", "allocation", "gauge")),
]
SHORT_OF_MEMORY = "calibration_tables"
"""A rule whose job goes out alone."""
FIRST_MB, NEXT_MB = 150, 2400
SITE = [
    "--slurm-status-command=squeue",  # no accounting here
    "--slurm-init-seconds-before-status-checks=2",
    "--latency-wait=5",
    "--set-resources",
    f"{SHORT_OF_MEMORY}:mem_mb={FIRST_MB}*{NEXT_MB // FIRST_MB}**(attempt-1)",
    "--group-components",
    *(f"shards_of_{stage}={parts}" for stage, parts in {"allocation": 4, "sign": 2, "chaos": 2, "layer1": 2}.items()),
    "pages=4",
]
LONG = ("binary", "sanity", "layer0_synthetic")
"""Stages of one job that takes some seconds even here."""
SECONDS = 3600
"""Longest wait for a run; a busy machine needs many times the minutes of an idle one."""


@dataclass(frozen=True)
class OnSlurm:
    """What became of the run: its folder, the log of either half, what lay there in between, and Slurm's jobs."""

    folder: Path
    cancelled: str
    resumed: str
    returncode: int
    left_between: dict[str, str]
    hidden_between: list[str]
    queued_between: str
    jobs: list[dict[str, str]]


def snakemake(folder: Path, log: str, *arguments: str, targets: Sequence[str] = TARGETS) -> subprocess.Popen[bytes]:
    environment = {**os.environ, "PATH": f"{Path(sys.executable).parent}:{os.environ['PATH']}"}
    command = ["snakemake", *arguments, "--", *targets]
    with (folder / log).open("wb") as stream:
        return subprocess.Popen(command, cwd=folder, env=environment, stdout=stream, stderr=subprocess.STDOUT)


def digests(folder: Path) -> dict[str, str]:
    """Of every file that must be the same on any executor; Snakemake's own time stamps hold nothing."""
    files = [path for part in PARTS for path in (folder / RUN / part).rglob("*") if path.is_file()]
    return {str(p.relative_to(folder)): sha256_of(p) for p in files if p.name != ".snakemake_timestamp"}


def hidden(folder: Path) -> list[str]:
    """What was begun and not finished: files are written under a hidden name first."""
    found = [path for path in (folder / RUN).rglob(".*") if path.name != ".snakemake_timestamp"]
    return [str(path.relative_to(folder)) for path in found]


def finished(log: str) -> Counter[str]:
    """How many jobs of each rule a log says have ended well."""
    return Counter(re.findall(r"^Finished jobid: \d+ \(Rule: (\w+)\)", log, flags=re.MULTILINE))


def slurm(*command: str) -> str:
    return subprocess.run(command, capture_output=True, text=True, check=True).stdout


@pytest.fixture(scope="module")
def local(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = SmallRun(tmp_path_factory.mktemp("local")).folder
    run = snakemake(folder, "log", "--cores", "2")
    assert run.wait(SECONDS) == 0, (folder / "log").read_text()[-4000:]
    return folder


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    folder = str(tmp_path_factory.mktemp("slurm"))
    try:
        subprocess.run([SLURM, "start", folder], check=True)
        yield
    finally:
        subprocess.run([SLURM, "stop", folder], check=True)


@pytest.fixture(scope="module")
def on_slurm(local: Path, cluster: None, tmp_path_factory: pytest.TempPathFactory) -> OnSlurm:
    folder = SmallRun(tmp_path_factory.mktemp("on_slurm")).folder
    arguments = ["--profile", "profiles/slurm", *SITE]
    # where this runs in the background, Ctrl-C would be ignored, and by snakemake too
    signal.signal(signal.SIGINT, signal.default_int_handler)
    begin = time.perf_counter()
    run = snakemake(folder, "cancelled.log", *arguments)
    try:
        while not cancelling_tells_something(folder):
            assert run.poll() is None, (folder / "cancelled.log").read_text()[-4000:]
            assert time.perf_counter() - begin < SECONDS
            time.sleep(0.5)
        run.send_signal(signal.SIGINT)
        run.wait(60)
    finally:
        run.kill()
    for _ in range(60):
        queued = slurm("squeue", "--noheader")
        if not queued:
            break
        time.sleep(0.5)
    between, unfinished = digests(folder), hidden(folder)
    again = snakemake(folder, "resumed.log", *arguments)
    try:
        again.wait(SECONDS)
    finally:
        again.kill()
    jobs = [dict(re.findall(r"(\S+?)=(\S*)", line)) for line in slurm("scontrol", "show", "jobs", "-o").splitlines()]
    texts = [(folder / name).read_text() for name in ("cancelled.log", "resumed.log")]
    return OnSlurm(folder, *texts, again.returncode, between, unfinished, queued, jobs)


def cancelling_tells_something(folder: Path) -> bool:
    """Some stages are complete, and a job has begun one that is not."""
    done = finished((folder / "cancelled.log").read_text())
    begun = [path.stem.removesuffix("_tables") for path in (folder / RUN / "logs").glob("*_tables.log")]
    return any(rule.endswith("_tables") for rule in done) and any(
        not list((folder / RUN / "tables" / stage).glob("*")) for stage in begun if stage in LONG
    )


def test_a_cancelled_run_leaves_no_job_in_the_queue(on_slurm: OnSlurm) -> None:
    assert on_slurm.queued_between == ""
    cancelled = [job for job in on_slurm.jobs if job["JobState"] == "CANCELLED"]
    assert any(job["RunTime"] != "00:00:00" for job in cancelled)


def test_a_cancelled_run_leaves_whole_files_only(local: Path, on_slurm: OnSlurm) -> None:
    expected = digests(local)
    assert on_slurm.left_between
    assert on_slurm.left_between.items() <= expected.items()
    assert on_slurm.hidden_between == []


def test_the_run_is_taken_up_where_it_was_cancelled(on_slurm: OnSlurm) -> None:
    assert on_slurm.returncode == 0, on_slurm.resumed[-4000:]
    before, after = finished(on_slurm.cancelled), finished(on_slurm.resumed)
    several = {rule for rule in before | after if rule.endswith("_shard")}
    assert set(before) - several
    assert (set(before) & set(after)) - several == set()


def test_tables_and_figures_are_the_same_bytes_as_on_one_machine(local: Path, on_slurm: OnSlurm) -> None:
    expected = digests(local)
    assert {name.split("/")[2] for name in expected} == set(PARTS)
    assert digests(on_slurm.folder) == expected
    assert hidden(on_slurm.folder) == []


def test_a_job_that_exceeds_its_memory_is_killed_and_runs_again_with_more(on_slurm: OnSlurm) -> None:
    tries = [job for job in on_slurm.jobs if SHORT_OF_MEMORY in job.get("Comment", "")]
    assert ("FAILED", f"{FIRST_MB}M") in [(job["JobState"], job["MinMemoryNode"]) for job in tries]
    assert tries[-1]["JobState"] == "COMPLETED"
    assert tries[-1]["MinMemoryNode"] in (f"{NEXT_MB}M", f"{NEXT_MB / 1024:.5g}G")


@pytest.mark.usefixtures("cluster")
def test_a_job_that_slurm_cancels_in_a_rerun_is_not_forgotten(tmp_path: Path) -> None:
    stage = "layer0_synthetic"
    made = [f"{RUN}/curves/{stage}.parquet"]
    arguments = ["--profile", "profiles/slurm", *SITE, "--retries=0"]
    runs = SmallRun(tmp_path / "on_slurm"), SmallRun(tmp_path / "clean")
    folder, clean = (run.folder for run in runs)
    assert snakemake(folder, "finished.log", *arguments, targets=made).wait(SECONDS) == 0
    before = digests(folder)
    for run in runs:
        run.set({"layer0": {"simulated": 400}})
    assert snakemake(clean, "log", "--cores", "2", targets=made).wait(SECONDS) == 0
    log, began, end = folder / RUN / "logs" / f"{stage}_tables.log", time.time(), time.monotonic() + SECONDS
    cancelled = snakemake(folder, "job_cancelled.log", *arguments, targets=made)
    while not (log.exists() and log.stat().st_mtime > began):
        assert cancelled.poll() is None, (folder / "job_cancelled.log").read_text()[-4000:]
        assert time.monotonic() < end
        time.sleep(0.2)
    slurm("scancel", "--user=root")
    assert cancelled.wait(SECONDS) != 0
    assert snakemake(folder, "again.log", *arguments, targets=made).wait(SECONDS) == 0
    expected = digests(clean)
    assert expected.keys() == before.keys()
    assert expected != before
    assert digests(folder) == expected


@pytest.mark.usefixtures("cluster")
def test_a_node_that_fails_costs_another_attempt_and_changes_no_byte(
    local: Path, cluster: None, tmp_path: Path
) -> None:
    stage = "layer0_synthetic"
    made, folder = [f"{RUN}/curves/{stage}.parquet"], SmallRun(tmp_path / "on_slurm").folder
    log, end = folder / RUN / "logs" / f"{stage}_tables.log", time.monotonic() + SECONDS
    run = snakemake(folder, "node.log", "--profile", "profiles/slurm", *SITE, targets=made)
    try:
        while not log.exists():
            assert run.poll() is None, (folder / "node.log").read_text()[-4000:]
            assert time.monotonic() < end
            time.sleep(0.2)
        node = slurm("squeue", "--noheader", "--states=running", "--format=%N").split()[0]
        slurm("scontrol", "update", f"nodename={node}", "state=down", "reason=test")
        time.sleep(5)
        # Slurm may have taken the node back by itself, and then says that there is nothing to resume.
        subprocess.run(["scontrol", "update", f"nodename={node}", "state=resume"], check=False)
        assert run.wait(SECONDS) == 0, (folder / "node.log").read_text()[-4000:]
    finally:
        run.kill()
    jobs = [dict(re.findall(r"(\S+?)=(\S*)", line)) for line in slurm("scontrol", "show", "jobs", "-o").splitlines()]
    own = [job for job in jobs if f"{stage}_tables" in job.get("Comment", "")]
    # Snakemake tries again, or Slurm has put the job back into its queue.
    assert any(job["JobState"] == "NODE_FAIL" or int(job["Restarts"]) for job in own), own
    table = f"curves/{stage}.parquet"
    assert (folder / RUN / table).read_bytes() == (local / RUN / table).read_bytes()
