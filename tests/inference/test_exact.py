"""Exact inference, against listing every configuration, and on the recorded bundle against its own identities."""

import tracemalloc

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from oracle import energies, models, observations, observed_models, posterior
from scipy.stats import chi2

from afa.errors import InferenceError, PlannerError
from afa.inference.elimination import Eliminated, best_values, components, min_fill
from afa.inference.exact import (
    estimate,
    exact,
    exact_expected_score,
    map_state,
    pair_moments,
    sample,
)
from afa.inference.meanfield import mean_field
from afa.model.mrf import LOG3, Evidence, PairwiseMRF

SIZES = (3, 7)


def evidence_of(mrf, observed):
    return Evidence.of(mrf, {mrf.features[j]: value for j, value in observed.items()})


def from_edges(n, edges, unary=0.3):
    couplings = np.zeros((n, n))
    for j, other in edges:
        couplings[j, other] = couplings[other, j] = 0.7
    return PairwiseMRF(np.full(n, unary), couplings)


def random_model(n, seed, density=1.0, strength=1.0):
    generator = np.random.default_rng(seed)
    upper = np.triu(generator.normal(size=(n, n)) * (generator.random((n, n)) < density), 1)
    return PairwiseMRF(strength * generator.normal(size=n), strength * (upper + upper.T))


@st.composite
def model_families(draw, count=3):
    """A model, others on the same features, and observations made of all of them."""
    n = draw(st.integers(*SIZES))
    family = [draw(models(sizes=(n, n))) for _ in range(count)]
    return family, draw(observations(family[0]))


@st.composite
def connected_parts(draw):
    """The largest component of a random model, in elimination order."""
    mrf = draw(models(sizes=SIZES))
    parts = components(Evidence.of(mrf))
    return max(parts, key=lambda part: part.n) if parts else components(Evidence.of(random_model(4, 0)))[0]


def reordered(part):
    """A component as a model of its own, features in elimination order."""
    return PairwiseMRF(part.terms[:, 2], part.coupling)


@given(observed_models(sizes=SIZES))
def test_marginals_and_log_partition_are_those_of_enumeration(case):
    mrf, observed = case
    table, probability, log_partition = posterior(mrf, observed)
    solution = exact(mrf, evidence_of(mrf, observed))
    hidden = [j for j in range(mrf.n_features) if j not in observed]
    assert solution.log_partition == pytest.approx(log_partition, abs=1e-9)
    np.testing.assert_allclose(solution.marginals.first[hidden], (probability @ table)[hidden], atol=1e-10)
    np.testing.assert_allclose(solution.marginals.second[hidden], (probability @ table**2)[hidden], atol=1e-10)


@given(observed_models(sizes=SIZES))
def test_pair_moments_are_those_of_enumeration(case):
    mrf, observed = case
    table, probability, _ = posterior(mrf, observed)
    state = evidence_of(mrf, observed)
    first, pairs = pair_moments(mrf, state)
    expected = (table.T @ (probability[:, None] * table))[np.ix_(state.free, state.free)]
    np.testing.assert_allclose(pairs, expected, atol=1e-10)
    np.testing.assert_allclose(first[state.free], (probability @ table)[state.free], atol=1e-10)


@given(model_families())
def test_expected_scores_are_those_of_enumeration(case):
    (mrf, *others), observed = case
    table, probability, _ = posterior(mrf, observed)
    scores = [evidence_of(other, observed) for other in (mrf, *others)]
    found = exact_expected_score(mrf, scores[0], scores)
    expected = [probability @ energies(other, table) for other in (mrf, *others)]
    np.testing.assert_allclose(found, expected, atol=1e-9)


@given(observed_models(sizes=SIZES))
def test_the_map_state_completes_the_observations_with_the_largest_energy(case):
    mrf, observed = case
    table, _, _ = posterior(mrf, observed)
    values, energy = map_state(mrf, evidence_of(mrf, observed))
    assert all(values[j] == value for j, value in observed.items())
    assert energy == mrf.energy(values)
    assert energy == pytest.approx(energies(mrf, table).max(), abs=1e-9)


@given(connected_parts())
def test_a_component_by_elimination_agrees_with_enumeration(part):
    model, solved = reordered(part), Eliminated.of(part)
    table, probability, log_partition = posterior(model, {})
    assert solved.log_partition == pytest.approx(log_partition, abs=1e-9)
    np.testing.assert_allclose(solved.moments()[0], probability @ table, atol=1e-10)
    np.testing.assert_allclose(solved.moments()[1], probability @ table**2, atol=1e-10)
    np.testing.assert_allclose(solved.pair_moments(), table.T @ (probability[:, None] * table), atol=1e-10)
    assert model.energy(best_values(part)) == pytest.approx(energies(model, table).max(), abs=1e-9)


def test_two_coupled_features_by_hand():
    mrf = PairwiseMRF([0.0, 0.0], [[0.0, 1.0], [1.0, 0.0]], prior=0.5)
    z = 5 + 2 * np.e + 2 / np.e
    solution = exact(mrf)
    _, pairs = pair_moments(mrf)
    assert solution.log_partition == pytest.approx(0.5 + np.log(z))
    np.testing.assert_allclose(solution.marginals.first, 0.0, atol=1e-15)
    np.testing.assert_allclose(solution.marginals.second, (2 + 2 * np.e + 2 / np.e) / z)
    assert pairs[0, 1] == pytest.approx((2 * np.e - 2 / np.e) / z)


def test_separate_components_are_independent():
    mrf = from_edges(6, [(0, 1), (1, 2), (4, 5)])
    first, pairs = pair_moments(mrf)
    assert pairs[0, 4] == pytest.approx(first[0] * first[4])
    assert pairs[0, 2] != pytest.approx(first[0] * first[2])
    pieces = [from_edges(3, [(0, 1), (1, 2)]), from_edges(1, []), from_edges(2, [(0, 1)])]
    assert exact(mrf).log_partition == pytest.approx(sum(exact(piece).log_partition for piece in pieces))


def test_sampled_configurations_occur_as_often_as_their_probability_says():
    mrf = random_model(4, seed=3)
    table, probability, _ = posterior(mrf, {})
    part = components(Evidence.of(mrf))[0]
    n = 40_000
    draws = np.zeros((n, 4), dtype=np.int8)
    draws[:, part.members] = Eliminated.of(part).draw(np.random.default_rng(0).random((n, 4)))
    counts = np.array([(draws == row).all(axis=1).sum() for row in table])
    assert counts.sum() == n
    common = n * probability >= 5
    expected = np.append((n * probability)[common], n * probability[~common].sum())
    found = np.append(counts[common], counts[~common].sum())
    assert ((found - expected) ** 2 / expected).sum() <= chi2.ppf(0.999, common.sum())


def test_samples_keep_the_observations_and_are_uniform_outside_the_support():
    mrf = PairwiseMRF([2.0, 0.0, 0.0, 0.0], np.diag([0.0, 1.0, 0.0], k=1) + np.diag([0.0, 1.0, 0.0], k=-1))
    draws = sample(mrf, {"x1": -1}, 30_000, generator=np.random.default_rng(1))
    assert draws.shape == (30_000, 4)
    assert (draws[:, 1] == -1).all()
    for value in (-1, 0, 1):
        assert np.mean(draws[:, 3] == value) == pytest.approx(1 / 3, abs=0.02)
    assert np.mean(draws, axis=0)[[0, 2]] == pytest.approx(exact(mrf, {"x1": -1}).marginals.first[[0, 2]], abs=0.02)


def test_the_same_seed_draws_the_same_samples():
    mrf = random_model(6, seed=1, density=0.5)
    one, two = (sample(mrf, None, 50, generator=np.random.default_rng(7)) for _ in range(2))
    np.testing.assert_array_equal(one, two)


def test_tied_completions_resolve_to_the_lowest_value_every_time():
    mrf = from_edges(4, [(0, 1), (1, 2), (2, 3)], unary=0.0)
    values, energy = map_state(mrf)
    assert values.tolist() == [-1, -1, -1, -1]
    assert energy == pytest.approx(2.1)


def test_a_map_state_is_zero_outside_the_support():
    assert map_state(PairwiseMRF([-1.0, 0.0], np.zeros((2, 2))))[0].tolist() == [-1, 0]


@pytest.mark.parametrize("size", [1e4, -1e4, 1e300])
def test_large_fields_that_contradict_each_other_stay_finite(size):
    n = 5
    unary = size * np.array([1.0, -1.0, 1.0, -1.0, 0.5])
    couplings = size / 4 * (np.ones((n, n)) - np.eye(n))
    mrf = PairwiseMRF(unary, couplings)
    solved = Eliminated.of(components(Evidence.of(mrf))[0])
    first, second = solved.moments()
    pairs = solved.pair_moments()
    assert np.isfinite(solved.log_partition)
    assert (np.abs(first) <= second + 1e-12).all()
    assert (second <= 1 + 1e-12).all()
    assert (np.abs(pairs) <= 1 + 1e-12).all()
    assert solved.log_partition >= map_state(mrf)[1] * (1 - 1e-12)


@pytest.mark.parametrize("strength", [1.0, 30.0, 1e4])
def test_no_probability_is_negative_however_certain_the_model(strength):
    for seed in range(5):
        mrf = random_model(10, seed, strength=strength)
        solution = exact(mrf)
        assert solution.marginals.probabilities.min() >= 0.0
        np.testing.assert_allclose(solution.marginals.probabilities.sum(axis=1), 1.0)


def test_opposite_certainties_meet_without_losing_the_whole_table():
    chain = np.diag([4000.0, 4000.0], k=1)
    mrf = PairwiseMRF([9000.0, 0.0, -9000.0], chain + chain.T)
    solution = exact(mrf)
    assert solution.marginals.first.tolist() == pytest.approx([1.0, 0.0, -1.0])
    assert solution.log_partition == pytest.approx(18_000.0 + LOG3)


def test_evidence_of_an_equal_model_is_as_good_and_of_another_is_refused():
    ours, equal = (PairwiseMRF([1.0, 0.0], [[0.0, 2.0], [2.0, 0.0]]) for _ in range(2))
    assert exact(ours, Evidence.of(equal, {"x0": 1})).log_partition == exact(ours, {"x0": 1}).log_partition
    for other in (
        PairwiseMRF([1.0, 0.0], [[0.0, 2.1], [2.1, 0.0]]),
        PairwiseMRF.from_probabilities(np.full((2, 3), 1 / 3), [[0.0, 2.0], [2.0, 0.0]]),
    ):
        with pytest.raises(PlannerError, match="evidence of another model"):
            exact(ours, Evidence.of(other, {"x0": 1}))


def test_an_empty_support_is_uniform():
    mrf = PairwiseMRF(np.zeros(4), np.zeros((4, 4)))
    solution = exact(mrf)
    assert solution.log_partition == pytest.approx(4 * LOG3)
    assert (solution.width, solution.cost.bytes) == (0, 0)
    assert solution.marginals.second.tolist() == [2 / 3] * 4
    assert map_state(mrf)[0].tolist() == [0, 0, 0, 0]


@given(models(), st.lists(st.sampled_from([-1, 0, 1]), min_size=6, max_size=6))
def test_at_full_observation_the_log_partition_is_the_energy(mrf, values):
    chosen = values[: mrf.n_features]
    state = evidence_of(mrf, dict(enumerate(chosen)))
    assert exact(mrf, state).log_partition == pytest.approx(mrf.energy(chosen), abs=1e-12)
    assert exact_expected_score(mrf, state, [state])[0] == pytest.approx(mrf.energy(chosen), abs=1e-12)
    assert map_state(mrf, state)[0].tolist() == chosen
    assert sample(mrf, state, 2, generator=np.random.default_rng(0)).tolist() == [chosen, chosen]


@pytest.mark.parametrize(
    ("edges", "width"),
    [
        ([(j, j + 1) for j in range(7)], 1),
        ([(j, (j + 1) % 8) for j in range(8)], 2),
        ([(j, k) for j in range(8) for k in range(j)], 7),
        ([(0, j) for j in range(1, 8)], 1),
    ],
    ids=["chain", "cycle", "complete", "star"],
)
def test_the_width_of_known_graphs(edges, width):
    assert estimate(from_edges(8, edges)).width == width


def test_min_fill_takes_fewest_neighbours_then_the_lowest_index_where_no_pair_is_new():
    triangle_with_a_tail = {0: 0b1110, 1: 0b0101, 2: 0b0011, 3: 0b0001}
    assert min_fill(triangle_with_a_tail)[0] == [3, 0, 1, 2]


def test_min_fill_takes_fewest_new_pairs_first_and_joins_the_neighbours_it_leaves():
    square_with_a_tail = {0: 0b01010, 1: 0b00101, 2: 0b01010, 3: 0b10101, 4: 0b01000}
    order, separators = min_fill(square_with_a_tail)
    assert order == [4, 0, 1, 2, 3]
    assert separators == [[3], [1, 3], [2, 3], [3], []]


def test_an_estimate_made_before_is_the_cost_reported_after():
    mrf = random_model(10, seed=2, density=0.4)
    assert exact(mrf).cost == estimate(mrf)


@pytest.mark.parametrize("pairs", [False, True])
def test_memory_held_stays_within_the_estimate(pairs):
    mrf = random_model(16, seed=5, density=0.6)
    expected = estimate(mrf, pairs=pairs)
    solve = pair_moments if pairs else exact
    tracemalloc.start()
    solve(mrf)
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert expected.width >= 9
    assert peak <= expected.bytes + 500_000


def test_a_model_too_large_is_refused_with_its_width_memory_time_and_a_next_step():
    with pytest.raises(InferenceError) as refusal:
        exact(random_model(40, seed=0))
    message = str(refusal.value)
    assert "elimination width 39 over 40 features" in message
    assert "TB of tables and" in message
    assert "at most 2 GB of tables" in message
    assert "use mean_field" in message


def test_every_question_of_a_model_too_large_is_refused():
    mrf = random_model(24, seed=0)
    questions = [
        lambda: pair_moments(mrf),
        lambda: exact_expected_score(mrf, None, [Evidence.of(mrf)]),
        lambda: map_state(mrf),
        lambda: sample(mrf, None, 1, generator=np.random.default_rng(0)),
    ]
    for question in questions:
        with pytest.raises(InferenceError):
            question()
    assert estimate(mrf).width == 23


def test_evidence_of_another_model_is_refused():
    mrf = random_model(4, seed=0)
    with pytest.raises(PlannerError, match="evidence of another model"):
        exact(mrf.scaled(0.5), Evidence.of(mrf))


def test_expected_scores_of_a_model_that_has_seen_something_else_are_refused():
    mrf = random_model(4, seed=0)
    with pytest.raises(PlannerError, match="different observations of x2"):
        exact_expected_score(mrf, {"x2": 1}, [Evidence.of(mrf, {"x2": 0})])


def test_expected_scores_of_a_model_on_other_features_are_refused():
    mrf = random_model(4, seed=0)
    renamed = PairwiseMRF(mrf.unary, mrf.couplings, features=("a", "b", "c", "d"))
    with pytest.raises(PlannerError, match="models on different features"):
        exact_expected_score(mrf, None, [Evidence.of(renamed)])


def test_the_elbo_is_below_the_exact_log_partition_on_every_recorded_entity(recorded_bundle):
    for entity in recorded_bundle.entities:
        mrf = recorded_bundle.mrf(entity)
        for model in (mrf, mrf.scaled(0.5), mrf.scaled(-0.5)):
            solution = exact(model)
            assert np.isfinite(solution.log_partition)
            assert mean_field(model).elbo <= solution.log_partition + 1e-9


def test_on_recorded_entities_log_partitions_add_up_over_the_values_of_a_feature(recorded_bundle):
    generator = np.random.default_rng(0)
    for entity in recorded_bundle.entities[::4]:
        mrf = recorded_bundle.mrf(entity)
        state = Evidence.of(mrf).observe(int(mrf.support[0]), 1)
        feature = int(generator.choice(state.free))
        before = exact(mrf, state)
        after = np.array([exact(mrf, state.observe(feature, value)).log_partition for value in (-1, 0, 1)])
        assert np.logaddexp.reduce(after) == pytest.approx(before.log_partition, abs=1e-9)
        found = np.exp(after - before.log_partition)
        assert found[2] - found[0] == pytest.approx(before.marginals.first[feature], abs=1e-10)


def test_a_difference_of_two_recorded_entities_is_solved(recorded_bundle):
    a, b = (recorded_bundle.mrf(entity) for entity in recorded_bundle.entities[:2])
    difference = a - b
    forth, back = exact(difference), exact(b - a)
    assert len(difference.support) > max(len(a.support), len(b.support))
    np.testing.assert_allclose(forth.marginals.probabilities.sum(axis=1), 1.0)
    assert forth.log_partition >= map_state(difference)[1]
    assert back.log_partition >= map_state(b - a)[1]
