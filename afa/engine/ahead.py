"""Compiled look-ahead: every entity solved as if a feature had been observed, and a duel's score after it (spec S9)."""

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

    Of slot s and value x = i - 1 the places are at start[s] + i n, n the size of the entity's support.
    start : (K,). field, m, q : by place. constant, bound, own : (K, 3), own is E_q[S_v] of the entity itself.
    """

    start: NDArray[np.int64]
    field: Floats
    m: Floats
    q: Floats
    constant: Floats
    bound: Floats
    own: Floats


class Side(NamedTuple):
    """One entity of a duel, as it is or looked ahead.

    constant : running constant. bound : full ELBO. own : E_q[S_v] under its own marginals. field, m, q : by place.
    """

    constant: float
    bound: float
    own: float
    field: Floats
    m: Floats
    q: Floats


@kernel()
def new_ahead(packed: Packed) -> Ahead:
    """Space for the look-ahead of every slot."""
    k = len(packed.feature)
    start = np.zeros(k, dtype=np.int64)
    total = 0
    for slot in range(k):
        start[slot] = total
        total += 3 * (packed.first_slot[packed.owner[slot] + 1] - packed.first_slot[packed.owner[slot]])
    zeros = np.zeros((3, total))
    return Ahead(start, zeros[0], zeros[1], zeros[2], np.zeros((k, 3)), np.zeros((k, 3)), np.zeros((k, 3)))


@kernel()
def solve_ahead(packed: Packed, state: State, ahead: Ahead, changed: NDArray[np.bool_], iteration: Iteration) -> None:
    """Solve ahead every entity marked in `changed`, (N,), at each of its unobserved features and values (spec S9)."""
    for slot in range(len(packed.feature)):
        entity = packed.owner[slot]
        if not changed[entity] or state.observed[packed.feature[slot]]:
            continue
        base, n = packed.first_slot[entity], packed.first_slot[entity + 1] - packed.first_slot[entity]
        for i in range(3):
            value = i - 1
            begin = ahead.start[slot] + i * n
            field, m, q = ahead.field[begin : begin + n], ahead.m[begin : begin + n], ahead.q[begin : begin + n]
            field[:] = places(packed.first_slot, entity, state.field)
            m[:] = places(packed.first_slot, entity, state.m)
            q[:] = places(packed.first_slot, entity, state.q)
            for e in range(packed.first_edge[slot], packed.first_edge[slot + 1]):
                if not state.observed[packed.feature[packed.other_slot[e]]]:
                    field[packed.other_slot[e] - base] += packed.coupling[e] * value
            field[slot - base] = 0.0
            solved = solve(packed, entity, state.observed, packed.feature[slot], field, m, q, iteration)
            ahead.constant[slot, i] = state.constant[entity] + state.field[slot] * value
            ahead.bound[slot, i] = solved.bound
            ahead.own[slot, i] = expected_score(
                packed.overlaps, entity * len(packed.prior) + entity, ahead.constant[slot, i], field, m
            )


@kernel()
def present(packed: Packed, state: State, entity: int, n_hidden: int) -> Side:
    return Side(
        state.constant[entity],
        elbo(state, entity, n_hidden),
        state.cross[entity, entity],
        places(packed.first_slot, entity, state.field),
        places(packed.first_slot, entity, state.m),
        places(packed.first_slot, entity, state.q),
    )


@kernel()
def future(packed: Packed, state: State, ahead: Ahead, slot: int, i: int, n_hidden: int) -> Side:
    entity = packed.owner[slot]
    n = packed.first_slot[entity + 1] - packed.first_slot[entity]
    begin = ahead.start[slot] + i * n
    uniform = LOG3 * (n_hidden - (state.n_free[entity] - 1))
    return Side(
        ahead.constant[slot, i],
        ahead.constant[slot, i] + ahead.bound[slot, i] + uniform,
        ahead.own[slot, i],
        ahead.field[begin : begin + n],
        ahead.m[begin : begin + n],
        ahead.q[begin : begin + n],
    )


@kernel()
def score(packed: Packed, state: State, a: int, b: int, of_a: Side, of_b: Side, kind: int, without: int) -> float:
    """F of one duel from its two sides; `without` is a feature to treat as observed beside those that are, or -1."""
    if kind == F_TWO_ELBO:
        return of_a.bound - of_b.bound
    n = len(packed.prior)
    of_b_under_a = expected_score(packed.overlaps, a * n + b, of_b.constant, of_b.field, of_a.m)
    of_a_under_b = expected_score(packed.overlaps, b * n + a, of_a.constant, of_a.field, of_b.m)
    mean = 0.5 * ((of_a.own - of_b.own) + (of_a_under_b - of_b_under_a))
    if abs(mean) <= packed.tie:
        mean = 0.0
    if kind == F_LINEARITY:
        return mean
    return gaussian_sign(mean, _variance(packed, state, a, b, of_a, of_b, without))


@kernel()
def gaussian_sign(mean: float, variance: float) -> float:
    """E[sign X] of a Gaussian X; the sign of the mean where the variance is 0 (eq:fsp)."""
    if variance <= 0.0:
        return 0.0 if mean == 0.0 else math.copysign(1.0, mean)
    return math.erf(mean / math.sqrt(2.0 * variance))


@kernel()
def _variance(packed: Packed, state: State, a: int, b: int, of_a: Side, of_b: Side, without: int) -> float:
    """sigma_D^2 of a duel whose sides are given (eq:sigma-D)."""
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
                j = here_a - packed.first_slot[a]
                difference += of_a.field[j]
                first += 0.5 * of_a.m[j]
            if here_b >= 0:
                j = here_b - packed.first_slot[b]
                difference -= of_b.field[j]
                first += 0.5 * of_b.m[j]
            second += 0.5 * (of_a.q[here_a - packed.first_slot[a]] if here_a >= 0 else UNIFORM_SECOND)
            second += 0.5 * (of_b.q[here_b - packed.first_slot[b]] if here_b >= 0 else UNIFORM_SECOND)
            _, _, squares = row(packed, state, here_a, here_b, without)
            total += difference * difference * (second - first * first) + 0.5 * squares
        slot_a += 1 if here_a >= 0 else 0
        slot_b += 1 if here_b >= 0 else 0
    return total
