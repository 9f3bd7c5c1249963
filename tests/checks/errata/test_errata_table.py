"""All items in one table: each with one headline, the same numbers each time, and rows for the summary."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from errata_rows import PAPER, cohort_of

from afa.bundle import Bundle
from afa.checks.errata import (
    errata_page,
    load_errata,
    summarise_errata,
)
from afa.checks.errata.computed import Extent, computed_errata
from afa.checks.errata.stages import errata_table
from afa.cohort.cohort import Cohort
from afa.stats.summary import METRICS

FOLDER = Path(__file__).parents[3]
ERRATA = load_errata(FOLDER / "resources/paper/errata.yaml")
CHECKED = [number for number, item in ERRATA.items.items() if item.checks]
SMALL = Extent(
    models=1,
    class_pairs=50,
    gauge_models=10,
    intervals=10,
    entities=3,
    duels=3,
    exact_states=8,
    duel_states=4,
    patients=3,
)


def made_table(bundle: Bundle, cohort: Cohort, threads: int = 1) -> pd.DataFrame:
    rows = computed_errata(bundle, cohort, paper=PAPER, extent=SMALL, threads=threads)
    return errata_table(rows, summary=None, paper=PAPER, errata=ERRATA)


@pytest.fixture(scope="module")
def cohort(bundle_tiny: Bundle) -> Cohort:
    return cohort_of(bundle_tiny, np.random.default_rng(2).integers(-1, 2, (6, len(bundle_tiny.features))))


@pytest.fixture(scope="module")
def table(bundle_tiny: Bundle, cohort: Cohort) -> pd.DataFrame:
    return made_table(bundle_tiny, cohort)


def test_every_item_has_a_headline_and_every_row_a_number_or_a_reason(table: pd.DataFrame) -> None:
    assert table.loc[table["headline"], "item"].tolist() == CHECKED
    assert (table["value"].notna() ^ (table["pending"] != "")).all()
    assert not table.duplicated(["item", "name"]).any()
    assert (table["label"] != "").all()
    assert table[["kind", "claim", "check", "unit"]].notna().all(axis=None), "a row without words"
    assert (table.loc[table["pending"] != "", "holds"].isna()).all()


def test_the_numbers_do_not_depend_on_the_order_of_the_patients(
    bundle_tiny: Bundle, cohort: Cohort, table: pd.DataFrame
) -> None:
    turned = replace(cohort, patients=cohort.patients[::-1], values=cohort.values[::-1], labels=cohort.labels[::-1])
    again = made_table(bundle_tiny, turned)
    pd.testing.assert_frame_equal(again, table, rtol=1e-12)


def test_the_numbers_do_not_depend_on_the_number_of_threads(
    bundle_tiny: Bundle, cohort: Cohort, table: pd.DataFrame
) -> None:
    pd.testing.assert_frame_equal(made_table(bundle_tiny, cohort, threads=2), table, check_exact=True)


def test_the_table_survives_being_written_to_parquet(table: pd.DataFrame, tmp_path: Path) -> None:
    table.to_parquet(tmp_path / "errata.parquet", index=False)
    pd.testing.assert_frame_equal(pd.read_parquet(tmp_path / "errata.parquet"), table)


def test_the_summary_has_our_number_and_the_papers_beside_it(table: pd.DataFrame) -> None:
    rows = summarise_errata(table)
    assert set(rows["table"]) == {"errata"}
    of_total = rows[(rows["level"] == 15) & (rows["quantity"] == "group_total")]
    of_total = of_total.set_index(of_total["reference"].fillna("ours"))
    assert of_total["value"].to_dict() == {"ours": 200.0, "paper": 167.0}
    assert len(rows) == table["value"].notna().sum() + table["claim_value"].notna().sum()


def test_the_units_of_the_rows_are_metrics_of_the_summary() -> None:
    assert {check.unit for item in ERRATA.items.values() for check in item.checks.values()} <= set(METRICS)


def test_an_item_is_as_grave_as_its_gravest_point_and_5_is_withdrawn() -> None:
    kinds = {number: item.kind for number, item in ERRATA.items.items()}
    assert list(kinds) == list(range(1, 27))
    assert kinds[5] == "withdrawn"
    remarks = {number for number, kind in kinds.items() if kind == "remark"}
    assert remarks == {10, 11, 12, 17, 19, 20, 22, 26}


def test_the_page_of_errata_is_made_from_the_texts() -> None:
    made = (FOLDER / "docs/errata.md").read_text(encoding="utf-8")
    assert made == errata_page(ERRATA), "run: make schema"
