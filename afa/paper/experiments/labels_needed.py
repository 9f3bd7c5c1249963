"""How many labelled patients a classifier needs in training to be as accurate as the zero-shot scores.

The zero-shot scores come from the stage `labels`. Some scores use the paper's encoding and class models. Other scores
use an alternative encoding together with alternative class models. The classifiers are trained on the same encoded
values from which the scores are computed, and are evaluated on patients whose labels were not used in training. If a
bootstrap resample contains a patient, it contains all scores and all classifier predictions for this patient. For
classifiers trained on shuffled labels, the resamples are drawn from these classifiers, not from the patients. The
reason is that the accuracy depends far more on the shuffle than on the patients.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import product
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

import numpy as np
import pandas as pd

from afa.cohort.cohort import Cohort, with_code
from afa.errors import CohortError, Fault
from afa.evaluate.accuracy import Resampled, share_of
from afa.evaluate.classifiers import CLASSIFIERS, one_thread, train, trained
from afa.evaluate.inputs import note
from afa.evaluate.long_tables import groups, joined, rows_of
from afa.evaluate.resampling import interval, mean_and_each
from afa.evaluate.summary import Labelled, labelled, summary_rows
from afa.model.arrays import Bools, Floats, Ints
from afa.model.bundle import Bundle
from afa.model.orders import generator_of
from afa.paper.experiments.label_tasks import GREEDY, RANDOM, LabelSetting, LabelTask, tasks_of

if TYPE_CHECKING:
    from afa.paper.experiments.settings import Bootstrap, LabelsNeeded

CLOSURE_OF_REFERENCE = {"controls": "differential", "ranges": "differential", "cohort": "shared"}
"""Reference of the encoding -> closure (how class models are made) of the compared zero-shot score. The paper's pair is
(`controls`, `differential`). The pair (`cohort`, `shared`) changes both the encoding and the closure.
"""

ODDS_DIGITS = 6
"""Decimals of a classifier's log-odds; digits beyond are within the tolerance of the fit."""
LARGEST_SUPPORT_PERCENT = 25
"""Largest share of the support, in per cent, at which classifiers that choose features are evaluated."""
SPLITS = ["entity", "size", "repeat", "seed", "labelled", "labelled_positive", "tested", "tested_positive"]
ZERO_SHOT_COLUMNS = ["reference", "coupling", "entity", "allocation", "seed", "patient", "t", "calibrated", "label"]


def run(
    bundle: Bundle, cohort: Cohort, by_cohort: Path, labels: Mapping[str, pd.DataFrame], *, labels_needed: LabelsNeeded
) -> dict[str, pd.DataFrame]:
    """Return the log-odds that classifiers predict for all patients not used in training, and the zero-shot scores.

    A size (number of labelled patients) is skipped for a label if too few patients would be left for evaluation.

    Parameters
    ----------
    by_cohort, labels : the input `by_cohort` of the stage `labels`, and its tables. The scores in these tables define
        the values of t and the random orders

    Returns
    -------
    predictions : log-odds for each (reference, method, permuted, entity, size, repeat, allocation, t, patient). t is in
        per cent of the support
    zero_shot : `calibrated` scores and `label` for each (reference, coupling, entity, allocation, seed, patient, t)
    splits : numbers of patients for each (entity, size, repeat)
    left_out : skipped labels and sizes, with the reason

    Raises
    ------
    CohortError : the scores are of other patients than the cohort.

    """
    settings, fixed = labels_needed, labels["tasks"][labels["tasks"]["variant"] == ""]
    thresholds = fixed.drop_duplicates("reference").set_index("reference")["threshold"]
    cohorts = {
        reference: cohort if reference != "cohort" else with_code(cohort, by_cohort, float(thresholds[reference]))
        for reference in CLOSURE_OF_REFERENCE
        if reference in thresholds
    }
    tasks, left_out = _choose_tasks(bundle, cohorts, settings.labels)
    rivals = _zero_shot_scores(labels["scores"], tasks)
    percents, seeds = sorted(set(rivals["t"])), sorted(set(rivals["seed"].dropna()))
    parts: list[pd.DataFrame] = []
    splits: list[tuple[object, ...]] = []
    with one_thread():
        for task, size in product(tasks, sorted(settings.sizes)):
            if reason := _reason_to_skip(task, size, settings.tested, settings.of_each_class):
                left_out.append((task.entity, size, reason))
                continue
            for repeat in range(settings.repeats):
                labelled, seed = drawn(task, size, repeat), int(seeds[repeat % len(seeds)])
                counts = [n for own in (labelled, ~labelled) for n in (own.sum(), (own & task.positive).sum())]
                splits.append((task.entity, size, repeat, seed, *counts))
                for shuffled in (False, True) if repeat < settings.permuted else (False,):
                    found = predicted(task, labelled, shuffled, repeat, percents, seed)
                    parts += [part.assign(size=size, repeat=repeat) for part in found]
    made = {
        "predictions": joined(parts),
        "zero_shot": rivals,
        "splits": pd.DataFrame(splits, columns=SPLITS).drop_duplicates(ignore_index=True),
        "left_out": pd.DataFrame(left_out, columns=["entity", "size", "reason"]).drop_duplicates(ignore_index=True),
    }
    made["left_out"] = made["left_out"].astype({"entity": "str", "size": "Int64", "reason": "str"})
    for entity, n, reason in made["left_out"].fillna({"size": 0}).itertuples(index=False):
        note(f"label {entity} is left out{f' with {n} labelled patients' if n else ''}: {reason}")
    return made


def _choose_tasks(
    bundle: Bundle, cohorts: Mapping[str, Cohort], most_labels: int
) -> tuple[list[LabelTask], list[tuple[str, int | None, str]]]:
    """Return a list of binary tasks, one for each pair of a label and an encoding, and a list of excluded labels."""
    tasks: list[LabelTask] = []
    of_one_class: list[str] = []
    for reference, coupling in CLOSURE_OF_REFERENCE.items():
        if reference in cohorts:
            setting = LabelSetting(reference, coupling if bundle.ternary else "explicit")  # type: ignore[arg-type]
            found, of_one_class = tasks_of(bundle, {None: cohorts[reference]}, [setting])
            tasks += found
    names = list(dict.fromkeys(task.entity for task in tasks))
    chosen = sorted(names, key=lambda name: hashlib.sha256(f"labels needed\0{name}".encode()).digest())[:most_labels]
    beyond = f"not among the {most_labels} that are used"
    left_out: list[tuple[str, int | None, str]] = [(name, None, "all patients have the same") for name in of_one_class]
    left_out += [(name, None, beyond) for name in names if name not in chosen]
    return [task for task in tasks if task.entity in chosen], left_out


def _zero_shot_scores(scores: pd.DataFrame, tasks: Sequence[LabelTask]) -> pd.DataFrame:
    """Return the zero-shot scores of the given tasks in the settings that were fixed in advance.

    If the bundle has probabilities, the result also contains the scores computed from these probabilities (`explicit`).
    """
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
    return pd.concat(parts)[ZERO_SHOT_COLUMNS].reset_index(drop=True)


def _positive_count(task: LabelTask, size: int) -> int:
    """Return the number of positive patients in a training set of `size` patients.

    The share of positive patients equals the share in the cohort, but each class has at least one patient.
    """
    return int(np.clip(round(size * task.positive.mean()), 1, size - 1))


def _reason_to_skip(task: LabelTask, size: int, tested: int, of_each_class: int) -> str:
    """Return the reason to skip a size of the training set: too few patients would be left for evaluation.

    If enough patients are left, return "".
    """
    left = max(len(task.positive) - size, 0)
    if left < tested:
        return f"leaves {left} patients to evaluate, fewer than {tested}"
    positive = int(task.positive.sum()) - _positive_count(task, size)
    for count, words in ((positive, "with the label"), (left - positive, "without the label")):
        if count < of_each_class:
            return f"leaves {max(count, 0)} patients {words}, fewer than {of_each_class}"
    return ""


def drawn(task: LabelTask, size: int, repeat: int) -> Bools:
    """Choose the labelled patients of one repeat at random, stratified by class.

    In the same repeat, a larger training set contains all smaller training sets.

    Returns
    -------
    labelled : (P,) bool

    """
    order = generator_of("labels needed", "split", task.entity, repeat).permutation(len(task.positive))
    positive = _positive_count(task, size)
    labelled = np.zeros(len(order), dtype=np.bool_)
    labelled[order[task.positive[order]][:positive]] = True
    labelled[order[~task.positive[order]][: size - positive]] = True
    return labelled


def predicted(
    task: LabelTask, labelled: Bools, shuffled: bool, repeat: int, percents: Sequence[int], seed: int
) -> Iterator[pd.DataFrame]:
    """Train each classifier on the labelled patients, and yield its predictions for the other patients.

    Features are observed in two orders: a random order, and the order that the classifier chooses greedily.

    Parameters
    ----------
    labelled : (P,) bool

    """
    names = ("labels needed", task.entity, int(labelled.sum()), repeat, task.setting.reference)
    answers = task.positive[labelled].astype(np.int64)
    if shuffled:
        answers = generator_of(*names, "shuffled").permutation(answers)
    near = [t for t in percents if t <= LARGEST_SUPPORT_PERCENT]
    patients = np.array(task.patients, dtype=object)[~labelled]
    support, panel, others = task.values[:, task.support], task.values[labelled], task.values[~labelled]
    seen = task.seen(percents, seed)[~labelled].reshape(-1, support.shape[1])
    known_values = np.repeat(support[~labelled], len(percents), axis=0)
    for method in CLASSIFIERS:
        # Train on the features of the entity's model. Predict from the same observed features as the zero-shot score.
        known = train(method, support[labelled], answers == 1, generator_of(*names, "support"))
        along = known.log_odds(known_values, seen)
        # Train on all features. The classifier chooses which features to observe. The zero-shot score has the same
        # number of observed features.
        own = trained(method, panel, 1 - answers, task.bundle.features, generator_of(*names, "panel"))
        chosen = own.planned(others, task.counts(near))[..., 0]
        for allocation, shown, log_odds in ((RANDOM, percents, along), (GREEDY, near, chosen)):
            rows = rows_of(patient=patients, t=np.array(shown, dtype=np.int32)).assign(allocation=allocation)
            answer = np.round(log_odds, ODDS_DIGITS).ravel() + 0.0
            keys = {"reference": task.setting.reference, "entity": task.entity, "method": method}
            yield rows.assign(**keys, permuted=shuffled, log_odds=answer)


@dataclass(frozen=True)
class RepeatedTests:
    """An evaluation that is repeated K times. In each repeat, models are evaluated on a subset of the P patients.

    Parameters
    ----------
    tested : (K, P) bool, True for the patients on whom the models of a repeat are evaluated
    positive : (P,) bool
    weights : (R + 1, P) float64, how often each resample contains each patient

    """

    tested: Bools
    positive: Bools
    weights: Floats

    def auroc(self, scores: Floats) -> Floats:
        """Return the AUROC in each resample: the share of correctly ordered pairs of patients.

        A pair is a positive and a negative patient who are evaluated in the same repeat. A pair with equal scores
        counts one half. If a resample contains no pair of a positive and a negative patient, its AUROC is NaN.

        Parameters
        ----------
        scores : (K, P) float64

        Returns
        -------
        auroc : (R + 1,) float64

        """
        (together, pairs), one, other = (
            self._evaluated_pairs,
            scores[:, self.positive, None],
            scores[:, None, ~self.positive],
        )
        higher = np.where(together, (one > other) + 0.5 * (one == other), 0.0).sum(axis=0)
        return share_of(self._weighted_pair_sum(higher), pairs)

    def balanced_accuracy(self, scores: Floats) -> Floats:
        """Return the balanced accuracy of decisions by the signs of scores, in each resample.

        A score of 0 counts as half correct. The result is the mean over the repeats that have patients of both classes,
        or NaN if there is no such repeat.

        Parameters
        ----------
        scores : (K, P) float64

        Returns
        -------
        accuracy : (R + 1,) float64

        """
        right = 0.5 + 0.5 * np.sign(scores) * np.where(self.positive, 1.0, -1.0)
        earned = np.where(self.tested, right, 0.0)
        both = np.ones((len(self.weights), len(scores)), dtype=np.bool_)
        shares = np.zeros(both.shape)
        for chosen, weights, total in self._class_weights:
            both &= total > 0
            shares += (weights @ earned[:, chosen].T) / np.maximum(total, 1) / 2
        return share_of((shares * both).sum(axis=1), both.sum(axis=1, dtype=np.float64))

    @cached_property
    def repeats(self) -> list[RepeatedTests]:
        """Return one `RepeatedTests` for each repeat. Every patient has the weight 1."""
        plain = np.ones((1, len(self.positive)))
        return [RepeatedTests(self.tested[[k]], self.positive, plain) for k in range(len(self.tested))]

    @cached_property
    def _class_weights(self) -> list[tuple[Bools, Floats, Floats]]:
        """Return, for each class, a mask of its C patients, the weights of these patients, and totals of the weights.

        The shapes are (P,), (R + 1, C) and (R + 1, K).

        Each total is the sum of the weights of the patients of the class who are evaluated in one repeat.
        """
        chosen = [(mask, self.weights[:, mask]) for mask in (self.positive, ~self.positive)]
        return [(mask, weights, weights @ self.tested[:, mask].T.astype(np.float64)) for mask, weights in chosen]

    @cached_property
    def _evaluated_pairs(self) -> tuple[Bools, Floats]:
        """Return two arrays: a mask of the evaluated pairs in each repeat, and the number of pairs in each resample.

        A pair consists of a positive and a negative patient.
        """
        together = self.tested[:, self.positive, None] & self.tested[:, None, ~self.positive]
        return together, self._weighted_pair_sum(together.sum(axis=0))

    def _weighted_pair_sum(self, pairs: Floats | Ints) -> Floats:
        (_, of_positive, _), (_, of_negative, _) = self._class_weights
        summed: Floats = ((of_positive @ pairs) * of_negative).sum(axis=1)
        return summed


ZERO_SHOT = "posterior"
"""Method name of the zero-shot score minus its shift, as in the table `labels`."""
RANKING_METRIC, DECISION_METRIC = "auroc", "balanced_accuracy"
EXPLICIT = "explicit"
"""Method name of the zero-shot score by the bundle's probabilities. In the summary, it is a coupling of `ZERO_SHOT`."""


class Key(NamedTuple):
    """The key of a learning curve, which shows a metric as a function of the number of labelled patients.

    `permuted` is True if the labels were shuffled.
    """

    metric: str
    reference: str
    allocation: str
    t: int
    method: str
    permuted: bool


CLASSIFIER_COLUMNS, STRATEGY_COLUMNS = ["reference", "entity", "size", "permuted"], ["method", "allocation", "t"]
MetricValues = dict[Key, dict[int, dict[str, Floats]]]
"""Key -> number of labelled patients -> label -> values, (R + 1,): the value on all patients, followed by resamples."""
Cases = dict[tuple[int, bool], dict[str, int]]


def summarise(tables: Mapping[str, pd.DataFrame], *, bootstrap: Bootstrap) -> pd.DataFrame:
    """Return the rows of the table `labels_needed` in `summary.csv`.

    The column `level` contains the number of labelled patients. Rows with an `entity` are about a single label.

    Returns
    -------
    count : smallest number of labelled patients such that, with this and all larger numbers, a classifier is better
        than the zero-shot score on the same patients. The quantity is the compared metric: mean `auroc`, or balanced
        accuracy. The count is empty if no classifier is better with the largest number. In the variant `clearly`, the
        interval of the difference must be above 0. In the variant `permuted`, labels are shuffled
    gap : AUROC or balanced accuracy of the classifier minus that of the zero-shot score

    """
    rows = [_label_count_rows(tables)]
    if len(tables["predictions"]):
        patients = tables["zero_shot"]["patient"].unique()
        found, cases = _learning_curve_metrics(
            tables, Resampled.of(patients, **dict(bootstrap), purpose="labels_needed")
        )
        rows += [_curves(found, cases, bootstrap.confidence), _labels_needed_rows(found, bootstrap.confidence)]
    table = pd.concat(rows, ignore_index=True)
    table["gain"] = table["allocation"].map({GREEDY: "cmi"}) if "allocation" in table else None
    return summary_rows("labels_needed", table.assign(target="clinical"))


def _label_count_rows(tables: Mapping[str, pd.DataFrame]) -> pd.DataFrame:
    """Return summary rows with the numbers of used and unused labels."""
    splits, left_out = tables["splits"], tables["left_out"]
    not_used, sizes = int(left_out["size"].isna().sum()), sorted({*splits["size"], *left_out["size"].dropna()})
    counts = [("labels", None, splits["entity"].nunique()), ("labels_not_used", None, not_used)]
    counts += [("labels", size, splits.loc[splits["size"] == size, "entity"].nunique()) for size in sizes]
    return pd.DataFrame(counts, columns=["quantity", "level", "value"]).assign(metric="count")


def _learning_curve_metrics(tables: Mapping[str, pd.DataFrame], resampled: Resampled) -> tuple[MetricValues, Cases]:
    """Return two mappings: the metrics of all learning curves (`MetricValues`), and counts of predictions (`Cases`)."""
    found, cases = MetricValues(), Cases()
    weights, repeats = resampled.every, tables["splits"].groupby(["entity", "size"]).size()
    labels = tables["zero_shot"].drop_duplicates(["entity", "patient"])
    for (reference, entity, size, permuted), answers in groups(
        _predictions_and_rivals(tables), *CLASSIFIER_COLUMNS, sort=True
    ):
        of_entity = labels[labels["entity"] == entity]
        known, positive = resampled.places(of_entity["patient"]), of_entity["label"].to_numpy() == 1
        tests: RepeatedTests | None = None
        for (_, method, allocation, t), run in groups(answers, "rival", *STRATEGY_COLUMNS, sort=True):
            scores = np.full((run["repeat"].max() + 1, len(resampled.units)), np.nan)
            scores[run["repeat"], resampled.places(run["patient"])] = run["log_odds"]
            if tests is None:
                tests = RepeatedTests(~np.isnan(scores[:, known]), positive, weights[:, known])
                cases.setdefault((size, permuted), {})[entity] = len(run)
            for metric, measured in (
                (RANKING_METRIC, RepeatedTests.auroc),
                (DECISION_METRIC, RepeatedTests.balanced_accuracy),
            ):
                if permuted:
                    draw = generator_of("labels needed", "chance", entity, size)
                    chosen = draw.integers(len(scores), size=(len(weights) - 1, repeats[entity, size]))
                    each = np.array([measured(one, scores[[k]][:, known])[0] for k, one in enumerate(tests.repeats)])
                    values = np.append(each.mean(), each[chosen].mean(axis=1))
                else:
                    values = measured(tests, scores[:, known])
                key = Key(metric, reference, allocation, int(t), method, bool(permuted))
                found.setdefault(key, {}).setdefault(int(size), {})[entity] = values
    return found, cases


def _predictions_and_rivals(tables: Mapping[str, pd.DataFrame]) -> pd.DataFrame:
    """Return one table with the classifiers' predictions and the zero-shot scores for the same patients and states.

    The column `rival` is True for zero-shot scores. In each repeat, classifiers and zero-shot scores use the same
    random order of features.
    """
    predictions = tables["predictions"][[*CLASSIFIER_COLUMNS, *STRATEGY_COLUMNS, "repeat", "patient", "log_odds"]]
    splits = tables["splits"][["entity", "size", "repeat", "seed"]]
    same = predictions[(predictions["method"] == CLASSIFIERS[0]) & ~predictions["permuted"]].merge(splits)
    same = same.drop(columns=["method", "log_odds"])
    same["seed"] = same["seed"].where(same["allocation"] == RANDOM, -1)
    scores = tables["zero_shot"].fillna({"seed": -1}).rename(columns={"calibrated": "log_odds"})
    scores["method"] = np.where(scores["coupling"] == EXPLICIT, EXPLICIT, ZERO_SHOT)
    rivals = same.merge(scores, on=["reference", "entity", "allocation", "t", "patient", "seed"])[predictions.columns]
    return pd.concat([predictions.assign(rival=False), rivals.assign(rival=True)], ignore_index=True)


def _curves(found: MetricValues, cases: Cases, confidence: float) -> pd.DataFrame:
    """Return metrics, and the metrics of classifiers minus the metrics of zero-shot scores, for each size.

    Values are given for single labels and as means over labels.
    """
    parts: list[Labelled] = []
    for key, by_size in found.items():
        gaps = _gaps_to_zero_shot(found, key) if key.method in CLASSIFIERS and not key.permuted else {}
        for size, values in by_size.items():
            shown = {(key.metric, None): values} | ({("gap", key.metric): gaps[size]} if gaps else {})
            for (metric, quantity), by_label in shown.items():
                rows = mean_and_each(by_label, cases[size, key.permuted], confidence=confidence)
                rows = rows if key.metric == RANKING_METRIC and not key.permuted else rows[:1]
                parts.append((rows, {**_summary_keys(key), "metric": metric, "quantity": quantity, "level": size}))
    return labelled(parts)


def _summary_keys(key: Key) -> dict[str, object]:
    """Return {summary column: value} for a key. For a classifier, the column `coupling` is empty."""
    coupling = {ZERO_SHOT: CLOSURE_OF_REFERENCE[key.reference], EXPLICIT: EXPLICIT}.get(key.method)
    names = key._asdict() | {"method": ZERO_SHOT if key.method == EXPLICIT else key.method, "coupling": coupling}
    return names | {"variant": "permuted" if names.pop("permuted") else None}


def _gaps_to_zero_shot(found: MetricValues, key: Key) -> dict[int, dict[str, Floats]]:
    """Return a classifier's metric minus the zero-shot score's metric, for each label and size of the training set.

    The zero-shot score from the bundle's probabilities (`explicit`) is used only if there is no other zero-shot score.
    """
    rival = found.get(key._replace(method=ZERO_SHOT)) or found[key._replace(method=EXPLICIT)]
    return {
        size: {name: value - rival[size][name] for name, value in values.items()} for size, values in found[key].items()
    }


def _labels_needed_rows(found: MetricValues, confidence: float) -> pd.DataFrame:
    """Return how many labelled patients a classifier needs to beat the zero-shot score, with an interval."""
    tail = (1 - confidence) / 2
    lines: list[dict[str, object]] = []
    for key in found:
        if key.method not in CLASSIFIERS or key.permuted or key.t == 0:
            continue
        gaps = sorted(_gaps_to_zero_shot(found, key).items())
        sizes, every = [size for size, _ in gaps], np.array([np.mean([*each.values()], axis=0) for _, each in gaps])
        first = _first_ahead(every > 0, sizes)
        clear = _first_ahead(interval(every[:, 1:].T, confidence=confidence)[0][:, None] > 0, sizes)
        low, high = np.quantile(first[1:], [tail, 1 - tail], method="inverted_cdf")
        for variant, numbers in ((None, (first[0], low, high)), ("clearly", (clear[0], np.nan, np.nan))):
            value, least, most = (number if np.isfinite(number) else None for number in numbers)
            of = {**_summary_keys(key), "metric": "count", "quantity": key.metric, "variant": variant}
            lines.append({**of, "value": value, "low": least, "high": most, "n": max(sizes)})
    return pd.DataFrame(lines)


def _first_ahead(ahead: Bools, sizes: Sequence[int]) -> Floats:
    """Return, for each resample, the smallest size such that `ahead` is True at this size and at all larger sizes.

    The result has the shape (R,), and is inf if there is no such size.

    Parameters
    ----------
    ahead : (S, R) bool, by size and resample

    """
    always = np.logical_and.accumulate(ahead[::-1], axis=0)[::-1]
    return np.where(always.any(axis=0), np.array(sizes, dtype=np.float64)[always.argmax(axis=0)], np.inf)
