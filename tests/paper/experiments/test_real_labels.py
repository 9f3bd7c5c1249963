"""Scores against labels on a cohort small enough to follow, and what the tables and the summary say of it."""

from dataclasses import replace
from itertools import product

import numpy as np
import pandas as pd
import pytest
from bundles import bundle_of
from codes import label_tables
from examples import examples
from hypothesis import given
from hypothesis import strategies as st

from afa.cohort.cohort import Cohort
from afa.errors import CohortError, ConfigError
from afa.evaluate.accuracy import accuracies, ranking_metrics
from afa.evaluate.inputs import amounts, shuffled_genes
from afa.inference.class_odds import two_elbo
from afa.model.closure import contrast
from afa.model.orders import random_order
from afa.paper.experiments.label_tasks import (
    LabelSetting,
    as_greedy_chooses,
    by_model,
    in_random_order,
    settings_of,
    tasks_of,
)
from afa.paper.experiments.labels import summarise
from afa.paper.experiments.settings import Bootstrap, Labels
from afa.planner import BinaryPlanner

OPTIONS = Labels(percents=(34, 50), seeds=(0, 1), strengths=(0.9, 0.5), permutations=3, whole_permutations=5)
ONCE = np.ones((1, 4))


@pytest.fixture(scope="module")
def bundle():
    random = np.random.default_rng(3)
    couplings = random.integers(-1, 2, (2, 6, 6)) * np.triu(np.ones((6, 6)), 1)
    return bundle_of(random.choice([-1, 1], (2, 6)), couplings, entities=("fever", "chill"))


def cohort_of(bundle, seed, **provenance):
    random = np.random.default_rng(seed)
    names = tuple(f"p{i:02}" for i in range(12))
    labels = pd.DataFrame(
        {
            "fever": pd.array([0, 1, 1, 0, None, 1, 0, 1, 1, 0, 1, 0], dtype="Int8"),
            "chill": pd.array([1] * 12, dtype="Int8"),
        },
        index=list(names),
    )
    values = random.integers(-1, 2, (12, 6)).astype(np.int8)
    return Cohort("small", bundle.features, names, values, labels, provenance)


@pytest.fixture(scope="module")
def cohorts(bundle):
    return cohort_of(bundle, 1), {0.5: cohort_of(bundle, 2), 1.0: cohort_of(bundle, 4)}


@pytest.fixture(scope="module")
def tables(bundle, cohorts):
    return label_tables(bundle, *cohorts, OPTIONS)


@pytest.fixture(scope="module")
def rows(tables):
    return summarise(tables, bootstrap=Bootstrap(resamples=200, confidence=0.9))


def test_every_setting_is_followed_and_those_fixed_beforehand_come_first(tables):
    found = settings_of(["controls", "cohort"], [0.5, 1.0], [0.9, 0.5])
    fixed = [setting for setting in found if not setting.variant]
    assert found[:4] == fixed
    assert {(setting.reference, setting.coupling) for setting in fixed} == set(
        product(("controls", "cohort"), ("differential", "shared"))
    )
    variants = ["threshold=1", "threshold=1", "strength=0.5", "strength=0.5", "threshold=1 strength=0.5"]
    assert sorted(setting.variant for setting in found[4:]) == sorted(variants)
    assert list(tables["left_out"]["entity"]) == ["chill"]
    assert set(tables["scores"]["entity"]) == {"fever"}
    assert set(tables["scores"]["patient"]) == {f"p{i:02}" for i in range(12)} - {"p04"}


@pytest.mark.parametrize("coupling", ["differential", "shared"])
def test_scores_along_a_random_order_are_those_of_the_readable_function(bundle, cohorts, tables, coupling):
    scores = tables["scores"].set_index(["reference", "coupling", "variant", "allocation", "seed", "patient", "t"])
    order = random_order(bundle.features, patient="p03", seed=1)
    for reference, cohort in (("controls", cohorts[0]), ("cohort", cohorts[1][0.5])):
        for t, observed in ((0, 0), (34, 3), (50, 3), (100, 6)):
            told = {bundle.features[j]: int(cohort.values[3, j]) for j in order[:observed]}
            expected = two_elbo(bundle.mrf("fever"), told, coupling=coupling)
            row = scores.loc[reference, coupling, "", "random", 1, "p03", t]
            assert row["observed"] == observed
            assert row["raw"] == pytest.approx(expected.raw, abs=1e-8)
            assert row["calibrated"] == pytest.approx(expected.calibrated, abs=1e-8)


def test_scores_of_greedy_are_those_of_the_planner(bundle, cohorts, tables):
    planner = BinaryPlanner(bundle, entity="fever", coupling="shared")
    for _ in range(3):
        feature = planner.next_feature()
        planner.observe(feature, int(cohorts[1][0.5].values[0, bundle.features.index(feature)]))
    scores = tables["scores"].set_index(["reference", "coupling", "variant", "allocation", "patient", "t"])
    assert scores.loc["cohort", "shared", "", "greedy", "p00", 50]["raw"] == pytest.approx(planner.score(), abs=1e-8)


def test_tasks_of_one_model_that_are_followed_together_score_as_each_does_alone(bundle, cohorts):
    encoded = [
        LabelSetting("controls", "shared"),
        LabelSetting("cohort", "differential", 0.5),
        LabelSetting("cohort", "shared", 0.5),
    ]
    tasks, _ = tasks_of(bundle, {None: cohorts[0], 0.5: cohorts[1][0.5]}, encoded)
    groups = []

    def follow(own):
        groups.append([next(i for i, task in enumerate(tasks) if task is one) for one in own])
        return [pd.DataFrame()] * len(own)

    by_model(tasks, follow, 1)
    assert groups == [[0, 2], [1]]
    values = np.concatenate([tasks[0].values, tasks[2].values])
    together, shift = in_random_order(tasks[0], values, [34], 1, None)
    chosen, _ = as_greedy_chooses(tasks[0], values, [34], None)
    for i, part in enumerate(np.split(np.arange(len(values)), 2)):
        alone, own_shift = in_random_order(tasks[0], values[part], [34], 1, None)
        assert np.array_equal(together[part], alone), i
        assert shift == own_shift
        assert np.array_equal(chosen[part], as_greedy_chooses(tasks[0], values[part], [34], None)[0])


def test_at_full_observation_the_order_does_not_matter_and_the_score_is_the_contrast(bundle, tables):
    ended = tables["scores"][(tables["scores"]["t"] == 100) & (tables["scores"]["variant"] == "")]
    assert ended.groupby(["reference", "coupling", "patient"])["raw"].agg(lambda raw: raw.max() - raw.min()).max() == 0
    whole = tables["whole"][tables["whole"]["entity"] == "fever"].set_index(["reference", "coupling", "patient"])
    for key, part in ended.groupby(["reference", "coupling", "patient"]):
        assert part["raw"].iloc[0] == pytest.approx(whole.loc[key, "score"], abs=1e-8)


def test_a_bundle_with_shuffled_genes_is_the_bundle_on_shuffled_values(bundle, cohorts, tables):
    place = shuffled_genes(6, 2)
    assert sorted(place) == list(range(6))
    known = cohorts[0].labels["fever"].notna().to_numpy()
    score = contrast(bundle.mrf("fever"))
    energies = np.array([score.energy(profile[place]) for profile in cohorts[0].values[known]])
    positive = (cohorts[0].labels["fever"][known] == 1).to_numpy()
    expected = ranking_metrics(energies, positive, np.ones((1, 11)))[0][0]
    null = tables["null"].set_index(["reference", "coupling", "allocation", "t", "permutation"])
    for allocation in ("random", "greedy"):
        assert null.loc[("controls", "differential", allocation, 100, 2), "auroc"] == pytest.approx(expected)
    assert null.groupby(["reference", "coupling", "allocation", "t"]).size().unique().tolist() == [3, 5]


def test_threads_change_no_byte(bundle, cohorts, tables):
    again = label_tables(bundle, *cohorts, OPTIONS, threads=2)
    for name, table in tables.items():
        pd.testing.assert_frame_equal(again[name], table, check_exact=True)


def test_before_any_observation_nobody_is_told_apart(rows):
    start = rows[(rows["table"] == "labels") & (rows["t"] == 0)]
    for metric in ("auroc", "balanced_accuracy"):
        assert (start.loc[start["metric"] == metric, "value"] == 0.5).all()
    prevalence = rows.loc[rows["metric"] == "prevalence", "value"].iloc[0]
    assert prevalence == pytest.approx(6 / 11)
    assert np.allclose(start.loc[start["metric"] == "average_precision", "value"], prevalence)


def test_a_p_value_counts_the_shuffled_bundles_that_do_no_worse(tables, rows):
    ended = tables["scores"].query("t == 100 and variant == '' and allocation == 'greedy' and reference == 'cohort'")
    part = ended[ended["coupling"] == "shared"]
    own = ranking_metrics(part["raw"].to_numpy(), part["label"].to_numpy() == 1, np.ones((1, 11)))[0][0]
    null = tables["null"].query(
        "t == 100 and allocation == 'greedy' and reference == 'cohort' and coupling == 'shared'"
    )
    expected = (1 + (null["auroc"] >= own - 1e-12).sum()) / 6
    found = rows[(rows["metric"] == "p_value") & (rows["quantity"] == "auroc") & (rows["t"] == 100)]
    found = found[(found["reference"] == "cohort") & (found["coupling"] == "shared")]
    assert found["entity"].fillna("").tolist() == ["", "fever"] * 2  # of each of the two orders, which end alike
    assert found["value"].tolist() == [expected] * 4


def test_the_rank_of_a_score_is_its_place_among_all(tables, rows):
    whole = tables["whole"].query("reference == 'controls' and coupling == 'shared'")
    labels = tables["labels"].set_index("patient")["label"]
    areas = {}
    for entity, part in whole.groupby("entity"):
        scores = part.set_index("patient")["score"].loc[labels.index]
        areas[entity] = ranking_metrics(scores.to_numpy(), labels.to_numpy() == 1, np.ones((1, 11)))[0][0]
    chosen = rows[(rows["table"] == "specificity") & (rows["reference"] == "controls") & (rows["coupling"] == "shared")]
    values = chosen.fillna({"variant": ""}).set_index(["metric", "entity", "variant"])["value"]
    assert values["rank", "fever", ""] == (1 if areas["fever"] > areas["chill"] else 2)
    assert values["gap", "fever", ""] == pytest.approx(areas["fever"] - areas["chill"])
    assert values["auroc", "fever", "best_other"] == pytest.approx(areas["chill"])


def test_controls_are_decided_by_the_scores_and_the_right_answer_is_no(bundle, cohorts):
    random = np.random.default_rng(8)
    names = [f"healthy{i}" for i in range(5)]
    healthy = pd.DataFrame(random.integers(-1, 2, (5, 6)), names, list(bundle.features))
    tables = label_tables(bundle, replace(cohorts[0], controls=healthy), cohorts[1], OPTIONS)
    rows = summarise(tables, bootstrap=Bootstrap(resamples=200, confidence=0.9))
    found = rows[rows["table"] == "controls"]
    assert set(found["metric"]) == {"specificity"}
    assert set(found["reference"]) == {"controls"}
    assert set(tables["controls"]["entity"]) == {"fever", "chill"}, "of every entity: the healthy need no label"
    ended = found[(found["t"] == 100) & (found["coupling"] == "differential") & (found["allocation"] == "random")]
    values = ended[ended["method"] == "two_elbo"].fillna({"entity": ""}).set_index("entity")["value"]
    for entity in bundle.entities:
        scores = np.array([two_elbo_at_the_end(bundle, entity, row) for row in healthy.to_numpy()])
        assert values[entity] == pytest.approx(np.mean(0.5 - 0.5 * np.sign(scores)))
    assert values[""] == pytest.approx(values[["fever", "chill"]].mean())
    chill = tables["controls"].query("entity == 'chill' and allocation == 'random' and coupling == 'shared'")
    order = random_order(bundle.features, patient="healthy2", seed=1)
    told = {bundle.features[j]: int(healthy.iloc[2, j]) for j in order[:3]}
    expected = two_elbo(bundle.mrf("chill"), told, coupling="shared").raw
    assert chill.set_index(["seed", "control", "t"]).loc[(1, "healthy2", 50), "raw"] == pytest.approx(
        expected, abs=1e-8
    )


def two_elbo_at_the_end(bundle, entity, profile):
    return contrast(bundle.mrf(entity)).energy(profile)


def test_without_controls_nothing_is_said_of_the_healthy(tables, rows):
    assert tables["controls"].empty
    assert "controls" not in set(rows["table"])


def test_a_cohort_without_labels_has_counts_alone(bundle, cohorts):
    bare = [replace(cohort, labels=cohort.labels[[]]) for cohort in (cohorts[0], cohorts[1][0.5])]
    tables = label_tables(bundle, bare[0], {0.5: bare[1]}, OPTIONS)
    rows = summarise(tables, bootstrap=Bootstrap(resamples=100, confidence=0.9))
    assert rows["metric"].tolist() == ["count", "count"]
    assert rows["value"].tolist() == [0, 0]


def test_a_run_encoded_against_the_cohort_has_no_reference_controls(bundle, cohorts):
    by_itself = replace(cohorts[1][0.5], provenance={"encoding": {"reference": "cohort"}})
    tables = label_tables(bundle, by_itself, cohorts[1], OPTIONS)
    assert set(tables["scores"]["reference"]) == {"cohort"}
    assert len(summarise(tables, bootstrap=Bootstrap(resamples=100, confidence=0.9)))


def test_another_cohort_in_the_second_code_is_refused(bundle, cohorts):
    other, names = cohort_of(bundle, 5), tuple(f"q{i}" for i in range(12))
    other = replace(other, patients=names, labels=other.labels.set_axis(names))
    with pytest.raises(CohortError, match=r"at threshold 0\.5 other patients or features"):
        label_tables(bundle, cohorts[0], {0.5: other}, OPTIONS)


def test_ranking_by_hand():
    """Two of two positive pairs in order, one tied: (1 + 1 + 1/2 + 0) / 4; and precision at each threshold."""
    scores, positive = np.array([3.0, 1.0, 1.0, 2.0]), np.array([True, True, False, False])
    area, precision = ranking_metrics(scores, positive, ONCE)
    assert area[0] == pytest.approx((2 + 0.5) / 4)
    assert precision[0] == pytest.approx(0.5 * 1 + 0.5 * 2 / 4)


def test_a_tie_is_half_right_and_a_constant_answer_has_balanced_accuracy_one_half():
    positive = np.array([True, True, True, False])
    plain, balanced, ill, others = accuracies(np.array([1.0, 0.0, -2.0, -1.0]), positive, ONCE)
    assert (plain[0], balanced[0]) == (pytest.approx(2.5 / 4), pytest.approx((0.5 + 1) / 2))
    assert (ill[0], others[0]) == (pytest.approx(0.5), 1)
    plain, balanced, ill, others = accuracies(np.ones(4), positive, ONCE)
    assert (plain[0], balanced[0], ill[0], others[0]) == (0.75, 0.5, 1, 0)


def test_a_resample_of_one_class_has_no_value():
    weights = np.array([[1.0, 1.0, 0.0, 0.0]])
    scores, positive = np.arange(4.0), np.array([True, True, False, False])
    assert all(np.isnan(value[0]) for value in ranking_metrics(scores, positive, weights))
    assert np.isnan(accuracies(scores, positive, weights)[1][0])


@examples(40)
@given(st.lists(st.tuples(st.integers(-3, 3), st.booleans(), st.integers(0, 3)), min_size=2, max_size=9))
def test_weights_are_patients_repeated(cases):
    scores, positive, counts = (np.array(column) for column in zip(*cases, strict=True))
    whole = np.repeat(scores, counts).astype(float), np.repeat(positive, counts)
    if not counts.sum():
        return
    weighted = ranking_metrics(scores.astype(float), positive, counts[None].astype(float))
    plain = ranking_metrics(*whole, np.ones((1, len(whole[0]))))
    np.testing.assert_allclose(weighted, plain)
    pairs = [(a > b) + (a == b) / 2 for a in whole[0][whole[1]] for b in whole[0][~whole[1]]]
    assert weighted[0][0] == pytest.approx(np.mean(pairs) if pairs else np.nan, nan_ok=True)


def test_amounts_are_numbers_of_0_or_more_none_twice():
    assert amounts("--thresholds", "0.5,0.25,1") == [0.5, 0.25, 1.0]
    for text in ("", "0.5,0.5", "-1", "inf", "nan", "half"):
        with pytest.raises(ConfigError, match=r"--thresholds.*distinct numbers of 0 or more"):
            amounts("--thresholds", text)
