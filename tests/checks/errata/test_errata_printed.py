"""The paper's printed numbers contradict each other where we say so, and a consistent table passes."""

from __future__ import annotations

import pandas as pd
import pytest
from errata_rows import PAPER, by_name

from afa.checks.errata import Printed, Row
from afa.checks.errata import stages as paper_errata
from afa.errors import ConfigError


def with_cells(table: str, cells: dict[tuple[str, str], float]) -> Printed:
    """The paper with some cells of one table replaced."""
    changed = PAPER[table].copy()
    changed["value"] = changed["value"].astype(object)
    for (row, column), value in cells.items():
        at = (changed["row"] == row) & (changed["column"] == column)
        assert at.sum() == 1
        changed.loc[at, "value"] = value
    return Printed({**PAPER, table: changed})


def with_claims(base: Printed, values: dict[str, float]) -> Printed:
    claims = base.tables["claims"].copy()
    claims["value"] = claims["value"].astype(object)
    for identifier, value in values.items():
        claims.loc[claims["id"] == identifier, "value"] = value
    return Printed({**base.tables, "claims": claims})


def verdicts(rows: list[Row]) -> set[bool | None]:
    return {row.holds for row in rows if row.holds is not None}


def test_the_chaotic_groups_do_not_fit_the_cohort() -> None:
    rows = by_name(paper_errata.chaotic_patients(Printed(PAPER)))
    assert (rows["group_total"].value, rows["group_total"].claim_value) == (200.0, 167.0)
    assert (rows["top_quartile"].value, rows["top_quartile"].claim_value) == (42.0, 47.0)


def test_groups_that_fit_the_cohort_would_pass() -> None:
    printed = with_cells("tab_chaos", {("n", "Chaotic"): 40, ("n", "Non-chaotic"): 127})
    rows = by_name(paper_errata.chaotic_patients(printed))
    assert (rows["group_total"].holds, rows["top_quartile"].holds) == (True, True)


def test_the_clinical_ceiling_has_two_values() -> None:
    rows = by_name(paper_errata.clinical_ceiling(Printed(PAPER)))
    assert rows["text_and_table"].value == pytest.approx(0.65 - 0.629)
    assert rows["stack_a_and_wald"].value == pytest.approx(0.011)
    assert verdicts(list(rows.values())) == {False}


def test_one_ceiling_would_pass() -> None:
    printed = with_cells("tab_m1acc", {("wald", "t=216"): 0.65, ("stack_a_maxent", "t=216"): 0.65})
    assert verdicts(paper_errata.clinical_ceiling(with_claims(printed, {"c082": 0.65}))) == {True}


def test_language_models_stay_below_a_coin_before_full_observation() -> None:
    rows = by_name(paper_errata.language_models(Printed(PAPER)))
    assert (rows["below_coin"].value, rows["below_coin"].n, rows["least_accuracy"].value) == (1.0, 8, 0.24)


def test_language_models_above_a_coin_would_pass() -> None:
    cells = {
        (f"LLM / {name}", column): 0.6
        for name in ("RAG-LLM", "MRF-LLM")
        for column in ("t=10", "t=50", "t=100", "t=150", "t=216")
    }
    assert verdicts(paper_errata.language_models(with_cells("tab_classification_with_llm", cells))) == {True}


def test_greedy_and_clustered_are_printed_as_one_rule_and_lucb_not_at_all() -> None:
    rows = by_name(paper_errata.allocation_rules(Printed(PAPER)))
    assert (rows["greedy_and_clustered"].value, rows["greedy_and_clustered"].holds) == (0.0, False)
    assert (rows["without_result"].value, rows["without_description"].value) == (1.0, 1.0)


def test_rules_that_differ_and_are_described_would_pass() -> None:
    table = PAPER["tab_m2_alloc"].replace({"row": {"greedy": "lucb"}})
    other = table.assign(row="greedy", value=0.8)[table["row"] == "lucb"]
    whole = Printed({**PAPER, "tab_m2_alloc": pd.concat([table, other])})
    rows = by_name(paper_errata.allocation_rules(whole))
    assert rows["greedy_and_clustered"].holds is True
    assert rows["without_result"].holds is True


def test_one_bracket_has_two_rates() -> None:
    rows = by_name(paper_errata.one_bracket(Printed(PAPER)))
    assert rows["one_bracket_informed"].value == pytest.approx(0.14)
    assert rows["eliminations"].value == 28 % 5


def test_equal_rates_and_equal_eliminations_would_pass() -> None:
    row = "M2 wald (L1)"
    printed = with_cells("tab_layer1_informed", {(row, "Informed (%)"): 40, (row, "Random (%)"): 0.08})
    assert verdicts(paper_errata.one_bracket(with_claims(printed, {"c265": 30}))) == {True}


def test_two_origins_are_one_too_many(monkeypatch: pytest.MonkeyPatch) -> None:
    assert paper_errata.origin_of_cohort(Printed(PAPER))[0].holds is False
    monkeypatch.setattr(paper_errata, "ORIGINS", {"here": "a public GEO series", "there": "a public GEO series"})
    assert paper_errata.origin_of_cohort(Printed(PAPER))[0].holds is True


@pytest.mark.parametrize("read", [lambda p: p.cell("tab_chaos", "n", "Nobody"), lambda p: p.claim("c001")])
def test_a_number_that_the_paper_does_not_print_is_named(read) -> None:
    with pytest.raises(ConfigError, match=r"tab_chaos, row n, column Nobody|claims, c001"):
        read(Printed(PAPER))


def test_a_table_that_is_not_there_is_named() -> None:
    with pytest.raises(ConfigError, match="tab_nothing"):
        Printed(PAPER).cell("tab_nothing", "row", "column")
