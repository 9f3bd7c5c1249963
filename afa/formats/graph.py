"""Bundles as NetworkX graphs: features are nodes, couplings edges.

One entity is an undirected `Graph` with the node attribute `unary` and the edge attribute `coupling`. A whole bundle is
a `MultiGraph`: an edge has the attribute `entity`, also its key, and a node `unary:<entity>` for each entity that has a
unary potential there. All else is in attributes of the graph, lists as JSON text: every attribute is a plain number or
text, so that files of GraphML and node-link JSON keep a bundle's digest. What another format held is assembled to a
`Bundle` here, under the rules of the bundle format.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from importlib import import_module
from pathlib import Path
from typing import Any
from xml.etree.ElementTree import ParseError

import numpy as np

from afa.bundle import Bundle
from afa.bundle.format import Header, Potentials
from afa.bundle.model import packed_couplings
from afa.errors import AfaError, BundleError, ConfigError, Fault
from afa.files import write_text
from afa.mrf import Floats
from afa.yamlfile import check_model

FORMAT = "afa-bundle"
UNLISTED = "correct it, or add it to the entities of the graph"
UNARY, COUPLING, ENTITY, COST = "unary", "coupling", "entity", "cost"
Pair = tuple[int, int, int]
"""An entity and two features, by index."""


def to_networkx(bundle: Bundle, entity: str | None = None) -> Any:
    """The graph of one entity, or of the whole bundle; nodes are all M features, in the bundle's order.

    A `BundleError` for a bundle that says how often, which a graph has no place for.

    >>> from afa.bundle import load_bundle
    >>> graph = to_networkx(load_bundle("tests/data/bundle_tiny"), "bleeding")
    >>> graph.nodes["MUC2"]["unary"], graph.edges["CXCL8", "MUC2"]["coupling"]
    (-1.0, -1.0)
    """
    if bundle.rates is not None or bundle.packed.scope is not None:
        found, step = "a bundle that says how often, or what can occur", "keep it as a folder (afa.bundle.save_bundle)"
        expected = "directions alone, all that a graph can hold"
        raise BundleError(Fault(f"bundle {bundle.name}", found, expected, step))
    networkx = library("networkx")
    chosen = bundle if entity is None else bundle.restrict_entities([bundle.entities[bundle.index(entity)]])
    graph = networkx.MultiGraph() if entity is None else networkx.Graph()
    graph.graph.update(_graph_attributes(chosen))
    costs = [None] * len(chosen.features) if chosen.costs is None else chosen.costs.tolist()
    for j, feature in enumerate(chosen.features):
        attributes = {} if costs[j] is None else {COST: costs[j]}
        if entity is not None:
            attributes[UNARY] = float(chosen.unary[0, j])
        else:
            held = np.flatnonzero(chosen.unary[:, j])
            attributes |= {f"{UNARY}:{chosen.entities[n]}": float(chosen.unary[n, j]) for n in held}
        graph.add_node(feature, **attributes)
    for n, name in enumerate(chosen.entities):
        for row, column, value in zip(*(part.tolist() for part in chosen.packed.of(n)), strict=True):
            ends = chosen.features[row], chosen.features[column]
            if entity is not None:
                graph.add_edge(*ends, **{COUPLING: value})
            else:
                graph.add_edge(*ends, key=name, **{COUPLING: value, ENTITY: name})
    return graph


def from_networkx(
    graph: Any, *, name: str | None = None, version: str | None = None, entity: str | None = None
) -> Bundle:
    """The bundle of a graph: one that `to_networkx` made, or any undirected graph with text nodes and these attributes.

    name, version : replace what the graph says; one that says nothing has the name of its entity and version "1".
    entity : the name of the entity that a graph describes which lists none.
    A node without a unary potential has 0; an edge needs a coupling. A `BundleError` lists every fault.
    """
    networkx = library("networkx")
    if not isinstance(graph, networkx.Graph) or graph.is_directed():
        found, step = f"a {type(graph).__name__}", "use graph.to_undirected() if directions say nothing"
        raise BundleError(Fault("a graph to read", found, "an undirected graph of NetworkX", step))
    stated = dict(graph.graph)
    stated_name = stated.get("name") or entity
    where = f"graph {name or stated_name or 'without a name'}"
    entities = _entities(stated, entity, where)
    odd = [node for node in graph if not isinstance(node, str)]
    if odd:
        step = "rename the nodes with networkx.relabel_nodes"
        raise BundleError(Fault(f"{where}, node {odd[0]!r}", type(odd[0]).__name__, "names of features as text", step))
    features, faults = list(graph), list[Fault]()
    unary = _unaries(graph, entities, where, faults)
    couplings = _couplings(graph, entities, where, faults)
    costs = _costs(graph, where, faults)
    priors = _parsed(stated, "priors", dict, where)
    unknown = [key for key in priors if key not in entities]
    faults += [Fault(f"{where}, priors", f"{key!r}", "entities of the graph", "remove it") for key in unknown]
    log_odds = [_number(priors.get(key, 0.0), f"{where}, prior of {key}", "log-odds", faults) for key in entities]
    if faults:
        raise BundleError(faults)
    return assemble(
        where,
        name=name or stated_name or entities[0],
        version=version or str(stated.get("version") or "1"),
        entities=entities,
        features=features,
        unary=unary,
        couplings=couplings,
        priors=np.array(log_odds),
        costs=costs,
        aliases=_parsed(stated, "aliases", dict, where),
        provenance=_parsed(stated, "provenance", dict, where),
        licence=stated.get("licence"),
    )


def _graph_attributes(bundle: Bundle) -> dict[str, str]:
    """What is of the bundle and not of a feature or a coupling; numbers in JSON read back as the same floats."""
    attributes = {"format": FORMAT, "name": bundle.name, "version": bundle.version}
    attributes["entities"] = json.dumps(bundle.entities, ensure_ascii=False)
    held: dict[str, Mapping[str, Any]] = {
        "priors": {name: x for name, x in zip(bundle.entities, bundle.priors.tolist(), strict=True) if x},
        "aliases": {feature: list(names) for feature, names in bundle.aliases.items()},
        "provenance": bundle.provenance,
    }
    # A date of YAML is the only thing a provenance can hold that JSON cannot; as text it says the same.
    texts = {key: json.dumps(dict(value), ensure_ascii=False, default=str) for key, value in held.items() if value}
    return attributes | texts | ({} if bundle.licence is None else {"licence": bundle.licence})


def _entities(stated: Mapping[str, Any], entity: str | None, where: str) -> list[str]:
    """The entities that the graph lists, or the one that the caller names."""
    listed = list(map(str, _parsed(stated, "entities", list, where)))
    if not listed and entity is None:
        step = "name the one entity that the graph describes: entity='...'"
        raise BundleError(Fault(where, "no list of entities", "the graph attribute entities", step))
    if listed and entity not in (None, *listed[:1]):
        found = f"a list of entities, {', '.join(listed[:5])}"
        raise BundleError(Fault(where, found, f"none, or {entity!r} alone", "leave out the option entity"))
    return listed or [str(entity)]


def _parsed(stated: Mapping[str, Any], key: str, kind: type, where: str) -> Any:
    """A graph attribute that holds a list or mapping as JSON text; empty where there is none."""
    text = stated.get(key)
    if text is None:
        return kind()
    try:
        value = json.loads(text) if isinstance(text, str) else text
    except json.JSONDecodeError:
        value = text
    if not isinstance(value, kind):
        expected = f"a JSON {'list' if kind is list else 'object'} as text"
        raise BundleError(Fault(f"{where}, attribute {key}", repr(text)[:80], expected, "correct or remove it"))
    return value


def _unaries(graph: Any, entities: list[str], where: str, faults: list[Fault]) -> Floats:
    """(N, M) unary potentials; `unary` is that of a graph's only entity."""
    index = {name: n for n, name in enumerate(entities)}
    unary = np.zeros((len(entities), len(graph)))
    for j, (feature, attributes) in enumerate(graph.nodes(data=True)):
        for key, value in attributes.items():
            prefix, _, owner = str(key).partition(":")
            if prefix != UNARY:
                continue
            owner = owner if owner or len(entities) > 1 else entities[0]
            place = f"{where}, node {feature}, attribute {key}"
            if owner not in index:
                faults.append(Fault(place, f"the entity {owner!r}", "one that the graph lists", UNLISTED))
                continue
            unary[index[owner], j] = _number(value, place, "a unary potential", faults)
    return unary


def _couplings(graph: Any, entities: list[str], where: str, faults: list[Fault]) -> list[tuple[Pair, float]]:
    index = {name: n for n, name in enumerate(entities)}
    place_of = {feature: j for j, feature in enumerate(graph)}
    couplings = []
    for a, b, attributes in graph.edges(data=True):
        place = f"{where}, edge {a} - {b}"
        owner = attributes.get(ENTITY, entities[0] if len(entities) == 1 else None)
        if owner not in index:
            found = "no attribute entity" if owner is None else f"the entity {owner!r}"
            faults.append(Fault(place, found, "one that the graph lists", UNLISTED))
        elif COUPLING not in attributes:
            held = ", ".join(map(str, attributes)) or "no attribute"
            faults.append(Fault(place, held, "the attribute coupling", "rename the one that is meant to coupling"))
        else:
            value = _number(attributes[COUPLING], place, "a coupling", faults)
            couplings.append(((index[owner], place_of[a], place_of[b]), value))
    return couplings


def _costs(graph: Any, where: str, faults: list[Fault]) -> Floats | None:
    given = graph.nodes(data=COST)
    lacking = [feature for feature, cost in given if cost is None]
    if len(lacking) == len(graph):
        return None
    if lacking:
        found, step = f"no cost for {', '.join(lacking[:10])}", "add it, or remove all costs"
        faults.append(Fault(where, found, "a cost for every node or for none", step))
        return None
    return np.array([_number(cost, f"{where}, node {feature}", "a cost", faults) for feature, cost in given])


def _number(value: Any, place: str, what: str, faults: list[Fault]) -> float:
    if isinstance(value, int | float | np.number) and not isinstance(value, bool):
        return float(value)
    faults.append(Fault(place, f"{value!r}"[:80], f"{what} as a number", "correct it"))
    return 0.0


GRAPHML = ".graphml"
NO_SUCH_GRAPH = (ValueError, KeyError, TypeError, AttributeError, RecursionError, ParseError)
"""What the readers of NetworkX raise over a file that holds something else."""


def write_graph(bundle: Bundle, path: str | Path, *, entity: str | None = None) -> None:
    """Write the graph of a bundle, or of one entity, by its suffix `.graphml` or `.json`; the same bytes again."""
    target = Path(path)
    form, graph, networkx = _form_of(target), to_networkx(bundle, entity), library("networkx")
    if form == GRAPHML:
        lines = ["<?xml version='1.0' encoding='utf-8'?>", *networkx.generate_graphml(graph)]
    else:
        lines = [json.dumps(networkx.node_link_data(graph, edges="edges"), ensure_ascii=False, indent=1)]
    write_text(target, "\n".join(lines) + "\n")


def read_graph(
    path: str | Path, *, name: str | None = None, version: str | None = None, entity: str | None = None
) -> Bundle:
    """The bundle of a graph file; options and faults as `from_networkx`, and a `BundleError` for a file of no graph."""
    source = Path(path)
    form, networkx = _form_of(source), library("networkx")
    try:
        if form == GRAPHML:
            graph = networkx.read_graphml(source)
        else:
            graph = networkx.node_link_graph(json.loads(source.read_text(encoding="utf-8")), edges="edges")
    except OSError as error:
        raise BundleError(
            Fault(str(source), error.strerror or "an error", "a readable file", "check the path")
        ) from None
    except (*NO_SUCH_GRAPH, networkx.NetworkXException) as error:
        found = f"text that is no such graph ({type(error).__name__}: {error})"
        raise BundleError(Fault(str(source), found, "a graph in this format", "write it anew with NetworkX")) from error
    return from_networkx(graph, name=name, version=version, entity=entity)


def _form_of(path: Path) -> str:
    """The suffix, which says how the graph is written."""
    form = path.suffix.lower()
    if form not in (GRAPHML, ".json"):
        found = f"the suffix {path.suffix!r}"
        raise BundleError(Fault(str(path), found, f"{GRAPHML} or .json", "choose one of these formats"))
    return form


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
