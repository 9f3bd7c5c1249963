"""How many small changes of the mathematics its tests notice: `make mutants`.

    python tests/mutants.py --sample 200 --seed 0 --out results/mutants.csv

A mutant is one changed operator, number or function in one file, in a copy of the project. All tests of the mathematics
run once without a change, which says which of them reach which line. Those that reach the line of a mutant then meet
it. It is killed where they fail, or take too long.
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
from collections import Counter
from collections.abc import Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from fnmatch import fnmatch
from pathlib import Path
from typing import Any, NamedTuple

from coverage import CoverageData

ROOT = Path(__file__).parents[1]
CORES = len(os.sched_getaffinity(0))
COPIED = ("afa", "tests", "resources", "docs", "config", "pyproject.toml")
MATHEMATICS = (
    *("model/mrf", "model/closure", "scores/*", "inference/class_odds", "inference/meanfield", "inference/exact"),
    *("planner/rules/*", "engine/*"),
)
NOT_MATHEMATICS = ("engine/warm", "engine/compile", "*/__init__", "planner/rules/check")
TESTS = (
    *("model/test_mrf", "model/test_base_rates", "model/test_closure", "model/test_shared_closure", "scores/test_*"),
    *("paper/experiments/test_layer0_lift", "paper/experiments/test_layer1"),
    *("inference/test_*", "planner/test_*", "engine/test_*"),
)
NOT_OF_IT = (
    *("engine/test_engine_cache", "engine/test_engine_warm"),
    *("planner/test_check_policy", "planner/test_session", "planner/test_frames"),
)
AS_PYTHON, COMPILED = 500, 300
"""Seconds of processor time that the tests may take, with kernels as Python and with kernels compiled."""
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


def named(folder: str, patterns: Iterable[str], without: Iterable[str]) -> dict[str, Path]:
    """The Python files of a folder by names such as `engine/walk`: those that fit a pattern, without some."""
    paths = sorted((ROOT / folder).rglob("*.py"))
    names = {path.relative_to(ROOT / folder).with_suffix("").as_posix(): path for path in paths}
    fit = {name for pattern in patterns for name in names if fnmatch(name, pattern)}
    not_fit = {name for pattern in without for name in names if fnmatch(name, pattern)}
    return {name: path for name, path in names.items() if name in fit - not_fit}


def mutants() -> list[Mutant]:
    """Every mutant of the mathematics."""
    found = []
    for name, path in named("afa", MATHEMATICS, NOT_MATHEMATICS).items():
        for number, (node, field, value, line) in enumerate(places(ast.parse(path.read_text(encoding="utf-8")))):
            before = ast.unparse(node)
            setattr(node, field, value)
            found.append(Mutant(name, number, line, f"{before} -> {ast.unparse(node)}"))
    return found


@contextmanager
def copied() -> Iterator[Path]:
    """A copy of the project, to be changed."""
    with tempfile.TemporaryDirectory() as folder:
        for source in (ROOT / name for name in COPIED):
            if source.is_dir():
                shutil.copytree(source, Path(folder) / source.name, ignore=shutil.ignore_patterns("__pycache__"))
            else:
                shutil.copy(source, folder)
        yield Path(folder)


def tried(copy: Path, seconds: int, *arguments: str, **environment: str) -> str:
    """What the tests of a copy make of it in so many seconds of processor time: `killed`, `late` or `survived`."""
    command = ["bash", "-c", f'ulimit -t {seconds}; exec "$0" -m pytest -x -q -m "not slow" -p no:cacheprovider "$@"']
    done = subprocess.run(
        [*command, sys.executable, *arguments],
        cwd=copy,
        env={**os.environ, "CI": "true", "PYTHONPATH": str(copy), **environment},
        capture_output=True,
        check=False,
    )
    if done.returncode in (-signal.SIGXCPU, -signal.SIGKILL):
        return "late"
    return "survived" if done.returncode == 0 else "killed"


class Reach:
    """Which tests reach which lines, by a run of all tests of the mathematics without a change."""

    def __init__(self) -> None:
        self.tests = [f"tests/{name}.py" for name in named("tests", TESTS, NOT_OF_IT)]
        self.lines: dict[str, dict[int, set[str]]] = {}
        with copied() as copy:
            measure = ("-n", str(CORES), "--cov=afa", "--cov-context=test", "--cov-report=")
            found = tried(copy, 10 * AS_PYTHON, *measure, *self.tests, NUMBA_DISABLE_JIT="1")
            if found != "survived":
                sys.exit(f"mutants: found {found} without a change; expected tests that pass")
            data = CoverageData(str(copy / ".coverage"))
            data.read()
            for path in data.measured_files():
                self.lines[Path(path).relative_to(copy.resolve() / "afa").with_suffix("").as_posix()] = {
                    line: {of_context(context) for context in contexts}
                    for line, contexts in data.contexts_by_lineno(path).items()
                }

    def tests_of(self, mutant: Mutant) -> list[str]:
        """The tests that reach the statement of a mutant; all, where importing reaches it."""
        tree = ast.parse((ROOT / "afa" / f"{mutant.file}.py").read_text(encoding="utf-8"))
        around = [
            lines for node in ast.walk(tree) if isinstance(node, ast.stmt) and mutant.line in (lines := span(node))
        ]
        reached = {test for line in around[-1] for test in self.lines.get(mutant.file, {}).get(line, ())}
        whole = {test for test in reached if "::" not in test}
        single = {test for test in reached - whole if test.split("::")[0] not in whole}
        return self.tests if "" in whole else sorted(whole | single)


def of_context(context: str) -> str:
    """The test that a line was reached in; its file, where a fixture did, which other tests may share."""
    test, _, phase = context.rpartition("|")
    return test if phase == "run" else test.split("::")[0]


def span(statement: ast.stmt) -> range:
    """The lines of a statement, with its decorators and without its body."""
    first = min([statement.lineno, *(decorator.lineno for decorator in getattr(statement, "decorator_list", ()))])
    body = getattr(statement, "body", None)
    end = max(statement.lineno, body[0].lineno - 1) if body else statement.end_lineno or statement.lineno
    return range(first, end + 1)


def outcome(tests: list[str], mutant: Mutant) -> str:
    """What the tests make of a mutant: `unreached` where there are none.

    A kernel is run as the Python that it is written in; only where that takes too long is it compiled, with all others.
    """
    if not tests:
        return "unreached"
    with copied() as copy:
        path = copy / "afa" / f"{mutant.file}.py"
        tree = ast.parse(path.read_text(encoding="utf-8"))
        node, field, value, _ = list(places(tree))[mutant.number]
        setattr(node, field, value)
        path.write_text(ast.unparse(tree), encoding="utf-8")
        listed = "@reaching.txt"
        (copy / listed[1:]).write_text("\n".join(tests), encoding="utf-8")
        found = tried(copy, AS_PYTHON, listed, NUMBA_DISABLE_JIT="1")
        return found if found != "late" else tried(copy, COMPILED, listed, NUMBA_CACHE_DIR=str(copy / "kernels"))


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
    given.out.parent.mkdir(parents=True, exist_ok=True)
    reach = Reach()
    counts: Counter[str] = Counter()
    with ThreadPoolExecutor(CORES) as pool, given.out.open("w", newline="", encoding="utf-8", buffering=1) as stream:
        writer = csv.writer(stream, lineterminator="\n")
        writer.writerow([*Mutant._fields, "outcome"])
        for mutant, found in zip(sample, pool.map(lambda one: outcome(reach.tests_of(one), one), sample), strict=True):
            counts[found] += 1
            writer.writerow([*mutant, found])
            if found in ("survived", "unreached"):
                sys.stdout.write(f"{found}: afa/{mutant.file}.py, line {mutant.line}: {mutant.change}\n")
    sys.stdout.write(f"{counts['killed'] + counts['late']} of {len(sample)} killed, {counts['late']} of them by time\n")


if __name__ == "__main__":
    main()
