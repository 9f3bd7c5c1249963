"""The paper and this run side by side: one line per printed cell and per claim, each with a verdict and its reason."""

from __future__ import annotations

from collections.abc import Hashable, Iterator, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pandas as pd

from afa.csvfile import marked_table
from afa.errors import ConfigError, Fault, ReportError
from afa.files import atomic_folder, write_csv
from afa.report.answers import Answer, Answers, Facts, Found, Reader
from afa.report.paper_tables import TABLES, TEXT_COLUMNS, Lines, paper_table
from afa.report.verdicts import (
    DIFFERENCE,
    DIRECTIONS,
    IDENTITY,
    NOT_COMPARABLE,
    NOT_RUN,
    NOTHING,
    SIMULATED,
    SIZES,
    UNJUDGED,
    Number,
    Printed,
    Verdict,
    judge,
    judge_statement,
    verdict_words,
)
from afa.stats.tables import write_parquet

CELL, NUMBER = "cell", "number"
NUMERIC = ("paper_n", "ours", "low", "high", "n", "difference")
COLUMNS = [
    *("kind", "id", "table", "row", "column", "claim", "unit", "paper", *NUMERIC),
    *("verdict", "size", "also", "reason", "note", "by_definition", "see", "where"),
]
UNITS = {"%": "percent", "pp": DIFFERENCE, "share": "share", "count": "count", "": ""}
"""Units of the claims, as those of the cells are named."""
ANSWERED = {"not_comparable": NOT_COMPARABLE, "not_run": NOT_RUN, "decision": NOTHING, "background": NOTHING}


class Claim(NamedTuple):
    """One line of `claims.csv`, as text."""

    id: str
    kind: str
    near_label: str
    claim: str
    value: str
    unit: str


@dataclass(frozen=True)
class Outcome:
    """What came of one cell or claim; `unit` where it is not the paper's."""

    verdict: Verdict
    ours: Found | None = None
    unit: str | None = None
    patients: int | None = None


def compare(
    summary: pd.DataFrame, printed: Mapping[str, pd.DataFrame], answers: Answers, *, facts: Facts
) -> pd.DataFrame:
    """Every printed cell, table by table, and then every claim, with the columns of `COLUMNS`.

    summary : all rows of the run. printed : the paper's tables and `claims`, by file name, all values as text.
    `difference` is ours less the paper's, and empty where the two do not compare.

    Raises
    ------
    ConfigError : claims without an answer, or answers without a claim.
    ReportError : an answer that names a cell which is not printed.

    """
    claims = printed["claims"]
    _check_covered(set(claims["id"]), set(answers.claims))
    reader = Reader(Lines(summary), answers, facts)
    lines = [line for name in TABLES for line in _cells(name, printed[name], reader)]
    cells = {" | ".join((line["table"], line["row"], line["column"])): line for line in lines}
    texts = claims[list(Claim._fields)]
    lines += [_claim(Claim(*claim), reader, cells) for claim in texts.itertuples(index=False, name=None)]
    table = pd.DataFrame([_if_simulated(line, facts) for line in lines], columns=COLUMNS)
    table["by_definition"] = table["by_definition"].eq(other=True)
    text = [name for name in COLUMNS if name not in (*NUMERIC, "by_definition")]
    table[text] = table[text].fillna("").astype("str")
    return table.astype(dict.fromkeys(NUMERIC, "float64"))


def count_verdicts(comparison: pd.DataFrame) -> pd.DataFrame:
    """Lines by direction and by size: one row per printed table and one for the claims of either kind.

    A difference is counted in one column of each; a level has a size alone, a statement a direction alone.
    """
    source = comparison["table"].where(comparison["kind"] == CELL, "claims: " + comparison["kind"] + "s")
    parts = [
        pd.crosstab(source, comparison[column]).reindex(columns=list(names), fill_value=0)
        for column, names in (("verdict", DIRECTIONS), ("size", SIZES), ("verdict", UNJUDGED))
    ]
    counts = pd.concat(parts, axis=1).reindex(index=source.unique(), fill_value=0)
    return counts.loc[list(dict.fromkeys(source))].rename_axis("source").rename_axis(None, axis="columns").reset_index()


def write_comparison(comparison: pd.DataFrame, folder: Path, screen: pd.DataFrame) -> None:
    """Write `comparison` as CSV too, its counts, `verdicts`, and `screen` as Parquet; all appear when complete.

    screen : the table of `afa.report.screen.screen_table`.
    """
    tables = {"comparison": comparison, "verdicts": count_verdicts(comparison), "screen": screen}
    with atomic_folder(folder, ["comparison.csv", *(f"{name}.parquet" for name in tables)]) as temporary:
        for name, table in tables.items():
            write_parquet(table, temporary / f"{name}.parquet")
        write_csv(marked_table(comparison), temporary / "comparison.csv", float_format="%.10g")


def load_printed(folder: Path) -> dict[str, pd.DataFrame]:
    """The paper's tables and claims as they were transcribed, every value as text; a `ConfigError` where one lacks."""
    lacking = [name for name in (*TABLES, "claims") if not (folder / f"{name}.csv").is_file()]
    if lacking:
        raise ConfigError(Fault(str(folder), f"no {', '.join(lacking)}", "the paper's tables", "pass resources/paper"))
    return {name: pd.read_csv(folder / f"{name}.csv", dtype=str, keep_default_na=False) for name in (*TABLES, "claims")}


def _check_covered(claims: set[str], answers: set[str]) -> None:
    differences = ((claims - answers, "claims without an answer"), (answers - claims, "answers without a claim"))
    faults = [
        Fault("resources/paper/answers.yaml", f"{what}: {', '.join(sorted(names))}", "one for each claim", "correct it")
        for names, what in differences
        if names
    ]
    if faults:
        raise ConfigError(faults)


def _cells(name: str, printed: pd.DataFrame, reader: Reader) -> Iterator[dict[str, Any]]:
    """One line per printed number of a table; what is added to it at t = 0 is not the paper's and left out."""
    patients = reader.answers.patients.get(name)
    texts = printed[~printed["column"].isin(TEXT_COLUMNS)].set_index(["row", "column"])["value"]
    table = paper_table(name, printed, reader.summary, n_features=reader.facts.n_features).dropna(subset=["paper"])
    for cell in table.to_dict("records"):
        unit, _, why = (cell["unit"] if isinstance(cell["unit"], str) else "").partition(", not comparable: ")
        paper = Printed(str(texts[cell["row"], cell["column"]]), unit, patients)
        ours = None if pd.isna(cell["ours"]) else Number(cell["ours"], cell["low"], cell["high"])
        rule = next((r for r in reader.answers.cells if r.covers(name, cell["row"], cell["column"])), None)
        note = "" if rule is None else reader.answers.reason(rule.why)
        if rule is not None and rule.answer in ANSWERED:
            verdict, note = Verdict(ANSWERED[rule.answer], reason=note), ""
        elif ours is None:
            verdict = Verdict(NOT_RUN, reason="this summary has no line for it")
        elif why:
            verdict = Verdict(NOT_COMPARABLE, reason=why)
        elif rule is not None and rule.definition:
            verdict = Verdict(IDENTITY, reason=note)
        else:
            verdict = judge(paper, ours, reader.facts.numbers["patients"])
        line = {"kind": CELL, "table": name, "unit": unit, **{key: cell[key] for key in ("row", "column", "also")}}
        if rule is not None:
            line |= {"note": note, "by_definition": rule.definition, "see": " ".join(rule.see)}
        found = None if ours is None else Found(ours, unit, cell["n"])
        yield _beside(line, paper.text, Outcome(verdict, found, patients=patients))


def _claim(claim: Claim, reader: Reader, cells: Mapping[str, Mapping[str, Any]]) -> dict[str, Any]:
    """The line of one claim: judged by what its answer reads, unless the answer says why not."""
    answer, unit = reader.answers.claims[claim.id], UNITS[claim.unit]
    where = answer.cell or answer.line or answer.fact or "; ".join(answer.holds)
    line: dict[str, Any] = {"kind": claim.kind, "id": claim.id, "table": claim.near_label, "claim": claim.claim}
    line |= {"unit": unit, "see": " ".join(answer.see), "by_definition": answer.definition, "where": where}
    if answer.holds:
        outcome = _statement(answer, reader, number=claim.kind == NUMBER)
    elif where:
        outcome = _number(answer, claim.value, unit, reader, cells)
    else:
        outcome = Outcome(Verdict(NOTHING))
    reason = reader.answers.reason(answer.why)
    if answer.answer in ANSWERED:
        outcome = replace(outcome, verdict=Verdict(ANSWERED[answer.answer], reason=reason))
    elif answer.definition and outcome.verdict.direction != NOT_RUN:
        outcome = replace(outcome, verdict=Verdict(IDENTITY, reason=reason))
    else:
        line |= {"note": reason}
    return _beside(line, claim.value, outcome)


def _statement(answer: Answer, reader: Reader, *, number: bool) -> Outcome:
    relations = [reader.relation(text) for text in answer.holds]
    first = reader.first(answer.holds[0])
    missing = [relation for relation in relations if isinstance(relation, str)]
    if missing:
        return Outcome(Verdict(NOT_RUN, reason="; ".join(dict.fromkeys(missing))), first)
    whole = [relation for relation in relations if not isinstance(relation, str)]
    return Outcome(judge_statement(whole), first, None if number or first is None else first.unit)


def _number(answer: Answer, text: str, unit: str, reader: Reader, cells: Mapping[str, Mapping[str, Any]]) -> Outcome:
    patients = answer.patients
    found: Found | None
    if answer.cell is not None:
        cell = _named(answer.cell, cells)
        patients = reader.answers.patients.get(cell["table"])
        found = None if cell["ours"] is None else _of_cell(cell)
        missing = "this summary has no line for it"
    elif answer.line is not None:
        found, missing = reader.line(answer.line, complement=answer.complement), reader.missing(answer.line)
    else:
        found, missing = reader.fact(answer.fact or "", unit), ""
    if found is None:
        return Outcome(Verdict(NOT_RUN, reason=missing), patients=patients)
    if not text:
        return Outcome(Verdict(NOTHING), found, found.unit)
    ours = found.in_unit(unit)
    verdict = judge(Printed(text, unit, patients, answer.bound), ours, reader.facts.numbers["patients"])
    if answer.cell is not None and (cell := _named(answer.cell, cells))["verdict"] in UNJUDGED:
        verdict = Verdict(cell["verdict"], reason=cell["reason"])
    return Outcome(verdict, Found(ours, unit, found.n), patients=patients)


def _named(name: str, cells: Mapping[str, Mapping[str, Any]]) -> Mapping[str, Any]:
    if name not in cells:
        raise ReportError(Fault("resources/paper/answers.yaml", f"cell {name}", "a printed cell", "correct its name"))
    return cells[name]


def _of_cell(cell: Mapping[str, Any]) -> Found:
    """What answers a printed cell, with a share in percent."""
    ours = Number(cell["ours"], cell["low"], cell["high"])
    is_share = cell["unit"] == "share"
    return Found(ours.scaled(100) if is_share else ours, "percent" if is_share else cell["unit"], cell["n"])


def _beside(line: dict[str, Any], paper: str, outcome: Outcome) -> dict[str, Any]:
    """The line with both numbers, their difference where they compare, and the verdict."""
    ours, verdict = outcome.ours, outcome.verdict
    line = {**line, "paper": paper, "paper_n": outcome.patients, "verdict": verdict.direction}
    line |= {"size": verdict.size, "reason": verdict.reason}
    line["unit"] = line["unit"] if outcome.unit is None else outcome.unit
    if ours is None:
        return {**line, "ours": None}
    shown = {"ours": ours.number.value, "low": ours.number.low, "high": ours.number.high, "n": ours.n}
    unjudged = verdict.direction in (NOT_COMPARABLE, NOT_RUN, NOTHING) or not paper
    difference = np.nan if unjudged else ours.number.value - Printed(paper, "").value
    return {**line, **shown, "difference": difference}


def _if_simulated(line: dict[str, Any], facts: Facts) -> dict[str, Any]:
    """On a simulated cohort no number of ours says anything of patients, whatever it comes to."""
    if not facts.simulated or line["ours"] is None or line["verdict"] == NOT_RUN:
        return line
    return {**line, "verdict": SIMULATED, "size": "", "reason": f"cohort {facts.cohort} is simulated"}


def counted(verdicts: pd.DataFrame) -> Iterator[tuple[str, dict[str, int]]]:
    """Of the printed cells, and of the claims: what they are, and how many have each direction, size, or neither.

    verdicts : the counts of `afa.report.comparison.count_verdicts`; lines with nothing to reproduce are left out.
    """
    is_claim = verdicts["source"].str.startswith("claims")
    for what, part in (("numbers in its tables", verdicts[~is_claim]), ("claims of its text", verdicts[is_claim])):
        sums = part.drop(columns="source").sum()
        yield what, {str(name): int(n) for name, n in sums.items() if n and name != NOTHING}


def every_line(comparison: pd.DataFrame) -> list[dict[str, str]]:
    """All lines but those with nothing to reproduce, as text, with what they are found by on the page.

    `here` has its interval, `0.864 [0.851, 0.877]`; `why` the reason and what to know beside.
    """
    return [_as_text(row) for row in comparison[comparison["verdict"] != NOTHING].to_dict("records")]


def _as_text(row: Mapping[Hashable, Any]) -> dict[str, str]:
    is_cell, here = row["kind"] == CELL, digits(row["ours"])
    return {
        "what": f"{row['row']}, {row['column']}" if is_cell else row["claim"],
        "here": here if pd.isna(row["low"]) else f"{here} [{digits(row['low'])}, {digits(row['high'])}]",
        "verdict": verdict_words(row),
        "why": "; ".join(filter(None, (row["reason"], row["also"], row["note"]))),
        "kind": "cell" if is_cell else "claim",
        **{name: row[name] for name in ("paper", "unit", "id", "table", "see")},
    }


def digits(value: float | None) -> str:
    """Three digits, or all of a large whole number; empty for nothing.

    >>> digits(0.86412), digits(1234.0)
    ('0.864', '1234')
    """
    return "" if pd.isna(value) else f"{value:.3g}" if abs(value) < 100 else f"{value:.0f}"
