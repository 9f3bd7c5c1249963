"""Which genes of an answer count: the stated rules, one by one."""

from __future__ import annotations

import pandas as pd
import pytest

from afa.elicit.tables import GENE_COLUMNS, usable_genes


def named(*rows: tuple[str, str, str]) -> pd.DataFrame:
    """Rows run, gene, direction of one phenotype."""
    return pd.DataFrame(
        [(run, "fever", gene, direction, 0.5, "m", "model_knowledge", "") for run, gene, direction in rows],
        columns=GENE_COLUMNS,
    )


def counted(table: pd.DataFrame, most_genes: int = 10) -> tuple[list[list[str]], list[list[str]]]:
    kept, dropped = usable_genes(table, most_genes=most_genes)
    return kept[["run", "gene", "direction"]].values.tolist(), dropped.values.tolist()


@pytest.mark.parametrize("symbol", ["MUC2", "HLA-B", "C9orf72", "A", "MT-CO1", "H2BC12"])
def test_symbols_of_hgnc_count(symbol: str) -> None:
    assert counted(named(("r1", symbol, "Upregulated"))) == ([["r1", symbol, "Upregulated"]], [])


@pytest.mark.parametrize("symbol", ["", "Muc2", "IL-1β", "interleukin 8", "2A", "MUC2/MUC5AC", "CD4+", "ТNF"])
def test_other_names_are_dropped_and_not_mended(symbol: str) -> None:
    reason = "run r1: no symbol in the form of HGNC"
    assert counted(named(("r1", symbol, "Upregulated"))) == ([], [["fever", symbol, reason]])


def test_of_one_answer_only_as_many_genes_count_as_were_asked_for() -> None:
    table = named(("r1", "A", "Upregulated"), ("r1", "B", "Upregulated"), ("r2", "B", "Upregulated"))
    kept, dropped = counted(table, most_genes=1)
    assert [row[:2] for row in kept] == [["r1", "A"], ["r2", "B"]]
    assert dropped == [["fever", "B", "run r1: beyond the 1 genes asked for"]]


def test_a_gene_that_an_answer_names_twice_counts_once() -> None:
    kept, dropped = counted(named(("r1", "A", "Upregulated"), ("r1", "A", "Upregulated")))
    assert kept == [["r1", "A", "Upregulated"]]
    assert dropped == [["fever", "A", "run r1: named twice in one answer"]]


def test_a_gene_with_both_directions_in_one_answer_is_dropped_in_every_run() -> None:
    rows = [("r1", "A", "Upregulated"), ("r1", "A", "Downregulated"), ("r2", "A", "Upregulated")]
    kept, dropped = counted(named(*rows, ("r2", "B", "Upregulated")))
    assert kept == [["r2", "B", "Upregulated"]]
    reason = "an answer names it with both directions"
    assert dropped == [["fever", "A", f"run {run}: {reason}"] for run in ("r1", "r1", "r2")]


def test_the_same_gene_of_another_phenotype_is_not_touched() -> None:
    rows = named(("r1", "A", "Upregulated"), ("r1", "A", "Downregulated"), ("r1", "A", "Upregulated"))
    rows.loc[2, "phenotype"] = "chill"
    kept, _ = usable_genes(rows, most_genes=10)
    assert kept["phenotype"].tolist() == ["chill"]


def test_no_answers_give_no_genes() -> None:
    assert counted(named()) == ([], [])
