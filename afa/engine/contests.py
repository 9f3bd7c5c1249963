"""Every duel's tight `l1` budget along one patient's observations, kept up to date instead of summed again.

The budget is the l1 norm of what is left of the difference of two models: their effective unaries, and the couplings
between unobserved features. It bounds how far completions can move D_ab (eq:l1-bracket, spec B1), and it is the
distance that entities are clustered by (spec A1).
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from afa.engine.compile import kernel
from afa.engine.duels import Pairs
from afa.engine.gains import new_gains
from afa.engine.kernels import State
from afa.engine.packed import Indices, Packed
from afa.mrf import Floats


class Contests(NamedTuple):
    """What two models of Q duels differ in, laid out once for all patients.

    pairs : (Q, 2), all a < b in order. first, slot_a, slot_b : the features of a duel's two supports, as in `Gains`.
    first_edge, duel, other, size : what observing feature f takes from the coupling part of budgets stands at
    first_edge[f] to first_edge[f + 1] - 1: `size` of the duel, unless the `other` feature has been observed.
    coupled : (Q,) the coupling part before any observation.
    """

    pairs: Pairs
    first: Indices
    slot_a: Indices
    slot_b: Indices
    first_edge: Indices
    duel: Indices
    other: Indices
    size: Floats
    coupled: Floats


class Budgets(NamedTuple):
    """Of one patient: the coupling part, and the whole tight `l1` budget of each duel; both (Q,), changed in place."""

    coupled: Floats
    whole: Floats


@kernel()
def new_contests(packed: Packed, pairs: Pairs) -> Contests:
    """Lay out all duels of the packed entities."""
    union = new_gains(packed, pairs)
    first_edge = np.zeros(packed.n_features + 1, dtype=np.int64)
    duel, other, size = np.empty(0, dtype=np.int64), np.empty(0, dtype=np.int64), np.empty(0)
    coupled = np.zeros(len(pairs))
    row = np.zeros(packed.n_features)
    for filling in (False, True):
        place = first_edge[:-1].copy()
        for p in range(len(pairs)):
            for i in range(union.first[p], union.first[p + 1]):
                feature = union.feature[i]
                _couplings_of(packed, union.slot_a[i], 1.0, row)
                _couplings_of(packed, union.slot_b[i], -1.0, row)
                for k in range(union.first[p], union.first[p + 1]):
                    there = union.feature[k]
                    if row[there] != 0.0:
                        if filling:
                            duel[place[feature]], other[place[feature]] = p, there
                            size[place[feature]] = abs(row[there])
                            coupled[p] += 0.5 * abs(row[there])
                        place[feature] += 1
                        row[there] = 0.0
        if not filling:
            counts = place - first_edge[:-1]
            first_edge[1:] = np.cumsum(counts)
            duel, other = np.empty(first_edge[-1], dtype=np.int64), np.empty(first_edge[-1], dtype=np.int64)
            size = np.empty(first_edge[-1])
    return Contests(pairs, union.first, union.slot_a, union.slot_b, first_edge, duel, other, size, coupled)


@kernel()
def _couplings_of(packed: Packed, slot: int, sign: float, row: Floats) -> None:
    """Add the couplings of one slot, times `sign`, to a row over the features; -1 is no slot."""
    if slot >= 0:
        for e in range(packed.first_edge[slot], packed.first_edge[slot + 1]):
            row[packed.feature[packed.other_slot[e]]] += sign * packed.coupling[e]


@kernel()
def new_budgets(contests: Contests, state: State) -> Budgets:
    """The budgets of a patient of whom nothing has been observed."""
    first, slot_a, slot_b, field = contests.first, contests.slot_a, contests.slot_b, state.field
    whole = contests.coupled.copy()
    for p in range(len(whole)):
        whole[p] += _unary_part(first, slot_a, slot_b, field, p)
    return Budgets(contests.coupled.copy(), whole)


@kernel()
def refresh_after(
    packed: Packed, contests: Contests, state: State, budgets: Budgets, feature: int, stale: NDArray[np.bool_]
) -> None:
    """Take in the observation of one feature, after `observe`; marks the duels that it changed in `stale`, (Q,)."""
    coupled, whole, observed = budgets.coupled, budgets.whole, state.observed
    duel, other, size = contests.duel, contests.other, contests.size
    for e in range(contests.first_edge[feature], contests.first_edge[feature + 1]):
        if not observed[other[e]]:
            coupled[duel[e]] -= size[e]
    first, slot_a, slot_b, field = contests.first, contests.slot_a, contests.slot_b, state.field
    n, owner, holder = len(packed.prior), packed.owner, packed.holder
    for h in range(packed.first_holder[feature], packed.first_holder[feature + 1]):
        one = owner[holder[h]]
        for opponent in range(n):
            if opponent != one:
                p = number_of(n, one, opponent)
                whole[p] = coupled[p] + _unary_part(first, slot_a, slot_b, field, p)
                stale[p] = True


@kernel(inline=True)
def _unary_part(first: Indices, slot_a: Indices, slot_b: Indices, field: Floats, p: int) -> float:
    """Sum of the absolute differences of effective unaries; observed features have none."""
    total = 0.0
    for i in range(first[p], first[p + 1]):
        of_a = field[slot_a[i]] if slot_a[i] >= 0 else 0.0
        of_b = field[slot_b[i]] if slot_b[i] >= 0 else 0.0
        total += abs(of_a - of_b)
    return total


@kernel(inline=True)
def number_of(n: int, one: int, other: int) -> int:
    """Place of the duel of two of n entities among all pairs a < b in order."""
    a, b = min(one, other), max(one, other)
    return a * n - a * (a + 1) // 2 + b - a - 1


@kernel()
def entity_budgets(packed: Packed, state: State) -> Floats:
    """(N,) how far completions can move each entity's own S_v (eq:l1-bracket)."""
    budgets = np.zeros(len(packed.prior))
    for slot in range(len(packed.feature)):
        total = abs(state.field[slot])
        if not state.observed[packed.feature[slot]]:
            for e in range(packed.first_edge[slot], packed.first_edge[slot + 1]):
                if not state.observed[packed.feature[packed.other_slot[e]]]:
                    total += 0.5 * abs(packed.coupling[e])
        budgets[packed.owner[slot]] += total
    return budgets
