"""Define the command line `afa`. Each rule of the Snakemake workflow runs a command of `afa`.

Slow modules are imported inside the commands that need them, so that `afa --help` is quick, and so that the code digest
of a command covers only the modules that this command runs.
"""

from __future__ import annotations

import codecs
import gc
import io
import os
import re
import signal
import sys
from contextlib import suppress
from pathlib import Path
from typing import Annotated

import typer

import afa
from afa.cli import bundle, cohort, elicit, options, plan, report, simulate, stage, update
from afa.cli.failures import as_error
from afa.paper.sources import check_sources

NEW_OBJECTS = 50_000
"""New objects between two garbage collections: almost all objects made while a command imports and loads stay in use.
"""

app = typer.Typer(
    help="Says which measurement to take next, from what you know.",
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"]},
)
for command in (plan.demo, plan.plan, plan.serve, simulate.simulate, simulate.score, update.update, cohort.encode):
    app.command()(command)
app.add_typer(bundle.app, name="bundle")
app.add_typer(elicit.app, name="elicit")

# The last line of `afa --help` lists the command groups that build data sets or run workflow rules.
DATA_COMMANDS = {
    "field": cohort.fields,
    "cohort": cohort.app,
    "league": cohort.league,
    "experiment": stage.experiments,
    "summary": stage.summaries,
}
for name, others in DATA_COMMANDS.items():
    app.add_typer(others, name=name, hidden=True)
report_commands = [inner.name for inner in report.app.registered_commands]
app.info.epilog = (
    f"Other commands, for fields and the workflow: {', '.join([*DATA_COMMANDS, *map(str, report_commands)])}."
)
for inner in (*report.app.registered_commands, *stage.app.registered_commands):
    inner.hidden = True
    app.registered_commands.append(inner)
for group in (app, *(each.typer_instance for each in app.registered_groups if each.typer_instance)):
    for inner in group.registered_commands:
        if inner.callback is not None:
            inner.callback = options.prepared(inner.callback)

DEBUG = "--debug"


def _print_version(asked: bool) -> None:
    if asked:
        typer.echo(f"afa {afa.__version__}")
        raise typer.Exit


@app.callback()
def _define_global_options(
    debug: Annotated[bool, typer.Option(DEBUG, help="show the traceback of an error")] = False,
    version: Annotated[
        bool, typer.Option("--version", callback=_print_version, is_eager=True, help="print the version and exit")
    ] = False,
) -> None:
    """Define the options that precede the subcommand: `--debug` and `--version`."""


def _prepare_streams() -> None:
    """Replace closed streams by the null device, and prevent errors on characters that a stream cannot encode."""
    for name, mode in (("stdin", "r"), ("stdout", "w"), ("stderr", "w")):
        stream = getattr(sys, name)
        if stream is None:
            setattr(sys, name, Path(os.devnull).open(mode, encoding="utf-8"))  # noqa: SIM115 (until the end)
        elif isinstance(stream, io.TextIOWrapper) and stream is not sys.stderr:  # stderr escapes such characters
            keeps_bytes = name == "stdin" or codecs.lookup(stream.encoding).name == "utf-8"
            stream.reconfigure(errors="surrogateescape" if keeps_bytes else "replace")


def main() -> None:
    """Run `afa`. If an error occurs that the user can fix, print it without a traceback, and exit with code 2.

    SIGTERM raises SystemExit, so that a job cancelled by a cluster still removes its incomplete files.
    """
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(128 + signal.SIGTERM))
    gc.set_threshold(NEW_OBJECTS)
    _prepare_streams()
    try:
        code = app(prog_name="afa", standalone_mode=False)
        check_sources(sys.argv[1:])
        sys.exit(code)
    except typer.Abort:
        sys.exit(1)
    except Exception as error:
        if type(error).__name__ == "NoArgsIsHelpError":
            error.show()  # type: ignore[attr-defined]
            sys.exit(2)
        failure = as_error(error, sys.argv[1:])
        if failure is None or DEBUG in sys.argv:
            raise
        with suppress(OSError):  # printing to a log on a full disk raises OSError
            for fault in failure.faults:
                # The message about a mistyped command line already begins with `afa`.
                said = re.sub(r"^afa(: | )", "", str(fault))
                typer.echo(f"afa: {said}", err=True)
        sys.exit(2)
