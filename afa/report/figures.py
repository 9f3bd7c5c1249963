"""Figures shared by the notebooks: one style, the same bytes each time, legible in grey and to the colour-blind."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import matplotlib as mpl
import pandas as pd
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from afa.files import atomic_file

# Okabe and Ito's palette, told apart in grey by line style and marker as well.
METHOD_STYLE: Mapping[str, dict[str, Any]] = {
    "linearity": {"color": "#0072B2", "linestyle": "-", "marker": "o"},
    "wald": {"color": "#D55E00", "linestyle": "--", "marker": "s"},
    "kl": {"color": "#009E73", "linestyle": "-.", "marker": "^"},
    "kl_nonzero": {"color": "#000000", "linestyle": (0, (3, 1, 1, 1, 1, 1)), "marker": "v"},
    "two_elbo": {"color": "#CC79A7", "linestyle": ":", "marker": "D"},
}

STYLE: Any = {
    "svg.hashsalt": "afa",
    "svg.fonttype": "none",
    "pdf.fonttype": 42,
    "font.family": "DejaVu Sans",
    "font.size": 9,
    "axes.spines.top": False,
    "axes.spines.right": False,
    "axes.grid": True,
    "grid.color": "#dddddd",
    "grid.linewidth": 0.6,
    "legend.frameon": False,
    "figure.dpi": 100,
    "savefig.dpi": 150,
}


def new_figure(width: float, height: float, columns: int = 1) -> tuple[Figure, list[Axes]]:
    """A figure of the common style with one row of axes; sizes in inches."""
    mpl.rcParams.update(STYLE)
    figure = Figure(figsize=(width, height), layout="constrained")
    return figure, list(figure.subplots(1, columns, squeeze=False)[0])


def draw_accuracy(axes: Axes, rows: pd.DataFrame, *, label: str | None = None) -> None:
    """One method's accuracy against t with its interval; `rows` are lines of the summary of one method."""
    rows = rows.sort_values("t")
    method = rows["method"].iloc[0]
    style = METHOD_STYLE[method]
    axes.fill_between(rows["t"], rows["low"], rows["high"], color=style["color"], alpha=0.2, linewidth=0)
    axes.plot(rows["t"], rows["value"], color=style["color"], linestyle=style["linestyle"], label=label or method)


def draw_paper_points(axes: Axes, table: pd.DataFrame, row: str, *, label: str | None = None) -> None:
    """The values that the paper prints for one row of a table with columns `t=...`, as hollow markers."""
    points = table[(table["row"] == row) & table["column"].str.startswith("t=")]
    style = METHOD_STYLE[row]
    t = points["column"].str.removeprefix("t=").astype(int)
    axes.plot(
        t,
        points["value"].astype(float),
        linestyle="none",
        marker=style["marker"],
        markersize=6,
        markerfacecolor="white",
        markeredgecolor=style["color"],
        label=label or f"{row}, paper",
    )


def save_figure(figure: Figure, stem: str | Path) -> None:
    """Write SVG, PDF and PNG beside each other, without dates, each complete or not at all."""
    for suffix, metadata in (
        ("svg", {"Date": None}),
        ("pdf", {"CreationDate": None, "ModDate": None}),
        ("png", {"Software": None}),
    ):
        with atomic_file(f"{stem}.{suffix}") as path:
            figure.savefig(path, format=suffix, metadata=metadata)
