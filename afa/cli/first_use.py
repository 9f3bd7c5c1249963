"""The first use of the planner on a machine: kernels are compiled once, and until then small bundles do without."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING

import typer

if TYPE_CHECKING:
    from afa.bundle import Bundle

SMALL = 200_000
"""Entities squared times features: up to here a decision without compiled kernels takes a fraction of a second."""


def prepare(bundle: Bundle | None = None) -> None:
    """Say what is waited for where no compiled kernels have been kept yet.

    A small bundle is planned with the same kernels uncompiled, while another process compiles them for the next time;
    that has to be decided before any of them is imported.
    """
    loaded = any(name.startswith("afa.engine.") for name in sys.modules)

    from afa.engine import compile as compiling

    if compiling.planners_are_ready():
        return
    small = bundle is not None and len(bundle.entities) ** 2 * len(bundle.features) <= SMALL
    if small and not loaded:
        compiling.do_without()
        background = [sys.executable, "-m", "afa.engine.warm", "planners"]
        subprocess.Popen(
            background,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            start_new_session=True,
        )
        words = "first use: loading takes some seconds; another process prepares faster starts, for about half a minute"
    elif any(Path(compiling.CACHE_FOLDER).rglob("*.nbc")):
        return
    else:
        words = "first use of this version: compiling for about half a minute; later it starts at once"
    if sys.stderr.isatty():
        typer.echo(words, err=True)
