"""Planners: what to measure next for one patient, what the answer is so far, and how certain it is."""

from __future__ import annotations

from collections.abc import Sequence
from numbers import Integral
from typing import Literal

import numpy as np
import pandas as pd
from scipy.special import expit

from afa.allocate import RULES, Choice, Rule, View
from afa.allocate.vantage import view_of
from afa.bundle import Bundle
from afa.closure import closed_bundle
from afa.cluster import Clustering
from afa.copeland import ranking
from afa.engine.patient import GAIN_KINDS, Patient
from afa.errors import Fault, PlannerError
from afa.gain import TARGETS
from afa.inference.meanfield import Solver
from afa.layer0 import CRITERIA, SOUND, without_eliminated
from afa.mrf import VALUES, Floats

SCORES = ("linearity", "wald", "two_elbo", "stack_a", "kl_nonzero")
GAINS = tuple(dict.fromkeys(gain for gain, _ in GAIN_KINDS))
ALL_DUELS_UP_TO = 200
EXACT_SCORES = ("linearity", "two_elbo", "wald", "kl_nonzero")


class _Planner:
    """What both planners share: one patient in the entities of a bundle, a rule that chooses, the answers so far."""

    def __init__(
        self,
        bundle: Bundle,
        *,
        k: int,
        score: str,
        gain: str,
        target: str | None,
        allocation: str | Rule,
        inference: str,
        solver: Solver | None,
        start: str,
        look_ahead: str,
        patient: str,
        seed: int,
    ) -> None:
        if score == "kl":
            expected = "a score in which a beats b whenever b loses to a"
            raise PlannerError(
                Fault("planner option score", "'kl'", expected, "use kl_nonzero, its antisymmetric form")
            )
        _one_of("score", score, SCORES)
        _one_of("gain", gain, GAINS)
        _one_of("start", start, ("uniform", "warm"))
        _one_of("look_ahead", look_ahead, ("same", "warm"))
        _one_of("inference", inference, ("mean_field", "exact"))
        if gain == "f_target":
            target = target or (score if score in TARGETS else None)
            _one_of("target", str(target), TARGETS)
        elif target is not None:
            raise PlannerError(
                Fault("planner option target", repr(target), "none unless gain is f_target", "leave it out")
            )
        if inference == "exact" and (score not in EXACT_SCORES or gain == "f_target"):
            expected = f"score {', '.join(EXACT_SCORES)} and gain cmi or wald_magnitude"
            step = "use inference='mean_field'"
            raise PlannerError(Fault("planner option inference", f"exact with {score} and {gain}", expected, step))
        if isinstance(allocation, str):
            _one_of("allocation", allocation, tuple(RULES))
            allocation = RULES[allocation]()
        elif not callable(getattr(allocation, "choose", None)):
            expected = f"{' or '.join(RULES)}, or an object with the method choose(view)"
            raise PlannerError(Fault("planner option allocation", repr(allocation), expected, "choose one of these"))
        self.bundle, self.k, self.guide, self.gain, self.rule = bundle, k, score, gain, allocation
        self.patient, self.seed = patient, seed
        self.observed: dict[str, int] = {}
        self.reason = "nothing asked yet"
        self._index = {name: j for j, name in enumerate(bundle.features)}
        self._clustering = Clustering(bundle)
        self._state = Patient(
            bundle, solver=solver, start=start, inference=inference, gain=gain, target=target, look_ahead=look_ahead
        )

    def next_feature(self) -> str | None:
        """Name of the feature to measure next, or None when all are observed; `reason` says why."""
        if len(self.observed) == len(self.bundle.features):
            self.reason = "every feature has been observed"
            return None
        choice = self._choose()
        self.reason = choice.reason
        return self.bundle.features[choice.feature]

    def observe(self, feature: str, value: int) -> None:
        """Take in one measurement, -1, 0 or +1; entities that do not hold the feature are left as they are."""
        if not isinstance(feature, str) or feature not in self._index:
            raise PlannerError(
                Fault(f"feature {feature!r}", "an unknown name", "a feature of the bundle", "see bundle.features")
            )
        if not isinstance(value, Integral) or isinstance(value, bool) or value not in VALUES:
            raise PlannerError(
                Fault(f"feature {feature}", repr(value), "-1, 0 or 1", "encode the measurement as ternary first")
            )
        if feature in self.observed:
            step = "start a new planner to correct it"
            raise PlannerError(Fault(f"feature {feature}", "a second observation", "at most one", step))
        self._state.observe(self._index[feature], int(value))
        self.observed[feature] = int(value)

    def explain(self, most: int = 10) -> pd.DataFrame:
        """The unobserved features of largest total gain: feature, gain, duels it would move, its share of the gain.

        The gain is summed over all open duels, each counted once, whatever the weights of the rule.
        """
        hidden = ~self._state.state.observed
        gains = self._state.gains(~self._state.resolved())
        table = pd.DataFrame(
            {"feature": self.bundle.features, "gain": gains.sum(axis=0), "duels_moved": (gains > 0).sum(axis=0)}
        )[hidden]
        total = float(table["gain"].sum())
        table["share"] = table["gain"] / total if total > 0 else 0.0
        return table.sort_values(["gain", "feature"], ascending=[False, True], ignore_index=True).head(most)

    def _view(self) -> View:
        return view_of(
            self._state,
            self.bundle,
            score=self.guide,
            k=self.k,
            find_clusters=lambda: self._clustering.at(self.observed),
            patient=self.patient,
            seed=self.seed,
        )

    def _choose(self) -> Choice:
        view = self._view()
        choice = self.rule.choose(view)
        if not 0 <= choice.feature < len(self.bundle.features) or view.observed[choice.feature]:
            expected = "an index of an unobserved feature"
            step = "mend the rule's choose()"
            raise PlannerError(Fault(f"rule {type(self.rule).__name__}", str(choice.feature), expected, step))
        return choice


class TopKPlanner(_Planner):
    """Finds the k entities that a patient's features support most, measuring few of them.

    Parameters
    ----------
    bundle : the entities and their models.
    k : size of the answer, 1 <= k < N.
    score : the preference score that ranks entities and guides the rule: `linearity`, `wald`, `two_elbo`, `stack_a`
        or `kl_nonzero`.
    gain : what a duel is expected to learn from a feature: `cmi`, `f_target` or `wald_magnitude`.
    target : the score that `f_target` looks ahead to; the guiding score where that can be one.
    allocation : the rule that chooses features, by its name in `afa.allocate.RULES`, or an object with the method
        `choose(view)`; `priority_all` unless given, and `priority_clusters` for more than 200 entities.
    inference : `mean_field`, or `exact` (scores `linearity` and `two_elbo`, gain `cmi`): slow, refused where too dense.
    solver, start : settings of the mean-field iteration; `start` is `uniform` or `warm`.
    look_ahead : where the solves of `f_target` start: `same` as the score, or `warm` from the present marginals.
    layer0 : None, or `f1`, `f2` or `sound`: leave out, before anything is observed, the entities that these
        certificates of Layer 0 eliminate (`afa.layer0.without_eliminated`). All answers are then about the entities
        that are left, those of `bundle`; `eliminated` names the others. Of a patient, certificates of `f1` and `f2`
        can be false (spec L2).
    seed, patient : name the random order of `allocation="random"`.

    Examples
    --------
    >>> from afa.bundle import load_bundle
    >>> planner = TopKPlanner(load_bundle("tests/data/bundle_tiny"), k=1)
    >>> while not planner.certified() and (feature := planner.next_feature()) is not None:
    ...     planner.observe(feature, 1)
    >>> planner.top_k(), len(planner.observed), len(planner.bundle.features)
    (['fistula'], 3, 5)

    """

    def __init__(
        self,
        bundle: Bundle,
        *,
        k: int = 5,
        score: str = "linearity",
        gain: str = "cmi",
        target: str | None = None,
        allocation: str | Rule | None = None,
        inference: str = "mean_field",
        solver: Solver | None = None,
        start: str = "uniform",
        look_ahead: str = "same",
        layer0: str | None = None,
        patient: str = "",
        seed: int = 0,
    ) -> None:
        if not isinstance(k, Integral) or not 1 <= k < len(bundle.entities):
            expected = f"1 to {len(bundle.entities) - 1}, one less than the number of entities"
            raise PlannerError(Fault("planner option k", repr(k), expected, "choose a smaller k"))
        everyone = bundle.entities
        if layer0 is not None:
            _one_of("layer0", layer0, (*CRITERIA, SOUND))
            bundle = without_eliminated(bundle, k, criterion=layer0, solver=solver)
        self.eliminated = tuple(name for name in everyone if name not in bundle.entities)
        if allocation is None:
            allocation = "priority_all" if len(bundle.entities) <= ALL_DUELS_UP_TO else "priority_clusters"
        super().__init__(
            bundle,
            k=k,
            score=score,
            gain=gain,
            target=target,
            allocation=allocation,
            inference=inference,
            solver=solver,
            start=start,
            look_ahead=look_ahead,
            patient=patient,
            seed=seed,
        )

    def scores(self) -> Floats:
        """(N, N) antisymmetric preference scores V: a beats b where V > 0, 0 is a tie (eq:vec_score)."""
        return self._state.scores(self.guide)

    def top_k(self) -> list[str]:
        """The k best entities by Copeland wins, best first; ties as spec S6 settles them."""
        return ranking(self.scores(), self.bundle.entities, tie=self._state.packed.tie)[: self.k]

    def resolved(self) -> list[tuple[str, str]]:
        """Duels (winner, loser) whose winner at full observation no completion can change (tight `l1` bracket)."""
        lead, names = self._state.lead(), self.bundle.entities
        settled = ((p, self._state.pairs[p]) for p in np.flatnonzero(self._state.resolved()))
        return [(names[a], names[b]) if lead[p] > 0 else (names[b], names[a]) for p, (a, b) in settled]

    def certified(self) -> bool:
        """Whether `top_k` holds the k entities that are best at full observation, whatever is left to observe.

        It does where each duel of an entity a in the present top-k against an entity b outside is resolved and won by
        a: its tight `l1` bracket holds D_ab(x) under every completion x, so that S_a(x) > S_b(x) for them all. At full
        observation a then wins its duels against the N - k entities outside, and b loses its against the k inside:
        at least N - k Copeland wins for a, at most N - 1 - k for b. No tie-break and no duel within either side
        can exchange the two, and the set is the same; the order inside it may still change.

        The condition is sufficient, not necessary: a bracket can be wider than the scores that completions reach. What
        is certain is the ranking by S, the answer of every score at full observation but `kl_nonzero`. With
        `linearity`, `wald` and `stack_a` the set also stays as it is on the way there: a resolved duel has the sign of
        its winner in Lambda_ab, and in D_ab's mean under any distribution of completions.

        With `layer0` this holds among the entities that are left; whether one of the `eliminated` belongs among the k
        best of all, only the `sound` certificates say.
        """
        return self._view().certified


class BinaryPlanner(_Planner):
    """Decides whether one entity holds for a patient, measuring few features.

    The two classes are the half-potential models of the closure (`afa.closure`): a duel of two virtual entities whose
    difference is the entity's own model S (tab:mode-mapping). Parameters are those of `TopKPlanner`, but for `k`.

    Examples
    --------
    >>> from afa.bundle import load_bundle
    >>> planner = BinaryPlanner(load_bundle("tests/data/bundle_tiny"), entity="bleeding")
    >>> planner.probability()
    0.5
    >>> planner.observe("CXCL8", 1)
    >>> planner.decision()
    1

    """

    def __init__(
        self,
        bundle: Bundle,
        *,
        entity: str,
        score: str = "two_elbo",
        gain: str = "cmi",
        target: str | None = None,
        allocation: str | Rule = "greedy",
        inference: str = "mean_field",
        solver: Solver | None = None,
        start: str = "uniform",
        look_ahead: str = "same",
        patient: str = "",
        seed: int = 0,
    ) -> None:
        self.entity = entity
        super().__init__(
            closed_bundle(bundle, entity),
            k=1,
            score=score,
            gain=gain,
            target=target,
            allocation=allocation,
            inference=inference,
            solver=solver,
            start=start,
            look_ahead=look_ahead,
            patient=patient,
            seed=seed,
        )

    def score(self) -> float:
        """The preference score of the duel, positive where the entity is preferred; raw, as the paper has it."""
        return float(self._state.scores(self.guide)[0, 1])

    def probability(self) -> float:
        """P(entity | x_obs): the logistic function of the calibrated two-ELBO log-odds (prop:calibration, spec S15).

        At no observation it is 1/2, or what the bundle's prior log-odds say.
        """
        evidence = self._state.log_evidence()
        return float(expit(evidence[0] - evidence[1]))

    def decision(self) -> Literal[-1, 0, 1]:
        """Sign of the raw score: 1 for the entity, -1 against it, 0 a tie."""
        value = self.score()
        return 1 if value > 0 else -1 if value < 0 else 0

    def at_odds(self) -> bool:
        """Whether decision and probability point to different sides: then trust neither yet (spec S15)."""
        return (self.probability() - 0.5) * self.decision() < 0

    def resolved(self) -> bool:
        """Whether no completion of the unobserved features can change the sign of S (tight `l1` bracket)."""
        return bool(self._state.resolved()[0])


def _one_of(option: str, given: str, known: Sequence[str]) -> None:
    if given not in known:
        raise PlannerError(Fault(f"planner option {option}", repr(given), " or ".join(known), "choose one of these"))
