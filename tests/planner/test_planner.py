"""TopKPlanner: what it refuses, that it always ends, and what its answers depend on."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from bundles import bundle_of, random_bundles, rearranged
from examples import examples
from hypothesis import given
from hypothesis import strategies as st

from afa.errors import PlannerError
from afa.model.bundle import Bundle
from afa.planner import TopKPlanner
from afa.planner.rules import RULES, Choice

PATIENT = {"AQP8": -1, "CXCL8": 1, "MMP9": 0, "MUC2": -1, "TFF3": 1}

SMALL = st.floats(-0.3, 0.3).map(lambda value: round(value, 2))


def run(planner: TopKPlanner, patient: dict[str, int]) -> list[str]:
    """Ask until all is observed; the features in the order they were asked for."""
    asked = []
    while (feature := planner.next_feature()) is not None:
        asked.append(feature)
        assert len(asked) <= len(patient)
        planner.observe(feature, patient[feature])
    return asked


def fault(error: pytest.ExceptionInfo[PlannerError]) -> tuple[str, str, str]:
    (only,) = error.value.faults
    assert only.next_step
    return only.where, only.found, only.expected


@pytest.mark.parametrize(
    ("option", "given_value", "expected"),
    [
        ("k", 0, "1 to 2"),
        ("k", 3, "1 to 2"),
        ("k", -1, "1 to 2"),
        ("score", "nosuch", "linearity or wald"),
        ("score", "Wald", "linearity or wald"),
        ("gain", "nosuch", "wald_magnitude"),
        ("allocation", "nosuch", "greedy"),
        ("start", "cold", "uniform or warm"),
    ],
)
def test_a_wrong_option_is_refused_by_name_with_what_is_possible(
    bundle_tiny: Bundle, option: str, given_value: Any, expected: str
) -> None:
    with pytest.raises(PlannerError) as error:
        TopKPlanner(bundle_tiny, **({"k": 1} | {option: given_value}))
    where, found, possible = fault(error)
    assert where == f"planner option {option}"
    assert found == (str(given_value) if option == "k" else repr(given_value))
    assert expected in possible


def test_an_unknown_feature_is_refused(bundle_tiny: Bundle) -> None:
    with pytest.raises(PlannerError) as error:
        TopKPlanner(bundle_tiny, k=1).observe("MUC5", 1)
    assert fault(error) == ("feature 'MUC5'", "an unknown name", "a feature of the bundle")


@pytest.mark.parametrize("most", ["MUC5", 2.5, -1])
def test_an_explanation_has_a_whole_number_of_rows(bundle_tiny: Bundle, most: Any) -> None:
    with pytest.raises(PlannerError) as error:
        TopKPlanner(bundle_tiny, k=1).explain(most)
    assert fault(error) == ("most", repr(most), "a whole number, 0 or more")


@pytest.mark.parametrize("value", [2, -2, 0.5, float("nan"), None, "1"])
def test_a_value_that_is_not_ternary_is_refused(bundle_tiny: Bundle, value: Any) -> None:
    planner = TopKPlanner(bundle_tiny, k=1)
    with pytest.raises(PlannerError) as error:
        planner.observe("MUC2", value)
    assert fault(error) == ("feature MUC2", repr(value), "-1, 0 or 1")


def test_a_second_observation_is_refused_and_changes_nothing(bundle_tiny: Bundle) -> None:
    planner = TopKPlanner(bundle_tiny, k=1)
    planner.observe("MUC2", 1)
    before = planner.scores()
    with pytest.raises(PlannerError) as error:
        planner.observe("MUC2", -1)
    assert fault(error) == ("feature MUC2", "a second observation", "at most one")
    assert planner.observed == {"MUC2": 1}
    np.testing.assert_array_equal(planner.scores(), before)


@pytest.mark.parametrize("chosen", [-1, 5, 3])
def test_a_rule_that_answers_with_no_unobserved_feature_is_refused(bundle_tiny: Bundle, chosen: int) -> None:
    class Stuck:
        def choose(self, view: object) -> Choice:
            return Choice(chosen, "always the same")

    planner = TopKPlanner(bundle_tiny, k=1, allocation=Stuck())
    planner.observe("MUC2", 1)  # feature 3
    with pytest.raises(PlannerError) as error:
        planner.next_feature()
    assert fault(error) == ("rule Stuck", str(chosen), "an index of an unobserved feature")


def test_a_rule_of_ones_own_is_followed(bundle_tiny: Bundle) -> None:
    class Last:
        def choose(self, view: Any) -> Choice:
            return Choice(int(np.flatnonzero(~view.observed)[-1]), "the last one")

    planner = TopKPlanner(bundle_tiny, k=1, allocation=Last(), costs="equal")
    assert run(planner, PATIENT) == ["TFF3", "MUC2", "MMP9", "CXCL8", "AQP8"]


@given(random_bundles(), st.sampled_from(sorted(RULES)), st.data())
@examples(30)
def test_every_rule_asks_for_every_feature_once_and_then_for_none(
    bundle: Bundle, rule: str, data: st.DataObject
) -> None:
    patient = {name: data.draw(st.sampled_from([-1, 0, 1])) for name in bundle.features}
    planner = TopKPlanner(bundle, k=1, allocation=rule)
    assert sorted(run(planner, patient)) == sorted(bundle.features)
    assert planner.next_feature() is None
    assert planner.reason == "every feature has been observed"
    assert planner.observed == patient


@pytest.mark.parametrize("rule", RULES)
def test_a_reason_is_stated_for_every_choice(bundle_tiny: Bundle, rule: str) -> None:
    planner = TopKPlanner(bundle_tiny, k=1, allocation=rule)
    assert planner.reason == "nothing asked yet"
    while (feature := planner.next_feature()) is not None:
        assert planner.reason
        assert planner.reason != "nothing asked yet"
        planner.observe(feature, PATIENT[feature])


def test_asking_twice_gives_the_same_feature(bundle_tiny: Bundle) -> None:
    planner = TopKPlanner(bundle_tiny, k=1)
    assert planner.next_feature() == planner.next_feature()


def test_greedy_asks_first_for_the_feature_on_which_the_entities_differ_most(bundle_tiny: Bundle) -> None:
    # absolute differences of unaries over the three duels: AQP8 2, CXCL8 2, MMP9 2, MUC2 2, TFF3 0
    planner = TopKPlanner(bundle_tiny, k=1, gain="wald_magnitude", allocation="greedy", costs="equal")
    assert planner.next_feature() == "AQP8"
    table = planner.explain()
    assert table["feature"].tolist() == ["AQP8", "CXCL8", "MMP9", "MUC2", "TFF3"]
    assert table["gain"].tolist() == [2, 2, 2, 2, 0]
    assert table["duels_moved"].tolist() == [2, 2, 2, 2, 0]
    assert table["share"].tolist() == [0.25, 0.25, 0.25, 0.25, 0]


def test_the_posterior_is_that_of_one_entity_out_of_all_worked_by_hand() -> None:
    # without couplings P(x | v) = e^(theta x) / (e^-theta + 1 + e^theta); three entities, one feature, x = 0
    unary = np.array([[2.0], [0.0], [-1.0]])
    planner = TopKPlanner(bundle_of(unary, np.zeros((3, 1, 1))), k=1)
    np.testing.assert_allclose(planner.posterior(), [1 / 3] * 3)
    planner.observe(planner.bundle.features[0], 0)
    given = 1 / (np.exp(-unary[:, 0]) + 1 + np.exp(unary[:, 0]))
    np.testing.assert_allclose(planner.posterior(), given / given.sum(), atol=1e-6)


def test_the_explanation_leaves_observed_features_out_and_is_as_long_as_asked(bundle_tiny: Bundle) -> None:
    planner = TopKPlanner(bundle_tiny, k=1)
    planner.observe("AQP8", 1)
    assert "AQP8" not in set(planner.explain()["feature"])
    assert len(planner.explain(most=2)) == 2
    for feature in ("CXCL8", "MMP9", "MUC2", "TFF3"):
        planner.observe(feature, 1)
    assert len(planner.explain()) == 0


def test_the_answer_at_full_observation_is_the_energies_worked_by_hand(bundle_tiny: Bundle) -> None:
    # bleeding: 1 + 1 - (1)(-1) = 3; diarrhea: 1 + (-1)(-1) = 2; fistula: -1.5 + 1 + 0 + 0 = -0.5
    for score in ("linearity", "wald"):
        planner = TopKPlanner(bundle_tiny, k=2, score=score)
        run(planner, PATIENT)
        np.testing.assert_allclose(planner.scores(), np.subtract.outer([3, 2, -0.5], [3, 2, -0.5]))
        assert planner.top_k() == ["bleeding", "diarrhea"]
        assert set(planner.resolved()) == {("bleeding", "diarrhea"), ("bleeding", "fistula"), ("diarrhea", "fistula")}


@given(random_bundles())
@examples(20)
def test_scores_are_antisymmetric_and_a_small_k_is_the_head_of_a_larger_one(bundle: Bundle) -> None:
    largest = TopKPlanner(bundle, k=len(bundle.entities) - 1)
    np.testing.assert_array_equal(largest.scores(), -largest.scores().T)
    assert TopKPlanner(bundle, k=1).top_k() == largest.top_k()[:1]


@given(random_bundles(), st.data())
@examples(30)
def test_the_order_of_the_entities_changes_no_choice_and_no_answer(bundle: Bundle, data: st.DataObject) -> None:
    patient = {name: data.draw(st.sampled_from([-1, 0, 1])) for name in bundle.features}
    other = rearranged(bundle, entities=data.draw(st.permutations(bundle.entities)))
    planners = [TopKPlanner(model, k=1) for model in (bundle, other)]
    for _ in bundle.features:
        (feature,) = {planner.next_feature() for planner in planners}
        assert feature is not None
        for planner in planners:
            planner.observe(feature, patient[feature])
        assert planners[0].top_k() == planners[1].top_k()
        assert set(planners[0].resolved()) == set(planners[1].resolved())


@given(random_bundles(potentials=SMALL), st.data())
@examples(30)
def test_the_order_of_the_features_changes_no_choice_and_no_score(bundle: Bundle, data: st.DataObject) -> None:
    # potentials small enough for one fixed point of the mean-field iteration
    patient = {name: data.draw(st.sampled_from([-1, 0, 1])) for name in bundle.features}
    rule = data.draw(st.sampled_from(sorted(RULES)))
    other = rearranged(bundle, features=data.draw(st.permutations(bundle.features)))
    planners = [TopKPlanner(model, k=1, allocation=rule) for model in (bundle, other)]
    for _ in bundle.features:
        (feature,) = {planner.next_feature() for planner in planners}
        assert feature is not None
        for planner in planners:
            planner.observe(feature, patient[feature])
        np.testing.assert_allclose(planners[0].scores(), planners[1].scores(), atol=1e-3)


def test_new_names_of_the_features_rename_the_choices() -> None:
    # no two features tie, so that no choice is made by name
    unary = np.array([[0.9, 0.1, 0.35], [-0.2, 0.6, 0.05]])
    old, new = (bundle_of(unary, np.zeros((2, 3, 3)), features=names) for names in (("a", "b", "c"), ("z", "y", "x")))
    first = run(TopKPlanner(old, k=1), {"a": 1, "b": 1, "c": 1})
    second = run(TopKPlanner(new, k=1), {"z": 1, "y": 1, "x": 1})
    assert [new.features[old.features.index(name)] for name in first] == second == ["z", "y", "x"]


def test_a_random_order_depends_on_patient_and_seed(bundle_tiny: Bundle) -> None:
    orders = {
        tuple(run(TopKPlanner(bundle_tiny, k=1, allocation="random", patient=patient, seed=seed), PATIENT))
        for patient in ("p1", "p2", "p3")
        for seed in (0, 1)
    }
    assert len(orders) >= 5


def test_the_rule_is_priority_over_all_duels_and_over_clusters_for_more_than_200_entities() -> None:
    for n, name in ((3, "PriorityAll"), (200, "PriorityAll"), (201, "PriorityClusters")):
        unary = np.linspace(0.1, 1, n)[:, None] * np.ones((n, 2))
        planner = TopKPlanner(bundle_of(unary, np.zeros((n, 2, 2))), k=1)
        assert type(planner.rule).__name__ == name


@given(random_bundles(entities=(2, 2)), st.data())
@examples(20)
def test_with_two_entities_priority_over_all_chooses_what_greedy_chooses(bundle: Bundle, data: st.DataObject) -> None:
    patient = {name: data.draw(st.sampled_from([-1, 0, 1])) for name in bundle.features}
    orders = [run(TopKPlanner(bundle, k=1, allocation=rule), patient) for rule in ("greedy", "priority_all")]
    assert orders[0] == orders[1]
