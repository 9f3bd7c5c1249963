"""Convert a bundle to the flat arrays that compiled kernels read.

A *slot* is a pair (entity, feature in the support of this entity). The kernel arrays contain all K pairs (slots) of the
bundle, sorted by entity. The recorded bundle has 553 slots for 25 entities and 253 features.

Models with class-conditional probabilities (docs/decisions.md, Base rates) have the same layout as the paper's models.
In the model of one entity, a feature with the value s has the unary energy f(s) = `LEVEL` + alpha s + `EVEN` s^2, where
alpha is the unary potential. The energy of a coupling is the coupling times the product of the two features' deviations
from their means before any observation (`CENTRE`). In the paper's models, the parameters `LEVEL`, `EVEN` and `CENTRE`
of all features are 0.
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
from afa.model.arrays import Floats, Ints
from afa.model.bundle import Bundle
from afa.model.mrf import LOG3, ROUNDING, PairwiseMRF

Pairs = Ints


class Overlaps(NamedTuple):
    """Features that two entities u and v share, and couplings of v on shared features, for every ordered pair (u, v).

    The pair (u, v) has the index i = u N + v. The *place* of a slot (entity, feature) is its position among the slots
    of the same entity.

    Attributes
    ----------
    first : (N^2 + 1,) int64, the shared features of pair i are entries first[i] to first[i + 1] - 1
    of_u, of_v : (n_shared,) int64, place of each shared feature in u and in v
    first_edge : (N^2 + 1,) int64, the shared couplings of pair i are entries first_edge[i] to first_edge[i + 1] - 1
    edge_j, edge_l : (n_shared_couplings,) int64, places in u of the two features of each coupling of v
    coupling : (n_shared_couplings,) float64, the coupling in v, nats

    """

    first: Ints
    of_u: Ints
    of_v: Ints
    first_edge: Ints
    edge_j: Ints
    edge_l: Ints
    coupling: Floats


LEVEL, EVEN, CENTRE, SECOND, WIDTH, OFFSET, SIDES, RATIO_LOW, RATIO, RATIO_HIGH = range(10)
LOW, HIGH, SILENT, SILENT_SECOND, NEXT = range(10, 15)
"""Rows of `Packed.site`. The rows are in one array because each additional array argument slows down kernel calls."""
NEGLIGIBLE = 2.0**80
"""Weight of -1 and +1 relative to 0 that makes 0 negligible, for features with only two values."""


class Packed(NamedTuple):
    """Arrays that describe a bundle, with one entry for each of K pairs (entity, feature in its support), called slots.

    Attributes
    ----------
    first_slot : (N + 1,) int64, the slots of entity v are first_slot[v] to first_slot[v + 1] - 1, sorted by feature
    feature : (K,) int64, feature of each slot
    owner : (K,) int64, entity of each slot
    unary : (K,) float64, unary potential of each slot, nats
    first_edge : (K + 1,) int64, the couplings of slot s are entries first_edge[s] to first_edge[s + 1] - 1, sorted by
        feature
    other_slot : (2 E,) int64, slot at the other end of a coupling, in the same entity
    coupling : (2 E,) float64, coupling, nats
    first_feature_slot : (M + 1,) int64, the slots of feature f are feature_slots[first_feature_slot[f]] to
        feature_slots[first_feature_slot[f + 1] - 1]
    feature_slots : (K,) int64, slots sorted by feature
    prior : (N,) float64, prior log-odds of each entity, nats
    overlaps : Overlaps, or `NO_OVERLAPS` if no caller of `pack` has requested overlaps yet
    n_features : int, M
    tie : float, largest absolute score that counts as a rounding error of 0, and therefore as a tie
    site : (15, K) float64, parameters of models with class-conditional probabilities, in the rows listed below; (15, 0)
        for the paper's models
    volume : float, log-partition of a feature outside the support, nats: log 3 in the paper's models, else 0
    class_conditional : bool, True for models with class-conditional probabilities

    Notes
    -----
    The rows of `site` are:

    LEVEL, EVEN : coefficients of 1 and s^2 in the unary energy of a feature with the value s
    CENTRE, SECOND : first and second moment before any observation
    WIDTH, OFFSET, SIDES : parameters w, o and z of a feature's moments at a field h. Let P be the distribution with
        P(-1) / P(0) = z exp(-w h) and P(+1) / P(0) = z exp(w h), and let m and q be its first and second moment. Then,
        the moments of the feature are w m + o q and w q + o m
    RATIO_LOW, RATIO, RATIO_HIGH : logarithm of the probability of -1, 0, +1 divided by its background probability, if
        all features coupled to this feature have their mean values `CENTRE`
    LOW, HIGH : LOW is 1 if the value -1 is possible, else 0; HIGH is 1 if +1 is possible, else 0
    SILENT, SILENT_SECOND : first and second moment under the background, for entities without the feature in their
        support
    NEXT : slot of the next member of an exclusive group (the first member after the last one), or -1 for features
        outside groups

    """

    first_slot: Ints
    feature: Ints
    owner: Ints
    unary: Floats
    first_edge: Ints
    other_slot: Ints
    coupling: Floats
    first_feature_slot: Ints
    feature_slots: Ints
    prior: Floats
    overlaps: Overlaps
    n_features: int
    tie: float
    site: Floats
    volume: float
    class_conditional: bool


@dataclass(frozen=True, eq=False)
class Models:
    """N models with class-conditional probabilities, each on a subset of M features.

    The function `pack` accepts `Models` in place of a `Bundle`.

    Attributes
    ----------
    entities : (N,) names
    features : (M,) names
    models : (N,) models, each with the prior of its entity
    at : (N,) int arrays, ascending indices of the features that each model covers
    background : (M, 3) float64, probabilities of -1, 0, +1 of each feature in models that do not cover it
    exclusive : exclusive groups, as tuples of ascending feature indices; at most one feature of a group is +1, every
        model covers all features of every group, and these features have no couplings

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
        """Return the prior log-odds of each entity.

        Returns
        -------
        priors : (N,) float64, nats

        """
        return np.array([model.prior for model in self.models])

    def support(self, entity: str) -> NDArray[np.intp]:
        """Return the features that the model of an entity covers.

        Returns
        -------
        at : (n,) intp, ascending feature indices

        """
        return self.at[self.entities.index(entity)]


PACKED: WeakKeyDictionary[Bundle | Models, Packed] = WeakKeyDictionary()
NO_INDICES = np.empty(0, dtype=np.int64)
NO_OVERLAPS = Overlaps(NO_INDICES, NO_INDICES, NO_INDICES, NO_INDICES, NO_INDICES, NO_INDICES, np.empty(0))


def pack(bundle: Bundle | Models, *, overlaps: bool = True) -> Packed:
    """Return the arrays from which kernels read a bundle of N entities and M features. The arrays are cached.

    The arrays take 40 bytes for each pair (entity, feature in its support) and 32 bytes for each coupling. The arrays
    in `Packed.overlaps` have N^2 entries, plus n^2 entries for each feature that n of the N entities have in their
    support.

    Parameters
    ----------
    overlaps : if False, `Packed.overlaps` may be `NO_OVERLAPS`. The kernels of `afa.engine.sharing` and kernels that
        read single entities need no overlaps

    Raises
    ------
    BundleError : a feature of a bundle of the paper's models cannot take all three values

    """
    packed = PACKED.get(bundle)
    if packed is None and isinstance(bundle, Bundle) and not bundle.ternary:
        found, step = "features that cannot be -1, or cannot be +1", "use afa.BinaryPlanner or afa.TopKPlanner"
        raise BundleError(Fault(f"bundle {bundle.name}", found, "features with three values", step))
    if packed is None:
        packed = PACKED[bundle] = _lay_out(bundle) if isinstance(bundle, Bundle) else _lay_out_models(bundle)
    if overlaps and not len(packed.overlaps.first):
        packed = PACKED[bundle] = packed._replace(overlaps=_overlaps(packed))
    return packed


def _lay_out(bundle: Bundle) -> Packed:
    n, m, pairs = len(bundle.entities), len(bundle.features), bundle.packed
    of_pair = np.repeat(np.arange(n), np.diff(pairs.pointer))
    row, column = of_pair * m + pairs.row, of_pair * m + pairs.column
    with_unary = np.flatnonzero(bundle.unary.ravel())
    slots = _distinct_numbers(np.concatenate([with_unary, row, column]))
    packed = _pack_slots(slots, row, column, pairs.value, np.array(bundle.priors, dtype=np.float64), n, m)
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
    background = bundle.background[np.concatenate(bundle.at)].T
    site[[RATIO_LOW, RATIO, RATIO_HIGH]] = np.where(
        np.isfinite(terms.T), terms.T - np.log(np.where(background > 0, background, 1.0)), 0.0
    )
    site[LOW], site[HIGH] = below, above
    site[SILENT], site[SILENT_SECOND] = background[2] - background[0], 1.0 - background[1]
    site[NEXT] = -1
    for v, members in product(range(n), bundle.exclusive):
        ring = np.searchsorted(slots, v * m + np.array(members))
        site[NEXT, ring] = np.roll(ring, -1)
    return _pack_slots(slots, row, column, value, bundle.priors, n, m)._replace(
        unary=np.concatenate([model.unary for model in bundle.models]),
        tie=ROUNDING * max(model.reach for model in bundle.models),
        site=site,
        volume=0.0,
        class_conditional=True,
    )


def _pack_slots(slots: Ints, row: Ints, column: Ints, value: Floats, prior: Floats, n: int, m: int) -> Packed:
    """Return the kernel arrays of a bundle.

    The array `unary` is 0 and the array `site` is empty. The caller must replace both arrays.

    Parameters
    ----------
    slots : (K,) int64, v M + j for feature j of entity v, ascending
    row, column : (E,) int64, the two ends of each coupling, with the numbers of `slots`
    value : (E,) float64, couplings, nats
    prior : (N,) float64, log-odds, nats

    """
    owner, feature = slots // m, slots % m
    first_slot = np.searchsorted(owner, np.arange(n + 1))
    here, there = np.searchsorted(slots, row), np.searchsorted(slots, column)
    one, other = np.concatenate([here, there]), np.concatenate([there, here])
    order = np.argsort(one * len(slots) + other)
    first_edge = np.concatenate([[0], np.cumsum(np.bincount(one, minlength=len(slots)))])
    first_feature_slot = np.concatenate([[0], np.cumsum(np.bincount(feature, minlength=m))])
    return Packed(
        first_slot=first_slot.astype(np.int64),
        feature=feature.astype(np.int64),
        owner=owner.astype(np.int64),
        unary=np.zeros(len(slots)),
        first_edge=first_edge.astype(np.int64),
        other_slot=other[order].astype(np.int64),
        coupling=np.concatenate([value, value])[order].astype(np.float64),
        first_feature_slot=first_feature_slot.astype(np.int64),
        feature_slots=np.argsort(feature, kind="stable").astype(np.int64),
        prior=prior,
        overlaps=NO_OVERLAPS,
        n_features=m,
        tie=0.0,
        site=np.empty((NEXT + 1, 0)),
        volume=LOG3,
        class_conditional=False,
    )


def _distinct_numbers(numbers: Ints) -> Ints:
    """Return the distinct numbers in ascending order. For 64-bit integers, this is faster than `np.unique`."""
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
    """Gains of the features for Q duels (entity pairs).

    The entries first[p] to first[p + 1] - 1 of the other arrays belong to the entity pair p.

    Attributes
    ----------
    pairs : (Q, 2) int64, the two entities of each duel
    first : (Q + 1,) int64, first entry of each duel
    feature : (n_entries,) int64, feature of an entry
    slot_a, slot_b : (n_entries,) int64, slot of the feature in each entity, or -1 if the feature is outside the
        entity's support
    gain : (n_entries,) float64, gains, in nats for `cmi`, else in the unit of the score
    computed_at : (Q,) int64, step at which the gains of each duel were last computed, or -1 for never

    """

    pairs: Pairs
    first: Ints
    feature: Ints
    slot_a: Ints
    slot_b: Ints
    gain: Floats
    computed_at: Ints


@kernel(entrance=True)
def new_gains(packed: Packed, pairs: Pairs) -> Gains:
    """Return gain arrays for the given duels (entity pairs), with all gains marked as not yet computed.

    Parameters
    ----------
    pairs : (Q, 2) int64, the two entities of each duel

    """
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
    """Return gain arrays with independent copies of `gain` and `computed_at`, the only arrays that kernels change."""
    pairs, first, feature, slot_a, slot_b, gain, computed_at = gains
    return Gains(pairs, first, feature, slot_a, slot_b, gain.copy(), computed_at.copy())
