"""PubMed and Europe PMC by their documented forms, and what is made of replies that are not of those."""

from __future__ import annotations

import json
import logging
import threading
import time
from collections.abc import Iterator

import pytest
from elicit.literature_server import (
    BOOK,
    DOCTYPE,
    EFETCH,
    ESEARCH,
    EUROPEPMC,
    Article,
    FakeClock,
    Reply,
    Site,
    article_set,
    preprint,
    serve,
)

from afa.elicit.europepmc import EuropePmc
from afa.elicit.found import Found
from afa.elicit.pubmed import EMAIL, KEY, URL, PubMed
from afa.elicit.queries import Query
from afa.elicit.web import LONGEST_WAIT, SLACK, Bounds, Pace
from afa.errors import ElicitationError

SECRET = "0123456789abcdef-secret"
QUERY = Query((("MUC2",), ("Crohn's disease", "colitis")))
STRUCTURED = Article(
    "99000001",
    "Loss of <i>MUC2</i> in colitis &amp; fistula",
    [
        ("OBJECTIVE", "To study <i>MUC2</i>."),
        ("RESULTS", "It fell (p<sub>adj</sub>&lt;0.01; r<sup>2</sup>=0.4)."),
        ("UNLABELLED", "As others saw."),
    ],
    doi="10.1136/GUTJNL-99-1",
)
PLAIN = Article("99000002", "MUC2 in colitis", [("", "Die Schleimschicht fehlt; IL-1β ≥ 2× und Behçet.")])
WITHOUT = Article("99000003", "MUC2 and colitis, a letter")
PREPRINT = preprint(
    "PPR900001",
    "MUC2 single cells of <i>colitis</i>",
    "<h4>Background</h4>MUC2 is &lt;made&gt; in goblet cells. <h4>Results:</h4><p>It fell 2&#215;.</p>",
    doi="10.1101/2021.03.04.99",
)


def pubmed(site: Site, clock: FakeClock | None = None, key: str = "", **bounds: float) -> PubMed:
    return PubMed("someone@example.org", key, site.pubmed, bounds=Bounds(**bounds), clock=clock or FakeClock())


def europepmc(site: Site, clock: FakeClock | None = None, **bounds: float) -> EuropePmc:
    return EuropePmc(site.europepmc, bounds=Bounds(**bounds), clock=clock or FakeClock())


def fetched(article: Article) -> Found:
    with serve([article]) as site:
        return pubmed(site).search(QUERY, 5)


def shown(error: pytest.ExceptionInfo[ElicitationError]) -> str:
    [fault] = error.value.faults
    return f"{fault.where}: {fault.found}"


@pytest.fixture
def site() -> Iterator[Site]:
    with serve([STRUCTURED, PLAIN, WITHOUT], [PREPRINT]) as served:
        yield served


def test_a_structured_abstract_keeps_its_labels_and_loses_its_markup() -> None:
    [abstract] = fetched(STRUCTURED).abstracts
    assert abstract.title == "Loss of MUC2 in colitis & fistula"
    assert abstract.text == "OBJECTIVE: To study MUC2.\nRESULTS: It fell (padj<0.01; r2=0.4).\nAs others saw."
    assert (abstract.source, abstract.id, abstract.year, abstract.journal) == ("pubmed", "99000001", 2019, "Gut")


def test_the_doi_is_that_of_the_record_and_not_of_its_references() -> None:
    assert fetched(STRUCTURED).abstracts[0].doi == "10.1136/gutjnl-99-1"
    assert fetched(PLAIN).abstracts[0].doi == ""


def test_letters_beyond_ascii_arrive_as_they_are() -> None:
    assert fetched(PLAIN).abstracts[0].text == "Die Schleimschicht fehlt; IL-1β ≥ 2× und Behçet."


def test_a_record_without_an_abstract_is_left_out_and_counted(site: Site) -> None:
    found = pubmed(site).search(QUERY, 5)
    assert [each.id for each in found.abstracts] == ["99000001", "99000002"]
    assert (found.total, dict(found.left_out)) == (3, {"no abstract": 1})


@pytest.mark.parametrize("kind", ["Retracted Publication", "Retraction of Publication"])
def test_a_retracted_article_is_left_out_and_counted(kind: str) -> None:
    found = fetched(Article("99000004", "MUC2 in colitis", [("", "MUC2.")], kinds=("Journal Article", kind)))
    assert (found.abstracts, dict(found.left_out)) == ((), {"retracted or withdrawn": 1})


@pytest.mark.parametrize(
    ("date", "year"),
    [("<MedlineDate>1998 Dec-1999 Jan</MedlineDate>", 1998), ("<Year>2020</Year>", 2020), ("<Season>x</Season>", None)],
)
def test_the_year_is_read_in_both_of_its_forms(date: str, year: int | None) -> None:
    assert fetched(Article("99000005", "MUC2 in colitis", [("", "MUC2.")], date=date)).abstracts[0].year == year


def test_a_book_and_a_record_that_does_not_come_are_counted(site: Site) -> None:
    site.replies[EFETCH] = [Reply(article_set([PLAIN.xml(), BOOK.format("99000001")]))]
    found = pubmed(site).search(QUERY, 5)
    assert ([each.id for each in found.abstracts], dict(found.left_out)) == (
        ["99000002"],
        {"another form": 1, "no record": 1},
    )


def test_a_record_that_was_not_asked_for_is_not_taken(site: Site) -> None:
    stranger = Article("99000099", "Other", [("", "Other.")])
    site.replies[EFETCH] = [Reply(article_set([stranger.xml()]))]
    found = pubmed(site).search(QUERY, 1)
    assert (found.abstracts, dict(found.left_out)) == ((), {"no record": 1})


def test_formulas_in_an_abstract_are_one_line_of_text() -> None:
    formula = '<mml:math xmlns:mml="http://www.w3.org/1998/Math/MathML">\n <mml:mi>He</mml:mi>\n</mml:math>'
    found = fetched(Article("99000006", "MUC2 in colitis", [("", f"With {formula} gas.")]))
    assert found.abstracts[0].text == "With He gas."


def test_no_records_are_asked_for_where_nothing_is_found(site: Site) -> None:
    assert pubmed(site).search(Query((("nothing",),)), 5) == Found((), 0, {})
    assert site.asked(EFETCH) == []


def test_no_more_is_asked_for_than_wanted(site: Site) -> None:
    found = pubmed(site).search(QUERY, 1)
    assert (len(found.abstracts), found.total) == (1, 3)
    assert site.asked(ESEARCH)[0]["retmax"] == "1"
    assert site.asked(EFETCH)[0]["id"] == "99000001"


def test_many_records_are_fetched_in_parts() -> None:
    articles = [Article(str(99000000 + n), "MUC2 in colitis", [("", "MUC2.")]) for n in range(250)]
    with serve(articles) as site:
        assert len(pubmed(site).search(QUERY, 250).abstracts) == 250
        assert [len(fields["id"].split(",")) for fields in site.asked(EFETCH)] == [200, 50]


def test_every_request_says_who_asks_and_none_shows_it_in_its_address(site: Site) -> None:
    pubmed(site, key=SECRET).search(QUERY, 5)
    for _, fields in site.requests:
        assert (fields["tool"], fields["email"], fields["api_key"]) == ("afa", "someone@example.org", SECRET)
    assert not any(SECRET in address or "example.org" in address for address in site.addresses)


def test_without_a_key_none_is_sent(site: Site) -> None:
    pubmed(site).search(QUERY, 5)
    assert all("api_key" not in fields for _, fields in site.requests)


def test_the_environment_gives_address_key_and_mail(site: Site) -> None:
    PubMed.from_environment({EMAIL: "a@example.org", KEY: SECRET, URL: site.pubmed + "/"}).search(QUERY, 5)
    assert {fields["api_key"] for _, fields in site.requests} == {SECRET}
    with pytest.raises(ElicitationError, match=EMAIL):
        PubMed.from_environment({KEY: SECRET})


def test_a_preprint_keeps_its_headings_and_loses_its_markup(site: Site) -> None:
    found = europepmc(site).search(QUERY, 5)
    [abstract] = found.abstracts
    assert abstract.text == "Background: MUC2 is <made> in goblet cells.\nResults: It fell 2×."
    assert abstract.title == "MUC2 single cells of colitis"
    assert (abstract.source, abstract.id, abstract.doi) == (
        "preprint",
        "10.1101/2021.03.04.99",
        "10.1101/2021.03.04.99",
    )
    assert (abstract.year, abstract.journal, found.total) == (2021, "bioRxiv", 1)


def test_preprints_come_page_by_page_until_there_are_enough() -> None:
    preprints = [preprint(f"PPR90000{n}", "MUC2 in colitis", f"MUC2 {n}.") for n in range(7)]
    with serve(preprints=preprints) as site:
        site.page = 3
        found = europepmc(site).search(QUERY, 5)
        assert [each.id for each in found.abstracts] == [f"PPR90000{n}" for n in range(5)]
        assert [(f["cursorMark"], f["pageSize"]) for f in site.asked(EUROPEPMC)] == [("*", "5"), ("Ao3", "2")]


@pytest.mark.parametrize(
    ("record", "reason"),
    [
        (preprint("PPR900002", "MUC2 colitis", "MUC2.", source="MED"), "another form"),
        (preprint("12345", "MUC2 colitis", "MUC2."), "another form"),
        (preprint("PPR900003", "MUC2 colitis", None), "no abstract"),
        (preprint("PPR900003", "MUC2 colitis", "<p> </p>"), "no abstract"),
        (
            preprint(
                "PPR900004", "MUC2 colitis", "MUC2.", pubTypeList={"pubType": ["Preprint", "Preprint-Withdrawal"]}
            ),
            "retracted or withdrawn",
        ),
    ],
)
def test_a_record_that_is_no_preprint_with_an_abstract_is_left_out_and_counted(
    record: dict[str, object], reason: str
) -> None:
    with serve(preprints=[record]) as site:
        found = europepmc(site).search(QUERY, 5)
    assert (found.abstracts, dict(found.left_out)) == ((), {reason: 1})


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


def test_a_record_without_its_parts_is_left_out_and_counted(site: Site) -> None:
    bare = "<PubmedArticle><MedlineCitation><PMID>99000001</PMID></MedlineCitation></PubmedArticle>"
    site.replies[EFETCH] = [Reply(article_set([bare]))]
    assert dict(pubmed(site).search(QUERY, 1).left_out) == {"another form": 1}


def test_a_wait_that_is_no_time_is_not_heeded(site: Site) -> None:
    clock = FakeClock()
    site.replies[EUROPEPMC] = [Reply(b"", 429, {"Retry-After": word}) for word in ("soon", "-5", "inf")]
    europepmc(site, clock).search(QUERY, 5)
    assert clock.slept == [1.0, 2.0, 4.0]


def test_europe_pmc_stands_where_the_environment_says(site: Site) -> None:
    assert len(EuropePmc.from_environment({"AFA_EUROPEPMC_URL": site.europepmc}).search(QUERY, 5).abstracts) == 1


def test_a_redirect_is_not_followed(site: Site) -> None:
    site.replies[ESEARCH] = [Reply(b"", 302, {"Location": f"{site.url}/elsewhere"})]
    with pytest.raises(ElicitationError, match="HTTP status 302"):
        pubmed(site, key=SECRET).search(QUERY, 5)
    assert len(site.requests) == 1


def test_a_server_that_is_not_there_is_an_error_after_the_bounded_attempts() -> None:
    with serve() as site:
        address = site.pubmed
    with pytest.raises(ElicitationError, match=r"no answer \(ConnectionError\) \(3 attempts\)") as error:
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
    start = time.monotonic()
    with pytest.raises(ElicitationError, match="entities"):
        pubmed(site).search(QUERY, 5)
    assert time.monotonic() - start < 2
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


def test_a_reply_that_is_nested_or_large_beyond_reason_is_refused(site: Site) -> None:
    deep = Article("99000001", "MUC2", [("", "<b>" * 5000 + "</b>" * 5000)])
    site.replies[EFETCH] = [Reply(article_set([deep.xml()])), Reply(b"<x>" + b" " * 3000)]
    with pytest.raises(ElicitationError, match="nested deeper"):
        pubmed(site).search(QUERY, 5)
    with pytest.raises(ElicitationError, match="more than 2000 bytes"):
        pubmed(site, largest=2000).search(QUERY, 5)


def test_numbers_that_are_none_do_not_reach_the_next_request(site: Site) -> None:
    site.replies[ESEARCH] = [Reply(b'{"esearchresult": {"count": "1", "idlist": ["1&db=gene"]}}')]
    with pytest.raises(ElicitationError, match="other things than numbers"):
        pubmed(site).search(QUERY, 5)
    assert site.asked(EFETCH) == []


def test_control_characters_in_json_are_read(site: Site) -> None:
    site.replies[ESEARCH] = [
        Reply(b'{"esearchresult": {"count": "1", "idlist": ["99000002"], "querytranslation": "\t"}}')
    ]
    assert [each.id for each in pubmed(site).search(QUERY, 5).abstracts] == ["99000002"]


@pytest.mark.parametrize(("key", "per_second"), [("", 3), (SECRET, 10)])
def test_requests_keep_the_distance_that_the_limit_asks_for(key: str, per_second: int) -> None:
    clock = FakeClock()
    with serve([PLAIN]) as site:
        source, start = pubmed(site, clock, key), clock.now
        for _ in range(per_second):
            source.search(QUERY, 5)
    # Two requests a search: the last of 2n starts 2n - 1 distances after the first.
    assert clock.now - start == pytest.approx((2 * per_second - 1) * SLACK / per_second)


def test_threads_share_one_pace() -> None:
    pace, times = Pace(50), list[float]()

    def run() -> None:
        for _ in range(3):
            pace.wait()
            times.append(time.monotonic())

    threads = [threading.Thread(target=run) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    # A thread may be late, which brings it nearer to the next one, but all twelve take eleven distances.
    assert max(times) - min(times) >= 11 * SLACK / 50 - 0.02
