"""Compute tables for notebooks and `afa bundle show`: contents of bundles, cost of inference, allocation results.

In tables of results, rows are in the order of the summary, and intervals are shown as text.
"""

from __future__ import annotations

import itertools
from collections.abc import Sequence

import numpy as np
import pandas as pd

from afa.evaluate.method_names import PRIORITY, RANDOM
from afa.model.arrays import Floats
from afa.model.bundle import Bundle
from afa.model.bundle.rates import SHARED
from afa.paper.report.paper_tables import PRINTED_ALLOCATIONS, START, SummaryLines

WORK_COLUMNS = ["solves", "iterations", "capped"]
CLASS_CLOSURE_NAMES = {"class_1": "closure, class 1", "class_0": "closure, class 0"}
ERROR_KEYS = ["patient", "entity", "seed", "t"]

CELL_COLUMNS = ["gain", "allocation", "schedule"]
CLAIM_ROUND = 150
CLAIM_COLUMNS = ["claim", "schedule", "gain", "ours", "low", "high", "paper", "verdict"]
CLAIMS = ((PRIORITY, "greedy"), ("greedy", RANDOM), ("priority_all", "greedy"))
"""Pairs of rules. The claim is that the first rule is better than the second. The paper makes the first two claims; the
third is the first claim for `priority_all`.
"""


def supports(bundle: Bundle, order: Sequence[str]) -> pd.DataFrame:
    """Return a table with one row for each entity in `order` and one column for each feature.

    An entry is 1 if the entity's model contains the feature, else 0.
    """
    inside = np.zeros((len(order), len(bundle.features)), dtype=np.int64)
    for row, name in enumerate(order):
        inside[row, list(bundle.support(name))] = 1
    return pd.DataFrame(inside, index=list(order), columns=list(bundle.features))


def overlaps(bundle: Bundle, apart: Floats, order: Sequence[str]) -> pd.DataFrame:
    """Return a table of pairs of entities: number of shared features, and distance between the two models.

    Rows are sorted by the number of shared features, largest first.

    Parameters
    ----------
    apart : (n_entities, n_entities) float64, distances from `afa.planner.cluster.distances`, in the bundle's order
    order : entities; ties are broken by this order

    """
    place = [bundle.entities.index(name) for name in order]
    first, second = np.triu_indices(len(order), 1)
    inside, names = supports(bundle, order).to_numpy(), np.array(order, dtype=object)
    shared, between = inside @ inside.T, apart[np.ix_(place, place)]
    table = pd.DataFrame({"entity": names[first], "other": names[second], "shared features": shared[first, second]})
    table["l1 distance"] = between[first, second]
    return table.sort_values("shared features", ascending=False, kind="stable").reset_index(drop=True)


def named_solves(rounds: pd.DataFrame, convergence: pd.DataFrame) -> pd.DataFrame:
    """Join two tables of mean-field runs, and add a column `solve` that names the model of each run.

    Parameters
    ----------
    rounds : rows of `sign/rounds` for one method
    convergence : the table `sanity/convergence`. Only its rows on the two class models of an entity (`class_1` and
        `class_0`) are used, because `rounds` has the mean-field runs of the entities

    """
    entities = rounds.assign(solve="entity, " + rounds["start"].astype(str) + " start")
    closures = convergence[convergence["model"].isin(list(CLASS_CLOSURE_NAMES))]
    parts = [entities, closures.assign(solve=closures["model"].map(CLASS_CLOSURE_NAMES))]
    return pd.concat([part for part in parts if len(part)] or [entities], ignore_index=True)


def work_of(solves: pd.DataFrame, *keys: str) -> pd.DataFrame:
    """Group mean-field runs by the columns `keys`, and return the sums of the columns `WORK_COLUMNS` for each group.

    The column `sweeps` is the mean number of sweeps in a mean-field run. The column `capped_share` is the share of
    mean-field runs that stopped at the largest allowed number of damped sweeps.
    """
    work = solves.groupby(list(keys), sort=False)[WORK_COLUMNS].sum()
    return work.assign(sweeps=work["iterations"] / work["solves"], capped_share=work["capped"] / work["solves"])


def contraction_by_entity(contraction: pd.DataFrame) -> pd.DataFrame:
    """Return a table of the convergence criterion beta L^2, with one row for each entity.

    The column `alone` contains the value of beta L^2 for the model of the entity. The column `closure` contains the
    value of beta L^2 for the two class models of the entity, whose potentials are half the entity's potentials
    (`half_potentials`). The columns `min`, `median` and `max` summarise beta L^2 over all comparisons of the entity
    with another entity. Rows are sorted by the column `alone`, in ascending order.
    """
    duels = contraction[contraction["model"] == "duel"]
    sides = [duels[[side, "contraction"]].set_axis(["name", "contraction"], axis=1) for side in ("entity", "opponent")]
    of_duels = pd.concat(sides).astype({"contraction": float}).groupby("name")["contraction"]
    single = {
        name: contraction[contraction["model"] == model].set_index("entity")["contraction"].astype(float)
        for name, model in (("alone", "entity"), ("closure", "closure"))
    }
    table = pd.DataFrame(single).join(of_duels.agg(["min", "median", "max"])).dropna(subset=["alone"])
    return table.sort_values("alone", kind="stable")


def log_odds_error(odds: pd.DataFrame) -> pd.Series:
    """Return the error of the mean-field log-odds (mean-field minus exact), in nats.

    The result has one error for each state for which both log-odds were computed. The columns `ERROR_KEYS` identify a
    state.
    """
    both = odds.pivot(index=ERROR_KEYS, columns="inference", values="raw").reindex(columns=["mean_field", "exact"])
    both = both.dropna()
    return (both["mean_field"] - both["exact"]).rename("error")


def bundle_table(bundle: Bundle) -> pd.DataFrame:
    """Return a table with one row for each entity: number of features, numbers of potentials by sign, prior log-odds.

    If the bundle has probabilities, the table has two more columns: number of features with probabilities, and number
    of couplings that both classes share.
    """
    packed, entities = bundle.packed, len(bundle.entities)
    entity = np.repeat(np.arange(entities), np.diff(packed.pointer))  # entity of each coupling
    table = pd.DataFrame(
        {
            "entity": bundle.entities,
            "support": [len(bundle.support(name)) for name in bundle.entities],
            "unary_up": (bundle.unary > 0).sum(axis=1),
            "unary_down": (bundle.unary < 0).sum(axis=1),
            "couplings_same": np.bincount(entity[packed.value > 0], minlength=entities),
            "couplings_opposite": np.bincount(entity[packed.value < 0], minlength=entities),
            "log_odds": bundle.priors,
        }
    )
    if bundle.rates is None or not bundle.has_probabilities:
        return table
    shared = [] if packed.scope is None else entity[packed.scope == SHARED]
    return table.assign(
        probabilities=np.bincount(bundle.rates.probability_rows.entity, minlength=entities),
        couplings_shared=np.bincount(shared, minlength=entities),
    )


def feature_table(bundle: Bundle) -> pd.DataFrame:
    """Return a table with one row for each feature of a bundle.

    A row contains four counts: entities with a positive unary potential, entities with a negative unary potential,
    positive couplings, and negative couplings. If the bundle has a file features.csv, the row also contains the
    possible values and the range. If the bundle has probabilities, the row also contains the background probabilities
    of low and high values. If the bundle has costs, the row also contains the cost.
    """
    features, packed = len(bundle.features), bundle.packed
    ends, signs = np.concatenate([packed.row, packed.column]), np.tile(np.sign(packed.value), 2)
    table = pd.DataFrame(
        {
            "feature": bundle.features,
            "unary_up": (bundle.unary > 0).sum(axis=0),
            "unary_down": (bundle.unary < 0).sum(axis=0),
            "couplings_same": np.bincount(ends[signs > 0], minlength=features),
            "couplings_opposite": np.bincount(ends[signs < 0], minlength=features),
        }
    )
    if bundle.rates is not None and bundle.rates.table is not None:
        cuts = zip(bundle.rates.table.low, bundle.rates.table.high, strict=True)
        table = table.assign(
            values=[" ".join(itertools.compress(("-1", "0", "1"), row)) for row in bundle.possible],
            range=[_range_text(low, high) for low, high in cuts],
        )
    if bundle.rates is not None and bundle.has_probabilities:
        low, _, high = np.round(bundle.rates.background, 4).T
        table = table.assign(p_low=low, p_high=high)
    return table if bundle.costs is None else table.assign(cost=bundle.costs)


def _range_text(low: float, high: float) -> str:
    """Return the range between cut points as text: `60 to 140`, `from 60`, `up to 140`, or "" without cut points."""
    if np.isfinite(low) and np.isfinite(high):
        return f"{low:g} to {high:g}"
    return f"from {low:g}" if np.isfinite(low) else f"up to {high:g}" if np.isfinite(high) else ""


def gains_of(rows: pd.DataFrame) -> list[str]:
    """Return all gains in the rows of a summary, each once, or [""] if no rule uses a gain."""
    return [str(gain) for gain in rows["gain"].dropna().unique()] or [""]


def schedules_of(rows: pd.DataFrame) -> list[str]:
    """Return the distinct values of the column `schedule` in the rows of all rules except `random`.

    If `random` is the only rule, return the distinct values of the column `schedule` in the rows of `random`.
    """
    named = rows.dropna(subset=["allocation"])
    scheduled = named[named["allocation"] != RANDOM]
    return [str(schedule) for schedule in (named if scheduled.empty else scheduled)["schedule"].unique()]


def rules_under(rows: pd.DataFrame, gain: str, schedule: str) -> dict[str, pd.DataFrame]:
    """Group the summary rows of one gain and one schedule by rule.

    Rows without a gain are also included. Rows of the rule `random` are included for every schedule.
    """
    here = rows[rows["gain"].isna() | (rows["gain"] == gain)].dropna(subset=["allocation"])
    here = here[(here["schedule"] == schedule) | (here["allocation"] == RANDOM)]
    return {str(rule): part for rule, part in here.groupby("allocation", sort=False)}


def at_most_four_rules(parts: dict[str, pd.DataFrame]) -> dict[str, pd.DataFrame]:
    """Return at most four rules, because a figure panel with more lines is hard to read.

    If the run used the rule `priority_clusters`, which the paper proposes, return only the rules that the paper's table
    compares. If the run did not use the rule `priority_clusters`, return the first four rules.
    """
    known = {rule: part for rule, part in parts.items() if rule in PRINTED_ALLOCATIONS.values()}
    chosen = known if PRIORITY in known else parts
    return dict(list(chosen.items())[:4])


def printed_schedule(schedules: Sequence[str]) -> str:
    """Return the paper's schedule if the run used this schedule, else the first schedule."""
    return "paper" if "paper" in schedules else schedules[0]


def by_cell(rows: pd.DataFrame, column: str, *, index: Sequence[str] = CELL_COLUMNS) -> pd.DataFrame:
    """Return a table with one row for each combination of values in the columns `index`.

    The table has one column for each value in `column`. The cells are taken from the column `shown` if the rows have
    this column, else from the column `value`.
    """
    index = list(index)
    named = rows.fillna(dict.fromkeys(index, ""))
    wide = named.pivot(index=index, columns=column, values="shown" if "shown" in named else "value")
    return wide.loc[named.set_index(index).index.unique(), named[column].unique()]


def by_round(rows: pd.DataFrame, rounds: Sequence[int], *, index: Sequence[str] = CELL_COLUMNS) -> pd.DataFrame:
    """Return the table of `by_cell` with one column for each number of observed features t in `rounds`."""
    wide = by_cell(rows[rows["t"].isin(rounds)], "t", index=index)
    return wide.set_axis([f"t={t:.0f}" for t in wide.columns], axis="columns")


def with_interval_text(
    rows: pd.DataFrame, *, scale: float = 1.0, digits: int = 0, signed: bool = False
) -> pd.DataFrame:
    """Add a column `shown` to the rows: the value and its interval as text, such as `+2.5 [+2.2, +2.8]`.

    A missing value is shown as a dash.
    """

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
    """Return, in words, whether a difference is above 0 according to its interval."""
    if np.isnan(low) or np.isnan(high):
        return "no interval"
    if low > 0:
        return "holds"
    return "does not hold" if high < 0 else "not clear"


def priority_claims(rows: pd.DataFrame, printed: pd.DataFrame) -> pd.DataFrame:
    """Return the differences in sign accuracy at t = 150 between the rules in `CLAIMS`, in points (sec:eval_alloc).

    The columns are `CLAIM_COLUMNS`. Pairs of rules that the run did not compare are skipped.

    Parameters
    ----------
    rows : rows `allocation_sign` of the summary
    printed : the paper's table `tab_m2_alloc`. Its differences are shown only for the paper's schedule

    """
    summary, lines = SummaryLines(rows), []
    keys: dict[str, object] = {"table": "allocation_sign", "metric": "gap", "method": "linearity", "guide": "linearity"}
    keys |= {"target": "likelihood", "start": START, "t": CLAIM_ROUND}
    names = {ours: name for name, ours in PRINTED_ALLOCATIONS.items()}
    cells = printed.set_index(["row", "column"])["value"]
    for (rule, other), schedule, gain in itertools.product(CLAIMS, schedules_of(rows), gains_of(rows)):
        gap = summary.find(keys | {"allocation": rule, "reference": other, "gain": gain, "schedule": schedule})
        if gap is None:
            continue
        first, second = (cells.get((names.get(each, ""), gain), np.nan) for each in (rule, other))
        paper = 100 * (first - second) if schedule == "paper" else np.nan
        numbers = [100 * gap[name] for name in ("value", "low", "high")]
        lines.append([f"{rule} above {other}", schedule, gain, *numbers, paper, verdict(gap["low"], gap["high"])])
    return pd.DataFrame(lines, columns=CLAIM_COLUMNS)
