"""What a bundle alone decides: checks that hold on one made bundle and fail on another."""

from __future__ import annotations

import numpy as np
import pandas as pd
import pytest
from bundles import bundle_of
from errata_rows import by_name
from oracle import energies, posterior

from afa.bundle import Bundle
from afa.checks.errata import computed as exact_entities
from afa.checks.errata import some_of
from afa.checks.errata.computed import (
    bundle_normalisers,
    bundle_sign,
    chosen_duels,
    halved_contraction,
    kl_identity,
    largest_slope,
    nothing_observed,
    pooled_start,
    solve_entities,
    two_elbo_target,
)
from afa.closure import half_potentials
from afa.errors import InferenceError
from afa.inference.meanfield import Solver

UNARIES = bundle_of([[1.0, -1.0, 0.0], [0.0, 1.0, 1.0]], np.zeros((2, 3, 3)))
"""No couplings, and the same normaliser for both entities."""


def coupled(strength: float, n: int = 4, unary: float = 0.1) -> Bundle:
    """Two entities, each with all its n features coupled alike; the second has one coupling less."""
    couplings = np.full((2, n, n), strength)
    couplings[1, 0, 1] = 0.0
    return bundle_of(np.full((2, n), unary), couplings)


def halves_of(bundle: Bundle) -> pd.DataFrame:
    return solve_entities(bundle, Solver())


def enumerated_start(bundle: Bundle) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Log Z_1 - log Z_0, E_Q[S] and E_Q[sign S] of every entity by listing."""
    found = []
    for entity in bundle.entities:
        score = bundle.mrf(entity)
        solved = [posterior(model, {}) for model in half_potentials(score)]
        s = energies(score, solved[0][0])
        means = [[weight @ s, weight @ np.sign(np.round(s, 9))] for _, weight, _ in solved]
        found.append([solved[0][2] - solved[1][2], *np.mean(means, axis=0)])
    return tuple(np.array(found).T)


def test_exact_numbers_of_a_bundle_are_those_of_listing() -> None:
    bundle = coupled(0.5)
    log_odds, expected, sign = enumerated_start(bundle)
    found = halves_of(bundle)
    np.testing.assert_allclose(found["log_odds"], log_odds, atol=1e-9)
    np.testing.assert_allclose(found["expected"], expected, atol=1e-9)
    np.testing.assert_allclose(found["expected_sign"], sign, atol=1e-9)


def test_the_normalisers_of_a_bundle_are_equal_without_couplings_only() -> None:
    assert by_name(bundle_normalisers(halves_of(UNARIES)))["bundle_mean"].holds is True
    row = by_name(bundle_normalisers(halves_of(coupled(0.5))))["bundle_mean"]
    assert row.holds is False
    assert row.value == pytest.approx(np.abs(enumerated_start(coupled(0.5))[0]).mean())


def test_the_error_of_the_posterior_is_the_largest_over_all_scores() -> None:
    halves = halves_of(coupled(0.5))
    s = np.linspace(-20, 20, 200_001)
    worst = [np.abs(1 / (1 + np.exp(-s)) - 1 / (1 + np.exp(odds - s))).max() for odds in halves["log_odds"]]
    assert by_name(bundle_normalisers(halves))["bundle_posterior"].value == pytest.approx(np.mean(worst), abs=1e-6)


def test_stack_a_estimates_the_expected_sign_without_couplings_and_not_with_strong_ones() -> None:
    assert by_name(bundle_sign(halves_of(UNARIES)))["stack_a_start"].holds is True
    assert by_name(bundle_sign(halves_of(coupled(1.0, n=6))))["stack_a_start"].holds is False


def test_the_expected_score_and_the_log_odds_agree_without_couplings_and_not_with_them() -> None:
    assert by_name(two_elbo_target(halves_of(UNARIES)))["difference"].holds is True
    rows = by_name(two_elbo_target(halves_of(coupled(0.5))))
    log_odds, expected, _ = enumerated_start(coupled(0.5))
    assert rows["difference"].holds is False
    assert rows["expected_score"].value == pytest.approx(expected.mean())
    assert rows["log_odds"].value == pytest.approx(log_odds.mean())
    assert rows["difference_largest"].value == pytest.approx((expected - log_odds).max())


def test_the_kl_identity_holds_where_the_entities_have_one_normaliser() -> None:
    rows = by_name(kl_identity(halves_of(UNARIES)))
    assert rows["log_z_spread"].holds is True
    assert rows["identity_gap"].holds is True
    assert by_name(kl_identity(halves_of(coupled(0.5))))["identity_gap"].holds is False


def test_the_two_sides_of_the_kl_identity_by_listing() -> None:
    bundle = coupled(0.5)
    models = [bundle.mrf(entity) for entity in bundle.entities]
    (table, p, log_a), (_, r, log_b) = (posterior(model, {}) for model in models)
    difference = energies(models[0], table) - energies(models[1], table)
    expected = (p + r) @ difference / 2
    divergences = (p @ np.log(p / r) - r @ np.log(r / p)) / 2
    assert expected - divergences == pytest.approx(log_a - log_b)
    gap = by_name(kl_identity(halves_of(bundle)))["identity_gap"].value
    assert gap == pytest.approx(abs(expected - divergences), abs=1e-9)


def test_what_is_too_large_to_solve_exactly_is_pending_and_has_no_number(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*args: object, **kwargs: object) -> None:
        raise InferenceError(())

    monkeypatch.setattr(exact_entities, "log_partitions", refuse)
    halves = halves_of(coupled(0.5))
    rows = [*bundle_sign(halves), *bundle_normalisers(halves), *kl_identity(halves), *two_elbo_target(halves)]
    waiting = [row for row in rows if row.pending]
    assert {row.name for row in rows} - {row.name for row in waiting} == {"two_elbo"}
    assert all(row.value is None and row.holds is None for row in waiting)


def test_halving_is_compared_with_the_same_sign() -> None:
    frustrated = coupled(3.0, n=8)
    rows = by_name(halved_contraction(frustrated, 10, Solver()))
    assert [rows[f"capped_{name}"].value for name in ("plus", "half_plus", "minus", "half_minus")] == [0, 0, 1, 1]
    assert rows["capped_half_minus"].holds is True
    moderate = coupled(0.75, n=5)
    rows = by_name(halved_contraction(moderate, 10, Solver(max_iterations=20)))
    assert rows["capped_half_minus"].value < rows["capped_minus"].value
    assert rows["capped_half_minus"].claim_value == rows["capped_minus"].value


def test_beta_of_entities_and_duels_by_hand() -> None:
    bundle = coupled(2.0)
    rows = by_name(halved_contraction(bundle, 10, Solver()))
    assert (rows["beta_entities_least"].value, rows["beta_entities_halved_largest"].value) == (6.0, 3.0)
    # the two entities differ in one coupling of 2
    assert rows["beta_duels_largest"].value == 2.0


def test_the_slope_of_a_ternary_site_is_two_thirds() -> None:
    assert largest_slope() == pytest.approx(2 / 3, abs=1e-12)


def test_which_entities_and_duels_are_taken_does_not_depend_on_their_order() -> None:
    names = [f"v{i}" for i in range(9)]
    kept = {names[i] for i in some_of(names, 4, "entity")}
    assert len(kept) == 4
    assert kept == {names[::-1][i] for i in some_of(names[::-1], 4, "entity")}
    assert len(chosen_duels(coupled(1.0), 0)) == 0
    assert len(chosen_duels(coupled(1.0), 5)) == 1


def test_two_gauges_correlate_over_duels_before_anything_is_observed() -> None:
    strength = np.arange(6)[:, None, None] / 2
    bundle = bundle_of(np.full((6, 4), np.arange(1.0, 7.0)[:, None]), strength * np.ones((6, 4, 4)))
    row = pooled_start(bundle, Solver(), 100)[0]
    assert row.n == 15
    assert row.value > 0.5
    assert row.holds is False


def test_gauges_that_did_not_correlate_before_would_pass() -> None:
    random = np.random.default_rng(0)
    bundle = bundle_of(random.normal(size=(6, 4)), random.uniform(0, 1, (6, 4, 4)))
    row = pooled_start(bundle, Solver(), 100)[0]
    assert abs(row.value) < 0.05
    assert row.holds is True


def test_duels_without_couplings_have_nothing_to_correlate() -> None:
    bundle = bundle_of(np.eye(4), np.zeros((4, 4, 4)))
    assert pooled_start(bundle, Solver(), 100)[0].pending


def test_at_the_profile_of_zeros_only_priors_decide_a_duel() -> None:
    plain = bundle_of(np.eye(2), np.zeros((2, 2, 2)))
    with_prior = bundle_of(np.eye(2), np.zeros((2, 2, 2)), priors=[0.0, 1.0])
    assert by_name(nothing_observed(plain))["decided_at_zero"].value == 0.0
    assert by_name(nothing_observed(with_prior))["decided_at_zero"].value == 1.0
