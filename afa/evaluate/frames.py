"""Check user-defined tables of patients: codes, labels, impossible values, and the encoding of a cohort."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pandas as pd

from afa.cohort.cells import cells_of_frame, check_alike, numbers_of
from afa.cohort.cohort import PATIENT, Cohort
from afa.errors import CohortError, Fault
from afa.io.csvfile import first_names
from afa.model.arrays import Codes
from afa.model.bundle import Bundle


def codes_of_frame(X: pd.DataFrame, bundle: Bundle) -> pd.DataFrame:
    """Return the codes -1, 0 and +1 of a table, (P, K) float64, with NaN where a feature was not measured.

    The K columns are the features of the bundle that the table contains.

    Raises
    ------
    CohortError : `X` is no DataFrame, has no feature of the bundle, names a patient twice, or has values other than -1,
        0, +1 and missing. The message names the invalid cells.

    """
    step = "encode what was measured: afa.encode(X, features)"
    return _numbers_of_frame(X, "table X", bundle, bundle.features, (-1.0, 0.0, 1.0), step)


def labels_of_frame(y: pd.DataFrame, bundle: Bundle) -> pd.DataFrame:
    """Return the labels of a table: 0, 1, or NaN if unknown, (P, K) float64.

    The K columns are the entities of the bundle that the table contains.

    Raises
    ------
    CohortError : `y` is no DataFrame, has no entity of the bundle, names a patient twice, or has values other than 0, 1
        and missing. The message names the invalid cells.

    """
    step = "code the labels as 0 and 1, a column for each entity"
    return _numbers_of_frame(y, "table y", bundle, bundle.entities, (0.0, 1.0), step)


def _numbers_of_frame(
    frame: pd.DataFrame, where: str, bundle: Bundle, names: Sequence[str], only: Sequence[float], step: str
) -> pd.DataFrame:
    if not isinstance(frame, pd.DataFrame):
        form = "give pandas.DataFrame(values, index=patients, columns=names)"
        raise CohortError(Fault(where, type(frame).__name__, "a DataFrame", form))
    check_alike(frame.columns, names, bundle, where)
    columns = frame.columns.map(str)
    there = [name for name in names if name in columns]
    if not there:
        found = f"none of {first_names(list(names))} among the columns {first_names(list(columns))}"
        raise CohortError(Fault(where, found, "at least one", "name the columns as `afa bundle show` does"))
    cells = cells_of_frame(frame.loc[:, columns.isin(there)], where, rows=[f"patient {name}" for name in frame.index])
    values = numbers_of(cells, there, f"{', '.join(f'{x:g}' for x in only)} or nothing", only=only, step=step)
    CohortError.raise_for(cells.table.faults.listed())
    return pd.DataFrame(values, index=pd.Index(cells.names, name=PATIENT), columns=there)


def check_encoding(bundle: Bundle, cohort: Cohort) -> None:
    """Raise a `CohortError` if the bundle's probabilities do not fit the cohort's encoding (decisions.md F10a)."""
    asked = None if bundle.rates is None else bundle.rates.encoding
    is_of = (cohort.provenance.get("encoding") or {}).get("reference")
    if asked is not None and is_of is not None and asked != is_of:
        found, expected = f"values encoded by {is_of}", f"by {asked}: the bundle's probabilities are of such values"
        raise CohortError(Fault(f"cohort {cohort.name}", found, expected, "encode it so, or take another coupling"))


def check_possible(bundle: Bundle, patients: Sequence[str], values: Codes, where: str) -> None:
    """Raise a `CohortError` if a measured value is impossible for its feature (docs/decisions.md, F1).

    The error message names the first impossible value.

    Parameters
    ----------
    patients : P names
    values : (P, M) int8
        -1, 0 or +1. Any other number means that the feature was not measured.
    where : the table, for the message

    """
    wrong = np.any([(values == x) & ~bundle.possible[:, x + 1] for x in (-1, 0, 1)], axis=0)
    if wrong.any():
        row, column = np.argwhere(wrong)[0]
        can_be = ", ".join(str(x - 1) for x in np.flatnonzero(bundle.possible[column]))
        at = f"{where}, patient {patients[row]}, feature {bundle.features[column]}"
        step = "encode it by features.csv of the bundle"
        raise CohortError(Fault(at, str(values[row, column]), f"{can_be} ({wrong.sum()} such cells)", step))
