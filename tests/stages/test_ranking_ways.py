"""Entities ranked by scale and by method: every way by its readable form, and the rows of the summary."""

from itertools import product

import numpy as np
import pandas as pd
import pytest
from bundles import bundle_of, energies, models_of
from hypothesis import given, settings
from hypothesis import strategies as st

from afa.cohort.cohort import Cohort
from afa.copeland import ranking as copeland_ranking
from afa.engine.duels import all_pairs
from afa.engine.rounds import full_observation
from afa.inference.meanfield import mean_field
from afa.mrf import Evidence
from afa.orders import random_order
from afa.preference import cross_expectations, duels_of, linearity, population, population_posterior, wald
from afa.stages.inputs import shuffled_genes
from afa.stages.ranking import Settings, run, summarise
from afa.stages.ranking.tables import patient_auroc, scales_of, size_correlation
from afa.stages.ranking.ways import METHODS, known, leads, places, raw_scale
from afa.stages.settings import Bootstrap, Inference

QUICK = settings(max_examples=25, deadline=None)
SETTINGS = Settings(rounds=(2, 4, 99), seeds=(0, 1), permutations=3, whole_permutations=25)
OPTIONS = {"ranking": SETTINGS, "top_k": 2, "inference": Inference()}
ENTITIES = ("ache", "burn", "chill", "daze", "fever")


def pick(rows, **columns):
    for name, value in columns.items():
        rows = rows[rows[name].isna() if value is None else rows[name] == value]
    return rows


@pytest.fixture(scope="module")
def bundle():
    random = np.random.default_rng(3)
    couplings = random.integers(-1, 2, (5, 7, 7)) * np.triu(np.ones((7, 7)), 1)
    couplings[4] = 0
    unary = random.choice([-1, 0, 1], (5, 7))
    unary[4] = 0
    return bundle_of(unary, couplings, entities=ENTITIES, priors=[0, 0.5, 0, 0, 0])


def cohort_of(bundle, labels=None):
    random = np.random.default_rng(1)
    names = tuple(f"p{i:02}" for i in range(12))
    values = random.integers(-1, 2, (12, len(bundle.features))).astype(np.int8)
    if labels is None:
        table = pd.DataFrame(random.integers(0, 2, (12, 5)), list(names), list(bundle.entities)).astype("Int8")
        table.iloc[0] = 1
        table.iloc[1, 2] = pd.NA
        labels = table.drop(columns="daze")
    else:
        labels = pd.DataFrame(index=list(names))
    return Cohort("small", bundle.features, names, values, labels)


@pytest.fixture(scope="module")
def cohort(bundle):
    return cohort_of(bundle)


@pytest.fixture(scope="module")
def seen(bundle, cohort):
    orders = np.array([random_order(bundle.features, patient=name, seed=0) for name in cohort.patients])
    return orders, known(bundle, cohort.values, orders, [2, 4])


def by_hand(bundle, cohort, orders, patient, t):
    """Evidence, solutions and those before any observation, of one patient at t."""
    told = {bundle.features[j]: int(cohort.values[patient, j]) for j in orders[patient, :t]}
    evidence = [Evidence.of(model, told) for model in models_of(bundle)]
    return evidence, [mean_field(state.mrf, state) for state in evidence], [mean_field(m) for m in models_of(bundle)]


@pytest.mark.parametrize(("place", "t"), [(0, 0), (1, 2), (2, 4), (3, 7)])
def test_raw_leads_are_those_of_the_readable_scores(bundle, cohort, seen, place, t):
    orders, followed = seen
    assert followed.rounds[place] == t
    pairs = all_pairs(5)
    for patient in (0, 7):
        evidence, solutions, empty = by_hand(bundle, cohort, orders, patient, t)
        expected = {
            "linearity": linearity(evidence, [one.marginals for one in solutions]),
            "population": population(evidence, solutions, empty),
            "wald": wald(evidence),
        }
        for method, scores in expected.items():
            lead = leads(followed, method, raw_scale(bundle), pairs)[patient, place]
            np.testing.assert_allclose(lead, scores[pairs[:, 0], pairs[:, 1]], atol=1e-9)


def test_by_frequency_hidden_genes_are_independent_with_the_frequencies_of_the_cohort(bundle, cohort, seen):
    orders, followed = seen
    observed, hidden = orders[4, :2], orders[4, 2:]
    chances = np.stack([(cohort.values == value).mean(axis=0) for value in (-1, 0, 1)], axis=1)
    rows = np.array(list(product((-1, 0, 1), repeat=len(hidden))))
    weight = np.prod(chances[hidden, rows + 1], axis=1)
    whole = np.empty((len(rows), 7), dtype=int)
    whole[:, hidden], whole[:, observed] = rows, cohort.values[4, observed]
    expected = energies(bundle, whole) @ weight
    pairs = all_pairs(5)
    lead = leads(followed, "frequency", raw_scale(bundle), pairs)[4, 1]
    np.testing.assert_allclose(lead, expected[pairs[:, 0]] - expected[pairs[:, 1]], atol=1e-9)


def test_a_scale_is_put_on_every_score_inside_the_duel(bundle, cohort, seen):
    orders, followed = seen
    evidence, solutions, _ = by_hand(bundle, cohort, orders, 3, 2)
    scale = scales_of(bundle, cohort.values, followed.observed)["shuffled"]
    mean, sd = scale.mean[3, 1], scale.sd[3, 1]
    cross = cross_expectations(evidence, [one.marginals for one in solutions])
    scaled = np.where(sd > 0, (cross - mean) / np.where(sd > 0, sd, 1), 0)
    pairs = all_pairs(5)
    expected = duels_of(scaled)[pairs[:, 0], pairs[:, 1]]
    np.testing.assert_allclose(leads(followed, "linearity", scale, pairs)[3, 1], expected, atol=1e-9)


def test_at_full_observation_all_methods_are_one_and_raw_scores_rank_as_the_engine_says(bundle, cohort, seen):
    _, followed = seen
    truth, pairs = full_observation(bundle, cohort.values), all_pairs(5)
    for name, scale in scales_of(bundle, cohort.values, followed.observed).items():
        ends = [np.sign(leads(followed, method, scale, pairs)[:, -1]) for method in METHODS]
        assert all((end == ends[0]).all() for end in ends)
        if name == "raw":
            lead = leads(followed, "wald", scale, pairs)[:, -1]
            assert (np.sign(lead) == truth.winner).all()
            assert (places(lead, pairs, 5, scale.tie) == truth.place).all()
            assert (np.sign(leads(followed, "linearity", scale, pairs)[:, 0]) == truth.prior).all()


@QUICK
@given(st.lists(st.sampled_from([-1.0, -0.5, 0.0, 0.0, 0.5, 2.0]), min_size=10, max_size=10))
def test_places_are_those_of_copeland_but_for_names(numbers):
    pairs, scores = all_pairs(5), np.zeros((5, 5))
    scores[pairs[:, 0], pairs[:, 1]] = numbers
    scores -= scores.T
    place = places(np.array(numbers), pairs, 5, 1e-12)
    names = list("edcba")
    best_first = [names.index(name) for name in copeland_ranking(scores, names, tie=1e-12)]
    assert sorted(range(5), key=lambda v: (place[v], names[v])) == best_first
    assert all(place[v] == (place < place[v]).sum() for v in range(5))


# Measures


def test_auroc_of_one_patient_counts_ties_by_half_and_needs_both_classes():
    place = np.array([[[0, 1, 1, 3]], [[0, 1, 1, 3]]])
    labels = np.array([[1, 1, 0, 0], [1, 1, np.nan, 1]])
    found = patient_auroc(place, labels)
    assert found[0, 0] == (1 + 1 + 0.5 + 1) / 4
    assert np.isnan(found[1, 0])


def test_the_correlation_with_size_is_1_where_the_largest_is_first_and_missing_where_all_tie():
    place = np.array([[[0, 1, 2], [2, 1, 0], [0, 0, 0]]])
    found = size_correlation(place, np.array([9, 5, 2]))
    assert found[0, :2] == pytest.approx([1.0, -1.0])
    assert np.isnan(found[0, 2])


# Tables


@pytest.fixture(scope="module")
def tables(bundle, cohort):
    return run(bundle, cohort, **OPTIONS)


@pytest.fixture(scope="module")
def rows(tables):
    return summarise(tables, bootstrap=Bootstrap(resamples=200, confidence=0.9))


def test_rounds_beyond_the_features_are_left_out_and_both_ends_are_always_there(tables):
    assert sorted(tables["decisions"]["t"].unique()) == [0, 2, 4, 7]
    assert sorted(tables["rankings"]["t"].unique()) == [0, 2, 4, 7]


def test_at_full_observation_every_duel_is_right_on_its_own_scale(tables):
    ended = tables["decisions"].query("t == 7").merge(tables["truth"], on=["scale", "target", "patient"])
    own = ended[(ended["target"] == "own") | (ended["scale"] == "raw")]
    assert len(own) == 4 * len(METHODS) * 2 * 12
    assert (own["accuracy"] == own["duels"]).all()
    assert (own["p_at_k"] == 1).all()


def test_duels_are_counted_as_the_readable_scores_call_them(bundle, cohort, seen, tables):
    orders, _ = seen
    winner = np.sign(np.subtract.outer(*[energies(bundle, cohort.values[5:6])[:, 0]] * 2))
    evidence, solutions, _ = by_hand(bundle, cohort, orders, 5, 2)
    called = np.sign(np.round(linearity(evidence, [one.marginals for one in solutions]), 9))
    right = (0.5 + 0.5 * called * winner)[np.triu(winner != 0, 1)].sum()
    found = tables["decisions"].set_index(["scale", "method", "target", "seed", "patient", "t"])
    assert found.loc[("raw", "linearity", "likelihood", 0, "p05", 2), "accuracy"] == right


def test_the_larger_support_is_called_and_equal_ones_are_half_right(bundle, cohort, tables, rows):
    sizes = np.array([len(bundle.support(entity)) for entity in ENTITIES])
    assert len(set(sizes)) < 5
    winner, pairs = full_observation(bundle, cohort.values).winner, all_pairs(5)
    called = np.sign(sizes[pairs[:, 0]] - sizes[pairs[:, 1]])
    right = np.where(winner == 0, 0, 0.5 + 0.5 * winner * called).sum(axis=1)
    truth = tables["truth"].query("scale == 'raw'")
    assert truth["larger"].tolist() == right.tolist()
    row = pick(rows, metric="accuracy", variant=None, method="larger_support", target="likelihood").squeeze()
    assert row["value"] == pytest.approx(right.sum() / truth["duels"].sum())


def test_the_posterior_is_told_beside_the_rankings_that_rest_on_it(bundle, cohort, seen, tables, rows):
    orders, _ = seen
    posterior = population_posterior(*by_hand(bundle, cohort, orders, 6, 4))
    found = tables["posterior"].set_index(["seed", "patient", "t"]).loc[(0, "p06", 4)]
    assert found["of_null"] == pytest.approx(posterior[-1])
    assert found["of_likeliest"] == pytest.approx(posterior[:-1].max())
    row = pick(rows, metric="rate", quantity="of_null", t=4, reference=None).squeeze()
    assert row["value"] == pytest.approx(tables["posterior"].query("t == 4")["of_null"].mean(), abs=1e-6)
    assert len(pick(rows, metric="rate", quantity="of_null", reference="shuffled_genes")) == 3


def test_before_any_observation_the_prior_wrong_duels_have_no_right_one(tables):
    start = tables["decisions"].query("t == 0 and method == 'linearity'")
    assert (start["accuracy_prior_wrong"] == 0).all()
    assert start["accuracy"].max() > 0


def test_a_shuffled_bundle_is_the_bundle_on_shuffled_values(bundle, cohort, tables):
    values = cohort.values[:, shuffled_genes(7, 2)]
    place = full_observation(bundle, values).place
    labels = cohort.labels.reindex(columns=list(ENTITIES)).astype("Float64").to_numpy(dtype=float, na_value=np.nan)
    expected = np.nanmean(patient_auroc(place[:, None], labels))
    null = tables["null"].set_index(["scale", "method", "target", "t", "permutation", "metric"])["value"]
    for method in METHODS:
        assert null[("raw", method, "clinical", 7, 2, "auroc")] == pytest.approx(expected)
    counts = tables["null"].query("metric == 'auroc' and scale == 'raw' and method == 'wald'").groupby("t").size()
    assert counts.to_dict() == {0: 3, 2: 3, 4: 3, 7: 25}


def test_a_shuffled_bundle_read_at_full_observation_is_the_shuffled_bundle_followed_there(bundle, cohort, tables):
    values = np.ascontiguousarray(cohort.values[:, shuffled_genes(7, 1)])
    orders = np.array([random_order(bundle.features, patient=name, seed=0) for name in cohort.patients])
    followed = known(bundle, values, orders, [])
    null = tables["null"].set_index(["scale", "method", "target", "t", "permutation", "metric"])["value"]
    sizes = np.array([len(bundle.support(entity)) for entity in ENTITIES])
    for name, scale in scales_of(bundle, values, followed.observed).items():
        lead = leads(followed, "linearity", scale, all_pairs(5))[:, -1:]
        correlation = size_correlation(places(lead, all_pairs(5), 5, scale.tie), sizes)
        expected = null[(name, "linearity", "size", 7, 1, "correlation")]
        assert np.nanmean(correlation) == pytest.approx(expected)


def test_threads_change_no_byte(bundle, cohort, tables):
    again = run(bundle, cohort, **OPTIONS, threads=2)
    for name, table in tables.items():
        pd.testing.assert_frame_equal(again[name], table, check_exact=True)


# Summary


def test_accuracy_is_a_share_of_the_duels_with_a_winner_over_all_seeds(tables, rows):
    decisions = tables["decisions"].query("scale == 'cohort' and method == 'population' and target == 'own' and t == 4")
    duels = tables["truth"].query("scale == 'cohort' and target == 'own'")["duels"].sum()
    keys = {"metric": "accuracy", "method": "population", "target": "own", "stratum": None, "variant": "cohort", "t": 4}
    row = pick(rows, table="ranking", reference=None, **keys).squeeze()
    assert row["value"] == pytest.approx(decisions["accuracy"].sum() / (2 * duels))
    assert row["n"] == 2 * duels
    assert row["low"] <= row["value"] <= row["high"]


def test_a_gap_is_between_two_rows_and_closed_at_full_observation(rows):
    keys = {"table": "clinical", "variant": "shuffled", "target": "clinical"}
    gap = pick(rows, metric="gap", method="population", quantity="auroc", reference="linearity", **keys).set_index("t")[
        "value"
    ]
    values = {
        method: pick(rows, metric="auroc", method=method, reference=None, **keys).set_index("t")["value"]
        for method in ("population", "linearity")
    }
    np.testing.assert_allclose(gap, values["population"] - values["linearity"], atol=1e-6)
    assert gap[7] == pytest.approx(0, abs=1e-9)


def test_p_counts_the_shuffled_bundles_that_do_no_worse(tables, rows):
    null = tables["null"].query("scale == 'raw' and method == 'wald' and t == 7 and metric == 'auroc'")["value"]
    real = tables["rankings"].query("scale == 'raw' and method == 'wald' and t == 7 and seed == 0")["auroc"].mean()
    row = pick(rows, metric="p_value", method="wald", variant=None, quantity="auroc", t=7).squeeze()
    assert row["value"] == pytest.approx((1 + (null >= real - 1e-9).sum()) / 26)
    assert row["n"] == 25


def test_the_order_by_prevalence_and_the_counts_stand_beside_the_labels(cohort, rows):
    counts = pick(rows, table="clinical", metric="count").set_index("quantity")["value"]
    assert counts[["labelled", "k_clinical"]].tolist() == [4, 2]
    assert counts["patients_of_one_class"] >= 1
    assert len(pick(rows, table="clinical", method="prevalence_order")) == 3
    assert pick(rows, metric="count", target="own", variant="uniform", quantity="without_spread")["value"].tolist() == [
        1
    ]


def test_a_cohort_without_labels_has_duels_and_no_clinical_rows_but_counts(bundle):
    bare = cohort_of(bundle, labels=())
    found = summarise(run(bundle, bare, **OPTIONS), bootstrap=Bootstrap(resamples=100, confidence=0.9))
    assert set(found.loc[found["table"] == "clinical", "metric"]) == {"count"}
    assert {"accuracy", "p_at_k", "gap", "p_value"} <= set(found.loc[found["table"] == "ranking", "metric"])
