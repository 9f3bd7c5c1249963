"""The compiled rule `frontier` against the belief that a planner holds."""

import numpy as np
import pytest
from bundles import bundle_of

from afa.engine.frontier import frontier_paths
from afa.planner.rules.base import best
from afa.scores.belief import Background, Belief, ScoreTable

N, M, K = 5, 9, 2


def problem(seed, *, whole):
    """A bundle, ten patients, and their background; with `whole` all potentials are whole numbers, so that many tie."""
    rng = np.random.default_rng(seed)
    make = (lambda *size: rng.integers(-2, 3, size)) if whole else (lambda *size: rng.normal(size=size))
    bundle = bundle_of(make(N, M), make(N, M, M) * (rng.random((N, M, M)) < 0.3), make(N))
    common = rng.integers(-1, 2, (40, 1))
    values = np.where(rng.random((40, M)) < 0.5, common, rng.integers(-1, 2, (40, M)))
    values[10:, 0] = 1  # a feature that varies among the patients of the question alone
    return bundle, values[:10].astype(np.int8), values[10:]


@pytest.mark.parametrize("whole", [False, True])
@pytest.mark.parametrize("seed", [0, 1])
@pytest.mark.parametrize("dependence", [False, True])
def test_patients_are_followed_as_by_the_readable_belief(seed, whole, dependence):
    bundle, patients, others = problem(seed, whole=whole)
    background = Background.of_patients(bundle, others)
    background = background if dependence else background.independent()
    assert (background.covariance is not None) == dependence
    table = ScoreTable.of_bundle(bundle)
    found = frontier_paths(table, background, patients, K, threads=2)
    for p, values in enumerate(patients):
        belief = Belief(table, background)
        for t in range(M):
            np.testing.assert_allclose(found.mean[p, t], belief.mean, atol=1e-9)
            chosen = best(belief.frontier(K), table.features, ~belief.observed)
            assert found.fallback[p, t] == (chosen is None)
            if chosen is not None:
                assert found.order[p, t] == chosen
            belief.observe(int(found.order[p, t]), int(values[found.order[p, t]]))
        np.testing.assert_allclose(found.mean[p, M], belief.mean, atol=1e-9)
        np.testing.assert_allclose(belief.mean, table.scores(values[None])[0], atol=1e-9)
        assert sorted(found.order[p]) == list(range(M))
