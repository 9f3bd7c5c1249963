"""What an answer cites, against the abstracts of its prompt."""

from __future__ import annotations

import pytest

from afa.elicit.abstracts import Abstract
from afa.elicit.answers import PairAnswer, UnaryAnswer
from afa.elicit.citations import (
    CITATION_COLUMNS,
    COUNT_COLUMNS,
    checked,
    citation_counts,
    citation_table,
    cited,
    retrieved_references,
)
from afa.elicit.record import UNKNOWN, Question

SHOWN = [
    Abstract("pubmed", "99000001", "One", 2019, "Gut", "MUC2 falls.", "10.1136/gutjnl-99-1"),
    Abstract("preprint", "10.1101/2021.03.04.99", "Two", 2021, "bioRxiv", "TFF3 falls.", "10.1101/2021.03.04.99"),
]
PAIR = Question("pairwise", {"phenotype": "perianal_disease", "gene1": "MUC2", "gene2": "TFF3"}, "pairs")


def pair(text: str, numbers: list[int] | None = None, source: str = "literature") -> PairAnswer:
    return PairAnswer.model_validate(
        {
            "lit_direction": "same",
            "lit_prob": 0.7,
            "evidence_source": source,
            "supporting_text": text,
            "reference_indices": numbers or [],
        }
    )


def verdicts(answer: PairAnswer) -> dict[tuple[str, str], bool]:
    [only] = checked(PAIR, answer, SHOWN)
    return {(kind, name): was_retrieved for kind, name, was_retrieved in only.citations}


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("[UC] both fall [1], [2, 4-6]", [("number", n) for n in "12456"]),
        ("[1\u20133]", [("number", n) for n in "123"]),
        ("[DSS-colitis] CI [1.2, 3.4], in [2019]", []),
        ("[3-900]", [("number", "3"), ("number", "900")]),
        ("PMID: 99000001, and pmid99000002", [("pmid", "99000001"), ("pmid", "99000002")]),
        ("PMIDs 123456, 234567 and 345678", [("pmid", "123456"), ("pmid", "234567"), ("pmid", "345678")]),
        ("[PMID:99000001]", [("pmid", "99000001")]),
        ("https://pubmed.ncbi.nlm.nih.gov/99000001/", [("pmid", "99000001")]),
        ("(doi:10.1136/GUTJNL-99-1).", [("doi", "10.1136/gutjnl-99-1")]),
        ("10.1016/S0140-6736(99)01234-5, and", [("doi", "10.1016/s0140-6736(99)01234-5")]),
        ("PMC1234567; PPR12345", [("other", "PMC1234567"), ("other", "PPR12345")]),
        ("Müller et al., 2019, as before (Smith & Jones, 2020).", []),
        ("CXCL8 is up 10.5 fold in 2020 of 3 [UC] patients", []),
    ],
)
def test_citations_are_found_as_models_write_them(text: str, expected: list[tuple[str, str]]) -> None:
    assert list(cited(text)) == expected


def test_what_stands_in_the_prompt_is_retrieved_by_number_pmid_and_doi() -> None:
    answer = pair("[UC] PMID 99000001; doi 10.1101/2021.03.04.99; 10.1136/gutjnl-99-1 [2]", [1])
    assert all(verdicts(answer).values())
    assert len(verdicts(answer)) == 5


@pytest.mark.parametrize("text", ["PMID 99000002", "doi:10.1136/gutjnl-99-2", "[3]", "PMC7654321"])
def test_a_citation_that_was_not_retrieved_is_counted_and_flagged(text: str) -> None:
    [only] = checked(PAIR, pair(f"[UC] {text}", [1]), SHOWN)
    assert (only.retrieved, len(only.citations), only.flagged) == (1, 2, True)


def test_a_number_beyond_the_abstracts_of_the_prompt_is_not_retrieved() -> None:
    assert verdicts(pair("", [3])) == {("number", "3"): False}


def test_literature_claimed_without_a_retrieved_citation_is_flagged() -> None:
    [claimed], [known] = (checked(PAIR, pair("known", source=s), SHOWN) for s in ("literature", "model_knowledge"))
    assert (claimed.flagged, known.flagged) == (True, False)


def test_the_same_citation_counts_once_in_an_answer() -> None:
    assert len(verdicts(pair("[1] and [1], PMID 99000001, PMID 99000001", [1]))) == 2


def test_each_gene_of_an_answer_is_checked_by_itself() -> None:
    gene = {
        "category": "mucus",
        "direction_in_disease": "Downregulated",
        "mechanism_of_action": "MUC2 -> mucus -> fistula",
        "tissue": "colon",
        "lit_prob": 0.5,
        "evidence_source": "literature",
        "snippet": "",
        "reference_indices": [1],
    }
    genes = [{**gene, "gene_symbol": "MUC2"}, {**gene, "gene_symbol": "TFF3", "reference_indices": [7]}]
    answer = UnaryAnswer.model_validate({"phenotype": "perianal_disease", "genes": genes})
    counts = citation_counts(checked(Question("unary", {"phenotype": "perianal_disease"}, "r1"), answer, SHOWN))
    assert counts[["item", "retrieved", "not_retrieved", "flagged"]].to_numpy().tolist() == [
        ["MUC2", 1, 0, False],
        ["TFF3", 0, 1, True],
    ]


def test_the_tables_name_question_and_verdict() -> None:
    answers = checked(PAIR, pair("PMID 99000002", [2]), SHOWN)
    table, counts = citation_table(answers), citation_counts(answers)
    assert list(table.columns) == CITATION_COLUMNS
    assert list(counts.columns) == COUNT_COLUMNS
    assert table[["gene1", "gene2", "kind", "citation", "verdict"]].to_numpy().tolist() == [
        ["MUC2", "TFF3", "number", "2", "retrieved"],
        ["MUC2", "TFF3", "pmid", "99000002", "not retrieved"],
    ]
    assert list(citation_counts([]).columns) == COUNT_COLUMNS


def test_references_are_cut_to_those_of_the_prompt() -> None:
    assert retrieved_references("1 4 2", 2) == "1 2"
    assert retrieved_references("", 2) == ""
    assert retrieved_references("1", 0) == ""
    assert retrieved_references(UNKNOWN, 2) == UNKNOWN
