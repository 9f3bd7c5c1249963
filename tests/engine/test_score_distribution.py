"""The distribution of the score under the two half-potential models, against listing every configuration."""

import numpy as np
import pytest
from bundles import QUARTERS
from hypothesis import given, settings
from hypothesis import strategies as st
from oracle import configurations, energies, models, posterior

from afa.engine.elimination import lattice_step, score_distribution
from afa.errors import InferenceError
from afa.mrf import PairwiseMRF

SIZES = (1, 6)
PRECISION = 1e-12


def enumerated(mrf):
    """Score, p_1 and p_0 of every configuration."""
    scores = energies(mrf, configurations(mrf.n_features))
    return scores, posterior(mrf.scaled(0.5), {})[1], posterior(mrf.scaled(-0.5), {})[1]


def signs(scores):
    return np.where(np.abs(scores) < 1e-9, 0.0, np.sign(scores))


@given(models(sizes=SIZES, potentials=QUARTERS))
def test_probabilities_are_those_of_enumeration(mrf):
    found = score_distribution(mrf, threads=1)
    scores, p1, p0 = enumerated(mrf)
    at = np.abs(scores[:, None] - found.values).argmin(axis=1)
    near = np.abs(scores - found.values[at]) < 1e-9
    for law, probability in ((found.p1, p1), (found.p0, p0)):
        assert probability[~near].sum() < PRECISION
        expected = np.bincount(at[near], weights=probability[near], minlength=len(found.values))
        np.testing.assert_allclose(law, expected, atol=PRECISION)


@given(models(sizes=SIZES, potentials=QUARTERS, prior=False), st.sampled_from([0.0, 0.25, -0.3]))
def test_accuracies_and_expectations_are_those_of_enumeration(plain, prior):
    mrf = PairwiseMRF(plain.unary, plain.couplings, prior)
    found = score_distribution(mrf, threads=1)
    scores, p1, p0 = enumerated(mrf)
    shift = posterior(mrf.scaled(0.5), {})[2] - posterior(mrf.scaled(-0.5), {})[2]
    assert found.shift == pytest.approx(shift, abs=1e-10)
    for accuracy, sign in ((found.bayes_accuracy, signs(scores - shift)), (found.accuracy_of_sign(), signs(scores))):
        assert accuracy == pytest.approx(p1 @ (1 + sign) / 4 + p0 @ (1 - sign) / 4, abs=1e-11)
    assert found.expected_sign == pytest.approx((p1 + p0) @ signs(scores) / 2, abs=1e-11)
    assert found.expected_score == pytest.approx((p1 + p0) @ scores / 2, abs=1e-10)


def test_the_two_laws_differ_by_the_exponential_of_the_score(recorded_bundle):
    found = score_distribution(recorded_bundle.mrf("abdominal_bloating"))
    both = (found.p1 > 1e-6) & (found.p0 > 1e-6)
    assert both.sum() > 5
    ratio = np.log(found.p1[both] / found.p0[both])
    np.testing.assert_allclose(ratio, found.values[both] - found.shift, atol=1e-6)


def test_one_feature_by_hand():
    # S = x: p_1 ~ (e^-1/2, 1, e^1/2) over -1, 0, 1
    found = score_distribution(PairwiseMRF([1.0], np.zeros((1, 1))))
    weight = np.exp([-0.5, 0.0, 0.5])
    np.testing.assert_allclose(found.values, [-1, 0, 1])
    np.testing.assert_allclose(found.p1, weight / weight.sum(), atol=1e-14)
    np.testing.assert_allclose(found.p0, weight[::-1] / weight.sum(), atol=1e-14)
    assert found.shift == pytest.approx(0, abs=1e-14)
    assert found.bayes_accuracy == pytest.approx((weight[2] + 0.5) / weight.sum(), abs=1e-14)
    assert found.expected_sign == pytest.approx(0, abs=1e-14)


def test_the_prior_moves_the_scores_and_the_shift_but_not_the_best_decision():
    unary, couplings = [1.0, -0.5], [[0.0, 0.75], [0.75, 0.0]]
    plain, moved = (score_distribution(PairwiseMRF(unary, couplings, prior)) for prior in (0.0, 0.3))
    np.testing.assert_allclose(moved.values, plain.values + 0.3)
    np.testing.assert_allclose(moved.p1, plain.p1, atol=1e-15)
    assert moved.shift == pytest.approx(plain.shift + 0.3)
    assert moved.bayes_accuracy == pytest.approx(plain.bayes_accuracy)
    assert moved.accuracy_of_sign() != pytest.approx(plain.accuracy_of_sign())


def test_features_outside_the_support_change_only_the_log_partitions():
    narrow = score_distribution(PairwiseMRF([1.0], np.zeros((1, 1))))
    wide = score_distribution(PairwiseMRF([0.0, 1.0, 0.0], np.zeros((3, 3))))
    np.testing.assert_array_equal(wide.p1, narrow.p1)
    assert wide.log_z1 == pytest.approx(narrow.log_z1 + 2 * np.log(3))
    assert wide.shift == pytest.approx(narrow.shift, abs=1e-14)


def test_a_model_without_potentials_has_one_score():
    found = score_distribution(PairwiseMRF([0.0, 0.0], np.zeros((2, 2)), prior=0.5))
    assert found.values.tolist() == [0.5]
    assert found.p1.tolist() == found.p0.tolist() == [1.0]
    assert found.accuracy_of_sign() == found.bayes_accuracy == 0.5


def test_improbable_scores_are_left_out_and_the_rest_sums_to_one(recorded_bundle):
    mrf = recorded_bundle.mrf("anemia")
    found = score_distribution(mrf)
    assert len(found.values) < 2 * mrf.reach + 1
    assert found.p1.sum() == pytest.approx(1, abs=1e-12)
    assert (found.p1[0], found.p0[-1]) == (0, 0)
    assert min(found.p1.min(), found.p0.min()) == 0


def test_the_bytes_are_the_same_for_any_number_of_threads(recorded_bundle):
    mrf = recorded_bundle.mrf("arthropathy")
    one, two = (score_distribution(mrf, threads=threads) for threads in (1, 2))
    assert one.p1.tobytes() == two.p1.tobytes()
    assert one.p0.tobytes() == two.p0.tobytes()


@pytest.mark.parametrize(
    ("potentials", "step"), [([1, -1], 1), ([2, 4], 2), ([0.75, 0.5], 0.25), ([0.1, 0.3], 0.1), ([0, 0], 1)]
)
def test_the_step_is_the_largest_common_divisor(potentials, step):
    assert lattice_step(PairwiseMRF(potentials, np.zeros((2, 2)))) == pytest.approx(step, rel=1e-15)


@pytest.mark.parametrize("potentials", [[1.0, np.sqrt(2)], [1.0, 1e-9], [0.0001, 3.0], [1 / 9973, 1 / 9967]])
def test_potentials_without_a_common_step_are_refused(potentials):
    with pytest.raises(InferenceError, match="without a common step"):
        score_distribution(PairwiseMRF(potentials, np.zeros((2, 2))))


def test_a_model_that_is_too_dense_is_refused():
    n = 14
    with pytest.raises(InferenceError, match="entries over 14 features"):
        score_distribution(PairwiseMRF(np.ones(n), np.ones((n, n)) - np.eye(n)), limit=1e5)


def test_energies_that_double_precision_cannot_hold_are_refused():
    with pytest.raises(InferenceError, match="energies up to 2000 nats"):
        score_distribution(PairwiseMRF([1000.0, 1000.0], np.zeros((2, 2))))


@settings(max_examples=20)
@given(models(sizes=(4, 6), potentials=QUARTERS, prior=False))
def test_exchanging_the_classes_turns_the_scores_round(mrf):
    found, turned = score_distribution(mrf), score_distribution(mrf.scaled(-1.0))
    assert turned.shift == pytest.approx(-found.shift, abs=1e-12)
    assert turned.bayes_accuracy == pytest.approx(found.bayes_accuracy, abs=1e-12)
    assert turned.expected_sign == pytest.approx(-found.expected_sign, abs=1e-11)
