"""What to say before the first use of the planner on a machine, when its kernels are compiled."""

from __future__ import annotations

import sys
from pathlib import Path

import typer


def tell_first_use() -> None:
    """Tell somebody at a terminal that a while will pass, where no compiled kernels have been kept yet."""
    from afa.engine.compile import CACHE_FOLDER

    if sys.stderr.isatty() and not any(Path(CACHE_FOLDER).rglob("*.nbc")):
        typer.echo("first use of this version: compiling for about half a minute; later it starts at once", err=True)
