"""Items 10, 13, 14, 15, 17 and 20 from the summary rows of other stages; what those have not made is left pending."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from functools import partial

import pandas as pd

from afa.experiments.errata.printed import Printed
from afa.experiments.errata.rows import NEAR, Row

CHECKPOINTS = tuple(f"t={t}" for t in (10, 50, 100, 150))
TRACKS = {"two_elbo": "F1-track", "stack_a": "F2-track"}
EARLY = 10


def rows_of(summary: pd.DataFrame, table: str, **cells: str | float | None) -> pd.DataFrame:
    """Rows of one table of the summary that have a value, with these cells; None asks for an empty one."""
    chosen = summary[(summary["table"] == table) & summary["value"].notna()]
    for name, cell in cells.items():
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
    point = partial(Row, item=10, label="supp:KL_sign_vote, tab:m2_random_sign")
    claimed = printed.cell("tab_m2_random_sign", "kl", "t=216")
    table = rows_of(summary, "sign_accuracy_random", metric="accuracy", start="uniform")
    table = table[table["t"] == table["t"].max()]
    rows = []
    for name, method, stratum, words in (
        ("kl", "kl", None, "kl as written, n = |B|, each duel asked in the bundle's order"),
        ("kl_reversed", "kl", "reversed", "the same asked the other way round"),
        ("kl_nonzero", "kl_nonzero", None, "the vote without its zero votes"),
    ):
        found = rows_of(table, "sign_accuracy_random", method=method, stratum=stratum)
        missing = "the stage of sign convergence under random order" if found.empty else ""
        rows.append(
            point(
                name=name,
                claim="the sign vote, its zero votes counted in n, is right in nearly all duels at full observation",
                claim_value=claimed,
                check=f"sign accuracy at full observation: {words}",
                unit="accuracy",
                pending=missing,
                headline=name == "kl",
            )
        )
        if not found.empty:
            rows[-1] = filled(rows[-1], found, lambda value: value >= claimed - NEAR)
    return rows


def gauge_agreement(summary: pd.DataFrame, printed: Printed) -> list[Row]:
    """Item 14: decisions in the two gauges, as printed and as found."""
    point = partial(Row, item=14, label="supp:sanity, tab:m1agree, sec:experiments")
    claim = "the two gauges agree on the decision throughout"
    agreed = {
        score: printed.column("tab_m1agree", f"Decision agreement / {track}")[list(CHECKPOINTS)]
        for score, track in TRACKS.items()
    }
    least = min(float(shares.min()) for shares in agreed.values())
    rows = [
        point(
            name="printed_agreement",
            claim=claim,
            claim_value=1.0,
            check="least agreement of decisions that tab:m1agree prints before full observation",
            value=least,
            unit="rate",
            n=sum(len(shares) for shares in agreed.values()),
            holds=least >= 1.0,
            headline=True,
        )
    ]
    for score, shares in agreed.items():
        found = rows_of(
            summary, "gauge_agreement", metric="rate", method=score, reference="maxent_vs_true", stratum=None
        )
        found = found[(found["t"] > 0) & (found["t"] < found["t"].max())]
        for name, place, claimed in (("least", "idxmin", shares.min()), ("largest", "idxmax", shares.max())):
            at = None if found.empty else found.loc[[getattr(found["value"], place)()]]
            words = "" if at is None else f", at t = {int(at['t'].iloc[0])}"
            rows.append(
                point(
                    name=f"agreement_{score}_{name}",
                    claim=f"{claim}, though the table says otherwise",
                    claim_value=float(claimed),
                    check=f"{score}, {name} agreement of decisions over t from 1 to M - 1{words}",
                    unit="rate",
                    pending="the stage that compares the two gauges" if at is None else "",
                )
            )
            if at is not None:
                rows[-1] = filled(rows[-1], at, lambda value: value >= 1.0)
    return rows


def early_gain(summary: pd.DataFrame, printed: Printed) -> list[Row]:
    """Item 17: the gain of an informed order at t = 10, over all features and over the entity's support."""
    point = partial(Row, item=17, label="tab:classification_with_llm", unit="gap")
    claimed = printed.cell("tab_classification_with_llm", "Likelihood / wald", "t=10 cmi gain (pp)") / 100
    cells = {"metric": "gap", "method": "wald", "target": "likelihood", "allocation": "greedy", "gain": "cmi"}
    found = {
        stratum: rows_of(summary, "binary", **cells, reference="random", t=EARLY, stratum=stratum)
        for stratum in (None, "support")
    }
    missing = {stratum: "the stage of the binary task" if rows.empty else "" for stratum, rows in found.items()}
    rows = [
        point(
            name="early_gain",
            claim="at t = 10 an informed order gains some 30 points over a random one",
            claim_value=claimed,
            check="wald, likelihood target, CMI order less random order, t counted over all features",
            pending=missing[None],
        ),
        point(
            name="early_gain_support",
            claim="that gain is what acquisition is worth",
            claim_value=claimed,
            check="the same with t counted over the entity's support, so that both orders observe as much of it",
            pending=missing["support"],
        ),
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
        label="supp:layer0_lipschitz",
        name="false_certificates",
        claim="the certificates of Layer 0 are provable",
        claim_value=0.0,
        check="share of (certificate, patient) in which the removed entity is in the top-k at full observation",
        unit="rate",
        pending="the stage of Layer 0",
    )
    found = rows_of(summary, "layer0_bundle", metric="rate", reference="f1_n_minus_k")
    if found.empty:
        return [row]
    clusters = found["stratum"].str.extract(r"^clusters=(\d+)$", expand=False).astype(float)
    given = found.assign(clusters=clusters)[clusters.notna() & (found["n"] > 0)]
    if given.empty:
        return [replace(row, pending="a number of clusters at which anything is removed")]
    last = given.sort_values("clusters").tail(1)
    check = f"{row.check}; {last['clusters'].iloc[0]:.0f} clusters, by N - k"
    return [filled(replace(row, pending="", check=check), last, lambda value: value == 0)]


def chaos_in_advance(summary: pd.DataFrame, printed: Printed) -> list[Row]:
    """Item 15: who is chaotic and who gains, on other orders than those that chose, and from 50 observations alone."""
    point = partial(Row, item=15, label="supp:chaos, tab:chaos")
    pending = "the stage of chaotic patients"
    claimed = {
        group: printed.cell("tab_chaos", f"t={EARLY}", f"{group} (pp)") / 100 for group in ("Chaotic", "Non-chaotic")
    }
    claim = "the diagnostic tells in advance who gains from inference"
    difference = claimed["Chaotic"] - claimed["Non-chaotic"]
    cells: dict[str, str | float | None] = {"metric": "gap", "reference": "linearity_minus_wald", "t": EARLY}
    rows = []
    for name, words, stratum in (
        ("in_advance", "groups formed on whole trajectories of other orders", "chaotic_minus_non_chaotic"),
        ("in_advance_selecting", "the same on the orders that formed them", "chaotic_minus_non_chaotic selecting"),
        ("in_advance_early", "groups formed on 50 observations alone", "chaotic_minus_non_chaotic early_50"),
    ):
        check = f"gap of linearity over wald at t = {EARLY}, chaotic less other patients: {words}"
        row = point(name=name, claim=claim, claim_value=difference, check=check, unit="gap", pending=pending)
        found = rows_of(summary, "chaos_gap", **cells, stratum=stratum)
        rows.append(row if found.empty else filled(replace(row, pending=""), found, lambda v: v >= difference / 2))
    check = "share of the patients who are chaotic on other orders that 50 observations tell beforehand"
    row = point(name="told_beforehand", claim=claim, check=check, unit="rate", pending=pending)
    found = rows_of(summary, "chaos_gap", metric="rate", stratum="stability early_50 other_orders found")
    rows.append(row if found.empty else filled(replace(row, pending=""), found, None))
    return rows


def pooled_correlation(summary: pd.DataFrame, printed: Printed) -> list[Row]:
    """Item 20: the pooled correlation of the two gauges at t = 0, as the gauge stage found it."""
    point = partial(Row, item=20, label="tab:m1agree")
    rows = []
    for score, track in TRACKS.items():
        claimed = printed.cell("tab_m1agree", f"Pearson correlation / {track}", "t=10")
        found = rows_of(summary, "gauge_correlation", metric="correlation", method=score, stratum="pooled", t=0)
        missing = len(found) != 1
        rows.append(
            point(
                name=f"pooled_{score}",
                claim="the correlation of the two gauges, pooled over pairs, says how alike they answer patients",
                claim_value=claimed,
                check=f"{score}, pooled correlation at t = 0, where nothing is known of any patient",
                unit="correlation",
                pending="the stage that compares the two gauges" if missing else "",
            )
        )
        if not missing:
            rows[-1] = filled(rows[-1], found, lambda value: abs(value) <= NEAR)
    return rows
