"""Entities as Markov networks of pgmpy, and back.

A network has one variable a feature, with the states -1, 0 and +1, one factor exp(theta_j x_j) a feature, and one
factor exp(psi_jl x_j x_l) a coupling (eq:mrf-general). The scale of a factor says nothing about a distribution and is
not read; the prior log-odds of the entity stands in the network's attribute `log_odds`. A bundle that says how often
has two networks an entity, of its classes, with the states that can occur (docs/decisions.md, F2); these are not read.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import scipy.sparse as sp

from afa.bundle import Bundle
from afa.bundle.rates import bundle_models
from afa.csvfile import few
from afa.errors import BundleError, Fault
from afa.formats.graph import bundle_of_rows, library
from afa.mrf import VALUES, Floats

LOG_ODDS = "log_odds"
LARGEST_POTENTIAL = 300.0
"""A factor holds exp(potential): far beyond this, it is no longer a number."""
TOLERANCE = 1e-9
X = np.array(VALUES, dtype=np.float64)


def to_markov_network(
    bundle: Bundle, entity: str, features: Sequence[str] | None = None, *, holds: bool | None = None
) -> Any:
    """The `DiscreteMarkovNetwork` of an entity on all M features, or on these, which must hold its support.

    States are named -1, 0 and 1, so that evidence is given as in a bundle. holds : of a bundle that says how often,
    True for the class with the entity, which has the prior, False for the class without it; of others None. Raises a
    `BundleError` for a feature that is left out though it has a potential, for potentials beyond `LARGEST_POTENTIAL`,
    for another `holds`, and for exclusive groups and implications, which no factor of two features can hold.
    """
    where = f"bundle {bundle.name}, {entity}"
    if bundle.exclusive or bundle.implies:
        found, step = "exclusive groups or implications", "leave groups.csv and implies.csv out"
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
            "priors.csv": [(entity, network.graph.get(LOG_ODDS, 0.0)) for entity, network in networks.items()],
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
