"""The table of errata: beside the computed items 10, 12 to 20 and 22, by the paper's numbers and by rows of stages.

What those stages have not made is left pending.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import replace
from math import ceil
from typing import Any

import numpy as np
import pandas as pd

from afa.checks.errata.rows import EXACT, NEAR, Errata, Printed, Row, measured, rate, table_of
from afa.stats.summary import COLUMNS, DETAILS

Cell = str | float | None
CHECKPOINTS = [f"t={t}" for t in (10, 50, 100, 150)]
TRACKS = {"two_elbo": "F1-track", "stack_a": "F2-track"}
EARLY = 10
CALLS, RULES = 100, 150
"""Rounds of tab:layer1_informed and of tab:m2_alloc."""
THREE_DIGITS = 0.0005
"""Half of the last digit of a share printed with three decimals: shares that differ by no more may be printed alike."""
GAUGES = "the stage that compares the two gauges"
LAYER_ONE, GRID, LAYER_ZERO = "the stage of Layer 1", "the stage of the allocation grid", "the stage of Layer 0"
SCHEDULES = ("paper", "every")
M = "t=216"
COIN = 0.5
METHOD_TABLE = {"ours": "ours", "random": "random", "LUCB": "lucb", "Cluster-LUCB": "clustered"}
"""Rules of tab:method_topk, a table without numbers, and the row that would hold the results of each."""
ORIGINS = {"sec:experiments": "an ongoing clinical trial", "supp:ternary": "a public GEO series"}
"""Where the samples come from, in the two places that say it."""


def chaotic_patients(printed: Printed) -> list[Row]:
    """Item 15: the two groups of tab:chaos against the size of the cohort."""
    cohort = int(printed.claim("c044"))
    chaotic, others = (int(printed.cell("tab_chaos", "n", name)) for name in ("Chaotic", "Non-chaotic"))
    total, quartile = chaotic + others, ceil(cohort / 4)
    return [
        Row(15, "group_total", float(total), float(cohort), n=2, holds=total == cohort),
        Row(15, "top_quartile", float(quartile), float(chaotic), n=1, holds=chaotic <= quartile),
    ]


def clinical_ceiling(printed: Printed) -> list[Row]:
    """Item 16: accuracy at full observation against clinical labels, wherever it is printed."""
    table = printed.cell("tab_classification_with_llm", "Clinical / wald", M)
    wald, stack_a = (printed.cell("tab_m1acc", row, M) for row in ("wald", "stack_a_maxent"))
    apart, above = table - printed.claim("c082"), stack_a - wald
    return [
        # the table has two decimals
        Row(16, "text_and_table", apart, 0.0, n=2, holds=abs(apart) <= 10 * THREE_DIGITS),
        Row(16, "stack_a_and_wald", above, 0.0, n=2, holds=abs(above) <= THREE_DIGITS),
    ]


def language_models(printed: Printed) -> list[Row]:
    """Item 17: the rows of language models before full observation against a coin."""
    rows = [printed.column("tab_classification_with_llm", f"LLM / {name}") for name in ("RAG-LLM", "MRF-LLM")]
    early = np.array([value for row in rows for column, value in row.items() if column != M])
    return [rate(17, "below_coin", early < COIN), measured(17, "least_accuracy", early, np.min)]


def allocation_rules(printed: Printed) -> list[Row]:
    """Item 18: `greedy` and `clustered` in tab:m2_alloc, and the rules of tab:method_topk."""
    greedy, clustered = (printed.column("tab_m2_alloc", rule) for rule in ("greedy", "clustered"))
    difference = float((greedy - clustered).abs().max())
    results, methods = set(printed.rows("tab_m2_alloc")), set(METHOD_TABLE.values())
    return [
        Row(18, "greedy_and_clustered", difference, n=len(greedy), holds=difference > EXACT),
        *(
            Row(18, name, float(len(missing)), 0.0, n=n, holds=not missing)
            for name, missing, n in (
                ("without_result", methods - results, len(methods)),
                ("without_description", results - methods, len(results)),
            )
        ),
    ]


def one_bracket(printed: Printed) -> list[Row]:
    """Item 19: rates of resolved duels of two scores that share a bracket, and eliminations per patient."""
    linearity, wald = (printed.column("tab_layer1_informed", f"M2 {name} (L1)") for name in ("linearity", "wald"))
    apart = (linearity - wald) / 100
    eliminated, patients = int(printed.claim("c265")), int(printed.claim("c266"))
    rest = eliminated % patients
    return [
        *(
            Row(19, f"one_bracket_{order}", float(apart[column]), 0.0, n=2, holds=bool(apart[column] == 0))
            for order, column in (("informed", "Informed (%)"), ("random", "Random (%)"))
        ),
        Row(19, "eliminations", float(rest), 0.0, n=patients, holds=rest == 0),
    ]


def origin_of_cohort() -> list[Row]:
    """Item 22: where the paper says that its samples come from. Read, not computed."""
    origins = len(set(ORIGINS.values()))
    return [Row(22, "origins", float(origins), 1.0, n=len(ORIGINS), holds=origins == 1)]


def rows_of(summary: pd.DataFrame, table: str, **cells: Cell) -> pd.DataFrame:
    """Rows of one table of the summary that have a value, with these cells; None asks for an empty one.

    Where no quantity, stratum or variant is named, the rows have none.
    """
    chosen = summary[(summary["table"] == table) & summary["value"].notna()]
    for name, cell in {**dict.fromkeys(set(DETAILS) - {"level"}), **cells}.items():
        chosen = chosen[chosen[name].isna() if cell is None else chosen[name] == cell]
    return chosen


def read(
    item: int,
    name: str,
    found: pd.DataFrame,
    pending: str,
    *,
    claim: float | None = None,
    holds: Callable[[float], bool] | None = None,
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
    claimed = printed.cell("tab_m2_random_sign", "kl", "t=216")
    cells: dict[str, Cell] = {"metric": "accuracy", "start": "uniform"}
    cells["t"] = rows_of(summary, "sign_accuracy_random", **cells)["t"].max()
    pending = "the stage of sign convergence under random order"
    return [
        read(
            10,
            name,
            rows_of(summary, "sign_accuracy_random", **cells, method=method, variant=variant),
            pending,
            claim=claimed,
            holds=lambda value: value >= claimed - NEAR,
        )
        for name, method, variant in (
            ("kl", "kl", None),
            ("kl_reversed", "kl", "reversed"),
            ("kl_nonzero", "kl_nonzero", None),
        )
    ]


def gauge_agreement(summary: pd.DataFrame, printed: Printed) -> list[Row]:
    """Item 14: decisions in the two gauges, as printed and as found."""
    agreed = {
        score: printed.column("tab_m1agree", f"Decision agreement / {track}")[CHECKPOINTS]
        for score, track in TRACKS.items()
    }
    least = min(float(shares.min()) for shares in agreed.values())
    rows = [Row(14, "printed_agreement", least, 1.0, n=sum(map(len, agreed.values())), holds=least >= 1.0)]
    for score, shares in agreed.items():
        found = rows_of(summary, "gauge_agreement", metric="rate", method=score, reference="maxent_vs_true")
        found = found[(found["t"] > 0) & (found["t"] < found["t"].max())]
        for name, extreme in (("least", "min"), ("largest", "max")):
            at = found[found["value"] == found["value"].agg(extreme)]
            claimed = float(shares.agg(extreme))
            row = read(14, f"agreement_{score}_{name}", at, GAUGES, claim=claimed, holds=lambda value: value >= 1.0)
            rows.append(row)
    return rows


def early_gain(summary: pd.DataFrame, printed: Printed) -> list[Row]:
    """Item 17: the gain of an informed order at t = 10, over all features and over the entity's support."""
    claimed = printed.cell("tab_classification_with_llm", "Likelihood / wald", "t=10 cmi gain (pp)") / 100
    cells = {"metric": "gap", "method": "wald", "target": "likelihood", "allocation": "greedy", "gain": "cmi"}
    gains = rows_of(summary, "binary", **cells, reference="random", t=EARLY, variant=None)
    support = rows_of(summary, "binary", **cells, reference="random", t=EARLY, variant="support")
    pending = "the stage of the binary task"
    every = read(17, "early_gain", gains, pending, claim=claimed)
    half = (every.value or 0.0) / 2
    return [every, read(17, "early_gain_support", support, pending, claim=claimed, holds=lambda value: value >= half)]


def false_certificates(summary: pd.DataFrame) -> list[Row]:
    """Item 13: certificates of the paper's Layer 0 that full observation contradicts, where it gives any."""
    found = rows_of(summary, "layer0_bundle", metric="rate", reference="f1_n_minus_k", variant="clusters")
    given = found[found["n"] > 0].sort_values("level").tail(1)
    pending = LAYER_ZERO if found.empty else "a number of clusters at which anything is removed"
    return [read(13, "false_certificates", given, pending, claim=0.0, holds=lambda value: value == 0)]


def chaos_in_advance(summary: pd.DataFrame, printed: Printed) -> list[Row]:
    """Item 15: who is chaotic and who gains, on other orders than those that chose, and from 50 observations alone."""
    chaotic, others = (printed.cell("tab_chaos", f"t={EARLY}", f"{name} (pp)") for name in ("Chaotic", "Non-chaotic"))
    claimed = chaotic / 100 - others / 100
    cells: dict[str, Cell] = {"metric": "gap", "reference": "linearity_minus_wald", "t": EARLY}
    cells["stratum"] = "chaotic_minus_non_chaotic"
    told = {"quantity": "found", "stratum": "other_orders", "variant": "early_50", "reference": "plain"}
    pending = "the stage of chaotic patients"
    return [
        *(
            read(
                15,
                name,
                rows_of(summary, "chaos_gap", **cells, **differs),
                pending,
                claim=claimed,
                holds=lambda value: value >= claimed / 2,
            )
            for name, differs in (
                ("in_advance", {}),
                ("in_advance_selecting", {"quantity": "selecting"}),
                ("in_advance_early", {"variant": "early_50"}),
            )
        ),
        read(15, "told_beforehand", rows_of(summary, "chaos_gap", metric="rate", **told), pending),
    ]


def pooled_correlation(summary: pd.DataFrame, printed: Printed) -> list[Row]:
    """Item 20: the pooled correlation of the two gauges at t = 0, as the gauge stage found it."""
    cells: dict[str, Cell] = {"metric": "correlation", "variant": "pooled", "t": 0}
    return [
        read(
            20,
            f"pooled_{score}",
            rows_of(summary, "gauge_correlation", method=score, **cells),
            GAUGES,
            claim=printed.cell("tab_m1agree", f"Pearson correlation / {track}", "t=10"),
            holds=lambda value: abs(value) <= NEAR,
        )
        for score, track in TRACKS.items()
    ]


def missed_calls(summary: pd.DataFrame) -> list[Row]:
    """Item 12: duels that the `l1` bracket has called with either budget, and how many the printed one leaves open."""
    pending = _waits_for_calls(summary)
    printed, tight = (
        read(12, name, _calls(summary, bracket, t=CALLS), pending)
        for name, bracket in (("called_printed", "l1_paper"), ("called_tight", "l1_tight"))
    )
    missed = Row(12, "missed_calls", claim_value=0.0, pending=pending)
    if printed.value is not None and tight.value is not None and tight.n is not None:
        missed = replace(missed, pending=f"duels that are called at t = {CALLS}")
        if tight.value > 0:
            share = 1 - printed.value / tight.value
            missed = Row(12, "missed_calls", share, 0.0, n=round(tight.value * tight.n), holds=share <= EXACT)
    return [printed, tight, missed]


def two_rules(summary: pd.DataFrame, printed: Printed) -> list[Row]:
    """Item 18: sign accuracy of `greedy`, `clustered` and `lucb` with each gain of tab:m2_alloc, and differences."""
    return [
        row
        for gain in printed.column("tab_m2_alloc", "greedy").index
        for row in (*_accuracies(summary, printed, gain), *_differences(summary, printed, gain))
    ]


def _accuracies(summary: pd.DataFrame, printed: Printed, gain: str) -> Iterator[Row]:
    for schedule in SCHEDULES:
        for rule in ("greedy", "clustered", "lucb"):
            is_printed = schedule == "paper" and rule != "lucb"
            claimed = printed.cell("tab_m2_alloc", rule, gain) if is_printed else None
            found = _signs(summary, rule, gain, schedule, metric="accuracy", reference=None, t=RULES)
            yield read(18, f"{rule}_{gain}_{schedule}", found, _waits_for_rules(summary, rule, gain), claim=claimed)


def _differences(summary: pd.DataFrame, printed: Printed, gain: str) -> Iterator[Row]:
    greedy, clustered = (printed.cell("tab_m2_alloc", rule, gain) for rule in ("greedy", "clustered"))
    claimed: dict[str, Any] = {"claim": greedy - clustered, "holds": lambda gap: abs(gap) <= THREE_DIGITS}
    for schedule in SCHEDULES:
        for rule, words in (("greedy", claimed), ("lucb", {})):
            found = _signs(summary, rule, gain, schedule, metric="gap", reference="clustered", t=RULES)
            pending = _waits_for_rules(summary, f"{rule} and clustered", gain)
            yield read(18, f"{rule}_less_clustered_{gain}_{schedule}", found, pending, **words)
    gaps = _signs(summary, "greedy", gain, "paper", metric="gap", reference="clustered")
    largest = gaps.sort_values("value", key=lambda gap: -gap.abs(), kind="stable")
    pending = _waits_for_rules(summary, "greedy and clustered", gain)
    yield read(18, f"largest_difference_{gain}", largest, pending, **claimed)


def one_rate(summary: pd.DataFrame, printed: Printed) -> list[Row]:
    """Item 19: our one rate of the `l1` bracket beside the two printed, and the best rule beside the static order."""
    pending = _waits_for_calls(summary)
    rows = []
    for order, column in (("informed", "Informed (%)"), ("random", "Random (%)")):
        claimed = printed.cell("tab_layer1_informed", "M2 wald (L1)", column) / 100
        found = _calls(summary, order=order, t=CALLS)
        rows.append(read(19, f"called_{order}", found, pending, claim=claimed))
    static = _calls(summary, "l1_tight", t=CALLS)
    grid = rows_of(summary, "bracket_rate", reference="l1_tight", guide="linearity", t=CALLS)
    best = grid.sort_values("value", ascending=False, kind="stable").head(1)
    if static.empty or best.empty:
        return [*rows, Row(19, "best_rule", pending=LAYER_ONE if static.empty else GRID)]
    # ties are never called early: over the duels with a winner alone the rule's share would be larger still
    bounded = bool(best["low"].iloc[0] <= static["value"].iloc[0])
    return [*rows, read(19, "best_rule", best, "", holds=lambda _: bounded)]


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
        read(19, name, _calls(summary, **cells), pending, claim=claimed, holds=holds)
        for name, (cells, claimed, holds) in kept.items()
    ]


def eliminations(summary: pd.DataFrame, printed: Printed) -> list[Row]:
    """Item 19: clusters that Layer 0 removes, the same for everybody, beside the eliminations of some patients."""
    claimed, clusters = printed.claim("c265"), int(printed.claim("c264"))
    whole = rows_of(summary, "layer0_bundle", metric="count", reference="f1_n_minus_k", variant="clusters")
    pending = f"{clusters} clusters in {LAYER_ZERO}" if len(whole) else LAYER_ZERO
    return [read(19, "removed_clusters", whole[whole["level"] == clusters], pending, claim=claimed)]


def _calls(
    summary: pd.DataFrame, bracket: str = "l1_paper", order: str = "informed", *, metric: str = "rate", **differs: Cell
) -> pd.DataFrame:
    """Rows of Layer 1 among duels, of the printed budget in the informed order unless said otherwise.

    Those of the allocation rules have a guide.
    """
    cells: dict[str, Cell] = {"metric": metric, "reference": bracket, "allocation": order, "guide": None}
    return rows_of(summary, "bracket_rate", **cells, target="likelihood", **differs)


def _signs(summary: pd.DataFrame, rule: str, gain: str, schedule: str, **cells: Cell) -> pd.DataFrame:
    """Rows of a rule in the grid, read out by `linearity`, at one t or at all."""
    cells |= {"allocation": rule, "gain": gain, "schedule": schedule, "method": "linearity"}
    return rows_of(summary, "allocation_sign", **cells)


def _waits_for_calls(summary: pd.DataFrame) -> str:
    """What has to run before a number of Layer 1 that is missing can be there."""
    made = (summary["table"] == "bracket_rate") & (summary["allocation"] == "informed") & summary["value"].notna()
    return LAYER_ONE if not made.any() else "such duels, or a round as late, in " + LAYER_ONE


def _waits_for_rules(summary: pd.DataFrame, rules: str, gain: str) -> str:
    """The same of the grid."""
    whole = rows_of(summary, "allocation_sign")
    return GRID if whole.empty else f"{rules} with {gain}, or a round as late, in {GRID}"


def errata_table(
    computed: Iterable[Row], *, summary: pd.DataFrame | None, paper: Mapping[str, pd.DataFrame], errata: Errata
) -> pd.DataFrame:
    """Every item of docs/errata.md as rows of one table: those of `computed_errata`, of the paper and of `summary`.

    summary : rows of the stages that have run, or None. paper : as in `computed_errata`. errata : their texts.

    Returns one row per check: `item`, its `kind` (erratum, remark or withdrawn), `name`, `label` (LaTeX), `claim`,
    `claim_value`, `check`, `value`, `low` and `high` (interval over patients), `unit` (a metric of the summary), `n`,
    `holds` (missing where the number only illustrates), `pending` (what has to be there first) and `headline`.

    Raises
    ------
    ConfigError : a number of the paper's tables is missing.

    """
    printed = Printed(paper)
    found = pd.DataFrame(columns=COLUMNS) if summary is None else summary
    rows = [
        *computed,
        *chaotic_patients(printed),
        *clinical_ceiling(printed),
        *language_models(printed),
        *allocation_rules(printed),
        *one_bracket(printed),
        *origin_of_cohort(),
        *sign_votes(found, printed),
        *gauge_agreement(found, printed),
        *early_gain(found, printed),
        *chaos_in_advance(found, printed),
        *false_certificates(found),
        *pooled_correlation(found, printed),
        *missed_calls(found),
        *two_rules(found, printed),
        *one_rate(found, printed),
        *never_called(found, printed),
        *eliminations(found, printed),
    ]
    return table_of(rows, errata)
