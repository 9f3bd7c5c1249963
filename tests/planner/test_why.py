"""Each finding's share for and against an entity, by hand and by leaving the finding out."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from bundles import bundle_of
from rated import FEVERS, written

from afa.errors import PlannerError
from afa.model.bundle import load_bundle
from afa.planner import BinaryPlanner, TopKPlanner


@pytest.mark.parametrize("holds", ["several", "one", "one or none"])
def test_a_share_is_the_log_odds_with_the_finding_less_those_without(holds: str, tmp_path: Path) -> None:
    bundle = load_bundle(written(tmp_path / "fevers", FEVERS))
    planner = TopKPlanner(bundle, holds=holds)
    planner.observe_all({"cough": 1, "red": 0})
    for v, entity in enumerate(bundle.entities):
        table = planner.why(entity).set_index("feature")
        for feature in planner.observed:
            without = TopKPlanner(bundle, holds=holds)
            without.observe_all({name: value for name, value in planner.observed.items() if name != feature})
            odds = [np.log(p / (1 - p)) for p in (planner.posterior()[v], without.posterior()[v])]
            assert table.loc[feature, "share"] == pytest.approx(odds[0] - odds[1])


def test_shares_of_one_entity_without_couplings_add_up_to_its_log_odds() -> None:
    bundle = bundle_of([[1.0, -2.0, 0.5]], [[[0.0] * 3] * 3], entities=("rust",), features=("a", "b", "c"))
    planner = BinaryPlanner(bundle, entity="rust")
    planner.observe_all({"a": 1, "b": 1, "c": -1})
    table = planner.why("rust")
    assert table["feature"].tolist()[0] == "b", "the strongest first"
    assert table["share"].sum() == pytest.approx(planner.log_odds())
    against = planner.why("not rust").set_index("feature")["share"]
    assert against["b"] == pytest.approx(-table.set_index("feature")["share"]["b"])


def test_where_the_order_is_by_score_a_share_is_of_the_mean_score() -> None:
    bundle = bundle_of([[2.0, 0.0], [0.0, 1.0], [0.0, -1.0]], [[[0.0] * 2] * 2] * 3, features=("a", "b"))
    planner = TopKPlanner(bundle, score="wald")
    planner.observe_all({"a": 1, "b": -1})
    first, *_ = bundle.entities
    shares = planner.why(first).set_index("feature")["share"]
    assert shares["a"] == pytest.approx(2.0)  # ahead of both by 2
    assert shares["b"] == pytest.approx(0.0)  # ahead of one by 1, behind the other by 1
    assert planner.strengths()[0] == pytest.approx(shares.sum())


def test_an_unknown_entity_is_named_and_nothing_measured_has_no_shares() -> None:
    planner = TopKPlanner(bundle_of([[1.0], [-1.0]], [[[0.0]]] * 2, entities=("cold", "flu")))
    assert planner.why("cold").empty
    with pytest.raises(PlannerError, match="did you mean cold"):
        planner.why("colds")


def test_the_first_of_the_order_is_the_answer_and_where_that_is_by_probability_the_most_probable(
    tmp_path: Path,
) -> None:
    bundle = load_bundle(written(tmp_path / "fevers", FEVERS))
    for holds in ("several", "one", "one or none"):
        planner = TopKPlanner(bundle, holds=holds)
        for feature, value in (("cough", 1), ("red", 1)):
            planner.observe(feature, value)
            assert planner.ordered_by == "probability"
            assert planner.posterior()[bundle.entities.index(planner.answer()[0])] == pytest.approx(
                planner.posterior().max()
            )
    assert TopKPlanner(bundle, score="wald").ordered_by == "score"
