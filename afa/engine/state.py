"""Compiled steps on one patient's state: observe a feature, solve an entity, keep every cross expectation.

The readable definitions are `afa.mrf.Evidence`, `afa.inference.meanfield` and `afa.preference`; tests hold the
kernels to them.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from afa.engine.compile import kernel
from afa.engine.layout import Indices, Packed
from afa.engine.sweeps import Iteration as Iteration  # noqa: PLC0414 (the form that lets others import it from here)
from afa.engine.sweeps import ascend, bound, damped, padded
from afa.mrf import LOG3, Floats


class State(NamedTuple):
    """What is known of one patient, in all N entities at once; kernels change the arrays in place.

    constant : (N,) running constants. field : (K,) effective unaries, 0 at observed slots.
    m, q : (K,) first and second moments, 0 at observed slots. observed : (M,) bool.
    bound : (N,) ELBO of the free features alone; n_free : (N,) their number.
    cross : (N, N) E_{q_u}[S_v | x_obs], row u the entity whose marginals are used.
    iterations, capped, ascended : (N,) int64 diagnostics of the last solve of each entity.
    """

    constant: Floats
    field: Floats
    m: Floats
    q: Floats
    observed: NDArray[np.bool_]
    bound: Floats
    n_free: NDArray[np.int64]
    cross: Floats
    iterations: NDArray[np.int64]
    capped: NDArray[np.int64]
    ascended: NDArray[np.int64]


class Solved(NamedTuple):
    """How a solve went, and the ELBO of the free features."""

    bound: float
    n_free: int
    iterations: int
    capped: int
    ascended: int


@kernel()
def new_state(packed: Packed) -> State:
    """The state before any observation, not yet solved."""
    n, k = len(packed.prior), len(packed.unary)
    return State(
        packed.prior.copy(),
        packed.unary.copy(),
        np.zeros(k),
        np.full(k, 2.0 / 3.0),
        np.zeros(packed.n_features, dtype=np.bool_),
        np.zeros(n),
        np.zeros(n, dtype=np.int64),
        np.zeros((n, n)),
        np.zeros(n, dtype=np.int64),
        np.zeros(n, dtype=np.int64),
        np.zeros(n, dtype=np.int64),
    )


@kernel()
def copy_state(state: State) -> State:
    """A state that can be changed without changing the given one."""
    return State(
        state.constant.copy(),
        state.field.copy(),
        state.m.copy(),
        state.q.copy(),
        state.observed.copy(),
        state.bound.copy(),
        state.n_free.copy(),
        state.cross.copy(),
        state.iterations.copy(),
        state.capped.copy(),
        state.ascended.copy(),
    )


@kernel()
def condition(packed: Packed, state: State, feature: int, value: int) -> None:
    """Observe one feature: close its energy, shift its neighbours' effective unaries (App. supp:updatemrf)."""
    state.observed[feature] = True
    for h in range(packed.first_holder[feature], packed.first_holder[feature + 1]):
        slot = packed.holder[h]
        state.constant[packed.owner[slot]] += state.field[slot] * value
        for e in range(packed.first_edge[slot], packed.first_edge[slot + 1]):
            other = packed.other_slot[e]
            if not state.observed[packed.feature[other]]:
                state.field[other] += packed.coupling[e] * value
        state.field[slot] = 0.0
        state.m[slot] = 0.0
        state.q[slot] = 0.0


@kernel()
def solve(
    packed: Packed,
    entity: int,
    observed: NDArray[np.bool_],
    field: Floats,
    m: Floats,
    q: Floats,
    iteration: Iteration,
) -> Solved:
    """Mean-field on one entity's free features (eq:mf-update).

    field, m, q : (n,) at the entity's places; m and q are read for a warm start and written.
    """
    start, stop = packed.first_slot[entity], packed.first_slot[entity + 1]
    place = np.full(stop - start, -1)
    n = 0
    for j in range(stop - start):
        if not observed[packed.feature[start + j]]:
            place[j] = n
            n += 1
        else:
            m[j], q[j] = 0.0, 0.0
    alpha, free_m, free_q = np.zeros(padded(n)), np.zeros(padded(n)), np.full(padded(n), 2.0 / 3.0)
    coupling = np.zeros((padded(n), padded(n)))
    for j in range(stop - start):
        here = place[j]
        if here < 0:
            continue
        alpha[here] = field[j]
        if iteration.warm:
            free_m[here], free_q[here] = m[j], q[j]
        for e in range(packed.first_edge[start + j], packed.first_edge[start + j + 1]):
            there = place[packed.other_slot[e] - start]
            if there >= 0:
                coupling[here, there] = packed.coupling[e]
    sweeps, capped = damped(alpha, coupling, free_m, free_q, iteration)
    ascended = ascend(alpha, coupling, free_m, free_q, n, iteration) if capped else 0
    for j in range(stop - start):
        if place[j] >= 0:
            m[j], q[j] = free_m[place[j]], free_q[place[j]]
    return Solved(bound(alpha, coupling, free_m, free_q, n), n, sweeps, 1 if capped else 0, ascended)


@kernel(inline=True)
def expected_score(
    first: Indices,
    of_u: Indices,
    of_v: Indices,
    first_edge: Indices,
    edge_j: Indices,
    edge_l: Indices,
    coupling: Floats,
    pair: int,
    constant: float,
    field: Floats,
    field_at: int,
    m: Floats,
    m_at: int,
) -> float:
    """E_q[S_v] of entity v under the first moments of entity u, for the ordered pair u N + v.

    The first seven are the arrays of `Overlaps`: one by one, and positions instead of parts of arrays, because making
    a part, or taking an array out of a tuple in a loop, costs more than the sum. constant : of v. field : v's effective
    unaries by place, from field_at on. m : u's first moments, from m_at on, 0 where observed.
    """
    total = constant
    for i in range(first[pair], first[pair + 1]):
        total += field[field_at + of_v[i]] * m[m_at + of_u[i]]
    for e in range(first_edge[pair], first_edge[pair + 1]):
        total += coupling[e] * m[m_at + edge_j[e]] * m[m_at + edge_l[e]]
    return total


@kernel(inline=True)
def places(first_slot: Indices, entity: int, values: Floats) -> Floats:
    """The part of a (K,) array that belongs to one entity, (n,); a view."""
    return values[first_slot[entity] : first_slot[entity + 1]]


@kernel()
def solve_entity(packed: Packed, state: State, entity: int, iteration: Iteration) -> None:
    """Solve one entity in the present state; `cross` is left to the caller."""
    field, m, q = (
        places(packed.first_slot, entity, state.field),
        places(packed.first_slot, entity, state.m),
        places(packed.first_slot, entity, state.q),
    )
    solved = solve(packed, entity, state.observed, field, m, q, iteration)
    state.bound[entity] = solved.bound
    state.n_free[entity] = solved.n_free
    state.iterations[entity] = solved.iterations
    state.capped[entity] = solved.capped
    state.ascended[entity] = solved.ascended


@kernel()
def solve_all(packed: Packed, state: State, iteration: Iteration, crossing: bool) -> None:
    """Solve every entity, and with `crossing` fill `cross`: the state before the first decision."""
    n = len(packed.prior)
    for entity in range(n):
        solve_entity(packed, state, entity, iteration)
    for entity in range(n if crossing else 0):
        cross_of(packed, state, entity)


@kernel()
def cross_of(packed: Packed, state: State, v: int) -> None:
    """Row and column of `cross` of one entity."""
    first, of_u, of_v, first_edge, edge_j, edge_l, coupling = packed.overlaps
    n, first_slot = len(packed.prior), packed.first_slot
    constant, field, m, cross = state.constant, state.field, state.m, state.cross
    at_v = first_slot[v]
    for u in range(n):
        at_u, uv, vu = first_slot[u], u * n + v, v * n + u
        cross[u, v] = expected_score(
            first, of_u, of_v, first_edge, edge_j, edge_l, coupling, uv, constant[v], field, at_v, m, at_u
        )
        if u != v:
            cross[v, u] = expected_score(
                first, of_u, of_v, first_edge, edge_j, edge_l, coupling, vu, constant[u], field, at_u, m, at_v
            )


@kernel()
def elbo(state: State, entity: int, n_hidden: int) -> float:
    """ELBO on log Z(x_obs) of one entity; `n_hidden` is the number of unobserved features, in its support or not."""
    return float(state.constant[entity]) + float(state.bound[entity]) + LOG3 * (n_hidden - int(state.n_free[entity]))


@kernel()
def elbos(state: State, n_hidden: int) -> Floats:
    """(N,) `elbo` of every entity."""
    every = np.empty(len(state.bound))
    for entity in range(len(every)):
        every[entity] = elbo(state, entity, n_hidden)
    return every


@kernel(inline=True)
def mean_difference(cross: Floats, a: int, b: int) -> float:
    """mu_D of the duel (a, b) under the mixture of the two posteriors, read from `State.cross` (eq:mu-D)."""
    return float(0.5 * ((cross[a, a] - cross[b, b]) + (cross[b, a] - cross[a, b])))


@kernel()
def sign(score: float, tie: float) -> int:
    """-1, 0 or +1; 0 where the magnitude is no more than rounding."""
    if score > tie:
        return 1
    return -1 if score < -tie else 0
