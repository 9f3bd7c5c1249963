"""What each round answers, against what is true at full observation: under a rule, and by every bracket."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from afa.engine.compile import INT, in_threads, kernel, laid_out
from afa.engine.course import CALLS, CERTAIN, RANKS, SIGNS, Followed
from afa.engine.duels import BRACKETS, RIGOROUS, all_pairs, vote_call
from afa.engine.follow import blocks, choose, follow
from afa.engine.layout import Indices, pack
from afa.inference.meanfield import Solver
from afa.model.bundle import Bundle
from afa.scores.bracket import GAMMA

Signs = NDArray[np.int8]
Mask = NDArray[np.bool_]
READOUTS = ("linearity", "wald")
KINDS = ("", "_first", "_prior_wrong")
"""Duels with a winner; those that the first entity wins; those that are called wrong before any observation."""


class Truth(NamedTuple):
    """P patients at full observation, N entities, Q duels.

    winner : (P, Q) int8, +1 where the first entity is ahead, 0 a tie. place : (P, N) entities ahead of each by more
    than its name. prior : (Q,) int8, the call of `linearity` before any observation.
    """

    winner: Signs
    place: Indices
    prior: Signs


class RulePaths(NamedTuple):
    """P patients under one rule, rounds t from 0 to r; the second last axis of `right` and `place` is the readout.

    order : (P, r) features in the order chosen. fallback : (P, r) whether no candidate had any gain left.
    right : (P, r + 1, 2, 3) float32, duels called right, a tie one half, of each of `KINDS`, `linearity` calling first.
    place : (P, r + 1, 2, N) int16, entities ahead of each by more than its name.
    resolved, resolved_wrong : (P, r + 1) int32, duels that no completion can change, and those of them that full
    observation does not bear out. certified : (P, r + 1) whether the top-k cannot change any more.
    """

    order: Indices
    fallback: Mask
    right: NDArray[np.float32]
    place: NDArray[np.int16]
    resolved: NDArray[np.int32]
    resolved_wrong: NDArray[np.int32]
    certified: Mask


def full_observation(bundle: Bundle, values: Signs, *, solver: Solver | None = None) -> Truth:
    """What is true of P patients, values (P, M), once everything is measured."""
    m, score = values.shape[1], ("wald",)
    orders = np.tile(np.arange(m), (len(values), 1))
    end = follow(bundle, values, orders, SIGNS | RANKS, rounds=[m], signs=score, ranks=score, solver=solver, threads=1)
    nobody = np.zeros((1, m), dtype=np.int8)
    prior = follow(bundle, nobody, orders[:1, :0].reshape(1, 0), SIGNS, signs=READOUTS[:1], solver=solver, threads=1)
    return Truth(end.signs[:, 0, 0], end.place[:, 0, 0].astype(np.int64), prior.signs[0, 0, 0])


def follow_rule(
    bundle: Bundle,
    values: Signs,
    truth: Truth,
    *,
    allocation: str,
    gain: str | None = None,
    target: str | None = None,
    rescoring: Sequence[int] | None = None,
    orders: Indices | None = None,
    k: int = 5,
    rounds: int | None = None,
    solver: Solver | None = None,
    threads: int | None = None,
) -> RulePaths:
    """Follow P patients under a rule, guided by `linearity`; the same bytes for any number of threads.

    values : (P, M) in {-1, 0, +1}. truth : of these patients. allocation : a name of `COMPILED`. gain, target : as of
    `TopKPlanner`; not used by `random` and `largest_unary`. rescoring : numbers of observations after which candidates
    are ranked again, to be used up in that order; after every one where None. orders : (P, M), the order of each
    patient under `random`. rounds : M unless given.
    """
    rounds, read = values.shape[1] if rounds is None else rounds, SIGNS | RANKS | CERTAIN
    n_duels = len(bundle.entities) * (len(bundle.entities) - 1) // 2
    settings: dict[str, Any] = {"signs": READOUTS, "ranks": READOUTS, "k": k, "solver": solver, "threads": threads}
    parts = []
    for rows in blocks(max(1, len(values)), 3 * (rounds + 1) * n_duels):
        if orders is not None and allocation == "random":
            found = follow(bundle, values[rows], orders[rows, :rounds], read, **settings)
        else:
            rule: dict[str, Any] = {"allocation": allocation, "gain": gain, "target": target, "rescoring": rescoring}
            found = choose(bundle, values[rows], read, n_rounds=rounds, **rule, **settings)
        here = Truth(truth.winner[rows], truth.place[rows], truth.prior)
        read_of = found.order, found.fallback, found.signs, found.place, found.resolved, found.certified
        parts.append(judged(here, *read_of))
    return RulePaths._make(np.concatenate(arrays) for arrays in zip(*parts, strict=True))


def judged(
    truth: Truth, order: Indices, fallback: Mask, signs: Signs, place: NDArray[Any], resolved: Mask, certified: Mask
) -> RulePaths:
    """The rounds of P patients against what is true of them, in the fields of `Followed`, by `READOUTS`."""
    right = np.empty((*signs.shape[:3], len(KINDS)), dtype=np.float32)
    resolved_wrong = np.empty(certified.shape, dtype=np.int32)
    for p, winner in enumerate(truth.winner):
        right[p], _ = _right(signs[p], winner, truth.prior)
        resolved_wrong[p] = (resolved[p] & (signs[p, :, 1] != winner)).sum(axis=1)
    return RulePaths(order, fallback, right, place, resolved.sum(axis=2, dtype=np.int32), resolved_wrong, certified)


def right_by_kind(signs: Signs, winners: Signs, prior: Signs) -> dict[str, NDArray[Any]]:
    """Duels called right, a tie counting one half, and duels in all, of each of `KINDS`, by (patient, order, t).

    signs : (P, S, T, Q). winners : (P, Q), 0 where there is none. prior : (P, S, Q), the calls before any observation.
    """
    right, duels = np.empty((*signs.shape[:3], len(KINDS))), np.empty((*signs.shape[:3], len(KINDS)), dtype=np.int32)
    for at in np.ndindex(*signs.shape[:2]):
        right[at], duels[at] = _right(signs[at], winners[at[0]], prior[at])
    counts = {"right": right, "duels": duels}
    return {f"{name}{kind}": counts[name][..., i].ravel() for i, kind in enumerate(KINDS) for name in counts}


def _right(signs: Signs, winner: Signs, prior: Signs) -> tuple[NDArray[np.float32], NDArray[np.float32]]:
    """(..., 3) duels called right and (3,) duels in all, of each of `KINDS`, exact; signs (..., Q), the others (Q,)."""
    wrong = (winner != 0) & (prior == -winner)
    among = np.stack([winner != 0, winner > 0, wrong], axis=1).astype(np.float32)
    duels = among.sum(axis=0)
    return (signs.astype(np.float32) @ (winner[:, None] * among) + duels) / 2, duels


N_BRACKETS, N_RIGOROUS, KL_WRITTEN = len(BRACKETS), len(RIGOROUS), len(BRACKETS) - 1
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
    open: Mask
    first: Indices


def shared_order_calls(
    bundle: Bundle,
    values: Signs,
    orders: Indices,
    winners: Signs,
    **settings: Any,
) -> CallPaths:
    """Follow P patients through S orders each, all duels along the same; the same for any number of threads.

    values : (P, M) in {-1, 0, +1}. orders : (P, S, M), each a permutation of the features. winners : (P, Q), +1 where
    the first entity of a pair is ahead at full observation, 0 a tie. settings : solver, threads and budget_share of
    `afa.engine.follow.follow`.
    """
    unions = held_by_either(bundle)
    calls = _no_calls(orders.shape[:2], unions)
    for rows in blocks(len(values), orders.shape[1] * (orders.shape[2] + 1) * len(unions) * N_BRACKETS):
        part = CallPaths._make(array[rows] for array in calls)
        _judge_all(bundle, values[rows], orders[rows], winners[rows], unions, 0, part, **settings)
    return calls


def own_order_calls(
    bundle: Bundle,
    values: Signs,
    orders: Indices,
    winners: Signs,
    **settings: Any,
) -> CallPaths:
    """As `shared_order_calls`, S being 1, every duel along an order of its own: orders (Q, M), for all patients."""
    unions, tie = held_by_either(bundle), pack(bundle).tie
    calls = _no_calls((len(values), 1), unions)
    for number, (a, b) in enumerate(all_pairs(len(bundle.entities))):
        order = np.tile(orders[number], (len(values), 1, 1))
        both = bundle.restrict_entities([bundle.entities[a], bundle.entities[b]])
        # a score that is rounding among all entities is rounding here too
        _judge_all(both, values, order, winners, unions, number, calls, tie=tie, **settings)
    return calls


def held_by_either(bundle: Bundle) -> Mask:
    """(Q, M) the features of the two supports of each duel."""
    held = np.zeros((len(bundle.entities), len(bundle.features)), dtype=np.bool_)
    for v, entity in enumerate(bundle.entities):
        held[v, bundle.support(entity)] = True
    pairs = all_pairs(len(held))
    union: Mask = held[pairs[:, 0]] | held[pairs[:, 1]]
    return union


def _no_calls(shape: tuple[int, ...], unions: Mask) -> CallPaths:
    n_duels, n_features = unions.shape
    most = int(unions.sum(axis=1).max(initial=0))
    return CallPaths(
        np.zeros((*shape, n_features + 1, N_BRACKETS, 4), dtype=np.int32),
        np.zeros((*shape, most + 1, N_BRACKETS), dtype=np.int32),
        np.ones((*shape, n_duels, N_BRACKETS, 2), dtype=np.bool_),
        np.full((*shape, 4), -1, dtype=np.int64),
    )


def _judge_all(
    bundle: Bundle,
    values: Signs,
    orders: Indices,
    winners: Signs,
    unions: Mask,
    number: int,
    found: CallPaths,
    *,
    threads: int | None = None,
    **settings: Any,
) -> None:
    """Follow the patients of a bundle, all of whose duels are those from `number` on, and judge their calls."""
    read = follow(bundle, values, orders, CALLS, only_changes=True, threads=threads, **settings)
    given = read, laid_out(orders), laid_out(winners), unions, number, found
    in_threads(_judge, orders.shape[0] * orders.shape[1], threads, *given)


@kernel(entrance=True)
def _judge(
    read: Followed, orders: Indices, winners: Signs, unions: Mask, number: int, found: CallPaths, first: int, last: int
) -> None:
    """Judge the paths first to last - 1, what is `read` of them by (P, S, T) and the duels from `number` on.

    Between the rounds that are read the calls stay, but for `kl_written`, which counts the others as votes too.
    """
    _, n_orders, n_features = orders.shape
    n_duels, n_rows = read.calls.shape[3], read.t.shape[2]
    for job in range(first, last):
        path, order = job // n_orders, job % n_orders
        counts, steps, fault = found.counts[path, order], found.steps[path, order], found.first[path, order]
        unobserved = np.sum(unions[number : number + n_duels], axis=1)
        seen, row = np.zeros(n_duels, dtype=np.int64), 0
        for t in range(n_features + 1):
            row += 1 if row + 1 < n_rows and read.t[path, order, row + 1] == t else 0
            for p in range(n_duels):
                duel, called = number + p, read.calls[path, order, row, p]
                called[KL_WRITTEN] = vote_call(INT(read.votes[path, order, row, p]), t, GAMMA)
                winner, still_open = winners[path, duel], found.open[path, order, duel]
                moves = t == 0 or unions[duel, orders[path, order, t - 1]]
                if t > 0 and moves:
                    unobserved[p] -= 1
                    seen[p] += 1
                # a step counts for all later ones, too, where nothing of the duel is left to observe
                stop = seen[p] + 1 if unobserved[p] > 0 else len(steps)
                for i in range(N_BRACKETS):
                    early = i == 1 and called[1] != 0 and called[0] != called[1]
                    counts[t, i, EARLY] += early
                    if called[i] != 0:
                        counts[t, i, CALLED if winner != 0 else TIED] += 1
                        counts[t, i, WRONG] += winner != 0 and called[i] != winner
                        if moves and winner != 0:
                            steps[seen[p] : stop, i] += 1
                        if t < n_features:
                            still_open[i, TO_THE_END] = False
                            still_open[i, TO_ITS_END] &= unobserved[p] == 0
                    if i < N_RIGOROUS and fault[0] < 0 and (early or (called[i] != 0 and called[i] != winner)):
                        fault[0], fault[1], fault[2], fault[3] = t, duel, i, called[i]
