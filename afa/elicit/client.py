"""Ask one language model at an OpenAI-compatible endpoint, and record every attempt."""

from __future__ import annotations

import json
import random
import re
import threading
import time
from collections.abc import Mapping
from dataclasses import replace
from datetime import UTC, datetime
from functools import cached_property
from typing import TYPE_CHECKING, Any

from afa.elicit.answers import ANSWER_SCHEMAS, Answer, beside_the_question, read_wrapped
from afa.elicit.budget import Budget, BudgetError, Usage
from afa.elicit.prompts import answer_schema, key_of, prompt_digest, with_fault
from afa.elicit.record import UNKNOWN, AnswerOutcome, Entry, Messages, Request
from afa.errors import ElicitationError, Fault
from afa.io.web import HttpReply, ReplyError, RequestLimits, seconds_asked_for
from afa.model.study import Endpoint, Manner

if TYPE_CHECKING:
    from afa.elicit.chat import Chat, Reply

LARGEST_REPLY = 4 << 20
"""Largest reply, in bytes."""
OK, REDIRECTS, REFUSALS, TIMED_OUT, INTERNAL = 200, 300, 400, 408, 500
"""HTTP statuses: the first of a class, or a single one."""
RETRY_STATUSES = frozenset({TIMED_OUT, 409, 425, 429})
"""Statuses after which another call may succeed, in addition to all from `INTERNAL` on."""
REFUSAL_WORDS = re.compile(
    "content_filter|content_policy_violation|invalid_prompt"
    "|context_length_exceeded|ContextWindowExceeded|exceed_context_size|context (?:length|size|window)"
    "|(?:prompt|input) is too long|input token count",
    re.IGNORECASE,
)
"""Words of errors that concern one question only: content filters, and prompts too long for the model's context."""
QUESTION_STATUSES = frozenset({400, 413, 422})
"""Statuses of such errors, in addition to those below `REDIRECTS`."""
EXHAUSTED = "insufficient_quota"
"""Code of a 429 that does not pass with time."""
LONGEST_DETAIL = 500
"""Longest reason, in characters."""


class Client:
    """Client that asks one model and records every prompt, request and attempt.

    Several threads may share a `Client`.
    """

    def __init__(self, endpoint: Endpoint, budget: Budget, manner: Manner) -> None:
        self.endpoint, self.budget, self.record, self.manner = endpoint, budget, budget.record, manner
        self._lock = threading.Lock()
        self._failures, self._closed_until = 0, 0.0

    @cached_property
    def _chat(self) -> Chat:
        """Return the chat client. The chat client is created when it is first used.

        The package `openai` is slow to import, and is not needed by a run that only estimates costs.
        """
        from afa.elicit.chat import Chat  # noqa: PLC0415

        bounds = RequestLimits(timeout=self.manner.timeout, deadline=self.manner.deadline, largest=LARGEST_REPLY)
        return Chat(self.endpoint, bounds)

    def key(self, request: Request) -> str:
        """Return the key under which the attempts at a request are recorded."""
        return key_of(request, self.endpoint.model, self.manner)

    def recorded(self, request: Request) -> Entry | None:
        """Return the recorded answer to a request, or None if the request is to be sent again.

        If a valid reply is recorded, the first valid reply is returned. If `Manner.answers` replies are recorded and
        all of them are invalid, the last reply is returned, so that the request is not sent again.
        """
        return self.record.settled(self.key(request), self.manner.answers)

    def expected(self, request: Request) -> Usage:
        """Return upper bounds on the tokens and cost of sending the request once."""
        messages = request.messages
        text = messages.system + messages.user + json.dumps(answer_schema(request.question.prompt))
        return self.budget.expected(text, self.manner.most_tokens)

    def ask(self, request: Request, *, stop: threading.Event | None = None) -> Entry | None:
        """Return the recorded answer to a request, or ask the model for an answer.

        If the model gives no answer, return the last attempt. `Manner.answers` limits the number of replies, including
        the replies to earlier runs, but not the number of failures of the endpoint. After `stop` is set, no further
        request is sent. If `stop` is set before the model answers, return the last attempt, or None if there is no
        attempt.

        Raises
        ------
        BudgetError : the next call would exceed a cap.
        ElicitationError : the endpoint refuses the key or the request, has failed `Manner.failures` times in a row, or
            asks for a longer wait than `Manner.patience`.

        """
        stop, last = stop or threading.Event(), None
        self.record.keep(request.messages)
        while (known := self.recorded(request)) is None:
            made = self._attempt(request, stop)
            if made is None or made.outcome == "failed" or stop.is_set():
                return made or last
            last = made
        return known

    def _attempt(self, request: Request, stop: threading.Event) -> Entry | None:
        """Make one more attempt at a request, and record it. If `stop` is set before a request is sent, return None.

        If the last answer was invalid, the prompt quotes the error in that answer. The prompt is sent up to
        `Manner.calls` times, until the endpoint replies without an error.
        """
        chat, key, prompt = self._chat, self.key(request), request.question.prompt
        earlier = self.record.replies(key)
        fault = earlier[-1].detail if earlier and earlier[-1].outcome in ("unparsable", "incomplete") else ""
        messages = with_fault(request.messages, fault)
        if fault:
            self.record.keep(messages)
        failure, expected = None, self.expected(Request(request.question, messages))
        for turn in range(self.manner.calls):
            self._wait_for_endpoint(stop)
            if stop.is_set():
                break
            try:
                name = self.budget.begin(key, expected)
            except BudgetError:
                if failure is not None:
                    self._record_attempt(request, len(earlier) + 1, "failed", failure.found, failure.body)
                raise
            try:
                reply = self._send_prompt(chat, prompt, messages)
            except ReplyError as error:
                failure, error.found = error, self._one_line_detail(error.found)
                self.budget.end(name, error.used)
                self._count_failure(error)
                if error.wait is None and turn + 1 < self.manner.calls and not stop.is_set():
                    self._pause(_back_off_seconds(turn), stop)
                continue
            self.budget.end(name, reply.tokens)
            self._failures = 0
            # The API key is removed from the text before parsing, because the recorded text also lacks the key. A later
            # parse of the recorded text then gives the same answer.
            reply = replace(reply, text=self._recordable_text(reply.text))
            outcome, detail = reply_outcome(reply, ANSWER_SCHEMAS[prompt], request.question.values)
            said = reply.text or reply.refusal or ""
            return self._record_attempt(request, len(earlier) + 1, outcome, detail, said, reply)
        if failure is None:
            return None
        return self._record_attempt(request, len(earlier) + 1, "failed", failure.found, failure.body)

    def _count_failure(self, failure: ReplyError) -> None:
        """Count a failed request. If the endpoint asks for a waiting time, make all threads wait.

        Raises
        ------
        ElicitationError : the state of the endpoint, and when to run again.

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
        """Wait as long as the endpoint has requested."""
        with self._lock:
            until = self._closed_until
        if (wait := until - time.monotonic()) > 0:
            self._pause(wait, stop)
            with self._lock:
                self._closed_until = 0.0 if self._closed_until == until else self._closed_until

    def _send_prompt(self, chat: Chat, prompt: str, messages: Messages) -> Reply:
        """Send the prompt once and return the reply.

        If the endpoint fails, raise a `ReplyError` with the endpoint's error message.
        """
        from afa.elicit.chat import read_reply, reason_of  # noqa: PLC0415

        came = chat.called(self._request_body(prompt, messages))
        # Remove the API key before the text is shortened, because a part of the key would not be recognised.
        body = self._recordable_text(came.body.decode(errors="replace"))
        reply, is_sound = read_reply(body), OK <= came.status < REDIRECTS
        if is_sound and not reply.error:
            return reply
        if not is_sound:
            error, code = reason_of(body)
            reply = replace(reply, error=f"HTTP status {came.status}: {error}", code=code)
        return self._handle_failed_reply(came, reply, body)

    def _handle_failed_reply(self, came: HttpReply, reply: Reply, body: str) -> Reply:
        """Return the reply as a refusal if the endpoint refuses this question, else raise a `ReplyError`.

        A status from 300 to 499, except 408 (time-out), means that the model computed nothing: 0 tokens are
        counted for the request. After a time-out (408), or a status of 500 or more, the model may have used tokens.
        """
        status, detail = came.status, self._one_line_detail(reply.error)
        if is_refusal := REDIRECTS <= status < INTERNAL and status != TIMED_OUT:
            reply = replace(reply, tokens=reply.tokens or (0, 0))
        if (status < REDIRECTS or status in QUESTION_STATUSES) and REFUSAL_WORDS.search(f"{reply.code} {reply.error}"):
            return replace(reply, text=reply.text or body, finish="content_filter", refusal=detail)
        wait = seconds_asked_for(came.headers, time.time()) or None
        if is_redirect := REDIRECTS <= status < REFUSALS:
            detail, wait = f"{detail}, a redirect, which is not followed", None
        fatal = is_redirect or (is_refusal and status not in RETRY_STATUSES) or EXHAUSTED in reply.code
        raise ReplyError(detail, again=not fatal, wait=wait, fatal=fatal, used=reply.tokens, body=reply.text or body)

    def _request_body(self, prompt: str, messages: Messages) -> dict[str, Any]:
        """Return the JSON body of a request to the endpoint."""
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

    def _record_attempt(
        self, request: Request, attempt: int, outcome: AnswerOutcome, detail: str, said: str, reply: Reply | None = None
    ) -> Entry:
        """Record an attempt and return its entry.

        Parameters
        ----------
        said : the model's whole text; without one, the reply in its place

        """
        entry = Entry(
            question=request.question,
            model=self.endpoint.model,
            parameters=self.manner.parameters,
            prompt_digest=prompt_digest(request.question.prompt),
            messages=request.messages.digest,
            outcome=outcome,
            raw=self._recordable_text(said),
            detail=self._recordable_text(detail),
            attempt=attempt,
            time=datetime.now(UTC).isoformat(timespec="microseconds"),
            tokens=(reply and reply.tokens) or UNKNOWN,
            served_model=self._recordable_text(reply.model if reply else UNKNOWN),
            endpoint=self.endpoint.base_url,
        )
        self.record.append(entry)
        return entry

    def _one_line_detail(self, text: str) -> str:
        """Return the first `LONGEST_DETAIL` characters of a text, on one line and without the API key."""
        return " ".join(self._recordable_text(text).split())[:LONGEST_DETAIL]

    def _recordable_text(self, text: str) -> str:
        """Remove the API key from the text, and write `?` for each character that UTF-8 cannot encode."""
        return self.endpoint.redacted(text).encode(errors="replace").decode()


def reply_outcome(reply: Reply, schema: type[Answer], values: Mapping[str, str]) -> tuple[AnswerOutcome, str]:
    """Return the outcome of a reply, and a note that explains a missing answer or lists ignored parts of the text.

    Parameters
    ----------
    values : the question's values in the template of the prompt

    """
    if reply.refusal or reply.finish == "content_filter":
        return "refused", reply.refusal or "stopped by the endpoint's filter"
    if reply.finish == "length":
        return "incomplete", "cut at the largest number of tokens"
    try:
        answer, notes = read_wrapped(schema, reply.text)
    except ValueError as error:
        # If the endpoint gives no reason for the end of the text, a text that cannot be parsed counts as incomplete.
        return ("incomplete", "the answer broke off") if reply.finish is None else ("unparsable", str(error))
    other = beside_the_question(answer, values)
    return ("unparsable", other) if other else ("answered", "; ".join(notes))


def _back_off_seconds(turn: int) -> float:
    """Return the waiting time before the next request, in seconds.

    The waiting time doubles with each failed request. A random factor keeps several clients from sending requests at
    the same moment.
    """
    return float(2**turn * random.uniform(0.5, 1.0))  # noqa: S311 (not used for secrets)
