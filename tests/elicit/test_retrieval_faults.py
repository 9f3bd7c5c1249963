"""Whatever the literature service does wrong is tried again within bounds, or is an error that says what came."""

from __future__ import annotations

import logging

import pytest
from elicit.literature_server import FakeClock, Reply, Site, serve
from elicit.papers import QUERY, europepmc

from afa.elicit.search import EuropePmc
from afa.errors import ElicitationError
from afa.io.web import LONGEST_WAIT, RequestLimits

HTML = Reply(b"<!DOCTYPE html>\n<html><body>Down for maintenance</body></html>", headers={"Content-Type": "text/html"})
FAULTS = {
    "429": Reply(b'{"error": "rate limit exceeded"}', 429, {"Retry-After": "2"}),
    "500": Reply(b"<h1>Server Error</h1>", 500),
    "HTML with 200": HTML,
    "nothing with 200": Reply(b""),
    "less than was promised": Reply(b'{"hitCount": 1', length=5000),
    "cut JSON": Reply(b'{"hitCount": 1, "resultList": {"result": [{"id": "PPR'),
    "a list": Reply(b"[1, 2]"),
    "an error with 200": Reply(b'{"version": "6.9", "errCode": 404, "errMsg": "no such query"}'),
    "a count as text": Reply(b'{"hitCount": "1", "resultList": {"result": []}}'),
    "no list of results": Reply(b'{"hitCount": 1, "resultList": []}'),
}


@pytest.mark.parametrize("fault", FAULTS)
def test_the_service_is_asked_again_after_a_passing_fault(site: Site, fault: str) -> None:
    site.replies = [FAULTS[fault]] * 2
    assert len(europepmc(site).search("preprint", QUERY, 5).abstracts) == 1
    assert len(site.requests) == 3


@pytest.mark.parametrize("fault", FAULTS)
def test_a_fault_that_stays_is_an_error_with_the_address(
    site: Site, fault: str, caplog: pytest.LogCaptureFixture
) -> None:
    site.replies = [FAULTS[fault]] * 9
    with caplog.at_level(logging.DEBUG), pytest.raises(ElicitationError) as error:
        europepmc(site, retries=2).search("pubmed", QUERY, 5)
    [told] = error.value.faults
    assert (told.where, told.found.endswith("(3 attempts)")) == (f"{site.url}/search", True)


def test_the_error_says_what_came_instead(site: Site) -> None:
    for reply, said in ((HTML, "an HTML page"), (Reply(b"{}", 503), "HTTP status 503")):
        site.replies = [reply] * 9
        with pytest.raises(ElicitationError, match=said):
            europepmc(site, retries=1).search("preprint", QUERY, 5)


def test_waits_double_and_give_way_to_what_the_service_asks_for(site: Site) -> None:
    clock, bare = FakeClock(), Reply(b"", 503)
    late = Reply(b"", 503, {"Retry-After": "100000"})
    site.replies = [bare, bare, FAULTS["429"], late]
    europepmc(site, clock).search("preprint", QUERY, 5)
    assert clock.slept == [1.0, 2.0, 2.0, LONGEST_WAIT]


def test_a_date_in_retry_after_is_waited_for(site: Site) -> None:
    clock = FakeClock()
    clock.now = 1_000_000_000.0
    site.replies = [Reply(b"", 429, {"Retry-After": "Sun, 09 Sep 2001 01:46:50 GMT"})]
    europepmc(site, clock).search("preprint", QUERY, 5)
    assert clock.slept == [10.0]


def test_a_wait_that_is_no_time_is_not_heeded(site: Site) -> None:
    clock = FakeClock()
    site.replies = [Reply(b"", 429, {"Retry-After": word}) for word in ("soon", "-5", "inf")]
    europepmc(site, clock).search("preprint", QUERY, 5)
    assert clock.slept == [1.0, 2.0, 4.0]


@pytest.mark.parametrize(
    "reply", [Reply(b"{}", 401), Reply(b"{}", 404), Reply(b"", 302, {"Location": "http://127.0.0.1:9/elsewhere"})]
)
def test_what_another_attempt_cannot_change_is_not_tried_again_and_a_redirect_is_not_followed(
    site: Site, reply: Reply
) -> None:
    site.replies = [reply] * 9
    with pytest.raises(ElicitationError, match=f"HTTP status {reply.status}"):
        europepmc(site).search("pubmed", QUERY, 5)
    assert len(site.requests) == 1


def test_a_service_that_is_silent_slow_or_endless_is_given_up(site: Site) -> None:
    for reply, bounds, said in (
        (Reply(b"{}", wait=0.5), {"timeout": 0.1}, r"silence for 0\.1 seconds"),
        (Reply(b" " * 200_000, pause=0.3), {"deadline": 0.1}, r"no whole reply in 0\.1 seconds"),
        (Reply(b" " * 3000), {"largest": 2000}, "more than 2000 bytes"),
    ):
        site.replies = [reply]
        with pytest.raises(ElicitationError, match=said):
            europepmc(site, retries=0, **bounds).search("pubmed", QUERY, 5)


def test_a_server_that_is_not_there_is_an_error_after_the_bounded_attempts() -> None:
    with serve() as site:
        pass
    why = r"no answer \(ConnectionError: Connection refused\) \(3 attempts\)"
    with pytest.raises(ElicitationError, match=why):
        EuropePmc(site.url, bounds=RequestLimits(retries=2), clock=FakeClock()).search("pubmed", QUERY, 5)


def test_an_address_of_no_service_is_an_error() -> None:
    with pytest.raises(ElicitationError, match="an address that cannot be asked"):
        EuropePmc("ftp//nowhere", clock=FakeClock()).search("pubmed", QUERY, 5)
