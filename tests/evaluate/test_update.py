"""A bundle after labelled patients: worked by hand, by properties, in files, and what is refused."""

from __future__ import annotations

from dataclasses import replace
from math import gamma

import numpy as np
import pandas as pd
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from rated import FEVERS, rated, written

import afa
from afa.errors import BundleError, CohortError
from afa.evaluate.update import (
    STRENGTHS,
    fitted_weights,
    log_marginal,
    posterior_means,
    update_by,
    update_of,
    updated_bundle,
    without_knowledge,
)
from afa.model.bundle import Bundle, bundle_from_frame, load_bundle, save_bundle, validate_bundle
from afa.model.features import features_of

ROWS = {
    "entity": ["flu", "flu", "cold"],
    "feature": ["fever", "pulse", "fever"],
    "potential": [1.0, 1.0, 0.0],
    "p_low_with": [0.1, 0.05, 0.1],
    "p_high_with": [0.7, 0.35, 0.3],
    "p_low_without": [0.2, 0.1, 0.1],
    "p_high_without": [0.2, 0.1, 0.3],
}


@pytest.fixture
def fevers() -> Bundle:
    """Two entities on two features of three values; of cold and pulse nothing is said."""
    return bundle_from_frame(pd.DataFrame(ROWS), name="fevers")


X = pd.DataFrame(
    {"fever": [1, 1, 0, -1, None], "pulse": [1, None, 0, 0, 1]}, index=["a", "b", "c", "d", "e"], dtype="Int8"
)
Y = pd.DataFrame({"flu": [1, 1, 0, None, 1]}, index=X.index, dtype="Int8")


def one_binary() -> Bundle:
    """One entity, of which a binary sign is present in 0.6 with it and 0.2 without."""
    row = {"entity": "flu", "feature": "sign", "potential": 1.0, "p_low_with": 0.0, "p_low_without": 0.0}
    bundle = bundle_from_frame(pd.DataFrame([row | {"p_high_with": 0.6, "p_high_without": 0.2}]))
    table = features_of(pd.DataFrame({"feature": ["sign"], "kind": ["binary"]}))
    return replace(bundle, rates=replace(bundle.rates, table=table))


def test_with_one_strength_both_steps_are_those_worked_by_hand():
    """Strength 4; one patient with flu and one without, both with the sign.

    The mixture, 0.4, becomes (1.6 + 2) / 6 = 0.6. The sign is multiplied by 3/2, its absence by 2/3: with flu
    0.9 / (0.9 + 0.8/3) = 27/35, without 0.3 / (0.3 + 1.6/3) = 9/25; the odds ratio stays 6. Then (4 p + 1) / 5 each.
    """
    made = update_of(one_binary(), [[1], [1]], [[1], [0]], strengths=np.array([4.0]))
    assert made.updated[:, 0, 2] == pytest.approx(np.array([143 / 175, 61 / 125]), abs=1e-12)
    assert made.patients.tolist() == [[1], [1]]


def test_with_patients_of_one_class_alone_only_its_own_step_is_made():
    """Strength 4; two patients with flu who have the sign: (2.4 + 2) / 6; without stays 0.2."""
    made = update_of(one_binary(), [[1], [1]], [[1], [1]], strengths=np.array([4.0]))
    assert made.updated[:, 0, 2] == pytest.approx(np.array([4.4 / 6, 0.2]), abs=1e-12)


def test_where_one_entity_holds_there_is_no_step_of_levels():
    """Strength 4, the same two patients: (2.4 + 1) / 5 and (0.8 + 1) / 5."""
    bundle = one_binary()
    bundle = replace(bundle, rates=replace(bundle.rates, holds="one"))
    made = update_of(bundle, [[1], [1]], [[1], [0]], strengths=np.array([4.0]))
    assert made.updated[:, 0, 2] == pytest.approx(np.array([3.4 / 5, 1.8 / 5]), abs=1e-12)


def test_where_the_elicited_level_alone_is_wrong_the_odds_ratio_stays():
    """Ten times as many patients without: their level is learned with that of the others."""
    bundle = one_binary()
    values = [[1]] * 8 + [[0]] * 2 + [[1]] * 40 + [[0]] * 60  # 0.8 with and 0.4 without: odds ratio 6, as elicited
    made = update_of(bundle, values, [[1]] * 10 + [[0]] * 100)
    high = made.updated[:, 0, 2]
    odds = high / (1 - high)
    assert odds[0] / odds[1] == pytest.approx(6, rel=0.1)
    assert high == pytest.approx(np.array([0.8, 0.4]), abs=0.05)


def test_over_two_strengths_the_posterior_is_the_one_worked_by_hand():
    """Elicited (1/4, 3/4), one patient in the first state; strengths 4 and 8 are equally likely.

    P(n | s) = s p / s = 1/4 for both, so that each has 1/2: (1 + 1) / 5 / 2 + (2 + 1) / 9 / 2 = 1/5 + 1/6.
    """
    prior, counts, strengths = np.array([[0.25, 0.75]]), np.array([[1.0, 0.0]]), np.array([4.0, 8.0])
    marginal = log_marginal(prior, counts, strengths)
    assert np.exp(marginal) == pytest.approx(np.full((1, 2), 0.25), abs=1e-12)
    assert fitted_weights(marginal) == pytest.approx(np.array([0.5, 0.5]), abs=1e-12)
    found = posterior_means(prior, counts, np.array([[0.5, 0.5]]), strengths)
    assert found == pytest.approx(np.array([[1 / 5 + 1 / 6, 1 - 1 / 5 - 1 / 6]]), abs=1e-12)


def test_the_marginal_likelihood_is_that_of_gamma_functions():
    prior, counts, s = [0.2, 0.5, 0.3], [1, 0, 2], 4.0
    expected = gamma(s) / gamma(s + 3)
    for p, n in zip(prior, counts, strict=True):
        expected *= gamma(s * p + n) / gamma(s * p)
    found = log_marginal(np.array([prior]), np.array([counts], dtype=float), np.array([s]))
    assert np.exp(found[0, 0]) == pytest.approx(expected, rel=1e-12)


distributions = st.lists(st.integers(1, 20), min_size=3, max_size=3).map(lambda n: np.array(n) / sum(n))
cases = st.lists(st.integers(0, 30), min_size=3, max_size=3).map(np.array)


@given(st.lists(st.tuples(distributions, cases), min_size=1, max_size=6), st.sampled_from(STRENGTHS.tolist()))
@settings(deadline=None, max_examples=100)
def test_the_posterior_mean_lies_between_what_was_elicited_and_what_was_counted(rows, strength):
    prior, counts = np.array([row[0] for row in rows]), np.array([row[1] for row in rows], dtype=float)
    found = posterior_means(prior, counts, np.ones((len(rows), 1)), np.array([strength]))
    assert found.sum(axis=1) == pytest.approx(np.ones(len(rows)), abs=1e-12)
    closed = (strength * prior + counts) / (strength + counts.sum(axis=1, keepdims=True))
    assert found == pytest.approx(closed, abs=1e-12)
    some = counts.sum(axis=1) > 0
    shares = counts[some] / counts[some].sum(axis=1, keepdims=True)
    low, high = np.minimum(prior[some], shares), np.maximum(prior[some], shares)
    assert (found[some] >= low - 1e-12).all()
    assert (found[some] <= high + 1e-12).all()
    assert found[~some] == pytest.approx(prior[~some], abs=1e-12)


@given(st.lists(st.tuples(distributions, cases), min_size=1, max_size=8))
@settings(deadline=None, max_examples=60)
def test_no_single_strength_and_no_equal_weights_make_the_patients_likelier_than_the_fitted_weights(rows):
    prior, counts = np.array([row[0] for row in rows]), np.array([row[1] for row in rows], dtype=float)
    marginal = log_marginal(prior, counts)
    fitted = np.log(np.exp(marginal - marginal.max()) @ fitted_weights(marginal)).sum()
    for weights in (*np.eye(len(STRENGTHS)), np.full(len(STRENGTHS), 1 / len(STRENGTHS))):
        with np.errstate(divide="ignore"):
            other = np.log(np.exp(marginal - marginal.max()) @ weights).sum()
        assert fitted >= other - 0.011


@given(st.integers(0, 10_000), st.sampled_from(["several", "one", "one or none"]), st.sampled_from([0, 3]))
@settings(deadline=None, max_examples=60)
def test_of_any_bundle_couplings_priors_and_what_cannot_occur_stay(seed, holds, group):
    rng = np.random.default_rng(seed)
    drawn = rated(rng, n=3, m=6, holds=holds, group=group)
    values = np.array([drawn.values(rng) for _ in range(12)], dtype=float)
    values[rng.random(values.shape) < 0.2] = np.nan
    labels = np.where(rng.random((12, 3)) < 0.2, np.nan, rng.integers(0, 2, (12, 3)))
    made = update_of(drawn.bundle, values, labels)
    new = updated_bundle(drawn.bundle, made)
    assert new.packed is drawn.bundle.packed
    assert (new.priors == drawn.bundle.priors).all()
    assert made.updated.sum(axis=2) == pytest.approx(np.ones(made.updated.shape[:2]), abs=1e-12)
    assert (made.updated[:, ~drawn.bundle.possible] == 0).all()
    for v, entity in enumerate(new.entities):
        both = np.stack(new.how_often(entity)[:2])
        expected = made.updated[[v, 3 + v]]
        plain = (expected >= new.floor) | ~new.possible
        seen = plain.all(axis=2)
        assert both[seen] == pytest.approx(expected[seen], abs=1e-9)
        assert (new.patients_behind(entity) == made.patients[[v, 3 + v]].T).all()


def test_missing_values_and_labels_count_for_nothing(fevers):
    fewer = update_by(fevers, *_numbers(X.loc[["a", "b", "c", "e"]], Y.loc[["a", "b", "c", "e"]]))
    everyone = update_by(fevers, *_numbers(X, Y))
    assert everyone.digest == fewer.digest
    assert everyone.patients_behind("flu").tolist() == [[2, 1], [2, 1]]


def _numbers(values, labels):
    return values.astype("Float64").astype(float), labels.astype("Float64").astype(float)


def test_an_entity_without_a_labelled_patient_keeps_its_elicited_numbers(fevers):
    made = afa.update(fevers, X, Y)
    for new, old in zip(made.how_often("cold")[:2], fevers.how_often("cold")[:2], strict=True):
        assert new == pytest.approx(old, abs=1e-15)
    assert not made.patients_behind("cold").any()
    assert made.how_often("flu")[0][0, 2] > fevers.how_often("flu")[0][0, 2]


def test_without_any_patient_of_a_class_its_probabilities_stay(fevers):
    made = afa.update(fevers, X, Y[Y["flu"] == 1])
    assert made.how_often("flu")[1] == pytest.approx(fevers.how_often("flu")[1], abs=1e-15)


def test_many_patients_outweigh_what_was_elicited(fevers):
    many = pd.DataFrame({"fever": [1, 0, 0, 0] * 500, "pulse": [0] * 2000})
    made = afa.update(fevers, many, pd.DataFrame({"flu": [1] * 2000}))
    assert made.how_often("flu")[0][0, 2] == pytest.approx(0.25, abs=0.03)


def test_an_exclusive_group_is_one_variable_of_patients_who_have_all_of_it_measured(tmp_path):
    """Prior of red, blue, green, none in flu: .6, .2, .1, .1; strength 4; two patients red, one none; none without."""
    bundle = load_bundle(written(tmp_path / "fevers", FEVERS))
    values = [[1, 0, 0, np.nan], [1, 0, 0, np.nan], [0, 0, 0, np.nan], [0, np.nan, 0, np.nan]]
    made = update_of(bundle, values, [[1, np.nan]] * 4, strengths=np.array([4.0]))
    assert made.updated[0, :3, 2] == pytest.approx(np.array([2.4 + 2, 0.8, 0.4]) / 7, abs=1e-12)
    assert made.updated[0, 3] == pytest.approx(made.elicited[0, 3], abs=1e-15)
    assert made.patients[0].tolist() == [3, 3, 3, 0]


def test_patients_without_any_entity_update_the_background_where_none_may_hold(tmp_path):
    """Background of a cough .3; strength 4; of two patients without flu and cold one coughs."""
    bundle = load_bundle(written(tmp_path / "fevers", FEVERS))
    values = [[np.nan] * 3 + [x] for x in (1.0, 0.0, 1.0)]
    made = update_of(bundle, values, [[0, 0], [0, 0], [0, 1]], strengths=np.array([4.0]))
    assert made.updated[4, 3] == pytest.approx(np.array([0, 2.8 + 1, 1.2 + 1]) / 6, abs=1e-12)
    new = updated_bundle(bundle, made)
    assert new.background[3] == pytest.approx(made.updated[4, 3], abs=1e-12)


def test_a_background_pooled_from_the_others_does_not_move_an_entity_that_takes_its_numbers_from_it(fevers):
    """Cold says nothing of the pulse, which flu's patients change; its pulse stays the elicited background."""
    made = afa.update(fevers, X, Y)
    assert not np.allclose(made.background[1], fevers.background[1])
    assert made.how_often("cold")[0][1] == pytest.approx(fevers.background[1], abs=1e-15)


def test_written_and_read_again_an_updated_bundle_is_the_same(fevers, tmp_path):
    made = afa.update(fevers, X, Y)
    save_bundle(made, tmp_path / "new")
    read = load_bundle(tmp_path / "new")
    assert read.digest == made.digest
    assert read.patients_behind("flu").tolist() == [[2, 1], [2, 1]]
    assert read.provenance["updates"][0]["patients"] == 4
    header = (tmp_path / "new" / "unary.csv").read_text().splitlines()[0]
    assert header.startswith("entity,feature,potential,p_low_with,p_high_with,p_low_without,p_high_without,n_with,n_w")


def test_updated_twice_a_bundle_counts_the_patients_of_both(fevers):
    made = afa.update(afa.update(fevers, X, Y), X, Y)
    assert made.patients_behind("flu").tolist() == [[4, 2], [4, 2]]
    assert len(made.provenance["updates"]) == 2


def test_the_provenance_says_how_many_patients_and_which_strength_and_what_moved_most(fevers):
    said = afa.update(fevers, X, Y).provenance["updates"][0]
    assert said["of"] == fevers.digest
    assert said["labelled"] == {"flu": {"with": 3, "without": 1}, "cold": {"with": 0, "without": 0}}
    assert sum(said["strengths"].values()) == pytest.approx(1, abs=1e-3)
    changes = [abs(row["updated"] - row["elicited"]) for row in said["moved_most"]]
    assert changes == sorted(changes, reverse=True)
    assert said["moved_most"][0].keys() == {
        "entity",
        "class",
        "feature",
        "value",
        "elicited",
        "updated",
        "count",
        "patients",
    }


def test_couplings_leave_on_request_and_the_provenance_says_so():
    drawn = rated(np.random.default_rng(5), n=2, m=4)
    entity, names = drawn.bundle.entities[0], list(drawn.bundle.features)
    tables = pd.DataFrame([drawn.values(np.random.default_rng(1))], columns=names), pd.DataFrame({entity: [1]})
    kept, dropped = afa.update(drawn.bundle, *tables), afa.update(drawn.bundle, *tables, couplings=False)
    assert drawn.bundle.couplings(entity).nnz == kept.couplings(entity).nnz > 0
    assert dropped.couplings(entity).nnz == 0
    assert (dropped.how_often(entity)[0] == kept.how_often(entity)[0]).all()
    assert [each.provenance["updates"][0].get("couplings") for each in (kept, dropped)] == [None, "dropped"]


def test_potentials_stay_and_a_pair_that_nothing_was_said_of_gets_none(fevers):
    made = afa.update(fevers, X, pd.DataFrame({"cold": [1, 1, 0, 0, 1]}, index=X.index))
    assert (made.unary == fevers.unary).all()
    assert made.patients_behind("cold")[1].tolist() == [2, 2]


def test_a_row_without_a_potential_has_the_direction_of_its_updated_probabilities(fevers):
    bare = bundle_from_frame(pd.DataFrame(ROWS | {"potential": [None, None, None]}), name="bare")
    low = pd.DataFrame({"fever": [-1] * 300})
    made = afa.update(bare, low, pd.DataFrame({"flu": [1] * 300}))
    assert (bare.unary[0, 0], made.unary[0, 0]) == (1.0, -1.0)


def test_without_knowledge_all_values_are_alike_and_nothing_is_coupled():
    drawn = rated(np.random.default_rng(3), n=2, m=5, group=3)
    flat = without_knowledge(drawn.bundle)
    for entity in flat.entities:
        one, zero, _ = flat.how_often(entity)
        assert one == pytest.approx(zero, abs=1e-15)
        assert flat.couplings(entity).nnz == 0
    group = list(flat.exclusive[0][1])
    assert one[group, 2] == pytest.approx(np.full(3, 0.25), abs=1e-12)


def test_a_bundle_of_directions_alone_is_refused_in_a_line_that_says_what_it_needs(bundle_tiny):
    expected = (
        f"bundle {bundle_tiny.name}: found directions without probabilities, which labelled patients cannot "
        "update; expected probabilities of the values. Next step: add p_low_with, p_high_with, p_low_without and "
        "p_high_without to unary.csv (docs/bundle.md)."
    )
    with pytest.raises(BundleError) as caught:
        afa.update(bundle_tiny, X, Y)
    assert str(caught.value) == expected


@pytest.mark.parametrize(
    ("values", "labels", "expected"),
    [
        (X.assign(fever=2), Y, "fever"),
        (X, Y.assign(flu=2), "flu"),
        (X, Y.rename(columns={"flu": "measles"}), "none of flu, cold among the columns measles"),
        (X, Y.set_axis(list("vwxyz")), "no label of 5 patients with values"),
        ([[1]], Y, "table X: found list"),
        (X, None, "table y: found NoneType"),
    ],
)
def test_tables_that_cannot_be_used_are_refused(fevers, values, labels, expected):
    with pytest.raises(CohortError, match=expected):
        afa.update(fevers, values, labels)


def test_values_that_cannot_occur_are_refused_with_their_patients(tmp_path):
    bundle = load_bundle(written(tmp_path / "fevers", FEVERS))
    values = pd.DataFrame({"red": [1, 0], "blue": [1, 0], "green": [0, 0], "cough": [-1, 1]}, index=["a", "b"])
    with pytest.raises(CohortError) as caught:
        afa.update(bundle, values, pd.DataFrame({"flu": [1, 0]}, index=["a", "b"]))
    assert [str(fault).split("; expected")[0] for fault in caught.value.faults] == [
        "feature cough: found -1 of a",
        "exclusive group colour: found several members at +1 for a",
    ]


@pytest.mark.parametrize(
    ("cell", "expected"),
    [("1.5", "a whole number of patients"), ("-1", "a number in [0, 1e+09]"), ("x", "a number in [0, 1e+09]")],
)
def test_counts_of_patients_are_whole_numbers(tmp_path, cell, expected):
    rows = f"entity,feature,potential,p_high_with,p_high_without,n_with,n_without\nflu,cough,,0.9,0.3,{cell},\n"
    files = FEVERS | {"unary.csv": rows}
    faults, _ = validate_bundle(written(tmp_path / "fevers", files))
    assert [(fault.where.rpartition(" ")[2], fault.expected) for fault in faults] == [("n_with", expected)]


def test_counts_of_patients_need_probabilities_beside_them(tmp_path):
    header, *rows = FEVERS["unary.csv"].splitlines()
    lines = [f"{header},n_with,n_without", *(f"{row},," for row in rows), "cold,red,1,,,3,"]
    files = FEVERS | {"unary.csv": "\n".join(lines) + "\n"}
    faults, _ = validate_bundle(written(tmp_path / "fevers", files))
    assert len(faults) == 1
    assert "found '3'; expected nothing in a row without probabilities" in str(faults[0])


def test_the_counts_do_not_change_the_model(fevers):
    made = afa.update(fevers, X, Y)
    without = replace(
        made, rates=replace(made.rates, probability_rows=replace(made.rates.probability_rows, patients=None))
    )
    assert without.digest == made.digest


def test_the_reason_of_a_suggestion_says_how_many_labelled_patients_are_behind_it(fevers):
    before, after = (afa.BinaryPlanner(bundle, entity="flu") for bundle in (fevers, afa.update(fevers, X, Y)))
    assert "labelled" not in before.suggest().reason
    assert after.suggest().reason.endswith("; labelled patients behind it: flu 2 with, 1 without")


def test_of_several_entities_the_reason_counts_the_patients_of_those_that_are_told_apart(fevers):
    bundle = replace(fevers, rates=replace(fevers.rates, holds="one"))
    labels = Y.assign(cold=[0, 0, 1, 1, 0]).astype("Int8")
    planner = afa.TopKPlanner(afa.update(bundle, X, labels), k=1)
    assert planner.suggest().features[0] == "fever"
    assert "flu 2 with, 1 without" in planner.suggest().reason
    assert "cold 2 with, 2 without" in planner.suggest().reason
