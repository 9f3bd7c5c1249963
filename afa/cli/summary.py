"""`afa summary`: the rows of what is no stage like the others; `afa summarise` writes those."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from afa.cli.options import Out

app = typer.Typer(help="The numbers of each stage, one to a line.", no_args_is_help=True)

Tables = Annotated[Path, typer.Argument(help="gathered tables of the stage")]


@app.command("errata")
def summary_errata(tables: Tables, out: Out) -> None:
    """The errata: one line a check, and the paper's number where it gives one."""
    from afa.checks.errata import summarise_errata
    from afa.stats.summary import write_summary
    from afa.stats.tables import read_table

    write_summary([summarise_errata(read_table(tables, "errata"))], out)
