"""The compiled engine gives the numbers of the readable functions."""

from itertools import combinations, product

import numpy as np
from bundles import bundle_of, random_bundles
from examples import examples
from hypothesis import given
from hypothesis import strategies as st
from oracle import completions, energies

from afa.engine.paths import sign_paths, snapshots
from afa.inference.meanfield import Solver, mean_field
from afa.model.bundle import Bundle
from afa.model.mrf import Evidence
from afa.model.orders import random_order
from afa.planner import TopKPlanner
from afa.scores.bracket import l1_interval
from afa.scores.preference import linearity, wald


def draw_observations(bundle, data):
    """Some features of a bundle, in a drawn order, with drawn values."""
    names = data.draw(st.lists(st.sampled_from(bundle.features), unique=True))
    return {name: data.draw(st.sampled_from([-1, 0, 1])) for name in names}


def readable(bundle: Bundle, observations: dict[str, int], solver: Solver | None = None):
    """Scores of every duel by the small functions."""
    evidence = [Evidence.of(bundle.mrf(entity), observations) for entity in bundle.entities]
    solutions = [mean_field(state.mrf, state, solver=solver) for state in evidence]
    return wald(evidence), linearity(evidence, [solution.marginals for solution in solutions]), solutions


@given(random_bundles(), st.data())
@examples(40)
def test_the_planner_gives_the_scores_of_the_readable_functions_at_any_observed_set(bundle, data):
    observations = draw_observations(bundle, data)
    expected_wald, expected_linearity, _ = readable(bundle, observations)
    for score, expected in (("wald", expected_wald), ("linearity", expected_linearity)):
        planner = TopKPlanner(bundle, k=1, score=score)
        for name, value in observations.items():
            planner.observe(name, value)
        np.testing.assert_allclose(planner.scores(), expected, atol=1e-9)


@given(random_bundles(), st.data())
@examples(40)
def test_a_resolved_duel_is_one_whose_tight_bracket_excludes_zero(bundle, data):
    observations = draw_observations(bundle, data)
    planner = TopKPlanner(bundle, k=1)
    for name, value in observations.items():
        planner.observe(name, value)
    expected = set()
    for a, b in combinations(bundle.entities, 2):
        low, high = l1_interval(Evidence.of(bundle.mrf(a) - bundle.mrf(b), observations))
        if low > 1e-9:
            expected.add((a, b))
        if high < -1e-9:
            expected.add((b, a))
    assert set(planner.resolved()) == expected


@given(random_bundles(), st.data())
@examples(30)
def test_a_resolved_duel_keeps_its_winner_under_every_completion(bundle, data):
    observations = draw_observations(bundle, data)
    planner = TopKPlanner(bundle, k=1)
    for name, value in observations.items():
        planner.observe(name, value)
    index = {name: j for j, name in enumerate(bundle.features)}
    table = completions(bundle.mrf(bundle.entities[0]), {index[name]: v for name, v in observations.items()})
    energy = {entity: energies(bundle.mrf(entity), table) for entity in bundle.entities}
    for winner, loser in planner.resolved():
        assert (energy[winner] > energy[loser]).all()


@given(random_bundles(), st.data())
@examples(20)
def test_paths_of_many_patients_are_the_planner_at_every_round(bundle, data):
    m = len(bundle.features)
    values = np.array([[data.draw(st.sampled_from([-1, 0, 1])) for _ in range(m)] for _ in range(2)], dtype=np.int8)
    orders = np.array([[random_order(bundle.features, patient=str(p), seed=s) for s in range(2)] for p in range(2)])
    paths = sign_paths(bundle, values, orders)
    for p, s in product(range(2), range(2)):
        planners = {score: TopKPlanner(bundle, k=1, score=score) for score in ("wald", "linearity")}
        for t in range(m + 1):
            for score, planner in planners.items():
                upper = np.sign(planner.scores())[tuple(paths.pairs.T)]
                np.testing.assert_array_equal(paths.signs[score][p, s, t], upper)
                if t < m:
                    feature = orders[p, s, t]
                    planner.observe(bundle.features[feature], int(values[p, feature]))


def test_one_and_two_threads_give_the_same_bytes(bundle_tiny):
    values = np.random.default_rng(1).integers(-1, 2, (20, 5)).astype(np.int8)
    orders = np.array([[random_order(bundle_tiny.features, patient=str(p), seed=0)] for p in range(20)])
    one, two = (sign_paths(bundle_tiny, values, orders, threads=n) for n in (1, 2))
    for name in ("iterations", "capped", "ascended", "solves"):
        assert getattr(one, name).tobytes() == getattr(two, name).tobytes()
    for name in one.signs:
        assert one.signs[name].tobytes() == two.signs[name].tobytes()


def test_only_entities_that_hold_the_new_feature_are_solved_again(bundle_tiny):
    m = len(bundle_tiny.features)
    orders = np.arange(m)[None, None, :]
    paths = sign_paths(bundle_tiny, np.ones((1, m), dtype=np.int8), orders)
    holders = [sum(j in bundle_tiny.support(entity) for entity in bundle_tiny.entities) for j in range(m)]
    assert paths.solves[0, 0].tolist() == [len(bundle_tiny.entities), *holders]


def test_a_warm_start_is_followed_and_can_end_elsewhere():
    couplings = np.zeros((2, 4, 4))
    couplings[0] = 1.5 * (1 - np.eye(4))
    bundle = bundle_of([[0.2] * 4, [0.0] * 4], couplings)
    values, orders = -np.ones((1, 4), dtype=np.int8), np.arange(4)[None, None, :]
    cold, warm = (sign_paths(bundle, values, orders, start=start) for start in ("uniform", "warm"))
    assert warm.iterations.sum() != cold.iterations.sum()
    np.testing.assert_array_equal(warm.signs["wald"], cold.signs["wald"])


def test_entities_with_equal_potentials_tie_at_every_round():
    couplings = np.repeat(np.triu(np.ones((1, 3, 3)), 1), 2, axis=0)
    bundle = bundle_of([[0.3, -0.1, 0.7]] * 2, couplings)
    values, orders = np.array([[1, -1, 0]], dtype=np.int8), np.arange(3)[None, None, :]
    paths = sign_paths(bundle, values, orders)
    for name in ("wald", "linearity", "two_elbo", "stack_a", "kl_nonzero"):
        assert not paths.signs[name].any()


def test_the_recorded_bundle_reaches_full_observation_with_the_energy_of_each_entity(recorded_bundle):
    rng = np.random.default_rng(0)
    planner = TopKPlanner(recorded_bundle, k=5, score="linearity")
    values = dict(zip(recorded_bundle.features, rng.integers(-1, 2, len(recorded_bundle.features)), strict=True))
    for name in rng.permutation(recorded_bundle.features):
        planner.observe(str(name), int(values[name]))
    energy = np.array(
        [recorded_bundle.mrf(entity).energy(list(values.values())) for entity in recorded_bundle.entities]
    )
    np.testing.assert_allclose(planner.scores(), energy[:, None] - energy[None, :], atol=1e-9)
    ties = int((np.triu(energy[:, None] == energy[None, :], 1)).sum())
    assert len(planner.resolved()) == 300 - ties


def test_the_recorded_bundle_is_solved_as_the_readable_functions_solve_it(recorded_bundle):
    rng = np.random.default_rng(3)
    observations = {str(name): int(rng.integers(-1, 2)) for name in rng.permutation(recorded_bundle.features)[:60]}
    _, expected, _ = readable(recorded_bundle, observations)
    planner = TopKPlanner(recorded_bundle, k=5)
    for name, value in observations.items():
        planner.observe(name, value)
    np.testing.assert_allclose(planner.scores(), expected, atol=1e-9)


def test_snapshots_without_duels_are_those_with_them_less_the_duels():
    draw = np.random.default_rng(5)
    bundle = bundle_of(draw.normal(0, 1, (3, 5)), draw.normal(0, 1, (3, 5, 5)))
    values = draw.integers(-1, 2, (4, 5)).astype(np.int8)
    orders = np.array([draw.permutation(5) for _ in values])
    whole = snapshots(bundle, values, orders, [0, 2, 5], threads=1)
    part = snapshots(bundle, values, orders, [0, 2, 5], duels=False, threads=1)
    for name in ("constant", "elbo", "m", "q", "cross"):
        assert np.array_equal(getattr(part, name), getattr(whole, name))
    assert whole.mean.shape == (4, 3, 3)
    assert part.mean.size == part.calls.size == len(part.pairs) == 0
