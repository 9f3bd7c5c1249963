"""Compiled Copeland standings of one patient's entities; the readable definition is `afa.copeland` (spec S6)."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from afa.engine.compile import kernel
from afa.engine.kernels import State
from afa.engine.packed import Indices
from afa.mrf import Floats

LINEARITY, WALD = 0, 1


class Standings(NamedTuple):
    """Entities ordered by their duels.

    order : (n,) entities, best first, names settling what nothing else does. place : (N,) how many entities are ahead
    of each by more than its name: equal places are ties.
    """

    order: Indices
    place: Indices


@kernel()
def duel_scores(state: State, readout: int, tie: float) -> Floats:
    """(N, N) antisymmetric scores by `LINEARITY` or `WALD`; magnitudes of rounding are 0."""
    cross, constant = state.cross, state.constant
    n = len(constant)
    scores = np.zeros((n, n))
    for a in range(n):
        for b in range(a + 1, n):
            if readout == LINEARITY:
                score = 0.5 * ((cross[a, a] - cross[b, b]) + (cross[b, a] - cross[a, b]))
            else:
                score = constant[a] - constant[b]
            if abs(score) > tie:
                scores[a, b], scores[b, a] = score, -score
    return scores


@kernel()
def standings(scores: Floats, members: Indices, name_rank: Indices, tie: float) -> Standings:
    """Order some entities by wins among themselves, then by the sum of their scores, then by name.

    Sums that differ from the next larger one by no more than rounding (`tie` times their number) count as equal to it.
    """
    n = len(members)
    wins, margin = np.zeros(n), np.zeros(n)
    for i in range(n):
        row = scores[members[i]]
        for k in range(n):
            score = row[members[k]]
            margin[i] += score
            wins[i] += 0.5 * (1 + (score > tie) - (score < -tie))
    step = _steps(margin, tie * n)
    order = np.empty(n, dtype=np.int64)
    place = np.zeros(len(name_rank), dtype=np.int64)
    names = name_rank[members]
    for i in range(n):
        ahead, named_ahead = 0, 0
        for k in range(n):  # sums of truth values, not branches: faster
            level = wins[k] == wins[i]
            ahead += (wins[k] > wins[i]) | (level & (step[k] < step[i]))
            named_ahead += level & (step[k] == step[i]) & (names[k] < names[i])
        order[ahead + named_ahead] = members[i]
        place[members[i]] = ahead
    return Standings(order, place)


@kernel()
def _steps(margin: Floats, equal: float) -> Indices:
    """(n,) number of larger sums that are apart from the next one by more than `equal`."""
    n = len(margin)
    largest_first = np.argsort(-margin)
    step = np.zeros(n, dtype=np.int64)
    for i in range(1, n):
        above, here = largest_first[i - 1], largest_first[i]
        step[here] = step[above] + (1 if margin[above] - margin[here] > equal else 0)
    return step


@kernel()
def is_certified(pairs: NDArray[np.int64], order: Indices, k: int, lead: Floats, resolved: NDArray[np.bool_]) -> bool:
    """Whether every duel across the top-k boundary is resolved and won from inside (`TopKPlanner.certified`)."""
    inside = np.zeros(len(order), dtype=np.bool_)
    for i in range(k):
        inside[order[i]] = True
    for p in range(len(pairs)):
        a, b = pairs[p, 0], pairs[p, 1]
        if inside[a] != inside[b] and not (resolved[p] and (lead[p] > 0.0) == inside[a]):
            return False
    return True
