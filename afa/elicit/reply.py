"""What an endpoint sends back for one call, whole or in pieces, and whether it holds an answer."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from pydantic import BaseModel, ValidationError

from afa.elicit.answers import Answer, beside_the_question, read_answer
from afa.elicit.store import UNKNOWN, Outcome


@dataclass(frozen=True)
class Reply:
    """What came back of one call.

    finish : the endpoint's word, None where the reply broke off. tokens : of prompt and answer, None without a count.
    model : which one the endpoint says has answered.
    """

    text: str
    finish: str | None
    refusal: str | None = None
    tokens: tuple[int, int] | None = None
    model: str = UNKNOWN


class _Said(BaseModel):
    content: str | None = None
    refusal: str | None = None


class _Choice(BaseModel):
    message: _Said = _Said()
    delta: _Said = _Said()
    finish_reason: str | None = None


class _Document(BaseModel):
    choices: list[_Choice]
    model: Any = None
    usage: Any = None


class _Usage(BaseModel):
    prompt_tokens: int
    completion_tokens: int


def whole(completion: Any) -> Reply:
    """A reply that comes at once; a `ValueError` where it is no chat completion. Without choices it broke off."""
    document = _document(completion)
    choice = document.choices[0] if document.choices else _Choice()
    said, tokens = choice.message, _tokens(document.usage)
    return Reply(said.content or "", choice.finish_reason, said.refusal, tokens, _name(document.model))


def gathered(stream: Iterable[Any]) -> Reply:
    """A reply that comes in pieces; a `ValueError` where one is no piece of a chat completion, or none comes."""
    text, refusal, finish, tokens, model = "", "", None, None, None
    for chunk in stream:
        document = _document(chunk)
        model = _name(document.model)
        tokens = _tokens(document.usage) or tokens
        for choice in document.choices[:1]:
            text += choice.delta.content or ""
            refusal += choice.delta.refusal or ""
            finish = choice.finish_reason or finish
    if model is None:
        raise ValueError("a stream without a piece of a chat completion")
    return Reply(text, finish, refusal or None, tokens, model)


def judged(reply: Reply, schema: type[Answer], values: Mapping[str, str]) -> tuple[Outcome, str]:
    """Whether a reply is an answer of the schema to the question of `values`, and why not."""
    if reply.refusal or reply.finish == "content_filter":
        return "refused", reply.refusal or "stopped by the endpoint's filter"
    if reply.finish == "length":
        return "incomplete", "cut at the largest number of tokens"
    if reply.finish is None:
        return "incomplete", "the answer broke off"
    try:
        answer = read_answer(schema, reply.text)
    except ValueError as error:
        return "unparsable", str(error)
    other = beside_the_question(answer, values)
    return ("unparsable", other) if other else ("answered", "")


def _document(sent: Any) -> _Document:
    try:
        return _Document.model_validate(sent.to_dict(mode="python", warnings=False))
    except (AttributeError, TypeError, ValidationError):
        raise ValueError("a reply that is no chat completion") from None


def _tokens(usage: Any) -> tuple[int, int] | None:
    try:
        counted = _Usage.model_validate(usage)
    except ValidationError:
        return None
    tokens = counted.prompt_tokens, counted.completion_tokens
    return tokens if min(tokens) >= 0 else None


def _name(model: Any) -> str:
    return model if isinstance(model, str) and model else UNKNOWN
