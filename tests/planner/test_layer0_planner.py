"""Layer 0 as a filter: what it leaves of a bundle, and a planner that plans on that alone."""

import numpy as np
import pytest
from bundles import bundle_of, random_bundles
from examples import examples
from hypothesis import assume, given
from hypothesis import strategies as st

from afa.errors import PlannerError
from afa.planner import TopKPlanner
from afa.planner.cluster import parameters
from afa.planner.layer0 import centroid_certificates, partition, sound_certificates, without_eliminated

OPPOSITE = {"f0": -1, "f1": -1, "f2": 1, "f3": 1}


def strong_and_weak(priors=None):
    """Three entities about (3, 3, 0, 0) and two about (0, 0, 1, 1), without couplings."""
    unary = [[3, 3.5, 0, 0], [3, 3, 0, 0], [3, 2.5, 0, 0], [0, 0, 1, 1.5], [0, 0, 1, 0.5]]
    return bundle_of(unary, np.zeros((5, 4, 4)), priors, entities=("a1", "a2", "a3", "b1", "b2"))


def observing(planner, values):
    for feature, value in values.items():
        planner.observe(feature, value)
    return planner


# the filter


def test_what_is_left_has_its_models_and_every_feature():
    bundle = strong_and_weak()
    left = without_eliminated(bundle, 2)
    assert left.entities == ("a1", "a2", "a3")
    assert left.features == bundle.features
    assert left.unary.tolist() == bundle.unary[:3].tolist()
    assert left.provenance["restricted_from"] == bundle.digest


def test_a_bundle_that_loses_nothing_is_left_as_it_is():
    bundle = strong_and_weak()
    assert without_eliminated(bundle, 2, criterion="sound") is bundle


def test_the_rule_says_how_many_must_dominate():
    """Of two clusters three entities dominate the other two: N - k = 4 ask for more, k = 1 does not."""
    bundle = strong_and_weak()
    assert without_eliminated(bundle, 1, n_clusters=2) is bundle
    assert without_eliminated(bundle, 1, n_clusters=2, rule="k").entities == ("a1", "a2", "a3")


@given(random_bundles(entities=(4, 6)), st.sampled_from(["f1", "f2"]), st.data())
@examples(30)
def test_it_leaves_whom_the_certificates_leave_and_more_than_k(bundle, criterion, data):
    n_clusters = data.draw(st.integers(1, len(bundle.entities)))
    certificates = centroid_certificates(partition(parameters(bundle), n_clusters), 1, criterion=criterion, rule="k")
    expected = tuple(name for name in bundle.entities if name not in certificates.eliminated)
    options = {"criterion": criterion, "rule": "k", "n_clusters": n_clusters}
    if len(expected) > 1:
        assert without_eliminated(bundle, 1, **options).entities == expected
    else:
        with pytest.raises(PlannerError, match=r"1 of \d entities left"):
            without_eliminated(bundle, 1, **options)


def test_the_number_of_clusters_is_the_papers_unless_given():
    """One cluster of all has nobody to dominate it; the paper's three put the weak entities in one of their own."""
    bundle = strong_and_weak()
    assert without_eliminated(bundle, 2, n_clusters=1) is bundle
    assert without_eliminated(bundle, 2, n_clusters=3).entities == without_eliminated(bundle, 2).entities


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"k": 3}, "3 of 5 entities left by f1; expected more than k = 3"),
        ({"k": 5}, "option k"),
        ({"criterion": "f3"}, "f1 or f2 or sound"),
        ({"rule": "all"}, "n_minus_k or k"),
        ({"criterion": "sound", "rule": "n_minus_k"}, "option rule"),
        ({"n_clusters": 0}, "number of clusters"),
    ],
)
def test_a_wrong_option_or_too_few_left_is_refused(options, message):
    with pytest.raises(PlannerError, match=message):
        without_eliminated(strong_and_weak(), **{"k": 2, **options})


# the planner


def test_without_the_option_nobody_is_left_out():
    planner = TopKPlanner(strong_and_weak(), k=2)
    assert (planner.eliminated, len(planner.bundle.entities)) == ((), 5)


@pytest.mark.parametrize(("layer0", "priors"), [("f1", None), ("f2", None), ("sound", [10.0, 10.0, 10.0, 0.0, 0.0])])
def test_the_planner_answers_about_the_entities_that_are_left(layer0, priors):
    planner = TopKPlanner(strong_and_weak(priors), k=2, layer0=layer0)
    assert planner.eliminated == ("b1", "b2")
    assert planner.bundle.entities == ("a1", "a2", "a3")
    assert planner.scores().shape == (3, 3)
    assert planner.next_feature() in ("f0", "f1")
    assert observing(planner, {"f1": 1}).top_k() == ["a1", "a2"]
    assert {name for duel in planner.resolved() for name in duel} <= set(planner.bundle.entities)


def test_features_of_eliminated_entities_alone_are_still_measured_in_the_end():
    planner = TopKPlanner(strong_and_weak(), k=2, layer0="f1")
    asked = []
    while (feature := planner.next_feature()) is not None:
        asked.append(feature)
        planner.observe(feature, 1)
    assert sorted(asked) == ["f0", "f1", "f2", "f3"]
    assert set(asked[:2]) == {"f0", "f1"}


def test_what_is_certified_holds_among_those_left_and_can_be_false_of_all():
    filtered, whole = (observing(TopKPlanner(strong_and_weak(), k=2, layer0=x), OPPOSITE) for x in ("f1", None))
    assert filtered.certified()
    assert filtered.top_k() == ["a3", "a2"]
    assert whole.certified()
    assert whole.top_k() == ["b1", "b2"]


@given(random_bundles(entities=(3, 5)), st.data())
@examples(30)
def test_sound_certificates_never_cost_a_place_in_the_top_k(bundle, data):
    priors = data.draw(st.lists(st.integers(-12, 12), min_size=len(bundle.entities), max_size=len(bundle.entities)))
    couplings = [bundle.couplings(entity).toarray() for entity in bundle.entities]
    bundle = bundle_of(bundle.unary, couplings, np.array(priors, dtype=float), bundle.features, bundle.entities)
    certificates = sound_certificates(parameters(bundle), 1)
    assume(0 < len(certificates.eliminated) < len(bundle.entities) - 1)
    values = {name: data.draw(st.sampled_from([-1, 0, 1])) for name in bundle.features}
    planners = [observing(TopKPlanner(bundle, k=1, score="wald", layer0=x), values) for x in ("sound", None)]
    assert planners[0].eliminated == certificates.eliminated
    assert planners[0].top_k() == planners[1].top_k()


def test_an_unknown_filter_is_refused():
    with pytest.raises(PlannerError, match="planner option layer0: found 'centroid'; expected f1 or f2 or sound"):
        TopKPlanner(strong_and_weak(), k=2, layer0="centroid")


def test_a_filter_that_leaves_no_more_than_k_is_refused():
    with pytest.raises(PlannerError, match="more than k = 3"):
        TopKPlanner(strong_and_weak(), k=3, layer0="f1")
