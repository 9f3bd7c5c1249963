"""Small cohorts from arrays."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np
import pandas as pd

from afa.cohort.cohort import Cohort
from afa.model.bundle import Bundle


def cohort_of(bundle: Bundle, values: np.ndarray, labels: Mapping[str, Sequence[int | None]] | None = None) -> Cohort:
    """Return a cohort of patients p0, p1, ... with these values, (n_patients, n_features), and labels by entity."""
    names = [f"p{i}" for i in range(len(values))]
    table = pd.DataFrame(labels or {}, index=names, dtype="Int8")
    return Cohort("made", bundle.features, tuple(names), np.asarray(values, dtype=np.int8), table)
