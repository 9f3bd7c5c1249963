"""A local server that answers as E-utilities and Europe PMC document it, over publications made up here, or misbehaves.

Questions are read strictly in the syntax of each service, and answered by the publications that they fit. `replies`
holds, per path, what is sent in place of the next answers.
"""

from __future__ import annotations

import json
import re
import threading
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from html import escape
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any
from urllib.parse import parse_qsl, urlsplit

ESEARCH, EFETCH = "/entrez/eutils/esearch.fcgi", "/entrez/eutils/efetch.fcgi"
EUROPEPMC = "/europepmc/webservices/rest/search"
DOCTYPE = (
    '<!DOCTYPE PubmedArticleSet PUBLIC "-//NLM//DTD PubMedArticle, 1st January 2025//EN" '
    '"https://dtd.nlm.nih.gov/ncbi/pubmed/out/pubmed_250101.dtd">'
)
_GROUP = re.compile(r"\(([^()]*)\)")


@dataclass(frozen=True)
class Reply:
    """An answer: `length` is what Content-Length claims (None: the body's own).

    The server waits for `wait` seconds before it, and for `pause` seconds after the first half of the body.
    """

    body: bytes = b""
    status: int = 200
    headers: dict[str, str] = field(default_factory=dict)
    length: int | None = None
    wait: float = 0.0
    pause: float = 0.0


@dataclass(frozen=True)
class Article:
    """A publication of PubMed; `sections` are pairs of label and inner XML, `title` is inner XML."""

    number: str
    title: str
    sections: Sequence[tuple[str, str]] = ()
    date: str = "<Year>2019</Year><Month>Jun</Month>"
    journal: str = "Gut"
    doi: str = ""
    kinds: Sequence[str] = ("Journal Article",)

    def xml(self) -> str:
        """The record as `efetch` gives it, with numbers and years of other things around its own."""
        parts = "".join(
            f'<AbstractText Label="{label}" NlmCategory="{label}">{text}</AbstractText>'
            if label
            else f"<AbstractText>{text}</AbstractText>"
            for label, text in self.sections
        )
        abstract = f"<Abstract>{parts}<CopyrightInformation>(c) 2019 Nobody.</CopyrightInformation></Abstract>"
        kinds = "".join(f'<PublicationType UI="D0">{kind}</PublicationType>' for kind in self.kinds)
        doi = f'<ArticleId IdType="doi">{self.doi}</ArticleId>' if self.doi else ""
        return f"""<PubmedArticle>
  <MedlineCitation Status="MEDLINE" Owner="NLM" IndexingMethod="Automated">
    <PMID Version="1">{self.number}</PMID>
    <DateRevised><Year>2023</Year><Month>11</Month><Day>14</Day></DateRevised>
    <Article PubModel="Print-Electronic">
      <Journal>
        <ISSN IssnType="Electronic">1468-3288</ISSN>
        <JournalIssue CitedMedium="Internet"><Volume>68</Volume><PubDate>{self.date}</PubDate></JournalIssue>
        <Title>{self.journal} (long form)</Title><ISOAbbreviation>{self.journal}</ISOAbbreviation>
      </Journal>
      <ArticleTitle>{self.title}</ArticleTitle>
      {abstract if self.sections else ""}
      <AuthorList CompleteYN="Y"><Author ValidYN="Y"><LastName>Nobody</LastName></Author></AuthorList>
      <Language>eng</Language>
      <PublicationTypeList>{kinds}</PublicationTypeList>
    </Article>
    <CommentsCorrectionsList>
      <CommentsCorrections RefType="CommentIn"><PMID Version="1">98000009</PMID></CommentsCorrections>
    </CommentsCorrectionsList>
  </MedlineCitation>
  <PubmedData>
    <PublicationStatus>ppublish</PublicationStatus>
    <ArticleIdList><ArticleId IdType="pubmed">{self.number}</ArticleId>{doi}</ArticleIdList>
    <ReferenceList><Reference><Citation>Lancet. 1994</Citation><ArticleIdList>
      <ArticleId IdType="pubmed">98000010</ArticleId><ArticleId IdType="doi">10.5555/other</ArticleId>
    </ArticleIdList></Reference></ReferenceList>
  </PubmedData>
</PubmedArticle>"""


BOOK = '<PubmedBookArticle><BookDocument><PMID Version="1">{}</PMID></BookDocument></PubmedBookArticle>'


def article_set(records: Sequence[str], doctype: str = DOCTYPE) -> bytes:
    """The whole of a reply of `efetch`."""
    body = "\n".join(records)
    return f'<?xml version="1.0" ?>\n{doctype}\n<PubmedArticleSet>\n{body}\n</PubmedArticleSet>\n'.encode()


def preprint(
    number: str, title: str, abstract: str | None, doi: str = "", server: str = "bioRxiv", **others: Any
) -> dict[str, Any]:
    """A record as the search of Europe PMC gives it with `resultType=core`."""
    record: dict[str, Any] = {
        "id": number,
        "source": "PPR",
        "doi": doi,
        "title": title,
        "authorString": "Nobody A, Nobody B.",
        "pubYear": "2021",
        "abstractText": abstract,
        "pubTypeList": {"pubType": ["Preprint"]},
        "bookOrReportDetails": {"publisher": server, "yearOfPublication": 2021},
        "isOpenAccess": "N",
        "citedByCount": 0,
        "firstPublicationDate": "2021-03-05",
        "versionNumber": 1,
        **others,
    }
    return {key: value for key, value in record.items() if value not in (None, "")}


@dataclass
class Site:
    """What the server holds and was asked: `requests` are path and fields, `methods` and `times` beside them."""

    articles: list[Article]
    preprints: list[dict[str, Any]]
    replies: dict[str, list[Reply]]
    page: int = 100
    requests: list[tuple[str, dict[str, str]]] = field(default_factory=list)
    addresses: list[str] = field(default_factory=list)
    times: list[float] = field(default_factory=list)
    url: str = ""
    lock: threading.Lock = field(default_factory=threading.Lock)

    @property
    def pubmed(self) -> str:
        """The address of E-utilities here."""
        return self.url + "/entrez/eutils"

    @property
    def europepmc(self) -> str:
        """The address of Europe PMC here."""
        return self.url + "/europepmc/webservices/rest"

    def asked(self, path: str) -> list[dict[str, str]]:
        """The fields of every request to a path."""
        return [fields for asked, fields in self.requests if asked == path]

    def answer(self, path: str, fields: dict[str, str], address: str) -> Reply:
        with self.lock:
            self.requests.append((path, fields))
            self.addresses.append(address)
            self.times.append(time.monotonic())
            if self.replies.get(path):
                return self.replies[path].pop(0)
        answers = {ESEARCH: self._esearch, EFETCH: self._efetch, EUROPEPMC: self._europepmc}
        return answers[path](fields) if path in answers else Reply(b"not here", 404)

    def _esearch(self, fields: dict[str, str]) -> Reply:
        assert fields["db"] == "pubmed"
        assert (fields["retmode"], fields["sort"]) == ("json", "relevance")
        groups = _groups(fields["term"], r'"([^"]+)"\[tiab\]')
        found = [each.number for each in self.articles if _fits(each.xml(), groups)]
        listed = found[: int(fields["retmax"])]
        result: dict[str, Any] = {"count": str(len(found)), "retmax": str(len(listed)), "retstart": "0"}
        result |= {"idlist": listed, "translationset": [], "querytranslation": fields["term"]}
        if not found:
            result["warninglist"] = {"phrasesignored": [], "outputmessages": ["No items found."]}
        return _json({"header": {"type": "esearch", "version": "0.3"}, "esearchresult": result})

    def _efetch(self, fields: dict[str, str]) -> Reply:
        assert (fields["db"], fields["retmode"]) == ("pubmed", "xml")
        wanted = fields["id"].split(",")
        records = [each.xml() for each in self.articles if each.number in wanted]
        return Reply(article_set(records), headers={"Content-Type": "text/xml; charset=UTF-8"})

    def _europepmc(self, fields: dict[str, str]) -> Reply:
        assert (fields["format"], fields["resultType"]) == ("json", "core")
        query, _, restricted = fields["query"].rpartition(" AND ")
        assert restricted == "(SRC:PPR)"
        groups = _groups(query, r'TITLE_ABS:"([^"]+)"')
        found = [each for each in self.preprints if _fits(json.dumps(each, ensure_ascii=False), groups)]
        start = 0 if fields["cursorMark"] == "*" else int(fields["cursorMark"].removeprefix("Ao"))
        size = min(self.page, int(fields["pageSize"]))
        document: dict[str, Any] = {
            "version": "6.9",
            "hitCount": len(found),
            "request": {"queryString": fields["query"], "resultType": "core", "cursorMark": fields["cursorMark"]},
            "resultList": {"result": found[start : start + size]},
        }
        if start + size < len(found):
            document["nextCursorMark"] = f"Ao{start + size}"
        return _json(document)


def _groups(query: str, phrase: str) -> list[list[str]]:
    groups = [re.findall(phrase, group) for group in _GROUP.findall(query)]
    assert re.fullmatch(rf"\({phrase}(?: OR {phrase})*\)(?: AND \({phrase}(?: OR {phrase})*\))*", query), query
    return groups


def _fits(record: str, groups: list[list[str]]) -> bool:
    text = record.casefold()
    return all(any(escape(p, quote=False).casefold() in text for p in group) for group in groups)


def _json(document: Any) -> Reply:
    return Reply(json.dumps(document).encode(), headers={"Content-Type": "application/json"})


@contextmanager
def serve(
    articles: Sequence[Article] = (),
    preprints: Sequence[dict[str, Any]] = (),
    replies: dict[str, list[Reply]] | None = None,
) -> Iterator[Site]:
    """Serve publications on a free port of this machine until the block ends."""
    site = Site(list(articles), list(preprints), replies or {})

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            parts = urlsplit(self.path)
            self._send(site.answer(parts.path, dict(parse_qsl(parts.query)), self.path))

        def do_POST(self) -> None:
            body = self.rfile.read(int(self.headers["Content-Length"])).decode()
            self._send(site.answer(urlsplit(self.path).path, dict(parse_qsl(body)), self.path))

        def _send(self, reply: Reply) -> None:
            time.sleep(reply.wait)
            self.send_response(reply.status)
            for name, value in {"Content-Type": "text/plain", **reply.headers}.items():
                self.send_header(name, value)
            self.send_header("Content-Length", str(len(reply.body) if reply.length is None else reply.length))
            self.end_headers()
            half = len(reply.body) // 2
            self.wfile.write(reply.body[:half])
            time.sleep(reply.pause)
            self.wfile.write(reply.body[half:])

        def finish(self) -> None:
            with suppress(OSError):
                super().finish()

        def handle(self) -> None:
            # A client that gives up closes the connection while it is written to.
            with suppress(OSError):
                super().handle()

        def log_message(self, *_: Any) -> None:
            pass

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01}, daemon=True)
    thread.start()
    try:
        site.url = f"http://127.0.0.1:{server.server_address[1]}"
        yield site
    finally:
        server.shutdown()
        server.server_close()
        thread.join()


class FakeClock:
    """A clock whose sleeps are noted and pass at once."""

    def __init__(self) -> None:
        self.now, self.slept = 1000.0, list[float]()
        self._lock = threading.Lock()

    def monotonic(self) -> float:
        return self.now

    def time(self) -> float:
        return self.now

    def sleep(self, seconds: float, /) -> None:
        with self._lock:
            self.slept.append(seconds)
            self.now += seconds
