"""Compute Copeland ranks of one patient's entities, and the precision at k with ties, with compiled kernels.

The plain Python definition of the ranks is in `afa.scores.copeland`.
"""

from __future__ import annotations

import math
from functools import lru_cache
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from afa.engine.compile import in_threads, kernel, laid_out
from afa.engine.state import State, elbos, mean_difference
from afa.model.arrays import Bools, Floats, Ints

LINEARITY, WALD, TWO_ELBO = range(3)


class Ranks(NamedTuple):
    """Ranking of the entities of one patient.

    Attributes
    ----------
    order : (n,) int64, entities, most preferred first; tied entities are sorted by name
    place : (N,) int64, number of entities ranked strictly ahead of each entity; tied entities have equal places

    """

    order: Ints
    place: Ints


@lru_cache(maxsize=4)
def name_places(names: tuple[str, ...]) -> Ints:
    """Return the position of each name in the sorted list of names.

    Returns
    -------
    places : (n,) int64, from 0 to n - 1

    """
    return np.argsort(sorted(range(len(names)), key=names.__getitem__)).astype(np.int64)


@kernel()
def score_table(state: State, score: int, tie: float, n_unobserved: int) -> Floats:
    """Return the scores of all entity pairs as an antisymmetric matrix. `score` is `LINEARITY`, `WALD` or `TWO_ELBO`.

    Returns
    -------
    scores : (N, N) float64, nats, with rounding errors set to 0

    """
    cross, n = state.cross, len(state.constant)
    of_one = elbos(state, n_unobserved) if score == TWO_ELBO else state.constant
    scores = np.zeros((n, n))
    for a in range(n):
        for b in range(a + 1, n):
            difference = mean_difference(cross, a, b) if score == LINEARITY else of_one[a] - of_one[b]
            if abs(difference) > tie:
                scores[a, b], scores[b, a] = difference, -difference
    return scores


@kernel(entrance=True)
def ranks_of(scores: Floats, members: Ints, name_rank: Ints, tie: float) -> Ranks:
    """Rank the given entities by Copeland wins against each other, then by the sum of their scores, then by name.

    Neighbours in the sorted list of sums count as equal if they differ by at most the rounding error (`tie` times n).

    Parameters
    ----------
    scores : (N, N) float64, antisymmetric
    members : (n,) int64, entities to rank
    name_rank : (N,) int64, position of each entity in the order of names

    """
    n = len(members)
    wins, margin = _tally(scores, members, tie)
    order = np.empty(n, dtype=np.int64)
    place = np.zeros(len(name_rank), dtype=np.int64)
    if n == 0:
        return Ranks(order, place)
    best = best_first(wins, margin, name_rank[members], tie * n)
    step = _ranks_with_ties(margin, tie * n)
    for i in range(n):
        here, above = best[i], best[max(i - 1, 0)]
        order[i] = members[here]
        level = i > 0 and wins[here] == wins[above] and step[here] == step[above]
        place[members[here]] = place[members[above]] if level else i
    return Ranks(order, place)


@kernel()
def best_first(wins: Floats, margin: Floats, names: Ints, equal: float) -> Ints:
    """Return the indices of the entities, sorted by wins, then by margin (sum of scores), then by name.

    Parameters
    ----------
    wins : (n,) float64, multiples of 1/2
    margin : (n,) float64, sums of scores
    names : (n,) int64, position of each entity in the order of names
    equal : largest difference between neighbours in the sorted list of margins that counts as a tie

    Returns
    -------
    order : (n,) int64

    """
    step, most, n_names = _ranks_with_ties(margin, equal), np.max(wins), np.max(names) + 1
    number = np.empty(len(wins), dtype=np.int64)  # sort key: wins (multiples of 1/2), then margin, then name
    for i in range(len(wins)):
        number[i] = (int(2.0 * (most - wins[i])) * len(wins) + step[i]) * n_names + names[i]
    return np.argsort(number)


@kernel(inline=True)
def _tally(scores: Floats, members: Ints, tie: float) -> tuple[Floats, Floats]:
    """Return the wins and the sum of scores of each given entity, in comparisons with all given entities."""
    n = len(members)
    ahead, margin = np.zeros(n), np.zeros(n)
    if n < len(scores):
        for i in range(n):
            row = scores[members[i]]
            for k in range(n):
                score = row[members[k]]
                margin[i] += score
                ahead[i] += 0.5 * (1 + (score > tie) - (score < -tie))
        return ahead, margin
    for k in range(n):  # the inner loop runs over entities, so that it can be vectorised
        row = scores[k]
        for i in range(n):
            margin[i] -= row[i]
            ahead[i] += row[i] < -tie
            ahead[i] -= row[i] > tie
    wins: Floats = 0.5 * (n + ahead)
    return wins[members], margin[members]


@kernel()
def _ranks_with_ties(margin: Floats, equal: float) -> Ints:
    """Return the rank of each sum in descending order, from 0. Tied sums have the same rank.

    Two neighbours in the sorted list of sums are tied if they differ by at most `equal`.
    """
    n = len(margin)
    largest_first = np.argsort(-margin)
    step = np.zeros(n, dtype=np.int64)
    for i in range(1, n):
        above, here = largest_first[i - 1], largest_first[i]
        step[here] = step[above] + (1 if margin[above] - margin[here] > equal else 0)
    return step


@kernel(entrance=True)
def is_certified(pairs: Ints, order: Ints, k: int, lead: Floats, resolved: Bools) -> bool:
    """Return True if no further observation can change the top k.

    The result is True if each entity inside the top k wins against each entity outside the top k, for all values of the
    unobserved features.

    The method `TopKPlanner.certified` computes the same result in plain Python.

    Parameters
    ----------
    pairs : (Q, 2) int64, the two entities of each duel
    order : (N,) int64, entities, most preferred first
    lead : (Q,) float64, part of D from the observed features, nats
    resolved : (Q,) bool, True if no further observation can change the winner of the duel

    """
    inside = np.zeros(len(order), dtype=np.bool_)
    for i in range(k):
        inside[order[i]] = True
    for p in range(len(pairs)):
        a, b = pairs[p, 0], pairs[p, 1]
        if inside[a] != inside[b] and not (resolved[p] and (lead[p] > 0.0) == inside[a]):
            return False
    return True


def precision_at_k(
    place: NDArray[np.integer],
    k: Ints,
    right: Bools,
    tied: Bools | None = None,
    slots: Ints | None = None,
    *,
    among: Bools | None = None,
    threads: int | None = None,
) -> Floats:
    """Return the expected precision at k of R rankings of each patient, with ties broken at random.

    Parameters
    ----------
    place : (P, R, N) int, number of entities ranked strictly ahead of each entity; tied entities have equal places
    k : (P,) int64
    right : (P, N) bool, correct entities
    tied : (P, N) bool, further entities, which are tied for the last places of the correct top k
    slots : (P,) int64, number of these last places: at most so many `tied` entities count as correct
    among : (P, N) bool, entities that are ranked, or None for all entities

    Returns
    -------
    precision : (P, R) float64, in [0, 1], or NaN if k is 0

    """
    n_patients, n_rankings, n = place.shape
    tied = np.zeros((n_patients, n), dtype=np.bool_) if tied is None else tied
    slots = np.zeros(n_patients, dtype=np.int64) if slots is None else slots
    among = np.ones((n_patients, n), dtype=np.bool_) if among is None else among
    if not (right.shape == tied.shape == among.shape == (n_patients, n) and k.shape == slots.shape == (n_patients,)):
        raise ValueError(f"masks of shape {right.shape} and k of shape {k.shape} for places {place.shape}")
    share = np.empty((n_patients, n_rankings))
    places, masks = laid_out(place.astype(np.int64)), [laid_out(mask) for mask in (right, tied, among)]
    in_threads(_precision, n_patients, threads, places, laid_out(k), *masks, laid_out(slots), share)
    return share


@kernel(entrance=True)
def _precision(
    place: Ints,
    k: Ints,
    right: Bools,
    tied: Bools,
    among: Bools,
    slots: Ints,
    share: Floats,
    first: int,
    last: int,
) -> None:
    for patient in range(first, last):
        counts, half, ranked, size = right[patient], tied[patient], among[patient], k[patient]
        for r in range(place.shape[1]):
            share[patient, r] = np.nan
            if size > 0:
                found = _expected_correct_count(place[patient, r], size, counts, half, slots[patient], ranked)
                share[patient, r] = found / size


@kernel(inline=True)
def _expected_correct_count(place: Ints, k: int, right: Bools, tied: Bools, slots: int, among: Bools) -> float:
    """Return the expected number of correct entities among the first k entities, with ties broken at random."""
    n = len(place)
    at_place = np.zeros(n, dtype=np.int64)
    for v in range(n):
        if among[v]:
            at_place[place[v]] += 1
    ahead, boundary = 0, 0
    while boundary < n and ahead + at_place[boundary] < k:
        ahead += at_place[boundary]
        boundary += 1
    inside_right, inside_tied, at_right, at_tied = 0, 0, 0, 0
    for v in range(n):
        if among[v] and place[v] < boundary:
            inside_right += right[v]
            inside_tied += tied[v]
        elif among[v] and place[v] == boundary:
            at_right += right[v]
            at_tied += tied[v]
    if boundary == n:
        return float(inside_right + min(inside_tied, slots))
    drawn, size = k - ahead, at_place[boundary]
    mean_right = inside_right + drawn * at_right / size
    return float(mean_right + _mean_capped(inside_tied, at_tied, size, drawn, slots))


@kernel(inline=True)
def _mean_capped(already: int, marked: int, size: int, drawn: int, cap: int) -> float:
    """Return E[min(already + H, cap)], where H is the number of marked items in a random sample.

    From `size` items, of which `marked` are marked, `drawn` items are sampled without replacement.
    """
    total = 0.0
    for hit in range(max(0, drawn - (size - marked)), min(marked, drawn) + 1):
        log_ways = _log_choose(marked, hit) + _log_choose(size - marked, drawn - hit) - _log_choose(size, drawn)
        total += math.exp(log_ways) * min(already + hit, cap)
    return total


@kernel(inline=True)
def _log_choose(n: int, k: int) -> float:
    if k in (0, n):
        return 0.0
    return math.lgamma(n + 1.0) - math.lgamma(k + 1.0) - math.lgamma(n - k + 1.0)


class RankTable(NamedTuple):
    """Scores of one patient by `linearity`, with the number of wins and the sum of scores of each entity.

    Attributes
    ----------
    scores : (N, N) float64, nats
    ahead : (N,) int64, number of entities that lose to each entity, minus the number of entities that win against it
    margin, rest : (N,) float64, sum of each row of `scores`, and the rounding error of this sum; `margin + rest` is as
        accurate as a new sum over the row

    """

    scores: Floats
    ahead: Ints
    margin: Floats
    rest: Floats


def new_table(n: int) -> RankTable:
    """Return a table of n entities with all scores 0."""
    return RankTable(np.zeros((n, n)), np.zeros(n, dtype=np.int64), np.zeros(n), np.zeros(n))


def copy_table(table: RankTable) -> RankTable:
    """Return an independent copy of the table."""
    return RankTable(table.scores.copy(), table.ahead.copy(), table.margin.copy(), table.rest.copy())


@kernel(entrance=True)
def refresh_table(cross: Floats, changed: Bools, tie: float, table: RankTable) -> None:
    """Compute the scores by `linearity` again in the rows and columns of entities with a changed model.

    Parameters
    ----------
    cross : (N, N) float64, E_{q_u}[S_v | x_obs], nats
    changed : (N,) bool, True for entities whose model an observation has changed
    tie : largest absolute score that counts as a rounding error and is set to 0

    """
    n, entities = len(changed), np.flatnonzero(changed)
    scores, ahead, margin, rest = table.scores, table.ahead, table.margin, table.rest
    own = np.empty(n)
    for entity in range(n):
        own[entity] = cross[entity, entity]
    for b in range(n):
        for a in entities:
            score = 0.5 * ((own[a] - own[b]) + (cross[b, a] - cross[a, b]))
            score = 0.0 if abs(score) <= tie else score
            before = scores[a, b]
            if score != before:
                scores[a, b], scores[b, a] = score, 0.0 - score
                turned = int(score > 0.0) - int(score < 0.0) - int(before > 0.0) + int(before < 0.0)
                ahead[a] += turned
                ahead[b] -= turned
                for term in (score, -before):
                    _add_exactly(margin, rest, int(a), term)
                    _add_exactly(margin, rest, b, -term)


@kernel(inline=True)
def _add_exactly(total: Floats, rest: Floats, i: int, term: float) -> None:
    """Add a term to total[i], and add the rounding error of this addition to rest[i]."""
    before = total[i]
    after = before + term
    of_term = after - before
    rest[i] += (before - (after - of_term)) + (term - of_term)
    total[i] = after


@kernel(entrance=True)
def rank_all(table: RankTable, name_rank: Ints, tie: float) -> Ints:
    """Return the rank of every entity. The entities have the same order as in `ranks_of`.

    Parameters
    ----------
    name_rank : (N,) int64, position of each entity in the order of names, which breaks ties

    Returns
    -------
    rank : (N,) int64, 1 for the most preferred entity

    """
    n = len(name_rank)
    order = best_first(table.ahead.astype(np.float64), table.margin + table.rest, name_rank, tie * n)
    rank = np.empty(n, dtype=np.int64)
    for i in range(n):
        rank[order[i]] = i + 1
    return rank
