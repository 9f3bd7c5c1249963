"""Annealed importance sampling, against exact inference and against what can be worked out by hand."""

import numpy as np
import pytest

import afa
from afa.errors import InferenceError
from afa.inference.annealed import annealed, standard_error
from afa.inference.exact import exact, pair_moments
from afa.mrf import Evidence, PairwiseMRF


def random_model(n, seed, density=1.0, strength=1.0):
    generator = np.random.default_rng(seed)
    upper = np.triu(generator.normal(size=(n, n)) * (generator.random((n, n)) < density), 1)
    return PairwiseMRF(strength * generator.normal(size=n), strength * (upper + upper.T), 0.3)


def sampled(mrf, evidence=None, seed=0, **effort):
    return annealed(mrf, evidence, generator=np.random.default_rng(seed), **effort)


def test_two_features_by_hand():
    # exp(w x y) with e^w = 2: Z = 5 + 2 * 2 + 2 / 2 = 10, E[x y] = (4 - 1) / 10, E[x^2] = (2 + 4 + 1) / 10
    weight = np.log(2)
    found = sampled(PairwiseMRF([0.0, 0.0], [[0.0, weight], [weight, 0.0]]), chains=20000, steps=20)
    assert found.log_partition == pytest.approx(np.log(10), abs=4 * found.error)
    assert 0 < found.error < 0.01
    np.testing.assert_allclose(found.pair_moments(), [[0.7, 0.3], [0.3, 0.7]], atol=0.02)
    np.testing.assert_allclose(found.marginals.first, [0, 0], atol=0.03)
    np.testing.assert_allclose(found.marginals.second, [0.7, 0.7], atol=0.02)


@pytest.mark.parametrize("start", ["uniform", "mean_field"])
@pytest.mark.parametrize(("n", "density"), [(4, 0.5), (7, 1.0)])
def test_the_mean_weight_is_the_partition_function_however_few_the_steps(start, n, density):
    mrf = random_model(n, seed=n, density=density, strength=0.6)
    truth = exact(mrf).log_partition
    runs = [sampled(mrf, seed=run, chains=25, steps=3, start=start) for run in range(400)]
    ratios = np.exp([run.log_partition - truth for run in runs])
    assert abs(ratios.mean() - 1) < 4 * ratios.std(ddof=1) / np.sqrt(len(ratios))
    assert ratios.std() > 0.01  # or this would test nothing


@pytest.mark.parametrize("start", ["uniform", "mean_field"])
def test_log_partition_and_moments_are_those_of_exact_inference_within_their_error(start):
    mrf = random_model(10, seed=1, strength=0.8)
    evidence = Evidence.of(mrf, {"x2": 1, "x5": -1})
    truth, (first, pairs) = exact(mrf, evidence), pair_moments(mrf, evidence)
    found = sampled(mrf, evidence, chains=4000, steps=100, start=start)
    assert found.log_partition == pytest.approx(truth.log_partition, abs=4 * found.error)
    assert found.error < 0.05
    np.testing.assert_allclose(found.marginals.first, first, atol=0.08)
    np.testing.assert_allclose(found.marginals.second, truth.marginals.second, atol=0.08)
    np.testing.assert_allclose(found.pair_moments(), pairs, atol=0.08)


def test_the_error_that_is_told_is_the_error_that_is_made():
    mrf = random_model(8, seed=5, strength=0.7)
    truth = exact(mrf).log_partition
    runs = [sampled(mrf, seed=run, chains=200, steps=20) for run in range(200)]
    scores = np.array([(run.log_partition - truth) / run.error for run in runs])
    assert 0.8 < scores.std() < 1.25


def test_both_of_two_opposite_modes_are_found():
    n = 8
    couplings = 1.5 * (np.ones((n, n)) - np.eye(n))
    mrf = PairwiseMRF(np.zeros(n), couplings)
    found = sampled(mrf, chains=500, steps=100)
    assert found.log_partition == pytest.approx(exact(mrf).log_partition, abs=4 * found.error)
    assert abs(found.marginals.first).max() < 0.2
    assert found.marginals.second.min() > 0.99


def test_features_outside_the_support_are_uniform_and_the_prior_counts():
    mrf = PairwiseMRF([1.0, 0.0, 0.0], np.zeros((3, 3)), 0.5)
    found = sampled(mrf, chains=5000, steps=10)
    assert found.marginals.free.tolist() == [0]
    assert found.log_partition == pytest.approx(exact(mrf).log_partition, abs=4 * found.error)
    assert found.marginals.second[1:].tolist() == [2 / 3, 2 / 3]


def test_where_nothing_is_free_there_is_no_error():
    mrf = random_model(3, seed=0)
    found = sampled(mrf, {"x0": 1, "x1": 0, "x2": -1}, chains=10, steps=2)
    assert (found.log_partition, found.error, found.effective) == pytest.approx((mrf.energy([1, 0, -1]), 0.0, 10.0))
    assert found.values.shape == (10, 0)


def test_chains_that_do_not_agree_have_a_large_error():
    mrf = random_model(12, seed=3, strength=4.0)
    hasty, patient = sampled(mrf, chains=200, steps=1), sampled(mrf, chains=200, steps=400)
    assert hasty.error == float("inf")
    assert hasty.effective < 10
    assert patient.error < 1


def test_the_error_grows_as_fewer_chains_are_effective():
    told = [standard_error(effective, 100) for effective in (100, 50, 20, 5)]
    assert told[0] == 0
    assert told == sorted(told)
    assert told[-1] == float("inf")


def test_the_same_generator_gives_the_same_chains_and_another_one_others():
    mrf = random_model(6, seed=2)
    one, again, other = (sampled(mrf, seed=seed, chains=50, steps=5) for seed in (1, 1, 2))
    assert one.weights.tobytes() == again.weights.tobytes() != other.weights.tobytes()
    assert one.values.tobytes() == again.values.tobytes()
    assert afa.annealed(mrf, chains=50, steps=5).log_partition == annealed(mrf, chains=50, steps=5).log_partition


@pytest.mark.parametrize(("chains", "steps"), [(1, 10), (10, 0)])
def test_too_few_chains_or_steps_are_refused(chains, steps):
    with pytest.raises(InferenceError, match="2 chains and 1 step"):
        annealed(random_model(3, seed=0), chains=chains, steps=steps)


def test_an_unknown_start_is_refused():
    with pytest.raises(InferenceError, match="uniform or mean_field"):
        annealed(random_model(3, seed=0), start="exact")
