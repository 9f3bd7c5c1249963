"""The allocation rule `lucb`."""

from __future__ import annotations

import numpy as np

from afa.engine.duels import sides_of
from afa.model.arrays import Ints
from afa.planner.rules.base import Choice, View, heaviest, nothing_to_decide


class Lucb:
    """Choose the feature with the largest gain in LUCB's duel, the most uncertain duel across the top-k boundary.

    This is the duel of the top-k entity with the smallest lower bound and the outside entity with the largest upper
    bound. The bounds of an entity are the tight `l1` interval of its score S_v.
    """

    def choose(self, view: View) -> Choice:
        return of_most_contested(view, "most contested duel across the boundary")


def of_most_contested(view: View, what: str) -> Choice:
    """Return the feature with the largest gain in LUCB's duel, or the choice of `fall_back` if no duel is left."""
    contested = most_contested(view)
    return nothing_to_decide(view) if contested is None else of_one_duel(view, contested, what)


def most_contested(view: View) -> int | None:
    """Return the index in `view.pairs` of LUCB's duel, or None if every duel across the top-k boundary is resolved.

    LUCB's duel is between a top-k entity h and an entity l outside the top k. Of all unresolved duels across the
    boundary, LUCB's duel has the largest difference upper(l) - lower(h). A resolved duel can have a larger difference,
    because a duel's bracket can be narrower than the two entities' intervals. Ties within rounding error are broken by
    the name of h, and then by the name of l.
    """
    if not len(view.contested):
        return None
    inside, outside = sides(view, view.contested)
    overlap = view.intervals[outside, 1] - view.intervals[inside, 0]
    ties = np.flatnonzero(overlap >= overlap.max() - 4 * view.tie)
    first = min(ties, key=lambda i: (view.entities[inside[i]], view.entities[outside[i]]))
    return int(view.contested[first])


def sides(view: View, duels: Ints) -> tuple[Ints, Ints]:
    """Return the better-ranked and the worse-ranked entity of each duel, (q,) int64 each.

    Parameters
    ----------
    duels : (q,) int64, ascending

    """
    a, b = sides_of(len(view.entities), duels).T
    first = view.rank[a] < view.rank[b]
    return np.where(first, a, b), np.where(first, b, a)


def of_one_duel(view: View, duel: int, what: str) -> Choice:
    """Return the feature with the largest gain in a single duel."""
    alone = np.array([duel])
    better, worse = (view.entities[int(v[0])] for v in sides(view, alone))
    return heaviest(view, alone, np.ones(1), f"{what}, {better} against {worse}")
