"""What lets large bundles be planned with: nothing is made for duels nobody asks about, and no number changes by it."""

from itertools import combinations

import numpy as np
import pytest
from bundles import QUARTERS, bundle_of, models_of, observed_bundles, random_bundles
from examples import examples
from hypothesis import given, settings
from hypothesis import strategies as st
from linkage import linked
from test_engine_gains import readable_gains, readable_scores

from afa.engine.duels import all_pairs, sides_of
from afa.engine.layout import NO_OVERLAPS, pack
from afa.engine.patient import Patient
from afa.engine.patient_state import DuelWeights
from afa.engine.ranks import new_table, refresh_table
from afa.engine.sharing import CACHE_FACTOR, model_distances, new_mirror, observe_among, sharing_of, solve_every
from afa.engine.state import condition, new_state, solve_all
from afa.engine.sweeps import Iteration
from afa.model.mrf import Evidence
from afa.planner import TopKPlanner
from afa.planner.cluster import SMALLEST_CLUSTER, Clustering, clusters, distances, parameters
from afa.planner.rules import RULES, View
from afa.planner.rules.base import view_of
from afa.scores.bracket import l1_interval
from afa.scores.copeland import ranking
from afa.scores.preference import tie_of

QUICK = settings(max_examples=20, deadline=None)
GAINS = (("cmi", None), ("wald_magnitude", None), ("f_target", "linearity"))
ITERATION = Iteration(0.5, 1e-4, 200, False)


def families(n: int, m: int, size: int, seed: int = 0):
    """Entities in families that share most of their features, so that there are clusters and ties inside them."""
    rng = np.random.default_rng(seed)
    unary, couplings = np.zeros((n, m)), np.zeros((n, m, m))
    models = [rng.permutation(m)[:size] for _ in range(int(np.ceil(np.sqrt(n))))]
    for entity in range(n):
        support = models[entity % len(models)].copy()
        support[: size // 4] = rng.permutation(np.setdiff1d(np.arange(m), support))[: size // 4]
        unary[entity, support] = rng.choice([-0.5, 0.5], size)
        couplings[entity, support[:-1], support[1:]] = rng.choice([-0.25, 0.0, 0.25], size - 1)
    return bundle_of(unary, couplings + couplings.swapaxes(1, 2))


def readable_view(bundle, observed, gain, k) -> View:
    """What a rule sees of a patient, by the small functions alone and for all duels at once."""
    named = {bundle.features[j]: value for j, value in observed.items()}
    evidence = [Evidence.of(model, named) for model in models_of(bundle)]
    tie = tie_of(models_of(bundle))
    scores = readable_scores(bundle, observed)["linearity"]
    scores = np.where(np.abs(scores) <= tie, 0.0, scores)
    gains = readable_gains(bundle, observed, gain)
    pairs = list(combinations(range(len(evidence)), 2))
    lead = np.array([evidence[a].constant - evidence[b].constant for a, b in pairs])
    conditioned = [
        Evidence.of(bundle.mrf(bundle.entities[a]) - bundle.mrf(bundle.entities[b]), named) for a, b in pairs
    ]
    low, high = np.array([l1_interval(difference) for difference in conditioned]).T
    resolved = np.abs(lead) > (high - low) / 2 + tie
    return View(
        features=bundle.features,
        entities=bundle.entities,
        observed=np.isin(np.arange(len(bundle.features)), list(observed)),
        tie=tie,
        largest_unary=np.sum([np.abs(state.field) for state in evidence], axis=0),
        gain=lambda duels: gains[duels],
        total_gain=lambda closed: gains[~closed].sum(axis=0),
        weighted_gain=lambda weights: weights @ gains,
        find_scores=lambda: scores,
        find_rank=None,
        find_lead=lambda duels: lead[duels],
        find_resolved=lambda duels: resolved[duels],
        find_intervals=lambda: np.array([l1_interval(state) for state in evidence]),
        find_clusters=lambda: clusters(distances(bundle, {}), bundle.entities),
        k=k,
        patient="p",
        seed=0,
    )


@pytest.mark.parametrize("gain", GAINS)
@examples(6)
@given(case=observed_bundles(entities=(2, 6), features=(2, 5), potentials=QUARTERS), data=st.data())
def test_every_rule_chooses_what_it_chooses_by_the_readable_functions(gain, case, data):
    bundle, observed = case
    k = data.draw(st.integers(1, len(bundle.entities) - 1))
    options = {"k": k, "gain": gain[0], "target": gain[1], "patient": "p"}
    planners = {rule: TopKPlanner(bundle, allocation=rule, **options) for rule in RULES}
    seen = {}
    for j, value in [*observed.items(), (None, 0)]:
        if len(seen) == len(bundle.features):
            break
        view = readable_view(bundle, seen, gain, k)
        for rule, planner in planners.items():
            expected = RULES[rule]().choose(view)
            assert planner.next_feature() == bundle.features[expected.feature], (rule, seen, expected, planner.reason)
            if j is not None:
                planner.observe(bundle.features[j], value)
        if j is not None:
            seen[j] = value


# Layouts


@QUICK
@given(random_bundles())
def test_a_layout_without_overlaps_is_the_same_otherwise_and_knows_what_is_rounding(bundle):
    bare = pack(bundle, overlaps=False)
    assert bare.overlaps is NO_OVERLAPS
    whole = pack(bundle)
    for name in set(bare._fields) - {"overlaps"}:
        np.testing.assert_array_equal(getattr(bare, name), getattr(whole, name), err_msg=name)
    assert len(whole.overlaps.first) == len(bundle.entities) ** 2 + 1
    assert pack(bundle, overlaps=False) is whole
    assert bare.tie == pytest.approx(tie_of(models_of(bundle)), rel=1e-12)


@QUICK
@given(random_bundles())
def test_links_are_the_pairs_that_any_entity_couples_with_all_that_do(bundle):
    packed, sharing = pack(bundle), sharing_of(bundle)
    found = {
        (f, int(sharing.partner[link]), int(sharing.member[i])): sharing.value[i]
        for f in range(len(bundle.features))
        for link in range(sharing.first_link[f], sharing.first_link[f + 1])
        for i in range(sharing.first_member[link], sharing.first_member[link + 1])
    }
    dense = [bundle.couplings(entity).toarray() for entity in bundle.entities]
    expected = {(j, k, v): w[j, k] for v, w in enumerate(dense) for j, k in zip(*np.nonzero(np.triu(w)), strict=True)}
    assert found == expected
    assert sharing.owner.tolist() == packed.owner[packed.feature_slots].tolist()
    assert packed.feature_slots[sharing.place].tolist() == list(range(len(packed.feature_slots)))


@pytest.mark.parametrize("n", [1, 2, 3, 7])
def test_duels_are_numbered_as_all_pairs_in_order(n):
    pairs = list(combinations(range(n), 2))
    assert all_pairs(n).tolist() == [list(pair) for pair in pairs]
    if n > 1:
        assert sides_of(n, np.arange(len(pairs))).tolist() == [list(pair) for pair in pairs]
        assert sides_of(n, np.arange(len(pairs))[::2]).tolist() == [list(pair) for pair in pairs[::2]]


# States


@QUICK
@given(observed_bundles(entities=(1, 5), features=(2, 6)))
def test_cross_expectations_by_holders_are_those_by_overlaps_to_the_byte(case):
    bundle, observed = case
    packed, sharing = pack(bundle), sharing_of(bundle)
    one, other, mirror = new_state(packed), new_state(packed), new_mirror(packed)
    solve_all(packed, one, ITERATION, True)
    solve_every(packed, sharing, other, mirror, ITERATION)
    for feature, value in [(None, 0), *observed.items()]:
        if feature is not None:
            condition(packed, one, feature, value)
            solve_all(packed, one, ITERATION, True)
            observe_among(packed, sharing, other, mirror, feature, value, ITERATION)
        for name, here, there in zip(one._fields, one, other, strict=True):
            np.testing.assert_array_equal(here, there, err_msg=name)


@QUICK
@given(observed_bundles(entities=(2, 6), features=(2, 6), potentials=QUARTERS))
def test_ranks_kept_from_round_to_round_are_the_ranking_by_the_present_scores(case):
    bundle, observed = case
    patient = Patient(bundle)
    name_rank = np.argsort(sorted(range(len(bundle.entities)), key=bundle.entities.__getitem__))
    for feature, value in [(None, 0), *observed.items()]:
        if feature is not None:
            patient.observe(feature, value)
        order = ranking(patient.scores("linearity"), bundle.entities, tie=patient.packed.tie)
        rank = patient.known_ranks("linearity", name_rank)
        assert [order.index(name) + 1 for name in bundle.entities] == rank.tolist()


def test_sums_of_scores_stay_exact_through_many_changes():
    rng, n = np.random.default_rng(0), 6
    table, everyone = new_table(n), np.ones(n, dtype=bool)
    for size in [1e12, 1.0, 1e-6] * 40:
        changed = rng.random(n) < 0.5
        cross = rng.normal(size=(n, n)) * size
        refresh_table(cross, changed, 0.0, table)
    refresh_table(cross, everyone, 0.0, table)
    np.testing.assert_allclose(table.margin + table.rest, table.scores.sum(axis=1), rtol=0, atol=1e-15)
    assert table.ahead.tolist() == np.sign(table.scores).sum(axis=1).astype(int).tolist()


@QUICK
@given(observed_bundles(entities=(2, 5), features=(2, 5)), st.data())
def test_what_is_asked_of_some_duels_is_what_is_said_of_them_among_all(case, data):
    bundle, observed = case
    some, every = Patient(bundle), Patient(bundle)
    for feature, value in [(None, 0), *observed.items()]:
        if feature is not None:
            some.observe(feature, value)
            every.observe(feature, value)
        chosen = np.array(sorted(data.draw(st.sets(st.integers(0, every.n_duels - 1)))), dtype=np.int64)
        assert some.resolved(chosen).tolist() == every.resolved()[chosen].tolist()
        assert some.lead(chosen).tolist() == every.lead()[chosen].tolist()


# Gains


@pytest.mark.parametrize("kind", GAINS)
@QUICK
@given(case=observed_bundles(entities=(4, 6), features=(3, 5), potentials=QUARTERS), data=st.data())
def test_gains_of_few_duels_after_many_are_those_of_a_fresh_patient(kind, case, data):
    """Asked for in turn: many, few, others; the book forgets and adds, and always answers with the present."""
    bundle, observed = case
    patient, seen = Patient(bundle, gain=kind[0], target=kind[1]), []
    for feature, value in [(None, 0), *observed.items()]:
        if feature is not None:
            patient.observe(feature, value)
            seen.append((feature, value))
        fresh = Patient(bundle, gain=kind[0], target=kind[1])
        for pair in seen:
            fresh.observe(*pair)
        for share in (1.0, 0.1, 0.4):
            mask = np.array(data.draw(st.lists(st.floats(0, 1), min_size=patient.n_duels, max_size=patient.n_duels)))
            np.testing.assert_allclose(patient.gains(mask <= share), fresh.gains(mask <= share), rtol=1e-12, atol=1e-12)


@QUICK
@given(observed_bundles(entities=(2, 5), features=(2, 5)), st.data())
def test_weights_of_some_duels_are_weights_of_all_that_are_0_elsewhere(case, data):
    bundle, observed = case
    patient = Patient(bundle, gain="cmi")
    for feature, value in observed.items():
        patient.observe(feature, value)
    chosen = np.array(sorted(data.draw(st.sets(st.integers(0, patient.n_duels - 1)))), dtype=np.int64)
    weights = DuelWeights(patient.n_duels, chosen, np.linspace(0.5, 2.0, len(chosen)))
    every = np.asarray(weights)
    assert every.shape == (patient.n_duels,)
    assert every[chosen].tolist() == weights.weights.tolist()
    assert patient.weighted_gain(weights).tobytes() == patient.weighted_gain(every).tobytes()


# Clusters


@QUICK
@given(observed_bundles(entities=(1, 6), features=(2, 6)))
def test_compiled_distances_are_those_of_the_parameters(case):
    bundle, observed = case
    values, known = np.zeros(len(bundle.features)), np.zeros(len(bundle.features), dtype=bool)
    values[list(observed)], known[list(observed)] = list(observed.values()), True
    found = model_distances(pack(bundle, overlaps=False), sharing_of(bundle), values, known)
    vectors = parameters(bundle, {bundle.features[j]: value for j, value in observed.items()}).values.toarray()
    np.testing.assert_allclose(found, np.abs(vectors[:, None] - vectors).sum(axis=2), atol=1e-12)


@pytest.mark.parametrize("seed", range(3))
def test_clusters_over_time_are_those_that_are_linked_one_by_one(seed):
    bundle = families(40, 70, 12, seed)
    seen = {}
    clustering = Clustering(bundle)
    for t in range(len(bundle.features) + 1):
        if t % 50 == 0:
            apart = distances(bundle, seen)
            expected = clusters(apart, bundle.entities)
            assert {frozenset(part) for part in expected} == linked(apart, bundle.entities, 7, SMALLEST_CLUSTER)
            assert len(expected) > 1
        assert clustering.at(seen) == expected
        if t < len(bundle.features):
            seen[bundle.features[t]] = (t + seed) % 3 - 1


# Room


def test_a_decision_by_clusters_takes_room_for_the_duels_of_its_registry_alone():
    bundle = families(150, 90, 12)
    planner = TopKPlanner(bundle, k=5, gain="cmi", allocation="priority_clusters")
    for t in range(6):
        feature = planner.next_feature()
        planner.observe(feature, t % 3 - 1)
    state = planner._state
    n_clusters = int(np.ceil(np.sqrt(150)))
    assert 0 < len(state._gains._duels) <= CACHE_FACTOR * n_clusters
    assert np.count_nonzero(state._budget_at) <= 6 * n_clusters
    assert "pairs" not in vars(state)
    assert state.packed.overlaps is NO_OVERLAPS


def test_a_view_makes_nothing_of_all_duels_for_a_rule_that_looks_at_few():
    bundle = families(40, 60, 10)
    view = view_of(Patient(bundle, gain="cmi"), bundle, score="linearity", k=3, find_clusters=lambda: ((0, 1), (2, 3)))
    RULES["priority_clusters"]().choose(view)
    RULES["lucb"]().choose(view)
    assert view.certified in (True, False)
    assert not {"pairs", "lead", "resolved", "straddling"} & vars(view).keys()


def test_a_rule_cannot_write_to_the_scores_of_the_patient():
    bundle = families(10, 20, 5)
    view = view_of(Patient(bundle), bundle, score="linearity", k=3, find_clusters=tuple)
    with pytest.raises(ValueError, match="read-only"):
        view.scores[0, 1] = 1.0


def test_a_patient_begins_as_the_first_of_its_bundle_did_whatever_that_one_has_seen():
    bundle = families(10, 20, 5)
    first = Patient(bundle)
    before = first.scores("linearity")
    for feature in range(10):
        first.observe(feature, 1)
    second = Patient(bundle)
    assert second.scores("linearity").tobytes() == before.tobytes()
    assert not second.state.observed.any()
