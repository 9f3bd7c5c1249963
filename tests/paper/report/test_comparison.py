"""The comparison as a whole: every cell and claim has a line, and each verdict comes from the run's own numbers."""

from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from typer.testing import CliRunner

from afa.cli import app
from afa.cohort.cohort import Cohort, write_cohort
from afa.evaluate.summary import summary_rows, write_summary
from afa.io.yamlfile import load_model
from afa.paper.report.comparison import CELL, COLUMNS, Reader, compare, count_verdicts, load_printed, write_comparison
from afa.paper.report.paper_tables import PRINTED_TABLES, TEXT_COLUMNS, SummaryLines
from afa.paper.report.verdicts import (
    DIRECTION_VERDICTS,
    HOLDS,
    IDENTITY,
    NONE_HERE,
    NOT_COMPARABLE,
    NOT_RUN,
    NOTHING_TO_REPRODUCE,
    OTHER_SIZE,
    REVERSES,
    SIMULATED,
    SIZE_VERDICTS,
    UNCLEAR,
    UNJUDGED,
    WITHIN_2_POINTS,
    WITHIN_5_POINTS,
    WITHIN_FACTOR_1_25,
    ClaimAnswers,
)

PAPER = Path(__file__).parents[3] / "resources" / "paper"
PRINTED, ANSWERS = load_printed(PAPER), load_model(PAPER / "answers.yaml", ClaimAnswers)
FACTS = ("small", False, {"patients": 12, "features": 253, "labelled": 3, "zeros": 0.4})
COMMON = {"schedule": "every", "start": "uniform", "allocation": "random", "target": "likelihood", "n": 9}


def rows(table, *lines):
    return summary_rows(table, pd.DataFrame([COMMON | line for line in lines]))


def sign(method, t, value, **other):
    line = {"metric": "accuracy", "method": method, "t": t, "value": value, "low": value, "high": value}
    return line | other


def chaos(t, value, low, high, **other):
    line = {"metric": "gap", "reference": "linearity_minus_wald", "t": t}
    return line | {"value": value, "low": low, "high": high} | other


def closure(t, value, **other):
    keys = {"metric": "rate", "method": "two_elbo", "reference": "maxent_vs_true", "target": None}
    return keys | {"t": t, "value": value, "low": value, "high": value} | other


def clinical(t, value):
    return {"metric": "accuracy", "method": "wald", "target": "clinical", "t": t, "value": value}


def compared(*parts, facts=FACTS, answers=ANSWERS):
    return compare(Reader(SummaryLines(pd.concat(parts, ignore_index=True)), answers, *facts), PRINTED)


SMALL = (
    rows(
        "sign_accuracy_random",
        sign("linearity", 10, 0.70, low=0.68, high=0.72),
        sign("wald", 10, 0.40, low=0.38, high=0.42),
        sign("wald", 253, 1.0),
        sign("kl", 253, 0.5),
        sign("kl_nonzero", 253, 0.93),
    ),
    rows(
        "chaos_gap",
        chaos(2, 0.05, 0.01, 0.09),
        chaos(5, 0.104, 0.08, 0.12),
        chaos(10, 0.02, -0.01, 0.05),
        chaos(50, 0.03, 0.02, 0.04),
        {"metric": "count", "stratum": "chaotic", "value": 3},
    ),
    rows("gauge_agreement", closure(150, 0.97), closure(253, 1.0)),
    rows("binary", clinical(253, 0.65), clinical(50, 0.73)),
)


@pytest.fixture(scope="module")
def small():
    return compared(*SMALL)


def cell(table, name, row, column):
    found = table[(table["kind"] == CELL) & (table["table"] == name)]
    return found[(found["row"] == row) & (found["column"] == column)].iloc[0]


def claim(table, name):
    return table[table["id"] == name].iloc[0]


def test_every_printed_number_and_every_claim_has_one_line(small):
    cells = small[small["kind"] == CELL]
    printed = [
        (name, row, column, value)
        for name in PRINTED_TABLES
        for row, column, value in PRINTED[name][["row", "column", "value"]].itertuples(index=False)
        if column not in TEXT_COLUMNS
    ]
    assert sorted(cells[["table", "row", "column", "paper"]].itertuples(index=False, name=None)) == sorted(printed)
    assert small.loc[small["kind"] != CELL, "id"].tolist() == PRINTED["claims"]["id"].tolist()
    assert set(small["verdict"]) <= {"", *DIRECTION_VERDICTS, *UNJUDGED}
    assert set(small["size"]) <= {"", *SIZE_VERDICTS}
    assert ((small["verdict"] != "") | (small["size"] != "")).all()
    assert (small.loc[small["verdict"] != NOTHING_TO_REPRODUCE, "reason"] != "").all()
    assert list(small.columns) == COLUMNS


def test_a_share_has_a_size_and_no_direction(small):
    near, far = (cell(small, "tab_m2_random_sign", method, "t=10") for method in ("linearity", "wald"))
    assert (near["verdict"], near["size"], near["difference"]) == ("", WITHIN_5_POINTS, pytest.approx(0.034))
    assert (far["verdict"], far["size"], far["paper_n"]) == ("", OTHER_SIZE, 167)


def test_kl_is_judged_without_its_zero_votes_and_shows_both_readings(small):
    found = cell(small, "tab_m2_random_sign", "kl", "t=216")
    assert (found["ours"], found["size"], found["also"]) == (0.93, WITHIN_2_POINTS, "zero votes counted: 0.5")


def test_a_gap_is_judged_by_its_interval_and_its_ratio(small):
    """At twelve patients of ours and 167 of the paper's, its error is about a quarter of ours."""
    found = [cell(small, "tab_chaos", f"t={t}", "All patients (pp)") for t in (2, 5, 10, 50)]
    assert [(line["verdict"], line["size"]) for line in found] == [
        (HOLDS, OTHER_SIZE),
        (HOLDS, WITHIN_FACTOR_1_25),
        (NONE_HERE, ""),
        (REVERSES, ""),
    ]
    assert found[1]["ours"] == pytest.approx(10.4)


def test_a_claim_and_the_cell_it_repeats_have_one_verdict_and_one_number(small):
    for name, place in (("c107", "t=2"), ("c108", "t=50")):
        text, printed = claim(small, name), cell(small, "tab_chaos", place, "All patients (pp)")
        assert (text["verdict"], text["ours"], text["paper"]) == (printed["verdict"], printed["ours"], printed["paper"])


def test_a_claim_in_percent_is_read_from_a_cell_that_is_a_share(small):
    found = claim(small, "c220")
    assert (found["unit"], found["ours"], found["paper"], found["paper_n"]) == ("percent", 97.0, "91", 167)
    assert (found["verdict"], found["size"]) == ("", OTHER_SIZE)  # at most 91, and 97


def test_a_statement_needs_every_part_of_it(small):
    """c106: linearity is ahead at t = 2, 5 and 10. Ours is not apart from 0 at t = 10."""
    found = claim(small, "c106")
    assert (found["verdict"], found["unit"], found["ours"]) == (UNCLEAR, "percentage points", 5.0)
    assert found["reason"] == "chaos t=10 > 0: 2 [-1, 5] against 0"
    clear = rows("chaos_gap", *(chaos(t, 0.05, 0.01, 0.09) for t in (2, 5, 10)))
    assert claim(compared(clear), "c106")["verdict"] == HOLDS


def test_a_statement_that_could_not_come_out_otherwise_is_an_identity(small):
    found = claim(small, "c021")
    assert (found["verdict"], found["by_definition"]) == (IDENTITY, True)
    assert claim(small, "c188")["verdict"] == REVERSES  # kl is at 0.5


def test_clinical_numbers_stand_beside_and_are_not_judged(small):
    found = cell(small, "tab_classification_with_llm", "Clinical / wald", "t=216")
    assert (found["verdict"], found["ours"], found["paper"]) == (NOT_COMPARABLE, 0.65, "0.65")
    assert np.isnan(found["difference"])
    assert "private" in found["reason"]
    assert claim(small, "c082")["ours"] == 0.65


def test_the_share_of_the_others_is_one_less(small):
    assert claim(small, "c083")["ours"] == pytest.approx(35)


def test_a_fact_of_the_cohort_stands_beside_the_papers(small):
    found = claim(small, "c044")
    assert (found["ours"], found["paper"], found["verdict"]) == (12, "167", NOT_COMPARABLE)


def test_what_no_stage_answers_is_not_run_and_says_what_lacks(small):
    assert cell(small, "tab_m2_alloc", "ours", "cmi")["verdict"] == NOT_RUN
    assert claim(small, "c049")["reason"].startswith("no number for agreement")
    assert (claim(small, "c285")["verdict"], claim(small, "c285")["reason"]) == (
        NOT_RUN,
        "no table layer0_bundle in this run",
    )


def test_language_models_are_not_run_and_say_why(small):
    printed, said = cell(small, "tab_classification_with_llm", "LLM / MRF-LLM", "t=10"), claim(small, "c073")
    assert (printed["verdict"], said["verdict"]) == (NOT_RUN, NOT_RUN)
    assert said["reason"] == "no table llm_baselines in this run"
    assert "A run without answers of a language model" in printed["note"]


def test_a_claim_about_other_work_asks_for_nothing(small):
    assert claim(small, "c014")["verdict"] == NOTHING_TO_REPRODUCE


def test_on_a_simulated_cohort_every_number_has_that_verdict(small):
    facts = ("drawn", True, FACTS[-1])
    found = compared(*SMALL, facts=facts)
    has_number = small["ours"].notna()
    assert set(found.loc[has_number & (small["verdict"] != NOT_RUN), "verdict"]) == {SIMULATED}
    pd.testing.assert_series_equal(found.loc[~has_number, "verdict"], small.loc[~has_number, "verdict"])
    assert not set(found["verdict"]) & set(DIRECTION_VERDICTS)
    assert set(found["size"]) == {""}


def test_counts_are_of_every_line_by_table_and_kind_of_claim(small):
    counts = count_verdicts(small).set_index("source")
    assert list(counts.index) == [*PRINTED_TABLES, "claims: comparisons", "claims: numbers"]
    assert counts[[*DIRECTION_VERDICTS, *UNJUDGED]].sum(axis=None) == (small["verdict"] != "").sum()
    assert counts[list(SIZE_VERDICTS)].sum(axis=None) == (small["size"] != "").sum()
    assert len(small) == 266 + 332
    assert counts.loc["tab_m2_random_sign", [WITHIN_2_POINTS, WITHIN_5_POINTS, OTHER_SIZE, IDENTITY]].tolist() == [
        1,
        1,
        1,
        1,
    ]


def test_facts_are_counted_in_the_cohort():
    values = np.array([[0, 1, -1], [0, 0, 1]], dtype=np.int8)
    labels = pd.DataFrame({"anemia": pd.array([1, None], dtype="Int8")}, index=["p", "q"])
    cohort = Cohort("tiny", ("a", "b", "c"), ("p", "q"), values, labels, {"origin": "simulated"})
    found = Reader.of(SMALL[0], ANSWERS, cohort)
    assert (found.cohort, found.simulated) == ("tiny", True)
    assert found.facts == {"patients": 2, "features": 3, "labelled": 1, "zeros": 0.5}


def test_the_tables_are_written_as_csv_and_parquet_and_the_same_each_time(small, tmp_path):
    for name in ("first", "second"):
        write_comparison(small, tmp_path / name, small.head(0), small.head(0))
    names = {"comparison.csv", "comparison.parquet", "verdicts.parquet", "screen.parquet", "voters.parquet"}
    assert {path.name for path in (tmp_path / "first").iterdir()} == names
    assert all((tmp_path / "first" / n).read_bytes() == (tmp_path / "second" / n).read_bytes() for n in names)
    pd.testing.assert_frame_equal(pd.read_parquet(tmp_path / "first" / "comparison.parquet"), small)


def test_where_every_target_is_alike_a_language_model_that_is_right_is_not_judged():
    keys = {"method": "mrf_llm", "t": 10, "allocation": None, "schedule": None, "start": None}
    right = keys | {"metric": "accuracy", "value": 1.0, "low": 1.0, "high": 1.0}
    for majority, verdict in ((1.0, NOT_COMPARABLE), (0.9, "")):
        constant = keys | {"metric": "majority", "method": None, "t": None, "value": majority}
        found = cell(
            compared(rows("llm_baselines", right, constant)), "tab_classification_with_llm", "LLM / MRF-LLM", "t=10"
        )
        assert found["verdict"] == verdict
    assert claim(compared(rows("llm_baselines", right, constant | {"value": 1.0})), "c076")["verdict"] == NOT_COMPARABLE


def test_a_contrast_of_two_groups_is_judged_against_the_contrast_that_is_printed():
    """c112: 34.1 less 5.4 points are printed at t = 2."""
    for value, size in ((0.032, OTHER_SIZE), (0.25, WITHIN_FACTOR_1_25)):
        between = chaos(2, value, value - 0.01, value + 0.01, stratum="chaotic_minus_non_chaotic")
        later = chaos(10, 0.02, 0.01, 0.03, stratum="chaotic_minus_non_chaotic")
        found = claim(compared(rows("chaos_gap", between, later)), "c112")
        assert (found["paper"], found["unit"], found["verdict"], found["size"]) == (
            "28.7",
            "percentage points",
            HOLDS,
            size,
        )
        assert found["also"] == "at t = 10: 2 [1, 3]"


def test_the_hardest_patients_need_a_lead_over_every_method():
    """c004: ahead of LUCB at t = 50, behind it at t = 150."""
    keys = {"metric": "gap", "method": "linearity", "guide": "linearity", "gain": "wald_magnitude", "schedule": "paper"}
    keys |= {"allocation": "priority_clusters", "stratum": "chaotic"}

    def leads(at_end):
        return rows(
            "allocation_sign",
            *(
                keys | {"reference": rule, "t": t, "value": value, "low": value - 0.001, "high": value + 0.001}
                for rule in ("random", "greedy", "clustered", "lucb")
                for t, value in ((50, 0.017), (150, at_end if rule == "lucb" else 0.01))
            ),
        )

    assert claim(compared(leads(-0.003)), "c004")["verdict"] == REVERSES
    assert claim(compared(leads(0.01)), "c004")["verdict"] == HOLDS


def test_twice_a_reading_is_compared():
    """c269: a certificate needs a gap above two radii."""
    nats = {"metric": "nats", "allocation": None, "schedule": None, "start": None, "target": None}
    for gap, verdict in ((400, HOLDS), (420, REVERSES)):
        both = [
            nats | {"quantity": name, "value": value}
            for name, value in (("largest_radius", 205), ("centroid_gap", gap))
        ]
        assert claim(compared(rows("layer0_bundle", *both)), "c269")["verdict"] == verdict


def test_the_command_reads_a_summary_and_a_cohort(tmp_path):
    cohort = Cohort("tiny", ("a", "b"), ("p",), np.array([[0, 1]], dtype=np.int8), pd.DataFrame(index=["p"]))
    write_cohort(cohort, tmp_path / "cohort")
    write_summary(SMALL, tmp_path / "summary.csv")
    options = ["--cohort", tmp_path / "cohort", "--paper", PAPER, "--out", tmp_path / "out"]
    ran = CliRunner().invoke(app, ["compare", str(tmp_path / "summary.csv"), *map(str, options)])
    assert ran.exit_code == 0, ran.output
    found = pd.read_parquet(tmp_path / "out" / "comparison.parquet")
    assert claim(found, "c044")["ours"] == 1
