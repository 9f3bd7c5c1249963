"""Numbers of this run as the answers name them: a line of the summary, its complement, or a fact of the cohort."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
import pandas as pd

from afa.cohort.cohort import Cohort
from afa.report.answers import END, Answers, is_number, relation_of
from afa.report.lines import Lines
from afa.report.verdicts import DIFFERENCE, Number, Relation, number

SHARES = ("accuracy", "balanced_accuracy", "rate", "p_at_k", "r_precision", "prevalence", "majority")
"""Metrics that are shares; `gap` is a difference of two."""
HUNDREDTHS = ("percent", DIFFERENCE)


@dataclass(frozen=True)
class Facts:
    """What is known of the cohort itself: its name, whether it is simulated, and numbers that claims ask for."""

    cohort: str
    simulated: bool
    numbers: Mapping[str, float]

    @property
    def n_features(self) -> int:
        return int(self.numbers["features"])


def facts_of(cohort: Cohort) -> Facts:
    """Facts `patients`, `features`, `labelled` (entities with a column of labels) and `zeros` (share of the values)."""
    numbers = {
        "patients": len(cohort.patients),
        "features": len(cohort.features),
        "labelled": cohort.labels.shape[1],
        "zeros": float(np.mean(cohort.values == 0)),
    }
    return Facts(cohort.name, cohort.provenance.get("origin") == "simulated", numbers)


@dataclass(frozen=True)
class Found:
    """A number of this run as people read it, shares in percent and their differences in percentage points.

    unit : one of `HUNDREDTHS`, or another one, in which the number stays as it is. n : cases behind it.
    """

    number: Number
    unit: str = ""
    n: float = math.nan

    def in_unit(self, unit: str) -> Number:
        """The number in the paper's unit, a share that is not printed in percent from 0 to 1."""
        in_hundredths = self.unit in HUNDREDTHS and unit not in HUNDREDTHS
        return self.number.scaled(0.01) if in_hundredths else self.number


@dataclass(frozen=True)
class Reader:
    """Looks readings up in one run."""

    summary: Lines
    answers: Answers
    facts: Facts

    @cached_property
    def _tables(self) -> set[str]:
        return set(self.summary.rows["table"])

    def fact(self, name: str, unit: str) -> Found:
        """A fact of the cohort; a share in percent."""
        value = self.facts.numbers[name]
        return Found(Number(100 * value), "percent") if unit == "share" else Found(Number(value))

    def line(self, reading: str, *, complement: bool = False) -> Found | None:
        """The number of a reading; None where the summary has no such line, or one without a number."""
        line = self.summary.find(self._where(reading))
        if line is None or pd.isna(line["value"]):
            return None
        found = Number(*(float(line[name]) for name in ("value", "low", "high")))
        unit = DIFFERENCE if line["metric"] == "gap" else "percent" if line["metric"] in SHARES else ""
        found = found.complement() if complement else found
        return Found(found.scaled(100) if unit else found, unit, float(line["n"]))

    def missing(self, reading: str) -> str:
        """Why a reading has no number."""
        table = self._where(reading)["table"]
        return f"no number for {reading}" if table in self._tables else f"no table {table} in this run"

    def relation(self, text: str) -> Relation | str:
        """A relation with its numbers as people read them; what is missing where one is."""
        left, operator, right = relation_of(text)
        found = self.line(left)
        if found is None:
            return self.missing(left)
        if is_number(right):
            other = Found(Number(float(right) * (100 if found.unit else 1)))
        elif (read := self.line(right)) is None:
            return self.missing(right)
        else:
            other = read
        beside = number(other.number.value) if is_number(right) else _with_interval(other.number)
        shown = f"{text}: {_with_interval(found.number)} against {beside}"
        return Relation(found.number, operator, other.number, shown)

    def first(self, text: str) -> Found | None:
        """What stands for a relation in a table: its left side where the right is a number, else their difference."""
        left, _, right = relation_of(text)
        found = self.line(left)
        if found is None or is_number(right):
            return found
        other = self.line(right)
        if other is None:
            return None
        unit = DIFFERENCE if found.unit else ""
        return Found(Number(found.number.value - other.number.value), unit, min(found.n, other.n))

    def _where(self, reading: str) -> dict[str, Any]:
        keys = self.answers.keys(reading)
        return {**keys, "t": self.facts.n_features} if keys.get("t") == END else keys


def _with_interval(ours: Number) -> str:
    if math.isnan(ours.low):
        return number(ours.value)
    return f"{number(ours.value)} [{number(ours.low)}, {number(ours.high)}]"
