"""GEO's family SOFT files by way of GEOparse, for series whose series matrix lacks something.

No original family file could be had when this was written; it was tested on generated ones.
"""

from __future__ import annotations

import logging
import math
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pandas as pd

from afa.cohort.archive import GZIP_ERRORS, damage_of, open_binary
from afa.cohort.gene_matrix import LONGEST_LINE, lines_of
from afa.cohort.series_matrix import SeriesMatrix, samples_frame
from afa.csvfile import quoted, visible
from afa.errors import CohortError, Fault


def read_soft(path: Path, *, with_table: bool = True) -> SeriesMatrix:
    """Read a family SOFT file, gzip or plain, into the form of a series matrix; `table` holds each sample's VALUE.

    `table` is None if no sample has a table. A `CohortError` names what is missing: GEOparse itself, the file's end, a
    sample given twice, a VALUE that is not a number.
    """
    try:
        import GEOparse  # noqa: PLC0415  the dependency is optional
    except ImportError as error:
        step = "install it with: pip install 'afa[geo]'"
        raise CohortError(Fault(str(path), f"no GEOparse ({error})", "the package GEOparse", step)) from None
    path = Path(path)
    begun = _check_whole(path)
    GEOparse.set_verbosity("ERROR")
    said: list[str] = []
    # What GEOparse passes over it says in its log alone.
    with _heard(logging.getLogger("GEOparse"), said):
        try:
            family = GEOparse.get_GEO(
                filepath=str(path), geotype="GSE", open_kwargs={"encoding": "utf-8", "errors": "replace"}
            )
        except Exception as error:
            said.append(str(error))
    if said:
        reason = " ".join(said[0].split())[:200]
        raise _fault(path, f"text that GEOparse cannot read ({reason})", "a family SOFT file")
    accessions = list(family.gsms)
    if len(accessions) != begun:
        raise _fault(path, f"{begun} samples of which GEOparse finds {len(accessions)}", "a family SOFT file")
    titles = [next(iter(sample.metadata.get("title", ())), "") for sample in family.gsms.values()]
    characteristics = [sample.metadata.get("characteristics_ch1", []) for sample in family.gsms.values()]
    samples = samples_frame(path, accessions, titles, characteristics)
    tables = {name: sample.table for name, sample in family.gsms.items()}
    return SeriesMatrix(dict(family.metadata), samples, _joined(path, tables) if with_table else None)


@contextmanager
def _heard(logger: logging.Logger, said: list[str]) -> Iterator[None]:
    """Collect in `said` what a logger would have printed."""

    def collect(record: logging.LogRecord) -> bool:
        said.append(record.getMessage())
        return False

    logger.addFilter(collect)
    try:
        yield
    finally:
        logger.removeFilter(collect)


def _check_whole(path: Path) -> int:
    """The number of samples that are begun, and a check of what GEOparse does not look at.

    It returns the part before a damaged block, and the last of two equal samples.
    """
    try:
        damage = damage_of(path)
        if damage is not None:
            raise _fault(path, damage.found, damage.expected)
        begun, seen = 0, set()
        with open_binary(path) as stream:
            for line in lines_of(stream):
                if len(line) == LONGEST_LINE:
                    raise _fault(path, f"a line of {LONGEST_LINE} bytes or more", "shorter ones")
                if line.startswith(b"^SAMPLE"):
                    if line in seen:
                        found = visible(line.decode(errors="replace").strip())
                        raise _fault(path, f"{found} twice", "each sample once")
                    seen.add(line)
                elif line.lower().startswith(b"!sample_table_begin"):
                    begun += 1
                elif line.lower().startswith(b"!sample_table_end"):
                    begun -= 1
    except GZIP_ERRORS as error:
        raise _fault(path, f"a damaged gzip file ({error})", "the whole file") from None
    except OSError as error:
        raise _fault(path, error.strerror or str(error), "a readable file") from None
    if begun:
        raise _fault(path, "a sample table without its end", "the whole file")
    return len(seen)


def _joined(path: Path, tables: dict[str, pd.DataFrame]) -> pd.DataFrame | None:
    """Row id x sample, float64, joined by ID_REF: NaN where a sample lacks the row."""
    columns: dict[str, pd.Series[float]] = {}
    for name, table in tables.items():
        if table.empty:
            continue
        if not {"ID_REF", "VALUE"} <= set(table.columns):
            columns_found = quoted(", ".join(map(str, table.columns)))
            raise _fault(path, f"a table of {quoted(name)} with columns {columns_found}", "ID_REF and VALUE")
        ids = table["ID_REF"].astype(str)
        if ids.isna().any():
            raise _fault(path, f"a row without ID_REF in the table of {quoted(name)}", "an id for each row")
        if ids.duplicated().any():
            found = f"{quoted(ids[ids.duplicated()].iloc[0])} twice in the table of {name}"
            raise _fault(path, found, "each row id once")
        values = table["VALUE"].map(_number).astype("float64")
        wrong = values.isna() & table["VALUE"].notna() & (table["VALUE"].astype(str) != "null")
        if wrong.any():
            first = int(wrong.to_numpy().argmax())
            where = f"{path}, {name}, row {ids.iloc[first]}"
            raise CohortError(Fault(where, quoted(str(table["VALUE"].iloc[first])), "a number", "correct that cell"))
        columns[name] = pd.Series(values.to_numpy(), index=pd.Index(ids, name="ID_REF"))
    if not columns:
        return None
    return pd.DataFrame(columns).reindex(columns=list(tables))


def _number(cell: object) -> float:
    """A cell as GEOparse gives it: a number already, or the text that was there; NaN where it is neither."""
    try:
        return float(cell) if isinstance(cell, int | float | str) else math.nan
    except (ValueError, OverflowError):
        return math.nan


def _fault(path: Path, found: str, expected: str) -> CohortError:
    return CohortError(Fault(str(path), found, expected, "fetch the file again"))
