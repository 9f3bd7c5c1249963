"""Compile all kernels in advance by the command `python -m afa.engine.warm`.

Without this command, numba compiles each kernel at its first call. If many jobs start at the same time on a cluster,
each of them then compiles the same kernels. The command calls the functions of the engine on a small bundle, in
parallel processes.
"""

from __future__ import annotations

import logging
import os
import sys
from collections.abc import Callable
from concurrent.futures import ProcessPoolExecutor, as_completed
from contextlib import suppress
from functools import cache
from multiprocessing import get_context

import numpy as np
from filelock import FileLock, Timeout

from afa.engine.compile import ALL_KERNELS, PLANNER_KERNELS, cache_folder, compiled_groups, keeps_kernels, write_list
from afa.engine.elimination import log_partitions
from afa.engine.follow import follow
from afa.engine.frontier import frontier_paths
from afa.engine.gains import GAIN_KINDS
from afa.engine.gauges import gauge_paths
from afa.engine.layout import pack
from afa.engine.outcomes import own_order_calls, shared_order_calls
from afa.engine.patient import Patient
from afa.engine.ranks import precision_at_k
from afa.engine.run import SIGNS
from afa.engine.sharing import model_distances, sharing_of
from afa.engine.state import new_state, solve_all
from afa.engine.sweeps import Iteration
from afa.engine.tasks import elbo_differences, follow_gain, task_of
from afa.model.arrays import Codes, Ints
from afa.model.bundle import Bundle, PackedCouplings
from afa.model.closure import COUPLINGS
from afa.scores.belief import Background, ScoreTable

_log = logging.getLogger("afa")
N, M = 3, 4
ITERATION = Iteration(0.5, 1e-4, 200, False)
SMALL_VALUES: Codes = np.array([[1, 0, -1, 1], [0, 1, 1, -1]], dtype=np.int8)
SMALL_ORDERS: Ints = np.array([[0, 1, 2, 3], [3, 2, 1, 0]], dtype=np.int64)


@cache
def small_bundle() -> Bundle:
    """Return a bundle of three entities and four features, with couplings in each entity."""
    pairs = PackedCouplings(
        np.array([0, 2, 3, 4], dtype=np.int64),
        np.array([0, 1, 1, 2], dtype=np.int32),
        np.array([1, 2, 2, 3], dtype=np.int32),
        np.array([0.5, -0.5, 1.0, 0.5]),
    )
    unary = np.array([[1.0, 1.0, -1.0, 0.0], [0.0, -1.0, 1.0, 0.0], [0.0, 0.0, 1.0, 1.0]])
    return Bundle("warm", "1", ("u", "v", "w"), ("a", "b", "c", "d"), unary, pairs, np.zeros(N))


def _warm_up_states() -> None:
    packed = pack(small_bundle())
    state = new_state(packed)
    solve_all(packed, state, ITERATION, True)


def _warm_up_walk() -> None:
    follow(small_bundle(), SMALL_VALUES, SMALL_ORDERS, SIGNS)
    for gain, target in GAIN_KINDS:
        follow_gain(task_of(small_bundle(), "u"), SMALL_VALUES, gain=gain, target=target)


def _warm_up_gauges() -> None:
    gauge_paths(small_bundle(), SMALL_VALUES, SMALL_ORDERS[:, None], [0, M])


def _warm_up_brackets() -> None:
    winners = np.ones((len(SMALL_VALUES), N), dtype=np.int8)
    shared_order_calls(small_bundle(), SMALL_VALUES, SMALL_ORDERS[:, None], winners)
    own_order_calls(small_bundle(), SMALL_VALUES, np.tile(SMALL_ORDERS[0], (N, 1)), winners)


def _warm_up_tasks() -> None:
    for coupling in COUPLINGS:
        elbo_differences(
            small_bundle(), "u", np.zeros(SMALL_VALUES.shape, dtype=np.bool_), SMALL_VALUES, coupling=coupling
        )
    right, k = np.ones((len(SMALL_VALUES), N), dtype=np.bool_), np.ones(len(SMALL_VALUES), dtype=np.int64)
    place = np.zeros((len(SMALL_VALUES), 2, N), dtype=np.int16)
    precision_at_k(place, k, right, right, k)
    precision_at_k(place, k, right, among=right)
    frontier_paths(ScoreTable.of_bundle(small_bundle()), Background.uniform(small_bundle()), SMALL_VALUES, 2)


def _warm_up_elimination() -> None:
    model = small_bundle().mrf("u")
    log_partitions(model, np.zeros((1, M), dtype=np.bool_), np.zeros((1, M), dtype=np.int8))


def _warm_up_planners() -> None:
    name_rank, nothing = np.arange(N), np.zeros(M)
    model_distances(pack(small_bundle(), overlaps=False), sharing_of(small_bundle()), nothing, nothing > 0)
    for gain, target in GAIN_KINDS:
        patient = Patient(small_bundle(), gain=gain, target=target)
        patient.observe(0, 1)
        for score in ("linearity", "wald", "two_elbo", "stack_a", "kl", "kl_nonzero"):
            patient.scores(score)
        patient.known_ranks("linearity", name_rank)
        patient.total_gain(patient.resolved())
        patient.gain_of([1], np.arange(N))


WARM_UP_STEPS: tuple[Callable[[], None], ...] = (
    _warm_up_walk,
    _warm_up_planners,
    _warm_up_gauges,
    _warm_up_elimination,
    _warm_up_tasks,
)


def compile_all(processes: int | None = None) -> None:
    """Compile all kernels in `processes` parallel processes, unless they are compiled already.

    None means one for each core.
    """
    if not keeps_kernels() or ALL_KERNELS in compiled_groups():
        return
    _warm_up_states()  # compile these kernels first, because all parts use them
    workers = processes or len(os.sched_getaffinity(0))
    with ProcessPoolExecutor(workers, mp_context=get_context("spawn"), initializer=_silence_log) as pool:
        begun = {pool.submit(part): part for part in WARM_UP_STEPS}
        for n, done in enumerate(as_completed(begun), start=1):
            done.result()
            _log.warning(
                "afa: compiled kernels of %s, %d of %d",
                begun[done].__name__.removeprefix("_warm_up_"),
                n,
                len(WARM_UP_STEPS) + 1,
            )
    _warm_up_brackets()  # run this step last, because it uses the kernels of `_warm_up_walk`
    write_list(PLANNER_KERNELS, ALL_KERNELS)


def _silence_log() -> None:
    _log.setLevel(logging.ERROR)


def compile_planners() -> None:
    """Compile the kernels of the planners, unless another process is compiling them.

    This process gets a low priority.
    """
    os.nice(19)
    folder = cache_folder()
    if folder is None or not keeps_kernels() or PLANNER_KERNELS in compiled_groups():
        return
    with suppress(Timeout), FileLock(folder / "planners.lock", timeout=0):
        _warm_up_planners()
        write_list(PLANNER_KERNELS)


if __name__ == "__main__":
    compile_planners() if sys.argv[1:] == ["planners"] else compile_all()
