"""The health of an elicitation: do its answers agree with each other, with themselves, and with a cohort's data?

Of a record: agreement over runs, number of runs, wordings (`afa.stages.elicitation_health.record`). Of any bundle: its
signs against each other and against the data (`afa.stages.elicitation_health.signs`). With both: does `lit_prob`, the
model's stated confidence, or how often a gene is named at all, tell which signs the data bear out? That is as far as a
record can be probed for memorisation; what needs a live model is said in docs/summary.md.
"""

from __future__ import annotations

import numpy as np
import pandas as pd

from afa.bundle import Bundle
from afa.cohort.cohort import Cohort
from afa.stages.elicitation_health.answers import ASKED, Answers, check_of_record
from afa.stages.elicitation_health.record import ANSWERS, BASELINE, KEPT, OVERLAP, STABILITY, WORDINGS, record_agreement
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

TABLES = (
    "asked",
    "answers",
    "overlap",
    "baseline",
    "kept",
    "stability",
    "wordings",
    "genes",
    "pairs",
    "entities",
    "draws",
)
OF_RECORD = {
    "asked": ASKED,
    "answers": ANSWERS,
    "overlap": OVERLAP,
    "baseline": BASELINE,
    "kept": KEPT,
    "stability": STABILITY,
    "wordings": WORDINGS,
}
STEPS = 10
"""Bins of lit_prob from 0 to 1."""


def elicitation_health(
    bundle: Bundle, cohort: Cohort, answers: Answers | None, *, draws: int
) -> dict[str, pd.DataFrame]:
    """The tables `TABLES`; those of a record have no rows where there is none.

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
    if answers is None:
        tables = {name: pd.DataFrame(columns=columns) for name, columns in OF_RECORD.items()}
    else:
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
    return {name: tables[name].assign(cohort=cohort.name, bundle=bundle.name) for name in TABLES}


def lit_prob_bin(lit_prob: pd.Series) -> pd.Series:
    """The lower edge of each value's bin: 0.4 for 0.4 to below 0.5, 0.9 also for 1; missing where the value is.

    Values are rounded to 1e-9 first, so that 0.3 counts as 0.3 however it was added up.
    """
    place = np.minimum(np.floor((lit_prob.to_numpy(np.float64) * STEPS).round(8)), STEPS - 1)
    return pd.Series(place / STEPS, index=lit_prob.index)


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
    known = cohort.labels.reindex(columns=list(bundle.entities))
    return pd.DataFrame(
        {
            "entity": bundle.entities,
            "unaries": (bundle.unary != 0).sum(axis=1),
            "couplings": np.diff(bundle.packed.pointer),
            "positive": [int(known[entity].eq(1).sum()) for entity in bundle.entities],
            "negative": [int(known[entity].eq(0).sum()) for entity in bundle.entities],
        }
    )
