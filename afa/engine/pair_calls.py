"""Many patients at once: when each bracket calls each duel, orders being shared by all duels or each duel's own."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from afa.bracket import GAMMA
from afa.bundle import Bundle
from afa.engine.brackets import BRACKETS, RIGOROUS, vote_call
from afa.engine.compile import in_threads, kernel
from afa.engine.duels import Pairs, vote
from afa.engine.kernels import Iteration, new_state, observe, solve_all
from afa.engine.packed import Packed, pack
from afa.engine.soundness import read_brackets
from afa.engine.trajectories import all_pairs
from afa.inference.meanfield import Solver

N_BRACKETS, N_RIGOROUS = len(BRACKETS), len(RIGOROUS)
CALLED, WRONG, TIED = range(3)
TO_THE_END, TO_ITS_END = range(2)


class PairCalls(NamedTuple):
    """Calls of the brackets of P patients in S orders each; M features, Q duels, brackets as `BRACKETS`.

    counts : (P, S, M + 1, 5, 3) int32, after t observations: duels called among those with a winner; of these called
    wrongly; duels called that are tied at the end.
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


class Rule(NamedTuple):
    """How states are solved and brackets read: `afa.engine.soundness.call_paths` says what the numbers are."""

    iteration: Iteration
    gamma: float
    budget_share: float


def shared_order_calls(
    bundle: Bundle,
    values: NDArray[np.int8],
    orders: NDArray[np.int64],
    winners: NDArray[np.int8],
    *,
    solver: Solver,
    threads: int | None = None,
    budget_share: float = 1.0,
) -> PairCalls:
    """Follow P patients through S orders each, all duels along the same; the same for any number of threads.

    values : (P, M) in {-1, 0, +1}. orders : (P, S, M), each a permutation of the features. winners : (P, Q), +1 where
    the first entity of a pair is ahead at full observation, 0 a tie. budget_share : the part of the `l1` budgets that
    is counted; below 1 the rigorous brackets are broken on purpose.
    """
    pairs, sizes = all_pairs(len(bundle.entities)), own_features(bundle)
    calls = _no_calls(orders.shape[:2], bundle, sizes)
    rule, packed = _rule(solver, budget_share), pack(bundle)

    def follow(first: int, last: int) -> None:
        _follow(packed, values, orders, pairs, 0, sizes, winners, rule, calls, first, last)

    in_threads(follow, orders.shape[0] * orders.shape[1], threads)
    return calls


def own_order_calls(
    bundle: Bundle,
    values: NDArray[np.int8],
    orders: NDArray[np.int64],
    winners: NDArray[np.int8],
    *,
    solver: Solver,
    threads: int | None = None,
    budget_share: float = 1.0,
) -> PairCalls:
    """As `shared_order_calls`, S being 1, every duel along an order of its own: orders (Q, M), for all patients."""
    sizes = own_features(bundle)
    calls = _no_calls((len(values), 1), bundle, sizes)
    rule, tie = _rule(solver, budget_share), pack(bundle).tie
    alone = all_pairs(2)
    for number, (a, b) in enumerate(all_pairs(len(bundle.entities))):
        # a score that is rounding among all entities is rounding here too
        packed = pack(bundle.restrict_entities([bundle.entities[a], bundle.entities[b]]))._replace(tie=tie)
        order = np.tile(orders[number], (len(values), 1, 1))

        def follow(
            first: int, last: int, packed: Packed = packed, order: NDArray[np.int64] = order, number: int = number
        ) -> None:
            _follow(packed, values, order, alone, number, sizes, winners, rule, calls, first, last)

        in_threads(follow, len(values), threads)
    return calls


def own_features(bundle: Bundle) -> NDArray[np.int64]:
    """(Q,) how many features the two supports of each duel have together."""
    held = np.zeros((len(bundle.entities), len(bundle.features)), dtype=np.bool_)
    for v, entity in enumerate(bundle.entities):
        held[v, bundle.support(entity)] = True
    sizes = [int((held[a] | held[b]).sum()) for a, b in all_pairs(len(bundle.entities))]
    return np.array(sizes, dtype=np.int64)


def _no_calls(shape: tuple[int, ...], bundle: Bundle, sizes: NDArray[np.int64]) -> PairCalls:
    most = int(sizes.max(initial=0))
    return PairCalls(
        np.zeros((*shape, len(bundle.features) + 1, N_BRACKETS, 3), dtype=np.int32),
        np.zeros((*shape, most + 1, N_BRACKETS), dtype=np.int32),
        np.ones((*shape, len(sizes), N_BRACKETS, 2), dtype=np.bool_),
        np.full((*shape, 4), -1, dtype=np.int64),
    )


def _rule(solver: Solver, budget_share: float) -> Rule:
    iteration = Iteration(solver.damping, solver.tolerance, solver.max_iterations, False)
    return Rule(iteration, GAMMA, budget_share)


@kernel()
def _follow(
    packed: Packed,
    values: NDArray[np.int8],
    orders: NDArray[np.int64],
    pairs: Pairs,
    number: int,
    sizes: NDArray[np.int64],
    winners: NDArray[np.int8],
    rule: Rule,
    found: PairCalls,
    first: int,
    last: int,
) -> None:
    """Follow the trajectories numbered first to last - 1; pair p of `pairs` is the duel `number + p` of the tables."""
    _, n_orders, n_features = orders.shape
    for job in range(first, last):
        patient, order = job // n_orders, job % n_orders
        state = new_state(packed)
        solve_all(packed, state, rule.iteration)
        votes = np.zeros((len(pairs), 2), dtype=np.int64)
        calls = np.zeros((len(pairs), N_BRACKETS), dtype=np.int8)
        changed = np.ones(len(packed.prior), dtype=np.bool_)
        unobserved = sizes[number : number + len(pairs)].copy()
        for t in range(n_features + 1):
            if t > 0:
                feature = orders[patient, order, t - 1]
                changed[:] = False
                if packed.first_holder[feature] < packed.first_holder[feature + 1]:
                    vote(packed, state, pairs, votes, feature, values[patient, feature])
                    observe(packed, state, feature, values[patient, feature], rule.iteration)
                for h in range(packed.first_holder[feature], packed.first_holder[feature + 1]):
                    changed[packed.owner[packed.holder[h]]] = True
            for p in range(len(pairs)):
                place = number + p
                winner = winners[patient, place]
                if changed[pairs[p, 0]] or changed[pairs[p, 1]]:
                    read_brackets(packed, state, pairs[p], votes[p], t, rule.gamma, rule.budget_share, calls[p])
                    unobserved[p] -= 1 if t > 0 else 0
                    if winner != 0:
                        _at_step(calls[p], sizes[place] - unobserved[p], unobserved[p], found.steps[patient, order])
                else:
                    calls[p, 4] = vote_call(votes[p, 0], t, rule.gamma)
                _judge(calls[p], winner, t, place, found.counts[patient, order, t], found.first[patient, order])
                if t < n_features:
                    _leave_open(calls[p], unobserved[p] > 0, found.open[patient, order, place])


@kernel()
def _at_step(calls: NDArray[np.int8], step: int, unobserved: int, steps: NDArray[np.int32]) -> None:
    """Count the calls of a duel at one step, and at all later ones where nothing of it is left to observe."""
    last = step if unobserved > 0 else len(steps) - 1
    for i in range(N_BRACKETS):
        if calls[i] != 0:
            for s in range(step, last + 1):
                steps[s, i] += 1


@kernel()
def _judge(
    calls: NDArray[np.int8], winner: int, t: int, place: int, counts: NDArray[np.int32], fault: NDArray[np.int64]
) -> None:
    """Count the calls of one duel at one round, and keep the first that a rigorous bracket may not make."""
    for i in range(N_BRACKETS):
        if calls[i] == 0:
            continue
        counts[i, CALLED if winner != 0 else TIED] += 1
        if winner != 0 and calls[i] != winner:
            counts[i, WRONG] += 1
        if i < N_RIGOROUS and fault[0] < 0 and calls[i] != winner:
            fault[0], fault[1], fault[2], fault[3] = t, place, i, calls[i]


@kernel()
def _leave_open(calls: NDArray[np.int8], more_to_come: bool, still_open: NDArray[np.bool_]) -> None:
    """Take a call of one duel before full observation into account."""
    for i in range(N_BRACKETS):
        if calls[i] != 0:
            still_open[i, TO_THE_END] = False
            if more_to_come:
                still_open[i, TO_ITS_END] = False
