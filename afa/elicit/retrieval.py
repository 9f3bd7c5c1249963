"""Retrieval for a question (paragraph "Retrieval-grounded prompting"): searched in every source, kept, and ranked.

What was retrieved once is read again from the disk, without a network.
"""

from __future__ import annotations

import logging
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, date, datetime

import pandas as pd

from afa.elicit.abstracts import Abstract, quoted
from afa.elicit.cache import AbstractCache, Search
from afa.elicit.found import Source
from afa.elicit.queries import Keywords, Query, pair_query, unary_query
from afa.elicit.ranking import Ranked, ranked, words
from afa.elicit.store import Question

ABSTRACT_COLUMNS = [
    "prompt",
    "phenotype",
    "gene1",
    "gene2",
    "number",
    "source",
    "id",
    "year",
    "journal",
    "title",
    "score",
]
SEARCH_COLUMNS = ["prompt", "phenotype", "gene1", "gene2", "source", "query", "retrieved", "total", "taken", "left_out"]

log = logging.getLogger(__name__)


@dataclass(frozen=True)
class Retrieved:
    """What was retrieved for a question: abstracts in the order of their numbers in the prompt, from 1.

    searches : every search that was made, with its date. notes : what a reader of a result should know of it.
    """

    question: Question
    ranking: tuple[Ranked, ...]
    searches: tuple[Search, ...]
    notes: tuple[str, ...]

    @property
    def abstracts(self) -> tuple[Abstract, ...]:
        """The abstracts, the best first."""
        return tuple(each.abstract for each in self.ranking)


@dataclass(frozen=True)
class Retriever:
    """Retrieves `shown` abstracts for a question out of `candidates` from each source.

    online : whether a search that the cache lacks is made; by default it is an error. A search that the cache has is
    not made again. as_of : searches retrieved later are passed over. today : the date that a search made now gets.
    """

    sources: Sequence[Source]
    cache: AbstractCache
    keywords: Keywords
    disease: str
    shown: int = 8
    candidates: int = 50
    online: bool = False
    as_of: date | None = None
    today: date = field(default_factory=lambda: datetime.now(UTC).date())

    def __call__(self, question: Question) -> list[dict[str, str]]:
        """What the prompt of a question shows."""
        return quoted(self.retrieved(question).abstracts)

    def retrieved(self, question: Question) -> Retrieved:
        """What there is for a question: on its phenotype, or on its genes beside the phenotype.

        Where the sources have fewer publications than are shown on two genes and the phenotype, those on the genes and
        the disease are ranked with them.

        Raises
        ------
        ElicitationError : a source fails, or without a network the cache lacks a search.

        """
        genes = [question.values[key] for key in ("gene1", "gene2") if question.values.get(key)]
        phenotype, note = self.keywords.expanded(question.values["phenotype"])
        disease, other = self.keywords.expanded(self.disease)
        query = pair_query(genes, phenotype, disease) if genes else unary_query(phenotype, disease)
        searches, notes = self._searched(query), [note, other]
        candidates = distinct(abstract for search in searches for abstract in search.abstracts)
        if genes and len(candidates) < self.shown:
            searches = (*searches, *self._searched(pair_query(genes, (), disease)))
            candidates = distinct(abstract for search in searches for abstract in search.abstracts)
            notes.append(f"widened to {' and '.join(genes)} without the phenotype")
        chosen = ranked(candidates, query.phrases, self.shown)
        return Retrieved(question, chosen, searches, tuple(filter(None, notes)))

    def _searched(self, query: Query) -> tuple[Search, ...]:
        return tuple(self._search(source, query) for source in self.sources)

    def _search(self, source: Source, query: Query) -> Search:
        text = source.written(query)
        if (kept := self.cache.latest(source.name, text, self.candidates, self.as_of)) is not None:
            return kept
        if not self.online:
            raise self.cache.lacks(source.name, text, self.as_of)
        found = source.search(query, self.candidates)
        search = Search(
            source.name, text, self.candidates, self.today.isoformat(), found.total, found.abstracts, found.left_out
        )
        self.cache.keep(search)
        log.info("%s: %d of %d for %s", source.name, len(found.abstracts), found.total, text)
        return search


def distinct(abstracts: Iterable[Abstract]) -> list[Abstract]:
    """Each publication once; a preprint gives way to the article of PubMed with its DOI or its title."""
    by_name = {(each.source, each.id): each for each in abstracts}
    articles = [each for each in by_name.values() if each.source == "pubmed"]
    dois, titles = {each.doi for each in articles if each.doi}, {tuple(words(each.title)) for each in articles}
    return [
        each
        for each in by_name.values()
        if each.source == "pubmed" or not (each.doi in dois or tuple(words(each.title)) in titles)
    ]


def abstract_table(retrievals: Iterable[Retrieved]) -> pd.DataFrame:
    """One row per abstract shown, with the columns of `ABSTRACT_COLUMNS`; number : as the prompt counts them."""
    rows = [
        (*_named(each.question), number, a.source, a.id, a.year, a.journal, a.title, one.score)
        for each in retrievals
        for number, one in enumerate(each.ranking, start=1)
        for a in [one.abstract]
    ]
    return pd.DataFrame(rows, columns=ABSTRACT_COLUMNS).astype({"year": "Int64"})


def search_table(retrievals: Iterable[Retrieved]) -> pd.DataFrame:
    """One row per search, with the columns of `SEARCH_COLUMNS`; total : of the source, taken : with an abstract."""
    rows = [
        (
            *_named(each.question),
            search.source,
            search.query,
            search.retrieved,
            search.total,
            len(search.abstracts),
            "; ".join(f"{count} {reason}" for reason, count in sorted(search.left_out.items())),
        )
        for each in retrievals
        for search in each.searches
    ]
    return pd.DataFrame(rows, columns=SEARCH_COLUMNS)


def _named(question: Question) -> tuple[str, str, str, str]:
    values: Mapping[str, str] = question.values
    return question.prompt, values.get("phenotype", ""), values.get("gene1", ""), values.get("gene2", "")
