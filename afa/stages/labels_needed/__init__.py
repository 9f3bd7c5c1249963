"""What labels would buy: classifiers trained on n labelled patients, beside the zero-shot scores, on the others."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import pandas as pd
from pydantic import Field

from afa.bundle import Bundle
from afa.cohort.cohort import Cohort, with_code
from afa.stages.base import Column, Section, Stage
from afa.stages.columns import columns
from afa.stages.inputs import note
from afa.stages.labels_needed.numbers import summarise_labels_needed
from afa.stages.labels_needed.tables import encoded_cohorts, needed_tables

if TYPE_CHECKING:
    from afa.stages.settings import Bootstrap


class Settings(Section):
    """Classifiers trained on some labelled patients, held against the zero-shot scores of `labels` on the others."""

    sizes: tuple[Annotated[int, Field(ge=2)], ...] = Field(
        (10, 20, 50, 100), min_length=1, description="numbers of labelled patients"
    )
    repeats: int = Field(4, ge=1, description="draws of the labelled patients")
    permuted: int = Field(2, ge=0, description="of these, with shuffled labels as well: chance")
    labels: int = Field(6, ge=1, description="labels used, chosen by hashes of their names")
    tested: int = Field(20, ge=2, description="patients that have to be left to be told, or the size is left out")
    of_each_class: int = Field(3, ge=1, description="the same, of each class")


OWN = {
    "size": Column("count", "labelled patients that it was trained on"),
    "reference": Column("", "what values were encoded against: controls, ranges or cohort"),
    "method": Column("", "classifier: logistic, boosting or naive_bayes"),
    "permuted": Column("", "whether it was trained on shuffled labels"),
    "repeat": Column("", "number of the draw of the labelled patients, from 0"),
    "t": Column("per cent", "of the features of the entity's support that have been observed"),
    "log_odds": Column("nats", "log-odds of class 1, both classes weighing the same in the training"),
    "seed": Column("", "seed of the random order; missing where the order is not drawn"),
    "labelled": Column("count", "patients whose label the classifier was told"),
    "labelled_positive": Column("count", "those of them who have it"),
    "tested": Column("count", "all other patients, whom it is asked about"),
    "tested_positive": Column("count", "those of them who have the label"),
    "coupling": Column("", "couplings of the zero-shot score"),
    "calibrated": Column("nats", "zero-shot log-odds of class 1, less their value at no observation"),
    "label": Column("", "label of the patient: 0 or 1"),
}
STAGE = Stage(
    inputs=("bundle", "cohort", "by_cohort", "labels"),
    settings=("labels_needed",),
    section=Settings,
    labels=True,
    tables={
        "left_out": columns("entity size reason cohort bundle", **OWN),
        "predictions": columns(
            "reference method permuted entity size repeat allocation t patient log_odds cohort bundle", **OWN
        ),
        "splits": columns(
            "entity size repeat seed labelled labelled_positive tested tested_positive cohort bundle", **OWN
        ),
        "zero_shot": columns(
            "reference coupling entity allocation seed patient t calibrated label cohort bundle", **OWN
        ),
    },
    space_mb=6.5,
)


def run(
    bundle: Bundle,
    cohort: Cohort,
    by_cohort: Path,
    labels: Mapping[str, pd.DataFrame],
    *,
    labels_needed: Settings,
) -> dict[str, pd.DataFrame]:
    """The tables of `needed_tables`; by_cohort and labels : what that stage read, and its tables."""
    thresholds = encoded_cohorts(labels["tasks"])
    cohorts = {
        reference: cohort if threshold is None else with_code(cohort, by_cohort, threshold)
        for reference, threshold in thresholds.items()
    }
    settings = labels_needed.model_dump(exclude={"labels"})
    tables = needed_tables(
        bundle, cohorts, labels["scores"], name=cohort.name, most_labels=labels_needed.labels, **settings
    )
    for row in tables["left_out"].fillna({"size": 0}).itertuples():
        labelled = f" with {int(str(row.size))} labelled patients" if row.size else ""
        note(f"label {row.entity} is left out{labelled}: {row.reason}")
    return tables


def summarise(tables: Mapping[str, pd.DataFrame], *, bootstrap: Bootstrap) -> pd.DataFrame:
    """The rows of `summarise_labels_needed`."""
    return summarise_labels_needed(tables, **dict(bootstrap))
