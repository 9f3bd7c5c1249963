"""Accuracy over a cohort from signs and targets: shares, their intervals over patients, and what stands beside them.

Decisions are cubes: patients first, everything else of a patient after that. A score of 0 is half right (decisions.md
S5); a target of 0, or a missing label, leaves the decision out (decisions.md S11).
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import reduce

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from afa.mrf import Floats
from afa.stats.resampling import interval, patient_weights

Signs = NDArray[np.int8]
Part = tuple[Floats, Floats]


@dataclass(frozen=True)
class Resampled:
    """Shares over patients with percentile intervals; `weights` (R, P) is how often each resample draws a patient."""

    weights: Floats
    confidence: float

    @classmethod
    def of(cls, n_patients: int, *, resamples: int, confidence: float, purpose: str) -> Resampled:
        return cls(patient_weights(n_patients, resamples=resamples, purpose=purpose), confidence)

    def mean(self, parts: list[Part]) -> pd.DataFrame:
        """`value`, `low`, `high`, `n` by column: the mean over parts of sum(right) / sum(total), each (P, T)."""
        low, high = interval(mean_ratio(parts, self.weights), confidence=self.confidence)
        return pd.DataFrame({"value": self._plain(parts), "low": low, "high": high, "n": _cases(parts)})

    def gap(self, parts: list[Part], against: list[Part]) -> pd.DataFrame:
        """The same for the difference of two such means; both are resampled together."""
        difference = mean_ratio(parts, self.weights) - mean_ratio(against, self.weights)
        low, high = interval(difference, confidence=self.confidence)
        value = self._plain(parts) - self._plain(against)
        return pd.DataFrame({"value": value, "low": low, "high": high, "n": _cases(parts)})

    def statistic(self, of: Callable[[Floats], Floats], n: int) -> pd.DataFrame:
        """One row of any statistic that maps weights of the patients (R, P) to its values (R,); `n` cases."""
        low, high = interval(of(self.weights)[:, None], confidence=self.confidence)
        value = of(np.ones((1, self.weights.shape[1])))
        return pd.DataFrame({"value": value, "low": low, "high": high, "n": n})

    def constant(self, target: Signs) -> Iterator[pd.DataFrame]:
        """What needs no observation, target (P, Q): `majority`, the best constant answers, and `prevalence`, of 1."""
        for metric, answer in zip(("majority", "prevalence"), constant_answers(target), strict=True):
            yield self.mean([right_of(answer[:, :, None], target, target != 0)]).assign(metric=metric)

    def _plain(self, parts: list[Part]) -> Floats:
        one: Floats = mean_ratio(parts, np.ones((1, self.weights.shape[1])))[0]
        return one


def mean_ratio(parts: list[Part], weights: Floats) -> Floats:
    """Mean over parts of sum(right) / sum(total), (R, T), patients weighted by each row of `weights` (R, P).

    NaN where a part has no case.
    """
    ratios = []
    for right, total in parts:
        constant = bool((total == total[:, :1]).all())  # mostly, and then one product is enough
        numerator, denominator = weights @ right, weights @ (total[:, :1] if constant else total)
        ratios.append(np.divide(numerator, denominator, out=np.full(numerator.shape, np.nan), where=denominator > 0))
    mean: Floats = reduce(np.add, ratios) / len(ratios)
    return mean


def _cases(parts: list[Part]) -> NDArray[np.int64]:
    cases: NDArray[np.int64] = np.asarray(sum(total for _, total in parts)).sum(axis=0).astype(np.int64)
    return cases


def by_t(rows: pd.DataFrame) -> pd.DataFrame:
    """Rows of the rounds 0 to the last, with their t."""
    return rows.assign(t=np.arange(len(rows)))


def sums_of(table: pd.DataFrame, patients: Sequence[str], *columns: str, by: str = "t") -> list[Floats]:
    """(P, T) sums of each column by patient, in this order, and by the values of `by`, ascending."""
    sums = table.groupby(["patient", by], sort=False)[list(columns)].sum()
    return [sums[name].unstack(by).loc[list(patients)].to_numpy(float) for name in columns]


def right_of(signs: Signs, target: Signs, among: NDArray[np.bool_]) -> Part:
    """(P, T) decisions that are right, and decisions in all, of those in `among`.

    signs : (P, ..., T). target : (P, ...), +1 or -1, 0 where there is none. among : (P, ...).
    """
    shape = len(signs), int(np.prod(target.shape[1:]))
    chosen = (among & (target != 0)).astype(np.float32).reshape(shape)
    weight = chosen * target.reshape(shape)
    agreement = np.einsum("pct,pc->pt", signs.reshape(*shape, signs.shape[-1]).astype(np.float32), weight)
    total = chosen.sum(axis=1, dtype=np.float64)
    return (agreement.astype(np.float64) + total[:, None]) / 2, np.repeat(total[:, None], signs.shape[-1], axis=1)


def auroc(scores: Floats, positive: NDArray[np.bool_]) -> Floats:
    """(T,) area under the ROC curve of scores (n, T); ties count one half. NaN where only one class is there."""
    n_positive = int(positive.sum())
    n_negative = len(positive) - n_positive
    if n_positive == 0 or n_negative == 0:
        return np.full(scores.shape[1], np.nan)
    ranks = pd.DataFrame(scores).rank().to_numpy()[positive].sum(axis=0)
    area: Floats = (ranks - n_positive * (n_positive + 1) / 2) / (n_positive * n_negative)
    return area


def constant_answers(target: Signs) -> tuple[Signs, Signs]:
    """The best constant answer of each task, chosen on these same patients, and "positive" always; both (P, E).

    target : (P, E) in {-1, 0, +1}.
    """
    majority = np.where(target.sum(axis=0, dtype=np.int64) >= 0, 1, -1).astype(np.int8)
    return np.broadcast_to(majority, target.shape).copy(), np.ones_like(target)
