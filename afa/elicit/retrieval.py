"""Retrieval for a question (paragraph "Retrieval-grounded prompting"): searched in every source, kept, and ranked.

What was retrieved once is read again from the disk, without a network. Abstracts are ranked by BM25, the usual
weighting of sparse word vectors.
"""

from __future__ import annotations

import logging
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, date, datetime
from pathlib import Path

import bm25s
import pandas as pd

from afa.elicit.abstracts import LONGEST_TEXT, Abstract, AbstractCache, Search, quoted, words
from afa.elicit.prompts import prompt_digest, request
from afa.elicit.record import ASKED, RETRIEVED, Entry, Question
from afa.elicit.search import EuropePmc, Keywords, PubMed, Query, Source, query_on, read_keywords
from afa.errors import ElicitationError, Fault
from afa.model.study import KEYWORDS_FILE, Study

ABSTRACT_COLUMNS = [*ASKED, "number", "source", "id", "year", "journal", "title", "score"]
SEARCH_COLUMNS = [*ASKED, "source", "query", "retrieved", "total", "taken", "left_out"]
K1, B = 1.5, 0.75
"""The usual saturation of a word's count, and how much a text's length counts."""
DECIMALS = 9
"""Scores that agree so far are a tie: their last digits depend on the machine."""

Ranking = tuple[tuple[Abstract, float], ...]
log = logging.getLogger(__name__)


@dataclass(frozen=True)
class Retrieved:
    """What was retrieved for a question: abstracts in the order of their numbers in the prompt, from 1.

    ranking : each with its BM25 score, above 0. searches : every search that was made, with its date.
    """

    question: Question
    ranking: Ranking
    searches: tuple[Search, ...]

    @property
    def abstracts(self) -> tuple[Abstract, ...]:
        """The abstracts, the best first."""
        return tuple(abstract for abstract, _ in self.ranking)


@dataclass(frozen=True)
class Literature:
    """Abstracts for questions, `most` for each out of `candidates` from each source; kept in memory once retrieved.

    online : whether a search that the cache lacks is made; by default it is an error. A search that the cache has is
    not made again. today : the date that a search made now gets.
    """

    sources: Sequence[Source]
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
        """What there is for a question; the same for every voter.

        Raises
        ------
        ElicitationError : a source fails, or without a network the cache lacks a search.

        """
        name = tuple(sorted(question.values.items()))
        if name not in self._known:
            self._known[name] = self._found(question)
        return self._known[name]

    def shown(self, question: Question) -> list[dict[str, str]]:
        """What the prompt of a question shows."""
        return quoted(self.retrieved(question).abstracts)

    def expected(self, question: Question) -> list[dict[str, str]]:
        """What the prompt of a question shows, or where it was not retrieved yet, as much as it may show at most."""
        try:
            return self.shown(question)
        except ElicitationError:
            longest = {"title": "", "source": "", "text": "x" * LONGEST_TEXT}
            return [longest] * self.most

    def check(self, questions: Iterable[Question], entries: Iterable[Entry], study: Study) -> None:
        """Refuse answers to other abstracts than these: their numbers would mean other publications.

        An answer to an earlier template, which cannot be rendered any more, is passed over.
        """
        for question, entry in zip(questions, entries, strict=True):
            is_rendered = entry.prompt_digest == prompt_digest(question.prompt)
            if is_rendered and request(question, study, self.shown).messages.digest != entry.messages:
                found = "an answer to another wording, with other abstracts"
                step = "restore the searches that lie in the record, or ask live"
                expected = "the wording of study and abstracts"
                raise ElicitationError(Fault(f"the record, {question}", found, expected, step))

    def tables(self, retrieved: Iterable[Retrieved]) -> Mapping[str, pd.DataFrame]:
        """`abstracts` and `searches` behind retrieved questions, each question of several voters once."""
        once = list({id(each): each for each in retrieved}.values())
        return {"abstracts": abstract_table(once), "searches": search_table(once)}

    def _found(self, question: Question) -> Retrieved:
        """On the phenotype of a question, or on its genes, by all their names, beside the phenotype.

        Where the sources have fewer publications than are shown on two genes and the phenotype, those on the genes and
        the disease are ranked with them.
        """
        genes = [question.values[key] for key in ("gene1", "gene2") if question.values.get(key)]
        names = [(gene, *self.aliases.get(gene, ())) for gene in genes]
        disease = self.keywords.phrases(self.disease)
        query = query_on(names, self.keywords.phrases(question.values["phenotype"]), disease)
        searches = [self._search(source, query) for source in self.sources]
        candidates = distinct(abstract for search in searches for abstract in search.abstracts)
        if genes and len(candidates) < self.most:
            wider = query_on(names, (), disease)
            searches += [self._search(source, wider) for source in self.sources]
            candidates = distinct(abstract for search in searches for abstract in search.abstracts)
        return Retrieved(question, ranked(candidates, query.phrases, self.most), tuple(searches))

    def _search(self, source: Source, query: Query) -> Search:
        text = source.written(query)
        if (kept := self.cache.latest(source.name, text, self.candidates)) is not None:
            return kept
        if not self.online:
            lacking, step = (
                f"no search of {source.name} for {text}",
                "run once with retrieval, or copy a cache that has it",
            )
            raise ElicitationError(Fault(str(self.cache.folder), lacking, "one", step))
        found = source.search(query, self.candidates)
        search = Search(source.name, text, self.candidates, self.today.isoformat(), *found)
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


def literature(study: Study, folder: Path, record: Path, *, online: bool) -> Literature:
    """The literature of a study: its `keywords.csv` where it has one, and the cache in the folder of its record.

    online : searches that the cache lacks are made, of PubMed and, for preprints, of Europe PMC.
    """
    path = folder / KEYWORDS_FILE
    return Literature(
        # Offline the address that NCBI asks for is not sent.
        (PubMed.from_environment() if online else PubMed(""), EuropePmc()),
        AbstractCache(record / RETRIEVED),
        read_keywords(path) if path.exists() else Keywords({}),
        study.settings.disease,
        study.aliases,
        most=study.settings.abstracts,
        online=online,
    )


def ranked(abstracts: Iterable[Abstract], phrases: Iterable[str], most: int) -> Ranking:
    """The `most` abstracts that best match the words of the phrases, the best first; without any of them none.

    The same for any order of abstracts or phrases; ties go by source and number.
    """
    texts = sorted(abstracts, key=lambda each: (each.source, each.id))
    asked = sorted({word for phrase in phrases for word in words(phrase)})
    documents = [words(f"{each.title}\n{each.text}") for each in texts]
    scores = bm25(documents, asked)
    order = sorted(range(len(texts)), key=lambda place: -scores[place])
    return tuple((texts[place], scores[place]) for place in order if scores[place] > 0)[:most]


def bm25(documents: Sequence[Sequence[str]], asked: Sequence[str]) -> list[float]:
    """The BM25 score of each document (its words) for the words asked, in the form of Lucene, to `DECIMALS` places."""
    known = set().union(*documents)
    asked = [word for word in asked if word in known]
    if not asked:
        return [0.0] * len(documents)
    index = bm25s.BM25(k1=K1, b=B, method="lucene", dtype="float64")
    index.index([list(document) for document in documents], show_progress=False)
    return [round(float(score), DECIMALS) for score in index.get_scores(list(asked))]


def abstract_table(retrievals: Iterable[Retrieved]) -> pd.DataFrame:
    """One row per abstract shown, with the columns of `ABSTRACT_COLUMNS`; number : as the prompt counts them."""
    rows = [
        (*each.question.asked, number, a.source, a.id, a.year, a.journal, a.title, score)
        for each in retrievals
        for number, (a, score) in enumerate(each.ranking, start=1)
    ]
    return pd.DataFrame(rows, columns=ABSTRACT_COLUMNS).astype({"year": "Int64"})


def search_table(retrievals: Iterable[Retrieved]) -> pd.DataFrame:
    """One row per search, with the columns of `SEARCH_COLUMNS`; total : of the source, taken : with an abstract."""
    rows = []
    for each in retrievals:
        for search in each.searches:
            left_out = "; ".join(f"{count} {reason}" for reason, count in sorted(search.left_out.items()))
            found = search.source, search.query, search.retrieved, search.total, len(search.abstracts), left_out
            rows.append((*each.question.asked, *found))
    return pd.DataFrame(rows, columns=SEARCH_COLUMNS)
