"""Every duel's tight `l1` budget along one patient's observations, kept up to date instead of summed again.

The budget is the l1 norm of what is left of the difference of two models: their effective unaries, and the couplings
between unobserved features. It bounds how far completions can move D_ab (eq:l1-bracket), and it is the
distance that entities are clustered by.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from afa.engine.compile import kernel
from afa.engine.duels import Pairs, duel, is_stale, number_of, terms_of_duel
from afa.engine.gains import new_gains
from afa.engine.layout import NEXT, Indices, Packed
from afa.engine.reach import range_of_group, range_of_pair
from afa.engine.state import State, places
from afa.mrf import Floats


class DuelEdges(NamedTuple):
    """What two models of Q duels differ in, laid out once for all patients.

    pairs : (Q, 2), all a < b in order. first_edge, duel, other, size : what observing feature f takes from the coupling
    part of budgets stands at first_edge[f] to first_edge[f + 1] - 1: `size` (2, E) of the duel, below and above, unless
    the `other` feature has been observed.
    coupled : (2, Q) the coupling part before any observation.
    """

    pairs: Pairs
    first_edge: Indices
    duel: Indices
    other: Indices
    size: Floats
    coupled: Floats


class Budgets(NamedTuple):
    """Of one patient, changed in place: the coupling part and the whole tight `l1` budget of each duel, (2, Q).

    The first row is how far below its running constant D can end, the second how far above (docs/decisions.md, F12): of
    the paper's models both are the same, and of `coupled` the first alone is kept. norm : (2, N) the same of each
    entity's own terms.
    """

    coupled: Floats
    whole: Floats
    norm: Floats


@kernel(entrance=True)
def duel_edges(packed: Packed, pairs: Pairs) -> DuelEdges:
    """Lay out all duels of the packed entities."""
    union = new_gains(packed, pairs)
    first_edge = np.zeros(packed.n_features + 1, dtype=np.int64)
    duel, other, size = np.empty(0, dtype=np.int64), np.empty(0, dtype=np.int64), np.empty((2, 0))
    coupled = np.zeros((2, len(pairs)))
    rows = np.zeros((2, packed.n_features))
    for filling in (False, True):
        place = first_edge[:-1].copy()
        for p in range(len(pairs)):
            for i in range(union.first[p], union.first[p + 1]):
                feature = union.feature[i]
                _couplings_of(packed, union.slot_a[i], rows[0])
                _couplings_of(packed, union.slot_b[i], rows[1])
                for k in range(union.first[p], union.first[p + 1]):
                    there = union.feature[k]
                    of_a, of_b = rows[0, there], rows[1, there]
                    rows[0, there] = rows[1, there] = 0.0
                    if of_a == 0.0 and of_b == 0.0:
                        continue
                    if packed.stated is None:
                        below = above = abs(of_a - of_b)
                    else:
                        below, above = range_of_pair(
                            packed.site, of_a, union.slot_a[i], union.slot_a[k], of_b, union.slot_b[i], union.slot_b[k]
                        )
                    if below == 0.0 and above == 0.0:
                        continue
                    if filling:
                        duel[place[feature]], other[place[feature]] = p, there
                        size[0, place[feature]], size[1, place[feature]] = below, above
                        coupled[0, p] += 0.5 * below
                        coupled[1, p] += 0.5 * above
                    place[feature] += 1
        if not filling:
            counts = place - first_edge[:-1]
            first_edge[1:] = np.cumsum(counts)
            duel, other = np.empty(first_edge[-1], dtype=np.int64), np.empty(first_edge[-1], dtype=np.int64)
            size = np.empty((2, first_edge[-1]))
    return DuelEdges(pairs, first_edge, duel, other, size, coupled)


@kernel()
def _couplings_of(packed: Packed, slot: int, row: Floats) -> None:
    """Write the couplings of one slot into a row over the features; -1 is no slot."""
    if slot >= 0:
        for e in range(packed.first_edge[slot], packed.first_edge[slot + 1]):
            row[packed.feature[packed.other_slot[e]]] = packed.coupling[e]


@kernel(entrance=True)
def new_budgets(packed: Packed, edges: DuelEdges, state: State) -> Budgets:
    """The budgets of a patient of whom nothing has been observed."""
    n = len(packed.prior)
    budgets = Budgets(edges.coupled.copy(), np.empty((2, len(edges.pairs))), np.zeros((2, n)))
    for entity in range(n):
        _sum_terms(packed, state, budgets, entity)
    for entity in range(n):
        _sum_budgets(packed, state, budgets, entity)
    return budgets


def no_budgets() -> Budgets:
    """Of no duel."""
    return Budgets(np.empty((2, 0)), np.empty((2, 0)), np.empty((2, 0)))


@kernel()
def copy_budgets(budgets: Budgets) -> Budgets:
    """Budgets that can be changed without changing the given ones."""
    return Budgets(budgets.coupled.copy(), budgets.whole.copy(), budgets.norm.copy())


@kernel(entrance=True)
def update_budgets(packed: Packed, edges: DuelEdges, state: State, budgets: Budgets, feature: int) -> None:
    """Take in the observation of one feature, after `condition`."""
    coupled, observed = budgets.coupled, state.observed
    duel, other, size = edges.duel, edges.other, edges.size
    for e in range(edges.first_edge[feature], edges.first_edge[feature + 1]):
        if not observed[other[e]]:
            coupled[0, duel[e]] -= size[0, e]
            if packed.stated is not None:
                coupled[1, duel[e]] -= size[1, e]
    owner = packed.owner
    holders = packed.holder[packed.first_holder[feature] : packed.first_holder[feature + 1]]
    for slot in holders:
        _sum_terms(packed, state, budgets, owner[slot])
    for slot in holders:
        _sum_budgets(packed, state, budgets, owner[slot])


@kernel()
def _sum_terms(packed: Packed, state: State, budgets: Budgets, entity: int) -> None:
    """Write how far the terms of one entity, but for exclusive groups, can take it below and above."""
    norm = budgets.norm
    if packed.stated is None:
        norm[0, entity] = norm[1, entity] = np.sum(np.abs(places(packed.first_slot, entity, state.field)))
        return
    norm[0, entity] = norm[1, entity] = 0.0
    for slot in range(packed.first_slot[entity], packed.first_slot[entity + 1]):
        if not state.observed[packed.feature[slot]] and packed.site[NEXT, slot] < 0.0:
            low, middle, high = terms_of_duel(packed, state, slot, -1)
            below, above = _reach(low, middle, high)
            norm[0, entity] += below
            norm[1, entity] += above


@kernel(inline=True)
def _reach(low: float, middle: float, high: float) -> tuple[float, float]:
    """How far below and above 0 the term of one unobserved feature can be, each 0 or more."""
    return -min(0.0, low, middle, high), max(0.0, low, middle, high)


@kernel()
def _sum_budgets(packed: Packed, state: State, budgets: Budgets, one: int) -> None:
    """Budgets of all duels of one entity: those of both over all features, less what is too much at shared ones."""
    first, of_u, of_v = packed.overlaps.first, packed.overlaps.of_u, packed.overlaps.of_v
    coupled, whole, norm, field, first_slot = (
        budgets.coupled,
        budgets.whole,
        budgets.norm,
        state.field,
        packed.first_slot,
    )
    n, feature, observed = norm.shape[1], packed.feature, state.observed
    for opponent in range(n):
        if opponent == one:
            continue
        a, b = min(one, opponent), max(one, opponent)
        p, shared = number_of(n, a, b), range(first[a * n + b], first[a * n + b + 1])
        if packed.stated is None:
            total = norm[0, a] + norm[0, b]
            for i in shared:
                of_a, of_b = field[first_slot[a] + of_u[i]], field[first_slot[b] + of_v[i]]
                total -= abs(of_a) + abs(of_b) - abs(of_a - of_b)
            whole[0, p] = whole[1, p] = total + coupled[0, p]
            continue
        below, above = norm[0, a] + norm[1, b], norm[1, a] + norm[0, b]
        for i in shared:
            slot_a, slot_b = first_slot[a] + of_u[i], first_slot[b] + of_v[i]
            after = packed.site[NEXT, slot_a]
            if 0.0 <= after <= slot_a:  # its last member stands for an exclusive group
                of_group = range_of_group(packed.site, state.m, slot_a, slot_b)
                below, above = below + of_group[0], above + of_group[1]
            if after >= 0.0 or observed[feature[slot_a]]:
                continue
            low_a, middle_a, high_a = terms_of_duel(packed, state, slot_a, -1)
            low_b, middle_b, high_b = terms_of_duel(packed, state, slot_b, -1)
            below_a, above_a = _reach(low_a, middle_a, high_a)
            below_b, above_b = _reach(low_b, middle_b, high_b)
            below_both, above_both = _reach(low_a - low_b, middle_a - middle_b, high_a - high_b)
            below += below_both - (below_a + above_b)
            above += above_both - (above_a + below_b)
        whole[0, p], whole[1, p] = below + coupled[0, p], above + coupled[1, p]


@kernel(entrance=True)
def refresh_budgets(
    packed: Packed,
    state: State,
    duels: Indices,
    pairs: Pairs,
    budget: Floats,
    made_at: NDArray[np.int32],
    changed_at: Indices,
    now: int,
) -> None:
    """Tight `l1` budgets of some duels, written to their places in `budget` (Q,) where an entity has changed since.

    pairs : (q, 2) the entities of `duels` (q,). made_at : (Q,) the round of each budget, 0 for none; changed_at : (N,)
    the round at which each entity last changed, from 1 on; now : the present round.
    """
    for i in range(len(duels)):
        p, a, b = duels[i], pairs[i, 0], pairs[i, 1]
        if is_stale(changed_at, made_at[p], a, b):
            budget[p] = duel(packed, state, a, b).budget
            made_at[p] = now


@kernel(entrance=True)
def entity_budgets(packed: Packed, state: State) -> Floats:
    """(N,) how far completions can move each entity's own S_v (eq:l1-bracket)."""
    budgets, field, observed = np.zeros(len(packed.prior)), state.field, state.observed
    feature, owner, first_edge = packed.feature, packed.owner, packed.first_edge
    other_slot, coupling = packed.other_slot, packed.coupling
    for slot in range(len(feature)):
        total = abs(field[slot])
        if not observed[feature[slot]]:
            for e in range(first_edge[slot], first_edge[slot + 1]):
                if not observed[feature[other_slot[e]]]:
                    total += 0.5 * abs(coupling[e])
        budgets[owner[slot]] += total
    return budgets
