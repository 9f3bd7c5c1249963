"""All configurations of one component, half against half: for dense models whose elimination tables are too large.

With the features split in halves a and b, E(x) = E_a(x_a) + E_b(x_b) + x_a' W_ab x_b, so that the weights of all 3^n
configurations are one (3^(n/2), 3^(n/2)) matrix. It is made in blocks of rows and reduced at once; only sums over
rows and columns and the cross moments of the halves are kept.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from afa.inference.order import BYTES, Component, Estimate
from afa.mrf import Floats

MOST_FEATURES = 20
BLOCK_ENTRIES = 1 << 18


@dataclass(frozen=True)
class Half:
    """One half of a component: its configurations (3^n_half, n_half) and their energies (3^n_half,) in nats."""

    values: Floats
    energy: Floats

    @classmethod
    def of(cls, terms: Floats, coupling: Floats) -> Half:
        n = len(terms)
        columns = np.arange(3**n)[:, None] // 3 ** np.arange(n)[::-1] % 3
        values = (columns - 1).astype(np.float64)
        of_values = terms[np.arange(n), columns].sum(axis=1)
        return cls(values, of_values + 0.5 * np.sum(values * (values @ coupling), axis=1))


@dataclass(frozen=True)
class Halves:
    """The two halves of a component and the field that each configuration of a puts on b, (3^n_a, n_b)."""

    a: Half
    b: Half
    crossing: Floats

    @classmethod
    def of(cls, component: Component) -> Halves:
        n_a = component.n // 2
        terms, coupling = component.terms, component.coupling
        a = Half.of(terms[:n_a], coupling[:n_a, :n_a])
        b = Half.of(terms[n_a:], coupling[n_a:, n_a:])
        return cls(a, b, a.values @ coupling[:n_a, n_a:])

    def energies(self, rows: slice | NDArray[np.intp]) -> Floats:
        """Energies of these configurations of a (rows) with all of b, (n_rows, 3^n_b)."""
        energy = self.crossing[rows] @ self.b.values.T
        energy += self.b.energy
        energy += self.a.energy[rows, None]
        return energy

    def blocks(self) -> Iterator[tuple[slice, Floats]]:
        """All energies, in blocks of rows of bounded memory."""
        size = max(1, BLOCK_ENTRIES // len(self.b.energy))
        for start in range(0, len(self.a.energy), size):
            rows = slice(start, start + size)
            yield rows, self.energies(rows)


@dataclass(frozen=True)
class Enumerated:
    """A component by enumeration: the same answers as `afa.inference.elimination.Eliminated`.

    log_partition : nats (eq:clamped-logZ). p_a (3^n_a,), p_b (3^n_b,) : probabilities of the halves' configurations.
    cross : (n_a, n_b), E[x_j x_l] across the halves.
    """

    halves: Halves
    log_partition: float
    p_a: Floats
    p_b: Floats
    cross: Floats

    @classmethod
    def of(cls, component: Component) -> Enumerated:
        """Sum over all configurations, every weight relative to the largest met so far."""
        halves = Halves.of(component)
        x_a, x_b = halves.a.values, halves.b.values
        with_one = np.column_stack([np.ones(len(x_b)), x_b])
        p_a, p_b = np.zeros(len(x_a)), np.zeros(len(x_b))
        cross = np.zeros((x_a.shape[1], x_b.shape[1]))
        top = -np.inf
        for rows, energy in halves.blocks():
            shift = max(top, float(energy.max()))
            scale = np.exp(top - shift)
            weight = np.subtract(energy, shift, out=energy)
            np.exp(weight, out=weight)
            reduced = weight @ with_one
            p_a *= scale
            p_a[rows] = reduced[:, 0]
            p_b = p_b * scale + weight.sum(axis=0)
            cross = cross * scale + x_a[rows].T @ reduced[:, 1:]
            top = shift
        total = p_a.sum()
        return cls(halves, float(top + np.log(total)), p_a / total, p_b / p_b.sum(), cross / total)

    def moments(self) -> tuple[Floats, Floats]:
        """E[x] and E[x^2] of each feature, both (n,)."""
        x_a, x_b = self.halves.a.values, self.halves.b.values
        first = np.concatenate([self.p_a @ x_a, self.p_b @ x_b])
        return first, np.concatenate([self.p_a @ x_a**2, self.p_b @ x_b**2])

    def pair_moments(self) -> Floats:
        """E[x_j x_l] of all pairs, (n, n), E[x_j^2] on the diagonal."""
        x_a, x_b = self.halves.a.values, self.halves.b.values
        inside_a, inside_b = x_a.T @ (self.p_a[:, None] * x_a), x_b.T @ (self.p_b[:, None] * x_b)
        return np.block([[inside_a, self.cross], [self.cross.T, inside_b]])

    def draw(self, uniforms: Floats) -> NDArray[np.int8]:
        """Independent samples, (n_samples, n), from uniforms in [0, 1) of the same shape."""
        a, b = self.halves.a.values, self.halves.b.values
        chosen_a = _inverse(self.p_a, uniforms[:, 0])
        chosen_b = np.zeros(len(uniforms), dtype=np.intp)
        for row in np.unique(chosen_a):
            energy = self.halves.energies(np.array([row]))[0]
            here = chosen_a == row
            chosen_b[here] = _inverse(np.exp(energy - energy.max()), uniforms[here, -1])
        return np.column_stack([a[chosen_a], b[chosen_b]]).astype(np.int8)


def best_listed(component: Component) -> NDArray[np.int8]:
    """A configuration of largest energy, (n,); of those that tie the lexicographically first in elimination order."""
    halves = Halves.of(component)
    best, at = -np.inf, (0, 0)
    for rows, energy in halves.blocks():
        place = int(energy.argmax())
        if energy.flat[place] > best:
            row, column = divmod(place, energy.shape[1])
            best, at = float(energy.flat[place]), (rows.start + row, column)
    return np.concatenate([halves.a.values[at[0]], halves.b.values[at[1]]]).astype(np.int8)


def listing_cost(component: Component) -> Estimate:
    """Cost of listing one component half against half."""
    entries, half = 3**component.n, 3 ** (component.n - component.n // 2)
    block = min(entries, max(BLOCK_ENTRIES, half))
    held = 2 * block + 4 * half * (component.n + 2)
    return Estimate(component.width, entries, BYTES * held, entries, component.n)


def _inverse(weights: Floats, uniforms: Floats) -> NDArray[np.intp]:
    """Positions drawn in proportion to `weights`; a weight of zero is never drawn."""
    cumulative = np.cumsum(weights)
    total = cumulative[-1]
    below_total = np.minimum(uniforms * total, np.nextafter(total, 0.0))
    positions: NDArray[np.intp] = np.searchsorted(cumulative, below_total, side="right")
    return positions
