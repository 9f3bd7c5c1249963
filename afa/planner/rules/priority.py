"""`priority`: the paper's own rule, the gain summed under weights that prefer close duels near the boundary."""

from __future__ import annotations

import numpy as np

from afa.engine.duels import sides_of
from afa.engine.rules import SLOPE
from afa.model.mrf import Floats
from afa.planner.rules.base import Choice, Duels, View, heaviest


class PriorityAll:
    """Weighted sum of the gain over every unresolved duel (eq:feature_selection, decisions.md A2 `all`)."""

    in_the_grid = 7

    def choose(self, view: View) -> Choice:
        return by_priority(view, np.flatnonzero(~view.resolved), "open duels")


class PriorityClusters:
    """Weighted gain, summed over one duel a cluster, where unresolved (eq:active_registry, decisions.md A2)."""

    in_the_grid = 6

    def choose(self, view: View) -> Choice:
        return by_priority(view, registry(view), "open duels of a cluster's best and worst")


def by_priority(view: View, duels: Duels, what: str) -> Choice:
    """The feature of largest weighted gain over some duels."""
    return heaviest(view, duels, influence(view, duels), f"{len(duels)} {what}, weighted by the boundary")


def influence(view: View, duels: Duels) -> Floats:
    """w_ab of some duels, (q,), in (0, 1]: less by distance to the boundary and by |V_ab| (eq:w_impl, decisions.md A3).

    An entity of rank r is k - r places from the top-k boundary inside and r - (k + 1) outside: none at k and k + 1.
    """
    away = np.where(view.rank <= view.k, view.k - view.rank, view.rank - view.k - 1)
    a, b = sides_of(len(view.entities), duels).T
    weights: Floats = 1.0 / (1.0 + np.minimum(away[a], away[b])) / (1.0 + SLOPE * np.abs(view.scores[a, b]))
    return weights


def registry(view: View) -> Duels:
    """Each cluster's best against its worst entity by Copeland inside it, resolved duels left out; ascending places."""
    orders = [view.ranked(cluster) for cluster in view.clusters if len(cluster) > 1]
    duels = np.array(sorted(view.duel(order[0], order[-1]) for order in orders), dtype=np.int64)
    return duels[~view.find_resolved(duels)]
