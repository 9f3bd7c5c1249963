"""Entities as pgmpy Markov networks: the same distribution there and back, and what is said of another's factors."""

import sys
from importlib import import_module
from importlib.util import find_spec
from pathlib import Path

import numpy as np
import pytest
from bundles import bundle_of, random_bundles
from examples import examples
from hypothesis import given
from rated import FEVERS, rated, written

from afa.errors import AfaError, BundleError
from afa.inference.exact import exact
from afa.model.bundle import load_bundle
from afa.model.bundle.graph import from_networkx
from afa.model.bundle.markov_network import from_markov_networks, to_markov_network
from afa.model.bundle.rates import bundle_models
from afa.model.mrf import Evidence, PairwiseMRF

pytestmark = pytest.mark.skipif(find_spec("pgmpy") is None, reason="needs pgmpy")

TINY = load_bundle(Path(__file__).parents[2] / "data" / "bundle_tiny")
X = np.array([-1.0, 0.0, 1.0])


def pgmpy(part):
    """A part of the library, imported where it is used: that takes seconds, which every collection of tests would."""
    return import_module(f"pgmpy.{part}")


def small_bundle(seed):
    """Two entities on five features with potentials of any size."""
    rng = np.random.default_rng(seed)
    couplings = rng.normal(size=(2, 5, 5)) * (rng.random((2, 5, 5)) < 0.6)
    return bundle_of(rng.normal(size=(2, 5)), couplings, priors=rng.normal(size=2))


def network_of(*given):
    """A network on a, b and c of these factors (scope, values), each variable with a factor of ones beside."""
    network = pgmpy("models").DiscreteMarkovNetwork()
    for scope, values, *names in given:
        shape = np.shape(values)
        network.add_nodes_from(scope)
        network.add_edges_from([(scope[i], scope[j]) for i in range(len(scope)) for j in range(i)])
        network.add_factors(pgmpy("factors.discrete").DiscreteFactor(scope, shape, np.ravel(values), *names))
    return network


def read(*given):
    return from_markov_networks({"rust": network_of(*given)}, name="plants")


@pytest.mark.parametrize("seed", range(3))
@pytest.mark.parametrize("observed", [{}, {"f1": 1}, {"f0": -1, "f3": 0}])
def test_marginals_by_pgmpy_s_own_inference_are_the_exact_ones(seed, observed):
    bundle = small_bundle(seed)
    for entity in bundle.entities:
        engine = pgmpy("inference").VariableElimination(to_markov_network(bundle, entity))
        found = exact(bundle.mrf(entity), observed).marginals
        assert len(found.free)
        for row, feature in zip(found.probabilities, found.free, strict=True):
            query = engine.query([bundle.features[feature]], evidence=observed, show_progress=False)
            by_state = np.array([query.get_value(**{bundle.features[feature]: x}) for x in (-1, 0, 1)])
            np.testing.assert_allclose(row, by_state / by_state.sum(), atol=1e-10)


@pytest.mark.parametrize("seed", range(4))
def test_class_models_by_pgmpy_s_own_inference_are_the_exact_ones(seed):
    found = rated(np.random.default_rng(seed), n=2, m=5)
    bundle, values = found.bundle, found.values(np.random.default_rng(seed))
    for entity in bundle.entities:
        models_of, log_odds = bundle_models(bundle, entity), 0.0
        for holds, model in zip((True, False), models_of, strict=True):
            network = to_markov_network(bundle, entity, holds=holds)
            engine = pgmpy("inference").VariableElimination(network)
            for seen in ([], [1], [0, 3]):
                observed = found.named(values, seen)
                marginals = exact(model, Evidence.of(model, observed)).marginals
                for row, j in zip(marginals.probabilities, marginals.free, strict=True):
                    name, states = bundle.features[j], np.flatnonzero(bundle.possible[j]) - 1
                    query = engine.query([name], evidence=observed, show_progress=False)
                    by_state = np.array([query.get_value(**{name: x}) for x in states])
                    np.testing.assert_allclose(row[states + 1], by_state / by_state.sum(), atol=1e-10)
            log_odds += (1 if holds else -1) * (np.log(network.get_partition_function()) + network.graph["log_odds"])
        kappa = exact(models_of[0]).log_partition - exact(models_of[1]).log_partition
        assert log_odds == pytest.approx(kappa, abs=1e-9)


def test_a_bundle_that_says_how_often_has_a_network_of_each_class_alone():
    bundle = rated(np.random.default_rng(0), n=1, m=2).bundle
    with pytest.raises(BundleError, match="one with probabilities; expected which class"):
        to_markov_network(bundle, "v0")
    with pytest.raises(BundleError, match="directions without probabilities; expected one with probabilities"):
        to_markov_network(TINY, "bleeding", holds=True)


def test_exclusive_groups_have_no_network(tmp_path):
    bundle = load_bundle(written(tmp_path / "fevers", FEVERS))
    with pytest.raises(BundleError, match="exclusive groups; expected features that factors of two"):
        to_markov_network(bundle, "flu", holds=True)


def test_the_partition_function_is_that_of_the_entity_without_its_prior():
    bundle = small_bundle(4)
    network = to_markov_network(bundle, "v1")
    assert network.check_model()
    log_partition = exact(bundle.mrf("v1")).log_partition
    assert np.log(network.get_partition_function()) + network.graph["log_odds"] == pytest.approx(
        log_partition, abs=1e-9
    )


def test_a_network_has_a_factor_for_each_feature_and_each_coupling():
    network = to_markov_network(TINY, "bleeding")
    scopes = sorted(tuple(factor.scope()) for factor in network.get_factors())
    assert scopes == [("AQP8",), ("CXCL8",), ("CXCL8", "MUC2"), ("MMP9",), ("MUC2",), ("TFF3",)]
    pair = next(factor for factor in network.get_factors() if len(factor.scope()) == 2)
    np.testing.assert_allclose(pair.values, np.exp(-np.outer(X, X)))
    assert pair.state_names["MUC2"] == [-1, 0, 1]


def assert_same_potentials(found, bundle, atol):
    assert (found.entities, found.features) == (bundle.entities, bundle.features)
    np.testing.assert_allclose(found.unary, bundle.unary, rtol=0, atol=atol)
    np.testing.assert_allclose(found.priors, bundle.priors, rtol=0, atol=atol)
    for entity in bundle.entities:
        np.testing.assert_allclose(
            found.couplings(entity).toarray(), bundle.couplings(entity).toarray(), rtol=0, atol=atol
        )


@examples(25)
@given(random_bundles(entities=(1, 3)))
def test_a_round_trip_is_exact_to_1e_12(bundle):
    networks = {entity: to_markov_network(bundle, entity) for entity in bundle.entities}
    assert_same_potentials(from_markov_networks(networks, name="random"), bundle, 1e-12)


def test_potentials_of_whole_numbers_come_back_as_they_were():
    networks = {entity: to_markov_network(TINY, entity) for entity in TINY.entities}
    found = from_markov_networks(networks, name="tiny")
    np.testing.assert_array_equal(found.unary, TINY.unary)
    np.testing.assert_array_equal(found.packed.value, TINY.packed.value)


def test_a_network_of_the_support_alone_is_that_of_the_restricted_bundle():
    support = [TINY.features[j] for j in TINY.support("bleeding")]
    assert 0 < len(support) < len(TINY.features)
    network = to_markov_network(TINY.restrict(support), "bleeding")
    assert list(network.nodes()) == support
    whole = to_markov_network(TINY, "bleeding")
    for feature in support:
        found, expected = (
            pgmpy("inference").VariableElimination(each).query([feature], show_progress=False)
            for each in (network, whole)
        )
        shares = [each.values / each.values.sum() for each in (found, expected)]
        np.testing.assert_allclose(*shares, atol=1e-12)


def test_features_come_in_the_order_of_their_appearance():
    two = {"rust": network_of((["b"], np.exp(X))), "moss": network_of((["a"], np.exp(X)), (["b"], np.exp(-X)))}
    bundle = from_markov_networks(two, name="plants")
    assert bundle.features == ("b", "a")
    np.testing.assert_allclose(bundle.unary, [[1, 0], [-1, 1]], atol=1e-12)


def test_scale_is_not_read_and_factors_of_one_scope_add_up():
    pair = np.exp(0.5 * np.outer(X, X) + 0.25 * X[:, None] - 1.0 * X[None, :])
    bundle = read((["a"], 7 * np.exp(X)), (["a", "b"], 0.1 * pair), (["b", "a"], np.exp(2 * np.outer(X, X))))
    np.testing.assert_allclose(bundle.unary, [[1.25, -1.0]], atol=1e-12)
    np.testing.assert_allclose(bundle.packed.value, [2.5], atol=1e-12)
    assert bundle.priors.tolist() == [0.0]


def test_states_are_read_by_their_names():
    values = np.exp(2 * X)
    assert read((["a"], values[::-1], {"a": [1, 0, -1]})).unary[0, 0] == pytest.approx(2.0)
    assert read((["a"], values)).unary[0, 0] == pytest.approx(2.0)
    bundle = read((["a", "b"], np.exp(np.outer(X, X))[::-1], {"a": [1, 0, -1], "b": [-1, 0, 1]}))
    assert bundle.packed.value == pytest.approx([1.0])


@pytest.mark.parametrize(
    ("given", "words"),
    [
        ((["a"], [1.0, 2.0]), r"factor of a: found states \[0, 1\] of a; expected the three"),
        ((["a"], [1.0, 2.0, 3.0]), r"factor of a: found logarithms up to 0.14 away; expected exp\(c \+ a x\)"),
        ((["a", "b"], np.exp(np.outer(X**2, X**2))), r"factor of a, b: found logarithms up to 1 away"),
        ((["a", "b", "c"], np.ones((3, 3, 3))), "factor of a, b, c: found 3 variables; expected one or two"),
        ((["a"], [0.0, 1.0, 2.0]), "factor of a: found a value of 0; expected finite positive"),
        ((["a"], [1.0, np.inf, 2.0]), "factor of a: found a value of inf"),
        ((["a"], np.exp(X), {"a": ["low", "mid", "high"]}), r"factor of a: found states \['low', 'mid', 'high'\] of a"),
        (([7], np.exp(X)), "factor of 7: found a variable whose name is no text"),
    ],
)
def test_a_factor_of_another_form_is_refused_by_its_name(given, words):
    with pytest.raises(BundleError, match=f"network of rust, {words}"):
        read((["z"], np.exp(X)), given)


def test_every_factor_of_another_form_is_listed_at_once():
    with pytest.raises(BundleError) as caught:
        read((["a"], [1.0, 2.0]), (["b"], [0.0, 1.0, 2.0]), (["c"], np.exp(X)))
    assert [fault.where for fault in caught.value.faults] == [
        "network of rust, factor of a",
        "network of rust, factor of b",
    ]


def test_something_else_than_a_markov_network_is_refused():
    with pytest.raises(BundleError, match="found a DiscreteBayesianNetwork; expected a DiscreteMarkovNetwork"):
        from_markov_networks({"rust": pgmpy("models").DiscreteBayesianNetwork([("a", "b")])}, name="plants")


def test_a_potential_that_no_factor_can_hold_is_refused():
    bundle = bundle_of([[1000.0, 0.0]], np.zeros((1, 2, 2)))
    with pytest.raises(BundleError, match="a potential of 1000; expected at most 300"):
        to_markov_network(bundle, "v0")


@pytest.mark.parametrize(
    ("module", "call"),
    [
        ("pgmpy", lambda: to_markov_network(TINY, "bleeding")),
        ("networkx", lambda: from_networkx(None)),
    ],
)
def test_a_library_that_is_not_installed_is_named_with_the_command_that_brings_it(monkeypatch, module, call):
    for name in [module, *(name for name in sys.modules if name.startswith(f"{module}."))]:
        monkeypatch.setitem(sys.modules, name, None)
    with pytest.raises(AfaError, match=rf"{module}: found no such library.*pip install 'afa\[formats\]'"):
        call()


def test_a_model_made_of_the_potentials_is_the_same_as_the_bundle_s():
    bundle = from_markov_networks({"fistula": to_markov_network(TINY, "fistula")}, name="tiny")
    model, expected = bundle.mrf("fistula"), TINY.mrf("fistula")
    assert isinstance(model, PairwiseMRF)
    values = [0, 1, -1, 0, 1]
    assert model.energy(values) == pytest.approx(expected.energy(values), abs=1e-12)
