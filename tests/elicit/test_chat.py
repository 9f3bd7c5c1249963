"""Replies as endpoints send them, by public reports: the answer is taken, or the endpoint's own reason is told."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest
from elicit import llm_faults as faults
from elicit.client_lab import USUAL, Asking, a_request, always
from elicit.llm_script import scripted
from elicit.llm_server import serve

from afa.elicit.answers import UnaryAnswer, read_answer
from afa.elicit.chat import SHOWN_CHARACTERS

TEXT = scripted({"model": "m", "messages": [{"content": "'title': 'UnaryAnswer'"}, {"content": "Phenotype: Fibrosis"}]})
"""The whole answer, which every reply of this page holds in some form."""
COUNTED = {"prompt_tokens": 10, "completion_tokens": 20}


def events(*documents: Any, first: str = "") -> bytes:
    """A stream of these documents, after some lines, with the tokens in the last one."""
    parts = [*documents, {"choices": [], "usage": COUNTED}]
    lines = [first, *(f"data: {json.dumps(part)}\n\n" for part in parts), "data: [DONE]\n\n"]
    return "".join(lines).encode()


def piece(text: str | None, finish: str | None = None, **changes: Any) -> dict[str, Any]:
    """An event with some of the text."""
    return {"choices": [{"delta": {"content": text}, "finish_reason": finish, **changes}]}


def whole(content: Any = TEXT, finish: str | None = "stop", **message: Any) -> bytes:
    """A reply in one piece."""
    choices = [{"message": {"content": content, **message}, "finish_reason": finish}]
    return json.dumps({"choices": choices, "usage": COUNTED}).encode()


HALVES = piece(TEXT[:99]), piece(TEXT[99:], "stop")
DRAFT = '{"phenotype": "Stricture", "genes": []}'
CALLED = [{"function": {"name": "unary", "arguments": TEXT}}]


TOOL = [
    {"choices": [{"delta": {"tool_calls": [{"index": 0, "function": {"arguments": part}}]}}]}
    for part in (TEXT[:9], TEXT[9:])
]
PARTS = [{"type": "text", "text": TEXT[:50]}, {"type": "text", "text": TEXT[50:]}]
CHANNELS = f"<|channel|>analysis<|message|>{DRAFT}<|end|><|start|>assistant<|channel|>final<|message|>{TEXT}"
BEFORE, AFTER, FENCE, THOUGHTS = (
    "words before it set aside",
    "words after it set aside",
    "fence set aside",
    "thoughts set aside",
)
ANSWERS = {
    "stream-comment-first": (events(*HALVES, first=": OPENROUTER PROCESSING\n\n"), ""),
    "stream-event-first": (events(*HALVES, first="event: ping\n\nevent: message\n"), ""),
    "stream-delta-null": (events(HALVES[0], piece(None, delta=None), HALVES[1]), ""),
    "stream-message-null": (events(piece(TEXT[:99], message=None), HALVES[1]), ""),
    "stream-data-null": (events(None, *HALVES), ""),
    "stream-crlf": (events(*HALVES).replace(b"\n", b"\r\n"), ""),
    "stream-tool-call": (events(*TOOL, piece(None, "tool_calls")), ""),
    "byte-order-mark": (b"\xef\xbb\xbf\n" + whole(), ""),
    "content-list": (whole(PARTS), ""),
    "content-list-with-thoughts": (whole([{"type": "thinking", "thinking": DRAFT}, *PARTS]), ""),
    "think-unopened": (whole(f"Is it {{MUC2}}? {DRAFT}</think>{TEXT}"), THOUGHTS),
    "think-tag-other": (whole(f"<reasoning>{DRAFT}</reasoning>{TEXT}"), THOUGHTS),
    "think-tag-in-brackets": (whole(f"[THINK]{DRAFT}[/THINK]{TEXT}"), THOUGHTS),
    "think-after": (whole(f"{TEXT}<think>Is it {{MUC2}}?"), AFTER),
    "harmony": (whole(CHANNELS), THOUGHTS),
    "words-with-braces": (whole(f"In {{MUC2}} and {{}}: {TEXT}"), BEFORE),
    "words-after": (whole(f"{TEXT}\nI hope that {{this}} helps."), AFTER),
    "fence-and-words-after": (whole(f"```json\n{TEXT}\n```\nI hope that helps."), f"{FENCE}; {AFTER}"),
    "the-same-twice": (whole(f"{TEXT}\n{TEXT}"), BEFORE),
    "tool-call": (whole(None, "tool_calls", tool_calls=CALLED), ""),
    "function-call": (whole(None, "function_call", function_call=CALLED[0]["function"]), ""),
    "finish-null": (whole(finish=None), ""),
}


@pytest.mark.parametrize(("body", "note"), ANSWERS.values(), ids=ANSWERS)
def test_the_answer_is_taken_at_the_first_call_and_charged_as_counted(tmp_path, body, note):
    with serve(scripted, always(lambda reply, _: replace(reply, body=body))) as server:
        asking = Asking(server, tmp_path)
        entry = asking.ask(a_request())
        assert len(server.asked) == 1
    assert (entry.outcome, entry.detail, entry.tokens) == ("answered", note, (10, 20))
    assert read_answer(UnaryAnswer, entry.raw) == read_answer(UnaryAnswer, TEXT)
    assert (asking.budget.used.prompt_tokens, asking.budget.used.answer_tokens) == (10, 20)


def test_an_answer_with_status_201_is_taken(tmp_path):
    with serve(scripted, always(lambda reply, _: replace(reply, status=201, body=whole()))) as server:
        assert Asking(server, tmp_path).ask(a_request()).outcome == "answered"


LIMIT = "Rate limit of upstream"


UNKNOWN = {"object": "list", "data": []}
REASONS = {
    "error-200": (200, {"error": {"message": LIMIT, "code": 429}}, LIMIT),
    "error-200-null-choices": (200, {"choices": None, "error": {"message": LIMIT}}, LIMIT),
    "choice-error": (200, {"choices": [{"error": {"message": LIMIT}, "message": {"content": ""}}]}, LIMIT),
    "stream-error-inside": (200, events(HALVES[0], {"error": {"message": LIMIT}}), LIMIT),
    "vllm-error": (503, {"object": "error", "message": LIMIT, "code": 503}, f"HTTP status 503: {LIMIT}"),
    "lmstudio-error-text": (500, {"error": LIMIT}, f"HTTP status 500: {LIMIT}"),
    "gemini-error-list": (500, [{"error": {"code": 500, "message": LIMIT}}], f"HTTP status 500: {LIMIT}"),
    "fastapi-detail": (500, {"detail": LIMIT}, f"HTTP status 500: {LIMIT}"),
    "fastapi-detail-list": (
        500,
        {"detail": [{"loc": ["body", "seed"], "msg": LIMIT}]},
        f"HTTP status 500: body.seed: {LIMIT}",
    ),
    "plain-text-error": (500, LIMIT.encode(), f"HTTP status 500: {LIMIT}"),
    "page": (502, b"<html><h1>502 Bad Gateway</h1></html>", "HTTP status 502: an HTML page: 502 Bad Gateway"),
    "nothing": (500, b"", "HTTP status 500: an empty reply"),
    "form-not-known": (
        500,
        {"state": "x" * 500},
        'HTTP status 500: JSON without a message: {"state": "' + "x" * (SHOWN_CHARACTERS - len('{"state": "')),
    ),
    "another-document": (200, UNKNOWN, f"no chat completion (JSON without a message: {json.dumps(UNKNOWN)})"),
}


@pytest.mark.parametrize(("status", "document", "told"), REASONS.values(), ids=REASONS)
def test_the_reason_of_the_endpoint_is_told_and_what_came_is_recorded(tmp_path, status, document, told):
    body = document if isinstance(document, bytes) else json.dumps(document).encode()
    with serve(scripted, always(lambda reply, _: replace(reply, status=status, body=body))) as server:
        entry = Asking(server, tmp_path, replace(USUAL, calls=1)).ask(a_request())
    assert (entry.outcome, entry.detail) == ("failed", told)
    assert entry.raw == (TEXT[:99] if b"data: " in body else body.decode())


@pytest.mark.parametrize(
    ("text", "why"),
    [
        (f"{TEXT} {TEXT.replace('Upregulated', 'Downregulated')}", "2 answers that differ"),
        (f"<think>{TEXT}</think>", "no JSON"),
        (TEXT[:-40], "no JSON"),
        (f"{{MUC2}} {TEXT[:-40]}", "no JSON"),
        (DRAFT, "genes: List should have at least 1 item"),
    ],
    ids=["two answers", "thoughts alone", "cut", "cut after words", "an object of another form"],
)
def test_what_cannot_be_told_from_an_answer_is_none_and_the_text_is_recorded_whole(tmp_path, text, why):
    with serve(scripted, always(faults.says(text))) as server:
        entry = Asking(server, tmp_path).ask(a_request())
    assert (entry.outcome, entry.raw) == ("unparsable", text)
    assert why in entry.detail


@pytest.mark.parametrize(
    ("status", "error"),
    [
        (400, {"message": "litellm.ContextWindowExceededError: 9000 tokens", "type": None, "code": "400"}),
        (400, {"message": "Please reduce the length.", "code": "context_length_exceeded"}),
        (400, {"message": "This model's maximum context length is 4096 tokens.", "code": 400}),
        (400, {"message": "the request exceeds the available size", "type": "exceed_context_size_error", "code": 400}),
        (200, {"message": "prompt is too long: 9000 tokens > 4096", "code": 400}),
    ],
)
def test_a_question_beyond_the_context_of_the_model_is_refused_and_the_others_are_asked(tmp_path, status, error):
    def plan(number: int, document: dict[str, Any]) -> Callable[..., Any] | None:
        if "F1" not in document["messages"][1]["content"]:
            return None
        return lambda reply, _: replace(reply, status=status, body=json.dumps({"error": error}).encode())

    with serve(scripted, plan) as server:
        asking = Asking(server, tmp_path, replace(USUAL, answers=1))
        entries = [asking.ask(a_request(f"F{number}")) for number in range(3)]
    assert [entry.outcome for entry in entries] == ["answered", "refused", "answered"]
    assert error["message"] in entries[1].detail
    assert json.loads(entries[1].raw) == {"error": error}
