"""The belief with a background, and the rule `frontier`, on cohorts (docs/frontier.md has the tables).

    snakemake cohort --config cohort=demo            # for each cohort
    snakemake allocation --config cohort=demo        # the rules and scores that it is compared with
    afa bundle build resources/elicitation --probabilities resources/elicitation/probabilities --out results/elicited
    python benchmarks/frontier.py results/demo results/gse109142 --elicited results/elicited --out results/bench

Writes `frontier.csv`, the overlap of the top five with that at full observation by background and t;
`frontier_against.csv`, paired differences from each rule, gain and score of the allocation grid where a run has its
tables; and `frontier_recorded.csv`, the patients of recordings of a language model that chooses its own features
(`--recorded FOLDER` with `<cohort>/*.jsonl`). Prints all three.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import sys
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from afa.cohort.cohort import Cohort, load_cohort
from afa.engine.ranks import name_places
from afa.evaluate.accuracy import SURE, TIED, overlap
from afa.evaluate.resampling import interval, patient_weights
from afa.io.files import write_csv
from afa.model.bundle import Bundle, load_bundle
from afa.model.orders import random_orders
from afa.planner.rules.base import best
from afa.scores.belief import Background, Belief, ScoreTable

K, ROUNDS, TOGETHER = 5, (0, 5, 10, 20, 50, 100), 5
OF_MODEL = (5, 10, 20)
Choose = Callable[[int, Belief], list[int]]


def follow(
    table: ScoreTable, values: NDArray[np.int8], background: Callable[[int], Background], choose: Choose, exact: bool
) -> tuple[NDArray[np.int64], NDArray[np.float64]]:
    """Follow every patient: the top five at each of `ROUNDS`, (P, T, K), and the probability that they are right."""
    top = np.zeros((len(values), len(ROUNDS), K), dtype=np.int64)
    said = np.zeros((len(values), len(ROUNDS)))
    for p, row in enumerate(values):
        belief, t = Belief(table, background(p), exact=exact), 0
        for i, last in enumerate(ROUNDS):
            while t < last:
                for feature in choose(p, belief)[: last - t]:
                    belief.observe(feature, int(row[feature]))
                    t += 1
            top[p, i], said[p, i] = belief.order()[:K], belief.top_probability(K) if exact else np.nan
    return top, said


def frontier(_: int, belief: Belief) -> list[int]:
    """The feature that the rule chooses; the first that is open where nothing is left to decide."""
    worth, names = belief.frontier(K), belief.table.features
    chosen = best(worth, names, ~belief.observed)
    return [int(np.flatnonzero(~belief.observed)[0]) if chosen is None else chosen]


def strategies_of(
    bundle: Bundle, cohort: Cohort, elicited: Bundle | None, others: dict[str, Cohort]
) -> Iterator[tuple[str, Callable[[int], Background], Choose, bool]]:
    """Name, background of each patient, choice, and whether the covariance is exact."""
    values = np.asarray(cohort.values)
    everybody = Background.of_patients(bundle, values).independent()
    halves = [Background.of_patients(bundle, values[half::2]) for half in (1, 0)]
    each = [Background.of_patients(bundle, values, without=p) for p in range(len(values))]
    order = random_orders(bundle.features, cohort.patients, [0])[:, 0]

    def along_random(p: int, belief: Belief) -> list[int]:
        return [next(int(j) for j in order[p] if not belief.observed[j])]

    def five(p: int, belief: Belief) -> list[int]:
        return belief.together(TOGETHER, K) or frontier(p, belief)

    yield "sketch: all patients, first order", lambda _: everybody, frontier, False
    yield "other patients", lambda p: each[p], frontier, True
    yield "the other half", lambda p: halves[p % 2], frontier, True
    apart = [half.independent() for half in halves]
    yield "independent, the other half", lambda p: apart[p % 2], frontier, True
    for name, other in others.items():
        of_other = Background.of_patients(bundle, other.values, name=f"patients of {name}", dependence=False)
        yield f"patients of {name}", lambda _, b=of_other: b, frontier, True  # type: ignore[misc]
    if elicited is not None:
        stated = Background.elicited(elicited.restrict(bundle.features))
        yield "elicited, no patients", lambda _: stated, frontier, True
    alike = Background.uniform(bundle)
    yield "each value alike, no patients", lambda _: alike, frontier, True
    yield "other patients, five at once", lambda p: each[p], five, True
    yield "other patients, random order", lambda p: each[p], along_random, True


def measure(
    run: Path, elicited: Bundle | None, recorded: Path | None, others: dict[str, Cohort], only: str
) -> list[pd.DataFrame]:
    """The three tables of one run folder, of the ways whose name begins with `only`."""
    bundle, cohort = load_bundle(run / "bundle"), load_cohort(run / "cohort")
    table, name = replace(ScoreTable.of_bundle(bundle), places=name_places(bundle.entities)), run.name
    scores = table.scores(cohort.values)
    last = np.sort(scores, axis=1)[:, -K, None]
    target = np.where(scores > last + table.tie, SURE, np.where(scores >= last - table.tie, TIED, 0)).astype(np.int8)
    target[(target > 0).sum(axis=1) == K] *= 2
    target = np.minimum(target, SURE)
    weights = patient_weights(len(target), resamples=1000, purpose="frontier")
    rows, against, of_model = list[dict[str, object]](), list[dict[str, object]](), list[dict[str, object]]()
    constant = np.sort((target > 0).mean(axis=0))[-K:].mean()  # of a set, the sum over its members
    grid = read_grid(run, cohort.patients)
    model = read_recorded(recorded / name, bundle, cohort) if recorded and (recorded / name).is_dir() else {}
    for way, background, choose, exact in strategies_of(bundle, cohort, elicited, others):
        if not way.startswith(only):
            continue
        top, said = follow(table, np.asarray(cohort.values), background, choose, exact)
        generous = np.take_along_axis((target > 0)[:, None, :].repeat(len(ROUNDS), axis=1), top, axis=2).mean(axis=2)
        strict = np.array(
            [[overlap(target[[p]], list(chosen), K)[0] / K for chosen in top[p]] for p in range(len(top))]
        )
        right = generous == 1
        for i, t in enumerate(ROUNDS):
            row = {"cohort": name, "way": way, "t": t, "overlap": generous[:, i].mean(), "p_at_k": strict[:, i].mean()}
            row |= {"constant": constant, "said": said[:, i].mean(), "right": right[:, i].mean()}
            rows.append(row | {"best of grid": max((each[:, t].mean() for each in grid.values()), default=np.nan)})
            for key, each in grid.items() if way in ("other patients", "the other half") else ():
                gap = strict[:, i] - each[:, t]
                low, high = interval((weights @ gap / weights.sum(axis=1))[:, None], confidence=0.95)
                found = {"cohort": name, "way": way, "against": " ".join(key), "t": t, "gap": gap.mean()}
                against.append(found | {"low": float(low[0]), "high": float(high[0])})
            for method, answers in model.items() if t in OF_MODEL and way != "other patients, five at once" else ():
                at = list(answers)
                theirs = [np.mean(target[p][answers[p][t]] > 0) for p in at]
                found = {"cohort": name, "method": method, "way": way, "t": t, "patients": len(at)}
                of_model.append(found | {"belief": generous[at, i].mean(), "language model": np.mean(theirs)})
        sys.stderr.write(f"{name}: {way}\n")
    return [pd.DataFrame(part) for part in (rows, against, of_model)]


def read_grid(run: Path, patients: tuple[str, ...]) -> dict[tuple[str, ...], NDArray[np.float64]]:
    """`p_at_k` (P, M + 1) by rule, gain and score of the allocation grid; random orders averaged. {} without tables."""
    folder = run / "tables" / "allocation"
    if not folder.exists():
        return {}
    table = pd.read_parquet(folder / "rounds.parquet")
    table = table[table["schedule"] == "every"]
    means = table.groupby(["allocation", "gain", "method", "patient", "t"], observed=True)["p_at_k"].mean()
    found = dict[tuple[str, ...], NDArray[np.float64]]()
    for key, part in means.groupby(level=[0, 1, 2], observed=True):
        wide = part.droplevel([0, 1, 2]).unstack("t").loc[list(patients)]
        found[tuple(map(str, key))] = wide.to_numpy()  # type: ignore[arg-type]
    return found


def read_recorded(folder: Path, bundle: Bundle, cohort: Cohort) -> dict[str, dict[int, dict[int, list[int]]]]:
    """The top five that a language model named, by prompt, row of the cohort and t; the last attempt counts."""
    known = {f"P{hashlib.sha256(name.encode()).hexdigest()[:8]}": p for p, name in enumerate(cohort.patients)}
    found = dict[str, dict[int, dict[int, list[int]]]]()
    for file in sorted(folder.glob("*.jsonl")):
        for line in file.read_text(encoding="utf-8").splitlines():
            entry = json.loads(line)
            asked, said = entry["question"], json.loads(entry["raw"])
            t, patient = int(asked["values"]["t"]), known[asked["values"]["patient"]]
            named = [bundle.entities.index(label) for label in said["top_k_labels"][:K]]
            found.setdefault(asked["prompt"], {}).setdefault(patient, {})[t] = named
    return found


def as_text(tables: list[pd.DataFrame]) -> str:
    """The tables for people: overlap by way and t, the worst of the differences, the recordings."""
    rows, against, of_model = tables
    parts = list[str]()
    for cohort, part in rows.groupby("cohort", sort=False):
        wide = part.pivot(index="way", columns="t", values="overlap").loc[list(dict.fromkeys(part["way"]))]
        wide.loc["best of the grid, at each t"] = part.groupby("t")["best of grid"].first()
        wide.loc["one fixed five, best in hindsight"] = part["constant"].iloc[0]
        parts.append(f"{cohort}\n{wide.round(3).to_string()}")
        of = part.pivot(index="t", columns="way", values=["said", "right"]).dropna(axis=1)
        parts.append(f"probability that the top is right, said and true\n{of.round(3).T.to_string()}")
    if len(against):
        worst = against.sort_values("low").groupby(["cohort", "way", "t"], sort=True).first()
        parts.append(f"least lower end of the differences from the grid\n{worst.round(3).to_string()}")
    if len(of_model):
        parts.append(of_model.round(3).to_string(index=False))
    return "\n\n".join(parts) + "\n"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("runs", nargs="+", type=Path, help="folders of runs with bundle and cohort")
    parser.add_argument("--elicited", type=Path, help="the bundle with probabilities")
    parser.add_argument("--recorded", type=Path, help="recordings of a language model, a folder a cohort")
    parser.add_argument("--only", default="", help="ways whose name begins so")
    parser.add_argument("--out", required=True, type=Path)
    given = parser.parse_args()
    elicited = None if given.elicited is None else load_bundle(given.elicited)
    real = {run.name: load_cohort(run / "cohort") for run in given.runs if run.name != "demo"}
    found = list[list[pd.DataFrame]]()
    for run in given.runs:
        others = {name: other for name, other in real.items() if name != run.name and run.name in real}
        found.append(measure(run, elicited, given.recorded, others, given.only))
    tables = [pd.concat(parts, ignore_index=True) for parts in zip(*found, strict=True)]
    given.out.mkdir(parents=True, exist_ok=True)
    for name, table in zip(("frontier", "frontier_against", "frontier_recorded"), tables, strict=True):
        write_csv(table, given.out / f"{name}.csv")
    sys.stdout.write(as_text(tables))


if __name__ == "__main__":
    main()
