"""Expression values of a series: one genes x samples table, or a tar of one two-column file for each sample.

A table is read in blocks: no more than one block and the wanted rows are in memory. Two shapes occur: a table with a
name over every column, and R's `write.table`, whose header lacks the first one. Members of GEO's `<series>_RAW.tar` are
read from its stream, one at a time; nothing is extracted, so no name in it can reach the disk.
"""

from __future__ import annotations

import csv
import gzip
import io
import math
import re
import tarfile
from collections import Counter
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from functools import partial
from pathlib import Path, PurePosixPath
from typing import BinaryIO

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.csv as pa_csv

from afa.cohort.archive import damage_of, open_binary, reading, tar_damage, unpacked
from afa.csvfile import few, quoted
from afa.csvfile import number as number_of
from afa.errors import CohortError, Fault

LONGEST_LINE = 64 << 20
"""Bytes of a line that is held in memory."""
_BLOCK = 4 << 20
_AGAIN = "fetch the file again"


@dataclass(frozen=True)
class Expression:
    """Expression values in the file's own unit.

    `values`: row id x sample accession, float64, the wanted rows, in file order, a repeated id kept each time;
    `library_size`: per sample, the sum over all rows of the file, added in file order; `n_rows`: rows of the file.
    """

    values: pd.DataFrame
    library_size: pd.Series[float]
    n_rows: int


def read_gene_matrix(path: Path, column_of: Mapping[str, str], wanted: Collection[str]) -> Expression:
    """Read the samples of `column_of` (sample accession -> column name) from a table, gzip or plain, tab or one space.

    Columns are found by name. A `CohortError` names columns that are missing or come twice, and the first bad line.
    """
    separator, columns = _header(path)
    position = _positions(path, column_of, columns)
    # In file order: taken in the samples' order, a block of GSE193677 takes four times as long to convert.
    in_file_order = sorted(position.values())
    to_samples = np.searchsorted(in_file_order, list(position.values()))
    keep = frozenset(wanted)
    ids: list[str] = []
    kept: list[np.ndarray] = []
    total = np.zeros(len(position))
    n_rows = 0
    for block_ids, block in _blocks(str(path), partial(open_binary, path), separator, columns, in_file_order):
        n_rows += len(block_ids)
        for row_id, row in zip(block_ids, block, strict=True):
            # Row by row: numpy's own sum would depend on the block size in the last digit.
            with np.errstate(over="ignore"):
                total += row
            if row_id in keep:
                ids.append(row_id)
                kept.append(row[to_samples])
    if not np.isfinite(total).all():
        raise CohortError(endless(str(path)))
    samples = pd.Index(list(position), name="sample")
    values = np.array(kept) if kept else np.empty((0, len(samples)))
    return Expression(
        pd.DataFrame(values, index=pd.Index(ids, name="row", dtype=str), columns=samples),
        pd.Series(total[to_samples], index=samples, name="library_size"),
        n_rows,
    )


def _header(path: Path) -> tuple[str, list[str]]:
    """Separator and names of the value columns."""
    with reading(path), open_binary(path) as stream:
        header, row = stream.readline(LONGEST_LINE), stream.readline(LONGEST_LINE)
    if LONGEST_LINE in (len(header), len(row)):
        where = f"{path}, lines 1 and 2"
        raise CohortError(Fault(where, f"{LONGEST_LINE} bytes or more in one", "shorter ones", _AGAIN))
    if not row.strip():
        raise CohortError(Fault(f"{path}, line 2", "nothing", "a header and at least one row", _AGAIN))
    separator = "\t" if b"\t" in row else " "
    try:
        names, width = fields(header.removeprefix(b"\xef\xbb\xbf"), separator), len(fields(row, separator))
    except csv.Error as error:
        found = f"lines that are no rows of a table ({error})"
        raise CohortError(Fault(f"{path}, lines 1 and 2", found, "a header and rows", _AGAIN)) from None
    if len(names) not in {width, width - 1}:
        found = f"{len(names)} names over {width} fields"
        raise CohortError(Fault(f"{path}, line 1", found, "a name for every field, or for all but the first", _AGAIN))
    return separator, names[len(names) - width + 1 :]


def _positions(path: Path, column_of: Mapping[str, str], columns: list[str]) -> dict[str, int]:
    """Sample accession -> number of its column among the value columns."""
    where = f"{path}, header"
    twice = [name for name, count in Counter(columns).items() if count > 1]
    if twice:
        raise CohortError(Fault(where, f"{len(twice)} columns twice ({few(twice)})", "each column once", _AGAIN))
    shared = [name for name, count in Counter(column_of.values()).items() if count > 1]
    if shared:
        found = f"column {shared[0]} for more than one sample"
        raise CohortError(Fault(where, found, "one column a sample", "correct `sample_column` or the samples' titles"))
    at = {name: i for i, name in enumerate(columns)}
    missing = [f"{column} ({sample})" for sample, column in column_of.items() if column not in at]
    if missing:
        found = f"no column for {len(missing)} of {len(column_of)} samples: {few(missing)}"
        step = "correct `sample_column` in the cohort's config, or drop these samples in `select`"
        raise CohortError(Fault(where, found, "a column for each selected sample", step))
    return {sample: at[column] for sample, column in column_of.items()}


def _blocks(
    where: str, opened: Callable[[], BinaryIO], separator: str, columns: Sequence[str], read: Sequence[int]
) -> Iterator[tuple[list[str], np.ndarray]]:
    """Row ids and values (rows, samples) of one block of lines after another; a `CohortError` names the first fault.

    where : the file's name in messages. columns : all of the table. read : the places of those that are read.
    """
    types = {"id": pa.string(), **{str(i): pa.float64() for i in read}}
    names = ["id", *map(str, range(len(columns)))]
    with suppress(pa.ArrowInvalid), reading(where), opened() as stream:
        reader = pa_csv.open_csv(
            stream,
            pa_csv.ReadOptions(use_threads=False, block_size=_BLOCK, skip_rows=1, column_names=names),
            pa_csv.ParseOptions(delimiter=separator),
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
        raise CohortError(_wrong_cell(where, stream, separator, columns, read))


def fields(line: bytes, separator: str) -> list[str]:
    """The fields of a line, without their double quotes; a `csv.Error` where it is no line of a table."""
    text = line.decode("utf-8", errors="replace").rstrip("\r\n")
    return next(csv.reader([text], delimiter=separator), [])


def _wrong_cell(where: str, stream: BinaryIO, separator: str, columns: Sequence[str], read: Sequence[int]) -> Fault:
    """The first line or cell below the header that cannot be read, found by plain Python after the fast reader."""
    again = "fetch the file again"
    for number, line in enumerate(iter(lambda: stream.readline(LONGEST_LINE), b""), 1):
        if number == 1 or not line.strip():
            continue
        try:
            row_id, *cells = fields(line, separator)
        except csv.Error as error:
            found = f"a line that is no row of a table ({error})"
            return Fault(f"{where}, line {number}", found, "rows of numbers", again)
        at = f"{where}, line {number}, row {quoted(row_id)}"
        if len(cells) != len(columns):
            expected = f"{len(columns) + 1} fields"
            return Fault(at, f"{len(cells) + 1} fields", expected, f"{again}, or correct that line")
        for i in read:
            if not math.isfinite(number_of(cells[i])):
                step = f"correct that cell, or {again}"
                return Fault(f"{at}, column {columns[i]}", quoted(cells[i]), "a finite number", step)
    return Fault(where, "text that cannot be read as a table", "rows of numbers", again)


def endless(where: str) -> Fault:
    """Values that are each fit but whose sum is beyond the range of numbers."""
    return Fault(where, "values whose sum is not finite", "numbers of a sensible size", "fetch the file again")


_MEMBERS_SHARE = 1 / 8
"""A member is held in memory whole, so it may unpack to this part of what a file that is streamed may."""
_TAR_AGAIN = "fetch the archive again"


def read_sample_files(path: Path, samples: Sequence[str], wanted: Collection[str]) -> Expression:
    """Read the members of `samples` (GSM accessions) from a tar; members of other samples are passed over.

    Rows are those of the first member read; another order is joined by id. A `CohortError` names the member and row of
    a value that is no finite number, a damaged member, one that unpacks to
    more than an eighth of `largest_unpacked` bytes, other row ids, and samples that are missing or come twice.
    """
    with reading(path):
        damage = damage_of(path) or tar_damage(path)
    if damage is not None:
        raise CohortError(Fault(str(path), damage.found, damage.expected, _TAR_AGAIN))
    ids: pd.Index[str] | None = None
    kept = np.empty(0, dtype=bool)
    values: dict[str, np.ndarray] = {}
    total: dict[str, float] = {}
    for sample, where, text in _members(path, frozenset(samples)):
        if sample in values:
            raise CohortError(Fault(where, f"a second file of {sample}", "one file a sample", "remove one of them"))
        own_ids, column = _columns(where, text)
        if ids is None:
            ids, kept = own_ids, own_ids.isin(list(wanted))
        elif not own_ids.equals(ids):
            column = _in_order(where, own_ids, column, ids)
        values[sample] = column[kept]
        # Added in file order, as a joined matrix is, so that both forms agree to the last digit.
        with np.errstate(over="ignore"):
            total[sample] = float(np.cumsum(column)[-1])
        if not np.isfinite(total[sample]):
            raise CohortError(endless(where))
    missing = [sample for sample in samples if sample not in values]
    if missing or ids is None:
        found = f"no file for {len(missing)} of {len(samples)} samples: {', '.join(missing[:10])}"
        step = "check that the archive is this series', or drop these samples in `select`"
        raise CohortError(Fault(str(path), found, "a file `<GSM>_*.txt.gz` for each selected sample", step))
    index = pd.Index(list(samples), name="sample")
    table = pd.DataFrame({sample: values[sample] for sample in samples}, index=ids[kept].rename("row"))
    table.columns = index
    return Expression(table, pd.Series(total, name="library_size").reindex(index), len(ids))


def _members(path: Path, samples: frozenset[str]) -> Iterator[tuple[str, str, bytes]]:
    """Accession, name for messages, and unpacked text of the members that belong to `samples`."""
    with tarfile.open(path, "r:") as archive:
        for member in archive:
            match = re.fullmatch(r"(GSM[0-9]+)_.*\.txt\.gz", PurePosixPath(member.name).name)
            if match is None or match[1] not in samples or not member.isfile():
                continue
            where = f"{path}, member {member.name}"
            stream = archive.extractfile(member)
            assert stream is not None
            with reading(where, _TAR_AGAIN), unpacked(where, gzip.GzipFile(fileobj=stream), _MEMBERS_SHARE) as text:
                content = text.read()
            yield match[1], where, content


def _columns(where: str, text: bytes) -> tuple[pd.Index[str], np.ndarray]:
    """Row ids and values (rows,) of one member."""
    try:
        header = fields(text[: text.find(b"\n") + 1], "\t")
    except csv.Error as error:
        found = f"a line that is no header ({error})"
        raise CohortError(Fault(f"{where}, line 1", found, "two fields: row id and sample", _TAR_AGAIN)) from None
    if len(header) != 2:
        raise CohortError(Fault(f"{where}, line 1", f"{len(header)} fields", "two: row id and sample", _TAR_AGAIN))
    if not text[text.find(b"\n") + 1 :].strip():
        raise CohortError(Fault(where, "no row after the header", "at least one", _TAR_AGAIN))
    blocks = list(_blocks(where, lambda: io.BytesIO(text), "\t", header[1:], (0,)))
    ids = [row_id for block_ids, _ in blocks for row_id in block_ids]
    return pd.Index(ids, dtype=str), np.concatenate([block[:, 0] for _, block in blocks])


def _in_order(where: str, own: pd.Index[str], column: np.ndarray, ids: pd.Index[str]) -> np.ndarray:
    """The member's values in the order of `ids`; refused where the ids differ or, not being unique, are ambiguous."""
    others = own.symmetric_difference(ids)
    if len(others):
        found = "other row ids"
        raise CohortError(Fault(f"{where}, row {others[0]!r}", found, "those of the first member", _TAR_AGAIN))
    if not (own.is_unique and ids.is_unique):
        twice = ids[ids.duplicated()].union(own[own.duplicated()])[0]
        found = f"row id {twice!r} more than once, and another order of rows"
        raise CohortError(Fault(where, found, "the order of the first member", _TAR_AGAIN))
    return column[own.get_indexer(ids)]
