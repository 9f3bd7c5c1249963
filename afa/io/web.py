"""HTTP within bounds: one call with a deadline and a largest reply; and a public service, paced and tried again.

No redirect is followed: it would carry what is sent to another host, or drop it.
"""

from __future__ import annotations

import http.client
import json
import logging
import math
import re
import threading
import time
from collections.abc import Callable, Mapping
from concurrent import futures
from dataclasses import dataclass, field
from datetime import UTC
from email.utils import parsedate_to_datetime
from itertools import count
from typing import Any, Literal, Protocol, TypeVar

import requests
import urllib3

from afa.errors import ElicitationError, Fault

LONGEST_WAIT = 60.0
"""Seconds between two attempts at most, whatever the service asks for."""
SLACK = 1.1
"""The service counts requests as they arrive: these are sent further apart by this factor than its limit has it."""
TRANSIENT = frozenset({408, 425, 429, 500, 502, 503, 504})
_CHUNK = 1 << 16
_MOST_ASKED = 1e9

Parsed = TypeVar("Parsed")
log = logging.getLogger(__name__)


class Clock(Protocol):
    """What is asked of a clock; the module `time` is one."""

    def monotonic(self) -> float: ...
    def time(self) -> float: ...
    def sleep(self, seconds: float, /) -> None: ...


@dataclass(frozen=True)
class Bounds:
    """How long a service is asked: `retries` after the first attempt, `backoff` seconds before the first of them.

    timeout : seconds of silence. deadline : seconds for the body of one reply. largest : bytes of one reply.
    """

    retries: int = 4
    backoff: float = 1.0
    timeout: float = 30.0
    deadline: float = 120.0
    largest: int = 32 << 20


USUAL = Bounds()


@dataclass(eq=False)
class ReplyError(Exception):
    """A reply that is not what was asked for.

    again : another attempt may succeed. wait : seconds asked for. step : what a reader may do. fatal : no other
    question will be answered either. used : tokens of prompt and answer, None without a count. body : what came.
    """

    found: str
    expected: str = "an answer"
    step: str = ""
    again: bool = field(default=False, kw_only=True)
    wait: float | None = None
    fatal: bool = False
    used: tuple[int, int] | None = None
    body: str = ""


@dataclass(frozen=True)
class HttpReply:
    """A whole reply, of whatever status; names of headers in any case."""

    status: int
    headers: Mapping[str, str]
    body: bytes


def called(method: str, url: str, bounds: Bounds, *, headers: Mapping[str, str], **sent: Any) -> HttpReply:
    """One call, within `bounds.deadline` seconds from its begin to the end of its reply.

    sent : `params` or `data`, as `requests.request` has them.

    Raises
    ------
    ReplyError : there is no whole reply, or it is larger than `bounds.largest` bytes.

    """
    late = ReplyError(f"no whole reply in {bounds.deadline:g} seconds", again=True)
    return within(bounds.deadline, lambda: _called(method, url, bounds, late, headers, sent), late)


def within(seconds: float, call: Callable[[], Parsed], late: Exception) -> Parsed:
    """What `call` gives, or `late` after `seconds`, whatever it waits for: a name, a header, one byte after another.

    The thread that is given up goes on until its call ends by itself.
    """
    done: futures.Future[Parsed] = futures.Future()

    def run() -> None:
        try:
            done.set_result(call())
        except BaseException as error:
            done.set_exception(error)

    threading.Thread(target=run, daemon=True).start()
    if not futures.wait([done], max(0.0, seconds)).done:
        raise late
    return done.result()


def _called(
    method: str, url: str, bounds: Bounds, late: ReplyError, headers: Mapping[str, str], sent: Mapping[str, Any]
) -> HttpReply:
    end = time.monotonic() + bounds.deadline
    try:
        with requests.request(
            method,
            url,
            # Compressed, a small reply could hold a large one.
            headers={"Accept-Encoding": "identity", **headers},
            auth=_as_given,
            timeout=min(bounds.timeout, bounds.deadline),
            stream=True,
            allow_redirects=False,
            **sent,
        ) as reply:
            if reply.headers.get("Content-Encoding", "identity") != "identity":
                raise ReplyError("a compressed reply", "a plain one, as was asked for")
            body = bytearray()
            while chunk := reply.raw.read1(_CHUNK):
                body += chunk
                if len(body) > bounds.largest:
                    found = f"a reply of more than {bounds.largest} bytes"
                    raise ReplyError(found, "less, for what was asked")
                if time.monotonic() > end:
                    raise late
            return HttpReply(reply.status_code, reply.headers, bytes(body))
    except (requests.exceptions.MissingSchema, requests.exceptions.InvalidSchema, requests.exceptions.InvalidURL):
        raise ReplyError("an address that cannot be asked", "http or https") from None
    except (requests.Timeout, urllib3.exceptions.TimeoutError, TimeoutError):
        silent = ReplyError(f"silence for {bounds.timeout:g} seconds", again=True)
        raise (silent if bounds.timeout < bounds.deadline else late) from None
    except requests.RequestException as error:
        raise ReplyError(f"no answer ({_cause(error)})", again=True) from None
    except (urllib3.exceptions.HTTPError, http.client.HTTPException, OSError):
        raise ReplyError("a reply that broke off", "the whole of it", again=True) from None


def _as_given(request: requests.PreparedRequest) -> requests.PreparedRequest:
    """Authorization as the headers have it: without this, requests would look for another one in ~/.netrc."""
    return request


def _cause(error: requests.RequestException) -> str:
    reason = getattr(error.args[0] if error.args else None, "reason", None)
    parts = re.search(r"\] (.*)$", str(reason or ""))
    return f"{type(error).__name__}: {parts.group(1)}" if parts else type(error).__name__


def tried(
    once: Callable[[float], Parsed],
    where: str,
    *,
    retries: int,
    backoff: float,
    longest: float,
    clock: Clock,
    deadline: float = math.inf,
) -> Parsed:
    """What `once(seconds left)` returns. Where its error can be retried it is called again, up to `retries` times.

    Before another attempt are `backoff` seconds, doubled each time, or those that the service asks for, but at most
    `longest`; each wait is logged as a warning. All attempts and waits take at most `deadline` seconds.

    Raises
    ------
    ReplyError : of the last attempt.

    """
    end = clock.monotonic() + deadline
    for number in count(1):
        try:
            return once(end - clock.monotonic())
        except ReplyError as error:
            wait = min(backoff * 2 ** (number - 1) if error.wait is None else error.wait, longest)
            error.found += f" ({number} attempts)" if number > 1 else ""
            if not error.again or number > retries:
                raise
            if clock.monotonic() + wait >= end:
                error.found += f", and no time for another attempt within {deadline:g} seconds"
                raise
            plan = f"trying again in {wait:g} seconds"
            if error.wait is not None:
                capped = ", the longest wait" if error.wait > wait else ""
                plan = f"the server asks for {error.wait:.0f} seconds (Retry-After): {plan}{capped}"
            log.warning("%s: %s; %s (%d left)", where, error.found, plan, retries + 1 - number)
            clock.sleep(wait)
    raise AssertionError("unreachable")


class Web:
    """One service: what is asked of it, and what is said of it where that fails.

    What identifies the user belongs in the body of a request, never in its address: errors and logs show addresses.
    """

    def __init__(
        self, per_second: float, bounds: Bounds = USUAL, *, transient: frozenset[int] = TRANSIENT, clock: Clock = time
    ) -> None:
        self._apart, self._bounds, self._transient, self._clock = SLACK / per_second, bounds, transient, clock
        self._lock, self._next = threading.Lock(), -math.inf

    def wait(self) -> None:
        """Return when the next request may be sent: all threads share one pace."""
        with self._lock:
            now = self._clock.monotonic()
            start = max(now, self._next)
            self._next = start + self._apart
        if start > now:
            self._clock.sleep(start - now)

    def asked(
        self, method: Literal["GET", "POST"], url: str, fields: Mapping[str, str], parse: Callable[[bytes], Parsed]
    ) -> Parsed:
        """What `parse` makes of the reply to a GET with `fields` in the address, or a POST with them in the body.

        Attempts are made until one succeeds; `parse` may raise a `ReplyError` of its own.

        Raises
        ------
        ElicitationError : the last attempt failed; it names the address, without the fields of a POST.

        """
        bounds = self._bounds

        def once(_: float) -> Parsed:
            self.wait()
            sent = {"params" if method == "GET" else "data": fields}
            reply = called(method, url, bounds, headers={"User-Agent": "afa"}, **sent)
            if reply.status == requests.codes.ok:
                return parse(reply.body)
            # The body of a refusal is not shown: one of PubMed repeats the key or the caller's address.
            wait = seconds_asked_for(reply.headers, self._clock.time())
            raise ReplyError(f"HTTP status {reply.status}", again=reply.status in self._transient, wait=wait)

        try:
            return tried(
                once, url, retries=bounds.retries, backoff=bounds.backoff, longest=LONGEST_WAIT, clock=self._clock
            )
        except ReplyError as error:
            step = "try again later" if error.again else "check the address and the question"
            step += "; what was retrieved so far is kept"
            raise ElicitationError(Fault(url, error.found, error.expected, step)) from None


def json_object(body: bytes) -> dict[str, Any]:
    """The object that a reply holds; a `ReplyError` where it is none, which another attempt may mend."""
    try:
        # Not strict: control characters of a question come back unescaped.
        document = json.loads(body, strict=False)
    except (ValueError, RecursionError):
        raise ReplyError(unreadable(body, "JSON"), "JSON", again=True) from None
    if not isinstance(document, dict):
        raise ReplyError("JSON that is no object", "an object", again=True)
    return document


def unreadable(body: bytes, form: str) -> str:
    """What a reply is that cannot be read."""
    start = body[:1000].lstrip().lower()
    if not start:
        return "an empty reply"
    return "an HTML page" if start.startswith((b"<!doctype html", b"<html")) else f"{form} that is cut or broken"


def seconds_asked_for(headers: Mapping[str, str], now: float) -> float | None:
    """Seconds that a Retry-After header asks for, as a number or a date; None where it asks for none, or too many."""
    retry_after = headers.get("Retry-After", "")
    try:
        seconds = float(retry_after)
    except ValueError:
        try:
            when = parsedate_to_datetime(retry_after)
        except (ValueError, OverflowError):
            return None
        seconds = max(0.0, (when if when.tzinfo else when.replace(tzinfo=UTC)).timestamp() - now)
    return seconds if 0 <= seconds <= _MOST_ASKED else None
