"""A study in a folder of its own, and the commands of `afa elicit` one after the other."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import yaml
from typer.testing import CliRunner

from afa.cli import app

PHENOTYPES = ("chronic_diarrhea", "rectal_bleeding", "perianal_disease")
IMPATIENT = "from afa.cli import main; from afa.elicit import live; live.INTERRUPT_SECONDS = {}; main()"
STAGES = ("unary", "consensus", "evidence", "pairwise", "bundle")


class Lab:
    """A study of some phenotypes under `folder`; `run` is where tables and bundle go, `record` where answers do."""

    def __init__(self, folder: Path, phenotypes: tuple[str, ...] = PHENOTYPES, **settings: Any) -> None:
        self.study, self.record = folder / "study", folder / "study" / "record"
        self.study.mkdir(parents=True)
        document = {
            "name": "small",
            "disease": "IBD",
            "tissue": "colon",
            "most_genes": 6,
            "same_model": True,
            **settings,
        }
        (self.study / "study.yaml").write_text(yaml.safe_dump(document))
        rows = "".join(f"{name},gi,What {name} means\n" for name in phenotypes)
        (self.study / "phenotypes.csv").write_text("phenotype,group,definition\n" + rows)
        self.run = folder / "run"

    def command(self, stage: str, *options: str, min_agree: int = 2) -> list[str]:
        """The arguments of one stage after `afa`; `options` are those of asking."""
        tables = {name: f"--{name}={self.run / name}" for name in STAGES[:-1]}
        needs = {"consensus": ["unary"], "evidence": ["unary", "consensus"], "pairwise": ["evidence"]}
        needs["bundle"] = list(tables)
        parts = ["elicit", stage, str(self.study), *(tables[name] for name in needs.get(stage, []))]
        if stage in ("unary", "pairwise"):
            parts += [f"--record={self.record}", *options]
        if stage in ("consensus", "bundle"):
            parts.append(f"--min-agree={min_agree}")
        if stage == "bundle":
            parts.append(f"--dropped={self.run / 'dropped.csv'}")
        return [*parts, f"--out={self.run / stage}"]

    def elicit(self, *options: str, stages: tuple[str, ...] = STAGES, min_agree: int = 2) -> dict[str, str]:
        """Run stages in this process; what each said. An error of a stage is raised."""
        said = {}
        for stage in stages:
            result = CliRunner().invoke(app, self.command(stage, *options, min_agree=min_agree))
            if result.exception is not None:
                raise result.exception
            said[stage] = result.output
        return said

    def start(
        self, stage: str, *options: str, environment: Mapping[str, str], patience: float | None = None
    ) -> subprocess.Popen[bytes]:
        """A stage as a process of its own; `patience` stands for the seconds that open calls may take to end."""
        afa = [str(Path(sys.executable).parent / "afa")]
        if patience is not None:
            afa = [sys.executable, "-c", IMPATIENT.format(patience)]
        return subprocess.Popen(
            [*afa, *self.command(stage, *options)],
            env={**os.environ, **environment},
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
        )

    def bundle(self) -> dict[str, str]:
        """The files of the bundle and the list of what was left out, without the day of asking."""
        files = {path.name: path.read_text() for path in sorted((self.run / "bundle").iterdir())}
        lines = files["bundle.yaml"].splitlines()
        files["bundle.yaml"] = "\n".join(line for line in lines if not line.startswith("  date: "))
        return {**files, "dropped": (self.run / "dropped.csv").read_text()}
