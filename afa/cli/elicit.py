"""Define `afa elicit`, whose commands build a bundle from recorded or live answers of language models."""

from __future__ import annotations

import os
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from afa.cli import options
from afa.errors import ElicitationError, Fault
from afa.io.files import write_csv

if TYPE_CHECKING:
    from afa.elicit.retrieval import Literature
    from afa.elicit.stages import Source
    from afa.model.study import Study

app = typer.Typer(help="Build a bundle from answers of language models, recorded or live.", no_args_is_help=True)

StudyFolder = Annotated[Path, typer.Argument(help="folder with study.yaml and phenotypes.csv")]
RecordFolder = Annotated[
    Path | None, typer.Option("--record", help="folder of recorded answers; by default STUDY/record")
]
UnaryTables = Annotated[Path, typer.Option("--unary", help="folder written by `afa elicit unary`")]
ConsensusTables = Annotated[Path, typer.Option("--consensus", help="folder written by `afa elicit consensus`")]
EvidenceTables = Annotated[Path, typer.Option("--evidence", help="folder written by `afa elicit evidence`")]
PairTables = Annotated[Path, typer.Option("--pairwise", help="folder written by `afa elicit pairwise`")]


@app.command("unary")
def elicit_unary(study: StudyFolder, out: options.Out, asks: options.Asks, record: RecordFolder = None) -> None:
    """Ask each voter (an independent run of a language model) for the genes of each phenotype.

    The command writes the tables `asked`, `named`, `dropped` and `references`.
    """
    from afa.elicit.stages import unary_stage
    from afa.elicit.tables import write_stage

    tables = unary_stage(*_open_study(study, record, asks))
    write_stage(out, tables)
    counts = f"{len(tables['named']):,} genes named, {len(tables['dropped']):,} of no use"
    cited = tables["references"].query("number != ''")
    if len(cited):
        counts += f"; {(cited['id'] == '').sum():,} of {len(cited):,} citations were not retrieved"
    typer.echo(f"{len(tables['asked']):,} questions, {counts}")


@app.command("rates")
def elicit_rates(
    study: Annotated[Path, typer.Argument(help="folder with study.yaml, entities.csv and dictionary.csv")],
    out: options.Out,
    asks: options.Asks,
    record: RecordFolder = None,
) -> None:
    """Ask each voter (an independent run of a language model) for cut points and probabilities of features.

    The command writes the folder `elicited`, which `afa field import` reads.
    """
    from afa.elicit.stages import rates_stage

    settings, source, _ = _open_study(study, record, asks)
    asked = rates_stage(settings, source, out)
    typer.echo(f"{len(asked):,} questions to {len(settings.settings.voters)} voters, into {out}")


@app.command("consensus")
def elicit_consensus(study: StudyFolder, unary: UnaryTables, out: options.Out, min_agree: options.MinAgree = 2) -> None:
    """Keep a gene if at least --min-agree model runs name it and all of them state the same direction of shift.

    The command writes the tables `kept`, `dropped` and `agreement`.
    """
    from afa.elicit.stages import consensus_stage
    from afa.elicit.tables import read_stage, write_stage
    from afa.model.study import load_study

    tables = consensus_stage(load_study(study), read_stage(unary, "named")["named"], min_agree=min_agree)
    write_stage(out, tables)
    agreed = tables["agreement"][:1]
    said = "".join(f"; voters agree on {row.share:.0%}, kappa {row.kappa:.2f}" for row in agreed.itertuples())
    typer.echo(f"{len(tables['kept']):,} genes kept, {len(tables['dropped']):,} dropped{said}")


@app.command("evidence")
def elicit_evidence(study: StudyFolder, unary: UnaryTables, consensus: ConsensusTables, out: options.Out) -> None:
    """If the study filters by references, keep only the genes that a retrieved abstract names.

    The command writes the tables `kept`, `dropped` and `references`.
    """
    from afa.elicit.stages import evidence_stage
    from afa.elicit.tables import read_stage, write_stage
    from afa.model.study import load_study

    settings = load_study(study)
    named, kept = read_stage(unary, "named", "references"), read_stage(consensus, "kept")["kept"]
    tables = evidence_stage(settings, named["named"], kept, named["references"])
    write_stage(out, tables)
    off = "" if settings.settings.references else "; the study does not filter by references"
    typer.echo(f"{len(tables['kept']):,} genes kept, {len(tables['dropped']):,} dropped{off}")


@app.command("pairwise")
def elicit_pairwise(
    study: StudyFolder, evidence: EvidenceTables, out: options.Out, asks: options.Asks, record: RecordFolder = None
) -> None:
    """For each pair of genes selected for the same phenotype, ask a language model whether the genes change together.

    The command writes the tables `asked`, `pairs` and `dropped`.
    """
    from afa.elicit.stages import pairwise_stage
    from afa.elicit.tables import read_stage, write_stage

    kept = read_stage(evidence, "kept")["kept"]
    tables = pairwise_stage(*_open_study(study, record, asks), kept)
    write_stage(out, tables)
    typer.echo(f"{len(tables['asked']):,} questions, {len(tables['dropped']):,} pairs unclear")


@app.command("bundle")
def elicit_bundle(
    study: StudyFolder,
    unary: UnaryTables,
    consensus: ConsensusTables,
    evidence: EvidenceTables,
    pairwise: PairTables,
    out: options.Out,
    min_agree: options.MinAgree = 2,
    dropped: options.DroppedFile = None,
) -> None:
    """Build a bundle from the tables of the stages unary, consensus, evidence and pairwise."""
    from afa.elicit.stages import bundle_stage
    from afa.elicit.tables import read_stage
    from afa.model.study import load_study

    stages = {
        "unary": read_stage(unary, "asked", "named", "dropped"),
        "consensus": read_stage(consensus, "dropped"),
        "evidence": read_stage(evidence, "kept", "dropped"),
        "pairwise": read_stage(pairwise, "asked", "pairs"),
    }
    bundle, left_out = bundle_stage(load_study(study), stages, out, min_agree=min_agree)
    if dropped:
        write_csv(left_out, dropped)
    typer.echo(f"{bundle.name}: {len(bundle.entities)} entities, {len(bundle.features)} features into {out}")


@app.command("estimate")
def elicit_estimate(
    study: Annotated[Path, typer.Argument(help="folder with study.yaml, and phenotypes.csv or entities.csv")],
    record: RecordFolder = None,
    min_agree: options.MinAgree = 2,
    prompt_price: options.PromptPrice = 0.0,
    answer_price: options.AnswerPrice = 0.0,
    json: options.AsJson = False,
) -> None:
    """Print an upper bound on the model calls, tokens and cost of a live run. No model is called."""
    from afa.elicit.budget import Prices
    from afa.elicit.live import Live, Terms
    from afa.elicit.prompts import no_abstracts
    from afa.elicit.stages import literature_of
    from afa.model.study import MODEL, RECORD_FOLDER, Endpoint, load_study

    settings, answers = load_study(study), record or study / RECORD_FOLDER
    literature = literature_of(settings, study, answers, online=False)
    abstracts = no_abstracts if literature is None else literature.expected
    terms = Terms(prices=Prices(prompt_price, answer_price), unlimited=True)
    # The estimate calls no model, so the endpoint and the key are placeholders.
    nowhere = Endpoint("http://localhost/v1", os.environ.get(MODEL, "").strip() or "a model to be named", "no-key")
    table = Live(settings, answers, terms, abstracts, nowhere).outlook(min_agree=min_agree)
    typer.echo(options.as_json(table) if json else table.to_string(index=False))


@app.command("account")
def elicit_account(
    record: options.RecordArgument,
    prompt_price: options.PromptPrice = 0.0,
    answer_price: options.AnswerPrice = 0.0,
    json: options.AsJson = False,
) -> None:
    """Print the model calls, tokens and cost of recorded answers, grouped by prompt, voter, model and outcome."""
    from afa.elicit.budget import Prices, account_table
    from afa.elicit.record import Record

    if not record.is_dir():
        raise ElicitationError(Fault(str(record), "no such folder", "a record", "check the path"))
    table = account_table(Record(record), Prices(prompt_price, answer_price))
    shown = table.to_string(index=False) if len(table) else f"no answers in {record}"
    typer.echo(options.as_json(table) if json else shown)


@app.command("merge")
def elicit_merge(
    records: Annotated[list[Path], typer.Argument(help="folders of answers")],
    out: options.Out,
    model: Annotated[str, typer.Option(help="merge only answers given by this model")] = "",
    prompt: Annotated[str, typer.Option(help="merge only answers to prompts whose digest begins with this text")] = "",
) -> None:
    """Merge several folders of recorded answers, given in any order, into one folder."""
    from afa.elicit.record import merge

    typer.echo(f"{merge(records, out, model=model, prompt=prompt):,} attempts into {out}")


def _open_study(folder: Path, record: Path | None, asks: options.Asks) -> tuple[Study, Source, Literature | None]:
    """Return three results: the study, its source of answers (live or recorded), and its literature or None."""
    from afa.elicit.live import Live
    from afa.elicit.prompts import no_abstracts
    from afa.elicit.stages import literature_of, recorded_answers
    from afa.model.study import RECORD_FOLDER, load_study

    study, answers = load_study(folder), record or folder / RECORD_FOLDER
    literature = literature_of(study, folder, answers, online=asks.live)
    if not asks.live:
        return study, recorded_answers(study, answers), literature
    abstracts = no_abstracts if literature is None else literature.shown
    return study, Live(study, answers, asks.terms(), abstracts, say=typer.echo), literature
