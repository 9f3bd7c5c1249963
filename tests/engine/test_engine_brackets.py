"""The compiled bracket calls are the sides of zero that the readable intervals lie on."""

from __future__ import annotations

from itertools import combinations

import numpy as np
import pytest
from bundles import QUARTERS, bundle_of, observed_bundles
from examples import examples
from hypothesis import assume, given
from hypothesis import strategies as st

from afa.engine.duels import BRACKETS, all_pairs, bracket_calls, duel, vote
from afa.engine.layout import pack
from afa.engine.state import condition, new_state, solve_all
from afa.engine.sweeps import Iteration
from afa.inference.meanfield import mean_field
from afa.model.mrf import Evidence
from afa.scores.bracket import GAMMA, hanson_wright_interval, kl_interval, l1_interval
from afa.scores.preference import duel_variance, linearity, sign_votes

NO_VOTES = np.zeros(2, dtype=np.int64)
ITERATION = Iteration(0.5, 1e-4, 200, False)


def compiled(bundle, observed, gamma):
    """Calls of every duel, (Q, 5), after observing in the order given."""
    packed = pack(bundle)
    state, pairs = new_state(packed), all_pairs(len(bundle.entities))
    votes = np.zeros((len(pairs), 2), dtype=np.int64)
    solve_all(packed, state, ITERATION, True)
    for feature, value in observed.items():
        vote(packed, state, votes, feature, value)
        condition(packed, state, feature, value)
        solve_all(packed, state, ITERATION, True)
    calls = np.full((len(pairs), len(BRACKETS)), 7, dtype=np.int8)
    for p, (a, b) in enumerate(pairs):
        cross = state.cross
        mean = 0.5 * ((cross[a, a] - cross[b, b]) + (cross[b, a] - cross[a, b]))
        mean = 0.0 if abs(mean) <= packed.tie else mean
        bracket_calls(packed, state, a, b, duel(packed, state, a, b), mean, votes[p], len(observed), gamma, calls[p])
    return calls


def intervals(bundle, observed, gamma):
    """The readable intervals of every duel, (Q, 5, 2), at the same observations."""
    named = {bundle.features[j]: value for j, value in observed.items()}
    models = [bundle.mrf(entity) for entity in bundle.entities]
    evidence = [Evidence.of(model, named) for model in models]
    marginals = [mean_field(model, state).marginals for model, state in zip(models, evidence, strict=True)]
    means = linearity(evidence, marginals)
    means[np.abs(means) <= pack(bundle).tie] = 0.0
    positive, negative = sign_votes(models, list(observed.items()))
    table = []
    for a, b in combinations(range(len(models)), 2):
        difference = Evidence.of(models[a] - models[b], named)
        variance = duel_variance(evidence[a], evidence[b], marginals[a], marginals[b])
        ayes, noes = int(positive[a, b]), int(negative[a, b])
        table.append(
            [
                l1_interval(difference),
                l1_interval(difference, form="paper"),
                hanson_wright_interval(difference, float(means[a, b]), variance, gamma=gamma),
                kl_interval(ayes, noes, gamma=gamma),
                kl_interval(ayes, noes, len(observed), gamma=gamma),
            ]
        )
    return np.array(table)


def sides(ends):
    """+1 or -1 for an interval on one side of zero, 0 otherwise."""
    return (ends[..., 0] > 0).astype(int) - (ends[..., 1] < 0).astype(int)


@given(observed_bundles(potentials=QUARTERS), st.sampled_from([GAMMA, 0.5, 0.99]))
@examples(30)
def test_each_bracket_calls_where_its_readable_interval_excludes_zero(case, gamma):
    bundle, observed = case
    np.testing.assert_array_equal(compiled(bundle, observed, gamma), sides(intervals(bundle, observed, gamma)))


@given(observed_bundles(), st.sampled_from([GAMMA, 0.99]))
def test_potentials_whose_sums_are_rounded_are_called_alike(case, gamma):
    bundle, observed = case
    ends = intervals(bundle, observed, gamma)
    assume((np.abs(ends) > 1e-9).all())
    np.testing.assert_array_equal(compiled(bundle, observed, gamma), sides(ends))


@pytest.mark.parametrize("silent", [0, 1])
@pytest.mark.parametrize("observed", [{}, {0: 1}, {2: -1}])
def test_a_duel_with_an_entity_that_states_nothing_has_the_sums_of_its_definition(silent, observed):
    couplings = np.zeros((2, 3, 3))
    couplings[1 - silent, 0, 1] = couplings[1 - silent, 1, 0] = 0.5
    unary = np.zeros((2, 3))
    unary[1 - silent] = [2.0, -1.0, 0.5]
    bundle = bundle_of(unary, couplings)
    packed = pack(bundle)
    state, evidence = new_state(packed), [Evidence.of(bundle.mrf(entity)) for entity in bundle.entities]
    for feature, value in observed.items():
        condition(packed, state, feature, value)
        evidence = [one.observe(feature, value) for one in evidence]
    solve_all(packed, state, ITERATION, True)
    sums = duel(packed, state, 0, 1)
    marginals = [mean_field(one.mrf, one).marginals for one in evidence]
    assert sums.variance == pytest.approx(duel_variance(*evidence, *marginals), abs=1e-3)
    models = [bundle.mrf(entity) for entity in bundle.entities]
    low, high = l1_interval(Evidence.of(models[0] - models[1], {bundle.features[j]: v for j, v in observed.items()}))
    assert sums.budget == pytest.approx((high - low) / 2)


@pytest.mark.parametrize("gamma", [GAMMA, 0.5])
def test_vote_calls_are_those_of_the_kl_interval_for_any_counts(gamma):
    bundle = bundle_of([[1.0], [0.0]], np.zeros((2, 1, 1)))
    packed = pack(bundle)
    state, calls = new_state(packed), np.zeros(5, dtype=np.int8)
    sums = duel(packed, state, 0, 1)
    made = set()
    for positive in range(0, 90, 3):
        for negative in range(0, 90, 3):
            for zeros in (0, 40):
                votes, n = np.array([positive, negative]), positive + negative + zeros
                bracket_calls(packed, state, 0, 1, sums, 0.0, votes, n, gamma, calls)
                used, written = (kl_interval(positive, negative, k, gamma=gamma) for k in (None, n))
                assert tuple(calls[3:]) == (sides(np.array(used)), sides(np.array(written)))
                made |= {tuple(calls[3:])}
    assert made >= {(0, 0), (1, 1), (-1, -1), (1, 0), (0, -1)}


def test_every_bracket_calls_the_duel_of_a_single_observed_feature_but_those_of_votes():
    """Of one feature observed at +1 no more is to come: |D| = 1 against a budget, a spread and a width of 0."""
    bundle = bundle_of([[1.0], [0.0]], np.zeros((2, 1, 1)))
    assert compiled(bundle, {}, GAMMA).tolist() == [[0, 0, 0, 0, 0]]
    assert compiled(bundle, {0: 1}, GAMMA).tolist() == [[1, 1, 1, 0, 0]]
    assert compiled(bundle, {0: -1}, GAMMA).tolist() == [[-1, -1, -1, 0, 0]]


def test_a_lead_between_the_two_budgets_is_called_by_the_tight_one_alone():
    """A chain a-b-c with b at +1: lead 3, fields 1 and 1 to come; the couplings to b, 2 in all, are counted again."""
    couplings = np.zeros((2, 3, 3))
    couplings[0, 0, 1] = couplings[0, 1, 0] = couplings[0, 1, 2] = couplings[0, 2, 1] = 1.0
    bundle = bundle_of([[0.0, 3.0, 0.0], [0.0, 0.0, 0.0]], couplings)
    assert compiled(bundle, {1: 1}, GAMMA)[0, :2].tolist() == [1, 0]


def test_one_observation_short_of_a_tie_is_called_by_no_rigorous_bracket():
    bundle = bundle_of([[1.0, 1.0], [0.0, 0.0]], np.zeros((2, 2, 2)))
    assert compiled(bundle, {0: 1}, GAMMA)[0, :2].tolist() == [0, 0]
