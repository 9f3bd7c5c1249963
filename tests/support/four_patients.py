"""Four complete patients of `bundle_tiny`, as a table and as a cohort."""

import numpy as np
import pandas as pd

from afa.cohort.cohort import Cohort

FEATURES = ("AQP8", "CXCL8", "MMP9", "MUC2", "TFF3")
PATIENTS = {"p1": (-1, 1, 1, -1, 0), "p2": (0, 1, 0, -1, 1), "p3": (1, -1, 1, 1, 1), "p4": (-1, 0, 1, 1, -1)}
"""No two entities of `bundle_tiny` tie at full observation."""


def frame(**changes):
    rows = [[name, *values] for name, values in (PATIENTS | changes).items()]
    return pd.DataFrame(rows, columns=["patient", *FEATURES])


def cohort(bundle, labels=None, **patients):
    given = patients or PATIENTS
    values = np.array(list(given.values()), dtype=np.int8)
    index = pd.Index(list(given), name="patient", dtype="str")
    return Cohort("mine", bundle.features, tuple(given), values, pd.DataFrame(labels or {}, index=index, dtype="Int8"))


def as_csv(folder):
    path = folder / "mine.csv"
    frame().to_csv(path, index=False)
    return path
