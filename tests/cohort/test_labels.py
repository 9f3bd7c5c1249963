from __future__ import annotations

from typing import Any

import pandas as pd
import pytest

from afa.cohort.config import LabelRule
from afa.cohort.select import describe_labels, make_labels
from afa.errors import CohortError


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
    values = ["Active", "Inactive", "NA", "active"]
    assert labels_of(values, positive=["Active"], negative=["Inactive"]) == [1, 0, None, None]


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
