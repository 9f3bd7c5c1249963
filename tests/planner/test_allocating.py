"""Many patients under a rule: the compiled engine chooses, ranks and certifies as the planner does."""

import numpy as np
import pytest
from bundles import QUARTERS, bundle_of, random_bundles, rearranged
from examples import examples
from hypothesis import given
from hypothesis import strategies as st
from linkage import linked

from afa.engine.budgets import duel_edges, new_budgets, update_budgets
from afa.engine.duels import all_pairs, duel
from afa.engine.layout import pack
from afa.engine.outcomes import READOUTS, follow_rule, full_observation
from afa.engine.patient import Patient
from afa.engine.rules import COMPILED
from afa.engine.state import condition, new_state, solve_all
from afa.engine.sweeps import Iteration
from afa.model.orders import random_order
from afa.model.rule_names import IN_THE_GRID, RULE_NAMES, WITHOUT_GAIN
from afa.planner import TopKPlanner
from afa.planner import rules as allocate
from afa.planner.cluster import clusters
from afa.planner.options import INFORMATION
from afa.planner.rules import RULES

GAINS = (("wald_magnitude", None), ("cmi", None), ("f_target", "linearity"))
INFORMATION_RULE = (INFORMATION, (INFORMATION, None))
SEVEN = {"entities": (2, 7), "features": (2, 5)}


def patients(data, bundle, most=3):
    rows = st.lists(st.sampled_from([-1, 0, 1]), min_size=len(bundle.features), max_size=len(bundle.features))
    return np.array(data.draw(st.lists(rows, min_size=1, max_size=most)), dtype=np.int8)


def follow(bundle, values, **options):
    names = [f"p{i}" for i in range(len(values))]
    orders = np.array([random_order(bundle.features, patient=name, seed=0) for name in names])
    return follow_rule(bundle, values, full_observation(bundle, values), orders=orders, threads=1, **options)


def places_of(planner, readout):
    """Entities ahead of each by more than its name, by the scores and the readable rule (decisions.md S6)."""
    scores, tie = planner._state.scores(readout), planner._state.packed.tie
    wins = (scores > tie).sum(axis=1) + 0.5 * ((np.abs(scores) <= tie).sum(axis=1) - 1)
    margin = scores.sum(axis=1)
    ahead = (wins[None, :] > wins[:, None]) | (
        (wins[None, :] == wins[:, None]) & (margin[None, :] - margin[:, None] > 1e-9)
    )
    return ahead.sum(axis=1)


@pytest.mark.parametrize(
    ("rule", "gain"), [(rule, gain) for rule in COMPILED for gain in GAINS if rule in RULES] + [INFORMATION_RULE]
)
@given(random_bundles(**SEVEN, potentials=QUARTERS), st.data())
@examples(8)
def test_every_choice_ranking_and_certificate_is_the_planners(rule, gain, bundle, data):
    values, k = patients(data, bundle), data.draw(st.integers(1, len(bundle.entities) - 1))
    paths = follow(bundle, values, allocation=rule, gain=gain[0], target=gain[1], k=k)
    for i, row in enumerate(values):
        planner = TopKPlanner(bundle, k=k, gain=gain[0], target=gain[1], allocation=rule, patient=f"p{i}", seed=0)
        for t, feature in enumerate([*paths.order[i], None]):
            name = planner.next_feature()
            assert name == (None if feature is None else bundle.features[feature]), (t, planner.reason)
            assert paths.certified[i, t] == planner.certified()
            assert paths.resolved[i, t] == len(planner.resolved())
            for readout, method in enumerate(READOUTS):
                assert paths.place[i, t, readout].tolist() == places_of(planner, method).tolist()
            if name is not None:
                assert paths.fallback[i, t] == planner.rule.choose(planner._view()).fallback
                planner.observe(name, int(row[feature]))
    assert not paths.resolved_wrong.any()


@given(random_bundles(**SEVEN, potentials=QUARTERS), st.data())
@examples(20)
def test_right_calls_are_counted_against_full_observation(bundle, data):
    values = patients(data, bundle)
    truth = full_observation(bundle, values)
    paths = follow(bundle, values, allocation="random", k=1)
    pairs = all_pairs(len(bundle.entities))
    for i, row in enumerate(values):
        state = Patient(bundle)
        prior = np.sign(state.scores("linearity"))[pairs[:, 0], pairs[:, 1]]
        assert truth.prior.tolist() == prior.tolist()
        for t in range(len(bundle.features) + 1):
            for readout, method in enumerate(READOUTS):
                calls = np.sign(state.scores(method))[pairs[:, 0], pairs[:, 1]]
                winner = truth.winner[i]
                credit = 0.5 * (1 + calls * winner)
                kinds = (winner != 0, winner > 0, (winner != 0) & (prior == -winner))
                expected = [credit[kind].sum() for kind in kinds]
                assert paths.right[i, t, readout].tolist() == expected
            if t < len(bundle.features):
                state.observe(paths.order[i, t], int(row[paths.order[i, t]]))
        assert truth.winner[i].tolist() == np.sign(state.scores("wald"))[pairs[:, 0], pairs[:, 1]].tolist()


@pytest.mark.parametrize("rule", COMPILED)
def test_candidates_ranked_once_are_used_up_in_that_order(rule):
    """Gains count before the first feature only: the order is that of the gains there, then decisions.md A7's."""
    rng = np.random.default_rng(4)
    bundle = bundle_of(rng.integers(-4, 5, (5, 6)) / 4, rng.integers(-2, 3, (5, 6, 6)) / 4)
    values = rng.integers(-1, 2, (4, 6)).astype(np.int8)
    every = follow(bundle, values, allocation=rule, gain="wald_magnitude", k=2)
    once = follow(bundle, values, allocation=rule, gain="wald_magnitude", k=2, rescoring=[0])
    assert (every.order[:, 0] == once.order[:, 0]).all()
    ranked = [row[~fallback].tolist() for row, fallback in zip(once.order, once.fallback, strict=True)]
    if rule != "random":
        assert all(ranking == ranked[0] for ranking in ranked), "the first ranking does not depend on the patient"
        assert all((np.diff(fallback.astype(int)) >= 0).all() for fallback in once.fallback)
    all_rounds = follow(bundle, values, allocation=rule, gain="wald_magnitude", k=2, rescoring=range(6))
    assert (all_rounds.order == every.order).all()


def test_fewer_rounds_are_the_first_rounds():
    rng = np.random.default_rng(5)
    bundle = bundle_of(rng.integers(-4, 5, (4, 6)) / 4, rng.integers(-2, 3, (4, 6, 6)) / 4)
    values = rng.integers(-1, 2, (3, 6)).astype(np.int8)
    few, all_ = (follow(bundle, values, allocation="greedy", gain="cmi", k=2, rounds=r) for r in (3, None))
    assert (few.order == all_.order[:, :3]).all()
    for part, whole in zip(few[2:], all_[2:], strict=True):
        assert (part == whole[:, :4]).all()


@pytest.mark.parametrize("rule", COMPILED)
def test_any_number_of_threads_gives_the_same_bytes(rule):
    rng = np.random.default_rng(6)
    bundle = bundle_of(rng.normal(size=(5, 6)), rng.normal(size=(5, 6, 6)))
    values = rng.integers(-1, 2, (9, 6)).astype(np.int8)
    truth = full_observation(bundle, values)
    orders = np.array([rng.permutation(6) for _ in values])
    one, two = (
        follow_rule(
            bundle, values, truth, allocation=rule, gain="f_target", target="linearity", k=2, orders=orders, threads=n
        )
        for n in (1, 2)
    )
    for array, other in zip(one, two, strict=True):
        assert array.tobytes() == other.tobytes()


@given(random_bundles(**SEVEN, potentials=QUARTERS), st.data())
@examples(15)
def test_no_rule_looks_at_where_entities_and_features_stand(bundle, data):
    values = patients(data, bundle, most=2)
    entities = data.draw(st.permutations(bundle.entities))
    features = data.draw(st.permutations(bundle.features))
    columns = [bundle.features.index(name) for name in features]
    moved = rearranged(bundle, entities, features)
    for rule in COMPILED:
        options = {"allocation": rule, "gain": "wald_magnitude", "k": 1}
        here, there = follow(bundle, values, **options), follow(moved, values[:, columns], **options)
        assert here.order.tolist() == np.array(columns)[there.order].tolist()


def test_the_names_of_the_rules_are_those_of_their_classes_those_of_the_grid_first():
    assert tuple(RULES) == RULE_NAMES
    assert RULE_NAMES[: len(IN_THE_GRID)] == IN_THE_GRID
    assert set(IN_THE_GRID) <= set(COMPILED), "the grid of every run has compiled rules alone"
    assert set(COMPILED) - set(RULE_NAMES) == {INFORMATION}, (
        "the rule that looks at entities needs the gain of its name"
    )
    assert [name for name, rule in RULES.items() if getattr(rule, "looks_at", "") == "nothing"] == list(WITHOUT_GAIN)
    assert all(getattr(allocate, RULES[rule].__name__) is RULES[rule] for rule in IN_THE_GRID)


# What the rules look at


@given(random_bundles(**SEVEN), st.data())
@examples(30)
def test_budgets_kept_up_to_date_are_those_summed_anew(bundle, data):
    packed, pairs = pack(bundle), all_pairs(len(bundle.entities))
    edges, state, iteration = duel_edges(packed, pairs), new_state(packed), Iteration(0.5, 1e-4, 200, False)
    solve_all(packed, state, iteration, True)
    budgets = new_budgets(packed, edges, state)
    patient = Patient(bundle)
    for feature in [None, *data.draw(st.permutations(range(len(bundle.features))))]:
        if feature is not None:
            value, before = data.draw(st.sampled_from([-1, 0, 1])), budgets.whole.copy()
            condition(packed, state, feature, value)
            solve_all(packed, state, iteration, True)
            patient.observe(feature, value)
            update_budgets(packed, edges, state, budgets, feature)
            held = np.isin(pairs, packed.owner[packed.feature == feature]).any(axis=1)
            assert (before[:, ~held] == budgets.whole[:, ~held]).all()
        anew = [duel(packed, state, a, b).budget for a, b in pairs]
        np.testing.assert_allclose(budgets.whole, [anew, anew], atol=1e-12)
        hidden, slot = (
            ~state.observed[packed.feature],
            np.repeat(np.arange(len(packed.feature)), np.diff(packed.first_edge)),
        )
        left = np.where(hidden[slot] & hidden[packed.other_slot], np.abs(packed.coupling) / 2, 0.0)
        budget = np.bincount(packed.owner, np.abs(state.field), minlength=len(packed.prior))
        budget += np.bincount(packed.owner[slot], left, minlength=len(budget))
        expected = state.constant[:, None] + np.outer(budget, [-1, 1])
        np.testing.assert_allclose(patient.intervals(), expected, atol=1e-12)


@given(st.integers(1, 9), st.integers(1, 4), st.integers(1, 4), st.data())
def test_compiled_clusters_are_those_that_are_linked_one_by_one(n, n_clusters, smallest, data):
    """Distances are whole numbers, so that there are ties."""
    numbers = data.draw(st.lists(st.integers(0, 4), min_size=n * n, max_size=n * n))
    distance = np.array(numbers, dtype=float).reshape(n, n)
    distance = np.triu(distance, 1) + np.triu(distance, 1).T
    names = data.draw(st.permutations([f"v{i}" for i in range(n)]))
    found = clusters(distance, names, n_clusters=n_clusters, smallest=smallest)
    assert {frozenset(part) for part in found} == linked(distance, names, n_clusters, smallest)
