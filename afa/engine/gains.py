"""Compute the gain of observing each feature, for each duel (entity pair), with compiled kernels.

The gains of a duel are cached until an observation changes the model of one of its two entities. If neither of the two
models contains a feature, the gain of the feature is 0 and is not stored. The `f_target` gains need a lookahead:
mean-field is run on each entity's model for each possible value of each unobserved feature, as if this value had been
observed. The lookahead exists only for the paper's models.
"""

from __future__ import annotations

import math
from typing import NamedTuple

import numpy as np

from afa.engine.budgets import UNIFORM_SECOND, moments_at, terms_of_duel
from afa.engine.compile import kernel
from afa.engine.duels import gaussian_sign, is_stale, row
from afa.engine.layout import Gains, Packed
from afa.engine.state import State, elbo, expected_score, free_part
from afa.engine.sweeps import Iteration, bound, converged
from afa.model.arrays import Bools, Floats, Ints
from afa.model.mrf import LOG3
from afa.scores.gain import ZERO_GAIN

NO_GAIN, WALD_MAGNITUDE, CMI, F_LINEARITY, F_TWO_ELBO, F_STACK_A = range(-1, 5)
"""Kinds of gain. `F_LINEARITY`, `F_TWO_ELBO` and `F_STACK_A` need a lookahead."""
GAIN_KINDS = {
    ("wald_magnitude", None): WALD_MAGNITUDE,
    ("cmi", None): CMI,
    ("f_target", "linearity"): F_LINEARITY,
    ("f_target", "two_elbo"): F_TWO_ELBO,
    ("f_target", "stack_a"): F_STACK_A,
}


@kernel(inline=True)
def log_evidence(packed: Packed, state: State, empty: Floats, entity: int, n_unobserved: int) -> float:
    """Return log P(x_obs | v) plus the prior log-odds of entity v, nats.

    Parameters
    ----------
    empty : (N,) float64, ELBO of each entity without observations, nats

    """
    return float(packed.prior[entity]) + elbo(state, entity, n_unobserved) - float(empty[entity])


@kernel(entrance=True, borrows=True)
def bring_up_to_date(
    packed: Packed,
    state: State,
    lookahead: Lookahead,
    gains: Gains,
    empty: Floats,
    kind: int,
    iteration: Iteration,
    wanted: Bools,
    changed_at: Ints,
    now: int,
) -> None:
    """Compute the gains again for each duel (entity pair) that is marked in `wanted` and contains a changed model.

    Parameters
    ----------
    empty : (N,) float64, ELBO of each entity without observations, nats
    wanted : (Q,) bool, True for duels whose gains the caller needs
    changed_at : (N,) int64, step at which each entity's model last changed
    now : the present step

    """
    pairs, computed_at, lookahead_at = gains.pairs, gains.computed_at, lookahead.computed_at
    if kind >= F_LINEARITY:
        for row in range(len(wanted)):
            if wanted[row] and is_stale(changed_at, computed_at[row], pairs[row, 0], pairs[row, 1]):
                for entity in pairs[row]:
                    if changed_at[entity] > lookahead_at[entity]:
                        solve_ahead(packed, state, lookahead, entity, iteration)
                        lookahead_at[entity] = now
    for row in range(len(wanted)):
        if wanted[row] and is_stale(changed_at, computed_at[row], pairs[row, 0], pairs[row, 1]):
            refresh_duel(packed, state, lookahead, gains, empty, kind, row)
            computed_at[row] = now


@kernel(inline=True)
def refresh_duel(
    packed: Packed, state: State, lookahead: Lookahead, gains: Gains, empty: Floats, kind: int, p: int
) -> None:
    """Compute the gains of the entity pair with index `p`.

    If the kind of gain needs a lookahead, the caller must first call `solve_ahead` on both entities.

    Parameters
    ----------
    empty : (N,) float64, ELBO of each entity without observations, nats

    """
    a, b = gains.pairs[p, 0], gains.pairs[p, 1]
    n_unobserved = packed.n_features - int(np.sum(state.observed))
    if kind == WALD_MAGNITUDE:
        _wald_magnitude(packed, state, gains, p)
    else:
        odds = log_evidence(packed, state, empty, a, n_unobserved) - log_evidence(packed, state, empty, b, n_unobserved)
        if kind == CMI:
            _cmi(packed, state, gains, p, odds)
        else:
            _f_target(packed, state, lookahead, gains, p, odds, kind)
    gain, feature, observed = gains.gain, gains.feature, state.observed
    for i in range(gains.first[p], gains.first[p + 1]):
        if gain[i] < ZERO_GAIN or observed[feature[i]]:
            gain[i] = 0.0


@kernel(borrows=True)
def _wald_magnitude(packed: Packed, state: State, gains: Gains, p: int) -> None:
    """Write half the range of each feature's term u_f, which is |delta_f^eff| in the paper's models (eq:wald_mag)."""
    for i in range(gains.first[p], gains.first[p + 1]):
        low, middle, high = terms_of_duel(packed, state, gains.slot_a[i], gains.slot_b[i])
        gains.gain[i] = 0.5 * (max(low, middle, high) - min(low, middle, high))


@kernel(borrows=True)
def _cmi(packed: Packed, state: State, gains: Gains, p: int, odds: float) -> None:
    """Write the weighted Jensen-Shannon divergence of the two predictive marginals of each feature, nats (eq:cmi)."""
    weight_a, weight_b = _expit(odds), _expit(-odds)
    for i in range(gains.first[p], gains.first[p + 1]):
        if state.observed[gains.feature[i]]:
            continue
        m_a, q_a = moments_at(packed, state, gains.slot_a[i], gains.slot_b[i])
        m_b, q_b = moments_at(packed, state, gains.slot_b[i], gains.slot_a[i])
        total = 0.0
        for x in range(3):
            p_a, p_b = probability(m_a, q_a, x), probability(m_b, q_b, x)
            mixed = weight_a * p_a + weight_b * p_b
            total += weight_a * surprise(p_a, mixed) + weight_b * surprise(p_b, mixed)
        gains.gain[i] = total


@kernel(borrows=True)
def _f_target(packed: Packed, state: State, lookahead: Lookahead, gains: Gains, p: int, odds: float, kind: int) -> None:
    """Write for each feature f the expected absolute change of the score F if f is observed (eq:smart_delta)."""
    a, b, n, n_slots = gains.pairs[p, 0], gains.pairs[p, 1], len(packed.prior), len(packed.feature)
    weight_a, weight_b, now = _expit(odds), _expit(-odds), 0.0
    for i in range(gains.first[p] - 1, gains.first[p + 1]):
        is_now = i < gains.first[p]  # the first iteration computes the present score
        if not is_now and state.observed[gains.feature[i]]:
            continue
        slot_a, slot_b = (-1, -1) if is_now else (gains.slot_a[i], gains.slot_b[i])
        m_a, q_a = moments_at(packed, state, slot_a, slot_b)
        m_b, q_b = moments_at(packed, state, slot_b, slot_a)
        total = 0.0
        for x in range(1 if is_now else 3):
            mixed = weight_a * probability(m_a, q_a, x) + weight_b * probability(m_b, q_b, x)
            case_a = 3 * slot_a + x if slot_a >= 0 else 3 * n_slots + a
            case_b = 3 * slot_b + x if slot_b >= 0 else 3 * n_slots + b
            if kind == F_TWO_ELBO:
                value = lookahead.bound[case_a] - lookahead.bound[case_b]
            else:
                at_a, at_b, field, m = lookahead.start[case_a], lookahead.start[case_b], lookahead.field, lookahead.m
                of_a, of_b = lookahead.constant[case_a], lookahead.constant[case_b]
                of_b_under_a = expected_score(packed.overlaps, a * n + b, of_b, field, at_b, m, at_a)
                of_a_under_b = expected_score(packed.overlaps, b * n + a, of_a, field, at_a, m, at_b)
                value = 0.5 * ((lookahead.own[case_a] - lookahead.own[case_b]) + (of_a_under_b - of_b_under_a))
                value = 0.0 if abs(value) <= packed.tie else value
                if kind == F_STACK_A:
                    without = -1 if is_now else gains.feature[i]
                    value = gaussian_sign(
                        value, _variance_ahead(packed, state, lookahead, gains, p, at_a, at_b, without)
                    )
            if is_now:
                now = value
            total += mixed * abs(value - now)
        if not is_now:
            gains.gain[i] = total


@kernel(inline=True)
def _expit(x: float) -> float:
    if x >= 0:
        return 1.0 / (1.0 + math.exp(-x))
    small = math.exp(x)
    return small / (1.0 + small)


@kernel(inline=True)
def probability(m: float, q: float, i: int) -> float:
    """Return the probability of the value i - 1 if a feature has the moments m = E[x] and q = E[x^2]."""
    if i == 1:
        return 1.0 - q
    return 0.5 * (q + m) if i == 2 else 0.5 * (q - m)


@kernel(inline=True)
def surprise(p: float, mixed: float) -> float:
    """Return p log(p / mixed) in nats, or 0 if p is 0."""
    return p * math.log(p / mixed) if p > 0.0 and mixed > 0.0 else 0.0


@kernel()
def add_up(gains: Gains, weights: Floats, total: Floats) -> None:
    """Write for each feature the weighted sum of its gains over all duels (entity pairs) (eq:feature_selection).

    Parameters
    ----------
    weights : (Q,) float64, weight of each duel; duels of weight 0 are skipped
    total : (M,) float64, written

    """
    first, feature, gain = gains.first, gains.feature, gains.gain
    total[:] = 0.0
    for p in range(len(weights)):
        if weights[p] > 0.0:
            for i in range(first[p], first[p + 1]):
                total[feature[i]] += weights[p] * gain[i]


class Lookahead(NamedTuple):
    """Results of mean-field runs on each entity's model after one more hypothetical observation.

    A slot is a pair of an entity and a feature. Index 3 s + i of each array belongs to the mean-field run in which the
    feature of slot s is assumed to have the value i - 1. Index 3 K + v, where K is the number of slots, belongs to the
    run on the model of entity v with the present observations only. The results for an entity are cached until an
    observation changes the entity's model.

    Attributes
    ----------
    start : (3 K + N,) int64, position of each run's first entry in `field`, `m` and `q`
    field, m, q : (n_entries,) float64, effective unary potentials (nats), first and second moments
    constant : (3 K + N,) float64, prior plus energy of the observed features, nats
    bound : (3 K + N,) float64, ELBO minus log 3 for each unobserved feature, nats (the logarithms cancel in a duel)
    own : (3 K + N,) float64, E_q[S_v] of the entity, nats
    computed_at : (N,) int64, step of each entity's last lookahead, or -1 for never

    """

    start: Ints
    field: Floats
    m: Floats
    q: Floats
    constant: Floats
    bound: Floats
    own: Floats
    computed_at: Ints


def new_lookahead(packed: Packed, kind: int) -> Lookahead:
    """Return working memory for the lookahead, with arrays of length 0 if this kind of gain needs no lookahead."""
    n = len(packed.prior)
    entity = np.concatenate([np.repeat(packed.owner, 3), np.arange(n)])[: None if kind >= F_LINEARITY else 0]
    size = np.diff(packed.first_slot)[entity]
    field, m, q = np.zeros((3, size.sum()))
    constant, bound_, own = np.zeros((3, len(size)))
    return Lookahead(np.cumsum(size) - size, field, m, q, constant, bound_, own, np.full(n, -1))


@kernel(inline=True)
def copy_lookahead(lookahead: Lookahead) -> Lookahead:
    """Return lookahead arrays with independent copies of all arrays except `start`, which never changes."""
    start, field, m, q, constant, bound_, own, computed_at = lookahead
    of_places = field.copy(), m.copy(), q.copy()
    return Lookahead(start, *of_places, constant.copy(), bound_.copy(), own.copy(), computed_at.copy())


@kernel()
def solve_ahead(packed: Packed, state: State, lookahead: Lookahead, entity: int, iteration: Iteration) -> None:
    """Run mean-field on the model of one entity for each possible value of each unobserved feature of its support."""
    first, last = packed.first_slot[entity], packed.first_slot[entity + 1]
    case = 3 * len(packed.feature) + entity
    begin = lookahead.start[case]
    end = begin + last - first
    lookahead.field[begin:end], lookahead.m[begin:end] = state.field[first:last], state.m[first:last]
    lookahead.q[begin:end] = state.q[first:last]
    lookahead.constant[case], lookahead.own[case] = state.constant[entity], state.cross[entity, entity]
    lookahead.bound[case] = elbo(state, entity, 0)
    slots, coupling = free_part(packed, state, entity)
    pull, alpha, m, q = (
        np.empty(len(coupling)),
        np.zeros(len(coupling)),
        np.zeros(len(coupling)),
        np.zeros(len(coupling)),
    )
    site = np.empty((3, 0))
    q[:] = UNIFORM_SECOND
    for i in range(len(slots)):
        pull[:] = coupling[i]
        coupling[i] = coupling[:, i] = 0.0
        for value in (-1, 0, 1):
            _solve_value(
                packed, state, lookahead, entity, slots, coupling, pull, i, value, alpha, site, m, q, iteration
            )
        coupling[i] = coupling[:, i] = pull


@kernel(borrows=True)
def _solve_value(
    packed: Packed,
    state: State,
    lookahead: Lookahead,
    entity: int,
    slots: Ints,
    coupling: Floats,
    pull: Floats,
    i: int,
    value: int,
    alpha: Floats,
    site: Floats,
    m: Floats,
    q: Floats,
    iteration: Iteration,
) -> None:
    """Run mean-field on the model of one entity as if its i-th unobserved feature had the given value.

    Parameters
    ----------
    slots, coupling : results of `free_part`, with the couplings of the i-th feature set to 0, so that this feature does
        not affect the other features
    pull : (n,) float64, the couplings of the i-th feature, nats
    alpha, m, q : (n,) float64, working memory
    site : (3, 0), because lookahead exists only for the paper's models

    """
    n, slot, case, at = len(slots), slots[i], 3 * slots[i] + value + 1, packed.first_slot[entity]
    for j in range(n):
        alpha[j] = state.field[slots[j]] + pull[j] * value
        m[j] = state.m[slots[j]] if iteration.warm else 0.0
        q[j] = state.q[slots[j]] if iteration.warm else UNIFORM_SECOND
    alpha[i], m[i], q[i] = 0.0, 0.0, UNIFORM_SECOND
    converged(alpha, coupling, site, m, q, n, iteration)
    begin = lookahead.start[case]
    for place in range(begin, begin + packed.first_slot[entity + 1] - at):
        lookahead.field[place] = lookahead.m[place] = lookahead.q[place] = 0.0
    for j in range(n):
        if j != i:
            place = begin + slots[j] - at
            lookahead.field[place], lookahead.m[place], lookahead.q[place] = alpha[j], m[j], q[j]
    constant, pair = state.constant[entity] + state.field[slot] * value, entity * len(packed.prior) + entity
    lookahead.constant[case] = constant
    lookahead.bound[case] = constant + bound(alpha, coupling, m, q, n) - LOG3 * n
    own = expected_score(packed.overlaps, pair, constant, lookahead.field, begin, lookahead.m, begin)
    lookahead.own[case] = own


@kernel(borrows=True)
def _variance_ahead(
    packed: Packed, state: State, lookahead: Lookahead, gains: Gains, p: int, begin_a: int, begin_b: int, without: int
) -> float:
    """Return the variance that the log-odds D would have after the observation of one more feature (eq:sigma-D).

    Parameters
    ----------
    begin_a, begin_b : positions in `Lookahead` at which the mean-field solutions of the two entities begin
    without : feature to treat as observed, in addition to the observed features; -1 for no feature

    """
    away_a = begin_a - packed.first_slot[gains.pairs[p, 0]]
    away_b = begin_b - packed.first_slot[gains.pairs[p, 1]]
    total = 0.0
    for i in range(gains.first[p], gains.first[p + 1]):
        slot_a, slot_b = gains.slot_a[i], gains.slot_b[i]
        if state.observed[gains.feature[i]] or gains.feature[i] == without:
            continue
        difference, first, second = 0.0, 0.0, 0.0
        if slot_a >= 0:
            difference += lookahead.field[away_a + slot_a]
            first += 0.5 * lookahead.m[away_a + slot_a]
        if slot_b >= 0:
            difference -= lookahead.field[away_b + slot_b]
            first += 0.5 * lookahead.m[away_b + slot_b]
        second += 0.5 * (lookahead.q[away_a + slot_a] if slot_a >= 0 else UNIFORM_SECOND)
        second += 0.5 * (lookahead.q[away_b + slot_b] if slot_b >= 0 else UNIFORM_SECOND)
        _, _, _, squares = row(packed, state, slot_a, slot_b, without)
        total += difference * difference * (second - first * first) + 0.5 * squares
    return total
