"""Compute the scores of all duels of many patients in two *gauges* (ways to construct the class models).

A duel (entity pair a, b) compares two class models with the energy difference D = S_a - S_b. A gauge is a way to
construct the two class models from the entities a and b (supp:maxent-vs-truegauge). The construction `true` uses the
models of the entities a and b as class models. The construction `maxent` gives the class models the energies +D/2 and
-D/2 (eq:half-potential). Tests compare the kernels with the plain Python definitions in `afa.model.closure` and
`afa.scores.preference`.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from afa.engine.compile import INT, in_threads, kernel, laid_out
from afa.engine.duels import all_pairs, gaussian_sign
from afa.engine.layout import Gains, Packed, Pairs, new_gains, pack
from afa.engine.state import ASCENDED, ITERATIONS, State, condition, copy_state, new_state, sign, solve_entity
from afa.engine.sweeps import Iteration, add_neighbours, bound, converged, iteration_of, padded
from afa.inference.meanfield import Solver
from afa.model.arrays import Bools, Codes, Floats, Ints
from afa.model.bundle import Bundle
from afa.model.mrf import LOG3

SCORE_GAUGES = (("two_elbo", "true"), ("two_elbo", "maxent"), ("stack_a", "true"), ("stack_a", "maxent"), ("wald", ""))
GAUGE_MODELS = ("entity", "half_positive", "half_negative")
SOLVE_COUNTS = ("solves", "iterations", "capped", "ascended")
ENTITY, POSITIVE = 0, 1


@dataclass(frozen=True)
class GaugePaths:
    """Results of every duel (entity pair) with two kinds of class models (gauges), for given orders of observation.

    Attributes
    ----------
    pairs : (Q, 2) int64, entity indices a < b
    signs : (score, gauge) of `SCORE_GAUGES` -> (P, S, M + 1, Q) int8, +1 if a is preferred, -1 if b is preferred, 0 for
        a tie; the score `wald` is equal in both gauges and has the gauge ""
    scalars : (score, gauge) of `SCORE_GAUGES` without `wald` -> (P, S, G, Q) float64, score after each of the G numbers
        of observations in `grid`; `two_elbo` is in nats, and `stack_a` is in [-1, 1]
    counts : name in `GAUGE_MODELS` -> (4, P, S, M + 1) int32, the four `SOLVE_COUNTS`, summed over the mean-field runs
        after one observation. `capped` counts the runs that reached the limit of damped sweeps, and `ascended` counts
        the sweeps of coordinate ascent

    """

    pairs: Pairs
    signs: Mapping[tuple[str, str], Codes]
    scalars: Mapping[tuple[str, str], Floats]
    counts: Mapping[str, NDArray[np.int32]]


class GaugeRun(NamedTuple):
    """Kernel arrays, features of each duel (entity pair), and solver settings. They are the same for all patients."""

    packed: Packed
    unions: Gains
    iteration: Iteration


class Read(NamedTuple):
    """Result arrays that the kernels write. A path is one patient with one order of observations.

    Attributes
    ----------
    signs : (5, P, S, M + 1, Q) int8, as in `GaugePaths`; the first axis has the order of `SCORE_GAUGES`
    scalars : (4, P, S, G, Q) float64, as in `GaugePaths`; the first axis has the order of `SCORE_GAUGES` without `wald`
    counts : (3, 4, P, S, M + 1) int32; the first axis has the order of `GAUGE_MODELS`, and the second the order of
    `SOLVE_COUNTS`

    """

    signs: Codes
    scalars: Floats
    counts: NDArray[np.int32]


class Difference(NamedTuple):
    """Model with the energy D = S_a - S_b, in which the observed features are fixed at their values.

    The model covers the n unobserved features in the support of a or b.

    Attributes
    ----------
    n : number of features
    constant : part of D from the observed features, nats
    squares : half the sum of the squared couplings
    field : (w,) float64, effective unary potentials, nats; w is the width `padded(n)`
    coupling : (w, w) float64, nats
    m, q : (2, w) float64, moments under the models of a and of b

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
    values: Codes,
    orders: Ints,
    grid: Sequence[int],
    *,
    solver: Solver | None = None,
    threads: int | None = None,
) -> GaugePaths:
    """Observe the features of P patients in S orders each, and score all entity pairs with both kinds of class models.

    Parameters
    ----------
    values : (P, M) int8, -1, 0 or +1
    orders : (P, S, M) int64, each a permutation of the features
    grid : G numbers of observations from 0 to M, for which scalars are returned

    """
    packed, pairs = pack(bundle), all_pairs(len(bundle.entities))
    gauge = GaugeRun(packed, new_gains(packed, pairs), iteration_of(solver or Solver()))
    shape = (*orders.shape[:2], orders.shape[2] + 1)
    found = Read(
        signs=np.zeros((len(SCORE_GAUGES), *shape, len(pairs)), dtype=np.int8),
        scalars=np.zeros((len(SCORE_GAUGES) - 1, *shape[:2], len(grid), len(pairs))),
        counts=np.zeros((len(GAUGE_MODELS), len(SOLVE_COUNTS), *shape), dtype=np.int32),
    )
    place_in_grid = np.full(shape[2], -1)
    place_in_grid[list(grid)] = np.arange(len(grid))
    start = new_state(packed), np.zeros((len(SCORE_GAUGES), len(pairs)))
    start_counts = np.zeros((len(GAUGE_MODELS), len(SOLVE_COUNTS)), dtype=np.int32)
    _update_changed_duels(gauge, *start, np.ones(len(bundle.entities), dtype=np.bool_), start_counts)
    found.counts[..., 0] = start_counts[:, :, None, None]
    given = laid_out(values), laid_out(orders), place_in_grid, found
    in_threads(_follow_path_range, shape[0] * shape[1], threads, gauge, *start, *given)
    return GaugePaths(
        pairs,
        dict(zip(SCORE_GAUGES, found.signs, strict=True)),
        dict(zip(SCORE_GAUGES, found.scalars, strict=False)),
        dict(zip(GAUGE_MODELS, found.counts, strict=True)),
    )


@kernel(entrance=True)
def _follow_path_range(
    gauge: GaugeRun,
    start: State,
    start_scores: Floats,
    values: Codes,
    orders: Ints,
    place_in_grid: Ints,
    found: Read,
    first: int,
    last: int,
) -> None:
    """Follow the paths with the indices `first` to `last - 1`: observe the features in order, and write the results.

    A path is one patient with one order of observations.

    The results of a duel (entity pair) are computed again if the model of one of its entities contains the observed
    feature.
    """
    packed, changed = gauge.packed, np.zeros(len(gauge.packed.prior), dtype=np.bool_)
    counts = np.empty((len(GAUGE_MODELS), len(SOLVE_COUNTS)), dtype=np.int32)
    for job in range(first, last):
        state, scores = copy_state(start), start_scores.copy()
        p, s = job // orders.shape[1], job % orders.shape[1]
        for t in range(orders.shape[2] + 1):
            if t > 0:
                feature = orders[p, s, t - 1]
                condition(packed, state, feature, INT(values[p, feature]))
                changed[:] = False
                for h in range(packed.first_feature_slot[feature], packed.first_feature_slot[feature + 1]):
                    changed[packed.owner[packed.feature_slots[h]]] = True
                counts[:] = 0
                _update_changed_duels(gauge, state, scores, changed, counts)
                for model in range(len(GAUGE_MODELS)):
                    for i in range(len(SOLVE_COUNTS)):
                        found.counts[model, i, p, s, t] = counts[model, i]
            for i in range(len(scores)):
                for duel in range(scores.shape[1]):
                    found.signs[i, p, s, t, duel] = sign(scores[i, duel], packed.tie)
            if place_in_grid[t] >= 0:
                found.scalars[:, p, s, place_in_grid[t]] = scores[:-1]


@kernel(entrance=True)
def _update_changed_duels(
    gauge: GaugeRun, state: State, scores: Floats, changed: Bools, counts: NDArray[np.int32]
) -> None:
    """Run mean-field on the models of the entities in `changed`, and write the scores of their duels (entity pairs)."""
    for entity in range(len(changed)):
        if changed[entity]:
            solve_entity(gauge.packed, state, entity, gauge.iteration)
            _add_run_counts(counts[ENTITY], state.solves[ITERATIONS, entity], state.solves[ASCENDED, entity])
    pairs = gauge.unions.pairs
    for p in range(len(pairs)):
        if changed[pairs[p, 0]] or changed[pairs[p, 1]]:
            _write_duel_scores(gauge, state, p, scores, counts)


@kernel(inline=True)
def _write_duel_scores(gauge: GaugeRun, state: State, p: int, scores: Floats, counts: NDArray[np.int32]) -> None:
    """Write the scores of the entity pair p into column p of `scores`. The rows have the order of `SCORE_GAUGES`."""
    packed, a, b = gauge.packed, gauge.unions.pairs[p, 0], gauge.unions.pairs[p, 1]
    duel = _difference(packed, state, gauge.unions, p)
    # `state.bound` omits the term log 3 that each unobserved feature outside the support adds to the ELBO
    scores[0, p] = duel.constant + (state.bound[a] - state.bound[b]) - LOG3 * (state.n_free[a] - state.n_free[b])
    scores[2, p] = _stack_a(duel, duel.m, duel.q, packed.tie)
    m, q = np.zeros(duel.m.shape), np.full(duel.q.shape, 2.0 / 3.0)
    bounds, paper = np.empty(2), np.empty((3, 0))
    for side in range(2):
        factor = 0.5 if side == 0 else -0.5
        field, coupling = factor * duel.field, factor * duel.coupling
        sweeps, ascended = converged(field, coupling, paper, m[side], q[side], duel.n, gauge.iteration)
        _add_run_counts(counts[POSITIVE + side], sweeps, ascended)
        bounds[side] = bound(field, coupling, m[side], q[side], duel.n)
    scores[1, p] = duel.constant + (bounds[0] - bounds[1])
    scores[3, p] = _stack_a(duel, m, q, packed.tie)
    scores[4, p] = duel.constant


@kernel(inline=True)
def _difference(packed: Packed, state: State, unions: Gains, p: int) -> Difference:
    a, b, n = unions.pairs[p, 0], unions.pairs[p, 1], 0
    number = np.full(packed.n_features, -1)
    for i in range(unions.first[p], unions.first[p + 1]):
        if not state.observed[unions.feature[i]]:
            number[unions.feature[i]] = n
            n += 1
    constant, width = state.constant[a] - state.constant[b], padded(n)
    field, coupling = np.zeros(width), np.zeros((width, width))
    m, q = np.zeros((2, width)), np.full((2, width), 2.0 / 3.0)
    for side in range(2):
        entity, weight = (a, 1.0) if side == 0 else (b, -1.0)
        for slot in range(packed.first_slot[entity], packed.first_slot[entity + 1]):
            here = number[packed.feature[slot]]
            if here < 0:
                continue
            field[here] += weight * state.field[slot]
            m[side, here], q[side, here] = state.m[slot], state.q[slot]
            for e in range(packed.first_edge[slot], packed.first_edge[slot + 1]):
                there = number[packed.feature[packed.other_slot[e]]]
                if there >= 0:
                    coupling[here, there] += weight * packed.coupling[e]
    squares = 0.0
    for j in range(n):
        for other in range(j):
            squares += coupling[j, other] ** 2
    return Difference(n, constant, squares, field, coupling, m, q)


@kernel()
def _stack_a(duel: Difference, m: Floats, q: Floats, tie: float) -> float:
    """Return the Gaussian estimate of E_Q[sign D], where Q is the mixture of two product distributions (eq:fsp).

    Parameters
    ----------
    m, q : (2, w) float64, moments of the two product distributions

    """
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


@kernel(inline=True)
def _add_run_counts(counts: NDArray[np.int32], iterations: int, ascended: int) -> None:
    counts[0] += 1
    counts[1] += iterations
    counts[2] += ascended > 0
    counts[3] += ascended
