"""The numbers of elicitation error: accuracy by flip probability, its interval, and the exact accuracy beside it."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

import numpy as np
import pandas as pd
from scipy.special import ndtri

from afa.mrf import Floats
from afa.orders import generator_of
from afa.stats.accuracy import Part, Resampled, mean_ratio
from afa.stats.resampling import interval
from afa.stats.summary import summary_rows

if TYPE_CHECKING:
    from afa.stages.settings import Bootstrap

EXPERIMENT = "elicitation_error"
DECISIONS = ("raw", "calibrated")

POPULATIONS = ("drawn", "clinical")
EXACT = {"calibrated": None, "raw": "sign_of_score"}
"""Variant of the exact accuracy of each decision."""


def summarise(tables: Mapping[str, pd.DataFrame], *, bootstrap: Bootstrap) -> pd.DataFrame:
    """Summary rows `elicitation_error` of the tables of `elicitation_error`, all entities together.

    `target` is the population. `reference` is the decision, or `exact`: there the headline is the Bayes accuracy, and
    the variant `sign_of_score` that of `raw`. The model without flips is the headline, the others are the variant
    `flip`, with their chance of a flip as level; `n` counts (patient, entity) pairs, whatever the replicates.

    Intervals: of drawn patients without flips Wilson's, on the count of draws, since next to all of them are right; of
    all others a percentile bootstrap over patients, or over pairs of drawn ones, to which with flips the deviations of
    a bootstrap over each entity's flipped models are added. `balanced_accuracy` is the mean over entities, and over
    both classes of each.

    `rate` of the quantity `exact_inside` is 1 where the exact accuracy lies in the interval of the drawn patients, and
    of `entity_exact_inside` the share of entities for which it does. `rate` without target is erratum 11.
    """
    calls, replicates, labels = tables["calls"], tables["replicates"], tables["labels"]
    rows = [_exact_rows(tables["references"])]
    for population in POPULATIONS:
        for decision in DECISIONS:
            chosen, models = (
                table[(table["population"] == population) & (table["decision"] == decision)]
                for table in (calls, replicates)
            )
            if len(chosen):
                part = _decided(chosen, models, population, bootstrap)
                rows.append(part.assign(target=population, reference=decision))
    rows.append(_inside(pd.concat(rows, ignore_index=True)))
    rows.append(_constant_answers(calls, bootstrap).assign(target="clinical"))
    rows.append(_opposite_profiles(tables["profiles"], bootstrap).assign(reference="raw"))
    rows.append(_counts(labels, tables["left_out"]))
    return summary_rows("elicitation_error", [part for part in rows if len(part)])


def wilson(right: Floats, n: Floats, *, confidence: float) -> tuple[Floats, Floats]:
    """Wilson's interval of the shares right / n, low and high; a count that holds halves is taken as it is.

    >>> low, high = wilson(np.array([10.0]), np.array([10.0]), confidence=0.95)
    >>> low.round(4).tolist(), high.tolist()
    ([0.7225], [1.0])
    """
    z = float(ndtri((1 + confidence) / 2))
    share, scale = right / n, 1 + z * z / n
    centre = (share + z * z / (2 * n)) / scale
    half = z * np.sqrt(share * (1 - share) / n + z * z / (4 * n * n)) / scale
    return np.where(right <= 0, 0.0, centre - half), np.where(right >= n, 1.0, centre + half)


def _decided(calls: pd.DataFrame, replicates: pd.DataFrame, population: str, bootstrap: Bootstrap) -> pd.DataFrame:
    """Accuracy by flip, and of each entity without flips, of one population and decision."""
    resampled = Resampled.of(calls["patient"].unique(), **dict(bootstrap), purpose=EXPERIMENT)

    def counts(cases: pd.DataFrame) -> Part:
        right, total = resampled.sums(cases, "right", "n", by="flip")  # halves and whole numbers: sums are exact
        return right, total

    both = calls[calls.groupby("entity")["label"].transform("nunique") == 2]
    by_class = [counts(part) for _, part in both.groupby(["entity", "label"], sort=False)]
    measures = {"accuracy": ([counts(calls)], calls)}
    if population == "clinical" and by_class:
        measures["balanced_accuracy"] = (by_class, both)
    levels = [flip or np.nan for flip in sorted(calls["flip"].unique())]
    rows = []
    for metric, (parts, of) in measures.items():
        statistics = mean_ratio(parts, resampled.weights) + _of_models(replicates, metric, bootstrap.resamples)
        low, high = interval(statistics, confidence=bootstrap.confidence)
        row = resampled.mean(parts).assign(metric=metric, level=levels, low=low, high=high)
        rows.append(row.assign(n=of.groupby("flip").size().to_numpy()))
    for entity, part in calls[calls["flip"] == 0].groupby("entity", sort=False):
        rows.append(resampled.share(part, "right", "n", by=None).assign(metric="accuracy", entity=entity))
    whole = pd.concat(rows, ignore_index=True)
    unflipped = whole["level"].isna().to_numpy()
    whole.loc[~unflipped, "variant"] = "flip"
    if population == "drawn":
        value, n = (whole.loc[unflipped, name].to_numpy(np.float64) for name in ("value", "n"))
        ends = wilson(value * n, n, confidence=bootstrap.confidence)
        whole.loc[unflipped, "low"], whole.loc[unflipped, "high"] = ends
    return whole


def _of_models(replicates: pd.DataFrame, metric: str, resamples: int) -> Floats:
    """(R, flips) by how much the metric moves when each entity's models of one flip are drawn again from themselves."""
    known = replicates[replicates["n"] > 0]
    n, n_positive = (known[name].to_numpy(np.float64) for name in ("n", "n_positive"))
    right, right_positive = (known[name].to_numpy(np.float64) for name in ("right", "right_positive"))
    if metric == "balanced_accuracy":
        both = (n_positive > 0) & (n_positive < n)
        known, n, n_positive = known[both], n[both], n_positive[both]
        right, right_positive = right[both], right_positive[both]
        share = (right_positive / n_positive + (right - right_positive) / (n - n_positive)) / 2
        weight = 1 / known["entity"].nunique()
    else:
        share, weight = right, 1 / n[(known["flip"] == 0).to_numpy()].sum()
    moves = []
    for flip, part in known.assign(share=share).groupby("flip"):
        table = part.pivot(index="entity", columns="replicate", values="share").to_numpy(np.float64)
        n_models = table.shape[1]
        generator = generator_of(EXPERIMENT, "models", flip)
        drawn = generator.multinomial(n_models, np.full(n_models, 1 / n_models), size=(resamples, len(table)))
        moves.append(weight * np.einsum("rem,em->r", drawn / n_models - 1 / n_models, table))
    return np.stack(moves, axis=1)


def _exact_rows(references: pd.DataFrame) -> pd.DataFrame:
    """Exact accuracies of both decisions without flips: their means over entities, and of each entity."""
    tables = []
    for decision in DECISIONS if len(references) else ():
        values = references[decision].to_numpy(np.float64)
        each = pd.DataFrame(
            {
                "entity": [None, *references["entity"]],
                "value": [values.mean(), *values],
                "n": [len(values)] + [1] * len(values),
            }
        )
        tables.append(each.assign(variant=EXACT[decision]))
    whole = pd.concat(tables, ignore_index=True) if tables else pd.DataFrame(columns=["variant", "entity", "value"])
    return whole.assign(metric="accuracy", target="drawn", reference="exact")


def _inside(rows: pd.DataFrame) -> pd.DataFrame:
    """Whether the exact accuracy lies in the interval of the drawn patients, overall and as a share of entities."""
    accuracy = rows[(rows["metric"] == "accuracy") & (rows["target"] == "drawn")]
    if not {"low", "high"} <= set(accuracy.columns):
        return pd.DataFrame()
    accuracy = accuracy[accuracy["level"].isna()].assign(entity=accuracy["entity"].fillna(""))
    exact = accuracy[accuracy["reference"] == "exact"].fillna({"variant": ""})
    tables = []
    for decision in DECISIONS:
        found = accuracy[accuracy["reference"] == decision]
        own = exact[exact["variant"] == (EXACT[decision] or "")].set_index("entity")["value"]
        beside = own.reindex(found["entity"]).to_numpy(np.float64)
        held = ((found["low"] <= beside) & (beside <= found["high"])).astype(float)[~np.isnan(beside)]
        whole = found["entity"].loc[held.index] == ""
        for quantity, part in (("exact_inside", held[whole]), ("entity_exact_inside", held[~whole])):
            if len(part):
                value, n = [part.mean()], [len(part)]
                tables.append(pd.DataFrame({"quantity": quantity, "reference": decision, "value": value, "n": n}))
    whole_table = pd.concat(tables, ignore_index=True) if tables else pd.DataFrame()
    return whole_table.assign(metric="rate", target="drawn")


def _counts(labels: pd.DataFrame, left_out: pd.DataFrame) -> pd.DataFrame:
    """Labels that are missing for entities that have some, entities without any, and what exact inference left out."""
    without = labels["missing"] == labels["patients"]
    clinical = {"missing_label": labels.loc[~without, "missing"].sum(), "entities_without_labels": without.sum()}
    too_dense = {f"left_out_{name}": count for name, count in left_out.groupby("quantity").size().items()}
    values = pd.Series({**clinical, **too_dense}, dtype=np.float64)
    targets = ["clinical"] * len(clinical) + [None] * len(too_dense)
    return pd.DataFrame({"metric": "count", "quantity": values.index, "value": values.to_numpy(), "target": targets})


def _constant_answers(calls: pd.DataFrame, bootstrap: Bootstrap) -> pd.DataFrame:
    """Prevalence, and accuracy of the best constant answer per entity, over all labels and for each entity."""
    known = calls[(calls["population"] == "clinical") & (calls["decision"] == "raw") & (calls["flip"] == 0)]
    if not len(known):
        return pd.DataFrame()
    resampled = Resampled.of(known["patient"].unique(), **dict(bootstrap), purpose=EXPERIMENT)
    positive = known["label"].astype(float)
    usual = positive.groupby(known["entity"]).transform("mean") >= 0.5
    tables = []
    for metric, right in (("prevalence", positive), ("majority", (positive == usual).astype(float))):
        answered = known.assign(right=right, n=1.0)
        tables.append(resampled.share(answered, "right", "n", by=None).assign(metric=metric))
        for entity, part in answered.groupby("entity", sort=False):
            each = resampled.share(part, "right", "n", by=None)
            tables.append(each.assign(metric=metric, entity=entity))
    return pd.concat(tables, ignore_index=True)


def _opposite_profiles(profiles: pd.DataFrame, bootstrap: Bootstrap) -> pd.DataFrame:
    """Erratum 11: how often the unary sum is negative and the score positive, of all and of the negative sums."""
    negative = (profiles["unary_sum"] < 0).astype(float)
    both = negative * (profiles["score"] > 0)
    cases = profiles[["patient"]].assign(both=both, negative=negative, all=1.0)
    resampled = Resampled.of(cases["patient"].unique(), **dict(bootstrap), purpose=EXPERIMENT)
    tables = []
    for quantity, of in (("negative_unary_positive_score", "all"), ("positive_score_given_negative_unary", "negative")):
        share = resampled.share(cases, "both", of, by=None)
        tables.append(share.assign(metric="rate", quantity=quantity))
    return pd.concat(tables, ignore_index=True)
