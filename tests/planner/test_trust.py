"""What a planner says of its answer: one probability, ties as ties, reasons in words, and when it stops."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
from bundles import bundle_of

from afa.errors import PlannerError
from afa.model.bundle import Bundle
from afa.planner import BinaryPlanner, Planner, Stop, TopKPlanner
from afa.planner.session import load_session, save_session


@pytest.fixture
def three() -> Bundle:
    """Cold raises a, fever raises b, rust lowers a; nothing is coupled."""
    unary = np.array([[2.0, 0.0, 0.0], [0.0, 2.0, 0.0], [-1.0, 0.0, 0.5]])
    return bundle_of(unary, np.zeros((3, 3, 3)), features=("a", "b", "c"), entities=("cold", "fever", "rust"))


def test_a_tie_is_a_tie_and_nothing_unusual_is_said_so(three: Bundle) -> None:
    planner = TopKPlanner(three, k=1)
    assert not planner.nothing_unusual()
    planner.observe_all({"a": 0, "b": 0, "c": 0})
    assert planner.undecided() == ["rust", "cold", "fever"]  # the most probable first
    assert planner.nothing_unusual()
    planner.correct("a", 1)
    assert (planner.undecided(), planner.top_k(), planner.nothing_unusual()) == ([], ["cold"], False)
    assert set(TopKPlanner(three, k=2).undecided()) == set(three.entities)  # equally probable before anything is known


def test_a_tie_inside_the_answer_is_no_tie(three: Bundle) -> None:
    planner = TopKPlanner(three, k=2)
    planner.observe_all({"a": 1, "b": 1, "c": 0})
    assert set(planner.top_k()) == {"cold", "fever"}
    assert planner.undecided() == []


def test_the_probability_of_the_answer_is_its_posterior(three: Bundle) -> None:
    planner = TopKPlanner(three, k=2)
    planner.observe("a", 1)
    posterior = dict(zip(three.entities, planner.posterior(), strict=True))
    assert planner.answer_probability() == pytest.approx(sum(posterior[name] for name in planner.top_k()))
    yes = BinaryPlanner(three, entity="cold")
    yes.observe("a", 1)
    no = BinaryPlanner(three, entity="cold")
    no.observe("a", -1)
    assert yes.answer_probability() == pytest.approx(yes.probability())
    assert no.answer_probability() == pytest.approx(1 - no.probability())
    assert (yes.answer(), no.answer()) == (["cold"], ["not cold"])
    assert BinaryPlanner(three, entity="cold").undecided() == ["cold", "not cold"]


def test_it_stops_at_a_posterior_and_not_at_a_tie(three: Bundle) -> None:
    planner = TopKPlanner(three, k=1, stop=Stop(posterior=0.6))
    planner.observe("a", 1)
    assert planner.answer_probability() > 0.6
    assert planner.suggest() is None
    assert planner.reason.startswith("the answer has posterior probability 0.")
    tied = TopKPlanner(three, k=2, stop=Stop(posterior=0.01))
    tied.observe_all({"a": 0, "b": 0})
    assert tied.suggest() is not None or not tied.undecided()


def test_a_rule_of_stopping_of_ones_own_is_asked_and_its_words_are_the_reason(three: Bundle, tmp_path: Path) -> None:
    def enough(planner: Planner) -> str | None:
        return "two are enough" if len(planner.observed) == 2 else None

    planner = TopKPlanner(three, k=1, stop=enough)
    while feature := planner.next_feature():
        planner.observe(feature, 0)
    assert (len(planner.observed), planner.reason) == (2, "two are enough")
    short = TopKPlanner(three, k=1, stop=Stop(own=lambda planner: True))
    assert (short.suggest(), short.reason) == (None, "your own rule of stopping holds")
    save_session(planner, tmp_path / "s.yaml")
    with pytest.raises(PlannerError, match="Next step: pass it as stop"):
        load_session(tmp_path / "s.yaml", three)
    assert load_session(tmp_path / "s.yaml", three, stop=enough).stopped() == "two are enough"


def test_what_is_to_be_measured_first_comes_first_whatever_the_answer_is(three: Bundle, tmp_path: Path) -> None:
    planner = TopKPlanner(
        three, k=1, first=["c", "both"], panels={"both": ["a", "b"]}, stop=Stop(posterior=0.01, certain=True)
    )
    item = planner.suggest()
    assert item is not None
    assert (item.name, item.reason) == ("c", "to be measured first")
    planner.skip("c")
    item = planner.suggest()
    assert item is not None
    assert (item.name, item.features, item.cost) == ("both", ("a", "b"), 2.0)
    save_session(planner, tmp_path / "s.yaml")
    again = load_session(tmp_path / "s.yaml", three).suggest()
    assert again is not None
    assert again.name == "both"
    planner.observe("a", 1)
    planner.observe("b", 0)
    assert planner.suggest() is None


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"first": ["nosuch"]}, "planner option first: found the unknown name 'nosuch'"),
        ({"first": "a"}, r"found 'a'; expected a list of names. Next step: give a list of names"),
        ({"stop": 3}, "planner option stop: found 3; expected an afa.Stop or a function"),
    ],
)
def test_a_wrong_option_is_named(three: Bundle, options: dict[str, Any], words: str) -> None:
    with pytest.raises(PlannerError, match=words):
        TopKPlanner(three, k=1, **options)


@pytest.mark.parametrize("option", ["posterior", "own"])
def test_a_wrong_rule_of_stopping_is_named(option: str) -> None:
    with pytest.raises(PlannerError, match=f"stop option {option}: found 2"):
        Stop(**{option: 2})


def test_the_reason_names_the_entities_that_it_tells_apart(three: Bundle) -> None:
    item = TopKPlanner(three, k=1).suggest()
    assert item is not None
    assert (item.name, item.reason) == ("a", "best separates cold from rust and fever")
    item = TopKPlanner(three, k=1, costs={"a": 9}).suggest()
    assert item is not None
    assert (item.name, item.reason) == ("b", "best separates fever from cold and rust for its cost")
    drawn = TopKPlanner(three, k=1, allocation="random").suggest()
    assert drawn is not None
    assert drawn.reason == "next of the random order of seed 0"


def test_what_each_result_would_do_is_what_it_does(three: Bundle) -> None:
    planner = TopKPlanner(three, k=1)
    told = planner.outcomes("a")
    assert planner.actions == ()
    for row in told.to_dict("records"):
        after = planner.copy()
        after.observe("a", row["value"])
        assert row["answer"] == after.top_k()
        assert row["probability"] == after.answer_probability()
        assert row["certain"] == after.certified()
    assert told["answer"].tolist()[-1] == ["cold"]
    with pytest.raises(PlannerError, match="unknown name"):
        planner.outcomes("nosuch")


def test_a_row_of_a_table_with_gaps_is_taken_as_it_is(three: Bundle) -> None:
    table = pd.DataFrame({"a": [1.0, np.nan], "b": [None, -1.0], "c": [0.0, pd.NA]})
    planner = TopKPlanner(three, k=1)
    planner.observe_all(table.iloc[0])
    assert planner.observed == {"a": 1, "c": 0}
    with pytest.raises(PlannerError, match=r"feature a: found 0.5; expected -1, 0 or 1"):
        TopKPlanner(three, k=1).observe_all({"a": 0.5})
    with pytest.raises(PlannerError, match="observations: found none"):
        TopKPlanner(three, k=1).observe_all({"a": np.nan})
