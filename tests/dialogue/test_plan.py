"""`afa plan`: the same planner in a terminal and by JSON lines; what a user reads at each mistake."""

from __future__ import annotations

import io
import json
import os
import pty
import select
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml
from bundles import bundle_of
from commands import afa
from rich.console import Console

from afa.bundle import Bundle, load_bundle
from afa.dialogue.conversation import VERBS, converse
from afa.dialogue.keeping import Keeper, open_session
from afa.dialogue.opening import Panels, new_planner, read_panels, resumed_planner
from afa.dialogue.terminal import Terminal
from afa.errors import AfaError, ConfigError, Fault, PlannerError
from afa.planner import BinaryPlanner, Planner, Stop, TopKPlanner
from afa.session import load_session, save_session

ROOT = Path(__file__).parents[2]
TINY = ROOT / "tests/data/bundle_tiny"
AFA = str(Path(sys.executable).parent / "afa")


class Noted(Keeper):
    """Notes how many steps there were each time that the session was to be kept."""

    def __init__(self) -> None:
        super().__init__()
        self.steps: list[int] = []

    def keep(self, planner: Planner) -> None:
        self.steps.append(len(planner.actions))


class Refusing(Keeper):
    """A session that cannot be written."""

    def keep(self, planner: Planner) -> None:
        raise PlannerError(Fault("s.yaml", "a full disk", "room", "make room"))


def talk(planner: Planner, *lines: str, keeper: Keeper | None = None) -> str:
    """What the terminal shows when these lines are typed, and then Ctrl-D."""
    shown = io.StringIO()
    console = Console(file=shown, width=200, no_color=True)
    typed = iter(lines)

    def read(prompt: str) -> str:
        shown.write(prompt)
        try:
            line = next(typed)
        except StopIteration:
            raise EOFError from None
        shown.write(line + "\n")
        return line

    Terminal(planner, console, read, keeper or Keeper()).run()
    return shown.getvalue()


def ask(planner: Planner, *requests: Any, keeper: Keeper | None = None) -> list[dict[str, Any]]:
    """The answers to JSON requests, without the greeting; texts are sent as they are."""
    lines = (request if isinstance(request, str) else json.dumps(request) for request in requests)
    _, *answers = map(json.loads, converse(planner, lines, keeper or Keeper()))
    return answers


def plain(bundle: Bundle, **options: Any) -> TopKPlanner:
    return TopKPlanner(bundle, **({"k": 1, "costs": "equal"} | options))


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


def test_a_number_is_read_by_the_range_that_is_shown() -> None:
    cooling = load_bundle(ROOT / "afa/examples/cooling/bundle")
    planner = TopKPlanner(cooling, panels={}, costs="equal", first=["superheat"])
    text = talk(planner, "12,5", "fix superheat 6.9", "subcooling=1.0", "fix subcooling high", "fix superheat cold")
    assert "usual: 4 to 10 K; type the number, or -1, 0, 1" in text
    for said in ("superheat: 12,5 is high", "superheat: 6.9 is usual", "subcooling: 1.0 is low"):
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


def test_the_session_is_kept_after_every_step(bundle_tiny: Bundle) -> None:
    for speak, steps in (
        (talk, ["1", "fix CXCL8 0", "skip", "undo", "why"]),
        (ask, [{"do": "observe", "values": {"MUC2": 1}}, {"do": "skip", "feature": "AQP8"}, {"do": "undo"}]),
    ):
        planner, noted = plain(bundle_tiny), Noted()
        planner.observe("CXCL8", 1)
        speak(planner, *steps, keeper=noted)
        assert noted.steps == ([2, 3, 4, 3] if speak is talk else [2, 3, 2])


def test_without_a_question_the_best_is_looked_for_or_whether_the_only_one_holds(bundle_tiny: Bundle) -> None:
    assert new_planner(bundle_tiny, k=None, entity=None, panels=None, stop=Stop()).k == 1
    only = bundle_tiny.restrict_entities(["fistula"])
    planner = new_planner(only, k=None, entity=None, panels=None, stop=Stop())
    assert isinstance(planner, BinaryPlanner)
    assert planner.entity == "fistula"
    with pytest.raises(PlannerError, match="ask whether it holds: BinaryPlanner, or --entity fistula"):
        new_planner(only, k=1, entity=None, panels=None, stop=Stop())


def test_one_entity_may_have_its_couplings_in_both_classes_and_a_ranking_may_not(bundle_tiny: Bundle) -> None:
    asked = {"bundle": bundle_tiny, "k": None, "panels": None, "stop": Stop(), "coupling": "shared"}
    assert new_planner(**asked, entity="bleeding").settings["coupling"] == "shared"
    with pytest.raises(PlannerError, match="--coupling"):
        new_planner(**asked, entity=None)


def test_panels_are_read_from_a_file_with_their_costs(bundle_tiny: Bundle, tmp_path: Path) -> None:
    file = tmp_path / "panels.yaml"
    file.write_text("mucus: {features: [MUC2, TFF3], cost: 7}\nrest: [AQP8, MMP9]\n")
    panels = read_panels(file)
    for costs, rest in ((None, 2.0), ("equal", 2.0)):
        planner = new_planner(bundle_tiny, k=1, entity=None, panels=panels, stop=Stop(), costs=costs)
        assert {row["item"]: row["cost"] for row in planner.explain().to_dict("records")} == {
            "mucus": 7.0,
            "rest": rest,
            "CXCL8": 2.0 if costs is None else 1.0,
        }


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("mucus: {features: []}", "panel mucus, key features"),
        ("mucus: {features: [MUC2], cost: -1}", "panel mucus, key cost"),
        ("mucus: {feature: [MUC2]}", "rename it to features"),
        ("mucus: 3", "panel mucus, key features"),
        ("- mucus", "a mapping of keys to values"),
    ],
)
def test_a_faulty_file_of_panels_is_refused_by_panel_and_key(tmp_path: Path, text: str, words: str) -> None:
    file = tmp_path / "panels.yaml"
    file.write_text(text)
    with pytest.raises(ConfigError) as error:
        read_panels(file)
    assert str(file) in str(error.value)
    assert words in str(error.value)


def test_other_settings_beside_an_earlier_session_are_refused_and_the_same_are_not(
    bundle_tiny: Bundle, tmp_path: Path
) -> None:
    panels = Panels({"mucus": ("MUC2", "TFF3")}, {"mucus": 7.0})
    asked: dict[str, Any] = {"k": 1, "panels": panels, "entity": None}
    save_session(
        new_planner(bundle_tiny, **asked, stop=Stop(certain=True, gain=0.1), costs="equal", score="wald"),
        tmp_path / "s.yaml",
    )
    given = {"--k": 1, "--panels": panels, "--costs": "equal", "--score": "wald", "--min-gain": 0.1, "--budget": None}
    assert resumed_planner(tmp_path / "s.yaml", bundle_tiny, given).k == 1
    for other in (
        {"--k": 2},
        {"--certain": False},
        {"--min-gain": 0.2},
        {"--entity": "fistula"},
        {"--panels": Panels({"mucus": ("MUC2",)}, {})},
        {"--panels": Panels(panels.features, {"mucus": 8.0})},
        {"--costs": "own"},
    ):
        name = "--panels or --costs" if {"--panels", "--costs"} & other.keys() else next(iter(other))
        with pytest.raises(PlannerError, match=f"an earlier session, and {name}"):
            resumed_planner(tmp_path / "s.yaml", bundle_tiny, given | other)


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["--entity", "nosuch"], "expected an entity of the bundle: bleeding, diarrhea, fistula"),
        (["--entity", "bleeding", "--k", "1"], "options --k and --entity"),
        (["--k", "3"], "planner option k: found 3"),
        (["--score", "nosuch"], "planner option score"),
        (["--probability", "2"], "stop option probability: found 2.0"),
        (["--panels", "nosuch.yaml"], "nosuch.yaml"),
    ],
)
def test_a_wrong_option_is_one_line_and_exit_code_2(arguments: list[str], words: str) -> None:
    result = afa("plan", TINY, *arguments)
    assert result.returncode == 2
    assert result.stdout == ""
    (line,) = result.stderr.splitlines()
    assert words in line


def test_a_session_is_taken_up_again_by_the_same_command(tmp_path: Path) -> None:
    file = tmp_path / "patient.yaml"
    first = afa("plan", TINY, "--session", file, "--to-the-end", typed="CXCL8=1\n")
    assert first.returncode == 0, first.stderr
    assert f"kept in {file}" in first.stdout.replace("\n", "")
    second = afa("plan", TINY, "--session", file, "--json", typed='{"do": "undo"}\n')
    undone = json.loads(second.stdout.splitlines()[-1])["undone"]
    assert (undone["features"], undone["values"]) == (["CXCL8"], [1])
    assert yaml.safe_load(file.read_text())["steps"] == []
    third = afa("plan", TINY, "--session", file, "--to-the-end", typed="CXCL8=1\n")
    assert third.returncode == 0, third.stderr
    assert len(yaml.safe_load(file.read_text())["steps"]) == 1
    refused = afa("plan", TINY, "--session", file, "--k", 2)
    assert refused.returncode == 2
    assert "an earlier session, and --k 2; expected 1" in refused.stderr


def test_two_processes_on_one_session_take_turns_and_lose_nothing(tmp_path: Path) -> None:
    file = tmp_path / "s.yaml"
    command = [AFA, "plan", str(TINY), "--session", str(file), "--json"]
    first = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
    assert first.stdin is not None
    assert first.stdout is not None
    first.stdout.readline()
    second = afa("plan", TINY, "--session", file, "--json", typed='{"do": "observe", "values": {"AQP8": 1}}\n')
    assert second.returncode == 2
    assert second.stdout == ""
    assert "found another process that has it open; expected one process for a session" in second.stderr
    first.communicate('{"do": "observe", "values": {"MUC2": 1}}\n')
    third = afa("plan", TINY, "--session", file, "--json", typed='{"do": "observe", "values": {"AQP8": 1}}\n')
    assert third.returncode == 0, third.stderr
    assert [step["features"] for step in yaml.safe_load(file.read_text())["steps"]] == [["MUC2"], ["AQP8"]]
    assert [path.name for path in tmp_path.iterdir()] == ["s.yaml"]


def test_a_lock_that_a_killed_process_left_does_not_count(bundle_tiny: Bundle, tmp_path: Path) -> None:
    (tmp_path / ".s.yaml.lock").touch()
    with open_session(tmp_path / "s.yaml") as keeper:
        keeper.keep(plain(bundle_tiny))
    assert [path.name for path in tmp_path.iterdir()] == ["s.yaml"]


def test_a_session_whose_folder_becomes_a_file_takes_nothing_and_ends_well(bundle_tiny: Bundle, tmp_path: Path) -> None:
    folder, planner = tmp_path / "folder", plain(bundle_tiny)
    with open_session(folder / "s.yaml") as keeper:
        shutil.rmtree(folder)
        folder.touch()
        (answer,) = ask(planner, {"do": "observe", "values": {"MUC2": 1}}, keeper=keeper)
    assert not answer["ok"]
    assert "folder" in answer["error"]["where"]
    assert planner.actions == ()


def test_steps_that_came_from_elsewhere_are_not_written_over(bundle_tiny: Bundle, tmp_path: Path) -> None:
    file, planner = tmp_path / "s.yaml", plain(bundle_tiny)
    with open_session(file) as keeper:
        keeper.keep(planner)
        other = plain(bundle_tiny)
        other.observe("AQP8", 1)
        save_session(other, file)
        (answer,) = ask(planner, {"do": "observe", "values": {"MUC2": 1}}, keeper=keeper)
        assert "found steps that came from elsewhere" in talk(planner, "MUC2=1", keeper=keeper)
    assert not answer["ok"]
    assert answer["error"]["found"] == "steps that came from elsewhere"
    assert planner.actions == ()
    assert load_session(file, bundle_tiny).observed == {"AQP8": 1}


def test_a_step_that_cannot_be_kept_is_taken_back(bundle_tiny: Bundle) -> None:
    steps = {
        "MUC2=1": {"do": "observe", "values": {"MUC2": 1}},
        "fix CXCL8 0": {"do": "correct", "feature": "CXCL8", "value": 0},
        "skip AQP8": {"do": "skip", "feature": "AQP8"},
        "undo": {"do": "undo"},
    }
    planner = plain(bundle_tiny)
    planner.observe("CXCL8", 1)
    before = planner.actions, planner.observed, planner.top_k(), planner.boundary_probability()
    for line, request in steps.items():
        (answer,) = ask(planner, request, keeper=Refusing())
        assert not answer["ok"]
        assert "found a full disk" in talk(planner, line, keeper=Refusing())
        assert (planner.actions, planner.observed, planner.top_k(), planner.boundary_probability()) == before


def test_a_copy_is_not_written_over_another_file(bundle_tiny: Bundle, tmp_path: Path) -> None:
    mine, other = tmp_path / "mine.yaml", tmp_path / "other.yaml"
    other.write_text("of somebody else")
    keeper, planner = Keeper(), plain(bundle_tiny)
    text = talk(planner, f"save '{other}'", f"save '{mine}'", "1", f"save '{mine}'", keeper=keeper)
    assert f"save {other}: found a file of that name" in text
    assert other.read_text() == "of somebody else"
    assert len(load_session(mine, bundle_tiny).actions) == 1
    assert keeper.closing_words(planner) == f"kept in {mine}"
    talk(planner, "1", keeper=keeper)
    assert "the last steps are not kept" in keeper.closing_words(planner)


def test_a_value_given_twice_names_the_command_that_replaces_it(bundle_tiny: Bundle) -> None:
    text = talk(plain(bundle_tiny), "MUC2=1", "MUC2=0", "fix MUC2 0")
    assert (
        "feature MUC2: found the earlier value 1; expected a feature without a value. Next step: write fix MUC2 0"
        in text
    )


def test_bytes_that_are_no_text_are_answered(tmp_path: Path) -> None:
    for options, words in ((["--json"], "not UTF-8"), ([], "an unknown name")):
        typed = b'{"do": "observe", "values": {"\xff": 1}}\n' if options else b"\xff=1\n"
        done = subprocess.run([AFA, "plan", TINY, *options], input=typed, capture_output=True, check=False)
        assert done.returncode == 0, done.stderr
        assert words in done.stdout.decode(errors="replace").replace("\n", " ")
        assert b"Traceback" not in done.stderr


class Screen:
    """`afa plan` in a real terminal, in which Ctrl-C works even where whoever runs the tests ignores it."""

    def __init__(self) -> None:
        self.keys, its = pty.openpty()
        self.process = subprocess.Popen(
            ["env", "--default-signal=INT", AFA, "plan", str(TINY)],
            stdin=its,
            stdout=its,
            stderr=its,
            env={**os.environ, "TERM": "xterm", "COLUMNS": "100"},
        )
        os.close(its)
        self.shown = b""

    def wait_for(self, text: bytes, times: int = 1) -> None:
        """Read on until a text has been shown so often; a minute and a half is what compilation may take."""
        limit = time.monotonic() + 120
        while self.shown.count(text) < times:
            assert time.monotonic() < limit, self.shown
            if select.select([self.keys], [], [], 1)[0]:
                self.shown += os.read(self.keys, 4096)

    def type(self, text: bytes) -> None:
        os.write(self.keys, text)

    def interrupt(self, until: bytes) -> None:
        """Press Ctrl-C until the answer shows: Python's reader of lines can miss one that comes before it waits."""
        for _ in range(10):
            self.process.send_signal(signal.SIGINT)
            limit = time.monotonic() + 10
            while time.monotonic() < limit:
                if select.select([self.keys], [], [], 0.2)[0]:
                    self.shown += os.read(self.keys, 4096)
                if until in self.shown:
                    return
        raise AssertionError(self.shown)


@pytest.fixture
def screen() -> Iterator[Screen]:
    screen = Screen()
    yield screen
    screen.process.kill()
    screen.process.wait()
    os.close(screen.keys)


def test_in_a_real_terminal_it_ends_by_control_d(screen: Screen) -> None:
    screen.wait_for(b"> ")
    screen.type(b"0\n")
    screen.wait_for(b"> ", 2)
    screen.type(b"\x04")
    assert screen.process.wait(20) == 0
    assert b"Traceback" not in screen.shown
    assert b"because" in screen.shown


def test_control_c_leaves_as_control_d_does_and_says_what_is_kept(screen: Screen) -> None:
    screen.wait_for(b"> ")
    screen.type(b"0\n")
    screen.wait_for(b"> ", 2)
    screen.interrupt(until=b"not kept")
    assert screen.process.wait(20) == 0
    assert b"Traceback" not in screen.shown


def test_the_bundle_is_checked_first(tmp_path: Path) -> None:
    with pytest.raises(AfaError):
        load_bundle(tmp_path)
    result = afa("plan", tmp_path)
    assert result.returncode == 2
    assert str(tmp_path) in result.stderr
