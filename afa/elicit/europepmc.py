"""Searching preprints through Europe PMC's REST service, whose preprints are those of bioRxiv, medRxiv and others.

bioRxiv's own service finds a preprint by its DOI, not by words. Europe PMC was out of reach when this was written: it
was tested against a local server that answers in the documented forms and misbehaves, not against Europe PMC.
"""

from __future__ import annotations

import os
import re
import time
from collections import Counter
from collections.abc import Mapping
from typing import Any

from afa.elicit.abstracts import Abstract, SourceName, one_line, without_markup
from afa.elicit.search import NO_ABSTRACT, OTHER_FORM, RETRACTED, Found, Query
from afa.elicit.web import USUAL, Bounds, Clock, ReplyError, Web, json_object

URL = "AFA_EUROPEPMC_URL"
PUBLIC_URL = "https://www.ebi.ac.uk/europepmc/webservices/rest"
PER_SECOND = 3.0
"""The service publishes no limit: as PubMed's without a key."""
PAGE = 100
WITHDRAWN = frozenset({"preprint-withdrawal", "preprint-removal"})
_NUMBER = re.compile(r"PPR\d{1,9}", re.ASCII)
_DOI = re.compile(r"10\.\d{4,9}/\S+", re.ASCII)


class EuropePmc:
    """Europe PMC as a source of preprints."""

    name: SourceName = "preprint"

    def __init__(self, url: str = PUBLIC_URL, *, bounds: Bounds = USUAL, clock: Clock = time) -> None:
        self._url, self._web = url.rstrip("/"), Web(PER_SECOND, bounds, clock=clock)

    @classmethod
    def from_environment(cls, environment: Mapping[str, str] = os.environ) -> EuropePmc:
        """At `AFA_EUROPEPMC_URL` where that is set."""
        return cls(environment.get(URL, "") or PUBLIC_URL)

    def written(self, query: Query) -> str:
        """The query in Europe PMC's syntax, over titles and abstracts of preprints."""
        groups = [" OR ".join(f'TITLE_ABS:"{phrase}"' for phrase in group) for group in query.groups]
        return " AND ".join(f"({group})" for group in [*groups, "SRC:PPR"])

    def search(self, query: Query, most: int) -> Found:
        """The `most` preprints of highest relevance by the service's account, or an `ElicitationError`."""
        asked = {"query": self.written(query), "format": "json", "resultType": "core", "synonym": "false"}
        abstracts: list[Abstract] = []
        left_out: Counter[str] = Counter()
        cursor, seen, total = "*", 0, 0
        while seen < most:
            page = {**asked, "pageSize": str(min(PAGE, most - seen)), "cursorMark": cursor}
            total, records, following = self._web.get(f"{self._url}/search", page, _page)
            for record in records[: most - seen]:
                made = _abstract(record)
                if isinstance(made, str):
                    left_out[made] += 1
                else:
                    abstracts.append(made)
            seen += len(records)
            if not records or following in ("", cursor):
                break
            cursor = following
        return Found(tuple(abstracts), total, +left_out)


def _page(body: bytes) -> tuple[int, list[Any], str]:
    """How many preprints there are, those of this page, and the mark of the next one, empty where there is none."""
    document = json_object(body)
    total, results = document.get("hitCount"), document.get("resultList")
    records = results.get("result") if isinstance(results, dict) else None
    if type(total) is not int or not isinstance(records, list):
        raise ReplyError("a reply without hitCount and resultList", "a page of results", again=True)
    following = document.get("nextCursorMark", "")
    return total, records, following if isinstance(following, str) else ""


def _abstract(record: Any) -> Abstract | str:
    """The abstract of a record, or why it is left out."""
    if not isinstance(record, dict) or record.get("source") != "PPR":
        return OTHER_FORM
    number, doi = _text(record, "id"), _text(record, "doi").lower()
    if not _NUMBER.fullmatch(number):
        return OTHER_FORM
    kinds = record.get("pubTypeList")
    named = kinds.get("pubType", []) if isinstance(kinds, dict) else []
    if any(str(kind).lower() in WITHDRAWN for kind in ([named] if isinstance(named, str) else named)):
        return RETRACTED
    raw = record.get("abstractText")
    text = without_markup(raw) if isinstance(raw, str) else ""
    if not one_line(text):
        return NO_ABSTRACT
    details, year = record.get("bookOrReportDetails"), _text(record, "pubYear")
    server = _text(details, "publisher") if isinstance(details, dict) else ""
    known = doi if _DOI.fullmatch(doi) else ""
    published = int(year) if re.fullmatch(r"\d{4}", year, re.ASCII) else None
    return Abstract("preprint", known or number, _text(record, "title") or "(no title)", published, server, text, known)


def _text(record: Mapping[str, Any], name: str) -> str:
    value = record.get(name)
    return one_line(without_markup(value)) if isinstance(value, str) else ""
