"""Many patients along orders, or as a rule chooses: signs of duels, snapshots, what stopping rules look at."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray
from scipy.special import softmax

from afa.engine.course import (
    BOUNDARY,
    CALLS,
    CERTAIN,
    DUELS,
    ENTITIES,
    LARGEST,
    MOMENTS,
    RANKS,
    SCORES,
    SIGNS,
    SOLVES,
    Followed,
)
from afa.engine.duels import all_pairs
from afa.engine.follow import blocks, choose, follow
from afa.engine.layout import Packed, Pairs, pack
from afa.engine.tasks import Task
from afa.inference.meanfield import ASCENT_FACTOR, Solver
from afa.model.bundle import Bundle
from afa.model.mrf import Floats

Signs = NDArray[np.int8]
Counts = NDArray[np.int64]
N_SOLVES, ITERATIONS, CAPPED, UNFINISHED, ASCENT_SWEEPS = range(5)


@dataclass(frozen=True)
class SignPaths:
    """Signs of every duel along observation orders, t from 0 to M.

    pairs : (Q, 2) entity indices a < b. signs : by score, (P, S, M + 1, Q) int8, +1 where a is preferred, 0 a tie;
    `kl` asks for (a, b) and `kl_reversed` for (b, a), its sign turned round.
    solves, iterations, capped, ascended : (P, S, M + 1) sums over the entities solved at that round.
    """

    pairs: Pairs
    signs: Mapping[str, Signs]
    solves: NDArray[np.int32]
    iterations: NDArray[np.int32]
    capped: NDArray[np.int32]
    ascended: NDArray[np.int32]


class SolvePaths(NamedTuple):
    """Counts of solves of N entities, P patients in S orders each, t from 0 to M.

    The last axis is: solves; damped sweeps; solves that reached the cap of damped sweeps; of these, solves whose
    coordinate ascent used all of its sweeps too; sweeps of coordinate ascent.

    by_round : (M + 1, N, 5), over patients and orders. by_patient : (P, S, N, 5), over rounds.
    first_unfinished : (P, S, N) the t of the first unfinished solve, -1 where there is none.
    """

    by_round: Counts
    by_patient: Counts
    first_unfinished: NDArray[np.int64]


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
    start : `uniform`, or `warm` from the previous round's marginals.
    """
    found = follow(bundle, values, orders, SIGNS | SOLVES, solver=solver, start=start, threads=threads)
    signs = {score: found.signs[:, :, :, i] for i, score in enumerate(SCORES)}
    counts: list[NDArray[np.int32]] = [kind.sum(axis=-1, dtype=np.int32) for kind in _kinds(found, np.inf)]
    solves, iterations, capped, _, ascended = counts
    return SignPaths(all_pairs(len(bundle.entities)), signs, solves, iterations, capped, ascended)


def first_signs(
    bundle: Bundle, looked_at: Bundle, values: NDArray[np.int8], rounds: int, *, solver: Solver | None = None
) -> Signs:
    """(P, rounds + 1, Q) signs by `linearity` of all duels, +1 where the first is preferred, 0 a tie.

    values : (P, M) in {-1, 0, +1}, observed as `greedy` asks for them by conditional mutual information. looked_at :
    the bundle itself, or some of its entities, the only ones that the rule sees. rounds : at most M.
    """
    score = ("linearity",)
    found = choose(
        looked_at,
        values,
        SIGNS,
        n_rounds=rounds,
        signs=score,
        solver=solver,
        threads=1,
        allocation="greedy",
        gain="cmi",
        k=1,
    )
    if looked_at is not bundle:
        found = follow(bundle, values, found.order, SIGNS, signs=score, solver=solver, threads=1)
    return found.signs[:, :, 0]


def solve_paths(
    bundle: Bundle,
    values: NDArray[np.int8],
    orders: NDArray[np.int64],
    *,
    solver: Solver | None = None,
    threads: int | None = None,
) -> SolvePaths:
    """Solve every entity before any observation, and again at each observation of a feature that it holds.

    values : (P, M) in {-1, 0, +1}. orders : (P, S, M), each a permutation of the features. Every solve starts from the
    uniform marginals.
    """
    n_patients, n_orders, n_features = orders.shape
    n, longest = len(bundle.entities), ASCENT_FACTOR * (solver or Solver()).max_iterations
    by_round = np.zeros((n_features + 1, n, 5), dtype=np.int64)
    by_patient = np.zeros((n_patients, n_orders, n, 5), dtype=np.int64)
    first_unfinished = np.full((n_patients, n_orders, n), -1, dtype=np.int64)
    for rows in blocks(n_patients, 8 * n_orders * (n_features + 1) * n):
        found = follow(bundle, values[rows], orders[rows], SOLVES, solver=solver, threads=threads)
        kinds = _kinds(found, longest)
        for i, kind in enumerate(kinds):
            by_round[..., i] += kind.sum(axis=(0, 1), dtype=np.int64)
            by_patient[rows, ..., i] = kind.sum(axis=2, dtype=np.int64)
        unfinished = kinds[UNFINISHED]
        first_unfinished[rows] = np.where(unfinished.any(axis=2), unfinished.argmax(axis=2), -1)
    return SolvePaths(by_round, by_patient, first_unfinished)


def _kinds(found: Followed, longest: float) -> list[NDArray[Any]]:
    """What the last axis of `SolvePaths` counts, each by entity, in its order."""
    iterations, ascended = found.iterations, found.ascended
    return [
        iterations >= 0,
        np.maximum(iterations, 0),
        ascended > 0,
        ascended >= longest,
        np.maximum(ascended, 0),
    ]


class Snapshots(NamedTuple):
    """P patients at R rounds, N entities with K slots in all, Q pairs.

    packed : the layout of the bundle. pairs : (Q, 2). rounds : (R,) numbers of observations.
    constant, elbo : (P, R, N). m, q : (P, R, K) moments by slot. cross : (P, R, N, N) E_{q_u}[S_v | x_obs].
    mean, stack_a : (P, R, Q), mu_D without rounding, and its score. sums : (P, R, Q, 6) the fields of `Duel`.
    calls : (P, R, Q, 5) int8, by bracket.
    """

    packed: Packed
    pairs: Pairs
    rounds: NDArray[np.int64]
    constant: Floats
    elbo: Floats
    m: Floats
    q: Floats
    cross: Floats
    mean: Floats
    stack_a: Floats
    sums: Floats
    calls: NDArray[np.int8]


def snapshots(
    bundle: Bundle,
    values: NDArray[np.int8],
    orders: NDArray[np.int64],
    rounds: Sequence[int],
    *,
    solver: Solver | None = None,
    duels: bool = True,
    threads: int | None = None,
) -> Snapshots:
    """Read P patients at the given rounds, ascending; every solve starts from the uniform marginals.

    values : (P, M) in {-1, 0, +1}. orders : (P, M), each a permutation of the features. duels : whether they are read
    too, which takes most of the time; without them their arrays are empty.
    """
    read = ENTITIES | MOMENTS | (DUELS | CALLS if duels else 0)
    found = follow(bundle, values, orders, read, rounds=rounds, solver=solver, threads=threads)
    pairs = all_pairs(len(bundle.entities) if duels else 0)
    read_of = {name: getattr(found, name) for name in Snapshots._fields[3:]}
    return Snapshots(pack(bundle), pairs, np.array(rounds, dtype=np.int64), **read_of)


AS_PROBABLE = 0.005
"""Posteriors that differ by no more are called equal in what people read."""


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
    """P paths of one task, rounds t from 0 to M; scores by `two_elbo`.

    log_odds : (P, M + 1) nats, `BinaryPlanner.log_odds`; of a tie 0.
    decision : (P, M + 1) int8, `BinaryPlanner.decision`. certain : (P, M + 1) whether no completion can change it.
    probability : (P, M + 1) in [1/2, 1], `BinaryPlanner.confidence`.
    gain : (P, M + 1) nats, the largest gain of an unobserved feature, 0 once it is certain.
    """

    log_odds: Floats
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
    task: Task,
    values: NDArray[np.int8],
    orders: NDArray[np.int64] | None,
    *,
    gain: str = "cmi",
    target: str | None = None,
    threads: int | None = None,
) -> WatchedTask:
    """Follow P patients along one order each, or as `greedy` chooses by a gain; the same bytes for any threads.

    values : (P, M) in {-1, 0, +1}. orders : (P, M), each a permutation of the features; None for `greedy`. Rounds that
    observe no feature of the support change nothing.
    """
    read = CERTAIN | LARGEST | ENTITIES
    settings: dict[str, Any] = {"gain": gain, "target": target, "k": 1, "only_changes": True, "calibrated": True}
    settings |= {"solver": task.solver, "threads": threads}
    if orders is None:
        found = choose(task.bundle, values, read, allocation="greedy", **settings)
    else:
        found = follow(task.bundle, values, orders, read, **settings)
    evidence = np.array(task.bundle.priors) + found.elbo - task.empty
    odds = evidence[..., 0] - evidence[..., 1]
    odds[np.abs(odds) <= task.tie] = 0.0
    decision = np.sign(odds).astype(np.int8)
    probability = 1.0 / (1.0 + np.exp(-np.abs(odds)))
    every = np.arange(values.shape[1] + 1)
    row = np.array([np.searchsorted(t, every, side="right") - 1 for t in found.t]).reshape(len(values), len(every))
    read_at: tuple[NDArray[Any], ...] = (odds, decision, found.resolved[:, :, 0], probability, found.gain)
    return WatchedTask(*(np.take_along_axis(array, row, axis=1) for array in read_at))
