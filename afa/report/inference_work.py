"""What mean-field took and how far it is from exact inference, from the tables of a run, one line per thing drawn."""

from __future__ import annotations

import pandas as pd

WORK = ["solves", "iterations", "capped"]
HALVES = {"class_1": "closure, class 1", "class_0": "closure, class 0"}
ERROR_KEYS = ["patient", "entity", "seed", "t"]
BOUNDS = {"below_1": 1.0, "below_3_2": 1.5}


def named_solves(rounds: pd.DataFrame, convergence: pd.DataFrame) -> pd.DataFrame:
    """The lines of both tables under one name of what is solved, in the column `solve`.

    rounds : `sign/rounds` of one method, with `start`. convergence : `sanity/convergence`, of which the two classes of
    the closure are read; its entities are those of `rounds` again.
    """
    entities = rounds.assign(solve="entity, " + rounds["start"].astype(str) + " start")
    closures = convergence[convergence["model"].isin(list(HALVES))]
    parts = [entities, closures.assign(solve=closures["model"].map(HALVES))]
    return pd.concat([part for part in parts if len(part)] or [entities], ignore_index=True)


def work_by_round(solves: pd.DataFrame) -> pd.DataFrame:
    """By `solve` and t: `WORK`, `sweeps` per solve, and `capped_share`, of the solves those that met the cap."""
    return _with_shares(solves.groupby(["solve", "t"])[WORK].sum())


def total_work(solves: pd.DataFrame) -> pd.DataFrame:
    """By `solve`: the same over all t; with `finished`, the capped that ascent finished, and `ascended`, its sweeps.

    A count that no table records is missing.
    """
    by_solve = solves.groupby("solve", sort=False)
    total = _with_shares(by_solve[WORK].sum())
    for name in ("finished", "ascended"):
        recorded = solves[name] if name in solves else pd.Series(dtype=float)
        total[name] = recorded.groupby(solves["solve"]).sum(min_count=1).reindex(total.index).astype("Int64")
    return total


def _with_shares(work: pd.DataFrame) -> pd.DataFrame:
    sweeps, capped = (work[name].astype(float) / work["solves"].astype(float) for name in ("iterations", "capped"))
    return work.assign(sweeps=sweeps, capped_share=capped)


def contraction_by_entity(contraction: pd.DataFrame) -> pd.DataFrame:
    """By entity, smallest first: beta L^2 of its model, `alone`, of its `closure`; `min`, `median`, `max` of duels."""
    duels = contraction[contraction["model"] == "duel"]
    sides = [duels[[side, "contraction"]].set_axis(["name", "contraction"], axis=1) for side in ("entity", "opponent")]
    of_duels = pd.concat(sides).astype({"contraction": float}).groupby("name")["contraction"]
    single = {
        name: contraction[contraction["model"] == model].set_index("entity")["contraction"].astype(float)
        for name, model in (("alone", "entity"), ("closure", "closure"))
    }
    table = pd.DataFrame(single).join(of_duels.agg(["min", "median", "max"])).dropna(subset=["alone"])
    return table.sort_values("alone", kind="stable")


def below_the_bounds(contraction: pd.DataFrame) -> pd.DataFrame:
    """By kind of model: count and quantiles of beta L^2, and the share of models below each bound, 1 and 3/2."""
    spread = contraction.groupby("model", sort=False)["contraction"].describe()[["count", "min", "50%", "max"]]
    for name, bound in BOUNDS.items():
        spread[name] = (contraction["contraction"] < bound).groupby(contraction["model"]).mean()
    return spread


def log_odds_error(odds: pd.DataFrame) -> pd.Series:
    """Mean-field less exact log-odds in nats, by `ERROR_KEYS`, for the states that have both."""
    both = odds.pivot(index=ERROR_KEYS, columns="inference", values="raw").reindex(columns=["mean_field", "exact"])
    both = both.dropna()
    return (both["mean_field"] - both["exact"]).rename("error")
