"""Read tables of patients in CSV, TSV or Parquet, with one row per patient and the patient's name in the first column.

All errors in a table are raised as one exception. Rows with the same error share one line of the message.
`read_patients` returns ternary codes for the features of a bundle.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

import numpy as np
import pandas as pd
import pyarrow.parquet as pq
from pyarrow import ArrowException

from afa.cohort.cohort import (
    CARD_FILE,
    COHORT_FEATURES_FILE,
    COHORT_LABELS_FILE,
    PATIENT,
    Cohort,
    load_cohort,
    parquet_table,
)
from afa.errors import CohortError, Fault
from afa.io.csvfile import (
    MOST_CELLS,
    CsvTable,
    first_names,
    name_column,
    numbers_with_commas,
    parse_number,
    quoted,
    read_csv_table,
    read_header,
    suggestion,
    table_of_frame,
    visible,
)
from afa.io.files import sha256_of
from afa.model.arrays import Bools, Floats

if TYPE_CHECKING:
    from afa.model.bundle import Bundle

ENDINGS = (".csv", ".tsv", ".csv.gz", ".tsv.gz", ".parquet")
MOST_COLUMNS = 20
"""Largest number of columns whose errors are listed, one column a line.

One further line counts the other columns with errors.
"""
ENCODE = "encode it first, with `afa encode`"
MOST_HEADERS = 2
"""If a table has at most this many rows without any number, these rows are taken for units or a second header.
"""
_PATIENT_COLUMNS = re.compile(
    r"(?:^|[^a-z])(?:ids?|names?|patients?|subjects?|samples?|cases?|participants?|persons?|records?|codes?|keys?|mrn|"
    r"numbers?|no|nr|index|rows?|who)(?:$|[^a-z])|[a-z]ID$",
    re.IGNORECASE,
)
"""Pattern of column names that identify patients."""
YES_OR_NO = ("yes", "no", "y", "n", "true", "false", "positive", "negative", "present", "absent")


class Cells(NamedTuple):
    """Cells of a table of patients, as unparsed text.

    Parameters
    ----------
    first : name of the column with the patients' names
    names : (P,) the patients' names
    columns : (P,) texts of each known or requested column, by name
    unknown : names of the other columns
    table : the table in which errors are recorded
    doubt : why the first column may not contain names; empty if there is no doubt

    """

    first: str
    names: Sequence[str]
    columns: Mapping[str, Sequence[str]]
    unknown: Sequence[str]
    table: CsvTable
    doubt: str = ""


def _gct_error(path: Path) -> CohortError:
    """Return the error for a file in GCT format, which has one row for each gene instead of one for each patient."""
    step = "leave out its first two lines and the column Description, turn rows and columns around, and save it as .csv"
    return CohortError(Fault(str(path), "a GCT file, with a row for each gene", "a row for each patient", step))


def read_cells(path: Path, kind: str, known: Sequence[str], others: Collection[str] = ()) -> Cells:
    """Return the cells of a table, in file order.

    Only the first column, and columns named in `known` or `others`, are returned. If pandas saved an index in a Parquet
    file, the index counts as the first column.

    Parameters
    ----------
    path : a file with one of the `ENDINGS`
    kind : what a column is called in messages, such as `feature`
    known : names of the columns to read
    others : names of further columns to read

    Raises
    ------
    CohortError : all errors that make the table unreadable, and patients that occur twice.

    """
    if not path.name.endswith(ENDINGS) and path.exists():
        expected, step = "a CSV, TSV or Parquet table", f"save it with one of the endings {', '.join(ENDINGS)}"
        found = f"the ending {quoted(path.suffix)}" if path.suffix else "a name without an ending"
        if path.name.removesuffix(".gz").endswith(".gct"):
            raise _gct_error(path)
        raise CohortError(Fault(str(path), found, expected, step))
    header = read_names(path)
    if header and header[0] in known:
        found = f"a first column {quoted(header[0])}, which is a {kind}"
        raise CohortError(Fault(str(path), found, "the patients' names in the first column", "put them there"))
    wanted = {*header[:1], *known, *others}
    if path.suffix == ".parquet":
        table = _patient_table(parquet_table(path, "write it again, or save it as CSV", wanted, MOST_CELLS), str(path))
    elif header and header[0].startswith(("#1.2", "#1.3")):
        raise _gct_error(path)
    elif len(header) == 1 and not any(mark in header[0] for mark in ";\t|,"):
        step = f"put commas between the fields, the patients' names first, then one column per {kind}"
        raise CohortError(Fault(f"{path}, line 1", f"one column, {quoted(header[0])}", "several columns", step))
    else:
        unread = [name for name in header if name not in wanted]
        table = read_csv_table(path, required=header or [PATIENT], unread=unread, whole_rows=True, brief=True)
    known_names = set(known)
    cells = _cells_of_table(table, (header or [PATIENT])[0], [name for name in header[1:] if name not in known_names])
    if not cells.names:
        raise CohortError(Fault(str(path), "no row", "a row for each patient", "add the patients"))
    return cells._replace(doubt=_doubt_of_names(path, cells))


def _cells_of_table(table: CsvTable, first: str, unknown: Sequence[str] = ()) -> Cells:
    """Return the cells of a table with the patients' names in column `first`.

    All errors in the table are raised as one `CohortError`.
    """
    names = table.columns[first]
    twice = (name_column(table, first) >= 0) & pd.Series(names, dtype=object).duplicated(keep=False).to_numpy()
    table.wrong(twice, first, "each patient once", "remove or rename the repeated rows")
    CohortError.raise_for(table.faults.listed())
    return Cells(first, names, {name: texts for name, texts in table.columns.items() if name != first}, unknown, table)


def numbers_of(
    cells: Cells,
    columns: Sequence[str],
    expected: str = "a finite number, or nothing",
    *,
    only: Sequence[float] = (),
    step: str = "",
) -> Floats:
    """Return the given columns as numbers, and record invalid cells as errors in `cells.table`.

    If one or two rows contain only words, such as units or a second header, each such row is reported as one error. All
    invalid cells of a column, except those in rows that contain only words, are reported together as one error.

    Parameters
    ----------
    expected : expected value, for the error message
    only : allowed numbers; by default any finite number
    step : advice on an invalid cell; by default it depends on the cell's text

    Returns
    -------
    numbers : (P, columns) float64, NaN for an empty or invalid cell

    """
    values = np.full((len(cells.names), len(columns)), np.nan)
    filled = np.zeros(values.shape, dtype=np.bool_)
    for place, name in enumerate(columns):
        texts = cells.columns[name]
        read = {text: parse_number(text) for text in set(texts)}
        values[:, place] = np.fromiter(map(read.__getitem__, texts), dtype=np.float64, count=len(texts))
        filled[:, place] = np.fromiter((bool(text.strip()) for text in texts), dtype=bool, count=len(texts))
    wrong = filled & ~np.isfinite(values)
    words = wrong.sum(axis=1)
    whole = (words >= 2) & (words == filled.sum(axis=1)) & (words * 2 > len(columns))
    whole &= whole.sum() <= MOST_HEADERS
    for row in np.flatnonzero(whole).tolist():
        texts = [cells.columns[name][row] for name in columns if cells.columns[name][row].strip()]
        found = f"{len(texts)} texts and no number, such as {quoted(texts[0])} and {quoted(texts[1])}"
        remove = "remove the row; units belong into features.csv, a second header nowhere"
        cells.table.wrong([row], "", "the numbers of a patient", remove, found)
    odd = (filled & ~np.isin(values, only) if only else wrong) & ~whole[:, None]
    places = np.flatnonzero(odd.any(axis=0)).tolist()
    for place in places[:MOST_COLUMNS]:
        name = columns[place]
        suggested = step or _patient_cell_advice(cells.columns[name][int(odd[:, place].argmax())])
        cells.table.wrong(odd[:, place], name, expected, suggested)
    if more := len(places[MOST_COLUMNS:]):
        cells.table.faults.add(0, "", f"{more} more such columns", expected, step or "correct them too")
    return np.where(np.isfinite(values), values, np.nan)


def labels_from_cells(cells: Cells, columns: Sequence[str]) -> pd.DataFrame:
    """Return the labels (0, 1 or NaN) as a table of patients x entities.

    Invalid labels are recorded as errors in `cells.table`.
    """
    step = "code the label as 0 and 1, in a column for each entity"
    values = numbers_of(cells, columns, "0, 1 or nothing", only=(0.0, 1.0), step=step)
    return pd.DataFrame(values, index=pd.Index(cells.names, name=PATIENT), columns=list(columns))


def by_entity(columns: Sequence[str]) -> str:
    """Return advice to the user on label columns that are not named after entities.

    If there is only one label column, its cells are probably names of entities. The advice then explains how to convert
    this column to one column of 0 and 1 for each entity.
    """
    if len(columns) != 1:
        return "name one column for each entity"
    turned = f"pandas.get_dummies(labels[{columns[0]!r}], dtype=int)"
    return f"write a column for each entity, 1 where {quoted(columns[0])} names it and 0 elsewhere, as {turned} does"


def nearest_column(name: str, columns: Sequence[str]) -> str:
    """Return advice that names the column most similar to a missing column.

    If no column is similar, return an empty text.
    """
    if (spaced := next((other for other in columns if other.strip() == name), None)) is not None:
        return f"remove the blanks around {quoted(spaced)} in the header"
    close = suggestion(name, columns, "")
    return close and f"for {name}, {close}"


def check_alike(columns: Iterable[object], names: Sequence[str], bundle: Bundle, where: str | Path) -> None:
    """Raise a `CohortError` if a feature or entity lacks a column, but another column has nearly the same name.

    Two names are nearly equal if they differ only in case, blanks and underscores. Column names are also compared with
    display names and aliases. Without this check, the values of a misnamed column would be ignored silently.

    Parameters
    ----------
    names : features or entities of the bundle

    """
    there = list(map(str, columns))
    written = {
        _folded_name(other): name
        for name in names
        if name not in there
        for other in (name, bundle.shown(name), *bundle.aliases.get(name, ()))
    }
    known = {*bundle.features, *bundle.entities}
    CohortError.raise_for(
        Fault(f"{where}, column {visible(column)}", "another name than the bundle has", name, "rename the column")
        for column in there
        if column not in known and (name := written.get(_folded_name(column))) is not None
    )


def _folded_name(name: str) -> str:
    return re.sub(r"[\s_]+", "", name).casefold()


def read_names(path: Path) -> list[str]:
    """Return the names of a table's columns, or an empty list if the file cannot be read."""
    if path.suffix != ".parquet":
        return read_header(path)
    names: list[str] = []
    index: list[str] = []
    with suppress(OSError, ArrowException, TypeError, AttributeError):
        schema = pq.read_schema(path)
        names = list(schema.names)
        noted = (schema.pandas_metadata or {}).get("index_columns", [])  # pandas records a RangeIndex as a dict
        index = [name for name in noted if isinstance(name, str) and name in names]
    if len(index) > 1:
        step = "make one of them the index, or reset_index() and put the patients' names first"
        raise CohortError(
            Fault(str(path), f"an index of {first_names(index)}", "one column that names the patients", step)
        )
    return [*index, *(name for name in names if name not in index)]


def _doubt_of_names(path: Path, cells: Cells) -> str:
    """Return a warning if the first column probably does not contain the patients' names, else an empty text.

    A first column of numbers is accepted if its header looks like an identifier, such as `id`. With any other header, a
    `CohortError` is raised if the numbers have decimals, or if another column has a header like `id`. Whole numbers
    cause no warning if they are consecutive, or if the column has no header.
    """
    numbers = np.array([parse_number(text) for text in cells.names])
    nameless = not cells.first.strip() or cells.first.startswith(("__index_level_", "Unnamed: "))
    named = not nameless and _PATIENT_COLUMNS.search(cells.first) is not None
    if named or not np.isfinite(numbers).all() or numbers.size < 2:
        return ""
    called = "a column without a name" if nameless else f"the column {visible(cells.first)}"
    better = next((name for name in cells.unknown if _PATIENT_COLUMNS.search(name)), None)
    if better is not None or (numbers % 1 != 0).any():
        found = f"numbers in {called}, such as {cells.names[0]}, as the patients' names"
        step = f"put the column {visible(better)} first" if better else "put their names in the first column"
        step += "; pandas writes its index first, unless to_csv or to_parquet has index=False"
        raise CohortError(Fault(str(path), found, "the column that names the patients", step))
    if nameless or (np.diff(numbers) == 1).all():
        return ""
    return f"patients are named by {called}, which holds numbers ({first_names(cells.names[:3])}); is that their name?"


def cells_of_frame(frame: pd.DataFrame, where: str, *, rows: Sequence[str] = ()) -> Cells:
    """Return the cells of a DataFrame whose index names the patients.

    If a patient's name is invalid, a `CohortError` is raised.

    Parameters
    ----------
    rows : name of each row in messages; by default its number

    """
    names = pd.Series(list(map(str, frame.index)), name=PATIENT, dtype=object)
    columns = frame.loc[:, frame.columns.map(str) != PATIENT].reset_index(drop=True)
    return _cells_of_table(_patient_table(pd.concat([names, columns], axis="columns"), where, rows), PATIENT)


def _patient_table(frame: pd.DataFrame, where: str, rows: Sequence[str] = ()) -> CsvTable:
    rows = rows or [f"row {row + 1}" for row in range(len(frame))]
    return table_of_frame(frame, where, required=list(map(str, frame.columns)), names=rows, brief=True)


def _patient_cell_advice(text: str) -> str:
    """Return advice on a cell that contains text instead of a number."""
    if either := numbers_with_commas(text.strip()):
        return f"write {' or '.join(either)}: such a comma can stand for thousands, or for a decimal point"
    pointed = text.strip().replace(",", ".")
    if "," in text and pointed.count(".") == 1 and np.isfinite(parse_number(pointed)):
        return f"write {pointed}: a decimal point, and no comma"
    if text.strip().casefold() in YES_OR_NO:
        return "write 1 for yes and 0 for no"
    if np.isinf(parse_number(text)):
        return "leave it empty where nothing was measured"
    return "write the number alone, without a unit or a bound, or leave it empty where nothing was measured"


class GivenTable(NamedTuple):
    """A cohort that was read from a table or a folder, and a bundle with the same features as the cohort.

    The patients are sorted by name.

    Parameters
    ----------
    bundle, cohort : both have the same features, in the same order
    measured : (P, M) bool, True where the cohort has a value; the other values are 0
    digests : SHA-256 by file name; a file of labels has the key `labels/` + its name
    ignored : columns that are not features of the bundle
    dropped : features of the bundle that the table lacks
    left_out : labelled patients that the table lacks
    doubt : as in `Cells`

    """

    bundle: Bundle
    cohort: Cohort
    measured: Bools
    digests: Mapping[str, str]
    ignored: Sequence[str]
    dropped: Sequence[str]
    left_out: Sequence[str] = ()
    doubt: str = ""

    def frame(self) -> pd.DataFrame:
        """Return the ternary codes (-1, 0 or 1) as a float64 table of patients x features.

        A value that was not measured is NaN.
        """
        values = np.where(self.measured, self.cohort.values, np.nan)
        return pd.DataFrame(values, index=list(self.cohort.patients), columns=list(self.cohort.features))


def read_patients(path: Path, bundle: Bundle, *, drop_missing: bool = False) -> GivenTable:
    """Read patients from a table or a cohort folder, and return their values for the features of a bundle.

    The first column of a table contains the patients' names. The column of a feature contains -1, 0 or 1, and an empty
    cell if the feature was not measured. Columns that are not features of the bundle are ignored. If a feature of the
    bundle has no column, a `CohortError` is raised, unless `drop_missing` is True or `cohort.yaml` in the folder lists
    the feature as dropped. A feature without a column is also removed from the returned bundle (decisions.md D3).

    Raises
    ------
    CohortError : all errors, each with file, row and column.

    """
    if path.is_dir():
        held = load_cohort(path)
        name, labels, provenance, doubt = held.name, held.labels, held.provenance, ""
        codes = pd.DataFrame(held.values, list(held.patients), list(held.features), dtype=np.float64)
        known = set(bundle.features)
        unknown = [feature for feature in held.features if feature not in known]
        declared = set(held.provenance.get("dropped_features") or ())
        files = [path / file for file in (COHORT_FEATURES_FILE, COHORT_LABELS_FILE, CARD_FILE)]
    else:
        cells = read_cells(path, "feature", bundle.features)
        expected = "-1, 0, 1 or nothing"
        values = numbers_of(cells, list(cells.columns), expected, only=(-1.0, 0.0, 1.0), step=ENCODE)
        CohortError.raise_for(cells.table.faults.listed())
        codes = pd.DataFrame(values, list(cells.names), list(cells.columns))
        if cells.columns and codes.isna().all(axis=None):
            step = "fill in what was measured: -1, 0 or 1"
            raise CohortError(Fault(str(path), "no value of any feature", "one or more", step))
        name, labels, provenance, doubt = path.stem, pd.DataFrame(index=codes.index), {}, cells.doubt
        unknown, declared, files = list(cells.unknown), set(), [path]
    missing = [feature for feature in bundle.features if feature not in codes]
    unsaid = [feature for feature in missing if feature not in declared]
    if len(missing) == len(bundle.features) or (unsaid and not drop_missing):
        alias_of = {alias: feature for feature in missing for alias in bundle.aliases.get(feature, ())}
        renamed = next(
            (f"rename the column {visible(other)} to {alias_of[other]}" for other in unknown if other in alias_of), ""
        )
        step = renamed or nearest_column(missing[0], unknown) or "add them"
        if len(missing) < len(bundle.features) and not drop_missing:
            step += ", or leave what is missing out of the bundle too with --drop-missing"
        found = f"no column for {len(missing)} of {len(bundle.features)} features: {first_names(missing)}"
        raise CohortError(Fault(str(path), found, "every feature of the bundle", step))
    if not path.is_dir():
        check_alike([*codes.columns, *unknown], bundle.features, bundle, path)
    model = bundle.restrict([feature for feature in bundle.features if feature in codes])
    codes = codes.loc[sorted(codes.index), list(model.features)]
    patients, ternary = tuple(codes.index), codes.fillna(0).to_numpy(dtype=np.int8)
    cohort = Cohort(name, model.features, patients, ternary, labels.loc[list(patients)], provenance)
    digests = {file.name: sha256_of(file) for file in files}
    return GivenTable(model, cohort, codes.notna().to_numpy(), digests, unknown, missing, doubt=doubt)


def read_labels(path: Path, given: GivenTable) -> GivenTable:
    """Return a copy of `given` to which the patients' labels from the file `path` are added.

    The first column of the table contains the patients' names, and each other column contains the labels of one entity.
    Each label is 0, 1 or an empty cell. Columns that are not named after entities are ignored. A patient without a row
    in the table has no label.
    """
    cells = read_cells(path, "entity", given.bundle.entities)
    if not cells.columns:
        step = "name the columns as `afa bundle show` does"
        step = by_entity(cells.unknown) if len(cells.unknown) == 1 else step
        raise CohortError(Fault(str(path), "no column of an entity", "at least one, with 0, 1 or nothing", step))
    check_alike([*cells.columns, *cells.unknown], given.bundle.entities, given.bundle, path)
    table = labels_from_cells(cells, list(cells.columns))
    CohortError.raise_for(cells.table.faults.listed())
    known = set(given.cohort.patients)
    left_out = [name for name in cells.names if name not in known]
    if len(left_out) == len(cells.names):
        found = f"none of the cohort's patients, but {', '.join(map(visible, left_out[:3]))}"
        raise CohortError(Fault(str(path), found, "patients of the cohort", "name them as the cohort does"))
    labels = table.reindex(list(given.cohort.patients)).astype("Int8")
    return given._replace(
        cohort=replace(given.cohort, labels=labels),
        digests={**given.digests, f"labels/{path.name}": sha256_of(path)},
        ignored=[*given.ignored, *cells.unknown],
        left_out=left_out,
    )
