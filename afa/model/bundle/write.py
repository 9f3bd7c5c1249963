"""Write a bundle folder in canonical form, update the digests in `bundle.yaml`, or create a new bundle without rows."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import yaml

from afa.errors import BundleError, ConfigError, Fault
from afa.io.files import atomic_folder, write_text
from afa.io.yamlfile import read_mapping
from afa.model.arrays import Floats
from afa.model.bundle.format import (
    ANNOTATIONS,
    COUNT_COLUMNS,
    HEADER,
    OPTIONAL_COLUMNS,
    PROBABILITY_COLUMNS,
    REQUIRED_COLUMNS,
    REQUIRED_FILES,
    VALUE_DOMAIN,
    digests_of,
)
from afa.model.bundle.model import Bundle
from afa.model.bundle.priors import signed
from afa.model.bundle.rates import NO_ROWS, SCOPES
from afa.model.bundle.read import bundle_of_tables, read_folder
from afa.model.features import Features


def write_bundle(
    path: str | Path,
    *,
    name: str,
    version: str,
    entities: Sequence[str],
    features: Sequence[str],
    unary: pd.DataFrame,
    pairwise: pd.DataFrame,
    priors: Mapping[str, float] | None = None,
    probabilities: Mapping[str, float] | None = None,
    costs: Mapping[str, float] | None = None,
    aliases: Mapping[str, Sequence[str]] | None = None,
    display_names: Mapping[str, str] | None = None,
    provenance: Mapping[str, Any] | None = None,
    licence: str | None = None,
    table: Features | None = None,
    groups: pd.DataFrame | None = None,
    encoding: str | None = None,
    probability_floor: float | None = None,
    holds: str | None = None,
) -> None:
    """Write a bundle folder in canonical form.

    The rows of all files are in the order of `entities` and `features`. `bundle.yaml` contains the digests of the other
    files. If the content is the same, the written bytes are the same. If an error is raised, nothing is written.

    Parameters
    ----------
    unary, pairwise : tables with the columns of unary.csv and pairwise.csv; only the columns of names and the potential
        are required, and optional columns without any value are not written
    priors, probabilities : entity -> log-odds, or entity -> probability; at most one of the two
    costs : feature or measurement -> cost
    aliases : feature -> other names
    display_names : entity or feature -> the name that people see
    table : the content of features.csv
    groups : a table with the columns of groups.csv
    name, version, licence : texts for bundle.yaml
    provenance : a mapping for bundle.yaml, with any keys
    encoding : `ranges`, `controls` or `cohort`
    probability_floor : smallest probability of a possible value, above 0
    holds : how many entities a patient can have: `several`, `one` or `one or none`

    Raises
    ------
    BundleError : the result would not be a valid bundle
    ConfigError : `path` exists and is not a bundle, or contains other files

    """
    tables = {"unary.csv": unary, "pairwise.csv": pairwise}
    for file, columns, values in (
        ("priors.csv", ("entity", "log_odds"), None if priors is None else signed(priors)),
        ("priors.csv", ("entity", "probability"), probabilities),
        ("costs.csv", ("feature", "cost"), costs),
        ("display.csv", ("name", "display"), display_names or None),
    ):
        if values is not None:
            tables[file] = pd.DataFrame(list(values.items()), columns=list(columns))
    if aliases:
        pairs = [(feature, alias) for feature, others in aliases.items() for alias in others]
        tables["aliases.csv"] = pd.DataFrame(pairs, columns=["feature", "alias"])
    if table is not None:
        tables["features.csv"] = table.to_frame()
    if groups is not None and len(groups):
        tables["groups.csv"] = groups
    header: dict[str, Any] = {"name": name, "version": version}
    said = {"licence": licence, "encoding": encoding, "probability_floor": probability_floor, "holds": holds}
    header |= {key: value for key, value in said.items() if value is not None}
    header |= {"provenance": dict(provenance)} if provenance else {}
    header |= {"value_domain": VALUE_DOMAIN, "entities": list(entities), "features": list(features)}
    with atomic_folder(path, [HEADER, *REQUIRED_COLUMNS], HEADER) as folder:
        for file, rows in tables.items():
            written = _canonical(rows, file, entities, features)
            written.to_csv(folder / file, index=False, lineterminator="\n", encoding="utf-8")
        (folder / HEADER).write_text(_yaml_text(header | {"digests": digests_of(folder)}), encoding="utf-8")
        BundleError.raise_for(_renamed(fault, str(folder), str(path)) for fault in read_folder(folder).faults)


def save_bundle(bundle: Bundle, path: str | Path) -> None:
    """Write a `Bundle` as a folder.

    The columns `confidence` and `evidence` are empty, because a `Bundle` does not contain them.
    """
    names, space, rates = np.array(bundle.entities, dtype=object), np.array(bundle.features, dtype=object), bundle.rates
    probability_rows = NO_ROWS if rates is None else rates.probability_rows
    written = bundle.unary != 0
    written[probability_rows.entity, probability_rows.feature] = True
    entity, feature = np.nonzero(written)
    unary = pd.DataFrame(
        {"entity": names[entity], "feature": space[feature], "potential": bundle.unary[entity, feature]}
    )
    rows = np.searchsorted(
        entity * len(space) + feature, probability_rows.entity * len(space) + probability_rows.feature
    )
    unary.loc[rows[~probability_rows.directed], "potential"] = np.nan
    for name, side, part in zip(
        PROBABILITY_COLUMNS,
        (0, 2, 0, 2),
        (probability_rows.with_entity,) * 2 + (probability_rows.without,) * 2,
        strict=True,
    ):
        unary[name] = np.nan
        unary.loc[rows, name] = part[:, side]
    if probability_rows.patients is not None:
        for name, counts in zip(COUNT_COLUMNS, probability_rows.patients.T, strict=True):
            unary[name] = pd.Series(counts, index=rows).reindex(unary.index)
    pairwise = pd.DataFrame(
        {
            "entity": names[bundle.packed.owner],
            "feature_a": space[bundle.packed.row],
            "feature_b": space[bundle.packed.column],
            "potential": bundle.packed.value,
        }
    )
    if bundle.packed.scope is not None:
        pairwise["scope"] = [SCOPES[code] for code in bundle.packed.scope]

    def by_entity(values: Floats) -> dict[str, float]:
        return dict(zip(bundle.entities, values.tolist(), strict=True))

    beside: dict[str, Any] = {}
    if rates is not None:
        members: dict[str, dict[str, str]] = {}
        for column, groups in (("measurement", rates.measurements), ("exclusive", rates.exclusive)):
            for name, group in groups:
                for j in group:
                    members.setdefault(bundle.features[j], {"feature": bundle.features[j]})[column] = name
        beside = {"table": rates.table, "encoding": rates.encoding, "probability_floor": rates.floor}
        beside["groups"] = pd.DataFrame(members.values(), columns=["feature", "measurement", "exclusive"])
        beside["holds"] = rates.holds
    write_bundle(
        path,
        name=bundle.name,
        version=bundle.version,
        entities=bundle.entities,
        features=bundle.features,
        unary=unary,
        pairwise=pairwise,
        priors=by_entity(bundle.priors) if bundle.shares is None and bundle.priors.any() else None,
        probabilities=None if bundle.shares is None else by_entity(bundle.shares),
        costs=None if bundle.costs is None else dict(zip(bundle.features, bundle.costs, strict=True)),
        aliases=bundle.aliases,
        display_names=bundle.display_names,
        provenance=bundle.provenance,
        licence=bundle.licence,
        **beside,
    )


def stamp_bundle(path: str | Path) -> None:
    """Recompute the digests in `bundle.yaml` from the current files, and leave all other lines unchanged.

    Raises
    ------
    BundleError : `bundle.yaml` is missing or cannot be read

    """
    header = Path(path) / HEADER
    try:
        document = read_mapping(header)
    except ConfigError as error:
        raise BundleError(error.faults) from None
    stamped = document | {"digests": digests_of(path)}
    block, text = _yaml_text({"digests": stamped["digests"]}), header.read_text(encoding="utf-8").rstrip("\n") + "\n"
    edited, found = re.subn(r"^digests:.*\n(?:[ \t]+\S.*\n)*", block, text, count=1, flags=re.MULTILINE)
    edited = edited if found else text + block
    try:
        is_sound = yaml.safe_load(edited) == stamped
    except yaml.YAMLError:
        is_sound = False
    # The whole file is rewritten if the edit failed, for example because the digests are a mapping in braces.
    write_text(header, edited if is_sound else _yaml_text(stamped))


def _canonical(table: pd.DataFrame, file: str, entities: Sequence[str], features: Sequence[str]) -> pd.DataFrame:
    """Return a table in the form of its file: all cells are texts, and the rows and columns are in a fixed order.

    The rows are sorted by entity and feature; unknown names are last. The columns are in the order of the file format.
    A file of potentials always has the columns `ANNOTATIONS`, and its other optional columns are included only if any
    row has a value there.
    """
    known = (*REQUIRED_COLUMNS[file], *OPTIONAL_COLUMNS.get(file, ()))
    none = [""] * len(table)
    columns = {
        name: [_csv_cell(value) for value in table[name]] if name in table else none
        for name in known
        if name in table or name in ANNOTATIONS
    }
    if "potential" in known:
        always = (*REQUIRED_COLUMNS[file], *ANNOTATIONS)
        columns = {name: texts for name, texts in columns.items() if name in always or any(texts)}
    texts = pd.DataFrame(columns, dtype=object)
    orders = {"entity": entities, "name": [*entities, *features]}
    orders |= dict.fromkeys(("feature", "feature_a", "feature_b"), features)
    ranks = {name: _positions_in_order(columns[name], order) for name, order in orders.items() if name in columns}
    places = pd.DataFrame(ranks, index=texts.index)
    if "feature_b" in ranks:
        turned = (places["feature_a"] > places["feature_b"]).to_numpy()
        for part in (texts, places):
            part.loc[turned, ["feature_a", "feature_b"]] = part.loc[turned, ["feature_b", "feature_a"]].to_numpy()
    return texts.loc[places.sort_values(list(ranks), kind="stable").index]


def _positions_in_order(names: Sequence[str], order: Sequence[str]) -> list[int]:
    """Return the position of each name in the list `order`.

    Names that are not in the list get the positions after it, in alphabetical order.
    """
    place = {name: i for i, name in enumerate([*order, *sorted(set(names) - set(order))])}
    return [place[name] for name in names]


def _csv_cell(value: Any) -> str:
    """Return a value as text for a CSV file.

    A missing value becomes an empty text. A number becomes the shortest text that represents it exactly, without a
    decimal point if the number is whole. In a text, each line break (CR, LF or CR LF) becomes LF. Texts that are no
    valid numbers stay as they are, so that the check of the bundle reports them.
    """
    if isinstance(value, str):
        return value.replace("\r\n", "\n").replace("\r", "\n")
    if pd.isna(value):
        return ""
    try:
        number = float(value)
    except (TypeError, ValueError):
        return str(value)
    return str(int(number)) if number.is_integer() and abs(number) < 1e15 else repr(number)


def _yaml_text(document: Mapping[str, Any]) -> str:
    text: str = yaml.safe_dump(dict(document), sort_keys=False, allow_unicode=True, width=110)
    return text


def _renamed(fault: Fault, old: str, new: str) -> Fault:
    return replace(fault, where=fault.where.replace(old, new), next_step=fault.next_step.replace(old, new))


PAIRS = ["entity", "feature_a", "feature_b", "potential"]


def bundle_from_frame(
    unary: pd.DataFrame,
    pairwise: pd.DataFrame | None = None,
    *,
    name: str = "frame",
    version: str = "1",
    costs: Mapping[str, float] | None = None,
    priors: Mapping[str, float | str] | None = None,
    probabilities: Mapping[str, float] | None = None,
) -> Bundle:
    """Return a bundle made from tables in memory.

    The tables are checked in the same way as the files of a bundle folder.

    Parameters
    ----------
    unary : entities as rows and features as columns, with potentials in nats (a missing one is 0); or rows of `entity`,
        `feature` and `potential`, as in unary.csv
    pairwise : rows as in pairwise.csv
    name, version : name and version of the new bundle, as in bundle.yaml
    costs : feature -> cost, for every feature
    priors, probabilities : entity -> log-odds before any measurement, or entity -> probability; for all or some
        entities

    Raises
    ------
    BundleError : lists every error by the file and line of the row in a folder

    Examples
    --------
    >>> import pandas as pd
    >>> bundle_from_frame(pd.DataFrame({"spots": [1.0, -1.0]}, index=["rust", "wilt"]), name="leaves")
    <Bundle leaves 1: 2 entities, 1 features>

    """
    if not isinstance(unary, pd.DataFrame):
        step = "give pandas.DataFrame(potentials, index=entities, columns=features)"
        raise BundleError(Fault("bundle_from_frame", type(unary).__name__, "a DataFrame", step))
    if "potential" in unary.columns:
        rows, features = unary, list(dict.fromkeys(unary.get("feature", [])))
    else:
        wide = unary.rename_axis(index="entity", columns=None)
        rows = wide.reset_index().melt("entity", var_name="feature", value_name="potential").dropna(subset="potential")
        features = list(unary.columns)
    couplings = pd.DataFrame(columns=PAIRS) if pairwise is None else pairwise
    features += [feature for side in PAIRS[1:3] for feature in couplings.get(side, [])]
    entities = [*rows.get("entity", []), *couplings.get("entity", [])]
    header = {"name": name, "version": version, "entities": list(dict.fromkeys(map(str, entities)))}
    frames = {"unary.csv": rows, "pairwise.csv": couplings}
    if costs is not None:
        frames["costs.csv"] = pd.DataFrame(list(dict(costs).items()), columns=["feature", "cost"])
    probability_rows = [
        pd.DataFrame(list(dict(said).items()), columns=["entity", column])
        for column, said in (("log_odds", priors), ("probability", probabilities))
        if said is not None
    ]
    if probability_rows:
        frames["priors.csv"] = pd.concat(probability_rows, ignore_index=True)
    return bundle_of_tables("bundle_from_frame", header | {"features": list(dict.fromkeys(map(str, features)))}, frames)


BUNDLE_TEMPLATE = Path(__file__).with_name("template.txt")
"""Template of `bundle.yaml` for a new bundle, with comments that explain the files."""


def write_bundle_template(name: str, folder: Path) -> Path:
    """Create the bundle folder `<folder>/<name>`, and return its path.

    Raise an error if the name is invalid or the folder exists.
    """
    path = folder / name
    if not re.fullmatch(r"\w[\w-]*", name):
        step = "choose another name, and --folder"
        raise BundleError(Fault("the name of a bundle", repr(name), "letters, digits, - and _", step))
    with atomic_folder(path) as temporary:
        (temporary / HEADER).write_text(
            BUNDLE_TEMPLATE.read_text(encoding="utf-8").format(name=name, folder=path), encoding="utf-8"
        )
        for file in REQUIRED_FILES:
            (temporary / file).write_text(",".join(REQUIRED_COLUMNS[file]) + "\n", encoding="utf-8")
    return path
