"""One patient followed by the engine: observe features, read any score, bracket or gain of every duel."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from afa.bundle import Bundle
from afa.engine.ahead import F_LINEARITY, F_STACK_A, F_TWO_ELBO, new_ahead, solve_ahead
from afa.engine.duels import refresh_budgets, variances, vote
from afa.engine.exactly import ExactModels
from afa.engine.gains import CMI, WALD_MAGNITUDE, Gains, add_up, new_gains, refresh_gains
from afa.engine.kernels import Iteration, condition, elbo, new_state, observe, solve_all
from afa.engine.packed import Packed, pack
from afa.engine.trajectories import all_pairs
from afa.inference.meanfield import Solver
from afa.mrf import Floats
from afa.preference import duels_of, gaussian_sign

GAIN_KINDS = {
    ("wald_magnitude", None): WALD_MAGNITUDE,
    ("cmi", None): CMI,
    ("f_target", "linearity"): F_LINEARITY,
    ("f_target", "two_elbo"): F_TWO_ELBO,
    ("f_target", "stack_a"): F_STACK_A,
}


class Patient:
    """The state of one patient in all N entities of a bundle.

    solver, start : of the mean-field iteration. inference : `mean_field`, or `exact`, which is slower by orders of
    magnitude and raises `InferenceError` on models too dense for it. gain, target : which gains `gains` keeps.
    look_ahead : where the solves of `f_target` start, `same` as the score or `warm` from the present marginals.
    packed : the bundle's layout, where it has been made already.
    """

    def __init__(
        self,
        bundle: Bundle,
        *,
        solver: Solver | None = None,
        start: str = "uniform",
        inference: str = "mean_field",
        gain: str = "wald_magnitude",
        target: str | None = None,
        look_ahead: str = "same",
        packed: Packed | None = None,
    ) -> None:
        solver = solver or Solver()
        self.packed = pack(bundle) if packed is None else packed
        self.pairs = all_pairs(len(bundle.entities))
        self.state = new_state(self.packed)
        first_round = Iteration(solver.damping, solver.tolerance, solver.max_iterations, False)
        self._iteration = first_round._replace(warm=start == "warm")
        self._ahead_iteration = first_round._replace(warm="warm" in (start, look_ahead))
        self._exact = ExactModels(bundle, self.packed, self.state) if inference == "exact" else None
        if self._exact:
            self._exact.solve(range(len(bundle.entities)))
        else:
            solve_all(self.packed, self.state, first_round)
        self._votes = np.zeros((len(self.pairs), 2), dtype=np.int64)
        self._empty = self.elbo()
        self._kind = GAIN_KINDS[gain, target]
        self._gains = new_gains(self.packed, self.pairs)
        self._ahead = new_ahead(self.packed)
        self._budget = np.zeros(len(self.pairs))
        self._stale_budget = np.ones(len(bundle.entities), dtype=bool)
        self._stale_gain = self._stale_budget.copy()

    @property
    def n_observed(self) -> int:
        return int(self.state.observed.sum())

    def observe(self, feature: int, value: int) -> None:
        """Take in one value; entities that do not hold the feature are left as they are (spec M6)."""
        vote(self.packed, self.state, self.pairs, self._votes, feature, value)
        if self._exact:
            condition(self.packed, self.state, feature, value)
            self._exact.observe(feature, value)
        else:
            observe(self.packed, self.state, feature, value, self._iteration)
        holders = self.packed.holder[self.packed.first_holder[feature] : self.packed.first_holder[feature + 1]]
        for stale in (self._stale_budget, self._stale_gain):
            stale[self.packed.owner[holders]] = True

    def elbo(self) -> Floats:
        """(N,) log-partition estimates given what has been observed: ELBOs, or exact values."""
        hidden = self.packed.n_features - self.n_observed
        return np.array([elbo(self.state, v, hidden) for v in range(len(self.packed.prior))])

    def log_evidence(self) -> Floats:
        """(N,) log P(x_obs | v) plus prior log-odds: its differences are posterior log-odds of a duel (spec S7)."""
        evidence: Floats = self.packed.prior + self.elbo() - self._empty
        return evidence

    def scores(self, score: str) -> Floats:
        """(N, N) preference scores by name, as in `afa.preference`; magnitudes of rounding are 0."""
        if score in ("kl", "kl_nonzero"):
            return self._vote_scores(score)
        if score == "stack_a":
            return self._stack_a()
        if score == "linearity":
            values = duels_of(self.state.cross)
        else:
            by_entity = self.state.constant if score == "wald" else self.elbo()
            values = by_entity[:, None] - by_entity[None, :]
        return np.where(np.abs(values) <= self.packed.tie, 0.0, values)

    def lead(self) -> Floats:
        """(Q,) D of what has been observed, Lambda_ab."""
        constant = self.state.constant
        lead: Floats = constant[self.pairs[:, 0]] - constant[self.pairs[:, 1]]
        return lead

    def resolved(self) -> NDArray[np.bool_]:
        """(Q,) duels whose sign at full observation no completion can change (tight `l1` bracket)."""
        refresh_budgets(self.packed, self.state, self.pairs, self._budget, self._stale_budget)
        self._stale_budget[:] = False
        settled: NDArray[np.bool_] = np.abs(self.lead()) > self._budget + self.packed.tie
        return settled

    def gains(self, duels: NDArray[np.bool_]) -> Floats:
        """(q, M) gains of the chosen duels; `duels` is a (Q,) mask."""
        self._refresh_gains()
        chosen = np.flatnonzero(duels)
        table = np.zeros((len(chosen), self.packed.n_features))
        for row, p in enumerate(chosen):
            part = slice(self._gains.first[p], self._gains.first[p + 1])
            table[row, self._gains.feature[part]] = self._gains.gain[part]
        return table

    def gain_entries(self) -> Gains:
        """Gains of every duel at every feature of its supports, up to date; not to be changed."""
        self._refresh_gains()
        return self._gains

    def total_gain(self, closed: NDArray[np.bool_]) -> Floats:
        """(M,) gains summed over the duels that are not closed; `closed` is a (Q,) mask."""
        self._refresh_gains()
        total = np.zeros(self.packed.n_features)
        add_up(self._gains, closed, total)
        return total

    def fields(self) -> Floats:
        """(N, M) effective unaries, 0 outside supports and at observed features."""
        fields = np.zeros((len(self.packed.prior), self.packed.n_features))
        fields[self.packed.owner, self.packed.feature] = self.state.field
        return fields

    def _refresh_gains(self) -> None:
        if not self._stale_gain.any():
            return
        if self._kind in (F_LINEARITY, F_TWO_ELBO, F_STACK_A):
            solve_ahead(self.packed, self.state, self._ahead, self._stale_gain, self._ahead_iteration)
        refresh_gains(self.packed, self.state, self._ahead, self._gains, self._empty, self._kind, self._stale_gain)
        self._stale_gain[:] = False

    def _stack_a(self) -> Floats:
        means = self.scores("linearity")
        scores = np.zeros_like(means)
        for (a, b), variance in zip(self.pairs, variances(self.packed, self.state, self.pairs), strict=True):
            scores[a, b] = gaussian_sign(float(means[a, b]), float(variance))
            scores[b, a] = -scores[a, b]
        return scores

    def _vote_scores(self, score: str) -> Floats:
        positive = np.zeros((len(self.packed.prior),) * 2)
        positive[self.pairs[:, 0], self.pairs[:, 1]] = self._votes[:, 0]
        positive[self.pairs[:, 1], self.pairs[:, 0]] = self._votes[:, 1]
        n = np.full_like(positive, self.n_observed) if score == "kl" else positive + positive.T
        share = np.divide(2 * positive - n, n, out=np.zeros_like(positive), where=n > 0)
        np.fill_diagonal(share, 0.0)
        return share
