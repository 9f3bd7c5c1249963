"""A local server that answers as Europe PMC documents it, over publications made up here, or misbehaves.

Questions are read strictly in the syntax of the service, and answered by the publications that they fit. `replies`
holds, per path, what is sent in place of the next answers.
"""

from __future__ import annotations

import json
import re
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from html import escape
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any
from urllib.parse import parse_qsl, urlsplit

EUROPEPMC = "/europepmc/webservices/rest/search"
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


def article(
    number: str, title: str, abstract: str | None = None, doi: str = "", kind: str = "Journal Article", **others: Any
) -> dict[str, Any]:
    """A record of PubMed as the search of Europe PMC gives it with `resultType=core`."""
    record: dict[str, Any] = {
        "id": number,
        "source": "MED",
        "pmid": number,
        "doi": doi,
        "title": title,
        "journalInfo": {"volume": "68", "journal": {"title": "Gut (long form)", "isoabbreviation": "Gut"}},
        "pubYear": "2019",
        "abstractText": abstract,
        "pubTypeList": {"pubType": [kind]},
        **others,
    }
    return {key: value for key, value in record.items() if value not in (None, "")}


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
    """What the server holds, what it sends in place of its next answers, and the fields of each request."""

    records: list[dict[str, Any]]
    replies: list[Reply] = field(default_factory=list)
    page: int = 100
    requests: list[dict[str, str]] = field(default_factory=list)
    url: str = ""
    lock: threading.Lock = field(default_factory=threading.Lock)

    def answer(self, path: str, fields: dict[str, str]) -> Reply:
        with self.lock:
            self.requests.append(fields)
            if self.replies:
                return self.replies.pop(0)
        return self._found(fields) if path == EUROPEPMC else Reply(b"not here", 404)

    def _found(self, fields: dict[str, str]) -> Reply:
        assert (fields["format"], fields["resultType"]) == ("json", "core")
        query, _, restricted = fields["query"].rpartition(" AND ")
        own = [each for each in self.records if f"(SRC:{each['source']})" == restricted]
        assert restricted in ("(SRC:MED)", "(SRC:PPR)")
        groups = _groups(query, r'TITLE_ABS:"([^"]+)"')
        found = [each for each in own if _fits(json.dumps(each, ensure_ascii=False), groups)]
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
        return Reply(json.dumps(document).encode(), headers={"Content-Type": "application/json"})


def _groups(query: str, phrase: str) -> list[list[str]]:
    groups = [re.findall(phrase, group) for group in _GROUP.findall(query)]
    assert re.fullmatch(rf"\({phrase}(?: OR {phrase})*\)(?: AND \({phrase}(?: OR {phrase})*\))*", query), query
    return groups


def _fits(record: str, groups: list[list[str]]) -> bool:
    text = record.casefold()
    return all(any(escape(p, quote=False).casefold() in text for p in group) for group in groups)


@contextmanager
def serve(*records: dict[str, Any]) -> Iterator[Site]:
    """Serve publications on a free port of this machine until the block ends."""
    site = Site(list(records))

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            parts = urlsplit(self.path)
            reply = site.answer(parts.path, dict(parse_qsl(parts.query)))
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
        site.url = f"http://127.0.0.1:{server.server_address[1]}/europepmc/webservices/rest"
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
