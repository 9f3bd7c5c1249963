"""Queries on a phenotype, a disease and genes, and the services that are searched.

A query includes all names of a gene. PubMed is searched through NCBI's E-utilities. `esearch` returns PMIDs, and
`efetch` returns the records. Preprints of bioRxiv, medRxiv and others are searched in Europe PMC's REST service. The
reason is that bioRxiv's own service finds preprints only by DOI. Neither service could be reached when the module was
written. The module was tested with a local server that sends the documented replies and errors, but not with the
services.
"""

from __future__ import annotations

import os
import re
import time
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple
from xml.etree.ElementTree import Element, ParseError, fromstring

from afa.elicit.abstracts import Abstract, SourceName, one_line, without_markup
from afa.errors import ElicitationError, Fault
from afa.io.csvfile import read_table
from afa.io.web import TRANSIENT, USUAL, Bounds, Clock, ReplyError, Web, json_object, unreadable

# Neither service interprets these characters in a quoted phrase.
_PLAIN = re.compile(r"[^\w\-/.+' ]|_")


@dataclass(frozen=True)
class Query:
    """A conjunction of groups of phrases. At least one phrase of each group must occur."""

    groups: tuple[tuple[str, ...], ...]

    @property
    def phrases(self) -> tuple[str, ...]:
        """Return all phrases, each once."""
        return tuple(dict.fromkeys(phrase for group in self.groups for phrase in group))

    def written(self, form: str) -> str:
        """Return the query in a service's syntax. `form` is the service's template for a phrase."""
        groups = (" OR ".join(form.format(phrase) for phrase in group) for group in self.groups)
        return " AND ".join(f"({group})" for group in groups)


class Keywords:
    """The names that publications use for phenotypes and diseases."""

    def __init__(self, names: Mapping[str, Sequence[str]]) -> None:
        self._names = {plain(name).casefold(): tuple(map(plain, phrases)) for name, phrases in names.items()}

    def phrases(self, name: str) -> tuple[str, ...]:
        """Return the phrases for a name. The only phrase for an unknown name is the name itself."""
        own = plain(name)
        return self._names.get(own.casefold(), (own,))


def read_keywords(path: str | Path) -> Keywords:
    """Read a CSV with the columns name, keyword, one row for each phrase. An `ElicitationError` lists its faults."""
    table = read_table(path, required=("name", "keyword"))
    for column, texts in table.columns.items():
        blank = [row for row, text in enumerate(texts) if not _PLAIN.sub(" ", text).strip()]
        table.wrong(blank, column, "letters or digits", "write it, or remove the row")
    ElicitationError.raise_for(table.faults.listed())
    names: dict[str, dict[str, None]] = {}
    for name, keyword in zip(table.columns["name"], table.columns["keyword"], strict=True):
        names.setdefault(name, {})[keyword] = None
    return Keywords({name: tuple(phrases) for name, phrases in names.items()})


def query_on(genes: Sequence[Sequence[str]], phenotype: Sequence[str], disease: Sequence[str]) -> Query:
    """Return a query for publications on all genes, the phenotype and the disease. Genes and phenotype may be empty.

    Parameters
    ----------
    genes : names of each gene, its symbol and its aliases

    """
    groups = [tuple(map(plain, names)) for names in genes]
    return Query((*groups, *([tuple(phenotype)] if phenotype else []), tuple(disease)))


def plain(name: str) -> str:
    """Return a name for a quoted search phrase, with blanks in place of signs other than - / . + and '.

    A name without letters and digits raises an `ElicitationError`.
    """
    words = " ".join(_PLAIN.sub(" ", name).split())
    if not any(map(str.isalnum, words)):
        raise ElicitationError(Fault("a search", repr(name), "a name with letters or digits", "correct the name"))
    return words


NO_ABSTRACT, NO_RECORD, OTHER_FORM = "no abstract", "no record", "another form"
RETRACTED = "retracted or withdrawn"


class Found(NamedTuple):
    """The result of a search.

    Parameters
    ----------
    total : number of records at the source
    abstracts : in the source's order
    left_out : number of records without a usable abstract, by reason

    """

    total: int
    abstracts: tuple[Abstract, ...]
    left_out: Mapping[str, int]


PUBMED_URL, EMAIL, KEY = "AFA_PUBMED_URL", "NCBI_EMAIL", "NCBI_API_KEY"
PUBMED = "https://eutils.ncbi.nlm.nih.gov/entrez/eutils"
TOOL = "afa"
PER_SECOND, PER_SECOND_WITH_KEY = 3.0, 10.0
"""Limits of PubMed; Europe PMC publishes none, and is searched at PubMed's rate without a key."""
AT_ONCE = 200
"""Records fetched by one request."""
RETRACTIONS = frozenset({"Retracted Publication", "Retraction of Publication", "Retraction Notice"})
_PMID = re.compile(r"[1-9]\d{0,8}", re.ASCII)
_YEAR = re.compile(r"\b(?:1[89]|2\d)\d\d\b", re.ASCII)


class PubMed:
    """PubMed as a source of abstracts. A key, which is never shown, raises the limit from 3 requests a second to 10."""

    name: SourceName = "pubmed"

    def __init__(
        self, email: str, key: str = "", url: str = PUBMED, *, bounds: Bounds = USUAL, clock: Clock = time
    ) -> None:
        self._url, self._sender = url.rstrip("/"), {"db": "pubmed", "tool": TOOL, "email": email}
        if key:
            self._sender["api_key"] = key
        # Status 400 is retried, because E-utilities also report failures of their servers by this status.
        transient = TRANSIENT | {400}
        self._web = Web(PER_SECOND_WITH_KEY if key else PER_SECOND, bounds, transient=transient, clock=clock)

    @classmethod
    def from_environment(cls, environment: Mapping[str, str] = os.environ) -> PubMed:
        """Return a client that uses `NCBI_EMAIL`, `NCBI_API_KEY` and `AFA_PUBMED_URL`.

        NCBI requires the e-mail address.
        """
        if not environment.get(EMAIL):
            step = "export it; NCBI writes to it before it blocks a user"
            raise ElicitationError(Fault(f"the environment, {EMAIL}", "nothing", "an e-mail address", step))
        return cls(environment[EMAIL], environment.get(KEY, ""), environment.get(PUBMED_URL, "") or PUBMED)

    def written(self, query: Query) -> str:
        """Return the query in PubMed's syntax, on titles and abstracts."""
        return query.written('"{}"[tiab]')

    def search(self, query: Query, most: int) -> Found:
        """Return the `most` records that PubMed ranks highest. If the search fails, an `ElicitationError` is raised."""
        asked = {
            **self._sender,
            "term": self.written(query),
            "retmax": str(most),
            "retmode": "json",
            "sort": "relevance",
        }
        total, numbers = self._web.asked("POST", f"{self._url}/esearch.fcgi", asked, _numbers)
        numbers = numbers[:most]
        abstracts: list[Abstract] = []
        left_out: Counter[str] = Counter()
        for start in range(0, len(numbers), AT_ONCE):
            wanted = numbers[start : start + AT_ONCE]
            asked = {**self._sender, "id": ",".join(wanted), "retmode": "xml", "rettype": "abstract"}
            records = self._web.asked("POST", f"{self._url}/efetch.fcgi", asked, _records)
            taken = [each for each in records if isinstance(each, Abstract) and each.id in wanted]
            reasons = [each for each in records if isinstance(each, str)]
            abstracts += taken
            left_out.update(reasons)
            left_out[NO_RECORD] += max(0, len(wanted) - len(taken) - len(reasons))
        return Found(total, tuple(abstracts), +left_out)


def tree(body: bytes) -> Element:
    """Return the root of an XML reply. The reply is read without its DTD.

    A reply that is invalid or declares an entity raises a `ReplyError`.
    """
    try:
        if b"<!ENTITY" not in body:
            return fromstring(body)  # noqa: S314 (no entity is declared, and expat fetches none)
    except (ParseError, ValueError, LookupError) as error:
        if "undefined entity" not in str(error):
            raise ReplyError(unreadable(body, "XML"), "XML", again=True) from None
    raise ReplyError("XML with entities of its own", "records")


def _numbers(body: bytes) -> tuple[int, list[str]]:
    """Return the number of records, and the PMIDs that are listed."""
    result = json_object(body).get("esearchresult")
    if not isinstance(result, dict) or "ERROR" in result:
        raise ReplyError("a failed search", "numbers of records", again=True)
    numbers, total = result.get("idlist"), result.get("count")
    if not isinstance(numbers, list) or not isinstance(total, str) or not re.fullmatch(r"\d{1,12}", total, re.ASCII):
        raise ReplyError("a reply without idlist and count", "numbers of records", again=True)
    if not all(isinstance(number, str) and _PMID.fullmatch(number) for number in numbers):
        raise ReplyError("an idlist with other things than numbers", "numbers of records")
    return int(total), list(dict.fromkeys(numbers))


def _records(body: bytes) -> Sequence[Abstract | str]:
    """Return the abstract of each record, or the reason why it is excluded."""
    root = tree(body)
    if root.tag != "PubmedArticleSet":
        found = "an HTML page" if root.tag.lower() == "html" else f"XML of {root.tag[:40]}"
        raise ReplyError(found, "PubmedArticleSet", again=True)
    return [_article(record) if record.tag == "PubmedArticle" else OTHER_FORM for record in root]


def _article(record: Element) -> Abstract | str:
    article = record.find("MedlineCitation/Article")
    number = one_line(record.findtext("MedlineCitation/PMID") or "")
    if article is None or not _PMID.fullmatch(number):
        return OTHER_FORM
    if any(_said(kind) in RETRACTIONS for kind in article.iterfind("PublicationTypeList/PublicationType")):
        return RETRACTED
    text = "\n".join(_sections(article))
    if not text:
        return NO_ABSTRACT
    title = _said(article.find("ArticleTitle")) or _said(article.find("VernacularTitle"))
    journal = _said(article.find("Journal/ISOAbbreviation")) or _said(article.find("Journal/Title"))
    return Abstract("pubmed", number, title or "(no title)", _year(article), journal, text, _doi(record, article))


def _sections(article: Element) -> Iterator[str]:
    """Yield the sections of an abstract, one line each. A section with a label begins with the label."""
    for part in article.iterfind("Abstract/AbstractText"):
        label, text = one_line(part.get("Label") or ""), _said(part)
        if text:
            yield text if label in ("", "UNLABELLED") else f"{label}: {text}"


def _year(article: Element) -> int | None:
    places = ("Journal/JournalIssue/PubDate/Year", "Journal/JournalIssue/PubDate/MedlineDate", "ArticleDate/Year")
    found = (_YEAR.search(article.findtext(place) or "") for place in places)
    return next((int(year.group()) for year in found if year), None)


def _doi(record: Element, article: Element) -> str:
    # The path is fixed, because the list of references has DOIs of other publications.
    own = record.find("PubmedData/ArticleIdList/ArticleId[@IdType='doi']")
    if own is None:
        own = article.find("ELocationID[@EIdType='doi'][@ValidYN='Y']")
    return _said(own).lower()


def _said(element: Any) -> str:
    """Return the text of an element and of the elements inside it, such as italics and formulas."""
    return "" if element is None else one_line(without_markup("".join(element.itertext())))


EUROPEPMC_URL = "AFA_EUROPEPMC_URL"
EUROPEPMC = "https://www.ebi.ac.uk/europepmc/webservices/rest"
PAGE = 100
WITHDRAWN = frozenset({"preprint-withdrawal", "preprint-removal"})
_PPR = re.compile(r"PPR\d{1,9}", re.ASCII)
_DOI = re.compile(r"10\.\d{4,9}/\S+", re.ASCII)


class EuropePmc:
    """Europe PMC as a source of preprints. The address is `url`, else `AFA_EUROPEPMC_URL`, else the public address."""

    name: SourceName = "preprint"

    def __init__(self, url: str = "", *, bounds: Bounds = USUAL, clock: Clock = time) -> None:
        self._url = (url or os.environ.get(EUROPEPMC_URL) or EUROPEPMC).rstrip("/")
        self._web = Web(PER_SECOND, bounds, clock=clock)

    def written(self, query: Query) -> str:
        """Return the query in Europe PMC's syntax, on titles and abstracts of preprints."""
        return query.written('TITLE_ABS:"{}"') + " AND (SRC:PPR)"

    def search(self, query: Query, most: int) -> Found:
        """Return the `most` preprints that the service ranks highest.

        If the search fails, an `ElicitationError` is raised.
        """
        asked = {"query": self.written(query), "format": "json", "resultType": "core", "synonym": "false"}
        abstracts: list[Abstract] = []
        left_out: Counter[str] = Counter()
        cursor, seen, total = "*", 0, 0
        while seen < most:
            page = {**asked, "pageSize": str(min(PAGE, most - seen)), "cursorMark": cursor}
            total, records, following = self._web.asked("GET", f"{self._url}/search", page, _page)
            for record in records[: most - seen]:
                made = _preprint(record)
                if isinstance(made, str):
                    left_out[made] += 1
                else:
                    abstracts.append(made)
            seen += len(records)
            if not records or following in ("", cursor):
                break
            cursor = following
        return Found(total, tuple(abstracts), +left_out)


def _page(body: bytes) -> tuple[int, list[Any], str]:
    """Return the number of preprints, the preprints of this page, and the mark of the next page.

    The mark of the last page is "".
    """
    document = json_object(body)
    total, results = document.get("hitCount"), document.get("resultList")
    records = results.get("result") if isinstance(results, dict) else None
    if type(total) is not int or not isinstance(records, list):
        raise ReplyError("a reply without hitCount and resultList", "a page of results", again=True)
    following = document.get("nextCursorMark", "")
    return total, records, following if isinstance(following, str) else ""


def _preprint(record: Any) -> Abstract | str:
    """Return the abstract of a record, or the reason why it is excluded."""
    if not isinstance(record, dict) or record.get("source") != "PPR":
        return OTHER_FORM
    number, doi = _field(record, "id"), _field(record, "doi").lower()
    if not _PPR.fullmatch(number):
        return OTHER_FORM
    kinds = record.get("pubTypeList")
    named = kinds.get("pubType", []) if isinstance(kinds, dict) else []
    if any(str(kind).lower() in WITHDRAWN for kind in ([named] if isinstance(named, str) else named)):
        return RETRACTED
    raw = record.get("abstractText")
    text = without_markup(raw) if isinstance(raw, str) else ""
    if not one_line(text):
        return NO_ABSTRACT
    details, year = record.get("bookOrReportDetails"), _field(record, "pubYear")
    server = _field(details, "publisher") if isinstance(details, dict) else ""
    known = doi if _DOI.fullmatch(doi) else ""
    published = int(year) if re.fullmatch(r"\d{4}", year, re.ASCII) else None
    return Abstract(
        "preprint", known or number, _field(record, "title") or "(no title)", published, server, text, known
    )


def _field(record: Mapping[str, Any], name: str) -> str:
    value = record.get(name)
    return one_line(without_markup(value)) if isinstance(value, str) else ""


Source = PubMed | EuropePmc
"""A service that can be searched; `written` returns a query in its syntax, which identifies the search."""
