"""The numbers of the closure against the true gauge: agreement, correlation within pairs, accuracy of each gauge."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from functools import partial
from itertools import product
from typing import Any

import numpy as np
import pandas as pd

from afa.mrf import Floats
from afa.stats.accuracy import Part, Resampled, Signs, constant_answers
from afa.stats.resampling import Moments, interval, percentiles

BOTH = "maxent_vs_true"
OverPairs = Callable[[Floats], Any]
CUTS: dict[str | None, OverPairs] = {
    None: partial(np.nanmean, axis=1),
    "pair_q25": lambda values: percentiles(values.T, [25])[0],
    "pair_q50": lambda values: percentiles(values.T, [50])[0],
    "pair_q75": lambda values: percentiles(values.T, [75])[0],
}
EXTREMES: dict[str, OverPairs] = {"pair_min": partial(np.nanmin, axis=1), "pair_max": partial(np.nanmax, axis=1)}


def agreement(agreed: pd.DataFrame, patients: Sequence[str], resampled: Resampled) -> pd.DataFrame:
    tables = []
    for method, table in agreed.groupby("method", sort=False):
        share = resampled.mean([_part(_sums(table), patients, "agree", "duels")])
        tables.append(_by_t(share).assign(metric="rate", method=method, reference=BOTH))
    return pd.concat(tables, ignore_index=True)


def _sums(table: pd.DataFrame) -> pd.DataFrame:
    """Sums over seeds and all else, by (patient, t)."""
    return table.groupby(["patient", "t"], sort=False).sum(numeric_only=True)


def _part(sums: pd.DataFrame, patients: Sequence[str], counted: str, total: str) -> Part:
    """(P, M + 1) of a count and of what it is a share of."""
    numerator, denominator = (sums[name].unstack("t").loc[list(patients)].to_numpy(float) for name in (counted, total))
    return numerator, denominator


def _by_t(table: pd.DataFrame) -> pd.DataFrame:
    return table.assign(t=np.arange(len(table)))


def correlations(scalars: pd.DataFrame, patients: Sequence[str], resampled: Resampled) -> Iterator[pd.DataFrame]:
    rounds = sorted(scalars["t"].unique())
    methods = [name.removesuffix("_true") for name in scalars.columns if name.endswith("_true")]
    for t, method in product(rounds, methods):
        table = scalars[scalars["t"] == t]
        x, y = (_cube(table, f"{method}_{gauge}", patients) for gauge in ("true", "maxent"))
        label = {"metric": "correlation", "method": method, "reference": BOTH}
        yield _within_pairs(Moments.of(x, y), resampled).assign(t=int(t), **label)
        flat = (len(patients), -1, 1)
        pooled = resampled.statistic(Moments.of(x.reshape(flat), y.reshape(flat)).only, x.size)
        yield pooled.assign(t=int(t), variant="pooled", **label)


def _cube(table: pd.DataFrame, column: str, patients: Sequence[str]) -> Floats:
    """(P, seeds, Q) of one column at one round."""
    wide = table.pivot(index=["patient", "seed"], columns=["entity_a", "entity_b"], values=column)
    cube: Floats = wide.loc[list(patients)].to_numpy(float).reshape(len(patients), -1, wide.shape[1])
    return cube


def _within_pairs(moments: Moments, resampled: Resampled) -> pd.DataFrame:
    """The mean over pairs of the correlation within a pair, and how pairs are spread about it."""
    plain = moments.correlation(np.ones((1, len(moments.n))))
    defined = ~np.isnan(plain[0])
    plain, drawn = plain[:, defined], moments.correlation(resampled.weights)[:, defined]
    rows: list[dict[str, float | str | None]] = []
    for quantity, of in CUTS.items():
        low, high = interval(_over_pairs(of, drawn)[:, None], confidence=resampled.confidence)
        rows.append({"quantity": quantity, "value": _over_pairs(of, plain)[0], "low": low[0], "high": high[0]})
    for quantity, extreme in EXTREMES.items():
        rows.append({"quantity": quantity, "value": _over_pairs(extreme, plain)[0]})
    return pd.DataFrame(rows).assign(n=int(defined.sum()))


def _over_pairs(of: OverPairs, values: Floats) -> Floats:
    """(R,) a statistic of each row of (R, Q) over the pairs known in it; NaN where none is."""
    result, known = np.full(len(values), np.nan), ~np.isnan(values).all(axis=1)
    if known.any():
        result[known] = of(values[known])
    return result


def accuracies(rounds: pd.DataFrame, patients: Sequence[str], resampled: Resampled) -> Iterator[pd.DataFrame]:
    for target, of_target in rounds.groupby("target", sort=False):
        every: dict[tuple[str, str], Part] = {}
        for (method, reference), table in of_target.groupby(["method", "reference"], sort=False):
            sums = _sums(table)
            kinds = ("", "_first", "_prior_wrong")
            whole, first, wrong = (_part(sums, patients, f"right{kind}", f"duels{kind}") for kind in kinds)
            every[str(method), str(reference)] = whole
            label = {"method": str(method), "reference": str(reference) or None, "target": str(target)}
            sides = [first, (whole[0] - first[0], whole[1] - first[1])]
            yield _by_t(resampled.mean([whole])).assign(metric="accuracy", **label)
            yield _by_t(resampled.mean(sides)).assign(metric="balanced_accuracy", **label)
            if wrong[1].any():
                yield _by_t(resampled.mean([wrong])).assign(metric="accuracy", stratum="prior_wrong", **label)
        for method in [name for name, reference in every if reference == "true"]:
            gap = _by_t(resampled.gap([every[method, "maxent"]], [every[method, "true"]]))
            yield gap.assign(metric="gap", method=method, reference=BOTH, target=str(target))


def beside(targets: pd.DataFrame, patients: Sequence[str], resampled: Resampled) -> Iterator[pd.DataFrame]:
    """Constant answers and what is left out, by target."""
    by_pair = {
        column: targets.pivot(index="patient", columns=["entity_a", "entity_b"], values=column).loc[list(patients)]
        for column in ("likelihood", "clinical", "conclusive")
    }
    labels = by_pair["clinical"].astype("Float64").to_numpy(dtype=float, na_value=np.nan)
    conclusive = by_pair["conclusive"].to_numpy(bool)[0]
    unlabelled = np.isnan(labels).all(axis=0)
    winners: dict[str, Signs] = {
        "likelihood": by_pair["likelihood"].to_numpy(np.int8),
        "clinical": np.where(conclusive, np.nan_to_num(labels), 0).astype(np.int8),
    }
    counts = {
        ("likelihood", "tied_at_full_observation"): ((winners["likelihood"] == 0).sum(), labels.size),
        ("clinical", "pairs_conclusive"): (conclusive.sum(), len(conclusive)),
        ("clinical", "pairs_inconclusive"): ((~conclusive & ~unlabelled).sum(), len(conclusive)),
        ("clinical", "pairs_without_labels"): (unlabelled.sum(), len(conclusive)),
        ("clinical", "tuples"): ((winners["clinical"] != 0).sum(), labels.size),
        ("clinical", "tuples_inconclusive"): ((np.abs(labels[:, ~conclusive]) == 1).sum(), labels.size),
    }
    for (target, quantity), (count, n) in counts.items():
        row = {"metric": "count", "target": target, "quantity": quantity, "value": float(count), "n": int(n)}
        yield pd.DataFrame([row])
    for target, winner in winners.items():
        if winner.any():
            for metric, answer in zip(("majority", "prevalence"), constant_answers(winner), strict=True):
                share = resampled.mean([_right(answer, winner)])
                yield share.assign(metric=metric, target=target)


def _right(answer: Signs, winner: Signs) -> Part:
    """(P, 1) pairs answered right, and pairs with a winner."""
    known = winner != 0
    right = (known & (answer == winner)).sum(axis=1, keepdims=True)
    return right.astype(float), known.sum(axis=1, keepdims=True).astype(float)
