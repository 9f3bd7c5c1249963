"""Compute one patient's scores and gains from class-conditional probabilities (docs/decisions.md, F1-F13).

`ExplicitPatient` has the same interface as `afa.engine.patient.Patient`, but does not use compiled kernels. A
hypothesis is the statement that an entity is present, or that it is absent. Duels compare two hypotheses. A side
contains the two models of one hypothesis (`afa.planner.sides`).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from itertools import combinations

import numpy as np
from scipy.special import softmax

from afa.engine.patient_state import PatientState
from afa.errors import Fault, PlannerError
from afa.inference.exact import exact
from afa.inference.meanfield import Solver, mean_field, moments_of
from afa.inference.result import Marginals, spread
from afa.model.arrays import Bools, Floats, Ints
from afa.model.mrf import Evidence
from afa.planner.sides import Fixed, score_table_of
from afa.scores.belief import ScoreTable
from afa.scores.gain import ZERO_GAIN, divergence, information, site_probabilities

ENUMERATED = 10
"""Up to this many unobserved features of an exclusive group, a bound enumerates every subset; beyond, it is wider."""
DUELS_PER_PART = 500


class ExplicitPatient(PatientState):
    """Compute and store the state of one patient from class-conditional probabilities.

    In the shapes of arrays, N is the number of hypotheses, Q = N (N - 1) / 2 the number of duels (comparisons of two
    hypotheses), and M the number of features.

    The method `observe` only marks the hypotheses that an observation affects. Inference for these hypotheses runs when
    a method needs its results.

    Parameters
    ----------
    rivals : True if at most one hypothesis is true; the gain of a duel is then about which of its two hypotheses is
        true. False for a binary question, or if each hypothesis can be true independently; the gain is then the sum
        over both hypotheses
    may_be_none : True if it is possible that no hypothesis is true; used only if `rivals` is True
    inference : `mean_field` or `exact`
    gain : `cmi` or `wald_magnitude`
    tau : factor that shrinks log-odds towards the prior (F16); sides with `repeats` compute their own factor

    """

    def __init__(
        self,
        packed: Fixed,
        *,
        rivals: bool,
        inference: str,
        gain: str,
        may_be_none: bool = False,
        tau: float = 1.0,
        solver: Solver | None = None,
    ) -> None:
        n, m = packed.feature_slots.shape
        self.n_entities = n
        self.packed, self.rivals, self.gain = packed, rivals, gain
        self.tau = np.full(n, tau)
        self.may_be_none = may_be_none
        self._exactly, self._solver = inference == "exact", solver
        self.observed = np.zeros(m, dtype=bool)
        self.values = np.zeros(m, dtype=np.int8)
        self._states = [(Evidence.of(side.one), Evidence.of(side.zero)) for side in packed.sides]
        self.log_odds, self.leads = np.zeros(n), np.zeros(n)
        self.terms = np.zeros((n, m, 3))
        self.predictive = np.broadcast_to(packed.background, (2, n, m, 3)).copy()
        self._round, self._changed_at = 1, np.ones(n, dtype=np.int64)
        self._bounds, self._bounds_at = np.zeros((self.n_duels, 2)), np.zeros(self.n_duels, dtype=np.int64)
        self._stale = np.ones(n, dtype=bool)
        self._solve_stale()
        self._empty = self.log_odds.copy()

    def observe(self, feature: int, value: int) -> None:
        """Record one observed value.

        If the models of a hypothesis do not contain the feature, the state of the hypothesis does not change.
        """
        self.observed[feature], self.values[feature] = True, value
        self._round += 1
        grouped = any(feature in group for group in self.packed.groups)
        for v, place in enumerate(self.packed.feature_slots[:, feature]):
            if place >= 0 and not grouped:
                one, zero = self._states[v]
                self._states[v] = one.observe(int(place), value), zero.observe(int(place), value)
            self._stale[v] |= place >= 0 or grouped

    def score_table(self, entities: tuple[str, ...], features: tuple[str, ...]) -> ScoreTable:
        """Return the `ScoreTable` from which `Belief` computes the hypotheses' expected scores (docs/frontier.md).

        The log-odds in the table are shrunk by the factor tau. Raise a `PlannerError` if tau is `effective`, because
        this tau depends on which features are observed.
        """
        if any(side.repeats is not None for side in self.packed.sides):
            found, step = "tau effective with a background", "give tau a number, or leave it out"
            raise PlannerError(Fault("planner option tau", found, "a number", step))
        table, tau = score_table_of(self.packed, entities, features), self.tau
        return replace(
            table,
            constant=self._empty + tau * (table.constant - self._empty),
            terms=table.terms * tau[table.entity, None],
            psi=table.psi * tau[table.owner],
        )

    @property
    def closed(self) -> Bools:
        """Return a mask of the features that cannot be suggested, as an array of shape (M,).

        A feature cannot be suggested if it is observed, or if a feature of its exclusive group is observed as +1.
        """
        closed = self.observed.copy()
        for group in self.packed.groups:
            closed[group] |= (self.values[group] == 1).any()
        return closed

    def _solve_stale(self) -> None:
        for v in np.flatnonzero(self._stale):
            self._solve_hypothesis(int(v))
        self._stale[:] = False

    def _solve_hypothesis(self, v: int) -> None:
        """Compute the log-odds of one hypothesis, and the probabilities and energy differences of its features.

        The computation uses all observations so far (docs/decisions.md, F2c, F3 and F11).
        """
        side, states = self.packed.sides[v], self._states[v]
        self.leads[v] = states[0].constant - states[1].constant
        solved = [self._run_inference(state) for state in states]
        self.log_odds[v] = solved[0][0] - solved[1][0]
        for e, (_, marginals) in enumerate(solved):
            self.predictive[e, v, side.at] = site_probabilities(marginals)
        terms = states[0].terms - np.where(side.one.possible, states[1].terms, 0.0)
        self.terms[v, side.at] = np.where(side.one.possible, terms, 0.0)
        for group, classes in zip(self.packed.groups, side.members, strict=True):
            odds = self._solve_group(v, group, classes)
            self.leads[v] += odds
            self.log_odds[v] += odds
        if side.repeats is not None:
            self.tau[v] = side.repeats.believed(self.observed[side.at])
        self._changed_at[v] = self._round

    def _run_inference(self, state: Evidence) -> tuple[float, Marginals]:
        if not state.mrf.couplings.nnz:
            return state.constant, spread(state, *moments_of(state.mrf.terms[state.free]))
        if self._exactly:
            found = exact(state.mrf, state)
            return found.log_partition, found.marginals
        solution = mean_field(state.mrf, state, solver=self._solver)
        return solution.elbo, solution.marginals

    def _solve_group(self, v: int, group: Ints, classes: Floats) -> float:
        """Write the probabilities of the features of an exclusive group, and the log-ratios of these probabilities.

        A log-ratio compares the two models of the hypothesis with the index v.

        Return the log-odds that the observed features of the group add (docs/decisions.md, F13).
        """
        open_, hit = ~self.observed[group], self.values[group] == 1
        left = 1.0 - (classes * (self.observed[group] & ~hit)).sum(axis=1)
        if hit.any():
            self.predictive[:, v, group] = (0.0, 1.0, 0.0)
            self.terms[v, group] = 0.0
            seen = classes[:, hit][:, 0]
            return float(np.log(seen[0] / seen[1]))
        chance = np.where(open_, classes / left[:, None], 0.5)
        by_value = np.stack([np.zeros_like(chance), 1.0 - chance, chance], axis=-1)
        self.predictive[:, v, group] = by_value
        self.terms[v, group, 1:] = np.log(by_value[0, :, 1:] / by_value[1, :, 1:])
        return float(np.log(left[0] / left[1]))

    def log_evidence(self) -> Floats:
        """Return the log-odds of each hypothesis in nats, as an array of shape (N,).

        The log-odds include the prior, and are shrunk towards it by the factor `tau` (docs/decisions.md, F16).
        """
        self._solve_stale()
        return self._shrink_log_odds(self.log_odds)

    def _shrink_log_odds(self, log_odds: Floats) -> Floats:
        return np.asarray(self._empty + self.tau * (log_odds - self._empty))

    def scores(self, score: str) -> Floats:
        """Return the preference scores in nats, as an array of shape (N, N).

        The parameter `score` is `two_elbo` or `wald`. A score counts as 0 if it may differ from 0 only by rounding.
        """
        self._solve_stale()
        by_side = self._shrink_log_odds(self.leads if score == "wald" else self.log_odds)
        values = by_side[:, None] - by_side[None, :]
        return np.where(np.abs(values) <= self.packed.tie, 0.0, values)

    def lead(self, duels: Ints | None = None) -> Floats:
        """Return the log-odds of hypothesis a over hypothesis b for each duel (a, b), from the observed features alone.

        The parameter `duels` contains the indices of the duels in ascending order. By default, all duels are included.
        The result is in nats and has one element for each duel.
        """
        self._solve_stale()
        a, b = self.sides(duels).T
        leads = self._shrink_log_odds(self.leads)
        return np.asarray(leads[a] - leads[b])

    def resolved(self, duels: Ints | None = None) -> Bools:
        """Return a mask of the resolved duels (comparisons of two hypotheses; docs/decisions.md, F12).

        A duel is resolved if no values of the unobserved features can change its winner. Scores from mean-field
        inference differ from exact scores by a constant, kappa. If kappa is known, a duel counts as resolved only if
        its winner is certain for both kinds of scores.

        Parameters
        ----------
        duels : (q,) int64, ascending indices of duels, or None for all

        """
        self._solve_stale()
        chosen = np.arange(self.n_duels) if duels is None else duels
        pairs = self.sides(duels)
        stale = self._changed_at[pairs].max(axis=1, initial=0) > self._bounds_at[chosen]
        for duel, (a, b) in zip(chosen[stale], pairs[stale], strict=True):
            self._bounds[duel] = self._interval(int(a), int(b))
        self._bounds_at[chosen] = self._round
        kappa = self.packed.kappa[pairs[:, 0]] - self.packed.kappa[pairs[:, 1]]
        low = self._bounds[chosen, 0] - np.maximum(kappa, 0.0)
        high = self._bounds[chosen, 1] - np.minimum(kappa, 0.0)
        return np.asarray((low > self.packed.tie) | (high < -self.packed.tie))

    def intervals(self) -> Floats:
        """Return bounds on each hypothesis's score S_v over all values of the unobserved features, in nats.

        The result has the shape (N, 2): a lower and an upper bound for each hypothesis.
        """
        self._solve_stale()
        return np.array([self._interval(v, None) for v in range(len(self.packed.sides))])

    def _interval(self, a: int, b: int | None) -> tuple[float, float]:
        """Return a lower and an upper bound on S_a or, if b is given, on S_a - S_b (docs/decisions.md, F12).

        The bounds are the score from the observed features plus contributions of the unobserved features and pairs of
        features. The lower bound uses the smallest possible contributions, and the upper bound uses the largest. A
        contribution of 0 is always possible, because a feature can remain unmeasured.
        """
        repeats = self.packed.sides[a].repeats
        if b is not None and repeats is not None:  # tau depends on the hypothesis and on the observed features
            (low, high), (other_low, other_high) = self._interval(a, None), self._interval(b, None)
            return low - other_high, high - other_low
        sides = [(1.0, a)] if b is None else [(1.0, a), (-1.0, b)]
        unary = self.terms[a] if b is None else self.terms[a] - self.terms[b]
        counted = ~self.observed
        for group in self.packed.groups:
            counted[group] = False
        links, ends = self.packed.links_of(*(v for _, v in sides))
        low, high = ends[:, ~self.observed[links].any(axis=1)].sum(axis=1)
        low += float(np.minimum(np.minimum(unary[:, 0], unary[:, 1]), np.minimum(unary[:, 2], 0.0))[counted].sum())
        high += float(np.maximum(np.maximum(unary[:, 0], unary[:, 1]), np.maximum(unary[:, 2], 0.0))[counted].sum())
        at = sum(sign * float(self.leads[v]) for sign, v in sides)
        for i, group in enumerate(self.packed.groups):
            least, most = self._group_interval(group, [(sign, self.packed.sides[v].members[i]) for sign, v in sides])
            low, high = low + least, high + most
        start = sum(sign * float(self._empty[v]) for sign, v in sides)
        low, high = at + low - start, at + high - start
        if repeats is not None:
            return start + min(low, repeats.least * low), start + max(high, repeats.least * high)
        tau = float(self.tau[a])
        return start + tau * low, start + tau * high

    def _group_interval(self, group: Ints, sides: Sequence[tuple[float, Floats]]) -> tuple[float, float]:
        """Return bounds, in nats, on the contribution of the unobserved features of an exclusive group to a score."""
        open_, seen = (np.flatnonzero(self.observed[group] == known) for known in (False, True))
        if (self.values[group] == 1).any() or not len(open_):
            return 0.0, 0.0
        sign = np.array([(sign, -sign) for sign, _ in sides])
        chances = np.stack([classes for _, classes in sides])  # (sides, 2, g)
        before = 1.0 - chances[:, :, seen].sum(axis=2)

        def rest(unseen: list[np.int64] | Ints) -> Floats:
            return np.asarray(np.log((before - chances[:, :, unseen].sum(axis=2)) / before))

        ends = [float((sign * np.log(chances[:, :, j] / before)).sum()) for j in open_]
        if len(open_) <= ENUMERATED:
            subsets = (list(part) for size in range(len(open_) + 1) for part in combinations(open_, size))
            ends += [float((sign * rest(part)).sum()) for part in subsets]
        else:
            span = -float(rest(open_).sum())
            ends += [-span, span]
        return min(0.0, *ends), max(0.0, *ends)

    def gains(self, duels: Bools) -> Floats:
        """Return the gain of each feature for the selected duels (comparisons of two hypotheses), in nats.

        The parameter `duels` is a mask of shape (Q,). The result has the shape (q, M), where q is the number of
        selected duels.
        """
        return self._gains_of_duels(np.flatnonzero(duels))

    def gain_of(self, features: list[int], duels: Ints) -> Floats:
        """Return, for each given duel (comparison of two hypotheses), the sum of the given features' gains, in nats.

        The result has the shape (q,).

        Parameters
        ----------
        duels : (q,) int64, ascending

        """
        return np.asarray(self._gains_of_duels(duels)[:, features].sum(axis=1))

    def summed_gain(self, duels: Ints, weights: Floats) -> Floats:
        """Return the weighted sum of each feature's gains over the given duels, in nats (eq:feature_selection).

        A duel is a comparison of two hypotheses. The result has the shape (M,).

        Parameters
        ----------
        duels : (q,) int64, ascending
        weights : (q,) float64

        """
        total = np.zeros(len(self.observed))
        for part in np.split(np.arange(len(duels)), range(DUELS_PER_PART, len(duels), DUELS_PER_PART)):
            total += weights[part] @ self._gains_of_duels(duels[part])
        return total

    def total_unary(self) -> Floats:
        """Return for each feature the half range of its contribution to a score S_v, summed over all hypotheses v.

        The half range, in nats, is half the difference between the largest and the smallest possible contribution. The
        result has the shape (M,) and is 0 for observed features (docs/decisions.md, A7 and F11).
        """
        self._solve_stale()
        return np.asarray(self._half_range(self.terms).sum(axis=0))

    def information(self) -> Floats:
        """Return the mutual information of each feature and the true hypothesis, in nats.

        The result has the shape (M,) and is 0 for observed features. If several hypotheses can be true at once, the
        result is a sum over hypotheses: each hypothesis adds the mutual information of the feature and the truth of the
        hypothesis.
        """
        odds, (one, other) = self.log_evidence(), self.predictive
        if not self.rivals:
            each = np.arange(len(odds))
            return np.asarray(self._cmi(odds, one, other, self._group_probabilities(each, each)).sum(axis=0))
        if self.may_be_none:
            odds, one = np.append(odds, 0.0), np.concatenate([one, self.packed.background[None]])
        return np.where(self.observed, 0.0, information(softmax(odds), one))

    def _gains_of_duels(self, duels: Ints) -> Floats:
        self._solve_stale()
        a, b = self.sides(duels).T
        if self.gain == "wald_magnitude":
            return self._half_range(self.terms[a] - self.terms[b])
        odds = self.log_evidence()
        if self.rivals:
            return self._cmi(
                odds[a] - odds[b], self.predictive[0, a], self.predictive[0, b], self._group_probabilities(a, b)
            )
        each = np.unique(np.concatenate([a, b]))
        own = np.zeros((len(odds), len(self.observed)))
        own[each] = self._cmi(
            odds[each], self.predictive[0, each], self.predictive[1, each], self._group_probabilities(each, each)
        )
        return np.asarray(own[a] + own[b])

    def _half_range(self, terms: Floats) -> Floats:
        can_be = np.where(self.packed.possible, terms, np.nan)
        half = (np.nanmax(can_be, axis=-1) - np.nanmin(can_be, axis=-1)) / 2
        return np.asarray(np.where(self.observed, 0.0, half))

    def _cmi(self, odds: Floats, one: Floats, other: Floats, states: list[tuple[Ints, Floats, Floats]]) -> Floats:
        """Return the mutual information I(y; x_f) of each feature x_f for each pair of hypotheses, in nats (eq:cmi).

        The result has the shape (q, M).

        Parameters
        ----------
        odds : (q,) float64, log-odds, nats
        one, other : (q, M, 3) float64, predictive probabilities
        states : as from `_group_probabilities`

        """
        gain = np.where(self.observed, 0.0, divergence(odds[:, None], one, other))
        for members, of_one, of_other in states:
            gain[:, members] = divergence(odds, of_one, of_other)[:, None] / max(len(members), 1)
        return np.where(gain < ZERO_GAIN, 0.0, gain)

    def _group_probabilities(self, a: Ints, b: Ints) -> list[tuple[Ints, Floats, Floats]]:
        """Return the features and probabilities of each exclusive group whose features are all measured at once.

        For each such group, the result contains the indices of the g unobserved features and two arrays of shape (q, g
        + 1) with probabilities. The first g columns are the probabilities that each feature is +1. The last column is
        the probability that no feature is +1. The first array describes patients with entity a, and the second array
        describes a comparison group. If a patient can have at most one entity, the comparison group is the patients
        with entity b. If a patient can have several entities, the comparison group is the patients without entity b.
        """
        found = []
        for group, together in zip(self.packed.groups, self.packed.measured_at_once, strict=True):
            open_ = group[~self.observed[group]]
            if not together or not len(open_):
                continue
            chances = [self.predictive[0, a][:, open_, 2], self.predictive[0 if self.rivals else 1, b][:, open_, 2]]
            states = [np.column_stack([chance, 1.0 - chance.sum(axis=1)]) for chance in chances]
            found.append((open_, states[0], states[1]))
        return found
