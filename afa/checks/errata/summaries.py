"""Items 10, 13, 14, 15, 17 and 20 from the summary rows of other stages; what those have not made is left pending."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from functools import partial

import pandas as pd

from afa.checks.errata.printed import Printed
from afa.checks.errata.rows import NEAR, Row
from afa.stats.summary import DETAILS

CHECKPOINTS = tuple(f"t={t}" for t in (10, 50, 100, 150))
TRACKS = {"two_elbo": "F1-track", "stack_a": "F2-track"}
EARLY = 10


def rows_of(summary: pd.DataFrame, table: str, **cells: str | float | None) -> pd.DataFrame:
    """Rows of one table of the summary that have a value, with these cells; None asks for an empty one.

    Where no quantity, stratum or variant is named, the rows have none.
    """
    chosen = summary[(summary["table"] == table) & summary["value"].notna()]
    for name, cell in {**dict.fromkeys(set(DETAILS) - {"level"}), **cells}.items():
        chosen = chosen[chosen[name].isna() if cell is None else chosen[name] == cell]
    return chosen


def filled(row: Row, found: pd.DataFrame, holds: Callable[[float], bool] | None) -> Row:
    """The row with value, interval and cases of the first row found, and whether the claim holds by its value."""
    first = found.iloc[0]
    value, low, high = (None if pd.isna(first[name]) else float(first[name]) for name in ("value", "low", "high"))
    n = None if pd.isna(first["n"]) else int(first["n"])
    verdict = None if value is None or holds is None else holds(value)
    return replace(row, value=value, low=low, high=high, n=n, holds=verdict)


def sign_votes(summary: pd.DataFrame, printed: Printed) -> list[Row]:
    """Item 10: accuracy of the sign votes at full observation, asked both ways, and without zero votes."""
    point = partial(Row, item=10)
    claimed = printed.cell("tab_m2_random_sign", "kl", "t=216")
    cells: dict[str, str | float | None] = {"metric": "accuracy", "start": "uniform"}
    cells["t"] = rows_of(summary, "sign_accuracy_random", **cells)["t"].max()
    rows = []
    for name, method, variant in (
        ("kl", "kl", None),
        ("kl_reversed", "kl", "reversed"),
        ("kl_nonzero", "kl_nonzero", None),
    ):
        found = rows_of(summary, "sign_accuracy_random", **cells, method=method, variant=variant)
        missing = "the stage of sign convergence under random order" if found.empty else ""
        rows.append(point(name=name, claim_value=claimed, pending=missing))
        if not found.empty:
            rows[-1] = filled(rows[-1], found, lambda value: value >= claimed - NEAR)
    return rows


def gauge_agreement(summary: pd.DataFrame, printed: Printed) -> list[Row]:
    """Item 14: decisions in the two gauges, as printed and as found."""
    point = partial(Row, item=14)
    agreed = {
        score: printed.column("tab_m1agree", f"Decision agreement / {track}")[list(CHECKPOINTS)]
        for score, track in TRACKS.items()
    }
    least = min(float(shares.min()) for shares in agreed.values())
    rows = [
        point(
            name="printed_agreement",
            claim_value=1.0,
            value=least,
            n=sum(len(shares) for shares in agreed.values()),
            holds=least >= 1.0,
        )
    ]
    for score, shares in agreed.items():
        found = rows_of(summary, "gauge_agreement", metric="rate", method=score, reference="maxent_vs_true")
        found = found[(found["t"] > 0) & (found["t"] < found["t"].max())]
        for name, place, claimed in (("least", "idxmin", shares.min()), ("largest", "idxmax", shares.max())):
            at = None if found.empty else found.loc[[getattr(found["value"], place)()]]
            rows.append(
                point(
                    name=f"agreement_{score}_{name}",
                    claim_value=float(claimed),
                    pending="the stage that compares the two gauges" if at is None else "",
                )
            )
            if at is not None:
                rows[-1] = filled(rows[-1], at, lambda value: value >= 1.0)
    return rows


def early_gain(summary: pd.DataFrame, printed: Printed) -> list[Row]:
    """Item 17: the gain of an informed order at t = 10, over all features and over the entity's support."""
    point = partial(Row, item=17)
    claimed = printed.cell("tab_classification_with_llm", "Likelihood / wald", "t=10 cmi gain (pp)") / 100
    cells = {"metric": "gap", "method": "wald", "target": "likelihood", "allocation": "greedy", "gain": "cmi"}
    found = {
        variant: rows_of(summary, "binary", **cells, reference="random", t=EARLY, variant=variant)
        for variant in (None, "support")
    }
    missing = {variant: "the stage of the binary task" if rows.empty else "" for variant, rows in found.items()}
    rows = [
        point(name="early_gain", claim_value=claimed, pending=missing[None]),
        point(name="early_gain_support", claim_value=claimed, pending=missing["support"]),
    ]
    if not any(missing.values()):
        whole = float(found[None]["value"].iloc[0])
        rows[0] = filled(rows[0], found[None], None)
        rows[1] = filled(rows[1], found["support"], lambda value: value >= whole / 2)
    return rows


def false_certificates(summary: pd.DataFrame) -> list[Row]:
    """Item 13: certificates of the paper's Layer 0 that full observation contradicts, where it gives any."""
    row = Row(
        item=13,
        name="false_certificates",
        claim_value=0.0,
        pending="the stage of Layer 0",
    )
    found = rows_of(summary, "layer0_bundle", metric="rate", reference="f1_n_minus_k", variant="clusters")
    if found.empty:
        return [row]
    given = found[found["n"] > 0]
    if given.empty:
        return [replace(row, pending="a number of clusters at which anything is removed")]
    last = given.sort_values("level").tail(1)
    return [filled(replace(row, pending=""), last, lambda value: value == 0)]


def chaos_in_advance(summary: pd.DataFrame, printed: Printed) -> list[Row]:
    """Item 15: who is chaotic and who gains, on other orders than those that chose, and from 50 observations alone."""
    point = partial(Row, item=15)
    pending = "the stage of chaotic patients"
    claimed = {
        group: printed.cell("tab_chaos", f"t={EARLY}", f"{group} (pp)") / 100 for group in ("Chaotic", "Non-chaotic")
    }
    difference = claimed["Chaotic"] - claimed["Non-chaotic"]
    cells: dict[str, str | float | None] = {"metric": "gap", "reference": "linearity_minus_wald", "t": EARLY}
    rows = []
    for name, differs in (
        ("in_advance", {}),
        ("in_advance_selecting", {"quantity": "selecting"}),
        ("in_advance_early", {"variant": "early_50"}),
    ):
        row = point(name=name, claim_value=difference, pending=pending)
        found = rows_of(summary, "chaos_gap", **cells, stratum="chaotic_minus_non_chaotic", **differs)
        rows.append(row if found.empty else filled(replace(row, pending=""), found, lambda v: v >= difference / 2))
    row = point(name="told_beforehand", pending=pending)
    told = {"quantity": "found", "stratum": "other_orders", "variant": "early_50", "reference": "plain"}
    found = rows_of(summary, "chaos_gap", metric="rate", **told)
    rows.append(row if found.empty else filled(replace(row, pending=""), found, None))
    return rows


def pooled_correlation(summary: pd.DataFrame, printed: Printed) -> list[Row]:
    """Item 20: the pooled correlation of the two gauges at t = 0, as the gauge stage found it."""
    point = partial(Row, item=20)
    rows = []
    for score, track in TRACKS.items():
        claimed = printed.cell("tab_m1agree", f"Pearson correlation / {track}", "t=10")
        found = rows_of(summary, "gauge_correlation", metric="correlation", method=score, variant="pooled", t=0)
        missing = len(found) != 1
        rows.append(
            point(
                name=f"pooled_{score}",
                claim_value=claimed,
                pending="the stage that compares the two gauges" if missing else "",
            )
        )
        if not missing:
            rows[-1] = filled(rows[-1], found, lambda value: abs(value) <= NEAR)
    return rows
