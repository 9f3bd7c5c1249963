"""The half-potential closure: two class models made of one score, and the log-odds between them."""

import numpy as np
import pytest
from bundles import bundle_of, random_bundles
from examples import examples
from hypothesis import given
from hypothesis import strategies as st
from oracle import completions, configurations, energies, models, observations, observed_models, posterior

from afa.errors import BundleError
from afa.inference.class_odds import two_elbo
from afa.model.closure import closed_bundle, contraction, half_potentials
from afa.model.mrf import Evidence, PairwiseMRF

CHAIN = PairwiseMRF([1.0, 0.0, -0.5], [[0, 2, 0], [2, 0, -1], [0, -1, 0]], prior=0.4, features=("a", "b", "c"))


def named(mrf, observed):
    return {mrf.features[j]: value for j, value in observed.items()}


@examples(25)
@given(models())
def test_the_two_classes_have_half_the_energy_and_its_opposite(mrf):
    one, zero = half_potentials(mrf)
    table = configurations(mrf.n_features)
    energy = energies(mrf, table)
    np.testing.assert_allclose(energies(one, table), energy / 2, atol=1e-12)
    np.testing.assert_allclose(energies(zero, table), -energy / 2, atol=1e-12)


def test_the_half_potentials_of_a_chain_by_hand():
    one, zero = half_potentials(CHAIN)
    assert one.unary.tolist() == [0.5, 0.0, -0.25]
    assert one.couplings.toarray().tolist() == [[0, 1, 0], [1, 0, -0.5], [0, -0.5, 0]]
    assert one.prior == 0.2
    assert zero.unary.tolist() == [-0.5, 0.0, 0.25]
    assert zero.prior == -0.2


@examples(25)
@given(models(), st.data())
def test_at_full_observation_the_two_elbo_is_the_score(mrf, data):
    values = [data.draw(st.sampled_from([-1, 0, 1])) for _ in range(mrf.n_features)]
    estimate = two_elbo(mrf, named(mrf, dict(enumerate(values))))
    assert estimate.raw == pytest.approx(mrf.energy(values), abs=1e-12)


@examples(25)
@given(observed_models(sizes=(2, 5)))
def test_neither_elbo_exceeds_the_log_partition_of_its_class(case):
    mrf, observed = case
    estimate = two_elbo(mrf, named(mrf, observed))
    one, zero = half_potentials(mrf)
    assert estimate.positive.elbo <= posterior(one, observed)[2] + 1e-9
    assert estimate.negative.elbo <= posterior(zero, observed)[2] + 1e-9


@examples(25)
@given(observed_models(sizes=(2, 5)))
def test_the_error_of_the_two_elbo_changes_sign_with_the_score(case):
    mrf, observed = case

    def error(model):
        one, zero = (posterior(half, observed)[2] for half in half_potentials(model))
        return two_elbo(model, named(model, observed)).raw - (one - zero)

    assert error(mrf.scaled(-1.0)) == pytest.approx(-error(mrf), abs=1e-9)


@examples(25)
@given(st.lists(st.floats(-3, 3), min_size=1, max_size=5), st.floats(-1, 1), st.data())
def test_without_couplings_the_log_odds_are_the_energy_of_what_was_observed(unary, prior, data):
    mrf = PairwiseMRF(unary, np.zeros((len(unary), len(unary))), prior)
    observed = data.draw(observations(mrf))
    estimate = two_elbo(mrf, named(mrf, observed))
    seen = sum(unary[j] * value for j, value in observed.items())
    assert estimate.raw == pytest.approx(prior + seen, abs=1e-9)
    assert estimate.calibrated == pytest.approx(prior + seen, abs=1e-9)


@examples(25)
@given(models())
def test_calibrated_it_is_the_prior_where_nothing_is_known(mrf):
    estimate = two_elbo(mrf)
    assert estimate.calibrated == pytest.approx(mrf.prior, abs=1e-12)
    assert estimate.raw == pytest.approx(estimate.shift + mrf.prior, abs=1e-12)


def test_one_coupling_shifts_the_raw_log_odds_of_one_observation_by_hand():
    """S = 2 x_a x_b and x_a = 1: fields +1 and -1 on b, so log Z is the same for both classes and l-hat is 0."""
    mrf = PairwiseMRF([0.0, 0.0], [[0, 2], [2, 0]])
    assert two_elbo(mrf, {"x0": 1}).raw == pytest.approx(0.0, abs=1e-12)
    assert two_elbo(mrf, {"x0": 1, "x1": 1}).raw == pytest.approx(2.0, abs=1e-12)
    assert two_elbo(mrf, {"x0": 1, "x1": -1}).raw == pytest.approx(-2.0, abs=1e-12)


def test_the_contraction_constant_is_the_largest_absolute_row_sum_left():
    assert contraction(CHAIN) == 3.0
    assert contraction(CHAIN, Evidence.of(CHAIN, {"a": 1})) == 1.0
    assert contraction(CHAIN, Evidence.of(CHAIN, {"b": -1})) == 0.0
    assert contraction(CHAIN, Evidence.of(CHAIN, {"a": 0, "b": 0, "c": 0})) == 0.0


@examples(25)
@given(observed_models())
def test_the_closure_halves_the_contraction_constant(case):
    mrf, observed = case
    whole = contraction(mrf, Evidence.of(mrf, named(mrf, observed)))
    for half in half_potentials(mrf):
        assert contraction(half, Evidence.of(half, named(mrf, observed))) == pytest.approx(whole / 2)


@examples(25)
@given(random_bundles(features=(2, 4)), st.data())
def test_the_duel_of_the_closed_bundle_is_the_score_of_the_entity(bundle, data):
    entity = data.draw(st.sampled_from(bundle.entities))
    closed = closed_bundle(bundle, entity)
    assert closed.entities == (entity, f"not {entity}")
    assert closed.features == bundle.features
    duel = closed.mrf(entity) - closed.mrf(f"not {entity}")
    table = completions(duel, {})
    np.testing.assert_allclose(energies(duel, table), energies(bundle.mrf(entity), table), atol=1e-12)
    for name, half in zip(closed.entities, half_potentials(bundle.mrf(entity)), strict=True):
        np.testing.assert_array_equal(closed.mrf(name).unary, half.unary)
        assert (closed.mrf(name).couplings != half.couplings).nnz == 0
        assert closed.mrf(name).prior == half.prior


def test_an_entity_the_bundle_does_not_have_cannot_be_closed(bundle_tiny):
    with pytest.raises(BundleError, match="no entity 'fever'"):
        closed_bundle(bundle_tiny, "fever")


def test_an_entity_without_potentials_closes_to_two_uniform_models():
    bundle = bundle_of(np.zeros((2, 3)), np.zeros((2, 3, 3)))
    estimate = two_elbo(bundle.mrf("v0"), {"f1": 1})
    assert (estimate.raw, estimate.calibrated) == (0.0, 0.0)


def test_fields_of_ten_thousand_stay_finite():
    mrf = PairwiseMRF([1e4, -1e4, 1.0], [[0, 1e4, 0], [1e4, 0, -1e4], [0, -1e4, 0]])
    for observed in ({}, {"x0": -1}, {"x0": 1, "x1": 1, "x2": -1}):
        estimate = two_elbo(mrf, observed)
        assert np.isfinite([estimate.raw, estimate.shift, estimate.calibrated]).all()
    assert estimate.raw == pytest.approx(mrf.energy([1, 1, -1]))
