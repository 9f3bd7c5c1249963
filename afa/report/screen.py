"""The first screen of the report: a dozen effects of the paper, in three sentences, a figure and a table."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from hashlib import sha256
from pathlib import Path
from typing import Any, Literal, NamedTuple, get_args

import pandas as pd
from markupsafe import Markup, escape
from pydantic import model_validator

from afa import __version__
from afa.bundle import load_bundle
from afa.cohort.cohort import load_cohort
from afa.errors import ConfigError, Fault
from afa.files import sha256_of
from afa.report.answers import Reader
from afa.report.verdicts import (
    CLOSE,
    DIFFERENCE,
    FAR,
    HOLDS,
    NEAR,
    REVERSES,
    SIMULATED,
    UNCLEAR,
    Printed,
    judge,
)
from afa.stages import stages
from afa.stats.summary import headline
from afa.stats.tables import read_table
from afa.yamlfile import Strict, load_model

Cause = Literal["data", "elicitation", "reading", "the paper"]
Row = Mapping[Any, Any]
"""A row of a table, by column."""
KNOWN = ("id", "name", "says", "cause", "because")
COLUMNS = [*KNOWN[:3], "unit", "paper", "ours", "low", "high", "constant", "verdict", "size", *KNOWN[3:]]
CARRIED_STAGES = ("sign", "chaos", "binary", "gauge", "allocation", "layer0_synthetic")
"""The stages behind the effects, to whose settings a stored run is bound."""
CARRIED_ROUNDING = 0.015
"""Points by which a stored effect may differ from one computed again: it has two decimals."""
HIGH = 90.0
"""Per cent that a constant answer has right from which little is left to gain."""
WIDTH, LEFT, RIGHT, ROW = 520, 16, 16, 32
"""Pixels of the figure: its width, what is free on the left and on the right, the height of an effect."""


class Statement(Strict):
    """One effect: where its printed number and ours stand, and what is known where they differ."""

    id: str
    name: str
    says: str
    claim: str | None = None
    cell: str | None = None
    less: tuple[str, str] | None = None
    line: str | None = None
    constant: str | None = None
    cause: Cause
    because: str

    @model_validator(mode="after")
    def _one_place(self) -> Statement:
        if [self.claim, self.cell, self.less].count(None) != 2 or (self.less is None) != (self.line is None):
            raise ValueError("give a claim, a cell, or two cells with a line")
        return self


class Statements(Strict):
    """The file `headlines.yaml`, in the order in which a reader meets the effects."""

    statements: tuple[Statement, ...]


class Carried(Strict):
    """What another run had for the same effects: `rows` by id, value, low, high; percentage points or per cent.

    version : of afa. settings, data : digests of the settings that the stages behind the effects read (`basis`), and of
    the encoded patients and the bundle.
    """

    cohort: str
    version: str
    settings: str
    data: str
    rows: Mapping[str, tuple[float, float, float]]


class Sentences(NamedTuple):
    """What reproduced, what did not, and why, in words."""

    reproduced: str
    not_reproduced: str
    why: str


def screen_table(statements: Sequence[Statement], comparison: pd.DataFrame, reader: Reader) -> pd.DataFrame:
    """One row an effect, with the columns of `COLUMNS`; numbers in percentage points or per cent.

    comparison : the table of `afa.report.comparison.compare`. A `ConfigError` names an effect of no claim or cell.
    """
    places = {
        row["id"] or " | ".join((row["table"], row["row"], row["column"])): row for row in comparison.to_dict("records")
    }
    wanted = {place for each in statements for place in (each.claim, each.cell, *(each.less or ())) if place}
    if lacking := sorted(wanted - set(places)):
        where = "resources/paper/headlines.yaml"
        raise ConfigError(Fault(where, f"no {', '.join(lacking)}", "claims and printed cells", "correct it"))
    rows = [
        _of_two(each, places, reader) if each.less else _of_one(places[each.claim or each.cell or ""])
        for each in statements
    ]
    known = pd.DataFrame([each.model_dump(include=set(KNOWN)) for each in statements])
    constants = [_best_constant(reader.summary.rows, each.constant) for each in statements]
    return pd.concat([known, pd.DataFrame(rows)], axis=1).assign(constant=constants)[COLUMNS]


def _of_one(row: Row) -> dict[str, Any]:
    """The numbers of a line of the comparison, a share in per cent."""
    scale = 100.0 if row["unit"] == "share" else 1.0
    found = {name: row[name] * scale for name in ("ours", "low", "high")}
    unit = "percent" if row["unit"] == "share" else row["unit"]
    return found | {"unit": unit, "paper": scale * float(row["paper"]), "verdict": row["verdict"], "size": row["size"]}


def _of_two(statement: Statement, places: Mapping[str, Row], reader: Reader) -> dict[str, Any]:
    """The same of two printed shares, one less the other, against a paired difference of ours."""
    assert statement.less is not None
    assert statement.line is not None
    first, second = (places[name] for name in statement.less)
    paper = 100 * (float(first["paper"]) - float(second["paper"]))
    found = reader.line(statement.line)
    row = {"unit": DIFFERENCE, "paper": paper, "verdict": "not run", "size": ""}
    if found is None:
        return row | dict.fromkeys(("ours", "low", "high"), float("nan"))
    printed = Printed(f"{paper:.1f}", DIFFERENCE, reader.answers.patients.get(first["table"]))
    verdict = judge(printed, found.number, found.n)
    row |= {"verdict": SIMULATED if reader.facts.simulated else verdict.direction}
    row |= {"size": "" if reader.facts.simulated else verdict.size}
    return row | {"ours": found.number.value, "low": found.number.low, "high": found.number.high}


def _best_constant(summary: pd.DataFrame, table: str | None) -> float:
    """Per cent that the best constant answer has right in a table of the summary; NaN where there is none."""
    rows = summary[
        (summary["table"] == table) & (summary["metric"] == "majority") & (summary["target"] == "likelihood")
    ]
    rows = headline(rows[rows["reference"].isna()])
    values = rows["value"].dropna().unique()
    return 100 * float(values[0]) if len(values) == 1 else float("nan")


def reproduced(row: Row) -> bool:
    """Whether an effect has its direction, where it has one, and its size to five points."""
    return row["verdict"] in ("", HOLDS) and row["size"] in (NEAR, CLOSE)


def sentences(table: pd.DataFrame) -> Sentences:
    """Three sentences made of the table of effects alone."""
    rows = table.to_dict("records")
    judged = [row for row in rows if row["size"] or row["verdict"] in (HOLDS, REVERSES, UNCLEAR)]
    if not judged:
        return Sentences("No effect is judged: the patients are simulated, or nothing has run.", "", "")
    came = [row for row in judged if reproduced(row)]
    failed = [row for row in judged if not reproduced(row)]
    groups = {
        "the other way round": [row for row in failed if row["verdict"] == REVERSES],
        "of another size": [row for row in failed if row["verdict"] != REVERSES and row["size"] == FAR],
        "not distinguishable from 0": [row for row in failed if row["verdict"] == UNCLEAR and row["size"] != FAR],
    }
    parts = [f"{what}: {_listed(group)}" for what, group in groups.items() if group]
    return Sentences(
        f"Reproduced in direction and within five points, {len(came)} of {len(judged)} effects:"
        f" {_listed(came) or 'none'}.",
        f"Not reproduced, {len(failed)}. {'. '.join(map(_capital, parts))}." if failed else "All are reproduced.",
        f"Why, as far as it is known. {'. '.join(map(_capital, _causes(failed)))}." if failed else "",
    )


def _causes(failed: Sequence[Row]) -> list[str]:
    """What sets the effects apart that did not come out, by cause; and what a constant answer leaves to gain."""
    by_cause = {cause: [row for row in failed if row["cause"] == cause] for cause in get_args(Cause)}
    parts = [f"{cause}: {_listed(group)}" for cause, group in by_cause.items() if group]
    high = [row["constant"] for row in failed if row["constant"] >= HIGH]
    if high:
        ends = " to ".join(dict.fromkeys((f"{min(high):.1f}", f"{max(high):.1f}")))
        parts.append(
            f"a constant answer is right in {ends} % of the cases of {len(high)} of them, which leaves little to gain"
        )
    return parts


def _capital(text: str) -> str:
    return text[0].upper() + text[1:]


def _listed(rows: Sequence[Row]) -> str:
    return ", ".join(row["name"] for row in rows)


def title_of(table: pd.DataFrame) -> str:
    """The finding of the figure."""
    judged = table[table["verdict"].isin([HOLDS, REVERSES, UNCLEAR])]
    same, near = (judged["verdict"] == HOLDS).sum(), table["size"].isin([NEAR, CLOSE]).sum()
    if judged.empty:
        return "No effect is judged"
    effects = (table["size"] != "").sum()
    return f"{same} of {len(judged)} differences have the paper's sign; {near} of {effects} effects have its size"


def figure(table: pd.DataFrame, carried: Sequence[Carried], here: str) -> Markup:
    """The effects that are differences as an SVG: the paper a diamond, this run a disc, other runs squares."""
    rows = table[(table["unit"] == DIFFERENCE) & table["ours"].notna()]
    values = [*rows["paper"], *rows["low"].fillna(rows["ours"]), *rows["high"].fillna(rows["ours"]), 0.0]
    values += [end for each in carried for name in rows["id"] if name in each.rows for end in each.rows[name]]
    low, high = min(values) - 2, max(values) + 2
    height = ROW * len(rows) + 84

    def x(value: float) -> float:
        return float(LEFT + (WIDTH - LEFT - RIGHT) * (value - low) / (high - low))

    parts = [f'<line x1="{x(0):.1f}" y1="24" x2="{x(0):.1f}" y2="{height - 40}" class="zero"/>']
    ticks = [tick for tick in range(int(low // 10) * 10, int(high) + 10, 10) if low <= tick <= high]
    parts += [f'<text x="{x(tick):.1f}" y="{height - 24}" class="tick">{tick}</text>' for tick in ticks]
    words = "percentage points; lines: intervals over patients"
    parts.append(f'<text x="{(LEFT + WIDTH) / 2}" y="{height - 6}" class="tick">{words}</text>')
    for place, row in enumerate(rows.to_dict("records")):
        y = 54 + place * ROW
        parts.append(f'<text x="{LEFT}" y="{y - 14}" class="name">{escape(row["name"])}</text>')
        for each in carried:
            if row["id"] in each.rows:
                value, start, end = each.rows[row["id"]]
                parts.append(f'<line x1="{x(start):.1f}" y1="{y + 6}" x2="{x(end):.1f}" y2="{y + 6}" class="other"/>')
                parts.append(f'<rect x="{x(value) - 4:.1f}" y="{y + 2}" width="8" height="8" class="other"/>')
        if pd.notna(row["low"]):
            parts.append(f'<line x1="{x(row["low"]):.1f}" y1="{y}" x2="{x(row["high"]):.1f}" y2="{y}" class="ours"/>')
        parts.append(f'<circle cx="{x(row["ours"]):.1f}" cy="{y}" r="5" class="ours"/>')
        at = x(row["paper"])
        parts.append(f'<path d="M{at:.1f} {y - 7} l6 7 l-6 7 l-6 -7 z" class="paper"/>')
    names = ["paper (diamond)", f"{here} (disc)", *(f"{each.cohort} (square)" for each in carried)]
    parts.append(f'<text x="{LEFT}" y="14" class="legend">{escape(" · ".join(names))}</text>')
    words = "; ".join(
        f"{row['name']}: paper {row['paper']:.1f}, here {row['ours']:.1f}" for row in rows.to_dict("records")
    )
    return Markup(f'<svg viewBox="0 0 {WIDTH} {height}" role="img" aria-label="{escape(words)}">{"".join(parts)}</svg>')  # noqa: S704


def carried_of(run: Path) -> Carried:
    """The effects of a finished run, to be shown beside other runs."""
    table = read_table(run / "comparison", "screen")
    rows = table[table["ours"].notna()].fillna({"low": table["ours"], "high": table["ours"]})
    kept = {
        row["id"]: (round(row["ours"], 2), round(row["low"], 2), round(row["high"], 2))
        for row in rows.to_dict("records")
    }
    features, bundle = sha256_of(run / "cohort" / "features.parquet"), load_bundle(run / "bundle").digest
    return Carried(
        cohort=load_cohort(run / "cohort").name,
        version=__version__,
        settings=basis(json.loads((run / "config.json").read_text(encoding="utf-8"))),
        data=sha256(f"{features} {bundle}".encode()).hexdigest(),
        rows=kept,
    )


def basis(config: Mapping[str, Any]) -> str:
    """Digest of the settings behind the effects, of a whole configuration as in `config.json`."""
    described = [stages()[name] for name in CARRIED_STAGES]
    keys = {key.partition(".")[0] for stage in described for key in (*stage.settings, *(stage.summary or ()))}
    text = json.dumps({key: config.get(key) for key in sorted(keys)}, sort_keys=True)
    return sha256(text.encode()).hexdigest()


def stale(carried: Carried, found: Carried) -> list[str]:
    """What differs between stored effects and those of a run of the same cohort, in words; nothing where they agree."""
    said = [f"other {name}" for name in ("settings", "data") if getattr(carried, name) != getattr(found, name)]
    for name in sorted({*carried.rows, *found.rows}):
        stored, now = carried.rows.get(name), found.rows.get(name)
        if (
            stored is None
            or now is None
            or max(abs(a - b) for a, b in zip(stored, now, strict=True)) > CARRIED_ROUNDING
        ):
            said.append(f"{name}: {stored} stored, {now} found")
    return said


def load_carried(folder: Path) -> list[Carried]:
    """Every stored run of a folder, by cohort; none where there is no such folder."""
    return [load_model(path, Carried) for path in sorted(folder.glob("*.yaml"))]
