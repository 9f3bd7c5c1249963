"""`afa experiment baselines` and `afa summary baselines`: language models that plan by themselves."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from afa.cli.options import (
    AnswerPrice,
    Asks,
    BundleFolder,
    CohortFolder,
    Confidence,
    Out,
    PromptPrice,
    Resamples,
    Rows,
    Solves,
    with_groups,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from afa.baselines import Abstracts, Briefing, Protocol, Trial
    from afa.baselines.asked import Source
    from afa.elicit.live import Terms
    from afa.elicit.study import Study

    Trials = Sequence[tuple[Trial, Briefing]]
    Opened = tuple[Source, Callable[[Trials], None], Callable[[], None]]

experiments = typer.Typer()
summaries = typer.Typer()


@experiments.command("baselines")
@with_groups
def experiment_baselines(
    bundle: BundleFolder,
    cohort: CohortFolder,
    study: Annotated[Path, typer.Option(help="folder with study.yaml: the disease, and how models are asked")],
    record: Annotated[Path, typer.Option(help="folder of answers; with --live it is added to")],
    out: Out,
    asks: Asks,
    solves: Solves,
    model: Annotated[str, typer.Option(help="the model; by default AFA_LLM_MODEL, or the only one of the record")] = "",
    methods: Annotated[
        str, typer.Option(help="mrf_llm, rag_llm or knowledge_llm; comma-separated")
    ] = "mrf_llm,rag_llm",
    tasks: Annotated[str, typer.Option(help="binary, top_k, or both")] = "binary,top_k",
    turns: Annotated[str, typer.Option(help="checkpoints, stateless or trajectory")] = "checkpoints",
    horizon: Annotated[int | None, typer.Option(min=1, help="stateless or trajectory: observations at most")] = None,
    order: Annotated[str, typer.Option(help="what is observed at checkpoints: planner or random")] = "planner",
    rounds: Annotated[
        str, typer.Option(help="rounds t that are evaluated beside 0 and M; comma-separated")
    ] = "10,50,100,150",
    patients: Annotated[int, typer.Option(min=1, help="how many patients are asked about")] = 10,
    seed: Annotated[int, typer.Option(help="which patients, and which random order")] = 0,
    entity: Annotated[
        list[str] | None, typer.Option(help="entity of the binary task; repeatable; all by default")
    ] = None,
    abstracts: Annotated[int, typer.Option(min=1, help="abstracts shown on each phenotype")] = 8,
    k: Annotated[int, typer.Option("--k", min=1, help="size of the top set")] = 5,
) -> None:
    """Let language models plan, by recorded answers or live, and our planner for the same patients."""
    from afa.baselines import Protocol
    from afa.baselines.stage import TABLES, Setting, run_baselines
    from afa.elicit.budget import Caps, Prices
    from afa.elicit.study import load_study
    from afa.files import check_place
    from afa.stages.inputs import check_duels, load_inputs, numbers, top_k_size
    from afa.stats.tables import write_tables

    check_place(out, [f"{name}.parquet" for name in TABLES])
    potentials, people = load_inputs(bundle, cohort)
    about = load_study(study)
    plan = Protocol(
        methods=methods.split(","),
        tasks=tasks.split(","),
        turns=turns,
        order=order,
        rounds=numbers("--rounds", rounds),
        patients=patients,
        seed=seed,
        entities=tuple(entity or ()),
        k=k if tasks == "binary" else top_k_size(potentials, k),
        answers=about.settings.manner.answers,
        horizon=horizon,
    )
    if "top_k" in plan.tasks:
        check_duels(potentials, bundle)
    if asks.live:
        from afa.elicit.live import Terms

        caps, prices = Caps(asks.calls, asks.tokens, asks.money), Prices(asks.prompt_price, asks.answer_price)
        terms = Terms(caps, prices, asks.no_caps, asks.at_once)
        source, before, after = _live(record, about, plan, model, terms)
    else:
        source, before, after = _replayed(record, about, plan, model)
    solver = solves.solver()
    tables = run_baselines(
        Setting.of(potentials, people, plan, solver=solver, threads=solves.threads),
        source,
        disease=about.settings.disease,
        abstracts=_abstracts(about, study, record, abstracts, online=asks.live) if "rag_llm" in plan.methods else None,
        before=before,
        progress=asks.live,
    )
    after()
    write_tables(tables, out)


@summaries.command("baselines")
def summary_baselines(
    tables: Annotated[Path, typer.Argument(help="what `afa experiment baselines` wrote")],
    out: Rows,
    resamples: Resamples = 1000,
    confidence: Confidence = 0.95,
    prompt_price: PromptPrice = 0.0,
    answer_price: AnswerPrice = 0.0,
    currency: Annotated[str, typer.Option(help="currency of the prices")] = "USD",
) -> None:
    """Language models that plan: their decisions beside the planner's, and what they cost."""
    from afa.baselines.stage import TABLES
    from afa.baselines.summary import summarise_baselines
    from afa.elicit.budget import Prices
    from afa.stats.summary import write_summary
    from afa.stats.tables import read_table

    parts = {name: read_table(tables, name) for name in TABLES}
    prices = Prices(prompt_price, answer_price, currency)
    write_summary([summarise_baselines(parts, resamples=resamples, confidence=confidence, prices=prices)], out)


def _replayed(record: Path, study: Study, plan: Protocol, model: str) -> Opened:
    """A record without any call, of which nothing is to be said."""
    from afa.baselines import prompts_of
    from afa.baselines.asked import recorded
    from afa.elicit.record import Record

    source = recorded(Record(record), model or None, study.settings.manner, prompts_of(plan))
    return source, lambda _: None, lambda: None


def _live(record: Path, study: Study, plan: Protocol, model: str, terms: Terms) -> Opened:
    """A live model; what is left to ask is told before, and what the record has used after."""
    from afa.baselines.asked import estimate, live
    from afa.elicit.endpoint import Endpoint
    from afa.elicit.live import shown

    source = live(record, Endpoint.from_environment(), study.settings.manner, terms, model or None)

    def before(trials: Trials) -> None:
        typer.echo(f"left to ask: {shown(estimate(trials, plan, source), terms.prices)}")

    def after() -> None:
        typer.echo(f"the record has used: {shown(source.client.budget.used, terms.prices)}")

    return source, before, after


def _abstracts(study: Study, folder: Path, record: Path, shown: int, *, online: bool) -> Abstracts:
    """What is retrieved on a phenotype: from the cache in the record's folder, and live from the services too."""
    from dataclasses import replace

    from afa.elicit.record import Question
    from afa.elicit.retrieval import literature

    settings = study.settings.model_copy(update={"abstracts": shown})
    found = literature(replace(study, settings=settings), folder, record, online=online)
    return lambda phenotype: found.shown(Question("unary", {"phenotype": phenotype}, ""))
