"""What a table measures: `features.csv`, with the kind of each feature, where its range ends, and what it can be."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

import numpy as np
import numpy.typing as npt

from afa.csvfile import CsvTable, RowFaults, earlier_row, name_column, number_column, quoted, read_table
from afa.errors import CohortError
from afa.files import write_csv

if TYPE_CHECKING:
    import pandas as pd

Kind = Literal["continuous", "ordinal", "binary"]
KINDS: tuple[Kind, ...] = ("continuous", "ordinal", "binary")
FEATURE_COLUMNS = ("feature", "kind", "unit", "low", "high", "values", "p_low", "p_high", "definition")
VALUES = (-1, 0, 1)
"""What a feature can be at most, in the order of the columns of `Features.possible`."""


@dataclass(frozen=True, eq=False)
class Features:
    """The features of a table, checked when read; arrays are read-only and as long as `names`.

    Parameters
    ----------
    names : what the columns of a table are called
    kinds : `continuous`, `ordinal` or `binary`
    units, codings, definitions : in words; a coding says what the numbers of an ordinal or binary feature mean
    low, high : cut points in the feature's unit, NaN where there is none: `x < low` is -1, `x > high` is +1
    p_low, p_high : the background, the share of all people below and above; NaN where it is not stated

    """

    names: tuple[str, ...]
    kinds: tuple[Kind, ...]
    units: tuple[str, ...]
    low: npt.NDArray[np.float64]
    high: npt.NDArray[np.float64]
    codings: tuple[str, ...]
    p_low: npt.NDArray[np.float64]
    p_high: npt.NDArray[np.float64]
    definitions: tuple[str, ...]

    def __post_init__(self) -> None:
        for array in (self.low, self.high, self.p_low, self.p_high):
            array.flags.writeable = False

    def __len__(self) -> int:
        return len(self.names)

    def __repr__(self) -> str:
        return f"<Features: {len(self)}, {int(self.has_range.sum())} with cut points>"

    @property
    def is_binary(self) -> npt.NDArray[np.bool_]:
        """(n_features,) Which are 0 or +1 as they stand in the table."""
        return np.array([kind == "binary" for kind in self.kinds], dtype=np.bool_)

    @property
    def has_range(self) -> npt.NDArray[np.bool_]:
        """(n_features,) Which are encoded by `features.csv` alone: the binary ones, and those with a cut point."""
        return np.asarray(self.is_binary | np.isfinite(self.low) | np.isfinite(self.high))

    @property
    def possible(self) -> npt.NDArray[np.bool_]:
        """(n_features, 3) Which of -1, 0, +1 each feature can be: a side whose cut alone is empty cannot occur (F1)."""
        neither = np.isnan(self.low) & np.isnan(self.high) & ~self.is_binary
        below = np.isfinite(self.low) | neither
        above = np.isfinite(self.high) | neither | self.is_binary
        return np.column_stack([below, np.ones(len(self), dtype=np.bool_), above])

    @property
    def background(self) -> npt.NDArray[np.float64]:
        """(n_features, 3) Probabilities of -1, 0, +1 in everybody; a row of NaN where they are not stated."""
        return np.column_stack([self.p_low, 1.0 - self.p_low - self.p_high, self.p_high])

    def chosen(self, names: Sequence[str]) -> Features:
        """These features alone, in this order; each must be there."""
        place = {name: i for i, name in enumerate(self.names)}
        rows = [place[name] for name in names]
        columns: dict[str, Any] = {
            name: values[rows] if isinstance(values, np.ndarray) else tuple(values[i] for i in rows)
            for name, values in vars(self).items()
        }
        return Features(**columns)

    def to_frame(self) -> pd.DataFrame:
        """The rows of `features.csv`."""
        import pandas as pd  # noqa: PLC0415 (slow to load, and planning does without)

        columns = (self.names, self.kinds, self.units, self.low, self.high, self.codings, self.p_low, self.p_high)
        return pd.DataFrame(dict(zip(FEATURE_COLUMNS, (*columns, self.definitions), strict=True)))


def read_features(path: str | Path, other_kinds: Mapping[str, Kind] | None = None) -> Features:
    """Read `features.csv`.

    Parameters
    ----------
    path
        A CSV file with the columns `feature` and `kind`, and any of `unit`, `low`, `high`, `values` (the coding in
        words), `p_low`, `p_high` and `definition`.
    other_kinds
        Words that stand for a kind in this file.

    Raises
    ------
    CohortError : every fault of the file by line and column.

    """
    table = read_table(path, required=FEATURE_COLUMNS[:2], optional=FEATURE_COLUMNS[2:], whole_rows=True)
    kinds = [(other_kinds or {}).get(kind, kind) for kind in table.columns["kind"]]
    return _checked(replace(table, columns={**table.columns, "kind": kinds}))


def features_of(features: str | Path | pd.DataFrame | Features) -> Features:
    """The features that a path, a table with the columns of `features.csv`, or `Features` stand for."""
    if isinstance(features, Features):
        return features
    if isinstance(features, str | Path):
        return read_features(features)
    faults = RowFaults("features")
    for name in features.columns:
        if name not in FEATURE_COLUMNS:
            faults.add(0, str(name), "an unknown column", "only known columns", f"known: {', '.join(FEATURE_COLUMNS)}")
    for name in FEATURE_COLUMNS[:2]:
        if name not in features:
            faults.add(0, name, "no such column", "the column", "add it")
    if listed := faults.listed():
        raise CohortError(listed)
    lines = np.arange(1, len(features) + 1, dtype=np.int64)
    texts = dict.fromkeys(FEATURE_COLUMNS, [""] * len(lines))
    for name in features.columns:
        texts[name] = [
            "" if gap else str(cell) for cell, gap in zip(features[name], features[name].isna(), strict=True)
        ]
    return _checked(CsvTable(lines, texts, faults))


def write_features(features: Features, path: str | Path) -> None:
    """Write `features.csv`, whole or not at all."""
    write_csv(features.to_frame(), path, float_format="%.12g")


def _checked(table: CsvTable) -> Features:
    """The features of a table of texts; a `CohortError` with what else was noted in its faults."""
    faults = table.faults
    readable = not faults.listed()
    name_column(table, "feature")
    names = table.columns["feature"]
    place = {name: i for i, name in enumerate(dict.fromkeys(names))}
    earlier = earlier_row(np.array([place[name] if name else -1 for name in names], dtype=np.int64))

    def again(row: int) -> str:
        return f"{quoted(names[row])}, as on line {table.lines[earlier[row]]}"

    table.wrong(earlier >= 0, "feature", "each feature once", "remove or rename the repeated row", again)
    strange = [row for row, kind in enumerate(table.columns["kind"]) if kind not in KINDS]
    table.wrong(strange, "kind", f"one of {', '.join(KINDS)}", "choose one of them")
    low, high = (number_column(table, name, empty=np.nan) for name in ("low", "high"))
    p_low, p_high = (number_column(table, name, low=0.0, high=1.0, empty=np.nan) for name in ("p_low", "p_high"))
    if readable and not len(table):
        faults.add(0, "", "no feature", "a row for each feature", "add them")
    if not faults.listed():
        for row in range(len(table)):
            for column, found, expected, step in _misfits(
                table.columns["kind"][row], low[row], high[row], p_low[row], p_high[row]
            ):
                faults.add(int(table.lines[row]), column, found, expected, step)
    if listed := faults.listed():
        raise CohortError(listed)
    texts = {name: tuple(table.columns[name]) for name in FEATURE_COLUMNS}
    kinds: tuple[Kind, ...] = tuple(next(kind for kind in KINDS if kind == text) for text in texts["kind"])
    stated = np.isfinite(p_low) | np.isfinite(p_high)
    p_low, p_high = (np.where(stated & np.isnan(share), 0.0, share) for share in (p_low, p_high))
    return Features(
        texts["feature"], kinds, texts["unit"], low, high, texts["values"], p_low, p_high, texts["definition"]
    )


def _misfits(kind: str, low: float, high: float, p_low: float, p_high: float) -> Iterator[tuple[str, str, str, str]]:
    """What does not go together in one row: column, found, expected, next step."""
    neither = bool(np.isnan(low) and np.isnan(high))
    can_be_low = kind != "binary" and bool(neither or np.isfinite(low))
    can_be_high = kind == "binary" or bool(neither or np.isfinite(high))
    if kind == "binary":
        if np.isfinite(low):
            yield "low", f"{low:g} for a binary feature", "nothing: it is 0 or +1", "empty it, or call it ordinal"
        if np.isfinite(high) and not 0.0 <= high < 1.0:
            yield "high", f"{high:g} for a binary feature", "nothing, or at least 0 and below 1", "empty it"
    elif low > high:
        yield "low", f"{low:g}, above high ({high:g})", "at most high", "exchange them, or correct the wrong one"
    if p_low > 0 and not can_be_low:
        yield "p_low", f"{p_low:g}, though it cannot be low", "nothing or 0", "empty it, or give the cut point low"
    if p_high > 0 and not can_be_high:
        yield "p_high", f"{p_high:g}, though it cannot be high", "nothing or 0", "empty it, or give the cut point high"
    if p_low + p_high > 1.0 + 1e-9:
        yield "p_high", f"{p_low:g} low and {p_high:g} high", "at most 1 together", "correct them"
    for name, share, other, needed in (("p_low", p_low, p_high, can_be_low), ("p_high", p_high, p_low, can_be_high)):
        if needed and np.isnan(share) and np.isfinite(other):
            yield name, "nothing beside the other side's probability", "both, or neither", "write 0 if it never is"
