"""Compiled calls of every bracket for one duel in its present state; the readable intervals are `afa.bracket`."""

from __future__ import annotations

import math

import numpy as np
from numpy.typing import NDArray

from afa.bracket import ALPHA, K1
from afa.engine.compile import kernel
from afa.engine.duels import Duel
from afa.engine.layout import Packed
from afa.engine.state import State, sign

BRACKETS = ("l1_tight", "l1_paper", "hanson_wright", "kl", "kl_written")
RIGOROUS = ("l1_tight", "l1_paper")


@kernel()
def bracket_calls(
    packed: Packed,
    state: State,
    a: int,
    b: int,
    sums: Duel,
    mean: float,
    votes: NDArray[np.int64],
    n_observed: int,
    gamma: float,
    calls: NDArray[np.int8],
) -> None:
    """Write the call of each bracket, (5,) in the order of `BRACKETS`: +1 for a, -1 for b, 0 where it is open.

    sums : of the duel (a, b) now. mean : mu_D, 0 where it is rounding. votes : (2,) for a and for b. gamma : the
    share of wrong calls that the heuristic brackets allow, in (0, 1).
    """
    lead = state.constant[a] - state.constant[b]
    calls[0] = sign(lead, sums.budget + packed.tie)
    calls[1] = sign(lead, sums.budget + sums.between + packed.tie)
    calls[2] = sign(mean, math.sqrt(2.0 * sums.spread * math.log(2.0 / gamma) * (1.0 + sums.beta)))
    calls[3] = vote_call(votes[0], votes[0] + votes[1], gamma)
    calls[4] = vote_call(votes[0], n_observed, gamma)


@kernel()
def vote_call(positive: int, n: int, gamma: float) -> int:
    """Side of 1/2 that the KL confidence set of `positive` of n votes lies on (supp:kl_bracket), 0 where it holds 1/2.

    The set is an interval around the share of votes, so that it leaves out 1/2 where n kl(share, 1/2) is above the
    level.
    """
    if n == 0:
        return 0
    share = positive / n
    divergence = math.log(2.0)
    for p in (share, 1.0 - share):
        if p > 0.0:
            divergence += p * math.log(p)
    if n * divergence <= math.log(K1 * n**ALPHA / gamma):
        return 0
    return 1 if share > 0.5 else -1
