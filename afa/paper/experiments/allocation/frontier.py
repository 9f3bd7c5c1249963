"""Results of the rule `frontier`, which is not in the paper, for each background distribution (docs/frontier.md).

The rule `frontier` has its own formula for the gain of a feature, and uses none of the gains that the stage
`allocation` compares. The score `background` is used both to choose features and to decide about the patient. A
background is a distribution of the features among all patients. For each patient, the background distribution is
estimated from the half of the cohort that does not contain the patient. If the bundle has probabilities, results are
also computed with a background distribution from these probabilities (`elicited`).
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pandas as pd
from scipy.stats import rankdata

from afa.cohort.cohort import Cohort
from afa.engine.duels import all_pairs
from afa.engine.frontier import FrontierPaths, frontier_paths
from afa.engine.outcomes import Outcomes, right_by_kind
from afa.evaluate.long_tables import by_patient, rows_of
from afa.evaluate.targets import Targets
from afa.model.bundle import Bundle
from afa.paper.experiments.allocation.cells import CORRECT_DUEL_COLUMNS
from afa.scores.belief import Background, ScoreTable


def frontier_table(
    bundle: Bundle,
    cohort: Cohort,
    patients: Sequence[int],
    truth: Outcomes,
    targets: Targets,
    threads: int | None = None,
) -> pd.DataFrame:
    """Return choices and results of the rule `frontier` for the chosen patients, with each background distribution.

    If a feature of the bundle cannot take all three values, the score `background` is undefined, and the table is
    empty.

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
        rows = _path_rows(paths, table, truth, targets, names, threads)
        parts.append(rows.assign(background=of_halves[0].kind))
    return by_patient(parts, names)


def _path_rows(
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
        **{name: right[name].astype(np.float32) for name in CORRECT_DUEL_COLUMNS},
        **precisions,
    )
