"""What answers each printed cell and claim of the paper, `resources/paper/answers.yaml`, and its numbers in a run.

A *reading* is a line of the summary in short: a name of `lines`, which stands for its key columns, and keys that are
added or changed, such as `chaos t=10 stratum=chaotic`; `t=M` is full observation. A *relation* is two readings, or a
reading and a number, with `>`, `<` or `=` between.
"""

from __future__ import annotations

import math
import shlex
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from fnmatch import fnmatchcase
from functools import cached_property
from pathlib import Path
from typing import Any, Literal

import numpy as np
import pandas as pd
from pydantic import Field

from afa.cohort.cohort import Cohort
from afa.errors import ConfigError, Fault
from afa.report.paper_tables import Lines
from afa.report.verdicts import DIFFERENCE, OPERATORS, Number, Relation, number
from afa.stats.summary import KEYS
from afa.yamlfile import Strict, load_model

Kind = Literal["row", "paired", "erratum", "decision", "background", "not_comparable", "not_run"]
READ: tuple[Kind, ...] = ("row", "paired", "erratum")
"""Answers that are judged by a number of this run; the others say why there is none to judge."""
END = "M"
SHARES = ("accuracy", "balanced_accuracy", "rate", "p_at_k", "r_precision", "prevalence", "majority")
"""Metrics that are shares; `gap` is a difference of two."""
HUNDREDTHS = ("percent", DIFFERENCE)


class Answer(Strict):
    """Where one claim is answered, or why it is not; what is judged is one of `cell`, `line`, `fact` and `holds`."""

    answer: Kind
    cell: str | None = Field(None, description="`table | row | column` of a printed cell: answered by the same line")
    line: str | None = Field(None, description="a reading")
    fact: str | None = Field(None, description="a number of the cohort itself, such as `patients`")
    holds: tuple[str, ...] = Field((), description="relations that the claim comes to, all of them")
    complement: bool = Field(False, description="1 less the reading")
    bound: Literal["at most", "at least"] | None = None
    patients: int | None = Field(None, description="behind the paper's share; for a cell, that of its table")
    definition: bool = Field(False, description="true by definition, so that reproducing it says nothing")
    see: tuple[str, ...] = Field((), description="ids of docs/errata.md and docs/decisions.md")
    why: str | None = Field(None, description="a name of `reasons`, or the reason itself")


class CellRule(Strict):
    """Cells, by patterns of row and column, that are not judged, with the reason, or judged with a note."""

    table: str
    row: str = "*"
    column: str = "*"
    answer: Literal["judged", "not_comparable", "not_run"]
    why: str | None = None
    definition: bool = False
    see: tuple[str, ...] = ()

    def covers(self, table: str, row: str, column: str) -> bool:
        return table == self.table and fnmatchcase(row, self.row) and fnmatchcase(column, self.column)


class Place(Strict):
    """Where a table of the paper stands in the report: a notebook, or the reason why it has no number there."""

    notebook: str | None = None
    why: str | None = None


class Answers(Strict):
    """The whole file; `patients` are those behind each printed table, by its file name."""

    patients: Mapping[str, int]
    reasons: Mapping[str, str]
    lines: Mapping[str, Mapping[str, str | int | float]]
    cells: tuple[CellRule, ...]
    places: Mapping[str, Place]
    claims: Mapping[str, Answer]

    def reason(self, why: str | None) -> str:
        """The text of a reason given by name; the reason itself where it has none."""
        return "" if why is None else self.reasons.get(why, why)

    def keys(self, reading: str) -> dict[str, str | int | float]:
        """Key columns of a reading; a `ConfigError` where it names no line or a column that is no key."""
        name, *pairs = shlex.split(reading)
        if name not in self.lines:
            raise _wrong(reading, f"no line {name}", "a name of `lines`, then key=value")
        keys: dict[str, str | int | float] = dict(self.lines[name])
        for pair in pairs:
            key, equals, value = pair.partition("=")
            if not equals:
                raise _wrong(reading, repr(pair), "key=value")
            keys[key] = float(value) if key == "level" else int(value) if key == "t" and value != END else value
        if unknown := sorted(set(keys) - set(KEYS)):
            raise _wrong(reading, f"no key column {', '.join(unknown)}", ", ".join(KEYS))
        return keys


def load_answers(path: Path) -> Answers:
    """Read and check the file: every claim has what its answer needs, every name stands for something.

    Raises
    ------
    ConfigError : every claim, cell or line that is wrong.

    """
    answers = load_model(path, Answers)
    faults = [Fault(f"{path}, {where}", found, expected, "correct it") for where, found, expected in _faults(answers)]
    if faults:
        raise ConfigError(faults)
    return answers


def relation_of(text: str) -> tuple[str, str, str]:
    """Left side, operator and right side of a relation; a `ConfigError` where there is not exactly one operator."""
    words = shlex.split(text)
    found = [word for word in words if word in OPERATORS]
    if len(found) != 1:
        raise _wrong(text, f"{len(found)} operators", f"one of {' '.join(OPERATORS)} with blanks around it")
    left, _, right = text.partition(f" {found[0]} ")
    return left.strip(), found[0], right.strip()


def is_number(side: str) -> bool:
    """Whether a side of a relation is a number rather than a reading."""
    try:
        float(side)
    except ValueError:
        return False
    return True


def _faults(answers: Answers) -> Iterator[tuple[str, str, str]]:
    for rule in answers.cells:
        if rule.answer != "judged" and rule.why is None:
            yield f"cells of {rule.table}", f"{rule.answer} without a reason", "why"
    for label, place in answers.places.items():
        if (place.notebook is None) == (place.why is None):
            yield f"place {label}", "both or neither", "a notebook or a reason"
    for name, claim in answers.claims.items():
        yield from ((f"claim {name}", found, expected) for found, expected in _claim_faults(claim))
        for reading in _readings(claim):
            answers.keys(reading)


def _claim_faults(claim: Answer) -> Iterator[tuple[str, str]]:
    given = [key for key in ("cell", "line", "fact", "holds") if getattr(claim, key)]
    needed = (1,) if claim.answer in READ else (0, 1) if claim.answer.startswith("not_") else (0,)
    if len(given) not in needed:
        yield f"{claim.answer} with {', '.join(given) or 'nothing to read'}", "one of cell, line, fact, holds"
    if claim.answer not in READ and claim.why is None:
        yield f"{claim.answer} without a reason", "why"
    if claim.answer in ("erratum", "decision") and not claim.see:
        yield f"{claim.answer} without an id", "see"
    if claim.cell is not None and claim.cell.count(" | ") != 2:
        yield f"cell {claim.cell}", "table | row | column"


def _readings(claim: Answer) -> Iterator[str]:
    if claim.line is not None:
        yield claim.line
    for text in claim.holds:
        left, _, right = relation_of(text)
        yield from (side for side in (left, right) if not is_number(side))


def _wrong(text: str, found: str, expected: str) -> ConfigError:
    return ConfigError(Fault(f"the answers, {text}", found, expected, "correct resources/paper/answers.yaml"))


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
