"""Ranking abstracts by BM25, the usual weighting of sparse word vectors (paragraph "Retrieval-grounded prompting")."""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

import bm25s

from afa.elicit.abstracts import Abstract

K1, B = 1.5, 0.75
"""The usual saturation of a word's count, and how much a text's length counts."""
DECIMALS = 9
"""Scores that agree so far are a tie: their last digits depend on the machine."""
# As official gene symbols write the letters that publications use.
_GREEK = str.maketrans({"α": "a", "β": "b", "γ": "g", "δ": "d", "ε": "e", "κ": "k"})
_ACCENT = re.compile("[\u0300-\u036f]")
_WORD = re.compile(r"[^\W_]+(?:-[^\W_]+)*")


@dataclass(frozen=True)
class Ranked:
    """An abstract with its BM25 score, above 0."""

    abstract: Abstract
    score: float


def ranked(abstracts: Iterable[Abstract], phrases: Iterable[str], most: int) -> tuple[Ranked, ...]:
    """The `most` abstracts that best match the words of the phrases, the best first; without any of them none.

    The same for any order of abstracts or phrases; ties go by source and number.
    """
    texts = sorted(abstracts, key=lambda each: (each.source, each.id))
    asked = sorted({word for phrase in phrases for word in words(phrase)})
    documents = [words(f"{each.title}\n{each.text}") for each in texts]
    scores = bm25(documents, asked)
    order = sorted(range(len(texts)), key=lambda place: -scores[place])
    return tuple(Ranked(texts[place], scores[place]) for place in order if scores[place] > 0)[:most]


def bm25(documents: Sequence[Sequence[str]], asked: Sequence[str]) -> list[float]:
    """The BM25 score of each document (its words) for the words asked, in the form of Lucene, to `DECIMALS` places."""
    known = set().union(*documents)
    asked = [word for word in asked if word in known]
    if not asked:
        return [0.0] * len(documents)
    index = bm25s.BM25(k1=K1, b=B, method="lucene", dtype="float64")
    index.index([list(document) for document in documents], show_progress=False)
    return [round(float(score), DECIMALS) for score in index.get_scores(list(asked))]


def words(text: str) -> list[str]:
    """The words of a text in small letters without accents; of a hyphenated word its parts and the whole.

    >>> words("Mucosal IL-1β")
    ['mucosal', 'il', '1b', 'il1b']
    """
    plain = unicodedata.normalize("NFKD", text.casefold().translate(_GREEK))
    found: list[str] = []
    for word in _WORD.findall(_ACCENT.sub("", plain)):
        parts = word.split("-")
        found += parts if len(parts) == 1 else [*parts, "".join(parts)]
    return found
