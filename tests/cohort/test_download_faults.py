"""Servers that fail: each ends in the whole file or in a named error, after a bounded time, and nothing is left."""

from __future__ import annotations

import gzip
import hashlib
import logging
import threading
import time
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from email.utils import format_datetime
from pathlib import Path

import pytest
from cohort.http_server import Reply, Site, serve

from afa.cohort.download import LONGEST_DOWNLOAD_WAIT, download
from afa.errors import DownloadError

GZ = gzip.compress(bytes(range(256)) * 20, mtime=0)
PAGE = b"<!DOCTYPE html><html><body>Service temporarily unavailable</body></html>"
NOON = datetime(2024, 5, 1, 12, tzinfo=UTC)
FILE = "/file.txt.gz"


class FakeClock:
    """A clock that stands still but for the sleeps asked of it."""

    def __init__(self) -> None:
        self.waits: list[float] = []

    def sleep(self, seconds: float, /) -> None:
        self.waits.append(seconds)

    def monotonic(self) -> float:
        return sum(self.waits)

    def time(self) -> float:
        return NOON.timestamp() + sum(self.waits)


@pytest.fixture
def clock() -> FakeClock:
    return FakeClock()


@pytest.fixture
def target(tmp_path) -> Iterator[Path]:
    target = tmp_path / "cache" / "file.txt.gz"
    yield target
    left = [path.name for path in target.parent.iterdir() if path != target]
    assert not left, "a temporary file was left behind"


def get(site: Site, target: Path, clock: FakeClock, **keys) -> Path:
    keys = {"retries": 2, "timeout": 5.0, "deadline": 7200.0, **keys}
    return download(site.url + FILE, target, clock=clock, **keys)


def refusal(site: Site, target: Path, clock: FakeClock, **keys) -> str:
    with pytest.raises(DownloadError) as caught:
        get(site, target, clock, **keys)
    message = str(caught.value)
    assert message.startswith(f"{site.url}{FILE} -> {target}: found ")
    assert "; expected " in message
    assert "Next step: " in message
    return message


def chunked(*chunks: bytes, end: bytes = b"0\r\n\r\n", header: bytes = b"") -> bytes:
    head = b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n" + header
    return head + b"\r\n" + b"".join(b"%x\r\n%b\r\n" % (len(chunk), chunk) for chunk in chunks) + end


PASSING = {
    "a reset before the answer": (Reply(reset=True), "no answer"),
    "a reset inside the file": (Reply(GZ[:100], length=len(GZ), reset=True), "a truncated reply"),
    "an end before the answer": (Reply(raw=b""), "no answer"),
    "an end inside the headers": (Reply(raw=b"HTTP/1.1 200 OK\r\nContent-Le"), "an empty file"),
    "another protocol": (Reply(raw=b"SSH-2.0-server\r\n\r\n"), "no answer"),
    "headers without end": (Reply(raw=b"HTTP/1.1 200 OK\r\n" + b"X: y\r\n" * 200 + b"\r\n"), "no answer"),
    "a truncated file": (Reply(GZ[:100], length=len(GZ)), "a truncated reply"),
    "a truncated file of unknown length": (Reply(GZ[:100], length=-1), "a truncated gzip file"),
    "a file of unknown length that never begins": (Reply(b"", length=-1), "an empty file"),
    "a truncated chunk": (Reply(raw=chunked(GZ[:100], end=b"40\r\nabc")), "a truncated reply"),
    "a chunk without a length": (Reply(raw=chunked(GZ[:100], end=b"zz\r\nabc")), "a truncated reply"),
    "chunks that end before the Content-Length": (
        Reply(raw=chunked(GZ, header=b"Content-Length: %d\r\n" % (len(GZ) + 5))),
        f"a truncated reply ({len(GZ)} bytes)",
    ),
    "a Content-Length that is too long": (Reply(GZ, length=len(GZ) + 1), "a truncated reply"),
    "a status without a file": (Reply(b"", 204, length=-1), "an empty file"),
    "too many requests": (Reply(b"", 429), "HTTP status 429"),
    "a busy server": (Reply(PAGE, 503, {"Content-Type": "text/html"}), "HTTP status 503 with an HTML page"),
    "a gateway's error": (Reply(PAGE, 502), "HTTP status 502"),
}
LASTING = {
    "a page with status 200": (Reply(PAGE), "an HTML page"),
    "a page in XML": (Reply(b'<?xml version="1.0"?><!DOCTYPE html><html/>'), "an HTML page"),
    "a page after a byte order mark": (Reply(b"\xef\xbb\xbf  <HTML>"), "an HTML page"),
    "a file announced as a page": (Reply(GZ, headers={"Content-Type": "text/html; charset=UTF-8"}), "an HTML page"),
    "a compressed page": (Reply(gzip.compress(PAGE)), "a compressed HTML page"),
    "a text": (Reply(b"plain text"), "bytes that are not gzip"),
    "a missing file": (Reply(PAGE, 404, {"Content-Type": "text/html"}), "HTTP status 404 with an HTML page"),
    "a file that is not given": (Reply(b"", 403), "HTTP status 403"),
    "an empty file": (Reply(b""), "an empty file"),
    "a gzip file with a wrong checksum": (Reply(GZ[:-6] + b"xx" + GZ[-4:]), "a damaged gzip file"),
    "a gzip file damaged inside": (Reply(GZ[:20] + b"\xff" * 40 + GZ[60:]), "a damaged gzip file"),
    "a Content-Length that is too short": (Reply(GZ, length=100), "a truncated gzip file"),
    "two Content-Lengths": (Reply(GZ, headers={"Content-Length": "5"}), "cannot be read"),
    "a redirect to no address": (Reply(b"", 302, {"Location": "http://[::1/file"}), "Invalid IPv6 URL"),
    "a redirect to no name": (Reply(b"", 302, {"Location": "http://a..b/file"}), "cannot be read"),
    "a redirect to another protocol": (Reply(b"", 302, {"Location": "ftp://a/file"}), "not http or https"),
}


def named(faults: dict[str, tuple[Reply, str]]) -> pytest.MarkDecorator:
    return pytest.mark.parametrize(("bad", "said"), faults.values(), ids=faults.keys())


@named(PASSING)
def test_a_passing_fault_is_got_over(target, clock, bad, said):
    with serve({FILE: [bad, bad, Reply(GZ)]}) as site:
        get(site, target, clock)
        assert len(site.requests) == 3
    assert target.read_bytes() == GZ
    assert clock.waits == [1.0, 2.0]


@named(PASSING)
def test_a_passing_fault_that_stays_ends_after_the_retries(target, clock, bad, said):
    with serve({FILE: bad}) as site:
        message = refusal(site, target, clock)
        assert len(site.requests) == 3
    assert said in message
    assert "(3 attempts)" in message
    assert not target.exists()


@named(LASTING)
def test_a_lasting_fault_is_refused_at_once(target, clock, bad, said):
    with serve({FILE: [bad, Reply(GZ)]}) as site:
        assert said in refusal(site, target, clock)
        assert len(site.requests) == 1
    assert not target.exists()
    assert clock.waits == []


@named(PASSING | LASTING)
def test_a_good_file_in_the_cache_outlives_every_fault(target, clock, bad, said):
    target.parent.mkdir()
    target.write_bytes(GZ)
    with serve({FILE: bad}) as site:
        refusal(site, target, clock, sha256=hashlib.sha256(b"a newer file").hexdigest(), retries=1)
    assert target.read_bytes() == GZ


def test_a_wrong_hash_is_refused_at_once(target, clock):
    with serve({FILE: Reply(GZ)}) as site:
        assert "expected SHA-256 " + "0" * 64 in refusal(site, target, clock, sha256="0" * 64)
        assert len(site.requests) == 1
    assert not target.exists()


def test_a_content_length_that_is_no_number_is_no_length(target, clock):
    with serve({FILE: Reply(GZ, headers={"Content-Length": "abc"}, length=-1)}) as site:
        get(site, target, clock)
    assert target.read_bytes() == GZ


def test_a_whole_file_in_chunks_is_kept(target, clock):
    with serve({FILE: Reply(raw=chunked(GZ[:100], GZ[100:]))}) as site:
        get(site, target, clock)
    assert target.read_bytes() == GZ


def test_a_redirect_loop_is_followed_thirty_times_and_no_more(target, clock):
    replies = {FILE: Reply(b"", 302, {"Location": "/b"}), "/b": Reply(b"", 302, {"Location": FILE})}
    with serve(replies) as site:
        assert "redirects that do not end" in refusal(site, target, clock)
        assert len(site.requests) == 31
    assert not target.exists()


def test_a_certificate_bundle_that_is_not_there_is_no_fault_of_the_disk(target, clock, monkeypatch):
    monkeypatch.setenv("REQUESTS_CA_BUNDLE", "/nowhere/ca.pem")
    with serve({FILE: Reply(b"", 302, {"Location": "https://127.0.0.1:1/file"})}) as site:
        message = refusal(site, target, clock)
    assert "/nowhere/ca.pem" in message
    assert "check the network" in message


@pytest.mark.parametrize("begun", [False, True], ids=["before the answer", "inside the file"])
def test_a_server_that_falls_silent_is_given_up_and_asked_again(target, clock, begun):
    never = threading.Event()
    silent = Reply(GZ[:100], length=len(GZ), hold=never) if begun else Reply(GZ, wait=never)
    with serve({FILE: [silent, Reply(GZ)]}) as site:
        get(site, target, clock, timeout=0.15)
        assert len(site.requests) == 2
        never.set()
    assert target.read_bytes() == GZ


@pytest.mark.parametrize("begun", [False, True], ids=["before the answer", "inside the file"])
def test_a_server_that_stays_silent_ends_in_an_error(target, clock, begun):
    never = threading.Event()
    silent = Reply(GZ[:100], length=len(GZ), hold=never) if begun else Reply(GZ, wait=never)
    with serve({FILE: silent}) as site:
        message = refusal(site, target, clock, timeout=0.1, retries=1)
        assert len(site.requests) == 2
        never.set()
    assert "timed out" in message
    assert not target.exists()


TRICKLES = {
    "the file": Reply(GZ, pause=0.05),
    "the status": Reply(raw=b"HTTP/1.1 200 O" + b"K" * 1000, pause=0.05),
    "the headers": Reply(raw=b"HTTP/1.1 200 OK\r\nX: " + b"x" * 1000, pause=0.05),
    "a chunk's length": Reply(raw=chunked(GZ[:100], end=b"0" * 1000), pause=0.05),
}


@pytest.mark.parametrize("trickle", TRICKLES.values(), ids=TRICKLES.keys())
def test_a_trickle_never_silent_for_long_ends_with_the_deadline(target, clock, trickle):
    start = time.monotonic()
    with serve({FILE: trickle}) as site:
        message = refusal(site, target, clock, timeout=5.0, deadline=0.3)
        assert len(site.requests) == 1
    assert 0.3 <= time.monotonic() - start < 5.0
    assert "no whole file in the 0.3 seconds that were left" in message
    assert not target.exists()


def test_a_slow_file_that_is_whole_before_the_deadline_is_kept(target, clock):
    with serve({FILE: Reply(GZ, pause=0.02, piece=len(GZ) // 10)}) as site:
        get(site, target, clock, timeout=1.0, deadline=20.0)
    assert target.read_bytes() == GZ


def test_a_transfer_that_was_given_up_ends_by_itself(target, clock):
    before = threading.active_count()
    with serve({FILE: Reply(b"x" * (40 << 20), pause=0.05, piece=2 << 20)}) as site:
        refusal(site, target, clock, deadline=0.1)
        # One thread of the server listens, one answers.
        until = time.monotonic() + 5.0
        while threading.active_count() > before + 2 and time.monotonic() < until:
            time.sleep(0.01)
        assert threading.active_count() <= before + 2


@pytest.mark.parametrize("status", [429, 503])
@pytest.mark.parametrize("form", ["seconds", "date"])
def test_the_servers_retry_after_is_waited_for_and_said(target, clock, caplog, status, form):
    asked = "8" if form == "seconds" else format_datetime(NOON + timedelta(seconds=8), usegmt=True)
    with serve({FILE: [Reply(b"", status, {"Retry-After": asked}), Reply(GZ)]}) as site:
        get(site, target, clock)
    assert clock.waits == [8.0]
    assert target.read_bytes() == GZ
    said = f"HTTP status {status}; the server asks for 8 seconds (Retry-After): trying again in 8 seconds (2 left)"
    assert said in caplog.text


@pytest.mark.parametrize("form", ["seconds", "date"])
def test_a_retry_after_of_an_hour_is_cut_and_the_log_says_both(target, clock, caplog, form):
    asked = "3600" if form == "seconds" else format_datetime(NOON + timedelta(hours=1), usegmt=True)
    with serve({FILE: [Reply(b"", 503, {"Retry-After": asked}), Reply(GZ)]}) as site:
        get(site, target, clock)
    assert clock.waits == [LONGEST_DOWNLOAD_WAIT]
    assert "asks for 3600 seconds (Retry-After): trying again in 300 seconds, the longest wait" in caplog.text


def test_a_server_that_always_asks_for_an_hour_is_left_and_its_wish_passed_on(target, clock):
    with serve({FILE: Reply(b"", 503, {"Retry-After": "3600"})}) as site:
        message = refusal(site, target, clock)
        assert len(site.requests) == 3
    assert clock.waits == [LONGEST_DOWNLOAD_WAIT] * 2
    assert "run this again in 3600 seconds, as the server asks" in message


def test_waits_end_with_the_deadline(target, clock):
    with serve({FILE: Reply(b"", 503, {"Retry-After": "250"})}) as site:
        message = refusal(site, target, clock, retries=50, deadline=600.0)
        assert len(site.requests) == 3
    assert clock.waits == [250.0, 250.0]
    assert "HTTP status 503 (3 attempts), and no time for another attempt within 600 seconds" in message


def test_a_later_attempt_has_only_the_time_that_is_left(target, clock):
    with serve({FILE: [Reply(b"", 503, {"Retry-After": "100"}), Reply(GZ, pause=0.05)]}) as site:
        message = refusal(site, target, clock, deadline=100.3)
        assert len(site.requests) == 2
    assert "in the 0.3 seconds that were left (2 attempts)" in message


def test_doubled_waits_do_not_grow_beyond_the_longest(target, clock):
    with serve({FILE: Reply(b"", 500)}) as site:
        refusal(site, target, clock, retries=10, backoff=1.0)
    assert clock.waits == [1.0, 2.0, 4.0, 8.0, 16.0, 32.0, 64.0, 128.0, 256.0, 300.0]


@pytest.mark.parametrize(
    "asked",
    ["soon", "-5", "nan", "inf", "1e300", f"Mon, 01 Jan {10**5} 00:00:00 GMT", f"Mon, 01 Jan {10**18} 00:00:00 GMT"],
)
def test_a_retry_after_that_says_nothing_falls_back_to_the_doubled_wait(target, clock, asked, caplog):
    busy = Reply(b"", 503, {"Retry-After": asked})
    with serve({FILE: [busy, busy, Reply(GZ)]}) as site:
        get(site, target, clock, backoff=0.5)
    assert clock.waits == [0.5, 1.0]
    assert "trying again in 0.5 seconds (2 left)" in caplog.text


def test_a_retry_after_in_the_past_means_at_once(target, clock):
    past = format_datetime(NOON - timedelta(hours=1), usegmt=True)
    with serve({FILE: [Reply(b"", 503, {"Retry-After": past}), Reply(GZ)]}) as site:
        get(site, target, clock)
    assert clock.waits == [0.0]


def test_a_download_without_faults_says_nothing(target, clock, caplog):
    caplog.set_level(logging.INFO, logger="afa")
    with serve({FILE: Reply(GZ)}) as site:
        get(site, target, clock)
    assert caplog.text == ""


def test_the_default_clock_really_waits(target):
    with serve({FILE: [Reply(b"", 503, {"Retry-After": "0.2"}), Reply(GZ)]}) as site:
        start = time.monotonic()
        download(site.url + FILE, target, retries=1)
    assert time.monotonic() - start >= 0.2
