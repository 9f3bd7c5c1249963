"""Compiled allocation rules: the weight that a rule gives each duel, the feature that follows, and clusters for them.

Every rule but `random` and `largest_unary` takes the feature of largest weighted gain; the readable definitions, one
file a rule, are `afa.planner.rules`, and a test holds these to them. What clusters are is said at
`afa.planner.cluster.clusters`.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from afa.engine.budgets import entity_budgets, number_of, terms_of_duel
from afa.engine.compile import INT, kernel
from afa.engine.layout import Indices, Packed, new_gains
from afa.engine.ranks import Ranks, ranks_of
from afa.engine.state import State
from afa.model.mrf import RELATIVE_TIE, Floats

COMPILED = ("random", "largest_unary", "greedy", "lucb", "clustered", "priority_clusters", "priority_all", "boundary")
"""Rules that the engine follows; the others are followed patient by patient, as `afa.planner.rules` has them."""
GIVEN, LARGEST_UNARY, GREEDY, LUCB, CLUSTERED, PRIORITY_CLUSTERS, PRIORITY_ALL, BOUNDARY = range(len(COMPILED))
"""The places of `COMPILED`. `random` is drawn outside the engine: to follow it is to follow a given order."""
C_MIN = 5
"""Smaller clusters are joined to the nearest."""
T_RE = 50
"""Observations between two clusterings."""
SLOPE = 0.1
NONE = -1


class Sight(NamedTuple):
    """What a rule sees of one patient in a round, as in `afa.planner.rules.View`; written in each round.

    Only what is needed is right. pairs : (Q, 2). name_rank : (N,) place of each entity in the order of names. k : size
    of the top set. scores : (N, N) by `linearity`. ranks : of all entities by them. lead, resolved : (Q,). inside :
    (N,) the top k. weights : (Q,) of the rule. wanted : (Q,) the duels whose gains are looked at.
    """

    pairs: NDArray[np.int64]
    name_rank: Indices
    k: int
    scores: Floats
    ranks: Ranks
    lead: Floats
    resolved: NDArray[np.bool_]
    inside: NDArray[np.bool_]
    weights: Floats
    wanted: NDArray[np.bool_]


@kernel()
def weigh(rule: int, packed: Packed, state: State, labels: Indices, sight: Sight) -> None:
    """Write the weight of each duel's gain under a rule, all 0 where none decides; labels (N,) are clusters."""
    weights = sight.weights
    weights[:] = 0.0
    rank = np.empty(len(sight.name_rank), dtype=np.int64)
    rank[sight.ranks.order] = np.arange(1, len(rank) + 1)
    if rule in (LUCB, CLUSTERED):
        duel = _between_champions(packed, sight, labels, rank) if rule == CLUSTERED else NONE
        if duel == NONE:
            duel = _most_contested(packed, state, sight, rank)
        if duel != NONE:
            weights[duel] = 1.0
    elif rule == PRIORITY_CLUSTERS:
        _weigh_registry(packed, sight, labels, rank)
    else:
        resolved = sight.resolved
        for p in range(len(weights)):
            if resolved[p] or (rule == BOUNDARY and not _straddles(sight, rank, p)):
                continue
            weights[p] = _influence(sight, rank, p) if rule == PRIORITY_ALL else 1.0


@kernel()
def _weigh_registry(packed: Packed, sight: Sight, labels: Indices, rank: Indices) -> None:
    """Weights of each cluster's best against its worst entity, resolved ones left out (eq:active_registry)."""
    for label in range(len(rank)):
        members = np.flatnonzero(labels == label)
        if len(members) > 1:
            order = ranks_of(sight.scores, members, sight.name_rank, packed.tie).order
            p = number_of(len(rank), order[0], order[-1])
            if not sight.resolved[p]:
                sight.weights[p] = _influence(sight, rank, p)


@kernel(inline=True)
def _straddles(sight: Sight, rank: Indices, p: int) -> bool:
    return bool((rank[sight.pairs[p, 0]] <= sight.k) != (rank[sight.pairs[p, 1]] <= sight.k))


@kernel(inline=True)
def _influence(sight: Sight, rank: Indices, p: int) -> float:
    """w_ab of one duel (eq:w_impl)."""
    a, b = sight.pairs[p, 0], sight.pairs[p, 1]
    away_a = sight.k - rank[a] if rank[a] <= sight.k else rank[a] - sight.k - 1
    away_b = sight.k - rank[b] if rank[b] <= sight.k else rank[b] - sight.k - 1
    return float(1.0 / (1.0 + min(away_a, away_b)) / (1.0 + SLOPE * abs(sight.scores[a, b])))


@kernel()
def _most_contested(packed: Packed, state: State, sight: Sight, rank: Indices) -> int:
    """LUCB's duel: of those open across the boundary, the one of largest upper(outside) - lower(inside)."""
    budgets = entity_budgets(packed, state)
    largest = -np.inf
    for p in range(len(sight.pairs)):
        if not sight.resolved[p] and _straddles(sight, rank, p):
            largest = max(largest, _overlap(state, sight, rank, budgets, p))
    chosen, best_inside, best_outside = NONE, 0, 0
    for p in range(len(sight.pairs)):
        if sight.resolved[p] or not _straddles(sight, rank, p):
            continue
        if _overlap(state, sight, rank, budgets, p) >= largest - 4 * packed.tie:
            inside, outside = _sides(sight, rank, p)
            here, there = sight.name_rank[inside], sight.name_rank[outside]
            if chosen == NONE or here < best_inside or (here == best_inside and there < best_outside):
                chosen, best_inside, best_outside = p, here, there
    return chosen


@kernel(inline=True)
def _overlap(state: State, sight: Sight, rank: Indices, budgets: Floats, p: int) -> float:
    inside, outside = _sides(sight, rank, p)
    upper = state.constant[outside] + budgets[outside]
    return float(upper - (state.constant[inside] - budgets[inside]))


@kernel(inline=True)
def _sides(sight: Sight, rank: Indices, p: int) -> tuple[int, int]:
    """The better and the worse ranked entity of one duel."""
    a, b = sight.pairs[p, 0], sight.pairs[p, 1]
    return (a, b) if rank[a] < rank[b] else (b, a)


@kernel()
def _between_champions(packed: Packed, sight: Sight, labels: Indices, rank: Indices) -> int:
    """Cluster-LUCB's duel, or `NONE` where a side has no champion or the duel is resolved."""
    n = len(rank)
    inside, outside = NONE, NONE
    for label in range(n):
        members = np.flatnonzero(labels == label)
        if len(members) == 0:
            continue
        champion = ranks_of(sight.scores, members, sight.name_rank, packed.tie).order[0]
        if rank[champion] <= sight.k:
            if inside == NONE or rank[champion] > rank[inside]:
                inside = champion
        elif outside == NONE or rank[champion] < rank[outside]:
            outside = champion
    if NONE in (inside, outside):
        return NONE
    duel = number_of(n, inside, outside)
    return NONE if sight.resolved[duel] else duel


@kernel(entrance=True)
def total_unary(packed: Packed, state: State) -> Floats:
    """(M,) absolute effective unaries summed over entities; of two class models half the range of their duel's term."""
    total = np.zeros(packed.n_features)
    if packed.stated and len(packed.prior) == 2:
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
def best_feature(worth: Floats, closed: NDArray[np.bool_], name_rank: Indices) -> int:
    """The open feature of largest positive worth, near-ties to the first name; `NONE` without one."""
    top = 0.0
    for feature in range(len(worth)):
        if not closed[feature]:
            top = max(top, worth[feature])
    chosen = NONE
    for feature in range(len(worth)):
        near = top > 0.0 and not closed[feature] and worth[feature] >= top * (1.0 - RELATIVE_TIE)
        if near and (chosen == NONE or name_rank[feature] < name_rank[chosen]):
            chosen = feature
    return chosen


@kernel()
def fallback_feature(packed: Packed, state: State, closed: NDArray[np.bool_], name_rank: Indices) -> int:
    """The open feature of largest total absolute effective unary, then the first by name; `NONE` if all are closed."""
    feature = best_feature(total_unary(packed, state), closed, name_rank)
    if feature == NONE:
        feature = best_feature(np.ones(packed.n_features), closed, name_rank)
    return feature


@kernel(entrance=True)
def cluster_labels(distance: Floats, by_name: Indices, n_clusters: int, smallest: int) -> Indices:
    """(N,) the cluster of each entity, named by its first member's place in the order of names.

    distance : (N, N), symmetric. by_name : (N,) entities in the order of their names.
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
        nearest[i] = _least_after(apart, i)
    while left > n_clusters:
        first, later = _nearest_pair(apart, nearest, exact, equal)
        _loosen(apart, nearest, exact, first, later)
        _join(apart, size, first, later)
        home[later] = first
        nearest[first], exact[first], nearest[later], exact[later] = _least_after(apart, first), True, np.inf, True
        left -= 1
    while left > 1:
        small = INT(-1)
        for i in range(n):
            if size[i] > 0 and (small < 0 or size[i] < size[small]):
                small = i
        if size[small] >= smallest:
            break
        near = _nearest_to(apart, small, equal)
        _join(apart, size, small, near)
        home[max(small, near)] = min(small, near)
        left -= 1
    labels = np.empty(n, dtype=np.int64)
    for i in range(n):  # an entity's home has the earlier name, and has its own home already
        home[i] = home[home[i]]
        labels[by_name[i]] = home[i]
    return labels


@kernel()
def _least_after(apart: Floats, i: int) -> float:
    """The distance of cluster i to the closest of those after it."""
    least = np.inf
    for j in range(i + 1, len(apart)):
        least = min(least, apart[i, j])
    return least


@kernel(inline=True)
def _nearest_pair(apart: Floats, nearest: Floats, exact: NDArray[np.bool_], equal: float) -> tuple[int, int]:
    """The closest two clusters, the first by name among equals.

    nearest : (N,) a lower bound of the distance of each cluster to those after it, `exact` where it is that distance.
    A bound is made exact only where it could decide.
    """
    closest = int(np.argmin(nearest))
    while not exact[closest]:
        nearest[closest], exact[closest] = _least_after(apart, closest), True
        closest = int(np.argmin(nearest))
    enough = nearest[closest] + equal
    for i in range(len(apart)):
        if nearest[i] <= enough:
            if not exact[i]:
                nearest[i], exact[i] = _least_after(apart, i), True
            for j in range(i + 1, len(apart)):
                if apart[i, j] <= enough:
                    return i, j
    return 0, 0


@kernel(inline=True)
def _nearest_to(apart: Floats, cluster: int, equal: float) -> int:
    """The cluster closest to one, the first by name among equals."""
    enough = np.min(apart[cluster]) + equal
    for j in range(len(apart)):
        if apart[cluster, j] <= enough:
            return j
    return cluster


@kernel(inline=True)
def _loosen(apart: Floats, nearest: Floats, exact: NDArray[np.bool_], first: int, later: int) -> None:
    """Before two clusters join: the bounds that rest on one of the two are no longer exact, for distances only grow."""
    for i in range(later):
        if apart[later, i] <= nearest[i] or (i < first and apart[first, i] <= nearest[i]):
            exact[i] = False


@kernel()
def _join(apart: Floats, size: Indices, one: int, other: int) -> None:
    """Make one cluster of two, under the earlier name: as far from a third as the farther of them."""
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
