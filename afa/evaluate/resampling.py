"""Compute bootstrap intervals over patients for shares, numbers of rounds and correlations."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import pandas as pd

from afa.model.arrays import Bools, Floats, Ints
from afa.model.orders import generator_of


def interval(statistics: Floats, *, confidence: float) -> tuple[Floats, Floats]:
    """Return the ends of the percentile interval of each column of resampled statistics, (C,) each.

    The ends of the interval are NaN if all resamples are NaN.

    Parameters
    ----------
    statistics : (R, C) float64

    """
    tail = 100 * (1 - confidence) / 2
    low, high = percentiles(statistics, [tail, 100 - tail])
    return low, high


def with_interval(every: Floats, *, confidence: float) -> pd.DataFrame:
    """Return a table with the value and the interval (`low` to `high`) of each of C statistics.

    The first row of `every` contains the observed statistics. Each further row of `every` contains the statistics of
    one resample.

    Parameters
    ----------
    every : (1 + R, C) float64

    """
    low, high = interval(every[1:], confidence=confidence)
    return pd.DataFrame({"value": every[0], "low": low, "high": high})


def mean_and_each(values: Mapping[str, Floats], cases: Mapping[str, int], *, confidence: float) -> pd.DataFrame:
    """Return a table with one row for the mean over entities, followed by one row for each entity.

    In the row of the mean, the value of `entity` is missing. The column `n` is the number of cases from which a row is
    computed.

    Parameters
    ----------
    values : entity -> (1 + R,) float64, a statistic and its resamples
    cases : entity -> number of cases

    """
    every = np.column_stack([np.mean(list(values.values()), axis=0), *values.values()])
    n = [sum(cases.values()), *(cases[name] for name in values)]
    return with_interval(every, confidence=confidence).assign(entity=np.array([None, *values]), n=n)


def percentiles(statistics: Floats, levels: Sequence[float]) -> Floats:
    """Return the percentiles of each column of the array `statistics`, (L, C). NaN is ignored.

    If a column contains only NaN, its percentiles are NaN. Percentiles are interpolated like those of `np.percentile`;
    this function is at least three times as fast.

    Parameters
    ----------
    statistics : (R, C) float64
    levels : L percentages

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
    """Return how often each resample contains each patient, (R, P) float64.

    The returned counts are whole numbers, so that weighted sums are exact.
    """
    drawn = generator_of("bootstrap", purpose)
    return drawn.multinomial(n_patients, np.full(n_patients, 1 / n_patients), size=resamples).astype(np.float64)


QUARTILES: dict[str | None, float] = {"q25": 0.25, None: 0.5, "q75": 0.75}


def quartiles_of_rounds(reached: Floats, among: Floats, weights: Floats, *, confidence: float) -> pd.DataFrame:
    """Return a table of the first rounds by which a quarter, half and three quarters of all cases meet a criterion.

    The table has the columns of `table_of_rounds`, and the columns `quantity` (name of the quartile) and `n` (number of
    cases).

    Parameters
    ----------
    reached, among : (P, M + 1) float64, by patient and round. `reached` counts the cases that meet the criterion by
        then, and `among` counts all cases
    weights : (1 + R, P) float64. The first row has ones

    """
    by_then, cases = weights @ reached, weights @ among
    first = np.stack([first_where(by_then >= share * cases) for share in QUARTILES.values()], axis=1)
    table = table_of_rounds(first.astype(np.float64), reached.shape[1] - 1, confidence=confidence)
    return table.assign(quantity=np.array([*QUARTILES], dtype=object), n=int(among[:, 0].sum()))


def table_of_rounds(statistics: Floats, last_round: int, *, confidence: float) -> pd.DataFrame:
    """Return a table of values and intervals (`low` to `high`) for statistics that count rounds.

    Numbers above `last_round` become missing in all three columns.

    The first row of `statistics` contains the observed statistics. Each further row of `statistics` contains the
    statistics of one resample. The ends of an interval are not interpolated. If a percentile lies between two resampled
    numbers, the number that makes the interval wider is used.

    Parameters
    ----------
    statistics : (1 + R, C) float64, numbers of rounds

    """
    plain, drawn = statistics[0], statistics[1:]
    low, high = np.full(plain.shape, np.nan), np.full(plain.shape, np.nan)
    known = ~np.isnan(drawn).all(axis=0)
    if known.any():
        tail = 100 * (1 - confidence) / 2
        low[known] = np.nanpercentile(drawn[:, known], tail, axis=0, method="lower")
        high[known] = np.nanpercentile(drawn[:, known], 100 - tail, axis=0, method="higher")
    table = pd.DataFrame({"value": plain, "low": low, "high": high})
    return table.where(table <= last_round)


def first_where(holds: Bools) -> Ints:
    """Return the index of the first True in each row, (R,). For a row without True, the index is the number of columns.

    Parameters
    ----------
    holds : (R, C) bool

    """
    first: Ints = np.where(holds.any(axis=1), holds.argmax(axis=1), holds.shape[1])
    return first


NO_SPREAD = 1e-12
"""Data count as constant if their sum of squares about the mean is below this share of the sum about the origin."""


@dataclass(frozen=True)
class Moments:
    """Store the sums from which correlations of two quantities x and y in resamples of patients are computed.

    Each array contains sums over the runs of a patient, for P patients and C columns. Before summing, the method
    `Moments.of` subtracts a constant from each column of x and of y.

    Attributes
    ----------
    n : (P, C) float64, number of runs
    x : (P, C) float64, sums of x
    y : (P, C) float64, sums of y
    xx : (P, C) float64, sums of the squares of x
    yy : (P, C) float64, sums of the squares of y
    xy : (P, C) float64, sums of the products of x and y

    """

    n: Floats
    x: Floats
    y: Floats
    xx: Floats
    yy: Floats
    xy: Floats

    @classmethod
    def of(cls, x: Floats, y: Floats) -> Moments:
        """Return the `Moments` of x and y, (P, runs, C), summed over runs.

        Before summing, the values in run 0 of patient 0 are subtracted from the values in all runs of all patients. If
        the data are constant, the sums are therefore exactly 0.

        Parameters
        ----------
        x : (P, runs, C) float64, values of the first quantity
        y : (P, runs, C) float64, values of the second quantity

        """
        x, y = x - x[0, 0], y - y[0, 0]
        n = np.full((len(x), x.shape[2]), float(x.shape[1]))
        return cls(n, x.sum(axis=1), y.sum(axis=1), (x * x).sum(axis=1), (y * y).sum(axis=1), (x * y).sum(axis=1))

    def correlation(self, weights: Floats) -> Floats:
        """Return Pearson's correlation of x and y for each resample, (R, C).

        The correlation is NaN if x or y does not vary.

        Parameters
        ----------
        weights : (R, P) float64

        """
        # `einsum` replaces the operator `@`, whose rounding errors depend on the number of threads.
        n, x, y, xx, yy, xy = (
            np.einsum("rp,pc->rc", weights, part) for part in (self.n, self.x, self.y, self.xx, self.yy, self.xy)
        )
        spread_x, spread_y = n * xx - x * x, n * yy - y * y
        varies = (spread_x > NO_SPREAD * n * xx) & (spread_y > NO_SPREAD * n * yy)
        scale = np.sqrt(np.where(varies, spread_x * spread_y, 1.0))
        return np.where(varies, np.clip((n * xy - x * y) / scale, -1.0, 1.0), np.nan)

    def only(self, weights: Floats) -> Floats:
        """Return the first column of `correlation(weights)`, (R,).

        Parameters
        ----------
        weights : (R, P) float64, how often each resample contains each patient

        """
        return self.correlation(weights)[:, 0]
