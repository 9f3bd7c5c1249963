"""Complete-linkage clusters, merged one step at a time. Tests compare the compiled clusters with these."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from afa.model.arrays import Floats
from afa.model.mrf import RELATIVE_TIE


def linked(distance: Floats, names: Sequence[str], n_clusters: int, smallest: int) -> set[frozenset[int]]:
    """`afa.planner.cluster.clusters` of entities with these distances (N, N), whatever the order of its answer."""
    by_name = sorted(range(len(names)), key=names.__getitem__)
    tree = Linkage(distance[np.ix_(by_name, by_name)])
    while len(tree.members) > n_clusters:
        tree.join(*tree.nearest_pair())
    while len(tree.members) > 1:
        size, first = min((len(part), first) for first, part in tree.members.items())
        if size >= smallest:
            break
        tree.join(first, tree.nearest_to(first))
    return {frozenset(by_name[i] for i in part) for part in tree.members.values()}


class Linkage:
    """Clusters under way: `members` by first member, `apart` their complete-linkage distances at the same places.

    Entities are places by ascending name, so that a smaller place is an earlier name. Only the rows and columns of
    first members are in use: those of entities that have joined an earlier one are infinite, as is the diagonal.
    """

    def __init__(self, distance: Floats) -> None:
        self.members = {i: [i] for i in range(len(distance))}
        self.apart = distance.astype(np.float64)
        self._equal = RELATIVE_TIE * float(distance.max(initial=0.0))
        np.fill_diagonal(self.apart, np.inf)

    def nearest_pair(self) -> tuple[int, int]:
        """The two clusters closest to each other; the first by name among equals."""
        closest = self._closest(self.apart.ravel())
        return divmod(closest, len(self.apart))

    def nearest_to(self, cluster: int) -> int:
        """The cluster closest to one; the first by name among equals."""
        return self._closest(self.apart[cluster])

    def join(self, one: int, other: int) -> None:
        """Make one cluster of two, named by the earlier: as far from a third as the farther of the two."""
        first, later = min(one, other), max(one, other)
        self.members[first] += self.members.pop(later)
        farther = np.maximum(self.apart[first], self.apart[later])
        self.apart[first], self.apart[:, first] = farther, farther
        self.apart[later], self.apart[:, later] = np.inf, np.inf
        self.apart[first, first] = np.inf

    def _closest(self, apart: Floats) -> int:
        return int(np.argmax(apart <= apart.min() + self._equal))
