"""The whole workflow in seconds: every rule, by Snakemake itself, with a program for `afa` that only digests."""

from __future__ import annotations

import re
import shlex
import shutil
import sys
from collections.abc import Mapping
from contextlib import chdir
from dataclasses import dataclass
from pathlib import Path

import stand_in
import yaml
from small_run import COHORT, ROOT, RUN, SETTINGS
from snakemakes import PATH, snakemake

COPIED = ("afa", "config", "docs", "envs", "notebooks", "resources", "workflow")
NOT_COMPARED = ("logs", "benchmarks")
"""Of a run: what has times in it."""
STAND_IN = Path(__file__).with_name("stand_in.py")


def copy_of(project: Path, folder: Path) -> Path:
    """A project with its results and Snakemake's records in another place."""
    shutil.copytree(project, folder, symlinks=True)
    return folder


@dataclass(frozen=True)
class Job:
    """A job of a plan."""

    outputs: list[str]
    inputs: list[str]
    command: str

    @property
    def output(self) -> str:
        """The first output."""
        return self.outputs[0]


@dataclass(frozen=True)
class Ended:
    """How a call of Snakemake ended, and what it printed."""

    code: int
    said: str


def call(project: Path, *arguments: str, fail: str = "", seconds: float = 0) -> Ended:
    """Call Snakemake in a project, for so many seconds at most if given; then it and its jobs are killed."""
    environment = {"PATH": f"{project / 'bin'}:{PATH}", "PYTHONPATH": str(project), "FAIL": fail}
    ended = snakemake(project, "--cores", "2", *arguments, environment=environment, seconds=seconds)
    return Ended(ended.returncode, ended.stdout)


def make_project(folder: Path) -> Path:
    """A copy of the project with a small cohort and bundle, and in `bin` what stands for the programs of jobs."""
    folder.mkdir(parents=True)
    for name in COPIED:
        shutil.copytree(ROOT / name, folder / name, ignore=shutil.ignore_patterns("__pycache__"))
    (folder / "profiles").symlink_to("workflow/profiles")
    shutil.copy(ROOT / "Snakefile", folder)
    shutil.copytree(ROOT / "tests/data/bundle_tiny", folder / "my_bundle")
    _write(folder / "config/config.yaml", {**SETTINGS, "bundle": "my_bundle"})
    _write(folder / "config/cohorts/small.yaml", COHORT)
    (folder / "bin").mkdir()
    for name in ("afa", "snakemake"):
        program = folder / "bin" / name
        program.write_text(f"#!{sys.executable} -SE\n" + STAND_IN.read_text(encoding="utf-8"), encoding="utf-8")
        program.chmod(0o755)
    plan_of(folder)
    return folder


def plan_of(project: Path) -> list[Job]:
    """Every job of the whole workflow, in an order in which they can run; the stand-in is told what each reads."""
    listed = call(project, "-n", "-p", "--forceall")
    assert listed.code == 0, listed.said
    plan = jobs_of(listed.said)
    lines = ["\t".join([*job.outputs, stand_in.READS, *job.inputs]) + "\n" for job in plan]
    (project / "jobs.txt").write_text("".join(lines), encoding="utf-8")
    return plan


def jobs_of(said: str) -> list[Job]:
    """The jobs with an output that a dry run lists, in its order."""
    found = []
    for block in re.split(r"^ *(?:local)?rule \w+:\n", said, flags=re.MULTILINE)[1:]:
        lines = dict(re.findall(r"^ +(input|output): (.*)", block, re.MULTILINE))
        if "output" in lines:
            command = re.search(r"^Shell command: (.*?) > ", block, re.MULTILINE | re.DOTALL)
            inputs = lines.get("input", "").split(", ")
            said = command[1].rpartition("&& ")[2] if command else ""  # what comes before only makes room
            found.append(Job(lines["output"].split(", "), inputs, said))
    return found


def clean_run(project: Path, plan: list[Job], folder: Path) -> dict[str, bytes]:
    """What a run from nothing makes in a project as it is now, worked out in `folder` without Snakemake."""
    folder.mkdir()
    for path in project.iterdir():
        if path.name not in ("results", ".snakemake"):
            (folder / path.name).symlink_to(path)
    with chdir(folder):
        for program, *words in (shlex.split(job.command) for job in plan):
            if program == "printf":
                stand_in.write(str(RUN / "config.json"), words[1] + "\n")
            else:
                made, inputs = stand_in.job_of(words)
                text = stand_in.content(words, inputs)
                for path in made:
                    stand_in.write(path, f"{path} {text}")
    shutil.rmtree(folder / RUN / "shards", ignore_errors=True)
    return contents(folder)


def kind_of(output: str) -> str:
    """The kind of rule that makes an output, by its place in the run's folder: a shard, a summary, the report, ...

    The compiled kernels lie outside of it, in a folder of their own.
    """
    path = Path(output)
    return path.relative_to(RUN).parts[0] if path.is_relative_to(RUN) else path.parent.name


def contents(project: Path) -> dict[str, bytes]:
    """Every file of the run that must be the same however it came about."""
    run = project / RUN
    files = [path for path in run.rglob("*") if path.is_file() and not path.name.startswith(".")]
    names = {path.relative_to(run).as_posix(): path for path in files}
    return {name: path.read_bytes() for name, path in names.items() if name.split("/")[0] not in NOT_COMPARED}


def _write(path: Path, document: Mapping[str, object]) -> None:
    path.write_text(yaml.safe_dump(dict(document), sort_keys=False), encoding="utf-8")
