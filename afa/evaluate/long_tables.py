"""Create long tables, convert them to arrays, and write folders of Parquet files with checksums.

A complete table has exactly one row for every element of an array. If a table lacks rows for some array elements, the
error message names the first of these elements. For binary tasks, a table contains one row for each round at which a
score can change; the class `Cube` fills in the rounds in between. Equal tables give identical Parquet files.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple, TypeVar

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq
from numpy.typing import NDArray

from afa.errors import AfaError, ConfigError, Fault
from afa.io.files import atomic_folder
from afa.model.arrays import Bools, Codes, Ints

T = TypeVar("T")
MOST_DICTIONARY_VALUES = 20_000
"""A column is stored without a dictionary if it has more distinct values than this and than a third of its rows."""


def joined(parts: Iterable[pd.DataFrame], columns: Iterable[str] | None = None) -> pd.DataFrame:
    """Return the concatenated parts. Parts without rows are ignored.

    If `columns` is given, the result has exactly these columns, even if it has no rows.
    """
    filled = [part for part in parts if len(part)]
    whole = pd.concat(filled, ignore_index=True) if filled else pd.DataFrame()
    return whole if columns is None else whole.reindex(columns=list(columns))


def write_tables(tables: Mapping[str, pd.DataFrame], folder: str | Path, others: Sequence[str] = ()) -> None:
    """Write each table to a folder as `<name>.parquet`. If writing fails, no incomplete folder remains.

    An existing folder is replaced only if each of its files has the name of a new file or a name in `others`.
    """
    with atomic_folder(folder, [*_parquet_file_names(tables), *others]) as temporary:
        for name, table in tables.items():
            write_parquet(table, temporary / f"{name}.parquet")


def _parquet_file_names(tables: Iterable[str]) -> list[str]:
    return [f"{name}.parquet" for name in tables]


def write_parquet(table: pd.DataFrame | pa.Table, path: Path) -> None:
    """Write a table without its index, with a checksum for every page of the file.

    Single-precision columns, and columns with few repetitions, use byte-stream-split encoding, which compresses better
    than a dictionary.
    """
    whole = pa.Table.from_pandas(table, preserve_index=False) if isinstance(table, pd.DataFrame) else table
    split = [name for name in whole.column_names if _has_few_repeats(whole[name])]
    pq.write_table(
        whole,
        path,
        compression="zstd",
        compression_level=12,
        write_page_checksum=True,
        use_dictionary=[name for name in whole.column_names if name not in split],
        column_encoding=dict.fromkeys(split, "BYTE_STREAM_SPLIT"),
    )


def _has_few_repeats(column: pa.ChunkedArray) -> bool:
    if not pa.types.is_floating(column.type):
        return False
    return column.type == pa.float32() or len(column.unique()) > max(MOST_DICTIONARY_VALUES, len(column) // 3)


def read_table(folder: str | Path, name: str, **part: Any) -> pd.DataFrame:
    """Return one table from a stage's folder.

    `part` may contain the arguments `columns` and `filters` of `pandas.read_parquet`.

    Single-precision numbers are converted to double precision. Raise a `ConfigError` if the file is damaged or missing.
    """
    table = _read_stage_table(Path(folder), name, pd.read_parquet, **part)
    return table.astype(dict.fromkeys(table.select_dtypes("float32").columns, "float64"))


class StageTables(Mapping[str, pd.DataFrame]):
    """Map the names of the tables in a stage's folder to the tables; a table is read when it is accessed."""

    def __init__(self, folder: str | Path) -> None:
        self.folder = Path(folder)

    def __getitem__(self, name: str) -> pd.DataFrame:
        return read_table(self.folder, name)

    def __iter__(self) -> Iterator[str]:
        return iter(sorted(path.stem for path in self.folder.glob("*.parquet")))

    def __len__(self) -> int:
        return len(list(iter(self)))


def gather_tables(shards: Sequence[Path], folder: str | Path, once: Sequence[str] = ()) -> None:
    """Concatenate the tables with the same name from all shards.

    The concatenated tables do not depend on the number of shards.

    Shards are consecutive parts of the patients or of the entities, in the given order. A table with patients is sorted
    by patient. Raise a `ConfigError` if a shard lacks a table that another shard contains, or if no shard contains a
    table.

    Parameters
    ----------
    once : tables of which several shards can have the same rows. Equal rows are written once

    """
    names = sorted({path.stem for shard in shards for path in shard.glob("*.parquet")})
    if not names:
        step = "remove that folder and run its stage again"
        raise ConfigError(Fault(str(shards[0]), "no tables", "the tables of a shard", step))
    with atomic_folder(folder, _parquet_file_names(names)) as temporary:
        for name in names:
            parts = [_read_stage_table(shard, name, _read_dictionary_encoded) for shard in shards]
            tables, stored = zip(*([part for part in parts if part[0].num_rows] or parts[:1]), strict=True)
            joined = _sort_by_patient(pa.concat_tables(tables, promote_options="default").unify_dictionaries())
            if name in once:
                joined = joined.take(np.flatnonzero(~joined.to_pandas().duplicated()))
            schema = pa.unify_schemas(stored, promote_options="default")
            write_parquet(joined.cast(schema), temporary / f"{name}.parquet")


def _read_dictionary_encoded(path: Path, **options: Any) -> tuple[pa.Table, pa.Schema]:
    """Return a table with dictionary-encoded texts, and the schema of the file.

    This encoding saves memory.
    """
    schema = pq.read_schema(path)
    words = [field.name for field in schema if field.type in (pa.string(), pa.large_string())]
    return pq.read_table(path, read_dictionary=words, **options), schema


def _read_stage_table(folder: Path, name: str, read: Callable[..., T], **part: Any) -> T:
    path = folder / f"{name}.parquet"
    if not path.is_file():
        raise ConfigError(Fault(str(path), "no such file", f"the table {name} of a stage", "run that stage first"))
    try:
        return read(path, page_checksum_verification=True, **part)
    except (OSError, pa.ArrowException) as error:
        found = f"a damaged table ({str(error).splitlines()[0]})"
        step = "remove it and repeat the command that made it; the workflow makes it again without being asked"
        raise ConfigError(Fault(str(path), found, "what was written there", step)) from None


def _sort_by_patient(table: pa.Table) -> pa.Table:
    """Return the rows sorted by patient. The rows of the same patient keep their order."""
    if "patient" not in table.column_names:
        return table
    patients = table["patient"].combine_chunks().dictionary_encode()
    place = np.argsort(np.argsort(np.array(patients.dictionary.to_pylist(), dtype=object)))
    return table.take(pa.array(np.argsort(place[patients.indices.to_numpy()], kind="stable")))


Singles = NDArray[np.float32]
RERUN_STAGE = "run the stage again"


def rows_of(**axes: Iterable[Any]) -> pd.DataFrame:
    """Return a table with one row for every combination of the given values.

    The last of the given columns varies fastest.

    >>> rows_of(patient=["p", "q"], t=[0, 5]).to_numpy().tolist()
    [['p', 0], ['p', 5], ['q', 0], ['q', 5]]
    """
    labels = {name: pd.Index(axis if isinstance(axis, range) else list(axis)) for name, axis in axes.items()}
    places = np.indices([len(each) for each in labels.values()]).reshape(len(labels), -1)
    return pd.DataFrame({name: labels[name].take(at) for name, at in zip(labels, places, strict=True)})


def duel_rows(entities: Sequence[str], **axes: Iterable[Any]) -> pd.DataFrame:
    """Return a table with one row for every combination of the given values and a pair of entities.

    The columns `entity_a` and `entity_b` contain the pair. The pairs are in the order of the bundle, and vary fastest.
    """
    names, (a, b) = np.array(entities, dtype=object), np.triu_indices(len(entities), 1)
    table = rows_of(**axes, pair=range(len(a)))
    pair = table.pop("pair").to_numpy()
    return table.assign(entity_a=names[a[pair]], entity_b=names[b[pair]])


def by_patient(parts: Iterable[pd.DataFrame], patients: Sequence[str]) -> pd.DataFrame:
    """Return the concatenated tables, with rows sorted in the order of `patients`."""
    whole = pd.concat(parts, ignore_index=True)
    return whole.iloc[np.argsort(axis_among(whole["patient"], patients).codes, kind="stable")].reset_index(drop=True)


class Axis(NamedTuple):
    """Store the labels of an array axis and, for each row of a table, the index of its label (-1 if unknown).

    Attributes
    ----------
    codes : (rows,) int64, index in `labels` of each row's label, or -1 if the label is missing or unknown

    """

    codes: Ints
    labels: Sequence[Any]


@dataclass(frozen=True)
class CompleteTable:
    """Store a table with exactly one row for each combination of values of its axes.

    `place`, (rows,), contains the flat array index of each row.
    """

    name: str
    table: pd.DataFrame
    axes: Mapping[str, Axis]
    place: NDArray[np.intp]

    @classmethod
    def of(cls, name: str, table: pd.DataFrame, axes: Mapping[str, Axis]) -> CompleteTable:
        """Return the complete table.

        Raise a `ConfigError` if a row has a missing or unknown label, or if an array element has no row or several
        rows. The message names the first such row or element.
        """
        for key, axis in axes.items():
            if (axis.codes < 0).any():
                where = f"{name}, row {int(np.flatnonzero(axis.codes < 0)[0])}"
                raise ConfigError(Fault(where, f"a {key} that is missing or unknown", "a known one", RERUN_STAGE))
        shape = tuple(len(axis.labels) for axis in axes.values())
        place = np.ravel_multi_index([axis.codes for axis in axes.values()], shape)
        whole = cls(name, table, axes, place)
        rows = np.bincount(place, minlength=int(np.prod(shape))).reshape(shape)
        whole.refuse(rows != 1, "none or several rows", "one row", RERUN_STAGE)
        return whole

    @property
    def shape(self) -> tuple[int, ...]:
        return tuple(len(axis.labels) for axis in self.axes.values())

    def column(self, name: str, *, may_miss: bool = False) -> Singles:
        """Return a column as an array in single precision.

        Raise an error if a value is missing. If `may_miss` is True, a missing value becomes NaN instead.
        """
        values = np.empty(len(self.place), dtype=np.float32)
        values[self.place] = self.table[name].to_numpy(dtype=np.float32, na_value=np.nan)
        values = values.reshape(self.shape)
        if not may_miss:
            self.refuse(np.isnan(values), f"no {name}", "a number", RERUN_STAGE)
        return values

    def refuse(self, broken: Bools, found: str, expected: str, step: str, error: type[AfaError] = ConfigError) -> None:
        """Raise an error if the mask `broken` is True anywhere.

        The message names the first element where `broken` is True.

        Parameters
        ----------
        broken : (...) bool, with the attribute `shape` of the table as its shape, True for elements to refuse

        """
        if broken.any():
            codes = np.unravel_index(int(broken.argmax()), self.shape)
            labels = (axis.labels[int(code)] for axis, code in zip(self.axes.values(), codes, strict=True))
            words = ("/".join(map(str, label)) if isinstance(label, tuple) else str(label) for label in labels)
            where = ", ".join(f"{key} {word}" for key, word in zip(self.axes, words, strict=True))
            raise error(Fault(f"{self.name}, {where}", found, expected, step))


def axis_among(column: pd.Series, labels: Sequence[str]) -> Axis:
    """Return the index in `labels` of each value of a column, with values compared as texts."""
    each, names = pd.factorize(column)
    places = pd.Index(labels).get_indexer(names.astype(str))
    return Axis(np.array([*places, -1], dtype=np.int64)[each], labels)


def axis_of(table: pd.DataFrame, columns: Sequence[str]) -> Axis:
    """Return the index of each row's combination of values in the given columns.

    The combinations of values are numbered in order of first appearance.
    """
    place = table.groupby(list(columns), sort=False, observed=True).ngroup().fillna(-1)
    labels = table[list(columns)].dropna().drop_duplicates()
    return Axis(np.asarray(place, dtype=np.int64), list(labels.itertuples(index=False, name=None)))


def groups(table: pd.DataFrame, *columns: str, sort: bool = False) -> Iterator[tuple[Any, pd.DataFrame]]:
    """Yield each combination of values of the given columns, with its rows.

    Rows with missing values are kept: all missing values of a column count as equal.

    The combinations of values are in order of first appearance, or sorted if `sort` is True.

    >>> table = pd.DataFrame({"name": ["b", "a", "b"], "seed": [1, None, 1]})
    >>> [(key, len(rows)) for key, rows in groups(table, "name", "seed")]
    [(('b', 1.0), 2), (('a', nan), 1)]
    """
    by = list(columns) if len(columns) > 1 else columns[0]
    whole: Any = table.groupby(by, sort=sort, dropna=False, observed=True)
    return iter(whole)


@dataclass(frozen=True)
class Cube:
    """Store scores only at the rounds at which they can change, and fill in all other rounds.

    A round t is the state after t observed features. The score of an entity can change only if a feature of the
    entity's model is observed.

    The table has P patients, E entities and R runs. A row of the table is called a step. The steps of one patient,
    entity and run (a series) are stored in adjacent rows.

    Attributes
    ----------
    shape : (P, E, R)
    t : (steps,) int64, rounds of the steps
    first : (P * E * R,) int64, index of the first step of each series
    last_round : M
    columns : name -> (steps,), the other columns of the table, with rows in the order of `t`

    """

    shape: tuple[int, int, int]
    t: Ints
    first: Ints
    last_round: int
    columns: Mapping[str, NDArray[Any]]

    @classmethod
    def of(cls, steps: pd.DataFrame, patients: list[str], entities: list[str], last_round: int) -> Cube:
        """Return the `Cube` of the table `steps`; all patients and entities must have the same number of runs."""
        patient, entity = axis_among(steps["patient"], patients).codes, axis_among(steps["entity"], entities).codes
        seed = steps["seed"].fillna(-1).to_numpy(np.int64)
        ordered = steps.iloc[np.lexsort((steps["step"], seed, entity, patient))]
        step = ordered["step"].to_numpy()
        first = np.flatnonzero(step == 0)
        runs = len(first) // (len(patients) * len(entities))
        if runs * len(patients) * len(entities) != len(first):
            raise ValueError("some patient lacks a run of some entity")
        columns = {name: ordered[name].to_numpy() for name in ordered.columns if name not in ("patient", "entity")}
        return cls(
            (len(patients), len(entities), runs), ordered["t"].to_numpy(dtype=np.int64), first, last_round, columns
        )

    def by_round(self, values: NDArray[Any]) -> NDArray[Any]:
        """Return the values at all rounds from 0 to M, (P, E, R, M + 1).

        The argument `values` contains the values at the steps. Between two steps, the value of the earlier step is
        repeated.
        """
        following = np.append(self.t[1:], 0)
        following[np.append(self.first[1:], len(self.t)) - 1] = self.last_round + 1
        return np.repeat(values, following - self.t).reshape(*self.shape, self.last_round + 1)

    def by_step(self, values: NDArray[Any]) -> NDArray[Any]:
        """Return the values by number of observations, (P, E, R, s + 1), counting only features in the entity's model.

        The largest model has s features. If an entity's model has fewer than s features, its last value is repeated.

        Parameters
        ----------
        values : (steps,) of any dtype, values at the steps

        """
        ends = np.append(self.first[1:], len(self.t))
        most = int((ends - self.first).max())
        repeats = np.ones(len(values), dtype=np.int64)
        repeats[ends - 1] += most - (ends - self.first)
        return np.repeat(values, repeats).reshape(*self.shape, most)

    def signs(self, method: str) -> Codes:
        """Return the sign of the score `method` at each step."""
        signs: Codes = np.sign(self.columns[method]).astype(np.int8)
        return signs
