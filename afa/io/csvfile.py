"""Read CSV files strictly.

Each row is stored with its line number. All errors found in a file are collected in one list.
"""

from __future__ import annotations

import csv
import difflib
import errno
import math
import re
from collections import Counter
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from itertools import islice
from operator import itemgetter
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import ArrayLike, NDArray

from afa.errors import Fault
from afa.io.files import GZIP_ERRORS, read_unpacked

if TYPE_CHECKING:
    import pandas as pd

ROWS_PER_BLOCK = 500  # larger blocks take twice as long, because they survive the first garbage collection
SHOWN_PER_KIND = 50
SHOWN_TOGETHER = 20
MOST_TEXTS = 5
"""In a brief list of errors, each group of errors has one line.

The line names at most `SHOWN_TOGETHER` rows and at most `MOST_TEXTS` different texts.
"""
MOST_CELLS = 100_000_000
"""Largest number of cells of a table. Each cell is a text in memory.

A new text needs about 60 bytes, and a repeated text needs 8 bytes.
"""
LONGEST_NAME = 200
MOST_FAULTS = 1_000
LARGEST_CELL_NUMBER = 1e100
"""Largest absolute value that is accepted. Sums and squares of larger numbers may not be finite."""
CONTROLS = re.compile(r"[\x00-\x08\x0b\x0c\x0e-\x1f\x7f-\x9f\u061c\u200e\u200f\u2028-\u202e\u2066-\u2069]")
"""Characters that control a terminal or reverse the direction of the surrounding text."""
_LINES = re.compile(r"[^\r\n]++(?:\r\n|\r|\n)?|\r\n|\r|\n")
_THOUSAND_OR_DECIMAL = re.compile(r"[-+]?\d{1,3}(,\d{3})+(\.\d+)?(?!\d)", re.ASCII)
_LONGEST_SHOWN = 60
_MOST_COMPARED = 5_000  # largest number of known names that are compared with a misspelt name


class RowFaults:
    """Object that collects the errors found in one file.

    Errors with the same column and the same expected value form a group. In a message, each of the first
    `SHOWN_PER_KIND` rows of a group has its own line, and one line counts the other rows.

    Parameters
    ----------
    path : the file, as error messages name it
    brief : put all rows of a group into one line
    names : (n_rows,) name of each row in messages; empty to use line numbers

    """

    def __init__(self, path: str | Path, brief: bool = False, names: Sequence[str] = ()) -> None:
        self.path, self.brief, self.names = str(path), brief, names
        # maps (column, expected value) to a list of errors, each given as (line, invalid text, advice)
        self._shown: dict[tuple[str, str], list[tuple[int, str, str]]] = {}
        self._count: Counter[tuple[str, str]] = Counter()

    def add(self, line: int, column: str, found: str, expected: str, next_step: str) -> None:
        """Record an error at a line, counted from 1. Line 0 means the whole file, and column "" means the whole row."""
        self._count[column, expected] += 1
        if self._count[column, expected] <= (SHOWN_TOGETHER if self.brief else SHOWN_PER_KIND):
            self._shown.setdefault((column, expected), []).append((line, found, next_step))

    def place(self, line: int) -> str:
        """Return the name of a row for messages: from `names` if given, else the text `line N`."""
        return self.names[line - 2] if self.names and line > 1 else f"line {line}"

    def listed(self) -> list[Fault]:
        """Return all errors as `Fault` objects, in line order.

        If a group has more rows than are shown, a further `Fault` counts the other rows.
        """
        numbered, unshown = list[tuple[int, Fault]](), list[Fault]()
        for (column, expected), rows in self._shown.items():
            at, count = f", column {column}" if column else "", self._count[column, expected]
            if self.brief:
                line, _, step = rows[0]
                numbered.append((line, Fault(self.path + at, self._texts_with_rows(rows, count), expected, step)))
                continue
            for line, found, step in rows:
                where = self.path + (f", {self.place(line)}" if line else "") + at
                numbered.append((line, Fault(where, found, expected, step)))
            if more := count - len(rows):
                found = f"{more} more row{'s' if more > 1 else ''} with this fault"
                step = "correct the rows named above in the same way and check again"
                unshown.append(Fault(self.path + at, found, expected, step))
        return [fault for _, fault in sorted(numbered, key=itemgetter(0))] + unshown

    def _texts_with_rows(self, rows: Sequence[tuple[int, str, str]], count: int) -> str:
        """Return the invalid texts and the rows of each text, such as `'NA' (lines 3, 7), '?' (line 9) and 40 more`."""
        lines: dict[str, list[int]] = {}
        for line, found, _ in rows:
            if found in lines or len(lines) < MOST_TEXTS:
                lines.setdefault(found, []).append(line)
        texts = []
        for found, places in lines.items():
            kinds, names = zip(*(self.place(line).split(" ", 1) for line in places), strict=True)
            where = f" ({kinds[0]}{'s' if len(places) > 1 else ''} {', '.join(names)})"
            texts.append(found + (where if places[0] else ""))
        more = count - sum(map(len, lines.values()))
        return ", ".join(texts) + (f" and {more:,} more" if more else "")


def first_of(faults: list[Fault], where: object, again: str = "try again") -> list[Fault]:
    """Return the first `MOST_FAULTS` errors, and one further `Fault` that counts the remaining errors, if any."""
    more, step = f"{len(faults) - MOST_FAULTS} more faults", f"correct those named above and {again}"
    return [*faults[:MOST_FAULTS], *([Fault(str(where), more, "none", step)] if len(faults) > MOST_FAULTS else [])]


@dataclass(frozen=True)
class CsvTable:
    """The cells of a CSV file, by column.

    Parameters
    ----------
    lines : (n_rows,) int64, the 1-based line on which each row begins
    columns : the texts (n_rows,) of each column; all are empty if the file lacks an optional column
    faults : the errors found in the file so far

    """

    lines: NDArray[np.int64]
    columns: Mapping[str, Sequence[str]]
    faults: RowFaults = field(repr=False, compare=False)

    def __len__(self) -> int:
        return len(self.lines)

    def empty(self, column: str) -> NDArray[np.bool_]:
        """Return True for each row in which the cell of `column` is empty.

        Returns
        -------
        empty : (n_rows,) bool

        """
        return ~np.fromiter(map(bool, self.columns[column]), dtype=bool, count=len(self))

    def wrong(
        self, rows: ArrayLike, column: str, expected: str, step: str, found: str | Callable[[int], str] | None = None
    ) -> None:
        """Record an error in some rows of a column.

        Parameters
        ----------
        rows : (n,) indices of rows, or (n_rows,) bool
        found : the text found, for all rows or by the index of the row; by default the text of the cell

        """
        chosen = np.asarray(rows)
        for row in (np.flatnonzero(chosen) if chosen.dtype == np.bool_ else chosen).tolist():
            said = quoted(self.columns[column][row]) if found is None else found
            self.faults.add(int(self.lines[row]), column, said if isinstance(said, str) else said(row), expected, step)

    def once(self, keys: ArrayLike, expected: str, column: str = "") -> None:
        """Record an error for each row that repeats the key of an earlier row.

        Parameters
        ----------
        keys : (n_rows,) int64; rows with a negative key are not compared

        """
        earlier = earlier_row(np.asarray(keys, dtype=np.int64))

        def found(row: int) -> str:
            said = f"{quoted(self.columns[column][row])}, as in" if column else "the same as"
            return f"{said} {self.faults.place(self.lines[earlier[row]])}"

        self.wrong(earlier >= 0, column, expected, "remove one of the two rows", found)

    def words(self, column: str, known: Sequence[str]) -> None:
        """Record an error for each row whose text in `column` is not one of the texts in `known`."""
        wrong = [row for row, word in enumerate(self.columns[column]) if word not in known]
        self.wrong(wrong, column, f"one of {', '.join(word or 'nothing' for word in known)}", "choose one of them")


def separator_of(path: str | Path) -> str:
    """Return the separator of a file: a tab for `.tsv` and `.tsv.gz`, else a comma."""
    return "\t" if str(path).removesuffix(".gz").endswith(".tsv") else ","


def read_header(path: str | Path) -> list[str]:
    """Return the names of a CSV file's columns, or an empty list if the header cannot be read."""
    text = _read_csv_text(Path(path), RowFaults(path))
    with suppress(csv.Error):
        return next(csv.reader(_split_lines(text or ""), delimiter=separator_of(path), strict=True), [])
    return []


def read_csv_table(
    path: str | Path,
    *,
    required: Sequence[str],
    optional: Sequence[str] = (),
    unread: Collection[str] = (),
    whole_rows: bool = False,
    brief: bool = False,
    shown: bool = False,
) -> CsvTable:
    """Read a UTF-8 CSV file with a header.

    The separator is a tab if the file name ends in `.tsv`, and a file whose name ends in `.gz` is decompressed. Errors
    are recorded in `CsvTable.faults`. Blank lines are skipped. A row with more fields than the header is recorded as an
    error and skipped. If the file cannot be read or lacks a required column, the table has no rows.

    Parameters
    ----------
    required, optional : names of the columns that the file must and may have
    unread : columns that are allowed but not returned
    whole_rows : a row shorter than the header is an error; by default the missing cells are empty texts
    brief : as in `RowFaults`
    shown : the texts of the file are shown on a terminal, so a control character anywhere in the file is an error

    """
    faults = RowFaults(path, brief)
    columns: dict[str, list[str]] = {column: [] for column in (*required, *optional) if column not in unread}
    lines: list[int] = []
    text = _read_csv_text(Path(path), faults)
    if text is None:
        return CsvTable(np.array(lines, dtype=np.int64), columns, faults)
    for control in CONTROLS.finditer(text) if shown else ():
        line, step = len(text[: control.start()].splitlines()) or 1, "remove it"
        faults.add(line, "", f"the control character U+{ord(control[0]):04X}", "texts that can be shown", step)
    separator = separator_of(path)
    reader = csv.reader(_split_lines(text), delimiter=separator, strict=True)
    try:
        header = next(reader, None)
        if not header:
            step = f"write the header {','.join((*required, *optional))}"
            faults.add(1 if header == [] else 0, "", "no header", "a header row", step)
        elif _header_is_usable(header, required, optional, faults, separator):
            shared: dict[str, str] = {}
            rows = _read_rows(reader, len(header), lines, faults, whole_rows)
            while block := list(islice(rows, ROWS_PER_BLOCK)):
                for name, values in zip(header, zip(*block, strict=True), strict=True):
                    if name in columns:
                        columns[name].extend(map(shared.setdefault, values, values))
    except csv.Error as error:
        faults.add(1, "", *_csv_fault_texts(error))
    texts = {name: column or [""] * len(lines) for name, column in columns.items()}
    return CsvTable(np.array(lines, dtype=np.int64), texts, faults)


def table_of_frame(
    frame: pd.DataFrame,
    where: str,
    *,
    required: Sequence[str],
    optional: Sequence[str] = (),
    names: Sequence[str] = (),
    brief: bool = False,
) -> CsvTable:
    """Return the `CsvTable` of a DataFrame, as if it were read from a CSV file with the same content.

    The values False and True become 0 and 1.

    Parameters
    ----------
    where : name of the table in messages
    names : (n_rows,) name of each row in messages
    brief : as in `RowFaults`

    """
    header, faults = list(map(str, frame.columns)), RowFaults(where, brief, names)
    rows = len(frame) if _header_is_usable(header, required, optional, faults, ",") else 0
    columns = dict.fromkeys((*required, *optional), [""] * rows)
    for number, name in enumerate(header if rows else ()):
        cells = frame.iloc[:, number]
        truth = [int(cell) if isinstance(cell, bool | np.bool_) else cell for cell in cells]
        columns[name] = ["" if gap else str(cell) for cell, gap in zip(truth, cells.isna(), strict=True)]
    return CsvTable(np.arange(2, rows + 2, dtype=np.int64), columns, faults)


def number_column(
    table: CsvTable, column: str, *, low: float = -math.inf, high: float = math.inf, empty: float | None = None
) -> NDArray[np.float64]:
    """Return the numbers of a column. An invalid cell is recorded as an error, and its number is NaN.

    A number must be finite, in [low, high], and at most `LARGEST_CELL_NUMBER` in absolute value. The argument
    `empty` is the number that replaces an empty cell. If `empty` is None, empty cells are invalid.

    Returns
    -------
    values : (n_rows,) float64

    """
    texts = table.columns[column]
    parsed = {text: parse_number(text) for text in set(texts)}
    if empty is not None:
        parsed[""] = empty
    values = np.fromiter(map(parsed.__getitem__, texts), dtype=np.float64, count=len(texts))
    with np.errstate(invalid="ignore"):
        beyond = np.isfinite(values) & (np.abs(values) > LARGEST_CELL_NUMBER)
        wrong = ~(np.isfinite(values) & (values >= low) & (values <= high)) | beyond
    if empty is not None:
        wrong &= ~table.empty(column)
    expected = "a finite number"
    if math.isfinite(low):
        expected = f"a number in [{low:g}, {high:g}]" if math.isfinite(high) else f"a finite number >= {low:g}"
    for rows, size in ((wrong & ~beyond, ""), (wrong & beyond, f", at most {LARGEST_CELL_NUMBER:g} in size")):
        table.wrong(rows, column, expected + size, "correct the number")
    return np.where(wrong, np.nan, values) + 0.0


def name_column(
    table: CsvTable, column: str, known: Mapping[str, int] | None = None, known_from: str = ""
) -> NDArray[np.int64]:
    """Return the index in `known` of each name in a column.

    An invalid name is recorded as an error, and its index is -1. A name is invalid if it is empty, is longer than
    `LONGEST_NAME`, has spaces around it, or contains invisible characters.

    Parameters
    ----------
    known : index by name; a name that is not a key is invalid. Without `known` every valid name gets index 0
    known_from : where the known names are listed, for the error message

    Returns
    -------
    indices : (n_rows,) int64

    """
    texts, unknown = table.columns[column], 0
    steps: dict[str, tuple[str, str]] = {}
    indices: dict[str, int] = {}
    for text in dict.fromkeys(texts):
        indices[text] = -1
        if not text.strip():
            steps[text] = ("a name", "write the name or remove the row")
        elif text != text.strip() or not text.isprintable():
            steps[text] = ("a name without spaces around it or invisible characters", f"write {visible(text)}")
        elif len(text) > LONGEST_NAME:
            steps[text] = (f"a name of at most {LONGEST_NAME} characters", "shorten it everywhere")
        elif known is not None and text not in known:
            unknown += 1
            near = known if unknown <= SHOWN_PER_KIND else ()  # further errors are not shown
            steps[text] = (f"a name {known_from}", suggestion(text, near, "correct the name or remove the row"))
        else:
            indices[text] = 0 if known is None else known[text]
    codes = np.fromiter(map(indices.__getitem__, texts), dtype=np.int64, count=len(texts))
    for row in np.flatnonzero(codes < 0).tolist():
        table.wrong([row], column, *steps[texts[row]])
    return codes


def is_name(text: str) -> bool:
    """Return True if a text is a valid name: printable, not empty, not too long, and without spaces around it."""
    return bool(text) and text == text.strip() and text.isprintable() and len(text) <= LONGEST_NAME


def earlier_row(keys: NDArray[np.int64]) -> NDArray[np.int64]:
    """Return, for each row, the index of the first row with the same key.

    Parameters
    ----------
    keys : (n_rows,) int64

    Returns
    -------
    earlier : (n_rows,) int64, -1 for the first row of each key and for rows with a negative key

    """
    _, first, group = np.unique(keys, return_index=True, return_inverse=True)
    return np.where((first[group] == np.arange(len(keys))) | (keys < 0), -1, first[group]).astype(np.int64)


def suggestion(name: str, known: Iterable[str], otherwise: str = "correct the name") -> str:
    """Return advice on an unknown name: the most similar known name, or `otherwise` if no known name is similar."""
    near = islice(known, _MOST_COMPARED) if len(name) <= LONGEST_NAME else ()
    folded = {other.casefold(): other for other in near}
    close = difflib.get_close_matches(name.casefold(), list(folded), n=1)
    return f"did you mean {folded[close[0]]}" if close else otherwise


def visible(text: str) -> str:
    """Return a text without invisible characters and surrounding spaces, shortened if it is long."""
    shown = "".join(filter(str.isprintable, text)).strip()
    return shown if len(shown) <= _LONGEST_SHOWN else shown[: _LONGEST_SHOWN - 3] + "..."


def first_names(names: Iterable[str]) -> str:
    """Return the first five names as one text, with "..." if there are more."""
    listed = list(names)
    return ", ".join(map(visible, listed[:5])) + (", ..." if len(listed) > 5 else "")


def quoted(text: str) -> str:
    """Return a text in quotes, shortened if it is long, for an error message. An empty text becomes "nothing"."""
    short = repr(text) if len(text) <= _LONGEST_SHOWN else repr(text[: _LONGEST_SHOWN - 3]) + "..."
    return short if text else "nothing"


def _read_csv_text(path: Path, faults: RowFaults) -> str | None:
    line = 0
    try:
        data = read_unpacked(path)
        rows = max(data.count(b"\n"), data.count(b"\r")) + 1
        first = min(end if end >= 0 else len(data) for end in map(data.find, (b"\n", b"\r")))
        columns = data.count(separator_of(path).encode(), 0, first) + 1
        if rows * columns > MOST_CELLS:
            found = f"{rows:,} lines of {columns:,} fields"
            wrong = found, f"at most {MOST_CELLS:,} cells", "split the table, or leave out columns"
        elif b"\0" in data:
            wrong = "binary data", "a text file with comma-separated values", "save it as CSV in UTF-8"
        else:
            return data.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        line = data[: error.start].count(b"\n") + 1
        wrong = f"bytes that are not UTF-8 ({error.reason})", "UTF-8 text", "save it as UTF-8"
    except GZIP_ERRORS as error:
        wrong = f"what gzip refuses ({error})", "a packed text", "pack or fetch it again"
    except OSError as error:
        wrong = error.strerror or "an error", "a readable file", "check the path"
        if error.errno == errno.EFBIG:
            wrong = str(error.strerror), "a smaller table", "split it, or allow more if it is the right one"
    faults.add(line, "", *wrong)
    return None


def _split_lines(text: str) -> Iterator[str]:
    """Yield the lines of a text without copying the whole text. Each line keeps its line end (LF, CR or CR LF)."""
    return (line[0] for line in _LINES.finditer(text))


def _header_is_usable(
    header: Sequence[str], required: Sequence[str], optional: Sequence[str], faults: RowFaults, separator: str
) -> bool:
    known = (*required, *optional)
    if len(header) == 1 and (mark := next((mark for mark in ";\t|," if mark in header[0]), None)):
        wanted = "commas" if separator == "," else "tabs"
        faults.add(1, "", f"columns separated by {mark!r}", f"columns separated by {wanted}", f"save it with {wanted}")
        return False
    missing = [column for column in required if column not in header]
    repeated = [name for name, count in Counter(header).items() if count > 1]
    for column in repeated[:SHOWN_PER_KIND]:
        found, step = f"{header.count(column)} columns of this name", "remove the others"
        if not visible(column):
            places = [str(place) for place, name in enumerate(header, 1) if name == column]
            found, step = (
                f"{len(places)} columns without a name, the columns {first_names(places)}",
                "name or remove them",
            )
        faults.add(1, visible(column), found, "one", step)
    for column in missing:
        faults.add(1, column, "no such column", "the column", f"add it; the header is {','.join(known)}")
    unknown = [name for name in dict.fromkeys(header) if name not in known]
    for column in unknown[:SHOWN_PER_KIND]:
        lacking = [name for name in known if name not in header] if len(column) <= LONGEST_NAME else []
        close = difflib.get_close_matches(column, lacking, n=1)
        step = f"rename it to {close[0]}" if close else f"remove it; known columns: {', '.join(known)}"
        faults.add(1, visible(column) or '""', "an unknown column", "only known columns", step)
    if len(unknown) > SHOWN_PER_KIND:
        faults.add(1, "", f"{len(unknown)} unknown columns", ", ".join(known), "remove the others")
    return not missing and len(set(header)) == len(header)


def _read_rows(
    reader: Iterator[list[str]], width: int, lines: list[int], faults: RowFaults, whole: bool
) -> Iterator[list[str]]:
    """Yield the rows as lists of `width` fields, up to the first text that is not valid CSV.

    The number of each row's first line is appended to `lines`.
    """
    begin = reader.line_num + 1  # type: ignore[attr-defined]
    try:
        for row in reader:
            if len(row) > width or (row and whole and len(row) < width):
                expected, step = f"all {width} of the header", "complete the row: the file may have been cut short"
                if len(row) > width:
                    expected, step = f"{width}, as in the header", "put a text that holds a comma in quotes"
                faults.add(begin, "", f"{len(row)} fields", expected, step)
            elif row:
                lines.append(begin)
                yield row if len(row) == width else row + [""] * (width - len(row))
            begin = reader.line_num + 1  # type: ignore[attr-defined]
    except csv.Error as error:
        # Report the line on which the row begins, because the parser notices an open quote only at the end of the file.
        faults.add(begin, "", *_csv_fault_texts(error))


def _csv_fault_texts(error: csv.Error) -> tuple[str, str, str]:
    return f"text that is not CSV ({error})", "CSV rows", "check the quotes of that row"


def parse_number(text: str) -> float:
    """Return the number in a cell, or NaN. Digits other than 0 to 9, and forms such as `1_000`, are not accepted."""
    try:
        return math.nan if "_" in text or not text.isascii() else float(text)
    except ValueError:
        return math.nan


def numbers_with_commas(text: str) -> list[str]:
    """Return the possible meanings of a number with a comma, such as `1,058`. For other texts, return an empty list.

    >>> numbers_with_commas("1,058 K"), numbers_with_commas("1,058.5"), numbers_with_commas("1,5")
    (['1058', '1.058'], ['1058.5'], [])
    """
    found = _THOUSAND_OR_DECIMAL.match(text)
    if found is None:
        return []
    either = [found[0].replace(",", "")]
    if found[0].count(",") == 1 and "." not in found[0]:
        either.append(found[0].replace(",", "."))
    return either
