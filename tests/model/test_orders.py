"""Random orders depend on names and seeds and on nothing else."""

from __future__ import annotations

from collections import Counter

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from afa.model.orders import random_order, random_orders

NAMES = st.lists(st.text(min_size=1, max_size=8), unique=True, max_size=12)


def named(features: list[str], **which: object) -> list[str]:
    return [features[j] for j in random_order(features, **which)]


@given(NAMES, st.text(max_size=5), st.integers(0, 10**9))
def test_an_order_is_a_permutation(features: list[str], patient: str, seed: int) -> None:
    assert sorted(random_order(features, patient=patient, seed=seed).tolist()) == list(range(len(features)))


@given(NAMES, st.data())
def test_the_order_of_names_does_not_depend_on_their_positions(features: list[str], data: st.DataObject) -> None:
    shuffled = data.draw(st.permutations(features))
    assert named(shuffled, patient="p", seed=1) == named(features, patient="p", seed=1)


@given(NAMES, st.data())
def test_two_features_keep_their_order_when_others_are_dropped(features: list[str], data: st.DataObject) -> None:
    kept = [name for name in features if data.draw(st.booleans())]
    whole = named(features, patient="p", seed=1)
    assert named(kept, patient="p", seed=1) == [name for name in whole if name in kept]


def test_it_differs_between_patients_seeds_and_experiments() -> None:
    features = [f"g{j}" for j in range(30)]
    orders = [
        named(features, patient="p1", seed=0),
        named(features, patient="p2", seed=0),
        named(features, patient="p1", seed=1),
        named(features, patient="p1", seed=0, experiment="another"),
    ]
    assert len(set(map(tuple, orders))) == 4


def test_it_is_the_same_each_time() -> None:
    assert random_order(["a", "b", "c"], patient="p1", seed=0).tolist() == [0, 2, 1]


def test_every_order_of_three_comes_about_equally_often_over_many_patients() -> None:
    n = 6000
    counts = Counter(tuple(random_order(["a", "b", "c"], patient=f"p{i}", seed=0).tolist()) for i in range(n))
    assert len(counts) == 6
    expected = n / 6
    chi_square = sum((count - expected) ** 2 / expected for count in counts.values())
    assert chi_square < 20.5  # 0.999 quantile with 5 degrees of freedom


def test_every_feature_stands_at_every_place_about_equally_often() -> None:
    n, m = 3000, 8
    features = [f"g{j}" for j in range(m)]
    places = np.zeros((m, m))
    for i in range(n):
        places[random_order(features, patient=f"p{i}", seed=3), range(m)] += 1
    assert abs(places / n - 1 / m).max() < 0.03


def test_the_orders_of_many_are_those_of_each() -> None:
    features, patients, seeds = ["a", "b", "c", "d"], ["p", "q"], [3, 0, 1]
    found = random_orders(features, patients=patients, seeds=seeds)
    expected = [[random_order(features, patient=name, seed=seed).tolist() for seed in seeds] for name in patients]
    assert found.tolist() == expected
