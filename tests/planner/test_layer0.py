"""Layer 0: sound certificates against every profile, the paper's against their definition."""

import numpy as np
import pytest
from bundles import QUARTERS, bundle_of, models_of, random_bundles, rearranged
from examples import examples
from hypothesis import given, settings
from hypothesis import strategies as st
from oracle import configurations, energies, product_measure

from afa.errors import PlannerError
from afa.inference.meanfield import mean_field
from afa.model.bundle import Bundle
from afa.planner.cluster import parameters
from afa.planner.layer0 import centroid_certificates, completion_bounds, partition, score_distances, sound_certificates

QUICK = settings(max_examples=40)
NAMES = tuple("abcdefgh")


def all_energies(bundle):
    """(3^M, N) S_v of every profile."""
    table = configurations(len(bundle.features))
    return np.stack([energies(model, table) for model in models_of(bundle)], axis=1)


def two_families(priors=None, coupling=0.5):
    """Entities a1, a2 about (3, 3, 0, 0) and b1, b2 about (0, 0, 1, 1), with a coupling in the block of each."""
    unary = [[3, 3.5, 0, 0], [3, 2.5, 0, 0], [0, 0, 1, 1.5], [0, 0, 1, 0.5]]
    couplings = np.zeros((4, 4, 4))
    couplings[:2, 0, 1], couplings[2:, 2, 3] = coupling, coupling
    return bundle_of(unary, couplings, priors, entities=("a1", "a2", "b1", "b2"))


# parameters and clusters


def test_distances_of_scores_count_every_coupling_once_and_the_prior():
    bundle = bundle_of([[1, 0], [0, -2]], [[[0, 3], [0, 0]], [[0, -1], [0, 0]]], [0.5, 0.0])
    assert score_distances(parameters(bundle))[0, 1] == 1 + 2 + 4 + 0.5


@QUICK
@given(random_bundles())
def test_no_profile_separates_two_scores_by_more_than_their_distance(bundle):
    energy, distances = all_energies(bundle), score_distances(parameters(bundle))
    apart = np.abs(energy[:, :, None] - energy[:, None, :]).max(axis=0)
    assert (apart <= distances + 1e-9).all()


@QUICK
@given(random_bundles())
def test_a_parameter_vector_gives_back_the_model_it_was_made_of(bundle):
    entities = parameters(bundle)
    for vector, model in zip(entities.values.toarray(), models_of(bundle), strict=True):
        rebuilt = entities.model(vector, model.prior)
        assert rebuilt.prior == model.prior
        assert rebuilt.unary.tolist() == model.unary.tolist()
        assert rebuilt.couplings.toarray().tolist() == model.couplings.toarray().tolist()


@pytest.mark.parametrize("n_clusters", [0, 5])
def test_a_number_of_clusters_that_cannot_be_made_is_refused(n_clusters):
    with pytest.raises(PlannerError, match="1 to 4"):
        partition(parameters(two_families()), n_clusters)


def test_small_clusters_are_kept_and_numbered_by_their_first_name():
    parted = partition(parameters(rearranged(two_families(), ("b2", "a2", "b1", "a1"))), 3)
    assert [cluster.members for cluster in parted.clusters] == [("a1", "a2"), ("b1",), ("b2",)]
    assert parted.label.tolist() == [2, 0, 1, 0]


def test_radius_spread_gap_and_separation_by_hand():
    clusters = partition(parameters(two_families()), 2)
    assert [cluster.members for cluster in clusters.clusters] == [("a1", "a2"), ("b1", "b2")]
    assert [cluster.radius for cluster in clusters.clusters] == [0.5, 0.5]
    assert [cluster.spread for cluster in clusters.clusters] == [0.5, 0.5]
    assert clusters.gap == 3 + 3 + 1 + 1 + 0.5 + 0.5
    assert clusters.separation == 18
    assert clusters.activation == (0.5, 3.0)


def test_one_cluster_has_no_gap_and_single_entities_no_extent():
    entities = parameters(two_families())
    assert np.isnan(partition(entities, 1).separation)
    assert partition(entities, 4).separation == np.inf


def test_a_centroids_score_is_its_expectation_under_its_own_marginals():
    entities = parameters(two_families())
    cluster = partition(entities, 2).clusters[0]
    model = entities.model(cluster.centroid[1:], cluster.centroid[0])
    marginals = mean_field(model).marginals
    m, q = marginals.first, marginals.second
    table, weight = product_measure(np.column_stack([(q - m) / 2, 1 - q, (q + m) / 2]))
    assert cluster.score == pytest.approx(float(weight @ energies(model, table)))


# the paper's certificates


def test_f1_adds_the_radius_and_f2_adds_it_times_its_own_constant():
    cluster = partition(parameters(two_families()), 2).clusters[0]
    assert cluster.interval("f1") == (cluster.score - 0.5, cluster.score + 0.5)
    constant = 1 + (3 + 3 + 0.5) / (1 - 0.5)
    assert cluster.lipschitz("f2") == constant == 14
    assert cluster.interval("f2") == (cluster.score - 7, cluster.score + 7)


def test_f2_is_not_eligible_from_a_contraction_of_one_on_and_then_says_nothing():
    clusters = partition(parameters(two_families(coupling=1.0)), 2)
    assert [cluster.lipschitz("f2") for cluster in clusters.clusters] == [None, None]
    assert not centroid_certificates(clusters, 2, criterion="f2").beats.any()
    assert centroid_certificates(clusters, 2, criterion="f1").beats.any()


def test_the_contraction_of_a_cluster_is_that_of_its_worst_member():
    couplings = np.zeros((3, 2, 2))
    couplings[:, 0, 1] = [0.1, 0.9, 0.0]
    bundle = bundle_of([[5, 5], [5, 5], [-5, -5]], couplings)
    clusters = partition(parameters(bundle), 2).clusters
    assert [cluster.contraction for cluster in clusters] == [0.9, 0.0]


def test_the_stronger_family_dominates_and_the_weaker_goes_where_enough_dominate():
    clusters = partition(parameters(two_families()), 2)
    certificates = centroid_certificates(clusters, 2)
    assert certificates.needed == 2
    assert certificates.dominators.tolist() == [0, 0, 2, 2]
    assert certificates.eliminated == ("b1", "b2")
    assert certificates.clusters_out(clusters.label).tolist() == [False, True]
    assert centroid_certificates(clusters, 1).eliminated == ()
    assert centroid_certificates(clusters, 1, rule="k").eliminated == ("b1", "b2")


def test_single_entities_go_by_the_rank_of_their_scores():
    bundle = bundle_of(np.diag([1.0, 2.0, 3.0, 4.0]), np.zeros((4, 4, 4)))
    clusters = partition(parameters(bundle), 4)
    assert centroid_certificates(clusters, 1, rule="n_minus_k").eliminated == ("v0",)
    assert centroid_certificates(clusters, 3, rule="n_minus_k").eliminated == ("v0", "v1", "v2")
    assert centroid_certificates(clusters, 3, rule="k").eliminated == ("v0",)


def test_a_centroids_certificate_can_be_false():
    """Measured the other way round, the family that is put out is the best: the certificate never saw a patient."""
    bundle = two_families()
    assert "b1" in centroid_certificates(partition(parameters(bundle), 2), 2).eliminated
    scores = [model.energy([-1, -1, 1, 1]) for model in models_of(bundle)]
    assert min(scores[2:]) > max(scores[:2])


@QUICK
@given(random_bundles(entities=(3, 5), potentials=QUARTERS), st.data())
def test_certificates_do_not_depend_on_the_order_of_entities_and_features(bundle, data):
    other = rearranged(
        bundle,
        data.draw(st.permutations(bundle.entities)),
        data.draw(st.permutations(bundle.features)),
    )
    n_clusters = data.draw(st.integers(1, len(bundle.entities)))

    def eliminated(of: Bundle) -> list[set[str]]:
        entities = parameters(of)
        clusters = partition(entities, n_clusters)
        return [
            set(centroid_certificates(clusters, 1, rule="k").eliminated),
            set(sound_certificates(entities, 1).eliminated),
        ]

    assert eliminated(bundle) == eliminated(other)


# sound certificates


@examples(40)
@given(random_bundles(entities=(3, 4), features=(2, 4)), st.lists(st.integers(-12, 12), min_size=4, max_size=4))
def test_a_sound_domination_holds_at_every_profile(bundle, priors):
    bundle = with_priors(bundle, np.array(priors[: len(bundle.entities)], dtype=float))
    energy, entities = all_energies(bundle), parameters(bundle)
    for k in range(1, len(bundle.entities)):
        certificates = sound_certificates(entities, k)
        better, worse = np.nonzero(certificates.beats)
        assert (energy[:, better] > energy[:, worse]).all()
        rank = (energy[:, None, :] > energy[:, :, None]).sum(axis=2)
        assert (rank[:, certificates.out] >= k).all()


@QUICK
@given(random_bundles())
def test_without_priors_nothing_is_certified_for_all_profiles(bundle):
    bundle = with_priors(bundle, np.zeros(len(bundle.entities)))
    assert not sound_certificates(parameters(bundle), 1).beats.any()


def test_priors_that_no_profile_can_make_up_certify():
    """Without their priors the first family can fall to -6 and -5, and the second rise to 3 and 2."""
    bundle = two_families(priors=[10.0, 10.0, 0.0, 0.0])
    certificates = sound_certificates(parameters(bundle), 2)
    assert certificates.eliminated == ("b1", "b2")
    closer = two_families(priors=[9.0, 9.0, 0.0, 0.0])
    assert sound_certificates(parameters(closer), 2).beats.sum() == 3


def test_scores_of_one_profile_are_compared_where_intervals_overlap():
    """Both scores range over 4, but at one and the same profile they differ by their priors alone."""
    bundle = bundle_of([[2.0], [2.0]], np.zeros((2, 1, 1)), [0.5, 0.0])
    low, high, _ = completion_bounds(bundle)
    assert low[0] < high[1]
    assert sound_certificates(parameters(bundle), 1).eliminated == ("v1",)


@QUICK
@given(random_bundles())
def test_bounds_are_the_extremes_over_all_profiles_or_where_those_are_too_dear_wider(bundle):
    energy = all_energies(bundle)
    low, high, exact = completion_bounds(bundle)
    assert exact.all()
    assert low == pytest.approx(energy.min(axis=0))
    assert high == pytest.approx(energy.max(axis=0))
    wide_low, wide_high, exact = completion_bounds(bundle, memory_limit=-1)
    assert not exact.any()
    assert (wide_low <= low + 1e-9).all()
    assert (wide_high >= high - 1e-9).all()


# wrong inputs


@pytest.mark.parametrize("k", [0, 4])
def test_a_k_that_leaves_no_choice_is_refused(k):
    entities = parameters(two_families())
    with pytest.raises(PlannerError, match="option k"):
        centroid_certificates(partition(entities, 2), k)
    with pytest.raises(PlannerError, match="option k"):
        sound_certificates(entities, k)


@pytest.mark.parametrize("wrong", [{"rule": "all"}, {"criterion": "f3"}])
def test_an_unknown_rule_or_criterion_is_refused(wrong):
    with pytest.raises(PlannerError, match=r"n_minus_k or k|f1 or f2"):
        centroid_certificates(partition(parameters(two_families()), 2), 1, **wrong)


def with_priors(bundle, priors):
    couplings = [bundle.couplings(entity).toarray() for entity in bundle.entities]
    return bundle_of(bundle.unary, couplings, priors, bundle.features, bundle.entities)
