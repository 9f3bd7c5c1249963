"""Define the commands `afa cohort`, `afa encode`, `afa field` and `afa league`.

Encoding replaces each measured number of a table by -1, 0 or +1. A field is a benchmark data set: a table of patients,
their labels, and answers of language models about the features.
"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal

import typer

from afa.cli import options
from afa.errors import ConfigError, Fault
from afa.io.files import atomic_folder

if TYPE_CHECKING:
    from afa.cohort.encode import Names
    from afa.model.bundle import Bundle

CompleteOption = Annotated[bool, typer.Option(help="exclude patients with a missing value (only for tables)")]
FeaturesFile = Annotated[
    Path, typer.Option("--features", help="CSV: feature,kind,unit,low,high,values,missing,p_low,p_high,definition")
]
TableReference = Annotated[
    Literal["controls", "cohort"] | None,
    typer.Option("--reference", help="patients whose values define the cut points of features without a range"),
]
ControlRows = Annotated[
    str | None,
    typer.Option("--controls", help="COLUMN=VALUE: rows with this value are controls, and are not in the output"),
]
app = typer.Typer(help="Cohorts of patients: fetch a GEO series or a table, and encode it.", no_args_is_help=True)
fields = typer.Typer(help="Import a table of labelled patients, and build a bundle.", no_args_is_help=True)
league = typer.Typer(help="Evaluate zero-shot feature acquisition on labelled data sets.", no_args_is_help=True)


def encode(
    values: Annotated[
        Path, typer.Argument(help="table (.csv, .tsv, .gz or .parquet): patients' names, then columns of numbers")
    ],
    features: FeaturesFile,
    out: Annotated[Path, options.output_option(".csv", ".tsv", ".parquet")],
    reference: TableReference = None,
    controls: ControlRows = None,
    test: options.TernaryTest = "empirical",
    level: options.Level = 0.05,
    threshold: options.Threshold = 0.5,
) -> None:
    """Encode each number of a table as -1, 0 or 1 by its feature's cut points.

    The cut points are written to NAME.cuts.csv.
    """
    from afa.cohort.encode import Coding
    from afa.cohort.encode_table import control_rows, read_and_encode, write_encoded
    from afa.model.features import read_features

    rows = control_rows(controls)
    coding = Coding(reference or ("controls" if rows else None), test, level, threshold)
    encoded = read_and_encode(values, read_features(features), coding, rows)
    cuts = write_encoded(encoded, out)
    for note in encoded.notes:
        typer.echo(note)
    patients, columns = encoded.values.shape
    typer.echo(f"{patients} patients x {columns} features into {out}; the cut points are in {cuts}")


@app.command("fetch")
def cohort_fetch(
    config: options.CohortFile,
    out: Annotated[Path, options.output_option(".json")],
    cache: Annotated[Path, typer.Option(help="folder that caches files from GEO")] = Path("data/geo"),
    mirror: Annotated[Path | None, typer.Option(help="folder of series in GEO's layout; used instead of GEO")] = None,
    extract: Annotated[
        Path | None, typer.Option(help="folder written by `afa cohort extract`; used instead of GEO")
    ] = None,
) -> None:
    """Download a GEO series, or find the local files of a series or table, and write the files' paths as JSON."""
    from afa.cohort.geo import fetch
    from afa.cohort.table_cohort import TableCohort, find_table, load_cohort_file

    settings = load_cohort_file(config)
    if isinstance(settings, TableCohort):
        files = find_table(settings, mirror)
        files.write(out)
        typer.echo(f"table: {files.table} ({files.table.stat().st_size:,} bytes)")
        return
    source = fetch(settings, cache=cache, mirror=mirror, extract=extract)
    source.write(out)
    for part in (source.metadata, source.expression):
        typer.echo(f"{part.form}: {part.path} ({part.bytes:,} bytes)")


@app.command("extract")
def cohort_extract(
    config: options.CohortFile,
    source: options.FetchedFile,
    bundle: options.BundleFolder,
    out: options.Out,
    aliases: options.AliasFile = None,
    ensembl: options.EnsemblFile = None,
) -> None:
    """Write a small copy of a GEO series.

    The copy contains only the genes of a bundle, and the sample characteristics that the cohort's configuration names.
    """
    from afa.cohort import geo
    from afa.cohort.build import origin_files, row_tiers
    from afa.cohort.config import load_cohort_config
    from afa.cohort.encode import row_ids
    from afa.model.bundle import load_bundle

    settings, model, files = load_cohort_config(config), load_bundle(bundle), geo.Source.read(source)
    tiers = row_tiers(settings, model.features, **_alternative_gene_names(model, aliases, ensembl))
    samples = geo.read_samples(files)
    values = geo.read_expression(files, settings.expression, samples, row_ids(tiers))
    geo.write_extract(out, settings, samples, values, tiers, genes_of=model.name, taken_from=origin_files(files))
    for note in values.notes:
        typer.echo(note)
    typer.echo(f"{len(values.values)} rows of {values.n_rows}, {len(samples)} samples into {out}")


@app.command("simulate")
def cohort_simulate(config: options.CohortFile, bundle: options.BundleFolder, out: options.Out) -> None:
    """Simulate a gene-expression series. Write the series in GEO's file layout, and write the parameters used."""
    from afa.cohort.config import load_cohort_config, simulation_config
    from afa.cohort.simulate import simulate_cohort, write_geo_layout
    from afa.model.bundle import load_bundle

    settings = load_cohort_config(config)
    write_geo_layout(simulate_cohort(simulation_config(settings), load_bundle(bundle)), settings, out)
    typer.echo(f"simulated {settings.series} into {out}")


@app.command("build")
def cohort_build(
    config: options.CohortFile,
    source: options.FetchedFile,
    bundle: options.BundleFolder,
    out: options.Out,
    test: options.TernaryTest = "empirical",
    level: options.Level = 0.05,
    reference: options.ReferenceOption = "controls",
    threshold: options.Threshold = 0.5,
    aliases: options.AliasFile = None,
    ensembl: options.EnsemblFile = None,
    complete: CompleteOption = False,
) -> None:
    """Build a cohort: select samples, encode their values, and apply the label rules."""
    from afa.cohort.build import build_cohort
    from afa.cohort.cohort import write_cohort
    from afa.cohort.encode import Coding
    from afa.cohort.geo import Source
    from afa.cohort.table_cohort import TableCohort, TableFiles, build_table_cohort, encode_cohort, load_cohort_file
    from afa.model.bundle import load_bundle

    settings, model = load_cohort_file(config), load_bundle(bundle)
    if isinstance(settings, TableCohort):
        files = TableFiles.read(source)
        encoded = encode_cohort(settings, files, features=model.features)
        patients = build_table_cohort(settings, files, encoded, model.entities, out, complete=complete)
        for note in encoded.notes:
            typer.echo(note)
        if left_out := len(encoded.values) - patients:
            typer.echo(f"patients left out because of a missing value: {left_out}")
        typer.echo(f"{patients} patients x {encoded.values.shape[1]} features into {out}")
        return
    cohort = build_cohort(
        settings,
        Source.read(source),
        model.features,
        model.entities,
        coding=Coding(reference, test, level, threshold),
        **_alternative_gene_names(model, aliases, ensembl),
    )
    write_cohort(cohort, out)
    for note in cohort.provenance.get("reading", ()):
        typer.echo(note)
    for entity in sorted(set(settings.labels) - set(model.entities)):
        typer.echo(f"label rule {entity} is not used: the bundle has no such entity")
    typer.echo(f"{len(cohort.patients)} patients x {len(cohort.features)} features into {out}")


@app.command("by-cohort")
def cohort_by_cohort(
    config: options.CohortFile,
    source: options.FetchedFile,
    bundle: options.BundleFolder,
    out: Annotated[Path, options.output_option(".parquet")],
    thresholds: Annotated[
        str, typer.Option(help="comma-separated distances of cut points from the median, in robust SDs")
    ] = "0.5",
    aliases: options.AliasFile = None,
    ensembl: options.EnsemblFile = None,
    complete: CompleteOption = False,
) -> None:
    """Encode a cohort relative to each feature's median, once for each threshold. Write all encodings to one table."""
    import pandas as pd

    from afa.cohort.build import assemble, read_values
    from afa.cohort.cohort import write_codes
    from afa.cohort.encode import Coding
    from afa.cohort.geo import Source
    from afa.cohort.table_cohort import TableCohort, TableFiles, encode_cohort, load_cohort_file
    from afa.evaluate.inputs import amounts
    from afa.model.bundle import load_bundle

    model, settings = load_bundle(bundle), load_cohort_file(config)
    codings = [Coding("cohort", threshold=step) for step in amounts("--thresholds", thresholds)]
    codes: dict[float, pd.DataFrame] = {}
    if isinstance(settings, TableCohort):
        files = TableFiles.read(source)
        for coding in codings:
            values = encode_cohort(settings, files, features=model.features, coding=coding, ranges=False).values
            codes[coding.threshold] = values.dropna() if complete else values
    else:
        names = _alternative_gene_names(model, aliases, ensembl)
        chosen, tiers, read = read_values(settings, Source.read(source), model.features, **names)
        for coding in codings:
            cohort = assemble(settings, chosen, read, tiers, model.entities, coding=coding)
            codes[coding.threshold] = pd.DataFrame(cohort.values, cohort.patients, cohort.features)
            flat = cohort.provenance["genes_without_spread"]
            typer.echo(f"threshold {coding.threshold:g}: {len(flat)} genes without spread {' '.join(flat)}".rstrip())
    write_codes(codes, out)


def _alternative_gene_names(model: Bundle, aliases: Path | None, ensembl: Path | None) -> dict[str, Names]:
    """Return the alternative symbols and the Ensembl ids of each gene.

    Alternative symbols from the bundle precede alternative symbols from the file `aliases`.
    """
    from afa.cohort.encode import read_aliases, read_ensembl

    table = read_aliases(aliases) if aliases else {}
    names = {name: (*model.aliases.get(name, ()), *table.get(name, ())) for name in model.features}
    return {"aliases": names, "ensembl": read_ensembl(ensembl) if ensembl else {}}


@app.command("show")
def cohort_show(cohort: options.CohortArgument) -> None:
    """Show the provenance of a cohort: its files, selection, encoding and labels."""
    import yaml

    from afa.cohort.cohort import load_cohort

    typer.echo(yaml.safe_dump(dict(load_cohort(cohort).provenance), sort_keys=False, allow_unicode=True), nl=False)


@app.command("new")
def cohort_new(
    name: Annotated[str, typer.Argument(help="name of the cohort: lower-case letters, digits, - and _")],
    folder: Annotated[Path, typer.Option(help="folder in which to write the configuration")] = Path("config/cohorts"),
    table: Annotated[Path | None, typer.Option(help="table of patients to use instead of a GEO series")] = None,
    features: Annotated[Path | None, typer.Option(help="with --table: its features.csv")] = None,
    labels: Annotated[
        Path | None,
        typer.Option(
            help="with --table: CSV of labels, with a column of patients' names, and a column of 0, 1 or empty cells "
            "for each entity"
        ),
    ] = None,
    controls: ControlRows = None,
) -> None:
    """Write a cohort's configuration: a template for a GEO series, or a complete file for a table."""
    from afa.cohort.config import write_cohort_template
    from afa.cohort.encode_table import control_rows
    from afa.cohort.table_cohort import write_table_cohort

    if table is None:
        if features or labels or controls:
            step = "add --table, or leave them out"
            raise ConfigError(Fault("--features, --labels, --controls", "no --table", "the table they belong to", step))
        typer.echo(f"wrote {write_cohort_template(name, folder)}: fill it in, then run with COHORT={name}")
        return
    if features is None:
        step = "write a CSV with feature,kind,unit,low,high,values,missing,p_low,p_high,definition"
        raise ConfigError(Fault("--features", "nothing", "the features.csv of the table", step))
    path, encoded = write_table_cohort(
        name, folder, table=table, features=features, labels=labels, controls=control_rows(controls)
    )
    for note in encoded.notes:
        typer.echo(note)
    patients, columns = encoded.values.shape
    typer.echo(f"wrote {path}: {patients} patients x {columns} features; run with COHORT={name} and a BUNDLE of them")


@fields.command("import")
def field_import(
    folder: Annotated[
        Path,
        typer.Argument(
            help="folder with dictionary.csv, entities.csv, elicited/, values.csv and (optional) labels.csv"
        ),
    ],
    out: options.Out,
    holds: Annotated[
        Literal["several", "one", "one or none"],
        typer.Option(help="number of entities that one patient can have"),
    ] = "several",
    address: Annotated[
        str | None,
        typer.Option(help="URL of the table, if the table may not be copied; afa then writes only the table's digest"),
    ] = None,
) -> None:
    """Check a table, its data dictionary and the answers of language models, and write a labelled data set."""
    from afa.evaluate.field import import_field

    if address == "":
        step = "leave it out, if the table may be copied"
        raise ConfigError(Fault("--address", "nothing", "the address of the original", step))
    for remark in import_field(folder, out, holds=holds, address=address):
        typer.echo(remark)
    typer.echo(f"wrote {out}; state title, licence and citation in {out}/study.yaml")
    typer.echo(f"next: `afa field bundle {out} --out BUNDLE`")


@fields.command("bundle")
def field_bundle(
    field: options.FieldArgument,
    out: options.Out,
    how_often: Annotated[
        bool, typer.Option(help="use not only directions, but also elicited probabilities and cut points")
    ] = False,
) -> None:
    """Build a bundle from the language models' answers, which are stored in a labelled data set."""
    from afa.evaluate.field import build_field_bundle

    bundle = build_field_bundle(field, out, how_often=how_often)
    typer.echo(f"wrote {out}: {len(bundle.entities)} entities, {len(bundle.features)} features")


@league.command("field")
def league_field(field: options.FieldArgument, out: options.Out, tables: options.FieldTables = None) -> None:
    """Evaluate feature acquisition on the patients of one labelled data set.

    If the table of patients is missing, write only a note that states the reason.
    """
    from afa.evaluate.entrants import read_entrant
    from afa.evaluate.long_tables import write_tables
    from afa.paper.experiments.league import LeagueSettings, follow_field
    from afa.paper.report.league import NOT_FETCHED

    entrant = read_entrant(field, tables)
    if isinstance(entrant, str):
        with atomic_folder(out, [NOT_FETCHED]) as made:
            (made / NOT_FETCHED).write_text(entrant + "\n", encoding="utf-8")
        typer.echo(f"{field.name}: {entrant}")
        return
    write_tables(follow_field(entrant, LeagueSettings()), out, [NOT_FETCHED])
    typer.echo(f"{entrant.name}: {len(entrant.patients):,} patients, {len(entrant.tasks)} questions")


@league.command("page")
def league_page(
    fields: Annotated[list[Path], typer.Argument(help="folders written by `afa league field`")], out: options.Out
) -> None:
    """Write a page, figures and tables that compare feature acquisition across labelled data sets."""
    from afa.paper.report.league import write_league

    write_league(fields, out)
    typer.echo(f"wrote {out}")
