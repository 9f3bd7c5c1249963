"""The first screen of the report: what the paper mainly says, what came of it here, and why."""

from __future__ import annotations

from collections.abc import Hashable, Iterator, Mapping, Sequence
from typing import Any, NamedTuple

import pandas as pd
from pydantic import BaseModel, ConfigDict

from afa.errors import ConfigError, Fault
from afa.report.comparison import BY_DEFINITION, CELL
from afa.report.verdicts import NOT_COMPARABLE, NOT_REPRODUCED, NOT_RUN, NOTHING, REPRODUCED, SAME_DIRECTION, SIMULATED

JUDGED = (REPRODUCED, SAME_DIRECTION, NOT_REPRODUCED)
SHOWN = (*JUDGED, SIMULATED, NOT_COMPARABLE, NOT_RUN)


class Headline(BaseModel):
    """One main statement of the paper: `lines` are the claims that it comes to, with what each is about."""

    model_config = ConfigDict(extra="forbid", frozen=True)
    says: str
    lines: Mapping[str, str]
    because: str


class Headlines(BaseModel):
    """The whole file, in the order in which a reader meets the statements."""

    model_config = ConfigDict(extra="forbid", frozen=True)
    headlines: tuple[Headline, ...]


class Line(NamedTuple):
    """One line of the comparison as text; `here` has its interval, `why` the reason and what to know beside."""

    what: str
    paper: str
    here: str
    unit: str
    verdict: str
    why: str


class Told(NamedTuple):
    """A headline with the lines that it is held to."""

    says: str
    lines: tuple[Line, ...]
    because: str


def tell(headlines: Sequence[Headline], comparison: pd.DataFrame) -> list[Told]:
    """Every headline with its lines of `comparison`, the table of `afa.report.comparison.compare`.

    Raises
    ------
    ConfigError : a headline that names a claim which there is not.

    """
    claims = {row["id"]: row for row in comparison.to_dict("records") if row["id"]}
    lacking = sorted({name for headline in headlines for name in headline.lines} - set(claims))
    if lacking:
        where = "resources/paper/headlines.yaml"
        raise ConfigError(Fault(where, f"no claim {', '.join(lacking)}", "ids of claims.csv", "mend it"))
    return [
        Told(
            headline.says,
            tuple(line_of(claims[name], what) for name, what in headline.lines.items()),
            headline.because,
        )
        for headline in headlines
    ]


def line_of(row: Mapping[Hashable, Any], what: str) -> Line:
    """A row of the comparison as text; `what` stands for it."""
    why = "; ".join(part for part in (row["reason"], row["note"]) if part)
    return Line(what, row["paper"], with_interval(row), row["unit"], row["verdict"], why)


def counted(verdicts: pd.DataFrame) -> Iterator[tuple[str, int, dict[str, int], int]]:
    """Of the printed cells, and of the claims: what they are, how many can be judged, by verdict, and by definition.

    verdicts : the counts of `afa.report.comparison.count_verdicts`; lines with nothing to reproduce are left out.
    """
    is_claim = verdicts["source"].str.startswith("claims")
    for what, part in (("numbers in its tables", verdicts[~is_claim]), ("claims of its text", verdicts[is_claim])):
        sums = part.drop(columns="source").sum()
        counts = {verdict: int(sums[verdict]) for verdict in SHOWN if sums[verdict]}
        yield what, sum(counts.values()), counts, int(sums[BY_DEFINITION])


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
