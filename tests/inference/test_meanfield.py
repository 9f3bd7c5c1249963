"""Mean-field inference, against exact enumeration and its own fixed-point equation."""

import re

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from oracle import models, observed_models, posterior

from afa.errors import ConfigError, PlannerError
from afa.inference.exact import exact
from afa.inference.meanfield import Solver, mean_field, ternary_moments
from afa.model.mrf import LOG3, Evidence, PairwiseMRF


def solve(mrf, observations, **kwargs):
    return mean_field(mrf, Evidence.of(mrf, {mrf.features[j]: v for j, v in observations.items()}), **kwargs)


@given(observed_models())
def test_the_elbo_never_exceeds_the_log_partition(case):
    mrf, observations = case
    _, _, log_partition = posterior(mrf, observations)
    assert solve(mrf, observations).elbo <= log_partition + 1e-9


@given(observed_models(potentials=st.just(0.0)), st.floats(-5, 5))
def test_without_couplings_marginals_and_elbo_are_exact(case, field):
    mrf, observations = case
    alone = PairwiseMRF(np.full(mrf.n_features, field), np.zeros((mrf.n_features, mrf.n_features)), mrf.prior)
    table, probability, log_partition = posterior(alone, observations)
    solution = solve(alone, observations, solver=Solver(tolerance=1e-12))
    assert solution.elbo == pytest.approx(log_partition, abs=1e-9)
    free = solution.marginals.free
    np.testing.assert_allclose(solution.marginals.first[free], (probability @ table)[free], atol=1e-9)
    np.testing.assert_allclose(solution.marginals.second[free], (probability @ table**2)[free], atol=1e-9)


@given(models(), st.lists(st.sampled_from([-1, 0, 1]), min_size=6, max_size=6))
def test_at_full_observation_the_elbo_is_the_energy(mrf, values):
    observations = dict(enumerate(values[: mrf.n_features]))
    assert solve(mrf, observations).elbo == pytest.approx(mrf.energy(values[: mrf.n_features]), abs=1e-12)


@given(observed_models())
def test_a_converged_solution_satisfies_the_fixed_point_equation(case):
    mrf, observations = case
    solver = Solver(tolerance=1e-10, max_iterations=20_000)
    solution = solve(mrf, observations, solver=solver)
    state = Evidence.of(mrf, {mrf.features[j]: v for j, v in observations.items()})
    field = (state.field + mrf.couplings @ solution.marginals.first)[solution.marginals.free]
    m, q = ternary_moments(field)
    np.testing.assert_allclose(solution.marginals.first[solution.marginals.free], m, atol=1e-8)
    np.testing.assert_allclose(solution.marginals.second[solution.marginals.free], q, atol=1e-8)


def frustrated(n=12, strength=4.0):
    """All pairs repel strongly: parallel updates from a common start oscillate."""
    return PairwiseMRF(np.full(n, 0.5), -strength * (np.ones((n, n)) - np.eye(n)))


def test_a_solve_that_hits_the_cap_is_finished_by_coordinate_ascent_and_says_so():
    solution = mean_field(frustrated())
    assert not solution.converged
    assert solution.iterations == 200
    assert solution.ascended > 0
    assert solution.residual < 1e-4


def test_coordinate_ascent_does_not_end_below_where_the_damped_sweeps_stopped():
    stopped_early = mean_field(frustrated(), solver=Solver(max_iterations=200, tolerance=1e-12))
    uniform_elbo = 12 * LOG3
    assert stopped_early.elbo >= uniform_elbo


def test_features_outside_the_support_stay_uniform_and_count_log_three():
    mrf = PairwiseMRF([1.0, 0.0, 0.0], np.zeros((3, 3)))
    solution = mean_field(mrf)
    assert solution.marginals.free.tolist() == [0]
    assert solution.marginals.second.tolist()[1:] == [2 / 3, 2 / 3]
    assert solution.elbo == pytest.approx(np.log(1 + 2 * np.cosh(1.0)) + 2 * LOG3)


@pytest.mark.parametrize("size", [1e4, -1e4, 1e300])
def test_large_fields_stay_finite(size):
    mrf = PairwiseMRF([size, 1.0], [[0.0, 1.0], [1.0, 0.0]])
    solution = mean_field(mrf)
    assert np.isfinite(solution.elbo)
    assert np.isfinite(solution.marginals.first).all()
    np.testing.assert_allclose(solution.marginals.probabilities.sum(axis=1), 1.0)


def test_an_empty_support_is_solved_at_once():
    solution = mean_field(PairwiseMRF(np.zeros(4), np.zeros((4, 4))))
    assert (solution.iterations, solution.converged) == (0, True)
    assert solution.elbo == pytest.approx(4 * LOG3)


def test_a_warm_start_from_the_solution_stays_there():
    mrf = PairwiseMRF([0.5, -0.2, 0.1], [[0, 0.3, 0], [0.3, 0, 0.2], [0, 0.2, 0]])
    cold = mean_field(mrf)
    warm = mean_field(mrf, start=cold.marginals)
    assert warm.iterations < cold.iterations
    np.testing.assert_allclose(warm.marginals.first, cold.marginals.first, atol=1e-3)


@pytest.mark.parametrize(
    ("given", "named"),
    [
        ({"damping": 0.0}, "damping: found 0.0; expected a number above 0, at most 1"),
        ({"damping": True}, "damping: found True"),
        ({"tolerance": float("nan")}, "tolerance: found nan; expected a finite number above 0"),
        ({"tolerance": "1e-4"}, "tolerance: found '1e-4'"),
        ({"max_iterations": 0}, "max_iterations: found 0; expected a whole number, 1 or more"),
        ({"max_iterations": float("inf")}, "max_iterations: found inf"),
    ],
)
def test_a_solver_says_which_setting_does_not_fit(given, named):
    with pytest.raises(ConfigError, match=f"^solver option {re.escape(named)}"):
        Solver(**given)


@pytest.mark.parametrize("solve", [mean_field, exact])
def test_a_bundle_in_the_place_of_a_model_is_told_which_model(solve, bundle_tiny):
    with pytest.raises(PlannerError, match=r"found Bundle; expected a PairwiseMRF.*bundle.mrf\(name\)"):
        solve(bundle_tiny)
