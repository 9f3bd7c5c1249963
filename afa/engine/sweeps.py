"""Run mean-field sweeps on one model with a dense coupling matrix, with compiled kernels.

The model is conditioned on the observations, and has n unobserved features. Most kernels have these arguments:

- alpha : (n,) float64, effective unary potentials, nats
- coupling : (n, n) float64, symmetric with zero diagonal, nats
- site : (3, n) float64, the rows WIDTH, OFFSET and SIDES of `afa.engine.layout.Packed.site`; (3, 0) for the paper's
  models
- m, q : (n,) float64, first and second moments, changed in place

The compiler can vectorise the loops without a change of the order of any sum. The loops are fastest if n is a multiple
of `LANES`. Callers may add features until n is a multiple of `LANES` (`padded`). Added features have no couplings, and
therefore do not change the results of the other features.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from afa.engine.compile import kernel
from afa.inference.meanfield import ASCENT_FACTOR, Solver
from afa.model.arrays import Floats

LOG2E = 1.4426950408889634
LOG2_HIGH, LOG2_LOW = 6.93147180369123816490e-01, 1.90821492927058770002e-10
"""Two numbers whose sum is log 2. Integer multiples of `LOG2_HIGH` are exact."""
ROUNDER = 1.5 * 2.0**52
"""The sum of this number and a small number x has the integer nearest to x in its lowest bits."""
UNDERFLOW = 700.0
BLOCK = 4
LANES = 8


class Iteration(NamedTuple):
    """Settings of the mean-field iteration (`afa.inference.meanfield.Solver`).

    If `warm` is True, each run of mean-field starts from the marginals of the previous run.
    """

    damping: float
    tolerance: float
    max_iterations: int
    warm: bool


def iteration_of(solver: Solver) -> Iteration:
    """Return the settings of `solver` for the kernels, with `warm` set to False."""
    return Iteration(solver.damping, solver.tolerance, solver.max_iterations, False)


@kernel(inline=True)
def padded(n: int) -> int:
    """Return the smallest multiple of `LANES` that is at least n."""
    return (n + LANES - 1) // LANES * LANES


@kernel(inline=True)
def decay(x: float) -> float:
    """Return exp(-x) for x in [0, 700], with an error of at most two units in the last place.

    The result is 2^-k times the Taylor polynomial of exp at r, where -x = r - k log 2 and |r| <= (log 2) / 2. The terms
    of the polynomial are added in separate groups of four, which the processor can compute in parallel. A call of the
    library function exp would prevent vectorisation of the callers' loops.
    """
    rounded = np.float64(ROUNDER - x * LOG2E)
    whole = rounded - ROUNDER
    r = (-x - whole * LOG2_HIGH) - whole * LOG2_LOW
    r2 = r * r
    r4 = r2 * r2
    low = (1.0 + r) + r2 * (0.5 + r * (1 / 6.0))
    middle = (1 / 24.0 + r * (1 / 120.0)) + r2 * (1 / 720.0 + r * (1 / 5040.0))
    high = (1 / 40320.0 + r * (1 / 362880.0)) + r2 * (1 / 3628800.0 + r * (1 / 39916800.0))
    power = np.float64(low + r4 * (middle + r4 * (high + r4 * (1 / 479001600.0 + r * (1 / 6227020800.0)))))
    return float(np.int64(power.view(np.int64) + (rounded.view(np.int64) << 52)).view(np.float64))


@kernel(inline=True)
def moments(field: float) -> tuple[float, float]:
    """Return the first and second moment of a feature in the paper's models, where `field` is its mean field."""
    small = decay(min(abs(field), UNDERFLOW))
    square = small * small
    scale = 1.0 / (1.0 + small + square)
    m = (1.0 - square) * scale
    return (m if field >= 0.0 else -m), (1.0 + square) * scale


@kernel(inline=True)
def moments_of_probabilities(field: float, width: float, offset: float, sides: float) -> tuple[float, float]:
    """Return the first and second moment of a feature in models with class-conditional probabilities.

    The rows WIDTH, OFFSET and SIDES of `afa.engine.layout.Packed.site` define the last three arguments.
    """
    small = decay(min(abs(width * field), UNDERFLOW))
    square = sides * (small * small)
    scale = 1.0 / (sides + small + square)
    size, q = (sides - square) * scale, (sides + square) * scale
    m = size if field >= 0.0 else -size
    return width * m + offset * q, width * q + offset * m


@kernel(entrance=True)
def damped(
    alpha: Floats, coupling: Floats, site: Floats, m: Floats, q: Floats, iteration: Iteration
) -> tuple[int, bool]:
    """Run damped Jacobi sweeps (eq:mf-update). Return the number of sweeps, and True if the sweeps did not converge.

    Parameters
    ----------
    alpha : (n,) float64, effective unary potentials, nats
    coupling : (n, n) float64, symmetric with zero diagonal, nats
    site : (3, n) float64, or (3, 0) for the paper's models
    m, q : (n,) float64, first and second moments, changed in place

    """
    n = len(m)
    field = np.empty(n)
    damping, tolerance, class_conditional = iteration.damping, iteration.tolerance, site.shape[1] > 0
    sweeps, moving = 0, n
    while moving > 0 and sweeps < iteration.max_iterations:
        add_neighbours(alpha, coupling, m, field)
        moving = 0
        if class_conditional:
            for j in range(n):
                new_m, new_q = moments_of_probabilities(field[j], site[0, j], site[1, j], site[2, j])
                moving += step_to(new_m, new_q, m, q, j, damping, tolerance)
        else:  # a branch inside one loop would prevent vectorisation
            for j in range(n):
                new_m, new_q = moments(field[j])
                moving += step_to(new_m, new_q, m, q, j, damping, tolerance)
        sweeps += 1
    return sweeps, moving > 0


@kernel(inline=True)
def step_to(new_m: float, new_q: float, m: Floats, q: Floats, j: int, damping: float, tolerance: float) -> int:
    """Change the moments of one feature by a damped step. Return 1 if the step is at least the tolerance, else 0.

    To test convergence, the caller adds up these integers over all features. If the function returned the size of the
    step instead, the caller would have to compute a maximum, which would prevent vectorisation of its loop.

    Parameters
    ----------
    m, q : (n,) float64, first and second moments, changed in place

    """
    step_m, step_q = damping * (new_m - m[j]), damping * (new_q - q[j])
    m[j] += step_m
    q[j] += step_q
    outer, middle = 0.5 * (abs(step_q) + abs(step_m)), abs(step_q)
    return 1 if (outer >= tolerance) | (middle >= tolerance) else 0


@kernel(inline=True)
def converged(
    alpha: Floats, coupling: Floats, site: Floats, m: Floats, q: Floats, n: int, iteration: Iteration
) -> tuple[int, int]:
    """Run damped sweeps. If the damped sweeps do not converge, continue with coordinate ascent.

    Return the number of damped sweeps and the number of sweeps of coordinate ascent.

    Parameters
    ----------
    alpha, coupling, site, m, q : as in `damped`

    """
    sweeps, capped = damped(alpha, coupling, site, m, q, iteration)
    return sweeps, ascend(alpha, coupling, site, m, q, n, iteration) if capped else 0


@kernel(entrance=True)
def add_neighbours(alpha: Floats, coupling: Floats, m: Floats, field: Floats) -> None:
    """Write the mean field `alpha + coupling m` into `field`. The terms are added in the order of the features.

    Parameters
    ----------
    alpha, coupling, m : as in `damped`
    field : (n,) float64, nats, written

    """
    n = len(m)
    field[:] = alpha
    whole = n - n % BLOCK
    for k in range(0, whole, BLOCK):
        m0, m1, m2, m3 = m[k], m[k + 1], m[k + 2], m[k + 3]
        for j in range(n):
            two = (field[j] + coupling[k, j] * m0) + coupling[k + 1, j] * m1
            field[j] = (two + coupling[k + 2, j] * m2) + coupling[k + 3, j] * m3
    for k in range(whole, n):
        weight = m[k]
        for j in range(n):
            field[j] += coupling[k, j] * weight


@kernel()
def ascend(alpha: Floats, coupling: Floats, site: Floats, m: Floats, q: Floats, n: int, iteration: Iteration) -> int:
    """Run coordinate ascent on the first n features, one feature at a time. Return the number of sweeps.

    Parameters
    ----------
    alpha, coupling, site, m, q : as in `damped`

    """
    sweeps, residual = 0, np.inf
    while residual >= iteration.tolerance and sweeps < ASCENT_FACTOR * iteration.max_iterations:
        residual = 0.0
        for j in range(n):
            field = alpha[j]
            for other in range(n):
                field += coupling[other, j] * m[other]
            if site.shape[1] > 0:
                new_m, new_q = moments_of_probabilities(field, site[0, j], site[1, j], site[2, j])
            else:
                new_m, new_q = moments(field)
            step_m, step_q = new_m - m[j], new_q - q[j]
            m[j], q[j] = new_m, new_q
            residual = max(residual, 0.5 * (abs(step_q) + abs(step_m)), abs(step_q))
        sweeps += 1
    return sweeps


@kernel()
def bound(alpha: Floats, coupling: Floats, m: Floats, q: Floats, n: int) -> float:
    """Return the expected energy plus the entropy of the mean-field marginals of n features, nats (eq:elbo-explicit).

    Parameters
    ----------
    alpha, coupling, m, q : as in `damped`

    """
    total = 0.0
    for j in range(n):
        around = 0.0
        for other in range(j):
            around += coupling[j, other] * m[other]
        total += (alpha[j] + around) * m[j]
        total -= _xlogx(0.5 * (q[j] - m[j])) + _xlogx(1.0 - q[j]) + _xlogx(0.5 * (q[j] + m[j]))
    return total


@kernel()
def _xlogx(p: float) -> float:
    return p * np.log(p) if p > 0.0 else 0.0
