"""Top-k identification: which entities a patient's features support most, by pairwise duels."""

from __future__ import annotations

from numbers import Integral
from pathlib import Path
from typing import Literal, Unpack

import numpy as np
from numpy.typing import NDArray
from scipy.special import expit, logsumexp, softmax

from afa.engine.duels import sides_of, variances
from afa.engine.paths import AS_PROBABLE
from afa.engine.patient import Patient
from afa.engine.ranks import name_places, ranks_of
from afa.errors import Fault, PlannerError
from afa.model.bundle import Bundle
from afa.model.mrf import Floats
from afa.planner.base import Planner
from afa.planner.layer0 import CRITERIA, SOUND, without_eliminated
from afa.planner.options import (
    ALL_DUELS_UP_TO,
    BACKGROUND,
    FRONTIER,
    INFORMATION,
    CommonOptions,
    Options,
    bundle_given,
    gauge_of,
    listing_options,
    one_of,
    patients_of,
)
from afa.planner.rules import Rule
from afa.scores.copeland import copeland_wins
from afa.scores.preference import gaussian_sign


class TopKPlanner(Planner):
    """Finds the k entities that a patient's features support most, measuring few of them.

    Parameters
    ----------
    bundle : the entities and their models, or the folder of a bundle.
    k : size of the answer, 1 <= k < N.
    score : the preference score that ranks entities and guides the rule: `linearity`, `wald`, `two_elbo`, `stack_a`
        or `kl_nonzero`; `linearity` unless given, and `two_elbo`, or `wald`, in the explicit gauge. Or `background`:
        the expected score, where unobserved features are as among patients at large (docs/frontier.md); the default,
        for models of directions, where a background is given.
    gain : what a duel is expected to learn from a feature: `cmi`, `f_target` or `wald_magnitude`; or `information`,
        what a feature tells about which entity holds, over all entities (docs/decisions.md, F15). Unless given,
        `information` where one entity holds and is looked for (k = 1, gauge `explicit`), else `cmi`.
    target : the score that `f_target` looks ahead to; the guiding score where that can be one.
    allocation : the rule that chooses features, by its name in `afa.planner.rules.RULES`, or an object with the method
        `choose(view)`; `priority_all` unless given, and `priority_clusters` for more than 200 entities. `information`
        goes with the gain of that name, `frontier` with the score `background`; each is the default there.
    inference : `mean_field`, or `exact` (scores `linearity` and `two_elbo`, gain `cmi`): slow, refused where too dense.
    solver, start : settings of the mean-field iteration; `start` is `uniform` or `warm`.
    look_ahead : where the solves of `f_target` start: `same` as the score, or `warm` from the present marginals.
    layer0 : None, or `f1`, `f2` or `sound`: leave out, before anything is observed, the entities that these
        certificates of Layer 0 eliminate (`afa.planner.layer0.without_eliminated`). All answers are then about the
        entities that are left, those of `bundle`; `eliminated` names the others. Of a patient, certificates of `f1` and
        `f2` can be false (decisions.md L2).
    costs : by name of a feature or a panel, in any one unit, 0 or more; what is not named costs what the bundle says,
        or 1. `equal` leaves the bundle's costs aside. Rules compare gain by unit of cost.
    panels : features that come together, by name of the panel; its cost is the sum of theirs unless `costs` names it.
    first : features or panels to ask for before the rule chooses, in this order, whatever the answer is by then.
    stop : when to stop asking: an `afa.Stop`, or a function of the planner that answers with the reason to stop, or
        None to go on; when everything has been measured unless given.
    seed, patient : name the random order of `allocation="random"`.
    coupling : `explicit`, the default where the bundle says how often: values weigh by their probabilities with and
        without an entity; or `differential`, the paper's models of directions.
    holds : how many entities hold, where the gauge is explicit: `several`, `one` or `one or none`; as the bundle says
        unless given (docs/decisions.md, F6).
    tau : how far log-odds are believed, above 0 and at most 1, or `effective`: by how much findings repeat each other;
        1 unless given (docs/decisions.md, F16).
    background : of the score `background` and the rule `frontier`: how frequent each value is among patients at large,
        an `afa.Background`, or `elicited` or `uniform`; what the bundle states unless given, and every value alike
        where it states nothing.
    together : how many features or panels `suggest` names at once, with a background; 1 unless given.

    Examples
    --------
    >>> from afa.model.bundle import load_bundle
    >>> planner = TopKPlanner(load_bundle("tests/data/bundle_tiny"), k=1)
    >>> while not planner.certified() and (feature := planner.next_feature()) is not None:
    ...     planner.observe(feature, 1)
    >>> planner.top_k(), len(planner.observed), len(planner.bundle.features)
    (['fistula'], 3, 5)

    """

    @listing_options
    def __init__(
        self,
        bundle: Bundle | str | Path,
        *,
        k: int = 1,
        score: str | None = None,
        gain: str | None = None,
        allocation: str | Rule | None = None,
        layer0: str | None = None,
        holds: str | None = None,
        **options: Unpack[CommonOptions],
    ) -> None:
        bundle = bundle_given(bundle)
        if not isinstance(k, Integral) or not 1 <= k < len(bundle.entities):
            expected = f"1 to {len(bundle.entities) - 1}, one less than the number of entities"
            if len(bundle.entities) == 1:
                step = f"ask whether it holds: BinaryPlanner, or --entity {bundle.entities[0]}"
                raise PlannerError(Fault(f"bundle {bundle.name}", "one entity", "two or more to rank", step))
            raise PlannerError(Fault("planner option k", repr(k), expected, "choose a whole number of these"))
        asked_of, gauge = bundle, gauge_of(bundle, options.get("coupling"))
        if gauge == "shared":
            found, step = "'shared': a ranking has no two classes", "leave it out"
            raise PlannerError(Fault("planner option coupling", found, "differential or explicit", step))
        if gauge == "differential":
            bundle = bundle.contrasts()
        if layer0 is not None:
            one_of("layer0", layer0, (*CRITERIA, SOUND))
            if gauge == "explicit":
                expected = "none where the bundle says how often"
                raise PlannerError(Fault("planner option layer0", repr(layer0), expected, "leave it out"))
            bundle = without_eliminated(bundle, k, criterion=layer0, solver=options.get("solver"))
        left = set(bundle.entities)
        self.eliminated = tuple(name for name in asked_of.entities if name not in left)
        if gain is None:
            finds_the_one = gauge == "explicit" and k == 1 and (holds or asked_of.holds) != "several"
            chosen = allocation is not None or score == BACKGROUND or options.get("background") is not None
            gain = INFORMATION if allocation == INFORMATION or (finds_the_one and not chosen) else "cmi"
        given = options.get("background") is not None and gauge == "differential" and gain != INFORMATION
        if allocation == FRONTIER or (given and allocation is None):
            score = score or BACKGROUND
        if allocation is None and gain == INFORMATION:
            allocation = INFORMATION
        elif allocation is None and score == BACKGROUND:
            allocation = FRONTIER
        elif allocation is None:
            allocation = "priority_all" if len(bundle.entities) <= ALL_DUELS_UP_TO else "priority_clusters"
        score = score or ("two_elbo" if gauge == "explicit" else "linearity")
        checked = Options(score=score, gain=gain, allocation=allocation, **options)
        new_patient, explicit = patients_of(asked_of, bundle, checked, gauge, holds=holds)
        self.holds: str | None = explicit.get("holds")
        super().__init__(asked_of, bundle, checked, new_patient, {"layer0": layer0, **explicit, "k": int(k)})

    def scores(self) -> Floats:
        """(N, N) antisymmetric preference scores V: a beats b where V > 0, 0 is a tie (eq:vec_score)."""
        return self.scores_by(self.guide)

    def wins(self) -> Floats:
        """(N,) Copeland wins, a tie half (`afa.scores.copeland`)."""
        return copeland_wins(self.scores())

    def top_k(self) -> list[str]:
        """The k best entities by Copeland wins, best first; ties as decisions.md S6 settles them."""
        return self.ranking()[: self.k]

    answer = top_k

    @property
    def ordered_by(self) -> Literal["probability", "score"]:
        """What orders the entities in `ranking` and `answer`.

        `probability` where the bundle says how often and the score is `two_elbo`, the default there: the order is that
        of `posterior`. Else `score`: the duels of the preference score, the paper's ranking. `posterior` can then have
        another order, as it also counts usual values and the normaliser of each entity (docs/decisions.md, S7).
        """
        return "probability" if self.holds is not None and self.guide == "two_elbo" else "score"

    def lead(self) -> float:
        """By how much the answer is ahead: the least preference score of an entity in `top_k` against one outside.

        0 where `ordered_by` is `probability`.
        """
        if self.ordered_by == "probability":
            return 0.0
        inside = self._view().rank <= self.k
        return float(self.scores()[np.ix_(inside, ~inside)].min())

    def strengths(self) -> Floats:
        """(N,) what orders the entities: log-odds of each, in nats, or its mean score against the others."""
        if self.ordered_by == "score":
            return np.asarray(self.scores().sum(axis=1) / (len(self.bundle.entities) - 1))
        log = self._state.log_evidence()
        if self.holds == "several":
            return log
        among = np.append(log, 0.0) if self.holds == "one or none" else log
        share = log - logsumexp(among)  # log-probabilities
        odds = share - np.log1p(-np.minimum(np.exp(share), 0.5))
        for v in np.flatnonzero(share > np.log(0.5)):  # at most one, whose complement would be lost in rounding
            odds[v] = log[v] - logsumexp(np.delete(among, v))
        return np.asarray(odds)

    def answer_probability(self) -> float:
        """The sum of `posterior` over `top_k`: that the one entity that holds, if exactly one does, is among them.

        Where several may hold, the least posterior in `top_k`. Where `ordered_by` is `score`, another set can be more
        probable.
        """
        inside = self.posterior()[self._view().rank <= self.k]
        return float(inside.min() if self.holds == "several" else inside.sum())

    def undecided(self) -> list[str]:
        """The entities that tie for the last places of `top_k`, the most probable first, then as ranked; [] for no tie.

        A tie of what `ordered_by` names: equal scores, or posteriors within 0.005 of each other; of both before
        anything is measured, unless the score is `background`.
        """
        tied = self._tied_by_score()
        by_posterior = self.guide != BACKGROUND and not self._log.observed  # a background tells them apart at once
        if self.ordered_by == "probability" or by_posterior:
            tied |= self._as_probable()
        order, posterior = np.argsort(self._view().rank), self.posterior()
        chosen = sorted(order[tied[order]], key=lambda v: -round(float(posterior[v]), 2))
        return [self.bundle.entities[v] for v in chosen]

    def settled_probability(self) -> float:
        """Return `answer_probability`, or 0 where the answer is a tie or an entity outside it is as probable."""
        return 0.0 if (self._tied_by_score() | self._as_probable()).any() else self.answer_probability()

    def _tied_by_score(self) -> NDArray[np.bool_]:
        """(N,) entities that share the place at the edge of `top_k`."""
        view = self._view()
        places = ranks_of(view.scores, np.arange(len(view.entities)), name_places(view.entities), view.tie).place
        order = np.argsort(view.rank)
        last, next_ = places[order[self.k - 1]], places[order[self.k]]
        return np.asarray((places == last) & (last == next_))

    def _as_probable(self) -> NDArray[np.bool_]:
        """(N,) entities outside `top_k` that are as probable as one inside, to 0.005, or more so; and the latter."""
        inside, posterior = self._view().rank <= self.k, self.posterior()
        least, most = posterior[inside].min(), posterior[~inside].max()
        return np.asarray(np.where(inside, posterior < most + AS_PROBABLE, posterior > least - AS_PROBABLE), dtype=bool)

    def ranking(self) -> list[str]:
        """All entities, best first (decisions.md S6)."""
        return [self.bundle.entities[v] for v in np.argsort(self._view().rank)]

    def posterior(self) -> Floats:
        """(N,) probabilities of the entities, in order, if exactly one of them held: they sum to 1.

        Softmax of prior log-odds plus log P(x_obs | v), each entity with its own normaliser (eq:clamped-marginal for
        more than two, decisions.md S7). Unlike the ranking by score it also counts a value of 0 against those who
        expected another. In the explicit gauge of the entities that may hold: each by itself where several may, and
        less than 1 together where none may.
        """
        log = self._state.log_evidence()
        if self.holds == "several":
            return np.asarray(expit(log))
        return np.asarray(softmax(np.append(log, 0.0) if self.holds == "one or none" else log)[: len(log)])

    def none(self) -> tuple[float, float]:
        """The least and the greatest probability that no entity holds (docs/decisions.md, F6).

        The two are equal where at most one entity holds, and 0 where exactly one does. A `PlannerError` for a bundle of
        directions alone, which says nothing of it.
        """
        if self.holds is None:
            step = "ask one entity at a time: afa.BinaryPlanner"
            raise PlannerError(Fault("none of the entities", "a bundle of directions", "one that says how often", step))
        each = self.posterior()
        if self.holds == "several":
            return max(0.0, 1.0 - float(each.sum())), 1.0 - float(each.max())
        left = max(0.0, 1.0 - float(each.sum())) if self.holds == "one or none" else 0.0
        return left, left

    def none_is_likelier(self) -> bool:
        """Whether none holds rather than any one: every entity's posterior, or that of all together, is below 1/2."""
        if self.holds == "several":
            return bool((self.posterior() < 0.5).all())
        return self.holds == "one or none" and self.none()[0] > 0.5

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

    certain = certified

    def boundary_probability(self) -> float:
        """The least probability, over the duels across the top-k boundary, that the present winner stays ahead.

        In [0, 1]: of each duel P(sign of D_ab at full observation = its present sign) under the duel's own predictive,
        by the Gaussian approximation of `stack_a` (eq:fsp); 1 where the duel is resolved, 1/2 where it is level, and
        below 1/2 where a guiding score other than `linearity` and `stack_a` prefers the other side. In the explicit
        gauge it is the probability that the winner holds, given that exactly one of the two does. With the score
        `background` it is `top_probability`.
        """
        if self.guide == BACKGROUND:
            return self.top_probability()
        view = self._view()
        if not len(view.contested):
            return 1.0
        pairs = sides_of(len(self.bundle.entities), view.contested)
        a, b = pairs.T
        if not isinstance(self._state, Patient):
            odds = self._state.log_evidence()
            return float(expit(np.where(view.rank[a] < view.rank[b], 1, -1) * (odds[a] - odds[b])).min())
        means = self._state.present_scores("linearity")[a, b]
        spreads = variances(self._state.packed, self._state.state, pairs)
        signs = np.array([gaussian_sign(mean, spread) for mean, spread in zip(means, spreads, strict=True)])
        return float((1 + np.where(view.rank[a] < view.rank[b], signs, -signs)).min() / 2)

    confidence = boundary_probability
