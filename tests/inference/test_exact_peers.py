"""Exact inference, against three independent programs: pgmpy, pyAgrum and toulbar2."""

from itertools import combinations

import numpy as np
import pytest

from afa.inference.exact import exact, map_state, pair_moments
from afa.model.mrf import PairwiseMRF

VALUES = np.array([-1.0, 0.0, 1.0])
SEEDS = range(8)


def random_case(seed):
    """A connected random model of 6 to 10 features, and a few observations."""
    generator = np.random.default_rng(seed)
    n = int(generator.integers(6, 11))
    upper = np.triu(generator.normal(size=(n, n)) * (generator.random((n, n)) < 0.4), 1)
    upper += np.diag(generator.uniform(0.2, 1.0, size=n - 1), k=1)
    mrf = PairwiseMRF(generator.normal(size=n), upper + upper.T, prior=float(generator.normal()))
    seen = generator.choice(n, size=seed % 3, replace=False)
    return mrf, {mrf.features[j]: int(generator.integers(-1, 2)) for j in seen}


def edges(mrf):
    """Index pairs with their coupling."""
    dense = mrf.couplings.toarray()
    return [(j, k, dense[j, k]) for j, k in combinations(range(mrf.n_features), 2) if dense[j, k]]


@pytest.fixture
def pgmpy_network():
    models = pytest.importorskip("pgmpy.models")
    factors = pytest.importorskip("pgmpy.factors.discrete")

    def build(mrf):
        network = models.DiscreteMarkovNetwork()
        network.add_nodes_from(mrf.features)
        for j, name in enumerate(mrf.features):
            network.add_factors(factors.DiscreteFactor([name], [3], np.exp(mrf.unary[j] * VALUES)))
        for j, k, weight in edges(mrf):
            pair = [mrf.features[j], mrf.features[k]]
            network.add_edge(*pair)
            network.add_factors(factors.DiscreteFactor(pair, [3, 3], np.exp(weight * np.outer(VALUES, VALUES))))
        return network

    return build


@pytest.mark.parametrize("seed", SEEDS)
def test_marginals_are_those_of_pgmpy(pgmpy_network, seed):
    inference = pytest.importorskip("pgmpy.inference")
    mrf, observed = random_case(seed)
    engine = inference.VariableElimination(pgmpy_network(mrf))
    found = exact(mrf, observed).marginals
    for row, feature in zip(found.probabilities, found.free, strict=True):
        states = {name: value + 1 for name, value in observed.items()}
        factor = engine.query([mrf.features[feature]], evidence=states, show_progress=False)
        np.testing.assert_allclose(row, factor.values / factor.values.sum(), atol=1e-10)


@pytest.mark.parametrize("seed", SEEDS)
def test_the_log_partition_is_that_of_pgmpy(pgmpy_network, seed):
    mrf, _ = random_case(seed)
    partition = pgmpy_network(mrf).get_partition_function()
    assert exact(mrf).log_partition == pytest.approx(mrf.prior + np.log(partition), abs=1e-9)


@pytest.fixture
def pyagrum_engine():
    gum = pytest.importorskip("pyagrum")

    def build(mrf, observed):
        network = gum.MarkovRandomField()
        for name in mrf.features:
            network.add(gum.LabelizedVariable(name, "", 3))
        for name, potential in zip(mrf.features, mrf.unary, strict=True):
            network.addFactor([name]).fillWith(np.exp(potential * VALUES).tolist())
        for j, k, weight in edges(mrf):
            symmetric = np.exp(weight * np.outer(VALUES, VALUES)).ravel().tolist()
            network.addFactor([mrf.features[j], mrf.features[k]]).fillWith(symmetric)

        def engine():
            fresh = gum.ShaferShenoyMRFInference(network)
            fresh.setEvidence({name: value + 1 for name, value in observed.items()})
            return fresh

        return engine

    return build


@pytest.mark.parametrize("seed", SEEDS)
def test_marginals_are_those_of_pyagrum(pyagrum_engine, seed):
    mrf, observed = random_case(seed)
    engine = pyagrum_engine(mrf, observed)()
    engine.makeInference()
    found = exact(mrf, observed).marginals
    for row, feature in zip(found.probabilities, found.free, strict=True):
        np.testing.assert_allclose(row, engine.posterior(mrf.features[feature]).toarray(), atol=1e-10)


@pytest.mark.parametrize("seed", SEEDS)
def test_pair_moments_are_those_of_pyagrum(pyagrum_engine, seed):
    mrf, observed = random_case(seed)
    new_engine = pyagrum_engine(mrf, observed)
    free = exact(mrf, observed).marginals.free
    _, pairs = pair_moments(mrf, observed)
    for j, k in combinations(range(len(free)), 2):
        # one engine a pair: pyAgrum forgets a joint target that a factor covers once there are others
        engine = new_engine()
        pair = {mrf.features[free[j]], mrf.features[free[k]]}
        engine.addJointTarget(pair)
        engine.makeInference()
        joint = engine.jointPosterior(pair).toarray()
        assert pairs[j, k] == pytest.approx(VALUES @ joint @ VALUES, abs=1e-10)


@pytest.mark.parametrize("seed", SEEDS)
def test_the_largest_energy_is_that_of_toulbar2(seed):
    toulbar2 = pytest.importorskip("pytoulbar2")
    mrf, observed = random_case(seed)
    decimals = 6
    problem = toulbar2.CFN(1000.0, resolution=decimals)
    for j, name in enumerate(mrf.features):
        domain = [observed[name]] if name in observed else [-1, 0, 1]
        problem.AddVariable(name, domain)
        problem.AddFunction([name], [-mrf.unary[j] * value for value in domain])
    for j, k, weight in edges(mrf):
        scope = [mrf.features[j], mrf.features[k]]
        domains = [[observed[name]] if name in observed else [-1, 0, 1] for name in scope]
        problem.AddFunction(scope, [-weight * one * other for one in domains[0] for other in domains[1]])
    _, cost, _ = problem.Solve()
    _, energy = map_state(mrf, observed)
    n_costs = mrf.n_features + len(edges(mrf))
    assert energy == pytest.approx(mrf.prior - cost, abs=n_costs * 10.0**-decimals)
