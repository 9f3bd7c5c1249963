"""Send requests to a chat endpoint with the `openai` client, and parse the replies.

The time and the size of each reply are limited. The package `openai` is imported only in this module. The command `pip
install 'afa[elicitation]'` installs `openai`.
"""

from __future__ import annotations

import json
import logging
import re
import time
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Any

from afa.elicit.record import UNKNOWN
from afa.errors import ElicitationError, Fault
from afa.io.web import HttpReply, ReplyError, RequestLimits, call_with_timeout, unreadable
from afa.model.study import Endpoint

try:
    import openai
except ModuleNotFoundError as error:
    if error.name != "openai":
        raise
    step = "run pip install 'afa[elicitation]'"
    raise ElicitationError(Fault("asking a model", "no package openai", "the extra elicitation", step)) from None

KEPT_HEADERS = ("content-type", "retry-after")
"""Headers of a reply that are read."""
THOUGHTS = ("reasoning", "thinking")
"""Types of message parts that are not part of the answer."""
SHOWN_CHARACTERS, LONGEST_PAGE = 200, 10_000
"""Number of characters shown of a reply in an unknown form, and searched in a page."""


@dataclass(frozen=True)
class Reply:
    """The parsed reply to one request.

    Parameters
    ----------
    finish : the endpoint's reason for the end of the answer, None if it gave none
    tokens : of prompt and answer, None without a count
    model : the model that the endpoint names
    error, code : the endpoint's words and codes for a missing answer; empty otherwise

    """

    text: str = ""
    finish: str | None = None
    refusal: str | None = None
    tokens: tuple[int, int] | None = None
    model: str = UNKNOWN
    error: str = ""
    code: str = ""


class Chat:
    """Client of one chat endpoint. Several threads may share a `Chat`.

    Failed requests are not repeated, and redirects are not followed. The headers of a request are fixed, except the
    header with the API key of `endpoint`. Keys and headers in the environment variables of the package `openai` are
    ignored.
    """

    def __init__(self, endpoint: Endpoint, bounds: RequestLimits) -> None:
        # At level DEBUG, the loggers of the HTTP packages write all headers, and a header may contain the API key.
        for name in ("httpcore", "httpcore2"):
            logging.getLogger(name).setLevel(logging.WARNING)
        self._bounds = bounds
        try:
            self._client = openai.OpenAI(
                base_url=endpoint.base_url,
                api_key=endpoint.key,
                max_retries=0,
                timeout=min(bounds.timeout, bounds.deadline),
                http_client=_Bounded(endpoint.key, bounds),
            )
        except Exception as error:
            found, step = f"an address or a proxy that cannot be used ({error})", "correct it"
            raise ElicitationError(Fault(endpoint.base_url, found, "an address to ask", step)) from None

    def called(self, document: Mapping[str, Any]) -> HttpReply:
        """Send one request, and return the reply, even if its HTTP status reports an error.

        Raise a `ReplyError` if the reply exceeds the limit of time or of size.
        """
        late = _deadline_error(self._bounds)
        return call_with_timeout(self._bounds.deadline, lambda: self._send_chat_request(document, late), late)

    def _send_chat_request(self, document: Mapping[str, Any], late: ReplyError) -> HttpReply:
        try:
            raw = self._client.chat.completions.with_raw_response.create(**document)
            return HttpReply(raw.status_code, raw.headers, raw.content)
        except openai.APIStatusError as error:
            return HttpReply(error.status_code, error.response.headers, error.response.content)
        except openai.APITimeoutError:
            silent = ReplyError(f"silence for {self._bounds.timeout:g} seconds", again=True)
            raise (silent if self._bounds.timeout < self._bounds.deadline else late) from None
        except openai.APIConnectionError as error:
            cause = error.__cause__ or error
            if isinstance(cause, ReplyError):
                raise cause from None
            raise ReplyError(f"no whole reply ({str(cause) or type(cause).__name__})", again=True) from None


class _Bounded(openai.DefaultHttpxClient):
    """HTTP client that sends only fixed headers, and stops reading a reply at the limits of time and size."""

    def __init__(self, key: str, bounds: RequestLimits) -> None:
        super().__init__(follow_redirects=False)
        self.key, self.bounds = key, bounds

    def send(self, request: Any, **options: Any) -> Any:
        own = {
            "Content-Type": "application/json",
            # Ask for an uncompressed reply: a small compressed reply could unpack to more bytes than the limit.
            "Accept-Encoding": "identity",
            # Each request uses a new connection, because an endpoint may have closed an idle connection.
            "Connection": "close",
            "User-Agent": "afa",
            "Authorization": f"Bearer {self.key}",
        }
        made = type(request)(
            request.method, request.url, headers=own, content=request.read(), extensions=request.extensions
        )
        end, body = time.monotonic() + self.bounds.deadline, bytearray()
        reply = super().send(made, **{**options, "stream": True})
        try:
            if reply.headers.get("Content-Encoding", "identity") != "identity":
                raise ReplyError("a compressed reply", "a plain one, as was asked for")
            for chunk in reply.iter_raw():
                body += chunk
                if len(body) > self.bounds.largest:
                    found = f"a reply of more than {self.bounds.largest} bytes"
                    raise ReplyError(found, "less, for what was asked")
                if time.monotonic() > end:
                    raise _deadline_error(self.bounds)
        finally:
            reply.close()
        headers = {name: reply.headers[name] for name in KEPT_HEADERS if name in reply.headers}
        return type(reply)(reply.status_code, headers=headers, content=bytes(body), request=request)


def _deadline_error(bounds: RequestLimits) -> ReplyError:
    return ReplyError(f"no whole reply in {bounds.deadline:g} seconds", again=True)


def read_reply(text: str) -> Reply:
    """Parse the body of a reply.

    The body is one JSON document or server-sent events, and contains an answer or an error. If the body is no chat
    completion, `error` contains the error message in the body. If the body has no error message, `error` describes the
    body and quotes its first characters.
    """
    text = text.removeprefix("\ufeff").strip()
    reply, arguments, is_completion = Reply(), "", False
    try:
        for part in _json_documents(text):
            model, choices = part.get("model"), part.get("choices") or []
            reply = replace(
                reply,
                tokens=_tokens(part.get("usage")) or reply.tokens,
                model=model if isinstance(model, str) and model else reply.model,
            )
            for place in (part, *choices[:1]):
                if place.get("error"):
                    error, code = _error_and_code(place)
                    return replace(reply, error=error or json.dumps(place["error"])[:SHOWN_CHARACTERS], code=code)
            is_completion |= choices == part.get("choices") == []
            for choice in choices[:1]:
                for message in filter(None, (choice.get("message"), choice.get("delta"))):
                    is_completion = True
                    arguments += _tool_arguments(message)
                    refusal = (reply.refusal or "") + (message.get("refusal") or "")
                    reply = replace(
                        reply, text=reply.text + _content_text(message.get("content")), refusal=refusal or None
                    )
                reply = replace(reply, finish=choice.get("finish_reason") or reply.finish)
        if is_completion:
            return reply if reply.text.strip() or not arguments else replace(reply, text=arguments)
    except (ValueError, TypeError, AttributeError, KeyError, RecursionError):
        pass  # the body is no chat completion, as the error message below says
    error, code = reason_of(text)
    return replace(reply, error=f"no chat completion ({error})", code=code)


def reason_of(text: str) -> tuple[str, str]:
    """Return the error message and the error code in the body of a reply.

    If the body has no error message, the returned message describes the body and quotes its first characters.
    """
    what, start = "JSON without a message", text.strip()[:SHOWN_CHARACTERS]
    try:
        error, code = _error_and_code(json.loads(text))
        if error:
            return error, code
    except (ValueError, RecursionError):
        what = unreadable(text.encode(), "JSON")
        if what.endswith("page"):
            start = re.sub("<[^<>]*>", " ", text[:LONGEST_PAGE]).strip()[:SHOWN_CHARACTERS]
        elif not start.startswith(("{", "[")):
            return start or what, ""
    return f"{what}: {start}".removesuffix(": "), ""


def _json_documents(text: str) -> Iterator[dict[str, Any]]:
    """Yield the JSON document in a body, or one JSON document for each server-sent event in the body.

    Comments and empty events of a stream are skipped.
    """
    if text.startswith(("{", "[")):
        yield json.loads(text)
        return
    for line in re.split("[\r\n]+", text):
        name, _, data = line.partition(":")
        if name == "data" and data.strip() not in ("", "null", "[DONE]"):
            yield json.loads(data)


def _content_text(content: Any) -> str:
    """Return the text of a message's `content`, without the model's thoughts.

    The `content` is a text or a list of parts.
    """
    if isinstance(content, list):
        parts = [{"text": part} if isinstance(part, str) else part for part in content]
        return "".join(part.get("text") or "" for part in parts if part.get("type") not in THOUGHTS)
    if not isinstance(content, str | None):
        raise TypeError("a content that is no text")
    return content or ""


def _tool_arguments(message: Mapping[str, Any]) -> str:
    """Return the arguments of the first tool call of a message.

    If a message has no text, the arguments of its tool call are read as the answer.
    """
    calls = [call["function"] for call in message.get("tool_calls") or () if not call.get("index")][:1]
    given = (calls[0] if calls else message.get("function_call") or {}).get("arguments") or ""
    return given if isinstance(given, str) else json.dumps(given)


def _error_and_code(document: Any) -> tuple[str, str]:
    """Return the error message and the error code that a JSON document contains.

    Endpoints use various JSON keys for the error message. If there is no error message, return two empty texts.
    """
    if isinstance(document, list):
        document = document[0] if document else None
    if not isinstance(document, dict):
        return document if isinstance(document, str) else "", ""
    code = " ".join(str(document[name]) for name in ("code", "type") if document.get(name))
    for name in ("error", "message", "detail", "msg"):
        words, inner = _error_and_code(document.get(name))
        if words:
            place = ".".join(map(str, document["loc"])) + ": " if isinstance(document.get("loc"), list) else ""
            return place + words, inner or code
    return "", code


def _tokens(usage: Any) -> tuple[int, int] | None:
    """Return the numbers of prompt tokens and answer tokens, or None if one of the two numbers is missing."""
    try:
        tokens = int(usage["prompt_tokens"]), int(usage["completion_tokens"])
    except (KeyError, TypeError, ValueError, OverflowError):
        return None
    return tokens if min(tokens) >= 0 else None
