"""The health of an elicitation: do its answers agree with each other, with themselves, and with a cohort's data?"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING

import pandas as pd

from afa.bundle import Bundle
from afa.cohort.cohort import Cohort
from afa.elicit.study import RECORD_FOLDER, load_study
from afa.elicit.tables import read_stage
from afa.stages.base import Column, Stage
from afa.stages.columns import columns
from afa.stages.elicitation_health import tables as made
from afa.stages.elicitation_health.answers import read_answers
from afa.stages.elicitation_health.numbers import summarise_elicitation_health

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
STAGE = Stage(
    settings=("bootstrap.resamples",),
    optional=("study", "record", "unary", "pairwise"),
    tables={
        "answers": columns(
            "wording run entity feature sign lit_prob named_by same phenotypes cohort bundle",
            lit_prob=Column("0 to 1", "probability that the answer gives its direction"),
            same=Column("count", "other runs that name the gene with this direction"),
        ),
        "asked": columns("prompt wording entity asked answered cohort bundle"),
        "baseline": columns("wording entity shared union same cohort bundle"),
        "draws": columns(
            "target kind stratum variant level entity draw right n cohort bundle",
            **{**OWN, "entity": Column("", "entity that is counted by itself; empty for all")},
        ),
        "entities": columns("entity unaries couplings positive negative cohort bundle", **OWN),
        "genes": columns(
            "entity feature sign positive negative difference delta p_value lit_prob named_by phenotypes cohort bundle",
            **OWN,
        ),
        "kept": columns("wording entity runs min_agree orders kept cohort bundle", **OWN),
        "overlap": columns("wording entity run_a run_b shared union same cohort bundle"),
        "pairs": columns("entity feature_a feature_b sign unary_product correlation lit_prob cohort bundle"),
        "stability": columns(
            "wording entity runs min_agree other_runs shared_runs orders shared union cohort bundle", **OWN
        ),
        "wordings": columns(
            "prompt wording_a wording_b entity shared union same expected_same cohort bundle",
            same=Column("count", "shared ones with one direction or sign"),
            shared=Column("count", "genes or pairs in the answers to both wordings"),
            union=Column("count", "genes in either answer; of pairs as `shared`"),
        ),
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
    """The tables of `afa.stages.elicitation_health.tables.elicitation_health`.

    study : a folder with study.yaml; without it only signs are compared. record : a folder of answers, the study's by
    default. unary, pairwise : what `afa elicit` wrote; of the record only the answers that these count.
    """
    answers = None
    if study is not None:
        asked = [folder for folder in (unary, pairwise) if folder is not None]
        counting = {digest for folder in asked for digest in read_stage(folder, "asked")["asked"]["answer"]}
        answers = read_answers(load_study(study), record or study / RECORD_FOLDER, counting)
    return made.elicitation_health(bundle, cohort, answers, draws=bootstrap.resamples)


def summarise(tables: Mapping[str, pd.DataFrame], *, bootstrap: Bootstrap) -> pd.DataFrame:
    """The rows of `summarise_elicitation_health`."""
    return summarise_elicitation_health(tables, **dict(bootstrap))
