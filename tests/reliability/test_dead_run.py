"""What dead processes leave is told from what living ones hold, and only the former is removed."""

from __future__ import annotations

import os
import shutil
import signal
import socket
import subprocess
import sys
from pathlib import Path

import pandas as pd
import pytest

from afa.errors import ConfigError, ResourceError
from afa.evaluate.long_tables import gather_tables
from afa.io.files import atomic_file, atomic_folder
from afa.paper import workflow
from afa.paper.workflow import has_profile, hold_run_lock, remove_shards

WRITER = """
import sys, time
from pathlib import Path
from afa.io.files import atomic_file, atomic_folder
with {writer}(sys.argv[1], {replaces}) as temporary:
    (temporary / "part" if temporary.is_dir() else temporary).write_text("half")
    print("writing", flush=True)
    time.sleep(600)
"""
ON_CUE = Path(__file__).with_name("on_cue")
RUNNER = """
import sys, time
from afa.paper.workflow import hold_run_lock
hold_run_lock(sys.argv[1])
print("alive", flush=True)
time.sleep(600)
"""


def begun(code: str, argument: Path) -> subprocess.Popen[str]:
    """A Python process that has printed its first line."""
    command = [sys.executable, "-c", code, str(argument)]
    process = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
    assert process.stdout is not None
    assert process.stdout.readline()
    return process


def killed(process: subprocess.Popen[str]) -> None:
    process.send_signal(signal.SIGKILL)
    process.communicate()


@pytest.fixture
def state(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder as Snakemake's own, with a lock; what this process joins is let go after the test."""
    monkeypatch.setattr(workflow, "_joined", {})
    (tmp_path / "locks").mkdir()
    return tmp_path


def lock(state: Path) -> Path:
    path = state / "locks/0.output.lock"
    path.write_text("results/r/bundle\n")
    return path


@pytest.mark.parametrize("writer", [atomic_file, atomic_folder])
def test_the_next_writer_removes_what_a_killed_one_left(tmp_path: Path, writer: object) -> None:
    killed(begun(WRITER.format(writer=writer.__name__, replaces=""), tmp_path / "sign.csv"))
    assert len(list(tmp_path.glob(".sign.*"))) == 1
    with writer(tmp_path / "sign.csv") as temporary:
        assert list(tmp_path.glob(".sign.*")) == [temporary]
    assert [path.name for path in tmp_path.iterdir()] == ["sign.csv"]


@pytest.mark.parametrize("writer", [atomic_file, atomic_folder])
def test_a_living_writer_of_the_same_target_is_left_alone(tmp_path: Path, writer: object) -> None:
    process = begun(WRITER.format(writer=writer.__name__, replaces=""), tmp_path / "sign.csv")
    (other,) = tmp_path.glob(".sign.*")
    with writer(tmp_path / "sign.csv"):
        pass
    assert other.exists()
    killed(process)


def test_a_temporary_of_another_target_is_left_alone(tmp_path: Path) -> None:
    others = [
        tmp_path / name
        for name in (".signs.afa-abcdefgh", ".sign.afa-abcdefgh.csv", ".sign.afa-abcdefghi", ".sign.original")
    ]
    for path in others:
        path.touch()
    with atomic_folder(tmp_path / "sign"):
        pass
    assert all(path.exists() for path in others)


def test_a_kill_while_an_earlier_folder_is_removed_leaves_the_new_one_whole(tmp_path: Path) -> None:
    target = tmp_path / "tables"
    target.mkdir()
    (target / "a").touch()
    (target / "b").touch()
    cue = {"EVENT": "os.remove", "PATH": "*/[ab]", "DONE": str(tmp_path / "done")}
    environment = {**os.environ, **{f"AFA_CUE_{name}": value for name, value in cue.items()}, "PYTHONPATH": str(ON_CUE)}
    code = WRITER.format(writer="atomic_folder", replaces="['*']").replace("600", "0")
    command = [sys.executable, "-c", code, str(target)]
    ended = subprocess.run(command, env=environment, capture_output=True, start_new_session=True, check=False)
    assert ended.returncode == -signal.SIGKILL, ended.stderr
    assert [path.name for path in target.iterdir()] == ["part"]


def test_an_earlier_folder_that_was_set_aside_comes_back_when_the_new_one_cannot_take_its_place(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    target = tmp_path / "tables"
    target.mkdir()
    (target / "a").touch()
    whole = Path.replace

    def replace(path: Path, to: Path) -> Path:
        if (path / "new").exists():
            raise OSError("refused")
        return whole(path, to)

    monkeypatch.setattr(Path, "replace", replace)
    with pytest.raises(OSError, match="refused"), atomic_folder(target, ["a"]) as temporary:
        (temporary / "new").touch()
    assert [path.name for path in tmp_path.rglob("*")] == ["tables", "a"]


def test_the_lock_of_a_dead_run_of_this_machine_is_removed(state: Path) -> None:
    process = begun(RUNNER, state)
    left = lock(state)
    killed(process)
    assert hold_run_lock(state) is None
    assert not left.exists()


def test_the_lock_of_a_living_run_stays_and_its_process_is_named(state: Path) -> None:
    process = begun(RUNNER, state)
    held = lock(state)
    kept = hold_run_lock(state)
    assert kept is not None
    assert f"({process.pid})" in kept
    assert held.exists()
    killed(process)


def test_two_living_runs_stand_side_by_side(state: Path) -> None:
    process = begun(RUNNER, state)
    assert hold_run_lock(state) is None
    killed(process)


def test_the_lock_of_a_run_on_another_machine_stays(state: Path) -> None:
    (state / "alive").write_text("elsewhere")
    held = lock(state)
    kept = hold_run_lock(state)
    assert kept is not None
    assert "a run on elsewhere" in kept
    assert "snakemake --unlock" in kept
    assert held.exists()
    assert (state / "alive").read_text() == "elsewhere"


def test_a_lock_of_unknown_origin_stays(state: Path) -> None:
    held = lock(state)
    assert "an unknown machine" in str(hold_run_lock(state))
    assert held.exists()


def test_the_machine_of_the_last_run_is_noted_where_there_is_no_lock(state: Path) -> None:
    (state / "alive").write_text("elsewhere")
    assert hold_run_lock(state) is None
    assert (state / "alive").read_text() == socket.gethostname()


def test_a_folder_that_cannot_be_written_is_named(tmp_path: Path) -> None:
    (tmp_path / "state").write_text("a file")
    with pytest.raises(ResourceError, match="state: found File exists; expected a folder that can be written"):
        hold_run_lock(tmp_path / "state")


@pytest.mark.parametrize("tables", [["a", ""], ["", "a"], ["", ""], ["ab", "a"], ["a", "ab"]])
def test_shards_that_are_not_whole_are_not_gathered(tmp_path: Path, tables: list[str]) -> None:
    shards = [tmp_path / f"{part}-of-2" for part in (1, 2)]
    for shard, names in zip(shards, tables, strict=True):
        shard.mkdir()
        for name in names:
            pd.DataFrame({"x": [1]}).to_parquet(shard / f"{name}.parquet")
    with pytest.raises(ConfigError, match="run"):
        gather_tables(shards, tmp_path / "gathered")
    assert not (tmp_path / "gathered").exists()


def test_shards_of_a_stage_go_when_its_tables_are_there(tmp_path: Path) -> None:
    for name in ("shards/sign/1-of-2/a.parquet", "shards/gauge/1-of-2/a.parquet", "tables/sign/a.parquet"):
        (tmp_path / name).parent.mkdir(parents=True)
        (tmp_path / name).touch()
    remove_shards(tmp_path)
    assert [path.name for path in (tmp_path / "shards").iterdir()] == ["gauge"]
    shutil.rmtree(tmp_path / "shards/gauge")
    remove_shards(tmp_path)
    remove_shards(tmp_path)
    assert [path.name for path in tmp_path.iterdir()] == ["tables"]


@pytest.mark.parametrize("words", [["--profile", "x"], ["--profile=x"], ["--workflow-profile", "x"]])
def test_a_profile_on_the_command_line_counts(tmp_path: Path, words: list[str]) -> None:
    assert has_profile(["snakemake", *words], tmp_path / "Snakefile")


def test_a_default_profile_is_looked_for_where_snakemake_does(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    assert not has_profile(["snakemake"], tmp_path / "workflow/Snakefile")
    (tmp_path / "workflow/profiles/default").mkdir(parents=True)
    assert has_profile(["snakemake"], tmp_path / "workflow/Snakefile")
    assert not has_profile(["snakemake"], tmp_path / "Snakefile")
