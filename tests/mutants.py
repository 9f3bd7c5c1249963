"""How many small changes of the mathematics its tests notice: `make mutants`.

    python tests/mutants.py --sample 200 --seed 0 --out results/mutants.csv

A mutant is one changed operator, number or function in one file, in a copy of the project where only the tests of that
file run. It is killed where they fail, or take too long. The first run of each group of tests is without a change.
"""

from __future__ import annotations

import argparse
import ast
import csv
import os
import random
import shutil
import signal
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from fnmatch import fnmatch
from pathlib import Path
from typing import Any, NamedTuple

ROOT = Path(__file__).parents[1]
COPIED = ("afa", "tests", "resources", "docs", "config", "pyproject.toml")
ENGINE = (
    "engine/test_engine engine/test_engine_brackets engine/test_walk engine/test_explicit_engine"
    " engine/test_exclusive_engine engine/test_scale allocate/test_allocating"
)
TESTS = {  # the first pattern that fits a file names its tests
    "mrf": "test_mrf test_base_rates inference/test_meanfield",
    "closure": "test_closure test_shared_closure",
    "preference": "test_preference test_base_rates",
    "gain": "test_gain test_base_rates",
    "bracket": "test_bracket test_base_rates",
    "copeland": "test_copeland",
    "inference/meanfield": "inference/test_meanfield",
    "inference/exact": "inference/test_exact",
    "allocate/*": "allocate/test_allocate allocate/test_allocating",
    "engine/elimination*": "engine/test_engine_elimination inference/test_exact engine/test_score_distribution",
    "engine/sweeps": "engine/test_engine_sweeps engine/test_engine",
    "engine/paths": "engine/test_stopping_engine engine/test_engine stages/test_layer0_lift",
    "engine/ranks": "engine/test_precision allocate/test_allocating",
    "engine/gauges": "engine/test_engine_gauges",
    "engine/gains": "engine/test_engine_gains engine/test_engine engine/test_explicit_engine",
    "engine/implications": "planner/test_implied_planner engine/test_exclusive_engine",
    "engine/tasks": "engine/test_engine_tasks engine/test_stopping_engine test_shared_closure",
    "engine/rounds": "stages/test_layer1 allocate/test_allocating",
    "engine/walk": "engine/test_walk engine/test_engine",
    "engine/*": ENGINE,
}
NOT_MATHEMATICS = ("engine/warm", "engine/compile", "engine/kept", "*/__init__", "allocate/check")
AS_PYTHON, SECONDS = 200, 300
"""Of processor time that the tests of a mutant may take, with kernels as Python and with kernels compiled."""
SWAPS: dict[type[ast.AST], type[ast.AST]] = {
    ast.Add: ast.Sub,
    ast.Sub: ast.Add,
    ast.Mult: ast.Div,
    ast.Div: ast.Mult,
    ast.Lt: ast.LtE,
    ast.LtE: ast.Lt,
    ast.Gt: ast.GtE,
    ast.GtE: ast.Gt,
    ast.Eq: ast.NotEq,
    ast.NotEq: ast.Eq,
    ast.And: ast.Or,
    ast.Or: ast.And,
    ast.USub: ast.UAdd,
}
NAMES = {"min": "max", "minimum": "maximum", "argmin": "argmax", "any": "all", "exp": "log", "floor": "ceil"}
NAMES |= {other: one for one, other in NAMES.items()}


class Mutant(NamedTuple):
    """One change: the `number`th place of a file that can be changed, by line."""

    file: str
    number: int
    line: int
    change: str


def places(tree: ast.AST) -> Iterator[tuple[ast.AST, str, Any, int]]:
    """(node, field, changed value, line) of every change; texts have none."""
    for node in ast.walk(tree):
        line = getattr(node, "lineno", 0)
        if isinstance(node, ast.BinOp | ast.UnaryOp | ast.BoolOp) and type(node.op) in SWAPS:
            yield node, "op", SWAPS[type(node.op)](), line
        elif isinstance(node, ast.Compare) and type(node.ops[0]) in SWAPS:
            yield node, "ops", [SWAPS[type(node.ops[0])](), *node.ops[1:]], line
        elif isinstance(node, ast.AugAssign) and type(node.op) in SWAPS:
            yield node, "op", SWAPS[type(node.op)](), line
        elif isinstance(node, ast.Constant) and type(node.value) in (int, float):
            yield node, "value", node.value + 1, line
        elif isinstance(node, ast.Constant) and type(node.value) is bool:
            yield node, "value", not node.value, line
        elif isinstance(node, ast.Attribute) and node.attr in NAMES:
            yield node, "attr", NAMES[node.attr], line
        elif isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id in NAMES:
            yield node.func, "id", NAMES[node.func.id], line


def mutants() -> list[Mutant]:
    """Every mutant of the mathematics."""
    found = []
    for path in sorted((ROOT / "afa").rglob("*.py")):
        name = path.relative_to(ROOT / "afa").with_suffix("").as_posix()
        if any(fnmatch(name, pattern) for pattern in NOT_MATHEMATICS) or not tests_of(name):
            continue
        for number, (node, field, value, line) in enumerate(places(ast.parse(path.read_text(encoding="utf-8")))):
            before = ast.unparse(node)
            setattr(node, field, value)
            found.append(Mutant(name, number, line, f"{before} -> {ast.unparse(node)}"))
    return found


def tests_of(name: str) -> list[str]:
    """The tests that must notice a change of a file."""
    names = next((names for pattern, names in TESTS.items() if fnmatch(name, pattern)), "")
    return [f"tests/{test}.py" for test in names.split()]


def outcome(tests: list[str], mutant: Mutant | None) -> str:
    """`killed`, `late` or `survived`: what the tests make of a mutant, or of no change.

    A kernel is run as the Python that it is written in; only where that takes too long is it compiled, with all others.
    """
    with tempfile.TemporaryDirectory() as folder:
        copy = Path(folder) / "project"
        copy.mkdir()
        for name in COPIED:
            source = ROOT / name
            if source.is_dir():
                shutil.copytree(source, copy / name, ignore=shutil.ignore_patterns("__pycache__"))
            else:
                shutil.copy(source, copy)
        if mutant is not None:
            path = copy / "afa" / f"{mutant.file}.py"
            tree = ast.parse(path.read_text(encoding="utf-8"))
            node, field, value, _ = list(places(tree))[mutant.number]
            setattr(node, field, value)
            path.write_text(ast.unparse(tree), encoding="utf-8")
        found = tried(tests, copy, AS_PYTHON, NUMBA_DISABLE_JIT="1")
        return found if found != "late" else tried(tests, copy, SECONDS, NUMBA_CACHE_DIR=str(Path(folder) / "kernels"))


def tried(tests: list[str], copy: Path, seconds: int, **environment: str) -> str:
    """What the tests of a copy make of it in so many seconds of processor time."""
    command = ["bash", "-c", f'ulimit -t {seconds}; exec "$0" -m pytest -x -q -m "not slow" -p no:cacheprovider "$@"']
    done = subprocess.run(
        [*command, sys.executable, *tests],
        cwd=copy,
        env={**os.environ, "CI": "true", "PYTHONPATH": str(copy), **environment},
        capture_output=True,
        check=False,
    )
    if done.returncode in (-signal.SIGXCPU, -signal.SIGKILL):
        return "late"
    return "survived" if done.returncode == 0 else "killed"


def main() -> None:
    """Try a sample, and write each outcome as it comes: what an interrupted run has written is a sample too."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--sample", type=int, default=200)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--only", default="*", help="files by a pattern, such as 'engine/*'")
    parser.add_argument("--out", type=Path, required=True)
    given = parser.parse_args()
    everything = [mutant for mutant in mutants() if fnmatch(mutant.file, given.only)]
    sample = random.Random(given.seed).sample(everything, min(given.sample, len(everything)))
    groups = sorted({tuple(tests_of(mutant.file)) for mutant in sample})
    given.out.parent.mkdir(parents=True, exist_ok=True)
    outcomes = []
    with (
        ThreadPoolExecutor(len(os.sched_getaffinity(0))) as pool,
        given.out.open("w", newline="", encoding="utf-8", buffering=1) as stream,
    ):
        for group, found in zip(groups, pool.map(lambda group: outcome(list(group), None), groups), strict=True):
            if found != "survived":
                sys.exit(f"mutants: {' '.join(group)}: found {found} without a change; expected tests that pass")
        writer = csv.writer(stream, lineterminator="\n")
        writer.writerow([*Mutant._fields, "outcome"])
        tried_ones = pool.map(lambda mutant: outcome(tests_of(mutant.file), mutant), sample)
        for mutant, found in zip(sample, tried_ones, strict=True):
            outcomes.append(found)
            writer.writerow([*mutant, found])
            if found == "survived":
                sys.stdout.write(f"survived: afa/{mutant.file}.py, line {mutant.line}: {mutant.change}\n")
    killed = len(sample) - outcomes.count("survived")
    sys.stdout.write(f"{killed} of {len(sample)} killed, {outcomes.count('late')} of them by time\n")


if __name__ == "__main__":
    main()
