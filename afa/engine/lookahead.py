"""Compiled look-ahead: every entity solved as if one of its features had been observed; of the paper's models."""

from __future__ import annotations

import math
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from afa.engine.compile import kernel
from afa.engine.duels import UNIFORM_SECOND, row
from afa.engine.layout import Packed
from afa.engine.state import Iteration, State, elbo, expected_score, places
from afa.engine.sweeps import bound, converged, padded
from afa.mrf import LOG3, Floats

F_LINEARITY, F_TWO_ELBO, F_STACK_A = 2, 3, 4


class Lookahead(NamedTuple):
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


@kernel(entrance=True)
def new_lookahead(packed: Packed) -> Lookahead:
    """Space for all cases."""
    n, k = len(packed.prior), len(packed.feature)
    start = np.zeros(3 * k + n, dtype=np.int64)
    total = 0
    for case in range(3 * k + n):
        entity = packed.owner[case // 3] if case < 3 * k else case - 3 * k
        start[case] = total
        total += packed.first_slot[entity + 1] - packed.first_slot[entity]
    places_, cases = np.zeros((3, total)), np.zeros((3, 3 * k + n))
    return Lookahead(start, places_[0], places_[1], places_[2], cases[0], cases[1], cases[2])


def no_lookahead() -> Lookahead:
    """Cases of a gain that does not look ahead: none."""
    none = np.empty(0)
    return Lookahead(np.empty(0, dtype=np.int64), none, none, none, none, none, none)


class Free(NamedTuple):
    """The unobserved features of one entity, n of them: their places in its support, and their couplings (n, n)."""

    place: NDArray[np.int64]
    coupling: Floats


@kernel()
def copy_lookahead(lookahead: Lookahead) -> Lookahead:
    """Cases that can be changed without changing the given ones."""
    return Lookahead(
        lookahead.start,
        lookahead.field.copy(),
        lookahead.m.copy(),
        lookahead.q.copy(),
        lookahead.constant.copy(),
        lookahead.bound.copy(),
        lookahead.own.copy(),
    )


@kernel()
def solve_ahead(packed: Packed, state: State, lookahead: Lookahead, entity: int, iteration: Iteration) -> None:
    """Solve one entity ahead, at each of its unobserved features and values."""
    _keep_present(packed, state, lookahead, entity)
    free = _free_of(packed, state, entity)
    size = padded(max(len(free.place) - 1, 0))
    without = np.zeros((size, size))
    for i in range(len(free.place)):
        _leave_out(free.coupling, i, without)
        _solve_values(packed, state, lookahead, entity, free, i, without, iteration)


@kernel()
def _keep_present(packed: Packed, state: State, lookahead: Lookahead, entity: int) -> None:
    case = 3 * len(packed.feature) + entity
    begin, end = (
        lookahead.start[case],
        lookahead.start[case] + packed.first_slot[entity + 1] - packed.first_slot[entity],
    )
    lookahead.field[begin:end] = places(packed.first_slot, entity, state.field)
    lookahead.m[begin:end] = places(packed.first_slot, entity, state.m)
    lookahead.q[begin:end] = places(packed.first_slot, entity, state.q)
    lookahead.constant[case] = state.constant[entity]
    lookahead.bound[case] = elbo(state, entity, 0)
    lookahead.own[case] = state.cross[entity, entity]


@kernel()
def _free_of(packed: Packed, state: State, entity: int) -> Free:
    base, size = packed.first_slot[entity], packed.first_slot[entity + 1] - packed.first_slot[entity]
    number, n = np.full(size, -1), 0
    for j in range(size):
        if not state.observed[packed.feature[base + j]]:
            number[j] = n
            n += 1
    place, coupling = np.empty(n, dtype=np.int64), np.zeros((n, n))
    first_edge, other_slot, weight = packed.first_edge, packed.other_slot, packed.coupling
    for j in range(size):
        if number[j] >= 0:
            place[number[j]] = j
            for e in range(first_edge[base + j], first_edge[base + j + 1]):
                there = number[other_slot[e] - base]
                if there >= 0:
                    coupling[number[j], there] = weight[e]
    return Free(place, coupling)


@kernel()
def _leave_out(coupling: Floats, i: int, without: Floats) -> None:
    """Write the couplings without row and column i."""
    n = len(coupling) - 1
    for j in range(n):
        row = j if j < i else j + 1
        for k in range(n):
            without[j, k] = coupling[row, k if k < i else k + 1]


@kernel()
def _solve_values(
    packed: Packed,
    state: State,
    lookahead: Lookahead,
    entity: int,
    free: Free,
    i: int,
    without: Floats,
    iteration: Iteration,
) -> None:
    """Solve for each value of the i-th free feature, as `afa.engine.state.solve` would once it is observed."""
    first, of_u, of_v, first_edge, edge_j, edge_l, weight = packed.overlaps
    base, n = packed.first_slot[entity], len(free.place) - 1
    own, size = entity * len(packed.prior) + entity, packed.first_slot[entity + 1] - base
    slot = base + free.place[i]
    alpha, m, q = np.zeros(len(without)), np.zeros(len(without)), np.full(len(without), UNIFORM_SECOND)
    for x in range(3):
        value, case = x - 1, 3 * slot + x
        for j in range(n):
            other = j if j < i else j + 1
            here = base + free.place[other]
            alpha[j] = state.field[here] + free.coupling[i, other] * value
            m[j] = state.m[here] if iteration.warm else 0.0
            q[j] = state.q[here] if iteration.warm else UNIFORM_SECOND
        converged(alpha, without, None, m, q, n, iteration)
        begin = lookahead.start[case]
        lookahead.field[begin : begin + size] = 0.0
        lookahead.m[begin : begin + size] = 0.0
        lookahead.q[begin : begin + size] = 0.0
        for j in range(n):
            at = begin + free.place[j if j < i else j + 1]
            lookahead.field[at], lookahead.m[at], lookahead.q[at] = alpha[j], m[j], q[j]
        constant = state.constant[entity] + state.field[slot] * value
        lookahead.constant[case] = constant
        lookahead.bound[case] = constant + bound(alpha, without, m, q, n) - LOG3 * n
        lookahead.own[case] = expected_score(
            first,
            of_u,
            of_v,
            first_edge,
            edge_j,
            edge_l,
            weight,
            own,
            constant,
            lookahead.field,
            begin,
            lookahead.m,
            begin,
        )


@kernel()
def gaussian_sign(mean: float, variance: float) -> float:
    """E[sign X] of a Gaussian X; the sign of the mean where the variance is 0 (eq:fsp)."""
    if variance <= 0.0:
        return 0.0 if mean == 0.0 else math.copysign(1.0, mean)
    return math.erf(mean / math.sqrt(2.0 * variance))


@kernel()
def variance_lookahead(
    packed: Packed, state: State, lookahead: Lookahead, a: int, b: int, begin_a: int, begin_b: int, without: int
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
                difference += lookahead.field[j]
                first += 0.5 * lookahead.m[j]
            if here_b >= 0:
                j = begin_b + here_b - packed.first_slot[b]
                difference -= lookahead.field[j]
                first += 0.5 * lookahead.m[j]
            second += 0.5 * (lookahead.q[begin_a + here_a - packed.first_slot[a]] if here_a >= 0 else UNIFORM_SECOND)
            second += 0.5 * (lookahead.q[begin_b + here_b - packed.first_slot[b]] if here_b >= 0 else UNIFORM_SECOND)
            _, _, squares = row(packed, state, here_a, here_b, without)
            total += difference * difference * (second - first * first) + 0.5 * squares
        slot_a += 1 if here_a >= 0 else 0
        slot_b += 1 if here_b >= 0 else 0
    return total
