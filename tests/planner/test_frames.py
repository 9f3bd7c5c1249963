"""Bundles, planners and simulations from tables in memory, as in a notebook: floats, gaps, what is shown."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from commands import afa as command

import afa
from afa.errors import BundleError, CohortError, PlannerError
from afa.model.bundle import Bundle, bundle_from_frame, load_bundle
from afa.planner import BinaryPlanner, TopKPlanner

TINY = Path(__file__).parents[1] / "data/bundle_tiny"


@pytest.fixture
def patients(bundle_tiny: Bundle) -> pd.DataFrame:
    values = np.random.default_rng(0).integers(-1, 2, (9, 5)).astype(float)
    return pd.DataFrame(values, columns=list(bundle_tiny.features), index=[f"p{i}" for i in range(9)])


def test_a_wide_and_a_long_table_make_the_same_bundle_as_its_folder(tmp_path: Path) -> None:
    wide = pd.DataFrame({"spots": [1.0, np.nan], "wilt": [-0.5, 2.0]}, index=["rust", "drought"])
    pairs = pd.DataFrame([("rust", "spots", "wilt", 0.5)], columns=["entity", "feature_a", "feature_b", "potential"])
    more = {"name": "leaves", "costs": {"spots": 1, "wilt": 3}, "priors": pd.Series({"rust": -1.0})}
    one = bundle_from_frame(wide, pairs, **more)
    long = pd.DataFrame(
        [("rust", "spots", 1), ("rust", "wilt", -0.5), ("drought", "wilt", 2)],
        columns=["entity", "feature", "potential"],
    )
    assert one.digest == bundle_from_frame(long, pairs, **more).digest
    assert (one.entities, one.features) == (("rust", "drought"), ("spots", "wilt"))
    assert one.unary.tolist() == [[1.0, -0.5], [0.0, 2.0]]
    assert (one.costs.tolist(), one.priors.tolist()) == ([1.0, 3.0], [-1.0, 0.0])
    afa.model.bundle.save_bundle(one, tmp_path / "leaves")
    assert load_bundle(tmp_path / "leaves").digest == one.digest


def test_a_fault_of_a_table_is_named_by_the_table_and_line_that_it_would_have_as_a_file() -> None:
    wide = pd.DataFrame({"spots": [1.0, np.inf]}, index=["rust", "drought"])
    with pytest.raises(BundleError, match=r"^bundle_from_frame, unary.csv, line 3, column potential: found 'inf'"):
        bundle_from_frame(wide)


def test_a_planner_takes_a_folder_and_says_what_else_it_takes() -> None:
    for folder in (TINY, str(TINY)):
        assert TopKPlanner(folder).bundle.features == load_bundle(TINY).features
    assert BinaryPlanner(TINY, entity="fistula").entity == "fistula"
    with pytest.raises(PlannerError, match="found DataFrame; expected a Bundle, or its folder"):
        TopKPlanner(pd.DataFrame())


def test_what_is_shown_of_a_bundle_and_a_planner_fits_a_line(bundle_tiny: Bundle) -> None:
    assert repr(bundle_tiny) == "<Bundle tiny 1: 3 entities, 5 features>"
    assert "<b>tiny 1</b>" in bundle_tiny._repr_html_()
    planner = TopKPlanner(bundle_tiny)
    assert repr(planner) == "<TopKPlanner on tiny: 0 observed>"
    planner.observe("CXCL8", 1)
    assert repr(planner).startswith("<TopKPlanner on tiny: 1 observed; ")
    hostile = bundle_from_frame(pd.DataFrame({"<b>x</b>": [1.0, 2.0]}, index=["<i>", "j"]), name="<script>")
    assert not {"<script>", "<b>x</b>", "<i>"} & set(hostile._repr_html_().split("\n"))
    assert "<script>" not in hostile._repr_html_()


def test_a_simulation_of_a_table_is_that_of_the_command(
    bundle_tiny: Bundle, patients: pd.DataFrame, tmp_path: Path
) -> None:
    made = afa.simulate(TINY, patients, rules=["greedy", "random"], costs="equal", resamples=20)
    patients.astype(int).rename_axis("patient").to_csv(tmp_path / "patients.csv")
    options = ("--k", 1, "--allocation", "greedy,random", "--costs", "equal", "--resamples", 20)
    ran = command("simulate", TINY, tmp_path / "patients.csv", "--out", tmp_path / "out", *options)
    assert ran.returncode == 0, ran.stderr
    stored = pd.read_csv(tmp_path / "out" / "features_needed.csv")
    assert made.features_needed["median"].tolist() == stored["median"].tolist()
    assert "top 1; 9 patients, 5 features" in repr(made)


def test_gaps_are_not_asked_for_and_what_has_no_value_is_left_out(bundle_tiny: Bundle, patients: pd.DataFrame) -> None:
    patients["MUC2"] = np.nan
    patients.loc["p3", "TFF3"] = np.nan
    patients.loc["p4"] = np.nan
    patients["age"] = 40
    labels = pd.DataFrame({"fistula": [1.0] * 4 + [0.0] * 5}, index=patients.index)
    made = afa.simulate(bundle_tiny, patients, labels, rules=["greedy"], resamples=10)
    assert made.left_out == ("p4",)
    assert len(made.patients) == 8
    assert made.gaps == 1 / 32
    assert made.curves.query("counted == 'features'")["t"].max() == 4
    assert "3.1 % of values not measured, 1 left out with none" in repr(made)


@pytest.mark.parametrize(
    ("change", "words"),
    [
        (
            lambda table: table.assign(MUC2=0.5),
            "column MUC2: found '0.5' (patients p0, p1, p2, p3, p4, p5, p6, p7, p8); expected -1, 0, 1 or nothing",
        ),
        (lambda table: table.assign(MUC2="high"), "column MUC2: found 'high'"),
        (lambda table: table.add_prefix("x_"), "found none of AQP8, CXCL8, MMP9, MUC2, TFF3 among the columns x_AQP8"),
    ],
)
def test_a_table_that_cannot_be_simulated_is_refused_in_one_line(
    bundle_tiny: Bundle, patients: pd.DataFrame, change: object, words: str
) -> None:
    with pytest.raises(CohortError) as error:
        afa.simulate(bundle_tiny, change(patients))
    assert words in str(error.value)
    assert "Next step: " in str(error.value)


def test_figures_show_the_posterior_its_course_and_the_curves(bundle_tiny: Bundle, patients: pd.DataFrame) -> None:
    planner = TopKPlanner(bundle_tiny)
    planner.observe_all(patients.iloc[0])
    bars = afa.plot.posterior(planner).axes[0].patches
    assert sum(bar.get_width() for bar in bars) == pytest.approx(1)
    lines = afa.plot.order(planner).axes[0].lines
    assert {len(line.get_ydata()) for line in lines} == {6}
    assert planner.observed == patients.iloc[0].astype(int).to_dict()
    shown = replace(bundle_tiny, display_names={"bleeding": "Visible bleeding", "MUC2": "Mucin 2"})
    planner = TopKPlanner(shown)
    planner.observe("MUC2", -1)
    names = [label.get_text() for label in afa.plot.posterior(planner).axes[0].get_yticklabels()]
    assert "Visible bleeding" in names
    axes = afa.plot.order(planner).axes[0]
    assert [label.get_text() for label in axes.get_xticklabels()] == ["start", "Mucin 2 = -1"]
    assert "Visible bleeding" in [line.get_label() for line in axes.lines]
    made = afa.simulate(bundle_tiny, patients, rules=["greedy"], resamples=10)
    assert len(made.plot().axes) >= 4


@pytest.mark.parametrize(("gain", "rule"), [("information", "information"), ("cmi", "greedy")])
def test_equal_costs_are_equal_for_the_question_of_one_entity(
    bundle_tiny: Bundle, patients: pd.DataFrame, gain: str, rule: str
) -> None:
    dear = replace(bundle_tiny, costs=np.array([1.0, 1000.0, 10.0, 1000.0, 100.0]))
    asked = {"entity": "fistula", "rules": [rule], "gain": gain, "resamples": 10}
    free = afa.simulate(replace(bundle_tiny, costs=None), patients, **asked).curves
    equal = afa.simulate(dear, patients, costs="equal", **asked).curves
    own = afa.simulate(dear, patients, **asked).curves.query("counted == 'features'")
    pd.testing.assert_frame_equal(equal, free)
    assert own["value"].tolist() != free["value"].tolist()
