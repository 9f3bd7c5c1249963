"""Classifiers trained on a few labelled patients, and what the summary says of them beside the zero-shot scores."""

from dataclasses import dataclass, replace

import numpy as np
import pandas as pd
import pytest
from bundles import bundle_of
from codes import codes_of, label_tables, needed_tables
from threadpoolctl import threadpool_limits

from afa.cohort.cohort import Cohort
from afa.engine.run import MISSING
from afa.errors import CohortError, ConfigError
from afa.evaluate.accuracy import accuracies, ranking_metrics
from afa.evaluate.classifiers import (
    CLASSIFIERS,
    SCREENED,
    Trained,
    conditionals,
    mutual_information,
    shown_shares,
    train,
)
from afa.model.orders import generator_of, random_order
from afa.paper.experiments.base import chosen
from afa.paper.experiments.label_tasks import LabelSetting, LabelTask
from afa.paper.experiments.labels_needed import RepeatedTests, _first_ahead, drawn, run, summarise
from afa.paper.experiments.settings import Bootstrap, Labels, LabelsNeeded, StageSettings

OPTIONS = {"sizes": (6, 10), "repeats": 2, "permuted": 1, "labels": 5, "tested": 4, "of_each_class": 2}
PATIENTS = tuple(f"p{i:02}" for i in range(24))
POSITIVE = np.arange(24) % 3 == 0


@dataclass(frozen=True)
class Sum:
    """A classifier whose log-odds are the sum of what it is shown."""

    def log_odds(self, values, observed):
        return np.where(observed, values, 0).sum(axis=1).astype(float)


@pytest.fixture(scope="module")
def bundle():
    random = np.random.default_rng(3)
    couplings = random.integers(-1, 2, (2, 6, 6)) * np.triu(np.ones((6, 6)), 1)
    unary = random.choice([-1, 1], (2, 6))
    unary[:, 5], couplings[:, :, 5], couplings[:, 5] = 0, 0, 0
    return bundle_of(unary, couplings, entities=("fever", "chill"))


def cohort_of(bundle, seed):
    random = np.random.default_rng(seed)
    values = random.integers(-1, 2, (24, 6)).astype(np.int8)
    values[:, 5] = np.where(POSITIVE, 1, -1)
    fever = pd.array(POSITIVE.astype(int), dtype="Int8")
    labels = pd.DataFrame({"fever": fever, "chill": pd.array([1] * 24, dtype="Int8")}, index=list(PATIENTS))
    return Cohort("small", bundle.features, PATIENTS, values, labels)


@pytest.fixture(scope="module")
def cohorts(bundle):
    return {"controls": cohort_of(bundle, 1), "cohort": cohort_of(bundle, 2)}


def needed(bundle, cohorts, scores, **options):
    return needed_tables(bundle, cohorts, scores, LabelsNeeded(**options))


@pytest.fixture(scope="module")
def zero_shot(bundle, cohorts):
    few = {"percents": [20, 60], "seeds": [0, 1], "strengths": [0.9], "permutations": 1, "whole_permutations": 1}
    return label_tables(bundle, cohorts["controls"], {0.5: cohorts["cohort"]}, Labels(**few))


@pytest.fixture(scope="module")
def tables(bundle, cohorts, zero_shot):
    return needed(bundle, cohorts, zero_shot["scores"], **OPTIONS)


@pytest.fixture(scope="module")
def rows(tables):
    return summarise(tables, bootstrap=Bootstrap(resamples=100, confidence=0.9))


def task_of(positive):
    bundle = bundle_of([[1]], [[[0]]])
    names = tuple(map(str, range(len(positive))))
    values = np.zeros((len(positive), 1), dtype=np.int8)
    return LabelTask(LabelSetting("controls", "differential"), bundle, bundle.entities[0], names, values, positive)


def test_three_cases_that_are_as_all_are_stand_beside_those_of_each_class():
    """All labelled patients with one case of each value: 2, 1, 3 of six for one feature, 1, 4, 1 for the other."""
    values = np.array([[1, 0], [1, 0], [-1, 0]], dtype=np.int8)
    chances = conditionals(values, np.array([True, True, False]))
    np.testing.assert_allclose(chances[1], np.array([[0 + 1, 0 + 0.5, 2 + 1.5], [0.5, 2 + 2, 0.5]]) / 5)
    np.testing.assert_allclose(chances[0], np.array([[1 + 1, 0 + 0.5, 0 + 1.5], [0.5, 1 + 2, 0.5]]) / 4)


def test_naive_bayes_adds_the_votes_of_what_is_observed():
    values = np.array([[1, 0], [1, 0], [-1, 0]], dtype=np.int8)
    classifier = train("naive_bayes", values, np.array([True, True, False]), generator_of("any"))
    observed = np.array([[True, False], [True, True], [False, False]])
    votes = np.log([(3.5 / 5) / (1.5 / 4), (4 / 5) / (3 / 4)])
    np.testing.assert_allclose(classifier.log_odds(values, observed), [votes[0], votes.sum(), 0])


def test_boosting_looks_at_the_features_that_tell_most_and_none_at_one_that_has_one_value():
    random = np.random.default_rng(2)
    values = random.integers(-1, 2, (40, 100)).astype(np.int8)
    values[:, 7], values[:, 60] = 1, np.where(np.arange(40) < 20, -1, 1)
    positive = np.arange(40) < 20
    columns = {method: train(method, values, positive, generator_of("any")).columns for method in CLASSIFIERS}
    assert len(columns["boosting"]) == SCREENED
    assert 60 in columns["boosting"]
    assert columns["logistic"].tolist() == [j for j in range(100) if j != 7]
    same = np.ones((10, 2), dtype=np.int8)
    blind = train("logistic", same, np.arange(10) < 4, generator_of("any"))
    assert blind.log_odds(same, np.ones((10, 2), dtype=bool)).tolist() == [0] * 10


def test_information_by_hand():
    """A feature that tells the class is worth its entropy, one that does not 0, one that may half of it."""
    chances = np.array([[[1, 0, 0], [0.2, 0.3, 0.5], [0.5, 0.5, 0]], [[0, 0, 1], [0.2, 0.3, 0.5], [0, 0.5, 0.5]]])
    gain = mutual_information(np.array([[0.5, 0.5], [0.25, 0.75]]), chances)
    entropy = -(0.75 * np.log(0.75) + 0.25 * np.log(0.25))
    np.testing.assert_allclose(gain, [[np.log(2), 0, np.log(2) / 2], [entropy, 0, entropy / 2]], atol=1e-12)


def test_a_classifier_goes_for_what_tells_most_and_then_by_name():
    certain, nothing, half = [[1, 0, 0], [0, 0, 1]], [[0, 1, 0]] * 2, [[0.5, 0.5, 0], [0, 0.5, 0.5]]
    chances = np.array([nothing, half, nothing, certain], dtype=float).transpose(1, 0, 2)
    values = np.array([[1, 1, 1, 1], [-1, -1, -1, 0]], dtype=np.int8)
    values[0] = [1, -1, 0, 1]
    trained = Trained(chances[::-1], ["d", "c", "a", "b"], [Sum()])
    found = trained.planned(values, [0, 1, 2, 3, 4, 9])[..., 0]
    assert found[0].tolist() == [0, 1, 0, 0, 1, 1]  # b, c, then a before d
    assert found[1].tolist() == [0, 0, -1, -2, -3, -3]


@pytest.mark.parametrize("method", CLASSIFIERS)
def test_what_is_hidden_says_nothing(method):
    random = np.random.default_rng(0)
    values = random.integers(-1, 2, (30, 4)).astype(np.int8)
    classifier = train(method, values, values[:, 0] > 0, generator_of("any"))
    observed = np.tile([True, False, False, True], (30, 1))
    other = np.where(observed, values, -values).astype(np.int8)
    found = classifier.log_odds(values, observed)
    assert np.array_equal(found, classifier.log_odds(other, observed))
    assert np.ptp(classifier.log_odds(values, np.zeros_like(observed))) == 0
    whole = classifier.log_odds(values, np.ones_like(observed))
    assert whole[values[:, 0] > 0].min() > whole[values[:, 0] <= 0].max()


@pytest.mark.parametrize("method", ["logistic", "boosting"])
def test_a_value_that_was_not_measured_is_hidden_in_training_whatever_its_code(method):
    random = np.random.default_rng(0)
    values = random.integers(-1, 2, (60, 3)).astype(np.int8)
    positive, lost = values[:, 0] > 0, random.random(values.shape) < 0.3
    coded = [np.where(lost, code, values).astype(np.int8) for code in (MISSING, 2)]
    first, second = (train(method, each, positive, generator_of("any")) for each in coded)
    seen = np.ones_like(lost)
    np.testing.assert_allclose(first.log_odds(values, seen), second.log_odds(values, seen), atol=1e-12)
    assert abs(first.log_odds(values, seen)[positive].mean()) > 0.5


def test_copies_are_shown_one_feature_first_and_all_last():
    shares = shown_shares(50)
    assert (shares[0], shares[-1]) == (pytest.approx(1 / 50), 1.0)
    np.testing.assert_allclose(np.diff(np.log(shares)), np.log(50) / (len(shares) - 1))


def test_labelled_patients_have_the_label_as_often_as_all_and_larger_draws_hold_smaller():
    task = task_of(POSITIVE)
    small, large = (drawn(task, size, 0) for size in (6, 12))
    assert (small.sum(), (small & POSITIVE).sum()) == (6, 2)
    assert (large.sum(), (large & POSITIVE).sum()) == (12, 4)
    assert not (small & ~large).any()
    assert (small != drawn(task, 6, 1)).any()
    rare = np.arange(40) == 3
    assert (drawn(task_of(rare), 5, 0) & rare).sum() == 1
    assert (drawn(task_of(~rare), 5, 0) & rare).sum() == 1


def test_classifiers_are_asked_about_the_others_alone(tables):
    predictions, splits = tables["predictions"], tables["splits"]
    assert splits[["size", "repeat", "labelled", "tested"]].to_numpy().tolist() == [
        [6, 0, 6, 18],
        [6, 1, 6, 18],
        [10, 0, 10, 14],
        [10, 1, 10, 14],
    ]
    own = predictions[~predictions["permuted"]]
    keys = ["reference", "method", "size", "repeat", "allocation", "t"]
    told = own.groupby(keys)["patient"].agg(set)
    task = LabelTask(LabelSetting("controls", "differential"), None, "fever", PATIENTS, None, POSITIVE)
    for key, names in told.items():
        assert names == {PATIENTS[i] for i in np.flatnonzero(~drawn(task, key[2], key[3]))}
    assert own.groupby(keys).size().eq(told.map(len)).all()
    assert set(own.loc[own["allocation"] == "greedy", "t"]) == {0, 20}
    assert set(own.loc[own["allocation"] == "random", "t"]) == {0, 20, 60, 100}
    assert set(predictions.loc[predictions["permuted"], "repeat"]) == {0}


def test_a_classifier_sees_the_features_that_the_zero_shot_score_sees(bundle, cohorts, tables):
    """Trained again by hand for one draw, and shown the first features of the same random order."""
    values, support = cohorts["cohort"].values, bundle.support("fever")
    task = LabelTask(LabelSetting("cohort", "shared"), bundle, "fever", PATIENTS, values, POSITIVE)
    labelled = drawn(task, 10, 1)
    seeds = generator_of("labels needed", "fever", 10, 1, "cohort", "support")
    classifier = train("logistic", values[labelled][:, support], POSITIVE[labelled], seeds)
    patient = int(np.flatnonzero(~labelled)[2])
    order = [j for j in random_order(bundle.features, patient=PATIENTS[patient], seed=1) if j in support]
    observed = np.isin(support, order[:3])
    expected = classifier.log_odds(values[[patient]][:, support], observed[None])[0]
    predictions = tables["predictions"].query(
        "reference == 'cohort' and method == 'logistic' and size == 10 and repeat == 1 and allocation == 'random'"
    )
    found = predictions[(predictions["patient"] == PATIENTS[patient]) & (predictions["t"] == 60)]
    assert found["log_odds"].tolist() == pytest.approx([expected], abs=1e-6)


def test_its_own_choice_may_lie_outside_the_support(tables):
    """The feature that gives the label away is in no support: who chooses takes it first, the order lacks it."""
    ended = tables["predictions"].query("size == 10 and not permuted and method == 'logistic'")
    for allocation, t, right in (("greedy", 20, True), ("random", 100, False)):
        part = ended[(ended["allocation"] == allocation) & (ended["t"] == t)]
        positive = POSITIVE[[PATIENTS.index(name) for name in part["patient"]]]
        apart = part.loc[positive, "log_odds"].min() > part.loc[~positive, "log_odds"].max()
        assert apart == right


def test_library_threads_change_no_byte(bundle, cohorts, zero_shot, tables):
    with threadpool_limits(3):
        again = needed(bundle, cohorts, zero_shot["scores"], **OPTIONS)
    for name, table in tables.items():
        pd.testing.assert_frame_equal(again[name], table, check_exact=True)


def test_what_is_left_out_is_listed_with_the_reason(bundle, cohorts, zero_shot):
    options = {**OPTIONS, "sizes": [6, 19, 21, 40], "of_each_class": 2, "tested": 4, "repeats": 1}
    tables = needed(bundle, cohorts, zero_shot["scores"], **options)
    listed = tables["left_out"].set_index("size")["reason"]
    assert "same" in tables["left_out"].query("entity == 'chill'")["reason"].iloc[0]
    assert listed[21] == "leaves 3 patients to evaluate, fewer than 4"
    assert listed[40] == "leaves 0 patients to evaluate, fewer than 4"
    few = needed(bundle, cohorts, zero_shot["scores"], **{**options, "sizes": [19], "of_each_class": 3})
    assert few["left_out"].set_index("size")["reason"][19] == "leaves 2 patients with the label, fewer than 3"
    assert len(few["predictions"]) == 0
    rows = summarise(few, bootstrap=Bootstrap(resamples=100, confidence=0.9))
    found = rows.set_index(["quantity", rows["level"].fillna(0)])["value"].to_dict()
    assert found == {("labels", 0): 0, ("labels_not_used", 0): 1, ("labels", 19): 0}
    assert set(tables["splits"]["size"]) == {6, 19}


def test_one_labelled_patient_and_scores_of_others_are_refused(bundle, cohorts, zero_shot):
    with pytest.raises(ConfigError, match="greater than or equal to 2"):
        chosen(["labels_needed"], StageSettings, {"labels_needed": {"sizes": [10, 1]}})
    fewer = zero_shot["scores"].query("patient != 'p03'")
    with pytest.raises(CohortError, match="scores of 23 patients for fever, reference controls; expected the 24"):
        needed(bundle, cohorts, fewer, **OPTIONS)


def test_a_cohort_without_labels_has_counts_alone(bundle, cohorts, zero_shot):
    bare = {name: replace(cohort, labels=cohort.labels[[]]) for name, cohort in cohorts.items()}
    tables = needed(bundle, bare, zero_shot["scores"].iloc[:0], **OPTIONS)
    assert summarise(tables, bootstrap=Bootstrap(resamples=100, confidence=0.9))["value"].tolist() == [0, 0]
    empty = needed(bundle, {}, zero_shot["scores"].iloc[:0], **OPTIONS)
    assert empty["splits"].empty


def test_the_headline_encodings_of_the_stage_labels_are_read(bundle, cohorts, zero_shot, tables):
    settings = LabelsNeeded(**{**OPTIONS, "sizes": [6]})
    alone = zero_shot | {"tasks": zero_shot["tasks"].query("reference == 'cohort'")}
    with codes_of({0.5: cohorts["cohort"], 1.0: cohorts["controls"]}) as path:
        both, one = (
            run(bundle, cohorts["controls"], path, labels, labels_needed=settings)["predictions"]
            for labels in (zero_shot, alone)
        )
    pd.testing.assert_frame_equal(both, tables["predictions"].query("size == 6").reset_index(drop=True))
    pd.testing.assert_frame_equal(one, both.query("reference == 'cohort'").reset_index(drop=True))


def test_pairs_are_ranked_within_a_repeat_by_hand():
    """Two positives, two negatives. First repeat: all told, three pairs of four in order. Second: one pair, wrong."""
    tested = np.array([[True, True, True, True], [True, False, True, False]])
    scores = np.array([[4.0, 2.0, 3.0, 1.0], [1.0, np.nan, 2.0, np.nan]])
    told = RepeatedTests(
        tested, np.array([True, True, False, False]), np.array([[1.0, 1, 1, 1], [0, 1, 0, 1], [1, 1, 0, 0]])
    )
    np.testing.assert_allclose(told.auroc(scores), [3 / 5, 1, np.nan])
    signs = np.array([[1.0, -1.0, 0.0, -1.0], [1.0, np.nan, 1.0, np.nan]])
    np.testing.assert_allclose(told.balanced_accuracy(signs), [((0.5 + 0.75) / 2 + 0.5) / 2, 0.5, np.nan])


def test_of_one_repeat_the_metrics_are_those_of_the_stage_labels():
    random = np.random.default_rng(1)
    scores, positive = random.integers(-2, 3, 12).astype(float), np.arange(12) % 2 == 0
    weights = random.integers(0, 3, (20, 12)).astype(float)
    told = RepeatedTests(np.ones((1, 12), dtype=bool), positive, weights)
    np.testing.assert_allclose(told.auroc(scores[None]), ranking_metrics(scores, positive, weights)[0])
    np.testing.assert_allclose(told.balanced_accuracy(scores[None]), accuracies(scores, positive, weights)[1])


def test_zero_shot_is_overtaken_where_it_stays_behind_from_there_on():
    ahead = np.array([[True, False, False, True], [False, True, False, True], [True, True, False, True]])
    assert _first_ahead(ahead, [10, 20, 50]).tolist() == [50, 20, np.inf, 10]


def test_both_sides_of_a_gap_are_measured_on_the_same_patients(tables, rows):
    keys = {"reference": "cohort", "allocation": "random", "t": 100}
    chosen = rows[np.logical_and.reduce([rows[name] == value for name, value in keys.items()])]
    chosen = chosen[chosen["variant"].isna() & (chosen["quantity"] != "balanced_accuracy")]
    values, of_fever = (
        part.set_index(["metric", "method", "level"])["value"]
        for part in (chosen[chosen["entity"].isna()], chosen[chosen["entity"] == "fever"])
    )
    for method in CLASSIFIERS:
        gap = values["auroc", method, 10] - values["auroc", "posterior", 10]
        assert values["gap", method, 10] == pytest.approx(gap)
        assert values["auroc", method, 10] == of_fever["auroc", method, 10]
    held = tables["zero_shot"].query("reference == 'cohort' and allocation == 'random' and t == 100 and seed == 0")
    told = tables["predictions"].query("size == 10 and repeat == 0")["patient"].unique()
    part = held[held["patient"].isin(told)]
    by_hand = ranking_metrics(part["calibrated"].to_numpy(), part["label"].to_numpy() == 1, np.ones((1, 14)))[0][0]
    second = held[held["patient"].isin(tables["predictions"].query("size == 10 and repeat == 1")["patient"])]
    other = ranking_metrics(second["calibrated"].to_numpy(), second["label"].to_numpy() == 1, np.ones((1, 14)))[0][0]
    assert values["auroc", "posterior", 10] == pytest.approx((by_hand + other) / 2)


def test_chance_is_the_mean_over_shuffles_and_its_interval_is_over_them(bundle, cohorts, zero_shot):
    tables = needed(bundle, cohorts, zero_shot["scores"], **{**OPTIONS, "sizes": [10], "permuted": 2})
    rows = summarise(tables, bootstrap=Bootstrap(resamples=400, confidence=0.98))
    labels = tables["zero_shot"].drop_duplicates("patient").set_index("patient")["label"]
    keys = {"reference": "controls", "method": "naive_bayes", "allocation": "random", "t": 60}
    part = tables["predictions"]
    for name, value in {**keys, "permuted": True}.items():
        part = part[part[name] == value]
    each = [
        ranking_metrics(run["log_odds"].to_numpy(), labels[run["patient"]].to_numpy() == 1, np.ones((1, 14)))[0][0]
        for _, run in part.groupby("repeat")
    ]
    for name, value in {**keys, "metric": "auroc", "variant": "permuted", "level": 10}.items():
        rows = rows[rows[name] == value]
    assert rows[["value", "low", "high"]].to_numpy().tolist() == [
        pytest.approx([np.mean(each), min(each), max(each)]),
    ]


def test_before_any_observation_nobody_is_told_apart(rows):
    start = rows[(rows["t"] == 0) & rows["metric"].isin(["auroc", "balanced_accuracy"])]
    assert len(start)
    for column in ("value", "low", "high"):
        assert (start[column] == 0.5).all()
    assert (rows.loc[(rows["t"] == 0) & (rows["metric"] == "gap"), "value"] == 0).all()


def test_who_finds_the_gene_that_gives_the_label_away_overtakes(rows):
    counts = rows[(rows["metric"] == "count") & (rows["t"] == 20) & (rows["allocation"] == "greedy")]
    found = counts[(counts["method"] == "logistic") & (counts["quantity"] == "auroc") & counts["variant"].isna()]
    assert (found["value"] <= 10).all()
    assert len(found) == 2
    assert (found["gain"] == "cmi").all()
