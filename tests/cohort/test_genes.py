from __future__ import annotations

import csv
from pathlib import Path

import pytest

from afa.cohort.encode import (
    ensembl_candidates,
    first_tier_present,
    read_aliases,
    read_ensembl,
    symbol_candidates,
)
from afa.errors import CohortError

RESOURCES = Path(__file__).parents[2] / "resources" / "genes"


@pytest.mark.parametrize(
    ("symbol", "row_ids"),
    [
        ("MARCH1", ("3/1/2018",)),
        ("MARCHF1", ("3/1/2018",)),
        ("MARCH11", ("3/11/2018",)),
        ("SEPT2", ("9/2/2018",)),
        ("SEPTIN14", ("9/14/2018",)),
        ("SEP15", ("9/15/2018",)),
        ("SELENOF", ("9/15/2018",)),
        ("DEC1", ("12/1/2018",)),
        ("DELEC1", ("12/1/2018",)),
        ("SEPTIN15", ()),
        ("MARCH12", ()),
        ("DEC2", ()),
        ("5S", ()),
    ],
)
def test_a_symbol_is_looked_for_as_the_date_that_a_spreadsheet_made_of_it(
    symbol: str, row_ids: tuple[str, ...]
) -> None:
    assert symbol_candidates([symbol], {})[symbol] == ((symbol,), *((row_id,) for row_id in row_ids))


def test_a_symbol_is_looked_for_before_its_aliases_and_those_before_dates() -> None:
    tiers = symbol_candidates(["SEPTIN2", "CCN2"], {"CCN2": ("CTGF", "IGFBP8"), "SEPTIN2": ("SEPT2",)})
    assert tiers == {"SEPTIN2": (("SEPTIN2",), ("SEPT2",), ("9/2/2018",)), "CCN2": (("CCN2",), ("CTGF",), ("IGFBP8",))}
    assert first_tier_present(tiers, ["CTGF", "IGFBP8", "9/2/2018"]) == {"SEPTIN2": ("9/2/2018",), "CCN2": ("CTGF",)}
    assert first_tier_present(tiers, ["CTGF", "CCN2"]) == {"SEPTIN2": (), "CCN2": ("CCN2",)}


def test_all_ensembl_ids_of_a_symbol_stand_in_one_tier() -> None:
    ensembl = {"A": ("ENSG1", "ENSG2"), "OLD": ("ENSG3",)}
    tiers = ensembl_candidates(["A", "NEW", "C"], {"NEW": ("OLD",)}, ensembl)
    assert tiers == {"A": (("ENSG1", "ENSG2"),), "NEW": (("ENSG3",),), "C": ()}
    assert first_tier_present(tiers, ["ENSG2", "ENSG1"])["A"] == ("ENSG1", "ENSG2")


def test_the_alias_table_gives_every_alias_of_a_symbol_in_file_order(tmp_path: Path) -> None:
    path = tmp_path / "aliases.csv"
    path.write_text("symbol,alias\nA,B\nC,D\nA,E\nA,B\n", encoding="utf-8")
    assert read_aliases(path) == {"A": ("B", "E"), "C": ("D",)}


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("feature,alias\nA,B\n", "column symbol: found no such column"),
        ("symbol,alias\nA,\n", "line 2, column alias: found nothing"),
        ("", "write the header symbol,alias"),
    ],
)
def test_a_table_of_another_form_is_refused(tmp_path: Path, text: str, said: str) -> None:
    path = tmp_path / "aliases.csv"
    path.write_text(text, encoding="utf-8")
    with pytest.raises(CohortError, match=said):
        read_aliases(path)


def test_a_table_that_is_not_there_is_named(tmp_path: Path) -> None:
    with pytest.raises(CohortError, match=r"none\.csv: found No such file"):
        read_aliases(tmp_path / "none.csv")


def test_what_is_not_an_ensembl_gene_id_is_refused_by_symbol(tmp_path: Path) -> None:
    path = tmp_path / "ensembl.csv"
    path.write_text("ensembl,symbol\nENSG00000198788,MUC2\nENST00000441003,MUC2\n", encoding="utf-8")
    with pytest.raises(CohortError, match="symbol MUC2: found 'ENST00000441003'"):
        read_ensembl(path)


def test_the_projects_tables_read_and_no_ensembl_id_stands_for_two_symbols() -> None:
    assert read_aliases(RESOURCES / "aliases.csv")["CCN2"] == ("CTGF",)
    ids = [found for others in read_ensembl(RESOURCES / "ensembl.csv").values() for found in others]
    assert len(ids) == len(set(ids))


def test_the_projects_tables_are_sorted_so_that_a_change_reads_well() -> None:
    for name, key in (("aliases.csv", "symbol"), ("ensembl.csv", "symbol")):
        with (RESOURCES / name).open(encoding="utf-8", newline="") as stream:
            symbols = [row[key] for row in csv.DictReader(stream)]
        assert symbols == sorted(symbols), name
