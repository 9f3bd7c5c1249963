"""A table of patients: what stands in it, and how it is brought onto the features of a bundle."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import NamedTuple

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from afa.bundle import Bundle
from afa.cohort.cohort import CARD_FILE, FEATURES_FILE, LABELS_FILE, PATIENT, Cohort, load_cohort
from afa.cohort.tables import Cells, read_cells
from afa.csvfile import number, quoted, suggestion, visible
from afa.errors import CohortError, Fault
from afa.files import sha256_of

SHOWN = 20
"""Faulty cells, and names in a note, that are listed one by one; the others are counted."""


class Given(NamedTuple):
    """What was read, on one set of features: `bundle` and `cohort` are aligned, patients by name.

    measured : (P, M) which values of the cohort were; the others are 0 there. digests : SHA-256 by file name, that of a
    file of labels by `labels/` and its name. ignored : columns that the bundle does not know. dropped : features of the
    bundle that the table lacks. left_out : labelled patients that the table lacks.
    """

    bundle: Bundle
    cohort: Cohort
    measured: NDArray[np.bool_]
    digests: Mapping[str, str]
    ignored: Sequence[str]
    dropped: Sequence[str]
    left_out: Sequence[str] = ()


def read_patients(path: Path, bundle: Bundle, *, drop_missing: bool = False) -> Given:
    """Patients of a CSV or Parquet table, or of a cohort folder, on the features of a bundle.

    In a table the first column names the patients; each other column that is a feature of the bundle holds -1, 0, 1 or
    nothing, where it was not measured, and the rest is ignored. Features that the table lacks are an error, unless
    `drop_missing`, or the cohort folder says that it dropped them: then they leave the bundle too (decisions.md D3).

    Raises
    ------
    CohortError : every fault by file, row and column.

    """
    if path.is_dir():
        cohort = load_cohort(path)
        gaps = np.zeros(cohort.values.shape, dtype=np.bool_)
        known = set(bundle.features)
        unknown = [name for name in cohort.features if name not in known]
        told = set(cohort.provenance.get("dropped_features") or ())
        files = [path / name for name in (FEATURES_FILE, LABELS_FILE, CARD_FILE)]
    else:
        cells = read_cells(path, "feature", bundle.features)
        values = _numbers(path, cells, {-1.0: -1, 0.0: 0, 1.0: 1}, "-1, 0, 1 or nothing")
        names = tuple(cells.names)
        nothing = pd.DataFrame(index=pd.Index(names, name=PATIENT))
        gaps = np.isnan(values)
        cohort = Cohort(path.stem, tuple(cells.columns), names, np.where(gaps, 0, values).astype(np.int8), nothing)
        unknown, told, files = list(cells.unknown), set[str](), [path]
    have = set(cohort.features)
    missing = [name for name in bundle.features if name not in have]
    unsaid = [name for name in missing if name not in told]
    if len(missing) == len(bundle.features) or (unsaid and not drop_missing):
        raise CohortError(_missing_fault(path, bundle, missing, unknown, drop_missing))
    model = bundle.restrict([name for name in bundle.features if name in have])
    digests = {file.name: sha256_of(file) for file in files}
    by_name = np.argsort(np.array(cohort.patients, dtype=object))
    columns = [cohort.features.index(name) for name in model.features]
    measured = ~gaps[by_name][:, columns]
    return Given(model, _ordered(cohort, model.features), measured, digests, unknown, missing)


def read_labels(path: Path, given: Given) -> Given:
    """The same with the labels of a CSV file: the first column names patients, the others are entities, 0, 1 or empty.

    Columns that are no entity are ignored; a patient without a row has no label.
    """
    cells = read_cells(path, "entity", given.bundle.entities)
    if not cells.columns:
        step = "name the columns as `afa bundle show` does"
        raise CohortError(Fault(str(path), "no column of an entity", "at least one, with 0, 1 or nothing", step))
    values = _numbers(path, cells, {0.0: 0, 1.0: 1}, "0, 1 or nothing")
    table = pd.DataFrame(values, index=pd.Index(cells.names, name=PATIENT), columns=list(cells.columns))
    known = set(given.cohort.patients)
    left_out = [name for name in cells.names if name not in known]
    if len(left_out) == len(cells.names):
        found = f"none of the cohort's patients, but {', '.join(map(visible, left_out[:3]))}"
        raise CohortError(Fault(str(path), found, "patients of the cohort", "name them as the cohort does"))
    labels = table.reindex(list(given.cohort.patients)).astype("Int8")
    return given._replace(
        cohort=replace(given.cohort, labels=labels),
        digests={**given.digests, f"labels/{path.name}": sha256_of(path)},
        ignored=[*given.ignored, *cells.unknown],
        left_out=left_out,
    )


def _numbers(path: Path, cells: Cells, allowed: Mapping[float, int], expected: str) -> NDArray[np.float64]:
    """(P, columns) what the cells say, NaN where nothing is said."""
    values = np.empty((len(cells.names), len(cells.columns)))
    wrong = np.zeros(values.shape, dtype=np.bool_)
    for place, texts in enumerate(cells.columns.values()):
        read = {text: allowed.get(number(text), np.nan) for text in set(texts)}
        values[:, place] = [read[text] for text in texts]
        wrong[:, place] = [bool(text) and bool(np.isnan(read[text])) for text in texts]
    faults = list(_cell_faults(path, cells, wrong, expected))
    if faults:
        raise CohortError(faults)
    return values


def _cell_faults(path: Path, cells: Cells, wrong: NDArray[np.bool_], expected: str) -> Iterator[Fault]:
    """The first wrong cells in the order of rows, and how many more there are."""
    names = list(cells.columns)
    places = np.argwhere(wrong)
    for row, column in places[:SHOWN]:
        text = cells.columns[names[column]][row]
        where = f"{path}, {cells.rows[row]} (patient {visible(cells.names[row])}), column {visible(names[column])}"
        yield Fault(where, quoted(text), expected, "encode it first, with `afa encode`")
    if len(places) > SHOWN:
        yield Fault(str(path), f"{len(places) - SHOWN} more such cells", expected, "mend them in the same way")


def _missing_fault(path: Path, bundle: Bundle, missing: Sequence[str], unknown: Sequence[str], drop: bool) -> Fault:
    """Which features the table lacks, with a column that may be the first of them under another name."""
    found = f"no column for {len(missing)} of {len(bundle.features)} features: {', '.join(missing[:5])}"
    if len(missing) > 5:
        found += ", ..."
    other_names = {alias: name for name in missing for alias in bundle.aliases.get(name, ())}
    named = next((name for name in unknown if name in other_names), None)
    if named is not None:
        step = f"rename the column {visible(named)} to {other_names[named]}"
    else:
        close = suggestion(missing[0], unknown)
        step = f"for {missing[0]}, {close}" if close.startswith("did you mean") else "add them"
    if len(missing) < len(bundle.features) and not drop:
        step += ", or leave what is missing out of the bundle too with --drop-missing"
    return Fault(str(path), found, "every feature of the bundle", step)


def _ordered(cohort: Cohort, features: Sequence[str]) -> Cohort:
    """The cohort with patients by name and features in this order."""
    patients = tuple(sorted(cohort.patients))
    values = pd.DataFrame(cohort.values, index=list(cohort.patients), columns=list(cohort.features))
    ordered = values.loc[list(patients), list(features)].to_numpy(dtype=np.int8)
    labels = cohort.labels.loc[list(patients)]
    return Cohort(cohort.name, tuple(features), patients, ordered, labels, cohort.provenance)
