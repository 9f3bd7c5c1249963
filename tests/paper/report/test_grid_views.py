"""The allocation grid as figures and tables show it, down to a verdict in words."""

from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from matplotlib.colors import to_rgba
from notebook_cells import run_cells

from afa.cohort.cohort import Cohort, write_cohort
from afa.evaluate.figures import (
    OWN_STYLE,
    RULE_STYLE,
    draw_rules,
    fit,
    new_figure,
    rule_name,
    rule_style,
    shared_legend,
)
from afa.evaluate.summary import summary_rows, write_summary
from afa.model.rule_names import IN_THE_GRID
from afa.paper.experiments import chaos
from afa.paper.experiments.allocation import run, summarise
from afa.paper.experiments.settings import Allocation, Bootstrap, Chaos, Inference
from afa.paper.report.tables import (
    CLAIMS,
    by_cell,
    by_round,
    gains_of,
    priority_claims,
    rules_under,
    schedules_of,
    verdict,
    with_interval_text,
)

ROOT = Path(__file__).parents[3]
PRINTED = pd.read_csv(ROOT / "resources" / "paper" / "tab_m2_alloc.csv")
GAP = {
    "metric": "gap",
    "method": "linearity",
    "guide": "linearity",
    "target": "likelihood",
    "start": "uniform",
    "t": 150,
}


def summary(*rows):
    """Lines of `allocation_sign`."""
    return summary_rows("allocation_sign", pd.DataFrame(rows))


def accuracy(allocation, gain, schedule, **more):
    """A line at t = 0 unless told otherwise."""
    keys = {"allocation": allocation, "gain": gain, "schedule": schedule}
    return {"metric": "accuracy", "method": "linearity", "t": 0, "value": 0.5, "low": 0.4, "high": 0.6} | keys | more


GRID = (
    accuracy("random", None, "every"),
    accuracy("largest_unary", None, "every"),
    accuracy("largest_unary", None, "paper"),
    accuracy("greedy", "f_target", "every"),
    accuracy("greedy", "f_target", "paper"),
    accuracy("greedy", "cmi", "every"),
    accuracy(None, None, None, metric="majority", t=None),
)


def test_every_rule_of_the_default_grid_has_a_style_and_no_two_rules_share_colour_and_line():
    assert list(RULE_STYLE) == list(IN_THE_GRID)
    styles = [*RULE_STYLE.values(), OWN_STYLE]
    assert len({(to_rgba(style["color"]), str(style["linestyle"])) for style in styles}) == len(styles)
    assert len({style["marker"] for style in styles}) == len(styles)
    assert rule_style("my_rules:Cheapest") is OWN_STYLE


def test_the_papers_rule_is_marked_and_a_rule_of_ones_own_is_named_by_its_class():
    assert [rule_name(rule) for rule in ("greedy", "priority_clusters", "my.rules:Cheapest")] == [
        "greedy",
        "priority, clusters (paper: ours)",
        "Cheapest",
    ]


def test_gains_and_schedules_stand_in_the_order_of_the_rows():
    rows = summary(*GRID)
    assert gains_of(rows) == ["f_target", "cmi"]
    assert schedules_of(rows) == ["every", "paper"]


def test_a_random_order_alone_has_no_gain_and_its_own_schedule():
    rows = summary(GRID[0], GRID[-1])
    assert (gains_of(rows), schedules_of(rows)) == ([""], ["every"])


def test_a_random_order_does_not_add_a_schedule():
    assert schedules_of(summary(GRID[0], GRID[2])) == ["paper"]


def test_under_a_gain_stand_its_rules_and_those_without_one_and_random_under_each_schedule():
    rows = summary(*GRID)
    under = {key: rules_under(rows, *key) for key in (("cmi", "every"), ("cmi", "paper"), ("f_target", "paper"))}
    assert {key: list(parts) for key, parts in under.items()} == {
        ("cmi", "every"): ["random", "largest_unary", "greedy"],
        ("cmi", "paper"): ["random", "largest_unary"],
        ("f_target", "paper"): ["random", "largest_unary", "greedy"],
    }
    assert under["f_target", "paper"]["greedy"][["gain", "schedule"]].to_numpy().tolist() == [["f_target", "paper"]]


def test_lines_start_at_t_0_and_only_the_named_rules_have_a_band():
    _, (axes,) = new_figure(4, 3)
    rows = summary(*(accuracy("greedy", "cmi", "every", t=t, value=t / 10) for t in (3, 0, 1)), GRID[0])
    draw_rules(axes, rules_under(rows, "cmi", "every"))
    lines = {line.get_label(): line.get_xydata().tolist() for line in axes.get_lines()}
    assert lines["greedy"] == [[0, 0], [1, 0.1], [3, 0.3]]
    assert len(axes.collections) == 1
    assert axes.get_xlim()[0] == 0


def test_a_legend_has_each_label_of_all_axes_once_in_their_order():
    figure, (left, right) = new_figure(6, 3, columns=2)
    for axes, labels in ((left, ("a", "b")), (right, ("b", "c"))):
        for label in labels:
            axes.plot([0], [0], label=label)
    shared_legend(figure, columns=3)
    assert [text.get_text() for text in figure.legends[0].get_texts()] == ["a", "b", "c"]


def test_the_limits_hold_all_numbers_and_are_never_empty():
    _, (axes,) = new_figure(4, 3)
    fit(axes, pd.Series([0.2, np.nan]), pd.Series([0.4]), pd.Series([np.nan]))
    assert axes.get_ylim() == pytest.approx((0.19, 0.41))
    fit(axes, pd.Series([1.0, 1.0]))
    assert axes.get_ylim() == pytest.approx((0.99, 1.01))


def test_where_no_case_has_a_value_the_panel_says_so_and_is_drawn():
    figure, (axes,) = new_figure(4, 3)
    draw_rules(axes, {"greedy": pd.DataFrame({"t": [0, 1], **dict.fromkeys(("value", "low", "high"), np.nan)})})
    fit(axes, pd.Series([np.nan]))
    figure.canvas.draw()
    assert [text.get_text() for text in axes.texts] == ["no such case"]


def test_a_table_by_round_keeps_the_order_of_the_cells_and_the_rounds_that_are_there():
    rows = summary(
        accuracy("random", None, "every", value=0.1),
        accuracy("random", None, "every", t=10, value=0.2),
        accuracy("greedy", "cmi", "every", value=0.3),
        accuracy("greedy", "cmi", "every", t=10, value=0.4),
        accuracy("clustered", "cmi", "every", t=10, value=0.6),
    )
    table = by_round(rows, [10, 50])
    assert list(table.columns) == ["t=10"]
    assert list(table.index) == [("", "random", "every"), ("cmi", "greedy", "every"), ("cmi", "clustered", "every")]
    assert table["t=10"].tolist() == [0.2, 0.4, 0.6]


def test_a_table_by_another_column_shows_the_text_where_there_is_one():
    rows = summary(
        accuracy("random", None, "every", quantity="q75", value=7.0, low=5.0, high=8.0),
        accuracy("random", None, "every", quantity="q25", value=2.0, low=1.0, high=3.0),
    )
    table = by_cell(with_interval_text(rows), "quantity", index=["allocation"])
    assert table.to_dict("index") == {"random": {"q75": "7 [5, 8]", "q25": "2 [1, 3]"}}


@pytest.mark.parametrize(
    ("numbers", "form", "text"),
    [
        ((0.0253, 0.0218, 0.029), {"scale": 100, "digits": 1, "signed": True}, "+2.5 [+2.2, +2.9]"),
        ((-0.0002, -0.0031, 0.0), {"scale": 100, "digits": 1, "signed": True}, "0.0 [-0.3, 0.0]"),
        ((0.5, np.nan, np.nan), {"digits": 2}, "0.50"),
        ((240.0, 231.0, np.nan), {}, "240 [231, -]"),
        ((np.nan, 250.0, np.nan), {}, "- [250, -]"),
        ((np.nan, np.nan, np.nan), {}, "-"),
    ],
)
def test_an_interval_is_written_with_its_sign_and_a_dash_for_what_is_missing(numbers, form, text):
    rows = pd.DataFrame([numbers], columns=["value", "low", "high"])
    assert with_interval_text(rows, **form)["shown"].tolist() == [text]


@pytest.mark.parametrize(
    ("low", "high", "said"),
    [
        (0.001, 0.2, "holds"),
        (-0.2, -0.001, "does not hold"),
        (-0.1, 0.1, "not clear"),
        (0.0, 0.1, "not clear"),
        (-0.1, 0.0, "not clear"),
        (np.nan, np.nan, "no interval"),
    ],
)
def test_a_claim_holds_only_where_the_whole_interval_is_above_0(low, high, said):
    assert verdict(low, high) == said


def test_the_papers_claim_is_judged_by_our_interval_beside_its_own_difference():
    ours = {**GAP, "allocation": "priority_clusters", "gain": "cmi", "schedule": "paper", "reference": "greedy"}
    greedy = {**GAP, "allocation": "greedy", "gain": "cmi", "schedule": "every", "reference": "random"}
    rows = summary(
        ours | {"value": -0.01, "low": -0.03, "high": 0.02},
        ours | {"value": 0.5, "low": 0.4, "high": 0.6, "method": "wald"},
        ours | {"value": 0.5, "low": 0.4, "high": 0.6, "t": 100},
        greedy | {"value": 0.02, "low": 0.01, "high": 0.03},
    )
    claims = priority_claims(rows, PRINTED).set_index("claim")
    assert list(claims.index) == ["priority_clusters above greedy", "greedy above random"]
    first, second = claims.loc["priority_clusters above greedy"], claims.loc["greedy above random"]
    assert first[["ours", "low", "high", "paper"]].tolist() == pytest.approx([-1.0, -3.0, 2.0, 4.6])
    assert (first["schedule"], first["gain"], first["verdict"]) == ("paper", "cmi", "not clear")
    assert (second["schedule"], second["verdict"]) == ("every", "holds")
    assert pd.isna(second["paper"])


def test_what_the_grid_does_not_hold_is_not_judged():
    claims = priority_claims(summary(GRID[0]), PRINTED)
    assert claims.empty
    assert "verdict" in claims
    assert all(rule in RULE_STYLE for claim in CLAIMS for rule in claim)


@pytest.fixture(scope="module")
def small_run(bundle_tiny, tmp_path_factory):
    """A run of six patients without labels, on five features: no clinical target, and no round 10."""
    folder = tmp_path_factory.mktemp("run")
    values = np.random.default_rng(5).integers(-1, 2, (6, len(bundle_tiny.features))).astype(np.int8)
    names = tuple(f"p{i}" for i in range(6))
    cohort = Cohort("tiny", bundle_tiny.features, names, values, pd.DataFrame(index=list(names)))
    write_cohort(cohort, folder / "cohort")
    rules = ("random", "largest_unary", "greedy", "priority_clusters", "afa.planner.rules:Boundary")
    grid, asked = Allocation(rules=rules, gains=("cmi",), seeds=(0, 1)), {"top_k": 2, "inference": Inference()}
    tables = run(bundle_tiny, cohort, range(6), allocation=grid, **asked)
    (folder / "curves").mkdir()
    (folder / "config.json").write_text('{"bootstrap": {"confidence": 0.9}}')
    tables |= chaos.run(bundle_tiny, cohort, range(6), chaos=Chaos(), inference=Inference()) | {
        "rounds": tables["rounds"],
        "duels": tables["duels"],
    }
    rows = summarise(tables, tables, bootstrap=Bootstrap(resamples=100, confidence=0.9))
    write_summary([rows], folder / "curves" / "allocation.parquet")
    return folder


@pytest.mark.parametrize("name", ["allocation", "decision_quality", "acquisition"])
def test_a_notebook_runs_without_labels_on_few_features_and_with_a_rule_of_ones_own(small_run, tmp_path, name):
    paper = str(ROOT / "resources" / "paper")
    ran = run_cells(name, run=str(small_run), paper=paper, figure=str(tmp_path / name))
    assert (tmp_path / f"{name}.svg").stat().st_size > 10_000
    if name == "decision_quality":
        assert "No clinical target" in ran.text
