"""Entities, one of which holds, and features that imply one another (decisions.md F14a).

A feature is there or not, and a feature that is there implies its ancestors: *seizure* implies *abnormality of the
nervous system*. With one parent a feature the features of an entity form a tree. Everything is sparse: an entity speaks
of a few dozen features, and of all others it has the background. `afa.inference.answers` has what follows from answers.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import cached_property
from typing import ClassVar
from weakref import WeakKeyDictionary

import numpy as np
import numpy.typing as npt
from scipy import sparse

from afa.bundle import Bundle
from afa.engine.implications import NOWHERE, Indices, Spoken, given
from afa.errors import BundleError, Fault
from afa.mrf import ROUNDING, Floats

Pairs = npt.NDArray[np.int64]


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
    tie : log-evidence that differs by at most this much is equal but for rounding

    """

    tie: ClassVar[float] = ROUNDING
    entities: tuple[str, ...]
    features: tuple[str, ...]
    probabilities: sparse.csr_array
    background: Floats
    parents: sparse.csr_array
    floor: float
    prior: Floats | None = None

    def closed(self) -> Hierarchy:
        """What is stated of some features, `probabilities`, closed under the hierarchy (decisions.md F14a).

        A P of at most `floor` says that the feature does not occur. A feature occurs by each of those stated below it,
        or for a reason that has nothing to do with the entity, at the rate of the background: 1 - (1 - b) prod (1 - P).
        With the largest of them alone, a patient whose *abnormality of the ear* comes from one sign would be certain
        to have the other one.
        """
        background, floor = self.background, self.floor
        said = _with_ancestors(self.probabilities, self.ancestors, floor)
        starts, rows = said.indptr.astype(np.int64), said.indices.astype(np.int64)
        silent, tree = np.isnan(said.data), self.parent
        largest = np.where(silent, 0.0, said.data)
        p = largest.copy()
        absent, below = np.zeros(len(p)), np.zeros(len(p))
        columns = [slice(*starts[at : at + 2]) for at in range(len(self.features))]
        up = _places_above(starts, rows, tree)
        for at in range(len(self.features) - 1, -1, -1):  # descendants first
            own, leak = columns[at], background[at]
            by_itself = np.where(largest[own] > below[own], largest[own], 0.0)
            some = np.maximum(1.0 - (1.0 - by_itself) * np.exp(absent[own]), largest[own])
            if tree[at] != NOWHERE:
                absent[up[own]] += np.log1p(-np.minimum(some, 1.0 - floor))
                below[up[own]] = np.maximum(below[up[own]], largest[own])
            p[own] = np.where(largest[own] > floor, 1.0 - (1.0 - some) * (1.0 - leak), floor)
        for at in range(len(self.features)):  # what only a feature below makes an entry follows the background
            own, above = columns[at], tree[at]
            usual = background[at] * (1.0 if above == NOWHERE else p[up[own]] / background[above])
            p[own] = np.where(silent[own], usual, p[own])
        made = sparse.csc_array((np.clip(p, floor, 1.0 - floor), rows, starts), shape=said.shape)
        return replace(self, probabilities=sparse.csr_array(made))

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
    def spoken(self) -> Spoken:
        """`probabilities` by feature."""
        by_feature = sparse.csc_array(self.probabilities)
        by_feature.sort_indices()
        starts, entities = by_feature.indptr.astype(np.int64), by_feature.indices.astype(np.int64)
        return Spoken(self.parent, starts, entities, by_feature.data, self.background, self.floor)

    @cached_property
    def up(self) -> Indices:
        """For each place of `spoken.p`, that of the same entity in the column of the feature's parent."""
        return _places_above(self.spoken.starts, self.spoken.entities, self.parent)

    def given(self, feature: int, above: int) -> Floats:
        """(N,) P(feature | ancestor) of each entity, in [floor, 1 - floor]; `NOWHERE` stands for no condition."""
        usual = self.background[feature] / (self.background[above] if above != NOWHERE else 1.0)
        own, said, spoken = np.full(len(self.entities), usual), np.empty(len(self.entities)), self.spoken
        top = given(feature, above, spoken, said)
        told = spoken.entities[spoken.starts[top] : spoken.starts[top + 1]]
        own[told] = said[told]
        kept: Floats = np.clip(own, self.floor, 1.0 - self.floor)
        return kept


KNOWN: WeakKeyDictionary[Bundle, tuple[Hierarchy, Indices]] = WeakKeyDictionary()


def hierarchy_of(bundle: Bundle) -> tuple[Hierarchy, Indices]:
    """What a bundle with implies.csv says, and the place of each of its features in `Hierarchy.features`; made once.

    Raises
    ------
    BundleError : several entities may hold, a feature can be -1, or there are couplings or exclusive groups.

    """
    if bundle not in KNOWN:
        KNOWN[bundle] = _hierarchy_of(bundle)
    return KNOWN[bundle]


def _hierarchy_of(bundle: Bundle) -> tuple[Hierarchy, Indices]:
    rates = bundle.rates
    expected = "implications (implies.csv) of binary features alone, `holds: one` and no couplings"
    wrong = {
        "no implications": rates is None or not rates.parents,
        "`holds` that is not `one`": rates is not None and rates.holds != "one",
        "features that can be -1": bool(bundle.possible[:, 0].any()),
        "couplings": len(bundle.packed.value) > 0,
        "exclusive groups": bool(bundle.exclusive),
    }
    if found := [what for what, there in wrong.items() if there]:
        raise BundleError(Fault(f"bundle {bundle.name}", ", ".join(found), expected, "correct the bundle"))
    assert rates is not None
    edges = np.array(rates.parents, dtype=np.int64)
    order = _ancestors_first(len(bundle.features), edges)
    place = np.empty(len(order), dtype=np.int64)
    place[order] = np.arange(len(order))
    shape = len(order), len(order)
    parents = sparse.csr_array((np.ones(len(edges)), (place[edges[:, 0]], place[edges[:, 1]])), shape=shape)
    p, v, j = rates.stated.with_entity[:, 2], rates.stated.entity, rates.stated.feature
    said = np.isfinite(p)
    lean, of = (part.astype(np.int64) for part in np.nonzero(bundle.unary))
    alone = ~np.isin(lean * len(order) + of, v * len(order) + j)
    lean, of = lean[alone], of[alone]
    tilted = bundle.background[of, 2] * np.exp(bundle.unary[lean, of])
    tilted = tilted / (tilted + bundle.background[of, 1])
    table = (np.r_[p[said], tilted], (np.r_[v[said], lean], place[np.r_[j[said], of]]))
    stated = sparse.csr_array(table, shape=(len(bundle.entities), len(order)))
    stated.data = np.clip(stated.data, rates.floor, 1.0 - rates.floor)
    names = tuple(bundle.features[i] for i in order)
    background = _monotone(bundle.background[order, 2], parents)
    prior = bundle.priors if bundle.priors.any() else None
    return Hierarchy(bundle.entities, names, stated, background, parents, rates.floor, prior).closed(), place


def _ancestors_first(n: int, edges: Pairs) -> Indices:
    """The features (n,) in an order in which parents come first, and which changes nothing where they do already."""
    depth = np.zeros(n, dtype=np.int64)
    if (edges[:, 0] > edges[:, 1]).all():
        return np.arange(n)
    for _ in range(n):
        deeper = depth.copy()
        np.maximum.at(deeper, edges[:, 0], depth[edges[:, 1]] + 1)
        if (deeper == depth).all():
            break
        depth = deeper
    return np.argsort(depth, kind="stable").astype(np.int64)


def _monotone(background: Floats, parents: sparse.csr_array) -> Floats:
    """(T,) the background, that of a parent at least that of each child."""
    found = background.copy()
    for feature in range(len(found) - 1, -1, -1):
        for above in _row(parents, feature):
            found[above] = max(found[above], found[feature])
    return found


def _with_ancestors(stated: sparse.csr_array, ancestors: list[Indices], floor: float) -> sparse.csc_array:
    """The same with every ancestor: of what occurs the largest below it, of what does not NaN where nothing is said."""
    rows, columns = (part.astype(np.int64) for part in stated.tocoo().coords)
    sizes = np.array([len(ancestors[at]) for at in columns], dtype=np.int64)
    above = np.concatenate([ancestors[at] for at in columns]) if len(columns) else columns
    value = np.where(stated.tocoo().data > floor, stated.tocoo().data, -1.0)
    row, column = np.r_[rows, np.repeat(rows, sizes)], np.r_[columns, above]
    largest = np.r_[stated.tocoo().data, np.repeat(value, sizes)]
    column, row, largest = largest_of(column, row, largest)
    starts = np.searchsorted(column, np.arange(stated.shape[1] + 1))
    return sparse.csc_array((np.where(largest < 0, np.nan, largest), row, starts), shape=stated.shape)


def largest_of(rows: Indices, columns: Indices, values: Floats) -> tuple[Indices, Indices, Floats]:
    """Entries by row, then by column: each place once, with the largest of its values."""
    order = np.lexsort((columns, rows))
    row, column = rows[order], columns[order]
    first = np.flatnonzero(np.r_[True, (np.diff(row) != 0) | (np.diff(column) != 0)][: len(row)])
    return row[first], column[first], np.maximum.reduceat(values[order], first)


def _places_above(starts: Indices, entities: Indices, parent: Indices) -> Indices:
    found = np.zeros(len(entities), dtype=np.int64)
    for feature in np.flatnonzero(parent != NOWHERE):
        own, among = (slice(*starts[at : at + 2]) for at in (feature, parent[feature]))
        found[own] = among.start + np.searchsorted(entities[among], entities[own])
    return found


def _row(matrix: sparse.csr_array, row: int) -> Indices:
    columns: Indices = matrix.indices[matrix.indptr[row] : matrix.indptr[row + 1]].astype(np.int64)
    return np.sort(columns)
