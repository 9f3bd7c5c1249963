"""Compiled clusters of entities; the readable definition is `afa.cluster.clusters` (spec A1)."""

from __future__ import annotations

import numpy as np

from afa.engine.compile import kernel
from afa.engine.packed import Indices
from afa.mrf import Floats

RELATIVE_TIE = 1e-9


@kernel()
def cluster_labels(distance: Floats, by_name: Indices, n_clusters: int, smallest: int) -> Indices:
    """(N,) the cluster of each entity, named by its first member's place in the order of names.

    distance : (N, N), symmetric. by_name : (N,) entities in the order of their names.
    """
    n = len(by_name)
    apart = np.full((n, n), np.inf)
    equal = 0.0
    for i in range(n):
        for j in range(n):
            if i != j:
                apart[i, j] = distance[by_name[i], by_name[j]]
                equal = max(equal, RELATIVE_TIE * apart[i, j])
    home, size, left = np.arange(n), np.ones(n, dtype=np.int64), n
    while left > n_clusters:
        first, later = _nearest(apart, 0, n, equal)
        _join(apart, home, size, first, later)
        left -= 1
    while left > 1:
        small = -1
        for i in range(n):
            if size[i] > 0 and (small < 0 or size[i] < size[small]):
                small = i
        if size[small] >= smallest:
            break
        _, nearest = _nearest(apart, small, small + 1, equal)
        _join(apart, home, size, small, nearest)
        left -= 1
    labels = np.empty(n, dtype=np.int64)
    for i in range(n):
        labels[by_name[i]] = home[i]
    return labels


@kernel()
def _nearest(apart: Floats, begin: int, end: int, equal: float) -> tuple[int, int]:
    """The closest two clusters with one of them in places begin to end - 1, the first by name among equals."""
    n = len(apart)
    least = np.inf
    for i in range(begin, end):
        for j in range(n):
            least = min(least, apart[i, j])
    for i in range(begin, end):
        for j in range(n):
            if apart[i, j] <= least + equal:
                return i, j
    return begin, begin


@kernel()
def _join(apart: Floats, home: Indices, size: Indices, one: int, other: int) -> None:
    """Make one cluster of two, under the earlier name: as far from a third as the farther of them."""
    first, later = min(one, other), max(one, other)
    for i in range(len(home)):
        if home[i] == later:
            home[i] = first
        farther = max(apart[first, i], apart[later, i])
        apart[first, i] = apart[i, first] = farther
    apart[first, first] = np.inf
    for i in range(len(home)):
        apart[later, i] = apart[i, later] = np.inf
    size[first] += size[later]
    size[later] = 0
