"""The client: whatever an endpoint does ends in an outcome that is recorded or in a named error, and shows no key."""

from __future__ import annotations

import json
import logging
import re
import threading
import traceback
from collections.abc import Iterator
from dataclasses import asdict, replace
from datetime import UTC, datetime, timedelta
from email.utils import format_datetime
from pathlib import Path
from typing import Any

import pytest
from elicit import llm_faults as faults
from elicit.llm_script import scripted
from elicit.llm_server import KEY, MODEL, Fault, Reply, serve
from elicit.llm_server import Endpoint as Server
from elicit.prompt_values import PAIR, VALUES

from afa.elicit.account import Account, CapError, Caps, Prices, Used
from afa.elicit.answers import TEXT_LENGTH, PairAnswer, UnaryAnswer, read_answer
from afa.elicit.client import LONGEST_WAIT, Client, Endpoint, Manner, Request
from afa.elicit.endpoint import REMOVED
from afa.elicit.prompts import ANSWERS, Messages, render
from afa.elicit.store import Question, Store
from afa.elicit.wordings import Wordings
from afa.errors import ElicitationError

ASKING = {"disease": "IBD", "tissue": "colon", "definition": "", "most_genes": 9, "snippet_length": 90, "abstracts": []}
USUAL = Manner(timeout=30, calls=2, answers=2)
FREE = Caps()
HASTY = replace(USUAL, timeout=0.2)


@pytest.fixture(autouse=True)
def _environment(monkeypatch):
    monkeypatch.setenv("NO_PROXY", "127.0.0.1")
    for name in ("OPENAI_API_KEY", "OPENAI_ORG_ID", "OPENAI_PROJECT_ID", "OPENAI_ADMIN_KEY", "OPENAI_CUSTOM_HEADERS"):
        monkeypatch.delenv(name, raising=False)


def _request(phenotype: str = "Fibrosis", run: str = "r1", **values: Any) -> Request:
    question = Question("unary", {"phenotype": phenotype}, run)
    return Request(question, render("unary", {**ASKING, "phenotype": phenotype, **values}))


class Asking:
    """A client of a server, what it slept, and its store."""

    def __init__(self, server: Server, folder: Path, manner: Manner = USUAL, caps: Caps = FREE) -> None:
        self.waits: list[float] = []
        self.account, self.server = Account(caps, Prices(1e6, 1e6)), server
        endpoint = Endpoint.from_environment(server.environment)
        self.client = Client(endpoint, Store(folder), self.account, manner, sleep=self.waits.append)
        self.ask = self.client.ask


@pytest.fixture(params=[False, True], ids=["whole", "streamed"])
def stream(request) -> bool:
    return request.param


def _always(fault: Fault | None) -> Any:
    return lambda number, document: fault


def test_an_answer_is_returned_and_recorded_with_how_it_was_asked(tmp_path, stream):
    with serve(scripted) as server:
        entry = Asking(server, tmp_path, replace(USUAL, stream=stream)).ask(_request())
    assert entry.outcome == "answered"
    assert read_answer(UnaryAnswer, entry.raw).phenotype == "Fibrosis"
    assert entry.raw == scripted(server.asked[0].document)
    assert (entry.model, entry.served_model, entry.attempt, entry.detail) == (MODEL, MODEL, 1, "")
    assert entry.parameters == USUAL.parameters
    assert all(count > 0 for count in entry.tokens)
    assert abs(datetime.fromisoformat(entry.time) - datetime.now(UTC)) < timedelta(minutes=1)
    assert list(Store(tmp_path).entries()) == [entry]


@pytest.mark.parametrize("structured", ["json_schema", "json_object", "prompt"])
def test_what_is_sent_is_the_prompt_the_schema_and_the_manner(tmp_path, structured, stream):
    manner = Manner(seed=3, most_tokens=77, structured=structured, stream=stream, limit="max_completion_tokens")
    request = _request()
    with serve(scripted) as server:
        assert Asking(server, tmp_path, manner).ask(request).outcome == "answered"
    document = server.asked[0].document
    system, user = document["messages"]
    assert (document["model"], document["seed"], document["temperature"]) == (MODEL, 3, 0.0)
    assert document["max_completion_tokens"] == 77
    assert "max_tokens" not in document
    assert bool(document.get("stream")) is stream
    assert user == {"role": "user", "content": request.messages.user}
    assert document.get("response_format", {}).get("type") == (None if structured == "prompt" else structured)
    if structured == "json_schema":
        assert document["response_format"]["json_schema"]["strict"] is True
        assert system["content"] == request.messages.system
    else:
        assert system["content"].startswith(request.messages.system)
        assert '"title": "UnaryAnswer"' in system["content"]


def test_a_temperature_that_is_none_is_not_sent(tmp_path):
    with serve(scripted) as server:
        Asking(server, tmp_path, Manner(temperature=None)).ask(_request())
    assert {"temperature", "seed"} & set(server.asked[0].document) == set()


def test_every_prompt_is_asked_and_answered_by_the_scripted_model(tmp_path):
    with serve(scripted) as server:
        asking = Asking(server, tmp_path)
        for name in ANSWERS:
            request = Request(Question(name, {"phenotype": "Fibrosis"}, "r1"), render(name, VALUES))
            assert asking.ask(request).outcome == "answered", name


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
    with serve(scripted, _always(getattr(faults, fault))) as server:
        asking = Asking(server, tmp_path, replace(USUAL, stream=stream))
        entry = asking.ask(_request())
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
    with serve(scripted, _always(getattr(faults, fault))) as server:
        asking = Asking(server, tmp_path, replace(USUAL, stream=stream, calls=3))
        entry = asking.ask(_request())
    assert (entry.outcome, entry.raw, entry.attempt) == ("failed", "", 1)
    assert re.search(detail, entry.detail)
    assert len(server.asked) == asking.account.used.calls == 3
    assert len(asking.waits) == 2


@pytest.mark.parametrize("fault", [faults.slow(2.0), faults.stalling(2.0)], ids=["slow", "stalling"])
def test_a_reply_that_stalls_past_the_timeout_is_given_up(tmp_path, stream, fault):
    with serve(scripted, _always(fault)) as server:
        entry = Asking(server, tmp_path, replace(HASTY, stream=stream)).ask(_request())
        assert len(server.asked) == 2
    assert entry.outcome == "failed"
    assert "APITimeoutError" in entry.detail


def test_a_reply_that_is_slow_within_the_timeout_is_an_answer(tmp_path, stream):
    with serve(scripted, [faults.slow(0.2)]) as server:
        assert Asking(server, tmp_path, replace(USUAL, stream=stream)).ask(_request()).outcome == "answered"


def test_a_stream_that_ends_in_order_before_its_answer_is_incomplete(tmp_path):
    with serve(scripted, _always(faults.broken_off)) as server:
        entry = Asking(server, tmp_path, replace(USUAL, stream=True)).ask(_request())
    assert entry.outcome == "incomplete"
    assert scripted(server.asked[0].document).startswith(entry.raw)
    assert entry.raw


@pytest.mark.parametrize("fault", ["server_error", "closed", "half_json", "malformed", "refused", "truncated"])
def test_what_goes_wrong_once_is_mended_by_the_next_call(tmp_path, stream, fault):
    with serve(scripted, [getattr(faults, fault)]) as server:
        entry = Asking(server, tmp_path, replace(USUAL, stream=stream)).ask(_request())
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
    with serve(scripted, _always(fault)) as server:
        asking = Asking(server, tmp_path, replace(USUAL, stream=stream))
        with pytest.raises(ElicitationError, match=told) as raised:
            asking.ask(_request())
    assert len(server.asked) == 1
    assert raised.value.faults[0].where == server.url
    assert list(Store(tmp_path).entries()) == []
    assert asking.account.used == Used(1, 0, 0, 0.0)


def test_a_question_that_the_endpoint_filters_by_an_error_is_refused_and_others_go_on(tmp_path):
    body = b'{"error": {"message": "The prompt was filtered.", "code": "content_filter"}}'
    with serve(scripted, _always(lambda reply, _: replace(reply, status=400, body=body))) as server:
        entry = Asking(server, tmp_path).ask(_request())
    assert entry.outcome == "refused"
    assert "The prompt was filtered." in entry.detail


def test_an_address_where_nothing_answers_is_a_failure_that_says_why(tmp_path):
    with serve(scripted) as server:
        pass
    entry = Asking(server, tmp_path).ask(_request())
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
        (_date(1e6), LONGEST_WAIT, LONGEST_WAIT),
        ("0", 0.5, 1),
        ("-5", 0.5, 1),
        ("nan", 0.5, 1),
        ("soon", 0.5, 1),
        ("Mon, 99 Foo 2024", 0.5, 1),
        (_date(-1e6), 0.5, 1),
        (None, 0.5, 1),
    ],
)
def test_a_rate_limit_is_waited_for_as_asked_but_not_longer_than_the_longest_wait(tmp_path, asked, low, high):
    with serve(scripted, [faults.rate_limited(asked)]) as server:
        asking = Asking(server, tmp_path)
        assert asking.ask(_request()).outcome == "answered"
    assert len(asking.waits) == 1
    assert low <= asking.waits[0] <= high


def test_a_date_in_retry_after_is_seconds_from_now(tmp_path):
    with serve(scripted, [faults.rate_limited(_date(30))]) as server:
        asking = Asking(server, tmp_path)
        asking.ask(_request())
    assert 25 <= asking.waits[0] <= 30


def test_waits_double_and_are_spread(tmp_path):
    with serve(scripted, _always(faults.server_error)) as server:
        asking = Asking(server, tmp_path, replace(USUAL, calls=5))
        asking.ask(_request())
    assert all(2**turn / 2 <= wait <= 2**turn for turn, wait in enumerate(asking.waits))
    assert len(asking.waits) == 4


def test_a_rerun_makes_no_call_for_what_has_an_answer(tmp_path):
    with serve(scripted) as server:
        first = Asking(server, tmp_path).ask(_request())
        again = Asking(server, tmp_path)
        assert again.ask(_request()) == first
        assert len(server.asked) == 1
        assert again.account.used == Used()


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
        asking.ask(_request())
        asking.ask(_request(**other))
    assert len(server.asked) == 2


@pytest.mark.parametrize("other", [{"temperature": 0.5}, {"seed": 1}, {"most_tokens": 99}, {"structured": "prompt"}])
def test_other_parameters_are_asked_anew_but_not_another_way_of_carrying(tmp_path, other):
    with serve(scripted) as server:
        Asking(server, tmp_path).ask(_request())
        carried = {"stream": True, "timeout": 9, "calls": 7, "answers": 9, "limit": "max_completion_tokens"}
        Asking(server, tmp_path, replace(USUAL, **carried)).ask(_request())
        Asking(server, tmp_path, replace(USUAL, temperature=0)).ask(_request())
        assert len(server.asked) == 1
        Asking(server, tmp_path, replace(USUAL, **other)).ask(_request())
        assert len(server.asked) == 2


def test_attempts_of_earlier_runs_count_and_a_last_one_is_returned_without_a_call(tmp_path):
    with serve(scripted, _always(faults.malformed)) as server:
        first = Asking(server, tmp_path, replace(USUAL, answers=1)).ask(_request())
        second = Asking(server, tmp_path, replace(USUAL, answers=3)).ask(_request())
        assert (first.attempt, second.attempt, len(server.asked)) == (1, 3, 3)
        assert Asking(server, tmp_path, replace(USUAL, answers=3)).ask(_request()) == second
        assert len(server.asked) == 3


def test_a_failure_of_the_endpoint_does_not_use_up_an_attempt(tmp_path):
    plan = [faults.server_error, faults.server_error, faults.malformed]
    with serve(scripted, plan) as server:
        assert Asking(server, tmp_path).ask(_request()).outcome == "failed"
        entry = Asking(server, tmp_path).ask(_request())
    assert (entry.outcome, entry.attempt) == ("answered", 2)


def test_what_is_asked_can_be_read_again_word_for_word(tmp_path):
    request = _request(abstracts=[{"title": "T", "source": "PMID 1", "text": "é"}])
    with serve(scripted) as server:
        entry = Asking(server, tmp_path).ask(request)
    assert Wordings(tmp_path).find(entry.messages) == request.messages


@pytest.mark.parametrize("fault", [faults.no_usage, faults.usage_without_counts, faults.usage_below_zero])
def test_tokens_that_were_not_counted_are_unknown_and_charged_as_expected(tmp_path, stream, fault):
    with serve(scripted, [fault]) as server:
        asking = Asking(server, tmp_path, replace(USUAL, stream=stream))
        entry = asking.ask(_request())
    assert (entry.outcome, entry.tokens) == ("answered", "unknown")
    assert asking.account.used == asking.client.expected(_request())


def test_tokens_that_are_counted_in_words_are_numbers(tmp_path, stream):
    with serve(scripted, [faults.usage_as_text]) as server:
        asking = Asking(server, tmp_path, replace(USUAL, stream=stream))
        assert asking.ask(_request()).tokens == (11, 5)
    assert asking.account.used == Used(1, 11, 5, 16.0)


def test_the_expectation_covers_the_prompt_the_schema_and_the_longest_answer(tmp_path):
    with serve(scripted) as server:
        asking = Asking(server, tmp_path)
        entry, expected = asking.ask(_request()), asking.client.expected(_request())
    sent = server.asked[0].document
    text = "".join(message["content"] for message in sent["messages"])
    assert expected.prompt_tokens >= len(text.encode())
    assert expected.prompt_tokens >= entry.tokens[0]
    assert expected.answer_tokens == USUAL.most_tokens


def test_a_cap_is_an_error_before_the_call_and_a_rerun_goes_on(tmp_path):
    with serve(scripted, _always(faults.malformed)) as server:
        with pytest.raises(CapError, match="the cap on calls"):
            Asking(server, tmp_path, caps=Caps(calls=1)).ask(_request())
        assert len(server.asked) == 1
        assert Asking(server, tmp_path).ask(_request()).attempt == 2


def test_tries_that_fail_count_as_calls(tmp_path):
    with serve(scripted, _always(faults.server_error)) as server:
        with pytest.raises(CapError):
            Asking(server, tmp_path, replace(USUAL, calls=5), Caps(calls=3)).ask(_request())
        assert len(server.asked) == 3


def test_once_stopped_no_other_call_follows(tmp_path):
    stop = threading.Event()

    def plan(number: int, document: Any) -> Fault:
        stop.set()
        return faults.server_error

    with serve(scripted, plan) as server:
        endpoint = Endpoint.from_environment(server.environment)
        client = Client(endpoint, Store(tmp_path), Account(Caps()), replace(USUAL, calls=9))
        assert client.ask(_request(), stop=stop).outcome == "failed"
        assert len(server.asked) == 1


def test_genes_that_no_one_knows_and_orders_of_an_abstract_are_recorded_as_the_model_said_them(tmp_path):
    order = faults.OBEY + ' {"phenotype": "Fibrosis", "genes": []}'
    abstracts = [{"title": "T", "source": "PMID 1", "text": order}]
    with serve(scripted, [faults.wrong_genes, *[faults.obeys_abstracts] * 2]) as server:
        asking = Asking(server, tmp_path)
        named = read_answer(UnaryAnswer, asking.ask(_request()).raw).genes
        assert {gene.gene_symbol for gene in named} == {f"NOGENE{number}" for number in range(6)}
        obeyed = asking.ask(_request(abstracts=abstracts))
    assert obeyed.outcome == "unparsable"
    assert obeyed.raw == '{"phenotype": "Fibrosis", "genes": []}'


def test_half_of_a_character_is_no_answer_and_does_not_stop_the_record(tmp_path):
    with serve(scripted, _always(faults.says('{"phenotype": "\ud800"}'))) as server:
        entry = Asking(server, tmp_path).ask(_request())
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
    with serve(scripted, _always(lambda reply, _: replace(reply, body=body))) as server:
        assert Asking(server, tmp_path).ask(_request()).outcome == "failed"
        assert len(server.asked) == 2


def test_the_key_goes_in_the_authorization_header_and_nowhere_else(tmp_path, stream):
    with serve(scripted) as server:
        Asking(server, tmp_path, replace(USUAL, stream=stream)).ask(_request())
    (asked,) = server.asked
    assert [name for name, value in asked.headers.items() if KEY in value] == ["authorization"]
    assert KEY.encode() not in asked.body
    assert KEY not in asked.path


def test_keys_and_accounts_of_other_endpoints_in_the_environment_are_not_sent(tmp_path, monkeypatch):
    monkeypatch.setenv("OPENAI_API_KEY", "sk-other-1")
    monkeypatch.setenv("OPENAI_ADMIN_KEY", "sk-other-2")
    monkeypatch.setenv("OPENAI_ORG_ID", "org-other-3")
    monkeypatch.setenv("OPENAI_PROJECT_ID", "proj-other-4")
    monkeypatch.setenv("OPENAI_CUSTOM_HEADERS", "Authorization: Bearer sk-other-5")
    with serve(scripted) as server:
        assert Asking(server, tmp_path).ask(_request()).outcome == "answered"
    assert "other" not in str(server.asked[0].headers)


def test_a_redirect_to_another_place_does_not_carry_the_key(tmp_path):
    with serve(scripted) as elsewhere:
        to = {"Location": elsewhere.url.replace("127.0.0.1", "localhost") + "/chat/completions"}
        there: Fault = lambda reply, _: replace(reply, status=307, headers=to)  # noqa: E731
        with serve(scripted, _always(there)) as server, pytest.raises(ElicitationError):
            Asking(server, tmp_path).ask(_request())
        assert elsewhere.asked
        assert all(KEY not in str(asked.headers) for asked in elsewhere.asked)


@pytest.fixture
def logged() -> Iterator[list[str]]:
    """Everything that any logger says, at every level."""
    lines: list[str] = []

    class Keeping(logging.Handler):
        def emit(self, record: logging.LogRecord) -> None:
            lines.append(logging.Formatter("%(name)s %(message)s").format(record))

    handler, root = Keeping(level=0), logging.getLogger()
    before = root.level
    root.setLevel(0)
    root.addHandler(handler)
    yield lines
    root.removeHandler(handler)
    root.setLevel(before)


def _echo(reply: Reply, _: Any) -> Reply:
    return replace(reply, headers={**reply.headers, "X-Echo": f"Bearer {KEY}", "x-request-id": KEY})


@pytest.mark.parametrize(
    "fault",
    [
        None,
        faults.repeats_key,
        faults.forbidden,
        lambda reply, _: replace(reply, refusal=f"I refuse {KEY}."),
        lambda reply, _: replace(reply, status=500, error=f"{KEY} broke it"),
        lambda reply, _: replace(reply, text=reply.text.replace("scripted", KEY)),
    ],
    ids=["answer", "raw", "401", "refusal", "500", "within an answer"],
)
def test_a_key_that_the_endpoint_repeats_is_in_no_file_log_error_or_representation(
    tmp_path, stream, logged, capfd, fault
):
    told = []
    with serve(scripted, _always(lambda reply, asked: _echo(fault(reply, asked) if fault else reply, asked))) as server:
        asking = Asking(server, tmp_path, replace(USUAL, stream=stream))
        try:
            entry = asking.ask(_request())
            told += [repr(entry), str(asdict(entry))]
        except ElicitationError as error:
            told += ["".join(traceback.format_exception(error)), repr(error), repr(error.__context__)]
            logging.getLogger("afa").exception("asking failed")
        told += [repr(asking.client.endpoint), repr(asking.client), repr(asking.account), str(vars(asking.account))]
    told += [path.read_text() for path in tmp_path.rglob("*") if path.is_file()]
    told += [*logged, *capfd.readouterr()]
    assert any("httpcore" in line for line in logged)
    assert any(REMOVED in text for text in told)
    assert not [text for text in told if KEY in text]


def test_an_answer_that_held_the_key_is_judged_as_it_is_written_down(tmp_path):
    with serve(scripted, _always(lambda reply, _: replace(reply, text=reply.text.replace("scripted", KEY)))) as server:
        entry = Asking(server, tmp_path).ask(_request())
    assert entry.outcome == "answered"
    assert read_answer(UnaryAnswer, entry.raw).genes[0].category == REMOVED


def test_an_answer_that_is_one_without_the_key_alone_is_judged_as_it_is_written_down(tmp_path):
    # Too long by the key, but not by what stands in its place.
    text = "x" * (TEXT_LENGTH + 1 - len(KEY)) + KEY
    assert len(text) > TEXT_LENGTH >= len(text) - len(KEY) + len(REMOVED)
    request = Request(Question("pairwise", {"gene1": "A"}, "r1"), render("pairwise", VALUES))
    said = json.dumps({**PAIR, "supporting_text": text})
    with serve(scripted, _always(faults.says(said))) as server:
        entry = Asking(server, tmp_path).ask(request)
    assert entry.outcome == "answered"
    assert read_answer(PairAnswer, entry.raw).supporting_text.endswith(REMOVED)


@pytest.mark.parametrize("word", ["none", "x", "colon", "EMPTY"])
def test_a_word_in_place_of_a_key_does_not_eat_into_answers(tmp_path, word):
    endpoint = Endpoint("http://127.0.0.1:1/v1", MODEL, word)
    assert endpoint.redacted(f'{{"evidence_source": "{word}"}}') == f'{{"evidence_source": "{word}"}}'


@pytest.mark.parametrize("name", ["AFA_LLM_BASE_URL", "AFA_LLM_MODEL", "AFA_LLM_API_KEY"])
def test_a_variable_that_lacks_is_named(name):
    environment = {"AFA_LLM_BASE_URL": "http://h/v1", "AFA_LLM_MODEL": "m", "AFA_LLM_API_KEY": KEY}
    assert Endpoint.from_environment(environment) == Endpoint("http://h/v1", "m", "another-key")
    with pytest.raises(ElicitationError, match=f"the environment, {name}: found nothing"):
        Endpoint.from_environment({**environment, name: ""})


@pytest.mark.parametrize("key", [f"{KEY}\n", f" {KEY}", "ключ-ключ-ключ", "a\0bcdefghi", f'"{KEY} "'])
def test_a_key_that_no_header_can_carry_is_refused_without_being_shown(key):
    with pytest.raises(ElicitationError, match=r"AFA_LLM_API_KEY.*found .* characters that no header takes") as raised:
        Endpoint("http://h/v1", "m", key)
    assert key.strip() not in str(raised.value)
    assert KEY not in str(raised.value)


@pytest.mark.parametrize(
    "address",
    [
        *("", "h/v1", "ftp://h/v1", "http://", "http://[::1", "http://h:99999/v1"),
        *(f"http://{KEY}@h/v1", f"http://u:{KEY}@h/v1", f"https://h/v1?key={KEY}", f"https://h/v1#{KEY}"),
    ],
)
def test_an_address_that_is_none_or_holds_a_secret_is_refused_without_being_shown(address):
    with pytest.raises(ElicitationError, match="AFA_LLM_BASE_URL") as raised:
        Endpoint(address, "m", KEY)
    assert KEY not in str(raised.value)


@pytest.mark.parametrize("number", [{"calls": 0}, {"answers": 0}, {"most_tokens": 0}, {"timeout": 0.0}])
def test_a_manner_out_of_range_is_refused(number):
    (name,) = number
    with pytest.raises(ElicitationError, match=f"manner, {name}"):
        Manner(**number)


def test_a_request_is_known_by_its_words():
    one, other = Messages("a", "b\0c"), Messages("a\0b", "c")
    question = Question("unary", {"phenotype": "F"}, "r1")
    assert Request(question, one).digest == Request(question, replace(one)).digest
    assert Request(question, one).digest != Request(question, Messages("a", "c")).digest
    assert Request(question, one).digest != Request(question, other).digest
