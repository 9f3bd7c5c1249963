"""However a run fails on what has changed since a finished one: without the cause the same command ends as a clean run.

The changes and the ways to fail are few, and cross; which jobs fail comes from the plan of the changed run.
"""

from __future__ import annotations

import json
import os
import shutil
from collections.abc import Callable, Mapping
from contextlib import chdir
from itertools import product
from pathlib import Path
from typing import Any

import pytest
import yaml
from finished_run import call, clean_run, contents, copy_of, jobs_of, kind_of, make_project, plan_of
from small_run import RUN
from stand_in import READS
from typer.testing import CliRunner

from afa.cli import app
from afa.errors import ReportError
from afa.io.files import sha256_of

BUNDLE, COHORT = "my_bundle/unary.csv", "config/cohorts/small.yaml"


def _setting(project: Path) -> None:
    path = project / "config/config.yaml"
    settings = yaml.safe_load(path.read_text(encoding="utf-8"))
    settings["layer0"]["simulated"] += 2
    path.write_text(yaml.safe_dump(settings), encoding="utf-8")


def _code_line(project: Path) -> None:
    path = project / "afa/paper/experiments/sign.py"
    head, body = path.read_text(encoding="utf-8").split("def run(", 1)
    line = '    changed_by_the_test = "stage sign"\n'
    body = body.replace('"""\n', f'"""\n{line}', 1)
    path.write_text(f"{head}def run({body}", encoding="utf-8")


def _appended(name: str, text: str) -> Callable[[Path], None]:
    def change(project: Path) -> None:
        with (project / name).open("a", encoding="utf-8") as file:
            file.write(text)

    return change


CHANGES: dict[str, Callable[[Path], None]] = {
    "setting": _setting,
    "code line": _code_line,
    "bundle value": _appended(BUNDLE, "bleeding,CCL20,0.25,,\n"),
    "cohort rule": _appended(COHORT, "# another rule\n"),
    "paper table": _appended("resources/paper/tab_chaos.csv", "\n"),
}
IN_A_JOB = ("kill of the job", "kill of Snakemake", "kill of the group", "exception", "exit 1", "gate", "full disk")
MOMENTS = ("start", "middle", "after")
FAULTS = {"faulty bundle": (BUNDLE, "FAULT\n"), "faulty cohort file": (COHORT, "a: fault: here\n")}
TABLES = ("deleted table",)
NOT_OURS = (RUN / "config.json",)
"""Made by `printf`, which has no middle to fail in."""
KERNELS = ".snakemake/afa_kernels/compiled.json"
"""The one output of a run outside of its folder."""

JOBS = [
    (way, change, MOMENTS[(number + place) % len(MOMENTS)])
    for number, way in enumerate(IN_A_JOB)
    for place, change in enumerate(CHANGES)
]
"""Every way to fail on every change, at each moment in turn: every two of the three meet."""
FILES = list(product([*FAULTS, *TABLES], CHANGES))
FAST = (("exception", "paper table", "middle"), ("faulty bundle", "setting"))
"""Of the failures in jobs and of the faults in files one each runs with the fast tests, and a killed stage below."""


def by_name(cases: list[tuple[str, ...]]) -> list[object]:
    """All cases with their names, and all but the fast ones marked as slow."""
    return [pytest.param(*case, id=", ".join(case), marks=() if case in FAST else pytest.mark.slow) for case in cases]


@pytest.fixture(scope="module")
def finished(tmp_path_factory: pytest.TempPathFactory) -> Path:
    project = make_project(tmp_path_factory.mktemp("finished") / "project")
    ended = call(project)
    assert ended.code == 0, ended.said
    return project


@pytest.fixture
def project(finished: Path, tmp_path: Path) -> Path:
    return copy_of(finished, tmp_path / "project")


def ends_as_a_clean_run(project: Path) -> None:
    """The next call of the same command makes what a clean run makes, and the one after has nothing to do."""
    ended = call(project)
    assert ended.code == 0, ended.said
    expected = clean_run(project, plan_of(project), project.parent / "clean")
    found = contents(project)
    assert found.keys() == expected.keys()
    assert [name for name in expected if found[name] != expected[name]] == []
    assert "Nothing to be done" in call(project).said


def victim(outputs: list[str], number: int) -> str:
    """One of these outputs: their kinds in turn, and of each kind another."""
    kinds = sorted({kind_of(output) for output in outputs})
    kind = kinds[number % len(kinds)]
    of_kind = [output for output in outputs if kind_of(output) == kind]
    return of_kind[number // len(kinds) % len(of_kind)]


@pytest.mark.parametrize(("way", "change", "moment"), by_name(JOBS))
def test_a_job_that_fails_on_a_change_is_made_up_for_by_the_next_call(
    project: Path, way: str, change: str, moment: str
) -> None:
    CHANGES[change](project)
    planned = [job.output for job in jobs_of(call(project, "-n").said) if Path(job.output) not in NOT_OURS]
    assert planned
    target = victim(planned, JOBS.index((way, change, moment)))
    done = project / "failed"
    failed = call(project, fail=f"{way}|{moment}|{target}|{done}")
    assert done.exists(), f"{target}: {failed.said}"
    assert failed.code != 0, f"{target}: {failed.said}"
    ends_as_a_clean_run(project)


def test_a_stage_that_was_killed_in_a_rerun_is_not_forgotten(project: Path) -> None:
    CHANGES["code line"](project)
    failed = call(project, fail=f"kill of the job|after|{RUN}/shards/sign|{project}/failed")
    assert failed.code != 0
    assert (project / "failed").exists()
    ends_as_a_clean_run(project)


@pytest.mark.parametrize(("way", "change"), by_name(FILES))
def test_a_file_at_fault_is_refused_or_made_anew(project: Path, way: str, change: str) -> None:
    CHANGES[change](project)
    number = FILES.index((way, change))
    if way in FAULTS:
        path, text = project / FAULTS[way][0], FAULTS[way][1]
        whole = path.read_text(encoding="utf-8")
        path.write_text(whole + text, encoding="utf-8")
        assert call(project).code != 0
        assert call(project).code != 0  # for as long as the fault is there
        path.write_text(whole, encoding="utf-8")
    else:
        made = sorted((project / RUN).glob("[!lb]*")) + sorted((project / RUN).glob("tables/*"))
        outputs = [str(path.relative_to(project)) for path in made]
        remove(project / victim(outputs, number * 7))
    ends_as_a_clean_run(project)


def provenance(project: Path) -> dict[str, Any]:
    """What `afa provenance` itself says of a finished run, on Snakemake's records."""
    *results, lock = planned_by_output(project)[f"{RUN}/provenance.json"]
    record = [*results, "--records", ".snakemake", "--lock", lock, "--out", "record.json"]
    with chdir(project):
        ended = CliRunner().invoke(app, ["provenance", *record], catch_exceptions=False)
    assert ended.exit_code == 0, ended.output
    told: dict[str, Any] = json.loads((project / "record.json").read_text(encoding="utf-8"))
    assert told["environment"]["lock_sha256"] == sha256_of(project / lock)
    return told


def planned_by_output(project: Path) -> dict[str, list[str]]:
    """What each job of the plan reads, by its first output."""
    lines = (project / "jobs.txt").read_text(encoding="utf-8").splitlines()
    parts = (line.partition(f"\t{READS}\t") for line in lines)
    return {outputs.split("\t")[0]: inputs.split("\t") for outputs, _, inputs in parts}


def test_the_record_of_a_run_has_every_job_with_what_it_read_and_made(project: Path) -> None:
    planned = [set(filter(None, inputs)) for inputs in planned_by_output(project).values()]
    told = provenance(project)
    made: set[str] = set()
    for job in told["jobs"]:
        inputs = set(job["inputs"])
        assert inputs in planned, job["rule"]
        assert {path for path in inputs if Path(path).is_relative_to(RUN)} <= made, job["rule"]
        program = job["command"].rpartition("&& ")[2].partition(" ")[0]
        assert program in (("printf",) if job["rule"] == "run_config" else ("afa", "snakemake")), job["rule"]
        assert all(digest == sha256_of(project / path) for path, digest in job["outputs"].items())
        made |= planned_outputs(project, job["outputs"], job["rule"])
    after = {f"{RUN}/{name}" for name in ("provenance.json", "report.html", "README.md", "workflow.html")}
    assert KERNELS in made
    kept = {path for path in made if "/shards/" not in path} - {KERNELS}
    assert kept == {f"{RUN}/{name}" for name in contents(project)} - after
    table = min((project / RUN / "tables/sign").iterdir())
    table.write_text("changed since", encoding="utf-8")
    with pytest.raises(ReportError, match=f"{RUN}/tables/sign.*found another content"):
        provenance(project)
    assert json.loads((project / "record.json").read_text(encoding="utf-8")) == told


def planned_outputs(project: Path, outputs: Mapping[str, str], rule: str) -> set[str]:
    """The outputs of a job; a shard's are gone, so that its record names none."""
    if outputs:
        return set(outputs)
    stage = rule.removesuffix("_shard")
    lines = (project / "jobs.txt").read_text(encoding="utf-8").replace("\n", "\t").split("\t")
    return {path for path in lines if path.startswith(f"{RUN}/shards/{stage}/")}


def test_a_run_that_was_copied_moved_and_touched_plans_nothing_and_holds_no_path_of_its_first_place(
    project: Path,
) -> None:
    # `project` is a copy of the run, as `cp -a` makes it.
    moved = project.rename(project.with_name("moved"))
    for path in sorted((moved / RUN).rglob("*")):
        path.touch()
    (moved / RUN / "tables/gauge/.hidden").touch()
    (moved / RUN / "tables/gauge/.hidden").unlink()
    assert "Nothing to be done" in call(moved, "-n").said
    records = [path for path in (moved / ".snakemake/metadata").rglob("*") if path.is_file()]
    assert records
    assert [path for path in records if str(project.parent) in path.read_text(encoding="utf-8")] == []


def test_a_job_forced_to_the_same_bytes_makes_nothing_else_run(project: Path) -> None:
    assert call(project, "--force", f"{RUN}/bundle/bundle.yaml").code == 0
    assert "Nothing to be done" in call(project, "-n").said


def test_a_stage_by_name_ends_as_it_should_after_a_failure_on_the_way(project: Path) -> None:
    _appended(COHORT, "# another rule\n")(project)
    before = (project / RUN / "curves/gauge.parquet").read_bytes()
    failed = call(project, "gauge", fail=f"exit 1|start|{RUN}/cohort|{project}/failed")
    assert failed.code != 0
    ended = call(project, "gauge")
    assert ended.code == 0, ended.said
    assert (project / RUN / "curves/gauge.parquet").read_bytes() != before
    assert "Nothing to be done" in call(project, "gauge").said


@pytest.mark.slow
def test_a_run_without_records_ends_well_and_says_so(project: Path) -> None:
    shutil.rmtree(project / ".snakemake")
    _setting(project)
    ended = call(project, "--drop-metadata", "--forceall")
    assert ended.code == 0, ended.said
    assert provenance(project)["jobs"] == []


@pytest.mark.slow
def test_a_run_whose_records_lie_in_a_database_has_the_same_record_of_its_jobs(project: Path) -> None:
    jobs = provenance(project)["jobs"]
    shutil.rmtree(project / ".snakemake")
    shutil.rmtree(project / RUN)
    ended = call(project, "--persistence-backend", "db")
    assert ended.code == 0, ended.said
    assert "Nothing to be done" in call(project, "--persistence-backend", "db").said
    times = {"started", "ended"}
    without = [
        [{key: job[key] for key in job.keys() - times} for job in found]
        for found in (jobs, provenance(project)["jobs"])
    ]
    assert without[0] == without[1]


@pytest.mark.slow
def test_a_file_edited_with_an_older_date_counts_and_one_that_is_touched_does_not(project: Path) -> None:
    sources = [BUNDLE, COHORT, "resources/genes/aliases.csv", "resources/paper/claims.csv", "notebooks/chaos.ipynb"]
    for name in sources:
        (project / name).touch()
    assert "Nothing to be done" in call(project).said
    for name in sources:
        with (project / name).open("a", encoding="utf-8") as file:
            file.write("\n")
        os.utime(project / name, (1e9, 1e9))
    planned = {job.output for job in jobs_of(call(project, "-n").said)}
    first = (
        "bundle/bundle.yaml",
        "source.json",
        "cohort/cohort.yaml",
        "comparison/comparison.csv",
        "notebooks/chaos.ipynb",
    )
    assert {f"{RUN}/{name}" for name in first} <= planned
    ends_as_a_clean_run(project)


def remove(path: Path) -> None:
    """Remove a result, a file or a folder of them."""
    shutil.rmtree(path) if path.is_dir() else path.unlink()
