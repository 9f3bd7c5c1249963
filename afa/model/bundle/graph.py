"""Write a bundle as a graph of NetworkX: features are nodes, couplings are edges.

The graph of one entity is an undirected `Graph`: each node has the attribute `unary`, and each edge has the attribute
`coupling`. The graph of a whole bundle is a `MultiGraph`. Each edge has the attribute `entity`, which is also its key,
and each node has an attribute `unary:<entity>` for every entity with a unary potential on that feature. Costs are an
attribute of the nodes. A graph does not contain priors, probabilities and scopes.
"""

from __future__ import annotations

import json
from importlib import import_module
from pathlib import Path
from typing import Any

import numpy as np

from afa.errors import AfaError, BundleError, Fault
from afa.io.files import write_text
from afa.model.bundle import Bundle

GRAPHML = ".graphml"


def to_networkx(bundle: Bundle, entity: str | None = None) -> Any:
    """Return the graph of one entity, or of the whole bundle if `entity` is None.

    The nodes are all M features, in the bundle's order.

    Examples
    --------
    >>> from afa.model.bundle import load_bundle
    >>> graph = to_networkx(load_bundle("tests/data/bundle_tiny"), "bleeding")
    >>> graph.nodes["MUC2"]["unary"], graph.edges["CXCL8", "MUC2"]["coupling"]
    (-1.0, -1.0)

    """
    networkx = _networkx()
    name = {"name": bundle.name, "version": bundle.version}
    graph = networkx.MultiGraph(**name) if entity is None else networkx.Graph(**name, entity=entity)
    chosen = range(len(bundle.entities)) if entity is None else [bundle.index(entity)]
    for j, feature in enumerate(bundle.features):
        cost = {} if bundle.costs is None else {"cost": float(bundle.costs[j])}
        unary = {f"unary:{bundle.entities[v]}": float(bundle.unary[v, j]) for v in np.flatnonzero(bundle.unary[:, j])}
        graph.add_node(feature, **cost, **(unary if entity is None else {"unary": float(bundle.unary[chosen[0], j])}))
    for v in chosen:
        own = {} if entity is not None else {"key": bundle.entities[v], "entity": bundle.entities[v]}
        for row, column, value in zip(*(part.tolist() for part in bundle.packed.of(v)), strict=True):
            graph.add_edge(bundle.features[row], bundle.features[column], coupling=value, **own)
    return graph


def write_graph(bundle: Bundle, path: str | Path, *, entity: str | None = None) -> None:
    """Write the graph of a bundle, or of one entity, as a `.graphml` or `.json` file.

    A JSON file has the node-link form of NetworkX. Equal bundles give equal bytes.
    """
    form = Path(path).suffix.lower()
    if form not in (GRAPHML, ".json"):
        step = "choose one of these formats"
        raise BundleError(Fault(str(path), f"the suffix {Path(path).suffix!r}", f"{GRAPHML} or .json", step))
    graph, networkx = to_networkx(bundle, entity), _networkx()
    if form == GRAPHML:
        lines = ["<?xml version='1.0' encoding='utf-8'?>", *networkx.generate_graphml(graph)]
    else:
        lines = [json.dumps(networkx.node_link_data(graph, edges="edges"), ensure_ascii=False, indent=1)]
    write_text(path, "\n".join(lines) + "\n")


def _networkx() -> Any:
    """Return the module of NetworkX. If it is not installed, the `AfaError` says how to install it."""
    try:
        return import_module("networkx")
    except ModuleNotFoundError:
        step = "run `pip install 'afa[formats]'`"
        raise AfaError(Fault("networkx", "no such library", "networkx, which makes the graph", step)) from None
