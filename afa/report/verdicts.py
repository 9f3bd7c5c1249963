"""Verdicts: what a number of this run says of a number or a statement of the paper, by rules that look at both alone.

A printed share is taken with the largest error that a mean over n patients can have, the binomial one; a difference
of two shares on the same patients has none that its printed value determines, and is taken as printed.
docs/comparison.md has the rules in words.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from fractions import Fraction
from statistics import NormalDist

REPRODUCED = "reproduced"
SAME_DIRECTION = "same direction"
NOT_REPRODUCED = "not reproduced"
NOT_COMPARABLE = "not comparable"
NOT_RUN = "not run"
NOTHING = "nothing to reproduce"
SIMULATED = "simulated"
VERDICTS = (REPRODUCED, SAME_DIRECTION, NOT_REPRODUCED, NOT_COMPARABLE, NOT_RUN, NOTHING, SIMULATED)

SCALE = {"share": 1.0, "percent": 100.0}
"""Units of a share, in ones of the unit; anything else has no binomial error."""
DIFFERENCE = "percentage points"
OPERATORS = ("=", ">", "<")
EQUAL = 1e-9
"""Two numbers that are to be the same differ by no more than this: the rest is rounding."""


@dataclass(frozen=True)
class Rules:
    """When a number counts as reproduced: the settings `comparison` of a run.

    confidence : of the paper's own binomial error. largest_error : half-width of it, as a share, above which a printed
    share says too little to hold another against it.
    """

    confidence: float = 0.95
    largest_error: float = 0.2


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

    def error(self, confidence: float) -> float:
        """Half-width of the paper's own binomial error, sqrt(p (1 - p) / n) times the normal quantile; 0 without n."""
        scale = SCALE.get(self.unit)
        if scale is None or self.patients is None:
            return 0.0
        share = self.value / scale
        return scale * NormalDist().inv_cdf((1 + confidence) / 2) * math.sqrt(share * (1 - share) / self.patients)


@dataclass(frozen=True)
class Verdict:
    """One of `VERDICTS`, and why."""

    name: str
    reason: str


def judge(printed: Printed, ours: Number, rules: Rules) -> Verdict:
    """Whether a printed number is reproduced, in its own unit."""
    error, (low, high) = printed.error(rules.confidence), ours.ends
    scale = SCALE.get(printed.unit, 1.0)
    if error > rules.largest_error * scale:
        return Verdict(
            NOT_COMPARABLE, f"{printed.patients} patients: the printed share is known to {number(error)} only"
        )
    margin = error + printed.rounding
    inside = low - margin <= printed.value <= high + margin
    inside |= printed.bound == "at most" and low - margin <= printed.value
    inside |= printed.bound == "at least" and printed.value <= high + margin
    widened = _range(low - margin, high + margin, SCALE.get(printed.unit))
    if inside:
        return Verdict(
            REPRODUCED, f"within {widened}" if printed.bound is None else f"{printed.bound} this, by {widened}"
        )
    if printed.unit == DIFFERENCE and (low > 0 < printed.value or high < 0 > printed.value):
        return Verdict(SAME_DIRECTION, f"outside {widened}, and on the same side of 0")
    opposite = printed.unit == DIFFERENCE and (low > 0 > printed.value or high < 0 < printed.value)
    return Verdict(NOT_REPRODUCED, f"outside {widened}" + (", and on the other side of 0" if opposite else ""))


def _range(low: float, high: float, most: float | None) -> str:
    """A range in words; of a share no more of it than there can be."""
    ends = (low, high) if most is None else (max(low, 0.0), min(high, most))
    return " to ".join(map(number, ends))


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
        """By the intervals, the other way round."""
        turned = {">": "<", "<": ">"}.get(self.operator)
        return turned is not None and Relation(self.left, turned, self.right, "").holds


def judge_statement(relations: Sequence[Relation], *, exact: bool) -> Verdict:
    """Whether all that a statement comes to holds.

    A direction is at most that; one with numbers (`exact`), or one of equality alone, is reproduced.
    """
    failing = [relation for relation in relations if not relation.holds]
    if failing:
        turned = [relation for relation in failing if relation.reversed]
        how = "the other way round" if turned else "not apart" if failing[0].operator != "=" else "not the same"
        return Verdict(NOT_REPRODUCED, f"{how}: {'; '.join(relation.text for relation in turned or failing)}")
    is_exact = exact or all(relation.operator == "=" for relation in relations)
    return Verdict(REPRODUCED if is_exact else SAME_DIRECTION, "; ".join(relation.text for relation in relations))
