"""Scales of scores, by enumeration."""

from itertools import permutations, product

import numpy as np
import pytest
from bundles import bundle_of, energies, random_bundles
from hypothesis import given, settings
from hypothesis import strategies as st

from afa.engine.duels import all_pairs
from afa.stages.inputs import shuffled_genes
from afa.stages.ranking.ways import (
    cohort_scale,
    expected_counts,
    independent_scale,
    known,
    leads,
    raw_scale,
    shuffled_scale,
    uniform_scale,
    whole_scores,
)

QUICK = settings(max_examples=25, deadline=None)


def test_the_uniform_scale_by_hand():
    bundle = bundle_of([[2.0, -1.0]], [[[0.0, 3.0], [3.0, 0.0]]], priors=[0.5])
    scale = uniform_scale(bundle)
    assert scale.mean == pytest.approx([0.5])
    assert scale.sd**2 == pytest.approx([2 / 3 * (4 + 1) + 4 / 9 * 9])


@QUICK
@given(random_bundles(features=(1, 4)), st.data())
def test_a_scale_of_independent_features_is_their_exact_mean_and_deviation(bundle, data):
    m = len(bundle.features)
    counts = np.array(data.draw(st.lists(st.integers(0, 5), min_size=3 * m, max_size=3 * m))).reshape(m, 3) + 1.0
    chances = counts / counts.sum(axis=1, keepdims=True)
    rows = np.array(list(product((-1, 0, 1), repeat=m)))
    weight = np.prod(chances[np.arange(m), rows + 1], axis=1)
    scores = energies(bundle, rows)
    values = np.array([-1, 0, 1])
    mean = chances @ values
    scale = independent_scale(bundle, mean, chances @ values**2 - mean**2)
    np.testing.assert_allclose(scale.mean, scores @ weight, atol=1e-9)
    np.testing.assert_allclose(scale.sd**2, scores**2 @ weight - (scores @ weight) ** 2, atol=1e-7)


def test_the_cohort_scale_takes_frequencies_from_the_patients():
    bundle = bundle_of([[1.0, 0.0]], np.zeros((1, 2, 2)))
    scale = cohort_scale(bundle, np.array([[1, 1], [1, 0], [0, 1], [-1, 0]], dtype=np.int8))
    assert scale.mean == pytest.approx([0.25])
    assert scale.sd**2 == pytest.approx([0.75 - 0.25**2])


@QUICK
@given(random_bundles(features=(1, 5)), st.data())
def test_the_shuffled_scale_is_the_exact_mean_and_deviation_over_all_orders_of_the_values(bundle, data):
    m = len(bundle.features)
    values = np.array(data.draw(st.lists(st.sampled_from([-1, 0, 1]), min_size=m, max_size=m)), dtype=np.int8)
    scores = energies(bundle, list(permutations(values.tolist())))
    scale = shuffled_scale(bundle, np.array([(values == 1).sum()]), np.array([(values == -1).sum()]))
    np.testing.assert_allclose(scale.mean[0], scores.mean(axis=1), atol=1e-9)
    np.testing.assert_allclose(scale.sd[0] ** 2, scores.var(axis=1), atol=1e-7)


def test_shuffling_the_genes_of_a_wide_bundle_comes_to_the_closed_form():
    random = np.random.default_rng(8)
    couplings = random.integers(-1, 2, (2, 30, 30)) * np.triu(np.ones((30, 30)), 1)
    bundle = bundle_of(random.integers(-1, 2, (2, 30)), couplings)
    values = random.choice([-1, 0, 1], 30, p=[0.1, 0.4, 0.5]).astype(np.int8)
    drawn = np.array([whole_scores(bundle, values[shuffled_genes(30, i)]) for i in range(4000)])
    scale = shuffled_scale(bundle, np.array((values == 1).sum()), np.array((values == -1).sum()))
    np.testing.assert_allclose(drawn.mean(axis=0), scale.mean, atol=4 * scale.sd.max() / np.sqrt(4000))
    np.testing.assert_allclose(drawn.std(axis=0), scale.sd, rtol=0.06)


def test_an_entity_that_cannot_vary_is_0_on_a_scale_and_takes_part_as_a_middling_one():
    bundle = bundle_of([[1.0, 1.0], [0.0, 0.0]], np.zeros((2, 2, 2)), priors=[0.0, 4.0])
    scale = uniform_scale(bundle)
    assert scale.sd[1] == 0
    assert scale.divisor.tolist() == [1 / scale.sd[0], 0.0]
    values, orders = np.array([[1, 1], [-1, 0]], dtype=np.int8), np.array([[0, 1], [0, 1]])
    seen = known(bundle, values, orders, [1])
    assert np.sign(leads(seen, "wald", scale, all_pairs(2))[:, -1, 0]).tolist() == [1, -1]
    assert np.sign(leads(seen, "wald", raw_scale(bundle), all_pairs(2))[:, -1, 0]).tolist() == [-1, -1]


def test_expected_counts_use_of_a_patient_what_has_been_observed_and_else_the_frequencies_of_all():
    values = np.array([[1, 1, 0, -1], [1, 0, 0, 1], [1, 1, 0, 0], [1, 0, -1, 0]], dtype=np.int8)
    observed = np.zeros((4, 3, 4), dtype=bool)
    observed[:, 1, :2] = observed[:, 2] = True
    plus, minus = expected_counts(values, observed)
    assert plus[:, 0].tolist() == [2, 2, 2, 2]  # 1 + 1/2 + 0 + 1/4
    assert minus[:, 0].tolist() == [0, 0, 0, 0]  # 1/4 + 1/4 = 1/2, to even
    assert plus[:, 1].tolist() == [2, 1, 2, 1]  # what two genes show, and 1/4
    assert plus[:, 2].tolist() == [2, 2, 2, 1]
    assert minus[:, 2].tolist() == [1, 0, 0, 1]


def test_expected_counts_never_exceed_the_genes():
    values = np.array([[1, 1, 1], [-1, -1, -1]], dtype=np.int8)
    plus, minus = expected_counts(values, np.zeros((2, 1, 3), dtype=bool))
    assert (plus + minus <= 3).all()
