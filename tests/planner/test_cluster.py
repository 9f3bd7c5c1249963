"""Distances between what is left of the entities' models, and the clusters made of them."""

from __future__ import annotations

from itertools import combinations

import numpy as np
import pytest
from bundles import QUARTERS, bundle_of, models_of, observed_bundles, random_bundles, rearranged
from examples import examples
from hypothesis import given
from hypothesis import strategies as st
from scipy.cluster.hierarchy import fcluster, linkage
from scipy.spatial.distance import squareform

from afa.errors import PlannerError
from afa.model.bundle import Bundle
from afa.model.mrf import Evidence
from afa.planner.cluster import CLUSTER_EVERY, SMALLEST_CLUSTER, Clustering, clusters, distances, parameters

NAMES = tuple("abcdefghijkl")


def line(*places: float) -> np.ndarray:
    """Distances of points on a line."""
    return np.abs(np.subtract.outer(places, places))


def named(parts: tuple[tuple[int, ...], ...], names: tuple[str, ...]) -> list[list[str]]:
    return [[names[v] for v in part] for part in parts]


@st.composite
def matrices(draw: st.DrawFn) -> tuple[np.ndarray, tuple[str, ...]]:
    """Symmetric distances of few distinct values, so that ties are common."""
    n = draw(st.integers(1, 12))
    matrix = np.zeros((n, n))
    for i, j in combinations(range(n), 2):
        matrix[i, j] = matrix[j, i] = draw(st.sampled_from([0.0, 1.0, 2.0, 3.0]))
    return matrix, NAMES[:n]


def test_two_entities_are_as_far_apart_as_their_parameters_each_pair_once() -> None:
    couplings = np.zeros((2, 3, 3))
    couplings[0, 0, 1] = couplings[1, 0, 2] = 2.0
    bundle = bundle_of([[1, 0, -1], [0.5, 1, -1]], couplings)
    assert distances(bundle).tolist() == [[0, 0.5 + 1 + 2 + 2], [5.5, 0]]


def test_an_observation_moves_unaries_and_takes_its_couplings_away() -> None:
    couplings = np.zeros((2, 3, 3))
    couplings[0, 0, 1] = couplings[1, 0, 2] = 2.0
    bundle = bundle_of([[1, 0, -1], [0.5, 1, -1]], couplings)
    # f0 = -1: the unaries left at f1, f2 are (-2, -1) and (1, -3), and no coupling
    assert distances(bundle, {"f0": -1})[0, 1] == 3 + 2
    assert parameters(bundle, {"f0": -1}).values.toarray().tolist() == [[0, -2, -1], [0, 1, -3]]
    assert distances(bundle, {"f0": 1, "f1": 0, "f2": -1}).tolist() == [[0, 0], [0, 0]]


@given(observed_bundles())
def test_distances_are_those_of_the_conditioned_models(case: tuple[Bundle, dict[int, int]]) -> None:
    bundle, observed = case
    known = {bundle.features[j]: value for j, value in observed.items()}
    found = distances(bundle, known)
    left = [Evidence.of(model, known) for model in models_of(bundle)]
    for a, b in combinations(range(len(left)), 2):
        hidden = ~left[a].observed
        coupling = (left[a].mrf.couplings - left[b].mrf.couplings).toarray()[np.ix_(hidden, hidden)]
        expected = np.abs(left[a].field - left[b].field).sum() + np.abs(np.triu(coupling)).sum()
        assert found[a, b] == pytest.approx(expected, abs=1e-9)
    np.testing.assert_array_equal(found, found.T)
    assert not np.diag(found).any()


def test_an_unknown_feature_or_value_is_refused(bundle_tiny: Bundle) -> None:
    for observations in ({"nosuch": 1}, {"MUC2": 2}):
        with pytest.raises(PlannerError, match="a feature of the bundle with the value"):
            distances(bundle_tiny, observations)


def test_ceil_sqrt_clusters_are_made_where_none_is_small() -> None:
    groups = [10.0 * group + member / 10 for group in range(4) for member in range(3)]
    assert clusters(line(*groups), NAMES, smallest=1) == ((0, 1, 2), (3, 4, 5), (6, 7, 8), (9, 10, 11))


@given(st.integers(2, 12), st.data())
def test_without_ties_it_is_complete_linkage_as_scipy_has_it(n: int, data: st.DataObject) -> None:
    rng = np.random.default_rng(data.draw(st.integers(0, 10_000)))
    points = rng.normal(size=(n, 3))
    matrix = np.abs(points[:, None] - points[None, :]).sum(axis=2)
    wanted = data.draw(st.integers(1, n))
    labels = fcluster(linkage(squareform(matrix), "complete"), wanted, "maxclust")
    expected = {frozenset(np.flatnonzero(labels == label)) for label in set(labels)}
    found = clusters(matrix, NAMES[:n], n_clusters=wanted, smallest=1)
    assert {frozenset(part) for part in found} == expected


def test_a_small_cluster_joins_the_nearest_by_its_farthest_member() -> None:
    # k is 2 from e but 9 from a to d; it is 3 from each of f to j
    matrix = np.full((11, 11), 10.0)
    matrix[:5, :5] = matrix[5:10, 5:10] = 1.0
    matrix[10, :10] = matrix[:10, 10] = [9, 9, 9, 9, 2, 3, 3, 3, 3, 3]
    np.fill_diagonal(matrix, 0.0)
    apart = named(clusters(matrix, NAMES[:11], n_clusters=3, smallest=1), NAMES)
    assert apart == [list("abcde"), list("fghij"), ["k"]]
    assert named(clusters(matrix, NAMES[:11], n_clusters=3), NAMES) == [list("abcde"), list("fghijk")]


def test_a_small_cluster_between_two_equals_joins_the_first_by_name() -> None:
    matrix = line(*[0.0] * 5, *[10.0] * 5, 5.0)
    assert named(clusters(matrix, NAMES[:11], n_clusters=3), NAMES) == [list("abcdek"), list("fghij")]
    backwards = NAMES[:11][::-1]
    assert sorted(map(sorted, named(clusters(matrix, backwards, n_clusters=3), backwards))) == [
        ["a", "b", "c", "d", "e", "f"],
        ["g", "h", "i", "j", "k"],
    ]


def test_the_fewest_members_move_first() -> None:
    # of {f, g} and {h}, both small, h goes first: to its neighbours f, g, then those three to a ... e
    matrix = line(*[0.0] * 5, 10.0, 10.0, 12.0, *[30.0] * 4)
    assert named(clusters(matrix, NAMES, n_clusters=4, smallest=4), NAMES) == [list("abcdefgh"), list("ijkl")]


def test_equal_distances_are_told_apart_by_name() -> None:
    same = np.ones((4, 4)) - np.eye(4)
    assert named(clusters(same, ("d", "c", "b", "a"), n_clusters=3, smallest=1), ("d", "c", "b", "a")) == [
        ["a", "b"],
        ["c"],
        ["d"],
    ]


@given(matrices(), st.data())
def test_the_order_of_the_entities_does_not_show(case: tuple[np.ndarray, tuple[str, ...]], data: st.DataObject) -> None:
    matrix, names = case
    order = data.draw(st.permutations(range(len(names))))
    for options in ({}, {"smallest": 1}, {"smallest": 3, "n_clusters": 5}):
        other = clusters(matrix[np.ix_(order, order)], [names[v] for v in order], **options)
        assert named(other, tuple(names[v] for v in order)) == named(clusters(matrix, names, **options), names)


@given(random_bundles(potentials=QUARTERS, entities=(2, 8)), st.data())
@examples(25)
def test_neither_the_order_of_entities_nor_of_features_shows(bundle: Bundle, data: st.DataObject) -> None:
    entities, features = data.draw(st.permutations(bundle.entities)), data.draw(st.permutations(bundle.features))
    other = rearranged(bundle, entities, features)
    known = {bundle.features[0]: 1}
    found = [named(clusters(distances(b, known), b.entities, smallest=2), b.entities) for b in (bundle, other)]
    assert found[0] == found[1]


@given(matrices(), st.integers(1, 6))
def test_every_entity_is_in_one_cluster_and_no_cluster_is_small(
    case: tuple[np.ndarray, tuple[str, ...]], smallest: int
) -> None:
    matrix, names = case
    found = clusters(matrix, names, smallest=smallest)
    assert sorted(v for part in found for v in part) == list(range(len(names)))
    assert len(found) <= np.ceil(np.sqrt(len(names)))
    assert len(found) == 1 or min(map(len, found)) >= smallest


def test_distances_that_differ_by_rounding_are_equal() -> None:
    matrix = line(0.0, 1.0, 2.0)
    matrix[1, 2] = matrix[2, 1] = 1.0 - 1e-15
    assert clusters(matrix, ("a", "b", "c"), n_clusters=2, smallest=1) == ((0, 1), (2,))


def test_distances_of_another_shape_are_refused() -> None:
    with pytest.raises(PlannerError, match=r"\(2, 2\) of 3 distinct names"):
        clusters(np.zeros((2, 2)), ("a", "b", "c"))
    with pytest.raises(PlannerError, match="2 distinct names"):
        clusters(np.zeros((3, 3)), ("a", "b", "b"))


def test_clusters_are_made_anew_at_every_multiple_of_the_span_from_the_first_observations() -> None:
    m, half = 2 * CLUSTER_EVERY + 5, SMALLEST_CLUSTER
    unary = np.zeros((2 * half, m))
    unary[:half, 0], unary[::2, -1] = 9.0, 5.0  # by f0 until it is observed, then by the last feature
    bundle = bundle_of(unary, np.zeros((2 * half, m, m)))
    clustering, seen = Clustering(bundle), dict[str, int]()
    found = []
    for name in bundle.features:
        found.append(clustering.at(seen))
        seen[name] = 1
    assert found[0] == (tuple(range(half)), tuple(range(half, 2 * half)))
    assert found[:CLUSTER_EVERY] == [found[0]] * CLUSTER_EVERY
    assert found[CLUSTER_EVERY] == (tuple(range(0, 2 * half, 2)), tuple(range(1, 2 * half, 2)))
    assert found[CLUSTER_EVERY:] == [found[CLUSTER_EVERY]] * (m - CLUSTER_EVERY)
    late = Clustering(bundle)
    assert late.at(dict(list(seen.items())[: CLUSTER_EVERY + 7])) == found[CLUSTER_EVERY]


def test_the_recorded_bundle_falls_into_two_clusters(recorded_bundle: Bundle) -> None:
    found = clusters(distances(recorded_bundle), recorded_bundle.entities)
    assert sorted(map(len, found)) == [5, 20]
