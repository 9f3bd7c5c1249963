"""Exact inference over entities, one of which holds, from features that imply one another (decisions.md F14a, F15).

A feature is there or not, and a feature that is there implies its ancestors: *seizure* implies *abnormality of the
nervous system*. An implied answer is no evidence, so that each feature is read given its parent: with one parent a
feature the features of an entity form a tree, in which the likelihood of any answers is a product. Without ancestors
this is naive Bayes. Everything is sparse: an entity speaks of a few dozen features, and of all others it has the
background.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np
import numpy.typing as npt
from scipy import sparse
from scipy.special import softmax

from afa.engine.compile import kernel
from afa.mrf import Floats

Indices = npt.NDArray[np.int64]
NEGLIGIBLE = 1e-12
"""A posterior whose entropy of a feature is not computed; all of them together are below N times this, in nats."""
NOWHERE = -1
"""The nearest present ancestor of a feature that has none: above the root, where P = 1."""


@dataclass(frozen=True, eq=False)
class Hierarchy:
    """N entities, T features with their ancestors, and how often an entity has a feature.

    Parameters
    ----------
    entities : N names
    features : T names, each after all its ancestors
    probabilities : (N, T) CSR in (0, 1), with a feature all its ancestors, whose P is at least as large. Where an
        entity is silent, the feature is as frequent among those who have its parent as in the background
    background : (T,) in (0, 1)
    parents : (T, T) CSR, nonzero where the column is a direct parent of the row
    floor : what a ratio of two probabilities is kept away from 0 and 1
    prior : (N,) log prior up to a constant; None is uniform

    """

    entities: tuple[str, ...]
    features: tuple[str, ...]
    probabilities: sparse.csr_array
    background: Floats
    parents: sparse.csr_array
    floor: float
    prior: Floats | None = None

    @cached_property
    def parent(self) -> Indices:
        """(T,) one parent a feature: that of least background, the first of equal ones; `NOWHERE` below the root."""
        chosen = np.full(len(self.features), NOWHERE, dtype=np.int64)
        for feature in range(len(self.features)):
            above = _row(self.parents, feature)
            if above.size:
                chosen[feature] = above[np.argmin(self.background[above])]
        return chosen

    @cached_property
    def ancestors(self) -> list[Indices]:
        """T ascending arrays: all ancestors of a feature, over every parent, itself left out."""
        found: list[Indices] = []
        for feature in range(len(self.features)):
            above = _row(self.parents, feature)
            found.append(np.unique(np.concatenate([above, *(found[a] for a in above)])) if above.size else above)
        return found

    @cached_property
    def descendants(self) -> list[Indices]:
        """T ascending arrays: all features that imply a feature, itself left out."""
        below: list[list[int]] = [[] for _ in self.features]
        for feature, above in enumerate(self.ancestors):
            for a in above:
                below[a].append(feature)
        return [np.array(each, dtype=np.int64) for each in below]

    @cached_property
    def columns(self) -> tuple[Indices, Indices, Floats]:
        """`probabilities` by feature: starts (T + 1,), entities in ascending order, P."""
        by_feature = sparse.csc_array(self.probabilities)
        by_feature.sort_indices()
        return by_feature.indptr.astype(np.int64), by_feature.indices.astype(np.int64), by_feature.data

    def given(self, feature: int, above: int) -> Floats:
        """(N,) P(feature | ancestor) of each entity, in [floor, 1 - floor]; `NOWHERE` stands for no condition."""
        usual = self.background[feature] / (self.background[above] if above != NOWHERE else 1.0)
        own, starts, entities = np.full(len(self.entities), usual), *self.columns[:2]
        spoken = np.empty(len(self.entities))
        top = _given(feature, above, self.parent, *self.columns, self.background, spoken)
        told = entities[starts[top] : starts[top + 1]]
        own[told] = spoken[told]
        kept: Floats = np.clip(own, self.floor, 1.0 - self.floor)
        return kept


@dataclass(frozen=True, eq=False)
class Answers:
    """What is known of one patient: features that are there, and features that are not.

    Parameters
    ----------
    hierarchy : the entities and features
    present : (T,) bool, closed: with a feature all its ancestors
    absent : (T,) bool, closed: with a feature all its descendants
    asked : absent features without an absent ancestor; with `present` the evidence

    """

    hierarchy: Hierarchy
    present: npt.NDArray[np.bool_]
    absent: npt.NDArray[np.bool_]
    asked: Indices

    @classmethod
    def of(cls, hierarchy: Hierarchy, present: Iterable[int] = (), absent: Iterable[int] = ()) -> Answers:
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
        return cls(hierarchy, there, missing, np.array(top, dtype=np.int64))

    @property
    def open(self) -> npt.NDArray[np.bool_]:
        """(T,) features of which the answers say nothing."""
        return ~self.present & ~self.absent

    @cached_property
    def nearest(self) -> Indices:
        """(T,) the nearest present ancestor of each feature along `parent`, or `NOWHERE`."""
        found = np.empty(len(self.present), dtype=np.int64)
        _nearest(self.hierarchy.parent, self.present, found)
        return found

    @cached_property
    def log_likelihood(self) -> Floats:
        """(N,) log P(answers | entity).

        The product over present features of P(f | parent), and over absent ones of 1 - P(f | nearest present ancestor).
        Exact on trees, whatever the order of the answers; too small where two absent features have a common
        ancestor of which nothing is known.
        """
        own, there = np.zeros(len(self.hierarchy.entities)), np.flatnonzero(self.present)
        shared = _add_up(there, self.hierarchy.parent[there], True, *self._numbers, own)
        shared += _add_up(self.asked, self.nearest[self.asked], False, *self._numbers, own)
        return own + shared

    @cached_property
    def posterior(self) -> Floats:
        """(N,) P(entity | answers), one entity holding; sums to 1."""
        prior = self.hierarchy.prior
        posterior: Floats = softmax(self.log_likelihood + (0.0 if prior is None else prior))
        return posterior

    def information(self, features: Sequence[int] | Indices, least: float = 0.0) -> Floats:
        """Mutual information of the entity and each of some open features, given the answers, in nats.

        `I_f = sum_v w_v KL(theta_v, m)`: theta the predictive of f under v, w the posterior, m the mean of theta.
        Features that cannot have `least` count as 0.
        """
        asked = np.asarray(features, dtype=np.int64)
        above, means, found = self.nearest[asked], np.empty(len(asked)), np.empty(len(asked))
        _mean(asked, above, self.posterior, *self._numbers, means)
        _information(asked, above, self.posterior, means, least, *self._numbers, found)
        for place, feature in enumerate(asked if self._absent_below else ()):
            if related := self._absent_relatives(int(feature)):
                theta = self._predictive(int(feature), related)
                mean = float(self.posterior @ theta)
                found[place] = max(0.0, _entropy(mean) - float(self.posterior @ _entropy(theta)))
        return found

    def most_informative(self, features: Sequence[int] | Indices) -> int:
        """The feature of largest `information`, the first of equal ones.

        The features of most uncertain answer set the mark; of the others only those that could pass it are computed.
        """
        asked = np.asarray(features, dtype=np.int64)
        means = np.empty(len(asked))
        _mean(asked, self.nearest[asked], self.posterior, *self._numbers, means)
        uncertain = asked[np.argsort(np.abs(means - 0.5), kind="stable")[:64]]
        mark = float(self.information(uncertain).max())
        return int(asked[np.argmax(self.information(asked, least=mark))])

    def predictive(self, feature: int) -> Floats:
        """(N,) P(feature | entity, answers) of an open feature: what is absent makes their common ancestors rarer."""
        return self._predictive(feature, self._absent_relatives(feature))

    def _predictive(self, feature: int, related: Sequence[tuple[int, int]]) -> Floats:
        above, floor = int(self.nearest[feature]), self.hierarchy.floor
        theta = self.hierarchy.given(feature, above)
        for one, common in related:
            theta = theta * (1.0 - self.hierarchy.given(one, common)) / (1.0 - self.hierarchy.given(one, above))
        return np.clip(theta, floor, 1.0 - floor)

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
    def _numbers(self) -> tuple[Indices, Indices, Indices, Floats, Floats, float]:
        return (self.hierarchy.parent, *self.hierarchy.columns, self.hierarchy.background, self.hierarchy.floor)


@kernel()
def _nearest(parent: Indices, present: npt.NDArray[np.bool_], found: Indices) -> None:
    """The nearest present ancestor of each feature; ancestors come first."""
    for feature in range(parent.size):
        above = parent[feature]
        found[feature] = NOWHERE if above == NOWHERE else above if present[above] else found[above]


def _row(matrix: sparse.csr_array, row: int) -> Indices:
    columns: Indices = matrix.indices[matrix.indptr[row] : matrix.indptr[row + 1]].astype(np.int64)
    return np.sort(columns)


def _entropy(p: Floats | float) -> Floats | float:
    return -p * np.log(p) - (1.0 - p) * np.log1p(-p)


@kernel(inline=True)
def _kept(ratio: float, floor: float) -> float:
    return min(max(ratio, floor), 1.0 - floor)


@kernel()
def _given(
    feature: int, above: int, parent: Indices, starts: Indices, entities: Indices, p: Floats, b: Floats, own: Floats
) -> int:
    """Write P(feature | ancestor) of the entities that speak of anything between the two into `own` (N,).

    Returns the feature whose column names them: the last one below the ancestor, since who speaks of a feature speaks
    of its ancestors. All others follow the background.
    """
    top, n_between, at = feature, 1, parent[feature]
    while at != above:
        top, n_between, at = at, n_between + 1, parent[at]
    for step in range(n_between - 1, -1, -1):  # from the top down: the lowest statement counts
        at = feature
        for _ in range(step):
            at = parent[at]
        for place in range(starts[at], starts[at + 1]):
            own[entities[place]] = p[place] * (b[feature] / b[at])
    if above >= 0:
        whole = starts[above]
        for place in range(starts[top], starts[top + 1]):
            while entities[whole] < entities[place]:
                whole += 1
            own[entities[place]] /= p[whole]
    return top


@kernel()
def _add_up(
    features: Indices,
    aboves: Indices,
    is_there: bool,
    parent: Indices,
    starts: Indices,
    entities: Indices,
    p: Floats,
    b: Floats,
    floor: float,
    total: Floats,
) -> float:
    """Add log P(features | ancestors), or of their absence, to `total` (N,) but for the sum that all share."""
    shared, own = 0.0, np.empty(total.size)
    for i in range(features.size):
        feature, above = features[i], aboves[i]
        usual = _kept(b[feature] / (b[above] if above >= 0 else 1.0), floor)
        log_usual = np.log(usual if is_there else 1.0 - usual)
        shared += log_usual
        top = _given(feature, above, parent, starts, entities, p, b, own)
        for place in range(starts[top], starts[top + 1]):
            v = entities[place]
            ratio = _kept(own[v], floor)
            total[v] += np.log(ratio if is_there else 1.0 - ratio) - log_usual
    return shared


@kernel()
def _mean(
    features: Indices,
    aboves: Indices,
    weight: Floats,
    parent: Indices,
    starts: Indices,
    entities: Indices,
    p: Floats,
    b: Floats,
    floor: float,
    found: Floats,
) -> None:
    """The mean m = sum_v w_v theta_v of each feature."""
    own = np.empty(weight.size)
    for i in range(features.size):
        feature, above = features[i], aboves[i]
        top = _given(feature, above, parent, starts, entities, p, b, own)
        mass = mean = 0.0
        for place in range(starts[top], starts[top + 1]):
            w = weight[entities[place]]
            mass += w
            mean += w * _kept(own[entities[place]], floor)
        usual = _kept(b[feature] / (b[above] if above >= 0 else 1.0), floor)
        found[i] = mean + max(0.0, 1.0 - mass) * usual


@kernel()
def _information(
    features: Indices,
    aboves: Indices,
    weight: Floats,
    means: Floats,
    least: float,
    parent: Indices,
    starts: Indices,
    entities: Indices,
    p: Floats,
    b: Floats,
    floor: float,
    found: Floats,
) -> None:
    """H(m) - sum_v w_v H(theta_v) of each feature; 0 where H(m), which it cannot exceed, is below `least`."""
    own = np.empty(weight.size)
    for i in range(features.size):
        feature, above, mean = features[i], aboves[i], means[i]
        found[i] = 0.0
        whole = -mean * np.log(mean) - (1.0 - mean) * np.log(1.0 - mean)
        if whole < least:
            continue
        top = _given(feature, above, parent, starts, entities, p, b, own)
        mass = inside = 0.0
        for place in range(starts[top], starts[top + 1]):
            w, theta = weight[entities[place]], _kept(own[entities[place]], floor)
            mass += w
            if w > NEGLIGIBLE:
                inside -= w * (theta * np.log(theta) + (1.0 - theta) * np.log(1.0 - theta))
        usual = _kept(b[feature] / (b[above] if above >= 0 else 1.0), floor)
        inside -= max(0.0, 1.0 - mass) * (usual * np.log(usual) + (1.0 - usual) * np.log(1.0 - usual))
        found[i] = max(0.0, whole - inside)
