"""Compiled gains of every duel at every feature, kept until an entity of the duel changes.

A duel's gains stand only at the features in the union of its two supports: elsewhere both predictive marginals are
uniform, nothing can be learned, and every gain is 0. Gains by the change of a score look ahead: every entity is solved
as if one of its features had been observed, of the paper's models alone.
"""

from __future__ import annotations

import math
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from afa.engine.budgets import UNIFORM_SECOND, terms_of_duel
from afa.engine.compile import kernel
from afa.engine.duels import gaussian_sign, is_stale, row
from afa.engine.layout import SILENT, SILENT_SECOND, Gains, Indices, Packed
from afa.engine.state import State, elbo, expected_score, places
from afa.engine.sweeps import Iteration, bound, converged, padded
from afa.mrf import LOG3, Floats

ZERO_GAIN = 1e-12
NO_GAIN, WALD_MAGNITUDE, CMI, F_LINEARITY, F_TWO_ELBO, F_STACK_A = range(-1, 5)
"""Those from `F_LINEARITY` on look ahead."""
GAIN_KINDS = {
    ("wald_magnitude", None): WALD_MAGNITUDE,
    ("cmi", None): CMI,
    ("f_target", "linearity"): F_LINEARITY,
    ("f_target", "two_elbo"): F_TWO_ELBO,
    ("f_target", "stack_a"): F_STACK_A,
}


@kernel()
def log_evidence(packed: Packed, state: State, empty: Floats, entity: int, n_hidden: int) -> float:
    """Log P(x_obs | v) plus the prior log-odds; `empty` is the ELBO of each entity at no observation."""
    return float(packed.prior[entity]) + elbo(state, entity, n_hidden) - float(empty[entity])


@kernel(entrance=True, borrows=True)
def bring_up_to_date(
    packed: Packed,
    state: State,
    lookahead: Lookahead,
    gains: Gains,
    empty: Floats,
    kind: int,
    iteration: Iteration,
    wanted: NDArray[np.bool_],
    changed_at: Indices,
    now: int,
) -> None:
    """Compute the gains of the wanted duels (Q,) where an entity has changed since they were made.

    changed_at : (N,) the round at which each entity last changed; now : the present round.
    """
    pairs, made_at, ahead_at = gains.pairs, gains.made_at, lookahead.made_at
    if kind >= F_LINEARITY:
        for row in range(len(wanted)):
            if wanted[row] and is_stale(changed_at, made_at[row], pairs[row, 0], pairs[row, 1]):
                for entity in pairs[row]:
                    if changed_at[entity] > ahead_at[entity]:
                        solve_ahead(packed, state, lookahead, entity, iteration)
                        ahead_at[entity] = now
    for row in range(len(wanted)):
        if wanted[row] and is_stale(changed_at, made_at[row], pairs[row, 0], pairs[row, 1]):
            refresh_duel(packed, state, lookahead, gains, empty, kind, row)
            made_at[row] = now


@kernel(borrows=True)
def refresh_duel(
    packed: Packed, state: State, lookahead: Lookahead, gains: Gains, empty: Floats, kind: int, p: int
) -> None:
    """Gains of one duel; those of the look-ahead kinds need `solve_ahead` of its two entities before."""
    a, b = gains.pairs[p, 0], gains.pairs[p, 1]
    n_hidden = packed.n_features - int(np.sum(state.observed))
    if kind == WALD_MAGNITUDE:
        _wald_magnitude(packed, state, gains, p)
    else:
        odds = log_evidence(packed, state, empty, a, n_hidden) - log_evidence(packed, state, empty, b, n_hidden)
        if kind == CMI:
            _cmi(packed, state, gains, p, odds)
        else:
            _f_target(packed, state, lookahead, gains, p, odds, kind)
    gain, feature, observed = gains.gain, gains.feature, state.observed
    for i in range(gains.first[p], gains.first[p + 1]):
        if gain[i] < ZERO_GAIN or observed[feature[i]]:
            gain[i] = 0.0


@kernel()
def _wald_magnitude(packed: Packed, state: State, gains: Gains, p: int) -> None:
    """Half the range of u_f, which is |delta_f^eff| of the paper's models (eq:wald_mag)."""
    field, slots_a, slots_b, gain = state.field, gains.slot_a, gains.slot_b, gains.gain
    for i in range(gains.first[p], gains.first[p + 1]):
        if packed.stated is None:
            of_a = field[slots_a[i]] if slots_a[i] >= 0 else 0.0
            of_b = field[slots_b[i]] if slots_b[i] >= 0 else 0.0
            gain[i] = abs(of_a - of_b)
        else:
            low, middle, high = terms_of_duel(packed, state, slots_a[i], slots_b[i])
            gain[i] = 0.5 * (max(low, middle, high) - min(low, middle, high))


@kernel()
def _cmi(packed: Packed, state: State, gains: Gains, p: int, odds: float) -> None:
    """Weighted Jensen-Shannon divergence of the two predictive marginals (eq:cmi)."""
    weight_a, weight_b = _expit(odds), _expit(-odds)
    # arrays one by one: taken out of their tuples in the loop they would cost more than the sums
    m, q, site = state.m, state.q, packed.site
    slots_a, slots_b, gain = gains.slot_a, gains.slot_b, gains.gain
    feature, observed = gains.feature, state.observed
    for i in range(gains.first[p], gains.first[p + 1]):
        if observed[feature[i]]:
            continue
        slot_a, slot_b = slots_a[i], slots_b[i]
        m_a, q_a, m_b, q_b = 0.0, UNIFORM_SECOND, 0.0, UNIFORM_SECOND
        if packed.stated is not None:
            slot = max(slot_a, slot_b)
            m_a, q_a = m_b, q_b = site[SILENT, slot], site[SILENT_SECOND, slot]
        if slot_a >= 0:
            m_a, q_a = m[slot_a], q[slot_a]
        if slot_b >= 0:
            m_b, q_b = m[slot_b], q[slot_b]
        total = 0.0
        for x in range(3):
            p_a, p_b = _probability(m_a, q_a, x), _probability(m_b, q_b, x)
            mixed = weight_a * p_a + weight_b * p_b
            total += weight_a * _information(p_a, mixed) + weight_b * _information(p_b, mixed)
        gain[i] = total


@kernel()
def _f_target(packed: Packed, state: State, lookahead: Lookahead, gains: Gains, p: int, odds: float, kind: int) -> None:
    """Expected absolute change of the score F (eq:smart_delta)."""
    # arrays one by one: taken out of their tuples in the loop they would cost more than the sums
    m, q, observed, n_slots = state.m, state.q, state.observed, len(state.m)
    feature, slots_a, slots_b, gain = gains.feature, gains.slot_a, gains.slot_b, gains.gain
    first, of_u, of_v, first_edge, edge_j, edge_l, coupling = packed.overlaps
    start, field, m_ahead, _, constant, bound, own, _ = lookahead
    a, b, n, tie = gains.pairs[p, 0], gains.pairs[p, 1], len(packed.prior), packed.tie
    weight_a, weight_b, ab, ba = _expit(odds), _expit(-odds), a * n + b, b * n + a
    now, now_a, now_b = 0.0, 3 * n_slots + a, 3 * n_slots + b
    for i in range(gains.first[p] - 1, gains.first[p + 1]):
        is_now = i < gains.first[p]  # before the first feature: the score as it is
        if not is_now and observed[feature[i]]:
            continue
        slot_a, slot_b = (-1, -1) if is_now else (slots_a[i], slots_b[i])
        m_a, q_a = (m[slot_a], q[slot_a]) if slot_a >= 0 else (0.0, UNIFORM_SECOND)
        m_b, q_b = (m[slot_b], q[slot_b]) if slot_b >= 0 else (0.0, UNIFORM_SECOND)
        total = 0.0
        for x in range(1 if is_now else 3):
            mixed = weight_a * _probability(m_a, q_a, x) + weight_b * _probability(m_b, q_b, x)
            case_a = 3 * slot_a + x if slot_a >= 0 else now_a
            case_b = 3 * slot_b + x if slot_b >= 0 else now_b
            if kind == F_TWO_ELBO:
                value = bound[case_a] - bound[case_b]
            else:
                at_a, at_b, of_a, of_b = start[case_a], start[case_b], constant[case_a], constant[case_b]
                of_b_under_a = expected_score(
                    first, of_u, of_v, first_edge, edge_j, edge_l, coupling, ab, of_b, field, at_b, m_ahead, at_a
                )
                of_a_under_b = expected_score(
                    first, of_u, of_v, first_edge, edge_j, edge_l, coupling, ba, of_a, field, at_a, m_ahead, at_b
                )
                value = 0.5 * ((own[case_a] - own[case_b]) + (of_a_under_b - of_b_under_a))
                value = 0.0 if abs(value) <= tie else value
                if kind == F_STACK_A:
                    without = -1 if is_now else feature[i]
                    value = gaussian_sign(
                        value, variance_lookahead(packed, state, lookahead, a, b, at_a, at_b, without)
                    )
            if is_now:
                now = value
            total += mixed * abs(value - now)
        if not is_now:
            gain[i] = total


@kernel(inline=True)
def _expit(x: float) -> float:
    if x >= 0:
        return 1.0 / (1.0 + math.exp(-x))
    small = math.exp(x)
    return small / (1.0 + small)


@kernel(inline=True)
def _probability(m: float, q: float, i: int) -> float:
    """Probability of the value i - 1 of a marginal with moments m and q."""
    if i == 1:
        return 1.0 - q
    return 0.5 * (q + m) if i == 2 else 0.5 * (q - m)


@kernel(inline=True)
def _information(p: float, mixed: float) -> float:
    return p * math.log(p / mixed) if p > 0.0 and mixed > 0.0 else 0.0


@kernel()
def add_up(gains: Gains, weights: Floats, worth: Floats) -> None:
    """Write gains summed over the duels, each times its weight, into `worth` (M,) (eq:feature_selection)."""
    first, feature, gain = gains.first, gains.feature, gains.gain
    worth[:] = 0.0
    for p in range(len(weights)):
        if weights[p] > 0.0:
            for i in range(first[p], first[p + 1]):
                worth[feature[i]] += weights[p] * gain[i]


class Lookahead(NamedTuple):
    """Every entity solved again as if one of its features had been observed; kept until the entity changes.

    A *case* is slot s with value i - 1, at index 3 s + i, or an entity v as it is, at 3 K + v.

    start : (3 K + N,) where the places of a case begin in field, m, q. constant : (3 K + N,) running constants. bound :
    (3 K + N,) ELBO less log 3 for each of all unobserved features, which two sides of a duel have in common. own :
    (3 K + N,) E_q[S_v] of the entity itself. made_at : (N,) the round in which each entity was last solved ahead, -1
    for never.
    """

    start: NDArray[np.int64]
    field: Floats
    m: Floats
    q: Floats
    constant: Floats
    bound: Floats
    own: Floats
    made_at: Indices


def new_lookahead(packed: Packed, kind: int) -> Lookahead:
    """Space for all cases; for none where the gain does not look ahead."""
    n = len(packed.prior)
    entity = np.concatenate([np.repeat(packed.owner, 3), np.arange(n)])[: None if kind >= F_LINEARITY else 0]
    size = np.diff(packed.first_slot)[entity]
    field, m, q = np.zeros((3, size.sum()))
    constant, bound_, own = np.zeros((3, len(size)))
    return Lookahead(np.cumsum(size) - size, field, m, q, constant, bound_, own, np.full(n, -1))


@kernel()
def copy_lookahead(lookahead: Lookahead) -> Lookahead:
    """Cases that can be changed without changing the given ones."""
    start, field, m, q, constant, bound_, own, made_at = lookahead
    of_places = field.copy(), m.copy(), q.copy()
    return Lookahead(start, *of_places, constant.copy(), bound_.copy(), own.copy(), made_at.copy())


@kernel()
def solve_ahead(packed: Packed, state: State, lookahead: Lookahead, entity: int, iteration: Iteration) -> None:
    """Solve one entity ahead, at each of its unobserved features and values."""
    _keep_present(packed, state, lookahead, entity)
    place, coupling = _free_of(packed, state, entity)
    size = padded(max(len(place) - 1, 0))
    without = np.zeros((size, size))
    for i in range(len(place)):
        _leave_out(coupling, i, without)
        _solve_values(packed, state, lookahead, entity, place, coupling[i], i, without, iteration)


@kernel()
def _keep_present(packed: Packed, state: State, lookahead: Lookahead, entity: int) -> None:
    case = 3 * len(packed.feature) + entity
    begin = lookahead.start[case]
    end = begin + packed.first_slot[entity + 1] - packed.first_slot[entity]
    lookahead.field[begin:end] = places(packed.first_slot, entity, state.field)
    lookahead.m[begin:end] = places(packed.first_slot, entity, state.m)
    lookahead.q[begin:end] = places(packed.first_slot, entity, state.q)
    lookahead.constant[case] = state.constant[entity]
    lookahead.bound[case] = elbo(state, entity, 0)
    lookahead.own[case] = state.cross[entity, entity]


@kernel()
def _free_of(packed: Packed, state: State, entity: int) -> tuple[Indices, Floats]:
    """The n unobserved features of one entity, (n,) their places in its support, and their couplings (n, n)."""
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
    return place, coupling


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
    place: Indices,
    coupling: Floats,
    i: int,
    without: Floats,
    iteration: Iteration,
) -> None:
    """Solve for each value of the i-th free feature, as `afa.engine.state.solve_entity` would once it is observed.

    place : (n,) of the free features. coupling : (n,) of the i-th with each. without : the couplings of the others.
    """
    first, of_u, of_v, first_edge, edge_j, edge_l, weight = packed.overlaps
    base, n = packed.first_slot[entity], len(place) - 1
    own, size = entity * len(packed.prior) + entity, packed.first_slot[entity + 1] - base
    slot = base + place[i]
    alpha, m, q = np.zeros(len(without)), np.zeros(len(without)), np.full(len(without), UNIFORM_SECOND)
    for x in range(3):
        value, case = x - 1, 3 * slot + x
        for j in range(n):
            other = j if j < i else j + 1
            here = base + place[other]
            alpha[j] = state.field[here] + coupling[other] * value
            m[j] = state.m[here] if iteration.warm else 0.0
            q[j] = state.q[here] if iteration.warm else UNIFORM_SECOND
        converged(alpha, without, None, m, q, n, iteration)
        begin = lookahead.start[case]
        lookahead.field[begin : begin + size] = 0.0
        lookahead.m[begin : begin + size] = 0.0
        lookahead.q[begin : begin + size] = 0.0
        for j in range(n):
            at = begin + place[j if j < i else j + 1]
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
