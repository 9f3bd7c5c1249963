"""Duels read out in two gauges by the engine are what the readable functions say of them."""

from __future__ import annotations

from itertools import combinations

import numpy as np
import pytest
from bundles import QUARTERS, bundle_of, random_bundles, rearranged
from examples import examples
from hypothesis import given
from hypothesis import strategies as st

from afa.engine.gauges import SCORE_GAUGES, GaugePaths, gauge_paths
from afa.inference.meanfield import MeanField, Solver, mean_field
from afa.model.bundle import Bundle
from afa.model.closure import half_potentials
from afa.model.mrf import Evidence, PairwiseMRF
from afa.scores.preference import stack_a, tie_of, two_elbo, wald

ELICITED = st.sampled_from([0.0, 0.0, 1.0, -1.0])
SCALARS = [reading for reading in SCORE_GAUGES if reading[0] != "wald"]


def solved(models: tuple[PairwiseMRF, PairwiseMRF], known: dict[str, int], solver: Solver):
    evidence = [Evidence.of(model, known) for model in models]
    return evidence, [mean_field(state.mrf, state, solver=solver) for state in evidence]


def readable(bundle: Bundle, a: str, b: str, known: dict[str, int], solver: Solver):
    """Scores of one duel by (method, gauge), and the solves of its closure."""
    entities = bundle.mrf(a), bundle.mrf(b)
    scores: dict[tuple[str, str], float] = {}
    closure: list[MeanField] = []
    for gauge, models in (("true", entities), ("maxent", half_potentials(entities[0] - entities[1]))):
        evidence, closure = solved(models, known, solver)
        scores["two_elbo", gauge] = two_elbo(closure)[0, 1]
        scores["stack_a", gauge] = stack_a(evidence, [solution.marginals for solution in closure])[0, 1]
        scores["wald", ""] = wald(evidence)[0, 1]
    return scores, closure


def walk(bundle: Bundle, values: np.ndarray, order: list[int]):
    """What is known at each round, by feature name."""
    for t in range(len(order) + 1):
        yield t, {bundle.features[f]: int(values[f]) for f in order[:t]}


def paths_of(bundle: Bundle, values, order, solver: Solver | None = None, threads: int = 1) -> GaugePaths:
    """One patient, one order, scalars at every round."""
    return gauge_paths(
        bundle,
        np.array([values], dtype=np.int8),
        np.array([[order]], dtype=np.int64),
        range(len(order) + 1),
        solver=solver,
        threads=threads,
    )


@st.composite
def trajectories(draw, **kwargs):
    bundle = draw(random_bundles(**kwargs))
    m = len(bundle.features)
    values = draw(st.lists(st.sampled_from([-1, 0, 1]), min_size=m, max_size=m))
    return bundle, np.array(values, dtype=np.int8), draw(st.permutations(range(m)))


@given(
    st.one_of(trajectories(entities=(2, 3)), trajectories(entities=(2, 3), features=(5, 8), potentials=ELICITED)),
    st.sampled_from([Solver(), Solver(max_iterations=4)]),
)
@examples(20)
def test_scores_in_both_gauges_are_those_of_the_readable_functions_at_every_round(trajectory, solver):
    bundle, values, order = trajectory
    paths = paths_of(bundle, values, order, solver)
    tie = tie_of([bundle.mrf(entity) for entity in bundle.entities])
    for p, (a, b) in enumerate(combinations(bundle.entities, 2)):
        for t, known in walk(bundle, values, order):
            expected, _ = readable(bundle, a, b, known, solver)
            for reading in SCALARS:
                found = paths.scalars[reading][0, 0, t, p]
                np.testing.assert_allclose(found, expected[reading], rtol=0, atol=1e-9, err_msg=f"{reading}, t = {t}")
                assert paths.signs[reading][0, 0, t, p] == (abs(found) > tie) * np.sign(found)
            lead = expected["wald", ""]
            assert paths.signs["wald", ""][0, 0, t, p] == (abs(lead) > tie) * np.sign(lead)


@given(trajectories(entities=(2, 4), potentials=QUARTERS))
@examples(40)
def test_at_full_observation_both_gauges_are_the_difference_of_the_energies(trajectory):
    bundle, values, order = trajectory
    paths = paths_of(bundle, values, order)
    energy = [bundle.mrf(entity).energy(values) for entity in bundle.entities]
    for p, (a, b) in enumerate(paths.pairs):
        for gauge in ("true", "maxent"):
            assert abs(paths.scalars["two_elbo", gauge][0, 0, -1, p] - (energy[a] - energy[b])) < 1e-12
            assert paths.scalars["stack_a", gauge][0, 0, -1, p] == np.sign(energy[a] - energy[b])


@given(trajectories(entities=(2, 2), features=(3, 6), potentials=ELICITED))
@examples(40)
def test_exchanging_the_two_entities_turns_every_score_round(trajectory):
    bundle, values, order = trajectory
    one, other = (
        paths_of(given_bundle, values, order)
        for given_bundle in (bundle, rearranged(bundle, entities=bundle.entities[::-1]))
    )
    for reading in SCALARS:
        np.testing.assert_allclose(one.scalars[reading], -other.scalars[reading], rtol=0, atol=1e-9)


def two_islands() -> Bundle:
    """Two entities, u and v, on f0 and f1; w on f2 alone; nobody on f3."""
    unary = np.array([[1.0, -1.0, 0, 0], [-1.0, 0.5, 0, 0], [0, 0, 1.0, 0]])
    couplings = np.zeros((3, 4, 4))
    couplings[0, 0, 1] = couplings[1, 0, 1] = 1.0
    couplings[1, 0, 1] = -0.5
    return bundle_of(unary, couplings, entities=("u", "v", "w"))


def test_a_feature_outside_both_supports_changes_no_bit_of_a_duel() -> None:
    paths = paths_of(two_islands(), [1, -1, 1, -1], [3, 2, 0, 1])
    for reading in SCALARS:
        uv, uw, _ = paths.scalars[reading][0, 0].T
        assert uv[0] == uv[1] == uv[2]
        assert uw[0] == uw[1] != uw[2]
        assert uv[2] != uv[3]


def test_log_3_is_counted_for_what_lies_outside_the_support_of_one_entity() -> None:
    # without couplings log Z is a sum over features: 1 + 2 cosh 1 for each held one, 3 for each other
    bundle = bundle_of([[1.0, 1.0, 0.0], [0.0, 0.0, 1.0]], np.zeros((2, 3, 3)))
    undamped = Solver(damping=1.0)
    at_start = paths_of(bundle, [0, 0, 0], [0, 1, 2], undamped).scalars["two_elbo", "true"][0, 0, 0, 0]
    assert at_start == pytest.approx(np.log((1 + 2 * np.cosh(1.0)) / 3), abs=1e-12)


def test_the_closure_of_a_unary_duel_has_no_preference_before_any_observation() -> None:
    bundle = bundle_of([[1.0, -0.5], [-1.0, 2.0]], np.zeros((2, 2, 2)))
    paths = paths_of(bundle, [1, 1], [0, 1])
    for method in ("two_elbo", "stack_a"):
        assert paths.scalars[method, "maxent"][0, 0, 0, 0] == 0.0
        assert paths.signs[method, "maxent"][0, 0, 0, 0] == 0


def many(bundle: Bundle, n_patients: int, n_orders: int):
    generator = np.random.default_rng(5)
    m = len(bundle.features)
    values = generator.integers(-1, 2, (n_patients, m)).astype(np.int8)
    orders = np.array([[generator.permutation(m) for _ in range(n_orders)] for _ in range(n_patients)])
    return values, orders


def test_threads_and_the_choice_of_patients_do_not_show_in_any_bit(bundle_tiny: Bundle) -> None:
    values, orders = many(bundle_tiny, 6, 2)
    whole = gauge_paths(bundle_tiny, values, orders, [0, 2, 5], threads=1)
    threaded = gauge_paths(bundle_tiny, values, orders, [0, 2, 5], threads=2)
    part = gauge_paths(bundle_tiny, values[4:], orders[4:], [0, 2, 5], threads=2)
    for field, patients in (("signs", 0), ("scalars", 0), ("counts", 1)):
        for key, expected in getattr(whole, field).items():
            assert getattr(threaded, field)[key].tobytes() == expected.tobytes()
            rows = expected[4:] if patients == 0 else expected[:, 4:]
            assert getattr(part, field)[key].tobytes() == rows.tobytes()


def test_the_solves_of_a_round_are_those_of_the_duels_that_its_feature_concerns() -> None:
    bundle, values, order = two_islands(), [1, -1, 1, -1], [3, 2, 0, 1]
    paths = paths_of(bundle, values, order)
    solves = {model: counts[0, 0, 0].tolist() for model, counts in paths.counts.items()}
    assert solves == {"entity": [3, 0, 1, 2, 2], "half_positive": [3, 0, 2, 3, 3], "half_negative": [3, 0, 2, 3, 3]}


@given(trajectories(entities=(2, 2), features=(4, 7), potentials=ELICITED))
@examples(30)
def test_sweeps_are_counted_as_the_readable_solver_counts_them(trajectory):
    bundle, values, order = trajectory
    solver = Solver(max_iterations=8)
    paths = paths_of(bundle, values, order, solver)
    held = set(bundle.support(bundle.entities[0])) | set(bundle.support(bundle.entities[1]))
    for t, known in walk(bundle, values, order):
        _, closure = readable(bundle, *bundle.entities, known, solver)
        for model, solution in zip(("half_positive", "half_negative"), closure, strict=True):
            alike = int(bool(held - set(order[:t])) and not solution.iterations)  # one sweep shows that nothing differs
            expected = [1, solution.iterations + alike, int(not solution.converged), solution.ascended]
            concerned = t == 0 or order[t - 1] in held
            assert paths.counts[model][:, 0, 0, t].tolist() == (expected if concerned else [0, 0, 0, 0])
