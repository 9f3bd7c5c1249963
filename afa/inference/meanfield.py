"""Run damped mean-field inference on a model given observations, in plain Python.

A marginal distribution over the values -1, 0, +1 is stored as its moments (m, q) = (E[x], E[x^2]). Damping is applied
to the moments, because probabilities are linear in the moments (docs/decisions.md, Model and inference). The marginal
of a feature is proportional to exp(f(s) + h s), where f(s) is the unary term of the feature at the value s, and h is
the mean field from coupled features. In the paper's models, f(s) = alpha s, and the normaliser Z and the moments are

    Z = 1 + 2 cosh(alpha + h),   m = 2 sinh(alpha + h) / Z,   q = 2 cosh(alpha + h) / Z.

The compiled kernels for many patients are in `afa.engine`.
"""

from __future__ import annotations

from dataclasses import dataclass
from itertools import pairwise
from math import exp, inf

import numpy as np
import scipy.sparse as sp
from scipy.special import expit

from afa.errors import ConfigError, check_number
from afa.inference.result import Marginals, probabilities_of, spread
from afa.model.arrays import Floats
from afa.model.mrf import Evidence, PairwiseMRF

ASCENT_FACTOR = 10
"""Largest number of sweeps of coordinate ascent, as a multiple of the largest number of damped sweeps."""


@dataclass(frozen=True)
class Solver:
    """Settings of the mean-field iteration. The defaults are the paper's values (tab:hyperparams).

    Parameters
    ----------
    damping : weight of the new marginals, in (0, 1]
    tolerance : the iteration stops when no marginal probability changes by this number or more
    max_iterations : largest number of damped sweeps, 1 or more. If they do not converge, coordinate ascent continues
        for at most `ASCENT_FACTOR` times as many sweeps

    Raises
    ------
    ConfigError : a setting is out of its range

    Examples
    --------
    >>> Solver(tolerance=1e-9)
    Solver(damping=0.5, tolerance=1e-09, max_iterations=200)

    """

    damping: float = 0.5
    tolerance: float = 1e-4
    max_iterations: int = 200

    def __post_init__(self) -> None:
        for option, value, expected, fits in (
            ("damping", self.damping, "a number above 0, at most 1", lambda x: 0 < x <= 1),
            ("tolerance", self.tolerance, "a finite number above 0", lambda x: 0 < x < inf),
            ("max_iterations", self.max_iterations, "a whole number, 1 or more", lambda x: x >= 1 and x.is_integer()),
        ):
            check_number(ConfigError, f"solver option {option}", value, expected, fits)


@dataclass(frozen=True)
class MeanField:
    """Mean-field solution of a model, with diagnostics of the iteration.

    Attributes
    ----------
    elbo : lower bound on log Z(x_obs), including the prior and the energy of the observed features, nats
        (eq:elbo-explicit)
    iterations : number of damped sweeps
    converged : True if the damped sweeps reached the tolerance within `Solver.max_iterations` sweeps
    ascended : number of sweeps of coordinate ascent; 0 if the damped sweeps converged
    residual : largest change of a marginal probability in the last sweep

    """

    marginals: Marginals
    elbo: float
    iterations: int
    converged: bool
    ascended: int
    residual: float


def moments_of(terms: Floats, field: Floats | float = 0.0) -> tuple[Floats, Floats]:
    """Return the first and second moments of p(s) proportional to exp(f(s) + h s), without overflow (eq:first-moment).

    Parameters
    ----------
    terms : (..., 3) float64, f(s) of -1, 0, +1, nats; -inf where a value cannot occur
    field : (...) float64, h, nats

    Returns
    -------
    m, q : (...) float64, E[s] in [-1, 1] and E[s^2] in [0, 1]

    Examples
    --------
    >>> m, q = moments_of(np.zeros((2, 3)), np.array([0.0, 1e4]))
    >>> m.tolist(), [round(v, 3) for v in q.tolist()]
    ([0.0, 1.0], [0.667, 1.0])

    """
    low, high = terms[..., 0] - terms[..., 1], terms[..., 2] - terms[..., 1]
    below, above = np.isfinite(low), np.isfinite(high)
    both = below & above
    h = np.where(both, high - low, 0.0) / 2 + field
    side, even = np.exp(-np.abs(h)), np.exp(np.where(both, high + low, 0.0) / 2)
    norm = even + side + even * side * side
    one_sided = np.where(above, expit(high + field), 0.0) - np.where(below, expit(low - field), 0.0)
    m = np.where(both, np.sign(h) * even * (1.0 - side * side) / norm, one_sided)
    q = np.where(both, even * (1.0 + side * side) / norm, np.abs(one_sided))
    return m, q


def ternary_moments(fields: Floats) -> tuple[Floats, Floats]:
    """Return the first and second moments of p(s) proportional to exp(h s) on -1, 0, +1 (eq:first-moment).

    Parameters
    ----------
    fields : (...) float64, h, nats

    Returns
    -------
    m, q : (...) float64, as in `moments_of`

    """
    return moments_of(np.zeros(3), fields)


def mean_field(
    mrf: PairwiseMRF,
    evidence: Evidence | dict[str, int] | None = None,
    *,
    solver: Solver | None = None,
    start: Marginals | None = None,
) -> MeanField:
    """Return mean-field marginals and ELBO of `mrf` given `evidence` (eq:mf-update, eq:elbo-explicit).

    The first sweep starts from the marginals `start`. If `start` is None, the first sweep starts from the
    class-conditional probabilities of the model, or from uniform marginals if the model has no such probabilities.
    Features outside the support stay uniform. If the damped sweeps do not converge, coordinate ascent continues from
    the last marginals. Coordinate ascent never lowers the ELBO.

    Examples
    --------
    >>> model = PairwiseMRF([1.0, 0.0], [[0.0, 2.0], [2.0, 0.0]])
    >>> solution = mean_field(model, {"x0": 1}, solver=Solver(tolerance=1e-9))
    >>> round(float(solution.marginals.first[1]), 6), round(solution.elbo, 6), solution.converged
    (0.850937, 3.142932, True)

    """
    solver = solver or Solver()
    state = evidence if isinstance(evidence, Evidence) else Evidence.of(mrf, evidence)
    free = state.free
    terms, coupling, centre = state.terms[free], mrf.couplings[free][:, free], _centres(mrf)[free]
    if start is not None:
        m, q = start.first[free], start.second[free]
    else:
        m, q = moments_of(np.where(mrf.possible, 0.0, -np.inf)[free] if mrf.centre is None else mrf.terms[free])
    iterations, residual = 0, 0.0 if len(free) == 0 else np.inf
    while residual >= solver.tolerance and iterations < solver.max_iterations:
        target_m, target_q = moments_of(terms, coupling @ (m - centre))
        step_m, step_q = solver.damping * (target_m - m), solver.damping * (target_q - q)
        m, q = m + step_m, q + step_q
        residual, iterations = _largest_change(step_m, step_q), iterations + 1
    converged = residual < solver.tolerance
    ascended = 0
    if not converged:
        m, q, ascended, residual = _coordinate_ascent(terms, coupling, centre, m, q, solver)
    elbo = state.constant + state.log_volume + _free_elbo(terms, coupling, centre, m, q)
    return MeanField(spread(state, m, q), elbo, iterations, converged, ascended, residual)


def _centres(mrf: PairwiseMRF) -> Floats:
    return np.zeros(mrf.n_features) if mrf.centre is None else mrf.centre


def _coordinate_ascent(
    terms: Floats, coupling: sp.csr_array, centre: Floats, m: Floats, q: Floats, solver: Solver
) -> tuple[Floats, Floats, int, float]:
    """Update one feature at a time in index order (eq:mf-update), until all changes are below the tolerance.

    The moments are computed here with Python floats. This is ten times as fast as calls of `moments_of` with arrays of
    length 1.
    """
    m, q = m.copy(), q.copy()
    below, above = (terms[:, 0] - terms[:, 1]).tolist(), (terms[:, 2] - terms[:, 1]).tolist()
    rows = [slice(first, last) for first, last in pairwise(coupling.indptr.tolist())]
    residual, sweeps = np.inf, 0
    while residual >= solver.tolerance and sweeps < ASCENT_FACTOR * solver.max_iterations:
        residual, sweeps = 0.0, sweeps + 1
        for j, row in enumerate(rows):
            around = coupling.indices[row]
            field = float(coupling.data[row] @ (m[around] - centre[around]))
            down, up = below[j] - field, above[j] + field
            top = max(0.0, down, up)
            down, still, up = exp(down - top), exp(-top), exp(up - top)
            norm = down + still + up
            new_m, new_q = (up - down) / norm, (up + down) / norm
            step_m, step_q = abs(new_m - m[j]), abs(new_q - q[j])
            residual = max(residual, (step_q + step_m) / 2, step_q)
            m[j], q[j] = new_m, new_q
    return m, q, sweeps, float(residual)


def _largest_change(step_m: Floats, step_q: Floats) -> float:
    """Return the largest absolute change of a probability. The probabilities are (q - m)/2, 1 - q and (q + m)/2."""
    sides = (np.abs(step_q) + np.abs(step_m)) / 2
    return float(np.max(np.maximum(sides, np.abs(step_q))))


def _free_elbo(terms: Floats, coupling: sp.csr_array, centre: Floats, m: Floats, q: Floats) -> float:
    """Return the expected energy plus the entropy of the mean-field distribution, nats (eq:elbo-general)."""
    p = probabilities_of(m, q)
    about = m - centre
    energy = np.where(p > 0, p * np.where(np.isfinite(terms), terms, 0.0), 0.0).sum() + 0.5 * about @ (coupling @ about)
    return float(energy + entropy(m, q).sum())


def entropy(m: Floats, q: Floats) -> Floats:
    """Return the entropy of each marginal distribution on -1, 0, +1.

    Parameters
    ----------
    m, q : (...) float64, first and second moments

    Returns
    -------
    entropy : (...) float64, nats

    """
    probabilities = probabilities_of(m, q)
    safe = np.where(probabilities > 0, probabilities, 1.0)
    total: Floats = -np.sum(safe * np.log(safe), axis=-1)
    return total
