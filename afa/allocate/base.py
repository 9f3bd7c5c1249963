"""The protocol of an allocation rule: what it may see, and what it answers.

A rule sees a `View` of one patient: scores, brackets and gains, all computed from what has been observed.
It never sees an unobserved value or a label. It answers with a `Choice` that states its reason.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Protocol

import numpy as np
from numpy.typing import NDArray

from afa.mrf import Floats

RELATIVE_TIE = 1e-9


@dataclass(frozen=True)
class Choice:
    """The feature to measure next, by index, and why; `fallback` when no candidate had a positive gain (spec A7)."""

    feature: int
    reason: str
    fallback: bool = False


@dataclass(frozen=True)
class View:
    """What a rule may see of one patient at one round.

    features : M names. entities : N names. observed : (M,) bool. pairs : (Q, 2) entity indices, a < b.
    scores : (N, N) guiding preference scores V. resolved : (Q,) bool, duels that no completion can change.
    largest_unary : (M,) absolute effective unary summed over entities, 0 at observed features.
    gain : maps a (Q,) mask of duels to their gains, shape (mask.sum(), M), 0 at observed features.
    total_gain : maps a (Q,) mask of closed duels to the sum of the gains of all others, (M,).
    k : size of the top set. patient : its name. seed : of rules that draw at random.
    """

    features: tuple[str, ...]
    entities: tuple[str, ...]
    observed: NDArray[np.bool_]
    pairs: NDArray[np.int64]
    scores: Floats
    resolved: NDArray[np.bool_]
    largest_unary: Floats
    gain: Callable[[NDArray[np.bool_]], Floats]
    total_gain: Callable[[NDArray[np.bool_]], Floats]
    k: int
    patient: str
    seed: int


class Rule(Protocol):
    """An allocation rule: a class without arguments whose `choose` answers for any view with a feature left."""

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


def fall_back(view: View) -> Choice:
    """Spec A7: the unobserved feature of largest total absolute effective unary, then the first by name."""
    free = ~view.observed
    feature = best(view.largest_unary, view.features, free)
    if feature is not None:
        return Choice(feature, "no candidate has a positive gain: largest total effective unary", fallback=True)
    first = int(min(np.flatnonzero(free), key=lambda j: view.features[j]))
    return Choice(first, "no candidate has a positive gain or unary: first by name", fallback=True)
