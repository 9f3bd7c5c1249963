"""The protocol of an allocation rule: what it may see, and what it answers.

A rule sees a `View` of one patient: scores, brackets and gains, all computed from what has been observed.
It never sees an unobserved value or a label. It answers with a `Choice` that states its reason.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Protocol

import numpy as np
from numpy.typing import NDArray

from afa.cluster import Clusters
from afa.copeland import ranking
from afa.engine.rules import RELATIVE_TIE
from afa.mrf import Floats


@dataclass(frozen=True)
class Choice:
    """The feature to measure next, by index, and why; `fallback` when no candidate had a positive gain (spec A7)."""

    feature: int
    reason: str
    fallback: bool = False


@dataclass(frozen=True)
class View:
    """What a rule may see of one patient at one round: what has been observed, and what follows from it.

    features : M names. entities : N names. observed : (M,) bool. pairs : (Q, 2) entity indices, a < b: all duels.
    scores : (N, N) guiding preference scores V. tie : a score of at most this magnitude is a tie.
    lead : (Q,) Lambda_ab of what has been observed. resolved : (Q,) bool, duels that no completion can change, won by
    a where the lead is positive.
    largest_unary : (M,) absolute effective unary summed over entities, 0 at observed features.
    gain : maps a (Q,) mask of duels to their gains, shape (mask.sum(), M), 0 at observed features.
    total_gain : maps a (Q,) mask of closed duels to the sum of the gains of all others, (M,).
    weighted_gain : maps (Q,) weights to the sum of the gains of all duels, each times its weight, (M,).
    find_intervals, find_clusters : make `intervals` and `clusters` when a rule first asks for them.
    k : size of the top set. patient : its name. seed : of rules that draw at random.
    """

    features: tuple[str, ...]
    entities: tuple[str, ...]
    observed: NDArray[np.bool_]
    pairs: NDArray[np.int64]
    scores: Floats
    tie: float
    lead: Floats
    resolved: NDArray[np.bool_]
    largest_unary: Floats
    gain: Callable[[NDArray[np.bool_]], Floats]
    total_gain: Callable[[NDArray[np.bool_]], Floats]
    weighted_gain: Callable[[Floats], Floats]
    find_intervals: Callable[[], Floats]
    find_clusters: Callable[[], Clusters]
    k: int
    patient: str
    seed: int

    @cached_property
    def rank(self) -> NDArray[np.int64]:
        """(N,) rank of each entity by the guiding scores, 1 the best (spec S6)."""
        rank = np.empty(len(self.entities), dtype=np.int64)
        rank[self.ranked(range(len(self.entities)))] = np.arange(1, len(self.entities) + 1)
        return rank

    @cached_property
    def straddling(self) -> NDArray[np.bool_]:
        """(Q,) duels of a top-k entity against one outside."""
        inside = self.rank <= self.k
        across: NDArray[np.bool_] = inside[self.pairs[:, 0]] != inside[self.pairs[:, 1]]
        return across

    @cached_property
    def certified(self) -> bool:
        """Whether every top-k entity is certain to beat every entity outside; proof at `TopKPlanner.certified`."""
        winner = np.where(self.lead > 0, self.pairs[:, 0], self.pairs[:, 1])
        kept = self.resolved & (self.rank[winner] <= self.k)
        return bool(kept[self.straddling].all())

    @cached_property
    def intervals(self) -> Floats:
        """(N, 2) least and greatest score S_v of each entity under any completion (tight `l1`)."""
        return self.find_intervals()

    @cached_property
    def clusters(self) -> Clusters:
        """Entity indices by cluster, made anew every 50 observations (spec A1)."""
        return self.find_clusters()

    def ranked(self, members: Sequence[int]) -> list[int]:
        """Some entities, best first, by the duels among themselves alone (spec S6)."""
        chosen = list(members)
        names = [self.entities[v] for v in chosen]
        index = dict(zip(names, chosen, strict=True))
        return [index[name] for name in ranking(self.scores[np.ix_(chosen, chosen)], names, tie=self.tie)]

    def duel(self, one: int, other: int) -> int:
        """Place in `pairs` of the duel of two entities, in either order."""
        a, b = min(one, other), max(one, other)
        return int(np.flatnonzero((self.pairs[:, 0] == a) & (self.pairs[:, 1] == b))[0])


class Rule(Protocol):
    """An allocation rule: a class without arguments whose `choose` answers for any view with a feature left.

    The answer is a function of the view alone; `afa.allocate.check_policy` holds a rule to that.
    """

    def choose(self, view: View) -> Choice: ...


def best(worth: Floats, features: tuple[str, ...], allowed: NDArray[np.bool_]) -> int | None:
    """Index of the allowed feature of largest positive worth; near-ties go to the first name (spec A8).

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


def heaviest(view: View, weights: Floats, what: str) -> Choice:
    """The feature of largest weighted gain, or spec A7's where none is positive; `what` says what was summed over."""
    worth = view.weighted_gain(weights)
    feature = best(worth, view.features, ~view.observed)
    if feature is None:
        return fall_back(view)
    return Choice(feature, f"{what}: gain {worth[feature]:.4g}")


def nothing_to_decide(view: View) -> Choice:
    """Spec A7's choice where no duel across the top-k boundary is open."""
    certified = f"the top-{view.k} is certified"
    return fall_back(view, certified if view.certified else "no duel across the top-k boundary is open")
