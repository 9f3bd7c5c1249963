"""The allocation rule `clustered` (Cluster-LUCB, eq:clustered-alloc)."""

from __future__ import annotations

import numpy as np

from afa.planner.rules.base import Choice, View
from afa.planner.rules.lucb import of_most_contested, of_one_duel


class Clustered:
    """Choose the feature with the largest gain for comparing the best entities of two clusters (eq:clustered-alloc).

    The champion of a cluster is the entity with the most Copeland wins (won comparisons) within the cluster. The rule
    compares two champions: the lowest-ranked champion in the top k, and the highest-ranked champion outside the top k.
    In two cases, the rule `lucb` chooses the feature instead. In the first case, all champions are in the top k, or all
    champions are outside. In the second case, unobserved features can no longer change the winner of the comparison.
    """

    def choose(self, view: View) -> Choice:
        duel = between_champions(view)
        if duel is not None:
            return of_one_duel(view, duel, "champions of clusters at the boundary")
        return of_most_contested(view, "no open duel of champions; most contested duel across the boundary")


def between_champions(view: View) -> int | None:
    """Return the index in `view.pairs` of the duel (comparison) between the two champions of `Clustered`.

    Return None if all champions (best entities of clusters) are in the top k, or if all are outside. Also return None
    if the unobserved features cannot change the winner of the duel.
    """
    champions = [view.ranked(cluster)[0] for cluster in view.clusters]
    inside = [v for v in champions if view.rank[v] <= view.k]
    outside = [v for v in champions if view.rank[v] > view.k]
    if not (inside and outside):
        return None
    duel = view.duel(max(inside, key=view.rank.__getitem__), min(outside, key=view.rank.__getitem__))
    return None if view.find_resolved(np.array([duel]))[0] else duel
