"""Acquisition on measured patients: what each way of choosing features would have needed.

Patients are followed block by block, so that memory grows with their number only by their values and the resamples.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from itertools import product
from typing import Any, NamedTuple, Protocol

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from afa.bundle import Bundle
from afa.closure import Closure
from afa.cohort.cohort import Cohort
from afa.engine.course import MISSING
from afa.errors import BundleError, Fault
from afa.inference.meanfield import Solver
from afa.mrf import Floats
from afa.orders import random_order
from afa.planner.options import gauge_of
from afa.stages.inputs import check_encoding, check_possible
from afa.stages.simulate.binary import BinaryTask, check_binary
from afa.stages.simulate.tables import CONSTANT, Sums, curves, features_needed
from afa.stages.simulate.walks import CHOOSES_WITHOUT_GAIN, DRAWN, Gauge, TopKTask, Walk, Way, planner_of, prices_of
from afa.stats.resampling import patient_weights

BLOCK = 128
"""Patients that are followed at a time."""


class Setting(Protocol):
    """What is asked of patients: `TopKTask` or `BinaryTask`."""

    def look(self, names: Sequence[str], values: NDArray[np.int8], rows: slice) -> Any: ...

    def constant(self, seen: Any) -> Walk: ...

    def walk(self, seen: Any, way: Way, seed: int, tick: Callable[[int], None]) -> Walk: ...


class Simulation(NamedTuple):
    """The tables of a simulation: `afa.stages.simulate.tables` tells their columns."""

    curves: pd.DataFrame
    features_needed: pd.DataFrame


def ways_of(allocations: Sequence[str], gains: Sequence[str], scores: Sequence[str]) -> list[Way]:
    """Every rule with every gain and score; a rule that looks at no gain once for each score."""
    gains_of = {rule: ("",) if rule in CHOOSES_WITHOUT_GAIN else tuple(gains) for rule in allocations}
    return [Way(rule, gain, score) for score, rule in product(scores, allocations) for gain in gains_of[rule]]


def runs_of(ways: Sequence[Way], seeds: Sequence[int]) -> list[tuple[Way, int]]:
    """What is followed: each way once, those that draw their order once for each seed."""
    return [(way, seed) for way in ways for seed in (seeds if way.allocation in DRAWN else seeds[:1])]


def some_patients(cohort: Cohort, n: int | None, seed: int) -> Cohort:
    """The cohort, or n of its patients, drawn by their names alone."""
    if n is None or n >= len(cohort.patients):
        return cohort
    drawn = sorted(random_order(cohort.patients, patient="", seed=seed, experiment="simulate")[:n].tolist())
    names = tuple(cohort.patients[i] for i in drawn)
    labels = cohort.labels.iloc[drawn]
    return Cohort(cohort.name, cohort.features, names, cohort.values[drawn], labels, cohort.provenance)


def simulate(
    bundle: Bundle,
    cohort: Cohort,
    ways: Sequence[Way],
    *,
    k: int = 1,
    entity: str | None = None,
    coupling: Closure | None = None,
    holds: str | None = None,
    tau: float | str | None = None,
    measured: NDArray[np.bool_] | None = None,
    costs: str = "own",
    seeds: Sequence[int] = (0,),
    resamples: int = 1000,
    confidence: float = 0.95,
    solver: Solver | None = None,
    threads: int = 1,
    tick: Callable[[int], None] = lambda _: None,
) -> Simulation:
    """Follow the patients of a cohort on the bundle's features through every way; the same for any number of threads.

    The top-k setting with `k` entities, or with `entity` the binary one.
    coupling, holds, tau : as of the planners. measured : (P, M) which values of the cohort were; all unless given.
    costs : `own`, those of the bundle, which rules weigh gains by, or `equal`. Rules that draw their order are followed
    once for each seed. `tick` is called with how many walks of a patient are done.

    Raises
    ------
    BundleError : fewer than two entities for the top-k setting, or no such entity. PlannerError : k, a score, a gain or
    a rule that no planner takes. ConfigError : one that the binary setting does not take. CohortError : the
    probabilities of the bundle are of values that are encoded otherwise.

    """
    if bundle.implies:
        found, step = "implications (implies.csv)", "give phenopackets to `afa simulate`"
        raise BundleError(Fault(f"bundle {bundle.name}", found, "none on a table of values", step))
    gauge = Gauge(gauge_of(bundle, coupling), holds=holds, tau=tau)
    if gauge.coupling == "explicit":
        check_encoding(bundle, cohort)
    check_possible(bundle, cohort, measured)
    values = cohort.values if measured is None else np.where(measured, cohort.values, np.int8(MISSING))
    n_patients, labels = len(cohort.patients), _labels(bundle, cohort)
    asked = np.full(n_patients, np.nan) if entity is None else labels[:, bundle.index(entity)]
    blocks = [slice(first, min(first + BLOCK, n_patients)) for first in range(0, n_patients, BLOCK)]
    setting = _setting(
        bundle,
        values,
        labels if entity is None else asked,
        blocks,
        ways,
        k=k,
        entity=entity,
        gauge=gauge,
        prices=prices_of(bundle, costs),
        solver=solver or Solver(),
        threads=threads,
    )
    resampled = patient_weights(n_patients, resamples=resamples, purpose="simulate")
    weights = np.concatenate([np.ones((1, n_patients)), resampled])
    has_labels = bool((~np.isnan(asked)).any())
    runs = {run: Sums() for run in runs_of(ways, seeds)}
    constant = Sums()
    for rows in blocks:
        seen = setting.look(cohort.patients[rows], values[rows], rows)
        constant.add(setting.constant(seen), weights[:, rows], keep_scores=False)
        for (way, seed), sums in runs.items():
            sums.add(setting.walk(seen, way, seed, tick), weights[:, rows], keep_scores=has_labels)
    every = {**runs, (CONSTANT, seeds[0]): constant}
    return Simulation(curves(every, weights, asked, len(bundle.features) + 1, confidence), features_needed(runs))


def _setting(
    bundle: Bundle,
    values: NDArray[np.int8],
    labels: Floats,
    blocks: Sequence[slice],
    ways: Sequence[Way],
    *,
    k: int,
    entity: str | None,
    gauge: Gauge,
    prices: Floats | None,
    solver: Solver,
    threads: int,
) -> Setting:
    """The setting that was asked for, every way of which can be gone."""
    if entity is not None:
        for way in ways:
            check_binary(way, bundle, entity, gauge, solver)
        return BinaryTask.of(
            bundle,
            values,
            labels,
            blocks,
            entity=entity,
            gauge=gauge,
            prices=prices,
            solver=solver,
            threads=threads,
        )
    if len(bundle.entities) < 2:
        step = "add entities, or ask for the one with --entity"
        raise BundleError(Fault(f"bundle {bundle.name}", "one entity", "two or more, to have a top k", step))
    for way in ways:
        planner_of(bundle, way, k, gauge, solver)
    return TopKTask.of(bundle, values, labels, blocks, k=k, prices=prices, gauge=gauge, solver=solver, threads=threads)


def _labels(bundle: Bundle, cohort: Cohort) -> Floats:
    """(P, N) labels in bundle order, NaN where missing."""
    labels = cohort.labels.reindex(columns=list(bundle.entities))
    values: Floats = labels.astype("Float64").to_numpy(dtype=np.float64, na_value=np.nan)
    return values
