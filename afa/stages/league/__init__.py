"""The league: on tables with real labels, what a few measurements tell that were chosen without one label.

One field at a time. Its bundle is read in several ways (`afa.stages.league.entrants`), its patients are followed by
the planner's own order, by random ones and by one fixed order, and what is known along the way is held against the
labels. Beside it stand a null, the same knowledge at other features of the same values, and classifiers that were given
labels. Equal rows are drawn together: intervals are over distinct rows.

And the gain over entities beside sums over duels (docs/decisions.md, F15): on patients that a bundle draws from its own
models, where the gain alone is compared, since the bundle is right about them; or on those of a field.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import partial
from itertools import compress

import numpy as np
import pandas as pd
from numpy.typing import NDArray
from pydantic import Field
from scipy.special import log_softmax, softmax

from afa.bundle import Bundle
from afa.engine.course import MISSING
from afa.engine.patient import Patient
from afa.errors import ConfigError, Fault
from afa.inference.result import probabilities_of
from afa.mrf import Floats
from afa.orders import generator_of, random_orders
from afa.planner.explicit import ExplicitPatient
from afa.planner.sides import sides_for
from afa.stages.base import Section
from afa.stages.inputs import shuffled_alike
from afa.stages.labels_needed.classifiers import METHODS, one_thread
from afa.stages.league.entrants import HEADLINE, RULES, STATED, Entrant, Reading, Task, facts, readings, trained
from afa.stages.simulate.walks import measured_first
from afa.stats.accuracy import Resampled, accuracies, bins_of, ranking
from afa.stats.resampling import patient_weights, with_interval
from afa.stats.tables import joined

PLANNER, RANDOM, FIXED = "planner", "random", "fixed"
CURVES = ["task", "model", "allocation", "t", "metric", "value", "low", "high", "n"]


class Settings(Section):
    """What the league follows and repeats; nothing is tuned on labels."""

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
    """All tables of one field: `curves`, `leads`, `null`, `trained`, `reliability` and `facts`."""
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
    """One question to the patients of one field."""

    entrant: Entrant
    task: Task
    settings: Settings

    @property
    def rounds(self) -> list[int]:
        most = len(self.entrant.features)
        return [*(t for t in self.settings.rounds if t < most), most]

    @property
    def asked(self) -> NDArray[np.bool_]:
        """(P,) of whom the answer is known."""
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
        """Curves and leads of a reading, and log-evidence (P, T, C) along the planner's order of all patients asked."""
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
        """(1 + R, P) once, then as often as a resample of the distinct rows draws each patient's."""
        row = np.unique(self.entrant.rows[among], return_inverse=True)[1]
        purpose = f"league {self.entrant.name}"
        drawn = patient_weights(int(row.max()) + 1, resamples=self.settings.resamples, purpose=purpose)[:, row]
        return np.concatenate([np.ones((1, len(row))), drawn])

    def rows(self, found: Mapping[str, Floats], n: int, **keys: str) -> pd.DataFrame:
        """`CURVES`, a row for each metric and round; found : by metric, the value and its resamples, (1 + R, T)."""
        tables = [
            with_interval(every, confidence=self.settings.confidence).assign(metric=metric, t=self.rounds)
            for metric, every in found.items()
        ]
        return pd.concat(tables).assign(task=self.task.name, n=n, **keys)[CURVES]

    def null(self, reading: Reading) -> pd.DataFrame:
        """The same knowledge, couplings with it, at other features that can take the same values."""
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
        """Classifiers given labels, and the bundle, on the same other patients; a row for each size and repeat.

        own : (P, T, C) log-evidence of the bundle, of all patients asked.
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
        """Tenths of the stated probability of the first hypothesis, or of the one in first place: stated, observed."""
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


def split(
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


GAINS = ("information", "sum over duels", "weighted sum over duels", "random")
ROUNDS = (1, 2, 3, 5, 8, 12)


def gains_of_drawn(bundle: Bundle, n_patients: int, *, seed: int = 0, resamples: int = 1_000) -> pd.DataFrame:
    """`compare_gains` of patients whose entity is drawn uniformly, and each feature from its own marginal."""
    draw, empty = generator_of("gains", bundle.digest, seed), Patient(bundle, gain="cmi")
    own = np.full((len(bundle.entities), len(bundle.features), 3), 1 / 3)
    own[empty.packed.owner, empty.packed.feature] = probabilities_of(empty.state.m, empty.state.q)
    truth = draw.integers(len(bundle.entities), size=n_patients)
    values = (draw.random((n_patients, len(bundle.features), 1)) > own[truth].cumsum(axis=2)[:, :, :2]).sum(axis=2) - 1
    patient = partial(Patient, bundle, gain="cmi")
    return compare_gains(patient, values, truth, draw, resamples=resamples)


def gains_of_field(entrant: Entrant, *, seed: int = 0, resamples: int = 1_000) -> pd.DataFrame:
    """`compare_gains` of a field's patients who have one of its entities, by how often each value occurs.

    Raises
    ------
    ConfigError : the field does not ask which one of several entities holds.

    """
    task = next((task for task in entrant.tasks if task.main and task.entity is None), None)
    if task is None:
        expected = "one that asks which of several entities holds"
        raise ConfigError(Fault(f"field {entrant.name}", "a question of yes or no", expected, "name another field"))
    bundle = entrant.bundle
    sides = sides_for(bundle, "one", exactly=False, entity=None, discounted=False)
    patient = partial(ExplicitPatient, sides, rivals=True, inference="mean_field", gain="cmi")
    known = (task.answers >= 0) & (task.answers < len(bundle.entities))
    draw = generator_of("gains", bundle.digest, seed)
    return compare_gains(patient, entrant.values[known], task.answers[known], draw, resamples=resamples)


def compare_gains(
    patient: Callable[[], Patient | ExplicitPatient],
    values: NDArray[np.integer],
    truth: NDArray[np.int64],
    draw: np.random.Generator,
    *,
    resamples: int,
) -> pd.DataFrame:
    """How often the right entity comes first after some features, by the gain that chose them.

    patient : makes one of whom nothing is known. values : (P, M) in {-1, 0, +1} or `MISSING`, which is never asked for.
    truth : (P,) the entity that holds. draw : of random order. resamples : of patients, for intervals.

    Returns gain, t, first, low, high, lead of `information` on the same patients, lead_low, lead_high.
    """
    n_patients, n_features = values.shape
    rounds = [t for t in ROUNDS if t <= n_features]
    right = {gain: np.zeros((n_patients, rounds[-1] + 1)) for gain in GAINS}
    for gain, found in right.items():
        for i in range(n_patients):
            one, left, order = patient(), values[i] != MISSING, draw.permutation(n_features)
            for t in range(1, rounds[-1] + 1):
                if left.any():
                    told = -order.astype(np.float64) if gain == "random" else _told(one, gain)
                    feature = int(np.argmax(np.where(left, told, -np.inf)))
                    one.observe(feature, int(values[i, feature]))
                    left[feature] = False
                found[i, t] = one.log_evidence().argmax() == truth[i]
    resampled = Resampled.of(range(n_patients), resamples=resamples, confidence=0.95, purpose="gains")
    tables, each = [], np.ones((n_patients, len(rounds)))
    for gain, found in right.items():
        first, lead = (resampled.mean([(part[:, rounds], each)]) for part in (found, right["information"] - found))
        table = {"gain": gain, "t": rounds, "first": first["value"], "low": first["low"], "high": first["high"]}
        table |= {"lead": lead["value"], "lead_low": lead["low"], "lead_high": lead["high"]}
        tables.append(pd.DataFrame(table))
    return pd.concat(tables, ignore_index=True)


def _told(patient: Patient | ExplicitPatient, gain: str) -> Floats:
    """(M,) what each feature tells, by `information` or by a sum over all duels, weighted by (w_a + w_b)^2 or not."""
    if gain == "information":
        return patient.information()
    a, b = patient.pairs.T
    posterior = softmax(patient.log_evidence())
    weights = (posterior[a] + posterior[b]) ** 2 if gain.startswith("weighted") else np.ones(len(a))
    return patient.summed_gain(np.arange(len(a)), weights)
