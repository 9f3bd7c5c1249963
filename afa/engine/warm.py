"""Every kernel compiled ahead of use: `python -m afa.engine.warm`, as the installation of the project does.

A kernel is compiled when it is first called, which would be in the middle of the first run, or on a cluster by all of
its jobs at once. Here each entrance of the engine is called on a small bundle, on as many cores as there are.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from concurrent.futures import ProcessPoolExecutor
from functools import cache
from itertools import product
from multiprocessing import get_context

import numpy as np
from numpy.typing import NDArray

from afa.bundle import Bundle, PackedCouplings
from afa.closure import COUPLINGS
from afa.engine.allocating import follow_rule
from afa.engine.decision_tree import follow_gain
from afa.engine.elbo_difference import elbo_differences
from afa.engine.elimination import log_partitions
from afa.engine.first_choices import first_signs
from afa.engine.gauges import gauge_paths
from afa.engine.linkage import model_distances
from afa.engine.packed import pack
from afa.engine.pair_calls import own_order_calls, shared_order_calls
from afa.engine.patient import GAIN_KINDS, Patient
from afa.engine.precision import precision_at_k
from afa.engine.readings import readings
from afa.engine.retrace import retrace
from afa.engine.rounds import Truth, full_observation
from afa.engine.rules import RULE_NAMES
from afa.engine.score_distribution import score_distribution
from afa.engine.sharing import sharing_of
from afa.engine.solves import solve_paths
from afa.engine.soundness import call_paths
from afa.engine.stopping import watch
from afa.engine.task_stopping import watch_task
from afa.engine.tasks import follow_orders, task_of
from afa.engine.trajectories import sign_paths
from afa.inference.annealed import annealed
from afa.inference.meanfield import Solver

N, M = 3, 4
VALUES: NDArray[np.int8] = np.array([[1, 0, -1, 1], [0, 1, 1, -1]], dtype=np.int8)
ORDERS: NDArray[np.int64] = np.array([[0, 1, 2, 3], [3, 2, 1, 0]], dtype=np.int64)


@cache
def small_bundle() -> Bundle:
    """Three entities on four features, each with couplings."""
    pairs = PackedCouplings(
        np.array([0, 2, 3, 4], dtype=np.int64),
        np.array([0, 1, 1, 2], dtype=np.int32),
        np.array([1, 2, 2, 3], dtype=np.int32),
        np.array([0.5, -0.5, 1.0, 0.5]),
    )
    unary = np.array([[1.0, 1.0, -1.0, 0.0], [0.0, -1.0, 1.0, 0.0], [0.0, 0.0, 1.0, 1.0]])
    return Bundle("warm", "1", ("u", "v", "w"), ("a", "b", "c", "d"), unary, pairs, np.zeros(N))


def _truth() -> Truth:
    return full_observation(small_bundle(), VALUES)


def _paths() -> None:
    sign_paths(small_bundle(), VALUES, ORDERS[:, None])
    solve_paths(small_bundle(), VALUES, ORDERS[:, None])
    readings(small_bundle(), VALUES, ORDERS, [0, M])


def _gauges() -> None:
    gauge_paths(small_bundle(), VALUES, ORDERS[:, None], [0, M])


def _rules() -> None:
    drawn = follow_rule(small_bundle(), VALUES, _truth(), allocation="random", orders=ORDERS, k=1)
    for rule, (gain, target) in product(RULE_NAMES, GAIN_KINDS):
        follow_rule(small_bundle(), VALUES, _truth(), allocation=rule, gain=gain, target=target, orders=ORDERS, k=1)
    first_signs(small_bundle(), small_bundle(), VALUES, 1)
    place = drawn.record.place.reshape(len(VALUES), -1, N)
    right = np.ones((len(VALUES), N), dtype=np.bool_)
    k = np.ones(len(VALUES), dtype=np.int64)
    precision_at_k(place, k, right, right, k)
    precision_at_k(place, k, right, among=right)


def _retraced() -> None:
    retrace(small_bundle(), VALUES, ORDERS, gain="cmi", k=1)


def _stopping() -> None:
    watch(small_bundle(), VALUES, ORDERS, k=1)
    watch_task(task_of(small_bundle(), "u"), VALUES, ORDERS)


def _brackets() -> None:
    winners, solver = _truth().winner, Solver()
    call_paths(small_bundle(), VALUES, ORDERS[:, None], winners)
    shared_order_calls(small_bundle(), VALUES, ORDERS[:, None], winners, solver=solver)
    own_order_calls(small_bundle(), VALUES, np.tile(ORDERS[0], (N, 1)), winners, solver=solver)


def _tasks() -> None:
    task = task_of(small_bundle(), "u")
    follow_orders(task, VALUES, ORDERS[:, None])
    for gain, target in GAIN_KINDS:
        follow_gain(task, VALUES, gain=gain, target=target)
    for coupling in COUPLINGS:
        elbo_differences(small_bundle(), "u", np.zeros(VALUES.shape, dtype=np.bool_), VALUES, coupling=coupling)


def _exactly() -> None:
    model = small_bundle().mrf("u")
    annealed(model, chains=2, steps=2)
    log_partitions(model, np.zeros((1, M), dtype=np.bool_), np.zeros((1, M), dtype=np.int8))
    score_distribution(model)


def _planners() -> None:
    name_rank, nothing = np.arange(N), np.zeros(M)
    model_distances(pack(small_bundle(), overlaps=False), sharing_of(small_bundle()), nothing, nothing > 0)
    for gain, target in GAIN_KINDS:
        patient = Patient(small_bundle(), gain=gain, target=target)
        patient.observe(0, 1)
        for score in ("linearity", "wald", "two_elbo", "stack_a", "kl", "kl_nonzero"):
            patient.scores(score)
        patient.ranks(name_rank)
        patient.total_gain(patient.resolved())


PARTS: tuple[Callable[[], None], ...] = (
    _rules,
    _gauges,
    _brackets,
    _stopping,
    _planners,
    _tasks,
    _retraced,
    _exactly,
)


def compile_all(processes: int | None = None) -> None:
    """Compile what has not been; all cores where `processes` is None."""
    _paths()  # first and alone: what all others build on
    with ProcessPoolExecutor(processes or len(os.sched_getaffinity(0)), mp_context=get_context("spawn")) as pool:
        for done in [pool.submit(part) for part in PARTS]:
            done.result()


if __name__ == "__main__":
    compile_all()
