"""Consensus: what survives by agreement on a gene and its direction, worked by hand and on the record."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
from hypothesis import given
from hypothesis import strategies as st

from afa.elicit.consensus import (
    POOLED_COLUMNS,
    agreement,
    check_voters,
    consensus,
    cuts_apart,
    fleiss_kappa,
    pool_answers,
    pool_cuts,
)
from afa.elicit.record import Record
from afa.elicit.tables import genes_named, pairs_judged
from afa.errors import ElicitationError
from afa.model.bundle.rates import floored, pool, three_values
from afa.model.features import features_of
from afa.model.study import Study, StudySettings

RECORD = Path(__file__).parents[2] / "resources" / "elicitation"
COLUMNS = ["run", "phenotype", "gene", "direction", "lit_prob"]
UP, DOWN = "Upregulated", "Downregulated"

BY_HAND = pd.DataFrame(
    [
        ("r1", "late", "TWO", UP, 0.5),
        ("r3", "late", "TWO", UP, 0.8),
        ("r1", "late", "ALL", DOWN, 0.9),
        ("r2", "late", "ALL", DOWN, 0.6),
        ("r3", "late", "ALL", DOWN, 0.9),
        ("r2", "late", "ONE", UP, 0.7),
        ("r1", "late", "SPLIT", UP, 0.9),
        ("r2", "late", "SPLIT", UP, 0.9),
        ("r3", "late", "SPLIT", DOWN, 0.1),
        ("r1", "early", "ONE", DOWN, 0.4),
        ("r2", "early", "ONE", DOWN, 0.5),
    ],
    columns=COLUMNS,
)


def test_two_of_three_keeps_what_two_runs_name_with_one_direction() -> None:
    result = consensus(BY_HAND, min_agree=2)
    assert list(result[0].itertuples(index=False, name=None)) == [
        ("late", "ALL", -1, pytest.approx(0.8), 3),
        ("late", "TWO", 1, pytest.approx(0.65), 2),
        ("early", "ONE", -1, pytest.approx(0.45), 2),
    ]


def test_every_dropped_gene_has_its_reason() -> None:
    result = consensus(BY_HAND, min_agree=2)
    assert list(result[1].itertuples(index=False, name=None)) == [
        ("late", "ONE", "named by 1 of 3 runs, 2 needed"),
        ("late", "SPLIT", "directions disagree"),
    ]


def test_three_of_three_drops_what_two_runs_name() -> None:
    result = consensus(BY_HAND, min_agree=3)
    assert result[0]["gene"].tolist() == ["ALL"]
    assert ("early", "ONE", "named by 2 of 3 runs, 3 needed") in result[1].itertuples(index=False, name=None)


def test_a_gene_named_in_two_directions_is_dropped_even_where_one_run_is_enough() -> None:
    result = consensus(BY_HAND, min_agree=1)
    assert "SPLIT" not in set(result[0]["gene"])


def test_no_survivor_gives_empty_tables_with_their_columns() -> None:
    result = consensus(BY_HAND[BY_HAND["gene"] == "SPLIT"], min_agree=2)
    assert result[0].empty
    assert list(result[0].columns) == ["phenotype", "gene", "potential", "confidence", "n_runs"]


@given(st.permutations(range(len(BY_HAND))))
def test_the_order_of_answers_does_not_matter(order: list[int]) -> None:
    first, second = consensus(BY_HAND, min_agree=2), consensus(BY_HAND.iloc[order], min_agree=2)
    by = ["phenotype", "gene"]
    pd.testing.assert_frame_equal(
        first[0].sort_values(by, ignore_index=True), second[0].sort_values(by, ignore_index=True)
    )


@given(
    st.lists(
        st.tuples(
            st.sampled_from(["r1", "r2", "r3"]),
            st.sampled_from(["p", "q"]),
            st.sampled_from(["A", "B", "C"]),
            st.sampled_from([UP, DOWN]),
            st.floats(0, 1),
        ),
        min_size=1,
        unique_by=lambda row: row[:3],
    ),
    st.data(),
)
def test_each_named_gene_is_either_kept_or_dropped_and_a_stricter_rule_keeps_a_subset(
    rows: list[tuple], data: st.DataObject
) -> None:
    answers = pd.DataFrame(rows, columns=COLUMNS)
    n_runs = answers["run"].nunique()
    min_agree = data.draw(st.integers(1, n_runs))
    result = consensus(answers, min_agree=min_agree)
    kept = set(zip(result[0]["phenotype"], result[0]["gene"], strict=True))
    dropped = set(zip(result[1]["phenotype"], result[1]["gene"], strict=True))
    assert kept | dropped == {row[1:3] for row in rows}
    assert not kept & dropped
    assert result[0]["confidence"].between(0, 1).all()
    stricter = consensus(answers, min_agree=n_runs)[0]
    assert set(zip(stricter["phenotype"], stricter["gene"], strict=True)) <= kept


@pytest.mark.parametrize("min_agree", [0, 4])
def test_a_number_of_runs_out_of_range_is_refused(min_agree: int) -> None:
    with pytest.raises(ElicitationError, match=f"min_agree: found {min_agree}; expected a number of runs from 1 to 3"):
        consensus(BY_HAND, min_agree=min_agree)


def test_an_unknown_direction_is_refused() -> None:
    answers = BY_HAND.replace({"direction": {DOWN: "down"}})
    with pytest.raises(ElicitationError, match="gene ALL, direction: found 'down'; expected Upregulated or Downregul"):
        consensus(answers, min_agree=2)


def test_a_run_that_names_a_gene_twice_is_refused() -> None:
    answers = pd.concat([BY_HAND, BY_HAND.iloc[[0]]])
    with pytest.raises(ElicitationError, match="run r1, late, gene TWO: found the gene named twice"):
        consensus(answers, min_agree=2)


@pytest.mark.parametrize(("min_agree", "n_features"), [(2, 253), (3, 183)])
def test_the_record_gives_the_known_number_of_features(min_agree: int, n_features: int) -> None:
    named = genes_named([each for each in Record(RECORD / "record").entries() if each.question.prompt == "unary"])
    result = consensus(named, min_agree=min_agree)
    assert result[0]["gene"].nunique() == n_features


def test_the_pairs_asked_in_the_record_are_all_pairs_of_the_two_of_three_survivors() -> None:
    entries = list(Record(RECORD / "record").entries())
    named = genes_named([each for each in entries if each.question.prompt == "unary"])
    pairs = pairs_judged([each for each in entries if each.question.prompt == "pairwise"])
    kept = consensus(named, min_agree=2)[0]
    for phenotype in named["phenotype"].unique():
        survivors = set(kept.loc[kept["phenotype"] == phenotype, "gene"])
        asked = pairs[pairs["phenotype"] == phenotype]
        assert set(asked["gene_a"]) | set(asked["gene_b"]) == survivors
        assert len(asked) == len(survivors) * (len(survivors) - 1) // 2


def a_study(voters=("a", "b", "c"), **settings: Any) -> Study:
    phenotypes = pd.DataFrame({"phenotype": ["fever", "chill"], "group": "", "definition": ""})
    return Study(StudySettings(name="s", disease="IBD", tissue="colon", voters=voters, **settings), phenotypes)


def test_kappa_is_that_of_a_calculation_by_hand() -> None:
    # Pairs agree on 1 and 1/3, 2/3 on average; shares 4/6 and 2/6 agree by chance on 5/9: (2/3 - 5/9) / (1 - 5/9).
    assert fleiss_kappa(np.array([[1, 1, 1], [0, 0, 1]])) == pytest.approx(0.25)
    assert fleiss_kappa(np.array([[1, -1], [-1, 1]])) == pytest.approx(-1)


def test_kappa_of_voters_that_always_agree_is_one_and_of_one_category_not_a_number() -> None:
    assert fleiss_kappa(np.array([[1, 1, 1], [0, 0, 0], [-1, -1, -1]])) == 1.0
    assert np.isnan(fleiss_kappa(np.zeros((4, 3), dtype=np.int64)))


@given(signs=st.lists(st.tuples(*[st.integers(-1, 1)] * 3), min_size=1, max_size=30))
def test_kappa_does_not_hang_on_the_order_of_voters_and_is_at_most_one(signs: list[tuple[int, ...]]) -> None:
    table = np.array(signs)
    kappa = fleiss_kappa(table)
    assert np.isnan(kappa) or kappa <= 1 + 1e-12
    assert fleiss_kappa(table[:, ::-1]) == pytest.approx(kappa, nan_ok=True)


def test_agreement_is_told_for_all_voters_and_for_each_two() -> None:
    rows = [("a", "fever", "G1", 1), ("b", "fever", "G1", 1), ("c", "fever", "G1", 1), ("a", "fever", "G2", 1)]
    rows += [("b", "fever", "G2", -1), ("a", "chill", "G3", 1)]
    named = pd.DataFrame(rows, columns=["run", "phenotype", "gene", "direction"])
    named["direction"] = named["direction"].map({1: "Upregulated", -1: "Downregulated"})
    table = agreement(named, a_study()).set_index(["voters", "phenotype"])
    assert table.index.get_level_values("voters").unique().tolist() == ["a & b & c", "a & b", "a & c", "b & c"]
    assert table.loc[("a & b & c", "all"), ["genes", "agreed", "share"]].tolist() == [3, 1, 0.3333]
    assert table.loc[("b & c", "fever"), ["genes", "agreed", "share"]].tolist() == [2, 1, 0.5]
    # Of three genes b and c say up and up, down and nothing, nothing and nothing: by hand (2/3 - 14/36) / (1 - 14/36).
    assert table.loc[("b & c", "fever"), "kappa"] == pytest.approx((2 / 3 - 14 / 36) / (1 - 14 / 36), abs=1e-4)


def test_voters_that_are_one_model_are_refused_unless_the_study_says_so() -> None:
    alike = {"a": "m at x", "b": "m at x", "c": "n at x"}
    with pytest.raises(ElicitationError, match="found a, b are all m at x; expected voters that differ"):
        check_voters(alike, a_study())
    check_voters(alike, a_study(same_model=True))
    check_voters({"a": "m at x", "b": "m at y", "c": "n at x"}, a_study())
    check_voters({"a": "unknown at unknown", "b": "unknown at unknown"}, a_study())


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
    answers = pd.DataFrame(rows, columns=["voter", "entity", "feature", "direction", *POOLED_COLUMNS, "confidence"])
    table = pool_answers(answers, features)
    assert table[["entity", "feature"]].to_numpy().tolist() == [["ill", "x"], ["ill", "y"]]
    np.testing.assert_allclose(table["potential"], [0.2, 0.8])
    np.testing.assert_allclose(table["confidence"], [0.3, 0.8])
    expected = pool(three_values([0.1, 0.0], [0.6, 0.6]), ALL)
    np.testing.assert_allclose(table.loc[0, ["p_low_with", "p_high_with"]].astype(float), expected[[0, 2]])
    odds = np.exp(np.mean([np.log(0.8 / 0.2), np.log(0.6 / 0.4)]))
    np.testing.assert_allclose(float(table["p_high_with"][1]), odds / (1 + odds))
    assert table["p_low_with"][1] == 0.0
