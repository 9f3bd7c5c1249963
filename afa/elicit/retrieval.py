"""Retrieve abstracts for the prompt of a question (paragraph "Retrieval-grounded prompting").

This module searches for articles and preprints, caches the results, and ranks the abstracts. A cached search needs no
network. The abstracts are ranked by BM25, a standard score in text search.
"""

from __future__ import annotations

import logging
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, date, datetime
from pathlib import Path

import bm25s
import pandas as pd

from afa.elicit.abstracts import LONGEST_TEXT, Abstract, AbstractCache, Search, SourceName, prompt_abstracts, words
from afa.elicit.prompts import prompt_digest, request
from afa.elicit.record import QUESTION_COLUMNS, RETRIEVED, Entry, Question
from afa.elicit.search import SOURCES, EuropePmc, Keywords, Query, query_on, read_keywords
from afa.errors import ElicitationError, Fault
from afa.model.study import KEYWORDS_FILE, Study

ABSTRACT_COLUMNS = [*QUESTION_COLUMNS, "number", "source", "id", "year", "journal", "title", "score"]
SEARCH_COLUMNS = [*QUESTION_COLUMNS, "source", "query", "retrieved", "total", "taken", "left_out"]
K1, B = 1.5, 0.75
"""BM25 parameters: saturation of a word's count (K1), and weight of a text's length (B)."""
RELEVANCE_DECIMALS = 9
"""Decimals at which scores are tied: further digits depend on the machine."""

Ranking = tuple[tuple[Abstract, float], ...]
log = logging.getLogger(__name__)


@dataclass(frozen=True)
class Retrieved:
    """Abstracts retrieved for a question, best first. The prompt numbers the abstracts in this order, from 1.

    Parameters
    ----------
    ranking : each abstract with its BM25 score, above 0
    searches : all searches that were made, with their dates

    """

    question: Question
    ranking: Ranking
    searches: tuple[Search, ...]

    @property
    def abstracts(self) -> tuple[Abstract, ...]:
        """Return the abstracts, best first."""
        return tuple(abstract for abstract, _ in self.ranking)


@dataclass(frozen=True)
class Literature:
    """Retrieve the best abstracts for a question. The field `most` limits the number of abstracts.

    The best abstracts are chosen from up to `candidates` records of each source. Retrieved abstracts are cached in
    memory.

    Parameters
    ----------
    online : make searches that the cache lacks; otherwise a missing search is an error
    today : date of a search made now

    """

    service: EuropePmc
    cache: AbstractCache
    keywords: Keywords
    disease: str
    aliases: Mapping[str, Sequence[str]] = field(default_factory=dict)
    most: int = 8
    candidates: int = 50
    online: bool = False
    today: date = field(default_factory=lambda: datetime.now(UTC).date())
    _known: dict[tuple[tuple[str, str], ...], Retrieved] = field(default_factory=dict, repr=False, compare=False)

    def retrieved(self, question: Question) -> Retrieved:
        """Return the abstracts for a question. All voters get the same abstracts.

        Raises
        ------
        ElicitationError : the service fails, or the cache lacks a search and `online` is off.

        """
        name = tuple(sorted(question.values.items()))
        if name not in self._known:
            self._known[name] = self._search_abstracts(question)
        return self._known[name]

    def shown(self, question: Question) -> list[dict[str, str]]:
        """Return the abstracts that the prompt of a question shows."""
        return prompt_abstracts(self.retrieved(question).abstracts)

    def expected(self, question: Question) -> list[dict[str, str]]:
        """Return the abstracts that the prompt of a question shows.

        If the abstracts cannot be retrieved, return placeholders with the largest possible length.
        """
        try:
            return self.shown(question)
        except ElicitationError:
            longest = {"title": "", "source": "", "text": "x" * LONGEST_TEXT}
            return [longest] * self.most

    def check(self, questions: Iterable[Question], entries: Iterable[Entry], study: Study) -> None:
        """Raise an `ElicitationError` if the abstracts of a recorded prompt differ from the retrieved abstracts.

        An answer refers to abstracts by their numbers in the recorded prompt. In a different list of abstracts, the
        same numbers would belong to other publications. Prompts that were made from an earlier template are not
        checked, because such a prompt can no longer be rendered.
        """
        for question, entry in zip(questions, entries, strict=True):
            is_rendered = entry.prompt_digest == prompt_digest(question.prompt)
            if is_rendered and request(question, study, self.shown).messages.digest != entry.messages:
                found = "an answer to another wording, with other abstracts"
                step = "restore the searches that lie in the record, or ask live"
                expected = "the wording of study and abstracts"
                raise ElicitationError(Fault(f"the record, {question}", found, expected, step))

    def tables(self, retrieved: Iterable[Retrieved]) -> Mapping[str, pd.DataFrame]:
        """Return the tables `abstracts` and `searches` for questions whose abstracts were retrieved.

        A question that occurs several times in `retrieved` is listed once.
        """
        once = list({id(each): each for each in retrieved}.values())
        return {"abstracts": abstract_table(once), "searches": search_table(once)}

    def _search_abstracts(self, question: Question) -> Retrieved:
        """Search for publications on a question's phenotype and the study's disease, and return the best abstracts.

        If the question is on a pair of genes, the publications must also name both genes. If fewer than `most`
        publications on a pair are found, add publications that name both genes and the disease, with or without the
        phenotype.
        """
        genes = [question.values[key] for key in ("gene1", "gene2") if question.values.get(key)]
        names = [(gene, *self.aliases.get(gene, ())) for gene in genes]
        disease = self.keywords.phrases(self.disease)
        query = query_on(names, self.keywords.phrases(question.values["phenotype"]), disease)
        searches = [self._search(source, query) for source in SOURCES]
        candidates = distinct(abstract for search in searches for abstract in search.abstracts)
        if genes and len(candidates) < self.most:
            wider = query_on(names, (), disease)
            searches += [self._search(source, wider) for source in SOURCES]
            candidates = distinct(abstract for search in searches for abstract in search.abstracts)
        return Retrieved(question, best_matches(candidates, query.phrases, self.most), tuple(searches))

    def _search(self, source: SourceName, query: Query) -> Search:
        text = query.written(source)
        if (cached := self.cache.latest(source, text, self.candidates)) is not None:
            return cached
        if not self.online:
            lacking, step = (
                f"no search of {source} for {text}",
                "run once with retrieval, or copy a cache that has it",
            )
            raise ElicitationError(Fault(str(self.cache.folder), lacking, "one", step))
        found = self.service.search(source, query, self.candidates)
        search = Search(source, text, self.candidates, self.today.isoformat(), *found)
        self.cache.keep(search)
        log.info("%s: %d of %d for %s", source, len(found.abstracts), found.total, text)
        return search


def distinct(abstracts: Iterable[Abstract]) -> list[Abstract]:
    """Return each publication once. A PubMed article replaces a preprint with the same DOI or title."""
    by_name = {(each.source, each.id): each for each in abstracts}
    articles = [each for each in by_name.values() if each.source == "pubmed"]
    dois, titles = {each.doi for each in articles if each.doi}, {tuple(words(each.title)) for each in articles}
    return [
        each
        for each in by_name.values()
        if each.source == "pubmed" or not (each.doi in dois or tuple(words(each.title)) in titles)
    ]


def literature(study: Study, folder: Path, record: Path, *, online: bool) -> Literature:
    """Return the `Literature` of a study.

    The search uses the study's `keywords.csv`, if this file exists, and the cache in the folder of recorded answers.

    Parameters
    ----------
    online : search Europe PMC if the cache lacks a search

    """
    path = folder / KEYWORDS_FILE
    return Literature(
        EuropePmc(),
        AbstractCache(record / RETRIEVED),
        read_keywords(path) if path.exists() else Keywords({}),
        study.settings.disease,
        study.aliases,
        most=study.settings.abstracts,
        online=online,
    )


def best_matches(abstracts: Iterable[Abstract], phrases: Iterable[str], most: int) -> Ranking:
    """Return the abstracts that match the words in `phrases` best, best match first; `most` limits their number.

    Abstracts that contain none of the words are excluded. The result does not depend on the order of abstracts or
    phrases. Abstracts with equal scores are sorted by source and id.
    """
    texts = sorted(abstracts, key=lambda each: (each.source, each.id))
    asked = sorted({word for phrase in phrases for word in words(phrase)})
    documents = [words(f"{each.title}\n{each.text}") for each in texts]
    scores = bm25(documents, asked)
    order = sorted(range(len(texts)), key=lambda place: -scores[place])
    return tuple((texts[place], scores[place]) for place in order if scores[place] > 0)[:most]


def bm25(documents: Sequence[Sequence[str]], asked: Sequence[str]) -> list[float]:
    """Return the BM25 score of each document for the search words in the argument `asked`.

    The score is Lucene's variant of BM25, rounded to `RELEVANCE_DECIMALS` decimals.
    """
    known = set().union(*documents)
    asked = [word for word in asked if word in known]
    if not asked:
        return [0.0] * len(documents)
    index = bm25s.BM25(k1=K1, b=B, method="lucene", dtype="float64")
    index.index([list(document) for document in documents], show_progress=False)
    return [round(float(score), RELEVANCE_DECIMALS) for score in index.get_scores(list(asked))]


def abstract_table(retrievals: Iterable[Retrieved]) -> pd.DataFrame:
    """Return one row for each abstract that a prompt shows, with the columns `ABSTRACT_COLUMNS`.

    In the column `number`, abstracts are numbered as in the prompt.
    """
    rows = [
        (*each.question.asked, number, a.source, a.id, a.year, a.journal, a.title, score)
        for each in retrievals
        for number, (a, score) in enumerate(each.ranking, start=1)
    ]
    return pd.DataFrame(rows, columns=ABSTRACT_COLUMNS).astype({"year": "Int64"})


def search_table(retrievals: Iterable[Retrieved]) -> pd.DataFrame:
    """Return one row for each search, with the columns `SEARCH_COLUMNS`.

    `total` is the number of records at the source that match the query. `taken` is the number of abstracts that the
    search returned.
    """
    rows = []
    for each in retrievals:
        for search in each.searches:
            left_out = "; ".join(f"{count} {reason}" for reason, count in sorted(search.left_out.items()))
            found = search.source, search.query, search.retrieved, search.total, len(search.abstracts), left_out
            rows.append((*each.question.asked, *found))
    return pd.DataFrame(rows, columns=SEARCH_COLUMNS)
