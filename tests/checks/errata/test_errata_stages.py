"""Items that other stages decide, the gauge on random models, and what a Layer 0 certificate needs."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from bundles import bundle_of

from afa.checks.errata import small
from afa.checks.errata import stages as stage_errata
from afa.checks.errata.bundle import nothing_observed, pooled_start
from afa.checks.errata.models import random_models
from afa.checks.errata.printed import Printed
from afa.checks.errata.rows import Row
from afa.checks.errata.small import common_gauge, dominating, enough_better, in_top_k, readings
from afa.inference.meanfield import Solver
from afa.mrf import PairwiseMRF
from afa.stats.summary import COLUMNS

PAPER = Printed(
    {path.stem: pd.read_csv(path) for path in sorted((Path(__file__).parents[3] / "resources" / "paper").glob("*.csv"))}
)
NOTHING = pd.DataFrame(columns=COLUMNS)


def summary(*rows: dict[str, object]) -> pd.DataFrame:
    return pd.DataFrame(list(rows)).reindex(columns=COLUMNS)


def by_name(rows: list[Row]) -> dict[str, Row]:
    return {row.name: row for row in rows}


def vote(method: str, value: float, t: int = 9, **differs: str) -> dict[str, object]:
    return {
        "table": "sign_accuracy_random",
        "metric": "accuracy",
        "method": method,
        "start": "uniform",
        **differs,
        "t": t,
        "value": value,
        "n": 7,
    }


def test_sign_votes_are_read_at_full_observation() -> None:
    rows = summary(
        vote("kl", 0.9, t=3), vote("kl", 0.5), vote("kl", 0.4, variant="reversed"),
        vote("kl", 0.1, stratum="prior_wrong"),
        vote("kl_nonzero", 0.94),
    )  # fmt: skip
    found = by_name(stage_errata.sign_votes(rows, PAPER))
    assert [found[name].value for name in ("kl", "kl_reversed", "kl_nonzero")] == [0.5, 0.4, 0.94]
    assert [found[name].holds for name in ("kl", "kl_reversed", "kl_nonzero")] == [False, False, True]
    assert {row.claim_value for row in found.values()} == {0.945}


def agreement(score: str, t: int, value: float) -> dict[str, object]:
    cells = {"table": "gauge_agreement", "metric": "rate", "method": score, "reference": "maxent_vs_true"}
    return {**cells, "t": t, "value": value, "n": 10}


def test_agreement_of_the_gauges_is_the_least_and_largest_before_full_observation() -> None:
    rows = [
        agreement(score, t, value) for score in ("two_elbo", "stack_a") for t, value in enumerate((0.2, 0.8, 0.9, 1.0))
    ]
    found = by_name(stage_errata.gauge_agreement(summary(*rows), PAPER))
    assert (found["agreement_two_elbo_least"].value, found["agreement_two_elbo_largest"].value) == (0.8, 0.9)
    assert (found["agreement_stack_a_least"].claim_value, found["agreement_two_elbo_largest"].claim_value) == (
        0.724,
        0.904,
    )
    assert found["agreement_stack_a_least"].holds is False
    assert (found["printed_agreement"].value, found["printed_agreement"].holds) == (0.724, False)


def test_gauges_that_always_agreed_would_pass() -> None:
    rows = [agreement(score, t, 1.0) for score in ("two_elbo", "stack_a") for t in range(4)]
    found = by_name(stage_errata.gauge_agreement(summary(*rows), PAPER))
    assert found["agreement_two_elbo_least"].holds is True


@pytest.mark.parametrize(("over_support", "holds"), [(0.05, False), (0.25, True)])
def test_the_early_gain_is_read_over_all_features_and_over_the_support(over_support: float, holds: bool) -> None:
    cells = {
        "table": "binary", "metric": "gap", "method": "wald", "target": "likelihood", "allocation": "greedy",
        "gain": "cmi", "reference": "random", "n": 5,
    }  # fmt: skip
    rows = summary(
        {**cells, "t": 10, "value": 0.3},
        {**cells, "t": 10, "value": over_support, "variant": "support"},
        {**cells, "t": 50, "value": 0.9},
        {**cells, "t": 10, "value": 0.8, "target": "clinical"},
    )
    found = by_name(stage_errata.early_gain(rows, PAPER))
    assert (found["early_gain"].value, found["early_gain_support"].value) == (0.3, over_support)
    assert found["early_gain_support"].holds is holds
    assert found["early_gain"].claim_value == pytest.approx(0.306)


@pytest.mark.parametrize(("value", "holds"), [(0.97, False), (0.01, True)])
def test_the_pooled_correlation_is_that_with_no_data(value: float, holds: bool) -> None:
    cells = {"table": "gauge_correlation", "metric": "correlation", "variant": "pooled", "value": value, "n": 5}
    rows = summary(*({**cells, "method": score, "t": 0} for score in ("two_elbo", "stack_a")))
    found = by_name(stage_errata.pooled_correlation(rows, PAPER))
    assert {row.value for row in found.values()} == {value}
    assert {row.holds for row in found.values()} == {holds}


@pytest.mark.parametrize(("value", "holds"), [(0.02, False), (0.2, True)])
def test_who_gains_is_told_in_advance_where_the_groups_differ_on_other_orders(value: float, holds: bool) -> None:
    gap = {"table": "chaos_gap", "metric": "gap", "reference": "linearity_minus_wald", "t": 10, "n": 5}
    gap |= {"stratum": "chaotic_minus_non_chaotic"}
    told = {"stratum": "other_orders", "variant": "early_50", "reference": "plain"}
    rows = summary(
        gap | {"value": value},
        gap | {"quantity": "selecting", "value": 0.3},
        {"table": "chaos_gap", "metric": "rate", "quantity": "found", "value": 0.4} | told,
        {"table": "chaos_gap", "metric": "rate", "quantity": "flagged", "value": 0.9} | told,
    )
    found = by_name(stage_errata.chaos_in_advance(rows, PAPER))
    assert (found["in_advance"].value, found["in_advance"].holds) == (value, holds)
    assert found["in_advance"].claim_value == pytest.approx(0.251)
    assert found["in_advance_selecting"].holds
    assert found["in_advance_early"].pending
    assert found["told_beforehand"].value == 0.4


@pytest.mark.parametrize(("value", "holds"), [(0.0, True), (0.3, False)])
def test_false_certificates_are_read_where_the_most_clusters_gave_any(value: float, holds: bool) -> None:
    cell = {"table": "layer0_bundle", "metric": "rate", "reference": "f1_n_minus_k", "variant": "clusters"}
    rows = summary(
        cell | {"level": 20, "value": 0.9, "n": 4},
        cell | {"level": 24, "value": value, "n": 6},
        cell | {"level": 24, "quantity": "harmed", "value": 0.8, "n": 2},
        cell | {"level": 25, "value": float("nan"), "n": 0},
    )
    (found,) = stage_errata.false_certificates(rows)
    assert (found.value, found.n, found.holds) == (value, 6, holds)
    assert stage_errata.false_certificates(NOTHING)[0].pending
    assert stage_errata.false_certificates(rows.tail(1))[0].pending
    (nowhere,) = stage_errata.false_certificates(rows.head(1).assign(n=0))
    assert nowhere.pending == "a number of clusters at which anything is removed"


def test_what_no_stage_has_made_is_pending_and_has_no_number() -> None:
    unknown = summary(agreement("two_elbo", 2, float("nan")))
    for stages in (NOTHING, unknown):
        rows = [
            *stage_errata.sign_votes(stages, PAPER),
            *stage_errata.gauge_agreement(stages, PAPER)[1:],
            *stage_errata.early_gain(stages, PAPER),
            *stage_errata.pooled_correlation(stages, PAPER),
        ]
        assert len(rows) == 11
        assert all(row.pending and row.value is None and row.holds is None for row in rows)


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
    wide = (-np.ones(small.N), np.ones(small.N))
    monkeypatch.setattr(small, "random_intervals", lambda index: wide)
    assert all(row.pending for row in enough_better(3))


def test_entities_in_one_line_make_both_rules_keep_the_same(monkeypatch: pytest.MonkeyPatch) -> None:
    # one entity below all others, which overlap: it has N - 1 >= N - k better ones
    low, high = np.array([-9.0, *[0.0] * (small.N - 1)]), np.array([-8.0, *[1.0] * (small.N - 1)])
    monkeypatch.setattr(small, "random_intervals", lambda index: (low, high))
    assert by_name(enough_better(2))["kept_needlessly"].holds is True


def test_at_the_profile_of_zeros_only_priors_decide_a_duel() -> None:
    plain = bundle_of(np.eye(2), np.zeros((2, 2, 2)))
    with_prior = bundle_of(np.eye(2), np.zeros((2, 2, 2)), priors=[0.0, 1.0])
    assert by_name(nothing_observed(plain))["decided_at_zero"].value == 0.0
    assert by_name(nothing_observed(with_prior))["decided_at_zero"].value == 1.0
