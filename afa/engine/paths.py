"""Observe the features of many patients in given orders or under a rule, and return results after t observations.

The results are the preferred entity of each pair, counts of mean-field runs, states of patients, and the quantities
from which stopping rules decide.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray
from scipy.special import softmax

from afa.engine.duels import all_pairs
from afa.engine.follow import blocks, choose, follow
from afa.engine.layout import Packed, Pairs, pack
from afa.engine.run import (
    BOUNDARY,
    CALLS,
    CERTAIN,
    DUELS,
    ENGINE_SCORES,
    ENTITIES,
    LARGEST,
    MOMENTS,
    RANKS,
    SIGNS,
    SOLVES,
    WalkResults,
)
from afa.engine.tasks import ClassTask
from afa.inference.meanfield import ASCENT_FACTOR, Solver
from afa.model.arrays import Bools, Codes, Floats, Ints
from afa.model.bundle import Bundle

N_SOLVES, ITERATIONS, CAPPED, UNFINISHED, ASCENT_SWEEPS = range(5)


@dataclass(frozen=True)
class SignPaths:
    """Preferred entity of every pair after t = 0, 1, ..., M observations, for P patients with S orders each.

    Attributes
    ----------
    pairs : (Q, 2) int64, entity indices a < b
    signs : score -> (P, S, M + 1, Q) int8, +1 if a is preferred, -1 if b is preferred, 0 for a tie; `kl` compares (a,
        b), and `kl_reversed` compares (b, a) and reverses the sign
    solves, iterations, capped, ascended : (P, S, M + 1) int32, number of mean-field runs after the t-th observation,
        number of their damped sweeps, number of runs that reached the limit of damped sweeps, and number of sweeps of
        coordinate ascent

    """

    pairs: Pairs
    signs: Mapping[str, Codes]
    solves: NDArray[np.int32]
    iterations: NDArray[np.int32]
    capped: NDArray[np.int32]
    ascended: NDArray[np.int32]


class SolvePaths(NamedTuple):
    """Counts of the mean-field runs on the models of N entities, for P patients with S observation orders each.

    The last axis has these five counts:

    0. mean-field runs
    1. damped sweeps
    2. runs that reached the limit of damped sweeps
    3. runs that also reached the limit of sweeps of coordinate ascent
    4. sweeps of coordinate ascent

    Attributes
    ----------
    by_round : (M + 1, N, 5) int64, summed over patients and orders
    by_patient : (P, S, N, 5) int64, summed over the numbers of observations
    first_unfinished : (P, S, N) int64, number t of observations at the first run that reached the limit of sweeps of
        coordinate ascent, or -1 if no run reached it

    """

    by_round: Ints
    by_patient: Ints
    first_unfinished: Ints


def sign_paths(
    bundle: Bundle,
    values: Codes,
    orders: Ints,
    *,
    solver: Solver | None = None,
    start: str = "uniform",
    threads: int | None = None,
) -> SignPaths:
    """Observe the features of P patients in S orders each, and return the preferred entity of each pair.

    Parameters
    ----------
    values : (P, M) int8, -1, 0 or +1
    orders : (P, S, M) int64, each a permutation of the features
    start : marginals from which each mean-field run starts: `uniform`, or `warm` for the marginals of the previous run

    """
    found = follow(bundle, values, orders, SIGNS | SOLVES, solver=solver, start=start, threads=threads)
    signs = {score: found.signs[:, :, :, i] for i, score in enumerate(ENGINE_SCORES)}
    counts: list[NDArray[np.int32]] = [kind.sum(axis=-1, dtype=np.int32) for kind in _solve_counts(found, np.inf)]
    solves, iterations, capped, _, ascended = counts
    return SignPaths(all_pairs(len(bundle.entities)), signs, solves, iterations, capped, ascended)


def first_signs(
    bundle: Bundle, looked_at: Bundle, values: Codes, rounds: int, *, solver: Solver | None = None
) -> Codes:
    """Observe features by the rule `greedy` with the gain `cmi`, and return the preferred entity of each pair.

    The preferred entity of a pair is given by the sign of the score `linearity`.

    Parameters
    ----------
    looked_at : the bundle, or a bundle of some of its entities; the rule uses only these entities
    values : (P, M) int8, -1, 0 or +1
    rounds : number of observations, at most M

    Returns
    -------
    signs : (P, rounds + 1, Q) int8, +1 if the first entity is preferred, -1 if the second is preferred, 0 for a tie

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
    values: Codes,
    orders: Ints,
    *,
    solver: Solver | None = None,
    threads: int | None = None,
) -> SolvePaths:
    """Count the mean-field runs on every entity's model, and their sweeps, for given orders of observation.

    Mean-field is run on the model of an entity before any observation, and again after each observation of a feature in
    the entity's support. Each run starts from uniform marginals.

    Parameters
    ----------
    values : (P, M) int8, -1, 0 or +1
    orders : (P, S, M) int64, each a permutation of the features

    """
    n_patients, n_orders, n_features = orders.shape
    n, longest = len(bundle.entities), ASCENT_FACTOR * (solver or Solver()).max_iterations
    by_round = np.zeros((n_features + 1, n, 5), dtype=np.int64)
    by_patient = np.zeros((n_patients, n_orders, n, 5), dtype=np.int64)
    first_unfinished = np.full((n_patients, n_orders, n), -1, dtype=np.int64)
    for rows in blocks(n_patients, 8 * n_orders * (n_features + 1) * n):
        found = follow(bundle, values[rows], orders[rows], SOLVES, solver=solver, threads=threads)
        kinds = _solve_counts(found, longest)
        for i, kind in enumerate(kinds):
            by_round[..., i] += kind.sum(axis=(0, 1), dtype=np.int64)
            by_patient[rows, ..., i] = kind.sum(axis=2, dtype=np.int64)
        unfinished = kinds[UNFINISHED]
        first_unfinished[rows] = np.where(unfinished.any(axis=2), unfinished.argmax(axis=2), -1)
    return SolvePaths(by_round, by_patient, first_unfinished)


def _solve_counts(found: WalkResults, longest: float) -> list[NDArray[Any]]:
    """Return the five counts of `SolvePaths` for each entity, in the same order."""
    iterations, ascended = found.iterations, found.ascended
    return [
        iterations >= 0,
        np.maximum(iterations, 0),
        ascended > 0,
        ascended >= longest,
        np.maximum(ascended, 0),
    ]


class StateSamples(NamedTuple):
    """States of P patients at R steps. A step is identified by the number of observations.

    The bundle has N entities, Q entity pairs and K slots (entity, feature).

    Attributes
    ----------
    packed : kernel arrays of the bundle
    pairs : (Q, 2) int64, entity indices a < b
    rounds : (R,) int64, numbers of observations
    constant, elbo : (P, R, N) float64, nats
    m, q : (P, R, K) float64, first and second moment of each slot
    cross : (P, R, N, N) float64, E_{q_u}[S_v | x_obs], nats
    mean : (P, R, Q) float64, mu_D in nats, with rounding errors set to 0
    stack_a : (P, R, Q) float64, the score `stack_a`, from -1 to 1
    sums : (P, R, Q, 6) float64, the fields of `Duel`
    calls : (P, R, Q, 5) int8, early decision of each method in `BRACKETS`: +1, -1, or 0 if undecided

    """

    packed: Packed
    pairs: Pairs
    rounds: Ints
    constant: Floats
    elbo: Floats
    m: Floats
    q: Floats
    cross: Floats
    mean: Floats
    stack_a: Floats
    sums: Floats
    calls: Codes


def snapshots(
    bundle: Bundle,
    values: Codes,
    orders: Ints,
    rounds: Sequence[int],
    *,
    solver: Solver | None = None,
    duels: bool = True,
    threads: int | None = None,
) -> StateSamples:
    """Return the states of P patients after each number of observations in `rounds`.

    Mean-field starts from uniform marginals each time.

    Parameters
    ----------
    values : (P, M) int8, -1, 0 or +1
    orders : (P, M) int64, each a permutation of the features
    rounds : ascending numbers of observations
    duels : if False, the arrays with an axis for duels (entity pairs) are empty, which saves most of the time

    """
    read = ENTITIES | MOMENTS | (DUELS | CALLS if duels else 0)
    found = follow(bundle, values, orders, read, rounds=rounds, solver=solver, threads=threads)
    pairs = all_pairs(len(bundle.entities) if duels else 0)
    read_of = {name: getattr(found, name) for name in StateSamples._fields[3:]}
    return StateSamples(pack(bundle), pairs, np.array(rounds, dtype=np.int64), **read_of)


EQUAL_PROBABILITY = 0.005
"""Two posterior probabilities count as equal if they differ by at most this much."""


class StoppingQuantities(NamedTuple):
    """Inputs of stopping rules for P patients and N entities after t = 0, ..., r observations.

    The top k are ranked by the score `linearity`, and the gains are of the kind `cmi`.

    Attributes
    ----------
    inside : (P, r + 1, N) bool, True if the entity is in the present top k
    certain : (P, r + 1) bool, True if the top k is final (`TopKPlanner.certified`)
    probability : (P, r + 1) float64 in [0, 1], the value of `TopKPlanner.boundary_probability`
    posterior : (P, r + 1) float64 in [0, 1], `TopKPlanner.answer_probability`, or 0 if the top k is tied
    gain : (P, r + 1) float64, nats; the gains of each unobserved feature are summed over the duels (entity pairs) whose
        winner can still change, and the largest sum is returned

    """

    inside: Bools
    certain: Bools
    probability: Floats
    posterior: Floats
    gain: Floats


class TaskStoppingQuantities(NamedTuple):
    """Inputs of stopping rules for one binary task and P patients after t = 0, ..., M observations.

    The log-odds, the decision and the probability are computed from the score `two_elbo`.

    Attributes
    ----------
    log_odds : (P, M + 1) float64, nats, the value of `BinaryPlanner.log_odds`, or 0 for a tie
    decision : (P, M + 1) int8, the value of `BinaryPlanner.decision`
    certain : (P, M + 1) bool, True if no further values can change the decision
    probability : (P, M + 1) float64 in [1/2, 1], `BinaryPlanner.confidence`
    gain : (P, M + 1) float64, nats, largest gain of an unobserved feature, or 0 if the decision is certain

    """

    log_odds: Floats
    decision: Codes
    certain: Bools
    probability: Floats
    gain: Floats


def stopping_quantities(
    bundle: Bundle,
    values: Codes,
    orders: Ints,
    *,
    k: int = 5,
    solver: Solver | None = None,
    threads: int | None = None,
) -> StoppingQuantities:
    """Observe the features of P patients in one order each, and return the inputs of stopping rules at each step.

    Parameters
    ----------
    values : (P, M) int8, -1, 0 or +1
    orders : (P, r) int64, distinct features

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
    tie |= np.where(inside, -np.inf, each).max(axis=2) > np.where(inside, each, np.inf).min(axis=2) - EQUAL_PROBABILITY
    return StoppingQuantities(inside, found.certified, found.probability, np.where(tie, 0.0, posterior), found.gain)


def task_stopping_quantities(
    task: ClassTask,
    values: Codes,
    orders: Ints | None,
    *,
    gain: str = "cmi",
    target: str | None = None,
    threads: int | None = None,
) -> TaskStoppingQuantities:
    """Observe the features of P patients for a binary task, and return the inputs of stopping rules at each step.

    Parameters
    ----------
    values : (P, M) int8, -1, 0 or +1
    orders : (P, M) int64, each a permutation of the features, or None if the rule `greedy` chooses the features. An
        observation of a feature outside the support changes nothing

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
    return TaskStoppingQuantities(*(np.take_along_axis(array, row, axis=1) for array in read_at))
