"""Chaotic patients are found on one set of orders and measured on another; every number is that of a plain loop."""

from __future__ import annotations

from itertools import combinations, pairwise

import numpy as np
import pandas as pd
import pytest
from bundles import QUARTERS, bundle_of, random_bundles
from cohorts import cohort_of
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays
from pydantic import ValidationError

from afa.cohort.cohort import Cohort
from afa.engine import follow
from afa.model.bundle import Bundle
from afa.model.orders import random_order
from afa.paper.experiments import chaos as chaos_module
from afa.paper.experiments import sign
from afa.paper.experiments.chaos import LAST_EARLY_ROUND, count_flips, magnitudes
from afa.paper.experiments.settings import Chaos, Inference, RandomOrder
from afa.planner import TopKPlanner

SEEDS = {"selecting": (0, 1), "measuring": (4, 2, 7)}
NAMES = ("flips", "rounds", "duels")
PATIENTS = 7


def run(bundle: Bundle, cohort: Cohort, patients: range, **changes: object) -> dict[str, pd.DataFrame]:
    seeds = {f"{name}_seeds": numbers for name, numbers in SEEDS.items()}
    threads = changes.pop("threads", None)
    chaos = Chaos(**{**seeds, **changes})
    return chaos_module.run(bundle, cohort, patients, chaos=chaos, inference=Inference(), threads=threads)


@pytest.fixture(scope="module")
def cohort(bundle_tiny: Bundle) -> Cohort:
    values = np.random.default_rng(16).integers(-1, 2, (PATIENTS, len(bundle_tiny.features)))
    values[3] = 0
    return cohort_of(bundle_tiny, values)


@pytest.fixture(scope="module")
def whole(bundle_tiny: Bundle, cohort: Cohort) -> dict[str, pd.DataFrame]:
    return run(bundle_tiny, cohort, range(PATIENTS))


def turns(path: list[int]) -> int:
    """Changes of side of one pair: its signs without the ties, compared with their neighbours."""
    sides = [sign for sign in path if sign != 0]
    return sum(one != other for one, other in pairwise(sides))


@pytest.mark.parametrize(
    ("path", "flips"),
    [([0, 0, 1], 0), ([1, 0, 1], 0), ([1, 0, -1], 1), ([0, 1, -1, 0, 0, 1, 1], 2), ([1, -1, 1, -1], 3), ([0, 0], 0)],
)
def test_a_tie_keeps_the_sign_before_it_and_a_first_sign_is_no_flip(path: list[int], flips: int) -> None:
    assert count_flips(np.array(path, dtype=np.int8).reshape(1, 1, -1, 1)).tolist() == [[flips]]


@given(arrays(np.int8, st.tuples(*(st.integers(1, 4) for _ in range(4))), elements=st.integers(-1, 1)))
def test_flips_are_those_of_a_plain_loop_over_the_pairs(signs: np.ndarray) -> None:
    expected = [[sum(turns(path) for path in order.T) for order in patient] for patient in signs]
    assert count_flips(signs).tolist() == expected


@given(random_bundles(potentials=QUARTERS), st.data())
def test_the_magnitude_is_the_mean_distance_of_the_energies_of_what_was_seen(
    bundle: Bundle, data: st.DataObject
) -> None:
    m = len(bundle.features)
    values = np.array([data.draw(st.lists(st.integers(-1, 1), min_size=m, max_size=m))], dtype=np.int8)
    orders = np.array([[data.draw(st.permutations(range(m))) for _ in range(2)]], dtype=np.int64)
    t = data.draw(st.integers(0, m))
    distances = []
    for order in orders[0]:
        seen = np.where(np.isin(np.arange(m), order[:t]), values[0], 0)
        energies = [bundle.mrf(entity).energy(seen) for entity in bundle.entities]
        distances += [abs(a - b) for a, b in combinations(energies, 2)]
    assert magnitudes(bundle, values, orders, t) == pytest.approx([np.mean(distances)])


def test_the_flips_of_a_patient_are_those_of_planners_along_the_same_orders(
    bundle_tiny: Bundle, cohort: Cohort, whole: dict[str, pd.DataFrame]
) -> None:
    found = whole["flips"].set_index(["patient", "seed_set", "definition"])
    above = np.triu_indices(len(bundle_tiny.entities), 1)
    for row, patient in enumerate(cohort.patients):
        for seed_set, seeds in SEEDS.items():
            for score in ("wald", "linearity"):
                expected = 0
                for seed in seeds:
                    planner = TopKPlanner(
                        bundle_tiny,
                        k=1,
                        score=score,
                        allocation="random",
                        costs="equal",
                        patient=patient,
                        seed=seed,
                    )
                    paths = [np.sign(planner.scores()[above])]
                    while (feature := planner.next_feature()) is not None:
                        planner.observe(feature, int(cohort.values[row, bundle_tiny.features.index(feature)]))
                        paths.append(np.sign(planner.scores()[above]))
                    expected += sum(turns(list(path)) for path in np.array(paths).T)
                assert found.loc[(patient, seed_set, score), "flips"] == expected
                assert found.loc[(patient, seed_set, score), "runs"] == 3 * len(seeds)
    assert (found["flips"] > 0).any()


def followed(bundle: Bundle, cohort: Cohort, seeds: tuple[int, ...]) -> dict[str, pd.DataFrame]:
    order = RandomOrder(seeds=seeds, starts=("uniform",))
    return sign.run(bundle, cohort, range(PATIENTS), random_order=order, inference=Inference())


def test_the_calls_are_those_of_sign_convergence_on_the_same_seeds(
    bundle_tiny: Bundle, cohort: Cohort, whole: dict[str, pd.DataFrame]
) -> None:
    key = ["patient", "method", "t"]
    for seed_set, seeds in SEEDS.items():
        rounds = followed(bundle_tiny, cohort, seeds)["rounds"]
        rounds = rounds[rounds["method"].isin(["linearity", "wald"])]
        expected = rounds.groupby(key)[["right", "duels"]].sum()
        found = whole["rounds"][whole["rounds"]["seed_set"] == seed_set].set_index(key)[["right", "duels"]]
        pd.testing.assert_frame_equal(found.sort_index(), expected, check_dtype=False)


def test_the_winners_are_those_of_sign_convergence(
    bundle_tiny: Bundle, cohort: Cohort, whole: dict[str, pd.DataFrame]
) -> None:
    expected = followed(bundle_tiny, cohort, (0,))["duels"]
    columns = ["patient", "entity_a", "entity_b", "winner"]
    pd.testing.assert_frame_equal(whole["duels"][columns], expected[columns])


def late_and_early() -> tuple[Bundle, np.ndarray, np.ndarray]:
    """Two entities on 60 features, a patient of ones, and where its first order puts each feature."""
    unary = np.random.default_rng(0).choice([-1.0, 1.0], (2, LAST_EARLY_ROUND + 10))
    bundle = bundle_of(unary, np.zeros((2, LAST_EARLY_ROUND + 10, LAST_EARLY_ROUND + 10)))
    order = random_order(bundle.features, patient="p0", seed=0)
    return bundle, np.ones((1, LAST_EARLY_ROUND + 10)), order


def cells_of(bundle: Bundle, values: np.ndarray) -> pd.DataFrame:
    table = run(bundle, cohort_of(bundle, values), range(1), selecting_seeds=(0,))["flips"]
    return table[table["seed_set"] == "selecting"].set_index("definition")[["flips", "magnitude"]]


def test_what_is_known_at_round_50_does_not_depend_on_what_comes_after() -> None:
    bundle, values, order = late_and_early()
    before = cells_of(bundle, values)
    values[0, order[LAST_EARLY_ROUND:]] *= -1
    after = cells_of(bundle, values)
    assert before.loc["early_50"].tolist() == after.loc["early_50"].tolist()
    assert before.loc["wald_50", "flips"] == after.loc["wald_50", "flips"]
    assert before.loc["wald_50", "magnitude"] != after.loc["wald_50", "magnitude"]


def test_the_fiftieth_observation_is_the_last_that_the_early_definitions_see() -> None:
    _, values, order = late_and_early()
    for place, changes in ((LAST_EARLY_ROUND - 1, True), (LAST_EARLY_ROUND, False)):
        # v0 less v1 is then 0 but for one feature, at this place in the order
        unary = np.zeros((2, LAST_EARLY_ROUND + 10))
        unary[0, order[place]] = 1.0
        only = bundle_of(unary, np.zeros((2, LAST_EARLY_ROUND + 10, LAST_EARLY_ROUND + 10)))
        assert (cells_of(only, values).loc["early_50", "magnitude"] > 0) == changes


def test_the_size_of_blocks_and_the_number_of_threads_do_not_show(
    bundle_tiny: Bundle, cohort: Cohort, whole: dict[str, pd.DataFrame], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(follow, "BLOCK_BYTES", 1)
    split = run(bundle_tiny, cohort, range(PATIENTS), threads=2)
    for name in NAMES:
        pd.testing.assert_frame_equal(split[name], whole[name])


def test_groups_cannot_be_measured_on_the_orders_that_formed_them(bundle_tiny: Bundle, cohort: Cohort) -> None:
    with pytest.raises(ValueError, match="no seed in both lists: 1 would"):
        run(bundle_tiny, cohort, range(1), selecting_seeds=(0, 1), measuring_seeds=(1, 2))


@pytest.mark.parametrize(
    ("selecting", "measuring", "found"),
    [((), (1,), "selecting_seeds"), ((0,), (), "measuring_seeds"), ((0, 0), (1,), "none twice")],
)
def test_each_set_of_orders_has_one_and_none_twice(
    selecting: tuple[int, ...], measuring: tuple[int, ...], found: str
) -> None:
    with pytest.raises(ValidationError, match=found):
        Chaos(selecting_seeds=selecting, measuring_seeds=measuring)


def test_the_values_that_are_not_zero_are_counted(cohort: Cohort, whole: dict[str, pd.DataFrame]) -> None:
    found = whole["flips"].groupby("patient")["nonzero"].agg(["min", "max"])
    expected = (cohort.values != 0).sum(axis=1).tolist()
    assert found["min"].tolist() == found["max"].tolist() == expected
