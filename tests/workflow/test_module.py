"""The workflow from another folder: as a module of a Snakefile, by snakedeploy, and by --snakefile and --directory."""

from __future__ import annotations

import base64
import gzip
import hashlib
import os
import re
import shutil
import subprocess
import sys
import tarfile
from collections.abc import Mapping
from pathlib import Path
from typing import NamedTuple

import pandas as pd
import pytest
import snakemakes

import afa

ROOT = Path(__file__).parents[2]
WORKFLOW = ROOT / "workflow" / "Snakefile"
MODULE = """module afa:
    snakefile: "{workflow}"
{more}

use rule * from afa as afa_*
"""
SMALL = {"bundle": f"{ROOT}/tests/data/bundle_tiny", "cohort": "demo", "run": "mine", "shards": 1}
TAG = f"v{afa.__version__}"
HUB = "https://github.com/"
COMPARED = ("tables", "summary", "summary.csv", "published", "comparison", "cohort", "bundle")


class Release(NamedTuple):
    """A tagged commit of this checkout with its changes."""

    hub: Path
    """The folder of a hosting provider, which has the repository as somebody/afa."""
    packed: Path
    """The source of the release as one file."""


def run(folder: Path, *command: str, more: Mapping[str, str] | None = None) -> subprocess.CompletedProcess[str]:
    environment = {**os.environ, "PATH": f"{Path(sys.executable).parent}:{os.environ['PATH']}", **(more or {})}
    return subprocess.run(command, cwd=folder, env=environment, capture_output=True, text=True, check=False)


def snakemake(folder: Path, *arguments: str, more: Mapping[str, str] | None = None) -> subprocess.CompletedProcess[str]:
    return snakemakes.snakemake(folder, "--cores", "2", *arguments, environment=more)


def given(settings: Mapping[str, object]) -> list[str]:
    return ["--config", *(f"{key}={value}" for key, value in settings.items())]


def caller(folder: Path, more: str = "", workflow: Path = WORKFLOW) -> Path:
    """A folder with nothing but a Snakefile that uses the workflow."""
    folder.mkdir(exist_ok=True)
    (folder / "Snakefile").write_text(MODULE.format(workflow=workflow, more=more), encoding="utf-8")
    return folder


def said(done: subprocess.CompletedProcess[str]) -> str:
    return done.stdout + done.stderr


def succeed(done: subprocess.CompletedProcess[str]) -> str:
    assert done.returncode == 0, said(done)
    return said(done)


@pytest.fixture(scope="module")
def release(tmp_path_factory: pytest.TempPathFactory) -> Release:
    folder = tmp_path_factory.mktemp("release")
    repository = folder / "hub" / "somebody" / "afa"
    tracked = succeed(run(ROOT, "git", "ls-files", "-z", "--cached", "--others", "--exclude-standard")).split("\0")
    for name in filter(None, tracked):
        if (ROOT / name).is_symlink() or (ROOT / name).is_file():
            (repository / name).parent.mkdir(parents=True, exist_ok=True)
            shutil.copy2(ROOT / name, repository / name, follow_symlinks=False)
    author = ("-c", "user.name=nobody", "-c", "user.email=nobody@localhost")
    packed = folder / f"afa-{TAG}.tar.gz"
    for command in (
        ("init", "-q"),
        ("add", "--all"),
        (*author, "commit", "-q", "-m", "A release"),
        ("tag", TAG),
        ("archive", "--prefix", f"afa-{TAG}/", "--output", str(packed), TAG),
    ):
        succeed(run(repository, "git", *command))
    return Release(folder / "hub", packed)


def test_three_lines_in_an_empty_folder_plan_the_demo_down_to_its_report(tmp_path: Path) -> None:
    planned = succeed(snakemake(caller(tmp_path), "-n"))
    for rule in ("afa_build_bundle", "afa_sign_tables", "afa_gauge_tables", "afa_report_page", "afa_workflow_report"):
        assert rule in planned
    assert f"{ROOT}/resources/elicitation" in planned


@pytest.mark.slow
def test_a_packed_release_is_a_module_with_its_callers_configuration_and_a_prefix(
    release: Release, tmp_path: Path
) -> None:
    with tarfile.open(release.packed) as archive:
        archive.extractall(tmp_path / "source", filter="data")
    more = f"    config: {SMALL}\n    prefix: 'part'\n"
    folder = caller(tmp_path / "mine", more, tmp_path / "source" / f"afa-{TAG}" / "workflow" / "Snakefile")
    target = "part/results/mine/curves/sign.parquet"
    succeed(snakemake(folder, target))
    assert list(pd.read_parquet(folder / target).columns[:3]) == ["table", "metric", "quantity"]
    assert "Nothing to be done" in succeed(snakemake(folder, target))


@pytest.mark.slow
def test_snakedeploy_deploys_a_tag_of_a_repository(release: Release, tmp_path: Path) -> None:
    # The provider is reached through git alone, which is told that it is a folder of this machine.
    git = {
        "GIT_CONFIG_COUNT": "1",
        "GIT_CONFIG_KEY_0": f"url.file://{release.hub}/.insteadOf",
        "GIT_CONFIG_VALUE_0": HUB,
        "XDG_CACHE_HOME": str(tmp_path / "cache"),
    }
    folder = tmp_path / "mine"
    succeed(run(tmp_path, "snakedeploy", "deploy-workflow", f"{HUB}somebody/afa", folder.name, "--tag", TAG, more=git))
    assert f'github("somebody/afa", path="workflow/Snakefile", tag="{TAG}")' in (
        folder / "workflow" / "Snakefile"
    ).read_text(encoding="utf-8")
    assert (folder / "config" / "cohorts" / "demo.yaml").is_file()
    planned = succeed(snakemake(folder, "-n", more=git))
    assert "Using workflow specific profile" in planned
    assert "workflow_report" in planned
    succeed(snakemake(folder, "results/mine/cohort/cohort.yaml", *given(SMALL), more=git))
    assert (folder / "results/mine/cohort/features.parquet").is_file()


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


def test_the_rules_say_that_there_is_no_package(tmp_path: Path) -> None:
    (tmp_path / "path").mkdir()
    (tmp_path / "path" / "afa.py").write_text("raise ImportError('not installed')\n", encoding="utf-8")
    stopped = run(caller(tmp_path), "snakemake", "-n", more={"PYTHONPATH": str(tmp_path / "path")})
    assert stopped.returncode != 0
    assert f"found no package in the Python that runs Snakemake; expected version {afa.__version__}" in said(stopped)
    assert "Traceback" not in said(stopped)


@pytest.mark.slow
def test_the_report_of_a_module_is_that_of_the_workflow_itself(tmp_path: Path) -> None:
    demo = {"cohort": "demo", "run": "demo"}
    own, used = tmp_path / "own", caller(tmp_path / "used", f"    config: {demo}\n")
    own.mkdir()
    succeed(snakemake(ROOT, "--snakefile", str(WORKFLOW), "--directory", str(own), *given(demo)))
    succeed(snakemake(used))
    results = [folder / "results" / "demo" for folder in (own, used)]
    assert digests(results[0]) == digests(results[1])
    assert shown(results[0] / "report.html") == shown(results[1] / "report.html")


def digests(results: Path) -> dict[str, str]:
    """SHA-256 of every file of a run that is a result."""
    files = [file for name in COMPARED for file in (results / name, *(results / name).rglob("*")) if file.is_file()]
    return {
        str(file.relative_to(results)): hashlib.sha256(file.read_bytes()).hexdigest()
        for file in files
        if file.name != ".snakemake_timestamp"
    }


def shown(page: Path) -> str:
    """What a page says, its packed parts too, without dates, seconds, and the prefix of a module's rules."""
    text = page.read_text(encoding="utf-8").partition('<section id="time"')[0]
    packed = re.findall(r'<script type="text/plain" id="page-[^"]*">([^<]*)</script>', page.read_text(encoding="utf-8"))
    assert packed
    pages = [gzip.decompress(base64.b64decode(part)).decode() for part in packed]
    text = re.sub(r"\d{4}-\d\d-\d\d[T ][\d:.+]+|\d[\d.,]* (s|min|h)\b", "*", text)
    return "\n".join([text.replace("<b>afa_", "<b>"), *pages])
