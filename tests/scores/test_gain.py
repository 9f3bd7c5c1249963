"""Gains: what one more feature tells of a duel, against enumeration and against look-aheads written out."""

import numpy as np
import pytest
from bundles import QUARTERS, bundle_of, models_of, observed_bundles
from examples import examples
from hypothesis import given, settings
from hypothesis import strategies as st
from oracle import enumerated_cmi, exact_log_odds

from afa.inference.meanfield import Solver, mean_field
from afa.inference.result import Marginals
from afa.model.mrf import Evidence, PairwiseMRF
from afa.scores.gain import TARGETS, cmi, f_target, log_odds, site_probabilities, wald_magnitude
from afa.scores.preference import linearity, stack_a, two_elbo

QUICK = settings(max_examples=20)
EXACTLY = Solver(tolerance=1e-12, max_iterations=2000)
TWO = {"entities": (2, 2), "features": (2, 4)}


def states(models, observed):
    return [Evidence.of(model, {model.features[j]: value for j, value in observed.items()}) for model in models]


def uncoupled(bundle):
    return [PairwiseMRF(m.unary, np.zeros(m.couplings.shape), m.prior, m.features) for m in models_of(bundle)]


def marginals_of(evidence, solver=EXACTLY):
    return [mean_field(state.mrf, state, solver=solver).marginals for state in evidence]


def mean_field_cmi(models, observed, odds=None):
    """`cmi` with everything by mean-field, or with the given odds."""
    evidence = states(models, observed)
    odds = log_odds(*evidence, solver=EXACTLY) if odds is None else odds
    return cmi(odds, *marginals_of(evidence), evidence[0].observed)


def class_entropy(odds):
    p = np.array([1 / (1 + np.exp(-odds)), 1 / (1 + np.exp(odds))])
    return float(-(p * np.log(p)).sum())


# Wald magnitude


@QUICK
@given(observed_bundles(**TWO, potentials=QUARTERS))
def test_wald_magnitude_is_the_most_that_one_observation_moves_wald(case):
    bundle, observed = case
    models = models_of(bundle)
    a, b = states(models, observed)
    lead = a.constant - b.constant
    for f, gain in enumerate(wald_magnitude(a, b)):
        if f in observed:
            assert gain == 0.0
        else:
            moved = [a.observe(f, x).constant - b.observe(f, x).constant - lead for x in (-1, 0, 1)]
            assert gain == pytest.approx(max(map(abs, moved)))


def test_wald_magnitude_by_hand():
    coupling = np.array([[0, 2, 0], [2, 0, 0], [0, 0, 0]], dtype=float)
    models = models_of(bundle_of([[1, 1, 0], [0, 4, -1]], [coupling, np.zeros((3, 3))]))
    assert wald_magnitude(*states(models, {})).tolist() == [1.0, 3.0, 1.0]
    assert wald_magnitude(*states(models, {0: -1})).tolist() == [0.0, 5.0, 1.0]


# Conditional mutual information


@QUICK
@given(observed_bundles(**TWO))
def test_without_couplings_cmi_is_that_of_enumeration(case):
    bundle, observed = case
    models = uncoupled(bundle)
    np.testing.assert_allclose(mean_field_cmi(models, observed), enumerated_cmi(models, observed), atol=1e-9)
    evidence = states(models, observed)
    assert log_odds(*evidence, solver=EXACTLY) == pytest.approx(exact_log_odds(models, observed), abs=1e-9)


@QUICK
@given(observed_bundles(full=True, **TWO), st.integers(0, 3))
def test_with_one_free_feature_and_exact_odds_cmi_is_that_of_enumeration(case, left):
    bundle, observed = case
    observed.pop(left % len(bundle.features))
    models = models_of(bundle)
    found = mean_field_cmi(models, observed, exact_log_odds(models, observed))
    np.testing.assert_allclose(found, enumerated_cmi(models, observed), atol=1e-8)


def test_cmi_of_two_opposite_fields_by_hand():
    """Equal priors; p(x = 1) is 1/2 under a and 0 under b, where x = -1 has 1/2: a half-way revealing feature."""
    up = Marginals(np.array([0]), np.array([0.5]), np.array([0.5]))
    down = Marginals(np.array([0]), np.array([-0.5]), np.array([0.5]))
    assert cmi(0.0, up, down, np.array([False]))[0] == pytest.approx(np.log(2) / 2)


@QUICK
@given(observed_bundles(**TWO), st.floats(-20, 20))
def test_cmi_is_between_nothing_and_the_entropy_of_the_class(case, odds):
    bundle, observed = case
    gains = mean_field_cmi(models_of(bundle), observed, odds)
    assert (gains >= 0).all()
    assert (gains <= class_entropy(odds) + 1e-12).all()


@QUICK
@given(observed_bundles(**TWO), st.floats(-20, 20))
def test_cmi_is_the_same_for_the_two_entities_turned_round(case, odds):
    bundle, observed = case
    models = models_of(bundle)
    turned = mean_field_cmi(models[::-1], observed, -odds)
    np.testing.assert_allclose(mean_field_cmi(models, observed, odds), turned, rtol=1e-9, atol=1e-12)


def test_cmi_is_zero_where_observed_and_where_neither_entity_has_a_potential():
    models = models_of(bundle_of([[1, 0, 2, 0], [0, 0, -1, 1]], np.zeros((2, 4, 4))))
    gains = mean_field_cmi(models, {2: 1})
    assert (gains > 0).tolist() == [True, False, False, True]


def test_features_that_both_entities_expect_alike_tell_nothing():
    coupling = np.array([[0, 1, 0], [1, 0, -0.5], [0, -0.5, 0]])
    models = models_of(bundle_of([[1, 0.3, -2]] * 2, [coupling, coupling]))
    for observed in ({}, {1: 1}):
        for odds in (0.0, 3.0, None):
            assert not mean_field_cmi(models, observed, odds).any()


@pytest.mark.parametrize("odds", [800.0, -800.0, 36.0, -36.0, 710.0])
def test_extreme_odds_leave_nothing_to_learn_and_stay_finite(odds):
    models = models_of(bundle_of([[5, 0], [-5, 1]], np.zeros((2, 2, 2))))
    gains = mean_field_cmi(models, {}, odds)
    assert np.isfinite(gains).all()
    assert (gains >= 0).all()
    assert (gains <= class_entropy(min(abs(odds), 700)) + 1e-12).all()


@QUICK
@given(observed_bundles(**TWO))
def test_probabilities_of_the_three_values_add_up_to_one(case):
    bundle, observed = case
    for marginals in marginals_of(states(models_of(bundle), observed)):
        table = site_probabilities(marginals)
        np.testing.assert_allclose(table.sum(axis=1), 1.0, atol=1e-12)
        np.testing.assert_allclose(table[marginals.free], marginals.probabilities, atol=1e-12)


def test_log_odds_include_the_prior_once_and_start_there():
    models = models_of(bundle_of([[1, 0], [0, 2]], np.zeros((2, 2, 2)), priors=[0.75, -0.5]))
    assert log_odds(*states(models, {})) == pytest.approx(1.25)
    expected = 1.25 + 1.0 - np.log(1 + 2 * np.cosh(1.0)) + np.log(3)
    assert log_odds(*states(models, {0: 1}), solver=EXACTLY) == pytest.approx(expected)


# Look-ahead


def duel_score(target, models, observed):
    evidence = states(models, observed)
    solutions = [mean_field(state.mrf, state) for state in evidence]
    marginals = [solution.marginals for solution in solutions]
    if target == "two_elbo":
        return two_elbo(solutions)[0, 1]
    return (linearity if target == "linearity" else stack_a)(evidence, marginals)[0, 1]


def written_out(target, models, observed):
    """The sum over x of p(x) |F(x_obs, x) - F(x_obs)|, each F that of a patient with one more observation."""
    evidence = states(models, observed)
    elbos = [[mean_field(m, e).elbo - mean_field(m).elbo + m.prior] for m, e in zip(models, evidence, strict=True)]
    weights = np.exp([elbo[0] - max(elbos)[0] for elbo in elbos])
    weights /= weights.sum()
    now = duel_score(target, models, observed)
    marginals = marginals_of(evidence, None)
    gains = np.zeros(models[0].n_features)
    for f in set(range(models[0].n_features)) - set(observed):
        for x in (-1, 0, 1):
            m, q = np.array([of.first[f] for of in marginals]), np.array([of.second[f] for of in marginals])
            chance = weights @ (1 - q if x == 0 else (q + x * m) / 2)
            gains[f] += chance * abs(duel_score(target, models, observed | {f: x}) - now)
    return gains


@pytest.mark.parametrize("target", TARGETS)
@examples(8)
@given(case=observed_bundles(entities=(2, 2), features=(2, 3), potentials=QUARTERS))
def test_f_target_is_the_look_ahead_written_out(target, case):
    bundle, observed = case
    models = models_of(bundle)
    found = f_target(*states(models, observed), target=target)
    np.testing.assert_allclose(found, written_out(target, models, observed), atol=1e-9)
    assert not found[list(observed)].any()


@pytest.mark.parametrize("target", TARGETS)
def test_the_value_looked_ahead_to_is_the_score_after_the_observation(target):
    """Both entities are sure of x0 = 1: the gain is how far that one observation moves the score."""
    coupling = np.array([[0, 1, 0], [1, 0, -0.5], [0, -0.5, 0]])
    models = models_of(bundle_of([[300, 1, 0], [300, 0, -1]], [coupling, np.zeros((3, 3))]))
    moved = abs(duel_score(target, models, {0: 1}) - duel_score(target, models, {}))
    assert f_target(*states(models, {}), target=target)[0] == pytest.approx(moved, abs=1e-4)


def test_f_target_of_linearity_by_hand():
    """D = 2 x: E_Q[D] = 0 before; p(1) = p(-1) = q/2 at equal odds, so that the gain is 2 q."""
    models = models_of(bundle_of([[1], [-1]], np.zeros((2, 1, 1))))
    q = 2 * np.cosh(1.0) / (1 + 2 * np.cosh(1.0))
    assert f_target(*states(models, {}), solver=EXACTLY)[0] == pytest.approx(2 * q)


def test_f_targets_of_two_scores_can_choose_different_features():
    """Spec S9: the target has to be named, because linearity asks here for x0 first and two_elbo for x1."""
    couplings = [[[0, -2], [-2, 0]], [[0, 1], [1, 0]]]
    evidence = states(models_of(bundle_of([[0, 1], [1, -1]], couplings)), {})
    best = {target: int(np.argmax(f_target(*evidence, target=target))) for target in TARGETS}
    assert best == {"linearity": 0, "two_elbo": 1, "stack_a": 0}


# Edges


@pytest.mark.parametrize("observed", [{}, {0: -1}, {0: 1, 1: 1}, {0: 1, 1: -1, 2: 0}])
def test_potentials_of_ten_thousand_and_entities_without_any_give_finite_gains(observed):
    coupling = 1e4 * np.array([[0, 1, 0], [1, 0, -1], [0, -1, 0]])
    bundle = bundle_of([[1e4, -1e4, 1], [-1e4, 1e4, 0], [0, 0, 0]], [coupling, np.zeros((3, 3)), np.zeros((3, 3))])
    models = models_of(bundle)
    for pair in (models[:2], models[1:], [models[2], models[2]]):
        evidence = states(pair, observed)
        gains = [wald_magnitude(*evidence), mean_field_cmi(pair, observed)]
        gains += [f_target(*evidence, target=target) for target in TARGETS]
        for gain in gains:
            assert np.isfinite(gain).all()
            assert (gain >= 0).all()
            assert not gain[list(observed)].any()
