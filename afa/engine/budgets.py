"""Bound how far the unobserved features can still move the log-odds D_ab of a duel (an entity pair a, b).

The bound, called the `l1` budget of the duel, is the l1 distance between the models of a and b. The distance is a sum
over the effective unary potentials and over the couplings between unobserved features (eq:l1-bracket). `Budgets`
contains the budgets of all entity pairs for one patient. When a feature is observed, kernels update the budgets of all
pairs in which the model of at least one entity contains the feature.

In an exclusive group of features, at most one member is +1 (docs/decisions.md, Base rates). The kernels loop over
features, and compute the contribution of a whole exclusive group when they reach the last member of the group. Row
`NEXT` of `Packed.site` links each member to the next member of its group. `State.m` of an unobserved member is the
probability that the member is +1, given the observed members of its group. `State.m` of an observed member is 0. The
sum of `State.m` over a group equals 1 minus the probability that no member is +1.
"""

from __future__ import annotations

import math
from typing import NamedTuple

import numpy as np

from afa.engine.compile import kernel
from afa.engine.layout import (
    CENTRE,
    HIGH,
    LOW,
    NEXT,
    RATIO,
    RATIO_HIGH,
    RATIO_LOW,
    SILENT,
    SILENT_SECOND,
    Packed,
    Pairs,
    new_gains,
)
from afa.engine.state import State
from afa.model.arrays import Floats, Ints


class DuelEdges(NamedTuple):
    """Contributions of couplings to the largest change that unobserved features can still make to each log-odds D.

    This largest change is called the `l1` budget of a duel (entity pair). The arrays are the same for all patients.
    When feature f is observed, the contributions at the indices first_edge[f] to first_edge[f + 1] - 1 are subtracted
    from the budgets.

    Attributes
    ----------
    first_edge : (M + 1,) int64, first entry of each feature
    duel : (E,) int64, duel from whose budget the amount is subtracted
    other : (E,) int64, second feature of the coupling; if `other` is already observed, nothing is subtracted
    size : (2, E) float64, amounts for the lower (row 0) and upper (row 1) budgets, nats
    coupled : (2, Q) float64, sum of the amounts for each budget before any observation, nats

    """

    first_edge: Ints
    duel: Ints
    other: Ints
    size: Floats
    coupled: Floats


class Budgets(NamedTuple):
    """Bounds on how far unobserved features can still move the log-odds D of each entity pair, for one patient.

    The observed features alone give a value of D. In the arrays `coupled` and `whole`, row 0 bounds how far the
    unobserved features can lower D below this value, and row 1 bounds how far they can raise D above this value. In the
    paper's models, the two bounds are equal, and therefore kernels update only row 0 of `coupled`. Kernels change the
    arrays in place.

    Attributes
    ----------
    coupled : (2, Q) float64, contribution of the couplings to each bound, nats
    whole : (2, Q) float64, bound from couplings and unary potentials, nats
    norm : (2, N) float64, how far the unary terms of each entity can lower and raise its score, nats

    """

    coupled: Floats
    whole: Floats
    norm: Floats


@kernel(entrance=True)
def duel_edges(packed: Packed, pairs: Pairs) -> DuelEdges:
    """Return how far each coupling between features can lower and raise the log-odds of each given entity pair.

    Parameters
    ----------
    pairs : (Q, 2) int64, all entity pairs a < b in order

    """
    union, most = new_gains(packed, pairs), 0
    for entity in pairs.ravel():
        most += packed.first_edge[packed.first_slot[entity + 1]] - packed.first_edge[packed.first_slot[entity]]
    at, duel, other = np.empty(most, dtype=np.int64), np.empty(most, dtype=np.int64), np.empty(most, dtype=np.int64)
    size, coupled, rows, n = np.empty((2, most)), np.zeros((2, len(pairs))), np.zeros((2, packed.n_features)), 0
    for p in range(len(pairs)):
        for i in range(union.first[p], union.first[p + 1]):
            _write_couplings(packed, union.slot_a[i], rows[0])
            _write_couplings(packed, union.slot_b[i], rows[1])
            for k in range(union.first[p], union.first[p + 1]):
                there = union.feature[k]
                of_a, of_b = rows[0, there], rows[1, there]
                rows[0, there] = rows[1, there] = 0.0
                if of_a == 0.0 and of_b == 0.0:
                    continue
                below, above = range_of_pair(
                    packed, of_a, union.slot_a[i], union.slot_a[k], of_b, union.slot_b[i], union.slot_b[k]
                )
                if below > 0.0 or above > 0.0:
                    at[n], duel[n], other[n] = union.feature[i], p, there
                    size[0, n], size[1, n] = below, above
                    coupled[0, p] += 0.5 * below
                    coupled[1, p] += 0.5 * above
                    n += 1
    first_edge, order = np.zeros(packed.n_features + 1, dtype=np.int64), np.empty(n, dtype=np.int64)
    for e in range(n):
        first_edge[at[e] + 1] += 1
    first_edge = np.cumsum(first_edge)
    place = first_edge.copy()
    for e in range(n):  # stable sort by feature
        order[place[at[e]]] = e
        place[at[e]] += 1
    return DuelEdges(first_edge, duel[order], other[order], size[:, order], coupled)


@kernel(inline=True)
def _write_couplings(packed: Packed, slot: int, row: Floats) -> None:
    """Write the couplings between one feature and all M features, in the model of one entity, into `row`.

    If `slot` is -1, the feature is outside the entity's support, and `row` does not change.
    """
    if slot >= 0:
        for e in range(packed.first_edge[slot], packed.first_edge[slot + 1]):
            row[packed.feature[packed.other_slot[e]]] = packed.coupling[e]


@kernel(entrance=True)
def new_budgets(packed: Packed, edges: DuelEdges, state: State) -> Budgets:
    """Return bounds on how far the features can move the log-odds of each entity pair, before any observation."""
    n = len(packed.prior)
    budgets = Budgets(edges.coupled.copy(), np.empty_like(edges.coupled), np.zeros((2, n)))
    for entity in range(n):
        _sum_terms(packed, state, budgets, entity)
    for entity in range(n):
        _sum_budgets(packed, state, budgets, entity)
    return budgets


@kernel(inline=True)
def copy_budgets(budgets: Budgets) -> Budgets:
    """Return an independent copy of the bounds."""
    return Budgets(budgets.coupled.copy(), budgets.whole.copy(), budgets.norm.copy())


@kernel(entrance=True, borrows=True)
def update_budgets(packed: Packed, edges: DuelEdges, state: State, budgets: Budgets, feature: int) -> None:
    """Update the bounds on all log-odds after the observation of one feature.

    Call this function after `afa.engine.state.condition`.
    """
    for e in range(edges.first_edge[feature], edges.first_edge[feature + 1]):
        if not state.observed[edges.other[e]]:
            budgets.coupled[0, edges.duel[e]] -= edges.size[0, e]
            if packed.class_conditional:
                budgets.coupled[1, edges.duel[e]] -= edges.size[1, e]
    first, last = packed.first_feature_slot[feature], packed.first_feature_slot[feature + 1]
    for h in range(first, last):
        _sum_terms(packed, state, budgets, packed.owner[packed.feature_slots[h]])
    for h in range(first, last):
        _sum_budgets(packed, state, budgets, packed.owner[packed.feature_slots[h]])


@kernel(borrows=True)
def _sum_terms(packed: Packed, state: State, budgets: Budgets, entity: int) -> None:
    """Write how far the unary terms of one entity's unobserved features can lower and raise the entity's score.

    Features of exclusive groups are skipped.
    """
    below, above = 0.0, 0.0
    for slot in range(packed.first_slot[entity], packed.first_slot[entity + 1]):
        if not packed.class_conditional:
            below += abs(state.field[slot])
            above = below
        elif not state.observed[packed.feature[slot]] and packed.site[NEXT, slot] < 0.0:
            low, middle, high = terms_of_duel(packed, state, slot, -1)
            of_slot = _fall_and_rise(low, middle, high)
            below, above = below + of_slot[0], above + of_slot[1]
    budgets.norm[0, entity], budgets.norm[1, entity] = below, above


@kernel(inline=True)
def _fall_and_rise(low: float, middle: float, high: float) -> tuple[float, float]:
    """Return how far a term can fall below 0 and rise above 0, given its three possible values."""
    return -min(0.0, low, middle, high), max(0.0, low, middle, high)


@kernel(borrows=True)
def _sum_budgets(packed: Packed, state: State, budgets: Budgets, one: int) -> None:
    """Write the bounds on the log-odds (`Budgets.whole`) of all entity pairs that contain the entity `one`.

    The bound for two entities is the sum of the largest possible changes of their two scores. If both models contain a
    feature, the range of the difference between the feature's two unary terms replaces the ranges of the two terms.
    """
    overlaps, coupled, whole, norm = packed.overlaps, budgets.coupled, budgets.whole, budgets.norm
    n = norm.shape[1]
    for opponent in range(n):
        if opponent == one:
            continue
        a, b = min(one, opponent), max(one, opponent)
        p = number_of(n, a, b)
        below, above = norm[0, a] + norm[1, b], norm[1, a] + norm[0, b]
        for i in range(overlaps.first[a * n + b], overlaps.first[a * n + b + 1]):
            slot_a, slot_b = packed.first_slot[a] + overlaps.of_u[i], packed.first_slot[b] + overlaps.of_v[i]
            if not packed.class_conditional:
                of_a, of_b = state.field[slot_a], state.field[slot_b]
                below -= abs(of_a) + abs(of_b) - abs(of_a - of_b)
                continue
            after = packed.site[NEXT, slot_a]
            if 0.0 <= after <= slot_a:  # at the last member of an exclusive group, add the bound of the group
                of_group = range_of_group(packed.site, state.m, slot_a, slot_b)
                below, above = below + of_group[0], above + of_group[1]
            if after >= 0.0 or state.observed[packed.feature[slot_a]]:
                continue
            low_a, middle_a, high_a = terms_of_duel(packed, state, slot_a, -1)
            low_b, middle_b, high_b = terms_of_duel(packed, state, slot_b, -1)
            below_a, above_a = _fall_and_rise(low_a, middle_a, high_a)
            below_b, above_b = _fall_and_rise(low_b, middle_b, high_b)
            below_both, above_both = _fall_and_rise(low_a - low_b, middle_a - middle_b, high_a - high_b)
            below += below_both - (below_a + above_b)
            above += above_both - (above_a + below_b)
        whole[0, p] = below + coupled[0, p]
        whole[1, p] = above + coupled[1, p] if packed.class_conditional else whole[0, p]


@kernel(entrance=True)
def entity_budgets(packed: Packed, state: State) -> Floats:
    """Return how far the unobserved features can move the score S_v of each entity v (eq:l1-bracket).

    Returns
    -------
    budgets : (N,) float64, nats

    """
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


@kernel(inline=True)
def range_of_pair(
    packed: Packed, of_a: float, slot_a: int, other_a: int, of_b: float, slot_b: int, other_b: int
) -> tuple[float, float]:
    """Return how far the couplings between two unobserved features can lower and raise the log-odds D.

    The coupling energies are linear in the value of each feature. Therefore, only the lowest and highest value of each
    feature must be checked.

    Parameters
    ----------
    of_a, of_b : couplings in the two entities, nats. If an entity has no coupling, the number is 0, and the slots of
        the entity are ignored

    """
    if not packed.class_conditional:
        return abs(of_a - of_b), abs(of_a - of_b)
    site = packed.site
    one, other = (slot_a, other_a) if of_a != 0.0 else (slot_b, other_b)
    low, high, other_low, other_high = -site[LOW, one], site[HIGH, one], -site[LOW, other], site[HIGH, other]
    first = second = third = fourth = 0.0
    if of_a != 0.0:
        at_low, at_high = of_a * (low - site[CENTRE, slot_a]), of_a * (high - site[CENTRE, slot_a])
        away_low, away_high = other_low - site[CENTRE, other_a], other_high - site[CENTRE, other_a]
        first, second = at_low * away_low, at_low * away_high
        third, fourth = at_high * away_low, at_high * away_high
    if of_b != 0.0:
        at_low, at_high = of_b * (low - site[CENTRE, slot_b]), of_b * (high - site[CENTRE, slot_b])
        away_low, away_high = other_low - site[CENTRE, other_b], other_high - site[CENTRE, other_b]
        first, second = first - at_low * away_low, second - at_low * away_high
        third, fourth = third - at_high * away_low, fourth - at_high * away_high
    return -min(0.0, first, second, third, fourth), max(0.0, first, second, third, fourth)


@kernel()
def range_of_group(site: Floats, m: Floats, last_a: int, last_b: int) -> tuple[float, float]:
    """Return how far the unobserved members of an exclusive group can lower and raise the log-odds D.

    Parameters
    ----------
    site : (15, K) float64, as in `Packed`
    m : (K,) float64, probability of +1 of each member, in [0, 1]

    """
    return _largest_group_log_ratio(site, m, last_b, last_a), _largest_group_log_ratio(site, m, last_a, last_b)


@kernel()
def _largest_group_log_ratio(site: Floats, m: Floats, last_a: int, last_b: int) -> float:
    """Return the largest log P_a / P_b over all possible observations of an exclusive group.

    P_a and P_b are the probabilities of the observations under the models of the entities a and b. For one group
    member, `m[a]` and `m[b]` are the probabilities of +1 under the two models. The number `best` is the largest P_a /
    P_b found so far. The first loop searches the observations in which no member is +1. Each pass of this loop assumes
    that exactly the members with `m[a] / m[b]` below `best` have been observed as 0. The first loop ends when a pass
    does not increase `best`. The second loop searches the observations in which one member is +1. In such an
    observation, P_a / P_b equals `m[a] / m[b]` of this member.
    """
    best, better = 1.0, True
    while better:
        left_a, left_b, a, b, more = 1.0, 1.0, last_a, last_b, True
        while more:
            a, b = int(site[NEXT, a]), int(site[NEXT, b])
            if m[a] < best * m[b]:
                left_a -= m[a]
                left_b -= m[b]
            more = a != last_a
        better = left_a / left_b > best
        best = max(best, left_a / left_b)
    a, b, more = last_a, last_b, True
    while more:
        a, b = int(site[NEXT, a]), int(site[NEXT, b])
        if m[b] > 0.0:
            best = max(best, m[a] / m[b])
        more = a != last_a
    return math.log(best)


@kernel()
def variance_of_group(site: Floats, m: Floats, last_a: int, last_b: int) -> float:
    """Return the variance of an exclusive group's term in D under the mixture of both entities' models (eq:sigma-D).

    Parameters
    ----------
    site : (15, K) float64, as in `Packed`
    m : (K,) float64, probability of +1 of each member, in [0, 1]

    """
    left_a, left_b, mean, square = 1.0, 1.0, 0.0, 0.0
    a, b, more = last_a, last_b, True
    while more:
        a, b = int(site[NEXT, a]), int(site[NEXT, b])
        if m[b] > 0.0:
            p, log_ratio = 0.5 * (m[a] + m[b]), math.log(m[a] / m[b])
            mean += p * log_ratio
            square += p * log_ratio * log_ratio
            left_a -= m[a]
            left_b -= m[b]
        more = a != last_a
    p, log_ratio = 0.5 * (left_a + left_b), math.log(left_a / left_b)
    return square + p * log_ratio * log_ratio - (mean + p * log_ratio) ** 2


UNIFORM_SECOND = 2.0 / 3.0
"""Second moment of the uniform distribution on -1, 0, +1."""


@kernel(inline=True)
def moments_at(packed: Packed, state: State, slot: int, other: int) -> tuple[float, float]:
    """Return the first and second moment of a feature under the model of one entity.

    If `slot` is -1, the model of the entity does not contain the feature. In the paper's models, the function then
    returns the moments of the uniform distribution. In models with class-conditional probabilities, the function then
    returns the moments of the feature's distribution among all people. These moments are stored at the index `other`,
    which belongs to the same feature in the model of another entity.
    """
    if slot >= 0:
        return state.m[slot], state.q[slot]
    if not packed.class_conditional:
        return 0.0, UNIFORM_SECOND
    return packed.site[SILENT, other], packed.site[SILENT_SECOND, other]


@kernel(inline=True)
def terms_of_duel(packed: Packed, state: State, slot_a: int, slot_b: int) -> tuple[float, float, float]:
    """Return u(-1), u(0) and u(+1), where u(s) is the change of D if a feature is observed with the value s.

    The numbers `slot_a` and `slot_b` are the array positions of the feature in the models of the entities a and b. If a
    model does not contain the feature, its position is -1. At most one of the two positions may be -1. If the feature
    cannot have the value s, the function returns u(0) in place of u(s).
    """
    if not packed.class_conditional:
        high = (state.field[slot_a] if slot_a >= 0 else 0.0) - (state.field[slot_b] if slot_b >= 0 else 0.0)
        return -high, 0.0, high
    site, slot = packed.site, max(slot_a, slot_b)
    if site[NEXT, slot] >= 0.0:  # both models contain all members of an exclusive group
        of_a, of_b = state.m[slot_a], state.m[slot_b]
        middle = math.log1p(-of_a) - math.log1p(-of_b)
        return middle, middle, math.log(of_a / of_b) if of_b > 0.0 else middle
    low = middle = high = 0.0
    if slot_a >= 0:
        pull, centre = state.field[slot_a] - packed.unary[slot_a], site[CENTRE, slot_a]
        low = site[RATIO_LOW, slot_a] - pull * (1.0 + centre)
        middle = site[RATIO, slot_a] - pull * centre
        high = site[RATIO_HIGH, slot_a] + pull * (1.0 - centre)
    if slot_b >= 0:
        pull, centre = state.field[slot_b] - packed.unary[slot_b], site[CENTRE, slot_b]
        low -= site[RATIO_LOW, slot_b] - pull * (1.0 + centre)
        middle -= site[RATIO, slot_b] - pull * centre
        high -= site[RATIO_HIGH, slot_b] + pull * (1.0 - centre)
    return (low if site[LOW, slot] else middle), middle, (high if site[HIGH, slot] else middle)


@kernel(inline=True)
def resolved_sign(lead: float, below: float, above: float, tie: float) -> int:
    """Return the sign of D if D has this sign for all values of the unobserved features, else 0.

    Parameters
    ----------
    lead : part of D from the observed features, nats
    below, above : bounds on how far D can fall below `lead` and rise above `lead`, nats
    tie : largest absolute D that counts as 0

    """
    if lead > below + tie:
        return 1
    return -1 if lead < -(above + tie) else 0


@kernel(inline=True)
def number_of(n: int, one: int, other: int) -> int:
    """Return the index of the pair of two entities in the ordered list of all pairs a < b of n entities."""
    a, b = min(one, other), max(one, other)
    return a * n - a * (a + 1) // 2 + b - a - 1
