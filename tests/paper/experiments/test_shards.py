"""The tables of a stage and its rows of the summary are the same bytes with any number of shards."""

from __future__ import annotations

import json
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
SETTINGS = {"bootstrap": {"resamples": 100}}
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
    def settings(keys: tuple[str, ...]) -> list[object]:
        chosen = {head: SETTINGS[head] for head in (key.partition(".")[0] for key in keys) if head in SETTINGS}
        return ["--settings", json.dumps(chosen)]

    stage = STAGES[name]
    shards = [tmp_path / str(part) for part in range(1, 4)]
    for part, folder in enumerate(shards, start=1):
        call("stage", name, *inputs, *settings(stage.settings), "--shard", f"{part}/3", "--out", folder)
    call("gather", name, *shards, "--out", tmp_path / "joined")
    call("stage", name, *inputs, *settings(stage.settings), "--out", tmp_path / "whole")
    for table in stage.tables:
        joined, whole = ((tmp_path / folder / f"{table}.parquet").read_bytes() for folder in ("joined", "whole"))
        assert joined == whole, table
    if stage.summary_settings is not None and not stage.summary_inputs:
        rows = []
        for folder in ("joined", "whole"):
            made = tmp_path / f"{folder}.parquet"
            call("summarise", name, tmp_path / folder, *settings(stage.summary_settings), "--out", made)
            rows.append(made.read_bytes())
        assert rows[0] == rows[1]
