"""Expression values on the scale that is tested: log2, one row per gene."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Literal

import numpy as np
import pandas as pd

from afa.errors import CohortError, Fault


def log_values(
    values: pd.DataFrame, unit: Literal["tpm", "counts", "log2"], library_size: pd.Series[float]
) -> pd.DataFrame:
    """Values `(n_rows, n_samples)` in log2 units: `log2(TPM + 1)`, `log2(CPM + 1)`, or as they are.

    `library_size` is the sum of all counts of each sample (by sample name) and is used for counts only. The floor
    of a TPM file is kept as it is. A value that is not finite, or below zero where it cannot be, and an
    empty library are `CohortError`s.
    """
    known = values.to_numpy(dtype=np.float64)
    _refuse_cells(values, ~np.isfinite(known), "a finite number")
    if unit == "log2":
        return values.astype(np.float64)
    _refuse_cells(values, known < 0, f"zero or more, the unit being {unit}")
    if unit == "counts":
        library = library_size.reindex(values.columns).to_numpy(dtype=np.float64)
        empty = ~(np.isfinite(library) & (library > 0))
        if empty.any():
            raise CohortError(
                Fault(
                    f"sample {values.columns[int(empty.argmax())]}",
                    f"a library of {library[int(empty.argmax())]:g} counts ({empty.sum()} samples have none)",
                    "a positive library size",
                    "drop the sample in the cohort file, or correct the count matrix",
                )
            )
        known = known / library * 1e6
    return pd.DataFrame(np.log2(known + 1.0), index=values.index, columns=values.columns)


def choose_rows(
    values: pd.DataFrame, candidates: Mapping[str, Sequence[str]], controls: Sequence[str]
) -> tuple[pd.DataFrame, dict[str, str]]:
    """One row per feature, `(n_features, n_samples)`, and the row id that each was read from.

    `candidates` gives each feature's row ids; among the rows that carry one of them the one of highest mean over
    `controls` is taken, the first of the file where means are equal. A feature without a row is left out.
    """
    mean = values[list(controls)].mean(axis=1).to_numpy()
    places = pd.Series(np.arange(len(values))).groupby(values.index.to_numpy(), sort=False).apply(list).to_dict()
    chosen: dict[str, int] = {}
    for feature, row_ids in candidates.items():
        rows = sorted(row for row_id in row_ids for row in places.get(row_id, ()))
        if rows:
            chosen[feature] = max(rows, key=lambda row: mean[row])
    picked = values.iloc[list(chosen.values())]
    read_from = dict(zip(chosen, picked.index.astype(str), strict=True))
    return picked.set_axis(list(chosen), axis=0), read_from


def _refuse_cells(values: pd.DataFrame, wrong: np.ndarray, expected: str) -> None:
    """Raise a `CohortError` that names gene and sample of the first cell where `wrong` holds."""
    if wrong.any():
        row, place = divmod(int(wrong.argmax()), wrong.shape[1])
        raise CohortError(
            Fault(
                f"gene {values.index[row]}, sample {values.columns[place]}",
                f"{float(values.to_numpy()[row, place]):g} ({wrong.sum()} such cells)",
                expected,
                "correct the expression file, or `unit` in the cohort file",
            )
        )
