"""Numbers that stand for *not measured* in a table, such as -9 and 999: which are declared, and which only look so."""

from __future__ import annotations

import re
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from afa.cohort.cells import Cells
from afa.model.features import Features, Span, is_missing

Bools = npt.NDArray[np.bool_]
Floats = npt.NDArray[np.float64]

REPEATED = 3
"""So often, a number that cannot be or that lies far from all others is taken for a code."""
_CODE = re.compile(r"9*[789]|7+|8+")
LEAST_OTHERS = 3
"""Different numbers that a column must have beside those that may be codes."""
MOST_CODES = 3


class Apart(NamedTuple):
    """Numbers of a column that lie apart from the others: what they are, how often they occur, the others' range."""

    values: tuple[float, ...]
    counts: tuple[int, ...]
    low: float
    high: float

    def __str__(self) -> str:
        side = "below" if self.values[0] < self.low else "above"
        several = [f"{count:,} {'is' if count == 1 else 'are'} {value:g}" for value, count in self._pairs]
        return f"{' and '.join(several)}, {side} all others ({self.low:g} to {self.high:g})"

    @property
    def _pairs(self) -> list[tuple[float, int]]:
        return list(zip(self.values, self.counts, strict=True))


def without_codes(cells: Cells, features: Features) -> Cells:
    """Return the cells with those empty that hold what the dictionary says of *not measured*."""
    columns = dict(cells.columns)
    for name, codes in zip(features.names, features.missing_codes, strict=True):
        if codes and name in columns:
            texts = columns[name]
            empty = {text for text in set(texts) if is_missing(text, codes)}
            columns[name] = ["" if text in empty else text for text in texts]
    return cells._replace(columns=columns)


def looks_like_code(values: npt.ArrayLike) -> Bools:
    """Return where numbers (n,) are ones that people write for *not measured*: -1, -9, 77, 888, 97, 98, 99, 998, ..."""
    numbers = np.asarray(values, dtype=np.float64)
    found = [value == -1 or (value.is_integer() and bool(_CODE.fullmatch(f"{abs(value):.0f}"))) for value in numbers]
    return np.array(found, dtype=np.bool_)


def repeated_outside(values: Floats, span: Span, *, closed: bool) -> tuple[Bools, Bools]:
    """Return where numbers (n,) outside of a span cannot be measurements, and where they may be.

    The first are all of a closed scale, and of any other those that look like a code or occur `REPEATED` times.
    """
    outside = span.excludes(values)
    if closed:
        return outside, np.zeros_like(outside)
    found, count = np.unique(values[outside], return_counts=True)
    coded = outside & np.isin(values, found[looks_like_code(found) | (count >= REPEATED)])
    return coded, outside & ~coded


def apart(values: Floats, span: Span | None = None) -> list[Apart]:
    """Return the numbers of a column (n,) that may be codes for *not measured*, of its low and of its high end.

    They are the only ones below 0 and look like codes; or the gap between them and the others is as wide as the others'
    whole range, or half as wide where they look like codes. Zeros of counts and ceilings of detection have no such gap.
    A number that is an end of the span is none of them.
    """
    known = values[np.isfinite(values)]
    found, counts = np.unique(known, return_counts=True)
    ends = () if span is None else (span.low, span.high)
    sides = [_below_zero(found, counts) or _beyond_gap(found, counts), _beyond_gap(found[::-1], counts[::-1])]
    noted = []
    for size, side in zip(sides, (slice(None), slice(None, None, -1)), strict=True):
        tail, of, others = found[side][:size], counts[side][:size], found[side][size:]
        if size and not np.isin(tail, ends).any():
            noted.append(Apart(tuple(tail.tolist()), tuple(of.tolist()), float(others.min()), float(others.max())))
    return noted


def _below_zero(found: Floats, counts: npt.NDArray[np.intp]) -> int:
    """How many numbers lie below 0, where each looks like a code and the others do not."""
    size = int((found < 0).sum())
    coded = size and size <= MOST_CODES and looks_like_code(found[:size]).all()
    often = counts[:size].sum() > 1 or bool((found[:size] <= -99).any())
    return size if coded and often and len(found) - size >= LEAST_OTHERS else 0


def _beyond_gap(found: Floats, counts: npt.NDArray[np.intp]) -> int:
    """How many of the first numbers, of ascending or descending ones, are apart from the rest by a wide gap."""
    for size in range(1, min(MOST_CODES, len(found) - LEAST_OTHERS) + 1):
        tail, rest, often = found[:size], found[size:], counts[:size]
        gap, spread = abs(rest[0] - tail[-1]), abs(rest[-1] - rest[0])
        if looks_like_code(tail).all() and np.abs(tail).min() > 9:
            wide = gap > spread or (gap > spread / 2 and often.sum() > 1)
            if wide and (often.sum() > 1 or np.abs(tail).min() > 99):
                return size
        elif size == 1 and gap > spread and often[0] >= REPEATED:
            return 1
    return 0
