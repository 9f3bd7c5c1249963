"""Convert answers to tables of question outcomes, named genes and pairs of genes.

This module also writes and reads the tables as CSV files. Three rules decide which genes are used. The rules do not
depend on the results.
Rule 1: A symbol must have the form of HGNC: capital letters, digits and hyphens, beginning with a letter. `C9orf72`
    keeps its lower-case letters. Blanks around a symbol are removed, but an alias is not replaced by a symbol.
Rule 2: In each answer, only the first genes are used, up to the requested number.
Rule 3: A gene that is named twice in one answer is used once. If one answer names a gene with both directions, the gene
    is dropped for this phenotype in every run.
"""

from __future__ import annotations

import csv
import math
import re
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import pandas as pd

from afa.elicit.abstracts import Abstract, names_gene
from afa.elicit.answers import (
    ANSWER_SCHEMAS,
    RECORDED_SCHEMAS,
    AnchorAnswer,
    ConditionalAnswer,
    RecordedUnary,
    UnaryAnswer,
    read_answer,
)
from afa.elicit.record import UNKNOWN, Entry, Question
from afa.errors import ElicitationError, Fault
from afa.io.csvfile import number_column, read_csv_table
from afa.io.files import atomic_folder
from afa.model.features import Features
from afa.model.study import Study

SIGN = {"Upregulated": 1, "Downregulated": -1}
PAIR_SIGN = {"same": 1, "opposite": -1, "unclear": 0}
GENE_COLUMNS = ["run", "phenotype", "gene", "direction", "lit_prob", "mechanism", "evidence_source", "references"]
PAIR_KEY = ["phenotype", "gene_a", "gene_b"]
PAIR_TABLE_COLUMNS = [*PAIR_KEY, "sign", "coupling", "lit_prob", "text", "evidence_source", "references"]
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
    "pairs": PAIR_TABLE_COLUMNS,
    "references": REFERENCE_COLUMNS,
}
"""Columns of the tables that a later stage reads."""
READER_TABLES = ("agreement", "abstracts", "searches")
STAGE_FILES = [f"{name}.csv" for name in (*COLUMNS, *READER_TABLES)]
NUMERIC_RANGES = {
    "attempt": (0.0, 1e9, int),
    "lit_prob": (0.0, 1.0, float),
    "confidence": (0.0, 1.0, float),
    "potential": (-1.0, 1.0, int),
    "sign": (-1.0, 1.0, int),
    "coupling": (-10.0, 10.0, float),
    "n_runs": (1.0, 1e9, int),
}
"""Range and type of the numeric columns."""
NEVER_ASKED, RECORD = "never asked", "the record"
HGNC_FORM = re.compile(r"[A-Z](?:[A-Z0-9-]|orf(?=\d))*", re.ASCII)
LONGEST_SHOWN = 60
FORMULA = ("=", "+", "-", "@", "\t", "\r")
"""First characters of texts that a spreadsheet would run as a formula."""
RAREST_PROBABILITY = 0.01
"""Smallest conditional probability, and distance of the largest from 1."""
REPLACED = "\N{REPLACEMENT CHARACTER}"


def outcome_table(questions: Sequence[Question], entries: Sequence[Entry | None]) -> pd.DataFrame:
    """Return a table with the outcome of each question in one row. The columns are `OUTCOME_COLUMNS`.

    The column `answer` contains the digest of the entry (`Entry.digest`), or is empty if the question was not asked.
    """
    rows = []
    for question, entry in zip(questions, entries, strict=True):
        prompt, phenotype, gene1, gene2 = question.asked
        came: tuple[object, ...] = (NEVER_ASKED, "", 0, UNKNOWN, UNKNOWN, UNKNOWN, "")
        if entry is not None:
            known = entry.model, entry.prompt_digest, entry.time, entry.digest
            came = entry.outcome, safe_text(entry.detail), entry.attempt, *known
        rows.append((prompt, question.run, phenotype, gene1, gene2 or question.values.get("partners", ""), *came))
    return pd.DataFrame(rows, columns=OUTCOME_COLUMNS)


def check_answered(table: pd.DataFrame, place: str) -> None:
    """Raise an `ElicitationError` if questions are unanswered.

    The message of the error states the number of unanswered questions and names the first of them.
    """
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
    """Return a table with one row for each gene in the answers, and the columns `GENE_COLUMNS`.

    Rows are in the order of `entries`. Genes of the same answer are in the order of the answer. The table also includes
    genes that are not used; `usable_genes` removes these genes.

    The column `references` contains the numbers of the cited abstracts, separated by blanks, or `UNKNOWN` if references
    were not recorded.
    """
    rows = []
    for entry in _answered_entries(entries):
        for gene in parsed_answer(entry, place).genes:
            named = entry.question.run, entry.question.values["phenotype"], gene.gene_symbol.strip()
            details = safe_text(gene.mechanism_of_action), safe_text(gene.evidence_source), _references(gene)
            rows.append((*named, gene.direction_in_disease, float(gene.lit_prob), *details))
    return pd.DataFrame(rows, columns=GENE_COLUMNS)


def reference_table(
    entries: Iterable[Entry | None], abstracts: Iterable[Sequence[Abstract]], study: Study
) -> pd.DataFrame:
    """Return a table of the abstracts that are cited for each gene in the answers to the prompt `unary`.

    The table has one row for each citation of an abstract in an answer about a gene. Abstracts are cited by their
    number. The columns are `REFERENCE_COLUMNS`. A gene without citations has a single row, in which `number` is empty.
    If no abstract with the cited number was retrieved, `kind`, `id` and `names_gene` are empty. `names_gene` is yes if
    the abstract contains the gene's symbol or one of the aliases that the study lists for the gene.
    """
    rows = []
    for entry, own in zip(entries, abstracts, strict=True):
        answer = None if entry is None or entry.prompt_digest == UNKNOWN else parsed_answer(entry)
        if entry is None or not isinstance(answer, UnaryAnswer):
            continue
        for gene in answer.genes:
            symbol = gene.gene_symbol.strip()
            named = (entry.question.run, entry.question.values["phenotype"], safe_text(symbol), gene.evidence_source)
            for number in dict.fromkeys(gene.reference_indices) or [0]:
                about = ("", "", "")
                if 1 <= number <= len(own):
                    abstract = own[number - 1]
                    speaks = names_gene(abstract, study.names_of(symbol))
                    about = abstract.kind, abstract.id, "yes" if speaks else "no"
                rows.append((*named, str(number or ""), *about))
    return pd.DataFrame(rows, columns=REFERENCE_COLUMNS)


def retrieved_references(references: str, shown: int) -> str:
    """Return the text `references` without the numbers of abstracts that the prompt did not contain.

    The prompt contains the abstracts 1 to `shown`. `UNKNOWN` is returned unchanged.
    """
    if references == UNKNOWN:
        return references
    return " ".join(number for number in references.split() if 1 <= int(number) <= shown)


def pairs_judged(entries: Sequence[Entry | None], place: str = RECORD) -> pd.DataFrame:
    """Return a table with one row for each answered pair of genes, for all prompts that ask about pairs.

    The columns are `PAIR_TABLE_COLUMNS`. The column `sign` is the sign of `coupling`: +1 (same), -1 (opposite) or 0.
    For conditional probabilities, `coupling` is ln(p_with / p_without), with both probabilities clipped to
    [`RAREST_PROBABILITY`, 1 - `RAREST_PROBABILITY`]. For questions that do not ask for conditional probabilities, the
    columns `coupling` and `sign` have equal values.
    """
    rows = [row for entry in _answered_entries(entries) for row in _pair_rows(entry, place)]
    return pd.DataFrame(rows, columns=PAIR_TABLE_COLUMNS)


def usable_genes(
    named: pd.DataFrame, *, most_genes: int, vocabulary: Collection[str] = ()
) -> tuple[pd.DataFrame, pd.DataFrame]:
    """Return two tables: the named genes that are used, and the dropped genes with reasons.

    Both tables are in the order of `named`.

    Parameters
    ----------
    named : table of `genes_named`
    most_genes : number of genes of an answer that count
    vocabulary : allowed names; by default, symbols in the form of HGNC

    Returns
    -------
    DataFrame : the genes that count, with the columns of `named`
    DataFrame : the dropped genes, one row for each gene of an answer, with the columns `DROPPED_COLUMNS`; the reason
        names the run

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
    explained = named.assign(gene=named["gene"].map(_printable_symbol), reason="run " + named["run"] + ": " + reasons)
    dropped = explained.loc[reasons != "", DROPPED_COLUMNS]
    return named[reasons == ""].reset_index(drop=True), dropped.reset_index(drop=True)


def write_stage(folder: str | Path, tables: Mapping[str, pd.DataFrame]) -> None:
    """Write each table of a stage into a folder as `<name>.csv`. If an error occurs, no table is written.

    An existing folder is replaced only if a stage wrote it.
    """
    with atomic_folder(folder, STAGE_FILES) as temporary:
        for name, table in tables.items():
            # All texts are quoted, because an unquoted carriage return would end the row.
            path = temporary / f"{name}.csv"
            table.to_csv(path, index=False, lineterminator="\n", quoting=csv.QUOTE_NONNUMERIC)


def read_stage(folder: str | Path, *names: str) -> dict[str, pd.DataFrame]:
    """Read the tables named in `names` from the folder of a stage.

    One `ElicitationError` lists the errors in all files.
    """
    faults: list[Fault] = []
    tables = {}
    for name in names:
        read = read_csv_table(Path(folder) / f"{name}.csv", required=COLUMNS[name])
        tables[name] = pd.DataFrame(dict(read.columns), columns=list(COLUMNS[name]), dtype=object)
        for column in NUMERIC_RANGES.keys() & set(COLUMNS[name]):
            low, high, kind = NUMERIC_RANGES[column]
            numbers = number_column(read, column, low=low, high=high)
            tables[name][column] = pd.Series(numbers).fillna(0.0).astype(kind)
        faults += read.faults.listed()
    ElicitationError.raise_for(faults)
    return tables


def cut_points(
    features: Features, voter: str, entries: Iterable[Entry], place: str
) -> dict[str, tuple[float | None, float | None]]:
    """Return a voter's cut points of all features. A binary feature has one cut point: values above 0.5 are high."""
    given: dict[str, tuple[float | None, float | None]] = dict.fromkeys(features.names, (None, 0.5))
    for entry in entries:
        if entry.question.run == voter:
            given |= {cut.feature: (cut.low, cut.high) for cut in parsed_answer(entry, place).features}
    return given


def parsed_answer(entry: Entry, place: str = RECORD) -> Any:
    """Parse a recorded answer by the schema of its prompt, or by `RECORDED_SCHEMAS` if the record was imported.

    Raises
    ------
    ElicitationError : a recorded answer that does not fit its schema or belongs to another question.

    """
    question, elsewhere = entry.question, entry.prompt_digest == UNKNOWN
    where, step = f"{place}, {question}", "restore the record: an answer is never edited"
    try:
        answer = read_answer((RECORDED_SCHEMAS if elsewhere else ANSWER_SCHEMAS)[question.prompt], entry.raw)
    except (KeyError, ValueError) as error:
        raise ElicitationError(Fault(where, str(error), "an answer of its schema", step)) from None
    if elsewhere and isinstance(answer, RecordedUnary) and answer.phenotype != question.values["phenotype"]:
        raise ElicitationError(Fault(where, f"an answer on {answer.phenotype}", "one on the phenotype asked", step))
    return answer


def safe_text(text: str) -> str:
    """Replace NUL and lone surrogates in a text, and put an apostrophe before a text that looks like a formula."""
    text = "".join(REPLACED if c == "\0" or "\ud800" <= c <= "\udfff" else c for c in text)
    return f"'{text}" if text.startswith(FORMULA) else text


def _answered_entries(entries: Sequence[Entry | None]) -> Iterator[Entry]:
    return (entry for entry in entries if entry is not None and entry.outcome == "answered")


def _pair_rows(entry: Entry, place: str) -> Iterator[tuple[Any, ...]]:
    values, answer = entry.question.values, parsed_answer(entry, place)
    if isinstance(answer, AnchorAnswer):
        by_gene = {pair.gene2: pair for pair in answer.pairs}
        parts = [(gene, by_gene[gene]) for gene in values["partners"].split()]
    else:
        parts = [(values["gene2"], answer)]
    for gene2, part in parts:
        if isinstance(part, ConditionalAnswer):
            with_it, without = (
                min(max(p, RAREST_PROBABILITY), 1 - RAREST_PROBABILITY) for p in (part.p_with, part.p_without)
            )
            coupling, confidence = round(math.log(with_it / without), 4), float(part.p_with)
        else:
            coupling, confidence = float(PAIR_SIGN[part.lit_direction]), float(part.lit_prob)
        sign = (coupling > 0) - (coupling < 0)
        shown = (safe_text(part.supporting_text), safe_text(part.evidence_source), _references(part))
        yield (values["phenotype"], values["gene1"], gene2, sign, coupling, confidence, *shown)


def _references(answer: Any) -> str:
    indices = getattr(answer, "reference_indices", None)
    return UNKNOWN if indices is None else " ".join(map(str, indices))


def _printable_symbol(gene: str) -> str:
    """Return a gene symbol as a text for a table. A symbol with unprintable characters is shortened and escaped."""
    shown = gene[:LONGEST_SHOWN].encode("ascii", "backslashreplace").decode() if not gene.isprintable() else gene
    return safe_text(shown)
