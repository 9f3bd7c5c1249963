"""Intervals by resampling patients: the unit that a new cohort would draw again."""

from __future__ import annotations

import hashlib

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
    low, high = np.full(statistics.shape[1], np.nan), np.full(statistics.shape[1], np.nan)
    missing = np.isnan(statistics)
    whole, part = ~missing.any(axis=0), missing.any(axis=0) & ~missing.all(axis=0)
    tail = 100 * (1 - confidence) / 2
    if whole.any():
        low[whole], high[whole] = np.percentile(statistics[:, whole], [tail, 100 - tail], axis=0)
    if part.any():  # column by column, and slow
        low[part], high[part] = np.nanpercentile(statistics[:, part], [tail, 100 - tail], axis=0)
    return low, high


def patient_weights(n_patients: int, *, resamples: int, purpose: str) -> Floats:
    """(R, P) how often each patient is drawn in each resample; whole numbers, so that weighted sums are exact."""
    seed = int.from_bytes(hashlib.sha256(f"bootstrap\0{purpose}".encode()).digest()[:8], "little")
    generator = np.random.default_rng(seed)
    counts = generator.multinomial(n_patients, np.full(n_patients, 1 / n_patients), size=resamples)
    weights: Floats = counts.astype(np.float64)
    return weights
