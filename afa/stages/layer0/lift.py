"""The lift of Layer 0: what the first choices of `greedy` gain when it looks only at the entities that are left.

Both sides are followed with all entities, and read out by `linearity` over all duels: they differ in the order in which
features come, and in nothing else. Where Layer 0 removes nothing, nothing differs.
"""

from __future__ import annotations

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from afa.bundle import Bundle
from afa.cohort.cohort import Cohort
from afa.engine.compile import in_threads
from afa.engine.duels import all_pairs
from afa.engine.paths import first_signs
from afa.inference.meanfield import Solver
from afa.stages.layer0.tables import Removed, full_observation
from afa.stats.accuracy import Part, Signs, right_of

ROUNDS = 10


def layer0_lift(
    bundle: Bundle,
    cohort: Cohort,
    removed: Removed,
    *,
    rounds: int = ROUNDS,
    solver: Solver | None = None,
    threads: int | None = 1,
) -> pd.DataFrame:
    """Right calls of all duels after t = 0 to `rounds` observations, with the entities removed and with all.

    removed : by number of clusters, criterion and rule the names of the entities that Layer 0 eliminates.
    Returns by (n_clusters, criterion, rule, patient, t): `right`, calls in the order that `greedy` chooses for the
    entities left, a tie counting one half, `right_greedy`, in the order that it chooses for all, and `duels` with a
    winner at full observation (decisions.md S11).
    """
    rounds = min(rounds, len(bundle.features))
    target = winners(bundle, cohort.values)
    distinct = list(dict.fromkeys([(), *removed.values()]))
    parts: list[Part] = [(np.empty(0), np.empty(0))] * len(distinct)

    def work(first: int, last: int) -> None:
        for i in range(first, last):
            left = [name for name in bundle.entities if name not in distinct[i]]
            looked_at = bundle.restrict_entities(left) if distinct[i] else bundle
            signs = first_signs(bundle, looked_at, cohort.values, rounds, solver=solver)
            parts[i] = right_of(np.moveaxis(signs, 1, 2), target, np.ones(target.shape, dtype=np.bool_))

    in_threads(work, len(distinct), threads)
    found = dict(zip(distinct, parts, strict=True))
    everyone, _ = found[()]
    tables = []
    for (n_clusters, criterion, rule), names in removed.items():
        right, duels = found[names]
        table = pd.DataFrame(
            {
                "n_clusters": n_clusters,
                "criterion": criterion,
                "rule": rule,
                "patient": np.repeat(cohort.patients, rounds + 1),
                "t": np.tile(np.arange(rounds + 1), len(cohort.patients)),
                "right": right.ravel(),
                "right_greedy": everyone.ravel(),
                "duels": duels.ravel().astype(np.int64),
            }
        )
        tables.append(table)
    return pd.concat(tables, ignore_index=True)


def winners(bundle: Bundle, values: NDArray[np.int8]) -> Signs:
    """(P, Q) sign of D_ab at full observation of every duel, 0 for a tie."""
    truth = full_observation(bundle, values, 1)
    pairs = all_pairs(len(bundle.entities))
    lead = truth.energy[:, pairs[:, 0]] - truth.energy[:, pairs[:, 1]]
    return np.where(np.abs(lead) > truth.tie, np.sign(lead), 0).astype(np.int8)
