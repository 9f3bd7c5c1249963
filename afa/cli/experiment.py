"""`afa experiment` and `afa summary`: what is no stage like the others; `afa stage` and `afa summarise` run those."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from afa.cli.options import (
    AliasFile,
    BundleFolder,
    CohortFile,
    CohortFolder,
    EnsemblFile,
    Level,
    Out,
    PaperFolder,
    Solves,
    SourceFile,
    TernaryTest,
    with_groups,
)

app = typer.Typer(help="Experiments of the paper that are no stage like the others.", no_args_is_help=True)
summaries = typer.Typer(help="The numbers of each stage, one to a line.", no_args_is_help=True)


@app.command("errata-computed")
@with_groups
def experiment_errata_computed(
    config: CohortFile,
    bundle: BundleFolder,
    cohort: CohortFolder,
    source: SourceFile,
    paper: PaperFolder,
    out: Out,
    solves: Solves,
    aliases: AliasFile = None,
    ensembl: EnsemblFile = None,
    test: TernaryTest = "empirical",
    level: Level = 0.05,
) -> None:
    """The errata of the paper that are worked out on a bundle and a cohort, as numbers beside the paper's claims."""
    from afa.bundle import load_bundle
    from afa.checks.errata.cohort import load_expression
    from afa.checks.errata.rows import frame_of
    from afa.checks.errata.table import computed_errata
    from afa.cohort.genes import read_aliases, read_ensembl
    from afa.cohort.geo import Source
    from afa.cohort.table_cohort import TableCohort, load_cohort_file
    from afa.inference.meanfield import Solver
    from afa.stages.inputs import check_duels, load_inputs, paper_tables
    from afa.stats.tables import write_tables

    model, patients = load_inputs(bundle, cohort)
    check_duels(model, bundle)
    settings = load_cohort_file(config)
    expression = (
        None
        if isinstance(settings, TableCohort)
        else load_expression(
            settings,
            Source.read(source),
            load_bundle(bundle),
            test=test,
            level=level,
            aliases=read_aliases(aliases) if aliases else None,
            ensembl=read_ensembl(ensembl) if ensembl else None,
        )
    )
    rows = computed_errata(
        model,
        patients,
        paper=paper_tables(paper),
        expression=expression,
        solver=Solver(solves.damping, solves.tolerance, solves.max_iterations),
        threads=solves.threads,
    )
    write_tables({"rows": frame_of(rows)}, out)


@app.command("errata")
def experiment_errata(
    computed: Annotated[Path, typer.Option(help="what `afa experiment errata-computed` wrote")],
    summary: Annotated[list[Path], typer.Option("--summary", help="rows of a stage; repeatable")],
    paper: PaperFolder,
    out: Out,
) -> None:
    """Every erratum of the paper that can be checked: those computed, those of the paper alone, those of stages."""
    import pandas as pd

    from afa.checks.errata.rows import load_errata, rows_of_frame
    from afa.checks.errata.table import errata_table
    from afa.stages.inputs import paper_tables
    from afa.stats.summary import read_summary
    from afa.stats.tables import read_table, write_tables

    stages = pd.concat([read_summary(part) for part in summary], ignore_index=True)
    rows, texts = rows_of_frame(read_table(computed, "rows")), load_errata(paper / "errata.yaml")
    write_tables({"errata": errata_table(rows, summary=stages, paper=paper_tables(paper), errata=texts)}, out)


@summaries.command("errata")
def summary_errata(tables: Annotated[Path, typer.Argument(help="gathered tables of the stage")], out: Out) -> None:
    """The errata: one line a check, and the paper's number where it gives one."""
    from afa.checks.errata.table import summarise_errata
    from afa.stats.summary import write_summary
    from afa.stats.tables import read_table

    write_summary([summarise_errata(read_table(tables, "errata"))], out)
