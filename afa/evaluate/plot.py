"""Figures of a planner. The figures need matplotlib, which the extra `notebooks` installs."""

from __future__ import annotations

import numpy as np

from afa.errors import Fault

try:
    from matplotlib.figure import Figure
except ModuleNotFoundError as error:
    missing = Fault(
        "afa.evaluate.plot", "no package matplotlib", "what figures need", "run pip install 'afa[notebooks]'"
    )
    raise ModuleNotFoundError(str(missing), name="matplotlib") from error

from afa.evaluate.figures import new_figure
from afa.planner import Planner
from afa.planner.posterior import posterior_is_of

COLOUR = "#0072B2"


def posterior(planner: Planner, *, most: int = 12) -> Figure:
    """Return a bar chart of the current posterior, with one bar for each entity.

    >>> from afa.planner import TopKPlanner
    >>> figure = posterior(TopKPlanner("tests/data/bundle_tiny"))
    >>> [round(float(bar.get_width()), 2) for bar in figure.axes[0].patches]
    [0.1, 0.45, 0.45]
    """
    shares = sorted(planner.probabilities().items(), key=lambda pair: -pair[1])[:most]
    figure, (axes,) = new_figure(6.0, 0.8 + 0.3 * len(shares))
    names = [planner.question_bundle.shown(name) for name, _ in shares]
    axes.barh(names[::-1], [share for _, share in shares][::-1], color=COLOUR)
    axes.set(xlim=(0, 1), xlabel=f"posterior probability, {posterior_is_of(planner)}")
    return figure


def order(planner: Planner, *, most: int = 6) -> Figure:
    """Return a line chart of the posterior over time, with one line for each entity.

    Parameters
    ----------
    most : largest number of entities; those with the largest current posterior are shown

    Examples
    --------
    >>> from afa.planner import TopKPlanner
    >>> planner = TopKPlanner("tests/data/bundle_tiny")
    >>> planner.observe("CXCL8", 1)
    >>> [label.get_text() for label in order(planner).axes[0].get_xticklabels()]
    ['start', 'CXCL8 = +1']

    """
    again = planner.copy()
    while again.actions:
        again.undo()
    seen, labels = [again.probabilities()], ["start"]
    for feature, value in planner.observed.items():
        again.observe(feature, value, cost=0.0)
        seen.append(again.probabilities())
        name = planner.question_bundle.shown(feature)
        labels.append(f"{name} = {value:+d}" if value else f"{name} = 0")
    shown = sorted(seen[-1], key=lambda name: -seen[-1][name])[:most]
    figure, (axes,) = new_figure(max(5.0, 1.5 + 0.45 * len(labels)), 4.0)
    for name in shown:
        line = [state[name] for state in seen]
        axes.plot(np.arange(len(labels)), line, marker="o", markersize=3, label=planner.question_bundle.shown(name))
    axes.set_xticks(np.arange(len(labels)), labels, rotation=45, ha="right")
    axes.set(ylim=(-0.02, 1.02), ylabel=f"posterior probability, {posterior_is_of(planner)}")
    axes.legend(frameon=False)
    return figure
