"""A program broken on purpose stops the workflow at its sanity stage, with the name of the check and the case."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
TARGET = "results/mine/tables/sanity/gates.parquet"
SETTINGS = ("--config", "cohort=demo", "bundle=tests/data/bundle_tiny", "run=mine")

LAYOUT_WITHOUT_COUPLINGS = """
from afa.engine import layout

whole = layout.pack

def pack(bundle):
    packed = whole(bundle)
    return packed._replace(coupling=0 * packed.coupling)

layout.pack = pack
"""

WALD_OF_THE_ELBO = """
from afa.engine import paths

whole = paths.snapshots

def read(*inputs, **settings):
    found = whole(*inputs, **settings)
    return found._replace(constant=found.elbo)

paths.snapshots = read
"""

ELBO_A_NAT_TOO_HIGH = """
from afa.engine import paths

whole = paths.snapshots

def read(*inputs, **settings):
    found = whole(*inputs, **settings)
    return found._replace(elbo=found.elbo + 1.0)

paths.snapshots = read
"""

L1_WITHOUT_ITS_BUDGET = """
from afa.engine import rounds

whole = rounds.shared_order_calls

def broken(*inputs, **settings):
    return whole(*inputs, **{**settings, "budget_share": 0.0})

rounds.shared_order_calls = broken
"""

TIES_BROKEN_BY_POSITION = """
from afa import copeland

def ranking(scores, names, *, tie=0.0):
    wins = copeland.copeland_wins(scores, tie=tie)
    return [names[v] for v in sorted(range(len(names)), key=lambda v: -wins[v])]

copeland.ranking = ranking
"""

BROKEN = {
    "full_observation": (LAYOUT_WITHOUT_COUPLINGS, r"entity \S+, patient \S+, t = 5: running constant \S+ "),
    "gauge": (WALD_OF_THE_ELBO, r"entity \S+ as a binary task, patient \S+, t = \d: wald \S+ "),
    "mean_field": (ELBO_A_NAT_TOO_HIGH, r"model \S+, patient \S+, t = \d: ELBO \S+ .* at most log Z = "),
    "bracket_soundness": (
        L1_WITHOUT_ITS_BUDGET,
        r"pair \S+ against \S+, patient \S+, seed 0, t = \d: a call for .* l1",
    ),
    "copeland": (TIES_BROKEN_BY_POSITION, r"patient \S+, t = \d, rank \d: \S+ with entities shuffled"),
}


def snakemake(folder: Path, target: str) -> subprocess.CompletedProcess[str]:
    path = os.pathsep.join([str(folder / "bin"), str(Path(sys.executable).parent), os.environ["PATH"]])
    command = ["snakemake", "--cores", "2", target, *SETTINGS]
    environment = {**os.environ, "PATH": path}
    return subprocess.run(command, cwd=folder, env=environment, capture_output=True, text=True, check=False)


def install_afa(folder: Path, change: str) -> None:
    """An `afa` that stands first on the path: the project's own, after `change` has been made to it."""
    command = folder / "bin" / "afa"
    command.parent.mkdir(exist_ok=True)
    command.write_text(f"#!{sys.executable}\n{change}\nfrom afa.cli import main\n\nmain()\n")
    command.chmod(0o755)


@pytest.fixture(scope="module")
def prepared(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A checkout whose bundle and cohort are made, by a healthy program."""
    folder = tmp_path_factory.mktemp("checkout")
    for name in ("profiles", "notebooks", "resources", "envs", "docs", "tests"):
        (folder / name).symlink_to(ROOT / name)
    shutil.copytree(ROOT / "workflow", folder / "workflow")
    shutil.copytree(ROOT / "config", folder / "config")
    install_afa(folder, "")
    made = snakemake(folder, "results/mine/cohort/cohort.yaml")
    assert made.returncode == 0, made.stderr
    return folder


@pytest.mark.parametrize("gate", BROKEN)
def test_a_broken_program_stops_the_run_with_the_checks_name_and_the_case(prepared: Path, gate: str) -> None:
    change, case = BROKEN[gate]
    install_afa(prepared, change)
    run = snakemake(prepared, TARGET)
    said = run.stdout + run.stderr
    assert run.returncode != 0, said
    assert re.search(rf"sanity check {gate} \((run|synthetic)\): found .*{case}", said), said
    assert "Traceback" not in said
    assert not list((prepared / TARGET).parent.glob("*"))


def test_the_program_as_it_is_passes_the_same_stage(prepared: Path) -> None:
    install_afa(prepared, "")
    run = snakemake(prepared, TARGET)
    assert run.returncode == 0, run.stdout + run.stderr
    assert (prepared / TARGET).is_file()
