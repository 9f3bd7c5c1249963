"""The numbers of calibration over a cohort: expected calibration error, Brier score, and where answers are at odds."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pandas as pd
from numpy.typing import ArrayLike

from afa.experiments.accuracy import Part, Resampled
from afa.experiments.reliability import BINS, cases_of
from afa.experiments.summary import summary_rows
from afa.mrf import Floats


def summarise_calibration(
    odds: pd.DataFrame, targets: pd.DataFrame, *, resamples: int, confidence: float
) -> pd.DataFrame:
    """Summary rows `calibration` on the cohort: expected calibration error and Brier score, by t.

    The headline is the calibrated probability, stratum `raw` the logistic function of the raw score, whose sign
    decides. `rate` in the stratum `at_odds`: where probability and decision are on different sides.
    """
    patients = list(targets["patient"].unique())
    resampled = Resampled.of(len(patients), resamples=resamples, confidence=confidence, purpose="calibration")
    rows = []
    for cut, cases in cases_of(odds, targets):
        keys = {"stratum": None if cut.kind == "calibrated" else cut.kind, "target": cut.target}
        both = [
            _calibration_error(cases, patients, resampled).assign(metric="ece"),
            _brier(cases, patients, resampled).assign(metric="brier"),
        ]
        rows += [table.assign(**keys, t=cut.t, reference=cut.inference) for table in both]
    opposed = odds.assign(opposed=np.sign(odds["raw"]) * np.sign(odds["calibrated"]) < 0)
    for (inference, t), part in opposed.groupby(["inference", "t"], sort=False):
        counts = [_by_patient(part["patient"], patients, each) for each in (part["opposed"], np.ones(len(part)))]
        share = resampled.mean([(counts[0][:, None], counts[1][:, None])])
        rows.append(share.assign(metric="rate", stratum="at_odds", t=int(str(t)), reference=str(inference)))
    whole = pd.concat(rows, ignore_index=True).assign(method="two_elbo", allocation="random", start="uniform")
    return summary_rows("calibration", whole)


def _by_patient(names: pd.Series, patients: Sequence[str], values: ArrayLike) -> Floats:
    """(P,) sums of values by patient."""
    codes = pd.Categorical(names, categories=list(patients)).codes
    sums = np.bincount(codes, weights=np.asarray(values, dtype=float), minlength=len(patients))
    return sums.astype(np.float64)


def _calibration_error(cases: pd.DataFrame, patients: Sequence[str], resampled: Resampled) -> pd.DataFrame:
    """Mean over cases of |mean probability - share positive| of their bin, resampled by patient."""
    gaps, counts = np.zeros((len(patients), BINS)), np.zeros((len(patients), BINS))
    for b in range(BINS):
        part = cases[cases["bin"] == b]
        gaps[:, b] = _by_patient(part["patient"], patients, part["p"] - part["y"])
        counts[:, b] = _by_patient(part["patient"], patients, np.ones(len(part)))
    return resampled.statistic(
        lambda weights: np.abs(weights @ gaps).sum(axis=1) / (weights @ counts).sum(axis=1), len(cases)
    )


def _brier(cases: pd.DataFrame, patients: Sequence[str], resampled: Resampled) -> pd.DataFrame:
    """Mean of (p - y)^2."""
    squares = _by_patient(cases["patient"], patients, (cases["p"] - cases["y"]) ** 2)
    counts = _by_patient(cases["patient"], patients, np.ones(len(cases)))
    part: Part = (squares[:, None], counts[:, None])
    return resampled.mean([part])
