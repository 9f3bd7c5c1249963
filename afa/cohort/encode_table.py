"""Encode a table of numbers with cut points from `features.csv`, from controls, or from the cohort.

Every feature has two cut points. A value `x < low` becomes -1, and a value `x > high` becomes +1. Both comparisons are
strict. If `features.csv` contains a range for the feature, the cut points are the ends of the range. For a feature
without a range, the cut points are computed from the controls or the cohort. Empty cells stay empty. If `features.csv`
declares a number as a code for *not measured*, cells with this number become empty. Units are not guessed, and values
are not corrected. A value that `features.csv` does not allow gives an error or a warning (`afa.cohort.codes`).
"""

from __future__ import annotations

import warnings
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np
import numpy.typing as npt
import pandas as pd

from afa.cohort.cells import Cells, cells_of_frame, nearest_column, numbers_of, read_cells
from afa.cohort.codes import apart, repeated_outside, without_codes
from afa.cohort.cohort import PATIENT
from afa.cohort.encode import (
    Coding,
    EncodingReference,
    Test,
    check_controls,
    encode_controls,
    reach,
    robust_reach,
    without_spread,
)
from afa.cohort.samples import other_spelling
from afa.errors import CohortError, ConfigError, Fault
from afa.io.csvfile import first_names, quoted, separator_of, visible
from afa.io.files import atomic_file
from afa.model.arrays import Bools, Floats
from afa.model.features import Features, features_of, shown_unit

ONE_SIDED = 0.95
"""If a larger share of a feature's values is beyond one cut point, a note asks whether the unit is right."""
DICTIONARY_NAME = "features.csv"
MARK = "if {} stands for not measured, write it in the column missing of {}"


@dataclass(frozen=True, eq=False)
class Encoded:
    """A table of patients whose values are encoded as -1, 0, +1, and the cut points of the encoding.

    Parameters
    ----------
    values : (P, features) Int8 in {-1, 0, +1}, or missing; rows are patients
    cuts : table of `feature,kind,unit,by,low,high`, and of the numbers of patients with -1, 0, +1 and no value
    controls : (controls, features) Int8, the codes of the controls, who are not among the patients. If the cut points
        of a feature come from the controls, each control is encoded against the other controls (decision F9)
    ignored : columns that are not features
    doubts : one line for each group of values that may not be measurements

    """

    values: pd.DataFrame
    cuts: pd.DataFrame
    controls: pd.DataFrame
    ignored: tuple[str, ...] = ()
    doubts: tuple[str, ...] = ()

    @property
    def notes(self) -> list[str]:
        """Return notes on unused columns, features without values, possibly wrong units, and doubtful values."""
        notes = (
            [f"columns not used, since features.csv lacks them: {first_names(self.ignored)}"] if self.ignored else []
        )
        measured = self.cuts[["down", "zero", "up"]].sum(axis=1)
        if empty := list(self.cuts["feature"][measured == 0]):
            notes.append(f"measured for no patient: {first_names(empty)}")
        for side, word, cut in (("down", "below", "low"), ("up", "above", "high")):
            shares = self.cuts[side] / measured.where(measured > 0)
            beyond = (shares > ONE_SIDED) & self.cuts[cut].notna() & (self.cuts["by"] == "range")
            for row in np.flatnonzero(beyond):
                name, unit, limit, count = self.cuts.loc[row, ["feature", "unit", cut, side]]
                of = f"{count} of {measured[row]} values are {word} {limit:g}"
                notes.append(f"{name}: {f'{of} {shown_unit(str(unit))}'.rstrip()}; is that their unit?")
        return [*notes, *self.doubts]


def encode(
    X: pd.DataFrame,
    features: str | Path | pd.DataFrame | Features,
    *,
    reference: EncodingReference | None = None,
    controls: Sequence[bool] | npt.ArrayLike | None = None,
    test: Test = "empirical",
    level: float = 0.05,
    threshold: float = 0.5,
) -> pd.DataFrame:
    """Return a table of patients with every value encoded as -1, 0 or +1 (`docs/decisions.md`, D1).

    Parameters
    ----------
    X
        (P, columns) numbers; rows are patients, named by the index, columns are features; missing where not measured.
        Columns that are not features are ignored.
    features
        The path of a `features.csv`, a table with its columns, or `afa.model.features.Features`.
    reference
        What defines the cut points of a feature without a range: `controls`, or `cohort` (the patients themselves).
    controls
        (P,) bool, True for rows that are controls; they are not in the result.
    test
        Test against the controls: `empirical`, `normal` or `t`.
    level
        Significance level of that test.
    threshold
        For the reference `cohort`: robust standard deviations from the median.

    Returns
    -------
    DataFrame : (patients, features) Int8 in {-1, 0, +1}, or missing, in the order of `features`

    Raises
    ------
    CohortError : values are invalid (the message lists rows and columns), `X` lacks a feature, or controls are too few.

    Warns
    -----
    UserWarning : a feature has numbers that may mean *not measured*, has nearly all values beyond one cut point
        (perhaps the unit is wrong), or has no value in any patient.

    Examples
    --------
    >>> import pandas as pd
    >>> features = pd.DataFrame({"feature": ["albumin", "oedema"], "kind": ["continuous", "binary"]})
    >>> X = pd.DataFrame({"albumin": [28.0, None], "oedema": [1, 0]}, index=["ann", "ben"])
    >>> code = encode(X, features.assign(unit=["g/l", ""], low=[35, None], high=[50, None]))
    >>> code.loc["ann"].tolist(), code.loc["ben"].tolist()
    ([-1, 1], [<NA>, 0])

    """
    if not isinstance(X, pd.DataFrame):
        step = "give pandas.DataFrame(values, index=patients, columns=features)"
        raise CohortError(Fault("table X", type(X).__name__, "a DataFrame", step))
    chosen = None if controls is None else np.asarray(controls, dtype=bool)
    if chosen is not None and chosen.shape != (len(X),):
        raise CohortError(Fault("controls", f"shape {chosen.shape}", f"({len(X)},)", "say it of every row"))
    coding = Coding(reference or (None if controls is None else "controls"), test, level, threshold)
    encoded = encode_cells(cells_of_frame(X, "X"), features_of(features), coding, chosen, where="X")
    for note in replace(encoded, ignored=()).notes:
        warnings.warn(note, stacklevel=2)
    return encoded.values


def control_rows(text: str | None) -> tuple[str, str] | None:
    """Split a text `COLUMN=VALUE` into column and value. If the text is None, return None."""
    if text is None:
        return None
    column, sign, value = text.rpartition("=")
    if not sign or not column or not value:
        step = "write it as --controls diagnosis=healthy"
        raise CohortError(Fault("--controls", quoted(text), "a column, =, and the value of its controls", step))
    return column, value


def read_and_encode(
    path: str | Path,
    features: Features,
    coding: Coding,
    controls: tuple[str, str] | None = None,
    dictionary: str = DICTIONARY_NAME,
) -> Encoded:
    """Read a table of patients from a file, and encode the table.

    Parameters
    ----------
    controls : a column, and the text in it that marks controls
    dictionary : name of the file of features, for messages

    """
    path = Path(path)
    if controls is None:
        return encode_cells(
            read_cells(path, "feature", features.names), features, coding, where=path, dictionary=dictionary
        )
    column, value = controls
    cells = read_cells(path, "feature", features.names, (column,))
    if column not in cells.columns:
        found = f"no column {quoted(column)}"
        step = nearest_column(column, cells.unknown) or f"name another column than {cells.first}, or correct the name"
        raise CohortError(Fault(f"{path}, controls", found, "the column that names the controls", step))
    texts = cells.columns[column]
    if near := other_spelling(texts, [value]):
        found, step = f"{quoted(near[0])} beside {quoted(value)}", "write the controls alike in all rows"
        raise CohortError(Fault(f"{path}, column {visible(column)}", found, "one spelling of the controls", step))
    chosen = np.array([text == value for text in texts], dtype=bool)
    if not chosen.any():
        found, step = (
            f"no row with {quoted(value)}; it holds {first_names(sorted({*texts})[:6])}",
            "name one of these values",
        )
        raise CohortError(Fault(f"{path}, column {visible(column)}", found, "at least one control", step))
    cells = cells._replace(unknown=[name for name in cells.unknown if name != column])
    return encode_cells(cells, features, coding, chosen, where=path, dictionary=dictionary)


def encode_cells(
    cells: Cells,
    features: Features,
    coding: Coding,
    is_control: Bools | None = None,
    *,
    where: Path | str,
    dictionary: str = DICTIONARY_NAME,
) -> Encoded:
    """Encode the cells of a table of patients. All errors in columns and values are raised as one `CohortError`.

    Parameters
    ----------
    is_control : (rows,) bool, True for rows of the table that are controls, or None if there are none
    dictionary : name of the file of features, for messages

    """
    present = [name for name in features.names if name in cells.columns]
    cells = without_codes(cells, features)
    values, faults = numbers_of(cells, present), list[Fault]()
    if missing := [name for name in features.names if name not in cells.columns]:
        step = nearest_column(missing[0], cells.unknown) or "add them, or leave their rows out"
        found = f"no column for {len(missing)} of {len(features)} features: {first_names(missing)}"
        faults.append(Fault(str(where), found, "every feature of features.csv", step))
    for name, column in zip(present, values.T, strict=True):
        if features.kinds[features.names.index(name)] == "binary":
            odd = ~(np.isnan(column) | np.isin(column, (0.0, 1.0)))
            step = (
                f"code it as 0 and 1, or call it ordinal in features.csv; {MARK.format('another number', dictionary)}"
            )
            cells.table.wrong(odd, name, "0 or 1, or nothing", step)
    doubts = _check_undeclared_codes(cells, features.chosen(present), values, dictionary)
    faults += cells.table.faults.listed()
    open_ended = [name for name, ranged in zip(features.names, features.has_range, strict=True) if not ranged]
    if open_ended and coding.reference is None:
        expected = "cut points for every feature, or a reference for those without"
        step = "fill in low and high in features.csv, or choose the reference controls or cohort"
        faults.append(Fault("features", f"no cut point for {first_names(open_ended)}", expected, step))
    if coding.reference == "controls" and is_control is None:
        step = "name the column and the value of the controls"
        faults.append(Fault("reference controls", "no controls", "rows that are controls", step))
    CohortError.raise_for(faults)
    control = np.zeros(len(values), dtype=bool) if is_control is None else is_control
    if control.all():
        raise CohortError(Fault(str(where), "controls alone", "at least one patient", "add the patients' rows"))
    low, high, by = _cut_points(values[~control], values[control], features, coding)
    names = np.array(cells.names, dtype=object)
    code, healthy = (_codes_by_cut_points(values[of], low, high, features, names[of]) for of in (~control, control))
    if _looks_encoded(values[~control], code, features):
        step = "use it as it is, without encoding it again; or give the table of the numbers as measured"
        found = "-1, 0 and 1 alone in all columns with cut points, as in an encoded table"
        raise CohortError(Fault(str(where), found, "numbers as measured", step))
    if open_ended and coding.reference == "controls":
        alone = _codes_of_controls(values[np.ix_(control, ~features.has_range)], coding)
        healthy[open_ended] = alone.set_axis(healthy.index)
    cuts = pd.DataFrame(
        {"feature": features.names, "kind": features.kinds, "unit": features.units, "by": by, "low": low, "high": high}
    )
    cuts[["low", "high"]] = cuts[["low", "high"]].where(np.isfinite(cuts[["low", "high"]]))
    for name, number in (("down", -1), ("zero", 0), ("up", 1)):
        cuts[name] = (code == number).sum().to_numpy()
    cuts["missing"] = code.isna().sum().to_numpy()
    return Encoded(code, cuts, healthy, tuple(cells.unknown), (*filter(None, [cells.doubt]), *doubts))


def _looks_encoded(values: Floats, code: pd.DataFrame, features: Features) -> bool:
    """Return True if the values of the table are probably ternary codes already.

    Only features that have a range in `features.csv` and are not binary are checked. The result is True only if all
    their values are -1, 0 or 1, and both -1 and 1 occur. If encoding the table would change no value, the result is
    False, because it then does not matter whether the table is encoded already.

    Parameters
    ----------
    values : (P, features) float64, NaN where missing

    """
    cut = features.has_range & ~features.is_binary
    numbers = values[:, cut]
    known = np.isfinite(numbers)
    codes = code.to_numpy(dtype=np.float64, na_value=np.nan)[:, cut]
    in_code = np.isin(numbers[known], (-1.0, 0.0, 1.0)).all() and {-1.0, 1.0} <= set(numbers[known].tolist())
    return bool(in_code and (numbers[known] != codes[known]).any())


def _check_undeclared_codes(cells: Cells, features: Features, values: Floats, dictionary: str) -> list[str]:
    """Record an error for each value that is an undeclared code for *not measured*.

    Return one line of text for each group of doubtful values.

    Parameters
    ----------
    values : (P, features) float64

    """
    doubts = []
    for place, (name, kind, span) in enumerate(zip(features.names, features.kinds, features.spans, strict=True)):
        if kind == "binary":
            continue
        column, said = values[:, place], features.codings[place]
        inside = np.isfinite(column)
        if span is not None:
            coded, single = repeated_outside(column, span, closed=kind == "ordinal")
            if coded.any():
                value = column[coded][0]
                step = f"{MARK.format(f'{value:g}', dictionary)}; else correct it, or the column values"
                counts = {value: int((column == value).sum()) for value in set(column[coded].tolist())}
                shown = [f"{value:g} as {counts.get(value)} of {inside.sum():,} values" for value in column.tolist()]
                cells.table.wrong(coded, name, f"{said}, as {dictionary} says", step, shown.__getitem__)
            if single.any():
                row = int(single.argmax())
                more = f" and {single.sum() - 1} more" if single.sum() > 1 else ""
                found = f"{column[row]:g} ({PATIENT} {visible(cells.names[row])}){more}"
                doubts.append(f"{name}: {found} where {dictionary} says {said}; taken as it is")
            inside &= ~coded & ~single
        for group in apart(column[inside], span):
            mark = MARK.format(" or ".join(f"{value:g}" for value in group.values), dictionary)
            doubts.append(f"{name}: of {inside.sum():,} values {group}; {mark}")
    return doubts


def write_encoded(encoded: Encoded, path: str | Path) -> Path:
    """Write the ternary codes as CSV, TSV or Parquet, and the cut points to a second file.

    The cut points of `<name>.csv` are written to `<name>.cuts.csv`, and the path of this file is returned. Either both
    files are written, or neither. If the table exists but its `.cuts.csv` file does not, a `ConfigError` is raised,
    because this function did not write the existing table.
    """
    path = Path(path)
    cuts = path.with_name(f"{path.stem}.cuts.csv")
    if path.resolve().exists() and not cuts.resolve().is_file():
        expected = "a new file, or an earlier result of this command"
        raise ConfigError(Fault(str(path), f"a file without {cuts.name} beside it", expected, "choose another name"))
    table = encoded.values.reset_index()
    with atomic_file(path) as first, atomic_file(cuts) as second:
        encoded.cuts.to_csv(second, index=False, lineterminator="\n", float_format="%.12g")
        if path.suffix == ".parquet":
            table.to_parquet(first, engine="pyarrow", compression="zstd", index=False)
        else:
            table.to_csv(first, index=False, sep=separator_of(path), lineterminator="\n")
    return cuts


def _cut_points(
    patients: Floats, controls: Floats, features: Features, coding: Coding
) -> tuple[Floats, Floats, list[str]]:
    """Return the low and the high cut point of each feature, and the source of each feature's cut points.

    The source is `binary`, `range`, `cohort` or `controls`. A cut point is NaN if no value of the feature can lie
    beyond it.
    """
    low, high = features.low.copy(), features.high.copy()
    high[features.is_binary] = 0.5
    by = ["binary" if kind == "binary" else "range" for kind in features.kinds]
    for place in np.flatnonzero(~features.has_range):
        by[place] = str(coding.reference)
        name = features.names[place]
        if coding.reference == "cohort":
            column = patients[np.isfinite(patients[:, place]), place]
            centre = float(np.median(column)) if column.size else 0.0
            far = float(robust_reach(column[None], coding.threshold)[0, 0]) if column.size else np.inf
        else:
            column = controls[:, place]
            known = column[np.isfinite(column)]
            # The statistical test in `afa.cohort.encode` gives code 0 to all values between the two cut points.
            test = "empirical" if len(known) and without_spread(known[None])[0] else coding.test
            instead = "give cut points in features.csv, set the test t"
            check_controls(len(known), test, coding.level, f" with a value of {visible(name)}", instead)
            centre, far = float(known.mean()), float(reach(known[None], test, coding.level)[0, 0])
        low[place], high[place] = centre - far, centre + far
    return low, high, by


def _codes_by_cut_points(
    values: Floats, low: Floats, high: Floats, features: Features, names: npt.NDArray[np.object_]
) -> pd.DataFrame:
    """Return the ternary codes of values for given cut points, as an Int8 table. Missing values stay missing."""
    code = np.zeros(values.shape, dtype=np.int8)
    with np.errstate(invalid="ignore"):
        code[values < low] = -1
        code[values > high] = 1
    absent = np.isnan(values)
    columns = {
        name: pd.array(pd.arrays.IntegerArray(code[:, place].copy(), absent[:, place].copy()))
        for place, name in enumerate(features.names)
    }
    return pd.DataFrame(columns, index=pd.Index(names, name=PATIENT))


def _codes_of_controls(values: Floats, coding: Coding) -> pd.DataFrame:
    """Return the ternary code of each control, by a test against the other controls that have a value.

    The result is an Int8 table of controls x features. The code of a control is missing if the control has no value or
    if fewer than two other controls have a value.

    Parameters
    ----------
    values : (controls, features) float64

    """
    known = np.isfinite(values)
    code = np.zeros(values.shape, dtype=np.int8)
    for rows in np.unique(known, axis=1).T:
        places = np.flatnonzero((known == rows[:, None]).all(axis=0))
        alone, _ = encode_controls(pd.DataFrame(values[np.ix_(rows, places)].T), test=coding.test, level=coding.level)
        if alone.empty:
            known[:, places] = False
        else:
            code[np.ix_(rows, places)] = alone.to_numpy().T
    return pd.DataFrame(code).astype("Int8").mask(~known)
