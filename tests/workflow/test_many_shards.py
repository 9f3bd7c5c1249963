"""Planning a run stays quick however many shards it is split into."""

from __future__ import annotations

import os
import re
import resource
import subprocess
import sys
from math import ceil
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
PARTS = 9
"""Jobs for each part of the patients: five stages, and the grid's four cells."""
SHARDS = ceil(10_000 / PARTS)
LIMIT = 60.0
"""Seconds. On two idle cores it takes 25; half as much again where another test keeps the other core busy."""


@pytest.mark.slow
def test_a_run_in_ten_thousand_shards_is_planned_in_less_than_a_minute_of_processor_time() -> None:
    environment = {**os.environ, "PATH": f"{Path(sys.executable).parent}:{os.environ['PATH']}"}
    command = ["snakemake", "-n", "--nolock", "--config", "run=planned", f"shards={SHARDS}"]
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    done = subprocess.run(command, cwd=ROOT, env=environment, capture_output=True, text=True, check=False)
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    assert done.returncode == 0, done.stderr
    jobs = dict(re.findall(r"^(\w+) +(\d+)$", done.stdout + done.stderr, flags=re.MULTILINE))
    assert sum(int(n) for rule, n in jobs.items() if rule.endswith("_shard")) == PARTS * SHARDS
    assert after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime < LIMIT
