"""Shares of right decisions, worked by hand."""

import numpy as np
import pytest

from afa.evaluate.accuracy import Resampled, auroc, constant_answers, mean_ratio, right_of


def area_by_pairs(scores, positive):
    """Share of (positive, negative) pairs that the scores put in order, ties one half."""
    differences = scores[positive][:, None] - scores[~positive][None, :]
    return (np.sign(differences) + 1).mean() / 2


SIGNS = np.array([[[1, -1], [0, 1]], [[1, 1], [-1, 0]]], dtype=np.int8)
TARGET = np.array([[1, 1], [-1, 0]], dtype=np.int8)
EVERY = np.ones((2, 2), dtype=bool)


def test_a_tie_is_half_right_and_a_case_without_target_is_left_out():
    right, total = right_of(SIGNS, TARGET, EVERY)
    assert right.tolist() == [[1.5, 1.0], [0.0, 0.0]]
    assert total.tolist() == [[2, 2], [1, 1]]


def test_only_the_cases_asked_for_are_counted():
    right, total = right_of(SIGNS, TARGET, TARGET == -1)
    assert right.tolist() == [[0, 0], [0, 0]]
    assert total.tolist() == [[0, 0], [1, 1]]


def test_a_mean_over_parts_weighs_them_alike():
    parts = [(np.array([[1.0]]), np.array([[1.0]])), (np.array([[0.0]]), np.array([[9.0]]))]
    assert mean_ratio(parts, np.ones((1, 1))).tolist() == [[0.5]]


def test_a_part_without_cases_has_no_mean():
    assert np.isnan(mean_ratio([(np.zeros((1, 1)), np.zeros((1, 1)))], np.ones((1, 1)))).all()


@pytest.fixture
def resampled():
    return Resampled.of(range(2), resamples=500, confidence=0.9, purpose="a test")


def test_an_interval_over_two_patients_spans_what_either_alone_would_give(resampled):
    row = resampled.mean([(np.array([[0.0], [4.0]]), np.array([[4.0], [4.0]]))]).iloc[0]
    assert (row["value"], row["low"], row["high"], row["n"]) == (0.5, 0.0, 1.0, 8)


def test_a_gap_is_resampled_in_pairs(resampled):
    """Each patient alone has a gap of one half: so has every resample, however the levels differ."""
    low = [(np.array([[0.0], [2.0]]), np.array([[4.0], [4.0]]))]
    high = [(np.array([[2.0], [4.0]]), np.array([[4.0], [4.0]]))]
    row = resampled.gap(high, low).iloc[0]
    assert (row["value"], row["low"], row["high"]) == (0.5, 0.5, 0.5)


def test_the_best_constant_answer_is_chosen_per_task():
    majority, positive = constant_answers(np.array([[1, -1], [1, -1], [-1, 1]], dtype=np.int8))
    assert majority[0].tolist() == [1, -1]
    assert (positive == 1).all()


@pytest.mark.parametrize("seed", range(4))
def test_the_area_under_the_curve_is_the_share_of_pairs_in_order(seed):
    generator = np.random.default_rng(seed)
    scores, positive = generator.integers(0, 4, size=(12, 3)).astype(float), generator.random(12) < 0.4
    expected = [area_by_pairs(scores[:, t], positive) for t in range(3)]
    np.testing.assert_allclose(auroc(scores, positive), expected)


def test_one_class_alone_has_no_curve():
    assert np.isnan(auroc(np.zeros((3, 2)), np.ones(3, dtype=bool))).all()
