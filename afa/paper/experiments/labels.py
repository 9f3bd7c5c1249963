"""Comparison of scores with patients' labels, for different encodings of the values and different class models.

The paper's encoding and the paper's couplings are each compared with an alternative, separately and together. The
alternative encoding compares a value with the cohort. The paper's encoding compares a value with the controls. The
alternative couplings are the same in both classes. In the paper, the couplings of the two classes have opposite signs.
For each entity with a label, the label is the correct answer of the entity's binary task. Labels are not used to choose
settings.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
import pandas as pd

from afa.cohort.cohort import Cohort, with_code
from afa.errors import BundleError, Fault
from afa.evaluate.accuracy import Resampled, accuracies, ranking_metrics
from afa.evaluate.inputs import ReferenceVariant, explicit_references, note
from afa.evaluate.long_tables import groups, joined
from afa.evaluate.resampling import interval, mean_and_each
from afa.evaluate.summary import Labelled, count_rows, labelled, summary_rows
from afa.inference.meanfield import Solver
from afa.model.arrays import Floats
from afa.model.bundle import Bundle
from afa.paper.experiments.label_tasks import (
    GREEDY,
    RANDOM,
    LabelTask,
    by_model,
    followed,
    label_null,
    settings_of,
    tasks_of,
)

if TYPE_CHECKING:
    from afa.paper.experiments.settings import Bootstrap, Inference, Labels


def run(
    bundle: Bundle,
    cohort: Cohort,
    by_cohort: Path,
    *,
    labels: Labels,
    inference: Inference,
    threads: int | None = None,
) -> dict[str, pd.DataFrame]:
    """Return scores and labels of a cohort, for each encoding and each closure.

    For the settings that were fixed in advance, features are observed in one random order for each seed, and also in
    the order that `greedy` chooses by mutual information. For variations of these settings, features are observed only
    in the random order of the first seed.

    Parameters
    ----------
    cohort : the cohort of the run. If it is encoded against controls or by ranges, its encoding is a further reference
    by_cohort : a file of `afa cohort by-cohort`. It has the same patients, encoded against the cohort at several
        thresholds. Results are reported for the first threshold and the first strength. If the features have two
        values, only the closure `explicit` and the cohort of the run are used

    Returns
    -------
    scores : one row for each (setting, entity, allocation, seed, patient, t). t is in per cent of the support: 0, each
        of `percents`, and 100. `observed` is the number of observed features of the support. `raw` is F_1 - F_0 in
        nats, whose sign is the paper's decision. `calibrated`, which is `raw` minus `shift`, is the posterior log-odds.
        `label` is the patient's label.
    controls : the scores of healthy controls for every entity. Each control is encoded against all other controls. Only
        settings that were fixed in advance and keep the encoding of the run's cohort are used. The correct decision is
        always no (F9). Without controls, the table is empty.
    tasks : one row for each (setting, entity). `threshold` and `strength` belong to the setting. `support` is the
        number of features in the support. `contraction` is beta L^2 of the elicited couplings. `factor` multiplies
        shared couplings. `positive` and `negative` are the numbers of patients with and without the label. `shift` is
        the value of F_1 - F_0 before any observation, minus the prior log-odds.
    whole : S at full observation in nats, for each (reference, coupling, patient, entity), in the settings that were
        fixed in advance. Computing S at full observation needs no inference.
    null : the result of `label_null`.
    labels : the labels that are used, one row for each (patient, entity).
    left_out : labels that are not used, because they have only one class.

    Raises
    ------
    CohortError : `by_cohort` has other patients or features than the cohort.
    BundleError : no setting is left.

    """
    own: ReferenceVariant = (cohort.provenance.get("encoding") or {}).get("reference", "controls")
    cohorts: dict[float | None, Cohort] = {at: with_code(cohort, by_cohort, at) for at in labels.thresholds}
    if own != "cohort":
        cohorts[None] = cohort
    references: list[ReferenceVariant] = [own, "cohort"] if own != "cohort" else ["cohort"]
    explicit, closed = explicit_references(bundle), bundle.ternary
    readable = references if closed else [own]
    settings = settings_of(readable, labels.thresholds, labels.strengths, explicit, closed=closed)
    if not settings:
        expected, step = "probabilities of its values", "encode it as the bundle says"
        raise BundleError(Fault(f"cohort {cohort.name}", "features of two values", expected, step))
    solver = Solver(**dict(inference))
    tasks, left_out = tasks_of(bundle, cohorts, settings)
    fixed = [setting for setting in settings if not setting.variant]

    def scored(tasks: Sequence[LabelTask]) -> list[pd.DataFrame]:
        return by_model(tasks, lambda own: followed(own, labels.percents, labels.seeds, solver), threads)

    scores = scored(tasks)
    apart = [setting for setting in fixed if setting.reference != "cohort"]
    healthy = scored([task for setting in apart for task in LabelTask.of_controls(setting, bundle, cohort)])
    found = {
        "scores": [part.drop(columns="shift") for part in scores],
        "controls": [
            part.rename(columns={"patient": "control"}).drop(columns=["variant", "shift", "label"]) for part in healthy
        ],
        "whole": [setting.at_full_observation(bundle, cohorts[setting.threshold]) for setting in fixed],
        "null": label_null(
            [task for task in tasks if not task.setting.variant],
            labels.percents,
            labels.seeds[0],
            labels.permutations,
            labels.whole_permutations,
            solver,
            threads,
        ),
        "labels": [
            pd.DataFrame({"patient": task.patients, "entity": entity, "label": task.positive.astype(np.int8)})
            for entity, task in {task.entity: task for task in tasks}.items()
        ],
    }
    tables = {name: joined(parts) for name, parts in found.items()}
    rows = [task.row(part["shift"].iloc[0]) for task, part in zip(tasks, scores, strict=True)]
    tables["tasks"] = pd.DataFrame(rows)
    tables["left_out"] = pd.DataFrame({"entity": pd.Series(left_out, dtype="str")})
    if not len(cohort.controls):
        note("no scores of controls: no control is encoded in this cohort")
    for entity in left_out:
        note(f"label {entity} is left out: all patients have the same")
    return tables


NULL_METRICS = {
    "auroc": ("auroc", "two_elbo"),
    "balanced_accuracy": ("balanced_accuracy", "two_elbo"),
    "balanced_accuracy_calibrated": ("balanced_accuracy", "posterior"),
}
"""Column of the null -> its metric and method in the summary."""


def summarise(tables: Mapping[str, pd.DataFrame], *, bootstrap: Bootstrap) -> pd.DataFrame:
    """Return the rows of the tables `labels`, `controls`, `specificity` and `null` in `summary.csv`.

    Rows without an `entity` are means over labels. In rows with the variant `threshold`, `strength` or
    `threshold_at_strength_...`, the settings differ from the settings that were fixed in advance. In rows with a
    changed setting, the column `level` contains the changed value: the threshold of the encoding, or the strength of
    the couplings. The method `two_elbo` decides by the sign of the raw score, as in the paper. The method `posterior`
    decides for class 1 if the posterior probability exceeds one half. AUROC and average precision are the same for both
    methods.
    """
    labels = tables["labels"]
    sample = Resampled.of(tables["whole"]["patient"].unique(), **dict(bootstrap), purpose="labels")
    used, left_out = labels["entity"].nunique(), len(tables["left_out"])
    counts = count_rows({"labels": (used, used + left_out), "labels_of_one_class": (left_out, used + left_out)})
    rows = [(counts, {}), *_prevalence_rows(labels, sample), *_metric_rows(tables["scores"], sample)]
    found = [summary_rows("labels", labelled(rows).assign(target="clinical"))]
    if len(tables["controls"]):
        found.append(summary_rows("controls", _control_specificity(tables["controls"], bootstrap)))
    if len(tables["tasks"]):
        specificity = _specificity(tables["whole"], labels, sample)
        found.append(summary_rows("specificity", specificity.assign(target="clinical", method="wald", t=100)))
        null = _null(tables["null"], tables["scores"], bootstrap.confidence)
        found.append(summary_rows("null", null.assign(target="clinical", start="uniform")))
    return pd.concat(found, ignore_index=True)


def _prevalence_rows(labels: pd.DataFrame, sample: Resampled) -> list[Labelled]:
    """Return the prevalence of each label, and the accuracy of always predicting the label's more frequent value."""
    prevalence, sizes = dict[str, Floats](), dict[str, int]()
    for name, part in groups(labels, "entity"):
        weights = sample.drawn(part["patient"])
        prevalence[name] = weights @ part["label"].to_numpy(dtype=float) / weights.sum(axis=1)
        sizes[name] = len(part)
    majority = {name: share if share[0] >= 0.5 else 1 - share for name, share in prevalence.items()}
    shown = {"prevalence": prevalence, "majority": majority} if sizes else {}
    return [
        (mean_and_each(values, sizes, confidence=sample.confidence), {"metric": metric})
        for metric, values in shown.items()
    ]


def _parse_variant(variant: str) -> tuple[str, float]:
    """Return the values of the summary columns `variant` and `level` for a changed threshold or strength.

    >>> _parse_variant("threshold=1 strength=0.5")
    ('threshold_at_strength_0.5', 1.0)
    """
    first, _, other = variant.partition(" ")
    name, _, level = first.partition("=")
    return f"{name}_at_{other.replace('=', '_')}" if other else name, float(level)


def _metric_rows(scores: pd.DataFrame, sample: Resampled) -> Iterator[Labelled]:
    """Yield every metric for each setting, order and t.

    Each metric is averaged first over random orders, then over labels.
    """
    by = ["reference", "coupling", "variant", "allocation", "t"]
    for (reference, coupling, variant, allocation, t), part in groups(scores, *by):
        by_entity = dict(groups(part, "entity"))
        found: dict[tuple[str, str], dict[str, Floats]] = {}
        for name, own in by_entity.items():
            each = [metric_resamples(run, sample.drawn(run["patient"])) for _, run in groups(own, "seed")]
            for column in each[0]:
                found.setdefault(column, {})[name] = np.mean([values[column] for values in each], axis=0)
        sizes = {name: len(own) for name, own in by_entity.items()}
        for (metric, method), values in found.items():
            lines = mean_and_each(values, sizes, confidence=sample.confidence)
            if variant:
                name, level = _parse_variant(variant)
                lines = lines[lines["entity"].isna()].assign(variant=name, level=level)
            keys = {"metric": metric, "method": method, "reference": reference, "coupling": coupling}
            order = {"allocation": allocation, "gain": "cmi" if allocation == GREEDY else None, "start": "uniform"}
            yield lines, {**keys, **order, "t": t}


def _control_specificity(scores: pd.DataFrame, bootstrap: Bootstrap) -> pd.DataFrame:
    """Return the specificity among healthy controls, per entity and averaged, for each setting, order and t."""
    of_controls = scores.rename(columns={"control": "patient"}).assign(variant="", label=0)
    sample = Resampled.of(of_controls["patient"].unique(), **dict(bootstrap), purpose="labels")
    rows = labelled(_metric_rows(of_controls, sample))
    return rows[rows["metric"] == "specificity"]


def metric_resamples(run: pd.DataFrame, weights: Floats) -> dict[tuple[str, str], Floats]:
    """Return a mapping from (metric, method) to the value of the metric in each resample.

    Parameters
    ----------
    run : rows of the table `scores`
    weights : (R, n_rows) float64, weights of the rows in each resample

    Returns
    -------
    value : (R,) float64

    """
    positive = run["label"].to_numpy() == 1
    area, precision = ranking_metrics(run["raw"].to_numpy(), positive, weights)
    found = {("auroc", "two_elbo"): area, ("average_precision", "two_elbo"): precision}
    for method, column in (("two_elbo", "raw"), ("posterior", "calibrated")):
        decided = accuracies(run[column].to_numpy(), positive, weights)
        found |= {(metric, method): shares for metric, shares in decided._asdict().items()}
    return found


def _specificity(whole: pd.DataFrame, labels: pd.DataFrame, sample: Resampled) -> pd.DataFrame:
    """Return rows that compare, for each label, the score of the label's entity with the scores of other entities.

    All scores are at full observation.

    Returns
    -------
    auroc : AUROC of the entity's own score. The variant `best_other` is the largest AUROC of another entity's score,
        chosen on the same patients. The variant `mean_of_others` is the mean AUROC of all other entities' scores
    gap : AUROC of the entity's own score minus the mean AUROC of all other entities' scores
    rank : rank of the AUROC of the entity's own score, 1 for the best of `n` entities

    """
    tables = []
    for (reference, coupling), part in groups(whole, "reference", "coupling"):
        scores = part.pivot(index="patient", columns="entity", values="score")
        found: dict[tuple[str, str | None], dict[str, Floats]] = {}
        for name, known in groups(labels, "entity"):
            drawn = sample.drawn(known["patient"])
            positive = known["label"].to_numpy() == 1
            table = scores.loc[list(known["patient"])]
            areas = {entity: ranking_metrics(table[entity].to_numpy(), positive, drawn)[0] for entity in table}
            own = areas.pop(name)
            others = np.array(list(areas.values())) if areas else np.full((1, len(own)), np.nan)
            values = {
                ("auroc", None): own,
                ("auroc", "best_other"): others[int(np.argmax(others[:, 0]))],
                ("auroc", "mean_of_others"): others.mean(axis=0),
                ("gap", None): own - others.mean(axis=0),
                ("rank", None): 1 + (others > own).sum(axis=0) + (others == own).sum(axis=0) / 2,
            }
            for column, value in values.items():
                found.setdefault(column, {})[name] = value
        for (metric, variant), by_label in found.items():
            lines = mean_and_each(by_label, dict.fromkeys(by_label, 0), confidence=sample.confidence)
            lines = lines.assign(n=scores.shape[1], variant=variant)
            tables.append(lines.assign(metric=metric, reference=reference, coupling=coupling))
    return pd.concat(tables, ignore_index=True)


def _null(null: pd.DataFrame, scores: pd.DataFrame, confidence: float) -> pd.DataFrame:
    """Return metrics of shuffled bundles, and p-values that compare the real bundle with the shuffled bundles.

    The same order of features is used for the real bundle and the shuffled bundles.

    In rows with a metric other than `p_value`, `value` is the mean over shuffled bundles, and `low` and `high` are
    quantiles over shuffled bundles. In rows with the metric `p_value`, `quantity` names the tested metric. The p-value
    is (1 + a) / (1 + n). Here, n is the number of shuffled bundles, and a is the number of shuffled bundles that are at
    least as good as the real bundle.
    """
    first = scores.loc[scores["allocation"] == RANDOM, "seed"].iloc[0]
    chosen = scores[(scores["variant"] == "") & ((scores["allocation"] == GREEDY) | (scores["seed"] == first))]
    keys, tables = ["reference", "coupling", "allocation", "t"], []
    by_key = dict(groups(chosen, *keys))
    for key, part in groups(null, *keys):
        labels = dict(zip(keys, key, strict=True)) | {"gain": "cmi" if key[2] == GREEDY else None}
        own = {entity: metric_resamples(run, np.ones((1, len(run)))) for entity, run in groups(by_key[key], "entity")}
        wide = part.pivot(index="permutation", columns="entity", values=list(NULL_METRICS))
        for column, (metric, method) in NULL_METRICS.items():
            real = {name: float(values[metric, method][0]) for name, values in own.items()}
            by_label = wide.loc[:, [(column, name) for name in real]].to_numpy()
            every = np.column_stack([by_label.mean(axis=1), by_label])
            low, high = interval(every, confidence=confidence)
            reached = every >= np.append(np.mean(list(real.values())), list(real.values())) - 1e-12
            spread = {"value": every.mean(axis=0), "low": low, "high": high, "metric": metric}
            chance = {"value": (1 + reached.sum(axis=0)) / (1 + len(every)), "metric": "p_value"}
            for rows, quantity in ((spread, None), (chance, metric)):
                table = pd.DataFrame({"entity": [None, *real], **rows}).assign(quantity=quantity, **labels)
                tables.append(table.assign(n=len(every), method=method))
    return pd.concat(tables, ignore_index=True)
