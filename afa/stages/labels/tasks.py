"""Labels as binary tasks under several encodings of one cohort and several closures, and how patients go through them.

t is counted over the entity's support, in per cent of it. Labels are read by the metrics alone.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from itertools import compress

import numpy as np
from numpy.typing import NDArray

from afa.bundle import Bundle
from afa.closure import COUPLINGS, STRENGTH, Closure
from afa.cohort.cohort import Cohort
from afa.engine.tasks import elbo_differences, follow_gain, task_of
from afa.inference.meanfield import Solver
from afa.mrf import Floats
from afa.orders import random_order
from afa.stages.inputs import Reference

Values = NDArray[np.int8]
GREEDY = "greedy"
RANDOM = "random"
HIDDEN = 2
"""Stands for a value that has not been observed."""
DIGITS = 9
"""Scores in nats that agree to so many decimals are one score: what parts them is the order of their sums."""


@dataclass(frozen=True)
class Setting:
    """One encoding of a cohort and one closure; `variant` is empty for the settings fixed beforehand."""

    reference: Reference
    coupling: Closure
    threshold: float | None = None
    strength: float = STRENGTH
    variant: str = ""

    @property
    def keys(self) -> dict[str, str]:
        return {"reference": self.reference, "coupling": self.coupling, "variant": self.variant}


def settings_of(
    references: Sequence[Reference],
    thresholds: Sequence[float],
    strengths: Sequence[float],
    explicit: Sequence[Reference] = (),
    *,
    closed: bool = True,
) -> list[Setting]:
    """Every reference with every coupling; first of each list what was fixed beforehand, then the grid around it.

    explicit : the references under which probabilities of the bundle hold. closed : whether the bundle has the paper's
    closures, whose features have three values.
    """
    found, own = [], [reference for reference in references if reference != "cohort"]
    for coupling in COUPLINGS if closed else ():
        for strength in strengths if coupling == "shared" else strengths[:1]:
            varied = "" if strength == strengths[0] else f"strength={strength:g}"
            found += [Setting(reference, coupling, None, strength, varied) for reference in own]
            for threshold in thresholds if "cohort" in references else ():
                other = "" if threshold == thresholds[0] else f"threshold={threshold:g}"
                found.append(Setting("cohort", coupling, threshold, strength, f"{other} {varied}".strip()))
    found += [
        Setting(reference, "explicit", thresholds[0] if reference == "cohort" else None)
        for reference in references
        if reference in explicit
    ]
    return sorted(found, key=lambda setting: setting.variant != "")


@dataclass(frozen=True)
class Task:
    """One label under one setting: its patients' values (P, M), and which of them have it (P,)."""

    setting: Setting
    bundle: Bundle
    entity: str
    patients: tuple[str, ...]
    values: Values
    positive: NDArray[np.bool_]

    @property
    def support(self) -> NDArray[np.intp]:
        if self.setting.coupling == "explicit":
            return self.bundle.how_often(self.entity)[2]
        return self.bundle.support(self.entity)

    def counts(self, percents: Sequence[int]) -> list[int]:
        """Features observed at each share of the support, rounded up."""
        return [-(-percent * len(self.support) // 100) for percent in percents]


def tasks_of(
    bundle: Bundle, cohorts: Mapping[float | None, Cohort], settings: Sequence[Setting]
) -> tuple[list[Task], list[str]]:
    """The tasks of all settings, labels within; and the labels left out, of which one class has no patient.

    cohorts : one cohort by threshold, None for the run's own, which is encoded against controls or by ranges.
    """
    tasks, left_out = [], []
    labels = next(iter(cohorts.values())).labels
    for entity in (name for name in bundle.entities if name in labels):
        known = labels[entity].notna().to_numpy(dtype=bool)
        positive = (labels[entity] == 1).fillna(False).to_numpy(dtype=bool)[known]
        if positive.all() or not positive.any():
            left_out.append(entity)
            continue
        for setting in settings:
            cohort = cohorts[setting.threshold]
            names = tuple(compress(cohort.patients, known))
            tasks.append(Task(setting, bundle, entity, names, cohort.values[known], positive))
    return tasks, left_out


def of_one_model(tasks: Sequence[Task]) -> list[list[int]]:
    """Places of the tasks that one model scores: one label and one closure, under several encodings."""
    found: dict[tuple[str, Closure, float], list[int]] = {}
    for i, task in enumerate(tasks):
        found.setdefault((task.entity, task.setting.coupling, task.setting.strength), []).append(i)
    return list(found.values())


def in_random_order(
    task: Task, values: Values, percents: Sequence[int], seed: int, solver: Solver | None
) -> tuple[Floats, float]:
    """(V P, len(percents) + 2) F_1 - F_0 at 0, `percents` and 100 of a random order of the support; and its shift.

    values : (V P, M), V times the patients of the task, each time with other values. A state that several of them
    reach is solved once.
    """
    shown = task.counts([*percents, 100])
    support, rank = task.support, places(task.bundle.features, task.patients, seed)
    place = rank[:, support].argsort(axis=1).argsort(axis=1)
    seen = np.tile(place[:, None, :] < np.array(shown)[:, None], (len(values) // len(place), 1, 1))
    known = np.where(seen, values[:, None, support], HIDDEN).reshape(-1, len(support))
    states, state_of = _distinct(known)
    observed = np.zeros((len(states), values.shape[1]), dtype=bool)
    observed[:, support] = states != HIDDEN
    told = np.zeros(observed.shape, dtype=np.int8)
    told[:, support] = states
    solved = elbo_differences(
        task.bundle,
        task.entity,
        observed,
        told,
        solver=solver,
        coupling=task.setting.coupling,
        strength=task.setting.strength,
        threads=1,
    )
    raw = np.column_stack([np.full(len(values), solved.start), solved.raw[state_of].reshape(len(values), -1)])
    return settled(raw), float(settled(np.array(solved.shift)))


def _distinct(rows: Values) -> tuple[Values, NDArray[np.intp]]:
    """The different rows of an array (R, n), and for each row its place among them, (R,)."""
    whole = np.ascontiguousarray(rows).view(np.dtype((np.void, rows.shape[1])))[:, 0]
    _, first, place = np.unique(whole, return_index=True, return_inverse=True)
    return rows[first], place


@lru_cache(maxsize=64)
def places(features: tuple[str, ...], patients: tuple[str, ...], seed: int) -> NDArray[np.int64]:
    """(P, M) place of each feature in each patient's random order; not to be changed."""
    orders = np.array([random_order(features, patient=patient, seed=seed) for patient in patients], dtype=np.int64)
    return np.argsort(orders, axis=1)


def as_greedy_chooses(
    task: Task, values: Values, percents: Sequence[int], solver: Solver | None, *, to_the_end: bool = True
) -> tuple[Floats, float]:
    """The same where the rule `greedy` chooses each patient's features by conditional mutual information.

    values : (V P, M); those of equal values so far are followed together. Without `to_the_end` no patient is followed
    further than `percents` ask, and the last column is NaN.
    """
    closure = {"coupling": task.setting.coupling, "strength": task.setting.strength}
    laid_out = task_of(task.bundle, task.entity, solver=solver, **closure)  # type: ignore[arg-type]
    counts = task.counts([0, *percents, 100])
    paths = follow_gain(laid_out, values, gain="cmi", last_step=None if to_the_end else max(counts[:-1]))
    shift = float(settled(np.array(laid_out.shift)))
    raw = settled(paths.two_elbo[:, 0, counts])
    raw[:, -1] = raw[:, -1] if to_the_end else np.nan
    return raw, shift


def settled(scores: Floats) -> Floats:
    """Scores without the rounding in which sums of the same numbers in another order differ."""
    rounded: Floats = np.round(scores, DIGITS) + 0.0
    return rounded
