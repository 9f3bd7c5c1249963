"""When a bracket first excludes zero, and the ties that no order resolves."""

import numpy as np
from hypothesis import given
from hypothesis import strategies as st
from oracle import completions, energies, models

from afa.bracket import resolution_round
from afa.mrf import PairwiseMRF


def test_a_score_is_resolved_once_what_is_left_cannot_turn_it():
    mrf = PairwiseMRF([1.0, 1.0, 1.0], np.zeros((3, 3)))
    assert resolution_round(mrf, [1, 1, 1], [0, 1, 2]) == 2
    assert resolution_round(mrf, [1, -1, 1], [0, 1, 2]) == 3


def test_a_structural_tie_is_never_resolved():
    assert resolution_round(PairwiseMRF([1.0, 1.0], np.zeros((2, 2))), [1, -1], [1, 0]) is None


def test_a_prior_can_resolve_a_score_before_anything_is_observed():
    assert resolution_round(PairwiseMRF([1.0, 1.0], np.zeros((2, 2)), prior=2.5), [1, -1], [1, 0]) == 0


@given(models(), st.randoms(use_true_random=False), st.lists(st.sampled_from([-1, 0, 1]), min_size=6, max_size=6))
def test_the_round_is_the_first_at_which_every_completion_has_one_sign(mrf, random, values):
    order = list(range(mrf.n_features))
    random.shuffle(order)
    values = values[: mrf.n_features]
    found = resolution_round(mrf, values, order)
    rounds = range(mrf.n_features + 1)
    one_signed = []
    for t in rounds:
        left = energies(mrf, completions(mrf, {j: values[j] for j in order[:t]}))
        one_signed.append(bool((left > 1e-9).all() or (left < -1e-9).all()))
    if found is None:
        assert abs(mrf.energy(values)) <= 1e-9
    else:
        assert one_signed[found]
    paper = resolution_round(mrf, values, order, form="paper")
    assert paper is None or (found is not None and found <= paper)
