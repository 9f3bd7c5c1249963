"""Which entities share a feature, and which couple the same two features: a bundle laid out feature by feature.

Kernels that go through the holders of a feature one after the other read these arrays in order; through the slots of
`afa.engine.packed` each step would be to another place in memory, which costs more than the arithmetic.
"""

from __future__ import annotations

from typing import NamedTuple
from weakref import WeakKeyDictionary

import numpy as np
from numpy.typing import NDArray

from afa.bundle import Bundle
from afa.engine.packed import Indices, Packed, pack
from afa.mrf import Floats

Small = NDArray[np.int32]


class Sharing(NamedTuple):
    """Arrays of a bundle by feature; a *link* is a pair of features that at least one entity couples.

    owner : (K,) the entity of each slot, in the order of `Packed.holder`. place : (K,) where each slot stands there.
    first_link : (M + 1,) the links of feature f to later ones are first_link[f] : first_link[f + 1].
    partner : (L,) the later feature of a link, ascending.
    first_member : (L + 1,) entities and couplings of link i stand at first_member[i] : first_member[i + 1].
    member, value : (E,) the entities that couple the two features of a link, ascending, and their couplings.
    """

    owner: Small
    place: Small
    first_link: Indices
    partner: Small
    first_member: Indices
    member: Small
    value: Floats


KNOWN: WeakKeyDictionary[Bundle, Sharing] = WeakKeyDictionary()


def sharing_of(bundle: Bundle) -> Sharing:
    """Lay out what entities share, once; 8 bytes a slot, 12 a coupling and up to 12 a link."""
    sharing = KNOWN.get(bundle)
    if sharing is None:
        sharing = KNOWN[bundle] = _lay_out(bundle, pack(bundle, overlaps=False))
    return sharing


def _lay_out(bundle: Bundle, packed: Packed) -> Sharing:
    m, pairs = packed.n_features, bundle.packed
    place = np.empty(len(packed.holder), dtype=np.int32)
    place[packed.holder] = np.arange(len(place))
    entity = np.repeat(np.arange(len(packed.prior), dtype=np.int32), np.diff(pairs.pointer))
    key = pairs.row.astype(np.int64) * m + pairs.column
    order = np.argsort(key, kind="stable")
    ordered = key[order]
    first_member = np.flatnonzero(np.concatenate([[True], ordered[1:] != ordered[:-1]])[: len(ordered)])
    link = ordered[first_member]
    return Sharing(
        owner=packed.owner[packed.holder].astype(np.int32),
        place=place,
        first_link=np.searchsorted(link, np.arange(m + 1) * m).astype(np.int64),
        partner=(link % m).astype(np.int32),
        first_member=np.concatenate([first_member, [len(ordered)]]).astype(np.int64),
        member=entity[order],
        value=pairs.value[order].astype(np.float64),
    )
