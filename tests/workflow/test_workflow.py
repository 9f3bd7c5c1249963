"""The workflow as a Snakemake user meets it: targets, reruns, and errors before any job starts."""

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]


def snakemake(folder, *arguments):
    environment = {**os.environ, "PATH": f"{Path(sys.executable).parent}:{os.environ['PATH']}"}
    command = ["snakemake", "--cores", "2", *map(str, arguments)]
    return subprocess.run(command, cwd=folder, env=environment, capture_output=True, text=True, check=False)


@pytest.fixture
def checkout(tmp_path):
    """The project's files, linked into a folder of its own, so that results and metadata are the test's."""
    for name in ("Snakefile", "profiles", "notebooks", "resources", "envs", "docs", "tests"):
        (tmp_path / name).symlink_to(ROOT / name)
    shutil.copytree(ROOT / "workflow", tmp_path / "workflow")
    shutil.copytree(ROOT / "config", tmp_path / "config")
    return tmp_path


def test_the_default_run_is_planned_down_to_the_report(checkout):
    planned = snakemake(checkout, "-n")
    assert planned.returncode == 0, planned.stderr
    text = planned.stdout + planned.stderr
    for rule in ("build_bundle", "simulate_series", "fetch_series", "encode_cohort", "sign_shard", "report_page"):
        assert rule in text


@pytest.mark.parametrize(
    ("setting", "words"),
    [
        ("chort=demo", ["key chort", "unknown", "rename it to cohort"]),
        ("cohort=nowhere", ["'nowhere'", "gse109142", "afa cohort new nowhere"]),
        ("shards=0", ["key shards", "greater than or equal to 1"]),
        ("encoding={test: chi}", ["key encoding.test", "'empirical', 'normal' or 't'"]),
    ],
)
def test_a_wrong_setting_stops_the_run_with_its_key_before_any_job(checkout, setting, words):
    stopped = snakemake(checkout, "-n", "--config", setting)
    assert stopped.returncode != 0
    text = stopped.stdout + stopped.stderr
    assert all(word in text for word in words), text
    assert "Traceback" not in text


def test_a_bundle_and_cohort_of_ones_own_reach_the_gathered_tables(checkout):
    run = snakemake(checkout, "results/mine/summary.csv", "--config", "bundle=tests/data/bundle_tiny", "run=mine")
    assert run.returncode == 0, run.stderr
    summary = (checkout / "results/mine/summary.csv").read_text().splitlines()
    assert summary[0].startswith("table,metric,method")
    assert any(line.startswith("sign_accuracy_random,accuracy,wald") for line in summary)
    again = snakemake(checkout, "results/mine/summary.csv", "--config", "bundle=tests/data/bundle_tiny", "run=mine")
    assert "Nothing to be done" in again.stdout + again.stderr


def test_a_rule_of_ones_own_is_in_the_grid_and_runs_again_when_it_changes(checkout):
    (checkout / "my_rule.py").write_text("from afa.allocate import Greedy\n\n\nclass Mine(Greedy):\n    pass\n")
    settings = ["bundle=tests/data/bundle_tiny", "run=mine", "shards=1"]
    settings.append("allocation={rules: [random, 'my_rule:Mine'], gains: [cmi], schedules: [every]}")
    target = "results/mine/summary/allocation.csv"
    run = snakemake(checkout, target, "--config", *settings)
    assert run.returncode == 0, run.stderr
    assert "allocation_sign,accuracy,linearity,linearity,cmi,my_rule:Mine,every" in (checkout / target).read_text()
    (checkout / "my_rule.py").write_text("from afa.allocate import Boundary\n\n\nclass Mine(Boundary):\n    pass\n")
    again = snakemake(checkout, "-n", target, "--config", *settings)
    text = again.stdout + again.stderr
    assert "rule allocation_shard:" in text
    assert "rule allocation_truth:" not in text
    (checkout / "my_rule.py").unlink()
    gone = snakemake(checkout, "-n", target, "--config", *settings)
    assert gone.returncode != 0
    assert "key allocation.rules: found my_rule:Mine; expected a Python module my_rule" in gone.stdout + gone.stderr


def test_a_bundle_with_a_fault_stops_the_run_and_names_the_row(checkout):
    broken = checkout / "broken"
    shutil.copytree(ROOT / "tests/data/bundle_tiny", broken)
    table = broken / "pairwise.csv"
    table.write_text(table.read_text() + "bleeding,CXCL8,CXCL8,1,,\n")
    run = snakemake(checkout, "bundle", "--config", "bundle=broken", "run=mine")
    assert run.returncode != 0
    assert "pairwise.csv, line 6" in run.stdout + run.stderr
    assert not (checkout / "results/mine/bundle").exists()
