"""Compare pairwise winners and entity ranks after each observation with the winners and ranks at full observation.

The module also counts correct and wrong early decisions, in which a method in `BRACKETS` selects the winner of an
entity pair before all features are observed.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from afa.engine.compile import INT, in_threads, kernel, laid_out
from afa.engine.duels import BRACKETS, RIGOROUS, all_pairs, vote_call
from afa.engine.follow import blocks, choose, follow
from afa.engine.layout import pack
from afa.engine.run import CALLS, CERTAIN, RANKS, SIGNS, WalkResults
from afa.inference.meanfield import Solver
from afa.model.arrays import Bools, Codes, Ints
from afa.model.bundle import Bundle
from afa.scores.bracket import GAMMA

READOUTS = ("linearity", "wald")
DUEL_GROUPS = ("", "_first", "_prior_wrong")
"""Suffixes of columns for three groups of duels (entity pairs). The suffix "" means all duels with a winner at full
observation, `_first` means the duels that the first entity wins, and `_prior_wrong` means the duels whose predicted
winner before any observation is wrong.
"""


class Outcomes(NamedTuple):
    """Results of P patients at full observation, for N entities and Q duels (entity pairs).

    Attributes
    ----------
    winner : (P, Q) int8, +1 if the first entity wins, -1 if the second entity wins, 0 for a tie
    place : (P, N) int64, number of entities ranked strictly ahead of each entity
    prior : (Q,) int8, sign of the score `linearity` before any observation

    """

    winner: Codes
    place: Ints
    prior: Codes


class RulePaths(NamedTuple):
    """Results of P patients under one allocation rule, after t = 0, ..., r observations.

    The results are given for the two scores `linearity` and `wald` (`READOUTS`).

    Attributes
    ----------
    order : (P, r) int64, features in the chosen order
    fallback : (P, r) bool, True if no candidate had a positive gain
    right : (P, r + 1, 2, 3) float32, number of duels (entity pairs) for which the predicted winner is correct, for each
        score and each group of `DUEL_GROUPS`; a predicted tie counts 1/2
    place : (P, r + 1, 2, N) int16, number of entities that each score ranks strictly ahead of each entity
    resolved : (P, r + 1) int32, number of duels whose winner no further observation can change
    resolved_wrong : (P, r + 1) int32, number of resolved duels whose winner differs from the winner at full observation
    certified : (P, r + 1) bool, True if the top k is final

    """

    order: Ints
    fallback: Bools
    right: NDArray[np.float32]
    place: NDArray[np.int16]
    resolved: NDArray[np.int32]
    resolved_wrong: NDArray[np.int32]
    certified: Bools


def full_observation(bundle: Bundle, values: Codes, *, solver: Solver | None = None) -> Outcomes:
    """Return the winner of each entity pair and the rank of each entity at full observation, for P patients.

    Parameters
    ----------
    values : (P, M) int8, -1, 0 or +1

    """
    m, score = values.shape[1], ("wald",)
    orders = np.tile(np.arange(m), (len(values), 1))
    end = follow(bundle, values, orders, SIGNS | RANKS, rounds=[m], signs=score, ranks=score, solver=solver, threads=1)
    no_patient = np.zeros((1, m), dtype=np.int8)
    prior = follow(
        bundle, no_patient, orders[:1, :0].reshape(1, 0), SIGNS, signs=READOUTS[:1], solver=solver, threads=1
    )
    return Outcomes(end.signs[:, 0, 0], end.place[:, 0, 0].astype(np.int64), prior.signs[0, 0, 0])


def follow_rule(
    bundle: Bundle,
    values: Codes,
    truth: Outcomes,
    *,
    allocation: str,
    gain: str | None = None,
    target: str | None = None,
    rescoring: Sequence[int] | None = None,
    orders: Ints | None = None,
    k: int = 5,
    rounds: int | None = None,
    solver: Solver | None = None,
    threads: int | None = None,
) -> RulePaths:
    """Observe the features of P patients under an allocation rule, and compare each step with full observation.

    The rule uses the score `linearity`.

    Parameters
    ----------
    values : (P, M) int8, -1, 0 or +1
    truth : outcomes of these patients at full observation
    allocation : a name of `COMPILED`
    gain, target : as in `TopKPlanner`; the rules `random` and `largest_unary` ignore them
    rescoring : numbers of observations after which the rule ranks the features again, or None for all. Between two
        rankings, the rule chooses features in the order of the last ranking
    orders : (P, M) int64, order of the features of each patient, for the rule `random`
    rounds : number of observations, or None for M

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
        here = Outcomes(truth.winner[rows], truth.place[rows], truth.prior)
        read_of = found.order, found.fallback, found.signs, found.place, found.resolved, found.certified
        parts.append(compare_rounds(here, *read_of))
    return RulePaths._make(np.concatenate(arrays) for arrays in zip(*parts, strict=True))


def compare_rounds(
    truth: Outcomes,
    order: Ints,
    fallback: Bools,
    signs: Codes,
    place: NDArray[Any],
    resolved: Bools,
    certified: Bools,
) -> RulePaths:
    """Compare the results of P patients after each observation with their results at full observation.

    The arguments after `truth` are fields of `WalkResults`, computed for the scores in `READOUTS`.

    Parameters
    ----------
    order : (P, r) int64, features in the chosen order
    fallback : (P, r) bool, True if no candidate had a positive gain
    signs : (P, r + 1, 2, Q) int8, +1 if a score prefers the first entity, -1 if the second entity, 0 for a tie
    place : (P, r + 1, 2, N) int16, number of entities that each score ranks strictly ahead of each entity
    resolved : (P, r + 1, Q) bool, True if no further observation can change the winner of the duel (entity pair)
    certified : (P, r + 1) bool, True if the top k is final

    """
    right = np.empty((*signs.shape[:3], len(DUEL_GROUPS)), dtype=np.float32)
    resolved_wrong = np.empty(certified.shape, dtype=np.int32)
    for p, winner in enumerate(truth.winner):
        right[p], _ = _count_correct_signs(signs[p], winner, truth.prior)
        resolved_wrong[p] = (resolved[p] & (signs[p, :, 1] != winner)).sum(axis=1)
    return RulePaths(order, fallback, right, place, resolved.sum(axis=2, dtype=np.int32), resolved_wrong, certified)


def right_by_kind(signs: Codes, winners: Codes, prior: Codes) -> dict[str, NDArray[Any]]:
    """Return the number of duels with the correct sign and the number of duels, for each of the `DUEL_GROUPS`.

    A duel is an entity pair. A tie counts as 1/2 of a correct sign. The result maps column names to flat arrays, with
    one entry for each patient, order and number t of observations.

    Parameters
    ----------
    signs : (P, S, T, Q) int8
    winners : (P, Q) int8, 0 for a tie
    prior : (P, S, Q) int8, signs before any observation

    """
    right, duels = (
        np.empty((*signs.shape[:3], len(DUEL_GROUPS))),
        np.empty((*signs.shape[:3], len(DUEL_GROUPS)), dtype=np.int32),
    )
    for at in np.ndindex(*signs.shape[:2]):
        right[at], duels[at] = _count_correct_signs(signs[at], winners[at[0]], prior[at])
    counts = {"right": right, "duels": duels}
    return {f"{name}{kind}": counts[name][..., i].ravel() for i, kind in enumerate(DUEL_GROUPS) for name in counts}


def _count_correct_signs(signs: Codes, winner: Codes, prior: Codes) -> tuple[NDArray[np.float32], NDArray[np.float32]]:
    """Return the number of duels with the correct sign and the number of duels, for each of the `DUEL_GROUPS`.

    Parameters
    ----------
    signs : (..., Q) int8
    winner, prior : (Q,) int8

    """
    wrong = (winner != 0) & (prior == -winner)
    among = np.stack([winner != 0, winner > 0, wrong], axis=1).astype(np.float32)
    duels = among.sum(axis=0)
    return (signs.astype(np.float32) @ (winner[:, None] * among) + duels) / 2, duels


N_BRACKETS, N_RIGOROUS, KL_WRITTEN = len(BRACKETS), len(RIGOROUS), len(BRACKETS) - 1
CALLED, WRONG, TIED, EARLY = range(4)
TO_THE_END, TO_ITS_END = range(2)


class CallPaths(NamedTuple):
    """Counts of early decisions by the five methods in `BRACKETS` on Q duels, for P patients with S orders each.

    Attributes
    ----------
    counts : (P, S, M + 1, 5, 4) int32, four numbers of duels after t observations: decided duels with a winner at full
        observation, wrongly decided duels, decided duels that are tied at full observation, and duels that `l1_paper`
        decides differently from `l1_tight`
    steps : (P, S, L + 1, 5) int32, number of decided duels with a winner, for each number of observed features in the
        union of the two supports. L is the largest number of features in such a union. A duel with fewer features in
        its union keeps its last decision
    open : (P, S, Q, 5, 2) bool, two entries for each duel: True if the duel is undecided at every t < M, and True if
        the duel is undecided while a feature in the union of the two supports is unobserved
    first : (P, S, 4) int64, first wrong decision of a rigorous method as (t, duel, method, decision), or t = -1 if
        there is none. If each duel has its own order of observations, the duels are searched in the order of their
        indices, and the first wrong decision found is written

    """

    counts: NDArray[np.int32]
    steps: NDArray[np.int32]
    open: Bools
    first: Ints


def shared_order_calls(
    bundle: Bundle,
    values: Codes,
    orders: Ints,
    winners: Codes,
    **settings: Any,
) -> CallPaths:
    """Compare all early decisions with the winners at full observation, for P patients with S orders of features each.

    Early decisions on the winner of an entity pair are made by the methods in `BRACKETS`. Each order is used for all
    entity pairs.

    Parameters
    ----------
    values : (P, M) int8, -1, 0 or +1
    orders : (P, S, M) int64, each a permutation of the features
    winners : (P, Q) int8, winner at full observation: +1 for the first entity, -1 for the second entity, 0 for a tie
    settings : solver, threads and budget_share of `afa.engine.follow.follow`

    """
    unions = held_by_either(bundle)
    calls = _empty_call_paths(orders.shape[:2], unions)
    for rows in blocks(len(values), orders.shape[1] * (orders.shape[2] + 1) * len(unions) * N_BRACKETS):
        part = CallPaths._make(array[rows] for array in calls)
        _observe_and_count_decisions(bundle, values[rows], orders[rows], winners[rows], unions, 0, part, **settings)
    return calls


def own_order_calls(
    bundle: Bundle,
    values: Codes,
    orders: Ints,
    winners: Codes,
    **settings: Any,
) -> CallPaths:
    """Compare early decisions with the winners at full observation, if each entity pair has its own order of features.

    Early decisions on the winner of an entity pair are made by the methods in `BRACKETS`.

    Parameters
    ----------
    values : (P, M) int8, -1, 0 or +1
    orders : (Q, M) int64, order of the features for each entity pair, the same for all patients
    winners : (P, Q) int8, winner at full observation: +1 for the first entity, -1 for the second entity, 0 for a tie

    """
    unions, tie = held_by_either(bundle), pack(bundle).tie
    calls = _empty_call_paths((len(values), 1), unions)
    for number, (a, b) in enumerate(all_pairs(len(bundle.entities))):
        order = np.tile(orders[number], (len(values), 1, 1))
        both = bundle.restrict_entities([bundle.entities[a], bundle.entities[b]])
        # use the tolerance of the whole bundle for ties
        _observe_and_count_decisions(both, values, order, winners, unions, number, calls, tie=tie, **settings)
    return calls


def held_by_either(bundle: Bundle) -> Bools:
    """Return for each entity pair whether each feature is in at least one of the two supports.

    Returns
    -------
    unions : (Q, M) bool

    """
    held = np.zeros((len(bundle.entities), len(bundle.features)), dtype=np.bool_)
    for v, entity in enumerate(bundle.entities):
        held[v, bundle.support(entity)] = True
    pairs = all_pairs(len(held))
    union: Bools = held[pairs[:, 0]] | held[pairs[:, 1]]
    return union


def _empty_call_paths(shape: tuple[int, ...], unions: Bools) -> CallPaths:
    n_duels, n_features = unions.shape
    most = int(unions.sum(axis=1).max(initial=0))
    return CallPaths(
        np.zeros((*shape, n_features + 1, N_BRACKETS, 4), dtype=np.int32),
        np.zeros((*shape, most + 1, N_BRACKETS), dtype=np.int32),
        np.ones((*shape, n_duels, N_BRACKETS, 2), dtype=np.bool_),
        np.full((*shape, 4), -1, dtype=np.int64),
    )


def _observe_and_count_decisions(
    bundle: Bundle,
    values: Codes,
    orders: Ints,
    winners: Codes,
    unions: Bools,
    number: int,
    found: CallPaths,
    *,
    threads: int | None = None,
    **settings: Any,
) -> None:
    """Observe the features of all patients, and write the counts of early decisions into `found`.

    The entity pair with the index p in `bundle` has the index `number + p` in `found`.
    """
    read = follow(bundle, values, orders, CALLS, only_changes=True, threads=threads, **settings)
    given = read, laid_out(orders), laid_out(winners), unions, number, found
    in_threads(_count_early_decisions, orders.shape[0] * orders.shape[1], threads, *given)


@kernel(entrance=True)
def _count_early_decisions(
    read: WalkResults,
    orders: Ints,
    winners: Codes,
    unions: Bools,
    number: int,
    found: CallPaths,
    first: int,
    last: int,
) -> None:
    """Write the counts of early decisions into `found`, for the paths with the indices `first` to `last - 1`.

    The entity pair with the index p in `read` has the index `number + p` in `found`.

    If an observed feature is outside all supports, `read` has no row for this observation. Such an observation can
    change only the decisions of the method `kl_written`, because this method also counts observations of features
    outside all supports.
    """
    _, n_orders, n_features = orders.shape
    n_duels, n_rows = read.calls.shape[3], read.t.shape[2]
    for job in range(first, last):
        path, order = job // n_orders, job % n_orders
        counts, steps, first_wrong = found.counts[path, order], found.steps[path, order], found.first[path, order]
        unobserved = np.sum(unions[number : number + n_duels], axis=1)
        seen, row = np.zeros(n_duels, dtype=np.int64), 0
        for t in range(n_features + 1):
            row += 1 if row + 1 < n_rows and read.t[path, order, row + 1] == t else 0
            for p in range(n_duels):
                duel, called = number + p, read.calls[path, order, row, p]
                called[KL_WRITTEN] = vote_call(INT(read.votes[path, order, row, p]), t, GAMMA)
                winner, uncalled = winners[path, duel], found.open[path, order, duel]
                moves = t == 0 or unions[duel, orders[path, order, t - 1]]
                if t > 0 and moves:
                    unobserved[p] -= 1
                    seen[p] += 1
                # if all features of an entity pair are observed, its decision also counts at all later steps
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
                            uncalled[i, TO_THE_END] = False
                            uncalled[i, TO_ITS_END] &= unobserved[p] == 0
                    if i < N_RIGOROUS and first_wrong[0] < 0 and (early or (called[i] != 0 and called[i] != winner)):
                        first_wrong[0], first_wrong[1], first_wrong[2], first_wrong[3] = t, duel, i, called[i]
