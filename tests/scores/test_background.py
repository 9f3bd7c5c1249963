"""The expected score over independent features: by enumeration of all completions, and by hand."""

from itertools import product

import numpy as np
import pytest
from bundles import bundle_of, models_of

from afa.model.mrf import Evidence
from afa.scores.preference import background, wald

SHARES = np.array([[0.2, 0.5, 0.3], [0.1, 0.1, 0.8], [0.0, 0.6, 0.4], [1.0, 0.0, 0.0]])


@pytest.fixture
def bundle():
    random = np.random.default_rng(3)
    couplings = random.integers(-1, 2, (3, 4, 4)) * np.triu(np.ones((4, 4)), 1)
    return bundle_of(random.choice([-1, 0, 1], (3, 4)), couplings, priors=[0, 0.5, 0])


@pytest.mark.parametrize("observed", [{}, {1: -1}, {0: 1, 3: 1}, {0: 1, 1: 0, 2: -1, 3: 1}])
def test_the_score_is_the_mean_over_all_values_of_the_unobserved_features(bundle, observed):
    evidence = [Evidence.of(model, {f"f{j}": value for j, value in observed.items()}) for model in models_of(bundle)]
    rows = np.array([x for x in product((-1, 0, 1), repeat=4) if all(x[j] == value for j, value in observed.items())])
    free = [j for j in range(4) if j not in observed]
    weights = np.prod(SHARES[free, rows[:, free] + 1], axis=1)
    expected = weights @ bundle.energies(rows)
    np.testing.assert_allclose(background(evidence, SHARES), expected[:, None] - expected[None, :], atol=1e-12)


def test_features_that_are_low_as_often_as_high_leave_what_has_been_observed():
    models = models_of(bundle_of([[1.0, 0.5], [0.0, -1.0]], np.zeros((2, 2, 2))))
    evidence = [Evidence.of(model, {"f0": 1}) for model in models]
    np.testing.assert_allclose(background(evidence, np.full((2, 3), 1 / 3)), wald(evidence))
