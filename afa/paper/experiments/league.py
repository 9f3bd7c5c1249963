"""The league: on tables with real labels, the value of a few measurements that were chosen without labels.

Each field is evaluated separately. Its bundle is scored in several ways (`afa.evaluate.entrants`). Its patients are
followed by the planner's order, by random orders and by one fixed order, and the results at each round are compared
with the labels. For comparison there are a null, with the same knowledge assigned to other features with the same
values, and classifiers trained on labels. Equal rows are resampled together: intervals are over distinct rows.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from itertools import compress

import numpy as np
import pandas as pd
from numpy.typing import NDArray
from pydantic import Field
from scipy.special import log_softmax

from afa.evaluate.accuracy import accuracies, bins_of, ranking
from afa.evaluate.classifiers import METHODS, one_thread
from afa.evaluate.entrants import HEADLINE, RULES, STATED, Entrant, Reading, Task, facts, readings, trained
from afa.evaluate.inputs import shuffled_alike
from afa.evaluate.long_tables import joined
from afa.evaluate.resampling import patient_weights, with_interval
from afa.evaluate.simulate.walks import measured_first
from afa.model.mrf import Floats
from afa.model.orders import generator_of, random_orders
from afa.paper.experiments.base import Section

PLANNER, RANDOM, FIXED = "planner", "random", "fixed"
CURVES = ["task", "model", "allocation", "t", "metric", "value", "low", "high", "n"]


class Settings(Section):
    """The settings of the league; nothing is tuned on labels."""

    rounds: tuple[int, ...] = Field((0, 1, 2, 3, 5, 8, 12, 20), description="features observed, beside all of them")
    patients: int = Field(20_000, ge=20, description="at most so many patients of a field are followed, drawn by name")
    seeds: tuple[int, ...] = Field((0, 1, 2), min_length=1, description="random orders of each patient")
    shuffles: int = Field(20, ge=1, description="bundles whose knowledge is shuffled among features")
    shuffled: int = Field(300, ge=20, description="at most so many patients that these are asked about")
    sizes: tuple[int, ...] = Field((10, 20, 50, 100), description="labelled patients that classifiers are given")
    repeats: int = Field(3, ge=1, description="draws of the labelled patients")
    tested: int = Field(1000, ge=20, description="at most so many patients that classifiers are asked about")
    resamples: int = Field(500, ge=100)
    confidence: float = Field(0.95, gt=0, lt=1)


def follow_field(entrant: Entrant, settings: Settings) -> dict[str, pd.DataFrame]:
    """Return all tables of one field: `curves`, `leads`, `null`, `trained`, `reliability` and `facts`."""
    parts: dict[str, list[pd.DataFrame]] = {}
    followed = entrant.some(settings.patients)
    for task in followed.tasks:
        for name, table in _Question(followed, task, settings).tables().items():
            parts.setdefault(name, []).append(table)
    tables = {name: pd.concat(found, ignore_index=True) for name, found in parts.items()}
    tables["facts"] = facts(entrant, len(followed.patients))
    return {name: table.assign(field=entrant.name) for name, table in tables.items()}


@dataclass(frozen=True, eq=False)
class _Question:
    """One question about the patients of one field."""

    entrant: Entrant
    task: Task
    settings: Settings

    @property
    def rounds(self) -> list[int]:
        most = len(self.entrant.features)
        return [*(t for t in self.settings.rounds if t < most), most]

    @property
    def asked(self) -> NDArray[np.bool_]:
        """Return (P,) bool, True for patients whose answer is known."""
        return self.task.answers >= 0

    def tables(self) -> dict[str, pd.DataFrame]:
        own = readings(self.entrant, self.task)
        followed = [self.followed(name, *reading) for name, reading in own.items()]
        curves, leads, planned = zip(*followed, strict=True)
        found = {"curves": pd.concat(curves), "leads": pd.concat(leads)}
        if not self.task.main:
            return found
        found["null"] = self.null(own[HEADLINE][0])
        evidence = dict(zip(own, planned, strict=True))
        with one_thread():
            found["trained"] = self.trained(evidence[HEADLINE])
        found["reliability"] = pd.concat([self.reliability(name, evidence[name]) for name in STATED])
        return found

    def followed(
        self, name: str, reading: Reading, among: NDArray[np.bool_], values: NDArray[np.int8]
    ) -> tuple[pd.DataFrame, pd.DataFrame, Floats]:
        """Return curves and leads of a reading, and its log-evidence along the planner's order, (P, T, C).

        P counts all patients whose answer is known.
        """
        values, answers, weights = values[among], self.task.answers[among], self.weights(among)
        names = list(compress(self.entrant.patients, among))
        orders = random_orders(self.entrant.features, names, self.settings.seeds).swapaxes(0, 1)
        planned = reading.planned(values, self.rounds)
        several = {
            PLANNER: [planned],
            FIXED: [reading.planned(values, self.rounds, fixed=True)],
            RANDOM: [reading.along(values, measured_first(each, values), self.rounds) for each in orders],
        }
        if name == HEADLINE and self.task.entity is None:
            several |= {rule: [reading.planned(values, self.rounds, rule=rule)] for rule in RULES[1:]}
        found = {}
        for allocation, each in several.items():
            runs = [statistics(self.task, answers, evidence, weights) for evidence in each]
            found[allocation] = {metric: np.mean([run[metric] for run in runs], axis=0) for metric in self.task.metrics}
        ahead = {metric: found[PLANNER][metric] - found[RANDOM][metric] for metric in self.task.metrics}
        curves = [self.rows(each, len(values), model=name, allocation=key) for key, each in found.items()]
        leads = self.rows(ahead, len(values), model=name, allocation=f"{PLANNER} less {RANDOM}")
        return pd.concat(curves), leads, planned

    def weights(self, among: NDArray[np.bool_]) -> Floats:
        """Return the weights of patients, (1 + R, P): 1, then their counts in resamples of the distinct rows."""
        row = np.unique(self.entrant.rows[among], return_inverse=True)[1]
        purpose = f"league {self.entrant.name}"
        drawn = patient_weights(int(row.max()) + 1, resamples=self.settings.resamples, purpose=purpose)[:, row]
        return np.concatenate([np.ones((1, len(row))), drawn])

    def rows(self, found: Mapping[str, Floats], n: int, **keys: str) -> pd.DataFrame:
        """Return `CURVES`, one row for each metric and round.

        found : by metric, the value and its resamples, (1 + R, T)
        """
        tables = [
            with_interval(every, confidence=self.settings.confidence).assign(metric=metric, t=self.rounds)
            for metric, every in found.items()
        ]
        return pd.concat(tables).assign(task=self.task.name, n=n, **keys)[CURVES]

    def null(self, reading: Reading) -> pd.DataFrame:
        """Return the curves with all knowledge, couplings included, assigned to other features with the same values."""
        drawn = generator_of("league", "patients of the null").permutation(np.flatnonzero(self.asked))
        some = np.isin(np.arange(len(self.asked)), drawn[: self.settings.shuffled])
        values, answers = self.entrant.values[some], self.task.answers[some]
        found = []
        for shuffle in range(self.settings.shuffles):
            generator = generator_of("league", "shuffled knowledge", shuffle)
            places = shuffled_alike(self.entrant.bundle.kinds, generator)
            evidence = reading.planned(np.ascontiguousarray(values[:, places]), self.rounds)
            found.append(statistics(self.task, answers, evidence, np.ones((1, len(values)))))
        every = {metric: np.concatenate([each[metric] for each in found]) for metric in self.task.metrics}
        lines = {metric: np.vstack([[each.mean() for each in drawn.T], drawn]) for metric, drawn in every.items()}
        return self.rows(lines, len(values), model="shuffled", allocation=PLANNER)

    def trained(self, own: Floats) -> pd.DataFrame:
        """Return the metrics of classifiers trained on labels, and of the bundle, on the same other patients.

        There is one row for each size and repeat.

        own : (P, T, C) log-evidence of the bundle, for all patients with answers
        """
        tables, place = [], np.cumsum(self.asked) - 1
        for size in self.settings.sizes:
            for repeat in range(self.settings.repeats):
                generator = generator_of("league", self.entrant.name, self.task.name, size, repeat)
                given, tested = split(self.task, size, self.settings.tested, generator)
                if given is None:
                    continue
                evidence = {HEADLINE: own[place[tested]]}
                for method in METHODS:
                    labelled = self.entrant.values[given], self.task.answers[given]
                    model = trained(method, *labelled, self.entrant.features, generator)
                    evidence[method] = model.planned(self.entrant.values[tested], self.rounds)
                for name, each in evidence.items():
                    found = statistics(self.task, self.task.answers[tested], each, np.ones((1, len(tested))))
                    for metric, value in found.items():
                        table = pd.DataFrame({"metric": metric, "t": self.rounds, "value": value[0], "n": len(tested)})
                        tables.append(table.assign(task=self.task.name, model=name, size=size, repeat=repeat))
        return joined(tables, ["task", "model", "size", "repeat", "metric", "t", "value", "n"])

    def reliability(self, name: str, own: Floats) -> pd.DataFrame:
        """Return predicted and observed shares in ten bins of the probability.

        The probability is that of the first hypothesis of a binary task, else that of the most likely hypothesis.
        """
        answers = self.task.answers[self.asked]
        probability = np.exp(log_softmax(own, axis=2))
        rows = []
        for place, t in enumerate(self.rounds):
            each = probability[:, place]
            said = each[:, 0] if self.task.entity else each.max(axis=1)
            right = (answers == 0) if self.task.entity else each.argmax(axis=1) == answers
            tenth = bins_of(said)
            for bin_ in np.unique(tenth):
                of = tenth == bin_
                row = {"t": t, "bin": bin_, "stated": said[of].mean(), "observed": right[of].mean(), "n": of.sum()}
                rows.append({"task": self.task.name, "model": name, **row})
        return pd.DataFrame(rows)


def statistics(task: Task, answers: NDArray[np.int64], evidence: Floats, weights: Floats) -> dict[str, Floats]:
    """Return each metric of a task, (R, T).

    `balanced_accuracy` is of decisions at equal prior probabilities. `first_place` is the share of patients whose true
    hypothesis has the most evidence, ties shared; `by_class` is the mean of that share over the hypotheses.

    answers : (P,) int64
    evidence : (P, T, C) float64, log-evidence in nats
    weights : (R, P) float64
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


def split(
    task: Task, size: int, most: int, generator: np.random.Generator
) -> tuple[NDArray[np.intp] | None, NDArray[np.intp]]:
    """Return labelled patients, stratified by hypothesis, and other patients for evaluation.

    The labelled patients are None if a hypothesis would have too few.
    """
    asked = np.flatnonzero(task.answers >= 0)
    mixed = generator.permutation(asked)
    counts = np.bincount(task.answers[asked], minlength=len(task.hypotheses))
    wanted = np.maximum(np.floor(size * counts / counts.sum()).astype(int), 1)
    wanted[counts.argmax()] += size - wanted.sum()
    chosen = np.concatenate([mixed[task.answers[mixed] == c][:n] for c, n in enumerate(wanted)])
    others = np.setdiff1d(mixed, chosen)
    enough = (counts - wanted >= 1).all() and (wanted >= 1).all()
    return (np.sort(chosen) if enough else None), np.sort(generator.permutation(others)[:most])
