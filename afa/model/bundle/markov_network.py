"""Convert entities to and from Markov networks of the library pgmpy.

A network has one variable with the states -1, 0 and +1 for each feature. The network has one factor exp(theta_j x_j)
for each feature and one factor exp(psi_jl x_j x_l) for each coupling (eq:mrf-general). A constant multiple of a factor
gives the same distribution, so `from_markov_networks` ignores constant multiples. The attribute `log_odds` of the
network is the prior log-odds of the entity.

If a bundle has probabilities, each entity has two networks: one for patients with the entity, and one for patients
without it (docs/decisions.md, Base rates). In these networks, the states of a variable are the possible values of the
feature. Networks with probabilities cannot be converted back to a bundle.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
import scipy.sparse as sp

from afa.errors import BundleError, Fault
from afa.model.arrays import Floats
from afa.model.bundle import Bundle
from afa.model.bundle.graph import bundle_of_rows, library
from afa.model.bundle.priors import signed
from afa.model.bundle.rates import bundle_models
from afa.model.mrf import VALUES

LOG_ODDS = "log_odds"
LARGEST_POTENTIAL = 300.0
"""Largest potential in a network, nats. A factor stores exp(potential), which overflows for larger potentials."""
TOLERANCE = 1e-9
X = np.array(VALUES, dtype=np.float64)


def to_markov_network(bundle: Bundle, entity: str, *, holds: bool | None = None) -> Any:
    """Return the `DiscreteMarkovNetwork` of an entity on all M features.

    The names of the states are the possible values of each feature: -1, 0 and 1, or some of them.

    Parameters
    ----------
    holds : for a bundle with probabilities: True for the class with the entity (with the prior), False for the class
        without it; None for other bundles

    Raises
    ------
    BundleError : `holds` does not fit the bundle, a potential exceeds `LARGEST_POTENTIAL`, or the bundle has exclusive
        groups, which factors of two features cannot represent

    """
    where = f"bundle {bundle.name}, {entity}"
    if bundle.exclusive:
        found, step = "exclusive groups", "leave them out of groups.csv"
        raise BundleError(Fault(where, found, "features that factors of two can hold", step))
    if bundle.has_probabilities and holds is None:
        raise BundleError(Fault(where, "one with probabilities", "which class", "give holds=True, or holds=False"))
    if holds is not None and not bundle.has_probabilities:
        expected = "one with probabilities, for `holds`"
        raise BundleError(Fault(where, "directions without probabilities", expected, "leave `holds` out"))
    model = bundle.mrf(entity) if holds is None else bundle_models(bundle, entity)[0 if holds else 1]
    unaries = np.where(model.possible, model.terms, 0.0)
    if (largest := float(np.abs(np.append(unaries, model.couplings.data)).max())) > LARGEST_POTENTIAL:
        expected = f"at most {LARGEST_POTENTIAL:g} in magnitude"
        raise BundleError(Fault(where, f"a potential of {largest:g}", expected, "check the unit, which is nats"))
    names, factor = bundle.features, library("pgmpy.factors.discrete").DiscreteFactor
    states = [[x for x in VALUES if can_be[x + 1]] for can_be in model.possible]
    centre = np.zeros(model.n_features) if model.centre is None else model.centre
    network = library("pgmpy.models").DiscreteMarkovNetwork()
    network.graph.update({"name": entity, LOG_ODDS: float(model.prior)})
    network.add_nodes_from(names)
    tables = [([j], np.exp(unaries[j][model.possible[j]])) for j in range(len(names))]
    for pair in zip(*(part.tolist() for part in sp.triu(model.couplings).nonzero()), strict=True):
        network.add_edge(*(names[j] for j in pair))
        away = [np.array(states[j]) - centre[j] for j in pair]
        tables.append((list(pair), np.exp(model.couplings[pair] * np.outer(*away))))
    for scope, values in tables:
        network.add_factors(
            factor([names[j] for j in scope], values.shape, values, {names[j]: states[j] for j in scope})
        )
    return network


def from_markov_networks(networks: Mapping[str, Any], *, name: str, version: str = "1") -> Bundle:
    """Return a bundle with one entity for each Markov network.

    The features of the bundle are the variables of the networks, in order of first appearance. Each variable must have
    three states, named -1, 0 and 1. The state names 0, 1 and 2, which pgmpy uses by default, stand for -1, 0 and 1. The
    logarithm of a factor must be a constant plus terms in x_j and x_j x_l. If several factors have the same variables,
    their terms are added.

    Parameters
    ----------
    networks : entity -> network
    name, version : name and version of the new bundle

    Raises
    ------
    BundleError : lists every factor of another form

    """
    potentials = dict[tuple[str, ...], float]()  # each key: an entity and one or two features
    faults, features = list[Fault](), dict[str, None]()
    for entity, network in networks.items():
        if not isinstance(network, library("pgmpy.models").DiscreteMarkovNetwork):
            step = "convert it first; a Bayesian network has to_markov_model()"
            found = f"a {type(network).__name__}"
            faults.append(Fault(f"network of {entity}", found, "a DiscreteMarkovNetwork", step))
            continue
        features |= dict.fromkeys(network.nodes())
        for factor in network.get_factors():
            terms = _terms_of(factor, f"network of {entity}")
            if isinstance(terms, Fault):
                faults.append(terms)
                continue
            for scope, value in terms.items():
                potentials[entity, *scope] = potentials.get((entity, *scope), 0.0) + value
    BundleError.raise_for(faults)
    priors = {entity: network.graph.get(LOG_ODDS, 0.0) for entity, network in networks.items()}
    return bundle_of_rows(
        f"networks of {name}",
        {"name": name, "version": version, "entities": list(networks), "features": list(features)},
        {
            "unary.csv": [(*key, value) for key, value in potentials.items() if len(key) == 2],
            "pairwise.csv": [(*key, value) for key, value in potentials.items() if len(key) == 3],
            "priors.csv": list(signed(priors).items()),
        },
    )


def _terms_of(factor: Any, where: str) -> dict[tuple[str, ...], float] | Fault:
    """Return the coefficients of x_j and x_j x_l in the logarithm of a factor, or the error.

    The result is a mapping from names of variables to coefficients.
    """
    scope = list(factor.scope())
    place = f"{where}, factor of {', '.join(map(str, scope))}"
    if not all(isinstance(variable, str) for variable in scope):
        return Fault(place, "a variable whose name is no text", "text", "rename the variables")
    if len(scope) not in (1, 2):
        return Fault(place, f"{len(scope)} variables", "one or two", "a bundle holds no such factor; leave it out")
    for variable in scope:
        states = list(factor.state_names[variable])
        if set(states) not in (set(VALUES), {0, 1, 2}):
            expected, step = "the three -1, 0 and 1, or 0, 1 and 2", "encode it as ternary, or rename the states"
            return Fault(place, f"states {states} of {variable}", expected, step)
    values = np.asarray(factor.values, dtype=np.float64)
    if len(odd := values[~(np.isfinite(values) & (values > 0))]):
        return Fault(place, f"a value of {odd[0]:g}", "finite positive values", "give what is impossible a small value")
    logs = np.log(values)
    for axis, variable in enumerate(scope):  # bring the states into the order -1, 0, 1
        logs = np.take(logs, np.argsort(factor.state_names[variable]), axis=axis)
    terms, residual = _fit_terms(scope, logs)
    if residual > TOLERANCE * max(1.0, float(np.abs(logs).max())):
        expected = "exp(c + a x)" if len(scope) == 1 else "exp(c + a x + b y + p x y), x and y being -1, 0 or 1"
        return Fault(
            place,
            f"logarithms up to {residual:.2g} away",
            expected,
            "replace the factor by the closest one of this form",
        )
    return terms


def _fit_terms(scope: list[str], logs: Floats) -> tuple[dict[tuple[str, ...], float], float]:
    """Return the coefficients of x_j and x_j x_l, fitted to `logs`, and the largest absolute residual of the fit.

    The array `logs` contains the logarithm of a factor. Its shape is (3,) for a factor of one variable, and (3, 3) for
    a factor of two variables.
    """
    if logs.ndim == 1:
        slope = float(logs[2] - logs[0]) / 2
        return {(scope[0],): slope}, float(np.abs(logs - logs[1] - slope * X).max())
    first, second = float(logs[2, 1] - logs[0, 1]) / 2, float(logs[1, 2] - logs[1, 0]) / 2
    pair = float(logs[2, 2] - logs[2, 0] - logs[0, 2] + logs[0, 0]) / 4
    of_terms = logs[1, 1] + first * X[:, None] + second * X[None, :] + pair * np.outer(X, X)
    a, b = sorted(scope)
    return {(scope[0],): first, (scope[1],): second, (a, b): pair}, float(np.abs(logs - of_terms).max())
