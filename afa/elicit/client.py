"""A language model behind any OpenAI-compatible endpoint, asked within bounds; every attempt is recorded as it went."""

from __future__ import annotations

import json
import math
import random
import threading
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from email.utils import parsedate_to_datetime
from typing import Any

import openai
from openai import OpenAI

from afa.elicit.account import Account, Used
from afa.elicit.endpoint import BASE_URL, KEY, MODEL, USUAL, Endpoint, Manner
from afa.elicit.keylog import keep_out_of_logs
from afa.elicit.prompts import ANSWERS, answer_schema, prompt_digest
from afa.elicit.reply import Reply, gathered, judged, whole
from afa.elicit.request import Request
from afa.elicit.store import UNKNOWN, Entry, Outcome, Store, request_key
from afa.elicit.wordings import Wordings
from afa.errors import ElicitationError, Fault

__all__ = ["BASE_URL", "KEY", "MODEL", "Client", "Endpoint", "Manner", "Request"]

LONGEST_WAIT = 60.0
"""Seconds that are waited between two calls at most, whatever the endpoint asks for."""
AGAIN = frozenset({408, 409, 429})
"""What another try may mend, beside all from 500 on."""
FILTERED = frozenset({"content_filter", "content_policy_violation", "invalid_prompt"})
"""Codes of errors that refuse one question, not the others."""
EXHAUSTED = "insufficient_quota"
"""The code of a 429 that waiting does not mend."""


@dataclass(frozen=True)
class _Failure:
    """A call without a reply. wait : seconds that the endpoint asks for. free : the endpoint has not worked on it."""

    told: str
    wait: float | None = None
    free: bool = False
    fatal: bool = False


class Client:
    """Asks one model, keeps its account, and writes every attempt and its wording to its store; safe from threads."""

    def __init__(
        self,
        endpoint: Endpoint,
        store: Store,
        account: Account,
        manner: Manner = USUAL,
        *,
        sleep: Callable[[float], None] = time.sleep,
    ) -> None:
        self.endpoint, self.store, self.account, self.manner = endpoint, store, account, manner
        self._sleep = sleep
        self._wordings = Wordings(store.folder)
        # The package's own variables may name other keys and accounts, which are not this endpoint's business.
        authorization = {"Authorization": f"Bearer {endpoint.key}"}
        self._openai = OpenAI(
            base_url=endpoint.base_url,
            api_key=endpoint.key,
            timeout=manner.timeout,
            max_retries=0,
            default_headers=authorization,
        )
        self._openai.organization = self._openai.project = self._openai.admin_api_key = None
        keep_out_of_logs(endpoint)

    def key(self, request: Request) -> str:
        """What the request is found by in the store."""
        digest = prompt_digest(request.question.prompt)
        return request_key(request.question, self.endpoint.model, self.manner.parameters, digest, request.digest)

    def recorded(self, request: Request) -> Entry | None:
        """What `ask` gives without a call: the answer, or the last attempt where no more are to be made; else None."""
        earlier = self._earlier(request)
        answer = next((entry for entry in earlier if entry.outcome == "answered"), None)
        return answer or (earlier[-1] if len(earlier) >= self.manner.answers else None)

    def expected(self, request: Request) -> Used:
        """What one call for the request uses at most."""
        schema = json.dumps(answer_schema(request.question.prompt))
        text = request.messages.system + request.messages.user + schema
        return self.account.expected(text, self.manner.most_tokens)

    def ask(self, request: Request, *, stop: threading.Event | None = None) -> Entry:
        """The answer to a request, from the store or else from the model; without one, the last attempt.

        Attempts of earlier runs count towards `Manner.answers`, but those where the endpoint failed. Once `stop` is
        set, no other call follows the one that is open.

        Raises
        ------
        CapError : the next call would pass a cap. ElicitationError : the endpoint refuses the key or the request.

        """
        if (known := self.recorded(request)) is not None:
            return known
        stop = stop or threading.Event()
        self._wordings.keep(request.messages)
        for attempt in range(len(self._earlier(request)) + 1, self.manner.answers + 1):
            last = self._attempt(request, attempt, stop)
            self.store.append(last)
            if last.outcome in ("answered", "failed") or stop.is_set():
                break
        return last

    def _earlier(self, request: Request) -> list[Entry]:
        return [entry for entry in self.store.attempts(self.key(request)) if entry.outcome != "failed"]

    def _attempt(self, request: Request, attempt: int, stop: threading.Event) -> Entry:
        reply = self._called(request, stop)
        if isinstance(reply, _Failure):
            return self._entry(request, attempt, "failed", reply.told, Reply("", None))
        # The text is judged as it is written down, so that what counts as answered can be read again.
        reply = replace(reply, text=self.endpoint.redacted(reply.text))
        outcome, detail = judged(reply, ANSWERS[request.question.prompt], request.question.values)
        return self._entry(request, attempt, outcome, detail, reply)

    def _called(self, request: Request, stop: threading.Event) -> Reply | _Failure:
        """A reply, after as many tries as it takes and may take; or the last failure."""
        expected = self.expected(request)
        for turn in range(self.manner.calls):
            self.account.reserve(expected, patient=True)
            tokens: tuple[int | None, int | None] = (None, None)
            try:
                reply = self._tried(request)
                if isinstance(reply, Reply) and reply.tokens is not None:
                    tokens = reply.tokens
                elif isinstance(reply, _Failure) and reply.free:
                    tokens = (0, 0)
            finally:
                self.account.settle(expected, *tokens)
            if isinstance(reply, Reply):
                return reply
            if reply.fatal:
                step = "check the address, the model, the key and the manner of asking; what was answered is kept"
                raise ElicitationError(Fault(self.endpoint.base_url, reply.told, "an answer", step))
            if turn + 1 == self.manner.calls or stop.is_set():
                break
            self._pause(min(_back_off(turn) if reply.wait is None else reply.wait, LONGEST_WAIT), stop)
        return reply

    def _tried(self, request: Request) -> Reply | _Failure:
        """One call."""
        try:
            sent = self._openai.chat.completions.create(**self._options(request))
            return gathered(sent) if self.manner.stream else whole(sent)
        except openai.APIStatusError as error:
            told, code = self._told(error), getattr(error, "code", None)
            if error.status_code == 400 and code in FILTERED:
                return Reply("", "content_filter", told, (0, 0))
            fatal = (error.status_code not in AGAIN and error.status_code < 500) or code == EXHAUSTED
            return _Failure(told, _asked_for(error.response.headers), free=True, fatal=fatal)
        except (openai.OpenAIError, ValueError, RecursionError) as error:
            return _Failure(self._told(error))

    def _options(self, request: Request) -> dict[str, Any]:
        manner, schema = self.manner, answer_schema(request.question.prompt)
        options: dict[str, Any] = {"model": self.endpoint.model, manner.limit: manner.most_tokens}
        options |= {} if manner.temperature is None else {"temperature": manner.temperature}
        options |= {} if manner.seed is None else {"seed": manner.seed}
        system = request.messages.system
        if manner.structured == "json_schema":
            named = {"name": request.question.prompt, "schema": schema, "strict": True}
            options["response_format"] = {"type": "json_schema", "json_schema": named}
        else:
            system += f"\nThe schema of the answer: {json.dumps(schema)}\n"
        if manner.structured == "json_object":
            options["response_format"] = {"type": "json_object"}
        if manner.stream:
            options |= {"stream": True, "stream_options": {"include_usage": True}}
        user = {"role": "user", "content": request.messages.user}
        return {**options, "messages": [{"role": "system", "content": system}, user]}

    def _told(self, error: Exception) -> str:
        cause = f" ({error.__cause__})" if isinstance(error, openai.APIConnectionError) and error.__cause__ else ""
        return self.endpoint.redacted(" ".join(f"{type(error).__name__}: {error}{cause}".split()))[:500]

    def _pause(self, seconds: float, stop: threading.Event) -> None:
        if self._sleep is time.sleep:
            stop.wait(seconds)
        else:
            self._sleep(seconds)

    def _entry(self, request: Request, attempt: int, outcome: Outcome, detail: str, reply: Reply) -> Entry:
        return Entry(
            question=request.question,
            model=self.endpoint.model,
            parameters=self.manner.parameters,
            prompt_digest=prompt_digest(request.question.prompt),
            messages=request.digest,
            outcome=outcome,
            raw=self._shown(reply.text),
            detail=self._shown(detail),
            attempt=attempt,
            time=datetime.now(UTC).isoformat(timespec="microseconds"),
            tokens=reply.tokens or UNKNOWN,
            served_model=self._shown(reply.model),
        )

    def _shown(self, text: str) -> str:
        """The text as it can be written down: without the key, and a question mark for half of a character."""
        return self.endpoint.redacted(text).encode(errors="replace").decode()


def _asked_for(headers: Mapping[str, str]) -> float | None:
    """Seconds that the endpoint asks to wait, as a number or a date; None where it does not."""
    asked = headers.get("retry-after", "")
    try:
        seconds = float(asked)
    except ValueError:
        try:
            seconds = parsedate_to_datetime(asked).astimezone(UTC).timestamp() - time.time()
        except (ValueError, OverflowError):
            return None
    return None if math.isnan(seconds) or seconds <= 0 else seconds


def _back_off(turn: int) -> float:
    """Seconds before the next try, doubled each time, and spread so that many clients do not come back at once."""
    return float(2**turn * random.uniform(0.5, 1.0))  # noqa: S311 (no secret hangs on it)
