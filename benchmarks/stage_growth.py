"""How the time and memory of each stage grow with patients, entities and features, by runs of the workflow.

    python benchmarks/stage_growth.py --out results/bench [--cores 2] [--largest 8 4 4] [--check 2000]

Every point is the workflow down to `summary.csv` on a synthetic bundle (`growth.py`) and patients drawn from it, as a
plain table: twice, four and eight times as many of one thing as the smallest run has, or up to what `--largest` says of
patients, entities and features. A finished point is not run again. What jobs take to start does not grow: exponents are
of the differences between runs, and so is what is foretold. `--check` runs so many patients as well, beside that.
"""

from __future__ import annotations

import argparse
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

import numpy as np
import pandas as pd
import yaml
from growth import synthetic_bundle
from run_parts import stage_of

from afa.io.files import atomic_file
from afa.model.bundle.write import save_bundle
from afa.paper.report.benchmarks import read_jobs

ROOT = Path(__file__).resolve().parents[1]
AXES = ("patients", "entities", "features")
TIMES = (1, 2, 4, 8)
LEAST = {"seconds": 2.0, "mb": 20.0}
"""What differs by less from one run to the next has no exponent: it may be chance."""


class Size(NamedTuple):
    """Size of a run: so many of each."""

    patients: int = 60
    entities: int = 10
    features: int = 80

    @property
    def name(self) -> str:
        """Of its run and of its files."""
        return "-".join(map(str, self))


SMALLEST = Size()


def sizes(check: int | None, largest: Sequence[int] = (8, 8, 8)) -> list[Size]:
    """All runs: the smallest, and along each axis, up to `largest` times as many; and `check` patients."""
    along = [
        SMALLEST._replace(**{axis: times * getattr(SMALLEST, axis)})
        for axis, most in zip(AXES, largest, strict=True)
        for times in TIMES
        if times <= most
    ]
    return list(dict.fromkeys([*along, *([SMALLEST._replace(patients=check)] if check else [])]))


def write_inputs(folder: Path, size: Size) -> None:
    """The bundle and a plain table of patients: each has one entity, and follows three in four of its directions."""
    bundle = synthetic_bundle(size.entities, size.features)
    rng = np.random.default_rng(list(size))
    entity = rng.integers(size.entities, size=size.patients)
    usual = rng.choice([-1, 0, 0, 1], (size.patients, size.features))
    follows = (bundle.unary[entity] != 0) & (rng.random(usual.shape) < 0.75)
    values = np.where(follows, bundle.unary[entity].astype(int), usual)
    names = [f"p{p:05d}" for p in range(size.patients)]
    own = folder / size.name
    own.mkdir(parents=True)
    table = pd.DataFrame(values, index=pd.Index(names, name="patient"), columns=list(bundle.features))
    table.to_csv(own / "table.csv")
    labels = pd.DataFrame(np.eye(size.entities, dtype=int)[entity], index=table.index, columns=list(bundle.entities))
    labels.to_csv(own / "labels.csv")
    cuts = {"feature": bundle.features, "kind": "ordinal", "unit": "grade", "low": -0.5, "high": 0.5}
    pd.DataFrame(cuts).to_csv(own / "features.csv", index=False)
    config = {"name": f"p{size.name}", "title": "Synthetic patients", "origin": "table"}
    config |= {name: f"{size.name}/{name}.csv" for name in ("table", "features", "labels")}
    (folder / "config" / "cohorts").mkdir(parents=True, exist_ok=True)
    (folder / "config" / "cohorts" / f"p{size.name}.yaml").write_text(yaml.safe_dump(config), encoding="utf-8")
    save_bundle(bundle, own / "bundle")


def run(folder: Path, size: Size, cores: int) -> Path:
    """The `benchmarks` of the run of this size, which is made unless it is there."""
    made = folder / "results" / f"p{size.name}"
    if not (made / "summary.csv").is_file():
        if not (folder / size.name / "bundle").is_dir():
            write_inputs(folder, size)
        command = ["snakemake", "--snakefile", str(ROOT / "workflow/Snakefile"), "--directory", str(folder)]
        command += ["--cores", str(cores), "--config", f"cohort=p{size.name}", f"bundle={size.name}/bundle"]
        with (folder / f"{size.name}.log").open("w") as log:
            subprocess.run(
                [*command, "--", f"results/p{size.name}/summary.csv"], stdout=log, stderr=log, check=True, cwd=ROOT
            )
    return made / "benchmarks"


def measured(folder: Path, points: Sequence[Size], cores: int) -> pd.DataFrame:
    """`patients, entities, features, stage, seconds` of one processor, and `mb`, the largest job's memory."""
    parts = []
    for size in points:
        jobs = read_jobs(run(folder, size, cores))
        jobs["stage"] = stage_of(jobs["rule"])
        by_stage = jobs.groupby("stage").agg(seconds=("cpu_seconds", "sum"), mb=("max_rss_mb", "max"))
        parts.append(by_stage.reset_index().assign(**size._asdict()))
    return pd.concat(parts, ignore_index=True)


def exponents(table: pd.DataFrame) -> pd.DataFrame:
    """By stage, the exponent of what grows of seconds and of memory along each axis, from the three largest runs."""
    columns = {}
    for axis in AXES:
        *_, power = _growth(table, axis)
        columns |= {f"{axis}, time": power["seconds"], f"{axis}, memory": power["mb"]}
    return pd.DataFrame(columns)


def foretold(table: pd.DataFrame, axis: str, number: int) -> pd.DataFrame:
    """Seconds and memory of each stage with so many of one thing, which grow in proportion at least.

    An exponent of three small runs is rough: below 1 it is taken as 1, and above 2, that of duels, as 2.
    """
    largest, whole, step, power = _growth(table, axis)
    power = power.fillna(1.0).clip(1.0, 2.0)
    return whole + step.clip(lower=0.0) * ((number / largest) ** power - 1.0) / (1.0 - 2.0**-power)


def _growth(table: pd.DataFrame, axis: str) -> tuple[int, pd.DataFrame, pd.DataFrame, pd.DataFrame]:
    """The largest number along an axis; what it took, how much more than half the number did, and by which power."""
    runs = [SMALLEST._replace(**{axis: times * getattr(SMALLEST, axis)}) for times in TIMES]
    made = set(table[list(AXES)].itertuples(index=False, name=None))
    first, half, whole = (_at(table, run) for run in [run for run in runs if run in made][-3:])
    before, step = half - first, whole - half
    least = pd.Series(LEAST)
    power = np.log2((step / before).where((step > least) & (before > 0.0)))
    return max(getattr(run, axis) for run in runs if run in made), whole, step, power


def _at(table: pd.DataFrame, size: Size) -> pd.DataFrame:
    chosen = table[(table[list(AXES)] == list(size)).all(axis=1)]
    return chosen.set_index("stage")[list(LEAST)]


def main() -> None:
    """Run what is missing, print the tables and write them as CSV."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--cores", type=int, default=2)
    parser.add_argument("--largest", type=int, nargs=3, default=[8, 8, 8], choices=TIMES[2:])
    parser.add_argument("--check", type=int, default=None)
    given = parser.parse_args()
    folder = (given.out / "stage_growth").resolve()
    folder.mkdir(parents=True, exist_ok=True)
    table = measured(folder, sizes(given.check, given.largest), given.cores)
    shown = _at(table, SMALLEST).add_prefix("smallest, ").join(exponents(table))
    if given.check:
        found = _at(table, SMALLEST._replace(patients=given.check))
        told = foretold(table, "patients", given.check)
        shown = shown.join(told.add_prefix("foretold, ")).join(found.add_prefix("measured, "))
    shown = shown.sort_values("smallest, seconds", ascending=False)
    for name, part in (("stage_growth", shown), ("stage_growth_points", table.set_index("stage"))):
        with atomic_file(given.out / f"{name}.csv") as path:
            part.to_csv(path, lineterminator="\n", float_format="%.4g")
    sys.stdout.write(f"{shown.round(2).to_string()}\n")


if __name__ == "__main__":
    main()
