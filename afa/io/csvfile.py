"""CSV files read strictly: every row keeps its line number, and every fault is collected before any is raised."""

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

ROWS_PER_BLOCK = 500  # larger blocks outlive the young generation of the garbage collector and read half as fast
SHOWN_PER_KIND = 50
SHOWN_TOGETHER = 20
MOST_TEXTS = 5
"""Rows, and different texts in them, that the one line of a brief list of faults shows at most."""
MOST_CELLS = 100_000_000
"""Cells of a table, which are texts in memory: 8 bytes each where they repeat, and about 60 where they do not."""
LONGEST_NAME = 200
MOST_FAULTS = 1_000
LARGEST = 1e100
"""Of larger numbers neither sums nor squares are sure to be finite."""
CONTROLS = re.compile(r"[\x00-\x08\x0b\x0c\x0e-\x1f\x7f-\x9f\u061c\u200e\u200f\u2028-\u202e\u2066-\u2069]")
"""Characters that steer a terminal, or turn the direction of what is written around them."""
_LINES = re.compile(r"[^\r\n]++(?:\r\n|\r|\n)?|\r\n|\r|\n")
_LONGEST_SHOWN = 60
_MOST_COMPARED = 5_000  # names that a wrong one is compared with: more would take seconds for each


class RowFaults:
    """The faults of one file, in line order.

    Of the rows with the same fault in the same column the first `SHOWN_PER_KIND` have a line each and the rest are
    counted in one, so that a wrong column of a million rows stays readable. brief : they have one line together.
    names : what each row is called, in place of its line.
    """

    def __init__(self, path: str | Path, brief: bool = False, names: Sequence[str] = ()) -> None:
        self.path, self.brief, self.names = str(path), brief, names
        self._shown: dict[tuple[str, str], list[tuple[int, str, str]]] = {}  # line, found, next step
        self._count: Counter[tuple[str, str]] = Counter()

    def add(self, line: int, column: str, found: str, expected: str, next_step: str) -> None:
        """Note a fault at a 1-based line; `line` 0 means the whole file, `column` "" the whole row."""
        self._count[column, expected] += 1
        if self._count[column, expected] <= (SHOWN_TOGETHER if self.brief else SHOWN_PER_KIND):
            self._shown.setdefault((column, expected), []).append((line, found, next_step))

    def place(self, line: int) -> str:
        """What the row at a line is called."""
        return self.names[line - 2] if self.names and line > 1 else f"line {line}"

    def listed(self) -> list[Fault]:
        """All faults in line order, followed by one for each kind that was cut short."""
        numbered, unshown = list[tuple[int, Fault]](), list[Fault]()
        for (column, expected), rows in self._shown.items():
            at, count = f", column {column}" if column else "", self._count[column, expected]
            if self.brief:
                line, _, step = rows[0]
                numbered.append((line, Fault(self.path + at, self._together(rows, count), expected, step)))
                continue
            for line, found, step in rows:
                where = self.path + (f", {self.place(line)}" if line else "") + at
                numbered.append((line, Fault(where, found, expected, step)))
            if more := count - len(rows):
                found = f"{more} more row{'s' if more > 1 else ''} with this fault"
                step = "correct the rows named above in the same way and check again"
                unshown.append(Fault(self.path + at, found, expected, step))
        return [fault for _, fault in sorted(numbered, key=itemgetter(0))] + unshown

    def _together(self, rows: Sequence[tuple[int, str, str]], count: int) -> str:
        """What there is, with the rows on which each stands: `'NA' (lines 3, 7), '?' (line 9) and 40 more`."""
        lines: dict[str, list[int]] = {}
        for line, found, _ in rows:
            if found in lines or len(lines) < MOST_TEXTS:
                lines.setdefault(found, []).append(line)
        texts = []
        for found, places in lines.items():
            kinds, names = zip(*(self.place(line).split(" ", 1) for line in places), strict=True)
            standing = f" ({kinds[0]}{'s' if len(places) > 1 else ''} {', '.join(names)})"
            texts.append(found + (standing if places[0] else ""))
        more = count - sum(map(len, lines.values()))
        return ", ".join(texts) + (f" and {more:,} more" if more else "")


def first_of(faults: list[Fault], where: object, again: str = "try again") -> list[Fault]:
    """The first `MOST_FAULTS` of many faults, and a line that counts the others."""
    more, step = f"{len(faults) - MOST_FAULTS} more faults", f"correct those named above and {again}"
    return [*faults[:MOST_FAULTS], *([Fault(str(where), more, "none", step)] if len(faults) > MOST_FAULTS else [])]


@dataclass(frozen=True)
class CsvTable:
    """The rows of a CSV file by column; `lines` (n_rows,) is the 1-based line on which each row begins.

    A column of the format that the file does not have is all empty texts. faults : what is wrong with the file so far.
    """

    lines: NDArray[np.int64]
    columns: Mapping[str, Sequence[str]]
    faults: RowFaults = field(repr=False, compare=False)

    def __len__(self) -> int:
        return len(self.lines)

    def empty(self, column: str) -> NDArray[np.bool_]:
        """(n_rows,) where a column says nothing."""
        return ~np.fromiter(map(bool, self.columns[column]), dtype=bool, count=len(self))

    def wrong(
        self, rows: ArrayLike, column: str, expected: str, step: str, found: str | Callable[[int], str] | None = None
    ) -> None:
        """Note a fault of some rows (indices, or truth values of all): what the column holds, or what `found` says."""
        chosen = np.asarray(rows)
        for row in (np.flatnonzero(chosen) if chosen.dtype == np.bool_ else chosen).tolist():
            said = quoted(self.columns[column][row]) if found is None else found
            self.faults.add(int(self.lines[row]), column, said if isinstance(said, str) else said(row), expected, step)

    def once(self, keys: ArrayLike, expected: str, column: str = "") -> None:
        """Note a fault of each row whose key (n_rows,) an earlier row has; a negative key is none."""
        earlier = earlier_row(np.asarray(keys, dtype=np.int64))

        def found(row: int) -> str:
            said = f"{quoted(self.columns[column][row])}, as in" if column else "the same as"
            return f"{said} {self.faults.place(self.lines[earlier[row]])}"

        self.wrong(earlier >= 0, column, expected, "remove one of the two rows", found)

    def words(self, column: str, known: Sequence[str]) -> None:
        """Note a fault of each row whose word is not among those known; an empty text may be one of them."""
        wrong = [row for row, word in enumerate(self.columns[column]) if word not in known]
        self.wrong(wrong, column, f"one of {', '.join(word or 'nothing' for word in known)}", "choose one of them")


def separator_of(path: str | Path) -> str:
    """A tab for `.tsv`, else a comma; `.gz` behind it does not matter."""
    return "\t" if str(path).removesuffix(".gz").endswith(".tsv") else ","


def read_header(path: str | Path) -> list[str]:
    """The names of the columns; none where `read_table` will say why there are none."""
    text = _text_of(Path(path), RowFaults(path))
    with suppress(csv.Error):
        return next(csv.reader(_lines(text or ""), delimiter=separator_of(path), strict=True), [])
    return []


def read_table(
    path: str | Path,
    *,
    required: Sequence[str],
    optional: Sequence[str] = (),
    unread: Collection[str] = (),
    whole_rows: bool = False,
    brief: bool = False,
    shown: bool = False,
) -> CsvTable:
    """Read a UTF-8 CSV file (`.tsv`: tabs; `.gz`: packed) with a header; what is wrong with it is in its `faults`.

    Columns in `unread` are allowed but not kept. Blank lines are skipped, a row shorter than the header is filled
    with empty texts, or with `whole_rows` a fault, and a row longer than the header is a fault and left out. A file
    that cannot be read, or lacks a required column, gives a table without rows. brief : of `RowFaults`. shown : its
    texts are shown on a terminal: a control character anywhere in the file is a fault.
    """
    faults = RowFaults(path, brief)
    columns: dict[str, list[str]] = {column: [] for column in (*required, *optional) if column not in unread}
    lines: list[int] = []
    text = _text_of(Path(path), faults)
    if text is None:
        return CsvTable(np.array(lines, dtype=np.int64), columns, faults)
    for control in CONTROLS.finditer(text) if shown else ():
        line, step = len(text[: control.start()].splitlines()) or 1, "remove it"
        faults.add(line, "", f"the control character U+{ord(control[0]):04X}", "texts that can be shown", step)
    separator = separator_of(path)
    reader = csv.reader(_lines(text), delimiter=separator, strict=True)
    try:
        header = next(reader, None)
        if not header:
            step = f"write the header {','.join((*required, *optional))}"
            faults.add(1 if header == [] else 0, "", "no header", "a header row", step)
        elif _header_is_usable(header, required, optional, faults, separator):
            shared: dict[str, str] = {}
            rows = _rows(reader, len(header), lines, faults, whole_rows)
            while block := list(islice(rows, ROWS_PER_BLOCK)):
                for name, values in zip(header, zip(*block, strict=True), strict=True):
                    if name in columns:
                        columns[name].extend(map(shared.setdefault, values, values))
    except csv.Error as error:
        faults.add(1, "", *_no_csv(error))
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
    """A table in memory as the CSV file that it would be; truth values are 0 and 1.

    where, names : what it and each row is called in faults. brief : of `RowFaults`.
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
    """The numbers (n_rows,) of a column within [low, high] and of at most `LARGEST`; NaN where faulty.

    An empty text counts as `empty` where that is given, and as a fault otherwise.
    """
    texts = table.columns[column]
    parsed = {text: number(text) for text in set(texts)}
    if empty is not None:
        parsed[""] = empty
    values = np.fromiter(map(parsed.__getitem__, texts), dtype=np.float64, count=len(texts))
    with np.errstate(invalid="ignore"):
        beyond = np.isfinite(values) & (np.abs(values) > LARGEST)
        wrong = ~(np.isfinite(values) & (values >= low) & (values <= high)) | beyond
    if empty is not None:
        wrong &= ~table.empty(column)
    expected = "a finite number"
    if math.isfinite(low):
        expected = f"a number in [{low:g}, {high:g}]" if math.isfinite(high) else f"a finite number >= {low:g}"
    for rows, size in ((wrong & ~beyond, ""), (wrong & beyond, f", at most {LARGEST:g} in size")):
        table.wrong(rows, column, expected + size, "correct the number")
    return np.where(wrong, np.nan, values) + 0.0


def name_column(
    table: CsvTable, column: str, known: Mapping[str, int] | None = None, known_from: str = ""
) -> NDArray[np.int64]:
    """The indices (n_rows,) in `known` of a column of names; -1 where faulty.

    A name must not be empty, longer than `LONGEST_NAME`, have spaces around it or hold invisible characters. With
    `known` it must be one of its keys; `known_from` says in a fault where those are listed. Without `known` every
    sound name gets index 0.
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
            near = known if unknown <= SHOWN_PER_KIND else ()  # no more of them are shown
            steps[text] = (f"a name {known_from}", suggestion(text, near, "correct the name or remove the row"))
        else:
            indices[text] = 0 if known is None else known[text]
    codes = np.fromiter(map(indices.__getitem__, texts), dtype=np.int64, count=len(texts))
    for row in np.flatnonzero(codes < 0).tolist():
        table.wrong([row], column, *steps[texts[row]])
    return codes


def is_name(text: str) -> bool:
    """Whether a text can name something: printable, not empty, not too long, without spaces around it."""
    return bool(text) and text == text.strip() and text.isprintable() and len(text) <= LONGEST_NAME


def earlier_row(keys: NDArray[np.int64]) -> NDArray[np.int64]:
    """For each key (n_rows,), the first row with the same key; -1 for that row itself and for negative keys."""
    _, first, group = np.unique(keys, return_index=True, return_inverse=True)
    return np.where((first[group] == np.arange(len(keys))) | (keys < 0), -1, first[group]).astype(np.int64)


def suggestion(name: str, known: Iterable[str], otherwise: str = "correct the name") -> str:
    """The next step for a name that is not among the known ones: the nearest, or where none is near another step."""
    near = islice(known, _MOST_COMPARED) if len(name) <= LONGEST_NAME else ()
    folded = {other.casefold(): other for other in near}
    close = difflib.get_close_matches(name.casefold(), list(folded), n=1)
    return f"did you mean {folded[close[0]]}" if close else otherwise


def visible(text: str) -> str:
    """A text without its invisible characters and the spaces around it, cut where it is long."""
    shown = "".join(filter(str.isprintable, text)).strip()
    return shown if len(shown) <= _LONGEST_SHOWN else shown[: _LONGEST_SHOWN - 3] + "..."


def few(names: Iterable[str]) -> str:
    """The first names of many, for a sentence."""
    listed = list(names)
    return ", ".join(map(visible, listed[:5])) + (", ..." if len(listed) > 5 else "")


def quoted(text: str) -> str:
    """A short rendering of a text for a fault; an empty one reads "nothing"."""
    short = repr(text) if len(text) <= _LONGEST_SHOWN else repr(text[: _LONGEST_SHOWN - 3]) + "..."
    return short if text else "nothing"


def _text_of(path: Path, faults: RowFaults) -> str | None:
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


def _lines(text: str) -> Iterator[str]:
    """Yield the lines of a text, each with its line end (LF, CR or CR LF), without copying the whole text."""
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
            found, step = f"{len(places)} columns without a name, the columns {few(places)}", "name or remove them"
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


def _rows(
    reader: Iterator[list[str]], width: int, lines: list[int], faults: RowFaults, whole: bool
) -> Iterator[list[str]]:
    """Rows of exactly `width` fields, up to one that is not CSV; appends the line on which each begins to `lines`."""
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
        # By the line on which the row begins: an open quote is noticed at the end of the file.
        faults.add(begin, "", *_no_csv(error))


def _no_csv(error: csv.Error) -> tuple[str, str, str]:
    return f"text that is not CSV ({error})", "CSV rows", "check the quotes of that row"


def number(text: str) -> float:
    """The number that a cell holds, NaN where it holds none; digits of other scripts and `1_000` are none."""
    try:
        return math.nan if "_" in text or not text.isascii() else float(text)
    except ValueError:
        return math.nan
