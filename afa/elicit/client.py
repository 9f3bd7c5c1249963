"""A language model behind any OpenAI-compatible endpoint, asked within bounds; every attempt is recorded as it went."""

from __future__ import annotations

import json
import random
import threading
import time
from collections.abc import Mapping
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from typing import Any

from pydantic import BaseModel, ValidationError

from afa.elicit.answers import ANSWERS, Answer, beside_the_question, read_wrapped
from afa.elicit.budget import Budget, Used
from afa.elicit.prompts import answer_schema, key_of, prompt_digest, with_fault
from afa.elicit.record import UNKNOWN, Entry, Messages, Outcome, Request
from afa.elicit.study import Endpoint, Manner
from afa.elicit.web import Bounds, ReplyError, called, seconds_asked_for, unreadable
from afa.errors import ElicitationError, Fault

LARGEST = 4 << 20
"""Bytes of one reply."""
AGAIN = frozenset({408, 409, 425, 429})
"""Statuses where another try may succeed, beside all from 500 on."""
FILTERED = frozenset({"content_filter", "content_policy_violation", "invalid_prompt"})
"""Codes of errors that refuse one question, not the others."""
EXHAUSTED = "insufficient_quota"
"""Code of a 429 that waiting does not help."""
BUSY = 0.1
"""Seconds between two looks at a question that another process has open."""


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


class Client:
    """Asks one model, and writes every attempt, its wording and its tries to the record; safe from threads."""

    def __init__(self, endpoint: Endpoint, budget: Budget, manner: Manner) -> None:
        self.endpoint, self.budget, self.record, self.manner = endpoint, budget, budget.record, manner
        self._lock = threading.Lock()
        self._failures, self._closed_until = 0, 0.0
        self._bounds = Bounds(timeout=manner.timeout, deadline=manner.deadline, largest=LARGEST)

    def key(self, request: Request) -> str:
        """Key of the request in the record."""
        return key_of(request, self.endpoint.model, self.manner)

    def recorded(self, request: Request) -> Entry | None:
        """What `ask` gives without a call: the answer, or the last attempt where no more are to be made; else None."""
        return self.record.settled(self.key(request), self.manner.answers)

    def expected(self, request: Request) -> Used:
        """The most that one call for the request uses."""
        messages = request.messages
        text = messages.system + messages.user + json.dumps(answer_schema(request.question.prompt))
        return self.budget.expected(text, self.manner.most_tokens)

    def ask(self, request: Request, *, stop: threading.Event | None = None) -> Entry | None:
        """The answer to a request, from the record or else from the model; without one, the last attempt.

        Attempts of earlier runs count towards `Manner.answers`, but not those where the endpoint failed. Once `stop`
        is set, no other call follows the one that is open; None where none was made before.

        Raises
        ------
        CapError : the next call would pass a cap. ElicitationError : the endpoint refuses the key or the request, has
        failed `Manner.failures` times in a row, or asks for a longer wait than `Manner.patience`.

        """
        stop, last = stop or threading.Event(), None
        self.record.keep(request.messages)
        while True:
            # Counted before the look: what another process adds after it is seen when a try is written down.
            attempts = len(self.record.attempts(self.key(request)))
            if (known := self.recorded(request)) is not None:
                return known
            made = self._attempt(request, attempts, stop)
            if made is None:
                self._pause(BUSY, stop)
            last = made or last
            if stop.is_set() or (made is not None and made.outcome == "failed"):
                return last

    def _attempt(self, request: Request, attempts: int, stop: threading.Event) -> Entry | None:
        """One more attempt, written down, which carries the fault of the one before; None where another makes it.

        Calls are made until one has a reply, `Manner.calls` of them at most. attempts : at the request so far.
        """
        key, prompt = self.key(request), request.question.prompt
        earlier = self.record.replies(key)
        fault = earlier[-1].detail if earlier and earlier[-1].outcome in ("unparsable", "incomplete") else ""
        messages = with_fault(request.messages, fault)
        if fault:
            self.record.keep(messages)
        failure, expected = None, self.expected(Request(request.question, messages))
        for turn in range(self.manner.calls):
            self._wait_for_endpoint(stop)
            name = None if stop.is_set() else self.budget.begin(key, expected, attempts)
            if name is None:
                break
            try:
                reply = self._reply(prompt, messages)
            except ReplyError as error:
                failure = error
                self.budget.end(name, (0, 0) if error.free else None)
                self._count(error)
                if error.wait is None and turn + 1 < self.manner.calls and not stop.is_set():
                    self._pause(_back_off(turn), stop)
                continue
            try:
                self._failures = 0
                # The text is judged as it is written down, so that what counts as answered can be read again.
                reply = replace(reply, text=self._writable(reply.text))
                outcome, detail = judged(reply, ANSWERS[prompt], request.question.values)
                return self._recorded(request, len(earlier) + 1, outcome, detail, reply)
            finally:
                # Only now: a try that has ended without an entry would be made again by another process.
                self.budget.end(name, reply.tokens)
        if failure is None:
            return None
        return self._recorded(request, len(earlier) + 1, "failed", failure.found, Reply("", None))

    def _count(self, failure: ReplyError) -> None:
        """Close the endpoint for all threads as long as it asks for, or stop where it is of no use to go on.

        Raises
        ------
        ElicitationError : the state of the endpoint, and when to come back.

        """
        with self._lock:
            self._failures += 1
            failures = self._failures
            if failure.wait is not None:
                self._closed_until = max(self._closed_until, time.monotonic() + failure.wait)
        found, step = "", "run again, which asks what is left; what was answered is kept"
        if failure.fatal:
            found = failure.found
            step = "check the address, the model, the key and the manner of asking; what was answered is kept"
        elif failure.wait is not None and failure.wait > self.manner.patience:
            until = datetime.fromtimestamp(min(time.time() + failure.wait, 4e9), UTC).isoformat(" ", "seconds")
            found, step = f"{failure.found}; it asks to wait until {until}", f"run again after {until}"
        elif failures >= self.manner.failures:
            found = f"no reply to {failures} calls in a row; the last: {failure.found}"
        if found:
            raise ElicitationError(Fault(self.endpoint.base_url, found, "an answer", step))

    def _wait_for_endpoint(self, stop: threading.Event) -> None:
        """Wait as long as the endpoint has asked any thread to."""
        with self._lock:
            until = self._closed_until
        if (wait := until - time.monotonic()) > 0:
            self._pause(wait, stop)
            with self._lock:
                self._closed_until = 0.0 if self._closed_until == until else self._closed_until

    def _reply(self, prompt: str, messages: Messages) -> Reply:
        """The reply to one call, or a `ReplyError`."""
        url = self.endpoint.base_url.rstrip("/") + "/chat/completions"
        headers = {"Authorization": f"Bearer {self.endpoint.key}", "User-Agent": "afa"}
        reply = called("POST", url, self._bounds, headers=headers, json=self._document(prompt, messages))
        if reply.status == 200:
            return read_reply(reply.body)
        detail, code = _error(reply.body)
        detail = self._writable(" ".join(f"HTTP status {reply.status}: {detail}".split()))[:500]
        if reply.status == 400 and code in FILTERED:
            return Reply("", "content_filter", detail, (0, 0))
        wait = seconds_asked_for(reply.headers, time.time()) or None
        if is_redirect := 300 <= reply.status < 400:
            detail, wait = f"{detail}, a redirect, which is not followed", None
        fatal = is_redirect or (reply.status not in AGAIN and reply.status < 500) or code == EXHAUSTED
        raise ReplyError(detail, again=not fatal, wait=wait, free=True, fatal=fatal)

    def _document(self, prompt: str, messages: Messages) -> dict[str, Any]:
        """The body of a request."""
        manner, bounds = self.manner, self.manner.structured != "bare_schema"
        schema = answer_schema(prompt, bounds=bounds)
        document: dict[str, Any] = {"model": self.endpoint.model, manner.limit: manner.most_tokens}
        document |= {} if manner.temperature is None else {"temperature": manner.temperature}
        document |= {} if manner.seed is None else {"seed": manner.seed}
        system = messages.system
        if manner.structured in ("json_schema", "bare_schema"):
            named = {"name": prompt, "schema": schema, "strict": True}
            document["response_format"] = {"type": "json_schema", "json_schema": named}
        else:
            system += f"\nThe schema of the answer: {json.dumps(schema)}\n"
        if manner.structured == "json_object":
            document["response_format"] = {"type": "json_object"}
        if manner.stream:
            document |= {"stream": True, "stream_options": {"include_usage": True}}
        parts = (("system", system), ("user", messages.user))
        return {**document, "messages": [{"role": role, "content": content} for role, content in parts]}

    def _pause(self, seconds: float, stop: threading.Event) -> None:
        stop.wait(seconds)

    def _recorded(self, request: Request, attempt: int, outcome: Outcome, detail: str, reply: Reply) -> Entry:
        entry = Entry(
            question=request.question,
            model=self.endpoint.model,
            parameters=self.manner.parameters,
            prompt_digest=prompt_digest(request.question.prompt),
            messages=request.messages.digest,
            outcome=outcome,
            raw=reply.text,
            detail=self._writable(detail),
            attempt=attempt,
            time=datetime.now(UTC).isoformat(timespec="microseconds"),
            tokens=reply.tokens or UNKNOWN,
            served_model=self._writable(reply.model),
            endpoint=self.endpoint.base_url,
        )
        self.record.append(entry)
        return entry

    def _writable(self, text: str) -> str:
        """The text as it can be written down: without the key, and a question mark for half of a character."""
        return self.endpoint.redacted(text).encode(errors="replace").decode()


class _Part(BaseModel):
    content: str | None = None
    refusal: str | None = None


class _Choice(BaseModel):
    message: _Part = _Part()
    delta: _Part = _Part()
    finish_reason: str | None = None


class _Completion(BaseModel):
    choices: list[_Choice]
    model: Any = None
    usage: Any = None


class _Usage(BaseModel):
    prompt_tokens: int
    completion_tokens: int


def read_reply(body: bytes) -> Reply:
    """The reply that the body of a call holds, whole or in pieces (server-sent events); without choices it broke off.

    Raises
    ------
    ReplyError : it is no chat completion, which another try may be.

    """
    if body.lstrip().startswith(b"data:"):
        pieces = [line[5:].strip() for line in body.splitlines() if line.startswith(b"data:")]
        parts = [_completion(piece) for piece in pieces if piece not in (b"", b"[DONE]")]
    else:
        parts = [_completion(body)]
    text, refusal, finish, tokens, model = "", "", None, None, UNKNOWN
    for part in parts:
        model = part.model if isinstance(part.model, str) and part.model else model
        tokens = _tokens(part.usage) or tokens
        for choice in part.choices[:1]:
            text += (choice.message.content or "") + (choice.delta.content or "")
            refusal += (choice.message.refusal or "") + (choice.delta.refusal or "")
            finish = choice.finish_reason or finish
    return Reply(text, finish, refusal or None, tokens, model)


def judged(reply: Reply, schema: type[Answer], values: Mapping[str, str]) -> tuple[Outcome, str]:
    """Whether a reply is an answer of the schema to the question of `values`; why not, or what was set aside."""
    if reply.refusal or reply.finish == "content_filter":
        return "refused", reply.refusal or "stopped by the endpoint's filter"
    if reply.finish == "length":
        return "incomplete", "cut at the largest number of tokens"
    if reply.finish is None:
        return "incomplete", "the answer broke off"
    try:
        answer, notes = read_wrapped(schema, reply.text)
    except ValueError as error:
        return "unparsable", str(error)
    other = beside_the_question(answer, values)
    return ("unparsable", other) if other else ("answered", "; ".join(notes))


def _completion(body: bytes) -> _Completion:
    try:
        return _Completion.model_validate(json.loads(body))
    except (ValueError, RecursionError, ValidationError):
        raise ReplyError(f"no chat completion ({unreadable(body, 'JSON')})", again=True) from None


def _error(body: bytes) -> tuple[str, str]:
    """The message and the code of an endpoint's error."""
    try:
        error = json.loads(body)["error"]
        return str(error.get("message") or "no message"), str(error.get("code") or "")
    except (ValueError, RecursionError, KeyError, TypeError, AttributeError):
        return unreadable(body, "a message"), ""


def _tokens(usage: Any) -> tuple[int, int] | None:
    try:
        counted = _Usage.model_validate(usage)
    except ValidationError:
        return None
    tokens = counted.prompt_tokens, counted.completion_tokens
    return tokens if min(tokens) >= 0 else None


def _back_off(turn: int) -> float:
    """Seconds before the next try, doubled each time, and spread so that many clients do not come back at once."""
    return float(2**turn * random.uniform(0.5, 1.0))  # noqa: S311 (no secret hangs on it)
