"""The number of shards and of cores changes no byte of what a run makes."""

from __future__ import annotations

from pathlib import Path

import pytest
from small_run import COHORT, WHOLE, SmallRun

MORE_PATIENTS = {"simulation": {**COHORT["simulation"], "n_patients": 24}}


@pytest.mark.slow
def test_one_core_and_one_shard_make_the_same_bytes_as_two_cores_and_twenty_shards(tmp_path: Path) -> None:
    plain = SmallRun(tmp_path / "plain", {"shards": 1}, MORE_PATIENTS)
    plain.finish("--cores=1", *WHOLE)
    split = SmallRun(tmp_path / "split", {"shards": 20}, MORE_PATIENTS)
    assert "20-of-20" in split.finish(*WHOLE)
    assert split.digests() == plain.digests()
    assert split.leftovers() == []
