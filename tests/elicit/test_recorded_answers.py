"""Which entry of a record answers a question, where there are several or none."""

from __future__ import annotations

from typing import Any

import pytest

from afa.elicit.record import Entry, Question, Recorded
from afa.errors import ElicitationError

FEVER = Question("unary", {"phenotype": "fever"}, "r1")
PAIR = Question("pairwise", {"phenotype": "fever", "gene1": "A", "gene2": "B"}, "pairs")


def entry(question: Question = FEVER, **others: Any) -> Entry:
    fields = {"model": "one", "parameters": {}, "prompt_digest": "p", "messages": "m", "outcome": "answered"}
    fields |= {"raw": "{}", "detail": "", "attempt": 1, "time": "2026-01-01T00:00:00+00:00", "tokens": "unknown"}
    return Entry(question, **{**fields, **others})


def test_a_question_that_was_never_asked_has_no_entry() -> None:
    assert Recorded([]).answers([FEVER]) == [None]


def test_an_answer_counts_before_attempts_without_one() -> None:
    attempts = [entry(outcome="refused"), entry(attempt=2), entry(outcome="refused", attempt=3)]
    assert Recorded(attempts).answers([FEVER]) == [attempts[1]]


def test_without_an_answer_the_last_attempt_tells_why() -> None:
    attempts = [entry(outcome="refused"), entry(outcome="unparsable", attempt=2)]
    assert Recorded(attempts).answers([FEVER]) == [attempts[1]]


def test_a_pair_is_found_in_either_order_of_its_genes_and_in_no_other_phenotype() -> None:
    turned = Question("pairwise", {"phenotype": "fever", "gene1": "B", "gene2": "A"}, "pairs")
    other = Question("pairwise", {"phenotype": "chill", "gene1": "A", "gene2": "B"}, "pairs")
    assert Recorded([entry(turned)]).answers([PAIR, other]) == [entry(turned), None]


def test_answers_of_several_models_are_refused_with_the_setting_that_names_one() -> None:
    record = Recorded([entry(), entry(model="two")], place="folder")
    with pytest.raises(ElicitationError, match=r"folder, unary fever, run r1: found answers of one, two; .* models"):
        record.answers([FEVER])


def test_the_model_that_is_named_for_a_voter_is_the_one_that_counts() -> None:
    record = Recorded([entry(), entry(model="two")], {"r1": "two"})
    assert record.answers([FEVER]) == [entry(model="two")]


@pytest.mark.parametrize("other", [{"messages": "n"}, {"prompt_digest": "q"}, {"parameters": {"seed": 1}}])
def test_answers_of_one_model_to_several_wordings_are_refused(other: dict[str, Any]) -> None:
    record = Recorded([entry(), entry(**other)])
    with pytest.raises(ElicitationError, match=r"answers of one to 2 wordings .*`afa elicit merge --prompt`"):
        record.answers([FEVER])


def test_a_second_model_that_gave_no_answer_is_no_hindrance() -> None:
    assert Recorded([entry(), entry(model="two", outcome="refused")]).answers([FEVER]) == [entry()]
