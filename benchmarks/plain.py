"""The same formulas in plain dense NumPy: what a careful reader of the paper would write without a compiler.

Every model is dense on all M features. Patients are batched: a round of B trajectories solves each entity once for all
patients whose new feature it holds, by one matrix product a sweep. As in the engine only entities that hold the new
feature are solved again (decisions.md M6), and only their rows and columns of the cross expectations are redone; the
`l1` budgets are kept by subtraction. Decisions keep nothing else from one round to the next.

Letters in shapes: N entities, M features, Q duels, B patients.
"""

from __future__ import annotations

from dataclasses import dataclass
from itertools import combinations

import numpy as np
from numpy.typing import NDArray
from scipy.special import expit, xlogy

from afa.inference.meanfield import Solver, entropy, ternary_moments
from afa.model.arrays import Floats
from afa.model.bundle import Bundle
from afa.model.mrf import LOG3, VALUES

ZERO_GAIN = 1e-12
RELATIVE_TIE = 1e-9


@dataclass(frozen=True)
class Models:
    """All entities of a bundle, dense.

    coupling : (N, M, M). unary : (N, M). prior : (N,). holds : (N, M) bool, the supports. pairs : (Q, 2), a < b.
    tie : largest score that is rounding.
    """

    features: tuple[str, ...]
    coupling: Floats
    unary: Floats
    prior: Floats
    holds: NDArray[np.bool_]
    pairs: NDArray[np.int64]
    tie: float

    @classmethod
    def of(cls, bundle: Bundle) -> Models:
        coupling = np.stack([bundle.couplings(entity).toarray() for entity in bundle.entities])
        unary = np.array(bundle.unary)
        reach = np.abs(unary).sum(axis=1) + np.abs(coupling).sum(axis=(1, 2)) / 2
        return cls(
            features=bundle.features,
            coupling=coupling,
            unary=unary,
            prior=np.array(bundle.priors),
            holds=(unary != 0) | (coupling != 0).any(axis=2),
            pairs=np.array(list(combinations(range(len(unary)), 2)), dtype=np.int64).reshape(-1, 2),
            tie=1e-12 * float(reach.max()),
        )

    @property
    def n_entities(self) -> int:
        return len(self.unary)


def solve(
    coupling: Floats, field: Floats, hidden: NDArray[np.bool_], m: Floats, q: Floats, solver: Solver
) -> tuple[Floats, Floats, Floats]:
    """Damped mean-field of one entity on B rows of fields, (B, M) each; moments and ELBO of the unobserved part (B,).

    coupling : (M, M) symmetric. Each row stops by itself when it has converged, as in `afa.mean_field`.
    """
    done_m, done_q = np.empty_like(m), np.empty_like(q)
    rows, alpha, open_ = np.arange(len(m)), field, hidden
    for _ in range(solver.max_iterations):
        new_m, new_q = ternary_moments(alpha + m @ coupling)
        step_m, step_q = solver.damping * (new_m * open_ - m), solver.damping * (new_q * open_ - q)
        m, q = m + step_m, q + step_q
        change = np.maximum((np.abs(step_q) + np.abs(step_m)) / 2, np.abs(step_q)).max(axis=1)
        still = change >= solver.tolerance
        if not still.all():
            done_m[rows[~still]], done_q[rows[~still]] = m[~still], q[~still]
            rows, alpha, open_, m, q = rows[still], alpha[still], open_[still], m[still], q[still]
        if not len(rows):
            break
    else:
        done_m[rows], done_q[rows] = _ascend(coupling, alpha, open_, m, q, solver)
    energy = (done_m * (field + 0.5 * (done_m @ coupling))).sum(axis=1)
    return done_m, done_q, energy + (entropy(done_m, done_q) * hidden).sum(axis=1)


def _ascend(
    coupling: Floats, field: Floats, hidden: NDArray[np.bool_], m: Floats, q: Floats, solver: Solver
) -> tuple[Floats, Floats]:
    """Coordinate ascent of rows that met the cap: sequential by definition, and rare."""
    m, q = m.copy(), q.copy()
    for row in range(len(m)):
        change, sweeps = np.inf, 0
        while change >= solver.tolerance and sweeps < solver.max_iterations:
            change, sweeps = 0.0, sweeps + 1
            for j in np.flatnonzero(hidden[row]):
                new_m, new_q = ternary_moments(field[row, j] + coupling[j] @ m[row])
                step_m, step_q = new_m - m[row, j], new_q - q[row, j]
                change = max(change, (abs(step_q) + abs(step_m)) / 2, abs(step_q))
                m[row, j], q[row, j] = new_m, new_q
    return m, q


class Patients:
    """B patients in all N entities.

    hidden : (B, M). field, m, q : (N, B, M). constant, bound : (N, B), the bound less log 3 a hidden feature.
    cross : (N, N, B), E_{q_u}[S_v]. votes : (2, Q, B). solves : how many have been made.
    """

    def __init__(self, models: Models, n: int, *, solver: Solver | None = None, start: str = "uniform") -> None:
        self.models, self.solver, self.warm = models, solver or Solver(), start == "warm"
        shape = (models.n_entities, n, len(models.features))
        self.t, self.solves = 0, 0
        self.hidden = np.ones(shape[1:], dtype=bool)
        self.field = np.repeat(models.unary[:, None, :], n, axis=1)
        self.m, self.q = np.zeros(shape), np.full(shape, 2 / 3)
        self.constant = np.repeat(models.prior[:, None], n, axis=1)
        self.bound, self.cross = np.zeros(shape[:2]), np.zeros((shape[0], *shape[:2]))
        self.votes = np.zeros((2, len(models.pairs), n), dtype=np.int64)
        self._refresh(np.ones(shape[:2], dtype=bool), warm=False)
        self.empty = self.elbo()

    def observe(self, features: NDArray[np.int64], values: NDArray[np.int8]) -> None:
        """One feature and value of each patient, (B,) each."""
        models, rows = self.models, np.arange(len(features))
        at = self.field[:, rows, features]
        vote = (at[models.pairs[:, 0]] - at[models.pairs[:, 1]]) * values
        self.votes += np.stack([vote > models.tie, vote < -models.tie])
        self.constant += at * values
        self.hidden[rows, features] = False
        self.field += models.coupling[:, features, :] * values[:, None]
        self.field *= self.hidden
        self.m *= self.hidden
        self.q *= self.hidden
        self.t += 1
        self._refresh(models.holds[:, features], warm=self.warm)

    def elbo(self) -> Floats:
        """(N, B)."""
        return self.constant + self.bound + LOG3 * self.hidden.sum(axis=1)

    def linearity(self) -> Floats:
        """(Q, B) scores of all duels, `linearity` with mixture moments."""
        a, b = self.models.pairs.T
        return 0.5 * ((self.cross[a, a] - self.cross[b, b]) + (self.cross[b, a] - self.cross[a, b]))

    def signs(self) -> NDArray[np.int8]:
        """(7, Q, B) in the order of `afa.engine.run.ENGINE_SCORES`."""
        a, b = self.models.pairs.T
        elbo, (first, second) = self.elbo(), self.votes
        linearity, wald, two_elbo = (
            np.where(np.abs(score) <= self.models.tie, 0, np.sign(score))
            for score in (self.linearity(), self.constant[a] - self.constant[b], elbo[a] - elbo[b])
        )
        kl = [np.sign(2 * first - self.t), -np.sign(2 * second - self.t), np.sign(first - second)]
        return np.stack([linearity, wald, two_elbo, linearity, *kl]).astype(np.int8)

    def _refresh(self, changed: NDArray[np.bool_], *, warm: bool) -> None:
        """Solve the marked entities of each patient, (N, B), then their rows and columns of `cross`."""
        self.solves += int(changed.sum())
        for v in np.flatnonzero(changed.any(axis=1)):
            rows = changed[v]
            hidden = self.hidden[rows]
            m = self.m[v, rows] if warm else np.zeros(hidden.shape)
            q = self.q[v, rows] if warm else hidden * (2 / 3)
            self.m[v, rows], self.q[v, rows], bound = solve(
                self.models.coupling[v], self.field[v, rows], hidden, m, q, self.solver
            )
            self.bound[v, rows] = bound - LOG3 * hidden.sum(axis=1)
        for v, coupling in enumerate(self.models.coupling):
            of, at = np.nonzero(changed | changed[v])
            m = self.m[of, at]
            self.cross[of, v, at] = self.constant[v, at] + (m * (self.field[v, at] + 0.5 * (m @ coupling))).sum(axis=1)


def sign_paths(
    models: Models, values: NDArray[np.int8], orders: NDArray[np.int64], *, start: str = "uniform"
) -> tuple[NDArray[np.int8], int]:
    """Signs (7, B, M + 1, Q) of B trajectories, values and orders (B, M), and the number of solves."""
    patients, rows = Patients(models, len(values), start=start), np.arange(len(values))
    signs = np.empty((7, len(values), orders.shape[1] + 1, len(models.pairs)), dtype=np.int8)
    signs[:, :, 0] = patients.signs().transpose(0, 2, 1)
    for t, features in enumerate(orders.T, start=1):
        patients.observe(features, values[rows, features])
        signs[:, :, t] = patients.signs().transpose(0, 2, 1)
    return signs, patients.solves


class Planner:
    """`TopKPlanner` under `allocation="greedy"` for one patient, `f_target` looking ahead to `linearity`."""

    def __init__(self, models: Models, gain: str) -> None:
        self.models, self.patient = models, Patients(models, 1)
        self._gain = {"wald_magnitude": self._wald_magnitude, "cmi": self._cmi, "f_target": self._f_target}[gain]
        self._couplings = np.array([np.abs(models.coupling[i] - models.coupling[j]).sum() / 2 for i, j in models.pairs])

    def observe(self, feature: int, value: int) -> None:
        a, b = self.models.pairs.T
        self.patient.observe(np.array([feature]), np.array([value], dtype=np.int8))
        rows = self.models.coupling[:, feature, :]
        self._couplings -= np.abs(rows[a] - rows[b]) @ self.patient.hidden[0]

    def next_feature(self) -> int:
        """The hidden feature of largest gain over all open duels; by largest effective unary where none gains."""
        a, b = self.models.pairs.T
        patient, hidden = self.patient, self.patient.hidden[0]
        field, constant = patient.field[:, 0], patient.constant[:, 0]
        budget = np.abs(field[a] - field[b]).sum(axis=1) + self._couplings
        open_ = np.abs(constant[a] - constant[b]) <= budget + self.models.tie
        gains = self._gain(a[open_], b[open_])
        gains[gains < ZERO_GAIN] = 0.0
        for total in (gains.sum(axis=0), np.abs(field).sum(axis=0), hidden.astype(float)):
            worth = np.where(hidden, total, 0.0)
            if worth.max() > 0:
                ties = np.flatnonzero(hidden & (worth >= worth.max() * (1 - RELATIVE_TIE)))
                return int(min(ties, key=lambda j: self.models.features[j]))
        raise ValueError("every feature has been observed")

    def _wald_magnitude(self, a: NDArray[np.int64], b: NDArray[np.int64]) -> Floats:
        field = self.patient.field[:, 0]
        return np.abs(field[a] - field[b])

    def _cmi(self, a: NDArray[np.int64], b: NDArray[np.int64]) -> Floats:
        p_a, p_b, mixed, weight = self._predictive(a, b)
        gain = np.zeros_like(mixed)
        for p, share in ((p_a, weight), (p_b, 1 - weight)):
            gain += share * xlogy(p, np.divide(p, mixed, out=np.ones_like(p), where=mixed > 0))
        return gain.sum(axis=2)

    def _predictive(self, a: NDArray[np.int64], b: NDArray[np.int64]) -> tuple[Floats, Floats, Floats, Floats]:
        """Probabilities of the values under a, under b and mixed, (q, M, 3), and the weight of a, (q, 1, 1)."""
        m, q = self.patient.m[:, 0], self.patient.q[:, 0]
        each = np.stack([(q - m) / 2, 1 - q, (q + m) / 2], axis=2)
        evidence = self.models.prior + self.patient.elbo()[:, 0] - self.patient.empty[:, 0]
        weight = expit(evidence[a] - evidence[b])[:, None, None]
        return each[a], each[b], weight * each[a] + (1 - weight) * each[b], weight

    def _f_target(self, a: NDArray[np.int64], b: NDArray[np.int64]) -> Floats:
        now = self.patient.cross[:, :, 0]
        ahead = self._cross_ahead()
        own, before = np.einsum("fxuu->fxu", ahead), np.diag(now)
        _, _, mixed, _ = self._predictive(a, b)
        change = 0.5 * ((own[..., a] - own[..., b]) + (ahead[..., b, a] - ahead[..., a, b]))
        change -= 0.5 * ((before[a] - before[b]) + (now[b, a] - now[a, b]))
        hidden = np.flatnonzero(self.patient.hidden[0])
        gain = np.zeros((len(a), len(self.models.features)))
        gain[:, hidden] = np.einsum("qfx,fxq->qf", mixed[:, hidden], np.abs(change))
        return gain

    def _cross_ahead(self) -> Floats:
        """(F, 3, N, N) cross expectations after each of the F hidden features takes each value (decisions.md S9).

        Entities that do not hold the feature stay as they are, so that their quadratic terms are computed once.
        """
        models, patient = self.models, self.patient
        hidden = np.flatnonzero(patient.hidden[0])
        field, m = patient.field[:, 0], patient.m[:, 0]
        shape = (len(hidden), 3, models.n_entities, len(models.features))
        ahead_m, ahead_field = np.broadcast_to(m, shape).copy(), np.broadcast_to(field, shape).copy()
        constant = patient.constant[:, 0] + np.array(VALUES)[None, :, None] * field[:, hidden].T[:, None, :]
        quadratic = np.empty((*shape[:3], models.n_entities))
        quadratic[:] = np.stack([((m @ coupling) * m).sum(axis=1) for coupling in models.coupling], axis=1) / 2
        for u, coupling in enumerate(models.coupling):
            held = np.flatnonzero(models.holds[u, hidden])
            if not len(held):
                continue
            features, value = np.repeat(hidden[held], 3), np.tile(VALUES, len(held))
            left = np.repeat(patient.hidden, len(features), axis=0)
            left[np.arange(len(features)), features] = False
            fields = (field[u] + coupling[features] * value[:, None]) * left
            solved, _, _ = solve(coupling, fields, left, np.zeros(left.shape), left * (2 / 3), patient.solver)
            ahead_m[held, :, u] = solved.reshape(len(held), 3, -1)
            ahead_field[held, :, u] = fields.reshape(len(held), 3, -1)
            for v, of_v in enumerate(models.coupling):
                quadratic[held, :, u, v] = (((solved @ of_v) * solved).sum(axis=1) / 2).reshape(len(held), 3)
        linear = ahead_m @ ahead_field.swapaxes(2, 3)
        return constant[:, :, None, :] + linear + quadratic
