"""Signs of a bundle against each other and against a cohort's data, each with what chance would give.

Three questions, named by their target: do pair signs follow the unary signs (`unary_signs`), do the unary signs follow
the difference between labelled patients (`labels`), do the pair signs follow the correlation of the two genes over the
cohort (`correlations`)? All sums are of whole numbers, so that signs and ties are exact on every machine.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any, NamedTuple

import numpy as np
import pandas as pd
from numpy.typing import ArrayLike, NDArray

from afa.bundle import Bundle
from afa.cohort.cohort import Cohort
from afa.mrf import Floats
from afa.orders import generator_of
from afa.stages.inputs import labels_of
from afa.stats.accuracy import share_of
from afa.stats.resampling import interval, patient_weights
from afa.stats.tables import joined

EXPERIMENT = "elicitation_health"
GENES = ["entity", "feature", "sign", "positive", "negative", "difference", "delta", "p_value"]
KINDS = ("observed", "resampled", "shuffled")
CLEAR = 0.05
"""p-value from which on a difference between labelled patients is called clear."""
BLOCK = 2_000
"""Pairs whose resampled correlations are held at once."""


class Cases(NamedTuple):
    """Which signs are counted, by the summary's columns of these names: all of them where nothing is said."""

    stratum: str = ""
    variant: str = ""
    level: float | None = None
    entity: str = ""


Masks = Mapping[Cases, NDArray[np.bool_]]


def pair_signs(bundle: Bundle, cohort: Cohort) -> pd.DataFrame:
    """One row per coupling.

    unary_product : of the signs of its genes' unary potentials, 0 where one has none. correlation : Pearson's, of the
    two genes over the cohort; NaN where one never varies.
    """
    entity = bundle.packed.owner
    row, column = bundle.packed.row, bundle.packed.column
    signs = np.sign(bundle.unary)
    values = cohort.values.astype(np.float64)
    ones = np.ones((1, len(values)))
    spread = np.sqrt(_covariance(ones, values, values)[0])
    scale = spread[row] * spread[column]
    covariance = _covariance(ones, values[:, row], values[:, column])[0]
    table = {
        "entity": np.array(bundle.entities, dtype=object)[entity],
        "feature_a": np.array(bundle.features, dtype=object)[row],
        "feature_b": np.array(bundle.features, dtype=object)[column],
        "sign": np.sign(bundle.packed.value).astype(np.int64),
        "unary_product": (signs[entity, row] * signs[entity, column]).astype(np.int64),
        "correlation": share_of(covariance, scale),
    }
    return pd.DataFrame(table)


def gene_signs(bundle: Bundle, cohort: Cohort, *, draws: int) -> pd.DataFrame:
    """Columns `GENES`, one row per unary potential of an entity that has labels of both classes.

    positive, negative : labelled patients. difference : mean ternary value of the positive less that of the negative.
    delta : Cliff's, the Mann-Whitney statistic on a scale of -1 to 1. p_value : two-sided, of delta, by `draws`
    shuffles of the labels.
    """
    parts = []
    shuffled = _shuffles(cohort, draws)
    for entity, unary, one, zero in zip(bundle.entities, bundle.unary, *_classes(bundle, cohort), strict=True):
        positive, negative, places = int(one.sum()), int(zero.sum()), np.flatnonzero(unary)
        if not positive or not negative:
            continue
        values = cohort.values[:, places]
        score = _scores(values, one[None], zero[None])[0]
        by_chance = _scores(values, one[shuffled], zero[shuffled])
        as_large = (np.abs(by_chance) >= np.abs(score)).sum(axis=0)
        table = {
            "feature": np.array(bundle.features, dtype=object)[places],
            "sign": np.sign(unary[places]).astype(np.int64),
            "difference": one @ values / positive - zero @ values / negative,
            "delta": score / (positive * negative),
            "p_value": (1 + as_large) / (1 + draws),
        }
        parts.append(pd.DataFrame(table).assign(entity=entity, positive=positive, negative=negative))
    return joined(parts, GENES)


def unary_draws(bundle: Bundle, pairs: pd.DataFrame, *, draws: int) -> pd.DataFrame:
    """Pairs whose sign is the product of the unary signs; pairs without both unaries are left out.

    `resampled` draws entities, `shuffled` gives each entity's unary signs to its genes at random.
    """
    known = pairs[pairs["unary_product"] != 0]
    masks = _pair_masks(known)
    entity = known["entity"].map(bundle.index).to_numpy(np.int64)
    right = (known["sign"] == known["unary_product"]).to_numpy(bool)
    ends = _ends(bundle, known)
    by_chance = np.zeros((draws, len(known)), dtype=bool)
    for index, name in enumerate(bundle.entities):
        own, genes = np.flatnonzero(entity == index), np.flatnonzero(bundle.unary[index])
        order = generator_of(EXPERIMENT, "unary_signs", name).permuted(np.tile(genes, (draws, 1)), axis=1)
        signs = np.zeros((draws, len(bundle.features)))
        signs[:, genes] = np.take_along_axis(np.tile(bundle.unary[index], (draws, 1)), order, axis=1)
        product = signs[:, ends[own, 0]] * signs[:, ends[own, 1]]
        by_chance[:, own] = product * known["sign"].to_numpy()[own] > 0
    weights = patient_weights(len(bundle.entities), resamples=draws, purpose=EXPERIMENT)
    counts: dict[tuple[str, Cases], tuple[ArrayLike, ArrayLike]] = {}
    for cases, mask in masks.items():
        by_entity = [np.bincount(entity, weights=part, minlength=len(bundle.entities)) for part in (right & mask, mask)]
        counts["observed", cases] = [by_entity[0].sum()], [by_entity[1].sum()]
        counts["resampled", cases] = weights @ by_entity[0], weights @ by_entity[1]
        counts["shuffled", cases] = by_chance[:, mask].sum(axis=1), np.full(draws, mask.sum())
    return _table("unary_signs", counts)


def label_draws(bundle: Bundle, cohort: Cohort, genes: pd.DataFrame, strata: Masks, *, draws: int) -> pd.DataFrame:
    """Genes whose difference has the sign of their unary potential; exact ties are left out.

    `resampled` draws patients, `shuffled` gives patients the labels of others, all labels of one patient together.
    genes : of `gene_signs`. strata : masks over its rows, beside which every entity has its own rows.
    """
    weights = patient_weights(len(cohort.patients), resamples=draws, purpose=EXPERIMENT)
    shuffled = _shuffles(cohort, draws)
    outcome = {kind: np.zeros((1 if kind == "observed" else draws, len(genes)), dtype=np.int8) for kind in KINDS}
    every = _classes(bundle, cohort)
    place, masks = pd.Index(bundle.features).get_indexer(pd.Index(genes["feature"])), dict(strata)
    for entity, rows in genes.groupby("entity", sort=False).indices.items():
        masks[Cases(entity=str(entity))] = (genes["entity"] == entity).to_numpy(bool)
        one, zero = (of_class[bundle.index(str(entity))] for of_class in every)
        values, signs = cohort.values[:, place[rows]], genes["sign"].to_numpy(np.int64)[rows]
        classes = {
            "observed": (one[None], zero[None]),
            "resampled": (weights * one, weights * zero),
            "shuffled": (one[shuffled], zero[shuffled]),
        }
        for kind, (positive, negative) in classes.items():
            outcome[kind][:, rows] = np.sign(_scores(values, positive, negative) * signs)
    by_cases = {(kind, cases): calls[:, mask] for kind, calls in outcome.items() for cases, mask in masks.items()}
    return _table("labels", {key: ((own > 0).sum(axis=1), (own != 0).sum(axis=1)) for key, own in by_cases.items()})


def correlation_draws(
    bundle: Bundle, cohort: Cohort, pairs: pd.DataFrame, strata: Masks, *, draws: int
) -> pd.DataFrame:
    """Pairs whose sign is that of the correlation of their genes; exact zeros are left out.

    `resampled` draws patients, `shuffled` gives every gene the place of another in the whole bundle, so that each
    entity keeps its couplings and their degrees. strata : masks over the rows of `pairs`, beside `same` and `opposite`.
    """
    values = cohort.values.astype(np.float64)
    weights = patient_weights(len(cohort.patients), resamples=draws, purpose=EXPERIMENT)
    ends, sign = _ends(bundle, pairs), pairs["sign"].to_numpy(np.int64)
    masks = {**_pair_masks(pairs), **strata}
    counts = {(kind, cases): np.zeros((2, 1 if kind == "observed" else draws)) for kind in KINDS for cases in masks}

    everyone = np.ones((1, len(values)))
    correlated = np.stack([np.sign(_covariance(everyone, values[:, [j]], values)[0]) for j in range(values.shape[1])])
    generator = generator_of(EXPERIMENT, "correlations")
    moved = np.stack([generator.permutation(values.shape[1]) for _ in range(draws)])
    for start in range(0, len(pairs), BLOCK):
        block = slice(start, start + BLOCK)
        row, column = ends[block].T
        found = {
            "observed": correlated[row, column][None],
            "resampled": _covariance(weights, values[:, row], values[:, column]),
            "shuffled": correlated[moved[:, row], moved[:, column]],
        }
        calls = {kind: np.sign(each * sign[block]).astype(np.int8) for kind, each in found.items()}
        for (kind, cases), counted in counts.items():
            own = calls[kind][:, masks[cases][block]]
            counted += [(own > 0).sum(axis=1), (own < 0).sum(axis=1)]
    return _table("correlations", {key: (right, right + wrong) for key, (right, wrong) in counts.items()})


def _ends(bundle: Bundle, pairs: pd.DataFrame) -> NDArray[np.int64]:
    """(n, 2) the places of the genes of pairs."""
    features = pd.Index(bundle.features)
    return np.column_stack([features.get_indexer(pd.Index(pairs[name])) for name in ("feature_a", "feature_b")])


def _covariance(weights: Floats, one: Floats, other: Floats) -> Floats:
    """(R, C) covariances, column by column, times the squared sum of weights, of ternary values (P, C) or (P, 1)."""
    total = weights.sum(axis=1, keepdims=True)
    covariance: Floats = total * (weights @ (one * other)) - (weights @ one) * (weights @ other)
    return covariance


def _scores(values: NDArray[np.int8], one: Floats, zero: Floats) -> Floats:
    """(R, G) pairs of a positive and a negative patient of which the positive is higher, less those it is lower in.

    values : (P, G). one, zero : (R, P) how often each patient counts as positive or as negative.
    """
    up, down = (values == 1).astype(np.float64), (values == -1).astype(np.float64)
    one_up, one_down, zero_up, zero_down = one @ up, one @ down, zero @ up, zero @ down
    one_all, zero_all = one.sum(axis=1, keepdims=True), zero.sum(axis=1, keepdims=True)
    higher = one_up * (zero_all - zero_up) + (one_all - one_up - one_down) * zero_down
    lower = zero_up * (one_all - one_up) + (zero_all - zero_up - zero_down) * one_down
    scores: Floats = higher - lower
    return scores


def _classes(bundle: Bundle, cohort: Cohort) -> tuple[Floats, Floats]:
    """(N, P) 1 for patients with a positive label, and 1 for those with a negative one."""
    labels = labels_of(bundle, cohort).T
    return (labels == 1).astype(np.float64), (labels == 0).astype(np.float64)


def _shuffles(cohort: Cohort, draws: int) -> NDArray[np.int64]:
    """(draws, P) whose labels each patient gets."""
    everyone = np.tile(np.arange(len(cohort.patients)), (draws, 1))
    return generator_of(EXPERIMENT, "labels").permuted(everyone, axis=1)


def _pair_masks(pairs: pd.DataFrame) -> dict[Cases, NDArray[np.bool_]]:
    sign = pairs["sign"].to_numpy(np.int64)
    return {Cases(): np.ones(len(pairs), dtype=bool), Cases("same"): sign > 0, Cases("opposite"): sign < 0}


def _table(target: str, counts: Mapping[tuple[str, Cases], tuple[ArrayLike, ArrayLike]]) -> pd.DataFrame:
    """By kind and cases, draw after draw: signs that are right, and those that the data decide."""
    tables = []
    for (kind, cases), pair in counts.items():
        table = pd.DataFrame(
            dict(zip(("right", "n"), (np.asarray(each, dtype=np.int64) for each in pair), strict=True))
        )
        tables.append(table.assign(kind=kind, draw=range(len(table)), **cases._asdict()))
    return pd.concat(tables, ignore_index=True).assign(target=target).astype({"level": np.float64})


Row = dict[str, Any]
CHANCE = {"unary_signs": "shuffled_signs", "labels": "shuffled_labels", "correlations": "shuffled_genes"}
"""What is shuffled, by target."""
AGAINST_CHANCE = ("", "same", "opposite")
HALVES = (
    ("lit_prob", "upper", "lower", "upper_less_lower"),
    ("", "often_named", "seldom_named", "often_less_seldom_named"),
)
"""Variant, strata of the two halves, and the stratum of their difference."""


def rows_of_draws(draws: pd.DataFrame, target: str, confidence: float) -> Iterator[Row]:
    """Signs that are right, as observed and against the shuffles."""
    for key, part in draws.groupby(list(Cases._fields), sort=False, dropna=False):
        shares, n = _by_kind(part)
        if not n:
            continue
        value = float(shares["observed"][0])
        low, high = (ends[0] for ends in interval(shares["resampled"][:, None], confidence=confidence))
        of: Row = {"target": target, **dict(zip(Cases._fields, key, strict=True)), "n": n}
        yield {**of, "metric": "rate", "value": value, "low": low, "high": high}
        chance = shares["shuffled"][~np.isnan(shares["shuffled"])]
        if of["stratum"] not in AGAINST_CHANCE or of["variant"] or not len(chance):
            continue
        mean, of_chance = float(chance.mean()), {**of, "reference": CHANCE[target]}
        ends = interval(chance[:, None], confidence=confidence)
        yield {**of_chance, "metric": "rate", "value": mean, "low": ends[0][0], "high": ends[1][0]}
        yield {**of_chance, "metric": "gap", "value": value - mean, "low": low - mean, "high": high - mean}
        as_right = (1 + (chance >= value).sum()) / (1 + len(chance))
        yield {**of, "reference": f"{CHANCE[target]}_as_right", "metric": "rate", "value": as_right, "n": len(chance)}
    for variant, *strata, difference in HALVES:
        of_variant = draws[draws["variant"] == variant]
        halves = [of_variant[of_variant["stratum"] == stratum] for stratum in strata]
        if all(len(half) for half in halves):
            (upper, n_upper), (lower, n_lower) = map(_by_kind, halves)
            low, high = interval((upper["resampled"] - lower["resampled"])[:, None], confidence=confidence)
            value = float(upper["observed"][0] - lower["observed"][0])
            of = {"target": target, "stratum": difference, "variant": variant, "n": n_upper + n_lower}
            yield {**of, "metric": "gap", "value": value, "low": low[0], "high": high[0]}


def _by_kind(draws: pd.DataFrame) -> tuple[dict[str, Floats], int]:
    """The share of signs that are right by kind, draw after draw, and how many signs the data decide."""
    ordered = draws.sort_values("draw", kind="stable").groupby("kind")
    shares = {str(kind): divided(own["right"], own["n"]) for kind, own in ordered}
    return shares, int(draws.loc[draws["kind"] == "observed", "n"].iloc[0])


def signs_beside_data(tables: Mapping[str, pd.DataFrame], confidence: float) -> list[Row]:
    """What one sign for all, the better one on these same data, would have right.

    And by how much the probabilities that the model gives exceed the share of signs that the data bear out.
    """
    constant, stated = list[Row](), list[Row]()
    for target, table, column in (
        ("labels", tables["genes"], "delta"),
        ("correlations", tables["pairs"], "correlation"),
    ):
        decided = table[table[column].notna() & (table[column] != 0)]
        if len(decided):
            value = max((decided[column] > 0).mean(), (decided[column] < 0).mean())
            of: Row = {"target": target, "metric": "rate", "reference": "constant_sign"}
            constant.append({**of, "value": value, "n": len(decided)})
        known = decided[decided["lit_prob"].notna()]
        if len(known):
            draws = tables["draws"].query("stratum == '' and variant == '' and entity == '' and kind == 'resampled'")
            resampled = draws[draws["target"] == target]
            probability, right = float(known["lit_prob"].mean()), (np.sign(known[column]) == known["sign"]).mean()
            share = divided(resampled["right"], resampled["n"])
            low, high = interval(probability - share[:, None], confidence=confidence)
            of = {"target": target, "metric": "gap", "quantity": "lit_prob_less_share_right", "n": len(known)}
            stated.append({**of, "value": probability - right, "low": low[0], "high": high[0]})
    return [*constant, *stated]


def divided(right: Any, total: Any) -> Floats:
    return share_of(np.asarray(right, dtype=np.float64), np.asarray(total, dtype=np.float64))
