"""What labels would buy: classifiers trained on n labelled patients, beside the zero-shot scores, on the others.

The zero-shot scores are those of the stage `labels`, under the paper's choices and under both of the changes that need
no label. The classifiers see the same values, and are asked about patients whose labels they were not told.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterator, Mapping, Sequence
from itertools import product
from pathlib import Path
from typing import Annotated, Any

import numpy as np
import pandas as pd
from pydantic import Field

from afa.bundle import Bundle
from afa.cohort.cohort import Cohort, with_code
from afa.errors import CohortError, Fault
from afa.mrf import Floats
from afa.orders import generator_of
from afa.stages.base import Column, Section, Stage, described
from afa.stages.inputs import note
from afa.stages.labels.tasks import GREEDY, RANDOM, Setting, Task, tasks_of
from afa.stages.labels_needed.classifiers import (
    COUPLINGS,
    METHODS,
    Mask,
    Method,
    acquire,
    conditionals,
    one_thread,
    train,
)
from afa.stages.labels_needed.numbers import summarise as summarise
from afa.stats.tables import joined, rows_of


class Settings(Section):
    """Classifiers trained on labelled patients, beside the zero-shot scores of `labels` on all the others."""

    sizes: tuple[Annotated[int, Field(ge=2)], ...] = Field((10, 20, 50, 100), min_length=1)
    """numbers of labelled patients that classifiers are trained on, to be held against the zero-shot scores of
    `labels` (docs/labels_needed.md)"""
    repeats: int = Field(4, ge=1)
    """draws of the labelled patients"""
    permuted: int = Field(2, ge=0)
    """of these draws, how many are trained with shuffled labels as well"""
    labels: int = Field(6, ge=1)
    """labels used at most, chosen by hashes of their names"""
    tested: int = Field(20, ge=2)
    """patients that have to be left to be told; a number of labelled patients that leaves fewer is left out for that
    label"""
    of_each_class: int = Field(3, ge=1)
    """the same, of each class"""


OWN = {
    "size": Column("count", "labelled patients that it was trained on"),
    "reference": Column("", "what values were encoded against: controls, ranges or cohort"),
    "method": Column("", "classifier: logistic, boosting or naive_bayes"),
    "permuted": Column("", "whether it was trained on shuffled labels"),
    "repeat": Column("", "number of the draw of the labelled patients, from 0"),
    "t": Column("per cent", "of the features of the entity's support that have been observed"),
    "log_odds": Column("nats", "log-odds of class 1, both classes weighing the same in the training"),
    "labelled": Column("count", "patients whose label the classifier was told"),
    "labelled_positive": Column("count", "those of them who have it"),
    "tested": Column("count", "all other patients, whom it is asked about"),
    "tested_positive": Column("count", "those of them who have the label"),
    "coupling": Column("", "couplings of the zero-shot score"),
    "calibrated": Column("nats", "zero-shot log-odds of class 1, less their value at no observation"),
    "label": Column("", "label of the patient: 0 or 1"),
}
COLUMNS = {
    "left_out": "entity size reason cohort bundle",
    "predictions": "reference method permuted entity size repeat allocation t patient log_odds cohort bundle",
    "splits": "entity size repeat seed labelled labelled_positive tested tested_positive cohort bundle",
    "zero_shot": "reference coupling entity allocation seed patient t calibrated label cohort bundle",
}
STAGE = Stage(
    inputs=("bundle", "cohort", "by_cohort", "labels"),
    settings=("labels_needed",),
    scopes=True,
    section=Settings,
    labels=True,
    figure=("Past the paper", "classifiers by labelled patients"),
    tables=described(OWN, **COLUMNS),
    rows={"labels_needed": "how many labelled patients does a classifier need to do as well as the zero-shot score?"},
    space_mb=6.5,
)


def run(
    bundle: Bundle, cohort: Cohort, by_cohort: Path, labels: Mapping[str, pd.DataFrame], *, labels_needed: Settings
) -> dict[str, pd.DataFrame]:
    """The tables of `needed_tables`; by_cohort and labels : what that stage read, and its tables."""
    thresholds = encoded_cohorts(labels["tasks"])
    cohorts = {
        reference: cohort if threshold is None else with_code(cohort, by_cohort, threshold)
        for reference, threshold in thresholds.items()
    }
    tables = needed_tables(bundle, cohorts, labels["scores"], labels_needed)
    for row in tables["left_out"].fillna({"size": 0}).itertuples():
        labelled = f" with {int(str(row.size))} labelled patients" if row.size else ""
        note(f"label {row.entity} is left out{labelled}: {row.reason}")
    return tables


FURTHEST = 25
"""Per cent of the support up to which classifiers choose features for themselves."""
DIGITS = 6
"""Decimals of a classifier's log-odds: its fit ends at a tolerance, and what is beyond tells nothing."""
Names = Sequence[object]


def encoded_cohorts(tasks: pd.DataFrame) -> dict[str, float | None]:
    """The thresholds of the cohorts that the headline settings of the stage `labels` read, by reference.

    None for the cohort of the run; a reference without a label is left out.
    """
    fixed = tasks[tasks["variant"] == ""].drop_duplicates("reference").set_index("reference")
    thresholds = {reference: fixed["threshold"][reference] for reference in COUPLINGS if reference in fixed.index}
    return {reference: float(value) if reference == "cohort" else None for reference, value in thresholds.items()}


def needed_tables(
    bundle: Bundle, cohorts: Mapping[str, Cohort], scores: pd.DataFrame, settings: Settings
) -> dict[str, pd.DataFrame]:
    """Log-odds of classifiers trained on some labelled patients, for all the others; and the zero-shot scores.

    cohorts : the patients by reference, of `COUPLINGS`. scores : of the stage `labels`;
    they say at which t, and along which random orders. A size that leaves too few patients is left out for that label.

    Returns `predictions`, by (reference, method, permuted, entity, size, repeat, allocation, t, patient), t in per cent
    of the support; `zero_shot`, the scores that they are held against, `calibrated`, by (reference, coupling, entity,
    allocation, seed, patient, t), with the `label`; `splits`, numbers of patients by (entity, size, repeat); and
    `left_out`.

    Raises
    ------
    CohortError : the scores are not of these patients.

    """
    tasks, left_out = _tasks(bundle, cohorts, settings.labels)
    held = _held_against(scores, tasks)
    percents, seeds = sorted(set(held["t"])), sorted(set(held["seed"].dropna()))
    parts: list[pd.DataFrame] = []
    splits: list[tuple[object, ...]] = []
    with one_thread():
        for task, size in product(tasks, sorted(settings.sizes)):
            if reason := _too_few(task, size, settings.tested, settings.of_each_class):
                left_out.append((task.entity, size, reason))
                continue
            for repeat in range(settings.repeats):
                labelled, seed = drawn(task, size, repeat), int(seeds[repeat % len(seeds)])
                counts = [n for own in (labelled, ~labelled) for n in (own.sum(), (own & task.positive).sum())]
                splits.append((task.entity, size, repeat, seed, *counts))
                for shuffled in (False, True) if repeat < settings.permuted else (False,):
                    found = _told(task, labelled, shuffled, repeat, percents, seed)
                    parts += [part.assign(size=size, repeat=repeat) for part in found]
    made = {
        "predictions": joined(parts, COLUMNS["predictions"].split()[:-2]),
        "zero_shot": held,
        "splits": pd.DataFrame(splits, columns=COLUMNS["splits"].split()[:-2]).drop_duplicates(ignore_index=True),
        "left_out": pd.DataFrame(left_out, columns=COLUMNS["left_out"].split()[:-2]).drop_duplicates(ignore_index=True),
    }
    made["left_out"] = made["left_out"].astype({"entity": "str", "size": "Int64", "reason": "str"})
    return made


def _tasks(
    bundle: Bundle, cohorts: Mapping[str, Cohort], most_labels: int
) -> tuple[list[Task], list[tuple[str, int | None, str]]]:
    """The tasks of the labels that are used, by reference, and the labels that are not, with the reason."""
    by_reference: dict[str, list[Task]] = {}
    of_one_class: list[str] = []
    for reference, coupling in COUPLINGS.items():
        if reference in cohorts:
            setting = Setting(reference, coupling if bundle.ternary else "explicit")  # type: ignore[arg-type]
            by_reference[reference], of_one_class = tasks_of(bundle, {None: cohorts[reference]}, [setting])
    names = [task.entity for task in next(iter(by_reference.values()), [])]
    chosen = sorted(names, key=lambda name: hashlib.sha256(f"labels needed\0{name}".encode()).digest())[:most_labels]
    beyond = f"not among the {most_labels} that are used"
    left_out: list[tuple[str, int | None, str]] = [(name, None, "all patients have the same") for name in of_one_class]
    left_out += [(name, None, beyond) for name in names if name not in chosen]
    return [task for tasks in by_reference.values() for task in tasks if task.entity in chosen], left_out


def _held_against(scores: pd.DataFrame, tasks: Sequence[Task]) -> pd.DataFrame:
    """The scores of these tasks under the settings that classifiers are held against, and by how often beside them."""
    none = scores.iloc[:0]
    fixed = dict(iter(scores[scores["variant"] == ""].groupby(["reference", "coupling", "entity"], sort=False)))
    parts = [none]
    for task in tasks:
        key = (task.setting.reference, task.setting.coupling, task.entity)
        parts += [fixed.get((key[0], coupling, task.entity), none) for coupling in dict.fromkeys(("explicit", key[1]))]
        if set(parts[-1]["patient"]) != set(task.patients):
            found = f"scores of {parts[-1]['patient'].nunique()} patients for {task.entity}, reference {key[0]}"
            step = "run the stage labels again, on the same bundle and cohort"
            raise CohortError(Fault("--labels", found, f"the {len(task.patients)} who have the label", step))
    return pd.concat(parts)[COLUMNS["zero_shot"].split()[:-2]].reset_index(drop=True)


def _of_positive(task: Task, size: int) -> int:
    """How many of `size` labelled patients have the label: as in the cohort, and one of each class at least."""
    return int(np.clip(round(size * task.positive.mean()), 1, size - 1))


def _too_few(task: Task, size: int, tested: int, of_each_class: int) -> str:
    """Why a task cannot do with so many labelled patients, or nothing."""
    left = max(len(task.positive) - size, 0)
    if left < tested:
        return f"leaves {left} patients to be told, fewer than {tested}"
    positive = int(task.positive.sum()) - _of_positive(task, size)
    for count, words in ((positive, "with the label"), (left - positive, "without the label")):
        if count < of_each_class:
            return f"leaves {max(count, 0)} patients {words}, fewer than {of_each_class}"
    return ""


def drawn(task: Task, size: int, repeat: int) -> Mask:
    """(P,) the labelled patients of one repeat, stratified; in the same repeat a larger set holds the smaller one."""
    order = generator_of("labels needed", "split", task.entity, repeat).permutation(len(task.positive))
    positive = _of_positive(task, size)
    labelled = np.zeros(len(order), dtype=np.bool_)
    labelled[order[task.positive[order]][:positive]] = True
    labelled[order[~task.positive[order]][: size - positive]] = True
    return labelled


def _told(
    task: Task, labelled: Mask, shuffled: bool, repeat: int, percents: Sequence[int], seed: int
) -> Iterator[pd.DataFrame]:
    """What each classifier says of the patients without a label, along the random order of `seed` and of its own."""
    names = ("labels needed", task.entity, int(labelled.sum()), repeat, task.setting.reference)
    answers = task.positive[labelled]
    if shuffled:
        answers = generator_of(*names, "shuffled").permutation(answers)
    near = [t for t in percents if t <= FURTHEST]
    patients = np.array(task.patients, dtype=object)[~labelled]
    for method in METHODS:
        along = _in_random_order(task, labelled, answers, method, percents, seed, names)
        chosen = _as_it_chooses(task, labelled, answers, method, near, names)
        for allocation, shown, log_odds in ((RANDOM, percents, along), (GREEDY, near, chosen)):
            rows: dict[Any, Any] = rows_of(patient=patients, t=np.array(shown, dtype=np.int32)).to_dict("series")
            keys = {"reference": task.setting.reference, "entity": task.entity, "allocation": allocation}
            answer = np.round(log_odds, DIGITS).ravel() + 0.0
            yield pd.DataFrame({**rows, **keys, "method": method, "permuted": shuffled, "log_odds": answer})


def _in_random_order(
    task: Task, labelled: Mask, answers: Mask, method: Method, percents: Sequence[int], seed: int, names: Names
) -> Floats:
    """(P, T) log-odds by the very features that the zero-shot score sees; trained on those of the support alone."""
    values = task.values[:, task.support]
    observed = task.seen(percents, seed)[~labelled].reshape(-1, values.shape[1])
    classifier = train(method, values[labelled], answers, generator_of(*names, "support"))
    told = np.repeat(values[~labelled], len(percents), axis=0)
    return classifier.log_odds(told, observed).reshape(-1, len(percents))


def _as_it_chooses(
    task: Task, labelled: Mask, answers: Mask, method: Method, percents: Sequence[int], names: Names
) -> Floats:
    """(P, T) log-odds by as many features, which the classifier chooses among all of the panel: it knows no support."""
    classifier = train(method, task.values[labelled], answers, generator_of(*names, "panel"))
    chances = conditionals(task.values[labelled], answers)
    return acquire(classifier, chances, task.values[~labelled], task.bundle.features, task.counts(percents))
