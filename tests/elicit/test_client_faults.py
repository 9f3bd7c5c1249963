"""Whatever an endpoint does wrong ends in an outcome that is recorded or in a named error, after bounded tries."""

from __future__ import annotations

import re
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from email.utils import format_datetime

import pytest
from elicit import llm_faults as faults
from elicit.client_lab import USUAL, Asking, a_request, always
from elicit.llm_script import scripted
from elicit.llm_server import serve

from afa.elicit.account import Used
from afa.elicit.client import LONGEST_WAIT
from afa.elicit.store import Store
from afa.errors import ElicitationError

HASTY = replace(USUAL, timeout=0.2)


@pytest.mark.parametrize(
    ("fault", "outcome", "detail"),
    [
        ("malformed", "unparsable", "the whole answer: no JSON"),
        ("fenced", "unparsable", "the whole answer: no JSON"),
        ("empty", "unparsable", "the whole answer: no JSON"),
        ("missing_key", "unparsable", "phenotype: Field required"),
        ("extra_key", "unparsable", "remark: Extra inputs"),
        ("repeats_key", "unparsable", "the whole answer: no JSON"),
        ("refused", "refused", "I cannot help"),
        ("filtered", "refused", "filter"),
        ("truncated", "incomplete", "largest number of tokens"),
        ("no_finish", "incomplete", "broke off"),
        ("no_choices", "incomplete", "broke off"),
    ],
)
def test_what_is_no_answer_is_recorded_as_such_each_time_within_the_bound(tmp_path, stream, fault, outcome, detail):
    with serve(scripted, always(getattr(faults, fault))) as server:
        asking = Asking(server, tmp_path, replace(USUAL, stream=stream))
        entry = asking.ask(a_request())
    assert (entry.outcome, entry.attempt) == (outcome, 2)
    assert detail in entry.detail
    assert [one.outcome for one in Store(tmp_path).entries()] == [outcome] * 2
    assert len(server.asked) == asking.account.used.calls == 2
    assert asking.waits == []


@pytest.mark.parametrize(
    ("fault", "detail"),
    [
        ("closed", "APIConnectionError"),
        ("reset", "APIConnectionError"),
        ("not_json", "no chat completion|without a piece"),
        ("half_json", "JSONDecodeError|without a piece"),
        ("null", "no chat completion|without a piece"),
        ("server_error", "500.*had an error"),
        ("unavailable", "503.*Overloaded"),
    ],
)
def test_an_endpoint_that_fails_is_tried_again_within_the_bound_and_then_recorded(tmp_path, stream, fault, detail):
    with serve(scripted, always(getattr(faults, fault))) as server:
        asking = Asking(server, tmp_path, replace(USUAL, stream=stream, calls=3))
        entry = asking.ask(a_request())
    assert (entry.outcome, entry.raw, entry.attempt) == ("failed", "", 1)
    assert re.search(detail, entry.detail)
    assert len(server.asked) == asking.account.used.calls == 3
    assert len(asking.waits) == 2


@pytest.mark.parametrize("fault", [faults.slow(2.0), faults.stalling(2.0)], ids=["slow", "stalling"])
def test_a_reply_that_stalls_past_the_timeout_is_given_up(tmp_path, stream, fault):
    with serve(scripted, always(fault)) as server:
        entry = Asking(server, tmp_path, replace(HASTY, stream=stream)).ask(a_request())
        assert len(server.asked) == 2
    assert entry.outcome == "failed"
    assert "APITimeoutError" in entry.detail


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
def test_what_no_other_try_can_mend_is_an_error_at_once(tmp_path, stream, fault, told):
    with serve(scripted, always(fault)) as server:
        asking = Asking(server, tmp_path, replace(USUAL, stream=stream))
        with pytest.raises(ElicitationError, match=told) as raised:
            asking.ask(a_request())
    assert len(server.asked) == 1
    assert raised.value.faults[0].where == server.url
    assert list(Store(tmp_path).entries()) == []
    assert asking.account.used == Used(1, 0, 0, 0.0)


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
        ("7", 7, 7),
        ("1.5", 1.5, 1.5),
        ("3600", LONGEST_WAIT, LONGEST_WAIT),
        ("inf", LONGEST_WAIT, LONGEST_WAIT),
        (1e6, LONGEST_WAIT, LONGEST_WAIT),
        ("0", 0.5, 1),
        ("-5", 0.5, 1),
        ("nan", 0.5, 1),
        ("soon", 0.5, 1),
        ("Mon, 99 Foo 2024", 0.5, 1),
        (-1e6, 0.5, 1),
        (None, 0.5, 1),
    ],
)
def test_a_rate_limit_is_waited_for_as_asked_but_not_longer_than_the_longest_wait(tmp_path, asked, low, high):
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
    assert len(list(Store(tmp_path).entries())) == 2


@pytest.mark.parametrize(
    "body",
    [
        b'{"choices": "none"}',
        b'{"choices": [{"message": null, "finish_reason": "stop"}]}',
        b'{"choices": [{"message": {"content": ["a"]}, "finish_reason": "stop"}]}',
        b'{"choices": null}',
        b"[]",
        b'"text"',
        b"",
        b"[" * 100_000,
    ],
)
def test_a_document_that_is_no_chat_completion_is_a_failure_of_the_endpoint(tmp_path, body):
    with serve(scripted, always(lambda reply, _: replace(reply, body=body))) as server:
        assert Asking(server, tmp_path).ask(a_request()).outcome == "failed"
        assert len(server.asked) == 2
