"""What `afa simulate` leaves behind: tables, figure, explorer page, card; and its short table for the terminal."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from importlib.metadata import version
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import yaml
from numpy.typing import NDArray
from rich.box import SIMPLE_HEAD
from rich.table import Table

import afa
from afa.allocate.base import name_places
from afa.bundle import Bundle
from afa.cohort.cohort import Cohort
from afa.csvfile import marked_table
from afa.engine.course import MISSING
from afa.engine.follow import choose, follow
from afa.errors import ConfigError, Fault
from afa.files import atomic_folder, sha256_of
from afa.inference.meanfield import Solver
from afa.mrf import Floats
from afa.orders import random_order
from afa.planner import TopKPlanner
from afa.planner.options import EXPLICIT_SCORES
from afa.report.explored import RANKED, READ, Explored, Walked, boundary_of, explored_of, walked_of
from afa.stages.allocation.tables import TARGET
from afa.stages.simulate import Simulation
from afa.stages.simulate.walks import Gauge, Way, is_compiled, measured_first, planner_of, prices_of, ranked, steps

CARD, EXPLORER = "simulate.yaml", "explorer.html"
FILES = (CARD, "curves.csv", "features_needed.csv", "curves.svg", "curves.png", EXPLORER)
PACKAGES = ("numpy", "scipy", "numba", "pandas", "pyarrow")
CRITERIA = {
    "settled": "answer settled",
    "certified": "answer certified",
    "sign_95": "95 % of duels right",
}


def check_place(folder: Path) -> None:
    """A `ConfigError` where writing a simulation into this folder would remove something else."""
    if folder.is_dir():
        others = sorted(path.name for path in folder.iterdir() if path.name not in FILES)
        found = f"a folder with other files: {', '.join(others[:3])}" if others else ""
    else:
        found = "a file" if folder.exists() else ""
    if found:
        raise ConfigError(Fault(f"--out {folder}", found, "a new folder, or that of a simulation", "choose another"))


def explore_simulation(
    bundle: Bundle,
    cohort: Cohort,
    runs: Sequence[tuple[Way, int]],
    *,
    k: int,
    gauge: Gauge,
    most: int,
    measured: NDArray[np.bool_],
    costs: str,
    threads: int,
) -> Explored:
    """Steps of at most `most` patients, evenly by name, along every run, a way and a seed, for the explorer page.

    measured, costs : as of `afa.stages.simulate.simulate`. gauge : with a closure that is known.
    """
    n = len(cohort.patients)
    rows = sorted({i * (n - 1) // max(most - 1, 1) for i in range(most)} if n > most else range(n))
    names = [cohort.patients[row] for row in rows]
    values = np.where(measured, cohort.values, np.int8(MISSING))[rows]
    prices, solver = prices_of(bundle, costs), Solver()
    scores = EXPLICIT_SCORES if gauge.coupling == "explicit" else RANKED
    walked = []

    def planners(way: Way, seed: int) -> list[TopKPlanner]:
        return [planner_of(bundle, way, k, gauge, solver, prices, patient=name, seed=seed) for name in names]

    for way, seed in runs:
        if is_compiled(bundle, way, gauge, prices):
            walked.append(_by_engine(bundle, values, names, way, seed, k=k, solver=solver, threads=threads))
            continue
        asked = zip(planners(way, seed), values, strict=True)
        each = [_by_planner(planner, row, scores, way) for planner, row in asked]
        walked.append(Walked(*map(np.stack, zip(*each, strict=True))))
    explored = explored_of(bundle, cohort, rows, walked, planners(*runs[0]), values)
    several = len({way.score for way, _ in runs}) > 1
    cells = [
        {"rule": f"{way.allocation} by {way.score}" if several else way.allocation, "gain": way.gain, "seed": seed}
        for way, seed in runs
    ]
    chosen = f"{len(names)} of {n} patients, evenly by name."
    explored.summary.update(scores=list(scores), schedule="every", cells=cells, shown=0, chosen=chosen)
    return explored


def _by_engine(
    bundle: Bundle,
    values: NDArray[np.int8],
    names: Sequence[str],
    way: Way,
    seed: int,
    *,
    k: int,
    solver: Solver,
    threads: int,
) -> Walked:
    of_gain = {"gain": way.gain or None, "target": TARGET.get(way.gain)}
    settings: dict[str, Any] = of_gain | {"k": k, "ranks": RANKED, "solver": solver, "threads": threads}
    if way.allocation != "random":
        return walked_of(choose(bundle, values, READ, allocation=way.allocation, **settings), bundle, k)
    orders = np.array([random_order(bundle.features, patient=name, seed=seed) for name in names])
    orders = measured_first(orders, values)
    walked = walked_of(follow(bundle, values, orders, READ, **settings), bundle, k)
    return walked._replace(order=np.where(np.take_along_axis(values, orders, axis=1) == MISSING, -1, orders))


def _by_planner(planner: TopKPlanner, values: NDArray[np.int8], scores: Sequence[str], way: Way) -> Walked:
    """One patient, values (M,), as a planner asks; the arrays of `Walked` without their first axis."""
    m = len(values)
    order, worth, fallback = np.full(m, -1), np.zeros(m), np.zeros(m, dtype=np.bool_)
    resolved, certified = np.zeros(m + 1, dtype=np.int64), np.zeros(m + 1, dtype=np.bool_)
    names, margin = name_places(planner.bundle.entities), np.zeros(m + 1)
    place = np.zeros((m + 1, len(scores), len(names)), dtype=np.int16)
    weighs = bool(way.gain) and ":" not in way.allocation
    ahead: Floats = np.zeros(m)
    for t, taken in enumerate(steps(planner, values)):
        if taken >= 0:
            order[t - 1], worth[t - 1] = taken, ahead[taken]
        view, asked = planner._view(), planner.suggest()
        ahead = view.total_gain(view.resolved) if way.gain else view.largest_unary
        fallback[t : t + 1] = weighs and asked is not None and asked.over is None
        resolved[t], certified[t] = view.resolved.sum(), view.certified
        found = [ranked(planner, score) for score in scores]
        place[t] = [of_score for _, of_score in found]
        margin[t] = found[0][0][boundary_of(place[t, 0], names, planner.k)]
    return Walked(order, worth, fallback, resolved, certified, place, margin)


def write_simulation(
    simulation: Simulation,
    card: Mapping[str, Any],
    folder: Path,
    draw: Callable[[pd.DataFrame, str, Path], None] | None,
    write_page: Callable[[Path], None] | None = None,
) -> None:
    """Write the tables, the card, the figure and the page; the folder appears when all are complete.

    draw : writes `<stem>.svg` and `<stem>.png` of the curves, given them, a title and the stem; no figure where None.
    write_page : writes the explorer page; none where None.
    """
    cohort, asked = card["cohort"], card["setting"]
    of = f"is it {asked['entity']}?" if "entity" in asked else f"top {asked['k']}"
    title = f"bundle {card['bundle']['name']}, {of}; cohort {cohort['name']}, {cohort['simulated_on']} patients"
    with atomic_folder(folder) as temporary:
        for name, table in simulation._asdict().items():
            path = temporary / f"{name}.csv"
            marked_table(table).to_csv(path, index=False, float_format="%.10g", lineterminator="\n")
        if draw is not None:
            draw(simulation.curves, title, temporary / "curves")
        if write_page is not None:
            write_page(temporary / EXPLORER)
        digests = {name: sha256_of(temporary / name) for name in ("curves.csv", "features_needed.csv")}
        text = yaml.safe_dump(
            {**card, "afa": afa.__version__, "packages": {name: version(name) for name in PACKAGES}, "tables": digests},
            sort_keys=False,
            allow_unicode=True,
            width=100,
        )
        (temporary / CARD).write_text(text, encoding="utf-8")


def needed_table(needed: pd.DataFrame, n_features: int) -> Table:
    """`features_needed` for a terminal, criterion by criterion."""
    varied = [name for name in ("gain", "score") if len(set(needed[name]) - {""}) > 1]
    table = Table(title=f"Features needed, of {n_features}", title_justify="left", box=SIMPLE_HEAD, pad_edge=False)
    for name in ("until", "rule", *varied):
        table.add_column(name)
    for name in ("25 %", "median", "75 %", "90 %", "never"):
        table.add_column(name, justify="right")
    for (criterion, counted), rows in needed.groupby(["criterion", "counted"], sort=False):
        for place, row in enumerate(rows.to_dict(orient="records")):
            numbers = ["-" if pd.isna(row[name]) else f"{row[name]:g}" for name in ("q25", "median", "q75", "p90")]
            never = "-" if pd.isna(row["never"]) else f"{row['never']:.0%}"
            first = CRITERIA[str(criterion)] + (", cost" if counted == "cost" else "") if place == 0 else ""
            table.add_row(first, row["allocation"], *(row[name] for name in varied), *numbers, never)
        table.add_section()
    return table
