"""What a cohort's values decide: hand-made patients on which each check comes out either way."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from bundles import bundle_of
from errata_rows import by_name, cohort_of

from afa.bundle import Bundle
from afa.checks.errata.computed import support_met
from afa.checks.errata.patients import (
    CohortExpression,
    down_regulation,
    load_expression,
    opposite_profile,
    structural_ties,
    vote_for_neither,
    written_code,
)
from afa.cohort import geo
from afa.cohort.build import build_cohort
from afa.cohort.config import load_cohort_config, simulation_config
from afa.cohort.encode import Coding
from afa.cohort.simulate import simulate, write_geo_layout
from afa.inference.meanfield import Solver

ROOT = Path(__file__).parents[3]


def test_a_score_without_couplings_tells_a_profile_from_its_opposite() -> None:
    bundle = bundle_of([[1.0, 1.0]], np.zeros((1, 2, 2)))
    rows = by_name(opposite_profile(bundle, cohort_of(bundle, [[1, 1], [-1, -1]])))
    assert (rows["against_unaries"].holds, rows["mirror"].holds) == (True, True)
    assert rows["quadratic_share"].value == 0.0


def test_a_score_that_is_mostly_quadratic_does_not() -> None:
    # S(1, 1) = 2 + 3 and S(-1, -1) = -2 + 3: both positive
    bundle = bundle_of([[1.0, 1.0]], [[[0.0, 3.0], [3.0, 0.0]]])
    rows = by_name(opposite_profile(bundle, cohort_of(bundle, [[1, 1], [-1, -1]])))
    assert (rows["against_unaries"].value, rows["negative_sum_positive"].value, rows["mirror"].value) == (0.5, 1.0, 1.0)
    assert rows["mirror"].holds is False
    assert rows["quadratic_share"].value == pytest.approx(0.6)


def test_an_all_zero_cohort_has_no_positive_score_to_mirror() -> None:
    bundle = bundle_of([[1.0, 1.0]], np.zeros((1, 2, 2)))
    rows = by_name(opposite_profile(bundle, cohort_of(bundle, [[0, 0]])))
    assert rows["mirror"].pending
    assert rows["against_unaries"].value == 0.0


def test_ties_at_full_observation_by_hand() -> None:
    bundle = bundle_of([[1.0, 0.0], [0.0, 1.0]], np.zeros((2, 2, 2)))
    rows = by_name(structural_ties(bundle, cohort_of(bundle, [[1, 1], [1, 0], [1, -1], [0, 0]]), 0.16))
    row = rows["structural_ties"]
    assert (row.value, row.claim_value, row.n) == (0.5, 0.16, 4)
    assert (rows["ties_by_patient"].value, rows["ties_by_patient"].holds) == (1.0, False)


def test_ties_that_every_patient_has_would_be_the_entities_own() -> None:
    bundle = bundle_of([[1.0, 0.0], [1.0, 0.0], [0.0, 1.0]], np.zeros((3, 2, 2)))
    rows = by_name(structural_ties(bundle, cohort_of(bundle, [[1, -1], [-1, 1]]), 0.16))
    assert rows["structural_ties"].value == pytest.approx(1 / 3)
    assert (rows["ties_by_patient"].value, rows["ties_by_patient"].holds) == (0.0, True)


def test_the_support_met_by_a_random_order_by_hand() -> None:
    unary = np.zeros((2, 20))
    unary[0, :2] = unary[1, 4:10] = 1.0
    rows = by_name(support_met(bundle_of(unary, np.zeros((2, 20, 20)))))
    assert rows["support_met"].value == pytest.approx((1 + 3) / 2)
    assert rows["support_informed"].value == pytest.approx((2 + 6) / 2)
    # 10 of 20 miss both of two features: 10/20 * 9/19
    assert rows["support_missed"].value == pytest.approx((90 / 380 + 210 / 38760) / 2)


def test_on_sparse_supports_the_vote_says_the_other_one_both_ways() -> None:
    unary = np.zeros((2, 5))
    unary[0, 0] = 1.0
    bundle = bundle_of(unary, np.zeros((2, 5, 5)))
    row = by_name(vote_for_neither(bundle, cohort_of(bundle, [[1, 0, 0, 0, 0]]), Solver(), 5))["neither"]
    assert (row.value, row.holds) == (1.0, False)


def test_where_every_feature_votes_it_does_not() -> None:
    bundle = bundle_of([[1.0, 1.0, 1.0], [0.0, 0.0, 0.0]], np.zeros((2, 3, 3)))
    row = by_name(vote_for_neither(bundle, cohort_of(bundle, [[1, 1, 1]]), Solver(), 5))["neither"]
    assert (row.value, row.holds) == (0.0, True)


def expression(offset: float) -> CohortExpression:
    """One gene, 40 controls around `offset`, a low patient, a high one and one in the middle."""
    controls = offset + np.linspace(-1, 1, 40)
    patients = [offset - 3, offset + 3, offset + 0.01]
    values = pd.DataFrame([[*controls, *patients]], index=["gene"], columns=[f"s{i}" for i in range(43)])
    return CohortExpression.of(values, np.arange(43) < 40, "empirical", 0.05)


def test_a_low_positive_quantity_is_not_called_down_as_the_paper_writes_it() -> None:
    assert written_code(expression(10.0)).tolist() == [[0, 1, 0]]
    rows = by_name(down_regulation(expression(10.0)))
    assert (rows["lowest_written"].value, rows["lowest_written"].holds) == (0.0, False)
    assert (rows["lowest_centred"].value, rows["down_centred"].value) == (1.0, pytest.approx(1 / 3))
    assert rows["down_above_median"].pending


def test_a_quantity_around_zero_is_called_alike_by_both() -> None:
    assert written_code(expression(0.0)).tolist() == [[-1, 1, 0]] == expression(0.0).code.tolist()
    rows = by_name(down_regulation(expression(0.0)))
    assert (rows["lowest_written"].value, rows["lowest_written"].holds) == (1.0, True)
    assert rows["down_above_median"].value == 0.0


def test_what_is_called_down_below_an_outlier_among_the_controls_is_high() -> None:
    values = pd.DataFrame([[*[0.0] * 39, 400.0, 5.0]])
    rows = by_name(down_regulation(CohortExpression.of(values, np.arange(41) < 40, "empirical", 0.05)))
    assert (rows["down_written"].value, rows["down_above_median"].value) == (1.0, 1.0)
    assert rows["lowest_written"].pending


def test_without_expression_values_the_encoding_is_not_checked() -> None:
    row = down_regulation(None)[0]
    assert row.pending
    assert row.value is None


def test_the_values_read_again_give_the_code_that_the_cohort_has(recorded_bundle: Bundle, tmp_path: Path) -> None:
    config = load_cohort_config(ROOT / "config" / "cohorts" / "demo.yaml")
    write_geo_layout(simulate(simulation_config(config), recorded_bundle), config, tmp_path)
    source = geo.fetch(config, cache=tmp_path / "cache", mirror=tmp_path)
    cohort = build_cohort(config, source, recorded_bundle.features, recorded_bundle.entities)
    read = load_expression(config, source, recorded_bundle, Coding("controls"), aliases={}, ensembl={})
    np.testing.assert_array_equal(read.code.T, cohort.values)
