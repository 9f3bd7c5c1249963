"""`afa experiment accurate` and `afa summary accurate`: what the mean-field approximation changes."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from afa.cli.options import (
    BundleFolder,
    CohortFolder,
    Confidence,
    Damping,
    MaxIterations,
    Out,
    Resamples,
    Strength,
    Threads,
    Tolerance,
)

experiments = typer.Typer()
summaries = typer.Typer()


@experiments.command("accurate")
def experiment_accurate(
    bundle: BundleFolder,
    cohort: CohortFolder,
    out: Out,
    patients: Annotated[int, typer.Option(min=1, help="chosen by a hash of their names")] = 50,
    linearity_patients: Annotated[int, typer.Option(min=1, help="of these, for the score `linearity`")] = 12,
    seed: Annotated[int, typer.Option(min=0, help="of patients and of their random order")] = 0,
    rounds: Annotated[str, typer.Option(help="t, comma-separated, beside 0 and M")] = "10,50,100,150,200",
    k: Annotated[int, typer.Option("--k", min=1, help="size of the top set")] = 5,
    chains: Annotated[int, typer.Option(min=4, help="of one sampled state")] = 300,
    steps: Annotated[int, typer.Option(min=1, help="of each chain")] = 200,
    limit: Annotated[float, typer.Option(min=0, help="entries of one exact solve; beyond it a state is sampled")] = 2e7,
    strength: Strength = 0.9,
    damping: Damping = 0.5,
    tolerance: Tolerance = 1e-4,
    max_iterations: MaxIterations = 200,
    threads: Threads = 1,
) -> None:
    """Decisions by mean-field and by accurate inference, exact or sampled, on the same states of some patients."""
    from afa.experiments.accurate import accurate_tables
    from afa.experiments.accurate_inference import Effort
    from afa.experiments.inputs import check_duels, load_inputs, numbers, top_k_size
    from afa.experiments.tables import write_tables
    from afa.inference.meanfield import Solver

    model, people = load_inputs(bundle, cohort)
    check_duels(model, bundle)
    tables = accurate_tables(
        model,
        people,
        patients=patients,
        linearity_patients=linearity_patients,
        seed=seed,
        rounds=numbers("--rounds", rounds),
        k=top_k_size(model, k, typer.echo),
        effort=Effort(limit, chains, steps),
        strength=strength,
        solver=Solver(damping, tolerance, max_iterations),
        threads=threads,
    )
    write_tables(tables, out)


@summaries.command("accurate")
def summary_accurate(
    tables: Annotated[Path, typer.Argument(help="tables of the stage")],
    out: Out,
    resamples: Resamples = 1000,
    confidence: Confidence = 0.95,
) -> None:
    """Mean-field against accurate inference: decisions changed, by t, accuracy of both, and what sampling changes."""
    from afa.experiments.accurate_summary import TABLES, summarise_accurate
    from afa.experiments.summary import write_summary
    from afa.experiments.tables import read_table

    parts = {name: read_table(tables, name) for name in TABLES}
    write_summary([summarise_accurate(parts, resamples=resamples, confidence=confidence)], out)
