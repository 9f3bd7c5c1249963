"""Memory that runs out is named, leaves nothing half-written, and with more memory the run goes on."""

from __future__ import annotations

import errno
import os
import signal
import subprocess
import sys
from contextlib import suppress
from pathlib import Path

import pytest
from small_run import COHORT, OWN_TO_SNAKEMAKE, RUN, SETTINGS, SmallRun

from afa.cli.failures import shortage

AFA = Path(sys.executable).with_name("afa")
MEASURED = """
import re, sys
from pathlib import Path
from afa.cli import main
try:
    main()
finally:
    print(re.search(r"VmPeak:\\s*(\\d+)", Path("/proc/self/status").read_text())[1])
"""
MARGIN = 100_000
"""kB above what a cohort of few genes takes to simulate; one of many takes more."""

FEW, MANY = 40, 100_000
GEO = f"{RUN}/geo"
SIMULATED = f"{GEO}/truth/simulation.json"
"""A file of the simulated series, which the workflow knows by name."""


def small_run(folder: Path, genes: int) -> SmallRun:
    return SmallRun(folder, cohort={"simulation": {**COHORT["simulation"], "n_background_genes": genes}})


def simulate(out: Path | str) -> list[str]:
    return ["cohort", "simulate", "config/cohorts/small.yaml", "--bundle", SETTINGS["bundle"], "--out", str(out)]


@pytest.fixture(scope="module")
def limit(tmp_path_factory: pytest.TempPathFactory) -> int:
    """Kilobytes of address space in which a cohort of few genes can be simulated, and one of many cannot."""
    run = small_run(tmp_path_factory.mktemp("few") / "checkout", FEW)
    command = [sys.executable, "-c", MEASURED, *simulate("geo")]
    ended = subprocess.run(command, cwd=run.folder, env=one_thread(), capture_output=True, text=True, check=True)
    return int(ended.stdout.split()[-1]) + MARGIN


def one_thread() -> dict[str, str]:
    return {**os.environ, "OPENBLAS_NUM_THREADS": "1"}  # as Snakemake sets it for its jobs


def limited(run: SmallRun, limit: int, *arguments: str) -> subprocess.CompletedProcess[str]:
    command = ["bash", "-c", f'ulimit -v {limit}; exec "$0" "$@"', str(AFA), *arguments]
    return subprocess.run(command, cwd=run.folder, env=one_thread(), capture_output=True, text=True, check=False)


@pytest.mark.slow
def test_a_command_without_the_memory_it_needs_says_so_in_one_line_and_leaves_nothing(
    tmp_path: Path, limit: int
) -> None:
    ended = limited(small_run(tmp_path / "few", FEW), limit, *simulate(tmp_path / "out/few"))
    assert ended.returncode == 0, ended.stderr
    ended = limited(small_run(tmp_path / "many", MANY), limit, *simulate(tmp_path / "out/many"))
    assert ended.returncode == 2, ended.stderr
    (line,) = ended.stderr.splitlines()
    assert line.startswith("afa: cohort simulate: found no memory left (")
    assert f"under a limit of {limit * 1024 / 1e6:.0f} MB" in line
    assert "; expected memory for what it computes. Next step: give it more memory" in line
    assert [path.name for path in (tmp_path / "out").iterdir()] == ["few"]


def test_debug_shows_where_the_memory_ran_out(tmp_path: Path, limit: int) -> None:
    ended = limited(small_run(tmp_path / "many", MANY), limit, "--debug", *simulate(tmp_path / "out"))
    assert "Traceback" in ended.stderr
    assert "MemoryError" in ended.stderr


@pytest.mark.parametrize(
    ("error", "words"),
    [
        (MemoryError(), "afa summary sign: found no memory left; expected"),
        (OSError(errno.ENOMEM, "Cannot allocate memory"), "afa summary sign: found no memory left ("),
        (RuntimeError("can't start new thread"), "no memory left (can't start new thread)"),
        (ImportError("libx.so: failed to map segment from shared object"), "no memory left (libx.so"),
        (OSError(errno.ENOSPC, "No space left on device"), "afa summary sign: found no room left on this disk;"),
        (OSError(errno.EDQUOT, "Disk quota exceeded", "/tmp/x.csv"), "/tmp/x.csv: found the quota of this disk used"),
    ],
)
def test_every_form_of_a_shortage_is_named(error: Exception, words: str) -> None:
    assert words in str(shortage(error, ["summary", "sign", "results/r/tables", "--out", "x.csv"]))


def test_a_shortage_behind_another_error_is_named() -> None:
    outer = ValueError("a library's own")
    outer.__cause__ = OSError(errno.ENOSPC, "No space left on device", "/tmp/x.csv")
    assert "/tmp/x.csv: found no room" in str(shortage(outer, []))


@pytest.mark.parametrize("error", [ValueError("a fault of ours"), OSError(errno.ENOENT, "No such file"), KeyError("x")])
def test_other_errors_are_not_taken_for_a_shortage(error: Exception) -> None:
    assert shortage(error, []) is None


@pytest.mark.slow
def test_a_run_whose_job_lacks_memory_says_so_and_goes_on_when_there_is_more(tmp_path: Path, limit: int) -> None:
    run = small_run(tmp_path / "checkout", MANY)
    attempt = run.start(SIMULATED, before=f"ulimit -v {limit};")
    assert attempt.wait() != 0
    assert "afa: cohort simulate: found no memory left (" in attempt.said()
    assert not (run.folder / GEO).exists()
    assert run.leftovers() == []
    run.finish(SIMULATED)
    subprocess.run([AFA, *simulate("by_hand")], cwd=run.folder, check=True)
    assert contents(run.folder / "by_hand") == contents(run.folder / GEO)


def contents(folder: Path) -> dict[str, bytes]:
    files = [path for path in folder.rglob("*") if path.is_file() and path.name != OWN_TO_SNAKEMAKE]
    return {str(path.relative_to(folder)): path.read_bytes() for path in files}


@pytest.mark.slow
def test_a_job_that_the_kernel_kills_is_reported_with_its_signal(tmp_path: Path) -> None:
    run = small_run(tmp_path / "checkout", MANY)
    attempt = run.start(SIMULATED)
    found: list[int] = []

    def at_work() -> bool:
        for path in Path("/proc").glob("[0-9]*/cmdline"):
            with suppress(OSError):
                words = path.read_bytes().split(b"\0")
                if b"simulate" in words and (path.parent / "cwd").readlink() == run.folder:
                    found.append(int(path.parent.name))
        return bool(found)

    assert attempt.wait_until(at_work)
    os.kill(found[0], signal.SIGKILL)
    assert attempt.wait() != 0
    assert "afa: a job: found its end by signal 9" in attempt.said()
    assert not (run.folder / GEO).exists()
