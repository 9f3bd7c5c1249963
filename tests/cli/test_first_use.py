"""The first minute: help, version, the example, and kernels that a small bundle can do without."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest
from commands import afa

import afa as package

ROOT = Path(__file__).parents[2]
TINY = ROOT / "tests/data/bundle_tiny"
EXAMPLE = ROOT / "afa" / "examples" / "anaemia" / "bundle"
WITHOUT = """
import json
from afa.engine import compile as compiling
compiling.do_without()
from cli.test_first_use import said
print(json.dumps(said()))
"""


def said() -> list[list[object]]:
    """What a planner chooses, says and computes in three steps."""
    planner, told = package.TopKPlanner(package.load_bundle(TINY), k=2), []
    for value in (1, 0, -1):
        item = planner.suggest()
        told.append([item.name, item.reason, planner.posterior().tolist(), planner.boundary_probability()])
        planner.observe(item.name, value)
    return told


def test_help_lists_what_a_user_needs_and_names_the_other_commands_in_one_line() -> None:
    shown = afa("-h").stdout
    assert "Says which measurement to take next, from what you know." in shown
    listed = re.findall(r"^│ ([a-z]+) ", shown.partition("Commands")[2], re.MULTILINE)
    assert listed == ["demo", "plan", "serve", "simulate", "score", "update", "encode", "bundle", "elicit"]
    others = " ".join(shown.partition("Other commands")[2].split())
    for command in ("field", "cohort", "league", "experiment", "summary", "notebook", "publish", "report"):
        assert re.search(rf"\b{command}[,.]", others)
        assert afa(command, "-h").returncode == 0
    assert afa("plan", "-h").stdout == afa("plan", "--help").stdout


@pytest.mark.parametrize(
    ("typed", "said"),
    [
        ("frob", "afa: found no such command 'frob'"),
        ("bundle frob", "afa: bundle: found no such command 'frob'"),
        ("plan", "afa: plan: found no BUNDLE"),
        ("plan --frob", "afa: plan: found the unknown option --frob"),
        ("plan x --k no", "afa: plan, --k: found 'no'"),
    ],
)
def test_an_error_names_the_program_once(typed: str, said: str) -> None:
    assert afa(*typed.split()).stderr.startswith(said)


def test_the_version_is_told_by_the_program_and_by_the_module() -> None:
    assert afa("--version").stdout == f"afa {package.__version__}\n"
    ran = subprocess.run([sys.executable, "-m", "afa", "--version"], capture_output=True, text=True, check=True)
    assert ran.stdout == f"afa {package.__version__}\n"


def test_the_example_is_planned_by_return_alone() -> None:
    ran = afa("demo", typed="\n" * 30)
    assert ran.returncode == 0, ran.stderr
    shown = " ".join(ran.stdout.split())
    assert "condensing_over_ambient: high" in shown
    assert "usual: 8 to 15 K; type the number" in shown
    assert "Done: the answer has posterior probability 0.8" in shown
    assert "dirty_condenser (probability 0." in shown
    assert "if usual:" in shown
    lines = ran.stdout.splitlines()
    assert max(map(len, lines)) <= 80, "the first and the last lines break between words"
    other = afa("demo", "--example", "anaemia", typed="\n" * 30)
    assert "mcv: low" in other.stdout
    assert "Done: the answer has posterior probability" in other.stdout
    assert "iron_deficiency (ahead by" in other.stdout


def test_the_example_is_copied_and_planned_as_ones_own(tmp_path: Path) -> None:
    assert afa("demo", "--copy", tmp_path / "mine").returncode == 0
    ran = afa("plan", tmp_path / "mine" / "bundle", typed="superheat=3\n")
    assert "superheat: 3 K is low" in ran.stdout
    again = afa("demo", "--copy", tmp_path / "mine")
    assert (again.returncode, "found a folder with other files" in again.stderr) == (2, True)
    assert "expected one of typical_dirty_condenser" in afa("demo", "--patient", "nobody").stderr


def test_kernels_that_are_not_compiled_choose_and_say_the_same() -> None:
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(map(str, (ROOT / "tests", ROOT / "tests/support")))}
    command = [sys.executable, "-c", WITHOUT]
    ran = subprocess.run(command, capture_output=True, text=True, check=True, env=environment)
    for plain, compiled in zip(json.loads(ran.stdout), said(), strict=True):
        assert plain[:2] == compiled[:2]
        assert plain[2] == pytest.approx(compiled[2], abs=1e-12)
        assert plain[3] == pytest.approx(compiled[3], abs=1e-12)


@pytest.mark.parametrize(("small", "started_words"), [(20_000, None), (10, "-m afa.engine.warm planners")])
def test_a_bundle_that_is_not_large_waits_for_no_compiler(
    tmp_path: Path, small: int, started_words: str | None
) -> None:
    """A small one never needs it; for one of middle size another process compiles for the next start."""
    started = tmp_path / "started"
    look = f"""
import subprocess, sys
from afa.cli import plan
plan.FAST_SIZE = {small}
real, sys.argv = subprocess.Popen, ["afa", "plan", {str(EXAMPLE)!r}]
subprocess.Popen = lambda command, **_: open({str(started)!r}, "w").write(" ".join(command[1:]))
from afa.cli import main
try:
    main()
finally:
    from afa.engine.state import elbos
    print(type(elbos).__name__, "numba" in sys.modules, "pandas" in sys.modules)
"""
    environment = {**os.environ, "NUMBA_CACHE_DIR": str(tmp_path / "cache")}
    ran = subprocess.run(
        [sys.executable, "-c", look], env=environment, input="quit\n", capture_output=True, text=True, check=False
    )
    assert "mcv (cost 1)" in ran.stdout, ran.stderr
    assert ran.stdout.endswith("function False False\n")
    assert (started.read_text() if started.exists() else None) == started_words
    assert not list((tmp_path / "cache").rglob("*.nbc"))


def test_what_a_bundle_holds_is_told_to_other_programs() -> None:
    told = json.loads(afa("bundle", "show", EXAMPLE, "--json").stdout)
    assert (told["name"], len(told["rows"]), len(told["digest"])) == ("anaemia", 10, 64)
    rows = json.loads(afa("bundle", "show", EXAMPLE, "--features", "--json").stdout)["rows"]
    assert {row["feature"]: row["cost"] for row in rows}["ferritin"] == 2.0


def test_a_name_in_other_letters_is_recognised_as_what_is_meant() -> None:
    ran = afa("plan", EXAMPLE, "--first", "FERITIN")
    assert "Next step: did you mean ferritin" in ran.stderr


def test_a_table_without_a_value_and_a_header_with_blanks_are_told(tmp_path: Path) -> None:
    names = ",".join(package.load_bundle(TINY).features)
    (tmp_path / "empty.csv").write_text(f"patient,{names}\na,,,,,\n", encoding="utf-8")
    refused = afa("simulate", TINY, tmp_path / "empty.csv", "--out", tmp_path / "out")
    assert "found no value of any feature" in refused.stderr
    (tmp_path / "few.csv").write_text(f"patient,{names},\na,1,,,,,\n", encoding="utf-8")
    made = afa(
        "simulate", TINY, tmp_path / "few.csv", "--out", tmp_path / "out", "--resamples", "10", "--explorer", "0"
    )
    assert "80 % of the values were not measured" in made.stdout
    assert "does not know them (1): one without a name" in made.stdout
    (tmp_path / "blank.csv").write_text(f"patient, {names}\na,1,0,0,0,0\n", encoding="utf-8")
    refused = afa("simulate", TINY, tmp_path / "blank.csv", "--out", tmp_path / "other")
    assert "remove the blanks around" in refused.stderr
