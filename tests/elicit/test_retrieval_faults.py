"""Whatever a literature service does wrong is tried again within bounds, or is an error that shows no key."""

from __future__ import annotations

import json
import logging
import time

import pytest
from elicit.literature_server import (
    DOCTYPE,
    EFETCH,
    ESEARCH,
    EUROPEPMC,
    Article,
    FakeClock,
    Reply,
    Site,
    article_set,
    serve,
)
from elicit.papers import QUERY, SECRET, STRUCTURED, europepmc, pubmed

from afa.elicit.search import PubMed
from afa.errors import ElicitationError
from afa.io.web import LONGEST_WAIT, Bounds


def shown(error: pytest.ExceptionInfo[ElicitationError]) -> str:
    [fault] = error.value.faults
    return f"{fault.where}: {fault.found}"


RATE = json.dumps({"error": "API rate limit exceeded", "api-key": SECRET, "count": "4", "limit": "3"}).encode()
HTML = Reply(b"<!DOCTYPE html>\n<html><body>Down for maintenance</body></html>", headers={"Content-Type": "text/html"})
FAULTS = {
    "429": Reply(RATE, 429, {"Retry-After": "2"}),
    "500": Reply(b"<h1>Server Error</h1>", 500),
    "a refusal with 200": Reply(RATE),
    "HTML with 200": HTML,
    "nothing with 200": Reply(b""),
    "less than was promised": Reply(b'{"esearchresult": {', length=5000),
    "cut JSON": Reply(b'{"esearchresult": {"count": "1", "idlist": ["990'),
    "cut XML": Reply(article_set([STRUCTURED.xml()])[:900]),
    "an error of the search": Reply(b'{"esearchresult": {"ERROR": "Search Backend failed: timed out"}}'),
    "an error of the fetch": Reply(b"<eFetchResult><ERROR>Failed to connect</ERROR></eFetchResult>"),
    "a bad request": Reply(b"<eFetchResult><ERROR>proxy_stream() 502</ERROR></eFetchResult>", 400),
}


@pytest.mark.parametrize("path", [ESEARCH, EFETCH])
@pytest.mark.parametrize("fault", FAULTS)
def test_pubmed_is_asked_again_after_a_passing_fault(site: Site, path: str, fault: str) -> None:
    expected = pubmed(site).search(QUERY, 5)
    site.requests.clear()
    site.replies[path] = [FAULTS[fault]] * 2
    assert pubmed(site).search(QUERY, 5) == expected
    assert len(site.asked(path)) == 3


@pytest.mark.parametrize("fault", ["429", "500", "HTML with 200", "nothing with 200", "cut JSON"])
def test_europe_pmc_is_asked_again_after_a_passing_fault(site: Site, fault: str) -> None:
    site.replies[EUROPEPMC] = [FAULTS[fault]] * 2
    assert len(europepmc(site).search(QUERY, 5).abstracts) == 1
    assert len(site.asked(EUROPEPMC)) == 3


@pytest.mark.parametrize("fault", FAULTS)
def test_a_fault_that_stays_is_an_error_with_the_address_and_without_the_key(
    site: Site, fault: str, caplog: pytest.LogCaptureFixture
) -> None:
    site.replies[EFETCH] = [FAULTS[fault]] * 9
    with caplog.at_level(logging.DEBUG), pytest.raises(ElicitationError) as error:
        pubmed(site, key=SECRET, retries=2).search(QUERY, 5)
    assert shown(error).startswith(f"{site.pubmed}/efetch.fcgi: ")
    assert "3 attempts" in shown(error)
    assert SECRET not in str(error.value) + caplog.text
    assert "example.org" not in str(error.value) + caplog.text


def test_the_error_says_what_came_instead(site: Site) -> None:
    site.replies[EFETCH] = [HTML] * 9
    with pytest.raises(ElicitationError, match="an HTML page"):
        pubmed(site, retries=1).search(QUERY, 5)
    site.replies[EUROPEPMC] = [Reply(b"{}", 503)] * 9
    with pytest.raises(ElicitationError, match="HTTP status 503"):
        europepmc(site, retries=1).search(QUERY, 5)


def test_waits_double_and_give_way_to_what_the_service_asks_for(site: Site) -> None:
    clock, bare = FakeClock(), Reply(b"", 503)
    late = Reply(b"", 503, {"Retry-After": "100000"})
    site.replies[EUROPEPMC] = [bare, bare, FAULTS["429"], late]
    europepmc(site, clock).search(QUERY, 5)
    assert clock.slept == [1.0, 2.0, 2.0, LONGEST_WAIT]


def test_a_date_in_retry_after_is_waited_for(site: Site) -> None:
    clock = FakeClock()
    clock.now = 1_000_000_000.0
    site.replies[EUROPEPMC] = [Reply(b"", 429, {"Retry-After": "Sun, 09 Sep 2001 01:46:50 GMT"})]
    europepmc(site, clock).search(QUERY, 5)
    assert clock.slept == [10.0]


@pytest.mark.parametrize("status", [401, 403, 404])
def test_what_another_attempt_cannot_mend_is_not_tried_again(site: Site, status: int) -> None:
    site.replies[ESEARCH] = [Reply(RATE, status)] * 9
    with pytest.raises(ElicitationError, match=f"HTTP status {status}"):
        pubmed(site).search(QUERY, 5)
    assert len(site.requests) == 1


def test_a_service_that_is_silent_or_slow_is_given_up_in_time(site: Site) -> None:
    site.replies[ESEARCH] = [Reply(b"{}", wait=0.5)]
    with pytest.raises(ElicitationError, match=r"silence for 0\.1 seconds"):
        pubmed(site, retries=0, timeout=0.1).search(QUERY, 5)
    site.replies[ESEARCH] = [Reply(b" " * 200_000, pause=0.3)]
    slow = PubMed("a@example.org", url=site.pubmed, bounds=Bounds(retries=0, deadline=0.1))
    with pytest.raises(ElicitationError, match=r"no whole reply in 0\.1 seconds"):
        slow.search(QUERY, 5)


@pytest.mark.parametrize(
    ("path", "body"),
    [
        (ESEARCH, b"[1, 2]"),
        (ESEARCH, b'{"esearchresult": {"idlist": ["99000001"]}}'),
        (EUROPEPMC, b'{"version": "6.9", "errCode": 404, "errMsg": "no such query"}'),
        (EUROPEPMC, b'{"hitCount": "1", "resultList": {"result": []}}'),
        (EUROPEPMC, b'{"hitCount": 1, "resultList": []}'),
    ],
)
def test_json_of_another_form_is_an_error(site: Site, path: str, body: bytes) -> None:
    site.replies[path] = [Reply(body)] * 2
    source = pubmed(site, retries=1) if path == ESEARCH else europepmc(site, retries=1)
    with pytest.raises(ElicitationError, match="2 attempts"):
        source.search(QUERY, 5)


def test_a_wait_that_is_no_time_is_not_heeded(site: Site) -> None:
    clock = FakeClock()
    site.replies[EUROPEPMC] = [Reply(b"", 429, {"Retry-After": word}) for word in ("soon", "-5", "inf")]
    europepmc(site, clock).search(QUERY, 5)
    assert clock.slept == [1.0, 2.0, 4.0]


def test_a_redirect_is_not_followed(site: Site) -> None:
    site.replies[ESEARCH] = [Reply(b"", 302, {"Location": f"{site.url}/elsewhere"})]
    with pytest.raises(ElicitationError, match="HTTP status 302"):
        pubmed(site, key=SECRET).search(QUERY, 5)
    assert len(site.requests) == 1


def test_a_server_that_is_not_there_is_an_error_after_the_bounded_attempts() -> None:
    with serve() as site:
        address = site.pubmed
    why = r"no answer \(ConnectionError: Connection refused\) \(3 attempts\)"
    with pytest.raises(ElicitationError, match=why) as error:
        PubMed("a@example.org", SECRET, address, bounds=Bounds(retries=2), clock=FakeClock()).search(QUERY, 5)
    assert SECRET not in str(error.value)


def test_an_address_of_no_service_is_an_error() -> None:
    with pytest.raises(ElicitationError, match="an address that cannot be asked"):
        PubMed("a@example.org", url="ftp//nowhere", clock=FakeClock()).search(QUERY, 5)


LAUGHS = "".join(f'<!ENTITY l{n} "{f"&l{n - 1};" * 10}">' for n in range(1, 10))
ENTITIES = {
    "billion laughs": f'<!DOCTYPE PubmedArticleSet [<!ENTITY l0 "ha">{LAUGHS}]>',
    "a file": '<!DOCTYPE PubmedArticleSet [<!ENTITY l9 SYSTEM "file:///etc/hostname">]>',
    "an outer subset": '<!DOCTYPE PubmedArticleSet [<!ENTITY % l9 SYSTEM "http://127.0.0.1/x.dtd"> %l9;]>',
}


@pytest.mark.parametrize("entity", ENTITIES)
def test_entities_of_a_reply_are_refused_at_once(site: Site, entity: str) -> None:
    article = Article("99000001", "MUC2", [("", "&l9;" if "%" not in ENTITIES[entity] else "MUC2.")])
    site.replies[EFETCH] = [Reply(article_set([article.xml()], ENTITIES[entity]))] * 9
    start = time.process_time()
    with pytest.raises(ElicitationError, match="entities"):
        pubmed(site).search(QUERY, 5)
    assert time.process_time() - start < 2
    assert len(site.asked(EFETCH)) == 1


def test_an_entity_that_nothing_declares_is_refused(site: Site) -> None:
    article = Article("99000001", "MUC2", [("", "a&nbsp;b")])
    site.replies[EFETCH] = [Reply(article_set([article.xml()]))]
    with pytest.raises(ElicitationError, match="entities"):
        pubmed(site).search(QUERY, 5)


def test_the_usual_dtd_is_named_and_not_fetched(site: Site) -> None:
    local = DOCTYPE.replace("https://dtd.nlm.nih.gov", site.url)
    site.replies[EFETCH] = [Reply(article_set([STRUCTURED.xml()], local))]
    assert len(pubmed(site).search(QUERY, 1).abstracts) == 1
    assert {path for path, _ in site.requests} == {ESEARCH, EFETCH}


def test_a_reply_that_is_nested_beyond_reason_is_read_all_the_same(site: Site) -> None:
    deep = Article("99000001", "MUC2", [("", "<b>" * 50_000 + "MUC2." + "</b>" * 50_000)])
    site.replies[EFETCH] = [Reply(article_set([deep.xml()]))]
    assert pubmed(site).search(QUERY, 1).abstracts[0].text == "MUC2."


def test_a_reply_that_is_large_beyond_reason_is_refused(site: Site) -> None:
    site.replies[EFETCH] = [Reply(b"<x>" + b" " * 3000)]
    with pytest.raises(ElicitationError, match="more than 2000 bytes"):
        pubmed(site, largest=2000).search(QUERY, 5)
