"""Many patients at once: every duel's sign, by every score, at every round; and how the solves go on the way."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from afa.bundle import Bundle
from afa.engine.course import SCORES, SIGNS, SOLVES, Followed
from afa.engine.duels import Pairs, all_pairs
from afa.engine.follow import blocks, choose, follow
from afa.inference.meanfield import ASCENT_FACTOR, Solver

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
