"""Many patients along orders that are given: standings by three scores, what each choice had to gain, what is certain.

Compiled, and lazy like `afa.engine.allocating`: of each round's gains only those of the feature that was chosen are
brought up to date.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from afa.bundle import Bundle
from afa.engine.ahead import copy_ahead
from afa.engine.allocating import Course, course_of, look
from afa.engine.compile import in_threads, kernel
from afa.engine.contests import new_budgets, number_of, refresh_after
from afa.engine.gains import Gains, copy_gains
from afa.engine.kernels import State, copy_state, elbo, observe
from afa.engine.standings import LINEARITY, WALD, duel_scores, is_certified, standings
from afa.inference.meanfield import Solver
from afa.mrf import Floats

SCORES = ("linearity", "wald", "two_elbo")


class Retraced(NamedTuple):
    """P paths of N entities, rounds t from 0 to r.

    place : (P, 3, r + 1, N) int16 by score, entities ahead of each by more than its name: equal places are ties.
    worth : (P, r) what the t-th choice had to gain when it was made: its gains summed over the duels that were open,
    each counted once, in nats; without a gain its absolute effective unaries summed over entities, in nats too.
    resolved : (P, r + 1) duels that no completion can change. certified : (P, r + 1) whether the top-k, by
    `linearity`, cannot change any more.
    """

    place: NDArray[np.int16]
    worth: Floats
    resolved: NDArray[np.int32]
    certified: NDArray[np.bool_]


def retrace(
    bundle: Bundle,
    values: NDArray[np.int8],
    orders: NDArray[np.int64],
    *,
    gain: str | None = None,
    target: str | None = None,
    k: int = 5,
    solver: Solver | None = None,
    threads: int | None = None,
) -> Retraced:
    """Follow P patients along one order each; the same bytes for any number of threads.

    values : (P, M) in {-1, 0, +1}. orders : (P, r) distinct features. gain, target : as of `TopKPlanner`; no gain
    where None.
    """
    course = course_of(bundle, "greedy", gain, target, rescoring=None, k=k, solver=solver)
    (n_paths, rounds), n = orders.shape, len(bundle.entities)
    retraced = Retraced(
        np.zeros((n_paths, len(SCORES), rounds + 1, n), dtype=np.int16),
        np.zeros((n_paths, rounds)),
        np.zeros((n_paths, rounds + 1), dtype=np.int32),
        np.zeros((n_paths, rounds + 1), dtype=np.bool_),
    )

    def follow(first: int, last: int) -> None:
        _follow(course, values, orders, gain is not None, retraced, first, last)

    in_threads(follow, n_paths, threads)
    return retraced


@kernel()
def _follow(
    course: Course,
    values: NDArray[np.int8],
    orders: NDArray[np.int64],
    has_gain: bool,
    retraced: Retraced,
    first: int,
    last: int,
) -> None:
    packed, contests, pairs = course.packed, course.contests, course.contests.pairs
    n, n_rounds = len(packed.prior), orders.shape[1]
    for path in range(first, last):
        state, gains, ahead = copy_state(course.start), copy_gains(course.gains), copy_ahead(course.ahead)
        budgets = new_budgets(packed, contests, state)
        stale, stale_ahead = np.zeros(len(pairs), dtype=np.bool_), np.zeros(n, dtype=np.bool_)
        lead, resolved = np.empty(len(pairs)), np.zeros(len(pairs), dtype=np.bool_)
        for t in range(n_rounds + 1):
            for p in range(len(pairs)):
                lead[p] = state.constant[pairs[p, 0]] - state.constant[pairs[p, 1]]
                resolved[p] = abs(lead[p]) > budgets.whole[p] + packed.tie
            order = _write_places(course, state, packed.n_features - t, retraced.place[path, :, t])
            retraced.resolved[path, t] = np.sum(resolved)
            retraced.certified[path, t] = is_certified(pairs, order, course.k, lead, resolved)
            if t == n_rounds:
                break
            feature = orders[path, t]
            if has_gain:
                asked = _open_duels(course, feature, resolved)
                look(course, state, ahead, gains, asked.astype(np.float64), stale, stale_ahead)
                retraced.worth[path, t] = _gain_at(gains, feature, asked)
            else:
                for h in range(packed.first_holder[feature], packed.first_holder[feature + 1]):
                    retraced.worth[path, t] += abs(state.field[packed.holder[h]])
            observe(packed, state, feature, values[path, feature], course.iteration)
            refresh_after(packed, contests, state, budgets, feature, stale)
            for h in range(packed.first_holder[feature], packed.first_holder[feature + 1]):
                stale_ahead[packed.owner[packed.holder[h]]] = True


@kernel()
def _write_places(course: Course, state: State, n_hidden: int, place: NDArray[np.int16]) -> NDArray[np.int64]:
    """Places by each score, into (3, N); returns the order of entities by `linearity`, best first."""
    tie, n = course.packed.tie, len(course.name_rank)
    everyone = np.arange(n)
    guiding = standings(duel_scores(state, LINEARITY, tie), everyone, course.name_rank, tie)
    place[0] = guiding.place
    place[1] = standings(duel_scores(state, WALD, tie), everyone, course.name_rank, tie).place
    by_bound = np.zeros((n, n))
    for a in range(n):
        for b in range(a + 1, n):
            score = elbo(state, a, n_hidden) - elbo(state, b, n_hidden)
            if abs(score) > tie:
                by_bound[a, b], by_bound[b, a] = score, -score
    place[2] = standings(by_bound, everyone, course.name_rank, tie).place
    return guiding.order


@kernel()
def _open_duels(course: Course, feature: int, resolved: NDArray[np.bool_]) -> NDArray[np.bool_]:
    """(Q,) duels that are open and have an entity that holds the feature: no other has anything to gain from it."""
    packed, n = course.packed, len(course.name_rank)
    asked = np.zeros(len(resolved), dtype=np.bool_)
    for h in range(packed.first_holder[feature], packed.first_holder[feature + 1]):
        one = packed.owner[packed.holder[h]]
        for other in range(n):
            if other != one:
                asked[number_of(n, one, other)] = True
    return asked & ~resolved


@kernel()
def _gain_at(gains: Gains, feature: int, asked: NDArray[np.bool_]) -> float:
    total = 0.0
    for p in range(len(asked)):
        if asked[p]:
            for i in range(gains.first[p], gains.first[p + 1]):
                if gains.feature[i] == feature:
                    total += gains.gain[i]
    return total
