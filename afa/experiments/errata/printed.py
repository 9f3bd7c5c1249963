"""What the paper prints, as tables: single cells and claims by their id (resources/paper)."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import pandas as pd

from afa.errors import ConfigError, Fault


@dataclass(frozen=True)
class Printed:
    """The paper's tables by file name without its ending, such as `tab_chaos`, and `claims`."""

    tables: Mapping[str, pd.DataFrame]

    def cell(self, table: str, row: str, column: str) -> float:
        """One printed number, as printed; a `ConfigError` where there is none."""
        cells = self._table(table)
        found = cells[(cells["row"] == row) & (cells["column"] == column)]["value"]
        return self._number(found, f"{table}, row {row}, column {column}")

    def column(self, table: str, row: str) -> pd.Series:
        """All numbers of one row, by column, in the order printed; a `ConfigError` where there is none."""
        cells = self._table(table)
        found = cells[cells["row"] == row].set_index("column")["value"]
        if found.empty:
            raise self._missing(f"{table}, row {row}")
        return pd.to_numeric(found)

    def rows(self, table: str) -> list[str]:
        """The names of a table's rows, in the order printed."""
        return list(dict.fromkeys(self._table(table)["row"]))

    def claim(self, identifier: str) -> float:
        """The number of one claim of the text, in its own unit; a `ConfigError` where there is none."""
        claims = self._table("claims")
        return self._number(claims[claims["id"] == identifier]["value"], f"claims, {identifier}")

    def _table(self, name: str) -> pd.DataFrame:
        if name not in self.tables:
            raise self._missing(name)
        return self.tables[name]

    def _number(self, found: pd.Series, where: str) -> float:
        values = pd.to_numeric(found, errors="coerce")
        if len(values) != 1 or values.isna().any():
            raise self._missing(where)
        return float(values.iloc[0])

    @staticmethod
    def _missing(where: str) -> ConfigError:
        step = "restore resources/paper"
        return ConfigError(Fault("the paper's tables", f"not exactly one number at {where}", "one", step))
