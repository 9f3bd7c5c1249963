"""The first screen: other numbers make other sentences, and a second implementation of five verdicts agrees."""

import json
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from runs import finished_run
from second_opinion import second_opinion
from typer.testing import CliRunner

from afa.cli import app
from afa.evaluate.summary import summary_rows
from afa.io.yamlfile import load_model
from afa.paper.config import RunConfig
from afa.paper.experiments.voters import GAUGE_PATIENTS
from afa.paper.report.comparison import Reader, compare, load_printed
from afa.paper.report.paper_tables import PRINTED_TABLES, SummaryLines
from afa.paper.report.screen import (
    COLUMNS,
    VOTER_COLUMNS,
    Statements,
    StoredEffects,
    basis,
    load_stored_effects,
    of_voters,
    screen_table,
    stale,
    stored_effects_of,
)
from afa.paper.report.sections import figure, sentences, tallies, title_of, voter_ranges, voters_said
from afa.paper.report.verdicts import ClaimAnswers

PAPER = Path(__file__).parents[3] / "resources" / "paper"
PRINTED, ANSWERS = load_printed(PAPER), load_model(PAPER / "answers.yaml", ClaimAnswers)
STATEMENTS = load_model(PAPER / "headlines.yaml", Statements).statements
FACTS = ("small", False, {"patients": 206, "features": 253, "labelled": 3, "zeros": 0.4})
COMMON = {"schedule": "every", "start": "uniform", "allocation": "random", "target": "likelihood", "n": 206}
LEAD = {"metric": "gap", "reference": "linearity_minus_wald"}
ORDER = {"metric": "gap", "method": "wald", "allocation": "greedy", "gain": "cmi", "reference": "random"}
FIVE = ("lead_all_2", "lead_all_50", "lead_contrast_2", "cmi_10", "cmi_150")
"""Effects that the second implementation judges."""


def around(value, half):
    return {"value": value, "low": value - half, "high": value + half}


def summary_of(values, half=0.02, early=0.86):
    """A summary with five effects of these sizes, as shares; early : what is right before any observation."""
    at = dict(zip(FIVE, values, strict=True))
    chaos = [
        LEAD | {"t": 2} | around(at["lead_all_2"], half),
        LEAD | {"t": 50} | around(at["lead_all_50"], half),
        LEAD | {"t": 2, "stratum": "chaotic_minus_non_chaotic"} | around(at["lead_contrast_2"], half),
    ]
    binary = [ORDER | {"t": 10} | around(at["cmi_10"], half), ORDER | {"t": 150} | around(at["cmi_150"], half)]
    binary += [{"metric": "majority", "value": 0.988, "allocation": None}]
    binary += [{"metric": "accuracy", "method": "wald", "t": 150, "value": 0.97}]
    sign = [{"metric": "accuracy", "method": "linearity", "t": 0, "value": early}]
    tables = {"chaos_gap": chaos, "binary": binary, "sign_accuracy_random": sign}
    return pd.concat(
        [summary_rows(name, pd.DataFrame([COMMON | line for line in lines])) for name, lines in tables.items()],
        ignore_index=True,
    )


def screen(values, half=0.02, facts=FACTS, early=0.86):
    reader = Reader(SummaryLines(summary_of(values, half, early)), ANSWERS, *facts)
    return screen_table(STATEMENTS, compare(reader, PRINTED), reader)


@pytest.fixture(scope="module")
def printed():
    """The paper's values of the five effects."""
    return screen([0.0] * 5).set_index("id").loc[list(FIVE), "paper"]


@pytest.mark.parametrize("seed", range(8))
def test_a_second_implementation_of_five_verdicts_agrees(printed, seed):
    random = np.random.default_rng(seed)
    values = [printed[name] * random.uniform(-0.5, 2.5) + random.normal(0, 2) for name in FIVE]
    half = random.uniform(0.5, 4)
    table = screen([value / 100 for value in values], half / 100).set_index("id")
    for name, value in zip(FIVE, values, strict=True):
        expected = second_opinion(printed[name], value, value - half, value + half, 167)
        assert (table.loc[name, "verdict"], table.loc[name, "size"]) == expected, (name, value, half)


GOOD, TURNED = [0.121, -0.03, 0.30, 0.305, 0.10], [-0.121, 0.2, 0.03, 0.001, 0.06]


def by_voter(*values):
    """The effects with the answers of each voter alone, who have these effects."""
    bundles = pd.DataFrame({"voter": [f"r{i}" for i, _ in enumerate(values, 1)], "features": 240})
    numbers = [summary_of(each).assign(voter=voter) for each, voter in zip(values, bundles["voter"], strict=True)]
    answers = {"numbers": pd.concat(numbers, ignore_index=True), "bundles": bundles}
    return of_voters(STATEMENTS, PRINTED, answers, Reader(SummaryLines(summary_of(GOOD)), ANSWERS, *FACTS))


def test_the_text_says_which_effects_hang_on_a_voter():
    whole, alike, apart = screen(GOOD), by_voter(GOOD, GOOD), by_voter(GOOD, [*TURNED[:1], *GOOD[1:]])
    assert alike["voter"].unique().tolist() == ["r1", "r2"]
    lead, said = voters_said(whole, alike)
    assert lead.startswith("Five of five effects get the same verdict from the answers of each single voter")
    assert said[0].startswith("These are early lead of linearity, lead gone by t = 50")
    lead, said = voters_said(whole, apart)
    assert lead.startswith("Four of five effects get the same verdict")
    assert said[1] == "Early lead of linearity changes: reverses with r2; with the consensus: reproduced."
    assert voter_ranges(apart)["lead_all_2"] == pytest.approx((-12.1, 12.1))
    assert voter_ranges(alike)["lead_all_2"] == pytest.approx((12.1, 12.1))


def test_an_effect_that_no_voter_has_is_named_and_no_voters_say_nothing():
    whole, voters = screen(GOOD), by_voter(GOOD)
    assert voters_said(whole, voters[voters["id"] != "cmi_10"])[1][-1] == (
        "Not computed for single voters: informed order at t = 10."
    )
    assert voters_said(whole, voters.iloc[:0]) is None
    reasons = whole.assign(alone=whole["id"].map({"cmi_10": "nobody asked", "cmi_150": "of 3 patients"}).fillna(""))
    assert voters_said(reasons, voters[voters["id"] != "cmi_10"])[1][-2:] == [
        "Informed order at t = 150 is of 3 patients.",
        "Not computed for single voters: informed order at t = 10 (nobody asked).",
    ]
    assert of_voters(STATEMENTS, PRINTED, {}, None).columns.tolist() == VOTER_COLUMNS


def test_other_numbers_make_other_sentences():
    first, second = (dict(sentences(screen(values, early=early))) for values, early in ((GOOD, 0.86), (TURNED, 0.55)))
    assert list(first) == ["Of five main effects of the paper, five reproduce.", "Five reproduce."]
    assert list(second) == [
        "Of five main effects of the paper, one reproduces, one has another size and three do not reproduce.",
        "One reproduces.",
        "One has the paper's direction, but another size.",
        "One is absent here.",
        "One is present here and absent in the paper.",
        "One is contradicted, in whole or in part.",
        "Why, as far as it is known.",
    ]
    assert second["One is absent here."] == [
        "With ten features measured in an informed order, wald is 0.1 points better than in a random one; the paper"
        " has 31."
    ]
    assert second["One is contradicted, in whole or in part."] == [
        "After two measurements linearity leads wald by \N{MINUS SIGN}12 points; the paper has 12."
    ]
    why = second["Why, as far as it is known."]
    assert why[0] == "In one of these effects, one fixed answer for all patients is right 99 % of the time."
    assert why[1] == (
        "From the elicited answers alone, before anything is measured, linearity has 55 % of the duels right (contrast"
        " of chaotic patients, lead gone by t = 50, early lead of linearity)."
    )
    assert title_of(screen(GOOD)) != title_of(screen(TURNED))


def test_all_and_none_and_simulated_have_sentences_of_their_own():
    small = screen(GOOD)
    came = small[small["id"] == "cmi_10"]
    assert [lead for lead, _ in sentences(came)] == [
        "Of the one effect of the paper, one reproduces.",
        "One reproduces.",
    ]
    assert title_of(screen([0.9] * 5)).startswith("Of five main effects of the paper, no")
    simulated = screen([0.121] * 5, facts=("drawn", True, FACTS[-1]))
    assert sentences(simulated) == [("No effect is judged: the patients are simulated.", [])]


def test_an_effect_whose_interval_holds_0_is_never_of_another_size():
    table = screen([0.001] * 5)
    assert set(table.loc[table["paper"].abs() > 5, "verdict"]) >= {"no effect here"}
    assert not any("another size" in lead for lead, _ in sentences(table))


def test_each_effect_that_is_judged_is_in_one_group_and_one_tally():
    for seed in range(5):
        table = screen(list(np.random.default_rng(seed).normal(0.1, 0.15, 5)))
        groups = tallies(table)
        named = [row["id"] for group in groups for row in group.rows]
        assert sorted(named) == sorted(FIVE)


def test_a_lead_over_a_language_model_says_nothing_where_a_constant_does_as_well():
    keys = {"schedule": "every", "start": "uniform", "allocation": "priority_all", "gain": "cmi", "guide": "linearity"}
    keys |= {"target": "likelihood", "n": 10, "t": 50}
    planner = keys | {"metric": "p_at_k", "method": "linearity"} | around(0.96, 0.02)
    gap = keys | {"metric": "gap", "method": "mrf_llm", "reference": "linearity"} | around(-0.28, 0.05)
    for constant, verdict in ((0.97, "a constant does as well"), (0.60, "holds")):
        fixed = {"metric": "p_at_k", "method": "fixed_top_k", "guide": "linearity", "start": "uniform", "n": 206}
        fixed |= {"target": "likelihood"} | around(constant, 0.01)
        summary = [summary_rows("llm_baselines", pd.DataFrame([planner, gap]))]
        summary += [summary_rows("allocation_p_at_k", pd.DataFrame([fixed]))]
        reader = Reader(SummaryLines(pd.concat(summary, ignore_index=True)), ANSWERS, *FACTS)
        row = screen_table(STATEMENTS, compare(reader, PRINTED), reader).set_index("id").loc["language_model"]
        assert (row["verdict"], row["constant"]) == (verdict, pytest.approx(100 * constant))


def test_the_table_has_every_effect_and_the_best_constant_of_its_task():
    table = screen([0.1] * 5)
    assert list(table.columns) == COLUMNS
    assert table["id"].tolist() == [each.id for each in STATEMENTS]
    by_id = table.set_index("id")
    assert by_id.loc["cmi_10", "constant"] == pytest.approx(98.8)
    assert np.isnan(by_id.loc["layer0", "constant"])
    assert by_id.loc["language_model", "paper"] == pytest.approx(20.3 - 49.2)
    assert by_id.loc["language_model", "verdict"] == "not run"


def test_the_figure_has_every_difference_and_escapes_what_people_wrote(tmp_path):
    table = screen(GOOD)
    (tmp_path / "a.yaml").write_text(
        "cohort: a <b>\nversion: v\nsettings: s\ndata: d\nrows: {cmi_10: [20.0, 19.0, 21.0]}\n"
    )
    drawn = str(figure(table, load_stored_effects(tmp_path), "here <i>", pd.DataFrame(columns=VOTER_COLUMNS)))
    differences = table[(table["unit"] == "percentage points") & table["ours"].notna()]
    assert len(differences) == 5
    assert all(
        name in drawn
        for name in (*(f"> {name}<" for name in differences["name"]), ">paper<", ">a &lt;b&gt;<", ">here &lt;i&gt;<")
    )
    assert "<b>" not in drawn
    assert "<i>" not in drawn


def test_a_stored_run_has_the_numbers_of_its_screen_and_says_when_they_are_no_longer_found(tmp_path):
    run, _ = finished_run(tmp_path)
    kept = stored_effects_of(run)
    assert kept.cohort == "odd"
    assert kept.rows == {"a_b": (-1.9, -2.6, -1.2), "level": (91.0, 90.0, 92.0)}
    out, words = str(tmp_path / "odd.yaml"), ("carry", str(run), "--out")
    assert CliRunner().invoke(app, [*words, out]).exit_code == 0
    assert load_model(tmp_path / "odd.yaml", StoredEffects) == kept
    assert CliRunner().invoke(app, [*words, out, "--check"]).exit_code == 0
    (run / "config.json").write_text(json.dumps({"bootstrap": {"confidence": 0.8}}))
    assert stale(kept, stored_effects_of(run)) == ["other settings"]
    changed = kept.model_copy(update={"data": "0", "rows": {**kept.rows, "a_b": (-1.9, -2.6, -1.1)}})
    assert stale(changed, kept) == ["other data", "a_b: (-1.9, -2.6, -1.1) stored, (-1.9, -2.6, -1.2) found"]
    failed = CliRunner().invoke(app, [*words, out, "--check"])
    assert "other settings" in str(failed.exception)
    assert load_stored_effects(tmp_path / "nowhere") == []


@pytest.mark.parametrize("carried", load_stored_effects(PAPER / "carried"), ids=lambda each: each.cohort)
def test_what_the_project_carries_was_made_with_the_default_settings(carried):
    assert carried.settings == basis(RunConfig(cohort=carried.cohort).model_dump(mode="json"))
    assert set(carried.rows) <= {each.id for each in STATEMENTS}
    assert len(carried.rows) >= 9
    assert all(low <= value <= high for value, low, high in carried.rows.values())


def test_the_patients_of_one_voters_gauges_are_those_of_the_stage():
    assert {each.id: each.alone for each in STATEMENTS}["gauges"] == f"of {GAUGE_PATIENTS} patients"


def test_every_effect_is_read_from_one_place_that_the_comparison_has():
    cells = {
        f"{name} | {row} | {column}"
        for name in PRINTED_TABLES
        for row, column in PRINTED[name][["row", "column"]].to_numpy()
    }
    for each in STATEMENTS:
        assert [each.claim, each.cell, each.less].count(None) == 2, each.id
        assert (each.less is None) == (each.line is None), each.id
        assert {each.claim} <= {None, *ANSWERS.claims}, each.id
        assert {each.cell, *(each.less or ())} <= {None, *cells}, each.id
