"""PairwiseMRF and Evidence, against the energy written out."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from oracle import completions, energies, observed_models

from afa.errors import BundleError, PlannerError
from afa.model.mrf import Evidence, PairwiseMRF


def evidence_of(mrf, observations):
    return Evidence.of(mrf, {mrf.features[j]: value for j, value in observations.items()})


def test_each_unordered_pair_counts_once():
    mrf = PairwiseMRF([1.0, 2.0, 0.0], [[0, 3, 0], [3, 0, -1], [0, -1, 0]], prior=0.5)
    assert mrf.energy([1, -1, 1]) == 0.5 + 1 - 2 - 3 + 1


@given(observed_models())
def test_what_is_left_after_observing_has_the_energy_of_the_whole(case):
    mrf, observations = case
    state = evidence_of(mrf, observations)
    table = completions(mrf, observations)
    hidden = ~state.observed
    inside = mrf.couplings.toarray()[np.ix_(hidden, hidden)]
    rest = table[:, hidden]
    left = state.constant + rest @ state.field[hidden] + 0.5 * np.einsum("ij,jk,ik->i", rest, inside, rest)
    np.testing.assert_allclose(left, energies(mrf, table), atol=1e-12)


@given(observed_models(), st.randoms(use_true_random=False))
def test_the_state_depends_on_the_observed_set_and_not_on_its_order(case, random):
    mrf, observations = case
    items = list(observations.items())
    random.shuffle(items)
    one, other = evidence_of(mrf, observations), evidence_of(mrf, dict(items))
    assert one.constant == pytest.approx(other.constant, abs=1e-12)
    np.testing.assert_allclose(one.field, other.field, atol=1e-12)


@given(observed_models())
def test_at_full_observation_the_running_constant_is_the_energy(case):
    mrf, observations = case
    full = {j: observations.get(j, 1) for j in range(mrf.n_features)}
    state = evidence_of(mrf, full)
    assert state.constant == pytest.approx(mrf.energy([full[j] for j in range(mrf.n_features)]), abs=1e-12)
    assert len(state.free) == 0
    assert not state.field.any()


def test_support_holds_features_with_a_coupling_and_no_unary():
    mrf = PairwiseMRF([0.0, 0.0, 0.0, 1.0], [[0, 1, 0, 0], [1, 0, 0, 0], [0, 0, 0, 0], [0, 0, 0, 0]])
    assert mrf.support.tolist() == [0, 1, 3]
    assert Evidence.of(mrf).log_volume == pytest.approx(np.log(3))


@pytest.mark.parametrize(
    ("unary", "couplings", "message"),
    [
        ([np.nan, 0.0], np.zeros((2, 2)), "not finite"),
        ([0.0, 0.0], [[0, np.inf], [np.inf, 0]], "not finite"),
        ([0.0, 0.0], [[1, 0], [0, 0]], "coupling with itself"),
        ([0.0, 0.0], [[0, 1], [0, 0]], "differ by orientation"),
        ([0.0, 0.0], np.zeros((3, 3)), "shapes"),
    ],
)
def test_a_broken_model_is_refused(unary, couplings, message):
    with pytest.raises(BundleError, match=message):
        PairwiseMRF(unary, couplings)


@pytest.mark.parametrize(
    ("observations", "message"), [({"z": 1}, "'z'"), ({"x0": 2}, "-1, 0 or 1"), ({"x0": 0.5}, "-1, 0 or 1")]
)
def test_evidence_that_the_model_cannot_have_is_refused(observations, message):
    with pytest.raises(PlannerError, match=message):
        Evidence.of(PairwiseMRF([1.0, 1.0], np.zeros((2, 2))), observations)


@pytest.mark.parametrize("values", [[1], [1, 2], [0.5, 0]])
def test_a_configuration_of_another_shape_or_value_is_refused(values):
    with pytest.raises(PlannerError, match="a configuration: found shape"):
        PairwiseMRF([1.0, 1.0], np.zeros((2, 2))).energy(values)


def test_models_on_other_features_have_no_difference():
    one, two = (PairwiseMRF([1.0], [[0.0]], features=[name]) for name in ("a", "b"))
    with pytest.raises(PlannerError, match="different features"):
        one - two


def test_a_feature_is_observed_at_most_once():
    state = Evidence.of(PairwiseMRF([1.0, 1.0], np.zeros((2, 2))), {"x0": 1})
    with pytest.raises(PlannerError, match="second observation"):
        state.observe(0, 1)


def test_the_arrays_of_a_model_cannot_be_written_to():
    mrf = PairwiseMRF([1.0], [[0.0]])
    with pytest.raises(ValueError, match="read-only"):
        mrf.unary[0] = 2.0
