"""Speed of afa against a plain dense NumPy version of the same formulas: one command, one table.

    python benchmarks/bench.py --bundle FOLDER --cohort FOLDER --out FOLDER [--quick]

Prints the table and writes `bench.json` and `bench.md`. README.md says what each row measures.
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import subprocess
import sys
import tempfile
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from importlib.metadata import version
from pathlib import Path
from typing import Any

import numpy as np
from growth import MEMORY_LIMIT, SECONDS_LIMIT, exponent

from afa.cohort.cohort import load_cohort

SCORE_TOLERANCE = 1e-9
JOBS = Path(__file__).parent / "jobs.py"
Result = dict[str, Any]


class JobError(Exception):
    """A job that did not finish, and why."""


@dataclass(frozen=True)
class Row:
    """One line of the table.

    goal : in words, `met` decides from seconds, units per second and the ratio. against : job and argument of the plain
    version; `per` names the units that the two are compared by. checked : the results that must be equal.
    """

    work: str
    job: str
    argument: str
    unit: str
    goal: str = ""
    met: Callable[[float, float, float | None], bool] | None = None
    against: tuple[str, str] | None = None
    per: str = "units"
    checked: tuple[str, str] | None = None


@dataclass(frozen=True)
class Curve:
    """Time against one size: points are (size, argument of the job)."""

    work: str
    size: str
    job: str
    points: Sequence[tuple[int, str]]
    setting: str = field(default="")


def table_rows() -> list[Row]:
    """The work that is measured, and its goals."""
    rows = []
    for start, goal in (("uniform", 60_000), ("warm", 100_000)):
        rows.append(
            Row(
                f"mean-field solves along random orders, all scores, {start} start",
                "scored_solves",
                start,
                "solves",
                f"> {goal:,} / s",
                lambda _, rate, __, goal=goal: rate > goal,
                ("plain_solves", start),
                checked=(f"solves_{start}", f"plain_{start}"),
            )
        )
        rows.append(Row(f"the same solves alone, {start} start", "bare_solves", start, "solves"))
    rows.append(
        Row(
            "sign convergence, whole cohort",
            "convergence",
            "-",
            "trajectories",
            "< 10 s, > 100 x plain in batches of 10",
            lambda seconds, _, ratio: seconds < 10 and ratio is not None and ratio > 100,
            ("plain_solves", "uniform"),
            per="trajectories",
            checked=("solves_uniform", "plain_uniform"),
        )
    )
    for gain, goal in (("wald_magnitude", 2), ("cmi", 10), ("f_target", 100)):
        rows.append(
            Row(
                f"one decision, greedy, {gain}",
                "decisions",
                gain,
                "decisions",
                f"< {goal} ms median",
                lambda seconds, _, __, goal=goal: 1e3 * seconds < goal,
                ("plain_decisions", gain),
                checked=(f"decisions_{gain}", f"plain_{gain}"),
            )
        )
    below = {"goal": "< 1 s", "met": lambda seconds, _, __: seconds < 1}
    rows.append(Row("import afa, fresh process", "importing", "afa", "imports", **below))
    rows.append(Row("import afa.planner, fresh process", "importing", "afa.planner", "imports", **below))
    rows.append(Row("first sign_paths, fresh process, warm cache", "first_call", "-", "calls", **below))
    rows.append(Row("first decision, fresh process, warm cache", "first_decision", "-", "calls", **below))
    exact_goal = {"goal": "< 15 s", "met": lambda seconds, _, __: seconds < 15}
    rows.append(Row("exact inference, nothing observed", "exact_all", "-", "entities", **exact_goal))
    grid_goal = {"goal": "< 180 s", "met": lambda seconds, _, __: seconds < 180}
    rows.append(Row("allocation grid, whole cohort", "allocation_stage", "-", "trajectories", **grid_goal))
    rows.append(Row("binary task, whole cohort", "binary_stage", "-", "trajectories"))
    often = {"goal": "< 1.3 x the paper's closure", "met": lambda _, __, times: times < 1.3}
    rows.append(Row("binary tasks by how often", "by_how_often", "-", "trajectories", **often))
    rows.append(Row("both gauges of every duel", "gauge_stage", "-", "trajectories"))
    rows += [Row("exact log-odds of many states", "exact_states", share, "states") for share in ("0.2", "0.6")]
    rows.append(Row("same bytes with 1 and 2 threads", "same_bytes", "-", "runs", "equal"))
    return rows


def growth_curves(*, quick: bool) -> list[Curve]:
    """The curves, from the smallest size up."""
    entities = (5, 10) if quick else (25, 50, 100, 200, 500, 1000)
    features = (50, 100) if quick else (253, 500, 1000, 2500, 5000)
    patients = (2, 4) if quick else (10, 20, 40, 80, 160, 320)
    synthetic = "synthetic entities of 22 features with about 8 couplings each"
    return [
        Curve(
            "decision, cmi, greedy",
            "N",
            "decision_growth",
            [(n, f"{n}x253") for n in entities],
            f"M = 253, {synthetic}",
        ),
        Curve(
            "decision, cmi, greedy", "M", "decision_growth", [(m, f"25x{m}") for m in features], f"N = 25, {synthetic}"
        ),
        Curve(
            "sign convergence, 1 order",
            "P",
            "convergence_growth",
            [(p, str(p)) for p in patients],
            "the bundle and cohort given",
        ),
    ]


@dataclass(frozen=True)
class Bench:
    """Runs jobs and compares what they leave."""

    bundle: Path
    cohort: Path
    scratch: Path
    quick: bool

    def run(self, job: str, argument: str, *, blas: int | None = None, limit: float | None = None) -> Result:
        """One job in a fresh process; `blas` is its number of BLAS threads, `limit` its seconds."""
        sys.stderr.write(f"{job} {argument}{f', {blas} BLAS threads' if blas else ''}\n")
        command = [sys.executable, str(JOBS), job, argument]
        for name in ("bundle", "cohort", "scratch"):
            command += [f"--{name}", str(getattr(self, name))]
        environment = dict(os.environ)
        if blas:
            environment |= {"OPENBLAS_NUM_THREADS": str(blas), "OMP_NUM_THREADS": str(blas)}
        try:
            done = subprocess.run(
                command + ["--quick"] * self.quick,
                check=False,
                env=environment,
                capture_output=True,
                text=True,
                timeout=limit,
            )
        except subprocess.TimeoutExpired:
            raise JobError(f"more than {limit:g} s") from None
        if done.returncode != 0:
            last = done.stderr.strip().splitlines()[-1] if done.stderr.strip() else f"signal {-done.returncode}"
            raise JobError(f"more than {MEMORY_LIMIT / 1e9:g} GB" if "MemoryError" in last else last)
        result: Result = json.loads(done.stdout.splitlines()[-1])  # stages print their progress before it
        return result

    def plain(self, job: str, argument: str, known: dict[tuple[str, str], Result]) -> Result:
        """A plain job, kept in `known`; the first one is run with 1 and 2 BLAS threads, and the faster stays."""
        if (job, argument) not in known:
            settled = next((result["blas"] for result in known.values()), None)
            choices = (settled,) if settled else (1,) if self.quick else (1, 2)
            found = ({**self.run(job, argument, blas=threads), "blas": threads} for threads in choices)
            known[job, argument] = min(found, key=lambda result: result["seconds"])
        return known[job, argument]

    def row(self, row: Row, known: dict[tuple[str, str], Result]) -> Result:
        """One row measured; `known` keeps the results of plain jobs, which rows share."""
        found = self.run(row.job, row.argument)
        rate = found["units"] / found["seconds"]
        line = {
            "work": row.work,
            "seconds": found["seconds"],
            "unit": row.unit,
            "units": found["units"],
            "per_second": rate,
            "peak_mb": found["peak_mb"],
            "goal": row.goal,
            "note": found["note"],
            **{name: found[name] for name in ("p99", "max", "observe") if name in found},
        }
        ratio = found.get("times")
        if row.against:
            other = self.plain(*row.against, known)
            ours = found.get("compared_seconds", found["seconds"]) / found["units"]
            theirs = other["seconds"] / other[row.per]
            ratio = theirs / ours
            line |= {"plain_per_unit": theirs, "plain_seconds": other["seconds"], "plain_peak_mb": other["peak_mb"]}
            line |= {"plain_blas_threads": other["blas"], "ratio": ratio}
            for batch in ("alone", "ten"):
                if batch in other:
                    each = other[batch]["seconds"] / other[batch][row.per]
                    line |= {f"plain_{batch}_per_unit": each, f"ratio_{batch}": each / ours}
        if row.checked:
            line |= self.compare(*row.checked)
        line["met"] = row.met(found["seconds"], rate, line.get("ratio_ten", ratio)) if row.met else found.get("equal")
        return line

    def compare(self, ours: str, theirs: str) -> Result:
        """Number of decisions compared and differing, and the largest difference of a score where scores are kept."""
        with np.load(self.scratch / f"{ours}.npz") as a, np.load(self.scratch / f"{theirs}.npz") as b:
            found = {
                "compared": int(a["decisions"].size),
                "differing": int((a["decisions"] != b["decisions"]).sum()),
                "patients": int(a["decisions"].shape[1 if a["decisions"].ndim == 4 else 0]),
            }
            if "scores" in a:
                found["score_difference"] = float(np.abs(a["scores"] - b["scores"]).max())
            return found

    def curve(self, curve: Curve) -> Result:
        """The points of a curve, up to the first that exceeds the limits."""
        points, stopped = [], None
        for size, argument in curve.points:
            try:
                points.append({"size": size, **self.run(curve.job, argument, limit=SECONDS_LIMIT)})
            except JobError as reason:
                stopped = f"stopped at {curve.size} = {size}: {reason}"
                break
        slope = exponent([point["size"] for point in points], [point["seconds"] for point in points])
        return {**vars(curve), "points": points, "exponent": slope, "stopped": stopped}


def machine(cohort: Path) -> Result:
    """Processor, cores, versions, and how busy the machine was at the start."""
    models = [line.split(":")[1].strip() for line in _lines("/proc/cpuinfo") if line.startswith("model name")]
    blas = np.show_config(mode="dicts")["Build Dependencies"]["blas"]
    return {
        "cpu": models[0] if models else platform.processor(),
        "cores": len(os.sched_getaffinity(0)),
        "load": round(os.getloadavg()[0], 2),
        "python": platform.python_version(),
        **{name: version(name) for name in ("numpy", "numba", "afa")},
        "blas": f"{blas['name']} {blas['version']}",
        "cohort": load_cohort(cohort).name,
    }


def _lines(path: str) -> list[str]:
    return Path(path).read_text().splitlines() if Path(path).exists() else []


def as_markdown(bench: Result) -> str:
    """The tables as text."""
    lines = ["# Benchmark", "", ", ".join(f"{key} {value}" for key, value in bench["machine"].items()), ""]
    if bench["quick"]:
        lines += ["`--quick`: small sizes that show that the benchmark works; the numbers mean nothing.", ""]
    lines += ["| work | time | rate | peak MB | goal | met | plain, per unit | ratio | differing | notes |"]
    lines += ["|---|---:|---:|---:|---|---|---:|---:|---:|---|"]
    for row in bench["rows"]:
        shown = f"{row['per_second']:,.0f}" if row["per_second"] >= 1000 else f"{row['per_second']:.3g}"
        rate = f"{shown} {row['unit']} / s" if row["units"] > 1 else ""
        plain, ratio, differing = "", "", ""
        if "ratio" in row:
            plain, ratio = span(row["plain_per_unit"]), f"{row['ratio']:.3g}"
            differing = f"{row['differing']} of {row['compared']:,}"
        met = "" if row["met"] is None else "yes" if row["met"] else "**no**"
        cells = [row["work"], span(row["seconds"]), rate, f"{row['peak_mb']:.0f}", row["goal"], met]
        lines.append("| " + " | ".join([*cells, plain, ratio, differing, row["note"]]) + " |")
    compared = [row for row in bench["rows"] if "ratio" in row]
    scores = max((row.get("score_difference", 0.0) for row in compared), default=0.0)
    batches = "; ".join(
        f"'{row['work']}': {span(row['plain_alone_per_unit'])} a unit on one patient alone (ratio "
        f"{row['ratio_alone']:.3g}), {span(row['plain_ten_per_unit'])} in a batch of ten (ratio {row['ratio_ten']:.3g})"
        for row in compared
        if "ratio_alone" in row
    )
    lines += [
        "",
        f"Plain version: {compared[0]['patients']} patients in one batch for the solves, "
        f"{compared[-1]['patients']} one by one for decisions; BLAS threads: {compared[0]['plain_blas_threads']}, the "
        f"faster of 1 and 2; peak {max(row['plain_peak_mb'] for row in compared):.0f} MB. "
        f"A larger batch serves it well. {batches}. "
        f"Scores differ by at most {scores:.1g} (tolerance {SCORE_TOLERANCE:g}).",
        "",
        "## Growth",
    ]
    for curve in bench["curves"]:
        slope = "too few points" if curve["exponent"] is None else f"time ~ {curve['size']}^{curve['exponent']:.2f}"
        lines += ["", f"{curve['work']} against {curve['size']} ({curve['setting']}): {slope}", ""]
        lines += [f"| {curve['size']} | time | first | observe | peak MB |", "|---:|---:|---:|---:|---:|"]
        for point in curve["points"]:
            first, observe = (span(point[key]) if key in point else "" for key in ("first_decision", "observe"))
            cells = [str(point["size"]), span(point["seconds"]), first, observe, f"{point['peak_mb']:.0f}"]
            lines.append("| " + " | ".join(cells) + " |")
        lines += ["", curve["stopped"]] if curve["stopped"] else []
    lines += [
        "",
        f"A curve stops at the first point that takes more than {SECONDS_LIMIT} s or {MEMORY_LIMIT / 1e9:g} GB.",
    ]
    return "\n".join(lines) + "\n"


def span(seconds: float) -> str:
    """Seconds in the unit that reads best."""
    for unit, factor in (("s", 1.0), ("ms", 1e3), ("us", 1e6)):
        if seconds * factor >= 1 or unit == "us":
            return f"{seconds * factor:.3g} {unit}"
    raise AssertionError


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    for name in ("bundle", "cohort", "out"):
        parser.add_argument(f"--{name}", type=Path, required=True)
    parser.add_argument("--quick", action="store_true", help="small sizes, to see that it runs")
    given = parser.parse_args()
    about = machine(given.cohort)
    with tempfile.TemporaryDirectory() as scratch:
        bench = Bench(given.bundle, given.cohort, Path(scratch), given.quick)
        for job, argument in (("first_call", "-"), ("first_decision", "-")):
            bench.run(job, argument)  # fills the kernel cache
        known: dict[tuple[str, str], Result] = {}
        rows = [bench.row(row, known) for row in table_rows()]
        curves = [bench.curve(curve) for curve in growth_curves(quick=given.quick)]
    found = {"machine": about, "quick": given.quick, "score_tolerance": SCORE_TOLERANCE, "rows": rows, "curves": curves}
    given.out.mkdir(parents=True, exist_ok=True)
    (given.out / "bench.json").write_text(json.dumps(found, indent=2) + "\n")
    text = as_markdown(found)
    (given.out / "bench.md").write_text(text)
    sys.stdout.write(text)
    wrong = [row for row in rows if row.get("differing") or row.get("score_difference", 0.0) > SCORE_TOLERANCE]
    return 1 if wrong or any(row["met"] is False and row["goal"] == "equal" for row in rows) else 0


if __name__ == "__main__":
    sys.exit(main())
