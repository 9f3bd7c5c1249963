"""The tables of a stage: one folder of Parquet files, the same bytes for the same numbers, with checksums in them."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, TypeVar

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq

from afa.errors import ConfigError, Fault
from afa.files import atomic_folder

T = TypeVar("T")
MANY = 20_000
"""Different numbers in a column, beyond which a list of them does not pay where they are a third of all."""


def joined(parts: Iterable[pd.DataFrame], columns: Iterable[str] | None = None) -> pd.DataFrame:
    """One table of the parts that have a row; with these columns in order, where given, even if no part has a row."""
    filled = [part for part in parts if len(part)]
    whole = pd.concat(filled, ignore_index=True) if filled else pd.DataFrame()
    return whole if columns is None else whole.reindex(columns=list(columns))


def write_tables(tables: Mapping[str, pd.DataFrame], folder: str | Path, others: Sequence[str] = ()) -> None:
    """Write each table as `<name>.parquet`; the folder appears when all are complete.

    It takes the place of no other files than these and `others`.
    """
    with atomic_folder(folder, [*_files(tables), *others]) as temporary:
        for name, table in tables.items():
            write_parquet(table, temporary / f"{name}.parquet")


def _files(tables: Iterable[str]) -> list[str]:
    return [f"{name}.parquet" for name in tables]


def write_parquet(table: pd.DataFrame | pa.Table, path: Path) -> None:
    """Write a table without its index; every page of the file has a checksum.

    Numbers that hardly repeat, and those of single precision, are stored byte by byte, which packs better than a list
    of those that there are.
    """
    whole = pa.Table.from_pandas(table, preserve_index=False) if isinstance(table, pd.DataFrame) else table
    split = [name for name in whole.column_names if _hardly_repeats(whole[name])]
    pq.write_table(
        whole,
        path,
        compression="zstd",
        compression_level=12,
        write_page_checksum=True,
        use_dictionary=[name for name in whole.column_names if name not in split],
        column_encoding=dict.fromkeys(split, "BYTE_STREAM_SPLIT"),
    )


def _hardly_repeats(column: pa.ChunkedArray) -> bool:
    if not pa.types.is_floating(column.type):
        return False
    return column.type == pa.float32() or len(column.unique()) > max(MANY, len(column) // 3)


def read_table(folder: str | Path, name: str, **part: Any) -> pd.DataFrame:
    """One table of a stage's folder; `part` is `columns` and `filters` as pandas has them.

    Numbers stored in single precision are read in double. Raises `ConfigError` where it is damaged or not there.
    """
    table = _read(Path(folder), name, pd.read_parquet, **part)
    return table.astype(dict.fromkeys(table.select_dtypes("float32").columns, "float64"))


class Tables(Mapping[str, pd.DataFrame]):
    """The tables of a stage's folder by name, each read when it is asked for."""

    def __init__(self, folder: str | Path) -> None:
        self.folder = Path(folder)

    def __getitem__(self, name: str) -> pd.DataFrame:
        return read_table(self.folder, name)

    def __iter__(self) -> Iterator[str]:
        return iter(sorted(path.stem for path in self.folder.glob("*.parquet")))

    def __len__(self) -> int:
        return len(list(iter(self)))


def gather_tables(shards: Sequence[Path], folder: str | Path) -> None:
    """Join the same-named tables of all shards, in the order given; the result does not depend on their number.

    Shards are parts of the patients or of the entities, in order; a table that names patients is sorted by them.
    Raises `ConfigError` where a shard lacks a table that another has, or where there is none at all.
    """
    names = sorted({path.stem for shard in shards for path in shard.glob("*.parquet")})
    if not names:
        step = "remove that folder and run its stage again"
        raise ConfigError(Fault(str(shards[0]), "no tables", "the tables of a shard", step))
    with atomic_folder(folder, _files(names)) as temporary:
        for name in names:
            parts = [_read(shard, name, _read_coded) for shard in shards]
            tables, stored = zip(*([part for part in parts if part[0].num_rows] or parts[:1]), strict=True)
            joined = _by_patient(pa.concat_tables(tables, promote_options="default").unify_dictionaries())
            schema = pa.unify_schemas(stored, promote_options="default")
            write_parquet(joined.cast(schema), temporary / f"{name}.parquet")


def _read_coded(path: Path, **options: Any) -> tuple[pa.Table, pa.Schema]:
    """A table whose words are numbers into a list of them, for many rows share few, and its schema as stored."""
    schema = pq.read_schema(path)
    words = [field.name for field in schema if field.type in (pa.string(), pa.large_string())]
    return pq.read_table(path, read_dictionary=words, **options), schema


def _read(folder: Path, name: str, read: Callable[..., T], **part: Any) -> T:
    path = folder / f"{name}.parquet"
    if not path.is_file():
        raise ConfigError(Fault(str(path), "no such file", f"the table {name} of a stage", "run that stage first"))
    try:
        return read(path, page_checksum_verification=True, **part)
    except (OSError, pa.ArrowException) as error:
        found = f"a damaged table ({str(error).splitlines()[0]})"
        step = "remove it and give the command again that made it; the workflow makes it anew by itself"
        raise ConfigError(Fault(str(path), found, "what was written there", step)) from None


def _by_patient(table: pa.Table) -> pa.Table:
    """Rows by ascending patient, else as they are."""
    if "patient" not in table.column_names:
        return table
    patients = table["patient"].combine_chunks().dictionary_encode()
    place = np.argsort(np.argsort(np.array(patients.dictionary.to_pylist(), dtype=object)))
    return table.take(pa.array(np.argsort(place[patients.indices.to_numpy()], kind="stable")))
