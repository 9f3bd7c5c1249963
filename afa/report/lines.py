"""The lines of a summary, each found by the values of its key columns."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import pandas as pd

from afa.errors import Fault, ReportError


class Lines:
    """A summary with an index of its lines: to be made once, where many are looked up.

    rows : the summary, or a part of it. Two lines with the same keys are a `ReportError`.
    """

    def __init__(self, rows: pd.DataFrame) -> None:
        self.rows = rows
        self._keys = list(rows.columns[: list(rows.columns).index("value")])
        named = rows[self._keys].astype(object).where(rows[self._keys].notna(), None)
        self._places = {keys: place for place, keys in enumerate(zip(*(named[key] for key in named), strict=True))}
        if len(self._places) < len(rows):
            twice = rows[rows.duplicated(self._keys)].iloc[0][self._keys].dropna().to_dict()
            raise ReportError(Fault(f"summary line {twice}", "2 lines or more", "one", "run its stage again"))

    def find(self, where: Mapping[str, Any]) -> pd.Series | None:
        """The one line with these keys, all keys not named being empty; None where there is none."""
        place = self._places.get(tuple(where.get(key) for key in self._keys))
        return None if place is None else self.rows.iloc[place]


def lines_of(summary: pd.DataFrame | Lines) -> Lines:
    """The summary as `Lines`, which it may be already."""
    return summary if isinstance(summary, Lines) else Lines(summary)
