"""The tables of a stage: one folder of Parquet files, the same bytes for the same numbers."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq

from afa.errors import ConfigError, Fault
from afa.files import atomic_folder


def write_tables(tables: Mapping[str, pd.DataFrame], folder: str | Path) -> None:
    """Write each table as `<name>.parquet`; the folder appears when all are complete."""
    with atomic_folder(folder) as temporary:
        for name, table in tables.items():
            table.to_parquet(temporary / f"{name}.parquet", index=False, compression="zstd")


def read_table(folder: str | Path, name: str) -> pd.DataFrame:
    """One table of a stage's folder."""
    return pd.read_parquet(_file(Path(folder), name))


def gather_tables(shards: Sequence[Path], folder: str | Path) -> None:
    """Join the same-named tables of all shards, in the order given; the result does not depend on their number.

    Shards are parts of the patients or of the entities, in order; a table that names patients is sorted by them.
    Raises `ConfigError` where a shard lacks a table that another has, or where there is none at all.
    """
    names = sorted({path.stem for shard in shards for path in shard.glob("*.parquet")})
    if not names:
        step = "remove that folder and run its stage again"
        raise ConfigError(Fault(str(shards[0]), "no tables", "the tables of a shard", step))
    with atomic_folder(folder) as temporary:
        for name in names:
            parts = [pq.read_table(_file(shard, name)) for shard in shards]
            filled = [part for part in parts if part.num_rows] or parts[:1]
            joined = _by_patient(pa.concat_tables(filled, promote_options="default"))
            pq.write_table(joined, temporary / f"{name}.parquet", compression="zstd")


def _file(folder: Path, name: str) -> Path:
    path = folder / f"{name}.parquet"
    if not path.is_file():
        raise ConfigError(Fault(str(path), "no such file", f"the table {name} of a stage", "run that stage first"))
    return path


def _by_patient(table: pa.Table) -> pa.Table:
    """Rows by ascending patient, else as they are."""
    if "patient" not in table.column_names:
        return table
    patients = table["patient"].combine_chunks().dictionary_encode()
    place = np.argsort(np.argsort(np.array(patients.dictionary.to_pylist(), dtype=object)))
    return table.take(pa.array(np.argsort(place[patients.indices.to_numpy()], kind="stable")))
