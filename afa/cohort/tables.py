"""Tables of patients as people have them: CSV, TSV or Parquet, a row a patient, whose name is the first column.

Every fault of a table is found before any is raised, and each is one line, however many rows share it.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pandas as pd
import pyarrow.parquet as pq
from numpy.typing import NDArray
from pyarrow import ArrowException

from afa.cohort.cohort import LARGEST_TABLE, PATIENT
from afa.csvfile import LONGEST_NAME, RowFaults, number, quoted, read_header, read_table, visible
from afa.errors import CohortError, Fault

ENDINGS = (".csv", ".tsv", ".csv.gz", ".tsv.gz", ".parquet")
SHOWN = 20
"""Rows that one line names at most; the others are counted."""
MOST_TEXTS = 5
"""Different texts that one line shows at most."""


class Cells(NamedTuple):
    """A table as texts: `names` (P,) of the first column, `columns` by name; `rows` (P,) says where each row stands."""

    first: str
    names: Sequence[str]
    columns: Mapping[str, Sequence[str]]
    unknown: Sequence[str]
    rows: Sequence[str]


def read_cells(path: Path, kind: str, known: Sequence[str], others: Collection[str] = ()) -> Cells:
    """The first column of a table, and those that are known or named by `others`, in the order of the file.

    `path` has one of the `ENDINGS`; `kind` is what a column is called in messages, such as `feature`. A table that
    cannot be read, or names a patient twice, is a `CohortError` with every such fault.
    """
    if not path.name.endswith(ENDINGS) and path.exists():
        expected, step = "a CSV, TSV or Parquet table", f"save it with one of the endings {', '.join(ENDINGS)}"
        raise CohortError(Fault(str(path), f"the ending {quoted(path.suffix)}", expected, step))
    wanted = {*known, *others}
    if path.suffix == ".parquet":
        cells = _parquet_cells(path, kind, set(known), wanted)
    else:
        cells = _csv_cells(path, kind, set(known), wanted)
    if not cells.names:
        raise CohortError(Fault(str(path), "no row", "a row for each patient", "add the patients"))
    return cells


def numbers_of(path: Path | str, cells: Cells, columns: Sequence[str]) -> tuple[NDArray[np.float64], list[Fault]]:
    """(P, columns) The numbers of these columns, NaN where a cell is empty or holds none; and what is wrong.

    A row that holds only words, such as a row of units or a second header, is one fault; so is a column's text in
    place of numbers, which names the first rows.
    """
    values = np.full((len(cells.names), len(columns)), np.nan)
    wrong = np.zeros(values.shape, dtype=np.bool_)
    filled = np.zeros(values.shape, dtype=np.bool_)
    for place, name in enumerate(columns):
        texts = cells.columns[name]
        read = {text: number(text) for text in set(texts)}
        values[:, place] = np.fromiter(map(read.__getitem__, texts), dtype=np.float64, count=len(texts))
        filled[:, place] = np.fromiter((bool(text.strip()) for text in texts), dtype=bool, count=len(texts))
        wrong[:, place] = filled[:, place] & ~np.isfinite(values[:, place])
    words = wrong.sum(axis=1)
    whole = (words >= 2) & (words == filled.sum(axis=1)) & (words * 2 > len(columns))
    faults = []
    for row in np.flatnonzero(whole)[:SHOWN]:
        texts = [cells.columns[name][row] for name in columns if cells.columns[name][row].strip()]
        found = f"{len(texts)} texts and no number, such as {quoted(texts[0])} and {quoted(texts[1])}"
        step = "remove the row; units belong into features.csv, a second header nowhere"
        faults.append(Fault(f"{path}, {cells.rows[row]}", found, "the numbers of a patient", step))
    for place, name in enumerate(columns):
        rows = np.flatnonzero(wrong[:, place] & ~whole)
        if rows.size:
            texts = cells.columns[name]
            faults.append(cells_fault(path, cells, name, rows, "a finite number, or nothing", _step(texts[rows[0]])))
    return np.where(np.isfinite(values), values, np.nan), faults


def cells_fault(path: Path | str, cells: Cells, column: str, rows: Iterable[int], expected: str, step: str) -> Fault:
    """One line for cells of one column, which names the first rows."""
    rows = [int(row) for row in rows]
    found = _listed([cells.columns[column][row] for row in rows], [cells.rows[row] for row in rows])
    return Fault(f"{path}, column {visible(column)}", found, expected, step)


def cells_of_frame(frame: pd.DataFrame, where: str) -> Cells:
    """The cells of a DataFrame whose index names the patients; the faults of its names are `CohortError`s."""
    faults = [*_name_faults(where, PATIENT, list(map(str, frame.index)), [f"row {n + 1}" for n in range(len(frame))])]
    twice = [name for name, count in Counter(map(str, frame.columns)).items() if count > 1]
    faults += [
        Fault(f"{where}, column {visible(name)}", "several such columns", "one", "rename them") for name in twice
    ]
    if faults:
        raise CohortError(faults)
    columns = {str(name): _texts(frame[name]) for name in frame.columns}
    return Cells(PATIENT, list(map(str, frame.index)), columns, [], [f"row {row + 1}" for row in range(len(frame))])


def _csv_cells(path: Path, kind: str, known: Collection[str], wanted: Collection[str]) -> Cells:
    faults = RowFaults(path, most=1)
    header = read_header(path)
    if len(header) == 1 and not any(mark in header[0] for mark in ";\t|,"):
        step = f"put commas between the fields, the patients' names first, then one column per {kind}"
        raise CohortError(Fault(f"{path}, line 1", f"one column, {quoted(header[0])}", "several columns", step))
    first, *others = header or [PATIENT]
    _check_first(path, first, kind, known)
    unread = [name for name in others if name not in wanted]
    table = read_table(path, required=[first, *others], unread=unread, whole_rows=True, faults=faults)
    names, rows = table.columns[first], [f"line {line}" for line in table.lines]
    if listed := [*faults.listed(), *_name_faults(str(path), first, names, rows)]:
        raise CohortError(listed)
    columns = {name: texts for name, texts in table.columns.items() if name != first}
    return Cells(first, names, columns, [name for name in others if name not in known], rows)


def _check_first(path: Path, first: str, kind: str, known: Collection[str]) -> None:
    if first in known:
        found = f"a first column {quoted(first)}, which is a {kind}"
        raise CohortError(Fault(str(path), found, "the patients' names in the first column", "put them there"))


def _parquet_cells(path: Path, kind: str, known: Collection[str], wanted: Collection[str]) -> Cells:
    try:
        with pq.ParquetFile(path) as file:
            names, rows = list(file.schema_arrow.names), file.metadata.num_rows
            if len(names) < 2 or len(set(names)) < len(names) or rows * len(names) > LARGEST_TABLE:
                found = f"{rows} rows of {len(names)} columns, {len(set(names))} of them with names of their own"
                expected = f"two or more columns, each name once, at most {LARGEST_TABLE:,} cells"
                raise CohortError(Fault(str(path), found, expected, "write the table again"))
            _check_first(path, names[0], kind, known)
            read = file.read(columns=[names[0], *(name for name in names[1:] if name in wanted)], use_threads=False)
            table: pd.DataFrame = read.replace_schema_metadata(None).to_pandas(use_threads=False)
    except (OSError, ValueError, LookupError, TypeError, OverflowError, ArrowException) as error:
        reason = " ".join(str(error).split())[:200] or type(error).__name__
        found, step = f"what Parquet readers refuse ({reason})", "write it again, or save it as CSV"
        raise CohortError(Fault(str(path), found, "a Parquet table", step)) from error
    first, places = _texts(table[names[0]]), [f"row {row + 1}" for row in range(rows)]
    if listed := list(_name_faults(str(path), names[0], first, places)):
        raise CohortError(listed)
    texts = {str(name): _texts(table[name]) for name in table.columns[1:]}
    return Cells(names[0], first, texts, [name for name in names[1:] if name not in known], places)


def _texts(column: pd.Series[Any]) -> list[str]:
    """The cells as a CSV file would hold them; truth values as 0 and 1."""
    if column.dtype == np.bool_:
        column = column.astype(np.int8)
    absent = column.isna()
    return ["" if nothing else _text(cell) for cell, nothing in zip(column, absent, strict=True)]


def _text(cell: object) -> str:
    return str(int(cell)) if isinstance(cell, bool | np.bool_) else str(cell)


def _name_faults(where: str, column: str, names: Sequence[str], rows: Sequence[str]) -> Iterator[Fault]:
    """One line for names that are none, one for those that stand twice."""
    strange = [row for row, name in enumerate(names) if not _is_name(name)]
    if strange:
        found = _listed([names[row] for row in strange], [rows[row] for row in strange])
        expected = "a patient's name, printable, without spaces around it"
        yield Fault(f"{where}, column {visible(column)}", found, expected, "name each patient, or remove the rows")
    counts = Counter(names)
    twice = [row for row, name in enumerate(names) if counts[name] > 1 and _is_name(name)]
    if twice:
        found = _listed([names[row] for row in twice], [rows[row] for row in twice])
        where = f"{where}, column {visible(column)}"
        yield Fault(where, found, "each patient once", "remove or rename the repeated rows")


def _is_name(text: str) -> bool:
    return bool(text) and text == text.strip() and text.isprintable() and len(text) <= LONGEST_NAME


def _listed(texts: Sequence[str], rows: Sequence[str]) -> str:
    """Texts with the rows on which each stands: `'NA' (lines 3, 7), '?' (line 9) and 40 more`."""
    by_text: dict[str, list[str]] = {}
    for text, row in list(zip(texts, rows, strict=True))[:SHOWN]:
        if text in by_text or len(by_text) < MOST_TEXTS:
            by_text.setdefault(text, []).append(row)
    shown = []
    for text, places in by_text.items():
        word = places[0].partition(" ")[0] + ("s" if len(places) > 1 else "")
        shown.append(f"{quoted(text)} ({word} {', '.join(place.partition(' ')[2] for place in places)})")
    more = len(texts) - sum(map(len, by_text.values()))
    return ", ".join(shown) + (f" and {more:,} more" if more else "")


def _step(text: str) -> str:
    """What to do about a text in place of a number."""
    pointed = text.strip().replace(",", ".")
    if "," in text and pointed.count(".") == 1 and np.isfinite(number(pointed)):
        return f"write {pointed}: a decimal point, and no comma"
    if np.isinf(number(text)):
        return "leave it empty where nothing was measured"
    return "write the number alone, without a unit or a bound, or leave it empty where nothing was measured"
