"""Planners of bundles that say how often: naive Bayes, exact inference, certificates, groups, none (F1 to F16)."""

from itertools import product

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.special import expit, logit, logsumexp, softmax
from support.rated import rated

from afa.bracket import duel_interval
from afa.bundle.explicit import bundle_models, hypotheses_of
from afa.closure import kappa_of
from afa.inference.meanfield import Solver
from afa.mrf import Evidence
from afa.planner import BinaryPlanner, TopKPlanner
from afa.session import load_session, save_session

SEEDS = st.integers(0, 2**32 - 1)
TIGHT = Solver(tolerance=1e-12, max_iterations=2000)
HOLDS = ("several", "one", "one or none")


def naive_bayes(case, values, seen, against):
    """(N,) prior log-odds and log-ratios of what was seen."""
    at = values[list(seen)] + 1
    ratios = np.log(case.one[:, list(seen), at] / against[..., list(seen), at])
    return case.bundle.priors + ratios.sum(axis=1)


@settings(max_examples=25)
@given(SEEDS)
def test_without_couplings_every_planner_is_naive_bayes_at_every_partial_observation(tmp_path_factory, seed):
    rng = np.random.default_rng(seed)
    case = rated(rng, coupled=False, n=3, m=4)
    values, order = case.values(rng), rng.permutation(4)
    session = tmp_path_factory.mktemp("s") / "session.yaml"
    planners = [TopKPlanner(case.bundle, k=1, holds=holds) for holds in HOLDS]
    asked = BinaryPlanner(case.bundle, entity="v1")
    for t in range(5):
        seen = order[:t]
        several = naive_bayes(case, values, seen, case.zero)
        rivals = naive_bayes(case, values, seen, case.background)
        assert asked.log_odds() == pytest.approx(several[1], abs=1e-9)
        np.testing.assert_allclose(planners[0].posterior(), expit(several), atol=1e-9)
        np.testing.assert_allclose(planners[1].posterior(), softmax(rivals), atol=1e-9)
        np.testing.assert_allclose(planners[2].posterior(), softmax(np.append(rivals, 0))[:3], atol=1e-9)
        assert planners[0].ranking()[0] == case.bundle.entities[int(several.argmax())]
        for planner in (*planners, asked):
            save_session(planner, session)
            resumed = load_session(session, case.bundle)
            assert resumed.settings == planner.settings
            again = resumed.log_odds() if isinstance(resumed, BinaryPlanner) else resumed.posterior()
            before = planner.log_odds() if isinstance(planner, BinaryPlanner) else planner.posterior()
            np.testing.assert_allclose(again, before, atol=1e-12)
            if t < 4:
                planner.observe(case.bundle.features[order[t]], int(values[order[t]]))


@settings(max_examples=25)
@given(SEEDS)
def test_before_any_observation_the_posterior_is_the_prior(seed):
    case = rated(np.random.default_rng(seed))
    for inference in ("mean_field", "exact"):
        for v, entity in enumerate(case.bundle.entities):
            found = BinaryPlanner(case.bundle, entity=entity, inference=inference).log_odds()
            assert found == pytest.approx(case.bundle.priors[v], abs=1e-12 if inference == "mean_field" else 1e-9)
        one = TopKPlanner(case.bundle, k=1, holds="one", inference=inference).posterior()
        np.testing.assert_allclose(one, softmax(case.bundle.priors), atol=1e-9)


def log_partition(model, given):
    """By the sum over every completion, for what `model` has of the values `given`."""
    domain = [
        [given[name]] if name in given else (np.flatnonzero(row) - 1).tolist()
        for name, row in zip(model.features, model.possible, strict=True)
    ]
    return logsumexp([model.energy(x) for x in product(*domain)])


@settings(max_examples=15)
@given(SEEDS)
def test_exact_planners_agree_with_the_sum_over_every_completion(seed):
    rng = np.random.default_rng(seed)
    case = rated(rng, n=3, m=4)
    values = case.values(rng)
    seen = case.named(values, rng.permutation(4)[: rng.integers(0, 5)])
    several = []
    for v, entity in enumerate(case.bundle.entities):
        models = bundle_models(case.bundle, entity)
        kappa = [log_partition(model, {}) for model in models]
        given_ = [log_partition(model, seen) for model in models]
        several.append(given_[0] - given_[1] - (kappa[0] - kappa[1]) + case.bundle.priors[v])
    planner = TopKPlanner(case.bundle, k=1, inference="exact")
    rivals = TopKPlanner(case.bundle, k=1, inference="exact", holds="one")
    if seen:
        planner.observe_all(seen)
        rivals.observe_all(seen)
    np.testing.assert_allclose(logit(planner.posterior()), several, atol=1e-8)
    evidence = []
    for model, _ in hypotheses_of(case.bundle):
        told = sum(np.log(case.background[int(name[1:]), x + 1]) for name, x in seen.items() if name in model.features)
        evidence.append(log_partition(model, seen) - log_partition(model, {}) + model.prior - told)
    np.testing.assert_allclose(rivals.posterior(), softmax(evidence), atol=1e-8)


@settings(max_examples=20)
@given(SEEDS)
def test_at_full_observation_exact_and_mean_field_differ_by_kappa_and_by_nothing_else(seed):
    rng = np.random.default_rng(seed)
    case = rated(rng)
    values = case.named(case.values(rng), range(5))
    for v, entity in enumerate(case.bundle.entities):
        found = []
        for inference in ("mean_field", "exact"):
            planner = BinaryPlanner(case.bundle, entity=entity, inference=inference)
            planner.observe_all(values)
            found.append(planner.log_odds())
        kappa = kappa_of(case.bundle, entity)
        energy = case.bundle.energies([list(values.values())], "explicit")[0, v]
        assert found[0] == pytest.approx(energy, abs=1e-9)
        assert found[0] - found[1] == pytest.approx(kappa, abs=1e-9)


@settings(max_examples=20)
@given(SEEDS)
def test_the_bracket_of_a_planner_is_the_readable_one(seed):
    rng = np.random.default_rng(seed)
    case = rated(rng)
    seen = case.named(case.values(rng), rng.permutation(5)[:2])
    planner = BinaryPlanner(case.bundle, entity="v0")
    planner.observe_all(seen)
    models = bundle_models(case.bundle, "v0")
    expected = duel_interval(*(Evidence.of(model, seen) for model in models))
    np.testing.assert_allclose(planner._state.intervals()[0], expected, atol=1e-9)


def check_certificates(seed):
    """Ask until certain; then no completion, and no part of one, exact or by mean-field, says otherwise."""
    rng = np.random.default_rng(seed)
    holds = HOLDS[seed % 3]
    case = rated(rng, n=int(rng.integers(2, 4)), m=int(rng.integers(2, 5)), holds=holds, coupled=bool(seed % 5))
    top, values = TopKPlanner(case.bundle, k=1), case.values(rng)
    one = BinaryPlanner(case.bundle, entity="v0")
    certain = 0
    for planner in (top, one):
        while not planner.certain() and (name := planner.next_feature()):
            planner.observe(name, int(values[int(name[1:])]))
        if not planner.certain():
            continue
        certain += 1
        for _ in range(3):
            rest = [j for j, name in enumerate(case.bundle.features) if name not in planner.observed]
            more = case.named(case.values(rng), rng.permutation(rest)[: rng.integers(0, len(rest) + 1)] if rest else [])
            for inference in ("exact", "mean_field"):
                final = type(planner)(case.bundle, inference=inference, solver=TIGHT, **_question(planner))
                if seen := planner.observed | more:
                    final.observe_all(seen)
                if planner is top:
                    assert final.top_k() == planner.top_k()
                else:
                    assert final.decision() == one.decision()
    return certain


def _question(planner):
    return {"k": 1} if isinstance(planner, TopKPlanner) else {"entity": planner.entity}


def test_certificates_are_never_wrong():
    assert sum(check_certificates(seed) for seed in range(100)) > 50


@pytest.mark.slow
def test_certificates_are_never_wrong_on_two_thousand_bundles():
    assert sum(check_certificates(seed) for seed in range(100, 2100)) > 1000
