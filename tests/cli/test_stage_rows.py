"""A stage's tables and its rows of the summary in one command, and the same of shards that are joined."""

from __future__ import annotations

import json
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pandas as pd
import pytest
from typer.testing import CliRunner

import afa.cli.stage
from afa.cli import app
from afa.evaluate.summary import read_summary, summary_rows
from afa.paper.experiments.base import Stage

TOGETHER = {"top_k": 3, "bootstrap": {"resamples": 200}}


def run(top_k: int) -> dict[str, pd.DataFrame]:
    return {"gates": pd.DataFrame({"name": ["a", "b"], "cases": [top_k, 2 * top_k]})}


def summarise(tables: Any, *, bootstrap: Any) -> pd.DataFrame:
    cases = tables["gates"]["cases"]
    row = {"metric": "count", "quantity": f"{bootstrap.resamples}", "value": float(cases.sum()), "n": len(cases)}
    return summary_rows("sanity", pd.DataFrame([row]))


@pytest.fixture(autouse=True)
def _one_stage(monkeypatch: pytest.MonkeyPatch) -> None:
    declared = Stage(
        inputs=(), settings=("top_k",), tables={"gates": "name cases"}, summary_tables={"sanity": "a question"}
    )
    module = SimpleNamespace(__name__="afa.paper.experiments.sanity", run=run, summarise=summarise)
    monkeypatch.setattr(afa.cli.stage, "_stage_module", lambda _: module)
    monkeypatch.setattr(afa.cli.stage, "_stage_declaration", lambda _: declared)


def call(*words: object) -> None:
    ended = CliRunner().invoke(app, [*map(str, words)], catch_exceptions=False)
    assert ended.exit_code == 0, ended.output


def test_one_command_writes_tables_and_rows_by_the_settings_of_both(tmp_path: Path) -> None:
    rows = tmp_path / "rows.parquet"
    call("stage", "sanity", "--settings", json.dumps(TOGETHER), "--out", tmp_path / "tables", "--rows", rows)
    (row,) = read_summary(rows).to_dict("records")
    assert (row["value"], row["quantity"]) == (9.0, "200")


def test_joined_shards_and_the_tables_summarised_alone_give_the_same_bytes_as_one_command(tmp_path: Path) -> None:
    both, of_rows = json.dumps(TOGETHER), json.dumps({"bootstrap": TOGETHER["bootstrap"]})
    call("stage", "sanity", "--settings", both, "--out", tmp_path / "a", "--rows", tmp_path / "a.parquet")
    call("stage", "sanity", "--settings", json.dumps({"top_k": 3}), "--out", tmp_path / "shard")
    shard = tmp_path / "shard"
    call("gather", "sanity", shard, "--out", tmp_path / "b")
    call("summarise", "sanity", tmp_path / "b", "--settings", of_rows, "--out", tmp_path / "c.parquet")
    assert (tmp_path / "a.parquet").read_bytes() == (tmp_path / "c.parquet").read_bytes()
    assert (tmp_path / "a/gates.parquet").read_bytes() == (tmp_path / "b/gates.parquet").read_bytes()


def test_a_setting_of_neither_is_named(tmp_path: Path) -> None:
    words = ["stage", "sanity", "--settings", '{"other": 1}', "--out", str(tmp_path / "a")]
    ended = CliRunner().invoke(app, [*words, "--rows", str(tmp_path / "a.parquet")])
    assert ended.exit_code != 0
    assert "other" in str(ended.exception) + ended.output
    assert not (tmp_path / "a").exists()
