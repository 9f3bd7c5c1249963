"""A bundle laid out for the kernels: only supports are stored, one after the other.

A *slot* is one feature in the support of one entity. K is the number of slots over all entities; on the
recorded bundle K = 553 for 25 entities and 253 features.
"""

from __future__ import annotations

from typing import NamedTuple
from weakref import WeakKeyDictionary

import numpy as np
from numpy.typing import NDArray

from afa.bundle import Bundle
from afa.engine.compile import kernel
from afa.mrf import Floats
from afa.preference import tie_of

Indices = NDArray[np.int64]


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


class Packed(NamedTuple):
    """Arrays of a bundle by slot.

    first_slot : (N + 1,) the slots of entity v are first_slot[v] : first_slot[v + 1], by ascending feature.
    feature : (K,) the feature of a slot. owner : (K,) its entity. unary : (K,) its unary potential.
    first_edge : (K + 1,) the couplings of a slot are first_edge[s] : first_edge[s + 1], by ascending feature.
    other_slot, coupling : (2 E,) the slot at the other end, of the same entity, and the potential.
    first_holder : (M + 1,) the slots that hold feature f are holder[first_holder[f] : first_holder[f + 1]].
    prior : (N,) prior log-odds. n_features : M. tie : a score of at most this magnitude is rounding, not a preference.
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


KNOWN: WeakKeyDictionary[Bundle, Packed] = WeakKeyDictionary()


def pack(bundle: Bundle) -> Packed:
    """Lay out a bundle of N entities on M features for the kernels, once; no kernel changes what it gets."""
    packed = KNOWN.get(bundle)
    if packed is None:
        packed = KNOWN[bundle] = _lay_out(bundle)
    return packed


def _lay_out(bundle: Bundle) -> Packed:
    m = len(bundle.features)
    supports = [bundle.support(entity) for entity in bundle.entities]
    first_slot = np.concatenate([[0], np.cumsum([len(support) for support in supports])]).astype(np.int64)
    feature = np.concatenate([*supports, np.empty(0, dtype=np.int64)]).astype(np.int64)
    owner = np.repeat(np.arange(len(supports)), np.diff(first_slot)).astype(np.int64)
    degrees, other, weight = [np.zeros(1, dtype=np.int64)], [np.empty(0, dtype=np.int64)], [np.empty(0)]
    for v, (entity, support) in enumerate(zip(bundle.entities, supports, strict=True)):
        inside = bundle.couplings(entity)[support][:, support].tocsr()
        inside.sort_indices()
        degrees.append(np.diff(inside.indptr))
        other.append(inside.indices + first_slot[v])
        weight.append(inside.data)
    first_edge = np.cumsum(np.concatenate(degrees)).astype(np.int64)
    other_slot, coupling = np.concatenate(other).astype(np.int64), np.concatenate(weight).astype(np.float64)
    unary = bundle.unary[owner, feature].astype(np.float64)
    n_holders = np.bincount(feature, minlength=m)
    return Packed(
        first_slot=first_slot,
        feature=feature,
        owner=owner,
        unary=unary,
        first_edge=first_edge,
        other_slot=other_slot,
        coupling=coupling,
        first_holder=np.concatenate([[0], np.cumsum(n_holders)]).astype(np.int64),
        holder=np.argsort(feature, kind="stable").astype(np.int64),
        prior=np.array(bundle.priors, dtype=np.float64),
        overlaps=_overlaps(first_slot, feature, first_edge, other_slot, coupling, m),
        n_features=m,
        tie=tie_of([bundle.mrf(entity) for entity in bundle.entities]),
    )


@kernel()
def _overlaps(
    first_slot: Indices, feature: Indices, first_edge: Indices, other_slot: Indices, coupling: Floats, n_features: int
) -> Overlaps:
    n = len(first_slot) - 1
    first, first_pair = np.zeros(n * n + 1, dtype=np.int64), np.zeros(n * n + 1, dtype=np.int64)
    of_u, of_v = np.empty(0, dtype=np.int64), np.empty(0, dtype=np.int64)
    edge_j, edge_l = np.empty(0, dtype=np.int64), np.empty(0, dtype=np.int64)
    weight = np.empty(0)
    place = np.full(n_features, -1)
    for filling in (False, True):
        shared, edges = 0, 0
        for u in range(n):
            for slot in range(first_slot[u], first_slot[u + 1]):
                place[feature[slot]] = slot - first_slot[u]
            for v in range(n):
                for slot in range(first_slot[v], first_slot[v + 1]):
                    here = place[feature[slot]]
                    if here < 0:
                        continue
                    if filling:
                        of_u[shared], of_v[shared] = here, slot - first_slot[v]
                    shared += 1
                    for e in range(first_edge[slot], first_edge[slot + 1]):
                        there = place[feature[other_slot[e]]]
                        if other_slot[e] < slot or there < 0:
                            continue
                        if filling:
                            edge_j[edges], edge_l[edges], weight[edges] = here, there, coupling[e]
                        edges += 1
                first[u * n + v + 1], first_pair[u * n + v + 1] = shared, edges
            for slot in range(first_slot[u], first_slot[u + 1]):
                place[feature[slot]] = -1
        if not filling:
            of_u, of_v = np.empty(shared, dtype=np.int64), np.empty(shared, dtype=np.int64)
            edge_j, edge_l = np.empty(edges, dtype=np.int64), np.empty(edges, dtype=np.int64)
            weight = np.empty(edges)
    return Overlaps(first, of_u, of_v, first_pair, edge_j, edge_l, weight)
