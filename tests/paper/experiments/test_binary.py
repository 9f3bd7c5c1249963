"""The binary task on a cohort small enough to follow by hand, and its summary."""

from dataclasses import replace

import numpy as np
import pandas as pd
import pytest
from cohorts import cohort_of

from afa.cohort.cohort import Cohort
from afa.paper.experiments import binary
from afa.paper.experiments.binary import TASK_ORDERS, static_order, summarise
from afa.paper.experiments.settings import Bootstrap, ClosureSettings, Inference, RandomOrder

READ = {"random_order": RandomOrder(seeds=(0, 1)), "inference": Inference(), "closure": ClosureSettings()}
KEYS = ["allocation", "gain", "guide", "target", "metric", "method"]


@pytest.fixture(scope="module")
def bundle_tiny(bundle_tiny):
    """The hand-checkable bundle with equal priors, so that nothing is decided before an observation."""
    return replace(bundle_tiny, priors=np.zeros(3))


@pytest.fixture(scope="module")
def cohort(bundle_tiny):
    values = np.random.default_rng(8).integers(-1, 2, (9, len(bundle_tiny.features)))
    values[0] = 0
    return cohort_of(bundle_tiny, values, {"bleeding": [0, 1, 1, 0, None, 1, 0, 1, 1]})


@pytest.fixture(scope="module")
def tables(bundle_tiny, cohort):
    return binary.run(bundle_tiny, cohort, **READ)


@pytest.fixture(scope="module")
def rows(tables):
    return summarise(tables, bootstrap=Bootstrap(resamples=200, confidence=0.9))


def test_threads_change_no_byte(bundle_tiny, cohort, tables):
    again = binary.run(bundle_tiny, cohort, **READ, threads=2)
    for name, table in tables.items():
        pd.testing.assert_frame_equal(again[name], table, check_exact=True)


def test_every_task_is_there_under_every_order(bundle_tiny, tables):
    steps = tables["steps"]
    runs = steps[steps["step"] == 0].groupby(["entity", "allocation", "gain", "guide"]).size()
    assert len(runs) == 3 * len(TASK_ORDERS)
    assert set(runs.xs("random", level="allocation")) == {18}
    assert set(runs.drop("random", level="allocation")) == {9}
    support = {name: len(bundle_tiny.support(name)) for name in bundle_tiny.entities}
    assert steps.groupby("entity")["step"].max().to_dict() == support


def test_the_targets_are_the_sign_of_the_energy_and_the_labels(bundle_tiny, cohort, tables):
    targets = tables["targets"].set_index(["patient", "entity"])
    for i, patient in enumerate(cohort.patients):
        energy = bundle_tiny.mrf("bleeding").energy(cohort.values[i])
        assert targets.loc[(patient, "bleeding"), "likelihood"] == np.sign(energy)
    assert targets.xs("bleeding", level="entity")["clinical"].isna().tolist() == [i == 4 for i in range(9)]
    assert targets.drop("bleeding", level="entity")["clinical"].isna().all()


def test_at_full_observation_every_score_has_the_sign_of_s(tables):
    last = tables["steps"].groupby(["patient", "entity", "allocation", "gain", "guide", "seed"], dropna=False).tail(1)
    merged = last.merge(tables["targets"], on=["patient", "entity"])
    for method in ("wald", "two_elbo", "stack_a"):
        assert (np.sign(merged[method]) == merged["likelihood"]).all()
    np.testing.assert_allclose(merged["two_elbo"], merged["score"], atol=1e-9)


def test_the_static_order_is_by_unary_then_support_then_name(bundle_tiny):
    order = static_order(bundle_tiny, "bleeding")
    unary = np.abs(bundle_tiny.unary[bundle_tiny.index("bleeding")])[order]
    assert (np.diff(unary) <= 0).all()
    assert sorted(order) == list(range(len(bundle_tiny.features)))


def accuracy(rows, **where):
    chosen = rows[(rows["table"] == "binary")]
    for key, value in where.items():
        chosen = chosen[chosen[key].isna()] if value is None else chosen[chosen[key] == value]
    return chosen.set_index("t")["value"]


def test_accuracy_under_random_order_is_the_mean_over_patients_tasks_and_seeds(bundle_tiny, tables, rows):
    """Recomputed step by step at one t, without cubes."""
    steps = tables["steps"][tables["steps"]["allocation"] == "random"].merge(
        tables["targets"], on=["patient", "entity"]
    )
    now = steps[steps["t"] <= 2].sort_values("t").groupby(["patient", "entity", "seed"], observed=True).tail(1)
    now = now[now["likelihood"] != 0]
    expected = ((1 + np.sign(now["wald"]) * now["likelihood"]) / 2).mean()
    shown = accuracy(
        rows,
        metric="accuracy",
        method="wald",
        allocation="random",
        target="likelihood",
        stratum=None,
        variant=None,
        entity=None,
        gain=None,
    )
    assert shown[2] == pytest.approx(expected)


def test_the_gap_of_an_informed_order_is_its_accuracy_less_that_of_the_random_one(rows):
    keys = {"method": "two_elbo", "target": "likelihood", "stratum": None, "variant": None, "entity": None}
    gap = accuracy(rows, metric="gap", gain="cmi", **keys)
    informed = accuracy(rows, metric="accuracy", gain="cmi", **keys)
    random = accuracy(rows, metric="accuracy", allocation="random", **keys)
    np.testing.assert_allclose(gap, informed - random)


def test_the_gap_of_two_scores_is_that_of_their_accuracies_on_the_same_orders(rows):
    keys = {"allocation": "random", "target": "likelihood", "stratum": None, "variant": None, "entity": None}
    for ahead, behind in (("wald", "two_elbo"), ("wald", "stack_a"), ("two_elbo", "stack_a")):
        gap = accuracy(rows, metric="gap", method=ahead, reference=behind, **keys)
        first, second = (accuracy(rows, metric="accuracy", method=name, **keys) for name in (ahead, behind))
        np.testing.assert_allclose(gap, first - second)
    assert gap.size == first.size
    behind_itself = rows[(rows["metric"] == "gap") & (rows["method"] == rows["reference"])]
    assert behind_itself.empty


def test_two_scores_are_resampled_on_the_same_patients():
    """Of two tasks each, p has 0 right by wald and 1 by two_elbo, q 1 and 2: the gap is -1/2 for either alone."""
    calls = {"p": {"wald": (-1, -1), "two_elbo": (1, -1)}, "q": {"wald": (1, -1), "two_elbo": (1, 1)}}
    lines = [
        {"patient": patient, "entity": entity, "allocation": "random", "gain": "", "guide": "", "seed": 0, "step": 0}
        | {"t": 0, **{method: float(calls[patient][method][i]) for method in ("wald", "two_elbo")}, "stack_a": 1.0}
        for patient in calls
        for i, entity in enumerate(("u", "v"))
    ]
    random = pd.DataFrame(lines).assign(l1_tight=0, l1_paper=0, hanson_wright=0)
    steps = pd.concat([random.assign(allocation=name) for name in ("random", "largest_unary", "static_unary")])
    targets = random[["patient", "entity"]].assign(likelihood=1, clinical=None)
    tasks = pd.DataFrame({"entity": ["u", "v"], "features": 1})
    found = summarise(
        {"steps": steps, "targets": targets, "tasks": tasks}, bootstrap=Bootstrap(resamples=200, confidence=0.9)
    )
    row = found.query("metric == 'gap' and method == 'wald' and reference == 'two_elbo' and t == 0").iloc[0]
    assert (row["value"], row["low"], row["high"], row["n"]) == (-0.5, -0.5, -0.5, 4)


def test_before_any_observation_wald_is_a_coin_and_at_the_end_all_is_right(rows, bundle_tiny):
    shown = accuracy(
        rows,
        metric="accuracy",
        method="wald",
        allocation="random",
        target="likelihood",
        stratum=None,
        variant=None,
        entity=None,
        gain=None,
    )
    assert shown[0] == 0.5
    assert shown[len(bundle_tiny.features)] == 1.0


def test_an_all_zero_patient_and_missing_labels_are_counted(rows, tables):
    counts = rows[rows["metric"] == "count"].set_index("quantity")["value"]
    assert counts["patients_tied_everywhere"] >= 1
    assert counts["tied_at_full_observation"] == (tables["targets"]["likelihood"] == 0).sum()
    assert counts["without_label"] == 27 - 8


def test_a_rigorous_bracket_is_never_wrong_and_the_tight_one_never_later(rows, tables):
    rates = rows[rows["table"] == "bracket_rate"]
    assert set(rates["stratum"]) == {"binary"}
    for _, of_clock in rates.groupby("variant", dropna=False):
        wide = of_clock.fillna({"quantity": "called"}).pivot(
            index=["allocation", "t"], columns=["quantity", "reference"], values="value"
        )
        for bracket in ("l1_tight", "l1_paper"):
            assert (wide["wrong", bracket].dropna() == 0).all()
        both = wide["called"].dropna()
        assert (both["l1_tight"] >= both["l1_paper"]).all()
    ties = tables["targets"]["likelihood"] == 0
    last = rates[rates["variant"].isna() & rates["quantity"].isna() & (rates["t"] == rates["t"].max())]
    assert ties.any()
    assert (last[last["reference"] == "l1_tight"]["value"] == 1).all(), "a tied case is no case that could be called"


def test_a_cohort_without_labels_has_no_clinical_rows_but_says_how_many_are_missing(bundle_tiny, cohort):
    bare = Cohort("bare", cohort.features, cohort.patients, cohort.values, pd.DataFrame(index=list(cohort.patients)))
    tables = binary.run(bundle_tiny, bare, **READ | {"random_order": RandomOrder(seeds=(0,))})
    clinical = summarise(tables, bootstrap=Bootstrap(resamples=200, confidence=0.9)).query("target == 'clinical'")
    assert clinical[["metric", "quantity", "value"]].to_numpy().tolist() == [["count", "without_label", 27]]
