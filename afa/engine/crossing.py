"""Compiled cross expectations by the holders of each feature, for bundles of many entities.

Most pairs of entities in a large bundle share no feature: there E_{q_u}[S_v] is the running constant of v. What is
shared is found feature by feature, so that neither time nor memory goes into pairs of entities that share nothing.
Each sum runs in the order of `afa.engine.state.expected_score`, to the same bytes.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from afa.engine.compile import kernel
from afa.engine.layout import Indices, Packed, Sharing
from afa.engine.ranks import best_first
from afa.engine.state import State, condition, solve_entity
from afa.engine.sweeps import Iteration
from afa.mrf import Floats


class Mirror(NamedTuple):
    """What of a `State` is read feature by feature: `field` and `m`, (K,), in the order of `Packed.holder`.

    by_feature : (M,) and by_entity : (N,) are room to work in, zeros between calls.
    """

    field: Floats
    m: Floats
    by_feature: Floats
    by_entity: Floats


def new_mirror(packed: Packed) -> Mirror:
    """A mirror of nothing yet."""
    n_slots = len(packed.feature)
    return Mirror(np.zeros(n_slots), np.zeros(n_slots), np.zeros(packed.n_features), np.zeros(len(packed.prior)))


def copy_mirror(mirror: Mirror) -> Mirror:
    """A mirror that can be changed without changing the given one."""
    return Mirror(*(array.copy() for array in mirror))


@kernel(entrance=True)
def solve_every(packed: Packed, sharing: Sharing, state: State, mirror: Mirror, iteration: Iteration) -> None:
    """`afa.engine.state.solve_all` without overlaps."""
    n = len(packed.prior)
    for entity in range(n):
        solve_entity(packed, state, entity, iteration)
        _reflect(packed, sharing, state, mirror, entity)
    for entity in range(n):
        _write_row(packed, sharing, state, mirror, entity)


@kernel(entrance=True)
def observe_among(
    packed: Packed, sharing: Sharing, state: State, mirror: Mirror, feature: int, value: int, iteration: Iteration
) -> None:
    """Observe one feature, and solve and cross again the entities that hold it, without overlaps."""
    condition(packed, state, feature, value)
    holders = packed.owner[packed.holder[packed.first_holder[feature] : packed.first_holder[feature + 1]]]
    for entity in holders:
        solve_entity(packed, state, entity, iteration)
        _reflect(packed, sharing, state, mirror, entity)
    columns = np.empty((len(holders), len(packed.prior)))
    for i in range(len(holders)):
        _write_row(packed, sharing, state, mirror, holders[i])
        _write_column(packed, sharing, state, mirror, holders[i], columns[i])
    cross = state.cross
    for u in range(len(cross)):  # row by row: a column at a time each step would be to another page of memory
        for i in range(len(holders)):
            cross[u, holders[i]] = columns[i, u]


@kernel()
def _reflect(packed: Packed, sharing: Sharing, state: State, mirror: Mirror, entity: int) -> None:
    place, from_field, from_m, field, m = sharing.place, state.field, state.m, mirror.field, mirror.m
    for slot in range(packed.first_slot[entity], packed.first_slot[entity + 1]):
        field[place[slot]], m[place[slot]] = from_field[slot], from_m[slot]


@kernel()
def _write_row(packed: Packed, sharing: Sharing, state: State, mirror: Mirror, u: int) -> None:
    """E_{q_u}[S_v] of every entity v."""
    # arrays one by one: taken out of their tuples in the loops they would cost more than the sums
    feature, first_holder, owner, field = packed.feature, packed.first_holder, sharing.owner, mirror.field
    first_link, partner, first_member = sharing.first_link, sharing.partner, sharing.first_member
    member, value, m, m_at = sharing.member, sharing.value, state.m, mirror.by_feature
    row, first, last = state.cross[u], packed.first_slot[u], packed.first_slot[u + 1]
    row[:] = state.constant
    for slot in range(first, last):
        at, weight = feature[slot], m[slot]
        m_at[at] = weight
        if weight != 0.0:
            for h in range(first_holder[at], first_holder[at + 1]):
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


@kernel()
def _write_column(packed: Packed, sharing: Sharing, state: State, mirror: Mirror, v: int, column: Floats) -> None:
    """E_{q_u}[S_v] under every entity u, into `column` (N,)."""
    feature, first_holder, owner, field = packed.feature, packed.first_holder, sharing.owner, state.field
    first_edge, other_slot, coupling = packed.first_edge, packed.other_slot, packed.coupling
    m, m_of, observed = mirror.m, mirror.by_entity, state.observed
    first, last = packed.first_slot[v], packed.first_slot[v + 1]
    column[:] = state.constant[v]
    for slot in range(first, last):
        weight = field[slot]
        if weight != 0.0:
            for h in range(first_holder[feature[slot]], first_holder[feature[slot] + 1]):
                column[owner[h]] += weight * m[h]
    for slot in range(first, last):
        at = feature[slot]
        if observed[at]:
            continue
        for h in range(first_holder[at], first_holder[at + 1]):
            m_of[owner[h]] = m[h]
        for e in range(first_edge[slot], first_edge[slot + 1]):
            if other_slot[e] > slot:  # each unordered pair once
                there, weight = feature[other_slot[e]], coupling[e]
                for h in range(first_holder[there], first_holder[there + 1]):
                    column[owner[h]] += weight * m_of[owner[h]] * m[h]
        for h in range(first_holder[at], first_holder[at + 1]):
            m_of[owner[h]] = 0.0


class Table(NamedTuple):
    """The `linearity` scores of one patient, and what the ranking of all entities takes from them.

    scores : (N, N). ahead : (N,) duels won less duels lost. margin, rest : (N,) the sum of each row, and what rounding
    has left out of it; the two together stay as exact as a new sum through any number of changes.
    """

    scores: Floats
    ahead: Indices
    margin: Floats
    rest: Floats


def new_table(n: int) -> Table:
    """The table of N entities that tie in every duel."""
    return Table(np.zeros((n, n)), np.zeros(n, dtype=np.int64), np.zeros(n), np.zeros(n))


def copy_table(table: Table) -> Table:
    """A table that can be changed without changing the given one."""
    return Table(table.scores.copy(), table.ahead.copy(), table.margin.copy(), table.rest.copy())


@kernel(entrance=True)
def refresh_table(cross: Floats, changed: NDArray[np.bool_], tie: float, table: Table) -> None:
    """Write `linearity` anew in rows and columns of the entities marked in `changed` (N,); rounding is 0."""
    n, entities = len(changed), np.flatnonzero(changed)
    scores, ahead, margin, rest = table.scores, table.ahead, table.margin, table.rest
    own = np.empty(n)
    for entity in range(n):
        own[entity] = cross[entity, entity]
    for b in range(n):
        for a in entities:
            score = 0.5 * ((own[a] - own[b]) + (cross[b, a] - cross[a, b]))
            score = 0.0 if abs(score) <= tie else score
            before = scores[a, b]
            if score != before:
                scores[a, b], scores[b, a] = score, 0.0 - score
                turned = int(score > 0.0) - int(score < 0.0) - int(before > 0.0) + int(before < 0.0)
                ahead[a] += turned
                ahead[b] -= turned
                for term in (score, -before):
                    _add_exactly(margin, rest, int(a), term)
                    _add_exactly(margin, rest, b, -term)


@kernel(inline=True)
def _add_exactly(total: Floats, rest: Floats, i: int, term: float) -> None:
    """Add a term to total[i], and what that rounds away to rest[i]."""
    before = total[i]
    after = before + term
    of_term = after - before
    rest[i] += (before - (after - of_term)) + (term - of_term)
    total[i] = after


@kernel(entrance=True)
def rank_all(table: Table, name_rank: Indices, tie: float) -> Indices:
    """(N,) rank of every entity by its duels, 1 the best, as `afa.engine.ranks.ranks_of` orders them."""
    n = len(name_rank)
    order = best_first(table.ahead.astype(np.float64), table.margin + table.rest, name_rank, tie * n)
    rank = np.empty(n, dtype=np.int64)
    for i in range(n):
        rank[order[i]] = i + 1
    return rank
