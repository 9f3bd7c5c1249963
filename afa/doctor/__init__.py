"""What `afa doctor` looks at before a run: findings, each one thing that was checked."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Literal

from afa.errors import AfaError


@dataclass(frozen=True)
class Finding:
    """`found` is one line; `next_step` is empty only where nothing is to be done.

    A fault stops the run, or would spoil it; a warning leaves it to the reader.
    """

    level: Literal["ok", "warning", "fault"]
    check: str
    found: str
    next_step: str = ""

    def __str__(self) -> str:
        step = f" Next step: {self.next_step}." if self.next_step else ""
        return f"{self.level:<8} {self.check:<12} {self.found}.{step}"


class Findings(list[Finding]):
    """What the checks have found so far: each adds to it, and returns what later checks need to know."""

    def ok(self, check: str, found: str) -> None:
        self.append(Finding("ok", check, found))

    def warning(self, check: str, found: str, next_step: str = "") -> None:
        self.append(Finding("warning", check, found, next_step))

    def fault(self, check: str, found: str, next_step: str) -> None:
        self.append(Finding("fault", check, found, next_step))

    @contextmanager
    def of_errors(self, check: str) -> Iterator[None]:
        """End the block where something is refused, with a fault for everything that the error lists."""
        try:
            yield
        except AfaError as error:
            for each in error.faults:
                self.fault(check, f"{each.where}: found {each.found}; expected {each.expected}", each.next_step)


def counted(number: int, noun: str) -> str:
    """`1 fault`, `2 faults`."""
    return f"{number} {noun}" if number == 1 else f"{number} {noun}s"


def size_text(megabytes: float) -> str:
    """A size as people say it, in MB below 1 GB (10^3 MB)."""
    if megabytes < 1:
        return "under 1 MB"
    return f"{megabytes / 1000:.1f} GB" if megabytes >= 1000 else f"{megabytes:.0f} MB"
