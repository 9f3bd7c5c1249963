"""One entity as a binary task, for many patients: its scores and brackets along given or guided observation orders.

The task is the duel of the two class models (`afa.closure`), so that every score, gain and bracket of a duel
serves it. Nothing changes while features outside the entity's support are observed: what is kept is one *step* per
observed feature of the support, and the round at which it came.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from afa.bracket import GAMMA
from afa.bundle import Bundle
from afa.closure import STRENGTH, Coupling, closed_bundle
from afa.engine.ahead import gaussian_sign
from afa.engine.brackets import BRACKETS, bracket_calls
from afa.engine.compile import kernel
from afa.engine.duels import duel
from afa.engine.kernels import Iteration, State, elbo, new_state, observe, solve_all
from afa.engine.packed import Packed, pack
from afa.inference.meanfield import Solver
from afa.mrf import Floats

METHODS = ("wald", "two_elbo", "stack_a")
TASK_BRACKETS = BRACKETS[:3]


@dataclass(frozen=True)
class TaskPaths:
    """One task along R orders a patient, step by step; step 0 is before any observation.

    t : (P, R, s + 1) features observed when the step was made, s the size of the entity's support.
    wald, two_elbo, stack_a : (P, R, s + 1) scores; nats, nats, and [-1, 1]. Magnitudes of rounding are 0.
    calls : (P, R, s + 1, 3) int8, the sign that each bracket of `TASK_BRACKETS` has settled on, 0 while it is open.
    """

    t: NDArray[np.int32]
    wald: Floats
    two_elbo: Floats
    stack_a: Floats
    calls: NDArray[np.int8]


class Task(NamedTuple):
    """What does not change from patient to patient: the two models, the order of names, the iteration.

    rank : (M,) place of each feature in the order of names. empty : (2,) ELBOs at no observation.
    """

    packed: Packed
    rank: NDArray[np.int64]
    empty: Floats
    iteration: Iteration
    gamma: float


class Record(NamedTuple):
    """Where steps are written: the arrays of `TaskPaths`, or the part of them that belongs to one patient or order."""

    t: NDArray[np.int32]
    wald: Floats
    two_elbo: Floats
    stack_a: Floats
    calls: NDArray[np.int8]


def task_of(
    bundle: Bundle,
    entity: str,
    *,
    solver: Solver | None = None,
    gamma: float = GAMMA,
    coupling: Coupling = "differential",
    strength: float = STRENGTH,
) -> Task:
    """Lay out one entity of a bundle as a binary task."""
    solver = solver or Solver()
    packed = pack(closed_bundle(bundle, entity, coupling, strength))
    iteration = Iteration(solver.damping, solver.tolerance, solver.max_iterations, False)
    rank = np.argsort(np.argsort(np.array(bundle.features, dtype=object), kind="stable"))
    state = new_state(packed)
    solve_all(packed, state, iteration)
    empty = np.array([elbo(state, side, packed.n_features) for side in (0, 1)])
    return Task(packed, rank.astype(np.int64), empty, iteration, gamma)


def follow_orders(task: Task, values: NDArray[np.int8], orders: NDArray[np.int64]) -> TaskPaths:
    """Follow P patients along R given orders each.

    values : (P, M) in {-1, 0, +1}. orders : (P, R, M), each a permutation of the features.
    """
    paths = new_paths(task, len(values), orders.shape[1])
    _follow_orders(task, values, orders, record_of(paths))
    return paths


def new_paths(task: Task, n_patients: int, n_orders: int) -> TaskPaths:
    """Space for the steps of P patients in R orders."""
    shape = (n_patients, n_orders, int(task.packed.first_slot[1]) + 1)
    return TaskPaths(
        np.zeros(shape, dtype=np.int32),
        np.zeros(shape),
        np.zeros(shape),
        np.zeros(shape),
        np.zeros((*shape, len(TASK_BRACKETS)), dtype=np.int8),
    )


def record_of(paths: TaskPaths) -> Record:
    """The arrays of some paths as kernels take them; written in place."""
    return Record(paths.t, paths.wald, paths.two_elbo, paths.stack_a, paths.calls)


@kernel()
def _follow_orders(task: Task, values: NDArray[np.int8], orders: NDArray[np.int64], record: Record) -> None:
    packed = task.packed
    in_support = support_mask(packed)
    for patient in range(orders.shape[0]):
        for r in range(orders.shape[1]):
            state = new_state(packed)
            solve_all(packed, state, task.iteration)
            row = Record(
                record.t[patient, r],
                record.wald[patient, r],
                record.two_elbo[patient, r],
                record.stack_a[patient, r],
                record.calls[patient, r],
            )
            step = 0
            write_step(task, state, row, step, 0)
            for t in range(1, packed.n_features + 1):
                feature = orders[patient, r, t - 1]
                observe(packed, state, feature, values[patient, feature], task.iteration)
                if in_support[feature]:
                    step += 1
                    write_step(task, state, row, step, t)


@kernel()
def support_mask(packed: Packed) -> NDArray[np.bool_]:
    """(M,) whether a feature lies in the support."""
    inside = np.zeros(packed.n_features, dtype=np.bool_)
    for slot in range(packed.first_slot[1]):
        inside[packed.feature[slot]] = True
    return inside


@kernel()
def write_step(task: Task, state: State, row: Record, step: int, t: int) -> None:
    """One step's scores and bracket calls."""
    packed = task.packed
    hidden = packed.n_features - t
    sums = duel(packed, state, 0, 1)
    cross = state.cross
    mean = _unless_rounding(0.5 * ((cross[0, 0] - cross[1, 1]) + (cross[1, 0] - cross[0, 1])), packed.tie)
    row.t[step] = t
    row.wald[step] = _unless_rounding(state.constant[0] - state.constant[1], packed.tie)
    row.two_elbo[step] = _unless_rounding(elbo(state, 0, hidden) - elbo(state, 1, hidden), packed.tie)
    row.stack_a[step] = gaussian_sign(mean, sums.variance)
    calls = np.zeros(5, dtype=np.int8)
    bracket_calls(packed, state, 0, 1, sums, mean, np.zeros(2, dtype=np.int64), t, task.gamma, calls)
    row.calls[step] = calls[:3]


@kernel(inline=True)
def _unless_rounding(value: float, tie: float) -> float:
    return 0.0 if abs(value) <= tie else value
