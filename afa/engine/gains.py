"""Compiled gains of every duel at every feature, kept until an entity of the duel changes.

A duel's gains stand only at the features in the union of its two supports: elsewhere both predictive marginals are
uniform, nothing can be learned, and every gain is 0.
"""

from __future__ import annotations

import math
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from afa.engine.compile import kernel
from afa.engine.duels import UNIFORM_SECOND, Pairs, row
from afa.engine.kernels import LOG3, Iteration, State, elbo, expected_score, places, solve
from afa.engine.packed import Packed
from afa.mrf import Floats

ZERO_GAIN = 1e-12
WALD_MAGNITUDE, CMI, F_LINEARITY, F_TWO_ELBO, F_STACK_A = range(5)


class Gains(NamedTuple):
    """Gains of Q duels.

    Entry i of a duel p, first[p] <= i < first[p + 1], is for `feature[i]`, held at slot_a[i] and slot_b[i] (-1 where
    an entity does not hold it); `gain[i]` is in nats for `cmi`, else in the unit of the score.
    """

    pairs: Pairs
    first: NDArray[np.int64]
    feature: NDArray[np.int64]
    slot_a: NDArray[np.int64]
    slot_b: NDArray[np.int64]
    gain: Floats


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
def new_gains(packed: Packed, pairs: Pairs) -> Gains:
    """Space for the gains of the given duels."""
    first = np.zeros(len(pairs) + 1, dtype=np.int64)
    feature, slot_a, slot_b = np.empty(0, dtype=np.int64), np.empty(0, dtype=np.int64), np.empty(0, dtype=np.int64)
    for filling in (False, True):
        n = 0
        for p in range(len(pairs)):
            a, last_a = packed.first_slot[pairs[p, 0]], packed.first_slot[pairs[p, 0] + 1]
            b, last_b = packed.first_slot[pairs[p, 1]], packed.first_slot[pairs[p, 1] + 1]
            while a < last_a or b < last_b:
                at_a = packed.feature[a] if a < last_a else packed.n_features
                at_b = packed.feature[b] if b < last_b else packed.n_features
                at = min(at_a, at_b)
                if filling:
                    feature[n] = at
                    slot_a[n], slot_b[n] = (a if at_a == at else -1), (b if at_b == at else -1)
                a += 1 if at_a == at else 0
                b += 1 if at_b == at else 0
                n += 1
            first[p + 1] = n
        if not filling:
            feature, slot_a = np.empty(n, dtype=np.int64), np.empty(n, dtype=np.int64)
            slot_b = np.empty(n, dtype=np.int64)
    return Gains(pairs, first, feature, slot_a, slot_b, np.zeros(len(feature)))


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
def log_evidence(packed: Packed, state: State, empty: Floats, entity: int, n_hidden: int) -> float:
    """Log P(x_obs | v) plus the prior log-odds; `empty` is the ELBO of each entity at no observation (spec S7)."""
    return float(packed.prior[entity]) + elbo(state, entity, n_hidden) - float(empty[entity])


@kernel()
def refresh_gains(
    packed: Packed,
    state: State,
    ahead: Ahead,
    gains: Gains,
    empty: Floats,
    kind: int,
    changed: NDArray[np.bool_],
) -> None:
    """Gains of the duels with an entity marked in `changed`, (N,)."""
    n_hidden = packed.n_features - int(np.sum(state.observed))
    evidence = np.empty(len(packed.prior))
    for entity in range(len(packed.prior)):
        evidence[entity] = log_evidence(packed, state, empty, entity, n_hidden)
    for p in range(len(gains.pairs)):
        a, b = gains.pairs[p, 0], gains.pairs[p, 1]
        if not (changed[a] or changed[b]):
            continue
        if kind == WALD_MAGNITUDE:
            _wald_magnitude(state, gains, p)
        elif kind == CMI:
            _cmi(state, gains, p, evidence[a] - evidence[b])
        else:
            _f_target(packed, state, ahead, gains, p, evidence[a] - evidence[b], kind, n_hidden)
        for i in range(gains.first[p], gains.first[p + 1]):
            if gains.gain[i] < ZERO_GAIN or state.observed[gains.feature[i]]:
                gains.gain[i] = 0.0


@kernel()
def _wald_magnitude(state: State, gains: Gains, p: int) -> None:
    """|delta_f^eff| (eq:wald_mag)."""
    for i in range(gains.first[p], gains.first[p + 1]):
        of_a = state.field[gains.slot_a[i]] if gains.slot_a[i] >= 0 else 0.0
        of_b = state.field[gains.slot_b[i]] if gains.slot_b[i] >= 0 else 0.0
        gains.gain[i] = abs(of_a - of_b)


@kernel()
def _cmi(state: State, gains: Gains, p: int, odds: float) -> None:
    """Weighted Jensen-Shannon divergence of the two predictive marginals (eq:cmi, spec S8)."""
    weight_a, weight_b = _expit(odds), _expit(-odds)
    for i in range(gains.first[p], gains.first[p + 1]):
        m_a, q_a = _moments(state, gains.slot_a[i])
        m_b, q_b = _moments(state, gains.slot_b[i])
        total = 0.0
        for x in range(3):
            p_a, p_b = _probability(m_a, q_a, x), _probability(m_b, q_b, x)
            mixed = weight_a * p_a + weight_b * p_b
            total += weight_a * _information(p_a, mixed) + weight_b * _information(p_b, mixed)
        gains.gain[i] = total


@kernel()
def _f_target(
    packed: Packed, state: State, ahead: Ahead, gains: Gains, p: int, odds: float, kind: int, n_hidden: int
) -> None:
    """Expected absolute change of the score F (eq:smart_delta, spec S9)."""
    a, b = gains.pairs[p, 0], gains.pairs[p, 1]
    weight_a, weight_b = _expit(odds), _expit(-odds)
    now_a, now_b = _present(packed, state, a, n_hidden), _present(packed, state, b, n_hidden)
    later_a, later_b = _present(packed, state, a, n_hidden - 1), _present(packed, state, b, n_hidden - 1)
    now = _score(packed, state, a, b, now_a, now_b, kind, -1)
    for i in range(gains.first[p], gains.first[p + 1]):
        if state.observed[gains.feature[i]]:
            continue
        slot_a, slot_b = gains.slot_a[i], gains.slot_b[i]
        m_a, q_a = _moments(state, slot_a)
        m_b, q_b = _moments(state, slot_b)
        total = 0.0
        for x in range(3):
            mixed = weight_a * _probability(m_a, q_a, x) + weight_b * _probability(m_b, q_b, x)
            if mixed > 0.0:
                of_a = _future(packed, state, ahead, slot_a, x, n_hidden - 1) if slot_a >= 0 else later_a
                of_b = _future(packed, state, ahead, slot_b, x, n_hidden - 1) if slot_b >= 0 else later_b
                after = _score(packed, state, a, b, of_a, of_b, kind, gains.feature[i])
                total += mixed * abs(after - now)
        gains.gain[i] = total


@kernel()
def _moments(state: State, slot: int) -> tuple[float, float]:
    """First and second moment at a slot, or of the uniform marginal where an entity holds none (-1)."""
    return (state.m[slot], state.q[slot]) if slot >= 0 else (0.0, UNIFORM_SECOND)


@kernel()
def _expit(x: float) -> float:
    if x >= 0:
        return 1.0 / (1.0 + math.exp(-x))
    small = math.exp(x)
    return small / (1.0 + small)


@kernel()
def _probability(m: float, q: float, i: int) -> float:
    """Probability of the value i - 1 of a marginal with moments m and q."""
    if i == 1:
        return 1.0 - q
    return 0.5 * (q + m) if i == 2 else 0.5 * (q - m)


@kernel()
def _information(p: float, mixed: float) -> float:
    return p * math.log(p / mixed) if p > 0.0 and mixed > 0.0 else 0.0


@kernel()
def _present(packed: Packed, state: State, entity: int, n_hidden: int) -> Side:
    return Side(
        state.constant[entity],
        elbo(state, entity, n_hidden),
        state.cross[entity, entity],
        places(packed.first_slot, entity, state.field),
        places(packed.first_slot, entity, state.m),
        places(packed.first_slot, entity, state.q),
    )


@kernel()
def _future(packed: Packed, state: State, ahead: Ahead, slot: int, i: int, n_hidden: int) -> Side:
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
def _score(packed: Packed, state: State, a: int, b: int, of_a: Side, of_b: Side, kind: int, without: int) -> float:
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


@kernel()
def add_up(gains: Gains, closed: NDArray[np.bool_], total: Floats) -> None:
    """Sum the gains of the duels that are not closed, by feature, into `total` (M,)."""
    total[:] = 0.0
    for p in range(len(gains.pairs)):
        if not closed[p]:
            for i in range(gains.first[p], gains.first[p + 1]):
                total[gains.feature[i]] += gains.gain[i]
