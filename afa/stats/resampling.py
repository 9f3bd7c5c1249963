"""Intervals by resampling patients: the unit that a new cohort would draw again."""

from __future__ import annotations

import hashlib
from collections.abc import Sequence

import numpy as np

from afa.mrf import Floats


def ratio_interval(
    right: Floats, total: Floats, *, resamples: int, confidence: float, purpose: str
) -> tuple[Floats, Floats]:
    """Percentile interval of sum(right) / sum(total) over patients, column by column.

    right, total : (P, C) per patient. Returns low and high, (C,); NaN where no resample has a total above 0.
    The resamples depend on `purpose` and P alone, so that columns of one call are paired.
    """
    weights = patient_weights(len(right), resamples=resamples, purpose=purpose)
    numerator, denominator = weights @ right, weights @ total
    ratio = np.divide(numerator, denominator, out=np.full(numerator.shape, np.nan), where=denominator > 0)
    return interval(ratio, confidence=confidence)


def interval(statistics: Floats, *, confidence: float) -> tuple[Floats, Floats]:
    """Percentile interval of resampled statistics, (R, C) -> low and high (C,); NaN where all resamples are."""
    tail = 100 * (1 - confidence) / 2
    low, high = percentiles(statistics, [tail, 100 - tail])
    return low, high


def percentiles(statistics: Floats, levels: Sequence[float]) -> Floats:
    """Percentiles of the known values of each column, (R, C) -> (L, C); NaN where there is none.

    Interpolated as by `np.percentile`, which takes three times as long, and far longer where a value is missing.
    """
    ranked = np.array(statistics.T, order="C")
    ranked.sort(axis=1)  # puts NaN last
    last = np.maximum(np.count_nonzero(~np.isnan(ranked), axis=1) - 1, 0)[:, None]
    place = last * (np.asarray(levels) / 100)
    before = np.floor(place).astype(np.int64)
    low, high = (np.take_along_axis(ranked, at, axis=1) for at in (before, np.minimum(before + 1, last)))
    part, step = place - before, high - low
    found: Floats = np.where(part < 0.5, low + step * part, high - step * (1 - part)).T
    return found


def patient_weights(n_patients: int, *, resamples: int, purpose: str) -> Floats:
    """(R, P) how often each patient is drawn in each resample; whole numbers, so that weighted sums are exact."""
    seed = int.from_bytes(hashlib.sha256(f"bootstrap\0{purpose}".encode()).digest()[:8], "little")
    generator = np.random.default_rng(seed)
    counts = generator.multinomial(n_patients, np.full(n_patients, 1 / n_patients), size=resamples)
    weights: Floats = counts.astype(np.float64)
    return weights
