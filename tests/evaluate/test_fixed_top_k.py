"""Answers that look at no patient: no other fixed set serves better, and ties in prevalence share their places."""

from __future__ import annotations

from itertools import combinations, permutations

import numpy as np
import pytest

from afa.evaluate.accuracy import fixed_top_k, overlap, positives_by_prevalence


def top_sets(generator: np.random.Generator, k: int) -> np.ndarray:
    top = np.zeros((6, 7), dtype=np.int8)
    for row in top:
        order, sure = generator.permutation(7), int(generator.integers(0, k + 1))
        row[order[:sure]] = 2
        row[order[sure : sure + (int(generator.integers(2, 5)) if sure < k else 0)]] = 1
    return top


@pytest.mark.parametrize("seed", range(20))
def test_no_other_fixed_answer_serves_better(seed: int) -> None:
    top = top_sets(np.random.default_rng(seed), 3)
    worths = {chosen: overlap(top, list(chosen), 3).sum() for chosen in combinations(range(7), 3)}
    assert worths[tuple(fixed_top_k(top, 3))] == max(worths.values())


def test_entities_tied_across_rank_k_fill_the_room_that_is_left() -> None:
    top = np.array([[2, 1, 1, 1, 0]], dtype=np.int8)
    assert overlap(top, [1, 2, 3], 3).tolist() == [2]
    assert overlap(top, [0, 1, 4], 3).tolist() == [2]
    assert overlap(top, [0, 2, 3], 3).tolist() == [3]


@pytest.mark.parametrize("seed", range(5))
def test_the_order_by_prevalence_shares_tied_places_as_random_breaking_would(seed: int) -> None:
    generator = np.random.default_rng(seed)
    labels = generator.integers(0, 2, (5, 4)).astype(float)
    labels[generator.random(labels.shape) < 0.3] = np.nan
    labels[0] = [1, 0, 1, 0]
    places = generator.integers(1, 4, 5)
    found = positives_by_prevalence(labels, places)
    prevalence = np.nanmean(labels, axis=0)
    for patient, first in enumerate(places):
        known = [v for v in range(4) if not np.isnan(labels[patient, v])]
        orders = [o for o in permutations(known) if list(prevalence[list(o)]) == sorted(prevalence[list(o)])[::-1]]
        expected = np.mean([labels[patient, list(order[:first])].sum() for order in orders])
        assert found[patient] == pytest.approx(expected)
