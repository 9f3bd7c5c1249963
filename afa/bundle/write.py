"""Writing a bundle folder in canonical form, and stamping one with the digests of its files."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import yaml

from afa.bundle.format import ANNOTATIONS, HEADER, REQUIRED_COLUMNS, VALUE_DOMAIN, digests_of
from afa.bundle.model import Bundle
from afa.bundle.read import read_folder
from afa.errors import BundleError, ConfigError, Fault
from afa.files import atomic_file, atomic_folder
from afa.yamlfile import read_mapping


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
    costs: Mapping[str, float] | None = None,
    aliases: Mapping[str, Sequence[str]] | None = None,
    provenance: Mapping[str, Any] | None = None,
    licence: str | None = None,
) -> None:
    """Write a bundle folder in canonical form: rows in the order of `entities` and `features`, digests stamped.

    `unary` and `pairwise` have the columns of their files; confidence and evidence may be missing. `priors` are by
    entity, `costs` and `aliases` by feature, `name`, `version`, `provenance` and `licence` go into bundle.yaml. The
    same content gives the same bytes. Nothing is written, and a `BundleError` raised, where the result would not be a
    valid bundle or `path` is something else than a bundle folder.
    """
    target = Path(path)
    if target.exists() and not (target / HEADER).is_file() and not (target.is_dir() and not any(target.iterdir())):
        found = "a file or folder that is not a bundle"
        raise BundleError(Fault(str(target), found, "no such path, or a bundle to replace", "choose another path"))
    tables = {
        "unary.csv": _potential_rows(unary, entities, features, ["feature"]),
        "pairwise.csv": _potential_rows(pairwise, entities, features, ["feature_a", "feature_b"]),
    }
    for file, values, order in (("priors.csv", priors, entities), ("costs.csv", costs, features)):
        if values is not None:
            rows = [(key, _number_text(values[key])) for key in _in_order(values, order)]
            tables[file] = pd.DataFrame(rows, columns=list(REQUIRED_COLUMNS[file]))
    if aliases:
        rows = [(key, alias) for key in _in_order(aliases, features) for alias in aliases[key]]
        tables["aliases.csv"] = pd.DataFrame(rows, columns=list(REQUIRED_COLUMNS["aliases.csv"]))
    header: dict[str, Any] = {"name": name, "version": version}
    header |= {} if licence is None else {"licence": licence}
    header |= {"provenance": dict(provenance)} if provenance else {}
    header |= {"value_domain": VALUE_DOMAIN, "entities": list(entities), "features": list(features)}
    with atomic_folder(target) as folder:
        for file, table in tables.items():
            table.to_csv(folder / file, index=False, lineterminator="\n", encoding="utf-8")
        (folder / HEADER).write_text(_yaml_text(header | {"digests": digests_of(folder)}), encoding="utf-8")
        faults = read_folder(folder).faults
        if faults:
            raise BundleError([_renamed(fault, str(folder), str(target)) for fault in faults])


def save_bundle(bundle: Bundle, path: str | Path) -> None:
    """Write a `Bundle` as a folder, with its non-zero potentials; confidence and evidence are not kept."""
    entity, feature = np.nonzero(bundle.unary)
    names, space = np.array(bundle.entities, dtype=object), np.array(bundle.features, dtype=object)
    unary = pd.DataFrame(
        {"entity": names[entity], "feature": space[feature], "potential": bundle.unary[entity, feature]}
    )
    pairwise = pd.DataFrame(
        {
            "entity": names[np.repeat(np.arange(len(names)), np.diff(bundle.packed.pointer))],
            "feature_a": space[bundle.packed.row],
            "feature_b": space[bundle.packed.column],
            "potential": bundle.packed.value,
        }
    )
    write_bundle(
        path,
        name=bundle.name,
        version=bundle.version,
        entities=bundle.entities,
        features=bundle.features,
        unary=unary,
        pairwise=pairwise,
        priors=dict(zip(bundle.entities, bundle.priors, strict=True)) if bundle.priors.any() else None,
        costs=None if bundle.costs is None else dict(zip(bundle.features, bundle.costs, strict=True)),
        aliases=bundle.aliases,
        provenance=bundle.provenance,
        licence=bundle.licence,
    )


def stamp_bundle(path: str | Path) -> None:
    """Rewrite the digests in `bundle.yaml` for the present files, keeping its other lines.

    A `BundleError` where there is no readable `bundle.yaml`.
    """
    header = Path(path) / HEADER
    try:
        document = read_mapping(header)
    except ConfigError as error:
        raise BundleError(error.faults) from None
    digests = digests_of(path)
    stamped = document | {"digests": digests}
    text = _with_digests(header.read_text(encoding="utf-8"), digests)
    try:
        edited = yaml.safe_load(text)
    except yaml.YAMLError:
        edited = None
    if edited != stamped:  # a layout that the edit does not understand, such as one mapping in braces
        text = _yaml_text(stamped)
    with atomic_file(header) as temporary:
        temporary.write_text(text, encoding="utf-8")


def _potential_rows(
    table: pd.DataFrame, entities: Sequence[str], features: Sequence[str], columns: list[str]
) -> pd.DataFrame:
    """The rows of a potentials file in canonical order; names that are not listed come last, for validation to name."""
    entity_rank = {name: rank for rank, name in enumerate(entities)}
    feature_rank = {name: rank for rank, name in enumerate(features)}
    names = table[columns].to_numpy(dtype=object)
    ranks = np.array(
        [[feature_rank.get(name, len(feature_rank)) for name in row] for row in names], dtype=np.int64
    ).reshape(len(table), len(columns))
    within = np.argsort(ranks, axis=1, kind="stable")
    names, ranks = np.take_along_axis(names, within, axis=1), np.take_along_axis(ranks, within, axis=1)
    entity = np.array([entity_rank.get(name, len(entity_rank)) for name in table["entity"]], dtype=np.int64)
    order = np.lexsort((*ranks.T[::-1], entity))
    written = pd.DataFrame({"entity": table["entity"].to_numpy(dtype=object)[order]})
    written[columns] = names[order]
    written["potential"] = [_number_text(value) for value in table["potential"].to_numpy()[order]]
    for column in ANNOTATIONS:
        texts = [""] * len(table) if column not in table else [_cell(value) for value in table[column]]
        written[column] = np.array(texts, dtype=object)[order]
    return written


def _in_order(values: Mapping[str, Any], order: Sequence[str]) -> Iterable[str]:
    listed = [key for key in order if key in values]
    return [*listed, *sorted(set(values) - set(listed))]


def _cell(value: Any) -> str:
    """Text of an annotation; line ends are unified, a missing value as nothing."""
    if isinstance(value, str):
        return value.replace("\r\n", "\n").replace("\r", "\n")
    if pd.isna(value):
        return ""
    return _number_text(value)


def _number_text(value: Any) -> str:
    """The shortest text that reads back as the same float; whole numbers without a decimal point.

    What is not a number is written as it is, for the validation to name.
    """
    try:
        number = float(value)
    except (TypeError, ValueError):
        return str(value)
    return str(int(number)) if number.is_integer() and abs(number) < 1e15 else repr(number)


def _yaml_text(document: Mapping[str, Any]) -> str:
    text: str = yaml.safe_dump(dict(document), sort_keys=False, allow_unicode=True, width=110)
    return text


def _with_digests(text: str, digests: Mapping[str, str]) -> str:
    """The text of a header with its `digests` entry replaced, or added at the end."""
    block = _yaml_text({"digests": dict(digests)})
    root = yaml.compose(text, Loader=yaml.SafeLoader)
    for key, value in root.value if isinstance(root, yaml.MappingNode) else ():
        if key.value == "digests":
            last = value.value[-1][1] if isinstance(value, yaml.MappingNode) and value.value else value
            return text[: key.start_mark.index] + block.rstrip("\n") + text[last.end_mark.index :]
    return text.rstrip("\n") + "\n" + block


def _renamed(fault: Fault, old: str, new: str) -> Fault:
    return replace(fault, where=fault.where.replace(old, new), next_step=fault.next_step.replace(old, new))
