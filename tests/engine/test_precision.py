"""Precision at k with ties, against every way of breaking them."""

from itertools import permutations

import numpy as np
import pytest
from examples import examples
from hypothesis import given
from hypothesis import strategies as st

from afa.engine.ranks import precision_at_k


def places(scores):
    """How many entities are ahead of each."""
    return (scores[None, :] > scores[:, None]).sum(axis=1)


def by_every_tie_break(scores, k, right, tied, slots, among):
    """The mean over all orders of the ranked entities, each a way to break the ties."""
    ranked = np.flatnonzero(among)
    shares = []
    for order in permutations(ranked):
        top = sorted(order, key=lambda v: -scores[v])[:k]
        shares.append((right[top].sum() + min(tied[top].sum(), slots)) / k)
    return np.mean(shares)


@given(st.integers(1, 5), st.data())
@examples(80)
def test_ties_count_what_they_hold_on_average(n, data):
    scores = np.array(data.draw(st.lists(st.integers(0, 2), min_size=n, max_size=n)))
    kinds = data.draw(st.lists(st.integers(0, 2), min_size=n, max_size=n))
    right, tied = np.array([kind == 2 for kind in kinds]), np.array([kind == 1 for kind in kinds])
    among = np.array(data.draw(st.lists(st.booleans(), min_size=n, max_size=n)))
    k, slots = data.draw(st.integers(1, n)), data.draw(st.integers(0, n))
    found = precision_at_k(
        places(scores)[None, None],
        np.array([k]),
        right[None],
        tied[None],
        np.array([slots]),
        among=among[None],
        threads=1,
    )
    assert found[0, 0] == pytest.approx(by_every_tie_break(scores, k, right, tied, slots, among), abs=1e-12)


def test_two_of_three_tied_entities_by_hand():
    """One is ahead, three tie for two places of the top 3, one of the three is right: 1 + 2/3 of 3."""
    place = np.array([[[0, 1, 1, 1, 4]]])
    right = np.array([[True, True, False, False, False]])
    assert precision_at_k(place, np.array([3]), right, threads=1)[0, 0] == pytest.approx(5 / 9)


def test_three_of_five_tied_entities_share_one_place_by_hand():
    """Two of the five are taken at random; one counts unless both are of the two others: 1 - 1/10, of 2."""
    tied = np.array([[True, True, True, False, False]])
    none = np.zeros((1, 5), dtype=bool)
    found = precision_at_k(np.zeros((1, 1, 5), dtype=int), np.array([2]), none, tied, np.array([1]), threads=1)
    assert found[0, 0] == pytest.approx(0.45)


def test_a_top_set_of_nothing_has_no_precision():
    assert np.isnan(precision_at_k(np.zeros((1, 2, 3), dtype=int), np.array([0]), np.ones((1, 3), dtype=bool))).all()


def test_masks_of_another_shape_are_refused():
    with pytest.raises(ValueError, match="masks of shape"):
        precision_at_k(np.zeros((1, 2, 3), dtype=int), np.array([1]), np.ones((1, 2), dtype=bool))
