"""Read the expression values of a series.

The values are in one table of genes x samples, or in a tar archive with one file for each sample. A table is read in
blocks, so that only one block and the requested rows are in memory. The cells of a table may be separated by tabs,
commas, semicolons or single spaces. The header may lack the name of the first column, as in files that R's
`write.table` writes. The members of GEO's archive `<series>_RAW.tar` are read one at a time, and are never extracted to
paths on the disk.
"""

from __future__ import annotations

import csv
import gzip
import io
import math
import re
import tarfile
from collections import Counter as Tally
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from fnmatch import fnmatchcase
from functools import partial
from itertools import islice
from pathlib import Path, PurePosixPath
from typing import BinaryIO, NamedTuple

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.csv as pa_csv

from afa.cohort.archive import damage_of, open_binary, reading, tar_damage
from afa.cohort.config import ExpressionSource
from afa.cohort.counters import (
    COUNTERS,
    STAR_COLUMNS,
    TABLE_ENDINGS,
    Counter,
    RowIds,
    Unit,
    counter_of,
    gene_of,
    is_gene,
    is_header,
    names_ids,
    without_version,
)
from afa.errors import CohortError, Fault
from afa.io.csvfile import first_names, numbers_with_commas, quoted
from afa.io.csvfile import parse_number as number_of
from afa.io.files import largest_unpacked, unpacked
from afa.model.arrays import Floats

Opened = Callable[[], BinaryIO]

LONGEST_FILE_LINE = 64 << 20
"""Longest line, in bytes, that is read into memory."""
LARGEST_LOG = 64
"""Largest plausible log2 value. A larger log2 value would mean more reads than were ever sequenced."""
SMALLEST_COUNTS = 30
"""If a table with at least `ENOUGH_ROWS` genes has only values below this number, the values are probably logarithms.
"""
ENOUGH_ROWS = 100
STRANDED_SHARE = 0.75
"""A library is strand-specific if more than this share of its reads is on one strand.

In other libraries, the share is near one half.
"""
SEPARATORS = "\t,; "
_READ_BYTES = 4 << 20
_HEAD, _HEAD_LINES = 4 << 20, 64
_GCT = re.compile(r"#1\.2\s*")
"""Pattern of the first line of a GCT file.

The second line contains the numbers of rows and columns, and the third line is the header.
"""
_COPY = "in a copy of the file, and give the copy's folder as the mirror (GEO_MIRROR)"


@dataclass(frozen=True)
class Expression:
    """Expression values of a series, in the unit of the file.

    Parameters
    ----------
    values : (genes, samples) float64
        The requested rows in file order, by gene id and sample accession. If the file repeats a gene id, each
        occurrence has its own row. Ensembl ids have no version.
    library_size : (samples,) float64
        Sum of each sample over all genes of the file.
    n_rows : number of genes in the file.
    notes : sentences on what the reader excluded or chose.
    first_ids : the first row ids of the file.

    """

    values: pd.DataFrame
    library_size: pd.Series[float]
    n_rows: int
    notes: tuple[str, ...] = ()
    first_ids: tuple[str, ...] = ()


def read_gene_matrix(
    path: Path,
    column_of: Mapping[str, str],
    wanted: Collection[str],
    *,
    unit: Unit = "counts",
    row_ids: RowIds = "symbol",
    gene_column: str | None = None,
    transcripts: Mapping[str, str] | None = None,
) -> Expression:
    """Read the columns of the given samples from a table of genes x samples, which may be compressed with gzip.

    Parameters
    ----------
    column_of : name of the column of each sample accession
    wanted : row ids to return
    gene_column : name of the column of row ids; by default the first column
    transcripts : gene of each transcript; values of transcripts are summed by gene

    Raises
    ------
    CohortError : columns are missing or repeated, a line is invalid, or values are impossible in `unit`.

    """
    where, opened = str(path), partial(open_binary, path)
    layout = _layout(where, opened)
    if not layout.first:
        found = "nothing" if not any(layout.names) else "no row below the header"
        raise CohortError(Fault(where, found, "a header and at least one row", "check that it is the series' table"))
    gene = 0 if gene_column is None else _column_index(where, gene_column, layout, "gene_column")
    position, notes = _find_sample_columns(where, column_of, layout, gene)
    # Columns are read in file order, because reading a block of GSE193677 in sample order takes four times as long.
    in_file_order = sorted(position.values())
    to_samples = np.searchsorted(in_file_order, list(position.values()))
    columns = [layout.names[place] for place in in_file_order]
    genes, scale = _Genes(wanted, row_ids, transcripts or {}), _Scale(unit)
    ids: list[str] = []
    row_of: dict[str, str] = {}
    chosen: list[Floats] = []
    total = np.zeros(len(position))
    n_rows = 0
    for block_ids, block in _read_blocks(where, opened, layout, gene, in_file_order):
        names = genes.read(where, block_ids, row_of)
        scale.read(where, names, columns, block)
        for name, row in zip(names, block, strict=True):
            if name is None:
                continue
            n_rows += 1
            # The sum is computed row by row, because the last digit of numpy's sum would depend on the block size.
            with np.errstate(over="ignore"):
                total += row
            if name in genes.wanted:
                ids.append(name)
                chosen.append(row[to_samples])
    if not np.isfinite(total).all():
        raise CohortError(endless(where))
    samples = pd.Index(list(position), name="sample")
    values = np.array(chosen) if chosen else np.empty((0, len(samples)))
    table = pd.DataFrame(values, index=pd.Index(ids, name="row", dtype=str), columns=samples)
    return Expression(
        table.groupby(level=0, sort=False).sum() if genes.of_transcripts else table,
        pd.Series(total[to_samples], index=samples, name="library_size"),
        n_rows,
        (*notes, *genes.notes(where), *scale.notes(where, n_rows)),
        tuple(genes.first),
    )


class _Layout(NamedTuple):
    """Layout of a text table: separator, column names and first row.

    Parameters
    ----------
    names : names of all fields of a row
    first : fields of the first row; empty if there is no row
    skip : number of lines above the first row
    has_header : False if the table has no header and the names are generated

    """

    separator: str
    names: tuple[str, ...]
    first: tuple[str, ...]
    skip: int
    has_header: bool = True


def _layout(where: str, opened: Opened, *, may_lack_header: bool = False) -> _Layout:
    """Return the layout of the table in a file. The function `opened` opens the file.

    Leading lines that begin with `#` are skipped.
    """
    comment, above, head = _read_head(where, opened)
    separators = "\t" if any("\t" in line for line in head[:2]) else SEPARATORS
    choices = [_split_first_rows(head, separator) for separator in separators]
    fitting = [records for records in choices if _has_matching_widths(records)]
    records = fitting[0] if fitting else max(choices, key=lambda records: max(map(len, records.rows), default=0))
    separator, rows, lines, _ = records
    if records.fault and not fitting:
        found = f"lines that are no rows of a table ({records.fault})"
        step = f"check that it is a table; otherwise correct the quotes {_COPY}"
        raise CohortError(Fault(f"{where}, lines {above + 1} and {above + 2}", found, "a header and rows", step))
    if not rows:
        return _Layout(separator, (), (), above)
    if len(rows[-1]) < 2 and len(rows[0]) < 2:
        found, expected = f"one field, {quoted(rows[0][0])}", "fields separated by tabs, commas, semicolons or spaces"
        step = f"check that it is a table, and separate its fields by tabs {_COPY}"
        raise CohortError(Fault(f"{where}, line {above + 1}", found, expected, step))
    if not names_ids(rows[0][0]) and (_all_numbers(rows[0][1:]) or (may_lack_header and not is_header(rows[0]))):
        named = next(csv.reader([comment.lstrip("#")], delimiter=separator), [])
        if len(named) == len(rows[0]):
            return _Layout(separator, tuple(named), tuple(rows[0]), above)
        if may_lack_header:
            ids = {line.partition(separator)[0].strip('"') for line in head[:4]}
            star = len(rows[0]) == len(STAR_COLUMNS) and "N_unmapped" in ids
            ours = STAR_COLUMNS if star else ("gene", *(f"column {place + 2}" for place in range(len(rows[0]) - 1)))
            return _Layout(separator, ours, tuple(rows[0]), above, has_header=False)
    names, first = list(rows[0]), rows[1] if len(rows) > 1 else []
    if len(first) == len(names) + 1:
        ends = first[-1] == "" and names_ids(names[0])  # each row ends with a separator
        names = [*names, ""] if ends else ["", *names]
    if first and len(first) != len(names):
        found = f"{len(names)} names over {len(first)} fields"
        expected = "a name for every field, or for all but the first"
        step = f"remove lines that are no part of the table, or complete the header, {_COPY}"
        raise CohortError(Fault(f"{where}, line {above + 1}", found, expected, step))
    return _Layout(separator, tuple(names), tuple(first), above + lines)


class _Records(NamedTuple):
    """The first two rows of a table, split by a candidate separator.

    Parameters
    ----------
    lines : number of lines that the first row takes
    fault : why the rows cannot be split; empty if the rows can be split

    """

    separator: str
    rows: list[list[str]]
    lines: int
    fault: str = ""


def _split_first_rows(head: Sequence[str], separator: str) -> _Records:
    reader = csv.reader(head, delimiter=separator)
    rows: list[list[str]] = []
    lines = 0
    try:
        for row in islice(filter(None, reader), 2):
            rows.append(row)
            lines = lines or reader.line_num
    except csv.Error as error:
        return _Records(separator, rows, lines, str(error))
    return _Records(separator, rows, lines)


def _has_matching_widths(records: _Records) -> bool:
    """Return True if the first row has as many fields as the second row, or one field fewer.

    The result is False if the second row has fewer than two fields, or if the rows cannot be parsed.
    """
    widths = [*map(len, records.rows)]
    return not records.fault and widths[-1:] > [1] and widths[-1] - widths[0] in {0, 1}


def _read_head(where: str, opened: Opened) -> tuple[str, int, list[str]]:
    """Return the last `#` line above the table, the number of lines above the table, and the table's first lines."""
    comment, above, size = "", 0, 0
    head: list[str] = []
    with reading(where), opened() as stream, io.TextIOWrapper(stream, "utf-8-sig", "replace", newline="") as text:
        for number, line in enumerate(iter(lambda: text.readline(LONGEST_FILE_LINE), ""), 1):
            if len(line) >= LONGEST_FILE_LINE:
                found, step = f"{LONGEST_FILE_LINE} bytes or more in one line", "check that it is a table of values"
                raise CohortError(Fault(f"{where}, line {number}", found, "shorter ones", step))
            if "\0" in line or (number == 1 and line.startswith("PK\x03\x04")):
                found = "a spreadsheet" if line.startswith("PK") else "bytes that are no UTF-8 text"
                step = "save the table as text, separated by tabs, in UTF-8, and give its folder as the mirror"
                raise CohortError(Fault(where, found, "a table as text", f"{step} (GEO_MIRROR)"))
            if number == 1 and line.startswith("#1.3"):
                found, step = "GCT 1.3, in which rows that describe the samples follow the header", "save it as GCT 1.2"
                raise CohortError(Fault(where, found, "a table of genes, or GCT 1.2", f"{step} {_COPY}"))
            above_table = (
                line.startswith("#") or not line.strip() or (above == 1 and _GCT.fullmatch(comment) is not None)
            )
            if not head and above_table:
                comment, above = line if line.startswith("#") else comment, above + 1
                continue
            head.append(line)
            size += len(line)
            if len(head) == _HEAD_LINES or (len(head) > 1 and size > _HEAD):
                break
    return comment, above, head


def _all_numbers(cells: Sequence[str]) -> bool:
    return bool(cells) and all(math.isfinite(number_of(cell)) for cell in cells)


def _column_index(where: str, name: str, layout: _Layout, key: str) -> int:
    """Return the index of the column `name`.

    If there is no such column, a `CohortError` asks the user to correct the setting `key` in the cohort's file.
    """
    if name not in layout.names:
        found, expected = f"no column {quoted(name)}", f"one of {', '.join(filter(None, layout.names[:12]))}"
        raise CohortError(Fault(f"{where}, header", found, expected, f"correct `{key}` in the cohort's file"))
    return layout.names.index(name)


_ACCESSION = re.compile(r"(?<![A-Za-z0-9])GSM[0-9]+")
_FILE_ENDING = re.compile(
    r"((\.genes|\.isoforms)?\.results|[._]?ReadsPerGene\.out|[._]?Aligned(\.sortedByCoord)?\.out|[._]sorted"
    r"|\.(bam|sam|cram|txt|tsv|tab|csv|counts?|sf|gz))$"
)


def _possible_sample_names(column: str) -> set[str]:
    """Return candidates for a sample's name: the column name without folders and endings, and a GEO accession.

    An accession is a candidate only if the column name contains exactly one accession.
    """
    accessions = set(_ACCESSION.findall(column))
    name = re.split(r"[/\\]", column)[-1]
    while (shorter := _FILE_ENDING.sub("", name)) not in {"", name}:
        name = shorter
    return {name, *(accessions if len(accessions) == 1 else ())}


def _find_sample_columns(
    where: str, column_of: Mapping[str, str], layout: _Layout, gene: int
) -> tuple[dict[str, int], list[str]]:
    """Return the index of each sample's column, and notes on columns that were found by a part of their name."""
    where = f"{where}, header"
    shared = [name for name, count in Tally(column_of.values()).items() if count > 1]
    if shared:
        found = f"column {shared[0]} for more than one sample"
        raise CohortError(Fault(where, found, "one column a sample", "correct `sample_column` or the samples' titles"))
    places: dict[str, list[int]] = {}
    columns = [(place, name) for place, name in enumerate(layout.names) if place != gene]
    for place, name in columns:
        places.setdefault(name, []).append(place)
    exact = set(places)
    if not exact.issuperset(column_of.values()):
        for place, column in columns:
            for name in _possible_sample_names(column) - exact:
                places.setdefault(name, []).append(place)
    wanted = set(column_of.values())
    if twice := [name for name, at in places.items() if name in wanted and len(at) > 1]:
        found, step = f"{len(twice)} columns twice ({first_names(twice)})", f"remove or rename one of the two {_COPY}"
        raise CohortError(Fault(where, found, "each column once", step))
    missing = [f"{column} ({sample})" for sample, column in column_of.items() if column not in places]
    if missing and _all_numbers(layout.names[1:]) and not names_ids(layout.names[0]):
        found, expected = "a first line of numbers and no header", "a line that names the column of each sample"
        raise CohortError(Fault(where, found, expected, f"add a header with the samples' accessions {_COPY}"))
    if missing:
        found = f"no column for {len(missing)} of {len(column_of)} samples: {first_names(missing)}"
        found += f"; its columns are called {first_names(name for _, name in columns)}"
        step = "correct `sample_column` in the cohort's config, or drop these samples in `select`"
        raise CohortError(Fault(where, found, "a column for each selected sample", step))
    position = {sample: places[column][0] for sample, column in column_of.items()}
    read = [(layout.names[place], column_of[sample]) for sample, place in position.items()]
    within = [f"{column} for {name}" for column, name in read if column != name]
    note = f"samples that are found by a part of their column's name ({len(within)}): {first_names(within)}"
    return position, [note] if within else []


class _Genes:
    """Object that maps the row ids of a file to genes, and records which rows are unusual."""

    def __init__(self, wanted: Collection[str], row_ids: RowIds, transcripts: Mapping[str, str]) -> None:
        self.wanted, self.row_ids, self.transcripts = frozenset(wanted), row_ids, transcripts
        self.of_transcripts = False
        self.unknown: set[str] = set()
        self.first: list[str] = []
        self.left_out: dict[str, None] = {}

    def read(self, where: str, row_ids: Sequence[str], row_of: dict[str, str]) -> list[str | None]:
        """Return the gene of each row, or None for a row that is not a gene.

        If two rows have different versions of the id of one requested gene, a `CohortError` is raised.

        Parameters
        ----------
        row_of : row id of each wanted gene in the earlier rows of the file; this call adds the genes of `row_ids`

        """
        names: list[str | None] = []
        for row_id in map(str.strip, row_ids):
            if row_id not in self.wanted and not is_gene(row_id):
                self.left_out.setdefault(row_id)
                names.append(None)
                continue
            if len(self.first) < 3:
                self.first.append(row_id)
            of_transcript = gene_of(row_id, self.row_ids, self.transcripts)
            if self.transcripts and of_transcript is None:
                self.unknown.add(row_id)
            self.of_transcripts |= of_transcript is not None
            name = of_transcript or without_version(row_id)
            names.append(name)
            if name in self.wanted and of_transcript is None:
                before = row_of.setdefault(name, row_id)
                if before != row_id:
                    step = f"keep one of the two, or add them up, {_COPY}"
                    raise CohortError(Fault(where, f"the rows {before} and {row_id}", "one version of a gene", step))
        return names

    def notes(self, where: str) -> list[str]:
        """Return notes on excluded and summed rows. If no row of the file is a gene, a `CohortError` is raised."""
        if not self.first:
            found, step = (
                f"no row of a gene, but {first_names(self.left_out)}",
                "check that the file has the values of genes",
            )
            raise CohortError(Fault(where, found, "a row for each gene", step))
        notes = []
        if self.left_out:
            some = f"rows that are no genes are left out, of the library too ({len(self.left_out)})"
            notes.append(f"{some}: {first_names(self.left_out)}")
        if self.of_transcripts:
            notes.append("the rows of a gene's transcripts are added up")
        if self.unknown:
            notes.append(f"rows that the table of transcripts lacks count for the library alone ({len(self.unknown)})")
        return notes


class _Scale:
    """Object that checks whether the values of a file fit the file's unit.

    Only log2 values may be negative, and no log2 value may be above `LARGEST_LOG`. Counts that seem to be logarithms
    are refused.
    """

    def __init__(self, unit: Unit) -> None:
        self.unit: Unit = unit
        self.largest = -math.inf
        self.whole = True

    def read(self, where: str, names: Sequence[str | None], columns: Sequence[str], values: Floats) -> None:
        """Record the largest value, and whether all values are whole numbers.

        A negative value raises a `CohortError`, unless the unit is log2.

        Parameters
        ----------
        names : name of each row; rows named None are not checked
        values : (rows, columns) float64

        """
        if None in names:
            rows = [row for row, name in enumerate(names) if name is not None]
            names, values = [names[row] for row in rows], values[rows]
        if not len(values):
            return
        self.largest = max(self.largest, float(values.max()))
        self.whole = self.whole and bool((values == np.floor(values)).all())
        if self.unit != "log2" and (values < 0).any():
            row, place = divmod(int((values < 0).argmax()), values.shape[1])
            at, found = f"{where}, row {quoted(str(names[row]))}, column {columns[place]}", f"{values[row, place]:g}"
            step = "correct `unit` in the cohort file: log2 values may be negative"
            raise CohortError(Fault(at, found, f"zero or more, the unit being {self.unit}", step))

    def notes(self, where: str, n_rows: int) -> list[str]:
        """Return notes on values that do not seem to fit the unit.

        If the values contradict the unit, a `CohortError` is raised.
        """
        found, expected = f"values of at most {self.largest:g}", f"values of a table of {self.unit}"
        if self.unit == "log2" and self.largest > LARGEST_LOG:
            step = "set `unit: counts` or `unit: tpm`, as the series says"
            raise CohortError(Fault(where, f"values up to {self.largest:g}", f"log2 values below {LARGEST_LOG}", step))
        if n_rows < ENOUGH_ROWS:
            return []
        logs = self.largest < SMALLEST_COUNTS and not self.whole
        if self.unit == "counts" and logs:
            step = "set `unit: log2` if they are logarithms; otherwise look for the file of the counts"
            raise CohortError(Fault(where, f"{found}, with decimals, in {n_rows} rows", expected, step))
        if self.unit == "tpm" and logs:
            return [f"no value is above {self.largest:g}: if they are logarithms already, set `unit: log2`"]
        if self.unit == "tpm" and self.whole:
            return ["all values are whole numbers: if they are counts, set `unit: counts`"]
        return []


def _read_blocks(
    where: str, opened: Opened, layout: _Layout, gene: int, read: Sequence[int]
) -> Iterator[tuple[list[str], Floats]]:
    """Read a table in blocks of lines, and yield the row ids and the values of each block.

    The values have the shape (rows, samples). If a cell is invalid, a `CohortError` names the first invalid cell.

    Parameters
    ----------
    where : name of the file in messages
    gene : index of the column of row ids
    read : indices of the columns of values

    """
    types = {str(gene): pa.string(), **{str(place): pa.float64() for place in read}}
    names = list(map(str, range(len(layout.names))))
    with suppress(pa.ArrowInvalid), reading(where), opened() as stream:
        reader = pa_csv.open_csv(
            stream,
            pa_csv.ReadOptions(use_threads=False, block_size=_READ_BYTES, skip_rows=layout.skip, column_names=names),
            pa_csv.ParseOptions(delimiter=layout.separator, newlines_in_values=True),
            pa_csv.ConvertOptions(column_types=types, include_columns=list(types), null_values=[]),
        )
        for batch in reader:
            values = np.column_stack([column.to_numpy() for column in batch.columns[1:]])
            if not np.isfinite(values).all():
                break
            yield batch.column(0).to_pylist(), values
        else:
            return
    with reading(where), opened() as stream:
        raise CohortError(_wrong_cell(where, stream, layout, gene, read))


def _wrong_cell(where: str, stream: BinaryIO, layout: _Layout, gene: int, read: Sequence[int]) -> Fault:
    """Find the first invalid line or cell with Python's CSV reader, and return a `Fault` that describes the error."""
    width, number = len(layout.names), layout.skip
    with io.TextIOWrapper(stream, "utf-8-sig", "replace", newline="") as text:
        lines = iter(lambda: text.readline(LONGEST_FILE_LINE), "")
        reader = csv.reader(islice(lines, layout.skip, None), delimiter=layout.separator)
        while True:
            number = layout.skip + reader.line_num + 1  # the line number at which the next row begins
            try:
                cells = next(reader, None)
            except csv.Error as error:
                found = f"a line that is no row of a table ({error})"
                step = f"check the quotes of that line, and correct them {_COPY}"
                return Fault(f"{where}, line {number}", found, "rows of numbers", step)
            if cells is None:
                break
            if not cells:
                continue
            at = f"{where}, line {number}, row {quoted(cells[min(gene, len(cells) - 1)])}"
            if len(cells) != width:
                step = f"correct that line {_COPY}"
                return Fault(at, f"{len(cells)} fields", f"{width} fields", step)
            for place in read:
                if not math.isfinite(number_of(cells[place])):
                    column = layout.names[place].removeprefix("column ") or f"{place + 1}"
                    return Fault(
                        f"{at}, column {column}",
                        quoted(cells[place]),
                        "a finite number",
                        _expression_cell_advice(cells[place]),
                    )
    step = f"save it as text in UTF-8, separated by tabs, {_COPY}"
    return Fault(where, "text that cannot be read as a table", "rows of numbers", step)


def _expression_cell_advice(cell: str) -> str:
    """Return advice on a cell that is not a number."""
    if either := numbers_with_commas(cell.strip()):
        return f"write {' or '.join(either)}, whatever the comma stands for, and so all others, {_COPY}"
    if re.fullmatch(r"\s*-?[0-9]+,[0-9]+\s*", cell):
        return f"write it with a decimal point, and so all others, {_COPY}"
    return f"correct that cell, or remove the row, {_COPY}"


def endless(where: str) -> Fault:
    """Return a `Fault` for finite values whose sum is infinite."""
    step = f"look for cells that are no values of expression, and correct them {_COPY}"
    return Fault(where, "values whose sum is not finite", "numbers of a sensible size", step)


_MEMBERS_SHARE = 1 / 8
"""Share of `largest_unpacked` to which one member of an archive may unpack.

The share is small, because a member is read into memory as a whole.
"""
_TAR_AGAIN = "fetch the archive again"


_PLAIN_SOURCE = ExpressionSource(layout="sample_files", file="RAW.tar", unit="counts")


def read_sample_files(
    path: Path,
    samples: Sequence[str],
    wanted: Collection[str],
    how: ExpressionSource = _PLAIN_SOURCE,
    transcripts: Mapping[str, str] | None = None,
) -> Expression:
    """Read the files of the given samples from a tar archive. Archived files of other samples are skipped.

    The result has the rows of the first sample's file, in the same order. If the rows of a later file are in a
    different order, the values are matched by row id.

    Parameters
    ----------
    samples : GSM accessions
    wanted : row ids to return
    how : `unit`, `row_ids`, `count_column`, `gene_column` and `members` of the cohort's file
    transcripts : as in `read_gene_matrix`

    Raises
    ------
    CohortError : a value is not a finite number (the message names member and row); a member is damaged, is larger than
        an eighth of `largest_unpacked`, has no unique column of values, or has other row ids than the first member; a
        sample is missing or repeated.

    """
    with reading(path):
        damage = damage_of(path) or tar_damage(path)
    if damage is not None:
        raise CohortError(Fault(str(path), damage.found, damage.expected, _TAR_AGAIN))
    ids: pd.Index[str] | None = None
    chosen = np.empty(0, dtype=bool)
    before: _Rows | None = None
    genes, scale = _Genes(wanted, how.row_ids, transcripts or {}), _Scale(how.unit)
    values: dict[str, Floats] = {}
    total: dict[str, float] = {}
    said: Tally[str] = Tally()
    passed: list[str] = []
    for sample, where, text in _archive_members(path, frozenset(samples), how.members, passed):
        if sample in values:
            step = "name the files to read in `expression.members` of the cohort's file, such as '*.genes.results.gz'"
            raise CohortError(Fault(where, f"a second file of {sample}", "one file a sample", step))
        member = _read_member(where, text, how, genes, before)
        before = member.rows
        said.update(member.notes)
        scale.read(where, member.ids.tolist(), [sample], member.values[:, None])
        column = member.values
        if ids is None:
            ids, chosen = member.ids, member.ids.isin(list(wanted))
        elif not member.ids.equals(ids):
            column = _reorder_values(where, member.ids, column, ids)
        values[sample] = column[chosen]
        # Values are summed in file order, as in `read_gene_matrix`, so that both layouts give equal library sizes.
        with np.errstate(over="ignore"):
            total[sample] = float(np.cumsum(member.values)[-1])
        if not np.isfinite(total[sample]):
            raise CohortError(endless(where))
    missing = [sample for sample in samples if sample not in values]
    if missing or ids is None:
        found = f"no file for {len(missing)} of {len(samples)} samples: {', '.join(missing[:10])}"
        step = "check that the archive is this series', or drop these samples in `select`"
        if passed:
            found += f"; it has {first_names(passed)}"
            step = "name the files to read in `expression.members` of the cohort's file, such as '*.htseq.gz'"
        raise CohortError(Fault(str(path), found, "a file `<GSM>_*.txt.gz` for each selected sample", step))
    index = pd.Index(list(samples), name="sample")
    table = pd.DataFrame({sample: values[sample] for sample in samples}, index=ids[chosen].rename("row"))
    table.columns = index
    notes = [f"{count} of {len(samples)} files: {note}" for note, count in said.items()]
    return Expression(
        table,
        pd.Series(total, name="library_size").reindex(index),
        len(ids),
        (*notes, *genes.notes(str(path)), *scale.notes(str(path), len(ids))),
        tuple(genes.first),
    )


def _archive_members(
    path: Path, samples: frozenset[str], pattern: str | None, passed: list[str]
) -> Iterator[tuple[str, str, bytes]]:
    """Yield three items for each archive member of the given samples: accession, name for messages, unpacked text.

    Parameters
    ----------
    pattern : pattern of the members' names
    passed : a list to which the skipped files of these samples are appended

    """
    with tarfile.open(path, "r:") as archive:
        for member in archive:
            name = PurePosixPath(member.name).name
            match = re.match(r"(GSM[0-9]+)[._-]", name)
            if match is None or match[1] not in samples or not member.isfile():
                continue
            if not (fnmatchcase(name, pattern) if pattern else name.removesuffix(".gz").endswith(TABLE_ENDINGS)):
                passed.append(name)
                continue
            where = f"{path}, member {member.name}"
            stream = archive.extractfile(member)
            assert stream is not None
            if not name.endswith(".gz"):
                most = largest_unpacked() * _MEMBERS_SHARE
                if member.size > most * 1e9:
                    found, expected = f"{member.size} bytes", f"at most {most:g} GB"
                    raise CohortError(Fault(where, found, expected, "check that it is a table of one sample"))
                yield match[1], where, stream.read()
                continue
            with reading(where, _TAR_AGAIN), unpacked(gzip.GzipFile(fileobj=stream), _MEMBERS_SHARE) as text:
                content = text.read()
            yield match[1], where, content


class _Rows(NamedTuple):
    """The row ids of a sample's file, and the gene of each row.

    The genes are looked up once for consecutive files with the same row ids.
    """

    row_ids: list[str]
    names: list[str | None]


class _Member(NamedTuple):
    """Genes and values of one sample's file.

    Parameters
    ----------
    ids : (genes,) gene ids
    values : (genes,) float64
    notes : what was chosen while reading
    rows : the rows of the file

    """

    ids: pd.Index[str]
    values: Floats
    notes: list[str]
    rows: _Rows


def _read_member(
    where: str,
    text: bytes,
    how: ExpressionSource,
    genes: _Genes,
    before: _Rows | None,
) -> _Member:
    """Read one sample's file.

    If the file has the same row ids as the earlier file `before`, the genes of `before` are reused.
    """

    def opened() -> BinaryIO:
        return io.BytesIO(text)

    layout = _layout(where, opened, may_lack_header=True)
    if not layout.first:
        found = "no row after the header" if layout.names else "nothing"
        step = f"drop this sample in `select`, or complete its file {_COPY}"
        raise CohortError(Fault(where, found, "rows of two fields: row id and value", step))
    counter = counter_of(layout.names)
    gene = 0 if counter is None else layout.names.index(counter.gene)
    if how.gene_column is not None:
        gene = _column_index(where, how.gene_column, layout, "gene_column")
    place, notes = _value_column(where, layout, counter, gene, how)
    read = (place,) if layout.names != STAR_COLUMNS or how.count_column else (place, *range(2, len(STAR_COLUMNS)))
    blocks = list(_read_blocks(where, opened, layout, gene, read))
    row_ids = [row_id for block_ids, _ in blocks for row_id in block_ids]
    columns = np.concatenate([block for _, block in blocks])
    if before is None or before.row_ids != row_ids:
        names = genes.read(where, row_ids, {})
        genes.of_transcripts |= (
            counter is not None and counter.of_transcripts and how.gene_column in {None, counter.gene}
        )
        before = _Rows(row_ids, names)
    rows = np.fromiter((name is not None for name in before.names), dtype=bool, count=len(row_ids))
    if not rows.any():
        found, step = f"no row of a gene, but {first_names(row_ids)}", "check that the file has the values of genes"
        raise CohortError(Fault(where, found, "a row for each gene", step))
    columns = columns[rows]
    if columns.shape[1] > 1:
        _check_strands(where, columns[:, 1:].sum(axis=0))
    ids, values = pd.Index([name for name in before.names if name is not None], dtype=str), columns[:, 0]
    if genes.of_transcripts:
        codes, ids = pd.factorize(ids)
        values = np.bincount(codes, weights=values)
    return _Member(ids, values, notes, before)


def _value_column(
    where: str, layout: _Layout, counter: Counter | None, gene: int, how: ExpressionSource
) -> tuple[int, list[str]]:
    """Return the index of the value column in a sample's file, and notes on how the column was chosen."""
    notes = [] if layout.has_header or layout.names == STAR_COLUMNS else ["no header line: the first line is a row"]
    of = f"of {counter.name}, " if counter else ""
    if how.count_column is not None:
        place = _column_index(where, how.count_column, layout, "count_column")
        return place, [*notes, f"{of}column {how.count_column}, as `count_column` says"]
    if counter is not None and how.unit not in counter.values:
        found, units = f"a file of {counter.name}, which has no column of {how.unit}", " or ".join(counter.values)
        step = f"set `unit: {units}`, or name the column in `count_column` of the cohort's file"
        raise CohortError(Fault(where, found, f"a column of {units}", step))
    named = counter.values[how.unit] if counter else ""
    if counter and named:
        return layout.names.index(named), [*notes, f"{of}column {named}"]
    others = {name.lower() for known in COUNTERS for name in known.others}
    candidates = [
        place
        for place, name in enumerate(layout.names)
        if place != gene and name.lower() not in others and math.isfinite(number_of(layout.first[place]))
    ]
    if len(layout.names) == 2:
        candidates = [1 - gene]
    if len(candidates) != 1:
        names = [layout.names[place] for place in candidates]
        found = f"{len(names)} columns of numbers" + (f": {first_names(names)}" if names else "")
        step = "name the column of the values in `count_column` of the cohort's file"
        raise CohortError(Fault(where, found, "two fields: row id and sample, or one such column", step))
    if counter is not None:
        notes.append(f"{of}its last column")
    elif len(layout.names) > 2:
        notes.append(f"{'column ' if layout.has_header else ''}{layout.names[candidates[0]]}")
    return candidates[0], notes


def _check_strands(where: str, reads: Floats) -> None:
    """Raise a `CohortError` if a sample's sequencing library is strand-specific.

    The argument `reads` contains the number of sequencing reads on each of the two strands.
    """
    share = float(reads.max() / reads.sum()) if reads.sum() > 0 else 0.0
    if share > STRANDED_SHARE:
        likely = STAR_COLUMNS[2 + int(reads.argmax())]
        found = f"{share:.0%} of the reads on one strand: the library is strand-specific"
        step = (
            f"set `count_column: {likely}`, or `unstranded` to take both strands, in `expression` of the cohort's file"
        )
        raise CohortError(Fault(where, found, "the column to read, by its name", step))


def _reorder_values(where: str, own: pd.Index[str], column: Floats, ids: pd.Index[str]) -> Floats:
    """Return the values of a sample's file in the order of `ids`.

    If the file and `ids` do not contain the same row ids, a `CohortError` is raised. If a row id is repeated, the rows
    cannot be sorted without ambiguity, and a `CohortError` is raised.
    """
    others = own.symmetric_difference(ids)
    if len(others):
        found, step = "other row ids", "drop this sample in `select`, or name files of one kind in `expression.members`"
        raise CohortError(Fault(f"{where}, row {others[0]!r}", found, "those of the first member", step))
    if not (own.is_unique and ids.is_unique):
        twice = ids[ids.duplicated()].union(own[own.duplicated()])[0]
        found = f"row id {twice!r} more than once, and another order of rows"
        raise CohortError(Fault(where, found, "the order of the first member", f"sort the rows {_COPY}"))
    return column[own.get_indexer(ids)]
