"""The exceptions a user of afa can meet: each says where, what was found, what was expected, and what to do."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from numbers import Real
from typing import Any

LONGEST_PART = 4_000


@dataclass(frozen=True)
class Fault:
    """One thing wrong with an input, in the four parts that let a reader correct it.

    `where` names the file and the row, column or key; `found` and `expected` are short phrases;
    `next_step` is what to do about it. As text it is one line that any terminal can show: what a file holds beside
    printable characters is escaped, and a part of more than `LONGEST_PART` characters is cut.
    """

    where: str
    found: str
    expected: str
    next_step: str

    def __str__(self) -> str:
        where, found, expected, step = map(_shown, (self.where, self.found, self.expected, self.next_step))
        return f"{where}: found {found}; expected {expected}. Next step: {step}."


def _shown(text: str) -> str:
    text = text if len(text) <= LONGEST_PART else text[:LONGEST_PART] + "..."
    if text.isprintable():
        return text
    return "".join(c if c.isprintable() else c.encode("unicode_escape").decode("ascii") for c in text)


class AfaError(Exception):
    """Base of every error that afa raises on purpose; `faults` lists all that was found wrong, in file order.

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
        """Raise an error of all that was found wrong, if anything was."""
        if found := tuple(faults):
            raise cls(found)

    def __reduce__(self) -> tuple[type[AfaError], tuple[tuple[Fault, ...]]]:
        return type(self), (self.faults,)


class ConfigError(AfaError):
    """A configuration key is missing, unknown or out of range."""


class BundleError(AfaError):
    """A bundle, or a model made of it, breaks the contract of the bundle format."""


class CohortError(AfaError):
    """A table of patients, its features, values or labels, or a series, cannot be used as it is or as configured."""


class DownloadError(AfaError):
    """A file could not be fetched, or what came is not the file that was asked for."""


class ElicitationError(AfaError):
    """A recorded or live answer of a language model does not have the form that was asked for."""


class InferenceError(AfaError):
    """Exact inference was asked of a model whose tables would be too large."""


class PlannerError(AfaError):
    """A planner was asked for something that its state does not allow."""


class SanityError(AfaError):
    """A check that must hold does not, or did not notice an input that was broken on purpose."""


class ReportError(AfaError):
    """A figure, a table or a page of the report could not be made."""


class ResourceError(AfaError):
    """The machine has no memory, or no room on its disk, for what was asked."""


def check_number(
    kind: type[AfaError],
    where: str,
    value: Any,
    expected: str,
    fits: Callable[[float], bool],
    step: str = "leave it out, or give such a number",
) -> None:
    """Raise a `kind` unless `value` is a number that fits; True and False are none.

    where, expected, step : parts of its `Fault`. fits : says whether a number is one of those expected.
    """
    if isinstance(value, bool) or not isinstance(value, Real) or not fits(float(value)):
        raise kind(Fault(where, repr(value), expected, step))
