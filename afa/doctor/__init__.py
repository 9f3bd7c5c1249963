"""What `afa doctor` looks at before a run: findings, each one thing that was checked.

A check yields its findings, and returns what later checks need to know.
"""

from __future__ import annotations

from collections.abc import Callable, Generator, Iterable, Iterator
from dataclasses import dataclass
from functools import wraps
from typing import Literal, ParamSpec, TypeAlias, TypeVar

from afa.errors import AfaError, Fault

Level = Literal["ok", "warning", "fault"]
Given = ParamSpec("Given")
Known = TypeVar("Known")


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


Checked: TypeAlias = Generator[Finding, None, Known]
"""A check: its findings, and what it returns."""


def ok(check: str, found: str) -> Finding:
    return Finding("ok", check, found)


def warning(check: str, found: str, next_step: str = "") -> Finding:
    return Finding("warning", check, found, next_step)


def fault(check: str, found: str, next_step: str) -> Finding:
    return Finding("fault", check, found, next_step)


def of_faults(check: str, faults: Iterable[Fault]) -> Iterator[Finding]:
    """A finding for each fault of an error."""
    for each in faults:
        yield fault(check, f"{each.where}: found {each.found}; expected {each.expected}", each.next_step)


def tried(check: str, attempt: Callable[..., Known], *arguments: object) -> Checked[Known | None]:
    """What an attempt returns; where it is refused, a fault for everything that the error lists, and None."""
    try:
        return attempt(*arguments)
    except AfaError as error:
        yield from of_faults(check, error.faults)
        return None


def ends_with_errors(check: str) -> Callable[[Callable[Given, Checked[Known]]], Callable[Given, Checked[Known | None]]]:
    """A check that ends where something is refused, with a fault for everything that the error lists, and None."""

    def decorated(steps: Callable[Given, Checked[Known]]) -> Callable[Given, Checked[Known | None]]:
        @wraps(steps)
        def checked(*arguments: Given.args, **options: Given.kwargs) -> Checked[Known | None]:
            try:
                return (yield from steps(*arguments, **options))
            except AfaError as error:
                yield from of_faults(check, error.faults)
                return None

        return checked

    return decorated


def gathered(check: Checked[Known]) -> tuple[list[Finding], Known]:
    """The findings of a check, and what it returns."""
    findings = []
    while True:
        try:
            findings.append(next(check))
        except StopIteration as end:
            return findings, end.value


def counted(number: int, noun: str) -> str:
    """`1 fault`, `2 faults`."""
    return f"{number} {noun}" if number == 1 else f"{number} {noun}s"


def size_text(megabytes: float) -> str:
    """A size as people say it, in MB below 1 GB (10^3 MB)."""
    if megabytes < 1:
        return "under 1 MB"
    return f"{megabytes / 1000:.1f} GB" if megabytes >= 1000 else f"{megabytes:.0f} MB"
