"""The tables that a stage of the elicitation leaves in a folder, as CSV, and how the next stage reads them."""

from __future__ import annotations

import csv
from collections.abc import Mapping, Sequence
from pathlib import Path

import pandas as pd

from afa.csvfile import RowFaults, number_column, read_table
from afa.elicit.answered import GENE_COLUMNS, OUTCOME_COLUMNS, PAIR_COLUMNS
from afa.elicit.usable import DROPPED_COLUMNS
from afa.errors import ElicitationError, Fault
from afa.files import atomic_file, atomic_folder

KEPT_COLUMNS = ["phenotype", "gene", "potential", "confidence", "n_runs"]
COLUMNS: Mapping[str, Sequence[str]] = {
    "asked": OUTCOME_COLUMNS,
    "named": GENE_COLUMNS,
    "kept": KEPT_COLUMNS,
    "dropped": DROPPED_COLUMNS,
    "pairs": PAIR_COLUMNS,
}
"""The tables that a later stage reads."""
NUMBERS = {
    "attempt": (0.0, 1e9, int),
    "lit_prob": (0.0, 1.0, float),
    "confidence": (0.0, 1.0, float),
    "potential": (-1.0, 1.0, int),
    "sign": (-1.0, 1.0, int),
    "n_runs": (1.0, 1e9, int),
}
"""Range and type of the columns that are no text."""


def write_stage(folder: str | Path, tables: Mapping[str, pd.DataFrame]) -> None:
    """Write each table as `<name>.csv`; the folder appears only when complete."""
    with atomic_folder(folder) as temporary:
        for name, table in tables.items():
            _write(temporary / f"{name}.csv", table)


def write_csv(path: str | Path, table: pd.DataFrame) -> None:
    """Write one table for readers."""
    with atomic_file(path) as temporary:
        table.to_csv(temporary, index=False, lineterminator="\n")


def read_stage(folder: str | Path, *names: str) -> dict[str, pd.DataFrame]:
    """The named tables of a stage as it had them; an `ElicitationError` lists what is wrong with their files."""
    faults: list[Fault] = []
    tables = {name: _read(Path(folder) / f"{name}.csv", COLUMNS[name], faults) for name in names}
    if faults:
        raise ElicitationError(faults)
    return tables


def _write(path: Path, table: pd.DataFrame) -> None:
    # All texts are quoted: a lone carriage return in one would end the row otherwise.
    table.to_csv(path, index=False, lineterminator="\n", quoting=csv.QUOTE_NONNUMERIC)


def _read(path: Path, columns: Sequence[str], faults: list[Fault]) -> pd.DataFrame:
    rows = RowFaults(path)
    read = read_table(path, required=columns, faults=rows)
    table = pd.DataFrame(dict(read.columns), columns=list(columns), dtype=object)
    for column in NUMBERS.keys() & set(columns):
        low, high, kind = NUMBERS[column]
        numbers = number_column(read, column, rows, low=low, high=high)
        table[column] = pd.Series(numbers).fillna(0.0).astype(kind)
    faults += rows.listed()
    return table
