"""A job whose code or inputs changed since its run began fails, with the names of the files."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from afa.paper.sources import PACKAGE, SOURCES_VARIABLE, check_sources, note_sources, sources

DATA = Path(__file__).parents[1] / "data"
USED = [
    *(PACKAGE / name for name in ("model/bundle/read.py", "model/bundle/template.txt", "errors.py")),
    DATA / "bundle_tiny/unary.csv",
]
NOT_USED = [
    *(PACKAGE / name for name in ("paper/report/page.py", "evaluate/templates/report.css")),
    PACKAGE / "examples/cooling/vignettes.csv",
    *(DATA / name for name in ("bundle_pair/unary.csv", "cohort.yaml")),
]


def checked(noted: Path) -> subprocess.CompletedProcess[str]:
    """Run a command of `afa` as a job of a run that noted its sources in a file."""
    command = [sys.executable, "-m", "afa", "bundle", "validate", str(DATA / "bundle_tiny")]
    environment = {**os.environ, SOURCES_VARIABLE: str(noted)}
    return subprocess.run(command, env=environment, capture_output=True, text=True, check=False)


@pytest.fixture(scope="module")
def found() -> dict[str, str]:
    return sources()


def changed(files: list[Path]) -> dict[str, str]:
    return dict.fromkeys(map(str, files), "0" * 64)


def test_a_job_fails_if_a_module_data_or_an_input_that_it_used_has_changed(
    tmp_path: Path, found: dict[str, str]
) -> None:
    note_sources({**found, **changed(USED), **changed(NOT_USED)}, tmp_path / "noted.json")
    ended = checked(tmp_path / "noted.json")
    assert ended.returncode == 2
    assert sorted(ended.stderr.splitlines()) == sorted(
        f"afa: {path}: found another content, changed while jobs ran; expected what it was when the run began."
        " Next step: give the same command again, and do not edit these files during a run."
        for path in USED
    )


def test_a_job_does_not_fail_if_only_files_that_it_does_not_use_have_changed(
    tmp_path: Path, found: dict[str, str]
) -> None:
    note_sources({**found, **changed(NOT_USED)}, tmp_path / "noted.json")
    assert checked(tmp_path / "noted.json").returncode == 0


def test_inputs_are_noted_beside_the_package_but_for_large_ones_and_folders(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, found: dict[str, str]
) -> None:
    (tmp_path / "small.csv").write_text("1\n")
    (tmp_path / "large.csv").write_text("1\n" * 6)
    monkeypatch.setattr("afa.paper.sources.LARGEST_DIGESTED", 10)
    inputs = [tmp_path, tmp_path / "small.csv", tmp_path / "large.csv", tmp_path / "gone.csv"]
    assert sources(inputs).keys() - found.keys() == {str(tmp_path / "small.csv")}


def test_outside_a_run_nothing_is_compared(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv(SOURCES_VARIABLE, raising=False)
    check_sources(["bundle", "validate"])
    monkeypatch.setenv(SOURCES_VARIABLE, str(tmp_path / "nothing there"))
    check_sources(["bundle", "validate"])
