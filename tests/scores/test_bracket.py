"""Brackets: the rigorous one against every completion, the heuristic ones against what they are defined to be."""

import numpy as np
import pytest
from bundles import QUARTERS
from hypothesis import given, settings
from hypothesis import strategies as st
from oracle import completions, energies, models, observations, observed_models

from afa.model.mrf import Evidence, PairwiseMRF
from afa.scores.bracket import ALPHA, GAMMA, K1, hanson_wright_interval, kl_interval, l1_budget, l1_interval
from afa.scores.preference import gaussian_sign

FORMS = ("tight", "paper")
CHAIN = PairwiseMRF([1.0, 0.0, -0.5], [[0, 2, 0], [2, 0, -1], [0, -1, 0]], prior=0.25, features=("a", "b", "c"))
QUICK = settings(max_examples=40)
COUNTS = st.integers(0, 300)


def evidence_of(mrf, observed):
    return Evidence.of(mrf, {mrf.features[j]: value for j, value in observed.items()})


# l1


@QUICK
@given(observed_models())
def test_no_completion_leaves_either_l1_interval(case):
    mrf, observed = case
    energy = energies(mrf, completions(mrf, observed))
    for form in FORMS:
        low, high = l1_interval(evidence_of(mrf, observed), form=form)
        assert low - 1e-9 <= energy.min()
        assert energy.max() <= high + 1e-9


@QUICK
@given(observed_models())
def test_the_tight_budget_is_never_larger_than_the_papers(case):
    mrf, observed = case
    state = evidence_of(mrf, observed)
    assert l1_budget(state, form="tight") <= l1_budget(state, form="paper")


@QUICK
@given(observed_models())
def test_the_papers_budget_counts_every_coupling_that_touches_an_unobserved_feature(case):
    mrf, observed = case
    state = evidence_of(mrf, observed)
    strength = np.abs(mrf.couplings.toarray())
    n = mrf.n_features
    touching = sum(strength[j, k] for j in range(n) for k in range(j) if j not in observed or k not in observed)
    inside = sum(strength[j, k] for j in range(n) for k in range(j) if j not in observed and k not in observed)
    unary = np.abs(state.field).sum()
    assert l1_budget(state, form="paper") == pytest.approx(unary + touching)
    assert l1_budget(state, form="tight") == pytest.approx(unary + inside)


def test_l1_of_a_chain_by_hand():
    """With b = 1 there are fields 3 on a and -1.5 on c, and no coupling: the paper still counts |2| + |-1|."""
    state = Evidence.of(CHAIN, {"b": 1})
    assert l1_interval(state) == (0.25 - 4.5, 0.25 + 4.5)
    assert l1_interval(state, form="paper") == (0.25 - 7.5, 0.25 + 7.5)
    assert l1_interval(Evidence.of(CHAIN)) == (0.25 - 4.5, 0.25 + 4.5)
    assert l1_interval(Evidence.of(CHAIN), form="paper") == l1_interval(Evidence.of(CHAIN))


@QUICK
@given(models(), st.lists(st.sampled_from([-1, 0, 1]), min_size=6, max_size=6))
def test_at_full_observation_the_l1_interval_is_the_energy(mrf, values):
    state = evidence_of(mrf, dict(enumerate(values[: mrf.n_features])))
    for form in FORMS:
        low, high = l1_interval(state, form=form)
        assert low == high == pytest.approx(mrf.energy(values[: mrf.n_features]), abs=1e-12)


@QUICK
@given(observed_models(potentials=QUARTERS, prior=False))
def test_a_one_sided_l1_interval_is_never_wrong_about_the_sign(case):
    mrf, observed = case
    energy = energies(mrf, completions(mrf, observed))
    for form in FORMS:
        low, high = l1_interval(evidence_of(mrf, observed), form=form)
        assert low <= 0 or (energy > 0).all()
        assert high >= 0 or (energy < 0).all()


@QUICK
@given(models(), st.data())
def test_one_more_observation_never_widens_the_tight_interval(mrf, data):
    observed = data.draw(observations(mrf))
    state = Evidence.of(mrf)
    low, high = l1_interval(state)
    for j, value in observed.items():
        state = state.observe(j, value)
        next_low, next_high = l1_interval(state)
        assert low - 1e-9 <= next_low
        assert next_high <= high + 1e-9
        low, high = next_low, next_high


def test_the_factor_of_a_score_does_not_move_what_l1_resolves():
    """Spec B5: l1 is a function of S alone, and scaling S scales its interval."""
    state, scaled = (Evidence.of(model, {"a": 1}) for model in (CHAIN, CHAIN.scaled(4.0)))
    assert l1_interval(scaled) == tuple(4 * end for end in l1_interval(state))


# KL


def divergence(p, q):
    with np.errstate(divide="ignore", invalid="ignore"):
        each = [np.where(x > 0, x * np.log(x / y), 0.0) for x, y in ((p, q), (1 - p, 1 - q))]
    return each[0] + each[1]


@pytest.mark.parametrize(
    ("positive", "negative", "n"),
    [
        (1, 0, None),
        (0, 1, None),
        (5, 3, None),
        (40, 2, None),
        (200, 100, None),
        (0, 80, None),
        (30, 10, 253),
        (0, 0, 9),
    ],
)
@pytest.mark.parametrize("gamma", [GAMMA, 0.5])
def test_the_kl_interval_is_what_a_fine_grid_finds(positive, negative, n, gamma):
    n_used = positive + negative if n is None else n
    grid = np.linspace(0, 1, 200_001)
    inside = grid[n_used * divergence(positive / n_used, grid) <= np.log(K1 * n_used**ALPHA / gamma)]
    low, high = kl_interval(positive, negative, n, gamma=gamma)
    assert low == pytest.approx(2 * inside.min() - 1, abs=3e-5)
    assert high == pytest.approx(2 * inside.max() - 1, abs=3e-5)


@QUICK
@given(COUNTS, COUNTS)
def test_without_zero_votes_the_two_orientations_of_the_kl_interval_agree(positive, negative):
    low, high = kl_interval(positive, negative)
    turned_low, turned_high = kl_interval(negative, positive)
    assert (turned_low, turned_high) == pytest.approx((-high, -low), abs=1e-9)


@QUICK
@given(COUNTS, COUNTS, COUNTS)
def test_the_kl_interval_holds_its_score_and_stays_in_range(positive, negative, zeros):
    n = positive + negative + zeros
    low, high = kl_interval(positive, negative, n)
    share = positive / n if n else 0.5
    assert -1 <= low <= 2 * share - 1 + 1e-9
    assert 2 * share - 1 - 1e-9 <= high <= 1


def test_as_written_many_zero_votes_resolve_a_duel_against_both_entities():
    """Three votes for a, one for b, 249 for neither: the paper's n = 253 says that neither beats the other."""
    assert kl_interval(3, 1, 253)[1] < 0
    assert kl_interval(1, 3, 253)[1] < 0
    low, high = kl_interval(3, 1)
    assert low < 0 < high


def test_without_votes_nothing_is_known():
    assert kl_interval(0, 0) == (-1.0, 1.0)


def test_a_duel_needs_some_fifteen_votes_of_one_mind():
    """All n votes for a: low p is exp(-log(405.5 n^1.1 / 0.05) / n), above 1/2 once the level is below log 2."""
    first = next(n for n in range(1, 100) if kl_interval(n, 0)[0] > 0)
    assert first == next(n for n in range(1, 100) if np.log(K1 * n**ALPHA / GAMMA) / n < np.log(2))


# Hanson-Wright


MEANS, VARIANCES = st.floats(-5, 5), st.floats(0.01, 10)


@QUICK
@given(observed_models(), MEANS, VARIANCES)
def test_hanson_wright_holds_its_score_inside_minus_one_to_one(case, mean, variance):
    mrf, observed = case
    score = gaussian_sign(mean, variance)
    low, high = hanson_wright_interval(evidence_of(mrf, observed), mean, variance)
    assert -1 <= low <= score <= high <= 1


@QUICK
@given(observed_models(), MEANS, VARIANCES)
def test_hanson_wright_is_never_narrower_for_a_smaller_gamma(case, mean, variance):
    mrf, observed = case
    state = evidence_of(mrf, observed)
    low, high = hanson_wright_interval(state, mean, variance, gamma=0.2)
    wider_low, wider_high = hanson_wright_interval(state, mean, variance, gamma=0.01)
    assert wider_low <= low
    assert high <= wider_high


def test_hanson_wright_by_hand():
    """With b = 1 the fields are 3 and -1.5: s^2 = 11.25, beta = 0, half-width s |F / mu| sqrt(2 log 40)."""
    state = Evidence.of(CHAIN, {"b": 1})
    score = gaussian_sign(30.0, 900.0)
    width = score / 30.0 * np.sqrt(11.25 * 2 * np.log(40))
    low, high = hanson_wright_interval(state, 30.0, 900.0)
    assert (low, high) == pytest.approx((score - width, min(1.0, score + width)))
    open_low, _ = hanson_wright_interval(Evidence.of(CHAIN), 30.0, 900.0)
    spread, beta = 1.25 + 5.0, 3.0
    assert open_low == pytest.approx(score - score / 30.0 * np.sqrt(spread * 2 * np.log(40) * (1 + beta)))


@QUICK
@given(models(), st.lists(st.sampled_from([-1, 0, 1]), min_size=6, max_size=6))
def test_at_full_observation_hanson_wright_is_the_sign(mrf, values):
    state = evidence_of(mrf, dict(enumerate(values[: mrf.n_features])))
    sign = float(np.sign(state.constant))
    assert hanson_wright_interval(state, state.constant, 0.0) == (sign, sign)


def test_a_mean_of_zero_says_nothing_while_something_is_unobserved():
    assert hanson_wright_interval(Evidence.of(CHAIN), 0.0, 2.0) == (-1.0, 1.0)


# Edges


@pytest.mark.parametrize("observed", [{}, {"a": -1}, {"a": 1, "b": 1}, {"a": 1, "b": -1, "c": 0}])
def test_potentials_of_ten_thousand_and_none_at_all_give_finite_brackets(observed):
    empty = PairwiseMRF(np.zeros(3), np.zeros((3, 3)), features=("a", "b", "c"))
    for mrf in (CHAIN.scaled(1e4), empty):
        state = Evidence.of(mrf, observed)
        intervals = [l1_interval(state, form=form) for form in FORMS]
        intervals.append(hanson_wright_interval(state, state.constant, float((state.field**2).sum())))
        for low, high in intervals:
            assert np.isfinite([low, high]).all()
            assert low <= high
