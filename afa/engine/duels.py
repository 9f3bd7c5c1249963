"""Compute bounds, variances, sign votes and early decisions of duels (entity pairs) with compiled kernels.

An early decision selects the winner of a duel before all features are observed. The tuple `BRACKETS` names five methods
for early decisions. The plain Python definitions of these methods are in `afa.scores.bracket`.
"""

from __future__ import annotations

import math
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from afa.engine.budgets import (
    moments_at,
    number_of,
    range_of_group,
    range_of_pair,
    resolved_sign,
    terms_of_duel,
    variance_of_group,
)
from afa.engine.compile import kernel
from afa.engine.layout import NEXT, Packed, Pairs
from afa.engine.state import State, sign, term
from afa.model.arrays import Codes, Floats, Ints
from afa.scores.bracket import ALPHA, K1


class Duel(NamedTuple):
    """Sums over the unobserved features of one duel, which compares two entities by the log-odds D.

    Attributes
    ----------
    budget : bound on how far D can fall below the part of D from the observed features, nats
    between : sum of absolute couplings between observed and unobserved features, nats. Only the method `l1_paper` needs
        `between`, which is 0 in models with class-conditional probabilities
    variance : sigma_D^2 (eq:sigma-D)
    spread : sum of (range / 2)^2 over the terms of D; in the paper's models, range / 2 is the absolute potential
    beta : largest sum, for one feature, of range / 2 over the feature's coupling terms
    above : bound on how far D can rise above the part of D from the observed features, nats; equals `budget` in the
        paper's models (docs/decisions.md, Base rates)

    """

    budget: float
    between: float
    variance: float
    spread: float
    beta: float
    above: float


@kernel(entrance=True, borrows=True)
def duel(packed: Packed, state: State, a: int, b: int) -> Duel:
    """Return the sums (`Duel`) from which early decisions on the entity pair (a, b) are computed."""
    slot_a, last_a = packed.first_slot[a], packed.first_slot[a + 1]
    slot_b, last_b = packed.first_slot[b], packed.first_slot[b + 1]
    below, above, pairs_below, pairs_above, between = 0.0, 0.0, 0.0, 0.0, 0.0
    variance, of_unary, of_pairs, beta = 0.0, 0.0, 0.0, 0.0
    while slot_a < last_a or slot_b < last_b:
        at_a = packed.feature[slot_a] if slot_a < last_a else packed.n_features
        at_b = packed.feature[slot_b] if slot_b < last_b else packed.n_features
        at = min(at_a, at_b)
        here_a, here_b = (slot_a if at_a == at else -1), (slot_b if at_b == at else -1)
        if packed.class_conditional and packed.site[NEXT, max(here_a, here_b)] >= 0.0:
            if packed.site[NEXT, here_a] <= here_a:  # at the last member of an exclusive group, add the group
                least, most = range_of_group(packed.site, state.m, here_a, here_b)
                below += least
                above += most
                of_unary += (0.5 * (least + most)) ** 2
                variance += variance_of_group(packed.site, state.m, here_a, here_b)
        elif not state.observed[at]:
            low, middle, high = terms_of_duel(packed, state, here_a, here_b)
            least, most = min(low, middle, high), max(low, middle, high)
            unobserved_below, unobserved_above, seen, squares = row(packed, state, here_a, here_b, -1)
            below += max(0.0, -least)
            above += max(0.0, most)
            pairs_below += unobserved_below
            pairs_above += unobserved_above
            between += seen
            of_unary += (0.5 * (most - least)) ** 2
            of_pairs += squares
            beta = max(beta, 0.5 * (unobserved_below + unobserved_above))
            m_a, q_a = moments_at(packed, state, here_a, here_b)
            m_b, q_b = moments_at(packed, state, here_b, here_a)
            first, second = 0.5 * (m_a + m_b), 0.5 * (q_a + q_b)
            if not packed.class_conditional:
                variance += high * high * (second - first * first)
            else:
                p_low, p_high = 0.5 * (second - first), 0.5 * (second + first)
                mean = p_low * low + (1.0 - second) * middle + p_high * high
                variance += p_low * low**2 + (1.0 - second) * middle**2 + p_high * high**2 - mean * mean
        slot_a += 1 if here_a >= 0 else 0
        slot_b += 1 if here_b >= 0 else 0
    below, above = below + 0.5 * pairs_below, above + 0.5 * pairs_above
    return Duel(below, between, variance + 0.5 * of_pairs, of_unary + 0.5 * of_pairs, beta, above)


@kernel(inline=True)
def row(packed: Packed, state: State, slot_a: int, slot_b: int, without: int) -> tuple[float, float, float, float]:
    """Return four sums over the couplings between one feature and all other features.

    The log-odds D compare two entities a and b. A coupling in D is the coupling of two features in the model of a minus
    the coupling in the model of b. The sums `below` and `above` bound how far the couplings to unobserved features can
    lower and raise D. The third result, `seen`, is the sum of the absolute couplings to observed features (0 in models
    with class-conditional probabilities). The fourth result, `square`, is the sum of (width / 2)^2 over the couplings
    to unobserved features. The width of a coupling is the largest minus the smallest contribution that the coupling can
    make to D.

    The numbers `slot_a` and `slot_b` are the array positions of the feature in the models of a and b, or -1 if the
    model does not contain the feature. If the argument `without` is not -1, it is the index of an unobserved feature,
    and couplings to this feature are skipped.
    """
    edge_a = packed.first_edge[slot_a] if slot_a >= 0 else 0
    last_a = packed.first_edge[slot_a + 1] if slot_a >= 0 else 0
    edge_b = packed.first_edge[slot_b] if slot_b >= 0 else 0
    last_b = packed.first_edge[slot_b + 1] if slot_b >= 0 else 0
    below, above, seen, square = 0.0, 0.0, 0.0, 0.0
    while edge_a < last_a or edge_b < last_b:
        there_a = packed.other_slot[edge_a] if edge_a < last_a else -1
        there_b = packed.other_slot[edge_b] if edge_b < last_b else -1
        at_a = packed.feature[there_a] if there_a >= 0 else packed.n_features
        at_b = packed.feature[there_b] if there_b >= 0 else packed.n_features
        at = min(at_a, at_b)
        of_a = of_b = 0.0
        if at_a == at:
            of_a = packed.coupling[edge_a]
            edge_a += 1
        if at_b == at:
            of_b = packed.coupling[edge_b]
            edge_b += 1
        if not state.observed[at] and at != without:
            least, most = range_of_pair(packed, of_a, slot_a, there_a, of_b, slot_b, there_b)
            below += least
            above += most
            square += (0.5 * (least + most)) ** 2
        elif not packed.class_conditional and state.observed[at]:
            seen += abs(of_a - of_b)
    return below, above, seen, square


@kernel(entrance=True)
def variances(packed: Packed, state: State, pairs: Pairs) -> Floats:
    """Return the variance sigma_D^2 of the log-odds D of each given duel (entity pair) (eq:sigma-D).

    Parameters
    ----------
    pairs : (Q, 2) int64, the two entities of each duel

    Returns
    -------
    variances : (Q,) float64, nats squared

    """
    result = np.empty(len(pairs))
    for p in range(len(pairs)):
        result[p] = duel(packed, state, pairs[p, 0], pairs[p, 1]).variance
    return result


@kernel(entrance=True)
def vote(packed: Packed, state: State, votes: Ints, feature: int, value: int) -> None:
    """Add one vote to each duel (entity pair), for the entity that the observation of a feature favours.

    Call this function before `condition`.

    Parameters
    ----------
    votes : (Q, 2) int64, votes for a and for b of each duel, changed in place

    """
    holders = packed.feature_slots[packed.first_feature_slot[feature] : packed.first_feature_slot[feature + 1]]
    terms = np.empty(len(holders))
    for h in range(len(holders)):
        terms[h] = term(packed, state, holders[h], value)
    vote_among(packed.owner[holders], terms, len(packed.prior), packed.tie, votes)


@kernel(entrance=True)
def vote_among(holders: Ints, terms: Floats, n: int, tie: float, votes: Ints) -> None:
    """Add one vote to each duel (entity pair), for the entity whose score the observation increases more.

    If the observation raises the log-odds D_ab by more than `tie`, entity a receives the vote. If the observation
    lowers D_ab by more than `tie`, entity b receives the vote.

    Parameters
    ----------
    holders : (n,) int64, entities with the feature in their support
    terms : (n,) float64, increase of each of these entities' score by the observation, nats; the increase is 0 for all
        other entities
    votes : (Q, 2) int64, changed in place

    """
    of_one, holds = np.zeros(n), np.zeros(n, dtype=np.bool_)
    for h in range(len(holders)):
        of_one[holders[h]], holds[holders[h]] = terms[h], True
    for one in holders:
        for other in range(n):
            if other == one or (holds[other] and other < one):  # if both models contain the feature, count once
                continue
            a, b, p = min(one, other), max(one, other), number_of(n, one, other)
            weight = of_one[a] - of_one[b]
            if weight > tie:
                votes[p, 0] += 1
            elif weight < -tie:
                votes[p, 1] += 1


BRACKETS = ("l1_tight", "l1_paper", "hanson_wright", "kl", "kl_written")
RIGOROUS = ("l1_tight", "l1_paper")


@kernel(entrance=True)
def bracket_calls(
    packed: Packed,
    state: State,
    a: int,
    b: int,
    sums: Duel,
    mean: float,
    votes: Ints,
    n_observed: int,
    gamma: float,
    calls: Codes,
) -> None:
    """Write the early decision of each method in `BRACKETS` on the pair (a, b): +1 for a, -1 for b, 0 if undecided.

    Parameters
    ----------
    sums : sums of the duel (a, b) in the present state
    mean : mu_D, nats, with rounding errors set to 0
    votes : (2,) int64, sign votes for a and for b
    gamma : fraction of wrong decisions that the heuristic methods allow, in (0, 1)
    calls : (5,) int8, decisions in the order of `BRACKETS`, written

    """
    lead = state.constant[a] - state.constant[b]
    calls[0] = resolved_sign(lead, sums.budget, sums.above, packed.tie)
    calls[1] = resolved_sign(lead, sums.budget + sums.between, sums.above + sums.between, packed.tie)
    calls[2] = sign(mean, math.sqrt(2.0 * sums.spread * math.log(2.0 / gamma) * (1.0 + sums.beta)))
    calls[3] = vote_call(votes[0], votes[0] + votes[1], gamma)
    calls[4] = vote_call(votes[0], n_observed, gamma)


@kernel()
def vote_call(positive: int, n: int, gamma: float) -> int:
    """Return 1 if the KL confidence interval of the share of votes is above 1/2, -1 if below, else 0 (supp:kl_bracket).

    The share is `positive / n`. The interval excludes 1/2 if n kl(share, 1/2) exceeds log(K1 n^ALPHA / gamma).
    """
    if n == 0:
        return 0
    share = positive / n
    divergence = math.log(2.0)
    for p in (share, 1.0 - share):
        if p > 0.0:
            divergence += p * math.log(p)
    if n * divergence <= math.log(K1 * n**ALPHA / gamma):
        return 0
    return 1 if share > 0.5 else -1


@kernel(entrance=True)
def refresh_budgets(
    packed: Packed,
    state: State,
    duels: Ints,
    pairs: Pairs,
    budget: Floats,
    computed_at: NDArray[np.int32],
    changed_at: Ints,
    now: int,
) -> None:
    """Compute `Duel.budget` again for each given duel (entity pair) in which an observation has changed a model.

    Parameters
    ----------
    duels : (q,) int64, indices of duels
    pairs : (q, 2) int64, entities of these duels
    budget : (Q,) float64, budgets of all duels, nats; written
    computed_at : (Q,) int32, step at which each budget was computed, or 0 for never; written
    changed_at : (N,) int64, step at which each entity's model last changed, from 1 on
    now : the present step

    """
    for i in range(len(duels)):
        p, a, b = duels[i], pairs[i, 0], pairs[i, 1]
        if is_stale(changed_at, computed_at[p], a, b):
            budget[p] = duel(packed, state, a, b).budget
            computed_at[p] = now


@kernel()
def gaussian_sign(mean: float, variance: float) -> float:
    """Return E[sign X] of a Gaussian X (eq:fsp). If the variance is 0, return the sign of the mean."""
    if variance <= 0.0:
        return 0.0 if mean == 0.0 else math.copysign(1.0, mean)
    return math.erf(mean / math.sqrt(2.0 * variance))


@kernel(inline=True)
def is_stale(changed_at: Ints, computed_at: int, a: int, b: int) -> bool:
    """Return True if an observation has changed the model of entity a or entity b since the step `computed_at`.

    Parameters
    ----------
    changed_at : (N,) int64, step at which an observation last changed each entity's model

    """
    return bool(max(changed_at[a], changed_at[b]) > computed_at)


def all_pairs(n: int) -> Pairs:
    """Return all pairs a < b of the indices 0 to n - 1, in ascending order.

    Returns
    -------
    pairs : (n (n - 1) / 2, 2) int64

    """
    opponents = np.arange(n - 1, -1, -1) if n else np.empty(0, dtype=np.int64)
    a = np.repeat(np.arange(n), opponents)
    b = np.arange(len(a)) - np.repeat(np.cumsum(opponents) - opponents, opponents) + a + 1
    return np.column_stack([a, b]).astype(np.int64)


def sides_of(n: int, duels: Ints) -> Pairs:
    """Return the entities a < b of the duels (entity pairs) with the given indices.

    Parameters
    ----------
    duels : (q,) int64, indices among all pairs of n entities in order

    Returns
    -------
    pairs : (q, 2) int64, entity indices

    """
    first = np.arange(n) * (2 * n - 1 - np.arange(n)) // 2  # index of each entity's first pair
    a = np.searchsorted(first, duels, side="right") - 1
    a = np.minimum(a, n - 2)  # the last entity is never the first entity of a pair
    return np.column_stack([a, duels - first[a] + a + 1]).astype(np.int64)
