"""BM25 against its formula by hand, and an order that nothing but the texts decides."""

from __future__ import annotations

import math
from itertools import permutations

import pytest

from afa.elicit.abstracts import Abstract
from afa.elicit.retrieval import K1, B, best_matches, bm25, words


def article(number: str, text: str, title: str = "T") -> Abstract:
    return Abstract("pubmed", number, title, 2020, "Gut", text)


def test_scores_are_those_of_the_formula() -> None:
    # Three documents of 2, 4 and 3 words, mean 3; "muc2" stands once in the first, twice in the second.
    documents = [["muc2", "colon"], ["muc2", "muc2", "goblet", "cell"], ["tnf", "colon", "cell"]]
    idf = math.log(1 + (3 - 2 + 0.5) / (2 + 0.5))
    expected = [idf * f / (f + K1 * (1 - B + B * n / 3)) for f, n in ((1, 2), (2, 4))]
    assert bm25(documents, ["muc2"]) == pytest.approx([*expected, 0.0], abs=1e-8)


def test_words_that_no_document_has_score_nothing() -> None:
    assert bm25([["muc2"], []], ["tnf", ""]) == [0.0, 0.0]
    assert bm25([], ["tnf"]) == []


def test_the_abstract_that_names_both_genes_stands_before_those_that_name_one() -> None:
    texts = [article("3", "MUC2 in the colon"), article("2", "TFF3 in the colon"), article("1", "MUC2 and TFF3 here")]
    assert [each.id for each, _ in best_matches(texts, ["MUC2", "TFF3"], 3)] == ["1", "2", "3"]


def test_ties_go_by_source_and_number_whatever_the_order_of_the_candidates() -> None:
    texts = [
        article("12", "MUC2 falls"),
        article("100", "MUC2 falls"),
        Abstract("preprint", "x", "T", 1, "", "MUC2 falls"),
    ]
    orders = {tuple(each.id for each, _ in best_matches(order, ["MUC2"], 3)) for order in permutations(texts)}
    assert orders == {("x", "100", "12")}


def test_the_order_of_the_phrases_does_not_change_a_score() -> None:
    texts = [article(str(n), f"MUC2 {'goblet ' * n} perianal fistula") for n in range(1, 6)]
    phrases = ["MUC2", "goblet cell", "perianal fistula", "Crohn's disease"]
    assert len({best_matches(texts, order, 5) for order in permutations(phrases)}) == 1


def test_an_abstract_with_none_of_the_words_is_left_out() -> None:
    assert best_matches([article("1", "asthma in the lung")], ["perianal fistula"], 5) == ()


def test_no_more_are_given_than_asked_for() -> None:
    texts = [article(str(n), "MUC2") for n in range(1, 6)]
    assert len(best_matches(texts, ["MUC2"], 2)) == 2


def test_a_symbol_is_found_as_publications_write_it() -> None:
    assert set(words("IL-1β and TNF-α rise; Behçet")) >= {"il1b", "tnfa", "behcet", "il", "tnf"}
    assert words("HLA-DRB1") == words("hla-drb1") == ["hla", "drb1", "hladrb1"]
