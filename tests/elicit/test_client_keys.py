"""The key of an endpoint goes to that endpoint, and is in no file, log, error or representation."""

from __future__ import annotations

import json
import logging
import traceback
from collections.abc import Iterator
from dataclasses import asdict, replace
from typing import Any

import pytest
from elicit import llm_faults as faults
from elicit.client_lab import USUAL, Asking, a_request, always
from elicit.llm_script import scripted
from elicit.llm_server import KEY, MODEL, Fault, Reply, serve
from elicit.prompt_values import PAIR, VALUES

from afa.elicit.answers import TEXT_LENGTH, PairAnswer, UnaryAnswer, read_answer
from afa.elicit.prompts import render
from afa.elicit.record import Question, Request
from afa.errors import ElicitationError
from afa.model.study import REMOVED, Endpoint


def test_the_key_goes_in_the_authorization_header_and_nowhere_else(tmp_path, stream):
    with serve(scripted) as server:
        Asking(server, tmp_path, replace(USUAL, stream=stream)).ask(a_request())
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
        assert Asking(server, tmp_path).ask(a_request()).outcome == "answered"
    assert "other" not in str(server.asked[0].headers)


@pytest.mark.parametrize("status", [301, 302, 307, 308])
def test_a_redirect_is_not_followed(tmp_path, status):
    with serve(scripted) as elsewhere:
        to = {"Location": elsewhere.url.replace("127.0.0.1", "localhost") + "/chat/completions"}
        there: Fault = lambda reply, _: replace(reply, status=status, headers=to)  # noqa: E731
        with serve(scripted, always(there)) as server:
            with pytest.raises(ElicitationError, match=f"{status}.*a redirect, which is not followed"):
                Asking(server, tmp_path).ask(a_request())
            assert len(server.asked) == 1
        assert not elsewhere.asked


@pytest.mark.parametrize("escaped", ["".join(f"\\u{ord(c):04X}" for c in KEY), KEY.replace("-", "\\u002d")])
def test_a_key_that_the_endpoint_repeats_in_escapes_does_not_come_back_decoded(tmp_path, escaped):
    text = lambda reply, _: replace(reply, text=reply.text.replace("scripted", escaped))  # noqa: E731
    with serve(scripted, always(text)) as server:
        entry = Asking(server, tmp_path).ask(a_request())
    assert entry.outcome == "answered"
    assert escaped not in entry.raw
    assert read_answer(UnaryAnswer, entry.raw).genes[0].category == REMOVED


def test_what_a_netrc_file_has_for_the_host_is_not_sent(tmp_path, monkeypatch):
    (tmp_path / "netrc").write_text("machine 127.0.0.1 login other password other\n")
    monkeypatch.setenv("NETRC", str(tmp_path / "netrc"))
    with serve(scripted) as server:
        assert Asking(server, tmp_path / "record").ask(a_request()).outcome == "answered"


@pytest.fixture
def logged() -> Iterator[list[str]]:
    """Everything that any logger says, at every level."""
    lines: list[str] = []

    class Keeping(logging.Handler):
        def emit(self, record: logging.LogRecord) -> None:
            lines.append(logging.Formatter("%(name)s %(message)s").format(record))

    handler, root = Keeping(level=0), logging.getLogger()
    root.addHandler(handler)
    yield lines
    root.removeHandler(handler)


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
    tmp_path, stream, logged, caplog, capfd, fault
):
    caplog.set_level(0)
    told = []
    with serve(scripted, always(lambda reply, asked: _echo(fault(reply, asked) if fault else reply, asked))) as server:
        asking = Asking(server, tmp_path, replace(USUAL, stream=stream))
        try:
            entry = asking.ask(a_request())
            told += [repr(entry), str(asdict(entry))]
        except ElicitationError as error:
            told += ["".join(traceback.format_exception(error)), repr(error), repr(error.__context__)]
            logging.getLogger("afa").exception("asking failed")
        told += [repr(asking.client.endpoint), repr(asking.client), repr(asking.budget), str(vars(asking.budget))]
    told += [path.read_text() for path in tmp_path.rglob("*") if path.is_file()]
    told += [*logged, *capfd.readouterr()]
    assert any("openai" in line for line in logged)
    assert fault is None or any(REMOVED in text for text in told)
    assert not [text for text in told if KEY in text]


def test_an_answer_that_held_the_key_is_judged_as_it_is_written_down(tmp_path):
    with serve(scripted, always(lambda reply, _: replace(reply, text=reply.text.replace("scripted", KEY)))) as server:
        entry = Asking(server, tmp_path).ask(a_request())
    assert entry.outcome == "answered"
    assert read_answer(UnaryAnswer, entry.raw).genes[0].category == REMOVED


def test_an_answer_that_is_one_without_the_key_alone_is_judged_as_it_is_written_down(tmp_path):
    # Too long by the key, but not by what stands in its place.
    text = "x" * (TEXT_LENGTH + 1 - len(KEY)) + KEY
    assert len(text) > TEXT_LENGTH >= len(text) - len(KEY) + len(REMOVED)
    request = Request(Question("pairwise", {"gene1": "A"}, "r1"), render("pairwise", VALUES))
    said = json.dumps({**PAIR, "supporting_text": text})
    with serve(scripted, always(faults.says(said))) as server:
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
