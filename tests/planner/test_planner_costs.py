"""Costs, panels, budgets and stopping rules of the planners, on models small enough to work by hand."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from bundles import bundle_of, random_bundles
from examples import examples
from hypothesis import given
from hypothesis import strategies as st

from afa.errors import PlannerError
from afa.model.bundle import Bundle
from afa.planner import BinaryPlanner, Stop, TopKPlanner
from afa.planner.rules import RULES


@pytest.fixture
def ladder() -> Bundle:
    """Two entities, four features, no couplings: the duel's |delta| is 4 at a, 3 at b, 2 at c, 1 at d."""
    unary = np.array([[2.0, 1.5, 1.0, 0.5], [-2.0, -1.5, -1.0, -0.5]])
    return bundle_of(unary, np.zeros((2, 4, 4)), features=("a", "b", "c", "d"))


def planner(bundle: Bundle, **options: Any) -> TopKPlanner:
    return TopKPlanner(bundle, **({"k": 1, "gain": "wald_magnitude", "allocation": "greedy"} | options))


def asked(planner: TopKPlanner, value: int = 0) -> list[str]:
    """The names suggested until the planner stops; each open feature of the item gets the same value."""
    names = []
    while (item := planner.suggest()) is not None:
        names.append(item.name)
        planner.observe_all(dict.fromkeys(item.features, value))
    return names


def where_of(error: pytest.ExceptionInfo[PlannerError]) -> str:
    (only,) = error.value.faults
    assert only.next_step
    return str(only)


def test_gains_are_compared_by_unit_of_cost(ladder: Bundle) -> None:
    # 4/8, 3/1, 2/4, 1/0.25
    assert asked(planner(ladder, costs={"a": 8, "b": 1, "c": 4, "d": 0.25})) == ["d", "b", "a", "c"]


def test_runners_up_are_what_the_rule_would_choose_were_the_first_not_on_offer(ladder: Bundle) -> None:
    one = planner(ladder, panels={"small": ["c", "d"]}, costs={"small": 0.9}, stop=Stop(budget=3))
    first = one.suggest()
    assert first is not None
    assert [first.name, *(item.name for item in one.runners_up())] == ["a", "small", "b"]
    assert [item.name for item in one.runners_up(1)] == ["small"]
    one.observe("a", 1)
    one.skip("b")
    assert one.runners_up() == []
    one.skip("small")
    assert one.runners_up() == []


def test_equal_costs_change_no_choice(ladder: Bundle) -> None:
    assert asked(planner(ladder, costs=dict.fromkeys("abcd", 7.0))) == asked(planner(ladder)) == list("abcd")


def test_a_bundle_s_own_costs_count_unless_they_are_laid_aside(bundle_tiny: Bundle) -> None:
    # MUC2 is free there, TFF3 costs 0.5 and has no unary
    assert planner(bundle_tiny).next_feature() == "MUC2"
    assert planner(bundle_tiny, costs="equal").next_feature() == "AQP8"
    assert planner(bundle_tiny, costs={"MUC2": 50}).next_feature() == "AQP8"


def test_free_features_come_first_while_they_have_a_gain(ladder: Bundle) -> None:
    assert asked(planner(ladder, costs={"d": 0, "c": 0})) == ["c", "d", "a", "b"]


def test_a_free_feature_without_gain_waits_for_those_with_one() -> None:
    bundle = bundle_of(np.array([[1.0, 0.0], [-1.0, 0.0]]), np.zeros((2, 2, 2)), features=("paid", "void"))
    assert asked(planner(bundle, costs={"void": 0})) == ["paid", "void"]


def test_a_panel_is_worth_the_sum_of_its_open_features_and_paid_once(ladder: Bundle) -> None:
    # a alone 4, the panel 3 + 2 + 1 = 6 at cost 1; then at cost 2 only 3 a unit
    cheap = planner(ladder, panels={"rest": ["d", "b", "c"]}, costs={"rest": 1})
    item = cheap.suggest()
    assert item is not None
    assert (item.name, item.features, item.cost) == ("rest", ("b", "c", "d"), 1.0)
    dear = planner(ladder, panels={"rest": ["b", "c", "d"]}, costs={"rest": 2})
    assert asked(dear) == ["a", "rest"]
    assert dear.spent == 3


def test_what_is_left_of_a_paid_panel_is_free(ladder: Bundle) -> None:
    part = planner(ladder, panels={"rest": ["b", "c", "d"]}, costs={"rest": 5}, stop=Stop(budget=5))
    part.observe("b", 1)
    item = part.suggest()
    assert item is not None
    assert (item.name, item.features, item.cost, part.spent) == ("rest", ("c", "d"), 0.0, 5.0)


def test_what_was_known_before_pays_for_no_panel(ladder: Bundle) -> None:
    part = planner(ladder, panels={"rest": ["b", "c", "d"]}, costs={"rest": 5})
    part.observe_all({"b": 1}, cost=0)
    part.skip("a")
    item = part.suggest()
    assert item is not None
    assert (item.features, item.cost, part.spent) == (("c", "d"), 5.0, 0.0)


def test_without_a_cost_of_its_own_a_panel_costs_what_its_features_do(ladder: Bundle) -> None:
    item = planner(ladder, panels={"all": list("abcd")}, costs={"a": 2.5}).suggest()
    assert item is not None
    assert item.cost == 5.5


def test_a_budget_falls_through_to_what_can_be_afforded_and_says_so(ladder: Bundle) -> None:
    poor = planner(ladder, costs={"a": 4, "b": 4, "c": 3, "d": 2}, stop=Stop(budget=6))
    assert poor.next_feature() == "a"
    poor.observe("a", 0)
    item = poor.suggest()
    assert item is not None
    assert item.name == "d"
    assert item.reason.endswith("b comes first but costs 4, and 2 is left")
    poor.observe("d", 0)
    assert poor.suggest() is None
    assert poor.reason == "no remaining feature is affordable: 0 of the budget of 6 is left"


def test_the_whole_budget_can_be_spent(ladder: Bundle) -> None:
    # 0.1 + 0.2 is a little more than 0.3
    assert asked(planner(ladder, costs={"a": 0.1, "b": 0.2, "c": 9, "d": 9}, stop=Stop(budget=0.3))) == ["a", "b"]


@given(random_bundles(), st.sampled_from(sorted(RULES)), st.floats(0, 8), st.data())
@examples(25)
def test_no_rule_goes_over_the_budget_or_leaves_what_it_could_afford(
    bundle: Bundle, rule: str, budget: float, data: st.DataObject
) -> None:
    costs = {name: data.draw(st.sampled_from([0.0, 0.5, 1.0, 3.0])) for name in bundle.features}
    one = planner(bundle, allocation=rule, costs=costs, stop=Stop(budget=budget))
    asked(one, 1)
    assert one.spent <= budget * (1 + 1e-9)
    left = [costs[name] for name in bundle.features if name not in one.observed]
    assert not left or min(left) > budget - one.spent


def test_the_acquisition_ends_when_the_answer_is_certain(ladder: Bundle) -> None:
    # D = 4 at a, and 3 + 2 + 1 = 6 are open; 7 at b leaves 3
    sure = planner(ladder, stop=Stop(certain=True))
    sure.observe("a", 1)
    assert sure.next_feature() == "b"
    sure.observe("b", 1)
    assert sure.next_feature() is None
    assert sure.certified()
    assert sure.reason == "no remaining measurement can change the answer"


def test_the_acquisition_ends_at_a_probability(ladder: Bundle) -> None:
    # the field of a is mild for either sign: b, c, d have mean 0 in the half-half predictive and variance <= 9 + 4 + 1
    likely = planner(ladder, stop=Stop(probability=0.8))
    assert likely.boundary_probability() == 0.5
    assert likely.next_feature() == "a"
    likely.observe("a", 1)
    assert 0.8 < likely.boundary_probability() < 1
    assert likely.next_feature() is None
    assert likely.reason.startswith("the answer stays with probability 0.8")


def test_a_resolved_boundary_has_probability_1(ladder: Bundle) -> None:
    one = planner(ladder)
    one.observe_all({"a": 1, "b": 1})
    assert one.boundary_probability() == 1


def test_the_acquisition_ends_when_no_feature_gains_enough(ladder: Bundle) -> None:
    assert asked(planner(ladder, stop=Stop(gain=2))) == ["a", "b"]
    assert asked(planner(ladder, stop=Stop(gain=1.9))) == ["a", "b", "c"]
    by_panel = planner(ladder, panels={"small": ["c", "d"]}, stop=Stop(gain=2))
    assert asked(by_panel) == ["a", "b", "small"]


def test_the_binary_planner_stops_by_its_probability_and_its_certainty(bundle_tiny: Bundle) -> None:
    one = BinaryPlanner(bundle_tiny, entity="bleeding", stop=Stop(probability=0.7))
    assert one.confidence() == 0.5
    one.observe("CXCL8", 1)
    one.observe("MUC2", -1)
    assert one.probability() > 0.7
    assert one.next_feature() is None
    sure = BinaryPlanner(bundle_tiny, entity="bleeding", stop=Stop(certain=True))
    sure.observe_all({"CXCL8": 1, "MUC2": -1})
    assert sure.next_feature() is None
    assert sure.reason == "no remaining measurement can change the answer"


def test_the_explanation_has_items_and_costs_where_there_are_any(ladder: Bundle) -> None:
    assert "cost" not in planner(ladder).explain()
    table = planner(ladder, panels={"rest": ["b", "c", "d"]}, costs={"rest": 2}).explain()
    assert table["feature"].tolist() == ["a", "b", "c", "d"]
    assert table["item"].tolist() == ["a", "rest", "rest", "rest"]
    assert table["gain_per_cost"].tolist() == [4, 3, 3, 3]
    assert table["share"].tolist() == [0.4, 0.3, 0.2, 0.1]


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"costs": {"e": 1}}, "a cost of 'e'"),
        ({"costs": {"a": -1}}, "costs, a: found -1"),
        ({"costs": {"a": float("inf")}}, "costs, a: found inf"),
        ({"costs": {"a": "2"}}, "costs, a: found '2'"),
        ({"costs": {"a": 1e308, "b": 1e308}}, "costs: found costs whose sum overflows"),
        ({"costs": "none"}, "found 'none'; expected None, 'equal', or costs by name"),
        ({"panels": {"a": ["b"]}}, "panel 'a': found the name of a feature"),
        ({"panels": {"p": []}}, "panel 'p': found []"),
        ({"panels": {"p": "ab"}}, "panel 'p': found 'ab'"),
        ({"panels": {"p": ["x"]}}, "the unknown feature 'x'"),
        ({"panels": {"p": ["a", "b"], "q": ["b"]}}, "found b, which panel 'p' has"),
        ({"stop": 3}, "planner option stop: found 3"),
    ],
)
def test_costs_and_panels_that_do_not_fit_are_refused(ladder: Bundle, options: dict[str, Any], words: str) -> None:
    with pytest.raises(PlannerError) as error:
        planner(ladder, **options)
    assert words in where_of(error)


@pytest.mark.parametrize(
    "options",
    [{"budget": -1}, {"budget": "3"}, {"probability": 0.5}, {"probability": 1}, {"gain": -0.1}, {"certain": 1}],
)
def test_a_stopping_rule_out_of_range_is_refused(options: dict[str, Any]) -> None:
    with pytest.raises(PlannerError) as error:
        Stop(**options)
    assert f"stop option {next(iter(options))}" in where_of(error)


@pytest.mark.parametrize("cost", [-1, float("nan"), "2", True])
def test_a_cost_paid_that_is_no_number_is_refused(ladder: Bundle, cost: Any) -> None:
    one = planner(ladder)
    with pytest.raises(PlannerError):
        one.observe("a", 1, cost=cost)
    assert one.observed == {}


def test_costs_paid_whose_sum_overflows_are_refused(ladder: Bundle) -> None:
    one = planner(ladder)
    one.observe("a", 1, cost=1e308)
    with pytest.raises(PlannerError, match="expected a finite sum of costs"):
        one.observe("b", 1, cost=1e308)
    assert one.observed == {"a": 1}
