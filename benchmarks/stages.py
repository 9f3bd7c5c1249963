"""Stages as jobs: the allocation grid, all binary tasks, by how often too, both gauges of duels, exact log-odds."""

from __future__ import annotations

import time
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import numpy as np
import pandas as pd

from afa.engine.elimination import log_partitions
from afa.engine.gauges import gauge_paths
from afa.engine.tasks import follow_gain, follow_orders, task_of
from afa.inference.exact import exact
from afa.model.bundle.rates import NO_ROWS, Rates
from afa.model.features import features_of
from afa.model.rule_names import RULE_NAMES
from afa.paper.experiments import allocation, binary
from afa.paper.experiments.allocation.tables import cells_of
from afa.paper.experiments.binary import TASK_ORDERS
from afa.paper.experiments.settings import Allocation, ClosureSettings, Inference, RandomOrder

if TYPE_CHECKING:
    from jobs import Inputs

SEEDS = (0, 1, 2)
GAUGE_PATIENTS = 20
EXACT_PATIENTS = 20
HALVES = (0.5, -0.5)


def allocation_stage(inputs: Inputs, _: str) -> dict[str, Any]:
    """Every cell of the grid for the whole cohort, after one patient of each cell that warms the kernels up."""
    bundle, cohort = inputs.bundle, inputs.cohort
    grid, patients = (
        Allocation(rules=RULE_NAMES, seeds=SEEDS),
        range(len(cohort.patients))[: 2 if inputs.quick else None],
    )
    cells = cells_of(grid.rules, grid.gains, grid.schedules)
    options: dict[str, Any] = {"allocation": grid, "top_k": 5, "inference": Inference()}
    allocation.run(bundle, cohort, patients[:1], **options)
    begin = time.perf_counter()
    tables = allocation.run(bundle, cohort, patients, **options)
    seconds = time.perf_counter() - begin
    runs = int((tables["choices"]["t"] == 0).sum())
    shown = f"{len(cells)} cells x {len(patients)} patients, every round read out, tables included"
    return {"seconds": seconds, "units": runs, "note": shown}


def binary_stage(inputs: Inputs, _: str) -> dict[str, Any]:
    """All tasks of the cohort, after one task that warms the kernels up."""
    bundle, cohort = inputs.bundle, inputs.cohort
    options: dict[str, Any] = {"inference": Inference(), "closure": ClosureSettings()}
    one = bundle.restrict_entities(bundle.entities[:1])
    binary.run(one, cohort, random_order=RandomOrder(seeds=SEEDS[:1]), **options)
    begin = time.perf_counter()
    tables = binary.run(bundle, cohort, random_order=RandomOrder(seeds=SEEDS), **options)
    orders = len(SEEDS) + len(TASK_ORDERS) - 1  # the first is drawn by each seed
    shown = f"{len(cohort.patients)} patients x {len(bundle.entities)} tasks x {orders} orders, tables included"
    return {"seconds": time.perf_counter() - begin, "units": len(tables["targets"]) * orders, "note": shown}


def by_how_often(inputs: Inputs, _: str) -> dict[str, Any]:
    """All tasks in random orders and as `greedy` chooses, by how often and by the paper's closure, in turn: minima.

    Directions tilt uniform probabilities (docs/decisions.md, F10), so that both have the same features and couplings.
    """
    bundle, n = inputs.bundle, min(2 if inputs.quick else 20, len(inputs.cohort.patients))
    features = features_of(pd.DataFrame({"feature": bundle.features, "kind": "continuous"}))
    bundle = replace(bundle, rates=Rates(len(bundle.features), features, NO_ROWS))
    values, orders, seconds = inputs.cohort.values[:n], inputs.orders(n), {}
    tasks = {
        gauge: [task_of(bundle, entity, coupling=gauge) for entity in bundle.entities]
        for gauge in ("explicit", "differential")
    }
    for _ in range(1 + inputs.repeats):  # the first loads the kernels
        for gauge, of_all in tasks.items():
            begin = time.process_time()
            for task in of_all:
                follow_orders(task, values, orders)
                follow_gain(task, values, gain="cmi")
            seconds[gauge] = min(seconds.get(gauge, np.inf), time.process_time() - begin)
    times = seconds["explicit"] / seconds["differential"]
    shown = f"{n} patients x {len(bundle.entities)} tasks x 2 orders; {times:.2f} times the paper's closure"
    return {"seconds": seconds["explicit"], "units": 2 * n * len(bundle.entities), "note": shown, "times": times}


def gauge_stage(inputs: Inputs, _: str) -> dict[str, Any]:
    """Every duel of some patients in both gauges, one order each."""
    n = min(2 if inputs.quick else GAUGE_PATIENTS, len(inputs.cohort.patients))
    values, orders, grid = inputs.cohort.values[:n], inputs.orders(n), [0, len(inputs.bundle.features)]
    gauge_paths(inputs.bundle, values[:1], orders[:1], grid)
    begin = time.perf_counter()
    gauge_paths(inputs.bundle, values, orders, grid)
    duels = len(inputs.bundle.entities) * (len(inputs.bundle.entities) - 1) // 2
    return {"seconds": time.perf_counter() - begin, "units": n, "note": f"{duels} duels x every round, both gauges"}


def exact_states(inputs: Inputs, share: str) -> dict[str, Any]:
    """Exact log-odds of many states in which a share of the features is known; one by one for a few, for the ratio."""
    bundle, known = inputs.bundle, float(share)
    n = min(2 if inputs.quick else EXACT_PATIENTS, len(inputs.cohort.patients))
    values = inputs.cohort.values[:n]
    first = int(known * len(bundle.features))
    observed = np.zeros(values.shape, dtype=bool)
    np.put_along_axis(observed, inputs.orders(n)[:, 0, :first], values=True, axis=1)
    models = [bundle.mrf(entity) for entity in bundle.entities]
    log_partitions(models[0], observed[:1], values[:1], factors=HALVES)
    begin = time.perf_counter()
    together = [log_partitions(model, observed, values, factors=HALVES) for model in models]
    seconds = time.perf_counter() - begin
    begin = time.perf_counter()
    for model, log_z in zip(models, together, strict=True):
        seen = {bundle.features[j]: int(values[0, j]) for j in np.flatnonzero(observed[0])}
        alone = [exact(model.scaled(factor), seen).log_partition for factor in HALVES]
        np.testing.assert_allclose(log_z[0], alone, rtol=1e-9)
    one_by_one = (time.perf_counter() - begin) / len(models)
    ratio = one_by_one / (seconds / (n * len(models)))
    shown = f"{100 * known:.0f} % of the features known; afa.exact takes {ratio:.0f} times as long a state"
    return {"seconds": seconds, "units": n * len(models), "note": shown}
