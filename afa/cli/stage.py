"""Define the commands that workflow jobs run: `afa kernels`, `afa stage`, `afa gather` and `afa join`.

`afa summarise` recomputes the summary rows of one stage. `afa experiment` and `afa summary` run and summarise
experiments in which a language model chooses the measurements.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from importlib import import_module
from inspect import signature
from json import dumps, loads
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from afa.cli import options
from afa.errors import ConfigError, Fault
from afa.io.files import check_place

if TYPE_CHECKING:
    from types import ModuleType

    from afa.paper.baselines import Briefing, Trial
    from afa.paper.experiments.base import Stage

app = typer.Typer()

StageName = Annotated[str, typer.Argument(help="a module of afa/paper/experiments")]
Chosen = Annotated[str, typer.Option("--settings", help="settings of config.yaml that the stage reads, as JSON")]
Inputs = Annotated[list[str] | None, typer.Option("--input", help="NAME=PATH, another input; repeatable")]
RowsToo = Annotated[
    Path | None, options.output_option(".csv", ".parquet", to="--rows", about="where to write rows of summary.csv")
]
Parts = Annotated[list[Path], typer.Argument(help="paths of the outputs to join, in order")]


@app.command("stage", hidden=True)
def stage(
    name: StageName,
    out: options.Out,
    settings: Chosen = "{}",
    bundle: options.BundleIfAny = None,
    cohort: options.CohortIfAny = None,
    inputs: Inputs = None,
    shard: options.Shard = "1/1",
    threads: options.Threads = 1,
    rows: RowsToo = None,
) -> None:
    """Run one stage of the workflow.

    The command writes a folder of tables and, with --rows, the stage's rows of summary.csv.
    """
    from afa.evaluate.inputs import check_duels, load_inputs, shard_of
    from afa.evaluate.long_tables import StageTables, write_tables
    from afa.model.bundle import load_bundle
    from afa.paper.experiments.base import check_tables, columns_of, stored, with_declared_columns

    module, declared = _stage_module(name), _stage_declaration(name)
    folders: dict[str, Path] = {key: Path(value) for key, value in options.pairs("--input", inputs or []).items()}
    folders |= {key: value for key, value in (("bundle", bundle), ("cohort", cohort)) if value is not None}
    if missing := [key for key in declared.inputs if key not in folders]:
        words = [f"--{key} FOLDER" if key in ("bundle", "cohort") else f"--input {key}=PATH" for key in missing]
        fault = Fault(f"afa stage {name}", f"no {', '.join(missing)}", "all its inputs", f"add {' '.join(words)}")
        raise ConfigError(fault)
    given: dict[str, Any] = {
        key: StageTables(path) if _is_stage(key) else path for key, path in folders.items() if key in declared.inputs
    }
    if "cohort" in given:
        given["bundle"], given["cohort"] = load_inputs(folders["bundle"], folders["cohort"])
    elif "bundle" in given:
        given["bundle"] = load_bundle(folders["bundle"])
    if "bundle" in given and not declared.scopes:
        given["bundle"] = given["bundle"].contrasts()
    if declared.duels:
        check_duels(given["bundle"], folders["bundle"])
    if declared.sharded:
        given["patients"] = shard_of(len(given["cohort"].patients), shard)
    document = _parse_settings_json(settings)
    summary = declared.summary_settings or () if rows is not None else ()
    given |= _stage_settings(declared.settings, _select_sections(document, declared.settings, but=summary))
    if "threads" in signature(module.run).parameters:
        given["threads"] = threads
    names = {key: given[key].name for key in ("cohort", "bundle") if key in given}
    expected = columns_of(name, declared.tables)
    tables = with_declared_columns(module.run(**given), expected, **names)
    check_tables(name, tables, expected)
    write_tables(stored(tables, declared), out)
    if rows is not None:
        _write_summary_rows(name, out, folders, _select_sections(document, summary, but=declared.settings), rows)


@app.command("summarise", hidden=True)
def summarise(
    name: StageName, tables: Parts, out: options.RowsFile, settings: Chosen = "{}", inputs: Inputs = None
) -> None:
    """Compute one stage's rows of summary.csv from the stage's tables."""
    beside = {key: Path(value) for key, value in options.pairs("--input", inputs or []).items()}
    _write_summary_rows(name, tables[0], beside, _parse_settings_json(settings), out)


@app.command("gather", hidden=True)
def gather(name: StageName, shards: Parts, out: options.Out) -> None:
    """Join the tables of all shards of a stage."""
    from afa.evaluate.long_tables import gather_tables

    _stage_module(name)
    gather_tables(shards, out, _stage_declaration(name).in_all_parts)


@app.command("join", hidden=True)
def join(parts: Parts, out: options.RowsFile) -> None:
    """Write summary.csv, which contains one number of the run on each line."""
    from afa.evaluate.summary import join_summaries

    join_summaries(parts, out)


def _write_summary_rows(name: str, tables: Path, beside: Mapping[str, Path], document: Any, out: Path) -> None:
    """Compute and write a stage's rows of summary.csv.

    The argument `beside` maps the name of each other stage to the folder of that stage's tables.
    """
    from afa.evaluate.long_tables import StageTables
    from afa.evaluate.summary import write_summary
    from afa.paper.experiments.base import check_rows

    module, declared = _stage_module(name), _stage_declaration(name)
    others = {key: StageTables(beside[key]) for key in declared.summary_inputs if key in beside}
    rows = module.summarise(StageTables(tables), **others, **_stage_settings(declared.summary_settings or (), document))
    check_rows(name, rows, declared.summary_tables)
    write_summary([rows], out)


def _select_sections(document: Any, keys: Sequence[str], *, but: Sequence[str]) -> Any:
    """Return the sections of `document`, except sections named in `but` that are not also named in `keys`.

    A stage has two steps: it computes tables, and it summarises them. `keys` names the settings of the step to run, and
    `but` names the settings of the other step.
    """
    mine, others = ({key.partition(".")[0] for key in each} for each in (keys, but))
    return {key: value for key, value in document.items() if key in mine or key not in others}


@app.command("kernels", hidden=True)
def kernels(
    out: Annotated[Path, options.output_option(".json")],
    threads: Annotated[int, typer.Option(min=1, help="number of kernels compiled in parallel")] = 1,
) -> None:
    """Compile the numeric kernels that the cache lacks, and write the SHA-256 of each cached file."""
    from afa.engine.compile import cached_files
    from afa.engine.warm import compile_all
    from afa.io.files import write_text

    compile_all(threads)
    write_text(out, dumps(cached_files(), indent=1) + "\n")


def _stage_module(name: str) -> ModuleType:
    """Return the Python module of a stage. Raise a `ConfigError` for an unknown stage."""
    if not _is_stage(name):
        raise ConfigError(
            Fault("afa stage", repr(name), "the name of a stage", "see afa/paper/experiments/declared.py")
        )
    return import_module(f"afa.paper.experiments.{name}")


# The digest of a job's code ignores modules that are imported by `import_module`. For the modules `declared` and
# `settings` this is intended, because a workflow rule has the stage's declaration and settings among its parameters.
def _stage_declaration(name: str) -> Stage:
    declared: Stage = import_module("afa.paper.experiments.declared").STAGES[name]
    return declared


def _is_stage(name: str) -> bool:
    return name in import_module("afa.paper.experiments.declared").STAGES


def _stage_settings(keys: Sequence[str], document: Any) -> dict[str, Any]:
    """Return a mapping of each section of config.yaml to the settings that a stage reads."""
    from afa.paper.experiments.base import chosen

    return chosen(keys, import_module("afa.paper.experiments.settings").StageSettings, document)


def _parse_settings_json(text: str) -> dict[str, Any]:
    """Parse a JSON object from the command line into a dict."""
    try:
        document = loads(text)
        if not isinstance(document, dict):
            raise ValueError(f"a {type(document).__name__}")
        return document
    except ValueError as error:
        step = "pass for example '{\"top_k\": 3}'"
        raise ConfigError(Fault("--settings", str(error), "a JSON object", step)) from None


experiments = typer.Typer(help="Run experiments in which a language model chooses the features.", no_args_is_help=True)
summaries = typer.Typer(help="Summarise experiments with language models that choose features.", no_args_is_help=True)


@experiments.command("baselines")
def experiment_baselines(
    bundle: options.BundleFolder,
    cohort: options.CohortFolder,
    record: Annotated[Path, typer.Option(help="folder of recorded answers; --live adds new answers")],
    out: options.Out,
    asks: options.Asks,
    solves: options.Solves,
    settings: Annotated[str, typer.Option(help="settings in section `baselines` of config.yaml, as JSON")] = "{}",
    k: Annotated[int, typer.Option("--k", min=1, help="k, the number of entities in the answer")] = 5,
) -> None:
    """Compare a language model (recorded or live) with the planner: both choose features for the same patients."""
    from afa.elicit.budget import Prices
    from afa.elicit.live import usage_text
    from afa.elicit.record import Question, Record
    from afa.evaluate.inputs import check_duels, load_inputs, top_k_size
    from afa.evaluate.long_tables import write_tables
    from afa.io.yamlfile import check_model
    from afa.model.study import Endpoint, load_study
    from afa.paper.baselines import BASELINE_TABLES, Protocol, prompts_of
    from afa.paper.baselines.stage import BaselineSetting, run_baselines
    from afa.paper.baselines.trials import live, recorded, trials_usage_estimate

    check_place(out, [f"{name}.parquet" for name in BASELINE_TABLES])
    potentials, people = load_inputs(bundle, cohort)
    # The digest of a job's code ignores modules that are imported by `import_module`. For `afa.paper.config` this is
    # intended, because the workflow rule that calls this command has the settings among its parameters.
    chosen = check_model(_parse_settings_json(settings), import_module("afa.paper.config").Baselines, "the settings")
    about = load_study(chosen.study)
    manner = about.settings.manner
    plan = Protocol(chosen, k if chosen.tasks == ("binary",) else top_k_size(potentials, k), manner.answers)
    if "top_k" in chosen.tasks:
        check_duels(potentials, bundle)
    prices = Prices(asks.prompt_price, asks.answer_price)
    if asks.live:
        source = live(record, Endpoint.from_environment(), manner, asks.terms(), chosen.model)
    else:
        source = recorded(Record(record), chosen.model, manner, prompts_of(plan))

    abstracts = None
    if "rag_llm" in chosen.methods:  # abstracts come from the cache in `record`; --live can download others
        from afa.elicit.retrieval import literature

        with_most = replace(about, settings=about.settings.model_copy(update={"abstracts": chosen.abstracts}))
        found = literature(with_most, chosen.study, record, online=asks.live)
        abstracts = lambda phenotype: found.shown(Question("unary", {"phenotype": phenotype}, ""))  # noqa: E731

    def before(trials: Sequence[tuple[Trial, Briefing]]) -> None:
        if source.client is not None:
            typer.echo(f"left to ask: {usage_text(trials_usage_estimate(trials, plan, source.client), prices)}")

    tables = run_baselines(
        BaselineSetting(potentials, people, plan, solver=solves.solver(), threads=solves.threads),
        source,
        disease=about.settings.disease,
        abstracts=abstracts,
        before=before,
        progress=asks.live,
    )
    if source.client is not None:
        typer.echo(f"the record has used: {usage_text(source.client.budget.used, prices)}")
    write_tables(tables, out)


@summaries.command("baselines")
def summary_baselines(
    tables: Annotated[Path, typer.Argument(help="folder written by `afa experiment baselines`")],
    out: options.RowsFile,
    resamples: options.Resamples = 1000,
    confidence: options.Confidence = 0.95,
    prompt_price: options.PromptPrice = 0.0,
    answer_price: options.AnswerPrice = 0.0,
    currency: Annotated[str, typer.Option(help="currency of the prices")] = "USD",
    table: Annotated[str, typer.Option(help="value of the column `table` in the summary")] = "llm_baselines",
) -> None:
    """Summarise experiments with language models that choose the features.

    The summary compares the models' decisions with the planner's decisions, and lists the costs of the models.
    """
    from afa.elicit.budget import Prices
    from afa.evaluate.long_tables import read_table
    from afa.evaluate.summary import write_summary
    from afa.paper.baselines import BASELINE_TABLES
    from afa.paper.baselines.summary import summarise_baselines

    parts = {name: read_table(tables, name) for name in BASELINE_TABLES}
    prices = Prices(prompt_price, answer_price, currency)
    rows = summarise_baselines(parts, resamples=resamples, confidence=confidence, prices=prices, table=table)
    write_summary([rows], out)
