"""The stages `labels` and `labels_needed` on cohorts that are there in several codes."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import pandas as pd

from afa.cohort.cohort import Cohort, write_codes
from afa.model.bundle import Bundle
from afa.paper.experiments import labels, labels_needed
from afa.paper.experiments.base import columns_of, with_declared_columns
from afa.paper.experiments.declared import STAGES
from afa.paper.experiments.settings import Inference, Labels, LabelsNeeded


@contextmanager
def codes_of(cohorts: Mapping[float, Cohort]) -> Iterator[Path]:
    """The file of `afa cohort by-cohort`, of cohorts by threshold."""
    with TemporaryDirectory() as folder:
        path = Path(folder) / "codes.parquet"
        codes = {at: pd.DataFrame(one.values, list(one.patients), list(one.features)) for at, one in cohorts.items()}
        write_codes(codes, path)
        yield path


def label_tables(
    bundle: Bundle, cohort: Cohort, by_cohort: Mapping[float, Cohort], settings: Labels, **options: Any
) -> dict[str, pd.DataFrame]:
    """The tables of the stage `labels` as a job names their columns; the thresholds are those of the cohorts."""
    settings = settings.model_copy(update={"thresholds": tuple(by_cohort)})
    with codes_of(by_cohort) as path:
        tables = labels.run(bundle, cohort, path, labels=settings, inference=Inference(), **options)
    return with_declared_columns(tables, columns_of("labels", STAGES["labels"].tables))


def needed_tables(
    bundle: Bundle, cohorts: Mapping[str, Cohort], scores: pd.DataFrame, settings: LabelsNeeded
) -> dict[str, pd.DataFrame]:
    """The tables of the stage `labels_needed`, of cohorts by reference and the scores of the stage `labels`."""
    tasks = pd.DataFrame({"reference": list(cohorts), "variant": "", "threshold": 0.5})
    given = {"tasks": tasks, "scores": scores}
    own = next((one for reference, one in cohorts.items() if reference != "cohort"), cohorts.get("cohort"))
    other = cohorts.get("cohort", own)
    if own is None or other is None:
        nobody = Cohort(
            "nobody", bundle.features, (), pd.DataFrame(columns=list(bundle.features)).to_numpy("int8"), tasks
        )
        return labels_needed.run(bundle, nobody, Path("none"), given, labels_needed=settings)
    with codes_of({0.5: other}) as path:
        return labels_needed.run(bundle, own, path, given, labels_needed=settings)
