"""The paper's numbers were transcribed twice and independently; the two transcriptions are held together here."""

from __future__ import annotations

from collections import Counter
from pathlib import Path

import pandas as pd
import pytest

FIRST = Path(__file__).parents[3] / "resources" / "paper"
SECOND = Path(__file__).parents[2] / "data" / "paper_second"
TABLES = sorted(file.name for file in FIRST.glob("tab_*.csv"))
CELL = ["label", "row", "column"]

# Counts that the text states of its own structure, and cut-offs in words: no claims to the second reader.
ONLY_FIRST = Counter(
    {
        ("sec:pref_scores", "3"): 1,
        ("eq:f2-criterion-stacka", "4"): 1,
        ("sec:eval_chaos", "top-quartile"): 1,
        ("sec:eval_chaos", "median"): 1,
        ("sec:eval_chaos", "2"): 1,
        ("sec:eval_chaos", "4"): 1,
        ("sec:eval_decision", "5"): 1,
        ("sec:limitations", "2"): 1,
        ("sec:limitations", "3"): 2,
        ("supp:mode1", "4"): 1,
        ("eq:elbo-half", "2"): 1,
        ("supp:mode1-as-mode2", "1"): 2,
        ("supp:mode1-as-mode2", "2"): 2,
        ("supp:elbo-logZ", "3"): 1,
        ("supp:mode2", "3"): 1,
        ("supp:mode2", "4"): 1,
        ("supp:mode2-scores", "4"): 1,
        ("supp:mode2-filtering", "3"): 1,
        ("supp:chaos", "top quartile"): 1,
        ("supp:chaos", "median"): 1,
        ("llm-planning-prompts", "2"): 2,
    }
)


def read(file: Path) -> pd.DataFrame:
    return pd.read_csv(file, dtype=str, keep_default_na=False)


def numbers(file: Path) -> Counter[tuple[str, str]]:
    """How often each number is claimed near each label."""
    claims = read(file).query("kind == 'number'")
    return Counter(zip(claims["near_label"], claims["value"], strict=True))


def test_both_readers_transcribed_the_same_tables() -> None:
    assert sorted(file.name for file in SECOND.glob("*.csv")) == sorted(file.name for file in FIRST.glob("*.csv"))


@pytest.mark.parametrize("name", TABLES)
def test_a_table_was_read_alike_cell_by_cell(name: str) -> None:
    first, second = (read(folder / name).set_index(CELL)["value"] for folder in (FIRST, SECOND))
    assert first.index.is_unique
    assert first.to_dict() == second.to_dict()


def test_the_values_of_the_hyperparameters_were_read_alike() -> None:
    first, second = (read(folder / "hyperparams.csv").query("column == 'Value'") for folder in (FIRST, SECOND))
    assert first.set_index(CELL)["value"].to_dict() == second.set_index(CELL)["value"].to_dict()


def test_every_number_claimed_by_the_second_reader_is_claimed_by_the_first() -> None:
    assert numbers(SECOND / "claims.csv") - numbers(FIRST / "claims.csv") == Counter()


def test_what_only_the_first_reader_took_for_a_claim_is_listed() -> None:
    assert numbers(FIRST / "claims.csv") - numbers(SECOND / "claims.csv") == ONLY_FIRST


@pytest.mark.parametrize("folder", [FIRST, SECOND], ids=["first", "second"])
def test_a_claim_is_a_number_with_a_value_or_a_comparison_without(folder: Path) -> None:
    claims = read(folder / "claims.csv")
    assert claims["id"].is_unique
    assert set(claims["kind"]) == {"number", "comparison"}
    assert ((claims["kind"] == "number") == (claims["value"] != "")).all()
    assert (claims["near_label"] != "").all()
