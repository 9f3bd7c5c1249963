"""Intervals by resampling patients, the unit that a new cohort would draw again; rounds and correlations, for them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import pandas as pd
from numpy.typing import NDArray
from scipy.special import ndtri

from afa.model.mrf import Floats
from afa.model.orders import generator_of


def interval(statistics: Floats, *, confidence: float) -> tuple[Floats, Floats]:
    """Percentile interval of resampled statistics, (R, C) -> low and high (C,); NaN where all resamples are."""
    tail = 100 * (1 - confidence) / 2
    low, high = percentiles(statistics, [tail, 100 - tail])
    return low, high


def with_interval(every: Floats, *, confidence: float) -> pd.DataFrame:
    """`value`, `low`, `high` of statistics (1 + R, C), the first row the values, the others their resamples."""
    low, high = interval(every[1:], confidence=confidence)
    return pd.DataFrame({"value": every[0], "low": low, "high": high})


def mean_and_each(values: Mapping[str, Floats], cases: Mapping[str, int], *, confidence: float) -> pd.DataFrame:
    """A row for the mean over entities, whose `entity` is missing, then one for each; `n` is their cases.

    values : by entity, (1 + R,) a statistic and its resamples.
    """
    every = np.column_stack([np.mean(list(values.values()), axis=0), *values.values()])
    n = [sum(cases.values()), *(cases[name] for name in values)]
    return with_interval(every, confidence=confidence).assign(entity=np.array([None, *values]), n=n)


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
    drawn = generator_of("bootstrap", purpose)
    return drawn.multinomial(n_patients, np.full(n_patients, 1 / n_patients), size=resamples).astype(np.float64)


QUARTILES: dict[str | None, float] = {"q25": 0.25, None: 0.5, "q75": 0.75}


def quartiles_of_rounds(reached: Floats, among: Floats, weights: Floats, *, confidence: float) -> pd.DataFrame:
    """The rounds by which `QUARTILES` of the cases are there: `table_of_rounds`, with `quantity` and `n`.

    reached, among : (P, M + 1) each patient's cases that are there by then, and all of them. weights : (1 + R, P), the
    first row plain.
    """
    by_then, cases = weights @ reached, weights @ among
    first = np.stack([first_where(by_then >= share * cases) for share in QUARTILES.values()], axis=1)
    table = table_of_rounds(first.astype(np.float64), reached.shape[1] - 1, confidence=confidence)
    return table.assign(quantity=np.array([*QUARTILES], dtype=object), n=int(among[:, 0].sum()))


def table_of_rounds(statistics: Floats, last_round: int, *, confidence: float) -> pd.DataFrame:
    """`value`, `low`, `high` of rounds (1 + R, C), the first row plain; missing where beyond the last round.

    The interval widens to whole rounds: between two of them a statistic cannot lie.
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


def wilson(right: Floats, n: Floats, *, confidence: float) -> tuple[Floats, Floats]:
    """Wilson's interval of the shares right / n, low and high; a count that holds halves is taken as it is.

    >>> low, high = wilson(np.array([10.0]), np.array([10.0]), confidence=0.95)
    >>> low.round(4).tolist(), high.tolist()
    ([0.7225], [1.0])
    """
    z = float(ndtri((1 + confidence) / 2))
    share, scale = right / n, 1 + z * z / n
    centre = (share + z * z / (2 * n)) / scale
    half = z * np.sqrt(share * (1 - share) / n + z * z / (4 * n * n)) / scale
    return np.where(right <= 0, 0.0, centre - half), np.where(right >= n, 1.0, centre + half)


def first_where(holds: NDArray[np.bool_]) -> NDArray[np.int64]:
    """(R,) the first column where each row holds; the number of columns where none does."""
    first: NDArray[np.int64] = np.where(holds.any(axis=1), holds.argmax(axis=1), holds.shape[1])
    return first


NO_SPREAD = 1e-12
"""A sum of squares about the mean below this share of that about a fixed origin is rounding: nothing varies."""


@dataclass(frozen=True)
class Moments:
    """Sums over a patient's runs of two scalars x and y, from a fixed origin: each (P, C), C cells apart."""

    n: Floats
    x: Floats
    y: Floats
    xx: Floats
    yy: Floats
    xy: Floats

    @classmethod
    def of(cls, x: Floats, y: Floats) -> Moments:
        """Of scalars (P, runs, C); the origin is the first tuple's value, so that what never varies is exactly 0."""
        x, y = x - x[0, 0], y - y[0, 0]
        n = np.full((len(x), x.shape[2]), float(x.shape[1]))
        return cls(n, x.sum(axis=1), y.sum(axis=1), (x * x).sum(axis=1), (y * y).sum(axis=1), (x * y).sum(axis=1))

    def correlation(self, weights: Floats) -> Floats:
        """(R, C) Pearson's r under weights (R, P) of the patients; NaN where x or y does not vary."""
        # einsum, not a matrix product: its sums do not depend on the number of threads
        n, x, y, xx, yy, xy = (
            np.einsum("rp,pc->rc", weights, part) for part in (self.n, self.x, self.y, self.xx, self.yy, self.xy)
        )
        spread_x, spread_y = n * xx - x * x, n * yy - y * y
        varies = (spread_x > NO_SPREAD * n * xx) & (spread_y > NO_SPREAD * n * yy)
        scale = np.sqrt(np.where(varies, spread_x * spread_y, 1.0))
        return np.where(varies, np.clip((n * xy - x * y) / scale, -1.0, 1.0), np.nan)

    def only(self, weights: Floats) -> Floats:
        """(R,) the correlation of the first cell."""
        return self.correlation(weights)[:, 0]
