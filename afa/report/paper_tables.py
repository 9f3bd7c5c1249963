"""The paper's tables with this run's numbers beside: one line per printed cell, and at t = 0, which it leaves out.

Each printed cell is named by its row and column (`resources/paper`); a table here maps that name to the line of the
summary that answers it. A cell that no stage of this run answers keeps the paper's number and has no value of ours.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import pandas as pd

from afa.errors import Fault, ReportError

PAPER_FEATURES = 216
COLUMNS = ["row", "column", "t", "unit", "ours", "low", "high", "n", "paper", "difference"]
METHODS = {"wald": "wald", "two_elbo": "two_elbo", "stack-A": "stack_a", "linearity": "linearity", "kl": "kl"}
F_TARGET = {"wald": "two_elbo", "two_elbo": "two_elbo", "stack_a": "stack_a"}
START = "uniform"


@dataclass(frozen=True)
class Cell:
    """Where a printed cell's answer stands in the summary: the values of its key columns, those not named being empty.

    scale : 100 where the paper prints percent or points.
    """

    where: Mapping[str, Any]
    scale: float = 1.0
    unit: str = "share"


def paper_table(name: str, printed: pd.DataFrame, summary: pd.DataFrame, *, n_features: int) -> pd.DataFrame:
    """One table of the paper, by printed cell, with the columns of `COLUMNS`.

    printed : the paper's table, with `row`, `column`, `value`. summary : all summary rows of the run. The paper's last
    column, t = 216, is its full observation, answered by ours at `n_features`. `difference` is ours less the paper's.
    """
    if name not in TABLES:
        raise ReportError(Fault(f"paper table {name}", "no such table", ", ".join(TABLES), "choose one of these"))
    cell_of = TABLES[name]
    lines = [_line(cell_of, row, column, value, summary, n_features) for row, column, value in _cells(printed)]
    return pd.DataFrame([line for line in lines if line is not None], columns=COLUMNS)


def _cells(printed: pd.DataFrame) -> list[tuple[str, str, float | None]]:
    """Every printed cell, before each row's first one with a t the same at t = 0."""
    cells: list[tuple[str, str, float | None]] = []
    for row, part in printed.groupby("row", sort=False):
        first = str(part["column"].iloc[0])
        if first.startswith("t="):
            cells.append((str(row), re.sub(r"t=\d+", "t=0", first), None))
        cells += [(str(row), str(c), float(v)) for c, v in zip(part["column"], part["value"], strict=True)]
    return cells


def _line(
    cell_of: Callable[[str, str], Cell | None],
    row: str,
    column: str,
    paper: float | None,
    summary: pd.DataFrame,
    n_features: int,
) -> dict[str, Any] | None:
    found = re.match(r"t=(\d+)", column)
    t = (n_features if int(found[1]) == PAPER_FEATURES else int(found[1])) if found else None
    cell = cell_of(row, column)
    if cell is None:
        return {"row": row, "column": column, "t": t, "paper": paper} if paper is not None else None
    where = dict(cell.where) if t is None else {**cell.where, "t": t}
    answer = select(summary, where)
    ours = {} if answer is None else {key: answer[key] * cell.scale for key in ("value", "low", "high")}
    return {
        "row": row,
        "column": column,
        "t": where.get("t"),
        "unit": cell.unit,
        "ours": ours.get("value"),
        "low": ours.get("low"),
        "high": ours.get("high"),
        "n": None if answer is None else answer["n"],
        "paper": paper,
        "difference": ours["value"] - paper if ours and paper is not None else None,
    }


def select(summary: pd.DataFrame, where: Mapping[str, Any]) -> pd.Series | None:
    """The one line of the summary with these keys, all keys not named being empty; None where there is none."""
    keys = summary.columns[: list(summary.columns).index("value")]
    chosen = pd.Series(data=True, index=summary.index)
    for key in keys:
        wanted = where.get(key)
        chosen &= summary[key].isna() if wanted is None else (summary[key] == wanted)
    lines = summary[chosen]
    if len(lines) > 1:
        raise ReportError(Fault(f"summary line {dict(where)}", f"{len(lines)} lines", "one", "name more keys"))
    return None if lines.empty else lines.iloc[0]


def _random_sign(row: str, _: str) -> Cell | None:
    keys = {"table": "sign_accuracy_random", "metric": "accuracy", "method": METHODS[row], "allocation": "random"}
    return Cell({**keys, "schedule": "every", "target": "likelihood", "start": START})


def _classification(row: str, column: str) -> Cell | None:
    target, method = row.split(" / ")
    if target == "LLM":
        return None
    method = METHODS[method]
    keys = {"table": "binary", "method": method, "target": target.lower(), "schedule": "every", "start": START}
    if column.endswith("gain (pp)"):
        gain = "cmi" if " cmi " in column else "f_target"
        guide = F_TARGET[method] if gain == "f_target" else None
        informed = {"metric": "gap", "allocation": "greedy", "gain": gain, "guide": guide, "reference": "random"}
        return Cell({**keys, **informed}, scale=100, unit="percentage points")
    return Cell({**keys, "metric": "accuracy", "allocation": "random"})


def _gauge_agreement(row: str, _: str) -> Cell | None:
    quantity, track = row.split(" / ")
    method = {"F1-track": "two_elbo", "F2-track": "stack_a"}[track]
    keys = {"method": method, "reference": "maxent_vs_true", "allocation": "random", "schedule": "every"}
    if quantity == "Decision agreement":
        return Cell({"table": "gauge_agreement", "metric": "rate", "start": START, **keys})
    return Cell({"table": "gauge_correlation", "metric": "correlation", "start": START, **keys}, unit="correlation")


def _gauge_accuracy(row: str, _: str) -> Cell | None:
    method, _, reference = row.rpartition("_") if row != "wald" else ("wald", "", "")
    keys = {"table": "gauge_accuracy", "metric": "accuracy", "method": method, "reference": reference or None}
    return Cell({**keys, "target": "clinical", "allocation": "random", "schedule": "every", "start": START})


def _layer_one(row: str, column: str) -> Cell | None:
    mode, method, bracket = re.fullmatch(r"(M\d) (\S+) \((\w+)\)", row).groups()  # type: ignore[union-attr]
    if mode == "M2":
        return None
    keys = {"table": "bracket_rate", "metric": "rate", "stratum": "binary", "t": 100, "schedule": "every"}
    reference = {"L1": "l1_paper", "HW": "hanson_wright"}[bracket]
    allocation = "random" if column.startswith("Random") else "largest_unary"
    name = method.removesuffix("_maxent")
    where = {**keys, "method": name, "reference": reference, "allocation": allocation, "start": START}
    return Cell(where, scale=100, unit="percent")


def _chaos(row: str, column: str) -> Cell | None:
    group = {"All": None, "Chaotic": "chaotic", "Non-chaotic": "non_chaotic"}[column.split(maxsplit=1)[0]]
    keys = {"table": "chaos_gap", "stratum": group, "target": "likelihood", "allocation": "random", "start": START}
    keys |= {"schedule": "every"}
    if row == "n":
        return Cell({**keys, "metric": "count"}, unit="patients")
    gap = {"metric": "gap", "reference": "linearity_minus_wald", "t": int(row.removeprefix("t="))}
    return Cell({**keys, **gap}, scale=100, unit="percentage points")


TABLES: Mapping[str, Callable[[str, str], Cell | None]] = {
    "tab_m2_random_sign": _random_sign,
    "tab_chaos": _chaos,
    "tab_classification_with_llm": _classification,
    "tab_m1agree": _gauge_agreement,
    "tab_m1acc": _gauge_accuracy,
    "tab_layer1_informed": _layer_one,
}
