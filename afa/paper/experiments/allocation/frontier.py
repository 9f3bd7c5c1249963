"""The tables and summary rows of the rule `frontier`, for each background (docs/frontier.md; not in the paper).

The rule `frontier` uses no gain of the allocation grid. The score `background` guides the choices of features and
decides about the patient. The background of each patient is the half of the cohort without this patient. A bundle with
probabilities also has the background `elicited`.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import numpy as np
import pandas as pd
from scipy.stats import rankdata

from afa.cohort.cohort import Cohort
from afa.engine.duels import all_pairs
from afa.engine.frontier import FrontierPaths, frontier_paths
from afa.engine.rounds import Outcomes, right_by_kind
from afa.evaluate.accuracy import UNIT, Resampled, by_t
from afa.evaluate.inputs import rounds_up_to
from afa.evaluate.long_tables import Complete, axis_among, axis_of, by_patient, rows_of
from afa.evaluate.summary import Labelled
from afa.evaluate.targets import Targets
from afa.model.bundle import Bundle
from afa.model.orders import PAPER_ROUNDS
from afa.paper.experiments.allocation.grid import CLINICAL, DUELS, LIKELIHOOD, PRECISIONS, Grid, GridCell
from afa.planner.options import BACKGROUND, FRONTIER
from afa.scores.belief import Background, ScoreTable

COMPARED = {"random": GridCell("random", "", "every"), "priority_all": GridCell("priority_all", "cmi", "every")}
"""Cells of the grid with which the rule is compared."""
QUANTITIES = {
    "right": ("accuracy", "likelihood"),
    LIKELIHOOD: ("p_at_k", "likelihood"),
    CLINICAL: ("p_at_k", "clinical"),
}


def frontier_table(
    bundle: Bundle,
    cohort: Cohort,
    patients: Sequence[int],
    truth: Outcomes,
    targets: Targets,
    threads: int | None = None,
) -> pd.DataFrame:
    """Return the choices and results of the rule `frontier` for the chosen patients, with each background.

    If a feature of the bundle cannot take all three values, the score is undefined, and the table is empty.

    Parameters
    ----------
    patients : row indices of the cohort. `truth` and `targets` belong to these patients

    """
    if not bundle.ternary or not len(patients):
        return pd.DataFrame()
    table = ScoreTable.of_bundle(bundle)
    values, names = np.asarray(cohort.values), [cohort.patients[p] for p in patients]
    half, chosen = np.asarray(patients) % 2, values[list(patients)]
    backgrounds = [[Background.of_patients(bundle, values[other::2]) for other in (1, 0)]]
    if bundle.has_probabilities:
        backgrounds.append([Background.elicited(bundle)] * 2)
    parts = []
    for of_halves in backgrounds:
        found = [frontier_paths(table, of, chosen[half == i], targets.k, threads) for i, of in enumerate(of_halves)]
        back = np.argsort(np.argsort(half, kind="stable"))
        paths = FrontierPaths(*(np.concatenate(each)[back] for each in zip(*found, strict=True)))
        rows = _rows(paths, table, truth, targets, names, threads)
        parts.append(rows.assign(background=of_halves[0].kind))
    return by_patient(parts, names)


def _rows(
    paths: FrontierPaths,
    table: ScoreTable,
    truth: Outcomes,
    targets: Targets,
    names: Sequence[str],
    threads: int | None,
) -> pd.DataFrame:
    rounded = np.round(paths.mean / table.tie) if table.tie > 0 else paths.mean
    a, b = all_pairs(rounded.shape[2]).T
    signs = np.sign(rounded[..., a] - rounded[..., b]).astype(np.int8)
    prior = np.broadcast_to(truth.prior, (len(names), 1, len(truth.prior)))
    right = right_by_kind(signs[:, None], truth.winner, prior)
    place = (rankdata(-rounded, method="min", axis=2) - 1).astype(np.int16)
    chosen = np.full((len(names), rounded.shape[1]), None, dtype=object)
    chosen[:, 1:] = np.array(table.features, dtype=object)[paths.order]
    fallback = np.zeros(chosen.shape, dtype=bool)
    fallback[:, 1:] = paths.fallback
    precisions = {name: each.ravel() for name, each in targets.precisions(place, threads).items()}
    return rows_of(patient=names, t=np.arange(chosen.shape[1], dtype=np.int16)).assign(
        feature=chosen.ravel(),
        fallback=fallback.ravel(),
        **{name: right[name].astype(np.float32) for name in DUELS},
        **precisions,
    )


def frontier_rows(table: pd.DataFrame, grid: Grid, patients: Sequence[str], resampled: Resampled) -> Iterator[Labelled]:
    """Yield the sign accuracy and the precision of the top k, for each background and t.

    The column `variant` names the background. `gap` is the metric minus that of a cell in `COMPARED`, which decides
    with `linearity`, on the same patients.
    """
    if table.empty:
        return
    axes = {
        "background": axis_of(table, ["background"]),
        "patient": axis_among(table["patient"], patients),
        "t": axis_among(table["t"], [str(t) for t in range(grid.last_round + 1)]),
    }
    whole = Complete.of("table frontier", table.select_dtypes(["number", "bool"]), axes)
    rounds = rounds_up_to(PAPER_ROUNDS, grid.last_round)
    for column, (metric, target) in QUANTITIES.items():
        if not grid.totals[column].any():
            continue
        unit = UNIT if column in PRECISIONS else 2  # whole numbers, so that weighted sums are exact
        cases = np.repeat(grid.totals[column][:, None], grid.last_round + 1, axis=1)
        for (kind,), shares in zip(whole.axes["background"].labels, whole.column(column, may_miss=True), strict=True):
            label = {"allocation": FRONTIER, "method": BACKGROUND, "target": target, "variant": str(kind)}
            own = np.rint(np.nan_to_num(shares).astype(np.float64) * unit) / (1 if column in PRECISIONS else unit)
            yield _in_shares(by_t(resampled.mean([(own, cases)])), column), {"metric": metric, **label}
            for name, cell in COMPARED.items():
                if cell in grid.runs:
                    here = np.ascontiguousarray(own[:, rounds]), np.ascontiguousarray(cases[:, rounds])
                    gap = resampled.gap([here], [grid.part(column, cell, "linearity", rounds)]).assign(t=rounds)
                    yield _in_shares(gap, column), {"metric": "gap", "quantity": metric, "reference": name, **label}


def _in_shares(table: pd.DataFrame, column: str) -> pd.DataFrame:
    """Return a table with precisions and their intervals divided by `UNIT`."""
    unit = UNIT if column in PRECISIONS else 1
    return table.assign(**{name: table[name] / unit for name in ("value", "low", "high")})
