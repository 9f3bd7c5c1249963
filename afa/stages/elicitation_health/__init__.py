"""The health of an elicitation: do its answers agree with each other, with themselves, and with a cohort's data?

Of a record: agreement over runs, number of runs, wordings (`afa.stages.elicitation_health.answers`). Of any bundle: its
signs against each other and against the data (`afa.stages.elicitation_health.signs`). With both: does `lit_prob`, the
model's stated confidence, or how often a gene is named at all, tell which signs the data bear out? That is as far as a
record can be probed for memorisation; what needs a live model is said in docs/summary.md.
"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
import pandas as pd

from afa.bundle import Bundle
from afa.cohort.cohort import Cohort
from afa.elicit.study import RECORD_FOLDER, load_study
from afa.elicit.tables import read_stage
from afa.stages.base import Column, Stage, columns, described
from afa.stages.elicitation_health.answers import Answers, check_of_record, read_answers, record_agreement
from afa.stages.elicitation_health.numbers import lit_prob_bin
from afa.stages.elicitation_health.numbers import summarise as summarise
from afa.stages.elicitation_health.signs import (
    CLEAR,
    Cases,
    Masks,
    correlation_draws,
    gene_signs,
    label_draws,
    pair_signs,
    unary_draws,
)
from afa.stages.inputs import labels_of

if TYPE_CHECKING:
    from afa.stages.settings import Bootstrap

OWN = {
    "target": Column("", "what signs are held against: see docs/summary.md"),
    "kind": Column("", "observed, resampled or shuffled"),
    "draw": Column("", "number of the resample or shuffle, from 0"),
    "right": Column("count", "signs that are right, ties left out"),
    "n": Column("count", "signs that the data decide: all but ties"),
    "positive": Column("count", "patients of label 1"),
    "negative": Column("count", "patients of label 0"),
    "difference": Column("ternary units", "mean value of patients of label 1 less that of patients of label 0"),
    "p_value": Column("0 to 1", "two-sided, of delta, by shuffled labels"),
    "runs": Column("count", "runs of the consensus"),
    "variant": Column("", "lit_prob where signs are chosen by it, as a half in `stratum` or a bin in `level`"),
    "level": Column("0 to 1", "lower edge of the bin"),
}
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
    tables={
        **described(OWN, **COLUMNS),
        "answers": columns(
            COLUMNS["answers"],
            lit_prob=Column("0 to 1", "probability that the answer gives its direction"),
            same=Column("count", "other runs that name the gene with this direction"),
        ),
        "draws": columns(
            COLUMNS["draws"], **{**OWN, "entity": Column("", "entity that is counted by itself; empty for all")}
        ),
        "wordings": columns(
            COLUMNS["wordings"],
            same=Column("count", "shared ones with one direction or sign"),
            shared=Column("count", "genes or pairs in the answers to both wordings"),
            union=Column("count", "genes in either answer; of pairs as `shared`"),
        ),
    },
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
    """The tables of `afa.stages.elicitation_health.elicitation_health`.

    study : a folder with study.yaml; without it only signs are compared. record : a folder of answers, the study's by
    default. unary, pairwise : what `afa elicit` wrote; of the record only the answers that these count.
    """
    answers = None
    if study is not None:
        asked = [folder for folder in (unary, pairwise) if folder is not None]
        counting = {digest for folder in asked for digest in read_stage(folder, "asked")["asked"]["answer"]}
        answers = read_answers(load_study(study), record or study / RECORD_FOLDER, counting)
    return elicitation_health(bundle, cohort, answers, draws=bootstrap.resamples)


def elicitation_health(
    bundle: Bundle, cohort: Cohort, answers: Answers | None, *, draws: int
) -> dict[str, pd.DataFrame]:
    """The tables of the stage; those of a record have no rows where there is none.

    answers : of the record that the bundle was built from. draws : resamples of patients or entities, and as many
    shuffles.

    `genes` and `pairs` are those of `gene_signs` and `pair_signs`; with a record also `lit_prob`, the mean over answers
    with that sign, and of genes `named_by` runs and for how many `phenotypes` the record names the gene, else missing.

    `entities`: potentials of each entity, and its patients by label.

    `draws`: how many signs were right of those that the data decide, as observed, resampled and shuffled.

    Raises
    ------
    ElicitationError : the bundle has a unary sign that no answer of the record gives.

    """
    genes = _with_answers_of_genes(gene_signs(bundle, cohort, draws=draws), answers)
    pairs = _with_answers_of_pairs(pair_signs(bundle, cohort), answers)
    tables: dict[str, pd.DataFrame] = {}
    if answers is not None:
        check_of_record(bundle, answers)
        tables = record_agreement(answers)
    everything = np.ones(len(genes), dtype=bool)
    strata = {Cases(): everything, Cases("clear"): genes["p_value"].to_numpy(np.float64) <= CLEAR}
    by_frequency = _halves(genes["phenotypes"], Cases("often_named"), Cases("seldom_named"))
    drawn = [
        unary_draws(bundle, pairs, draws=draws),
        label_draws(bundle, cohort, genes, {**strata, **by_frequency, **_by_lit_prob(genes)}, draws=draws),
        correlation_draws(bundle, cohort, pairs, _by_lit_prob(pairs), draws=draws),
    ]
    tables |= {"genes": genes, "pairs": pairs, "entities": _entities(bundle, cohort)}
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


def _with_answers_of_genes(genes: pd.DataFrame, answers: Answers | None) -> pd.DataFrame:
    if answers is None:
        return genes.assign(lit_prob=np.nan, named_by=np.nan, phenotypes=np.nan)
    named = answers.named
    own = named.groupby(["entity", "feature", "sign"], as_index=False).agg(
        lit_prob=("lit_prob", "mean"), named_by=("run", "nunique")
    )
    named_for = named.groupby("feature")["entity"].nunique()
    joined = genes.merge(own, on=["entity", "feature", "sign"], how="left", validate="one_to_one")
    return joined.assign(phenotypes=joined["feature"].map(named_for))


def _with_answers_of_pairs(pairs: pd.DataFrame, answers: Answers | None) -> pd.DataFrame:
    if answers is None:
        return pairs.assign(lit_prob=np.nan)
    keys = ["entity", "feature_a", "feature_b"]
    judged = answers.judged.groupby([*keys, "sign"], as_index=False).agg(lit_prob=("lit_prob", "mean"))
    swapped = pairs["feature_a"] > pairs["feature_b"]
    ordered = pairs[["entity", "sign"]].assign(
        feature_a=pairs["feature_a"].where(~swapped, pairs["feature_b"]),
        feature_b=pairs["feature_b"].where(~swapped, pairs["feature_a"]),
    )
    found = ordered.merge(judged, on=[*keys, "sign"], how="left", validate="one_to_one")
    return pairs.assign(lit_prob=found["lit_prob"].to_numpy(np.float64))


def _entities(bundle: Bundle, cohort: Cohort) -> pd.DataFrame:
    known = labels_of(bundle, cohort)
    return pd.DataFrame(
        {
            "entity": bundle.entities,
            "unaries": (bundle.unary != 0).sum(axis=1),
            "couplings": np.diff(bundle.packed.pointer),
            "positive": (known == 1).sum(axis=0),
            "negative": (known == 0).sum(axis=0),
        }
    )
