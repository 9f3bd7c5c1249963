"""Libraries that only these formats need: imported on first use, with one clear error where they are not installed."""

from __future__ import annotations

from importlib import import_module
from typing import Any

from afa.errors import AfaError, Fault


def library(module: str) -> Any:
    """The module of an optional library; an `AfaError` that says how to install it where there is none."""
    try:
        return import_module(module)
    except ModuleNotFoundError as error:
        package = module.partition(".")[0]
        if error.name is None or error.name.partition(".")[0] != package:
            raise
        step = "run `pip install 'afa[formats]'`"
        raise AfaError(Fault(package, "no such library", f"{package}, which this format needs", step)) from None
