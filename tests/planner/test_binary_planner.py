"""BinaryPlanner: the top-1 of two half-potential entities, with a probability of its own."""

import numpy as np
import pytest
from bundles import QUARTERS, bundle_of, random_bundles
from examples import examples
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.special import expit

from afa.engine.gains import GAIN_KINDS
from afa.errors import BundleError, PlannerError
from afa.inference.class_odds import two_elbo
from afa.model.closure import half_potentials
from afa.model.mrf import Evidence
from afa.planner import SCORES, BinaryPlanner, TopKPlanner
from afa.scores.bracket import l1_interval

QUICK = settings(max_examples=15)
TINY = {"AQP8": -1, "CXCL8": 1, "MMP9": 0, "MUC2": -1, "TFF3": 1}


def two_entities(bundle, entity):
    """The half-potential models of one entity as a bundle, made without the code under test."""
    halves = half_potentials(bundle.mrf(entity))
    return bundle_of(
        [half.unary for half in halves],
        [half.couplings.toarray() for half in halves],
        [half.prior for half in halves],
        bundle.features,
        (entity, f"not {entity}"),
    )


def told(planner, observations):
    for feature, value in observations.items():
        planner.observe(feature, value)
    return planner


@st.composite
def patients(draw, **kwargs):
    """A bundle, one of its entities, and a value for every feature in a drawn order."""
    bundle = draw(random_bundles(entities=(1, 2), features=(2, 4), **kwargs))
    order = draw(st.permutations(bundle.features))
    return bundle, draw(st.sampled_from(bundle.entities)), {name: draw(st.sampled_from([-1, 0, 1])) for name in order}


@pytest.mark.parametrize("kind", GAIN_KINDS)
@pytest.mark.parametrize("score", SCORES)
@examples(4)
@given(case=patients(potentials=QUARTERS))
def test_it_is_the_top_1_of_two_entities_at_every_round(score, kind, case):
    bundle, entity, patient = case
    options = {"score": score, "gain": kind[0], "target": kind[1]}
    options |= {"allocation": "greedy"}
    binary = BinaryPlanner(bundle, entity=entity, **options)
    duel = TopKPlanner(two_entities(bundle, entity), k=1, **options)
    # the duel of two entities settles the sign of S, the task that of its posterior, one perhaps before the other
    while not (binary.resolved() or duel.resolved()):
        feature = binary.next_feature()
        assert duel.next_feature() == feature
        if feature is None:
            return
        assert binary.reason == duel.reason
        for planner in (binary, duel):
            planner.observe(feature, patient[feature])
        assert binary.score() == duel.scores()[0, 1]


@QUICK
@given(patients())
def test_at_no_observation_the_probability_is_what_the_prior_says(case):
    bundle, entity, _ = case
    prior = bundle.mrf(entity).prior
    planner = BinaryPlanner(bundle, entity=entity)
    assert planner.probability() == pytest.approx(expit(prior), abs=1e-12)
    if prior == 0:
        assert planner.probability() == 0.5


@QUICK
@given(patients(), st.data())
def test_the_probability_is_the_logistic_of_the_calibrated_log_odds(case, data):
    bundle, entity, patient = case
    observations = dict(list(patient.items())[: data.draw(st.integers(0, len(patient)))])
    model = bundle.mrf(entity)
    expected = expit(two_elbo(model, observations).calibrated)
    assert told(BinaryPlanner(bundle, entity=entity), observations).probability() == pytest.approx(expected, abs=1e-9)


@QUICK
@given(patients())
def test_at_full_observation_all_scores_decide_by_the_energy(case):
    bundle, entity, patient = case
    model = bundle.mrf(entity)
    energy = model.energy([patient[name] for name in bundle.features])
    for score in ("linearity", "wald", "two_elbo"):
        planner = told(BinaryPlanner(bundle, entity=entity, score=score), patient)
        assert planner.score() == pytest.approx(energy, abs=1e-9)
    shift = two_elbo(model).shift
    assert planner.probability() == pytest.approx(expit(energy - shift), abs=1e-9)
    for by, value in (("raw", energy), ("calibrated", energy - shift)):
        if abs(value) > 1e-9:
            assert planner.decision(by) == np.sign(value)
    if abs(energy - shift) > 1e-9:
        assert planner.resolved()


@QUICK
@given(patients(potentials=QUARTERS), st.data())
def test_a_decision_is_resolved_where_no_completion_can_change_the_sign_of_the_posterior(case, data):
    bundle, entity, patient = case
    observations = dict(list(patient.items())[: data.draw(st.integers(0, len(patient)))])
    low, high = l1_interval(Evidence.of(bundle.mrf(entity), observations))
    shift = two_elbo(bundle.mrf(entity)).shift
    planner = told(BinaryPlanner(bundle, entity=entity), observations)
    assert planner.resolved() == (low > shift + 1e-9 or high < shift - 1e-9)
    if planner.resolved():
        assert planner.decision() == (1 if low > shift else -1)


@QUICK
@given(patients(), st.data())
def test_decision_and_probability_never_contradict_each_other(case, data):
    bundle, entity, patient = case
    observations = dict(list(patient.items())[: data.draw(st.integers(0, len(patient)))])
    planner = told(BinaryPlanner(bundle, entity=entity), observations)
    assert planner.decision() * (planner.probability() - 0.5) >= 0
    assert planner.confidence() == max(planner.probability(), 1 - planner.probability())


def test_one_feature_by_hand():
    """S = 2 x: classes exp(x) and exp(-x) are mirror images, so that x = 1 gives log-odds of 2 and a decision for."""
    bundle = bundle_of([[2.0]], np.zeros((1, 1, 1)))
    before = BinaryPlanner(bundle, entity="v0")
    assert (before.score(), before.decision(), before.probability(), before.resolved()) == (0.0, 0, 0.5, False)
    assert before.next_feature() == "f0"
    for value, decision in ((1, 1), (-1, -1), (0, 0)):
        after = told(BinaryPlanner(bundle, entity="v0"), {"f0": value})
        assert after.score() == pytest.approx(2.0 * value)
        assert after.decision() == decision
        assert after.probability() == pytest.approx(expit(2.0 * value))
        assert after.resolved() == (value != 0)
        assert after.next_feature() is None


def test_the_papers_decision_can_be_at_odds_with_the_probability():
    """Three features that agree make class 1 the larger model: S starts above 0, and one adverse value leaves it so.

    f3 adds -1 to the log-odds. The raw score is still for; probability and decision are against.
    """
    couplings = np.zeros((1, 4, 4))
    couplings[0, :3, :3] = 3.0 * (1 - np.eye(3))
    bundle = bundle_of([[0.5, 0.5, 0.5, 1.0]], couplings)
    start = BinaryPlanner(bundle, entity="v0")
    assert start.score() > 1.5
    assert start.probability() == 0.5
    assert (start.decision(), start.decision("raw")) == (0, 1)
    planner = told(BinaryPlanner(bundle, entity="v0"), {"f3": -1})
    assert planner.score() == pytest.approx(start.score() - 1.0, abs=1e-6)
    assert planner.probability() == pytest.approx(expit(-1.0), abs=1e-6)
    assert (planner.decision(), planner.decision("raw")) == (-1, 1)
    with pytest.raises(PlannerError, match="calibrated or raw"):
        planner.decision("other")


def test_an_entity_without_potentials_is_never_decided(bundle_tiny):
    bundle = bundle_of(np.zeros((1, 2)), np.zeros((1, 2, 2)))
    planner = told(BinaryPlanner(bundle, entity="v0"), {"f0": 1, "f1": -1})
    assert (planner.score(), planner.decision(), planner.probability()) == (0.0, 0, 0.5)
    assert not planner.resolved()


def test_an_entity_the_bundle_does_not_have_is_refused_with_a_suggestion(bundle_tiny):
    with pytest.raises(BundleError, match="no entity 'bleedin'") as error:
        BinaryPlanner(bundle_tiny, entity="bleedin")
    assert "bleeding" in str(error.value)


@pytest.mark.parametrize(
    ("options", "named"),
    [
        ({"score": "kl"}, "kl_nonzero"),
        ({"score": "nosuch"}, "planner option score"),
        ({"gain": "nosuch"}, "planner option gain"),
        ({"gain": "f_target", "score": "wald"}, "planner option target"),
        ({"gain": "cmi", "target": "linearity"}, "planner option target"),
        ({"inference": "nosuch"}, "planner option inference"),
    ],
)
def test_a_wrong_option_is_refused_by_name(bundle_tiny, options, named):
    with pytest.raises(PlannerError, match=named):
        BinaryPlanner(bundle_tiny, entity="bleeding", **options)


@pytest.mark.parametrize("kind", GAIN_KINDS)
@pytest.mark.parametrize("score", SCORES)
def test_potentials_of_ten_thousand_give_finite_answers_to_the_end(score, kind):
    couplings = 1e4 * np.array([[[0, 1, 0], [1, 0, -1], [0, -1, 0]]])
    bundle = bundle_of([[1e4, -1e4, 1]], couplings)
    planner = BinaryPlanner(bundle, entity="v0", score=score, gain=kind[0], target=kind[1])
    for value in (1, -1, 0):
        assert np.isfinite(planner.score())
        assert 0 <= planner.probability() <= 1
        assert np.isfinite(planner.explain()[["gain", "share"]].to_numpy()).all()
        planner.observe(planner.next_feature(), value)
    assert 0 <= planner.probability() <= 1
    assert planner.next_feature() is None


def test_the_tiny_bundle_is_decided_as_its_energy_says(bundle_tiny):
    for entity in bundle_tiny.entities:
        planner = told(BinaryPlanner(bundle_tiny, entity=entity), TINY)
        energy = bundle_tiny.mrf(entity).energy([TINY[name] for name in bundle_tiny.features])
        assert planner.decision("raw") == np.sign(energy)
