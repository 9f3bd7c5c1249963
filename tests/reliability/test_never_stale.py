"""However a run fails on what has changed since a finished one: without the cause the same command ends as a clean run.

The changes and the ways to fail are few, and cross; which jobs fail comes from the plan of the changed run.
"""

from __future__ import annotations

import json
import os
import shutil
from collections.abc import Callable
from contextlib import chdir
from itertools import product
from pathlib import Path

import pytest
import yaml
from finished_run import call, clean_run, contents, copy_of, jobs_of, kind_of, make_project, plan_of
from small_run import RUN
from typer.testing import CliRunner

from afa.cli import app
from afa.errors import ReportError
from afa.files import sha256_of

BUNDLE, COHORT = "my_bundle/unary.csv", "config/cohorts/small.yaml"


def _setting(project: Path) -> None:
    path = project / "config/config.yaml"
    settings = yaml.safe_load(path.read_text(encoding="utf-8"))
    settings["layer0"]["simulated"] += 2
    path.write_text(yaml.safe_dump(settings), encoding="utf-8")


def _code_line(project: Path) -> None:
    path = project / "afa/stages/sign.py"
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
TABLES = ("deleted table", "corrupted table")
NOT_OURS = (RUN / "config.json",)
"""Made by `printf`, which has no middle to fail in."""

JOBS = list(product(IN_A_JOB, CHANGES, MOMENTS))
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


@pytest.mark.parametrize(("change", "output"), [("setting", "tables/layer0_synthetic"), ("code line", "shards/sign")])
def test_a_stage_that_was_killed_in_a_rerun_is_not_forgotten(project: Path, change: str, output: str) -> None:
    CHANGES[change](project)
    failed = call(project, fail=f"kill of the job|after|{RUN}/{output}|{project}/failed")
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
        spoil(project / victim(outputs, number * 7), way)
    ends_as_a_clean_run(project)


def test_the_record_of_a_run_has_every_job_with_what_it_read_and_made(project: Path) -> None:
    """`afa provenance` itself, on Snakemake's records of a finished run."""
    lines = (project / "inputs.txt").read_text(encoding="utf-8").splitlines()
    planned = {output: inputs for output, *inputs in (line.split("\t") for line in lines)}
    *results, lock = planned[f"{RUN}/provenance.json"]
    record = [*results, "--records", ".snakemake", "--lock", lock, "--out", "record.json"]
    with chdir(project):
        ended = CliRunner().invoke(app, ["provenance", *record])
    assert ended.exit_code == 0, ended.output
    told = json.loads((project / "record.json").read_text(encoding="utf-8"))
    assert told["environment"]["lock_sha256"] == sha256_of(project / lock)
    made: set[str] = set()
    for job in told["jobs"]:
        inputs = set(job["inputs"])
        assert inputs in [set(filter(None, paths)) for paths in planned.values()], job["rule"]
        ours = {path for path in inputs if Path(path).is_relative_to(RUN) and "shards" not in path}
        assert all(any(Path(file).is_relative_to(path) for file in made) for path in ours), job["rule"]
        program = job["command"].partition(" ")[0]
        assert program in (("printf",) if job["rule"] == "run_config" else ("afa", "snakemake")), job["rule"]
        assert job["outputs"] == {path: sha256_of(project / path) for path in job["outputs"]}
        made |= job["outputs"].keys()
    after = {f"{RUN}/{name}" for name in ("provenance.json", "report.html", "README.md", "workflow.html")}
    assert made == {f"{RUN}/{name}" for name in contents(project)} - after
    spoil(project / RUN / "tables/sign", "corrupted table")
    with chdir(project), pytest.raises(ReportError, match=f"{RUN}/tables/sign"):
        CliRunner().invoke(app, ["provenance", *record], catch_exceptions=False)
    assert json.loads((project / "record.json").read_text(encoding="utf-8")) == told


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
    first = ("bundle", "source.json", "cohort", "notebooks/chaos.ipynb")
    assert {f"{RUN}/{name}" for name in first} <= planned
    ends_as_a_clean_run(project)


def spoil(path: Path, way: str) -> None:
    """Remove a result, or change a byte of it and keep its size and time."""
    if way == "deleted table":
        shutil.rmtree(path) if path.is_dir() else path.unlink()
        return
    file = next(iter(sorted(path.rglob("[!.]*.*")))) if path.is_dir() else path
    status, content = file.stat(), bytearray(file.read_bytes())
    content[0] ^= 1
    file.write_bytes(content)
    os.utime(file, ns=(status.st_atime_ns, status.st_mtime_ns))
