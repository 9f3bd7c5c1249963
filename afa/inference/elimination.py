"""Eliminate the variables of each connected component: find the order, estimate the cost, and compute the tables.

Eliminating a feature joins its remaining neighbours, called its *separator*, in one table. The width of an elimination
order is the size of its largest separator. In the min-fill order, the next eliminated feature is the one that joins the
fewest new pairs of neighbours.

In the forward pass, each feature v is summed out of the log-table of its clique (v and its separator). The stored table
is p(x_v | separator of v), whose entries are in [0, 1]. In the backward pass, products and sums of these tables give
the joint probabilities of the separators. A table has one axis for each feature of its clique, in elimination order.
Each axis has length 3, for the values -1, 0, +1.
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
    width : features in the largest separator of the elimination order
    table_entries : entries of all tables together
    bytes : largest memory in use at one time
    operations : entries read or written in all passes

    """

    width: int
    table_entries: int
    bytes: int
    operations: int

    @property
    def seconds(self) -> float:
        """Return the approximate time on one core, seconds."""
        return float(self.operations * SECONDS_PER_ENTRY)


@dataclass(frozen=True)
class Component:
    """A connected component of a conditioned model. The n features are numbered in elimination order.

    Attributes
    ----------
    members : (n,) int, positions in `evidence.free`
    terms : (n, 3) float64, effective terms of -1, 0, +1 for couplings about 0, nats
    coupling : (n, n) float64, nats
    separators : for each feature v, the sorted later features that are in the table of v when v is eliminated

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
        """Return for each feature v the features that send a message to v.

        The separator of these features begins with v.
        """
        into: list[list[int]] = [[] for _ in self.separators]
        for v, separator in enumerate(self.separators):
            if separator:
                into[separator[0]].append(v)
        return tuple(map(tuple, into))

    def clique(self, v: int) -> tuple[int, ...]:
        """Return the features of the table in which `v` is eliminated, in the order of its axes; `v` is the first."""
        return (v, *self.separators[v])


def components(evidence: Evidence) -> list[Component]:
    """Return the connected components of the unobserved features, sorted by the first feature of each component."""
    free = evidence.free
    coupling = evidence.mrf.couplings[free][:, free].tocsr()
    terms = evidence.uncentred()[1][free]
    found = []
    for part in _connected(_neighbour_masks(coupling)):
        order, separators = min_fill(part)
        place = {v: position for position, v in enumerate(order)}
        members = np.array(order, dtype=np.intp)
        # most components of a sparse model are single features, which need no slicing
        dense = coupling[members][:, members].toarray() if len(members) > 1 else np.zeros((1, 1))
        renumbered = tuple(tuple(sorted(place[u] for u in separator)) for separator in separators)
        found.append(Component(members, terms[members], dense, renumbered))
    return found


def min_fill(neighbours: dict[int, int]) -> tuple[list[int], list[list[int]]]:
    """Return the elimination order and the separators of a graph. `neighbours` contains a bit mask for each feature.

    If several features join equally few new pairs, the feature with the fewest neighbours is eliminated first, then the
    feature with the lowest index.
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
    """Return the cost of eliminating one component, including all pair moments if `pairs` is True."""
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
    """Return the number of pairs of neighbours of `v` that are not joined, and the number of neighbours of `v`."""
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
    """Distribution of a component, as a product of conditional probabilities p(x_v | separator of v).

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
        """Sum out all features of a component in elimination order, and return the result."""
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
        """Return E[x_j x_l] of all pairs of features, with E[x_j^2] on the diagonal.

        The cliques that are eliminated after feature j receive E[x_j | separator]. E[x_j x_l] for a feature l that is
        eliminated later on the branch of j is computed in the clique that eliminates l. E[x_j x_l] for a feature l on
        another branch is computed in the clique where the two branches join.

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
        """Return the joint probabilities of each feature's separator. The last clique is computed first."""
        component = self.component
        found: list[Floats] = [np.ones(())] * component.n
        for v in reversed(range(component.n)):
            if component.children[v]:
                joint = self.tables[v] * found[v]
                for child in component.children[v]:
                    found[child] = _project(joint, component.clique(v), component.separators[child])
        return found


def best_values(component: Component) -> Codes:
    """Return the values with the largest energy. If values of a feature tie, the lowest value is used.

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
    """Return the log-weights of the clique of `v`: its terms, its couplings to the separator, and incoming messages."""
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
    """Return a view of `table`, with the axes `axes`, that broadcasts over the axes of `clique`.

    `clique` must contain all of `axes` in the same order.
    """
    held = set(axes)
    return table.reshape([3 if axis in held else 1 for axis in clique])


def _project(table: Floats, clique: tuple[int, ...], axes: tuple[int, ...]) -> Floats:
    """Return `table`, summed over all features of `clique` that `axes` does not contain."""
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
    """Return the position of each row of `values` (one configuration) in a flattened table over `axes`."""
    index = np.zeros(len(values), dtype=np.intp)
    for axis in axes:
        index = 3 * index + values[:, axis] + 1
    return index
