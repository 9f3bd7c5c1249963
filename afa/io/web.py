"""Send HTTP requests with limits on time and reply size, and with a rate limit and retries for public services.

Redirects are not followed, because a redirect would send the request to another host, or drop its body.
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
"""Longest wait between two attempts, in seconds, also if the service asks for more."""
SLACK = 1.1
"""Factor by which the interval between requests exceeds the service's limit: the service counts arrivals, which may
bunch.
"""
TRANSIENT = frozenset({408, 425, 429, 500, 502, 503, 504})
_CHUNK = 1 << 16
_MOST_ASKED = 1e9

Parsed = TypeVar("Parsed")
log = logging.getLogger(__name__)


class Clock(Protocol):
    """A clock with the functions of the module `time` that this module calls."""

    def monotonic(self) -> float: ...
    def time(self) -> float: ...
    def sleep(self, seconds: float, /) -> None: ...


@dataclass(frozen=True)
class Bounds:
    """Limits of the requests to one service.

    Parameters
    ----------
    retries : attempts after the first
    backoff : seconds before the second attempt, doubled before each further one
    timeout : longest silence, in seconds
    deadline : longest time for one reply, in seconds
    largest : largest reply, in bytes

    """

    retries: int = 4
    backoff: float = 1.0
    timeout: float = 30.0
    deadline: float = 120.0
    largest: int = 32 << 20


USUAL = Bounds()


@dataclass(eq=False)
class ReplyError(Exception):
    """Error for a reply that is missing or cannot be used.

    Parameters
    ----------
    found, expected, step : texts of the fault: what came, what should have come, what the user may do
    again : another attempt may succeed
    wait : seconds that the service asks to wait, None if it names none
    fatal : further questions will fail as well
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


def called(url: str, fields: Mapping[str, str], bounds: Bounds) -> HttpReply:
    """Return the reply to a GET request with `fields` in the address.

    The call must end within `bounds.deadline` seconds, including the whole reply.

    Raises
    ------
    ReplyError : there is no complete reply, or it is larger than `bounds.largest` bytes.

    """
    late = ReplyError(f"no whole reply in {bounds.deadline:g} seconds", again=True)
    return within(bounds.deadline, lambda: _called(url, fields, bounds, late), late)


def within(seconds: float, call: Callable[[], Parsed], late: Exception) -> Parsed:
    """Return the result of `call`, or raise `late` after `seconds`.

    The time limit applies whatever step of the call hangs. The thread of an abandoned call runs on until the call
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


def _called(url: str, fields: Mapping[str, str], bounds: Bounds, late: ReplyError) -> HttpReply:
    end = time.monotonic() + bounds.deadline
    try:
        with requests.get(
            url,
            params=fields,
            # A small compressed reply could unpack to a very large reply.
            headers={"Accept-Encoding": "identity", "User-Agent": "afa"},
            auth=_as_given,
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


def _as_given(request: requests.PreparedRequest) -> requests.PreparedRequest:
    """Return the request unchanged, as the `auth` argument of requests.

    Without an `auth` argument, the library requests would look for credentials in ~/.netrc.
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
    """Return the result of `once(seconds left)`, which is repeated up to `retries` times if its error allows a retry.

    Waits begin at `backoff` seconds and double with each retry. A wait that the service asks for replaces the computed
    wait. No wait is longer than `longest`, and each wait is logged as a warning. All attempts and waits together take
    at most `deadline` seconds.

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
    """A client of one HTTP service, whose rate limit all threads share.

    Requests must not contain data that identify the user, because errors and logs show addresses.
    """

    def __init__(self, per_second: float, bounds: Bounds = USUAL, *, clock: Clock = time) -> None:
        self._apart, self._bounds, self._clock = SLACK / per_second, bounds, clock
        self._lock, self._next = threading.Lock(), -math.inf

    def wait(self) -> None:
        """Wait until the next request may be sent, at a rate that all threads share."""
        with self._lock:
            now = self._clock.monotonic()
            start = max(now, self._next)
            self._next = start + self._apart
        if start > now:
            self._clock.sleep(start - now)

    def asked(self, url: str, fields: Mapping[str, str], parse: Callable[[bytes], Parsed]) -> Parsed:
        """Return `parse(body)` of the reply to a GET request with `fields` in the address.

        `parse` may raise a `ReplyError`. Failed attempts are repeated within the limits of `Bounds`.

        Raises
        ------
        ElicitationError : the last attempt failed; the message has the address without the fields.

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
    """Return the JSON object in a reply. Without a JSON object, raise a `ReplyError` that allows a retry."""
    try:
        # The parser is not strict, because services repeat unescaped control characters of a query.
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
    """Return the number of seconds to wait that a Retry-After header states as a number or a date.

    If the header is missing or the number is too large, return None.
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
