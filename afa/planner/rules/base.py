"""The protocol of an allocation rule: what it may see, and what it answers.

A rule sees a `View` of one patient: scores, brackets and gains, all computed from what has been observed.
It never sees an unobserved value or a label. It answers with a `Choice` that states its reason.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cached_property, partial
from typing import Protocol

import numpy as np
from numpy.typing import NDArray

from afa.engine.duels import all_pairs, sides_of
from afa.engine.patient_state import DuelWeights, PatientState
from afa.engine.ranks import name_places, ranks_of
from afa.errors import Fault, PlannerError
from afa.model.bundle import Bundle
from afa.model.mrf import RELATIVE_TIE, Floats
from afa.planner.cluster import Clusters

Duels = NDArray[np.int64]
FIRST_LOOK = 64
"""Duels of least lead that are looked at before all others where one open duel decides."""


@dataclass(frozen=True)
class Choice:
    """The next feature, by index, and why; `fallback` when no candidate had a positive gain (decisions.md A7).

    over : the duels whose gain it is the largest of, with their weights; None where the rule looked at no gain.
    """

    feature: int
    reason: str
    fallback: bool = False
    over: DuelWeights | None = None


@dataclass(frozen=True)
class View:
    """What a rule may see of one patient at one round: what has been observed, and what follows from it.

    A duel is named by its place in `pairs`. What is large or costly is made when a rule first asks for it: a rule that
    looks at a few duels by their places pays for those alone.

    features : M names. entities : N names. observed : (M,) bool. tie : a score of at most this magnitude is a tie.
    largest_unary : (M,) absolute effective unary summed over entities, 0 at observed features.
    gain : maps a (Q,) mask of duels to their gains, shape (mask.sum(), M), 0 at observed features.
    total_gain : maps a (Q,) mask of closed duels to the sum of the gains of all others, (M,).
    weighted_gain : maps (Q,) weights, or `DuelWeights`, to the sum of all gains, each times its duel's weight, (M,).
    find_scores : makes `scores`. find_rank : makes `rank` where it is known without a look at all duels, else None.
    find_lead, find_resolved : map the places of some duels, (q,), each once and ascending, to `lead` and `resolved` of
    those. find_intervals, find_clusters : make `intervals` and `clusters`. find_information : makes what each
    feature tells about which entity holds, (M,), before those observed are set to 0; None where only duels count.
    find_frontier : makes what each feature settles at the edge of the top k, (M,); None without a background, of which
    `background` says in words what it is. k : size of the top set. patient : its name. seed : of rules that draw at
    random.
    """

    features: tuple[str, ...]
    entities: tuple[str, ...]
    observed: NDArray[np.bool_]
    tie: float
    largest_unary: Floats
    gain: Callable[[NDArray[np.bool_]], Floats]
    total_gain: Callable[[NDArray[np.bool_]], Floats]
    weighted_gain: Callable[[Floats | DuelWeights], Floats]
    find_scores: Callable[[], Floats]
    find_rank: Callable[[], NDArray[np.int64] | None] | None
    find_lead: Callable[[Duels], Floats]
    find_resolved: Callable[[Duels], NDArray[np.bool_]]
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
        """Q, the number of duels."""
        return len(self.entities) * (len(self.entities) - 1) // 2

    @cached_property
    def pairs(self) -> NDArray[np.int64]:
        """(Q, 2) entity indices a < b of all duels, in order."""
        pairs = all_pairs(len(self.entities))
        pairs.flags.writeable = False
        return pairs

    @cached_property
    def scores(self) -> Floats:
        """(N, N) guiding preference scores V."""
        return self.find_scores()

    @cached_property
    def lead(self) -> Floats:
        """(Q,) Lambda_ab of what has been observed."""
        return self.find_lead(np.arange(self.n_duels))

    @cached_property
    def resolved(self) -> NDArray[np.bool_]:
        """(Q,) duels that no completion can change, won by a where the lead is positive."""
        return self.find_resolved(np.arange(self.n_duels))

    @cached_property
    def rank(self) -> NDArray[np.int64]:
        """(N,) rank of each entity by the guiding scores, 1 the best (decisions.md S6)."""
        if self.find_rank and (known := self.find_rank()) is not None:
            return known
        rank = np.empty(len(self.entities), dtype=np.int64)
        rank[self.ranked(range(len(self.entities)))] = np.arange(1, len(self.entities) + 1)
        return rank

    @cached_property
    def straddling(self) -> NDArray[np.bool_]:
        """(Q,) duels of a top-k entity against one outside."""
        across = np.zeros(self.n_duels, dtype=bool)
        across[self.across] = True
        return across

    @cached_property
    def across(self) -> Duels:
        """Places of the duels of a top-k entity against one outside, ascending."""
        inside = np.flatnonzero(self.rank <= self.k)
        outside = np.flatnonzero(self.rank > self.k)
        return np.sort(self.duels(np.repeat(inside, len(outside)), np.tile(outside, len(inside))))

    @cached_property
    def contested(self) -> Duels:
        """Places of the duels across the top-k boundary that are not resolved, ascending."""
        return self.across[~self.find_resolved(self.across)]

    @cached_property
    def certified(self) -> bool:
        """Whether every top-k entity is certain to beat every entity outside; proof at `TopKPlanner.certified`."""
        lead = self.find_lead(self.across)
        a, b = sides_of(len(self.entities), self.across).T
        if (self.rank[np.where(lead > 0, a, b)] > self.k).any():
            return False
        closest_first = self.across[np.argsort(np.abs(lead), kind="stable")]  # an open duel is soonest found there
        return all(
            self.find_resolved(np.sort(part)).all() for part in np.split(closest_first, [FIRST_LOOK]) if len(part)
        )

    @cached_property
    def intervals(self) -> Floats:
        """(N, 2) least and greatest score S_v of each entity under any completion (tight `l1`)."""
        return self.find_intervals()

    @cached_property
    def clusters(self) -> Clusters:
        """Entity indices by cluster, made anew every 50 observations (decisions.md A1)."""
        return self.find_clusters()

    def information(self) -> Floats:
        """Return what each feature tells about which entity holds, (M,), in nats; 0 at observed features."""
        if self.find_information is None:
            return np.zeros(len(self.features))
        return np.where(self.observed, 0.0, self.find_information())

    def frontier(self) -> Floats:
        """Return what each feature settles at the edge of the top k, (M,), 0 at observed features (`Belief.frontier`).

        A `PlannerError` where the planner has no background.
        """
        if self.find_frontier is None:
            step = "give the planner a background"
            raise PlannerError(Fault("rule frontier", "no background", "one, in the view", step))
        return np.where(self.observed, 0.0, self.find_frontier())

    def ranked(self, members: Sequence[int]) -> list[int]:
        """Some entities, best first, by the duels among themselves alone (decisions.md S6)."""
        chosen = np.array(members, dtype=np.int64)
        order: list[int] = ranks_of(self.scores, chosen, name_places(self.entities), self.tie).order.tolist()
        return order

    def duel(self, one: int, other: int) -> int:
        """Place in `pairs` of the duel of two entities, in either order."""
        return int(self.duels(np.array([one]), np.array([other]))[0])

    def duels(self, one: NDArray[np.int64], other: NDArray[np.int64]) -> Duels:
        """Places in `pairs` of the duels of some entities, (q,), against others, (q,), in either order."""
        a, b = np.minimum(one, other), np.maximum(one, other)
        places: Duels = a * len(self.entities) - a * (a + 1) // 2 + b - a - 1
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
    """The view of one patient now; it is good until the next observation, and holds no value that is unobserved.

    A feature that cannot be +1, since another one of its exclusive group is, counts as observed.
    score : the guiding score. find_clusters : makes the clusters of the present round when a rule asks for them.
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
    """An allocation rule: a class without arguments whose `choose` answers for any view with a feature left.

    The answer is a function of the view alone; `afa.planner.rules.check_policy` holds a rule to that.
    """

    def choose(self, view: View) -> Choice: ...


def best(worth: Floats, features: tuple[str, ...], allowed: NDArray[np.bool_]) -> int | None:
    """Index of the allowed feature of largest positive worth; near-ties go to the first name (decisions.md A8).

    Worths within a relative 1e-9 of the largest count as equal. None where no allowed worth is positive.
    """
    masked = np.where(allowed, worth, -np.inf)
    top = masked.max(initial=-np.inf)
    if not top > 0:
        return None
    ties = np.flatnonzero(masked >= top * (1 - RELATIVE_TIE))
    return int(min(ties, key=lambda j: features[j]))


def fall_back(view: View, why: str = "no candidate has a positive gain") -> Choice:
    """Spec A7: the unobserved feature of largest total absolute effective unary, then the first by name."""
    free = ~view.observed
    feature = best(view.largest_unary, view.features, free)
    if feature is not None:
        return Choice(feature, f"{why}: largest total effective unary", fallback=True)
    first = int(min(np.flatnonzero(free), key=lambda j: view.features[j]))
    return Choice(first, f"{why}, no entity a unary: first by name", fallback=True)


def heaviest(view: View, duels: Duels, weights: Floats, what: str) -> Choice:
    """The feature of largest gain, summed over some duels under weights, or decisions.md A7's where none is positive.

    duels : (q,) places, ascending. weights : (q,). what : says what was summed over.
    """
    over = DuelWeights(view.n_duels, duels, weights)
    worth = view.weighted_gain(over)
    feature = best(worth, view.features, ~view.observed)
    if feature is None:
        return fall_back(view)
    return Choice(feature, f"{what}: gain {worth[feature]:.4g}", over=over)


def nothing_to_decide(view: View) -> Choice:
    """Spec A7's choice where no duel across the top-k boundary is open."""
    certified = f"the top-{view.k} is certified"
    return fall_back(view, certified if view.certified else "no duel across the top-k boundary is open")
