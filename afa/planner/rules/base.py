"""Define the interface of an allocation rule: its input `View` and its output `Choice`.

A rule receives a `View` of one patient, with scores, brackets and gains. A view contains no unobserved values and no
labels.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cached_property, partial
from typing import Protocol

import numpy as np

from afa.engine.duels import all_pairs, sides_of
from afa.engine.patient_state import DuelWeights, PatientState
from afa.engine.ranks import name_places, ranks_of
from afa.errors import Fault, PlannerError
from afa.model.arrays import Bools, Floats, Ints
from afa.model.bundle import Bundle
from afa.model.mrf import RELATIVE_TIE
from afa.planner.cluster import Clusters

FIRST_LOOK = 64
"""Number of duels to test first, those of smallest lead, where one unresolved duel is enough for the answer."""


@dataclass(frozen=True)
class Choice:
    """Store the index of the chosen feature, and the reason for the choice.

    The attribute `fallback` is True if no feature had a positive gain.

    Attributes
    ----------
    over : the duels whose weighted gains led to the choice, with their weights; None if the rule used no gain

    """

    feature: int
    reason: str
    fallback: bool = False
    over: DuelWeights | None = None


@dataclass(frozen=True)
class View:
    """Store the data of one patient that an allocation rule may use for one choice.

    A duel is identified by its index in `pairs`. Large or costly quantities of a view are computed only when a rule
    reads them. If a rule names a few duels by index, only the named duels are computed.

    Attributes
    ----------
    features, entities : M and N names
    observed : (M,) bool
    tie : a score of at most this magnitude is a tie
    largest_unary : (M,) float64, absolute effective unaries summed over entities, nats; 0 at observed features
    gain : function of a (Q,) mask of duels; returns their gains, (n_chosen, M), 0 at observed features
    total_gain : function of a (Q,) mask of closed duels; returns the sum of the gains of all other duels, (M,)
    weighted_gain : function of (Q,) weights, or `DuelWeights`; returns the weighted sum of the gains, (M,)
    find_scores, find_intervals, find_clusters : functions that compute `scores`, `intervals` and `clusters`
    find_rank : function that returns `rank` if it is known without computing all duels, else None
    find_lead, find_resolved : functions of ascending indices of duels, (q,); return `lead` and `resolved` of those
        duels
    k : size of the top set
    patient : name of the patient
    seed : seed of rules that use random numbers
    find_information : function that returns the mutual information of each feature and the entity that is present,
        (M,) nats, before observed features are set to 0; None if the rule may use duels alone
    find_frontier : function that returns the gain of each feature for the current top k, (M,); None without a
        background
    background : description of the background, shown to people; empty without a background

    """

    features: tuple[str, ...]
    entities: tuple[str, ...]
    observed: Bools
    tie: float
    largest_unary: Floats
    gain: Callable[[Bools], Floats]
    total_gain: Callable[[Bools], Floats]
    weighted_gain: Callable[[Floats | DuelWeights], Floats]
    find_scores: Callable[[], Floats]
    find_rank: Callable[[], Ints | None] | None
    find_lead: Callable[[Ints], Floats]
    find_resolved: Callable[[Ints], Bools]
    find_intervals: Callable[[], Floats]
    find_clusters: Callable[[], Clusters]
    k: int
    patient: str
    seed: int
    find_information: Callable[[], Floats] | None = None
    find_frontier: Callable[[], Floats] | None = None
    background: str = ""

    @property
    def n_duels(self) -> int:
        """Return Q, the number of duels."""
        return len(self.entities) * (len(self.entities) - 1) // 2

    @cached_property
    def pairs(self) -> Ints:
        """Return the entity indices a < b of each duel, (Q, 2) int64."""
        pairs = all_pairs(len(self.entities))
        pairs.flags.writeable = False
        return pairs

    @cached_property
    def scores(self) -> Floats:
        """Return the preference scores V that rank the entities, (N, N)."""
        return self.find_scores()

    @cached_property
    def lead(self) -> Floats:
        """Return the evidence Lambda_ab of each duel: how much the observed features favour a over b, (Q,) nats."""
        return self.find_lead(np.arange(self.n_duels))

    @cached_property
    def resolved(self) -> Bools:
        """Return True for each duel whose winner no values of the unobserved features can change, (Q,).

        Entity a wins the resolved duel of a and b if `lead` is positive.
        """
        return self.find_resolved(np.arange(self.n_duels))

    @cached_property
    def rank(self) -> Ints:
        """Return each entity's rank according to the preference scores, (N,) int64. The best entity has rank 1."""
        if self.find_rank and (known := self.find_rank()) is not None:
            return known
        rank = np.empty(len(self.entities), dtype=np.int64)
        rank[self.ranked(range(len(self.entities)))] = np.arange(1, len(self.entities) + 1)
        return rank

    @cached_property
    def straddling(self) -> Bools:
        """Return True for each duel between a top-k entity and an entity outside the top k, (Q,)."""
        across = np.zeros(self.n_duels, dtype=bool)
        across[self.across] = True
        return across

    @cached_property
    def across(self) -> Ints:
        """Return the ascending indices of the duels between a top-k entity and an entity outside the top k."""
        inside = np.flatnonzero(self.rank <= self.k)
        outside = np.flatnonzero(self.rank > self.k)
        return np.sort(self.duels(np.repeat(inside, len(outside)), np.tile(outside, len(inside))))

    @cached_property
    def contested(self) -> Ints:
        """Return the ascending indices of the unresolved duels across the top-k boundary."""
        return self.across[~self.find_resolved(self.across)]

    @cached_property
    def certified(self) -> bool:
        """Return True if every top-k entity is certain to beat every entity outside the top k.

        `TopKPlanner.certified` contains the proof.
        """
        lead = self.find_lead(self.across)
        a, b = sides_of(len(self.entities), self.across).T
        if (self.rank[np.where(lead > 0, a, b)] > self.k).any():
            return False
        closest_first = self.across[np.argsort(np.abs(lead), kind="stable")]  # small leads are rarely resolved
        return all(
            self.find_resolved(np.sort(part)).all() for part in np.split(closest_first, [FIRST_LOOK]) if len(part)
        )

    @cached_property
    def intervals(self) -> Floats:
        """Return bounds on each entity's score S_v, computed with the tight `l1` bracket, (N, 2) nats."""
        return self.find_intervals()

    @cached_property
    def clusters(self) -> Clusters:
        """Return the entity indices of each cluster, computed again every 50 observations."""
        return self.find_clusters()

    def information(self) -> Floats:
        """Return the mutual information of each feature and the entity that is present, (M,) nats; 0 if observed."""
        if self.find_information is None:
            return np.zeros(len(self.features))
        return np.where(self.observed, 0.0, self.find_information())

    def frontier(self) -> Floats:
        """Return the gain of each feature for the current top k, (M,), 0 if observed (`Belief.frontier`).

        Raise a `PlannerError` if the planner has no background.
        """
        if self.find_frontier is None:
            step = "give the planner a background"
            raise PlannerError(Fault("rule frontier", "no background", "one, in the view", step))
        return np.where(self.observed, 0.0, self.find_frontier())

    def ranked(self, members: Sequence[int]) -> list[int]:
        """Return the given entities, ranked by the duels between them, best first."""
        chosen = np.array(members, dtype=np.int64)
        order: list[int] = ranks_of(self.scores, chosen, name_places(self.entities), self.tie).order.tolist()
        return order

    def duel(self, one: int, other: int) -> int:
        """Return the index in `pairs` of the duel between two entities, given in either order."""
        return int(self.duels(np.array([one]), np.array([other]))[0])

    def duels(self, one: Ints, other: Ints) -> Ints:
        """Return the index in `pairs` of the duel between entity `one[i]` and entity `other[i]`, for each i, (q,).

        The two entities of a duel may be given in either order.

        Parameters
        ----------
        one, other : (q,) int64, entity indices

        """
        a, b = np.minimum(one, other), np.maximum(one, other)
        places: Ints = a * len(self.entities) - a * (a + 1) // 2 + b - a - 1
        return places


def view_of(
    state: PatientState,
    bundle: Bundle,
    *,
    score: str,
    k: int,
    find_clusters: Callable[[], Clusters],
    patient: str = "",
    seed: int = 0,
) -> View:
    """Return the view of one patient in the current state.

    The view contains no unobserved values, and is out of date after the next observation. A feature is marked as
    observed if another feature of its exclusive group is +1.

    Parameters
    ----------
    score : guiding score
    find_clusters : computes the clusters of the present round when a rule asks for them

    """
    return View(
        features=bundle.features,
        entities=bundle.entities,
        observed=state.closed,
        tie=state.packed.tie,
        largest_unary=state.total_unary(),
        gain=state.gains,
        total_gain=state.total_gain,
        weighted_gain=state.weighted_gain,
        find_scores=partial(state.present_scores, score),
        find_rank=partial(state.known_ranks, score, name_places(bundle.entities)),
        find_lead=state.lead,
        find_resolved=state.resolved,
        find_intervals=state.intervals,
        find_clusters=find_clusters,
        k=k,
        patient=patient,
        seed=seed,
        find_information=state.information,
    )


class Rule(Protocol):
    """Declare the interface of an allocation rule, a class whose constructor takes no arguments.

    The method `choose` must return a choice for every view that has an unobserved feature. The choice must depend on
    the view alone. `afa.planner.rules.check_policy` tests both requirements.
    """

    def choose(self, view: View) -> Choice: ...


def best(gain: Floats, features: tuple[str, ...], allowed: Bools) -> int | None:
    """Return the index of the allowed feature with the largest positive gain, or None if no gain is positive.

    Gains with a relative difference of at most 1e-9 count as equal; the feature's name breaks the tie.

    Parameters
    ----------
    gain : (M,) float64
    allowed : (M,) bool

    """
    masked = np.where(allowed, gain, -np.inf)
    top = masked.max(initial=-np.inf)
    if not top > 0:
        return None
    ties = np.flatnonzero(masked >= top * (1 - RELATIVE_TIE))
    return int(min(ties, key=lambda j: features[j]))


def fall_back(view: View, why: str = "no candidate has a positive gain") -> Choice:
    """Return the unobserved feature with the largest absolute effective unary, summed over entities.

    If all unaries are 0, return the alphabetically first unobserved feature.
    """
    free = ~view.observed
    feature = best(view.largest_unary, view.features, free)
    if feature is not None:
        return Choice(feature, f"{why}: largest total effective unary", fallback=True)
    first = int(min(np.flatnonzero(free), key=lambda j: view.features[j]))
    return Choice(first, f"{why}, no entity a unary: first by name", fallback=True)


def heaviest(view: View, duels: Ints, weights: Floats, what: str) -> Choice:
    """Return the feature with the largest weighted gain over the given duels.

    If no feature has a positive gain, return the choice of `fall_back`.

    Parameters
    ----------
    duels : (q,) int64, ascending indices of duels
    weights : (q,) float64
    what : description of the sum, for the reason

    """
    over = DuelWeights(view.n_duels, duels, weights)
    gain = view.weighted_gain(over)
    feature = best(gain, view.features, ~view.observed)
    if feature is None:
        return fall_back(view)
    return Choice(feature, f"{what}: gain {gain[feature]:.4g}", over=over)


def nothing_to_decide(view: View) -> Choice:
    """Return the choice of `fall_back` if every duel across the top-k boundary is resolved."""
    certified = f"the top-{view.k} is certified"
    return fall_back(view, certified if view.certified else "no duel across the top-k boundary is open")
