"""Exact inference over entities, one of which holds, from answers that imply one another (decisions.md F14a, F15).

An implied answer is no evidence, so that each feature is read given its parent: in a tree the likelihood of any answers
is a product. Without ancestors this is naive Bayes.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np
import numpy.typing as npt
from scipy.special import softmax

from afa.engine.implications import NOWHERE, Indices, add_up, means, nearest, told
from afa.inference.hierarchy import Hierarchy
from afa.mrf import Floats

MARKED = 64
"""Features of most uncertain answer whose information sets the mark for all others."""


@dataclass(frozen=True, eq=False)
class Answers:
    """What is known of one patient: features that are there, and features that are not.

    Parameters
    ----------
    hierarchy : the entities and features
    present : (T,) bool, closed: with a feature all its ancestors
    absent : (T,) bool, closed: with a feature all its descendants
    asked : absent features without an absent ancestor; with `present` the evidence
    tau : how far the likelihood is believed, in (0, 1] (decisions.md F16)

    """

    hierarchy: Hierarchy
    present: npt.NDArray[np.bool_]
    absent: npt.NDArray[np.bool_]
    asked: Indices
    tau: float = 1.0

    @classmethod
    def of(
        cls, hierarchy: Hierarchy, present: Iterable[int] = (), absent: Iterable[int] = (), tau: float = 1.0
    ) -> Answers:
        """The closure of some answers; a feature may be absent below one that is present.

        Raises
        ------
        ValueError : a feature is absent that a present one implies.

        """
        there, missing = np.zeros((2, len(hierarchy.features)), dtype=bool)
        for feature in present:
            there[feature] = True
            there[hierarchy.ancestors[feature]] = True
        given = np.unique(np.fromiter(absent, dtype=np.int64))
        for feature in given:
            missing[feature] = True
            missing[hierarchy.descendants[feature]] = True
        if (there & missing).any():
            name = hierarchy.features[int(np.flatnonzero(there & missing)[0])]
            raise ValueError(f"{name} is absent, and implied by what is present")
        top = [feature for feature in given if not missing[hierarchy.ancestors[feature]].any()]
        return cls(hierarchy, there, missing, np.array(top, dtype=np.int64), tau)

    @property
    def open(self) -> npt.NDArray[np.bool_]:
        """(T,) features of which the answers say nothing."""
        return ~self.present & ~self.absent

    @cached_property
    def nearest(self) -> Indices:
        """(T,) the nearest present ancestor of each feature along `parent`, or `NOWHERE`."""
        found = np.empty(len(self.present), dtype=np.int64)
        nearest(self.hierarchy.parent, self.present, found)
        return found

    @cached_property
    def log_likelihood(self) -> Floats:
        """(N,) log P(answers | entity).

        The product over present features of P(f | parent), and over absent ones of 1 - P(f | nearest present ancestor).
        Exact on trees, whatever the order of the answers; too small where two absent features have a common
        ancestor of which nothing is known.
        """
        own, there = np.zeros(len(self.hierarchy.entities)), np.flatnonzero(self.present)
        shared = add_up(there, self.hierarchy.parent[there], True, *self._numbers, own)
        shared += add_up(self.asked, self.nearest[self.asked], False, *self._numbers, own)
        return own + shared

    @cached_property
    def log_evidence(self) -> Floats:
        """(N,) log prior plus tau times `log_likelihood`."""
        prior = self.hierarchy.prior
        evidence: Floats = self.tau * self.log_likelihood + (0.0 if prior is None else prior)
        return evidence

    @cached_property
    def posterior(self) -> Floats:
        """(N,) P(entity | answers), one entity holding; sums to 1."""
        posterior: Floats = softmax(self.log_evidence)
        return posterior

    def information(self, features: Sequence[int] | Indices) -> Floats:
        """Mutual information of the entity and each of some open features, given the answers, in nats.

        `I_f = sum_v w_v KL(theta_v, m)`: theta the predictive of f under v, w the posterior, m the mean of theta.
        """
        asked = np.asarray(features, dtype=np.int64)
        found = np.empty(len(asked))
        told(asked, self.nearest[asked], self.posterior, *self._numbers, found)
        for place in np.flatnonzero(self._near_an_absent_one[asked]):
            theta = self.predictive(int(asked[place]))
            mean = float(self.posterior @ theta)
            found[place] = max(0.0, _entropy(mean) - float(self.posterior @ _entropy(theta)))
        return found

    def most_informative(self, features: Sequence[int] | Indices) -> int:
        """The feature of largest `information`, the first of equal ones."""
        asked = np.asarray(features, dtype=np.int64)
        return int(asked[np.argmax(self.largest(asked))])

    def largest(self, features: Sequence[int] | Indices) -> Floats:
        """The same as `information`, but 0 of features that cannot tell the most.

        No feature tells more than the entropy of its answer. Those of most uncertain answer set the mark; of the
        others only those that could pass it are computed.
        """
        asked = np.asarray(features, dtype=np.int64)
        bound = self.bounds()[asked]
        order = np.argsort(-bound, kind="stable")
        first = self.information(asked[order[:MARKED]])
        rest = order[MARKED:][bound[order[MARKED:]] >= first.max()]
        found = np.zeros(len(asked))
        found[order[:MARKED]] = first
        found[rest] = self.information(asked[rest])
        return found

    def bounds(self) -> Floats:
        """(T,) what each open feature can tell at most, in nats; 0 of the others.

        An absent feature makes its relatives rarer: theirs is the entropy of a share of at most the mean without it.
        """
        open_ = np.flatnonzero(self.open)
        order, found = open_[np.argsort(self.nearest[open_], kind="stable")], np.zeros(len(self.present))
        means(order, self.nearest, self.posterior, *self._numbers[:-1], self.hierarchy.up, found)
        floor = self.hierarchy.floor
        likely = np.clip(found[open_], floor, 1.0 - floor)
        nearer = np.clip(likely + np.sign(0.5 - likely) * floor, floor, 1.0 - floor)  # ratios are kept from 0 and 1
        any_share = (np.abs(likely - 0.5) <= floor) | (self._near_an_absent_one[open_] & (likely > 0.5))
        found[open_] = _entropy(np.where(any_share, 0.5, nearer))
        return found

    def predictive(self, feature: int) -> Floats:
        """(N,) P(feature | entity, answers) of an open feature: what is absent makes their common ancestors rarer."""
        floor = self.hierarchy.floor
        theta = self.hierarchy.given(feature, int(self.nearest[feature]))
        for one, common in self._absent_relatives(feature):
            theta = theta * self._rarer(one, common)
        return np.clip(theta, floor, 1.0 - floor)

    def _rarer(self, absent: int, common: int) -> Floats:
        """(N,) how much rarer an unknown ancestor is by the absence of a feature below it."""
        if (absent, common) not in self._known_rarer:
            given = self.hierarchy.given
            self._known_rarer[absent, common] = (1.0 - given(absent, common)) / (
                1.0 - given(absent, int(self.nearest[absent]))
            )
        return self._known_rarer[absent, common]

    def _absent_relatives(self, feature: int) -> list[tuple[int, int]]:
        """The absent features that share an unknown ancestor with a feature, or lie below it, with the nearest one."""
        found: dict[int, int] = {}
        at = feature
        while at != NOWHERE and not self.present[at]:
            for one in self._absent_below.get(at, ()):
                found.setdefault(one, at)
            at = int(self.hierarchy.parent[at])
        return list(found.items())

    @cached_property
    def _absent_below(self) -> dict[int, list[int]]:
        """The absent features below each open one, along `parent`."""
        found: dict[int, list[int]] = {}
        for feature in self.asked.tolist():
            at = int(self.hierarchy.parent[feature])
            while at != NOWHERE and not self.present[at]:
                found.setdefault(at, []).append(feature)
                at = int(self.hierarchy.parent[at])
        return found

    @cached_property
    def _known_rarer(self) -> dict[tuple[int, int], Floats]:
        return {}

    @cached_property
    def _near_an_absent_one(self) -> npt.NDArray[np.bool_]:
        """(T,) open features that share an unknown ancestor with an absent feature, or have one below them."""
        found = np.zeros(len(self.present), dtype=bool)
        found[list(self._absent_below)] = True
        for feature in np.flatnonzero(self.open & (self.hierarchy.parent != NOWHERE)) if self._absent_below else ():
            found[feature] |= found[self.hierarchy.parent[feature]]
        return found

    @cached_property
    def _numbers(self) -> tuple[Indices, Indices, Indices, Floats, Floats, float]:
        return (self.hierarchy.parent, *self.hierarchy.columns, self.hierarchy.background, self.hierarchy.floor)


def _entropy(p: Floats | float) -> Floats | float:
    return -p * np.log(p) - (1.0 - p) * np.log1p(-p)
