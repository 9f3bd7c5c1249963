"""Compiled steps on one patient's state: observe a feature, solve an entity, score every duel.

The readable definitions are `afa.mrf.Evidence`, `afa.inference.meanfield` and `afa.preference`; tests hold the
kernels to them.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from afa.engine.compile import kernel
from afa.engine.packed import Packed
from afa.mrf import Floats


class State(NamedTuple):
    """What is known of one patient, in all N entities at once; kernels change the arrays in place.

    constant : (N,) running constants. field : (K,) effective unaries, 0 at observed slots.
    m, q : (K,) first and second moments, 0 at observed slots. observed : (M,) bool.
    first : (N, M) first moments by feature, 0 outside the support and at observed features.
    cross : (N, N) E_{q_u}[S_v | x_obs], row u the entity whose marginals are used.
    iterations, capped, ascended : (N,) int64 diagnostics of the last solve of each entity.
    """

    constant: Floats
    field: Floats
    m: Floats
    q: Floats
    observed: NDArray[np.bool_]
    first: Floats
    cross: Floats
    iterations: NDArray[np.int64]
    capped: NDArray[np.int64]
    ascended: NDArray[np.int64]


class Iteration(NamedTuple):
    """Settings of the mean-field iteration, as `afa.inference.meanfield.Solver`, and the start of each solve."""

    damping: float
    tolerance: float
    max_iterations: int
    warm: bool


@kernel()
def new_state(packed: Packed, n_features: int) -> State:
    """The state before any observation, not yet solved."""
    n, k = len(packed.prior), len(packed.unary)
    return State(
        packed.prior.copy(),
        packed.unary.copy(),
        np.zeros(k),
        np.full(k, 2.0 / 3.0),
        np.zeros(n_features, dtype=np.bool_),
        np.zeros((n, n_features)),
        np.zeros((n, n)),
        np.zeros(n, dtype=np.int64),
        np.zeros(n, dtype=np.int64),
        np.zeros(n, dtype=np.int64),
    )


@kernel()
def condition(packed: Packed, state: State, feature: int, value: int) -> None:
    """Observe one feature: close its energy, shift its neighbours' effective unaries (App. supp:updatemrf)."""
    state.observed[feature] = True
    for h in range(packed.first_holder[feature], packed.first_holder[feature + 1]):
        slot = packed.holder[h]
        entity = packed.owner[slot]
        state.constant[entity] += state.field[slot] * value
        for e in range(packed.first_edge[slot], packed.first_edge[slot + 1]):
            other = packed.other_slot[e]
            if not state.observed[packed.feature[other]]:
                state.field[other] += packed.coupling[e] * value
        state.field[slot] = 0.0
        state.m[slot] = 0.0
        state.q[slot] = 0.0
        state.first[entity, feature] = 0.0


@kernel()
def moments(field: float) -> tuple[float, float]:
    """First and second moment of a ternary feature at one field (spec M2)."""
    small = np.exp(-abs(field))
    norm = 1.0 + small + small * small
    m = (1.0 - small * small) / norm
    return (m if field >= 0.0 else -m), (1.0 + small * small) / norm


@kernel()
def solve(packed: Packed, state: State, entity: int, iteration: Iteration) -> None:
    """Mean-field on one entity's free slots; writes m, q, `first` and the diagnostics (eq:mf-update, spec M8)."""
    start, stop = packed.first_slot[entity], packed.first_slot[entity + 1]
    place = np.full(stop - start, -1)
    n = 0
    for slot in range(start, stop):
        if not state.observed[packed.feature[slot]]:
            place[slot - start] = n
            n += 1
    slots = np.empty(n, dtype=np.int64)
    alpha, m, q = np.empty(n), np.empty(n), np.empty(n)
    coupling = np.zeros((n, n))
    for slot in range(start, stop):
        j = place[slot - start]
        if j < 0:
            continue
        slots[j] = slot
        alpha[j] = state.field[slot]
        m[j] = state.m[slot] if iteration.warm else 0.0
        q[j] = state.q[slot] if iteration.warm else 2.0 / 3.0
        for e in range(packed.first_edge[slot], packed.first_edge[slot + 1]):
            other = place[packed.other_slot[e] - start]
            if other >= 0:
                coupling[j, other] = packed.coupling[e]
    sweeps, residual = _damped(alpha, coupling, m, q, iteration)
    capped = residual >= iteration.tolerance
    state.iterations[entity] = sweeps
    state.capped[entity] = 1 if capped else 0
    state.ascended[entity] = _ascend(alpha, coupling, m, q, iteration) if capped else 0
    for j in range(n):
        state.m[slots[j]] = m[j]
        state.q[slots[j]] = q[j]
        state.first[entity, packed.feature[slots[j]]] = m[j]


@kernel()
def _damped(alpha: Floats, coupling: Floats, m: Floats, q: Floats, iteration: Iteration) -> tuple[int, float]:
    """Damped Jacobi sweeps in place; returns their number and the largest last change of a probability."""
    n = len(m)
    field = np.empty(n)
    sweeps, residual = 0, (np.inf if n > 0 else 0.0)
    while residual >= iteration.tolerance and sweeps < iteration.max_iterations:
        field[:] = alpha
        for other in range(n):
            weight = m[other]
            for j in range(n):
                field[j] += coupling[other, j] * weight
        residual = 0.0
        for j in range(n):
            new_m, new_q = moments(field[j])
            step_m, step_q = iteration.damping * (new_m - m[j]), iteration.damping * (new_q - q[j])
            m[j] += step_m
            q[j] += step_q
            residual = max(residual, 0.5 * (abs(step_q) + abs(step_m)), abs(step_q))
        sweeps += 1
    return sweeps, residual


@kernel()
def _ascend(alpha: Floats, coupling: Floats, m: Floats, q: Floats, iteration: Iteration) -> int:
    """Sequential coordinate ascent in place, from where the damped sweeps stopped; returns its sweeps."""
    sweeps, residual = 0, np.inf
    while residual >= iteration.tolerance and sweeps < iteration.max_iterations:
        residual = 0.0
        for j in range(len(m)):
            field = alpha[j]
            for other in range(len(m)):
                field += coupling[other, j] * m[other]
            new_m, new_q = moments(field)
            step_m, step_q = new_m - m[j], new_q - q[j]
            m[j], q[j] = new_m, new_q
            residual = max(residual, 0.5 * (abs(step_q) + abs(step_m)), abs(step_q))
        sweeps += 1
    return sweeps


@kernel()
def expected_score(packed: Packed, state: State, marginals_of: int, score_of: int) -> float:
    """E_q[S_v | x_obs] of entity v = `score_of` under the product marginals of entity u = `marginals_of`."""
    first = state.first[marginals_of]
    linear, quadratic = 0.0, 0.0
    for slot in range(packed.first_slot[score_of], packed.first_slot[score_of + 1]):
        here = first[packed.feature[slot]]
        if here == 0.0:
            continue
        linear += state.field[slot] * here
        around = 0.0
        for e in range(packed.first_edge[slot], packed.first_edge[slot + 1]):
            around += packed.coupling[e] * first[packed.feature[packed.other_slot[e]]]
        quadratic += around * here
    return float(state.constant[score_of]) + linear + 0.5 * quadratic


@kernel()
def solve_all(packed: Packed, state: State, iteration: Iteration) -> None:
    """Solve every entity and fill `cross`: the state before the first decision."""
    n = len(packed.prior)
    for entity in range(n):
        solve(packed, state, entity, iteration)
    for u in range(n):
        for v in range(n):
            state.cross[u, v] = expected_score(packed, state, u, v)


@kernel()
def observe(packed: Packed, state: State, feature: int, value: int, iteration: Iteration) -> None:
    """Condition on one feature, then redo only what it changed: the entities that hold it (spec M6)."""
    condition(packed, state, feature, value)
    first, last = packed.first_holder[feature], packed.first_holder[feature + 1]
    for h in range(first, last):
        solve(packed, state, packed.owner[packed.holder[h]], iteration)
    for h in range(first, last):
        v = packed.owner[packed.holder[h]]
        for u in range(len(packed.prior)):
            state.cross[u, v] = expected_score(packed, state, u, v)
            state.cross[v, u] = expected_score(packed, state, v, u)


@kernel()
def sign(score: float, tie: float) -> int:
    """-1, 0 or +1; 0 where the magnitude is no more than rounding (spec S5)."""
    if score > tie:
        return 1
    return -1 if score < -tie else 0
