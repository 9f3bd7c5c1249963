"""One entity as a binary task, many patients: what `BinaryPlanner` holds its stopping rules against at every round.

Nothing changes while features outside the entity's support are observed, so that only rounds that observe one of the
support are solved.
"""

from __future__ import annotations

import math
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from afa.engine.ahead import Ahead, new_ahead
from afa.engine.compile import in_threads, kernel
from afa.engine.duels import duel
from afa.engine.gains import CMI, Gains, add_up, new_gains, refresh_gains
from afa.engine.kernels import State, elbo, new_state, observe, solve_all
from afa.engine.rules import NONE, best_feature, fallback_feature
from afa.engine.tasks import Task, support_mask
from afa.mrf import Floats


class WatchedTask(NamedTuple):
    """P paths of one task, rounds t from 0 to M; scores by `two_elbo`, gains by `cmi`.

    decision : (P, M + 1) int8, the sign of the raw score (`BinaryPlanner.decision`). certain : (P, M + 1) whether no
    completion can change the sign of S. probability : (P, M + 1) in [1/2, 1], `BinaryPlanner.confidence`.
    gain : (P, M + 1) nats, the largest gain of an unobserved feature, 0 once it is certain.
    """

    decision: NDArray[np.int8]
    certain: NDArray[np.bool_]
    probability: Floats
    gain: Floats


def watch_task(
    task: Task, values: NDArray[np.int8], orders: NDArray[np.int64] | None, *, threads: int | None = None
) -> WatchedTask:
    """Follow P patients along one order each, or as `greedy` chooses by `cmi`; the same bytes for any threads.

    values : (P, M) in {-1, 0, +1}. orders : (P, M), each a permutation of the features; None for `greedy`.
    """
    n_paths, n_features = values.shape
    shape = n_paths, n_features + 1
    watched = WatchedTask(
        np.zeros(shape, dtype=np.int8), np.zeros(shape, dtype=np.bool_), np.zeros(shape), np.zeros(shape)
    )
    given = np.zeros((0, n_features), dtype=np.int64) if orders is None else orders

    def follow(first: int, last: int) -> None:
        _follow(task, values, given, watched, first, last)

    in_threads(follow, n_paths, threads)
    return watched


@kernel()
def _follow(
    task: Task,
    values: NDArray[np.int8],
    orders: NDArray[np.int64],
    watched: WatchedTask,
    first: int,
    last: int,
) -> None:
    packed, in_support = task.packed, support_mask(task.packed)
    gains, total = new_gains(packed, np.array([[0, 1]])), np.zeros(packed.n_features)
    ahead = new_ahead(packed)  # not used by `cmi`, which does not look ahead
    for path in range(first, last):
        state = new_state(packed)
        solve_all(packed, state, task.iteration)
        left = packed.first_slot[1]
        _look(task, state, ahead, gains, total, watched, path, 0)
        for t in range(packed.n_features):
            feature = NONE
            if left > 0:
                if len(orders) > 0:
                    feature = orders[path, t]
                else:
                    feature = best_feature(total, state.observed, task.rank)
                    if feature == NONE:
                        feature = fallback_feature(packed, state, task.rank)
                observe(packed, state, feature, values[path, feature], task.iteration)
            if feature != NONE and in_support[feature]:
                left -= 1
                _look(task, state, ahead, gains, total, watched, path, t + 1)
            else:
                watched.decision[path, t + 1] = watched.decision[path, t]
                watched.certain[path, t + 1] = watched.certain[path, t]
                watched.probability[path, t + 1] = watched.probability[path, t]
                watched.gain[path, t + 1] = watched.gain[path, t]


@kernel()
def _look(
    task: Task, state: State, ahead: Ahead, gains: Gains, total: Floats, watched: WatchedTask, path: int, t: int
) -> None:
    """Write round t of one patient, and the gain of each feature into `total` (M,)."""
    packed, hidden = task.packed, task.packed.n_features - t
    bound = elbo(state, 0, hidden), elbo(state, 1, hidden)
    score = bound[0] - bound[1]
    decision = 0 if abs(score) <= packed.tie else (1 if score > 0.0 else -1)
    odds = (packed.prior[0] + bound[0] - task.empty[0]) - (packed.prior[1] + bound[1] - task.empty[1])
    certain = abs(state.constant[0] - state.constant[1]) > duel(packed, state, 0, 1).budget + packed.tie
    total[:] = 0.0
    if not certain:
        changed = np.ones(2, dtype=np.bool_)
        refresh_gains(packed, state, ahead, gains, task.empty, CMI, changed)
        add_up(gains, np.zeros(1, dtype=np.bool_), total)
    watched.decision[path, t] = decision
    watched.certain[path, t] = certain
    # at odds with the decision, the probability is of no use
    watched.probability[path, t] = 1.0 / (1.0 + math.exp(-abs(odds))) if decision * odds > 0.0 else 0.5
    watched.gain[path, t] = np.max(np.where(state.observed, 0.0, total))
