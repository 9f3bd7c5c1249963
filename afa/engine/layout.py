"""A bundle laid out for the kernels: only supports are stored, one after the other.

A *slot* is one feature in the support of one entity. K is the number of slots over all entities; on the
recorded bundle K = 553 for 25 entities and 253 features.

The paper's models and those of probabilities (docs/decisions.md, F1 to F5) have one layout: the terms of a slot are
f(s) = level + alpha s + even s^2, couplings are about its centre, and of the paper level, even and centre are 0.
"""

from __future__ import annotations

from dataclasses import dataclass
from itertools import product
from typing import NamedTuple
from weakref import WeakKeyDictionary

import numpy as np
import scipy.sparse as sp
from numpy.typing import NDArray

from afa.engine.compile import kernel
from afa.errors import BundleError, Fault
from afa.model.bundle import Bundle
from afa.model.mrf import LOG3, ROUNDING, Floats, PairwiseMRF

Indices = NDArray[np.int64]
Pairs = NDArray[np.int64]


class Overlaps(NamedTuple):
    """What two entities share, for every ordered pair (u, v), at index u N + v.

    A *place* counts slots from the first of an entity.

    first, of_u, of_v : the features in both supports, at places of_u in u and of_v in v.
    first_edge, edge_j, edge_l, coupling : the couplings of v between features that u holds too, at places of u, each
    unordered pair once.
    """

    first: Indices
    of_u: Indices
    of_v: Indices
    first_edge: Indices
    edge_j: Indices
    edge_l: Indices
    coupling: Floats


LEVEL, EVEN, CENTRE, SECOND, WIDTH, OFFSET, SIDES, TOLD_LOW, TOLD, TOLD_HIGH = range(10)
LOW, HIGH, SILENT, SILENT_SECOND, NEXT = range(10, 15)
"""Rows of `Packed.site`; they are of one array because a kernel's call hands over each array of its arguments."""
NEGLIGIBLE = 2.0**80
"""Weight of the two sides against the middle where a feature has two values, laid on -1 and +1."""


class Packed(NamedTuple):
    """Arrays of a bundle by slot.

    first_slot : (N + 1,) the slots of entity v are first_slot[v] : first_slot[v + 1], by ascending feature.
    feature : (K,) the feature of a slot. owner : (K,) its entity. unary : (K,) its unary potential.
    first_edge : (K + 1,) the couplings of a slot are first_edge[s] : first_edge[s + 1], by ascending feature.
    other_slot, coupling : (2 E,) the slot at the other end, of the same entity, and the potential.
    first_holder : (M + 1,) the slots that hold feature f are holder[first_holder[f] : first_holder[f + 1]].
    prior : (N,) prior log-odds. n_features : M. tie : a score of at most this magnitude is rounding, not a preference.
    site : (15, K), of models of probabilities; else (15, 0). LEVEL, EVEN : of the terms. CENTRE : mu, the first moment
    before any observation, and SECOND, the second one. WIDTH, OFFSET, SIDES : the moments at a field h are
    width m + offset q and width q + offset m, where m and q are those of a feature with weights sides e^-wh, 1,
    sides e^wh for -1, 0, +1 and w is the width. TOLD + s : log-ratio of a value to where an entity is silent, with
    centred neighbours. LOW, HIGH : whether -1, +1 can occur. SILENT, SILENT_SECOND : the moments where an entity is
    silent. NEXT : the slot of the next member of an exclusive group, after the last the first; -1 of other features.
    volume : log-partition of a feature where an entity is silent: log 3 of the paper's models, 0 of probabilities.
    stated : whether models are of probabilities.
    """

    first_slot: Indices
    feature: Indices
    owner: Indices
    unary: Floats
    first_edge: Indices
    other_slot: Indices
    coupling: Floats
    first_holder: Indices
    holder: Indices
    prior: Floats
    overlaps: Overlaps
    n_features: int
    tie: float
    site: Floats
    volume: float
    stated: bool


@dataclass(frozen=True, eq=False)
class Models:
    """Models of probabilities side by side, each on the features that it speaks of: a bundle to the engine.

    entities : (N,) names. models : one each, its prior included, on the features `at`, ascending indices. background :
    (M, 3) probabilities of -1, 0, +1 where a model is silent. exclusive : by group, the features of which at most one
    is +1, ascending; every model speaks of all of them, and couples none (docs/decisions.md, F13).
    """

    name: str
    entities: tuple[str, ...]
    features: tuple[str, ...]
    models: tuple[PairwiseMRF, ...]
    at: tuple[NDArray[np.intp], ...]
    background: Floats
    exclusive: tuple[tuple[int, ...], ...] = ()

    @property
    def priors(self) -> Floats:
        """(N,) log-odds before any observation."""
        return np.array([model.prior for model in self.models])

    def support(self, entity: str) -> NDArray[np.intp]:
        """Sorted indices of the features that a model speaks of."""
        return self.at[self.entities.index(entity)]


KNOWN: WeakKeyDictionary[Bundle | Models, Packed] = WeakKeyDictionary()
NOTHING = np.empty(0, dtype=np.int64)
WITHOUT = Overlaps(NOTHING, NOTHING, NOTHING, NOTHING, NOTHING, NOTHING, np.empty(0))


def pack(bundle: Bundle | Models, *, overlaps: bool = True) -> Packed:
    """Lay out a bundle of N entities on M features for the kernels, once; no kernel changes what it gets.

    Takes memory in proportion to the potentials: 40 bytes a slot and 32 a coupling. Overlaps take more, N^2 and the
    squared number of holders of each feature; without them `overlaps` may be `WITHOUT`, which only the kernels of
    `afa.engine.sharing`, and those that look at single entities, can do with.
    """
    packed = KNOWN.get(bundle)
    if packed is None and isinstance(bundle, Bundle) and not bundle.ternary:
        found, step = "features that cannot be -1, or cannot be +1", "use afa.BinaryPlanner or afa.TopKPlanner"
        raise BundleError(Fault(f"bundle {bundle.name}", found, "features with three values", step))
    if packed is None:
        packed = KNOWN[bundle] = _lay_out(bundle) if isinstance(bundle, Bundle) else _lay_out_models(bundle)
    if overlaps and not len(packed.overlaps.first):
        packed = KNOWN[bundle] = packed._replace(overlaps=_overlaps(packed))
    return packed


def _lay_out(bundle: Bundle) -> Packed:
    n, m, pairs = len(bundle.entities), len(bundle.features), bundle.packed
    of_pair = np.repeat(np.arange(n), np.diff(pairs.pointer))
    row, column = of_pair * m + pairs.row, of_pair * m + pairs.column
    with_unary = np.flatnonzero(bundle.unary.ravel())
    slots = _distinct(np.concatenate([with_unary, row, column]))
    packed = _by_slot(slots, row, column, pairs.value, np.array(bundle.priors, dtype=np.float64), n, m)
    unary = bundle.unary[packed.owner, packed.feature].astype(np.float64)
    of_couplings = np.bincount(packed.owner[packed.other_slot], np.abs(packed.coupling), n) / 2
    reach = np.abs(packed.prior) + np.bincount(packed.owner, np.abs(unary), n) + of_couplings
    return packed._replace(unary=unary, tie=ROUNDING * float(reach.max(initial=0.0)))


def _lay_out_models(bundle: Models) -> Packed:
    n, m = len(bundle.entities), len(bundle.features)
    slots = np.concatenate([v * m + at for v, at in enumerate(bundle.at)])
    rows, columns, values = [], [], []
    for v, (model, at) in enumerate(zip(bundle.models, bundle.at, strict=True)):
        row, column = sp.triu(model.couplings).nonzero()
        rows.append(v * m + at[row])
        columns.append(v * m + at[column])
        values.append(model.couplings.toarray()[row, column])
    row, column, value = (np.concatenate(parts) for parts in (rows, columns, values))
    terms = np.concatenate([model.terms for model in bundle.models])
    below, above = np.isfinite(terms[:, 0]), np.isfinite(terms[:, 2])
    site = np.zeros((NEXT + 1, len(slots)))
    low, site[LEVEL], high = np.where(np.isfinite(terms), terms, 0.0).T
    site[EVEN] = np.where(below & above, (low + high) / 2 - site[LEVEL], 0.0)
    site[CENTRE] = np.concatenate([model.centre for model in bundle.models])
    site[SECOND] = 1.0 - np.exp(site[LEVEL])
    site[WIDTH] = np.where(below & above, 1.0, 0.5)
    site[OFFSET] = 0.5 * (above.astype(np.float64) - below)
    site[SIDES] = np.where(below & above, np.exp(site[EVEN]), NEGLIGIBLE)
    silent = bundle.background[np.concatenate(bundle.at)].T
    site[[TOLD_LOW, TOLD, TOLD_HIGH]] = np.where(
        np.isfinite(terms.T), terms.T - np.log(np.where(silent > 0, silent, 1.0)), 0.0
    )
    site[LOW], site[HIGH] = below, above
    site[SILENT], site[SILENT_SECOND] = silent[2] - silent[0], 1.0 - silent[1]
    site[NEXT] = -1
    for v, members in product(range(n), bundle.exclusive):
        ring = np.searchsorted(slots, v * m + np.array(members))
        site[NEXT, ring] = np.roll(ring, -1)
    return _by_slot(slots, row, column, value, bundle.priors, n, m)._replace(
        unary=np.concatenate([model.unary for model in bundle.models]),
        tie=ROUNDING * max(model.reach for model in bundle.models),
        site=site,
        volume=0.0,
        stated=True,
    )


def _by_slot(slots: Indices, row: Indices, column: Indices, value: Floats, prior: Floats, n: int, m: int) -> Packed:
    """The layout but for the terms of the slots; a slot is v M + j, row and column (E,) are slots, pairs in order."""
    owner, feature = slots // m, slots % m
    first_slot = np.searchsorted(owner, np.arange(n + 1))
    here, there = np.searchsorted(slots, row), np.searchsorted(slots, column)
    one, other = np.concatenate([here, there]), np.concatenate([there, here])
    order = np.argsort(one * len(slots) + other)
    first_edge = np.concatenate([[0], np.cumsum(np.bincount(one, minlength=len(slots)))])
    first_holder = np.concatenate([[0], np.cumsum(np.bincount(feature, minlength=m))])
    return Packed(
        first_slot=first_slot.astype(np.int64),
        feature=feature.astype(np.int64),
        owner=owner.astype(np.int64),
        unary=np.zeros(len(slots)),
        first_edge=first_edge.astype(np.int64),
        other_slot=other[order].astype(np.int64),
        coupling=np.concatenate([value, value])[order].astype(np.float64),
        first_holder=first_holder.astype(np.int64),
        holder=np.argsort(feature, kind="stable").astype(np.int64),
        prior=prior,
        overlaps=WITHOUT,
        n_features=m,
        tie=0.0,
        site=np.empty((NEXT + 1, 0)),
        volume=LOG3,
        stated=False,
    )


def _distinct(numbers: Indices) -> Indices:
    """Ascending, each once; numbers of 64 bits are sorted faster than `np.unique` finds them."""
    ascending = np.sort(numbers)
    return ascending[np.concatenate([[True], ascending[1:] != ascending[:-1]])] if len(ascending) else ascending


def _overlaps(packed: Packed) -> Overlaps:
    n, feature, first_slot, owner = len(packed.prior), packed.feature, packed.first_slot, packed.owner
    pairs, place = np.arange(n * n + 1), np.full((n, packed.n_features), -1)
    place[owner, feature] = np.arange(len(feature)) - first_slot[owner]
    u, slot = np.nonzero(place[:, feature] >= 0)
    first = np.searchsorted(u * n + owner[slot], pairs)
    here, there = np.repeat(np.arange(len(feature)), np.diff(packed.first_edge)), packed.other_slot
    once = here < there
    here, there, coupling = here[once], there[once], packed.coupling[once]
    u_edge, edge = np.nonzero((place[:, feature[here]] >= 0) & (place[:, feature[there]] >= 0))
    return Overlaps(
        first,
        of_u=place[u, feature[slot]],
        of_v=slot - first_slot[owner[slot]],
        first_edge=np.searchsorted(u_edge * n + owner[here[edge]], pairs),
        edge_j=place[u_edge, feature[here[edge]]],
        edge_l=place[u_edge, feature[there[edge]]],
        coupling=coupling[edge],
    )


class Gains(NamedTuple):
    """Gains of Q duels.

    Entry i of a duel p, first[p] <= i < first[p + 1], is for `feature[i]`, held at slot_a[i] and slot_b[i] (-1 where
    an entity does not hold it); `gain[i]` is in nats for `cmi`, else in the unit of the score. made_at : (Q,) the round
    in which the gains of a duel were computed, -1 for never.
    """

    pairs: Pairs
    first: NDArray[np.int64]
    feature: NDArray[np.int64]
    slot_a: NDArray[np.int64]
    slot_b: NDArray[np.int64]
    gain: Floats
    made_at: Indices


@kernel(entrance=True)
def new_gains(packed: Packed, pairs: Pairs) -> Gains:
    """Space for the gains of the given duels."""
    first = np.zeros(len(pairs) + 1, dtype=np.int64)
    feature, slot_a, slot_b = np.empty(0, dtype=np.int64), np.empty(0, dtype=np.int64), np.empty(0, dtype=np.int64)
    for filling in (False, True):
        n = 0
        for p in range(len(pairs)):
            a, last_a = packed.first_slot[pairs[p, 0]], packed.first_slot[pairs[p, 0] + 1]
            b, last_b = packed.first_slot[pairs[p, 1]], packed.first_slot[pairs[p, 1] + 1]
            while a < last_a or b < last_b:
                at_a = packed.feature[a] if a < last_a else packed.n_features
                at_b = packed.feature[b] if b < last_b else packed.n_features
                at = min(at_a, at_b)
                if filling:
                    feature[n] = at
                    slot_a[n], slot_b[n] = (a if at_a == at else -1), (b if at_b == at else -1)
                a += 1 if at_a == at else 0
                b += 1 if at_b == at else 0
                n += 1
            first[p + 1] = n
        if not filling:
            feature, slot_a = np.empty(n, dtype=np.int64), np.empty(n, dtype=np.int64)
            slot_b = np.empty(n, dtype=np.int64)
    return Gains(pairs, first, feature, slot_a, slot_b, np.zeros(len(feature)), np.full(len(pairs), -1))


@kernel(inline=True)
def copy_gains(gains: Gains) -> Gains:
    """Gains of the same duels that can be changed without changing the given ones."""
    pairs, first, feature, slot_a, slot_b, gain, made_at = gains
    return Gains(pairs, first, feature, slot_a, slot_b, gain.copy(), made_at.copy())
