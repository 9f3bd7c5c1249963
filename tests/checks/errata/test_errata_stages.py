"""Items that other stages decide: each from rows made by hand, and pending where there are none."""

from __future__ import annotations

import pandas as pd
import pytest
from errata_rows import PAPER, by_name

from afa.checks.errata import Printed, Row
from afa.checks.errata import stages as stage_errata
from afa.stats.summary import COLUMNS

PRINTED = Printed(PAPER)
NOTHING = pd.DataFrame(columns=COLUMNS)


def summary(*rows: dict[str, object]) -> pd.DataFrame:
    return pd.DataFrame(list(rows)).reindex(columns=COLUMNS)


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
    found = by_name(stage_errata.sign_votes(rows, PRINTED))
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
    found = by_name(stage_errata.gauge_agreement(summary(*rows), PRINTED))
    assert (found["agreement_two_elbo_least"].value, found["agreement_two_elbo_largest"].value) == (0.8, 0.9)
    assert (found["agreement_stack_a_least"].claim_value, found["agreement_two_elbo_largest"].claim_value) == (
        0.724,
        0.904,
    )
    assert found["agreement_stack_a_least"].holds is False
    assert (found["printed_agreement"].value, found["printed_agreement"].holds) == (0.724, False)


def test_gauges_that_always_agreed_would_pass() -> None:
    rows = [agreement(score, t, 1.0) for score in ("two_elbo", "stack_a") for t in range(4)]
    found = by_name(stage_errata.gauge_agreement(summary(*rows), PRINTED))
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
    found = by_name(stage_errata.early_gain(rows, PRINTED))
    assert (found["early_gain"].value, found["early_gain_support"].value) == (0.3, over_support)
    assert found["early_gain_support"].holds is holds
    assert found["early_gain"].claim_value == pytest.approx(0.306)


@pytest.mark.parametrize(("value", "holds"), [(0.97, False), (0.01, True)])
def test_the_pooled_correlation_is_that_with_no_data(value: float, holds: bool) -> None:
    cells = {"table": "gauge_correlation", "metric": "correlation", "variant": "pooled", "value": value, "n": 5}
    rows = summary(*({**cells, "method": score, "t": 0} for score in ("two_elbo", "stack_a")))
    found = by_name(stage_errata.pooled_correlation(rows, PRINTED))
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
    found = by_name(stage_errata.chaos_in_advance(rows, PRINTED))
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
    (found,) = stage_errata.false_certificates(rows, PRINTED)
    assert (found.value, found.n, found.holds) == (value, 6, holds)
    assert stage_errata.false_certificates(NOTHING, PRINTED)[0].pending
    assert stage_errata.false_certificates(rows.tail(1), PRINTED)[0].pending
    (nowhere,) = stage_errata.false_certificates(rows.head(1).assign(n=0), PRINTED)
    assert nowhere.pending == "a number of clusters at which anything is removed"


def test_what_no_stage_has_made_is_pending_and_has_no_number() -> None:
    unknown = summary(agreement("two_elbo", 2, float("nan")))
    for stages in (NOTHING, unknown):
        rows = [
            *stage_errata.sign_votes(stages, PRINTED),
            *stage_errata.gauge_agreement(stages, PRINTED)[1:],
            *stage_errata.early_gain(stages, PRINTED),
            *stage_errata.pooled_correlation(stages, PRINTED),
        ]
        assert len(rows) == 11
        assert all(row.pending and row.value is None and row.holds is None for row in rows)


def all_rows(stages: pd.DataFrame) -> list[Row]:
    return [
        *stage_errata.missed_calls(stages, PRINTED),
        *stage_errata.two_rules(stages, PRINTED),
        *stage_errata.one_rate(stages, PRINTED),
        *stage_errata.never_called(stages, PRINTED),
        *stage_errata.eliminations(stages, PRINTED),
    ]


def calls(bracket: str, value: float, order: str = "informed", **cells: object) -> dict[str, object]:
    row = {"table": "bracket_rate", "metric": "rate", "method": "wald", "reference": bracket, "allocation": order}
    return {**row, "target": "likelihood", "t": 100, "value": value, "low": value, "high": value, "n": 20, **cells}


def under_rule(rule: str, value: float, low: float) -> dict[str, object]:
    cells = {"guide": "linearity", "gain": "cmi", "schedule": "every", "target": None, "low": low}
    return calls("l1_tight", value, rule, **cells)


def sign(rule: str, value: float, t: int = 150, **cells: object) -> dict[str, object]:
    row = {"table": "allocation_sign", "metric": "accuracy", "method": "linearity", "guide": "linearity", "gain": "cmi"}
    return {**row, "allocation": rule, "schedule": "paper", "t": t, "value": value, "n": 30, **cells}


def gap(value: float, t: int = 150, rule: str = "greedy", **cells: object) -> dict[str, object]:
    return sign(rule, value, t, metric="gap", reference="clustered", **cells)


def test_missed_calls_are_the_share_of_the_tight_budgets_that_the_printed_one_lacks() -> None:
    rows = by_name(stage_errata.missed_calls(summary(calls("l1_paper", 0.1), calls("l1_tight", 0.4)), PRINTED))
    assert (rows["called_printed"].value, rows["called_tight"].value) == (0.1, 0.4)
    missed = rows["missed_calls"]
    assert (missed.value, missed.n, missed.holds) == (pytest.approx(0.75), 8, False)


def test_budgets_that_call_the_same_miss_nothing() -> None:
    rows = by_name(stage_errata.missed_calls(summary(calls("l1_paper", 0.4), calls("l1_tight", 0.4)), PRINTED))
    assert (rows["missed_calls"].value, rows["missed_calls"].holds) == (0.0, True)


def test_what_is_missed_is_not_known_where_nothing_is_called() -> None:
    rows = by_name(stage_errata.missed_calls(summary(calls("l1_paper", 0.0), calls("l1_tight", 0.0)), PRINTED))
    assert rows["called_tight"].value == 0.0
    assert rows["missed_calls"].pending == "duels that are called at t = 100"


def test_calls_are_read_at_the_tables_round_over_all_duels() -> None:
    other = [calls("l1_paper", 0.9, **cells) for cells in ({"t": 99}, {"variant": "support"}, {"metric": "gap"})]
    rules = [calls("l1_paper", 0.9, guide="linearity"), calls("l1_paper", 0.8, target=None, stratum="binary")]
    rows = by_name(stage_errata.one_rate(summary(*other, *rules, calls("l1_paper", 0.2)), PRINTED))
    assert rows["called_informed"].value == 0.2
    assert rows["called_random"].pending


@pytest.mark.parametrize(("low", "holds"), [(0.35, False), (0.2, True)])
def test_a_rule_that_surely_calls_more_than_the_static_order_is_no_bound(low: float, holds: bool) -> None:
    stages = summary(calls("l1_tight", 0.3), under_rule("lucb", 0.2, 0.1), under_rule("boundary", 0.4, low))
    row = by_name(stage_errata.one_rate(stages, PRINTED))["best_rule"]
    assert (row.value, row.low, row.holds) == (0.4, low, holds)


@pytest.mark.parametrize(
    ("row", "waits"),
    [(calls("l1_tight", 0.3), stage_errata.GRID), (under_rule("lucb", 0.2, 0.1), stage_errata.LAYER_ONE)],
)
def test_the_bound_waits_for_the_stage_that_is_not_there(row: dict[str, object], waits: str) -> None:
    assert by_name(stage_errata.one_rate(summary(row), PRINTED))["best_rule"].pending == waits


def open_duels(quantity: str, value: float, bracket: str = "l1_paper", **cells: object) -> dict[str, object]:
    return calls(bracket, value, quantity=quantity, t=None, **cells)


@pytest.mark.parametrize(
    ("never", "tied", "holds"), [(0.02, 0.4, (False, False)), (0.16, 0.4, (True, False)), (0.12, 1.0, (True, True))]
)
def test_duels_never_called_are_counted_and_so_are_the_ties_among_them(
    never: float, tied: float, holds: tuple[bool, bool]
) -> None:
    rows = summary(
        open_duels("never", never),
        open_duels("never", 0.01, "l1_tight"),
        open_duels("never", 0.03, order="random"),
        open_duels("never", 0.005, order="informed_pair"),
        open_duels("never", 0.9, variant="support"),
        open_duels("tied", tied, stratum="never"),
        open_duels("q50", 2.0, metric="nats", stratum="never"),
        open_duels("q50", 48.0, metric="nats", stratum="called"),
    )
    found = by_name(stage_errata.never_called(rows, PRINTED))
    values = {name: row.value for name, row in found.items()}
    assert values == {
        "never": never,
        "never_tight": 0.01,
        "never_random": 0.03,
        "never_own_order": 0.005,
        "never_tied": tied,
        "never_size": 2.0,
        "called_size": 48.0,
    }
    assert found["never"].claim_value == pytest.approx(0.16)
    assert (found["never"].holds, found["never_tied"].holds) == holds


def test_where_every_duel_is_called_there_are_no_ties_to_count() -> None:
    rows = summary(open_duels("never", 0.0), open_duels("tied", float("nan"), stratum="never", n=0))
    found = by_name(stage_errata.never_called(rows, PRINTED))
    assert found["never"].value == 0.0
    assert "such duels" in found["never_tied"].pending


def test_greedy_and_clustered_are_compared_per_gain_and_schedule() -> None:
    rows = summary(
        sign("greedy", 0.95),
        sign("clustered", 0.94),
        sign("lucb", 0.93),
        sign("greedy", 0.91, schedule="every"),
        sign("greedy", 0.5, t=100),
        sign("greedy", 0.4, method="wald"),
        sign("greedy", 0.3, stratum="prior_wrong"),
        gap(0.01, low=0.005, high=0.015),
        gap(0.0001, schedule="every"),
        gap(-0.01, rule="lucb"),
        gap(0.5, gain="f_target"),
    )
    found = by_name(stage_errata.two_rules(rows, PRINTED))
    assert [found[f"{rule}_cmi_paper"].value for rule in ("greedy", "clustered", "lucb")] == [0.95, 0.94, 0.93]
    assert [found[f"{rule}_cmi_paper"].claim_value for rule in ("greedy", "clustered", "lucb")] == [0.787, 0.787, None]
    assert (found["greedy_cmi_every"].value, found["greedy_cmi_every"].claim_value) == (0.91, None)
    at_the_papers, every = (found[f"greedy_less_clustered_cmi_{name}"] for name in ("paper", "every"))
    assert (at_the_papers.value, at_the_papers.low, at_the_papers.holds) == (0.01, 0.005, False)
    assert (every.value, every.holds) == (0.0001, True)
    assert at_the_papers.claim_value == 0.0
    lucb = found["lucb_less_clustered_cmi_paper"]
    assert (lucb.value, lucb.holds) == (-0.01, None)


def test_the_largest_difference_is_that_of_any_round_whatever_its_sign() -> None:
    rows = summary(gap(0.0, t=0), gap(0.01, t=10), gap(-0.02, t=50), gap(0.0001), gap(0.3, t=100, schedule="every"))
    row = by_name(stage_errata.two_rules(rows, PRINTED))["largest_difference_cmi"]
    assert (row.value, row.holds) == (-0.02, False)


def test_a_gain_that_was_not_run_is_pending_and_the_other_is_not() -> None:
    found = by_name(stage_errata.two_rules(summary(sign("greedy", 0.9)), PRINTED))
    assert found["greedy_cmi_paper"].value == 0.9
    assert found["greedy_wald_magnitude_paper"].pending.startswith("greedy with wald_magnitude")
    assert found["greedy_less_clustered_cmi_paper"].pending.startswith("greedy and clustered with cmi")


def removed(clusters: int, value: float, quantity: str | None = None) -> dict[str, object]:
    cells = {"table": "layer0_bundle", "metric": "count", "reference": "f1_n_minus_k", "variant": "clusters"}
    return {**cells, "level": clusters, "quantity": quantity, "value": value, "n": 24}


def test_removed_clusters_are_those_at_the_papers_number() -> None:
    stages = summary(removed(24, 3), removed(24, 4, "entities"), removed(20, 0))
    (row,) = stage_errata.eliminations(stages, PRINTED)
    assert (row.value, row.claim_value) == (3.0, 28.0)
    (row,) = stage_errata.eliminations(summary(removed(20, 0)), PRINTED)
    assert row.pending.startswith("24 clusters in")


def test_what_has_not_run_is_pending_and_names_its_stage() -> None:
    rows = all_rows(NOTHING)
    assert len(rows) == 3 + 22 + 3 + 7 + 1
    assert all(row.pending and row.value is None and row.holds is None for row in rows)
    assert {row.pending for row in rows} == {stage_errata.LAYER_ONE, stage_errata.GRID, stage_errata.LAYER_ZERO}


def test_a_bundle_with_fewer_features_than_the_tables_rounds_is_pending_there() -> None:
    stages = summary(calls("l1_paper", 0.5, t=20), sign("greedy", 0.9, t=20), under_rule("lucb", 0.5, 0.4) | {"t": 20})
    rows = by_name(all_rows(stages))
    assert "a round as late" in rows["called_informed"].pending
    assert "a round as late" in rows["greedy_cmi_paper"].pending
    assert rows["best_rule"].pending
