"""`afa simulate`: the numbers are those of planners walked by hand, and what cannot be done is named."""

import json
import sys
from dataclasses import replace
from itertools import product
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
import yaml
from bundles import bundle_of
from commands import afa
from four_patients import FEATURES, PATIENTS, as_csv, cohort, frame
from rated import FEVERS, written
from typer.testing import CliRunner

from afa import simulate as simulate_table
from afa.cli import app
from afa.cohort.cohort import Cohort
from afa.errors import AfaError, ConfigError, PlannerError
from afa.evaluate.accuracy import areas_of
from afa.evaluate.simulate import compared_strategies, simulate_strategies, some_patients, strategies_of
from afa.evaluate.simulate.walks import SimulationSetting, Strategy, budgets_of, rounds_until
from afa.evaluate.simulation_page import write_simulation
from afa.model.bundle import load_bundle, save_bundle
from afa.model.orders import random_orders
from afa.model.rule_names import COMPARED_BINARY
from afa.planner import BinaryPlanner, TopKPlanner

TINY = Path(__file__).parents[1] / "data/bundle_tiny"


@pytest.fixture
def table(tmp_path):
    """The four patients as a CSV file."""
    return as_csv(tmp_path)


@pytest.fixture
def no_figure(monkeypatch):
    """Figures take most of the time of a small simulation; the test of the command's files has them drawn."""
    monkeypatch.setattr("afa.evaluate.figures.save_figure", lambda *_: None)


def walked(planner, values, read):
    """What `read` says of a planner before and after each of its choices."""
    shown = [read(planner)]
    while (feature := planner.next_feature()) is not None:
        planner.observe(feature, values[planner.bundle.features.index(feature)])
        shown.append(read(planner))
    return shown


def order_of(planner):
    return [planner.bundle.features.index(name) for name in planner.observed]


def share(curves, way, metric):
    chosen = curves[(curves["allocation"] == way.allocation) & (curves["gain"] == way.gain)]
    chosen = chosen[(chosen["score"] == way.score) & (chosen["metric"] == metric) & (chosen["counted"] == "features")]
    assert list(chosen["t"]) == list(range(len(FEATURES) + 1))
    return chosen["value"].to_numpy()


def last_away(shown):
    """The first t from which on nothing is away from the last."""
    return max((t + 1 for t, each in enumerate(shown) if each != shown[-1]), default=0)


def quantile(numbers, part):
    return sorted(numbers)[int(np.ceil(part * len(numbers))) - 1]


def of_bundle(costs, way):
    """Which costs a planner weighs; random orders look at none."""
    return None if costs == "own" and way.allocation != "random" else "equal"


@pytest.mark.parametrize(
    ("score", "k", "costs"),
    [("linearity", 1, "equal"), ("linearity", 2, "equal"), ("linearity", 2, "own"), ("two_elbo", 1, "equal")],
)
def test_the_top_k_curves_are_those_of_planners_walked_by_hand(bundle_tiny, score, k, costs):
    ways = strategies_of(["priority_all", "greedy", "lucb", "largest_unary", "random"], ["cmi"], [score])
    made = simulate_strategies(
        bundle_tiny, cohort(bundle_tiny), ways, SimulationSetting(k=k, costs=costs, seeds=(7,), resamples=100)
    )
    full = {
        name: np.array([bundle_tiny.mrf(v).energy(np.array(values)) for v in bundle_tiny.entities])
        for name, values in PATIENTS.items()
    }
    best = {name: {bundle_tiny.entities[v] for v in np.argsort(-each)[:k]} for name, each in full.items()}
    for way in ways:
        right, found, certified, until, certain, paid = [], [], [], [], [], []
        for name, values in PATIENTS.items():
            options = {"k": k, "score": score, "allocation": way.allocation, "patient": name, "seed": 7}
            planner = TopKPlanner(bundle_tiny, gain=way.gain or "cmi", costs=of_bundle(costs, way), **options)
            shown = walked(planner, values, lambda one: (one.scores(), set(one.top_k()), one.certified()))
            paid.append(sum(bundle_tiny.costs[j] for j in order_of(planner)[: last_away([s[1] for s in shown])]))
            lead = np.sign(full[name][:, None] - full[name][None, :])
            upper = np.triu_indices(len(lead), 1)
            assert (lead[upper] != 0).all()
            right.append([np.mean((1 + np.sign(scores[upper]) * lead[upper]) / 2) for scores, _, _ in shown])
            found.append([len(top & best[name]) / k for _, top, _ in shown])
            certified.append([sure for _, _, sure in shown])
            until.append(last_away([top for _, top, _ in shown]))
            certain.append(certified[-1].index(True))
        np.testing.assert_allclose(share(made.curves, way, "sign_accuracy"), np.mean(right, axis=0))
        np.testing.assert_allclose(share(made.curves, way, "certified"), np.mean(certified, axis=0))
        after = [np.mean([t >= settled for settled in until]) for t in range(6)]
        np.testing.assert_allclose(share(made.curves, way, "settled"), after)
        no_ties = [t for t in range(1, 6) if score == "linearity" and way.allocation != "random"]
        np.testing.assert_allclose(share(made.curves, way, "p_at_k")[no_ties], np.mean(found, axis=0)[no_ties])
        rows = made.features_needed
        rows = rows[(rows["allocation"] == way.allocation) & (rows["score"] == score)].set_index("criterion")
        priced, rows = rows[rows["counted"] == "cost"], rows[rows["counted"] == "features"]
        assert priced.empty if costs == "equal" else priced.loc["settled", "p90"] == quantile(paid, 0.9)
        for criterion, numbers in (("settled", until), ("certified", certain)):
            for column, part in (("q25", 0.25), ("median", 0.5), ("q75", 0.75), ("p90", 0.9)):
                assert rows.loc[criterion, column] == quantile(numbers, part)
        nearly = [max((t + 1 for t, each in enumerate(one) if each < 0.95), default=0) for one in right]
        assert rows.loc["sign_95", "median"] == quantile(nearly, 0.5)


@pytest.mark.parametrize("entity", ["bleeding", "diarrhea", "fistula"])
@pytest.mark.parametrize("costs", ["equal", "own"])
@pytest.mark.parametrize("coupling", ["differential", "shared"])
def test_the_binary_curves_are_those_of_planners_walked_by_hand(bundle_tiny, entity, costs, coupling):
    """An entity with a prior: what decides is the sign of the calibrated log-odds, not that of the paper's score."""
    bundle_tiny = replace(bundle_tiny, priors=np.array([0.8, -0.6, 0.4]))
    ways = strategies_of(["greedy", "largest_unary", "random"], ["cmi"], ["two_elbo"])
    labels = {"bleeding": [1, 0, 0, pd.NA], "diarrhea": [1, 0, 1, pd.NA], "fistula": [0, 1, 1, pd.NA]}
    patients = cohort(bundle_tiny, labels)
    setting = SimulationSetting(entity=entity, coupling=coupling, costs=costs, seeds=(3,), resamples=100)
    made = simulate_strategies(bundle_tiny, patients, ways, setting)
    of_label = [2 * label - 1 for label in labels[entity][:3]]
    for way in ways:
        options = {"entity": entity, "allocation": way.allocation, "seed": 3, "coupling": coupling}
        shown = [
            walked(
                BinaryPlanner(bundle_tiny, patient=name, costs=of_bundle(costs, way), **options),
                values,
                lambda one: (one.decision(), one.resolved(), one.log_odds()),
            )
            for name, values in PATIENTS.items()
        ]
        calls = np.array([[each[0] for each in one] for one in shown])
        right = [(1 + calls[i] * sign) / 2 for i, sign in enumerate(calls[:, -1]) if sign]
        np.testing.assert_allclose(share(made.curves, way, "sign_accuracy"), np.mean(right, axis=0))
        resolved = [[each[1] for each in one] for one in shown]
        np.testing.assert_allclose(share(made.curves, way, "certified"), np.mean(resolved, axis=0))
        fits = [(1 + calls[i] * sign) / 2 for i, sign in enumerate(of_label)]
        np.testing.assert_allclose(share(made.curves, way, "label_accuracy"), np.mean(fits, axis=0))
        values = np.array([[each[2] for each in one] for one in shown[:3]])
        pairs = [(p, n) for p, n in product(range(3), repeat=2) if of_label[p] > of_label[n]]
        area = np.mean([(1 + np.sign(np.round(values[p] - values[n], 9))) / 2 for p, n in pairs], axis=0)
        np.testing.assert_allclose(share(made.curves, way, "label_auroc"), area)
        rows = made.features_needed.query("allocation == @way.allocation and counted == 'features'")
        rows = rows.set_index("criterion")
        until = [last_away(list(one)) for one in calls]
        assert rows.loc["settled", "median"] == quantile(until, 0.5)
        assert list(rows.index) == ["settled", "certified"]


def test_frontier_decides_about_one_entity_as_a_planner_walked_by_hand(bundle_tiny):
    """The planner decides by the sign of S, so that its own decision at full observation counts as right."""
    background = {"probabilities": [[0.5, 0.3, 0.2]] * 5, "kind": "patients", "words": "patients of last year"}
    setting = SimulationSetting(entity="diarrhea", background=lambda _: background, costs="equal")
    way, *others = compared_strategies(bundle_tiny, setting)
    assert way == Strategy("frontier", "", "background")
    assert {other.score for other in others} == {"two_elbo"}
    made = simulate_strategies(bundle_tiny, cohort(bundle_tiny), [way], setting)
    shown = [
        walked(
            BinaryPlanner(bundle_tiny, entity="diarrhea", background=background, costs="equal"),
            values,
            lambda one: (one.settings["allocation"], one.decision(), one.resolved()),
        )
        for values in PATIENTS.values()
    ]
    assert {each[0] for one in shown for each in one} == {"frontier"}
    calls = np.array([[each[1] for each in one] for one in shown])
    right = [(1 + one * one[-1]) / 2 for one in calls if one[-1]]
    np.testing.assert_allclose(share(made.curves, way, "sign_accuracy"), np.mean(right, axis=0))
    resolved = [[each[2] for each in one] for one in shown]
    np.testing.assert_allclose(share(made.curves, way, "certified"), np.mean(resolved, axis=0))
    assert len({tuple(one) for one in calls}) > 1


def test_random_own_is_the_random_order_with_the_features_of_the_entity_first(bundle_tiny):
    """`diarrhea` has three features of its own, so that its answer stands after three."""
    setting = SimulationSetting(entity="diarrhea", seeds=range(20))
    made = simulate_strategies(bundle_tiny, cohort(bundle_tiny), [Strategy("random_own", "", "two_elbo")], setting)
    assert bundle_tiny.support("diarrhea").tolist() == [0, 3]
    assert share(made.curves, Strategy("random_own", "", "two_elbo"), "settled")[2:].tolist() == [1.0] * 4
    assert made.features_needed["p90"].max() <= 2


def test_a_rule_of_ones_own_is_followed_as_the_compiled_rule_of_the_same_kind(bundle_tiny):
    own, known = "afa.planner.rules.greedy:Greedy", "greedy"
    ways = strategies_of([own, known], ["cmi"], ["linearity"])
    made = simulate_strategies(
        bundle_tiny, cohort(bundle_tiny), ways, SimulationSetting(k=2, costs="equal", resamples=100)
    )
    one, other = (made.curves[made.curves["allocation"] == rule].drop(columns="allocation") for rule in (own, known))
    assert len(one) == 6 * 4
    pd.testing.assert_frame_equal(one.reset_index(drop=True), other.reset_index(drop=True))


def test_labels_are_held_against_the_entities_that_are_ranked_first(bundle_tiny):
    """Two labelled entities make k' = 1; a patient without a positive label is left out."""
    labels = {"bleeding": [1, 1, 0, 0], "diarrhea": [0, 0, 1, 0]}
    way = Strategy("greedy", "cmi", "linearity")
    made = simulate_strategies(bundle_tiny, cohort(bundle_tiny, labels), [way], SimulationSetting(k=2, resamples=100))
    energies = {n: [bundle_tiny.mrf(v).energy(np.array(x)) for v in labels] for n, x in PATIENTS.items()}
    right = [labels[list(labels)[int(np.argmax(energies[n]))]][i] for i, n in enumerate(PATIENTS)][:3]
    assert share(made.curves, way, "label_p_at_k")[-1] == pytest.approx(np.mean(right))
    rows = made.curves[made.curves["metric"] == "label_p_at_k"]
    assert set(rows["n"]) == {3}
    rows = rows[(rows["allocation"] == "constant") & (rows["counted"] == "features")]
    assert rows["value"].tolist() == pytest.approx([2 / 3] * 6)


def test_the_constant_answers_are_the_usual_winner_and_the_usual_top_k(bundle_tiny):
    patients = {"a": PATIENTS["p1"], "b": PATIENTS["p1"], "c": PATIENTS["p3"]}
    way = Strategy("random", "", "linearity")
    made = simulate_strategies(
        bundle_tiny, cohort(bundle_tiny, **patients), [way], SimulationSetting(k=1, resamples=100)
    )
    same = [bundle_tiny.mrf(v).energy(np.array(PATIENTS["p1"])) for v in bundle_tiny.entities]
    other = [bundle_tiny.mrf(v).energy(np.array(PATIENTS["p3"])) for v in bundle_tiny.entities]
    alike = sum((same[a] - same[b]) * (other[a] - other[b]) > 0 for a, b in ((0, 1), (0, 2), (1, 2)))
    constant = Strategy("constant", "", "")
    np.testing.assert_allclose(share(made.curves, constant, "sign_accuracy"), (6 + alike) / 9)
    np.testing.assert_allclose(share(made.curves, constant, "p_at_k"), (2 + (np.argmax(same) == np.argmax(other))) / 3)


def test_what_is_missing_until_the_end_is_never_there():
    missing = np.array([[True, False, False], [False, True, False], [False, False, False], [False, False, True]])
    assert rounds_until(missing).tolist() == [1, 2, 0, np.inf]


def test_a_weighted_auroc_is_that_of_patients_repeated():
    scores = np.array([[0.0], [1.0], [1.0], [2.0]])
    positive = np.array([False, True, False, True])
    weights = np.array([[1, 1, 1, 1], [0, 2, 1, 1], [2, 0, 0, 0]], dtype=float)
    # (1,0) won, (1,1) tied, (2,0) won, (2,1) won: 3.5 of 4; then 2 x 1/2 + 1 of 3; then no positive patient
    np.testing.assert_allclose(areas_of(scores, positive, weights)[:, 0], [3.5 / 4, 2 / 3, np.nan])


@pytest.fixture(scope="module")
def many():
    """Eleven patients and a bundle of five entities with couplings."""
    generator = np.random.default_rng(5)
    unary, couplings = generator.integers(-2, 3, (5, 7)) / 2, np.zeros((5, 7, 7))
    couplings[:, 0, 1], couplings[:, 2, 5] = generator.integers(-1, 2, 5), generator.integers(-1, 2, 5)
    bundle = bundle_of(unary, couplings)
    values = generator.integers(-1, 2, (11, 7))
    labels = {"v0": generator.integers(0, 2, 11), "v2": generator.integers(0, 2, 11)}
    return bundle, cohort(bundle, labels, **{f"p{i}": tuple(row) for i, row in enumerate(values)})


@pytest.mark.parametrize("setting", [{"k": 2}, {"entity": "v2"}], ids=["top_k", "binary"])
def test_threads_and_blocks_change_no_number(many, monkeypatch, setting):
    bundle, patients = many
    score = "linearity" if "k" in setting else "two_elbo"
    ways = strategies_of(["greedy", "largest_unary", "random"], ["cmi", "wald_magnitude"], [score])
    first = simulate_strategies(bundle, patients, ways, SimulationSetting(seeds=(0, 1), resamples=200, **setting))
    monkeypatch.setattr("afa.evaluate.simulate.walks.PATIENTS_PER_BLOCK", 3)
    second = simulate_strategies(
        bundle, patients, ways, SimulationSetting(seeds=(0, 1), resamples=200, threads=3, **setting)
    )
    for one, other in zip(first, second, strict=True):
        assert one.to_csv() == other.to_csv()


def test_seeds_are_taken_together(many):
    bundle, patients = many
    way = Strategy("random", "", "linearity")

    def made(*seeds):
        found = simulate_strategies(bundle, patients, [way], SimulationSetting(k=2, seeds=seeds, resamples=200)).curves
        return found[(found["allocation"] == "random") & (found["metric"] == "sign_accuracy")]

    one, other, together = made(4), made(9), made(4, 9)
    assert not np.array_equal(one["value"], other["value"])
    np.testing.assert_allclose(together["value"], (one["value"] + other["value"]) / 2)
    assert (together["low"] <= together["value"]).all()
    assert (together["value"] <= together["high"]).all()
    assert set(together["n"]) == {2 * n for n in one["n"]}


def test_some_patients_are_drawn_by_name_alone(many):
    _, patients = many
    drawn = some_patients(patients, 4, 0)
    turned = Cohort("x", patients.features, patients.patients[::-1], patients.values[::-1], patients.labels.iloc[::-1])
    assert set(drawn.patients) == set(some_patients(turned, 4, 0).patients)
    assert drawn.values.tolist() == [patients.values[patients.patients.index(name)].tolist() for name in drawn.patients]
    assert some_patients(patients, 4, 1).patients != drawn.patients
    assert some_patients(patients, 12, 0) is patients


@pytest.mark.parametrize(
    ("ways", "setting", "words"),
    [
        ([Strategy("greedy", "cmi", "linearity")], {"k": 3}, "planner option k"),
        ([Strategy("gredy", "cmi", "linearity")], {"k": 1}, "planner option allocation"),
        ([Strategy("no.such:Rule", "cmi", "linearity")], {"k": 1}, "no.such:Rule"),
        ([Strategy("greedy", "f_target", "wald")], {"k": 1}, "planner option target"),
        ([Strategy("lucb", "cmi", "two_elbo")], {"entity": "fistula"}, "greedy stands for the others"),
        ([Strategy("greedy", "cmi", "linearity")], {"entity": "fistula"}, "--score"),
        ([Strategy("greedy", "f_target", "wald")], {"entity": "fistula"}, "--gain"),
        ([Strategy("greedy", "cmi", "two_elbo")], {"entity": "fistla"}, "did you mean fistula"),
    ],
)
def test_a_way_that_cannot_be_gone_is_named_before_anyone_is_followed(bundle_tiny, ways, setting, words):
    with pytest.raises(AfaError, match=words):
        simulate_strategies(bundle_tiny, cohort(bundle_tiny), ways, SimulationSetting(**setting))


def test_one_entity_alone_has_no_top_k_and_can_be_asked_about(bundle_tiny):
    single = bundle_tiny.restrict_entities(["fistula"])
    with pytest.raises(AfaError, match="--entity"):
        simulate_strategies(single, cohort(single), [Strategy("greedy", "cmi", "linearity")], SimulationSetting())
    ways = strategies_of(COMPARED_BINARY, ["cmi"], ["two_elbo"])
    simulate_strategies(single, cohort(single), ways, SimulationSetting(entity="fistula", resamples=100))


def run(*arguments):
    return CliRunner().invoke(app, ["simulate", *map(str, arguments)])


def test_the_command_writes_tables_a_figure_and_a_card_with_the_same_bytes_each_time(table, tmp_path):
    first, second = tmp_path / "first", tmp_path / "second"
    done = run(TINY, table, "--out", first)
    assert done.exit_code == 0, done.output
    assert "Features needed, of 5" in done.output
    assert run(TINY, table, "--out", second, "--threads", 2).exit_code == 0
    names = ["curves.csv", "curves.png", "curves.svg", "explorer.html", "features_needed.csv", "simulate.yaml"]
    assert sorted(path.name for path in first.iterdir()) == names
    for name in names:
        assert (first / name).read_bytes() == (second / name).read_bytes(), name
    card = yaml.safe_load((first / "simulate.yaml").read_text())
    assert card["setting"] == {"k": 1, "entity": None, "coupling": "differential", "holds": None, "tau": None}
    assert card["cohort"]["simulated_on"] == 4
    rows = pd.read_csv(first / "curves.csv", keep_default_na=False)
    assert set(rows["allocation"]) == {"priority_all", "greedy", "largest_unary", "random", "constant"}
    assert set(rows.loc[rows["counted"] == "features", "t"]) == set(range(6))


@pytest.mark.usefixtures("no_figure")
def test_a_failed_run_leaves_the_earlier_one_as_it_was(bundle_tiny, tmp_path, monkeypatch):
    made = simulate_strategies(
        bundle_tiny, cohort(bundle_tiny), [Strategy("random", "", "linearity")], SimulationSetting(k=1, resamples=100)
    )
    card = {
        "bundle": {"name": "tiny"},
        "cohort": {"name": "mine", "simulated_on": 4},
        "setting": {"k": 1, "entity": None},
    }
    write_simulation(made, card, tmp_path / "out")
    before = {path.name: path.read_bytes() for path in (tmp_path / "out").iterdir()}
    assert set(before) == {"curves.csv", "features_needed.csv", "simulate.yaml"}

    def fails(*_):
        raise OSError("no pen")

    monkeypatch.setattr("afa.evaluate.figures.save_figure", fails)
    with pytest.raises(OSError, match="no pen"):
        write_simulation(made._replace(curves=made.curves.head(1)), card, tmp_path / "out")
    assert {path.name: path.read_bytes() for path in (tmp_path / "out").iterdir()} == before
    assert [path.name for path in tmp_path.iterdir()] == ["out"]


def test_a_folder_with_other_files_is_not_replaced(table, tmp_path):
    (tmp_path / "thesis").mkdir()
    (tmp_path / "thesis/chapter.tex").write_text("all of it")
    refused = run(TINY, table, "--out", tmp_path / "thesis")
    assert isinstance(refused.exception, ConfigError)
    assert "chapter.tex" in str(refused.exception)
    assert (tmp_path / "thesis/chapter.tex").exists()


def test_that_no_figure_was_drawn_is_said_aloud(table, tmp_path, monkeypatch):
    monkeypatch.setitem(sys.modules, "bokeh", None)
    done = run(TINY, table, "--out", tmp_path / "out", "--resamples", 10)
    assert "no figure and no explorer page: bokeh is not installed (pip install 'afa[notebooks]')" in done.output
    assert {path.name for path in (tmp_path / "out").iterdir()} == {
        "curves.csv",
        "features_needed.csv",
        "simulate.yaml",
    }


@pytest.mark.parametrize(
    ("options", "words"),
    [
        (("--k", "1", "--entity", "fistula"), "--k and --entity"),
        (("--allocation", "greedy,greedy"), "--allocation"),
        (("--score", "kl"), "--score"),
        (("--coupling", "shared"), "planner option coupling"),
        (("--gain", "none"), "--gain"),
        (("--confidence", "1"), "--confidence"),
    ],
)
def test_an_option_that_cannot_be_used_names_itself(table, tmp_path, options, words):
    refused = run(TINY, table, "--out", tmp_path / "out", *options)
    assert isinstance(refused.exception, (ConfigError, PlannerError))
    assert words in str(refused.exception)
    assert not (tmp_path / "out").exists()


@pytest.mark.usefixtures("no_figure")
def test_the_table_is_told_to_another_program_and_k_is_1_unless_given(table, tmp_path):
    done = afa(
        "simulate", TINY, table, "--out", tmp_path / "o", "--resamples", "10", "--allocation", "greedy", "--json"
    )
    told = json.loads(done.stdout)
    assert (told["out"], told["patients"]) == (str(tmp_path / "o"), len(PATIENTS))
    criteria = [row["criterion"] for row in told["rows"] if row["counted"] == "features"]
    assert criteria == ["settled", "certified", "sign_95"]
    assert yaml.safe_load((tmp_path / "o/simulate.yaml").read_text())["setting"]["k"] == 1


@pytest.mark.usefixtures("no_figure")
def test_labels_are_compared_with_the_answers_in_a_table_of_their_own(table, tmp_path):
    (tmp_path / "labels.csv").write_text("who,bleeding\np1,1\np2,0\np3,1\np4,0\n")
    options = ("--entity", "bleeding", "--out", tmp_path / "o", "--resamples", 20, "--seeds", 1)
    assert "Against the labels" not in run(TINY, table, *options).output
    told = run(TINY, table, *options, "--labels", tmp_path / "labels.csv").output
    rows = (
        told.partition("Against the labels: AUROC, by the number of features")[2].partition("Against")[0].splitlines()
    )
    shown = {row.split()[0]: row.split()[1:] for row in rows if row.split()}
    curves = pd.read_csv(tmp_path / "o/curves.csv").query("counted == 'features'")
    greedy = curves[(curves["metric"] == "label_auroc") & (curves["allocation"] == "greedy")].set_index("t")["value"]
    assert shown["rule"] == ["0", "1", "2", "3", "5"]
    assert shown["greedy"] == [f"{greedy[t]:.2f}" for t in (0, 1, 2, 3, 5)]


PRICED = {"cheap": (1.0, 1.0), "dear": (1.7, 4.0), "middle": (0.9, 2.0)}
"""Potential and price. By potential for its price the order is cheap, middle, dear: 1, 0.45, 0.425."""


@pytest.fixture
def priced():
    """A bundle of the features `PRICED` that speak for `a` and against `b`, and three patients, one misled by cheap."""
    unary = np.array([potential for potential, _ in PRICED.values()])
    named = {"features": list(PRICED), "entities": ["a", "b"]}
    bundle = bundle_of([unary, -unary], np.zeros((2, 3, 3)), **named)
    bundle = replace(bundle, costs=np.array([price for _, price in PRICED.values()]))
    labels = {"a": [1, 0, 0], "b": [0, 1, 1]}
    return bundle, cohort(bundle, labels, p=(1, 1, 1), q=(-1, 1, 1), r=(-1, -1, -1))


def test_curves_by_cost_say_what_was_right_for_the_money(priced):
    """By hand: q looks like b by cheap (-1) and cheap and middle (-0.1), and is a by all (+1.6); p is a, r is b.

    For 1 or 2 cheap is known, for 3 to 6 cheap and middle, for 7 all.
    """
    way = Strategy("largest_unary", "", "linearity")
    curves = simulate_strategies(*priced, [way], SimulationSetting(k=1, resamples=100)).curves
    curves = curves[curves["allocation"] == way.allocation]
    by_cost = {
        metric: dict(zip(part["t"], part["value"], strict=True))
        for metric, part in curves[curves["counted"] == "cost"].groupby("metric")
    }
    assert list(by_cost["p_at_k"]) == [0, 1, 2, 3, 4, 5, 6, 7]
    assert list(by_cost["p_at_k"].values())[1:] == pytest.approx([2 / 3] * 6 + [1])
    assert list(by_cost["sign_accuracy"].values()) == pytest.approx([0.5] + [2 / 3] * 6 + [1])
    assert list(by_cost["settled"].values())[1:] == pytest.approx([2 / 3] * 6 + [1])
    assert list(by_cost["label_p_at_k"].values())[1:] == pytest.approx([1] * 6 + [2 / 3])
    np.testing.assert_allclose(share_of_three(curves, "p_at_k"), [2 / 3, 2 / 3, 1])


def share_of_three(curves, metric):
    rows = curves[(curves["counted"] == "features") & (curves["metric"] == metric)]
    return rows.set_index("t").loc[[1, 2, 3], "value"].to_numpy()


def test_curves_by_cost_of_random_orders_follow_each_order(priced):
    bundle, patients = priced
    made = simulate_strategies(
        bundle, patients, [Strategy("random", "", "linearity")], SimulationSetting(k=1, seeds=(0, 1, 2), resamples=100)
    )
    rows = made.curves[(made.curves["counted"] == "cost") & (made.curves["allocation"] == "random")]
    shown = rows[rows["metric"] == "sign_accuracy"].set_index("t")["value"]
    expected = {budget: [] for budget in range(8)}
    for order, budget in product(random_orders(bundle.features, patients.patients, [0, 1, 2]).swapaxes(0, 1), expected):
        for values, features in zip(patients.values, order, strict=True):
            within = np.cumsum(bundle.costs[features]) <= budget
            lead = np.sign(values[features][within] @ bundle.unary[0][features][within])
            expected[budget].append((1 + lead * np.sign(values @ bundle.unary[0])) / 2)
    assert shown.to_dict() == pytest.approx({budget: np.mean(right) for budget, right in expected.items()})


def test_equal_costs_have_no_curves_by_cost(priced):
    way = Strategy("random", "", "linearity")
    assert set(
        simulate_strategies(*priced, [way], SimulationSetting(costs="equal", resamples=100)).curves["counted"]
    ) == {"features"}


@pytest.mark.parametrize(
    ("prices", "budgets"),
    [
        ([1, 2, 1, 0, 0.5], [0, 0.5, 1, 1.5, 2, 2.5, 3, 3.5, 4, 4.5]),
        ([3, 0, 5], [0, 3, 6, 8]),
        ([0.1, 0.2], [0, 0.1, 0.2, 0.3]),
        ([1, 299], [*range(0, 300, 3), 300]),
    ],
)
def test_budgets_are_multiples_of_the_smallest_price_up_to_the_whole(prices, budgets):
    assert budgets_of(np.array(prices, dtype=float)).tolist() == pytest.approx(budgets)


@pytest.mark.usefixtures("no_figure")
def test_where_costs_differ_the_terminal_has_a_table_by_cost_and_says_so(priced, tmp_path):
    bundle, patients = priced
    save_bundle(bundle, tmp_path / "priced")
    table = pd.DataFrame(patients.values, columns=list(PRICED), index=pd.Index(patients.patients, name="who"))
    table.to_csv(tmp_path / "t.csv")
    patients.labels.to_csv(tmp_path / "labels.csv")
    options = (tmp_path / "priced", tmp_path / "t.csv", "--resamples", 20, "--seeds", 1, "--explorer", 0)
    options += ("--labels", tmp_path / "labels.csv", "--allocation", "largest_unary,random")
    told = run(*options, "--out", tmp_path / "own").output
    assert "Costs differ: read the lines and tables by cost." in told
    rows = told.partition("have the label, by what these cost\n")[2].splitlines()
    assert rows[0].split() == ["rule", "0", "1", "2", "3", "5", "7"]
    assert rows[1].split()[2:] == ["1.00", "1.00", "1.00", "1.00", "0.67"]
    equal = run(*options, "--costs", "equal", "--out", tmp_path / "equal").output
    assert "Costs differ" not in equal
    assert "by what these cost" not in equal


@pytest.mark.parametrize("entity", [None, "a"])
def test_the_gain_information_is_followed_as_its_planner_goes(priced, entity, tmp_path):
    bundle, patients = priced
    ways = strategies_of(["greedy", "random"], ["cmi", "information"], ["two_elbo" if entity else "linearity"])
    assert [way[:2] for way in ways] == [("information",) * 2, ("greedy", "cmi"), ("random", "")]
    made = simulate_strategies(
        bundle, patients, ways[:1], SimulationSetting(k=1, entity=entity, costs="own", resamples=20)
    )
    calls = []
    for values in patients.values.tolist():
        planner = (
            BinaryPlanner(bundle, entity=entity, gain="information")
            if entity
            else TopKPlanner(bundle, k=1, gain="information")
        )
        read = (lambda one: one.decision()) if entity else (lambda one: one.top_k())
        calls.append(last_away(walked(planner, values, read)))
    rows = made.features_needed.query("criterion == 'settled' and counted == 'features'")
    assert rows["median"].item() == quantile(calls, 0.5)
    assert rows["p90"].item() == quantile(calls, 0.9)
    with pytest.raises(PlannerError, match="information"):
        simulate_strategies(
            bundle,
            patients,
            strategies_of(["lucb"], ["information"], ["linearity"])[1:],
            SimulationSetting(resamples=20),
        )


@pytest.mark.parametrize(
    ("question", "given", "first"),
    [
        ({}, {}, ("information", "information", "two_elbo")),
        ({"holds": "several"}, {}, ("priority_all", "cmi", "two_elbo")),
        ({}, {"gain": "cmi"}, ("priority_all", "cmi", "two_elbo")),
        ({}, {"score": "wald"}, ("information", "information", "wald")),
        ({"background": "elicited"}, {"score": "background"}, ("frontier", "", "background")),
        ({"entity": "flu"}, {}, ("greedy", "cmi", "two_elbo")),
        ({"entity": "flu"}, {"gain": "information"}, ("information", "information", "two_elbo")),
    ],
)
def test_the_first_way_compared_is_that_of_a_planner_with_the_same_options(tmp_path, question, given, first):
    bundle = load_bundle(written(tmp_path / "fevers", FEVERS))
    of_planner = BinaryPlanner if "entity" in question else TopKPlanner
    planner = of_planner(bundle, **question, **given)
    if "background" in question:
        question = {"background": lambda _: "elicited"}
    named = {f"{option}s": [value] for option, value in given.items()}
    ways = compared_strategies(bundle, SimulationSetting(**question), **named)
    assert ways[0] == first
    assert (planner.settings["allocation"], planner.guide) == (first[0], first[2])
    assert planner.gain == first[1] or not first[1]
    assert {way.allocation for way in ways} >= {"largest_unary", "random"}


@pytest.mark.parametrize(("bundle", "rule"), [("tiny", "priority_all"), ("many", "priority_clusters")])
def test_the_first_way_of_a_bundle_of_directions_is_the_planners(bundle_tiny, bundle, rule):
    if bundle == "many":
        bundle_tiny = bundle_of(np.eye(201, 3), np.zeros((201, 3, 3)))
    ways = compared_strategies(bundle_tiny, SimulationSetting(k=2))
    assert ways[0] == (rule, "cmi", "linearity")
    assert TopKPlanner(bundle_tiny, k=2).settings["allocation"] == rule
    assert [way.allocation for way in ways] == [rule, "greedy", "largest_unary", "random"]


@pytest.mark.usefixtures("no_figure")
def test_the_command_and_the_function_compare_the_planners_own_way_first(tmp_path):
    written(tmp_path / "fevers", FEVERS)
    table = pd.DataFrame(
        {"red": [1, 0], "blue": 0, "green": 0, "cough": [1, 0]}, index=pd.Index(["a", "b"], name="who")
    )
    table.to_csv(tmp_path / "t.csv")
    done = run(tmp_path / "fevers", tmp_path / "t.csv", "--out", tmp_path / "o", "--resamples", 20, "--seeds", 1)
    assert done.exit_code == 0, done.output
    ways = yaml.safe_load((tmp_path / "o/simulate.yaml").read_text())["ways"]
    assert [(way["allocation"], way["gain"]) for way in ways] == [
        ("information", "information"),
        ("greedy", "cmi"),
        ("largest_unary", ""),
        ("random", ""),
    ]
    needed = simulate_table(tmp_path / "fevers", table, resamples=20).features_needed
    assert list(needed["allocation"].unique()) == ["information", "greedy", "largest_unary", "random"]


@pytest.mark.usefixtures("no_figure")
def test_the_gain_information_alone_leaves_out_the_rules_that_weigh_duels(table, tmp_path):
    done = run(TINY, table, "--gain", "information", "--out", tmp_path / "o", "--resamples", 20, "--seeds", 1)
    assert done.exit_code == 0, done.output
    rows = pd.read_csv(tmp_path / "o/curves.csv", keep_default_na=False)
    assert list(dict.fromkeys(rows["allocation"])) == ["information", "largest_unary", "random", "constant"]
    assert (tmp_path / "o/explorer.html").is_file()


@pytest.mark.usefixtures("no_figure")
def test_the_only_entity_of_a_bundle_needs_no_option(tmp_path):
    one = bundle_of([[1, -1, 0, 1, 0]], np.zeros((1, 5, 5)), features=FEATURES, entities=["leak"])
    save_bundle(one, tmp_path / "one")
    ended = run(tmp_path / "one", as_csv(tmp_path), "--out", tmp_path / "o", "--resamples", 20)
    assert ended.exit_code == 0, ended.output
    assert yaml.safe_load((tmp_path / "o/simulate.yaml").read_text())["setting"]["entity"] == "leak"


def test_a_fault_ends_the_command_with_one_line_and_no_folder(tmp_path):
    path = tmp_path / "mine.csv"
    frame().replace({"MMP9": {0: 2}}).to_csv(path, index=False)
    done = afa("simulate", TINY, path, "--out", tmp_path / "o")
    assert done.returncode == 2
    assert done.stderr.startswith(f"afa: {path}, column MMP9: found '2' (line 3); expected -1, 0, 1 or nothing.")
    assert not (tmp_path / "o").exists()
