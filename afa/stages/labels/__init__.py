"""Scores against the labels that patients really have, by reference of the encoding and by closure."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import pandas as pd
from pydantic import Field

from afa.bundle import Bundle
from afa.cohort.cohort import Cohort, with_code
from afa.inference.meanfield import Solver
from afa.stages.base import Column, Section, Seeds, Stage
from afa.stages.columns import columns
from afa.stages.inputs import note
from afa.stages.labels.numbers import summarise_labels
from afa.stages.labels.tables import label_tables

if TYPE_CHECKING:
    from afa.stages.settings import Bootstrap, Inference


class Settings(Section):
    """Scores against the cohort's labels by reference and coupling, beside chance; nothing here is chosen by labels."""

    seeds: Seeds = Field((0, 1, 2), description="one random order per patient and seed")
    percents: tuple[Annotated[int, Field(gt=0, lt=100)], ...] = Field(
        (5, 10, 25, 50), min_length=1, description="shares of an entity's support at which it is read, beside 0 and 100"
    )
    thresholds: tuple[Annotated[float, Field(ge=0)], ...] = Field(
        (0.5, 0.25, 1.0), min_length=1, description="of the reference cohort; the first is the headline"
    )
    strengths: tuple[Annotated[float, Field(gt=0, lt=1)], ...] = Field(
        (0.9, 0.5), min_length=1, description="of shared couplings; the first is the headline"
    )
    permutations: int = Field(20, ge=1, description="bundles with shuffled genes, followed as the real one")
    whole_permutations: int = Field(1000, ge=1, description="the same at full observation, which costs little")


OWN = {
    "label": Column("", "label of the patient: 0 or 1"),
    "reference": Column("", "what values were encoded against: controls, ranges or cohort"),
    "t": Column("per cent", "of the features of the entity's support that have been observed"),
    "control": Column("", "sample of the controls, encoded without itself"),
    "permutation": Column("", "number of the shuffling of genes, from 0"),
    "auroc": Column("0 to 1", "area under the ROC curve of the shuffled bundle"),
    "balanced_accuracy": Column("0 to 1", "of the sign of its raw score"),
    "balanced_accuracy_calibrated": Column("0 to 1", "of the sign of its score less that at no observation"),
    "variant": Column("", "what differs from the settings fixed beforehand; empty for these"),
    "observed": Column("observations", "features of the entity's support observed so far"),
    "raw": Column("nats", "log-odds of class 1, F_1 - F_0"),
    "threshold": Column("robust SD", "distance from the cohort's median beyond which a value is -1 or 1"),
    "strength": Column("", "beta L^2 that shared couplings are scaled down to"),
    "contraction": Column("", "beta L^2 of the elicited couplings"),
    "factor": Column("", "what shared couplings are multiplied by"),
    "positive": Column("count", "patients who have the label"),
    "negative": Column("count", "patients who do not"),
    "score": Column("nats", "S at full observation"),
}
STAGE = Stage(
    inputs=("bundle", "cohort", "by_cohort"),
    settings=("labels", "inference"),
    section=Settings,
    labels=True,
    tables={
        "labels": columns("patient entity label cohort bundle", **OWN),
        "left_out": columns("entity cohort bundle"),
        "controls": columns(
            "reference coupling entity allocation seed control t observed raw calibrated cohort bundle", **OWN
        ),
        "null": columns(
            "reference coupling entity allocation t permutation auroc balanced_accuracy"
            " balanced_accuracy_calibrated cohort bundle",
            **OWN,
        ),
        "scores": columns(
            "reference coupling variant entity allocation seed patient t observed raw calibrated label cohort bundle",
            **OWN,
        ),
        "tasks": columns(
            "reference coupling variant entity threshold strength support contraction factor positive negative"
            " shift cohort bundle",
            **OWN,
        ),
        "whole": columns("reference coupling patient entity score cohort bundle", **OWN),
    },
    space_mb=8.3,
)


def run(
    bundle: Bundle,
    cohort: Cohort,
    by_cohort: Path,
    *,
    labels: Settings,
    inference: Inference,
    threads: int | None = None,
) -> dict[str, pd.DataFrame]:
    """The tables of `label_tables`; by_cohort : a file of `afa cohort by-cohort`."""
    tables = label_tables(
        bundle,
        cohort,
        {threshold: with_code(cohort, by_cohort, threshold) for threshold in labels.thresholds},
        **labels.model_dump(exclude={"thresholds"}),
        solver=Solver(**dict(inference)),
        threads=threads,
    )
    if not len(cohort.controls):
        note("no controls are held against the scores: none is encoded in this cohort")
    for entity in tables["left_out"]["entity"]:
        note(f"label {entity} is left out: all patients have the same")
    return tables


def summarise(tables: Mapping[str, pd.DataFrame], *, bootstrap: Bootstrap) -> pd.DataFrame:
    """The rows of `summarise_labels`."""
    return summarise_labels(tables, **dict(bootstrap))
