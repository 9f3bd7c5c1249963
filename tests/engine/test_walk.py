"""The compiled walk: what is read of a patient does not depend on who else is followed, nor on what else is read."""

from __future__ import annotations

import numpy as np
import pytest
from bundles import bundle_of
from numpy.typing import NDArray

from afa.engine import follow as entrances
from afa.engine.follow import choose, follow
from afa.engine.outcomes import follow_rule, full_observation, shared_order_calls
from afa.engine.paths import solve_paths
from afa.engine.run import BOUNDARY, CALLS, CERTAIN, CHOICE, DUELS, ENTITIES, LARGEST, MOMENTS, RANKS, SIGNS, SOLVES
from afa.inference.meanfield import Solver
from afa.model.bundle import Bundle

EVERYTHING = SIGNS | RANKS | SOLVES | CERTAIN | CHOICE | BOUNDARY | LARGEST | ENTITIES | MOMENTS | DUELS | CALLS
BY_ROUND = set(entrances.WalkResults._fields) - {"order", "fallback", "chosen_gain", "source"}
SETTINGS = {"gain": "cmi", "k": 2, "threads": 1, "ranks": ("linearity", "wald", "two_elbo")}


@pytest.fixture
def bundle() -> Bundle:
    """Five entities on seven features of which the last is held by none, couplings at a quarter of the pairs."""
    random = np.random.default_rng(4)
    unary, couplings = random.integers(-2, 3, (5, 7)) / 2, random.integers(-2, 3, (5, 7, 7)) / 2
    unary[:, 6], couplings[:, :, 6] = 0, 0
    return bundle_of(unary, couplings * (random.random((5, 7, 7)) < 0.25))


@pytest.fixture
def values() -> NDArray[np.int8]:
    """Eight patients, of whom two are alike and two differ in what no entity looks at."""
    values = np.random.default_rng(9).integers(-1, 2, (8, 7)).astype(np.int8)
    values[3], values[5] = values[0], values[1]
    values[5, 6] = -values[1, 6] or 1
    return values


def orders_of(n: int) -> NDArray[np.int64]:
    """One order each, the same for the first six."""
    random = np.random.default_rng(2)
    shared = random.permutation(7)
    return np.array([shared if i < 6 else random.permutation(7) for i in range(n)])


def same(one: entrances.WalkResults, other: entrances.WalkResults, at: object = slice(None)) -> None:
    for name in set(one._fields) - {"source"}:
        np.testing.assert_array_equal(getattr(one, name), getattr(other, name)[at], err_msg=name)


def test_patients_that_are_followed_together_are_read_as_each_alone(bundle, values):
    orders = orders_of(len(values))
    together = follow(bundle, values, orders, EVERYTHING, **SETTINGS)
    assert (together.source != np.arange(len(values))[:, None]).any()
    for i in range(len(values)):
        same(follow(bundle, values[[i]], orders[[i]], EVERYTHING, **SETTINGS), together, slice(i, i + 1))


@pytest.mark.parametrize("rule", ["greedy", "lucb", "priority_clusters", "largest_unary"])
def test_a_rule_chooses_for_patients_together_as_for_each_alone(bundle, values, rule):
    together = choose(bundle, values, EVERYTHING, allocation=rule, **SETTINGS)
    assert (np.sort(together.order, axis=1) == np.arange(7)).all()
    for i in range(len(values)):
        same(choose(bundle, values[[i]], EVERYTHING, allocation=rule, **SETTINGS), together, slice(i, i + 1))


def test_along_the_order_that_a_rule_made_the_same_is_read(bundle, values):
    chosen = choose(bundle, values, EVERYTHING, allocation="priority_all", **SETTINGS)
    given = follow(bundle, values, chosen.order, EVERYTHING, **SETTINGS)
    same(given._replace(fallback=chosen.fallback), chosen)


def test_some_rounds_are_read_as_they_are_among_all(bundle, values):
    orders = orders_of(len(values))
    every = follow(bundle, values, orders, EVERYTHING & ~SOLVES, **SETTINGS)
    some = follow(bundle, values, orders, EVERYTHING & ~SOLVES, rounds=[2, 5, 7], **SETTINGS)
    for name in BY_ROUND - {"iterations", "ascended"}:
        np.testing.assert_array_equal(getattr(some, name), getattr(every, name)[:, [2, 5, 7]], err_msg=name)


def test_rounds_that_change_nothing_can_be_left_out(bundle, values):
    orders = orders_of(len(values))
    every = follow(bundle, values, orders, EVERYTHING, **SETTINGS)
    changes = follow(bundle, values, orders, EVERYTHING, only_changes=True, **SETTINGS)
    assert changes.t.shape[1] == 7
    for i, rounds in enumerate(changes.t):
        assert orders[i, [t for t in range(7) if t + 1 not in rounds]].tolist() == [6]
        for name in BY_ROUND:
            here, there = getattr(changes, name)[i], getattr(every, name)[i, rounds]
            np.testing.assert_allclose(here, there, rtol=0, atol=1e-12, err_msg=name)


def test_solves_are_counted_by_what_became_of_them(bundle, values):
    orders, solver = orders_of(len(values)), Solver(tolerance=1e-9, max_iterations=20)
    each = follow(bundle, values, orders, SOLVES, solver=solver, threads=1)
    solved, ascended = each.iterations >= 0, each.ascended > 0
    assert 0 < ascended.sum() < solved.sum()
    found = solve_paths(bundle, values, orders[:, None], solver=solver)
    by_round = np.stack([solved.sum(axis=0), ascended.sum(axis=0)], axis=-1)
    np.testing.assert_array_equal(found.by_round[..., [0, 2]], by_round)
    np.testing.assert_array_equal(found.by_patient[:, 0, :, 2], ascended.sum(axis=1))


def test_what_is_summed_up_in_blocks_is_the_same_in_blocks_of_one_patient(bundle, values, monkeypatch):
    def summed() -> list[NDArray[np.generic]]:
        truth, orders = full_observation(bundle, values), orders_of(len(values))
        paths = follow_rule(bundle, values, truth, allocation="boundary", gain="cmi", k=2)
        found = shared_order_calls(bundle, values, orders[:, None], truth.winner)
        return [*paths, *found, *solve_paths(bundle, values, orders[:, None])]

    whole = summed()
    monkeypatch.setattr(entrances, "BLOCK_BYTES", 1)
    for one, other in zip(whole, summed(), strict=True):
        np.testing.assert_array_equal(one, other)
