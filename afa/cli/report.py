"""Define commands that write pages, tables and records from the results of a workflow run."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from afa.cli import options
from afa.errors import Fault, ReportError
from afa.io.files import write_text

app = typer.Typer()


@app.command("notebook")
def notebook(
    source: Annotated[Path, typer.Argument(help="notebook with a cell tagged `parameters`")],
    out: Annotated[Path, options.output_option(".ipynb")],
    parameter: Annotated[list[str] | None, typer.Option("--parameter", "-p", help="NAME=VALUE, repeatable")] = None,
) -> None:
    """Execute a notebook that draws a figure, and save the executed notebook."""
    from afa.paper.report.notebook import run_notebook

    run_notebook(source, out, options.pairs("--parameter", parameter or []))


@app.command("publish")
def publish_tables(
    summary: Annotated[Path, typer.Argument(help="summary.csv of the run")],
    cohort: options.CohortFolder,
    out: options.Out,
    paper: Annotated[Path | None, typer.Option(help="folder of the paper's tables to compare with the run")] = None,
    stage: Annotated[
        list[Path] | None,
        typer.Option(help="folder with one stage's tables; the table of units also lists their columns; repeatable"),
    ] = None,
) -> None:
    """Write CSV tables that compare a run's numbers with the paper, and a table of every column's unit."""
    from afa.cohort.cohort import load_cohort
    from afa.evaluate.inputs import paper_tables
    from afa.evaluate.summary import read_summary
    from afa.paper.report.publish import publish

    n_features = len(load_cohort(cohort).features)
    printed = {} if paper is None else paper_tables(paper)
    publish(read_summary(summary), printed, stage or [], out, n_features=n_features)


@app.command("compare")
def compare_with_paper(
    summary: Annotated[Path, typer.Argument(help="summary.csv of the run")],
    cohort: options.CohortFolder,
    paper: options.PaperFolder,
    out: options.Out,
    voters: Annotated[Path | None, typer.Option(help="folder with the tables of the stage `voters`")] = None,
) -> None:
    """Compare a run with the paper: write a verdict and a reason for each printed number and each claim."""
    from afa.cohort.cohort import load_cohort
    from afa.evaluate.long_tables import read_table
    from afa.evaluate.summary import read_summary
    from afa.io.yamlfile import load_model
    from afa.paper.report.comparison import Reader, compare, load_printed, write_comparison
    from afa.paper.report.screen import Statements, of_voters, screen_table
    from afa.paper.report.verdicts import ClaimAnswers

    reader = Reader.of(read_summary(summary), load_model(paper / "answers.yaml", ClaimAnswers), load_cohort(cohort))
    printed, statements = load_printed(paper), load_model(paper / "headlines.yaml", Statements).statements
    comparison = compare(reader, printed)
    screen = screen_table(statements, comparison, reader)
    answers = {} if voters is None else {name: read_table(voters, name) for name in ("numbers", "bundles")}
    write_comparison(comparison, out, screen, of_voters(statements, printed, answers, reader))


@app.command("carry")
def carry_run(
    run: options.RunArgument,
    out: Annotated[Path, options.output_option(".yaml", about="such as resources/paper/carried/NAME.yaml")],
    check: Annotated[
        bool, typer.Option("--check", help="compare the saved file with the run, and write no file")
    ] = False,
) -> None:
    """Save a run's numbers for the paper's main results, so that the reports of other runs can show these numbers."""
    import yaml

    from afa.io.yamlfile import load_model
    from afa.paper.report.screen import StoredEffects, stale, stored_effects_of

    found = stored_effects_of(run)
    if check:
        if differing := stale(load_model(out, StoredEffects), found):
            step = f"look why, then: afa carry {run} --out {out}"
            raise ReportError(Fault(str(out), "; ".join(differing), f"what {run} has", step))
        return
    write_text(out, yaml.safe_dump(found.model_dump(mode="json"), sort_keys=False, default_flow_style=None))


@app.command("explorer")
def explorer_page(
    bundle: options.BundleFolder,
    cohort: options.CohortFolder,
    tables: Annotated[Path, typer.Option(help="folder with the tables of the stage `allocation`")],
    out: options.Page,
    solves: options.Solves,
    patients: Annotated[int, typer.Option(min=1, max=40, help="largest number of patients to show")] = 12,
    k: Annotated[int, typer.Option("--k", min=1, help="k, the number of entities in the answer")] = 5,
) -> None:
    """Write an offline HTML page that shows, step by step, which features each rule chooses for some patients."""
    from afa.evaluate.explorer import explore, write_explorer
    from afa.evaluate.inputs import check_duels, load_inputs, top_k_size
    from afa.evaluate.long_tables import read_table
    from afa.evaluate.simulate.walks import SimulationSetting

    model, members = load_inputs(bundle, cohort)
    model = model.contrasts()
    check_duels(model, bundle)
    setting = SimulationSetting(k=top_k_size(model, k), solver=solves.solver(), threads=solves.threads)
    explored = explore(model, members, read_table(tables, "choices"), setting, most=patients)
    write_explorer(explored, out)


@app.command("benchmarks")
def store_benchmarks(
    run: options.RunArgument,
    out: Annotated[Path, options.output_option(".csv", about="such as resources/benchmarks/COHORT.csv")],
) -> None:
    """Save the time and memory of a run's jobs. Later runs request this time and memory for their jobs."""
    from afa.paper.report.benchmarks import store_run

    store_run(run, out)


@app.command("provenance")
def record_provenance(
    target: Annotated[list[str], typer.Argument(help="files or folders that the workflow wrote")],
    records: Annotated[Path, typer.Option(help="Snakemake's folder of job records, .snakemake")],
    lock: Annotated[Path, typer.Option(help="the pinned environment")],
    out: Annotated[Path, options.output_option(".json")],
) -> None:
    """Write the provenance of results: the command, code digests, times and file digests of each job.

    The command fails if an input of a job has changed since the job ran.
    """
    from afa.paper.report.provenance import Records, check_jobs, trace, write_provenance

    root = records.resolve().parent
    jobs = trace(target, Records(records).job)
    check_jobs(jobs, root)
    made = {path for job in jobs for path in job.outputs}
    if unknown := [path for path in target if path not in made]:
        typer.echo(
            f"no record of the jobs of {len(unknown)} of {len(target)} results: Snakemake ran with --drop-metadata"
        )
    write_provenance(jobs, out, root=root, lock=lock)


@app.command("crate")
def crate(
    run: options.RunArgument,
    license_url: Annotated[str, typer.Option("--license", help="URL of the licence under which you publish the run")],
) -> None:
    """Write a file that describes a finished run's files and jobs in the format RO-Crate, for archives."""
    from afa.paper.report.provenance import write_crate

    typer.echo(write_crate(run, license_url))


@app.command("report")
def report_page(
    run: options.RunArgument,
    paper: options.PaperFolder,
    docs: Annotated[Path, typer.Option(help="folder with decisions.md, errata.md and past_the_paper.md")],
    part: Annotated[list[str], typer.Option(help="NAME=CHAPTER: TITLE for each figure, in page order")],
    out: options.Page,
    left_out: Annotated[
        list[str] | None, typer.Option(help="NAME=WHY: a part that the report lacks, and the reason; repeatable")
    ] = None,
    readme: Annotated[
        Path | None,
        options.output_option(".md", to="--readme", about="where to write a description of the run's files"),
    ] = None,
    measured: Annotated[Path | None, typer.Option(help="folder written by `afa league field` for this cohort")] = None,
) -> None:
    """Write the report of a finished run as one self-contained HTML page."""
    from afa.paper.report import page

    parts, why = options.pairs("--part", part), options.pairs("--left-out", left_out or [])
    write_text(out, page.report_html(run, parts, paper, docs, why, measured))
    if readme is not None:
        write_text(readme, page.run_readme(run))
