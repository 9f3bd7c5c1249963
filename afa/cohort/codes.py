"""Find numbers in a table, such as -9 and 999, that stand for *not measured*.

Such a number, called a code, is declared in `features.csv`, or is recognised by its digits or by its distance from all
other values.
"""

from __future__ import annotations

import re
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from afa.cohort.cells import Cells
from afa.model.arrays import Bools, Floats
from afa.model.features import Features, Span, is_missing_code

LEAST_REPEATS = 3
"""An impossible number, or a number far from all others, is taken for a code if the number occurs at least this often.
"""
_CODE_DIGITS = re.compile(r"9*[789]|7+|8+")
LEAST_OTHERS = 3
"""Least number of distinct values that a column must contain in addition to possible codes."""
MOST_CODES = 3


class Apart(NamedTuple):
    """Extreme values of a column, which are far from all other values of the column.

    Parameters
    ----------
    values : the values
    counts : number of occurrences of each
    low, high : range of the other values

    """

    values: tuple[float, ...]
    counts: tuple[int, ...]
    low: float
    high: float

    def __str__(self) -> str:
        side = "below" if self.values[0] < self.low else "above"
        several = [f"{count:,} {'is' if count == 1 else 'are'} {value:g}" for value, count in self._values_with_counts]
        return f"{' and '.join(several)}, {side} all others ({self.low:g} to {self.high:g})"

    @property
    def _values_with_counts(self) -> list[tuple[float, int]]:
        return list(zip(self.values, self.counts, strict=True))


def without_codes(cells: Cells, features: Features) -> Cells:
    """Return the cells, with an empty text in place of each number that `features.csv` declares as *not measured*."""
    columns = dict(cells.columns)
    for name, codes in zip(features.names, features.missing_codes, strict=True):
        if codes and name in columns:
            texts = columns[name]
            empty = {text for text in set(texts) if is_missing_code(text, codes)}
            columns[name] = ["" if text in empty else text for text in texts]
    return cells._replace(columns=columns)


def looks_like_code(values: npt.ArrayLike) -> Bools:
    """Return True for each number that is a common code for *not measured*.

    Common codes are, for example, -1, -9, 77, 888, 97, 98, 99 and 998.

    Parameters
    ----------
    values : (n,) numbers

    Returns
    -------
    common : (n,) bool

    """
    numbers = np.asarray(values, dtype=np.float64)
    found = [
        value == -1 or (value.is_integer() and bool(_CODE_DIGITS.fullmatch(f"{abs(value):.0f}"))) for value in numbers
    ]
    return np.array(found, dtype=np.bool_)


def repeated_outside(values: Floats, span: Span, *, closed: bool) -> tuple[Bools, Bools]:
    """Classify each number outside a feature's range `span` as a code for *not measured* or as a measurement.

    If `closed` is True, every number outside `span` is classified as a code for *not measured*. If `closed` is False, a
    number outside `span` is classified as a code if it looks like a common code (`looks_like_code`) or is frequent (at
    least `LEAST_REPEATS` cells).

    Parameters
    ----------
    values : (n,) float64

    Returns
    -------
    codes : (n,) bool, True for a code outside the span
    measured : (n,) bool, True for another number outside the span

    """
    outside = span.excludes(values)
    if closed:
        return outside, np.zeros_like(outside)
    found, count = np.unique(values[outside], return_counts=True)
    coded = outside & np.isin(values, found[looks_like_code(found) | (count >= LEAST_REPEATS)])
    return coded, outside & ~coded


def apart(values: Floats, span: Span | None = None) -> list[Apart]:
    """Return the groups of extreme values in a column that may be codes for *not measured*.

    All negative numbers of the column are reported if each of them is a common code (`looks_like_code`). Any other
    group of extreme numbers is reported only if a wide gap separates it from all other numbers, and if one of two
    further conditions holds: all numbers of the group are common codes, or the group is a single number that occurs in
    many cells. A zero or a value at a detection limit is not taken for a code, because no wide gap separates it from
    the other values. Extreme values are never reported if one of them equals the lower or the upper end of `span`, the
    feature's range.

    Parameters
    ----------
    values : (n,) float64, one column

    """
    known = values[np.isfinite(values)]
    found, counts = np.unique(known, return_counts=True)
    ends = () if span is None else (span.low, span.high)
    sides = [
        _count_negative_codes(found, counts) or _count_beyond_gap(found, counts),
        _count_beyond_gap(found[::-1], counts[::-1]),
    ]
    noted = []
    for size, side in zip(sides, (slice(None), slice(None, None, -1)), strict=True):
        tail, of, others = found[side][:size], counts[side][:size], found[side][size:]
        if size and not np.isin(tail, ends).any():
            noted.append(Apart(tuple(tail.tolist()), tuple(of.tolist()), float(others.min()), float(others.max())))
    return noted


def _count_negative_codes(found: Floats, counts: npt.NDArray[np.intp]) -> int:
    """Return the number of distinct values below 0 if all of them are common codes (`looks_like_code`), else 0.

    The result is also 0 if there are more than `MOST_CODES` distinct values below 0, or if there are fewer than
    `LEAST_OTHERS` distinct values of 0 or above. The result is also 0 if the column has only one negative cell and the
    value of this cell is above -99.
    """
    size = int((found < 0).sum())
    coded = size and size <= MOST_CODES and looks_like_code(found[:size]).all()
    often = counts[:size].sum() > 1 or bool((found[:size] <= -99).any())
    return size if coded and often and len(found) - size >= LEAST_OTHERS else 0


def _count_beyond_gap(found: Floats, counts: npt.NDArray[np.intp]) -> int:
    """Return how many values at the start of `found` are separated from the other values by a wide gap.

    `found` is sorted in ascending or descending order. Let the range be the difference between the largest and the
    smallest value after the gap. The gap is wide in each of these cases:

    - Before the gap are several cells, each with a common code (`looks_like_code`) of more than 9 in absolute value.
      The gap is larger than half the range.
    - Before the gap is one cell, with a common code of more than 99 in absolute value. The gap is larger than the
      range.
    - Before the gap is a single value that occurs at least `LEAST_REPEATS` times. The gap is larger than the range.
    """
    for size in range(1, min(MOST_CODES, len(found) - LEAST_OTHERS) + 1):
        tail, rest, often = found[:size], found[size:], counts[:size]
        gap, spread = abs(rest[0] - tail[-1]), abs(rest[-1] - rest[0])
        if looks_like_code(tail).all() and np.abs(tail).min() > 9:
            wide = gap > spread or (gap > spread / 2 and often.sum() > 1)
            if wide and (often.sum() > 1 or np.abs(tail).min() > 99):
                return size
        elif size == 1 and gap > spread and often[0] >= LEAST_REPEATS:
            return 1
    return 0
