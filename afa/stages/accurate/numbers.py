"""The numbers of mean-field against accurate inference: the decisions it changes, by t, and what sampling changes."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

import numpy as np
import pandas as pd

from afa.stages.accurate.check import OPEN
from afa.stages.accurate.tables import settled
from afa.stats.accuracy import Part, Resampled
from afa.stats.summary import summary_rows

TABLES = ("duels", "sets", "tasks", "solves", "checked_duels")
POSTERIOR = {f"{name}_posterior": name for name in ("mean_field", "accurate", "first", "second", "error")}
GAP = "accurate_vs_mean_field"
DUEL, TASK = ["entity_a", "entity_b"], ["entity"]


def summarise_accurate(tables: Mapping[str, pd.DataFrame], *, resamples: int, confidence: float) -> pd.DataFrame:
    """Summary rows `meanfield_vs_exact` of the tables of the stage `accurate`.

    Duels by method, binary tasks by method and coupling. `rate`: of the decisions that accurate inference makes, those
    that mean-field makes otherwise, a tie against a decision being one half. `nats`: mean absolute difference of the
    two scores. `accuracy` against full observation by inference (`reference`), and `gap`, accurate less mean-field. In
    the stratum `top_k` the rate is of patients whose set differs; in the variant `exact_shift` the accurate value at no
    observation is taken off mean-field's log-odds, instead of their own. The rest is in docs/summary.md.
    """
    rows = []
    for coupling, part in tables["tasks"].groupby("coupling", sort=False):
        made = _tasks(part, ByRound.of(part, resamples, confidence))
        rows += [table.assign(coupling=str(coupling)) for table in made]
    for name, of_part in (("duels", _duels), ("sets", _sets), ("checked_duels", _checked)):
        for method, part in tables[name].groupby("method", sort=False):
            made = of_part(part, ByRound.of(part, resamples, confidence))
            rows += [table.assign(method=str(method)) for table in made]
    for quantity, method in (("log_partition", "two_elbo"), ("moments", "linearity")):
        part = tables["solves"][tables["solves"]["quantity"] == quantity]
        part = part.assign(annealed=part["inference"] == "annealed", one=1)
        share = ByRound.of(part, resamples, confidence).mean(part, "annealed", "one")
        rows.append(share.assign(metric="rate", stratum="annealed", method=method))
    whole = pd.concat(rows, ignore_index=True).dropna(subset=["value"])
    return summary_rows("meanfield_vs_exact", whole.assign(allocation="random", start="uniform"))


class ByRound:
    """Shares by round over the patients of a table, with intervals over these patients."""

    def __init__(self, patients: list[str], rounds: list[int], resampled: Resampled) -> None:
        self._patients, self._rounds, self._resampled = patients, rounds, resampled

    @classmethod
    def of(cls, table: pd.DataFrame, resamples: int, confidence: float) -> ByRound:
        """Over the patients and the rounds of `table`."""
        patients = list(table["patient"].unique())
        resampled = Resampled.of(len(patients), resamples=resamples, confidence=confidence, purpose="accurate")
        return cls(patients, sorted(int(t) for t in table["t"].unique()), resampled)

    def mean(self, table: pd.DataFrame, counted: str, total: str) -> pd.DataFrame:
        """Sum of one column over that of another, by t; without a value where there is no case."""
        return self._by_t(self._resampled.mean([self._part(table, counted, total)]))

    def gap(self, table: pd.DataFrame, counted: str, less: str, total: str) -> pd.DataFrame:
        """The difference of two such shares, resampled together."""
        parts = [self._part(table, name, total) for name in (counted, less)]
        return self._by_t(self._resampled.gap(parts[:1], parts[1:]))

    def _part(self, table: pd.DataFrame, counted: str, total: str) -> Part:
        sums = table.groupby(["patient", "t"], sort=False)[[counted, total]].sum()
        right, cases = (sums[name].unstack("t").loc[self._patients, self._rounds] for name in (counted, total))
        return right.to_numpy(dtype=float), cases.to_numpy(dtype=float)

    def _by_t(self, rows: pd.DataFrame) -> pd.DataFrame:
        return rows.assign(t=self._rounds)


def _tasks(table: pd.DataFrame, by_round: ByRound) -> Iterator[pd.DataFrame]:
    posterior = table.drop(columns=list(POSTERIOR.values())).rename(columns=POSTERIOR)
    for method, cases in (("two_elbo", table), ("posterior", posterior)):
        for rows in _decisions(cases, TASK, by_round):
            yield rows.assign(method=method)
    shift = table["accurate"] - table["accurate_posterior"]
    mended = posterior.assign(mean_field=settled((table["mean_field"] - shift).to_numpy(dtype=float)))
    for rows in _decisions(mended, TASK, by_round):
        of_mean_field = "reference" not in rows or (rows["reference"] != "accurate").all()
        if "quantity" not in rows and of_mean_field:
            yield rows.assign(method="posterior", variant="exact_shift")


def _duels(table: pd.DataFrame, by_round: ByRound) -> Iterator[pd.DataFrame]:
    return _decisions(table, DUEL, by_round)


def _decisions(table: pd.DataFrame, keys: list[str], by_round: ByRound) -> Iterator[pd.DataFrame]:
    """The rows of decisions by sign: scores `mean_field`, `accurate` with its `error`, `first` and `second`."""
    signs = {name: np.sign(table[name]) for name in ("mean_field", "accurate", "first", "second")}
    last = table[table["t"] == table["t"].max()].set_index(["patient", *keys])["accurate"]
    target = np.sign(last.loc[pd.MultiIndex.from_frame(table[["patient", *keys]])].to_numpy())
    # an infinite error leaves everything open
    decided = (table["error"] == 0) | (table["accurate"].abs() > OPEN * table["error"])
    apart = (signs["mean_field"] - signs["accurate"]).abs() / 2
    known = target != 0
    sampled = np.isfinite(table["error"]) & (table["error"] > 0)
    table = table[["patient", "t"]].assign(
        one=1,
        decided=decided,
        open=~decided,
        changed=apart.where(decided, 0.0),
        runs=(signs["first"] - signs["second"]).abs() / 2,
        nats=(table["mean_field"] - table["accurate"]).abs(),
        winner=known,
        right_mean_field=np.where(known, (1 + signs["mean_field"] * target) / 2, 0.0),
        right_accurate=np.where(known, (1 + signs["accurate"] * target) / 2, 0.0),
        disputed=decided & known & (apart > 0),
        sampled=sampled,
        error=table["error"].where(sampled, 0.0),
    )
    table["disputed_right"] = table["right_accurate"].where(table["disputed"], 0.0)
    yield by_round.mean(table, "changed", "decided").assign(metric="rate")
    yield by_round.mean(table, "open", "one").assign(metric="rate", quantity="undecided")
    yield by_round.mean(table, "runs", "one").assign(metric="rate", quantity="two_runs")
    yield by_round.mean(table, "disputed_right", "disputed").assign(metric="rate", quantity="accurate_right")
    yield by_round.mean(table, "nats", "one").assign(metric="nats")
    yield by_round.mean(table, "error", "sampled").assign(metric="nats", quantity="error")
    for name in ("mean_field", "accurate"):
        share = by_round.mean(table, f"right_{name}", "winner")
        yield share.assign(metric="accuracy", reference=name, target="likelihood")
    gap = by_round.gap(table, "right_accurate", "right_mean_field", "winner")
    yield gap.assign(metric="gap", reference=GAP, target="likelihood")


def _sets(table: pd.DataFrame, by_round: ByRound) -> Iterator[pd.DataFrame]:
    """The rows of the top k, of patients and of members."""
    table = table.assign(one=1, changed=table["shared"] < table["k"], runs=table["shared_runs"] < table["k"])
    yield by_round.mean(table, "changed", "one").assign(metric="rate", stratum="top_k")
    yield by_round.mean(table, "runs", "one").assign(metric="rate", stratum="top_k", quantity="two_runs")
    for name in ("mean_field", "accurate"):
        share = by_round.mean(table, f"right_{name}", "k")
        yield share.assign(metric="p_at_k", reference=name, target="likelihood")
    gap = by_round.gap(table, "right_accurate", "right_mean_field", "k")
    yield gap.assign(metric="gap", stratum="top_k", reference=GAP, target="likelihood")


def _checked(table: pd.DataFrame, by_round: ByRound) -> Iterator[pd.DataFrame]:
    """The rows of sampling against exact inference."""
    table = table.assign(made=table["duels"] - table["open"])
    of = {"stratum": "annealed_vs_exact"}
    yield by_round.mean(table, "changed", "made").assign(metric="rate", **of)
    yield by_round.mean(table, "open", "duels").assign(metric="rate", quantity="undecided", **of)
    yield by_round.mean(table, "within", "duels").assign(metric="rate", quantity="within", **of)
    yield by_round.mean(table, "apart", "duels").assign(metric="nats", **of)
