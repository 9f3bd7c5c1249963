"""Convert entered values to codes. An entered value is a code, a word, or a number in the unit of the feature.

The codes -1, 0 and +1 mean below, within and above the usual range. Planners, the terminal, the page and the command
with JSON lines use this module to read values.
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
from afa.io.csvfile import LARGEST_CELL_NUMBER, numbers_with_commas, parse_number, suggestion
from afa.model.bundle import Bundle
from afa.model.features import Features, shown_unit
from afa.model.mrf import VALUES

WORD_CODES = {"low": -1, "usual": 0, "normal": 0, "high": 1}
FINDING = {"no": 0, "yes": 1}
"""Words that are accepted for features of kind `binary` in addition to `WORD_CODES`."""
TYPED_CODES = {"-": -1, "+": 1}
CODES_WITHOUT_A_RANGE = {"-1": -1, "0": 0, "1": 1, "+1": 1}
"""Texts that are codes if the feature has no range. If it has a range, `0`, `1` and `-1` are numbers."""
_NUMBER = re.compile(r"[-+]?(\d+[.,]?\d*|[.,]\d+)([eE][-+]?\d+)?", re.ASCII)
_UNIT = re.compile(r"[^\W\d_xX][^\d,;:]*|[%°µ$€].*")


class Scale(NamedTuple):
    """The kind, unit, definition and cut points of a feature, from its row in `features.csv`.

    The cut points `low` and `high` are in the unit of the feature. A missing cut point is None.
    """

    kind: str
    unit: str
    definition: str
    low: float | None
    high: float | None

    @property
    def has_range(self) -> bool:
        """Return True if the numbers of the feature are encoded by cut points."""
        return self.kind != "binary" and not (self.low is None and self.high is None)


class ReadValue(NamedTuple):
    """The code of an entered value.

    If the value was entered as a number, the number and its unit are also stored.
    """

    code: int
    number: float | None = None
    unit: str = ""


def scale_of(bundle: Bundle, feature: str) -> Scale:
    """Return the `Scale` of a feature, from its row in `features.csv`.

    If there is no row, return a `Scale` without unit and cut points.
    """
    table = None if bundle.rates is None else bundle.rates.table
    row = None if table is None else _row_by_feature(table).get(feature)
    if table is None or row is None:
        return Scale("", "", "", None, None)
    low, high = (None if math.isnan(cut[row]) else float(cut[row]) for cut in (table.low, table.high))
    return Scale(table.kinds[row], shown_unit(table.units[row]), table.definitions[row], low, high)


@lru_cache(maxsize=8)
def _row_by_feature(table: Features) -> dict[str, int]:
    return {name: row for row, name in enumerate(table.names)}


def usual_range(bundle: Bundle, feature: str) -> str:
    """Return the usual range of a feature as a text, such as `usual: 4 to 10 K`.

    If the feature has no range, return an empty text.
    """
    scale = scale_of(bundle, feature)
    if not scale.has_range:
        return ""
    low, high = (None if cut is None else number_with_unit(cut) for cut in (scale.low, scale.high))
    between = f"{low} to {high}" if low and high else f"from {low}" if low else f"up to {high}"
    return f"usual: {between} {scale.unit}".rstrip()


def number_with_unit(value: float, unit: str = "") -> str:
    """Return a number and its unit as text.

    >>> number_with_unit(1058.0, "K"), number_with_unit(0.25)
    ('1058 K', '0.25')
    """
    return f"{value:.12g} {unit}".rstrip()


def word_of(bundle: Bundle, feature: str, code: int) -> str:
    """Return the word for a code: `low`, `usual` or `high`.

    If the feature is binary, the word is `no` or `yes`.
    """
    names = {0: "no", 1: "yes"} if scale_of(bundle, feature).kind == "binary" else {-1: "low", 0: "usual", 1: "high"}
    return names[code]


def grades_of(bundle: Bundle, feature: str) -> str:
    """Return the text in features.csv that explains the numbers of an ordinal feature.

    If the feature is not ordinal or has no row in features.csv, return an empty text.
    """
    table = None if bundle.rates is None else bundle.rates.table
    row = None if table is None else _row_by_feature(table).get(feature)
    return table.codings[row] if table is not None and row is not None and table.kinds[row] == "ordinal" else ""


def meanings_of(bundle: Bundle, feature: str) -> tuple[str, str] | None:
    """Return the two words in features.csv that replace `no` and `yes` for a binary feature.

    An example is the pair `good` and `poor`. If features.csv has no such words, return None.
    """
    table = None if bundle.rates is None else bundle.rates.table
    return None if table is None or feature not in table.names else table.meanings(feature)


def code_words(bundle: Bundle, feature: str) -> list[str]:
    """Return the words for the possible codes of a feature, in the order of the codes."""
    possible = bundle.possible[bundle.features.index(feature)]
    return [word_of(bundle, feature, code) for code in compress(VALUES, possible)]


def with_number(bundle: Bundle, feature: str, code: int, measured: float | None) -> str:
    """Return a value as a text, such as `12.5 K (high)`.

    If the number is unknown, the text contains only the word, such as `high`.
    """
    word = word_of(bundle, feature, code)
    return word if measured is None else f"{number_with_unit(measured, scale_of(bundle, feature).unit)} ({word})"


def code_of(bundle: Bundle, feature: Any, value: Any) -> int:
    """Return the code of a value that is given as a code -1, 0 or 1, or as a word.

    The function `read_number` reads numbers.

    Raises
    ------
    PlannerError : the feature is unknown, or cannot have that value.

    """
    if not isinstance(feature, str) or feature not in bundle.features:
        raise unknown(bundle.features, feature)
    code = _code_of_word(bundle, feature, value) if isinstance(value, str) else value
    if isinstance(code, bool) or not isinstance(code, Real) or code not in VALUES:
        step = f"give one of these, or {', '.join(code_words(bundle, feature))}"
        # the example number in the message is 7.2, because a user could mistake the number 1 for the code 1
        if scale_of(bundle, feature).has_range:
            measured = code if isinstance(code, Real) and not isinstance(code, bool) else 7.2
            step += f"; a measured number by its name, number={measured}"
        raise PlannerError(Fault(f"feature {feature}", repr(value), "-1, 0 or 1", step))
    possible, place = bundle.possible[bundle.features.index(feature)], VALUES.index(code)
    if not possible[place]:
        expected = " or ".join(str(known) for known in compress(VALUES, possible))
        step = "check the measurement, or the values that features.csv gives this feature"
        raise PlannerError(Fault(f"feature {feature}", str(VALUES[place]), expected, step))
    return VALUES[place]


def read_number(bundle: Bundle, feature: str, measured: Any) -> ReadValue:
    """Return the `ReadValue` of a number in the unit of the feature.

    The code is -1 for a number below `low`, +1 for a number above `high`, and 0 otherwise.
    """
    scale = scale_of(bundle, feature)
    if not scale.has_range:
        step = f"give {' or '.join(code_words(bundle, feature))}"
        raise PlannerError(Fault(f"feature {feature}", "a number", "a feature with a range in features.csv", step))
    if isinstance(measured, bool) or not isinstance(measured, Real) or not math.isfinite(float(measured)):
        raise PlannerError(Fault(f"feature {feature}", repr(measured), "a finite number", "correct the number"))
    if abs(float(measured)) > LARGEST_CELL_NUMBER:
        found, expected = number_with_unit(float(measured)), f"a number of at most {LARGEST_CELL_NUMBER:g} in size"
        raise PlannerError(Fault(f"feature {feature}", found, expected, "correct the number"))
    value = float(measured) + 0.0
    table = None if bundle.rates is None else bundle.rates.table
    if table is not None and (allowed := table.excludes(feature, value)):
        found, step = number_with_unit(value, scale.unit), "correct the number, or skip what was not measured"
        raise PlannerError(Fault(f"feature {feature}", found, f"{allowed} (features.csv, values)", step))
    below, above = (scale.low is not None and value < scale.low), (scale.high is not None and value > scale.high)
    return ReadValue(-1 if below else int(above), value, scale.unit)


def read_typed(bundle: Bundle, feature: str, text: str) -> ReadValue:
    """Return the `ReadValue` of a text that a user typed.

    A typed text can be a word, or one of the signs `-` and `+`. If the feature has a range, the text can also be a
    number with a decimal point or a decimal comma, and the unit of the feature may follow. The texts `0`, `1` and `-1`
    are then numbers, not codes. If the feature has no range, the text can also be a code. In a text such as `1,234`,
    the comma could be a decimal comma or separate thousands. If the comma is ambiguous, raise a `PlannerError` that
    asks which number is meant.
    """
    scale, typed = scale_of(bundle, feature), text.strip()
    known = _code_of_word(bundle, feature, typed)
    if known is None:
        known = TYPED_CODES.get(typed)
    if known is None and not scale.has_range:
        known = CODES_WITHOUT_A_RANGE.get(typed)
    *first, last = code_words(bundle, feature)
    expected = f"{', '.join(first)} or {last}" if first else last
    if scale.has_range:
        expected += f", or a number{f' in {scale.unit}' if scale.unit else ''} ({usual_range(bundle, feature)})"
    fault = Fault(f"value of {feature}", repr(text), expected, "write one of these")
    if known is not None and bundle.possible[bundle.features.index(feature)][VALUES.index(known)]:
        return ReadValue(known)
    if known is not None or not scale.has_range:
        raise PlannerError(fault)
    return read_number(bundle, feature, _parse_typed_number(typed, scale.unit, fault))


def echo(bundle: Bundle, feature: str, read_value: ReadValue) -> str:
    """Return a text that shows how an entered value was understood, such as `frost: yes`.

    If the value was entered as a number, the text contains the number and the level to which it belongs, for example
    `flow: 0 ml/s is low`.
    """
    word = word_of(bundle, feature, read_value.code)
    said = word if read_value.number is None else f"{number_with_unit(read_value.number, read_value.unit)} is {word}"
    return f"{bundle.shown(feature)}: {said}"


def same_unit(one: str, other: str) -> bool:
    """Return True if two texts name the same unit. Upper and lower case, blanks and the degree sign are ignored.

    >>> same_unit("°C", "C"), same_unit("µg / l", "μg/l"), same_unit("ms", "s")
    (True, True, False)
    """
    first, second = (
        "".join(unicodedata.normalize("NFKC", unit).replace("°", "").split()).casefold() for unit in (one, other)
    )
    return first == second


def _code_of_word(bundle: Bundle, feature: str, text: str) -> int | None:
    """Return the code for a word that is allowed for the feature. For any other text, return None."""
    words = WORD_CODES | FINDING if scale_of(bundle, feature).kind == "binary" else WORD_CODES
    if meanings := meanings_of(bundle, feature):  # words in features.csv take precedence over words such as `normal`
        words = words | {meanings[0]: 0, meanings[1]: 1}
    return words.get(text.strip().casefold())


def _parse_typed_number(typed: str, unit: str, fault: Fault) -> float:
    """Return the number at the start of a text. A unit may follow the number.

    Raise a `PlannerError` if the text does not start with a number, or if the unit is wrong.
    """

    def refused(step: str, expected: str = fault.expected) -> PlannerError:
        return PlannerError(Fault(fault.where, fault.found, expected, step))

    if either := numbers_with_commas(typed):
        expected = "a number without a comma before three digits, which could stand for a thousand"
        raise refused(f"write {' or '.join(either)}", expected)
    found = _NUMBER.match(typed)
    digits = found[0] if found else ""
    rest, value = typed[len(digits) :].strip(), parse_number(digits.replace(",", "."))
    if not math.isfinite(value):
        raise refused("write one of these")
    if rest and not same_unit(rest, unit):
        if not _UNIT.fullmatch(rest):
            raise refused("write one of these")
        raise refused(f"convert it to {unit}, the unit of this feature" if unit else "write the number without a unit")
    return value


def unknown(features: Collection[str], feature: Any) -> PlannerError:
    """Return the error for an unknown name of a feature. The error suggests the most similar name."""
    step = suggestion(feature, features) if isinstance(feature, str) else "give its name"
    step = "see bundle.features" if step.startswith("correct") else step
    return PlannerError(Fault(f"feature {feature!r}", "an unknown name", "a feature of the bundle", step))
