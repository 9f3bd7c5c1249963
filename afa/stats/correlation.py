"""Pearson's correlation from sums, so that it can be resampled by weights of the patients."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from afa.mrf import Floats

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
