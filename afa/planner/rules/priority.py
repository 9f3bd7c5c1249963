"""`priority_all` and `priority_clusters`, the paper's rules.

The two rules give larger weights to close duels near the boundary.
"""

from __future__ import annotations

import numpy as np

from afa.engine.duels import sides_of
from afa.engine.rules import SLOPE
from afa.model.mrf import Floats
from afa.planner.rules.base import Choice, Duels, View, heaviest


class PriorityAll:
    """Choose by the weighted gain over all unresolved duels (eq:feature_selection)."""

    def choose(self, view: View) -> Choice:
        return by_priority(view, np.flatnonzero(~view.resolved), "open duels")


class PriorityClusters:
    """Choose by the weighted gain over one unresolved duel in each cluster (eq:active_registry)."""

    def choose(self, view: View) -> Choice:
        return by_priority(view, registry(view), "open duels of a cluster's best and worst")


def by_priority(view: View, duels: Duels, what: str) -> Choice:
    """Return the feature of largest weighted gain over some duels."""
    return heaviest(view, duels, influence(view, duels), f"{len(duels)} {what}, weighted by the boundary")


def influence(view: View, duels: Duels) -> Floats:
    """Return the weights w_ab of some duels, (q,) in (0, 1] (eq:w_impl).

    A weight decreases with the distance of the entities from the boundary. A weight also decreases with |V_ab|. An
    entity of rank r is k - r places from the top-k boundary if it is inside, and r - (k + 1) places if it is outside.
    Ranks k and k + 1 are therefore 0 places away.
    """
    away = np.where(view.rank <= view.k, view.k - view.rank, view.rank - view.k - 1)
    a, b = sides_of(len(view.entities), duels).T
    weights: Floats = 1.0 / (1.0 + np.minimum(away[a], away[b])) / (1.0 + SLOPE * np.abs(view.scores[a, b]))
    return weights


def registry(view: View) -> Duels:
    """Return ascending indices of the unresolved duels between the best and the worst entity of each cluster.

    The best and the worst entity are found by Copeland wins inside the cluster.
    """
    orders = [view.ranked(cluster) for cluster in view.clusters if len(cluster) > 1]
    duels = np.array(sorted(view.duel(order[0], order[-1]) for order in orders), dtype=np.int64)
    return duels[~view.find_resolved(duels)]
