"""Compute tables that compare the paper's printed numbers with the numbers of this run.

A table has one line for each cell of the paper's table. The table also has lines at t = 0, although the paper prints
no numbers at t = 0. A cell is identified by its row name and its column name in a table in `resources/paper`. For each
cell, a function in `PRINTED_TABLES` identifies the line of summary.csv that contains this run's value. If the run has
no value for a cell, the table contains only the paper's number.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import product
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

from afa.cohort.cohort import Cohort
from afa.errors import Fault, ReportError
from afa.evaluate.method_names import PRIORITY, RANDOM

PAPER_FEATURES = 216
COLUMNS = ["row", "column", "t", "unit", "ours", "low", "high", "n", "paper", "difference", "also"]
PRINTED_METHODS = {"wald": "wald", "two_elbo": "two_elbo", "stack-A": "stack_a", "linearity": "linearity", "kl": "kl"}
PRINTED_MODELS = {"MRF-LLM": "mrf_llm", "RAG-LLM": "rag_llm"}
F_TARGET = {"wald": "two_elbo", "two_elbo": "two_elbo", "stack_a": "stack_a"}
START = "uniform"
EVERY_ROUND_KEYS: dict[str, Any] = {"schedule": "every", "start": START}
TEXT_COLUMNS = ("Sim", "Story")
"""Printed columns that describe a row. They have no numbers."""
PRINTED_ALLOCATIONS = {"random": RANDOM, "greedy": "greedy", "clustered": "clustered", "ours": PRIORITY}
PRINTED_GAINS = {"wald_magnitude": "wald_magnitude", "wald_mag": "wald_magnitude", "cmi": "cmi", "F-target": "f_target"}
GAIN_COLUMNS, GAIN_ROUND = ("wald_magnitude", "cmi"), 150
"""The columns of a printed table that is for one round only, and this round."""
PRINTED_BRACKETS, LAYER_ONE_ROUND = {"L1": "l1_paper", "HW": "hanson_wright", "KL": "kl"}, 100
"""The brackets of another printed table that is for one round only, and this round. By its definition, the KL bracket
calls every pair, but the paper prints few calls.
"""


@dataclass(frozen=True)
class PrintedCell:
    """The place where this run's number for one printed number (a cell of a table in the paper) is found.

    This run's number is in the line of summary.csv whose key columns have the values in `where`. Key columns that are
    not in `where` are empty.

    Attributes
    ----------
    where : values of the key columns
    scale : factor of the value: 100 if the paper prints per cent or percentage points
    unit : unit of the printed value
    over : key columns of the denominator, if the cell is a ratio; a ratio has no interval
    unless : key columns of a line whose value must be 0, else the two numbers are not comparable
    constant : key columns of the best constant answer's accuracy; if it is 1, the two numbers are not comparable
    also : another interpretation of the paper's text -> the key columns that differ under that interpretation

    """

    where: Mapping[str, Any]
    scale: float = 1.0
    unit: str = "share"
    over: Mapping[str, Any] | None = None
    unless: Mapping[str, Any] | None = None
    constant: Mapping[str, Any] | None = None
    also: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)


class SummaryLines:
    """The summary of a run. A line is found by the values of its key columns.

    Parameters
    ----------
    rows : the summary, or a part of it. Two lines with the same keys raise a `ReportError`

    """

    def __init__(self, rows: pd.DataFrame) -> None:
        self.rows = rows
        self._keys = list(rows.columns[: list(rows.columns).index("value")])
        named = rows[self._keys].astype(object).where(rows[self._keys].notna(), None)
        self._places = {keys: place for place, keys in enumerate(zip(*(named[key] for key in named), strict=True))}
        if len(self._places) < len(rows):
            twice = rows[rows.duplicated(self._keys)].iloc[0][self._keys].dropna().to_dict()
            raise ReportError(Fault(f"summary line {twice}", "2 lines or more", "one", "run its stage again"))

    def find(self, where: Mapping[str, Any]) -> pd.Series | None:
        """Return the line whose key columns have the values in `where`.

        Key columns that are not in `where` must be empty.

        If the summary has no such line, return None.
        """
        place = self._places.get(tuple(where.get(key) for key in self._keys))
        return None if place is None else self.rows.iloc[place]


def paper_table(name: str, printed: pd.DataFrame, summary: SummaryLines, *, n_features: int) -> pd.DataFrame:
    """Return a table with one row for each cell of a table of the paper, and the columns `COLUMNS`.

    In the paper, all features are observed at t = 216. The paper's values at t = 216 are compared with this run's
    values at t = `n_features`. `difference` is this run's value minus the paper's value.

    Parameters
    ----------
    printed : the paper's table, with the columns `row`, `column` and `value`
    summary : all summary rows of the run

    """
    lines = []
    for row, column, paper in _printed_cells(printed):
        found, cell = re.match(r"t=(\d+)", column), PRINTED_TABLES[name](row, column)
        t = None if found is None else n_features if int(found[1]) == PAPER_FEATURES else int(found[1])
        line: dict[str, Any] = {"row": row, "column": column, "t": t, "paper": paper}
        if cell is not None:
            line |= _cell_values(cell if t is None else replace(cell, where={**cell.where, "t": t}), paper, summary)
        if cell is not None or paper is not None:
            lines.append(line)
    return pd.DataFrame(lines, columns=COLUMNS)


def beside_paper(name: str, paper: str | Path, rows: pd.DataFrame, cohort: Cohort) -> pd.DataFrame:
    """Return the comparison of a printed table with this run (`paper_table`), for a notebook.

    The printed table is read from the folder `paper`.

    In column names such as `t=216` (full observation), 216 is replaced by this cohort's number of features. If the
    cohort was read from a table, the columns `paper` and `difference` are empty, because the paper has no results for
    such a cohort.
    """
    printed = pd.read_csv(Path(paper) / f"{name}.csv")
    cells = paper_table(name, printed, SummaryLines(rows), n_features=len(cohort.features))
    cells["column"] = at_full_observation(cells["column"], cohort)
    of_a_field = cohort.provenance.get("origin") == "table"
    return cells.assign(paper=np.nan, difference=np.nan) if of_a_field else cells


def at_full_observation(columns: pd.Series, cohort: Cohort) -> pd.Series:
    """Return the column names with the paper's `t=216` replaced by this cohort's number of features."""
    return columns.str.replace(rf"t={PAPER_FEATURES}\b", f"t={len(cohort.features)}", regex=True)


def _printed_cells(printed: pd.DataFrame) -> list[tuple[str, str, float | None]]:
    """Return (row, column, number) for each printed number, and (row, column, None) for each cell at t = 0."""
    cells: list[tuple[str, str, float | None]] = []
    printed = printed[~printed["column"].isin(TEXT_COLUMNS)]
    for row, part in printed.groupby("row", sort=False):
        first = str(part["column"].iloc[0])
        if first.startswith("t="):
            cells.append((str(row), re.sub(r"t=\d+", "t=0", first), None))
        elif first in GAIN_COLUMNS:
            cells += [(str(row), f"{column} t=0", None) for column in part["column"]]
        cells += [(str(row), str(c), float(v)) for c, v in zip(part["column"], part["value"], strict=True)]
    return cells


def _cell_values(cell: PrintedCell, paper: float | None, summary: SummaryLines) -> dict[str, Any]:
    """Return this run's values for a cell of the paper's table.

    If the paper's number and this run's number are not comparable, the reason is appended to the text `unit`.
    """
    answer, warning, constant, below = (
        None if where is None else summary.find(where) for where in (cell.where, cell.unless, cell.constant, cell.over)
    )
    ours = {} if answer is None else {key: answer[key] * cell.scale for key in ("value", "low", "high")}
    if cell.over is not None and ours:
        ours = {} if below is None else {"value": ours["value"] / below["value"]}
    why = ""
    if warning is not None and warning["value"] != 0:
        why = ", not comparable: too few phenotypes have labels here (S10)"
    elif constant is not None and constant["value"] == 1:
        why = ", not comparable: all targets are alike here, so that a constant answer is always right"
    others = {what: summary.find({**cell.where, **keys}) for what, keys in cell.also.items()}
    return {
        "t": cell.where.get("t"),
        "unit": cell.unit + why,
        "ours": ours.get("value"),
        "low": ours.get("low"),
        "high": ours.get("high"),
        "n": None if answer is None else answer["n"],
        "difference": ours["value"] - paper if ours and paper is not None and not why else None,
        "also": "; ".join(
            f"{what}: {found['value'] * cell.scale:.3g}"
            for what, found in others.items()
            if found is not None and pd.notna(found["value"])
        ),
    }


def _random_sign(row: str, _: str) -> PrintedCell | None:
    method = "kl_nonzero" if row == "kl" else PRINTED_METHODS[row]
    keys = EVERY_ROUND_KEYS | {
        "table": "sign_accuracy_random",
        "metric": "accuracy",
        "method": method,
        "allocation": "random",
    }
    # The paper says that a zero vote "should be inert in any consistent estimator" (supp:kl-vs-saddle). Therefore the
    # paper's row `kl` is compared with our method `kl_nonzero`. In `kl_nonzero`, features that vote for neither entity
    # (zero votes) do not count. In our method `kl`, features that vote for neither entity do
    # count. The accuracy of `kl` is shown in the column `also`.
    also = {"zero votes counted": {"method": "kl"}} if row == "kl" else {}
    return PrintedCell(keys | {"target": "likelihood"}, also=also)


def _classification(row: str, column: str) -> PrintedCell | None:
    target, method = row.split(" / ")
    if target == "LLM":
        keys = {"table": "llm_baselines", "target": "likelihood"}
        return PrintedCell(
            {**keys, "metric": "accuracy", "method": PRINTED_MODELS[method]}, constant={**keys, "metric": "majority"}
        )
    method = PRINTED_METHODS[method]
    keys = EVERY_ROUND_KEYS | {"table": "binary", "method": method, "target": target.lower()}
    if column.endswith("gain (pp)"):
        gain = "cmi" if " cmi " in column else "f_target"
        guide = F_TARGET[method] if gain == "f_target" else None
        informed = {"metric": "gap", "allocation": "greedy", "gain": gain, "guide": guide, "reference": "random"}
        return PrintedCell({**keys, **informed}, scale=100, unit="percentage points")
    return PrintedCell({**keys, "metric": "accuracy", "allocation": "random"})


def _gauge_agreement(row: str, _: str) -> PrintedCell | None:
    quantity, track = row.split(" / ")
    method = {"F1-track": "two_elbo", "F2-track": "stack_a"}[track]
    keys = EVERY_ROUND_KEYS | {"method": method, "reference": "maxent_vs_true", "allocation": "random"}
    if quantity == "Decision agreement":
        return PrintedCell(keys | {"table": "gauge_agreement", "metric": "rate"})
    where = {"table": "gauge_correlation", "metric": "correlation", "variant": "pooled"}
    return PrintedCell(keys | where, unit="correlation", also={"within duels": {"variant": None}})


def _gauge_accuracy(row: str, _: str) -> PrintedCell | None:
    method, _, reference = row.rpartition("_") if row != "wald" else ("wald", "", "")
    keys = {"table": "gauge_accuracy", "metric": "accuracy", "method": method, "reference": reference or None}
    return PrintedCell(EVERY_ROUND_KEYS | keys | {"target": "clinical", "allocation": "random"})


def _layer_one(row: str, column: str) -> PrintedCell | None:
    mode, method, bracket = re.fullmatch(r"(M\d) (\S+) \((\w+)\)", row).groups()  # type: ignore[union-attr]
    is_random = column.startswith("Random")
    if mode == "M1":
        name, allocation = method.removesuffix("_maxent"), "random" if is_random else "largest_unary"
        keys = {"method": name, "allocation": allocation, "stratum": "binary"}
    else:
        # The L1 score bounds do not depend on the method: both printed L1 rows are compared with one summary line.
        name = "wald" if bracket == "L1" else PRINTED_METHODS[method]
        keys = {"method": name, "allocation": "random" if is_random else "informed", "target": "likelihood"}
    where = (
        EVERY_ROUND_KEYS | keys | {"table": "bracket_rate", "metric": "rate", "reference": PRINTED_BRACKETS[bracket]}
    )
    where |= {"t": LAYER_ONE_ROUND}
    also = {"each duel in its own order": {"allocation": "informed_pair"}} if keys["allocation"] == "informed" else {}
    return PrintedCell(where, scale=100, unit="percent", also=also)


def _chaos(row: str, column: str) -> PrintedCell | None:
    group = {"All": None, "Chaotic": "chaotic", "Non-chaotic": "non_chaotic"}[column.split(maxsplit=1)[0]]
    keys = EVERY_ROUND_KEYS | {"table": "chaos_gap", "stratum": group, "target": "likelihood", "allocation": "random"}
    if row == "n":
        return PrintedCell({**keys, "metric": "count"}, unit="patients")
    gap = {"metric": "gap", "reference": "linearity_minus_wald", "t": int(row.removeprefix("t="))}
    return PrintedCell({**keys, **gap}, scale=100, unit="percentage points")


def _layer_zero(row: str, column: str) -> PrintedCell | None:
    keys = {"table": "layer0_synthetic", "stratum": row, "reference": "f1_n_minus_k"}
    if column == "Sep ratio":
        nats = {"table": "layer0_synthetic", "metric": "nats", "stratum": row}
        gap, radius = ({**nats, "quantity": word} for word in ("centroid_gap", "largest_radius"))
        return PrintedCell(gap, unit="ratio", over=radius)
    if column == "Elim":
        return PrintedCell({**keys, "metric": "count", "method": "wald"}, unit="clusters")
    keys |= {"metric": "gap", "method": "linearity", "guide": "linearity", "gain": "cmi", "allocation": "greedy"}
    return PrintedCell(EVERY_ROUND_KEYS | keys | {"target": "likelihood", "t": 10}, scale=100, unit="percentage points")


def _rule_keys(rule: str, gain: str, schedule: str) -> dict[str, str | None]:
    """Return the key columns for a rule, a gain and a schedule.

    If the rule is `random`, the key column `gain` is empty and the schedule is `every`.
    """
    allocation = PRINTED_ALLOCATIONS[rule]
    if allocation == "random":
        where = {"allocation": allocation, "gain": None, "schedule": "every"}
    else:
        where = {"allocation": allocation, "gain": PRINTED_GAINS[gain], "schedule": schedule}
    return {**where, "method": "linearity", "guide": "linearity", "start": START}


def _allocation(row: str, column: str) -> PrintedCell | None:
    gain, _, before = column.partition(" ")
    keys = {"table": "allocation_sign", "metric": "accuracy", "target": "likelihood", "t": 0 if before else GAIN_ROUND}
    return PrintedCell({**keys, **_rule_keys(row, gain, "paper")})


def _top_five(row: str, _: str) -> PrintedCell | None:
    quantity, name = row.split(" / ")
    if quantity == "P@5 LLM baselines":
        return PrintedCell(
            {"table": "llm_baselines", "metric": "p_at_k", "method": PRINTED_MODELS[name], "target": "likelihood"}
        )
    gain, rule = name.split()
    keys = {"table": "allocation_p_at_k", "target": quantity.removeprefix("P@5 ")}
    few = {**keys, "metric": "count", "quantity": "not_comparable", "guide": "linearity", "start": START}
    unless = few if keys["target"] == "clinical" else None
    return PrintedCell({**keys, "metric": "p_at_k", **_rule_keys(rule, gain, "paper")}, unless=unless)


PRINTED_TABLES: Mapping[str, Callable[[str, str], PrintedCell | None]] = {
    "tab_m2_random_sign": _random_sign,
    "tab_chaos": _chaos,
    "tab_classification_with_llm": _classification,
    "tab_m1agree": _gauge_agreement,
    "tab_m1acc": _gauge_accuracy,
    "tab_layer1_informed": _layer_one,
    "tab_layer0_synthetic": _layer_zero,
    "tab_m2_alloc": _allocation,
    "tab_m2_phase1_pat5": _top_five,
}


def binary_form(rows: pd.DataFrame, *, rounds: Sequence[int], variant: str | None = None) -> pd.DataFrame:
    """Return a table in the form of tab:classification_with_llm, with one line for each target and method.

    The table has one column for each t. In a cell such as `0.53 (+29.7 / +30.6)`, 0.53 is the accuracy if features are
    chosen at random. The numbers in brackets are the percentage points gained over random choice: first with
    `f_target`, then with `cmi`. Each line is about one score (column `method`). In the lines of the scores `two_elbo`
    and `stack_a`, the gain `f_target` is computed from the line's own score. In the lines of the score `wald`, the gain
    `f_target` is computed from the score `two_elbo`. A line is skipped if the summary has no values for it. A cell is
    empty if the summary has no value at t.

    Parameters
    ----------
    rows : rows `binary` of the summary
    variant : None or `support`. With `support`, t counts features of the entity's support

    """
    summary, lines = SummaryLines(rows), []
    for target, (method, own) in product(("likelihood", "clinical"), F_TARGET.items()):
        cells = {}
        for t in rounds:
            keys = EVERY_ROUND_KEYS | {
                "table": "binary",
                "target": target,
                "method": method,
                "t": t,
                "variant": variant,
            }
            random = summary.find(keys | {"metric": "accuracy", "allocation": "random"})
            keys |= {"metric": "gap", "allocation": "greedy", "reference": "random"}
            gains = [
                summary.find(keys | {"gain": g, "guide": guide}) for g, guide in (("f_target", own), ("cmi", None))
            ]
            shown = " / ".join("-" if gain is None else f"{100 * gain['value']:+.1f}" for gain in gains)
            cells[f"t={t}"] = "" if random is None else f"{random['value']:.2f} ({shown})"
        if any(cells.values()):
            lines.append({"target": target, "method": method, **cells})
    return pd.DataFrame(lines)
