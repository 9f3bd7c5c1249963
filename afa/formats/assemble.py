"""From what another format held to a `Bundle`, under the rules of the bundle format."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from importlib import import_module
from typing import Any

import numpy as np

from afa.bundle import Bundle
from afa.bundle.format import Header, Potentials
from afa.bundle.model import packed_couplings
from afa.errors import AfaError, BundleError, ConfigError, Fault
from afa.mrf import Floats
from afa.yamlfile import check_model

Pair = tuple[int, int, int]
"""An entity and two features, by index."""


def assemble(
    where: str,
    *,
    name: str,
    version: str,
    entities: Sequence[str],
    features: Sequence[str],
    unary: Floats,
    couplings: Sequence[tuple[Pair, float]],
    priors: Floats,
    costs: Floats | None = None,
    aliases: Mapping[str, Sequence[str]] | None = None,
    provenance: Mapping[str, Any] | None = None,
    licence: str | None = None,
) -> Bundle:
    """A `Bundle` of arrays unary (N, M), priors (N,), costs (M,) and of couplings, each unordered pair once.

    A `BundleError` lists all that the bundle format does not allow; `where` names the source.
    """
    header = {"name": name, "version": version, "entities": list(entities), "features": list(features)}
    try:
        check_model(header | {"licence": licence, "provenance": dict(provenance or {})}, Header, where)
    except ConfigError as error:
        raise BundleError(error.faults) from None
    faults = [*_twice(where, "entity", entities), *_twice(where, "feature", features)]
    for n, j in np.argwhere(~np.isfinite(unary)):
        faults.append(_unusable(f"{where}, {entities[n]}, {features[j]}", unary[n, j]))
    seen: set[Pair] = set()
    for (n, j, other), value in couplings:
        low, high = sorted((j, other))
        place = f"{where}, {entities[n]}, {features[low]} and {features[high]}"
        if low == high:
            faults.append(Fault(place, "a coupling of a feature with itself", "two features", "remove it"))
        elif (n, low, high) in seen:
            faults.append(Fault(place, "a second coupling", "each pair once for an entity", "remove one of the two"))
        elif not np.isfinite(value):
            faults.append(_unusable(place, value))
        seen.add((n, low, high))
    faults += [_unusable(f"{where}, prior of {entities[n]}", x) for n, x in enumerate(priors) if not np.isfinite(x)]
    for j, cost in enumerate(() if costs is None else costs):
        if not 0 <= cost < np.inf:
            faults.append(
                Fault(f"{where}, cost of {features[j]}", f"{cost}", "a finite number, 0 or more", "correct it")
            )
    faults += _alias_faults(where, aliases or {}, features)
    if not (entities and features):
        faults.append(Fault(where, "no entity or no feature", "at least one of each", "add potentials"))
    if faults:
        raise BundleError(faults)
    triples = np.array([pair for pair, _ in couplings], dtype=np.int64).reshape(-1, 3)
    values = np.array([value for _, value in couplings], dtype=np.float64)
    return Bundle(
        name=name,
        version=version,
        entities=tuple(entities),
        features=tuple(features),
        unary=np.array(unary, dtype=np.float64),
        packed=packed_couplings(Potentials(triples[:, 0], np.sort(triples[:, 1:], axis=1), values), len(entities)),
        priors=np.array(priors, dtype=np.float64),
        costs=None if costs is None else np.array(costs, dtype=np.float64),
        aliases={feature: tuple(names) for feature, names in (aliases or {}).items()},
        provenance=dict(provenance or {}),
        licence=licence,
    )


def _twice(where: str, kind: str, names: Sequence[str]) -> list[Fault]:
    repeated = sorted({name for name in names if names.count(name) > 1}) if len(set(names)) < len(names) else []
    return [
        Fault(where, f"{kind} {name} more than once", f"each {kind} once", "remove the others") for name in repeated
    ]


def _unusable(place: str, value: float) -> Fault:
    return Fault(place, f"a potential of {value}", "a finite number", "correct it")


def _alias_faults(where: str, aliases: Mapping[str, Any], features: Sequence[str]) -> list[Fault]:
    faults, taken = [], set(features)
    for feature, names in aliases.items():
        place = f"{where}, aliases of {feature}"
        if feature not in features:
            faults.append(Fault(place, "an unknown feature", "a feature of the bundle", "remove them"))
        if isinstance(names, str) or not all(isinstance(name, str) and name.strip() for name in names):
            faults.append(Fault(place, repr(names)[:80], "a list of names", "write each alias as text in a list"))
            continue
        for name in names:
            if name in taken:
                found = f"{name}, which another alias or feature has"
                faults.append(Fault(place, found, "a name of its own", "remove it"))
            taken.add(name)
    return faults


def library(module: str) -> Any:
    """The module of an optional library; an `AfaError` that says how to install it where there is none."""
    try:
        return import_module(module)
    except ModuleNotFoundError as error:
        package = module.partition(".")[0]
        if error.name is None or error.name.partition(".")[0] != package:
            raise
        step = "run `pip install 'afa[formats]'`"
        raise AfaError(Fault(package, "no such library", f"{package}, which this format needs", step)) from None
