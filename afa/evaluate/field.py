"""Read and write data sets: a patient table, a dictionary, labels, and the answers of language models.

`import_field` reads and checks a folder of files that a user has collected, and writes a folder that the workflow
reads. The answers of the language models are saved unchanged. At import, only cut points are pooled over the
language models (voters), because a table needs one set of cut points.
"""

from __future__ import annotations

import gzip
import re
import shutil
from collections.abc import Iterable, Mapping, Sequence
from itertools import compress
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import yaml
from scipy import stats

from afa.cohort.cells import by_entity, read_names
from afa.cohort.encode import Coding
from afa.cohort.encode_table import read_and_encode
from afa.cohort.table_cohort import LABELS_FILE, SOURCE_FILE, load_field, read_table_labels
from afa.elicit.consensus import POOLED_COLUMNS, answers_in_doubt, cuts_apart, pool_answers, pool_cuts
from afa.errors import AfaError, CohortError, ConfigError, Fault
from afa.io.csvfile import CsvTable, first_names, name_column, number_column, quoted, read_csv_table, read_header
from afa.io.files import atomic_folder, read_text, read_unpacked, sha256_of, write_csv
from afa.model.bundle import Bundle, load_bundle, write_bundle
from afa.model.bundle.format import display_rows
from afa.model.bundle.rates import SCOPES, Holds
from afa.model.features import DISPLAY_COLUMNS, FEATURE_COLUMNS, Features, features_of, read_features
from afa.model.study import (
    DICTIONARY_FILE,
    ENTITIES_FILE,
    FEATURES_FILE,
    NAME,
    ONE_OF_SEVERAL,
    RECORD_FOLDER,
    STUDY_FILE,
    StudySettings,
    TableSource,
    read_entities,
)

GROUPS_FILE, TABLE_FILE = "groups.csv", "values.csv.gz"
UNARY_COLUMNS = ("entity", "feature", "direction", *POOLED_COLUMNS, "confidence", "reason")
FIELD_PAIR_COLUMNS = ("entity", "feature_a", "feature_b", "direction", "scope", "confidence", "reason")
ANSWER_KEYS = ("voter", "entity", "feature", "feature_a", "feature_b")
TEXTS = (*ANSWER_KEYS, "scope", "reason")
COLUMNS = {"cuts": ("feature", "low", "high"), "unary": UNARY_COLUMNS, "pairs": FIELD_PAIR_COLUMNS}
STUDY_KEYS = {"name", "title", "holds", "voters", "table", "provenance"}
"""Keys of `study.yaml` that an imported field has."""
FIELD_FILES = {STUDY_FILE, FEATURES_FILE, ENTITIES_FILE, GROUPS_FILE, TABLE_FILE, LABELS_FILE, SOURCE_FILE}
FIELD_FILES |= {f"{RECORD_FOLDER}/{name}.csv" for name in COLUMNS}
POTENTIAL_DECIMALS = 6
"""Decimals of a potential."""
TELLING_AUROC = 0.6
"""Least AUROC for a remark that missingness reveals a label. The score of this AUROC is the number of missing
values.
"""


def import_field(
    folder: str | Path, out: str | Path, *, holds: Holds = "several", address: str | None = None
) -> list[str]:
    """Import a folder with `dictionary.csv`, `entities.csv`, `elicited/` and `values.csv[.gz]` as a data set.

    Parameters
    ----------
    folder
        `elicited/` has `cuts_<voter>.csv`, `unary_<voter>.csv` and `pairs.csv` or `pairs_<voter>.csv`. The files
        `labels.csv`, `groups.csv` and `SOURCE.md` are optional. The dictionary and the entities may have a column
        `display`, `label` or `name` with the names shown to people. Features of the kind `categorical-as-binary` with
        the same measurement are the values of one variable, so that at most one of them is +1.
    out
        Folder of the new field. The folder has the name of the field. If an error occurs, no partial folder remains.
    holds
        How many entities a patient can have, according to the question.
    address
        Address from which the original table can be downloaded. If given, table and labels are not copied, and only
        their digests are saved.

    Returns
    -------
    list of str : remarks on the values. They are also added to the field's `SOURCE.md`

    Raises
    ------
    CohortError, ConfigError : the folder is invalid. The message lists all errors of a file.

    """
    source, target = Path(folder), Path(out)
    if not re.fullmatch(NAME, target.name):
        expected = "lower-case letters, digits, - and _"
        raise ConfigError(Fault("the name of a field", quoted(target.name), expected, "choose another folder"))
    dictionary, entities, groups, record, values = _read_source_folder(source)
    shown = _display_names(source, DICTIONARY_FILE, list(entities["entity"]), dictionary.names)
    cuts = pool_cuts(record["cuts"], dictionary.names, dictionary.kinds)
    features = features_of(dictionary.to_frame().assign(low=cuts["low"].to_numpy(), high=cuts["high"].to_numpy()))
    encoded = read_and_encode(values, features, Coding("cohort"), dictionary=DICTIONARY_FILE)
    known, patients = list(entities["entity"]), list(encoded.values.index)
    labels = _read_source_labels(source / LABELS_FILE, known, patients) if (source / LABELS_FILE).is_file() else None
    remarks = [*encoded.notes, *cuts_apart(cuts)]
    if by_cohort := list(encoded.cuts.loc[encoded.cuts["by"] == "cohort", "feature"]):
        remarks.append(f"no cut point, so cut by the table itself: {first_names(by_cohort)}")
    remarks += answers_in_doubt(record["unary"], known, dictionary.names)
    remarks += _remarks(values, encoded.values.isna().sum(axis=1), labels)
    text = read_text(source / SOURCE_FILE) if (source / SOURCE_FILE).is_file() else ""
    voters = tuple(dict.fromkeys(voter for answers in record.values() for voter in answers["voter"]))
    with atomic_folder(target, FIELD_FILES, STUDY_FILE) as made:
        if address is None:
            packed = made / TABLE_FILE
            packed.write_bytes(gzip.compress(read_unpacked(values), compresslevel=9, mtime=0))
        table = TableSource(
            file=values.name if address else TABLE_FILE,
            sha256=sha256_of(values if address else made / TABLE_FILE),
            labels_sha256=sha256_of(source / LABELS_FILE) if address and labels is not None else None,
            carried=address is None,
            licence=_stated_value(text, "licence") or "not stated",
            citation=_stated_value(text, "citation"),
            address=address,
        )
        of_cuts = record["cuts"]["voter"].nunique()
        title = text.partition("\n")[0].lstrip("# ").partition(": ")[2] or target.name
        study = StudySettings(
            name=target.name,
            title=title[:1].upper() + title[1:],
            holds=holds,
            voters=voters,
            table=table,
            provenance={  # what is known about the origin of the answers
                "model": "unknown",
                "prompts": "unknown",
                "date": "unknown",
                "asked_with": "dictionary.csv and entities.csv alone",
                "cut_points": f"medians over voters ({of_cuts}), where more than half give that side",
                "answers": {name: len(answers) for name, answers in record.items()},
                "caveats": [f"voters ({len(voters)}) may be runs of one model: their agreement is then weak evidence"],
            },
        )
        document = study.model_dump(mode="json", include=STUDY_KEYS, exclude_none=True)
        dump = yaml.safe_dump(document, sort_keys=False, allow_unicode=True, width=100)
        (made / STUDY_FILE).write_text(dump, encoding="utf-8")
        write_csv(
            _add_display_column(features.to_frame(), "feature", shown), made / FEATURES_FILE, float_format="%.12g"
        )
        write_csv(_add_display_column(entities, "entity", shown), made / ENTITIES_FILE)
        if groups is not None:
            write_csv(groups, made / GROUPS_FILE)
        if table.carried and labels is not None:
            shutil.copyfile(source / LABELS_FILE, made / LABELS_FILE)
        (made / RECORD_FOLDER).mkdir()
        for name, answers in record.items():
            write_csv(answers, made / RECORD_FOLDER / f"{name}.csv", float_format="%.12g")
        head = text.rstrip() or f"# {target.name}"
        checks = "\n".join(f"- {remark}" for remark in remarks) or "- nothing to remark"
        (made / SOURCE_FILE).write_text(f"{head}\n\n## Seen when the field was made\n\n{checks}\n", encoding="utf-8")
    return remarks


def read_record(folder: str | Path) -> dict[str, pd.DataFrame]:
    """Return the recorded answers of language models in a folder, one table for each name in `COLUMNS`."""
    faults: list[Fault] = []
    record = {kind: _read_answer_file(Path(folder) / RECORD_FOLDER / f"{kind}.csv", kind, faults) for kind in COLUMNS}
    CohortError.raise_for(faults)
    return record


def build_field_bundle(folder: str | Path, out: str | Path, *, how_often: bool = False) -> Bundle:
    """Write and return the bundle made from the language models' answers in a data set's folder.

    Each answer states a direction and a confidence. A potential is the mean of direction times confidence over the
    language models. Couplings with potential 0 are omitted. If `how_often` is False, every pair of an entity and a
    feature with potential 0 is also omitted. If `how_often` is True, the bundle also contains probabilities and cut
    points (pooled over the language models), scopes, groups, and how many entities a patient can have. If `how_often`
    is True, each exclusive group (features of which at most one is +1) is treated as one variable, and the couplings of
    its features are omitted (docs/decisions.md, F13).

    Raises
    ------
    CohortError, ConfigError : the field is invalid, or no answer has a direction.

    """
    root = Path(folder)
    study, _ = load_field(root)
    faults: list[Fault] = []
    features, entities = read_features(root / FEATURES_FILE), read_entities(root / ENTITIES_FILE, faults)
    ConfigError.raise_for(faults)
    shown = _display_names(root, FEATURES_FILE, list(entities["phenotype"]), features.names)
    record = read_record(root)
    unary, pairs = record["unary"], record["pairs"]
    pooled = pool_answers(unary, features)
    said = unary.drop_duplicates(["entity", "feature"])[["entity", "feature", "reason"]]
    pooled = pooled.merge(said, on=["entity", "feature"], validate="one_to_one")
    key = ["entity", "feature_a", "feature_b"]
    pairs = pairs.assign(potential=pairs["direction"] * pairs["confidence"])
    coupled = pairs.groupby(key, sort=False).agg(
        potential=("potential", "mean"),
        confidence=("confidence", "mean"),
        evidence=("reason", "first"),
        scope=("scope", lambda said: said.mode().iloc[0]),
    )
    groups = _read_bundle_groups(root / GROUPS_FILE) if how_often and (root / GROUPS_FILE).is_file() else None
    if groups is not None:
        one_of = set(groups.loc[groups["exclusive"] != "", "feature"])
        coupled = coupled.drop(index=[row for row in coupled.index if not one_of.isdisjoint(row[1:])])
    leaning = pooled.rename(columns={"reason": "evidence"})
    if not leaning["potential"].any():
        step = "ask again, or correct the answers"
        raise ConfigError(Fault(str(root / RECORD_FOLDER), "no direction in any answer", "one or more", step))
    coupled = coupled[coupled["potential"] != 0].reset_index()
    known: dict[str, Any] = {}
    if how_often:
        known = {"table": features, "encoding": "ranges", "holds": study.holds, "groups": groups}
    else:
        leaning = leaning[leaning["potential"] != 0].drop(columns=[*POOLED_COLUMNS])
        coupled = coupled.drop(columns="scope")
    write_bundle(
        out,
        name=study.name,
        version="1",
        entities=list(entities["phenotype"]),
        features=list(features.names),
        unary=leaning.round(POTENTIAL_DECIMALS),
        pairwise=coupled.round(POTENTIAL_DECIMALS),
        display_names=shown,
        **known,
        provenance={
            **study.provenance,
            "voters": list(study.voters),
            "potentials": "mean over the voters of direction times confidence",
            "answers": {kind: len(answers) for kind, answers in record.items()},
        },
    )
    return load_bundle(out)


def _display_names(root: Path, of_features: str, entities: Sequence[str], features: Sequence[str]) -> dict[str, str]:
    """Return a mapping from entities and features to their display names.

    Display names are read from a column of `DISPLAY_COLUMNS` in each file.

    Raises
    ------
    CohortError : a file has two such columns, a display name occurs twice, or it is the name of another entity or
        feature.

    """
    faults, found = list[Fault](), dict[str, str]()
    for path, key in ((root / of_features, "feature"), (root / ENTITIES_FILE, "entity")):
        header = read_header(path)
        columns = [name for name in DISPLAY_COLUMNS if name in header]
        if len(columns) > 1:
            faults.append(Fault(str(path), f"the columns {' and '.join(columns)}", "one of them", "remove the others"))
        for column in columns[:1]:
            table = read_csv_table(path, required=(key, column), optional=[name for name in header if name])
            given = ~table.empty(column)
            texts = {name: list(compress(table.columns[name], given)) for name in (key, column)}
            table = CsvTable(table.lines[given], texts, table.faults)
            named = display_rows(table, entities, features, name=key, display=column)
            twice = [row for row, text in enumerate(texts[column]) if text in found.values()]
            table.wrong(twice, column, f"another text than in {of_features}", "choose another text")
            found |= named
            faults += table.faults.listed()
    CohortError.raise_for(faults)
    return found


def _add_display_column(table: pd.DataFrame, key: str, display_names: Mapping[str, str]) -> pd.DataFrame:
    """Return the table, with a column `display` after the names if any name has a display name."""
    if not (texts := table[key].map(display_names)).notna().any():
        return table
    table = table.copy()
    table.insert(1, DISPLAY_COLUMNS[0], texts.fillna(""))
    return table


def _read_bundle_groups(path: Path) -> pd.DataFrame:
    """Return a data set's feature groups in the format of a bundle.

    An exclusive group is named after its measurement.
    """
    groups = pd.read_csv(path, dtype=str)
    return groups.assign(exclusive=groups["measurement"].where(groups["exclusive"] == "1", ""))


def _read_source_folder(
    source: Path,
) -> tuple[Features, pd.DataFrame, pd.DataFrame | None, dict[str, pd.DataFrame], Path]:
    """Return four tables from a folder (features, entities, groups, answers), and the path of the patients' values.

    The groups are None if the folder has no file of groups. The answers are a mapping from each name in `COLUMNS` to a
    table. If files are invalid, raise one exception that lists all errors. Values and labels are read later, because
    reading them requires the cut points.
    """
    faults: list[Fault] = []
    dictionary: Features | None = None
    try:
        dictionary = read_features(source / DICTIONARY_FILE, {ONE_OF_SEVERAL: "binary"})
    except AfaError as error:
        faults += error.faults
    entities = read_entities(source / ENTITIES_FILE, faults).rename(columns={"phenotype": "entity"})
    features = () if dictionary is None else dictionary.names
    groups = None
    if features and (source / GROUPS_FILE).is_file():
        groups = _read_source_groups(source, features, faults)
    CohortError.raise_for(faults)
    known = dict.fromkeys(("feature", "feature_a", "feature_b"), (_index_by_name(features), f"of {DICTIONARY_FILE}"))
    known["entity"] = _index_by_name(entities["entity"]), f"of {ENTITIES_FILE}"
    answers = {
        kind: pd.concat(
            [_read_answer_file(path, kind, faults, known) for path in _answer_files(source, kind, faults)]
            or [pd.DataFrame(columns=["voter", *COLUMNS[kind]])],
            ignore_index=True,
        )
        for kind in COLUMNS
    }
    tables = [source / name for name in ("values.csv", "values.csv.gz") if (source / name).is_file()]
    if not tables:
        faults.append(Fault(str(source), "no values.csv and no values.csv.gz", "one of them", "add the table"))
    if faults or dictionary is None:
        raise CohortError(faults)
    return dictionary, entities[["entity", "definition"]], groups, answers, tables[0]


def _index_by_name(names: Iterable[str]) -> dict[str, int]:
    return {name: place for place, name in enumerate(names)}


def _answer_files(source: Path, kind: str, faults: list[Fault]) -> list[Path]:
    folder = source / "elicited"
    found = sorted([*folder.glob(f"{kind}.csv"), *folder.glob(f"{kind}_*.csv")])
    if not found and kind != "pairs":
        step = f"add {kind}_<voter>.csv"
        faults.append(Fault(str(folder), f"no answers {kind}*.csv", "those of at least one voter", step))
    return found


def _read_source_groups(source: Path, features: Sequence[str], faults: list[Fault]) -> pd.DataFrame:
    """Return a table with the measurement to which each feature belongs.

    The column `exclusive` is 1 if at most one feature of the measurement can be +1 in a patient. This is the case if
    all features of the measurement have the kind `ONE_OF_SEVERAL`.
    """
    table = read_csv_table(source / GROUPS_FILE, required=("feature", "measurement"), whole_rows=True, brief=True)
    places = name_column(table, "feature", _index_by_name(features), f"of {DICTIONARY_FILE}")
    table.once(places, "each feature once", "feature")
    faults += table.faults.listed()
    groups = pd.DataFrame(dict(table.columns))
    dictionary = read_csv_table(source / DICTIONARY_FILE, required=("feature", "kind"), optional=FEATURE_COLUMNS[2:])
    is_one_of = np.array([kind == ONE_OF_SEVERAL for kind in dictionary.columns["kind"]])
    exclusive = pd.Series(is_one_of[places]).groupby(groups["measurement"]).transform("all")
    return groups.assign(exclusive=exclusive.astype(int))


def _read_answer_file(
    path: Path, kind: str, faults: list[Fault], known: Mapping[str, tuple[Mapping[str, int], str]] = {}
) -> pd.DataFrame:
    """Read and check one file with answers of language models, and return the answers.

    The name of a language model is in the column `voter` or in the file name.

    Parameters
    ----------
    known : column -> (known names, the file that lists them). For a saved record it is empty, and any name is valid

    """
    columns = COLUMNS[kind] if known else ("voter", *COLUMNS[kind])
    table = read_csv_table(path, required=columns, whole_rows=True, brief=True)
    values: dict[str, Any] = {"voter": path.name.removesuffix(".csv").partition("_")[2] or "r1"} | dict(table.columns)
    keys = [name for name in columns if name in ANSWER_KEYS]
    sound = np.all([name_column(table, name, *known.get(name, ())) >= 0 for name in keys], axis=0)
    places = pd.DataFrame({name: values[name] for name in keys}).groupby(keys, sort=False).ngroup()
    table.once(np.where(sound, places, -1), "one row each", keys[-1])
    for name in (name for name in columns if name not in TEXTS):
        if kind == "cuts":
            values[name] = number_column(table, name, empty=np.nan)
        else:
            values[name] = number_column(table, name, low=-1.0 if name == "direction" else 0.0, high=1.0)
    if kind == "cuts":
        table.wrong(values["low"] > values["high"], "low", "at most high", "exchange the two", "a number above high")
    else:
        table.wrong(values["direction"] % 1 > 0, "direction", "-1, 0 or 1", "correct the direction")
        values["direction"] = np.nan_to_num(values["direction"]).astype(np.int64)
    if kind == "unary":
        for state in ("with", "without"):
            both = values[f"p_high_{state}"] + values[f"p_low_{state}"]
            found = [f"{share:g} high and low together" for share in both]
            table.wrong(both > 1 + 1e-9, f"p_high_{state}", "at most 1", "correct them", found.__getitem__)
    elif kind == "pairs":
        table.words("scope", SCOPES[1:])
    faults += table.faults.listed()
    return pd.DataFrame(values, columns=["voter", *COLUMNS[kind]])


def _remarks(path: Path, missing: pd.Series[int], labels: pd.DataFrame | None) -> list[str]:
    """Return remarks on identical rows, on patients without a label, and on missing values that predict a label."""
    lines = read_unpacked(path).decode("utf-8-sig").splitlines()[1:]  # UTF-8, as `read_and_encode` has checked
    rows = [line.partition(",")[2] for line in lines if line.strip()]
    remarks = []
    if twice := len(rows) - len(set(rows)):
        remarks.append(f"{twice:,} of {len(rows):,} rows equal an earlier one: count distinct rows, not patients")
    if labels is None:
        return [*remarks, f"no {LABELS_FILE}: nothing will say how often an answer is right"]
    if unlabelled := int(labels.isna().all(axis=1).sum()):
        remarks.append(f"{unlabelled:,} of {len(labels):,} patients have no label: they are not scored")
    for entity in labels.columns:
        label = labels[entity]
        ill, well = missing[label == 1], missing[label == 0]
        if len(ill) and len(well) and missing.any():
            area = float(stats.mannwhitneyu(ill, well).statistic) / (len(ill) * len(well))
            if max(area, 1 - area) >= TELLING_AUROC:
                sentence = f"the number of missing values alone predicts {entity} (AUROC {max(area, 1 - area):.2f})"
                remarks.append(f"{sentence}: no method should use missingness as a feature")
    return remarks


def _read_source_labels(path: Path, entities: Sequence[str], patients: Sequence[str]) -> pd.DataFrame:
    """Return the labels in a data set's folder, (patients, entities); raise an error if an entity has no column."""
    columns = read_names(path)[1:]
    if sorted(columns) != sorted(entities):
        found, expected = f"the columns {', '.join(columns)}", f"the entities {', '.join(entities)}"
        raise CohortError(Fault(str(path), found, expected, by_entity(columns)))
    return read_table_labels(path, patients)


def _stated_value(text: str, key: str) -> str:
    found = re.search(rf"^- {key}: (.+)$", text, re.MULTILINE)
    return found.group(1).strip() if found else ""
