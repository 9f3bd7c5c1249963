"""What labels would buy: classifiers trained on n labelled patients, held against the zero-shot scores of the others.

The zero-shot scores are those of the stage `labels`, under the paper's choices and under both of the changes that need
no label. The classifiers see the same values, and are asked about patients whose labels they were not told.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager

import numpy as np
import pandas as pd

from afa.bundle import Bundle
from afa.cohort.cohort import Cohort
from afa.errors import CohortError, ConfigError, Fault
from afa.mrf import Floats
from afa.stages.drawn import generator_of
from afa.stages.labels.tasks import GREEDY, RANDOM, Setting, Task, places, tasks_of
from afa.stages.labels_needed.classifiers import METHODS, Mask, Method, acquire, conditionals, train

COUPLINGS = {"controls": "differential", "ranges": "differential", "cohort": "shared"}
"""The zero-shot settings that classifiers are held against, by reference: the paper's, and both changes together."""
FURTHEST = 25
"""Per cent of the support up to which classifiers choose features for themselves."""
DIGITS = 6
"""Decimals of a classifier's log-odds: its fit ends at a tolerance, and what is beyond tells nothing."""
PREDICTED = ["reference", "method", "permuted", "entity", "size", "repeat", "allocation", "t", "patient", "log_odds"]
ZERO_SHOT = ["reference", "coupling", "entity", "allocation", "seed", "patient", "t", "calibrated", "label"]
SPLITS = ["entity", "size", "repeat", "seed", "labelled", "labelled_positive", "tested", "tested_positive"]
LEFT_OUT = ["entity", "size", "reason"]
Names = Sequence[object]


def encoded_cohorts(tasks: pd.DataFrame) -> dict[str, float | None]:
    """The thresholds of the cohorts that the headline settings of the stage `labels` read, by reference.

    None for the cohort of the run; a reference without a label is left out.
    """
    fixed = tasks[tasks["variant"] == ""].drop_duplicates("reference").set_index("reference")
    thresholds = {reference: fixed["threshold"][reference] for reference in COUPLINGS if reference in fixed.index}
    return {reference: float(value) if reference == "cohort" else None for reference, value in thresholds.items()}


def needed_tables(
    bundle: Bundle,
    cohorts: Mapping[str, Cohort],
    scores: pd.DataFrame,
    *,
    name: str,
    sizes: Sequence[int],
    repeats: int,
    permuted: int,
    most_labels: int,
    tested: int,
    of_each_class: int,
) -> dict[str, pd.DataFrame]:
    """Log-odds of classifiers trained on `sizes` labelled patients, for all the others; and the zero-shot scores.

    name : of the cohort. cohorts : its patients by reference, of `COUPLINGS`. scores : of the stage `labels`;
    they say at which t, and along which random orders. At most `most_labels` labels are used, chosen by hashes of their
    names. A size that leaves fewer than `tested` patients, or fewer than `of_each_class` of a class, is left out for
    that label. In the first `permuted` repeats classifiers are trained on shuffled labels as well.

    Returns `predictions`, by (reference, method, permuted, entity, size, repeat, allocation, t, patient), t in per cent
    of the support; `zero_shot`, the scores that they are held against, `calibrated`, by (reference, coupling, entity,
    allocation, seed, patient, t), with the `label`; `splits`, numbers of patients by (entity, size, repeat); and
    `left_out`.

    Raises
    ------
    ConfigError : a size below 2, which cannot have both classes.
    CohortError : the scores are not of these patients.

    """
    if min(sizes) < 2:
        step = "ask for two labelled patients or more, one of each class"
        raise ConfigError(Fault("--sizes", str(min(sizes)), "whole numbers of 2 or more", step))
    tasks, left_out = _tasks(bundle, cohorts, most_labels)
    held = _held_against(scores, tasks)
    percents, seeds = sorted(set(held["t"])), sorted(set(held["seed"].dropna()))
    parts: list[pd.DataFrame] = []
    splits: list[tuple[object, ...]] = []
    with one_thread():
        for task in tasks:
            for size in sorted(sizes):
                if reason := _too_few(task, size, tested, of_each_class):
                    left_out.append((task.entity, size, reason))
                    continue
                for repeat in range(repeats):
                    labelled = drawn(task, size, repeat)
                    seed, times = int(seeds[repeat % len(seeds)]), 2 if repeat < permuted else 1
                    splits.append((task.entity, size, repeat, seed, *_counts(task, labelled)))
                    for shuffled in (False, True)[:times]:
                        found = _told(task, labelled, shuffled, repeat, percents, seed)
                        parts += [part.assign(size=size, repeat=repeat) for part in found]
    tables = {
        "predictions": (pd.concat(parts, ignore_index=True) if parts else pd.DataFrame()).reindex(columns=PREDICTED),
        "zero_shot": held,
        "splits": pd.DataFrame(splits, columns=SPLITS).drop_duplicates(ignore_index=True),
        "left_out": pd.DataFrame(left_out, columns=LEFT_OUT).drop_duplicates(ignore_index=True),
    }
    tables["left_out"] = tables["left_out"].astype({"entity": "str", "size": "Int64", "reason": "str"})
    return {table: rows.assign(cohort=name, bundle=bundle.name) for table, rows in tables.items()}


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
    return pd.concat(parts)[ZERO_SHOT].reset_index(drop=True)


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


def _counts(task: Task, labelled: Mask) -> list[int]:
    return [int(n) for chosen in (labelled, ~labelled) for n in (chosen.sum(), (chosen & task.positive).sum())]


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
            table = {
                "reference": task.setting.reference,
                "method": method,
                "permuted": shuffled,
                "entity": task.entity,
                "allocation": allocation,
                "t": np.tile(shown, len(patients)).astype(np.int32),
                "patient": np.repeat(patients, len(shown)),
                "log_odds": np.round(log_odds, DIGITS).ravel() + 0.0,
            }
            yield pd.DataFrame(table)


def _in_random_order(
    task: Task, labelled: Mask, answers: Mask, method: Method, percents: Sequence[int], seed: int, names: Names
) -> Floats:
    """(P, T) log-odds by the very features that the zero-shot score sees; trained on those of the support alone."""
    values = task.values[:, task.support]
    rank = places(task.bundle.features, task.patients, seed)[~labelled][:, task.support]
    place = rank.argsort(axis=1).argsort(axis=1)
    shown = np.array(task.counts(percents))
    observed = (place[:, None, :] < shown[:, None]).reshape(-1, values.shape[1])
    classifier = train(method, values[labelled], answers, generator_of(*names, "support"))
    told = np.repeat(values[~labelled], len(shown), axis=0)
    return classifier.log_odds(told, observed).reshape(-1, len(shown))


def _as_it_chooses(
    task: Task, labelled: Mask, answers: Mask, method: Method, percents: Sequence[int], names: Names
) -> Floats:
    """(P, T) log-odds by as many features, which the classifier chooses among all of the panel: it knows no support."""
    classifier = train(method, task.values[labelled], answers, generator_of(*names, "panel"))
    chances = conditionals(task.values[labelled], answers)
    return acquire(classifier, chances, task.values[~labelled], task.bundle.features, task.counts(percents))


@contextmanager
def one_thread() -> Iterator[None]:
    """Sums of linear algebra in one order, whatever the machine and its settings; and no checks of our own arrays."""
    from sklearn import config_context  # noqa: PLC0415  the dependency is optional
    from threadpoolctl import threadpool_limits  # noqa: PLC0415

    with threadpool_limits(1), config_context(assume_finite=True, skip_parameter_validation=True):
        yield
