"""`afa bundle graph`, `from-graph` and `from-hpo`: bundles as other programs write and read them."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Literal

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


@app.command("from-hpo")
def bundle_from_hpo(
    annotations: Annotated[Path, typer.Argument(help="phenotype.hpoa, or the older .tab tables or their folder")],
    ontology: Annotated[Path, typer.Argument(help="hp.obo of the annotations' time; .gz or not")],
    date: Annotated[str, typer.Option(help="day or release of the annotations, to be cited")],
    out: Out,
    unstated: Annotated[float, typer.Option(help="P of a sign that is annotated without a frequency")] = 0.5,
    costs: Annotated[
        Literal["equal", "depth", "organ"], typer.Option(help="of asking: alike, by depth, or by what can be seen")
    ] = "equal",
    panels: Annotated[
        Path | None, typer.Option(help="write panels by organ system here, for afa plan --panels")
    ] = None,
) -> None:
    """Write the bundle of the Human Phenotype Ontology's diseases and signs (docs/phenotypes.md)."""
    from afa.formats import hpo_bundle

    known = hpo_bundle.bundle_from_hpo(annotations, ontology, date, out, unstated=unstated, costs=costs, panels=panels)
    lost = sum(known.unknown.values())
    typer.echo(f"{len(known.diseases)} diseases, {len(known.terms)} signs into {out}")
    if lost:
        typer.echo(f"note: {lost} annotations name a term that the ontology lacks")
