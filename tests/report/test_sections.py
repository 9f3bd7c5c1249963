"""The paper's tables in its own shape, the language model beside the planner, and titles that say what was found."""

import pandas as pd
import pytest

from afa.evaluate.summary import COLUMNS, read_summary, write_summary
from afa.paper.report.sections import findings, language_model, paper_shapes

SIGN = {"table": "sign_accuracy_random", "metric": "accuracy", "allocation": "random", "schedule": "every"}
SIGN |= {"target": "likelihood", "start": "uniform"}
MODELS = {"table": "llm_baselines", "metric": "p_at_k", "target": "likelihood", "t": 10.0, "n": 10.0}
OWN = {"schedule": "every", "start": "uniform", "gain": "cmi", "guide": "linearity", "allocation": "priority_all"}


def summary_of(folder, *rows):
    table = pd.DataFrame(rows).reindex(columns=COLUMNS)
    write_summary([table], folder / "rows.parquet")
    return read_summary(folder / "rows.parquet")


@pytest.mark.parametrize(("early", "late"), [(0.86, 0.74), (0.5, 0.91)])
def test_a_title_says_the_numbers_of_the_summary(tmp_path, early, late):
    rows = [SIGN | {"method": "linearity", "t": t, "value": early} for t in (0, 50)]
    found = findings(summary_of(tmp_path, *rows, SIGN | {"method": "wald", "t": 50, "value": late}))
    assert set(found) == {"sign_convergence"}
    assert f"has {100 * early:.0f} % of the duels right" in found["sign_convergence"]
    assert found["sign_convergence"].endswith(f"wald {100 * late:.0f} %")


def test_a_figure_without_its_numbers_has_no_title_of_its_own(tmp_path):
    assert findings(summary_of(tmp_path, SIGN | {"method": "linearity", "t": 0, "value": 0.9})) == {}


def test_a_model_stands_beside_the_planner_with_the_paired_gap(tmp_path):
    rows = (
        MODELS | OWN | {"method": "linearity", "value": 0.76},
        MODELS | {"method": "mrf_llm", "value": 0.62},
        MODELS
        | OWN
        | {"metric": "gap", "method": "mrf_llm", "reference": "linearity", "value": -0.14, "low": -0.24}
        | {"high": -0.04},
        MODELS | {"method": "mrf_llm", "value": 0.8, "t": 50.0},  # nothing of the planner there
    )
    (line,) = language_model(summary_of(tmp_path, *rows))
    numbers = {name: line.pop(name) for name in ("gap", "low", "high")}
    assert line == {
        "task": "top five",
        "target": "likelihood",
        "t": 10,
        "planner": 0.76,
        "model": 0.62,
        "cases": 10,
    }
    assert numbers == pytest.approx({"gap": -14, "low": -24, "high": -4})


def cell(row, column, paper, ours, **more):
    known = {"kind": "cell", "table": "tab_a", "low": float("nan"), "high": float("nan"), "verdict": "", "size": ""}
    return (
        known
        | {"row": row, "column": column, "paper": paper, "ours": ours, "reason": "", "note": "", "also": ""}
        | more
    )


def test_a_table_keeps_the_papers_rows_columns_and_digits():
    lines = [
        cell("b", "t=50", "0.70", 0.7412, low=0.7, high=0.78, size="within 5 points", reason="why", also="kl: 0.5"),
        cell("b", "t=10", "0.53", 0.9, size="far"),
        cell("a", "t=50", "0.6", float("nan"), verdict="not run"),
        cell("a", "t=10", "0.5", 0.5, size="within 2 points"),
        cell("c", "n", "47", 38.0),
    ]
    (table,) = paper_shapes(pd.DataFrame(lines))
    (columns, first), (others, second) = table["blocks"].items()
    assert columns == ("t=50", "t=10")
    assert list(first) == ["b", "a"]
    assert first["b"][0] == ("0.70", "0.74 ±0.04", "near")
    assert [shown.tint for shown in (first["b"][1], *first["a"])] == ["other", "", "same"]
    assert first["a"][0].ours == ""
    assert (others, list(second)) == (("n",), ["c"])
