"""Entities as Markov networks of pgmpy, and back.

A network has one variable a feature, with the states -1, 0 and +1, one factor exp(theta_j x_j) a feature, and one
factor exp(psi_jl x_j x_l) a coupling (eq:mrf-general). The scale of a factor says nothing about a distribution and is
not read; the prior log-odds of the entity stands in the network's attribute `log_odds`.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from afa.bundle import Bundle
from afa.errors import BundleError, Fault
from afa.formats.assemble import Pair, assemble, check_directions_alone
from afa.formats.extra import library
from afa.mrf import VALUES, Floats

LOG_ODDS = "log_odds"
LARGEST_POTENTIAL = 300.0
"""A factor holds exp(potential): far beyond this, it is no longer a number."""
TOLERANCE = 1e-9
X = np.array(VALUES, dtype=np.float64)


def to_markov_network(bundle: Bundle, entity: str, features: Sequence[str] | None = None) -> Any:
    """The `DiscreteMarkovNetwork` of an entity on all M features, or on these, which must hold its support.

    States are named -1, 0 and 1, so that evidence is given as in a bundle. Raises a `BundleError` for a feature that is
    left out though it has a potential, for potentials beyond `LARGEST_POTENTIAL`, and for a bundle that says how often.
    """
    check_directions_alone(bundle, "a Markov network")
    networks, factors = library("pgmpy.models"), library("pgmpy.factors.discrete")
    n = bundle.index(entity)
    names = bundle.features if features is None else bundle.restrict(features).features
    _check_exportable(bundle, entity, names)
    index = {feature: j for j, feature in enumerate(bundle.features)}
    states = {name: list(VALUES) for name in names}
    network = networks.DiscreteMarkovNetwork()
    network.graph.update({"name": entity, LOG_ODDS: float(bundle.priors[n])})
    network.add_nodes_from(names)
    for name in names:
        values = np.exp(bundle.unary[n, index[name]] * X)
        network.add_factors(factors.DiscreteFactor([name], [3], values, {name: states[name]}))
    for row, column, value in zip(*bundle.packed.of(n), strict=True):
        pair = [bundle.features[row], bundle.features[column]]
        network.add_edge(*pair)
        values = np.exp(value * np.outer(X, X))
        network.add_factors(factors.DiscreteFactor(pair, [3, 3], values, {name: states[name] for name in pair}))
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
    entities = list(networks)
    faults: list[Fault] = []
    terms = [_terms(entity, network, faults) for entity, network in networks.items()]
    listed = list(dict.fromkeys(name for theta, _ in terms for name in theta) if features is None else features)
    index = {feature: j for j, feature in enumerate(listed)}
    faults += [
        Fault(f"network of {entity}", f"the variable {variable!r}", "features of the list given", "add it there")
        for entity, (theta, _) in zip(entities, terms, strict=True)
        for variable in theta
        if variable not in index
    ]
    if faults:
        raise BundleError(faults)
    unary, couplings = np.zeros((len(entities), len(listed))), list[tuple[Pair, float]]()
    for n, (theta, psi) in enumerate(terms):
        unary[n, [index[variable] for variable in theta]] = list(theta.values())
        couplings += [((n, index[a], index[b]), value) for (a, b), value in psi.items()]
    return assemble(
        f"networks of {name}",
        name=name,
        version=version,
        entities=entities,
        features=listed,
        unary=unary,
        couplings=couplings,
        priors=np.array([float(network.graph.get(LOG_ODDS, 0.0)) for network in networks.values()]),
        provenance=provenance,
        licence=licence,
    )


def _check_exportable(bundle: Bundle, entity: str, names: Sequence[str]) -> None:
    where = f"bundle {bundle.name}, {entity}"
    left_out = [bundle.features[j] for j in bundle.support(entity) if bundle.features[j] not in set(names)]
    if left_out:
        found = f"potentials on {', '.join(left_out[:10])}, which the list of features leaves out"
        raise BundleError(Fault(where, found, "a list that holds the support", "add them to the list"))
    largest = max(
        float(np.abs(values).max(initial=0.0))
        for values in (bundle.unary[bundle.index(entity)], bundle.packed.of(bundle.index(entity))[2])
    )
    if largest > LARGEST_POTENTIAL:
        expected = f"at most {LARGEST_POTENTIAL:g} in magnitude"
        raise BundleError(Fault(where, f"a potential of {largest:g}", expected, "check the unit, which is nats"))


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
        logs = np.log(_in_order(factor, scope))
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


def _in_order(factor: Any, scope: list[str]) -> Floats:
    """The values of a factor with each axis in the order -1, 0, 1 of its states."""
    values: Floats = np.asarray(factor.values, dtype=np.float64)
    for axis, variable in enumerate(scope):
        values = np.take(values, np.argsort(factor.state_names[variable]), axis=axis)
    return values


def _fitted(logs: Floats) -> tuple[list[float], float, float]:
    """The terms in x_j, the term in x_j x_l, and the largest distance of `logs`, (3,) or (3, 3), from their sum."""
    if logs.ndim == 1:
        slope = float(logs[2] - logs[0]) / 2
        return [slope], 0.0, float(np.abs(logs - logs[1] - slope * X).max())
    first, second = float(logs[2, 1] - logs[0, 1]) / 2, float(logs[1, 2] - logs[1, 0]) / 2
    pair = float(logs[2, 2] - logs[2, 0] - logs[0, 2] + logs[0, 0]) / 4
    sum_of_terms = logs[1, 1] + first * X[:, None] + second * X[None, :] + pair * np.outer(X, X)
    return [first, second], pair, float(np.abs(logs - sum_of_terms).max())
