"""The values of an expression file: what is kept of them, and finding the cell that is wrong."""

from __future__ import annotations

import csv
import math
from collections.abc import Collection, Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import BinaryIO

import numpy as np
import pandas as pd

from afa.csvfile import quoted
from afa.errors import Fault


@dataclass(frozen=True)
class Expression:
    """Expression values in the file's own unit.

    `values`: row id x sample accession, float64, the wanted rows, in file order, a repeated id kept each time;
    `library_size`: per sample, the sum over all rows of the file, added in file order; `n_rows`: rows of the file.
    """

    values: pd.DataFrame
    library_size: pd.Series[float]
    n_rows: int


@dataclass(frozen=True)
class Layout:
    """How a table's lines look: the file's name in messages, the separator, all columns, and those that are read."""

    where: str
    separator: str
    columns: Sequence[str]
    read: Collection[int]
    allow_negative: bool

    def acceptable(self, values: np.ndarray) -> bool:
        """Whether all values are finite and, unless allowed, none is negative."""
        return bool(np.isfinite(values).all()) and (self.allow_negative or bool((values >= 0).all()))


LONGEST_LINE = 64 << 20
"""Bytes of a line that is held in memory."""


def fields(line: bytes, separator: str) -> list[str]:
    """The fields of a line, without their double quotes; a `csv.Error` where it is no line of a table."""
    text = line.decode("utf-8", errors="replace").rstrip("\r\n")
    return next(csv.reader([text], delimiter=separator), [])


def lines_of(stream: BinaryIO) -> Iterator[bytes]:
    """The lines of a stream; one of more than `LONGEST_LINE` bytes comes in pieces."""
    return iter(lambda: stream.readline(LONGEST_LINE), b"")


def wrong_cell(lines: Iterable[bytes], layout: Layout) -> Fault:
    """The first line or cell that cannot be read, found by plain Python after the fast reader has refused the file."""
    number_expected = f"a finite number{'' if layout.allow_negative else ', not negative'}"
    for number, line in enumerate(lines, 2):
        if not line.strip():
            continue
        try:
            row_id, *cells = fields(line, layout.separator)
        except csv.Error as error:
            found = f"a line that is no row of a table ({error})"
            return Fault(f"{layout.where}, line {number}", found, "rows of numbers", "fetch the file again")
        where = f"{layout.where}, line {number}, row {quoted(row_id)}"
        if len(cells) != len(layout.columns):
            expected = f"{len(layout.columns) + 1} fields"
            return Fault(where, f"{len(cells) + 1} fields", expected, "fetch the file again, or correct that line")
        for i in layout.read:
            if not _acceptable(cells[i], layout.allow_negative):
                at = f"{where}, column {layout.columns[i]}"
                return Fault(at, quoted(cells[i]), number_expected, "correct that cell, or fetch the file again")
    return Fault(layout.where, "text that cannot be read as a table", "rows of numbers", "fetch the file again")


def endless(where: str) -> Fault:
    """Values that are each fit but whose sum is beyond the range of numbers."""
    return Fault(where, "values whose sum is not finite", "numbers of a sensible size", "fetch the file again")


def _acceptable(cell: str, allow_negative: bool) -> bool:
    try:
        value = float(cell)
    except ValueError:
        return False
    return math.isfinite(value) and (allow_negative or value >= 0)
