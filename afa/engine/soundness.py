"""Many patients at once: what each bracket calls along observation orders, held against the winners at the end."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from afa.bracket import GAMMA
from afa.bundle import Bundle
from afa.engine.brackets import BRACKETS, RIGOROUS, bracket_calls, vote_call
from afa.engine.compile import in_threads, kernel, laid_out
from afa.engine.duels import Duel, Pairs, duel, vote
from afa.engine.kernels import Iteration, State, new_state, observe, solve_all
from afa.engine.packed import Packed, pack
from afa.engine.trajectories import all_pairs
from afa.inference.meanfield import Solver

CALLED, WRONG, TIED, EARLY = range(4)
N_RIGOROUS = len(RIGOROUS)


class CallPaths(NamedTuple):
    """Calls of the brackets of P patients in S orders each, t from 0 to M.

    pairs : (Q, 2) entity indices a < b. counts : (P, S, M + 1, 5, 4) int32, by bracket: duels called among those with
    a winner; of these called wrongly; duels called that are tied at the end; duels that `l1_paper` calls and
    `l1_tight` does not. first : (P, S, 4) the first such fault of a rigorous bracket, as t, pair, bracket, call; t is
    -1 where there is none.
    """

    pairs: Pairs
    counts: NDArray[np.int32]
    first: NDArray[np.int64]


def call_paths(
    bundle: Bundle,
    values: NDArray[np.int8],
    orders: NDArray[np.int64],
    winners: NDArray[np.int8],
    *,
    solver: Solver | None = None,
    gamma: float = GAMMA,
    threads: int | None = None,
    budget_share: float = 1.0,
) -> CallPaths:
    """Follow P patients through S orders each and judge every call; the same numbers for any number of threads.

    values : (P, M) in {-1, 0, +1}. orders : (P, S, M), each a permutation of the features. winners : (P, Q), +1 where
    the first entity of a pair is ahead at full observation, 0 a tie. budget_share : the part of the `l1` budgets that
    is counted; below 1 the rigorous brackets are broken on purpose.
    """
    solver, values, orders, winners = solver or Solver(), laid_out(values), laid_out(orders), laid_out(winners)
    packed, pairs = pack(bundle), all_pairs(len(bundle.entities))
    iteration = Iteration(solver.damping, solver.tolerance, solver.max_iterations, False)
    counts = np.zeros((*orders.shape[:2], orders.shape[2] + 1, len(BRACKETS), 4), dtype=np.int32)
    faults = np.full((*orders.shape[:2], 4), -1, dtype=np.int64)

    def follow(first: int, last: int) -> None:
        _follow(packed, values, orders, pairs, winners, iteration, gamma, budget_share, counts, faults, first, last)

    in_threads(follow, orders.shape[0] * orders.shape[1], threads)
    return CallPaths(pairs, counts, faults)


@kernel()
def _follow(
    packed: Packed,
    values: NDArray[np.int8],
    orders: NDArray[np.int64],
    pairs: Pairs,
    winners: NDArray[np.int8],
    iteration: Iteration,
    gamma: float,
    budget_share: float,
    counts: NDArray[np.int32],
    faults: NDArray[np.int64],
    first: int,
    last: int,
) -> None:
    """Follow the trajectories numbered first to last - 1; a duel is judged again where one of its entities changed."""
    _, n_orders, n_features = orders.shape
    for job in range(first, last):
        patient, order = job // n_orders, job % n_orders
        state = new_state(packed)
        solve_all(packed, state, iteration)
        votes = np.zeros((len(pairs), 2), dtype=np.int64)
        calls = np.zeros((len(pairs), 5), dtype=np.int8)
        changed = np.ones(len(packed.prior), dtype=np.bool_)
        for t in range(n_features + 1):
            if t > 0:
                feature = orders[patient, order, t - 1]
                vote(packed, state, pairs, votes, feature, values[patient, feature])
                observe(packed, state, feature, values[patient, feature], iteration)
                changed[:] = False
                for h in range(packed.first_holder[feature], packed.first_holder[feature + 1]):
                    changed[packed.owner[packed.holder[h]]] = True
            for p in range(len(pairs)):
                if changed[pairs[p, 0]] or changed[pairs[p, 1]]:
                    read_brackets(packed, state, pairs[p], votes[p], t, gamma, budget_share, calls[p])
                else:
                    calls[p, 4] = vote_call(votes[p, 0], t, gamma)
                _judge(calls[p], winners[patient, p], t, p, counts[patient, order, t], faults[patient, order])


@kernel()
def read_brackets(
    packed: Packed,
    state: State,
    pair: NDArray[np.int64],
    votes: NDArray[np.int64],
    t: int,
    gamma: float,
    budget_share: float,
    calls: NDArray[np.int8],
) -> None:
    """Write the call of each bracket for one duel after t observations, as `bracket_calls`."""
    a, b, cross = pair[0], pair[1], state.cross
    sums = duel(packed, state, a, b)
    counted = Duel(budget_share * sums.budget, budget_share * sums.between, sums.variance, sums.spread, sums.beta)
    mean = 0.5 * ((cross[a, a] - cross[b, b]) + (cross[b, a] - cross[a, b]))
    if abs(mean) <= packed.tie:
        mean = 0.0
    bracket_calls(packed, state, a, b, counted, mean, votes, t, gamma, calls)


@kernel()
def _judge(
    calls: NDArray[np.int8], winner: int, t: int, pair: int, counts: NDArray[np.int32], fault: NDArray[np.int64]
) -> None:
    """Count the calls of one duel at one round, and keep the first that a rigorous bracket may not make."""
    for i in range(len(calls)):
        early = i == 1 and calls[1] != 0 and calls[0] != calls[1]
        if early:
            counts[i, EARLY] += 1
        if calls[i] != 0:
            counts[i, CALLED if winner != 0 else TIED] += 1
            if winner != 0 and calls[i] != winner:
                counts[i, WRONG] += 1
        if i < N_RIGOROUS and fault[0] < 0 and (early or (calls[i] != 0 and calls[i] != winner)):
            fault[0], fault[1], fault[2], fault[3] = t, pair, i, calls[i]
