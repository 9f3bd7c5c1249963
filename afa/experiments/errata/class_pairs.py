"""Two ways to make a pair of class distributions from one score: half-potentials, and the maximum of entropy.

Both are given on a listed space of configurations for a *calibrated* score, shifted by a constant so that
sum exp(+S/2) = sum exp(-S/2): the shift leaves the half-potential pair as it is, and for a score that does not change
sign there is no pair with p_1 = exp(S) p_0 at all, both being normalised.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from scipy.special import expit, logsumexp

from afa.errors import Fault, InferenceError
from afa.mrf import Floats

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
