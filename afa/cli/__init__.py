"""The command line: one subcommand per stage, files in and files out; a rule of the workflow is one call.

Imports stand inside the commands, so that `afa --help` is quick and each command's code digest covers what that
command runs and nothing else.
"""

from __future__ import annotations

import sys
from typing import Annotated

import typer

from afa.cli import bundle, cohort, doctor, experiment, report, summary, topk
from afa.errors import AfaError

app = typer.Typer(
    help="Zero-shot active feature acquisition: which measurement to take next, from elicited potentials alone.",
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    add_completion=False,
)
app.add_typer(cohort.app, name="cohort")
app.add_typer(bundle.app, name="bundle")
experiment.app.add_typer(topk.app)
app.add_typer(experiment.app, name="experiment")
app.add_typer(summary.app, name="summary")
app.add_typer(report.app)
app.command()(doctor.doctor)

DEBUG = "--debug"


@app.callback()
def _root(
    debug: Annotated[bool, typer.Option(DEBUG, help="show the traceback of an error")] = False,
) -> None:
    """Options that stand before the subcommand."""


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
