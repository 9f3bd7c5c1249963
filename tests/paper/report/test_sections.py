"""The paper's tables in its own shape, the language model beside the planner, and titles that say what was found."""

from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from bundles import bundle_of

from afa.evaluate.summary import COLUMNS, read_summary, write_summary
from afa.paper.report.sections import (
    choosing,
    complexity,
    f_target_said,
    findings,
    language_model,
    not_run,
    paper_shapes,
    rounds_said,
    settings_beside,
)

PAPER = Path(__file__).parents[3] / "resources" / "paper"
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
        {"table": "allocation_p_at_k", "metric": "p_at_k", "method": "fixed_top_k", "guide": "linearity"}
        | {"start": "uniform", "target": "likelihood", "value": 0.97, "n": 206},
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
        "constant": 0.97,
        "cases": 10,
    }
    assert numbers == pytest.approx({"gap": -14, "low": -24, "high": -4})


@pytest.mark.parametrize(
    ("gaps", "said"),
    [
        (
            [(0.04, 0.2), (-0.02, 0.18)],
            "ahead of the planner after 5 features and not distinguishable from the planner after 10 features",
        ),
        ([(-0.3, -0.1), (-0.2, -0.1)], "behind the planner after 5 and 10 features"),
    ],
)
def test_a_model_that_chooses_is_ahead_level_or_behind_by_the_interval_of_the_gap(tmp_path, gaps, said):
    choice = MODELS | {"table": "llm_choosing"}
    rows = []
    for t, (low, high), model in zip((5.0, 10.0), gaps, (0.9, 0.84), strict=True):
        gap = {"metric": "gap", "method": "mrf_llm", "reference": "linearity", "value": (low + high) / 2}
        same = {"stratum": "top_k", "variant": "same_order", "start": "uniform", "reference": "mrf_llm"}
        rows += [
            choice | {"t": t, "method": "mrf_llm", "value": model},
            choice | OWN | {"t": t, "method": "linearity", "value": 0.5},
            choice | same | {"t": t, "method": "linearity", "value": 0.6},
            choice | {"t": t, "method": "fixed_top_k", "value": 0.98},
            choice | OWN | gap | {"t": t, "low": low, "high": high},
        ]
    lead, rest = choosing(summary_of(tmp_path, *rows))
    assert said in lead
    assert "for the same 10 patients after 5 and 10 features: the model 90 and 84 %" in rest[0]
    assert (
        "the planner with its own features 50 and 50 %, and the planner with the model's features 60 and 60 %"
        in rest[0]
    )
    assert rest[1].endswith("has 98 %.")
    assert choosing(summary_of(tmp_path, *rows[:-1])) is None


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
        cell("b", "t=10", "0.53", 0.9, size="another size"),
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
    assert first["a"][0] == ("0.6", "not run", "")
    assert (others, list(second)) == (("n",), ["c"])


def test_the_papers_settings_stand_beside_the_runs_and_none_is_blank():
    printed = pd.read_csv(PAPER / "hyperparams.csv", dtype=str)
    config = {"inference": {"damping": 0.5, "tolerance": 1e-3, "max_iterations": 200}}
    found = {row["symbol"]: (row["paper"], row["ours"]) for row in settings_beside(printed, config, 25, 253)}
    assert found["eta"] == ("0.5", "0.5")
    assert found["epsilon"] == ("0.0001", "0.001")
    assert found["gamma"] == ("0.05", "0.05")
    assert found["K"] == ("ceil(sqrt(N))", "ceil(sqrt(25)) = 5")
    assert (found["T_re"], found["C_min"]) == (("50", "50"), ("5", "5"))
    assert list(found) == list(dict.fromkeys(printed["row"]))
    assert all(all(pair) for pair in found.values())


@pytest.mark.parametrize(("solves", "said"), [(40, "2.0 on average"), (100, "5.0 on average")])
def test_the_costs_of_a_round_are_counts_of_the_run(tmp_path, solves, said):
    # v has both features, coupled, and w one: 2 rounds of 10 random orders
    couplings = np.zeros((2, 2, 2))
    couplings[0, 0, 1] = couplings[0, 1, 0] = 1.0
    bundle = bundle_of(np.array([[1.0, -1.0], [0.0, 1.0]]), couplings)
    keys = {"table": "sign_accuracy_random", "metric": "iterations", "allocation": "random", "schedule": "every"}
    rows = [
        keys | {"start": start, "value": value, "n": solves} for start, value in (("uniform", 14.0), ("warm", 2.86))
    ]
    found = {row["paper"]: row["counted"] for row in complexity(summary_of(tmp_path, *rows), bundle, 10)}
    assert found["O(deg)"] == "0.7 on average, at most 1, of 1 other features"
    assert found["O(N)"] == f"{said}: entities that have the feature, of 2; 1 duels"
    assert found["fewer by a warm start"] == "2.9 from the previous round, 14.0 from uniform marginals"
    assert [row["paper"] for row in complexity(summary_of(tmp_path, rows[0] | {"metric": "rate"}), bundle, 10)] == [
        "O(deg)"
    ]


def test_a_round_of_the_paper_is_another_share_of_other_features():
    assert "69 % of its 216 features are observed, and 59 % of the 253 here" in rounds_said(253)
    assert "no round t = 150" in rounds_said(12)


def test_the_costly_gain_is_announced_with_its_cost_only_where_it_was_run(tmp_path):
    keys = {"table": "allocation_sign", "metric": "accuracy", "method": "linearity", "guide": "linearity"}
    keys |= {"allocation": "greedy", "schedule": "paper", "target": "likelihood", "start": "uniform", "t": 150}
    rows = [keys | {"gain": "f_target", "value": 0.957}, keys | {"gain": "cmi", "value": 0.95}]
    lines = [("allocation_shard", "f_target/1-of-2", 100.0), ("allocation_shard", "f_target/2-of-2", 50.0)]
    lines += [("allocation_shard", "cmi/1-of-2", 20.0), ("chaos_shard", "1-of-2", 9.0)]
    jobs = pd.DataFrame(lines, columns=["rule", "job", "seconds"])
    said = f_target_said(summary_of(tmp_path, *rows), jobs, 206)
    assert "on all 206" in said
    assert said.endswith("with that gain: f_target 95.7 % in 150 s, cmi 95.0 % in 20 s.")
    assert f_target_said(summary_of(tmp_path, rows[1]), jobs, 206) == ""


def test_what_the_run_lacks_is_named():
    lines = [cell("a", "t=10", "0.5", float("nan"), verdict="not run"), cell("a", "t=50", "0.5", 0.5)]
    lines.append(cell("", "", "", float("nan"), verdict="not run", kind="comparison", id="c009"))
    found = not_run(pd.DataFrame(lines), "demo")
    assert "GSE193677" in found[0]
    assert found[1:] == ["tab_a, row a: 1 numbers.", "1 claims of the text: c009."]
    assert "GSE193677" not in " ".join(not_run(pd.DataFrame(lines), "gse193677"))
