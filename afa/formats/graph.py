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
from typing import Any, TypeVar
from xml.etree.ElementTree import ParseError

import numpy as np
import pandas as pd
from pydantic import TypeAdapter, ValidationError

from afa.bundle import Bundle
from afa.bundle.format import REQUIRED_COLUMNS, REQUIRED_FILES
from afa.bundle.read import bundle_of_tables
from afa.errors import AfaError, BundleError, Fault
from afa.files import write_text
from afa.yamlfile import first_error

FORMAT = "afa-bundle"
Kind = TypeVar("Kind")
UNARY, COUPLING, ENTITY, COST = "unary", "coupling", "entity", "cost"


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
    named = name or stated.get("name") or entity
    where = f"graph {named or 'without a name'}"
    entities = _entities(stated, entity, where)
    odd = [node for node in graph if not isinstance(node, str)]
    if odd:
        step = "rename the nodes with networkx.relabel_nodes"
        raise BundleError(Fault(f"{where}, node {odd[0]!r}", type(odd[0]).__name__, "names of features as text", step))
    aliases = _parsed(stated, "aliases", dict[str, list[str]], where)
    only = entities[0] if len(entities) == 1 else ""
    header = {"name": named or entities[0], "version": version or str(stated.get("version") or "1")}
    header |= {"licence": stated.get("licence"), "provenance": _parsed(stated, "provenance", dict[str, Any], where)}
    costs = {feature: cost for feature, cost in graph.nodes(data=COST) if cost is not None}
    rows: dict[str, list[tuple[Any, ...]]] = {
        "unary.csv": [
            (str(key).partition(":")[2] or only, feature, value)
            for feature, attributes in graph.nodes(data=True)
            for key, value in attributes.items()
            if str(key).partition(":")[0] == UNARY
        ],
        "pairwise.csv": [
            (
                held.get(ENTITY, only),
                a,
                b,
                held.get(COUPLING, f"no {COUPLING}, but {', '.join(map(str, held)) or 'nothing'}"),
            )
            for a, b, held in graph.edges(data=True)
        ],
        "priors.csv": list(_parsed(stated, "priors", dict[str, Any], where).items()),
        "costs.csv": list(costs.items()),
        "aliases.csv": [(feature, alias) for feature, names in aliases.items() for alias in names],
    }
    return bundle_of_rows(where, header | {"entities": entities, "features": list(graph)}, rows)


def bundle_of_rows(where: str, header: Mapping[str, Any], rows: Mapping[str, Sequence[tuple[Any, ...]]]) -> Bundle:
    """The bundle of a header and of the rows that its files would have, under the rules of the bundle format.

    A `BundleError` lists every fault; `where` names the source, and names of entities and features say which row.
    """
    frames, names = dict[str, pd.DataFrame](), dict[str, list[str]]()
    for file, given in rows.items():
        if given or file in REQUIRED_FILES:
            columns = list(REQUIRED_COLUMNS[file])
            frames[file] = pd.DataFrame([tuple(map(str, row)) for row in given], columns=columns)
            names[file] = [f"{columns[-1]} of {', '.join(map(str, row[:-1]))}" for row in given]
    return bundle_of_tables(where, header, frames, names)


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
    listed = _parsed(stated, "entities", list[str], where)
    if not listed and entity is None:
        step = "name the one entity that the graph describes: entity='...'"
        raise BundleError(Fault(where, "no list of entities", "the graph attribute entities", step))
    if listed and entity not in (None, *listed[:1]):
        found = f"a list of entities, {', '.join(listed[:5])}"
        raise BundleError(Fault(where, found, f"none, or {entity!r} alone", "leave out the option entity"))
    return listed or [str(entity)]


def _parsed(stated: Mapping[str, Any], key: str, kind: type[Kind], where: str) -> Kind:
    """A graph attribute that holds a list or mapping as JSON text; empty where there is none."""
    given = stated.get(key)
    if given is None:
        return kind()
    try:
        return TypeAdapter(kind).validate_json(given if isinstance(given, str) else json.dumps(given, default=str))
    except ValidationError as error:
        expected = f"a JSON {'list' if kind == list[str] else 'object'} as text ({first_error(error, 'the whole')})"
        fault = Fault(f"{where}, attribute {key}", repr(given)[:80], expected, "correct or remove it")
        raise BundleError(fault) from None


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
