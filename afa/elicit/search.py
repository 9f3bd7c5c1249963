"""Search Europe PMC for publications on a phenotype, a disease and genes.

A query searches for all names of a gene. The REST service of Europe PMC provides abstracts from PubMed, and preprints
from bioRxiv, medRxiv and other servers. This module was tested only with a local server that sends replies and errors
as documented, because Europe PMC could not be reached.
"""

from __future__ import annotations

import os
import re
import time
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

from afa.elicit.abstracts import Abstract, SourceName, one_line, without_markup
from afa.errors import ElicitationError, Fault
from afa.io.csvfile import read_csv_table
from afa.io.web import DEFAULT_LIMITS, Clock, ReplyError, RequestLimits, Web, json_object

SOURCES: Mapping[SourceName, str] = {"pubmed": "MED", "preprint": "PPR"}
"""Source of abstracts -> its code in Europe PMC."""
# In a quoted phrase, characters that may have a special meaning for Europe PMC are replaced by blanks.
_PHRASE_SIGNS = re.compile(r"[^\w\-/.+' ]|_")


@dataclass(frozen=True)
class Query:
    """A query for publications. A publication must contain at least one phrase of each group."""

    groups: tuple[tuple[str, ...], ...]

    @property
    def phrases(self) -> tuple[str, ...]:
        """Return all phrases of the query, each once."""
        return tuple(dict.fromkeys(phrase for group in self.groups for phrase in group))

    def written(self, source: SourceName) -> str:
        """Return the query in Europe PMC's syntax.

        The query searches the titles and the abstracts of publications from `source`.
        """
        groups = (" OR ".join(f'TITLE_ABS:"{phrase}"' for phrase in group) for group in self.groups)
        return " AND ".join([*(f"({group})" for group in groups), f"(SRC:{SOURCES[source]})"])


class Keywords:
    """The names that publications use for phenotypes and diseases."""

    def __init__(self, names: Mapping[str, Sequence[str]]) -> None:
        self._names = {
            phrase_text(name).casefold(): tuple(map(phrase_text, phrases)) for name, phrases in names.items()
        }

    def phrases(self, name: str) -> tuple[str, ...]:
        """Return the search phrases for a name. If no phrases are known for the name, return only the name."""
        own = phrase_text(name)
        return self._names.get(own.casefold(), (own,))


def read_keywords(path: str | Path) -> Keywords:
    """Read a CSV file with the columns `name` and `keyword`, and one row for each search phrase.

    One `ElicitationError` lists all errors in the file.
    """
    table = read_csv_table(path, required=("name", "keyword"))
    for column, texts in table.columns.items():
        blank = [row for row, text in enumerate(texts) if not _PHRASE_SIGNS.sub(" ", text).strip()]
        table.wrong(blank, column, "letters or digits", "write it, or remove the row")
    ElicitationError.raise_for(table.faults.listed())
    names: dict[str, dict[str, None]] = {}
    for name, keyword in zip(table.columns["name"], table.columns["keyword"], strict=True):
        names.setdefault(name, {})[keyword] = None
    return Keywords({name: tuple(phrases) for name, phrases in names.items()})


def query_on(genes: Sequence[Sequence[str]], phenotype: Sequence[str], disease: Sequence[str]) -> Query:
    """Return a query for publications that name all genes, the phenotype and the disease.

    `genes` and `phenotype` may be empty.

    Parameters
    ----------
    genes : names of each gene, its symbol and its aliases

    """
    groups = [tuple(map(phrase_text, names)) for names in genes]
    return Query((*groups, *([tuple(phenotype)] if phenotype else []), tuple(disease)))


def phrase_text(name: str) -> str:
    """Return a name for use in a quoted search phrase.

    Letters, digits and the characters - / . + ' are kept, and every other character becomes a blank.

    Raise an `ElicitationError` if the name contains neither letters nor digits.
    """
    words = " ".join(_PHRASE_SIGNS.sub(" ", name).split())
    if not any(map(str.isalnum, words)):
        raise ElicitationError(Fault("a search", repr(name), "a name with letters or digits", "correct the name"))
    return words


NO_ABSTRACT, OTHER_FORM = "no abstract", "another form"
RETRACTED = "retracted or withdrawn"
RETRACTIONS = frozenset(
    {
        *("retracted publication", "retraction of publication", "retraction notice"),
        *("preprint-withdrawal", "preprint-removal"),
    }
)
"""Types of publication that are excluded, in lower case."""
URL = "AFA_EUROPEPMC_URL"
EUROPEPMC = "https://www.ebi.ac.uk/europepmc/webservices/rest"
REQUESTS_PER_SECOND = 3.0
"""Requests a second. Europe PMC publishes no limit; this is PubMed's."""
PAGE_SIZE = 100
_NUMBERS = {"pubmed": re.compile(r"[1-9]\d{0,8}", re.ASCII), "preprint": re.compile(r"PPR\d{1,9}", re.ASCII)}
_DOI = re.compile(r"10\.\d{4,9}/\S+", re.ASCII)


class SearchResult(NamedTuple):
    """Publications that a search found.

    Parameters
    ----------
    total : number of records at the source
    abstracts : in the source's order
    left_out : number of records without a usable abstract, by reason

    """

    total: int
    abstracts: tuple[Abstract, ...]
    left_out: Mapping[str, int]


class EuropePmc:
    """Client of Europe PMC.

    By default, requests are sent to the address in the environment variable `AFA_EUROPEPMC_URL`. If this variable is
    not set, requests are sent to the public address.
    """

    def __init__(self, url: str = "", *, bounds: RequestLimits = DEFAULT_LIMITS, clock: Clock = time) -> None:
        self._url = (url or os.environ.get(URL) or EUROPEPMC).rstrip("/")
        self._web = Web(REQUESTS_PER_SECOND, bounds, clock=clock)

    def search(self, source: SourceName, query: Query, most: int) -> SearchResult:
        """Return the publications that the service ranks highest in a source; `most` limits their number.

        Raise an `ElicitationError` if the search fails.
        """
        asked = {"query": query.written(source), "format": "json", "resultType": "core", "synonym": "false"}
        abstracts: list[Abstract] = []
        left_out: Counter[str] = Counter()
        cursor, seen, total = "*", 0, 0
        while seen < most:
            page = {**asked, "pageSize": str(min(PAGE_SIZE, most - seen)), "cursorMark": cursor}
            total, records, following = self._web.asked(f"{self._url}/search", page, _parse_page)
            for record in records[: most - seen]:
                made = _parse_abstract(source, record)
                if isinstance(made, str):
                    left_out[made] += 1
                else:
                    abstracts.append(made)
            seen += len(records)
            if not records or following in ("", cursor):
                break
            cursor = following
        return SearchResult(total, tuple(abstracts), +left_out)


def _parse_page(body: bytes) -> tuple[int, list[Any], str]:
    """Return three values of a result page: the total number of publications, the records, and the next page's cursor.

    If the page is the last page, the cursor is an empty text.
    """
    document = json_object(body)
    total, results = document.get("hitCount"), document.get("resultList")
    records = results.get("result") if isinstance(results, dict) else None
    if type(total) is not int or not isinstance(records, list):
        raise ReplyError("a reply without hitCount and resultList", "a page of results", again=True)
    following = document.get("nextCursorMark", "")
    return total, records, following if isinstance(following, str) else ""


def _parse_abstract(source: SourceName, record: Any) -> Abstract | str:
    """Return the abstract of a record, or the reason why the record is excluded."""
    if not isinstance(record, dict) or record.get("source") != SOURCES[source]:
        return OTHER_FORM
    number, doi = _text_field(record, "id"), _text_field(record, "doi").lower()
    if not _NUMBERS[source].fullmatch(number):
        return OTHER_FORM
    kinds = _nested_object(record, "pubTypeList").get("pubType", [])
    if any(str(kind).lower() in RETRACTIONS for kind in (kinds if isinstance(kinds, list) else [kinds])):
        return RETRACTED
    raw = record.get("abstractText")
    text = without_markup(raw) if isinstance(raw, str) else ""
    if not one_line(text):
        return NO_ABSTRACT
    title, doi = _text_field(record, "title") or "(no title)", doi if _DOI.fullmatch(doi) else ""
    if source == "pubmed":
        journal = _nested_object(_nested_object(record, "journalInfo"), "journal")
        printed = _text_field(journal, "isoabbreviation") or _text_field(journal, "title")
    else:
        number, printed = doi or number, _text_field(_nested_object(record, "bookOrReportDetails"), "publisher")
    year = _text_field(record, "pubYear")
    published = int(year) if re.fullmatch(r"\d{4}", year, re.ASCII) else None
    return Abstract(source, number, title, published, printed, text, doi)


def _nested_object(record: Mapping[str, Any], name: str) -> Mapping[str, Any]:
    """Return the object `name` inside a record, or an empty mapping if the record lacks the object."""
    part = record.get(name)
    return part if isinstance(part, dict) else {}


def _text_field(record: Mapping[str, Any], name: str) -> str:
    value = record.get(name)
    return one_line(without_markup(value)) if isinstance(value, str) else ""
