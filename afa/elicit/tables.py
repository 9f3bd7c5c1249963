"""Answers as tables: what came of every question, genes named, pairs judged; and these tables as CSV files.

Which of the genes that answers name can be used follows rules that do not depend on what anybody hopes to find:
1. A symbol must have the form of HGNC: capital letters, digits and hyphens, beginning with a letter (`C9orf72` keeps
   its small letters). Blanks around it are taken off; nothing else is changed, no alias is looked up.
2. Of the genes of one answer only as many count as were asked for, the first ones.
3. A gene that one answer names twice counts once; with two directions it is dropped for its phenotype, in every run.
"""

from __future__ import annotations

import csv
import math
import re
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import pandas as pd

from afa.elicit.answers import ANSWERS, RECORDED, AnchorAnswer, ConditionalAnswer, RecordedUnary, read_answer
from afa.elicit.record import UNKNOWN, Entry, Question
from afa.errors import ElicitationError, Fault
from afa.io.csvfile import number_column, read_table
from afa.io.files import atomic_folder
from afa.model.features import Features

SIGN = {"Upregulated": 1, "Downregulated": -1}
PAIR_SIGN = {"same": 1, "opposite": -1, "unclear": 0}
GENE_COLUMNS = ["run", "phenotype", "gene", "direction", "lit_prob", "mechanism", "evidence_source", "references"]
PAIR_KEY = ["phenotype", "gene_a", "gene_b"]
PAIR_COLUMNS = [*PAIR_KEY, "sign", "coupling", "lit_prob", "text", "evidence_source", "references"]
OUTCOME_COLUMNS = [
    *("prompt", "run", "phenotype", "gene_a", "gene_b"),
    *("outcome", "detail", "attempt", "model", "prompt_digest", "time", "answer"),
]
KEPT_COLUMNS = ["phenotype", "gene", "potential", "confidence", "n_runs"]
DROPPED_COLUMNS = ["phenotype", "gene", "reason"]
REFERENCE_COLUMNS = ["run", "phenotype", "gene", "evidence_source", "number", "kind", "id", "names_gene"]
COLUMNS: Mapping[str, Sequence[str]] = {
    "asked": OUTCOME_COLUMNS,
    "named": GENE_COLUMNS,
    "kept": KEPT_COLUMNS,
    "dropped": DROPPED_COLUMNS,
    "pairs": PAIR_COLUMNS,
    "references": REFERENCE_COLUMNS,
}
"""The tables that a later stage reads."""
FOR_READERS = ("agreement", "citations", "citation_counts", "abstracts", "searches")
STAGE_FILES = [f"{name}.csv" for name in (*COLUMNS, *FOR_READERS)]
NUMBERS = {
    "attempt": (0.0, 1e9, int),
    "lit_prob": (0.0, 1.0, float),
    "confidence": (0.0, 1.0, float),
    "potential": (-1.0, 1.0, int),
    "sign": (-1.0, 1.0, int),
    "coupling": (-10.0, 10.0, float),
    "n_runs": (1.0, 1e9, int),
}
"""Range and type of the columns that are no text."""
NEVER_ASKED, RECORD = "never asked", "the record"
HGNC_FORM = re.compile(r"[A-Z](?:[A-Z0-9-]|orf(?=\d))*", re.ASCII)
LONGEST_SHOWN = 60
FORMULA = ("=", "+", "-", "@", "\t", "\r")
"""Beginnings that a spreadsheet takes for a formula."""
RAREST = 0.01
"""A conditional probability counts as at least this, and at most 1 less this."""
REPLACED = "\N{REPLACEMENT CHARACTER}"


def outcomes(questions: Sequence[Question], entries: Sequence[Entry | None]) -> pd.DataFrame:
    """What came of every question, one row each, with the columns of `OUTCOME_COLUMNS`.

    answer : `Entry.digest`, empty where nothing was asked.
    """
    rows = []
    for question, entry in zip(questions, entries, strict=True):
        prompt, phenotype, gene1, gene2 = question.asked
        came: tuple[object, ...] = (NEVER_ASKED, "", 0, UNKNOWN, UNKNOWN, UNKNOWN, "")
        if entry is not None:
            known = entry.model, entry.prompt_digest, entry.time, entry.digest
            came = entry.outcome, plain(entry.detail), entry.attempt, *known
        rows.append((prompt, question.run, phenotype, gene1, gene2 or question.values.get("partners", ""), *came))
    return pd.DataFrame(rows, columns=OUTCOME_COLUMNS)


def check_answered(table: pd.DataFrame, place: str) -> None:
    """An `ElicitationError` that counts and names the questions without an answer, which no number stands in for."""
    lacking = table[table["outcome"] != "answered"]
    if lacking.empty:
        return
    counts = ", ".join(f"{count} {outcome}" for outcome, count in lacking["outcome"].value_counts().items())
    first = lacking.iloc[0]
    genes = f" {first['gene_a']}-{first['gene_b']}" if first["gene_a"] else ""
    named = f"; first {first['phenotype']}{genes}" if first["phenotype"] else ""
    found = f"no answer to {len(lacking)} of {len(table)} questions ({counts}){named}"
    step = "ask with --live for what was never asked or failed, for the rest with a larger manner.answers in study.yaml"
    raise ElicitationError(Fault(f"{place}, {first['prompt']}, run {first['run']}", found, "an answer to each", step))


def genes_named(entries: Sequence[Entry | None], place: str = RECORD) -> pd.DataFrame:
    """One row per gene that an answer names, with the columns of `GENE_COLUMNS`, in the order of entries and answers.

    references : numbers of the abstracts relied on, as text with blanks between; `UNKNOWN` where the record has none.
    All are here; `usable_genes` says which count.
    """
    rows = []
    for entry in _answered(entries):
        for gene in answer_of(entry, place).genes:
            named = entry.question.run, entry.question.values["phenotype"], gene.gene_symbol.strip()
            told = plain(gene.mechanism_of_action), plain(gene.evidence_source), _references(gene)
            rows.append((*named, gene.direction_in_disease, float(gene.lit_prob), *told))
    return pd.DataFrame(rows, columns=GENE_COLUMNS)


def pairs_judged(entries: Sequence[Entry | None], place: str = RECORD) -> pd.DataFrame:
    """One row per pair with an answer, with the columns of `PAIR_COLUMNS`, the same from every way of asking.

    sign : +1 (same), -1 (opposite), 0. coupling : the sign; of conditional probabilities ln(p_with / p_without), each
    within `RAREST` of 0 and 1, and `sign` is its sign.
    """
    rows = [row for entry in _answered(entries) for row in _pairs(entry, place)]
    return pd.DataFrame(rows, columns=PAIR_COLUMNS)


def usable_genes(
    named: pd.DataFrame, *, most_genes: int, vocabulary: Collection[str] = ()
) -> tuple[pd.DataFrame, pd.DataFrame]:
    """What of `named` counts, and what is dropped with the reason, both in the order of `named`.

    named : of `genes_named`. vocabulary : the names that count; where there are none, symbols in
    the form of HGNC. The second table has the columns of `DROPPED_COLUMNS`, a row per gene
    of an answer; the reason names the run.
    """
    answer = ["run", "phenotype"]
    reasons = pd.Series("", index=named.index, dtype=object)

    def drop(rows: pd.Series, reason: str) -> None:
        reasons[rows & (reasons == "")] = reason

    if vocabulary:
        drop(~named["gene"].isin(list(vocabulary)), "not among the features of features.csv")
    else:
        symbols = named["gene"].map(lambda gene: bool(HGNC_FORM.fullmatch(gene))).astype(bool)
        drop(~symbols, "no symbol in the form of HGNC")
    drop(named.groupby(answer).cumcount() >= most_genes, f"beyond the {most_genes} genes asked for")
    sound = named[reasons == ""]
    directions = sound.groupby([*answer, "gene"])["direction"].nunique()
    torn = directions[directions > 1].reset_index()[["phenotype", "gene"]]
    both = pd.MultiIndex.from_frame(named[["phenotype", "gene"]]).isin(pd.MultiIndex.from_frame(torn))
    drop(pd.Series(both, index=named.index), "an answer names it with both directions")
    drop(named.index.isin(sound.index) & named.duplicated([*answer, "gene"]), "named twice in one answer")
    told = named.assign(gene=named["gene"].map(_shown), reason="run " + named["run"] + ": " + reasons)
    dropped = told.loc[reasons != "", DROPPED_COLUMNS]
    return named[reasons == ""].reset_index(drop=True), dropped.reset_index(drop=True)


def write_stage(folder: str | Path, tables: Mapping[str, pd.DataFrame]) -> None:
    """Write each table as `<name>.csv`; whole or not at all, and in place of no folder but a stage's."""
    with atomic_folder(folder, STAGE_FILES) as temporary:
        for name, table in tables.items():
            # All texts are quoted: a lone carriage return in one would end the row otherwise.
            path = temporary / f"{name}.csv"
            table.to_csv(path, index=False, lineterminator="\n", quoting=csv.QUOTE_NONNUMERIC)


def read_stage(folder: str | Path, *names: str) -> dict[str, pd.DataFrame]:
    """The named tables of a stage as it had them; an `ElicitationError` lists what is wrong with their files."""
    faults: list[Fault] = []
    tables = {}
    for name in names:
        read = read_table(Path(folder) / f"{name}.csv", required=COLUMNS[name])
        tables[name] = pd.DataFrame(dict(read.columns), columns=list(COLUMNS[name]), dtype=object)
        for column in NUMBERS.keys() & set(COLUMNS[name]):
            low, high, kind = NUMBERS[column]
            numbers = number_column(read, column, low=low, high=high)
            tables[name][column] = pd.Series(numbers).fillna(0.0).astype(kind)
        faults += read.faults.listed()
    ElicitationError.raise_for(faults)
    return tables


def cut_points(
    features: Features, voter: str, entries: Iterable[Entry], place: str
) -> dict[str, tuple[float | None, float | None]]:
    """A voter's cut points of all features; a binary one is high where it is there."""
    given: dict[str, tuple[float | None, float | None]] = dict.fromkeys(features.names, (None, 0.5))
    for entry in entries:
        if entry.question.run == voter:
            given |= {cut.feature: (cut.low, cut.high) for cut in answer_of(entry, place).features}
    return given


def answer_of(entry: Entry, place: str = RECORD) -> Any:
    """An answer by the schema it was asked for; one of a record made elsewhere by what such a record has.

    Raises
    ------
    ElicitationError : the record calls something an answer that is none, or that is one to another question.

    """
    question, elsewhere = entry.question, entry.prompt_digest == UNKNOWN
    where, step = f"{place}, {question}", "restore the record: an answer is never edited"
    try:
        answer = read_answer((RECORDED if elsewhere else ANSWERS)[question.prompt], entry.raw)
    except (KeyError, ValueError) as error:
        raise ElicitationError(Fault(where, str(error), "an answer of its schema", step)) from None
    if elsewhere and isinstance(answer, RecordedUnary) and answer.phenotype != question.values["phenotype"]:
        raise ElicitationError(Fault(where, f"an answer on {answer.phenotype}", "one on the phenotype asked", step))
    return answer


def plain(text: str) -> str:
    """A text that a table can hold and a spreadsheet shows: no NUL, no half of a character, no formula."""
    text = "".join(REPLACED if c == "\0" or "\ud800" <= c <= "\udfff" else c for c in text)
    return f"'{text}" if text.startswith(FORMULA) else text


def _answered(entries: Sequence[Entry | None]) -> Iterator[Entry]:
    return (entry for entry in entries if entry is not None and entry.outcome == "answered")


def _pairs(entry: Entry, place: str) -> Iterator[tuple[Any, ...]]:
    values, answer = entry.question.values, answer_of(entry, place)
    if isinstance(answer, AnchorAnswer):
        by_gene = {pair.gene2: pair for pair in answer.pairs}
        parts = [(gene, by_gene[gene]) for gene in values["partners"].split()]
    else:
        parts = [(values["gene2"], answer)]
    for gene2, part in parts:
        if isinstance(part, ConditionalAnswer):
            with_it, without = (min(max(p, RAREST), 1 - RAREST) for p in (part.p_with, part.p_without))
            coupling, confidence = round(math.log(with_it / without), 4), float(part.p_with)
        else:
            coupling, confidence = float(PAIR_SIGN[part.lit_direction]), float(part.lit_prob)
        sign = (coupling > 0) - (coupling < 0)
        shown = (plain(part.supporting_text), plain(part.evidence_source), _references(part))
        yield (values["phenotype"], values["gene1"], gene2, sign, coupling, confidence, *shown)


def _references(answer: Any) -> str:
    indices = getattr(answer, "reference_indices", None)
    return UNKNOWN if indices is None else " ".join(map(str, indices))


def _shown(gene: str) -> str:
    """A name that is no symbol, as a table can show it."""
    shown = gene[:LONGEST_SHOWN].encode("ascii", "backslashreplace").decode() if not gene.isprintable() else gene
    return plain(shown)
