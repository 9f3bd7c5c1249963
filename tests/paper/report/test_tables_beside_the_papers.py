"""The paper's tables beside a run: each cell finds its line of the summary, or none."""

from pathlib import Path

import matplotlib.pyplot as plt
import numpy as np
import pandas as pd
import pytest

from afa.cohort.cohort import Cohort
from afa.errors import ReportError
from afa.evaluate.figures import draw_paper_points
from afa.evaluate.summary import summary_rows
from afa.paper.report.paper_tables import PRINTED_TABLES, TEXT_COLUMNS, SummaryLines, beside_paper, binary_form
from afa.paper.report.paper_tables import paper_table as table_of_lines

PAPER = Path(__file__).parents[3] / "resources" / "paper"
COMMON = {"schedule": "every", "start": "uniform"}


def printed(name):
    return pd.read_csv(PAPER / f"{name}.csv")


def summary(table, *rows):
    return summary_rows(table, pd.DataFrame([COMMON | row for row in rows]))


def paper_table(name, cells, rows, *, n_features):
    return table_of_lines(name, cells, SummaryLines(rows), n_features=n_features)


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


@pytest.mark.parametrize(("origin", "shown"), [("simulated", 0.53), ("table", None)])
def test_the_papers_numbers_do_not_stand_beside_a_field_of_its_own(origin, shown):
    values = np.zeros((1, 9), dtype=np.int8)
    cohort = Cohort("mine", tuple("abcdefghi"), ("p",), values, pd.DataFrame(index=["p"]), {"origin": origin})
    table = beside_paper("tab_classification_with_llm", PAPER, summary("binary", WALD | {"t": 10}), cohort)
    found = cell(table, "Likelihood / wald", "t=10 random")
    assert found["ours"] == 0.6
    assert (found["paper"] == shown) if shown else pd.isna(found["paper"])
    _, axes = plt.subplots()
    draw_paper_points(axes, table, style={"marker": "o", "color": "k"}, label="paper")
    plt.close()
    assert bool(axes.lines) == bool(shown)


@pytest.mark.parametrize("name", PRINTED_TABLES)
def test_every_printed_cell_is_kept_whether_or_not_this_run_answers_it(name):
    empty = summary("binary", WALD | {"t": 1})
    table = paper_table(name, printed(name), empty, n_features=253)
    kept = table.dropna(subset=["paper"])
    assert list(zip(kept["row"], kept["column"], kept["paper"], strict=True)) == [
        (row, column, float(value))
        for _, row, column, value in printed(name).itertuples(index=False)
        if column not in TEXT_COLUMNS
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


def test_the_rates_of_duels_are_those_of_each_rows_bracket_in_random_and_informed_order():
    keys = {"metric": "rate", "t": 100, "target": "likelihood", "n": 9}
    shown = {"l1_paper": "wald", "hanson_wright": "stack_a", "kl": "kl"}
    beside = {"l1_tight": "wald", "kl_written": "kl"}
    rates = [
        keys | {"reference": bracket, "method": method, "allocation": order, "value": (10 * i + j) / 100}
        for i, (bracket, method) in enumerate({**shown, **beside}.items())
        for j, order in enumerate(("random", "informed", "informed_pair"))
    ]
    other = keys | {"reference": "l1_paper", "method": "wald", "allocation": "informed", "value": 0.99}
    rows = summary(
        "bracket_rate",
        *rates,
        *(other | cut for cut in ({"t": 99}, {"variant": "support"}, {"metric": "gap"}, {"guide": "linearity"})),
    )
    table = paper_table("tab_layer1_informed", printed("tab_layer1_informed"), rows, n_features=253)
    of_duels = table[table["row"].str.startswith("M2")]
    assert of_duels["row"].drop_duplicates().tolist() == [
        "M2 linearity (L1)",
        "M2 wald (L1)",
        "M2 kl (KL)",
        "M2 stack-A (HW)",
    ]
    assert of_duels["ours"].tolist() == pytest.approx([0, 1, 0, 1, 20, 21, 10, 11])
    assert set(of_duels["unit"]) == {"percent"}
    assert cell(table, "M2 wald (L1)", "Informed (%)")["difference"] == pytest.approx(1 - 26)
    assert table[table["row"].str.startswith("M1")]["ours"].isna().all()


ALLOCATION = {"metric": "accuracy", "method": "linearity", "guide": "linearity", "target": "likelihood", "n": 9}


def test_the_allocation_table_is_the_papers_schedule_at_its_one_round_and_before_any_observation():
    ours = ALLOCATION | {"allocation": "priority_clusters", "gain": "cmi", "schedule": "paper"}
    rows = summary(
        "allocation_sign",
        ours | {"t": 150, "value": 0.9},
        ours | {"t": 0, "value": 0.5},
        ours | {"t": 150, "value": 0.1, "schedule": "every"},
        ours | {"t": 150, "value": 0.2, "gain": "wald_magnitude", "allocation": "priority_all"},
        ours | {"t": 150, "value": 0.3, "method": "wald"},
        ALLOCATION | {"allocation": "random", "t": 150, "value": 0.7},
    )
    table = paper_table("tab_m2_alloc", printed("tab_m2_alloc"), rows, n_features=253)
    shown, first = cell(table, "ours", "cmi"), cell(table, "ours", "cmi t=0")
    assert (shown["ours"], shown["paper"], shown["t"]) == (0.9, 0.833, 150)
    assert (first["ours"], first["t"]) == (0.5, 0)
    assert pd.isna(first["paper"])
    assert pd.isna(cell(table, "ours", "wald_magnitude")["ours"])
    assert [cell(table, "random", gain)["ours"] for gain in ("wald_magnitude", "cmi")] == [0.7, 0.7]


def test_the_top_five_are_found_by_target_gain_and_rule():
    keys = ALLOCATION | {"metric": "p_at_k", "schedule": "paper", "t": 10}
    rows = summary(
        "allocation_p_at_k",
        keys | {"allocation": "priority_clusters", "gain": "wald_magnitude", "value": 0.4},
        keys | {"allocation": "clustered", "gain": "f_target", "value": 0.5, "target": "clinical"},
        keys | {"allocation": "clustered", "gain": "f_target", "value": 1.0, "t": 253},
    )
    table = paper_table("tab_m2_phase1_pat5", printed("tab_m2_phase1_pat5"), rows, n_features=253)
    assert cell(table, "P@5 likelihood / wald_mag ours", "t=10")["ours"] == 0.4
    clinical = cell(table, "P@5 clinical / F-target clustered", "t=10")
    assert (clinical["ours"], clinical["unit"]) == (0.5, "share")
    assert clinical["difference"] == pytest.approx(0.5 - 0.416)
    assert cell(table, "P@5 likelihood / F-target clustered", "t=216")["ours"] == 1.0
    assert pd.isna(cell(table, "P@5 LLM baselines / MRF-LLM", "t=10")["ours"])


@pytest.mark.parametrize(
    ("few", "unit"), [(1, "share, not comparable: too few phenotypes have labels here (S10)"), (0, "share")]
)
def test_a_clinical_precision_over_few_labels_is_not_held_against_the_papers(few, unit):
    keys = ALLOCATION | {"metric": "p_at_k", "schedule": "paper", "t": 10, "gain": "cmi", "value": 0.5}
    mark = {"metric": "count", "guide": "linearity", "target": "clinical", "quantity": "not_comparable", "value": few}
    rows = summary(
        "allocation_p_at_k",
        mark | {"schedule": None},
        *(keys | {"allocation": "priority_clusters", "target": target} for target in ("likelihood", "clinical")),
    )
    table = paper_table("tab_m2_phase1_pat5", printed("tab_m2_phase1_pat5"), rows, n_features=253)
    found = cell(table, "P@5 clinical / cmi ours", "t=10")
    assert (found["ours"], found["unit"], pd.isna(found["difference"])) == (0.5, unit, bool(few))
    assert cell(table, "P@5 likelihood / cmi ours", "t=10")["difference"] == pytest.approx(0.02)


def layer0_rows():
    """What a run says of pathway_C4 in the cells of the paper, and beside them."""
    nats = {"metric": "nats", "schedule": None, "start": None}
    count = nats | {"metric": "count", "method": "wald"}
    gap = {"metric": "gap", "allocation": "greedy", "gain": "cmi", "method": "linearity", "guide": "linearity"}
    gap |= {"target": "likelihood", "reference": "f1_n_minus_k", "low": -0.01, "high": 0.03}
    return summary(
        "layer0_synthetic",
        nats | {"stratum": "pathway_C4", "quantity": "centroid_gap", "value": 70.0, "n": 4},
        nats | {"stratum": "pathway_C4", "quantity": "largest_radius", "value": 0.5, "n": 4},
        count | {"stratum": "pathway_C4", "reference": "f1_n_minus_k", "value": 1.0, "n": 4},
        count | {"stratum": "pathway_C4", "reference": "f1_k", "value": 3.0, "n": 4},
        gap | {"stratum": "pathway_C4", "t": 9, "value": 0.5},
        gap | {"stratum": "pathway_C4", "t": 10, "value": 0.02},
        gap | {"stratum": None, "t": 10, "value": 0.7},
    )


@pytest.mark.parametrize(
    ("column", "expected"),
    [
        ("Sep ratio", ("ratio", 140.0, None, 140.0)),
        ("Elim", ("clusters", 1.0, None, 29.0)),
        ("Lift at t=10 (pp)", ("percentage points", 2.0, -1.0, 8.8)),
    ],
)
def test_the_cells_of_a_synthetic_configuration_are_those_of_the_papers_own_variant(column, expected):
    table = paper_table("tab_layer0_synthetic", printed("tab_layer0_synthetic"), layer0_rows(), n_features=253)
    found = cell(table, "pathway_C4", column)
    low = None if pd.isna(found["low"]) else found["low"]
    assert (found["unit"], found["ours"], low, found["paper"]) == expected
    assert found["difference"] == pytest.approx(found["ours"] - found["paper"])


def test_a_ratio_without_its_second_line_has_no_answer():
    rows = layer0_rows()
    rows = rows[rows["quantity"] != "largest_radius"]
    table = paper_table("tab_layer0_synthetic", printed("tab_layer0_synthetic"), rows, n_features=253)
    assert pd.isna(cell(table, "pathway_C4", "Sep ratio")["ours"])


def test_cells_of_text_are_left_out():
    table = paper_table("tab_layer0_synthetic", printed("tab_layer0_synthetic"), layer0_rows(), n_features=253)
    assert sorted(set(table["column"])) == ["Elim", "Lift at t=10 (pp)", "Sep ratio"]
    assert len(table) == 30


def test_two_lines_for_one_cell_are_an_error():
    rows = pd.concat([summary("binary", WALD | {"t": 1})] * 2)
    with pytest.raises(ReportError, match="2 lines"):
        SummaryLines(rows)


def test_the_binary_task_is_shown_as_the_paper_prints_it():
    gap = {"metric": "gap", "method": "wald", "allocation": "greedy", "reference": "random", "target": "likelihood"}
    rows = summary(
        "binary",
        WALD | {"t": 10, "value": 0.534},
        gap | {"gain": "cmi", "t": 10, "value": 0.306},
        gap | {"gain": "f_target", "guide": "two_elbo", "t": 10, "value": -0.0204},
        gap | {"gain": "f_target", "guide": "stack_a", "t": 10, "value": 0.9},
        WALD | {"t": 10, "value": 0.7, "variant": "support"},
    )
    shown = binary_form(rows, rounds=(10, 50))
    assert shown.to_numpy().tolist() == [["likelihood", "wald", "0.53 (-2.0 / +30.6)", ""]]
    assert binary_form(rows, rounds=(10,), variant="support")["t=10"].tolist() == ["0.70 (- / -)"]
