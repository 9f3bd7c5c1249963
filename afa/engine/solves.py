"""How mean-field solves go along observation orders: sweeps, caps, and solves that were never finished."""

from __future__ import annotations

from threading import Lock
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from afa.bundle import Bundle
from afa.engine.compile import in_threads, kernel, laid_out
from afa.engine.kernels import Iteration, State, condition, new_state, solve_entity
from afa.engine.packed import Packed, pack
from afa.inference.meanfield import ASCENT_FACTOR, Solver

Counts = NDArray[np.int64]
SOLVES, ITERATIONS, CAPPED, UNFINISHED, ASCENT_SWEEPS = range(5)


class SolvePaths(NamedTuple):
    """Counts of solves of N entities, P patients in S orders each, t from 0 to M.

    The last axis is: solves; damped sweeps; solves that reached the cap of damped sweeps; of these, solves whose
    coordinate ascent used all of its sweeps too; sweeps of coordinate ascent.

    by_round : (M + 1, N, 5), over patients and orders. by_patient : (P, S, N, 5), over rounds.
    first_unfinished : (P, S, N) the t of the first unfinished solve, -1 where there is none.
    """

    by_round: Counts
    by_patient: Counts
    first_unfinished: NDArray[np.int64]


def solve_paths(
    bundle: Bundle,
    values: NDArray[np.int8],
    orders: NDArray[np.int64],
    *,
    solver: Solver | None = None,
    threads: int | None = None,
) -> SolvePaths:
    """Solve every entity before any observation, and again at each observation of a feature that it holds (spec M6).

    values : (P, M) in {-1, 0, +1}. orders : (P, S, M), each a permutation of the features. Every solve starts from the
    uniform marginals. All counts are whole numbers: the same for any number of threads.
    """
    solver, values, orders = solver or Solver(), laid_out(values), laid_out(orders)
    packed = pack(bundle)
    iteration = Iteration(solver.damping, solver.tolerance, solver.max_iterations, False)
    n = len(bundle.entities)
    by_round = np.zeros((orders.shape[2] + 1, n, 5), dtype=np.int64)
    by_patient = np.zeros((*orders.shape[:2], n, 5), dtype=np.int64)
    first_unfinished = np.full((*orders.shape[:2], n), -1, dtype=np.int64)
    lock = Lock()

    def follow(first: int, last: int) -> None:
        own = np.zeros_like(by_round)
        _follow(packed, values, orders, iteration, own, by_patient, first_unfinished, first, last)
        with lock:
            by_round[...] += own

    in_threads(follow, orders.shape[0] * orders.shape[1], threads)
    return SolvePaths(by_round, by_patient, first_unfinished)


@kernel()
def _follow(
    packed: Packed,
    values: NDArray[np.int8],
    orders: NDArray[np.int64],
    iteration: Iteration,
    by_round: Counts,
    by_patient: Counts,
    first_unfinished: NDArray[np.int64],
    first: int,
    last: int,
) -> None:
    _, n_orders, n_features = orders.shape
    for job in range(first, last):
        patient, order = job // n_orders, job % n_orders
        totals, unfinished = by_patient[patient, order], first_unfinished[patient, order]
        state = new_state(packed)
        for entity in range(len(packed.prior)):
            solve_entity(packed, state, entity, iteration)
            _count(state, entity, 0, iteration, by_round[0], totals, unfinished)
        for t in range(1, n_features + 1):
            feature = orders[patient, order, t - 1]
            condition(packed, state, feature, values[patient, feature])
            for h in range(packed.first_holder[feature], packed.first_holder[feature + 1]):
                entity = packed.owner[packed.holder[h]]
                solve_entity(packed, state, entity, iteration)
                _count(state, entity, t, iteration, by_round[t], totals, unfinished)


@kernel()
def _count(
    state: State,
    entity: int,
    t: int,
    iteration: Iteration,
    round_counts: Counts,
    totals: Counts,
    first_unfinished: NDArray[np.int64],
) -> None:
    unfinished = state.ascended[entity] >= ASCENT_FACTOR * iteration.max_iterations
    if unfinished and first_unfinished[entity] < 0:
        first_unfinished[entity] = t
    for counts in (round_counts[entity], totals[entity]):
        counts[SOLVES] += 1
        counts[ITERATIONS] += state.iterations[entity]
        counts[CAPPED] += state.capped[entity]
        counts[UNFINISHED] += 1 if unfinished else 0
        counts[ASCENT_SWEEPS] += state.ascended[entity]
