"""A workflow that is killed, at whatever moment and however often, goes on with the same command to the same bytes."""

from __future__ import annotations

import os
import random
import signal
import subprocess
import time
from pathlib import Path

import pytest
from small_run import ROOT, SHORT, WHOLE, SmallRun

CUES = [
    ("open", "*/.snakemake/locks/*"),  # nothing has begun
    ("open", "*/.snakemake/incomplete/*"),  # a job is being noted as begun
    ("os.rename", "*/results/r/bundle"),  # a folder is complete under its temporary name
    ("os.remove", "*/results/r/.source.*"),  # a file is in place, and Snakemake does not know yet
    ("os.rename", "*/results/r/cohort"),
    ("open", "*/.snakemake/metadata/*"),  # a job is over, and is being recorded
    ("os.rename", "*/results/r/shards/*"),
    ("open", "*/results/r/shards/*/.*"),  # a shard's tables are being written
    ("os.rename", "*/results/r/tables/*"),  # shards have been gathered
    ("os.rmdir", "*/results/r/shards/*-of-2"),  # a shard has been removed but for its empty folder
    ("os.remove", "*/.snakemake_timestamp"),  # a shard is being removed, file by file
    ("os.remove", "*/.snakemake/incomplete/*"),  # a job has been recorded, and is still noted as begun
    ("os.rename", "*/results/r/curves/*"),
    ("os.remove", "*/results/r/curves/.*"),
    ("shutil.rmtree", "*/results/r/tables/.*"),  # a stage is in place
    ("os.rename", "*/results/r/summary.csv"),
    ("os.rename", "*/results/r/notebooks/*"),
]
"""Moments at which the run kills itself, in about the order in which they come."""

N_BEFORE_THE_STAGES = 5
"""The first of them, of jobs that run one after the other."""


@pytest.fixture(scope="module")
def undisturbed(tmp_path_factory: pytest.TempPathFactory) -> dict[str, str]:
    """The bytes of the short run, never stopped."""
    run = SmallRun(tmp_path_factory.mktemp("undisturbed") / "checkout")
    run.finish(*SHORT)
    assert run.leftovers() == []
    return run.digests()


def test_make_reproduce_is_the_one_command_before_and_after_a_kill() -> None:
    listed = subprocess.run(
        ["make", "--no-print-directory", "-n", "-o", ".venv/.ready", "reproduce", "RUN=r"],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=True,
    )
    assert listed.stdout.splitlines()[0].split() == ["snakemake", "--config", '"run=r"']


@pytest.mark.slow
def test_a_whole_run_killed_some_twenty_times_in_a_row_ends_in_the_same_bytes(tmp_path: Path) -> None:
    whole = SmallRun(tmp_path / "undisturbed")
    whole.finish(*WHOLE)
    run, chance, kills = SmallRun(tmp_path / "killed"), random.Random(20261121), []
    for number, cue in enumerate(CUES):
        kills.append((*cue, run.start(*WHOLE, cue=cue).killed_on_cue(jobs=4)))
        if number >= N_BEFORE_THE_STAGES:
            pause = chance.uniform(0, 3)
            kills.append(("a job and seconds", pause, "time" if run.start(*WHOLE).kill_after(1, pause) else ""))
    struck = [how for *_, how in kills if how]
    assert len(struck) >= 20, kills
    assert struck.count("cue") >= 8, kills  # another is late where four jobs end before its moment
    run.finish(*WHOLE)
    assert run.digests() == whole.digests()
    assert run.leftovers() == []


@pytest.mark.slow
def test_the_lock_of_a_living_run_is_not_broken_and_its_processes_are_named(
    tmp_path: Path, undisturbed: dict[str, str]
) -> None:
    run = SmallRun(tmp_path / "checkout")
    first = run.start(*SHORT)
    assert first.wait_until(lambda: first.finished_jobs() >= 1)
    os.killpg(first.process.pid, signal.SIGSTOP)
    locks = sorted((run.folder / ".snakemake/locks").iterdir())
    second = run.start(*SHORT)
    assert second.wait() != 0
    assert f"processes at work here ({first.process.pid}" in second.said()
    assert sorted((run.folder / ".snakemake/locks").iterdir()) == locks
    os.killpg(first.process.pid, signal.SIGCONT)
    assert first.wait() == 0, first.said()
    assert run.digests() == undisturbed


@pytest.mark.slow
def test_a_job_that_has_lost_its_snakemake_keeps_the_lock_until_it_ends(
    tmp_path: Path, undisturbed: dict[str, str]
) -> None:
    run = SmallRun(tmp_path / "checkout")
    first = run.start(*SHORT)
    assert first.wait_until(lambda: "localrule sign_shard" in first.said())
    time.sleep(1)
    os.killpg(first.process.pid, signal.SIGSTOP)
    first.process.send_signal(signal.SIGKILL)
    first.process.wait()
    second = run.start(*SHORT)
    assert second.wait() != 0
    assert "processes at work here (" in second.said()
    first.kill()
    run.finish(*SHORT)
    assert run.digests() == undisturbed
    assert run.leftovers() == []
