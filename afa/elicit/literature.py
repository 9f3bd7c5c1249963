"""What is retrieved for the questions of a study, each once: from the cache in its record, or from services."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from pathlib import Path

import pandas as pd

from afa.elicit.abstracts import LONGEST_TEXT, quoted
from afa.elicit.cache import AbstractCache
from afa.elicit.europepmc import EuropePmc
from afa.elicit.pubmed import PubMed
from afa.elicit.queries import Keywords, read_keywords
from afa.elicit.retrieval import Retrieved, Retriever, abstract_table, search_table
from afa.elicit.store import Entry, Question
from afa.elicit.study import KEYWORDS_FILE, Study
from afa.elicit.worded import check_wording
from afa.errors import ElicitationError

CACHE_FOLDER = "retrieved"
"""In the folder of a record."""


class Literature:
    """Abstracts for questions; those of a question are retrieved once and kept in memory."""

    def __init__(self, retriever: Retriever) -> None:
        self._retriever = retriever
        self._found: dict[tuple[tuple[str, str], ...], Retrieved] = {}

    def retrieved(self, question: Question) -> Retrieved:
        """What there is for a question; the same for every voter.

        Raises
        ------
        ElicitationError : a service fails, or offline the cache lacks a search.

        """
        name = tuple(sorted(question.values.items()))
        if name not in self._found:
            self._found[name] = self._retriever.retrieved(question)
        return self._found[name]

    def shown(self, question: Question) -> list[dict[str, str]]:
        """What the prompt of a question shows."""
        return quoted(self.retrieved(question).abstracts)

    def expected(self, question: Question) -> list[dict[str, str]]:
        """What the prompt of a question shows, or where it was not retrieved yet, as much as it may show at most."""
        try:
            return self.shown(question)
        except ElicitationError:
            longest = {"title": "", "source": "", "text": "x" * LONGEST_TEXT}
            return [longest] * self._retriever.shown

    def check(self, entries: Iterable[Entry | None], study: Study, kept: pd.DataFrame | None = None) -> None:
        """Refuse answers that were given to other abstracts; `kept` as `afa.elicit.worded.worded` has it."""
        for entry in filter(None, entries):
            check_wording(entry, study, self.shown, kept)

    def tables(self, retrieved: Iterable[Retrieved]) -> Mapping[str, pd.DataFrame]:
        """`abstracts` and `searches` behind retrieved questions, each question of several voters once."""
        once = list({tuple(sorted(each.question.values.items())): each for each in retrieved}.values())
        return {"abstracts": abstract_table(once), "searches": search_table(once)}


def literature(study: Study, folder: Path, record: Path, *, online: bool) -> Literature:
    """The literature of a study: its `keywords.csv` where it has one, and the cache in the folder of its record.

    online : searches that the cache lacks are made, of PubMed and, for preprints, of Europe PMC.
    """
    path = folder / KEYWORDS_FILE
    return Literature(
        Retriever(
            # Offline the address that NCBI asks for is not sent.
            (PubMed.from_environment() if online else PubMed(""), EuropePmc.from_environment()),
            AbstractCache(record / CACHE_FOLDER),
            read_keywords(path) if path.exists() else Keywords({}),
            study.settings.disease,
            shown=study.settings.abstracts,
            online=online,
        )
    )
