"""`afa cohort`: from a series to a cohort folder."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from afa.cli.options import (
    AliasFile,
    BundleFolder,
    CohortFile,
    EnsemblFile,
    Level,
    Out,
    Reference,
    SourceFile,
    TernaryTest,
    Threshold,
)

app = typer.Typer(help="Patients: fetch a series, encode it, look at the result.", no_args_is_help=True)


@app.command("fetch")
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


@app.command("simulate")
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


@app.command("build")
def cohort_build(
    config: CohortFile,
    source: SourceFile,
    bundle: BundleFolder,
    out: Out,
    test: TernaryTest = "empirical",
    level: Level = 0.05,
    reference: Reference = "controls",
    threshold: Threshold = 0.5,
    aliases: AliasFile = None,
    ensembl: EnsemblFile = None,
) -> None:
    """Choose the samples, encode them against the controls or the cohort itself, apply the label rules."""
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
        reference=reference,
        threshold=threshold,
        aliases={name: (*model.aliases.get(name, ()), *other_names.get(name, ())) for name in model.features},
        ensembl=read_ensembl(ensembl) if ensembl else None,
    )
    write_cohort(cohort, out)
    for entity in sorted(set(settings.labels) - set(model.entities)):
        typer.echo(f"label rule {entity} is not used: the bundle has no such entity")
    typer.echo(f"{len(cohort.patients)} patients x {len(cohort.features)} features into {out}")


@app.command("by-cohort")
def cohort_by_cohort(
    config: CohortFile,
    source: SourceFile,
    bundle: BundleFolder,
    out: Out,
    thresholds: Annotated[str, typer.Option(help="comma-separated; robust SDs from the cohort's median")] = "0.5",
    aliases: AliasFile = None,
    ensembl: EnsemblFile = None,
) -> None:
    """The same cohort encoded against itself: one cohort folder for each threshold, named by it."""
    from afa.bundle import load_bundle
    from afa.cohort.build import Coding, build_cohorts
    from afa.cohort.cohort import write_cohort
    from afa.cohort.config import load_cohort_config
    from afa.cohort.genes import read_aliases, read_ensembl
    from afa.cohort.geo import Source
    from afa.experiments.inputs import amounts
    from afa.files import atomic_folder

    model = load_bundle(bundle)
    other_names = read_aliases(aliases) if aliases else {}
    codings = [Coding(reference="cohort", threshold=value) for value in amounts("--thresholds", thresholds)]
    cohorts = build_cohorts(
        load_cohort_config(config),
        Source.read(source),
        model.features,
        model.entities,
        codings,
        aliases={name: (*model.aliases.get(name, ()), *other_names.get(name, ())) for name in model.features},
        ensembl=read_ensembl(ensembl) if ensembl else None,
    )
    with atomic_folder(out) as folder:
        for coding, cohort in zip(codings, cohorts, strict=True):
            write_cohort(cohort, folder / f"{coding.threshold:g}")
            flat = cohort.provenance["genes_without_spread"]
            typer.echo(f"threshold {coding.threshold:g}: {len(flat)} genes without spread {' '.join(flat)}".rstrip())


@app.command("show")
def cohort_show(cohort: Annotated[Path, typer.Argument(help="cohort folder")]) -> None:
    """Print what a cohort is made of."""
    import yaml

    from afa.cohort.cohort import load_cohort

    typer.echo(yaml.safe_dump(dict(load_cohort(cohort).provenance), sort_keys=False, allow_unicode=True), nl=False)


@app.command("new")
def cohort_new(
    name: Annotated[str, typer.Argument(help="name of the cohort: lower case, digits, - and _")],
    folder: Annotated[Path, typer.Option(help="where the cohorts' files are")] = Path("config/cohorts"),
) -> None:
    """Write a cohort's configuration, to be filled in."""
    from afa.cohort.template import write_template

    typer.echo(f"wrote {write_template(name, folder)}: fill it in, then run with COHORT={name}")
