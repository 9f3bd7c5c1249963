"""The interface of allocation rules, with the classes `View` (input) and `Choice` (output).

A `View` describes one patient by scores, score bounds and gains. A `View` contains no values of unobserved features and
no labels.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cached_property, partial
from typing import Protocol

import numpy as np

from afa.engine.compile import laid_out
from afa.engine.duels import all_pairs, sides_of
from afa.engine.patient_state import DuelWeights, PatientState
from afa.engine.ranks import name_places, ranks_of
from afa.errors import Fault, PlannerError
from afa.model.arrays import Bools, Floats, Ints
from afa.model.bundle import Bundle
from afa.model.mrf import RELATIVE_TIE
from afa.planner.cluster import Clusters

FIRST_LOOK = 64
"""Number of duels that `View.certified` tests first.

These are the duels with the smallest lead, because one unresolved duel is enough for the answer.
"""


@dataclass(frozen=True)
class Choice:
    """The index of the feature that a rule chose, and the reason.

    The attribute `fallback` is True if the rule chose the feature although no feature had a positive gain.

    Attributes
    ----------
    over : the duels (comparisons of two entities) whose weighted gains led to the choice, and their weights; None if
        the rule used no gains of duels

    """

    feature: int
    reason: str
    fallback: bool = False
    over: DuelWeights | None = None


@dataclass(frozen=True)
class View:
    """The data of one patient that an allocation rule may use to choose a feature.

    A duel is a comparison of two entities, identified by its index in `pairs`. Arrays that are large or slow to compute
    are computed only when a rule reads them. Functions with the parameter `duels` compute results only for the given
    duels.

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
    find_information : function that returns how much information each feature gives about which entity is present,
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
        """Return Q, the number of duels (comparisons of two entities)."""
        return len(self.entities) * (len(self.entities) - 1) // 2

    @cached_property
    def pairs(self) -> Ints:
        """Return, for each duel, the indices a < b of the two entities that it compares.

        The result has the shape (Q, 2).
        """
        pairs = all_pairs(len(self.entities))
        pairs.flags.writeable = False
        return pairs

    @cached_property
    def scores(self) -> Floats:
        """Return the preference scores V by which entities are ranked.

        The result has the shape (N, N).
        """
        return self.find_scores()

    @cached_property
    def lead(self) -> Floats:
        """Return, for each duel, the evidence Lambda_ab of the observed features for entity a against entity b.

        The evidence is in nats. The result has the shape (Q,).
        """
        return self.find_lead(np.arange(self.n_duels))

    @cached_property
    def resolved(self) -> Bools:
        """Return a mask of the resolved duels, as an array of shape (Q,).

        A duel (comparison of entities a and b) is resolved if no values of the unobserved features can change its
        winner. The winner is a if `lead` is positive, else b.
        """
        return self.find_resolved(np.arange(self.n_duels))

    @cached_property
    def rank(self) -> Ints:
        """Return the rank of each entity by the preference scores; the best entity has rank 1.

        The result has the shape (N,).
        """
        if self.find_rank and (known := self.find_rank()) is not None:
            return known
        rank = np.empty(len(self.entities), dtype=np.int64)
        rank[self.ranked(range(len(self.entities)))] = np.arange(1, len(self.entities) + 1)
        return rank

    @cached_property
    def straddling(self) -> Bools:
        """Return a mask of the duels that compare a top-k entity with an entity outside the top k.

        The mask has the shape (Q,).
        """
        across = np.zeros(self.n_duels, dtype=bool)
        across[self.across] = True
        return across

    @cached_property
    def across(self) -> Ints:
        """Return the indices of the duels that compare a top-k entity with an entity outside the top k.

        The indices are in ascending order.
        """
        inside = np.flatnonzero(self.rank <= self.k)
        outside = np.flatnonzero(self.rank > self.k)
        return np.sort(self.duels(np.repeat(inside, len(outside)), np.tile(outside, len(inside))))

    @cached_property
    def contested(self) -> Ints:
        """Return the indices of the unresolved duels that compare a top-k entity with an entity outside the top k.

        The indices are in ascending order.
        """
        return self.across[~self.find_resolved(self.across)]

    @cached_property
    def certified(self) -> bool:
        """Return True if every top-k entity is certain to beat every entity outside the top k.

        The docstring of `TopKPlanner.certified` contains the proof.
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
        """Return a lower and an upper bound on the score S_v of each entity v, in nats.

        The bounds are the tight `l1` score bounds. The result has the shape (N, 2).
        """
        return self.find_intervals()

    @cached_property
    def clusters(self) -> Clusters:
        """Return the entity indices of each cluster. The clusters are computed again after every 50 observations."""
        return self.find_clusters()

    def information(self) -> Floats:
        """Return how much information the value of each feature gives about which entity is present.

        The result is the mutual information in nats. It has the shape (M,) and is 0 for observed features.
        """
        if self.find_information is None:
            return np.zeros(len(self.features))
        return np.where(self.observed, 0.0, self.find_information())

    def frontier(self) -> Floats:
        """Return the gain of each feature for the decision about the current top k (`Belief.frontier`).

        The result has the shape (M,) and is 0 for observed features. Raise a `PlannerError` if the planner has no
        background.
        """
        if self.find_frontier is None:
            step = "give the planner a background"
            raise PlannerError(Fault("rule frontier", "no background", "one, in the view", step))
        return np.where(self.observed, 0.0, self.find_frontier())

    def ranked(self, members: Sequence[int]) -> list[int]:
        """Return the given entities, best first.

        The ranking uses only the duels (comparisons of two entities) between the given entities.
        """
        chosen = np.array(members, dtype=np.int64)
        ranks = ranks_of(laid_out(self.scores), chosen, name_places(self.entities), self.tie)
        order: list[int] = ranks.order.tolist()
        return order

    def duel(self, one: int, other: int) -> int:
        """Return the index of the duel that compares two entities. The two entities may be given in either order."""
        return int(self.duels(np.array([one]), np.array([other]))[0])

    def duels(self, one: Ints, other: Ints) -> Ints:
        """Return, for each i, the index of the duel that compares entity `one[i]` with entity `other[i]`.

        The two entities may be given in either order. The result has the shape (q,).

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

    The view contains no values of unobserved features. The view must not be used after the next observation. If a
    feature is observed as +1, the other features of its exclusive group are marked as observed too.

    Parameters
    ----------
    score : guiding score
    find_clusters : function that returns the current clusters; called when a rule reads them

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
    """The interface of an allocation rule: a class whose constructor takes no arguments.

    The method `choose` must return a choice for every view with at least one unobserved feature. The choice must depend
    only on the view. `afa.planner.rules.check_policy` tests both requirements.
    """

    def choose(self, view: View) -> Choice: ...


def best(gain: Floats, features: tuple[str, ...], allowed: Bools) -> int | None:
    """Return the index of the allowed feature with the largest gain.

    Return None if no gain is positive. Gains count as equal if they differ by at most 1e-9 of the largest gain; the
    names of the features then decide.

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
    """Return the unobserved feature with the largest sum of absolute effective unaries over all entities.

    If this sum is 0 for all unobserved features, return the first of them in alphabetical order.
    """
    free = ~view.observed
    feature = best(view.largest_unary, view.features, free)
    if feature is not None:
        return Choice(feature, f"{why}: largest total effective unary", fallback=True)
    first = int(min(np.flatnonzero(free), key=lambda j: view.features[j]))
    return Choice(first, f"{why}, no entity a unary: first by name", fallback=True)


def heaviest(view: View, duels: Ints, weights: Floats, what: str) -> Choice:
    """Return the feature with the largest weighted sum of gains over the given duels (comparisons of two entities).

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
    """Return the choice of `fall_back`, with a reason that states why no duel is compared.

    Rules call this function if every duel between a top-k entity and an entity outside the top k is resolved.
    """
    certified = f"the top-{view.k} is certified"
    return fall_back(view, certified if view.certified else "no duel across the top-k boundary is open")
