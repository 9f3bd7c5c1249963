"""What the explorer page is made of: the planner's steps, patients chosen by rule, names that stay text."""

import json
from html.parser import HTMLParser
from importlib import resources
from itertools import pairwise
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from bundles import QUARTERS, random_bundles
from commands import afa
from examples import examples
from explorers import ATTACK, ENTITIES, FEATURES, PATIENTS, explored_of, odd_names, rankings, run_of, tables_of
from hypothesis import given
from hypothesis import strategies as st
from rated import rated

from afa.cohort.cohort import Cohort, write_cohort
from afa.errors import ConfigError
from afa.evaluate.explorer import RANKING_SCORES, evenly, explorer_html, settled_from
from afa.evaluate.long_tables import write_tables
from afa.evaluate.simulate import runs_of, strategies_of
from afa.evaluate.simulate.walks import SimulationSetting
from afa.evaluate.simulation_page import explore_simulation
from afa.model.rule_names import WITHOUT_GAIN
from afa.planner import TopKPlanner
from afa.planner.rules import RULES
from afa.scores.belief import Background
from afa.scores.copeland import copeland_wins, ranking

ROOT = Path(__file__).parents[2]
GAINS = ("wald_magnitude", "cmi", "f_target")


def cohort_of(bundle, values, labels=None):
    labels = pd.DataFrame(index=[f"p{i}" for i in range(len(values))]) if labels is None else labels
    return Cohort("made", bundle.features, tuple(labels.index), np.asarray(values, dtype=np.int8), labels)


def drawn(bundle, patients=3, seed=0):
    return cohort_of(bundle, np.random.default_rng(seed).integers(-1, 2, (patients, len(bundle.features))))


def tied_by_name_alone(scores, order, tie):
    """Positions in an order whose entity has the wins, and but for rounding the summed score, of the one before."""
    wins, margin = copeland_wins(scores, tie=tie), scores.sum(axis=1)
    alike = enumerate((wins[a] == wins[b] and abs(margin[a] - margin[b]) < 1e-9 for a, b in pairwise(order)), start=1)
    return {place for place, same in alike if same}


def assert_planners_steps(bundle, explored, k):
    summary = explored.summary
    for i, patient in enumerate(summary["patients"]):
        values = explored.steps[i]["values"]
        for place, cell in enumerate(summary["cells"]):
            run, believes = run_of(explored, i, place), cell["rule"] == "frontier"
            planner = TopKPlanner(
                bundle,
                costs="equal",  # the grid knows none
                k=k,
                gain=cell["gain"] or "wald_magnitude",
                allocation=cell["rule"],
                background=background_of(bundle, explored, i) if believes else None,
                patient=patient["name"],
                seed=cell["seed"],
            )
            shown = [*RANKING_SCORES, "background"] if believes else RANKING_SCORES
            rounds = [list(rankings(run, s)) for s in range(len(shown))]
            assert len(run["places"]) == len(shown)
            assert summary["scores"][run["guide"]] == planner.guide
            resolved = run["resolved"]
            tops = {score: [] for score in shown}
            for t in range(len(bundle.features) + 1):
                for score, by_round in zip(shown, rounds, strict=True):
                    scores, tie = planner.scores_by(score), planner._state.packed.tie
                    expected = ranking(scores, bundle.entities, tie=tie)
                    order, tied = by_round[t]
                    assert [summary["entities"][v] for v in order] == expected
                    indices = [bundle.entities.index(name) for name in expected]
                    assert tied == tied_by_name_alone(scores, indices, tie)
                    tops[score].append(set(expected[:k]))
                assert resolved[t] == len(planner.resolved())
                assert (run["certified"] is not None and t >= run["certified"]) == planner.certified()
                guided = rounds[run["guide"]][t][0]
                inside, outside = (bundle.entities.index(summary["entities"][guided[v]]) for v in (k - 1, k))
                scores = planner.scores_by(planner.guide)
                assert (run["probability"] is not None) == believes
                if believes:
                    assert run["probability"][t] == pytest.approx(planner.top_probability(), rel=6e-3)
                assert run["margin"][t] == pytest.approx(scores[inside, outside], rel=6e-3, abs=1e-9)
                name = planner.next_feature()
                if place == summary["shown"] and t < len(explored.steps[i]["why"]):
                    assert_reasons(explored.steps[i]["why"][t], planner, summary)
                if name is None:
                    assert t == len(bundle.features)
                    break
                feature = bundle.features.index(name)
                assert run["order"][t] == feature
                assert (t + 1 in run["fallback"]) == planner.rule.choose(planner._view()).fallback
                chosen_gain = planner._state.total_unary()[feature]
                if believes:
                    chosen_gain = planner._view().frontier()[feature]
                elif cell["gain"]:
                    chosen_gain = planner.explain(most=len(bundle.features)).set_index("feature").loc[name, "gain"]
                assert run["chosen_gain"][t] == pytest.approx(chosen_gain, rel=6e-3, abs=1e-11)
                planner.observe(name, values[feature])
            for score, settled in zip(shown, run["settled"], strict=True):
                assert all(top == tops[score][-1] for top in tops[score][settled:])
                assert settled == 0 or tops[score][settled - 1] != tops[score][-1]


def background_of(bundle, explored, i):
    """The values of all patients but one; all patients of the cohort are shown."""
    everyone = np.array([steps["values"] for steps in explored.steps], dtype=float)
    return Background.of_patients(bundle, np.delete(everyone, i, axis=0))


def assert_reasons(why, planner, summary):
    """What the page says of a choice is what the planner says, and what it answers after each result."""
    assert why["reason"] == planner.reason
    assert [summary["features"][j] for j in why["others"]] == [other.features[0] for other in planner.runners_up()]
    assert [value for value, _ in why["then"]] == [-1, 0, 1]
    for value, top in why["then"]:
        after = planner.copy()
        after.observe(planner.next_feature(), value)
        assert [summary["entities"][v] for v in top] == after.top_k()


def test_every_step_of_every_rule_on_the_tiny_bundle_is_the_planners(bundle_tiny):
    cohort = drawn(bundle_tiny)
    choices = tables_of(bundle_tiny, cohort, k=1, rules=list(RULES), gains=GAINS, seeds=(0, 1))["choices"]
    explored = explored_of(bundle_tiny, cohort, choices, k=1)
    assert [patient["name"] for patient in explored.summary["patients"]] == ["p0", "p1", "p2"]
    without = len(WITHOUT_GAIN)
    assert len(explored.summary["cells"]) == 2 + (without - 1) + 3 * (len(RULES) - without) + 1
    assert explored.summary["background"] == "2 other patients"
    for i, steps in enumerate(explored.steps):
        assert steps["values"] == cohort.values[i].tolist()
    assert_planners_steps(bundle_tiny, explored, k=1)


@given(random_bundles(entities=(3, 6), features=(2, 5), potentials=QUARTERS), st.integers(0, 99), st.data())
@examples(6)
def test_the_steps_are_the_planners_on_any_bundle(bundle, seed, data):
    k = data.draw(st.integers(1, len(bundle.entities) - 1))
    cohort = drawn(bundle, patients=2, seed=seed)
    rules = ["random", "greedy", "lucb", "priority_clusters"]
    choices = tables_of(bundle, cohort, k=k, rules=rules, gains=GAINS)["choices"]
    assert_planners_steps(bundle, explored_of(bundle, cohort, choices, k=k), k)


def assert_simulated_steps(bundle, people, coupling, costs, score, k=1):
    """What the explorer shows of simulated patients with gaps is what a planner says that is asked and told by hand."""
    rng = np.random.default_rng(2)
    there = rng.random(people.values.shape) < 0.7
    runs = runs_of(strategies_of(["priority_all", "greedy", "largest_unary", "random"], ["cmi"], [score]), (3, 4))
    setting = SimulationSetting(k=k, coupling=coupling, costs=costs)
    shown = explore_simulation(bundle, people, runs, setting, most=3, measured=there)
    summary, place = shown.summary, shown.summary["scores"].index(score)
    assert [patient["name"] for patient in summary["patients"]] == ["p0", "p2", "p4"]
    for i, patient in enumerate(summary["patients"]):
        row = people.patients.index(patient["name"])
        for cell, (way, seed) in enumerate(runs):
            run, own = run_of(shown, i, cell), costs == "own" and way.allocation != "random"
            planner = TopKPlanner(
                bundle,
                k=k,
                score=score,
                gain=way.gain or "cmi",
                allocation=way.allocation,
                coupling=coupling,
                costs=None if own else "equal",
                patient=patient["name"],
                seed=seed,
            )
            for j in np.flatnonzero(~there[row]):
                planner.skip(bundle.features[j])
            assert sorted(run["order"]) == np.flatnonzero(there[row]).tolist()
            resolved = run["resolved"]
            for t, (order, _) in enumerate(rankings(run, place)):
                assert [summary["entities"][v] for v in order] == planner.ranking()
                assert resolved[t] == len(planner.resolved())
                assert (run["certified"] is not None and t >= run["certified"]) == planner.certified()
                if cell == summary["shown"] and planner.next_feature() and t < len(shown.steps[i]["why"]):
                    assert shown.steps[i]["why"][t]["reason"] == planner.reason
                if (name := planner.next_feature()) is None:
                    assert t == len(run["order"])
                    break
                assert bundle.features[run["order"][t]] == name
                if way.gain:
                    gains = planner.explain(most=len(bundle.features)).set_index("feature")
                    assert run["chosen_gain"][t] == pytest.approx(gains.loc[name, "gain"], rel=6e-3, abs=1e-11)
                planner.observe(name, int(people.values[row, bundle.features.index(name)]))


@pytest.mark.parametrize(("costs", "score"), [("equal", "linearity"), ("own", "linearity"), ("equal", "two_elbo")])
def test_a_simulation_on_directions_is_explored_as_planners_walk_it(bundle_tiny, costs, score):
    assert_simulated_steps(bundle_tiny, drawn(bundle_tiny, patients=5), "differential", costs, score)


def test_a_simulation_on_how_often_is_explored_as_planners_walk_it():
    rng = np.random.default_rng(3)
    case = rated(rng, n=4, m=6)
    people = cohort_of(case.bundle, [case.values(rng) for _ in range(5)])
    assert_simulated_steps(case.bundle, people, "explicit", "equal", "two_elbo")


def test_the_set_settles_after_the_last_round_in_which_it_is_another():
    # of three, the two best: {0, 1}, {0, 2}, {0, 1}, and at the end 1 before 0, which is the same set
    orders = np.array([[0, 1, 2], [0, 2, 1], [0, 1, 2], [1, 0, 2]])
    assert settled_from(orders, 2) == 2
    assert settled_from(orders, 1) == 3
    assert settled_from(orders[2:], 2) == 0


def test_patients_are_taken_evenly_from_the_first_to_the_last():
    assert [evenly(5, most) for most in (1, 2, 3, 9)] == [[0], [0, 4], [0, 2, 4], [0, 1, 2, 3, 4]]


def test_only_the_schedule_every_is_shown_and_another_where_there_is_no_other(bundle_tiny):
    cohort = drawn(bundle_tiny)
    both = tables_of(bundle_tiny, cohort, k=1, rules=["greedy"], schedules=("every", "paper"))["choices"]
    shown = explored_of(bundle_tiny, cohort, both, k=1)
    alone = explored_of(bundle_tiny, cohort, both[both["schedule"] == "every"], k=1)
    assert (shown.summary, shown.steps) == (alone.summary, alone.steps)
    assert shown.summary["schedule"] == "every"
    paper = explored_of(bundle_tiny, cohort, both[both["schedule"] == "paper"], k=1)
    assert paper.summary["schedule"] == "paper"


def test_labels_stand_by_entity_and_are_missing_where_the_cohort_has_none(bundle_tiny):
    labels = pd.DataFrame({"fistula": [1, None, 0]}, index=["p0", "p1", "p2"], dtype="Int8")
    cohort = cohort_of(bundle_tiny, drawn(bundle_tiny).values, labels)
    choices = tables_of(bundle_tiny, cohort, k=1, rules=["greedy"])["choices"]
    summary = explored_of(bundle_tiny, cohort, choices, k=1).summary
    assert summary["entities"] == ["bleeding", "diarrhea", "fistula"]
    assert [patient["labels"] for patient in summary["patients"]] == [
        [None, None, 1],
        [None, None, None],
        [None, None, 0],
    ]


def test_the_page_opens_with_the_default_rule_where_the_table_has_it(bundle_tiny):
    cohort = drawn(bundle_tiny)
    many = tables_of(bundle_tiny, cohort, k=1, rules=["greedy", "priority_all"], gains=GAINS)["choices"]
    summary = explored_of(bundle_tiny, cohort, many, k=1).summary
    assert summary["cells"][summary["shown"]] == {"rule": "priority_all", "gain": "cmi", "seed": 0}
    one = tables_of(bundle_tiny, cohort, k=1, rules=["largest_unary"])["choices"]
    assert explored_of(bundle_tiny, cohort, one, k=1).summary["shown"] == 0


@pytest.mark.parametrize(
    ("damage", "k", "word"),
    [
        (lambda table: table.iloc[:0], 1, "no row"),
        (lambda table: table.iloc[:-1], 1, "each feature of the bundle"),
        (lambda table: table.assign(feature=table["feature"].replace("AQP8", "TFF3")), 1, "each feature of the bundle"),
        (lambda table: table.assign(certified=~table["certified"]), 1, "column certified"),
        (lambda table: table, 2, "column certified"),
    ],
    ids=["empty", "row gone", "feature twice", "other numbers", "other k"],
)
def test_tables_of_something_else_are_refused(bundle_tiny, damage, k, word):
    cohort = cohort_of(bundle_tiny, [[1, 1, 1, -1, 1]])
    choices = tables_of(bundle_tiny, cohort, k=1, rules=["greedy"])["choices"]
    with pytest.raises(ConfigError, match=word):
        explored_of(bundle_tiny, cohort, damage(choices), k=k)


class Elements(HTMLParser):
    """Every element with its attributes, and the text inside scripts."""

    def __init__(self, text):
        super().__init__()
        self.tags, self.scripts = [], []
        self.feed(text)

    def handle_starttag(self, tag, attrs):
        self.tags.append((tag, dict(attrs)))

    def handle_data(self, data):
        if self.tags and self.tags[-1][0] == "script":
            self.scripts.append((self.tags[-1][1], data))


@pytest.fixture(scope="module")
def page():
    return explorer_html(odd_names().explored)


def test_no_name_ends_its_element_or_makes_another(page, bundle_tiny):
    cohort = drawn(bundle_tiny, patients=2)
    choices = tables_of(bundle_tiny, cohort, k=1, rules=["greedy"])["choices"]
    odd, other = Elements(page), Elements(explorer_html(explored_of(bundle_tiny, cohort, choices, k=1)))
    scripts = len(PATIENTS) - 2  # packed steps are one element a patient
    assert len(odd.tags) - len(other.tags) == scripts
    assert ATTACK not in page
    assert "\u2028" not in page
    assert "\u2029" not in page


def test_names_come_back_from_the_page_as_they_are(page):
    parts = [data for attributes, data in Elements(page).scripts if attributes.get("id") == "summary"]
    summary = json.loads("".join(parts))
    assert summary["entities"] == sorted(ENTITIES)
    assert summary["features"] == list(FEATURES)
    assert [patient["name"] for patient in summary["patients"]] == list(PATIENTS)
    assert summary["cohort"] == ATTACK


def test_the_page_names_nothing_to_fetch_and_forbids_fetching(page):
    elements = Elements(page)
    links = [(tag, attributes) for tag, attributes in elements.tags if {"src", "href", "srcset"} & set(attributes)]
    assert sorted(attributes["href"] for _, attributes in links) == ["#step", "data:,"]
    (policy,) = [a["content"] for tag, a in elements.tags if tag == "meta" and "http-equiv" in a]
    assert "default-src 'none'" in policy
    assert "connect-src" not in policy


def test_the_same_steps_make_the_same_bytes(page):
    assert explorer_html(odd_names().explored) == page


SCRIPTS = ("explorer_charts.js", "explorer.js")


def test_the_parts_of_the_page_come_with_the_package():
    for name in ("explorer.html", "explorer_words.yaml", *SCRIPTS):
        assert resources.files("afa.evaluate").joinpath("templates", name).is_file()


def test_no_script_of_the_page_writes_html_from_text():
    script = "".join(
        resources.files("afa.evaluate").joinpath("templates", name).read_text(encoding="utf-8") for name in SCRIPTS
    )
    for way in ("innerHTML", "outerHTML", "insertAdjacentHTML", "document.write", "eval(", "fetch(", "XMLHttpRequest"):
        assert way not in script


def test_the_command_writes_the_page_or_says_what_is_wrong(bundle_tiny, tmp_path):
    cohort = drawn(bundle_tiny)
    write_cohort(cohort, tmp_path / "cohort")
    write_tables(tables_of(bundle_tiny, cohort, k=2, rules=["greedy"]), tmp_path / "tables")
    command = ["explorer", "--bundle", ROOT / "tests/data/bundle_tiny", "--cohort", tmp_path / "cohort"]
    command += ["--tables", tmp_path / "tables", "--out", tmp_path / "page.html"]
    made = afa(*command)  # k = 5 becomes 2
    assert made.returncode == 0, made.stderr
    assert (tmp_path / "page.html").read_text(encoding="utf-8").startswith("<!doctype html>")
    command[-1] = tmp_path / "none.html"
    wrong = afa(*command, "--k", "1")
    assert wrong.returncode == 2
    assert wrong.stderr.startswith("afa: table choices")
    assert not (tmp_path / "none.html").exists()
