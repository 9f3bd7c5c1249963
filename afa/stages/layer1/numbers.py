"""The numbers of Layer 1 among duels: what each bracket calls, what of it is wrong, and what it leaves open."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass

import numpy as np
import pandas as pd

from afa.engine.duels import BRACKETS, RIGOROUS
from afa.mrf import Floats
from afa.stages.layer1.tables import ALLOCATIONS
from afa.stats.accuracy import Part, Resampled
from afa.stats.summary import summary_rows

METHOD = {"l1_tight": "wald", "l1_paper": "wald", "hanson_wright": "stack_a", "kl": "kl", "kl_written": "kl"}
QUANTILES = (0.1, 0.5, 0.9)


def summarise_layer1(tables: Mapping[str, pd.DataFrame], *, resamples: int, confidence: float) -> pd.DataFrame:
    """Summary rows `bracket_rate` of the tables of `layer1`, all patients together; `reference` is the bracket.

    `rate` by t: share of the duels with a winner that are called; `wrong`, share of these calls that full observation
    contradicts; stratum `tied`, share of the tied duels that are called; variant `support`, where t counts features of
    a duel's own two supports. `gap`: the headline and `support` less those of the random order.

    `rate` without t: of all duels those `never` called before full observation or, variant `support`, before the last
    feature of the two supports; in the stratum `never` the share of the `tied`; and once `structural_ties`, share of
    all duels with D(x) = 0. `nats`: quantiles of abs(D(x)) in the strata `never`, of duels never called before full
    observation, and `called`, of the others. `count`: `wrong` and tied calls of the rigorous brackets, over all t.
    """
    pairs = tables["pairs"].set_index("patient")
    sample = Resampled.of(len(pairs), resamples=resamples, confidence=confidence, purpose="layer1")
    rounds, steps = Counts.of(tables["calls"], pairs, "t"), Counts.of(tables["steps"], pairs, "step")
    rows: list[pd.DataFrame] = []
    for allocation in ALLOCATIONS:
        for bracket in BRACKETS:
            found = [
                *_rates(rounds, steps, allocation, bracket, sample),
                *_left_open(tables["left_open"], list(pairs.index), allocation, bracket, sample),
            ]
            rows += [table.assign(method=METHOD[bracket], reference=bracket, allocation=allocation) for table in found]
    tied, every = pairs["tied"].to_numpy(float)[:, None], pairs.sum(axis=1, numeric_only=True).to_numpy(float)[:, None]
    rows.append(sample.mean([(tied, every)]).assign(metric="rate", quantity="structural_ties"))
    whole = pd.concat(rows, ignore_index=True).assign(schedule="every", start="uniform", target="likelihood")
    return summary_rows("bracket_rate", whole)


@dataclass(frozen=True)
class Counts:
    """Counts by patient and time, (P, T), per (allocation, bracket), summed over the orders of each patient.

    duels, tied : (P, 1) with and without a winner. runs : how many orders each allocation has.
    """

    columns: Mapping[tuple[str, str], Mapping[str, Floats]]
    runs: Mapping[str, int]
    duels: Floats
    tied: Floats

    @classmethod
    def of(cls, table: pd.DataFrame, pairs: pd.DataFrame, time: str) -> Counts:
        names = [name for name in ("called", "wrong", "tied") if name in table]
        columns = {}
        for (allocation, bracket), part in table.groupby(["allocation", "bracket"], sort=False):
            sums = part.groupby(["patient", time], sort=False)[names].sum()
            wide = {name: sums[name].unstack(time).loc[pairs.index].to_numpy(float) for name in names}
            columns[str(allocation), str(bracket)] = wide
        runs = table.groupby("allocation")["seed"].nunique(dropna=False).to_dict()
        duels, tied = (pairs[[name]].to_numpy(float) for name in ("duels", "tied"))
        return cls(columns, {str(name): int(number) for name, number in runs.items()}, duels, tied)

    def part(self, allocation: str, bracket: str, name: str = "called") -> Part:
        """`called` of the duels with a winner, `tied` of those without, `wrong` of the called."""
        counts = self.columns[allocation, bracket]
        if name == "wrong":
            return counts["wrong"], counts["called"]
        total = self.runs[allocation] * (self.tied if name == "tied" else self.duels)
        return counts[name], np.repeat(total, counts[name].shape[1], axis=1)


def _rates(rounds: Counts, steps: Counts, allocation: str, bracket: str, sample: Resampled) -> Iterator[pd.DataFrame]:
    """Rates by t, what they are above those of the random order, and the faults of a rigorous bracket."""
    for counts, variant in ((rounds, None), (steps, "support")):
        part = counts.part(allocation, bracket)
        yield _by_t(sample.mean([part])).assign(metric="rate", variant=variant)
        if allocation != "random":
            gap = sample.gap([part], [counts.part("random", bracket)])
            yield _by_t(gap).assign(metric="gap", variant=variant)
    yield _by_t(sample.mean([rounds.part(allocation, bracket, "wrong")])).assign(metric="rate", quantity="wrong")
    yield _by_t(sample.mean([rounds.part(allocation, bracket, "tied")])).assign(metric="rate", stratum="tied")
    if bracket in RIGOROUS:
        wrong, called = rounds.part(allocation, bracket, "wrong")
        tied, _ = rounds.part(allocation, bracket, "tied")
        faults, made = wrong.sum() + tied.sum(), called.sum() + tied.sum()
        yield pd.DataFrame([{"metric": "count", "quantity": "wrong", "value": faults, "n": int(made)}])


def _by_t(table: pd.DataFrame) -> pd.DataFrame:
    return table.assign(t=np.arange(len(table)))


def _left_open(
    table: pd.DataFrame, patients: list[str], allocation: str, bracket: str, sample: Resampled
) -> Iterator[pd.DataFrame]:
    """Shares of the duels that are called late or at the end only, and how large abs(D(x)) is among them."""
    chosen = table[(table["allocation"] == allocation) & (table["bracket"] == bracket)]
    every, never, never_support = (
        chosen.pivot_table(index="patient", columns="magnitude", values=name, aggfunc="sum", fill_value=0, sort=True)
        .loc[patients]
        .astype(float)
        for name in ("duels", "never", "never_support")
    )
    magnitudes = every.columns.to_numpy(dtype=float)
    tied = never.loc[:, magnitudes == 0]
    for label, some, of in (
        ({"quantity": "never"}, never, every),
        ({"quantity": "never", "variant": "support"}, never_support, every),
        ({"stratum": "never", "quantity": "tied"}, tied, never),
    ):
        part = some.sum(axis=1).to_numpy()[:, None], of.sum(axis=1).to_numpy()[:, None]
        yield sample.mean([part]).assign(metric="rate", **label)
    for stratum, cases in (("never", never), ("called", every - never)):
        counts = cases.to_numpy()
        for share in QUANTILES if counts.any() else ():

            def quantile_of(weights: Floats, counts: Floats = counts, share: float = share) -> Floats:
                return quantile(weights @ counts, magnitudes, share)

            row = sample.statistic(quantile_of, int(counts.sum()))
            yield row.assign(metric="nats", stratum=stratum, quantity=f"q{round(100 * share)}")


def quantile(counts: Floats, levels: Floats, share: float) -> Floats:
    """(R,) the least level, of ascending levels (K,), up to which a share of counts (R, K) lies; NaN without counts.

    >>> quantile(np.array([[1.0, 1.0, 2.0], [0.0, 0.0, 3.0]]), np.array([0.0, 4.0, 8.0]), 0.5).tolist()
    [4.0, 8.0]
    """
    up_to = np.cumsum(counts, axis=1)
    place = (up_to < share * up_to[:, -1:]).sum(axis=1)
    found: Floats = np.where(up_to[:, -1] > 0, levels[np.minimum(place, len(levels) - 1)], np.nan)
    return found
