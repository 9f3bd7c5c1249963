"""Damped mean-field inference on a conditioned ternary model: the readable definition.

With field h at a feature the marginal has, in closed form,

    Z = 1 + 2 cosh h,   m = E[x] = 2 sinh h / Z,   q = E[x^2] = 2 cosh h / Z,

so that a marginal is the pair (m, q) and damping, linear in the marginals, is linear in that pair too
(spec M2). The compiled form for whole cohorts is `afa.engine`.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import scipy.sparse as sp

from afa.inference.result import Marginals, spread
from afa.mrf import Evidence, Floats, PairwiseMRF

LOG3 = float(np.log(3.0))
ASCENT_FACTOR = 10
"""Coordinate ascent may take this many times the sweeps of the damped iteration: it is slow near a saddle."""


@dataclass(frozen=True)
class Solver:
    """Settings of the iteration; the defaults are the paper's (tab:hyperparams).

    damping : weight of the new marginals, in (0, 1]. tolerance : largest change of a marginal probability at
    which the iteration stops. max_iterations : damped sweeps before coordinate ascent takes over, which may
    take `ASCENT_FACTOR` times as many.

    >>> Solver(tolerance=1e-9)
    Solver(damping=0.5, tolerance=1e-09, max_iterations=200)
    """

    damping: float = 0.5
    tolerance: float = 1e-4
    max_iterations: int = 200


@dataclass(frozen=True)
class MeanField:
    """A mean-field solution and its diagnostics.

    elbo : lower bound on log Z(x_obs), the running constant included (eq:elbo-explicit), in nats.
    iterations : damped sweeps taken. converged : whether they met the tolerance before the cap.
    ascended : coordinate-ascent sweeps that finished a solve which had not (spec M8), 0 otherwise.
    residual : largest change of a marginal probability in the last sweep.
    """

    marginals: Marginals
    elbo: float
    iterations: int
    converged: bool
    ascended: int
    residual: float


def ternary_moments(fields: Floats) -> tuple[Floats, Floats]:
    """First and second moments of ternary features at the given fields (eq:first-moment); any magnitude, no overflow.

    >>> m, q = ternary_moments(np.array([0.0, 1e4]))
    >>> m.tolist(), [round(v, 3) for v in q.tolist()]
    ([0.0, 1.0], [0.667, 1.0])
    """
    small = np.exp(-np.abs(fields))
    norm = 1.0 + small + small * small
    return np.sign(fields) * (1.0 - small * small) / norm, (1.0 + small * small) / norm


def mean_field(
    mrf: PairwiseMRF,
    evidence: Evidence | dict[str, int] | None = None,
    *,
    solver: Solver | None = None,
    start: Marginals | None = None,
) -> MeanField:
    """Mean-field marginals and ELBO of `mrf` given `evidence` (eq:mf-update, eq:elbo-explicit).

    Starts from the uniform marginals, or from `start` restricted to what is still unobserved. Features outside
    the support are never solved for: uniform, log 3 each (spec M3). A solve that reaches the cap of damped
    sweeps is finished by coordinate ascent, which cannot cycle and never lowers the ELBO (spec M8).

    >>> model = PairwiseMRF([1.0, 0.0], [[0.0, 2.0], [2.0, 0.0]])
    >>> solution = mean_field(model, {"x0": 1}, solver=Solver(tolerance=1e-9))
    >>> round(float(solution.marginals.first[1]), 6), round(solution.elbo, 6), solution.converged
    (0.850937, 3.142932, True)
    """
    solver = solver or Solver()
    state = evidence if isinstance(evidence, Evidence) else Evidence.of(mrf, evidence)
    free = state.free
    alpha, coupling = state.field[free], mrf.couplings[free][:, free]
    m = np.zeros(len(free)) if start is None else start.first[free]
    q = np.full(len(free), 2.0 / 3.0) if start is None else start.second[free]
    iterations, residual = 0, 0.0 if len(free) == 0 else np.inf
    while residual >= solver.tolerance and iterations < solver.max_iterations:
        target_m, target_q = ternary_moments(alpha + coupling @ m)
        step_m, step_q = solver.damping * (target_m - m), solver.damping * (target_q - q)
        m, q = m + step_m, q + step_q
        residual, iterations = _largest_change(step_m, step_q), iterations + 1
    converged = residual < solver.tolerance
    ascended = 0
    if not converged:
        m, q, ascended, residual = _coordinate_ascent(alpha, coupling, m, q, solver)
    elbo = state.constant + state.n_uniform * LOG3 + _free_elbo(alpha, coupling, m, q)
    return MeanField(spread(state, m, q), elbo, iterations, converged, ascended, residual)


def _coordinate_ascent(
    alpha: Floats, coupling: sp.csr_array, m: Floats, q: Floats, solver: Solver
) -> tuple[Floats, Floats, int, float]:
    """Sweep the features one at a time in index order (eq:mf-update) until the largest change meets the tolerance."""
    m, q = m.copy(), q.copy()
    residual, sweeps = np.inf, 0
    while residual >= solver.tolerance and sweeps < ASCENT_FACTOR * solver.max_iterations:
        residual, sweeps = 0.0, sweeps + 1
        for j in range(len(m)):
            row = slice(coupling.indptr[j], coupling.indptr[j + 1])
            h = alpha[j] + coupling.data[row] @ m[coupling.indices[row]]
            new_m, new_q = ternary_moments(h)
            residual = max(residual, _largest_change(new_m - m[j], new_q - q[j]))
            m[j], q[j] = new_m, new_q
    return m, q, sweeps, residual


def _largest_change(step_m: Floats, step_q: Floats) -> float:
    """Largest absolute change over the three probabilities (q - m)/2, 1 - q and (q + m)/2."""
    sides = (np.abs(step_q) + np.abs(step_m)) / 2
    return float(np.max(np.maximum(sides, np.abs(step_q))))


def _free_elbo(alpha: Floats, coupling: sp.csr_array, m: Floats, q: Floats) -> float:
    """Expected reduced energy plus entropy of the product distribution with moments (m, q) (eq:elbo-general)."""
    energy = alpha @ m + 0.5 * m @ (coupling @ m)
    return float(energy + entropy(m, q).sum())


def entropy(m: Floats, q: Floats) -> Floats:
    """Entropy in nats of ternary marginals with first moments `m` and second moments `q`."""
    probabilities = np.stack([(q - m) / 2, 1 - q, (q + m) / 2])
    safe = np.where(probabilities > 0, probabilities, 1.0)
    total: Floats = -np.sum(safe * np.log(safe), axis=0)
    return total
