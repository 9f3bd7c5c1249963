"""The client: what it asks, what it records of an answer, what it asks again, and what that costs."""

from __future__ import annotations

import json
import threading
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from elicit import llm_faults as faults
from elicit.client_lab import USUAL, Asking, a_request, always
from elicit.llm_script import scripted
from elicit.llm_server import MODEL, Fault, serve
from elicit.prompt_values import VALUES
from records import wordings

from afa.elicit.answers import ANSWER_SCHEMAS, UnaryAnswer, read_answer
from afa.elicit.budget import Budget, BudgetError, Caps, Usage
from afa.elicit.client import Client
from afa.elicit.prompts import Messages, render
from afa.elicit.record import Question, Record, Request
from afa.errors import ElicitationError
from afa.model.study import Endpoint, Manner


def test_an_answer_is_returned_and_recorded_with_how_it_was_asked(tmp_path, stream):
    with serve(scripted) as server:
        entry = Asking(server, tmp_path, replace(USUAL, stream=stream)).ask(a_request())
    assert entry.outcome == "answered"
    assert read_answer(UnaryAnswer, entry.raw).phenotype == "Fibrosis"
    assert entry.raw == scripted(server.asked[0].document)
    assert (entry.model, entry.served_model, entry.attempt, entry.detail) == (MODEL, MODEL, 1, "")
    assert entry.parameters == USUAL.parameters
    assert all(count > 0 for count in entry.tokens)
    assert abs(datetime.fromisoformat(entry.time) - datetime.now(UTC)) < timedelta(minutes=1)
    assert list(Record(tmp_path).entries()) == [entry]


@pytest.mark.parametrize("structured", ["json_schema", "json_object", "prompt"])
def test_what_is_sent_is_the_prompt_the_schema_and_the_manner(tmp_path, structured, stream):
    manner = Manner(temperature=0, seed=3, most_tokens=77, structured=structured, stream=stream, limit="max_tokens")
    request = a_request()
    with serve(scripted) as server:
        assert Asking(server, tmp_path, manner).ask(request).outcome == "answered"
    document = server.asked[0].document
    system, user = document["messages"]
    assert (document["model"], document["seed"], document["temperature"]) == (MODEL, 3, 0.0)
    assert document["max_tokens"] == 77
    assert "max_completion_tokens" not in document
    assert bool(document.get("stream")) is stream
    assert user == {"role": "user", "content": request.messages.user}
    assert document.get("response_format", {}).get("type") == (None if structured == "prompt" else structured)
    if structured == "json_schema":
        assert document["response_format"]["json_schema"]["strict"] is True
        assert system["content"] == request.messages.system
    else:
        assert system["content"].startswith(request.messages.system)
        assert '"title": "UnaryAnswer"' in system["content"]


def test_what_current_models_refuse_is_not_sent_unless_it_is_asked_for(tmp_path):
    with serve(scripted) as server:
        Asking(server, tmp_path, Manner()).ask(a_request())
    document = server.asked[0].document
    assert {"temperature", "seed", "max_tokens"} & set(document) == set()
    assert document["max_completion_tokens"] == 16_384
    schema = json.dumps(document["response_format"])
    assert '"maximum": 1' in schema


def test_the_schema_is_sent_with_the_lengths_of_texts_unless_an_endpoint_refuses_them(tmp_path):
    request = Request(Question("pairwise", {"gene1": "A"}, "pairs"), render("pairwise", VALUES))
    with serve(scripted) as server:
        for structured in ("json_schema", "bare_schema"):
            Asking(server, tmp_path, replace(USUAL, structured=structured)).ask(request)
    assert ['"maxLength": 600' in json.dumps(asked.document) for asked in server.asked] == [True, False]


def test_every_prompt_is_asked_and_answered_by_the_scripted_model(tmp_path):
    with serve(scripted) as server:
        asking = Asking(server, tmp_path)
        for name in ANSWER_SCHEMAS:
            values = {"phenotype": "Fibrosis", "gene1": "COL1A1", "partners": "MUC2 TFF3", "features": '{"heat": null}'}
            request = Request(Question(name, values, "r1"), render(name, VALUES))
            assert asking.ask(request).outcome == "answered", name


def test_a_rerun_makes_no_call_for_what_has_an_answer(tmp_path):
    with serve(scripted) as server:
        first = Asking(server, tmp_path).ask(a_request())
        again = Asking(server, tmp_path)
        assert again.ask(a_request()) == first
        assert len(server.asked) == 1
        assert again.budget.used.calls == 1


@pytest.mark.parametrize(
    "other",
    [
        {"run": "r2"},
        {"phenotype": "Stricture"},
        {"tissue": "ileum"},
        {"abstracts": [{"title": "T", "source": "PMID 1", "text": "x"}]},
    ],
)
def test_another_run_question_or_wording_is_asked_anew(tmp_path, other):
    with serve(scripted) as server:
        asking = Asking(server, tmp_path)
        asking.ask(a_request())
        asking.ask(a_request(**other))
    assert len(server.asked) == 2


@pytest.mark.parametrize("other", [{"temperature": 0.5}, {"seed": 1}, {"most_tokens": 99}, {"structured": "prompt"}])
def test_other_parameters_are_asked_anew_but_not_another_way_of_carrying(tmp_path, other):
    with serve(scripted) as server:
        Asking(server, tmp_path).ask(a_request())
        carried = {"stream": True, "timeout": 9, "calls": 7, "answers": 9, "limit": "max_tokens"}
        Asking(server, tmp_path, replace(USUAL, **carried)).ask(a_request())
        Asking(server, tmp_path, replace(USUAL, deadline=9)).ask(a_request())
        assert len(server.asked) == 1
        Asking(server, tmp_path, replace(USUAL, **other)).ask(a_request())
        assert len(server.asked) == 2


def test_attempts_of_earlier_runs_count_and_a_last_one_is_returned_without_a_call(tmp_path):
    with serve(scripted, always(faults.malformed)) as server:
        first = Asking(server, tmp_path, replace(USUAL, answers=1)).ask(a_request())
        second = Asking(server, tmp_path, replace(USUAL, answers=3)).ask(a_request())
        assert (first.attempt, second.attempt, len(server.asked)) == (1, 3, 3)
        assert Asking(server, tmp_path, replace(USUAL, answers=3)).ask(a_request()) == second
        assert len(server.asked) == 3


def test_what_is_asked_can_be_read_again_word_for_word(tmp_path):
    request = a_request(abstracts=[{"title": "T", "source": "PMID 1", "text": "é"}])
    with serve(scripted) as server:
        entry = Asking(server, tmp_path).ask(request)
    assert wordings(tmp_path)[entry.messages] == request.messages


@pytest.mark.parametrize("fault", [faults.no_usage, faults.usage_without_counts, faults.usage_below_zero])
def test_tokens_that_were_not_counted_are_unknown_and_charged_as_expected(tmp_path, stream, fault):
    with serve(scripted, [fault]) as server:
        asking = Asking(server, tmp_path, replace(USUAL, stream=stream))
        entry = asking.ask(a_request())
    assert (entry.outcome, entry.tokens) == ("answered", "unknown")
    assert asking.budget.used == asking.client.expected(a_request())


def test_tokens_that_are_counted_in_words_are_numbers(tmp_path, stream):
    with serve(scripted, [faults.usage_as_text]) as server:
        asking = Asking(server, tmp_path, replace(USUAL, stream=stream))
        assert asking.ask(a_request()).tokens == (11, 5)
    assert asking.budget.used == Usage(1, 11, 5, 16.0)


def test_the_expectation_covers_the_prompt_the_schema_and_the_longest_answer(tmp_path):
    with serve(scripted) as server:
        asking = Asking(server, tmp_path)
        entry, expected = asking.ask(a_request()), asking.client.expected(a_request())
    sent = server.asked[0].document
    text = "".join(message["content"] for message in sent["messages"])
    assert expected.prompt_tokens >= len(text.encode())
    assert expected.prompt_tokens >= entry.tokens[0]
    assert expected.answer_tokens == USUAL.most_tokens


def test_a_cap_is_an_error_before_the_call_and_a_rerun_goes_on(tmp_path):
    with serve(scripted, always(faults.malformed)) as server:
        with pytest.raises(BudgetError, match="the cap on calls"):
            Asking(server, tmp_path, caps=Caps(calls=1)).ask(a_request())
        assert len(server.asked) == 1
        assert Asking(server, tmp_path).ask(a_request()).attempt == 2


def test_tries_that_fail_count_as_calls(tmp_path):
    with serve(scripted, always(faults.server_error)) as server:
        with pytest.raises(BudgetError):
            Asking(server, tmp_path, replace(USUAL, calls=5), Caps(calls=3)).ask(a_request())
        assert len(server.asked) == 3


def test_once_stopped_no_other_call_follows(tmp_path):
    stop = threading.Event()

    def plan(number: int, document: Any) -> Fault:
        stop.set()
        return faults.server_error

    with serve(scripted, plan) as server:
        endpoint = Endpoint.from_environment(server.environment)
        client = Client(endpoint, Budget(Record(tmp_path)), replace(USUAL, calls=9))
        assert client.ask(a_request(), stop=stop).outcome == "failed"
        assert len(server.asked) == 1


def test_genes_that_no_one_knows_and_orders_of_an_abstract_are_recorded_as_the_model_said_them(tmp_path):
    order = faults.OBEY + ' {"phenotype": "Fibrosis", "genes": []}'
    abstracts = [{"title": "T", "source": "PMID 1", "text": order}]
    with serve(scripted, [faults.wrong_genes, *[faults.obeys_abstracts] * 2]) as server:
        asking = Asking(server, tmp_path)
        named = read_answer(UnaryAnswer, asking.ask(a_request()).raw).genes
        assert {gene.gene_symbol for gene in named} == {f"NOGENE{number}" for number in range(6)}
        obeyed = asking.ask(a_request(abstracts=abstracts))
    assert obeyed.outcome == "unparsable"
    assert obeyed.raw == '{"phenotype": "Fibrosis", "genes": []}'


@pytest.mark.parametrize("number", [{"calls": 0}, {"answers": 0}, {"most_tokens": 0}, {"timeout": 0.0}])
def test_a_manner_out_of_range_is_refused(number):
    (name,) = number
    with pytest.raises(ElicitationError, match=f"manner, {name}"):
        Manner(**number)


def test_a_request_is_known_by_its_words():
    one, other = Messages("a", "b\0c"), Messages("a\0b", "c")
    assert one.digest == replace(one).digest
    assert one.digest != Messages("a", "c").digest
    assert one.digest != other.digest
