"""The allocation rules `priority_all` and `priority_clusters` of the paper.

`PriorityAll` and `PriorityClusters` give large weights to duels (comparisons of two entities) with similar scores near
the top-k boundary.
"""

from __future__ import annotations

import numpy as np

from afa.engine.duels import sides_of
from afa.engine.rules import SLOPE
from afa.model.arrays import Floats, Ints
from afa.planner.rules.base import Choice, View, heaviest


class PriorityAll:
    """Choose the feature with the largest weighted sum of gains over all unresolved duels (eq:feature_selection)."""

    def choose(self, view: View) -> Choice:
        return by_priority(view, np.flatnonzero(~view.resolved), "open duels")


class PriorityClusters:
    """Choose the feature with the largest weighted sum of gains in certain duels (comparisons of two entities).

    Each cluster of entities contributes one duel, which compares the best entity of the cluster with the worst entity
    (eq:active_registry). Resolved duels are not included.
    """

    def choose(self, view: View) -> Choice:
        return by_priority(view, registry(view), "open duels of a cluster's best and worst")


def by_priority(view: View, duels: Ints, what: str) -> Choice:
    """Return the feature with the largest weighted sum of gains over the given duels (comparisons of two entities).

    The function `influence` computes the weights.

    Parameters
    ----------
    duels : (q,) int64, ascending

    """
    return heaviest(view, duels, influence(view, duels), f"{len(duels)} {what}, weighted by the boundary")


def influence(view: View, duels: Ints) -> Floats:
    """Return the weight w_ab of each duel, a number above 0 and at most 1 (eq:w_impl).

    A duel compares two entities a and b. The weight of a duel decreases with |V_ab|. The weight also decreases with the
    distance from the top-k boundary; of the two entities' distances, the smaller one is used. For an entity of rank r,
    the distance from the boundary is k - r inside the top k and r - (k + 1) outside. For example, the entities of rank
    k and k + 1 have the distance 0. The result has the shape (q,).

    Parameters
    ----------
    duels : (q,) int64, ascending

    """
    away = np.where(view.rank <= view.k, view.k - view.rank, view.rank - view.k - 1)
    a, b = sides_of(len(view.entities), duels).T
    weights: Floats = 1.0 / (1.0 + np.minimum(away[a], away[b])) / (1.0 + SLOPE * np.abs(view.scores[a, b]))
    return weights


def registry(view: View) -> Ints:
    """Return the indices of the unresolved duels that compare the best and the worst entity of the same cluster.

    The entities of a cluster are ranked by Copeland wins (won comparisons) against the other members. The indices are
    in ascending order.
    """
    orders = [view.ranked(cluster) for cluster in view.clusters if len(cluster) > 1]
    duels = np.array(sorted(view.duel(order[0], order[-1]) for order in orders), dtype=np.int64)
    return duels[~view.find_resolved(duels)]
