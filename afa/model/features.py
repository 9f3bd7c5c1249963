"""The file `features.csv`, which gives the kind, cut points and possible values of each feature of a table."""

from __future__ import annotations

import math
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, fields, replace
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, NamedTuple

import numpy as np
import numpy.typing as npt

from afa.errors import CohortError
from afa.io.csvfile import CsvTable, name_column, number_column, parse_number, read_csv_table, table_of_frame
from afa.model.arrays import Bools, Floats

if TYPE_CHECKING:
    import pandas as pd

FeatureKind = Literal["continuous", "ordinal", "binary"]
FEATURE_KINDS: tuple[FeatureKind, ...] = ("continuous", "ordinal", "binary")
FEATURE_COLUMNS = ("feature", "kind", "unit", "low", "high", "values", "missing", "p_low", "p_high", "definition")
DISPLAY_COLUMNS = ("display", "label", "name")
"""Columns with display names that a dictionary may have, at most one of them; encoding ignores them."""
NO_UNIT = ("none", "no unit", "unitless", "dimensionless", "n/a", "-")
"""Texts in the column `unit` that mean no unit; an empty cell also means no unit."""


def shown_unit(unit: str) -> str:
    """Return the unit to show after a number.

    If the text means that there is no unit, such as "None", return an empty text.

    >>> shown_unit("bar"), shown_unit("None")
    ('bar', '')
    """
    return "" if unit.strip().casefold() in NO_UNIT else unit


class Span(NamedTuple):
    """An interval from `low` to `high`.

    If `low_open` is True, the interval excludes its lower end `low`. If `high_open` is True, the interval excludes its
    upper end `high`.
    """

    low: float = -math.inf
    high: float = math.inf
    low_open: bool = False
    high_open: bool = False

    def excludes(self, values: npt.ArrayLike) -> Bools:
        """Return a mask that is True for each value outside the interval and False for NaN.

        Parameters
        ----------
        values : (...) float64

        Returns
        -------
        outside : (...) bool

        """
        x = np.asarray(values, dtype=np.float64)
        below, above = (x < self.low) | (self.low_open & (x == self.low)), (x > self.high)
        return np.asarray(below | above | (self.high_open & (x == self.high)))


@dataclass(frozen=True, eq=False)
class Features:
    """Description of the features of a table.

    All arrays are read-only and have one element for each name in `names`. The attributes are in the order of
    `FEATURE_COLUMNS`.

    Parameters
    ----------
    names : names of the table's columns
    kinds : `continuous`, `ordinal` or `binary`
    units, codings, definitions : texts; a coding lists the numbers that a feature can have, and their meanings
    missing : codes of cells that were not measured, such as `-9, 999`; may be empty
    low, high : (n_features,) float64, cut points in the feature's unit, NaN if there is none: `x < low` is -1, `x >
        high` is +1
    p_low, p_high : (n_features,) float64, background: share of all people below and above the cut points; NaN if not
        given

    """

    names: tuple[str, ...]
    kinds: tuple[FeatureKind, ...]
    units: tuple[str, ...]
    low: Floats
    high: Floats
    codings: tuple[str, ...]
    missing: tuple[str, ...]
    p_low: Floats
    p_high: Floats
    definitions: tuple[str, ...]

    def __post_init__(self) -> None:
        for array in (self.low, self.high, self.p_low, self.p_high):
            array.flags.writeable = False

    def __len__(self) -> int:
        return len(self.names)

    def __repr__(self) -> str:
        return f"<Features: {len(self)}, {int(self.has_range.sum())} with cut points>"

    @property
    def is_binary(self) -> Bools:
        """Return a mask of the binary features, which have the values 0 and 1 in the table.

        Returns
        -------
        is_binary : (n_features,) bool

        """
        return np.array([kind == "binary" for kind in self.kinds], dtype=np.bool_)

    @property
    def has_range(self) -> Bools:
        """Return a mask of the features that can be encoded from `features.csv` alone.

        A feature can be encoded from `features.csv` if it is binary or has a cut point.

        Returns
        -------
        has_range : (n_features,) bool

        """
        return np.asarray(self.is_binary | np.isfinite(self.low) | np.isfinite(self.high))

    @property
    def possible(self) -> Bools:
        """Return a mask of the values (-1, 0, +1) that each feature can take.

        A feature with only the cut point `high` cannot be -1, and a feature with only the cut point `low` cannot be +1.

        Returns
        -------
        possible : (n_features, 3) bool

        """
        return _possible_values(self.is_binary, self.low, self.high)

    @property
    def background(self) -> Floats:
        """Return the probabilities of each feature's values among all people.

        Returns
        -------
        background : (n_features, 3) float64, of -1, 0, +1; NaN if not given

        """
        return np.column_stack([self.p_low, 1.0 - self.p_low - self.p_high, self.p_high])

    @cached_property
    def spans(self) -> tuple[Span | None, ...]:
        """Return, for each feature, the interval of numbers that its coding allows.

        The interval is None if the coding does not describe an interval.
        """
        said = zip(self.codings, self.units, self.kinds, strict=True)
        return tuple(span_of(coding, unit, closed=kind != "continuous") for coding, unit, kind in said)

    @cached_property
    def missing_codes(self) -> tuple[tuple[str, ...], ...]:
        """Return, for each feature, the codes that mean *not measured*.

        A code for *not measured* is listed in `missing`, or it is followed by a word such as "unknown" in the text that
        explains the feature's numbers ("0 no, 1 yes, 9 unknown").
        """
        pairs = zip(self.missing, self.codings, strict=True)
        return tuple((*_split_missing_codes(said), *_coded_as_missing(coding)) for said, coding in pairs)

    def meanings(self, name: str) -> tuple[str, str] | None:
        """Return the words for 0 and 1 in the coding of a binary feature.

        If the coding does not give a word for 0 and a word for 1, or if the two words only mean "no" and "yes", return
        None.

        >>> import pandas as pd
        >>> rows = pd.DataFrame({"feature": ["appetite", "pain"], "kind": ["binary", "binary"]})
        >>> known = features_of(rows.assign(values=["0 good, 1 poor", "0 no, 1 yes"]))
        >>> known.meanings("appetite"), known.meanings("pain")
        (('good', 'poor'), None)
        """
        place = self.names.index(name)
        found = filter(None, map(_CODED_WORD.fullmatch, _pieces(self.codings[place])))
        said = {match[1]: match[2] for match in found}
        if self.kinds[place] != "binary" or said.keys() != {"0", "1"} or (said["0"], said["1"]) in NO_YES_WORDS:
            return None
        return said["0"], said["1"]

    def excludes(self, name: str, value: float) -> str:
        """Return a text that describes the allowed values if the number `value` is not allowed, else an empty text.

        Examples
        --------
        >>> import pandas as pd
        >>> known = features_of(pd.DataFrame({"feature": ["spo2"], "kind": ["continuous"], "values": ["50 to 100"]}))
        >>> known.excludes("spo2", 250), known.excludes("spo2", 97)
        ('50 to 100', '')

        """
        place = self.names.index(name)
        if is_missing_code(str(value), self.missing_codes[place]):
            return f"a measured value, since {value:g} stands for not measured"
        if self.kinds[place] == "binary" and value not in (0.0, 1.0):
            return "0 or 1"
        span = self.spans[place]
        return self.codings[place] if span is not None and bool(span.excludes(value)) else ""

    def chosen(self, names: Sequence[str]) -> Features:
        """Return the features with the given names, in the given order. All names must exist."""
        place = {name: i for i, name in enumerate(self.names)}
        rows = [place[name] for name in names]
        parts = {part.name: getattr(self, part.name) for part in fields(self)}
        columns: dict[str, Any] = {
            name: values[rows] if isinstance(values, np.ndarray) else tuple(values[i] for i in rows)
            for name, values in parts.items()
        }
        return Features(**columns)

    def to_frame(self) -> pd.DataFrame:
        """Return a table with the rows of `features.csv`.

        The table has the column `missing` only if some feature has a code for *not measured*.
        """
        import pandas as pd  # noqa: PLC0415 (slow to import, and not needed for planning)

        columns = {column: getattr(self, part.name) for column, part in zip(FEATURE_COLUMNS, fields(self), strict=True)}
        table = pd.DataFrame(columns)
        return table if any(self.missing) else table.drop(columns="missing")


def read_features(path: str | Path, other_kinds: Mapping[str, FeatureKind] | None = None) -> Features:
    """Return the features in a file with the format of `features.csv`.

    Parameters
    ----------
    path : a CSV file with the columns `feature` and `kind`, and any of `unit`, `low`, `high`, `values` (possible
        numbers, in words), `missing`, `p_low`, `p_high` and `definition`; a column of `DISPLAY_COLUMNS` is ignored
    other_kinds : word in this file -> kind

    Raises
    ------
    CohortError : lists every error of the file by line and column

    """
    table = read_csv_table(
        path,
        required=FEATURE_COLUMNS[:2],
        optional=(*FEATURE_COLUMNS[2:], *DISPLAY_COLUMNS),
        unread=DISPLAY_COLUMNS,
        whole_rows=True,
        shown=True,
    )
    kinds = [(other_kinds or {}).get(kind, kind) for kind in table.columns["kind"]]
    return checked_features(replace(table, columns={**table.columns, "kind": kinds}))


def features_of(features: str | Path | pd.DataFrame | Features) -> Features:
    """Return the features in a file, or in a table with the columns of `features.csv`.

    If the argument is of the type `Features`, return it unchanged.
    """
    if isinstance(features, Features):
        return features
    if isinstance(features, str | Path):
        return read_features(features)
    table = table_of_frame(features, "features", required=FEATURE_COLUMNS[:2], optional=FEATURE_COLUMNS[2:])
    return checked_features(table)


def checked_features(table: CsvTable) -> Features:
    """Return the features that a table describes. All cells of the table are texts.

    If the table has errors, raise a `CohortError` that lists all of them.
    """
    faults = table.faults
    readable = not faults.listed()
    name_column(table, "feature")
    names = table.columns["feature"]
    place = {name: i for i, name in enumerate(dict.fromkeys(names))}
    table.once([place[name] if name else -1 for name in names], "each feature once", "feature")
    table.words("kind", FEATURE_KINDS)
    low, high = (number_column(table, name, empty=np.nan) for name in ("low", "high"))
    if readable and not len(table):
        faults.add(0, "", "no feature", "a row for each feature", "add them")
    sound = np.full(len(table), not faults.listed())
    binary = np.array(table.columns["kind"], dtype=object) == "binary"
    for name, cut, misfit, expected, step in (
        ("low", low, np.isfinite(low), "nothing: it is 0 or +1", "empty it, or call it ordinal"),
        ("high", high, (high < 0.0) | (high >= 1.0), "nothing, or at least 0 and below 1", "empty it"),
    ):
        said = [f"{value:g} for a binary feature" for value in cut]
        table.wrong(sound & binary & misfit, name, expected, step, said.__getitem__)
    exchanged = sound & ~binary & (low > high)
    step = "exchange them, or correct the wrong one"
    table.wrong(exchanged, "low", "at most high", step, lambda row: f"{low[row]:g}, above high ({high[row]:g})")
    turned = np.array([any(map(_TURNED.fullmatch, _pieces(coding))) for coding in table.columns["values"]], dtype=bool)
    step = "exchange 0 and 1 in the table and here, or call the feature ordinal"
    table.wrong(sound & binary & turned, "values", "0 for no and 1 for yes", step)
    p_low, p_high, _ = share_columns(table, ("p_low", "p_high"), _possible_values(binary, low, high), sound)
    CohortError.raise_for(faults.listed())
    texts = {name: tuple(table.columns[name]) for name in FEATURE_COLUMNS}
    columns: dict[str, Any] = texts | {"low": low, "high": high, "p_low": p_low, "p_high": p_high}
    return Features(*(columns[name] for name in FEATURE_COLUMNS))


def _possible_values(binary: Bools, low: Floats, high: Floats) -> Bools:
    """Return a mask of the values (-1, 0, +1) that features can take, given their kinds and cut points.

    The mask has the shape (n, 3).
    """
    neither = np.isnan(low) & np.isnan(high)
    below, above = ~binary & (neither | np.isfinite(low)), binary | neither | np.isfinite(high)
    return np.column_stack([below, np.ones(len(low), dtype=np.bool_), above])


def share_columns(
    table: CsvTable, names: tuple[str, str], possible: Bools, rows: Bools
) -> tuple[Floats, Floats, Bools]:
    """Read two columns of a table: the shares of people below and above the cut points of a feature.

    The result contains the two columns and a mask of the rows with errors.

    If only one of the two cells of a row is empty, the share in this cell counts as 0. If both cells of a row are
    empty, both shares of the row are NaN.

    Parameters
    ----------
    possible : (n_rows, 3) bool, True for values that the row's feature can take
    rows : (n_rows,) bool, rows whose two shares must agree with `possible` and with each other

    Returns
    -------
    low, high : (n_rows,) float64, shares from 0 to 1
    wrong : (n_rows,) bool

    """
    shares = [number_column(table, name, low=0.0, high=1.0, empty=np.nan) for name in names]
    empty = [table.empty(name) for name in names]
    low, high = shares
    wrong = rows & (low + high > 1.0 + 1e-9)
    table.wrong(
        wrong, names[1], "at most 1 together", "correct them", lambda row: f"{low[row]:g} low and {high[row]:g} high"
    )

    def check(side: int, word: str) -> None:
        can_be, share = possible[:, 2 * side], shares[side]
        strange = rows & (share > 0) & ~can_be
        lacking = rows & can_be & empty[side] & np.isfinite(shares[1 - side])
        wrong[strange | lacking] = True
        step, found = f"empty it, or give the cut point {word} in features.csv", f"though it cannot be {word}"
        table.wrong(strange, names[side], "nothing or 0", step, lambda row: f"{share[row]:g}, {found}")
        step = f"write 0 if it is never {word}, or say in features.csv that it cannot be"
        table.wrong(lacking, names[side], "both, or neither", step, "nothing beside the other side's probability")

    check(0, "low")
    check(1, "high")
    both_empty = empty[0] & empty[1]
    return np.where(both_empty, np.nan, np.nan_to_num(low)), np.where(both_empty, np.nan, np.nan_to_num(high)), wrong


_N = r"([-+]?(?:\d+(?:\.\d+)?|\.\d+)(?:e[-+]?\d+)?)"
_UNKNOWN = r"(?:missing|unknown|not (?:measured|known|tested|done|available)|no (?:data|answer)|n/?a|refused)"
_MISSING = re.compile(rf"{_N}\s*[=:]?\s*{_UNKNOWN}")
_YES, _NO = "(?:yes|true|present|positive)", "(?:no|false|absent|negative)"
_IS = r"\s*[=:]?\s*"
_TURNED = re.compile(f"0{_IS}{_YES}|{_YES}{_IS}0|1{_IS}{_NO}|{_NO}{_IS}1")
_CODED_WORD = re.compile(f"([01]){_IS}([^\\W\\d].*)")
NO_YES_WORDS = {
    ("no", "yes"),
    ("false", "true"),
    ("absent", "present"),
    ("not present", "present"),
    ("negative", "positive"),
}
"""Pairs of words for 0 and 1 that mean no and yes."""
_THOUSANDS = re.compile(r"(?<![\d.])[1-9]\d{0,2}(?:,\d{3})+(?![\d.]*\d)")
_SPELLINGS = {
    "−": "-",
    "–": "-",
    "≥": ">=",
    "≤": "<=",
    "…": "..",
    "non-negative": "0 or more",
    "not negative": "0 or more",
}


def span_of(coding: str, unit: str = "", *, closed: bool) -> Span | None:
    """Return the interval of numbers that a coding allows.

    Return None if the coding contains no numbers or cannot be interpreted. Examples of codings are `above 0`, `50 to
    100`, and `0 none, 1 slight, 2 severe`.

    Parameters
    ----------
    closed : True if only the listed numbers are possible, as for an ordinal or binary feature; False if they are
        examples, as for a continuous feature

    """
    one_sided, listed, codes = list[Span](), list[Span](), 0
    for piece in _pieces(coding):
        if _MISSING.fullmatch(piece):
            continue
        if (bound := _parse_bound(piece, unit)) is not None:
            (one_sided if math.inf in (-bound.low, bound.high) else listed).append(bound)
        elif closed and (group := re.fullmatch(rf"{_N}\s*(?:to|-|\.\.+)\s*{_N}\s+.*", piece)) is not None:
            listed.append(Span(float(group[1]), float(group[2])))
        elif closed and (code := re.fullmatch(rf"{_N}(?:\s*[=:]\s*|\s+(?!(?:to|or|and)\b)|$).*", piece)) is not None:
            listed.append(Span(float(code[1]), float(code[1])))
            codes += 1
        elif re.search(r"\d", piece):
            return None
    if codes == len(listed) == 1:  # a coding such as "0 none" explains only one number: others are allowed too
        listed = []
    if one_sided:  # a number must meet all one-sided bounds, as in "above 0, at most 14"
        low, high = max(one_sided, key=_low_end), min(one_sided, key=_high_end)
        listed.append(Span(low.low, high.high, low.low_open, high.high_open))
    if not listed:
        return None
    low, high = min(listed, key=_low_end), max(listed, key=_high_end)
    return Span(low.low, high.high, low.low_open, high.high_open) if low.low <= high.high else None


def _low_end(span: Span) -> tuple[float, bool]:
    return span.low, span.low_open


def _high_end(span: Span) -> tuple[float, bool]:
    return span.high, not span.high_open


def is_missing_code(text: str, codes: Iterable[str]) -> bool:
    """Return True if a text equals one of the codes for *not measured*, as text or as number."""
    value = parse_number(text)
    return any(text.strip().casefold() == code.casefold() or value == parse_number(code) for code in codes)


def _pieces(coding: str) -> list[str]:
    """Split a coding (a text that lists the numbers that a feature can have) into its parts.

    Commas, semicolons and the words "or" and "and" separate the parts. Text in parentheses is omitted.
    """
    text = re.sub(r"\([^()]*\)", " ", coding.casefold())
    for spelling, plain in _SPELLINGS.items():
        text = text.replace(spelling, plain)
    text = _THOUSANDS.sub(lambda found: found[0].replace(",", ""), text)
    text = re.sub(rf"\b(?:between|from)\s+{_N}\s+(?:and|to)\s+{_N}", r"\1 to \2", text)
    parts = re.split(
        rf"[,;]|\bor\b(?=\s*{_N[1:-1]})|\band\b(?=\s*(?:above|over|below|under|at|more|less|up|[<>]))", text
    )
    return [part.strip().removesuffix(".").strip() for part in parts if part and part.strip(" .")]


def _parse_bound(piece: str, unit: str) -> Span | None:
    """Return the interval of numbers that a text such as `at least 5` or `1 to 4` describes.

    Return None if the text contains neither a lower nor an upper bound.
    """
    tail = rf"\s*(?:{re.escape(unit.casefold())}|%|percent)?\s*" if unit else r"\s*(?:%|percent)?\s*"
    piece = re.sub(
        r"^(?:whole |all )?(?:numbers?|integers?|values?|counts?|grades?|scores?)\s+(?=[-+<>.\da])", "", piece
    )
    if re.fullmatch(r"positive(?: numbers?| values?)?", piece):
        return Span(0.0, low_open=True)
    for pattern, low, is_open in (
        (rf"(?:above|over|more than|greater than|>)\s*{_N}{tail}", True, True),
        (rf"(?:at least|from|minimum|>=)\s*{_N}{tail}", True, False),
        (rf"{_N}{tail}(?:\+|(?:or|and) (?:more|above|higher|greater|over|older|up){tail})", True, False),
        (rf"(?:below|under|less than|<)\s*{_N}{tail}", False, True),
        (rf"(?:at most|up to|maximum|<=)\s*{_N}{tail}", False, False),
        (rf"{_N}{tail}(?:or|and) (?:less|below|lower|fewer|under|younger){tail}", False, False),
    ):
        if (found := re.fullmatch(pattern, piece)) is not None:
            end = float(found[1])
            return Span(end, low_open=is_open) if low else Span(high=end, high_open=is_open)
    both = re.fullmatch(rf"{_N}{tail}(?:to|-|\.\.+)\s*{_N}{tail}", piece)
    both = both or re.fullmatch(rf"{_N}\s+[^\d.]+\.\.+\s*{_N}\s+[^\d.]+", piece)
    return Span(float(both[1]), float(both[2])) if both and float(both[1]) < float(both[2]) else None


def _split_missing_codes(missing: str) -> list[str]:
    return [code.strip() for code in re.split(r"[,;]", missing) if code.strip()]


def _coded_as_missing(coding: str) -> list[str]:
    return [found[1] for piece in _pieces(coding) if (found := _MISSING.fullmatch(piece))]
