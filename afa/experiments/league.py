"""The league: on tables with real labels, what a few measurements tell that were chosen without one label.

One field at a time. Its bundle is read in several ways (`afa.experiments.league_models`), its patients are followed by
the planner's own order, by random ones and by one fixed order, and what is known along the way is held against the
labels. Beside it stand a null, knowledge shuffled among features of the same values, and classifiers that were given
labels. Equal rows are drawn together: intervals are over distinct rows.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import numpy as np
import pandas as pd
from numpy.typing import NDArray
from pydantic import Field
from scipy.special import log_softmax

from afa.bundle import Bundle
from afa.bundle.rates import pool
from afa.cohort.table_cohort import encode_cohort, field_cohort, find_table, load_field, read_table_labels
from afa.cohort.tables import read_cells
from afa.errors import CohortError
from afa.experiments.league_models import (
    MISSING,
    Closed,
    Coupled,
    Model,
    Stated,
    Trained,
    Values,
    measured_first,
)
from afa.features import Features, read_features
from afa.field import build_field_bundle
from afa.mrf import Floats
from afa.orders import random_order
from afa.stages.base import Section
from afa.stages.drawn import generator_of
from afa.stages.labels.metrics import accuracies, ranking
from afa.stages.labels_needed.classifiers import METHODS
from afa.stages.labels_needed.tables import one_thread
from afa.stats.accuracy import auroc
from afa.stats.resampling import interval, patient_weights

PLANNER, RANDOM, FIXED = "planner", "random", "fixed"
NOBODY = "none of them"
CURVES = ["task", "model", "allocation", "t", "metric", "value", "low", "high", "n"]
HEADLINE = "how often"
"""The model that the null and the classifiers stand beside."""
Answers = NDArray[np.int64]


class Settings(Section):
    """What the league follows and repeats; nothing is tuned on labels."""

    rounds: tuple[int, ...] = Field((0, 1, 2, 3, 5, 8, 12, 20), description="features observed, beside all of them")
    seeds: tuple[int, ...] = Field((0, 1, 2), min_length=1, description="random orders of each patient")
    shuffles: int = Field(20, ge=1, description="bundles whose knowledge is shuffled among features")
    sizes: tuple[int, ...] = Field((10, 20, 50, 100), description="labelled patients that classifiers are given")
    repeats: int = Field(3, ge=1, description="draws of the labelled patients")
    tested: int = Field(1000, ge=20, description="at most so many patients that classifiers are asked about")
    resamples: int = Field(500, ge=100)
    confidence: float = Field(0.95, gt=0, lt=1)


@dataclass(frozen=True)
class Task:
    """A question to the patients: C hypotheses, and of each patient which one holds, (P,), -1 where that is unknown.

    entity : whether this one holds, yes or no. Without one, which of all entities does. main : what the field asks,
    beside which other models, the null and classifiers stand.
    """

    name: str
    hypotheses: tuple[str, ...]
    answers: Answers
    entity: str | None = None
    main: bool = True

    @property
    def metrics(self) -> tuple[str, ...]:
        return ("auroc", "balanced_accuracy", "average_precision") if self.entity else ("first_place", "by_class")


@dataclass(frozen=True, eq=False)
class Entrant:
    """A field whose table is there: its patients' values (P, M), with `MISSING`, and what is asked of them.

    bundle, directions : with how often each value occurs, and of directions alone.
    rows : (P,) the number of each patient's row of the table among the distinct ones.
    """

    name: str
    patients: tuple[str, ...]
    values: Values
    features: Features
    bundle: Bundle
    directions: Bundle
    tasks: tuple[Task, ...]
    confounded: tuple[str, ...]
    rows: NDArray[np.int64]


def read_entrant(folder: str | Path, mirror: str | Path | None = None) -> Entrant | str:
    """A field with its table, or a line that says why that is not there.

    Raises
    ------
    CohortError, ConfigError : what is wrong with files that are there.

    """
    root, config = Path(folder), field_cohort(folder)
    study, table = load_field(root)
    try:
        files = find_table(config, mirror)
    except CohortError as error:
        if table.carried or not all("no such file" in fault.found for fault in error.faults):
            raise
        return f"not fetched: {config.address}"
    encoded = encode_cohort(config, files)
    patients, features = tuple(encoded.values.index), read_features(files.features)
    values = encoded.values.fillna(MISSING).to_numpy(dtype=np.int8)
    with TemporaryDirectory() as temporary:
        bundle = build_field_bundle(root, Path(temporary) / "bundle", how_often=True)
        directions = build_field_bundle(root, Path(temporary) / "directions")
    labels = (
        read_table_labels(config.labels or root, patients)
        if files.labels is None
        else read_table_labels(files.labels, patients)
    )
    known = labels.reindex(columns=list(bundle.entities)).astype("Float64").to_numpy(dtype=np.float64, na_value=np.nan)
    tasks = tuple(_tasks(bundle.entities, known, study.holds))
    cells = read_cells(files.table, "feature", features.names)
    texts = pd.DataFrame({name: cells.columns[name] for name in features.names}, index=list(cells.names))
    numbered = texts.loc[list(patients)].groupby(list(features.names), sort=False).ngroup()
    rows = np.asarray(numbered, dtype=np.int64)
    return Entrant(study.name, patients, values, features, bundle, directions, tasks, study.confounded, rows)


def _tasks(entities: Sequence[str], labels: Floats, holds: str) -> Iterator[Task]:
    """Each entity as a question; before them, where one holds, which does, of patients with one label, or none."""
    for column, entity in enumerate(entities):
        answers = np.where(np.isnan(labels[:, column]), -1, 1 - np.nan_to_num(labels[:, column])).astype(np.int64)
        if {0, 1} <= set(answers.tolist()):
            yield Task(entity, (entity, f"not {entity}"), answers, entity, main=holds == "several")
    if holds == "several":
        return
    count = np.where(np.isnan(labels).any(axis=1), -1, np.nansum(labels, axis=1))
    answers = np.where(count == 1, np.nan_to_num(labels).argmax(axis=1), -1)
    hypotheses = tuple(entities)
    if holds == "one or none":
        hypotheses, answers = (*entities, NOBODY), np.where(count == 0, len(entities), answers)
    yield Task("which", hypotheses, answers.astype(np.int64))


def stated(entrant: Entrant, task: Task) -> Stated:
    """The bundle's probabilities as hypotheses of a task; `none of them` has the background."""
    bundle = entrant.bundle
    if task.entity is not None:
        chances = np.stack(bundle.how_often(task.entity)[:2])
    else:
        chances = np.stack([bundle.how_often(name)[0] for name in bundle.entities])
        if task.hypotheses[-1] == NOBODY:
            chances = np.concatenate([chances, background(bundle)[None]])
    return Stated(chances, entrant.features.names, np.zeros(len(chances)))


def background(bundle: Bundle) -> Floats:
    """(M, 3) how often each value occurs in everybody: pooled from those without each entity (F5, F7)."""
    without = np.stack([bundle.how_often(name)[1] for name in bundle.entities])
    return pool(without, without[0] > 0, bundle.floor)


def follow_field(entrant: Entrant, settings: Settings) -> dict[str, pd.DataFrame]:
    """All tables of one field: `curves`, `leads`, `null`, `trained`, `reliability` and `facts`."""
    parts: dict[str, list[pd.DataFrame]] = {}
    for task in entrant.tasks:
        for name, table in _follow_task(entrant, task, settings).items():
            parts.setdefault(name, []).append(table)
    tables = {name: pd.concat(found, ignore_index=True) for name, found in parts.items()}
    tables["facts"] = _facts(entrant)
    return {name: table.assign(field=entrant.name) for name, table in tables.items()}


def _follow_task(entrant: Entrant, task: Task, settings: Settings) -> dict[str, pd.DataFrame]:
    own = stated(entrant, task)
    rounds = [*(t for t in settings.rounds if t < len(entrant.features)), len(entrant.features)]
    asked = task.answers >= 0
    # The paper's closures have no hypothesis `none`, and the engine takes no gaps yet.
    complete = asked & ~(entrant.values == MISSING).any(axis=1)
    if task.entity is None:
        complete &= task.answers < len(entrant.bundle.entities)
    models: dict[str, tuple[Model, NDArray[np.bool_], Values]] = {HEADLINE: (own, asked, entrant.values)}
    if task.entity is not None and task.main:
        models[f"{HEADLINE}, with couplings"] = (Coupled(entrant.bundle, task.entity, own), asked, entrant.values)
    if entrant.confounded:
        hidden = entrant.values.copy()
        hidden[:, [entrant.features.names.index(name) for name in entrant.confounded]] = MISSING
        models[f"{HEADLINE}, without {', '.join(entrant.confounded)}"] = (own, asked, hidden)
    if task.main and len(set(task.answers[complete].tolist())) > 1:
        models["directions"] = (Closed(entrant.directions, "differential", task.entity), complete, entrant.values)
        if task.entity is not None:
            shared = Closed(entrant.directions, "shared", task.entity)
            models["directions, shared couplings"] = (shared, complete, entrant.values)
    rows: list[dict[str, Any]] = []
    leads: list[dict[str, Any]] = []
    for name, (model, among, values) in models.items():
        sample = _Sample(entrant, task, among, settings)
        found = {
            allocation: [sample.statistics(model.along(values[among], orders, rounds)) for orders in several]
            for allocation, several in sample.orders(model, values[among], settings.seeds).items()
        }
        for allocation, several in found.items():
            rows += sample.rows(_mean(several), rounds, model=name, allocation=allocation)
        ahead = {metric: _mean(found[PLANNER])[metric] - _mean(found[RANDOM])[metric] for metric in task.metrics}
        leads += sample.rows(ahead, rounds, model=name, allocation=f"{PLANNER} less {RANDOM}")
    tables = {"curves": pd.DataFrame(rows, columns=CURVES), "leads": pd.DataFrame(leads, columns=CURVES)}
    if not task.main:
        return tables
    tables["null"] = _null(entrant, task, own, rounds, settings)
    with one_thread():
        tables["trained"] = _trained(entrant, task, own, rounds, settings)
    tables["reliability"] = _reliability(entrant, task, own, rounds)
    return tables


@dataclass(frozen=True, eq=False)
class _Sample:
    """The patients of one task that one model is asked about, and how often each resample draws them."""

    entrant: Entrant
    task: Task
    among: NDArray[np.bool_]
    settings: Settings

    def orders(self, model: Model, values: Values, seeds: Sequence[int]) -> dict[str, list[NDArray[np.int64]]]:
        """The orders of each allocation, those of each seed where they are drawn."""
        names, n = self.entrant.features.names, len(self.entrant.features)
        patients = np.array(self.entrant.patients, dtype=object)[self.among]
        drawn = [np.array([random_order(names, patient=name, seed=seed) for name in patients]) for seed in seeds]
        by_name = np.argsort(np.array(names))
        fixed = by_name[np.argsort(-model.first()[by_name].round(12), kind="stable")]
        return {
            PLANNER: [model.orders(values)],
            RANDOM: [measured_first(orders, values) for orders in drawn],
            FIXED: [measured_first(np.broadcast_to(fixed, (len(values), n)).copy(), values)],
        }

    @property
    def weights(self) -> Floats:
        """(1 + R, P) once, then as often as a resample of the distinct rows draws each patient's."""
        row = np.unique(self.entrant.rows[self.among], return_inverse=True)[1]
        purpose = f"league {self.entrant.name}"
        drawn = patient_weights(int(row.max()) + 1, resamples=self.settings.resamples, purpose=purpose)[:, row]
        return np.concatenate([np.ones((1, len(row))), drawn])

    def statistics(self, evidence: Floats) -> dict[str, Floats]:
        """(1 + R, T) of each metric of the task; evidence (P, T, C)."""
        return statistics(self.task, self.task.answers[self.among], evidence, self.weights)

    def rows(self, found: Mapping[str, Floats], rounds: Sequence[int], **keys: object) -> list[dict[str, Any]]:
        """A row for each metric and round, with its interval."""
        rows = []
        for metric, values in found.items():
            low, high = interval(values[1:], confidence=self.settings.confidence)
            for t, value, least, most in zip(rounds, values[0], low, high, strict=True):
                row = {"metric": metric, "t": t, "value": value, "low": least, "high": most}
                rows.append({"task": self.task.name, **keys, **row, "n": int(self.among.sum())})
        return rows


def statistics(task: Task, answers: Answers, evidence: Floats, weights: Floats) -> dict[str, Floats]:
    """(R, T) of each metric of a task; answers (P,), evidence (P, T, C), weights (R, P).

    `balanced_accuracy` is at even odds. `first_place` is the share of patients whose own hypothesis has the most
    evidence, ties shared; `by_class` the mean of that share over the hypotheses.
    """
    columns: dict[str, list[Floats]] = {metric: [] for metric in task.metrics}
    for t in range(evidence.shape[1]):
        found: tuple[Floats, ...]
        if task.entity is not None:
            score, positive = evidence[:, t, 0] - evidence[:, t, 1], answers == 0
            area, precision = ranking(score.round(9), positive, weights)
            found = (area, accuracies(score.round(9), positive, weights)[1], precision)
        else:
            rounded = evidence[:, t].round(9)
            first = rounded == rounded.max(axis=1, keepdims=True)
            right = first[np.arange(len(answers)), answers] / first.sum(axis=1)
            classes = (answers[:, None] == np.arange(len(task.hypotheses))).astype(np.float64)
            with np.errstate(invalid="ignore"):
                shares = (weights @ (classes * right[:, None])) / (weights @ classes)
            found = (weights @ right / weights.sum(axis=1), np.nanmean(shares, axis=1))
        for metric, column in zip(columns, found, strict=True):
            columns[metric].append(column)
    return {metric: np.stack(found, axis=1) for metric, found in columns.items()}


def _mean(several: Sequence[Mapping[str, Floats]]) -> dict[str, Floats]:
    return {metric: np.mean([found[metric] for found in several], axis=0) for metric in several[0]}


def _null(entrant: Entrant, task: Task, own: Stated, rounds: Sequence[int], settings: Settings) -> pd.DataFrame:
    """The same knowledge at other features that can take the same values, as the planner chooses by it."""
    asked = task.answers >= 0
    values, answers, alike = entrant.values[asked], task.answers[asked], entrant.features.possible @ [1, 2, 4]
    once, found = np.ones((1, len(values))), []
    for shuffle in range(settings.shuffles):
        places = np.arange(len(alike))
        generator = generator_of("league", "shuffled knowledge", shuffle)
        for kind in np.unique(alike):
            places[alike == kind] = generator.permutation(places[alike == kind])
        model = replace(own, chances=own.chances[:, places])
        evidence = model.along(values, model.orders(values), rounds)
        found.append(statistics(task, answers, evidence, once))
    rows = []
    for metric in task.metrics:
        drawn = np.concatenate([each[metric] for each in found])
        low, high = interval(drawn, confidence=settings.confidence)
        for place, t in enumerate(rounds):
            row = {"metric": metric, "t": t, "value": drawn[:, place].mean(), "low": low[place], "high": high[place]}
            rows.append({"task": task.name, "model": "shuffled", "allocation": PLANNER, **row, "n": len(values)})
    return pd.DataFrame(rows, columns=CURVES)


def _trained(entrant: Entrant, task: Task, own: Stated, rounds: Sequence[int], settings: Settings) -> pd.DataFrame:
    """Classifiers given labels, and the bundle, on the same other patients; a row for each size and repeat."""
    rows = []
    for size in settings.sizes:
        for repeat in range(settings.repeats):
            generator = generator_of("league", entrant.name, task.name, size, repeat)
            given, tested = _split(task, size, settings.tested, generator)
            if given is None:
                continue
            values, answers = entrant.values[tested], task.answers[tested]
            models: dict[str, Model] = {HEADLINE: own}
            for method in METHODS:
                labelled = entrant.values[given], task.answers[given]
                models[method] = Trained.of(method, *labelled, own.features, generator)
            for name, model in models.items():
                evidence = model.along(values, model.orders(values), rounds)
                found = statistics(task, answers, evidence, np.ones((1, len(values))))
                for metric, value in found.items():
                    keys = {"task": task.name, "model": name, "size": size, "repeat": repeat, "metric": metric}
                    rows += [
                        {**keys, "t": t, "value": x, "n": len(values)} for t, x in zip(rounds, value[0], strict=True)
                    ]
    return pd.DataFrame(rows, columns=["task", "model", "size", "repeat", "metric", "t", "value", "n"])


def _split(
    task: Task, size: int, most: int, generator: np.random.Generator
) -> tuple[NDArray[np.intp] | None, NDArray[np.intp]]:
    """Patients with a label, some of each hypothesis as in the whole, and others to ask about; None where too few."""
    asked = np.flatnonzero(task.answers >= 0)
    mixed = generator.permutation(asked)
    counts = np.bincount(task.answers[asked], minlength=len(task.hypotheses))
    wanted = np.maximum(np.floor(size * counts / counts.sum()).astype(int), 1)
    wanted[counts.argmax()] += size - wanted.sum()
    chosen = np.concatenate([mixed[task.answers[mixed] == c][:n] for c, n in enumerate(wanted)])
    others = np.setdiff1d(mixed, chosen)
    enough = (counts - wanted >= 1).all() and (wanted >= 1).all()
    return (np.sort(chosen) if enough else None), np.sort(generator.permutation(others)[:most])


def _reliability(entrant: Entrant, task: Task, own: Stated, rounds: Sequence[int]) -> pd.DataFrame:
    """Tenths of the stated probability of the first hypothesis, or of the one in first place: stated, observed."""
    asked = task.answers >= 0
    values, answers = entrant.values[asked], task.answers[asked]
    probability = np.exp(log_softmax(own.along(values, own.orders(values), rounds), axis=2))
    rows = []
    for place, t in enumerate(rounds):
        each = probability[:, place]
        said = each[:, 0] if task.entity else each.max(axis=1)
        right = (answers == 0) if task.entity else each.argmax(axis=1) == answers
        tenth = np.minimum((said * 10).astype(int), 9)
        for bin_ in np.unique(tenth):
            own_ = tenth == bin_
            row = {"t": t, "bin": bin_, "stated": said[own_].mean(), "observed": right[own_].mean(), "n": own_.sum()}
            rows.append({"task": task.name, **row})
    return pd.DataFrame(rows)


def _facts(entrant: Entrant) -> pd.DataFrame:
    """A row a task: patients, distinct rows, what is missing, how many have each answer, and the traps."""
    measured = (entrant.values != MISSING).sum(axis=1).astype(np.float64)
    rows = []
    for task in entrant.tasks:
        asked, telling = task.answers >= 0, np.nan
        if task.entity is not None:
            area = auroc(measured[asked][:, None], task.answers[asked] == 0)[0]
            telling = max(area, 1 - area)
        counts = np.bincount(task.answers[asked], minlength=len(task.hypotheses))
        rows.append(
            {
                "task": task.name,
                "main": task.main,
                "patients": int(asked.sum()),
                "distinct": len(np.unique(entrant.rows[asked])),
                "complete": int((asked & (measured == len(entrant.features))).sum()),
                "features": len(entrant.features),
                "missing": float((entrant.values[asked] == MISSING).mean()),
                "counts": "; ".join(f"{name} {n}" for name, n in zip(task.hypotheses, counts, strict=True)),
                "missingness_auroc": telling,
            }
        )
    return pd.DataFrame(rows)
