"""The suite that every allocation rule passes and every cheat fails."""

from __future__ import annotations

from typing import Any

import numpy as np
import policy_suite
import pytest
from bundles import QUARTERS, random_bundles
from examples import examples
from hypothesis import given
from hypothesis import strategies as st

from afa.errors import PlannerError
from afa.model.bundle import Bundle
from afa.model.orders import random_order
from afa.planner.rules import RULES, Choice, View, check_policy
from afa.planner.rules.base import best


@pytest.mark.parametrize("rule", RULES)
def test_every_rule_passes_the_suite(rule: str) -> None:
    policy_suite.check_policy(RULES[rule])


@pytest.mark.parametrize("rule", RULES)
@examples(6)
@given(random_bundles(potentials=QUARTERS, entities=(2, 4)), st.sampled_from(["linearity", "stack_a", "kl_nonzero"]))
def test_every_rule_passes_on_any_bundle(rule: str, bundle: Bundle, score: str) -> None:
    check_policy(RULES[rule], bundle, k=len(bundle.entities) - 1, score=score)


class First:
    """A rule to spoil: the first unobserved feature by name."""

    def choose(self, view: View) -> Choice:
        return Choice(self.first(view), "first by name")

    def first(self, view: View) -> int:
        return int(min(np.flatnonzero(~view.observed), key=lambda j: view.features[j]))


class Repeats(First):
    def choose(self, view: View) -> Choice:
        return Choice(min(range(len(view.features)), key=lambda j: view.features[j]), "always the same")


class GivesUp(First):
    def choose(self, view: View) -> Choice:
        if view.observed.sum() == 3:
            raise StopIteration("enough")
        return super().choose(view)


class AnswersWithNothing(First):
    def choose(self, view: View) -> Choice:
        return None if view.observed.any() else super().choose(view)  # type: ignore[return-value]


class OutOfRange(First):
    def choose(self, view: View) -> Choice:
        return Choice(-1, "the last")


class NoReason(First):
    def choose(self, view: View) -> Choice:
        return Choice(self.first(view), " ")


class ByPositionOfFeatures(First):
    def first(self, view: View) -> int:
        return int(np.flatnonzero(~view.observed)[0])


class ByPositionOfEntities(First):
    def first(self, view: View) -> int:
        own = view.gain(np.arange(len(view.pairs)) == 0)[0]
        feature = best(own, view.features, ~view.observed)
        return super().first(view) if feature is None else feature


class Draws(First):
    rng = np.random.default_rng(0)

    def first(self, view: View) -> int:
        return int(self.rng.choice(np.flatnonzero(~view.observed)))


class DrawsOncePerRun(First):
    seeds = iter(range(10_000))

    def __init__(self) -> None:
        self.seed = next(self.seeds)

    def first(self, view: View) -> int:
        order = random_order(view.features, patient=view.patient, seed=self.seed)
        return next(int(j) for j in order if not view.observed[j])


class RemembersPatients(First):
    def __init__(self) -> None:
        self.known: list[str] = []

    def first(self, view: View) -> int:
        self.known += [view.patient] if view.patient not in self.known else []
        free = sorted(np.flatnonzero(~view.observed), key=lambda j: view.features[j])
        return int(free[0] if self.known[0] == view.patient else free[-1])


@pytest.mark.parametrize(
    ("rule", "found"),
    [
        (Repeats, "found a again; expected an unobserved feature"),
        (GivesUp, "after 3 observations: found StopIteration"),
        (AnswersWithNothing, "after 1 observations: found None; expected a Choice"),
        (OutOfRange, "found feature -1; expected an index from 0 to 7"),
        (NoReason, "found the reason ' '; expected words"),
        (ByPositionOfFeatures, "with entities and features in another order"),
        (ByPositionOfEntities, "with entities and features in another order"),
        (Draws, "expected the same feature for the same view"),
        (DrawsOncePerRun, "in a second run"),
        (RemembersPatients, "after other patients"),
    ],
)
def test_a_rule_that_breaks_the_protocol_is_caught(rule: Any, found: str) -> None:
    check_policy(First, policy_suite.tied(0))
    with pytest.raises(PlannerError) as error:
        check_policy(rule, policy_suite.tied(0))
    assert found in str(error.value)
    assert error.value.faults[0].next_step


class Peeks(First):
    """Takes the first unobserved feature whose value is not 0."""

    def __init__(self, values: np.ndarray) -> None:
        self.values = values

    def first(self, view: View) -> int:
        row = self.values[int(view.patient[1:])]
        free = np.flatnonzero(~view.observed)
        return int(min(free, key=lambda j: (row["hbdacgfe".index(view.features[j])] == 0, view.features[j])))


class KnowsLabels(Peeks):
    def first(self, view: View) -> int:
        free = sorted(np.flatnonzero(~view.observed), key=lambda j: view.features[j])
        return int(free[0] if self.values[int(view.patient[1:])][2] == 1 else free[-1])


def test_a_rule_that_sees_unobserved_values_is_caught_and_the_values_are_put_back() -> None:
    values = np.random.default_rng(0).integers(-1, 2, (2, 8)).astype(np.int8)
    before = values.copy()
    for make in (lambda: Peeks(values), lambda: Peeks(values.copy())):
        with pytest.raises(PlannerError, match="with other unobserved values and labels"):
            check_policy(make, policy_suite.tied(0), values=values)
        np.testing.assert_array_equal(values, before)


def test_a_rule_that_sees_labels_is_caught_and_the_labels_are_put_back() -> None:
    values = np.random.default_rng(0).integers(-1, 2, (2, 8)).astype(np.int8)
    labels = np.array([[0, 1, 1, 0, np.nan], [1, 0, 0, np.nan, 1]])
    before = labels.copy()
    with pytest.raises(PlannerError, match="with other unobserved values and labels"):
        check_policy(lambda: KnowsLabels(labels), policy_suite.tied(0), values=values, labels=labels)
    np.testing.assert_array_equal(labels, before)


def test_patients_that_do_not_fit_the_bundle_or_cannot_be_changed_are_refused() -> None:
    bundle = policy_suite.tied(0)
    fixed = np.zeros((2, 8), dtype=np.int8)
    fixed.flags.writeable = False
    for values, found in ((np.zeros((2, 7), dtype=np.int8), "shape"), (fixed, "read-only")):
        with pytest.raises(PlannerError, match=found):
            check_policy(First, bundle, values=values)
    with pytest.raises(PlannerError, match="labels of shape"):
        check_policy(First, bundle, labels=np.zeros((2, 4)))
