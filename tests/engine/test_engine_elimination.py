"""Compiled exact log-partitions, against listing every configuration and against `afa.exact`."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from oracle import models, posterior

from afa.engine.elimination import log_partitions
from afa.errors import InferenceError
from afa.inference.exact import exact
from afa.model.closure import half_potentials
from afa.model.mrf import Evidence, PairwiseMRF

SIZES = (1, 7)


def random_states(n_rows, n_features, seed, share=0.5):
    generator = np.random.default_rng(seed)
    observed = generator.random((n_rows, n_features)) < share
    return observed, generator.integers(-1, 2, (n_rows, n_features)).astype(np.int8)


def seen(mrf, observed, values):
    return {mrf.features[j]: int(values[j]) for j in np.flatnonzero(observed)}


def dense_model(n, seed=0, strength=1.0):
    generator = np.random.default_rng(seed)
    upper = np.triu(generator.normal(size=(n, n)), 1)
    return PairwiseMRF(strength * generator.normal(size=n), strength * (upper + upper.T), 0.3)


@st.composite
def states_of_models(draw, rows=4):
    mrf = draw(models(sizes=SIZES))
    n = mrf.n_features
    observed = draw(st.lists(st.lists(st.booleans(), min_size=n, max_size=n), min_size=rows, max_size=rows))
    values = draw(st.lists(st.lists(st.sampled_from([-1, 0, 1]), min_size=n, max_size=n), min_size=rows, max_size=rows))
    return mrf, np.array(observed, dtype=bool), np.array(values, dtype=np.int8)


@given(states_of_models())
def test_log_partitions_are_those_of_enumeration(case):
    mrf, observed, values = case
    found = log_partitions(mrf, observed, values, factors=(0.5, -0.5, 2.0), threads=1)
    for row in range(len(observed)):
        known = {j: int(values[row, j]) for j in np.flatnonzero(observed[row])}
        expected = [posterior(mrf.scaled(factor), known)[2] for factor in (0.5, -0.5, 2.0)]
        np.testing.assert_allclose(found[row], expected, rtol=1e-9, atol=1e-9)


def test_they_are_those_of_exact_on_the_recorded_bundle(recorded_bundle):
    observed, values = random_states(3, len(recorded_bundle.features), 1, share=0.3)
    for entity in ("anemia", "extensive_colitis", "thrombocytosis"):
        mrf = recorded_bundle.mrf(entity)
        found = log_partitions(mrf, observed, values)
        for row in range(len(observed)):
            evidence = seen(mrf, observed[row], values[row])
            expected = [exact(half, evidence).log_partition for half in half_potentials(mrf)]
            np.testing.assert_allclose(found[row], expected, rtol=1e-12)


def test_two_coupled_features_by_hand():
    mrf = PairwiseMRF([0.0, 0.0, 0.0], [[0.0, 2.0, 0.0], [2.0, 0.0, 0.0], [0.0, 0.0, 0.0]], prior=0.5)
    observed = np.array([[False, False, False], [True, False, False], [True, True, True]])
    values = np.array([[0, 0, 0], [1, 0, 0], [1, -1, 1]], dtype=np.int8)
    unknown = np.log(3 * (5 + 2 * np.e + 2 / np.e))
    one_known = np.log(3 * (1 + np.e + 1 / np.e))
    expected = [[unknown + 0.25], [one_known + 0.25], [-1.0 + 0.25]]
    np.testing.assert_allclose(log_partitions(mrf, observed, values, factors=(0.5,)), expected, rtol=1e-14)


def test_an_unobserved_feature_outside_the_support_is_worth_log_3():
    mrf = PairwiseMRF([1.0, 0.0], np.zeros((2, 2)))
    observed = np.array([[True, False], [True, True]])
    found = log_partitions(mrf, observed, np.ones((2, 2), dtype=np.int8), factors=(1.0,))
    np.testing.assert_allclose(found[:, 0], [1 + np.log(3), 1], rtol=1e-14)


def test_a_model_without_potentials_counts_its_completions():
    observed = np.array([[False, False], [True, False]])
    found = log_partitions(PairwiseMRF([0.0, 0.0], np.zeros((2, 2))), observed, np.zeros((2, 2), dtype=np.int8))
    np.testing.assert_allclose(found, np.log([[9, 9], [3, 3]]), rtol=1e-14)


def test_values_of_unobserved_features_are_not_read():
    mrf = dense_model(5)
    observed, values = random_states(6, 5, 2)
    hidden = np.where(observed, values, 1).astype(np.int8)
    np.testing.assert_array_equal(log_partitions(mrf, observed, values), log_partitions(mrf, observed, hidden))


def test_the_bytes_are_the_same_for_any_number_of_threads_and_any_split():
    mrf = dense_model(9)
    observed, values = random_states(40, 9, 3)
    whole = log_partitions(mrf, observed, values, threads=1)
    assert whole.tobytes() == log_partitions(mrf, observed, values, threads=2).tobytes()
    parts = [log_partitions(mrf, observed[rows], values[rows]) for rows in (slice(0, 13), slice(13, 40))]
    assert whole.tobytes() == np.concatenate(parts).tobytes()


def test_no_state_gives_an_empty_table():
    nothing = np.zeros((0, 4), dtype=np.int8)
    assert log_partitions(dense_model(4), nothing.astype(bool), nothing).shape == (0, 2)


@pytest.mark.parametrize("strength", [20.0, 60.0, 700.0, 5000.0])
def test_potentials_beyond_double_precision_give_what_exact_gives(strength):
    dense = dense_model(6, seed=4, strength=strength)
    couplings = np.pad(dense.couplings.toarray(), (0, 1))
    mrf = PairwiseMRF(np.append(dense.unary, 0.0), couplings, dense.prior)  # the last feature has no potential
    observed, values = random_states(8, 7, 5, share=0.3)
    found = log_partitions(mrf, observed, values)
    for row in range(len(observed)):
        evidence = seen(mrf, observed[row], values[row])
        expected = [exact(half, evidence).log_partition for half in half_potentials(mrf)]
        np.testing.assert_allclose(found[row], expected, rtol=1e-12)


def test_a_long_chain_of_large_total_energy_keeps_within_double_precision():
    n = 2000
    upper = np.diag(np.full(n - 1, 1.0), 1)
    mrf = PairwiseMRF(np.ones(n), upper + upper.T)
    nothing = np.zeros((1, n), dtype=np.int8)
    transfer = np.exp([[x * y + (x + y) / 2 for y in (-1, 0, 1)] for x in (-1, 0, 1)])
    ends = np.exp(np.array([-0.5, 0.0, 0.5]))
    powers = ends
    logarithm = 0.0
    for _ in range(n - 1):
        powers = transfer @ powers
        logarithm += np.log(powers.max())
        powers = powers / powers.max()
    expected = logarithm + np.log(ends @ powers)
    found = log_partitions(mrf, nothing.astype(bool), nothing, factors=(1.0,))
    np.testing.assert_allclose(found[0, 0], expected, rtol=1e-12)


def test_a_state_that_is_too_dense_is_refused_and_one_with_enough_observed_is_solved():
    mrf = dense_model(12)
    nothing, values = np.zeros((1, 12), dtype=bool), np.zeros((1, 12), dtype=np.int8)
    with pytest.raises(InferenceError, match=r"tables of .* entries over 12 features.*at most 1e\+05"):
        log_partitions(mrf, nothing, values, limit=1e5)
    most = nothing.copy()
    most[0, :8] = True
    evidence = seen(mrf, most[0], values[0])
    expected = [exact(half, evidence).log_partition for half in half_potentials(mrf)]
    np.testing.assert_allclose(log_partitions(mrf, most, values, limit=1e5)[0], expected, rtol=1e-12)


def test_features_in_another_order_change_nothing_but_rounding():
    mrf = dense_model(7)
    order = np.random.default_rng(7).permutation(7)
    turned = PairwiseMRF(mrf.unary[order], mrf.couplings[order][:, order], mrf.prior)
    observed, values = random_states(5, 7, 8)
    found = log_partitions(turned, observed[:, order], values[:, order])
    np.testing.assert_allclose(found, log_partitions(mrf, observed, values), rtol=1e-13)


def test_a_conditioned_evidence_has_the_same_log_partition():
    mrf = dense_model(5)
    observed, values = random_states(1, 5, 9)
    state = Evidence.of(mrf.scaled(-0.5), seen(mrf, observed[0], values[0]))
    expected = exact(state.mrf, state).log_partition
    assert log_partitions(mrf, observed, values)[0, 1] == pytest.approx(expected, rel=1e-13)
