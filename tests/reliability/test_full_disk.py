"""A disk that fills is named, leaves nothing half-written, and once there is room the run goes on to the same bytes."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest
from small_disk import resize, small_disk
from small_run import SETTINGS, SHORT, SmallRun

AFA = Path(sys.executable).with_name("afa")


def test_a_command_on_a_full_disk_says_so_in_one_line_and_leaves_nothing(tmp_path: Path) -> None:
    run = SmallRun(tmp_path / "checkout")
    disk = tmp_path / "disk"
    with small_disk(disk, "16k"):
        command = [AFA, "cohort", "simulate", "config/cohorts/small.yaml", "--bundle", SETTINGS["bundle"]]
        command += ["--out", disk / "geo"]
        ended = subprocess.run(command, cwd=run.folder, capture_output=True, text=True, check=False)
        assert ended.returncode == 2
        (line,) = ended.stderr.splitlines()
        assert line.startswith(f"afa: {disk}/geo: found no room left on this disk (")
        assert "; expected room for the whole of it. Next step: free some" in line
        assert list(disk.iterdir()) == []


@pytest.fixture(scope="module")
def undisturbed(tmp_path_factory: pytest.TempPathFactory) -> dict[str, str]:
    """The bytes of the short run with room enough."""
    run = SmallRun(tmp_path_factory.mktemp("undisturbed") / "checkout")
    run.finish(*SHORT)
    return run.digests()


@pytest.mark.slow
@pytest.mark.parametrize("size", ["100k", "140k", "180k", "220k"])
def test_a_run_on_a_disk_that_fills_goes_on_to_the_same_bytes_when_there_is_room(
    tmp_path: Path, undisturbed: dict[str, str], size: str
) -> None:
    disk = tmp_path / "disk"
    with small_disk(disk, size):
        run = SmallRun(disk / "checkout")
        run.logs = tmp_path
        attempt = run.start(*SHORT)
        assert attempt.wait() != 0
        # The last is Snakemake's own, where it is its record of a job that there is no room for.
        sayings = ("found no room left on this disk", " kB free on the disk of ", "No space left on device")
        assert any(saying in attempt.said() for saying in sayings), attempt.said()
        resize(disk, "64m")
        run.finish(*SHORT)
        assert run.digests() == undisturbed
        assert run.leftovers() == []
