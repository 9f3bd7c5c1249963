"""`afa experiment labels` and `afa summary labels`: scores against patients' labels, by reference and by closure."""

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


@experiments.command("labels")
def experiment_labels(
    bundle: BundleFolder,
    cohort: CohortFolder,
    by_cohort: Annotated[Path, typer.Option("--by-cohort", help="what `afa cohort by-cohort` wrote")],
    out: Out,
    thresholds: Annotated[str, typer.Option(help="folders of it, comma-separated; the first is the headline")] = "0.5",
    strengths: Annotated[str, typer.Option(help="of shared couplings; the first is the headline")] = "0.9",
    percents: Annotated[str, typer.Option(help="read at these shares of the support, beside 0 and 100")] = "5,10,25,50",
    seeds: Seeds = "0,1,2",
    permutations: Annotated[int, typer.Option(min=1, help="bundles with shuffled genes, followed step by step")] = 20,
    whole_permutations: Annotated[int, typer.Option(min=1, help="the same, at full observation")] = 1000,
    damping: Damping = 0.5,
    tolerance: Tolerance = 1e-4,
    max_iterations: MaxIterations = 200,
    threads: Threads = 1,
) -> None:
    """How well scores tell patients with a label from those without, beside bundles whose genes are shuffled."""
    from afa.experiments.inputs import amounts, load_inputs, numbers
    from afa.experiments.labels import label_tables
    from afa.experiments.tables import write_tables
    from afa.inference.meanfield import Solver

    model, patients = load_inputs(bundle, cohort)
    chosen = amounts("--thresholds", thresholds)
    tables = label_tables(
        model,
        patients,
        {threshold: load_inputs(bundle, by_cohort / f"{threshold:g}")[1] for threshold in chosen},
        percents=numbers("--percents", percents),
        seeds=numbers("--seeds", seeds),
        strengths=amounts("--strengths", strengths),
        permutations=permutations,
        whole_permutations=whole_permutations,
        solver=Solver(damping, tolerance, max_iterations),
        threads=threads,
    )
    for entity in tables["left_out"]["entity"]:
        typer.echo(f"label {entity} is left out: all patients have the same")
    write_tables(tables, out)


@summaries.command("labels")
def summary_labels(
    tables: Annotated[Path, typer.Argument(help="tables of the stage")],
    out: Out,
    resamples: Resamples = 1000,
    confidence: Confidence = 0.95,
) -> None:
    """Labels: balanced accuracy, AUROC and average precision by setting and t, chance, and specificity."""
    from afa.experiments.labels_summary import TABLES, summarise_labels
    from afa.experiments.summary import write_summary
    from afa.experiments.tables import read_table

    parts = {name: read_table(tables, name) for name in TABLES}
    write_summary([summarise_labels(parts, resamples=resamples, confidence=confidence)], out)
