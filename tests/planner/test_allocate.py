"""Allocation rules on views made by hand."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from afa.model.orders import random_order
from afa.planner.rules import (
    RULES,
    Boundary,
    Clustered,
    Greedy,
    LargestUnary,
    Lucb,
    PriorityAll,
    PriorityClusters,
    Random,
    View,
)
from afa.planner.rules.base import best
from afa.planner.rules.priority import influence, registry

FEATURES = ("d", "c", "b", "a")
GAINS = np.array([[3.0, 0.0, 1.0, 0.0], [0.0, 2.0, 1.0, 0.0], [0.0, 2.0, 1.0, 0.0]])


def view(**changes: Any) -> View:
    """Three entities on four features; nothing observed, no duel resolved."""
    gains = changes.pop("gains", GAINS)
    n = len(changes.get("entities", ("x", "y", "z")))
    pairs = n * (n - 1) // 2
    scores, lead, resolved = (
        changes.pop(name, np.zeros(shape, dtype=kind))
        for name, shape, kind in (("scores", (n, n), float), ("lead", pairs, float), ("resolved", pairs, bool))
    )
    whole: dict[str, Any] = {
        "features": FEATURES,
        "entities": ("x", "y", "z"),
        "observed": np.zeros(4, dtype=bool),
        "tie": 0.0,
        "largest_unary": np.array([1.0, 5.0, 5.0, 2.0]),
        "gain": lambda duels: gains[duels],
        "total_gain": lambda closed: gains[~closed].sum(axis=0),
        "weighted_gain": lambda weights: weights @ gains,
        "find_scores": lambda: scores,
        "find_rank": None,
        "find_lead": lambda duels: lead[duels],
        "find_resolved": lambda duels: resolved[duels],
        "find_intervals": lambda: np.array([[-1.0, 1.0]] * 3),
        "find_clusters": lambda: ((0, 1, 2),),
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


FOUR = ("p", "q", "r", "s")
OWN, SIX = np.eye(6), np.arange(6)


def four(**changes: Any) -> View:
    """Four entities ranked p, q, r, s; six features, each with a gain of 1 for the duel of its number alone; k = 2."""
    strength = np.array([6.0, 4.0, 1.0, 0.0])
    whole: dict[str, Any] = {
        "features": ("pq", "pr", "ps", "qr", "qs", "rs"),
        "entities": FOUR,
        "observed": np.zeros(6, dtype=bool),
        "scores": np.subtract.outer(strength, strength),
        "lead": np.ones(6),
        "resolved": np.zeros(6, dtype=bool),
        "largest_unary": np.array([1.0, 1.0, 1.0, 1.0, 1.0, 9.0]),
        "gains": OWN,
        "find_intervals": lambda: np.array([[0.0, 2.0], [1.0, 9.0], [-3.0, 3.0], [-2.0, 4.0]]),
        "find_clusters": lambda: ((0, 1), (2, 3)),
        "k": 2,
    }
    return view(**(whole | changes))


def asked(rule: Any, **changes: Any) -> str:
    seen = four(**changes)
    return seen.features[rule().choose(seen).feature]


def duels(*names: str) -> np.ndarray:
    return np.isin(np.array(["pq", "pr", "ps", "qr", "qs", "rs"]), names)


def places(chosen: np.ndarray) -> list[int]:
    return np.flatnonzero(chosen).tolist()


def test_ranks_and_the_duels_across_the_boundary_follow_the_guiding_scores() -> None:
    assert four().rank.tolist() == [1, 2, 3, 4]
    assert four(scores=-four().scores).rank.tolist() == [4, 3, 2, 1]
    assert (four().straddling == duels("pr", "ps", "qr", "qs")).all()
    assert (four(k=1).straddling == duels("pq", "pr", "ps")).all()


def test_entities_are_ranked_by_the_duels_among_themselves() -> None:
    cycle = np.zeros((4, 4))
    for winner, loser in ((0, 1), (1, 2), (2, 0), (3, 1), (0, 3), (2, 3)):
        cycle[winner, loser], cycle[loser, winner] = 1.0, -1.0
    seen = four(scores=cycle)
    assert seen.rank.tolist() == [1, 3, 2, 4]  # p and r win two each, q and s one: told apart by name
    assert seen.ranked([2, 0]) == [2, 0]


def test_lucb_looks_at_the_least_lower_bound_inside_against_the_greatest_upper_bound_outside() -> None:
    choice = Lucb().choose(four())
    assert choice.feature == 2
    assert "p against s" in choice.reason
    assert not choice.fallback


def test_lucb_goes_on_to_the_next_open_duel_where_the_bracket_of_that_one_is_resolved() -> None:
    # upper less lower: pr 3, qs 3, qr 2
    assert asked(Lucb, resolved=duels("ps")) == "pr"
    assert asked(Lucb, resolved=duels("ps", "pr")) == "qs"
    assert asked(Lucb, resolved=duels("ps", "pr", "qs")) == "qr"


def test_lucb_breaks_ties_between_duels_by_name() -> None:
    same = np.array([[-1.0, 1.0]] * 4)
    assert asked(Lucb, find_intervals=lambda: same) == "pr"
    assert asked(Lucb, find_intervals=lambda: same, entities=("z", "q", "r", "a")) == "qs"


@pytest.mark.parametrize("rule", [Lucb, Clustered, Boundary])
def test_with_every_duel_across_the_boundary_won_the_top_k_is_certified_and_the_choice_a_fallback(rule: Any) -> None:
    settled = {"resolved": duels("pr", "ps", "qr", "qs")}
    choice = rule().choose(four(**settled))
    assert choice.reason.startswith("the top-2 is certified")
    assert choice.fallback
    assert choice.feature == 5
    lost = rule().choose(four(lead=np.where(duels("qr"), -1.0, 1.0), **settled))
    assert "certified" not in lost.reason
    assert "no duel across the top-k boundary is open" in lost.reason
    assert lost.fallback


@pytest.mark.parametrize("resolved", [("pr", "ps", "qr"), ("pq", "rs"), ()])
def test_one_open_duel_across_the_boundary_leaves_the_top_k_uncertified(resolved: tuple[str, ...]) -> None:
    assert not four(resolved=duels(*resolved)).certified
    assert four(resolved=duels("pr", "ps", "qr", "qs")).certified


def test_clustered_looks_at_the_two_champions_next_to_the_boundary() -> None:
    # champions p and r
    choice = Clustered().choose(four())
    assert choice.feature == 1
    assert choice.reason.startswith("champions of clusters at the boundary, p against r")
    # champions p, q inside, r and s outside: the lowest inside and the highest outside
    assert asked(Clustered, find_clusters=lambda: ((0,), (1,), (2,), (3,))) == "qr"
    assert asked(Clustered, find_clusters=lambda: ((0,), (1,), (2,), (3,)), k=3) == "rs"


@pytest.mark.parametrize(
    "changes",
    [
        pytest.param({"find_clusters": lambda: ((0, 1, 2, 3),)}, id="no champion outside"),
        pytest.param({"find_clusters": lambda: ((0, 2), (1, 3))}, id="both champions inside"),
        pytest.param({"resolved": duels("pr")}, id="the champions' duel is resolved"),
    ],
)
def test_clustered_takes_the_duel_of_lucb_where_there_is_no_open_duel_of_champions(changes: dict[str, Any]) -> None:
    choice = Clustered().choose(four(**changes))
    assert choice.feature == 2
    assert "no open duel of champions" in choice.reason


def test_a_champion_is_the_best_of_the_duels_inside_its_cluster() -> None:
    # r loses only to q; q beats nobody else: inside its cluster q is the champion, overall it is the last but one
    scores = np.zeros((4, 4))
    for winner, loser in ((2, 0), (2, 3), (1, 2), (0, 1), (3, 1), (0, 3)):
        scores[winner, loser], scores[loser, winner] = 1.0, -1.0
    seen = four(scores=scores, find_clusters=lambda: ((0, 3), (1, 2)))
    assert seen.ranked([1, 2]) == [1, 2]
    assert seen.rank[2] < seen.rank[1]
    assert "p against q" in Clustered().choose(seen).reason


def test_the_influence_of_a_duel_falls_with_its_distance_to_the_boundary_and_its_score() -> None:
    # ranks 1 2 | 3 4 are 1, 0, 0, 1 away; |V| of pq, pr, ps, qr, qs, rs is 2, 5, 6, 3, 4, 1
    away = np.array([0, 0, 1, 0, 0, 0])
    np.testing.assert_allclose(influence(four(), SIX), 1 / (1 + away) / (1 + 0.1 * np.array([2, 5, 6, 3, 4, 1])))
    # with k = 1: 0 | 0, 1, 2
    away = np.array([0, 0, 0, 0, 0, 1])
    np.testing.assert_allclose(influence(four(k=1), SIX), 1 / (1 + away) / (1 + 0.1 * np.array([2, 5, 6, 3, 4, 1])))


def test_priority_over_all_weighs_every_open_duel() -> None:
    assert asked(PriorityAll) == "rs"  # 1 / 1.1 is the largest weight
    assert asked(PriorityAll, resolved=duels("rs")) == "pq"  # 1 / 1.2
    assert asked(PriorityAll, resolved=duels("rs", "pq")) == "qr"  # 1 / 1.3
    gains = OWN.copy()
    gains[0, 2] = 0.5  # ps: 1 / 2 / 1.6 of its own and 0.5 / 1.2 of pq, more than 1 / 1.3 less 0.05
    gains[3, 2] = 0.1  # and 0.1 / 1.3 of qr
    worth = {"ps": 0.3125 + 0.41667 + 0.07692, "rs": 1 / 1.1}
    assert worth["ps"] < worth["rs"]
    assert asked(PriorityAll, gains=gains, resolved=duels("rs")) == "pq"
    gains[3, 2] = 0.2
    assert asked(PriorityAll, gains=gains, resolved=duels("rs")) == "ps"  # 0.883 against 0.833


def test_priority_over_clusters_weighs_the_best_against_the_worst_of_each() -> None:
    assert registry(four()).tolist() == places(duels("pq", "rs"))
    assert registry(four(resolved=duels("rs"))).tolist() == places(duels("pq"))
    assert registry(four(find_clusters=lambda: ((0, 2, 3), (1,)))).tolist() == places(duels("ps"))
    assert registry(four(find_clusters=lambda: ((0, 2, 3), (1,)), scores=-four().scores)).tolist() == places(
        duels("ps")
    )
    assert asked(PriorityClusters) == "rs"
    assert asked(PriorityClusters, find_clusters=lambda: ((0, 2, 3), (1,))) == "ps"
    choice = PriorityClusters().choose(four(resolved=duels("pq", "rs")))
    assert choice.fallback
    assert "no candidate has a positive gain" in choice.reason


def test_boundary_adds_the_gains_of_the_open_duels_across_it_all_alike() -> None:
    gains = np.ones((6, 6))
    gains[0, 0], gains[2, 1], gains[4, 3] = 9.0, 1.25, 1.5  # pq does not count
    assert asked(Boundary, gains=gains) == "qr"
    assert asked(Boundary, gains=gains, resolved=duels("qs")) == "pr"
    assert "3 open duels" in Boundary().choose(four(resolved=duels("qs"))).reason
