"""Gates: checks that must hold, each with copies broken on purpose that must fail.

A check looks at every case of a subject and counts those that do not hold. A check that passes says little unless it
can fail, so that each gate also checks inputs broken in a known way: where one of those passes, the gate itself is at
fault. Broken copies are made of the synthetic subjects only, which are the same in every run: whether a fault shows on
a user's own bundle would depend on the bundle.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from afa.checks.sanity.subject import Subject
from afa.errors import Fault, SanityError

FEW = 3


@dataclass(frozen=True)
class Failure:
    """A case that does not hold: which it is (entity or pair, patient, t), what was found and what should have been."""

    case: str
    found: str
    expected: str


@dataclass(frozen=True)
class Outcome:
    """How many cases were looked at, how many failed, and the first few of those in words."""

    cases: int = 0
    failures: int = 0
    failing: tuple[Failure, ...] = ()

    def __add__(self, other: Outcome) -> Outcome:
        failing = (*self.failing, *other.failing)[:FEW]
        return Outcome(self.cases + other.cases, self.failures + other.failures, failing)

    @classmethod
    def of(cls, wrong: NDArray[np.bool_], describe: Callable[..., Failure]) -> Outcome:
        """The outcome of an array of cases of any shape; `describe` is given the indices of a wrong one."""
        places = np.argwhere(wrong)
        return cls(wrong.size, len(places), tuple(describe(*map(int, place)) for place in places[:FEW]))


Check = Callable[[Subject], Outcome]


@dataclass(frozen=True)
class Gate:
    """A check by name, copies of it on broken inputs, and what to do where it fails on a run's own inputs."""

    name: str
    check: Check
    perturbed: tuple[Check, ...]
    next_step: str


def run_gates(gates: Sequence[Gate], run: Subject, synthetic: Sequence[Subject]) -> pd.DataFrame:
    """One row per gate and input (`run`, `synthetic`).

    cases, failures : of the check. perturbed_failures : failures on the broken copy that was noticed least, missing
    for `run`. first_case, found, expected : of the first failing case, empty where there is none. further_cases : one
    or two more.
    """
    rows: list[dict[str, object]] = []
    for gate in gates:
        broken = [_over(check, synthetic).failures for check in gate.perturbed]
        for name, subjects, noticed in (("run", [run], None), ("synthetic", synthetic, min(broken, default=0))):
            outcome = _over(gate.check, subjects)
            first = outcome.failing[0] if outcome.failing else Failure("", "", "")
            rows.append(
                {
                    "name": gate.name,
                    "input": name,
                    "cases": outcome.cases,
                    "failures": outcome.failures,
                    "perturbed_failures": noticed,
                    "first_case": first.case,
                    "found": first.found,
                    "expected": first.expected,
                    "further_cases": "; ".join(failure.case for failure in outcome.failing[1:]),
                }
            )
    return pd.DataFrame(rows).astype({"perturbed_failures": "Int64"})


def raise_on_failed_gates(table: pd.DataFrame, gates: Sequence[Gate]) -> None:
    """Raise a `SanityError` with a fault per failing row of the table of `run_gates`, or return."""
    next_steps = {gate.name: gate.next_step for gate in gates}
    faults = []
    for row in table.to_dict("records"):
        where = f"sanity check {row['name']} ({row['input']})"
        if row["failures"]:
            found = f"{row['first_case']}: {row['found']} ({row['failures']} of {row['cases']} cases)"
            faults.append(Fault(where, found, row["expected"], next_steps[row["name"]]))
        if row["input"] == "synthetic" and not row["perturbed_failures"]:
            found = f"no failure among the {row['cases']} cases of a copy broken on purpose"
            step = "repair the check: it cannot fail"
            faults.append(Fault(where, found, "at least one", step))
    if faults:
        raise SanityError(faults)


def _over(check: Check, subjects: Sequence[Subject]) -> Outcome:
    return sum((check(subject) for subject in subjects), Outcome())
