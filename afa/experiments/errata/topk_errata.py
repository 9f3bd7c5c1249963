"""Items 12, 18 and 19 from the rows of the top-k setting: duels that brackets call, and rules that choose features."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace
from functools import partial

import pandas as pd

from afa.experiments.errata.printed import Printed
from afa.experiments.errata.rows import EXACT, NEAR, Row
from afa.experiments.errata.stage_errata import filled, rows_of

CALLS, RULES = 100, 150
"""Rounds of tab:layer1_informed and of tab:m2_alloc."""
THREE_DIGITS = 0.0005
"""Shares that differ by no more may be printed alike."""
LAYER_ONE, GRID, LAYER_ZERO = "the stage of Layer 1", "the stage of the allocation grid", "the stage of Layer 0"
SCHEDULES = {"paper": "scored again at the paper's rounds", "every": "scored again every round"}


def missed_calls(summary: pd.DataFrame) -> list[Row]:
    """Item 12: duels that the `l1` bracket has called with either budget, and how many the printed one leaves open."""
    claim = "the budget is the energy that the unobserved features can add, each coupling once"
    point = partial(Row, item=12, label="eq:unobs-budget, tab:layer1_informed", claim=claim, unit="rate")
    pending = _waits_for_calls(summary)
    printed, tight = (_calls(summary, bracket, "informed", t=CALLS) for bracket in ("l1_paper", "l1_tight"))
    where = f"at t = {CALLS} in the informed order"
    rows = [
        _checked(
            point(name="called_printed", check=f"share of duels called {where} with the budget as printed"),
            printed,
            pending,
        ),
        _checked(
            point(name="called_tight", check=f"share of duels called {where}, each coupling counted once"),
            tight,
            pending,
        ),
    ]
    check = f"share of the calls that are certain {where} and that the printed budget does not make"
    missed = point(name="missed_calls", claim_value=0.0, check=check, pending=pending)
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
    for schedule, words in SCHEDULES.items():
        for rule in ("greedy", "clustered", "lucb"):
            is_printed = schedule == "paper" and rule != "lucb"
            row = Row(
                item=18,
                name=f"{rule}_{gain}_{schedule}",
                label="tab:m2_alloc, tab:method_topk",
                claim="every rule described is evaluated" if rule == "lucb" else "two rules come to one accuracy",
                claim_value=printed.cell("tab_m2_alloc", rule, gain) if is_printed else None,
                check=f"sign accuracy of {rule} at t = {RULES}, {gain}, {words}",
                unit="accuracy",
            )
            found = _signs(summary, rule, gain, schedule, metric="accuracy", reference=None, t=RULES)
            yield _checked(row, found, _waits_for_rules(summary, rule, gain))


def _differences(summary: pd.DataFrame, printed: Printed, gain: str) -> Iterator[Row]:
    greedy, clustered = (printed.cell("tab_m2_alloc", rule, gain) for rule in ("greedy", "clustered"))
    point = partial(Row, item=18, label="tab:m2_alloc", unit="gap")
    of_greedy = partial(point, claim="two rules come to one accuracy, to three digits", claim_value=greedy - clustered)
    of_lucb = partial(point, claim="lucb and clustered, both described, are two rules")
    for schedule, words in SCHEDULES.items():
        for rule, start, holds in (("greedy", of_greedy, _alike), ("lucb", of_lucb, None)):
            row = start(
                name=f"{rule}_less_clustered_{gain}_{schedule}",
                check=f"sign accuracy of {rule} less that of clustered at t = {RULES}, {gain}, {words}",
            )
            found = _signs(summary, rule, gain, schedule, metric="gap", reference="clustered", t=RULES)
            yield _checked(row, found, _waits_for_rules(summary, f"{rule} and clustered", gain), holds)
    gaps = _signs(summary, "greedy", gain, "paper", metric="gap", reference="clustered")
    largest = gaps.sort_values("value", key=lambda gap: -gap.abs(), kind="stable").head(1)
    at = "" if largest.empty else f", at t = {largest['t'].iloc[0]:.0f}"
    row = of_greedy(
        name=f"largest_difference_{gain}",
        check=f"the largest such difference of greedy over the paper's rounds, {gain}, {SCHEDULES['paper']}{at}",
    )
    yield _checked(row, largest, _waits_for_rules(summary, "greedy and clustered", gain), _alike)


def one_rate(summary: pd.DataFrame, printed: Printed) -> list[Row]:
    """Item 19: our one rate of the `l1` bracket beside the two printed, and the best rule beside the static order."""
    rows = []
    for order, column in (("informed", "Informed (%)"), ("random", "Random (%)")):
        rates = [printed.cell("tab_layer1_informed", f"M2 {name} (L1)", column) for name in ("linearity", "wald")]
        row = Row(
            item=19,
            name=f"called_{order}",
            label="tab:layer1_informed",
            claim="the rate of one bracket, in per cent, is {:g} for linearity and {:g} for wald".format(*rates),
            claim_value=rates[1] / 100,
            check=f"share of duels that it has called at t = {CALLS}, {order} order, as printed: no score enters it",
            unit="rate",
        )
        rows.append(_checked(row, _calls(summary, "l1_paper", order, t=CALLS), _waits_for_calls(summary)))
    return [*rows, _best_rule(summary)]


def _best_rule(summary: pd.DataFrame) -> Row:
    static = _calls(summary, "l1_tight", "informed", t=CALLS)
    grid = rows_of(summary, "bracket_rate", reference="l1_tight", guide="linearity", stratum=None, t=CALLS)
    best = grid.sort_values("value", ascending=False, kind="stable").head(1)
    row = Row(
        item=19,
        name="best_rule",
        label="supp:drop_pairs",
        claim="a static informed order is an upper bound on what any acquisition does for Layer 1",
        check=f"share of all duels called with the tight budget at t = {CALLS} under the best rule of the grid",
        unit="rate",
    )
    if static.empty or best.empty:
        return replace(row, pending=LAYER_ONE if static.empty else GRID)
    bound, cell = float(static["value"].iloc[0]), best[["allocation", "gain", "schedule"]].iloc[0].dropna()
    # ties are never called early: over the duels with a winner alone the rule's share would be larger still
    check = f"{row.check}, {' '.join(cell)}; the static order calls {bound:.3g} of those with a winner"
    low = float(best["low"].iloc[0])
    return filled(replace(row, check=check), best, lambda _: low <= bound)


def never_called(summary: pd.DataFrame, printed: Printed) -> list[Row]:
    """Item 19: duels open until full observation, how many of them are ties, and how far the algorithm decides it."""
    share, pending = printed.claim("c300") / 100, _waits_for_calls(summary)
    many = f"about {share:.0%} of the duels never reach a one-sided bracket, even in the informed order"
    entities = "that share is a property of the entities, not of the algorithm"
    ties, near = "these duels are structural ties", "in these duels D(x) is about 0"

    def row(
        name: str,
        claim: str,
        check: str,
        found: pd.DataFrame,
        *,
        claim_value: float | None = None,
        holds: Callable[[float], bool] | None = None,
        unit: str = "rate",
    ) -> Row:
        begun = Row(19, name, "supp:drop_pairs", claim, check, unit, claim_value=claim_value)
        return _checked(begun, found, pending, holds)

    def numbers(stratum: str, bracket: str = "l1_paper", order: str = "informed", metric: str = "rate") -> pd.DataFrame:
        return _calls(summary, bracket, order, metric=metric, stratum=stratum)

    before = "share of all duels that the l1 bracket has not called before full observation"
    return [
        row(
            "never",
            many,
            f"{before}: informed order, budget as printed",
            numbers("never"),
            claim_value=share,
            holds=lambda value: abs(value - share) <= NEAR,
        ),
        row(
            "never_tight",
            entities,
            f"{before}: informed order, each coupling counted once",
            numbers("never", "l1_tight"),
        ),
        row("never_random", entities, f"{before}: random order, budget as printed", numbers("never", order="random")),
        row(
            "never_own_order",
            entities,
            f"{before}: each duel in an order of its own, budget as printed",
            numbers("never", order="informed_pair"),
        ),
        row(
            "never_tied",
            ties,
            "of the duels not called before full observation in the informed order, share with D(x) = 0",
            numbers("never tied"),
            claim_value=1.0,
            holds=lambda value: value >= 1 - NEAR,
        ),
        row(
            "never_size",
            near,
            "median of abs(D(x)) over the same duels",
            numbers("never q50", metric="nats"),
            unit="nats",
        ),
        row(
            "called_size",
            near,
            "median of abs(D(x)) over the duels that are called",
            numbers("called q50", metric="nats"),
            unit="nats",
        ),
    ]


def eliminations(summary: pd.DataFrame, printed: Printed) -> list[Row]:
    """Item 19: clusters that Layer 0 removes, the same for everybody, beside the eliminations of some patients."""
    claimed, patients, clusters = (int(printed.claim(name)) for name in ("c265", "c266", "c264"))
    row = Row(
        item=19,
        name="removed_clusters",
        label="supp:drop_pairs, supp:layer0_lipschitz",
        claim=f"Layer 0 makes {claimed} eliminations across {patients} patients with {clusters} clusters",
        claim_value=float(claimed),
        check=f"clusters of {clusters} that the paper's Layer 0 removes, for every patient the same",
        unit="count",
    )
    whole = rows_of(summary, "layer0_bundle", metric="count", reference="f1_n_minus_k")
    found = rows_of(whole, "layer0_bundle", stratum=f"clusters={clusters}")
    return [_checked(row, found, f"{clusters} clusters in {LAYER_ZERO}" if len(whole) else LAYER_ZERO)]


def _calls(
    summary: pd.DataFrame,
    bracket: str,
    order: str,
    *,
    metric: str = "rate",
    stratum: str | None = None,
    t: int | None = None,
) -> pd.DataFrame:
    """Rows of Layer 1 among duels; those of the allocation rules have a guide."""
    cells: dict[str, str | float | None] = {"metric": metric, "reference": bracket, "allocation": order, "guide": None}
    return rows_of(summary, "bracket_rate", **cells, target="likelihood", stratum=stratum, t=t)


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
    cells |= {"method": "linearity", "reference": reference, "stratum": None} | ({} if t is None else {"t": t})
    return rows_of(summary, "allocation_sign", **cells)


def _waits_for_calls(summary: pd.DataFrame) -> str:
    """What has to run before a number of Layer 1 that is missing can be there."""
    whole = rows_of(summary, "bracket_rate", allocation="informed", target="likelihood")
    return LAYER_ONE if whole.empty else "such duels, or a round as late, in " + LAYER_ONE


def _waits_for_rules(summary: pd.DataFrame, rules: str, gain: str) -> str:
    """The same of the grid."""
    whole = rows_of(summary, "allocation_sign")
    return GRID if whole.empty else f"{rules} with {gain}, or a round as late, in {GRID}"


def _alike(difference: float) -> bool:
    return abs(difference) <= THREE_DIGITS


def _checked(row: Row, found: pd.DataFrame, pending: str, holds: Callable[[float], bool] | None = None) -> Row:
    """The row with the number found, or what it waits for."""
    return replace(row, pending=pending) if found.empty else filled(row, found, holds)
