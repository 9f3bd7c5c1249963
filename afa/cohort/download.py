"""Fetching one file over HTTP so that whatever lies at the target is the whole, right file.

GEO itself was out of reach when this was written: it was tested against local servers that misbehave in the ways a
public server does, not against GEO.
"""

from __future__ import annotations

import errno
import logging
import time
from collections.abc import Callable
from datetime import UTC
from email.utils import parsedate_to_datetime
from functools import partial
from pathlib import Path
from typing import Protocol

from afa.cohort.archive import damage_of
from afa.cohort.attempt import AttemptError, attempt
from afa.errors import DownloadError, Fault
from afa.files import sha256_of

LONGEST_WAIT = 300.0
_LONGEST_ASKED = 1e9

log = logging.getLogger(__name__)


class Clock(Protocol):
    """What is asked of a clock; the module `time` is one."""

    def monotonic(self) -> float: ...
    def time(self) -> float: ...
    def sleep(self, seconds: float, /) -> None: ...


def download(
    url: str,
    target: Path,
    *,
    sha256: str | None = None,
    retries: int = 4,
    timeout: float = 60.0,
    deadline: float = 7200.0,
    backoff: float = 1.0,
    clock: Clock = time,
) -> Path:
    """Fetch `url` to `target` and return `target`; a file that is there whole, with the right hash if given, is kept.

    Lost connections, truncated replies and the statuses 408, 425, 429 and 5xx are tried again up to `retries` times,
    after `backoff` seconds, doubled each time, or after the server's Retry-After, but never after more than
    `LONGEST_WAIT`; each wait is logged as a warning. `timeout` (seconds) is the longest silence of the server,
    `deadline` (seconds) the longest that all attempts and waits take together. Every failure is a `DownloadError`;
    `target` is then untouched. Processes may share a folder: each writes a file of its own and renames it, and removes
    what a killed one has left.
    """
    target = Path(target)
    try:
        if not _is_kept(target, sha256):
            _until_done(partial(attempt, url, target, sha256, timeout), url, retries, deadline, backoff, clock)
    except AttemptError as failed:
        raise DownloadError(Fault(f"{url} -> {target}", failed.found, failed.expected, failed.next_step)) from None
    except OSError as error:
        raise DownloadError(_disk_fault(target, error)) from None
    return target


def check_intact(path: Path) -> None:
    """Refuse with a `DownloadError` a file that is missing, empty, an HTML page, or a gzip or tar not whole."""
    path = Path(path)
    try:
        damage = damage_of(path)
    except OSError as error:
        raise DownloadError(_unreadable(path, error)) from None
    if damage is not None:
        step = f"remove {path.name}, fetch it again and put it in this place"
        raise DownloadError(Fault(str(path), damage.found, damage.expected, step))


def check_hash(path: Path, sha256: str | None) -> str:
    """The SHA-256 of a file; a `DownloadError` if it cannot be read or is not the one expected (None: any)."""
    try:
        actual = sha256_of(path)
    except OSError as error:
        raise DownloadError(_unreadable(path, error)) from None
    if sha256 is not None and actual != sha256:
        step = (
            f"remove {path.name} and fetch it again, or correct the hash in the cohort's config if GEO changed the file"
        )
        raise DownloadError(Fault(str(path), f"SHA-256 {actual}", f"SHA-256 {sha256}", step))
    return actual


def _is_kept(target: Path, sha256: str | None) -> bool:
    """Whether `target` is there and good; of one that is there and is not, a warning says so."""
    if not target.exists():
        return False
    if sha256 is not None:
        found = None if sha256_of(target) == sha256 else "a file with another hash"
    else:
        damage = damage_of(target)
        found = None if damage is None else damage.found
    if found is not None:
        log.warning("%s: found %s; fetching it again", target, found)
    return found is None


def _until_done(
    once: Callable[[float], None], url: str, retries: int, deadline: float, backoff: float, clock: Clock
) -> None:
    """Call `once` with the seconds left, up to `retries` times again; raises the last `AttemptError`."""
    end = clock.monotonic() + deadline
    for number in range(1, retries + 2):
        try:
            once(end - clock.monotonic())
        except AttemptError as failed:
            asked = _seconds_asked(failed.retry_after, clock.time())
            wait = min(backoff * 2 ** (number - 1) if asked is None else asked, LONGEST_WAIT)
            if number > 1:
                failed.found += f" ({number} attempts)"
            if asked is not None:
                failed.next_step = f"run this again in {asked:.0f} seconds, as the server asks"
            if not failed.again or number > retries:
                raise
            if clock.monotonic() + wait >= end:
                failed.found += f", and no time for another attempt within {deadline:g} seconds"
                raise
            log.warning("%s: %s; %s (%d left)", url, failed.found, _plan(asked, wait), retries + 1 - number)
            clock.sleep(wait)
        else:
            return


def _seconds_asked(retry_after: str, now: float) -> float | None:
    """Seconds that a Retry-After header asks for at `now` (seconds), as a number or a date; None where neither."""
    try:
        seconds = float(retry_after)
    except ValueError:
        try:
            when = parsedate_to_datetime(retry_after)
        except (ValueError, OverflowError):
            return None
        seconds = max(0.0, (when if when.tzinfo else when.replace(tzinfo=UTC)).timestamp() - now)
    return seconds if 0 <= seconds <= _LONGEST_ASKED else None


def _plan(asked: float | None, wait: float) -> str:
    """What is done after a failed attempt, in words."""
    if asked is None:
        return f"trying again in {wait:g} seconds"
    capped = ", the longest wait" if asked > wait else ""
    return f"the server asks for {asked:.0f} seconds (Retry-After): trying again in {wait:g} seconds{capped}"


def _disk_fault(target: Path, error: OSError) -> Fault:
    """What a failure of the disk or of the cache folder means for the reader."""
    expected, step = "a file that can be written in this place", "check the folder and its disk"
    if error.errno in {errno.ENOSPC, errno.EDQUOT}:
        expected, step = "room to write the file", f"free space on the disk of {target.parent}"
    elif error.errno in {errno.EACCES, errno.EPERM, errno.EROFS}:
        expected, step = "a folder that can be read and written", f"correct the permissions of {target.parent}"
    return Fault(str(target), error.strerror or str(error), expected, f"{step}, or choose another folder for the cache")


def _unreadable(path: Path, error: OSError) -> Fault:
    return Fault(str(path), error.strerror or str(error), "a readable file", "check the path and its permissions")
