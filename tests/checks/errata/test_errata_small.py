"""Items 1 to 3, 23 and 25, the gauge and what a Layer 0 certificate needs come out either way, on small models."""

from __future__ import annotations

import numpy as np
import pytest
from errata_rows import by_name

from afa.checks.errata import computed
from afa.checks.errata.computed import dominating, enough_better, in_top_k
from afa.checks.errata.small import (
    SmallModel,
    common_gauge,
    dropped_normaliser,
    equal_normalisers,
    expected_under_mixture,
    maximum_entropy,
    outside_the_union,
    random_models,
    readings,
    unbiased_start,
)
from afa.inference.meanfield import Solver
from afa.mrf import PairwiseMRF

FULL = np.ones((3, 3)) - np.eye(3)
TRIANGLE = SmallModel(np.zeros(3), FULL, "ternary", 1.0)
"""S is 3 in 2 configurations, 1 in 6, 0 in 7 and -1 in 12."""
EDGE = SmallModel(np.zeros(2), np.ones((2, 2)) - np.eye(2), "ternary", 1.0)
"""S is 1 in 2 configurations, -1 in 2, and 0 in 5."""
UNARY = SmallModel(np.array([1.0, -2.0]), np.zeros((2, 2)), "ternary", 0.0)


def test_the_normalisers_of_a_triangle_by_hand() -> None:
    def partition(half: float) -> float:
        return 2 * np.exp(3 * half) + 6 * np.exp(half) + 7 + 12 * np.exp(-half)

    row = by_name(equal_normalisers([TRIANGLE]))["coupled"]
    assert row.value == pytest.approx(abs(np.log(partition(0.5) / partition(-0.5))))
    assert row.holds is False


def test_normalisers_that_are_equal_despite_a_coupling_are_found_to_be() -> None:
    row = by_name(equal_normalisers([EDGE]))["coupled"]
    assert row.value == pytest.approx(0, abs=1e-12)
    assert row.holds is True


def test_normalisers_are_equal_without_couplings_and_with_couplings_that_both_classes_share() -> None:
    rows = by_name(equal_normalisers([UNARY, TRIANGLE, *random_models(1)]))
    assert rows["unary_only"].holds is True
    assert rows["shared_couplings"].holds is True
    assert rows["coupled"].holds is False


def test_without_a_model_with_couplings_the_check_waits() -> None:
    assert by_name(equal_normalisers([UNARY]))["coupled"].pending


def test_the_expected_sign_of_a_triangle_by_hand() -> None:
    one = np.array([2 * np.exp(1.5), 6 * np.exp(0.5), 7.0, 12 * np.exp(-0.5)])
    zero = np.array([2 * np.exp(-1.5), 6 * np.exp(-0.5), 7.0, 12 * np.exp(0.5)])
    signs = np.array([1, 1, 0, -1])
    expected = (one @ signs / one.sum() + zero @ signs / zero.sum()) / 2
    assert expected_under_mixture(TRIANGLE, np.sign, shift=False) == pytest.approx(expected)
    assert abs(expected) > 0.01


def test_the_expected_sign_is_zero_without_couplings_and_not_with_them() -> None:
    rows = by_name(unbiased_start([UNARY, TRIANGLE]))
    assert rows["sign_ternary_density_0"].holds is True
    assert rows["sign_ternary_density_1"].holds is False
    assert rows["sign_not_zero"].value == 1.0
    assert by_name(unbiased_start([UNARY, EDGE]))["sign_not_zero"].holds is True


def test_what_equal_normalisers_do_give_is_a_zero_expected_tanh() -> None:
    rows = by_name(unbiased_start(random_models(1)))
    assert rows["expected_tanh"].holds is True
    assert rows["log_odds"].holds is True


def test_the_half_potentials_lose_entropy_unless_the_score_is_nearly_constant() -> None:
    faint = SmallModel(np.array([1e-6, 0.0]), np.zeros((2, 2)), "gaussian", 0.0)
    assert by_name(maximum_entropy([TRIANGLE]))["entropy_gap"].holds is False
    assert by_name(maximum_entropy([faint]))["entropy_gap"].holds is True


def test_both_closures_are_symmetric_under_a_swap_of_the_classes() -> None:
    rows = by_name(maximum_entropy([model for model in random_models(1) if model.varies]))
    assert rows["half_symmetry"].holds is True
    assert rows["strict_symmetry"].holds is False
    assert rows["larger_entropy"].value == 1.0


def test_a_model_is_the_same_whatever_is_drawn_beside_it() -> None:
    alone = random_models(1, sizes=(4,), densities=(0.5,), kinds=("gaussian",))[0]
    among = [
        model for model in random_models(3) if (model.kind, model.density, len(model.unary)) == ("gaussian", 0.5, 4)
    ]
    np.testing.assert_array_equal(alone.coupling, among[0].coupling)


def test_the_example_of_two_features_has_the_numbers_that_the_page_says() -> None:
    rows = by_name(maximum_entropy([TRIANGLE])) | by_name(unbiased_start([TRIANGLE]))
    found = {name: rows[f"example_{name}"].value for name in ("entropy_gap", "total_variation", "sign", "score")}
    assert found == pytest.approx(
        {"entropy_gap": 0.097, "total_variation": 0.175, "sign": -0.207, "score": 0.182}, abs=6e-4
    )


def test_the_dropped_normaliser_turns_the_sign_of_real_and_of_integer_class_models() -> None:
    rows = by_name(dropped_normaliser(600))
    assert rows["gaussian_opposite"].value + rows["gaussian_tied"].value == pytest.approx(0.076, abs=0.015)
    assert rows["ternary_opposite"].value == pytest.approx(0.012, abs=0.006)
    assert rows["ternary_tied"].value == pytest.approx(0.082, abs=0.02)
    assert rows["gaussian_opposite"].holds is False


def test_a_neighbour_coupled_alike_in_both_entities_has_a_gain_outside_the_union() -> None:
    rows = by_name(outside_the_union(Solver()))
    side = np.array([[np.exp(a + a * b) for b in (-1, 0, 1)] for a in (-1, 0, 1)]).sum(axis=0)
    p, q = side / side.sum(), side[::-1] / side.sum()
    expected = (p @ np.log(2 * p / (p + q)) + q @ np.log(2 * q / (p + q))) / 2
    assert rows["exact_cmi"].value == pytest.approx(expected)
    assert rows["exact_cmi"].value == pytest.approx(0.088, abs=5e-4)
    assert rows["mean_field_cmi"].value > 0.05
    assert rows["wald_magnitude"].holds is True


def test_a_common_gauge_moves_the_inferred_scores_and_nothing_that_depends_on_the_difference_alone() -> None:
    rows = by_name(common_gauge([model for model in random_models(1, sizes=(4, 5)) if model.varies], Solver()))
    assert {rows[f"moves_{name}"].holds for name in ("wald", "l1", "full_observation")} == {True}
    assert {rows[f"turns_{name}"].value for name in ("wald", "l1", "full_observation")} == {0.0}
    assert rows["moves_two_elbo"].holds is False
    assert rows["moves_hanson_wright"].holds is False
    assert rows["moves_stack_a"].value > 0.5
    assert rows["constant_turns_wald"].holds is False


def test_readings_at_full_observation_are_the_score_in_every_class() -> None:
    score = PairwiseMRF([1.0, -0.5], [[0.0, 2.0], [2.0, 0.0]])
    values = {"x0": 1, "x1": -1}
    found = readings((score.scaled(0.5), score.scaled(-0.5)), values, values, Solver())
    expected = score.energy([1, -1])
    assert found["wald"] == found["two_elbo"] == found["full_observation"] == pytest.approx((expected,))
    assert found["l1"] == pytest.approx((expected, expected))


LOW, HIGH = np.array([0.0, 2.0, 2.5, 6.0, 7.0, 8.0]), np.array([1.0, 3.0, 4.0, 9.0, 9.0, 9.0])


def test_who_is_beaten_for_certain_by_hand() -> None:
    assert dominating(LOW, HIGH).tolist() == [5, 3, 3, 0, 0, 0]
    assert in_top_k(LOW, HIGH, 2).tolist() == [False, False, False, True, True, True]
    assert in_top_k(LOW, HIGH, 4).tolist() == [False, True, True, True, True, True]


def test_k_better_entities_are_enough_and_n_minus_k_are_not_always() -> None:
    rows = by_name(enough_better(60))
    assert rows["k_is_enough"].holds is True
    assert rows["kept_needlessly"].value > 0
    assert rows["above_one_half"].holds is False


def test_intervals_that_all_overlap_certify_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    wide = (-np.ones(computed.N), np.ones(computed.N))
    monkeypatch.setattr(computed, "random_intervals", lambda index: wide)
    assert all(row.pending for row in enough_better(3))


def test_entities_in_one_line_make_both_rules_keep_the_same(monkeypatch: pytest.MonkeyPatch) -> None:
    # one entity below all others, which overlap: it has N - 1 >= N - k better ones
    low, high = np.array([-9.0, *[0.0] * (computed.N - 1)]), np.array([-8.0, *[1.0] * (computed.N - 1)])
    monkeypatch.setattr(computed, "random_intervals", lambda index: (low, high))
    assert by_name(enough_better(2))["kept_needlessly"].holds is True
