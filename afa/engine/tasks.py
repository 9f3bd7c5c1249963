"""Compute scores and early decisions (`TASK_BRACKETS`) of a binary task for many patients.

The task is to decide whether a patient has a given entity. It compares two class models (`afa.model.closure`): one with
the entity, and one without the entity. A binary task has the same scores, gains and methods for early decisions as a
duel (comparison of two entities). An observation of a feature outside the entity's support changes no score. Therefore,
results have one *step* for each observed feature of the support. The array `t` contains the number of observations at
each step.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from afa.engine.duels import BRACKETS, RIGOROUS
from afa.engine.follow import choose, follow, run_of
from afa.engine.layout import Models
from afa.engine.run import CALLS, DUELS, ENTITIES, MISSING, SOLVES, WalkResults
from afa.inference.class_odds import known_log_ratio
from afa.inference.meanfield import Solver
from afa.model.arrays import Bools, Codes, Floats, Ints
from afa.model.bundle import Bundle
from afa.model.bundle.rates import bundle_models, exclusive_of, with_groups
from afa.model.closure import STRENGTH, Closure, closed_bundle

TASK_SCORES = ("wald", "two_elbo", "stack_a")
TASK_BRACKETS = BRACKETS[:3]
TASK_RESULTS = ENTITIES | DUELS | CALLS


@dataclass(frozen=True)
class TaskPaths:
    """Results of one binary task at each step, for P patients with R orders each.

    Step 0 is the state before any observation. At step i, exactly i of the s features in the entity's support have been
    observed.

    Attributes
    ----------
    t : (P, R, s + 1) int32, number of observed features at each step, including features outside the support
    wald, two_elbo : (P, R, s + 1) float64, scores in nats, with rounding errors set to 0
    stack_a : (P, R, s + 1) float64, score in [-1, 1]
    calls : (P, R, s + 1, 3) int8, early decision of each method in `TASK_BRACKETS`: +1, -1, or 0 if undecided

    """

    t: NDArray[np.int32]
    wald: Floats
    two_elbo: Floats
    stack_a: Floats
    calls: Codes


@dataclass(frozen=True, eq=False)
class ClassTask:
    """A binary task: its two class models as the entities of a bundle, and the solver settings.

    Attributes
    ----------
    bundle : the two class models
    empty : (2,) float64, ELBO of each class without observations, nats
    tie : largest absolute score that counts as rounding error, nats
    kappa : log Z_1 - log Z_0 of models with class-conditional probabilities, nats, computed exactly; 0 for other
        models, or if exact inference needs too much memory. A method in `RIGOROUS` decides for a class only if both the
        score and the score minus kappa favour this class for all values of the unobserved features

    """

    bundle: Bundle | Models
    solver: Solver
    empty: Floats
    tie: float
    kappa: float

    @property
    def shift(self) -> float:
        """Return the calibration shift, nats: the score `two_elbo` without observations minus the prior log-odds."""
        offset = self.empty - np.asarray(self.bundle.priors)
        return float(offset[0] - offset[1])


def task_of(
    bundle: Bundle,
    entity: str,
    *,
    solver: Solver | None = None,
    coupling: Closure = "differential",
    strength: float = STRENGTH,
) -> ClassTask:
    """Return the binary task that decides whether a patient has the given entity."""
    solver = solver or Solver()
    closed = classes_of(bundle, entity, coupling, strength)
    run, _ = run_of(closed, 0, 0, k=1, solver=solver)
    kappa = known_log_ratio(*closed.models) if isinstance(closed, Models) else 0.0
    return ClassTask(closed, solver, run.empty, run.packed.tie, kappa)


def classes_of(bundle: Bundle, entity: str, coupling: Closure, strength: float) -> Bundle | Models:
    """Return a bundle that contains the two class models of an entity: with the entity, and without the entity.

    If `coupling` is `explicit`, the models are built from the bundle's class-conditional probabilities, and kappa = log
    Z_1 - log Z_0 is taken as 0 (docs/decisions.md, Base rates).
    """
    if coupling != "explicit":
        return closed_bundle(bundle, entity, coupling, strength)
    with_entity, without, at = bundle.how_often(entity)
    one, zero = bundle_models(bundle, entity, 0.0, at)
    return Models(
        f"{bundle.name}, {entity}",
        (entity, f"not {entity}"),
        bundle.features,
        (with_groups(bundle, one, at, with_entity), with_groups(bundle, zero, at, without)),
        (at, at),
        without if bundle.rates is None else bundle.rates.background,
        exclusive_of(bundle, at),
    )


def follow_orders(task: ClassTask, values: Codes, orders: Ints, *, threads: int = 1) -> TaskPaths:
    """Observe the features of P patients in R given orders each, and return the results at each step.

    Parameters
    ----------
    values : (P, M) int8, -1, 0 or +1
    orders : (P, R, M) int64, each a permutation of the features

    """
    found = follow(task.bundle, values, orders, TASK_RESULTS, only_changes=True, solver=task.solver, threads=threads)
    return _task_paths(task, found)


def follow_gain(
    task: ClassTask,
    values: Codes,
    *,
    gain: str,
    target: str | None = None,
    last_step: int | None = None,
    threads: int = 1,
) -> TaskPaths:
    """Observe the features of P patients in the order that the rule `greedy` chooses by a gain of `afa.scores.gain`.

    Parameters
    ----------
    values : (P, M) int8, -1, 0 or +1
    last_step : number of observed features of the support after which to stop, or None for all; results after this step
        are 0

    """
    rows = None if last_step is None else last_step + 1
    found = choose(
        task.bundle,
        values,
        TASK_RESULTS,
        allocation="greedy",
        gain=gain,
        target=target,
        k=1,
        n_rows=rows,
        only_changes=True,
        solver=task.solver,
        threads=threads,
    )
    paths = _task_paths(task, WalkResults._make(array[:, None] for array in found))
    lacking = len(task.bundle.support(task.bundle.entities[0])) + 1 - paths.t.shape[2]
    if not lacking:
        return paths
    parts = {
        name: np.pad(array, [(0, 0), (0, 0), (0, lacking), (0, 0)][: array.ndim]) for name, array in vars(paths).items()
    }
    return TaskPaths(**parts)


def _task_paths(task: ClassTask, found: WalkResults) -> TaskPaths:
    wald, two_elbo = (array[..., 0] - array[..., 1] for array in (found.constant, found.elbo))
    wald[np.abs(wald) <= task.tie] = 0.0
    two_elbo[np.abs(two_elbo) <= task.tie] = 0.0
    calls = found.calls[..., 0, : len(TASK_BRACKETS)].copy()
    if task.kappa:
        below, above = found.sums[..., 0, 0] + max(task.kappa, 0.0), found.sums[..., 0, -1] - min(task.kappa, 0.0)
        of_one_alone = (wald <= below + task.tie) & (wald >= -above - task.tie)
        calls[..., : len(RIGOROUS)][of_one_alone] = 0
    return TaskPaths(found.t, wald, two_elbo, found.stack_a[..., 0], calls)


@dataclass(frozen=True)
class ElboDifferences:
    """ELBO differences F_1 - F_0, which approximate the log-odds of a binary task, for R sets of observations.

    Attributes
    ----------
    raw : (R,) float64, nats
    start : F_1 - F_0 without observations, nats
    prior : prior log-odds, nats
    iterations, capped, ascended : (R,) int32, number of damped sweeps, number of mean-field runs that reached the limit
        of damped sweeps, and number of sweeps of coordinate ascent, summed over the two class models

    """

    raw: Floats
    start: float
    prior: float
    iterations: NDArray[np.int32]
    capped: NDArray[np.int32]
    ascended: NDArray[np.int32]

    @property
    def shift(self) -> float:
        """Return the calibration shift, nats: `start` minus `prior`."""
        return self.start - self.prior

    @property
    def calibrated(self) -> Floats:
        """Return the calibrated posterior log-odds. Without observations, they equal the prior log-odds.

        Returns
        -------
        log_odds : (R,) float64, nats

        """
        return self.raw - self.shift


def elbo_differences(
    bundle: Bundle,
    entity: str,
    observed: Bools,
    values: Codes,
    *,
    solver: Solver | None = None,
    coupling: Closure = "differential",
    strength: float = STRENGTH,
    threads: int | None = None,
) -> ElboDifferences:
    """Return the mean-field log-odds of an entity's two class models, for R sets of observations.

    Mean-field starts from uniform marginals each time.

    Parameters
    ----------
    observed : (R, M) bool, True for the features that each set of observations includes
    values : (R, M) int8, -1, 0 or +1; values of unobserved features are ignored

    """
    closed = classes_of(bundle, entity, coupling, strength)
    m, read = observed.shape[1], ENTITIES | SOLVES
    known = np.concatenate([np.where(observed, values, MISSING), np.full((1, m), MISSING, dtype=np.int8)])
    orders = np.tile(np.arange(m), (len(known), 1))
    found = follow(closed, known, orders, read, rounds=[0, m], solver=solver, threads=threads)
    raw = found.elbo[:, -1, 0] - found.elbo[:, -1, 1]
    # if no observation has changed a class model, take the counts of the mean-field run at the start
    solved = found.iterations[:-1, -1] >= 0
    sweeps, ascended = (np.where(solved, n[:-1, -1], n[:-1, 0]) for n in (found.iterations, found.ascended))
    counts = (each.sum(axis=1, dtype=np.int32) for each in (sweeps, ascended > 0, ascended))
    prior = float(closed.priors[0] - closed.priors[1])
    return ElboDifferences(raw[:-1], float(raw[-1]), prior, *counts)
