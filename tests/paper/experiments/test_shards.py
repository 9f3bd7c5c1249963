"""The tables of a stage, from which its rows of the summary come, are the same bytes with any number of shards."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from typer.testing import CliRunner

from afa.cli import app
from afa.cohort.cohort import Cohort, write_cohort
from afa.model.bundle import Bundle, save_bundle
from afa.paper.experiments.declared import STAGES

PATIENTS = 9
SPLIT = [name for name, stage in STAGES.items() if stage.sharded and set(stage.inputs) == {"bundle", "cohort"}]


def call(*words: object) -> None:
    ended = CliRunner().invoke(app, [*map(str, words)], catch_exceptions=False)
    assert ended.exit_code == 0, ended.output


@pytest.fixture(scope="module")
def inputs(bundle_tiny: Bundle, tmp_path_factory: pytest.TempPathFactory) -> list[object]:
    folder = tmp_path_factory.mktemp("inputs")
    names = [f"p{PATIENTS - i}" for i in range(PATIENTS)]  # not in the order of the alphabet
    values = np.random.default_rng(0).integers(-1, 2, (PATIENTS, len(bundle_tiny.features))).astype(np.int8)
    save_bundle(bundle_tiny, folder / "bundle")
    write_cohort(Cohort("made", bundle_tiny.features, names, values, pd.DataFrame(index=names)), folder / "cohort")
    return ["--bundle", folder / "bundle", "--cohort", folder / "cohort"]


@pytest.mark.parametrize("name", SPLIT)
def test_one_shard_and_three_give_the_same_bytes(name: str, inputs: list[object], tmp_path: Path) -> None:
    shards = [tmp_path / str(part) for part in range(1, 4)]
    for part, folder in enumerate(shards, start=1):
        call("stage", name, *inputs, "--settings", "{}", "--shard", f"{part}/3", "--out", folder)
    call("gather", name, *shards, "--out", tmp_path / "joined")
    call("stage", name, *inputs, "--settings", "{}", "--out", tmp_path / "whole")
    for table in STAGES[name].tables:
        joined, whole = ((tmp_path / folder / f"{table}.parquet").read_bytes() for folder in ("joined", "whole"))
        assert joined == whole, table
