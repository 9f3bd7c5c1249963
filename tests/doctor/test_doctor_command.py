"""`afa doctor` as a user meets it: a run that can start, one that can not, and that nothing is touched."""

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from commands import afa

ROOT = Path(__file__).parents[2]


def doctor(folder, *arguments):
    environment = {"PATH": f"{Path(sys.executable).parent}:{os.environ['PATH']}"}
    return afa("doctor", *arguments, folder=folder, environment=environment)


@pytest.fixture
def checkout(tmp_path):
    """The project's files, linked into a folder of its own, with a copy of the settings."""
    for name in ("resources", "envs", "pyproject.toml", "workflow", "afa"):
        (tmp_path / name).symlink_to(ROOT / name)
    shutil.copytree(ROOT / "config", tmp_path / "config")
    return tmp_path


def files(folder):
    return {path: path.lstat().st_mtime_ns for path in folder.rglob("*")}


def test_the_default_run_can_start_and_nothing_is_written(checkout):
    before = files(checkout)
    result = doctor(checkout)
    assert result.returncode == 0, result.stdout + result.stderr
    lines = result.stdout.strip().splitlines()
    assert lines[-1].startswith("no fault, ")
    assert lines[-1].endswith("run gse109142 can start")
    checks = {line.split()[1] for line in lines if line.startswith(("ok ", "warning "))}
    assert {"project", "config", "bundle", "cohort", "series", "samples", "network"} <= checks
    assert {"estimate", "disk", "memory", "cores"} <= checks
    assert "by a stored run of demo (167 patients)" in result.stdout
    assert files(checkout) == before


def test_all_faults_of_a_broken_run_are_shown_at_once_each_with_its_next_step(checkout):
    shutil.copytree(ROOT / "tests/data/bundle_tiny", checkout / "mine")
    with (checkout / "mine/unary.csv").open("a") as table:
        table.write("bleeding,MUC3,1,,\n")
    given = ("--config", "shards=0", "encodin={}", "bundle=mine", "--cohort", "gse109142", "--geo-mirror", "gone")
    result = doctor(checkout, *given, "--profile", "nowhere")
    assert result.returncode == 2
    assert "Traceback" not in result.stderr
    broken = [line for line in result.stdout.splitlines() if line.startswith("fault ")]
    keys = ("key shards", "rename it to encoding", "unary.csv, line", "digests.unary.csv")
    for words in (*keys, "matrix.txt.gz or gone", "RAW.tar or gone", "profiles/nowhere"):
        assert sum(words in line for line in broken) == 1, result.stdout
    assert all("Next step: " in line for line in broken)
    assert len(broken) == 7
    assert result.stdout.strip().splitlines()[-1].startswith("7 faults, ")


def test_a_program_reads_the_same_as_json(checkout):
    result = doctor(checkout, "--json", "--configfile", "missing.yaml", "run=second")
    assert result.returncode == 2
    found = json.loads(result.stdout)
    assert found["run"] == "second"
    assert found["faults"] == sum(each["level"] == "fault" for each in found["findings"]) == 1
    (broken,) = [each for each in found["findings"] if each["level"] == "fault"]
    assert broken["check"] == "config"
    assert "missing.yaml" in broken["found"]
    assert broken["next_step"]


def test_another_folder_is_told_apart_from_a_broken_one(tmp_path):
    result = doctor(tmp_path)
    assert result.returncode == 2
    assert "Snakefile" in result.stdout
    assert len(result.stdout.strip().splitlines()) == 3


@pytest.mark.mirror
def test_a_series_of_a_mirror_is_looked_through(checkout, geo_mirror):
    result = doctor(checkout, "--cohort", "gse109142", "--geo-mirror", geo_mirror)
    assert result.returncode == 0, result.stdout
    assert "206 patients and 20 controls" in result.stdout


def test_make_passes_its_choices_on():
    shown = subprocess.run(
        ["make", "-n", "doctor", "COHORT=mine", "GEO_MIRROR=a folder", "PROFILE=slurm", "NETWORK=1"],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=True,
    )
    wanted = 'afa doctor --profile slurm --network --config "cohort=mine" "geo_mirror=a folder"'
    assert wanted in shown.stdout


@pytest.mark.parametrize("choice", ["COHRT=demo", "cohort=demo"])
def test_make_refuses_a_choice_that_it_does_not_know(choice):
    refused = subprocess.run(["make", "-n", "doctor", choice], cwd=ROOT, capture_output=True, text=True, check=False)
    assert refused.returncode == 2
    assert f"{choice.partition('=')[0]}=: found an unknown choice; expected one of COHORT" in refused.stderr
