"""Variable elimination on one connected component, by tables of conditional probabilities.

Forward, each feature is summed out of the log-table of its clique; what is kept is p(x_v | its separator), numbers in
[0, 1] that cannot overflow whatever the fields. Backward, the separators' joint probabilities follow by products and
sums alone. A table has one axis of length 3 (values -1, 0, +1) for each feature of its clique, in elimination order.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from afa.inference.order import Component
from afa.mrf import VALUES, Floats

TERNARY = np.array(VALUES, dtype=np.float64)


@dataclass(frozen=True)
class Eliminated:
    """A component as the product of p(x_v | separator of v), and its log-partition in nats (eq:clamped-logZ)."""

    component: Component
    tables: list[Floats]
    log_partition: float

    @classmethod
    def of(cls, component: Component) -> Eliminated:
        """Sum the features out in elimination order."""
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
        """E[x] and E[x^2] of each feature, both (n,)."""
        separators = self._separator_probabilities()
        single = np.empty((self.component.n, 3))
        for v, (table, separator) in enumerate(zip(self.tables, separators, strict=True)):
            single[v] = (table * separator).reshape(3, -1).sum(axis=1)
        return single[:, 2] - single[:, 0], single[:, 2] + single[:, 0]

    def pair_moments(self) -> Floats:
        """E[x_j x_l] of all pairs, (n, n), E[x_j^2] on the diagonal.

        Each eliminated feature j is carried upwards as E[x_j | separator]. It meets a later feature in the clique where
        that is eliminated, and a feature of another branch in the clique where the branches join.
        """
        component, separators = self.component, self._separator_probabilities()
        pairs = np.diag(self.moments()[1])
        carried: dict[int, tuple[list[int], Floats]] = {}
        for v, (table, separator) in enumerate(zip(self.tables, separators, strict=True)):
            clique, branches = component.clique(v), [(c, *carried.pop(c)) for c in component.children[v]]
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
            carried[v] = ([*below, v], upward)
        lower = np.tril(pairs, -1) + np.triu(pairs, 1).T
        return lower + lower.T + np.diag(pairs.diagonal())

    def draw(self, uniforms: Floats) -> NDArray[np.int8]:
        """Independent samples, (n_samples, n), from uniforms in [0, 1) of the same shape."""
        values = np.zeros(uniforms.shape, dtype=np.int8)
        for v in reversed(range(self.component.n)):
            at = _flat_index(values, self.component.separators[v])
            below, middle, _ = self.tables[v].reshape(3, -1)[:, at]
            values[:, v] = (uniforms[:, v] >= below).astype(np.int8) + (uniforms[:, v] >= below + middle) - 1
        return values

    def _separator_probabilities(self) -> list[Floats]:
        """Joint probabilities of each feature's separator, from the last clique back to the first."""
        component = self.component
        found: list[Floats] = [np.ones(())] * component.n
        for v in reversed(range(component.n)):
            if component.children[v]:
                joint = self.tables[v] * found[v]
                for child in component.children[v]:
                    found[child] = _project(joint, component.clique(v), component.separators[child])
        return found


def best_values(component: Component) -> NDArray[np.int8]:
    """A configuration of largest energy, (n,); where tables tie, the lowest value of the feature being eliminated."""
    choices: list[NDArray[np.int8]] = []
    messages: dict[int, Floats] = {}
    for v in range(component.n):
        table = _log_table(component, v, messages)
        choices.append(table.argmax(axis=0).astype(np.int8))
        messages[v] = table.max(axis=0)
    values = np.zeros((1, component.n), dtype=np.int8)
    for v in reversed(range(component.n)):
        values[0, v] = choices[v].reshape(-1)[_flat_index(values, component.separators[v])[0]] - 1
    best: NDArray[np.int8] = values[0]
    return best


def _log_table(component: Component, v: int, messages: dict[int, Floats]) -> Floats:
    """Log-weights of the clique of `v`: its terms, its couplings to the separator, and the messages it is sent."""
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
    """A view of `table` that broadcasts over the axes of `clique`, a superset of `axes` in the same order."""
    held = set(axes)
    return table.reshape([3 if axis in held else 1 for axis in clique])


def _project(table: Floats, clique: tuple[int, ...], axes: tuple[int, ...]) -> Floats:
    """Sum out of `table` the features of `clique` that are not in `axes`."""
    held = set(axes)
    kept = 0
    for axis in clique:
        if axis in held:
            kept += 1
        else:
            split = table.reshape(3**kept, 3, -1)
            table = split[:, 0] + split[:, 1] + split[:, 2]
    return table.reshape((3,) * kept)


def _flat_index(values: NDArray[np.int8], axes: tuple[int, ...]) -> NDArray[np.intp]:
    """Positions in a flattened table over `axes` of the configurations in the rows of `values`."""
    index = np.zeros(len(values), dtype=np.intp)
    for axis in axes:
        index = 3 * index + values[:, axis] + 1
    return index
