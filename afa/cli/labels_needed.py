"""`afa experiment labels-needed` and `afa summary labels-needed`: classifiers trained on n labelled patients."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from afa.cli.options import BundleFolder, CohortFolder, Confidence, Out, Resamples

experiments = typer.Typer()
summaries = typer.Typer()


@experiments.command("labels-needed")
def experiment_labels_needed(
    bundle: BundleFolder,
    cohort: CohortFolder,
    by_cohort: Annotated[Path, typer.Option("--by-cohort", help="what `afa cohort by-cohort` wrote")],
    labels: Annotated[Path, typer.Option("--labels", help="tables of the stage labels, of this bundle and cohort")],
    out: Out,
    sizes: Annotated[str, typer.Option(help="numbers of labelled patients, comma-separated")] = "10,20,50,100",
    repeats: Annotated[int, typer.Option(min=1, help="draws of the labelled patients")] = 4,
    permuted: Annotated[int, typer.Option(min=0, help="of these, with shuffled labels as well")] = 2,
    most_labels: Annotated[int, typer.Option(min=1, help="labels used, chosen by hashes of their names")] = 6,
    tested: Annotated[int, typer.Option(min=2, help="patients that have to be left to be told")] = 20,
    of_each_class: Annotated[int, typer.Option(min=1, help="the same, of each class")] = 3,
) -> None:
    """What classifiers trained on some labelled patients make of the others, beside the zero-shot scores."""
    from afa.experiments.inputs import load_inputs, numbers
    from afa.experiments.labels_needed import encoded_cohorts, needed_tables
    from afa.experiments.tables import read_table, write_tables

    model, patients = load_inputs(bundle, cohort)
    folders = encoded_cohorts(read_table(labels, "tasks"), cohort, by_cohort)
    tables = needed_tables(
        model,
        {reference: load_inputs(bundle, folder)[1] for reference, folder in folders.items()},
        read_table(labels, "scores"),
        name=patients.name,
        sizes=numbers("--sizes", sizes),
        repeats=repeats,
        permuted=permuted,
        most_labels=most_labels,
        tested=tested,
        of_each_class=of_each_class,
    )
    for row in tables["left_out"].fillna({"size": 0}).itertuples():
        labelled = f" with {int(str(row.size))} labelled patients" if row.size else ""
        typer.echo(f"label {row.entity} is left out{labelled}: {row.reason}")
    write_tables(tables, out)


@summaries.command("labels-needed")
def summary_labels_needed(
    tables: Annotated[Path, typer.Argument(help="tables of the stage")],
    out: Out,
    resamples: Resamples = 1000,
    confidence: Confidence = 0.95,
) -> None:
    """What labels would buy: AUROC and balanced accuracy by labelled patients, and where zero-shot is overtaken."""
    from afa.experiments.labels_needed_summary import TABLES, summarise_labels_needed
    from afa.experiments.summary import write_summary
    from afa.experiments.tables import read_table

    parts = {name: read_table(tables, name) for name in TABLES}
    write_summary([summarise_labels_needed(parts, resamples=resamples, confidence=confidence)], out)
