"""Random ternary models of a few features, all of whose configurations can be listed."""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import NamedTuple

import numpy as np
from scipy.special import expit, logsumexp

from afa.errors import Fault, InferenceError
from afa.inference.dense import Half
from afa.mrf import ROUNDING, VALUES, Floats, PairwiseMRF
from afa.orders import generator_of

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
    per_cell: int, *, sizes: Sequence[int] = SIZES, densities: Sequence[float] = DENSITIES, kinds: Sequence[str] = KINDS
) -> list[SmallModel]:
    """`per_cell` models of every kind, density and size, each drawn from a seed of its own name."""
    return [
        _draw(kind, density, n, index)
        for kind in kinds
        for density in densities
        for n in sizes
        for index in range(per_cell)
    ]


def by_hash(names: Sequence[str], purpose: str) -> list[int]:
    """Places of the names by a hash of each, so that which come first does not depend on the order they come in."""
    keys = [hashlib.sha256(f"errata\0{purpose}\0{name}".encode()).digest() for name in names]
    return sorted(range(len(names)), key=keys.__getitem__)


def _draw(kind: str, density: float, n: int, index: int) -> SmallModel:
    generator = generator_of("errata", "model", kind, density, n, index)
    above = np.triu(generator.random((n, n)) < density, 1)
    if kind == "ternary":
        unary = generator.integers(-1, 2, n).astype(np.float64)
        strength = generator.choice([-1.0, 1.0], (n, n))
    else:
        unary, strength = generator.standard_normal(n), generator.standard_normal((n, n))
    coupling = np.where(above, strength, 0.0)
    return SmallModel(unary, coupling + coupling.T, kind, density)


MOST_STEPS = 200
TOLERANCE = 1e-13


class ClassPair(NamedTuple):
    """Log-probabilities of every configuration under class 1 and under class 0, both (C,) nats."""

    one: Floats
    zero: Floats

    @property
    def entropy(self) -> float:
        """H(p_0) + H(p_1), nats."""
        return -sum(float(np.exp(log_p) @ log_p) for log_p in self)


def log_partition_gap(scores: Floats) -> float:
    """Log Z_1 - log Z_0 of the half-potentials of these scores, (C,), in nats (eq:Ze-def-supp)."""
    return float(logsumexp(scores / 2) - logsumexp(-scores / 2))


def calibrated(scores: Floats) -> Floats:
    """The scores less the constant that makes Z_0 = Z_1 (rem:calibration-shift)."""
    return scores - log_partition_gap(scores)


def half_potential_pair(scores: Floats) -> ClassPair:
    """p_e proportional to exp(+-S/2) (eq:half-potential); `scores` (C,) nats."""
    return ClassPair(scores / 2 - logsumexp(scores / 2), -scores / 2 - logsumexp(-scores / 2))


def maximum_entropy_pair(scores: Floats) -> ClassPair:
    """The pair of largest H(p_0) + H(p_1) with p_1 = exp(S) p_0, both normalised (eq:strict-pointwise).

    With w = exp(S) the objective is -sum (1 + w) p_0 log p_0 - sum p_0 w log w. Setting its derivative, less a_0 and
    a_1 w for the two sums, to zero gives

        log p_0 = -1 - (w log w + a_0 + a_1 w) / (1 + w) = -1 - sigma(S) S - sigma(-S) a_0 - sigma(S) a_1,

    and the multipliers minimise the convex dual sum p_0 + sum p_1 + a_0 + a_1, here by damped Newton steps.

    Raises
    ------
    InferenceError : the scores do not take both signs, so that no such pair exists.

    """
    if not (scores.min() < 0 < scores.max()):
        advice = "shift the score by the constant that makes Z_0 = Z_1"
        raise InferenceError(Fault("a pair of classes", "a score that does not change sign", "both signs", advice))
    weight = np.stack([expit(-scores), expit(scores)])
    multipliers = np.full(2, float(logsumexp(-scores * weight[1])) - 1.0)
    pair = _stationary(scores, weight, multipliers)
    for _ in range(MOST_STEPS):
        p_zero, p_one = np.exp(pair.zero), np.exp(pair.one)
        gradient = 1.0 - np.array([p_zero.sum(), p_one.sum()])
        if np.abs(gradient).max() < TOLERANCE:
            break
        curvature = (weight * (p_zero + p_one)) @ weight.T
        step = np.linalg.solve(curvature, gradient)
        multipliers, pair = _damped(scores, weight, multipliers, step, gradient)
    return pair


def _stationary(scores: Floats, weight: Floats, multipliers: Floats) -> ClassPair:
    zero = -1.0 - scores * weight[1] - multipliers @ weight
    return ClassPair(zero + scores, zero)


def _damped(
    scores: Floats, weight: Floats, multipliers: Floats, step: Floats, gradient: Floats
) -> tuple[Floats, ClassPair]:
    """The longest of the steps 1, 1/2, 1/4, ... that does not raise the dual."""
    before = _dual(_stationary(scores, weight, multipliers), multipliers)
    slack = TOLERANCE * max(1.0, abs(before))
    length = 1.0
    while True:
        moved = multipliers - length * step
        pair = _stationary(scores, weight, moved)
        expected = before - 1e-4 * length * float(gradient @ step)
        if _dual(pair, moved) <= expected + slack or length < 1e-12:
            return moved, pair
        length /= 2


def _dual(pair: ClassPair, multipliers: Floats) -> float:
    with np.errstate(over="ignore"):
        return float(np.exp(pair.zero).sum() + np.exp(pair.one).sum() + multipliers.sum())


def total_variation(first: Floats, second: Floats) -> float:
    """Half the summed absolute difference of two distributions given by log-probabilities, 0 to 1."""
    return float(np.abs(np.exp(first) - np.exp(second)).sum() / 2)


def swap_residual(pair: ClassPair, of_negative: ClassPair) -> float:
    """Largest difference between p_e for S and p_{1-e} for -S: 0 where swapping the classes changes nothing."""
    return max(
        float(np.abs(np.exp(pair.one) - np.exp(of_negative.zero)).max()),
        float(np.abs(np.exp(pair.zero) - np.exp(of_negative.one)).max()),
    )
