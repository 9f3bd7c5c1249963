"""Each project file that a job opens is an input of its rule; a notebook takes the paper's tables that it opens."""

from __future__ import annotations

import json
import re
import shutil
from collections import defaultdict
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import pairwise
from os.path import normpath
from pathlib import Path
from typing import Any

import pytest
from small_run import ROOT, RUN, SmallRun
from snakemakes import metadata_of

from afa.io.files import sha256_of

BENCHMARKS = f"{RUN}/benchmarks/"
READS = Path(__file__).with_name("reads")
RECORDED: dict[str, Any] = {"bundle": None, "elicitation": {"study": "my_study"}}


@dataclass(frozen=True)
class Job:
    """A job that ran: its rule, its inputs and outputs, and the files of the project that it opened."""

    rule: str
    inputs: frozenset[str]
    outputs: frozenset[str]
    opened: frozenset[str]
    noted: bool


def jobs(run: SmallRun, *targets: str) -> list[Job]:
    """Run these targets, and return every job of `afa` that ran."""
    notes = run.folder / "reads"
    notes.mkdir()
    before = f"export AFA_READS={notes} PYTHONPATH={READS}:$PYTHONPATH;"
    attempt = run.start(*targets, before=before)
    assert attempt.wait() == 0, attempt.said()
    made = metadata_of(run.folder)
    found: dict[frozenset[str], list[dict[str, Any]]] = {}
    for path in notes.glob("*.txt"):
        first, *opened = path.read_text(encoding="utf-8").splitlines()
        note = {**json.loads(first), "opened": opened}
        after = [word for option, word in pairwise(note["arguments"]) if option == "--out"]
        outputs = [path for path in made if any(path == word or path.startswith(f"{word}/") for word in after)]
        assert outputs, note["arguments"]
        found.setdefault(frozenset(outputs), []).append(note)
    return [
        Job(
            made[min(outputs)]["rule"],
            frozenset(made[min(outputs)]["input"]),
            outputs,
            frozenset(
                name
                for note in several
                for path in note["opened"]
                for name in of_the_project(run.folder, normpath(path))
            ),
            all(note["noted"] for note in several),
        )
        for outputs, several in found.items()
    ]


def of_the_project(folder: Path, path: str) -> Iterator[str]:
    """The name of a file in the project: not a module, a log, what a job keeps for itself, or Python's own."""
    for place in (folder, ROOT):
        if Path(path).is_relative_to(place):
            name = Path(path).relative_to(place).as_posix()
            own = name.startswith((".venv/", ".git/", "tests/", "reads/", ".snakemake/", f"{RUN}/logs/"))
            if not own and not name.endswith((".py", ".pyc")) and ".afa-" not in name and "." in Path(name).name:
                yield name
            return


def undeclared(job: Job, folder: Path) -> set[str]:
    """The files of the project that a job opened and that are no input or output of it.

    A file also counts as input if an input lists its digest: `source.json` those of a series, `bundle.yaml` and
    `cohort.yaml` those of the other files of their folder.
    """
    listed = [folder / name for name in job.inputs if name.endswith(("source.json", "bundle.yaml", "cohort.yaml"))]
    digests = "".join(path.read_text(encoding="utf-8") for path in listed)
    others = {name for name in job.opened - job.inputs - job.outputs if not name.startswith("afa/")}
    return {name for name in others if sha256_of(folder / name) not in digests}


def check(found: list[Job], folder: Path) -> None:
    """Fail for a file that a job opened and was not given, and for a job without the digests of its sources.

    Two jobs open other files on purpose: the report shows the benchmarks of all jobs, which are no results, and
    `provenance` writes the digests of the inputs of all jobs.
    """
    wrong: dict[str, set[str]] = defaultdict(set)
    for job in found:
        wrong[job.rule] |= undeclared(job, folder)
    wrong["provenance"] -= {name for job in found for name in job.inputs | job.outputs}
    wrong["report_page"] -= {name for name in wrong["report_page"] if name.startswith(BENCHMARKS)}
    assert not {rule: sorted(names) for rule, names in wrong.items() if names}
    assert all(job.noted for job in found)  # the run told each job what its code was when it began


@pytest.mark.slow
def test_every_file_that_the_stages_of_an_elicitation_open_is_an_input_of_theirs(tmp_path: Path) -> None:
    run = SmallRun(tmp_path / "project", RECORDED)
    my_study(run.folder)
    found = jobs(run, f"{RUN}/bundle/bundle.yaml")
    assert {job.rule for job in found} == {
        *("elicit_unary", "elicit_consensus", "elicit_evidence", "elicit_pairwise", "build_bundle")
    }
    check(found, run.folder)
    read = {name for job in found for name in job.opened}
    assert {f"my_study/{name}" for name in ("study.yaml", "phenotypes.csv", "features.csv", "aliases.csv")} <= read

    features = run.folder / "my_study/features.csv"
    lines = features.read_text(encoding="utf-8").splitlines(keepends=True)
    features.write_text("".join(lines[::2]), encoding="utf-8")
    before = (run.folder / RUN / "bundle/unary.csv").read_bytes()
    said = run.finish(f"{RUN}/bundle/bundle.yaml")
    assert "rule elicit_unary" in said
    assert (run.folder / RUN / "bundle/unary.csv").read_bytes() != before


@pytest.mark.slow
def test_every_file_that_a_job_of_the_whole_run_opens_is_an_input_of_its_rule(tmp_path: Path) -> None:
    run = SmallRun(tmp_path / "project")
    found = jobs(run)
    check(found, run.folder)
    for job in found:
        if job.rule.endswith("_notebook"):
            of_paper = lambda names: {name for name in names if name.startswith("resources/paper/")}  # noqa: E731
            declared, shown = of_paper(job.inputs), of_paper(job.opened)
            assert declared == shown, job.rule


def my_study(folder: Path) -> None:
    """The recorded study with a list of features and an alias."""
    shutil.copytree(ROOT / "resources/elicitation", folder / "my_study")
    record = (folder / "my_study/record/recorded.jsonl").read_text(encoding="utf-8")
    genes = sorted(set(re.findall(r'gene_symbol\\": \\"([A-Za-z0-9-]+)', record)))
    rows = "".join(f"{gene},continuous,,,\n" for gene in genes)
    (folder / "my_study/features.csv").write_text(f"feature,kind,unit,values,definition\n{rows}", encoding="utf-8")
    (folder / "my_study/aliases.csv").write_text(f"feature,alias\n{genes[0]},another name\n", encoding="utf-8")
