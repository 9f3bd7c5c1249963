"""The lift of Layer 0 against planners that are asked patient by patient."""

from __future__ import annotations

from itertools import combinations

import numpy as np
import pandas as pd
import pytest
from bundles import bundle_of
from cohorts import cohort_of

from afa.cohort.cohort import Cohort
from afa.engine.outcomes import follow_rule, full_observation
from afa.engine.paths import first_signs, sign_paths
from afa.evaluate.inputs import final_differences
from afa.model.bundle import Bundle
from afa.paper.experiments.layer0 import layer0_lift
from afa.planner import TopKPlanner

NOTHING, SOME = (5, "sound", "k"), (5, "f1", "n_minus_k")
VARIANT = ["n_clusters", "criterion", "rule"]
OUT = ("v1", "v4")


@pytest.fixture(scope="module")
def bundle() -> Bundle:
    """Five entities on seven features, each on a part of them; one feature is in the removed entities alone."""
    draw = np.random.default_rng(11)
    unary = draw.normal(0, 1, (5, 7)) * (draw.random((5, 7)) < 0.7)
    couplings = draw.normal(0, 0.5, (5, 7, 7)) * (draw.random((5, 7, 7)) < 0.4)
    unary[[0, 2, 3], 6] = 0
    couplings[[0, 2, 3], :, 6] = 0
    unary[[1, 4], 6] = [2.0, -2.0]
    return bundle_of(unary, couplings)


@pytest.fixture(scope="module")
def cohort(bundle: Bundle) -> Cohort:
    values = np.random.default_rng(12).integers(-1, 2, (8, 7))
    values[5] = values[2]
    values[7] = 0
    return cohort_of(bundle, values)


@pytest.fixture(scope="module")
def table(bundle: Bundle, cohort: Cohort) -> pd.DataFrame:
    return layer0_lift(bundle, cohort, {SOME: OUT, NOTHING: ()}, rounds=4)


def signs_at_full_observation(bundle: Bundle, values: np.ndarray) -> dict[tuple[int, int], int]:
    energy = [bundle.mrf(entity).energy(values) for entity in bundle.entities]
    lead = {(a, b): energy[a] - energy[b] for a, b in combinations(range(len(energy)), 2)}
    return {duel: int(np.sign(value)) if abs(value) > 1e-9 else 0 for duel, value in lead.items()}


def calls_along(bundle: Bundle, left: Bundle, values: np.ndarray, rounds: int) -> list[float]:
    """Right calls of all duels at each t, in the order that a greedy planner on `left` asks for."""
    asking = TopKPlanner(left, k=1, allocation="greedy")
    answering = TopKPlanner(bundle, k=1)
    truth = signs_at_full_observation(bundle, values)
    right = []
    for t in range(rounds + 1):
        signs = np.sign(answering.scores())
        right.append(sum(0.5 + 0.5 * signs[duel] * sign for duel, sign in truth.items() if sign))
        if t < rounds:
            feature = asking.next_feature()
            value = int(values[bundle.features.index(feature)])
            asking.observe(feature, value)
            answering.observe(feature, value)
    return right


def of(table: pd.DataFrame, variant: tuple[int, str, str]) -> pd.DataFrame:
    return table[(table[VARIANT] == list(variant)).all(axis=1)].reset_index(drop=True)


def test_both_sides_count_what_planners_call_along_their_own_orders(
    bundle: Bundle, cohort: Cohort, table: pd.DataFrame
) -> None:
    left = bundle.restrict_entities([name for name in bundle.entities if name not in OUT])
    differ = 0
    by_patient = of(table, SOME).sort_values("t").groupby("patient")
    for name, values in zip(cohort.patients, cohort.values, strict=True):
        found = by_patient.get_group(name)
        assert found["right"].tolist() == calls_along(bundle, left, values, 4)
        assert found["right_greedy"].tolist() == calls_along(bundle, bundle, values, 4)
        assert set(found["duels"]) == {sum(sign != 0 for sign in signs_at_full_observation(bundle, values).values())}
        differ += found["right"].tolist() != found["right_greedy"].tolist()
    assert differ > 0


def test_where_nothing_is_removed_nothing_differs(table: pd.DataFrame) -> None:
    found = of(table, NOTHING)
    assert (found["right"] == found["right_greedy"]).all()
    assert found["right_greedy"].tolist() == of(table, SOME)["right_greedy"].tolist()


def test_the_same_entities_removed_at_two_numbers_of_clusters_lift_the_same(
    bundle: Bundle, cohort: Cohort, table: pd.DataFrame
) -> None:
    other = (2, "f1", "k")
    found = layer0_lift(bundle, cohort, {SOME: OUT, other: OUT}, rounds=4)
    pd.testing.assert_frame_equal(of(found, other).drop(columns=VARIANT), of(table, SOME).drop(columns=VARIANT))


def test_where_one_entity_is_left_its_largest_unary_decides_and_every_duel_is_still_counted() -> None:
    """One entity has no duel to gain from, so that A7 takes f1, its largest unary; f1 tells all three duels."""
    bundle = bundle_of([[0.0, 1.0], [0.0, 2.0], [0.5, 4.0]], np.zeros((3, 2, 2)), entities=("u", "v", "w"))
    cohort = Cohort("made", bundle.features, ("p",), np.array([[1, -1]], dtype=np.int8), pd.DataFrame(index=["p"]))
    found = layer0_lift(bundle, cohort, {SOME: ("v", "w")}, rounds=1)
    assert found["duels"].tolist() == [3, 3]
    assert found["right"].tolist() == [0, 3]


def test_before_any_observation_both_sides_are_the_bundle_alone(table: pd.DataFrame) -> None:
    first = of(table, SOME).query("t == 0")
    assert first["right"].tolist() == first["right_greedy"].tolist()


def test_there_is_a_row_for_each_variant_patient_and_round(cohort: Cohort, table: pd.DataFrame) -> None:
    assert not table.duplicated([*VARIANT, "patient", "t"]).any()
    assert len(table) == 2 * len(cohort.patients) * 5


def test_rounds_end_where_all_features_are_observed(bundle: Bundle, cohort: Cohort) -> None:
    found = layer0_lift(bundle, cohort, {SOME: OUT})
    assert found["t"].max() == 7
    last = found[found["t"] == 7]
    assert (last["right"] == last["duels"]).all()
    assert (last["right_greedy"] == last["duels"]).all()


def test_the_numbers_do_not_depend_on_the_number_of_threads_or_on_who_else_is_there(
    bundle: Bundle, cohort: Cohort, table: pd.DataFrame
) -> None:
    pd.testing.assert_frame_equal(layer0_lift(bundle, cohort, {SOME: OUT, NOTHING: ()}, rounds=4, threads=3), table)
    alone = Cohort("made", cohort.features, cohort.patients[3:4], cohort.values[3:4], cohort.labels.iloc[3:4])
    found = layer0_lift(bundle, alone, {SOME: OUT}, rounds=4)
    expected = of(table, SOME).query("patient == 'p3'").reset_index(drop=True)
    pd.testing.assert_frame_equal(found, expected)


def test_winners_are_the_signs_of_full_observation_and_ties_have_none(bundle: Bundle, cohort: Cohort) -> None:
    winners = np.sign(final_differences(bundle, cohort.values))
    for values, found in zip(cohort.values, winners, strict=True):
        assert found.tolist() == list(signs_at_full_observation(bundle, values).values())
    assert not winners[7].any()


def test_the_first_rounds_of_an_order_can_be_followed_without_the_rest(bundle: Bundle, cohort: Cohort) -> None:
    draw = np.random.default_rng(3)
    orders = np.stack([[draw.permutation(7)] for _ in cohort.patients])
    whole = sign_paths(bundle, cohort.values, orders, threads=1).signs["linearity"]
    part = sign_paths(bundle, cohort.values, np.ascontiguousarray(orders[:, :, :3]), threads=1).signs["linearity"]
    assert np.array_equal(part, whole[:, :, :4])


@pytest.mark.parametrize("out", [(), OUT])
def test_first_signs_are_those_along_the_order_that_the_rule_chooses_patient_by_patient(
    bundle: Bundle, cohort: Cohort, out: tuple[str, ...]
) -> None:
    left = bundle.restrict_entities([name for name in bundle.entities if name not in out]) if out else bundle
    truth = full_observation(left, cohort.values)
    order = follow_rule(left, cohort.values, truth, allocation="greedy", gain="cmi", k=1, threads=1).order
    expected = sign_paths(bundle, cohort.values, order[:, None], threads=1).signs["linearity"][:, 0]
    assert np.array_equal(first_signs(bundle, left, cohort.values, 7), expected)
