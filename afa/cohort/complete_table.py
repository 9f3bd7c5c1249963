"""Complete patients in a table of one's own: what stands in it, and how it is brought onto the features of a bundle."""

from __future__ import annotations

import csv
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import NamedTuple

import numpy as np
import pandas as pd
import pyarrow.parquet as pq
from numpy.typing import NDArray
from pyarrow import ArrowException

from afa.bundle import Bundle
from afa.cohort.cohort import CARD_FILE, FEATURES_FILE, LABELS_FILE, LARGEST_TABLE, PATIENT, Cohort, load_cohort
from afa.csvfile import RowFaults, earlier_row, name_column, quoted, read_table, suggestion, visible
from afa.errors import CohortError, Fault
from afa.files import sha256_of

SHOWN = 20
"""Faulty cells, and names in a note, that are listed one by one; the others are counted."""


class Given(NamedTuple):
    """What was read, on one set of features: `bundle` and `cohort` are aligned, patients by name.

    digests : SHA-256 by file name, that of a file of labels by `labels/` and its name. ignored : columns that the
    bundle does not know. dropped : features of the bundle that the table lacks. left_out : labelled patients that the
    table lacks.
    """

    bundle: Bundle
    cohort: Cohort
    digests: Mapping[str, str]
    ignored: Sequence[str]
    dropped: Sequence[str]
    left_out: Sequence[str] = ()


class Cells(NamedTuple):
    """A table as texts: `names` (P,) of the first column, `columns` by name; `rows` (P,) says where each row stands."""

    first: str
    names: Sequence[str]
    columns: Mapping[str, Sequence[str]]
    unknown: Sequence[str]
    rows: Sequence[str]


def read_patients(path: Path, bundle: Bundle, *, drop_missing: bool = False) -> Given:
    """Complete patients of a CSV or Parquet table, or of a cohort folder, on the features of a bundle.

    In a table the first column names the patients; each other column that is a feature of the bundle holds -1, 0 or 1,
    and the rest is ignored. Features that the table lacks are an error, unless `drop_missing`, or the cohort folder
    says that it dropped them: then they leave the bundle too (spec D3).

    Raises
    ------
    CohortError : every fault by file, row and column.

    """
    if path.is_dir():
        cohort = load_cohort(path)
        known = set(bundle.features)
        unknown = [name for name in cohort.features if name not in known]
        told = set(cohort.provenance.get("dropped_features") or ())
        files = [path / name for name in (FEATURES_FILE, LABELS_FILE, CARD_FILE)]
    else:
        cells = _cells(path, "feature", bundle.features)
        values = _numbers(path, cells, {-1.0: -1, 0.0: 0, 1.0: 1}, "-1, 0 or 1")
        names = tuple(cells.names)
        nothing = pd.DataFrame(index=pd.Index(names, name=PATIENT))
        cohort = Cohort(path.stem, tuple(cells.columns), names, values.astype(np.int8), nothing)
        unknown, told, files = list(cells.unknown), set[str](), [path]
    have = set(cohort.features)
    missing = [name for name in bundle.features if name not in have]
    unsaid = [name for name in missing if name not in told]
    if len(missing) == len(bundle.features) or (unsaid and not drop_missing):
        raise CohortError(_missing_fault(path, bundle, missing, unknown, drop_missing))
    model = bundle.restrict([name for name in bundle.features if name in have])
    digests = {file.name: sha256_of(file) for file in files}
    return Given(model, _ordered(cohort, model.features), digests, unknown, missing)


def read_labels(path: Path, given: Given) -> Given:
    """The same with the labels of a CSV file: the first column names patients, the others are entities, 0, 1 or empty.

    Columns that are no entity are ignored; a patient without a row has no label.
    """
    cells = _cells(path, "entity", given.bundle.entities)
    if not cells.columns:
        step = "name the columns as `afa bundle show` does"
        raise CohortError(Fault(str(path), "no column of an entity", "at least one, with 0, 1 or nothing", step))
    values = _numbers(path, cells, {0.0: 0, 1.0: 1}, "0, 1 or nothing", blank=True)
    table = pd.DataFrame(values, index=pd.Index(cells.names, name=PATIENT), columns=list(cells.columns))
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


def _cells(path: Path, kind: str, known: Sequence[str]) -> Cells:
    """The first column, and those that are known, in the order of the file."""
    if path.suffix == ".parquet":
        cells = _parquet_cells(path, kind, set(known))
    elif path.suffix == ".csv" or not path.exists():
        cells = _csv_cells(path, kind, known)
    else:
        step = "save it as .csv or .parquet"
        raise CohortError(Fault(str(path), f"the ending {quoted(path.suffix)}", "a CSV or Parquet table", step))
    if not cells.names:
        raise CohortError(Fault(str(path), "no row", "a row for each patient", "add the patients"))
    return cells


def _csv_cells(path: Path, kind: str, known: Sequence[str]) -> Cells:
    faults = RowFaults(path)
    header = _header(path)
    if len(header) == 1:
        step = f"put commas between the fields, the patients' names first, then one column per {kind}"
        raise CohortError(Fault(f"{path}, line 1", f"one column, {quoted(header[0])}", "several columns", step))
    first, *others = header or [PATIENT]
    _check_first(path, first, kind, known)
    names = set(known)
    unknown = [name for name in others if name not in names]
    table = read_table(path, required=[first, *others], unread=unknown, faults=faults)
    name_column(table, first, faults)
    codes = pd.factorize(np.array(table.columns[first], dtype=object))[0].astype(np.int64)
    for row, earlier in enumerate(earlier_row(codes)):
        if earlier >= 0:
            found = f"{quoted(table.columns[first][row])}, as on line {table.lines[earlier]}"
            faults.add(int(table.lines[row]), first, found, "each patient once", "remove or rename the repeated row")
    if listed := faults.listed():
        raise CohortError(listed)
    columns = {name: texts for name, texts in table.columns.items() if name != first}
    return Cells(first, table.columns[first], columns, unknown, [f"line {line}" for line in table.lines])


def _header(path: Path) -> list[str]:
    """The names of the columns; none where `read_table` will say why there are none."""
    if not path.is_file():
        return []
    with path.open(encoding="utf-8-sig", errors="replace", newline="") as stream:
        try:
            return next(csv.reader(stream, strict=True), [])
        except csv.Error:
            return []


def _check_first(path: Path, first: str, kind: str, known: Collection[str]) -> None:
    if first in known:
        found = f"a first column {quoted(first)}, which is a {kind} of the bundle"
        raise CohortError(Fault(str(path), found, "the patients' names in the first column", "put them there"))


def _parquet_cells(path: Path, kind: str, known: Collection[str]) -> Cells:
    try:
        with pq.ParquetFile(path) as file:
            names, rows = list(file.schema_arrow.names), file.metadata.num_rows
            if len(names) < 2 or len(set(names)) < len(names) or rows * len(names) > LARGEST_TABLE:
                found = f"{rows} rows of {len(names)} columns, {len(set(names))} of them with names of their own"
                expected = f"two or more columns, each name once, at most {LARGEST_TABLE:,} cells"
                raise CohortError(Fault(str(path), found, expected, "write the table again"))
            _check_first(path, names[0], kind, known)
            wanted = [names[0], *(name for name in names[1:] if name in known)]
            read = file.read(columns=wanted, use_threads=False).replace_schema_metadata(None)
            table: pd.DataFrame = read.to_pandas(use_threads=False)
    except (OSError, ValueError, LookupError, TypeError, OverflowError, ArrowException) as error:
        reason = " ".join(str(error).split())[:200] or type(error).__name__
        found, step = f"what Parquet readers refuse ({reason})", "write it again, or save it as CSV"
        raise CohortError(Fault(str(path), found, "a Parquet table", step)) from error
    first = table[wanted[0]]
    for row in np.flatnonzero(first.isna() | first.duplicated())[:1]:
        found = "nothing" if first.isna().iloc[row] else f"{quoted(str(first.iloc[row]))}, as in a row before"
        where = f"{path}, row {row + 1}, column {visible(wanted[0])}"
        raise CohortError(Fault(where, found, "each patient once, by name", "put the patients' names there"))
    absent = {name: table[name].isna() for name in wanted[1:]}
    texts = {
        name: ["" if nothing else str(cell) for cell, nothing in zip(table[name], absent[name], strict=True)]
        for name in wanted[1:]
    }
    unknown = [name for name in names[1:] if name not in known]
    return Cells(wanted[0], list(map(str, first)), texts, unknown, [f"row {row + 1}" for row in range(rows)])


def _numbers(
    path: Path, cells: Cells, allowed: Mapping[float, int], expected: str, *, blank: bool = False
) -> NDArray[np.float64]:
    """(P, columns) what the cells say, NaN where nothing is said and nothing may be."""
    values = np.empty((len(cells.names), len(cells.columns)))
    wrong = np.zeros(values.shape, dtype=np.bool_)
    for place, texts in enumerate(cells.columns.values()):
        read = {text: allowed.get(_number(text), np.nan) for text in set(texts)}
        values[:, place] = [read[text] for text in texts]
        wrong[:, place] = [bool(np.isnan(read[text])) and not (blank and not text) for text in texts]
    faults = list(_cell_faults(path, cells, wrong, expected))
    if faults:
        raise CohortError(faults)
    return values


def _cell_faults(path: Path, cells: Cells, wrong: NDArray[np.bool_], expected: str) -> Iterator[Fault]:
    """The first wrong cells in the order of rows, and how many more there are."""
    names = list(cells.columns)
    places = np.argwhere(wrong)
    for row, column in places[:SHOWN]:
        text = cells.columns[names[column]][row]
        where = f"{path}, {cells.rows[row]} (patient {visible(cells.names[row])}), column {visible(names[column])}"
        step = "encode what was measured so" if text else "leave out patients who are not complete"
        yield Fault(where, quoted(text), expected, step)
    if len(places) > SHOWN:
        yield Fault(str(path), f"{len(places) - SHOWN} more such cells", expected, "mend them in the same way")


def _number(text: str) -> float:
    try:
        return np.nan if "_" in text or not text.isascii() else float(text)
    except ValueError:
        return np.nan


def _missing_fault(path: Path, bundle: Bundle, missing: Sequence[str], unknown: Sequence[str], drop: bool) -> Fault:
    """Which features the table lacks, with a column that may be the first of them under another name."""
    found = f"no column for {len(missing)} of {len(bundle.features)} features: {', '.join(missing[:5])}"
    if len(missing) > 5:
        found += ", ..."
    other_names = {alias: name for name in missing for alias in bundle.aliases.get(name, ())}
    named = next((name for name in unknown if name in other_names), None)
    if named is not None:
        step = f"rename the column {visible(named)} to {other_names[named]}"
    else:
        close = suggestion(missing[0], unknown)
        step = f"for {missing[0]}, {close}" if close.startswith("did you mean") else "add them"
    if len(missing) < len(bundle.features) and not drop:
        step += ", or leave what is missing out of the bundle too with --drop-missing"
    return Fault(str(path), found, "every feature of the bundle", step)


def _ordered(cohort: Cohort, features: Sequence[str]) -> Cohort:
    """The cohort with patients by name and features in this order."""
    patients = tuple(sorted(cohort.patients))
    values = pd.DataFrame(cohort.values, index=list(cohort.patients), columns=list(cohort.features))
    ordered = values.loc[list(patients), list(features)].to_numpy(dtype=np.int8)
    labels = cohort.labels.loc[list(patients)]
    return Cohort(cohort.name, tuple(features), patients, ordered, labels, cohort.provenance)
