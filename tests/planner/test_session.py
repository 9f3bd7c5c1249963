"""Undo, corrections, what cannot be measured, and sessions that are saved and taken up again."""

from __future__ import annotations

import shutil
import stat
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
import yaml
from bundles import bundle_of, random_bundles
from examples import examples
from hypothesis import given
from hypothesis import strategies as st

import afa
from afa.errors import AfaError, ConfigError, PlannerError
from afa.inference.meanfield import Solver
from afa.model.bundle import Bundle, load_bundle, stamp_bundle
from afa.planner import BinaryPlanner, Planner, Stop, TopKPlanner
from afa.planner.rules import Greedy
from afa.planner.session import load_session, replay_session, save_session

VALUES = st.sampled_from([-1, 0, 1])


def state(planner: Planner) -> tuple[Any, ...]:
    """All that a user can ask a planner for."""
    answer = planner.scores() if isinstance(planner, TopKPlanner) else planner.probability()
    return (
        planner.next_feature(),
        planner.reason,
        planner.observed,
        planner.skipped,
        planner.spent,
        planner.resolved(),
        np.asarray(answer).tolist(),
        planner.history().to_csv(),
    )


def said(error: pytest.ExceptionInfo[AfaError]) -> str:
    assert all(fault.next_step for fault in error.value.faults)
    return str(error.value)


@given(random_bundles(), st.sampled_from(["greedy", "priority_all", "clustered"]), st.data())
@examples(20)
def test_undo_leads_back_through_every_state(bundle: Bundle, rule: str, data: st.DataObject) -> None:
    planner = TopKPlanner(bundle, k=1, allocation=rule)
    states = [state(planner)]
    while (feature := planner.next_feature()) is not None:
        what = data.draw(st.sampled_from(["observe", "skip", "correct"]))
        if what == "skip":
            planner.skip(feature)
        elif what == "correct" and planner.observed:
            if len(planner.actions) > 12:
                break
            planner.correct(data.draw(st.sampled_from(sorted(planner.observed))), data.draw(VALUES))
        else:
            planner.observe(feature, data.draw(VALUES))
        states.append(state(planner))
    for before in reversed(states[:-1]):
        planner.undo()
        assert state(planner) == before
    with pytest.raises(PlannerError, match="no step to take back"):
        planner.undo()


@given(random_bundles(), st.data())
@examples(20)
def test_a_corrected_value_gives_what_the_right_one_would_have(bundle: Bundle, data: st.DataObject) -> None:
    names = data.draw(st.permutations(bundle.features))
    right = {name: data.draw(VALUES) for name in names}
    wrong = data.draw(st.sampled_from(names))
    mended, clean = TopKPlanner(bundle, k=1), TopKPlanner(bundle, k=1)
    for name in names:
        mended.observe(name, -right[wrong] if name == wrong else right[name])
        clean.observe(name, right[name])
    mended.correct(wrong, right[wrong])
    assert mended.observed == clean.observed
    np.testing.assert_array_equal(mended.scores(), clean.scores())
    assert mended.resolved() == clean.resolved()


@given(random_bundles(entities=(2, 4)), st.data())
@examples(20)
def test_the_order_of_observations_changes_no_lead_and_no_certainty(bundle: Bundle, data: st.DataObject) -> None:
    values = {name: data.draw(VALUES) for name in bundle.features}
    planners = [TopKPlanner(bundle, k=1) for _ in range(2)]
    planners[0].observe_all(values)
    for name in data.draw(st.permutations(bundle.features)):
        planners[1].observe(name, values[name])
    np.testing.assert_allclose(planners[0].scores(), planners[1].scores(), atol=1e-9)


def test_what_cannot_be_measured_is_not_asked_for_and_stays_open(bundle_tiny: Bundle) -> None:
    planner = TopKPlanner(bundle_tiny, k=1, costs="equal")
    asked = []
    planner.skip("CXCL8")
    while (feature := planner.next_feature()) is not None:
        asked.append(feature)
        planner.observe(feature, 0)
    assert sorted(asked) == ["AQP8", "MMP9", "MUC2", "TFF3"]
    assert planner.reason == "what is not observed cannot be measured"
    assert not planner.certified()  # CXCL8 lets bleeding or fistula win
    planner.observe("CXCL8", 1)  # it came after all
    assert planner.skipped == frozenset()
    assert planner.next_feature() is None


def test_a_panel_is_skipped_by_its_name(bundle_tiny: Bundle) -> None:
    planner = TopKPlanner(bundle_tiny, k=1, costs="equal", panels={"mucus": ["MUC2", "TFF3"]})
    planner.observe("MUC2", 1)
    planner.skip("mucus")
    assert planner.skipped == {"TFF3"}
    assert planner.undo().features == ("TFF3",)


def test_several_values_come_in_all_or_none(bundle_tiny: Bundle) -> None:
    planner = TopKPlanner(bundle_tiny, k=1)
    before = state(planner)
    for values in ({"AQP8": 1, "nosuch": 1}, {"AQP8": 1, "MUC2": 2}, {}):
        with pytest.raises(PlannerError):
            planner.observe_all(values)
        assert state(planner) == before
    planner.observe_all({"AQP8": 1, "MUC2": -1})
    assert planner.undo().features == ("AQP8", "MUC2")
    assert state(planner) == before


@pytest.mark.parametrize(
    ("step", "words"),
    [
        (lambda p: p.correct("AQP8", 1), "feature AQP8: found no observation"),
        (lambda p: p.correct("MUC2", 3), "feature MUC2: found 3"),
        (lambda p: p.skip("MUC2"), "'MUC2': found already observed"),
        (lambda p: p.skip("nosuch"), "feature 'nosuch': found an unknown name"),
        (lambda p: p.observe("MUC2", 1), "correct the earlier value"),
        (lambda p: p.observe("MUCC2", 1), "did you mean MUC2"),
    ],
)
def test_a_step_that_does_not_fit_is_refused_and_changes_nothing(
    bundle_tiny: Bundle, step: Callable[[Planner], None], words: str
) -> None:
    planner = TopKPlanner(bundle_tiny, k=1)
    planner.observe("MUC2", 0)
    before = state(planner)
    with pytest.raises(PlannerError) as error:
        step(planner)
    assert words in said(error)
    assert state(planner) == before


def test_the_history_says_what_was_done_why_and_at_what_cost(bundle_tiny: Bundle) -> None:
    planner = TopKPlanner(bundle_tiny, k=1, panels={"mucus": ["MUC2", "TFF3"]}, costs={"mucus": 3, "AQP8": 1})
    planner.observe_all({"MUC2": 1, "TFF3": 0})
    feature = planner.next_feature()
    assert feature is not None
    asked = planner.reason
    planner.observe(feature, 1)
    planner.correct("MUC2", -1)
    planner.skip("CXCL8" if feature != "CXCL8" else "AQP8")
    table = planner.history()
    assert table["step"].tolist() == [1, 1, 2, 3, 4]
    assert table["kind"].tolist() == ["observe", "observe", "observe", "correct", "skip"]
    assert table["cost"].tolist()[:2] == [3, 0]
    assert table["spent"].iloc[-1] == planner.spent
    assert table["reason"].tolist() == ["not asked for", "not asked for", asked, "high was wrong", "cannot be measured"]
    assert table["value"].isna().tolist() == [False] * 4 + [True]


@given(random_bundles(), st.data())
@examples(15)
def test_a_session_taken_up_again_is_where_it_was(
    tmp_path_factory: pytest.TempPathFactory, bundle: Bundle, data: st.DataObject
) -> None:
    path = tmp_path_factory.mktemp("session") / "patient.yaml"
    options: dict[str, Any] = {
        "costs": {bundle.features[0]: 2.5},
        "panels": {"both": list(bundle.features[1:3])},
        "stop": Stop(budget=20, certain=True),
        "gain": data.draw(st.sampled_from(["cmi", "f_target", "wald_magnitude"])),
        "patient": "p,7: 'x'",
        "seed": 3,
    }
    planners: list[Planner] = [
        TopKPlanner(bundle, k=1, allocation="boundary", **options),
        BinaryPlanner(bundle, entity=bundle.entities[0], **options),
    ]
    for planner in planners:
        if feature := planner.next_feature():
            planner.observe(feature, data.draw(VALUES))
            planner.correct(feature, data.draw(VALUES))
        if feature := planner.next_feature():
            planner.skip(feature)
        save_session(planner, path)
        again = load_session(path, bundle)
        assert type(again) is type(planner)
        assert again.settings == planner.settings
        assert state(again) == state(planner)
        if planner.actions:
            assert again.undo() == planner.undo()


def test_layer0_comes_back_with_a_session(tmp_path: Path) -> None:
    bundle = bundle_of(np.array([[3.0, 2.0], [1.0, 1.0], [-5.0, -4.0]]), np.zeros((3, 2, 2)))
    planner = TopKPlanner(bundle, k=1, layer0="sound")
    save_session(planner, tmp_path / "s.yaml")
    again = load_session(tmp_path / "s.yaml", bundle)
    assert isinstance(again, TopKPlanner)
    assert again.eliminated == planner.eliminated


def test_a_rule_of_ones_own_is_asked_for_when_its_session_is_taken_up(bundle_tiny: Bundle, tmp_path: Path) -> None:
    class Mine(Greedy):
        pass

    path = tmp_path / "s.yaml"
    save_session(TopKPlanner(bundle_tiny, k=1, allocation=Mine()), path)
    with pytest.raises(PlannerError, match="a custom rule"):
        load_session(path, bundle_tiny)
    assert isinstance(load_session(path, bundle_tiny, allocation=Mine()).rule, Mine)


def test_a_session_of_another_bundle_is_refused(bundle_tiny: Bundle, tmp_path: Path) -> None:
    save_session(TopKPlanner(bundle_tiny, k=1), tmp_path / "s.yaml")
    other = bundle_of(np.eye(3, 5), np.zeros((3, 5, 5)), features=bundle_tiny.features)
    with pytest.raises(PlannerError) as error:
        load_session(tmp_path / "s.yaml", other)
    assert "a session on tiny 1" in said(error)


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"session": 2}, "key session"),
        ({"extra": 1}, "an unknown key"),
        (
            {"steps": [{"kind": "observe", "features": ["X"], "values": [1], "cost": 0, "reason": ""}]},
            "an unknown name",
        ),
        ({"steps": [{"kind": "observe", "features": ["MUC2"], "values": [2], "cost": 0, "reason": ""}]}, "steps.0"),
        ({"steps": [{"kind": "observe", "features": ["MUC2"], "values": [], "cost": 0, "reason": ""}]}, "key steps"),
        ({"steps": [{"kind": "correct", "features": ["MUC2"], "values": [1], "cost": 0, "reason": ""}]}, "step 1"),
        ({"steps": [{"kind": "skip", "features": ["MUC2"], "values": [1], "cost": 0, "reason": ""}]}, "steps.0"),
        ({"steps": [{"kind": "observe", "features": ["MUC2"], "values": [None], "cost": 0, "reason": ""}]}, "steps.0"),
        (
            {"steps": [{"kind": "observe", "features": ["MUC2"] * 2, "values": [1, 0], "cost": 0, "reason": ""}]},
            "steps.0",
        ),
        (
            {
                "steps": [
                    {"kind": "observe", "features": [name], "values": [1], "cost": 1.5e308, "reason": ""}
                    for name in ("MUC2", "AQP8")
                ]
            },
            "cost of an observation",
        ),
        *(
            ({"settings": {"solver": {name: value}}}, f"settings.solver.{name}")
            for name, value in (("damping", -1), ("damping", 1.5), ("tolerance", 0), ("max_iterations", 0))
        ),
        ({"settings": {"stop": {"budget": -1}}}, "stop option budget"),
        ({"settings": {"stop": {"probability": 0.3}}}, "stop option probability"),
        ({"settings": {"costs": {"MUC2": -1}}}, "settings.costs"),
        ({"settings": {"costs": {"nosuch": 1}}}, "planner option costs"),
        ({"settings": {"panels": {"p": ["nosuch"]}}}, "panel 'p'"),
        ({"settings": {"score": "nosuch"}}, "planner option score"),
        ({"settings": {"target": "wald"}}, "planner option target"),
        ({"settings": {"k": 7}}, "planner option k"),
        ({"settings": {"k": None}}, "settings.k"),
        ({"settings": {"layer0": "nosuch"}}, "layer0"),
        ({"settings": {"entity": "fistula"}}, "entity belongs to the other"),
    ],
)
def test_a_session_that_was_edited_wrongly_is_refused_by_key(
    bundle_tiny: Bundle, tmp_path: Path, change: dict[str, Any], words: str
) -> None:
    path = tmp_path / "s.yaml"
    save_session(TopKPlanner(bundle_tiny, k=1), path)
    path.write_text(yaml.safe_dump(merged(yaml.safe_load(path.read_text()), change)))
    with pytest.raises((ConfigError, PlannerError)) as error:
        load_session(path, bundle_tiny)
    assert words in said(error)
    assert str(path) in said(error)


def merged(document: dict[str, Any], change: dict[str, Any]) -> dict[str, Any]:
    """The document with the change put in, level by level."""
    inner = {
        key: merged(document[key], value) for key, value in change.items() if isinstance(value, dict) and document[key]
    }
    return document | change | inner


def test_a_session_is_private_and_keeps_the_mode_of_its_file_and_its_link(bundle_tiny: Bundle, tmp_path: Path) -> None:
    planner, file, link = TopKPlanner(bundle_tiny, k=1), tmp_path / "folder/s.yaml", tmp_path / "link.yaml"
    file.parent.mkdir()
    link.symlink_to(file)
    save_session(planner, link)
    assert stat.S_IMODE(file.stat().st_mode) == 0o600
    for mode in (0o640, 0o444):
        file.chmod(mode)
        save_session(planner, link)
        assert stat.S_IMODE(file.stat().st_mode) == mode
    assert link.is_symlink()
    assert load_session(file, bundle_tiny).settings == planner.settings


@pytest.mark.parametrize("name", ["a\0b", "\ud800.yaml"])
def test_a_name_that_no_file_can_have_is_refused(bundle_tiny: Bundle, tmp_path: Path, name: str) -> None:
    with pytest.raises(PlannerError, match="a name that no file can have"):
        save_session(TopKPlanner(bundle_tiny, k=1), f"{tmp_path}/{name}")


def test_saving_and_loading_are_part_of_the_interface(bundle_tiny: Bundle, tmp_path: Path) -> None:
    afa.save_session(afa.TopKPlanner(bundle_tiny, k=1, stop=afa.Stop(certain=True)), tmp_path / "s.yaml")
    assert afa.load_session(tmp_path / "s.yaml", bundle_tiny).stop == afa.Stop(certain=True)


def test_numbers_and_texts_of_numpy_are_kept_as_what_they_are(bundle_tiny: Bundle, tmp_path: Path) -> None:
    planner = TopKPlanner(
        bundle_tiny,
        k=np.int64(1),
        costs=dict(pd.Series({"MUC2": 2.5})),
        panels={"both": np.array(["MUC2", "CXCL8"])},
        first=np.array(["CXCL8"]),
        solver=Solver(tolerance=np.float64(1e-6)),
        stop=Stop(budget=np.float32(4)),
        seed=np.int64(3),
    )
    save_session(planner, tmp_path / "s.yaml")
    again = load_session(tmp_path / "s.yaml", bundle_tiny)
    assert again.settings == planner.settings
    assert planner.settings["panels"] == {"both": ["MUC2", "CXCL8"]}


def test_a_copy_goes_its_own_way(bundle_tiny: Bundle) -> None:
    planner = TopKPlanner(bundle_tiny, k=1)
    planner.observe("MUC2", 1)
    before = state(planner)
    other = planner.copy()
    assert state(other) == before
    other.observe("CXCL8", 1)
    other.correct("MUC2", -1)
    assert state(planner) == before
    assert other.bundle is planner.bundle


def test_numbers_and_their_units_are_kept_and_read_again(cooling: Bundle, tmp_path: Path) -> None:
    planner = TopKPlanner(cooling)
    planner.observe_all({"frost_on_coil": "no"}, numbers={"superheat": 7.25})
    planner.observe("subcooling", number=0)
    planner.correct("superheat", number=12)
    save_session(planner, tmp_path / "s.yaml")
    step = yaml.safe_load((tmp_path / "s.yaml").read_text())["steps"][0]
    assert (step["values"], step["numbers"], step["units"]) == ([0, 0], [None, 7.25], ["", "K"])
    again = load_session(tmp_path / "s.yaml", cooling)
    assert again.numbers == planner.numbers == {"superheat": 12.0, "subcooling": 0.0}
    assert again.history().equals(planner.history())
    assert again.actions == planner.actions
    again.correct("superheat", "low")
    assert again.numbers == {"subcooling": 0.0}
    again.undo()
    assert again.numbers == planner.numbers


def test_a_session_of_codes_is_written_as_version_0_2_wrote_it(cooling: Bundle, tmp_path: Path) -> None:
    planner = TopKPlanner(cooling)
    planner.observe("superheat", 1)
    planner.skip("subcooling")
    save_session(planner, tmp_path / "s.yaml")
    steps = yaml.safe_load((tmp_path / "s.yaml").read_text())["steps"]
    assert [set(step) for step in steps] == [{"kind", "features", "values", "cost", "reason"}] * 2
    assert load_session(tmp_path / "s.yaml", cooling).observed == {"superheat": 1}


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"numbers": [3.0]}, "numbers and units, one each for each feature, or neither"),
        ({"numbers": [3.0], "units": ["K"]}, "step 1, superheat: found 3, read as -1, and 1; expected one value"),
    ],
)
def test_a_number_that_does_not_fit_its_code_is_refused(
    cooling: Bundle, tmp_path: Path, change: dict[str, Any], words: str
) -> None:
    planner, file = TopKPlanner(cooling), tmp_path / "s.yaml"
    planner.observe("superheat", 1)
    save_session(planner, file)
    document = yaml.safe_load(file.read_text())
    document["steps"][0] |= change
    file.write_text(yaml.safe_dump(document))
    with pytest.raises(AfaError) as error:
        load_session(file, cooling)
    assert words in said(error)


@pytest.fixture
def cooling() -> Bundle:
    return afa.load_bundle("afa/examples/cooling/bundle")


def test_a_value_may_be_a_word_in_python_too(cooling: Bundle) -> None:
    planner = TopKPlanner(cooling)
    planner.observe("superheat", "normal")
    planner.observe_all({"subcooling": "high", "frost_on_coil": "yes", "air_drop": None})
    planner.correct("subcooling", "low")
    assert planner.observed == {"superheat": 0, "subcooling": -1, "frost_on_coil": 1}
    for step, words in (
        (lambda: planner.observe("air_drop", "yes"), "feature air_drop: found 'yes'"),
        (lambda: planner.observe("air_drop", "0"), "feature air_drop: found '0'"),
        (lambda: planner.observe("sight_glass_bubbles", "low"), "feature sight_glass_bubbles: found -1"),
        (lambda: planner.observe("sight_glass_bubbles", number=1), "expected a feature with a range"),
        (lambda: planner.observe("air_drop", number=float("nan")), "found nan; expected a finite number"),
        (lambda: planner.observe("air_drop", 7.2), "usual, high; a measured number by its name, number=7.2"),
        (lambda: planner.observe("air_drop", 1, number=9), "found a value and a number"),
        (lambda: planner.observe("air_drop"), "found None; expected -1, 0 or 1"),
        (lambda: planner.observe_all({"air_drop": 1}, numbers={"air_drop": 9}), "found a value and a number"),
    ):
        with pytest.raises(PlannerError, match=words):
            step()


COOLING = Path(afa.__file__).parent / "examples" / "cooling" / "bundle"


@pytest.fixture
def edited(tmp_path: Path) -> Callable[..., Bundle]:
    """A maker of the cooling bundle with texts of its files replaced."""

    def make(*edits: tuple[str, str, str], name: str = "edited") -> Bundle:
        shutil.copytree(COOLING, tmp_path / name, dirs_exist_ok=True)
        for file, old, new in edits:
            path = tmp_path / name / file
            text = path.read_text()
            assert old in text
            path.write_text(text.replace(old, new))
        stamp_bundle(tmp_path / name)
        return load_bundle(tmp_path / name)

    return make


@pytest.fixture
def measured(tmp_path: Path) -> Path:
    """A session on the cooling bundle: numbers, a code of a feature with a range, a finding, a correction, a skip."""
    planner = TopKPlanner(load_bundle(COOLING), k=1)
    planner.observe_all(numbers={"superheat": 9.0, "subcooling": 2.0}, cost=3)
    planner.observe("air_drop", "low")
    planner.observe("frost_on_coil", "yes", cost=0.5)
    planner.correct("subcooling", number=9.0)
    planner.skip("drier_drop")
    save_session(planner, tmp_path / "s.yaml")
    return tmp_path / "s.yaml"


CODED = "given without a number, so as they were read then: air_drop"


def test_a_session_is_replayed_on_an_edited_bundle_and_what_is_read_otherwise_is_said(edited, measured):
    bundle = edited(
        ("features.csv", "superheat,continuous,K,4,10", "superheat,continuous,K,4,8"),
        ("unary.csv", "dirty_evaporator,frost_on_coil,,,0.75", "dirty_evaporator,frost_on_coil,,,0.95"),
    )
    with pytest.raises(PlannerError, match=r"--replay, afa\.replay_session"):
        load_session(measured, bundle)
    planner, changes = replay_session(measured, bundle)
    then, now = load_bundle(COOLING).digest[:16], bundle.digest[:16]
    assert changes == [
        f"cooling has changed since this session: then version 1, digest {then}, now version 1, digest {now}",
        "superheat: 9 K was usual, and is high now",
        CODED,
    ]
    by_hand = TopKPlanner(bundle, k=1)
    by_hand.observe_all({"air_drop": -1, "frost_on_coil": 1}, numbers={"superheat": 9.0, "subcooling": 9.0})
    assert planner.observed == {"superheat": 1, "subcooling": 1, "air_drop": -1, "frost_on_coil": 1}
    assert planner.numbers == {"superheat": 9.0, "subcooling": 9.0}
    assert (planner.skipped, planner.spent) == ({"drier_drop"}, 4.5)
    np.testing.assert_allclose(planner.posterior(), by_hand.posterior(), atol=1e-9)


def test_a_value_that_the_edited_bundle_does_not_take_is_left_out_and_named(edited, measured):
    bundle = edited(
        ("features.csv", "superheat,continuous,K,4,10", "superheat,continuous,F,4,10"),
        ("features.csv", "subcooling,continuous,K,3,8,,", "subcooling,continuous,K,3,8,0 to 8,"),
        ("unary.csv", "frost_on_coil", "ice_on_coil"),
        ("features.csv", "frost_on_coil", "ice_on_coil"),
        ("costs.csv", "frost_on_coil", "ice_on_coil"),
        ("bundle.yaml", "frost_on_coil", "ice_on_coil"),
    )
    planner, changes = replay_session(measured, bundle)
    assert changes[1:] == [
        "superheat: left out 9 K: found a number in K; expected one in F",
        "subcooling: left out 9 K: found 9 K; expected 0 to 8 (features.csv, values)",
        "frost_on_coil: left out 1: found an unknown name; expected a feature of the bundle",
        CODED,
    ]
    assert planner.observed == {"air_drop": -1}, "2 K of subcooling was corrected: it is not what was measured"


def test_a_correction_is_the_first_value_where_what_it_corrected_does_not_fit_now(edited, measured):
    bundle = edited(("features.csv", "subcooling,continuous,K,3,8,,", "subcooling,continuous,K,3,8,3 or more,"))
    planner, changes = replay_session(measured, bundle)
    assert changes == [CODED]
    assert planner.numbers == {"superheat": 9.0, "subcooling": 9.0}
    assert [action.kind for action in planner.actions] == ["observe", "observe", "observe", "observe", "skip"]


def test_a_number_without_a_range_now_keeps_its_code_and_that_is_said(edited, measured):
    bundle = edited(("features.csv", "superheat,continuous,K,4,10", "superheat,continuous,K,,"))
    planner, changes = replay_session(measured, bundle)
    assert changes[-2:] == ["superheat: 9 K stays usual, since the bundle has no range for it now", CODED]
    assert (planner.observed["superheat"], planner.numbers) == (0, {"subcooling": 9.0})


def test_another_unit_alone_is_noticed_though_digest_and_code_are_the_same(edited, measured):
    bundle = edited(("features.csv", "superheat,continuous,K", "superheat,continuous,F"))
    assert bundle.digest == load_bundle(COOLING).digest
    with pytest.raises(PlannerError, match=r"superheat: found 9 K; expected a number in F.*afa\.replay_session"):
        load_session(measured, bundle)


def test_moved_cut_points_alone_are_noticed_though_the_digest_is_the_same(edited, measured):
    bundle = edited(("features.csv", "superheat,continuous,K,4,10", "superheat,continuous,K,4,8"))
    assert bundle.digest == load_bundle(COOLING).digest
    with pytest.raises(
        PlannerError, match=r"superheat: found 9, read as 1, and 0; expected one value.*afa\.replay_session"
    ):
        load_session(measured, bundle)
    assert replay_session(measured, bundle)[1] == ["superheat: 9 K was usual, and is high now", CODED]


def test_on_the_bundle_of_the_session_a_replay_is_the_session(measured):
    bundle = load_bundle(COOLING)
    planner, changes = replay_session(measured, bundle)
    assert changes == [CODED]
    assert state(planner)[2:-1] == state(load_session(measured, bundle))[2:-1]


def test_a_session_of_another_bundle_or_of_settings_that_are_gone_is_not_replayed(edited, measured, bundle_tiny):
    with pytest.raises(PlannerError, match="found a session on cooling; expected one on an earlier state of tiny"):
        replay_session(measured, bundle_tiny)
    save_session(BinaryPlanner(load_bundle(COOLING), entity="overfilled"), measured)
    bundle = edited(*((file, "overfilled", "too_full") for file in ("unary.csv", "bundle.yaml")))
    with pytest.raises(PlannerError, match=r"no entity 'overfilled'.*Next step: begin a new session"):
        replay_session(measured, bundle)
