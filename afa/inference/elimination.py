"""Run exact inference by variable elimination, separately for each connected component of a model.

Features are eliminated (summed out) one after another. The *separator* of a feature is the set of its neighbours that
are not yet eliminated, and elimination of the feature connects all pairs in its separator. The width of an elimination
order is the size of its largest separator. In the min-fill order, the next feature is the feature whose elimination
connects the fewest pairs that were not connected before.

The *clique* of a feature v consists of v and its separator. The forward pass sums each feature out of the table of
log-weights of its clique, and stores the table p(x_v | separator of v). The backward pass computes the joint
probabilities of each separator from these tables. A table has one axis of length 3 (values -1, 0, +1) for each feature
of the clique, in elimination order.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property

import numpy as np
import scipy.sparse as sp
from numpy.typing import NDArray

from afa.model.arrays import Codes, Floats
from afa.model.mrf import VALUES, Evidence

BYTES = 8
SECONDS_PER_ENTRY = 2e-8
TERNARY = np.array(VALUES, dtype=np.float64)


@dataclass(frozen=True)
class Estimate:
    """Cost of exact inference, computed before any table is built.

    Attributes
    ----------
    width : number of features in the largest separator
    table_entries : total number of entries in all tables
    bytes : largest memory of tables in use at one time
    operations : number of table entries that are read or written in all passes

    """

    width: int
    table_entries: int
    bytes: int
    operations: int

    @property
    def seconds(self) -> float:
        """Return the approximate computing time on one core, seconds."""
        return float(self.operations * SECONDS_PER_ENTRY)


@dataclass(frozen=True)
class Component:
    """A connected component of the unobserved features of a model. The n features are numbered in elimination order.

    Attributes
    ----------
    members : (n,) int, positions in `evidence.free`
    terms : (n, 3) float64, effective unary terms of the values -1, 0, +1, nats; the energy of a coupling is the
        coupling times the product of the two values
    coupling : (n, n) float64, nats
    separators : for each feature v, the sorted features of its separator, which are eliminated later

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
        """Return for each feature v the features whose messages enter the table of v.

        The message of a feature u enters the table of v if v is the first feature in the separator of u.
        """
        into: list[list[int]] = [[] for _ in self.separators]
        for v, separator in enumerate(self.separators):
            if separator:
                into[separator[0]].append(v)
        return tuple(map(tuple, into))

    def clique(self, v: int) -> tuple[int, ...]:
        """Return the features of the clique of `v`, in the order of the axes of its table. `v` is the first feature."""
        return (v, *self.separators[v])


def components(evidence: Evidence) -> list[Component]:
    """Return the connected components of the unobserved features, sorted by the first feature of each component."""
    free = evidence.free
    coupling = evidence.mrf.couplings[free][:, free].tocsr()
    terms = evidence.uncentred()[1][free]
    found = []
    for part in _connected_subgraphs(_neighbour_masks(coupling)):
        order, separators = min_fill(part)
        place = {v: position for position, v in enumerate(order)}
        members = np.array(order, dtype=np.intp)
        # skip the slow slicing for components of one feature, which are frequent
        dense = coupling[members][:, members].toarray() if len(members) > 1 else np.zeros((1, 1))
        renumbered = tuple(tuple(sorted(place[u] for u in separator)) for separator in separators)
        found.append(Component(members, terms[members], dense, renumbered))
    return found


def min_fill(neighbours: dict[int, int]) -> tuple[list[int], list[list[int]]]:
    """Return the min-fill elimination order of a graph, and the separator of each feature.

    Each step eliminates the feature whose elimination adds the fewest edges to the graph. If several features add
    equally few edges, the feature with the fewest neighbours is eliminated first, and among those the feature with the
    lowest index.

    The argument `neighbours` maps each feature to a bit mask of its neighbours.
    """
    graph = dict(neighbours)
    score = {v: _fill_and_degree(graph, v) for v in graph}
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
            score[u] = _fill_and_degree(graph, u)
        order.append(v)
        separators.append(list(_bits(around)))
    return order, separators


def elimination_cost(component: Component, *, pairs: bool = False) -> Estimate:
    """Return the cost of elimination for one component. If `pairs` is True, the cost includes all pair moments."""
    conditional = [3 ** (len(separator) + 1) for separator in component.separators]
    entries = sum(conditional)
    held = entries + entries // 3 + 2 * max(conditional)
    operations = 3 * entries
    if pairs:
        below, passed_up, peak = [1] * component.n, 0, 0
        for v, children in enumerate(component.children):
            below[v] += sum(below[child] for child in children)
            passed_up += below[v] * 3 ** len(component.separators[v])
            peak = max(peak, passed_up)
            passed_up -= sum(below[child] * 3 ** len(component.separators[child]) for child in children)
            operations += 2 * below[v] * conditional[v]
        held += 2 * peak
    return Estimate(component.width, entries, BYTES * held, operations)


def _neighbour_masks(coupling: sp.csr_array) -> dict[int, int]:
    pointer, indices = coupling.indptr.tolist(), coupling.indices.tolist()
    return {v: sum(1 << u for u in indices[pointer[v] : pointer[v + 1]]) for v in range(coupling.shape[0])}


def _connected_subgraphs(graph: dict[int, int]) -> Iterator[dict[int, int]]:
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


def _fill_and_degree(graph: dict[int, int], v: int) -> tuple[int, int]:
    """Return the number of pairs of neighbours of `v` that are not connected, and the number of neighbours of `v`."""
    around = graph[v]
    degree = around.bit_count()
    joined_twice = sum((graph[u] & around).bit_count() for u in _bits(around))
    return (degree * (degree - 1) - joined_twice) // 2, degree


def _bits(mask: int) -> Iterator[int]:
    while mask:
        lowest = mask & -mask
        yield lowest.bit_length() - 1
        mask ^= lowest


@dataclass(frozen=True)
class Eliminated:
    """Distribution of the features of one component, as a product of tables p(x_v | separator of v).

    Attributes
    ----------
    tables : one table p(x_v | separator of v) for each feature
    log_partition : nats (eq:clamped-logZ)

    """

    component: Component
    tables: list[Floats]
    log_partition: float

    @classmethod
    def of(cls, component: Component) -> Eliminated:
        """Sum out all features of a component in elimination order, and return the tables and the log-partition."""
        tables: list[Floats] = []
        messages: dict[int, Floats] = {}
        for v in range(component.n):
            table = _log_table(component, v, messages)
            top = table.max(axis=0)
            table -= top
            np.exp(table, out=table)
            total = table[0] + table[1] + table[2]
            table /= total
            tables.append(table)
            messages[v] = np.log(total, out=total if total.ndim else None)
            messages[v] += top
        return cls(component, tables, float(messages[component.n - 1]))

    def moments(self) -> tuple[Floats, Floats]:
        """Return E[x] and E[x^2] of each feature.

        Returns
        -------
        first, second : (n,) float64

        """
        separators = self._separator_probabilities()
        single = np.empty((self.component.n, 3))
        for v, (table, separator) in enumerate(zip(self.tables, separators, strict=True)):
            single[v] = (table * separator).reshape(3, -1).sum(axis=1)
        return single[:, 2] - single[:, 0], single[:, 2] + single[:, 0]

    def pair_moments(self) -> Floats:
        """Return E[x_j x_l] for all pairs of features. The diagonal contains E[x_j^2].

        The cliques form a tree, and each clique passes E[x_j | separator] of all features j below it to the next clique
        on the path to the root of the tree. The expectation E[x_j x_l] is computed in the first clique that is on both
        of two paths: the path from the clique of j to the root, and the path from the clique of l to the root.

        Returns
        -------
        pairs : (n, n) float64

        """
        component, separators = self.component, self._separator_probabilities()
        pairs = np.diag(self.moments()[1])
        passed_up: dict[int, tuple[list[int], Floats]] = {}
        for v, (table, separator) in enumerate(zip(self.tables, separators, strict=True)):
            clique, branches = component.clique(v), [(c, *passed_up.pop(c)) for c in component.children[v]]
            below = [j for _, members, _ in branches for j in members]
            upward = np.empty((len(below) + 1, *separator.shape))
            row = 0
            for first, (child, members, means) in enumerate(branches):
                for j, mean in zip(members, means, strict=True):
                    weighted = table * _expand(mean, component.separators[child], clique)
                    weighted.sum(axis=0, out=upward[row, ...])
                    row += 1
                    weighted *= separator
                    pairs[j, v] = weighted[2].sum() - weighted[0].sum()
                    for other, others, their_means in branches[first + 1 :]:
                        shared = their_means * _project(weighted, clique, component.separators[other])
                        pairs[j, others] = shared.reshape(len(others), -1).sum(axis=1)
            np.subtract(table[2], table[0], out=upward[row, ...])
            passed_up[v] = ([*below, v], upward)
        lower = np.tril(pairs, -1) + np.triu(pairs, 1).T
        return lower + lower.T + np.diag(pairs.diagonal())

    def draw(self, uniforms: Floats) -> Codes:
        """Return independent samples of the component's features.

        Parameters
        ----------
        uniforms : (n_samples, n) float64 in [0, 1)

        Returns
        -------
        values : (n_samples, n) int8, -1, 0 or +1

        """
        values = np.zeros(uniforms.shape, dtype=np.int8)
        for v in reversed(range(self.component.n)):
            at = _flat_index(values, self.component.separators[v])
            below, middle, _ = self.tables[v].reshape(3, -1)[:, at]
            values[:, v] = (uniforms[:, v] >= below).astype(np.int8) + (uniforms[:, v] >= below + middle) - 1
        return values

    def _separator_probabilities(self) -> list[Floats]:
        """Return the joint probabilities of each feature's separator, computed from the last clique to the first."""
        component = self.component
        found: list[Floats] = [np.ones(())] * component.n
        for v in reversed(range(component.n)):
            if component.children[v]:
                joint = self.tables[v] * found[v]
                for child in component.children[v]:
                    found[child] = _project(joint, component.clique(v), component.separators[child])
        return found


def best_values(component: Component) -> Codes:
    """Return the combination of feature values with the largest energy.

    If several values of a feature tie, the lowest value is returned.

    Returns
    -------
    values : (n,) int8, -1, 0 or +1

    """
    choices: list[Codes] = []
    messages: dict[int, Floats] = {}
    for v in range(component.n):
        table = _log_table(component, v, messages)
        choices.append(table.argmax(axis=0).astype(np.int8))
        messages[v] = table.max(axis=0)
    values = np.zeros((1, component.n), dtype=np.int8)
    for v in reversed(range(component.n)):
        values[0, v] = choices[v].reshape(-1)[_flat_index(values, component.separators[v])[0]] - 1
    best: Codes = values[0]
    return best


def _log_table(component: Component, v: int, messages: dict[int, Floats]) -> Floats:
    """Return the table of log-weights of the clique of `v`.

    The log-weights are the sum of the unary terms of `v`, the couplings between `v` and its separator, and the messages
    that enter the table.
    """
    clique, separator = component.clique(v), component.separators[v]
    table = np.zeros((3,) * len(clique))
    for child in component.children[v]:
        table += _expand(messages.pop(child), component.separators[child], clique)
    field = np.zeros(())
    for u in reversed(separator):
        weight = component.coupling[v, u]
        field = np.add.outer(weight * TERNARY, field) if weight else field[None]
    low, middle, high = component.terms[v]
    table[0] += low - field
    table[1] += middle
    table[2] += high + field
    return table


def _expand(table: Floats, axes: tuple[int, ...], clique: tuple[int, ...]) -> Floats:
    """Return a view of `table` that broadcasts over the axes of `clique`.

    Each axis of `table` belongs to one feature. `axes` lists these features, in the order in which they stand in
    `clique`.
    """
    held = set(axes)
    return table.reshape([3 if axis in held else 1 for axis in clique])


def _project(table: Floats, clique: tuple[int, ...], axes: tuple[int, ...]) -> Floats:
    """Sum `table`, whose axes are `clique`, over all features that are not in `axes`. Return the sum."""
    held = set(axes)
    n_left = 0
    for axis in clique:
        if axis in held:
            n_left += 1
        else:
            split = table.reshape(3**n_left, 3, -1)
            table = split[:, 0] + split[:, 1] + split[:, 2]
    return table.reshape((3,) * n_left)


def _flat_index(values: Codes, axes: tuple[int, ...]) -> NDArray[np.intp]:
    """Return the index in a flattened table for each row of feature values.

    The table has one axis of length 3 for each feature in `axes`. These features are columns of `values`.
    """
    index = np.zeros(len(values), dtype=np.intp)
    for axis in axes:
        index = 3 * index + values[:, axis] + 1
    return index
