"""Between the first screen and the appendix: the paper's tables, the language model, the findings of the figures."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple

import pandas as pd

from afa.report.paper_tables import EVERY, Lines
from afa.report.verdicts import CLOSE, FAR, HOLDS, NEAR, REVERSES, UNCLEAR, verdict_words
from afa.stats.summary import headline

TITLES = {
    "tab_m2_random_sign": "Sign accuracy of duels under a random order",
    "tab_chaos": "Lead of linearity over wald, by stability of the signs",
    "tab_classification_with_llm": "Binary classification, and the language models",
    "tab_m1agree": "Agreement of the closure with the other gauge",
    "tab_m1acc": "Clinical accuracy of duels under either gauge",
    "tab_layer1_informed": "Duels resolved by t = 100, random and informed order",
    "tab_layer0_synthetic": "Layer 0 on synthetic entities",
    "tab_m2_alloc": "Allocation rules: sign accuracy at t = 150",
    "tab_m2_phase1_pat5": "Precision of the top five",
}
"""What each printed table is about, in our words."""
TINTS = {HOLDS: "same", REVERSES: "other", UNCLEAR: "unclear", NEAR: "same", CLOSE: "near", FAR: "other"}


class Shown(NamedTuple):
    """A cell of a printed table: the paper's number, ours, how it is tinted, and what a reader sees who asks."""

    paper: str
    ours: str
    tint: str
    more: str


class Block(NamedTuple):
    """Rows of a table that have the same columns: by the name of a row its cells."""

    columns: Sequence[str]
    rows: Mapping[str, Sequence[Shown]]


class PaperTable(NamedTuple):
    """A table in the paper's shape, the title in our words."""

    name: str
    title: str
    blocks: Sequence[Block]


def paper_shapes(comparison: pd.DataFrame) -> list[PaperTable]:
    """Every printed table in the paper's order of rows and columns. comparison : as `afa.report.comparison.compare`."""
    cells = comparison[comparison["kind"] == "cell"]
    shapes = []
    for name, part in cells.groupby("table", sort=False):
        blocks: dict[tuple[str, ...], dict[str, list[Shown]]] = {}
        for row, of_row in part.groupby("row", sort=False):
            cells_of_row = [_cell(cell) for cell in of_row.to_dict("records")]
            blocks.setdefault(tuple(of_row["column"]), {})[str(row)] = cells_of_row
        title = TITLES.get(str(name), str(name))
        shapes.append(PaperTable(str(name), title, [Block(columns, rows) for columns, rows in blocks.items()]))
    return shapes


def _cell(cell: Mapping[Any, Any]) -> Shown:
    if pd.isna(cell["ours"]):
        return Shown(str(cell["paper"]), "", "", str(cell["verdict"]))
    digits = max(1, min(3, len(str(cell["paper"]).partition(".")[2])))
    ours = f"{cell['ours']:.{digits}f}"
    if pd.notna(cell["low"]):
        ours += f" ±{(cell['high'] - cell['low']) / 2:.{digits}f}"
    also = f"other readings: {cell['also']}" if cell["also"] else ""
    more = dict.fromkeys(filter(None, (verdict_words(cell), cell["reason"], cell["note"], also)))
    return Shown(str(cell["paper"]), ours, TINTS.get(cell["size"] or cell["verdict"], ""), "; ".join(more))


class Beside(NamedTuple):
    """The planner and a language model on the same patients after t observations; shares, the gap in points."""

    task: str
    target: str
    t: int
    planner: float
    model: float
    gap: float
    low: float
    high: float
    cases: int


def language_model(summary: pd.DataFrame) -> list[Beside]:
    """The planner's default score and the answers of `mrf_llm`, by task, target and t; empty where no model was asked.

    A gap is the model less the planner, with its interval over the same patients.
    """
    lines = Lines(summary[summary["table"] == "llm_baselines"])
    own = EVERY | {"gain": "cmi", "table": "llm_baselines"}
    ways: dict[str, tuple[str, dict[str, Any]]] = {
        "top five": ("p_at_k", {"method": "linearity", "guide": "linearity", "allocation": "priority_all"}),
        "binary": ("accuracy", {"method": "two_elbo", "allocation": "greedy"}),
    }
    found = []
    for task, (metric, planner) in ways.items():
        for target in ("likelihood", "clinical"):
            for t in sorted(lines.rows["t"].dropna().unique()):
                keys = {"metric": metric, "target": target, "t": t}
                mine = lines.find(own | planner | keys)
                theirs = lines.find({"table": "llm_baselines", "method": "mrf_llm"} | keys)
                between = own | planner | keys | {"metric": "gap", "method": "mrf_llm", "reference": planner["method"]}
                gap = lines.find(between)
                if mine is None or theirs is None or gap is None or pd.isna(gap["value"]):
                    continue
                value, low, high = (100 * float(gap[name]) for name in ("value", "low", "high"))
                shares = (float(mine["value"]), float(theirs["value"]))
                found.append(Beside(task, target, int(t), *shares, value, low, high, int(gap["n"])))
    return found


def findings(summary: pd.DataFrame) -> dict[str, str]:
    """A sentence a figure, made of the summary alone; a figure whose numbers are not there has none."""
    lines = Lines(summary)
    said: dict[str, str] = {}
    for name, sentence in SENTENCES.items():
        try:
            said[name] = sentence(lines)
        except LookupError:
            continue
    return said


def _value(lines: Lines, keys: Mapping[str, Any]) -> float:
    """Per cent; a `LookupError` where there is no such number."""
    found = lines.find(keys)
    if found is None or pd.isna(found["value"]):
        raise LookupError(keys)
    return 100 * float(found["value"])


def _signs(lines: Lines) -> str:
    keys = EVERY | {"table": "sign_accuracy_random", "metric": "accuracy", "allocation": "random"}
    keys |= {"target": "likelihood"}
    start, wald = (_value(lines, keys | {"method": "linearity", "t": t}) for t in (0, 50))
    late = _value(lines, keys | {"method": "wald", "t": 50})
    return (
        f"Before any measurement linearity has {start:.0f} % of the duels right, from the bundle alone;"
        f" at t = 50 it has {wald:.0f} %, wald {late:.0f} %"
    )


def _chaos(lines: Lines) -> str:
    keys = EVERY | {"table": "chaos_gap", "metric": "gap", "reference": "linearity_minus_wald"}
    keys |= {"target": "likelihood", "allocation": "random"}
    chaotic, others = (_value(lines, keys | {"stratum": group, "t": 2}) for group in ("chaotic", "non_chaotic"))
    late = _value(lines, keys | {"t": 50})
    return (
        f"Linearity less wald at t = 2: {chaotic:+.0f} points where signs flip often, {others:+.0f} elsewhere;"
        f" at t = 50 {late:+.0f} among all patients"
    )


def _gauges(lines: Lines) -> str:
    rows = lines.rows[(lines.rows["table"] == "gauge_agreement") & (lines.rows["metric"] == "rate")]
    rows = headline(rows[rows["reference"] == "maxent_vs_true"]).dropna(subset=["value"])
    rows = rows[rows["method"].isin(["two_elbo", "stack_a"]) & (rows["t"] < rows["t"].max())]
    if rows.empty:
        raise LookupError("gauge_agreement")
    low, high = 100 * rows["value"].min(), 100 * rows["value"].max()
    return f"The two gauges decide alike on {low:.0f} to {high:.0f} % of the duels before full observation"


def _accurate(lines: Lines) -> str:
    rows = lines.rows[(lines.rows["table"] == "meanfield_vs_exact") & (lines.rows["metric"] == "rate")]
    rows = headline(rows).dropna(subset=["value"])
    if rows.empty:
        raise LookupError("meanfield_vs_exact")
    most = 100 * rows.groupby("method")["value"].max()
    parts = [f"{most[name]:.1f} % by {name}" for name in most.index]
    return f"Mean-field changes at most {', '.join(parts)} of the decisions that accurate inference makes"


SENTENCES: Mapping[str, Callable[[Lines], str]] = {
    "sign_convergence": _signs,
    "chaos": _chaos,
    "gauge": _gauges,
    "accurate": _accurate,
}
"""Figures that stand before the appendix, and how the title of each is made."""
