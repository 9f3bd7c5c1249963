"""Compiled Copeland standings of one patient's entities; the readable definition is `afa.copeland`."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from afa.engine.compile import kernel
from afa.engine.layout import Indices
from afa.engine.state import State, elbos, mean_difference
from afa.mrf import Floats

LINEARITY, WALD, TWO_ELBO = range(3)


class Ranks(NamedTuple):
    """Entities ordered by their duels.

    order : (n,) entities, best first, names settling what nothing else does. place : (N,) how many entities are ahead
    of each by more than its name: equal places are ties.
    """

    order: Indices
    place: Indices


@kernel()
def score_table(state: State, score: int, tie: float, n_hidden: int) -> Floats:
    """(N, N) antisymmetric scores by `LINEARITY`, `WALD` or `TWO_ELBO`; magnitudes of rounding are 0."""
    cross, n = state.cross, len(state.constant)
    of_one = elbos(state, n_hidden) if score == TWO_ELBO else state.constant
    scores = np.zeros((n, n))
    for a in range(n):
        for b in range(a + 1, n):
            difference = mean_difference(cross, a, b) if score == LINEARITY else of_one[a] - of_one[b]
            if abs(difference) > tie:
                scores[a, b], scores[b, a] = difference, -difference
    return scores


@kernel()
def ranks_of(scores: Floats, members: Indices, name_rank: Indices, tie: float) -> Ranks:
    """Order some entities by wins among themselves, then by the sum of their scores, then by name.

    scores : (N, N), antisymmetric. Sums that differ from the next larger one by no more than rounding (`tie` times
    their number) count as equal to it.
    """
    n = len(members)
    wins, margin = _tally(scores, members, tie)
    order = np.empty(n, dtype=np.int64)
    place = np.zeros(len(name_rank), dtype=np.int64)
    if n == 0:
        return Ranks(order, place)
    best = best_first(wins, margin, name_rank[members], tie * n)
    step = _steps(margin, tie * n)
    for i in range(n):
        here, above = best[i], best[max(i - 1, 0)]
        order[i] = members[here]
        level = i > 0 and wins[here] == wins[above] and step[here] == step[above]
        place[members[here]] = place[members[above]] if level else i
    return Ranks(order, place)


@kernel()
def best_first(wins: Floats, margin: Floats, names: Indices, equal: float) -> Indices:
    """(n,) order by wins, then by margin, then by name; margins apart from the next by `equal` or less are equal."""
    step, most, n_names = _steps(margin, equal), np.max(wins), np.max(names) + 1
    number = np.empty(len(wins), dtype=np.int64)  # of the three, the first counting most: wins are halves
    for i in range(len(wins)):
        number[i] = (int(2.0 * (most - wins[i])) * len(wins) + step[i]) * n_names + names[i]
    return np.argsort(number)


@kernel()
def _tally(scores: Floats, members: Indices, tie: float) -> tuple[Floats, Floats]:
    """(n,) wins of some entities among themselves, and the sums of their scores."""
    n = len(members)
    ahead, margin = np.zeros(n), np.zeros(n)
    if n < len(scores):
        for i in range(n):
            row = scores[members[i]]
            for k in range(n):
                score = row[members[k]]
                margin[i] += score
                ahead[i] += 0.5 * (1 + (score > tie) - (score < -tie))
        return ahead, margin
    for k in range(n):  # the scores of one opponent at a time: a term to every sum, none of which waits for another
        row = scores[k]
        for i in range(n):
            margin[i] -= row[i]
            ahead[i] += row[i] < -tie
            ahead[i] -= row[i] > tie
    wins: Floats = 0.5 * (n + ahead)
    return wins[members], margin[members]


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
