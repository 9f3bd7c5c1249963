"""Acquisition on measured patients: what each way of choosing features would have needed.

Patients are followed block by block, so that memory grows with their number only by their values and the resamples.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import product
from typing import Any, NamedTuple

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from afa.bundle import Bundle
from afa.cohort.cohort import Cohort
from afa.engine.course import MISSING
from afa.errors import BundleError, Fault
from afa.mrf import Floats
from afa.orders import random_order
from afa.planner.options import gauge_of
from afa.stages.allocation.cubes import UNIT
from afa.stages.inputs import check_encoding, check_possible, labels_of
from afa.stages.labels.tasks import settled
from afa.stages.simulate.binary import BinaryTask
from afa.stages.simulate.walks import (
    CHOOSES_WITHOUT_GAIN,
    DRAWN,
    IN_UNITS,
    Setting,
    TopKTask,
    Walk,
    Way,
)
from afa.stats.accuracy import ranking, share_of
from afa.stats.resampling import patient_weights, with_interval


class Simulation(NamedTuple):
    """The tables of a simulation: `afa.stages.simulate` tells their columns."""

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
    return replace(cohort, patients=names, values=cohort.values[drawn], labels=cohort.labels.iloc[drawn])


def simulate(
    bundle: Bundle,
    cohort: Cohort,
    ways: Sequence[Way],
    setting: Setting,
    *,
    measured: NDArray[np.bool_] | None = None,
    tick: Callable[[int], None] = lambda _: None,
) -> Simulation:
    """Follow the patients of a cohort on the bundle's features through every way; the same for any number of threads.

    The top-k setting, or with an entity the binary one. measured : (P, M) which values of the cohort were; all unless
    given. `tick` is called with how many walks of a patient are done.

    Raises
    ------
    BundleError : fewer than two entities for the top-k setting, or no such entity. PlannerError : k, a score, a gain or
    a rule that no planner takes. ConfigError : one that the binary setting does not take. CohortError : the
    probabilities of the bundle are of values that are encoded otherwise.

    """
    if bundle.implies:
        found, step = "implications (implies.csv)", "give phenopackets to `afa simulate`"
        raise BundleError(Fault(f"bundle {bundle.name}", found, "none on a table of values", step))
    entity, setting = setting.entity, replace(setting, coupling=gauge_of(bundle, setting.coupling))
    if setting.explicit:
        check_encoding(bundle, cohort)
    elif entity is None:
        bundle = bundle.contrasts()
    check_possible(bundle, cohort, measured)
    values = cohort.values if measured is None else np.where(measured, cohort.values, np.int8(MISSING))
    n_patients, labels = len(cohort.patients), labels_of(bundle, cohort)
    asked = np.full(n_patients, np.nan) if entity is None else labels[:, bundle.index(entity)]
    if entity is None and len(bundle.entities) < 2:
        step = "add entities, or ask for the one with --entity"
        raise BundleError(Fault(f"bundle {bundle.name}", "one entity", "two or more, to have a top k", step))
    given: dict[str, Any] = {"bundle": bundle, "patients": cohort.patients, "values": values, "setting": setting}
    task = TopKTask(**given, labels=labels) if entity is None else BinaryTask(**given, labels=asked)
    for way in ways:
        task.check(way)
    resampled = patient_weights(n_patients, resamples=setting.resamples, purpose="simulate")
    weights = np.concatenate([np.ones((1, n_patients)), resampled])
    has_labels = bool((~np.isnan(asked)).any())
    runs = {run: Sums() for run in runs_of(ways, setting.seeds)}
    constant = Sums()
    for rows in task.blocks:
        seen: Any = task.look(rows)
        constant.add(task.constant(seen), weights[:, rows], keep_scores=False)
        for (way, seed), sums in runs.items():
            sums.add(task.walk(seen, way, seed, tick), weights[:, rows], keep_scores=has_labels)
    every = {**runs, (CONSTANT, setting.seeds[0]): constant}
    return Simulation(
        curves(every, weights, asked, len(bundle.features) + 1, setting.confidence), features_needed(runs)
    )


CURVES = ("allocation", "gain", "score", "seed", "t", "metric", "value", "low", "high", "n")
QUANTILES = {"q25": 0.25, "median": 0.5, "q75": 0.75, "p90": 0.9}
NEEDED = ("allocation", "gain", "score", "criterion", "counted", *QUANTILES, "never", "n", "left_out")
CONSTANT = Way("constant", "", "")


@dataclass
class Sums:
    """What is known of one run (a way and a seed) once all blocks of patients have been added, in their order.

    right : by metric, (R + 1, M + 1) weighted sums over patients, the first row unweighted; total : the same, or
    (R + 1, 1).
    needed : by criterion and what is counted, features or cost, one array a block. scores : the same, (B, M + 1) each.
    """

    right: dict[str, Any] = field(default_factory=lambda: defaultdict(float))
    total: dict[str, Any] = field(default_factory=lambda: defaultdict(float))
    needed: dict[tuple[str, str], list[Floats]] = field(default_factory=lambda: defaultdict(list))
    scores: list[Floats] = field(default_factory=list)
    _areas: Floats | None = None

    def add(self, walk: Walk, weights: Floats, *, keep_scores: bool) -> None:
        """Add a block of B patients; weights (R + 1, B) whole numbers, so that no order of adding up shows."""
        for metric, (right, total) in walk.parts.items():
            self.right[metric] += weights @ right
            self.total[metric] += weights @ total
        for criterion, numbers in walk.needed.items():
            self.needed[criterion].append(numbers)
        if keep_scores and walk.scores is not None:
            self.scores.append(walk.scores)

    def areas(self, labels: Floats, weights: Floats) -> Floats:
        """(R + 1, M + 1) AUROC of the scores against labels (P,) in {0, 1, NaN}; computed once."""
        if self._areas is None:
            known = ~np.isnan(labels)
            self._areas = areas_of(np.concatenate(self.scores)[known], labels[known] > 0, weights[:, known])
        return self._areas


Runs = Mapping[tuple[Way, int], Sums]


def curves(runs: Runs, weights: Floats, labels: Floats, n_rounds: int, confidence: float) -> pd.DataFrame:
    """`CURVES`, t from 0 to M; `seed` is missing where all runs of a way are taken together.

    weights : (R + 1, P) as the runs were added with. labels : (P,) in {0, 1, NaN}, which the scores of the runs are
    held against. n_rounds : M + 1.
    """
    tables, rounds = [], range(n_rounds)
    for way, seed, chosen in _together(runs):
        named = {**way._asdict(), "seed": seed}
        for metric in chosen[0].right:
            right = np.sum([each.right[metric] for each in chosen], axis=0)
            total = np.sum([each.total[metric] for each in chosen], axis=0)
            scale = UNIT if metric in IN_UNITS else 1
            share = np.broadcast_to(share_of(right, total * scale), (len(right), n_rounds))
            table = with_interval(share, confidence=confidence)
            tables.append(table.assign(t=rounds, **named, metric=metric, n=int(total[0, 0])))
        if chosen[0].scores:
            areas = np.mean([each.areas(labels, weights) for each in chosen], axis=0)
            cases = int((~np.isnan(labels)).sum()) * len(chosen)
            table = with_interval(areas, confidence=confidence)
            tables.append(table.assign(t=rounds, **named, metric="label_auroc", n=cases))
    whole = pd.concat(tables, ignore_index=True)
    return whole.assign(seed=whole["seed"].astype("Int64"))[list(CURVES)]


def features_needed(runs: Runs) -> pd.DataFrame:
    """`NEEDED`: quantiles over patients, and over the runs of a way, of what a criterion needed in order to hold.

    What is `counted` are the features, and where costs differ their cost too. A quantile is one of the numbers that
    occurred; missing where so many patients never reach it. `never` is the share that does not, of `n`; `left_out`
    counts those for whom the criterion has no meaning.
    """
    rows = []
    for way, seed, chosen in _together(runs):
        if seed is not pd.NA:
            continue
        for criterion, counted in chosen[0].needed:
            rounds = np.concatenate([part for each in chosen for part in each.needed[criterion, counted]])
            known = np.sort(rounds[~np.isnan(rounds)])
            row: dict[str, object] = {**way._asdict(), "criterion": criterion, "counted": counted}
            for name, share in QUANTILES.items():
                value = known[max(int(np.ceil(share * len(known))) - 1, 0)] if len(known) else np.inf
                row[name] = np.nan if np.isinf(value) else value
            row |= {"never": float(np.isinf(known).mean()) if len(known) else np.nan, "n": len(known)}
            rows.append(row | {"left_out": len(rounds) - len(known)})
    return pd.DataFrame(rows, columns=list(NEEDED))


def areas_of(scores: Floats, positive: NDArray[np.bool_], weights: Floats) -> Floats:
    """(R, T) area under the ROC curve of scores (P, T), patients weighted by each row of (R, P); ties count one half.

    Scores that differ by rounding are ties. NaN where only one class has a weight.
    """
    weights = np.asfortranarray(weights)
    return np.stack([ranking(column, positive, weights)[0] for column in settled(scores).T], axis=1)


def _together(runs: Runs) -> Iterator[tuple[Way, object, Sequence[Sums]]]:
    """The runs of each way together, seed missing, and where orders are drawn each by itself too."""
    for way in dict.fromkeys(way for way, _ in runs):
        seeds = [seed for of, seed in runs if of == way]
        yield way, pd.NA, [runs[way, seed] for seed in seeds]
        if way.allocation in DRAWN:
            for seed in seeds:
                yield way, seed, [runs[way, seed]]
