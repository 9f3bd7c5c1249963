"""A first bundle by hand and a first plan with it: every mistake on the way is one line that names the next step.

In files, on the command line, in the terminal, by JSON lines, on the page and from Python.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
from commands import afa as run_afa
from pages import write_files
from rich.console import Console
from typer.testing import CliRunner

import afa
from afa.cli import app
from afa.dialogue.conversation import Conversation
from afa.dialogue.server import Served
from afa.dialogue.sessions import SessionFile
from afa.dialogue.terminal import Terminal
from afa.errors import AfaError


@pytest.fixture
def plants(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The bundle of the tutorial, in the folder in which the commands are given."""
    write_files(tmp_path)
    monkeypatch.chdir(tmp_path)
    return tmp_path / "plants"


def told(words: str, found: str) -> str:
    """The next step in the first line with these words that a command which fails says to its user."""
    ran = CliRunner().invoke(app, words.split())
    assert isinstance(ran.exception, AfaError), ran.output
    return next_step(ran.exception, found)


def next_step(error: AfaError, found: str) -> str:
    """The next step of the first fault with these words, which is one line."""
    lines = [str(fault) for fault in error.faults if found in str(fault)]
    assert lines, error
    line, _, step = lines[0].partition(" Next step: ")
    assert "\n" not in lines[0]
    assert line.endswith(".")
    return step


def edited(name: str, old: str, new: str) -> Callable[[Path], None]:
    def edit(plants: Path) -> None:
        text = (plants / name).read_text(encoding="utf-8")
        assert old in text
        (plants / name).write_text(text.replace(old, new), encoding="utf-8")

    return edit


@pytest.mark.parametrize(
    ("mistake", "found", "step"),
    [
        (edited("unary.csv", "potential\n", "potentail\n"), "line 1, column potential: found no such column", "header"),
        (edited("unary.csv", "edges,1", "edges,NaN"), "line 4, column potential: found 'NaN'", "correct the number"),
        (edited("unary.csv", "edges,1", "edges,high"), "line 4, column potential: found 'high'", "correct the number"),
        (
            edited("unary.csv", "brown_edges,1", '"brown_edges,1'),
            "line 4: found text that is not CSV",
            "check the quotes",
        ),
        (edited("unary.csv", ",", ";"), "line 1: found columns separated by ';'", "save it with commas"),
        (edited("unary.csv", "edges,1", "edges,1,5"), "line 4: found 4 fields", "in quotes"),
        (edited("bundle.yaml", '"1"', "1"), "key version: found 1; expected text; put it in quotes", "correct"),
        (edited("bundle.yaml", "name: plants\n", ""), "key name: found nothing", "add the key"),
        (edited("bundle.yaml", "version", "verison"), "key version: found nothing", "add the key"),
        (lambda plants: (plants / "pairwise.csv").unlink(), "pairwise.csv: found no such file", "with the header"),
    ],
)
def test_a_mistake_in_a_file_is_named_by_its_line_or_key(
    plants: Path, mistake: Callable[[Path], None], found: str, step: str
) -> None:
    mistake(plants)
    assert step in told("bundle validate plants", found)


@pytest.mark.parametrize(
    ("words", "found", "step"),
    [
        ("bundle validate plant", "plant: found nothing", "check the path"),
        ("bundle validate plants/unary.csv", "found a file; expected a bundle folder", "check the path"),
        ("plan plants/bundle.yaml", "found a file; expected a bundle folder", "check the path"),
        ("plan plants --k 3", "found 3; expected 1 to 2", "choose a whole number of these"),
        ("plan plants --entity drougt", "no entity 'drougt'; expected one of its entities", "did you mean drought"),
        ("plan plants --k 1 --entity drought", "found both", "leave one of them out"),
        ("plan plants --score lineraity", "found 'lineraity'; expected linearity", "choose one of these"),
        ("plan plants --probability 95", "found 95.0; expected a number above 0.5 and below 1", "such a number"),
        ("plan plants --panels panels.yaml", "panels.yaml: found No such file", "check the path"),
        ("plan plants --session plants/bundle.yaml", "key name: found an unknown key", "remove it"),
        ("plan plants --posterior 90", "found 90.0; expected a number above 0 and below 1", "such a number"),
        ("plan plants --first grwth", "found the unknown name 'grwth'", "did you mean growth"),
        ("plan plants --allocation gredy", "found 'gredy'; expected random or ", "choose one of these"),
        ("plan plants --holds one", "'one' with differential couplings", "leave it out"),
        ("plan plants --budget inf", "stop option budget: found inf; expected a finite number", "such a number"),
        ("serve plants --host a..b", "option --host: found 'a..b'; expected an address", "leave --host out"),
        ("league page plants --out made", "neither facts.parquet nor not_fetched.txt", "name its folder"),
        ("encode gone.csv --features gone.csv --level 2 --out made.csv", "option level: found 2.0", "such a number"),
        ("encode gone.csv --features gone.csv --threshold inf --out made.csv", "found inf; expected a finite", "give"),
        ("field import plants --out made --address=", "--address: found nothing", "leave it out"),
        ("demo --patient nobody", "expected one of typical_dirty_condenser", "choose one of these"),
        ("simulate plants nowhere.csv --out made", "nowhere.csv: found ", "check the path"),
        ("simulate plants plants/unary.csv --out made", "expected each patient once", "remove or rename"),
        ("simulate plants plants/unary.csv --out plants", "in it; expected a place apart", "choose another"),
        ("bundle copy plants --out .", "BUNDLE plants in it; expected a place apart", "choose another name"),
        ("bundle copy plants --out plants/unary.csv", "found a file; expected a folder", "choose another name"),
        ("bundle graph plants --out plants.csv", "suffix '.csv'; expected .graphml or .json", "choose another"),
    ],
)
@pytest.mark.usefixtures("plants")
def test_a_mistake_on_the_command_line_is_named_by_what_was_typed(words: str, found: str, step: str) -> None:
    assert step in told(words, found)


@pytest.mark.parametrize(
    ("words", "found", "step"),
    [
        ("plan", "afa: plan: found no BUNDLE", "run `afa plan -h`"),
        ("plann plants", "afa: found no such command 'plann'", "did you mean 'plan'?"),
        ("bundle valdate plants", "afa: bundle: found no such command 'valdate'", "did you mean 'validate'?"),
        ("plan plants --kk 1", "found the unknown option --kk", "did you mean --k?"),
        ("plan plants --k two", "afa: plan, --k: found 'two'; expected a valid integer.", "run `afa plan -h`"),
        ("plan plants --k 0", "afa: plan, --k: found '0'; expected greater than or equal to 1.", "run `afa plan -h`"),
        (
            "plan plants --holds all",
            "found 'all'; expected one of 'several', 'one', 'one or none'.",
            "run `afa plan -h`",
        ),
        ("plan plants --entity", "found option '--entity' requires an argument", "run `afa plan -h`"),
        ("plan plants more", "unexpected extra argument", "run `afa plan -h`"),
        ("simulate plants gone.csv --out made --resamples 0", "found '0'; expected greater than", "afa simulate -h"),
        ("serve plants --port 99999", "found '99999'; expected less than or equal to 65535.", "run `afa serve -h`"),
        ("simulate plants patients.csv", "found no --out", "run `afa simulate -h`"),
    ],
)
@pytest.mark.usefixtures("plants")
def test_words_that_are_no_command_are_one_line_too(words: str, found: str, step: str) -> None:
    ran = run_afa(*words.split())
    assert (ran.returncode, ran.stdout) == (2, "")
    (line,) = ran.stderr.splitlines()
    said, _, next_step_ = line.partition(" Next step: ")
    assert found in said
    assert step in next_step_


@pytest.mark.parametrize(
    ("line", "where", "expected"),
    [
        ('{"do": "observe", "values": {"growth": 1}', "request", "one JSON object a line"),
        ('{"do": "observe", "values": {"growth": "much"}}', "feature growth", "-1, 0 or 1"),
        ('{"do": "observe", "value": {"growth": 1}}', "request, key observe.value", "only known keys"),
        ('{"do": "observe", "values": {"gorwth": 1}}', "feature 'gorwth'", "a feature of the bundle"),
        ('{"do": "observe", "numbers": {"growth": 3.5}}', "feature growth", "a feature with a range in features.csv"),
    ],
)
@pytest.mark.usefixtures("plants")
def test_a_mistake_in_a_request_is_answered_and_the_next_request_is_heard(line: str, where: str, expected: str) -> None:
    ran = CliRunner().invoke(app, ["plan", "plants", "--json"], input=f'{line}\n{{"do": "show"}}\n')
    _, wrong, after = map(json.loads, ran.stdout.splitlines())
    assert wrong["ok"] is False
    assert wrong["error"]["where"].startswith(where)
    assert expected in wrong["error"]["expected"]
    assert (after["ok"], after["observed"]) == (True, 0)


@pytest.mark.usefixtures("plants")
def test_a_place_where_nothing_can_be_saved_ends_no_conversation() -> None:
    ran = CliRunner().invoke(app, ["plan", "plants"], input="save plants/unary.csv/mine\n-1\n")
    assert ran.exit_code == 0
    assert "expected a folder that exists" in " ".join(ran.stdout.split())
    assert "1 measured" in ran.stdout
    request = '{"do": "save", "file": "plants/unary.csv/mine"}\n{"do": "show"}\n'
    ran = CliRunner().invoke(app, ["plan", "plants", "--json"], input=request)
    assert [json.loads(line)["ok"] for line in ran.stdout.splitlines()] == [True, False, True]


@pytest.fixture
def planner(plants: Path) -> afa.TopKPlanner:
    planner = afa.TopKPlanner(plants)
    planner.observe("soil_moisture", -1)
    return planner


@pytest.mark.parametrize(
    ("line", "found", "step"),
    [
        ("2", "found '2'; expected low, usual or high", "write one of these"),
        ("often", "found 'often'; expected low, usual, high, NAME=VALUE, or a command", "type ? for the commands"),
        ("0 1", "found 2 values; expected 1, for growth", "name the others as NAME=VALUE"),
        ("gorwth=1", "found an unknown name", "did you mean growth"),
        ("growth=high growth=low", "found two values", "leave one out"),
        ("growth=much", "found 'much'; expected low, usual or high", "write one of these"),
        (
            "soil_moisture=0",
            "found the earlier value low",
            "write fix soil_moisture and the new value to replace it, or undo",
        ),
        ("fix growth 1", "found no observation", "observe it"),
        ("skip soil_moisture", "found already observed", "correct the value, or undo"),
        ("save nowhere/mine.yaml", "found no such folder", "make the folder first"),
        ("save plants/unary.csv", "found a file of that name", "choose another name"),
        ("fix growth", "found 'fix growth'; expected fix NAME VALUE", "type fix NAME VALUE, or ? for what it does"),
        ("undo 3", "found 'undo 3'; expected undo", "type undo"),
        ("growth high", "found 'growth high'", "type growth=VALUE"),
        ("what's that", "expected quotes in pairs", "close the quote"),
    ],
)
def test_a_mistake_in_the_terminal_is_answered_and_changes_nothing(
    planner: afa.TopKPlanner, line: str, found: str, step: str
) -> None:
    lines, console = iter([line, "quit"]), Console(record=True, width=400)
    Terminal(planner, console, lambda _: next(lines), SessionFile()).run()
    (told,) = [words for words in console.export_text().splitlines() if "Next step" in words]
    assert found in told
    assert step in told.partition("Next step: ")[2]
    assert planner.observed == {"soil_moisture": -1}


@pytest.mark.parametrize(
    ("step", "request_", "found", "next_step_"),
    [
        (7, {"do": "undo"}, "a page that is older than the last step", "it shows the last step now"),
        (0, {"do": "observe", "numbers": {"growth": 12.5}}, "a number", "give low or usual or high"),
        (0, {"do": "dance"}, "'dance'", "choose one of these"),
    ],
)
def test_a_mistake_on_the_page_is_answered_and_changes_nothing(
    planner: afa.TopKPlanner, step: int, request_: dict[str, Any], found: str, next_step_: str
) -> None:
    async def said() -> dict[str, Any]:
        return Served(Conversation(planner, SessionFile())).say(step, request_)

    told = asyncio.run(said())
    assert told["answer"]["ok"] is False
    assert found in told["answer"]["error"]["found"]
    assert next_step_ in told["answer"]["error"]["next_step"]
    assert (told["state"]["step"], told["state"]["observed"]) == (0, 1)


@pytest.mark.parametrize(
    ("mistake", "found", "step"),
    [
        (lambda planner: planner.observe("gorwth", 1), "'gorwth': found an unknown name", "did you mean growth"),
        (lambda planner: planner.observe("growth", 0.4), "found 0.4; expected -1, 0 or 1", "or low, usual, high"),
        (lambda planner: planner.observe("growth", "much"), "found 'much'; expected -1, 0 or 1", "or low, usual, high"),
        (
            lambda planner: planner.observe("soil_moisture", 0),
            "found a second observation",
            "correct the earlier value",
        ),
        (lambda planner: planner.observe_all(pd.Series({"growth": np.nan})), "found none", "name a feature"),
        (lambda planner: planner.observe_all(["growth"]), "observations: found list", "give {feature: value}"),
        (lambda planner: planner.correct("growth", 1), "found no observation", "observe it"),
        (lambda planner: afa.TopKPlanner("plant"), "plant: found nothing", "check the path"),
        (lambda planner: afa.TopKPlanner({"plants": 1}), "found dict", "give afa.load_bundle(folder)"),
        (lambda planner: afa.TopKPlanner("plants", k=3), "found 3; expected 1 to 2", "choose a whole number of these"),
        (
            lambda planner: afa.TopKPlanner("plants", k="1"),
            "found '1'; expected 1 to 2",
            "choose a whole number of these",
        ),
        (lambda planner: afa.TopKPlanner("plants", panels=["growth"]), "found list", "give {name: [features]}"),
        (lambda planner: afa.TopKPlanner("plants", costs={"growth": -1}), "found -1", "give"),
        (lambda planner: afa.TopKPlanner("plants", costs=pd.Series({"growth": 1})), "or costs by name", "leave it out"),
        (lambda planner: afa.TopKPlanner("plants", panels={"a": 3}), "panel 'a': found 3; expected a list", "name the"),
        (lambda planner: afa.TopKPlanner("plants", first=None), "first: found None", "give a list of names"),
        (lambda planner: afa.TopKPlanner("plants", patient=5), "patient: found 5", "give a text"),
        (lambda planner: afa.TopKPlanner("plants", seed=1.5), "seed: found 1.5", "give a whole number"),
        (lambda planner: afa.TopKPlanner("plants", solver={}), "solver: found {}", "give an afa.Solver"),
        (lambda planner: afa.encode(np.ones((2, 2)), "gone.csv"), "table X: found ndarray", "give pandas.DataFrame"),
        (lambda planner: afa.BinaryPlanner("plants", entity="drougt"), "'drougt'", "did you mean drought"),
        (lambda planner: afa.Stop(posterior=95), "found 95; expected a number above 0 and below 1", "such a number"),
        (lambda planner: afa.simulate("plants", [[1, 0]]), "table X: found list", "give pandas.DataFrame"),
        (
            lambda planner: afa.bundle_from_frame({"growth": 1}),
            "bundle_from_frame: found dict",
            "give pandas.DataFrame",
        ),
        (
            lambda planner: afa.simulate("plants", pd.DataFrame({"soil": [1]})),
            "found none of brown_edges, growth, leaf_colour, leaf_firmness, soil_moisture among the columns soil",
            "name the columns as `afa bundle show` does",
        ),
        (
            lambda planner: afa.simulate("plants", pd.DataFrame({"growth": [0.5]}, index=["fern"])),
            "column growth: found '0.5' (patient fern)",
            "afa.encode(X, features)",
        ),
        (
            lambda planner: afa.bundle_from_frame(pd.DataFrame({"growth": ["high"]}, index=["drought"])),
            "found 'high'",
            "correct the number",
        ),
    ],
)
def test_a_mistake_in_python_names_the_next_step(
    planner: afa.TopKPlanner, mistake: Callable[[afa.TopKPlanner], Any], found: str, step: str
) -> None:
    with pytest.raises(AfaError) as caught:
        mistake(planner)
    assert step in next_step(caught.value, found)
    assert planner.observed == {"soil_moisture": -1}
