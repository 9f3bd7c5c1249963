"""One line of the table of errata: what the paper claims, what was computed, whether the claim holds by it."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import asdict, dataclass

import pandas as pd

ITEMS = range(1, 23)
UNITS = ("rate", "accuracy", "count", "gap", "nats", "contraction", "correlation")
EXACT = 1e-9
"""Numbers that are claimed to be equal and differ by no more than this are equal: the rest is rounding."""
NEAR = 0.05
"""How far below a claimed accuracy, or from no correlation, a number may be for the claim to hold."""


@dataclass(frozen=True)
class Row:
    """A check of one item of the errata.

    item : 1 to 22. name : short snake_case word, distinct within the item. label : the paper's LaTeX labels.
    unit : one of `UNITS`, the summary's metrics. claim_value, value : the paper's number and ours, in that unit.
    low, high : interval over patients. n : cases behind `value`. holds : whether the claim holds by this check, None
    where the number only illustrates. pending : what has to be built or given before this can be checked.
    headline : the one row that stands for its item.
    """

    item: int
    name: str
    label: str
    claim: str
    check: str
    unit: str
    value: float | None = None
    claim_value: float | None = None
    low: float | None = None
    high: float | None = None
    n: int | None = None
    holds: bool | None = None
    pending: str = ""
    headline: bool = False


COLUMNS = (
    "item",
    "name",
    "label",
    "claim",
    "claim_value",
    "check",
    "value",
    "low",
    "high",
    "unit",
    "n",
    "holds",
    "pending",
    "headline",
)


def table_of(rows: Iterable[Row]) -> pd.DataFrame:
    """The rows as a table, by item and then as given.

    Raises
    ------
    ValueError : an unknown unit, two rows of one name, a row with neither value nor pending text, or an item without
        exactly one headline: a fault of the caller.

    """
    listed = list(rows)
    _check(listed)
    return frame_of(listed).sort_values("item", kind="stable", ignore_index=True)


def frame_of(rows: Sequence[Row]) -> pd.DataFrame:
    """Some rows as they are, not all items perhaps, to be kept in a file."""
    table = pd.DataFrame([asdict(row) for row in rows], columns=list(COLUMNS))
    table = table.astype(dict.fromkeys(("claim_value", "value", "low", "high"), "float64"))
    return table.astype({"item": "int64", "n": "Int64", "holds": "boolean", "headline": "bool"})


def rows_of_frame(table: pd.DataFrame) -> list[Row]:
    """The rows that `frame_of` made a table of."""
    held = table.astype(object).where(table.notna(), None)
    return [Row(**{str(name): cell for name, cell in cells.items()}) for cells in held.to_dict("records")]


def _check(rows: Sequence[Row]) -> None:
    keys = [(row.item, row.name) for row in rows]
    twice = sorted({f"{item} {name}" for item, name in keys if keys.count((item, name)) > 1})
    unknown = sorted({row.unit for row in rows} - set(UNITS))
    empty = [f"{row.item} {row.name}" for row in rows if row.value is None and not row.pending]
    headlines = [row.item for row in rows if row.headline]
    wrong = [str(item) for item in {row.item for row in rows} if headlines.count(item) != 1]
    for fault, found in (
        ("rows of one name", twice),
        ("units that are not known", unknown),
        ("rows without value or pending text", empty),
        ("items without exactly one headline", wrong),
    ):
        if found:
            raise ValueError(f"{fault}: {', '.join(found)}")
