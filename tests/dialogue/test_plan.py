"""`afa plan`: the same planner in a terminal and by JSON lines; what a user reads at each mistake."""

from __future__ import annotations

import json
import re
import shutil
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from bundles import bundle_of
from commands import afa
from talking import ROOT, ask, plain, talk

from afa.dialogue.conversation import VERBS, converse
from afa.dialogue.sessions import SessionFile, new_planner
from afa.errors import PlannerError
from afa.model.bundle import Bundle, load_bundle, save_bundle, stamp_bundle
from afa.planner import BinaryPlanner, Stop, TopKPlanner
from afa.planner.session import load_session


def test_the_terminal_asks_takes_the_answer_and_ends_when_it_is_certain(bundle_tiny: Bundle) -> None:
    planner = plain(bundle_tiny, stop=Stop(certain=True))
    by_hand = plain(bundle_tiny, stop=Stop(certain=True))
    while feature := by_hand.next_feature():
        by_hand.observe(feature, 1)
    text = talk(planner, *["1"] * len(by_hand.observed))
    assert planner.observed == by_hand.observed
    assert f"{by_hand.top_k()[0]} (ahead by {by_hand.lead():.2f}; no remaining measurement can change this)" in text
    assert f"{len(by_hand.observed)} measured" in text
    assert "Done: no remaining measurement can change the answer" in text
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
    assert "undone: the skip of AQP8" in text
    assert "AQP8, MMP9, TFF3" in text
    assert "duels won" in text
    assert "low was wrong" in text
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
    text = talk(planner, "12,5", "fix superheat 6.9 K", "subcooling=1", "fix subcooling high", "fix superheat cold")
    assert "usual: 4 to 10 K; type the number" in text
    for said in ("superheat: 12.5 K is high", "superheat: 6.9 K is usual", "subcooling: 1 K is low"):
        assert said in text
    assert "found 'cold'; expected low, usual or high, or a number in K (usual: 4 to 10 K)" in text
    assert planner.observed == {"superheat": 0, "subcooling": 1}
    assert planner.numbers == {"superheat": 6.9}


@pytest.mark.parametrize(("typed", "said"), [("0", "0 K is low"), ("1", "1 K is low"), ("-1", "-1 K is low")])
def test_a_bare_digit_is_the_number_where_the_feature_has_a_range(typed: str, said: str) -> None:
    cooling = load_bundle(ROOT / "afa/examples/cooling/bundle")
    for line in (typed, f"superheat={typed}", f"superheat={typed} K"):
        planner = TopKPlanner(cooling, panels={}, costs="equal", first=["superheat"])
        assert f"superheat: {said}" in talk(planner, line)
        assert planner.observed == {"superheat": -1}
        assert planner.numbers == {"superheat": float(typed)}


def test_a_finding_is_answered_by_yes_or_no() -> None:
    planner = TopKPlanner(load_bundle(ROOT / "afa/examples/cooling/bundle"), panels={}, first=["frost_on_coil"])
    text = talk(planner, "yes", "history")
    assert "frost on the evaporator; yes or no?" in text
    assert "if no:" in text
    assert planner.observed == {"frost_on_coil": 1}


def test_values_and_names_with_blanks_take_units() -> None:
    planner = TopKPlanner(load_bundle(ROOT / "afa/examples/cooling/bundle"))
    (panel,) = [item for item in [planner.suggest()] if item is not None and item.name == "gauges"]
    text = talk(planner, "20 K 5 °C 7 2", "air_drop=9 K compressor_current = 50 %", "standing_excess=4 min", "history")
    assert list(planner.numbers.values()) == [20, 5, 7, 2, 9, 50]
    assert set(panel.features) <= set(planner.observed)
    assert "found '4 min'; expected usual or high, or a number in K (usual: up to 2 K)" in text
    assert "Next step: convert it to K, the unit of this feature" in text
    assert "20 K (high)" in text


@pytest.mark.parametrize("speak", ["terminal", "json"])
@pytest.mark.parametrize(
    ("typed", "step"),
    [
        ("1,058", "write 1058 or 1.058"),
        ("-1,058 K", "write -1058 or -1.058"),
        ("1,058,000", "write 1058000"),
        ("1,058.5", "write 1058.5"),
        ("0x10", "write one of these"),
        ("1e400", "write one of these"),
        ("7 C", "convert it to K, the unit of this feature"),
        ("12.5.3", "write one of these"),
    ],
)
def test_a_number_that_can_be_read_in_two_ways_or_in_none_is_asked_back_on_every_face(
    speak: str, typed: str, step: str
) -> None:
    planner = TopKPlanner(load_bundle(ROOT / "afa/examples/cooling/bundle"), panels={}, first=["superheat"])
    if speak == "terminal":
        assert f"Next step: {step}" in talk(planner, typed)
    else:
        (answer,) = ask(planner, {"do": "observe", "typed": {"superheat": typed}})
        assert (answer["ok"], answer["error"]["next_step"]) == (False, step)
    assert planner.actions == ()


def test_a_number_beyond_what_the_dictionary_allows_is_refused(tmp_path: Path) -> None:
    planner = TopKPlanner(load_bundle(spo2_of(tmp_path)), k=1)
    text = talk(planner, "spo2=250", "spo2=-9")
    assert "feature spo2: found 250 %; expected 50 to 100 (features.csv, values)" in text
    assert planner.actions == ()
    (answer,) = ask(planner, {"do": "observe", "numbers": {"spo2": 999}})
    assert answer["error"]["found"] == "999 %"
    with pytest.raises(PlannerError, match="found 250 %; expected 50 to 100"):
        planner.observe("spo2", number=250)
    talk(planner, "spo2=88")
    assert planner.observed == {"spo2": -1}


@pytest.mark.parametrize("unit", ["none", "None", "no unit", "-", ""])
def test_a_unit_that_says_there_is_none_is_not_shown_behind_numbers(tmp_path: Path, unit: str) -> None:
    folder = spo2_of(tmp_path)
    table = folder / "features.csv"
    table.write_text(table.read_text().replace(",%,", f",{unit},"))
    assert afa("bundle", "stamp", folder).returncode == 0
    planner = TopKPlanner(load_bundle(folder), k=1)
    text = talk(planner, "spo2=250", "spo2=88", "history")
    assert "found 250; expected 50 to 100" in text
    assert "spo2: 88 is low" in text
    assert "spo2     88 (low)" in text


def spo2_of(folder: Path) -> Path:
    """A bundle of two entities and two features, one of which is a percentage."""
    made = save_bundle(
        bundle_of([[2.0, 1.0], [-1.0, 0.5]], [[[0.0] * 2] * 2] * 2, features=("spo2", "b")), folder / "b"
    )
    path = Path(made or folder / "b")
    (path / "features.csv").write_text(
        'feature,kind,unit,low,high,values\nspo2,continuous,%,94,,50 to 100\nb,ordinal,,,,"-1 low, 0 usual, 1 high"\n'
    )
    assert afa("bundle", "stamp", path).returncode == 0
    return path


@pytest.mark.parametrize(
    ("line", "words"),
    [
        ("yes", "value of CXCL8: found 'yes'; expected low, usual or high"),
        ("MUCC2=1", "did you mean MUC2"),
        ("MUC2=1 muc2=0", "feature MUC2: found two values"),
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
    words = f"bleeding (probability {planner.probability():.2f}; no remaining measurement can change this)  2 measured"
    assert words in text


def test_a_long_name_takes_no_bar_from_the_line_of_a_short_one() -> None:
    names = ("long " * 39 + "x", "short")
    text = talk(plain(bundle_of([[1.0], [-1.0]], [[[0.0]]] * 2, entities=names)), "-1")
    assert any(line.startswith("  short ") and "  2.00" in line for line in text.splitlines())


def test_the_first_line_of_json_says_what_there_is(bundle_tiny: Bundle) -> None:
    (first,) = converse(plain(bundle_tiny), [], SessionFile())
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
        {"do": "why", "entity": "bleeding"},
        {"do": "ranking"},
        {"do": "history"},
        {"do": "save", "file": str(tmp_path / "s.yaml")},
        {"do": "show"},
        {"do": "view"},
        {"do": "quit"},
    ]
    assert {request["do"] for request in requests} == set(VERBS)
    answers = ask(planner, *requests, {"do": "never read"})
    assert [answer["ok"] for answer in answers] == [True] * 11
    assert answers[0]["spent"] == 4
    assert answers[3]["undone"] == {"kind": "skip", "features": ["AQP8"], "values": [None]}
    assert len(answers[4]["candidates"]) == 2
    assert {row["entity"] for row in answers[6]["ranking"]} == set(bundle_tiny.entities)
    assert [row["value"] for row in answers[7]["history"]] == [1, 0]
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
        ('{"do": "observe", "values": {"MUC2": NaN}}', "request, key observe.values.MUC2"),
        ('{"do": "observe", "values": {"MUC2": Infinity}}', "request, key observe.values.MUC2"),
        ('{"do": "observe", "values": {"MUC2": null}}', "request, key observe.values.MUC2"),
        ('{"do": "observe", "numbers": {"MUC2": NaN}}', "request, key observe.numbers.MUC2"),
        ('{"do": "observe", "numbers": {"MUC2": null}}', "request, key observe.numbers.MUC2"),
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
        "feature MUC2: found the earlier value high; expected a feature without a value. Next step: write fix MUC2 and"
        in text
    )


def test_a_second_number_is_refused_before_it_is_said_how_it_reads() -> None:
    planner = plain(load_bundle("afa/examples/cooling/bundle"))
    text = talk(planner, "superheat=3", "superheat=50", "superheat=50 subcooling=9")
    assert "superheat: 3 K is low" in text
    assert text.count("the earlier value 3 K (low)") == 2
    assert "50 K is" not in text
    assert planner.numbers == {"superheat": 3.0}


def test_json_takes_codes_words_and_what_was_typed_and_says_how_each_was_read() -> None:
    planner = TopKPlanner(load_bundle(ROOT / "afa/examples/cooling/bundle"))
    values, typed, corrected, words = ask(
        planner,
        {"do": "observe", "values": {"superheat": 1, "subcooling": "low", "frost_on_coil": "yes"}},
        {"do": "observe", "typed": {"air_drop": "0", "sight_glass_bubbles": "no"}, "numbers": {"air_rise": 1}},
        {"do": "correct", "feature": "superheat", "typed": "5,5 K"},
        {"do": "correct", "feature": "subcooling", "value": "normal"},
    )
    assert [row["value"] for row in values["read"]] == [1, -1, 1]
    assert [row["words"] for row in typed["read"]] == [
        "air_rise: 1 K is low",
        "air_drop: 0 K is low",
        "sight_glass_bubbles: no",
    ]
    assert corrected["read"][0]["number"] == 5.5
    assert words["ok"]
    assert planner.observed["superheat"] == planner.observed["subcooling"] == 0
    for wrong in (
        {"do": "observe", "values": {"discharge_temperature": "yes"}},
        {"do": "observe", "values": {"discharge_temperature": "1"}},
        {"do": "correct", "feature": "superheat"},
        {"do": "correct", "feature": "superheat", "value": 0, "number": 5},
    ):
        assert not ask(planner, wrong)[0]["ok"]


def test_the_screen_shows_one_order_and_says_by_what() -> None:
    # Four features that a and b expect high; c expects one alone, and all else usual: S ranks c last, P(x | v) first
    unary = [[1.0, 3.0, 3.0, 3.0], [0.9, 3.0, 3.0, 3.0], [0.8, 0.0, 0.0, 0.0]]
    planner = plain(bundle_of(unary, [[[0.0] * 4] * 4] * 3, entities=("a", "b", "c"), features=("f", "g", "h", "i")))
    planner.observe_all({"f": 1, "g": 0})
    assert planner.ordered_by == "score"
    assert planner.posterior().argmax() == 2, "the posterior has another order"
    text = talk(planner, "ranking")
    assert "Ordered by preference score" in text
    assert "a (ahead by 0.10)" in text
    assert "probability" not in text.replace("not a probability", "")
    rows = [line.split()[0] for line in text.splitlines() if "█" in line or line.startswith("  c ")]
    assert rows == ["a", "b", "c"]
    (answer,) = ask(planner, {"do": "show"})
    assert answer["answer"]["ordered_by"] == "score"
    assert answer["answer"]["ahead"] == pytest.approx(0.1)
    assert answer["answer"]["undecided"] == []


def test_the_first_lines_say_where_all_start_and_when_it_ends(tmp_path: Path) -> None:
    cooling = load_bundle(ROOT / "afa/examples/cooling/bundle")
    for options, words in (
        ({}, "each of 7 entities has probability 1/7; priors.csv can give other probabilities."),
        ({"holds": "several"}, "each of 7 entities has probability 1/2; priors.csv can give other probabilities."),
        ({"holds": "one or none"}, "probability 1/8, as has none of them; priors.csv can give other probabilities."),
        ({"stop": Stop(certain=True, posterior=0.8)}, "Asks until no remaining measurement can change the answer or"),
        ({"patient": "P7"}, "12 features can be measured; patient P7"),
    ):
        assert words in talk(TopKPlanner(cooling, k=1, **options))
    assert "Before any measurement, overfilled has probability 0.5; priors.csv can give other probabilities." in talk(
        BinaryPlanner(cooling, entity="overfilled")
    )


def test_why_an_entity_names_each_findings_share() -> None:
    planner = TopKPlanner(load_bundle(ROOT / "afa/examples/cooling/bundle"), panels={})
    assert "0 measured" in talk(planner, "why overfilled")
    text = talk(planner, "superheat=3", "subcooling=9", "why Overfilled", "why nobody")
    (row,) = [line for line in text.splitlines() if line.startswith("subcooling  9 K (high)")]
    assert row.split()[4].startswith("+")
    assert "entity 'nobody': found an unknown name" in text


def shown_by_names(folder: Path) -> Path:
    """A copy of the tiny bundle in which an entity and a feature have display names."""
    shutil.copytree(ROOT / "tests/data/bundle_tiny", folder)
    (folder / "display.csv").write_text("name,display\nbleeding,Visible bleeding\nMUC2,Mucin 2\n")
    return folder


def test_people_are_shown_display_names_and_may_type_them(tmp_path: Path) -> None:
    bundle = load_bundle(shown_by_names(tmp_path / "b"))
    planner = TopKPlanner(bundle, k=1, first=["MUC2"])
    looks = ["features", "why", "mucin 2=low", "why Visible bleeding", "ranking", "history", "undo", "Mucin 2=low"]
    text = talk(planner, *looks)
    assert planner.observed == {"MUC2": -1}
    assert "Mucin 2 (MUC2)" in text
    assert "\nVisible bleeding (ahead by " in text
    assert "Visible bleeding: 1 measured" in text
    assert "undone: Mucin 2\n" in text
    assert "MUC2" not in re.sub(re.escape("Mucin 2 (MUC2)"), "", re.sub("^MUC2> ", "", text, flags=re.MULTILINE))
    assert " bleeding" not in re.sub("Visible bleeding", "", text)
    asked = talk(BinaryPlanner(bundle, entity="bleeding"))
    assert "is it Visible bleeding?" in asked
    assert "The probabilities of Visible bleeding and of not Visible bleeding add up to 1." in asked


def test_keys_of_json_stay_the_names_whatever_people_are_shown(tmp_path: Path) -> None:
    planner = TopKPlanner(load_bundle(shown_by_names(tmp_path / "b")), k=1)
    greeting, answer = map(
        json.loads, converse(planner, [json.dumps({"do": "observe", "values": {"MUC2": -1}})], SessionFile())
    )
    assert greeting["display_names"] == {"bleeding": "Visible bleeding", "MUC2": "Mucin 2"}
    assert answer["answer"]["top_k"] == ["bleeding"]
    assert answer["answer"]["words"].startswith("Visible bleeding (")


@pytest.fixture
def coded(tmp_path: Path) -> Bundle:
    """A finding whose 0 and 1 are good and poor, one whose normal is 1, and one of no and yes."""
    folder = tmp_path / "coded"
    folder.mkdir()
    (folder / "bundle.yaml").write_text('name: coded\nversion: "1"\n')
    (folder / "pairwise.csv").write_text("entity,feature_a,feature_b,potential\n")
    shares = "p_high_with,p_high_without\n"
    rows = "".join(f"ill,{name},,{p},0.3\n" for name, p in (("appetite", 0.9), ("gait", 0.1), ("pain", 0.6)))
    (folder / "unary.csv").write_text(f"entity,feature,potential,{shares}{rows}")
    kinds = 'appetite,binary,"0 good, 1 poor"\ngait,binary,"0 abnormal, 1 normal"\npain,binary,"0 no, 1 yes"\n'
    (folder / "features.csv").write_text(f"feature,kind,values\n{kinds}")
    return load_bundle(folder)


def test_what_the_grades_of_an_ordinal_feature_mean_is_shown_before_a_number_is_asked_for(tmp_path: Path) -> None:
    shutil.copytree(ROOT / "afa/examples/cooling/bundle", tmp_path / "b")
    path = tmp_path / "b/features.csv"
    path.write_text(
        path.read_text().replace("air_drop,continuous,K,8,12,", 'air_drop,ordinal,grade,8,12,"0 none .. 20 much"')
    )
    stamp_bundle(tmp_path / "b")
    planner = TopKPlanner(load_bundle(tmp_path / "b"), first=["air_drop"], panels={})
    text = talk(planner, "25", "9")
    assert "evaporator; 0 none .. 20 much; usual: 8 to 12 grade; type the number" in text
    assert "expected 0 none .. 20 much (features.csv, values)" in text
    assert planner.numbers == {"air_drop": 9.0}


def test_what_no_and_yes_of_a_finding_mean_is_shown_and_its_words_are_taken(coded: Bundle) -> None:
    planner = BinaryPlanner(coded, entity="ill", first=["appetite"])
    text = talk(planner, "poor", "gait=normal", "pain=yes", "history")
    assert "no means good, yes means poor" in text
    assert planner.observed == {"appetite": 1, "gait": 1, "pain": 1}
    assert "means no" not in text
    by_word = BinaryPlanner(coded, entity="ill")
    by_word.observe_all({"appetite": "good", "gait": "abnormal"})
    assert by_word.observed == {"appetite": 0, "gait": 0}
    (greeting,) = map(json.loads, converse(by_word, [], SessionFile()))
    assert {name: scale["meanings"] for name, scale in greeting["scales"].items()} == {
        "appetite": ["good", "poor"],
        "gait": ["abnormal", "normal"],
        "pain": None,
    }
