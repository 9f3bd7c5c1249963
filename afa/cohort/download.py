"""Fetching one file over HTTP so that whatever lies at the target is the whole, right file.

Built on pooch. GEO itself was out of reach when this was written: it was tested against local servers that misbehave
in the ways a public server does, not against GEO.
"""

from __future__ import annotations

import sys
import time
from datetime import UTC, datetime
from email.utils import parsedate_to_datetime
from pathlib import Path
from typing import Any

import pooch
import requests

from afa.cohort.archive import Damage, damage_of
from afa.errors import DownloadError, Fault
from afa.files import atomic_file, sha256_of

LONGEST_WAIT = 300.0
_CHUNK = 1 << 20
_RETRIED_STATUS = frozenset({408, 425, 429, 500, 502, 503, 504})
_BY_HAND = "try again later, or put the file in this place by hand"


class _FailedError(Exception):
    """One attempt failed; `again` says whether another may succeed, `wait` how many seconds the server asked for."""

    def __init__(
        self, found: str, expected: str, next_step: str, *, again: bool = False, wait: float | None = None
    ) -> None:
        super().__init__(found)
        self.found, self.expected, self.next_step = found, expected, next_step
        self.again, self.wait = again, wait


def download(
    url: str,
    target: Path,
    *,
    sha256: str | None = None,
    retries: int = 4,
    timeout: float = 60.0,
    backoff: float = 1.0,
) -> Path:
    """Fetch `url` to `target` and return `target`; a file that is there, with the right hash if one is given, is kept.

    Lost connections, truncated replies and the statuses 408, 425, 429 and 5xx are tried again up to `retries` times,
    after `backoff` seconds, doubled each time, or after the server's Retry-After. `timeout` (seconds) is the longest
    silence of the server. Every failure is a `DownloadError`; `target` is then untouched. Processes may share a folder.
    """
    target = Path(target)
    if target.exists() and (sha256 is None or sha256_of(target) == sha256):
        return target
    for attempt in range(retries + 1):
        try:
            _attempt(url, target, sha256, timeout)
            break
        except _FailedError as failed:
            wait = backoff * 2**attempt if failed.wait is None else failed.wait
            if wait > LONGEST_WAIT:
                step = f"run this again in {wait:.0f} seconds, as the server asks"
                raise DownloadError(Fault(f"{url} -> {target}", failed.found, failed.expected, step)) from None
            if not failed.again or attempt == retries:
                tries = f" ({attempt + 1} attempts)" if attempt else ""
                fault = Fault(f"{url} -> {target}", failed.found + tries, failed.expected, failed.next_step)
                raise DownloadError(fault) from None
            time.sleep(wait)
        except OSError as error:
            reason = error.strerror or str(error)
            fault = Fault(str(target), reason, "room to write the file", "check the disk and the folder's permissions")
            raise DownloadError(fault) from None
    return target


def check_intact(path: Path) -> None:
    """Refuse with a `DownloadError` a file that is missing, empty, an HTML page, or a gzip or tar not whole."""
    path = Path(path)
    try:
        damage = damage_of(path)
    except OSError as error:
        fault = Fault(str(path), error.strerror or str(error), "a readable file", "check the path and its permissions")
        raise DownloadError(fault) from None
    if damage is not None:
        step = f"remove {path.name}, fetch it again and put it in this place"
        raise DownloadError(Fault(str(path), damage.found, damage.expected, step))


def check_hash(path: Path, sha256: str | None) -> str:
    """The SHA-256 of a file; a `DownloadError` if it is not the one expected (None: any)."""
    actual = sha256_of(path)
    if sha256 is not None and actual != sha256:
        step = (
            f"remove {path.name} and fetch it again, or correct the hash in the cohort's config if GEO changed the file"
        )
        raise DownloadError(Fault(str(path), f"SHA-256 {actual}", f"SHA-256 {sha256}", step))
    return actual


class _Reply:
    """What the headers of the last reply said (redirects pass through here too)."""

    def __init__(self) -> None:
        self.response: requests.Response | None = None

    def note(self, response: requests.Response, *_: Any, **__: Any) -> None:
        self.response = response
        # Some servers announce a .gz file as an encoding of the transfer; unpacking it would store another file.
        response.raw.headers.pop("Content-Encoding", None)

    def header(self, name: str) -> str:
        return self.response.headers.get(name, "") if self.response is not None else ""

    @property
    def is_html(self) -> bool:
        return self.header("Content-Type").partition(";")[0].strip().lower() in {"text/html", "application/xhtml+xml"}


def _attempt(url: str, target: Path, sha256: str | None, timeout: float) -> None:
    """Fetch once: the file is renamed to `target` only after every check; raises `_FailedError` or `OSError` (disk)."""
    reply = _Reply()
    fetch = pooch.HTTPDownloader(
        progressbar=sys.stderr.isatty(),
        chunk_size=_CHUNK,
        timeout=timeout,
        headers={"Accept-Encoding": "identity"},
        hooks={"response": reply.note},
    )
    with atomic_file(target) as temporary:
        try:
            fetch(url, str(temporary), None)
        except requests.HTTPError:
            raise _refused(reply) from None
        except (requests.exceptions.ChunkedEncodingError, requests.exceptions.ContentDecodingError) as error:
            raise _FailedError(
                f"a truncated reply ({_reason(error)})", "the whole file", _BY_HAND, again=True
            ) from None
        except (requests.exceptions.MissingSchema, requests.exceptions.InvalidSchema, requests.exceptions.InvalidURL):
            raise _FailedError("an address that is not http or https", "one that is", "correct the address") from None
        except requests.RequestException as error:
            step = f"check the network and its proxy; {_BY_HAND}"
            raise _FailedError(f"no answer ({_reason(error)})", "the file", step, again=True) from None
        _check_body(temporary, reply, sha256)


def _refused(reply: _Reply) -> _FailedError:
    """The failure that an HTTP status of 400 or more stands for."""
    assert reply.response is not None
    status = reply.response.status_code
    page = " with an HTML page" if reply.is_html else ""
    found = f"HTTP status {status}{page}"
    if status in {404, 410}:
        return _FailedError(
            found, "the file", "check the series and the file name in the cohort's config against GEO's folder"
        )
    wait = _retry_after(reply.header("Retry-After")) if status in {429, 503} else None
    return _FailedError(found, "the file", _BY_HAND, again=status in _RETRIED_STATUS, wait=wait)


def _retry_after(value: str) -> float | None:
    """Seconds that a Retry-After header asks for, given as a number or a date; None where it is neither."""
    try:
        return max(0.0, float(value))
    except ValueError:
        pass
    try:
        when = parsedate_to_datetime(value)
    except ValueError:
        return None
    if when.tzinfo is None:
        when = when.replace(tzinfo=UTC)
    return max(0.0, (when - datetime.now(UTC)).total_seconds())


def _check_body(path: Path, reply: _Reply, sha256: str | None) -> None:
    """Raise `_FailedError` unless the fetched bytes are whole, are not a page, and have the hash that is expected."""
    size = path.stat().st_size
    length = reply.header("Content-Length")
    if length.isdigit() and int(length) != size:
        raise _FailedError(f"a truncated reply ({size} bytes)", f"{length} bytes", _BY_HAND, again=True)
    damage = damage_of(path)
    if reply.is_html and size:
        damage = Damage("an HTML page", "the file itself")
    if damage is not None:
        # Without a length, a lost connection shows only in the file's own end.
        again = damage.truncated and not length
        step = f"open the address in a browser to see what the server says; {_BY_HAND}"
        raise _FailedError(damage.found, damage.expected, step, again=again)
    actual = sha256_of(path)
    if sha256 is not None and actual != sha256:
        step = "try again; if the server's file has changed, correct the hash in the cohort's config"
        raise _FailedError(f"a file with SHA-256 {actual}", f"SHA-256 {sha256}", step)


def _reason(error: BaseException) -> str:
    """The innermost message of a chain of library errors, on one line."""
    while True:
        inner = error.__cause__ or error.__context__
        if inner is None or inner is error:
            break
        error = inner
    text = " ".join(str(error).split())
    return text[:160] or type(error).__name__
