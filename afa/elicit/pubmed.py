"""Searching PubMed through NCBI's E-utilities: `esearch` gives the numbers of records, `efetch` the records.

PubMed itself was out of reach when this was written: it was tested against a local server that answers in the
documented forms and misbehaves, not against PubMed.
"""

from __future__ import annotations

import os
import re
import time
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from typing import Any
from xml.etree.ElementTree import Element, TreeBuilder
from xml.parsers import expat

from afa.elicit.abstracts import Abstract, SourceName, one_line, without_markup
from afa.elicit.search import NO_ABSTRACT, NO_RECORD, OTHER_FORM, RETRACTED, Found, Query
from afa.elicit.web import TRANSIENT, USUAL, Bounds, Clock, ReplyError, Web, json_object, unreadable
from afa.errors import ElicitationError, Fault

URL, EMAIL, KEY = "AFA_PUBMED_URL", "NCBI_EMAIL", "NCBI_API_KEY"
PUBLIC_URL = "https://eutils.ncbi.nlm.nih.gov/entrez/eutils"
TOOL = "afa"
PER_SECOND, PER_SECOND_WITH_KEY = 3.0, 10.0
AT_ONCE = 200
"""Records fetched by one request."""
DEEPEST = 100
RETRACTIONS = frozenset({"Retracted Publication", "Retraction of Publication", "Retraction Notice"})
_NUMBER = re.compile(r"[1-9]\d{0,8}", re.ASCII)
_YEAR = re.compile(r"\b(?:1[89]|2\d)\d\d\b", re.ASCII)


class PubMed:
    """PubMed as a source of abstracts; the key raises the limit from 3 requests a second to 10, and is never shown."""

    name: SourceName = "pubmed"

    def __init__(
        self, email: str, key: str = "", url: str = PUBLIC_URL, *, bounds: Bounds = USUAL, clock: Clock = time
    ) -> None:
        self._url, self._told = url.rstrip("/"), {"db": "pubmed", "tool": TOOL, "email": email}
        if key:
            self._told["api_key"] = key
        # E-utilities report failures of the servers behind them as bad requests too, and no number asked for is ours.
        transient = TRANSIENT | {400}
        self._web = Web(PER_SECOND_WITH_KEY if key else PER_SECOND, bounds, transient=transient, clock=clock)

    @classmethod
    def from_environment(cls, environment: Mapping[str, str] = os.environ) -> PubMed:
        """By `NCBI_EMAIL`, which NCBI asks of every user, and `NCBI_API_KEY` and `AFA_PUBMED_URL`, where set."""
        if not environment.get(EMAIL):
            step = "export it; NCBI writes to it before it blocks a user"
            raise ElicitationError(Fault(f"the environment, {EMAIL}", "nothing", "an e-mail address", step))
        return cls(environment[EMAIL], environment.get(KEY, ""), environment.get(URL, "") or PUBLIC_URL)

    def written(self, query: Query) -> str:
        """The query in PubMed's syntax, over titles and abstracts."""
        groups = [" OR ".join(f'"{phrase}"[tiab]' for phrase in group) for group in query.groups]
        return " AND ".join(f"({group})" for group in groups)

    def search(self, query: Query, most: int) -> Found:
        """The `most` records of highest relevance by PubMed's own account, or an `ElicitationError`."""
        asked = {**self._told, "term": self.written(query), "retmax": str(most), "retmode": "json", "sort": "relevance"}
        total, numbers = self._web.post(f"{self._url}/esearch.fcgi", asked, _numbers)
        numbers = numbers[:most]
        abstracts: list[Abstract] = []
        left_out: Counter[str] = Counter()
        for start in range(0, len(numbers), AT_ONCE):
            wanted = numbers[start : start + AT_ONCE]
            asked = {**self._told, "id": ",".join(wanted), "retmode": "xml", "rettype": "abstract"}
            records = self._web.post(f"{self._url}/efetch.fcgi", asked, _records)
            taken = [each for each in records if isinstance(each, Abstract) and each.id in wanted]
            reasons = [each for each in records if isinstance(each, str)]
            abstracts += taken
            left_out.update(reasons)
            left_out[NO_RECORD] += max(0, len(wanted) - len(taken) - len(reasons))
        return Found(tuple(abstracts), total, +left_out)


def tree(body: bytes) -> Element:
    """The root of an XML reply, read without its DTD; a `ReplyError` where it cannot be read or declares an entity."""
    builder, depth = TreeBuilder(), 0

    def begin(tag: str, attributes: dict[str, str]) -> None:
        nonlocal depth
        depth += 1
        if depth > DEEPEST:
            raise ReplyError(f"XML nested deeper than {DEEPEST}", "records", again=False)
        builder.start(tag, attributes)

    def end(tag: str) -> None:
        nonlocal depth
        depth -= 1
        builder.end(tag)

    def refused(*_: object) -> None:
        # One entity made of others can fill the memory, and one from outside can read a file.
        raise ReplyError("XML with entities of its own", "records", again=False)

    parser = expat.ParserCreate()
    parser.buffer_text = True
    parser.StartElementHandler, parser.EndElementHandler = begin, end
    parser.CharacterDataHandler = builder.data
    parser.EntityDeclHandler = parser.SkippedEntityHandler = refused
    parser.SetParamEntityParsing(expat.XML_PARAM_ENTITY_PARSING_NEVER)
    try:
        parser.Parse(body, True)
    except (expat.ExpatError, ValueError, LookupError):
        raise ReplyError(unreadable(body, "XML"), "XML", again=True) from None
    return builder.close()


def _numbers(body: bytes) -> tuple[int, list[str]]:
    """How many records there are, and the PMIDs of those listed."""
    result = json_object(body).get("esearchresult")
    if not isinstance(result, dict) or "ERROR" in result:
        raise ReplyError("a failed search", "numbers of records", again=True)
    numbers, total = result.get("idlist"), result.get("count")
    if not isinstance(numbers, list) or not isinstance(total, str) or not re.fullmatch(r"\d{1,12}", total, re.ASCII):
        raise ReplyError("a reply without idlist and count", "numbers of records", again=True)
    if not all(isinstance(number, str) and _NUMBER.fullmatch(number) for number in numbers):
        raise ReplyError("an idlist with other things than numbers", "numbers of records", again=False)
    return int(total), list(dict.fromkeys(numbers))


def _records(body: bytes) -> Sequence[Abstract | str]:
    """Of each record the abstract, or why it is left out."""
    root = tree(body)
    if root.tag != "PubmedArticleSet":
        found = "an HTML page" if root.tag.lower() == "html" else f"XML of {root.tag[:40]}"
        raise ReplyError(found, "PubmedArticleSet", again=True)
    return [_abstract(record) if record.tag == "PubmedArticle" else OTHER_FORM for record in root]


def _abstract(record: Element) -> Abstract | str:
    article = record.find("MedlineCitation/Article")
    number = one_line(record.findtext("MedlineCitation/PMID") or "")
    if article is None or not _NUMBER.fullmatch(number):
        return OTHER_FORM
    if any(_text(kind) in RETRACTIONS for kind in article.iterfind("PublicationTypeList/PublicationType")):
        return RETRACTED
    text = "\n".join(_sections(article))
    if not text:
        return NO_ABSTRACT
    title = _text(article.find("ArticleTitle")) or _text(article.find("VernacularTitle"))
    journal = _text(article.find("Journal/ISOAbbreviation")) or _text(article.find("Journal/Title"))
    return Abstract("pubmed", number, title or "(no title)", _year(article), journal, text, _doi(record, article))


def _sections(article: Element) -> Iterator[str]:
    """The parts of an abstract, each one line, with its label before it where it has one."""
    for part in article.iterfind("Abstract/AbstractText"):
        label, text = one_line(part.get("Label") or ""), _text(part)
        if text:
            yield text if label in ("", "UNLABELLED") else f"{label}: {text}"


def _year(article: Element) -> int | None:
    places = ("Journal/JournalIssue/PubDate/Year", "Journal/JournalIssue/PubDate/MedlineDate", "ArticleDate/Year")
    found = (_YEAR.search(article.findtext(place) or "") for place in places)
    return next((int(year.group()) for year in found if year), None)


def _doi(record: Element, article: Element) -> str:
    # Not iterfind from the root: the list of references has numbers of other publications.
    own = record.find("PubmedData/ArticleIdList/ArticleId[@IdType='doi']")
    if own is None:
        own = article.find("ELocationID[@EIdType='doi'][@ValidYN='Y']")
    return _text(own).lower()


def _text(element: Any) -> str:
    """What an element says, with the text of what lies in it (italics, formulas)."""
    return "" if element is None else one_line(without_markup("".join(element.itertext())))
