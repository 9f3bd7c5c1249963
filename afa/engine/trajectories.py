"""Many patients at once: every duel's sign at every round of given observation orders."""

from __future__ import annotations

from dataclasses import dataclass
from itertools import combinations

import numba
import numpy as np
from numpy.typing import NDArray

from afa.bundle import Bundle
from afa.engine.compile import CONFIG, kernel
from afa.engine.kernels import Iteration, State, new_state, observe, sign, solve_all
from afa.engine.packed import Packed, pack
from afa.inference.meanfield import Solver

Signs = NDArray[np.int8]


@dataclass(frozen=True)
class SignPaths:
    """Signs of every duel along observation orders, t from 0 to M.

    pairs : (Q, 2) entity indices a < b. wald, linearity : (P, S, M + 1, Q) int8, +1 where a is preferred, 0 a tie.
    iterations, capped, ascended : (P, S, M + 1) sums over the entities solved at that round; solves : their number.
    """

    pairs: NDArray[np.int64]
    wald: Signs
    linearity: Signs
    solves: NDArray[np.int32]
    iterations: NDArray[np.int32]
    capped: NDArray[np.int32]
    ascended: NDArray[np.int32]


def sign_paths(
    bundle: Bundle,
    values: NDArray[np.int8],
    orders: NDArray[np.int64],
    *,
    solver: Solver | None = None,
    start: str = "uniform",
    threads: int | None = None,
) -> SignPaths:
    """Follow P patients through S orders each; the same numbers for any number of threads.

    values : (P, M) in {-1, 0, +1}. orders : (P, S, M), each a permutation of the features.
    start : `uniform`, or `warm` from the previous round's marginals (spec M6).
    """
    solver = solver or Solver()
    packed = pack(bundle)
    pairs = np.array(list(combinations(range(len(bundle.entities)), 2)), dtype=np.int64).reshape(-1, 2)
    shape = (*orders.shape[:2], orders.shape[2] + 1)
    wald, linearity = (np.zeros((*shape, len(pairs)), dtype=np.int8) for _ in range(2))
    counts = np.zeros((4, *shape), dtype=np.int32)
    iteration = Iteration(solver.damping, solver.tolerance, solver.max_iterations, False)
    later = iteration._replace(warm=start == "warm")
    before = numba.get_num_threads()
    numba.set_num_threads(min(threads or before, CONFIG.NUMBA_NUM_THREADS))
    try:
        _follow(packed, values, orders, pairs, iteration, later, wald, linearity, counts)
    finally:
        numba.set_num_threads(before)
    return SignPaths(pairs, wald, linearity, *counts)


@kernel(parallel=True)
def _follow(
    packed: Packed,
    values: NDArray[np.int8],
    orders: NDArray[np.int64],
    pairs: NDArray[np.int64],
    first_round: Iteration,
    later: Iteration,
    wald: Signs,
    linearity: Signs,
    counts: NDArray[np.int32],
) -> None:
    n_patients, n_orders, n_features = orders.shape
    for job in numba.prange(n_patients * n_orders):
        patient, order = job // n_orders, job % n_orders
        state = new_state(packed, n_features)
        solve_all(packed, state, first_round)
        _write_signs(packed, state, pairs, wald[patient, order, 0], linearity[patient, order, 0])
        for entity in range(len(packed.prior)):
            _count(state, entity, counts[:, patient, order, 0])
        for t in range(n_features):
            feature = orders[patient, order, t]
            observe(packed, state, feature, values[patient, feature], later)
            _write_signs(packed, state, pairs, wald[patient, order, t + 1], linearity[patient, order, t + 1])
            for h in range(packed.first_holder[feature], packed.first_holder[feature + 1]):
                _count(state, packed.owner[packed.holder[h]], counts[:, patient, order, t + 1])


@kernel()
def _write_signs(packed: Packed, state: State, pairs: NDArray[np.int64], wald: Signs, linearity: Signs) -> None:
    cross = state.cross
    for p in range(len(pairs)):
        a, b = pairs[p, 0], pairs[p, 1]
        wald[p] = sign(state.constant[a] - state.constant[b], packed.tie)
        score = 0.5 * ((cross[a, a] - cross[b, b]) + (cross[b, a] - cross[a, b]))
        linearity[p] = sign(score, packed.tie)


@kernel()
def _count(state: State, entity: int, counts: NDArray[np.int32]) -> None:
    counts[0] += 1
    counts[1] += state.iterations[entity]
    counts[2] += state.capped[entity]
    counts[3] += state.ascended[entity]
