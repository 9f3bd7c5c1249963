"""What the planners compare their stopping rules with at every round, for many patients (`afa.planner.Stop`)."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray
from scipy.special import softmax

from afa.bundle import Bundle
from afa.engine.course import BOUNDARY, CERTAIN, ENTITIES, LARGEST, RANKS
from afa.engine.follow import choose, follow
from afa.engine.tasks import Task
from afa.inference.meanfield import Solver
from afa.mrf import Floats

AS_PROBABLE = 0.005
"""Posteriors that differ by no more are called equal where people are told of them."""


class Watched(NamedTuple):
    """P paths of N entities, rounds t from 0 to r; all by `linearity`, gains by `cmi`.

    inside : (P, r + 1, N) whether an entity is in the present top k. certain : (P, r + 1) whether that set cannot
    change any more (`TopKPlanner.certified`).
    probability : (P, r + 1) in [0, 1], `TopKPlanner.boundary_probability`. posterior : (P, r + 1) in [0, 1],
    `TopKPlanner.answer_probability`, and 0 where the set is a tie.
    gain : (P, r + 1) nats, the largest gain of an unobserved feature, summed over the open duels.
    """

    inside: NDArray[np.bool_]
    certain: NDArray[np.bool_]
    probability: Floats
    posterior: Floats
    gain: Floats


class WatchedTask(NamedTuple):
    """P paths of one task, rounds t from 0 to M; scores by `two_elbo`, gains by `cmi`.

    decision : (P, M + 1) int8, `BinaryPlanner.decision`. certain : (P, M + 1) whether no completion can change it.
    probability : (P, M + 1) in [1/2, 1], `BinaryPlanner.confidence`.
    gain : (P, M + 1) nats, the largest gain of an unobserved feature, 0 once it is certain.
    """

    decision: NDArray[np.int8]
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
    read = RANKS | CERTAIN | BOUNDARY | LARGEST | ENTITIES
    found = follow(bundle, values, orders, read, gain="cmi", k=k, solver=solver, threads=threads)
    names = np.argsort(np.argsort(np.array(bundle.entities, dtype=object)))
    rank = np.argsort(np.argsort(found.place[:, :, 0] * np.int64(len(names)) + names, axis=2), axis=2)
    inside = rank < k
    evidence = np.array(bundle.priors) + found.elbo - found.elbo[:, :1]
    each = softmax(evidence, axis=2)
    posterior = np.where(inside, each, 0.0).sum(axis=2)
    places = np.sort(found.place[:, :, 0], axis=2)
    tie = places[:, :, k - 1] == places[:, :, k]
    tie |= np.where(inside, -np.inf, each).max(axis=2) > np.where(inside, each, np.inf).min(axis=2) - AS_PROBABLE
    return Watched(inside, found.certified, found.probability, np.where(tie, 0.0, posterior), found.gain)


def watch_task(
    task: Task, values: NDArray[np.int8], orders: NDArray[np.int64] | None, *, threads: int | None = None
) -> WatchedTask:
    """Follow P patients along one order each, or as `greedy` chooses by `cmi`; the same bytes for any threads.

    values : (P, M) in {-1, 0, +1}. orders : (P, M), each a permutation of the features; None for `greedy`. Rounds that
    observe no feature of the support change nothing.
    """
    read = CERTAIN | LARGEST | ENTITIES
    settings: dict[str, Any] = {"gain": "cmi", "k": 1, "only_changes": True, "calibrated": True}
    settings |= {"solver": task.solver, "threads": threads}
    if orders is None:
        found = choose(task.bundle, values, read, allocation="greedy", **settings)
    else:
        found = follow(task.bundle, values, orders, read, **settings)
    evidence = np.array(task.bundle.priors) + found.elbo - task.empty
    odds = evidence[..., 0] - evidence[..., 1]
    decision = np.where(np.abs(odds) <= task.tie, 0, np.sign(odds)).astype(np.int8)
    probability = 1.0 / (1.0 + np.exp(-np.abs(odds)))
    every = np.arange(values.shape[1] + 1)
    row = np.array([np.searchsorted(t, every, side="right") - 1 for t in found.t]).reshape(len(values), len(every))
    read_at: tuple[NDArray[Any], ...] = (decision, found.resolved[:, :, 0], probability, found.gain)
    return WatchedTask(*(np.take_along_axis(array, row, axis=1) for array in read_at))
