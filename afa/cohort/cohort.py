"""Define a cohort (ternary values and phenotype labels of patients), and read and write the folder of a cohort."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq
import yaml
from pyarrow import ArrowException

from afa.errors import AfaError, CohortError, Fault
from afa.io.csvfile import LONGEST_NAME, first_names, first_of, is_name, quoted, visible
from afa.io.files import LARGEST_UNPACKED, atomic_file, atomic_folder, digest_faults, largest_unpacked, sha256_of
from afa.io.yamlfile import read_mapping
from afa.model.arrays import Codes

COHORT_FEATURES_FILE = "features.parquet"
COHORT_LABELS_FILE = "labels.parquet"
CONTROLS_FILE = "controls.parquet"
CARD_FILE = "cohort.yaml"
PATIENT, THRESHOLD = "patient", "encoding threshold"
LARGEST_TABLE = 500_000_000
"""Largest number of cells of a Parquet file.

The number is limited, because few compressed bytes can contain many cells.
"""

_KINDS = ("string", "large_string", "integer", "floating", "boolean", "null", "decimal", "dictionary")
"""Arrow types allowed in a column. Text is allowed, so that an error message can name the invalid cell."""


@dataclass(frozen=True, eq=False)
class Cohort:
    """Ternary values and phenotype labels of patients, for one set of features.

    Parameters
    ----------
    values : (n_patients, n_features) int8 in {-1, 0, 1}, read-only; rows are `patients`, columns `features`
    labels : (n_patients, n_labelled_entities) Int8 in {0, 1, missing}, indexed by patient
    provenance : the content of `cohort.yaml` apart from name and digests; may be empty
    controls : (n_controls, n_features) int8 in {-1, 0, 1}, indexed by sample: healthy people, each encoded against the
        other controls; no rows if there are no controls

    """

    name: str
    features: tuple[str, ...]
    patients: tuple[str, ...]
    values: Codes
    labels: pd.DataFrame
    provenance: dict[str, Any] = field(default_factory=dict)
    controls: pd.DataFrame = field(default_factory=pd.DataFrame)

    def __post_init__(self) -> None:
        values, where = np.asarray(self.values), f"cohort {self.name}"
        if values.shape != (shape := (len(self.patients), len(self.features))):
            expected = f"{shape} of its patients and features"
            raise CohortError(Fault(f"{where}, values", f"shape {values.shape}", expected, "pass the whole table"))
        table, labels = pd.DataFrame(values, self.patients, self.features), self.labels
        CohortError.raise_for(
            _table_faults(
                table, labels, self.controls, [f"{where}, {part}" for part in ("values", "labels", "controls")]
            )
        )
        held = np.array(values, dtype=np.int8, order="C")
        held.flags.writeable = False
        object.__setattr__(self, "values", held)
        object.__setattr__(self, "features", tuple(self.features))
        object.__setattr__(self, "patients", tuple(self.patients))
        index = pd.Index(self.patients, name=PATIENT, dtype="str")
        aligned = labels.loc[list(self.patients)].astype("Int8").set_axis(index, axis=0)
        object.__setattr__(self, "labels", aligned)
        controls = self.controls if len(self.controls) else pd.DataFrame(columns=list(self.features))
        object.__setattr__(self, "controls", controls.astype(np.int8))


def label_counts(label: pd.Series[int]) -> dict[str, int]:
    """Return three numbers of patients: with label 1, with label 0 and without a label."""
    positive, negative = (int((label == value).sum()) for value in (1, 0))
    return {"positive": positive, "negative": negative, "missing": int(label.isna().sum())}


def write_cohort(cohort: Cohort, folder: str | Path) -> None:
    """Write a cohort to a folder, completely or not at all.

    The folder contains `cohort.yaml` and Parquet files. The same cohort always gives the same bytes.
    """
    values = pd.DataFrame(cohort.values, index=list(cohort.patients), columns=list(cohort.features))
    write_cohort_tables(cohort.name, values, cohort.labels, cohort.provenance, folder, controls=cohort.controls)


def write_cohort_tables(
    name: str,
    values: pd.DataFrame,
    labels: pd.DataFrame,
    provenance: Mapping[str, Any],
    folder: str | Path,
    *,
    controls: pd.DataFrame,
) -> None:
    """Write the folder of a cohort from tables indexed by patient.

    `values` may have missing cells, but no stage of the workflow accepts a cohort with missing cells.
    """
    written = {COHORT_FEATURES_FILE: values, COHORT_LABELS_FILE: labels}
    if len(controls):
        written[CONTROLS_FILE] = controls
    with atomic_folder(
        folder, [CARD_FILE, COHORT_FEATURES_FILE, COHORT_LABELS_FILE, CONTROLS_FILE], CARD_FILE
    ) as temporary:
        for file, table in written.items():
            patients = pd.Series(list(table.index), name=PATIENT, dtype="str")
            whole = pd.concat([patients, table.reset_index(drop=True)], axis="columns")
            whole.to_parquet(temporary / file, engine="pyarrow", compression="zstd", index=False)
        digests = {file: sha256_of(temporary / file) for file in written}
        card = {"name": name, **provenance, "digests": digests}
        text = yaml.safe_dump(card, sort_keys=False, allow_unicode=True, width=100)
        (temporary / CARD_FILE).write_text(text, encoding="utf-8")


def write_codes(codes: Mapping[float, pd.DataFrame], path: str | Path) -> None:
    """Write the ternary codes of one cohort at several thresholds to one Parquet table.

    The table has one row for each combination of a patient and a threshold. The columns are the patient's name, the
    features and the threshold.
    """
    parts = [
        table.rename_axis(PATIENT).reset_index().assign(**{THRESHOLD: threshold}) for threshold, table in codes.items()
    ]
    with atomic_file(path) as temporary:
        pd.concat(parts, ignore_index=True).to_parquet(temporary, engine="pyarrow", compression="zstd", index=False)


def with_code(cohort: Cohort, path: str | Path, threshold: float) -> Cohort:
    """Return a copy of the cohort whose ternary codes were computed with another encoding threshold.

    The codes are read from a table that `write_codes` wrote. If the table and the cohort do not have the same patients
    and features, a `CohortError` is raised.
    """
    whole = pd.read_parquet(path)
    table = whole[whole[THRESHOLD] == threshold].set_index(PATIENT).drop(columns=THRESHOLD)
    if tuple(table.index) != cohort.patients or tuple(table.columns) != cohort.features:
        step = "encode it for the same bundle, series and thresholds"
        found = f"at threshold {threshold:g} other patients or features"
        raise CohortError(Fault(str(path), found, "those of the cohort", step))
    code = {"encoding": {"reference": "cohort", "threshold": threshold}}
    no_controls = pd.DataFrame()
    return replace(cohort, values=table.to_numpy(), provenance=cohort.provenance | code, controls=no_controls)


def load_cohort(folder: str | Path) -> Cohort:
    """Read a cohort from its folder. All errors in the folder's files are raised as one `CohortError`.

    The only required key in `cohort.yaml` is `name`. If `cohort.yaml` contains SHA-256 digests, the Parquet files must
    match the digests. The tables of labels and features must contain the same patients, but the order of the patients
    may differ.
    """
    folder, files = Path(folder), (COHORT_FEATURES_FILE, COHORT_LABELS_FILE, CONTROLS_FILE)
    faults: list[Fault] = []
    card = _read_card(folder / CARD_FILE, faults)
    features = _read_table(folder / COHORT_FEATURES_FILE, faults)
    labels = _read_table(folder / COHORT_LABELS_FILE, faults)
    controls = _read_table(folder / CONTROLS_FILE, faults) if (folder / CONTROLS_FILE).exists() else None
    digests, step = card.pop("digests", {}), "restore the file, or remove the digests if you changed it on purpose"
    if isinstance(digests, Mapping):
        faults += digest_faults(folder / CARD_FILE, digests, files, step)
    else:
        place, found = f"{folder / CARD_FILE}, key digests", f"a {type(digests).__name__}"
        faults.append(Fault(place, found, "a mapping of file name to SHA-256", "correct or remove it"))
    faults += _table_faults(features, labels, controls, [str(folder / file) for file in files])
    if features is not None and not len(features):
        faults.append(Fault(str(folder / COHORT_FEATURES_FILE), "no patient", "at least one row", "add the patients"))
    if faults or features is None or labels is None:
        raise CohortError(first_of(faults, folder))
    patients, names = tuple(features.index), tuple(features.columns)
    held = pd.DataFrame() if controls is None else controls
    return Cohort(card.pop("name"), names, patients, features.to_numpy(dtype=np.int8), labels, card, held)


def _read_card(path: Path, faults: list[Fault]) -> dict[str, Any]:
    try:
        card = read_mapping(path)
    except AfaError as error:
        faults += error.faults
        return {}
    name = card.get("name")
    if not isinstance(name, str) or not is_name(name):
        found = "nothing" if name is None else repr(name)[:80]
        faults.append(Fault(f"{path}, key name", found, "the cohort's name", "add `name: my-cohort`"))
    return card


def _read_table(path: Path, faults: list[Fault]) -> pd.DataFrame | None:
    """Return the table of a Parquet file, indexed by its `patient` column.

    If the file cannot be read or has no complete `patient` column, an error is appended to `faults` and the result is
    None. Metadata that libraries such as pandas add to the file are ignored.
    """
    step = "write it with a `patient` column and one column per "
    step += "feature" if path.name == COHORT_FEATURES_FILE else "labelled entity (none, where nothing is known)"
    if not path.is_file():
        found = "no such file" if not path.exists() else "a folder or a device"
        faults.append(Fault(str(path), found, "a Parquet table", step))
        return None
    try:
        table = parquet_table(path, step)
    except CohortError as error:
        faults += error.faults
        return None
    if PATIENT not in table:
        found = f"the columns {', '.join(map(quoted, table.columns[:5]))} ..."
        faults.append(Fault(str(path), found, f"a column {PATIENT!r}", "name the patients in it"))
        return None
    if table[PATIENT].isna().any():
        where = f"{path}, column {PATIENT}"
        faults.append(Fault(where, "a row without a patient", "a name in every row", "add it or drop the row"))
        return None
    table = table.set_index(PATIENT)
    return table.set_axis(table.index.map(str), axis=0)


def parquet_table(
    path: Path, step: str, wanted: Collection[str] | None = None, most: int | None = None
) -> pd.DataFrame:
    """Return the columns `wanted` of a Parquet file, or all columns if `wanted` is None.

    If a column contains anything but numbers or text, a `CohortError` is raised.

    The file's metadata state the unpacked size, which must not exceed `largest_unpacked()` GB.

    Parameters
    ----------
    most : largest number of cells, by default `LARGEST_TABLE`

    """
    wrong: Fault | None = None
    most = LARGEST_TABLE if most is None else most
    try:
        with pq.ParquetFile(path) as file:
            schema, rows = file.schema_arrow, file.metadata.num_rows
            size = sum(file.metadata.row_group(i).total_byte_size for i in range(file.metadata.num_row_groups))
            columns = [column for column in schema if wanted is None or column.name in wanted]
            strange = [one for one in columns if not any(getattr(pa.types, f"is_{kind}")(one.type) for kind in _KINDS)]
            if rows * max(1, len(schema)) > most:
                found, expected = f"{rows} patients x {len(schema)} columns", f"at most {most:,} cells"
                wrong = Fault(str(path), found, expected, "split the cohort")
            elif size > largest_unpacked() * 1e9:
                found, expected = f"{size / 1e9:.3g} GB unpacked", f"at most what {LARGEST_UNPACKED} allows"
                wrong = Fault(str(path), found, expected, "set it higher if the file is the right one")
            elif twice := [name for name, count in Counter(schema.names).items() if count > 1]:
                wrong = Fault(
                    str(path), f"columns {first_names(twice)} more than once", "each column once", "rename them"
                )
            elif strange:
                where, kind = f"{path}, column {visible(strange[0].name)}", str(strange[0].type)[:60]
                wrong = Fault(where, f"values of type {kind}", "numbers or text", step)
            else:
                names = [column.name for column in columns]
                read = file.read(columns=names, use_threads=False).replace_schema_metadata(None)
                table: pd.DataFrame = read.to_pandas(use_threads=False)
                return table
    except (OSError, ValueError, LookupError, TypeError, OverflowError, ArrowException) as error:
        reason = " ".join(str(error).split())[:200] or type(error).__name__
        wrong = Fault(str(path), f"what Parquet readers refuse ({reason})", "a Parquet table", step)
    raise CohortError(wrong)


def _name_faults(names: Sequence[str] | pd.Index[str], where: str, kind: str) -> Iterator[Fault]:
    counts = Counter(names)
    strange = [name for name in counts if not is_name(str(name))]
    if strange:
        found = f"{len(strange)} times no name, such as {quoted(str(strange[0]))}"
        expected = f"names of at most {LONGEST_NAME} characters, without invisible ones or spaces around them"
        step = f"rename them; the first could be {visible(str(strange[0])) or kind}"
        yield Fault(f"{where}, {kind} names", found, expected, step)
    twice = [name for name, count in counts.items() if count > 1]
    if twice:
        shown = ", ".join(visible(str(name)) for name in twice[:5])
        yield Fault(where, f"{kind} {shown} more than once", f"each {kind} once", "remove or rename the repeated ones")


def _table_faults(
    values: pd.DataFrame | None, labels: pd.DataFrame | None, controls: pd.DataFrame | None, places: Sequence[str]
) -> Iterator[Fault]:
    """Yield the errors in the names and values of a cohort's tables."""
    controls = None if controls is None or not len(controls) else controls
    for table, where, kinds, allowed in (
        (values, places[0], ("patient", "feature"), (-1, 0, 1)),
        (labels, places[1], ("patient", "entity"), (0, 1)),
        (controls, places[2], ("control", "feature"), (-1, 0, 1)),
    ):
        if table is not None:
            yield from _name_faults(table.index, where, kinds[0])
            yield from _name_faults(table.columns, where, kinds[1])
            yield from _value_faults(table, where, allowed)
    if values is None:
        return
    if controls is not None and list(controls.columns) != list(values.columns):
        step = "build the cohort again"
        yield Fault(places[2], "other features than the patients'", "the same, in the same order", step)
    for where, some, others in ((places[0], values, labels), (places[1], labels, values)):
        if some is None or others is None:
            continue
        if len(extra := some.index[~some.index.isin(others.index)]):
            found = f"{len(extra)} patients that the other table lacks, such as {visible(str(extra[0]))}"
            yield Fault(where, found, "the same patients in both", "add their rows to the other table")


def _value_faults(table: pd.DataFrame, where: str, allowed: tuple[int, ...]) -> Iterator[Fault]:
    """Yield one error for each column that contains an invalid value. Labels may be missing."""
    blank = -1 not in allowed
    step = "encode the values against the controls first" if not blank else "use 0, 1, or leave it empty"
    expected = ", ".join(map(str, allowed)) + (" or missing" if blank else "")
    if (
        all(isinstance(kind, np.dtype) and kind.kind in "iu" for kind in table.dtypes)
        and np.isin(table.to_numpy(), allowed).all()
    ):
        return  # every cell is an allowed integer
    gaps = table.isna().to_numpy(bool)
    if not blank and gaps.any():
        row, column = np.argwhere(gaps)[0]
        place = f"{where}, patient {visible(str(table.index[row]))}, column {visible(str(table.columns[column]))}"
        found = f"nothing, as in {gaps.sum():,} cells of {gaps.any(axis=1).sum():,} of {len(table):,} patients"
        step = "keep the patients or the features that are complete: stages do not take gaps"
        yield Fault(place, found, f"{expected} in every cell", step)
        table = table.fillna(0)
    for position, name in enumerate(table.columns):
        values = table.iloc[:, position]
        number = pd.to_numeric(values.astype(object), errors="coerce") if values.dtype.kind not in "biuf" else values
        right = number.isin(allowed).to_numpy(bool)
        if blank:
            right = right | values.isna().to_numpy(bool)
        if not right.all():
            row = int(np.argmin(right))
            place = f"{where}, patient {visible(str(table.index[row]))}, column {visible(str(name))}"
            yield Fault(place, visible(str(values.iloc[row])), expected, step)
