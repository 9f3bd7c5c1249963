"""Every duel's tight `l1` budget along one patient's observations, kept up to date instead of summed again.

The budget is the l1 norm of what is left of the difference of two models: their effective unaries, and the couplings
between unobserved features. It bounds how far completions can move D_ab (eq:l1-bracket), and it is the
distance that entities are clustered by.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from afa.engine.compile import kernel
from afa.engine.duels import Pairs, number_of
from afa.engine.gains import new_gains
from afa.engine.layout import Indices, Packed
from afa.engine.state import State, places
from afa.mrf import Floats


class DuelEdges(NamedTuple):
    """What two models of Q duels differ in, laid out once for all patients.

    pairs : (Q, 2), all a < b in order. first_edge, duel, other, size : what observing feature f takes from the coupling
    part of budgets stands at first_edge[f] to first_edge[f + 1] - 1: `size` of the duel, unless the `other` feature has
    been observed.
    coupled : (Q,) the coupling part before any observation.
    """

    pairs: Pairs
    first_edge: Indices
    duel: Indices
    other: Indices
    size: Floats
    coupled: Floats


class Budgets(NamedTuple):
    """Of one patient, changed in place: the coupling part and the whole tight `l1` budget of each duel, (Q,).

    norm : (N,) absolute effective unaries of each entity, summed.
    """

    coupled: Floats
    whole: Floats
    norm: Floats


@kernel()
def duel_edges(packed: Packed, pairs: Pairs) -> DuelEdges:
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
    return DuelEdges(pairs, first_edge, duel, other, size, coupled)


@kernel()
def _couplings_of(packed: Packed, slot: int, sign: float, row: Floats) -> None:
    """Add the couplings of one slot, times `sign`, to a row over the features; -1 is no slot."""
    if slot >= 0:
        for e in range(packed.first_edge[slot], packed.first_edge[slot + 1]):
            row[packed.feature[packed.other_slot[e]]] += sign * packed.coupling[e]


@kernel()
def new_budgets(packed: Packed, edges: DuelEdges, state: State) -> Budgets:
    """The budgets of a patient of whom nothing has been observed."""
    n = len(packed.prior)
    budgets = Budgets(edges.coupled.copy(), np.empty(len(edges.pairs)), np.zeros(n))
    for entity in range(n):
        budgets.norm[entity] = np.sum(np.abs(places(packed.first_slot, entity, state.field)))
    for entity in range(n):
        _sum_budgets(packed, state, budgets, entity)
    return budgets


def no_budgets() -> Budgets:
    """Of no duel."""
    return Budgets(np.empty(0), np.empty(0), np.empty(0))


@kernel()
def copy_budgets(budgets: Budgets) -> Budgets:
    """Budgets that can be changed without changing the given ones."""
    return Budgets(budgets.coupled.copy(), budgets.whole.copy(), budgets.norm.copy())


@kernel()
def update_budgets(packed: Packed, edges: DuelEdges, state: State, budgets: Budgets, feature: int) -> None:
    """Take in the observation of one feature, after `condition`."""
    coupled, observed = budgets.coupled, state.observed
    duel, other, size = edges.duel, edges.other, edges.size
    for e in range(edges.first_edge[feature], edges.first_edge[feature + 1]):
        if not observed[other[e]]:
            coupled[duel[e]] -= size[e]
    owner = packed.owner
    holders = packed.holder[packed.first_holder[feature] : packed.first_holder[feature + 1]]
    for slot in holders:
        budgets.norm[owner[slot]] = np.sum(np.abs(places(packed.first_slot, owner[slot], state.field)))
    for slot in holders:
        _sum_budgets(packed, state, budgets, owner[slot])


@kernel()
def _sum_budgets(packed: Packed, state: State, budgets: Budgets, one: int) -> None:
    """Budgets of all duels of one entity: |a| + |b| over all features, less what that is too much at shared ones."""
    first, of_u, of_v = packed.overlaps.first, packed.overlaps.of_u, packed.overlaps.of_v
    coupled, whole, norm, field, first_slot = (
        budgets.coupled,
        budgets.whole,
        budgets.norm,
        state.field,
        packed.first_slot,
    )
    n = len(norm)
    for opponent in range(n):
        if opponent == one:
            continue
        a, b = min(one, opponent), max(one, opponent)
        total = norm[a] + norm[b]
        for i in range(first[a * n + b], first[a * n + b + 1]):
            of_a, of_b = field[first_slot[a] + of_u[i]], field[first_slot[b] + of_v[i]]
            total -= abs(of_a) + abs(of_b) - abs(of_a - of_b)
        p = number_of(n, a, b)
        whole[p] = total + coupled[p]


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
