"""Verdicts: what a number of this run says of a number or a statement of the paper, by rules that look at both alone.

A verdict has two parts. *Direction*: whether an effect or a statement holds. *Size*: how far our number is from the
printed one, in points. The paper's own error is what our patients' spread would be at its n. docs/comparison.md has the
rules in words.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from fractions import Fraction
from typing import Any

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
OPERATORS = ("=", ">", "<")
EQUAL = 1e-9
"""Two numbers that are to be the same differ by no more than this: the rest is rounding."""


@dataclass(frozen=True)
class Number:
    """A number of this run with its interval over patients, NaN where it has none."""

    value: float
    low: float = math.nan
    high: float = math.nan

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
        return Number(self.value * factor, self.low * factor, self.high * factor)

    def complement(self) -> Number:
        """The share of all other cases."""
        return Number(1 - self.value, 1 - self.high, 1 - self.low)


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
    """That one number is above, below or the same as another, or as a fixed one: `left > right`."""

    left: Number
    operator: str
    right: Number
    text: str

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
