"""The rule `frontier` beside the allocation grid: its table, shards, backgrounds and rows of the summary."""

import numpy as np
import pandas as pd
import pytest
from bundles import bundle_of
from rated import rated

from afa.cohort.cohort import Cohort
from afa.paper.experiments.allocation import run, summarise
from afa.paper.experiments.settings import Allocation, Bootstrap, Inference
from afa.planner import TopKPlanner
from afa.scores.belief import Background

SETTINGS = {"top_k": 2, "inference": Inference(), "threads": 1}


@pytest.fixture
def made():
    rng = np.random.default_rng(0)
    bundle = bundle_of(rng.normal(size=(5, 6)), rng.normal(size=(5, 6, 6)) * (rng.random((5, 6, 6)) < 0.3))
    values = rng.integers(-1, 2, (9, 6)).astype(np.int8)
    names = tuple(f"p{i}" for i in range(9))
    labels = pd.DataFrame(rng.integers(0, 2, (9, 5)), index=list(names), columns=list(bundle.entities))
    return bundle, Cohort("made", bundle.features, names, values, labels.astype("Int8"))


def tables_of(bundle, cohort, patients=range(9), rules=("random", "largest_unary")):
    return run(bundle, cohort, patients, allocation=Allocation(rules=rules, seeds=(0,)), **SETTINGS)


def test_the_rows_are_the_choices_and_the_answers_of_a_planner_with_the_other_half(made):
    bundle, cohort = made
    tables = tables_of(*made)
    table, truth = tables["frontier"], tables["targets"]
    assert set(table["background"]) == {"patients"}
    for p in (0, 3):
        background = Background.of_patients(bundle, cohort.values[1 - p % 2 :: 2])
        planner = TopKPlanner(bundle, k=2, background=background)
        right = truth[(truth["patient"] == f"p{p}") & (truth["top"] == 2)]["entity"]
        for row in table[table["patient"] == f"p{p}"].itertuples():
            if row.t > 0:
                if not row.fallback:
                    assert row.feature == planner.next_feature()
                planner.observe(row.feature, int(cohort.values[p, bundle.features.index(row.feature)]))
            assert row.p_at_k == pytest.approx(len(set(planner.top_k()) & set(right)) / 2)
    assert (table.query("t == 6")["p_at_k"] == 1).all()


def test_parts_of_the_patients_join_to_the_whole_and_a_gain_has_no_such_rows(made):
    whole = tables_of(*made)["frontier"]
    parts = [tables_of(*made, patients=patients)["frontier"] for patients in ([0, 1, 2], [], [3], range(4, 9))]
    pd.testing.assert_frame_equal(pd.concat([part for part in parts if len(part)], ignore_index=True), whole)
    assert tables_of(*made, rules=("greedy",))["frontier"].empty


def test_a_bundle_with_probabilities_has_rows_for_the_elicited_background():
    bundles = (rated(np.random.default_rng(seed), m=3).bundle for seed in range(100))
    bundle, rng = next(bundle for bundle in bundles if bundle.ternary), np.random.default_rng(0)
    names = ("p0", "p1")
    values = rng.integers(-1, 2, (2, len(bundle.features))).astype(np.int8)
    cohort = Cohort("made", bundle.features, names, values, pd.DataFrame(index=list(names)))
    settings = {**SETTINGS, "top_k": 1}
    table = run(bundle, cohort, range(2), allocation=Allocation(rules=("random",)), **settings)["frontier"]
    assert table["background"].unique().tolist() == ["patients", "elicited"]
    assert table.groupby("patient", sort=False)["t"].count().tolist() == [2 * (len(bundle.features) + 1)] * 2


def test_the_summary_has_both_qualities_and_the_lead_over_the_random_order(made):
    _, cohort = made
    tables = tables_of(*made)
    flips = {"patient": cohort.patients, "flips": 0, "runs": 1, "magnitude": 1.0, "nonzero": 1}
    chaos = {"flips": pd.DataFrame(flips).assign(seed_set="selecting", definition="wald")}
    rows = summarise(tables, chaos, bootstrap=Bootstrap(resamples=100))
    rows = rows[rows["table"] == "allocation_frontier"]
    assert set(rows["variant"]) == {"patients"}
    own = tables["frontier"].groupby("t")["p_at_k"].mean()
    likelihood = rows[rows["target"] == "likelihood"]
    np.testing.assert_allclose(likelihood[likelihood["metric"] == "p_at_k"]["value"], own, atol=1e-6)
    random = tables["rounds"].query("allocation == 'random' and method == 'linearity'").groupby("t")["p_at_k"].mean()
    lead = likelihood[(likelihood["metric"] == "gap") & (likelihood["quantity"] == "p_at_k")]
    assert set(lead["reference"]) == {"random"}
    np.testing.assert_allclose(lead["value"], (own - random)[lead["t"].astype(int)], atol=1e-6)
    assert set(rows[rows["target"] == "clinical"]["metric"]) == {"p_at_k", "gap"}
