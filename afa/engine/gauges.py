"""Many patients at once: every duel read out in two gauges, along given observation orders (supp:maxent-vs-truegauge).

A duel D_ab = S_a - S_b has two class models. In the *true* gauge they are those of the entities a and b. In the
*closed* gauge they are the half-potential models +D/2 and -D/2, made from the difference alone (eq:half-potential).
The readable definitions are `afa.closure` and `afa.preference`; tests hold the kernels to them.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from afa.bundle import Bundle
from afa.engine.compile import in_threads, kernel
from afa.engine.duels import all_pairs, gaussian_sign
from afa.engine.layout import Gains, Packed, Pairs, new_gains, pack
from afa.engine.paths import Signs
from afa.engine.state import ASCENDED, ITERATIONS, State, condition, copy_state, new_state, sign, solve_entity
from afa.engine.sweeps import Iteration, add_neighbours, bound, converged, iteration_of, padded
from afa.inference.meanfield import Solver
from afa.mrf import LOG3, Floats

READINGS = (("two_elbo", "true"), ("two_elbo", "maxent"), ("stack_a", "true"), ("stack_a", "maxent"), ("wald", ""))
MODELS = ("entity", "half_positive", "half_negative")
COUNTS = ("solves", "iterations", "capped", "ascended")
ENTITY, POSITIVE, NEGATIVE = 0, 1, 2


@dataclass(frozen=True)
class GaugePaths:
    """Every duel in both gauges along observation orders, t from 0 to M.

    pairs : (Q, 2) entity indices a < b.
    signs : by (score, gauge) of `READINGS`, (P, S, M + 1, Q) int8, +1 where a is preferred, 0 a tie; `wald` is the same
    in both gauges and names none.
    scalars : the same but for `wald`, (P, S, G, Q) at the rounds of the grid: `two_elbo` in nats, `stack_a` in [-1, 1].
    counts : by kind of model, (4, P, S, M + 1), `COUNTS` over the solves of a round: `capped` reached the cap of damped
    sweeps, `ascended` are the sweeps of coordinate ascent that finished those.
    """

    pairs: Pairs
    signs: Mapping[tuple[str, str], Signs]
    scalars: Mapping[tuple[str, str], Floats]
    counts: Mapping[str, NDArray[np.int32]]


class Difference(NamedTuple):
    """One duel's conditioned model on the n unobserved features of the union of its supports.

    constant : of D. field : (w,), w the width `padded(n)`. coupling : (w, w). squares : half the sum of their squares.
    m, q : (2, w) moments under the models of a and of b.
    """

    n: int
    constant: float
    squares: float
    field: Floats
    coupling: Floats
    m: Floats
    q: Floats


def gauge_paths(
    bundle: Bundle,
    values: NDArray[np.int8],
    orders: NDArray[np.int64],
    grid: Sequence[int],
    *,
    solver: Solver | None = None,
    threads: int | None = None,
) -> GaugePaths:
    """Follow P patients through S orders each; the same numbers for any number of threads.

    values : (P, M) in {-1, 0, +1}. orders : (P, S, M), each a permutation of the features. grid : G rounds in 0..M at
    which the scalars are kept.
    """
    packed, pairs, iteration = pack(bundle), all_pairs(len(bundle.entities)), iteration_of(solver or Solver())
    unions = new_gains(packed, pairs)
    shape = (*orders.shape[:2], orders.shape[2] + 1)
    signs = np.zeros((len(READINGS), *shape, len(pairs)), dtype=np.int8)
    scalars = np.zeros((len(READINGS) - 1, *orders.shape[:2], len(grid), len(pairs)))
    counts = np.zeros((len(MODELS), len(COUNTS), *shape), dtype=np.int32)
    place_in_grid = np.full(shape[2], -1)
    place_in_grid[list(grid)] = np.arange(len(grid))
    start = new_state(packed), np.zeros((len(READINGS), len(pairs)))
    start_counts = np.zeros((len(MODELS), len(COUNTS)), dtype=np.int32)
    every = np.ones(len(bundle.entities), dtype=np.bool_)
    _read_changed(packed, unions, iteration, *start, every, start_counts)
    counts[..., 0] = start_counts[:, :, None, None]

    def follow(first: int, last: int) -> None:
        for job in range(first, last):
            p, s = divmod(job, orders.shape[1])
            read = signs[:, p, s], scalars[:, p, s], counts[:, :, p, s]
            _follow(packed, unions, iteration, *start, values[p], orders[p, s], place_in_grid, *read)

    in_threads(follow, orders.shape[0] * orders.shape[1], threads)
    return GaugePaths(
        pairs,
        dict(zip(READINGS, signs, strict=True)),
        dict(zip(READINGS[: len(scalars)], scalars, strict=True)),
        dict(zip(MODELS, counts, strict=True)),
    )


@kernel(entrance=True)
def _follow(
    packed: Packed,
    unions: Gains,
    iteration: Iteration,
    start: State,
    start_scores: Floats,
    values: NDArray[np.int8],
    order: NDArray[np.int64],
    place_in_grid: NDArray[np.int64],
    signs: NDArray[np.int8],
    scalars: Floats,
    counts: NDArray[np.int32],
) -> None:
    """One trajectory: read a duel again when an observed feature lies in the union of its supports, else keep it."""
    state, scores = copy_state(start), start_scores.copy()
    changed = np.zeros(len(packed.prior), dtype=np.bool_)
    for t in range(len(order) + 1):
        if t > 0:
            feature = order[t - 1]
            condition(packed, state, feature, values[feature])
            changed[:] = False
            for h in range(packed.first_holder[feature], packed.first_holder[feature + 1]):
                changed[packed.owner[packed.holder[h]]] = True
            _read_changed(packed, unions, iteration, state, scores, changed, counts[:, :, t])
        for i in range(len(scores)):
            for p in range(len(unions.pairs)):
                signs[i, t, p] = sign(scores[i, p], packed.tie)
        if place_in_grid[t] >= 0:
            scalars[:, place_in_grid[t]] = scores[: len(scalars)]


@kernel(entrance=True)
def _read_changed(
    packed: Packed,
    unions: Gains,
    iteration: Iteration,
    state: State,
    scores: Floats,
    changed: NDArray[np.bool_],
    counts: NDArray[np.int32],
) -> None:
    """Solve the entities that have changed, (N,), and write the scores, (5, Q), of their duels."""
    for entity in range(len(changed)):
        if changed[entity]:
            solve_entity(packed, state, entity, iteration)
            _count(counts[ENTITY], state.solves[ITERATIONS, entity], state.solves[ASCENDED, entity])
    for p in range(len(unions.pairs)):
        if changed[unions.pairs[p, 0]] or changed[unions.pairs[p, 1]]:
            _read(packed, state, unions, p, iteration, scores[:, p], counts)


@kernel()
def _read(
    packed: Packed,
    state: State,
    unions: Gains,
    p: int,
    iteration: Iteration,
    scores: Floats,
    counts: NDArray[np.int32],
) -> None:
    """The five scores of one duel, in the order of `READINGS`, from the present state of its two entities."""
    a, b = unions.pairs[p, 0], unions.pairs[p, 1]
    duel = _difference(packed, state, unions, p)
    # log 3 for every unobserved feature outside a support: all but a number that the two sides share
    scores[0] = duel.constant + (state.bound[a] - state.bound[b]) - LOG3 * (state.n_free[a] - state.n_free[b])
    scores[2] = _stack_a(duel, duel.m, duel.q, packed.tie)
    m, q = np.zeros(duel.m.shape), np.full(duel.q.shape, 2.0 / 3.0)
    bounds = np.empty(2)
    for side in range(2):
        factor = 0.5 if side == 0 else -0.5
        field, coupling = factor * duel.field, factor * duel.coupling
        sweeps, ascended = converged(field, coupling, None, m[side], q[side], duel.n, iteration)
        _count(counts[POSITIVE + side], sweeps, ascended)
        bounds[side] = bound(field, coupling, m[side], q[side], duel.n)
    scores[1] = duel.constant + (bounds[0] - bounds[1])
    scores[3] = _stack_a(duel, m, q, packed.tie)
    scores[4] = duel.constant


@kernel()
def _difference(packed: Packed, state: State, unions: Gains, p: int) -> Difference:
    a, b = unions.pairs[p, 0], unions.pairs[p, 1]
    first_a, first_b = packed.first_slot[a], packed.first_slot[b]
    place_a = np.full(packed.first_slot[a + 1] - first_a, -1)
    place_b = np.full(packed.first_slot[b + 1] - first_b, -1)
    n = 0
    for i in range(unions.first[p], unions.first[p + 1]):
        if not state.observed[unions.feature[i]]:
            if unions.slot_a[i] >= 0:
                place_a[unions.slot_a[i] - first_a] = n
            if unions.slot_b[i] >= 0:
                place_b[unions.slot_b[i] - first_b] = n
            n += 1
    constant, width = state.constant[a] - state.constant[b], padded(n)
    field, coupling = np.zeros(width), np.zeros((width, width))
    m, q = np.zeros((2, width)), np.full((2, width), 2.0 / 3.0)
    _add_entity(packed, state, first_a, place_a, 1.0, field, coupling, m[0], q[0])
    _add_entity(packed, state, first_b, place_b, -1.0, field, coupling, m[1], q[1])
    squares = 0.0
    for j in range(n):
        for other in range(j):
            squares += coupling[j, other] ** 2
    return Difference(n, constant, squares, field, coupling, m, q)


@kernel()
def _add_entity(
    packed: Packed,
    state: State,
    first_slot: int,
    place: NDArray[np.int64],
    weight: float,
    field: Floats,
    coupling: Floats,
    m: Floats,
    q: Floats,
) -> None:
    """Add one entity's potentials, times `weight`, to the difference, and write its moments."""
    for j in range(len(place)):
        here, slot = place[j], first_slot + j
        if here < 0:
            continue
        field[here] += weight * state.field[slot]
        m[here], q[here] = state.m[slot], state.q[slot]
        for e in range(packed.first_edge[slot], packed.first_edge[slot + 1]):
            there = place[packed.other_slot[e] - first_slot]
            if there >= 0:
                coupling[here, there] += weight * packed.coupling[e]


@kernel()
def _stack_a(duel: Difference, m: Floats, q: Floats, tie: float) -> float:
    """Gaussian estimate of E_Q[sign D] under the mixture of two product measures, m and q (2, w) (eq:fsp)."""
    mean, variance, nothing = duel.constant, duel.squares, np.zeros(len(duel.field))
    around = np.empty((2, len(duel.field)))
    for side in range(2):
        add_neighbours(nothing, duel.coupling, m[side], around[side])
    for j in range(duel.n):
        field = duel.field[j]
        mean += 0.5 * ((field + 0.5 * around[0, j]) * m[0, j] + (field + 0.5 * around[1, j]) * m[1, j])
        first, second = 0.5 * (m[0, j] + m[1, j]), 0.5 * (q[0, j] + q[1, j])
        variance += field * field * (second - first * first)
    if abs(mean) <= tie:
        mean = 0.0
    return gaussian_sign(mean, variance)


@kernel()
def _count(counts: NDArray[np.int32], iterations: int, ascended: int) -> None:
    counts[0] += 1
    counts[1] += iterations
    counts[2] += ascended > 0
    counts[3] += ascended
