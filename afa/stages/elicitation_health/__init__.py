"""The health of an elicitation: do its answers agree with each other, with themselves, and with a cohort's data?

Of a record: agreement over runs, number of runs, wordings (`afa.stages.elicitation_health.answers`). Of any bundle: its
signs against each other and against the data (`afa.stages.elicitation_health.signs`). With both: does `lit_prob`, the
model's stated confidence, or how often a gene is named at all, tell which signs the data bear out? That is as far as a
record can be probed for memorisation; what needs a live model is said in docs/summary.md.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
import pandas as pd

from afa.bundle import Bundle
from afa.cohort.cohort import Cohort
from afa.elicit.study import PAIRWISE, RECORD_FOLDER, UNARY, load_study
from afa.elicit.tables import read_stage
from afa.stages.base import Stage
from afa.stages.elicitation_health import signs
from afa.stages.elicitation_health.answers import Answers, check_of_record, read_answers, record_agreement
from afa.stages.elicitation_health.signs import Cases, Masks, Row
from afa.stages.inputs import labels_of
from afa.stats.accuracy import Resampled
from afa.stats.summary import summary_rows

if TYPE_CHECKING:
    from afa.stages.settings import Bootstrap

COLUMNS = {
    "answers": "wording run entity feature sign lit_prob named_by same phenotypes cohort bundle",
    "asked": "prompt wording entity asked answered cohort bundle",
    "baseline": "wording entity shared union same cohort bundle",
    "draws": "target kind stratum variant level entity draw right n cohort bundle",
    "entities": "entity unaries couplings positive negative cohort bundle",
    "genes": (
        "entity feature sign positive negative difference delta p_value lit_prob named_by phenotypes cohort bundle"
    ),
    "kept": "wording entity runs min_agree orders kept cohort bundle",
    "overlap": "wording entity run_a run_b shared union same cohort bundle",
    "pairs": "entity feature_a feature_b sign unary_product correlation lit_prob cohort bundle",
    "stability": "wording entity runs min_agree other_runs shared_runs orders shared union cohort bundle",
    "wordings": "prompt wording_a wording_b entity shared union same expected_same cohort bundle",
}
STAGE = Stage(
    settings=("bootstrap.resamples",),
    scopes=True,
    optional=("study", "record", "unary", "pairwise"),
    tables=COLUMNS,
    rows={
        "elicitation_health": "do answers agree over runs and wordings, and do their signs agree with each other and"
        " with the data?"
    },
    space_mb=0.3,
)


def run(
    bundle: Bundle,
    cohort: Cohort,
    study: Path | None = None,
    record: Path | None = None,
    unary: Path | None = None,
    pairwise: Path | None = None,
    *,
    bootstrap: Bootstrap,
) -> dict[str, pd.DataFrame]:
    """How far a record agrees with itself, and a bundle's signs with each other and with a cohort's data.

    study : a folder with study.yaml; without it only signs are compared, and the tables of a record have no rows.
    record : a folder of answers, the study's by default. unary, pairwise : what `afa elicit` wrote; of the record only
    the answers that these count. Of patients or entities there are as many resamples as `bootstrap` says, and as many
    shuffles.

    `genes` and `pairs` are those of `gene_signs` and `pair_signs`; with a record also `lit_prob`, the mean over answers
    with that sign, and of genes `named_by` runs and for how many `phenotypes` the record names the gene, else missing.

    `entities`: potentials of each entity, and its patients by label.

    `draws`: how many signs were right of those that the data decide, as observed, resampled and shuffled.

    Raises
    ------
    ElicitationError : the bundle has a unary sign that no answer of the record gives.

    """
    answers, draws = None, bootstrap.resamples
    tables: dict[str, pd.DataFrame] = {}
    if study is not None:
        asked = [folder for folder in (unary, pairwise) if folder is not None]
        counting = {digest for folder in asked for digest in read_stage(folder, "asked")["asked"]["answer"]}
        answers = read_answers(load_study(study), record or study / RECORD_FOLDER, counting)
        check_of_record(bundle, answers)
        tables = record_agreement(answers)
    genes = signs.gene_signs(bundle, cohort, draws=draws)
    genes, pairs = _with_answers(genes, signs.pair_signs(bundle, cohort), answers)
    everything = np.ones(len(genes), dtype=bool)
    strata = {Cases(): everything, Cases("clear"): genes["p_value"].to_numpy(np.float64) <= signs.CLEAR}
    by_frequency = _halves(genes["phenotypes"], Cases("often_named"), Cases("seldom_named"))
    drawn = [
        signs.unary_draws(bundle, pairs, draws=draws),
        signs.label_draws(bundle, cohort, genes, {**strata, **by_frequency, **_by_lit_prob(genes)}, draws=draws),
        signs.correlation_draws(bundle, cohort, pairs, _by_lit_prob(pairs), draws=draws),
    ]
    labels = labels_of(bundle, cohort)
    counts = {"positive": (labels == 1).sum(axis=0), "negative": (labels == 0).sum(axis=0)}
    counts |= {"unaries": (bundle.unary != 0).sum(axis=1), "couplings": np.diff(bundle.packed.pointer)}
    tables |= {"genes": genes, "pairs": pairs, "entities": pd.DataFrame({"entity": bundle.entities, **counts})}
    tables["draws"] = pd.concat([table for table in drawn if len(table)], ignore_index=True)
    return {name: tables.get(name, pd.DataFrame()).reindex(columns=held.split()[:-2]) for name, held in COLUMNS.items()}


def _by_lit_prob(table: pd.DataFrame) -> Masks:
    """The halves of a table by lit_prob, and its bins."""
    edges = lit_prob_bin(table["lit_prob"])
    bins = {Cases("", "lit_prob", edge): (edges == edge).to_numpy(bool) for edge in sorted(edges.dropna().unique())}
    return {**_halves(table["lit_prob"], Cases("upper", "lit_prob"), Cases("lower", "lit_prob")), **bins}


def _halves(values: pd.Series, upper: Cases, lower: Cases) -> Masks:
    """Rows above the median, and the others; none where there are no values."""
    known = values.astype(float)
    if known.isna().all():
        return {}
    above = known > known.median()
    return {upper: above.to_numpy(bool), lower: (~above & known.notna()).to_numpy(bool)}


def _with_answers(
    genes: pd.DataFrame, pairs: pd.DataFrame, answers: Answers | None
) -> tuple[pd.DataFrame, pd.DataFrame]:
    """Genes and pairs with what a record says of them, missing where there is none."""
    if answers is None:
        return genes.assign(lit_prob=np.nan, named_by=np.nan, phenotypes=np.nan), pairs.assign(lit_prob=np.nan)
    named, gene, pair = answers.named, ["entity", "feature", "sign"], ["feature_a", "feature_b"]
    own = named.groupby(gene, as_index=False).agg(lit_prob=("lit_prob", "mean"), named_by=("run", "nunique"))
    joined = genes.merge(own, on=gene, how="left", validate="one_to_one")
    named_for = named.groupby("feature")["entity"].nunique()
    judged = answers.judged.groupby(["entity", *pair, "sign"], as_index=False).agg(lit_prob=("lit_prob", "mean"))
    ordered = pairs[["entity", "sign"]].copy()
    ordered[pair] = np.sort(pairs[pair].to_numpy(dtype=str), axis=1)
    found = ordered.merge(judged, on=["entity", *pair, "sign"], how="left", validate="one_to_one")
    of_pairs = pairs.assign(lit_prob=found["lit_prob"].to_numpy(np.float64))
    return joined.assign(phenotypes=joined["feature"].map(named_for)), of_pairs


def lit_prob_bin(lit_prob: pd.Series) -> pd.Series:
    """The lower edge of each value's bin: 0.4 for 0.4 to below 0.5, 0.9 also for 1; missing where the value is.

    Values are rounded to 1e-9 first, so that 0.3 counts as 0.3 however it was added up.
    """
    place = np.minimum(np.floor((lit_prob.to_numpy(np.float64) * STEPS).round(8)), STEPS - 1)
    return pd.Series(place / STEPS, index=lit_prob.index)


SHOWN = 12
"""Digits of a wording's digest that are enough to tell it."""
STEPS = 10
"""Bins of lit_prob from 0 to 1."""


def summarise(tables: Mapping[str, pd.DataFrame], *, bootstrap: Bootstrap) -> pd.DataFrame:
    """Summary rows `elicitation_health` of the tables of `elicitation_health`; `target` is what is compared with.

    `other_runs` and `other_wording` are of the record, their intervals over phenotypes; `unary_signs` of the bundle,
    over phenotypes; `labels` and `correlations` of the data, over patients. `reference` is chance: for `other_runs`
    answers to other phenotypes, else a shuffle; there `low` and `high` are the range of the shuffles, not an interval.
    """
    draws, confidence = tables["draws"], bootstrap.confidence
    rows: list[Row] = []
    if len(tables["answers"]):
        over = Resampled.of(tables["asked"]["entity"].unique(), **dict(bootstrap), purpose=signs.EXPERIMENT)
        rows += [{"target": "other_runs", **row} for row in _other_runs(tables, over)]
        rows += _wordings(tables, over)
    for target in signs.CHANCE:
        rows += signs.rows_of_draws(draws[draws["target"] == target], target, confidence)
    rows += signs.signs_beside_data(tables, confidence)
    rows += _counts(tables)
    whole = pd.DataFrame(rows)
    return summary_rows("elicitation_health", whole.where(whole != ""))


def _share(over: Resampled, table: pd.DataFrame, right: str, total: str) -> Row:
    """value, low, high, n of sum(right) / sum(total), with an interval over phenotypes; n is the total."""
    part = over.part(table, right, total, by=None, unit="entity")
    return _row(over.mean([part]), round(part[1].sum()))


def _gap(over: Resampled, one: pd.DataFrame, other: pd.DataFrame, right: str, total: str) -> Row:
    """The same of the difference of two shares, both over the same phenotypes; n of the first."""
    part, against = (over.part(table, right, total, by=None, unit="entity") for table in (one, other))
    return _row(over.gap([part], [against]), round(part[1].sum()))


def _total(over: Resampled, table: pd.DataFrame, column: str) -> Row:
    """The same of a sum; n counts the phenotypes."""
    (sums,) = over.sums(table, column, by=None, unit="entity")
    row = _row(over.statistic(lambda weights: weights @ sums, len(sums)), len(sums))
    return row | {"value": float(sums.sum())}  # of parts of whole numbers: summed up the same wherever it is done


def _row(table: pd.DataFrame, n: int) -> Row:
    return {**{str(name): value for name, value in table.iloc[0].items()}, "n": n}


def _other_runs(tables: Mapping[str, pd.DataFrame], over: Resampled) -> Iterator[Row]:
    """Agreement of two runs on a phenotype's genes and on directions, beside answers for other phenotypes.

    Then by how many runs genes are named; genes kept, and how alike two consensuses are, by runs and min_agree; and
    genes of an answer that every run names with the same direction, by the probability that the answer gives.
    """
    overlap, baseline, answers = tables["overlap"], tables["baseline"], tables["answers"]
    for quantity, right, total in (("", "shared", "union"), ("direction", "same", "shared")):
        of: Row = {"metric": "rate", "quantity": quantity}
        chance = {"quantity": quantity, "reference": "other_phenotype"}
        yield {**of, **_share(over, overlap, right, total)}
        yield {**chance, "metric": "rate", **_share(over, baseline, right, total)}
        yield {**chance, "metric": "gap", **_gap(over, overlap, baseline, right, total)}
        for entity, part in overlap.groupby("entity", sort=False):
            value, n = signs.divided(part[right].sum(), part[total].sum()), part[total].sum()
            yield {**of, "entity": entity, "value": float(value), "n": n}
    genes = answers.drop_duplicates(["wording", "entity", "feature"])
    n_runs = tables["kept"]["runs"].max() if len(tables["kept"]) else answers["run"].nunique()
    for times in range(1, int(n_runs) + 1):
        named = genes.assign(right=genes["named_by"] == times, total=1)
        of = {"metric": "rate", "quantity": "named_by", "level": times}
        yield {**of, **_share(over, named, "right", "total")}
        for entity, part in named.groupby("entity", sort=False):
            yield {**of, "entity": entity, "value": part["right"].mean(), "n": len(part)}
    alone = answers.assign(right=answers["named_by"] == 1, total=1)
    yield {"metric": "rate", "quantity": "named_by_no_other_run", **_share(over, alone, "right", "total")}
    kept = tables["kept"].assign(kept=tables["kept"]["kept"] / tables["kept"]["orders"])
    for (runs, agree), part in kept.groupby(["runs", "min_agree"]):
        yield {"metric": "count", "quantity": "kept", "variant": f"{agree}_of_{runs}", **_total(over, part, "kept")}
    keys = ["runs", "min_agree", "other_runs", "shared_runs"]
    for (runs, agree, other_runs, shared), part in tables["stability"].groupby(keys):
        of = {"metric": "rate", "quantity": "stability", "variant": f"{agree}_of_{runs}"}
        each = part.assign(shared=part["shared"] / part["orders"], union=part["union"] / part["orders"])
        yield {**of, "reference": f"{other_runs}_runs_{shared}_shared", **_share(over, each, "shared", "union")}
    n_runs = answers["run"].nunique()
    held = answers.assign(right=(answers["named_by"] == n_runs) & (answers["same"] == n_runs - 1), total=1)
    held["bin"], above = lit_prob_bin(held["lit_prob"]), held["lit_prob"] > held["lit_prob"].median()
    for edge, part in held.groupby("bin"):
        yield {"metric": "rate", "variant": "lit_prob", "level": edge, **_share(over, part, "right", "total")}
    of = {"metric": "gap", "stratum": "upper_less_lower", "variant": "lit_prob"}
    yield {**of, **_gap(over, held[above], held[~above], "right", "total")}


def _wordings(tables: Mapping[str, pd.DataFrame], over: Resampled) -> Iterator[Row]:
    """Agreement of two wordings of a question; where a prompt has one only, no number."""
    asked, twice = tables["asked"], tables["wordings"]
    for prompt in (UNARY, PAIRWISE):
        of = {"target": "other_wording", "metric": "rate", "stratum": prompt}
        if len(set(asked.loc[(asked["prompt"] == prompt) & (asked["answered"] > 0), "wording"])) == 1:
            yield {**of, "reference": "one_wording"}
        for names, part in twice[twice["prompt"] == prompt].groupby(["wording_a", "wording_b"]):
            between = {**of, "reference": "_and_".join(str(name)[:SHOWN] for name in names)}
            if prompt == UNARY:
                yield {**between, **_share(over, part, "shared", "union")}
                yield {**between, "quantity": "direction", **_share(over, part, "same", "shared")}
            else:
                yield {**between, **_share(over, part, "same", "shared")}
                yield {**between, "quantity": "by_chance", **_share(over, part, "expected_same", "shared")}


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
