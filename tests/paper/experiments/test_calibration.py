"""Calibration on a cohort: log-odds held to enumeration, errors worked by hand."""

from dataclasses import replace

import numpy as np
import pandas as pd
import pytest
from cohorts import cohort_of
from oracle import posterior

from afa.evaluate.inputs import rounds_up_to
from afa.evaluate.summary import headline
from afa.inference.class_odds import two_elbo
from afa.model.closure import half_potentials
from afa.model.orders import random_order
from afa.paper.experiments import binary
from afa.paper.experiments.calibration import reliability, run, summarise
from afa.paper.experiments.settings import Bootstrap, Calibration, ClosureSettings, Inference, RandomOrder
from afa.planner import BinaryPlanner

READ = {"random_order": RandomOrder(seeds=(0, 1)), "inference": Inference(), "closure": ClosureSettings()}
SETTINGS = {"calibration": Calibration(rounds=(2,)), "inference": Inference(), "closure": ClosureSettings()}


@pytest.fixture(scope="module")
def cohort(bundle_tiny):
    values = np.random.default_rng(3).integers(-1, 2, (6, len(bundle_tiny.features)))
    return cohort_of(bundle_tiny, values, {"fistula": [1, 0, 1, 0, 1, None]})


@pytest.fixture(scope="module")
def tasks(bundle_tiny, cohort):
    return binary.run(bundle_tiny, cohort, **READ)


@pytest.fixture(scope="module")
def calibrated(bundle_tiny, cohort, tasks):
    return run(bundle_tiny, cohort, tasks, **SETTINGS)


def test_exact_log_odds_are_those_of_enumeration(bundle_tiny, cohort, calibrated):
    odds = calibrated["odds"].set_index(["inference", "patient", "entity", "seed", "t"])["raw"]
    for entity in bundle_tiny.entities:
        halves = half_potentials(bundle_tiny.mrf(entity))
        for i, patient in enumerate(cohort.patients):
            order = random_order(bundle_tiny.features, patient=patient, seed=1)
            for t in (0, 2, len(bundle_tiny.features)):
                seen = {int(j): int(cohort.values[i, j]) for j in order[:t]}
                log_z = [posterior(half, seen)[2] for half in halves]
                assert odds["exact", patient, entity, 1, t] == pytest.approx(log_z[0] - log_z[1])


def test_both_inferences_agree_at_full_observation_and_say_the_prior_before_any(bundle_tiny, calibrated):
    odds = calibrated["odds"].pivot(index=["patient", "entity", "seed", "t"], columns="inference")
    last = odds.xs(len(bundle_tiny.features), level="t")["raw"]
    np.testing.assert_allclose(last["exact"], last["mean_field"], atol=1e-9)
    start = odds.xs(0, level="t")["calibrated"]
    prior = start.index.get_level_values("entity").map(dict(zip(bundle_tiny.entities, bundle_tiny.priors, strict=True)))
    for inference in ("exact", "mean_field"):
        np.testing.assert_allclose(start[inference], prior, atol=1e-12)


def test_the_stage_and_the_planner_have_one_posterior_where_a_bundle_has_priors(bundle_tiny, cohort):
    bundle = replace(bundle_tiny, priors=np.array([0.7, -1.2, 0.4])[: len(bundle_tiny.entities)])
    tasks = binary.run(bundle, cohort, **READ | {"random_order": RandomOrder(seeds=(0,))})
    found = run(bundle, cohort, tasks, **SETTINGS)["odds"]
    odds = found.set_index(["inference", "patient", "entity", "t"])["calibrated"]
    order = random_order(bundle.features, patient=cohort.patients[1], seed=0)
    for entity, prior in zip(bundle.entities, bundle.priors, strict=True):
        planner = BinaryPlanner(bundle, entity=entity)
        assert odds["exact", cohort.patients[1], entity, 0] == pytest.approx(prior)
        for t in (0, 2, len(order)):
            for j in order[len(planner.observed) : t]:
                planner.observe(bundle.features[j], int(cohort.values[1, j]))
            expected = odds["mean_field", cohort.patients[1], entity, t]
            assert planner.log_odds() == pytest.approx(expected, abs=1e-9)
            assert two_elbo(bundle.mrf(entity), planner.observed).calibrated == pytest.approx(expected, abs=1e-3)


def test_a_task_too_dense_for_exact_inference_is_listed_with_its_cost(cohort, tasks, bundle_tiny, monkeypatch):
    monkeypatch.setattr("afa.paper.experiments.calibration.ENTRY_LIMIT", 1)
    tables = run(bundle_tiny, cohort, tasks, **SETTINGS)
    assert list(tables["left_out"]["entity"]) == list(bundle_tiny.entities)
    assert tables["left_out"]["reason"].str.contains("table").all()
    assert set(tables["odds"]["inference"]) == {"mean_field"}


@pytest.mark.parametrize(
    ("rounds", "n_features", "expected"), [((10, 50), 253, [0, 10, 50, 253]), ((10, 5), 5, [0, 5]), ((), 3, [0, 3])]
)
def test_the_first_and_the_last_round_are_always_there(rounds, n_features, expected):
    assert rounds_up_to(rounds, n_features) == expected


def cases(probabilities, labels):
    """Four cases of two patients at one t with known probabilities; only the clinical target is there."""
    log_odds = np.log(np.array(probabilities) / (1 - np.array(probabilities)))
    keys = pd.DataFrame({"patient": ["p", "p", "q", "q"], "entity": ["a", "b"] * 2})
    keys["coupling"] = "differential"
    odds = keys.assign(seed=0, t=1, inference="exact", raw=log_odds, calibrated=log_odds)
    return odds, keys.assign(likelihood=0, clinical=pd.array(labels, dtype="Int8"))


def test_the_errors_are_those_worked_by_hand():
    """Bin 2 holds 0.2 and 0.2 with one positive in two, bin 9 holds 0.9 and 0.9, both positive."""
    odds, targets = cases([0.2, 0.2, 0.9, 0.9], [1, 0, 1, 1])
    rows = summarise({"odds": odds, "targets": targets}, bootstrap=Bootstrap(resamples=100, confidence=0.9))
    found = headline(rows).set_index("metric")["value"]
    assert found["ece"] == pytest.approx((0.3 + 0.1) / 2)
    assert found["brier"] == pytest.approx((0.64 + 0.04 + 0.01 + 0.01) / 4)
    curve = reliability(odds, targets).query("kind == 'calibrated'").set_index("bin")
    assert curve["positive"].to_dict() == {2: 0.5, 9: 1.0}
    assert curve["cases"].to_dict() == {2: 2, 9: 2}


def test_decision_and_probability_on_different_sides_are_counted():
    odds, targets = cases([0.2, 0.2, 0.9, 0.9], [1, 0, 1, 1])
    odds = odds.assign(raw=[1.0, -1.0, 1.0, 0.0])
    rows = summarise({"odds": odds, "targets": targets}, bootstrap=Bootstrap(resamples=100, confidence=0.9))
    assert rows.set_index("quantity")["value"]["at_odds"] == 0.25
