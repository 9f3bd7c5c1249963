"""The value of labels: classifiers trained on n labelled patients, compared with zero-shot scores on the others.

The zero-shot scores are those of the stage `labels`, with the paper's choices and with both alternatives that need no
label. The classifiers use the same values, and are evaluated on patients whose labels were not used in training.

Scores and classifiers are resampled together: a patient is resampled with all predictions, of every repeat in which the
patient was not labelled. For shuffled labels, classifiers are resampled instead of patients, because their accuracy
depends far more on the shuffle than on the patients.
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping, Sequence
from itertools import product
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

import numpy as np
import pandas as pd

from afa.cohort.cohort import Cohort, with_code
from afa.errors import CohortError, Fault
from afa.evaluate.accuracy import RepeatedTests, Resampled
from afa.evaluate.classifiers import COUPLINGS, METHODS, Mask, one_thread, predicted
from afa.evaluate.inputs import note
from afa.evaluate.label_tasks import GREEDY, RANDOM, LabelSetting, LabelTask, tasks_of
from afa.evaluate.long_tables import groups, joined
from afa.evaluate.resampling import interval, mean_and_each
from afa.evaluate.summary import Labelled, labelled, summary_rows
from afa.model.bundle import Bundle
from afa.model.mrf import Floats
from afa.model.orders import generator_of

if TYPE_CHECKING:
    from afa.paper.experiments.settings import Bootstrap, LabelsNeeded

SPLITS = ["entity", "size", "repeat", "seed", "labelled", "labelled_positive", "tested", "tested_positive"]
OF_ZERO_SHOT = ["reference", "coupling", "entity", "allocation", "seed", "patient", "t", "calibrated", "label"]


def run(
    bundle: Bundle, cohort: Cohort, by_cohort: Path, labels: Mapping[str, pd.DataFrame], *, labels_needed: LabelsNeeded
) -> dict[str, pd.DataFrame]:
    """Return the log-odds of classifiers trained on some labelled patients, for all others, and the zero-shot scores.

    A size that leaves too few patients is skipped for that label.

    Parameters
    ----------
    by_cohort, labels : the input of the stage `labels`, and its tables, whose scores define the t and the random orders

    Returns
    -------
    predictions : by (reference, method, permuted, entity, size, repeat, allocation, t, patient), with t in per cent of
        the support
    zero_shot : `calibrated` scores for comparison, by (reference, coupling, entity, allocation, seed, patient, t), with
        the `label`
    splits : numbers of patients by (entity, size, repeat)
    left_out : labels and sizes that are skipped, with the reason

    Raises
    ------
    CohortError : the scores belong to other patients.

    """
    settings, fixed = labels_needed, labels["tasks"][labels["tasks"]["variant"] == ""]
    thresholds = fixed.drop_duplicates("reference").set_index("reference")["threshold"]
    cohorts = {
        reference: cohort if reference != "cohort" else with_code(cohort, by_cohort, float(thresholds[reference]))
        for reference in COUPLINGS
        if reference in thresholds
    }
    tasks, left_out = _tasks(bundle, cohorts, settings.labels)
    rivals = _zero_shot_scores(labels["scores"], tasks)
    percents, seeds = sorted(set(rivals["t"])), sorted(set(rivals["seed"].dropna()))
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


def _tasks(
    bundle: Bundle, cohorts: Mapping[str, Cohort], most_labels: int
) -> tuple[list[LabelTask], list[tuple[str, int | None, str]]]:
    """Return the tasks of the labels that are used, by reference, and the unused labels with the reason."""
    tasks: list[LabelTask] = []
    of_one_class: list[str] = []
    for reference, coupling in COUPLINGS.items():
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
    """Return the zero-shot scores of these tasks in the fixed settings, and scores by probabilities if any exist."""
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
    return pd.concat(parts)[OF_ZERO_SHOT].reset_index(drop=True)


def _of_positive(task: LabelTask, size: int) -> int:
    """Return how many of `size` labelled patients have the label: as in the cohort, and at least one of each class."""
    return int(np.clip(round(size * task.positive.mean()), 1, size - 1))


def _too_few(task: LabelTask, size: int, tested: int, of_each_class: int) -> str:
    """Return why a task cannot be used with this number of labelled patients; empty if it can."""
    left = max(len(task.positive) - size, 0)
    if left < tested:
        return f"leaves {left} patients to evaluate, fewer than {tested}"
    positive = int(task.positive.sum()) - _of_positive(task, size)
    for count, words in ((positive, "with the label"), (left - positive, "without the label")):
        if count < of_each_class:
            return f"leaves {max(count, 0)} patients {words}, fewer than {of_each_class}"
    return ""


def drawn(task: LabelTask, size: int, repeat: int) -> Mask:
    """Return the labelled patients of one repeat, (P,) bool, stratified by class.

    In the same repeat a larger set contains the smaller ones.
    """
    order = generator_of("labels needed", "split", task.entity, repeat).permutation(len(task.positive))
    positive = _of_positive(task, size)
    labelled = np.zeros(len(order), dtype=np.bool_)
    labelled[order[task.positive[order]][:positive]] = True
    labelled[order[~task.positive[order]][: size - positive]] = True
    return labelled


ZERO_SHOT = "posterior"
"""Method name of the zero-shot score, minus its value before any observation, as in the table `labels`."""
RANKED, DECIDED = "auroc", "balanced_accuracy"
EXPLICIT = "explicit"
"""Method of the zero-shot score by the bundle's probabilities; in the summary a coupling of `ZERO_SHOT`."""


class Key(NamedTuple):
    """The key of a curve over sizes; `permuted` if labels were shuffled."""

    metric: str
    reference: str
    allocation: str
    t: int
    method: str
    permuted: bool


TRAINED, RUN = ["reference", "entity", "size", "permuted"], ["method", "allocation", "t"]
Found = dict[Key, dict[int, dict[str, Floats]]]
"""Values by key, size and label, (R + 1,): on all patients, then in every resample."""
Cases = dict[tuple[int, bool], dict[str, int]]


def summarise(tables: Mapping[str, pd.DataFrame], *, bootstrap: Bootstrap) -> pd.DataFrame:
    """Return summary rows `labels_needed` of the tables of the stage `labels_needed`.

    The column `level` has the number of labelled patients. Rows with an `entity` are for one label.

    Returns
    -------
    count : number of labelled patients from which on a classifier's mean AUROC (quantity `auroc`) or balanced accuracy
        exceeds that of the zero-shot score on the same patients; empty if even the largest number is not enough. The
        variant `clearly` has the number from which on the interval of the difference is above 0; the variant `permuted`
        has shuffled labels
    gap : difference of the classifier and the zero-shot score, for both metrics

    """
    rows = [_counts(tables)]
    if len(tables["predictions"]):
        patients = tables["zero_shot"]["patient"].unique()
        found, cases = _found(tables, Resampled.of(patients, **dict(bootstrap), purpose="labels_needed"))
        rows += [_curves(found, cases, bootstrap.confidence), _overtaken(found, bootstrap.confidence)]
    table = pd.concat(rows, ignore_index=True)
    table["gain"] = table["allocation"].map({GREEDY: "cmi"}) if "allocation" in table else None
    return summary_rows("labels_needed", table.assign(target="clinical"))


def _counts(tables: Mapping[str, pd.DataFrame]) -> pd.DataFrame:
    """Return the numbers of used and unused labels."""
    splits, left_out = tables["splits"], tables["left_out"]
    not_used, sizes = int(left_out["size"].isna().sum()), sorted({*splits["size"], *left_out["size"].dropna()})
    counts = [("labels", None, splits["entity"].nunique()), ("labels_not_used", None, not_used)]
    counts += [("labels", size, splits.loc[splits["size"] == size, "entity"].nunique()) for size in sizes]
    return pd.DataFrame(counts, columns=["quantity", "level", "value"]).assign(metric="count")


def _found(tables: Mapping[str, pd.DataFrame], resampled: Resampled) -> tuple[Found, Cases]:
    """Return every metric by key, size and label, and the numbers of predictions by size and by shuffling."""
    found, cases = Found(), Cases()
    weights, repeats = resampled.every, tables["splits"].groupby(["entity", "size"]).size()
    labels = tables["zero_shot"].drop_duplicates(["entity", "patient"])
    for (reference, entity, size, permuted), answers in groups(_answers(tables), *TRAINED, sort=True):
        of_entity = labels[labels["entity"] == entity]
        known, positive = resampled.places(of_entity["patient"]), of_entity["label"].to_numpy() == 1
        tests: RepeatedTests | None = None
        for (_, method, allocation, t), run in groups(answers, "rival", *RUN, sort=True):
            scores = np.full((run["repeat"].max() + 1, len(resampled.units)), np.nan)
            scores[run["repeat"], resampled.places(run["patient"])] = run["log_odds"]
            if tests is None:
                tests = RepeatedTests(~np.isnan(scores[:, known]), positive, weights[:, known])
                cases.setdefault((size, permuted), {})[entity] = len(run)
            for metric, measured in ((RANKED, RepeatedTests.auroc), (DECIDED, RepeatedTests.balanced_accuracy)):
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


def _answers(tables: Mapping[str, pd.DataFrame]) -> pd.DataFrame:
    """Return the predictions and, as `rival`, the zero-shot scores of the same patients at the same states.

    The scores of a repeat are along its random order.
    """
    predictions = tables["predictions"][[*TRAINED, *RUN, "repeat", "patient", "log_odds"]]
    splits = tables["splits"][["entity", "size", "repeat", "seed"]]
    same = predictions[(predictions["method"] == METHODS[0]) & ~predictions["permuted"]].merge(splits)
    same = same.drop(columns=["method", "log_odds"])
    same["seed"] = same["seed"].where(same["allocation"] == RANDOM, -1)
    scores = tables["zero_shot"].fillna({"seed": -1}).rename(columns={"calibrated": "log_odds"})
    scores["method"] = np.where(scores["coupling"] == EXPLICIT, EXPLICIT, ZERO_SHOT)
    rivals = same.merge(scores, on=["reference", "entity", "allocation", "t", "patient", "seed"])[predictions.columns]
    return pd.concat([predictions.assign(rival=False), rivals.assign(rival=True)], ignore_index=True)


def _curves(found: Found, cases: Cases, confidence: float) -> pd.DataFrame:
    """Return every metric by number of labelled patients, as mean over labels and by label, with classifiers' gaps."""
    parts: list[Labelled] = []
    for key, by_size in found.items():
        gaps = _gaps(found, key) if key.method in METHODS and not key.permuted else {}
        for size, values in by_size.items():
            shown = {(key.metric, None): values} | ({("gap", key.metric): gaps[size]} if gaps else {})
            for (metric, quantity), by_label in shown.items():
                rows = mean_and_each(by_label, cases[size, key.permuted], confidence=confidence)
                rows = rows if key.metric == RANKED and not key.permuted else rows[:1]
                parts.append((rows, {**_of(key), "metric": metric, "quantity": quantity, "level": size}))
    return labelled(parts)


def _of(key: Key) -> dict[str, object]:
    """Return the labels of a key in the summary; a classifier has no couplings."""
    coupling = {ZERO_SHOT: COUPLINGS[key.reference], EXPLICIT: EXPLICIT}.get(key.method)
    names = key._asdict() | {"method": ZERO_SHOT if key.method == EXPLICIT else key.method, "coupling": coupling}
    return names | {"variant": "permuted" if names.pop("permuted") else None}


def _gaps(found: Found, key: Key) -> dict[int, dict[str, Floats]]:
    """Return, by size and label, the difference of a classifier from the zero-shot score at the same state.

    The zero-shot score by the bundle's probabilities is used only if the results have no other zero-shot score.
    """
    rival = found.get(key._replace(method=ZERO_SHOT)) or found[key._replace(method=EXPLICIT)]
    return {
        size: {name: value - rival[size][name] for name, value in values.items()} for size, values in found[key].items()
    }


def _overtaken(found: Found, confidence: float) -> pd.DataFrame:
    """Return the number of labelled patients from which on a classifier is better, with an interval."""
    tail = (1 - confidence) / 2
    lines: list[dict[str, object]] = []
    for key in found:
        if key.method not in METHODS or key.permuted or key.t == 0:
            continue
        gaps = sorted(_gaps(found, key).items())
        sizes, every = [size for size, _ in gaps], np.array([np.mean([*each.values()], axis=0) for _, each in gaps])
        first = _first_ahead(every > 0, sizes)
        clear = _first_ahead(interval(every[:, 1:].T, confidence=confidence)[0][:, None] > 0, sizes)
        low, high = np.quantile(first[1:], [tail, 1 - tail], method="inverted_cdf")
        for variant, numbers in ((None, (first[0], low, high)), ("clearly", (clear[0], np.nan, np.nan))):
            value, least, most = (number if np.isfinite(number) else None for number in numbers)
            of = {**_of(key), "metric": "count", "quantity": key.metric, "variant": variant}
            lines.append({**of, "value": value, "low": least, "high": most, "n": max(sizes)})
    return pd.DataFrame(lines)


def _first_ahead(ahead: Mask, sizes: Sequence[int]) -> Floats:
    """Return the smallest size from which on all larger sizes are True, (R,), infinite if the largest is not.

    Parameters
    ----------
    ahead : (S, R) bool, by size and resample

    """
    always = np.logical_and.accumulate(ahead[::-1], axis=0)[::-1]
    return np.where(always.any(axis=0), np.array(sizes, dtype=np.float64)[always.argmax(axis=0)], np.inf)
