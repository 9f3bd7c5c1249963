"""Preference scores, each against its definition: by enumeration, by hand, and by what must not change it."""

from statistics import NormalDist

import numpy as np
import pytest
from bundles import QUARTERS, bundle_of, models_of, observed_bundles, rearranged
from hypothesis import given, settings
from hypothesis import strategies as st
from oracle import completed_product, energies, posterior

from afa.inference.meanfield import Solver, mean_field
from afa.inference.result import Marginals
from afa.model.closure import half_potentials
from afa.model.mrf import Evidence, PairwiseMRF
from afa.scores.preference import (
    duel_variance,
    gaussian_sign,
    kl,
    kl_nonzero,
    linearity,
    sign_votes,
    stack_a,
    two_elbo,
    wald,
)

QUICK = settings(max_examples=20)
EXACTLY = Solver(tolerance=1e-12, max_iterations=2000)
SMALL = {"entities": (2, 3), "features": (2, 4)}


def states(models, observed):
    """The evidence of every model, observations given by feature index."""
    return [Evidence.of(model, {model.features[j]: value for j, value in observed.items()}) for model in models]


def solved(models, observed, solver=None):
    """The evidence of every model and its mean-field solution."""
    evidence = states(models, observed)
    return evidence, [mean_field(state.mrf, state, solver=solver) for state in evidence]


def all_scores(models, observed, solver=None):
    """Every score that is a function of the observed set, by name."""
    evidence, solutions = solved(models, observed, solver)
    marginals = [solution.marginals for solution in solutions]
    return {
        "wald": wald(evidence),
        "linearity": linearity(evidence, marginals),
        "two_elbo": two_elbo(solutions),
        "stack_a": stack_a(evidence, marginals),
    }


def pair(unary_a, unary_b, coupling_a=None, coupling_b=None, priors=None):
    """Two models on a few features from dense arrays."""
    empty = np.zeros((len(unary_a), len(unary_a)))
    couplings = [empty if coupling is None else coupling for coupling in (coupling_a, coupling_b)]
    return models_of(bundle_of([unary_a, unary_b], couplings, priors))


def duels(values):
    return np.subtract.outer(values, values)


# By definition


@QUICK
@given(observed_bundles(**SMALL))
def test_wald_is_the_energy_of_the_observed_features_alone(case):
    bundle, observed = case
    x = np.zeros(len(bundle.features))
    x[list(observed)] = list(observed.values())
    energy = [energies(model, x[None, :])[0] for model in models_of(bundle)]
    np.testing.assert_allclose(wald(states(models_of(bundle), observed)), duels(energy), atol=1e-12)


@QUICK
@given(observed_bundles(**SMALL))
def test_linearity_is_the_mean_of_the_duel_under_the_mixture_of_the_two_product_measures(case):
    bundle, observed = case
    models = models_of(bundle)
    evidence, solutions = solved(models, observed)
    expected = np.zeros((len(models), len(models)))
    for a, b in np.ndindex(expected.shape):
        for u in (a, b):
            table, weight = completed_product(solutions[u].marginals, observed)
            expected[a, b] += 0.5 * weight @ (energies(models[a], table) - energies(models[b], table))
    found = linearity(evidence, [solution.marginals for solution in solutions])
    np.testing.assert_allclose(found, expected, atol=1e-10)


@QUICK
@given(observed_bundles(**SMALL))
def test_product_moments_are_the_mean_of_the_duel_under_one_product_of_the_averaged_moments(case):
    bundle, observed = case
    models = models_of(bundle)
    evidence, solutions = solved(models, observed)
    marginals = [solution.marginals for solution in solutions]
    expected = np.zeros((len(models), len(models)))
    for a, b in np.ndindex(expected.shape):
        first = (marginals[a].first + marginals[b].first) / 2
        second = (marginals[a].second + marginals[b].second) / 2
        table, weight = completed_product(Marginals(marginals[a].free, first, second), observed)
        expected[a, b] = weight @ (energies(models[a], table) - energies(models[b], table))
    np.testing.assert_allclose(linearity(evidence, marginals, moments="product"), expected, atol=1e-10)


def test_the_mixture_of_products_is_not_the_product_of_mixtures():
    """D = 4 x0 + 4 x1 + x0 x1, first moments 1/2 under a and -1/2 under b: E[x0 x1] is 1/4 under both, 0 averaged."""
    coupling = np.array([[0.0, 1.0], [1.0, 0.0]])
    models = pair([2.0, 2.0], [-2.0, -2.0], coupling, None)
    evidence = states(models, {})
    up, down = (Marginals(np.arange(2), np.full(2, m), np.full(2, 0.75)) for m in (0.5, -0.5))
    assert linearity(evidence, [up, down])[0, 1] == 0.25
    assert linearity(evidence, [up, down], moments="product")[0, 1] == 0.0


@QUICK
@given(observed_bundles(**SMALL), st.integers(0, 3))
def test_with_one_free_feature_linearity_and_two_elbo_are_exact(case, left):
    bundle, observed = case
    models = models_of(bundle)
    observed = {j: observed.get(j, 1) for j in range(len(bundle.features)) if j != left}
    scores = all_scores(models, observed, EXACTLY)
    posteriors = [posterior(model, observed) for model in models]
    table = posteriors[0][0]
    energy = np.array([energies(model, table) for model in models])
    mean = np.array([[weight @ of_v for of_v in energy] for _, weight, _ in posteriors])
    own = np.diag(mean)
    expected = 0.5 * (duels(own) + mean.T - mean)
    np.testing.assert_allclose(scores["linearity"], expected, atol=1e-8)
    np.testing.assert_allclose(scores["two_elbo"], duels([log_z for _, _, log_z in posteriors]), atol=1e-8)


@QUICK
@given(observed_bundles(**SMALL, potentials=QUARTERS))
def test_without_couplings_linearity_and_two_elbo_are_exact_at_any_observed_set(case):
    bundle, observed = case
    models = [PairwiseMRF(m.unary, np.zeros(m.couplings.shape), m.prior, m.features) for m in models_of(bundle)]
    scores = all_scores(models, observed, EXACTLY)
    posteriors = [posterior(model, observed) for model in models]
    np.testing.assert_allclose(scores["two_elbo"], duels([log_z for _, _, log_z in posteriors]), atol=1e-8)
    for a, b in np.ndindex(scores["linearity"].shape):
        expected = sum(
            0.5 * weight @ (energies(models[a], table) - energies(models[b], table))
            for table, weight, _ in (posteriors[a], posteriors[b])
        )
        assert scores["linearity"][a, b] == pytest.approx(expected, abs=1e-8)


@QUICK
@given(observed_bundles(full=True, **SMALL))
def test_at_full_observation_every_score_is_the_duel_and_stack_a_its_sign(case):
    bundle, observed = case
    models = models_of(bundle)
    x = [observed[j] for j in range(len(bundle.features))]
    expected = duels([model.energy(x) for model in models])
    scores = all_scores(models, observed)
    for score in ("wald", "linearity", "two_elbo"):
        np.testing.assert_allclose(scores[score], expected, atol=1e-12)
    decided = np.abs(expected) > 1e-9
    np.testing.assert_array_equal(scores["stack_a"][decided], np.sign(expected)[decided])


def test_two_elbo_counts_log_3_for_each_unobserved_feature_outside_the_support():
    models = pair([0.0, 1.0, 0.0], [0.0, 0.0, 0.0])
    _, solutions = solved(models, {0: 1}, EXACTLY)
    assert two_elbo(solutions)[0, 1] == pytest.approx(np.log(1 + 2 * np.cosh(1.0)) - np.log(3))


# stack_a


def test_stack_a_of_two_features_by_hand():
    """D = pi + 1.5 x0 - x1 + 2 x0 x1 with a's moments (.5, .25) and b's (-.5, 0), second moments 3/4 and 1/2."""
    coupling = np.array([[0.0, 2.0], [2.0, 0.0]])
    models = pair([1.0, -1.0], [-0.5, 0.0], coupling, None, priors=[0.5, 0.25])
    evidence = states(models, {})
    of_a = Marginals(np.arange(2), np.array([0.5, 0.25]), np.array([0.75, 0.5]))
    of_b = Marginals(np.arange(2), np.array([-0.5, 0.0]), np.array([0.75, 0.5]))
    mu = 0.25 + 0.5 * ((0.75 - 0.25 + 2 * 0.125) + (-0.75))
    mixture_variance = np.array([0.75 - 0.0**2, 0.5 - 0.125**2])
    sigma = np.sqrt(1.5**2 * mixture_variance[0] + 1.0 * mixture_variance[1] + 2.0**2)
    assert duel_variance(*evidence, of_a, of_b) == pytest.approx(sigma**2)
    expected = 2 * NormalDist().cdf(mu / sigma) - 1
    assert linearity(evidence, [of_a, of_b])[0, 1] == pytest.approx(mu)
    assert stack_a(evidence, [of_a, of_b])[0, 1] == pytest.approx(expected)
    assert stack_a(evidence, [of_a, of_b])[1, 0] == pytest.approx(-expected)


def test_stack_a_counts_what_was_observed_in_its_mean_and_not_in_its_variance():
    """x0 = 1 observed turns D = x0 + x1 + x0 x1 + x1 x2 into 1 + 2 x1 + x1 x2; b has no potentials."""
    coupling = np.array([[0, 1, 0], [1, 0, 1], [0, 1, 0]], dtype=float)
    models = pair([1.0, 1.0, 0.0], [0.0, 0.0, 0.0], coupling)
    evidence = states(models, {0: 1})
    flat = Marginals(np.array([1, 2]), np.array([0.0, 0.2, 0.0]), np.array([0.0, 0.6, 0.6]))
    sigma = np.sqrt(4 * (0.6 - 0.04) + 1)
    assert stack_a(evidence, [flat, flat])[0, 1] == pytest.approx(2 * NormalDist().cdf((1 + 0.4) / sigma) - 1)


@pytest.mark.parametrize(("mean", "sign"), [(3.0, 1.0), (-1e-9, -1.0), (0.0, 0.0)])
def test_a_duel_without_variance_has_the_sign_of_its_mean(mean, sign):
    assert gaussian_sign(mean, 0.0) == sign


@QUICK
@given(observed_bundles(**SMALL, potentials=QUARTERS))
def test_stack_a_lies_between_minus_one_and_one_with_the_sign_of_linearity(case):
    bundle, observed = case
    scores = all_scores(models_of(bundle), observed)
    assert (np.abs(scores["stack_a"]) <= 1).all()
    decided = np.abs(scores["linearity"]) > 1e-9
    np.testing.assert_array_equal(np.sign(scores["stack_a"])[decided], np.sign(scores["linearity"])[decided])


# What the scores do not depend on


@QUICK
@given(observed_bundles(**SMALL))
def test_every_score_but_kl_is_antisymmetric(case):
    bundle, observed = case
    models = models_of(bundle)
    votes = kl_nonzero(models, list(observed.items()))
    for score, values in (all_scores(models, observed) | {"kl_nonzero": votes}).items():
        np.testing.assert_allclose(values, -values.T, atol=1e-12, err_msg=score)


@QUICK
@given(observed_bundles(**SMALL, potentials=QUARTERS), st.randoms(use_true_random=False))
def test_every_score_but_the_votes_depends_only_on_the_observed_set(case, random):
    bundle, observed = case
    items = list(observed.items())
    random.shuffle(items)
    models = models_of(bundle)
    once, again = all_scores(models, observed), all_scores(models, dict(items))
    for score, values in once.items():
        np.testing.assert_allclose(again[score], values, atol=1e-9, err_msg=score)


@QUICK
@given(observed_bundles(entities=(2, 4), features=(2, 3)), st.data())
def test_entities_in_another_order_permute_the_duels_and_nothing_else(case, data):
    bundle, observed = case
    names = data.draw(st.permutations(bundle.entities))
    at = [bundle.entities.index(name) for name in names]
    other = models_of(rearranged(bundle, entities=tuple(names)))
    models, items = models_of(bundle), list(observed.items())
    before = all_scores(models, observed) | {"kl": kl(models, items), "kl_nonzero": kl_nonzero(models, items)}
    after = all_scores(other, observed) | {"kl": kl(other, items), "kl_nonzero": kl_nonzero(other, items)}
    for score, values in before.items():
        np.testing.assert_allclose(after[score], values[np.ix_(at, at)], atol=1e-12, err_msg=score)


def plus(mrf, other):
    return PairwiseMRF(mrf.unary + other.unary, mrf.couplings + other.couplings, mrf.prior + other.prior, mrf.features)


@QUICK
@given(observed_bundles(entities=(3, 3), features=(2, 4), potentials=QUARTERS))
def test_what_both_entities_share_leaves_wald_as_it_is(case):
    bundle, observed = case
    a, b, shared = models_of(bundle)
    before = wald(states([a, b], observed))
    after = wald(states([plus(a, shared), plus(b, shared)], observed))
    np.testing.assert_allclose(after, before, atol=1e-12)


def test_what_both_entities_share_moves_two_elbo_and_stack_a():
    """Spec B5: with g = 2 x0 in both classes the same S = x0 gives log-odds and a saddle-point score of their own."""
    one, zero = half_potentials(PairwiseMRF([1.0], [[0.0]]))
    shared = PairwiseMRF([2.0], [[0.0]])
    bare = all_scores([one, zero], {}, EXACTLY)
    moved = all_scores([plus(one, shared), plus(zero, shared)], {}, EXACTLY)
    log_z = [np.log(1 + 2 * np.cosh(h)) for h in (2.5, 1.5)]
    assert bare["two_elbo"][0, 1] == pytest.approx(0.0, abs=1e-9)
    assert moved["two_elbo"][0, 1] == pytest.approx(log_z[0] - log_z[1])
    assert bare["stack_a"][0, 1] == pytest.approx(0.0, abs=1e-9)
    assert moved["stack_a"][0, 1] > 0.5
    assert moved["wald"][0, 1] == bare["wald"][0, 1] == 0.0


# Votes


VOTERS = pair([1.0, 0.0, 1.0], [-1.0, 0.0, 2.0])
"""delta = (2, 0, -1): x0 = 1 votes for a, x1 votes for nobody, x2 = 1 votes for b."""


@pytest.mark.parametrize(
    ("seen", "for_a", "for_b", "without_zeros"),
    [
        ([], 0.0, 0.0, 0.0),
        ([(0, 1)], 1.0, -1.0, 1.0),
        ([(1, 1)], -1.0, -1.0, 0.0),
        ([(0, 0)], -1.0, -1.0, 0.0),
        ([(2, 1)], -1.0, 1.0, -1.0),
        ([(0, 1), (1, -1)], 0.0, -1.0, 1.0),
        ([(0, 1), (1, 1), (2, 1)], -1 / 3, -1 / 3, 0.0),
        ([(0, 1), (2, -1)], 1.0, -1.0, 1.0),
    ],
)
def test_votes_by_hand_with_zero_votes_against_both(seen, for_a, for_b, without_zeros):
    assert kl(VOTERS, seen)[0, 1] == pytest.approx(for_a)
    assert kl(VOTERS, seen)[1, 0] == pytest.approx(for_b)
    assert kl_nonzero(VOTERS, seen)[0, 1] == pytest.approx(without_zeros)
    assert kl_nonzero(VOTERS, seen)[1, 0] == pytest.approx(-without_zeros)


def test_entities_that_state_nothing_have_no_votes():
    silent = pair([0.0, 0.0], [0.0, 0.0])
    assert not np.any(sign_votes(silent, [(0, 1), (1, -1)]))


def test_two_orders_of_the_same_observations_can_vote_for_different_entities():
    """D = x0 - 3 x0 x1. x0 = 1 first votes for a, then x1 (now -3) for b; x1 first has no vote, then x0 is for b."""
    coupling = np.array([[0.0, -3.0], [-3.0, 0.0]])
    models = pair([1.0, 0.0], [0.0, 0.0], coupling)
    assert kl_nonzero(models, [(0, 1), (1, 1)])[0, 1] == 0.0
    assert kl_nonzero(models, [(1, 1), (0, 1)])[0, 1] == -1.0
    assert kl(models, [(0, 1), (1, 1)])[0, 1] == 0.0
    assert kl(models, [(1, 1), (0, 1)])[0, 1] == -1.0


@QUICK
@given(observed_bundles(**SMALL, potentials=QUARTERS))
def test_a_vote_is_the_sign_of_what_the_observation_adds_to_wald(case):
    bundle, observed = case
    models = models_of(bundle)
    positive, negative = np.zeros((2, len(models), len(models)))
    seen, before = {}, wald(states(models, {}))
    for j, value in observed.items():
        seen[j] = value
        after = wald(states(models, seen))
        positive += after - before > 1e-9
        negative += after - before < -1e-9
        before = after
    np.testing.assert_array_equal(sign_votes(models, list(observed.items())), (positive, negative))


# Edges


@pytest.mark.parametrize("observed", [{}, {0: -1}, {0: 1, 1: 1}, {0: 1, 1: -1, 2: 0}])
def test_potentials_of_ten_thousand_and_entities_without_any_give_finite_scores(observed):
    coupling = 1e4 * np.array([[0, 1, 0], [1, 0, -1], [0, -1, 0]])
    models = [*pair([1e4, -1e4, 1.0], [-1e4, 1e4, 0.0], coupling), PairwiseMRF(np.zeros(3), np.zeros((3, 3)))]
    models = [PairwiseMRF(m.unary, m.couplings, m.prior, ("f0", "f1", "f2")) for m in models]
    items = list(observed.items())
    for score, values in (all_scores(models, observed) | {"kl": kl(models, items)}).items():
        assert np.isfinite(values).all(), score


def test_entities_with_equal_models_tie_in_every_score():
    coupling = np.array([[0, 0.7, 0], [0.7, 0, -1.1], [0, -1.1, 0]])
    models = pair([0.3, -0.1, 0.9], [0.3, -0.1, 0.9], coupling, coupling)
    for observed in ({}, {1: 1}, {0: 1, 1: -1, 2: 1}):
        for score, values in all_scores(models, observed).items():
            np.testing.assert_array_equal(values, 0.0, err_msg=score)
