"""A planner for the question: which k entities do a patient's features support most?

The planner compares the entities in pairs.
"""

from __future__ import annotations

from numbers import Integral
from pathlib import Path
from typing import Literal, Unpack

import numpy as np
from scipy.special import expit, logsumexp, softmax

from afa.engine.compile import laid_out
from afa.engine.duels import sides_of, variances
from afa.engine.paths import EQUAL_PROBABILITY
from afa.engine.patient import Patient
from afa.engine.ranks import name_places, ranks_of
from afa.errors import Fault, PlannerError
from afa.model.arrays import Bools, Floats
from afa.model.bundle import Bundle
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
    """Find the k entities that a patient's features support most, with few measurements.

    Parameters
    ----------
    bundle : the entities and their models, or the folder of a bundle.
    k : size of the answer, 1 <= k < N.
    score : the preference score that ranks entities and guides the rule: `linearity` (the default), `wald`, `two_elbo`,
        `stack_a` or `kl_nonzero`. If `coupling` is `explicit`, the score is `two_elbo` (the default) or `wald`.
        `background` is the expected score if unobserved features have the frequencies of patients at large
        (docs/frontier.md), the default if the models state only directions (higher or lower) and a background is given.
    gain : the expected effect of a feature on a duel: `cmi`, `f_target` or `wald_magnitude`; or `information`, the
        information that a feature gives about which of all entities is present (docs/decisions.md, F15). The default is
        `information` if at most one entity can be present, k = 1, `coupling` is `explicit`, and neither a rule nor a
        background is given; else `cmi`.
    target : the score whose change `f_target` computes; by default the guiding score, if it can be a target.
    allocation : the rule that chooses features: a name in `afa.planner.rules.RULES`, or an object with the method
        `choose(view)`. The default is `priority_all`, or `priority_clusters` for more than 200 entities. `information`
        needs the gain of that name and is its default; `frontier` needs the score `background` and is its default.
    inference : `mean_field`, or `exact`, which is slow, raises an error for dense models, and supports neither the
        score `stack_a` nor the gain `f_target`.
    solver, start : settings of the mean-field iteration; `start` is `uniform` or `warm`.
    look_ahead : start of the mean-field iterations of the gain `f_target`: `same` for the option `start`, or `warm` for
        the current marginals.
    layer0 : None, or `f1`, `f2` or `sound`: exclude, before any observation, the entities that these certificates of
        Layer 0 eliminate (`afa.planner.layer0.without_eliminated`). All answers then refer to the remaining entities,
        in `bundle`; `eliminated` names the others. The certificates `f1` and `f2` can be false for a patient
        (decisions.md L2).
    costs : feature or panel -> cost, 0 or more, in any one unit. The default is the cost in the bundle, or 1. `equal`
        ignores the bundle's costs. Rules compare gain per unit of cost.
    panels : panel name -> features measured together; a panel costs the sum of its features unless `costs` names it.
    first : features or panels to measure, in this order, before the rule chooses.
    stop : when to stop: an `afa.Stop`, or a function of the planner that returns the reason to stop, or None to go on;
        by default when everything has been measured.
    seed, patient : seed the random order of `allocation="random"`.
    coupling : `explicit`, with class-conditional probabilities, the default if the bundle has any; or `differential`,
        the paper's models, which state only directions (higher or lower).
    holds : how many entities can be present, if `coupling` is `explicit`: `several`, `one` or `one or none`; by default
        as in the bundle (docs/decisions.md, F6).
    tau : factor, above 0 and at most 1, that shrinks log-odds towards the prior; or `effective`, which computes the
        factor from how much observations repeat each other; 1 by default (docs/decisions.md, F16).
    background : frequencies of the values among patients at large, for the score `background` and the rule `frontier`:
        an `afa.Background`, `elicited` or `uniform`; by default `elicited` if the bundle has probabilities, else
        `uniform`.
    together : number of features or panels that `suggest` names at once, with a background; 1 by default.

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
        question_bundle, gauge = bundle, gauge_of(bundle, options.get("coupling"))
        if gauge == "shared":
            found, step = "'shared': a ranking has no two classes", "leave it out"
            raise PlannerError(Fault("planner option coupling", found, "differential or explicit", step))
        if gauge == "differential":
            bundle = bundle.contrasts()
        if layer0 is not None:
            one_of("layer0", layer0, (*CRITERIA, SOUND))
            if gauge == "explicit":
                expected = "none where the bundle has probabilities"
                raise PlannerError(Fault("planner option layer0", repr(layer0), expected, "leave it out"))
            bundle = without_eliminated(bundle, k, criterion=layer0, solver=options.get("solver"))
        left = set(bundle.entities)
        self.eliminated = tuple(name for name in question_bundle.entities if name not in left)
        if gain is None:
            finds_the_one = gauge == "explicit" and k == 1 and (holds or question_bundle.holds) != "several"
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
        new_patient, explicit = patients_of(question_bundle, bundle, checked, gauge, holds=holds)
        self.holds: str | None = explicit.get("holds")
        super().__init__(question_bundle, bundle, checked, new_patient, {"layer0": layer0, **explicit, "k": int(k)})

    def scores(self) -> Floats:
        """Return the preference score V_ab of each entity a over each entity b (eq:vec_score).

        Entity a beats entity b if V_ab > 0. If V_ab = 0, the two entities are tied. The result is antisymmetric and has
        the shape (N, N).
        """
        return self.scores_by(self.guide)

    def wins(self) -> Floats:
        """Return the Copeland wins of each entity: the number of other entities that it beats (`afa.scores.copeland`).

        A tie between two entities counts as half a win for each. The result has the shape (N,).
        """
        return copeland_wins(self.scores())

    def top_k(self) -> list[str]:
        """Return the names of the k entities with the most Copeland wins (won comparisons), best first.

        The order of tied entities is given in docs/decisions.md, S6.
        """
        return self.ranking()[: self.k]

    answer = top_k

    @property
    def ordered_by(self) -> Literal["probability", "score"]:
        """Return the quantity by which `ranking` and `answer` order the entities: `probability` or `score`.

        If the option `coupling` is `explicit` and the score is `two_elbo`, entities are ordered by `posterior`. These
        two settings are the defaults if the bundle has probabilities. With other settings, entities are ordered by
        duels (comparisons of two entities) with the preference score, as in the paper. The order by duels can differ
        from the order by `posterior`, because only `posterior` depends on the normaliser of each entity's model
        (docs/decisions.md, S7).
        """
        return "probability" if self.holds is not None and self.guide == "two_elbo" else "score"

    def lead(self) -> float:
        """Return the smallest preference score of any entity in `top_k` against any entity outside `top_k`.

        If entities are ordered by probability, return 0.
        """
        if self.ordered_by == "probability":
            return 0.0
        inside = self._view().rank <= self.k
        return float(self.scores()[np.ix_(inside, ~inside)].min())

    def strengths(self) -> Floats:
        """Return the log-odds of each entity in nats, as an array of shape (N,).

        If entities are ordered by score, the array contains, for each entity, the mean of its preference scores over
        all other entities.
        """
        if self.ordered_by == "score":
            return np.asarray(self.scores().sum(axis=1) / (len(self.bundle.entities) - 1))
        log = self._state.log_evidence()
        if self.holds == "several":
            return log
        among = np.append(log, 0.0) if self.holds == "one or none" else log
        share = log - logsumexp(among)  # log-probabilities
        odds = share - np.log1p(-np.minimum(np.exp(share), 0.5))
        # For a probability p above 1/2, computing 1 - p would be inexact. At most one entity has p > 1/2.
        for v in np.flatnonzero(share > np.log(0.5)):
            odds[v] = log[v] - logsumexp(np.delete(among, v))
        return np.asarray(odds)

    def answer_probability(self) -> float:
        """Return the probability of the answer, which is the sum of `posterior` over `top_k`.

        If exactly one entity is present, this is the probability that `top_k` contains it. If several entities can be
        present, return the smallest posterior probability in `top_k` instead of the sum. If entities are ordered by
        score, the answer need not consist of the k most probable entities.
        """
        inside = self.posterior()[self._view().rank <= self.k]
        return float(inside.min() if self.holds == "several" else inside.sum())

    def undecided(self) -> list[str]:
        """Return the names of the entities that are tied for the last places of `top_k`, most probable first.

        Entities with equal scores are tied. If entities are ordered by probability, two entities are also tied if their
        posterior probabilities differ by less than 0.005. Before the first measurement, entities with such close
        posterior probabilities are also tied if entities are ordered by score. The score `background` is an exception.
        """
        tied = self._tied_by_score()
        by_posterior = self.guide != BACKGROUND and not self._log.observed  # a background gives unequal scores
        if self.ordered_by == "probability" or by_posterior:
            tied |= self._tied_by_probability()
        order, posterior = np.argsort(self._view().rank), self.posterior()
        chosen = sorted(order[tied[order]], key=lambda v: -round(float(posterior[v]), 2))
        return [self.bundle.entities[v] for v in chosen]

    def settled_probability(self) -> float:
        """Return `answer_probability`, or 0 if it is undecided which entities are in the top k.

        The top k is undecided if an entity inside it and an entity outside it have equal scores. The top k is also
        undecided if a posterior probability inside it is not at least 0.005 larger than all posterior probabilities
        outside it.
        """
        return 0.0 if (self._tied_by_score() | self._tied_by_probability()).any() else self.answer_probability()

    def _tied_by_score(self) -> Bools:
        """Return a mask of the entities that are tied by score for the last places of the top k.

        If the last entity inside the top k and the first entity outside have equal scores, the mask is True for all
        entities with this score. The mask has the shape (N,).
        """
        view = self._view()
        members, names = np.arange(len(view.entities)), name_places(view.entities)
        places = ranks_of(laid_out(view.scores), members, names, view.tie).place
        order = np.argsort(view.rank)
        last, next_ = places[order[self.k - 1]], places[order[self.k]]
        return np.asarray((places == last) & (last == next_))

    def _tied_by_probability(self) -> Bools:
        """Return a mask of the entities whose posterior probability is not clearly on one side of the top-k boundary.

        The posterior probability of an entity in the top k is clearly on its side if it is larger than all posterior
        probabilities outside the top k by at least 0.005. The posterior probability of an entity outside the top k is
        clearly on its side if it is smaller than all posterior probabilities in the top k by at least 0.005. The mask
        has the shape (N,).
        """
        inside, posterior = self._view().rank <= self.k, self.posterior()
        least, most = posterior[inside].min(), posterior[~inside].max()
        return np.asarray(
            np.where(inside, posterior < most + EQUAL_PROBABILITY, posterior > least - EQUAL_PROBABILITY), dtype=bool
        )

    def ranking(self) -> list[str]:
        """Return the names of all entities, best first.

        The order of tied entities is given in docs/decisions.md, S6.
        """
        return [self.bundle.entities[v] for v in np.argsort(self._view().rank)]

    def posterior(self) -> Floats:
        """Return the posterior probability of each entity in the order of the bundle, as an array of shape (N,).

        The probabilities are the softmax of the prior log-odds plus log P(x_obs | v), the log-likelihood of the
        observations under the model of entity v. This formula extends eq:clamped-marginal to more than two entities,
        and uses a separate normaliser for the model of each entity (docs/decisions.md, S7). A usual value (0) of a
        feature lowers the probability of entities that predict another value.

        If the option `coupling` is `differential`, exactly one entity is assumed to be present, so the posterior
        probabilities sum to 1.

        If the option `coupling` is `explicit`, a patient can also have several entities or none. If several entities
        can be present, the probability of each entity is computed separately. If at most one entity can be present, the
        probabilities sum to less than 1.
        """
        log = self._state.log_evidence()
        if self.holds == "several":
            return np.asarray(expit(log))
        return np.asarray(softmax(np.append(log, 0.0) if self.holds == "one or none" else log)[: len(log)])

    def probabilities(self) -> dict[str, float]:
        """Return a mapping from the name of each entity to its posterior probability.

        Examples
        --------
        >>> planner = TopKPlanner("tests/data/bundle_tiny", k=1)
        >>> planner.observe("MUC2", -1)
        >>> {name: round(p, 2) for name, p in planner.probabilities().items()}
        {'bleeding': 0.55, 'diarrhea': 0.4, 'fistula': 0.05}

        """
        return dict(zip(self.bundle.entities, self.posterior().tolist(), strict=True))

    def none(self) -> tuple[float, float]:
        """Return a lower and an upper bound on the probability that no entity is present (docs/decisions.md, F6).

        If at most one entity can be present, both bounds are equal to this probability. If exactly one entity is
        present, both bounds are 0. If the option `coupling` is not `explicit`, this probability is undefined, and a
        `PlannerError` is raised.
        """
        if self.holds is None:
            step = "ask one entity at a time: afa.BinaryPlanner"
            raise PlannerError(Fault("none of the entities", "a bundle of directions", "one with probabilities", step))
        each = self.posterior()
        if self.holds == "several":
            return max(0.0, 1.0 - float(each.sum())), 1.0 - float(each.max())
        left = max(0.0, 1.0 - float(each.sum())) if self.holds == "one or none" else 0.0
        return left, left

    def none_is_likelier(self) -> bool:
        """Return True if the patient probably has none of the entities.

        If several entities can be present, return True if every posterior probability is below 1/2. If at most one
        entity can be present, return True if the posterior probabilities sum to less than 1/2. If exactly one entity is
        present, return False.
        """
        if self.holds == "several":
            return bool((self.posterior() < 0.5).all())
        return self.holds == "one or none" and self.none()[0] > 0.5

    def resolved(self) -> list[tuple[str, str]]:
        """Return the resolved duels (comparisons of two entities) as pairs of names: the winner and the loser.

        A duel is resolved if no values of the unobserved features can change the winner. The result is computed from
        the tight `l1` score bounds (`afa.scores.bracket`).
        """
        lead, names = self._state.lead(), self.bundle.entities
        settled = ((p, self._state.pairs[p]) for p in np.flatnonzero(self._state.resolved()))
        return [(names[a], names[b]) if lead[p] > 0 else (names[b], names[a]) for p, (a, b) in settled]

    def certified(self) -> bool:
        """Return True if `top_k` is certain to equal the set of the k best entities at full observation.

        `top_k` is certain if each entity a in the top k is certain to beat each entity b outside the top k. If a is
        certain to beat b, the tight `l1` score bounds show that S_a(x) > S_b(x) for every completion x (all values of
        the unobserved features). Therefore, at full observation, each entity a in the top k beats all N - k entities
        outside the top k. Each entity b outside the top k loses against at least k entities, so b beats at most N - 1 -
        k entities. Therefore, a has more wins than b, and no tie between a and b has to be broken. The order of the
        entities within the top k may change.

        The score bounds can be wider than the range of possible scores. Therefore, the result can be False although no
        further observation can change `top_k`. The k best entities are the first k in the ranking by the scores S_v at
        full observation. At full observation, every score except `kl_nonzero` gives the same ranking as S_v. If the
        score is `linearity`, `wald` or `stack_a` and the result is True, `top_k` also stays the same at every step
        until full observation. The reason is as follows. If entity a is certain to beat entity b, the score `wald` of a
        against b is already positive. The mean of S_a - S_b is also positive for every distribution of the unobserved
        features.

        If the option `layer0` is set, some entities are excluded before any observation, and `top_k` is certain only
        among the remaining entities. If `layer0` is `f1` or `f2`, this exclusion can be wrong: one of the k best
        entities may be excluded.
        """
        return self._view().certified

    certain = certified

    def boundary_probability(self) -> float:
        """Return the smallest probability that a top-k entity beats an entity outside the top k at full observation.

        For each entity a in the top k and each entity b outside, the probability that S_a(x) > S_b(x) at full
        observation is computed from a Gaussian approximation, as in the score `stack_a` (eq:fsp). The probability is 1
        if the winner is certain, and 1/2 if the mean of S_a - S_b is 0. If the ranking score is neither `linearity` nor
        `stack_a`, the result can be below 1/2. The reason is that such a score can rank a above b although the mean of
        S_a - S_b is negative.

        If the option `coupling` is `explicit`, the method uses another probability for each pair: the probability that
        a is present, given that exactly one of a and b is present. With the score `background`, return the result of
        `top_probability` instead.
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
