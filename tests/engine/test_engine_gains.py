"""The engine's scores, brackets and gains are those of the readable functions, whenever they are asked for."""

from itertools import combinations

import numpy as np
import pytest
from bundles import QUARTERS, bundle_of, models_of, observed_bundles
from examples import examples
from hypothesis import given, settings
from hypothesis import strategies as st

from afa.engine.duels import duel
from afa.engine.gains import GAIN_KINDS
from afa.engine.paths import sign_paths
from afa.engine.patient import Patient
from afa.inference.meanfield import mean_field
from afa.model.closure import contraction
from afa.model.mrf import Evidence
from afa.scores.bracket import GAMMA, hanson_wright_interval, l1_budget, l1_interval
from afa.scores.gain import cmi, f_target, log_odds, wald_magnitude
from afa.scores.preference import duel_variance, gaussian_sign, kl, kl_nonzero, linearity, stack_a, two_elbo, wald

QUICK = settings(max_examples=25)
SCORES = ("linearity", "wald", "two_elbo", "stack_a", "kl", "kl_nonzero")
SMALL = {"entities": (2, 4), "features": (2, 4), "potentials": QUARTERS}


def states(bundle, observed):
    named = {bundle.features[j]: value for j, value in observed.items()}
    return [Evidence.of(model, named) for model in models_of(bundle)]


def readable_scores(bundle, observed):
    """Every score by the small functions; `observed` in the order of observation."""
    evidence = states(bundle, observed)
    solutions = [mean_field(state.mrf, state) for state in evidence]
    marginals = [solution.marginals for solution in solutions]
    models, items = models_of(bundle), list(observed.items())
    return {
        "linearity": linearity(evidence, marginals),
        "wald": wald(evidence),
        "two_elbo": two_elbo(solutions),
        "stack_a": stack_a(evidence, marginals),
        "kl": kl(models, items),
        "kl_nonzero": kl_nonzero(models, items),
    }


def readable_gains(bundle, observed, kind):
    """(Q, M) gains of every duel by the small functions."""
    gain, target = kind
    evidence = states(bundle, observed)
    marginals = [mean_field(state.mrf, state).marginals for state in evidence]
    rows = []
    for a, b in combinations(range(len(evidence)), 2):
        sides = evidence[a], evidence[b]
        if gain == "wald_magnitude":
            rows.append(wald_magnitude(*sides))
        elif gain == "cmi":
            rows.append(cmi(log_odds(*sides), marginals[a], marginals[b], sides[0].observed))
        else:
            rows.append(f_target(*sides, target=target))
    return np.array(rows)


def patient_of(bundle, observed, kind=("wald_magnitude", None), **kwargs):
    patient = Patient(bundle, gain=kind[0], target=kind[1], **kwargs)
    for j, value in observed.items():
        patient.observe(j, value)
    return patient


def off_diagonal(values):
    return values[~np.eye(len(values), dtype=bool)]


# Scores


@QUICK
@given(observed_bundles(**SMALL))
def test_every_score_of_a_patient_is_that_of_the_readable_functions(case):
    bundle, observed = case
    patient = patient_of(bundle, observed)
    for score, expected in readable_scores(bundle, observed).items():
        found = patient.scores(score)
        np.testing.assert_allclose(off_diagonal(found), off_diagonal(expected), atol=1e-8, err_msg=score)
        assert not np.diag(found).any()


@QUICK
@given(observed_bundles(entities=(3, 3), features=(4, 4), potentials=QUARTERS))
def test_scores_asked_for_between_observations_do_not_change_later_ones(case):
    bundle, observed = case
    rounds_requested, fresh = patient_of(bundle, {}), patient_of(bundle, observed)
    for j, value in observed.items():
        for score in SCORES:
            rounds_requested.scores(score)
        rounds_requested.observe(j, value)
    for score in SCORES:
        np.testing.assert_array_equal(rounds_requested.scores(score), fresh.scores(score), err_msg=score)


@QUICK
@given(observed_bundles(entities=(2, 3), features=(3, 4), potentials=QUARTERS))
def test_a_warm_start_is_from_the_last_marginals_of_each_entity_that_holds_the_feature(case):
    bundle, observed = case
    patient = patient_of(bundle, observed, start="warm")
    solutions = []
    for model in models_of(bundle):
        state, solution = Evidence.of(model), mean_field(model)
        for j, value in observed.items():
            state = state.observe(j, value)
            if j in model.support:
                solution = mean_field(model, state, start=solution.marginals)
        solutions.append((state, solution.marginals))
    evidence, marginals = zip(*solutions, strict=True)
    expected = linearity(evidence, marginals)
    np.testing.assert_allclose(patient.scores("linearity"), expected, atol=1e-8)


def test_a_tie_but_for_rounding_is_a_tie_in_every_score():
    """0.1 + 0.2 is not 0.3 in floating point; no score may prefer an entity for it (decisions.md S5)."""
    bundle = bundle_of([[0.1, 0.2, 0.0], [0.0, 0.0, 0.3]], np.zeros((2, 3, 3)))
    patient = patient_of(bundle, {0: 1, 1: 1, 2: 1})
    for score in ("wald", "linearity", "two_elbo", "stack_a"):
        assert patient.scores(score)[0, 1] == 0.0, score


def test_what_is_rounding_is_measured_by_priors_too():
    """Two entities of prior 1e4 and the same energy, added up in another way."""
    bundle = bundle_of([[0.1, 0.2, 0.0], [0.0, 0.0, 0.3]], np.zeros((2, 3, 3)), priors=[1e4, 1e4])
    patient = patient_of(bundle, {0: 1, 1: 1, 2: 1})
    for score in ("wald", "linearity", "two_elbo"):
        assert patient.scores(score)[0, 1] == 0.0, score


def test_a_vote_of_nothing_but_rounding_counts_alike_in_the_engine_and_in_the_readable_function():
    """Observing x0 and x1 brings a's field on x2 to 0.1 + 0.2 and leaves b's at 0.3."""
    couplings = np.zeros((2, 3, 3))
    couplings[0, 0, 2], couplings[0, 1, 2] = 0.1, 0.2
    bundle = bundle_of([[0, 0, 0], [0, 0, 0.3]], couplings)
    observed = {0: 1, 1: 1, 2: 1}
    expected = kl_nonzero(models_of(bundle), list(observed.items()))
    np.testing.assert_array_equal(patient_of(bundle, observed).scores("kl_nonzero"), expected)


def test_looking_ahead_to_a_tie_sees_a_tie():
    """After x0 = x1 = 1 the value x2 = 1 makes a duel of 0.1 + 0.2 against 0.3; the same in quarters adds up exactly.

    A tie has a `stack_a` of 0, so that the two gains lie near each other and not a whole preference apart.
    """
    gains = []
    for unary in ([[0.1, 0.2, 0.0], [0.0, 0.0, 0.3]], [[0.25, 0.0625, 0.0], [0.0, 0.0, 0.3125]]):
        bundle = bundle_of(unary, np.zeros((2, 3, 3)))
        patient = patient_of(bundle, {0: 1, 1: 1}, ("f_target", "stack_a"))
        gains.append(patient.gains(np.array([True]))[0, 2])
    assert gains[0] == pytest.approx(gains[1], abs=0.01)


@pytest.mark.parametrize("size", [1e-6, 1.0, 1e6, 1e12, 1e14])
def test_stack_a_is_that_of_the_readable_function_at_any_size_of_the_potentials(size):
    """One observation decides: D = 3 size against one hidden potential of 1 size, mu / sigma stays of order one."""
    bundle = bundle_of([[3 * size, size], [0, 0]], np.zeros((2, 2, 2)))
    found = patient_of(bundle, {0: 1}).scores("stack_a")[0, 1]
    expected = readable_scores(bundle, {0: 1})["stack_a"][0, 1]
    assert found == pytest.approx(expected)


# Gains


@pytest.mark.parametrize("kind", GAIN_KINDS)
@examples(15)
@given(case=observed_bundles(entities=(2, 3), features=(2, 4), potentials=QUARTERS), data=st.data())
def test_every_gain_of_a_patient_is_that_of_the_readable_functions(kind, case, data):
    bundle, observed = case
    patient = patient_of(bundle, observed, kind)
    expected = readable_gains(bundle, observed, kind)
    mask = np.array([data.draw(st.booleans()) for _ in expected], dtype=bool)
    np.testing.assert_allclose(patient.gains(mask), expected[mask], atol=1e-8)
    np.testing.assert_allclose(patient.total_gain(mask), expected[~mask].sum(axis=0), atol=1e-8)


@pytest.mark.parametrize("kind", GAIN_KINDS)
@examples(15)
@given(case=observed_bundles(entities=(3, 4), features=(3, 5), potentials=QUARTERS), data=st.data())
def test_gains_and_brackets_kept_from_round_to_round_are_those_of_a_fresh_patient(kind, case, data):
    bundle, observed = case
    patient = patient_of(bundle, {}, kind)
    for j, value in observed.items():
        if data.draw(st.booleans()):
            patient.gains(np.ones(len(patient.pairs), dtype=bool))
        if data.draw(st.booleans()):
            patient.resolved()
        patient.observe(j, value)
    fresh = patient_of(bundle, observed, kind)
    every, none = np.ones(len(patient.pairs), dtype=bool), np.zeros(len(patient.pairs), dtype=bool)
    np.testing.assert_allclose(patient.gains(every), fresh.gains(every), rtol=1e-12, atol=1e-12)
    np.testing.assert_allclose(patient.total_gain(none), fresh.total_gain(none), rtol=1e-12, atol=1e-12)
    np.testing.assert_array_equal(patient.resolved(), fresh.resolved())
    np.testing.assert_array_equal(patient.lead(), fresh.lead())
    np.testing.assert_array_equal(patient.state.field, fresh.state.field)
    np.testing.assert_array_equal(patient.log_evidence(), fresh.log_evidence())


def test_a_feature_observed_in_a_third_entity_leaves_the_duel_of_the_others_alone():
    bundle = bundle_of([[1, 0, 0], [-1, 2, 0], [0, 0, 1]], np.zeros((3, 3, 3)))
    for kind in GAIN_KINDS:
        patient = patient_of(bundle, {}, kind)
        before = patient.gains(np.array([True, False, False]))
        patient.observe(2, 1)
        np.testing.assert_array_equal(patient.gains(np.array([True, False, False])), before)


@pytest.mark.parametrize("start", ["uniform", "warm"])
def test_the_look_ahead_of_the_engine_is_the_score_after_the_observation(start):
    """Spec S9: the look-ahead starts where the score starts. All are sure of x0 = 1, so the gain is the one move."""
    couplings = np.zeros((2, 5, 5))
    couplings[0, 1:, 1:] = 1.5 * (1 - np.eye(4))
    couplings[0, 0, 1:] = couplings[0, 1:, 0] = -1.0
    bundle = bundle_of([[400, 0.4, 0.4, 0.4, 0.4], [400, 0, 0, 0, 0]], couplings)
    patient = patient_of(bundle, {}, ("f_target", "linearity"), start=start)
    gain = patient.gains(np.array([True]))[0, 0]
    before = patient.scores("linearity")[0, 1]
    patient.observe(0, 1)
    assert gain == pytest.approx(abs(patient.scores("linearity")[0, 1] - before), abs=1e-3)


# Brackets


@QUICK
@given(observed_bundles(**SMALL))
def test_the_sums_of_a_duel_are_those_of_its_difference_model(case):
    bundle, observed = case
    patient = patient_of(bundle, observed)
    evidence = states(bundle, observed)
    marginals = [mean_field(state.mrf, state).marginals for state in evidence]
    named = {bundle.features[j]: value for j, value in observed.items()}
    for a, b in combinations(range(len(evidence)), 2):
        difference = Evidence.of(evidence[a].mrf - evidence[b].mrf, named)
        hidden = ~difference.observed
        coupling = difference.mrf.couplings.toarray()[np.ix_(hidden, hidden)]
        sums = duel(patient.packed, patient.state, a, b)
        assert sums.budget == pytest.approx(l1_budget(difference), abs=1e-12)
        assert sums.budget + sums.between == pytest.approx(l1_budget(difference, form="paper"), abs=1e-12)
        assert sums.beta == pytest.approx(contraction(difference.mrf, difference), abs=1e-12)
        assert sums.spread == pytest.approx((difference.field**2).sum() + np.triu(coupling**2).sum(), abs=1e-12)
        variance = duel_variance(evidence[a], evidence[b], marginals[a], marginals[b])
        assert sums.variance == pytest.approx(variance, abs=1e-9)


def test_hanson_wright_can_be_made_of_the_sums_of_a_duel():
    couplings = np.zeros((2, 4, 4))
    couplings[0, 0, 1] = couplings[0, 1, 2] = 1.0
    couplings[1, 1, 2] = -0.5
    bundle = bundle_of([[4, 0.5, 0, 0.25], [0, 0.25, -0.25, 0]], couplings)
    patient = patient_of(bundle, {0: 1})
    sums, mean = duel(patient.packed, patient.state, 0, 1), patient.scores("linearity")[0, 1]
    score = gaussian_sign(mean, sums.variance)
    width = score / mean * np.sqrt(2 * sums.spread * np.log(2 / GAMMA) * (1 + sums.beta))
    difference = Evidence.of(bundle.mrf("v0") - bundle.mrf("v1"), {"f0": 1})
    expected = hanson_wright_interval(difference, mean, sums.variance)
    assert (max(-1.0, score - width), min(1.0, score + width)) == pytest.approx(expected)


@QUICK
@given(observed_bundles(**SMALL))
def test_a_duel_is_resolved_where_the_tight_interval_of_its_difference_excludes_zero(case):
    bundle, observed = case
    patient = patient_of(bundle, observed)
    named = {bundle.features[j]: value for j, value in observed.items()}
    for p, (a, b) in enumerate(patient.pairs):
        low, high = l1_interval(Evidence.of(models_of(bundle)[a] - models_of(bundle)[b], named))
        assert patient.resolved()[p] == (low > 1e-9 or high < -1e-9)


# Many patients at once


@examples(15)
@given(observed_bundles(full=True, **SMALL), st.sampled_from(["uniform", "warm"]))
def test_the_seven_signs_of_a_path_are_those_of_a_patient_at_every_round(case, start):
    bundle, observed = case
    values = np.array([[observed[j] for j in range(len(bundle.features))]], dtype=np.int8)
    paths = sign_paths(bundle, values, np.array([[list(observed)]]), start=start, threads=1)
    patient, (a, b) = Patient(bundle, start=start), paths.pairs.T
    for t, feature in enumerate([*observed, None]):
        for score in SCORES:
            expected = np.sign(patient.scores(score))
            np.testing.assert_array_equal(paths.signs[score][0, 0, t], expected[a, b], err_msg=f"{score}, t = {t}")
        turned = -np.sign(patient.scores("kl"))[b, a]
        np.testing.assert_array_equal(paths.signs["kl_reversed"][0, 0, t], turned)
        if feature is not None:
            patient.observe(feature, observed[feature])


# Edges


@pytest.mark.parametrize("kind", GAIN_KINDS)
@pytest.mark.parametrize("observed", [{}, {0: -1}, {0: 1, 1: 1}, {0: 1, 1: -1, 2: 0}])
def test_potentials_of_ten_thousand_and_entities_without_any_stay_finite(kind, observed):
    coupling = 1e4 * np.array([[0, 1, 0], [1, 0, -1], [0, -1, 0]])
    bundle = bundle_of([[1e4, -1e4, 1], [-1e4, 1e4, 0], [0, 0, 0]], [coupling, np.zeros((3, 3)), np.zeros((3, 3))])
    patient = patient_of(bundle, observed, kind)
    for score, expected in readable_scores(bundle, observed).items():
        assert np.isfinite(expected).all()
        found = patient.scores(score)
        np.testing.assert_allclose(off_diagonal(found), off_diagonal(expected), rtol=1e-9, atol=1e-7, err_msg=score)
    gains = patient.gains(np.ones(3, dtype=bool))
    np.testing.assert_allclose(gains, readable_gains(bundle, observed, kind), rtol=1e-7, atol=1e-7)
    assert np.isfinite(patient.log_evidence()).all()


@pytest.mark.parametrize("kind", GAIN_KINDS)
def test_a_bundle_without_any_potential_ties_everywhere_and_gains_nothing(kind):
    bundle = bundle_of(np.zeros((2, 2)), np.zeros((2, 2, 2)))
    for observed in ({}, {0: 1}, {0: 1, 1: -1}):
        patient = patient_of(bundle, observed, kind)
        for score in ("linearity", "wald", "two_elbo", "stack_a", "kl_nonzero"):
            assert not patient.scores(score).any()
        assert not patient.gains(np.array([True])).any()
        assert not patient.resolved().any()
