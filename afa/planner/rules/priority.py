"""The paper's allocation rules.

`PriorityAll` and `PriorityClusters` give larger weights to close duels near the top-k boundary.
"""

from __future__ import annotations

import numpy as np

from afa.engine.duels import sides_of
from afa.engine.rules import SLOPE
from afa.model.arrays import Floats, Ints
from afa.planner.rules.base import Choice, View, heaviest


class PriorityAll:
    """Choose the feature with the largest weighted gain over all unresolved duels (eq:feature_selection)."""

    def choose(self, view: View) -> Choice:
        return by_priority(view, np.flatnonzero(~view.resolved), "open duels")


class PriorityClusters:
    """Choose the feature with the largest weighted gain over one unresolved duel per cluster (eq:active_registry)."""

    def choose(self, view: View) -> Choice:
        return by_priority(view, registry(view), "open duels of a cluster's best and worst")


def by_priority(view: View, duels: Ints, what: str) -> Choice:
    """Return the feature with the largest gain over the given duels, weighted by `influence`.

    Parameters
    ----------
    duels : (q,) int64, ascending

    """
    return heaviest(view, duels, influence(view, duels), f"{len(duels)} {what}, weighted by the boundary")


def influence(view: View, duels: Ints) -> Floats:
    """Return the weight w_ab of each duel, (q,) in (0, 1] (eq:w_impl).

    The weight of a duel decreases with |V_ab|, and with the distance of its nearer entity from the top-k boundary. The
    distance of an entity of rank r from the boundary is k - r inside the top k, and r - (k + 1) outside the top k.
    Entities of rank k and k + 1 therefore have distance 0.

    Parameters
    ----------
    duels : (q,) int64, ascending

    """
    away = np.where(view.rank <= view.k, view.k - view.rank, view.rank - view.k - 1)
    a, b = sides_of(len(view.entities), duels).T
    weights: Floats = 1.0 / (1.0 + np.minimum(away[a], away[b])) / (1.0 + SLOPE * np.abs(view.scores[a, b]))
    return weights


def registry(view: View) -> Ints:
    """Return the ascending indices of the unresolved duels between the best and the worst entity of each cluster.

    In each cluster, entities are ranked by Copeland wins against the other members.
    """
    orders = [view.ranked(cluster) for cluster in view.clusters if len(cluster) > 1]
    duels = np.array(sorted(view.duel(order[0], order[-1]) for order in orders), dtype=np.int64)
    return duels[~view.find_resolved(duels)]
