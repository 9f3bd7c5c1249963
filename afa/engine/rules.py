"""Define compiled kernels for allocation rules: weights of entity pairs, choice of a feature, and clusters of entities.

The rules `random`, `largest_unary` and `information` use no duels (entity pairs). Every other rule gives each duel a
weight, and chooses the feature with the largest weighted sum of gains over the duels. The plain Python definitions are
in `afa.planner.rules`, with one file for each rule, and in `afa.planner.cluster.clusters`. A test compares the kernels
of this module with `afa.planner.rules`.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from afa.engine.budgets import entity_budgets, moments_at, number_of, terms_of_duel
from afa.engine.compile import INT, kernel
from afa.engine.gains import log_evidence, probability, surprise
from afa.engine.layout import Packed, new_gains
from afa.engine.ranks import Ranks, ranks_of
from afa.engine.state import State
from afa.model.arrays import Bools, Floats, Ints
from afa.model.mrf import RELATIVE_TIE
from afa.model.rule_names import IN_THE_GRID
from afa.scores.gain import ZERO_GAIN

COMPILED = (*IN_THE_GRID, "information")
"""Rules with a compiled kernel. A rule can have a kernel without being in the grid. All other rules of
`afa.planner.rules` run in Python, one patient at a time.
"""
GIVEN_ORDER = COMPILED.index("random")
"""Index of `random` in `COMPILED`: the caller samples the orders and passes them to the engine."""
LARGEST_UNARY, INFORMATION = COMPILED.index("largest_unary"), COMPILED.index("information")
"""Indices of the rules that use no duels."""
LUCB, CLUSTERED, PRIORITY_CLUSTERS = (COMPILED.index(name) for name in ("lucb", "clustered", "priority_clusters"))
"""Indices of the rules that give a weight to one duel, or to one duel of each cluster."""
GREEDY, PRIORITY_ALL, BOUNDARY = (COMPILED.index(name) for name in ("greedy", "priority_all", "boundary"))
"""Indices of the rules that give a weight to each duel by a formula."""
SMALLEST_CLUSTER = 5
"""Smallest number of entities in a cluster. A smaller cluster is merged with the nearest cluster."""
CLUSTER_EVERY = 50
"""Number of observations after which the clusters are formed again."""
SLOPE = 0.1
NONE = -1


class RoundView(NamedTuple):
    """State of one patient at one step, as a rule reads it (the compiled form of `afa.planner.rules.View`).

    Kernels overwrite this view at each step, but update only the fields that the rule reads.

    Attributes
    ----------
    pairs : (Q, 2) int64, entities a < b of each duel
    name_rank : (N,) int64, position of each entity in the order of names
    k : size of the top set
    scores : (N, N) float64, scores of all entity pairs by `linearity`, nats
    ranks : ranks of all entities by `linearity`
    lead : (Q,) float64, part of D from the observed features, nats
    resolved : (Q,) bool, True if no further observation can change the winner of the duel
    inside : (N,) bool, True for entities in the top k
    weights : (Q,) float64, weight of each duel's gain under the rule
    wanted : (Q,) bool, True for duels whose gains must be up to date

    """

    pairs: Ints
    name_rank: Ints
    k: int
    scores: Floats
    ranks: Ranks
    lead: Floats
    resolved: Bools
    inside: Bools
    weights: Floats
    wanted: Bools


@kernel()
def weigh(rule: int, packed: Packed, state: State, labels: Ints, view: RoundView) -> None:
    """Write the weight that a rule gives each duel (entity pair). Resolved duels have weight 0.

    Parameters
    ----------
    labels : (N,) int64, cluster of each entity

    """
    weights = view.weights
    weights[:] = 0.0
    rank = np.empty(len(view.name_rank), dtype=np.int64)
    rank[view.ranks.order] = np.arange(1, len(rank) + 1)
    if rule in (LUCB, CLUSTERED):
        duel = _cluster_lucb_pair(packed, view, labels, rank) if rule == CLUSTERED else NONE
        if duel == NONE:
            duel = _lucb_pair(packed, state, view, rank)
        if duel != NONE:
            weights[duel] = 1.0
    elif rule == PRIORITY_CLUSTERS:
        _weigh_registry(packed, view, labels, rank)
    elif rule in (GREEDY, PRIORITY_ALL, BOUNDARY):
        resolved = view.resolved
        for p in range(len(weights)):
            if resolved[p] or (rule == BOUNDARY and not _is_boundary_pair(view, rank, p)):
                continue
            weights[p] = _priority_weight(view, rank, p) if rule == PRIORITY_ALL else 1.0
    else:
        raise ValueError("a rule of COMPILED without weights")


@kernel()
def _weigh_registry(packed: Packed, view: RoundView, labels: Ints, rank: Ints) -> None:
    """Choose one entity pair in each cluster, and write the weight of this pair (eq:active_registry).

    The pair compares the first-ranked entity of the cluster with the last-ranked entity. If no further observation can
    change the winner of an entity pair, the weight of the pair is 0.
    """
    for label in range(len(rank)):
        members = np.flatnonzero(labels == label)
        if len(members) > 1:
            order = ranks_of(view.scores, members, view.name_rank, packed.tie).order
            p = number_of(len(rank), order[0], order[-1])
            if not view.resolved[p]:
                view.weights[p] = _priority_weight(view, rank, p)


@kernel(inline=True)
def _is_boundary_pair(view: RoundView, rank: Ints, p: int) -> bool:
    return bool((rank[view.pairs[p, 0]] <= view.k) != (rank[view.pairs[p, 1]] <= view.k))


@kernel(inline=True)
def _priority_weight(view: RoundView, rank: Ints, p: int) -> float:
    """Return the weight w_ab of the entity pair with index p (eq:w_impl)."""
    a, b = view.pairs[p, 0], view.pairs[p, 1]
    away_a = view.k - rank[a] if rank[a] <= view.k else rank[a] - view.k - 1
    away_b = view.k - rank[b] if rank[b] <= view.k else rank[b] - view.k - 1
    return float(1.0 / (1.0 + min(away_a, away_b)) / (1.0 + SLOPE * abs(view.scores[a, b])))


@kernel()
def _lucb_pair(packed: Packed, state: State, view: RoundView, rank: Ints) -> int:
    """Return the index of the entity pair that the rule LUCB selects, or `NONE` if there is no unresolved pair.

    LUCB considers the unresolved pairs of one entity inside the top k and one entity outside the top k. For each pair,
    the overlap is the upper bound on the score of the entity outside the top k minus the lower bound on the score of
    the entity inside the top k. LUCB selects the two entities whose intervals overlap most.
    """
    budgets = entity_budgets(packed, state)
    largest = -np.inf
    for p in range(len(view.pairs)):
        if not view.resolved[p] and _is_boundary_pair(view, rank, p):
            largest = max(largest, _interval_overlap(state, view, rank, budgets, p))
    chosen, best_inside, best_outside = NONE, 0, 0
    for p in range(len(view.pairs)):
        if view.resolved[p] or not _is_boundary_pair(view, rank, p):
            continue
        if _interval_overlap(state, view, rank, budgets, p) >= largest - 4 * packed.tie:
            inside, outside = _pair_by_rank(view, rank, p)
            here, there = view.name_rank[inside], view.name_rank[outside]
            if chosen == NONE or here < best_inside or (here == best_inside and there < best_outside):
                chosen, best_inside, best_outside = p, here, there
    return chosen


@kernel(inline=True)
def _interval_overlap(state: State, view: RoundView, rank: Ints, budgets: Floats, p: int) -> float:
    inside, outside = _pair_by_rank(view, rank, p)
    upper = state.constant[outside] + budgets[outside]
    return float(upper - (state.constant[inside] - budgets[inside]))


@kernel(inline=True)
def _pair_by_rank(view: RoundView, rank: Ints, p: int) -> tuple[int, int]:
    """Return the two entities of the pair with index p, better ranked entity first."""
    a, b = view.pairs[p, 0], view.pairs[p, 1]
    return (a, b) if rank[a] < rank[b] else (b, a)


@kernel()
def _cluster_lucb_pair(packed: Packed, view: RoundView, labels: Ints, rank: Ints) -> int:
    """Return the index of the entity pair that the rule Cluster-LUCB selects, or `NONE`.

    The rule considers only the best ranked entity of each cluster. Among these entities, the rule selects the lowest
    ranked entity inside the top k and the highest ranked entity outside the top k. The result is `NONE` if the best
    ranked entities of all clusters are inside the top k, or if all of them are outside. The result is also `NONE` if no
    further observation can change the winner of the selected pair.
    """
    n = len(rank)
    inside, outside = NONE, NONE
    for label in range(n):
        members = np.flatnonzero(labels == label)
        if len(members) == 0:
            continue
        champion = ranks_of(view.scores, members, view.name_rank, packed.tie).order[0]
        if rank[champion] <= view.k:
            if inside == NONE or rank[champion] > rank[inside]:
                inside = champion
        elif outside == NONE or rank[champion] < rank[outside]:
            outside = champion
    if NONE in (inside, outside):
        return NONE
    duel = number_of(n, inside, outside)
    return NONE if view.resolved[duel] else duel


@kernel(entrance=True)
def total_unary(packed: Packed, state: State) -> Floats:
    """Return for each feature the sum over the entities of its absolute effective unary potentials.

    For a binary task of two models with class-conditional probabilities, return instead half the range of each
    feature's term in the log-odds D.

    Returns
    -------
    total : (M,) float64, nats, 0 for observed features

    """
    total = np.zeros(packed.n_features)
    if packed.class_conditional and len(packed.prior) == 2:
        union = new_gains(packed, np.array([[0, 1]]))
        for i in range(len(union.feature)):
            feature = union.feature[i]
            if not state.observed[feature]:
                low, middle, high = terms_of_duel(packed, state, union.slot_a[i], union.slot_b[i])
                total[feature] = 0.5 * (max(low, middle, high) - min(low, middle, high))
        return total
    feature, field = packed.feature, state.field
    for slot in range(len(feature)):
        total[feature[slot]] += abs(field[slot])
    return total


@kernel()
def information_of(packed: Packed, state: State, empty: Floats) -> Floats:
    """Return how much information the value of each feature gives about which entity is present.

    The result is the mutual information, under the assumption that the patient has exactly one of the N entities.

    The plain Python definition is `afa.scores.gain.information` (docs/decisions.md, F15).

    Parameters
    ----------
    empty : (N,) float64, ELBO of each entity without observations, nats

    Returns
    -------
    information : (M,) float64, nats, 0 for observed features

    """
    n, n_unobserved = len(packed.prior), packed.n_features - int(np.sum(state.observed))
    posterior = np.empty(n)
    for entity in range(n):
        posterior[entity] = log_evidence(packed, state, empty, entity, n_unobserved)
    posterior[:] = np.exp(posterior - posterior.max())
    posterior /= posterior.sum()
    total, slots, predictive = np.zeros(packed.n_features), np.empty(n, dtype=np.int64), np.empty((n, 3))
    for feature in range(packed.n_features):
        first, last = packed.first_feature_slot[feature], packed.first_feature_slot[feature + 1]
        if state.observed[feature] or first == last:
            continue
        slots[:] = -1
        for h in range(first, last):
            slots[packed.owner[packed.feature_slots[h]]] = packed.feature_slots[h]
        for entity in range(n):
            m, q = moments_at(packed, state, slots[entity], packed.feature_slots[first])
            for x in range(3):
                predictive[entity, x] = probability(m, q, x)
        for x in range(3):
            mixed = 0.0
            for entity in range(n):
                mixed += posterior[entity] * predictive[entity, x]
            for entity in range(n):
                total[feature] += posterior[entity] * surprise(predictive[entity, x], mixed)
        if total[feature] < ZERO_GAIN:
            total[feature] = 0.0
    return total


@kernel()
def best_feature(gain: Floats, closed: Bools, name_rank: Ints) -> int:
    """Return the unobserved feature with the largest positive gain, or `NONE` if no gain is positive.

    If several gains equal the largest gain up to rounding errors, return the feature with the first name in sorted
    order.

    Parameters
    ----------
    gain : (M,) float64
    closed : (M,) bool, True for features that may not be chosen
    name_rank : (M,) int64, position of each feature in the order of names

    """
    top = 0.0
    for feature in range(len(gain)):
        if not closed[feature]:
            top = max(top, gain[feature])
    chosen = NONE
    for feature in range(len(gain)):
        near = top > 0.0 and not closed[feature] and gain[feature] >= top * (1.0 - RELATIVE_TIE)
        if near and (chosen == NONE or name_rank[feature] < name_rank[chosen]):
            chosen = feature
    return chosen


@kernel()
def fallback_feature(packed: Packed, state: State, closed: Bools, name_rank: Ints) -> int:
    """Return the unobserved feature with the largest absolute effective unary potentials, summed over the entities.

    If this sum is 0 for all features, return the unobserved feature with the first name in sorted order. If all
    features are observed, return `NONE`.

    Parameters
    ----------
    closed : (M,) bool, True for features that may not be chosen
    name_rank : (M,) int64, position of each feature in the order of names

    """
    feature = best_feature(total_unary(packed, state), closed, name_rank)
    if feature == NONE:
        feature = best_feature(np.ones(packed.n_features), closed, name_rank)
    return feature


@kernel(entrance=True)
def cluster_labels(distance: Floats, by_name: Ints, n_clusters: int, smallest: int) -> Ints:
    """Return the label of each entity's cluster: the position of the cluster's first entity in the order of names.

    Parameters
    ----------
    distance : (N, N) float64, symmetric
    by_name : (N,) int64, entities in the order of their names
    n_clusters : number of clusters before the clusters below `smallest` are merged
    smallest : smallest number of entities in a cluster

    Returns
    -------
    labels : (N,) int64

    """
    n = len(by_name)
    apart = np.full((n, n), np.inf)
    largest = 0.0
    for i in range(n):
        row = distance[by_name[i]]
        for j in range(n):
            if i != j:
                apart[i, j] = row[by_name[j]]
                largest = max(largest, apart[i, j])
    equal, left, home = RELATIVE_TIE * largest, n, np.arange(n)
    size, nearest, exact = np.ones(n, dtype=np.int64), np.empty(n), np.ones(n, dtype=np.bool_)
    for i in range(n):
        nearest[i] = _smallest_later_distance(apart, i)
    while left > n_clusters:
        first, later = _nearest_pair(apart, nearest, exact, equal)
        _mark_inexact_distances(apart, nearest, exact, first, later)
        _merge_clusters(apart, size, first, later)
        home[later] = first
        nearest[first], exact[first], nearest[later], exact[later] = (
            _smallest_later_distance(apart, first),
            True,
            np.inf,
            True,
        )
        left -= 1
    while left > 1:
        small = INT(-1)
        for i in range(n):
            if size[i] > 0 and (small < 0 or size[i] < size[small]):
                small = i
        if size[small] >= smallest:
            break
        near = _nearest_to(apart, small, equal)
        _merge_clusters(apart, size, small, near)
        home[max(small, near)] = min(small, near)
        left -= 1
    labels = np.empty(n, dtype=np.int64)
    for i in range(n):  # home[i] <= i, and therefore home[home[i]] is already final
        home[i] = home[home[i]]
        labels[by_name[i]] = home[i]
    return labels


@kernel()
def _smallest_later_distance(apart: Floats, i: int) -> float:
    """Return the smallest distance between cluster i and a cluster with a larger index."""
    least = np.inf
    for j in range(i + 1, len(apart)):
        least = min(least, apart[i, j])
    return least


@kernel(inline=True)
def _nearest_pair(apart: Floats, nearest: Floats, exact: Bools, equal: float) -> tuple[int, int]:
    """Return the two closest clusters.

    If several pairs of clusters are equally close, return the pair with the first names in sorted order.

    A lower bound in `nearest` is replaced by the exact distance only if the exact distance could change the result.

    Parameters
    ----------
    nearest : (N,) float64, lower bound on the distance from each cluster to the closest cluster with a larger index
    exact : (N,) bool, True if the bound is the exact distance

    """
    closest = int(np.argmin(nearest))
    while not exact[closest]:
        nearest[closest], exact[closest] = _smallest_later_distance(apart, closest), True
        closest = int(np.argmin(nearest))
    enough = nearest[closest] + equal
    for i in range(len(apart)):
        if nearest[i] <= enough:
            if not exact[i]:
                nearest[i], exact[i] = _smallest_later_distance(apart, i), True
            for j in range(i + 1, len(apart)):
                if apart[i, j] <= enough:
                    return i, j
    return 0, 0


@kernel(inline=True)
def _nearest_to(apart: Floats, cluster: int, equal: float) -> int:
    """Return the cluster that is closest to the given cluster.

    If several clusters are equally close, return the first of them in the order of names.
    """
    enough = np.min(apart[cluster]) + equal
    for j in range(len(apart)):
        if apart[cluster, j] <= enough:
            return j
    return cluster


@kernel(inline=True)
def _mark_inexact_distances(apart: Floats, nearest: Floats, exact: Bools, first: int, later: int) -> None:
    """Set `exact` to False for each distance that can increase when the clusters `first` and `later` are merged."""
    for i in range(later):
        if apart[later, i] <= nearest[i] or (i < first and apart[first, i] <= nearest[i]):
            exact[i] = False


@kernel()
def _merge_clusters(apart: Floats, size: Ints, one: int, other: int) -> None:
    """Merge two clusters. The new cluster has the smaller of the two indices.

    The distance from the new cluster to another cluster is the larger of the two previous distances.
    """
    first, later = min(one, other), max(one, other)
    size[first] += size[later]
    size[later] = 0
    for i in range(len(size)):
        if size[i] > 0 and i != first:
            farther = max(apart[first, i], apart[later, i])
            apart[first, i] = apart[i, first] = farther
            apart[i, later] = np.inf
        apart[later, i] = np.inf
    apart[first, later] = np.inf
