"""What people and programs give for a value: a code, a word, or a number in the unit of its feature.

The codes -1, 0 and +1 mean below, in and above the usual range. The terminal, the page, the JSON lines and the planners
all read values here.
"""

from __future__ import annotations

import math
import re
import unicodedata
from collections.abc import Collection
from functools import lru_cache
from itertools import compress
from numbers import Real
from typing import Any, NamedTuple

from afa.errors import Fault, PlannerError
from afa.io.csvfile import LARGEST, number, numbers_with_commas, suggestion
from afa.model.bundle import Bundle
from afa.model.features import Features, shown_unit
from afa.model.mrf import VALUES

WORDS = {"low": -1, "usual": 0, "normal": 0, "high": 1}
FINDING = {"no": 0, "yes": 1}
"""What a feature of kind `binary` can be, beside the words of `WORDS` that fit it."""
TYPED_CODES = {"-": -1, "+": 1}
CODES_WITHOUT_A_RANGE = {"-1": -1, "0": 0, "1": 1, "+1": 1}
"""Typed texts that are codes only where no number is expected: with a range, `0` is the number."""
_NUMBER = re.compile(r"[-+]?(\d+[.,]?\d*|[.,]\d+)([eE][-+]?\d+)?", re.ASCII)
_UNIT = re.compile(r"[^\W\d_xX][^\d,;:]*|[%°µ$€].*")


class Scale(NamedTuple):
    """What `features.csv` says of one feature; `low` and `high` are cut points in `unit`, None where there is none."""

    kind: str
    unit: str
    definition: str
    low: float | None
    high: float | None

    @property
    def has_range(self) -> bool:
        """Whether a number is read by cut points."""
        return self.kind != "binary" and not (self.low is None and self.high is None)


class ReadValue(NamedTuple):
    """One value as it was read: its code, and the number and unit behind the code where a number was given."""

    code: int
    number: float | None = None
    unit: str = ""


def scale_of(bundle: Bundle, feature: str) -> Scale:
    """What `features.csv` says of a feature; a scale without a kind where it says nothing."""
    table = None if bundle.rates is None else bundle.rates.table
    row = None if table is None else _rows(table).get(feature)
    if table is None or row is None:
        return Scale("", "", "", None, None)
    low, high = (None if math.isnan(cut[row]) else float(cut[row]) for cut in (table.low, table.high))
    return Scale(table.kinds[row], shown_unit(table.units[row]), table.definitions[row], low, high)


@lru_cache(maxsize=8)
def _rows(table: Features) -> dict[str, int]:
    return {name: row for row, name in enumerate(table.names)}


def usual_range(bundle: Bundle, feature: str) -> str:
    """The range of a feature in words such as `usual: 4 to 10 K`; empty where it has none."""
    scale = scale_of(bundle, feature)
    if not scale.has_range:
        return ""
    low, high = (None if cut is None else written(cut) for cut in (scale.low, scale.high))
    between = f"{low} to {high}" if low and high else f"from {low}" if low else f"up to {high}"
    return f"usual: {between} {scale.unit}".rstrip()


def written(value: float, unit: str = "") -> str:
    """A number as people write it, with its unit.

    >>> written(1058.0, "K"), written(0.25)
    ('1058 K', '0.25')
    """
    return f"{value:.12g} {unit}".rstrip()


def word_of(bundle: Bundle, feature: str, code: int) -> str:
    """The word for a code: `low`, `usual` or `high`; `no` or `yes` of a feature of kind `binary`."""
    names = {0: "no", 1: "yes"} if scale_of(bundle, feature).kind == "binary" else {-1: "low", 0: "usual", 1: "high"}
    return names[code]


def grades_of(bundle: Bundle, feature: str) -> str:
    """What the numbers of an ordinal feature mean, as features.csv says it; empty where it does not."""
    table = None if bundle.rates is None else bundle.rates.table
    row = None if table is None else _rows(table).get(feature)
    return table.codings[row] if table is not None and row is not None and table.kinds[row] == "ordinal" else ""


def meanings_of(bundle: Bundle, feature: str) -> tuple[str, str] | None:
    """What `no` and `yes` of a finding mean where features.csv says it in other words, such as `good` and `poor`."""
    table = None if bundle.rates is None else bundle.rates.table
    return None if table is None or feature not in table.names else table.meanings(feature)


def words_of(bundle: Bundle, feature: str) -> list[str]:
    """The words for the codes that a feature can have, in order of the codes."""
    possible = bundle.possible[bundle.features.index(feature)]
    return [word_of(bundle, feature, code) for code in compress(VALUES, possible)]


def with_number(bundle: Bundle, feature: str, code: int, measured: float | None) -> str:
    """A value in words: `12.5 K (high)` where a number is known, else `high`."""
    word = word_of(bundle, feature, code)
    return word if measured is None else f"{written(measured, scale_of(bundle, feature).unit)} ({word})"


def code_of(bundle: Bundle, feature: Any, value: Any) -> int:
    """The code of a value that Python or JSON gives: -1, 0 or 1 as it stands, or a word. Numbers have their own key.

    Raises
    ------
    PlannerError : no feature of the bundle, or no value that the feature can have.

    """
    if not isinstance(feature, str) or feature not in bundle.features:
        raise unknown(bundle.features, feature)
    code = _word(bundle, feature, value) if isinstance(value, str) else value
    if isinstance(code, bool) or not isinstance(code, Real) or code not in VALUES:
        step = f"give one of these, or {', '.join(words_of(bundle, feature))}"
        if scale_of(bundle, feature).has_range:  # by itself 7.2 could be a number alone, but 1 is a code
            measured = code if isinstance(code, Real) and not isinstance(code, bool) else 7.2
            step += f"; a measured number by its name, number={measured}"
        raise PlannerError(Fault(f"feature {feature}", repr(value), "-1, 0 or 1", step))
    possible, place = bundle.possible[bundle.features.index(feature)], VALUES.index(code)
    if not possible[place]:
        expected = " or ".join(str(known) for known in compress(VALUES, possible))
        step = "check the measurement, or the values that features.csv gives this feature"
        raise PlannerError(Fault(f"feature {feature}", str(VALUES[place]), expected, step))
    return VALUES[place]


def reading_of(bundle: Bundle, feature: str, measured: Any) -> ReadValue:
    """The reading of a number in the feature's unit: -1 below `low`, 0 between the cut points, +1 above `high`."""
    scale = scale_of(bundle, feature)
    if not scale.has_range:
        step = f"give {' or '.join(words_of(bundle, feature))}"
        raise PlannerError(Fault(f"feature {feature}", "a number", "a feature with a range in features.csv", step))
    if isinstance(measured, bool) or not isinstance(measured, Real) or not math.isfinite(float(measured)):
        raise PlannerError(Fault(f"feature {feature}", repr(measured), "a finite number", "correct the number"))
    if abs(float(measured)) > LARGEST:
        found, expected = written(float(measured)), f"a number of at most {LARGEST:g} in size"
        raise PlannerError(Fault(f"feature {feature}", found, expected, "correct the number"))
    value = float(measured) + 0.0
    table = None if bundle.rates is None else bundle.rates.table
    if table is not None and (allowed := table.excludes(feature, value)):
        found, step = written(value, scale.unit), "correct the number, or skip what was not measured"
        raise PlannerError(Fault(f"feature {feature}", found, f"{allowed} (features.csv, values)", step))
    below, above = (scale.low is not None and value < scale.low), (scale.high is not None and value > scale.high)
    return ReadValue(-1 if below else int(above), value, scale.unit)


def read_typed(bundle: Bundle, feature: str, text: str) -> ReadValue:
    """The reading of what a person typed: a word, a sign, a number where the feature has a range, else a code.

    `0`, `1` and `-1` are numbers where the feature has a range. A number may end with the unit of its feature, and may
    have a decimal comma; a comma before exactly three digits is asked back, as it could stand for a thousand.
    """
    scale, typed = scale_of(bundle, feature), text.strip()
    known = _word(bundle, feature, typed)
    if known is None:
        known = TYPED_CODES.get(typed)
    if known is None and not scale.has_range:
        known = CODES_WITHOUT_A_RANGE.get(typed)
    *first, last = words_of(bundle, feature)
    expected = f"{', '.join(first)} or {last}" if first else last
    if scale.has_range:
        expected += f", or a number{f' in {scale.unit}' if scale.unit else ''} ({usual_range(bundle, feature)})"
    fault = Fault(f"value of {feature}", repr(text), expected, "write one of these")
    if known is not None and bundle.possible[bundle.features.index(feature)][VALUES.index(known)]:
        return ReadValue(known)
    if known is not None or not scale.has_range:
        raise PlannerError(fault)
    return reading_of(bundle, feature, _number_of(typed, scale.unit, fault))


def echo(bundle: Bundle, feature: str, reading: ReadValue) -> str:
    """How a value was read: `flow: 0 ml/s is low`, or `frost: yes` where a code was given."""
    word = word_of(bundle, feature, reading.code)
    said = word if reading.number is None else f"{written(reading.number, reading.unit)} is {word}"
    return f"{bundle.shown(feature)}: {said}"


def same_unit(one: str, other: str) -> bool:
    """Return True if two texts name the same unit; case, blanks and the degree sign are ignored.

    >>> same_unit("°C", "C"), same_unit("µg / l", "μg/l"), same_unit("ms", "s")
    (True, True, False)
    """
    first, second = (
        "".join(unicodedata.normalize("NFKC", unit).replace("°", "").split()).casefold() for unit in (one, other)
    )
    return first == second


def _word(bundle: Bundle, feature: str, text: str) -> int | None:
    """The code that a word stands for, of the words that this feature takes; None for any other text."""
    words = WORDS | FINDING if scale_of(bundle, feature).kind == "binary" else WORDS
    if meanings := meanings_of(bundle, feature):  # as features.csv writes them, before `normal` and the like
        words = words | {meanings[0]: 0, meanings[1]: 1}
    return words.get(text.strip().casefold())


def _number_of(typed: str, unit: str, fault: Fault) -> float:
    """The number that a text begins with, its unit after it or none; a `PlannerError` like `fault` otherwise."""

    def refused(step: str, expected: str = fault.expected) -> PlannerError:
        return PlannerError(Fault(fault.where, fault.found, expected, step))

    if either := numbers_with_commas(typed):
        expected = "a number without a comma before three digits, which could stand for a thousand"
        raise refused(f"write {' or '.join(either)}", expected)
    found = _NUMBER.match(typed)
    digits = found[0] if found else ""
    rest, value = typed[len(digits) :].strip(), number(digits.replace(",", "."))
    if not math.isfinite(value):
        raise refused("write one of these")
    if rest and not same_unit(rest, unit):
        if not _UNIT.fullmatch(rest):
            raise refused("write one of these")
        raise refused(f"convert it to {unit}, the unit of this feature" if unit else "write the number without a unit")
    return value


def unknown(features: Collection[str], feature: Any) -> PlannerError:
    """The error for a name that is no feature, with the nearest one."""
    step = suggestion(feature, features) if isinstance(feature, str) else "give its name"
    step = "see bundle.features" if step.startswith("correct") else step
    return PlannerError(Fault(f"feature {feature!r}", "an unknown name", "a feature of the bundle", step))
