"""The curves of `afa simulate` as a figure: one panel a metric, one line a way of choosing features."""

from __future__ import annotations

from itertools import cycle
from pathlib import Path
from typing import Any

import pandas as pd
from matplotlib.figure import Figure

from afa.report.figures import Shown, draw_accuracy, new_figure

PANELS = {
    "sign_accuracy": "sign accuracy against full observation",
    "p_at_k": "P@k against full observation",
    "settled": "answer no longer changes",
    "certified": "certified",
    "label_p_at_k": "P@k against labels",
    "label_auroc": "AUROC against labels",
}
STYLES: tuple[dict[str, Any], ...] = (
    {"color": "#0072B2", "linestyle": "-"},
    {"color": "#D55E00", "linestyle": "--"},
    {"color": "#009E73", "linestyle": "-."},
    {"color": "#CC79A7", "linestyle": ":"},
    {"color": "#E69F00", "linestyle": (0, (5, 1))},
    {"color": "#56B4E9", "linestyle": (0, (3, 1, 1, 1))},
)
RANDOM: dict[str, Any] = {"color": "#000000", "linestyle": (0, (1, 1))}
CONSTANT: dict[str, Any] = {"color": "#777777", "linestyle": (0, (6, 3))}


def draw_curves(curves: pd.DataFrame, title: str, stem: Path) -> None:
    """Draw `curves_figure` into `<stem>.svg` and `<stem>.png`."""
    figure = curves_figure(curves, title)
    for suffix, metadata in (("svg", {"Date": None}), ("png", {"Software": None})):
        figure.savefig(f"{stem}.{suffix}", format=suffix, metadata=metadata)


def curves_figure(curves: pd.DataFrame, title: str) -> Figure:
    """All runs of each way together, with their intervals: one panel a metric."""
    together = curves[curves["seed"].isna()]
    shown = [metric for metric in PANELS if (together["metric"] == metric).any()]
    figure, axes = new_figure(3.6 * ((len(shown) + 1) // 2), 5.6, (len(shown) + 1) // 2, 2, Shown)
    keys = ["allocation", "gain", "score"]
    several = [name for name in keys[1:] if len(set(together[name]) - {""}) > 1]
    colours = cycle(STYLES)
    for (rule, gain, score), lines in together.groupby(keys, sort=False):
        parts = {"gain": str(gain), "score": str(score)}
        label = ", ".join([str(rule), *(parts[name] for name in several if parts[name])])
        style = {"random": RANDOM, "constant": CONSTANT}.get(str(rule)) or next(colours)
        for panel, metric in zip(axes, shown, strict=False):
            rows = lines[lines["metric"] == metric].rename(columns={"score": "method"})
            draw_accuracy(panel, rows, label=label, style=style)
    for panel, metric in zip(axes, shown, strict=False):
        panel.set(title=PANELS[metric], xlabel="features observed", ylim=(-0.02, 1.02))
    for panel in axes[len(shown) :]:
        panel.set_axis_off()
    handles = dict(reversed(pair) for panel in axes for pair in zip(*panel.get_legend_handles_labels(), strict=True))
    figure.legend(handles.values(), handles.keys(), loc="outside lower center", ncols=min(len(handles), 6))
    figure.suptitle(title, x=0.01, ha="left")
    return figure
