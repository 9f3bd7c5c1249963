"""Many patients along orders that are given: what `TopKPlanner` holds its stopping rules against at every round.

Compiled, and lazy like `afa.engine.retrace`: gains and variances are brought up to date only of duels that are open
and have changed.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from afa.bundle import Bundle
from afa.engine.ahead import gaussian_sign
from afa.engine.allocating import Course, course_of, look, weighted_worth
from afa.engine.compile import in_threads, kernel
from afa.engine.contests import new_budgets, refresh_after
from afa.engine.duels import duel
from afa.engine.gains import copy_gains
from afa.engine.kernels import State, copy_state, observe
from afa.engine.standings import LINEARITY, duel_scores, is_certified, standings
from afa.inference.meanfield import Solver
from afa.mrf import Floats


class Watched(NamedTuple):
    """P paths of N entities, rounds t from 0 to r; all by `linearity`, gains by `cmi`.

    inside : (P, r + 1, N) whether an entity is in the present top k. certain : (P, r + 1) whether that set cannot
    change any more (`TopKPlanner.certified`).
    probability : (P, r + 1) in [0, 1], `TopKPlanner.boundary_probability`.
    gain : (P, r + 1) nats, the largest gain of an unobserved feature, summed over the open duels.
    """

    inside: NDArray[np.bool_]
    certain: NDArray[np.bool_]
    probability: Floats
    gain: Floats


def watch(
    bundle: Bundle,
    values: NDArray[np.int8],
    orders: NDArray[np.int64],
    *,
    k: int = 5,
    solver: Solver | None = None,
    threads: int | None = None,
) -> Watched:
    """Follow P patients along one order each; the same bytes for any number of threads.

    values : (P, M) in {-1, 0, +1}. orders : (P, r) distinct features.
    """
    course = course_of(bundle, "greedy", "cmi", None, rescoring=None, k=k, solver=solver)
    (n_paths, rounds), n = orders.shape, len(bundle.entities)
    watched = Watched(
        np.zeros((n_paths, rounds + 1, n), dtype=np.bool_),
        np.zeros((n_paths, rounds + 1), dtype=np.bool_),
        np.zeros((n_paths, rounds + 1)),
        np.zeros((n_paths, rounds + 1)),
    )

    def follow(first: int, last: int) -> None:
        _follow(course, values, orders, watched, first, last)

    in_threads(follow, n_paths, threads)
    return watched


@kernel()
def _follow(
    course: Course,
    values: NDArray[np.int8],
    orders: NDArray[np.int64],
    watched: Watched,
    first: int,
    last: int,
) -> None:
    packed, contests, pairs = course.packed, course.contests, course.contests.pairs
    n_rounds, everyone = orders.shape[1], np.arange(len(packed.prior))
    for path in range(first, last):
        state, gains = copy_state(course.start), copy_gains(course.gains)
        budgets = new_budgets(packed, contests, state)
        stale, no_look_ahead = np.zeros(len(pairs), dtype=np.bool_), np.zeros(0, dtype=np.bool_)
        stale_variance, variance = np.ones(len(pairs), dtype=np.bool_), np.zeros(len(pairs))
        lead, resolved = np.empty(len(pairs)), np.zeros(len(pairs), dtype=np.bool_)
        for t in range(n_rounds + 1):
            for p in range(len(pairs)):
                lead[p] = state.constant[pairs[p, 0]] - state.constant[pairs[p, 1]]
                resolved[p] = abs(lead[p]) > budgets.whole[p] + packed.tie
            scores = duel_scores(state, LINEARITY, packed.tie)
            order = standings(scores, everyone, course.name_rank, packed.tie).order
            inside = watched.inside[path, t]
            inside[order[: course.k]] = True
            watched.certain[path, t] = is_certified(pairs, order, course.k, lead, resolved)
            watched.probability[path, t] = _least_likely(
                course, state, scores, inside, resolved, variance, stale_variance
            )
            weights = (~resolved).astype(np.float64)
            look(course, state, course.ahead, gains, weights, stale, no_look_ahead)
            worth = weighted_worth(gains, weights, packed.n_features)
            watched.gain[path, t] = np.max(np.where(state.observed, 0.0, worth))
            if t == n_rounds:
                break
            feature = orders[path, t]
            observe(packed, state, feature, values[path, feature], course.iteration)
            refresh_after(packed, contests, state, budgets, feature, stale)
            # what `look` has left stale is resolved, and so for good
            stale_variance |= stale


@kernel()
def _least_likely(
    course: Course,
    state: State,
    scores: Floats,
    inside: NDArray[np.bool_],
    resolved: NDArray[np.bool_],
    variance: Floats,
    stale: NDArray[np.bool_],
) -> float:
    """The least probability that the present side of the top-k boundary wins, over the open duels across it (eq:fsp).

    variance, stale : (Q,) kept from round to round.
    """
    pairs, least = course.contests.pairs, 1.0
    for p in range(len(pairs)):
        a, b = pairs[p, 0], pairs[p, 1]
        if resolved[p] or inside[a] == inside[b]:
            continue
        if stale[p]:
            variance[p] = duel(course.packed, state, a, b).variance
            stale[p] = False
        expected = gaussian_sign(scores[a, b], variance[p])
        least = min(least, 0.5 * (1.0 + (expected if inside[a] else -expected)))
    return least
