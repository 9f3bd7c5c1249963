"""Estimate by cross-validation how the accuracy changes if a bundle is updated with labelled patients.

The patients of each fold are scored by a bundle that was updated with the patients of all other folds.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pandas as pd

from afa.evaluate.accuracy import Resampled
from afa.evaluate.entrants import FieldTask, labels_for, main_metric, questions_of, whole
from afa.evaluate.resampling import with_interval
from afa.evaluate.update import update_of, updated_bundle
from afa.model.arrays import Codes, Floats, Ints
from afa.model.bundle import Bundle
from afa.model.orders import generator_of

N_FOLDS = 10
"""Number of folds. The patients of each fold are scored by a bundle that was updated with the patients of all other
folds."""
EVALUATED_ROUNDS = (1, 2, 3, 5, 8, 12, 20)
"""Numbers of observed features to evaluate, in addition to all features."""
LEAST_PER_ANSWER = 2
"""Smallest number of patients of each answer for which a question is evaluated."""
COLUMNS = ["question", "t", "metric", "alone", "updated", "brought", "low", "high", "patients"]
METRIC_TITLES = {"auroc": "AUROC", "first_place": "first place"}


def update_brings(
    bundle: Bundle,
    values: Codes,
    labels: Floats,
    *,
    entity: str | None = None,
    resamples: int = 1000,
    confidence: float = 0.95,
) -> pd.DataFrame:
    """Return a table of the bundle's cross-validated accuracy before and after an update with labelled patients.

    The column `question` is the name of an entity (does the patient have it?), or `which` (which entity does the
    patient have?). The column `t` is the number of features observed, in the order that the planner chooses. The column
    `metric` is `first_place` if the column `question` is `which`, and `auroc` otherwise. The column `alone` contains
    the metric of the original bundle, and `updated` contains the metric of the updated bundle. The column `brought`
    contains the change that the update brings: `updated` minus `alone`. The columns `low` and `high` are the ends of
    the change's bootstrap interval, for which patients are resampled. A question is skipped if any of its answers
    applies to fewer than `LEAST_PER_ANSWER` patients.

    Parameters
    ----------
    bundle : Bundle
        The elicited bundle; it must have probabilities.
    values : (P, M) int8
        -1, 0, +1, or `MISSING`.
    labels : (P, N) float64
        1, 0, or NaN for an unknown label.
    entity : str
        The entity in question. By default, the table has all questions that the labels can answer.
    resamples, confidence : int, float
        Number of resamples and coverage of the intervals.

    """
    tables = [
        _accuracy_change_table(bundle, values, task, resamples, confidence)
        for task in questions_of(bundle.entities, labels, bundle.holds)
        if (task.main if entity is None else task.entity == entity)
        and np.bincount(task.answers[task.answers >= 0]).min(initial=len(labels)) >= LEAST_PER_ANSWER
    ]
    return pd.concat(tables, ignore_index=True) if tables else pd.DataFrame(columns=COLUMNS)


def _accuracy_change_table(
    bundle: Bundle, values: Codes, task: FieldTask, resamples: int, confidence: float
) -> pd.DataFrame:
    """Return the table of `update_brings` for a single question."""
    asked = task.answers >= 0
    values, answers, most = values[asked], task.answers[asked], values.shape[1]
    rounds = [*(t for t in EVALUATED_ROUNDS if t < most), most]
    alone = whole(bundle, task).planned(values, rounds)
    updated, fold = np.empty_like(alone), folds_of(task.name, answers)
    for part in range(fold.max() + 1):
        others, own = fold != part, fold == part
        made = update_of(bundle, values[others], labels_for(bundle, task, answers[others]))
        updated[own] = whole(updated_bundle(bundle, made), task).planned(values[own], rounds)
    among = Resampled.of(range(len(values)), resamples=resamples, confidence=confidence, purpose="update_brings")
    each = [main_metric(task, answers, evidence, among.every) for evidence in (alone, updated)]
    table = with_interval(each[1] - each[0], confidence=confidence).rename(columns={"value": "brought"})
    said = table.assign(question=task.name, t=rounds, metric=task.metrics[0], patients=len(values))
    return said.assign(alone=each[0][0], updated=each[1][0])[COLUMNS]


def folds_of(name: str, answers: Ints) -> Ints:
    """Return the cross-validation fold of each patient, (P,).

    Patients with the same answer are spread evenly over the folds.

    Parameters
    ----------
    answers : (P,) int64

    """
    mixed = generator_of("cross-validation", name).permutation(len(answers))
    ordered = mixed[np.argsort(answers[mixed], kind="stable")]
    fold = np.empty(len(answers), dtype=np.int64)
    fold[ordered] = np.arange(len(answers)) % min(N_FOLDS, len(answers))
    return fold


def brought_text(table: pd.DataFrame, bundle: Bundle, most: Sequence[int] = (1, 3, 5)) -> str:
    """Return the table of `update_brings` as text, or an empty text if the table is empty.

    Parameters
    ----------
    bundle : the bundle; a question about one entity is shown by the entity's display name
    most : numbers of observed features to show, in addition to all features

    """
    if table.empty:
        return ""
    every = table.groupby("question")["t"].transform("max")
    shown = table[table["t"].isin(most) | (table["t"] == every)]
    rows = pd.DataFrame(
        {
            "question": shown["question"].map(bundle.shown),
            "features": shown["t"],
            "metric": shown["metric"].map(METRIC_TITLES),
            "bundle": shown["alone"].map("{:.2f}".format),
            "updated": shown["updated"].map("{:.2f}".format),
            "brought": [f"{r.brought:+.2f} [{r.low:+.2f}, {r.high:+.2f}]" for r in shown.itertuples()],
        }
    )
    title = "What `afa update` with these patients would have brought, each scored by a bundle that the others updated"
    return f"{title}\n{rows.to_string(index=False)}"
