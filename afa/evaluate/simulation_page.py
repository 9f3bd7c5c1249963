"""Implement `afa.simulate` for a table in memory, and write the output of the command `afa simulate`.

The command prints a table and writes tables, a figure, an explorer page and a YAML summary (card).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from importlib.metadata import version
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import pandas as pd
import yaml

import afa
from afa.cohort.cohort import PATIENT, Cohort
from afa.engine.run import MISSING
from afa.errors import CohortError, Fault
from afa.evaluate.explorer import (
    RANKING_SCORES,
    Explored,
    background_text,
    by_engine,
    by_planners,
    evenly,
    explored_of,
    write_explorer,
)
from afa.evaluate.frames import codes_of_frame, labels_of_frame
from afa.evaluate.simulate import COUNT_COST, COUNT_FEATURES, Simulation, compared_strategies
from afa.evaluate.simulate import simulate_strategies as followed
from afa.evaluate.simulate.walks import SimulationSetting, Strategy, is_compiled, measured_first, planner_of
from afa.io.files import atomic_folder, sha256_of, write_csv
from afa.io.later import Later
from afa.io.spreadsheet import marked_table
from afa.model.arrays import Bools
from afa.model.bundle import Bundle
from afa.model.closure import Closure
from afa.model.orders import random_orders
from afa.planner import TopKPlanner
from afa.planner.options import BACKGROUND, EXPLICIT_SCORES, bundle_given, gauge_of

if TYPE_CHECKING:
    from matplotlib import figure
else:
    figure = Later("matplotlib.figure")

CARD = "simulate.yaml"
FILES = (CARD, "curves.csv", "features_needed.csv", "update.csv", "curves.svg", "curves.png", "explorer.html")
VERSIONED_PACKAGES = ("numpy", "scipy", "numba", "pandas", "pyarrow")
LABELLED = {"label_auroc": "AUROC", "label_p_at_k": "share of the k best that have the label"}
SHOWN_ROUNDS = (0, 1, 2, 3, 5, 10, 20, 50, 100)
COLUMN_TITLES = {"allocation": "rule", "q25": "25 %", "q75": "75 %", "p90": "90 %"}
CRITERION_TITLES = {"settled": "answer settled", "certified": "answer certified", "sign_95": "95 % of duels right"}


def explore_simulation(
    bundle: Bundle,
    cohort: Cohort,
    runs: Sequence[tuple[Strategy, int]],
    setting: SimulationSetting,
    *,
    most: int,
    measured: Bools,
) -> Explored:
    """Return the contents of the explorer page: the steps of some patients in every run.

    The page shows at most `most` patients, evenly spaced in the order of the cohort.

    Parameters
    ----------
    runs : pairs of a way and a seed
    setting, measured : as in `afa.evaluate.simulate.simulate_strategies`

    """
    setting = replace(setting, coupling=gauge_of(bundle, setting.coupling))
    rows = evenly(len(cohort.patients), most)
    names = [cohort.patients[row] for row in rows]
    values = np.where(measured, cohort.values, np.int8(MISSING))[rows]
    scores = RANKING_SCORES if not setting.explicit else [score for score in EXPLICIT_SCORES if score != BACKGROUND]
    if not setting.explicit:
        bundle = bundle.contrasts()

    def planners(way: Strategy, seed: int) -> list[TopKPlanner]:
        return [planner_of(bundle, way, setting, patient=name, seed=seed) for name in names]

    walked, background = {}, ""
    for way, seed in runs:
        if is_compiled(bundle, way, setting):
            orders = random_orders(bundle.features, names, [seed])[:, 0]
            given = measured_first(orders, values) if way.allocation == "random" else None
            walked[way, seed] = by_engine(bundle, values, way, given, setting)
        else:
            own = planners(way, seed)
            walked[way, seed], background = by_planners(own, values, scores, way), background or background_text(own)
    named = {"schedule": "every", "shown": 0, "scores": list(scores), "background": background}
    return explored_of(bundle, cohort, rows, walked, planners(*runs[0]), values, named)


def write_simulation(
    made: Simulation,
    card: Mapping[str, Any],
    folder: Path,
    say: Callable[[str], None] = print,
    explored: Callable[[], Explored] | None = None,
    brought: pd.DataFrame | None = None,
) -> None:
    """Write the tables, the YAML summary `card`, a figure, and the page made from `explored()`.

    If writing fails, no incomplete folder remains. If a package is missing, figure and page are not written, and `say`
    is called with a message.

    Parameters
    ----------
    brought : result of `update_brings`, for the table update.csv

    """
    cohort, asked = card["cohort"], card["setting"]
    of = f"is it {asked['entity']}?" if asked["entity"] else f"top {asked['k']}"
    title = f"bundle {card['bundle']['name']}, {of}; cohort {cohort['name']}, {cohort['simulated_on']} patients"
    with atomic_folder(folder, FILES, CARD) as temporary:
        tables = made._asdict() | ({} if brought is None or brought.empty else {"update": brought})
        for name, table in tables.items():
            write_csv(marked_table(table), temporary / f"{name}.csv", float_format="%.10g")
        try:
            import bokeh  # noqa: F401, PLC0415 (needed for the page; optional, like matplotlib)

            from afa.evaluate.figures import curves_figure, save_figure  # noqa: PLC0415
        except ModuleNotFoundError as error:
            say(f"no figure and no explorer page: {error.name} is not installed (pip install 'afa[notebooks]')")
        else:
            figure = curves_figure(made.curves, title)
            for ending in ("svg", "png"):
                save_figure(figure, temporary / f"curves.{ending}")
            if explored is not None:
                write_explorer(explored(), temporary / "explorer.html")
        digests = {name: sha256_of(temporary / name) for name in (f"{table}.csv" for table in tables)}
        text = yaml.safe_dump(
            {
                **card,
                "afa": afa.__version__,
                "packages": {name: version(name) for name in VERSIONED_PACKAGES},
                "tables": digests,
            },
            sort_keys=False,
            allow_unicode=True,
            width=100,
        )
        (temporary / CARD).write_text(text, encoding="utf-8")


def needed_text(needed: pd.DataFrame) -> str:
    """Return the table `features_needed` as text, sorted by criterion."""
    shown = pd.concat([rows for _, rows in needed.groupby(["criterion", "counted"], sort=False)])
    until: pd.Series[str] = shown["criterion"].map(CRITERION_TITLES) + np.where(
        shown["counted"] == "cost", ", cost", ""
    )
    never = shown["never"].map("{:.0%}".format, na_action="ignore")
    shown = shown.assign(until=until.mask(until.duplicated(), ""), never=never).rename(columns=COLUMN_TITLES)
    varied = [name for name in ("gain", "score") if len(set(needed[name]) - {""}) > 1]
    columns = ["until", "rule", *varied, "25 %", "median", "75 %", "90 %", "never"]
    return shown[columns].to_string(index=False, na_rep="-", float_format="{:g}".format)


def labels_text(curves: pd.DataFrame) -> str:
    """Return a table of the accuracy against the labels as text, or an empty text if there are no labels."""
    found = [name for name in LABELLED if (curves["metric"] == name).any()]
    if not found:
        return ""
    rows = curves[curves["metric"] == found[0]].rename(columns=COLUMN_TITLES)
    ways = [name for name in ("rule", "gain", "score") if name == "rule" or rows[name].nunique() > 2]
    tables = []
    for counted, said in ((COUNT_FEATURES, "by the number of features"), (COUNT_COST, "by what these cost")):
        of = rows[rows["counted"] == counted]
        if of.empty:
            continue
        every = of["t"].unique()
        shown = [*(every[place] for place in SHOWN_ROUNDS if place < len(every) - 1), every[-1]]
        at = of.set_index([*ways, "t"])["value"].unstack("t", sort=False)[shown]
        at = at.rename(columns="{:.6g}".format).rename_axis(columns=None).reset_index()
        title = f"Against the labels: {LABELLED[found[0]]}, {said}"
        tables.append(f"{title}\n{at.to_string(index=False, float_format='{:.2f}'.format)}")
    return "\n".join(tables)


def cost_text(curves: pd.DataFrame) -> str:
    """Return advice on which tables to read if costs differ, or an empty text if all costs are equal."""
    if not (curves["counted"] == COUNT_COST).any():
        return ""
    return (
        "Costs differ: read the lines and tables by cost. Rules that weigh the gain by its cost take cheap features "
        "first, so by the number of features they look worse than they are."
    )


@dataclass(frozen=True, repr=False)
class Simulated:
    """Store the results of a simulation.

    For metrics without labels, the right answer about a patient is the answer based on all of the patient's measured
    values. Values that were not measured are never chosen. If costs differ, the table `curves` also contains metrics
    for each cost budget: the column `counted` is `features` or `cost`, and the column `t` is the number of features or
    the cost.

    Attributes
    ----------
    curves : metrics with intervals, for each rule and number of observed features
    features_needed : quantiles of the number of needed features, for each rule and criterion
    patients : names of the patients
    left_out : names of the patients without any measured value, who are not simulated
    gaps : share of values that were not measured
    title : the question in words

    """

    curves: pd.DataFrame
    features_needed: pd.DataFrame
    patients: tuple[str, ...]
    left_out: tuple[str, ...]
    gaps: float
    title: str

    def __repr__(self) -> str:
        gaps = f", {100 * self.gaps:.2g} % of values not measured" if self.gaps else ""
        gaps += f", {len(self.left_out)} left out with none" if self.left_out else ""
        columns = ["allocation", "criterion", "counted", "median", "q75", "never"]
        return f"{self.title}{gaps}\n{self.features_needed[columns].to_string(index=False)}"

    def _repr_html_(self) -> str:
        return self.features_needed.to_html(index=False)

    def plot(self) -> figure.Figure:
        """Return the curves as a figure with one panel for each metric. The figure needs the extra `notebooks`."""
        from afa.evaluate.figures import curves_figure  # noqa: PLC0415 (matplotlib is an optional dependency)

        return curves_figure(self.curves, self.title)


def simulate(
    bundle: Bundle | str | Path,
    X: pd.DataFrame,
    y: pd.DataFrame | None = None,
    *,
    rules: Sequence[str] | None = None,
    k: int = 1,
    entity: str | None = None,
    coupling: Closure | None = None,
    holds: str | None = None,
    tau: float | str | None = None,
    gain: str | None = None,
    score: str | None = None,
    costs: str = "own",
    seeds: Sequence[int] = (0, 1, 2),
    resamples: int = 1000,
    confidence: float = 0.95,
    threads: int = 1,
) -> Simulated:
    """Simulate each rule on a table of patients, and return accuracies and the numbers of features needed.

    The simulation of a patient ends when all values of the patient in the data have been acquired.

    Parameters
    ----------
    bundle : the entities and their models, or the folder of a bundle.
    X : values -1, 0, +1 or missing, as integers or floats. Rows are patients, and columns are features. Unknown columns
        are ignored. Features without any value are dropped from the bundle. Patients without any value are skipped and
        listed in `left_out`. Missing values are never chosen.
    y : labels 1, 0 or missing. Rows are patients, and columns are entities. If given, answers are also compared with
        the labels.
    rules : names of allocation rules, or `module:Class`. The default is the rule of a planner with default options,
        and simpler rules and random orders to compare it with.
    k, entity : size of the top set. If `entity` is given, the question is instead whether this entity is present.
    coupling, holds, tau : as in the planners.
    gain, score : as in the planners. The default is that of a planner for this bundle and question.
    costs : `own` or `equal`. With `own`, rules compare gain per unit of the bundle's costs.
    seeds : seeds of random orders.
    resamples, confidence : number of resamples and coverage of the intervals.
    threads : number of threads; the results do not depend on it.

    Raises
    ------
    CohortError : no patient has a value, a name occurs twice, or values are not ternary. The message names the cells.

    Examples
    --------
    >>> import pandas as pd
    >>> from afa.model.bundle import load_bundle
    >>> bundle = load_bundle("tests/data/bundle_tiny")
    >>> X = pd.DataFrame([[1.0, 1, 0, -1, 0], [0, -1, 1, 1, None]], columns=bundle.features, index=["p", "q"])
    >>> made = simulate(bundle, X, rules=["greedy"], resamples=10)
    >>> made.patients, round(made.gaps, 2)
    (('p', 'q'), 0.1)
    >>> made.features_needed[["allocation", "criterion", "median"]].head(1).values.tolist()
    [['greedy', 'settled', 0.0]]

    """
    model = bundle_given(bundle)
    codes = codes_of_frame(X, model).dropna(axis=1, how="all")
    if codes.columns.empty:
        raise CohortError(Fault("table X", "no value of any feature", "one or more", "fill in what was measured"))
    model, known = model.restrict(list(codes.columns)), codes.notna().any(axis=1)
    measured, names = codes[known].notna().to_numpy(), tuple(codes.index[known])
    labels = pd.DataFrame(index=pd.Index(names, name=PATIENT))
    if y is not None:
        labels = labels_of_frame(y, model).reindex(list(names)).astype("Int8")
    values = codes[known].fillna(0).to_numpy(dtype=np.int8)
    cohort = Cohort("table X", model.features, names, values, labels)
    setting = SimulationSetting(
        k=k,
        entity=entity,
        coupling=coupling,
        holds=holds,
        tau=tau,
        costs=costs,
        seeds=seeds,
        resamples=resamples,
        confidence=confidence,
        threads=threads,
    )
    ways = compared_strategies(model, setting, rules or (), [gain] if gain else (), [score] if score else ())
    made = followed(model, cohort, ways, setting, measured=measured)
    asked = f"is it {entity}?" if entity else f"top {k}"
    title = f"bundle {model.name}, {asked}; {len(names)} patients, {len(model.features)} features"
    return Simulated(*made, names, tuple(codes.index[~known]), float(1 - measured.mean()), title)
