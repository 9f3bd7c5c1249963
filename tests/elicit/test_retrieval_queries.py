"""Phenotypes in their several names, and what is asked of each service."""

from __future__ import annotations

from pathlib import Path

import pandas as pd
import pytest

from afa.elicit.search import EuropePmc, Keywords, PubMed, Query, pair_query, plain, read_keywords, unary_query
from afa.errors import ElicitationError

RESOURCES = Path(__file__).parents[2] / "resources" / "elicitation"
KEYWORDS = Keywords({"perianal_disease": ["perianal fistula", "anal fistula"], "IBD": ["Crohn's disease"]})


def test_a_known_phenotype_expands_to_its_keywords_without_a_note() -> None:
    assert KEYWORDS.expanded("perianal_disease") == (("perianal fistula", "anal fistula"), "")
    assert KEYWORDS.expanded("Perianal disease") == KEYWORDS.expanded("perianal_disease")


def test_an_unknown_phenotype_expands_to_its_own_words_with_a_note() -> None:
    phrases, note = KEYWORDS.expanded("chronic_diarrhea")
    assert phrases == ("chronic diarrhea",)
    assert "chronic_diarrhea" in note


def test_every_phenotype_of_the_record_and_its_disease_have_keywords() -> None:
    keywords = read_keywords(RESOURCES / "keywords.csv")
    names = [*pd.read_csv(RESOURCES / "phenotypes.csv")["phenotype"], "inflammatory bowel disease"]
    assert [name for name in names if keywords.expanded(name)[1]] == []


def test_keywords_name_no_gene_of_the_record() -> None:
    # A gene among the keywords would decide which genes the retrieved abstracts speak of.
    rows = pd.read_csv(RESOURCES / "keywords.csv")
    genes = {path.stem: pd.read_json(path, typ="series")["genes"] for path in RESOURCES.glob("raw/unary/r1/*.json")}
    symbols = {gene["gene_symbol"] for listed in genes.values() for gene in listed}
    assert len(symbols) > 100
    assert symbols & set(rows["keyword"]) <= {"CRP"}


def test_pubmed_is_asked_for_phenotype_and_disease_in_title_or_abstract() -> None:
    query = unary_query(KEYWORDS.expanded("perianal_disease")[0], KEYWORDS.expanded("IBD")[0])
    expected = '("perianal fistula"[tiab] OR "anal fistula"[tiab]) AND ("Crohn\'s disease"[tiab])'
    assert PubMed("a@example.org").written(query) == expected


def test_europe_pmc_is_asked_for_preprints_only() -> None:
    query = pair_query([["MUC2"], ["HLA-DRB1"]], ["anal fistula"], ["IBD"])
    words = ["MUC2", "HLA-DRB1", "anal fistula", "IBD"]
    assert EuropePmc().written(query) == " AND ".join([*(f'(TITLE_ABS:"{word}")' for word in words), "(SRC:PPR)"])


def test_a_name_cannot_change_the_question() -> None:
    hostile = 'MUC2"[tiab] OR "cancer" SRC:MED (x) \\ *'
    assert plain(hostile) == "MUC2 tiab OR cancer SRC MED x"
    written = PubMed("a@example.org").written(pair_query([[hostile], ["TFF3"]], [], ["IBD"]))
    assert written == '("MUC2 tiab OR cancer SRC MED x"[tiab]) AND ("TFF3"[tiab]) AND ("IBD"[tiab])'


def test_a_name_without_letters_is_refused() -> None:
    with pytest.raises(ElicitationError, match="letters or digits"):
        pair_query([['""'], ["TFF3"]], [], ["IBD"])


def test_phrases_stand_once() -> None:
    assert Query((("a", "b"), ("b", "c"))).phrases == ("a", "b", "c")


@pytest.mark.parametrize(
    ("rows", "found"),
    [
        ("name,word\nx,y\n", "keyword"),
        ("name,keyword\nx,\n", "line 2, column keyword"),
        ("name,keyword\n,y\n", "line 2, column name"),
        ("name,keyword\nx,y\nx,y\n", "line 3, column keyword"),
    ],
)
def test_a_faulty_table_of_keywords_is_an_error_that_names_the_row(tmp_path: Path, rows: str, found: str) -> None:
    path = tmp_path / "keywords.csv"
    path.write_text(rows)
    with pytest.raises(ElicitationError, match=found):
        read_keywords(path)


def test_a_table_of_keywords_that_is_not_there_is_an_error(tmp_path: Path) -> None:
    with pytest.raises(ElicitationError, match=r"keywords\.csv"):
        read_keywords(tmp_path / "keywords.csv")
