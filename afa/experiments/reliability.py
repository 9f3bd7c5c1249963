"""Reliability: predicted probabilities in bins, against the share of each bin that is positive."""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

import numpy as np
import pandas as pd
from scipy.special import expit

BINS = 10
KINDS = ("calibrated", "raw")


class Cut(NamedTuple):
    """Which cases: by which inference, which reading of the log-odds, against which target, after t observations."""

    inference: str
    kind: str
    target: str
    t: int


def reliability(odds: pd.DataFrame, targets: pd.DataFrame) -> pd.DataFrame:
    """Predicted against observed shares in ten bins of the probability, by (inference, kind, target, t, bin).

    `cases`, the mean `probability` and the share that is `positive`, both in [0, 1]; empty bins are left out.
    """
    tables = []
    for cut, cases in cases_of(odds, targets):
        by_bin = cases.groupby("bin")
        table = by_bin.agg(cases=("y", "size"), probability=("p", "mean"), positive=("y", "mean")).reset_index()
        tables.append(table.assign(inference=cut.inference, kind=cut.kind, target=cut.target, t=cut.t))
    return pd.concat(tables, ignore_index=True)


def cases_of(odds: pd.DataFrame, targets: pd.DataFrame) -> Iterator[tuple[Cut, pd.DataFrame]]:
    """Probability `p`, truth `y` and `bin` of every case, for each inference, t, kind and target that has any."""
    truth = targets.assign(likelihood=targets["likelihood"].map({1: 1.0, -1: 0.0}))
    whole = odds.merge(truth[["patient", "entity", "likelihood", "clinical"]], on=["patient", "entity"])
    for target in ("likelihood", "clinical"):
        known = whole[whole[target].notna()]
        for (inference, t), part in known.groupby(["inference", "t"], sort=False):
            for kind in KINDS:
                p = expit(part[kind].to_numpy())
                cases = pd.DataFrame(
                    {
                        "patient": part["patient"].to_numpy(),
                        "p": p,
                        "y": part[target].to_numpy(dtype=float),
                        "bin": np.minimum((p * BINS).astype(int), BINS - 1),
                    }
                )
                yield Cut(str(inference), kind, target, int(str(t))), cases
