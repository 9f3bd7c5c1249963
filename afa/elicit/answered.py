"""Answers as tables: genes named, pairs judged, and what came of every question."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict
from typing import Any, Literal

import pandas as pd

from afa.elicit.answers import Answer, PairAnswer, Probability, UnaryAnswer, read_answer
from afa.elicit.recorded import PAIR_SIGN
from afa.elicit.store import UNKNOWN, Entry, Question
from afa.errors import ElicitationError, Fault

GENE_COLUMNS = ["run", "phenotype", "gene", "direction", "lit_prob", "mechanism", "evidence_source", "references"]
PAIR_COLUMNS = ["phenotype", "gene_a", "gene_b", "sign", "lit_prob", "text", "evidence_source", "references"]
OUTCOME_COLUMNS = [
    "prompt",
    "run",
    "phenotype",
    "gene_a",
    "gene_b",
    "outcome",
    "detail",
    "attempt",
    "model",
    "prompt_digest",
    "time",
    "answer",
]
NEVER_ASKED, RECORD = "never asked", "the record"


class RecordedGene(Answer):
    """A gene of a record made elsewhere, which has neither snippet nor references."""

    gene_symbol: str
    category: str
    direction_in_disease: Literal["Upregulated", "Downregulated"]
    mechanism_of_action: str
    tissue: str
    lit_prob: Probability
    evidence_source: str


class RecordedUnary(Answer):
    """The genes of one phenotype in a record made elsewhere."""

    phenotype: str
    run: str
    genes: list[RecordedGene]


class RecordedPair(Answer):
    """A pair in a record made elsewhere, which has no references."""

    lit_direction: Literal["same", "opposite", "unclear"]
    lit_prob: Probability
    evidence_source: str
    supporting_text: str


SCHEMAS: Mapping[tuple[str, bool], type[Answer]] = {
    ("unary", False): UnaryAnswer,
    ("unary", True): RecordedUnary,
    ("pairwise", False): PairAnswer,
    ("pairwise", True): RecordedPair,
}
"""By prompt, and whether the record was made elsewhere."""
REPLACED = "\N{REPLACEMENT CHARACTER}"


def outcomes(questions: Sequence[Question], entries: Sequence[Entry | None]) -> pd.DataFrame:
    """What came of every question, one row each, with the columns of `OUTCOME_COLUMNS`.

    answer : `answer_digest` of the entry, empty where nothing was asked.
    """
    rows = [
        (
            question.prompt,
            question.run,
            question.values["phenotype"],
            question.values.get("gene1", ""),
            question.values.get("gene2", ""),
            NEVER_ASKED if entry is None else entry.outcome,
            "" if entry is None else plain(entry.detail),
            0 if entry is None else entry.attempt,
            UNKNOWN if entry is None else entry.model,
            UNKNOWN if entry is None else entry.prompt_digest,
            UNKNOWN if entry is None else entry.time,
            "" if entry is None else answer_digest(entry),
        )
        for question, entry in zip(questions, entries, strict=True)
    ]
    return pd.DataFrame(rows, columns=OUTCOME_COLUMNS)


def answer_digest(entry: Entry) -> str:
    """SHA-256 over what was asked, of whom, how, and what came back: the same whenever and however often it was."""
    told = asdict(entry)
    for passing in ("attempt", "time", "tokens", "served_model"):
        del told[passing]
    text = json.dumps(told, sort_keys=True, ensure_ascii=False)
    return hashlib.sha256(text.encode(errors="surrogatepass")).hexdigest()


def check_answered(table: pd.DataFrame, place: str) -> None:
    """An `ElicitationError` that counts and names the questions without an answer, which no number stands in for."""
    lacking = table[table["outcome"] != "answered"]
    if lacking.empty:
        return
    counts = ", ".join(f"{count} {outcome}" for outcome, count in lacking["outcome"].value_counts().items())
    first = lacking.iloc[0]
    genes = f" {first['gene_a']}-{first['gene_b']}" if first["gene_a"] else ""
    found = f"no answer to {len(lacking)} of {len(table)} questions ({counts}); first {first['phenotype']}{genes}"
    step = "ask live for what was never asked or failed, and for the rest with a larger manner.answers in study.yaml"
    raise ElicitationError(Fault(f"{place}, {first['prompt']}, run {first['run']}", found, "an answer to each", step))


def genes_named(entries: Sequence[Entry | None], place: str = RECORD) -> pd.DataFrame:
    """One row per gene that an answer names, with the columns of `GENE_COLUMNS`, in the order of entries and answers.

    references : numbers of the abstracts relied on, as text with blanks between; `UNKNOWN` where the record has none.
    All are here; `afa.elicit.usable` says which count.
    """
    rows = [
        row for entry in entries if entry is not None and entry.outcome == "answered" for row in _genes(entry, place)
    ]
    return pd.DataFrame(rows, columns=GENE_COLUMNS)


def pairs_judged(entries: Sequence[Entry | None], place: str = RECORD) -> pd.DataFrame:
    """One row per pair with an answer, with the columns of `PAIR_COLUMNS`; sign is +1 (same), -1 (opposite), 0."""
    rows = [_pair(entry, place) for entry in entries if entry is not None and entry.outcome == "answered"]
    return pd.DataFrame(rows, columns=PAIR_COLUMNS)


def _genes(entry: Entry, place: str) -> Iterator[tuple[Any, ...]]:
    for gene in answer_of(entry, place).genes:
        yield (
            entry.question.run,
            entry.question.values["phenotype"],
            gene.gene_symbol.strip(),
            gene.direction_in_disease,
            float(gene.lit_prob),
            plain(gene.mechanism_of_action),
            gene.evidence_source,
            _references(gene),
        )


def _pair(entry: Entry, place: str) -> tuple[Any, ...]:
    values, answer = entry.question.values, answer_of(entry, place)
    judged = (PAIR_SIGN[answer.lit_direction], float(answer.lit_prob), plain(answer.supporting_text))
    names = (values["phenotype"], values["gene1"], values["gene2"])
    return (*names, *judged, answer.evidence_source, _references(answer))


def answer_of(entry: Entry, place: str = RECORD) -> Any:
    """An answer by the schema it was asked for; one of a record made elsewhere by what such a record has.

    Raises
    ------
    ElicitationError : the record calls something an answer that is none, or that is one to another question.

    """
    question, elsewhere = entry.question, entry.prompt_digest == UNKNOWN
    where = f"{place}, {question.prompt} {' '.join(question.values.values())}, run {question.run}"
    step = "restore the record: an answer is never edited"
    try:
        answer = read_answer(SCHEMAS[question.prompt, elsewhere], entry.raw)
    except (KeyError, ValueError) as error:
        raise ElicitationError(Fault(where, str(error), "an answer of its schema", step)) from None
    if elsewhere and isinstance(answer, RecordedUnary) and answer.phenotype != question.values["phenotype"]:
        raise ElicitationError(Fault(where, f"an answer on {answer.phenotype}", "one on the phenotype asked", step))
    return answer


def plain(text: str) -> str:
    """A text that a table can hold: NUL and halves of characters replaced."""
    return "".join(REPLACED if c == "\0" or "\ud800" <= c <= "\udfff" else c for c in text)


def _references(answer: Any) -> str:
    indices = getattr(answer, "reference_indices", None)
    return UNKNOWN if indices is None else " ".join(map(str, indices))
