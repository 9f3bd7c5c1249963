"""Bundles as graphs of NetworkX, and their entities as Markov networks of pgmpy: features are nodes, couplings edges.

In NetworkX one entity is an undirected `Graph` with the node attribute `unary` and the edge attribute `coupling`. A
whole bundle is a `MultiGraph`: an edge has the attribute `entity`, also its key, and a node `unary:<entity>` for each
entity that has a unary potential there. All else is in attributes of the graph, lists as JSON text: every attribute is
a plain number or text, so that files of GraphML and node-link JSON keep a bundle's digest. What another format held is
assembled to a `Bundle` here, under the rules of the bundle format.

In pgmpy a network has one variable a feature, with the states -1, 0 and +1, one factor exp(theta_j x_j) a feature, and
one factor exp(psi_jl x_j x_l) a coupling (eq:mrf-general). The scale of a factor says nothing about a distribution and
is not read; the prior log-odds of the entity stands in the network's attribute `log_odds`. A bundle that says how often
has two networks an entity, of its classes, with the states that can occur (docs/decisions.md, F2); these are not read.
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
import scipy.sparse as sp
from pydantic import TypeAdapter, ValidationError

from afa.bundle import Bundle
from afa.bundle.format import REQUIRED_COLUMNS, REQUIRED_FILES
from afa.bundle.priors import signed
from afa.bundle.rates import bundle_models
from afa.bundle.read import bundle_of_tables
from afa.csvfile import few
from afa.errors import AfaError, BundleError, Fault
from afa.files import write_text
from afa.mrf import VALUES, Floats
from afa.yamlfile import first_error

FORMAT = "afa-bundle"
Kind = TypeVar("Kind")
UNARY, COUPLING, ENTITY, COST = "unary", "coupling", "entity", "cost"
LOG_ODDS = "log_odds"
LARGEST_POTENTIAL = 300.0
"""A factor holds exp(potential): far beyond this, it is no longer a number."""
TOLERANCE = 1e-9
X = np.array(VALUES, dtype=np.float64)


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
        "priors.csv": list(signed(_parsed(stated, "priors", dict[str, Any], where)).items()),
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
            columns = ["entity", "log_odds"] if file == "priors.csv" else list(REQUIRED_COLUMNS[file])
            frames[file] = pd.DataFrame([tuple(map(str, row)) for row in given], columns=columns)
            names[file] = [f"{columns[-1]} of {', '.join(map(str, row[:-1]))}" for row in given]
    return bundle_of_tables(where, header, frames, names)


def _graph_attributes(bundle: Bundle) -> dict[str, str]:
    """What is of the bundle and not of a feature or a coupling; numbers in JSON read back as the same floats."""
    attributes = {"format": FORMAT, "name": bundle.name, "version": bundle.version}
    attributes["entities"] = json.dumps(bundle.entities, ensure_ascii=False)
    held: dict[str, Mapping[str, Any]] = {
        "priors": {name: x for name, x in zip(bundle.entities, bundle.log_odds.tolist(), strict=True) if x},
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


def to_markov_network(
    bundle: Bundle, entity: str, features: Sequence[str] | None = None, *, holds: bool | None = None
) -> Any:
    """The `DiscreteMarkovNetwork` of an entity on all M features, or on these, which must hold its support.

    States are named -1, 0 and 1, so that evidence is given as in a bundle. holds : of a bundle that says how often,
    True for the class with the entity, which has the prior, False for the class without it; of others None. Raises a
    `BundleError` for a feature that is left out though it has a potential, for potentials beyond `LARGEST_POTENTIAL`,
    for another `holds`, and for exclusive groups, which no factor of two features can hold.
    """
    where = f"bundle {bundle.name}, {entity}"
    if bundle.exclusive:
        found, step = "exclusive groups", "leave them out of groups.csv"
        raise BundleError(Fault(where, found, "features that factors of two can hold", step))
    if bundle.says_how_often and holds is None:
        raise BundleError(Fault(where, "one that says how often", "which class", "give holds=True, or holds=False"))
    if holds is not None and not bundle.says_how_often:
        expected = "one that says how often, for `holds`"
        raise BundleError(Fault(where, "directions alone", expected, "leave `holds` out"))
    networks, factors = library("pgmpy.models"), library("pgmpy.factors.discrete")
    if holds is None:
        model, support = bundle.mrf(entity), bundle.support(entity)
    else:
        model, support = bundle_models(bundle, entity)[0 if holds else 1], bundle.how_often(entity)[2]
    names = bundle.features if features is None else bundle.restrict(features).features
    if left_out := [model.features[j] for j in support if model.features[j] not in set(names)]:
        found = f"potentials on {few(left_out)}, which the list of features leaves out"
        raise BundleError(Fault(where, found, "a list that holds the support", "add them to the list"))
    potentials = (np.where(model.possible, model.terms, 0.0), model.couplings.data)
    largest = max(float(np.abs(values).max(initial=0.0)) for values in potentials)
    if largest > LARGEST_POTENTIAL:
        expected = f"at most {LARGEST_POTENTIAL:g} in magnitude"
        raise BundleError(Fault(where, f"a potential of {largest:g}", expected, "check the unit, which is nats"))
    index = {feature: j for j, feature in enumerate(bundle.features)}
    states = {name: [x for x in VALUES if model.possible[index[name], x + 1]] for name in names}
    centre = np.zeros(model.n_features) if model.centre is None else model.centre
    network = networks.DiscreteMarkovNetwork()
    network.graph.update({"name": entity, LOG_ODDS: float(model.prior)})
    network.add_nodes_from(names)
    for name in names:
        values = np.exp(model.terms[index[name]][model.possible[index[name]]])
        network.add_factors(factors.DiscreteFactor([name], [len(values)], values, {name: states[name]}))
    for row, column in zip(*sp.triu(model.couplings).nonzero(), strict=True):
        pair = [bundle.features[row], bundle.features[column]]
        network.add_edge(*pair)
        away = [np.array(states[bundle.features[j]]) - centre[j] for j in (row, column)]
        values = np.exp(model.couplings[row, column] * np.outer(*away))
        network.add_factors(factors.DiscreteFactor(pair, values.shape, values, {name: states[name] for name in pair}))
    return network


def from_markov_networks(
    networks: Mapping[str, Any],
    *,
    name: str,
    version: str = "1",
    features: Sequence[str] | None = None,
    provenance: Mapping[str, Any] | None = None,
    licence: str | None = None,
) -> Bundle:
    """A bundle of Markov networks by entity, on `features`, or on all their variables in the order of their appearance.

    A variable has three states, named -1, 0 and 1, or 0, 1 and 2 (as pgmpy counts where states have no names) for -1, 0
    and 1. The logarithm of a factor must be a constant and a sum of terms in x_j and x_j x_l; factors on the same
    variables add up. A `BundleError` names every factor that is of another form. The bundle's `name`, `version`,
    `provenance` and `licence` are as given.
    """
    faults: list[Fault] = []
    terms = {entity: _terms(entity, network, faults) for entity, network in networks.items()}
    found = dict.fromkeys(name for theta, _ in terms.values() for name in theta)
    listed = list(found if features is None else features)
    BundleError.raise_for(faults)
    header = {"name": name, "version": version, "licence": licence, "provenance": dict(provenance or {})}
    return bundle_of_rows(
        f"networks of {name}",
        header | {"entities": list(networks), "features": listed},
        {
            "unary.csv": [(entity, at, x) for entity, (theta, _) in terms.items() for at, x in theta.items()],
            "pairwise.csv": [(entity, *pair, x) for entity, (_, psi) in terms.items() for pair, x in psi.items()],
            "priors.csv": list(signed({name: net.graph.get(LOG_ODDS, 0.0) for name, net in networks.items()}).items()),
        },
    )


def _terms(entity: str, network: Any, faults: list[Fault]) -> tuple[dict[str, float], dict[tuple[str, str], float]]:
    """Unary potentials by variable and couplings by pair, each the sum over the factors; faults are added."""
    theta: dict[str, float] = {}
    psi: dict[tuple[str, str], float] = {}
    if not isinstance(network, library("pgmpy.models").DiscreteMarkovNetwork):
        step = "convert it first; a Bayesian network has to_markov_model()"
        faults.append(Fault(f"network of {entity}", f"a {type(network).__name__}", "a DiscreteMarkovNetwork", step))
        return theta, psi
    theta.update(dict.fromkeys(network.nodes(), 0.0))
    for factor in network.get_factors():
        scope = list(factor.scope())
        place = f"network of {entity}, factor of {', '.join(map(str, scope))}"
        fault = _fault_of(factor, scope, place)
        if fault is not None:
            faults.append(fault)
            continue
        logs = np.log(np.asarray(factor.values, dtype=np.float64))
        for axis, variable in enumerate(scope):  # states in the order -1, 0, 1
            logs = np.take(logs, np.argsort(factor.state_names[variable]), axis=axis)
        single, pair, residual = _fitted(logs)
        if residual > TOLERANCE * max(1.0, float(np.abs(logs).max())):
            expected = "exp(c + a x)" if len(scope) == 1 else "exp(c + a x + b y + p x y), x and y being -1, 0 or 1"
            faults.append(
                Fault(place, f"logarithms up to {residual:.2g} away", expected, "replace it by its closest such")
            )
            continue
        for variable, value in zip(scope, single, strict=True):
            theta[variable] += value
        if len(scope) == 2:
            ends = tuple(scope) if tuple(scope) in psi else tuple(reversed(scope))
            ends = ends if ends in psi else tuple(scope)
            psi[ends] = psi.get(ends, 0.0) + pair
    return theta, psi


def _fault_of(factor: Any, scope: list[Any], place: str) -> Fault | None:
    """What is wrong with a factor before its values are fitted: names, number, states and sign."""
    if not all(isinstance(variable, str) for variable in scope):
        return Fault(place, "a variable whose name is no text", "text", "rename the variables")
    if len(scope) not in (1, 2):
        return Fault(place, f"{len(scope)} variables", "one or two", "a bundle holds no such factor; leave it out")
    for variable, cardinality in zip(scope, factor.cardinality, strict=True):
        states = list(factor.state_names[variable])
        if cardinality != 3:
            return Fault(place, f"{variable} with {cardinality} states", "three: -1, 0 and 1", "encode it as ternary")
        if set(states) not in (set(VALUES), {0, 1, 2}):
            step = "rename the states"
            return Fault(place, f"states {states} of {variable}", "-1, 0 and 1, or 0, 1 and 2", step)
    values = np.asarray(factor.values, dtype=np.float64)
    odd = values[~(np.isfinite(values) & (values > 0))]
    if len(odd):
        return Fault(place, f"a value of {odd[0]:g}", "finite positive values", "give what is impossible a small value")
    return None


def _fitted(logs: Floats) -> tuple[list[float], float, float]:
    """The terms in x_j, the term in x_j x_l, and the largest distance of `logs`, (3,) or (3, 3), from their sum."""
    if logs.ndim == 1:
        slope = float(logs[2] - logs[0]) / 2
        return [slope], 0.0, float(np.abs(logs - logs[1] - slope * X).max())
    first, second = float(logs[2, 1] - logs[0, 1]) / 2, float(logs[1, 2] - logs[1, 0]) / 2
    pair = float(logs[2, 2] - logs[2, 0] - logs[0, 2] + logs[0, 0]) / 4
    sum_of_terms = logs[1, 1] + first * X[:, None] + second * X[None, :] + pair * np.outer(X, X)
    return [first, second], pair, float(np.abs(logs - sum_of_terms).max())
