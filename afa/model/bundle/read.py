"""Read a bundle folder.

Every error is reported with file, line and column. Notes point out entries that users should check.
"""

from __future__ import annotations

import difflib
import itertools
import re
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from afa.errors import AfaError, BundleError, ConfigError, Fault
from afa.io.csvfile import (
    CsvTable,
    RowFaults,
    first_names,
    first_of,
    is_name,
    name_column,
    read_csv_table,
    table_of_frame,
)
from afa.io.files import digest_faults
from afa.io.yamlfile import check_model, read_mapping
from afa.model.arrays import Bools, Ints
from afa.model.bundle.format import (
    ANNOTATIONS,
    HEADER,
    LARGEST_SPACE,
    OPTIONAL_COLUMNS,
    PROVENANCE_KEYS,
    REQUIRED_COLUMNS,
    REQUIRED_FILES,
    Header,
    Potentials,
    alias_rows,
    cost_rows,
    display_rows,
    feature_rows,
    group_faults,
    group_rows,
    lacking_faults,
    potential_rows,
    probability_rows_of,
)
from afa.model.bundle.model import Bundle, packed_couplings
from afa.model.bundle.priors import prior_rows
from afa.model.bundle.rates import Rates

if TYPE_CHECKING:
    import pandas as pd

IMPLICATIONS = "implies.csv"
"""The file with implications between features, which only bundles of version 0.2 could have."""
USED_IN = ("unary.csv", "pairwise.csv")
USED = f"used in {' or '.join(USED_IN)}"


@dataclass
class BundleReading:
    """The result of reading a bundle folder.

    If the folder has errors, `faults` lists them and `bundle` is None. The list `notes` contains remarks that are not
    errors.
    """

    bundle: Bundle | None = None
    faults: list[Fault] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)


def load_bundle(path: str | Path) -> Bundle:
    """Return the bundle in a folder.

    Raise a `BundleError` that lists every error if the folder is not a valid bundle.

    >>> len(load_bundle("tests/data/bundle_tiny").features)
    5
    >>> load_bundle("gone")
    Traceback (most recent call last):
    afa.errors.BundleError: gone: found nothing; expected a bundle folder with bundle.yaml. Next step: check the path.
    """
    reading = read_folder(path)
    if reading.bundle is None:
        raise BundleError(reading.faults)
    return reading.bundle


def validate_bundle(path: str | Path) -> tuple[list[Fault], list[str]]:
    """Return two lists for a bundle folder: the errors with file, line and column, and the notes.

    Notes are remarks that are not errors.

    >>> faults, notes = validate_bundle("nowhere")
    >>> [fault.next_step for fault in faults], notes
    (['check the path'], [])
    """
    reading = read_folder(path)
    return reading.faults, reading.notes


def entities_of(path: str | Path) -> int:
    """Return the number of entities in the folder of a bundle or data set.

    Return 2 if the folder cannot be read or lists no entities.
    """
    folder, names = Path(path), set()
    try:
        header = read_mapping(folder / HEADER) if (folder / HEADER).is_file() else {}
        if listed := header.get("entities"):
            return len(listed)
        for file in ("entities.csv", "unary.csv", "pairwise.csv"):
            if (folder / file).is_file():
                names |= set(read_csv_table(folder / file, required=("entity",)).columns["entity"])
    except (AfaError, OSError, TypeError):
        return 2
    return len(names) or 2


def read_folder(path: str | Path) -> BundleReading:
    """Return the bundle in a folder together with all errors and notes.

    An invalid bundle does not raise an exception.
    """
    if not isinstance(path, str | Path):
        return BundleReading(faults=[Fault("bundle", type(path).__name__, "the path of its folder", "give the path")])
    folder = Path(path)
    try:
        if folder.is_dir() and any((folder / name).exists() for name in (HEADER, *USED_IN)):
            return _read_folder(folder)
        found = f"a folder without {HEADER}" if folder.is_dir() else "a file" if folder.exists() else "nothing"
    except OSError as error:
        found = error.strerror or "an error"
    step = (
        f"make its bundle with `afa field bundle {folder}`" if (folder / "study.yaml").is_file() else "check the path"
    )
    return BundleReading(faults=[Fault(str(folder), found, f"a bundle folder with {HEADER}", step)])


def _read_folder(folder: Path) -> BundleReading:
    if (folder / IMPLICATIONS).exists():
        step = "remove the file, or use afa 0.2 (commit cab3b14), the last version that reads it"
        return BundleReading(faults=[Fault(str(folder / IMPLICATIONS), "implications", "a bundle without them", step)])
    tables, faults = dict[str, CsvTable](), list[Fault]()
    for name, required in REQUIRED_COLUMNS.items():
        optional, path = OPTIONAL_COLUMNS.get(name, ()), folder / name
        if path.exists():
            whole = name == "features.csv"
            tables[name] = read_csv_table(
                path, required=required, optional=optional, unread=("evidence",), whole_rows=whole, shown=True
            )
        elif name in REQUIRED_FILES:
            step = f"write it with the header {','.join((*required, *ANNOTATIONS))}; it may have no rows"
            faults.append(Fault(str(path), "no such file", "a CSV file", step))
    header, wrong = header_of(folder / HEADER, str(folder / HEADER))
    step = f"restore the file, or, if the edit is meant, run `afa bundle stamp {folder}`"
    changed = digest_faults(folder / HEADER, header.digests, list(REQUIRED_COLUMNS), step)
    return assembled(folder, header, [*wrong, *faults], tables, list(changed))


def header_of(document: Path | Mapping[str, Any], where: str) -> tuple[Header, list[Fault]]:
    """Return the content of bundle.yaml and its errors.

    If any key has an invalid value, the returned `Header` has an empty name, an empty version, and the defaults of all
    other keys. A name that is listed twice is an error.
    """
    try:
        header = check_model(read_mapping(document) if isinstance(document, Path) else document, Header, where)
    except ConfigError as error:
        return Header.model_construct(name="", version=""), list(error.faults)
    faults = []
    for key, names in (("entities", header.entities or []), ("features", header.features or [])):
        if key in header.model_fields_set and names == []:
            faults.append(Fault(f"{where}, key {key}", "an empty list", "at least one name", "remove the key"))
        faults += [
            Fault(f"{where}, key {key}", f"{name} {count} times", "each name once", "remove the others")
            for name, count in Counter(names).items()
            if count > 1
        ]
    return header, faults


def bundle_of_tables(
    where: str, document: Mapping[str, Any], frames: Mapping[str, pd.DataFrame], names: Mapping[str, Sequence[str]] = {}
) -> Bundle:
    """Return a bundle made from tables in memory.

    The tables are checked in the same way as the files of a bundle folder.

    Parameters
    ----------
    where : name of the source, for error messages
    document : the content of bundle.yaml
    frames : file name -> rows
    names : file name -> a label for each row, which error messages use instead of a line number

    Raises
    ------
    BundleError : lists every error

    """
    tables = {
        file: table_of_frame(
            frame,
            where if file in names else f"{where}, {file}",
            required=REQUIRED_COLUMNS[file],
            optional=OPTIONAL_COLUMNS.get(file, ()),
            names=names.get(file, ()),
        )
        for file, frame in frames.items()
    }
    read = assembled(where, *header_of(document, where), tables)
    if read.bundle is None:
        raise BundleError(read.faults)
    return read.bundle


def assembled(
    place: Path | str,
    header: Header,
    faults: Sequence[Fault],
    tables: Mapping[str, CsvTable],
    digest_faults: Sequence[Fault] = (),
) -> BundleReading:
    """Return the bundle made from the content of bundle.yaml and of the CSV files, or all errors in them.

    The parameter `tables` maps the name of each CSV file to its content.

    Parameters
    ----------
    place : the folder, or the name of the source of tables in memory
    faults, digest_faults : errors that were found before this call

    """
    listed = f"listed in {HEADER if isinstance(place, Path) else place}"
    rows = {name: _empty_table(name) for name in REQUIRED_COLUMNS} | dict(tables)
    entities, entities_from = _known_names(header.entities, rows.values(), ("entity",), listed)
    features, features_from = _known_names(
        header.features, rows.values(), ("feature", "feature_a", "feature_b"), listed
    )
    if header.features is None and "features.csv" in tables:
        features, features_from = tuple(dict.fromkeys(rows["features.csv"].columns["feature"])), "in features.csv"
    elif header.features is None:
        features = tuple(sorted(features))
    entity_index = {name: index for index, name in enumerate(entities)}
    feature_index = {name: index for index, name in enumerate(features)}

    def columns(file: str, *names: str) -> list[Ints]:
        known = {"entity": (entity_index, entities_from)}
        return [name_column(rows[file], name, *known.get(name, (feature_index, features_from))) for name in names]

    unary = potential_rows(rows["unary.csv"], columns("unary.csv", "entity", "feature"))
    pairwise = potential_rows(rows["pairwise.csv"], columns("pairwise.csv", "entity", "feature_a", "feature_b"))
    priors, shares = prior_rows(rows["priors.csv"], columns("priors.csv", "entity")[0], len(entities), header.holds)
    groups = group_rows(rows["groups.csv"], columns("groups.csv", "feature")[0], features)
    items = feature_index | {name: len(features) + i for i, (name, _) in enumerate(groups[0])}
    item = name_column(rows["costs.csv"], "feature", items, features_from)
    costs = cost_rows(rows["costs.csv"], item, len(features), groups[0])
    aliases = alias_rows(rows["aliases.csv"], columns("aliases.csv", "feature")[0], features)
    display_names = display_rows(rows["display.csv"], entities, features, aliases)
    table, table_faults = None, list[Fault]()
    if "features.csv" in tables:
        columns("features.csv", "feature")
        table, table_faults = feature_rows(rows["features.csv"], features)
    rates = Rates(
        len(features),
        table,
        measurements=groups[0],
        exclusive=groups[1],
        encoding=header.encoding,
        floor=header.probability_floor,
        holds=header.holds,
    )
    probability_rows = probability_rows_of(rows["unary.csv"], unary, rates)

    if table_faults:  # else each row with the feature would repeat the error
        return BundleReading(faults=first_of([*faults, *table_faults], place, "check again"))
    faults = [*faults, *_faults_of_files(rows), *digest_faults]
    if not faults:
        faults += group_faults(rows["groups.csv"], rows["pairwise.csv"], rates, features, pairwise)
    if not faults and "costs.csv" in tables:
        uncosted = [features[index] for index in np.flatnonzero(np.isnan(costs))]
        faults += lacking_faults(rows["costs.csv"], "cost for", uncosted, "a cost for every feature")
    if not faults and not (entities and features):
        lacking = "no entity" if not entities else "no feature"
        faults.append(Fault(str(place), lacking, "at least one", "add rows to unary.csv"))
    if len(entities) * len(features) > LARGEST_SPACE:
        found = f"{len(entities)} entities on {len(features)} features"
        step = "remove what is not used, or split the bundle"
        faults.append(Fault(str(place), found, f"at most {LARGEST_SPACE:,} pairs of the two", step))
    if faults:
        return BundleReading(faults=first_of(faults, place, "check again"))
    rates = replace(rates, probability_rows=probability_rows)
    potentials = np.zeros((len(entities), len(features)))
    potentials[unary.entity, unary.features[:, 0]] = unary.value
    bare = ~probability_rows.directed
    potentials[probability_rows.entity[bare], probability_rows.feature[bare]] = rates.directions()[bare]
    bundle = Bundle(
        name=header.name,
        version=header.version,
        entities=entities,
        features=features,
        unary=potentials,
        packed=packed_couplings(pairwise, len(entities)),
        priors=priors,
        shares=shares,
        costs=costs if "costs.csv" in tables else None,
        aliases=aliases,
        display_names=display_names,
        provenance=header.provenance,
        licence=header.licence,
        rates=rates
        if {"encoding", "probability_floor", "holds"} & header.model_fields_set
        or any((table is not None, len(probability_rows), *groups))
        else None,
    )
    notes = _notes(place, header, bundle, unary, pairwise, len(rows["priors.csv"])) if isinstance(place, Path) else ()
    return BundleReading(bundle, notes=[*notes])


def _empty_table(file: str) -> CsvTable:
    columns = (*REQUIRED_COLUMNS[file], *OPTIONAL_COLUMNS.get(file, ()))
    return CsvTable(np.zeros(0, dtype=np.int64), {column: [] for column in columns}, RowFaults(file))


def _faults_of_files(rows: Mapping[str, CsvTable]) -> list[Fault]:
    """Return the errors of all files.

    If unary.csv or pairwise.csv has errors, `unknown name` errors of the other files are omitted, because rows with
    errors may contain these names.
    """
    listed = {name: read.faults.listed() for name, read in rows.items()}
    lost = any(listed[name] for name in USED_IN)
    return [
        fault
        for name, faults in listed.items()
        for fault in faults
        if name in USED_IN or not lost or fault.expected != f"a name {USED}"
    ]


def _known_names(
    listed: Sequence[str] | None, tables: Iterable[CsvTable], columns: Sequence[str], listed_in: str
) -> tuple[tuple[str, ...], str]:
    """Return the known names, and a text that says where they are listed.

    Names are listed in bundle.yaml or, if not there, in unary.csv and pairwise.csv.
    """
    if listed is not None:
        return tuple(dict.fromkeys(listed)), listed_in
    seen: dict[str, None] = {}
    for table in tables:
        if "potential" in table.columns:
            for column in columns:
                seen.update(dict.fromkeys(table.columns.get(column, ())))
    return tuple(filter(is_name, seen)), USED


SIMILAR_NAMES = 0.9
"""Smallest similarity, from 0 to 1, at which two names are assumed to be spellings of the same name."""
MOST_COMPARED = 500
LARGE_POTENTIAL = 10
"""Potentials above this number of nats multiply the odds by more than 20,000.

They may be percentages or scores that were entered by mistake.
"""


def _notes(
    folder: Path, header: Header, bundle: Bundle, unary: Potentials, pairwise: Potentials, n_priors: int
) -> Iterator[str]:
    """Yield notes on a bundle folder, based on bundle.yaml and the rows of potentials."""
    lacking = [key for key in PROVENANCE_KEYS if key not in header.provenance]
    if lacking:
        yield f"{HEADER}: provenance does not say {', '.join(lacking)}"
    if header.licence is None:
        yield f"{HEADER}: no licence"
    if not header.digests:
        yield f"{HEADER}: no digests, so a later edit goes unseen; `afa bundle stamp {folder}` adds them"
    for name, names, listed, uses in (
        ("entities", bundle.entities, header.entities, (unary.entity, pairwise.entity)),
        ("features", bundle.features, header.features, (unary.features, pairwise.features)),
    ):
        counts = np.bincount(np.concatenate([index.ravel() for index in uses]), minlength=len(names))
        if idle := [names[index] for index in np.flatnonzero(counts == 0)]:
            yield f"{name} without any potential ({len(idle)}): {first_names(idle)}"
        for once, other in () if listed is not None else _similar_name_pairs(names, counts):
            yield (
                f"{HEADER}: no list of {name}, and {once}, in one row only, is much like {other}; "
                "correct it if the two are one"
            )
    large = np.flatnonzero(np.abs(unary.value) > LARGE_POTENTIAL)
    if large.size:
        named = [f"{bundle.entities[unary.entity[row]]} {unary.value[row]:g}" for row in large]
        beyond = f"potentials beyond {LARGE_POTENTIAL} nats, after which nothing else counts"
        yield f"unary.csv: {beyond}: {first_names(named)}"
    if n_priors and n_priors < len(bundle.entities):
        has = "log-odds 0" if bundle.shares is None else "the probability that the others leave them"
        has = "probability 1/2" if bundle.shares is not None and bundle.holds == "several" else has
        yield f"priors.csv: entities without a row have {has} ({len(bundle.entities) - n_priors})"
    if bundle.rates is not None:
        spoken = np.zeros(len(bundle.features), dtype=bool)
        for features in (bundle.rates.probability_rows.feature, unary.features, pairwise.features):
            spoken[features] = True
        yield from _notes_on_rates(bundle, bundle.rates, spoken)
    known = (HEADER, *REQUIRED_COLUMNS)
    for entry in sorted(path.name for path in folder.iterdir() if path.name not in known):
        for name in difflib.get_close_matches(entry, known, n=1, cutoff=0.8):
            yield f"{entry} is not read; if it is meant as {name}, rename it"


def _notes_on_rates(bundle: Bundle, rates: Rates, spoken: Bools) -> Iterator[str]:
    """Yield notes on the probabilities of a bundle.

    There is at most one note for each of three problems:

    - A possible value has the probability 0. This probability is replaced by the smallest allowed probability.
    - The sign of a potential contradicts the probabilities in the same row.
    - A feature has no background probabilities.

    Parameters
    ----------
    spoken : (M,) bool, True for each feature that appears in any row

    """
    probability_rows = rates.probability_rows
    can_be = rates.possible[probability_rows.feature]
    extreme = np.zeros(len(probability_rows), dtype=bool)
    for part in (probability_rows.with_entity, probability_rows.without):
        extreme |= ((part <= 0) & can_be).any(axis=1)
    named = [
        f"{bundle.entities[v]} {bundle.features[j]}"
        for v, j in zip(probability_rows.entity, probability_rows.feature, strict=True)
    ]
    if extreme.any():
        yield (
            f"unary.csv: a share of 0 or 1 for a value that can occur counts as the floor, {rates.floor:g}, or what it "
            f"leaves ({extreme.sum()}): {first_names(itertools.compress(named, extreme))}"
        )
    against = bundle.unary[probability_rows.entity, probability_rows.feature] * rates.directions() < 0
    if against.any():
        shown = first_names(itertools.compress(named, against))
        yield f"unary.csv: a potential against its probabilities ({against.sum()}): {shown}"
    uniform = spoken & ~rates.has_background
    if len(probability_rows) and uniform.any():
        names = itertools.compress(bundle.features, uniform)
        yield (
            f"features without a stated background, taken as uniform ({uniform.sum()}): {first_names(names)}; "
            "give p_low and p_high in features.csv"
        )


def _similar_name_pairs(names: Sequence[str], uses: NDArray[np.intp]) -> Iterator[tuple[str, str]]:
    """Yield pairs of names that may be spellings of the same name.

    The first name of a pair occurs only once in the bundle, so it may be a misspelling of the second name. Names that
    differ in a digit, or only in their last letter, count as different names, because many gene symbols differ in this
    way. If the bundle has more than `MOST_COMPARED` names, yield nothing.
    """
    if len(names) > MOST_COMPARED:
        return
    for once in (names[index] for index in np.flatnonzero(uses == 1).tolist()):
        digits = re.findall(r"\d", once)
        alike = [name for name in names if name[:-1] != once[:-1] and re.findall(r"\d", name) == digits]
        others = {name.casefold(): name for name in alike}
        for close in difflib.get_close_matches(once.casefold(), list(others), n=1, cutoff=SIMILAR_NAMES):
            other = others[close]
            # if each name occurs only once, the loop finds the pair twice, in both orders: yield it only once
            if uses[names.index(other)] > 1 or other > once:
                yield once, other
