"""The population predictive: by enumeration of the mixture it stands for, and by hand."""

from itertools import product

import numpy as np
import pytest
from bundles import bundle_of, models_of

from afa.inference.meanfield import Solver, mean_field
from afa.mrf import Evidence
from afa.preference import linearity, population, population_posterior, wald

EXACTLY = Solver(tolerance=1e-12, max_iterations=2000)


def solved(models, told):
    """Evidence and solutions of every model given the observations, and those before any."""
    evidence = [Evidence.of(model, told) for model in models]
    given = [mean_field(state.mrf, state, solver=EXACTLY) for state in evidence]
    return evidence, given, [mean_field(model, solver=EXACTLY) for model in models]


@pytest.fixture
def independent():
    """Three models without couplings, where mean-field is exact; two of them with a prior."""
    unary = [[1.0, 0.5, 0.0], [0.0, -1.0, 2.0], [0.5, 0.0, 0.0]]
    return models_of(bundle_of(unary, np.zeros((3, 3, 3)), priors=[0.0, 1.0, -0.5]))


@pytest.mark.parametrize("told", [{}, {"f0": 1}, {"f0": -1, "f2": 1}, {"f0": 1, "f1": 0, "f2": -1}])
def test_it_is_the_expectation_under_the_mixture_of_all_models_and_a_uniform_one(independent, told):
    rows = [x for x in product((-1, 0, 1), repeat=3) if all(x[int(name[1])] == v for name, v in told.items())]
    every = [np.array([model.energy(x) for x in product((-1, 0, 1), repeat=3)]) for model in independent]
    energies = np.array([[model.energy(x) for x in rows] for model in independent])
    weights = [
        np.exp(model.prior) * np.exp(e) / np.exp(a).sum()
        for model, e, a in zip(independent, energies, every, strict=True)
    ]
    mixture = np.sum([*weights, np.full(len(rows), 1 / 27)], axis=0)
    expected = energies @ (mixture / mixture.sum())
    found = population(*solved(independent, told))
    np.testing.assert_allclose(found, np.subtract.outer(expected, expected), atol=1e-6)


def test_before_any_observation_only_priors_tell_the_models_apart(independent):
    posterior = population_posterior(*solved(independent, {}))
    np.testing.assert_allclose(posterior, np.exp([0, 1, -0.5, 0]) / np.exp([0, 1, -0.5, 0]).sum())


def test_a_patient_who_is_like_no_entity_is_of_the_null():
    names = [f"f{j}" for j in range(6)]
    models = models_of(bundle_of([[3.0] * 6, [-3.0] * 6], np.zeros((2, 6, 6)), features=names))
    evidence, given, empty = solved(models, dict.fromkeys(names[:4], 0))
    assert population_posterior(evidence, given, empty)[-1] > 0.999
    np.testing.assert_allclose(population(evidence, given, empty), wald(evidence), atol=0.05)
    assert abs(linearity(evidence, [one.marginals for one in given])[0, 1]) < 1e-9


def test_with_everything_observed_all_that_is_expected_is_what_was_seen(independent):
    evidence, given, empty = solved(independent, {"f0": 1, "f1": -1, "f2": 0})
    np.testing.assert_allclose(population(evidence, given, empty), wald(evidence), atol=1e-12)
