"""Verdicts: what answers each printed cell and claim of the paper, and by which rules a number of a run is judged.

A verdict has two parts. *Direction*: whether an effect or a statement holds. *Size*: how far our number is from the
printed one, in points. The paper's own error is what our patients' spread would be at its n. docs/comparison.md has the
rules in words.

`resources/paper/answers.yaml` says what is judged. A *reading* is a line of the summary in short: a name of `lines`,
which stands for its key columns, and keys that are added or changed, such as `chaos t=10 stratum=chaotic`; `t=M` is
full observation. A *relation* is two readings, or a reading and a number, with `>`, `<` or `=` between.
"""

from __future__ import annotations

import math
import shlex
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from fnmatch import fnmatchcase
from fractions import Fraction
from typing import Any, Literal

from pydantic import Field

from afa.io.yamlfile import Strict

HOLDS = "holds"
REVERSES = "reverses"
UNCLEAR = "unclear"
IDENTITY = "true by definition"
NOT_COMPARABLE = "not comparable"
NOT_RUN = "not run"
NOTHING = "nothing to reproduce"
SIMULATED = "simulated"
DIRECTIONS = (HOLDS, REVERSES, UNCLEAR)
UNJUDGED = (IDENTITY, NOT_COMPARABLE, NOT_RUN, NOTHING, SIMULATED)
NEAR, CLOSE, FAR = "within 2 points", "within 5 points", "far"
SIZES = (NEAR, CLOSE, FAR)
POINTS = {NEAR: 2.0, CLOSE: 5.0}
"""Percentage points of a share or of a difference of shares; per cent of the printed value of any other number."""

SCALE = {"share": 1.0, "percent": 100.0}
"""Units of a share, in ones of the unit."""
DIFFERENCE = "percentage points"
HUNDREDTHS = ("percent", DIFFERENCE)
"""Units in which people read shares and their differences."""
OPERATORS = ("=", ">", "<")
EQUAL = 1e-9
"""Two numbers that are to be the same differ by no more than this: the rest is rounding."""


@dataclass(frozen=True)
class Number:
    """A number of this run with its interval over patients, NaN where it has none; its unit; n, the cases behind it."""

    value: float
    low: float = math.nan
    high: float = math.nan
    unit: str = ""
    n: float = math.nan

    @property
    def ends(self) -> tuple[float, float]:
        """The interval; the number itself where it has none."""
        return (self.value, self.value) if math.isnan(self.low) or math.isnan(self.high) else (self.low, self.high)

    @property
    def half(self) -> float:
        """Half the width of the interval, 0 where it has none."""
        low, high = self.ends
        return (high - low) / 2

    def scaled(self, factor: float) -> Number:
        return replace(self, value=self.value * factor, low=self.low * factor, high=self.high * factor)

    def complement(self) -> Number:
        """The share of all other cases."""
        return replace(self, value=1 - self.value, low=1 - self.high, high=1 - self.low)

    def in_unit(self, unit: str) -> Number:
        """The number in the paper's unit, a share that is not printed in percent from 0 to 1."""
        in_hundredths = self.unit in HUNDREDTHS and unit not in HUNDREDTHS
        return replace(self.scaled(0.01) if in_hundredths else self, unit=unit)

    def __str__(self) -> str:
        if math.isnan(self.low):
            return number(self.value)
        return f"{number(self.value)} [{number(self.low)}, {number(self.high)}]"


@dataclass(frozen=True)
class Printed:
    """A number of the paper: the text as printed, its unit, the patients behind it where they are said, and a bound.

    bound : "at most" or "at least" where the paper says so.
    """

    text: str
    unit: str
    patients: int | None = None
    bound: str | None = None

    @property
    def value(self) -> float:
        return float(Fraction(self.text))

    @property
    def rounding(self) -> float:
        """Half a unit of the last printed digit; 0 for a fraction."""
        return 0.0 if "/" in self.text else 0.5 * 10.0 ** -len(self.text.partition(".")[2])

    def error(self, ours: Number, patients: float) -> float:
        """Half-width of the paper's own interval: ours, over so many `patients`, at the paper's n; 0 without n."""
        return 0.0 if self.patients is None else ours.half * math.sqrt(patients / self.patients)


@dataclass(frozen=True)
class Verdict:
    """One of `DIRECTIONS` or of `UNJUDGED`, or empty for a level, which has none; one of `SIZES`, or empty; why."""

    direction: str
    size: str = ""
    reason: str = ""


def judge(printed: Printed, ours: Number, patients: float) -> Verdict:
    """How a number of this run, over so many `patients`, compares with a printed one, in the paper's unit."""
    if abs(printed.value) <= EQUAL and abs(ours.value) <= EQUAL:
        return Verdict(IDENTITY, reason="0 = 0")
    error = printed.error(ours, patients) + printed.rounding
    difference = ours.value - printed.value
    if printed.bound == "at most":
        difference = max(difference, 0.0)
    if printed.bound == "at least":
        difference = min(difference, 0.0)
    direction = _direction(printed, ours, error) if printed.unit == DIFFERENCE else ""
    apart, together = abs(difference), math.hypot(ours.half, error)
    said = "no further apart than the error of both" if apart <= together else "further apart than the error of both"
    reason = f"{number(apart)} apart; {said}, {number(together)}" if together else f"{number(apart)} apart"
    return Verdict(direction, size_of(printed, apart), reason)


def verdict_words(row: Mapping[Any, Any]) -> str:
    """Direction and size, of a line of the comparison or of the first screen, as one phrase."""
    return ", ".join(word for word in (row["verdict"], row["size"]) if word)


def size_of(printed: Printed, apart: float) -> str:
    """The word for a distance in the paper's unit."""
    whole = {DIFFERENCE: 100.0, "correlation": 1.0, **SCALE}.get(printed.unit, abs(printed.value))
    points = 0.0 if apart <= EQUAL else 100 * apart / whole if whole else math.inf
    return next((word for word, most in POINTS.items() if points <= most + EQUAL), FAR)


def _direction(printed: Printed, ours: Number, error: float) -> str:
    """Whether two differences are on one side of 0, each beyond its own error."""
    low, high = ours.ends
    if low <= 0 <= high or abs(printed.value) <= error:
        return UNCLEAR
    return HOLDS if ours.value * printed.value > 0 else REVERSES


def number(value: float) -> str:
    """A number for a sentence: three significant digits, no exponent for what people count."""
    if value == 0 or abs(value) >= 1000:
        return f"{value:.0f}"
    return f"{value:.3g}" if abs(value) >= 1e-4 else f"{value:.0e}"


@dataclass(frozen=True)
class Relation:
    """That one number is above, below or the same as another, or as a fixed one: `left > right`.

    shown : what stands for it in a table: the left side of a fixed number, else the difference of both.
    """

    left: Number
    operator: str
    right: Number
    text: str
    shown: Number | None = None

    @property
    def holds(self) -> bool:
        """By the intervals: `>` where they lie apart, `=` where they meet in the same value or hold the fixed one."""
        (low, high), (other_low, other_high) = self.left.ends, self.right.ends
        if self.operator == ">":
            return low > other_high
        if self.operator == "<":
            return high < other_low
        fixed = other_low == other_high
        return low - EQUAL <= other_low <= high + EQUAL if fixed else abs(self.left.value - self.right.value) <= EQUAL

    @property
    def reversed(self) -> bool:
        """By the intervals, the other way round; numbers that are to be the same differ."""
        if self.operator == "=":
            return not self.holds
        turned = {">": "<", "<": ">"}[self.operator]
        return Relation(self.left, turned, self.right, "").holds


def judge_statement(relations: Sequence[Relation]) -> Verdict:
    """Whether all that a statement comes to holds, by the intervals."""
    failing = [relation for relation in relations if not relation.holds]
    if not failing:
        return Verdict(HOLDS, reason="; ".join(relation.text for relation in relations))
    turned = [relation for relation in failing if relation.reversed]
    reason = "; ".join(relation.text for relation in turned or failing)
    return Verdict(REVERSES, reason=reason) if turned else Verdict(UNCLEAR, reason=reason)


Kind = Literal["row", "paired", "erratum", "decision", "background", "not_comparable", "not_run"]
READ: tuple[Kind, ...] = ("row", "paired", "erratum")
"""Answers that are judged by a number of this run; the others say why there is none to judge."""
END = "M"


class Answer(Strict):
    """Where one claim is answered, or why it is not; what is judged is one of `cell`, `line`, `fact` and `holds`."""

    answer: Kind
    cell: str | None = Field(None, description="`table | row | column` of a printed cell: answered by the same line")
    line: str | None = Field(None, description="a reading")
    fact: str | None = Field(None, description="a number of the cohort itself, such as `patients`")
    holds: tuple[str, ...] = Field((), description="relations that the claim comes to, all of them")
    complement: bool = Field(False, description="1 less the reading")
    bound: Literal["at most", "at least"] | None = None
    patients: int | None = Field(None, description="behind the paper's share; for a cell, that of its table")
    definition: bool = Field(False, description="true by definition, so that reproducing it says nothing")
    see: tuple[str, ...] = Field((), description="ids of docs/errata.md and docs/decisions.md")
    why: str | None = Field(None, description="a name of `reasons`, or the reason itself")


class CellRule(Strict):
    """Cells, by patterns of row and column, that are not judged, with the reason, or judged with a note."""

    table: str
    row: str = "*"
    column: str = "*"
    answer: Literal["judged", "not_comparable", "not_run"]
    why: str | None = None
    definition: bool = False
    see: tuple[str, ...] = ()

    def covers(self, table: str, row: str, column: str) -> bool:
        return table == self.table and fnmatchcase(row, self.row) and fnmatchcase(column, self.column)


class Answers(Strict):
    """The whole file; a test holds each answer to what it needs, and each name in it to what it stands for.

    patients : behind each printed table, by its file name. places : where each
    table of the paper stands in the report, `notebook NAME`, or why it has no number there.
    """

    patients: Mapping[str, int]
    reasons: Mapping[str, str]
    lines: Mapping[str, Mapping[str, str | int | float]]
    cells: tuple[CellRule, ...]
    places: Mapping[str, str]
    claims: Mapping[str, Answer]

    def reason(self, why: str | None) -> str:
        """The text of a reason given by name; the reason itself where it has none."""
        return "" if why is None else self.reasons.get(why, why)

    def keys(self, reading: str) -> dict[str, str | int | float]:
        """Key columns of a reading."""
        name, *pairs = shlex.split(reading)
        keys = dict(self.lines[name])
        for key, _, value in (pair.partition("=") for pair in pairs):
            keys[key] = float(value) if key == "level" else int(value) if key == "t" and value != END else value
        return keys


def relation_of(text: str) -> tuple[str, str, str]:
    """Left side, operator and right side of a relation."""
    (operator,) = (word for word in shlex.split(text) if word in OPERATORS)
    left, _, right = text.partition(f" {operator} ")
    return left.strip(), operator, right.strip()


def is_number(side: str) -> bool:
    """Whether a side of a relation is a number rather than a reading."""
    try:
        float(side)
    except ValueError:
        return False
    return True
