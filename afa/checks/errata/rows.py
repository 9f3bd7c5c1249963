"""The errata of the paper: their texts, which are data, and the checks that were computed, as one table."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, fields
from pathlib import Path
from typing import Literal

import pandas as pd
from pydantic import BaseModel, ConfigDict

from afa.yamlfile import load_model

Kind = Literal["erratum", "remark", "withdrawn"]
Unit = Literal["rate", "accuracy", "count", "gap", "nats", "contraction", "correlation"]
EXACT = 1e-9
"""Numbers that are claimed to be equal and differ by no more than this are equal: the rest is rounding."""
NEAR = 0.05
"""How far below a claimed accuracy, or from no correlation, a number may be for the claim to hold."""


class _Strict(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True)


class Check(_Strict):
    """What the paper claims and what was computed, in words; `headline` marks the one that stands for its item."""

    claim: str
    check: str
    unit: Unit
    headline: bool = False


class Point(_Strict):
    """One thing that is wrong (`erratum`), or loose, open or said by the paper itself (`remark`)."""

    kind: Kind
    text: str


class Item(_Strict):
    """One place of the paper: what is said there, what we find, and what the paper itself concedes.

    places : LaTeX labels. found : what the checks gave on the recorded bundle and, where there are three numbers, on
    the cohorts demo, gse117993 and gse109142.
    """

    title: str
    places: str
    points: tuple[Point, ...]
    concedes: str = ""
    found: str = ""
    checks: Mapping[str, Check] = {}

    @property
    def kind(self) -> Kind:
        """The gravest of its points."""
        kinds: tuple[Kind, ...] = ("erratum", "withdrawn", "remark")
        return next(kind for kind in kinds if kind in {point.kind for point in self.points})


class Errata(_Strict):
    """The file `errata.yaml`: items by number, and pairs of printed statements that cannot both hold."""

    items: Mapping[int, Item]
    contradictions: tuple[Mapping[Literal["claims", "one", "other", "follows"], str], ...] = ()


def load_errata(path: Path) -> Errata:
    """Read and check the texts; a `ConfigError` names what is wrong."""
    return load_model(path, Errata)


@dataclass(frozen=True)
class Row:
    """What a check of one item gave; its words are in `Errata`, under the same name.

    item : number. name : short snake_case word, distinct within the item. claim_value, value : the paper's number and
    ours. low, high : interval over patients. n : cases behind `value`. holds : whether the claim holds by this check,
    None where the number only illustrates. pending : what has to be built or given before this can be checked.
    """

    item: int
    name: str
    value: float | None = None
    claim_value: float | None = None
    low: float | None = None
    high: float | None = None
    n: int | None = None
    holds: bool | None = None
    pending: str = ""


def frame_of(rows: Sequence[Row]) -> pd.DataFrame:
    """Some rows as they are, not all items perhaps, to be kept in a file."""
    table = pd.DataFrame([asdict(row) for row in rows], columns=[each.name for each in fields(Row)])
    table = table.astype(dict.fromkeys(("claim_value", "value", "low", "high"), "float64"))
    return table.astype({"item": "int64", "n": "Int64", "holds": "boolean"})


def rows_of_frame(table: pd.DataFrame) -> list[Row]:
    """The rows that `frame_of` made a table of."""
    held = table.astype(object).where(table.notna(), None)
    return [Row(**{str(name): cell for name, cell in cells.items()}) for cells in held.to_dict("records")]


TEXTS = ["item", "kind", "name", "label", "claim", "claim_value", "check"]
COLUMNS = [*TEXTS, "value", "low", "high", "unit", "n", "holds", "pending", "headline"]


def table_of(rows: Iterable[Row], errata: Errata) -> pd.DataFrame:
    """The rows with their texts as a table, by item and then as given.

    Raises
    ------
    ValueError : two rows of one name, a row with neither value nor pending text, or rows and texts that do not match.

    """
    listed = list(rows)
    _check(listed, errata)
    lines = []
    for row in listed:
        item = errata.items[row.item]
        check = item.checks[row.name]
        lines.append(asdict(row) | check.model_dump() | {"kind": item.kind, "label": item.places})
    table = pd.DataFrame(lines, columns=COLUMNS)
    table = table.astype(dict.fromkeys(("claim_value", "value", "low", "high"), "float64"))
    table = table.astype({"item": "int64", "n": "Int64", "holds": "boolean", "headline": "bool"})
    return table.sort_values("item", kind="stable", ignore_index=True)


def _check(rows: list[Row], errata: Errata) -> None:
    keys = [(row.item, row.name) for row in rows]
    texts = {(number, name) for number, item in errata.items.items() for name in item.checks}
    empty = {(row.item, row.name) for row in rows if row.value is None and not row.pending}
    headless = {
        (number, "")
        for number, item in errata.items.items()
        if item.checks and sum(check.headline for check in item.checks.values()) != 1
    }
    for what, found in (
        ("rows of one name", {key for key in keys if keys.count(key) > 1}),
        ("rows without words", set(keys) - texts),
        ("rows without value or pending text", empty),
        ("items without exactly one headline", headless),
    ):
        if found:
            raise ValueError(f"{what}: {', '.join(f'{item} {name}' for item, name in sorted(found))}")
