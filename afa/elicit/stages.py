"""The stages from questions to a bundle (app. `supp:llm-elicitation`): each takes tables and gives tables by name.

`unary` and `pairwise` ask, or look up what was recorded; `consensus` and `evidence` filter what `unary` named.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Protocol

import pandas as pd

from afa.bundle import Bundle
from afa.elicit.abstracts import Abstract
from afa.elicit.bundle import write_elicited_bundle
from afa.elicit.citations import checked, citation_counts, citation_table, reference_table, retrieved_references
from afa.elicit.consensus import agreement, check_voters, consensus, evidence_filter
from afa.elicit.record import UNKNOWN, Entry, Question
from afa.elicit.recorded import Recorded, imported
from afa.elicit.study import (
    Ends,
    Study,
    cut_questions,
    known_features,
    load_study,
    pair_questions,
    rate_questions,
    unary_questions,
)
from afa.elicit.tables import (
    DROPPED_COLUMNS,
    REFERENCE_COLUMNS,
    answer_of,
    check_answered,
    genes_named,
    outcomes,
    pairs_judged,
    usable_genes,
)
from afa.errors import ElicitationError, Fault
from afa.features import Features
from afa.files import atomic_folder

if TYPE_CHECKING:  # its ranking is slow to import, and most runs retrieve nothing
    from afa.elicit.retrieval import Literature, Retrieved

Tables = Mapping[str, pd.DataFrame]
RATE_COLUMNS = ("direction", "p_high_with", "p_high_without", "p_low_with", "p_low_without", "confidence", "reason")
UNCLEAR = "unclear: no coupling, which equals a zero"


class Source(Protocol):
    """Gives for each question its answer, or the last attempt without one, or None where nothing was ever asked.

    kept : the genes that the pairs of a question are of, with their directions. place : what an error names.
    """

    @property
    def place(self) -> str: ...
    def answers(self, questions: Sequence[Question], kept: pd.DataFrame | None = None) -> list[Entry | None]: ...


def unary_stage(study: Study, source: Source, literature: Literature | None) -> Tables:
    """Ask every voter for the genes of every phenotype.

    Returns `asked` (a row per question), `named` (genes that count, a row per voter and gene), `dropped`, `references`
    (what each gene rests on), and where there are citations `citations`, `citation_counts`, `abstracts`, `searches`.

    Raises
    ------
    ElicitationError : questions without an answer, counted; voters that are one model, which the study does not say.

    """
    questions = unary_questions(study)
    entries = source.answers(questions)
    asked = outcomes(questions, entries)
    check_answered(asked, source.place)
    _check_voters(entries, study)
    if literature is not None:
        literature.check(entries, study)
    retrieved = _retrieved(questions, literature)
    named, dropped = usable_genes(genes_named(entries, source.place), **study.usable)
    shown = {question.values["phenotype"]: own for question, own in zip(questions, retrieved, strict=True)}
    numbers = [len(_abstracts(shown[name])) for name in named["phenotype"]]
    named["references"] = list(map(retrieved_references, named["references"], numbers))
    references = reference_table(entries, map(_abstracts, retrieved), study)
    tables = {"asked": asked, "named": named, "dropped": dropped, "references": references}
    return {**tables, **_citations(entries, retrieved, literature)}


def rates_stage(study: Study, source: Source, out: str | Path) -> pd.DataFrame:
    """Ask every voter, or look up what was recorded, and write `cuts_<voter>.csv` and `unary_<voter>.csv` into `out`.

    Returns
    -------
    DataFrame : what came of every question, a row each, as `afa.elicit.tables.outcomes` has it

    Raises
    ------
    ElicitationError : a study without features; a question without an answer; no direction in any answer.

    """
    features = known_features(study)
    cuts = source.answers(cut_questions(study))
    asked = outcomes(cut_questions(study), cuts)
    check_answered(asked, source.place)
    ends = {voter: _ends(features, voter, cuts, source.place) for voter in study.settings.voters}
    questions = rate_questions(study, ends)
    entries = source.answers(questions)
    found = outcomes(questions, entries)
    check_answered(found, source.place)
    _check_voters(entries, study)
    rows = _rows(entries, source.place)
    if not rows["direction"].any():
        step = "ask other voters, or other words in study.yaml"
        raise ElicitationError(Fault(source.place, "no direction in any answer", "one or more", step))
    with atomic_folder(out) as made:
        for voter in study.settings.voters:
            own = [{"feature": name, "low": low, "high": high} for name, (low, high) in ends[voter].items()]
            _write(pd.DataFrame(own), made / f"cuts_{voter}.csv")
            _write(rows[rows["voter"] == voter].drop(columns="voter"), made / f"unary_{voter}.csv")
    return pd.concat([asked, found], ignore_index=True)


def consensus_stage(study: Study, named: pd.DataFrame, *, min_agree: int) -> Tables:
    """`kept` and `dropped` by the agreement of voters, and `agreement` of all of them and of each two.

    Raises
    ------
    ElicitationError : no gene is kept.

    """
    result = consensus(named, min_agree=min_agree, runs=study.settings.voters)
    _check_kept(result.kept, "the consensus", "ask for more genes, or let fewer voters agree")
    return {"kept": result.kept, "dropped": result.dropped, "agreement": agreement(named, study)}


def evidence_stage(study: Study, named: pd.DataFrame, kept: pd.DataFrame, references: pd.DataFrame) -> Tables:
    """`kept` and `dropped` by what the literature says, and `references` with a verdict each.

    All genes are kept where the study does not filter by references.

    Raises
    ------
    ElicitationError : no gene is kept, or the record has no references to filter by.

    """
    if not study.settings.references:
        nothing = pd.DataFrame(columns=[*REFERENCE_COLUMNS, "verdict"])
        return {"kept": kept, "dropped": pd.DataFrame(columns=DROPPED_COLUMNS), "references": nothing}
    stays, dropped, judged = evidence_filter(kept, named, references, kinds=study.settings.sources)
    _check_kept(stays, "the evidence filter", "retrieve more abstracts, name aliases, or set references: false")
    return {"kept": stays, "dropped": dropped, "references": judged}


def pairwise_stage(study: Study, source: Source, literature: Literature | None, kept: pd.DataFrame) -> Tables:
    """Ask for every pair of kept genes of a phenotype.

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
    probabilities: str | Path | None = None,
) -> tuple[Bundle, pd.DataFrame]:
    """Write the bundle that the tables of the stages `unary`, `consensus`, `evidence` and `pairwise` make.

    probabilities : as of `write_elicited_bundle`. Returns the bundle and the genes left out (phenotype, gene, reason)
    by any of the stages.
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
    bundle = write_elicited_bundle(
        study, tables, destination, min_agree=min_agree, name=name, version=version, probabilities=probabilities
    )
    return bundle, dropped


def all_stages(study: Study, source: Source, literature: Literature | None, *, min_agree: int) -> dict[str, Tables]:
    """The tables of every stage but the bundle, one after the other."""
    unary = unary_stage(study, source, literature)
    agreed = consensus_stage(study, unary["named"], min_agree=min_agree)
    supported = evidence_stage(study, unary["named"], agreed["kept"], unary["references"])
    pairwise = pairwise_stage(study, source, literature, supported["kept"])
    return {"unary": unary, "consensus": agreed, "evidence": supported, "pairwise": pairwise}


def build_recorded_bundle(
    folder: str | Path,
    destination: str | Path,
    *,
    min_agree: int,
    name: str | None = None,
    version: str = "1",
    probabilities: str | Path | None = None,
) -> tuple[Bundle, pd.DataFrame]:
    """Write the bundle that a consensus of `min_agree` runs makes of a record; the same record gives the same bytes.

    folder : with `study.yaml`, `phenotypes.csv` and `raw/`. The bundle's name is `recorded-2of3` or the like unless
    given. probabilities : a folder of voters who say how often, or None. Returns the bundle and the table of dropped
    genes (phenotype, gene, reason). An `ElicitationError` lists what is wrong with the files, or counts the pairs of
    kept genes that the record does not hold.
    """
    study = load_study(folder)
    stages = all_stages(study, Recorded(imported(folder), place=str(folder)), None, min_agree=min_agree)
    return bundle_stage(
        study, stages, destination, min_agree=min_agree, name=name, version=version, probabilities=probabilities
    )


def _check_kept(kept: pd.DataFrame, where: str, step: str) -> None:
    if kept.empty:
        raise ElicitationError(Fault(where, "no gene left of any phenotype", "one or more", step))


def _retrieved(questions: Sequence[Question], literature: Literature | None) -> list[Retrieved | None]:
    """What was retrieved for each question; None where the study asks without retrieval."""
    return [None if literature is None else literature.retrieved(question) for question in questions]


def _abstracts(retrieved: Retrieved | None) -> Sequence[Abstract]:
    return () if retrieved is None else retrieved.abstracts


def _citations(
    entries: Sequence[Entry | None], retrieved: Sequence[Retrieved | None], literature: Literature | None
) -> Tables:
    """Tables of what answers cite; none for a record made elsewhere, which has no citations by number."""
    judged = [
        part
        for entry, own in zip(entries, retrieved, strict=True)
        if entry is not None and entry.prompt_digest != UNKNOWN
        for part in checked(entry.question, answer_of(entry), _abstracts(own))
    ]
    if not judged:
        return {}
    tables = {"citations": citation_table(judged), "citation_counts": citation_counts(judged)}
    return tables if literature is None else {**tables, **literature.tables(filter(None, retrieved))}


def _check_voters(entries: Sequence[Entry | None], study: Study) -> None:
    given = {entry.question.run: f"{entry.model} at {entry.endpoint}" for entry in entries if entry is not None}
    check_voters(given, study)


def _joined(tables: Sequence[pd.DataFrame]) -> pd.DataFrame:
    """Tables below one another; empty ones, whose columns have no type, are passed over."""
    filled = [table for table in tables if len(table)]
    return pd.concat(filled, ignore_index=True) if filled else tables[0]


def _ends(features: Features, voter: str, entries: Sequence[Entry | None], place: str) -> Ends:
    """A voter's cut points of all features; a binary one is high where it is there."""
    given: Ends = dict.fromkeys(features.names, (None, 0.5))
    for entry in entries:
        if entry is not None and entry.question.run == voter:
            given |= {cut.feature: (cut.low, cut.high) for cut in answer_of(entry, place).features}
    return given


def _rows(entries: Sequence[Entry | None], place: str) -> pd.DataFrame:
    rows = [
        {"voter": entry.question.run, "entity": entry.question.values["phenotype"], **rate.model_dump()}
        for entry in entries
        if entry is not None
        for rate in answer_of(entry, place).features
    ]
    return pd.DataFrame(rows, columns=["voter", "entity", "feature", *RATE_COLUMNS])


def _write(table: pd.DataFrame, path: Path) -> None:
    table.to_csv(path, index=False, lineterminator="\n", float_format="%.12g")
