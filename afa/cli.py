"""The command line: one subcommand per stage, files in and files out; a rule of the workflow is one call.

Imports stand inside the commands, so that `afa --help` is quick and each command's code digest covers what that
command runs and nothing else.
"""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Annotated, Literal

import typer

from afa.errors import AfaError

app = typer.Typer(
    help="Zero-shot active feature acquisition: which measurement to take next, from elicited potentials alone.",
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    add_completion=False,
)
cohort_app = typer.Typer(help="Patients: fetch a series, encode it, look at the result.", no_args_is_help=True)
bundle_app = typer.Typer(help="Bundles: build, check, show.", no_args_is_help=True)
experiment_app = typer.Typer(help="The experiments of the paper, stage by stage.", no_args_is_help=True)
app.add_typer(cohort_app, name="cohort")
app.add_typer(bundle_app, name="bundle")
app.add_typer(experiment_app, name="experiment")

DEBUG = "--debug"

Out = Annotated[Path, typer.Option("--out", help="where to write; appears only when complete")]
CohortFile = Annotated[Path, typer.Argument(help="a file of config/cohorts")]
BundleFolder = Annotated[Path, typer.Option("--bundle", help="bundle folder")]
CohortFolder = Annotated[Path, typer.Option("--cohort", help="cohort folder")]


@app.callback()
def _root(
    debug: Annotated[bool, typer.Option(DEBUG, help="show the traceback of an error")] = False,
) -> None:
    """Options that stand before the subcommand."""


@cohort_app.command("fetch")
def cohort_fetch(
    config: CohortFile,
    out: Out,
    cache: Annotated[Path, typer.Option(help="where files fetched from GEO are kept")] = Path("data/geo"),
    mirror: Annotated[Path | None, typer.Option(help="folder with series in GEO's layout, instead of GEO")] = None,
) -> None:
    """Fetch a series from GEO, or find it in a mirror, and write down which files it is made of."""
    from afa.cohort.config import load_cohort_config
    from afa.cohort.geo import fetch

    source = fetch(load_cohort_config(config), cache=cache, mirror=mirror)
    source.write(out)
    for part in (source.metadata, source.expression):
        typer.echo(f"{part.form}: {part.path} ({part.bytes:,} bytes)")


@cohort_app.command("simulate")
def cohort_simulate(config: CohortFile, bundle: BundleFolder, out: Out) -> None:
    """Write a simulated series in GEO's layout, with its ground truth beside it."""
    from afa.bundle import load_bundle
    from afa.cohort.config import load_cohort_config
    from afa.cohort.geo_writer import write_geo_layout
    from afa.cohort.simulate import simulate
    from afa.cohort.simulation_config import simulation_config

    settings = load_cohort_config(config)
    write_geo_layout(simulate(simulation_config(settings), load_bundle(bundle)), settings, out)
    typer.echo(f"simulated {settings.series} into {out}")


@cohort_app.command("build")
def cohort_build(
    config: CohortFile,
    source: Annotated[Path, typer.Option(help="what `afa cohort fetch` wrote")],
    bundle: BundleFolder,
    out: Out,
    test: Annotated[Literal["empirical", "normal", "t"], typer.Option(help="ternary test")] = "empirical",
    level: Annotated[float, typer.Option(help="significance level of the ternary test")] = 0.05,
    aliases: Annotated[Path | None, typer.Option(help="CSV of other symbols of a gene")] = None,
    ensembl: Annotated[Path | None, typer.Option(help="CSV of Ensembl ids of a gene")] = None,
) -> None:
    """Choose the samples, encode them against the controls, apply the label rules."""
    from afa.bundle import load_bundle
    from afa.cohort.build import build_cohort
    from afa.cohort.cohort import write_cohort
    from afa.cohort.config import load_cohort_config
    from afa.cohort.genes import read_aliases, read_ensembl
    from afa.cohort.geo import Source

    settings, model = load_cohort_config(config), load_bundle(bundle)
    other_names = read_aliases(aliases) if aliases else {}
    cohort = build_cohort(
        settings,
        Source.read(source),
        model.features,
        model.entities,
        test=test,
        level=level,
        aliases={name: (*model.aliases.get(name, ()), *other_names.get(name, ())) for name in model.features},
        ensembl=read_ensembl(ensembl) if ensembl else None,
    )
    write_cohort(cohort, out)
    for entity in sorted(set(settings.labels) - set(model.entities)):
        typer.echo(f"label rule {entity} is not used: the bundle has no such entity")
    typer.echo(f"{len(cohort.patients)} patients x {len(cohort.features)} features into {out}")


@cohort_app.command("show")
def cohort_show(cohort: Annotated[Path, typer.Argument(help="cohort folder")]) -> None:
    """Print what a cohort is made of."""
    import yaml

    from afa.cohort.cohort import load_cohort

    typer.echo(yaml.safe_dump(dict(load_cohort(cohort).provenance), sort_keys=False, allow_unicode=True), nl=False)


@cohort_app.command("new")
def cohort_new(
    name: Annotated[str, typer.Argument(help="name of the cohort: lower case, digits, - and _")],
    folder: Annotated[Path, typer.Option(help="where the cohorts' files are")] = Path("config/cohorts"),
) -> None:
    """Write a cohort's configuration, to be filled in."""
    from afa.cohort.template import write_template

    typer.echo(f"wrote {write_template(name, folder)}: fill it in, then run with COHORT={name}")


@bundle_app.command("build")
def bundle_build(
    record: Annotated[Path, typer.Argument(help="folder of recorded answers")],
    out: Out,
    min_agree: Annotated[int, typer.Option(help="runs that must name a gene, all with one direction")] = 2,
    dropped: Annotated[Path | None, typer.Option(help="CSV of the genes left out, and why")] = None,
) -> None:
    """Build a bundle from recorded answers by consensus."""
    from afa.elicit.recorded_bundle import build_recorded_bundle
    from afa.files import atomic_file

    bundle, left_out = build_recorded_bundle(record, out, min_agree=min_agree)
    if dropped:
        with atomic_file(dropped) as path:
            left_out.to_csv(path, index=False, lineterminator="\n")
    typer.echo(f"{bundle.name}: {len(bundle.entities)} entities, {len(bundle.features)} features into {out}")


@bundle_app.command("copy")
def bundle_copy(source: Annotated[Path, typer.Argument(help="bundle folder")], out: Out) -> None:
    """Check a bundle and write it in canonical form, with its content digests."""
    from afa.bundle import load_bundle, save_bundle

    bundle = load_bundle(source)
    save_bundle(bundle, out)
    typer.echo(f"{bundle.name}: {len(bundle.entities)} entities, {len(bundle.features)} features into {out}")


@bundle_app.command("validate")
def bundle_validate(bundle: Annotated[Path, typer.Argument(help="bundle folder")]) -> None:
    """Report every fault of a bundle at once, by file, row and column; exit 2 where there is one."""
    from afa.bundle import validate_bundle
    from afa.errors import BundleError

    faults, notes = validate_bundle(bundle)
    for note in notes:
        typer.echo(f"note: {note}")
    if faults:
        raise BundleError(faults)
    typer.echo(f"{bundle}: no faults")


@bundle_app.command("stamp")
def bundle_stamp(bundle: Annotated[Path, typer.Argument(help="bundle folder")]) -> None:
    """Renew the digests in bundle.yaml after its tables were edited on purpose."""
    from afa.bundle import stamp_bundle

    stamp_bundle(bundle)
    typer.echo(f"stamped {bundle}")


@bundle_app.command("show")
def bundle_show(bundle: Annotated[Path, typer.Argument(help="bundle folder")]) -> None:
    """Print a bundle's entities: size of the support, unaries up and down, couplings."""
    from afa.bundle import load_bundle
    from afa.report.tables import bundle_table

    model = load_bundle(bundle)
    typer.echo(f"{model.name} {model.version}, digest {model.digest[:16]}")
    typer.echo(bundle_table(model).to_string(index=False))


@experiment_app.command("sign")
def experiment_sign(
    bundle: BundleFolder,
    cohort: CohortFolder,
    out: Out,
    seeds: Annotated[str, typer.Option(help="comma-separated; one random order per patient and seed")] = "0,1,2",
    shard: Annotated[str, typer.Option(help="I/N: the I-th of N parts of the patients, from 1")] = "1/1",
    damping: float = 0.5,
    tolerance: float = 1e-4,
    max_iterations: int = 200,
    starts: Annotated[str, typer.Option(help="marginals each solve starts from: uniform, warm, or both")] = "uniform",
    threads: Annotated[int, typer.Option(min=1)] = 1,
) -> None:
    """Sign convergence under random order, every score and every t from 0 to M; writes a folder of tables."""
    from afa.experiments.inputs import load_inputs, numbers, shard_of, words
    from afa.experiments.sign_convergence import sign_convergence
    from afa.experiments.tables import write_tables
    from afa.inference.meanfield import Solver

    model, patients = load_inputs(bundle, cohort)
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


@experiment_app.command("gather")
def experiment_gather(
    shards: Annotated[list[Path], typer.Argument(help="folders that the shards of one stage wrote, in order")],
    out: Out,
) -> None:
    """Join the tables of all shards of a stage."""
    from afa.experiments.tables import gather_tables

    gather_tables(shards, out)


@app.command("summarise")
def summarise(
    sign: Annotated[Path, typer.Option(help="gathered tables of `afa experiment sign`")],
    out: Out,
    resamples: Annotated[int, typer.Option(help="bootstrap resamples of the patients")] = 1000,
    confidence: Annotated[float, typer.Option(help="of the intervals")] = 0.95,
) -> None:
    """Write summary.csv: every number that the report's tables show, one to a line."""
    from afa.experiments.sign_summary import summarise_sign_convergence
    from afa.experiments.summary import write_summary
    from afa.experiments.tables import read_table

    rows = summarise_sign_convergence(
        read_table(sign, "rounds"),
        read_table(sign, "duels"),
        read_table(sign, "orders"),
        resamples=resamples,
        confidence=confidence,
    )
    write_summary([rows], out)


@app.command("notebook")
def notebook(
    source: Annotated[Path, typer.Argument(help="notebook with a cell tagged `parameters`")],
    out: Out,
    parameter: Annotated[list[str] | None, typer.Option("--parameter", "-p", help="NAME=VALUE, repeatable")] = None,
) -> None:
    """Run a figure notebook and keep it as it ran."""
    from afa.experiments.inputs import pairs
    from afa.report.notebook import run_notebook

    run_notebook(source, out, pairs("--parameter", parameter or []))


def main() -> None:
    """Entry point of `afa`: an error of afa's own is a line on standard error and exit code 2."""
    try:
        app()
    except AfaError as error:
        if DEBUG in sys.argv:
            raise
        for fault in error.faults:
            typer.echo(f"afa: {fault}", err=True)
        sys.exit(2)
