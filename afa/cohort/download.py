"""Download one file over HTTP. If the download fails, the target file is unchanged.

GEO could not be reached when this module was written, so the module was tested with local servers that imitate the
failures of public servers. A broken transfer is not resumed, so each attempt starts at the first byte. If a transfer
fails, a `ReplyError` states whether another attempt may succeed.
"""

from __future__ import annotations

import errno
import logging
import sys
import time
from collections.abc import Callable, Mapping
from functools import partial
from pathlib import Path
from typing import Any

import pooch
import requests

from afa.cohort.archive import Damage, damage_of
from afa.errors import DownloadError, Fault
from afa.io.files import atomic_file, sha256_of
from afa.io.web import TRANSIENT, Clock, ReplyError, call_with_timeout, seconds_asked_for, tried

LONGEST_DOWNLOAD_WAIT = 300.0
DOWNLOAD_ADVICE = "try again later, or put the file in this place by hand"
_CHUNK = 1 << 20

log = logging.getLogger(__name__)


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
    """Download `url` to `target` and return `target`.

    If `target` already exists, is complete and has the expected hash, nothing is downloaded. After a lost connection, a
    truncated reply or an HTTP status 408, 425, 429 or 5xx, the download is attempted again, up to `retries` times. The
    first wait between attempts is `backoff` seconds, and each further wait is twice as long. If the reply has a
    Retry-After header, the wait is taken from the header instead. No wait is longer than `LONGEST_DOWNLOAD_WAIT`, and
    each wait is logged as a warning. Several processes may download to the same folder, because each process writes its
    own temporary file and renames it. Temporary files of killed processes are removed.

    Parameters
    ----------
    sha256 : expected hash, None to accept any
    timeout : longest silence of the server, in seconds
    deadline : longest time for all attempts and waits together, in seconds

    Raises
    ------
    DownloadError : any failure; `target` is then unchanged.

    """
    target = Path(target)
    try:
        if not _is_cached(target, sha256):
            once = partial(attempt, url, target, sha256, timeout, clock)
            longest = LONGEST_DOWNLOAD_WAIT
            tried(once, url, retries=retries, backoff=backoff, longest=longest, clock=clock, deadline=deadline)
    except ReplyError as failed:
        step = failed.step
        if failed.wait is not None:
            step = f"run this again in {failed.wait:.0f} seconds, as the server asks"
        raise DownloadError(Fault(f"{url} -> {target}", failed.found, failed.expected, step)) from None
    except OSError as error:
        raise DownloadError(_disk_fault(target, error)) from None
    return target


def check_intact(path: Path, sha256: str | None = None, step: str = "") -> str:
    """Check that a file is intact, and return the file's SHA-256.

    Parameters
    ----------
    step : advice to the user if the SHA-256 differs

    Raises
    ------
    DownloadError : the file is missing, damaged (empty, an HTML page, an incomplete gzip or tar) or has another hash.

    """
    path = Path(path)
    try:
        damage, actual = damage_of(path), sha256_of(path)
    except OSError as error:
        found = error.strerror or str(error)
        raise DownloadError(Fault(str(path), found, "a readable file", "check the path and its permissions")) from None
    if damage is not None:
        step = f"remove {path.name}, fetch it again and put it in this place"
        raise DownloadError(Fault(str(path), damage.found, damage.expected, step))
    if sha256 not in (None, actual):
        again = f"remove {path.name} and fetch it again"
        step = step or f"{again}, or correct the hash in the cohort's config if GEO changed the file"
        raise DownloadError(Fault(str(path), f"SHA-256 {actual}", f"SHA-256 {sha256}", step))
    return actual


def attempt(url: str, target: Path, sha256: str | None, timeout: float, clock: Clock, left: float) -> None:
    """Download a file in one attempt, check the file, and rename it to `target`.

    Parameters
    ----------
    timeout : longest silence of the server, in seconds
    left : longest time for the attempt, in seconds

    Raises
    ------
    ReplyError : the transfer failed; `target` is unchanged.
    OSError : the disk failed; `target` is unchanged.

    """
    reply = _Reply()
    fetch = pooch.HTTPDownloader(
        progressbar=sys.stderr.isatty(),
        chunk_size=_CHUNK,
        timeout=timeout,
        headers={"Accept-Encoding": "identity"},
        hooks={"response": reply.note},
    )
    found = f"no whole file in the {left:.3g} seconds that were left"
    late = ReplyError(found, "the whole file", f"check the speed of the network; {DOWNLOAD_ADVICE}")
    with atomic_file(target) as temporary:
        # At the deadline the file is closed, so a transfer thread that is still running fails at its next write.
        with temporary.open("wb") as stream:
            _call_and_convert_errors(
                lambda: call_with_timeout(left, lambda: fetch(url, stream, None), late), reply, clock
            )
        _check_body(temporary, reply, sha256)


class _Reply:
    """Status and headers of the last HTTP reply. The reply may be a redirect."""

    def __init__(self) -> None:
        self.status = 0
        self.headers: Mapping[str, str] = {}

    def note(self, response: requests.Response, *_: Any, **__: Any) -> None:
        self.status, self.headers = response.status_code, response.headers
        # Some servers declare gzip as the content encoding of a .gz file; the client would then save the unpacked file.
        response.raw.headers.pop("Content-Encoding", None)
        if self.length is None:
            # pooch fails with a ValueError if the length is not a number.
            response.headers.pop("Content-Length", None)

    @property
    def length(self) -> int | None:
        """Return the Content-Length of the reply in bytes, or None if the header is missing or invalid."""
        value = self.headers.get("Content-Length", "").strip()
        return int(value) if value.isascii() and value.isdecimal() else None

    @property
    def is_html(self) -> bool:
        kind = self.headers.get("Content-Type", "").partition(";")[0].strip().lower()
        return kind in {"text/html", "application/xhtml+xml"}


def _call_and_convert_errors(call: Callable[[], None], reply: _Reply, clock: Clock) -> None:
    """Run `call`, and convert exceptions of pooch, requests and urllib3 to a `ReplyError`."""
    network = f"check the network and its proxy; {DOWNLOAD_ADVICE}"
    try:
        call()
    except requests.HTTPError:
        found = f"HTTP status {reply.status}{' with an HTML page' if reply.is_html else ''}"
        if reply.status in {404, 410}:
            step = "check the series and the file name in the cohort's config against GEO's folder"
            raise ReplyError(found, "the file", step) from None
        wait = seconds_asked_for(reply.headers, clock.time()) if reply.status in {429, 503} else None
        raise ReplyError(found, "the file", DOWNLOAD_ADVICE, again=reply.status in TRANSIENT, wait=wait) from None
    except (requests.exceptions.ChunkedEncodingError, requests.exceptions.ContentDecodingError) as error:
        raise ReplyError(
            f"a truncated reply ({_reason(error)})", "the whole file", DOWNLOAD_ADVICE, again=True
        ) from None
    except requests.TooManyRedirects:
        step = f"open the address in a browser; {DOWNLOAD_ADVICE}"
        raise ReplyError("redirects that do not end", "the file", step) from None
    except (requests.exceptions.MissingSchema, requests.exceptions.InvalidSchema):
        raise ReplyError("an address that is not http or https", "one that is", "correct the address") from None
    except ValueError as error:
        # requests and urllib3 raise ValueError for an invalid header or address. The invalid address may also be the
        # address of a proxy or a redirect.
        found = f"an address or an answer that cannot be read ({_reason(error)})"
        raise ReplyError(found, "the file", f"check the address and the proxy; {DOWNLOAD_ADVICE}") from None
    except requests.RequestException as error:
        raise ReplyError(f"no answer ({_reason(error)})", "the file", network, again=True) from None
    except OSError as error:
        if error.errno is not None:
            raise
        # The library `requests` raises an `OSError` without a number if the file of certificates is missing.
        raise ReplyError(_reason(error), "usable settings of the network", network) from None


def _check_body(path: Path, reply: _Reply, sha256: str | None) -> None:
    """Raise a `ReplyError` unless the downloaded file is complete, is not an HTML page and has the expected hash."""
    size = path.stat().st_size
    length = reply.length
    if length is not None and length != size:
        raise ReplyError(f"a truncated reply ({size} bytes)", f"{length} bytes", DOWNLOAD_ADVICE, again=True)
    damage = damage_of(path)
    if reply.is_html and size:
        damage = Damage("an HTML page", "the file itself")
    if damage is not None:
        # If the server states no length, a lost connection can be recognised only by a truncated file.
        again = damage.truncated and length is None
        step = f"open the address in a browser to see what the server says; {DOWNLOAD_ADVICE}"
        raise ReplyError(damage.found, damage.expected, step, again=again)
    actual = sha256_of(path)
    if sha256 is not None and actual != sha256:
        step = "try again; if the server's file has changed, correct the hash in the cohort's config"
        raise ReplyError(f"a file with SHA-256 {actual}", f"SHA-256 {sha256}", step)


def _reason(error: BaseException) -> str:
    """Return the innermost message of a chain of library errors, on one line."""
    while True:
        inner = error.__cause__ or error.__context__
        if inner is None or inner is error:
            break
        error = inner
    text = " ".join(str(error).split())
    return text[:160] or type(error).__name__


def _is_cached(target: Path, sha256: str | None) -> bool:
    """Return True if `target` exists and is intact.

    If `target` exists but is damaged or has another hash, a warning is logged.
    """
    if not target.exists():
        return False
    target.open("rb").close()  # an OSError here means a disk error; the file may be intact
    try:
        check_intact(target, sha256)
    except DownloadError as error:
        log.warning("%s: found %s; fetching it again", target, error.faults[0].found)
        return False
    return True


def _disk_fault(target: Path, error: OSError) -> Fault:
    """Return a `Fault` that describes an operating-system error in the cache folder."""
    expected, step = "a file that can be written in this place", "check the folder and its disk"
    if error.errno in {errno.ENOSPC, errno.EDQUOT}:
        expected, step = "room to write the file", f"free space on the disk of {target.parent}"
    elif error.errno in {errno.EACCES, errno.EPERM, errno.EROFS}:
        expected, step = "a folder that can be read and written", f"correct the permissions of {target.parent}"
    return Fault(str(target), error.strerror or str(error), expected, f"{step}, or choose another folder for the cache")
