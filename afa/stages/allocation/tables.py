"""The allocation grid: every rule by every gain and schedule, over all patients and rounds (tab:m2_alloc).

A cell of the grid is (allocation, gain, schedule). All are guided by `linearity`; each round is read out by
`linearity` and by `wald` (decisions.md A11).
"""

from __future__ import annotations

import resource
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from itertools import product
from typing import Any

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from afa.allocate.check import rule_of
from afa.bundle import Bundle
from afa.cohort.cohort import Cohort
from afa.engine.ranks import precision_at_k
from afa.engine.rounds import READOUTS, RulePaths, Truth, follow_rule, full_observation
from afa.inference.meanfield import Solver
from afa.orders import PAPER_ROUNDS, random_orders
from afa.rulenames import RULE_NAMES, WITHOUT_GAIN
from afa.stages.allocation.cubes import DUELS, Cell
from afa.stages.allocation.own_rule import follow_own_rule
from afa.stages.inputs import labels_of
from afa.stats.arrays import by_patient, rows_of

GAINS = ("wald_magnitude", "cmi", "f_target")
TARGET = {"f_target": "linearity"}
SCHEDULES: dict[str, Sequence[int] | None] = {"every": None, "paper": PAPER_ROUNDS}


def grid_cells(rules: Sequence[str], gain: str, schedules: Sequence[str]) -> list[Cell]:
    """The cells of one gain; with "" those of the rules that look at no gain. `random` has no schedule but `every`."""
    if not gain:
        drawn = [Cell(rule, "", "every") for rule in rules if rule == "random"]
        return drawn + [Cell(rule, "", s) for rule, s in product(rules, schedules) if rule == "largest_unary"]
    return [Cell(rule, gain, schedule) for rule, schedule in product(rules, schedules) if rule not in WITHOUT_GAIN]


def allocation_grid(
    bundle: Bundle,
    cohort: Cohort,
    patients: Sequence[int],
    cells: Sequence[Cell],
    *,
    k: int,
    seeds: Sequence[int],
    solver: Solver,
    threads: int | None = None,
    report: Callable[[str], None] = lambda _: None,
) -> dict[str, pd.DataFrame]:
    """Follow the chosen patients (row indices of the cohort) through every cell; `random` once for each seed.

    `report` gets one line a cell: its time, and the largest memory that the process has had so far.

    Returns two tables, by (patient, allocation, gain, schedule, seed, t), patient by patient.

    `rounds`, also by `method`, the readout: `right`, duels called right, a tie counting one half, of those with a
    winner at full observation; `right_first`, of those that the first entity wins; `right_prior_wrong`, of those that
    `linearity` calls wrong before any observation. `p_at_k`, overlap of the k best with those at full observation, over
    k; `clinical_p_at_k` and `clinical_r_precision`, positives among the labelled entities that rank highest, over their
    number: k', or as many as are positive; missing where the patient has no positive label (decisions.md S10).

    `choices`: `feature`, the one observed as the t-th, missing at t = 0; `fallback`, whether decisions.md A7 chose it;
    `resolved`, duels that no completion can change, and `resolved_wrong`, those of them that full observation does not
    bear out; `certified`, whether the top k cannot change any more.
    """
    names = [cohort.patients[p] for p in patients]
    values = cohort.values[list(patients)]
    truth = full_observation(bundle, values, solver=solver)
    targets = Targets.of(truth, labels_of(bundle, cohort)[list(patients)], k, clinical_k(bundle, cohort, k))
    parts: dict[str, list[pd.DataFrame]] = {"rounds": [], "choices": []}
    for cell in cells:
        began = time.perf_counter()
        for seed in seeds if cell.allocation == "random" else (0,):
            paths = _follow(bundle, values, names, truth, cell, seed, k=k, solver=solver, threads=threads)
            keys: dict[str, Any] = {**cell._asdict(), "seed": seed}
            parts["rounds"].append(_rounds(paths, targets, names, threads).assign(**keys))
            parts["choices"].append(_choices(paths, names, bundle.features).assign(**keys))
        seconds, peak = time.perf_counter() - began, resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
        label = " ".join(filter(None, (cell.allocation, cell.gain, cell.schedule)))
        report(f"{label}: {len(names)} patients, {seconds:.2f} s, peak {peak:.0f} MiB")
    return {name: by_patient(tables, names) for name, tables in parts.items()}


@dataclass(frozen=True, eq=False)
class Targets:
    """What counts as a right top k, of P patients.

    sure, tied, slots : (P, N), (P, N), (P,): entities among the k best at full observation, those that tie for the last
    places, and how many of these there are. labels : (P, N) float, 0, 1 or NaN.
    """

    k: int
    k_clinical: int
    sure: NDArray[np.bool_]
    tied: NDArray[np.bool_]
    slots: NDArray[np.int64]
    labels: NDArray[np.float64]

    @classmethod
    def of(cls, truth: Truth, labels: NDArray[np.float64], k: int, k_clinical: int) -> Targets:
        size = (truth.place[:, :, None] == truth.place[:, None, :]).sum(axis=2)
        sure = truth.place + size <= k
        tied = (truth.place < k) & ~sure
        return cls(k, k_clinical, sure, tied, k - sure.sum(axis=1), labels)

    def precisions(self, place: NDArray[np.int16], threads: int | None) -> dict[str, NDArray[np.float64]]:
        """The three precisions of rankings (P, R, N), each (P, R)."""
        n = len(place)
        positive, labelled = self.labels == 1, ~np.isnan(self.labels)
        n_positive = positive.sum(axis=1)
        ranked = np.where(n_positive > 0, np.minimum(self.k_clinical, labelled.sum(axis=1)), 0)
        return {
            "p_at_k": precision_at_k(place, np.full(n, self.k), self.sure, self.tied, self.slots, threads=threads),
            "clinical_p_at_k": precision_at_k(place, ranked, positive, among=labelled, threads=threads),
            "clinical_r_precision": precision_at_k(place, n_positive, positive, among=labelled, threads=threads),
        }


def clinical_k(bundle: Bundle, cohort: Cohort, k: int) -> int:
    """Size k' = min(k, floor(L / 2)) of the top set where a cohort labels L of the entities (decisions.md S10)."""
    labelled = int((~np.isnan(labels_of(bundle, cohort))).any(axis=0).sum())
    return min(k, labelled // 2)


def _follow(
    bundle: Bundle,
    values: NDArray[np.int8],
    names: Sequence[str],
    truth: Truth,
    cell: Cell,
    seed: int,
    *,
    k: int,
    solver: Solver,
    threads: int | None,
) -> RulePaths:
    gain, rescoring = cell.gain or None, SCHEDULES[cell.schedule]
    target = TARGET.get(cell.gain)
    if cell.allocation not in RULE_NAMES:
        rule = rule_of(cell.allocation)
        return follow_own_rule(
            bundle, values, truth, rule, gain=gain, target=target, rescoring=rescoring, k=k, solver=solver, names=names
        )
    orders = None
    if cell.allocation == "random":
        orders = random_orders(bundle.features, names, [seed])[:, 0]
    return follow_rule(
        bundle,
        values,
        truth,
        allocation=cell.allocation,
        gain=gain,
        target=target,
        rescoring=rescoring,
        orders=orders,
        k=k,
        solver=solver,
        threads=threads,
    )


def _rounds(paths: RulePaths, targets: Targets, names: Sequence[str], threads: int | None) -> pd.DataFrame:
    right = paths.record.right
    n_patients, n_rounds, n_readouts = right.shape[:3]
    place = paths.record.place.reshape(n_patients, n_rounds * n_readouts, paths.record.place.shape[3])
    table = rows_of(patient=names, t=np.arange(n_rounds, dtype=np.int16), method=READOUTS)
    counts = dict(zip(DUELS, np.moveaxis(right, -1, 0).reshape(len(DUELS), -1), strict=True))
    return table.assign(**counts, **{name: each.ravel() for name, each in targets.precisions(place, threads).items()})


def _choices(paths: RulePaths, names: Sequence[str], features: tuple[str, ...]) -> pd.DataFrame:
    n_patients, n_rounds = paths.record.certified.shape
    chosen = np.full((n_patients, n_rounds), None, dtype=object)
    chosen[:, 1:] = np.array(features, dtype=object)[paths.order]
    fallback = np.zeros((n_patients, n_rounds), dtype=bool)
    fallback[:, 1:] = paths.fallback
    record = {name: getattr(paths.record, name).ravel() for name in ("resolved", "resolved_wrong", "certified")}
    table = rows_of(patient=names, t=np.arange(n_rounds, dtype=np.int16))
    return table.assign(feature=chosen.ravel(), fallback=fallback.ravel(), **record)


def cells_of(rules: Sequence[str], gains: Sequence[str], schedules: Sequence[str]) -> Iterator[tuple[str, list[Cell]]]:
    """The grid, part by part: the name of each part and its cells."""
    for gain in ("", *gains):
        cells = grid_cells(rules, gain, schedules)
        if cells:
            yield gain or "none", cells
