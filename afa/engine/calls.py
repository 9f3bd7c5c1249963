"""Many patients at once: when each bracket calls each duel, judged against full observation.

Orders are shared by all duels, or each duel has its own.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from afa.bundle import Bundle
from afa.engine.brackets import BRACKETS, RIGOROUS
from afa.engine.compile import in_threads, kernel, laid_out
from afa.engine.course import CALLS
from afa.engine.duels import all_pairs
from afa.engine.follow import blocks, follow
from afa.engine.layout import pack
from afa.inference.meanfield import Solver

N_BRACKETS, N_RIGOROUS = len(BRACKETS), len(RIGOROUS)
CALLED, WRONG, TIED, EARLY = range(4)
TO_THE_END, TO_ITS_END = range(2)


class CallPaths(NamedTuple):
    """Calls of the brackets of P patients in S orders each; M features, Q duels, brackets as `BRACKETS`.

    counts : (P, S, M + 1, 5, 4) int32, after t observations: duels called among those with a winner; of these called
    wrongly; duels called that are tied at the end; duels that `l1_paper` calls and `l1_tight` does not.
    steps : (P, S, L + 1, 5) int32, duels called among those with a winner after so many features of the two supports
    of the duel, L the most that any duel has; a duel with fewer stays at its last.
    open : (P, S, Q, 5, 2) bool, duels not called at any t < M; duels not called at any t at which a feature of their
    two supports was unobserved.
    first : (P, S, 4) int64, the first call that a rigorous bracket may not make, as t, duel, bracket, call; t is -1
    where there is none. With orders of each duel's own it is that of the first such duel.
    """

    counts: NDArray[np.int32]
    steps: NDArray[np.int32]
    open: NDArray[np.bool_]
    first: NDArray[np.int64]


def shared_order_calls(
    bundle: Bundle,
    values: NDArray[np.int8],
    orders: NDArray[np.int64],
    winners: NDArray[np.int8],
    *,
    solver: Solver | None = None,
    threads: int | None = None,
    budget_share: float = 1.0,
) -> CallPaths:
    """Follow P patients through S orders each, all duels along the same; the same for any number of threads.

    values : (P, M) in {-1, 0, +1}. orders : (P, S, M), each a permutation of the features. winners : (P, Q), +1 where
    the first entity of a pair is ahead at full observation, 0 a tie. budget_share : the part of the `l1` budgets that
    is counted; below 1 the rigorous brackets are broken on purpose.
    """
    unions = held_by_either(bundle)
    calls = _no_calls(orders.shape[:2], unions)
    for rows in blocks(len(values), orders.shape[1] * (orders.shape[2] + 1) * len(unions) * N_BRACKETS):
        found = follow(
            bundle, values[rows], orders[rows], CALLS, solver=solver, budget_share=budget_share, threads=threads
        )
        part = CallPaths._make(array[rows] for array in calls)
        _judge_all(found.calls, orders[rows], winners[rows], unions, 0, part, threads)
    return calls


def own_order_calls(
    bundle: Bundle,
    values: NDArray[np.int8],
    orders: NDArray[np.int64],
    winners: NDArray[np.int8],
    *,
    solver: Solver | None = None,
    threads: int | None = None,
    budget_share: float = 1.0,
) -> CallPaths:
    """As `shared_order_calls`, S being 1, every duel along an order of its own: orders (Q, M), for all patients."""
    unions, tie = held_by_either(bundle), pack(bundle).tie
    calls = _no_calls((len(values), 1), unions)
    for number, (a, b) in enumerate(all_pairs(len(bundle.entities))):
        order = np.tile(orders[number], (len(values), 1, 1))
        # a score that is rounding among all entities is rounding here too
        found = follow(
            bundle.restrict_entities([bundle.entities[a], bundle.entities[b]]),
            values,
            order,
            CALLS,
            solver=solver,
            budget_share=budget_share,
            tie=tie,
            threads=threads,
        )
        _judge_all(found.calls, order, winners, unions, number, calls, threads)
    return calls


def held_by_either(bundle: Bundle) -> NDArray[np.bool_]:
    """(Q, M) the features of the two supports of each duel."""
    held = np.zeros((len(bundle.entities), len(bundle.features)), dtype=np.bool_)
    for v, entity in enumerate(bundle.entities):
        held[v, bundle.support(entity)] = True
    pairs = all_pairs(len(held))
    union: NDArray[np.bool_] = held[pairs[:, 0]] | held[pairs[:, 1]]
    return union


def _no_calls(shape: tuple[int, ...], unions: NDArray[np.bool_]) -> CallPaths:
    n_duels, n_features = unions.shape
    most = int(unions.sum(axis=1).max(initial=0))
    return CallPaths(
        np.zeros((*shape, n_features + 1, N_BRACKETS, 4), dtype=np.int32),
        np.zeros((*shape, most + 1, N_BRACKETS), dtype=np.int32),
        np.ones((*shape, n_duels, N_BRACKETS, 2), dtype=np.bool_),
        np.full((*shape, 4), -1, dtype=np.int64),
    )


def _judge_all(
    calls: NDArray[np.int8],
    orders: NDArray[np.int64],
    winners: NDArray[np.int8],
    unions: NDArray[np.bool_],
    number: int,
    found: CallPaths,
    threads: int | None,
) -> None:
    orders, winners = laid_out(orders), laid_out(winners)
    in_threads(
        lambda first, last: _judge(calls, orders, winners, unions, number, found, first, last),
        orders.shape[0] * orders.shape[1],
        threads,
    )


@kernel()
def _judge(
    calls: NDArray[np.int8],
    orders: NDArray[np.int64],
    winners: NDArray[np.int8],
    unions: NDArray[np.bool_],
    number: int,
    found: CallPaths,
    first: int,
    last: int,
) -> None:
    """Judge the paths first to last - 1; calls (P, S, M + 1, q, 5) of the duels from `number` on."""
    _, n_orders, n_features = orders.shape
    n_duels = calls.shape[3]
    for job in range(first, last):
        path, order = job // n_orders, job % n_orders
        unobserved = np.sum(unions[number : number + n_duels], axis=1)
        seen = np.zeros(n_duels, dtype=np.int64)
        for t in range(n_features + 1):
            counts, fault = found.counts[path, order, t], found.first[path, order]
            for p in range(n_duels):
                duel, called = number + p, calls[path, order, t, p]
                winner = winners[path, duel]
                moves = t == 0 or unions[duel, orders[path, order, t - 1]]
                if t > 0 and moves:
                    unobserved[p] -= 1
                    seen[p] += 1
                if moves and winner != 0:
                    _at_step(called, seen[p], unobserved[p], found.steps[path, order])
                _count(called, winner, t, duel, counts, fault)
                if t < n_features:
                    _leave_open(called, unobserved[p] > 0, found.open[path, order, duel])


@kernel()
def _at_step(calls: NDArray[np.int8], step: int, unobserved: int, steps: NDArray[np.int32]) -> None:
    """Count the calls of a duel at one step, and at all later ones where nothing of it is left to observe."""
    last = step if unobserved > 0 else len(steps) - 1
    for i in range(N_BRACKETS):
        if calls[i] != 0:
            for s in range(step, last + 1):
                steps[s, i] += 1


@kernel()
def _count(
    calls: NDArray[np.int8], winner: int, t: int, duel: int, counts: NDArray[np.int32], fault: NDArray[np.int64]
) -> None:
    """Count the calls of one duel at one round, and keep the first that a rigorous bracket may not make."""
    for i in range(N_BRACKETS):
        early = i == 1 and calls[1] != 0 and calls[0] != calls[1]
        if early:
            counts[i, EARLY] += 1
        if calls[i] != 0:
            counts[i, CALLED if winner != 0 else TIED] += 1
            if winner != 0 and calls[i] != winner:
                counts[i, WRONG] += 1
        if i < N_RIGOROUS and fault[0] < 0 and (early or (calls[i] != 0 and calls[i] != winner)):
            fault[0], fault[1], fault[2], fault[3] = t, duel, i, calls[i]


@kernel()
def _leave_open(calls: NDArray[np.int8], more_to_come: bool, still_open: NDArray[np.bool_]) -> None:
    """Take a call of one duel before full observation into account."""
    for i in range(N_BRACKETS):
        if calls[i] != 0:
            still_open[i, TO_THE_END] = False
            if more_to_come:
                still_open[i, TO_ITS_END] = False
