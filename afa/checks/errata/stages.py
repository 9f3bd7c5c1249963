"""The table of errata: beside the computed items 10, 12 to 20 and 22, by the paper's numbers and by rows of stages.

What those stages have not made is left pending.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from itertools import product
from math import ceil
from typing import Any

import numpy as np
import pandas as pd

from afa.checks.errata import EXACT, NEAR, Errata, Printed, Row, frame_of, measured, rate, table_of
from afa.stats.summary import COLUMNS, DETAILS

Cells = dict[str, Any]
Holds = Callable[[float], bool]
CHECKPOINTS = [f"t={t}" for t in (10, 50, 100, 150)]
TRACKS = {"two_elbo": "F1-track", "stack_a": "F2-track"}
EARLY = 10
CALLS, RULES = 100, 150
"""Rounds of tab:layer1_informed and of tab:m2_alloc."""
THREE_DIGITS = 0.0005
"""Half of the last digit of a share printed with three decimals: shares that differ by no more may be printed alike."""
GAUGES = "the stage that compares the two gauges"
LAYER_ONE, GRID, LAYER_ZERO = "the stage of Layer 1", "the stage of the allocation grid", "the stage of Layer 0"
ORDERS = {"informed": "Informed (%)", "random": "Random (%)"}
CALLED: Cells = {
    "metric": "rate",
    "reference": "l1_paper",
    "allocation": "informed",
    "guide": None,
    "target": "likelihood",
}
"""Rows of Layer 1 among duels; those of the allocation rules have a guide."""
SIGNS: Cells = {"metric": "accuracy", "reference": None, "method": "linearity"}
CLUSTERS = {"reference": "f1_n_minus_k", "variant": "clusters"}
SCHEDULES = ("paper", "every")
M = "t=216"
COIN = 0.5
METHOD_TABLE = {"ours": "ours", "random": "random", "LUCB": "lucb", "Cluster-LUCB": "clustered"}
"""Rules of tab:method_topk, a table without numbers, and the row that would hold the results of each."""
ORIGINS = {"sec:experiments": "an ongoing clinical trial", "supp:ternary": "a public GEO series"}
"""Where the samples come from, in the two places that say it."""


def equals(item: int, name: str, value: float, claim: float = 0.0, *, n: int, within: float = 0.0) -> Row:
    """The row of a number that should be the claimed one, from `n` printed ones."""
    return Row(item, name, float(value), float(claim), n=n, holds=abs(value - claim) <= within)


def chaotic_patients(printed: Printed) -> list[Row]:
    """Item 15: the two groups of tab:chaos against the size of the cohort."""
    cohort = int(printed.claim("c044"))
    chaotic, others = (int(printed.cell("tab_chaos", "n", name)) for name in ("Chaotic", "Non-chaotic"))
    quartile = ceil(cohort / 4)
    top = Row(15, "top_quartile", float(quartile), float(chaotic), n=1, holds=chaotic <= quartile)
    return [equals(15, "group_total", chaotic + others, cohort, n=2), top]


def clinical_ceiling(printed: Printed) -> list[Row]:
    """Item 16: accuracy at full observation against clinical labels, wherever it is printed."""
    table = printed.cell("tab_classification_with_llm", "Clinical / wald", M)
    wald, stack_a = (printed.cell("tab_m1acc", row, M) for row in ("wald", "stack_a_maxent"))
    return [
        # the table has two decimals
        equals(16, "text_and_table", table - printed.claim("c082"), n=2, within=10 * THREE_DIGITS),
        equals(16, "stack_a_and_wald", stack_a - wald, n=2, within=THREE_DIGITS),
    ]


def language_models(printed: Printed) -> list[Row]:
    """Item 17: the rows of language models before full observation against a coin."""
    rows = [printed.column("tab_classification_with_llm", f"LLM / {name}") for name in ("RAG-LLM", "MRF-LLM")]
    early = np.concatenate([row.drop(M) for row in rows])
    return [rate(17, "below_coin", early < COIN), measured(17, "least_accuracy", early, np.min)]


def allocation_rules(printed: Printed) -> list[Row]:
    """Item 18: `greedy` and `clustered` in tab:m2_alloc, and the rules of tab:method_topk."""
    greedy, clustered = (printed.column("tab_m2_alloc", rule) for rule in ("greedy", "clustered"))
    difference = float((greedy - clustered).abs().max())
    results, methods = set(printed.rows("tab_m2_alloc")), set(METHOD_TABLE.values())
    return [
        Row(18, "greedy_and_clustered", difference, n=len(greedy), holds=difference > EXACT),
        equals(18, "without_result", len(methods - results), n=len(methods)),
        equals(18, "without_description", len(results - methods), n=len(results)),
    ]


def one_bracket(printed: Printed) -> list[Row]:
    """Item 19: rates of resolved duels of two scores that share a bracket, and eliminations per patient."""
    linearity, wald = (printed.column("tab_layer1_informed", f"M2 {name} (L1)") for name in ("linearity", "wald"))
    apart = (linearity - wald) / 100
    eliminated, patients = int(printed.claim("c265")), int(printed.claim("c266"))
    return [
        *(equals(19, f"one_bracket_{order}", apart[column], n=2) for order, column in ORDERS.items()),
        equals(19, "eliminations", eliminated % patients, n=patients),
    ]


def origin_of_cohort(_: Printed) -> list[Row]:
    """Item 22: where the paper says that its samples come from. Read, not computed."""
    return [equals(22, "origins", len(set(ORIGINS.values())), 1.0, n=len(ORIGINS))]


def rows_of(summary: pd.DataFrame, table: str, cells: Cells) -> pd.DataFrame:
    """Rows of one table of the summary that have a value, with these cells; None asks for an empty one.

    Where no quantity, stratum or variant is named, the rows have none.
    """
    chosen = summary[(summary["table"] == table) & summary["value"].notna()]
    for name, cell in {**dict.fromkeys(set(DETAILS) - {"level"}), **cells}.items():
        chosen = chosen[chosen[name].isna() if cell is None else chosen[name] == cell]
    return chosen


def first_of(
    item: int, name: str, found: pd.DataFrame, pending: str, claim: float | None = None, holds: Holds | None = None
) -> Row:
    """The row with value, interval and cases of the first row found, or what it waits for where there is none."""
    if found.empty:
        return Row(item, name, claim_value=claim, pending=pending)
    first = found.iloc[0]
    low, high = (None if pd.isna(first[end]) else float(first[end]) for end in ("low", "high"))
    n, value = None if pd.isna(first["n"]) else int(first["n"]), float(first["value"])
    return Row(item, name, value, claim, low, high, n, holds(value) if holds else None)


def sign_votes(summary: pd.DataFrame, printed: Printed) -> list[Row]:
    """Item 10: accuracy of the sign votes at full observation, asked both ways, and without zero votes."""
    claimed, rows = printed.cell("tab_m2_random_sign", "kl", M), []
    asked = ("kl", "kl", None), ("kl_reversed", "kl", "reversed"), ("kl_nonzero", "kl_nonzero", None)
    for name, method, variant in asked:
        cells = {"metric": "accuracy", "start": "uniform", "method": method, "variant": variant}
        found = rows_of(summary, "sign_accuracy_random", cells).sort_values("t", ascending=False, kind="stable")
        pending = "the stage of sign convergence under random order"
        rows.append(first_of(10, name, found, pending, claimed, lambda value: value >= claimed - NEAR))
    return rows


def gauge_agreement(summary: pd.DataFrame, printed: Printed) -> list[Row]:
    """Item 14: decisions in the two gauges, as printed and as found."""
    rows, printed_ones = [], []
    for score, track in TRACKS.items():
        shares = printed.column("tab_m1agree", f"Decision agreement / {track}")[CHECKPOINTS]
        printed_ones += shares.tolist()
        cells = {"metric": "rate", "method": score, "reference": "maxent_vs_true"}
        found = rows_of(summary, "gauge_agreement", cells)
        found = found[(found["t"] > 0) & (found["t"] < found["t"].max())]
        for name, first_is_least in (("least", True), ("largest", False)):
            at = found.sort_values("value", ascending=first_is_least, kind="stable")
            claimed = float(shares.min() if first_is_least else shares.max())
            rows.append(first_of(14, f"agreement_{score}_{name}", at, GAUGES, claimed, lambda value: value >= 1))
    return [equals(14, "printed_agreement", min(printed_ones), 1.0, n=len(printed_ones)), *rows]


def early_gain(summary: pd.DataFrame, printed: Printed) -> list[Row]:
    """Item 17: the gain of an informed order at t = 10, over all features and over the entity's support."""
    claimed = printed.cell("tab_classification_with_llm", "Likelihood / wald", "t=10 cmi gain (pp)") / 100
    cells: Cells = {"metric": "gap", "method": "wald", "target": "likelihood", "reference": "random", "t": EARLY}
    cells |= {"allocation": "greedy", "gain": "cmi"}
    gains, of_support = (rows_of(summary, "binary", cells | {"variant": name}) for name in (None, "support"))
    pending = "the stage of the binary task"
    every = first_of(17, "early_gain", gains, pending, claimed)
    half = (every.value or 0.0) / 2
    return [every, first_of(17, "early_gain_support", of_support, pending, claimed, lambda value: value >= half)]


def false_certificates(summary: pd.DataFrame, _: Printed) -> list[Row]:
    """Item 13: certificates of the paper's Layer 0 that full observation contradicts, where it gives any."""
    found = rows_of(summary, "layer0_bundle", {"metric": "rate", **CLUSTERS})
    given = found[found["n"] > 0].sort_values("level").tail(1)
    pending = LAYER_ZERO if found.empty else "a number of clusters at which anything is removed"
    return [first_of(13, "false_certificates", given, pending, 0.0, lambda value: value == 0)]


def chaos_in_advance(summary: pd.DataFrame, printed: Printed) -> list[Row]:
    """Item 15: who is chaotic and who gains, on other orders than those that chose, and from 50 observations alone."""
    chaotic, others = (printed.cell("tab_chaos", f"t={EARLY}", f"{name} (pp)") for name in ("Chaotic", "Non-chaotic"))
    claimed, pending = chaotic / 100 - others / 100, "the stage of chaotic patients"
    gap = {"metric": "gap", "reference": "linearity_minus_wald", "t": EARLY, "stratum": "chaotic_minus_non_chaotic"}
    differs = {"": {}, "_selecting": {"quantity": "selecting"}, "_early": {"variant": "early_50"}}
    rows = []
    for name, cells in differs.items():
        found = rows_of(summary, "chaos_gap", gap | cells)
        rows.append(first_of(15, f"in_advance{name}", found, pending, claimed, lambda value: value >= claimed / 2))
    told = {"stratum": "other_orders", "variant": "early_50", "reference": "plain"}
    found = rows_of(summary, "chaos_gap", {"metric": "rate", "quantity": "found", **told})
    return [*rows, first_of(15, "told_beforehand", found, pending)]


def pooled_correlation(summary: pd.DataFrame, printed: Printed) -> list[Row]:
    """Item 20: the pooled correlation of the two gauges at t = 0, as the gauge stage found it."""
    rows = []
    for score, track in TRACKS.items():
        claimed = printed.cell("tab_m1agree", f"Pearson correlation / {track}", "t=10")
        cells = {"metric": "correlation", "variant": "pooled", "t": 0, "method": score}
        found = rows_of(summary, "gauge_correlation", cells)
        rows.append(first_of(20, f"pooled_{score}", found, GAUGES, claimed, lambda value: abs(value) <= NEAR))
    return rows


def missed_calls(summary: pd.DataFrame, _: Printed) -> list[Row]:
    """Item 12: duels that the `l1` bracket has called with either budget, and how many the printed one leaves open."""
    printed = _called(summary, 12, "called_printed", {"t": CALLS})
    tight = _called(summary, 12, "called_tight", {"t": CALLS, "reference": "l1_tight"})
    missed = Row(12, "missed_calls", claim_value=0.0, pending=printed.pending or tight.pending)
    if printed.value is not None and tight.value is not None and tight.n is not None:
        missed = missed._replace(pending=f"duels that are called at t = {CALLS}")
        if tight.value > 0:
            share = 1 - printed.value / tight.value
            missed = Row(12, "missed_calls", share, 0.0, n=round(tight.value * tight.n), holds=share <= EXACT)
    return [printed, tight, missed]


def two_rules(summary: pd.DataFrame, printed: Printed) -> list[Row]:
    """Item 18: sign accuracy of `greedy`, `clustered` and `lucb` with each gain of tab:m2_alloc, and differences."""
    largest_first = summary.sort_values("value", key=lambda values: -values.abs(), kind="stable")
    rows = []
    for gain in printed.column("tab_m2_alloc", "greedy").index:
        claims = {rule: printed.cell("tab_m2_alloc", rule, gain) for rule in ("greedy", "clustered")}
        for schedule, rule in product(SCHEDULES, ("greedy", "clustered", "lucb")):
            cells = {"allocation": rule, "gain": gain, "schedule": schedule, "t": RULES}
            claim = claims.get(rule) if schedule == "paper" else None
            rows.append(_signs(summary, f"{rule}_{gain}_{schedule}", cells, claim))
        gap = {"metric": "gap", "reference": "clustered", "gain": gain}
        between, alike = claims["greedy"] - claims["clustered"], lambda value: abs(value) <= THREE_DIGITS
        for schedule, rule in product(SCHEDULES, ("greedy", "lucb")):
            cells = gap | {"allocation": rule, "schedule": schedule, "t": RULES}
            of_printed = (between, alike) if rule == "greedy" else ()
            rows.append(_signs(summary, f"{rule}_less_clustered_{gain}_{schedule}", cells, *of_printed))
        cells = gap | {"allocation": "greedy", "schedule": "paper"}
        rows.append(_signs(largest_first, f"largest_difference_{gain}", cells, between, alike))
    return rows


def one_rate(summary: pd.DataFrame, printed: Printed) -> list[Row]:
    """Item 19: our one rate of the `l1` bracket beside the two printed, and the best rule beside the static order."""
    claims = {order: printed.cell("tab_layer1_informed", "M2 wald (L1)", column) for order, column in ORDERS.items()}
    rows = [
        _called(summary, 19, f"called_{order}", {"allocation": order, "t": CALLS}, claim / 100)
        for order, claim in claims.items()
    ]
    static = rows_of(summary, "bracket_rate", CALLED | {"reference": "l1_tight", "t": CALLS})
    grid = rows_of(summary, "bracket_rate", {"reference": "l1_tight", "guide": "linearity", "t": CALLS})
    best = grid.sort_values("value", ascending=False, kind="stable")
    if static.empty or best.empty:
        return [*rows, Row(19, "best_rule", pending=LAYER_ONE if static.empty else GRID)]
    # ties are never called early: over the duels with a winner alone the rule's share would be larger still
    bounded = bool(best["low"].iloc[0] <= static["value"].iloc[0])
    return [*rows, first_of(19, "best_rule", best, "", holds=lambda _: bounded)]


def never_called(summary: pd.DataFrame, printed: Printed) -> list[Row]:
    """Item 19: duels open until full observation, how many of them are ties, and how far the algorithm decides it."""
    share, never = printed.claim("c300") / 100, {"quantity": "never"}
    sizes = {"quantity": "q50", "metric": "nats"}
    tied = {"stratum": "never", "quantity": "tied"}
    return [
        _called(summary, 19, "never", never, share, lambda value: abs(value - share) <= NEAR),
        _called(summary, 19, "never_tight", never | {"reference": "l1_tight"}),
        _called(summary, 19, "never_random", never | {"allocation": "random"}),
        _called(summary, 19, "never_own_order", never | {"allocation": "informed_pair"}),
        _called(summary, 19, "never_tied", tied, 1.0, lambda value: value >= 1 - NEAR),
        _called(summary, 19, "never_size", sizes | {"stratum": "never"}),
        _called(summary, 19, "called_size", sizes | {"stratum": "called"}),
    ]


def eliminations(summary: pd.DataFrame, printed: Printed) -> list[Row]:
    """Item 19: clusters that Layer 0 removes, the same for everybody, beside the eliminations of some patients."""
    claimed, clusters = printed.claim("c265"), int(printed.claim("c264"))
    whole = rows_of(summary, "layer0_bundle", {"metric": "count", **CLUSTERS})
    pending = f"{clusters} clusters in {LAYER_ZERO}" if len(whole) else LAYER_ZERO
    return [first_of(19, "removed_clusters", whole[whole["level"] == clusters], pending, claimed)]


def _called(
    summary: pd.DataFrame, item: int, name: str, differs: Cells, claim: float | None = None, holds: Holds | None = None
) -> Row:
    """Of Layer 1 among duels, of the printed budget in the informed order unless said otherwise."""
    made = summary[(summary["table"] == "bracket_rate") & summary["guide"].isna() & summary["value"].notna()]
    pending = LAYER_ONE if made.empty else "such duels, or a round as late, in " + LAYER_ONE
    return first_of(item, name, rows_of(summary, "bracket_rate", CALLED | differs), pending, claim, holds)


def _signs(
    summary: pd.DataFrame, name: str, differs: Cells, claim: float | None = None, holds: Holds | None = None
) -> Row:
    """Of a rule in the grid, read out by `linearity`, its accuracy unless said otherwise."""
    rules = " and ".join(str(rule) for rule in (differs["allocation"], differs.get("reference")) if rule)
    late = f"{rules} with {differs['gain']}, or a round as late, in {GRID}"
    pending = late if (summary["table"] == "allocation_sign").any() else GRID
    return first_of(18, name, rows_of(summary, "allocation_sign", SIGNS | differs), pending, claim, holds)


def errata_table(
    computed: pd.DataFrame, *, summary: pd.DataFrame | None, paper: Mapping[str, pd.DataFrame], errata: Errata
) -> pd.DataFrame:
    """Every item of docs/errata.md as rows of one table: those of `computed_errata`, of the paper and of `summary`.

    computed : what `computed_errata` gave. summary : rows of the stages that have run, or None. paper : as there.
    errata : their texts.

    Returns one row per check: `item`, its `kind` (erratum, remark or withdrawn), `name`, `label` (LaTeX), `claim`,
    `claim_value`, `check`, `value`, `low` and `high` (interval over patients), `unit` (a metric of the summary), `n`,
    `holds` (missing where the number only illustrates), `pending` (what has to be there first) and `headline`.

    Raises
    ------
    ConfigError : a number of the paper's tables is missing.

    """
    printed = Printed(paper)
    found = pd.DataFrame(columns=COLUMNS) if summary is None else summary
    of_paper = (chaotic_patients, clinical_ceiling, language_models, allocation_rules, one_bracket, origin_of_cohort)
    of_stages = (sign_votes, gauge_agreement, early_gain, chaos_in_advance, false_certificates, pooled_correlation)
    of_rules = (missed_calls, two_rules, one_rate, never_called, eliminations)
    rows = [row for check in of_paper for row in check(printed)]
    rows += [row for check in (*of_stages, *of_rules) for row in check(found, printed)]
    return table_of(pd.concat([computed, frame_of(rows)], ignore_index=True), errata)
