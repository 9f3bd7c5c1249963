"""The workflow from another folder: as a module of a Snakefile, and by --snakefile and --directory."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

import afa

ROOT = Path(__file__).parents[2]
WORKFLOW = ROOT / "workflow" / "Snakefile"
MODULE = """module afa:
    snakefile: "{workflow}"
{more}

use rule * from afa as afa_*
"""


def snakemake(folder: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    environment = {**os.environ, "PATH": f"{Path(sys.executable).parent}:{os.environ['PATH']}"}
    command = ["snakemake", "--cores", "2", *arguments]
    return subprocess.run(command, cwd=folder, env=environment, capture_output=True, text=True, check=False)


def caller(folder: Path, more: str = "", workflow: Path = WORKFLOW) -> Path:
    """A folder with nothing but a Snakefile that uses the workflow."""
    (folder / "Snakefile").write_text(MODULE.format(workflow=workflow, more=more), encoding="utf-8")
    return folder


def said(done: subprocess.CompletedProcess[str]) -> str:
    return done.stdout + done.stderr


def test_three_lines_in_an_empty_folder_plan_the_demo_down_to_its_report(tmp_path: Path) -> None:
    planned = snakemake(caller(tmp_path), "-n")
    assert planned.returncode == 0, said(planned)
    for rule in ("afa_build_bundle", "afa_sign_shard", "afa_gauge_summary", "afa_report_page", "afa_workflow_report"):
        assert rule in said(planned)
    assert f"{ROOT}/resources/elicitation" in said(planned)


def test_a_module_takes_its_callers_configuration_and_a_prefix(tmp_path: Path) -> None:
    settings = {"bundle": f"{ROOT}/tests/data/bundle_tiny", "cohort": "demo", "run": "mine", "shards": 1}
    more = f"    config: {settings}\n    prefix: 'part'\n"
    target = "part/results/mine/summary/gauge.csv"
    run = snakemake(caller(tmp_path, more), target)
    assert run.returncode == 0, said(run)
    assert (tmp_path / target).read_text(encoding="utf-8").startswith("table,metric,method")
    again = snakemake(tmp_path, target)
    assert "Nothing to be done" in said(again)


def test_another_folder_is_named_by_options(tmp_path: Path) -> None:
    options = ("--snakefile", str(WORKFLOW), "--directory", str(tmp_path))
    settings = (f"bundle={ROOT}/tests/data/bundle_tiny", "cohort=demo", "run=mine", "shards=1")
    run = snakemake(ROOT, "results/mine/summary/sign.csv", *options, "--config", *settings)
    assert run.returncode == 0, said(run)
    assert (tmp_path / "results/mine/summary/sign.csv").is_file()
    assert not (ROOT / "results/mine").exists()


def test_the_rules_want_the_package_they_were_written_for(tmp_path: Path) -> None:
    common = (ROOT / "workflow/rules/common.smk").read_text(encoding="utf-8")
    assert f'PACKAGE_VERSION = "{afa.__version__}"' in common
    other = tmp_path / "workflow"
    (other / "rules").mkdir(parents=True)
    for file in [WORKFLOW, *(ROOT / "workflow/rules").glob("*.smk")]:
        text = file.read_text(encoding="utf-8").replace(f'"{afa.__version__}"', '"99.0"')
        (other / file.relative_to(ROOT / "workflow")).write_text(text, encoding="utf-8")
    stopped = snakemake(caller(tmp_path, workflow=other / "Snakefile"), "-n")
    assert stopped.returncode != 0
    assert f"found {afa.__version__} in the Python that runs Snakemake; expected version 99.0" in said(stopped)
    assert "pip install" in said(stopped)


@pytest.mark.slow
def test_the_summary_of_a_module_is_that_of_the_workflow_itself(tmp_path: Path) -> None:
    settings = (f"bundle={ROOT}/tests/data/bundle_tiny", "cohort=demo", "run=mine", "shards=1")
    own, used = tmp_path / "own", tmp_path / "used"
    for folder in (own, used):
        folder.mkdir()
    direct = snakemake(ROOT, "tables", "--snakefile", str(WORKFLOW), "--directory", str(own), "--config", *settings)
    assert direct.returncode == 0, said(direct)
    more = f"    config: {{'bundle': '{ROOT}/tests/data/bundle_tiny', 'cohort': 'demo', 'run': 'mine', 'shards': 1}}\n"
    module = snakemake(caller(used, more), "afa_tables")
    assert module.returncode == 0, said(module)
    summary = "results/mine/summary.csv"
    assert (own / summary).read_bytes() == (used / summary).read_bytes()
