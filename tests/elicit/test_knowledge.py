"""Pooling of voters: the worked example, and what pooling must keep."""

import numpy as np
import pandas as pd
import pytest
from hypothesis import given
from hypothesis import strategies as st

from afa.bundle.rates import floored, pool, three_values
from afa.elicit.consensus import SHARES, cuts_apart, pool_answers, pool_cuts
from afa.features import features_of

ALL, NO_LOW, NO_HIGH = (True, True, True), (False, True, True), (True, True, False)


def test_the_worked_example_pools_to_its_numbers():
    voters = three_values([0.1, 0.0, 0.2], [0.6, 0.6, 0.3])
    np.testing.assert_allclose(pool(voters, ALL), [0.06314, 0.42269, 0.51417], atol=5e-6)


def test_two_values_pool_by_the_mean_of_log_odds_and_mass_on_what_cannot_be_is_dropped():
    voters = three_values([0.0, 0.2], [0.2, 0.4])
    odds = np.log(0.2 / 0.8), np.log(0.4 / 0.4)
    expected = 1 / (1 + np.exp(-np.mean(odds)))
    np.testing.assert_allclose(pool(voters, NO_LOW), [0.0, 1 - expected, expected])


def test_the_floor_is_the_callers_and_a_silent_voter_has_no_part():
    certain = three_values([0.0], [1.0])
    np.testing.assert_allclose(pool(certain, ALL), np.array([0.01, 0.01, 1.0]) / 1.02)
    np.testing.assert_allclose(pool(certain, NO_HIGH, 0.001), [0.5, 0.5, 0.0])
    one = three_values([0.1], [0.3])
    np.testing.assert_allclose(pool(np.vstack([one, [[np.nan] * 3]]), ALL), pool(one, ALL))
    assert np.isnan(pool([[np.nan] * 3], ALL)).all()


shares = st.tuples(*[st.floats(0.02, 0.3)] * 2)


@given(st.lists(shares, min_size=1, max_size=5), st.sampled_from([ALL, NO_LOW, NO_HIGH]), st.randoms())
def test_pooling_keeps_log_ratios_order_and_a_common_opinion(pairs, possible, random):
    voters = three_values([low for low, _ in pairs], [high for _, high in pairs])
    pooled = pool(voters, possible)
    assert pooled.sum() == pytest.approx(1.0)
    kept = [place for place in range(3) if possible[place]]
    ratios = np.log(floored(voters, possible)[:, kept[0]] / floored(voters, possible)[:, kept[1]])
    assert np.log(pooled[kept[0]] / pooled[kept[1]]) == pytest.approx(ratios.mean())
    random.shuffle(pairs)
    again = three_values([low for low, _ in pairs], [high for _, high in pairs])
    np.testing.assert_allclose(pool(again, possible), pooled)
    np.testing.assert_allclose(pool(np.repeat(voters[:1], 3, axis=0), possible), floored(voters[0], possible))


def test_cut_points_are_medians_of_the_voters_who_give_them_where_more_than_half_do():
    cuts = pd.DataFrame(
        {
            "voter": ["r1", "r2", "r3"] * 3,
            "feature": ["age"] * 3 + ["gravity"] * 3 + ["oedema"] * 3,
            "low": [18, 30, None, None, None, 1.01, None, None, None],
            "high": [60, 65, 70, None, 1.0, 1.02, 0.5, 0.5, 0.5],
        }
    )
    pooled = pool_cuts(cuts, ["gravity", "age", "oedema"], ["ordinal", "continuous", "binary"])
    assert list(pooled.index) == ["gravity", "age", "oedema"]
    np.testing.assert_array_equal(pooled["low"], [np.nan, 24.0, np.nan])
    np.testing.assert_array_equal(pooled["high"], [1.01, 65.0, np.nan])
    assert pooled.loc["age", ["low_least", "low_most", "high_least", "high_most"]].tolist() == [18, 30, 60, 70]
    assert cuts_apart(pooled) == [
        "voters gave probabilities for cut points of their own:"
        " gravity high 1 to 1.02, age low 18 to 30, age high 60 to 70"
    ]
    assert cuts_apart(pooled.loc[["oedema"]]) == []


def test_answers_pool_to_one_row_for_each_entity_and_feature():
    features = features_of(pd.DataFrame({"feature": ["x", "y"], "kind": ["continuous", "binary"]}))
    rows = [
        ("r1", "ill", "y", 1, 0.8, 0.2, 0.0, 0.0, 0.9),
        ("r2", "ill", "y", 1, 0.6, 0.4, 0.0, 0.0, 0.7),
        ("r1", "ill", "x", 1, 0.6, 0.1, 0.1, 0.2, 0.5),
        ("r2", "ill", "x", -1, 0.6, 0.1, 0.0, 0.2, 0.1),
    ]
    answers = pd.DataFrame(rows, columns=["voter", "entity", "feature", "direction", *SHARES, "confidence"])
    table = pool_answers(answers, features)
    assert table[["entity", "feature"]].to_numpy().tolist() == [["ill", "x"], ["ill", "y"]]
    np.testing.assert_allclose(table["potential"], [0.2, 0.8])
    np.testing.assert_allclose(table["confidence"], [0.3, 0.8])
    expected = pool(three_values([0.1, 0.0], [0.6, 0.6]), ALL)
    np.testing.assert_allclose(table.loc[0, ["p_low_with", "p_high_with"]].astype(float), expected[[0, 2]])
    odds = np.exp(np.mean([np.log(0.8 / 0.2), np.log(0.6 / 0.4)]))
    np.testing.assert_allclose(float(table["p_high_with"][1]), odds / (1 + odds))
    assert table["p_low_with"][1] == 0.0
