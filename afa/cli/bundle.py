"""Define `afa bundle`, whose commands build, check, show and convert bundles."""

from __future__ import annotations

from dataclasses import asdict
from pathlib import Path
from typing import Annotated

import typer

from afa.cli import options
from afa.errors import BundleError
from afa.io.files import write_csv

app = typer.Typer(help="Bundles: build, check, show.", no_args_is_help=True)


@app.command("build")
def bundle_build(
    record: options.RecordArgument,
    out: options.Out,
    min_agree: options.MinAgree = 2,
    dropped: options.DroppedFile = None,
    probabilities: Annotated[
        Path | None,
        typer.Option(help="folder with a CSV of probabilities from each run of a language model (docs/elicitation.md)"),
    ] = None,
) -> None:
    """Build a bundle from recorded answers. A gene is kept if enough voters (runs of a language model) name it."""
    from afa.elicit.stages import build_recorded_bundle

    bundle, left_out = build_recorded_bundle(record, out, min_agree=min_agree, probabilities=probabilities)
    if dropped:
        write_csv(left_out, dropped)
    typer.echo(f"{bundle.name}: {len(bundle.entities)} entities, {len(bundle.features)} features into {out}")


@app.command("copy")
def bundle_copy(bundle: options.BundleArgument, out: options.Out) -> None:
    """Check a bundle, and write a copy in canonical form with content digests."""
    from afa.model.bundle import load_bundle, save_bundle

    model = load_bundle(bundle)
    save_bundle(model, out)
    typer.echo(f"{model.name}: {len(model.entities)} entities, {len(model.features)} features into {out}")


@app.command("validate")
def bundle_validate(bundle: options.BundleArgument, json: options.AsJson = False) -> None:
    """Report the file, row and column of every error in a bundle. Exit with code 2 if the bundle has errors."""
    from afa.model.bundle.priors import starting_point
    from afa.model.bundle.read import read_folder

    read = read_folder(bundle)
    if json:
        typer.echo(options.as_json([asdict(fault) for fault in read.faults], notes=read.notes))
        raise typer.Exit(2 if read.faults else 0)
    for note in read.notes:
        typer.echo(f"note: {note}")
    if read.bundle is None:
        raise BundleError(read.faults)
    typer.echo(starting_point(read.bundle))
    counts = f"{len(read.bundle.entities)} entities, {len(read.bundle.features)} features"
    typer.echo(f"{bundle}: no faults; {counts}")


@app.command("new")
def bundle_new(
    name: Annotated[str, typer.Argument(help="name of the bundle and its folder: letters, digits, - and _")],
    folder: Annotated[Path, typer.Option(help="parent folder of the new bundle folder")] = Path(),
) -> None:
    """Write template files for a new bundle."""
    from afa.model.bundle.write import write_bundle_template

    made = write_bundle_template(name, folder)
    typer.echo(f"wrote {made}: fill in its files, then run `afa bundle validate {made}`")


@app.command("stamp")
def bundle_stamp(bundle: options.BundleArgument) -> None:
    """Recompute the digests in bundle.yaml after you edit the bundle's tables."""
    from afa.model.bundle import stamp_bundle, validate_bundle

    stamp_bundle(bundle)
    typer.echo(f"stamped {bundle}")
    faults, _ = validate_bundle(bundle)
    if faults:
        typer.echo(f"note: it has faults ({len(faults)}); `afa bundle validate {bundle}` names them")


@app.command("show")
def bundle_show(
    bundle: options.BundleArgument,
    features: Annotated[bool, typer.Option("--features", help="show one row for each feature, with its cost")] = False,
    json: options.AsJson = False,
) -> None:
    """Print a table of a bundle's entities or features, and list the bundle's earlier updates."""
    from afa.evaluate.update import update_text
    from afa.model.bundle import load_bundle
    from afa.model.bundle.priors import starting_point
    from afa.paper.report.tables import bundle_table, feature_table

    model = load_bundle(bundle)
    table = (feature_table if features else bundle_table)(model)
    if json:
        typer.echo(options.as_json(table, name=model.name, version=model.version, digest=model.digest))
        return
    typer.echo(f"{model.name} {model.version}, digest {model.digest[:16]}")
    typer.echo(starting_point(model))
    if (rates := model.rates) is not None:
        encoding = f", encoded by {rates.encoding}" if rates.encoding else ""
        beside = f"floor {rates.floor:g}; holds: {rates.holds}"
        typer.echo(f"{len(rates.probability_rows)} rows with probabilities{encoding}, {beside}")
        for kind, groups in (("measurement", rates.measurements), ("exclusive group", rates.exclusive)):
            for name, members in groups:
                typer.echo(f"{kind} {name}: {', '.join(model.features[j] for j in members)}")
    for said in model.provenance.get("updates", []):
        typer.echo(update_text(said, model.shown))
    shown = table.rename(columns=lambda name: name.removeprefix("unary_").removeprefix("couplings_"))
    typer.echo(shown.to_string(index=False))


@app.command("graph")
def bundle_graph(
    bundle: options.BundleArgument,
    out: Annotated[Path, options.output_option(".graphml", ".json", about="where to write; JSON is in node-link form")],
    entity: Annotated[
        str | None, typer.Option(help="write only the graph of this entity; by default the whole bundle is written")
    ] = None,
) -> None:
    """Write a bundle as a graph.

    In the graph, features are nodes, and couplings are edges. Install `afa[formats]` to use this command.
    """
    from afa.model.bundle import load_bundle
    from afa.model.bundle.graph import write_graph

    model = load_bundle(bundle)
    write_graph(model, out, entity=entity)
    typer.echo(f"{model.name}: the graph of {entity or f'{len(model.entities)} entities'} into {out}")


@app.command("from-graph")
def bundle_from_graph(
    graph: Annotated[Path, typer.Argument(help="graph file: .graphml, or .json in node-link form")],
    out: options.Out,
    entity: Annotated[
        str | None, typer.Option(help="name of the entity; needed if the graph file contains no entity name")
    ] = None,
    name: Annotated[str | None, typer.Option(help="name of the bundle; by default the graph's name")] = None,
    version: Annotated[str | None, typer.Option(help="version of the bundle; by default the graph's version")] = None,
) -> None:
    """Convert a graph file into a bundle.

    Give --entity for a graph file that afa did not write. Install `afa[formats]` to use this command.
    """
    from afa.model.bundle import save_bundle
    from afa.model.bundle.graph import read_graph

    bundle = read_graph(graph, name=name, version=version, entity=entity)
    save_bundle(bundle, out)
    typer.echo(f"{bundle.name}: {len(bundle.entities)} entities, {len(bundle.features)} features into {out}")
