"""Write the page that compares methods of feature acquisition on benchmark data sets with labels."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
from markupsafe import Markup

from afa.errors import Fault, ReportError
from afa.evaluate.classifiers import CLASSIFIERS
from afa.evaluate.entrants import HEADLINE
from afa.evaluate.figures import new_figure, save_figure
from afa.evaluate.long_tables import read_table
from afa.evaluate.page_parts import page
from afa.io.files import atomic_folder, write_csv
from afa.paper.experiments.declared import LEAGUE_FILES, LEAGUE_TABLES
from afa.paper.experiments.league import (
    BUNDLE_AND_LABELS,
    BUNDLE_AND_SHUFFLED_LABELS,
    FIXED_ORDER,
    LABELS_ALONE,
    PLANNER_ORDER,
    RANDOM_ORDER,
    WITHOUT_COUPLINGS,
)

BEST = "best classifier"
NOT_FETCHED = "not_fetched.txt"
"""Name of the file that marks a data set that has not been downloaded. The text of the file names the data's source."""
PAGE_ROUNDS = (3, 5)
"""Numbers of observed features for which the page shows results, in addition to all features."""
METRIC_NAMES = {
    "auroc": "AUROC",
    "first_place": "first place",
    "balanced_accuracy": "balanced accuracy",
    "average_precision": "average precision",
    "by_class": "first place, mean over conditions",
}
LADDER_ROUND = 5
"""The figure on labelled patients shows the metric after this number of observed features, or after all features."""
RUNGS = {
    HEADLINE: ("#0072B2", "--", "bundle alone"),
    LABELS_ALONE: ("#555555", ":", "labels alone, the same model"),
    BEST: ("#999999", "-.", "labels alone, the best of three classifiers"),
    BUNDLE_AND_LABELS: ("#D55E00", "-", "both"),
}
LEGEND = 6.5
"""Width of one line of the figure's legend, in inches."""
LINES = {
    PLANNER_ORDER: ("#0072B2", "-", "chosen for each patient"),
    FIXED_ORDER: ("#009E73", "--", "one order for all"),
    RANDOM_ORDER: ("#555555", ":", "at random"),
}


def league_rows(tables: Mapping[str, pd.DataFrame]) -> pd.DataFrame:
    """Return a table with one row for the main prediction task of each data set.

    A row contains facts about the prediction task, such as the number of patients. A row also contains three values of
    the main metric: after 3 observed features, after 5 observed features, and after all features. Columns of metrics
    are named `<quantity>_<t>`, where t is 3, 5 or all.

    Returns
    -------
    planner, random, fixed : metric along the planner's order, along random orders, and along one fixed order
    lead : metric along the planner's order minus metric along random orders, and its interval from `low` to `high`
    null : mean metric of bundles whose potentials are shuffled among the features, and the upper end `high` of its
        interval
    labels_needed : result of `labels_needed`
    labels_pass_bundle : number of labelled patients with which a model trained on labels alone exceeds the bundle
    labels_pass_both : number of labelled patients with which a model trained on labels alone exceeds the bundle updated
        with the same labels

    """
    rows = []
    facts = tables["facts"][tables["facts"]["main"].astype(bool)] if tables else pd.DataFrame()
    for fact in facts.to_dict("records"):
        own = {name: of_task(tables[name], fact) for name in LEAGUE_TABLES}
        metric = "first_place" if "first_place" in set(own["curves"]["metric"]) else "auroc"
        row: dict[Any, Any] = {**fact, "metric": metric}
        for place, t in {**{str(t): t for t in PAGE_ROUNDS}, "all": fact["features"]}.items():
            for allocation in (PLANNER_ORDER, RANDOM_ORDER, FIXED_ORDER):
                row[f"{allocation}_{place}"] = _find_row(own["curves"], HEADLINE, allocation, metric, t)["value"]
            lead = _find_row(own["leads"], HEADLINE, f"{PLANNER_ORDER} less {RANDOM_ORDER}", metric, t)
            null = _find_row(own["null"], "shuffled", PLANNER_ORDER, metric, t)
            row |= {
                f"lead_{place}{end}": lead[name] for end, name in (("", "value"), ("_low", "low"), ("_high", "high"))
            }
            row |= {f"null_{place}": null["value"], f"null_{place}_high": null["high"]}
            row[f"labels_needed_{place}"] = labels_needed(own["trained"], metric, t)
            rungs = ladder_at(own["ladder"], t)
            for name, rival in (("bundle", HEADLINE), ("both", BUNDLE_AND_LABELS)):
                row[f"labels_pass_{name}_{place}"] = passed(rungs, rival)
        rows.append(row)
    return pd.DataFrame(rows)


def labels_needed(trained: pd.DataFrame, metric: str, t: int) -> str:
    """Return, as a text, how many labelled patients the best classifier needs to match the bundle at t features."""
    at = trained[(trained["metric"] == metric) & (trained["t"] == t)]
    if at.empty:
        return "not measured"
    means = at.groupby(["size", "model"])["value"].mean().unstack()
    sizes = list(means.index)
    classifiers = [name for name in CLASSIFIERS if name in means]
    return _needed_labels_text(sizes, means[classifiers].max(axis=1) >= means[HEADLINE])


def _needed_labels_text(sizes: Sequence[int], reached: pd.Series) -> str:
    """Return how many labelled patients a model needs to match or exceed another model, as a text such as `10 to 20`.

    The array `reached` has one entry for each number of labelled patients in `sizes`. An entry of `reached` is True if
    the model matches or exceeds the other model with this number of labelled patients.
    """
    if not reached.any():
        return f"more than {sizes[-1]}"
    first = int(np.argmax(reached.to_numpy()))
    return f"{sizes[first - 1]} to {sizes[first]}" if first else f"at most {sizes[0]}"


def ladder_at(ladder: pd.DataFrame, t: int) -> pd.DataFrame:
    """Return a table of the metric after t features, with a row for each number of labelled patients.

    The table has a column for each model. The column `BEST` contains the largest value of all classifiers. Columns with
    the suffix ` low` or ` high` contain the ends of the intervals. If the input table `ladder` has no rows with t
    observed features, the result is an empty table.
    """
    at = ladder[ladder["t"] == t].set_index(["size", "model"])
    if at.empty:
        return pd.DataFrame()
    means = at["value"].unstack()
    ends = [at[end].unstack().add_suffix(f" {end}") for end in ("low", "high")]
    return pd.concat([means.assign(**{BEST: means[list(CLASSIFIERS)].max(axis=1)}), *ends], axis=1)


def passed(rungs: pd.DataFrame, rival: str) -> str:
    """Return how many labelled patients are needed until training on labels alone is better than the model `rival`.

    The result is a text, such as `10 to 20`. `rival` is the name of a model. `rungs` is a table returned by
    `ladder_at`.
    """
    if rungs.empty:
        return "not measured"
    return _needed_labels_text(list(rungs.index), rungs[[LABELS_ALONE, BEST]].max(axis=1) > rungs[rival])


def calibration(reliability: pd.DataFrame) -> pd.DataFrame:
    """Return two measures of calibration for each data set, prediction task, model and number t of observed features.

    `stated_less_observed` is the predicted probability minus the observed frequency, averaged over all cases.
    `mean_distance` is the expected calibration error: the absolute difference between predicted probability and
    observed frequency, computed in bins of cases and averaged over all cases.
    """
    keys, n = ["field", "task", "model", "t"], reliability["n"]
    gap = n * (reliability["stated"] - reliability["observed"])
    sums = reliability[keys].assign(n=n, stated_less_observed=gap, mean_distance=gap.abs())
    sums = sums.groupby(keys, sort=False).sum()
    return sums.drop(columns="n").div(sums["n"], axis=0).reset_index()


def field_report_values(folder: Path) -> dict[str, Any]:
    """Return the values that the template needs for the first part of the report on one data set.

    The input is the output of `afa league field`. In the result, `said` contains a paragraph for each prediction task.
    The template `league_tables.html` uses all values except `said`. If the data set has no prediction task, the result
    is empty.
    """
    tables = read_fields([folder])
    rows = league_rows(tables)
    if rows.empty:
        return {}
    return _template_values(tables, rows, 1) | {"said": [said(row) for row in rows.to_dict("records")]}


def said(row: Mapping[Any, Any]) -> str:
    """Return a paragraph on the results for few observed features. The numbers are in `row`, a row of `league_rows`.

    >>> row = {"task": "a", "field": "f", "metric": "auroc", "features": 8, "followed": 90, "planner_3": 0.8,
    ...        "random_3": 0.7, "lead_3": 0.1, "lead_3_low": -0.01, "lead_3_high": 0.2, "planner_all": 0.85,
    ...        "null_3": 0.5, "labels_needed_3": "10 to 20"}
    >>> print(said(row))  # doctest: +NORMALIZE_WHITESPACE
    f: a, 90 patients. After 3 of 8 features, chosen without a label, AUROC is 0.80; after 3 at random 0.70, and
    with all 0.85. The lead over random order is 0.10 [-0.01, 0.20], which can be chance. With the knowledge shuffled
    among the features it is 0.50. The best of three classifiers needs 10 to 20 labelled patients to do as well.
    """
    name = METRIC_NAMES[row["metric"]]
    what = f"the right one is in {name} for a share of" if row["metric"] == "first_place" else f"{name} is"
    t = next((t for t in PAGE_ROUNDS if t < row["features"]), None)
    head = f"{_title(row)}, {row['followed']:,} patients."
    if t is None:
        return f"{head} With all {row['features']} features {what} {row['planner_all']:.2f}."
    chance = ", which can be chance" if row[f"lead_{t}_low"] <= 0 else ""
    trained = f" The best of three classifiers needs {row[f'labels_needed_{t}']} labelled patients to do as well."
    return (
        f"{head} After {t} of {row['features']} features, chosen without a label, {what} {row[f'planner_{t}']:.2f};"
        f" after {t} at random {row[f'random_{t}']:.2f}, and with all {row['planner_all']:.2f}."
        f" The lead over random order is {row[f'lead_{t}']:.2f}"
        f" [{row[f'lead_{t}_low']:.2f}, {row[f'lead_{t}_high']:.2f}]{chance}."
        f" With the knowledge shuffled among the features it is {row[f'null_{t}']:.2f}."
        f"{'' if row[f'labels_needed_{t}'] == 'not measured' else trained}"
    )


def read_fields(folders: Sequence[Path]) -> dict[str, pd.DataFrame]:
    """Return a dictionary of the tables in `LEAGUE_TABLES`. Each table contains the rows of all data sets.

    Data sets without labels are skipped. If no data set has labels, the dictionary is empty.
    """
    asked = [path for path in folders if (path / f"{LEAGUE_TABLES[0]}.parquet").is_file()]
    return {
        name: pd.concat([read_table(path, name) for path in asked], ignore_index=True)
        for name in LEAGUE_TABLES
        if asked
    }


def _template_values(
    tables: Mapping[str, pd.DataFrame], rows: pd.DataFrame, n_fields: int, path: str | Path = ""
) -> dict[str, Any]:
    """Return the figure and the other values that the template `league_tables.html` needs."""
    return {
        "picture": Markup(draw(tables, rows, n_fields, path) if tables else ""),  # noqa: S704 (our own figure)
        "rows": rows.to_dict("records"),
        "readings": _model_rows(tables, rows),
        "ladder": _ladder_rows(tables, rows),
        "calibration": calibration(tables["reliability"]).to_dict("records") if tables else [],
        "names": METRIC_NAMES,
        "places": [*map(str, PAGE_ROUNDS), "all"],
    }


def write_league(fields: Sequence[Path], out: str | Path) -> None:
    """Write the comparison of data sets: tables, figures and the page `league.html`.

    The comparison is made from the output of `afa league field` for each data set. If a data set has not been
    downloaded, the page lists this data set as not fetched. If a figure does not show all data sets, the figure states
    how many data sets it shows.
    """
    absent = {}
    for path in fields:
        if (path / NOT_FETCHED).is_file():
            absent[path.name] = (path / NOT_FETCHED).read_text(encoding="utf-8").strip()
        elif not (path / "facts.parquet").is_file():
            found, expected = "neither facts.parquet nor " + NOT_FETCHED, "what `afa league field` wrote"
            raise ReportError(Fault(str(path), found, expected, "name its folder"))
    tables = read_fields([path for path in fields if path.name not in absent])
    rows = league_rows(tables)
    with atomic_folder(out, LEAGUE_FILES, "league.html") as made:
        for name, table in {"league": rows, **tables}.items():
            write_csv(table, made / f"{name}.csv", float_format="%.6g")
        shown = _template_values(tables, rows, len(fields), made / "league.svg")
        drawn = draw_ladder(tables, rows, len(fields), made / "ladder.svg") if tables else ""
        first = Markup(drawn)  # noqa: S704 (our own figure)
        text = page("league.html", **shown, ladder_picture=first, said=said, absent=absent, n_fields=len(fields))
        (made / "league.html").write_text(text, encoding="utf-8")


def draw(tables: Mapping[str, pd.DataFrame], rows: pd.DataFrame, n_fields: int, path: str | Path = "") -> str:
    """Return an SVG figure with a panel for each prediction task: the main metric against the number of features.

    A panel shows the main metric against the number of observed features, with three lines: the planner's order, one
    fixed order, and random orders. A grey band shows the interval for bundles in which potentials and probabilities are
    permuted at random among the features. If a path is given, the figure is also saved as a file.
    """
    columns = min(4, len(rows))
    height = -(-len(rows) // columns)
    wide = max(2.5 * columns, LEGEND)
    figure, panels = new_figure(wide, 2.2 * height + 0.5, columns, height)
    for axes, row in zip(panels, rows.to_dict("records"), strict=False):
        own = of_task(tables["curves"], row)
        own = own[(own["model"] == HEADLINE) & (own["metric"] == row["metric"])]
        null = of_task(tables["null"], row)
        null = null[null["metric"] == row["metric"]].sort_values("t")
        places = range(len(null))
        axes.fill_between(places, null["low"], null["high"], color="#dddddd", label="shuffled knowledge")
        for allocation, (colour, line, label) in LINES.items():
            part = own[own["allocation"] == allocation].sort_values("t")
            axes.plot(places, part["value"], line, color=colour, label=label, marker="o", markersize=2.5)
            if allocation == PLANNER_ORDER:
                axes.fill_between(places, part["low"], part["high"], color=colour, alpha=0.15, linewidth=0)
        axes.set_xticks(places, [str(t) for t in null["t"]])
        axes.set_title(f"{_title(row)}\nn = {row['followed']:,}", fontsize=8)
        axes.set_ylabel(METRIC_NAMES[row["metric"]], fontsize=8)
        axes.tick_params(labelsize=7)
        axes.set_ylim(0.0 if row["metric"] == "first_place" else 0.4, 1.02)
    for axes in panels[len(rows) :]:
        axes.set_visible(False)
    present = rows["field"].nunique()
    over = "" if present == n_fields else f" ({present} of {n_fields} fields: the tables of the others are not fetched)"
    figure.supxlabel(f"features observed{over}", fontsize=8)
    handles, labels = panels[0].get_legend_handles_labels()
    figure.legend(handles, labels, loc="outside upper center", ncols=4, fontsize=8)
    return save_figure(figure, path).svg()


def draw_ladder(tables: Mapping[str, pd.DataFrame], rows: pd.DataFrame, n_fields: int, path: str | Path = "") -> str:
    """Return an SVG figure with a panel for each prediction task: the main metric against the number of labels.

    A panel shows the metric after `LADDER_ROUND` observed features against the number of labelled patients, for each
    model in `RUNGS`. If a path is given, the figure is also saved as a file.
    """
    columns = min(4, len(rows))
    height = -(-len(rows) // columns)
    figure, panels = new_figure(max(2.5 * columns, LEGEND), 2.2 * height + 0.7, columns, height)
    for axes, row in zip(panels, rows.to_dict("records"), strict=False):
        t = min(LADDER_ROUND, row["features"])
        rungs = ladder_at(of_task(tables["ladder"], row), t)
        places = range(1, len(rungs) + 1)
        for name, (colour, line, label) in RUNGS.items() if len(rungs) else ():
            values, at = list(rungs[name]), list(places)
            if name.startswith(
                BUNDLE_AND_LABELS
            ):  # without labelled patients, the updated bundle equals the elicited bundle
                values, at = [rungs[HEADLINE].iloc[0], *values], [0, *at]
            axes.plot(at, values, line, color=colour, label=label, marker="o", markersize=2.5)
            if name == BUNDLE_AND_LABELS:
                axes.fill_between(
                    places, rungs[f"{name} low"], rungs[f"{name} high"], color=colour, alpha=0.15, linewidth=0
                )
        axes.set_xticks([0, *places], ["0", *map(str, rungs.index)])
        axes.set_title(f"{_title(row)}\nafter {t} of {row['features']}", fontsize=8)
        axes.set_ylabel(METRIC_NAMES[row["metric"]], fontsize=8)
        axes.tick_params(labelsize=7)
    for axes in panels[len(rows) :]:
        axes.set_visible(False)
    present = rows["field"].nunique()
    over = "" if present == n_fields else f" ({present} of {n_fields} fields)"
    figure.supxlabel(f"labelled patients{over}", fontsize=8)
    handles, labels = panels[0].get_legend_handles_labels()
    figure.legend(handles, labels, loc="outside upper center", ncols=3, fontsize=8)
    return save_figure(figure, path).svg()


def _ladder_rows(tables: Mapping[str, pd.DataFrame], rows: pd.DataFrame) -> list[dict[str, Any]]:
    """Return a row for each prediction task, t and number of labelled patients, with the metric of each model."""
    found = []
    for row in rows.to_dict("records"):
        for t in dict.fromkeys([*(t for t in (3, 5, 8) if t < row["features"]), row["features"]]):
            for size, rung in ladder_at(of_task(tables["ladder"], row), t).iterrows():
                head = {"field": row["field"], "task": row["task"], "metric": METRIC_NAMES[row["metric"]]}
                steps = {
                    "labels": LABELS_ALONE,
                    "best": BEST,
                    "bundle": HEADLINE,
                    "both": BUNDLE_AND_LABELS,
                    "apart": BUNDLE_AND_LABELS + WITHOUT_COUPLINGS,
                }
                steps |= {f"both{end}": f"{BUNDLE_AND_LABELS} less {HEADLINE}{end}" for end in (" low", " high")}
                steps |= {
                    f"bad{end}": f"{BUNDLE_AND_SHUFFLED_LABELS} less {HEADLINE}{end}" for end in ("", " low", " high")
                }
                place = "all" if t == row["features"] else str(t)
                found.append({**head, "t": place, "size": size, **{key: rung[name] for key, name in steps.items()}})
    return found


def of_task(table: pd.DataFrame, fact: Mapping[Any, Any]) -> pd.DataFrame:
    """Return the rows of `table` for one prediction task on one data set (columns `task` and `field`)."""
    own: pd.DataFrame = table[(table["field"] == fact["field"]) & (table["task"] == fact["task"])]
    return own


def _model_rows(tables: Mapping[str, pd.DataFrame], rows: pd.DataFrame) -> list[dict[str, Any]]:
    """Return one row for each prediction task and model, with every metric after 3, 5 and all observed features."""
    found = []
    for row in rows.to_dict("records"):
        own = of_task(tables["curves"], row)
        own = own[~own["allocation"].isin([RANDOM_ORDER, FIXED_ORDER]) & own["t"].isin([*PAGE_ROUNDS, row["features"]])]
        for (model, rule, metric), part in own.groupby(["model", "allocation", "metric"], sort=False):
            name = model if rule == PLANNER_ORDER else f"{model}, order by `{rule}`"
            values = zip(["all" if t == row["features"] else str(t) for t in part["t"]], part["value"], strict=True)
            head = {"field": row["field"], "task": row["task"], "model": name, "metric": METRIC_NAMES[str(metric)]}
            found.append({**head, "n": int(part["n"].iloc[0]), "values": dict(values)})
    return found


def _find_row(table: pd.DataFrame, model: str, allocation: str, metric: str, t: int) -> Mapping[Any, Any]:
    """Return the row of `table` with the given keys, or NaN for each number if there is no such row."""
    keys = (table["model"] == model) & (table["allocation"] == allocation)
    own = table[keys & (table["metric"] == metric) & (table["t"] == t)]
    return own.iloc[0].to_dict() if len(own) else dict.fromkeys(("value", "low", "high"), np.nan)


def _title(row: Mapping[Any, Any]) -> str:
    own = str(row["field"]).replace("_", " ")
    return own if row["task"] in ("which", row["field"]) else f"{own}: {row['task'].replace('_', ' ')}"
