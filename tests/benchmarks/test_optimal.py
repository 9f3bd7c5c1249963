"""The optimal policy on small problems: by recursion over completions, and beside the rules."""

import sys
from itertools import product
from pathlib import Path

import numpy as np
import pytest

from afa.model.mrf import VALUES
from afa.scores.belief import ScoreTable

sys.path.insert(0, str(Path(__file__).parents[2] / "benchmarks"))

from optimal import RULES, Problem, problem

SEEDS = range(6)


def by_recursion(bundle, background, k, rounds):
    """The value of the optimal policy, from sums over completions at every state."""
    m = len(bundle.features)
    rows = np.array(list(product(VALUES, repeat=m)), dtype=np.int8)
    chances = np.prod(background.probabilities[np.arange(m), rows + 1], axis=1)
    scores = ScoreTable.of_bundle(bundle).scores(rows)
    top = scores >= np.sort(scores, axis=1)[:, -k, None]

    def value(here, free, left):
        """Value, times the probability of the state, whose completions are `here`."""
        if left == 0:
            return np.sort(chances[here] @ top[here])[-k:].mean()
        return max(sum(value(here & (rows[:, j] == x), free - {j}, left - 1) for x in VALUES) for j in free)

    return value(np.ones(len(rows), dtype=bool), frozenset(range(m)), rounds)


@pytest.mark.parametrize("k", [1, 2])
@pytest.mark.parametrize("rounds", [0, 1, 2, 4])
def test_the_optimum_is_that_of_a_recursion_over_completions(k, rounds):
    drawn = problem(0, n=4, m=4)
    assert Problem(*drawn, k).of_all(rounds, best=True) == pytest.approx(by_recursion(*drawn, k, rounds), abs=1e-12)


@pytest.mark.parametrize("k", [1, 2])
def test_no_rule_is_better_than_the_optimum_and_frontier_is_nearer_to_it_than_to_a_random_order(k):
    lost, of_random = [], []
    for seed in SEEDS:
        of = Problem(*problem(seed, n=4, m=5), k)
        optimum, at_random = (np.array([of.of_all(t, best=best) for t in range(4)]) for best in (True, False))
        assert (at_random <= optimum + 1e-12).all()
        for name, options in ({"myopic": None} | RULES).items():
            own, best = of.of_rule(3, options)
            assert (own <= best + 1e-12).all()
            assert (best <= optimum + 1e-12).all()
            if name == "frontier":
                lost.append(optimum - own)
        of_random.append(optimum - at_random)
    assert np.mean(lost) < np.mean(of_random) / 2, "nearer to the optimum than to the random order"


def test_with_all_features_every_policy_is_right():
    of = Problem(*problem(1, n=3, m=3), 1)
    assert of.of_all(3, best=True) == of.of_all(3, best=False) == pytest.approx(1)
    for options in RULES.values():
        assert of.of_rule(3, options)[0][-1] == pytest.approx(1)
