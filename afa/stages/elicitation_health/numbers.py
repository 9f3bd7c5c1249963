"""The numbers of the elicitation's health: shares that agree, their intervals, and what chance would give."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
import pandas as pd

from afa.elicit.study import PAIRWISE, UNARY
from afa.mrf import Floats
from afa.stages.elicitation_health.signs import EXPERIMENT
from afa.stats.accuracy import Part, Resampled, share_of
from afa.stats.resampling import interval
from afa.stats.summary import summary_rows

if TYPE_CHECKING:
    from afa.stages.settings import Bootstrap

STEPS = 10
"""Bins of lit_prob from 0 to 1."""

Row = dict[str, Any]
CHANCE = {"unary_signs": "shuffled_signs", "labels": "shuffled_labels", "correlations": "shuffled_genes"}
"""What is shuffled, by target."""
AGAINST_CHANCE = ("", "same", "opposite")
HALVES = (
    ("lit_prob", "upper", "lower", "upper_less_lower"),
    ("", "often_named", "seldom_named", "often_less_seldom_named"),
)
"""Variant, strata of the two halves, and the stratum of their difference."""
SHOWN = 12
"""Digits of a wording's digest that are enough to tell it."""


def summarise(tables: Mapping[str, pd.DataFrame], *, bootstrap: Bootstrap) -> pd.DataFrame:
    """Summary rows `elicitation_health` of the tables of `elicitation_health`; `target` is what is compared with.

    `other_runs` and `other_wording` are of the record, their intervals over phenotypes; `unary_signs` of the bundle,
    over phenotypes; `labels` and `correlations` of the data, over patients. `reference` is chance: for `other_runs`
    answers to other phenotypes, else a shuffle; there `low` and `high` are the range of the shuffles, not an interval.
    """
    draws, confidence = tables["draws"], bootstrap.confidence
    rows: list[Row] = []
    if len(tables["answers"]):
        over = _Phenotypes(list(dict.fromkeys(tables["asked"]["entity"])), bootstrap)
        rows += _runs(tables, over)
        rows += _curve(tables, over)
        rows += _lit_prob_of_answers(tables["answers"], over)
        rows += _wordings(tables, over)
    for target in CHANCE:
        rows += _drawn(draws[draws["target"] == target], target, confidence)
    rows += _constants(tables)
    rows += _lit_prob_of_data(tables, confidence)
    rows += _counts(tables)
    whole = pd.DataFrame(rows)
    return summary_rows("elicitation_health", whole.where(whole != ""))


class _Phenotypes:
    """Shares summed over phenotypes, with percentile intervals that resample phenotypes."""

    def __init__(self, entities: Sequence[str], bootstrap: Bootstrap) -> None:
        self._entities = list(entities)
        self._resampled = Resampled.of(self._entities, **dict(bootstrap), purpose=EXPERIMENT)

    def share(self, table: pd.DataFrame, right: str, total: str) -> Row:
        """value, low, high, n of sum(right) / sum(total); n is the total."""
        part = self._part(table, right, total)
        return _row(self._resampled.mean([part]), round(part[1].sum()))

    def gap(self, one: tuple[pd.DataFrame, str, str], other: tuple[pd.DataFrame, str, str]) -> Row:
        """The same of the difference of two shares, both over the same phenotypes; n of the first."""
        part = self._part(*one)
        return _row(self._resampled.gap([part], [self._part(*other)]), round(part[1].sum()))

    def total(self, table: pd.DataFrame, column: str) -> Row:
        """The same of a sum; n counts the phenotypes."""
        sums = self._sums(table, column)
        row = _row(self._resampled.statistic(lambda weights: weights @ sums, len(sums)), len(sums))
        return row | {"value": float(sums.sum())}  # of parts of whole numbers: summed up the same wherever it is done

    def _part(self, table: pd.DataFrame, right: str, total: str) -> Part:
        return self._sums(table, right), self._sums(table, total)

    def _sums(self, table: pd.DataFrame, column: str) -> Floats:
        """(P, 1)."""
        sums = table.groupby("entity")[column].sum().reindex(self._entities).fillna(0.0)
        return sums.to_numpy(np.float64)[:, None]


def _row(table: pd.DataFrame, n: int) -> Row:
    return {**{str(name): value for name, value in table.iloc[0].items()}, "n": n}


def _divided(right: Any, total: Any) -> Floats:
    return share_of(np.asarray(right, dtype=np.float64), np.asarray(total, dtype=np.float64))


def _runs(tables: Mapping[str, pd.DataFrame], over: _Phenotypes) -> Iterator[Row]:
    """Agreement of two runs on a phenotype's genes and on directions, beside answers for other phenotypes."""
    overlap, baseline, answers = tables["overlap"], tables["baseline"], tables["answers"]
    for quantity, right, total in (("", "shared", "union"), ("direction", "same", "shared")):
        of: Row = {"target": "other_runs", "quantity": quantity}
        chance = {**of, "reference": "other_phenotype"}
        yield {**of, "metric": "rate", **over.share(overlap, right, total)}
        yield {**chance, "metric": "rate", **over.share(baseline, right, total)}
        yield {**chance, "metric": "gap", **over.gap((overlap, right, total), (baseline, right, total))}
        for entity, part in overlap.groupby("entity", sort=False):
            value, n = _divided(part[right].sum(), part[total].sum()), part[total].sum()
            yield {**of, "metric": "rate", "entity": entity, "value": float(value), "n": n}
    genes = answers.drop_duplicates(["wording", "entity", "feature"])
    n_runs = tables["kept"]["runs"].max() if len(tables["kept"]) else answers["run"].nunique()
    for times in range(1, int(n_runs) + 1):
        named = genes.assign(right=genes["named_by"] == times, total=1)
        of = {"target": "other_runs", "metric": "rate", "quantity": "named_by", "level": times}
        yield {**of, **over.share(named, "right", "total")}
        for entity, part in named.groupby("entity", sort=False):
            yield {**of, "entity": entity, "value": part["right"].mean(), "n": len(part)}
    alone = answers.assign(right=answers["named_by"] == 1, total=1)
    of = {"target": "other_runs", "metric": "rate", "quantity": "named_by_no_other_run"}
    yield {**of, **over.share(alone, "right", "total")}


def _curve(tables: Mapping[str, pd.DataFrame], over: _Phenotypes) -> Iterator[Row]:
    """Genes kept, and how alike two consensuses are, by runs and min_agree."""
    kept = tables["kept"].assign(kept=tables["kept"]["kept"] / tables["kept"]["orders"])
    for (runs, agree), part in kept.groupby(["runs", "min_agree"]):
        of = {"target": "other_runs", "metric": "count", "quantity": "kept", "variant": f"{agree}_of_{runs}"}
        yield {**of, **over.total(part, "kept")}
    keys = ["runs", "min_agree", "other_runs", "shared_runs"]
    for (runs, agree, other_runs, shared), part in tables["stability"].groupby(keys):
        of = {"target": "other_runs", "metric": "rate", "quantity": "stability", "variant": f"{agree}_of_{runs}"}
        each = part.assign(shared=part["shared"] / part["orders"], union=part["union"] / part["orders"])
        yield {**of, "reference": f"{other_runs}_runs_{shared}_shared", **over.share(each, "shared", "union")}


def _lit_prob_of_answers(answers: pd.DataFrame, over: _Phenotypes) -> Iterator[Row]:
    """Genes of an answer that every run names with the same direction, by the probability that the answer gives."""
    n_runs = answers["run"].nunique()
    held = answers.assign(right=(answers["named_by"] == n_runs) & (answers["same"] == n_runs - 1), total=1)
    held["bin"] = lit_prob_bin(held["lit_prob"])
    for edge, part in held.groupby("bin"):
        of = {"target": "other_runs", "metric": "rate", "variant": "lit_prob", "level": edge}
        yield {**of, **over.share(part, "right", "total")}
    above = held["lit_prob"] > held["lit_prob"].median()
    halves = [(part, "right", "total") for part in (held[above], held[~above])]
    of = {"target": "other_runs", "metric": "gap", "stratum": "upper_less_lower", "variant": "lit_prob"}
    yield {**of, **over.gap(halves[0], halves[1])}


def _wordings(tables: Mapping[str, pd.DataFrame], over: _Phenotypes) -> Iterator[Row]:
    """Agreement of two wordings of a question; where a prompt has one only, no number."""
    asked, twice = tables["asked"], tables["wordings"]
    for prompt in (UNARY, PAIRWISE):
        of = {"target": "other_wording", "metric": "rate", "stratum": prompt}
        if len(set(asked.loc[(asked["prompt"] == prompt) & (asked["answered"] > 0), "wording"])) == 1:
            yield {**of, "reference": "one_wording"}
        for names, part in twice[twice["prompt"] == prompt].groupby(["wording_a", "wording_b"]):
            between = {**of, "reference": "_and_".join(str(name)[:SHOWN] for name in names)}
            if prompt == UNARY:
                yield {**between, **over.share(part, "shared", "union")}
                yield {**between, "quantity": "direction", **over.share(part, "same", "shared")}
            else:
                yield {**between, **over.share(part, "same", "shared")}
                yield {**between, "quantity": "by_chance", **over.share(part, "expected_same", "shared")}


def _drawn(draws: pd.DataFrame, target: str, confidence: float) -> Iterator[Row]:
    """Signs that are right, as observed and against the shuffles."""
    keys = ["stratum", "variant", "level", "entity"]
    for key, part in draws.groupby(keys, sort=False, dropna=False):
        shares, n = _by_kind(part)
        if not n:
            continue
        value = float(shares["observed"][0])
        low, high = (ends[0] for ends in interval(shares["resampled"][:, None], confidence=confidence))
        of: Row = {"target": target, **dict(zip(keys, key, strict=True)), "n": n}
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
            of = {"target": target, "stratum": difference, "variant": variant}
            yield {**of, "metric": "gap", **_gap_of_halves(halves, confidence)}


def _gap_of_halves(halves: Sequence[pd.DataFrame], confidence: float) -> Row:
    (upper, n_upper), (lower, n_lower) = (_by_kind(half) for half in halves)
    low, high = interval((upper["resampled"] - lower["resampled"])[:, None], confidence=confidence)
    value = float(upper["observed"][0] - lower["observed"][0])
    return {"value": value, "low": low[0], "high": high[0], "n": n_upper + n_lower}


def _by_kind(draws: pd.DataFrame) -> tuple[dict[str, Floats], int]:
    """The share of signs that are right by kind, draw after draw, and how many signs the data decide."""
    ordered = draws.sort_values("draw", kind="stable").groupby("kind")
    shares = {str(kind): _divided(own["right"], own["n"]) for kind, own in ordered}
    return shares, int(draws.loc[draws["kind"] == "observed", "n"].iloc[0])


def _constants(tables: Mapping[str, pd.DataFrame]) -> Iterator[Row]:
    """What one sign for all, the better one on these same data, would have right."""
    for target, column in (("labels", tables["genes"]["delta"]), ("correlations", tables["pairs"]["correlation"])):
        decided = column[column.notna() & (column != 0)]
        if len(decided):
            value, of = max((decided > 0).mean(), (decided < 0).mean()), {"target": target, "metric": "rate"}
            yield {**of, "reference": "constant_sign", "value": value, "n": len(decided)}


def _lit_prob_of_data(tables: Mapping[str, pd.DataFrame], confidence: float) -> Iterator[Row]:
    """By how much the probabilities that the model gives exceed the share of signs that the data bear out."""
    parts = (("labels", tables["genes"], "delta"), ("correlations", tables["pairs"], "correlation"))
    for target, table, column in parts:
        known = table[table["lit_prob"].notna() & table[column].notna() & (table[column] != 0)]
        if known.empty:
            continue
        draws = tables["draws"]
        whole = (draws[["stratum", "variant", "entity"]] == "").all(axis=1) & (draws["target"] == target)
        resampled = draws[whole & (draws["kind"] == "resampled")]
        stated, right = float(known["lit_prob"].mean()), (np.sign(known[column]) == known["sign"]).mean()
        low, high = interval(stated - _divided(resampled["right"], resampled["n"])[:, None], confidence=confidence)
        of = {"target": target, "metric": "gap", "quantity": "lit_prob_less_share_right", "n": len(known)}
        yield {**of, "value": stated - right, "low": low[0], "high": high[0]}


def _counts(tables: Mapping[str, pd.DataFrame]) -> Iterator[Row]:
    """What was left out, and how much there was."""
    genes, pairs, entities, asked = (tables[name] for name in ("genes", "pairs", "entities", "asked"))
    unlabelled = ((entities["positive"] == 0) | (entities["negative"] == 0)).sum()
    unary = asked[asked["prompt"] == UNARY]
    counts = {
        ("labels", "tied"): (genes["delta"] == 0).sum(),
        ("labels", "phenotypes_without_both_labels"): unlabelled,
        ("correlations", "tied_or_constant"): ((pairs["correlation"] == 0) | pairs["correlation"].isna()).sum(),
        ("unary_signs", "pairs_without_both_unaries"): (pairs["unary_product"] == 0).sum(),
    }
    if len(asked):
        counts["other_runs", "runs"] = unary["asked"].max()
        counts["other_runs", "phenotypes_without_all_answers"] = (unary["answered"] < unary["asked"]).sum()
    for (target, quantity), value in counts.items():
        yield {"target": target, "metric": "count", "quantity": quantity, "value": value}


def lit_prob_bin(lit_prob: pd.Series) -> pd.Series:
    """The lower edge of each value's bin: 0.4 for 0.4 to below 0.5, 0.9 also for 1; missing where the value is.

    Values are rounded to 1e-9 first, so that 0.3 counts as 0.3 however it was added up.
    """
    place = np.minimum(np.floor((lit_prob.to_numpy(np.float64) * STEPS).round(8)), STEPS - 1)
    return pd.Series(place / STEPS, index=lit_prob.index)
