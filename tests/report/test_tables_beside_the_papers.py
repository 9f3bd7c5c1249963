"""The paper's tables beside a run: each cell finds its line of the summary, or none."""

from pathlib import Path

import pandas as pd
import pytest

from afa.errors import ReportError
from afa.experiments.summary import summary_rows
from afa.report.binary_form import binary_form
from afa.report.paper_tables import TABLES, paper_table, select

PAPER = Path(__file__).parents[2] / "resources" / "paper"
COMMON = {"schedule": "every", "start": "uniform"}


def printed(name):
    return pd.read_csv(PAPER / f"{name}.csv")


def summary(table, *rows):
    return summary_rows(table, pd.DataFrame([COMMON | row for row in rows]))


def cell(table, row, column):
    return table[(table["row"] == row) & (table["column"] == column)].iloc[0]


WALD = {"metric": "accuracy", "method": "wald", "allocation": "random", "target": "likelihood", "value": 0.6, "n": 9}


def test_a_printed_accuracy_finds_its_line_and_the_difference():
    rows = summary("binary", WALD | {"t": 10, "low": 0.5, "high": 0.7})
    found = cell(
        paper_table("tab_classification_with_llm", printed("tab_classification_with_llm"), rows, n_features=9),
        "Likelihood / wald",
        "t=10 random",
    )
    assert (found["ours"], found["low"], found["high"], found["paper"]) == (0.6, 0.5, 0.7, 0.53)
    assert found["difference"] == pytest.approx(0.07)


def test_a_gain_is_shown_in_points_and_looks_ahead_to_the_rows_own_score():
    gap = {"metric": "gap", "method": "stack_a", "allocation": "greedy", "gain": "f_target", "reference": "random"}
    rows = summary(
        "binary",
        *(
            gap | {"target": "clinical", "t": 50, "guide": g, "value": v}
            for g, v in (("two_elbo", 0.5), ("stack_a", 0.02))
        ),
    )
    table = paper_table("tab_classification_with_llm", printed("tab_classification_with_llm"), rows, n_features=253)
    found = cell(table, "Clinical / stack-A", "t=50 f_target gain (pp)")
    assert (found["ours"], found["paper"], found["unit"]) == (2.0, 8.9, "percentage points")


def test_the_papers_last_column_is_our_full_observation_and_t_0_is_added():
    rows = summary("binary", WALD | {"t": 0, "value": 0.5}, WALD | {"t": 253, "value": 1.0})
    table = paper_table("tab_classification_with_llm", printed("tab_classification_with_llm"), rows, n_features=253)
    last, first = cell(table, "Likelihood / wald", "t=216"), cell(table, "Likelihood / wald", "t=0 random")
    assert (last["ours"], last["paper"], last["t"]) == (1.0, 1.0, 253)
    assert first["ours"] == 0.5
    assert pd.isna(first["paper"])


@pytest.mark.parametrize("name", TABLES)
def test_every_printed_cell_is_kept_whether_or_not_this_run_answers_it(name):
    empty = summary("binary", WALD | {"t": 1})
    table = paper_table(name, printed(name), empty, n_features=253)
    kept = table.dropna(subset=["paper"])
    assert list(zip(kept["row"], kept["column"], kept["paper"], strict=True)) == [
        (row, column, float(value)) for _, row, column, value in printed(name).itertuples(index=False)
    ]
    assert kept["ours"].isna().all()


def test_the_bracket_rates_of_the_binary_task_are_those_of_the_printed_bracket():
    keys = {"metric": "rate", "method": "wald", "stratum": "binary", "t": 100, "allocation": "largest_unary"}
    rows = summary(
        "bracket_rate",
        *(keys | {"reference": f"l1_{form}", "value": v} for form, v in (("paper", 0.5), ("tight", 0.9))),
    )
    table = paper_table("tab_layer1_informed", printed("tab_layer1_informed"), rows, n_features=253)
    assert cell(table, "M1 wald (L1)", "Informed (%)")["ours"] == 50.0


def test_two_lines_for_one_cell_are_an_error():
    rows = pd.concat([summary("binary", WALD | {"t": 1})] * 2)
    with pytest.raises(ReportError, match="2 lines"):
        select(rows, {"table": "binary", **COMMON, **{key: WALD[key] for key in list(WALD)[:4]}, "t": 1})


def test_an_unknown_table_is_refused():
    with pytest.raises(ReportError, match="tab_nothing"):
        paper_table("tab_nothing", printed("tab_m1acc"), summary("binary", WALD), n_features=1)


def test_the_binary_task_is_shown_as_the_paper_prints_it():
    gap = {"metric": "gap", "method": "wald", "allocation": "greedy", "reference": "random", "target": "likelihood"}
    rows = summary(
        "binary",
        WALD | {"t": 10, "value": 0.534},
        gap | {"gain": "cmi", "t": 10, "value": 0.306},
        gap | {"gain": "f_target", "guide": "two_elbo", "t": 10, "value": -0.0204},
        gap | {"gain": "f_target", "guide": "stack_a", "t": 10, "value": 0.9},
        WALD | {"t": 10, "value": 0.7, "stratum": "support"},
    )
    shown = binary_form(rows, rounds=(10, 50))
    assert shown.to_numpy().tolist() == [["likelihood", "wald", "0.53 (-2.0 / +30.6)", ""]]
    assert binary_form(rows, rounds=(10,), stratum="support")["t=10"].tolist() == ["0.70 (- / -)"]
