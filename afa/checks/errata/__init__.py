"""The paper's errors as checks with a number, run each time: a function an item, one table (docs/errata.md).

Here are their texts and the printed numbers, which are data; the rows that checks give; and both as a table. `make
schema` writes the page from resources/paper/errata.yaml.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from textwrap import fill
from typing import Any, Literal, NamedTuple

import numpy as np
import pandas as pd
from numpy.typing import ArrayLike, NDArray
from pydantic import BaseModel, ConfigDict

from afa.errors import ConfigError, Fault
from afa.stats.accuracy import Resampled
from afa.stats.summary import summary_rows
from afa.yamlfile import load_model

Kind = Literal["erratum", "remark", "withdrawn"]
Unit = Literal["rate", "accuracy", "count", "gap", "nats", "contraction", "correlation"]
Cases = NDArray[Any]
EXACT = 1e-9
"""Numbers that are claimed to be equal and differ by no more than this are equal: the rest is rounding."""
NEAR = 0.05
"""How far below a claimed accuracy, or from no correlation, a number may be for the claim to hold."""
RESAMPLES, CONFIDENCE = 1000, 0.95


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
    """The file `errata.yaml`: items by number, and pairs of printed statements that cannot both hold.

    head, head_of_contradictions : what stands above both on the page.
    """

    head: str = ""
    items: Mapping[int, Item]
    head_of_contradictions: str = ""
    contradictions: tuple[Mapping[Literal["claims", "one", "other", "follows"], str], ...] = ()


def load_errata(path: Path) -> Errata:
    """Read and check the texts; a `ConfigError` names what is wrong."""
    return load_model(path, Errata)


@dataclass(frozen=True)
class Printed:
    """The paper's tables by file name without its ending, such as `tab_chaos`, and `claims`."""

    tables: Mapping[str, pd.DataFrame]

    def cell(self, table: str, row: str, column: str) -> float:
        """One printed number, as printed; a `ConfigError` where there is none."""
        return float(self._numbers(table, f", row {row}, column {column}", row=row, column=column)["value"].item())

    def column(self, table: str, row: str) -> pd.Series:
        """All numbers of one row, by column, in the order printed; a `ConfigError` where there is none."""
        return self._numbers(table, f", row {row}", row=row).set_index("column")["value"]

    def rows(self, table: str) -> list[str]:
        """The names of a table's rows, in the order printed."""
        return list(self._numbers(table)["row"].unique())

    def claim(self, identifier: str) -> float:
        """The number of one claim of the text, in its own unit; a `ConfigError` where there is none."""
        return float(self._numbers("claims", f", {identifier}", id=identifier)["value"].item())

    def _numbers(self, table: str, where: str = "", **cells: str) -> pd.DataFrame:
        """The lines of a table with these cells, each of which must have a number."""
        lines = self.tables.get(table, pd.DataFrame(columns=["value", *cells]))
        chosen = lines[(lines[list(cells)] == list(cells.values())).all(axis=1)]
        found = chosen.assign(value=pd.to_numeric(chosen["value"], errors="coerce"))
        if found.empty or found["value"].isna().any():
            step = "restore resources/paper"
            raise ConfigError(Fault("the paper's tables", f"no number at {table}{where}", "one", step))
        return found


class Row(NamedTuple):
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


def measured(
    item: int,
    name: str,
    cases: ArrayLike,
    statistic: Callable[[Cases], Any] = np.mean,
    *,
    claim: float | None = None,
    holds: Callable[[Cases], Any] | None = None,
    patients: Iterable[str] | None = None,
    pending: str = "",
) -> Row:
    """The row of a statistic of some cases, which waits for what `pending` says where there are none.

    holds : the verdict on the cases. patients : whose each case is, for the interval of the mean.
    """
    each = np.asarray(cases)
    if not each.size:
        return Row(item, name, claim_value=claim, n=0, pending=pending)
    low, high = (None, None) if patients is None else share_interval(each, patients)
    return Row(item, name, float(statistic(each)), claim, low, high, each.size, bool(holds(each)) if holds else None)


def by_hash(names: Sequence[str], purpose: str) -> list[int]:
    """Places of the names by a hash of each, so that which come first does not depend on the order they come in."""
    keys = [hashlib.sha256(f"errata\0{purpose}\0{name}".encode()).digest() for name in names]
    return sorted(range(len(names)), key=keys.__getitem__)


def some_of(names: Sequence[str], most: int, purpose: str) -> list[int]:
    """Places of at most `most` of the names, those whose hash is lowest, ascending."""
    return sorted(by_hash(names, purpose)[:most])


def none(hits: Cases) -> bool:
    """Whether no case is as it should not be."""
    return not hits.any()


def all_zero(cases: Cases) -> bool:
    """Whether no number is more than rounding."""
    return bool((np.abs(cases) <= EXACT).all())


rate = partial(measured, claim=0.0, holds=none)
"""The share of cases that should not be; arguments as of `measured`."""
vanishes = partial(measured, claim=0.0, holds=all_zero)
"""A statistic of numbers that should all be zero; arguments as of `measured`."""


def share_interval(hits: ArrayLike, patients: Iterable[str]) -> tuple[float, float]:
    """Interval of the mean of `hits` (n,) by resampling patients; `patients` (n,) names the patient of each."""
    names = np.array(list(patients), dtype=str)
    cases = pd.DataFrame({"patient": names, "hit": np.asarray(hits, dtype=float), "one": 1.0})
    units = sorted(cases["patient"].unique())
    resampled = Resampled.of(units, resamples=RESAMPLES, confidence=CONFIDENCE, purpose="errata")
    low, high = resampled.share(cases, "hit", "one", by=None)[["low", "high"]].iloc[0]
    return float(low), float(high)


FORM = dict.fromkeys(("claim_value", "value", "low", "high"), "float64")
FORM |= {"item": "int64", "n": "Int64", "holds": "boolean"}
TEXTS = ["item", "kind", "name", "label", "claim", "claim_value", "check"]
COLUMNS = [*TEXTS, "value", "low", "high", "unit", "n", "holds", "pending", "headline"]


def frame_of(rows: Sequence[Row]) -> pd.DataFrame:
    """Some rows as a table, not of all items perhaps."""
    return pd.DataFrame(rows, columns=Row._fields).astype(FORM)


def table_of(rows: pd.DataFrame, errata: Errata) -> pd.DataFrame:
    """The rows of `frame_of` with their texts, by item and then as given."""
    texts = pd.DataFrame(
        [
            {"item": number, "name": name, "kind": item.kind, "label": item.places, **check.model_dump()}
            for number, item in errata.items.items()
            for name, check in item.checks.items()
        ]
    )
    whole = rows.merge(texts, on=["item", "name"], how="left", validate="one_to_one")
    return whole[COLUMNS].astype({"headline": "bool"}).sort_values("item", kind="stable", ignore_index=True)


def summarise_errata(table: pd.DataFrame) -> pd.DataFrame:
    """Summary rows `errata`: each check's value and, with the reference `paper`, the paper's own beside it.

    The metric is the row's unit, the quantity the check's name, the level its item. Checks that are pending have no
    number and no row; the paper's value is given with them all the same.
    """
    whole = table.rename(columns={"unit": "metric", "name": "quantity", "item": "level"})
    keys = ["metric", "quantity", "level"]
    ours = whole.loc[whole["value"].notna(), [*keys, "value", "low", "high", "n"]]
    paper = whole.loc[whole["claim_value"].notna(), [*keys, "claim_value"]]
    paper = paper.rename(columns={"claim_value": "value"}).assign(reference="paper")
    return summary_rows("errata", pd.concat([ours, paper], ignore_index=True))


def errata_page(errata: Errata) -> str:
    """The page as Markdown."""
    items = (_paragraph(number, item) for number, item in errata.items.items())
    rows = (
        f"| {pair['claims']} | {pair['one']} | {pair['other']} | {pair['follows']} |\n"
        for pair in errata.contradictions
    )
    return "\n".join([errata.head, *items, errata.head_of_contradictions + "".join(rows)])


def _paragraph(number: int, item: Item) -> str:
    """One paragraph an item; it starts with the number, which the report links to."""
    places = ", ".join(f"`{place}`" for place in item.places.split(", "))
    sentences = [f"**E{number}, {item.title}.** {places}."]
    sentences += [f"*{point.kind.capitalize()}.* {point.text}" for point in item.points]
    sentences += [f"*The paper's concession.* {item.concedes}"] if item.concedes else []
    sentences += [f"*Checked.* {item.found}"] if item.found else []
    return fill(" ".join(sentences), 118, break_long_words=False, break_on_hyphens=False) + "\n"
