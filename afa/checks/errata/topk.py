"""Items 12, 18 and 19 from the rows of the top-k setting: duels that brackets call, and rules that choose features."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace
from functools import partial

import pandas as pd

from afa.checks.errata.printed import Printed
from afa.checks.errata.rows import EXACT, NEAR, Row
from afa.checks.errata.summaries import filled, rows_of

CALLS, RULES = 100, 150
"""Rounds of tab:layer1_informed and of tab:m2_alloc."""
THREE_DIGITS = 0.0005
"""Shares that differ by no more may be printed alike."""
LAYER_ONE, GRID, LAYER_ZERO = "the stage of Layer 1", "the stage of the allocation grid", "the stage of Layer 0"
SCHEDULES = ("paper", "every")


def missed_calls(summary: pd.DataFrame) -> list[Row]:
    """Item 12: duels that the `l1` bracket has called with either budget, and how many the printed one leaves open."""
    point = partial(Row, item=12)
    pending = _waits_for_calls(summary)
    printed, tight = (_calls(summary, bracket, "informed", t=CALLS) for bracket in ("l1_paper", "l1_tight"))
    rows = [
        _checked(point(name="called_printed"), printed, pending),
        _checked(point(name="called_tight"), tight, pending),
    ]
    missed = point(name="missed_calls", claim_value=0.0, pending=pending)
    if not printed.empty and not tight.empty:
        certain = float(tight["value"].iloc[0])
        missed = replace(missed, pending="" if certain > 0 else f"duels that are called at t = {CALLS}")
        if certain > 0:
            share = 1 - float(printed["value"].iloc[0]) / certain
            n = round(certain * float(tight["n"].iloc[0]))
            missed = replace(missed, value=share, n=n, holds=share <= EXACT)
    return [*rows, missed]


def two_rules(summary: pd.DataFrame, printed: Printed) -> list[Row]:
    """Item 18: sign accuracy of `greedy`, `clustered` and `lucb` with each gain of tab:m2_alloc, and differences."""
    return [
        row
        for gain in printed.column("tab_m2_alloc", "greedy").index
        for row in (
            *_accuracies(summary, printed, gain),
            *_differences(summary, printed, gain),
        )
    ]


def _accuracies(summary: pd.DataFrame, printed: Printed, gain: str) -> Iterator[Row]:
    for schedule in SCHEDULES:
        for rule in ("greedy", "clustered", "lucb"):
            is_printed = schedule == "paper" and rule != "lucb"
            row = Row(
                item=18,
                name=f"{rule}_{gain}_{schedule}",
                claim_value=printed.cell("tab_m2_alloc", rule, gain) if is_printed else None,
            )
            found = _signs(summary, rule, gain, schedule, metric="accuracy", reference=None, t=RULES)
            yield _checked(row, found, _waits_for_rules(summary, rule, gain))


def _differences(summary: pd.DataFrame, printed: Printed, gain: str) -> Iterator[Row]:
    greedy, clustered = (printed.cell("tab_m2_alloc", rule, gain) for rule in ("greedy", "clustered"))
    point = partial(Row, item=18)
    of_greedy = partial(point, claim_value=greedy - clustered)
    for schedule in SCHEDULES:
        for rule, start, holds in (("greedy", of_greedy, _alike), ("lucb", point, None)):
            row = start(name=f"{rule}_less_clustered_{gain}_{schedule}")
            found = _signs(summary, rule, gain, schedule, metric="gap", reference="clustered", t=RULES)
            yield _checked(row, found, _waits_for_rules(summary, f"{rule} and clustered", gain), holds)
    gaps = _signs(summary, "greedy", gain, "paper", metric="gap", reference="clustered")
    largest = gaps.sort_values("value", key=lambda gap: -gap.abs(), kind="stable").head(1)
    row = of_greedy(name=f"largest_difference_{gain}")
    yield _checked(row, largest, _waits_for_rules(summary, "greedy and clustered", gain), _alike)


def one_rate(summary: pd.DataFrame, printed: Printed) -> list[Row]:
    """Item 19: our one rate of the `l1` bracket beside the two printed, and the best rule beside the static order."""
    rows = []
    for order, column in (("informed", "Informed (%)"), ("random", "Random (%)")):
        rates = [printed.cell("tab_layer1_informed", f"M2 {name} (L1)", column) for name in ("linearity", "wald")]
        row = Row(item=19, name=f"called_{order}", claim_value=rates[1] / 100)
        rows.append(_checked(row, _calls(summary, "l1_paper", order, t=CALLS), _waits_for_calls(summary)))
    return [*rows, _best_rule(summary)]


def _best_rule(summary: pd.DataFrame) -> Row:
    static = _calls(summary, "l1_tight", "informed", t=CALLS)
    grid = rows_of(summary, "bracket_rate", reference="l1_tight", guide="linearity", t=CALLS)
    best = grid.sort_values("value", ascending=False, kind="stable").head(1)
    row = Row(item=19, name="best_rule")
    if static.empty or best.empty:
        return replace(row, pending=LAYER_ONE if static.empty else GRID)
    bound, low = float(static["value"].iloc[0]), float(best["low"].iloc[0])
    # ties are never called early: over the duels with a winner alone the rule's share would be larger still
    return filled(row, best, lambda _: low <= bound)


def never_called(summary: pd.DataFrame, printed: Printed) -> list[Row]:
    """Item 19: duels open until full observation, how many of them are ties, and how far the algorithm decides it."""
    share, pending = printed.claim("c300") / 100, _waits_for_calls(summary)
    kept: dict[str, tuple[dict[str, str], float | None, Callable[[float], bool] | None]] = {
        "never": ({"quantity": "never"}, share, lambda value: abs(value - share) <= NEAR),
        "never_tight": ({"quantity": "never", "bracket": "l1_tight"}, None, None),
        "never_random": ({"quantity": "never", "order": "random"}, None, None),
        "never_own_order": ({"quantity": "never", "order": "informed_pair"}, None, None),
        "never_tied": ({"stratum": "never", "quantity": "tied"}, 1.0, lambda value: value >= 1 - NEAR),
        "never_size": ({"stratum": "never", "quantity": "q50", "metric": "nats"}, None, None),
        "called_size": ({"stratum": "called", "quantity": "q50", "metric": "nats"}, None, None),
    }
    return [
        _checked(Row(19, name, claim_value=claimed), _numbers(summary, **cells), pending, holds)
        for name, (cells, claimed, holds) in kept.items()
    ]


def _numbers(summary: pd.DataFrame, bracket: str = "l1_paper", order: str = "informed", **cells: str) -> pd.DataFrame:
    """Rows of Layer 1, of the printed budget in the informed order unless said otherwise."""
    return _calls(summary, bracket, order, **cells)


def eliminations(summary: pd.DataFrame, printed: Printed) -> list[Row]:
    """Item 19: clusters that Layer 0 removes, the same for everybody, beside the eliminations of some patients."""
    claimed, _patients, clusters = (int(printed.claim(name)) for name in ("c265", "c266", "c264"))
    row = Row(item=19, name="removed_clusters", claim_value=float(claimed))
    whole = rows_of(summary, "layer0_bundle", metric="count", reference="f1_n_minus_k", variant="clusters")
    found = rows_of(whole, "layer0_bundle", variant="clusters", level=clusters)
    return [_checked(row, found, f"{clusters} clusters in {LAYER_ZERO}" if len(whole) else LAYER_ZERO)]


def _calls(
    summary: pd.DataFrame,
    bracket: str,
    order: str,
    *,
    metric: str = "rate",
    **differs: str | float | None,
) -> pd.DataFrame:
    """Rows of Layer 1 among duels; those of the allocation rules have a guide."""
    cells: dict[str, str | float | None] = {"metric": metric, "reference": bracket, "allocation": order, "guide": None}
    return rows_of(summary, "bracket_rate", **cells, target="likelihood", **differs)


def _signs(
    summary: pd.DataFrame,
    rule: str,
    gain: str,
    schedule: str,
    *,
    metric: str,
    reference: str | None,
    t: int | None = None,
) -> pd.DataFrame:
    """Rows of a rule in the grid, read out by `linearity`, at one t or at all."""
    cells: dict[str, str | float | None] = {"allocation": rule, "gain": gain, "schedule": schedule, "metric": metric}
    cells |= {"method": "linearity", "reference": reference} | ({} if t is None else {"t": t})
    return rows_of(summary, "allocation_sign", **cells)


def _waits_for_calls(summary: pd.DataFrame) -> str:
    """What has to run before a number of Layer 1 that is missing can be there."""
    made = (summary["table"] == "bracket_rate") & (summary["allocation"] == "informed") & summary["value"].notna()
    return LAYER_ONE if not made.any() else "such duels, or a round as late, in " + LAYER_ONE


def _waits_for_rules(summary: pd.DataFrame, rules: str, gain: str) -> str:
    """The same of the grid."""
    whole = rows_of(summary, "allocation_sign")
    return GRID if whole.empty else f"{rules} with {gain}, or a round as late, in {GRID}"


def _alike(difference: float) -> bool:
    return abs(difference) <= THREE_DIGITS


def _checked(row: Row, found: pd.DataFrame, pending: str, holds: Callable[[float], bool] | None = None) -> Row:
    """The row with the number found, or what it waits for."""
    return replace(row, pending=pending) if found.empty else filled(row, found, holds)
