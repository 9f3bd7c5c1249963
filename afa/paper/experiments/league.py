"""The league: how accurate answers are after a few measurements, on data sets with labels.

Several models are made from the bundle of each data set (`afa.evaluate.entrants`). A data set is also called a field.
Features are observed in the planner's order, in random orders and in one fixed order. The answers after each number of
observations are compared with the labels. The bundle is also compared with shuffled bundles (the null) and with
classifiers trained on labels. In a shuffled bundle, features with the same possible values exchange their potentials.
Equal rows of a data set are resampled together, so that intervals account for the variation between distinct rows.
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

from afa.evaluate.accuracy import bins_of
from afa.evaluate.classifiers import CLASSIFIERS, one_thread, trained
from afa.evaluate.entrants import (
    HEADLINE,
    IDENTIFICATION_RULES,
    UNCOUPLED,
    WITH_PROBABILITIES,
    Entrant,
    FieldTask,
    HypothesisModel,
    facts,
    labels_for,
    main_metric,
    statistics,
    uncoupled,
    variants,
    whole,
)
from afa.evaluate.inputs import shuffled_alike
from afa.evaluate.long_tables import joined
from afa.evaluate.resampling import patient_weights, with_interval
from afa.evaluate.simulate.walks import measured_first
from afa.evaluate.update import update_of, updated_bundle, without_knowledge
from afa.model.arrays import Bools, Codes, Floats
from afa.model.orders import generator_of, random_orders
from afa.paper.experiments.base import Section

PLANNER_ORDER, RANDOM_ORDER, FIXED_ORDER = "planner", "random", "fixed"
LABELS_ALONE, BUNDLE_AND_LABELS, BUNDLE_AND_SHUFFLED_LABELS = (
    "labels alone",
    "bundle and labels",
    "bundle and shuffled labels",
)
"""Names of models. `LABELS_ALONE`: a model with a flat prior, updated with the labelled patients.
`BUNDLE_AND_LABELS`: the updated bundle. `BUNDLE_AND_SHUFFLED_LABELS`: the bundle updated with shuffled labels.
"""
WITHOUT_COUPLINGS = ", without couplings"
MODEL_COMPARISONS = (
    (BUNDLE_AND_LABELS, HEADLINE),
    (BUNDLE_AND_LABELS, LABELS_ALONE),
    (BUNDLE_AND_SHUFFLED_LABELS, HEADLINE),
    (BUNDLE_AND_LABELS + WITHOUT_COUPLINGS, UNCOUPLED),
    (BUNDLE_AND_LABELS + WITHOUT_COUPLINGS, LABELS_ALONE),
    (BUNDLE_AND_SHUFFLED_LABELS + WITHOUT_COUPLINGS, UNCOUPLED),
)
"""Pairs of models. The table `ladder` contains the difference between the metrics of each pair, with an interval.
"""
LADDER_COLUMNS = ["task", "model", "size", "t", "metric", "value", "low", "high", "draws"]
LEAGUE_CURVE_COLUMNS = ["task", "model", "allocation", "t", "metric", "value", "low", "high", "n"]


class LeagueSettings(Section):
    """The settings of the league. Labels are not used to choose settings."""

    rounds: tuple[int, ...] = Field(
        (0, 1, 2, 3, 5, 8, 12, 20), description="numbers of observed features, in addition to all"
    )
    patients: int = Field(
        20_000, ge=20, description="largest number of patients of a data set; a hash of names selects them"
    )
    seeds: tuple[int, ...] = Field((0, 1, 2), min_length=1, description="seeds of the random orders of each patient")
    shuffles: int = Field(20, ge=1, description="number of times that the knowledge is shuffled among features")
    shuffled: int = Field(300, ge=20, description="largest number of patients for whom shuffled bundles are evaluated")
    sizes: tuple[int, ...] = Field((10, 20, 50, 100, 200), description="numbers of labelled patients for training")
    repeats: int = Field(10, ge=1, description="number of random samples of labelled patients")
    labelled_rounds: tuple[int, ...] = Field(
        (3, 5, 8), description="members of `rounds` at which trained models are evaluated, in addition to all features"
    )
    tested: int = Field(1000, ge=20, description="largest number of patients on whom trained models are evaluated")
    ladder_resamples: int = Field(
        200,
        ge=20,
        description="number of resamples for intervals of metrics that depend on the number of labelled patients",
    )
    resamples: int = Field(500, ge=100)
    confidence: float = Field(0.95, gt=0, lt=1)


def follow_field(entrant: Entrant, settings: LeagueSettings) -> dict[str, pd.DataFrame]:
    """Return all tables about one data set.

    The tables are `curves`, `leads`, `null`, `trained`, `ladder`, `reliability` and `facts`.
    """
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
    """The evaluation of one data set's bundle on one question about the patients (a task)."""

    entrant: Entrant
    task: FieldTask
    settings: LeagueSettings

    @property
    def rounds(self) -> list[int]:
        most = len(self.entrant.features)
        return [*(t for t in self.settings.rounds if t < most), most]

    @property
    def asked(self) -> Bools:
        """Return a mask (P,) of the patients with a known correct answer."""
        return self.task.answers >= 0

    def tables(self) -> dict[str, pd.DataFrame]:
        own = variants(self.entrant, self.task)
        followed = [self.followed(name, *variant) for name, variant in own.items()]
        curves, leads, planned = zip(*followed, strict=True)
        found = {"curves": pd.concat(curves), "leads": pd.concat(leads)}
        if not self.task.main:
            return found
        found["null"] = self.null(own[HEADLINE][0])
        evidence = dict(zip(own, planned, strict=True))
        with one_thread():
            found["trained"], found["ladder"] = self.trained(evidence)
        found["reliability"] = pd.concat([self.reliability(name, evidence[name]) for name in WITH_PROBABILITIES])
        return found

    def followed(
        self, name: str, variant: HypothesisModel, among: Bools, values: Codes
    ) -> tuple[pd.DataFrame, pd.DataFrame, Floats]:
        """Return two tables about one model, and the log-evidence along the planner's order.

        The first table contains the metrics for each order of observation. The second table contains the metrics in the
        planner's order minus the metrics in random order. The P patients are the patients for whom `among` is True.
        """
        values, answers, weights = values[among], self.task.answers[among], self.weights(among)
        names = list(compress(self.entrant.patients, among))
        orders = random_orders(self.entrant.features, names, self.settings.seeds).swapaxes(0, 1)
        planned = variant.planned(values, self.rounds)
        several = {
            PLANNER_ORDER: [planned],
            FIXED_ORDER: [variant.planned(values, self.rounds, fixed=True)],
            RANDOM_ORDER: [variant.along(values, measured_first(each, values), self.rounds) for each in orders],
        }
        if name == HEADLINE and self.task.entity is None:
            several |= {rule: [variant.planned(values, self.rounds, rule=rule)] for rule in IDENTIFICATION_RULES[1:]}
        found = {}
        for allocation, each in several.items():
            runs = [statistics(self.task, answers, evidence, weights) for evidence in each]
            found[allocation] = {metric: np.mean([run[metric] for run in runs], axis=0) for metric in self.task.metrics}
        ahead = {metric: found[PLANNER_ORDER][metric] - found[RANDOM_ORDER][metric] for metric in self.task.metrics}
        curves = [self.rows(each, len(values), model=name, allocation=key) for key, each in found.items()]
        leads = self.rows(ahead, len(values), model=name, allocation=f"{PLANNER_ORDER} less {RANDOM_ORDER}")
        return pd.concat(curves), leads, planned

    def weights(self, among: Bools) -> Floats:
        """Return weights of the P patients, (1 + R, P): a row of ones, and one row for each of R bootstrap resamples.

        A resample draws from the distinct rows of the data set. In a resample, the weight of a patient is the number of
        times that the patient's row was drawn.
        """
        row = np.unique(self.entrant.rows[among], return_inverse=True)[1]
        purpose = f"league {self.entrant.name}"
        drawn = patient_weights(int(row.max()) + 1, resamples=self.settings.resamples, purpose=purpose)[:, row]
        return np.concatenate([np.ones((1, len(row))), drawn])

    def rows(self, found: Mapping[str, Floats], n: int, **keys: str) -> pd.DataFrame:
        """Return a table of values and intervals (`LEAGUE_CURVE_COLUMNS`), with one row for each metric and round.

        Parameters
        ----------
        found : metric -> the value and its resamples, (1 + R, T)

        """
        tables = [
            with_interval(every, confidence=self.settings.confidence).assign(metric=metric, t=self.rounds)
            for metric, every in found.items()
        ]
        return pd.concat(tables).assign(task=self.task.name, n=n, **keys)[LEAGUE_CURVE_COLUMNS]

    def null(self, variant: HypothesisModel) -> pd.DataFrame:
        """Return the curves of shuffled bundles.

        In a shuffled bundle, features with the same possible values exchange their potentials.
        """
        drawn = generator_of("league", "patients of the null").permutation(np.flatnonzero(self.asked))
        some = np.isin(np.arange(len(self.asked)), drawn[: self.settings.shuffled])
        values, answers = self.entrant.values[some], self.task.answers[some]
        found = []
        for shuffle in range(self.settings.shuffles):
            generator = generator_of("league", "shuffled knowledge", shuffle)
            places = shuffled_alike(self.entrant.bundle.kinds, generator)
            evidence = variant.planned(np.ascontiguousarray(values[:, places]), self.rounds)
            found.append(statistics(self.task, answers, evidence, np.ones((1, len(values)))))
        every = {metric: np.concatenate([each[metric] for each in found]) for metric in self.task.metrics}
        lines = {metric: np.vstack([[each.mean() for each in drawn.T], drawn]) for metric, drawn in every.items()}
        return self.rows(lines, len(values), model="shuffled", allocation=PLANNER_ORDER)

    def trained(self, own: Mapping[str, Floats]) -> tuple[pd.DataFrame, pd.DataFrame]:
        """Return two tables: metrics in each sample of labelled patients, and averages over samples (`ladder`).

        The table `ladder` contains the main metric averaged over samples, for each model and sample size.

        The models are classifiers, the bundle alone, and models updated with the labelled patients (`updated`). All
        models use the same samples of labelled patients, and are evaluated on patients outside the sample. For each
        pair of models in `MODEL_COMPARISONS`, the table `ladder` also contains the difference between the metrics of
        the two models. The intervals in the table `ladder` are computed by resampling both the samples of labelled
        patients and the evaluated patients.

        Parameters
        ----------
        own : variant -> (P, T, C) float64, log-evidence of the bundle for all patients with a known answer

        """
        most = len(self.entrant.features)
        rounds = [t for t in self.rounds if t in (*self.settings.labelled_rounds, most)]
        at, place = [self.rounds.index(t) for t in rounds], np.cumsum(self.asked) - 1
        weights = self.weights(self.asked)[: self.settings.ladder_resamples + 1]
        tables, steps = [], []
        for size in self.settings.sizes:
            drawn = list[dict[str, Floats]]()
            for repeat in range(self.settings.repeats):
                generator = generator_of("league", self.entrant.name, self.task.name, size, repeat)
                given, tested = split(self.task, size, self.settings.tested, generator)
                if given is None:
                    continue
                evidence = {name: own[name][place[tested]][:, at] for name in (HEADLINE, UNCOUPLED)}
                for method in CLASSIFIERS:
                    labelled = self.entrant.values[given], self.task.answers[given]
                    model = trained(method, *labelled, self.entrant.features, generator)
                    evidence[method] = model.planned(self.entrant.values[tested], rounds)
                evidence |= self.updated(given, tested, rounds, generator)
                answers, drawn_weights = self.task.answers[tested], weights[:, place[tested]]
                drawn.append(
                    {name: main_metric(self.task, answers, each, drawn_weights) for name, each in evidence.items()}
                )
                for name, each in evidence.items():
                    found = statistics(self.task, answers, each, np.ones((1, len(tested))))
                    for metric, value in found.items():
                        table = pd.DataFrame({"metric": metric, "t": rounds, "value": value[0], "n": len(tested)})
                        tables.append(table.assign(task=self.task.name, model=name, size=size, repeat=repeat))
            steps += self.steps(size, rounds, drawn)
        keys = ["task", "model", "size", "repeat", "metric", "t", "value", "n"]
        return joined(tables, keys), joined(steps, LADDER_COLUMNS)

    def updated(
        self, given: NDArray[np.intp], tested: NDArray[np.intp], rounds: list[int], generator: np.random.Generator
    ) -> dict[str, Floats]:
        """Return the log-evidence (P, T, C) for the tested patients under models updated with the labelled patients.

        Parameters
        ----------
        given, tested : (n,) int, indices of the labelled and of the tested patients

        """
        bundle, values, asked = self.entrant.bundle, self.entrant.values[given], self.entrant.values[tested]
        answers = self.task.answers[given]
        found = {}
        for name, prior, known in (
            (LABELS_ALONE, without_knowledge(bundle), answers),
            (BUNDLE_AND_LABELS, bundle, answers),
            (BUNDLE_AND_SHUFFLED_LABELS, bundle, generator.permutation(answers)),
        ):
            made = updated_bundle(prior, update_of(prior, values, labels_for(prior, self.task, known)))
            variant = whole(made, self.task)
            found[name] = variant.planned(asked, rounds)
            if name != LABELS_ALONE:
                found[name + WITHOUT_COUPLINGS] = uncoupled(variant).planned(asked, rounds)
        return found

    def steps(self, size: int, rounds: list[int], drawn: list[dict[str, Floats]]) -> list[pd.DataFrame]:
        """Return the rows of the table `ladder` for one number of labelled patients: metrics and differences.

        Parameters
        ----------
        drawn : one mapping for each sample: model -> (1 + R, T) float64, the main metric and its resamples over
            patients

        """
        if not drawn:
            return []
        n, names = len(drawn), list(drawn[0])
        generator = generator_of("league", "draws", self.entrant.name, self.task.name, size)
        resamples = len(drawn[0][names[0]]) - 1
        shares = np.vstack([np.ones(n), generator.multinomial(n, np.full(n, 1 / n), size=resamples)]) / n
        every = {name: np.einsum("rd,drt->rt", shares, np.stack([each[name] for each in drawn])) for name in names}
        every |= {f"{one} less {other}": every[one] - every[other] for one, other in MODEL_COMPARISONS}
        keys = {"task": self.task.name, "metric": self.task.metrics[0]}
        return [
            with_interval(values, confidence=self.settings.confidence).assign(
                model=name, size=size, draws=n, t=rounds, **keys
            )[LADDER_COLUMNS]
            for name, values in every.items()
        ]

    def reliability(self, name: str, own: Floats) -> pd.DataFrame:
        """Return mean predicted probability and share of correct answers in each of ten bins of the probability.

        In a binary task, the probability is that of the first hypothesis. In other tasks, the probability is that of
        the most likely hypothesis.
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


def split(
    task: FieldTask, size: int, most: int, generator: np.random.Generator
) -> tuple[NDArray[np.intp] | None, NDArray[np.intp]]:
    """Choose labelled patients, stratified by hypothesis, and at most `most` other patients for evaluation.

    Returns
    -------
    labelled : (size,) indices of patients, or None if a hypothesis has too few patients
    tested : (n,) indices of patients

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
