"""The allocation grid as figures and tables show it: rules in their styles, cells in order, intervals in words."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import pandas as pd
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from afa.report.figures import without_data
from afa.report.lines import Lines
from afa.report.paper_tables import ALLOCATIONS, START

# Okabe and Ito's palette, told apart in grey by line style and marker as well.
RULE_STYLE: Mapping[str, dict[str, Any]] = {
    "random": {"color": "#000000", "linestyle": ":", "marker": "o"},
    "largest_unary": {"color": "#7F7F7F", "linestyle": "--", "marker": "v"},
    "greedy": {"color": "#E69F00", "linestyle": "-", "marker": "s"},
    "lucb": {"color": "#56B4E9", "linestyle": (0, (5, 1)), "marker": "P"},
    "clustered": {"color": "#009E73", "linestyle": "-.", "marker": "^"},
    "priority_clusters": {"color": "#D55E00", "linestyle": "-", "marker": "D"},
    "priority_all": {"color": "#0072B2", "linestyle": (0, (7, 1, 1, 1)), "marker": "h"},
    "boundary": {"color": "#CC79A7", "linestyle": (0, (3, 1, 1, 1, 1, 1)), "marker": "X"},
}
OWN_STYLE: Mapping[str, Any] = {"color": "#5B2C83", "linestyle": (0, (9, 3)), "marker": "*"}
"""Of a rule named `module:Class`."""

WITHOUT_SCHEDULE = "random"
CELL = ["gain", "allocation", "schedule"]
CLAIM_ROUND = 150
CLAIM_COLUMNS = ["claim", "schedule", "gain", "ours", "low", "high", "paper", "verdict"]
PRIORITY, GREEDY, RANDOM = ALLOCATIONS["ours"], "greedy", "random"
CLAIMS = ((PRIORITY, GREEDY), (GREEDY, RANDOM), ("priority_all", GREEDY))
"""That the first rule is ahead of the second: the paper's two claims, and the first of them for our `priority_all`."""


def rule_style(rule: str) -> Mapping[str, Any]:
    return RULE_STYLE.get(rule, OWN_STYLE)


def rule_name(rule: str) -> str:
    """A rule as a figure names it: the paper's own rule says so, and one's own rule is its class."""
    return f"{rule} (paper: ours)" if rule == PRIORITY else rule.rpartition(":")[2]


def gains_of(rows: pd.DataFrame) -> list[str]:
    """Gains of a summary's rows in their order; one "" where no rule looks at any."""
    return [str(gain) for gain in rows["gain"].dropna().unique()] or [""]


def schedules_of(rows: pd.DataFrame) -> list[str]:
    """Schedules in their order; a random order, which has none, does not count unless it is alone."""
    named = rows.dropna(subset=["allocation"])
    scheduled = named[named["allocation"] != WITHOUT_SCHEDULE]
    return [str(schedule) for schedule in (named if scheduled.empty else scheduled)["schedule"].unique()]


def rules_under(rows: pd.DataFrame, gain: str, schedule: str) -> dict[str, pd.DataFrame]:
    """Rows by rule, in their order: rules of this gain and those that look at none, under one schedule.

    `random` stands under every schedule.
    """
    here = rows[rows["gain"].isna() | (rows["gain"] == gain)].dropna(subset=["allocation"])
    here = here[(here["schedule"] == schedule) | (here["allocation"] == WITHOUT_SCHEDULE)]
    return {str(rule): part for rule, part in here.groupby("allocation", sort=False)}


def draw_rules(axes: Axes, parts: Mapping[str, pd.DataFrame], *, banded: Sequence[str] = (RANDOM, PRIORITY)) -> None:
    """The value of each rule against t, from t = 0; with the interval over patients for the rules in `banded`."""
    for place, (rule, part) in enumerate(parts.items()):
        style, rows = rule_style(rule), part.sort_values("t")
        if rule in banded:
            axes.fill_between(rows["t"], rows["low"], rows["high"], color=style["color"], alpha=0.18, linewidth=0)
        axes.plot(
            rows["t"],
            rows["value"],
            color=style["color"],
            linestyle=style["linestyle"],
            linewidth=1.9 if rule == PRIORITY else 1.2,
            marker=style["marker"],
            markersize=3.5,
            # Shares of the axes' diagonal: markers of lines that run together do not cover each other.
            markevery=(0.02 * place, 0.18) if rows["value"].notna().any() else None,
            label=rule_name(rule),
        )
    axes.set_xlim(0, None)


def shared_legend(figure: Figure, *, columns: int) -> None:
    """One legend below all axes, each label once."""
    handles: dict[str, Any] = {}
    for axes in figure.axes:
        for handle, label in zip(*axes.get_legend_handles_labels(), strict=True):
            handles.setdefault(label, handle)
    figure.legend(handles.values(), handles.keys(), loc="outside lower center", ncols=columns, fontsize=8)


def fit(axes: Axes, *numbers: pd.Series) -> None:
    """Limits of the vertical axis that hold all numbers; columns without any do not count. Words say that all are."""
    every = pd.concat([pd.Series(column, dtype=float) for column in numbers]).dropna()
    if every.empty:
        without_data(axes, "no such case")
        return
    margin = max(0.05 * (every.max() - every.min()), 0.01)
    axes.set_ylim(every.min() - margin, every.max() + margin)


def by_cell(rows: pd.DataFrame, column: str, *, index: Sequence[str] = CELL) -> pd.DataFrame:
    """What `shown` says, or else `value`: one line per cell, one column per entry of `column`, in the rows' order."""
    index = list(index)
    named = rows.fillna(dict.fromkeys(index, ""))
    wide = named.pivot(index=index, columns=column, values="shown" if "shown" in named else "value")
    return wide.loc[named.set_index(index).index.unique(), named[column].unique()]


def by_round(rows: pd.DataFrame, rounds: Sequence[int], *, index: Sequence[str] = CELL) -> pd.DataFrame:
    """The same by round, for some of them."""
    wide = by_cell(rows[rows["t"].isin(rounds)], "t", index=index)
    return wide.set_axis([f"t={t:.0f}" for t in wide.columns], axis="columns")


def with_interval(rows: pd.DataFrame, *, scale: float = 1.0, digits: int = 0, signed: bool = False) -> pd.DataFrame:
    """The rows with a column `shown`: value and interval as text, `+2.5 [+2.2, +2.8]`; a dash for what is missing."""

    def text(number: float) -> str:
        if np.isnan(number):
            return "-"
        rounded = round(scale * number, digits)
        return format(abs(rounded), f".{digits}f") if rounded == 0 else format(rounded, f"{'+' * signed}.{digits}f")

    shown = []
    for value, low, high in zip(*(rows[name].map(text) for name in ("value", "low", "high")), strict=True):
        shown.append(value if low == high == "-" else f"{value} [{low}, {high}]")
    return rows.assign(shown=shown)


def verdict(low: float, high: float) -> str:
    """What the interval of a difference says of the claim that it is above 0."""
    if np.isnan(low) or np.isnan(high):
        return "no interval"
    if low > 0:
        return "holds"
    return "does not hold" if high < 0 else "not clear"


def priority_claims(rows: pd.DataFrame, printed: pd.DataFrame) -> pd.DataFrame:
    """Whether priority is ahead of greedy and greedy of random at t = 150 (sec:eval_alloc), in percentage points.

    rows : `allocation_sign` of the summary. printed : the paper's `tab_m2_alloc`, whose differences stand beside those
    of its own schedule. By `claim`, `schedule` and `gain`: `ours`, `low`, `high`, `paper`, `verdict`; no line for what
    the grid does not hold.
    """
    summary, lines = Lines(rows), []
    for rule, other in CLAIMS:
        for schedule in schedules_of(rows):
            for gain in gains_of(rows):
                keys = {"table": "allocation_sign", "metric": "gap", "method": "linearity", "guide": "linearity"}
                keys |= {"allocation": rule, "gain": gain, "schedule": schedule, "reference": other}
                gap = summary.find({**keys, "target": "likelihood", "start": START, "t": CLAIM_ROUND})
                if gap is not None:
                    paper = _printed_gap(printed, rule, other, gain) if schedule == "paper" else np.nan
                    numbers = [100 * gap[name] for name in ("value", "low", "high")]
                    said = verdict(gap["low"], gap["high"])
                    lines.append([f"{rule} above {other}", schedule, gain, *numbers, paper, said])
    return pd.DataFrame(lines, columns=CLAIM_COLUMNS)


def _printed_gap(printed: pd.DataFrame, rule: str, other: str, gain: str) -> float:
    """Difference of two printed cells in percentage points; NaN where one is not printed."""
    cells = printed.set_index(["row", "column"])["value"]
    printed_as = {ours: name for name, ours in ALLOCATIONS.items()}
    ends = [cells.get((printed_as.get(name, ""), gain), np.nan) for name in (rule, other)]
    return 100 * float(ends[0] - ends[1])
