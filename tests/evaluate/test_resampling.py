"""Intervals over patients: they cover, they are paired, and they are the same each time."""

from __future__ import annotations

import numpy as np
import pytest

from afa.evaluate.accuracy import Resampled
from afa.evaluate.resampling import interval, patient_weights, percentiles


def ratio_interval(right, total):
    """Interval of sum(right) / sum(total) by column, (P, C) each."""
    resampled = Resampled.of(range(len(right)), resamples=1000, confidence=0.95, purpose="test")
    return resampled.mean([(right, total)])[["low", "high"]].to_numpy().T


def test_the_interval_covers_the_truth_about_as_often_as_it_says() -> None:
    rng = np.random.default_rng(0)
    truth, patients, cohorts = 0.7, 80, 400
    ability = rng.normal(0, 0.1, (patients, cohorts))  # patients differ, their duels go together
    total = np.full((patients, cohorts), 20.0)
    right = rng.binomial(20, np.clip(truth + ability, 0, 1)).astype(float)
    low, high = ratio_interval(right, total)
    covered = np.mean((low <= truth) & (truth <= high))
    assert 0.91 <= covered <= 0.98


def test_the_interval_holds_the_ratio_itself() -> None:
    rng = np.random.default_rng(1)
    total = rng.integers(1, 30, (40, 25)).astype(float)
    right = np.floor(total * rng.random((40, 25)))
    low, high = ratio_interval(right, total)
    ratio = right.sum(axis=0) / total.sum(axis=0)
    assert (low < ratio).all()
    assert (ratio < high).all()


def test_columns_are_resampled_together() -> None:
    rng = np.random.default_rng(2)
    total = np.full((30, 1), 10.0)
    right = rng.integers(0, 8, (30, 1)).astype(float)
    low, high = ratio_interval(np.hstack([right, right + 2]), np.hstack([total, total]))
    assert low[1] - low[0] == pytest.approx(0.2)
    assert high[1] - high[0] == pytest.approx(0.2)


def test_the_same_purpose_and_number_of_patients_give_the_same_draws() -> None:
    first, again, other = (patient_weights(12, resamples=50, purpose=purpose) for purpose in ("a", "a", "b"))
    assert first.tobytes() == again.tobytes()
    assert first.tobytes() != other.tobytes()


def test_every_resample_draws_as_many_patients_as_there_are() -> None:
    weights = patient_weights(9, resamples=100, purpose="a")
    assert weights.shape == (100, 9)
    assert (weights.sum(axis=1) == 9).all()
    assert (weights == weights.round()).all()
    assert abs(weights.mean() - 1) < 1e-12


def test_percentiles_are_those_of_numpy_with_and_without_missing_values() -> None:
    levels, values = [0, 2.5, 25, 50, 97.5, 100], np.random.default_rng(3).normal(size=(101, 4)).round(1)
    np.testing.assert_array_equal(percentiles(values, levels), np.percentile(values, levels, axis=0))
    values[:70, 1], values[1:, 2] = np.nan, np.nan
    np.testing.assert_array_equal(percentiles(values, levels), np.nanpercentile(values, levels, axis=0))
    values[:, 3] = np.nan
    assert np.isnan(percentiles(values, levels)[:, 3]).all()


def test_without_any_total_the_interval_is_not_a_number() -> None:
    right, total = np.zeros((5, 2)), np.zeros((5, 2))
    right[:, 1], total[:, 1] = 1.0, 2.0
    low, high = ratio_interval(right, total)
    assert np.isnan([low[0], high[0]]).all()
    assert [low[1], high[1]] == [0.5, 0.5]


def test_resamples_without_a_total_are_left_out_of_the_interval() -> None:
    right, total = np.zeros((6, 1)), np.zeros((6, 1))
    right[0], total[0] = 3.0, 4.0  # many resamples miss the only patient with a total
    low, high = ratio_interval(right, total)
    assert [low[0], high[0]] == [0.75, 0.75]


def test_an_interval_is_the_middle_share_of_its_statistics() -> None:
    statistics = np.arange(101.0)[:, None]
    low, high = interval(statistics, confidence=0.9)
    assert [low[0], high[0]] == pytest.approx([5, 95])


def test_patients_who_are_all_alike_leave_nothing_uncertain() -> None:
    low, high = ratio_interval(np.full((20, 1), 3.0), np.full((20, 1), 4.0))
    assert [low[0], high[0]] == [0.75, 0.75]
