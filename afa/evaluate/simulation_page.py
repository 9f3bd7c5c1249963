"""What acquisition would need: `afa.simulate`, of patients in a table in memory, and what the command leaves behind.

That is tables, figure, explorer page, card; and its short table for the terminal.
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
from numpy.typing import NDArray

import afa
from afa.cohort.cells import cells_of_frame, check_alike, numbers_of
from afa.cohort.cohort import PATIENT, Cohort
from afa.engine.course import MISSING
from afa.engine.ranks import name_places
from afa.errors import CohortError, Fault
from afa.evaluate.explorer import RANKED, Explored, Walked, boundary_of, by_engine, evenly, explored_of, write_explorer
from afa.evaluate.simulate import COST, FEATURES, Simulation, usual_rules, ways_of
from afa.evaluate.simulate import simulate as followed
from afa.evaluate.simulate.walks import SimulationSetting, Way, is_compiled, measured_first, planned, planner_of, ranked
from afa.io.files import atomic_folder, sha256_of, write_csv
from afa.io.later import Later
from afa.io.spreadsheet import marked_table
from afa.model.bundle import Bundle
from afa.model.closure import Closure
from afa.model.orders import random_orders
from afa.model.rule_names import COMPARED, COMPARED_BINARY
from afa.planner import TopKPlanner
from afa.planner.options import EXPLICIT_SCORES, INFORMATION, bundle_given, gauge_of

if TYPE_CHECKING:
    from matplotlib import figure
else:
    figure = Later("matplotlib.figure")

CARD = "simulate.yaml"
FILES = (CARD, "curves.csv", "features_needed.csv", "update.csv", "curves.svg", "curves.png", "explorer.html")
PACKAGES = ("numpy", "scipy", "numba", "pandas", "pyarrow")
LABELLED = {"label_auroc": "AUROC", "label_p_at_k": "share of the k best that have the label"}
SHOWN_ROUNDS = (0, 1, 2, 3, 5, 10, 20, 50, 100)
HEADS = {"allocation": "rule", "q25": "25 %", "q75": "75 %", "p90": "90 %"}
CRITERIA = {"settled": "answer settled", "certified": "answer certified", "sign_95": "95 % of duels right"}


def explore_simulation(
    bundle: Bundle,
    cohort: Cohort,
    runs: Sequence[tuple[Way, int]],
    setting: SimulationSetting,
    *,
    most: int,
    measured: NDArray[np.bool_],
) -> Explored:
    """Steps of at most `most` patients, evenly by name, along every run, a way and a seed, for the explorer page.

    setting, measured : as of `afa.evaluate.simulate.simulate`.
    """
    setting = replace(setting, coupling=gauge_of(bundle, setting.coupling))
    rows = evenly(len(cohort.patients), most)
    names = [cohort.patients[row] for row in rows]
    values = np.where(measured, cohort.values, np.int8(MISSING))[rows]
    scores = EXPLICIT_SCORES if setting.explicit else RANKED
    if not setting.explicit:
        bundle = bundle.contrasts()

    def planners(way: Way, seed: int) -> list[TopKPlanner]:
        return [planner_of(bundle, way, setting, patient=name, seed=seed) for name in names]

    walked = {}
    for way, seed in runs:
        if is_compiled(bundle, way, setting):
            orders = random_orders(bundle.features, names, [seed])[:, 0]
            given = measured_first(orders, values) if way.allocation == "random" else None
            walked[way, seed] = by_engine(bundle, values, way, given, setting)
        else:
            walked[way, seed] = _by_planners(planners(way, seed), values, scores, way)
    named = {"schedule": "every", "shown": 0, "scores": list(scores)}
    return explored_of(bundle, cohort, rows, walked, planners(*runs[0]), values, named)


def _by_planners(planners: Sequence[TopKPlanner], values: NDArray[np.int8], scores: Sequence[str], way: Way) -> Walked:
    """B patients, values (B, M), as planners ask, one each."""
    weighs = bool(way.gain) and way.gain != INFORMATION and ":" not in way.allocation

    def read(planner: TopKPlanner, _: int) -> tuple[Any, ...]:
        view, asked = planner._view(), planner.suggest()
        ahead = view.total_gain(view.resolved) if way.gain else view.largest_unary
        ahead = view.information() if way.gain == INFORMATION else ahead
        worth = ahead[view.features.index(asked.features[0])] if asked else 0.0
        fallback = weighs and asked is not None and asked.over is None
        found = [ranked(planner, score) for score in scores]
        place = np.array([of_score for _, of_score in found], dtype=np.int16)
        margin = found[0][0][boundary_of(place[0], name_places(view.entities), planner.k)]
        return worth, fallback, view.resolved.sum(), view.certified, place, margin

    told, worth, fallback, *by_round = planned(planners, values, read)
    return Walked(told[:, 1:], worth[:, :-1], fallback[:, :-1], *by_round)


def write_simulation(
    made: Simulation,
    card: Mapping[str, Any],
    folder: Path,
    say: Callable[[str], None] = print,
    explored: Callable[[], Explored] | None = None,
    brought: pd.DataFrame | None = None,
) -> None:
    """Write the tables, the card, a figure and the page of what `explored` gives; all appear when all are complete.

    The figure and the page are left out where a package that they need is missing; `say` gets a line about it.
    brought : what an update by the labels would have brought (`update_brings`), for the table update.csv.
    """
    cohort, asked = card["cohort"], card["setting"]
    of = f"is it {asked['entity']}?" if asked["entity"] else f"top {asked['k']}"
    title = f"bundle {card['bundle']['name']}, {of}; cohort {cohort['name']}, {cohort['simulated_on']} patients"
    with atomic_folder(folder, FILES, CARD) as temporary:
        tables = made._asdict() | ({} if brought is None or brought.empty else {"update": brought})
        for name, table in tables.items():
            write_csv(marked_table(table), temporary / f"{name}.csv", float_format="%.10g")
        try:
            import bokeh  # noqa: F401, PLC0415 (the page is made with it; an extra brings it, as matplotlib)

            from afa.evaluate.figures import curves_figure, save_figure  # noqa: PLC0415
        except ModuleNotFoundError as error:
            say(f"no figure and no explorer page: {error.name} is not installed (pip install 'afa[notebooks]')")
        else:
            for ending in ("svg", "png"):
                save_figure(curves_figure(made.curves, title), temporary / f"curves.{ending}")
            if explored is not None:
                write_explorer(explored(), temporary / "explorer.html")
        digests = {name: sha256_of(temporary / name) for name in (f"{table}.csv" for table in tables)}
        text = yaml.safe_dump(
            {**card, "afa": afa.__version__, "packages": {name: version(name) for name in PACKAGES}, "tables": digests},
            sort_keys=False,
            allow_unicode=True,
            width=100,
        )
        (temporary / CARD).write_text(text, encoding="utf-8")


def needed_text(needed: pd.DataFrame) -> str:
    """`features_needed` as people read it, criterion by criterion."""
    shown = pd.concat([rows for _, rows in needed.groupby(["criterion", "counted"], sort=False)])
    until: pd.Series[str] = shown["criterion"].map(CRITERIA) + np.where(shown["counted"] == "cost", ", cost", "")
    never = shown["never"].map("{:.0%}".format, na_action="ignore")
    shown = shown.assign(until=until.mask(until.duplicated(), ""), never=never).rename(columns=HEADS)
    varied = [name for name in ("gain", "score") if len(set(needed[name]) - {""}) > 1]
    columns = ["until", "rule", *varied, "25 %", "median", "75 %", "90 %", "never"]
    return shown[columns].to_string(index=False, na_rep="-", float_format="{:g}".format)


def labels_text(curves: pd.DataFrame) -> str:
    """What labels say of the answers after some numbers of features, as people read it; empty without labels."""
    found = [name for name in LABELLED if (curves["metric"] == name).any()]
    if not found:
        return ""
    rows = curves[curves["metric"] == found[0]].rename(columns=HEADS)
    ways = [name for name in ("rule", "gain", "score") if name == "rule" or rows[name].nunique() > 2]
    tables = []
    for counted, said in ((FEATURES, "by the number of features"), (COST, "by what these cost")):
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
    """Which of the tables to read where costs differ; empty where they do not."""
    if not (curves["counted"] == COST).any():
        return ""
    return (
        "Costs differ: read the lines and tables by cost. Rules that weigh the gain by its cost take cheap features "
        "first, so by the number of features they look worse than they are."
    )


@dataclass(frozen=True, repr=False)
class Simulated:
    """What came of a simulation.

    curves : the share of patients that is right by the number of features observed, with intervals; by rule. Where
        costs differ also by what was spent: the column `counted` says `features` or `cost`, and `t` how many or much.
    features_needed : quantiles of how many were needed, by rule and criterion. patients : whom it was about.
    left_out : patients of whom nothing was measured, by name. gaps : the share of values that were not measured; they
    are never asked for, and what is right is what all that was measured says. title : what was asked.
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
        """The curves as a figure, one panel a metric; it needs the extra `notebooks`."""
        from afa.evaluate.figures import curves_figure  # noqa: PLC0415 (matplotlib comes with an extra)

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
    gain: str = "cmi",
    score: str | None = None,
    costs: str = "own",
    seeds: Sequence[int] = (0, 1, 2),
    resamples: int = 1000,
    confidence: float = 0.95,
    threads: int = 1,
) -> Simulated:
    """Follow the patients of a table under each rule until all is known: how many features would have been needed?

    Parameters
    ----------
    bundle : the entities and their models, or the folder of a bundle.
    X : patients down and features across, -1, 0, +1 or missing, as whole numbers or not. Columns that the bundle does
        not know are ignored, features that no patient has leave the bundle, patients who have none are left out and
        named. What else is missing is never asked for.
    y : labels, patients down and entities across, 1, 0 or missing; scores are compared with them too.
    rules : allocation rules by name, or `module:Class`; four of them unless given.
    k, entity : the size of the top set, or the one entity that is asked for.
    coupling, holds, tau : as of the planners. gain, score, costs : as of `afa simulate`.
    seeds : of orders drawn at random. resamples, confidence : of the intervals. threads : they change no number.

    Raises
    ------
    CohortError : no patient has a value, a name stands twice, or values are not ternary; their cells are named.

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
    for name, table in {"X": X, "y": X if y is None else y}.items():
        if not isinstance(table, pd.DataFrame):
            step = "give pandas.DataFrame(values, columns=names)"
            raise CohortError(Fault(f"table {name}", type(table).__name__, "a DataFrame", step))
    check_alike(X.columns, model.features, model, "table X")
    if y is not None:
        check_alike(y.columns, model.entities, model, "table y")
    measured = X.reindex(columns=[name for name in model.features if name in X.columns and X[name].notna().any()])
    if measured.columns.empty:
        step = "name the columns as the bundle's features"
        raise CohortError(Fault("table X", "no column of a feature with a value", "one or more", step))
    model = model.restrict(list(measured.columns))
    known = measured.notna().any(axis=1)
    rows, step = [f"patient {name}" for name in X.index[known]], "encode what was measured: afa.encode(X, features)"
    cells = cells_of_frame(measured[known], "table X", rows=rows)
    values = numbers_of(cells, model.features, "-1, 0 or 1", only=(-1.0, 0.0, 1.0), step=step)
    CohortError.raise_for(cells.table.faults.listed())
    names, there = tuple(cells.names), ~np.isnan(values)
    labels = pd.DataFrame(index=pd.Index(names, name=PATIENT))
    if y is not None:
        labelled = y.set_axis(y.index.map(str)).reindex(list(names))
        labels = labelled.reindex(columns=[name for name in model.entities if name in y.columns]).astype("Int8")
    cohort = Cohort("table X", model.features, names, np.nan_to_num(values).astype(np.int8), labels)
    usual = "two_elbo" if entity or gauge_of(model, coupling) == "explicit" else "linearity"
    rules = rules or usual_rules(COMPARED_BINARY if entity else COMPARED, [gain])
    ways = ways_of(rules, [gain], [score or usual])
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
    made = followed(model, cohort, ways, setting, measured=there)
    asked = f"is it {entity}?" if entity else f"top {k}"
    title = f"bundle {model.name}, {asked}; {len(names)} patients, {len(model.features)} features"
    return Simulated(*made, names, tuple(map(str, measured.index[~known])), float(1 - there.mean()), title)
