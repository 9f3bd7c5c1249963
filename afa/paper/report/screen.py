"""Compute the first screen of the report: the values of twelve effects in the paper, in this run and in other runs."""

from __future__ import annotations

import json
import math
import re
from collections.abc import Mapping, Sequence
from dataclasses import replace
from decimal import ROUND_HALF_UP, Decimal
from hashlib import sha256
from pathlib import Path
from typing import Any, Literal

import numpy as np
import pandas as pd

from afa import __version__
from afa.cohort.cohort import load_cohort
from afa.evaluate.long_tables import read_table
from afa.io.files import sha256_of
from afa.io.yamlfile import Strict, load_model
from afa.model.bundle import load_bundle
from afa.paper.experiments.declared import STAGES
from afa.paper.report.comparison import Reader, compare, printed_difference
from afa.paper.report.paper_tables import SummaryLines
from afa.paper.report.verdicts import DIFFERENCE, HOLDS, NO_BETTER, NOT_RUN, SIMULATED, judge, outcome

Cause = Literal["data", "elicitation", "reading", "the paper"]
Row = Mapping[Any, Any]
"""A row of a table, by column."""
EFFECT_KEYS = ("id", "name", "says", "cause", "alone")
VALUE_COLUMNS = ("unit", "paper", "ours", "low", "high", "constant", "verdict", "size")
COLUMNS = [*EFFECT_KEYS[:3], "said", *VALUE_COLUMNS, "cause", "because", "alone"]
VOTER_COLUMNS = ["id", "voter", "ours", "low", "high", "came"]
EFFECT_STAGES = ("sign", "chaos", "binary", "gauge", "allocation", "layer0_synthetic")
"""Stages that compute the paper's main effects. A stored run is valid only if these stages had the same settings."""
EFFECT_ROUNDING = 0.015
"""Largest allowed difference, in points, between a stored and a recomputed effect. Stored values have two decimals."""


class Statement(Strict):
    """Describe one effect: the sources of the paper's number and of this run's number, and why the two numbers differ.

    If `claim` or `cell` is given, it names a row of the table `comparison`, which contains the paper's number and this
    run's number. If the paper's number is computed as the difference of two printed numbers, the attribute `less` names
    the cells of these two numbers. In this case, the attribute `line` names the line of summary.csv that contains this
    run's difference.

    Attributes
    ----------
    said, because : sentences with placeholders in braces: `{paper}`, `{ours}` or the name of a summary line
    constant : name of the summary line of the best constant answer
    beats : name of the summary line of the better of two methods, whose number must exceed the best constant answer
    alone : text on the effect with one voter's answers: which patients it uses, or why it has no number

    """

    id: str
    name: str
    says: str
    said: str
    claim: str | None = None
    cell: str | None = None
    less: tuple[str, str] | None = None
    line: str | None = None
    constant: str | None = None
    beats: str | None = None
    alone: str = ""
    cause: Cause
    because: str


class Statements(Strict):
    """The content of `headlines.yaml`: the paper's main effects, in the order in which the report shows them."""

    statements: tuple[Statement, ...]


class StoredEffects(Strict):
    """The values that an earlier run, with another cohort, computed for the paper's main effects.

    `rows` maps the id of an effect to its value and the ends of its interval, in percentage points or per cent.

    Attributes
    ----------
    version : version of afa
    settings : digest of the settings of the stages that compute the effects (`basis`)
    data : digest of the encoded patients and the bundle

    """

    cohort: str
    version: str
    settings: str
    data: str
    rows: Mapping[str, tuple[float, float, float]]


def screen_table(statements: Sequence[Statement], comparison: pd.DataFrame, reader: Reader) -> pd.DataFrame:
    """Return a table with one row for each effect, and the columns `COLUMNS`.

    All numbers in the table are in percentage points or per cent.

    Parameters
    ----------
    comparison : the table of `afa.paper.report.comparison.compare`

    """
    places = {
        row["id"] or " | ".join((row["table"], row["row"], row["column"])): row for row in comparison.to_dict("records")
    }
    return pd.DataFrame([_effect_row(each, places, reader) for each in statements])[COLUMNS]


def _effect_row(statement: Statement, places: Mapping[str, Row], reader: Reader) -> dict[str, Any]:
    """Return the row of `screen_table` for one effect.

    A sentence in the column `said` or `because` is empty if this run lacks a number of the sentence.
    """
    row = statement.model_dump(include=set(EFFECT_KEYS)) | _effect_numbers(statement, places, reader)
    constant = None if statement.constant is None else reader.line(statement.constant)
    best = None if statement.beats is None else reader.line(statement.beats)
    if row["verdict"] == HOLDS and best is not None and constant is not None and best.ends[0] <= constant.ends[1]:
        row |= {"verdict": NO_BETTER, "size": ""}
    said, because = (_fill_in_numbers(text, row, reader) for text in (statement.said, statement.because))
    return row | {"constant": float("nan") if constant is None else constant.value, "said": said, "because": because}


def of_voters(
    statements: Sequence[Statement],
    printed: Mapping[str, pd.DataFrame],
    answers: Mapping[str, pd.DataFrame],
    reader: Reader,
) -> pd.DataFrame:
    """Compute the paper's main effects once for each voter, from the answers of this voter alone.

    A voter is one run of a language model. The result has one row for each voter and effect. If an effect cannot be
    computed from a voter's answers, the row of this effect is missing.

    Parameters
    ----------
    printed : as in `afa.paper.report.comparison.compare`.
    answers : tables of the stage `voters`, or an empty mapping if the run has none.
    reader : reader of the run with the answers of all voters.

    Returns
    -------
    DataFrame : a table with the columns `VOTER_COLUMNS`. `came` is the outcome (`afa.paper.report.verdicts.outcome`)

    """
    rows = list[dict[Any, Any]]()
    for each in answers["bundles"].to_dict("records") if answers else ():
        numbers = answers["numbers"]
        own = replace(
            reader,
            summary=SummaryLines(numbers[numbers["voter"] == each["voter"]].drop(columns="voter")),
            facts={**reader.facts, "features": each["features"]},
        )
        table = screen_table(statements, compare(own, printed), own)
        found = table[table["ours"].notna() & (table["verdict"] != NOT_RUN)]
        rows += [{**row, "voter": each["voter"], "came": outcome(row)} for row in found.to_dict("records")]
    return pd.DataFrame(rows, columns=VOTER_COLUMNS)


BRACED = re.compile(r"{([^{}]+)}")


def _fill_in_numbers(text: str, row: Row, reader: Reader) -> str:
    """Return a sentence with its numbers filled in, or "" if the run lacks one of the numbers."""
    lacks = False

    def found(match: re.Match[str]) -> str:
        nonlocal lacks
        name = match[1]
        read = reader.line(name) if name not in ("paper", "ours") else None
        value = row[name] if name in ("paper", "ours") else float("nan") if read is None else read.value
        lacks = lacks or math.isnan(value)
        return spoken(value)

    sentence = BRACED.sub(found, text)
    return "" if lacks else sentence


def spoken(value: float) -> str:
    """Return a number as text, with one decimal below ten, else without decimals. Halves are rounded up.

    >>> spoken(3.185), spoken(10.5), spoken(-0.053), spoken(-0.01)
    ('3.2', '11', '−0.1', '0')
    """
    if math.isnan(value):
        return "?"
    digit = Decimal("0.1") if abs(value) < 9.95 else Decimal(1)
    rounded = Decimal(f"{value:.9f}").quantize(digit, ROUND_HALF_UP)
    return f"{rounded.normalize() + 0:f}".replace("-", "\N{MINUS SIGN}")


def _effect_numbers(statement: Statement, places: Mapping[str, Row], reader: Reader) -> dict[str, Any]:
    """Return the paper's number, this run's number and the verdict for an effect. Shares are in per cent.

    If `statement` names a claim or one printed cell, the verdict is copied from the table `comparison`. If
    `statement.less` names two printed cells, the difference of their numbers is compared with a difference that this
    run computed (`statement.line`).
    """
    if statement.less is None or statement.line is None:
        row = places[statement.claim or statement.cell or ""]
        scale = 100.0 if row["unit"] == "share" else 1.0
        paper = scale * float(row["paper"]) if row["paper"] else float("nan")
        found = {"unit": "percent" if row["unit"] == "share" else row["unit"], "paper": paper}
        found |= {name: row[name] * scale for name in ("ours", "low", "high")}
        return found | {"verdict": row["verdict"], "size": row["size"]}
    first, second = (places[name] for name in statement.less)
    printed = printed_difference(first, second, reader)
    row = {"unit": DIFFERENCE, "paper": printed.value, "verdict": NOT_RUN, "size": ""}
    ours = reader.line(statement.line)
    if ours is None:
        return row | dict.fromkeys(("ours", "low", "high"), float("nan"))
    row |= {"ours": ours.value, "low": ours.low, "high": ours.high}
    if reader.simulated:
        return row | {"verdict": SIMULATED}
    verdict = judge(printed, ours, reader.patients_behind(ours))
    return row | {"verdict": verdict.direction, "size": verdict.size}


def stored_effects_of(run: Path) -> StoredEffects:
    """Return the effects of a finished run in the form in which they are stored."""
    table = read_table(run / "comparison", "screen")
    rows = table[table["ours"].notna()].fillna({"low": table["ours"], "high": table["ours"]}).set_index("id")
    numbers_of = {str(name): tuple(numbers) for name, *numbers in rows[["ours", "low", "high"]].round(2).itertuples()}
    features, bundle = sha256_of(run / "cohort" / "features.parquet"), load_bundle(run / "bundle").digest
    return StoredEffects(
        cohort=load_cohort(run / "cohort").name,
        version=__version__,
        settings=basis(json.loads((run / "config.json").read_text(encoding="utf-8"))),
        data=sha256(f"{features} {bundle}".encode()).hexdigest(),
        rows=numbers_of,
    )


def basis(config: Mapping[str, Any]) -> str:
    """Return a digest of all settings on which a run's results for the paper's main effects depend.

    `config` is the complete configuration of a run, read from `config.json`.
    """
    described = [STAGES[name] for name in EFFECT_STAGES]
    keys = {key.partition(".")[0] for stage in described for key in (*stage.settings, *(stage.summary_settings or ()))}
    text = json.dumps({key: config.get(key) for key in sorted(keys)}, sort_keys=True)
    return sha256(text.encode()).hexdigest()


def stale(carried: StoredEffects, found: StoredEffects) -> list[str]:
    """Compare the stored effects of a cohort with the effects in a new run, and return a text for each difference."""
    said = [f"other {name}" for name in ("settings", "data") if getattr(carried, name) != getattr(found, name)]
    for name in sorted({*carried.rows, *found.rows}):
        stored, now = carried.rows.get(name), found.rows.get(name)
        if not (stored and now and np.allclose(stored, now, rtol=0, atol=EFFECT_ROUNDING)):
            said.append(f"{name}: {stored} stored, {now} found")
    return said


def load_stored_effects(folder: Path) -> list[StoredEffects]:
    """Return the stored effects in a folder, sorted by cohort, or an empty list if the folder does not exist."""
    return [load_model(path, StoredEffects) for path in sorted(folder.glob("*.yaml"))]
