"""`priority`: the paper's own rule, the gain summed under weights that prefer close duels near the boundary."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from afa.allocate.base import Choice, View, heaviest
from afa.engine.rules import SLOPE
from afa.mrf import Floats


class PriorityAll:
    """Weighted sum of the gain over every unresolved duel (eq:feature_selection, spec A2 `all`)."""

    def choose(self, view: View) -> Choice:
        return by_priority(view, ~view.resolved, "open duels")


class PriorityClusters:
    """Weighted sum of the gain over one duel a cluster, where unresolved (eq:active_registry, spec A2 `clusters`)."""

    def choose(self, view: View) -> Choice:
        return by_priority(view, registry(view), "open duels of a cluster's best and worst")


def by_priority(view: View, open_: NDArray[np.bool_], what: str) -> Choice:
    """The feature of largest weighted gain over a (Q,) mask of duels."""
    return heaviest(view, np.where(open_, influence(view), 0.0), f"{int(open_.sum())} {what}, weighted by the boundary")


def influence(view: View) -> Floats:
    """w_ab of every duel, (Q,), in (0, 1]: less by distance to the boundary and by |V_ab| (eq:w_impl, spec A3).

    An entity of rank r is k - r places from the top-k boundary inside and r - (k + 1) outside: none at k and k + 1.
    """
    away = np.where(view.rank <= view.k, view.k - view.rank, view.rank - view.k - 1)
    a, b = view.pairs.T
    weights: Floats = 1.0 / (1.0 + np.minimum(away[a], away[b])) / (1.0 + SLOPE * np.abs(view.scores[a, b]))
    return weights


def registry(view: View) -> NDArray[np.bool_]:
    """(Q,) duels of each cluster's best against its worst entity by Copeland inside it, resolved ones left out."""
    chosen = np.zeros(len(view.pairs), dtype=bool)
    for cluster in view.clusters:
        if len(cluster) > 1:
            order = view.ranked(cluster)
            chosen[view.duel(order[0], order[-1])] = True
    return chosen & ~view.resolved
