"""Compare a run's numbers with the numbers and claims of the paper, and return verdicts.

An effect is a difference of two shares. A verdict (class `Verdict`) has two parts, `direction` and `size`. The part
`direction` says whether an effect, or a statement such as "a is ahead of b", holds in this run. The verdict on the
direction depends on confidence intervals over patients. For an effect, the part `size` of a verdict describes the ratio
of this run's effect to the printed effect. If a printed number is not a difference of two shares, `size` describes how
far this run's number is from the printed number. The uncertainty of a printed number is estimated from this run's
confidence interval of the same number. The estimate takes into account how many patients the paper and this run have.
The function `outcome` combines the two parts of a verdict into one word (see docs/comparison.md).

`resources/paper/answers.yaml` defines how a run is compared with each cell of the paper's tables and with each claim.
In answers.yaml, a text such as `chaos t=10 stratum=chaotic` names one line of summary.csv. In a
text such as `chaos t=10`, the first word `chaos` is an abbreviation for the values of several key columns. The section
`lines` of answers.yaml defines these abbreviations. In a text such as `chaos t=10`, each later word (here `t=10`) sets
the value of one key column of summary.csv. A later word overrides the abbreviation. `t=M` means full observation. A
*relation* is a comparison of two numbers by `>`, `<` or `=`, such as `chaos t=10 > 0`. In a relation, the text before
the operator names a line of summary.csv. The text after the operator of a relation names another line of summary.csv,
or is a constant. `2 * chaos t=10` means twice the number that `chaos t=10` names.
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
NONE_HERE = "no effect here"
ONLY_HERE = "effect only here"
NO_BETTER = "a constant does as well"
IDENTITY = "true by definition"
NOT_COMPARABLE = "not comparable"
NOT_RUN = "not run"
NOTHING_TO_REPRODUCE = "nothing to reproduce"
SIMULATED = "simulated"
DIRECTION_VERDICTS = (HOLDS, REVERSES, NONE_HERE, ONLY_HERE, NO_BETTER, UNCLEAR)
UNJUDGED = (IDENTITY, NOT_COMPARABLE, NOT_RUN, NOTHING_TO_REPRODUCE, SIMULATED)
WITHIN_2_POINTS, WITHIN_5_POINTS = "within 2 points", "within 5 points"
WITHIN_FACTOR_1_25, WITHIN_FACTOR_2, OTHER_SIZE = "within a factor of 1.25", "within a factor of 2", "another size"
SIZE_VERDICTS = (WITHIN_2_POINTS, WITHIN_5_POINTS, WITHIN_FACTOR_1_25, WITHIN_FACTOR_2, OTHER_SIZE)
LARGEST_DISTANCES = {WITHIN_2_POINTS: 2.0, WITHIN_5_POINTS: 5.0}
"""Verdict on the size of a number -> largest difference from the printed number.

The difference is in percentage points for a share, else in per cent of the printed number.
"""
SMALL_RATE = 10.0
"""A printed share below this many per cent is judged by its ratio, because five points are a large distance for it."""
LARGEST_FACTORS = {WITHIN_FACTOR_1_25: 1.25, WITHIN_FACTOR_2: 2.0}
"""Verdict on the size of an effect -> largest ratio of this run's effect and the printed effect.

The larger of the two effects is divided by the smaller one.
"""
REPRODUCED = "reproduced"
OUTCOMES = (REPRODUCED, OTHER_SIZE, NONE_HERE, ONLY_HERE, REVERSES, NO_BETTER, UNCLEAR)
"""Possible outcomes. Each judged effect or statement has exactly one outcome."""

SCALE = {"share": 1.0, "percent": 100.0}
"""Unit of a share -> the value of the share 1 in this unit."""
DIFFERENCE = "percentage points"
HUNDREDTHS = ("percent", DIFFERENCE)
"""Units in which shares and their differences are shown."""
OPERATORS = ("=", ">", "<")
LARGEST_PRINTED_ZERO = 0.5
"""Differences of at most this many percentage points count as 0, because they would be printed as 0."""
EQUAL_WITHIN = 1e-9
"""Two numbers count as equal if they differ by at most this number, which allows for rounding errors."""


@dataclass(frozen=True)
class RunNumber:
    """A number that this run computed, with its unit, its confidence interval, and the number of cases `n`.

    `low` and `high` are NaN if there is no interval.
    """

    value: float
    low: float = math.nan
    high: float = math.nan
    unit: str = ""
    n: float = math.nan

    @property
    def ends(self) -> tuple[float, float]:
        """Return the ends of the interval, or the number twice if the number has no interval."""
        return (self.value, self.value) if math.isnan(self.low) or math.isnan(self.high) else (self.low, self.high)

    @property
    def half(self) -> float:
        """Return half the width of the interval, or 0 if there is no interval."""
        low, high = self.ends
        return (high - low) / 2

    def scaled(self, factor: float) -> RunNumber:
        return replace(self, value=self.value * factor, low=self.low * factor, high=self.high * factor)

    def complement(self) -> RunNumber:
        """Return 1 - `value`, with the interval from 1 - `high` to 1 - `low`."""
        return replace(self, value=1 - self.value, low=1 - self.high, high=1 - self.low)

    def in_unit(self, unit: str) -> RunNumber:
        """Return the number converted to the paper's unit.

        The number is divided by 100 if it is in per cent or percentage points, and the paper's unit is neither of
        these.
        """
        in_hundredths = self.unit in HUNDREDTHS and unit not in HUNDREDTHS
        return replace(self.scaled(0.01) if in_hundredths else self, unit=unit)

    def __str__(self) -> str:
        if math.isnan(self.low):
            return number_text(self.value)
        return f"{number_text(self.value)} [{number_text(self.low)}, {number_text(self.high)}]"


@dataclass(frozen=True)
class Printed:
    """A number that the paper prints: its text, its unit, and the number of patients (if known).

    Parameters
    ----------
    bound : "at most" or "at least" if the paper prints one of these phrases, else None

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
        """Return the largest rounding error: half a unit of the last printed digit, or 0 for a ratio such as 1/3."""
        return 0.0 if "/" in self.text else 0.5 * 10.0 ** -len(self.text.partition(".")[2])

    def error(self, ours: RunNumber, patients: float) -> float:
        """Return an estimate of half the width of the paper's interval, or 0 if the paper gives no number of patients.

        The estimate is h * sqrt(n / m), where h is half the width of this run's interval, n is this run's number of
        patients (the argument `patients`), and m is the paper's number of patients.
        """
        return 0.0 if self.patients is None else ours.half * math.sqrt(patients / self.patients)


@dataclass(frozen=True)
class Verdict:
    """A verdict on a number or a statement.

    The attribute `direction` contains a word such as *holds* or *reverses*, or the reason for no verdict, such as *not
    run*. If a compared number is not a difference of two shares, `direction` is empty. The attribute `size` contains
    words such as *within 2 points*. If the verdict says nothing about the size, `size` is empty.
    """

    direction: str
    size: str = ""
    reason: str = ""


def judge(printed: Printed, ours: RunNumber, patients: float) -> Verdict:
    """Compare a number of this run with a printed number in the same unit, and return the verdict.

    `patients` is the number of patients from whom this run's number was computed.
    """
    if abs(printed.value) <= EQUAL_WITHIN and abs(ours.value) <= EQUAL_WITHIN:
        return Verdict(IDENTITY, reason="0 = 0")
    error = printed.error(ours, patients) + printed.rounding
    if printed.unit == DIFFERENCE:
        return _judge_effect(printed.value, ours, error)
    difference = ours.value - printed.value
    if printed.bound == "at most":
        difference = max(difference, 0.0)
    if printed.bound == "at least":
        difference = min(difference, 0.0)
    return Verdict("", size_of(printed, difference), _distance_text(abs(difference), math.hypot(ours.half, error)))


def _distance_text(apart: float, together: float) -> str:
    """Describe, in words, the difference `apart` between two numbers and their combined error `together`."""
    said = "no further apart than the error of both" if apart <= together else "further apart than the error of both"
    return f"{number_text(apart)} apart; {said}, {number_text(together)}" if together else f"{number_text(apart)} apart"


def _judge_effect(printed: float, ours: RunNumber, error: float) -> Verdict:
    """Return the verdict on an effect (a difference of two shares).

    An effect is present in this run (or in the paper) if its interval excludes 0. If the effect is present in this run
    and in the paper, the verdict depends on the signs and the ratio of the two numbers. If the effect is present only
    in this run, the verdict is "holds" for two numbers that agree within their combined error, and otherwise "effect
    only here". If the effect is present only in the paper, and this run's interval contains the printed number, the
    verdict is "unclear". If the effect is present only in the paper, and this run's interval does not contain the
    printed number, the verdict is "no effect here". If neither this run nor the paper shows an effect, the two results
    agree, and the verdict is "holds".

    Parameters
    ----------
    printed, error : the paper's number, and half the width of the paper's interval, in points.
    ours : this run's number, in points.

    """
    low, high = ours.ends
    apart = _distance_text(abs(ours.value - printed), math.hypot(ours.half, error))
    is_here, is_printed = not low <= 0 <= high, abs(printed) > error
    if is_here and is_printed:
        if ours.value * printed < 0:
            return Verdict(REVERSES, reason=apart)
        ratio = ours.value / printed
        return Verdict(HOLDS, factor_of(ratio), f"{number_text(ratio)} times the printed effect; {apart}")
    if is_printed:
        wide = low <= printed <= high
        said = "our interval holds 0 and the printed effect" if wide else "our interval holds 0, not the printed effect"
        return Verdict(UNCLEAR if wide else NONE_HERE, reason=f"{said}; {apart}")
    contradicts = is_here and abs(ours.value - printed) > math.hypot(ours.half, error)
    said = "the printed effect is within its own error of 0"
    return Verdict(ONLY_HERE if contradicts else HOLDS, reason=f"{said}; {apart}")


def outcome(row: Mapping[Any, Any]) -> str:
    """Return the outcome of a line of the comparison, or "" if its verdict is empty or in `UNJUDGED`."""
    verdict, size = row["verdict"], row["size"]
    if verdict in UNJUDGED or not (verdict or size):
        return ""
    if verdict not in ("", HOLDS):
        return str(verdict)
    return OTHER_SIZE if size == OTHER_SIZE else REPRODUCED


def verdict_words(row: Mapping[Any, Any]) -> str:
    """Return the columns `verdict` and `size` of a row as one phrase, such as *holds, within a factor of 2*.

    If the column `verdict` contains *holds* and the column `size` contains *another size*, the phrase is only *another
    size*.
    """
    if row["size"] == OTHER_SIZE and row["verdict"] == HOLDS:
        return OTHER_SIZE
    return ", ".join(word for word in (row["verdict"], row["size"]) if word)


def size_of(printed: Printed, difference: float) -> str:
    """Describe, in words, the difference between this run's number and the printed number.

    This function is used for all numbers except differences of two shares.

    `difference` is this run's number minus the printed number, in the paper's unit.
    """
    whole = {"correlation": 1.0, **SCALE}.get(printed.unit, abs(printed.value))
    apart = abs(difference)
    points = 0.0 if apart <= EQUAL_WITHIN else 100 * apart / whole if whole else math.inf
    if printed.unit in SCALE and 100 * printed.value / whole < SMALL_RATE and points > LARGEST_PRINTED_ZERO:
        ours = printed.value + difference
        return factor_of(ours / printed.value) if ours > 0 < printed.value else OTHER_SIZE
    return next((word for word, most in LARGEST_DISTANCES.items() if points <= most + EQUAL_WITHIN), OTHER_SIZE)


def factor_of(ratio: float) -> str:
    """Describe, in words, a positive ratio of two numbers.

    A ratio and its inverse have the same description.

    >>> factor_of(0.85), factor_of(1.9), factor_of(0.45)
    ('within a factor of 1.25', 'within a factor of 2', 'another size')
    """
    factor = max(ratio, 1 / ratio)
    return next((word for word, most in LARGEST_FACTORS.items() if factor <= most + EQUAL_WITHIN), OTHER_SIZE)


def number_text(value: float) -> str:
    """Return a number as text with three significant digits, or without decimals if it is 1000 or more."""
    if value == 0 or abs(value) >= 1000:
        return f"{value:.0f}"
    return f"{value:.3g}" if abs(value) >= 1e-4 else f"{value:.0e}"


@dataclass(frozen=True)
class Relation:
    """A statement that one number is above, below or equal to another number, such as `left > right`.

    The right side of a statement can be a constant.

    Attributes
    ----------
    shown : number shown in a table: the left side if the right side is a constant, else left minus right

    """

    left: RunNumber
    operator: str
    right: RunNumber
    text: str
    shown: RunNumber | None = None

    @property
    def holds(self) -> bool:
        """Return True if the statement about the two numbers holds.

        If the operator is `>` or `<`, the statement holds only if the intervals of the two numbers do not overlap. A
        statement `left = right` with a constant `right` holds if the interval of `left` contains the constant. A
        statement `left = right` about two computed numbers holds only if the two numbers are equal.
        """
        (low, high), (other_low, other_high) = self.left.ends, self.right.ends
        if self.operator == ">":
            return low > other_high
        if self.operator == "<":
            return high < other_low
        fixed = other_low == other_high
        return (
            low - EQUAL_WITHIN <= other_low <= high + EQUAL_WITHIN
            if fixed
            else abs(self.left.value - self.right.value) <= EQUAL_WITHIN
        )

    @property
    def reversed(self) -> bool:
        """Return True if the opposite statement holds.

        The opposite of `a > b` is `a < b`, and the opposite of `a = b` is that `a` and `b` differ.
        """
        if self.operator == "=":
            return not self.holds
        turned = {">": "<", "<": ">"}[self.operator]
        return Relation(self.left, turned, self.right, "").holds

    @property
    def is_null(self) -> bool:
        """Return True if the statement says that a difference is above or below 0, but the difference is 0 in this run.

        A difference counts as 0 if its interval contains 0, and both ends of the interval are at most half a percentage
        point from 0.
        """
        low, high = self.left.ends
        is_effect = self.operator != "=" and self.left.unit == DIFFERENCE and self.right.value == 0
        return is_effect and low <= 0 <= high and max(-low, high) <= LARGEST_PRINTED_ZERO


def judge_statement(relations: Sequence[Relation]) -> Verdict:
    """Return the verdict on a statement that consists of comparisons. The statement holds if all comparisons hold."""
    failing = [relation for relation in relations if not relation.holds]
    if not failing:
        return Verdict(HOLDS, reason="; ".join(relation.text for relation in relations))
    kinds = {
        REVERSES: [relation for relation in failing if relation.reversed],
        NONE_HERE: [relation for relation in failing if relation.is_null],
        UNCLEAR: failing,
    }
    direction, named = next((word, some) for word, some in kinds.items() if some)
    return Verdict(direction, reason="; ".join(relation.text for relation in named))


AnswerKind = Literal["row", "paired", "erratum", "decision", "background", "not_comparable", "not_run"]
COMPARED_KINDS: tuple[AnswerKind, ...] = ("row", "paired", "erratum")
"""Values of `ClaimAnswer.answer` for claims that are compared with a number of this run.

For claims with another value of `ClaimAnswer.answer`, `ClaimAnswer.why` is the reason why they get no verdict.
"""
END = "M"


class ClaimAnswer(Strict):
    """Source of this run's number for a claim, or the reason why the claim gets no verdict.

    One of the attributes `cell`, `line`, `fact` and `holds` says where the number computed by this run is found. If a
    claim is about the difference of two printed numbers, the attribute `less` names the cells of these two numbers. In
    this case, the attribute `line` names the line of summary.csv that contains this run's difference.
    """

    answer: AnswerKind
    cell: str | None = Field(
        None, description="`table | row | column` of a printed cell, whose line of the summary answers this claim"
    )
    line: str | None = Field(None, description="line of the summary with our number")
    fact: str | None = Field(None, description="name of a number of the cohort, such as `patients`")
    holds: tuple[str, ...] = Field((), description="relations between numbers that must all hold")
    less: tuple[str, str] | None = Field(None, description="two printed cells, whose difference is the claim")
    also: Mapping[str, str] = Field({}, description="other interpretations of the text: name -> summary line")
    complement: bool = Field(False, description="true: our number is 1 minus the number in `line`")
    bound: Literal["at most", "at least"] | None = None
    patients: int | None = Field(None, description="number of patients behind the paper's number")
    definition: bool = Field(False, description="true if the claim is true by definition")
    see: tuple[str, ...] = Field((), description="ids of docs/errata.md and docs/decisions.md")
    why: str | None = Field(None, description="name of one of the `reasons`, or a reason")


class CellRule(Strict):
    """A rule for the verdicts on some cells of a printed table.

    The rule applies to all cells whose row matches the pattern `row` and whose column matches the pattern `column`.

    If the cells are not judged, `why` is the reason. If the cells are judged, `why` is a note that is shown with each
    verdict.
    """

    table: str
    row: str = "*"
    column: str = "*"
    answer: Literal["judged", "not_comparable", "not_run"]
    why: str | None = None
    definition: bool = False
    see: tuple[str, ...] = ()

    def covers(self, table: str, row: str, column: str) -> bool:
        return table == self.table and fnmatchcase(row, self.row) and fnmatchcase(column, self.column)


class ClaimAnswers(Strict):
    """The content of `answers.yaml`: how a run is compared with each cell of the paper's tables and each claim.

    Attributes
    ----------
    patients : file name of a printed table -> number of patients
    places : printed table -> its place in the report (`notebook NAME`), or the reason why the report has no number for
        it

    """

    patients: Mapping[str, int]
    reasons: Mapping[str, str]
    lines: Mapping[str, Mapping[str, str | int | float]]
    cells: tuple[CellRule, ...]
    places: Mapping[str, str]
    claims: Mapping[str, ClaimAnswer]

    def reason(self, why: str | None) -> str:
        """Return the text that `reasons` stores under the key `why`, or `why` itself if there is no such key."""
        return "" if why is None else self.reasons.get(why, why)

    def keys(self, line_name: str) -> dict[str, str | int | float]:
        """Return a dictionary from key columns to their values in the summary line that `line_name` names."""
        name, *pairs = shlex.split(line_name)
        keys = dict(self.lines[name])
        for key, _, value in (pair.partition("=") for pair in pairs):
            keys[key] = float(value) if key == "level" else int(value) if key == "t" and value != END else value
        return keys


def relation_of(text: str) -> tuple[str, str, str]:
    """Split a text such as `a > b` into left side, operator and right side."""
    (operator,) = (word for word in shlex.split(text) if word in OPERATORS)
    left, _, right = text.partition(f" {operator} ")
    return left.strip(), operator, right.strip()


def scaled_line(side: str) -> tuple[float, str]:
    """Split a text such as `2 * chaos t=10` into a factor and the short name of a summary line.

    If the text contains no factor, the factor is 1.

    >>> scaled_line("2 * chaos t=10"), scaled_line("chaos t=10")
    ((2.0, 'chaos t=10'), (1.0, 'chaos t=10'))
    """
    factor, star, line_name = side.partition(" * ")
    return (float(factor), line_name) if star else (1.0, side)


def is_number(side: str) -> bool:
    """Return True if the text is a number, False if it is the short name of a summary line."""
    try:
        float(side)
    except ValueError:
        return False
    return True
