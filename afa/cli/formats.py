"""`afa bundle graph` and `afa bundle from-graph`: bundles as graph files that other programs read and write."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from afa.cli.options import Out

app = typer.Typer()


@app.command("graph")
def bundle_graph(
    bundle: Annotated[Path, typer.Argument(help="bundle folder")],
    out: Annotated[Path, typer.Option("--out", help="a file .graphml, or .json for node-link JSON")],
    entity: Annotated[str | None, typer.Option(help="the graph of this entity alone; of the whole bundle else")] = None,
) -> None:
    """Write a bundle as a graph: features are nodes, couplings edges. Needs the extra `formats` of afa."""
    from afa.bundle import load_bundle
    from afa.formats.graph_file import write_graph

    model = load_bundle(bundle)
    write_graph(model, out, entity=entity)
    typer.echo(f"{model.name}: the graph of {entity or f'{len(model.entities)} entities'} into {out}")


@app.command("from-graph")
def bundle_from_graph(
    graph: Annotated[Path, typer.Argument(help="a file .graphml, or .json for node-link JSON")],
    out: Out,
    entity: Annotated[str | None, typer.Option(help="what the graph describes, where it lists no entities")] = None,
    name: Annotated[str | None, typer.Option(help="of the bundle; that of the graph unless given")] = None,
    version: Annotated[str | None, typer.Option(help="of the bundle; that of the graph unless given")] = None,
) -> None:
    """Write the bundle that a graph holds; a graph drawn elsewhere needs --entity. Needs the extra `formats` of afa."""
    from afa.bundle import save_bundle
    from afa.formats.graph_file import read_graph

    bundle = read_graph(graph, name=name, version=version, entity=entity)
    save_bundle(bundle, out)
    typer.echo(f"{bundle.name}: {len(bundle.entities)} entities, {len(bundle.features)} features into {out}")
