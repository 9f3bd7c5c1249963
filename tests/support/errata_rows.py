"""Rows of the errata by name, the paper's printed tables, and a cohort of made values."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pandas as pd
from numpy.typing import ArrayLike

from afa.bundle import Bundle
from afa.checks.errata import Row
from afa.cohort.cohort import Cohort

ROOT = Path(__file__).parents[2]
PAPER = {path.stem: pd.read_csv(path) for path in sorted((ROOT / "resources" / "paper").glob("*.csv"))}


def by_name(rows: list[Row]) -> dict[str, Row]:
    return {row.name: row for row in rows}


def cohort_of(bundle: Bundle, values: ArrayLike) -> Cohort:
    table = np.array(values, dtype=np.int8)
    names = tuple(f"p{i}" for i in range(len(table)))
    return Cohort("made", bundle.features, names, table, pd.DataFrame(index=list(names)))
