"""`afa experiment`: the experiments of the paper, one stage a command; each writes a folder of tidy Parquet tables."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from afa.cli.options import (
    AliasFile,
    BundleFolder,
    CohortFile,
    CohortFolder,
    Coupling,
    Damping,
    EnsemblFile,
    Level,
    MaxIterations,
    Out,
    Seeds,
    Shard,
    SourceFile,
    Strength,
    TernaryTest,
    Threads,
    Tolerance,
)

app = typer.Typer(help="The experiments of the paper, stage by stage.", no_args_is_help=True)

TaskFolder = Annotated[Path, typer.Option("--tasks", help="what `afa experiment binary` wrote")]
Simulated = Annotated[int, typer.Option(help="patients drawn from each task's own model, half of each class")]
Rounds = Annotated[str, typer.Option(help="comma-separated t, beside 0 and M")]


@app.command("sign")
def experiment_sign(
    bundle: BundleFolder,
    cohort: CohortFolder,
    out: Out,
    seeds: Seeds = "0,1,2",
    shard: Shard = "1/1",
    damping: Damping = 0.5,
    tolerance: Tolerance = 1e-4,
    max_iterations: MaxIterations = 200,
    starts: Annotated[str, typer.Option(help="marginals each solve starts from: uniform, warm, or both")] = "uniform",
    threads: Threads = 1,
) -> None:
    """Sign convergence under random order, every score and every t from 0 to M; writes a folder of tables."""
    from afa.experiments.inputs import check_duels, load_inputs, numbers, shard_of, words
    from afa.experiments.sign_convergence import sign_convergence
    from afa.experiments.tables import write_tables
    from afa.inference.meanfield import Solver

    model, patients = load_inputs(bundle, cohort)
    check_duels(model, bundle)
    tables = sign_convergence(
        model,
        patients,
        shard_of(len(patients.patients), shard),
        seeds=numbers("--seeds", seeds),
        solver=Solver(damping, tolerance, max_iterations),
        starts=words("--starts", starts, ("uniform", "warm")),
        threads=threads,
    )
    write_tables(tables, out)


@app.command("binary")
def experiment_binary(
    bundle: BundleFolder,
    cohort: CohortFolder,
    out: Out,
    seeds: Seeds = "0,1,2",
    coupling: Coupling = "differential",
    strength: Strength = 0.9,
    damping: Damping = 0.5,
    tolerance: Tolerance = 1e-4,
    max_iterations: MaxIterations = 200,
    threads: Threads = 1,
) -> None:
    """Every phenotype as a task of its own, under random and informed orders; every score at every step."""
    from afa.experiments.binary import binary_tasks
    from afa.experiments.inputs import load_inputs, numbers
    from afa.experiments.tables import write_tables
    from afa.inference.meanfield import Solver

    model, patients = load_inputs(bundle, cohort)
    tables = binary_tasks(
        model,
        patients,
        range(len(model.entities)),
        seeds=numbers("--seeds", seeds),
        solver=Solver(damping, tolerance, max_iterations),
        coupling=coupling,
        strength=strength,
        threads=threads,
    )
    write_tables(tables, out)


@app.command("calibration")
def experiment_calibration(
    bundle: BundleFolder,
    cohort: CohortFolder,
    tasks: TaskFolder,
    out: Out,
    rounds: Rounds = "10,50,100,150,200",
    coupling: Coupling = "differential",
    strength: Strength = 0.9,
    threads: Threads = 1,
) -> None:
    """Log-odds of every task by mean-field and exactly, and how reliable their probabilities are."""
    from afa.experiments.calibration import cohort_calibration
    from afa.experiments.inputs import load_inputs, numbers
    from afa.experiments.reliability import reliability
    from afa.experiments.tables import read_table, write_tables

    model, patients = load_inputs(bundle, cohort)
    steps, targets, each = (read_table(tasks, name) for name in ("steps", "targets", "tasks"))
    tables = cohort_calibration(
        model,
        patients,
        steps,
        each,
        rounds=numbers("--rounds", rounds),
        coupling=coupling,
        strength=strength,
        threads=threads,
    )
    write_tables({**tables, "reliability": reliability(tables["odds"], targets)}, out)


@app.command("simulated-calibration")
def experiment_simulated_calibration(
    bundle: BundleFolder,
    out: Out,
    simulated: Simulated = 200,
    damping: Damping = 0.5,
    tolerance: Tolerance = 1e-4,
    max_iterations: MaxIterations = 200,
    threads: Threads = 1,
) -> None:
    """Posteriors of patients drawn from each task's own models: are they right where the model is?"""
    from afa.bundle import load_bundle
    from afa.experiments.rank_uniformity import rank_uniformity
    from afa.experiments.simulated_calibration import simulated_calibration
    from afa.experiments.tables import write_tables
    from afa.inference.meanfield import Solver

    solver = Solver(damping, tolerance, max_iterations)
    tables = simulated_calibration(load_bundle(bundle), draws=simulated, solver=solver, threads=threads)
    write_tables({**tables, **rank_uniformity(tables["draws"])}, out)


@app.command("elicitation-error")
def experiment_elicitation_error(
    bundle: BundleFolder,
    cohort: CohortFolder,
    out: Out,
    flips: Annotated[str, typer.Option(help="chances, comma-separated, that a sign is turned round")] = "0,0.1,0.5",
    replicates: Annotated[int, typer.Option(min=1, help="damaged models of each entity at each chance")] = 5,
    simulated: Simulated = 200,
    threads: Threads = 1,
) -> None:
    """Accuracy at full observation when signs of the potentials are wrong: on drawn patients and on the cohort."""
    from afa.experiments.elicitation_error import elicitation_error
    from afa.experiments.inputs import fractions, load_inputs
    from afa.experiments.tables import write_tables

    model, patients = load_inputs(bundle, cohort)
    chances = fractions("--flips", flips)
    tables = elicitation_error(model, patients, flips=chances, replicates=replicates, draws=simulated, threads=threads)
    write_tables(tables, out)


@app.command("elicitation-health")
def experiment_elicitation_health(
    bundle: BundleFolder,
    cohort: CohortFolder,
    out: Out,
    study: Annotated[
        Path | None, typer.Option(help="folder with study.yaml; without it only signs are compared")
    ] = None,
    record: Annotated[Path | None, typer.Option(help="folder of answers; by default the study's record")] = None,
    asked: Annotated[
        list[Path] | None, typer.Option(help="what `afa elicit unary` or `pairwise` wrote; repeatable")
    ] = None,
    draws: Annotated[int, typer.Option(min=1, help="resamples of patients, and as many shuffles")] = 1000,
) -> None:
    """Agreement of a record's answers over runs and wordings, and of a bundle's signs with a cohort's data."""
    from afa.elicit.stage_tables import read_stage
    from afa.elicit.study import RECORD_FOLDER, load_study
    from afa.experiments.elicitation_health import elicitation_health
    from afa.experiments.inputs import load_inputs
    from afa.experiments.recorded_answers import read_answers
    from afa.experiments.tables import write_tables

    model, patients = load_inputs(bundle, cohort)
    counting = {digest for folder in asked or () for digest in read_stage(folder, "asked")["asked"]["answer"]}
    answers = read_answers(load_study(study), record or study / RECORD_FOLDER, counting) if study else None
    write_tables(elicitation_health(model, patients, answers, draws=draws), out)


@app.command("gauge")
def experiment_gauge(
    bundle: BundleFolder,
    cohort: CohortFolder,
    out: Out,
    seeds: Seeds = "0,1,2",
    shard: Shard = "1/1",
    rounds: Rounds = "10,50,100,150,200",
    damping: Damping = 0.5,
    tolerance: Tolerance = 1e-4,
    max_iterations: MaxIterations = 200,
    threads: Threads = 1,
) -> None:
    """Every duel read out by the closure of its difference and by its two models held directly."""
    from afa.experiments.gauge import gauge
    from afa.experiments.inputs import check_duels, load_inputs, numbers, shard_of
    from afa.experiments.tables import write_tables
    from afa.inference.meanfield import Solver

    model, patients = load_inputs(bundle, cohort)
    check_duels(model, bundle)
    tables = gauge(
        model,
        patients,
        shard_of(len(patients.patients), shard),
        seeds=numbers("--seeds", seeds),
        solver=Solver(damping, tolerance, max_iterations),
        grid=[0, *numbers("--rounds", rounds)],
        threads=threads,
    )
    write_tables(tables, out)


@app.command("chaos")
def experiment_chaos(
    bundle: BundleFolder,
    cohort: CohortFolder,
    out: Out,
    selecting: Annotated[str, typer.Option(help="seeds of the orders that say who is chaotic")] = "0,1,2",
    measuring: Annotated[str, typer.Option(help="seeds of the orders that the gap is measured on")] = "3,4,5",
    shard: Shard = "1/1",
    damping: Damping = 0.5,
    tolerance: Tolerance = 1e-4,
    max_iterations: MaxIterations = 200,
    threads: Threads = 1,
) -> None:
    """Patients whose duels change side often, and what `linearity` gains over `wald` on them."""
    from afa.experiments.chaos import chaos
    from afa.experiments.inputs import check_duels, load_inputs, numbers, shard_of
    from afa.experiments.tables import write_tables
    from afa.inference.meanfield import Solver

    model, patients = load_inputs(bundle, cohort)
    check_duels(model, bundle)
    tables = chaos(
        model,
        patients,
        shard_of(len(patients.patients), shard),
        selecting_seeds=numbers("--selecting", selecting),
        measuring_seeds=numbers("--measuring", measuring),
        solver=Solver(damping, tolerance, max_iterations),
        threads=threads,
    )
    write_tables(tables, out)


@app.command("sanity")
def experiment_sanity(
    bundle: BundleFolder,
    cohort: CohortFolder,
    out: Out,
    seeds: Seeds = "0,1,2",
    damping: Damping = 0.5,
    tolerance: Tolerance = 1e-4,
    max_iterations: MaxIterations = 200,
    threads: Threads = 1,
) -> None:
    """The acceptance tests; exit 2 with the check and the case that broke it where one fails, and no tables."""
    from afa.experiments.inputs import check_duels, load_inputs, numbers
    from afa.experiments.sanity.stage import raise_on_failure, sanity_tables
    from afa.experiments.tables import write_tables
    from afa.inference.meanfield import Solver

    model, patients = load_inputs(bundle, cohort)
    check_duels(model, bundle)
    solver = Solver(damping, tolerance, max_iterations)
    tables = sanity_tables(model, patients, seeds=numbers("--seeds", seeds), solver=solver, threads=threads)
    raise_on_failure(tables)
    write_tables(tables, out)


@app.command("errata")
def experiment_errata(
    config: CohortFile,
    bundle: BundleFolder,
    cohort: CohortFolder,
    source: SourceFile,
    summary: Annotated[list[Path], typer.Option("--summary", help="what `afa summary` wrote of a stage; repeatable")],
    paper: Annotated[Path, typer.Option(help="folder of the paper's tables")],
    out: Out,
    aliases: AliasFile = None,
    ensembl: EnsemblFile = None,
    test: TernaryTest = "empirical",
    level: Level = 0.05,
    damping: Damping = 0.5,
    tolerance: Tolerance = 1e-4,
    max_iterations: MaxIterations = 200,
    threads: Threads = 1,
) -> None:
    """Every erratum of the paper that can be checked, as a number beside the paper's claim."""
    import pandas as pd

    from afa.bundle import load_bundle
    from afa.cohort.config import load_cohort_config
    from afa.cohort.genes import read_aliases, read_ensembl
    from afa.cohort.geo import Source
    from afa.experiments.errata.expression import load_expression
    from afa.experiments.errata.table import errata_table
    from afa.experiments.inputs import check_duels, load_inputs, paper_tables
    from afa.experiments.summary import read_summary
    from afa.experiments.tables import write_tables
    from afa.inference.meanfield import Solver

    model, patients = load_inputs(bundle, cohort)
    check_duels(model, bundle)
    expression = load_expression(
        load_cohort_config(config),
        Source.read(source),
        load_bundle(bundle),
        test=test,
        level=level,
        aliases=read_aliases(aliases) if aliases else None,
        ensembl=read_ensembl(ensembl) if ensembl else None,
    )
    table = errata_table(
        model,
        patients,
        summary=pd.concat([read_summary(part) for part in summary], ignore_index=True),
        paper=paper_tables(paper),
        expression=expression,
        solver=Solver(damping, tolerance, max_iterations),
        threads=threads,
    )
    write_tables({"errata": table}, out)


@app.command("gather")
def experiment_gather(
    shards: Annotated[list[Path], typer.Argument(help="folders that the shards of one stage wrote, in order")],
    out: Out,
) -> None:
    """Join the tables of all shards of a stage."""
    from afa.experiments.tables import gather_tables

    gather_tables(shards, out)
