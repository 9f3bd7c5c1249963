"""The score `background` and the rule `frontier` in planners: costs, panels, gaps, groups, both questions, sessions."""

from __future__ import annotations

import json
from itertools import product
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from bundles import bundle_of
from commands import afa
from rated import rated

from afa.dialogue.conversation import converse
from afa.dialogue.sessions import SessionFile
from afa.dialogue.words import assumption_of
from afa.errors import PlannerError
from afa.evaluate.simulate.walks import SimulationSetting, Strategy, planner_of
from afa.model.bundle import Bundle, load_bundle
from afa.planner import BinaryPlanner, Stop, TopKPlanner
from afa.planner.session import load_session, save_session
from afa.scores.belief import Background, Belief, ScoreTable

TINY = Path(__file__).parents[1] / "data/bundle_tiny"


@pytest.fixture
def ladder() -> Bundle:
    """Two entities, four features, no couplings: x_j moves the duel by 4, 3, 2 and 1."""
    unary = np.array([[2.0, 1.5, 1.0, 0.5], [-2.0, -1.5, -1.0, -0.5]])
    return bundle_of(unary, np.zeros((2, 4, 4)), features=("a", "b", "c", "d"))


def planner(bundle: Bundle, **options: object) -> TopKPlanner:
    return TopKPlanner(bundle, k=1, score="background", **options)  # type: ignore[arg-type]


def test_the_planner_asks_for_what_the_belief_says(ladder: Bundle) -> None:
    assert planner(ladder).suggest().name == "a"
    rare = Background(np.array([[0.0, 0.99, 0.01], *[[0.2, 0.4, 0.4]] * 3]), "patients", "9 patients")
    chosen = planner(ladder, background=rare)
    belief = Belief(ScoreTable.of_bundle(ladder), rare)
    for value in (1, -1, 0):
        feature = chosen.next_feature()
        assert feature == ladder.features[int(belief.frontier(1).argmax())]
        chosen.observe(feature, value)
        belief.observe(ladder.features.index(feature), value)
        np.testing.assert_allclose(chosen.scores()[0, 1], belief.mean[0] - belief.mean[1])
        assert chosen.boundary_probability() == chosen.top_probability() == belief.top_probability(1)
    assert chosen.settings["allocation"] == "frontier"


def test_a_background_that_is_given_is_used_unless_a_score_or_a_rule_is_named(ladder: Bundle) -> None:
    rare = Background(np.array([[0.0, 0.99, 0.01], *[[0.2, 0.4, 0.4]] * 3]), "patients", "9 patients")
    for options in ({"background": rare}, {"background": rare, "allocation": "frontier"}):
        chosen = TopKPlanner(ladder, k=1, **options)  # type: ignore[arg-type]
        assert (chosen.guide, chosen.settings["allocation"]) == ("background", "frontier")
    assert TopKPlanner(ladder, k=1).guide == "linearity"


def test_a_frequent_value_decides_before_anything_is_measured(ladder: Bundle) -> None:
    high = Background(np.array([[0.1, 0.1, 0.8]] * 4), "patients", "9 patients")
    assert planner(ladder, background=high).undecided() == []
    usual = planner(ladder, background=high)
    usual.observe("a", 0)
    assert usual.in_words().startswith("v0 (ahead by")
    low = Background(high.probabilities[:, ::-1].copy(), "patients", "9 patients")
    assert planner(ladder, background=high).top_k() == ["v0"]
    assert planner(ladder, background=low).top_k() == ["v1"]


def test_costs_panels_and_what_cannot_be_measured_enter_the_choice(ladder: Bundle) -> None:
    assert planner(ladder, costs={"a": 3.0}).suggest().name == "b"  # 16 / 3 against 9
    assert planner(ladder, panels={"bcd": ["b", "c", "d"]}, costs={"bcd": 1.0, "a": 1.2}).suggest().name == "bcd"
    chosen = planner(ladder)
    chosen.skip("a")
    assert chosen.suggest().name == "b"


def test_several_at_once_keep_to_the_budget_and_are_taken_in_and_skipped_as_one(ladder: Bundle) -> None:
    chosen = planner(ladder, together=2)
    item = chosen.suggest()
    assert (item.name, item.features, item.cost) == ("a, b", ("a", "b"), 2.0)
    assert [other.name for other in chosen.runners_up()] == ["c", "d"]
    chosen.observe_all({"a": 1, "b": -1})
    assert chosen.history()["reason"].str.startswith("settles").all()
    chosen.skip(chosen.suggest().name)
    assert chosen.skipped == {"c", "d"}
    tight = planner(ladder, together=3, stop=Stop(budget=2.5), costs={"b": 2.0})
    assert tight.suggest().features == ("a", "c")
    panel = planner(ladder, together=2, panels={"cd": ["c", "d"]})
    assert panel.suggest().features == ("a", "b")


def test_the_probability_stops_the_planner(ladder: Bundle) -> None:
    chosen = planner(ladder, stop=Stop(probability=0.95))
    while (feature := chosen.next_feature()) is not None:
        chosen.observe(feature, 1)
    assert chosen.observed == {"a": 1, "b": 1}
    assert chosen.reason.startswith("the answer stays with probability 0.9999")


def test_undo_copy_and_correct_bring_the_belief_along(ladder: Bundle) -> None:
    chosen = planner(ladder)
    chosen.observe("a", 1)
    copy = chosen.copy()
    copy.observe("b", -1)
    chosen.correct("a", -1)
    assert (chosen.scores()[0, 1], copy.scores()[0, 1]) == (-4.0, 1.0)
    chosen.undo()
    assert chosen.scores()[0, 1] == 4.0
    assert chosen.without("a").scores()[0, 1] == 0.0


@pytest.mark.parametrize("coupling", ["differential", "shared"])
def test_one_entity_is_the_sign_of_its_expected_score(coupling: str) -> None:
    bundle = load_bundle(TINY)
    background = Background(np.array([[0.1, 0.3, 0.6]] * 5), "patients", "8 patients")
    chosen = BinaryPlanner(
        bundle,
        entity="bleeding",
        score="background",
        background=background,
        coupling=coupling,  # type: ignore[arg-type]
    )
    rows = np.array(list(product((-1, 0, 1), repeat=5)))
    p = np.prod(background.probabilities[np.arange(5), rows + 1], axis=1)
    scores = bundle.contrast("bleeding", coupling).energies(rows)
    while True:
        here = (
            rows[:, [bundle.features.index(name) for name in chosen.observed]] == list(chosen.observed.values())
        ).all(axis=1)
        expected = p[here] @ scores[here] / p[here].sum()
        assert chosen.score() == pytest.approx(expected, abs=1e-9)
        assert chosen.decision() == (0 if abs(expected) < 1e-9 else np.sign(expected))
        if (feature := chosen.next_feature()) is None:
            break
        chosen.observe(feature, -1)
    assert chosen.confidence() == 1.0


@pytest.mark.parametrize("holds", ["several", "one", "one or none"])
@pytest.mark.parametrize("group", [0, 3])
def test_in_the_explicit_gauge_the_belief_ends_at_the_scores_of_full_observation(holds: str, group: int) -> None:
    rng = np.random.default_rng(5)
    for _ in range(4):
        of = rated(rng, holds=holds, group=group)
        values = of.values(rng)
        chosen = TopKPlanner(of.bundle, k=1, score="background", tau=0.5)
        while (feature := chosen.next_feature()) is not None:
            chosen.observe(feature, int(values[of.bundle.features.index(feature)]))
        np.testing.assert_allclose(chosen.scores(), chosen.scores_by("wald"), atol=1e-9)
        assert chosen.top_probability() == 1.0


def test_what_is_believed_by_how_findings_repeat_each_other_has_no_background() -> None:
    of = rated(np.random.default_rng(5))
    with pytest.raises(PlannerError, match="tau effective with a background"):
        TopKPlanner(of.bundle, k=1, score="background", tau="effective")


@pytest.mark.parametrize(
    "given",
    [
        {"ALPHA": {"p_low": 0.5, "p_high": 0.2}},
        {"probabilities": [["many", 0, 0]], "kind": "patients", "words": "text"},
        {"probabilities": [[1, 0, 0]], "kind": "patients", "words": "one row", "covariance": 3},
    ],
)
def test_a_mapping_that_is_no_background_is_refused_with_the_keys_of_one(ladder: Bundle, given: dict[str, Any]) -> None:
    with pytest.raises(PlannerError, match=r"planner option background: found .*probabilities, kind and words"):
        TopKPlanner(ladder, k=1, background=given)


def test_which_background_is_used_is_said_and_kept_in_the_session(tmp_path: Path) -> None:
    bundle = load_bundle(TINY)
    background = Background.of_patients(bundle, np.array([[1, 0, 0, -1, 0], [1, 1, 0, 0, 0], [0, 0, 1, 0, -1]]))
    chosen = planner(bundle, background=background, together=2)
    assert assumption_of(chosen).endswith("expected as in the background: 3 patients.")
    chosen.observe("MUC2", -1)
    assert chosen.in_words().endswith("by 3 patients)")
    save_session(chosen, tmp_path / "session.yaml")
    again = load_session(tmp_path / "session.yaml", bundle)
    assert again.settings == chosen.settings
    assert again.suggest() == chosen.suggest()
    assert again.in_words() == chosen.in_words()
    assert planner(bundle).background.kind == "uniform"


def test_json_lines_ask_for_several_at_once() -> None:
    bundle = load_bundle(TINY)
    lines = ['{"do": "observe", "values": {"MUC2": 1}}', '{"do": "view"}']
    greeting, first, view = map(json.loads, converse(planner(bundle, together=2), lines, SessionFile()))
    assert tuple(greeting["suggestion"]["features"]) == planner(bundle, together=2).suggest().features
    assert "no background" in greeting["assumption"]
    assert len(first["suggestion"]["features"]) == 2
    assert view["ok"]


@pytest.mark.parametrize(
    ("options", "found"),
    [
        ({"score": "linearity", "together": 2}, "several features at once"),
        ({"score": "linearity", "background": "uniform"}, "linearity with"),
        ({"allocation": "greedy", "background": "uniform"}, "linearity with"),
        ({"score": "background", "background": "everybody"}, "'everybody'"),
        ({"score": "background", "background": "elicited"}, "no probabilities"),
        ({"score": "background", "together": 0}, "found 0"),
    ],
)
def test_options_that_do_not_fit_are_refused(options: dict[str, object], found: str) -> None:
    with pytest.raises(PlannerError, match=found):
        TopKPlanner(load_bundle(TINY), k=1, **options)  # type: ignore[arg-type]
    with pytest.raises(PlannerError, match="no background"):
        TopKPlanner(load_bundle(TINY), k=1).top_probability()


def test_a_simulation_leaves_the_patient_himself_out_of_the_background(ladder: Bundle) -> None:
    values = np.array([[1, 1, 1, 1], [-1, -1, -1, -1]])
    others = {f"p{i}": Background.of_patients(ladder, values, without=i) for i in range(2)}
    setting = SimulationSetting(k=1, background=others.get)
    for patient, answer in (("p0", "v1"), ("p1", "v0")):
        assert planner_of(ladder, Strategy("frontier", "", "background"), setting, patient=patient).top_k() == [answer]


def test_plan_reads_the_background_from_a_table_without_the_patient(tmp_path: Path) -> None:
    table = tmp_path / "patients.csv"
    rows = [f"p{i},{','.join(str((i + j) % 3 - 1) for j in range(5))}" for i in range(40)]
    table.write_text("\n".join([",".join(["patient", *load_bundle(TINY).features]), *rows]) + "\n", encoding="utf-8")
    given = ("plan", TINY, "--score", "background", "--background", table, "--json")
    done = afa(*given, "--patient", "p3", typed="")
    assert "in the background: 39 patients" in json.loads(done.stdout.splitlines()[0])["assumption"]
    few = tmp_path / "few.csv"
    few.write_text("\n".join(table.read_text(encoding="utf-8").splitlines()[:6]) + "\n", encoding="utf-8")
    done = afa("plan", TINY, "--score", "background", "--background", few, "--json", typed="")
    assert "5 patients, and as 10 patients no background" in json.loads(done.stdout.splitlines()[0])["assumption"]


def test_simulate_compares_the_rule_with_others(tmp_path: Path) -> None:
    table = tmp_path / "patients.csv"
    rows = [f"p{i},{','.join(str((i * (j + 1)) % 3 - 1) for j in range(5))}" for i in range(5)]
    table.write_text("\n".join([",".join(["patient", *load_bundle(TINY).features]), *rows]) + "\n", encoding="utf-8")
    given = ("--allocation", "frontier", "--background", "patients", "--resamples", "20", "--explorer", "1", "--json")
    done = afa("simulate", TINY, table, "--out", tmp_path / "out", *given)
    found = json.loads(done.stdout)
    assert {row["score"] for row in found["rows"]} == {"background"} if "rows" in found else done.returncode == 0
