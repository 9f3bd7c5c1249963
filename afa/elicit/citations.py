"""Compare the citations in an answer with the abstracts that were retrieved for its question.

An answer may cite by the number of an abstract in the prompt, by PMID, or by DOI. A citation is flagged if it is not
among the abstracts of the prompt, even if the publication exists. Integers in square brackets count as numbers of
abstracts, because the prompt writes numbers in brackets.
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
    """The citations of one gene of an answer. If `item` is empty, they are the citations of the whole answer.

    Parameters
    ----------
    citations : for each citation its kind, its identifier (a number, a PMID, a DOI in lower case, or a title), and
        whether it was retrieved

    """

    question: Question
    item: str
    claims_literature: bool
    citations: tuple[tuple[Kind, str, bool], ...]

    @property
    def place(self) -> tuple[str, ...]:
        """Return the first columns of a row, as in `CITATION_COLUMNS`."""
        prompt, *others = self.question.asked
        return prompt, self.question.run, *others, self.item

    @property
    def retrieved(self) -> int:
        """Return the number of citations that were retrieved."""
        return sum(was_retrieved for _, _, was_retrieved in self.citations)

    @property
    def flagged(self) -> bool:
        """Return True if a citation was not retrieved, or if literature is claimed without a retrieved citation."""
        return self.retrieved < len(self.citations) or (self.claims_literature and not self.retrieved)


def checked(question: Question, answer: Answer, abstracts: Sequence[Abstract]) -> list[Checked]:
    """Return the citations of an answer. There is one entry for each gene, or one for the whole answer.

    Turns of a plan and rankings have no citations to compare.

    Parameters
    ----------
    abstracts : those of the prompt, in its order

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
    """Return the citations of the genes of unary answers.

    Each gene has one row for each abstract that it cites by number. The columns are `REFERENCE_COLUMNS`. A gene without
    citations has a single row, in which `number` is empty. If no abstract with this number was retrieved, `kind` and
    `id` are empty. `names_gene` is yes if the abstract contains the gene's symbol or an alias of the study.
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
    """Return those numbers in a text that belong to one of the `shown` abstracts. `UNKNOWN` is returned unchanged."""
    if references == UNKNOWN:
        return references
    return " ".join(number for number in references.split() if 1 <= int(number) <= shown)


def citation_table(answers: Iterable[Checked]) -> pd.DataFrame:
    """Return one row for each citation, with the columns `CITATION_COLUMNS`."""
    rows = [
        (*each.place, kind, name, "retrieved" if was_retrieved else "not retrieved")
        for each in answers
        for kind, name, was_retrieved in each.citations
    ]
    return pd.DataFrame(rows, columns=CITATION_COLUMNS)


def citation_counts(answers: Iterable[Checked]) -> pd.DataFrame:
    """Return one row for each answer or gene, with the columns `COUNT_COLUMNS`.

    Answers and genes without citations are included.
    """
    rows = []
    for each in answers:
        cited, retrieved = len(each.citations), each.retrieved
        rows.append((*each.place, each.claims_literature, cited, retrieved, cited - retrieved, each.flagged))
    return pd.DataFrame(rows, columns=COUNT_COLUMNS)


def cited(text: str) -> Iterator[tuple[Kind, str]]:
    """Yield the citations in a text, by kind. Kinds are numbers in brackets, PMIDs, DOIs and other identifiers.

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
    """Return a reference as a citation.

    A reference counts as retrieved if one abstract matches its title and any given PMID and DOI.
    """
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
    """Yield the numbers of a text such as [1, 3-5]. A year in brackets is skipped."""
    for first, last in _RANGE.findall(brackets):
        if _YEAR.fullmatch(first):
            continue
        start, end = int(first), int(last or first)
        # If a range is too long for a list of abstracts, only its two ends are used.
        yield from range(start, end + 1) if start <= end < start + _MOST_IN_RANGE else (start, end)


def _without_end(doi: str) -> str:
    """Return a DOI without the punctuation of the sentence around it. Brackets that belong to the DOI remain."""
    while doi and (doi[-1] in ".:" or (doi[-1] == ")" and doi.count("(") < doi.count(")"))):
        doi = doi[:-1]
    return doi
