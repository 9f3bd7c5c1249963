"""`afa plan` on a bundle with probabilities: what it asks, what none of the entities has, and sessions."""

from __future__ import annotations

import io
import json
from pathlib import Path

import pytest
import yaml
from commands import afa
from rated import FEVERS, written
from rich.console import Console

from afa.dialogue.conversation import converse
from afa.dialogue.sessions import SessionFile, new_planner
from afa.dialogue.terminal import Terminal
from afa.dialogue.words import answer_of
from afa.errors import PlannerError
from afa.model.bundle import load_bundle
from afa.planner import BinaryPlanner, Planner, Stop, TopKPlanner


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    return written(tmp_path / "fevers", FEVERS)


def said(planner: Planner, *lines: str) -> str:
    """What the terminal shows when these lines are typed."""
    shown, typed = io.StringIO(), iter(lines)

    def read(_: str) -> str:
        try:
            return next(typed)
        except StopIteration:
            raise EOFError from None

    Terminal(planner, Console(file=shown, width=200, no_color=True), read, SessionFile()).run()
    return shown.getvalue()


def test_the_terminal_says_that_none_is_likelier(folder: Path) -> None:
    text = said(TopKPlanner(load_bundle(folder), k=1), "cough=0")
    assert "none is likely (most: cold, 0.27)" in text
    several = said(TopKPlanner(load_bundle(folder), k=1, holds="several"), "cough=1 red=1")
    assert "flu (probability 0.90; no remaining measurement can change this)  2 measured" in several


def test_json_answers_hold_what_none_has(folder: Path) -> None:
    planner = TopKPlanner(load_bundle(folder), k=1)
    request = json.dumps({"do": "observe", "values": {"cough": 0}})
    first, answer = map(json.loads, converse(planner, [request], SessionFile()))
    assert first["answer"]["none_between"] == pytest.approx([1 / 3] * 2)
    assert answer["answer"]["none"] is True
    assert answer["answer"]["none_between"] == pytest.approx(planner.none())
    refused = json.dumps({"do": "observe", "values": {"red": -1}})
    told = json.loads(list(converse(planner, [refused], SessionFile()))[-1])
    assert (told["ok"], told["error"]["expected"]) == (False, "0 or 1")


def test_a_usual_value_is_no_answer_by_itself_where_it_counts(folder: Path) -> None:
    planner = BinaryPlanner(load_bundle(folder), entity="flu")
    planner.observe("red", 0)
    assert answer_of(planner)["none"] is False
    assert answer_of(planner)["words"] == "not flu (probability 0.67)"
    assert planner.outcomes("cough")["value"].tolist() == [0, 1]


def test_a_panel_of_what_excludes_each_other_takes_all_its_values(folder: Path) -> None:
    planner = TopKPlanner(load_bundle(folder), k=1)
    said(planner, "skip cough", "1 0 0")
    assert sum(planner.observed.values()) == 1
    assert planner.spent == 1


def test_the_command_takes_how_many_hold_and_keeps_it(folder: Path, tmp_path: Path) -> None:
    session = tmp_path / "s.yaml"
    options = ("plan", folder, "--json", "--session", session)
    ran = afa(*options, "--holds", "several", "--tau", "0.5")
    assert ran.returncode == 0, ran.stderr
    assert ran.stdout.count("\n") == 1
    settings = yaml.safe_load(session.read_text())["settings"]
    assert (settings["holds"], settings["tau"], settings["coupling"]) == ("several", 0.5, "explicit")
    other = afa(*options, "--holds", "one")
    assert other.returncode == 2
    assert "--holds one" in other.stderr


def test_how_many_hold_is_no_question_of_one_entity(folder: Path) -> None:
    with pytest.raises(PlannerError, match="option --holds: found one; expected no --entity beside it"):
        new_planner(load_bundle(folder), k=None, entity="flu", panels=None, stop=Stop(), holds="one")
