"""Elimination orders of a conditioned model, component by component, and what it costs to follow them.

Eliminating a feature joins its remaining neighbours, its *separator*, in one table; the width of an order is the size
of its largest separator. Min-fill takes the feature that joins the fewest new pairs.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property

import numpy as np
import scipy.sparse as sp
from numpy.typing import NDArray

from afa.mrf import Evidence, Floats

BYTES = 8
SECONDS_PER_ENTRY = 2e-8


@dataclass(frozen=True)
class Estimate:
    """What exact inference will cost, known before any table is made.

    width : features in the largest separator of the elimination order. table_entries : entries of all tables that are
    visited. bytes : largest memory held at one time. operations : entries read or written, all passes together.
    enumerated : features of the largest component that is listed half against half instead of eliminated, 0 if none.
    """

    width: int
    table_entries: int
    bytes: int
    operations: int
    enumerated: int = 0

    @property
    def seconds(self) -> float:
        """Rough time on one core."""
        return float(self.operations * SECONDS_PER_ENTRY)


@dataclass(frozen=True)
class Component:
    """A connected part of a conditioned model, its n features numbered in elimination order.

    members : (n,) positions in `evidence.free`. terms : (n, 3) effective terms of -1, 0, +1, in nats, for couplings
    that are not centred. coupling : (n, n) dense.
    separators : for each feature the sorted later features that it shares a table with when it is eliminated.
    """

    members: NDArray[np.intp]
    terms: Floats
    coupling: Floats
    separators: tuple[tuple[int, ...], ...]

    @property
    def n(self) -> int:
        return len(self.members)

    @property
    def width(self) -> int:
        return max(map(len, self.separators))

    @cached_property
    def children(self) -> tuple[tuple[int, ...], ...]:
        """For each feature those whose message goes into its table: it comes first in their separator."""
        into: list[list[int]] = [[] for _ in self.separators]
        for v, separator in enumerate(self.separators):
            if separator:
                into[separator[0]].append(v)
        return tuple(map(tuple, into))

    def clique(self, v: int) -> tuple[int, ...]:
        """The axes of the table in which feature `v` is eliminated, `v` first."""
        return (v, *self.separators[v])


def components(evidence: Evidence) -> list[Component]:
    """The connected components of the free part of a conditioned model, by their first feature."""
    free = evidence.free
    coupling = evidence.mrf.couplings[free][:, free].tocsr()
    terms = evidence.uncentred()[1][free]
    found = []
    for part in _connected(_neighbour_masks(coupling)):
        order, separators = min_fill(part)
        place = {v: position for position, v in enumerate(order)}
        members = np.array(order, dtype=np.intp)
        # most components of a sparse model are single features, for which taking parts of it costs more than all else
        dense = coupling[members][:, members].toarray() if len(members) > 1 else np.zeros((1, 1))
        renumbered = tuple(tuple(sorted(place[u] for u in separator)) for separator in separators)
        found.append(Component(members, terms[members], dense, renumbered))
    return found


def min_fill(neighbours: dict[int, int]) -> tuple[list[int], list[list[int]]]:
    """Elimination order and separators of a graph given as neighbour bit masks.

    Ties between numbers of new pairs go to the fewest neighbours, then to the lowest index.
    """
    graph = dict(neighbours)
    score = {v: _fill(graph, v) for v in graph}
    order, separators = [], []
    while graph:
        v = min(score, key=lambda u: (score[u], u))
        around = graph.pop(v)
        del score[v]
        affected = around
        for u in _bits(around):
            graph[u] = (graph[u] | around) & ~(1 << u) & ~(1 << v)
            affected |= graph[u]
        for u in _bits(affected):
            score[u] = _fill(graph, u)
        order.append(v)
        separators.append(list(_bits(around)))
    return order, separators


def elimination_cost(component: Component, *, pairs: bool = False) -> Estimate:
    """Cost of eliminating one component; with `pairs`, of all its pair moments too."""
    conditional = [3 ** (len(separator) + 1) for separator in component.separators]
    entries = sum(conditional)
    held = entries + entries // 3 + 2 * max(conditional)
    operations = 3 * entries
    if pairs:
        below, carried, peak = [1] * component.n, 0, 0
        for v, children in enumerate(component.children):
            below[v] += sum(below[child] for child in children)
            carried += below[v] * 3 ** len(component.separators[v])
            peak = max(peak, carried)
            carried -= sum(below[child] * 3 ** len(component.separators[child]) for child in children)
            operations += 2 * below[v] * conditional[v]
        held += 2 * peak
    return Estimate(component.width, entries, BYTES * held, operations)


def _neighbour_masks(coupling: sp.csr_array) -> dict[int, int]:
    pointer, indices = coupling.indptr.tolist(), coupling.indices.tolist()
    return {v: sum(1 << u for u in indices[pointer[v] : pointer[v + 1]]) for v in range(coupling.shape[0])}


def _connected(graph: dict[int, int]) -> Iterator[dict[int, int]]:
    rest = dict(graph)
    while rest:
        reached = frontier = 1 << next(iter(rest))
        while frontier:
            joined = 0
            for v in _bits(frontier):
                joined |= graph[v]
            frontier = joined & ~reached
            reached |= joined
        yield {v: rest.pop(v) for v in _bits(reached)}


def _fill(graph: dict[int, int], v: int) -> tuple[int, int]:
    """How many pairs of neighbours of `v` are not joined yet, and how many neighbours it has."""
    around = graph[v]
    degree = around.bit_count()
    joined_twice = sum((graph[u] & around).bit_count() for u in _bits(around))
    return (degree * (degree - 1) - joined_twice) // 2, degree


def _bits(mask: int) -> Iterator[int]:
    while mask:
        lowest = mask & -mask
        yield lowest.bit_length() - 1
        mask ^= lowest
