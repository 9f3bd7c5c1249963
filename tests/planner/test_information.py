"""The gain `information`: what a feature tells about which entity holds, over all entities (decisions.md, F15)."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from afa import TopKPlanner
from afa.errors import PlannerError
from afa.model.bundle import Bundle, load_bundle
from afa.planner import Stop

UNARY = """entity,feature,potential,p_high_with
flu,fever,,0.9
flu,high fever,,0.5
cold,running nose,,0.8
cold,fever,,0.2
measles,rash,,0.9
measles,spots,,0.8
measles,high fever,,0.6
"""
FEATURES = """feature,kind,p_low,p_high
high fever,binary,0,0.1
fever,binary,0,0.3
running nose,binary,0,0.2
spots,binary,0,0.05
rash,binary,0,0.1
"""


def written(folder: Path, unary: str = UNARY) -> Bundle:
    folder.mkdir()
    header = "name: fevers\nversion: '1'\nholds: one\nprobability_floor: 0.001\n"
    (folder / "bundle.yaml").write_text(header)
    (folder / "unary.csv").write_text(unary)
    (folder / "features.csv").write_text(FEATURES)
    (folder / "pairwise.csv").write_text("entity,feature_a,feature_b,potential\n")
    return load_bundle(folder)


@pytest.fixture
def fevers(tmp_path: Path) -> Bundle:
    return written(tmp_path / "fevers")


def test_information_of_the_papers_models_is_the_sum_over_entities() -> None:
    planner = TopKPlanner(load_bundle("tests/data/bundle_tiny"), gain="information", costs="equal")
    planner.observe("MUC2", -1)
    view = planner._view()
    w = planner.posterior()
    state = planner._state
    predictive = np.full((len(w), len(planner.bundle.features), 3), 1 / 3)
    m, q = state.state.m, state.state.q
    predictive[state.packed.owner, state.packed.feature] = np.stack([(q - m) / 2, 1 - q, (q + m) / 2], axis=-1)
    mixed = np.einsum("v,vfs->fs", w, predictive)
    open_ = ~state.state.observed
    parts = predictive[:, open_] * np.log(predictive[:, open_] / mixed[open_])
    expected = np.zeros(len(open_))
    expected[open_] = np.einsum("v,vfs->f", w, parts)
    np.testing.assert_allclose(view.information(), expected, atol=1e-9)
    chosen = planner.bundle.features.index(planner.next_feature())
    assert expected[chosen] == pytest.approx(expected.max())


def test_of_two_entities_information_is_the_gain_of_their_duel(tmp_path: Path) -> None:
    bundle = written(tmp_path / "two", "".join(UNARY.splitlines(keepends=True)[:5]))
    by_entity, by_duel = (TopKPlanner(bundle, gain=gain) for gain in ("information", "cmi"))
    duel = by_duel._state.gains(np.array([True]))[0]
    np.testing.assert_allclose(by_entity._view().information(), duel, atol=1e-12)
    one_by_one = TopKPlanner(bundle, gain="information", holds="several")
    np.testing.assert_allclose(
        one_by_one._view().information(), TopKPlanner(bundle, holds="several")._state.gains(np.array([True]))[0]
    )


def test_observed_features_tell_nothing_more(fevers: Bundle) -> None:
    planner = TopKPlanner(fevers, gain="information")
    planner.observe_all({"rash": 1, "fever": 0})
    told = planner._view().information()
    assert [name for name, gain in zip(fevers.features, told, strict=True) if gain == 0] == ["fever", "rash"]


def test_items_compete_by_information_for_their_cost(fevers: Bundle) -> None:
    every = TopKPlanner(fevers, gain="information")
    gain = dict(zip(fevers.features, every._view().information(), strict=True))
    cheap = TopKPlanner(
        fevers, gain="information", costs={name: 1000.0 for name in fevers.features if name != "running nose"}
    )
    assert every.next_feature() == max(gain, key=gain.__getitem__) != "running nose"
    assert cheap.next_feature() == "running nose"
    panels = {"skin": ["rash", "spots"], "warmth": ["fever", "high fever"]}
    panel = TopKPlanner(fevers, gain="information", panels=panels, costs={"skin": 1, "warmth": 1, "running nose": 1})
    by_item = {name: sum(gain[each] for each in members) for name, members in panels.items()}
    assert panel.suggest().name == max(by_item, key=by_item.__getitem__)
    assert panel.largest_gain() == pytest.approx(max(by_item.values()))


def test_it_stops_at_a_small_gain_and_names_what_came_next(fevers: Bundle) -> None:
    assert TopKPlanner(fevers, gain="information", stop=Stop(gain=10.0)).suggest() is None
    order = np.argsort(-TopKPlanner(fevers, gain="information")._view().information())
    ranked = [item.name for item in TopKPlanner(fevers, gain="information").runners_up(2)]
    assert ranked == [fevers.features[j] for j in order[1:3]]


def test_a_rule_that_sums_gains_of_duels_does_not_go_with_it(fevers: Bundle) -> None:
    with pytest.raises(PlannerError, match="'greedy' with gain 'information'"):
        TopKPlanner(fevers, gain="information", allocation="greedy")
