"""Compiled look-ahead: every entity solved as if one of its features had been observed (spec S9)."""

from __future__ import annotations

import math
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from afa.engine.compile import kernel
from afa.engine.duels import UNIFORM_SECOND, row
from afa.engine.kernels import LOG3, Iteration, State, elbo, expected_score, places, solve
from afa.engine.packed import Packed
from afa.mrf import Floats

F_LINEARITY, F_TWO_ELBO, F_STACK_A = 2, 3, 4


class Ahead(NamedTuple):
    """Every entity solved again as if one of its features had been observed; kept until the entity changes.

    A *case* is slot s with value i - 1, at index 3 s + i, or an entity v as it is, at 3 K + v.

    start : (3 K + N,) where the places of a case begin in field, m, q. constant : (3 K + N,) running constants. bound :
    (3 K + N,) ELBO less log 3 for each of all unobserved features, which two sides of a duel have in common. own :
    (3 K + N,) E_q[S_v] of the entity itself.
    """

    start: NDArray[np.int64]
    field: Floats
    m: Floats
    q: Floats
    constant: Floats
    bound: Floats
    own: Floats


@kernel()
def new_ahead(packed: Packed) -> Ahead:
    """Space for all cases."""
    n, k = len(packed.prior), len(packed.feature)
    start = np.zeros(3 * k + n, dtype=np.int64)
    total = 0
    for case in range(3 * k + n):
        entity = packed.owner[case // 3] if case < 3 * k else case - 3 * k
        start[case] = total
        total += packed.first_slot[entity + 1] - packed.first_slot[entity]
    places_, cases = np.zeros((3, total)), np.zeros((3, 3 * k + n))
    return Ahead(start, places_[0], places_[1], places_[2], cases[0], cases[1], cases[2])


@kernel()
def solve_ahead(packed: Packed, state: State, ahead: Ahead, changed: NDArray[np.bool_], iteration: Iteration) -> None:
    """Solve ahead every entity marked in `changed`, (N,), at each of its unobserved features and values (spec S9)."""
    for entity in range(len(changed)):
        if changed[entity]:
            _keep_present(packed, state, ahead, entity)
            for slot in range(packed.first_slot[entity], packed.first_slot[entity + 1]):
                if not state.observed[packed.feature[slot]]:
                    _solve_slot(packed, state, ahead, entity, slot, iteration)


@kernel()
def _keep_present(packed: Packed, state: State, ahead: Ahead, entity: int) -> None:
    case = 3 * len(packed.feature) + entity
    begin, end = ahead.start[case], ahead.start[case] + packed.first_slot[entity + 1] - packed.first_slot[entity]
    ahead.field[begin:end] = places(packed.first_slot, entity, state.field)
    ahead.m[begin:end] = places(packed.first_slot, entity, state.m)
    ahead.q[begin:end] = places(packed.first_slot, entity, state.q)
    ahead.constant[case] = state.constant[entity]
    ahead.bound[case] = elbo(state, entity, 0)
    ahead.own[case] = state.cross[entity, entity]


@kernel()
def _solve_slot(packed: Packed, state: State, ahead: Ahead, entity: int, slot: int, iteration: Iteration) -> None:
    first, of_u, of_v, first_edge, edge_j, edge_l, coupling = packed.overlaps
    own = entity * len(packed.prior) + entity
    base, size = packed.first_slot[entity], packed.first_slot[entity + 1] - packed.first_slot[entity]
    for i in range(3):
        case, value = 3 * slot + i, i - 1
        begin, end = ahead.start[case], ahead.start[case] + size
        field, m, q = ahead.field[begin:end], ahead.m[begin:end], ahead.q[begin:end]
        field[:] = places(packed.first_slot, entity, state.field)
        m[:] = places(packed.first_slot, entity, state.m)
        q[:] = places(packed.first_slot, entity, state.q)
        for e in range(packed.first_edge[slot], packed.first_edge[slot + 1]):
            if not state.observed[packed.feature[packed.other_slot[e]]]:
                field[packed.other_slot[e] - base] += packed.coupling[e] * value
        field[slot - base] = 0.0
        solved = solve(packed, entity, state.observed, packed.feature[slot], field, m, q, iteration)
        constant = state.constant[entity] + state.field[slot] * value
        ahead.constant[case] = constant
        ahead.bound[case] = constant + solved.bound - LOG3 * solved.n_free
        ahead.own[case] = expected_score(
            first, of_u, of_v, first_edge, edge_j, edge_l, coupling, own, constant, field, 0, m, 0
        )


@kernel()
def gaussian_sign(mean: float, variance: float) -> float:
    """E[sign X] of a Gaussian X; the sign of the mean where the variance is 0 (eq:fsp)."""
    if variance <= 0.0:
        return 0.0 if mean == 0.0 else math.copysign(1.0, mean)
    return math.erf(mean / math.sqrt(2.0 * variance))


@kernel()
def variance_ahead(
    packed: Packed, state: State, ahead: Ahead, a: int, b: int, begin_a: int, begin_b: int, without: int
) -> float:
    """sigma_D^2 of a duel whose sides have their places from `begin_a` and `begin_b` on (eq:sigma-D).

    `without` is a feature to treat as observed beside those that are.
    """
    slot_a, last_a = packed.first_slot[a], packed.first_slot[a + 1]
    slot_b, last_b = packed.first_slot[b], packed.first_slot[b + 1]
    total = 0.0
    while slot_a < last_a or slot_b < last_b:
        at_a = packed.feature[slot_a] if slot_a < last_a else packed.n_features
        at_b = packed.feature[slot_b] if slot_b < last_b else packed.n_features
        at = min(at_a, at_b)
        here_a, here_b = (slot_a if at_a == at else -1), (slot_b if at_b == at else -1)
        if not state.observed[at] and at != without:
            difference, first, second = 0.0, 0.0, 0.0
            if here_a >= 0:
                j = begin_a + here_a - packed.first_slot[a]
                difference += ahead.field[j]
                first += 0.5 * ahead.m[j]
            if here_b >= 0:
                j = begin_b + here_b - packed.first_slot[b]
                difference -= ahead.field[j]
                first += 0.5 * ahead.m[j]
            second += 0.5 * (ahead.q[begin_a + here_a - packed.first_slot[a]] if here_a >= 0 else UNIFORM_SECOND)
            second += 0.5 * (ahead.q[begin_b + here_b - packed.first_slot[b]] if here_b >= 0 else UNIFORM_SECOND)
            _, _, squares = row(packed, state, here_a, here_b, without)
            total += difference * difference * (second - first * first) + 0.5 * squares
        slot_a += 1 if here_a >= 0 else 0
        slot_b += 1 if here_b >= 0 else 0
    return total
