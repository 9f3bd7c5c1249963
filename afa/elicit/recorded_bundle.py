"""The bundle of a recorded elicitation that lies in files, by the same stages as any other."""

from __future__ import annotations

from pathlib import Path

import pandas as pd

from afa.bundle import Bundle
from afa.elicit.imported import imported
from afa.elicit.source import Record
from afa.elicit.stages import all_stages, bundle_stage
from afa.elicit.study import load_study


def build_recorded_bundle(
    folder: str | Path, destination: str | Path, *, min_agree: int, name: str | None = None, version: str = "1"
) -> tuple[Bundle, pd.DataFrame]:
    """Write the bundle that a consensus of `min_agree` runs makes of a record; the same record gives the same bytes.

    folder : with `study.yaml`, `phenotypes.csv` and `raw/`. The bundle's name is `recorded-2of3` or the like unless
    given. Returns the bundle and the table of dropped genes (phenotype, gene, reason). An `ElicitationError` lists what
    is wrong with the files, or counts the pairs of survivors that the record does not hold.
    """
    study = load_study(folder)
    stages = all_stages(study, Record(imported(folder), place=str(folder)), None, min_agree=min_agree)
    return bundle_stage(study, stages, destination, min_agree=min_agree, name=name, version=version)
