"""Whether a planner needs compiled kernels, and what is waited for where none have been kept yet."""

from __future__ import annotations

import subprocess
import sys
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from afa.bundle import Bundle

LOADING = "loading"
SMALL, MIDDLE = 20_000, 200_000
"""Entities squared times features: up to here a decision takes some 20 or 200 ms without compiled kernels."""


def prepare(bundle: Bundle | None = None) -> str:
    """What is waited for now, in words.

    A small bundle is planned without compiled kernels, which take longer to load than it takes to plan. One of middle
    size does without them until another process has compiled them. It is decided before any kernel is imported.
    """
    loaded = any(name.startswith("afa.engine.") for name in sys.modules)

    from afa.engine import compile as compiling

    size = len(bundle.entities) ** 2 * len(bundle.features) if bundle is not None else MIDDLE + 1
    if size <= SMALL and not loaded:
        compiling.do_without()
    elif compiling.planners_are_ready():
        pass
    elif size <= MIDDLE and not loaded:
        compiling.do_without()
        background = [sys.executable, "-m", "afa.engine.warm", "planners"]
        quiet = subprocess.DEVNULL
        subprocess.Popen(background, stdin=quiet, stdout=quiet, stderr=quiet, start_new_session=True)
        return "first use: loading; another process prepares faster starts"
    elif not compiling.some_are_kept():
        return "first use: compiling for about half a minute; later it starts at once"
    return LOADING
