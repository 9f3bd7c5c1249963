"""A workshop for the LLM planners: bundle, cohort, study, record, and the command that asks or replays."""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from elicit.llm_server import Endpoint
from planning import PATIENTS, keep_abstracts, small_cohort, write_study
from typer.testing import CliRunner

from afa.cli import app
from afa.cohort.cohort import write_cohort
from afa.evaluate.long_tables import read_table
from afa.model.bundle import load_bundle

TINY = Path(__file__).parents[2] / "data/bundle_tiny"


@dataclass(frozen=True)
class Workshop:
    """Folders of one small study; `run` calls the command and gives the folder of its tables."""

    root: Path

    @property
    def record(self) -> Path:
        return self.root / "record"

    def command(self, out: str, **asked: Any) -> list[str]:
        """The command that asks, or replays, with these settings of `baselines`."""
        folders = {"bundle": TINY, "cohort": self.root / "cohort", "record": self.record, "out": self.root / out}
        settings = {"study": str(self.root / "study"), "patients": PATIENTS, "rounds": [1, 3], **asked}
        words = [word for name, folder in folders.items() for word in (f"--{name}", str(folder))]
        return ["experiment", "baselines", *words, "--k", "2", "--settings", json.dumps(settings)]

    def run(self, out: str, *options: str, endpoint: Endpoint | None = None, fails: bool = False, **asked: Any) -> Path:
        """Ask live where there is an endpoint, else replay."""
        command = [*self.command(out, **asked), *options, *(["--live", "--no-caps"] if endpoint else [])]
        # Never written to: every search lies in the cache, and the address leads nowhere.
        services = {"AFA_EUROPEPMC_URL": "http://127.0.0.1:9"}
        environment = {**endpoint.environment, **services} if endpoint else {}
        result = CliRunner().invoke(app, command, env=environment)
        self.root.joinpath(f"{out}.log").write_text(f"{result.output}\n{result.exception!r}")
        assert fails == (result.exit_code != 0), f"{result.output}\n{result.exception!r}"
        if fails:
            raise result.exception
        return self.root / out

    def table(self, out: str, name: str):
        return read_table(self.root / out, name)


@pytest.fixture
def workshop(tmp_path) -> Workshop:
    bundle = load_bundle(TINY)
    write_cohort(small_cohort(bundle.features, bundle.entities), tmp_path / "cohort")
    write_study(tmp_path / "study", bundle.entities)
    keep_abstracts(tmp_path / "record", bundle.entities)
    return Workshop(tmp_path)
