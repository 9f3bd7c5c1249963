"""What a TopKPlanner shows its rule, and what it certifies."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from bundles import QUARTERS, bundle_of, models_of, observed_bundles, random_bundles
from examples import examples
from hypothesis import given
from hypothesis import strategies as st
from oracle import completions, energies
from rated import rated
from test_planner import fault

from afa.errors import PlannerError
from afa.model.bundle import Bundle
from afa.model.mrf import Evidence
from afa.planner import TopKPlanner
from afa.planner.cluster import clusters, distances
from afa.planner.rules import Choice, View
from afa.scores.bracket import l1_interval
from afa.scores.copeland import ranking


def told(bundle: Bundle, observations: dict[str, int], **options: Any) -> TopKPlanner:
    """A planner that has observed some features."""
    planner = TopKPlanner(bundle, **({"k": 1} | options))
    for name, value in observations.items():
        planner.observe(name, value)
    return planner


class Looks:
    """A rule that keeps the view it is shown."""

    def choose(self, view: View) -> Choice:
        self.view = view
        return Choice(int(np.flatnonzero(~view.observed)[0]), "the first")


def view_of(bundle: Bundle, observations: dict[str, int], **options: Any) -> View:
    rule = Looks()
    assert told(bundle, observations, allocation=rule, **options).next_feature() is not None
    return rule.view


@st.composite
def partly_observed(draw: st.DrawFn, **kwargs: Any) -> tuple[Bundle, dict[str, int]]:
    """A bundle and observations that leave at least one feature, by name."""
    bundle, observed = draw(observed_bundles(**kwargs))
    known = list(observed.items())[: len(bundle.features) - 1]
    return bundle, {bundle.features[j]: value for j, value in known}


@given(partly_observed(), st.sampled_from(["wald_magnitude", "cmi", "f_target"]), st.data())
@examples(30)
def test_a_view_sums_gains_under_weights(case: tuple[Bundle, dict[str, int]], gain: str, data: st.DataObject) -> None:
    view = view_of(*case, gain=gain)
    drawn = st.lists(st.floats(0, 2), min_size=len(view.pairs), max_size=len(view.pairs))
    weights = np.array(data.draw(drawn))
    each = view.gain(np.ones(len(view.pairs), dtype=bool))
    np.testing.assert_allclose(view.weighted_gain(weights), weights @ each, atol=1e-12)
    closed = weights < 1
    np.testing.assert_array_equal(view.weighted_gain((~closed).astype(float)), view.total_gain(closed))


@pytest.mark.parametrize("how_often", [False, True])
@pytest.mark.parametrize("gain", ["wald_magnitude", "cmi"])
def test_the_gains_of_some_features_are_those_of_the_whole_table(
    bundle_tiny: Bundle, how_often: bool, gain: str
) -> None:
    bundle = rated(np.random.default_rng(0), n=3, m=5).bundle if how_often else bundle_tiny
    state = TopKPlanner(bundle, k=1, gain=gain)._state
    state.observe(2, 1)
    every_other = np.arange(state.n_duels) % 2 == 0
    table = state.gains(every_other)
    assert table.any()
    for features in ([0], [1, 4]):
        found = state.gain_of(features, np.flatnonzero(every_other))
        np.testing.assert_allclose(found, table[:, features].sum(axis=1), atol=1e-12)


def test_weights_that_are_not_one_finite_number_a_duel_are_refused(bundle_tiny: Bundle) -> None:
    view = view_of(bundle_tiny, {})
    for weights in (np.ones(2), np.array([1.0, np.nan, 1.0])):
        with pytest.raises(PlannerError) as error:
            view.weighted_gain(weights)
        assert fault(error)[0] == "weights of duels"


@given(partly_observed())
@examples(30)
def test_a_view_holds_the_tight_interval_of_each_entity(case: tuple[Bundle, dict[str, int]]) -> None:
    bundle, observations = case
    expected = [l1_interval(Evidence.of(bundle.mrf(entity), observations)) for entity in bundle.entities]
    np.testing.assert_allclose(view_of(bundle, observations).intervals, expected, atol=1e-9)


@given(partly_observed())
@examples(20)
def test_a_view_ranks_as_the_planner_answers_and_holds_its_duels(case: tuple[Bundle, dict[str, int]]) -> None:
    bundle, observations = case
    view = view_of(bundle, observations)
    planner = told(bundle, observations)
    assert [bundle.entities[int(v)] for v in np.argsort(view.rank)][:1] == planner.top_k()
    won = {
        (view.entities[a], view.entities[b]) if view.lead[p] > 0 else (view.entities[b], view.entities[a])
        for p, (a, b) in enumerate(view.pairs)
        if view.resolved[p]
    }
    assert won == set(planner.resolved())
    assert view.certified == planner.certified()
    for p, (a, b) in enumerate(view.pairs):
        assert view.duel(int(b), int(a)) == p


def test_a_view_clusters_by_the_observations_of_the_last_multiple_of_50(recorded_bundle: Bundle) -> None:
    rng = np.random.default_rng(0)
    names = [str(name) for name in rng.permutation(recorded_bundle.features)]
    values = {name: int(rng.integers(-1, 2)) for name in names}
    for t, made in ((0, 0), (49, 0), (57, 50), (100, 100)):
        known = {name: values[name] for name in names[:t]}
        first = {name: values[name] for name in names[:made]}
        expected = clusters(distances(recorded_bundle, first), recorded_bundle.entities)
        assert view_of(recorded_bundle, known).clusters == expected


def test_a_rule_cannot_write_to_the_duels(bundle_tiny: Bundle) -> None:
    with pytest.raises(ValueError, match="read-only"):
        view_of(bundle_tiny, {}).pairs[0] = 1


def energies_of(bundle: Bundle, observations: dict[str, int]) -> np.ndarray:
    """(completions, N) scores S_v at full observation."""
    index = {name: j for j, name in enumerate(bundle.features)}
    models = models_of(bundle)
    table = completions(models[0], {index[name]: value for name, value in observations.items()})
    return np.column_stack([energies(model, table) for model in models])


@given(observed_bundles(entities=(2, 5), features=(2, 4)), st.data())
def test_a_certified_top_k_is_that_of_every_completion(
    case: tuple[Bundle, dict[int, int]], data: st.DataObject
) -> None:
    bundle, observed = case
    observations = {bundle.features[j]: value for j, value in observed.items()}
    k = data.draw(st.integers(1, len(bundle.entities) - 1))
    score = data.draw(st.sampled_from(["linearity", "wald", "two_elbo", "stack_a", "kl_nonzero"]))
    planner = told(bundle, observations, k=k, score=score)
    if planner.certified():
        for energy in energies_of(bundle, observations):
            assert set(ranking(np.subtract.outer(energy, energy), bundle.entities)[:k]) == set(planner.top_k())


@given(
    observed_bundles(entities=(2, 5), features=(2, 4), potentials=QUARTERS),
    st.sampled_from(["linearity", "wald", "stack_a"]),
    st.data(),
)
def test_without_couplings_the_top_k_is_certified_exactly_when_no_completion_lets_an_outsider_level(
    case: tuple[Bundle, dict[int, int]], score: str, data: st.DataObject
) -> None:
    # the l1 bracket of a unary duel is reached by a completion, so that nothing is lost
    coupled, observed = case
    n, m = coupled.unary.shape
    bundle = bundle_of(coupled.unary, np.zeros((n, m, m)), coupled.priors)
    observations = {bundle.features[j]: value for j, value in observed.items()}
    k = data.draw(st.integers(1, n - 1))
    planner = told(bundle, observations, k=k, score=score)
    inside = np.isin(bundle.entities, planner.top_k())
    energy = energies_of(bundle, observations)
    separate = energy[:, inside].min(axis=1) > energy[:, ~inside].max(axis=1)
    assert planner.certified() == separate.all()


@given(random_bundles(entities=(2, 5), features=(2, 4)), st.sampled_from(["linearity", "wald", "stack_a"]), st.data())
@examples(30)
def test_once_certified_the_top_k_stays_as_it_is(bundle: Bundle, score: str, data: st.DataObject) -> None:
    k = data.draw(st.integers(1, len(bundle.entities) - 1))
    planner, answer = TopKPlanner(bundle, k=k, score=score), None
    while (feature := planner.next_feature()) is not None:
        if answer is None and planner.certified():
            answer = set(planner.top_k())
        if answer is not None:
            assert planner.certified()
            assert set(planner.top_k()) == answer
        planner.observe(feature, data.draw(st.sampled_from([-1, 0, 1])))
    assert answer is None or set(planner.top_k()) == answer


def test_the_tiny_top_1_is_certified_as_worked_by_hand(bundle_tiny: Bundle) -> None:
    # fistula: -1.5 + 1 + 1 + 1 = 1.5, nothing left; bleeding: 1 and a field of -2 at MUC2, so from -1 to 3
    known = {"CXCL8": 1, "MMP9": 1, "AQP8": 1}
    assert not told(bundle_tiny, known).certified()
    assert told(bundle_tiny, known | {"MUC2": 1}).certified()
    other = told(bundle_tiny, known | {"MUC2": -1}, k=2)  # bleeding 1 + 1 + 1, fistula 1.5, diarrhea -1 - 1
    assert other.certified()
    assert other.top_k() == ["bleeding", "fistula"]
