"""A finding: one thing that was checked, how it stands, and what to do where it stands badly."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Literal

from afa.errors import AfaError, Fault

Level = Literal["ok", "warning", "fault"]


@dataclass(frozen=True)
class Finding:
    """`found` is one line; `next_step` is empty only where nothing is to be done.

    A fault stops the run, or would spoil it; a warning leaves it to the reader.
    """

    level: Level
    check: str
    found: str
    next_step: str = ""

    def __str__(self) -> str:
        step = f" Next step: {self.next_step}." if self.next_step else ""
        return f"{self.level:<8} {self.check:<12} {self.found}.{step}"


def ok(check: str, found: str) -> Finding:
    return Finding("ok", check, found)


def warning(check: str, found: str, next_step: str = "") -> Finding:
    return Finding("warning", check, found, next_step)


def fault(check: str, found: str, next_step: str) -> Finding:
    return Finding("fault", check, found, next_step)


def of_error(check: str, error: AfaError | Iterable[Fault]) -> list[Finding]:
    """A fault for everything that an error lists."""
    faults = error.faults if isinstance(error, AfaError) else error
    return [
        fault(check, f"{each.where}: found {each.found}; expected {each.expected}", each.next_step) for each in faults
    ]


def counted(number: int, noun: str) -> str:
    """`1 fault`, `2 faults`."""
    return f"{number} {noun}" if number == 1 else f"{number} {noun}s"


def size_text(megabytes: float) -> str:
    """A size as people say it, in MB below 1 GB (10^3 MB)."""
    if megabytes < 1:
        return "under 1 MB"
    return f"{megabytes / 1000:.1f} GB" if megabytes >= 1000 else f"{megabytes:.0f} MB"
