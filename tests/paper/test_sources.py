"""A job whose code changed since its run began fails, with the file's name."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from afa.paper.sources import NOTED, PACKAGE, note_sources, sources

ROOT = Path(__file__).parents[2]
USED = ["model/bundle/read.py", "model/bundle/template.txt", "errors.py"]
NOT_USED = ["paper/report/page.py", "evaluate/templates/report.css", "examples/cooling/vignettes.csv"]


def checked(noted: Path | None) -> subprocess.CompletedProcess[str]:
    """A command of `afa`, as a job of a run that noted its sources in a file."""
    environment = {**os.environ} | ({} if noted is None else {NOTED: str(noted)})
    command = [sys.executable, "-m", "afa", "bundle", "validate", str(ROOT / "tests/data/bundle_tiny")]
    return subprocess.run(command, env=environment, capture_output=True, text=True, check=False)


@pytest.fixture(scope="module")
def found() -> dict[str, str]:
    return sources()


@pytest.mark.parametrize("name", USED)
def test_a_job_fails_where_a_module_that_it_imported_or_the_data_beside_it_is_not_what_it_was(
    tmp_path: Path, found: dict[str, str], name: str
) -> None:
    note_sources({**found, str(PACKAGE / name): "0" * 64}, tmp_path / "noted.json")
    ended = checked(tmp_path / "noted.json")
    assert ended.returncode == 2
    assert ended.stderr == (
        f"afa: {PACKAGE / name}: found another content, changed while jobs ran; expected what it was when the run"
        " began. Next step: give the same command again, and leave what a run uses alone while it goes on.\n"
    )


@pytest.mark.parametrize(
    ("name", "is_used"), [("bundle_tiny/unary.csv", True), ("bundle_pair/unary.csv", False), ("cohort.yaml", False)]
)
def test_a_job_fails_where_an_input_that_its_command_names_is_not_what_it_was(
    tmp_path: Path, name: str, is_used: bool
) -> None:
    path = str(ROOT / "tests/data" / name)
    note_sources({path: "0" * 64}, tmp_path / "noted.json")
    ended = checked(tmp_path / "noted.json")
    assert (ended.returncode == 2) == is_used
    assert (f"{path}: found another content" in ended.stderr) == is_used


def test_inputs_are_noted_beside_the_package_but_for_large_ones_and_folders(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, found: dict[str, str]
) -> None:
    (tmp_path / "small.csv").write_text("1\n")
    (tmp_path / "large.csv").write_text("1\n" * 6)
    monkeypatch.setattr("afa.paper.sources.LARGEST", 10)
    inputs = [tmp_path, tmp_path / "small.csv", tmp_path / "large.csv", tmp_path / "gone.csv"]
    assert sources(inputs).keys() - found.keys() == {str(tmp_path / "small.csv")}


def test_a_job_does_not_mind_a_change_of_what_it_does_not_use(tmp_path: Path, found: dict[str, str]) -> None:
    assert all(str(PACKAGE / name) in found for name in NOT_USED)
    note_sources({**found, **{str(PACKAGE / name): "0" * 64 for name in NOT_USED}}, tmp_path / "noted.json")
    assert checked(tmp_path / "noted.json").returncode == 0


def test_outside_a_run_nothing_is_compared(tmp_path: Path) -> None:
    assert checked(None).returncode == 0
    assert checked(tmp_path / "nothing there").returncode == 0
