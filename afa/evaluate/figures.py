"""Draw the figures of notebooks, reports and `afa simulate`.

The common style is readable in greyscale and for colour-blind readers.

Equal data give identical files. In figures of the allocation grid, each rule has its own line style.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from io import StringIO
from itertools import cycle
from pathlib import Path
from string import ascii_lowercase
from typing import Any

import matplotlib as mpl
import pandas as pd
from matplotlib.axes import Axes
from matplotlib.backend_bases import RendererBase
from matplotlib.figure import Figure
from matplotlib.ticker import FixedLocator

from afa.cohort.cohort import Cohort
from afa.errors import Fault, ReportError
from afa.evaluate.method_names import PRIORITY, RANDOM, with_display_names
from afa.io.files import atomic_file

# The colours are the palette of Okabe and Ito. In greyscale, line styles and markers distinguish the lines.
METHOD_STYLE: Mapping[str, dict[str, Any]] = {
    "linearity": {"color": "#0072B2", "linestyle": "-", "marker": "o"},
    "wald": {"color": "#D55E00", "linestyle": "--", "marker": "s"},
    "kl": {"color": "#009E73", "linestyle": "-.", "marker": "^"},
    "kl_nonzero": {"color": "#000000", "linestyle": (0, (3, 1, 1, 1, 1, 1)), "marker": "v"},
    "two_elbo": {"color": "#CC79A7", "linestyle": ":", "marker": "D"},
    # The scores `stack_a` and `linearity` have the same sign, and so the same accuracy: one line represents both.
    "stack_a": {"color": "#0072B2", "linestyle": "-", "marker": "P"},
}
INFERENCE_STYLE: Mapping[str, dict[str, Any]] = {
    "exact": {"color": "#000000", "linestyle": "-", "marker": "o"},
    "mean_field": {"color": "#D55E00", "linestyle": "--", "marker": "s"},
}
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
"""Style of a user-defined rule, named `module:Class`."""

COORDINATES = re.compile(r' (?:d|x|y)="[^"]*"')
LONG_DECIMALS = re.compile(r"-?\d+\.\d{3,}")
DATELESS: Mapping[str, dict[str, None]] = {"pdf": {"CreationDate": None, "ModDate": None}, "png": {"Software": None}}

CURVE_TITLES = {
    "sign_accuracy": "sign accuracy against full observation",
    "p_at_k": "P@k against full observation",
    "settled": "answer no longer changes",
    "certified": "certified",
    "label_p_at_k": "P@k against labels",
    "label_auroc": "AUROC against labels",
}
COLOURS = ("#0072B2", "#D55E00", "#009E73", "#CC79A7", "#E69F00", "#56B4E9")
DASHES = ("-", "--", "-.", ":", (0, (5, 1)), (0, (3, 1, 1, 1)))
BASELINE_STYLES: Mapping[str, dict[str, Any]] = {
    "random": {"color": "#000000", "linestyle": (0, (1, 1))},
    "constant": {"color": "#777777", "linestyle": (0, (6, 3))},
}
"""Styles of baselines that do not choose features for the patient. Other lines are coloured."""

STYLE: Any = {
    "svg.hashsalt": "afa",
    "svg.fonttype": "none",
    "pdf.fonttype": 42,
    "font.family": "DejaVu Sans",
    "font.size": 9,
    "figure.titlesize": 10,
    "axes.titlesize": 9,
    "axes.titlelocation": "left",
    "legend.fontsize": 8,
    "axes.axisbelow": True,
    "axes.spines.top": False,
    "axes.spines.right": False,
    "axes.grid": True,
    "grid.color": "#dddddd",
    "grid.linewidth": 0.6,
    "legend.frameon": False,
    "figure.dpi": 100,
    "savefig.dpi": 150,
}


class NotebookFigure(Figure):
    """Define a figure that notebooks show with any Matplotlib backend.

    Attributes
    ----------
    saved : the SVG text that was written. The SVG text is stored because a second drawing of the same figure would have
        slightly different coordinates

    """

    saved = ""

    def svg(self) -> str:
        """Return the figure as SVG text; equal figures give equal texts.

        To save space, coordinates are rounded to a hundredth of a point, and each path is on one line.
        """
        drawn = StringIO()
        self.savefig(drawn, format="svg", metadata={"Date": None})
        svg = COORDINATES.sub(
            lambda found: LONG_DECIMALS.sub(_round_coordinate, found[0].replace("\n", "")), drawn.getvalue()
        )
        return svg[svg.index("<svg") :]

    def draw(self, renderer: RendererBase) -> None:
        """Replace the names of scores and rules by words, then draw the figure."""
        texts = [*self.texts, *(text for legend in self.legends for text in legend.get_texts())]
        for axes in self.axes:
            if (title := with_display_names(axes.get_title(loc="left"))) != axes.get_title(loc="left"):
                axes.set_title(title, loc="left")
            legend = axes.get_legend()
            texts += [*axes.texts, *(legend.get_texts() if legend else ())]
            for axis in (axes.xaxis, axes.yaxis):
                texts.append(axis.label)
                if isinstance(axis.get_major_locator(), FixedLocator):  # other ticks are numbers
                    labels = [label.get_text() for label in axis.get_ticklabels()]
                    if (words := list(map(with_display_names, labels))) != labels:
                        axis.set_ticklabels(words)
        for text in texts:
            text.set_text(with_display_names(text.get_text()))
        super().draw(renderer)

    def _repr_svg_(self) -> str:
        return self.saved or self.svg()


def _round_coordinate(number: re.Match[str]) -> str:
    return f"{float(number[0]):.2f}".rstrip("0").rstrip(".")


def new_figure(width: float, height: float, columns: int = 1, rows: int = 1) -> tuple[NotebookFigure, list[Axes]]:
    """Return two results: a figure in the common style, and its axes, row by row. Width and height are in inches."""
    mpl.rcParams.update(STYLE)
    figure = NotebookFigure(figsize=(width, height), layout="constrained")
    return figure, list(figure.subplots(rows, columns, squeeze=False).ravel())


def cohort_words(patients: Cohort) -> str:
    """Return the cohort's name and size in words.

    If the cohort is simulated or has an unknown origin, the text says so.
    """
    said = {"simulated": " (simulated)", None: " (origin not recorded)"}
    return f"cohort {patients.name}{said.get(patients.provenance.get('origin'), '')}, {len(patients.patients)} patients"


def name_figure(figure: Figure, words: str, patients: Cohort) -> None:
    """Set the title of a figure to `words` and the cohort's name and size."""
    figure.suptitle(f"{words}: {cohort_words(patients)}", x=0.01, ha="left")


def name_panel(axes: Axes, words: str, **counts: int) -> None:
    """Set the title of a panel. The title's second line contains the counts: `n = 167 patients, 45,616 decisions`.

    If the figure has several panels, each panel also gets a letter, row by row.

    Parameters
    ----------
    counts : plural noun -> number; `_` in a noun stands for a blank

    """
    rests_on = ", ".join(f"{count:,} {name.replace('_', ' ')}" for name, count in counts.items())
    place = axes.get_subplotspec()
    several = place is not None and place.get_gridspec().nrows * place.get_gridspec().ncols > 1
    letter = f"({ascii_lowercase[place.num1]}) " if place is not None and several else ""
    axes.set_title(f"{letter}{words}\nn = {rests_on}")


def without_data(axes: Axes, words: str) -> None:
    """Write the reason for missing data into an empty panel, and remove the panel's ticks."""
    axes.text(0.5, 0.5, words, ha="center", va="center", transform=axes.transAxes)
    axes.set(xticks=[], yticks=[])


def draw_accuracy(
    axes: Axes, rows: pd.DataFrame, *, label: str | None = None, style: Mapping[str, Any] | None = None
) -> None:
    """Draw a curve of one method's values against t, and a band of their intervals.

    `rows` contains the rows of the summary for this method.
    """
    if rows.empty:
        return
    rows = rows.sort_values("t")
    method = rows["method"].iloc[0]
    style = METHOD_STYLE[method] if style is None else style
    axes.fill_between(rows["t"], rows["low"], rows["high"], color=style["color"], alpha=0.2, linewidth=0)
    axes.plot(rows["t"], rows["value"], color=style["color"], linestyle=style["linestyle"], label=label or method)


def draw_paper_points(axes: Axes, cells: pd.DataFrame, *, style: Mapping[str, Any], label: str | None = None) -> None:
    """Draw the values in one row of a table of the paper as hollow markers; missing values are skipped.

    Parameters
    ----------
    cells : rows from `afa.paper.report.paper_tables.paper_table`. The paper's value at full observation is drawn at our
        last t

    """
    points = cells.dropna(subset=["paper", "t"])
    if points.empty:
        return
    t, printed = points["t"].astype(float), points["paper"].astype(float)
    hollow = {"linestyle": "none", "markerfacecolor": "white", "markeredgecolor": style["color"], "markersize": 6}
    axes.plot(t, printed, marker=style["marker"], **hollow, zorder=3, label=label)


def save_figure(figure: NotebookFigure, path: str | Path = "") -> NotebookFigure:
    """Return the figure for a notebook. If a path is given, also write the figure in the format of the suffix.

    For a path without a suffix, as used by the workflow, write both PDF and SVG.
    """
    if path:
        written = [Path(path)] if Path(path).suffix else [Path(f"{path}.{form}") for form in ("svg", "pdf")]
        endings = figure.canvas.get_supported_filetypes()
        figure.saved = figure.svg() if any(target.suffix == ".svg" for target in written) else ""
        for target in written:
            ending = target.suffix.removeprefix(".")
            if ending not in endings:
                expected = ", ".join(sorted(endings))
                raise ReportError(Fault(f"figure {target}", f"the ending '{ending}'", expected, "name one"))
            with atomic_file(target) as temporary:
                if ending == "svg":
                    temporary.write_text(figure.saved, encoding="utf-8")
                else:
                    figure.savefig(temporary, format=ending, metadata=DATELESS.get(ending))
    return figure


def curves_figure(curves: pd.DataFrame, title: str) -> NotebookFigure:
    """Return a figure of accuracy curves with intervals.

    Each metric has a panel with the number of features on the horizontal axis. If costs differ, each metric also has a
    panel with the cost on the horizontal axis.
    """
    found = [metric for metric in CURVE_TITLES if (curves["metric"] == metric).any()]
    shown = [(metric, counted) for metric in found for counted in curves["counted"].unique()]
    figure, axes = new_figure(3.6 * ((len(shown) + 1) // 2), 5.6, (len(shown) + 1) // 2, 2)
    keys = ["allocation", "gain", "score"]
    several = [name for name in keys[1:] if len(set(curves[name]) - {""}) > 1]
    styles = cycle({"color": colour, "linestyle": dash} for colour, dash in zip(COLOURS, DASHES, strict=True))
    for (rule, gain, score), lines in curves.groupby(keys, sort=False):
        parts = {"gain": str(gain), "score": str(score)}
        label = ", ".join([str(rule), *(parts[name] for name in several if parts[name])])
        style = BASELINE_STYLES.get(str(rule)) or next(styles)
        for panel, (metric, counted) in zip(axes, shown, strict=False):
            rows = lines[(lines["metric"] == metric) & (lines["counted"] == counted)]
            rows = rows.rename(columns={"score": "method"})
            draw_accuracy(panel, rows, label=label, style=style)
    for panel, (metric, counted) in zip(axes, shown, strict=False):
        spent = "cost of the features observed"
        panel.set(
            title=CURVE_TITLES[metric], xlabel=spent if counted == "cost" else "features observed", ylim=(-0.02, 1.02)
        )
    for panel in axes[len(shown) :]:
        panel.set_axis_off()
    shared_legend(figure, columns=6)
    figure.suptitle(title, x=0.01, ha="left")
    return figure


def rule_style(rule: str) -> Mapping[str, Any]:
    return RULE_STYLE.get(rule, OWN_STYLE)


def rule_name(rule: str) -> str:
    """Return the name of a rule for a figure.

    The text `(paper: ours)` is added to the name of the rule that the paper proposes. A user-defined rule has the name
    of its class.
    """
    return (
        f"{with_display_names(rule)} (paper: ours)" if rule == PRIORITY else with_display_names(rule.rpartition(":")[2])
    )


def draw_rules(axes: Axes, parts: Mapping[str, pd.DataFrame], *, banded: Sequence[str] = (RANDOM, PRIORITY)) -> None:
    """Draw one curve for each rule: the column `value` against the column `t`, from t = 0.

    For rules in `banded`, also draw the interval over patients.
    """
    for place, (rule, part) in enumerate(parts.items()):
        style, rows = rule_style(rule), part.sort_values("t")
        if rule in banded:
            axes.fill_between(rows["t"], rows["low"], rows["high"], color=style["color"], alpha=0.18, linewidth=0)
        axes.plot(
            rows["t"],
            rows["value"],
            **style,
            linewidth=1.9 if rule == PRIORITY else 1.2,
            markersize=3.5,
            # Markers of different lines are at different places, so that overlapping lines do not hide markers.
            markevery=(0.02 * place, 0.18) if rows["value"].notna().any() else None,
            label=rule_name(rule),
        )
    axes.set_xlim(0, None)


def shared_legend(figure: Figure, *, columns: int) -> None:
    """Draw one legend below all axes. Each label occurs once."""
    handles: dict[str, Any] = {}
    for axes in figure.axes:
        for handle, label in zip(*axes.get_legend_handles_labels(), strict=True):
            handles.setdefault(label, handle)
    figure.legend(handles.values(), handles.keys(), loc="outside lower center", ncols=columns, fontsize=8)


def fit(axes: Axes, *numbers: pd.Series) -> None:
    """Set limits of the vertical axis that include all numbers.

    If there are no numbers to draw, write a note into the panel.
    """
    every = pd.concat([pd.Series(column, dtype=float) for column in numbers]).dropna()
    if every.empty:
        without_data(axes, "no such case")
        return
    margin = max(0.05 * (every.max() - every.min()), 0.01)
    axes.set_ylim(every.min() - margin, every.max() + margin)
