"""Choose the features of many patients by the allocation rule `frontier`, with compiled kernels.

The plain Python definition is the class `Belief` in `afa.scores.belief`, and a test compares the kernels with it. The
kernels require that each score is linear in each feature, as in bundles without probabilities, and that there are no
exclusive groups. If the background has no covariance matrix, the features are treated as independent.
"""

from __future__ import annotations

import math
from typing import NamedTuple

import numpy as np

from afa.engine.compile import INT, in_threads, kernel, laid_out
from afa.engine.ranks import name_places
from afa.engine.rules import NONE
from afa.model.arrays import Bools, Codes, Floats, Ints
from afa.model.mrf import RELATIVE_TIE
from afa.scores.belief import VALUE_ARRAY, Background, ScoreTable, variances_of


class FrontierPaths(NamedTuple):
    """Chosen features and expected scores of P patients under the rule `frontier`.

    Attributes
    ----------
    order : (P, M) int64, features in the chosen order
    fallback : (P, M) bool, True if no feature had a positive gain
    mean : (P, M + 1, N) float64, expected score of each entity after t observations, nats

    """

    order: Ints
    fallback: Bools
    mean: Floats


class _Scores(NamedTuple):
    """Arrays of `ScoreTable` and `Background` that the rule needs. They are the same for all patients.

    Attributes
    ----------
    constant : (N,) float64
    entity, feature, slope : (S,), entity of each slot, feature of the slot, and coefficient of the feature in the
        entity's score, nats
    owner, first, second, psi : (C,), entity, first slot, second slot and size (nats) of each coupling
    pair_features : (2, D) int64, features of each distinct pair of coupled features
    by_pair, pair_start : (C,) and (D + 1,) int64, couplings sorted by pair of features, and position of the first
        coupling of each pair
    middle : (M,) float64, mean of each feature
    joint : (M, M) float64, covariance of the features
    slots_of : (N + 1,) int64, first slot of each entity
    entity_rank, feature_rank : (N,), (M,) int64, positions in the order of names
    tie : float, largest difference between two scores that counts as rounding error, nats
    joined : False if `joint` is diagonal

    """

    constant: Floats
    entity: Ints
    feature: Ints
    slope: Floats
    owner: Ints
    first: Ints
    second: Ints
    psi: Floats
    pair_features: Ints
    by_pair: Ints
    pair_start: Ints
    middle: Floats
    joint: Floats
    slots_of: Ints
    entity_rank: Ints
    feature_rank: Ints
    tie: float
    joined: bool


def frontier_paths(
    table: ScoreTable, background: Background, values: Codes, k: int, threads: int | None = None
) -> FrontierPaths:
    """Observe all features of P patients in the order that the rule `frontier` chooses.

    If no gain is positive, the rule selects the feature whose value has the largest total effect on the scores. To
    compute the total effect of a feature, its value is increased by 1, the change of each entity's score is
    approximated to first order, and the absolute changes are summed. If features tie, the rule selects the feature with
    the first name in sorted order.

    Parameters
    ----------
    values : (P, M) int8, -1, 0 or +1

    """
    n_patients, m = values.shape
    p, covariance, (by_pair, pair_start) = background.probabilities, background.covariance, table.by_pair
    scores = _Scores(
        constant=laid_out(table.constant),
        entity=laid_out(table.entity),
        feature=laid_out(table.feature),
        slope=laid_out(table.terms[:, 2]),
        owner=laid_out(table.owner),
        first=laid_out(table.ends[0]),
        second=laid_out(table.ends[1]),
        psi=laid_out(table.psi),
        pair_features=laid_out(table.distinct_pairs[0]),
        by_pair=laid_out(by_pair),
        pair_start=laid_out(pair_start),
        middle=p @ VALUE_ARRAY,
        joint=laid_out(np.diag(variances_of(p)) if covariance is None else covariance),
        slots_of=laid_out(table.pointer),
        entity_rank=laid_out(name_places(table.entities)),
        feature_rank=laid_out(name_places(table.features)),
        tie=table.tie,
        joined=covariance is not None,
    )
    order, fallback = np.empty((n_patients, m), dtype=np.int64), np.empty((n_patients, m), dtype=np.bool_)
    mean = np.empty((n_patients, m + 1, len(table.entities)))
    in_threads(_follow_patient_range, n_patients, threads, scores, laid_out(values), k, order, fallback, mean)
    return FrontierPaths(order, fallback, mean)


class _Work(NamedTuple):
    """Working memory of one thread, for one patient at a time.

    The matrix `joint` contains only unobserved features: row i and column i belong to the feature `at[i]`.

    Attributes
    ----------
    middle : (M,) float64, mean of each feature
    joint : (M, M) float64, covariance of the unobserved features
    at : (M,) int64, feature of each row of `joint`
    place : (M,) int64, row of each feature in `joint`, or -1 if observed
    slope : (S,) float64, slopes c_vj, nats (`Belief.slope`)
    through : (N, M) float64, covariance of each score with each unobserved feature, to first order
    shared : (N, N) float64, covariance of the scores; only variances and the rows of the top k are complete
    weights : (k, N - k) float64, as in `Differences.weights`
    gain : (M,) float64, gain of each unobserved feature
    rounded, ranked : (N,), means in units of `tie`, and entities by decreasing mean

    """

    middle: Floats
    joint: Floats
    at: Ints
    place: Ints
    slope: Floats
    through: Floats
    shared: Floats
    weights: Floats
    gain: Floats
    rounded: Floats
    ranked: Ints


@kernel(entrance=True)
def _follow_patient_range(
    scores: _Scores,
    values: Codes,
    k: int,
    order: Ints,
    fallback: Bools,
    mean: Floats,
    first: int,
    last: int,
) -> None:
    """Write the chosen features and the expected scores of the patients with the indices `first` to `last - 1`."""
    n, m = len(scores.constant), len(scores.middle)
    work = _Work(
        np.empty(m),
        np.empty((m, m)),
        np.empty(m, dtype=np.int64),
        np.empty(m, dtype=np.int64),
        np.empty(len(scores.slope)),
        np.empty((n, m)),
        np.empty((n, n)),
        np.empty((k, n - k)),
        np.empty(m),
        np.empty(n),
        np.empty(n, dtype=np.int64),
    )
    for patient in range(first, last):
        _follow_patient(scores, work, k, values[patient], order[patient], fallback[patient], mean[patient])


@kernel(borrows=True)
def _follow_patient(
    scores: _Scores,
    work: _Work,
    k: int,
    values: Codes,
    order: Ints,
    fallback: Bools,
    mean: Floats,
) -> None:
    """Write the chosen features and the expected scores of one patient."""
    m = len(order)
    for j in range(m):
        work.middle[j], work.at[j], work.place[j] = scores.middle[j], j, j
        for i in range(m):
            work.joint[j, i] = scores.joint[j, i]
    for t in range(m):
        size = m - t
        _write_expected_scores(scores, work, size, mean[t])
        _rank_entities(scores, work, mean[t])
        _write_score_covariances(scores, work, k)
        _add_pair_covariances(scores, work)
        most = _write_gains(work, size, mean[t])
        fallback[t] = most <= 0.0
        if most <= 0.0:
            for s in range(len(work.slope)):
                i = work.place[scores.feature[s]]
                if i != NONE:
                    work.gain[i] += abs(work.slope[s])
                    most = max(most, work.gain[i])
        chosen = INT(NONE)
        for i in range(size):
            if work.gain[i] >= most * (1.0 - RELATIVE_TIE):
                rank = scores.feature_rank[work.at[i]]
                if chosen == NONE or rank < scores.feature_rank[chosen]:
                    chosen = work.at[i]
        order[t] = chosen
        _observe(scores, work, chosen, float(values[chosen]), size)
    _write_expected_scores(scores, work, INT(0), mean[m])


@kernel(borrows=True)
def _write_expected_scores(scores: _Scores, work: _Work, size: int, mean: Floats) -> None:
    """Write the slopes, the expected scores (`Belief.mean`), and the covariances of scores with unobserved features."""
    slope, middle, place = work.slope, work.middle, work.place
    for v in range(len(mean)):
        mean[v] = scores.constant[v]
        for i in range(size):
            work.through[v, i] = 0.0
    for s in range(len(slope)):
        slope[s] = scores.slope[s]
        mean[scores.entity[s]] += slope[s] * middle[scores.feature[s]]
    for c in range(len(scores.psi)):
        one, other, psi = scores.feature[scores.first[c]], scores.feature[scores.second[c]], scores.psi[c]
        slope[scores.first[c]] += psi * middle[other]
        slope[scores.second[c]] += psi * middle[one]
        mean[scores.owner[c]] += psi * middle[one] * middle[other]
    for s in range(len(slope)):
        i = place[scores.feature[s]]
        if i != NONE:
            through, joint, c = work.through[scores.entity[s]], work.joint[i], slope[s]
            if not scores.joined:
                through[i] = c * joint[i]
                continue
            for f in range(size):
                through[f] += c * joint[f]


@kernel(borrows=True)
def _rank_entities(scores: _Scores, work: _Work, mean: Floats) -> None:
    """Rank the entities by decreasing expected score (`Belief.order`). Entities with tied scores are ranked by name."""
    rounded, ranked = work.rounded, work.ranked
    for v in range(len(mean)):
        rounded[v], j = np.rint(mean[v] / scores.tie) if scores.tie > 0 else mean[v], v
        while j > 0:
            u = ranked[j - 1]
            if rounded[u] > rounded[v]:
                break
            if rounded[u] == rounded[v] and scores.entity_rank[u] < scores.entity_rank[v]:
                break
            ranked[j] = u
            j -= 1
        ranked[j] = v


@kernel(borrows=True)
def _write_score_covariances(scores: _Scores, work: _Work, k: int) -> None:
    """Write the variance of each score, and the covariances between the scores of the top-k entities and all scores.

    The function `_add_pair_covariances` adds the contributions of coupled pairs of features. The plain Python
    definition is `Belief.covariance`.
    """
    shared, through, place = work.shared, work.through, work.place
    n = len(shared)
    for v in range(n):
        for w in range(n):
            shared[v, w] = 0.0
    for s in range(len(work.slope)):
        f, v = place[scores.feature[s]], scores.entity[s]
        if f != NONE:
            shared[v, v] += work.slope[s] * through[v, f]
    for i in range(k):
        a = work.ranked[i]
        shared[a, a] = 0.0
        for s in range(scores.slots_of[a], scores.slots_of[a + 1]):
            f = place[scores.feature[s]]
            if f != NONE:
                for v in range(n):
                    shared[a, v] += work.slope[s] * through[v, f]
    for v in range(n):
        shared[v, v] = max(shared[v, v], 0.0)


@kernel(borrows=True)
def _add_pair_covariances(scores: _Scores, work: _Work) -> None:
    """Add the contributions of coupled pairs of features to the variances and covariances of the scores."""
    shared, place = work.shared, work.place
    for d in range(scores.pair_features.shape[1]):
        one, other = place[scores.pair_features[0, d]], place[scores.pair_features[1, d]]
        if NONE in (one, other):
            continue
        product = work.joint[one, one] * work.joint[other, other]
        for i in range(scores.pair_start[d], scores.pair_start[d + 1]):
            c = scores.by_pair[i]
            for j in range(scores.pair_start[d], scores.pair_start[d + 1]):
                w = scores.by_pair[j]
                shared[scores.owner[c], scores.owner[w]] += scores.psi[c] * scores.psi[w] * product


@kernel(borrows=True)
def _write_gains(work: _Work, size: int, mean: Floats) -> float:
    """Write the gain of each unobserved feature (`Belief.frontier`), and return the largest gain."""
    shared, weights, gain, ranked = work.shared, work.weights, work.gain, work.ranked
    (k, n_outside), most = weights.shape, -np.inf
    for i in range(k):
        for j in range(n_outside):
            a, b = ranked[i], ranked[k + j]
            both = shared[a, a] + shared[b, b]
            variance, lead = both - 2.0 * shared[a, b], mean[a] - mean[b]
            weights[i, j] = -np.inf
            if variance > RELATIVE_TIE * both:
                weights[i, j] = -0.5 * (lead * lead / variance + math.log(variance))
                most = max(most, weights[i, j])
    for f in range(size):
        gain[f] = 0.0
    if most == -np.inf:
        return 0.0
    for i in range(k):
        for j in range(n_outside):
            weight, own, other = math.exp(weights[i, j] - most), work.through[ranked[i]], work.through[ranked[k + j]]
            if weight > 0.0:
                for f in range(size):
                    step = own[f] - other[f]
                    gain[f] += weight * step * step
    largest = 0.0
    for f in range(size):
        gain[f] = gain[f] / work.joint[f, f] if work.joint[f, f] > 0.0 else 0.0
        largest = max(largest, gain[f])
    for f in range(size):
        if gain[f] <= RELATIVE_TIE * largest:
            gain[f] = 0.0
    return float(largest)


@kernel(borrows=True)
def _observe(scores: _Scores, work: _Work, feature: int, value: float, size: int) -> None:
    """Condition the features' means and covariances on one observed value, and remove the feature from `joint`."""
    middle, joint, at, place = work.middle, work.joint, work.at, work.place
    i, last = place[feature], size - 1
    own, step, column = joint[i, i], value - middle[feature], joint[i]
    if own > 0.0:
        for f in range(size):
            slope = column[f] / own
            middle[at[f]] += slope * step
            if scores.joined and f != i:
                row = joint[f]
                for other in range(size):
                    row[other] -= slope * column[other]
    middle[feature] = value
    for f in range(size):
        joint[i, f] = joint[last, f]
    for f in range(size):
        joint[f, i] = joint[f, last]
    at[i] = at[last]
    place[at[i]] = i
    place[feature] = NONE
