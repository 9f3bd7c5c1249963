"""Represent one patient in the engine: observe features, and compute scores, bounds and gains of entity pairs."""

from __future__ import annotations

from weakref import WeakKeyDictionary

import numpy as np
from scipy.special import softmax

from afa.engine.budgets import entity_budgets
from afa.engine.duels import refresh_budgets, variances, vote_among
from afa.engine.gains import F_LINEARITY, GAIN_KINDS
from afa.engine.layout import Packed, pack
from afa.engine.patient_state import PatientState
from afa.engine.ranks import RankTable, copy_table, new_table, rank_all, refresh_table
from afa.engine.rules import total_unary
from afa.engine.sharing import (
    FeatureMajorState,
    GainCache,
    add_weighted,
    copy_mirror,
    gain_by_row,
    new_mirror,
    observe_among,
    sharing_of,
    solve_every,
)
from afa.engine.state import State, condition, copy_state, elbos, new_state
from afa.engine.sweeps import Iteration, iteration_of
from afa.inference.exact import exact, pair_moments
from afa.inference.meanfield import Solver
from afa.inference.result import probabilities_of
from afa.model.arrays import Bools, Floats, Ints
from afa.model.bundle import Bundle
from afa.model.mrf import Evidence
from afa.scores.gain import information
from afa.scores.preference import gaussian_sign

Start = tuple[State, FeatureMajorState, RankTable]
PATIENT_STARTS: WeakKeyDictionary[Bundle, dict[Iteration, Start]] = WeakKeyDictionary()
"""For each bundle and solver setting: the state before any observation, its copy for `sharing`, and its scores."""


class Patient(PatientState):
    """State of one patient for all N entities of a bundle, computed by the engine.

    Parameters
    ----------
    solver, start : settings and start of the mean-field iteration
    inference : `mean_field`, or `exact`, which is slower by orders of magnitude and raises an `InferenceError` for
        models that are too dense
    gain, target : kind of the gains
    look_ahead : marginals from which the mean-field runs of the gain `f_target` start: `same` as `start`, or `warm` for
        the present marginals

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
        calibrated: bool = False,
    ) -> None:
        solver, kind = solver or Solver(), GAIN_KINDS[gain, target]
        self.packed = pack(bundle, overlaps=kind >= F_LINEARITY)
        n = self.n_entities = len(bundle.entities)
        first_round = iteration_of(solver)
        self._iteration = first_round._replace(warm=start == "warm")
        self._sharing = sharing_of(bundle)
        self.state, self._mirror, self._table = _copy_start(bundle, self.packed, first_round)
        self._exact = ExactModels(bundle, self.packed, self.state) if inference == "exact" else None
        self._stale_scores = np.full(n, self._exact is not None)
        self._ballots: list[tuple[Ints, Floats]] = []
        self._votes = np.zeros((self.n_duels, 2), dtype=np.int64)
        self._empty = self.elbo()
        self._offset = (self._empty - self.packed.prior) * calibrated
        lookahead = first_round._replace(warm="warm" in (start, look_ahead))
        self._gains = GainCache(self.packed, kind, self._empty, lookahead)
        self._round = 1  # the state before any observation
        self._changed_at = np.ones(n, dtype=np.int64)
        self._budget = np.zeros(self.n_duels)
        self._budget_at = np.zeros(self.n_duels, dtype=np.int32)

    @property
    def n_observed(self) -> int:
        return int(self.state.observed.sum())

    @property
    def closed(self) -> Bools:
        """Return for each feature whether it is observed.

        Returns
        -------
        closed : (M,) bool

        """
        return self.state.observed.copy()

    def observe(self, feature: int, value: int) -> None:
        """Set the value of one feature. The models of entities without this feature in their support do not change."""
        packed, state = self.packed, self.state
        slots = packed.feature_slots[packed.first_feature_slot[feature] : packed.first_feature_slot[feature + 1]]
        entities = packed.owner[slots]
        self._ballots.append((entities, state.field[slots] * value))
        if self._exact:
            condition(packed, state, feature, value)
            self._exact.observe(feature, value, entities)
        else:
            observe_among(packed, self._sharing, state, self._mirror, feature, value, self._iteration)
        self._round += 1
        self._stale_scores[entities] = True
        self._changed_at[entities] = self._round

    def elbo(self) -> Floats:
        """Return the log-partition of each entity's model given the observations (exact, or an ELBO).

        Returns
        -------
        log_partitions : (N,) float64, nats

        """
        return elbos(self.state, self.packed.n_features - self.n_observed)

    def log_evidence(self) -> Floats:
        """Return log P(x_obs | v) plus the prior log-odds of each entity v.

        The difference between two entries is the posterior log-odds between the two entities.

        Returns
        -------
        evidence : (N,) float64, nats

        """
        evidence: Floats = self.packed.prior + self.elbo() - self._empty
        return evidence

    def scores(self, score: str) -> Floats:
        """Return a preference score (`afa.scores.preference`) of all entity pairs, with rounding errors set to 0.

        Returns
        -------
        scores : (N, N) float64, antisymmetric; above 0 if the row's entity is preferred

        """
        if score == "linearity":
            return self._current_rank_table().scores.copy()
        if score in ("kl", "kl_nonzero"):
            return self._vote_scores(score)
        if score == "stack_a":
            return self._stack_a_scores()
        by_entity = self.state.constant if score == "wald" else self.elbo()
        values = by_entity[:, None] - by_entity[None, :]
        return np.where(np.abs(values) <= self.packed.tie, 0.0, values)

    def present_scores(self, score: str) -> Floats:
        """Return the same array as `scores`, but read-only. The next observation may change the array.

        Returns
        -------
        scores : (N, N) float64

        """
        scores = (self._current_rank_table().scores if score == "linearity" else self.scores(score)).view()
        scores.flags.writeable = False
        return scores

    def known_ranks(self, score: str, name_rank: Ints) -> Ints | None:
        """Return the rank of each entity by the score `linearity`, or None if the argument names another score.

        Parameters
        ----------
        name_rank : (N,) int64, position of each entity in the order of names, which breaks ties

        Returns
        -------
        ranks : (N,) int64, 1 for the most preferred entity, or None

        """
        return rank_all(self._current_rank_table(), name_rank, self.packed.tie) if score == "linearity" else None

    def intervals(self) -> Floats:
        """Return for each entity v a lower and an upper bound on S_v, given the observed features (eq:l1-bracket).

        Returns
        -------
        intervals : (N, 2) float64, nats

        """
        budget = entity_budgets(self.packed, self.state)
        return np.column_stack([self.state.constant - budget, self.state.constant + budget])

    def lead(self, duels: Ints | None = None) -> Floats:
        """Return Lambda_ab, the part of the log-odds D from observed features, for each given duel (entity pair).

        Parameters
        ----------
        duels : (q,) int64, ascending indices of duels, or None for all

        Returns
        -------
        lead : (q,) float64, nats

        """
        a, b = self.sides(duels).T
        lead: Floats = self.state.constant[a] - self.state.constant[b]
        return lead

    def resolved(self, duels: Ints | None = None) -> Bools:
        """Return True for each given duel (entity pair) whose winner no further observation can change.

        A duel counts as resolved if bounds show that the unobserved features cannot change the sign of the log-odds D.

        Parameters
        ----------
        duels : (q,) int64, ascending indices of duels, or None for all

        Returns
        -------
        resolved : (q,) bool

        """
        chosen, pairs, now = np.arange(self.n_duels) if duels is None else duels, self.sides(duels), self._round
        refresh_budgets(self.packed, self.state, chosen, pairs, self._budget, self._budget_at, self._changed_at, now)
        lead = self.lead(duels) - (self._offset[pairs[:, 0]] - self._offset[pairs[:, 1]])
        resolved_sign: Bools = np.abs(lead) > self._budget[chosen] + self.packed.tie
        return resolved_sign

    def gains(self, duels: Bools) -> Floats:
        """Return the gain of each feature for each given duel (entity pair).

        Parameters
        ----------
        duels : (Q,) bool, True for the q duels whose gains are returned

        Returns
        -------
        gains : (q, M) float64, nats for `cmi`, else in the unit of the score

        """
        chosen = np.flatnonzero(duels)
        table = np.zeros((len(chosen), self.packed.n_features))
        gains, rows = self._gains.rows(self.state, chosen, self._changed_at, self._round)
        size = gains.first[rows + 1] - gains.first[rows]
        place = np.repeat(np.arange(len(rows)), size)
        entry = np.arange(len(place)) + np.repeat(gains.first[rows] - (np.cumsum(size) - size), size)
        table[place, gains.feature[entry]] = gains.gain[entry]
        return table

    def gain_of(self, features: list[int], duels: Ints) -> Floats:
        """Return for each given duel (entity pair) the sum of the gains of the given features.

        Parameters
        ----------
        duels : (q,) int64, ascending indices of duels

        Returns
        -------
        total : (q,) float64

        """
        total, wanted = np.zeros(len(duels)), np.zeros(self.packed.n_features, dtype=np.bool_)
        wanted[features] = True
        gain_by_row(*self._gains.rows(self.state, duels, self._changed_at, self._round), wanted, total)
        return total

    def summed_gain(self, duels: Ints, weights: Floats) -> Floats:
        """Return for each feature the weighted sum of its gains over the given entity pairs (eq:feature_selection).

        Parameters
        ----------
        duels : (q,) int64, ascending indices of duels
        weights : (q,) float64

        Returns
        -------
        total : (M,) float64

        """
        total = np.zeros(self.packed.n_features)
        add_weighted(*self._gains.rows(self.state, duels, self._changed_at, self._round), weights, total)
        return total

    def information(self) -> Floats:
        """Return how much information the value of each feature gives about which entity is present.

        The result is the mutual information, under the assumption that the patient has exactly one of the N entities.

        Returns
        -------
        information : (M,) float64, nats, 0 for observed features

        """
        packed, state = self.packed, self.state
        predictive = np.full((len(packed.prior), packed.n_features, 3), 1 / 3)
        predictive[packed.owner, packed.feature] = probabilities_of(state.m, state.q)
        return np.where(state.observed, 0.0, information(softmax(self.log_evidence()), predictive))

    def total_unary(self) -> Floats:
        """Return for each feature the sum over the entities of its absolute effective unary potentials.

        Returns
        -------
        total : (M,) float64, nats

        """
        return total_unary(self.packed, self.state)

    def _current_rank_table(self) -> RankTable:
        if self._stale_scores.any():
            refresh_table(self.state.cross, self._stale_scores, self.packed.tie, self._table)
            self._stale_scores[:] = False
        return self._table

    def _stack_a_scores(self) -> Floats:
        means = self.scores("linearity")
        a, b = self.pairs.T
        of_duels = zip(means[a, b].tolist(), variances(self.packed, self.state, self.pairs).tolist(), strict=True)
        scores = np.zeros_like(means)
        scores[a, b] = [gaussian_sign(mean, variance) for mean, variance in of_duels]
        return scores - scores.T

    def _vote_scores(self, score: str) -> Floats:
        for entities, terms in self._ballots:
            vote_among(entities, terms, len(self.packed.prior), self.packed.tie, self._votes)
        self._ballots.clear()
        positive = np.zeros((len(self.packed.prior),) * 2)
        positive[self.pairs[:, 0], self.pairs[:, 1]] = self._votes[:, 0]
        positive[self.pairs[:, 1], self.pairs[:, 0]] = self._votes[:, 1]
        n = np.full_like(positive, self.n_observed) if score == "kl" else positive + positive.T
        share = np.divide(2 * positive - n, n, out=np.zeros_like(positive), where=n > 0)
        np.fill_diagonal(share, 0.0)
        return share


def _copy_start(bundle: Bundle, packed: Packed, iteration: Iteration) -> Start:
    """Return a copy of the mean-field state before any observation, from a cache for each bundle and solver."""
    starts = PATIENT_STARTS.setdefault(bundle, {})
    if iteration not in starts:
        n = len(packed.prior)
        state, mirror, table = new_state(packed), new_mirror(packed), new_table(n)
        solve_every(packed, sharing_of(bundle), state, mirror, iteration)
        refresh_table(state.cross, np.ones(n, dtype=np.bool_), packed.tie, table)
        starts[iteration] = state, mirror, table
    state, mirror, table = starts[iteration]
    return copy_state(state), copy_mirror(mirror), copy_table(table)


class ExactModels:
    """Exact inference on the models of all entities.

    The resulting moments, log-partitions and cross expectations are written into a `State`.

    Raises
    ------
    InferenceError : a model is too dense; the message includes the estimated cost

    """

    def __init__(self, bundle: Bundle, packed: Packed, state: State) -> None:
        self._evidence = [Evidence.of(bundle.mrf(entity)) for entity in bundle.entities]
        self._packed, self._state = packed, state
        self._moments: dict[int, tuple[Floats, Floats]] = {}
        self._solve_entities(np.arange(len(bundle.entities)))

    def observe(self, feature: int, value: int, holders: Ints) -> None:
        """Condition every entity's model on one observed value.

        Run exact inference again on the models with this feature in their support.

        The caller conditions `state`.

        Parameters
        ----------
        holders : (n,) int64, entities with the feature in their support

        """
        self._evidence = [evidence.observe(feature, value) for evidence in self._evidence]
        self._solve_entities(holders)

    def _solve_entities(self, changed: Ints) -> None:
        """Run exact inference on the given entities' models, and update their rows and columns of `State.cross`."""
        state = self._state
        for v in changed.tolist():
            evidence = self._evidence[v]
            solution = exact(evidence.mrf, evidence)
            slots = slice(self._packed.first_slot[v], self._packed.first_slot[v + 1])
            features = self._packed.feature[slots]
            state.m[slots], state.q[slots] = solution.marginals.first[features], solution.marginals.second[features]
            state.bound[v] = solution.log_partition - evidence.constant - evidence.log_volume
            state.n_free[v] = len(evidence.free)
            self._moments[v] = pair_moments(evidence.mrf, evidence)
        for u, v in np.ndindex(state.cross.shape):
            if u in changed or v in changed:
                state.cross[u, v] = self._expected_score(u, v)

    def _expected_score(self, u: int, v: int) -> float:
        """Return E_{p_u}[S_v | x_obs] in nats, from the exact first and pair moments of u."""
        first, pairs = self._moments[u]
        free, of_v = self._evidence[u].free, self._evidence[v]
        quadratic = 0.5 * of_v.mrf.couplings[free][:, free].multiply(pairs).sum()
        return float(of_v.constant + of_v.field @ first + quadratic)
