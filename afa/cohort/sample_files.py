"""GEO's `<series>_RAW.tar`: one gzip file of two columns, row id and value, for each sample.

Members are read from the archive's stream, one at a time; nothing is extracted, so no name in it can reach the disk.
"""

from __future__ import annotations

import csv
import gzip
import io
import re
import tarfile
from collections.abc import Collection, Iterator, Sequence
from pathlib import Path, PurePosixPath

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.csv as pa_csv

from afa.cohort.archive import GZIP_ERRORS, LARGEST_UNPACKED, damage_of, largest_unpacked, tar_damage
from afa.cohort.gene_matrix import Expression, Layout, endless, fields, lines_of, wrong_cell
from afa.errors import CohortError, Fault

_MEMBERS_SHARE = 8
"""A member is held in memory whole, so it may unpack to this part of what a file that is streamed may."""
_AGAIN = "fetch the archive again"


def read_sample_files(
    path: Path,
    samples: Sequence[str],
    wanted: Collection[str],
    *,
    allow_negative: bool = False,
    largest_member: int | None = None,
) -> Expression:
    """Read the members of `samples` (GSM accessions) from a tar; members of other samples are passed over.

    Rows are those of the first member read; another order is joined by id. A `CohortError` names the member and row of
    a value that is no finite number (or, unless allowed, negative), a damaged member, one of more than
    `largest_member` bytes unpacked (an eighth of `largest_unpacked` unless given), other row ids, and samples that are
    missing or come twice.
    """
    try:
        damage = damage_of(path) or tar_damage(path)
    except OSError as error:
        fault = Fault(str(path), error.strerror or str(error), "a readable file", "check the path")
        raise CohortError(fault) from None
    if damage is not None:
        raise CohortError(Fault(str(path), damage.found, damage.expected, _AGAIN))
    ids: pd.Index[str] | None = None
    kept = np.empty(0, dtype=bool)
    values: dict[str, np.ndarray] = {}
    total: dict[str, float] = {}
    largest = largest_unpacked() // _MEMBERS_SHARE if largest_member is None else largest_member
    for sample, where, text in _members(path, frozenset(samples), largest):
        if sample in values:
            raise CohortError(Fault(where, f"a second file of {sample}", "one file a sample", "remove one of them"))
        own_ids, column = _columns(where, text, allow_negative)
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


def _members(path: Path, samples: frozenset[str], largest: int) -> Iterator[tuple[str, str, bytes]]:
    """Accession, name for messages, and unpacked text of the members that belong to `samples`."""
    with tarfile.open(path, "r:") as archive:
        for member in archive:
            match = re.fullmatch(r"(GSM[0-9]+)_.*\.txt\.gz", PurePosixPath(member.name).name)
            if match is None or match[1] not in samples or not member.isfile():
                continue
            where = f"{path}, member {member.name}"
            stream = archive.extractfile(member)
            assert stream is not None
            try:
                with gzip.GzipFile(fileobj=stream) as unpacked:
                    content = unpacked.read(largest + 1)
            except (*GZIP_ERRORS, tarfile.TarError) as error:
                found = f"a truncated or damaged gzip file ({error})"
                raise CohortError(Fault(where, found, "one that reads to its end", _AGAIN)) from None
            if len(content) > largest:
                found = f"more than {largest} bytes unpacked"
                step = f"{_AGAIN}, or set the environment variable {LARGEST_UNPACKED} to more"
                raise CohortError(Fault(where, found, "a two-column table of one sample", step))
            yield match[1], where, content


def _columns(where: str, text: bytes, allow_negative: bool) -> tuple[pd.Index[str], np.ndarray]:
    """Row ids and values (rows,) of one member."""
    try:
        header = fields(text[: text.find(b"\n") + 1], "\t")
    except csv.Error as error:
        found = f"a line that is no header ({error})"
        raise CohortError(Fault(f"{where}, line 1", found, "two fields: row id and sample", _AGAIN)) from None
    if len(header) != 2:
        raise CohortError(Fault(f"{where}, line 1", f"{len(header)} fields", "two: row id and sample", _AGAIN))
    layout = Layout(where, "\t", header[1:], (0,), allow_negative)
    try:
        table = pa_csv.read_csv(
            io.BytesIO(text),
            pa_csv.ReadOptions(use_threads=False, skip_rows=1, column_names=["id", "value"]),
            pa_csv.ParseOptions(delimiter="\t"),
            pa_csv.ConvertOptions(column_types={"id": pa.string(), "value": pa.float64()}, null_values=[]),
        )
    except pa.ArrowInvalid:
        raise CohortError(_first_fault(text, layout)) from None
    values = table["value"].to_numpy()
    if not len(values):
        raise CohortError(Fault(where, "no row after the header", "at least one", _AGAIN))
    if not layout.acceptable(values):
        raise CohortError(_first_fault(text, layout))
    return pd.Index(table["id"].to_pylist(), dtype=str), values


def _first_fault(text: bytes, layout: Layout) -> Fault:
    lines = lines_of(io.BytesIO(text))
    next(lines)
    return wrong_cell(lines, layout)


def _in_order(where: str, own: pd.Index[str], column: np.ndarray, ids: pd.Index[str]) -> np.ndarray:
    """The member's values in the order of `ids`; refused where the ids differ or, not being unique, are ambiguous."""
    others = own.symmetric_difference(ids)
    if len(others):
        raise CohortError(Fault(f"{where}, row {others[0]!r}", "other row ids", "those of the first member", _AGAIN))
    if not (own.is_unique and ids.is_unique):
        twice = ids[ids.duplicated()].union(own[own.duplicated()])[0]
        found = f"row id {twice!r} more than once, and another order of rows"
        raise CohortError(Fault(where, found, "the order of the first member", _AGAIN))
    return column[own.get_indexer(ids)]
