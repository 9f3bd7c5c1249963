"""Binary tasks of many patients give the numbers of `BinaryPlanner`, one patient at a time."""

from itertools import product

import numpy as np
import pytest
from bundles import QUARTERS, bundle_of, random_bundles
from examples import examples
from hypothesis import given
from hypothesis import strategies as st

from afa.engine.tasks import TASK_BRACKETS, TASK_SCORES, follow_gain, follow_orders, task_of
from afa.inference.meanfield import mean_field
from afa.model.closure import half_potentials
from afa.model.mrf import Evidence
from afa.planner import BinaryPlanner
from afa.scores.bracket import hanson_wright_interval, l1_interval
from afa.scores.preference import duel_variance, linearity

GAINS = (("wald_magnitude", None), ("cmi", None), ("f_target", "two_elbo"), ("f_target", "stack_a"))


def planned(bundle, values, gain, target):
    """One patient through the planner: (t, wald, two_elbo, stack_a) before and after each feature of the support.

    The second array tells where the planner's decision, the sign of the calibrated log-odds, is certain.
    """
    entity = bundle.entities[0]
    planners = [BinaryPlanner(bundle, entity=entity, score=score, gain=gain, target=target) for score in TASK_SCORES]
    guide, support = planners[1], {bundle.features[j] for j in bundle.support(entity)}
    steps, certain = [(0, *(planner.score() for planner in planners))], [guide.certain()]
    while (feature := guide.next_feature()) is not None:
        for planner in planners:
            planner.observe(feature, int(values[bundle.features.index(feature)]))
        if feature in support:
            steps.append((len(guide.observed), *(planner.score() for planner in planners)))
            certain.append(guide.certain())
    return np.array(steps), np.array(certain)


def patients(data, bundle, most=4):
    rows = st.lists(st.sampled_from([-1, 0, 1]), min_size=len(bundle.features), max_size=len(bundle.features))
    return np.array(data.draw(st.lists(rows, min_size=1, max_size=most)), dtype=np.int8)


@pytest.mark.parametrize(("gain", "target"), GAINS)
@given(random_bundles(entities=(1, 2), features=(2, 5), potentials=QUARTERS), st.data())
@examples(12)
def test_the_decision_tree_chooses_and_scores_as_the_planner_does(gain, target, bundle, data):
    """Both choose the same features until one is certain of its decision.

    The task decides by the sign of S, the planner by the sign of the calibrated log-odds.
    """
    values = patients(data, bundle)
    paths = follow_gain(task_of(bundle, bundle.entities[0]), values, gain=gain, target=target)
    for i, row in enumerate(values):
        expected, certain = planned(bundle, row, gain, target)
        certain |= paths.calls[i, 0, :, 0] != 0
        alike = int(np.argmax(certain)) + 1 if certain.any() else len(certain)
        np.testing.assert_array_equal(paths.t[i, 0, :alike], expected[:alike, 0])
        for column, method in enumerate(TASK_SCORES, 1):
            np.testing.assert_allclose(getattr(paths, method)[i, 0, :alike], expected[:alike, column], atol=1e-9)


def test_two_patients_who_part_are_followed_apart():
    """f0 is chosen first; patients 0 and 1 part there, 0 and 2 never do."""
    bundle = bundle_of([[2.0, 1.0, 1.0]], [[[0, 0, 1.0], [0, 0, 0], [1.0, 0, 0]]])
    values = np.array([[1, 1, 0], [-1, 1, 0], [1, 1, 0]], dtype=np.int8)
    paths = follow_gain(task_of(bundle, "v0"), values, gain="wald_magnitude")
    assert paths.wald[:, 0].tolist() == [[0, 2, 2, 3], [0, -2, -1, -1], [0, 2, 2, 3]]


@given(random_bundles(entities=(1, 2), features=(2, 5)), st.data())
@examples(30)
def test_given_orders_are_scored_as_by_the_readable_functions(bundle, data):
    entity, m = bundle.entities[0], len(bundle.features)
    values = patients(data, bundle, most=2)
    orders = np.array([[data.draw(st.permutations(range(m))) for _ in range(2)] for _ in values])
    paths = follow_orders(task_of(bundle, entity), values, orders)
    mrf = bundle.mrf(entity)
    halves, support = half_potentials(mrf), set(mrf.support)
    for patient, run in product(range(len(values)), range(2)):
        order = orders[patient, run]
        rounds = [0, *(t for t in range(1, m + 1) if order[t - 1] in support)]
        assert paths.t[patient, run].tolist() == rounds
        for step, t in enumerate(rounds):
            seen = {bundle.features[j]: int(values[patient, j]) for j in order[:t]}
            sides = [Evidence.of(half, seen) for half in halves]
            solved = [mean_field(side.mrf, side) for side in sides]
            assert paths.wald[patient, run, step] == pytest.approx(sides[0].constant - sides[1].constant, abs=1e-9)
            assert paths.two_elbo[patient, run, step] == pytest.approx(solved[0].elbo - solved[1].elbo, abs=1e-9)
            assert calls_of(paths, patient, run, step) == expected_calls(mrf, seen, sides, solved)


def calls_of(paths, patient, run, step):
    return dict(zip(TASK_BRACKETS, paths.calls[patient, run, step].tolist(), strict=True))


def expected_calls(mrf, seen, sides, solved):
    """The sign of each readable interval, 0 where it holds 0."""
    evidence, tie = Evidence.of(mrf, seen), 1e-9
    marginals = [solution.marginals for solution in solved]
    mean = float(linearity(sides, marginals)[0, 1])
    mean = mean if abs(mean) > tie else 0.0  # rounding has no side
    intervals = {
        "l1_tight": l1_interval(evidence, form="tight"),
        "l1_paper": l1_interval(evidence, form="paper"),
        "hanson_wright": hanson_wright_interval(evidence, mean, duel_variance(*sides, *marginals)),
    }
    return {name: (1 if low > tie else -1 if high < -tie else 0) for name, (low, high) in intervals.items()}


@given(random_bundles(entities=(1, 2), features=(2, 5), potentials=QUARTERS), st.integers(0, 6), st.data())
@examples(12)
def test_patients_followed_no_further_than_asked_are_the_same_up_to_there(bundle, last, data):
    values, task = patients(data, bundle), task_of(bundle, bundle.entities[0])
    whole, part = follow_gain(task, values, gain="cmi"), follow_gain(task, values, gain="cmi", last_step=last)
    for name in ("t", *TASK_SCORES):
        np.testing.assert_array_equal(
            getattr(part, name)[:, :, : last + 1], getattr(whole, name)[:, :, : last + 1], err_msg=name
        )
    assert not part.t[:, :, last + 1 :].any()


def test_a_bundle_without_any_potential_has_one_step():
    bundle = bundle_of([[0.0, 0.0]], np.zeros((1, 2, 2)))
    values = np.array([[1, -1]], dtype=np.int8)
    for paths in (
        follow_gain(task_of(bundle, "v0"), values, gain="cmi"),
        follow_orders(task_of(bundle, "v0"), values, np.array([[[0, 1]]])),
    ):
        assert paths.t.tolist() == [[[0]]]
        assert paths.two_elbo.tolist() == [[[0.0]]]
