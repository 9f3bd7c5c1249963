"""Compiled clusters of entities; the readable definition is `afa.cluster.clusters`."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from afa.engine.compile import kernel
from afa.engine.layout import Indices, Packed, Sharing
from afa.mrf import RELATIVE_TIE, Floats

C_MIN = 5
"""Smaller clusters are joined to the nearest."""

T_RE = 50
"""Observations between two clusterings."""

BLOCK = 16


@kernel(entrance=True)
def model_distances(packed: Packed, sharing: Sharing, values: Floats, observed: NDArray[np.bool_]) -> Floats:
    """(N, N) l1 distances between what is left of the models, as `afa.cluster.Parameters.distances`.

    values : (M,) what was observed, 0 elsewhere; observed : (M,). Takes time in proportion to N^2, with a small factor,
    and to the squared numbers of holders of each feature and of members of each link.
    """
    n, place, owner = len(packed.prior), sharing.place, sharing.owner
    first_slot, feature, first_holder = packed.first_slot, packed.feature, packed.first_holder
    field = _fields_left(packed, sharing, values, observed)
    apart = np.zeros((n, n))
    size = _add_links(packed, sharing, observed, apart)
    for u in range(n):
        row = apart[u]
        for slot in range(first_slot[u], first_slot[u + 1]):
            here = field[place[slot]]
            size[u] += abs(here)
            if here != 0.0:
                for h in range(place[slot] + 1, first_holder[feature[slot] + 1]):  # owners after u
                    row[owner[h]] -= _common(here, field[h])
    for u in range(n):
        for v in range(u + 1, n):
            apart[u, v] = max(size[u] + size[v] + apart[u, v], 0.0)
    for begin in range(0, n, BLOCK):  # some rows at once: column by column each step would be to another page of memory
        for v in range(begin + 1, n):
            for u in range(begin, min(begin + BLOCK, v)):
                apart[v, u] = apart[u, v]
    return apart


@kernel()
def _fields_left(packed: Packed, sharing: Sharing, values: Floats, observed: NDArray[np.bool_]) -> Floats:
    """(K,) effective unaries given the observations, in the order of `Packed.holder`; 0 at observed features."""
    feature, first_edge, other_slot, coupling = packed.feature, packed.first_edge, packed.other_slot, packed.coupling
    place, unary, field = sharing.place, packed.unary, np.zeros(len(sharing.place))
    for slot in range(len(place)):
        if not observed[feature[slot]]:
            total = unary[slot]
            for e in range(first_edge[slot], first_edge[slot + 1]):
                total += coupling[e] * values[feature[other_slot[e]]]
            field[place[slot]] = total
    return field


@kernel()
def _add_links(packed: Packed, sharing: Sharing, observed: NDArray[np.bool_], apart: Floats) -> Floats:
    """Add what couplings bring two entities u < v together to `apart`; returns their absolute sum by entity, (N,)."""
    first_link, partner, first_member = sharing.first_link, sharing.partner, sharing.first_member
    member, value, size = sharing.member, sharing.value, np.zeros(len(packed.prior))
    for f in range(packed.n_features):
        if observed[f]:
            continue
        for link in range(first_link[f], first_link[f + 1]):
            if observed[partner[link]]:
                continue
            for i in range(first_member[link], first_member[link + 1]):
                size[member[i]] += abs(value[i])
                for k in range(i + 1, first_member[link + 1]):
                    apart[member[i], member[k]] -= _common(value[i], value[k])
    return size


@kernel(inline=True)
def _common(one: float, other: float) -> float:
    """How much less than |one| + |other| the two are apart."""
    return (abs(one) + abs(other)) - abs(one - other)


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
        small = -1
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


@kernel()
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


@kernel()
def _nearest_to(apart: Floats, cluster: int, equal: float) -> int:
    """The cluster closest to one, the first by name among equals."""
    enough = np.min(apart[cluster]) + equal
    for j in range(len(apart)):
        if apart[cluster, j] <= enough:
            return j
    return cluster


@kernel()
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
