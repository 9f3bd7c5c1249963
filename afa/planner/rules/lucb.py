"""`lucb`: the gain of one duel alone, which is the most uncertain unresolved duel across the top-k boundary."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from afa.engine.duels import sides_of
from afa.planner.rules.base import Choice, Duels, View, heaviest, nothing_to_decide


class Lucb:
    """Choose by the gain of one duel.

    The duel is between the top-k entity with the smallest lower bound and the outside entity with the largest upper
    bound. The bounds of an entity are the tight `l1` interval of its own S_v.
    """

    def choose(self, view: View) -> Choice:
        return of_most_contested(view, "most contested duel across the boundary")


def of_most_contested(view: View, what: str) -> Choice:
    """Return the feature of largest gain for LUCB's duel, or the fallback if there is no such duel."""
    contested = most_contested(view)
    return nothing_to_decide(view) if contested is None else of_one_duel(view, contested, what)


def most_contested(view: View) -> int | None:
    """Return the index in `view.pairs` of LUCB's duel, or None if every duel across the boundary is resolved.

    LUCB's duel is between a top-k entity h and an outside entity l. Among the unresolved duels, it has the largest
    upper(l) - lower(h). The duel with the largest difference of all may already be resolved. The bracket of a duel can
    be narrower than the intervals of the two entities. If the duel is resolved, the unresolved duel with the next
    largest difference is taken. Ties within rounding error are broken by the name of h, and then by the name of l.
    """
    if not len(view.contested):
        return None
    inside, outside = sides(view, view.contested)
    overlap = view.intervals[outside, 1] - view.intervals[inside, 0]
    ties = np.flatnonzero(overlap >= overlap.max() - 4 * view.tie)
    first = min(ties, key=lambda i: (view.entities[inside[i]], view.entities[outside[i]]))
    return int(view.contested[first])


def sides(view: View, duels: Duels) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """Return the entity with the better rank and the entity with the worse rank in each duel, (q,) int64 each."""
    a, b = sides_of(len(view.entities), duels).T
    first = view.rank[a] < view.rank[b]
    return np.where(first, a, b), np.where(first, b, a)


def of_one_duel(view: View, duel: int, what: str) -> Choice:
    """Return the feature of largest gain for a single duel."""
    alone = np.array([duel])
    better, worse = (view.entities[int(v[0])] for v in sides(view, alone))
    return heaviest(view, alone, np.ones(1), f"{what}, {better} against {worse}")
