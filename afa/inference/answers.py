"""Exact inference over entities, one of which holds, from answers that imply one another (decisions.md F14a, F15).

An entity has each of its features for a reason of its own, and besides what they imply. What is there explains its
ancestors, which then say nothing of what else is below them. Without ancestors this is naive Bayes.
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
    explained : (T,) bool, the present features that another present one implies
    asked : absent features without an absent ancestor; with the present ones that are not explained the evidence
    tau : how far the likelihood is believed, in (0, 1] (decisions.md F16)

    """

    hierarchy: Hierarchy
    present: npt.NDArray[np.bool_]
    absent: npt.NDArray[np.bool_]
    explained: npt.NDArray[np.bool_]
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
        there, missing, explained = np.zeros((3, len(hierarchy.features)), dtype=bool)
        for feature in present:
            there[feature] = True
            explained[hierarchy.ancestors[feature]] = True
        there |= explained
        given = np.unique(np.fromiter(absent, dtype=np.int64))
        for feature in given:
            missing[feature] = True
            missing[hierarchy.descendants[feature]] = True
        if (there & missing).any():
            name = hierarchy.features[int(np.flatnonzero(there & missing)[0])]
            raise ValueError(f"{name} is absent, and implied by what is present")
        top = [feature for feature in given if not missing[hierarchy.ancestors[feature]].any()]
        return cls(hierarchy, there, missing, explained, np.array(top, dtype=np.int64), tau)

    @property
    def open(self) -> npt.NDArray[np.bool_]:
        """(T,) features of which the answers say nothing."""
        return ~self.present & ~self.absent

    @cached_property
    def nearest(self) -> Indices:
        """(T,) the nearest present ancestor of each feature along `parent`; `NOWHERE` if none or explained."""
        found = np.empty(len(self.present), dtype=np.int64)
        nearest(self.hierarchy.parent, self.present, found)
        return np.where((found != NOWHERE) & self.explained[found], NOWHERE, found)

    @cached_property
    def log_likelihood(self) -> Floats:
        """(N,) log P(answers | entity).

        The product over present features that are not explained of P(f), and over absent ones of 1 - P(f), given the
        nearest present ancestor where that is not explained. The same in whatever order answers come. Exact in a tree
        unless two absent features lie below one that is present and not explained: then too large.
        """
        own, there = np.zeros(len(self.hierarchy.entities)), np.flatnonzero(self.present & ~self.explained)
        shared = add_up(there, np.full(len(there), NOWHERE), True, self.hierarchy.spoken, own)
        shared += add_up(self.asked, self.nearest[self.asked], False, self.hierarchy.spoken, own)
        return own + shared

    @cached_property
    def log_evidence(self) -> Floats:
        """(N,) log prior plus tau times `log_likelihood`."""
        prior = self.hierarchy.prior
        return self.tau * self.log_likelihood + (0.0 if prior is None else prior)

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
        told(asked, self.nearest[asked], self.posterior, self.hierarchy.spoken, found)
        for place in np.flatnonzero(self._is_above_absent[asked]):
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

        An absent feature makes its ancestors rarer: theirs is the entropy of a share of at most the mean without it.
        """
        known, floor = np.flatnonzero(self.open | self.explained), self.hierarchy.floor
        order, found = known[np.argsort(self.nearest[known], kind="stable")], np.zeros(len(self.present))
        means(order, self.nearest, self.posterior, self.hierarchy.spoken, self.hierarchy.up, found)
        likely = np.clip(found, floor, 1.0 - floor)
        nearer = np.clip(likely + np.sign(0.5 - likely) * floor, floor, 1.0 - floor)  # ratios are kept from 0 and 1
        any_share = (np.abs(likely - 0.5) <= floor) | (self._is_above_absent & (likely > 0.5))
        return np.where(self.open, _entropy(np.where(any_share, 0.5, nearer)), 0.0)

    def predictive(self, feature: int) -> Floats:
        """(N,) P(feature | entity, answers) of an open feature: what is absent makes its ancestors rarer."""
        given, floor = self.hierarchy.given, self.hierarchy.floor
        theta = given(feature, int(self.nearest[feature]))
        for one in self._absent_below.get(feature, ()):
            theta = theta * (1.0 - given(one, feature)) / (1.0 - given(one, int(self.nearest[one])))
        return np.clip(theta, floor, 1.0 - floor)

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
    def _is_above_absent(self) -> npt.NDArray[np.bool_]:
        """(T,) open features with an absent one below them."""
        found = np.zeros(len(self.present), dtype=bool)
        found[list(self._absent_below)] = True
        return found


def _entropy(p: Floats | float) -> Floats | float:
    return -p * np.log(p) - (1.0 - p) * np.log1p(-p)
