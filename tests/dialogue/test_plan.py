"""`afa plan`: the same planner in a terminal and by JSON lines; what a user reads at each mistake."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from bundles import bundle_of
from talking import ROOT, ask, plain, talk

from afa.bundle import Bundle, load_bundle
from afa.dialogue.conversation import VERBS, converse
from afa.dialogue.sessions import Keeper, new_planner
from afa.planner import BinaryPlanner, Stop, TopKPlanner
from afa.session import load_session


def test_the_terminal_asks_takes_the_answer_and_ends_when_it_is_certain(bundle_tiny: Bundle) -> None:
    planner = plain(bundle_tiny, stop=Stop(certain=True))
    by_hand = plain(bundle_tiny, stop=Stop(certain=True))
    while feature := by_hand.next_feature():
        by_hand.observe(feature, 1)
    text = talk(planner, *["1"] * len(by_hand.observed))
    assert planner.observed == by_hand.observed
    assert f"{by_hand.top_k()[0]} (probability {by_hand.answer_probability():.2f}, certain)" in text
    assert f"{len(by_hand.observed)} measured" in text
    assert "Done: the answer is certain" in text
    assert text.count("because:") == len(by_hand.observed)


def test_every_command_of_the_terminal_does_what_its_help_says(bundle_tiny: Bundle, tmp_path: Path) -> None:
    planner = plain(bundle_tiny)
    file = tmp_path / "my session.yaml"
    text = talk(
        planner,
        "MUC2=-1 il8=+1",
        "fix MUC2 0",
        "skip AQP8",
        "undo",
        "why",
        "ranking",
        "history",
        "features",
        "help",
        f"save '{file}'",
        "skip",
        "quit",
        "never read",
    )
    assert planner.observed == {"MUC2": 0, "CXCL8": 1}
    assert len(planner.skipped) == 1
    assert "taken back: skip AQP8" in text
    assert "AQP8, MMP9, TFF3" in text
    assert "duels won" in text
    assert "-1 was wrong" in text
    assert "never read" not in text
    assert load_session(file, bundle_tiny).observed == planner.observed


def test_names_with_blanks_need_no_quotes() -> None:
    names = ("damp walls", "salt", "water meter runs", "worse in rain")
    planner = plain(bundle_of([[1, 0, 1, 0], [1, -1, 0, 1]], np.zeros((2, 4, 4)), features=names))
    text = talk(
        planner, "damp walls=1 salt=0 worse in rain = -1", "fix Damp walls 0", "skip water meter runs", "ranking"
    )
    assert planner.observed == {"damp walls": 0, "salt": 0, "worse in rain": -1}
    assert planner.skipped == {"water meter runs"}
    assert "Next step" not in text


def test_a_number_is_read_by_the_range_that_is_shown() -> None:
    cooling = load_bundle(ROOT / "afa/examples/cooling/bundle")
    planner = TopKPlanner(cooling, panels={}, costs="equal", first=["superheat"])
    text = talk(planner, "12,5", "fix superheat 6.9", "subcooling=1.0", "fix subcooling high", "fix superheat cold")
    assert "usual: 4 to 10 K; type the number, or -1, 0, 1" in text
    for said in ("superheat: 12.5 is high", "superheat: 6.9 is usual", "subcooling: 1 is low"):
        assert said in text
    assert "found 'cold'; expected -1, 0 or 1, or a number (usual: 4 to 10 K)" in text
    assert planner.observed == {"superheat": 0, "subcooling": 1}


@pytest.mark.parametrize(
    ("line", "words"),
    [
        ("2", "value of CXCL8: found '2'; expected -1, 0 or 1."),
        ("often", "answer: found 'often'; expected -1, 0 or 1, NAME=VALUE, or a command"),
        ("yes", "Next step: type ? for the commands"),
        ("MUC2=5", "value of MUC2: found '5'; expected -1, 0 or 1"),
        ("MUCC2=1", "did you mean MUC2"),
        ("nosuch=1", "feature 'nosuch': found an unknown name"),
        ("MUC2=1 muc2=0", "feature MUC2: found two values"),
        ("fix MUC2 1", "feature MUC2: found no earlier value; expected one to correct. Next step: write MUC2=1"),
        ("fix MUC2", "answer: found 'fix MUC2'"),
        ("undo", "undo: found no step to take back"),
        ("1 1", "answer: found 2 values; expected 1"),
        ("'open", "expected quotes in pairs"),
        ("[bold]=1", "feature '[bold]': found an unknown name"),
    ],
)
def test_a_mistyped_line_is_explained_and_changes_nothing(bundle_tiny: Bundle, line: str, words: str) -> None:
    planner = plain(bundle_tiny)
    text = talk(planner, line)
    assert words in text
    assert planner.actions == ()
    assert text.count("because:") == 1  # the question is not asked again


def test_a_panel_is_asked_for_by_name_and_answered_in_its_order(bundle_tiny: Bundle) -> None:
    planner = plain(bundle_tiny, costs=None, panels={"all of it": list(bundle_tiny.features)})
    item = planner.suggest()
    assert item is not None
    text = talk(planner, "1 0", "1 1 1 1", "0 -1 -1")
    assert f"all of it: {', '.join(item.features)} (cost 4.5)" in text
    assert "found 4 values; expected 3" in text
    assert planner.observed == dict(zip(item.features, [1, 0, 0, -1, -1], strict=True))
    assert planner.spent == 4.5


def test_names_that_look_like_markup_are_shown_as_they_are() -> None:
    unary = [[1.0, -1.0], [-1.0, 1.0]]
    bundle = bundle_of(unary, [[[0, 0], [0, 0]]] * 2, features=("[red]IL8[/red]", "[/bold]"))
    text = talk(TopKPlanner(bundle, k=1), "1", "why", "history", "0")
    assert "[red]IL8[/red]> 1" in text or "[/bold]> 1" in text
    assert "because:" in text


def test_one_entity_is_answered_with_yes_or_no(bundle_tiny: Bundle) -> None:
    planner = new_planner(bundle_tiny, k=None, entity="bleeding", panels=None, stop=Stop(certain=True))
    assert isinstance(planner, BinaryPlanner)
    text = talk(planner, "CXCL8=1 MUC2=-1", "ranking")
    assert f"bleeding (probability {planner.probability():.2f}, certain)  2 measured" in text


def test_a_long_name_takes_no_bar_from_the_line_of_a_short_one() -> None:
    names = ("long " * 39 + "x", "short")
    text = talk(plain(bundle_of([[1.0], [-1.0]], [[[0.0]]] * 2, entities=names)), "-1")
    assert any(line.startswith("  short ") and "  0.88" in line for line in text.splitlines())


def test_the_first_line_of_json_says_what_there_is(bundle_tiny: Bundle) -> None:
    (first,) = converse(plain(bundle_tiny), [], Keeper())
    greeting = json.loads(first)
    assert greeting["protocol"] == 1
    assert greeting["features"] == list(bundle_tiny.features)
    assert greeting["bundle"]["digest"] == bundle_tiny.digest
    assert greeting["suggestion"]["name"] == plain(bundle_tiny).next_feature()


def test_json_lines_walk_the_planner_as_python_does(bundle_tiny: Bundle) -> None:
    planner, by_hand = plain(bundle_tiny), plain(bundle_tiny)
    values = {"AQP8": -1, "CXCL8": 1, "MMP9": 0, "MUC2": -1, "TFF3": 1}
    while feature := by_hand.next_feature():
        by_hand.observe(feature, values[feature])
        (answer,) = ask(planner, {"do": "observe", "values": {feature: values[feature]}})
        assert answer["ok"]
        assert (answer["suggestion"] or {}).get("name") == by_hand.next_feature()
        assert answer["answer"]["top_k"] == by_hand.top_k()
        assert answer["answer"]["probability"] == by_hand.answer_probability()
        assert answer["answer"]["certain"] == by_hand.certified()
    assert answer["stopped"] == "every feature has been observed"


def test_every_request_is_answered(bundle_tiny: Bundle, tmp_path: Path) -> None:
    planner = plain(bundle_tiny)
    requests: list[dict[str, Any]] = [
        {"do": "observe", "values": {"IL-8": 1}, "cost": 4},
        {"do": "correct", "feature": "CXCL8", "value": 0},
        {"do": "skip", "feature": "AQP8"},
        {"do": "undo"},
        {"do": "explain", "most": 2},
        {"do": "ranking"},
        {"do": "history"},
        {"do": "save", "file": str(tmp_path / "s.yaml")},
        {"do": "show"},
        {"do": "view"},
        {"do": "quit"},
    ]
    assert {request["do"] for request in requests} == set(VERBS)
    answers = ask(planner, *requests, {"do": "never read"})
    assert [answer["ok"] for answer in answers] == [True] * 10
    assert answers[0]["spent"] == 4
    assert answers[3]["undone"] == {"kind": "skip", "features": ["AQP8"], "values": [None]}
    assert len(answers[4]["candidates"]) == 2
    assert {row["entity"] for row in answers[5]["ranking"]} == set(bundle_tiny.entities)
    assert [row["value"] for row in answers[6]["history"]] == [1, 0]
    assert load_session(tmp_path / "s.yaml", bundle_tiny).observed == {"CXCL8": 0}


@pytest.mark.parametrize(
    ("line", "where"),
    [
        ("no json", "request"),
        ("[1]", "request"),
        ("[" * 100_000, "request"),
        ("{}", "request, key do"),
        ('{"do": ["show"]}', "request, key do"),
        ('{"do": "obs"}', "request, key do"),
        ('{"do": "observe", "values": {}}', "request, key observe.values"),
        ('{"do": "observe", "values": {"MUC2": 2}}', "request, key observe.values.MUC2"),
        ('{"do": "observe", "values": {"MUC2": true}}', "request, key observe.values.MUC2"),
        ('{"do": "observe", "values": {"MUC2": 1}, "cost": NaN}', "request, key observe.cost"),
        ('{"do": "observe", "values": {"nosuch": 1}}', "feature 'nosuch'"),
        ('{"do": "observe", "values": {"IL8": 1, "CXCL8": 1}}', "request observe, key values"),
        ('{"do": "correct", "feature": "MUC2", "value": 1}', "feature MUC2"),
        ('{"do": "undo"}', "undo"),
        ('{"do": "show", "more": 1}', "request, key show.more"),
        ('{"do": "observe", "values": {"MUC2": 1, "MUC2": 0}}', "request"),
        ('{"do": "observe", "values": {"\\ud800": 1}}', "request"),
        ('{"do": "save", "file": "a\\u0000b"}', "save"),
        ('{"do": "save", "file": "/no/such/folder/s.yaml"}', "save /no/such/folder/s.yaml"),
    ],
)
def test_a_request_that_cannot_be_carried_out_is_answered_and_changes_nothing(
    bundle_tiny: Bundle, line: str, where: str
) -> None:
    planner = plain(bundle_tiny)
    wrong, after = ask(planner, line, {"do": "show"})
    assert not wrong["ok"]
    assert wrong["error"]["where"] == where
    assert wrong["error"]["next_step"]
    assert after["ok"]
    assert planner.actions == ()


def test_a_ranking_of_one_entity_is_refused(bundle_tiny: Bundle) -> None:
    (answer,) = ask(BinaryPlanner(bundle_tiny, entity="bleeding"), {"do": "ranking"})
    assert answer["error"]["where"] == "request ranking"


def test_a_value_given_twice_names_the_command_that_replaces_it(bundle_tiny: Bundle) -> None:
    text = talk(plain(bundle_tiny), "MUC2=1", "MUC2=0", "fix MUC2 0")
    assert (
        "feature MUC2: found the earlier value 1; expected a feature without a value. Next step: write fix MUC2 0"
        in text
    )
