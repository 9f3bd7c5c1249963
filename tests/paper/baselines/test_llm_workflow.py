"""The rules of the LLM planners: off by default, live or by a record, and never with a scripted model's answers."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from elicit.llm_server import serve
from planning import keep_abstracts, sensible

from afa.evaluate.summary import read_summary
from afa.model.bundle import load_bundle

ROOT = Path(__file__).parents[3]
RESULT = "results/mine/curves/llm_baselines.parquet"
SETTINGS = ["cohort=demo", "bundle=tests/data/bundle_tiny", "run=mine", "top_k=2"]
ASKED = "tasks: [binary, top_k], patients: 3, rounds: [2], entities: [fistula]"


@pytest.fixture
def checkout(tmp_path):
    for name in ("profiles", "notebooks", "resources", "envs", "docs", "tests"):
        (tmp_path / name).symlink_to(ROOT / name)
    for name in ("workflow", "config"):
        shutil.copytree(ROOT / name, tmp_path / name)
    return tmp_path


def snakemake(folder, target, *settings, **environment):
    path = f"{Path(sys.executable).parent}:{os.environ['PATH']}"
    command = ["snakemake", "--cores", "1", target, "--config", *SETTINGS, *settings]
    environment = {**os.environ, "PATH": path, **environment}
    run = subprocess.run(command, cwd=folder, env=environment, capture_output=True, text=True, check=False)
    log = folder / "results/mine/logs"
    return run.returncode, run.stdout + run.stderr + "".join(p.read_text() for p in log.rglob("llm_baselines*.log"))


def other_model(record: Path) -> None:
    """The record as if a model with another name had answered."""
    for path in record.glob("*.jsonl"):
        lines = [json.loads(line) for line in path.read_text().splitlines()]
        path.write_text("".join(json.dumps({**line, "model": "m", "served_model": "m"}) + "\n" for line in lines))


@pytest.mark.slow
def test_the_baselines_run_live_or_by_their_record_and_a_scripted_model_reaches_no_summary(checkout):
    code, text = snakemake(checkout, RESULT)
    assert code != 0
    assert "No rule to produce" in text or "MissingRuleException" in text
    record = checkout / "answers"
    keep_abstracts(record, load_bundle(ROOT / "tests/data/bundle_tiny").entities)
    disease = "inflammatory bowel disease"
    study = checkout / "study"
    shutil.copytree(ROOT / "resources/elicitation", study, ignore=shutil.ignore_patterns("raw", "record"))
    (study / "keywords.csv").unlink()
    (study / "study.yaml").write_text((study / "study.yaml").read_text().replace(disease, "colitis"))
    live = f"baselines={{record: answers, study: study, live: true, calls: 99, {ASKED}}}"
    with serve(sensible) as endpoint:
        services = {"AFA_EUROPEPMC_URL": "http://127.0.0.1:9"}
        code, text = snakemake(checkout, RESULT, live, **endpoint.environment, **services)
    assert code != 0
    assert "answers of scripted-test-model" in text
    assert len(endpoint.asked) == 2 * 2 * 3 * 3
    assert not (checkout / RESULT).exists()
    other_model(record)
    code, text = snakemake(checkout, RESULT, f"baselines={{record: answers, study: study, {ASKED}}}")
    assert code == 0, text
    rows = read_summary(checkout / RESULT)
    assert set(rows["table"]) == {"llm_baselines"}
    assert {"mrf_llm", "rag_llm", "wald", "linearity"} <= set(rows["method"].dropna())
    code, text = snakemake(checkout, RESULT, f"baselines={{record: answers, study: study, at_once: 2, {ASKED}}}")
    assert "Nothing to be done" in text
