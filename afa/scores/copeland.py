"""From duels to a ranking: Copeland wins and the top-k, whatever order the entities come in."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise

import numpy as np

from afa.model.mrf import Floats


def copeland_wins(scores: Floats, *, tie: float = 0.0) -> Floats:
    """(N,) number of duels each entity wins; a score of magnitude at most `tie` is half a win (decisions.md S5).

    scores : (N, N) antisymmetric V, where a beats b if V_ab > 0.

    >>> copeland_wins(np.array([[0.0, 2.0, 0.0], [-2.0, 0.0, -1.0], [0.0, 1.0, 0.0]])).tolist()
    [1.5, 0.0, 1.5]
    """
    outcome = np.where(scores > tie, 1.0, np.where(scores < -tie, 0.0, 0.5))
    np.fill_diagonal(outcome, 0.0)
    wins: Floats = outcome.sum(axis=1)
    return wins


def ranking(scores: Floats, names: Sequence[str], *, tie: float = 0.0) -> list[str]:
    """All entities, best first: by wins, then by the sum of `V_ab` over opponents, then by name (decisions.md S6).

    scores : (N, N) as `copeland_wins` takes them. names : N, in their order.

    Sums that differ from the next larger one by no more than rounding (`tie` times N) count as equal to it.
    """
    wins = copeland_wins(scores, tie=tie)
    margin = np.sort(scores, axis=1).sum(axis=1)
    largest_first = sorted(range(len(names)), key=lambda v: -margin[v])
    step = np.zeros(len(names), dtype=int)
    for above, v in pairwise(largest_first):
        step[v] = step[above] + (margin[above] - margin[v] > tie * len(names))
    order = sorted(range(len(names)), key=lambda v: (-wins[v], step[v], names[v]))
    return [names[v] for v in order]
