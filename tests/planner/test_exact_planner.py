"""Planners with exact inference: every number is that of listing all completions."""

from itertools import combinations

import numpy as np
import pytest
from bundles import bundle_of, models_of, observed_bundles
from hypothesis import given, settings
from oracle import energies, enumerated_cmi, exact_log_odds, posterior
from scipy.special import expit

from afa.engine.patient import Patient
from afa.errors import InferenceError, PlannerError
from afa.model.closure import half_potentials
from afa.planner import BinaryPlanner, TopKPlanner

QUICK = settings(max_examples=20)
SMALL = {"entities": (2, 3), "features": (2, 4)}


def observing(planner, bundle, observed):
    for j, value in observed.items():
        planner.observe(bundle.features[j], value)
    return planner


def exact_planner(bundle, observed, **kwargs):
    return observing(TopKPlanner(bundle, k=1, inference="exact", **kwargs), bundle, observed)


def duels(values):
    return np.subtract.outer(values, values)


@QUICK
@given(observed_bundles(**SMALL))
def test_linearity_is_the_mean_of_the_duel_under_the_mixture_of_the_two_conditionals(case):
    bundle, observed = case
    solved = [posterior(model, observed) for model in models_of(bundle)]
    energy = [energies(model, solved[0][0]) for model in models_of(bundle)]
    expected = np.zeros((len(solved), len(solved)))
    for a, b in np.ndindex(expected.shape):
        mixture = (solved[a][1] + solved[b][1]) / 2
        expected[a, b] = mixture @ (energy[a] - energy[b])
    np.testing.assert_allclose(exact_planner(bundle, observed).scores(), expected, atol=1e-9)


@QUICK
@given(observed_bundles(**SMALL))
def test_two_elbo_is_the_difference_of_log_partitions(case):
    bundle, observed = case
    expected = duels([posterior(model, observed)[2] for model in models_of(bundle)])
    found = exact_planner(bundle, observed, score="two_elbo").scores()
    np.testing.assert_allclose(found, expected, atol=1e-9)


@QUICK
@given(observed_bundles(**SMALL))
def test_scores_that_need_no_inference_are_the_same_with_it(case):
    bundle, observed = case
    for score in ("wald", "kl_nonzero"):
        by_mean_field = observing(TopKPlanner(bundle, k=1, score=score), bundle, observed)
        np.testing.assert_array_equal(exact_planner(bundle, observed, score=score).scores(), by_mean_field.scores())
        assert exact_planner(bundle, observed, score=score).resolved() == by_mean_field.resolved()


@QUICK
@given(observed_bundles(**SMALL))
def test_cmi_is_the_information_of_the_joint_table_of_class_and_feature(case):
    bundle, observed = case
    patient = Patient(bundle, inference="exact", gain="cmi")
    for j, value in observed.items():
        patient.observe(j, value)
    models = models_of(bundle)
    expected = np.array([enumerated_cmi(pair, observed) for pair in combinations(models, 2)])
    np.testing.assert_allclose(patient.gains(np.ones(len(expected), dtype=bool)), expected, atol=1e-9)
    evidence = patient.log_evidence()
    for a, b in combinations(range(len(models)), 2):
        odds = exact_log_odds((models[a], models[b]), observed)
        assert evidence[a] - evidence[b] == pytest.approx(odds, abs=1e-9)


@QUICK
@given(observed_bundles(**SMALL))
def test_the_next_feature_is_one_of_largest_enumerated_gain_over_the_open_duels(case):
    bundle, observed = case
    planner = exact_planner(bundle, observed, allocation="greedy")
    closed = {frozenset(pair) for pair in planner.resolved()}
    pairs = [pair for pair in combinations(bundle.entities, 2) if frozenset(pair) not in closed]
    total = sum(
        (enumerated_cmi([bundle.mrf(entity) for entity in pair], observed) for pair in pairs),
        np.zeros(len(bundle.features)),
    )
    feature = planner.next_feature()
    if total.max() > 1e-9:
        assert total[bundle.features.index(feature)] == pytest.approx(total.max(), rel=1e-6, abs=1e-9)


@QUICK
@given(observed_bundles(entities=(1, 2), features=(2, 4)))
def test_the_probability_of_an_entity_is_its_calibrated_posterior(case):
    bundle, observed = case
    entity = bundle.entities[0]
    planner = observing(BinaryPlanner(bundle, entity=entity, inference="exact"), bundle, observed)
    halves = half_potentials(bundle.mrf(entity))
    raw, shift = (posterior(halves[0], seen)[2] - posterior(halves[1], seen)[2] for seen in (observed, {}))
    assert planner.score() == pytest.approx(raw, abs=1e-9)
    assert planner.probability() == pytest.approx(expit(bundle.mrf(entity).prior + raw - shift), abs=1e-9)


def test_a_coupled_pair_by_hand():
    """S_a = 2 x0 x1, S_b = 0: log Z_a = log(5 + 2 e^2 + 2 e^-2), and a's mean of its own score is 2 E[x0 x1]."""
    bundle = bundle_of(np.zeros((2, 2)), [[[0, 2], [2, 0]], np.zeros((2, 2))])
    norm = 5 + 2 * np.exp(2) + 2 * np.exp(-2)
    assert exact_planner(bundle, {}, score="two_elbo").scores()[0, 1] == pytest.approx(np.log(norm) - np.log(9))
    own = 2 * (2 * np.exp(2) - 2 * np.exp(-2)) / norm
    assert exact_planner(bundle, {}).scores()[0, 1] == pytest.approx(own / 2)
    assert TopKPlanner(bundle, k=1).scores()[0, 1] == 0.0


@pytest.mark.parametrize(
    ("options", "found"),
    [
        ({"score": "stack_a"}, "exact with stack_a and cmi"),
        ({"gain": "f_target"}, "exact with linearity and f_target"),
        ({"gain": "f_target", "target": "two_elbo"}, "exact with linearity and f_target"),
        ({"score": "stack_a", "gain": "f_target"}, "exact with stack_a and f_target"),
    ],
)
def test_what_exact_inference_does_not_serve_is_refused_with_the_way_out(bundle_tiny, options, found):
    for planner in (
        lambda: TopKPlanner(bundle_tiny, k=1, inference="exact", **options),
        lambda: BinaryPlanner(bundle_tiny, entity="bleeding", inference="exact", **({"score": "linearity"} | options)),
    ):
        with pytest.raises(PlannerError) as error:
            planner()
        (fault,) = error.value.faults
        assert fault.where == "planner option inference"
        assert fault.found == found
        assert "linearity, two_elbo" in fault.expected
        assert fault.next_step == "use inference='mean_field'"


def test_a_model_too_dense_is_refused_with_an_estimate():
    rng = np.random.default_rng(0)
    bundle = bundle_of(rng.normal(size=(2, 60)), rng.normal(size=(2, 60, 60)))
    with pytest.raises(InferenceError, match="elimination width"):
        TopKPlanner(bundle, k=1, inference="exact")


@pytest.mark.parametrize("observed", [{}, {0: -1}, {0: 1, 1: 1}, {0: 1, 1: -1, 2: 0}])
def test_potentials_of_ten_thousand_and_entities_without_any_stay_finite(observed):
    coupling = 1e4 * np.array([[0, 1, 0], [1, 0, -1], [0, -1, 0]])
    bundle = bundle_of([[1e4, -1e4, 1], [-1e4, 1e4, 0], [0, 0, 0]], [coupling, np.zeros((3, 3)), np.zeros((3, 3))])
    for score in ("linearity", "two_elbo"):
        planner = exact_planner(bundle, observed, score=score)
        assert np.isfinite(planner.scores()).all()
        assert np.isfinite(planner.explain()["gain"]).all()
    binary = observing(BinaryPlanner(bundle, entity="v0", inference="exact"), bundle, observed)
    assert np.isfinite(binary.score())
    assert 0 <= binary.probability() <= 1
