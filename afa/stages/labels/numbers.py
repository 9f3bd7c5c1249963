"""The numbers of the scores against labels: each with an interval over patients, and with what chance comes to.

Four tables of the summary. `labels`: how well each setting tells the classes apart. `null`: the same with
shuffled genes. `controls`: the share of healthy controls who are called negative. `specificity`: whether a label is
told best by the score of its own entity.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from afa.mrf import Floats
from afa.stages.labels.tasks import GREEDY, RANDOM
from afa.stats.accuracy import Mask, Resampled, accuracies, ranking
from afa.stats.resampling import interval, with_interval
from afa.stats.summary import Labelled, count_rows, labelled, summary_rows
from afa.stats.tables import axis_among, rows_by

if TYPE_CHECKING:
    from afa.stages.settings import Bootstrap

HELD = {
    "auroc": ("auroc", "two_elbo"),
    "balanced_accuracy": ("balanced_accuracy", "two_elbo"),
    "balanced_accuracy_calibrated": ("balanced_accuracy", "posterior"),
}
"""Metric and method of each column of the null."""

Rows = NDArray[np.intp]
SETTING = ["reference", "coupling", "variant"]
RUN = [*SETTING, "allocation"]
Variants = Mapping[tuple[str, ...], tuple[str, float]]
"""By setting of the grid around what was fixed: `variant` and `level` of its rows in the summary."""


@dataclass(frozen=True)
class Sample:
    """The patients; `weights` (P, R + 1), how often each is counted: once, and then as often as a resample draws it."""

    patients: Sequence[str]
    weights: Floats
    confidence: float

    @classmethod
    def of(cls, patients: Sequence[str], bootstrap: Bootstrap) -> Sample:
        resampled = Resampled.of(patients, **dict(bootstrap), purpose="labels")
        return cls(patients, np.ascontiguousarray(resampled.every.T), bootstrap.confidence)

    def places(self, names: pd.Series) -> NDArray[np.int64]:
        return axis_among(names, self.patients).codes

    def weights_of(self, places: NDArray[np.int64]) -> Floats:
        """(R + 1, C) of the patients at some places, each one's side by side."""
        return self.weights[places].T


def summarise(tables: Mapping[str, pd.DataFrame], *, bootstrap: Bootstrap) -> pd.DataFrame:
    """Summary rows `labels`, `controls`, `specificity` and `null` of the tables of the stage `labels`.

    The headline rows are means over the labels; rows with an `entity` one label; variants `threshold`, `strength` and
    `threshold_at_strength_...`, with the number as level, the grid around what was fixed. The sign of `two_elbo` is the
    paper's decision, `posterior` the side of one half that the probability is on; AUROC and average precision are the
    same for both.
    """
    labels = tables["labels"]
    sample = Sample.of(list(tables["whole"]["patient"].unique()), bootstrap)
    rows = [
        (_counts(tables), {}),
        *_beside(labels, sample),
        *_metrics(tables["scores"], sample, _variants(tables["tasks"])),
    ]
    found = [summary_rows("labels", labelled(rows).assign(target="clinical"))]
    if len(tables["controls"]):
        found.append(summary_rows("controls", _controls(tables["controls"], bootstrap)))
    if len(tables["tasks"]):
        specificity = _specificity(tables["whole"], labels, sample)
        found.append(summary_rows("specificity", specificity.assign(target="clinical", method="wald", t=100)))
        null = _null(tables["null"], tables["scores"], bootstrap.confidence)
        found.append(summary_rows("null", null.assign(target="clinical", start="uniform")))
    return pd.concat(found, ignore_index=True)


def _counts(tables: Mapping[str, pd.DataFrame]) -> pd.DataFrame:
    used, left_out = tables["labels"]["entity"].nunique(), len(tables["left_out"])
    return count_rows({"labels": (used, used + left_out), "labels_of_one_class": (left_out, used + left_out)})


def _beside(labels: pd.DataFrame, sample: Sample) -> list[Labelled]:
    """Prevalence of each label, and the share that the better constant answer has right."""
    by_entity: dict[str, dict[str, Floats]] = {"prevalence": {}, "majority": {}}
    sizes = {}
    for name, part in labels.groupby("entity", sort=False):
        weights = sample.weights_of(sample.places(part["patient"]))
        prevalence = weights @ part["label"].to_numpy(dtype=float) / weights.sum(axis=1)
        by_entity["prevalence"][str(name)] = prevalence
        by_entity["majority"][str(name)] = prevalence if prevalence[0] >= 0.5 else 1 - prevalence
        sizes[str(name)] = len(part)
    return [
        (_lines(values, sizes, sample.confidence), {"metric": metric}) for metric, values in by_entity.items() if values
    ]


def _variants(tasks: pd.DataFrame) -> Variants:
    """What differs from the first setting of the same reference and coupling, which was fixed beforehand."""
    settings = tasks.drop_duplicates(SETTING).fillna({"threshold": 0.0, "strength": 0.0})
    numbers = settings[["threshold", "strength"]]
    other = numbers != numbers.groupby([settings["reference"], settings["coupling"]]).transform("first")
    at = numbers["strength"].map("_at_strength_{:g}".format).where(other["strength"], "")
    names = ("threshold" + at).where(other["threshold"], "strength")
    levels = numbers["threshold"].where(other["threshold"], numbers["strength"])
    return dict(zip(settings[SETTING].itertuples(index=False, name=None), zip(names, levels, strict=True), strict=True))


def _metrics(scores: pd.DataFrame, sample: Sample, variants: Variants) -> Iterator[Labelled]:
    """Every metric by setting, order and t: runs of one order are averaged, then labels."""
    places, columns = sample.places(scores["patient"]), Columns.of(scores)
    for (reference, coupling, variant, allocation, t), by_entity in _runs(scores).items():
        found: dict[tuple[str, str], dict[str, Floats]] = {}
        for name, runs in by_entity.items():
            measured = [columns.measured(run, sample.weights_of(places[run])) for run in runs]
            for column in measured[0]:
                found.setdefault(column, {})[name] = np.mean([values[column] for values in measured], axis=0)
        sizes = {name: sum(map(len, runs)) for name, runs in by_entity.items()}
        for (metric, method), values in found.items():
            lines = _lines(values, sizes, sample.confidence)
            if variant:
                name, level = variants[reference, coupling, variant]
                lines = lines[lines["entity"].isna()].assign(variant=name, level=level)
            keys = {"metric": metric, "method": method, "reference": reference, "coupling": coupling}
            order = {"allocation": allocation, "gain": "cmi" if allocation == GREEDY else None, "start": "uniform"}
            yield lines, {**keys, **order, "t": t}


def _controls(scores: pd.DataFrame, bootstrap: Bootstrap) -> pd.DataFrame:
    """Specificity among the healthy, by setting, order and t: the mean over entities, and each entity."""
    held = scores.rename(columns={"control": "patient"}).assign(variant="", label=0)
    sample = Sample.of(list(held["patient"].unique()), bootstrap)
    rows = labelled(_metrics(held, sample, {}))
    return rows[rows["metric"] == "specificity"]


def _runs(scores: pd.DataFrame) -> dict[tuple[Any, ...], dict[str, list[Rows]]]:
    """Rows of each run, by setting, order and t and then by entity, in the order of the table."""
    found: dict[tuple[Any, ...], dict[str, list[Rows]]] = {}
    for (*key, entity, _), run in rows_by(scores, [*RUN, "t", "entity", "seed"]).items():
        found.setdefault(tuple(key), {}).setdefault(entity, []).append(run)
    return found


class Columns(NamedTuple):
    """Of every row of the table `scores`, as there; `positive` is whose label is."""

    raw: Floats
    calibrated: Floats
    positive: Mask

    @classmethod
    def of(cls, scores: pd.DataFrame) -> Columns:
        raw, calibrated = (scores[name].to_numpy(dtype=float) for name in ("raw", "calibrated"))
        return cls(raw, calibrated, scores["label"].to_numpy() == 1)

    def measured(self, run: Rows, weights: Floats) -> dict[tuple[str, str], Floats]:
        """By (metric, method): the value of some rows under each row of the weights."""
        positive = self.positive[run]
        area, precision = ranking(self.raw[run], positive, weights)
        found = {("auroc", "two_elbo"): area, ("average_precision", "two_elbo"): precision}
        for method, values in (("two_elbo", self.raw), ("posterior", self.calibrated)):
            decided = accuracies(values[run], positive, weights)
            found |= {(metric, method): shares for metric, shares in decided._asdict().items()}
        return found


def _lines(values: Mapping[str, Floats], sizes: Mapping[str, int], confidence: float) -> pd.DataFrame:
    """The mean over labels and then each label, from a value followed by its resamples."""
    each = np.column_stack([np.mean(list(values.values()), axis=0), *values.values()])
    cases = [sum(sizes.values()), *(sizes[name] for name in values)]
    return with_interval(each, confidence=confidence).assign(entity=np.array([None, *values]), n=cases)


def _specificity(whole: pd.DataFrame, labels: pd.DataFrame, sample: Sample) -> pd.DataFrame:
    """AUROC of an entity's own score against its label, beside those of the other entities, at full observation.

    `auroc`: of the own score; variant `best_other`: of the best of the others, chosen on these same patients; variant
    `mean_of_others`. `gap`: the own less the mean of the others. `rank`: of the own, 1 the best of `n`.
    """
    tables = []
    for key, part in whole.groupby(["reference", "coupling"], sort=False):
        reference, coupling = map(str, key)
        scores = part.pivot(index="patient", columns="entity", values="score")
        found: dict[tuple[str, str | None], dict[str, Floats]] = {}
        for name, known in labels.groupby("entity", sort=False):
            drawn = sample.weights_of(sample.places(known["patient"]))
            positive = known["label"].to_numpy() == 1
            table = scores.loc[list(known["patient"])]
            areas = {entity: ranking(table[entity].to_numpy(), positive, drawn)[0] for entity in table}
            own = areas.pop(str(name))
            others = np.array(list(areas.values())) if areas else np.full((1, len(own)), np.nan)
            values = {
                ("auroc", None): own,
                ("auroc", "best_other"): others[int(np.argmax(others[:, 0]))],
                ("auroc", "mean_of_others"): others.mean(axis=0),
                ("gap", None): own - others.mean(axis=0),
                ("rank", None): 1 + (others > own).sum(axis=0) + (others == own).sum(axis=0) / 2,
            }
            for column, value in values.items():
                found.setdefault(column, {})[str(name)] = value
        for (metric, variant), by_label in found.items():
            lines = _lines(by_label, dict.fromkeys(by_label, scores.shape[1]), sample.confidence)
            lines = lines.assign(n=scores.shape[1], variant=variant)
            tables.append(lines.assign(metric=metric, reference=reference, coupling=coupling))
    return pd.concat(tables, ignore_index=True)


def _null(null: pd.DataFrame, scores: pd.DataFrame, confidence: float) -> pd.DataFrame:
    """What shuffled bundles come to, and how often they come to as much as the real one does on the same order.

    value, low, high : mean and quantiles over permutations. `p_value`, with its metric as `quantity`:
    (1 + shuffled bundles that are no worse) / (1 + all of them).
    """
    observed = _observed(scores, null)
    tables = []
    for key, part in null.groupby(["reference", "coupling", "allocation", "t"], sort=False):
        reference, coupling, allocation, t = *map(str, key[:3]), int(str(key[3]))
        keys = {"reference": reference, "coupling": coupling, "allocation": allocation}
        own = observed[(reference, coupling, allocation, t)]
        wide = part.pivot(index="permutation", columns="entity", values=list(HELD))
        for column, (metric, method) in HELD.items():
            real = {name: values[metric, method] for name, values in own.items()}
            by_label = wide.loc[:, [(column, name) for name in real]].to_numpy()
            every = np.column_stack([by_label.mean(axis=1), by_label])
            low, high = interval(every, confidence=confidence)
            reached = every >= np.append(np.mean(list(real.values())), list(real.values())) - 1e-12
            spread = {"value": every.mean(axis=0), "low": low, "high": high, "metric": metric}
            chance = {"value": (1 + reached.sum(axis=0)) / (1 + len(every)), "metric": "p_value"}
            for rows, quantity in ((spread, None), (chance, metric)):
                table = pd.DataFrame({"entity": [None, *real], **rows}).assign(quantity=quantity, **keys, t=t)
                table = table.assign(n=len(every), method=method)
                tables.append(table.assign(gain="cmi" if allocation == GREEDY else None))
    return pd.concat(tables, ignore_index=True)


def _observed(
    scores: pd.DataFrame, null: pd.DataFrame
) -> dict[tuple[str, str, str, int], dict[str, dict[tuple[str, str], float]]]:
    """Metrics of the real bundle, by setting and entity, along the orders that shuffled ones were followed along."""
    first = scores.loc[scores["allocation"] == RANDOM, "seed"].iloc[0]
    chosen = scores[(scores["variant"] == "") & ((scores["allocation"] == GREEDY) | (scores["seed"] == first))]
    chosen = chosen[chosen["t"].isin(null["t"].unique())]
    columns = Columns.of(chosen)
    found: dict[tuple[str, str, str, int], dict[str, dict[tuple[str, str], float]]] = {}
    for (reference, coupling, _, allocation, t), by_entity in _runs(chosen).items():
        for entity, (run,) in by_entity.items():
            measured = columns.measured(run, np.ones((1, len(run))))
            values = {column: float(value[0]) for column, value in measured.items()}
            found.setdefault((reference, coupling, allocation, int(t)), {})[entity] = values
    return found
