"""Exclusive groups in the engine: one variable each, as planners and sums over all states that can be have them."""

from itertools import product

import numpy as np
import pytest
from rated import rated
from scipy.special import log_softmax

from afa.engine.follow import choose, follow
from afa.engine.run import CERTAIN, DUELS, ENTITIES, MISSING
from afa.engine.tasks import classes_of, elbo_differences, follow_gain, follow_orders, task_of
from afa.errors import CohortError
from afa.evaluate.entrants import which
from afa.inference.meanfield import Solver
from afa.model.bundle.rates import exclusive_log_odds, group_states
from afa.planner import BinaryPlanner, TopKPlanner

TIGHT = Solver(tolerance=1e-13, max_iterations=4000)
SEEDS = range(12)


def patients(found, rng, *, gaps=False):
    values = np.array([found.values(rng) for _ in range(3)], dtype=np.int8)
    if gaps:
        values[rng.random(values.shape) < 0.25] = MISSING
    return values


def in_the_open(bundle, chances, group):
    """(2, M, 3) log-probabilities of the values of either class, and (2, g + 1) of the group's states, none last."""
    states = np.array([group_states(chance[list(group), 2], bundle.floor) for chance in chances])
    with np.errstate(divide="ignore"):
        return np.log(chances), np.log(np.column_stack([states, 1 - states.sum(axis=1)]))


def by_hand(bundle, entity, known):
    """Log-odds of an entity given some values by index, without couplings: every state of the group that agrees."""
    group = bundle.exclusive[0][1]
    logs, states = in_the_open(bundle, bundle.how_often(entity)[:2], group)
    total = float(bundle.priors[bundle.index(entity)])
    total += sum(logs[0, j, s + 1] - logs[1, j, s + 1] for j, s in known.items() if j not in group)
    agree = [all(known.get(j, (j == at) * 1) == (j == at) for j in group) for at in (*group, None)]
    return total + np.logaddexp.reduce(states[0, agree]) - np.logaddexp.reduce(states[1, agree])


@pytest.mark.parametrize("seed", SEEDS)
def test_without_couplings_log_odds_are_sums_over_all_states_of_the_group(seed):
    rng = np.random.default_rng(seed)
    found = rated(rng, n=1, m=6, group=int(rng.integers(2, 5)), coupled=False)
    bundle, values = found.bundle, patients(found, rng, gaps=True)
    orders = np.array([rng.permutation(6) for _ in values])
    read = follow(classes_of(bundle, "v0", "explicit", 0.9), values, orders, ENTITIES, solver=TIGHT, threads=1)
    observed = np.arange(6)[None, None] < 0
    for i, order in enumerate(orders):
        for t in range(7):
            known = {int(j): int(values[i, j]) for j in order[:t] if values[i, j] != MISSING}
            expected = by_hand(bundle, "v0", known)
            for score in (read.constant, read.elbo):
                assert score[i, t, 0] - score[i, t, 1] == pytest.approx(expected, abs=1e-9)
            observed = np.isin(np.arange(6), list(known))
            alone = elbo_differences(bundle, "v0", observed[None], values[i : i + 1], coupling="explicit", threads=1)
            assert alone.calibrated == pytest.approx(expected, abs=1e-9)
            planner = BinaryPlanner(bundle, entity="v0")
            if known:
                planner.observe_all({bundle.features[j]: s for j, s in known.items()})
            assert planner.log_odds() == pytest.approx(expected, abs=1e-9)


@pytest.mark.parametrize("seed", SEEDS)
def test_paths_and_choices_are_those_of_the_planner(seed):
    rng = np.random.default_rng(100 + seed)
    found = rated(rng, n=1, m=7, group=int(rng.integers(2, 5)))
    bundle, values = found.bundle, patients(found, rng)
    task = task_of(bundle, "v0", solver=TIGHT, coupling="explicit")
    for gain in ("cmi", "wald_magnitude"):
        order = choose(task.bundle, values, allocation="greedy", gain=gain, k=1, solver=TIGHT, threads=1).order
        paths = follow_gain(task, values, gain=gain)
        for i, row in enumerate(values):
            planner = BinaryPlanner(bundle, entity="v0", gain=gain, solver=TIGHT)
            for t in range(8):
                feature = planner.next_feature()
                at = np.flatnonzero(paths.t[i, 0] <= t)[-1]
                assert paths.two_elbo[i, 0, at] == pytest.approx(planner.log_odds(), abs=1e-8)
                assert bool(paths.calls[i, 0, at, 0]) == planner.certain()
                assert (feature is None) == (order[i, t] < 0) if t < 7 else feature is None
                if feature is None:
                    break
                assert feature == bundle.features[order[i, t]]
                planner.observe(feature, int(row[order[i, t]]))


@pytest.mark.parametrize("seed", SEEDS)
def test_brackets_hold_every_completion_and_whatever_is_never_measured(seed):
    rng = np.random.default_rng(200 + seed)
    found = rated(rng, n=1, m=4, group=3, coupled=bool(seed % 2))
    bundle, values = found.bundle, patients(found, rng)
    possible = [np.append(np.flatnonzero(row) - 1, np.nan) for row in bundle.possible]
    group = list(bundle.exclusive[0][1])
    every = np.array([x for x in product(*possible) if np.nansum([x[j] for j in group]) <= 1])
    scores = bundle.energies(every, "explicit")[:, 0]
    orders = np.array([rng.permutation(4) for _ in values])
    models = classes_of(bundle, "v0", "explicit", 0.9)
    read = follow(models, values, orders, ENTITIES | DUELS | CERTAIN, gain="cmi", k=1, solver=TIGHT, threads=1)
    for i, order in enumerate(orders):
        for t in range(5):
            agrees = (every[:, order[:t]] == values[i, order[:t]]).all(axis=1)
            lead = read.constant[i, t, 0] - read.constant[i, t, 1]
            low, high = lead - read.sums[i, t, 0, 0], lead + read.sums[i, t, 0, -1]
            assert low - 1e-9 <= scores[agrees].min()
            assert high + 1e-9 >= scores[agrees].max()
            if not seed % 2:  # each term can then be at its own end
                assert (low, high) == pytest.approx((scores[agrees].min(), scores[agrees].max()), abs=1e-9)
            assert read.resolved[i, t, 0] == (low > 1e-9 or high < -1e-9)


@pytest.mark.parametrize("seed", SEEDS)
def test_the_expected_score_and_its_variance_are_those_of_one_variable(seed):
    rng = np.random.default_rng(300 + seed)
    found = rated(rng, n=1, m=4, group=4, speaks=1.0)
    bundle, values = found.bundle, patients(found, rng)
    group, states = range(4), in_the_open(bundle, bundle.how_often("v0")[:2], range(4))[1]
    models = classes_of(bundle, "v0", "explicit", 0.9)
    orders = np.array([rng.permutation(4) for _ in values])
    read = follow(models, values, orders, ENTITIES | DUELS, solver=TIGHT, threads=1)
    for i, order in enumerate(orders):
        for t in range(5):
            seen = set(order[:t])
            agree = [all(values[i, j] == (j == at) for j in seen) for at in (*group, None)]
            chance = np.exp(log_softmax(states[:, agree], axis=1)).mean(axis=0)
            told = bundle.priors[0] + states[0, agree] - states[1, agree]
            assert read.mean[i, t, 0] == pytest.approx(chance @ told, abs=1e-9)
            variance = chance @ (told - chance @ told) ** 2
            assert read.sums[i, t, 0, 2] == pytest.approx(variance, abs=1e-9)


@pytest.mark.parametrize("nobody", [None, "nobody"])
@pytest.mark.parametrize("seed", SEEDS)
def test_which_entity_holds_is_what_a_planner_says(seed, nobody):
    rng = np.random.default_rng(400 + seed)
    found = rated(rng, n=3, m=6, group=3, holds="one or none" if nobody else "one")
    bundle, values = found.bundle, patients(found, rng)
    orders = np.array([rng.permutation(6) for _ in values])
    evidence = which(bundle, nobody).along(values, orders, range(7))
    for i, order in enumerate(orders):
        planner = TopKPlanner(bundle, k=1)
        for t in range(7):
            said = np.exp(log_softmax(evidence[i, t]))
            assert said[:3] == pytest.approx(planner.posterior(), abs=1e-5)
            if t < 6 and bundle.features[order[t]] not in planner.observed:
                planner.observe(bundle.features[order[t]], int(values[i, order[t]]))


def test_two_members_at_once_are_refused_with_their_row():
    found = rated(np.random.default_rng(0), n=1, m=4, group=3, speaks=1.0)
    bundle, group = found.bundle, list(found.bundle.exclusive[0][1])
    values = np.zeros((2, 4), dtype=np.int8)
    values[1, group[:2]] = 1
    first, second = (bundle.features[j] for j in group[:2])
    message = f"values, row 1: found {first} and {second} at 1; expected at most one of an exclusive group"
    task = task_of(bundle, "v0", coupling="explicit")
    with pytest.raises(CohortError, match=message):
        follow_orders(task, values, np.tile(np.arange(4), (2, 1, 1)))
    with pytest.raises(CohortError, match=message):
        follow_gain(task, values, gain="cmi")
    with pytest.raises(CohortError, match=message):
        elbo_differences(bundle, "v0", np.ones((2, 4), dtype=bool), values, coupling="explicit", threads=1)


def test_values_of_some_features_alone_say_the_same():
    rng = np.random.default_rng(1)
    found = rated(rng, n=2, m=6, group=3, speaks=0.5)
    values = np.array([found.values(rng) for _ in range(5)])
    for entity in found.bundle.entities:
        spoken = found.bundle.how_often(entity)[2]
        whole = exclusive_log_odds(found.bundle, entity, values)
        assert exclusive_log_odds(found.bundle, entity, values[:, spoken], spoken) == pytest.approx(whole, abs=1e-12)
