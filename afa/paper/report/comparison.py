"""Compare each printed number and each claim of the paper with a run, and give a verdict and a reason."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

from afa.cohort.cohort import Cohort
from afa.errors import ConfigError, Fault
from afa.evaluate.long_tables import write_parquet
from afa.io.files import atomic_folder, write_csv
from afa.io.spreadsheet import marked_table
from afa.paper.report import verdicts
from afa.paper.report.paper_tables import PRINTED_TABLES, TEXT_COLUMNS, SummaryLines, paper_table
from afa.paper.report.verdicts import CellRule, ClaimAnswer, ClaimAnswers, Printed, Relation, RunNumber, Verdict

CELL, NUMBER = "cell", "number"
NUMERIC = ("paper_n", "ours", "low", "high", "n", "difference")
COLUMNS = [
    *("kind", "id", "table", "row", "column", "claim", "unit", "paper", *NUMERIC),
    *("verdict", "size", "also", "reason", "note", "by_definition", "see", "where"),
]
UNITS = {"%": "percent", "pp": verdicts.DIFFERENCE, "share": "share", "count": "count", "": ""}
"""Unit of a claim -> unit of a cell."""
NO_LINE = "this summary has no line for it"
ANSWERED = {"not_comparable": verdicts.NOT_COMPARABLE, "not_run": verdicts.NOT_RUN}
ANSWERED |= dict.fromkeys(("decision", "background"), verdicts.NOTHING_TO_REPRODUCE)
JUDGED_CELL = CellRule(table="", answer="judged")
"""The rule for cells that no other rule covers."""

SHARE_METRICS = ("accuracy", "balanced_accuracy", "rate", "p_at_k", "r_precision", "prevalence", "majority")
"""Metrics that are shares. The metric `gap` is a difference of two shares."""


@dataclass(frozen=True)
class Reader:
    """Look up a run's numbers in summary.csv.

    The argument `line_name` of the methods is a short text that names one line of summary.csv, such as `chaos t=10`.

    Shares are returned in per cent, and differences of shares in percentage points.

    Attributes
    ----------
    cohort : name of the cohort
    simulated : True if the patients are simulated
    facts : numbers that describe the cohort: `patients`, `features`, `labelled` (number of entities with a column of
        labels) and `zeros` (share of values that are 0)

    """

    summary: SummaryLines
    answers: ClaimAnswers
    cohort: str
    simulated: bool
    facts: Mapping[str, float]

    @classmethod
    def of(cls, summary: pd.DataFrame, answers: ClaimAnswers, cohort: Cohort) -> Reader:
        """Return a `Reader` of a run's summary and cohort."""
        facts = {
            "patients": len(cohort.patients),
            "features": len(cohort.features),
            "labelled": cohort.labels.shape[1],
            "zeros": float(np.mean(cohort.values == 0)),
        }
        simulated = cohort.provenance.get("origin") == "simulated"
        return cls(SummaryLines(summary), answers, cohort.name, simulated, facts)

    @property
    def n_features(self) -> int:
        return int(self.facts["features"])

    def patients_behind(self, ours: RunNumber) -> float:
        """Return the smaller of two numbers: the number of cases `ours.n`, and the number of patients in the cohort."""
        return float(np.fmin(ours.n, self.facts["patients"]))

    def fact(self, name: str, unit: str) -> RunNumber:
        """Return a number that describes the cohort, such as `patients`. A share is converted to per cent."""
        value = self.facts[name]
        return RunNumber(100 * value, unit="percent") if unit == "share" else RunNumber(value)

    def line(self, line_name: str, *, complement: bool = False) -> RunNumber | None:
        """Return one number of summary.csv, or None if the number is missing.

        `line_name` is a text such as `chaos t=10`, which names one line of summary.csv.
        """
        line = self.summary.find(self._summary_keys(line_name))
        if line is None or pd.isna(line["value"]):
            return None
        unit = verdicts.DIFFERENCE if line["metric"] == "gap" else "percent" if line["metric"] in SHARE_METRICS else ""
        value, low, high, n = (float(line[name]) for name in ("value", "low", "high", "n"))
        found = RunNumber(value, low, high, unit, n)
        found = found.complement() if complement else found
        return found.scaled(100) if unit else found

    def missing(self, line_name: str) -> str:
        """Return the reason why summary.csv lacks a number.

        The text `line_name`, such as `chaos t=10`, names the line of summary.csv that should contain the number.
        """
        table = self._summary_keys(line_name)["table"]
        is_there = (self.summary.rows["table"] == table).any()
        return f"no number for {line_name}" if is_there else f"no table {table} in this run"

    def relation(self, text: str) -> Relation | str:
        """Parse a text such as `a > b`, and return the comparison of the two numbers in this run (`Relation`).

        If this run lacks one of the two numbers, return the reason as a text.
        """
        left, operator, right = verdicts.relation_of(text)
        if isinstance(found := self._scaled_number(left), str):
            return found
        if verdicts.is_number(right):
            other = RunNumber(float(right) * (100 if found.unit else 1))
            return Relation(
                found, operator, other, f"{text}: {found} against {verdicts.number_text(other.value)}", found
            )
        if isinstance(read := self._scaled_number(right), str):
            return read
        unit = verdicts.DIFFERENCE if found.unit else ""
        difference = RunNumber(found.value - read.value, unit=unit, n=min(found.n, read.n))
        return Relation(found, operator, read, f"{text}: {found} against {read}", difference)

    def _scaled_number(self, side: str) -> RunNumber | str:
        """Return this run's number for one side of a comparison such as `a > 2 * b`.

        If this run lacks the number, return the reason as a text.
        """
        factor, line_name = verdicts.scaled_line(side)
        found = self.line(line_name)
        return self.missing(line_name) if found is None else found.scaled(factor)

    def _summary_keys(self, line_name: str) -> dict[str, Any]:
        keys = self.answers.keys(line_name)
        return {**keys, "t": self.n_features} if keys.get("t") == verdicts.END else keys


def compare(reader: Reader, printed: Mapping[str, pd.DataFrame]) -> pd.DataFrame:
    """Return a table with one row for each printed number in the paper's tables, then one row for each claim.

    The columns are `COLUMNS`. The column `difference` is this run's number minus the paper's number, or is empty if the
    numbers are not comparable.

    Parameters
    ----------
    reader : `Reader` of the run's summary
    printed : file name -> the paper's table, with all values as text. The key `claims` has the claims

    """
    lines = [line for name in PRINTED_TABLES for line in _cell_lines(name, printed[name], reader)]
    cells = {" | ".join((line["table"], line["row"], line["column"])): line for line in lines}
    lines += [_claim_line(claim, reader, cells) for claim in printed["claims"].itertuples()]
    table = pd.DataFrame(lines, columns=COLUMNS)
    if reader.simulated:  # simulated patients are no evidence about real patients
        has_number = table["ours"].notna() & (table["verdict"] != verdicts.NOT_RUN)
        said = verdicts.SIMULATED, "", f"cohort {reader.cohort} is simulated"
        table.loc[has_number, ["verdict", "size", "reason"]] = said
    table["by_definition"] = table["by_definition"].eq(other=True)
    text = [name for name in COLUMNS if name not in (*NUMERIC, "by_definition")]
    table[text] = table[text].fillna("").astype("str")
    return table.astype(dict.fromkeys(NUMERIC, "float64"))


def count_verdicts(comparison: pd.DataFrame) -> pd.DataFrame:
    """Count the verdicts on the paper's numbers and claims, and return a table with the counts.

    The table has one row for each printed table, and one row for each kind of claim. A difference of two shares can
    have two verdicts, and both verdicts are counted: one on the direction of the difference (such as *holds*), and one
    on the size of the difference (such as *within a factor of 2*). For a statement such as "a is ahead of b", the only
    verdict says whether the statement holds in this run. For a number that is not a difference, the only verdict says
    how near this run's number is to the printed number.
    """
    source = comparison["table"].where(comparison["kind"] == CELL, "claims: " + comparison["kind"] + "s")
    directions, sizes = (pd.crosstab(source, comparison[column]) for column in ("verdict", "size"))
    names = [*verdicts.DIRECTION_VERDICTS, *verdicts.SIZE_VERDICTS, *verdicts.UNJUDGED]
    counts = directions.drop(columns="", errors="ignore").join(sizes.drop(columns="", errors="ignore"))
    counts = counts.reindex(index=source.unique(), columns=names, fill_value=0)
    return counts.rename_axis("source").rename_axis(None, axis="columns").reset_index()


def write_comparison(comparison: pd.DataFrame, folder: Path, screen: pd.DataFrame, voters: pd.DataFrame) -> None:
    """Write the tables `comparison`, `verdicts` (counts), `screen` and `voters` as Parquet files.

    The table `comparison` is also written as a CSV file. If an error occurs, no file is written.

    Parameters
    ----------
    screen : the paper's main effects in this run (`afa.paper.report.screen.screen_table`)
    voters : the same effects with the answers of each voter alone (`afa.paper.report.screen.of_voters`)

    """
    tables = {"comparison": comparison, "verdicts": count_verdicts(comparison), "screen": screen, "voters": voters}
    with atomic_folder(folder, ["comparison.csv", *(f"{name}.parquet" for name in tables)]) as temporary:
        for name, table in tables.items():
            write_parquet(table, temporary / f"{name}.parquet")
        write_csv(marked_table(comparison), temporary / "comparison.csv", float_format="%.10g")


def load_printed(folder: Path) -> dict[str, pd.DataFrame]:
    """Return the transcribed tables and claims of the paper, with all values as text.

    Raise a `ConfigError` if a table is missing.
    """
    lacking = [name for name in (*PRINTED_TABLES, "claims") if not (folder / f"{name}.csv").is_file()]
    if lacking:
        raise ConfigError(Fault(str(folder), f"no {', '.join(lacking)}", "the paper's tables", "pass resources/paper"))
    return {
        name: pd.read_csv(folder / f"{name}.csv", dtype=str, keep_default_na=False)
        for name in (*PRINTED_TABLES, "claims")
    }


def _cell_lines(name: str, printed: pd.DataFrame, reader: Reader) -> Iterator[dict[str, Any]]:
    """Yield a line of the comparison for each printed number of a table.

    The lines that `paper_table` adds at t = 0 are skipped, because the paper prints no numbers at t = 0.
    """
    patients = reader.answers.patients.get(name)
    texts = printed[~printed["column"].isin(TEXT_COLUMNS)].set_index(["row", "column"])["value"]
    table = paper_table(name, printed, reader.summary, n_features=reader.n_features).dropna(subset=["paper"])
    for cell in table.to_dict("records"):
        unit, _, why = (cell["unit"] if isinstance(cell["unit"], str) else "").partition(", not comparable: ")
        text = str(texts[cell["row"], cell["column"]])
        ours = None if pd.isna(cell["ours"]) else RunNumber(cell["ours"], cell["low"], cell["high"], unit, cell["n"])
        rule = next((r for r in reader.answers.cells if r.covers(name, cell["row"], cell["column"])), JUDGED_CELL)
        note = reader.answers.reason(rule.why)
        if rule.answer in ANSWERED:
            verdict, note = Verdict(ANSWERED[rule.answer], reason=note), ""
        elif ours is None:
            verdict = Verdict(verdicts.NOT_RUN, reason=NO_LINE)
        elif why:
            verdict = Verdict(verdicts.NOT_COMPARABLE, reason=why)
        elif rule.definition:
            verdict = Verdict(verdicts.IDENTITY, reason=note)
        else:
            verdict = verdicts.judge(Printed(text, unit, patients), ours, reader.patients_behind(ours))
        line = {"kind": CELL, "table": name, "unit": unit, **{key: cell[key] for key in ("row", "column", "also")}}
        line |= {"note": note, "by_definition": rule.definition, "see": " ".join(rule.see)}
        yield _line_with_verdict(line, text, verdict, ours, patients)


def _claim_line(claim: Any, reader: Reader, cells: Mapping[str, Mapping[str, Any]]) -> dict[str, Any]:
    """Return the line of the comparison for one claim (a row of `claims.csv`).

    In answers.yaml, the entry of a claim names the number of this run that is compared with the claim, or the reason
    why the claim gets no verdict.
    """
    answer, unit = reader.answers.claims[claim.id], UNITS[claim.unit]
    where = answer.cell or answer.line or answer.fact or "; ".join(answer.holds)
    line: dict[str, Any] = {"kind": claim.kind, "id": claim.id, "table": claim.near_label, "claim": claim.claim}
    line |= {"unit": unit, "see": " ".join(answer.see), "by_definition": answer.definition, "where": where}
    cell = cells[answer.cell] if answer.cell else None
    patients, paper = reader.answers.patients.get(cell["table"]) if cell else answer.patients, claim.value
    if answer.holds:
        verdict, ours = _statement_verdict(answer, reader, unit, has_number=claim.kind == NUMBER)
    elif where:
        printed = Printed(claim.value, unit, patients, answer.bound)
        if answer.less is not None:
            first, second = (cells[name] for name in answer.less)
            printed = printed_difference(first, second, reader)
            line |= {"unit": printed.unit, "table": first["table"]}
        verdict, ours = _number_verdict(answer, printed, reader, cell)
        paper = printed.text
    else:
        verdict, ours = Verdict(verdicts.NOTHING_TO_REPRODUCE), None
    also = {name: reader.line(line_name, complement=answer.complement) for name, line_name in answer.also.items()}
    line |= {"also": "; ".join(f"{name}: {found}" for name, found in also.items() if found is not None)}
    reason = reader.answers.reason(answer.why)
    if answer.answer in ANSWERED:
        verdict = Verdict(ANSWERED[answer.answer], reason=reason)
    elif answer.definition and verdict.direction != verdicts.NOT_RUN:
        verdict = Verdict(verdicts.IDENTITY, reason=reason)
    else:
        line |= {"note": reason}
    return _line_with_verdict(line, paper, verdict, ours, None if answer.holds or not paper else patients)


def printed_difference(first: Mapping[str, Any], second: Mapping[str, Any], reader: Reader) -> Printed:
    """Return the printed number in cell `first` minus the printed number in cell `second`, in percentage points.

    The attribute `patients` of the result is the number of patients whom the paper used for the table that contains the
    cell `first`.
    """
    scale = 100.0 if first["unit"] == "share" else 1.0
    difference = scale * (float(first["paper"]) - float(second["paper"]))
    return Printed(f"{difference:.1f}", verdicts.DIFFERENCE, reader.answers.patients.get(first["table"]))


def _statement_verdict(
    answer: ClaimAnswer, reader: Reader, unit: str, *, has_number: bool
) -> tuple[Verdict, RunNumber | None]:
    """Return the verdict on a statement such as "a is ahead of b", and the number shown beside the verdict.

    The shown number belongs to the first comparison in the statement. `unit` is the unit of the claim. The shown number
    is printed in this unit if the claim contains a number (`has_number`). It is also printed in this unit if this run
    has no number for another comparison in the statement.
    """
    relations = [reader.relation(text) for text in answer.holds]
    whole = [relation for relation in relations if not isinstance(relation, str)]
    missing = [relation for relation in relations if isinstance(relation, str)]
    first = None if isinstance(relations[0], str) else relations[0].shown
    if first is not None and (missing or has_number):
        first = replace(first, unit=unit)
    if missing:
        return Verdict(verdicts.NOT_RUN, reason="; ".join(dict.fromkeys(missing))), first
    return verdicts.judge_statement(whole), first


def _number_verdict(
    answer: ClaimAnswer, printed: Printed, reader: Reader, cell: Mapping[str, Any] | None
) -> tuple[Verdict, RunNumber | None]:
    """Return two results: the verdict on a claim about a number, and this run's number.

    If the claim repeats a number of a printed table, `cell` is the row of the table `comparison` about this number.
    Otherwise, `cell` is None.
    """
    if cell is not None:
        missing = NO_LINE
        found = (
            None if cell["ours"] is None else RunNumber(*(cell[name] for name in ("ours", "low", "high", "unit", "n")))
        )
        if found is not None and found.unit == "share":
            found = replace(found.scaled(100), unit="percent")
    elif answer.line is not None:
        found, missing = reader.line(answer.line, complement=answer.complement), reader.missing(answer.line)
    else:
        found, missing = reader.fact(answer.fact or "", printed.unit), ""
    if found is None:
        return Verdict(verdicts.NOT_RUN, reason=missing), None
    if not printed.text:
        return Verdict(verdicts.NOTHING_TO_REPRODUCE), found
    ours = found.in_unit(printed.unit)
    if cell is not None and cell["verdict"] in verdicts.UNJUDGED:
        return Verdict(cell["verdict"], reason=cell["reason"]), ours
    return verdicts.judge(printed, ours, reader.patients_behind(ours)), ours


def _line_with_verdict(
    line: dict[str, Any], paper: str, verdict: Verdict, ours: RunNumber | None, patients: int | None
) -> dict[str, Any]:
    """Return a copy of `line`, to which both numbers, their difference (if comparable) and the verdict are added."""
    line = {**line, "paper": paper, "paper_n": patients, "verdict": verdict.direction}
    line |= {"size": verdict.size, "reason": verdict.reason}
    if ours is None:
        return {**line, "ours": None}
    unjudged = (
        verdict.direction in (verdicts.NOT_COMPARABLE, verdicts.NOT_RUN, verdicts.NOTHING_TO_REPRODUCE) or not paper
    )
    difference = np.nan if unjudged else ours.value - Printed(paper, "").value
    shown = {"unit": ours.unit, "ours": ours.value, "low": ours.low, "high": ours.high, "n": ours.n}
    return {**line, **shown, "difference": difference}
