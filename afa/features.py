"""What a table measures: `features.csv`, with the kind of each feature, where its range ends, and what it can be."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

import numpy as np
import numpy.typing as npt

from afa.csvfile import CsvTable, name_column, number_column, read_table, table_of_frame
from afa.errors import CohortError

if TYPE_CHECKING:
    import pandas as pd

Kind = Literal["continuous", "ordinal", "binary"]
Bools = npt.NDArray[np.bool_]
Floats = npt.NDArray[np.float64]
KINDS: tuple[Kind, ...] = ("continuous", "ordinal", "binary")
FEATURE_COLUMNS = ("feature", "kind", "unit", "low", "high", "values", "p_low", "p_high", "definition")
VALUES = (-1, 0, 1)
"""What a feature can be at most, in the order of the columns of `Features.possible`."""


@dataclass(frozen=True, eq=False)
class Features:
    """The features of a table, checked when read; arrays are read-only and as long as `names`.

    Fields are in the order of `FEATURE_COLUMNS`.

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
    low: Floats
    high: Floats
    codings: tuple[str, ...]
    p_low: Floats
    p_high: Floats
    definitions: tuple[str, ...]

    def __post_init__(self) -> None:
        for array in (self.low, self.high, self.p_low, self.p_high):
            array.flags.writeable = False

    def __len__(self) -> int:
        return len(self.names)

    def __repr__(self) -> str:
        return f"<Features: {len(self)}, {int(self.has_range.sum())} with cut points>"

    @property
    def is_binary(self) -> Bools:
        """(n_features,) Which are 0 or +1 as they stand in the table."""
        return np.array([kind == "binary" for kind in self.kinds], dtype=np.bool_)

    @property
    def has_range(self) -> Bools:
        """(n_features,) Which are encoded by `features.csv` alone: the binary ones, and those with a cut point."""
        return np.asarray(self.is_binary | np.isfinite(self.low) | np.isfinite(self.high))

    @property
    def possible(self) -> Bools:
        """(n_features, 3) Which of -1, 0, +1 each feature can be: a side whose cut alone is empty cannot occur (F1)."""
        return _possible(self.is_binary, self.low, self.high)

    @property
    def background(self) -> Floats:
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

        return pd.DataFrame(dict(zip(FEATURE_COLUMNS, vars(self).values(), strict=True)))


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
    return checked_features(replace(table, columns={**table.columns, "kind": kinds}))


def features_of(features: str | Path | pd.DataFrame | Features) -> Features:
    """The features that a path, a table with the columns of `features.csv`, or `Features` stand for."""
    if isinstance(features, Features):
        return features
    if isinstance(features, str | Path):
        return read_features(features)
    table = table_of_frame(features, "features", required=FEATURE_COLUMNS[:2], optional=FEATURE_COLUMNS[2:])
    return checked_features(table)


def checked_features(table: CsvTable) -> Features:
    """The features of a table of texts; a `CohortError` with what else was noted in its faults."""
    faults = table.faults
    readable = not faults.listed()
    name_column(table, "feature")
    names = table.columns["feature"]
    place = {name: i for i, name in enumerate(dict.fromkeys(names))}
    table.once([place[name] if name else -1 for name in names], "each feature once", "feature")
    table.words("kind", KINDS)
    low, high = (number_column(table, name, empty=np.nan) for name in ("low", "high"))
    if readable and not len(table):
        faults.add(0, "", "no feature", "a row for each feature", "add them")
    sound = np.full(len(table), not faults.listed())
    binary = np.array(table.columns["kind"], dtype=object) == "binary"
    for name, cut, misfit, expected, step in (
        ("low", low, np.isfinite(low), "nothing: it is 0 or +1", "empty it, or call it ordinal"),
        ("high", high, (high < 0.0) | (high >= 1.0), "nothing, or at least 0 and below 1", "empty it"),
    ):
        said = [f"{value:g} for a binary feature" for value in cut]
        table.wrong(sound & binary & misfit, name, expected, step, said.__getitem__)
    exchanged = sound & ~binary & (low > high)
    step = "exchange them, or correct the wrong one"
    table.wrong(exchanged, "low", "at most high", step, lambda row: f"{low[row]:g}, above high ({high[row]:g})")
    p_low, p_high, _ = share_columns(table, ("p_low", "p_high"), _possible(binary, low, high), sound)
    CohortError.raise_for(faults.listed())
    texts = {name: tuple(table.columns[name]) for name in FEATURE_COLUMNS}
    columns: dict[str, Any] = texts | {"low": low, "high": high, "p_low": p_low, "p_high": p_high}
    return Features(*(columns[name] for name in FEATURE_COLUMNS))


def _possible(binary: Bools, low: Floats, high: Floats) -> Bools:
    """(n, 3) Which of -1, 0, +1 features can be: a side whose cut alone is empty cannot occur."""
    neither = np.isnan(low) & np.isnan(high)
    below, above = ~binary & (neither | np.isfinite(low)), binary | neither | np.isfinite(high)
    return np.column_stack([below, np.ones(len(low), dtype=np.bool_), above])


def share_columns(
    table: CsvTable, names: tuple[str, str], possible: Bools, rows: Bools
) -> tuple[Floats, Floats, Bools]:
    """Shares below and above, (n_rows,) each: 0 where one side is empty, NaN where both are; and which rows are wrong.

    possible : (n_rows, 3). rows : (n_rows,) those whose two shares must go together with it and with each other.
    """
    shares = [number_column(table, name, low=0.0, high=1.0, empty=np.nan) for name in names]
    empty = [table.empty(name) for name in names]
    low, high = shares
    wrong = rows & (low + high > 1.0 + 1e-9)
    table.wrong(
        wrong, names[1], "at most 1 together", "correct them", lambda row: f"{low[row]:g} low and {high[row]:g} high"
    )

    def check(side: int, word: str) -> None:
        can_be, share = possible[:, 2 * side], shares[side]
        strange = rows & (share > 0) & ~can_be
        lacking = rows & can_be & empty[side] & np.isfinite(shares[1 - side])
        wrong[strange | lacking] = True
        step, found = f"empty it, or give the cut point {word} in features.csv", f"though it cannot be {word}"
        table.wrong(strange, names[side], "nothing or 0", step, lambda row: f"{share[row]:g}, {found}")
        step = f"write 0 if it is never {word}, or say in features.csv that it cannot be"
        table.wrong(lacking, names[side], "both, or neither", step, "nothing beside the other side's probability")

    check(0, "low")
    check(1, "high")
    silent = empty[0] & empty[1]
    return np.where(silent, np.nan, np.nan_to_num(low)), np.where(silent, np.nan, np.nan_to_num(high)), wrong
