"""Checking what an answer cites against what was retrieved for its question.

An answer may cite by the number of an abstract in the prompt, by PMID, or by DOI. What was not among the abstracts of
the prompt is flagged, whether or not it exists elsewhere. Whole numbers in square brackets are taken for numbers of
abstracts, as the prompt writes those.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Literal

import pandas as pd

from afa.elicit.abstracts import Abstract, names_gene, words
from afa.elicit.answers import (
    AnchorAnswer,
    Answer,
    ConditionalAnswer,
    GeneAnswer,
    PairAnswer,
    Reference,
    UnaryAnswer,
)
from afa.elicit.record import UNKNOWN, Entry, Question
from afa.elicit.tables import REFERENCE_COLUMNS, answer_of, plain
from afa.model.study import Study

Kind = Literal["number", "pmid", "doi", "other", "title"]
CITATION_COLUMNS = ["prompt", "run", "phenotype", "gene1", "gene2", "item", "kind", "citation", "verdict"]
COUNT_COLUMNS = [*CITATION_COLUMNS[:6], "claims_literature", "cited", "retrieved", "not_retrieved", "flagged"]

_NUMBERS = re.compile(r"\[\s*\d{1,4}(?:\s*[,;\u2013-]\s*\d{1,4})*\s*\]", re.ASCII)
_RANGE = re.compile(r"(\d+)(?:\s*[\u2013-]\s*(\d+))?", re.ASCII)
_YEAR = re.compile(r"(?:19|20)\d\d", re.ASCII)
_PMIDS = re.compile(
    r"\bPMIDs?(?![a-z])[\s:#\[(]*(\d{1,9}(?:(?:\s*[,;/&]\s*|\s+and\s+)(?:PMID:?\s*)?\d{4,9})*)", re.I | re.ASCII
)
_PMID_ADDRESS = re.compile(r"(?:pubmed\.ncbi\.nlm\.nih\.gov|ncbi\.nlm\.nih\.gov/pubmed)/(\d{1,9})", re.I | re.ASCII)
_DOI = re.compile(r"\b10\.\d{4,9}/[^\s\"'<>\]},;]+", re.ASCII)
_OTHER = re.compile(r"\bPMC\d{4,9}\b|\bPPR\d{3,9}\b|\barXiv:\s?\d{4}\.\d{4,5}\b", re.I | re.ASCII)
_MOST_IN_RANGE = 50


@dataclass(frozen=True)
class Checked:
    """What one gene of an answer, or the answer as a whole (`item` empty), cites by number and in its texts.

    citations : of each its kind, its own name (a number, a PMID, a DOI in small letters, or what stood there), and
    whether it was retrieved.
    """

    question: Question
    item: str
    claims_literature: bool
    citations: tuple[tuple[Kind, str, bool], ...]

    @property
    def place(self) -> tuple[str, ...]:
        """What a row begins with: the first columns of `CITATION_COLUMNS`."""
        prompt, *others = self.question.asked
        return prompt, self.question.run, *others, self.item

    @property
    def retrieved(self) -> int:
        """How many of the citations were retrieved."""
        return sum(was_retrieved for _, _, was_retrieved in self.citations)

    @property
    def flagged(self) -> bool:
        """Whether it cites something that was not retrieved, or claims literature and cites nothing retrieved."""
        return self.retrieved < len(self.citations) or (self.claims_literature and not self.retrieved)


def checked(question: Question, answer: Answer, abstracts: Sequence[Abstract]) -> list[Checked]:
    """The citations of an answer, one entry per gene or one in all; abstracts : of the prompt, in its order.

    A turn of a plan and a ranking cite nothing that is checked.
    """

    def part(item: str, given: GeneAnswer | PairAnswer | ConditionalAnswer, *texts: str) -> Checked:
        citations = tuple(_judged(given.reference_indices, texts, abstracts))
        return Checked(question, item, given.evidence_source == "literature", citations)

    if isinstance(answer, UnaryAnswer):
        genes = [part(gene.gene_symbol, gene, gene.mechanism_of_action, gene.snippet) for gene in answer.genes]
        references = tuple(_reference(reference, abstracts) for reference in answer.references)
        return [*genes, *([Checked(question, "", False, references)] if references else [])]
    if isinstance(answer, AnchorAnswer):
        return [part(pair.gene2, pair, pair.supporting_text) for pair in answer.pairs]
    if isinstance(answer, PairAnswer | ConditionalAnswer):
        return [part("", answer, answer.supporting_text)]
    return []


def reference_table(
    entries: Iterable[Entry | None], abstracts: Iterable[Sequence[Abstract]], study: Study
) -> pd.DataFrame:
    """What each gene of unary answers rests on, a row per gene and abstract that is cited by number.

    The columns are `REFERENCE_COLUMNS`: `number`, empty in the one row of a gene that cites none; `kind` and `id` of
    the abstract, empty where none was retrieved under the number; `names_gene`, whether the abstract names the gene by
    its symbol or an alias of the study.
    """
    rows = []
    for entry, own in zip(entries, abstracts, strict=True):
        answer = None if entry is None or entry.prompt_digest == UNKNOWN else answer_of(entry)
        if entry is None or not isinstance(answer, UnaryAnswer):
            continue
        for gene in answer.genes:
            symbol = gene.gene_symbol.strip()
            named = (entry.question.run, entry.question.values["phenotype"], plain(symbol), gene.evidence_source)
            for number in dict.fromkeys(gene.reference_indices) or [0]:
                about = ("", "", "")
                if 1 <= number <= len(own):
                    abstract = own[number - 1]
                    speaks = names_gene(abstract, study.names_of(symbol))
                    about = abstract.kind, abstract.id, "yes" if speaks else "no"
                rows.append((*named, str(number or ""), *about))
    return pd.DataFrame(rows, columns=REFERENCE_COLUMNS)


def retrieved_references(references: str, shown: int) -> str:
    """Of numbers with blanks between, those of the `shown` abstracts of the prompt; `UNKNOWN` stays as it is."""
    if references == UNKNOWN:
        return references
    return " ".join(number for number in references.split() if 1 <= int(number) <= shown)


def citation_table(answers: Iterable[Checked]) -> pd.DataFrame:
    """One row per citation, with the columns of `CITATION_COLUMNS`."""
    rows = [
        (*each.place, kind, name, "retrieved" if was_retrieved else "not retrieved")
        for each in answers
        for kind, name, was_retrieved in each.citations
    ]
    return pd.DataFrame(rows, columns=CITATION_COLUMNS)


def citation_counts(answers: Iterable[Checked]) -> pd.DataFrame:
    """One row per answer, or gene of one, with the columns of `COUNT_COLUMNS`; those that cite nothing too."""
    rows = []
    for each in answers:
        cited, retrieved = len(each.citations), each.retrieved
        rows.append((*each.place, each.claims_literature, cited, retrieved, cited - retrieved, each.flagged))
    return pd.DataFrame(rows, columns=COUNT_COLUMNS)


def cited(text: str) -> Iterator[tuple[Kind, str]]:
    """What a text cites, in its order by kind: numbers in brackets, PMIDs, DOIs, other identifiers.

    >>> list(cited("[UC] down in [1, 3-4]; PMID 123456; doi:10.1136/GUT.1."))
    [('number', '1'), ('number', '3'), ('number', '4'), ('pmid', '123456'), ('doi', '10.1136/gut.1')]
    """
    for brackets in _NUMBERS.findall(text):
        yield from (("number", str(number)) for number in _in_brackets(brackets))
    for listed in _PMIDS.findall(text):
        yield from (("pmid", number.lstrip("0") or "0") for number in re.findall(r"\d+", listed))
    yield from (("pmid", number.lstrip("0") or "0") for number in _PMID_ADDRESS.findall(text))
    yield from (("doi", _without_end(doi).lower()) for doi in _DOI.findall(text))
    yield from (("other", "".join(name.upper().split())) for name in _OTHER.findall(text))


def _judged(
    numbers: Iterable[int], texts: Iterable[str], abstracts: Sequence[Abstract]
) -> Iterator[tuple[Kind, str, bool]]:
    known: dict[str, set[str]] = {
        "number": {str(number) for number in range(1, len(abstracts) + 1)},
        "pmid": {each.id for each in abstracts if each.source == "pubmed"},
        "doi": {each.doi for each in abstracts if each.doi},
        "other": {each.id for each in abstracts if each.source == "preprint"},
    }
    named: list[tuple[Kind, str]] = [("number", str(number)) for number in numbers]
    named += [citation for text in texts for citation in cited(text)]
    yield from ((kind, name, name in known[kind]) for kind, name in dict.fromkeys(named))


def _reference(reference: Reference, abstracts: Sequence[Abstract]) -> tuple[Kind, str, bool]:
    """A reference of an answer: retrieved where one abstract has its PMID, its DOI and its title, as far as given."""
    pmid, doi = (reference.pmid or "").strip(), _without_end((reference.doi or "").strip()).lower()
    named: list[tuple[Kind, str]] = [("pmid", pmid), ("doi", doi), ("title", plain(reference.title)[:500])]
    kind, name = next((kind, name) for kind, name in named if name or kind == "title")
    is_retrieved = any(
        pmid in ("", each.id if each.source == "pubmed" else "")
        and doi in ("", each.doi)
        and words(reference.title) == words(each.title)
        for each in abstracts
    )
    return kind, name, is_retrieved


def _in_brackets(brackets: str) -> Iterator[int]:
    """The numbers of [1, 3-5]; a year in brackets is none."""
    for first, last in _RANGE.findall(brackets):
        if _YEAR.fullmatch(first):
            continue
        start, end = int(first), int(last or first)
        # A range that is no list of abstracts stands for its ends.
        yield from range(start, end + 1) if start <= end < start + _MOST_IN_RANGE else (start, end)


def _without_end(doi: str) -> str:
    """A DOI without the punctuation of the sentence that it ends; its own brackets stay."""
    while doi and (doi[-1] in ".:" or (doi[-1] == ")" and doi.count("(") < doi.count(")"))):
        doi = doi[:-1]
    return doi
