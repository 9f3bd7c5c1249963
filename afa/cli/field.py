"""`afa field` and `afa league`: tables of patients with a dictionary, entities, answers and labels; one, or all."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Literal

import typer

from afa.cli.options import AsJson, FieldArgument, FieldTables, Out, as_json, written

app = typer.Typer(help="Fields: tables with labels, and what models know about them.", no_args_is_help=True)
league = typer.Typer(help="Fields with real labels: how good is zero-shot acquisition?", no_args_is_help=True)


@app.command("import")
def field_import(
    folder: Annotated[Path, typer.Argument(help="dictionary.csv, entities.csv, elicited/, values.csv, labels.csv")],
    out: Out,
    holds: Annotated[
        Literal["several", "one", "one or none"],
        typer.Option(help="how many entities a patient has, by the question asked"),
    ] = "several",
    address: Annotated[
        str | None,
        typer.Option(help="address of the original, if the table may not be copied: only its digest is kept"),
    ] = None,
) -> None:
    """Check a folder of a table, its dictionary and answers, and write it as a field for the workflow."""
    from afa.errors import ConfigError, Fault
    from afa.field import import_field

    if address == "":
        step = "leave it out, if the table may be copied"
        raise ConfigError(Fault("--address", "nothing", "the address of the original", step))
    for remark in import_field(folder, out, holds=holds, address=address):
        typer.echo(remark)
    typer.echo(f"wrote {out}; next: `afa field bundle {out} --out BUNDLE`")


@app.command("bundle")
def field_bundle(
    field: FieldArgument,
    out: Out,
    how_often: Annotated[
        bool, typer.Option(help="with probabilities, cut points and scopes, beside the directions")
    ] = False,
) -> None:
    """Build the bundle that a field's answers make."""
    from afa.field import build_field_bundle

    bundle = build_field_bundle(field, out, how_often=how_often)
    typer.echo(f"wrote {out}: {len(bundle.entities)} entities, {len(bundle.features)} features")


@league.command("field")
def league_field(field: FieldArgument, out: Out, tables: FieldTables = None) -> None:
    """Follow the patients of one field. Without its table, write a note that says so."""
    from afa.files import atomic_folder
    from afa.report.league import NOT_FETCHED
    from afa.stages.league import Settings, follow_field
    from afa.stages.league.entrants import read_entrant
    from afa.stats.tables import write_tables

    entrant = read_entrant(field, tables)
    if isinstance(entrant, str):
        with atomic_folder(out, [NOT_FETCHED]) as made:
            (made / NOT_FETCHED).write_text(entrant + "\n", encoding="utf-8")
        typer.echo(f"{field.name}: {entrant}")
        return
    write_tables(follow_field(entrant, Settings()), out, [NOT_FETCHED])
    typer.echo(f"{entrant.name}: {len(entrant.patients):,} patients, {len(entrant.tasks)} questions")


@league.command("page")
def league_page(
    fields: Annotated[list[Path], typer.Argument(help="what `afa league field` wrote of each field")], out: Out
) -> None:
    """Write the league's page, figure and tables."""
    from afa.report.league import write_league

    write_league(fields, out)
    typer.echo(f"wrote {out}")


@league.command("gains")
def league_gains(
    folder: Annotated[Path, typer.Argument(help="a bundle of directions, or a field with real labels")],
    out: Annotated[Path, written(".csv")],
    patients: Annotated[int, typer.Option(min=10, help="patients drawn from the bundle's own models")] = 400,
    tables: FieldTables = None,
    seed: Annotated[int, typer.Option(min=0, help="of the patients that are drawn")] = 0,
    json: AsJson = False,
) -> None:
    """Compare the gain over entities with sums over duels: how often does the right entity come first?"""
    from afa.errors import CohortError, Fault
    from afa.files import write_csv
    from afa.stages.inputs import load_stage_bundle
    from afa.stages.league.entrants import gains_of_drawn, gains_of_field, read_entrant

    if (folder / "study.yaml").is_file():
        entrant = read_entrant(folder, tables)
        if isinstance(entrant, str):
            raise CohortError(Fault(str(folder), entrant, "the field's table", "name the folder with it: --tables"))
        table = gains_of_field(entrant, seed=seed)
    else:
        table = gains_of_drawn(load_stage_bundle(folder), patients, seed=seed)
    write_csv(table, out, float_format="%.6g")
    first = table.pivot_table(index="gain", columns="t", values="first", sort=False).round(3)
    typer.echo(as_json(table, out=str(out)) if json else first.to_string())
