"""Build a cohort from a plain table: read the settings, find the files, and write the folder of the cohort."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any, Literal, Self

import numpy as np
import pandas as pd
import yaml
from pydantic import Field, model_validator

from afa.cohort.archive import read_listed
from afa.cohort.cells import labels_from_cells, read_cells, read_names
from afa.cohort.codes import without_codes
from afa.cohort.cohort import PATIENT, label_counts, write_cohort_tables
from afa.cohort.config import CohortConfig, load_cohort_config
from afa.cohort.encode import CODE_ROUNDING, Coding, least_controls
from afa.cohort.encode_table import Encoded, read_and_encode
from afa.errors import AfaError, CohortError, ConfigError, Fault
from afa.io.csvfile import visible
from afa.io.files import sha256_of, write_text
from afa.io.yamlfile import Strict, check_model, load_model, read_mapping
from afa.model.features import features_of, read_features
from afa.model.study import FEATURES_FILE, NAME, SHA256, STUDY_FILE, StudySettings, TableSource

LABELS_FILE, SOURCE_FILE = "labels.csv", "SOURCE.md"
"""Further files in the folder of a data set."""


class Controls(Strict):
    """Definition of the controls: the rows of the table with `value` in `column`."""

    column: str = Field(min_length=1)
    value: str = Field(min_length=1)


class TableCohort(Strict):
    """Content of a cohort file in `config/cohorts` that has the line `origin: table`.

    Paths are relative to the working directory of the run.
    """

    name: str = Field(pattern=NAME)
    title: str
    origin: Literal["table"]
    table: Path = Field(
        description="table with names of patients, then a column for each feature: .csv, .tsv (also .gz) or .parquet"
    )
    features: Path = Field(description="features.csv, with kind, unit and cut points of each feature")
    labels: Path | None = Field(
        None, description="table with names of patients, then a column for each entity: 0, 1 or empty"
    )
    controls: Controls | None = None
    encoding: Coding = Field(Coding(), description="encoding of features without cut points")
    address: str | None = Field(None, description="address of a table that the project does not contain")
    sha256: str | None = Field(None, pattern=SHA256, description="SHA-256 of the table")
    labels_sha256: str | None = Field(None, pattern=SHA256, description="SHA-256 of the labels")

    @model_validator(mode="after")
    def _check_controls_and_address(self) -> Self:
        if self.encoding.reference == "controls" and self.controls is None:
            raise ValueError("the reference controls needs `controls`: a column and the value of its controls")
        if self.address is not None and self.sha256 is None:
            raise ValueError("an address needs `sha256`, by which what comes from there is known")
        return self


@dataclass(frozen=True)
class TableFiles:
    """The paths of a cohort's files; `labels` may be None."""

    table: Path
    features: Path
    labels: Path | None

    @property
    def digests(self) -> list[dict[str, str]]:
        """Return the kind of content, the name and the SHA-256 of each file of the cohort."""
        given = (("values", self.table), ("features", self.features), ("labels", self.labels))
        return [{"content": what, "file": path.name, "sha256": sha256_of(path)} for what, path in given if path]

    def write(self, path: str | Path) -> None:
        """Write the paths and digests of the files as JSON."""
        write_text(path, json.dumps({**asdict(self), "files": self.digests}, indent=2, default=str) + "\n")

    @classmethod
    def read(cls, path: str | Path) -> TableFiles:
        """Return the paths of the files that `write` saved."""
        step = "give `afa cohort fetch` again"
        return read_listed(cls, path, "what `afa cohort fetch` wrote of a table", step)


def load_field(folder: str | Path) -> tuple[StudySettings, TableSource]:
    """Return the settings in a data set's `study.yaml`, and the settings of the data set's table.

    All errors in the file are raised as one `ConfigError`.
    """
    path = Path(folder) / STUDY_FILE
    study = load_model(path, StudySettings)
    if study.table is None:
        step = "add it, or make the field with `afa field import`"
        raise ConfigError(Fault(f"{path}, key table", "nothing", "where the values of the field are", step))
    return study, study.table


def field_cohort(folder: str | Path) -> TableCohort:
    """Return the cohort settings of a data set.

    The cohort is the data set's table, encoded with the ranges in `features.csv`. Labels are included if the data set
    has labels.
    """
    root = Path(folder)
    study, table = load_field(root)
    labels = root / LABELS_FILE
    return TableCohort(
        name=study.name,
        title=study.title,
        origin="table",
        table=root / table.file,
        features=root / FEATURES_FILE,
        labels=labels if labels.is_file() or table.labels_sha256 is not None else None,
        address=None if table.carried else table.address or f"its source, see {root / SOURCE_FILE}",
        sha256=table.sha256,
        labels_sha256=table.labels_sha256,
    )


def load_cohort_file(path: str | Path) -> CohortConfig | TableCohort:
    """Read a cohort file of `config/cohorts`, or the `study.yaml` of a data set.

    All errors in the file are raised as one `ConfigError`.
    """
    if Path(path).name == STUDY_FILE:
        return field_cohort(Path(path).parent)
    if read_mapping(path).get("origin") == "table":
        return load_model(path, TableCohort)
    return load_cohort_config(path)


def find_table(config: TableCohort, mirror: str | Path | None = None) -> TableFiles:
    """Return the paths of a cohort's files.

    If a file does not exist at its path but its SHA-256 is known, the file is searched for in `<mirror>/<name>/`.

    Raises
    ------
    CohortError : a file is missing or does not match its digest.

    """
    faults: list[Fault] = []
    found: dict[str, Path] = {}
    given = {"table": (config.table, config.sha256), "labels": (config.labels, config.labels_sha256)}
    for key, (path, digest) in {**given, "features": (config.features, None)}.items():
        if path is None:
            continue
        elsewhere = path if mirror is None or digest is None else Path(mirror) / config.name / path.name
        found[key] = path if path.is_file() else elsewhere
        if not found[key].is_file():
            step = "correct the path"
            if digest is not None and config.address is not None:
                step = f"fetch it from {config.address}, or name a folder with {config.name}/{path.name}"
            there = "a folder or a device" if path.exists() else "no such file"
            faults.append(Fault(f"cohort {config.name}, key {key}", f"{there} as {path}", f"the {key}", step))
        elif digest is not None and (sum_ := sha256_of(found[key])) != digest:
            step = "restore or fetch it again, or correct the digest if it was changed on purpose"
            faults.append(Fault(str(found[key]), f"SHA-256 {sum_}", digest, step))
    CohortError.raise_for(faults)
    return TableFiles(found["table"], found["features"], found.get("labels"))


def no_complete_patient(config: TableCohort, mirror: str | Path | None = None) -> bool:
    """Return True if no patient has values of all features.

    If the table cannot be read, return False, because a later job reports the error.
    """
    try:
        files = find_table(config, mirror)
        features = read_features(files.features)
        names = features.names
        columns = without_codes(read_cells(files.table, "feature", names), features).columns
        return not any(map(all, zip(*(map(str.strip, columns[name]) for name in names), strict=True)))
    except (AfaError, KeyError):
        return False


def encode_cohort(
    config: TableCohort,
    files: TableFiles,
    *,
    features: Sequence[str] | None = None,
    coding: Coding | None = None,
    ranges: bool = True,
) -> Encoded:
    """Encode the table of a cohort.

    Parameters
    ----------
    features : names of the features to encode, in order; by default all features in `features.csv`
    coding : encoding settings; by default the settings in `config`
    ranges : False to ignore the ranges in `features.csv`; cut points of non-binary features then come from the
        reference

    """
    dictionary = read_features(files.features)
    if features is not None:
        if lacking := [name for name in features if name not in dictionary.names]:
            found = f"no row for {len(lacking)} features of the bundle: {', '.join(map(visible, lacking[:5]))}"
            step = "add them, or take a bundle of these features"
            raise CohortError(Fault(str(files.features), found, "a row for each feature of the bundle", step))
        dictionary = dictionary.chosen(list(features))
    if not ranges:
        dictionary = features_of(dictionary.to_frame().assign(low=np.nan, high=np.nan, p_low=np.nan, p_high=np.nan))
    chosen = coding or config.encoding
    controls = None if config.controls is None else (config.controls.column, config.controls.value)
    reference = chosen.reference or ("controls" if controls else None)
    return read_and_encode(files.table, dictionary, replace(chosen, reference=reference), controls)


def read_table_labels(path: Path, patients: Sequence[str], others: Sequence[str] = ()) -> pd.DataFrame:
    """Return the labels (0, 1 or missing) in a file, as an Int8 table of patients x entities.

    A patient without a row in the file has no label.

    Parameters
    ----------
    others : further names allowed in the file, such as controls

    Raises
    ------
    CohortError : all errors in the file, including patients that the table of values lacks.

    """
    entities = read_names(path)[1:]
    cells = read_cells(path, "entity", entities)
    table, known = labels_from_cells(cells, entities), {*patients, *others}
    unknown = [row for row, name in enumerate(cells.names) if name not in known]
    step = "name the patients as in the table of values, or remove the rows"
    cells.table.wrong(unknown, cells.first, "patients of the table of values", step)
    CohortError.raise_for(cells.table.faults.listed())
    return table.reindex(list(patients)).astype("Int8")


def build_table_cohort(
    config: TableCohort,
    files: TableFiles,
    encoded: Encoded,
    entities: Sequence[str],
    out: str | Path,
    *,
    complete: bool = False,
) -> int:
    """Write the folder of a cohort, and return the number of patients.

    Labels of entities that the bundle lacks are excluded, and these entities are listed in `cohort.yaml`.

    Parameters
    ----------
    complete : exclude patients with a missing value

    Raises
    ------
    CohortError : `complete` is True, and every patient has a missing value.

    """
    gaps = encoded.values.isna().any(axis=1)
    if complete and gaps.all():
        found = f"a missing value in each of {len(gaps):,} patients"
        expected, step = "patients of whom everything was measured", "leave out the features that are seldom measured"
        raise CohortError(Fault(str(files.table), found, expected, step))
    everybody = list(encoded.values.index)
    if complete:
        encoded = replace(encoded, values=encoded.values[~gaps])
    patients = list(encoded.values.index)
    labels = pd.DataFrame(index=pd.Index(patients, name=PATIENT))
    described: dict[str, dict[str, object]] = {}
    if files.labels is not None:
        read = read_table_labels(files.labels, everybody, list(encoded.controls.index)).loc[patients]
        labels = read[[name for name in entities if name in read.columns]]
        for name in labels.columns:
            described[name] = {"rule": f"column {name} of {files.labels.name}", **label_counts(labels[name])}
        described |= {
            name: {"unused": "the bundle has no such entity"} for name in read.columns if name not in entities
        }
    cuts = encoded.cuts
    reference = next(iter(sorted({*cuts["by"]} - {"range", "binary"})), "ranges")
    coding: dict[str, Any] = {"threshold": config.encoding.threshold} if reference == "cohort" else {}
    if reference == "controls":
        coding = {"test": config.encoding.test, "level": config.encoding.level}
        others = int(encoded.controls[cuts.loc[cuts["by"] == "controls", "feature"]].notna().sum().min()) - 1
        if config.encoding.test == "empirical" and others < least_controls(config.encoding.level):
            coding["test_of_controls"] = "t"
    # If all controls have the same value, the cut points differ from this value by a margin for rounding (`reach`).
    margin = np.where(cuts["by"] == "controls", 2 * CODE_ROUNDING * cuts[["low", "high"]].abs().max(axis=1), 0.0)
    same = (cuts["high"] - cuts["low"]) / 2 <= margin
    flat = cuts[cuts["by"].isin(["cohort", "controls"]) & (cuts["low"].isna() | same)]
    total = max(1, int(cuts[["down", "zero", "up"]].to_numpy().sum()))
    card: dict[str, Any] = {
        "title": config.title,
        "origin": "table",
        "files": files.digests,
        "encoding": {"reference": reference} | coding,
        "controls": len(encoded.controls),
        "controls_with_gaps": int(encoded.controls.isna().any(axis=1).sum()),
        "patients": len(encoded.values),
        "ignored_columns": list(encoded.ignored),
        "dropped_features": [],
        "genes_without_spread": [str(name) for name in flat["feature"]],
        "labels": described,
        "shares": {name: round(float(cuts[name].sum()) / total, 6) for name in ("down", "zero", "up")},
        "missing": cuts[cuts["missing"] > 0].set_index("feature")["missing"].to_dict(),
        "all_zero_patients": int((encoded.values.fillna(0) == 0).all(axis=1).sum()),
        **({"incomplete_patients_left_out": int(gaps.sum())} if complete else {}),
        **({"doubtful_values": list(encoded.doubts)} if encoded.doubts else {}),
    }
    held = encoded.controls.dropna().astype(np.int8).rename_axis(None)
    write_cohort_tables(config.name, encoded.values, labels, card, out, controls=held)
    return len(patients)


def write_table_cohort(
    name: str, folder: Path, *, table: Path, features: Path, labels: Path | None, controls: tuple[str, str] | None
) -> tuple[Path, Encoded]:
    """Check that a table can be encoded and labelled, and write its cohort file `<folder>/<name>.yaml`.

    Features without a range are encoded against the controls, or against the cohort if there are no controls.
    """
    path = folder / f"{name}.yaml"
    if path.exists():
        raise ConfigError(Fault(str(path), "a file", "no such file yet", "choose another name, or edit that file"))
    document: dict[str, Any] = {"name": name, "title": f"Patients of {table.name}", "origin": "table"}
    document |= {"table": str(table), "features": str(features)}
    document |= {"labels": str(labels)} if labels else {}
    document |= {"controls": {"column": controls[0], "value": controls[1]}} if controls else {}
    if not read_features(features).has_range.all():
        document["encoding"] = {"reference": "cohort" if controls is None else "controls"}
    config = check_model(document, TableCohort, f"cohort {name}")
    files = find_table(config)
    encoded = encode_cohort(config, files)
    if labels is not None:
        read_table_labels(labels, list(encoded.values.index), list(encoded.controls.index))
    write_text(path, yaml.safe_dump(document, sort_keys=False, allow_unicode=True, width=100))
    return path, encoded
