"""Models of probabilities: the worked example, naive Bayes without couplings, and bounds over every completion."""

from itertools import product

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from afa.errors import BundleError, PlannerError
from afa.inference.exact import exact
from afa.inference.meanfield import Solver, mean_field
from afa.model.bundle.rates import explicit_models, slopes_bound
from afa.model.mrf import Evidence, PairwiseMRF, difference_terms
from afa.scores.bracket import duel_interval
from afa.scores.gain import cmi, wald_magnitude
from afa.scores.preference import duel_variance, linearity, wald

TIGHT = Solver(tolerance=1e-12, max_iterations=2000)
WITH = [[0, 0.2, 0.8], [0.1, 0.3, 0.6], [0.5, 0.5, 0]]
WITHOUT = [[0, 0.8, 0.2], [0.2, 0.6, 0.2], [0.1, 0.9, 0]]


def coupled(pairs, n=3):
    matrix = np.zeros((n, n))
    for (j, k), value in pairs.items():
        matrix[j, k] = matrix[k, j] = value
    return matrix


@pytest.fixture(scope="module")
def worked():
    """One task on three features, two of them with two values; a shared coupling and one of the entity."""
    return explicit_models(WITH, WITHOUT, coupled({(0, 1): 0.5}), coupled({(1, 2): -0.4}))


def observed(model, values):
    return Evidence.of(model, {f"x{j}": value for j, value in values.items()})


def log_odds(models, values):
    elbo = [mean_field(model, observed(model, values), solver=TIGHT).elbo for model in models]
    return elbo[0], elbo[1], elbo[0] - elbo[1]


def test_centres_and_linear_parts_are_those_of_the_probabilities(worked):
    np.testing.assert_allclose(worked[0].centre, [0.8, 0.5, -0.5])
    np.testing.assert_allclose(worked[1].centre, [0.2, 0.0, -0.1])
    np.testing.assert_allclose(worked[0].unary, [1.38629, 0.89588, 0.0], atol=1e-5)
    np.testing.assert_allclose(worked[1].unary, [-1.38629, 0.0, 2.19722], atol=1e-5)


def test_slopes_of_the_worked_example_leave_its_couplings_as_they_are(worked):
    np.testing.assert_allclose(slopes_bound(WITH), [0.25, 0.62020, 0.25], atol=1e-5)
    np.testing.assert_allclose(slopes_bound(WITHOUT), [0.25, 0.4, 0.25], atol=1e-5)
    np.testing.assert_allclose(worked[0].couplings.toarray()[[0, 1], [1, 2]], [0.5, -0.4])


def by_hand(table, pairs, centred):
    """Log Z, and P(x_0 = 1), of a table of three rows by a sum that uses nothing of ours."""
    centre = [row[2] - row[0] if centred else 0.0 for row in table]
    total = first = 0.0
    for x in product((-1, 0, 1), repeat=3):
        weight = table[0][x[0] + 1] * table[1][x[1] + 1] * table[2][x[2] + 1]
        weight *= np.exp(sum(psi * (x[j] - centre[j]) * (x[k] - centre[k]) for (j, k), psi in pairs.items()))
        total, first = total + weight, first + weight * (x[0] == 1)
    return np.log(total), first / total


def test_centred_couplings_hardly_move_the_exact_marginals_and_plain_ones_do(worked):
    pairs = {(0, 1): 0.5, (1, 2): -0.4}, {(0, 1): 0.5}
    for model, table, couplings in zip(worked, (WITH, WITHOUT), pairs, strict=True):
        found, expected = exact(model), by_hand(table, couplings, centred=True)
        assert found.log_partition == pytest.approx(expected[0], abs=1e-9)
        assert found.marginals.probabilities[0, 2] == pytest.approx(expected[1], abs=1e-9)
    plain = [by_hand(table, couplings, centred=False) for table, couplings in zip((WITH, WITHOUT), pairs, strict=True)]
    assert [marginal for _, marginal in plain] == pytest.approx([0.84846, 0.20809], abs=1e-5)
    assert plain[0][0] - plain[1][0] == pytest.approx(0.39045, abs=1e-5)


def test_exact_normalisers_and_marginals_of_the_worked_example(worked):
    one, zero = (exact(model) for model in worked)
    assert [one.log_partition, zero.log_partition] == pytest.approx([0.01886, 0.00805], abs=1e-5)
    assert one.marginals.probabilities[0, 2] == pytest.approx(0.79345, abs=1e-5)
    assert zero.marginals.probabilities[0, 2] == pytest.approx(0.20483, abs=1e-5)


@pytest.mark.parametrize(
    ("values", "expected_wald", "expected_one", "expected_zero", "expected_odds", "expected_exact"),
    [
        ({}, 0, 0, 0, 0, 0),
        ({0: 1}, 1.38629, -0.22091, -1.57752, 1.35662, 1.35421),
        ({0: 1, 1: 1}, 2.13491, -0.67898, -2.81888, 2.13990, 2.12910),
        ({0: 1, 1: 1, 2: -1}, 3.84434, -1.27712, -5.12146, 3.84434, 3.83354),
        ({1: 0}, -0.69315, -1.19373, -0.51083, -0.68291, -0.69371),
    ],
)
def test_scores_of_the_worked_example(
    worked, values, expected_wald, expected_one, expected_zero, expected_odds, expected_exact
):
    states = [observed(model, values) for model in worked]
    assert wald(states)[0, 1] == pytest.approx(expected_wald, abs=1e-5)
    assert log_odds(worked, values) == pytest.approx((expected_one, expected_zero, expected_odds), abs=1e-5)
    by_class = [exact(model, state).log_partition for model, state in zip(worked, states, strict=True)]
    kappa = exact(worked[0]).log_partition - exact(worked[1]).log_partition
    assert by_class[0] - by_class[1] - kappa == pytest.approx(expected_exact, abs=1e-5)


def test_gains_at_no_observation_of_the_worked_example(worked):
    states = [Evidence.of(model) for model in worked]
    marginals = [mean_field(model, solver=TIGHT).marginals for model in worked]
    assert linearity(states, marginals)[0, 1] == pytest.approx(0.13494, abs=1e-5)
    np.testing.assert_allclose(wald_magnitude(*states), [1.38629, 0.89588, 1.09861], atol=1e-5)
    gains = cmi(0.0, *marginals, observed=np.zeros(3, dtype=bool))
    np.testing.assert_allclose(gains, [0.19274, 0.08630, 0.10175], atol=1e-5)


def test_the_bracket_of_the_worked_example(worked):
    states = [observed(model, {0: 1}) for model in worked]
    unary, pairs = difference_terms(*states)
    np.testing.assert_allclose(unary[1], [-0.44315, -0.74315, 0.74861], atol=1e-5)
    np.testing.assert_allclose(unary[2, :2], [1.60944, -0.58779], atol=1e-5)
    assert [np.nanmin(pairs), np.nanmax(pairs)] == pytest.approx([-0.3, 0.3])
    assert duel_interval(*states) == pytest.approx((-0.24464, 4.04434), abs=1e-5)


def test_a_value_that_cannot_occur_is_refused(worked):
    with pytest.raises(PlannerError, match="feature x0: found -1; expected 0 or 1"):
        observed(worked[0], {0: -1})
    with pytest.raises(PlannerError, match="feature x2: found 1; expected -1 or 0"):
        worked[0].energy([1, 1, 1])


@pytest.mark.parametrize("row", [[0.5, 0, 0.5], [0.2, 0.2, 0.2], [-0.1, 1.1, 0.0], [0.5, 0.5]])
def test_rows_that_are_no_probabilities_are_refused(row):
    with pytest.raises(BundleError, match="three probabilities a feature that sum to 1"):
        PairwiseMRF.from_probabilities([row], [[0.0]])


@st.composite
def tasks(draw, couplings=True):
    """Probabilities of both classes on one to five features of two or three values, couplings, and a patient."""
    n = draw(st.integers(1, 5))
    probability = st.floats(0.02, 1)
    rows = []
    for _ in range(n):
        kind = draw(st.sampled_from([(1, 1, 1), (0, 1, 1), (1, 1, 0)]))
        rows.append([[draw(probability) * part for part in kind] for _ in range(2)])
    table = np.array(rows)
    table /= table.sum(axis=2, keepdims=True)
    weight = st.floats(-1, 1) if couplings else st.just(0.0)
    pairs = [{(j, k): draw(weight) for j in range(n) for k in range(j)} for _ in range(2)]
    models = explicit_models(table[:, 0], table[:, 1], coupled(pairs[0], n), coupled(pairs[1], n))
    values = {j: draw(st.sampled_from(np.flatnonzero(table[j, 0] > 0).tolist())) - 1 for j in range(n)}
    seen = draw(st.permutations(range(n)))[: draw(st.integers(0, n))]
    return models, table, {j: values[j] for j in seen}


@given(tasks(couplings=False))
def test_without_couplings_the_log_odds_are_naive_bayes_at_every_partial_observation(case):
    models, table, values = case
    expected = sum(np.log(table[j, 0, s + 1] / table[j, 1, s + 1]) for j, s in values.items())
    assert log_odds(models, values)[2] == pytest.approx(expected, abs=1e-9)
    states = [observed(model, values) for model in models]
    assert wald(states)[0, 1] == pytest.approx(expected, abs=1e-9)


@given(tasks())
def test_before_any_observation_marginals_are_the_elicited_ones_and_the_bounds_are_zero(case):
    models, table, _ = case
    for e, model in enumerate(models):
        solution = mean_field(model)
        assert solution.elbo == pytest.approx(0, abs=1e-12)
        first = table[:, e, 2] - table[:, e, 0]
        np.testing.assert_allclose(solution.marginals.first, first, atol=1e-12)


@given(tasks())
def test_exact_inference_is_the_sum_over_every_completion(case):
    models, table, values = case
    domain = [[values[j]] if j in values else (np.flatnonzero(row[0] > 0) - 1).tolist() for j, row in enumerate(table)]
    for model in models:
        energies = [model.energy(x) for x in product(*domain)]
        assert np.abs(energies).max() <= model.reach * (1 + 1e-12)
        found = exact(model, observed(model, values))
        assert found.log_partition == pytest.approx(np.logaddexp.reduce(energies), abs=1e-9)


@given(tasks())
def test_conditioning_moves_no_energy(case):
    models, _, values = case
    for model in models:
        state = observed(model, values)
        constant, terms = state.uncentred()
        rest = {j: 0 for j in range(model.n_features) if j not in values}
        left = constant + sum(terms[j, 1] for j in rest)
        assert left == pytest.approx(model.energy([values.get(j, 0) for j in range(model.n_features)]), abs=1e-9)


@given(tasks())
def test_the_bracket_covers_every_completion_and_what_is_never_measured(case):
    models, table, values = case
    low, high = duel_interval(*(observed(model, values) for model in models))
    domain = [[values[j]] if j in values else (np.flatnonzero(row[0] > 0) - 1).tolist() for j, row in enumerate(table)]
    scores = [models[0].energy(x) - models[1].energy(x) for x in product(*domain)]
    assert low - 1e-9 <= min(scores)
    assert max(scores) <= high + 1e-9
    odds = log_odds(models, values)[2]
    assert low - 1e-9 <= odds <= high + 1e-9
    assert min(scores) - 1e-6 <= odds <= max(scores) + 1e-6


@given(tasks())
def test_the_difference_of_two_models_is_the_difference_of_their_energies(case):
    models, table, values = case
    x = [values.get(j, 0) for j in range(len(table))]
    difference = models[0] - models[1]
    assert difference.energy(x) == pytest.approx(models[0].energy(x) - models[1].energy(x), abs=1e-9)


@given(tasks())
def test_one_starting_point_is_as_good_as_another(case):
    models, _, values = case
    for model in models:
        state = observed(model, values)
        found = mean_field(model, state, solver=TIGHT)
        far = PairwiseMRF.from_probabilities(
            np.where(model.possible, 1, 0) / model.possible.sum(axis=1)[:, None], 0 * model.couplings
        )
        start = mean_field(far, observed(far, values)).marginals
        other = mean_field(model, state, solver=TIGHT, start=start)
        assert other.elbo == pytest.approx(found.elbo, abs=1e-9)


@given(tasks())
def test_coordinate_ascent_ends_where_the_damped_iteration_does(case):
    models, _, values = case
    for model in models:
        state = observed(model, values)
        found = mean_field(model, state, solver=Solver(damping=0.01, tolerance=1e-12, max_iterations=20))
        assert found.residual < 1e-12
        assert found.elbo == pytest.approx(mean_field(model, state, solver=TIGHT).elbo, abs=1e-9)


def test_the_variance_of_a_duel_ranges_over_the_values_that_can_occur(worked):
    states = [Evidence.of(model) for model in worked]
    marginals = [mean_field(model).marginals for model in worked]
    unary, pairs = difference_terms(*states)
    mixed = (np.array(WITH) + np.array(WITHOUT)) / 2
    u = np.nan_to_num(unary)
    expected = ((mixed * u**2).sum(axis=1) - (mixed * u).sum(axis=1) ** 2).sum()
    expected += sum(((np.nanmax(w) - np.nanmin(w)) / 2) ** 2 for w in pairs)
    assert duel_variance(*states, *marginals) == pytest.approx(expected)
