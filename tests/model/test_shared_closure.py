"""The closure in which both classes have the couplings: its symmetry, what it decides, and what it predicts."""

import math
from dataclasses import replace

import numpy as np
import pytest
import yaml
from bundles import bundle_of, random_bundles
from examples import examples
from hypothesis import given
from hypothesis import strategies as st
from oracle import configurations, energies, models, observed_models, posterior

from afa.engine.tasks import elbo_differences, follow_orders, task_of
from afa.errors import PlannerError
from afa.inference.class_odds import two_elbo
from afa.inference.exact import exact
from afa.inference.meanfield import Solver, mean_field
from afa.inference.result import Marginals
from afa.model.closure import (
    STRENGTH,
    class_models,
    closed_bundle,
    contraction,
    contrast,
    half_potentials,
    shared_factor,
    shared_potentials,
)
from afa.model.mrf import PairwiseMRF
from afa.planner import BinaryPlanner
from afa.planner.session import load_session, save_session

WITHOUT_PRIOR = models(sizes=(2, 5), prior=False)
FINE = Solver(tolerance=1e-12, max_iterations=5000)
PAIR = PairwiseMRF([0.0, 2.0], [[0, 0.5], [0.5, 0]], features=("a", "b"))


def named(mrf, observed):
    return {mrf.features[j]: value for j, value in observed.items()}


@examples(25)
@given(WITHOUT_PRIOR)
def test_the_classes_mirror_each_other_and_have_one_partition(mrf):
    one, zero = shared_potentials(mrf)
    table = configurations(mrf.n_features)
    np.testing.assert_allclose(energies(zero, table), energies(one, -table), atol=1e-12)
    assert exact(one).log_partition == pytest.approx(exact(zero).log_partition, abs=1e-10)


@examples(25)
@given(WITHOUT_PRIOR)
def test_the_expected_sign_of_the_score_is_zero_where_nothing_is_known(mrf):
    one, zero = shared_potentials(mrf)
    table, first, _ = posterior(one, {})
    _, second, _ = posterior(zero, {})
    score = np.round(energies(one, table) - energies(zero, table), 9)
    assert ((first + second) / 2) @ np.sign(score) == pytest.approx(0.0, abs=1e-12)


def test_in_the_papers_closure_neither_holds():
    score = PairwiseMRF([1.0, 1.0], [[0, 1], [1, 0]])
    one, zero = half_potentials(score)
    assert exact(one).log_partition != pytest.approx(exact(zero).log_partition, abs=1e-3)
    table, first, _ = posterior(one, {})
    _, second, _ = posterior(zero, {})
    assert abs(((first + second) / 2) @ np.sign(energies(score, table))) > 1e-3


@examples(25)
@given(models(sizes=(2, 5)), st.data())
def test_at_full_observation_the_decision_is_the_unary_contrast(mrf, data):
    values = [data.draw(st.sampled_from([-1, 0, 1])) for _ in range(mrf.n_features)]
    estimate = two_elbo(mrf, named(mrf, dict(enumerate(values))), coupling="shared")
    assert estimate.raw == pytest.approx(mrf.prior + mrf.unary @ values, abs=1e-9)
    assert contrast(mrf, "shared").energy(values) == pytest.approx(estimate.raw, abs=1e-9)
    assert contrast(mrf) is mrf


@examples(25)
@given(WITHOUT_PRIOR)
def test_by_mean_field_too_nothing_is_decided_where_nothing_is_known(mrf):
    assert two_elbo(mrf, coupling="shared").shift == pytest.approx(0.0, abs=1e-12)


@examples(25)
@given(observed_models(sizes=(2, 5)), st.floats(0.1, 0.95), st.integers(0, 2**32 - 1))
def test_scaled_couplings_leave_one_fixed_point_whatever_the_start(case, strength, seed):
    mrf, observed = case
    weights = np.random.default_rng(seed).dirichlet([0.3, 0.3, 0.3], mrf.n_features)
    start = Marginals(np.arange(len(weights)), weights[:, 2] - weights[:, 0], weights[:, 0] + weights[:, 2])
    for model in shared_potentials(mrf, strength):
        assert contraction(model) <= strength + 1e-12
        given_ = named(model, observed)
        uniform, drawn = (mean_field(model, given_, solver=FINE, start=begin) for begin in (None, start))
        assert uniform.converged
        np.testing.assert_allclose(uniform.marginals.first, drawn.marginals.first, atol=1e-8)


def test_unscaled_couplings_have_two_fixed_points():
    model = PairwiseMRF([0.0, 0.0], [[0, 4], [4, 0]])
    starts = [Marginals(np.arange(2), np.full(2, side), np.ones(2)) for side in (0.9, -0.9)]
    first, second = (mean_field(model, solver=FINE, start=start).marginals.first for start in starts)
    assert first[0] > 0.5
    assert second[0] < -0.5


def test_an_observed_feature_speaks_through_what_it_predicts_by_hand():
    """S = 2 b, and a = 1 goes with b: the field on b is 1 + 0.5 in class 1 and -1 + 0.5 in class 0."""
    by_hand = math.log((1 + 2 * math.cosh(1.5)) / (1 + 2 * math.cosh(0.5)))
    assert by_hand == pytest.approx(0.561, abs=1e-3)
    for value in (1, -1):
        estimate = two_elbo(PAIR, {"a": value}, coupling="shared", solver=FINE)
        assert estimate.raw == pytest.approx(value * by_hand, abs=1e-9)
    assert two_elbo(PAIR, {"a": 1}).raw == pytest.approx(0.0, abs=1e-9), "the paper's closure hears nothing in it"


def test_couplings_are_scaled_down_to_the_strength_and_never_up():
    strong = PairwiseMRF([1.0, 0.0, -0.5], [[0, 2, 0], [2, 0, -1], [0, -1, 0]])
    assert shared_factor(strong) == pytest.approx(0.9 / 3)
    assert contraction(shared_potentials(strong)[0]) == pytest.approx(STRENGTH)
    assert shared_factor(PAIR) == 1.0
    assert shared_factor(PAIR, 0.25) == 0.5
    assert shared_factor(PairwiseMRF([1.0], [[0.0]])) == 1.0


@examples(20)
@given(random_bundles(features=(2, 4)), st.sampled_from(["differential", "shared"]), st.data())
def test_the_closed_bundle_holds_the_two_class_models(bundle, coupling, data):
    entity = data.draw(st.sampled_from(bundle.entities))
    closed = closed_bundle(bundle, entity, coupling, 0.5)
    for name, model in zip(closed.entities, class_models(bundle.mrf(entity), coupling, 0.5), strict=True):
        held = closed.mrf(name)
        np.testing.assert_allclose(held.unary, model.unary)
        np.testing.assert_allclose(held.couplings.toarray(), model.couplings.toarray(), atol=1e-15)
        assert held.prior == model.prior


@examples(15)
@given(random_bundles(entities=(1, 2), features=(2, 4)), st.data())
def test_the_engine_scores_as_the_readable_function(bundle, data):
    entity, m = bundle.entities[0], len(bundle.features)
    values = np.array([[data.draw(st.sampled_from([-1, 0, 1])) for _ in range(m)]], dtype=np.int8)
    seen = np.arange(m) < data.draw(st.integers(0, m))
    told = {bundle.features[j]: int(values[0, j]) for j in np.flatnonzero(seen)}
    expected = two_elbo(bundle.mrf(entity), told, coupling="shared", strength=0.7)
    solved = elbo_differences(bundle, entity, seen[None], values, coupling="shared", strength=0.7)
    assert solved.raw[0] == pytest.approx(expected.raw, abs=1e-9)
    paths = follow_orders(task_of(bundle, entity, coupling="shared"), values, np.arange(m)[None, None])
    assert paths.two_elbo[0, 0, -1] == pytest.approx(contrast(bundle.mrf(entity), "shared").energy(values[0]), abs=1e-9)


def test_a_planner_without_observations_gives_one_half_and_then_follows_the_closure():
    bundle = bundle_of([PAIR.unary], [PAIR.couplings.toarray()], features=("a", "b"))
    planner = BinaryPlanner(bundle, entity="v0", coupling="shared")
    assert (planner.probability(), planner.decision()) == (0.5, 0)
    planner.observe("a", 1)
    odds = two_elbo(PAIR, {"a": 1}, coupling="shared").raw
    assert planner.score() == pytest.approx(odds)
    assert planner.probability() == pytest.approx(1 / (1 + math.exp(-odds)))
    assert BinaryPlanner(bundle, entity="v0").settings["coupling"] == "differential"


def test_a_session_keeps_the_closure_and_an_older_one_has_the_papers(bundle_tiny, tmp_path):
    bundle = replace(bundle_tiny, priors=np.zeros(3))
    planner = BinaryPlanner(bundle, entity="bleeding", coupling="shared", strength=0.5)
    planner.observe("CXCL8", 1)
    save_session(planner, tmp_path / "s.yaml")
    again = load_session(tmp_path / "s.yaml", bundle)
    assert again.settings == planner.settings
    assert again.probability() == planner.probability()
    document = yaml.safe_load((tmp_path / "s.yaml").read_text(encoding="utf-8"))
    del document["settings"]["coupling"], document["settings"]["strength"]
    (tmp_path / "old.yaml").write_text(yaml.safe_dump(document), encoding="utf-8")
    older = load_session(tmp_path / "old.yaml", bundle)
    assert older.settings["coupling"] == "differential"
    assert older.probability() != planner.probability()


@pytest.mark.parametrize("strength", [0.0, 1.0, -0.5, math.nan])
def test_a_strength_that_does_not_contract_is_refused(strength):
    with pytest.raises(PlannerError, match=r"above 0 and below 1.*") as error:
        shared_potentials(PAIR, strength)
    assert error.value.faults[0].next_step


def test_an_unknown_coupling_is_refused(bundle_tiny):
    with pytest.raises(PlannerError, match="differential or shared"):
        BinaryPlanner(bundle_tiny, entity="bleeding", coupling="both")
