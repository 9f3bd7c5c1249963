"""What a check of `afa doctor` finds, and what it returns."""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeVar

from afa.doctor.checks import Findings

Known = TypeVar("Known")


def gathered(check: Callable[..., Known], *given: object, **options: object) -> tuple[Findings, Known]:
    """The findings of a check, and what it returns."""
    findings = Findings()
    known = check(findings, *given, **options)
    return findings, known


def listed(check: Callable[..., object], *given: object, **options: object) -> Findings:
    """The findings of a check."""
    return gathered(check, *given, **options)[0]
