"""The stages on a bundle that says how often: what they read under `explicit` is what planners say."""

import numpy as np
import pandas as pd
import pytest
import rated as random_bundles
from rated import rated

from afa.bundle.explicit import bundle_models
from afa.cohort.cohort import Cohort
from afa.errors import BundleError
from afa.inference.meanfield import Solver
from afa.planner import BinaryPlanner, Stop, TopKPlanner
from afa.stages.binary import binary_tasks
from afa.stages.calibration import NOT_COMPILED, run
from afa.stages.labels.null import shuffled_genes
from afa.stages.labels.numbers import summarise_labels
from afa.stages.labels.tables import explicit_references, label_tables
from afa.stages.labels_needed.numbers import summarise_labels_needed
from afa.stages.labels_needed.tables import needed_tables
from afa.stages.settings import Calibration, Closure
from afa.stages.stopping.levels import Levels
from afa.stages.stopping.tables import stopping_tables

SEED = 4


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


def log_odds(bundle, entity, values):
    planner = BinaryPlanner(bundle, entity=entity)
    planner.observe_all(dict(zip(bundle.features, map(int, values), strict=True)))
    return planner.log_odds()


def test_labels_show_it_beside_the_papers_choices_and_ours(case):
    found, cohort = case
    options = {"percents": [50], "seeds": [0], "strengths": [0.9], "permutations": 2, "whole_permutations": 3}
    tables = label_tables(found.bundle, cohort, {0.5: cohort}, **options)
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
    rows = summarise_labels(tables, resamples=20, confidence=0.9)
    assert set(rows["coupling"].dropna()) == {"differential", "shared", "explicit"}
    assert explicit_references(found.bundle) == ["controls", "ranges", "cohort"]


def test_the_binary_task_and_its_calibration_decide_by_the_log_odds(case):
    found, cohort = case
    tables = binary_tasks(found.bundle, cohort, range(2), seeds=[0], solver=Solver(), coupling="explicit")
    targets = tables["targets"].set_index(["entity", "patient"])
    for (entity, name), row in targets.iterrows():
        values = cohort.values[cohort.patients.index(name)]
        assert row["score"] == pytest.approx(log_odds(found.bundle, entity, values), abs=1e-6)
        one, zero = bundle_models(found.bundle, entity)
        told = sum(one.terms[j, x + 1] - zero.terms[j, x + 1] for j, x in enumerate(values))
        assert row["unary_part"] == pytest.approx(told, abs=1e-9)
    assert set(tables["steps"]["gain"]) == {"", "cmi"}
    made = run(found.bundle, cohort, tables, calibration=Calibration(rounds=(2,)), closure=Closure(coupling="explicit"))
    assert set(made["left_out"]["reason"]) == {NOT_COMPILED}
    last = made["odds"].query("t == 4").set_index(["entity", "patient"])["calibrated"]
    np.testing.assert_allclose(last.loc[targets.index], targets["score"], atol=1e-6)


def test_stopping_follows_the_tasks_by_how_often(case):
    found, cohort = case
    tables = stopping_tables(
        found.bundle, cohort, range(8), {}, Levels(), k=1, seed=0, solver=Solver(), coupling="explicit"
    )
    ends = tables["tasks"].drop_duplicates(["patient", "entity"]).set_index(["entity", "patient"])["likelihood"]
    for (entity, name), sign in ends.items():
        values = cohort.values[cohort.patients.index(name)]
        assert sign == np.sign(log_odds(found.bundle, entity, values))


@pytest.mark.parametrize("allocation", ["greedy", "random"])
def test_the_top_k_stops_where_a_planner_that_weighs_by_how_often_does(case, allocation):
    found, cohort = case
    bundle, levels = found.bundle, Levels((0.6, 0.9), (0.05,), (0.5,))
    asked = {"k": 1, "coupling": "explicit", "costs": "equal", "seed": 3}
    table = stopping_tables(
        bundle, cohort, range(8), {"greedy": None}, levels, k=1, seed=3, solver=Solver(), coupling="explicit"
    )["top_k"].query("allocation == @allocation")
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
    with pytest.raises(BundleError, match="directions alone"):
        binary_tasks(bundle_tiny, cohort, [0], seeds=[0], solver=Solver(), coupling="explicit")


@pytest.mark.parametrize("encoding", ["controls", "ranges"])
def test_features_of_two_values_are_read_by_how_often_alone(encoding):
    rng = np.random.default_rng(SEED)
    found, names = rated(rng, n=2, m=6), tuple(f"p{i}" for i in range(8))
    bundle = found.bundle
    assert not bundle.ternary
    values = np.array([found.values(rng) for _ in names], dtype=np.int8)
    labels = pd.DataFrame({"v0": [0, 1] * 4, "v1": [1, 1, 0, 0] * 2}, index=list(names))
    cohort = Cohort("small", bundle.features, names, values, labels, {"encoding": {"reference": encoding}})
    options = {"percents": [50], "seeds": [0], "strengths": [0.9], "permutations": 2, "whole_permutations": 3}
    tables = label_tables(bundle, cohort, {0.5: cohort}, **options)
    assert set(tables["tasks"]["coupling"]) == {"explicit"}
    assert set(tables["scores"]["reference"]) == {encoding}
    for row in tables["scores"].query("t == 100").itertuples():
        expected = log_odds(bundle, row.entity, values[names.index(row.patient)])
        assert row.calibrated == pytest.approx(expected, abs=1e-6)
    assert tables["null"]["auroc"].between(0, 1).all()
    assert len(summarise_labels(tables, resamples=20, confidence=0.9))
    limits = {"sizes": [4], "repeats": 1, "permuted": 1, "most_labels": 2, "tested": 2, "of_each_class": 1}
    needed = needed_tables(bundle, {encoding: cohort}, tables["scores"], name="small", **limits)
    assert not needed["zero_shot"].duplicated().any()
    assert len(summarise_labels_needed(needed, resamples=20, confidence=0.9))


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
    scores = label_tables(found.bundle, cohort, {0.5: cohort}, **options)["scores"]
    limits = {"sizes": [4], "repeats": 2, "permuted": 1, "most_labels": 2, "tested": 2, "of_each_class": 1}
    tables = needed_tables(found.bundle, {"controls": cohort}, scores, name="small", **limits)
    assert set(tables["zero_shot"]["coupling"]) == {"differential", "explicit"}
    rows = summarise_labels_needed(tables, resamples=20, confidence=0.9)
    shown = rows[(rows["method"] == "posterior") & (rows["stratum"] == "n=4") & (rows["t"] == 100)]
    for coupling in ("differential", "explicit"):
        assert len(shown[(shown["coupling"] == coupling) & (shown["metric"] == "auroc")]) > 0
    assert not rows.duplicated(["metric", "method", "coupling", "allocation", "t", "stratum", "entity"]).any()
