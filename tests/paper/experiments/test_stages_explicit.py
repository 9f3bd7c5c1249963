"""The stages on a bundle with probabilities: what they read under `explicit` is what planners say."""

from dataclasses import replace

import numpy as np
import pandas as pd
import pytest
import rated as random_bundles
from codes import label_tables, needed_tables
from rated import rated

from afa.cohort.cohort import Cohort
from afa.errors import BundleError
from afa.evaluate.inputs import closures_beside, explicit_references, shuffled_genes
from afa.evaluate.long_tables import StageTables
from afa.evaluate.summary import KEYS
from afa.paper.experiments import binary, stopping
from afa.paper.experiments.calibration import NOT_COMPILED, run, summarise
from afa.paper.experiments.labels import summarise as summarise_labels
from afa.paper.experiments.labels_needed import summarise as summarise_labels_needed
from afa.paper.experiments.settings import (
    Bootstrap,
    Calibration,
    ClosureSettings,
    Inference,
    Labels,
    LabelsNeeded,
    RandomOrder,
    Stopping,
)
from afa.paper.experiments.stopping import summarise as summarise_stopping
from afa.planner import BinaryPlanner, Stop, TopKPlanner

SEED = 4
ONE = {"random_order": RandomOrder(seeds=(0,)), "inference": Inference()}
ASKED = {"calibration": Calibration(rounds=(2,)), "inference": Inference()}


@pytest.fixture(scope="module")
def case():
    """Two entities on four features of three values, and eight patients with labels."""
    kinds = random_bundles.KINDS
    random_bundles.KINDS = {"three": kinds["three"]}
    try:
        rng = np.random.default_rng(SEED)
        found = rated(rng, n=2, m=4)
    finally:
        random_bundles.KINDS = kinds
    names = tuple(f"p{i}" for i in range(8))
    values = np.array([found.values(rng) for _ in names], dtype=np.int8)
    labels = pd.DataFrame({"v0": [0, 1] * 4, "v1": [1, 1, 0, 0] * 2}, index=list(names))
    return found, Cohort("small", found.bundle.features, names, values, labels)


def stopped(bundle, cohort, coupling, **levels):
    """The tables of the stage `stopping`; nothing of the allocation grid is followed again."""
    asked = Stopping(**({"rules": ("random",)} | levels))
    options = {"stopping": asked, "top_k": 1, "inference": Inference(), "closure": ClosureSettings(coupling=coupling)}
    return stopping.run(bundle, cohort, StageTables("no grid"), range(8), **options)


def log_odds(bundle, entity, values):
    planner = BinaryPlanner(bundle, entity=entity)
    planner.observe_all(dict(zip(bundle.features, map(int, values), strict=True)))
    return planner.log_odds()


def test_labels_show_it_beside_the_papers_choices_and_ours(case):
    found, cohort = case
    options = {"percents": [50], "seeds": [0], "strengths": [0.9], "permutations": 2, "whole_permutations": 3}
    tables = label_tables(found.bundle, cohort, {0.5: cohort}, Labels(**options))
    assert list(tables["tasks"]["coupling"].unique()) == ["differential", "shared", "explicit"]
    scores = tables["scores"].query("coupling == 'explicit' and reference == 'controls' and t == 100")
    for _, row in scores.iterrows():
        expected = log_odds(found.bundle, row["entity"], cohort.values[cohort.patients.index(row["patient"])])
        assert row["raw"] == row["calibrated"] == pytest.approx(expected, abs=1e-6)
    whole = tables["whole"].query("coupling == 'explicit' and reference == 'controls'").set_index(["entity", "patient"])
    for name in ("v0", "v1"):
        ends = scores[(scores["entity"] == name) & (scores["allocation"] == "greedy")].set_index("patient")["raw"]
        np.testing.assert_allclose(whole.loc[name, "score"].loc[ends.index], ends, atol=1e-6)
    assert (tables["tasks"].query("coupling == 'explicit'")["shift"] == 0).all()
    rows = summarise_labels(tables, bootstrap=Bootstrap(resamples=100, confidence=0.9))
    assert set(rows["coupling"].dropna()) == {"differential", "shared", "explicit"}
    assert explicit_references(found.bundle) == ["controls", "ranges", "cohort"]


def test_the_binary_task_and_its_calibration_decide_by_the_log_odds(case):
    found, cohort = case
    tables = binary.run(
        found.bundle,
        cohort,
        random_order=RandomOrder(seeds=(0,)),
        inference=Inference(),
        closure=ClosureSettings(coupling="explicit"),
    )
    targets = tables["targets"].set_index(["entity", "patient"])
    for (entity, name), row in targets.iterrows():
        values = cohort.values[cohort.patients.index(name)]
        assert row["score"] == pytest.approx(log_odds(found.bundle, entity, values), abs=1e-6)
    assert set(tables["steps"]["gain"]) == {"", "cmi"}
    made = run(found.bundle, cohort, tables, **ASKED, closure=ClosureSettings(coupling="explicit"))
    explicit = made["odds"].query("coupling == 'explicit'")
    assert set(explicit["inference"]) == {"mean_field"}
    assert made["left_out"].set_index("coupling")["reason"].to_dict() == {"explicit": NOT_COMPILED}
    last = explicit.query("t == 4").set_index(["entity", "patient"])["calibrated"]
    np.testing.assert_allclose(last.loc[targets.index], targets["score"], atol=1e-6)


def test_one_run_shows_the_closures_beside_each_other_in_calibration_and_stopping(case):
    found, cohort = case
    bundle, shown = found.bundle, ["differential", "shared", "explicit"]
    made = {}
    for own in shown:
        closure = ClosureSettings(coupling=own)
        tables = binary.run(bundle, cohort, **ONE, closure=closure)
        made[own] = run(bundle, cohort, tables, **ASKED, closure=closure)
        assert list(made[own]["odds"]["coupling"].unique()) == [own, *(name for name in shown if name != own)]
    keys = ["coupling", "patient", "entity"]
    odds = {own: each["odds"].set_index([*keys, "inference", "t"])[["raw", "calibrated"]] for own, each in made.items()}
    truth = {own: each["targets"].set_index(keys).sort_index() for own, each in made.items()}
    for own in shown[1:]:  # a closure says the same in its own run and beside another
        first, other = odds[shown[0]].sort_index(), odds[own].sort_index()
        pd.testing.assert_frame_equal(first, other, rtol=0, atol=1e-9)
        pd.testing.assert_frame_equal(truth[shown[0]], truth[own])
    ends = (
        odds["shared"].query("t == 4 and inference == 'mean_field'")["raw"].reset_index(["inference", "t"], drop=True)
    )
    sure = ends[ends.abs() > 1e-6]
    assert (np.sign(sure) == truth["shared"]["likelihood"].loc[sure.index]).all()
    rows = summarise(made["differential"], bootstrap=Bootstrap(resamples=100, confidence=0.9))
    assert set(rows["coupling"]) == set(shown)
    stops = stopped(bundle, cohort, shown[0])
    for coupling in shown[1:]:
        tables = [each["tasks"] for each in (stops, stopped(bundle, cohort, coupling))]
        part, own = (table[table["coupling"] == coupling].reset_index(drop=True) for table in tables)
        assert len(part)
        pd.testing.assert_frame_equal(part, own)
    rows = summarise_stopping(stops, bootstrap=Bootstrap(resamples=100, confidence=0.9))
    assert set(rows.query("method == 'two_elbo'")["coupling"]) == set(shown)
    assert rows.query("method == 'linearity'")["coupling"].isna().all()
    assert not rows.drop(columns=["value", "low", "high", "n"]).duplicated().any()


def test_probabilities_of_another_encoding_are_not_shown(case, bundle_tiny):
    found, cohort = case
    rates = replace(found.bundle.rates, encoding="ranges")
    asked = replace(found.bundle, rates=rates)
    by_controls = replace(cohort, provenance={"encoding": {"reference": "controls"}})
    assert closures_beside(asked, by_controls, "shared") == ["shared"]
    by_ranges = replace(cohort, provenance={"encoding": {"reference": "ranges"}})
    assert closures_beside(asked, by_ranges, "shared") == ["shared", "differential", "explicit"]
    assert closures_beside(bundle_tiny, cohort, "differential") == ["differential"]
    two_values = rated(np.random.default_rng(SEED), n=1, m=6).bundle
    assert closures_beside(two_values, cohort, "explicit") == ["explicit"]


def test_stopping_follows_the_tasks_by_how_often(case):
    found, cohort = case
    tables = stopped(found.bundle, cohort, "explicit")
    ends = (
        tables["tasks"]
        .query("coupling == 'explicit'")
        .drop_duplicates(["patient", "entity"])
        .set_index(["entity", "patient"])["likelihood"]
    )
    for (entity, name), sign in ends.items():
        values = cohort.values[cohort.patients.index(name)]
        assert sign == np.sign(log_odds(found.bundle, entity, values))


@pytest.mark.parametrize("allocation", ["greedy", "random"])
def test_the_top_k_stops_where_a_planner_that_weighs_by_how_often_does(case, allocation):
    found, cohort = case
    bundle = found.bundle
    levels = {"rules": ("greedy",), "probabilities": (0.6, 0.9), "gains": (0.05,), "budgets": (0.5,), "seed": 3}
    asked = {"k": 1, "coupling": "explicit", "costs": "equal", "seed": 3}
    table = stopped(bundle, cohort, "explicit", **levels)["top_k"].query("allocation == @allocation")
    assert table["stopped"].any()
    for row in table.itertuples():
        values = dict(zip(bundle.features, map(int, cohort.values[cohort.patients.index(row.patient)]), strict=True))
        level = row.level * len(bundle.features) if row.stopping == "budget" else row.level
        stop = Stop(**{row.stopping: True if row.stopping == "certain" else level})
        planner = TopKPlanner(bundle, allocation=allocation, patient=row.patient, stop=stop, **asked)
        while (feature := planner.next_feature()) is not None:
            planner.observe(feature, values[feature])
        assert len(planner.observed) == row.t
        last = TopKPlanner(bundle, **asked)
        last.observe_all(values)
        if not last.undecided():
            assert row.wrong == (planner.top_k() != last.top_k())


def test_a_bundle_of_directions_alone_is_refused(bundle_tiny):
    values = np.zeros((2, 5), dtype=np.int8)
    cohort = Cohort("c", bundle_tiny.features, ("a", "b"), values, pd.DataFrame(index=["a", "b"]))
    assert explicit_references(bundle_tiny) == []
    with pytest.raises(BundleError, match="directions without probabilities"):
        binary.run(
            bundle_tiny,
            cohort,
            random_order=RandomOrder(seeds=(0,)),
            inference=Inference(),
            closure=ClosureSettings(coupling="explicit"),
        )


def test_a_group_is_one_variable_in_the_binary_task_its_calibration_and_where_it_stops():
    rng = np.random.default_rng(SEED)
    found, names = rated(rng, n=2, m=6, group=3), tuple(f"p{i}" for i in range(8))
    bundle, values = found.bundle, np.array([found.values(rng) for _ in names], dtype=np.int8)
    cohort = Cohort("small", bundle.features, names, values, pd.DataFrame({"v0": [0, 1] * 4}, index=list(names)))
    tables = binary.run(
        bundle,
        cohort,
        random_order=RandomOrder(seeds=(0,)),
        inference=Inference(),
        closure=ClosureSettings(coupling="explicit"),
    )
    whole = {
        (entity, name): log_odds(bundle, entity, row)
        for entity in ("v0", "v1")
        for name, row in zip(names, values, strict=True)
    }
    for row in tables["targets"].itertuples():
        assert row.score == pytest.approx(whole[row.entity, row.patient], abs=1e-6)
    ends = tables["steps"].groupby(["entity", "patient", "allocation", "gain"], observed=True)["two_elbo"].last()
    for (entity, name, *_), odds in ends.items():
        assert odds == pytest.approx(whole[entity, name], abs=1e-6)
    odds = run(bundle, cohort, tables, **ASKED, closure=ClosureSettings(coupling="explicit"))["odds"].query("t == 6")
    for row in odds.itertuples():
        assert row.calibrated == pytest.approx(whole[row.entity, row.patient], abs=1e-6)
    stops = stopped(bundle, cohort, "explicit")
    for row in stops["tasks"].itertuples():
        assert row.likelihood == np.sign(whole[row.entity, row.patient])


@pytest.mark.parametrize(("encoding", "group"), [("controls", 0), ("ranges", 0), ("ranges", 3)])
def test_features_of_two_values_are_read_by_how_often_alone(encoding, group):
    rng = np.random.default_rng(SEED)
    found, names = rated(rng, n=2, m=6, group=group), tuple(f"p{i}" for i in range(8))
    bundle = found.bundle
    assert not bundle.ternary
    values = np.array([found.values(rng) for _ in names], dtype=np.int8)
    labels = pd.DataFrame({"v0": [0, 1] * 4, "v1": [1, 1, 0, 0] * 2}, index=list(names))
    cohort = Cohort("small", bundle.features, names, values, labels, {"encoding": {"reference": encoding}})
    options = {"percents": [50], "seeds": [0], "strengths": [0.9], "permutations": 2, "whole_permutations": 3}
    tables = label_tables(bundle, cohort, {0.5: cohort}, Labels(**options))
    assert set(tables["tasks"]["coupling"]) == {"explicit"}
    assert set(tables["scores"]["reference"]) == {encoding}
    for row in tables["scores"].query("t == 100").itertuples():
        expected = log_odds(bundle, row.entity, values[names.index(row.patient)])
        assert row.calibrated == pytest.approx(expected, abs=1e-6)
    assert tables["null"]["auroc"].between(0, 1).all()
    assert len(summarise_labels(tables, bootstrap=Bootstrap(resamples=100, confidence=0.9)))
    limits = {"sizes": [4], "repeats": 1, "permuted": 1, "labels": 2, "tested": 2, "of_each_class": 1}
    needed = needed_tables(bundle, {encoding: cohort}, tables["scores"], LabelsNeeded(**limits))
    assert not needed["zero_shot"].duplicated().any()
    assert len(summarise_labels_needed(needed, bootstrap=Bootstrap(resamples=100, confidence=0.9)))


def test_a_member_of_a_group_is_exchanged_for_another_member_alone():
    bundle = rated(np.random.default_rng(SEED), n=1, m=7, group=3).bundle
    members = set(bundle.exclusive[0][1])
    assert all((bundle.kinds[j] == bundle.kinds[k]) == ({j, k} <= members) for j in members for k in range(7))
    for permutation in range(5):
        place = shuffled_genes(7, permutation, tuple(bundle.kinds.tolist()))
        assert {int(place[j]) for j in members} == members


def test_genes_are_shuffled_among_those_that_take_the_same_values():
    kinds = (7, 6, 7, 6, 3, 7)
    for permutation in range(5):
        place = shuffled_genes(6, permutation, kinds)
        assert sorted(place) == list(range(6))
        assert [kinds[j] for j in place] == list(kinds)
    assert (shuffled_genes(6, 1, (7,) * 6) == shuffled_genes(6, 1)).all()


def test_labels_needed_hold_classifiers_against_it_too(case):
    found, cohort = case
    options = {"percents": [50], "seeds": [0], "strengths": [0.9], "permutations": 1, "whole_permutations": 1}
    scores = label_tables(found.bundle, cohort, {0.5: cohort}, Labels(**options))["scores"]
    limits = {"sizes": [4], "repeats": 2, "permuted": 1, "labels": 2, "tested": 2, "of_each_class": 1}
    tables = needed_tables(found.bundle, {"controls": cohort}, scores, LabelsNeeded(**limits))
    assert set(tables["zero_shot"]["coupling"]) == {"differential", "explicit"}
    rows = summarise_labels_needed(tables, bootstrap=Bootstrap(resamples=100, confidence=0.9))
    shown = rows[(rows["method"] == "posterior") & (rows["level"] == 4) & rows["variant"].isna() & (rows["t"] == 100)]
    for coupling in ("differential", "explicit"):
        assert len(shown[(shown["coupling"] == coupling) & (shown["metric"] == "auroc")]) > 0
    assert not rows.duplicated(KEYS).any()
