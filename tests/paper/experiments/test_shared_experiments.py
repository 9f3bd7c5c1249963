"""The experiments of the binary task under shared couplings: their targets, scores and exact log-odds."""

from dataclasses import replace

import numpy as np
import pytest
from cohorts import cohort_of
from oracle import posterior

from afa.model.closure import shared_potentials
from afa.model.orders import random_order
from afa.paper.experiments import binary
from afa.paper.experiments.calibration import run
from afa.paper.experiments.settings import Calibration, ClosureSettings, Inference, RandomOrder

ONE = {"random_order": RandomOrder(seeds=(0,)), "inference": Inference()}
SHARED = {"coupling": "shared", "strength": 0.6}


@pytest.fixture(scope="module")
def bundle(bundle_tiny):
    return replace(bundle_tiny, priors=np.zeros(len(bundle_tiny.entities)))


@pytest.fixture(scope="module")
def cohort(bundle):
    return cohort_of(bundle, np.random.default_rng(6).integers(-1, 2, (7, len(bundle.features))))


@pytest.fixture(scope="module")
def tasks(bundle, cohort):
    return binary.run(bundle, cohort, **ONE, closure=ClosureSettings(**SHARED))


def test_the_target_is_the_sign_of_the_unary_contrast_and_every_score_ends_there(bundle, cohort, tasks):
    targets = tasks["targets"].set_index(["patient", "entity"])
    for v, entity in enumerate(bundle.entities):
        contrast = cohort.values @ bundle.unary[v]
        for i, patient in enumerate(cohort.patients):
            row = targets.loc[(patient, entity)]
            assert row["score"] == pytest.approx(contrast[i])
            assert row["likelihood"] == np.sign(contrast[i])
    last = tasks["steps"].loc[
        tasks["steps"].groupby(["patient", "entity", "allocation", "gain", "guide"])["step"].idxmax()
    ]
    ended = last.merge(tasks["targets"], on=["patient", "entity"])
    assert (np.sign(ended["wald"]) == ended["likelihood"]).all()
    np.testing.assert_allclose(ended["two_elbo"], ended["score"], atol=1e-9)


def test_nothing_is_said_before_any_observation(tasks):
    np.testing.assert_allclose(tasks["tasks"]["shift"], 0.0, atol=1e-12)
    assert (tasks["steps"].loc[tasks["steps"]["step"] == 0, "two_elbo"] == 0).all()


def test_exact_log_odds_are_those_of_enumeration(bundle, cohort, tasks):
    tables = run(
        bundle,
        cohort,
        tasks,
        calibration=Calibration(rounds=(2,)),
        inference=Inference(),
        closure=ClosureSettings(**SHARED),
    )
    odds = tables["odds"].set_index(["inference", "patient", "entity", "seed", "t"])["raw"]
    for entity in bundle.entities:
        classes = shared_potentials(bundle.mrf(entity), 0.6)
        for i, patient in enumerate(cohort.patients):
            order = random_order(bundle.features, patient=patient, seed=0)
            for t in (0, 2, len(bundle.features)):
                seen = {int(j): int(cohort.values[i, j]) for j in order[:t]}
                log_z = [posterior(model, seen)[2] for model in classes]
                assert odds["exact", patient, entity, 0, t] == pytest.approx(log_z[0] - log_z[1], abs=1e-9)
