"""The summary of the allocation grid, which combines every rule with every gain and schedule (tab:m2_alloc).

A row with the metric `gap` is the difference between the results of two rules for the same patients and resamples
(tab:m2_alloc, tab:m2_phase1_pat5).
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING

import numpy as np
import pandas as pd

from afa.evaluate.accuracy import (
    UNIT,
    Part,
    Resampled,
    by_t,
    fixed_top_k,
    mean_ratio,
    overlap,
    precisions_by_prevalence,
)
from afa.evaluate.inputs import rounds_up_to
from afa.evaluate.long_tables import CompleteTable, axis_among, axis_of
from afa.evaluate.resampling import first_where, quartiles_of_rounds, table_of_rounds
from afa.evaluate.summary import Labelled, count_rows, labelled, summary_rows
from afa.evaluate.targets import target_label_counts
from afa.model.arrays import Bools, Floats
from afa.model.orders import PAPER_ROUNDS
from afa.paper.experiments.allocation.cells import (
    CLINICAL,
    CLINICAL_R,
    CORRECT_DUEL_COLUMNS,
    LIKELIHOOD,
    PRECISIONS,
    GridCell,
)
from afa.paper.experiments.allocation.grid import SINGLE, Grid, read_grid
from afa.paper.experiments.allocation.tables import run as run
from afa.paper.experiments.chaos import chaotic_patients
from afa.planner.options import BACKGROUND, FRONTIER

if TYPE_CHECKING:
    from afa.paper.experiments.settings import Bootstrap


RANDOM_CELL = GridCell("random", "", "every")
SAME_GAIN = ("greedy", "clustered")
"""The paper's baselines. All other rules are compared with them at the same gain and schedule."""
PAPER_RULE, EXISTING_RULES = "priority_clusters", ("random", "greedy", "clustered", "lucb")
"""The paper's rule, and the rules that the paper's rule should beat on the hardest patients."""
GROUPS = {"chaotic": True, "non_chaotic": False}
LEVELS = (0.9, 0.95, 0.99)
QUANTITIES = (
    ("accuracy", "likelihood", "right"),
    ("p_at_k", "likelihood", LIKELIHOOD),
    ("p_at_k", "clinical", CLINICAL),
)
FRONTIER_COMPARED = {"random": RANDOM_CELL, "priority_all": GridCell("priority_all", "cmi", "every")}
"""Cells of the grid with which the rule `frontier` is compared."""
FRONTIER_QUANTITIES = {
    "right": ("accuracy", "likelihood"),
    LIKELIHOOD: ("p_at_k", "likelihood"),
    CLINICAL: ("p_at_k", "clinical"),
}


def summarise(
    tables: Mapping[str, pd.DataFrame],
    chaos: Mapping[str, pd.DataFrame],
    *,
    bootstrap: Bootstrap,
) -> pd.DataFrame:
    """Return the summary rows of the allocation grid.

    The counts of a patient are summed over the patient's runs (seeds).

    Returns
    -------
    allocation_sign : by cell (allocation, gain, schedule) and method. `accuracy` is given at every t. Three metrics are
        given at every tenth t: `balanced_accuracy` over the two sides of a duel, `accuracy` in the stratum
        `prior_wrong`, and `gap`. `gap` is the accuracy minus the accuracy of the cell in `reference` (`references`).
        For each cell, `rate` with the quantity `fallback` is the share of rounds in which the fallback rule
        (decisions.md A7) chose the feature. `majority`, `prevalence` and the `count` of duels tied at full observation
        are given once. The strata `chaotic` and `non_chaotic` have the rows of `hardest_rows`
    allocation_p_at_k : by target. `p_at_k` is given at every t. `gap` and, for labels, `r_precision` are given at every
        tenth t. The constant answers `fixed_top_k` (the best k entities for these patients) and `prevalence_order`, and
        counts of the labels, are given once
    certified_round, acquisition_saved, bracket_rate, allocation_frontier : the rows of `certified_rows`, `saved_rows`,
        `bracket_rows` and `frontier_rows`

    Raises
    ------
    ConfigError : a table is not complete.
    SanityError : rigorous score bounds decided a duel wrongly.

    """
    grid = read_grid(tables)
    patients = [str(name) for name in pd.unique(tables["duels"]["patient"])]
    chaotic = chaotic_patients(chaos["flips"], patients)
    resampled = Resampled.of(range(len(grid.winners)), **dict(bootstrap), purpose="allocation")
    parts = {
        "allocation_sign": [*_sign_rows(grid, resampled), *hardest_rows(grid, resampled, chaotic)],
        "allocation_p_at_k": _precision_rows(grid, resampled),
        "certified_round": certified_rows(grid, resampled),
        "acquisition_saved": saved_rows(grid, resampled),
        "bracket_rate": bracket_rows(grid, resampled),
    }
    made = [summary_rows(name, labelled(rows), guide="linearity", start="uniform") for name, rows in parts.items()]
    if beside := list(frontier_rows(tables["frontier"], grid, patients, resampled)):
        made.append(summary_rows("allocation_frontier", labelled(beside)))
    return pd.concat(made, ignore_index=True)


def _sign_rows(grid: Grid, resampled: Resampled) -> Iterator[Labelled]:
    shown = shown_rounds(grid.last_round)
    for cell in grid.runs:
        for method in grid.methods:
            label = {**cell.label, "method": method, "target": "likelihood"}
            accuracy = resampled.mean([grid.part("right", cell, method)])
            yield by_t(accuracy), {"metric": "accuracy", **label}
            every, first, wrong = (grid.part(column, cell, method, shown) for column in CORRECT_DUEL_COLUMNS)
            balanced = resampled.mean([first, (every[0] - first[0], every[1] - first[1])])
            yield balanced.assign(t=shown), {"metric": "balanced_accuracy", **label}
            if wrong[1].any():
                rows = resampled.mean([wrong]).assign(t=shown)
                yield rows, {"metric": "accuracy", "stratum": "prior_wrong", **label}
        fallback = grid.part("fallback", cell)
        decided = fallback[0].sum(axis=1, keepdims=True), fallback[1][:, 1:].sum(axis=1, keepdims=True)
        yield resampled.mean([decided]), {"metric": "rate", "quantity": "fallback", **cell.label}
    for method in grid.methods:
        for rows, named in gaps(grid, "right", method, resampled):
            yield rows, {**named, "method": method, "target": "likelihood"}
    if grid.winners.any():
        for rows in resampled.constant(grid.winners):
            yield rows, {"target": "likelihood"}
    ties = {"tied_at_full_observation": ((grid.winners == 0).sum(), grid.winners.size)}
    yield count_rows(ties), {"target": "likelihood"}


def hardest_rows(grid: Grid, resampled: Resampled, chaotic: Bools) -> Iterator[Labelled]:
    """Yield the accuracy of the paper's rule, and its difference from the accuracy of each rule in `EXISTING_RULES`.

    The numbers of observed features are those of the paper's tables. There are separate rows for each gain (measure of
    a feature's expected information) and each schedule (rounds in which features are ranked again). The rows of chaotic
    patients, whose scores often change sign, are separate from the rows of all other patients. `accuracy` is the share
    of duels (comparisons of two entities) that the score `linearity` decides correctly if the rule `priority_clusters`
    chooses the features. `gap` is the accuracy with `priority_clusters` minus the accuracy with the rule in
    `reference`. The classification into chaotic and non-chaotic patients is the same in all resamples.

    Parameters
    ----------
    chaotic : (n_patients,) bool, True for patients who are chaotic by the definition of decisions.md A10.

    """
    rounds = rounds_up_to(PAPER_ROUNDS, grid.last_round)
    for cell in grid.runs:
        others = {rule: RANDOM_CELL if rule == "random" else cell._replace(allocation=rule) for rule in EXISTING_RULES}
        for stratum, side in GROUPS.items() if cell.allocation == PAPER_RULE else ():
            among = (chaotic == side)[:, None]
            if not among.any():
                continue
            label = {**cell.label, "stratum": stratum, "method": "linearity", "target": "likelihood"}
            own = tuple(counts * among for counts in grid.part("right", cell, "linearity", rounds))
            yield resampled.mean([own]).assign(t=rounds), {"metric": "accuracy", **label}
            for rule, other in others.items():
                if other in grid.runs:
                    theirs = tuple(counts * among for counts in grid.part("right", other, "linearity", rounds))
                    gap = resampled.gap([own], [theirs])
                    yield gap.assign(t=rounds), {"metric": "gap", "reference": rule, **label}


def _precision_rows(grid: Grid, resampled: Resampled) -> Iterator[Labelled]:
    shown = shown_rounds(grid.last_round)
    targets = {"likelihood": LIKELIHOOD} | ({"clinical": CLINICAL} if grid.has_clinical_target else {})
    for target, column in targets.items():
        for cell in grid.runs:
            for method in grid.methods:
                label = {**cell.label, "method": method, "target": target}
                yield by_t(_in_shares(resampled.mean([grid.part(column, cell, method)]))), {"metric": "p_at_k", **label}
                if target == "clinical":
                    table = _in_shares(resampled.mean([grid.part(CLINICAL_R, cell, method, shown)]))
                    yield table.assign(t=shown), {"metric": "r_precision", **label}
        for method in grid.methods:
            for rows, named in gaps(grid, column, method, resampled):
                yield _in_shares(rows), {**named, "method": method, "target": target}
    yield from _constant_answers(grid, resampled)
    yield count_rows(target_label_counts(grid.labels, grid.k, grid.k_clinical)), {"target": "clinical"}


def _in_shares(table: pd.DataFrame) -> pd.DataFrame:
    """Return a table with values and intervals divided by `UNIT`."""
    return table.assign(**{name: table[name] / UNIT for name in ("value", "low", "high")})


def _constant_answers(grid: Grid, resampled: Resampled) -> Iterator[Labelled]:
    """Yield the precision of constant top-k answers, which are chosen with knowledge of the patients' targets."""
    best = overlap(grid.top, fixed_top_k(grid.top, grid.k), grid.k) / grid.k
    shares = {("p_at_k", "likelihood", "fixed_top_k"): best}
    if grid.has_clinical_target:
        found = precisions_by_prevalence(grid.labels, grid.k_clinical)
        shares |= {(metric, "clinical", "prevalence_order"): np.nan_to_num(share) for metric, share in found.items()}
    for (metric, target, method), share in shares.items():
        cases = grid.totals[LIKELIHOOD if target == "likelihood" else CLINICAL]
        table = resampled.mean([((np.rint(share * UNIT) * cases)[:, None], cases[:, None])])
        yield _in_shares(table), {"metric": metric, "target": target, "method": method}


def certified_rows(grid: Grid, resampled: Resampled) -> Iterator[Labelled]:
    """Yield the number of features after which the top k is certain, and the share of runs in which it is certain.

    Rows are given for each strategy (`GridCell`). A run observes all features of one patient in one order. If a
    bootstrap resample contains a patient, it contains all runs of this patient. The metric `count` is the number of
    observed features after which the top k is certain in half of all runs. With the quantity `q25` or `q75`, `count` is
    the number of observed features after which the top k is certain in a quarter or in three quarters of all runs. If
    the top k becomes certain in too few runs, `count` is missing. With the quantity `never`, `rate` is the share of
    runs in which the top k is never certain. With the quantity `certified`, `rate` is the share of runs in which the
    top k is certain after t features. The metric `gap` compares two strategies by the share of runs in which the top k
    is certain after t features. `gap` is the share for the row's strategy minus the share for the strategy in the
    column `reference`.
    """
    shown, weights = shown_rounds(grid.last_round), resampled.every
    for cell in grid.runs:
        certified, runs = grid.part("certified", cell)
        quartiles = quartiles_of_rounds(certified, runs, weights, confidence=resampled.confidence)
        yield quartiles, {"metric": "count", **cell.label}
        last = runs[:, -1:] - certified[:, -1:], runs[:, -1:]
        yield resampled.mean([last]), {"metric": "rate", "quantity": "never", **cell.label}
        some = resampled.mean([grid.part("certified", cell, rounds=shown)])
        yield some.assign(t=shown), {"metric": "rate", "quantity": "certified", **cell.label}
    for rows, named in gaps(grid, "certified", "", resampled):
        yield rows, {**named, "quantity": "certified"}


def saved_rows(grid: Grid, resampled: Resampled) -> Iterator[Labelled]:
    """Yield the number of features (`count`) after which a metric stays close to its final value.

    Rows are given for each strategy (`GridCell`), method and target.

    The column `quantity` names the metric: the sign accuracy (`accuracy`) or the precision of the top k (`p_at_k`),
    averaged over patients. The count is the first round from which the metric stays at or above `level` times its value
    at the last round. If `reference` is `random`, the value is the count for random order minus the count for the
    strategy. The counts for both orders are computed from the same resampled patients.
    """
    for quantity, target, column in QUANTITIES:
        if not grid.totals[column].any():
            continue
        for method in grid.methods:
            parts = {cell: grid.part(column, cell, method) for cell in grid.runs}
            needed = {cell: _rounds_needed(part, resampled.every) for cell, part in parts.items()}
            for cell, rounds in needed.items():
                label = {**cell.label, "metric": "count", "quantity": quantity, "method": method, "target": target}
                n = int(parts[cell][1][:, 0].sum())
                own = table_of_rounds(rounds, grid.last_round, confidence=resampled.confidence)
                yield own.assign(level=LEVELS, n=n), label
                if RANDOM_CELL in needed and cell != RANDOM_CELL:
                    saved = table_of_rounds(
                        needed[RANDOM_CELL] - rounds, grid.last_round, confidence=resampled.confidence
                    )
                    yield saved.assign(level=LEVELS, n=n), {**label, "reference": "random"}


def bracket_rows(grid: Grid, resampled: Resampled) -> Iterator[Labelled]:
    """Yield the share of duels (`rate`) that the tight l1 score bounds have resolved, for each strategy (`GridCell`).

    Tied duels are included.

    With the quantity `wrong`, the value is the share of resolved duels that have another result at full observation.
    The share `wrong` is always 0, because `read_grid` raises an error if a resolved duel has another result at full
    observation.
    """
    shown = shown_rounds(grid.last_round)
    for cell in grid.runs:
        label = {**cell.label, "metric": "rate", "method": "wald", "reference": "l1_tight"}
        resolved = grid.part("resolved", cell, rounds=shown)
        yield resampled.mean([resolved]).assign(t=shown), label
        wrong = grid.part("resolved_wrong", cell, rounds=shown)[0], resolved[0]
        yield resampled.mean([wrong]).assign(t=shown), {**label, "quantity": "wrong"}


def frontier_rows(table: pd.DataFrame, grid: Grid, patients: Sequence[str], resampled: Resampled) -> Iterator[Labelled]:
    """Yield the sign accuracy and the top-k precision of the rule `frontier`, for each background distribution and t.

    The column `variant` names the source of the background distribution of the features. `gap` is the metric of
    `frontier` minus the metric of a strategy in `FRONTIER_COMPARED` on the same patients. The strategies in
    `FRONTIER_COMPARED` decide with the score `linearity`.
    """
    if table.empty:
        return
    axes = {
        "background": axis_of(table, ["background"]),
        "patient": axis_among(table["patient"], patients),
        "t": axis_among(table["t"], [str(t) for t in range(grid.last_round + 1)]),
    }
    whole = CompleteTable.of("table frontier", table.select_dtypes(["number", "bool"]), axes)
    rounds = rounds_up_to(PAPER_ROUNDS, grid.last_round)
    for column, (metric, target) in FRONTIER_QUANTITIES.items():
        if not grid.totals[column].any():
            continue
        # Counts are rounded to multiples of 1/2, and precisions to multiples of 1/UNIT, so that sums are exact.
        unit = UNIT if column in PRECISIONS else 2
        cases = np.repeat(grid.totals[column][:, None], grid.last_round + 1, axis=1)
        for (kind,), shares in zip(whole.axes["background"].labels, whole.column(column, may_miss=True), strict=True):
            label = {"allocation": FRONTIER, "method": BACKGROUND, "target": target, "variant": str(kind)}
            own = np.rint(np.nan_to_num(shares).astype(np.float64) * unit) / (1 if column in PRECISIONS else unit)
            accuracy = by_t(resampled.mean([(own, cases)]))
            yield _in_shares(accuracy) if column in PRECISIONS else accuracy, {"metric": metric, **label}
            for name, cell in FRONTIER_COMPARED.items():
                if cell in grid.runs:
                    here = np.ascontiguousarray(own[:, rounds]), np.ascontiguousarray(cases[:, rounds])
                    gap = resampled.gap([here], [grid.part(column, cell, "linearity", rounds)]).assign(t=rounds)
                    labels = {"metric": "gap", "quantity": metric, "reference": name, **label}
                    yield _in_shares(gap) if column in PRECISIONS else gap, labels


def _rounds_needed(part: Part, weights: Floats) -> Floats:
    """Return the number of observed features after which a metric stays close to its final value.

    `LEVELS` contains the required shares of the final value, such as 0.9. The result has one number of features for
    each required share.

    The result has the shape (1 + R, number of shares), and is NaN if there are no cases.
    """
    right, total = part
    curve = mean_ratio([(right, total[:, :1])], weights)
    end = curve[:, -1:]
    needed = np.empty((len(weights), len(LEVELS)))
    for i, level in enumerate(LEVELS):
        below = curve < level * end * (1 - SINGLE)
        needed[:, i] = below.shape[1] - first_where(below[:, ::-1])
    needed[np.isnan(end[:, 0])] = np.nan
    return needed


def shown_rounds(last_round: int) -> list[int]:
    """Return every tenth round, and the last round."""
    return rounds_up_to(range(0, last_round, 10), last_round)


def references(cell: GridCell) -> dict[str, GridCell]:
    """Return a dictionary from names to the strategies with which the strategy `cell` is compared.

    Some of these strategies may be missing in the grid.

    Every strategy except `random` is compared with the rule `random`, and with the rule `largest_unary` at the same
    schedule. If a strategy uses an information gain, the strategy is also compared with the rules `greedy` and
    `clustered` with the same gain and schedule. A strategy with the paper's schedule is also compared with the strategy
    `every`, which has the same rule and gain, but computes scores at every round.
    """
    if cell == RANDOM_CELL:
        return {}
    others = {"random": RANDOM_CELL}
    if cell.gain:
        others |= {rule: GridCell(rule, cell.gain, cell.schedule) for rule in SAME_GAIN}
    others["largest_unary"] = GridCell("largest_unary", "", cell.schedule)
    if cell.schedule == "paper":
        others["every"] = cell._replace(schedule="every")
    return {name: other for name, other in others.items() if other != cell}


def gaps(grid: Grid, column: str, method: str, resampled: Resampled) -> Iterator[Labelled]:
    """Yield rows with the metric `gap`: a strategy's result minus the result of each strategy in `references`.

    The difference from the rule `random` is given after every tenth observed feature. Differences from other strategies
    are given only for the numbers of observed features that the paper's tables contain.
    """
    shown, compared = shown_rounds(grid.last_round), rounds_up_to(PAPER_ROUNDS, grid.last_round)
    for cell in grid.runs:
        for name, other in references(cell).items():
            if other in grid.runs:
                rounds = shown if name == "random" else compared
                own, theirs = (grid.part(column, each, method, rounds) for each in (cell, other))
                table = resampled.gap([own], [theirs])
                yield table.assign(t=rounds), {"metric": "gap", "reference": name, **cell.label}
