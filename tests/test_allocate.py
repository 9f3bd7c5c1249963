"""Allocation rules on views made by hand."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from afa.allocate import RULES, Greedy, LargestUnary, Random, View
from afa.allocate.base import best
from afa.orders import random_order

FEATURES = ("d", "c", "b", "a")
PAIRS = np.array([[0, 1], [0, 2], [1, 2]])
GAINS = np.array([[3.0, 0.0, 1.0, 0.0], [0.0, 2.0, 1.0, 0.0], [0.0, 2.0, 1.0, 0.0]])


def view(**changes: Any) -> View:
    """Three entities on four features; nothing observed, no duel resolved."""
    gains = changes.pop("gains", GAINS)
    whole: dict[str, Any] = {
        "features": FEATURES,
        "entities": ("x", "y", "z"),
        "observed": np.zeros(4, dtype=bool),
        "pairs": PAIRS,
        "scores": np.zeros((3, 3)),
        "resolved": np.zeros(3, dtype=bool),
        "largest_unary": np.array([1.0, 5.0, 5.0, 2.0]),
        "gain": lambda duels: gains[duels],
        "total_gain": lambda closed: gains[~closed].sum(axis=0),
        "k": 1,
        "patient": "p",
        "seed": 0,
    }
    return View(**(whole | changes))


def mask(*indices: int, size: int = 4) -> np.ndarray:
    return np.isin(np.arange(size), indices)


def name(choice: Any) -> str:
    return FEATURES[choice.feature]


def test_greedy_takes_the_largest_gain_summed_over_all_duels() -> None:
    choice = Greedy().choose(view())  # d 3, c 4, b 3, a 0
    assert name(choice) == "c"
    assert not choice.fallback
    assert "4 summed over 3 open duels" in choice.reason


def test_greedy_leaves_resolved_duels_out_of_the_sum() -> None:
    choice = Greedy().choose(view(resolved=mask(1, size=3)))  # d 3, c 2, b 2
    assert name(choice) == "d"
    assert "2 open duels" in choice.reason


def test_greedy_does_not_take_an_observed_feature() -> None:
    assert name(Greedy().choose(view(observed=mask(1)))) == "b"  # d and b tie at 3: the first name


@pytest.mark.parametrize(
    "changes",
    [
        pytest.param({"resolved": np.ones(3, dtype=bool)}, id="every duel resolved"),
        pytest.param({"gains": np.zeros((3, 4))}, id="no gain anywhere"),
        pytest.param({"observed": mask(0), "gains": np.array([[9.0, 0, 0, 0]] * 3)}, id="gain where observed"),
    ],
)
def test_greedy_falls_back_where_no_candidate_has_a_positive_gain(changes: dict[str, Any]) -> None:
    choice = Greedy().choose(view(**changes))
    assert choice.fallback
    assert name(choice) == "b"  # b and c have the largest total unary: the first name
    assert "no candidate has a positive gain" in choice.reason


def test_without_gain_or_unary_the_first_unobserved_name_is_taken() -> None:
    nothing = {"gains": np.zeros((3, 4)), "largest_unary": np.zeros(4)}
    choice = Greedy().choose(view(observed=mask(3), **nothing))
    assert name(choice) == "b"
    assert choice.fallback
    assert "first by name" in choice.reason


def test_largest_unary_looks_at_no_duel_and_is_no_fallback_of_its_own() -> None:
    choice = LargestUnary().choose(view(resolved=np.ones(3, dtype=bool)))
    assert name(choice) == "b"
    assert not choice.fallback
    assert name(LargestUnary().choose(view(observed=mask(1, 2)))) == "a"


def test_random_follows_the_order_of_its_patient_and_seed_past_what_is_observed() -> None:
    order = random_order(FEATURES, patient="p", seed=7).tolist()
    for taken in range(4):
        choice = Random().choose(view(observed=mask(*order[:taken]), seed=7))
        assert choice.feature == order[taken]


@pytest.mark.parametrize("rule", RULES)
def test_every_rule_takes_the_one_feature_that_is_left(rule: str) -> None:
    for last in range(4):
        others = mask(*(j for j in range(4) if j != last))
        choice = RULES[rule]().choose(view(observed=others, largest_unary=np.zeros(4), gains=np.zeros((3, 4))))
        assert choice.feature == last
        assert choice.reason


@pytest.mark.parametrize(
    ("worth", "chosen"),
    [
        ([1.0, 1.0, 1.0, 1.0], "a"),
        ([1.0, 1.0 - 5e-10, 0.5, 0.0], "c"),
        ([1.0, 1.0 - 2e-9, 0.5, 0.0], "d"),
        ([1e-30, 1e-30, 0.0, 0.0], "c"),
        ([1e12, 1e12 - 1.0, 0.0, 0.0], "c"),
    ],
)
def test_worths_within_a_relative_1e9_are_told_apart_by_name(worth: list[float], chosen: str) -> None:
    feature = best(np.array(worth), FEATURES, np.ones(4, dtype=bool))
    assert feature is not None
    assert FEATURES[feature] == chosen


def test_only_allowed_features_of_positive_worth_are_best() -> None:
    assert best(np.zeros(4), FEATURES, np.ones(4, dtype=bool)) is None
    assert best(np.ones(4), FEATURES, np.zeros(4, dtype=bool)) is None
    assert best(np.array([9.0, 1.0, 0.0, 0.0]), FEATURES, mask(1, 2)) == 1
