"""Many patients at once: every duel's sign, by every score, at every round of given observation orders."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from afa.bundle import Bundle
from afa.engine.compile import in_threads, kernel, laid_out
from afa.engine.duels import Pairs, vote
from afa.engine.kernels import Iteration, State, elbo, new_state, observe, sign, solve_all
from afa.engine.packed import Packed, pack
from afa.inference.meanfield import Solver

Signs = NDArray[np.int8]
SCORES = ("linearity", "wald", "two_elbo", "stack_a", "kl", "kl_reversed", "kl_nonzero")


@dataclass(frozen=True)
class SignPaths:
    """Signs of every duel along observation orders, t from 0 to M.

    pairs : (Q, 2) entity indices a < b. signs : by score, (P, S, M + 1, Q) int8, +1 where a is preferred, 0 a tie;
    `kl` asks for (a, b) and `kl_reversed` for (b, a), its sign turned round (spec S4).
    solves, iterations, capped, ascended : (P, S, M + 1) sums over the entities solved at that round.
    """

    pairs: Pairs
    signs: Mapping[str, Signs]
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
    solver, values, orders = solver or Solver(), laid_out(values), laid_out(orders)
    packed = pack(bundle)
    pairs = all_pairs(len(bundle.entities))
    shape = (*orders.shape[:2], orders.shape[2] + 1)
    signs = np.zeros((len(SCORES), *shape, len(pairs)), dtype=np.int8)
    counts = np.zeros((4, *shape), dtype=np.int32)
    first_round = Iteration(solver.damping, solver.tolerance, solver.max_iterations, False)
    later = first_round._replace(warm=start == "warm")

    def follow(first: int, last: int) -> None:
        _follow(packed, values, orders, pairs, first_round, later, signs, counts, first, last)

    in_threads(follow, orders.shape[0] * orders.shape[1], threads)
    return SignPaths(pairs, dict(zip(SCORES, signs, strict=True)), *counts)


def all_pairs(n: int) -> Pairs:
    """(Q, 2) every pair of entity indices a < b, in order."""
    opponents = np.arange(n - 1, -1, -1) if n else np.empty(0, dtype=np.int64)
    a = np.repeat(np.arange(n), opponents)
    b = np.arange(len(a)) - np.repeat(np.cumsum(opponents) - opponents, opponents) + a + 1
    return np.column_stack([a, b]).astype(np.int64)


@kernel()
def _follow(
    packed: Packed,
    values: NDArray[np.int8],
    orders: NDArray[np.int64],
    pairs: Pairs,
    first_round: Iteration,
    later: Iteration,
    signs: NDArray[np.int8],
    counts: NDArray[np.int32],
    first: int,
    last: int,
) -> None:
    """Follow the trajectories numbered first to last - 1, patient by patient."""
    _, n_orders, n_features = orders.shape
    for job in range(first, last):
        patient, order = job // n_orders, job % n_orders
        state = new_state(packed)
        solve_all(packed, state, first_round)
        votes = np.zeros((len(pairs), 2), dtype=np.int64)
        _write_signs(packed, state, pairs, votes, 0, signs[:, patient, order, 0])
        for entity in range(len(packed.prior)):
            _count(state, entity, counts[:, patient, order, 0])
        for t in range(1, n_features + 1):
            feature = orders[patient, order, t - 1]
            vote(packed, state, pairs, votes, feature, values[patient, feature])
            observe(packed, state, feature, values[patient, feature], later)
            _write_signs(packed, state, pairs, votes, t, signs[:, patient, order, t])
            for h in range(packed.first_holder[feature], packed.first_holder[feature + 1]):
                _count(state, packed.owner[packed.holder[h]], counts[:, patient, order, t])


@kernel()
def _write_signs(
    packed: Packed, state: State, pairs: Pairs, votes: NDArray[np.int64], t: int, signs: NDArray[np.int8]
) -> None:
    """One round's signs, (7, Q). Those of `stack_a` are those of its mean, which is `linearity` (erratum 9)."""
    bounds = np.empty(len(packed.prior))
    for entity in range(len(packed.prior)):
        bounds[entity] = elbo(state, entity, packed.n_features - t)
    cross = state.cross
    for p in range(len(pairs)):
        a, b = pairs[p, 0], pairs[p, 1]
        score = 0.5 * ((cross[a, a] - cross[b, b]) + (cross[b, a] - cross[a, b]))
        signs[0, p] = sign(score, packed.tie)
        signs[1, p] = sign(state.constant[a] - state.constant[b], packed.tie)
        signs[2, p] = sign(bounds[a] - bounds[b], packed.tie)
        signs[3, p] = signs[0, p]
        signs[4, p] = sign(2 * votes[p, 0] - t, 0.0)
        signs[5, p] = -sign(2 * votes[p, 1] - t, 0.0)
        signs[6, p] = sign(votes[p, 0] - votes[p, 1], 0.0)


@kernel()
def _count(state: State, entity: int, counts: NDArray[np.int32]) -> None:
    counts[0] += 1
    counts[1] += state.iterations[entity]
    counts[2] += state.capped[entity]
    counts[3] += state.ascended[entity]
