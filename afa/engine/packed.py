"""A bundle laid out for the kernels: only supports are stored, one after the other.

A *slot* is one feature in the support of one entity. K is the number of slots over all entities; on the
recorded bundle K = 555 for 25 entities and 253 features.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from afa.bundle import Bundle
from afa.mrf import Floats

Indices = NDArray[np.int64]


class Packed(NamedTuple):
    """Arrays of a bundle by slot.

    first_slot : (N + 1,) the slots of entity v are first_slot[v] : first_slot[v + 1], by ascending feature.
    feature : (K,) the feature of a slot. owner : (K,) its entity. unary : (K,) its unary potential.
    first_edge : (K + 1,) the couplings of a slot are first_edge[s] : first_edge[s + 1].
    other_slot, coupling : (2 E,) the slot at the other end, of the same entity, and the potential.
    first_holder : (M + 1,) the slots that hold feature f are holder[first_holder[f] : first_holder[f + 1]].
    prior : (N,) prior log-odds. tie : a score whose magnitude is at most this is rounding, not a preference.
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
    tie: float


def pack(bundle: Bundle) -> Packed:
    """Lay out a bundle of N entities on M features for the kernels."""
    supports = [bundle.support(entity) for entity in bundle.entities]
    first_slot = np.concatenate([[0], np.cumsum([len(support) for support in supports])]).astype(np.int64)
    feature = np.concatenate([*supports, np.empty(0, dtype=np.int64)]).astype(np.int64)
    owner = np.repeat(np.arange(len(supports)), np.diff(first_slot)).astype(np.int64)
    degrees, other, weight = [np.zeros(1, dtype=np.int64)], [], []
    for v, (entity, support) in enumerate(zip(bundle.entities, supports, strict=True)):
        inside = bundle.couplings(entity)[support][:, support].tocsr()
        inside.sort_indices()
        degrees.append(np.diff(inside.indptr))
        other.append(inside.indices + first_slot[v])
        weight.append(inside.data)
    holder = np.argsort(feature, kind="stable").astype(np.int64)
    n_holders = np.bincount(feature, minlength=len(bundle.features))
    unary = bundle.unary[owner, feature]
    coupling = np.concatenate([*weight, np.empty(0)]).astype(np.float64)
    first_edge = np.cumsum(np.concatenate(degrees)).astype(np.int64)
    return Packed(
        first_slot=first_slot,
        feature=feature,
        owner=owner,
        unary=unary.astype(np.float64),
        first_edge=first_edge,
        other_slot=np.concatenate([*other, np.empty(0, dtype=np.int64)]).astype(np.int64),
        coupling=coupling,
        first_holder=np.concatenate([[0], np.cumsum(n_holders)]).astype(np.int64),
        holder=holder,
        prior=np.asarray(bundle.priors, dtype=np.float64),
        tie=_rounding(owner, unary, np.repeat(owner, np.diff(first_edge)), coupling, len(supports)),
    )


def _rounding(owner: Indices, unary: Floats, edge_owner: Indices, coupling: Floats, n: int) -> float:
    """1e-12 of the largest absolute energy of an entity: above the rounding of its sums, below any real difference."""
    reach = np.bincount(owner, np.abs(unary), n) + np.bincount(edge_owner, np.abs(coupling), n) / 2
    return 1e-12 * float(reach.max(initial=0.0))
