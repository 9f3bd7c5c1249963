"""The allocation rule `lucb`."""

from __future__ import annotations

import numpy as np

from afa.engine.duels import sides_of
from afa.model.arrays import Ints
from afa.planner.rules.base import Choice, View, heaviest, nothing_to_decide


class Lucb:
    """Choose the feature with the largest gain in LUCB's duel (comparison of two entities).

    LUCB's duel compares the top-k entity with the smallest lower score bound and the entity outside the top k with the
    largest upper score bound. The score bounds of an entity are the tight `l1` interval of its score S_v.
    """

    def choose(self, view: View) -> Choice:
        return of_most_contested(view, "most contested duel across the boundary")


def of_most_contested(view: View, what: str) -> Choice:
    """Return the feature with the largest gain in LUCB's duel, a comparison of two entities.

    If all duels across the top-k boundary are resolved, return the choice of `fall_back`.
    """
    contested = most_contested(view)
    return nothing_to_decide(view) if contested is None else of_one_duel(view, contested, what)


def most_contested(view: View) -> int | None:
    """Return the index in `view.pairs` of LUCB's duel, or None if all duels across the top-k boundary are resolved.

    A duel across the boundary compares an entity h in the top k with an entity l outside the top k. The overlap of a
    duel is the upper bound on the score of l minus the lower bound on the score of h. LUCB's duel is the unresolved
    duel (comparison without a certain winner) with the largest overlap. Even if the score intervals of two entities
    overlap, the winner of their duel can be certain, because separate bounds on the difference of the two scores can
    exclude 0. Tied duels are sorted by the name of entity h, then by the name of entity l, and the first duel is
    chosen.
    """
    if not len(view.contested):
        return None
    inside, outside = sides(view, view.contested)
    overlap = view.intervals[outside, 1] - view.intervals[inside, 0]
    ties = np.flatnonzero(overlap >= overlap.max() - 4 * view.tie)
    first = min(ties, key=lambda i: (view.entities[inside[i]], view.entities[outside[i]]))
    return int(view.contested[first])


def sides(view: View, duels: Ints) -> tuple[Ints, Ints]:
    """Return, for each duel, the index of the better-ranked entity and the index of the worse-ranked entity.

    Both arrays have the shape (q,).

    Parameters
    ----------
    duels : (q,) int64, ascending

    """
    a, b = sides_of(len(view.entities), duels).T
    first = view.rank[a] < view.rank[b]
    return np.where(first, a, b), np.where(first, b, a)


def of_one_duel(view: View, duel: int, what: str) -> Choice:
    """Return the feature with the largest gain in one duel (comparison of two entities)."""
    alone = np.array([duel])
    better, worse = (view.entities[int(v[0])] for v in sides(view, alone))
    return heaviest(view, alone, np.ones(1), f"{what}, {better} against {worse}")
