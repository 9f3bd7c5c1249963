"""`afa experiment ranking` and `afa summary ranking`: entities ranked by scale and by method."""

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
    Seeds,
    Threads,
    Tolerance,
)

experiments = typer.Typer()
summaries = typer.Typer()


@experiments.command("ranking")
def experiment_ranking(
    bundle: BundleFolder,
    cohort: CohortFolder,
    out: Out,
    k: Annotated[int, typer.Option("--k", min=1, help="size of the top set")] = 5,
    rounds: Annotated[str, typer.Option(help="comma-separated t, beside 0 and M")] = "10,50,100,150,200",
    seeds: Seeds = "0,1,2",
    permutations: Annotated[int, typer.Option(min=1, help="bundles with shuffled genes, followed step by step")] = 20,
    whole_permutations: Annotated[int, typer.Option(min=1, help="the same, at full observation")] = 200,
    damping: Damping = 0.5,
    tolerance: Tolerance = 1e-4,
    max_iterations: MaxIterations = 200,
    threads: Threads = 1,
) -> None:
    """Duels, top k and labels by the scale of scores and by method, beside bundles whose genes are shuffled."""
    from afa.experiments.inputs import check_duels, load_inputs, numbers, top_k_size
    from afa.experiments.ranking import ranking_tables
    from afa.experiments.tables import write_tables
    from afa.inference.meanfield import Solver

    model, patients = load_inputs(bundle, cohort)
    check_duels(model, bundle)
    tables = ranking_tables(
        model,
        patients,
        k=top_k_size(model, k, typer.echo),
        rounds=numbers("--rounds", rounds),
        seeds=numbers("--seeds", seeds),
        permutations=permutations,
        whole_permutations=whole_permutations,
        solver=Solver(damping, tolerance, max_iterations),
        threads=threads,
    )
    write_tables(tables, out)


@summaries.command("ranking")
def summary_ranking(
    tables: Annotated[Path, typer.Argument(help="tables of the stage")],
    out: Out,
    resamples: Resamples = 1000,
    confidence: Confidence = 0.95,
) -> None:
    """Ranked entities: accuracy and precision by scale, method and t, against full observation and against labels."""
    from afa.experiments.ranking_summary import TABLES, summarise_ranking
    from afa.experiments.summary import write_summary
    from afa.experiments.tables import read_table

    parts = {name: read_table(tables, name) for name in TABLES}
    write_summary([summarise_ranking(parts, resamples=resamples, confidence=confidence)], out)
