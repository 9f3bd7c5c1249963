"""Define the exceptions of afa. A message states the place, what was found, what was expected, and the next step."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from numbers import Real
from typing import Any

LONGEST_PART = 4_000


@dataclass(frozen=True)
class Fault:
    """One error in an input: its place, what was found, what was expected, and how to correct it.

    The attribute `where` names the file and the row, column or key. `found` and `expected` are short phrases, and
    `next_step` is an instruction. The text `str(fault)` is one line, in which characters that cannot be printed are
    escaped. Each of the four attributes is cut after `LONGEST_PART` characters.
    """

    where: str
    found: str
    expected: str
    next_step: str

    def __str__(self) -> str:
        where, found, expected, step = map(_printable_text, (self.where, self.found, self.expected, self.next_step))
        return f"{where}: found {found}; expected {expected}. Next step: {step}."


def _printable_text(text: str) -> str:
    text = text if len(text) <= LONGEST_PART else text[:LONGEST_PART] + "..."
    if text.isprintable():
        return text
    return "".join(c if c.isprintable() else c.encode("unicode_escape").decode("ascii") for c in text)


class AfaError(Exception):
    """Base class of every error that afa raises on purpose. `faults` lists all errors found, in file order.

    >>> try:
    ...     raise BundleError(Fault("unary.csv, line 9", "'low'", "a finite number", "correct the number"))
    ... except AfaError as error:
    ...     print(error, error.faults[0].next_step, sep="; ")
    unary.csv, line 9: found 'low'; expected a finite number. Next step: correct the number.; correct the number
    """

    def __init__(self, faults: Fault | Iterable[Fault]) -> None:
        self.faults: tuple[Fault, ...] = (faults,) if isinstance(faults, Fault) else tuple(faults)
        super().__init__("\n".join(map(str, self.faults)))

    @classmethod
    def raise_for(cls, faults: Iterable[Fault]) -> None:
        """Raise one exception for all errors in `faults`, unless `faults` is empty."""
        if found := tuple(faults):
            raise cls(found)

    def __reduce__(self) -> tuple[type[AfaError], tuple[tuple[Fault, ...]]]:
        return type(self), (self.faults,)


class ConfigError(AfaError):
    """Raised if a configuration key is missing, unknown or out of range."""


class BundleError(AfaError):
    """Raised if a bundle, or a model made from a bundle, violates the bundle format."""


class CohortError(AfaError):
    """Raised if a table or a GEO series of patients is invalid, or contradicts the cohort's configuration."""


class DownloadError(AfaError):
    """Raised if a file could not be downloaded, or if the downloaded content is not the expected file."""


class ElicitationError(AfaError):
    """Raised if a recorded or live answer of a language model does not have the requested form."""


class InferenceError(AfaError):
    """Raised if exact inference would need too much memory."""


class PlannerError(AfaError):
    """Raised if a planner's state or options do not allow a request."""


class SanityError(AfaError):
    """Raised if a sanity check failed, or did not detect an input that was corrupted on purpose."""


class ReportError(AfaError):
    """Raised if a figure, a table or a page of the report could not be made."""


class ResourceError(AfaError):
    """Raised if the machine lacks memory or disk space for the request."""


def check_number(
    kind: type[AfaError],
    where: str,
    value: Any,
    expected: str,
    fits: Callable[[float], bool],
    step: str = "leave it out, or give such a number",
) -> None:
    """Raise an exception of class `kind` unless `value` is a number and `fits(value)` is True.

    A bool does not count as a number.

    Parameters
    ----------
    where, expected, step : texts of its `Fault`
    fits : function that returns True for valid numbers

    """
    if isinstance(value, bool) or not isinstance(value, Real) or not fits(float(value)):
        raise kind(Fault(where, repr(value), expected, step))
