"""The first screen of the report: a dozen effects of the paper, and what other runs had for them."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from hashlib import sha256
from pathlib import Path
from typing import Any, Literal

import numpy as np
import pandas as pd

from afa import __version__
from afa.cohort.cohort import load_cohort
from afa.evaluate.long_tables import read_table
from afa.evaluate.summary import headline
from afa.io.files import sha256_of
from afa.io.yamlfile import Strict, load_model
from afa.model.bundle import load_bundle
from afa.paper.experiments import stages
from afa.paper.report.comparison import Reader
from afa.paper.report.verdicts import DIFFERENCE, NOT_RUN, SIMULATED, Printed, judge

Cause = Literal["data", "elicitation", "reading", "the paper"]
Row = Mapping[Any, Any]
"""A row of a table, by column."""
KNOWN = ("id", "name", "says", "cause", "because")
COLUMNS = [*KNOWN[:3], "unit", "paper", "ours", "low", "high", "constant", "verdict", "size", *KNOWN[3:]]
CARRIED_STAGES = ("sign", "chaos", "binary", "gauge", "allocation", "layer0_synthetic")
"""The stages behind the effects, to whose settings a stored run is bound."""
CARRIED_ROUNDING = 0.015
"""Points by which a stored effect may differ from one computed again: it has two decimals."""


class Statement(Strict):
    """One effect: where its printed number and ours stand, and what is known where they differ.

    It is read from a claim, from a cell, or from two cells, one less the other, and a line.
    """

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


def screen_table(statements: Sequence[Statement], comparison: pd.DataFrame, reader: Reader) -> pd.DataFrame:
    """One row an effect, with the columns of `COLUMNS`; numbers in percentage points or per cent.

    comparison : the table of `afa.paper.report.comparison.compare`.
    """
    places = {
        row["id"] or " | ".join((row["table"], row["row"], row["column"])): row for row in comparison.to_dict("records")
    }
    rows = [_numbers(each, places, reader) for each in statements]
    known = pd.DataFrame([each.model_dump(include=set(KNOWN)) for each in statements])
    constants = [_best_constant(reader.summary.rows, each.constant) for each in statements]
    return pd.concat([known, pd.DataFrame(rows)], axis=1).assign(constant=constants)[COLUMNS]


def _numbers(statement: Statement, places: Mapping[str, Row], reader: Reader) -> dict[str, Any]:
    """What the paper and this run have for an effect, and the verdict; a share is in per cent.

    Of a claim or cell it is that of its line. Of two printed shares it is one less the other, against a paired
    difference of ours.
    """
    if statement.less is None or statement.line is None:
        row = places[statement.claim or statement.cell or ""]
        scale = 100.0 if row["unit"] == "share" else 1.0
        found = {"unit": "percent" if row["unit"] == "share" else row["unit"], "paper": scale * float(row["paper"])}
        found |= {name: row[name] * scale for name in ("ours", "low", "high")}
        return found | {"verdict": row["verdict"], "size": row["size"]}
    first, second = (places[name] for name in statement.less)
    paper = 100 * (float(first["paper"]) - float(second["paper"]))
    row = {"unit": DIFFERENCE, "paper": paper, "verdict": NOT_RUN, "size": ""}
    ours = reader.line(statement.line)
    if ours is None:
        return row | dict.fromkeys(("ours", "low", "high"), float("nan"))
    row |= {"ours": ours.value, "low": ours.low, "high": ours.high}
    if reader.simulated:
        return row | {"verdict": SIMULATED}
    verdict = judge(Printed(f"{paper:.1f}", DIFFERENCE, reader.answers.patients.get(first["table"])), ours, ours.n)
    return row | {"verdict": verdict.direction, "size": verdict.size}


def _best_constant(summary: pd.DataFrame, table: str | None) -> float:
    """Per cent that the best constant answer has right in a table of the summary; NaN where there is none."""
    rows = summary[
        (summary["table"] == table) & (summary["metric"] == "majority") & (summary["target"] == "likelihood")
    ]
    rows = headline(rows[rows["reference"].isna()])
    values = rows["value"].dropna().unique()
    return 100 * float(values[0]) if len(values) == 1 else float("nan")


def carried_of(run: Path) -> Carried:
    """The effects of a finished run, to be shown beside other runs."""
    table = read_table(run / "comparison", "screen")
    rows = table[table["ours"].notna()].fillna({"low": table["ours"], "high": table["ours"]}).set_index("id")
    kept = {str(name): tuple(numbers) for name, *numbers in rows[["ours", "low", "high"]].round(2).itertuples()}
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
        if not (stored and now and np.allclose(stored, now, rtol=0, atol=CARRIED_ROUNDING)):
            said.append(f"{name}: {stored} stored, {now} found")
    return said


def load_carried(folder: Path) -> list[Carried]:
    """Every stored run of a folder, by cohort; none where there is no such folder."""
    return [load_model(path, Carried) for path in sorted(folder.glob("*.yaml"))]
