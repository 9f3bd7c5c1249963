"""Elicitation as stages of the workflow: recorded by default, live within caps, and the key nowhere."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml
from elicit import llm_server
from elicit.elicit_lab import Lab
from elicit.llm_script import scripted
from elicit.llm_server import KEY, Endpoint

ROOT = Path(__file__).parents[2]


@pytest.fixture
def checkout(tmp_path: Path) -> Path:
    """The project's files, linked into a folder of its own."""
    for name in ("profiles", "notebooks", "resources", "envs", "docs", "workflow", "config"):
        (tmp_path / name).symlink_to(ROOT / name)
    return tmp_path


@pytest.fixture
def endpoint() -> Iterator[Endpoint]:
    with llm_server.serve(scripted) as served:
        yield served


def snakemake(folder: Path, endpoint: Endpoint, *arguments: str, **elicitation: Any) -> str:
    """What Snakemake says of a run named `mine`, the study being in `study`."""
    environment = {**os.environ, **endpoint.environment}
    environment["PATH"] = f"{Path(sys.executable).parent}:{environment['PATH']}"
    given = []
    if elicitation:
        settings = {"run": "mine", "elicitation": {"study": "study", **elicitation}}
        (folder / "mine.yaml").write_text(yaml.safe_dump(settings))
        given = ["--configfile", "mine.yaml"]
    command = ["snakemake", "--cores", "1", *arguments, *given]
    done = subprocess.run(command, cwd=folder, env=environment, capture_output=True, text=True, check=False)
    text = done.stdout + done.stderr
    assert KEY not in text
    return text if done.returncode == 0 else f"FAILED\n{text}"


def planned(text: str) -> set[str]:
    return {rule for rule in ("unary", "consensus", "evidence", "pairwise") if f"rule elicit_{rule}:" in text}


@pytest.mark.slow
def test_a_live_run_is_asked_once_and_leaves_no_key(checkout: Path, endpoint: Endpoint) -> None:
    lab = Lab(checkout, phenotypes=("fever", "chill"), most_genes=4)
    live = {"live": True, "calls": 100}
    told = snakemake(checkout, endpoint, "bundle", **{**live, "calls": None})
    assert "no cap on what it may use" in told
    assert not endpoint.asked
    assert "FAILED" not in snakemake(checkout, endpoint, "bundle", **live)
    asked = len(endpoint.asked)
    assert asked == 2 * 3 + 2 * 6
    bundle = {path.name: path.read_bytes() for path in (checkout / "results/mine/bundle").glob("*.*")}

    files = [path for path in checkout.rglob("*") if path.is_file() and not path.is_symlink()]
    assert any(".snakemake/metadata" in str(path) for path in files)
    assert any(path.parent == lab.record for path in files)
    assert not [path for path in files if KEY.encode() in path.read_bytes()]

    # What a live stage appends to its record, and other caps, make nothing again.
    assert "Nothing to be done" in snakemake(checkout, endpoint, "-n", "results/mine/bundle/bundle.yaml", **live)
    assert "Nothing to be done" in snakemake(
        checkout,
        endpoint,
        "-n",
        "results/mine/bundle/bundle.yaml",
        **{**live, "tokens": 10**6, "calls": 99, "at_once": 2},
    )
    recorded = snakemake(checkout, endpoint, "bundle", live=False)
    assert planned(recorded) == {"unary", "consensus", "evidence", "pairwise"}
    assert len(endpoint.asked) == asked
    assert {path.name: path.read_bytes() for path in (checkout / "results/mine/bundle").glob("*.*")} == bundle
