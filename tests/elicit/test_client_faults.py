"""Whatever an endpoint does wrong ends in an outcome that is recorded or in a named error, after bounded tries."""

from __future__ import annotations

import gzip
import json
import re
import sys
import time
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from email.utils import format_datetime

import pytest
from elicit import llm_faults as faults
from elicit.client_lab import USUAL, Asking, a_request, always
from elicit.llm_script import scripted
from elicit.llm_server import serve
from elicit.prompt_values import PAIR, VALUES

from afa.elicit.answers import TEXT_LENGTH, PairAnswer, UnaryAnswer, read_answer
from afa.elicit.budget import Budget, BudgetError, Caps, Usage
from afa.elicit.client import LARGEST_REPLY, Client
from afa.elicit.live import ask_all
from afa.elicit.prompts import render
from afa.elicit.record import Question, Record, Request
from afa.errors import ElicitationError
from afa.model.study import Endpoint

HASTY = replace(USUAL, timeout=0.2)


@pytest.mark.parametrize(
    ("fault", "outcome", "detail"),
    [
        ("malformed", "unparsable", "the whole answer: no JSON"),
        ("empty", "unparsable", "the whole answer: no JSON"),
        ("missing_key", "unparsable", "phenotype: Field required"),
        ("refused", "refused", "I cannot help"),
        ("filtered", "refused", "filter"),
        ("truncated", "incomplete", "largest number of tokens"),
        ("no_choices", "incomplete", "broke off"),
    ],
)
def test_what_is_no_answer_is_recorded_as_such_each_time_within_the_bound(tmp_path, fault, outcome, detail):
    with serve(scripted, always(getattr(faults, fault))) as server:
        asking = Asking(server, tmp_path)
        entry = asking.ask(a_request())
    assert (entry.outcome, entry.attempt) == (outcome, 2)
    assert detail in entry.detail
    assert [one.outcome for one in Record(tmp_path).entries()] == [outcome] * 2
    assert len(server.asked) == asking.budget.used.calls == 2
    assert asking.waits == []


@pytest.mark.parametrize(
    ("fault", "detail"),
    [
        ("closed", "no whole reply .peer closed connection"),
        ("reset", "no whole reply .*reset"),
        ("not_json", "no chat completion .an HTML page: A proxy speaks"),
        ("half_json", "no chat completion .JSON that is cut or broken: {"),
        ("null", "no chat completion .JSON without a message: null"),
        ("server_error", "500.*had an error"),
        ("unavailable", "503.*Overloaded"),
    ],
)
def test_an_endpoint_that_fails_is_tried_again_within_the_bound_and_then_recorded(tmp_path, stream, fault, detail):
    with serve(scripted, always(getattr(faults, fault))) as server:
        asking = Asking(server, tmp_path, replace(USUAL, stream=stream, calls=3))
        entry = asking.ask(a_request())
    assert (entry.outcome, entry.attempt) == ("failed", 1)
    assert re.search(detail, entry.detail)
    assert len(server.asked) == asking.budget.used.calls == 3
    assert len(asking.waits) == 2


@pytest.mark.parametrize("fault", [faults.slow(2.0), faults.stalling(2.0)], ids=["slow", "stalling"])
def test_a_reply_that_stalls_past_the_timeout_is_given_up(tmp_path, stream, fault):
    with serve(scripted, always(fault)) as server:
        entry = Asking(server, tmp_path, replace(HASTY, stream=stream)).ask(a_request())
        assert len(server.asked) == 2
    assert entry.outcome == "failed"
    assert "silence for 0.2 seconds" in entry.detail


def test_a_reply_that_is_slow_within_the_timeout_is_an_answer(tmp_path, stream):
    with serve(scripted, [faults.slow(0.2)]) as server:
        assert Asking(server, tmp_path, replace(USUAL, stream=stream)).ask(a_request()).outcome == "answered"


def test_a_stream_that_ends_in_order_before_its_answer_is_incomplete(tmp_path):
    with serve(scripted, always(faults.broken_off)) as server:
        entry = Asking(server, tmp_path, replace(USUAL, stream=True)).ask(a_request())
    assert entry.outcome == "incomplete"
    assert scripted(server.asked[0].document).startswith(entry.raw)
    assert entry.raw


@pytest.mark.parametrize("fault", ["server_error", "closed", "half_json", "malformed", "refused", "truncated"])
def test_what_goes_wrong_once_is_mended_by_the_next_call(tmp_path, stream, fault):
    with serve(scripted, [getattr(faults, fault)]) as server:
        entry = Asking(server, tmp_path, replace(USUAL, stream=stream)).ask(a_request())
    assert entry.outcome == "answered"
    assert len(server.asked) == 2


@pytest.mark.parametrize(
    ("fault", "told"),
    [
        (faults.bad_request, "400.*'temperature'"),
        (faults.forbidden, "401.*Incorrect API key"),
        (lambda reply, _: replace(reply, status=404, error="no such model"), "404.*no such model"),
        (lambda reply, _: replace(reply, status=422, error="too many"), "422.*too many"),
        (
            lambda reply, _: replace(
                reply, status=429, body=b'{"error": {"message": "You have no credit.", "code": "insufficient_quota"}}'
            ),
            "429.*no credit",
        ),
    ],
)
def test_what_no_other_try_can_mend_is_an_error_at_once(tmp_path, fault, told):
    with serve(scripted, always(fault)) as server:
        asking = Asking(server, tmp_path)
        with pytest.raises(ElicitationError, match=told) as raised:
            asking.ask(a_request())
    assert len(server.asked) == 1
    assert raised.value.faults[0].where == server.url
    assert list(Record(tmp_path).entries()) == []
    assert asking.budget.used == Usage(1, 0, 0, 0.0)


def test_a_question_that_the_endpoint_filters_by_an_error_is_refused_and_others_go_on(tmp_path):
    body = b'{"error": {"message": "The prompt was filtered.", "code": "content_filter"}}'
    with serve(scripted, always(lambda reply, _: replace(reply, status=400, body=body))) as server:
        entry = Asking(server, tmp_path).ask(a_request())
    assert entry.outcome == "refused"
    assert "The prompt was filtered." in entry.detail


def test_an_address_where_nothing_answers_is_a_failure_that_says_why(tmp_path):
    with serve(scripted) as server:
        pass
    entry = Asking(server, tmp_path).ask(a_request())
    assert entry.outcome == "failed"
    assert "refused" in entry.detail


def _date(seconds: float) -> str:
    return format_datetime(datetime.now(UTC) + timedelta(seconds=seconds), usegmt=True)


@pytest.mark.parametrize(
    ("asked", "low", "high"),
    [
        ("7", 6, 7),
        ("1.5", 1, 1.5),
        ("290", 289, 290),
        ("0", 0.5, 1),
        ("-5", 0.5, 1),
        ("nan", 0.5, 1),
        ("inf", 0.5, 1),
        ("soon", 0.5, 1),
        ("Mon, 99 Foo 2024", 0.5, 1),
        (-1e6, 0.5, 1),
        (None, 0.5, 1),
    ],
)
def test_a_rate_limit_is_waited_for_as_asked(tmp_path, asked, low, high):
    # A number of seconds is asked for as a date; the date itself, another each time, would be part of the test's name.
    words = _date(asked) if isinstance(asked, float) else asked
    with serve(scripted, [faults.rate_limited(words)]) as server:
        asking = Asking(server, tmp_path)
        assert asking.ask(a_request()).outcome == "answered"
    assert len(asking.waits) == 1
    assert low <= asking.waits[0] <= high


def test_a_date_in_retry_after_is_seconds_from_now(tmp_path):
    with serve(scripted, [faults.rate_limited(_date(30))]) as server:
        asking = Asking(server, tmp_path)
        asking.ask(a_request())
    assert 25 <= asking.waits[0] <= 30


@pytest.mark.parametrize("asked", ["3600", 1e6])
def test_a_rate_limit_that_is_too_long_to_wait_for_ends_the_run_with_its_end(tmp_path, asked):
    words = _date(asked) if isinstance(asked, float) else asked
    with serve(scripted, [faults.rate_limited(words)]) as server:
        asking = Asking(server, tmp_path)
        with pytest.raises(
            ElicitationError, match=r"asks to wait until (\d{4}-\d\d-\d\d .*\+00:00); .*run again after"
        ) as told:
            asking.ask(a_request())
    until = datetime.fromisoformat(re.search(r"wait until (.{25});", str(told.value))[1])
    if asked == "3600":
        assert abs(until - datetime.now(UTC) - timedelta(hours=1)) < timedelta(minutes=1)
    assert (asking.waits, len(server.asked)) == ([], 1)


def test_all_threads_wait_for_a_rate_limit_that_one_of_them_met(tmp_path):
    with serve(scripted, [faults.rate_limited("1")]) as server:
        endpoint = Endpoint.from_environment(server.environment)
        client = Client(endpoint, Budget(Record(tmp_path)), USUAL)
        begin = time.monotonic()
        ask_all([a_request(f"F{number}") for number in range(3)], client, concurrency=1)
        assert time.monotonic() - begin >= 1
        assert len(server.asked) == 4


def test_waits_double_and_are_spread(tmp_path):
    with serve(scripted, always(faults.server_error)) as server:
        asking = Asking(server, tmp_path, replace(USUAL, calls=5))
        asking.ask(a_request())
    assert all(2**turn / 2 <= wait <= 2**turn for turn, wait in enumerate(asking.waits))
    assert len(asking.waits) == 4


def test_a_failure_of_the_endpoint_does_not_use_up_an_attempt(tmp_path):
    plan = [faults.server_error, faults.server_error, faults.malformed]
    with serve(scripted, plan) as server:
        assert Asking(server, tmp_path).ask(a_request()).outcome == "failed"
        entry = Asking(server, tmp_path).ask(a_request())
    assert (entry.outcome, entry.attempt) == ("answered", 2)


def test_half_of_a_character_is_no_answer_and_does_not_stop_the_record(tmp_path):
    with serve(scripted, always(faults.says('{"phenotype": "\ud800"}'))) as server:
        entry = Asking(server, tmp_path).ask(a_request())
    assert (entry.outcome, entry.raw) == ("unparsable", '{"phenotype": "?"}')
    assert len(list(Record(tmp_path).entries())) == 2


@pytest.mark.parametrize(
    "body",
    [
        b'{"choices": "none"}',
        b'{"choices": [{"message": null, "finish_reason": "stop"}]}',
        b'{"choices": [{"message": {"content": 7}, "finish_reason": "stop"}]}',
        b'{"choices": [7]}',
        b'{"choices": null}',
        b"[]",
        b'"text"',
        b"",
        b"[" * 100_000,
    ],
)
def test_a_document_that_is_no_chat_completion_is_a_failure_of_the_endpoint_which_the_record_keeps(tmp_path, body):
    with serve(scripted, always(lambda reply, _: replace(reply, body=body))) as server:
        entry = Asking(server, tmp_path).ask(a_request())
        assert len(server.asked) == 2
    assert (entry.outcome, entry.raw) == ("failed", body.decode())


@pytest.mark.parametrize(
    ("fault", "note"),
    [
        (faults.fenced, "fence set aside; words before it set aside"),
        (faults.thinks, "thoughts set aside"),
        (faults.extra_key, "remark removed"),
        (faults.prefaced, "words before it set aside"),
        (faults.repeats_key, "words after it set aside"),
    ],
)
def test_what_an_answer_is_wrapped_in_is_set_aside_on_record(tmp_path, fault, note):
    with serve(scripted, always(fault)) as server:
        entry = Asking(server, tmp_path).ask(a_request())
    assert (entry.outcome, entry.attempt, entry.detail) == ("answered", 1, note)
    assert entry.raw != scripted(server.asked[0].document)
    assert read_answer(UnaryAnswer, entry.raw).phenotype == "Fibrosis"


def test_a_text_that_is_too_long_is_cut_on_record(tmp_path):
    request = Request(Question("pairwise", {"gene1": "A"}, "pairs"), render("pairwise", VALUES))
    said = json.dumps({**PAIR, "supporting_text": "x" * (TEXT_LENGTH + 1)})
    with serve(scripted, always(faults.says(said))) as server:
        entry = Asking(server, tmp_path).ask(request)
    assert (entry.outcome, entry.detail) == ("answered", "supporting_text cut from 601 to 600 characters")
    assert len(read_answer(PairAnswer, entry.raw).supporting_text) == TEXT_LENGTH


def test_a_question_that_is_repeated_carries_what_was_wrong_with_the_answer(tmp_path):
    with serve(scripted, [faults.missing_key]) as server:
        entry = Asking(server, tmp_path).ask(a_request())
    first, second = (asked.document["messages"][1]["content"] for asked in server.asked)
    assert second == f"{first}\nYour last answer was not taken: phenotype: Field required. Answer again.\n"
    assert (entry.outcome, entry.attempt, entry.messages) == ("answered", 2, a_request().messages.digest)


def test_a_refusal_is_repeated_as_it_was(tmp_path):
    with serve(scripted, [faults.refused]) as server:
        Asking(server, tmp_path).ask(a_request())
    assert server.asked[0].body == server.asked[1].body


@pytest.mark.parametrize("fault", [faults.drips, faults.drips_headers], ids=["body", "headers"])
def test_a_reply_that_drips_is_given_up_at_the_deadline(tmp_path, fault):
    with serve(scripted, always(fault)) as server:
        begin = time.monotonic()
        entry = Asking(server, tmp_path, replace(USUAL, deadline=0.5, calls=1)).ask(a_request())
        assert time.monotonic() - begin < 5
    assert (entry.outcome, entry.detail) == ("failed", "no whole reply in 0.5 seconds")


def test_a_reply_that_is_too_large_is_not_read_to_its_end(tmp_path):
    with serve(scripted, always(faults.endless)) as server:
        entry = Asking(server, tmp_path, replace(USUAL, calls=1)).ask(a_request())
    assert (entry.outcome, entry.detail) == ("failed", f"a reply of more than {LARGEST_REPLY} bytes")
    assert sum(path.stat().st_size for path in tmp_path.iterdir()) < 100_000


def test_a_compressed_reply_which_nobody_asked_for_is_a_failure(tmp_path):
    packed = lambda reply, _: replace(reply, body=gzip.compress(b"{}"), headers={"Content-Encoding": "gzip"})  # noqa: E731
    with serve(scripted, always(packed)) as server:
        entry = Asking(server, tmp_path).ask(a_request())
    assert (entry.outcome, entry.detail) == ("failed", "a compressed reply")


def test_an_endpoint_that_is_down_is_given_up_after_so_many_failures_with_its_state(tmp_path):
    requests = [a_request(f"F{number}") for number in range(50)]
    with serve(scripted, always(faults.unavailable)) as server:
        asking = Asking(server, tmp_path, replace(USUAL, failures=7))
        with pytest.raises(ElicitationError, match=r"no reply to 7 calls in a row; .* 503: Overloaded"):
            ask_all(requests, asking.client, concurrency=1)
        assert len(server.asked) == 7
        server.plan = ()
        assert {entry.outcome for entry in ask_all(requests, asking.client)} == {"answered"}


def test_one_reply_in_between_begins_the_count_of_failures_anew(tmp_path):
    requests = [a_request(f"F{number}") for number in range(9)]
    with serve(scripted, lambda number, _: faults.server_error if number % 3 else None) as server:
        asking = Asking(server, tmp_path, replace(USUAL, failures=3))
        ask_all(requests, asking.client, concurrency=1)
    assert len(server.asked) > 9


@pytest.mark.parametrize("usage", [None, "counted"])
@pytest.mark.parametrize("fault", [faults.server_error, faults.malformed, faults.not_json, faults.closed, None])
def test_the_server_never_sees_more_calls_than_the_cap_however_often_a_run_begins(tmp_path, fault, usage):
    def plan(number, document):
        return lambda reply, asked: replace(fault(reply, asked) if fault else reply, usage=usage)

    requests = [a_request(f"F{number}") for number in range(9)]
    with serve(scripted, plan) as server:
        for _ in range(3):
            asking = Asking(server, tmp_path, caps=Caps(calls=6))
            with pytest.raises(BudgetError):
                ask_all(requests, asking.client)
        assert len(server.asked) == 6


def test_a_cap_on_tokens_holds_over_reruns_though_no_usage_is_reported(tmp_path):
    requests = [a_request(f"F{number}") for number in range(12)]
    with serve(scripted, always(faults.no_usage)) as server:
        for _ in range(5):
            asking = Asking(server, tmp_path, caps=Caps(tokens=15_000))
            most = asking.client.expected(requests[0])
            with pytest.raises(BudgetError):
                ask_all(requests, asking.client)
    assert len(server.asked) == 15_000 // (most.prompt_tokens + most.answer_tokens)


@pytest.mark.parametrize("status", [408, 500, 502, 503, 504, 529])
@pytest.mark.parametrize("caps", [Caps(tokens=30_000), Caps(money=30_000.0)], ids=["tokens", "money"])
def test_caps_hold_over_reruns_where_a_gateway_fails_after_the_model_has_worked(tmp_path, status, caps):
    requests = [a_request(f"F{number}") for number in range(12)]
    with serve(scripted, always(lambda reply, _: replace(reply, status=status, error="upstream is late"))) as server:
        for _ in range(3):
            asking = Asking(server, tmp_path, caps=caps)
            most = asking.client.expected(requests[0])
            with pytest.raises(BudgetError):
                ask_all(requests, asking.client, concurrency=2)
    calls = 30_000 // (most.prompt_tokens + most.answer_tokens)
    assert len(server.asked) == asking.budget.used.calls == calls > 1
    assert asking.budget.used.answer_tokens == calls * USUAL.most_tokens
    assert {"upstream is late" in entry.detail for entry in Record(tmp_path).entries()} == {True}


@pytest.mark.parametrize("status", [200, 400, 429, 504])
def test_tokens_that_an_error_counts_are_charged(tmp_path, status):
    body = {"error": {"message": "too late", "code": "content_filter"}, "usage": faults.COUNTED}
    with serve(
        scripted, always(lambda reply, _: replace(reply, status=status, body=json.dumps(body).encode()))
    ) as server:
        asking = Asking(server, tmp_path, replace(USUAL, calls=1, answers=1))
        asking.ask(a_request())
    assert asking.budget.used == Usage(1, 11, 5, 16.0)


def test_a_rate_limit_costs_a_call_and_no_tokens(tmp_path):
    with serve(scripted, [faults.rate_limited("1")]) as server:
        asking = Asking(server, tmp_path)
        entry = asking.ask(a_request())
    assert asking.budget.used == Usage(2, *entry.tokens, float(sum(entry.tokens)))


def test_without_the_openai_client_an_error_names_the_extra_before_a_call_is_counted(tmp_path, monkeypatch):
    monkeypatch.setitem(sys.modules, "openai", None)
    monkeypatch.delitem(sys.modules, "afa.elicit.chat", raising=False)
    with serve(scripted) as server:
        asking = Asking(server, tmp_path)
        with pytest.raises(ElicitationError, match=r"no package openai.*pip install 'afa\[elicitation\]'"):
            asking.ask(a_request())
        assert asking.client.expected(a_request()).calls == 1
    assert (server.asked, asking.budget.used) == ([], Usage())


def test_an_address_or_a_proxy_that_cannot_be_used_is_named_before_a_call_is_counted(tmp_path, monkeypatch):
    monkeypatch.setenv("HTTP_PROXY", "nonsense://h")
    with serve(scripted) as server:
        asking = Asking(server, tmp_path)
        with pytest.raises(ElicitationError, match="an address or a proxy that cannot be used"):
            asking.ask(a_request())
    assert asking.budget.used == Usage()
