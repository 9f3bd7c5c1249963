"""The stages from questions to a bundle (app. `supp:llm-elicitation`): each takes tables and gives tables by name.

`unary` and `pairwise` ask, or look up what was recorded; `consensus` and `evidence` filter what `unary` named.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import pandas as pd

from afa.bundle import Bundle
from afa.elicit.answered import answer_of, check_answered, genes_named, outcomes, pairs_judged
from afa.elicit.citations import checked, citation_counts, citation_table, retrieved_references
from afa.elicit.consensus import consensus
from afa.elicit.elicited_bundle import write_elicited_bundle
from afa.elicit.evidence import evidence_filter
from afa.elicit.questions import pair_questions, unary_questions
from afa.elicit.source import Source
from afa.elicit.store import UNKNOWN, Entry, Question
from afa.elicit.study import Study
from afa.elicit.usable import usable_genes

if TYPE_CHECKING:  # ranking is slow to import, and most runs retrieve nothing
    from afa.elicit.literature import Literature
    from afa.elicit.retrieval import Retrieved

Tables = Mapping[str, pd.DataFrame]
UNCLEAR = "unclear: no coupling, which equals a zero"


def unary_stage(study: Study, source: Source, literature: Literature | None) -> Tables:
    """Ask every voter for the genes of every phenotype.

    Returns `asked` (a row per question), `named` (genes that count, a row per voter and gene), `dropped`, and where
    there are citations `citations`, `citation_counts`, `abstracts` and `searches`.

    Raises
    ------
    ElicitationError : questions without an answer, counted.

    """
    questions = unary_questions(study)
    entries = source.answers(questions)
    asked = outcomes(questions, entries)
    check_answered(asked, source.place)
    if literature is not None:
        literature.check(entries, study)
    retrieved = _retrieved(questions, literature)
    named, dropped = usable_genes(genes_named(entries, source.place), most_genes=study.settings.most_genes)
    shown = {question.values["phenotype"]: own for question, own in zip(questions, retrieved, strict=True)}
    numbers = [len(own.abstracts) if (own := shown[name]) else 0 for name in named["phenotype"]]
    named["references"] = list(map(retrieved_references, named["references"], numbers))
    return {"asked": asked, "named": named, "dropped": dropped, **_citations(entries, retrieved, literature)}


def consensus_stage(study: Study, named: pd.DataFrame, *, min_agree: int) -> Tables:
    """`kept` and `dropped` by the agreement of voters."""
    result = consensus(named, min_agree=min_agree, runs=study.settings.voters)
    return {"kept": result.kept, "dropped": result.dropped}


def evidence_stage(study: Study, named: pd.DataFrame, kept: pd.DataFrame) -> Tables:
    """`kept` and `dropped` by supported references; all are kept where the study does not filter by them."""
    stays, dropped = evidence_filter(kept, named, references=study.settings.references)
    return {"kept": stays, "dropped": dropped}


def pairwise_stage(study: Study, source: Source, literature: Literature | None, kept: pd.DataFrame) -> Tables:
    """Ask for every pair of surviving genes of a phenotype.

    Returns `asked`, `pairs` (a row per pair), `dropped` (the pairs that give no coupling), and tables of citations as
    `unary_stage` does.

    Raises
    ------
    ElicitationError : questions without an answer, counted.

    """
    questions = pair_questions(study, kept)
    entries = source.answers(questions, kept)
    asked = outcomes(questions, entries)
    check_answered(asked, source.place)
    if literature is not None:
        literature.check(entries, study, kept)
    retrieved = _retrieved(questions, literature)
    pairs = pairs_judged(entries, source.place)
    dropped = pairs.loc[pairs["sign"] == 0, ["phenotype", "gene_a", "gene_b"]].assign(reason=UNCLEAR)
    return {"asked": asked, "pairs": pairs, "dropped": dropped, **_citations(entries, retrieved, literature)}


def bundle_stage(
    study: Study,
    stages: Mapping[str, Tables],
    destination: str | Path,
    *,
    min_agree: int,
    name: str | None = None,
    version: str = "1",
) -> tuple[Bundle, pd.DataFrame]:
    """Write the bundle that the tables of the stages `unary`, `consensus`, `evidence` and `pairwise` make.

    Returns the bundle and the genes left out (phenotype, gene, reason) by any of the stages.
    """
    left_out = [stages[stage]["dropped"] for stage in ("unary", "consensus", "evidence")]
    dropped = _joined(left_out)
    tables = {
        "asked": _joined([stages["unary"]["asked"], stages["pairwise"]["asked"]]),
        "named": stages["unary"]["named"],
        "kept": stages["evidence"]["kept"],
        "pairs": stages["pairwise"]["pairs"],
        "dropped": dropped,
    }
    bundle = write_elicited_bundle(study, tables, destination, min_agree=min_agree, name=name, version=version)
    return bundle, dropped


def all_stages(study: Study, source: Source, literature: Literature | None, *, min_agree: int) -> dict[str, Tables]:
    """The tables of every stage but the bundle, one after the other."""
    unary = unary_stage(study, source, literature)
    agreed = consensus_stage(study, unary["named"], min_agree=min_agree)
    supported = evidence_stage(study, unary["named"], agreed["kept"])
    pairwise = pairwise_stage(study, source, literature, supported["kept"])
    return {"unary": unary, "consensus": agreed, "evidence": supported, "pairwise": pairwise}


def _retrieved(questions: Sequence[Question], literature: Literature | None) -> list[Retrieved | None]:
    """What was retrieved for each question; None where the study asks without retrieval."""
    return [None if literature is None else literature.retrieved(question) for question in questions]


def _citations(
    entries: Sequence[Entry | None], retrieved: Sequence[Retrieved | None], literature: Literature | None
) -> Tables:
    """Tables of what answers cite; none for a record made elsewhere, which has no citations by number."""
    judged = [
        part
        for entry, own in zip(entries, retrieved, strict=True)
        if entry is not None and entry.prompt_digest != UNKNOWN
        for part in checked(entry.question, answer_of(entry), own.abstracts if own else ())
    ]
    if not judged:
        return {}
    tables = {"citations": citation_table(judged), "citation_counts": citation_counts(judged)}
    return tables if literature is None else {**tables, **literature.tables(filter(None, retrieved))}


def _joined(tables: Sequence[pd.DataFrame]) -> pd.DataFrame:
    """Tables below one another; empty ones, whose columns have no type, are passed over."""
    filled = [table for table in tables if len(table)]
    return pd.concat(filled, ignore_index=True) if filled else tables[0]
