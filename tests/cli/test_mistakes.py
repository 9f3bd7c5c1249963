"""A first bundle by hand and a first plan with it: each mistake on the way is named, with what to do about it."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import pytest
from pages import write_files
from typer.testing import CliRunner

from afa.cli import app
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
    lines = [str(fault) for fault in ran.exception.faults if found in str(fault)]
    assert lines, ran.exception
    return lines[0].partition("Next step: ")[2]


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
        ("plan plants --k 3", "found 3; expected 1 to 2", "choose a smaller k"),
        ("plan plants --entity drougt", "found 'drougt'; expected an entity of the bundle: drought", "name one"),
        ("plan plants --k 1 --entity drought", "found both", "leave one of them out"),
        ("plan plants --score lineraity", "found 'lineraity'; expected linearity", "choose one of these"),
        ("plan plants --probability 95", "found 95.0; expected a number above 0.5 and below 1", "such a number"),
        ("plan plants --panels panels.yaml", "panels.yaml: found No such file", "check the path"),
        ("plan plants --session plants/bundle.yaml", "key name: found an unknown key", "remove it"),
        ("simulate plants nowhere.csv --out made", "nowhere.csv: found ", "check the path"),
    ],
)
@pytest.mark.usefixtures("plants")
def test_a_mistake_on_the_command_line_is_named_by_what_was_typed(words: str, found: str, step: str) -> None:
    assert step in told(words, found)


@pytest.mark.parametrize(
    ("line", "where", "expected"),
    [
        ('{"do": "observe", "values": {"growth": 1}', "request", "one JSON object a line"),
        ('{"do": "observ"}', "request, key do", "show or observe"),
        ('{"do": "observe", "values": {"growth": 2}}', "request, key observe.values.growth", "1"),
        ('{"do": "observe", "values": {"growth": NaN}}', "request, key observe.values.growth", "a valid integer"),
        ('{"do": "observe", "value": {"growth": 1}}', "request, key observe.value", "only known keys"),
        ('{"do": "observe", "values": {"gorwth": 1}}', "feature 'gorwth'", "a feature of the bundle"),
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
