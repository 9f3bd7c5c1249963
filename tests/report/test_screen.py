"""The first screen: other numbers make other sentences, and a second implementation of five verdicts agrees."""

import json
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from runs import finished_run
from typer.testing import CliRunner

from afa.cli import app
from afa.evaluate.summary import summary_rows
from afa.io.yamlfile import load_model
from afa.paper.config import RunConfig
from afa.paper.report.comparison import Reader, compare, load_printed
from afa.paper.report.paper_tables import TABLES, Lines
from afa.paper.report.screen import COLUMNS, Carried, Statements, basis, carried_of, load_carried, screen_table, stale
from afa.paper.report.sections import figure, sentences, title_of
from afa.paper.report.verdicts import Answers

PAPER = Path(__file__).parents[2] / "resources" / "paper"
PRINTED, ANSWERS = load_printed(PAPER), load_model(PAPER / "answers.yaml", Answers)
STATEMENTS = load_model(PAPER / "headlines.yaml", Statements).statements
FACTS = ("small", False, {"patients": 206, "features": 253, "labelled": 3, "zeros": 0.4})
COMMON = {"schedule": "every", "start": "uniform", "allocation": "random", "target": "likelihood", "n": 206}
LEAD = {"metric": "gap", "reference": "linearity_minus_wald"}
ORDER = {"metric": "gap", "method": "wald", "allocation": "greedy", "gain": "cmi", "reference": "random"}
FIVE = ("lead_all_2", "lead_all_50", "lead_chaotic_2", "cmi_10", "cmi_150")
"""Effects that the second implementation judges."""


def spread(value, half):
    return {"value": value, "low": value - half, "high": value + half}


def summary_of(values, half=0.02):
    """A summary with five effects of these sizes, as shares."""
    at = dict(zip(FIVE, values, strict=True))
    chaos = [
        LEAD | {"t": 2} | spread(at["lead_all_2"], half),
        LEAD | {"t": 50} | spread(at["lead_all_50"], half),
        LEAD | {"t": 2, "stratum": "chaotic"} | spread(at["lead_chaotic_2"], half),
    ]
    binary = [ORDER | {"t": 10} | spread(at["cmi_10"], half), ORDER | {"t": 150} | spread(at["cmi_150"], half)]
    constant = [{"metric": "majority", "value": 0.988, "allocation": None, "schedule": None, "start": None}]
    tables = {"chaos_gap": chaos, "binary": [*binary, *constant]}
    return pd.concat(
        [summary_rows(name, pd.DataFrame([COMMON | line for line in lines])) for name, lines in tables.items()],
        ignore_index=True,
    )


def screen(values, half=0.02, facts=FACTS):
    reader = Reader(Lines(summary_of(values, half)), ANSWERS, *facts)
    return screen_table(STATEMENTS, compare(reader, PRINTED), reader)


def second_opinion(paper, ours, half, n_paper, digits=1):
    """Direction and size in points, worked anew: intervals as sets of tenths, no code of the package."""
    ours_low, ours_high = ours - half, ours + half
    wide = half * np.sqrt(206 / n_paper) + 0.5 * 10.0**-digits
    signs = {np.sign(x) for x in np.linspace(ours_low, ours_high, 2001)} | {
        0.0 if ours_low <= 0 <= ours_high else np.sign(ours)
    }
    paper_sign = 0.0 if paper - wide <= 0 <= paper + wide else np.sign(paper)
    direction = "unclear" if 0.0 in signs or paper_sign == 0 else "holds" if signs == {paper_sign} else "reverses"
    apart = abs(round(ours - paper, 6))
    return direction, "within 2 points" if apart <= 2 else "within 5 points" if apart <= 5 else "far"


@pytest.mark.parametrize("seed", range(6))
def test_a_second_implementation_of_five_verdicts_agrees(seed):
    random = np.random.default_rng(seed)
    printed = screen([0.0] * 5).set_index("id").loc[list(FIVE), "paper"]
    values = [(printed[name] + random.normal(0, 12)) / 100 for name in FIVE]
    half = random.uniform(0.5, 4)
    table = screen(values, half / 100).set_index("id")
    for name, value in zip(FIVE, values, strict=True):
        expected = second_opinion(printed[name], 100 * value, half, 167)
        assert (table.loc[name, "verdict"], table.loc[name, "size"]) == expected, (name, value, half)


def test_other_numbers_make_other_sentences():
    good, turned = screen([0.121, -0.03, 0.34, 0.305, 0.10]), screen([-0.121, 0.2, 0.34, 0.1, 0.06])
    first, second = sentences(good), sentences(turned)
    assert first[0] == (
        "Reproduced in direction and within five points, 4 of 5 effects: early lead of linearity, early lead of"
        " chaotic patients, informed order at t = 10, informed order at t = 150."
    )
    # what the paper prints for t = 50 is within its own error of 0
    assert first[1] == "Not reproduced, 1. Not distinguishable from 0: lead gone by t = 50."
    assert first[2] == "Why, as far as it is known. Elicitation: lead gone by t = 50."
    assert second[0] == (
        "Reproduced in direction and within five points, 2 of 5 effects: early lead of chaotic patients, informed order"
        " at t = 150."
    )
    assert second[1] == (
        "Not reproduced, 3. The other way round: early lead of linearity. Of another size: lead gone by t = 50,"
        " informed order at t = 10."
    )
    assert second[2] == (
        "Why, as far as it is known. Elicitation: early lead of linearity, lead gone by t = 50. Reading: informed order"
        " at t = 10. A constant answer is right in 98.8 % of the cases of 1 of them, which leaves little to gain."
    )
    assert title_of(good) == "4 of 5 differences have the paper's sign; 5 of 5 effects have its size"
    assert title_of(turned) == "3 of 5 differences have the paper's sign; 2 of 5 effects have its size"


def test_all_and_none_and_simulated_have_sentences_of_their_own():
    small = screen([0.121, -0.03, 0.34, 0.305, 0.10])
    assert sentences(small[small["id"] == "cmi_10"])[1:] == ["All are reproduced."]
    assert sentences(screen([0.9] * 5))[0].endswith("0 of 5 effects: none.")
    simulated = screen([0.121] * 5, facts=("drawn", True, FACTS[-1]))
    assert sentences(simulated)[0].startswith("No effect is judged: the patients are simulated")


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
    table = screen([0.121, -0.03, 0.34, 0.305, 0.10])
    (tmp_path / "a.yaml").write_text(
        "cohort: a <b>\nversion: v\nsettings: s\ndata: d\nrows: {cmi_10: [20.0, 19.0, 21.0]}\n"
    )
    drawn = str(figure(table, load_carried(tmp_path), "here <i>"))
    differences = table[(table["unit"] == "percentage points") & table["ours"].notna()]
    assert len(differences) == 5
    assert all(f">{name}<" in drawn for name in (*differences["name"], "paper", "a &lt;b&gt;", "here &lt;i&gt;"))
    assert "<b>" not in drawn
    assert "<i>" not in drawn


def test_a_stored_run_has_the_numbers_of_its_screen_and_says_when_they_are_no_longer_found(tmp_path):
    run, _ = finished_run(tmp_path)
    kept = carried_of(run)
    assert kept.cohort == "odd"
    assert kept.rows == {"a_b": (-1.9, -2.6, -1.2), "level": (91.0, 90.0, 92.0)}
    out, words = str(tmp_path / "odd.yaml"), ("carry", str(run), "--out")
    assert CliRunner().invoke(app, [*words, out]).exit_code == 0
    assert load_model(tmp_path / "odd.yaml", Carried) == kept
    assert CliRunner().invoke(app, [*words, out, "--check"]).exit_code == 0
    (run / "config.json").write_text(json.dumps({"bootstrap": {"confidence": 0.8}}))
    assert stale(kept, carried_of(run)) == ["other settings"]
    changed = kept.model_copy(update={"data": "0", "rows": {**kept.rows, "a_b": (-1.9, -2.6, -1.1)}})
    assert stale(changed, kept) == ["other data", "a_b: (-1.9, -2.6, -1.1) stored, (-1.9, -2.6, -1.2) found"]
    failed = CliRunner().invoke(app, [*words, out, "--check"])
    assert "other settings" in str(failed.exception)
    assert load_carried(tmp_path / "nowhere") == []


@pytest.mark.parametrize("carried", load_carried(PAPER / "carried"), ids=lambda each: each.cohort)
def test_what_the_project_carries_was_made_with_the_default_settings(carried):
    assert carried.settings == basis(RunConfig(cohort=carried.cohort).model_dump(mode="json"))
    assert set(carried.rows) <= {each.id for each in STATEMENTS}
    assert len(carried.rows) >= 10
    assert all(low <= value <= high for value, low, high in carried.rows.values())


def test_every_effect_is_read_from_one_place_that_the_comparison_has():
    cells = {
        f"{name} | {row} | {column}" for name in TABLES for row, column in PRINTED[name][["row", "column"]].to_numpy()
    }
    for each in STATEMENTS:
        assert [each.claim, each.cell, each.less].count(None) == 2, each.id
        assert (each.less is None) == (each.line is None), each.id
        assert {each.claim} <= {None, *ANSWERS.claims}, each.id
        assert {each.cell, *(each.less or ())} <= {None, *cells}, each.id
