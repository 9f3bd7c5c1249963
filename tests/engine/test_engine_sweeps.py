"""The innermost loops: exact where they must be, and the library's numbers to the last places elsewhere."""

from __future__ import annotations

import numpy as np
import pytest

from afa.engine.compile import kernel
from afa.engine.layout import NEGLIGIBLE
from afa.engine.sweeps import Iteration, add_neighbours, damped, decay, moments, moments_of_probabilities
from afa.inference.meanfield import moments_of, ternary_moments
from afa.model.arrays import Floats

ITERATION = Iteration(0.5, 1e-4, 200, False)
PAPER = np.empty((3, 0))


@kernel(entrance=True)
def decays(x: Floats, result: Floats) -> None:
    for i in range(len(x)):
        result[i] = decay(x[i])


@kernel(entrance=True)
def all_moments(fields: Floats, m: Floats, q: Floats) -> None:
    for i in range(len(fields)):
        m[i], q[i] = moments(fields[i])


@kernel(entrance=True)
def all_moments_of_probabilities(
    fields: Floats, width: float, offset: float, sides: float, m: Floats, q: Floats
) -> None:
    for i in range(len(fields)):
        m[i], q[i] = moments_of_probabilities(fields[i], width, offset, sides)


def test_decay_is_the_exponential_to_the_last_places_over_its_whole_range() -> None:
    x = np.concatenate(
        [np.linspace(0, 700, 70_001), np.geomspace(1e-300, 700, 2_001), np.log(2) * np.arange(0.5, 1000)]
    )
    x = x[x <= 700]
    found = np.empty_like(x)
    decays(x, found)
    np.testing.assert_allclose(found, np.exp(-x), rtol=4 * np.finfo(float).eps)


def test_moments_are_uniform_at_no_field_odd_and_even_and_never_overflow() -> None:
    fields = np.array([0.0, 0.3, 2.0, 40.0, 699.0, 701.0, 1e4, 1e300])
    m, q, turned_m, turned_q = (np.empty(len(fields)) for _ in range(4))
    all_moments(fields, m, q)
    all_moments(-fields, turned_m, turned_q)
    assert (m[0], q[0]) == (0.0, 2.0 / 3.0)
    assert (m[-3:] == 1.0).all()
    assert (q[-3:] == 1.0).all()
    assert (turned_m == -m).all()
    assert (turned_q == q).all()
    np.testing.assert_allclose([m, q], ternary_moments(fields), rtol=1e-15)


@pytest.mark.parametrize(
    ("terms", "site"),
    [
        ((-np.inf, 0.0, 0.7), (0.5, 0.5, NEGLIGIBLE)),
        ((-0.7, 0.0, -np.inf), (0.5, -0.5, NEGLIGIBLE)),
        ((-0.4, 0.0, 1.0), (1.0, 0.0, np.exp(0.3))),
    ],
)
def test_moments_of_other_values_are_those_of_the_readable_function(terms, site) -> None:
    fields = np.array([-800.0, -3.0, -0.2, 0.0, 0.4, 5.0, 800.0])
    m, q = np.empty(len(fields)), np.empty(len(fields))
    all_moments_of_probabilities(fields + 0.7, *site, m, q)
    expected = moments_of(np.broadcast_to(terms, (len(fields), 3)), fields)
    np.testing.assert_allclose([m, q], expected, rtol=1e-14, atol=1e-16)


@pytest.mark.parametrize("n", range(10))
def test_neighbours_are_added_for_any_number_of_features(n: int) -> None:
    generator = np.random.default_rng(n)
    # multiples of 1/8: every sum is exact, in any order
    coupling, alpha, m = (generator.integers(-9, 10, size) / 8 for size in ((n, n), n, n))
    field = np.empty(n)
    add_neighbours(alpha, coupling, m, field)
    assert (field == alpha + m @ coupling).all()


def test_a_solve_says_whether_the_cap_ended_it() -> None:
    alpha, coupling = np.array([0.5, -1.0]), np.array([[0.0, 1.0], [1.0, 0.0]])
    for cap, expected in ((2, True), (200, False)):
        m, q = np.zeros(2), np.full(2, 2.0 / 3.0)
        sweeps, capped = damped(alpha, coupling, PAPER, m, q, Iteration(0.5, 1e-4, cap, False))
        assert capped is expected
        assert (sweeps == cap) is expected


def test_a_model_without_features_is_solved_in_no_sweep() -> None:
    nothing = np.empty(0)
    assert damped(nothing, np.empty((0, 0)), PAPER, nothing, nothing, ITERATION) == (0, False)
