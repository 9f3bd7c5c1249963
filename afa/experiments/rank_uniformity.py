"""What simulated ranks and probabilities say: uniformity of the ranks, errors of the probabilities."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import pandas as pd
from numpy.typing import NDArray
from scipy.special import chdtrc

from afa.experiments.simulated_calibration import LABELS_DRAWN
from afa.mrf import Floats

RANK_BINS = 20
PROBABILITY_BINS = 10
HISTOGRAM = ["inference", "step", "bin", "count"]
UNIFORMITY = ["inference", "step", "draws", "chi_square", "p_value", "gap", "ece", "brier"]


@dataclass(frozen=True)
class PosteriorSums:
    """Sums over the draws of each of P units, from which the measures follow for any weights of the units, (R, P).

    ranks : (P, 100) draws with each rank. excess : (P, 10) probabilities less labels, summed by bin of probability.
    squares, n : (P,) sums of (probability - label)^2, and draws.
    """

    ranks: Floats
    excess: Floats
    squares: Floats
    n: Floats

    @classmethod
    def of(cls, draws: pd.DataFrame, unit: NDArray[np.int64], n_units: int) -> PosteriorSums:
        """Sums of a part of the table `draws`; `unit` is the unit of each row."""
        probability, label = draws["probability"].to_numpy(np.float64), draws["label"].to_numpy(np.float64)
        low = np.minimum((probability * PROBABILITY_BINS).astype(np.int64), PROBABILITY_BINS - 1)
        rank = draws["rank"].to_numpy(np.int64)
        return cls(
            ranks=_counted(unit, rank, n_units, LABELS_DRAWN + 1, np.ones(len(rank))),
            excess=_counted(unit, low, n_units, PROBABILITY_BINS, probability - label),
            squares=_counted(unit, unit * 0, n_units, 1, (probability - label) ** 2)[:, 0],
            n=_counted(unit, unit * 0, n_units, 1, np.ones(len(rank)))[:, 0],
        )

    def uniformity(self) -> tuple[NDArray[np.int64], float, float]:
        """Histogram of the ranks in 20 bins, its chi-square against uniform, and the p-value of that."""
        binned = self.ranks.sum(axis=0).reshape(RANK_BINS, -1).sum(axis=1)
        expected = binned.sum() / RANK_BINS
        chi_square = float(((binned - expected) ** 2 / expected).sum())
        return binned.astype(np.int64), chi_square, float(chdtrc(RANK_BINS - 1, chi_square))

    def gap(self, weights: Floats) -> Floats:
        """Largest absolute difference between the distribution functions of the ranks and of the uniform, (R,)."""
        counts = np.cumsum(weights @ self.ranks, axis=1)
        uniform = np.arange(1, counts.shape[1] + 1) / counts.shape[1]
        largest: Floats = np.abs(counts / counts[:, -1:] - uniform).max(axis=1)
        return largest

    def calibration_error(self, weights: Floats) -> Floats:
        """Mean over draws of |mean probability - share of class 1| of their bin, (R,)."""
        error: Floats = np.abs(weights @ self.excess).sum(axis=1) / (weights @ self.n)
        return error

    def brier(self, weights: Floats) -> Floats:
        """Mean of (probability - label)^2, (R,)."""
        score: Floats = (weights @ self.squares) / (weights @ self.n)
        return score


def _counted(
    unit: NDArray[np.int64], column: NDArray[np.int64], n_units: int, n_columns: int, values: Floats
) -> Floats:
    """(n_units, n_columns) sums of values, each at its unit and column."""
    sums = np.bincount(unit * n_columns + column, weights=values, minlength=n_units * n_columns)
    return sums.reshape(n_units, n_columns).astype(np.float64)


def rank_uniformity(draws: pd.DataFrame) -> dict[str, pd.DataFrame]:
    """What the ranks and probabilities of all entities together say, by inference and step.

    `histogram`, by (inference, step, bin): `count` of ranks in each of 20 bins of 5. `uniformity`, by (inference,
    step): `draws`; `chi_square` of the histogram against uniform, 19 degrees of freedom, and its `p_value`; `gap`, the
    largest absolute difference between the distribution functions of the ranks and of the uniform; `ece`, expected
    calibration error in ten bins; `brier` score.
    """
    histograms = [pd.DataFrame(columns=HISTOGRAM)] if draws.empty else []
    rows: list[dict[str, str | int | float]] = []
    for (inference, step), part in draws.groupby(["inference", "step"], sort=False):
        label = {"inference": str(inference), "step": str(step)}
        sums, one = PosteriorSums.of(part, np.zeros(len(part), dtype=np.int64), 1), np.ones((1, 1))
        counts, chi_square, p_value = sums.uniformity()
        measures = {"gap": sums.gap(one)[0], "ece": sums.calibration_error(one)[0], "brier": sums.brier(one)[0]}
        rows.append({**label, "draws": len(part), "chi_square": chi_square, "p_value": p_value, **measures})
        histograms.append(pd.DataFrame({"bin": range(RANK_BINS), "count": counts}).assign(**label))
    histogram = pd.concat(histograms, ignore_index=True)[HISTOGRAM]
    return {"histogram": histogram, "uniformity": pd.DataFrame(rows, columns=UNIFORMITY)}
