"""GEO's series matrix: a header of `!Series_` and `!Sample_` lines, then a table that may have no rows.

No original series matrix could be had when this was written; it follows GEO's documented layout and files generated in
that layout. Cells are in double quotes, which GEO does not escape reliably: a cell ends at a quote before a tab.
"""

from __future__ import annotations

import io
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

import pandas as pd
import pyarrow as pa
import pyarrow.csv as pa_csv

from afa.cohort.archive import GZIP_ERRORS, open_binary
from afa.csvfile import quoted
from afa.errors import CohortError, Fault

_MISSING = ["", "NA", "NaN", "nan", "null", "NULL"]
_AGAIN = "fetch the file again"
_LONGEST_LINE = 64 << 20
_LARGEST_HEADER = 256 << 20


@dataclass(frozen=True)
class SeriesMatrix:
    """What a series matrix holds.

    `series`: header key without `!Series_` -> its cells, in file order; `samples`: as `samples_frame` gives them;
    `table`: row id x accession, float64, missing as NaN, possibly without rows; None where it was not asked for.
    """

    series: dict[str, list[str]]
    samples: pd.DataFrame
    table: pd.DataFrame | None


def read_series_matrix(path: Path, *, with_table: bool = True) -> SeriesMatrix:
    """Read a series matrix, gzip or plain; a `CohortError` names the line where it breaks the layout or ends early."""
    series: dict[str, list[str]] = {}
    fields: dict[str, list[str]] = {}
    characteristics: list[list[str]] = []
    table: _Table | None = None
    ended = False
    number = size = 0
    for number, line in _lines(path):
        if ended or not line:
            continue
        size = _checked_size(path, number, size + len(line) * (table is None))
        name, _, rest = line.partition("\t")
        if table is not None:
            ended = name.lower() == "!series_matrix_table_end"
            if not ended:
                table.add(number, line)
        elif name.lower() == "!series_matrix_table_begin":
            table = _Table(path, keep=with_table)
        elif name.startswith("!Series_"):
            series.setdefault(name.removeprefix("!Series_"), []).extend(_cells(rest))
        elif name.startswith("!Sample_"):
            cells = _cells(rest)
            expected = len(next(iter(fields.values()), cells))
            if len(cells) != expected:
                raise _fault(path, number, f"{len(cells)} cells", f"{expected}, one for each sample")
            fields.setdefault(name.removeprefix("!Sample_"), cells)
            if name.startswith("!Sample_characteristics_ch1"):
                characteristics.append(cells)
        elif not name.startswith("!"):
            raise _fault(path, number, repr(line[:40]), "a line that starts with ! before the table")
    if table is None or not ended:
        missing = "!series_matrix_table_begin" if table is None else "!series_matrix_table_end"
        raise _fault(path, number, f"the end of the file without {missing}", "the whole file")
    accessions = fields.get("geo_accession")
    if accessions is None:
        raise _fault(path, number, "no !Sample_geo_accession line", "one that names the samples")
    titles = fields.get("title", [""] * len(accessions))
    cells_by_sample = [[row[i] for row in characteristics] for i in range(len(accessions))]
    samples = samples_frame(path, accessions, titles, cells_by_sample)
    return SeriesMatrix(series, samples, table.frame(accessions) if with_table else None)


def _checked_size(path: Path, number: int, size: int) -> int:
    """The characters before the table so far, which are held in memory; an error where they are too many."""
    if size > _LARGEST_HEADER:
        raise _fault(path, number, f"more than {_LARGEST_HEADER} characters before the table", "fewer")
    return size


def samples_frame(
    path: Path, accessions: Sequence[str], titles: Sequence[str], characteristics: Sequence[Sequence[str]]
) -> pd.DataFrame:
    """Samples (index `sample`) x (`title`, characteristics) from each sample's `key: value` cells; missing is "".

    Keys are joined by name, not by position. A cell without a key goes to `characteristics_ch1`, a characteristic
    called title to `title_ch1`; where a sample has a key twice with two values, they are joined by "; ".
    """
    rows: list[dict[str, str]] = []
    for title, cells in zip(titles, characteristics, strict=True):
        row: dict[str, str] = {"title": title.strip()}
        for cell in filter(str.strip, cells):
            key, colon, value = cell.partition(":")
            name = normal_key(key) if colon else "characteristics_ch1"
            name = "title_ch1" if name == "title" else name
            value = value.strip() if colon else cell.strip()
            before = row.get(name, "")
            row[name] = value if not before or before == value else f"{before}; {value}".removesuffix("; ")
        rows.append(row)
    names = list(dict.fromkeys(name for row in rows for name in row))
    columns = {name: [row.get(name, "") for row in rows] for name in names}
    return check_accessions(path, pd.DataFrame(columns, index=pd.Index(accessions, name="sample"), dtype=str))


def check_accessions(path: Path, samples: pd.DataFrame) -> pd.DataFrame:
    """The same frame; a `CohortError` if there is none, or one is not a GSM accession or comes twice."""
    where, step = f"{path}, sample accessions", "correct the file, or fetch it again"
    if samples.empty:
        raise CohortError(Fault(where, "no sample", "at least one", step))
    wrong = [name for name in samples.index if not re.fullmatch(r"GSM[0-9]+", name)]
    if wrong:
        raise CohortError(Fault(where, quoted(wrong[0]), "a GSM accession", step))
    twice = samples.index[samples.index.duplicated()]
    if len(twice):
        raise CohortError(Fault(where, f"{twice[0]} twice", "each accession once", step))
    return samples


def normal_key(key: str) -> str:
    """A characteristic's name as a column: lower case, spaces as underscores."""
    return "_".join(key.lower().split())


def _lines(path: Path) -> Iterator[tuple[int, str]]:
    """Numbered lines without their ends; a byte that is not UTF-8 becomes the replacement character."""
    number = 0
    try:
        with open_binary(path) as binary, io.TextIOWrapper(binary, encoding="utf-8", errors="replace") as text:
            for number, line in enumerate(iter(lambda: text.readline(_LONGEST_LINE), ""), 1):
                if len(line) == _LONGEST_LINE:
                    raise _fault(path, number, f"a line of {_LONGEST_LINE} characters or more", "shorter ones")
                yield number, line.rstrip("\r\n")
    except GZIP_ERRORS as error:
        raise _fault(path, number, f"a truncated or damaged gzip file ({error})", "the whole file") from None
    except OSError as error:
        raise CohortError(Fault(str(path), error.strerror or str(error), "a readable file", "check the path")) from None


def _cells(text: str) -> list[str]:
    """The cells of a line: tabs, colons and quotes may lie inside a quoted cell; a doubled quote stands for one."""
    cells: list[str] = []
    position, closing = 0, 0
    while True:
        # A quote that closes is looked for once, not once for each cell: a line may have millions of them.
        if text.startswith('"', position) and closing <= position:
            closing = text.find('"\t', position + 1)
            if closing < 0:
                closing = len(text) - 1 if text.endswith('"') and len(text) - 1 > position else len(text)
        if text.startswith('"', position) and closing < len(text):
            cells.append(text[position + 1 : closing].replace('""', '"'))
            position = closing + 1
        else:
            tab = text.find("\t", position)
            end = len(text) if tab < 0 else tab
            cells.append(text[position:end])
            position = end
        if position >= len(text):
            return cells
        position += 1


class _Table:
    """The lines between table begin and end, checked for their number of cells as they come."""

    def __init__(self, path: Path, *, keep: bool) -> None:
        self.path, self.keep = path, keep
        self.header: list[str] | None = None
        self.first = 0
        self.lines: list[str] = []

    def add(self, number: int, line: str) -> None:
        if self.header is None:
            self.header, self.first = _cells(line), number + 1
        elif line.count("\t") + 1 != len(self.header):
            found = f"{line.count(chr(9)) + 1} cells"
            raise _fault(self.path, number, found, f"{len(self.header)}, as in the table's header")
        elif self.keep:
            self.lines.append(line)

    def frame(self, accessions: Sequence[str]) -> pd.DataFrame:
        header = self.header or ["ID_REF", *accessions]
        if sorted(header[1:]) != sorted(accessions) or header[0] in accessions:
            found = ", ".join(sorted(set(header[1:]) ^ set(accessions))[:5]) or "a column twice"
            raise _fault(
                self.path, self.first - 1, f"columns that are not the samples ({found})", "one column a sample"
            )
        text = pa.BufferReader(("\n".join(self.lines) + "\n").encode())
        try:
            cells = pa_csv.read_csv(
                text,
                pa_csv.ReadOptions(use_threads=False, column_names=header),
                pa_csv.ParseOptions(delimiter="\t"),
                pa_csv.ConvertOptions(
                    column_types={header[0]: pa.string(), **dict.fromkeys(header[1:], pa.float64())},
                    null_values=_MISSING,
                ),
            )
        except pa.ArrowInvalid as error:
            raise self._not_a_number(header, error) from None
        frame: pd.DataFrame = cells.to_pandas().set_index(header[0])
        return frame

    def _not_a_number(self, header: list[str], error: Exception) -> CohortError:
        for number, line in enumerate(self.lines, self.first):
            for name, cell in zip(header[1:], _cells(line)[1:], strict=False):
                if not _is_number(cell):
                    where = f"{self.path}, line {number}, column {name}"
                    return CohortError(Fault(where, quoted(cell), "a number", "correct that cell, or " + _AGAIN))
        return CohortError(Fault(f"{self.path}, table", f"text that is no table ({error})", "rows of numbers", _AGAIN))


def _is_number(cell: str) -> bool:
    try:
        float(cell or "nan")
    except ValueError:
        return cell in _MISSING
    return True


def _fault(path: Path, line: int, found: str, expected: str) -> CohortError:
    return CohortError(Fault(f"{path}, line {line}", found, expected, _AGAIN))
