"""Send HTTP requests with limits on time and reply size, and with a rate limit and retries for public services.

Redirects are not followed, because a redirect could send the request to another host, or drop its body.
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
from typing import Any, Protocol, TypeVar

import requests
import urllib3

from afa.errors import ElicitationError, Fault

LONGEST_WAIT = 60.0
"""Longest wait between two attempts, in seconds, even if the service asks for a longer wait."""
RATE_MARGIN = 1.1
"""Factor by which the interval between requests exceeds the service's limit.

Without this margin, requests could arrive at shorter intervals than they were sent, and exceed the limit.
"""
TRANSIENT = frozenset({408, 425, 429, 500, 502, 503, 504})
_CHUNK = 1 << 16
_MOST_ASKED = 1e9

Parsed = TypeVar("Parsed")
log = logging.getLogger(__name__)


class Clock(Protocol):
    """A clock with three functions of the standard module `time`: `monotonic`, `time` and `sleep`."""

    def monotonic(self) -> float: ...
    def time(self) -> float: ...
    def sleep(self, seconds: float, /) -> None: ...


@dataclass(frozen=True)
class RequestLimits:
    """Limits on the requests to one service and on the replies.

    Parameters
    ----------
    retries : largest number of attempts after the first
    backoff : wait before the second attempt, in seconds; each further wait is twice as long
    timeout : longest silence, in seconds
    deadline : longest time for one reply, in seconds
    largest : largest reply, in bytes

    """

    retries: int = 4
    backoff: float = 1.0
    timeout: float = 30.0
    deadline: float = 120.0
    largest: int = 32 << 20


DEFAULT_LIMITS = RequestLimits()


@dataclass(eq=False)
class ReplyError(Exception):
    """Error for a reply that is missing or cannot be used.

    Parameters
    ----------
    found, expected, step : texts of the error: what was received, what was expected, what the user may do
    again : another attempt may succeed
    wait : seconds for which the service asks to wait, None if it asks for no wait
    fatal : further requests will fail as well
    used : tokens of prompt and answer, None if the service did not count
    body : the text of the reply

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
    """A complete HTTP reply of any status. Names of headers are case-insensitive."""

    status: int
    headers: Mapping[str, str]
    body: bytes


def called(url: str, fields: Mapping[str, str], bounds: RequestLimits) -> HttpReply:
    """Send a GET request with the query parameters `fields`, and return the reply.

    The whole reply must arrive within `bounds.deadline` seconds.

    Raises
    ------
    ReplyError : there is no complete reply, or it is larger than `bounds.largest` bytes.

    """
    late = ReplyError(f"no whole reply in {bounds.deadline:g} seconds", again=True)
    return call_with_timeout(bounds.deadline, lambda: _send_get_request(url, fields, bounds, late), late)


def call_with_timeout(seconds: float, call: Callable[[], Parsed], late: Exception) -> Parsed:
    """Return the result of `call`, or raise `late` after `seconds`.

    The time limit also applies if the call hangs. After the time limit, the call continues in its own thread until it
    returns.
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


def _send_get_request(url: str, fields: Mapping[str, str], bounds: RequestLimits, late: ReplyError) -> HttpReply:
    end = time.monotonic() + bounds.deadline
    try:
        with requests.get(
            url,
            params=fields,
            # A compressed reply is not requested, because a small compressed reply can unpack to a very large one.
            headers={"Accept-Encoding": "identity", "User-Agent": "afa"},
            auth=_add_no_credentials,
            timeout=min(bounds.timeout, bounds.deadline),
            stream=True,
            allow_redirects=False,
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


def _add_no_credentials(request: requests.PreparedRequest) -> requests.PreparedRequest:
    """Return the request unchanged.

    This function is the argument `auth` in calls of the package `requests`. Without an argument `auth`, the package
    `requests` would look for credentials in ~/.netrc.
    """
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
    """Call `once(seconds left)` until it succeeds, with at most `retries` retries, and return its result.

    If an error does not allow a retry, the error is raised at once. The first wait between attempts is `backoff`
    seconds, and each further wait is twice as long. If the service asks for a wait, that wait is used instead. No wait
    is longer than `longest`, and each wait is logged as a warning. All attempts and waits together take at most
    `deadline` seconds.

    Raises
    ------
    ReplyError : the error of the last attempt.

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
    """Client of one HTTP service. All threads that use the client share one rate limit.

    Requests must not contain data that identify the user, because error messages and logs show the addresses of
    requests.
    """

    def __init__(self, per_second: float, bounds: RequestLimits = DEFAULT_LIMITS, *, clock: Clock = time) -> None:
        self._apart, self._bounds, self._clock = RATE_MARGIN / per_second, bounds, clock
        self._lock, self._next = threading.Lock(), -math.inf

    def wait(self) -> None:
        """Wait until the rate limit, which all threads share, allows the next request."""
        with self._lock:
            now = self._clock.monotonic()
            start = max(now, self._next)
            self._next = start + self._apart
        if start > now:
            self._clock.sleep(start - now)

    def asked(self, url: str, fields: Mapping[str, str], parse: Callable[[bytes], Parsed]) -> Parsed:
        """Send a GET request with the query parameters `fields`, and return `parse(body)` of the reply.

        The function `parse` may raise a `ReplyError`. A failed attempt is repeated as far as the client's
        `RequestLimits` allow.

        Raises
        ------
        ElicitationError : the last attempt failed; the message has the address without the query parameters.

        """
        bounds = self._bounds

        def once(_: float) -> Parsed:
            self.wait()
            reply = called(url, fields, bounds)
            if reply.status == requests.codes.ok:
                return parse(reply.body)
            wait = seconds_asked_for(reply.headers, self._clock.time())
            raise ReplyError(f"HTTP status {reply.status}", again=reply.status in TRANSIENT, wait=wait)

        try:
            return tried(
                once, url, retries=bounds.retries, backoff=bounds.backoff, longest=LONGEST_WAIT, clock=self._clock
            )
        except ReplyError as error:
            step = "try again later" if error.again else "check the address and the question"
            step += "; what was retrieved so far is kept"
            raise ElicitationError(Fault(url, error.found, error.expected, step)) from None


def json_object(body: bytes) -> dict[str, Any]:
    """Return the JSON object in a reply. If there is no JSON object, a `ReplyError` that allows a retry is raised."""
    try:
        # The parser is not strict, because some services repeat the control characters of a query without escaping
        # them.
        document = json.loads(body, strict=False)
    except (ValueError, RecursionError):
        raise ReplyError(unreadable(body, "JSON"), "JSON", again=True) from None
    if not isinstance(document, dict):
        raise ReplyError("JSON that is no object", "an object", again=True)
    return document


def unreadable(body: bytes, form: str) -> str:
    """Return a short description of a reply that cannot be parsed."""
    start = body[:1000].lstrip().lower()
    if not start:
        return "an empty reply"
    return "an HTML page" if start.startswith((b"<!doctype html", b"<html")) else f"{form} that is cut or broken"


def seconds_asked_for(headers: Mapping[str, str], now: float) -> float | None:
    """Return the wait, in seconds, that a Retry-After header states as a number or as a date.

    Return None if the header is missing or invalid, or if the wait is negative or too long.
    """
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
