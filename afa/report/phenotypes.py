"""The figure of `afa phenotypes`: how often the right disease comes first, and its rank along the questions."""

from __future__ import annotations

from pathlib import Path

import matplotlib.pyplot as plt
import numpy as np
import pandas as pd
from matplotlib.axes import Axes

SCORERS = {"posterior": "posterior", "likelihood_ratio": "likelihood\nratios", "frequency": "frequency\nalone"}
ORDERS = {
    "planner": "planner",
    "random": "random",
    "information_content": "rarest first",
    "most_frequent": "most frequent first",
    "paper": "the paper's order",
}
QUESTIONS = {
    "reported": "asked: what the paper reports",
    "present": "asked: what it reports as present",
    "every": "asked: any sign; else not noted",
    "every, else absent": "asked: any sign; else absent",
}
"""Which signs can be asked for, and what the answer is where the paper says nothing."""


def draw_phenotypes(summary: pd.DataFrame, path: Path) -> None:
    """Draw `afa.phenotypes.summary` as PNG: left at full observation on later papers, then by questions asked."""
    asked = [name for name in QUESTIONS if (summary["questions"] == name).any()]
    columns = min(3, 1 + len(asked))
    shape = -(-(1 + len(asked)) // columns), columns
    figure, grid = plt.subplots(*shape, figsize=(4.2 * columns, 3.6 * shape[0]), layout="constrained", squeeze=False)
    axes = grid.ravel()
    for spare in axes[1 + len(asked) :]:
        spare.axis("off")
    subset = "later" if (summary["subset"] == "later").any() else "all"
    shares = {"first": "in first place", "ten": "among the first ten"}
    whole = summary[(summary["subset"] == subset) & (summary["questions"] == "all") & summary["what"].isin(shares)]
    for shift, (what, label) in enumerate(shares.items()):
        rows = whole[whole["what"] == what].set_index("of").reindex(list(SCORERS))
        _bars(axes[0], np.arange(len(rows)) + 0.15 * (shift - 0.5), rows, label)
    axes[0].set_xticks(range(len(SCORERS)), list(SCORERS.values()))
    title = f"all that was noted, {subset} papers"
    axes[0].set(ylabel="share of patients", ylim=(0, 1.2 * whole["high"].max()), title=title)
    axes[0].legend(frameon=False, fontsize=8, loc="upper left", ncols=2)
    for axis, questions in zip(axes[1:], asked, strict=False):
        for order, label in ORDERS.items():
            rows = summary[(summary["what"] == "log_rank") & (summary["questions"] == questions)]
            rows = rows[rows["of"] == order].sort_values("asked")
            if len(rows):
                axis.plot(rows["asked"], np.exp(rows["mean"]), label=label, lw=2 if order == "planner" else 1)
                axis.fill_between(rows["asked"], np.exp(rows["low"]), np.exp(rows["high"]), alpha=0.12)
        axis.set(
            xlabel="questions", ylabel="rank of the disease (geometric mean)", yscale="log", title=QUESTIONS[questions]
        )
    if asked:
        axes[1].legend(frameon=False, fontsize=8)
    figure.savefig(path, dpi=120)
    plt.close(figure)


def _bars(axis: Axes, at: np.ndarray, rows: pd.DataFrame, label: str) -> None:
    low, high = rows["mean"] - rows["low"], rows["high"] - rows["mean"]
    axis.errorbar(at, rows["mean"], yerr=np.array([low, high]), fmt="o", label=label, capsize=3)
