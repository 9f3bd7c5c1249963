"""The evidence filter: a gene needs an abstract that was retrieved, is cited, counts, and speaks of the gene."""

from __future__ import annotations

import json
from dataclasses import replace

import pandas as pd
import pytest

from afa.elicit.abstracts import Abstract, names_gene
from afa.elicit.consensus import evidence_filter
from afa.elicit.record import UNKNOWN, Entry, Question
from afa.elicit.tables import genes_named, reference_table, retrieved_references
from afa.model.study import Study, StudySettings

PARKING = Abstract(
    "pubmed", "1", "Parking in inner cities", 2020, "Traffic", "Cars stand. MUC is a car park.", "10.1/p"
)
MUC2 = Abstract("pubmed", "2", "Mucus in colitis", 2021, "Gut", "MUC2 falls, and so does mucin-like TFF-3.", "10.1/m")
EARLY = Abstract("preprint", "10.1/e", "OSM in colitis", 2022, "bioRxiv", "OSM rises.", "10.1/e")
ABSTRACTS = (PARKING, MUC2, EARLY)
GENE = {
    "gene_symbol": "MUC2",
    "category": "",
    "direction_in_disease": "Upregulated",
    "mechanism_of_action": "",
    "tissue": "",
    "lit_prob": 0.5,
    "evidence_source": "literature",
    "snippet": "",
    "reference_indices": [2],
}


def a_study(**aliases: str) -> Study:
    settings = StudySettings(name="s", disease="IBD", tissue="colon", abstracts=3, references=True)
    phenotypes = pd.DataFrame({"phenotype": ["fever"], "group": "", "definition": ""})
    return Study(settings, phenotypes, {gene: (alias,) for gene, alias in aliases.items()})


def an_entry(*genes: dict) -> Entry:
    raw = json.dumps({"phenotype": "fever", "genes": list(genes)})
    question = Question("unary", {"phenotype": "fever"}, "r1")
    return Entry(question, "m", {}, "p", "w", "answered", raw, "", 1, "2026-01-01T00:00:00+00:00", (1, 1))


def judged(gene: dict, study: Study | None = None, kinds=("article", "preprint")) -> str:
    """The verdict on the only reference of a gene, "" where the gene stays."""
    entry, study = an_entry({**GENE, **gene}), study or a_study()
    named = genes_named([entry])
    kept = pd.DataFrame([("fever", named["gene"][0], 1, 0.5, 1)], columns=["phenotype", "gene", "potential", "c", "n"])
    references = reference_table([entry], [ABSTRACTS], study)
    stays, dropped, verdicts = evidence_filter(kept, named, references, kinds=kinds)
    assert len(stays) + len(dropped) == len(verdicts) == 1
    assert len(stays) == (verdicts["verdict"] == "supports").sum()
    return "" if len(stays) else str(dropped["reason"][0])


def test_a_gene_stays_where_a_cited_abstract_speaks_of_it() -> None:
    assert judged({}) == ""


@pytest.mark.parametrize(
    ("gene", "why"),
    [
        ({"gene_symbol": "ZZZ9", "reference_indices": [1]}, "does not name the gene"),
        ({"reference_indices": [1]}, "does not name the gene"),
        ({"evidence_source": "model_knowledge"}, "the answer says model_knowledge"),
        ({"reference_indices": [4]}, "not retrieved"),
        ({"reference_indices": []}, "none cited"),
    ],
)
def test_a_gene_goes_with_the_reason_where_its_reference_supports_nothing(gene: dict, why: str) -> None:
    assert judged(gene) == f"no supported reference (1 x {why})"


def test_a_source_of_a_kind_that_the_study_does_not_allow_supports_nothing() -> None:
    early = {"gene_symbol": "OSM", "reference_indices": [3]}
    assert judged(early) == ""
    assert "(1 x of a kind that does not count (preprint))" in judged(early, kinds=("article",))


def test_an_alias_of_the_study_counts_as_the_gene() -> None:
    cars = {"gene_symbol": "CARPARK1", "reference_indices": [1]}
    assert "does not name the gene" in judged(cars)
    assert judged(cars, a_study(CARPARK1="car park")) == ""


@pytest.mark.parametrize(
    ("name", "is_named"),
    [
        ("MUC2", True),
        ("muc2", True),
        ("TFF3", True),
        ("TFF", True),
        ("MUC", False),
        ("UC2", False),
        ("mucin-like", True),
        ("mucin like", True),
        ("colitis", True),
        ("AND", False),
        ("", False),
    ],
)
def test_a_name_is_a_whole_word_in_capitals_where_it_is_all_letters(name: str, is_named: bool) -> None:
    assert names_gene(MUC2, [name]) is is_named


def test_references_are_cut_to_those_of_the_prompt() -> None:
    assert retrieved_references("1 4 2", 2) == "1 2"
    assert retrieved_references("", 2) == ""
    assert retrieved_references("1", 0) == ""
    assert retrieved_references(UNKNOWN, 2) == UNKNOWN


def test_a_gene_with_a_formula_for_a_name_reaches_no_table_as_one() -> None:
    entry = an_entry({**GENE, "gene_symbol": "=cmd()", "mechanism_of_action": "+1 for it"})
    references = reference_table([entry], [ABSTRACTS], a_study())
    assert references["gene"].tolist() == ["'=cmd()"]
    assert genes_named([replace(entry)])["mechanism"].tolist() == ["'+1 for it"]
