"""How `afa plan` is started: its question, its options, its panels, and a real terminal."""

from __future__ import annotations

import os
import pty
import select
import signal
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from commands import afa
from talking import AFA, TINY

from afa.dialogue.sessions import new_planner, read_panels
from afa.errors import AfaError, ConfigError, PlannerError
from afa.model.bundle import Bundle, load_bundle
from afa.planner import BinaryPlanner, Stop


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
    with pytest.raises(PlannerError, match="planner option coupling: found 'shared': a ranking has no two classes"):
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
        ("mucus: {features: []}", "panel mucus, key features: found []; expected at least 1 of them"),
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
    screen.interrupt(until=b"not saved")
    assert screen.process.wait(20) == 0
    assert b"Traceback" not in screen.shown


def test_the_bundle_is_checked_first(tmp_path: Path) -> None:
    with pytest.raises(AfaError):
        load_bundle(tmp_path)
    result = afa("plan", tmp_path)
    assert result.returncode == 2
    assert str(tmp_path) in result.stderr


@pytest.mark.parametrize(
    ("words", "closed"),
    [("plan", "<&-"), ("plan", ">&-"), ("plan", "2>&-"), ("plan --json", "<&- >&- 2>&-"), ("bundle show", ">&-")],
)
def test_a_stream_that_is_closed_is_no_error(words: str, closed: str) -> None:
    command = f"exec {AFA} {words.replace('plan', f'plan {TINY}').replace('show', f'show {TINY}')} {closed}"
    done = subprocess.run(["bash", "-c", command], input=b"", capture_output=True, check=False)
    assert (done.returncode, done.stderr) == (0, b"")


@pytest.mark.parametrize("encoding", ["ascii", "utf-8:strict"])
def test_letters_that_a_terminal_lacks_end_no_conversation(encoding: str) -> None:
    environment = {**os.environ, "PYTHONIOENCODING": encoding}
    done = subprocess.run([AFA, "demo"], input=b"\n\xff=1\n", capture_output=True, check=False, env=environment)
    assert (done.returncode, done.stderr) == (0, b"")
    assert b"an unknown name" in b" ".join(done.stdout.split())
