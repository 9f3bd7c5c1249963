"""Rank entities by Copeland wins: the number of other entities that an entity beats."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise

import numpy as np

from afa.model.arrays import Floats


def copeland_wins(scores: Floats, *, tie: float = 0.0) -> Floats:
    """Return the number of other entities that each entity beats. A tie counts as half a win.

    Parameters
    ----------
    scores : (N, N) float64, antisymmetric; a beats b if scores[a, b] > `tie`, and a ties with b if the absolute score
        is at most `tie`

    Returns
    -------
    wins : (N,) float64, multiples of 1/2 from 0 to N - 1

    Examples
    --------
    >>> copeland_wins(np.array([[0.0, 2.0, 0.0], [-2.0, 0.0, -1.0], [0.0, 1.0, 0.0]])).tolist()
    [1.5, 0.0, 1.5]

    """
    outcome = np.where(scores > tie, 1.0, np.where(scores < -tie, 0.0, 0.5))
    np.fill_diagonal(outcome, 0.0)
    wins: Floats = outcome.sum(axis=1)
    return wins


def ranking(scores: Floats, names: Sequence[str], *, tie: float = 0.0) -> list[str]:
    """Return the names of all entities, most preferred first.

    The names are sorted by wins, then by the sum of the entity's scores, then by name. In the sorted list of sums, two
    neighbouring sums count as equal if they differ by at most N * `tie`, the rounding error of a sum
    (docs/decisions.md). The order of the rows has no influence on the ranking.

    Parameters
    ----------
    scores : (N, N) float64, as in `copeland_wins`
    names : (N,) names of the entities, in the order of the rows of `scores`

    """
    wins = copeland_wins(scores, tie=tie)
    margin = np.sort(scores, axis=1).sum(axis=1)
    largest_first = sorted(range(len(names)), key=lambda v: -margin[v])
    step = np.zeros(len(names), dtype=int)
    for above, v in pairwise(largest_first):
        step[v] = step[above] + (margin[above] - margin[v] > tie * len(names))
    order = sorted(range(len(names)), key=lambda v: (-wins[v], step[v], names[v]))
    return [names[v] for v in order]
