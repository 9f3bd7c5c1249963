"""The pair of largest entropy is what a numerical optimiser finds, and has the form that the paper prints."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from oracle import configurations
from scipy.optimize import minimize

from afa.checks.errata.small import (
    ClassPair,
    SmallModel,
    calibrated,
    half_potential_pair,
    log_partition_gap,
    maximum_entropy_pair,
    random_models,
    swap_residual,
    total_variation,
)
from afa.errors import InferenceError

MODELS = [model for model in random_models(2, sizes=(3, 4)) if model.varies]
MODEL = st.sampled_from(MODELS)


def optimised(scores: np.ndarray) -> np.ndarray:
    """p_0 of largest joint entropy with p_1 = exp(S) p_0, by a general optimiser."""
    w = np.exp(scores)

    def negative_entropy(p: np.ndarray) -> float:
        return float((p * np.log(p)).sum() + (w * p * np.log(w * p)).sum())

    def gradient(p: np.ndarray) -> np.ndarray:
        return np.log(p) + 1 + w * (np.log(w * p) + 1)

    start = np.exp(half_potential_pair(scores).zero)
    sums = [{"type": "eq", "fun": lambda p, k=k: k @ p - 1, "jac": lambda p, k=k: k} for k in (np.ones_like(w), w)]
    found = minimize(
        negative_entropy,
        start,
        jac=gradient,
        bounds=[(1e-12, 1)] * len(w),
        constraints=sums,
        method="SLSQP",
        options={"maxiter": 2000, "ftol": 1e-14},
    )
    return np.asarray(found.x)


@pytest.mark.parametrize("index", range(0, len(MODELS), 5))
def test_the_pair_of_largest_entropy_is_that_of_a_numerical_optimiser(index: int) -> None:
    scores = calibrated(MODELS[index].scores)
    if len(scores) > 27:
        scores = scores[:27] - scores[:27].mean()
    found = maximum_entropy_pair(scores)
    np.testing.assert_allclose(np.exp(found.zero), optimised(scores), atol=2e-4)


@given(MODEL)
def test_both_classes_are_normalised_and_have_the_given_ratio(model: SmallModel) -> None:
    scores = calibrated(model.scores)
    for pair in (maximum_entropy_pair(scores), half_potential_pair(scores)):
        np.testing.assert_allclose([np.exp(log_p).sum() for log_p in pair], 1.0, atol=1e-10)
        np.testing.assert_allclose(pair.one - pair.zero, scores, atol=1e-9)


@given(MODEL)
def test_the_optimum_has_the_form_printed_in_the_paper(model: SmallModel) -> None:
    scores = calibrated(model.scores)
    w = np.exp(scores)
    rest = maximum_entropy_pair(scores).zero + 1 + w * np.log(w) / (1 + w)
    basis = -np.stack([1 / (1 + w), w / (1 + w)], axis=1)
    multipliers = np.linalg.lstsq(basis, rest, rcond=None)[0]
    np.testing.assert_allclose(basis @ multipliers, rest, atol=1e-8)


@given(MODEL)
def test_no_pair_of_the_same_ratio_has_more_entropy_than_the_optimum(model: SmallModel) -> None:
    scores = calibrated(model.scores)
    assert maximum_entropy_pair(scores).entropy >= half_potential_pair(scores).entropy - 1e-10


@given(MODEL)
def test_the_cross_term_is_what_the_printed_entropy_leaves_out(model: SmallModel) -> None:
    scores = calibrated(model.scores)
    pair = half_potential_pair(scores)
    q = np.exp(pair.zero + scores / 2)
    printed = -(q * 2 * np.cosh(scores / 2) * np.log(q)).sum()
    left_out = -(q * scores * np.sinh(scores / 2)).sum()
    assert pair.entropy == pytest.approx(printed + left_out, abs=1e-9)


def test_a_score_of_one_sign_has_no_pair_of_that_ratio() -> None:
    with pytest.raises(InferenceError, match="does not change sign"):
        maximum_entropy_pair(np.array([0.0, 1.0, 2.0]))


def test_a_constant_moves_the_log_partitions_and_not_the_half_potential_pair() -> None:
    scores = np.array([0.0, 1.0, 3.0])
    np.testing.assert_allclose(half_potential_pair(scores).one, half_potential_pair(scores + 5).one)
    assert log_partition_gap(scores + 5) == pytest.approx(log_partition_gap(scores) + 5)
    assert log_partition_gap(calibrated(scores)) == pytest.approx(0, abs=1e-12)


def test_the_swap_residual_sees_a_pair_that_favours_a_class() -> None:
    one, zero = np.log([0.5, 0.5]), np.log([0.75, 0.25])
    assert swap_residual(ClassPair(one, zero), ClassPair(zero, one)) == pytest.approx(0)
    assert swap_residual(ClassPair(one, zero), ClassPair(one, zero)) == pytest.approx(0.25)


def test_total_variation_by_hand() -> None:
    assert total_variation(np.log([0.5, 0.5]), np.log([0.75, 0.25])) == pytest.approx(0.25)


def test_scores_of_a_small_model_are_its_energies() -> None:
    for model in MODELS[::9]:
        expected = [model.mrf.energy(x) for x in configurations(len(model.unary))]
        np.testing.assert_allclose(sorted(model.scores), sorted(expected), atol=1e-12)
