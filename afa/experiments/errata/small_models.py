"""Random ternary models of a few features, all of whose configurations can be listed."""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np

from afa.inference.dense import Half
from afa.mrf import ROUNDING, VALUES, Floats, PairwiseMRF

SIZES = (3, 4, 5, 6, 7)
DENSITIES = (0.0, 0.25, 0.5, 1.0)
KINDS = ("ternary", "gaussian")


@dataclass(frozen=True)
class SmallModel:
    """A discriminative model S on n features, `unary` (n,) and `coupling` (n, n); n is small enough to list 3^n.

    kind : `ternary`, potentials in {-1, 0, +1}, or `gaussian`, standard normal. density : probability of each coupling.
    """

    unary: Floats
    coupling: Floats
    kind: str
    density: float

    @cached_property
    def scores(self) -> Floats:
        """S(x) of every configuration, (3^n,) nats."""
        return Half.of(np.multiply.outer(self.unary, VALUES), self.coupling).energy

    @property
    def coupled(self) -> bool:
        """Whether any coupling is non-zero."""
        return bool(self.coupling.any())

    @property
    def varies(self) -> bool:
        """Whether S takes more than one value: a constant one says nothing of the classes."""
        return bool(np.ptp(self.scores) > self.rounding)

    @property
    def rounding(self) -> float:
        """Magnitude up to which a score is rounding."""
        return ROUNDING * float(np.abs(self.unary).sum() + np.abs(self.coupling).sum() / 2)

    @property
    def mrf(self) -> PairwiseMRF:
        return PairwiseMRF(self.unary, self.coupling)


def random_models(
    per_cell: int,
    *,
    sizes: Sequence[int] = SIZES,
    densities: Sequence[float] = DENSITIES,
    kinds: Sequence[str] = KINDS,
) -> list[SmallModel]:
    """`per_cell` models of every kind, density and size, each drawn from a seed of its own name."""
    return [
        _draw(kind, density, n, index)
        for kind in kinds
        for density in densities
        for n in sizes
        for index in range(per_cell)
    ]


def generator_of(*names: str | float) -> np.random.Generator:
    """A random generator that depends on these names alone."""
    text = "\0".join(map(str, ("errata", *names)))
    return np.random.default_rng(int.from_bytes(hashlib.sha256(text.encode()).digest()[:8], "little"))


def _draw(kind: str, density: float, n: int, index: int) -> SmallModel:
    generator = generator_of("model", kind, density, n, index)
    above = np.triu(generator.random((n, n)) < density, 1)
    if kind == "ternary":
        unary = generator.integers(-1, 2, n).astype(np.float64)
        strength = generator.choice([-1.0, 1.0], (n, n))
    else:
        unary, strength = generator.standard_normal(n), generator.standard_normal((n, n))
    coupling = np.where(above, strength, 0.0)
    return SmallModel(unary, coupling + coupling.T, kind, density)
