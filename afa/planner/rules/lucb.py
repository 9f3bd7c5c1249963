"""`lucb`: the open duel across the top-k boundary that is most in doubt, and nothing else (decisions.md A5)."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from afa.engine.duels import sides_of
from afa.planner.rules.base import Choice, Duels, View, heaviest, nothing_to_decide


class Lucb:
    """Gain of one duel: the top-k entity that may end lowest against the entity outside that may end highest.

    An entity may end anywhere in the tight `l1` interval of its own S_v.
    """

    in_the_grid = 4

    def choose(self, view: View) -> Choice:
        return of_most_contested(view, "most contested duel across the boundary")


def of_most_contested(view: View, what: str) -> Choice:
    """The feature of largest gain for LUCB's duel, or decisions.md A7's where there is none."""
    contested = most_contested(view)
    return nothing_to_decide(view) if contested is None else of_one_duel(view, contested, what)


def most_contested(view: View) -> int | None:
    """Place in `view.pairs` of LUCB's duel, or None where every duel across the boundary is resolved.

    Of the unresolved duels of a top-k entity h against an outside entity l, the one of largest upper(l) - lower(h):
    the least lower bound against the greatest upper bound, or the next such duel where the bracket of the difference
    has resolved that one though the intervals of the two entities overlap. Overlaps within rounding of the
    largest go to the first names (h, then l).
    """
    if not len(view.contested):
        return None
    inside, outside = sides(view, view.contested)
    overlap = view.intervals[outside, 1] - view.intervals[inside, 0]
    ties = np.flatnonzero(overlap >= overlap.max() - 4 * view.tie)
    first = min(ties, key=lambda i: (view.entities[inside[i]], view.entities[outside[i]]))
    return int(view.contested[first])


def sides(view: View, duels: Duels) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """The better and the worse ranked entity of each duel."""
    a, b = sides_of(len(view.entities), duels).T
    first = view.rank[a] < view.rank[b]
    return np.where(first, a, b), np.where(first, b, a)


def of_one_duel(view: View, duel: int, what: str) -> Choice:
    """The feature of largest gain for a single duel."""
    alone = np.array([duel])
    better, worse = (view.entities[int(v[0])] for v in sides(view, alone))
    return heaviest(view, alone, np.ones(1), f"{what}, {better} against {worse}")
