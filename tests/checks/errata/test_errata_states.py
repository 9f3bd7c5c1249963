"""States of patients: drawn from names, read like the readable scores, and checks that come out either way."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pandas as pd
import pytest
from bundles import bundle_of, models_of, random_bundles
from errata_rows import by_name, cohort_of
from hypothesis import given, settings
from hypothesis import strategies as st
from oracle import posterior

from afa.bundle import Bundle
from afa.checks.errata import share_interval, some_of
from afa.checks.errata.patients import (
    DuelReadings,
    State,
    bias_of,
    biases,
    doubled_couplings,
    duel_readings,
    expected_duel,
    random_states,
    same_sign,
    two_elbo_bias,
)
from afa.closure import half_potentials
from afa.cohort.cohort import Cohort
from afa.inference.meanfield import Solver, mean_field
from afa.mrf import Evidence, PairwiseMRF
from afa.preference import linearity

TRIANGLE = PairwiseMRF([0.5, -0.25, 0.0], np.ones((3, 3)) - np.eye(3))


def made(n_entities: int, couplings: float) -> tuple[Bundle, Cohort]:
    random = np.random.default_rng(3)
    unary, pairwise = random.normal(size=(n_entities, 4)), couplings * random.normal(size=(n_entities, 4, 4))
    bundle = bundle_of(unary, pairwise)
    return bundle, cohort_of(bundle, random.integers(-1, 2, (5, 4)))


def readings(couplings: float, n: int = 20) -> DuelReadings:
    bundle, cohort = made(3, couplings)
    return duel_readings(bundle, cohort, random_states(cohort, n, purpose="test"), Solver())


def test_states_do_not_depend_on_the_order_of_patients() -> None:
    _, cohort = made(2, 1.0)
    turned = replace(cohort, patients=cohort.patients[::-1], values=cohort.values[::-1], labels=cohort.labels[::-1])
    first, second = (random_states(c, 12, purpose="test") for c in (cohort, turned))
    assert [(s.patient, s.order[: s.t].tolist()) for s in first] == [
        (s.patient, s.order[: s.t].tolist()) for s in second
    ]
    assert [cohort.patients[row] for row in some_of(cohort.patients, 2, "x")] == [
        turned.patients[row] for row in some_of(turned.patients, 2, "x")
    ][::-1]


def test_every_patient_has_as_many_states_and_something_is_left_to_observe() -> None:
    _, cohort = made(2, 1.0)
    states = random_states(cohort, 20, purpose="test")
    assert pd.Series([state.patient for state in states]).value_counts().tolist() == [4] * 5
    assert max(state.t for state in states) < 4
    assert {state.t for state in states} == {0, 1, 2, 3}


def test_the_interval_of_a_share_resamples_patients() -> None:
    patients = ["a", "a", "b", "b"]
    assert share_interval([1, 1, 1, 1], patients) == (1.0, 1.0)
    assert share_interval([1, 1, 0, 0], patients) == (0.0, 1.0)
    # each patient has one hit of two, so that no resample of patients changes the share
    assert share_interval([1, 0, 1, 0], patients) == (0.5, 0.5)


@given(random_bundles(), st.randoms(use_true_random=False))
@settings(max_examples=30)
def test_the_product_of_averaged_moments_is_that_of_the_readable_score(bundle: Bundle, random) -> None:
    m = len(bundle.features)
    order, t = np.array(random.sample(range(m), m), dtype=np.int64), random.randint(0, m)
    values = np.array([[random.choice((-1, 0, 1)) for _ in range(m)]])
    read = duel_readings(bundle, cohort_of(bundle, values), [State("p0", 0, 0, order, t)], Solver())
    seen = {bundle.features[j]: int(values[0, j]) for j in order[:t]}
    evidence = [Evidence.of(model, seen) for model in models_of(bundle)]
    marginals = [mean_field(e.mrf, e).marginals for e in evidence]
    for name, moments in (("product", "product"), ("mixture", "mixture")):
        expected = linearity(evidence, marginals, moments=moments)[np.triu_indices(len(evidence), 1)]
        np.testing.assert_allclose(read.cases[name], expected, atol=1e-9)


def test_the_bias_is_the_difference_of_the_two_divergences_by_listing() -> None:
    observed, values = np.array([True, False, False]), np.array([1, 0, 0], dtype=np.int8)
    slack = []
    for model in half_potentials(TRIANGLE):
        log_z = posterior(model, {0: 1})[2]
        slack.append(log_z - mean_field(model, {"x0": 1}).elbo)
    assert bias_of(TRIANGLE, observed, values, Solver()) == pytest.approx(slack[1] - slack[0], abs=1e-9)
    assert abs(slack[1] - slack[0]) > 0.001


def test_the_bias_vanishes_where_a_single_feature_is_left() -> None:
    observed, values = np.array([True, True, False]), np.array([1, -1, 0], dtype=np.int8)
    assert abs(bias_of(TRIANGLE, observed, values, Solver())) < 1e-6


def test_the_bias_of_the_negated_score_is_the_negated_bias() -> None:
    bundle, cohort = made(2, 1.0)
    found = biases(bundle, cohort, Solver(), 30)
    assert by_name(two_elbo_bias(found))["antisymmetry"].holds is True
    assert len(found.bias) == 30


def test_positive_couplings_make_the_bias_favour_class_one() -> None:
    bundle = bundle_of(np.full((1, 8), 0.5), 2 * np.ones((1, 8, 8)))
    cohort = cohort_of(bundle, np.random.default_rng(1).integers(-1, 2, (6, 8)))
    row = by_name(two_elbo_bias(biases(bundle, cohort, Solver(), 40)))["favours_one"]
    assert row.value is not None
    assert row.value > 0.5


def made_biases(bias: list[float], sign: float = -1.0) -> pd.DataFrame:
    table = {"patient": [f"p{i}" for i in range(len(bias))], "bias": bias, "of_negative": sign * np.array(bias)}
    return pd.DataFrame(table)


def test_a_bias_that_takes_both_sides_alike_favours_neither_class() -> None:
    assert by_name(two_elbo_bias(made_biases([1.0, -1.0] * 10)))["favours_one"].holds is True
    assert by_name(two_elbo_bias(made_biases([1.0] * 19 + [-1.0])))["favours_one"].holds is False


def test_an_error_of_the_solvers_tolerance_favours_neither_class() -> None:
    assert by_name(two_elbo_bias(made_biases([1e-8, -1e-9])))["favours_one"].value == 0.5


def test_a_bias_that_does_not_change_sign_with_the_score_is_noticed() -> None:
    assert by_name(two_elbo_bias(made_biases([1.0, -0.5], sign=1.0)))["antisymmetry"].holds is False


def test_without_a_state_that_can_be_solved_the_check_waits() -> None:
    row = two_elbo_bias(made_biases([]))[0]
    assert row.pending
    assert row.value is None


def test_the_two_formulas_for_the_expected_duel_agree_without_couplings_only() -> None:
    assert by_name(expected_duel(readings(0.0)))["mixture_sign"].holds is True
    rows = by_name(expected_duel(readings(2.0)))
    assert rows["mixture_sign"].holds is False
    assert rows["mixture_gap"].value > 0.01


def test_the_mean_as_printed_calls_no_duel_at_full_observation() -> None:
    row = by_name(expected_duel(readings(1.0)))["printed_mean"]
    assert (row.value, row.holds) == (0.5, False)


def test_a_mean_that_kept_the_running_constant_would_be_right() -> None:
    read = readings(1.0)
    kept = replace(read, final=read.final.assign(constant=0.0))
    assert by_name(expected_duel(kept))["printed_mean"].holds is True


def test_stack_a_and_linearity_have_one_sign_and_another_would_be_seen() -> None:
    read = readings(1.0)
    assert (same_sign(read)[0].value, same_sign(read)[0].holds) == (1.0, False)
    turned = replace(read, cases=read.cases.assign(stack_a=-read.cases["stack_a"]))
    assert same_sign(turned)[0].holds is True


def test_the_printed_budget_is_wider_with_couplings_only_and_never_narrower() -> None:
    without, with_couplings = (by_name(doubled_couplings(readings(c))) for c in (0.0, 1.0))
    assert (without["wider"].holds, without["width_ratio"].value) == (True, 1.0)
    assert with_couplings["wider"].holds is False
    assert with_couplings["width_ratio"].value < 1
    assert with_couplings["narrower"].holds is True


def test_a_budget_that_were_narrower_is_noticed() -> None:
    read = readings(1.0)
    assert (
        by_name(doubled_couplings(replace(read, cases=read.cases.assign(between=-read.cases["between"]))))[
            "narrower"
        ].holds
        is False
    )
