"""Run the stages of an elicitation, from questions to a bundle (appendix `supp:llm-elicitation`).

Each stage returns a dictionary of tables for later stages. The stages `unary` and `pairwise` ask questions, or look up
recorded answers. The stages `consensus` and `evidence` filter the genes that `unary` found. The last stage writes the
bundle: the kept genes, the couplings between kept genes, and the provenance.
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import pandas as pd

from afa.elicit.abstracts import Abstract
from afa.elicit.answers import cut_questions, known_features, pair_questions, rate_questions, unary_questions
from afa.elicit.consensus import (
    SAME_MODEL,
    agreement,
    among,
    check_voters,
    consensus,
    evidence_filter,
    pooled_shares,
    read_voters,
)
from afa.elicit.record import UNKNOWN, Entry, Question, Record, Recorded
from afa.elicit.tables import (
    DROPPED_COLUMNS,
    PAIR_SIGN,
    REFERENCE_COLUMNS,
    check_answered,
    cut_points,
    genes_named,
    outcome_table,
    pairs_judged,
    parsed_answer,
    reference_table,
    retrieved_references,
    usable_genes,
)
from afa.errors import ElicitationError, Fault
from afa.io.files import atomic_folder, check_place, write_csv
from afa.model.bundle import Bundle, load_bundle, write_bundle
from afa.model.study import RECORD_FOLDER, PairMode, Study, load_study

if TYPE_CHECKING:
    from afa.elicit.live import Live
    from afa.elicit.retrieval import Literature

    Source = Live | Recorded


Tables = Mapping[str, pd.DataFrame]
RATE_COLUMNS = ("direction", "p_high_with", "p_high_without", "p_low_with", "p_low_without", "confidence", "reason")
BUNDLE_COLUMNS = {"phenotype": "entity", "gene": "feature", "gene_a": "feature_a", "gene_b": "feature_b"}
BUNDLE_COLUMNS |= {"lit_prob": "confidence", "text": "evidence"}
"""Names in a bundle of the columns of a stage."""
UNCLEAR_NOTE = "unclear: no coupling, which equals a zero"
SIGN_NOTE = "same +1, opposite -1; unclear pairs are left out, which equals a zero"
COUPLING_NOTES: Mapping[PairMode, str] = {
    "each": SIGN_NOTE,
    "by_anchor": f"{SIGN_NOTE}; all pairs of an anchor gene were judged in one answer",
    "conditional": "ln of P(gene_b shifts as gene_a does) with the phenotype over that without it",
}


def unary_stage(study: Study, source: Source, literature: Literature | None) -> Tables:
    """Ask every voter for the genes that shift under each phenotype.

    Returns
    -------
    tables : `asked` (one row for each question), `named` (genes that count, one row for each voter and gene),
        `dropped`, `references` (the citations of each gene), and `abstracts` and `searches` of a study that retrieves

    Raises
    ------
    ElicitationError : questions without an answer, counted; voters that are the same model without `same_model`.

    """
    questions = unary_questions(study)
    entries, asked = _collect_answers(source, questions)
    check_voters({entry.question.run: f"{entry.model} at {entry.endpoint}" for entry in entries}, study)
    abstracts, retrieved = _retrieve_abstracts(literature, questions, entries, study)
    named, dropped = usable_genes(genes_named(entries, source.place), **study.usable)
    shown = {question.values["phenotype"]: len(own) for question, own in zip(questions, abstracts, strict=True)}
    numbers = named["phenotype"].map(shown)
    named["references"] = list(map(retrieved_references, named["references"], numbers))
    references = reference_table(entries, abstracts, study)
    return {"asked": asked, "named": named, "dropped": dropped, "references": references, **retrieved}


def rates_stage(study: Study, source: Source, out: str | Path) -> pd.DataFrame:
    """Ask every voter for cut points and probabilities, and write the answers into the folder `out`.

    For each voter, the files `cuts_<voter>.csv` and `unary_<voter>.csv` are written.

    Returns
    -------
    DataFrame : the outcome of every question, one row each, as in `afa.elicit.tables.outcome_table`

    Raises
    ------
    ElicitationError : a study without features; a question without an answer; no direction in any answer.

    """
    ours = [f"{kind}_{voter}.csv" for kind in ("cuts", "unary") for voter in study.settings.voters]
    check_place(out, ours)
    features = known_features(study)
    cuts, asked = _collect_answers(source, cut_questions(study))
    ends = {voter: cut_points(features, voter, cuts, source.place) for voter in study.settings.voters}
    entries, found = _collect_answers(source, rate_questions(study, ends))
    check_voters({entry.question.run: f"{entry.model} at {entry.endpoint}" for entry in entries}, study)
    given = [
        {"voter": entry.question.run, "entity": entry.question.values["phenotype"], **rate.model_dump()}
        for entry in entries
        for rate in parsed_answer(entry, source.place).features
    ]
    rows = pd.DataFrame(given, columns=["voter", "entity", "feature", *RATE_COLUMNS])
    if not rows["direction"].any():
        step = "ask other voters, or other words in study.yaml"
        raise ElicitationError(Fault(source.place, "no direction in any answer", "one or more", step))
    with atomic_folder(out, ours) as made:
        for voter in study.settings.voters:
            own = [{"feature": name, "low": low, "high": high} for name, (low, high) in ends[voter].items()]
            write_csv(pd.DataFrame(own), made / f"cuts_{voter}.csv", float_format="%.12g")
            said = rows[rows["voter"] == voter].drop(columns="voter")
            write_csv(said, made / f"unary_{voter}.csv", float_format="%.12g")
    return pd.concat([asked, found], ignore_index=True)


def consensus_stage(study: Study, named: pd.DataFrame, *, min_agree: int) -> Tables:
    """Select genes by the agreement of voters, and return the tables `kept`, `dropped` and `agreement`.

    The table `agreement` has rows for all voters together and for each pair of voters.

    Raises
    ------
    ElicitationError : no gene is kept.

    """
    kept, dropped = consensus(named, min_agree=min_agree, runs=study.settings.voters)
    _check_kept(kept, "the consensus", "ask for more genes, or let fewer voters agree")
    return {"kept": kept, "dropped": dropped, "agreement": agreement(named, study)}


def evidence_stage(study: Study, named: pd.DataFrame, kept: pd.DataFrame, references: pd.DataFrame) -> Tables:
    """Select genes by the cited literature, and return the tables `kept`, `dropped` and `references`.

    In the table `references`, the column `verdict` says whether a reference supports its gene, or why it does not. If
    the study's setting `references` is false, all genes are kept.

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
    """Ask, for each phenotype and each pair of its kept genes, whether the two genes shift together.

    Returns
    -------
    tables : `asked`, `pairs` (one row for each pair), `dropped` (pairs without a coupling), and `abstracts` and
        `searches` of a study that retrieves

    Raises
    ------
    ElicitationError : questions without an answer, counted.

    """
    questions = pair_questions(study, kept)
    entries, asked = _collect_answers(source, questions)
    _, retrieved = _retrieve_abstracts(literature, questions, entries, study)
    pairs = pairs_judged(entries, source.place)
    dropped = pairs.loc[pairs["sign"] == 0, ["phenotype", "gene_a", "gene_b"]].assign(reason=UNCLEAR_NOTE)
    return {"asked": asked, "pairs": pairs, "dropped": dropped, **retrieved}


def bundle_stage(
    study: Study,
    stages: Mapping[str, Tables],
    destination: str | Path,
    *,
    min_agree: int,
    probabilities: str | Path | None = None,
) -> tuple[Bundle, pd.DataFrame]:
    """Write the bundle that results from the stages `unary`, `consensus`, `evidence` and `pairwise`.

    The same answers give the same bundle, byte for byte. Unary potentials are +1 and -1. Pairwise potentials are +1 and
    -1, or log ratios if the study asks for conditional probabilities. An `unclear` pair has no potential, which is
    equivalent to a potential of 0. The provenance of the bundle states the number of unclear pairs.

    Parameters
    ----------
    probabilities : folder with the probabilities of voters (`afa.elicit.consensus.read_voters`), written beside the
        potentials for the encoding by controls

    Returns
    -------
    Bundle : the bundle
    DataFrame : the genes dropped by any stage: phenotype, gene, reason

    """
    voters, kept, pairs = len(study.settings.voters), stages["evidence"]["kept"], stages["pairwise"]["pairs"]
    asked = _concatenate_tables([stages["unary"]["asked"], stages["pairwise"]["asked"]])
    dropped = _concatenate_tables([stages[stage]["dropped"] for stage in ("unary", "consensus", "evidence")])
    clear = pairs[pairs["sign"] != 0].rename(columns=BUNDLE_COLUMNS)
    mechanisms = _mechanisms(stages["unary"]["named"], kept, voters)
    unary = kept.rename(columns=BUNDLE_COLUMNS).assign(confidence=kept["confidence"].round(4), evidence=mechanisms)
    counts = {
        "genes_kept": len(kept),
        "genes_dropped": len(dropped),
        "pairs_asked_of_survivors": len(pairs),
        **{f"pairs_{word}": int((pairs["sign"] == sign).sum()) for word, sign in PAIR_SIGN.items()},
    }
    provenance = _provenance(study, asked, counts, min_agree)
    if probabilities is not None:
        said = read_voters(probabilities, unary)
        pairs_said = pd.MultiIndex.from_frame(unary[["entity", "feature"]])
        shares = pooled_shares(said, pairs_said, np.ones(3, dtype=bool)).round(6)
        unary = unary.join(shares.reset_index(drop=True))
        provenance["probabilities"] = f"of {said['voter'].nunique()} voters, pooled by the mean of log-probabilities"
    write_bundle(
        destination,
        name=f"{study.settings.name}-{min_agree}of{voters}{'' if probabilities is None else '-rates'}",
        version="1",
        entities=study.names,
        features=sorted(kept["gene"].unique()),
        unary=unary,
        pairwise=clear.assign(potential=clear["coupling" if study.settings.pairs == "conditional" else "sign"]),
        provenance=provenance,
        encoding=None if probabilities is None else "controls",
    )
    return load_bundle(destination), dropped


def all_stages(study: Study, source: Source, literature: Literature | None, *, min_agree: int) -> dict[str, Tables]:
    """Run the stages `unary`, `consensus`, `evidence` and `pairwise`, and return the tables of each stage."""
    unary = unary_stage(study, source, literature)
    agreed = consensus_stage(study, unary["named"], min_agree=min_agree)
    supported = evidence_stage(study, unary["named"], agreed["kept"], unary["references"])
    pairwise = pairwise_stage(study, source, literature, supported["kept"])
    return {"unary": unary, "consensus": agreed, "evidence": supported, "pairwise": pairwise}


def of_one_voter(study: Study, stages: Mapping[str, Tables], voter: str) -> tuple[Study, dict[str, Tables]]:
    """Return a study and its stages' tables, reduced to the answers of one voter (a run of a language model).

    The function `bundle_stage` accepts the returned study and tables as its first arguments. All genes that this
    voter names are kept, except genes that the evidence filter drops. If too few voters agree on a gene, the gene has
    no coupling, because no question on its pairs was asked. A coupling between two genes is kept if both genes are
    kept.

    Parameters
    ----------
    stages : `unary` (with `references`) and `pairwise`, of all voters

    Raises
    ------
    ElicitationError : the voter names no gene.

    """
    alone = replace(study, settings=study.settings.model_copy(update={"voters": (voter,)}))
    unary = {name: table[table["run"] == voter] if "run" in table else table for name, table in stages["unary"].items()}
    agreed = consensus_stage(alone, unary["named"], min_agree=1)
    supported = evidence_stage(alone, unary["named"], agreed["kept"], unary["references"])
    kept, pairs = supported["kept"], stages["pairwise"]["pairs"]
    both = [among(pairs.rename(columns={gene: "gene"}), kept) for gene in ("gene_a", "gene_b")]
    pairwise = {**stages["pairwise"], "pairs": pairs[both[0] & both[1]].reset_index(drop=True)}
    return alone, {"unary": unary, "consensus": agreed, "evidence": supported, "pairwise": pairwise}


def build_recorded_bundle(
    folder: str | Path, destination: str | Path, *, min_agree: int, probabilities: str | Path | None = None
) -> tuple[Bundle, pd.DataFrame]:
    """Write the bundle of a study from its recorded answers, with the genes on which at least `min_agree` runs agree.

    The same recorded answers give the same bundle, byte for byte. The name of the bundle contains `min_agree` and the
    number of runs, as in `recorded-2of3` for 2 of 3 runs. The second result is a table of dropped genes with the
    columns `phenotype`, `gene` and `reason`.

    Parameters
    ----------
    folder : folder of the study, with `record/`
    probabilities : as in `bundle_stage`

    Raises
    ------
    ElicitationError : all faults of the files, or the number of pairs of kept genes that the record lacks.

    """
    study, record = load_study(folder), Path(folder) / RECORD_FOLDER
    literature = literature_of(study, Path(folder), record, online=False)
    stages = all_stages(study, recorded_answers(study, record), literature, min_agree=min_agree)
    return bundle_stage(study, stages, destination, min_agree=min_agree, probabilities=probabilities)


def recorded_answers(study: Study, record: Path) -> Recorded:
    """Return an object (`Recorded`) that looks up the answers recorded in a folder.

    A voter is a run of a language model. If the study names the model of a voter, recorded answers of other models are
    ignored for this voter.
    """
    return Recorded(Record(record).entries(), study.settings.known_models, str(record))


def literature_of(study: Study, folder: Path, record: Path, *, online: bool) -> Literature | None:
    """Return the `Literature` of the study in `folder`, or None if the study retrieves no abstracts."""
    if not study.settings.abstracts:
        return None
    from afa.elicit.retrieval import literature  # noqa: PLC0415 (only retrieval needs the package bm25s)

    return literature(study, folder, record, online=online)


def _check_kept(kept: pd.DataFrame, where: str, step: str) -> None:
    if kept.empty:
        raise ElicitationError(Fault(where, "no gene left of any phenotype", "one or more", step))


def _collect_answers(source: Source, questions: Sequence[Question]) -> tuple[list[Entry], pd.DataFrame]:
    """Return the answers to the questions, and a table with the outcome of each question.

    If answers are missing, raise an `ElicitationError` that states how many.
    """
    entries = source.answers(questions)
    asked = outcome_table(questions, entries)
    check_answered(asked, source.place)
    return [entry for entry in entries if entry is not None], asked


def _retrieve_abstracts(
    literature: Literature | None, questions: Sequence[Question], entries: Sequence[Entry], study: Study
) -> tuple[list[Sequence[Abstract]], Tables]:
    """Return the abstracts in the prompt of each question, and the tables `abstracts` and `searches`.

    If `literature` is None, return no abstracts and no tables.
    """
    if literature is None:
        return [()] * len(questions), {}
    literature.check(questions, entries, study)
    retrieved = [literature.retrieved(question) for question in questions]
    return [each.abstracts for each in retrieved], literature.tables(retrieved)


def _mechanisms(named: pd.DataFrame, kept: pd.DataFrame, voters: int) -> list[str]:
    """Return a text for each kept gene: how many runs name it, and the mechanism that the first of these runs gives."""
    first = named.drop_duplicates(["phenotype", "gene"])
    merged = kept.merge(first, on=["phenotype", "gene"], how="left", validate="one_to_one")
    return [f"named by {row.n_runs} of {voters} runs; {row.run}: {row.mechanism}" for row in merged.itertuples()]


def _provenance(study: Study, asked: pd.DataFrame, counts: Mapping[str, int], min_agree: int) -> dict[str, Any]:
    """Return the provenance of a bundle.

    Four entries (model, prompts, date and evidence) are derived from the answers. An entry under `provenance` in
    study.yaml replaces a derived entry of the same name.
    """
    settings = study.settings
    days = sorted({time[:10] for time in asked["time"] if time != UNKNOWN})
    known = {
        "model": ", ".join(sorted(asked["model"].unique())),
        "prompts": ", ".join(sorted((asked["prompt"] + " " + asked["prompt_digest"].str[:12]).unique())),
        "date": " to ".join(dict.fromkeys([days[0], days[-1]])) if days else UNKNOWN,
        "evidence": f"{settings.abstracts} abstracts retrieved per question" if settings.abstracts else "no retrieval",
    }
    caveats = [*settings.provenance.get("caveats", ()), *([SAME_MODEL] if settings.same_model else ())]
    return {
        **known,
        **{key: value for key, value in settings.provenance.items() if key != "caveats"},
        "consensus": f"a gene is kept for a phenotype where at least {min_agree} of {len(settings.voters)} runs name it"
        " and all runs that name it agree on its direction; confidence is the mean over those runs",
        "references": "a gene needs a supported reference" if settings.references else "no filter by references",
        "couplings": COUPLING_NOTES[settings.pairs],
        "counts": dict(counts),
        **({"caveats": caveats} if caveats else {}),
        "record_sha256": hashlib.sha256("\n".join(sorted(asked["answer"])).encode()).hexdigest(),
    }


def _concatenate_tables(tables: Sequence[pd.DataFrame]) -> pd.DataFrame:
    """Return the concatenated tables. Empty tables are skipped, because their columns have no type."""
    filled = [table for table in tables if len(table)]
    return pd.concat(filled, ignore_index=True) if filled else tables[0]
