"""Convert bundles to and from graphs of the library NetworkX, in which nodes are features and edges are couplings.

The graph of one entity is an undirected `Graph`, in which each node has the attribute `unary` and each edge has the
attribute `coupling`. The graph of a whole bundle is a `MultiGraph`, in which each edge also has the attribute `entity`.
The name of the entity is also the key of the edge. For every entity with a unary potential on a feature, the feature's
node has an attribute `unary:<entity>`. The graph of one entity and the graph of a bundle also store the costs of
features, as attributes of the nodes.

All other parts of the bundle are attributes of the graph. All attributes are numbers or strings; lists and mappings are
stored as JSON text. A bundle that is written as GraphML or node-link JSON and then read again has the same digest as
before.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from importlib import import_module
from pathlib import Path
from typing import Annotated, Any
from xml.etree.ElementTree import ParseError

import numpy as np
import pandas as pd
from pydantic import BaseModel, BeforeValidator

from afa.errors import AfaError, BundleError, ConfigError, Fault
from afa.io.files import write_text
from afa.io.yamlfile import check_model
from afa.model.bundle import Bundle
from afa.model.bundle.format import REQUIRED_COLUMNS, REQUIRED_FILES
from afa.model.bundle.priors import signed
from afa.model.bundle.read import bundle_of_tables

UNARY, COUPLING, ENTITY, COST = "unary", "coupling", "entity", "cost"
GRAPHML = ".graphml"
NO_SUCH_GRAPH = (ValueError, KeyError, TypeError, AttributeError, RecursionError, ParseError)
"""Errors that NetworkX raises if a file contains no graph."""


def to_networkx(bundle: Bundle, entity: str | None = None) -> Any:
    """Return the graph of one entity, or the graph of the whole bundle if `entity` is None.

    The nodes are all M features, in the order of the bundle.

    Raises
    ------
    BundleError : the bundle has probabilities or scopes, which a graph cannot represent

    Examples
    --------
    >>> from afa.model.bundle import load_bundle
    >>> graph = to_networkx(load_bundle("tests/data/bundle_tiny"), "bleeding")
    >>> graph.nodes["MUC2"]["unary"], graph.edges["CXCL8", "MUC2"]["coupling"]
    (-1.0, -1.0)

    """
    if bundle.rates is not None or bundle.packed.scope is not None:
        found, step = (
            "a bundle with probabilities, or with values that cannot occur",
            "keep it as a folder (afa.model.bundle.save_bundle)",
        )
        expected = "directions without probabilities, all that a graph can hold"
        raise BundleError(Fault(f"bundle {bundle.name}", found, expected, step))
    networkx = library("networkx")
    one = entity is not None
    chosen = bundle.restrict_entities([bundle.entities[bundle.index(entity)]]) if entity is not None else bundle
    graph = networkx.Graph() if one else networkx.MultiGraph()
    graph.graph.update(_attributes(chosen))
    for j, feature in enumerate(chosen.features):
        held = range(1) if one else np.flatnonzero(chosen.unary[:, j])
        unaries = {UNARY if one else f"{UNARY}:{chosen.entities[n]}": float(chosen.unary[n, j]) for n in held}
        graph.add_node(feature, **({} if chosen.costs is None else {COST: float(chosen.costs[j])}), **unaries)
    for n, name in enumerate(chosen.entities):
        key, whose = ({}, {}) if one else ({"key": name}, {ENTITY: name})
        for row, column, value in zip(*(part.tolist() for part in chosen.packed.of(n)), strict=True):
            graph.add_edge(chosen.features[row], chosen.features[column], **key, **{COUPLING: value}, **whose)
    return graph


def _attributes(bundle: Bundle) -> dict[str, str]:
    """Return the bundle as a mapping from names to texts, without features, costs and potentials."""
    held: dict[str, Any] = {
        "entities": bundle.entities,
        "priors": {name: x for name, x in zip(bundle.entities, bundle.log_odds.tolist(), strict=True) if x},
        "aliases": dict(bundle.aliases),
        "display_names": dict(bundle.display_names),
        "provenance": dict(bundle.provenance),
    }
    # `default=str` converts dates, the only values from YAML in `provenance` that JSON cannot represent
    texts = {key: json.dumps(value, ensure_ascii=False, default=str) for key, value in held.items() if value}
    licence = {} if bundle.licence is None else {"licence": bundle.licence}
    return {"format": "afa-bundle", "name": bundle.name, "version": bundle.version, **texts, **licence}


def _from_json(value: Any) -> Any:
    """Return the list or mapping that a JSON text contains. Values that are not texts are returned unchanged."""
    try:
        return json.loads(value) if isinstance(value, str) else value
    except (ValueError, RecursionError):
        raise ValueError("a list or an object as JSON text") from None


class _Attributes(BaseModel):
    """Attributes of a graph from which a bundle can be made."""

    entities: Annotated[list[str], BeforeValidator(_from_json)] = []
    priors: Annotated[dict[str, Any], BeforeValidator(_from_json)] = {}
    aliases: Annotated[dict[str, list[str]], BeforeValidator(_from_json)] = {}
    display_names: Annotated[dict[str, str], BeforeValidator(_from_json)] = {}
    provenance: Annotated[dict[str, Any], BeforeValidator(_from_json)] = {}


def from_networkx(
    graph: Any, *, name: str | None = None, version: str | None = None, entity: str | None = None
) -> Bundle:
    """Convert an undirected graph of the library NetworkX to a bundle.

    Attributes of the graph, its nodes and its edges are read by the names that `to_networkx` gives them. The names of
    nodes must be strings. If a node has no unary potential, the potential is 0. Every edge must have a coupling.

    Parameters
    ----------
    name, version : replace those of the graph; if missing in both, the name of the entity and version "1"
    entity : name of the entity, for a graph without a list of entities

    Raises
    ------
    BundleError : lists every error of the graph

    """
    if not isinstance(graph, library("networkx").Graph) or graph.is_directed():
        found, step = f"a {type(graph).__name__}", "use graph.to_undirected() if directions say nothing"
        raise BundleError(Fault("a graph to read", found, "an undirected graph of NetworkX", step))
    named = name or graph.graph.get("name") or entity
    where = f"graph {named or 'without a name'}"
    try:
        attributes = check_model(graph.graph, _Attributes, where)
    except ConfigError as error:
        raise BundleError(error.faults) from None
    if not attributes.entities and entity is None:
        step = "name the one entity that the graph describes: entity='...'"
        raise BundleError(Fault(where, "no list of entities", "the graph attribute entities", step))
    if attributes.entities and entity not in (None, attributes.entities[0]):
        found = f"a list of entities, {', '.join(attributes.entities[:5])}"
        raise BundleError(Fault(where, found, f"none, or {entity!r} alone", "leave out the option entity"))
    if odd := [node for node in graph if not isinstance(node, str)]:
        step = "rename the nodes with networkx.relabel_nodes"
        raise BundleError(Fault(f"{where}, node {odd[0]!r}", type(odd[0]).__name__, "names of features as text", step))
    entities = attributes.entities or [str(entity)]
    only = entities[0] if len(entities) == 1 else ""
    header = {
        "name": named or entities[0],
        "version": version or str(graph.graph.get("version") or "1"),
        "licence": graph.graph.get("licence"),
        "provenance": attributes.provenance,
        "entities": entities,
        "features": list(graph),
    }
    unaries = [(str(key).partition(":"), node, x) for node, held in graph.nodes(data=True) for key, x in held.items()]
    rows: dict[str, list[tuple[Any, ...]]] = {
        "unary.csv": [(whose or only, node, x) for (kind, _, whose), node, x in unaries if kind == UNARY],
        "pairwise.csv": [
            (
                held.get(ENTITY, only),
                a,
                b,
                held.get(COUPLING, f"no {COUPLING}, but {', '.join(map(str, held)) or 'nothing'}"),
            )
            for a, b, held in graph.edges(data=True)
        ],
        "priors.csv": list(signed(attributes.priors).items()),
        "costs.csv": [(node, cost) for node, cost in graph.nodes(data=COST) if cost is not None],
        "aliases.csv": [(feature, alias) for feature, aliases in attributes.aliases.items() for alias in aliases],
        "display.csv": list(attributes.display_names.items()),
    }
    return bundle_of_rows(where, header, rows)


def bundle_of_rows(where: str, header: Mapping[str, Any], rows: Mapping[str, Sequence[tuple[Any, ...]]]) -> Bundle:
    """Return the bundle with the given content of bundle.yaml (`header`) and of its CSV files (`rows`).

    The content is checked in the same way as the files of a bundle folder.

    Parameters
    ----------
    where : name of the source in error messages, which identify a row by its entity and features
    rows : file name -> rows of the file

    Raises
    ------
    BundleError : lists every error

    """
    frames, names = dict[str, pd.DataFrame](), dict[str, list[str]]()
    for file, given in rows.items():
        if given or file in REQUIRED_FILES:
            columns = ["entity", "log_odds"] if file == "priors.csv" else list(REQUIRED_COLUMNS[file])
            frames[file] = pd.DataFrame([tuple(map(str, row)) for row in given], columns=columns)
            names[file] = [f"{columns[-1]} of {', '.join(map(str, row[:-1]))}" for row in given]
    return bundle_of_tables(where, header, frames, names)


def write_graph(bundle: Bundle, path: str | Path, *, entity: str | None = None) -> None:
    """Write the graph of a bundle, or of one entity, as a `.graphml` or `.json` file.

    If two bundles are equal, their files are identical.
    """
    target = Path(path)
    form, graph, networkx = _file_format(target), to_networkx(bundle, entity), library("networkx")
    if form == GRAPHML:
        lines = ["<?xml version='1.0' encoding='utf-8'?>", *networkx.generate_graphml(graph)]
    else:
        lines = [json.dumps(networkx.node_link_data(graph, edges="edges"), ensure_ascii=False, indent=1)]
    write_text(target, "\n".join(lines) + "\n")


def read_graph(
    path: str | Path, *, name: str | None = None, version: str | None = None, entity: str | None = None
) -> Bundle:
    """Return the bundle in a graph file.

    The options and errors are those of `from_networkx`. In node-link JSON, the edges are read from the key `edges`. If
    this key is missing, the edges are read from the key `links`, which d3 and NetworkX before version 3.6 write. Raise
    a `BundleError` if the file contains no graph.
    """
    source = Path(path)
    form, networkx = _file_format(source), library("networkx")
    try:
        if form == GRAPHML:
            graph = networkx.read_graphml(source)
        else:
            document = json.loads(source.read_text(encoding="utf-8"))
            edges = "links" if "links" in document and "edges" not in document else "edges"
            graph = networkx.node_link_graph(document, edges=edges)
    except OSError as error:
        fault = Fault(str(source), error.strerror or "an error", "a readable file", "check the path")
        raise BundleError(fault) from None
    except (*NO_SUCH_GRAPH, networkx.NetworkXException) as error:
        found = f"text that is no such graph ({type(error).__name__}: {error})"
        raise BundleError(
            Fault(str(source), found, "a graph in this format", "write it again with NetworkX")
        ) from error
    return from_networkx(graph, name=name, version=version, entity=entity)


def _file_format(path: Path) -> str:
    """Return the suffix of the file name, which determines the format of the file."""
    form = path.suffix.lower()
    if form not in (GRAPHML, ".json"):
        found = f"the suffix {path.suffix!r}"
        raise BundleError(Fault(str(path), found, f"{GRAPHML} or .json", "choose one of these formats"))
    return form


def library(module: str) -> Any:
    """Return a module of an optional library.

    If the library is not installed, raise an `AfaError` that states how to install it.
    """
    try:
        return import_module(module)
    except ModuleNotFoundError as error:
        package = module.partition(".")[0]
        if error.name is None or error.name.partition(".")[0] != package:
            raise
        step = "run `pip install 'afa[formats]'`"
        raise AfaError(Fault(package, "no such library", f"{package}, which this format needs", step)) from None
