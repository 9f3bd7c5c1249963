"""Every line of the comparison as text, for the report, and how many there are of each verdict."""

from __future__ import annotations

from collections.abc import Hashable, Iterator, Mapping
from typing import Any, NamedTuple

import pandas as pd

from afa.report.comparison import CELL
from afa.report.screen import verdict_words
from afa.report.verdicts import NOTHING


class Line(NamedTuple):
    """One line of the comparison as text; `here` has its interval, `why` the reason and what to know beside."""

    what: str
    paper: str
    here: str
    unit: str
    verdict: str
    why: str


def line_of(row: Mapping[Hashable, Any], what: str) -> Line:
    """A row of the comparison as text; `what` stands for it."""
    why = "; ".join(part for part in (row["reason"], row["also"], row["note"]) if part)
    return Line(what, row["paper"], with_interval(row), row["unit"], verdict_words(row), why)


def counted(verdicts: pd.DataFrame) -> Iterator[tuple[str, dict[str, int]]]:
    """Of the printed cells, and of the claims: what they are, and how many have each direction, size, or neither.

    verdicts : the counts of `afa.report.comparison.count_verdicts`; lines with nothing to reproduce are left out.
    """
    is_claim = verdicts["source"].str.startswith("claims")
    for what, part in (("numbers in its tables", verdicts[~is_claim]), ("claims of its text", verdicts[is_claim])):
        sums = part.drop(columns="source").sum()
        yield what, {str(name): int(n) for name, n in sums.items() if n and name != NOTHING}


def every_line(comparison: pd.DataFrame) -> list[dict[str, str]]:
    """All lines but those with nothing to reproduce, as text, with what they are found by on the page."""
    lines = []
    for row in comparison[comparison["verdict"] != NOTHING].to_dict("records"):
        is_cell = row["kind"] == CELL
        what = f"{row['row']}, {row['column']}" if is_cell else row["claim"]
        line = line_of(row, what)._asdict()
        kind = "cell" if is_cell else "claim"
        lines.append({**line, "kind": kind, "id": row["id"], "table": row["table"], "see": row["see"]})
    return lines


def with_interval(row: Mapping[Hashable, Any]) -> str:
    """Our number with its interval, three digits each: `0.864 [0.851, 0.877]`; empty where there is none."""
    shown = digits(row["ours"])
    return shown if pd.isna(row["low"]) else f"{shown} [{digits(row['low'])}, {digits(row['high'])}]"


def digits(value: float | None) -> str:
    """Three digits, or all of a large whole number; empty for nothing.

    >>> digits(0.86412), digits(1234.0)
    ('0.864', '1234')
    """
    return "" if pd.isna(value) else f"{value:.3g}" if abs(value) < 100 else f"{value:.0f}"
