from __future__ import annotations

from typing import Any

import numpy as np
import pandas as pd
import pytest
from hypothesis import given
from hypothesis import strategies as st

from afa.cohort.config import CohortConfig, LabelRule
from afa.cohort.samples import describe_labels, make_labels, select
from afa.errors import CohortError

BASE: dict[str, Any] = {
    "name": "small",
    "title": "A small series",
    "series": "GSE1",
    "expression": {"layout": "count_matrix", "file": "counts.txt.gz", "unit": "tpm"},
    "metadata_file": "GSE1_series_matrix.txt.gz",
    "controls": {"key": "diagnosis", "values": ["Control"]},
    "patients": {"key": "diagnosis", "values": ["UC"]},
}


def config(**changes: Any) -> CohortConfig:
    return CohortConfig.model_validate(BASE | changes)


def series() -> pd.DataFrame:
    rows = [
        ("S1", "P_1_Biopsy_4, UC", "UC", "Rectum", "quiet"),
        ("S2", "P_1_Biopsy_9, UC", "UC", "Rectum", "inflamed"),
        ("S3", "P_1_Biopsy_10, UC", "UC", "Rectum", "inflamed"),
        ("S4", "P_2_Biopsy_2, Control", "Control", "Rectum", "quiet"),
        ("S5", "P_2_Biopsy_1, Control", "Control", "Rectum", "quiet"),
        ("S6", "P_3_Biopsy_3, UC", "UC", "Ileum", "inflamed"),
        ("S7", "P_4_Biopsy_5, UC", "UC_Pouch", "Rectum", "inflamed"),
    ]
    table = pd.DataFrame(rows, columns=["sample", "title", "diagnosis", "site", "state"])
    return table.set_index("sample")


FULL = {
    "derive": {
        "participant": {"source": "title", "pattern": r"P_(\d+)_"},
        "biopsy": {"source": "title", "pattern": r"Biopsy_(\d+)"},
    },
    "keep": {"site": ["Rectum"]},
    "drop": {"diagnosis": ["UC_Pouch"]},
    "one_per": {"key": "participant", "prefer": {"state": ["inflamed"]}, "then": "biopsy"},
}


def test_without_a_selection_every_sample_of_the_two_groups_takes_part() -> None:
    chosen = select(series(), config())
    assert chosen.controls == ("S4", "S5")
    assert chosen.patients == ("S1", "S2", "S3", "S6")
    assert chosen.steps == (("in the series", 7), ("controls", 2), ("patients", 4))


def test_one_per_prefers_the_listed_value_and_then_the_least_number_not_the_least_text() -> None:
    chosen = select(series(), config(select=FULL))
    assert chosen.patients == ("S2",), "inflamed before quiet, and 9 before 10"
    assert chosen.controls == ("S5",), "biopsy 1 before 2, controls by the same rule"
    assert list(chosen.samples.index) == ["S2", "S5"]


def test_the_steps_count_the_samples_left_in_the_order_of_the_rules() -> None:
    assert select(series(), config(select=FULL)).steps == (
        ("in the series", 7),
        ("keep site: Rectum", 6),
        ("drop diagnosis: UC_Pouch", 5),
        ("one per participant", 2),
        ("controls", 1),
        ("patients", 1),
    )


def test_a_value_to_drop_that_the_series_lacks_drops_nothing() -> None:
    assert select(series(), config(select={"drop": {"site": ["Pouch"]}})).steps[1][1] == 7


@given(st.permutations(range(7)))
def test_the_samples_chosen_do_not_depend_on_the_order_of_the_series(order: list[int]) -> None:
    chosen = select(series().iloc[order], config(select=FULL))
    assert (chosen.controls, chosen.patients) == (("S5",), ("S2",))


def test_the_samples_given_are_left_as_they_were() -> None:
    given_samples = series()
    select(given_samples, config(select=FULL))
    pd.testing.assert_frame_equal(given_samples, series())


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ({"controls": {"key": "disease", "values": ["Control"]}}, "no sample characteristic 'disease'"),
        ({"select": {"keep": {"region": ["Rectum"]}}}, "one of: title, diagnosis, site, state"),
        ({"select": {"derive": {"site": {"source": "title", "pattern": "(x)"}}}}, "a new name"),
        ({"select": {"derive": {"arm": {"source": "title", "pattern": "arm (x)"}}}}, "no sample whose title matches"),
        ({"select": {"one_per": {"key": "site", "then": "state"}}}, "no number in state"),
        ({"patients": {"key": "diagnosis", "values": ["UC", "Control"]}}, "2 samples in both"),
    ],
)
def test_a_rule_that_does_not_fit_the_series_is_refused(changes: dict[str, Any], said: str) -> None:
    with pytest.raises(CohortError, match=said):
        select(series(), config(**changes))


def test_a_series_without_controls_is_refused_with_the_values_that_there_are() -> None:
    with pytest.raises(CohortError, match=r"key controls.*'UC' \(4\).*cannot be encoded"):
        select(series().query("diagnosis != 'Control'"), config())


def test_a_series_without_patients_is_refused() -> None:
    with pytest.raises(CohortError, match=r"key patients.*'Control' \(2\)"):
        select(series().query("diagnosis == 'Control'"), config())


def test_a_sample_without_a_value_for_one_per_is_named() -> None:
    samples = series()
    samples.loc["S6", "participant"] = "NA"
    samples["participant"] = samples["participant"].fillna("1")
    with pytest.raises(CohortError, match="no participant in 1 samples, such as S6"):
        select(samples, config(select={"one_per": {"key": "participant"}}))


@pytest.mark.parametrize("change", [{}, {"select": {"drop": {"diagnosis": ["UC"]}}}])
def test_a_sample_under_another_spelling_of_a_group_or_a_selection_is_refused(change: dict[str, Any]) -> None:
    samples = series()
    samples.loc[samples.index[-1], "diagnosis"] = "uc "
    with pytest.raises(CohortError, match="found 'uc ' in 1 samples, and 'UC' in the file of the cohort"):
        select(samples, config(**change))


def test_missing_cells_that_a_reader_left_as_nan_count_as_empty() -> None:
    samples = series()
    samples.loc["S1", "diagnosis"] = np.nan
    assert "S1" not in select(samples, config()).patients


def labels_of(values: list[str], **rule: Any) -> list[int | None]:
    samples = pd.DataFrame({"key": values}, index=[f"S{i}" for i in range(len(values))])
    rules = {"fever": LabelRule(key="key", reason="a test", **rule)}
    column = make_labels(samples, rules, ["fever"])["fever"]
    assert column.dtype == "Int8"
    return [None if value is pd.NA else int(value) for value in column]


def test_at_least_includes_its_threshold_and_above_does_not() -> None:
    assert labels_of(["34.9", "35", "36"], at_least=35) == [0, 1, 1]
    assert labels_of(["34.9", "35", "36"], above=35) == [0, 0, 1]


def test_missing_is_missing_and_not_zero() -> None:
    assert labels_of(["", "NA", "na", "unknown", "Unknown ", "50"], at_least=35) == [None] * 5 + [1]


def test_listed_values_mean_one_and_zero_and_any_other_is_missing() -> None:
    values = ["Active", "Inactive", "NA", "Quiescent"]
    assert labels_of(values, positive=["Active"], negative=["Inactive"]) == [1, 0, None, None]


@pytest.mark.parametrize("other", ["active", "Active ", " ACTIVE", "ac\rtive".replace("\r", "") + "\n"])
def test_another_spelling_of_a_listed_value_is_refused_and_taken_once_it_is_listed_too(other: str) -> None:
    values = ["Active", "Inactive", other]
    with pytest.raises(CohortError, match=r"labels\.fever: found .* in 1 samples, and .*; expected one spelling"):
        labels_of(values, positive=["Active"], negative=["Inactive"])
    assert labels_of(values, positive=["Active", other], negative=["Inactive"]) == [1, 0, 1]


@pytest.mark.parametrize(
    ("value", "rule", "label"),
    [
        ("≥250", {"at_least": 250}, 1),
        (">=250", {"at_least": 249}, 1),
        ("> 250", {"above": 250}, 1),
        (">250", {"at_least": 250}, 1),
        ("<30", {"above": 30}, 0),
        ("<250", {"at_least": 250}, 0),
        ("≤30", {"above": 30}, 0),
        ("<= 30", {"at_least": 31}, 0),
    ],
)
def test_a_bound_counts_where_it_decides_the_rule(value: str, rule: dict[str, float], label: int) -> None:
    assert labels_of([value], **rule) == [label]


@pytest.mark.parametrize(
    ("value", "rule"),
    [
        ("≥250", {"above": 250}),
        (">200", {"above": 250}),
        ("<300", {"above": 250}),
        ("≤30", {"at_least": 30}),
        ("high", {"at_least": 30}),
        (">much", {"at_least": 30}),
    ],
)
def test_a_value_that_leaves_the_rule_open_names_sample_key_and_value(value: str, rule: dict[str, float]) -> None:
    with pytest.raises(CohortError, match=rf"labels\.fever, sample S1: found key = '{value}'"):
        labels_of(["300", value], **rule)


def test_a_rule_that_labels_nobody_is_refused() -> None:
    with pytest.raises(CohortError, match=r"no patient that .* labels; key holds 'ileal CD', 'UC'"):
        labels_of(["ileal CD", "UC"], positive=["Ileal"], negative=["Colonic"])


def test_a_value_both_positive_and_negative_is_refused() -> None:
    with pytest.raises(CohortError, match="UC both positive and negative"):
        labels_of(["UC"], positive=["UC"], negative=["UC"])


def test_every_wrong_rule_is_reported_at_once() -> None:
    samples = pd.DataFrame({"key": ["x"]}, index=["S0"])
    rules = {
        "fever": LabelRule(key="absent", at_least=1, reason="a test"),
        "chill": LabelRule(key="key", at_least=1, reason="a test"),
    }
    with pytest.raises(CohortError) as caught:
        make_labels(samples, rules, ["fever", "chill"])
    assert [fault.where for fault in caught.value.faults] == [
        "key labels.fever",
        "key labels.chill, sample S0",
    ]


def test_a_rule_that_is_off_makes_no_column_and_shows_the_quantiles_of_its_key() -> None:
    samples = pd.DataFrame({"a": ["1", "2", "3", "NA"], "b": ["yes", "no", "no", ""]}, index=list("WXYZ"))
    rules = {
        "fever": LabelRule(key="a", above=2, reason="limit", off="unit unknown"),
        "chill": LabelRule(key="b", positive=("yes",), negative=("no",), reason="recorded"),
    }
    labels = make_labels(samples, rules, ["chill", "fever", "rash"])
    assert list(labels.columns) == ["chill"]
    assert describe_labels(samples, rules, labels) == {
        "fever": {
            "rule": "a > 2",
            "reason": "limit",
            "off": "unit unknown",
            "quantiles": {"0%": 1.0, "25%": 1.5, "50%": 2.0, "75%": 2.5, "100%": 3.0},
            "without_number": 1,
        },
        "chill": {"rule": "b: 1 for yes; 0 for no", "reason": "recorded", "positive": 1, "negative": 2, "missing": 1},
    }


def test_a_rule_for_an_entity_that_the_bundle_lacks_makes_no_column_and_is_named_as_unused() -> None:
    samples = pd.DataFrame({"key": ["5"]}, index=["S0"])
    rules = {"rash": LabelRule(key="key", at_least=1, reason="a test")}
    labels = make_labels(samples, rules, ["fever"])
    assert labels.shape == (1, 0)
    assert describe_labels(samples, rules, labels)["rash"]["unused"] == "the bundle has no such entity"


def test_without_rules_there_is_no_column() -> None:
    labels = make_labels(pd.DataFrame({"a": ["1"]}, index=["S0"]), {}, ["fever"])
    assert labels.shape == (1, 0)
