"""The tables of a stage: one folder of Parquet files, the same bytes for the same numbers."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path

import numpy as np
import pandas as pd

from afa.errors import ConfigError, Fault
from afa.files import atomic_folder


def write_tables(tables: Mapping[str, pd.DataFrame], folder: str | Path) -> None:
    """Write each table as `<name>.parquet`; the folder appears when all are complete."""
    with atomic_folder(folder) as temporary:
        for name, table in tables.items():
            table.to_parquet(temporary / f"{name}.parquet", index=False, compression="zstd")


def read_table(folder: str | Path, name: str) -> pd.DataFrame:
    """One table of a stage's folder."""
    path = Path(folder) / f"{name}.parquet"
    if not path.is_file():
        raise ConfigError(Fault(str(path), "no such file", f"the table {name} of a stage", "run that stage first"))
    return pd.read_parquet(path)


def gather_tables(shards: Sequence[Path], folder: str | Path) -> None:
    """Join the same-named tables of all shards, in the order given; the result does not depend on their number.

    Shards are parts of the patients or of the entities, in order; a table that names patients is sorted by them.
    """
    names = sorted(path.stem for path in shards[0].glob("*.parquet"))
    parts = {name: [read_table(shard, name) for shard in shards] for name in names}
    joined = {
        name: pd.concat([table for table in tables if len(table)] or tables[:1], ignore_index=True)
        for name, tables in parts.items()
    }
    write_tables({name: _by_patient(table) for name, table in joined.items()}, folder)


def _by_patient(table: pd.DataFrame) -> pd.DataFrame:
    """Rows by ascending patient, else as they are; a table of millions of rows in a few seconds."""
    if "patient" not in table:
        return table
    codes, _ = pd.factorize(table["patient"], sort=True)
    return table.take(np.argsort(codes, kind="stable"))
