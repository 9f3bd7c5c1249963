"""What `afa plan` keeps of a session, takes up again, and does not write over."""

from __future__ import annotations

import json
import shutil
import subprocess
from pathlib import Path
from typing import Any

import pytest
import yaml
from commands import afa
from talking import AFA, TINY, Noted, Refusing, ask, plain, talk

from afa.dialogue.sessions import PanelDefinitions, SessionFile, new_planner, open_session, resumed_planner
from afa.errors import PlannerError
from afa.model.bundle import Bundle, load_bundle, stamp_bundle
from afa.planner import Stop
from afa.planner.session import load_session, save_session


def test_the_session_is_kept_after_every_step(bundle_tiny: Bundle) -> None:
    for speak, steps in (
        (talk, ["1", "fix CXCL8 0", "skip", "undo", "why"]),
        (ask, [{"do": "observe", "values": {"MUC2": 1}}, {"do": "skip", "feature": "AQP8"}, {"do": "undo"}]),
    ):
        planner, noted = plain(bundle_tiny), Noted()
        planner.observe("CXCL8", 1)
        speak(planner, *steps, keeper=noted)
        assert noted.steps == ([2, 3, 4, 3] if speak is talk else [2, 3, 2])


def test_other_settings_beside_an_earlier_session_are_refused_and_the_same_are_not(
    bundle_tiny: Bundle, tmp_path: Path
) -> None:
    panels = PanelDefinitions({"mucus": ("MUC2", "TFF3")}, {"mucus": 7.0})
    asked: dict[str, Any] = {"k": 1, "panels": panels, "entity": None}
    save_session(
        new_planner(bundle_tiny, **asked, stop=Stop(certain=True, gain=0.1), costs="equal", score="wald"),
        tmp_path / "s.yaml",
    )
    given = {"k": 1, "panels": panels, "costs": "equal", "score": "wald", "min_gain": 0.1, "budget": None}
    assert resumed_planner(tmp_path / "s.yaml", bundle_tiny, given).k == 1
    for other in (
        {"k": 2},
        {"certain": False},
        {"min_gain": 0.2},
        {"entity": "fistula"},
        {"panels": PanelDefinitions({"mucus": ("MUC2",)}, {})},
        {"panels": PanelDefinitions(panels.features, {"mucus": 8.0})},
        {"costs": "own"},
    ):
        name = "--" + next(iter(other)).replace("_", "-")
        name = "--panels or --costs" if {"panels", "costs"} & other.keys() else name
        with pytest.raises(PlannerError, match=f"an earlier session, and {name}"):
            resumed_planner(tmp_path / "s.yaml", bundle_tiny, given | other)


def test_a_session_is_taken_up_again_by_the_same_command(tmp_path: Path) -> None:
    file = tmp_path / "patient.yaml"
    first = afa("plan", TINY, "--session", file, "--to-the-end", typed="CXCL8=1\n")
    assert first.returncode == 0, first.stderr
    assert f"session saved in {file}" in first.stdout.replace("\n", "")
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


def test_a_session_whose_bundle_was_edited_is_refused_and_replayed_on_request_and_says_what_changed(tmp_path):
    file, bundle = tmp_path / "s.yaml", tmp_path / "bundle"
    shutil.copytree(TINY, bundle)
    assert afa("plan", bundle, "--session", file, "--to-the-end", typed="CXCL8=1\n").returncode == 0
    before = file.read_text()
    text = (bundle / "unary.csv").read_text()
    (bundle / "unary.csv").write_text(text.replace("CXCL8,1", "CXCL8,-1", 1))
    stamp_bundle(bundle)
    refused = afa("plan", bundle, "--session", file)
    assert refused.returncode == 2
    assert "or take its values again (--replay, afa.replay_session)" in refused.stderr
    looked = afa("plan", bundle, "--session", file, "--replay", "--json", typed="")
    greeting = json.loads(looked.stdout)
    assert [change.split(":")[0] for change in greeting["changed"]] == ["tiny has changed since this session"]
    assert greeting["observed"] == 1
    assert file.read_text() == before, "nothing is written before a step"
    replayed = afa("plan", bundle, "--session", file, "--replay", typed="AQP8=0\n")
    assert "tiny has changed since this session: then version 1" in replayed.stdout
    again = afa("plan", bundle, "--session", file, "--json", typed="")
    assert json.loads(again.stdout)["changed"] == []
    assert yaml.safe_load(file.read_text())["bundle"]["digest"] == load_bundle(bundle).digest
    lone = afa("plan", bundle, "--replay")
    assert lone.returncode == 2
    assert "--replay: found no session; expected a session file" in lone.stderr


def test_two_processes_on_one_session_take_turns_and_lose_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("afa.dialogue.sessions.LOCK_SECONDS", 0.2)
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
    keeper, planner = SessionFile(), plain(bundle_tiny)
    saves = [f"save '{tmp_path}'", "save ''", f"save '{other}'", f"save '{mine}'"]
    text = talk(planner, *saves, "1", f"save '{mine}'", keeper=keeper)
    assert f"save {tmp_path}: found a folder of that name" in text
    assert "save: found no name" in text
    assert f"save {other}: found a file of that name" in text
    assert other.read_text() == "of somebody else"
    assert len(load_session(mine, bundle_tiny).actions) == 1
    assert keeper.save_message(planner) == f"session saved in {mine}"
    talk(planner, "1", keeper=keeper)
    assert "the last steps are not saved" in keeper.save_message(planner)
