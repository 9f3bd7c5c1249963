"""`afa experiment stopping` and `afa summary stopping`: how often an answer is wrong where a rule of stopping ends."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from afa.cli.options import (
    BundleFolder,
    CohortFolder,
    Confidence,
    Coupling,
    Damping,
    MaxIterations,
    Out,
    Resamples,
    Shard,
    Strength,
    Threads,
    Tolerance,
)

experiments = typer.Typer()
summaries = typer.Typer()


@experiments.command("stopping")
def experiment_stopping(
    bundle: BundleFolder,
    cohort: CohortFolder,
    choices: Annotated[Path, typer.Option("--choices", help="gathered tables of `afa experiment allocation`")],
    out: Out,
    rules: Annotated[str, typer.Option(help="comma-separated allocation rules, beside random")] = "greedy,priority_all",
    probabilities: Annotated[str, typer.Option(help="stop at these probabilities of the answer")] = "0.8,0.9,0.95,0.99",
    gains: Annotated[
        str, typer.Option(help="stop when no feature has more than this gain, in nats")
    ] = "0.1,0.01,0.001",
    budgets: Annotated[str, typer.Option(help="stop after this share of all features")] = "0.1,0.25,0.5",
    seed: Annotated[int, typer.Option(min=0, help="of the random order")] = 0,
    k: Annotated[int, typer.Option("--k", min=1, help="size of the top set")] = 5,
    shard: Shard = "1/1",
    coupling: Coupling = "differential",
    strength: Strength = 0.9,
    damping: Damping = 0.5,
    tolerance: Tolerance = 1e-4,
    max_iterations: MaxIterations = 200,
    threads: Threads = 1,
) -> None:
    """Where each rule of stopping ends the acquisition of each patient, and whether full observation agrees."""
    from afa.experiments.inputs import check_duels, load_inputs, shard_of, top_k_size
    from afa.experiments.stopping import RANDOM, stopping_tables, stored_orders
    from afa.experiments.stopping_levels import Levels
    from afa.experiments.tables import write_tables
    from afa.inference.meanfield import Solver

    model, patients = load_inputs(bundle, cohort)
    check_duels(model, bundle)
    share = shard_of(len(patients.patients), shard)
    levels = Levels.of(probabilities, gains, budgets)
    named = [rule for rule in map(str.strip, rules.split(",")) if rule != RANDOM]
    orders = stored_orders(choices, model, [patients.patients[p] for p in share], named, typer.echo)
    tables = stopping_tables(
        model,
        patients,
        share,
        orders,
        levels,
        k=top_k_size(model, k, typer.echo),
        seed=seed,
        solver=Solver(damping, tolerance, max_iterations),
        coupling=coupling,
        strength=strength,
        threads=threads,
    )
    write_tables(tables, out)


@summaries.command("stopping")
def summary_stopping(
    tables: Annotated[Path, typer.Argument(help="gathered tables of the stage")],
    out: Out,
    resamples: Resamples = 1000,
    confidence: Confidence = 0.95,
) -> None:
    """Stopping: how many stop early, with how many features, and how many of them wrongly."""
    from afa.experiments.stopping_summary import summarise_stopping
    from afa.experiments.summary import write_summary
    from afa.experiments.tables import read_table

    top_k, tasks = (read_table(tables, name) for name in ("top_k", "tasks"))
    write_summary([summarise_stopping(top_k, tasks, resamples=resamples, confidence=confidence)], out)
