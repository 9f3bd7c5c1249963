"""Compute cross expectations, distances and gains for large bundles, with loops over features.

In a large bundle, most pairs of entities u and v have no common feature in their supports. If the supports of u and v
have no common feature, the cross expectation E_{q_u}[S_v] is the prior of v plus the energy of the observed features in
the model of v. The kernels of this module loop over features, and for each feature over the entities with this feature
in their support. Therefore, entity pairs without a common feature take no time and no memory. The kernels add numbers
in the same order as `afa.engine.state.expected_score`, and return results that are equal to the results of this
function to the last bit. `FeatureMajorModel` sorts the slots (entity, feature) by feature, so that the kernels read
memory sequentially.
"""

from __future__ import annotations

from typing import NamedTuple
from weakref import WeakKeyDictionary

import numpy as np
from numpy.typing import NDArray

from afa.engine.compile import kernel
from afa.engine.duels import sides_of
from afa.engine.gains import bring_up_to_date, new_lookahead
from afa.engine.layout import Gains, Packed, new_gains, pack
from afa.engine.state import State, condition, solve_entity
from afa.engine.sweeps import Iteration
from afa.model.arrays import Bools, Floats, Ints
from afa.model.bundle import Bundle


class FeatureMajorState(NamedTuple):
    """Copies of the arrays `field` and `m` of a `State`, sorted by feature (the order of `Packed.feature_slots`).

    Attributes
    ----------
    field : (K,) float64, effective unary potentials, nats
    m : (K,) float64, first moments
    by_feature, by_entity : (M,) and (N,) float64, working memory, which is 0 between calls

    """

    field: Floats
    m: Floats
    by_feature: Floats
    by_entity: Floats


def new_mirror(packed: Packed) -> FeatureMajorState:
    """Return a `FeatureMajorState` whose arrays are all 0."""
    n_slots = len(packed.feature)
    return FeatureMajorState(
        np.zeros(n_slots), np.zeros(n_slots), np.zeros(packed.n_features), np.zeros(len(packed.prior))
    )


def copy_mirror(mirror: FeatureMajorState) -> FeatureMajorState:
    """Return an independent copy of a `FeatureMajorState`."""
    return FeatureMajorState(*(array.copy() for array in mirror))


@kernel(entrance=True)
def solve_every(
    packed: Packed, sharing: FeatureMajorModel, state: State, mirror: FeatureMajorState, iteration: Iteration
) -> None:
    """Run mean-field on the models of all entities, and fill `cross`.

    In contrast to `afa.engine.state.solve_all`, this kernel does not need `Packed.overlaps`.
    """
    n = len(packed.prior)
    for entity in range(n):
        solve_entity(packed, state, entity, iteration)
        _update_mirror(packed, sharing, state, mirror, entity)
    for entity in range(n):
        _write_cross_row(packed, sharing, state, mirror, entity)


@kernel(entrance=True)
def observe_among(
    packed: Packed,
    sharing: FeatureMajorModel,
    state: State,
    mirror: FeatureMajorState,
    feature: int,
    value: int,
    iteration: Iteration,
) -> None:
    """Observe one feature, and run mean-field on the models of the entities with this feature in their support.

    The rows and columns of these entities in `cross` are updated.
    """
    condition(packed, state, feature, value)
    holders = packed.owner[
        packed.feature_slots[packed.first_feature_slot[feature] : packed.first_feature_slot[feature + 1]]
    ]
    for entity in holders:
        solve_entity(packed, state, entity, iteration)
        _update_mirror(packed, sharing, state, mirror, entity)
    columns = np.empty((len(holders), len(packed.prior)))
    for i in range(len(holders)):
        _write_cross_row(packed, sharing, state, mirror, holders[i])
        _write_cross_column(packed, sharing, state, mirror, holders[i], columns[i])
    cross = state.cross
    for u in range(len(cross)):  # row by row, because each entry of a column is in another memory page
        for i in range(len(holders)):
            cross[u, holders[i]] = columns[i, u]


@kernel()
def _update_mirror(
    packed: Packed, sharing: FeatureMajorModel, state: State, mirror: FeatureMajorState, entity: int
) -> None:
    """Copy the effective unary potentials and first moments of one entity into `mirror`."""
    place, from_field, from_m, field, m = sharing.place, state.field, state.m, mirror.field, mirror.m
    for slot in range(packed.first_slot[entity], packed.first_slot[entity + 1]):
        field[place[slot]], m[place[slot]] = from_field[slot], from_m[slot]


@kernel()
def _write_cross_row(
    packed: Packed, sharing: FeatureMajorModel, state: State, mirror: FeatureMajorState, u: int
) -> None:
    """Write E_{q_u}[S_v] for every entity v into row u of `cross`."""
    # reading these fields inside the loops would take longer than the additions
    feature, first_feature_slot, owner, field = packed.feature, packed.first_feature_slot, sharing.owner, mirror.field
    first_link, partner, first_member = sharing.first_link, sharing.partner, sharing.first_member
    member, value, m, m_at = sharing.member, sharing.value, state.m, mirror.by_feature
    row, first, last = state.cross[u], packed.first_slot[u], packed.first_slot[u + 1]
    row[:] = state.constant
    for slot in range(first, last):
        at, weight = feature[slot], m[slot]
        m_at[at] = weight
        if weight != 0.0:
            for h in range(first_feature_slot[at], first_feature_slot[at + 1]):
                row[owner[h]] += field[h] * weight
    for slot in range(first, last):
        at, weight = feature[slot], m[slot]
        if weight == 0.0:
            continue
        for link in range(first_link[at], first_link[at + 1]):
            other = m_at[partner[link]]
            if other != 0.0:
                for i in range(first_member[link], first_member[link + 1]):
                    row[member[i]] += value[i] * weight * other
    for slot in range(first, last):
        m_at[feature[slot]] = 0.0


@kernel(inline=True)
def _write_cross_column(
    packed: Packed, sharing: FeatureMajorModel, state: State, mirror: FeatureMajorState, v: int, column: Floats
) -> None:
    """Write E_{q_u}[S_v] for every entity u into the array `column`."""
    feature, first_feature_slot, owner, field = packed.feature, packed.first_feature_slot, sharing.owner, state.field
    first_edge, other_slot, coupling = packed.first_edge, packed.other_slot, packed.coupling
    m, m_of, observed = mirror.m, mirror.by_entity, state.observed
    first, last = packed.first_slot[v], packed.first_slot[v + 1]
    column[:] = state.constant[v]
    for slot in range(first, last):
        weight = field[slot]
        if weight != 0.0:
            for h in range(first_feature_slot[feature[slot]], first_feature_slot[feature[slot] + 1]):
                column[owner[h]] += weight * m[h]
    for slot in range(first, last):
        at = feature[slot]
        if observed[at]:
            continue
        for h in range(first_feature_slot[at], first_feature_slot[at + 1]):
            m_of[owner[h]] = m[h]
        for e in range(first_edge[slot], first_edge[slot + 1]):
            if other_slot[e] > slot:  # use each unordered pair once
                there, weight = feature[other_slot[e]], coupling[e]
                for h in range(first_feature_slot[there], first_feature_slot[there + 1]):
                    column[owner[h]] += weight * m_of[owner[h]] * m[h]
        for h in range(first_feature_slot[at], first_feature_slot[at + 1]):
            m_of[owner[h]] = 0.0


Small = NDArray[np.int32]


class FeatureMajorModel(NamedTuple):
    """Arrays of a bundle, sorted by feature. A *link* is a pair of features that at least one entity's model couples.

    Attributes
    ----------
    owner : (K,) int32, entity of each slot, in the order of `Packed.feature_slots`
    place : (K,) int32, position of each slot in the order of `Packed.feature_slots`
    first_link : (M + 1,) int64, the links of feature f to later features are first_link[f] to first_link[f + 1] - 1
    partner : (L,) int32, the later feature of each link, ascending
    first_member : (L + 1,) int64, the members of link i are first_member[i] to first_member[i + 1] - 1
    member : (E,) int32, ascending, entities whose models couple the two features of a link
    value : (E,) float64, couplings of these entities, nats

    """

    owner: Small
    place: Small
    first_link: Ints
    partner: Small
    first_member: Ints
    member: Small
    value: Floats


SHARED_MODELS: WeakKeyDictionary[Bundle, FeatureMajorModel] = WeakKeyDictionary()


def sharing_of(bundle: Bundle) -> FeatureMajorModel:
    """Return the arrays of a bundle sorted by feature. The arrays are cached.

    The arrays take 8 bytes for each slot (entity, feature), 12 bytes for each coupling, and at most 12 bytes for each
    link (pair of coupled features).
    """
    sharing = SHARED_MODELS.get(bundle)
    if sharing is None:
        sharing = SHARED_MODELS[bundle] = _lay_out_by_feature(bundle, pack(bundle, overlaps=False))
    return sharing


def _lay_out_by_feature(bundle: Bundle, packed: Packed) -> FeatureMajorModel:
    m, pairs = packed.n_features, bundle.packed
    place = np.empty(len(packed.feature_slots), dtype=np.int32)
    place[packed.feature_slots] = np.arange(len(place))
    entity = np.repeat(np.arange(len(packed.prior), dtype=np.int32), np.diff(pairs.pointer))
    key = pairs.row.astype(np.int64) * m + pairs.column
    order = np.argsort(key, kind="stable")
    ordered = key[order]
    first_member = np.flatnonzero(np.concatenate([[True], ordered[1:] != ordered[:-1]])[: len(ordered)])
    link = ordered[first_member]
    return FeatureMajorModel(
        owner=packed.owner[packed.feature_slots].astype(np.int32),
        place=place,
        first_link=np.searchsorted(link, np.arange(m + 1) * m).astype(np.int64),
        partner=(link % m).astype(np.int32),
        first_member=np.concatenate([first_member, [len(ordered)]]).astype(np.int64),
        member=entity[order],
        value=pairs.value[order].astype(np.float64),
    )


MODELS_PER_BLOCK = 16


@kernel(entrance=True)
def model_distances(packed: Packed, sharing: FeatureMajorModel, values: Floats, observed: Bools) -> Floats:
    """Return the l1 distance between the models of every two entities, given the observed values.

    The plain Python definition is `afa.planner.cluster.distances`. The computing time is the sum of two parts. The
    first part grows with N^2. The second part grows with the sum of n^2 over all features and all pairs of coupled
    features, where n is the number of entities with this feature or this pair in their models.

    Parameters
    ----------
    values : (M,) float64, observed values, and 0 for unobserved features
    observed : (M,) bool

    Returns
    -------
    distances : (N, N) float64, nats, symmetric

    """
    n, place, owner = len(packed.prior), sharing.place, sharing.owner
    first_slot, feature, first_feature_slot = packed.first_slot, packed.feature, packed.first_feature_slot
    field = _effective_unaries(packed, sharing, values, observed)
    apart = np.zeros((n, n))
    size = _subtract_shared_couplings(packed, sharing, observed, apart)
    for u in range(n):
        row = apart[u]
        for slot in range(first_slot[u], first_slot[u + 1]):
            here = field[place[slot]]
            size[u] += abs(here)
            if here != 0.0:
                for h in range(place[slot] + 1, first_feature_slot[feature[slot] + 1]):  # slots of entities after u
                    row[owner[h]] -= _cancelling_amount(here, field[h])
    for u in range(n):
        for v in range(u + 1, n):
            apart[u, v] = max(size[u] + size[v] + apart[u, v], 0.0)
    for begin in range(0, n, MODELS_PER_BLOCK):  # in blocks: the entries of a column are far apart in memory
        for v in range(begin + 1, n):
            for u in range(begin, min(begin + MODELS_PER_BLOCK, v)):
                apart[v, u] = apart[u, v]
    return apart


@kernel(inline=True)
def _effective_unaries(packed: Packed, sharing: FeatureMajorModel, values: Floats, observed: Bools) -> Floats:
    """Return the effective unary potential of each slot (entity, feature) given the observations, nats.

    The slots are in the order of `Packed.feature_slots`. The effective unary potential of an observed feature is 0.
    """
    feature, first_edge, other_slot, coupling = packed.feature, packed.first_edge, packed.other_slot, packed.coupling
    place, unary, field = sharing.place, packed.unary, np.zeros(len(sharing.place))
    for slot in range(len(place)):
        if not observed[feature[slot]]:
            total = unary[slot]
            for e in range(first_edge[slot], first_edge[slot + 1]):
                total += coupling[e] * values[feature[other_slot[e]]]
            field[place[slot]] = total
    return field


@kernel(inline=True)
def _subtract_shared_couplings(packed: Packed, sharing: FeatureMajorModel, observed: Bools, apart: Floats) -> Floats:
    """Reduce the distance (`apart`) between any two models that both have a coupling of the same two features.

    Without correction, the distance of two models is the sum of all their absolute couplings. The correction
    (`_cancelling_amount`) replaces |one| + |other| by |one - other|, where `one` and `other` are the couplings of the
    same two features in the two models. Only the entries above the diagonal of `apart` are changed.

    Return the sum of the absolute couplings of each entity, nats.
    """
    first_link, partner, first_member = sharing.first_link, sharing.partner, sharing.first_member
    member, value, size = sharing.member, sharing.value, np.zeros(len(packed.prior))
    for f in range(packed.n_features):
        if observed[f]:
            continue
        for link in range(first_link[f], first_link[f + 1]):
            if observed[partner[link]]:
                continue
            for i in range(first_member[link], first_member[link + 1]):
                size[member[i]] += abs(value[i])
                for k in range(i + 1, first_member[link + 1]):
                    apart[member[i], member[k]] -= _cancelling_amount(value[i], value[k])
    return size


@kernel(inline=True)
def _cancelling_amount(one: float, other: float) -> float:
    """Return |one| + |other| - |one - other|, where `one` and `other` are potentials of two models."""
    return (abs(one) + abs(other)) - abs(one - other)


CACHE_FACTOR = 4
"""The cache of gains is emptied before the number of cached duels exceeds this multiple of the number of requested
duels.
"""


class GainCache:
    """Cache of the gains of one patient. The index of a duel is its position in the ordered list of entity pairs a < b.

    Parameters
    ----------
    kind : kind of gain (`afa.engine.gains`)
    empty : (N,) float64, ELBO of each entity without observations, nats
    iteration : settings of the mean-field runs of the lookahead

    """

    def __init__(self, packed: Packed, kind: int, empty: Floats, iteration: Iteration) -> None:
        n = len(packed.prior)
        self._packed, self._kind, self._empty, self._iteration = packed, kind, empty, iteration
        self._ahead = new_lookahead(packed, kind)
        self._after_row = np.zeros(n * (n - 1) // 2, dtype=np.int32)  # row + 1, or 0 if not cached
        self._clear_cache()

    def rows(self, state: State, duels: Ints, changed_at: Ints, now: int) -> tuple[Gains, Ints]:
        """Return gain arrays that are up to date for the given duels (entity pairs), and the row of each given duel.

        The next call of this method may change the gain arrays.

        Parameters
        ----------
        duels : (q,) int64, ascending indices of duels
        changed_at : (N,) int64, step at which each entity's model last changed
        now : the present step

        Returns
        -------
        gains : gain arrays of all cached duels
        rows : (q,) int64, row of each given duel in `gains`

        """
        rows = self._after_row[duels].astype(np.int64) - 1
        if len(rows) and rows.min() < 0:
            rows = self._add_duels(duels, rows)
        wanted = np.zeros(len(self._duels), dtype=np.bool_)
        wanted[rows] = True
        gains, empty, kind, iteration = self._gains, self._empty, self._kind, self._iteration
        bring_up_to_date(self._packed, state, self._ahead, gains, empty, kind, iteration, wanted, changed_at, now)
        return gains, rows

    def _clear_cache(self) -> None:
        """Remove all gains from the cache."""
        self._duels = np.empty(0, dtype=np.int64)
        self._gains = new_gains(self._packed, np.empty((0, 2), dtype=np.int64))

    def _add_duels(self, duels: Ints, rows: Ints) -> Ints:
        """Add the given duels that are not yet in the cache. Return the rows of all given duels."""
        if len(self._duels) + int((rows < 0).sum()) > CACHE_FACTOR * len(duels):
            self._after_row[self._duels] = 0
            self._clear_cache()
            rows = np.full(len(duels), -1)
        new = duels[rows < 0]
        self._after_row[new] = np.arange(len(self._duels) + 1, len(self._duels) + len(new) + 1)
        self._duels = np.concatenate([self._duels, new])
        more = new_gains(self._packed, sides_of(len(self._empty), new))
        self._gains = _concatenate_gains(self._gains, more) if len(self._gains.pairs) else more
        return self._after_row[duels].astype(np.int64) - 1


def _concatenate_gains(one: Gains, other: Gains) -> Gains:
    first = np.concatenate([one.first, one.first[-1] + other.first[1:]])
    parts = ((getattr(one, name), getattr(other, name)) for name in Gains._fields if name != "first")
    pairs, *others = (np.concatenate(part) for part in parts)
    return Gains(pairs, first, *others)


@kernel(entrance=True)
def add_weighted(gains: Gains, rows: Ints, weights: Floats, total: Floats) -> None:
    """Add to `total` for each feature the weighted sum of its gains over the given rows (eq:feature_selection).

    Parameters
    ----------
    rows : (q,) int64, rows of `gains`
    weights : (q,) float64
    total : (M,) float64, changed in place

    """
    first, feature, gain = gains.first, gains.feature, gains.gain
    for k in range(len(rows)):
        for i in range(first[rows[k]], first[rows[k] + 1]):
            total[feature[i]] += weights[k] * gain[i]


@kernel(entrance=True)
def gain_by_row(gains: Gains, rows: Ints, wanted: Bools, total: Floats) -> None:
    """Add to `total` for each given row the sum of the gains of the features that are marked in `wanted`.

    Parameters
    ----------
    rows : (q,) int64, rows of `gains`
    wanted : (M,) bool, True for features to include
    total : (q,) float64, changed in place

    """
    first, feature, gain = gains.first, gains.feature, gains.gain
    for k in range(len(rows)):
        for i in range(first[rows[k]], first[rows[k] + 1]):
            if wanted[feature[i]]:
                total[k] += gain[i]
