"""`afa field`: a table of patients with its dictionary, entities, answers and labels."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Literal

import typer

from afa.cli.options import Out

app = typer.Typer(help="Fields: tables with labels, and what models know about them.", no_args_is_help=True)


@app.command("import")
def field_import(
    folder: Annotated[Path, typer.Argument(help="dictionary.csv, entities.csv, elicited/, values.csv, labels.csv")],
    out: Out,
    holds: Annotated[
        Literal["several", "one", "one or none"], typer.Option(help="entities that a patient has, by the question")
    ] = "several",
    address: Annotated[
        str | None, typer.Option(help="of the original, where the table may not be carried: only its digest is kept")
    ] = None,
) -> None:
    """Make a field of a folder, in the form that the workflow takes."""
    from afa.field import import_field

    for remark in import_field(folder, out, holds=holds, address=address):
        typer.echo(remark)
    typer.echo(f"wrote {out}: run with COHORT={out.name}")


@app.command("bundle")
def field_bundle(
    folder: Annotated[Path, typer.Argument(help="folder of a field")],
    out: Out,
    how_often: Annotated[bool, typer.Option(help="probabilities, cut points and scopes beside the directions")] = False,
) -> None:
    """Build the bundle that a field's answers make."""
    from afa.field import build_field_bundle

    bundle = build_field_bundle(folder, out, how_often=how_often)
    typer.echo(f"wrote {out}: {len(bundle.entities)} entities, {len(bundle.features)} features")
