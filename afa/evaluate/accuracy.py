"""Accuracy over a cohort, computed from signs and targets: shares, their intervals over patients, and baselines.

Arrays of decisions have patients on the first axis. A score of 0 counts as half right (decisions.md S5). Decisions with
a target of 0 or a missing label are excluded (decisions.md S11). Functions with weights, (R, P) whole numbers with one
row for each resample, return (R,). The result is NaN for a resample that has only one class.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from functools import cached_property, partial, reduce
from typing import Any, NamedTuple

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from afa.evaluate.resampling import interval, patient_weights
from afa.model.mrf import Floats

Signs = NDArray[np.int8]
Part = tuple[Floats, Floats]
Mask = NDArray[np.bool_]
SURE, TIED = 2, 1
"""Codes of an entity at full observation. `SURE`: it is certainly in the patient's top k. `TIED`: it shares a rank with
other entities across the border of the top k.
"""


@dataclass(frozen=True)
class Resampled:
    """Computes shares over patients, or over other units, and their percentile intervals.

    Parameters
    ----------
    units : names of the units, in the order of the first axis of all counts
    weights : (R, P) float64, how often each resample contains each unit
    confidence : coverage of the intervals

    """

    units: pd.Index
    weights: Floats
    confidence: float

    @classmethod
    def of(cls, units: Iterable[Any], *, resamples: int, confidence: float, purpose: str) -> Resampled:
        names = pd.Index(list(units))
        return cls(names, patient_weights(len(names), resamples=resamples, purpose=purpose), confidence)

    def sums(self, table: pd.DataFrame, *columns: str, by: str | None = "t", unit: str = "patient") -> list[Floats]:
        """Return the sums of each column by unit and by the ascending values of `by`, (P, T) each.

        A missing row counts as 0. If `by` is None, the shape is (P, 1).
        """
        if by is None:
            whole = table.groupby(unit, sort=False)[list(columns)].sum().reindex(self.units).fillna(0.0)
            return [whole[[name]].to_numpy(float) for name in columns]
        parts = table.groupby([unit, by], sort=False)[list(columns)].sum().unstack(by).sort_index(axis=1)
        return [parts[name].reindex(self.units).fillna(0.0).to_numpy(float) for name in columns]

    def part(self, table: pd.DataFrame, right: str, total: str, *, by: str | None = "t", unit: str = "patient") -> Part:
        """Return `sums` of two columns: the number of right decisions and the number of decisions."""
        first, second = self.sums(table, right, total, by=by, unit=unit)
        return first, second

    def share(
        self, table: pd.DataFrame, right: str, total: str, *, by: str | None = "t", unit: str = "patient"
    ) -> pd.DataFrame:
        """Return the table of `mean` for the sum of `right` divided by the sum of `total`, and add the column `by`."""
        shares = self.mean([self.part(table, right, total, by=by, unit=unit)])
        return shares if by is None else shares.assign(**{by: sorted(table[by].unique())})

    @property
    def every(self) -> Floats:
        """Return the weights, (1 + R, P). The first row has ones, and the other rows are the resamples."""
        return np.vstack([np.ones(self.weights.shape[1]), self.weights])

    @cached_property
    def _by_unit(self) -> Floats:
        return np.ascontiguousarray(self.every.T)

    def drawn(self, names: Iterable[Any]) -> Floats:
        """Return the columns of `every` for some units, (1 + R, C).

        The columns are contiguous, which makes `ranking` fast.
        """
        return self._by_unit[self.places(names)].T

    def places(self, names: Iterable[Any]) -> NDArray[np.int64]:
        """Return the positions of some units, (C,) int64. The position of an unknown unit is -1."""
        return np.asarray(self.units.get_indexer(pd.Index(names)), dtype=np.int64)

    def statistic(self, of: Callable[[Floats], Floats], n: int | NDArray[np.int64]) -> pd.DataFrame:
        """Return a table with `value`, `low`, `high` and `n`.

        The function `of` maps weights (R, P) to (R,) or (R, T).
        """
        plain, drawn = (of(weights) for weights in (np.ones((1, self.weights.shape[1])), self.weights))
        low, high = interval(drawn.reshape(len(drawn), -1), confidence=self.confidence)
        return pd.DataFrame({"value": plain.ravel(), "low": low, "high": high, "n": n})

    def mean(self, parts: list[Part]) -> pd.DataFrame:
        """Return the table of `statistic` for `mean_ratio` of the parts, with one row for each of the T columns."""
        return self.statistic(partial(mean_ratio, parts), _cases(parts))

    def gap(self, parts: list[Part], against: list[Part]) -> pd.DataFrame:
        """Return `mean_ratio` of `parts` minus `mean_ratio` of `against`. Both use the same resamples."""
        return self.statistic(lambda w: mean_ratio(parts, w) - mean_ratio(against, w), _cases(parts))

    def of_duels(self, table: pd.DataFrame) -> Iterator[pd.DataFrame]:
        """Yield tables by t from the counts of `afa.engine.rounds.right_by_kind`.

        There are three tables: `accuracy` of all duels, `balanced_accuracy` over the two sides of a duel, and
        `accuracy` of the duels in the stratum `prior_wrong`.
        """
        kinds = ("", "_first", "_prior_wrong")
        sums = self.sums(table, *(f"{count}{kind}" for kind in kinds for count in ("right", "duels")))
        every, first, wrong = zip(sums[::2], sums[1::2], strict=True)
        second = every[0] - first[0], every[1] - first[1]
        yield by_t(self.mean([every])).assign(metric="accuracy")
        yield by_t(self.mean([first, second])).assign(metric="balanced_accuracy")
        yield by_t(self.mean([wrong])).assign(metric="accuracy", stratum="prior_wrong")

    def constant(self, target: Signs) -> Iterator[pd.DataFrame]:
        """Yield the accuracy of constant answers for targets (P, Q): `majority`, and `prevalence` (always +1)."""
        for metric, answer in zip(("majority", "prevalence"), constant_answers(target), strict=True):
            yield self.mean([right_of(answer[:, :, None], target, target != 0)]).assign(metric=metric)


def mean_ratio(parts: list[Part], weights: Floats) -> Floats:
    """Return the mean of sum(right) / sum(total) over the parts, (R, T). The result is NaN if a part has no case.

    Parameters
    ----------
    parts : pairs of (P, T) float64. The first array counts the right decisions, the second counts all decisions
    weights : (R, P) float64, weights of the patients

    """
    ratios = []
    for right, total in parts:
        constant = bool((total == total[:, :1]).all())  # usually true; one matrix product is then enough
        numerator, denominator = weights @ right, weights @ (total[:, :1] if constant else total)
        ratios.append(share_of(numerator, denominator))
    return reduce(np.add, ratios) / len(ratios)


def _cases(parts: list[Part]) -> NDArray[np.int64]:
    cases: NDArray[np.int64] = np.asarray(sum(total for _, total in parts)).sum(axis=0).astype(np.int64)
    return cases


def by_t(rows: pd.DataFrame) -> pd.DataFrame:
    """Return `rows` with a column `t`. The rows belong to the rounds 0, 1, 2 and so on."""
    return rows.assign(t=np.arange(len(rows)))


def right_of(signs: Signs, target: Signs, among: NDArray[np.bool_]) -> Part:
    """Return the number of right decisions and the number of decisions of each patient, (P, T) each.

    Parameters
    ----------
    signs : (P, ..., T) int8, decisions; 0 is half right
    target : (P, ...) int8, +1 or -1, or 0 if there is no target
    among : (P, ...) bool, decisions to count

    """
    shape = len(signs), int(np.prod(target.shape[1:]))
    chosen = (among & (target != 0)).astype(np.float32).reshape(shape)
    weight = chosen * target.reshape(shape)
    agreement = np.einsum("pct,pc->pt", signs.reshape(*shape, signs.shape[-1]).astype(np.float32), weight)
    total = chosen.sum(axis=1, dtype=np.float64)
    return (agreement.astype(np.float64) + total[:, None]) / 2, np.repeat(total[:, None], signs.shape[-1], axis=1)


def auroc(scores: Floats, positive: NDArray[np.bool_]) -> Floats:
    """Return the AUROC of each column of scores (n, T), shape (T,). Ties count one half.

    NaN stands for a missing class.
    """
    n_positive = int(positive.sum())
    n_negative = len(positive) - n_positive
    if n_positive == 0 or n_negative == 0:
        return np.full(scores.shape[1], np.nan)
    ranks = pd.DataFrame(scores).rank().to_numpy()[positive].sum(axis=0)
    area: Floats = (ranks - n_positive * (n_positive + 1) / 2) / (n_positive * n_negative)
    return area


def constant_answers(target: Signs) -> tuple[Signs, Signs]:
    """Return two constant answers, (P, E) int8 each: the most frequent answer of each task, and the answer +1.

    Parameters
    ----------
    target : (P, E) int8, -1, 0 or +1

    """
    majority = np.where(target.sum(axis=0, dtype=np.int64) >= 0, 1, -1).astype(np.int8)
    return np.broadcast_to(majority, target.shape).copy(), np.ones_like(target)


def fixed_top_k(top: Signs, k: int) -> list[int]:
    """Return the set of k entities with the largest total overlap with the patients' top k at full observation.

    Among equally good sets, the first found is returned.

    The search is branch and bound: an entity adds less to a larger set, so the largest additions give an upper bound.

    Parameters
    ----------
    top : (P, N) int8. 2 means that the entity is certainly in the patient's top k, 1 that it is tied across rank k, and
        0 that it is not in the top k

    """
    sure, tied = (top == SURE).astype(np.int64), (top == TIED).astype(np.int64)
    room = k - sure.sum(axis=1)
    certain = sure.sum(axis=0)
    most_gained, best = -1, list[int]()

    def extend(members: list[int], gained: int, used: NDArray[np.int64], candidates: list[int]) -> None:
        nonlocal most_gained, best
        if len(members) == k:
            if gained > most_gained:
                most_gained, best = gained, members
            return
        added = certain + (used < room).astype(np.int64) @ tied
        order = sorted(candidates, key=lambda v: (-added[v], v))
        for place, v in enumerate(order):
            if gained + int(added[order[place : place + k - len(members)]].sum()) <= most_gained:
                return
            extend([*members, v], gained + int(added[v]), used + tied[:, v], order[place + 1 :])

    extend([], 0, np.zeros(len(top), dtype=np.int64), list(range(top.shape[1])))
    return sorted(best)


def overlap(top: Signs, chosen: list[int], k: int) -> NDArray[np.int64]:
    """Return how many of the `chosen` entities are in each patient's top k, (P,).

    Entities tied across rank k count only up to the number of free places.

    Parameters
    ----------
    top : as in `fixed_top_k`

    """
    sure = (top[:, chosen] == SURE).sum(axis=1)
    tied = (top[:, chosen] == TIED).sum(axis=1)
    shared: NDArray[np.int64] = sure + np.minimum(tied, k - (top == SURE).sum(axis=1))
    return shared


def precisions_by_prevalence(labels: Floats, k: int) -> dict[str, Floats]:
    """Return `p_at_k` and `r_precision` of the order by prevalence, (P,) each.

    The values of a patient without a positive label are NaN.

    Parameters
    ----------
    labels : (P, N) float64, 0, 1 or NaN

    """
    known, positives = (~np.isnan(labels)).sum(axis=1), (labels == 1).sum(axis=1)
    return {
        metric: np.where(positives > 0, positives_by_prevalence(labels, places) / np.maximum(places, 1), np.nan)
        for metric, places in (("p_at_k", np.minimum(k, known)), ("r_precision", positives))
    }


def positives_by_prevalence(labels: Floats, places: NDArray[np.int64]) -> Floats:
    """Return the number of positive labels in the first `places` of the order by prevalence, (P,) float64.

    Entities without a label for a patient are skipped in that patient's order. Entities of equal prevalence share their
    places evenly.

    Parameters
    ----------
    labels : (P, N) float64, 0 or 1, or NaN where missing. The prevalence is computed from these labels
    places : (P,) int64, number of places for each patient

    """
    known = ~np.isnan(labels)
    prevalence = np.nansum(labels, axis=0) / np.maximum(known.sum(axis=0), 1)
    ahead = known @ (prevalence[:, None] > prevalence).astype(np.float64)
    equal = known @ (prevalence[:, None] == prevalence).astype(np.float64)
    held = np.clip((places[:, None] - ahead) / np.maximum(equal, 1), 0, 1)
    positives: Floats = (held * (labels == 1)).sum(axis=1)
    return positives


def ranking(scores: Floats, positive: Mask, weights: Floats) -> tuple[Floats, Floats]:
    """Return the area under the ROC curve and the average precision of each resample, (R,) each.

    Ties count one half in the area. Tied scores share one threshold in the average precision, so that equal scores of
    all patients give the prevalence. The average precision is the sum of precision times increase in recall over all
    thresholds. The function is fast if the weights of a patient are contiguous in memory.

    Parameters
    ----------
    scores, positive : (P,) float64 and bool
    weights : (R, P) float64

    """
    drawn, n_negative = weights.T, weights @ (~positive).astype(np.float64)
    falling = np.argsort(-scores, kind="stable")
    last_of_equals = np.append(np.diff(scores[falling]) != 0, True)
    hits, false, false_above, new_hits, ordered_pairs, precision = np.zeros((6, len(weights)))
    any_new = False
    for patient, hit, last in zip(falling.tolist(), positive[falling].tolist(), last_of_equals.tolist(), strict=True):
        if hit:
            new_hits += drawn[patient]
            any_new = True
        else:
            false += drawn[patient]
        if last and any_new:
            hits += new_hits
            ordered_pairs += new_hits * (n_negative - (false_above + false) / 2)
            precision += new_hits * (hits / np.maximum(hits + false, 1))
            new_hits[:] = 0
            any_new = False
        if last:
            false_above[:] = false
    pairs = hits * n_negative
    return share_of(ordered_pairs, pairs), np.where(pairs > 0, share_of(precision, hits), np.nan)


class Decided(NamedTuple):
    """Shares of right decisions. The balanced accuracy is the mean of sensitivity and specificity."""

    accuracy: Floats
    balanced_accuracy: Floats
    sensitivity: Floats
    specificity: Floats


def accuracies(scores: Floats, positive: Mask, weights: Floats) -> Decided:
    """Return the accuracies of the signs of scores (P,) for each row of `weights` (R, P).

    A score of 0 is half right.
    """
    right = 0.5 + 0.5 * np.sign(scores) * np.where(positive, 1.0, -1.0)
    classes = np.stack([positive, ~positive], axis=1).astype(np.float64)
    counts, earned = weights @ classes, weights @ (classes * right[:, None])
    of_ill, of_others = share_of(earned, counts).T
    return Decided(earned.sum(axis=1) / counts.sum(axis=1), (of_ill + of_others) / 2, of_ill, of_others)


def share_of(part: Floats, whole: Floats) -> Floats:
    """Return `part` divided by `whole`. The result is NaN where `whole` is 0."""
    share: Floats = np.divide(part, whole, out=np.full(part.shape, np.nan), where=whole > 0)
    return share


@dataclass(frozen=True)
class RepeatedTests:
    """K repeats of a test on P patients.

    Attributes
    ----------
    tested : (K, P) bool, True if the repeat tests the patient
    positive : (P,) bool
    weights : (R + 1, P) float64, how often each resample contains each patient

    """

    tested: Mask
    positive: Mask
    weights: Floats

    def auroc(self, scores: Floats) -> Floats:
        """Return the share of correctly ordered pairs, (R + 1,), for scores (K, P). A tie counts one half.

        Both patients of a pair belong to the same repeat. The result is NaN if there is no pair.
        """
        (together, pairs), one, other = self._pairs, scores[:, self.positive, None], scores[:, None, ~self.positive]
        higher = np.where(together, (one > other) + 0.5 * (one == other), 0.0).sum(axis=0)
        return share_of(self._weighted(higher), pairs)

    def balanced_accuracy(self, scores: Floats) -> Floats:
        """Return the balanced accuracy of the signs of scores (K, P), shape (R + 1,). A sign of 0 is half right.

        The result is the mean over the repeats with patients of both classes. It is NaN if there is no such repeat.
        """
        right = 0.5 + 0.5 * np.sign(scores) * np.where(self.positive, 1.0, -1.0)
        earned = np.where(self.tested, right, 0.0)
        both = np.ones((len(self.weights), len(scores)), dtype=np.bool_)
        shares = np.zeros(both.shape)
        for chosen, weights, total in self._classes:
            both &= total > 0
            shares += (weights @ earned[:, chosen].T) / np.maximum(total, 1) / 2
        return share_of((shares * both).sum(axis=1), both.sum(axis=1, dtype=np.float64))

    @cached_property
    def repeats(self) -> list[RepeatedTests]:
        """Return each repeat as one object, with every patient counted once."""
        plain = np.ones((1, len(self.positive)))
        return [RepeatedTests(self.tested[[k]], self.positive, plain) for k in range(len(self.tested))]

    @cached_property
    def _classes(self) -> list[tuple[Mask, Floats, Floats]]:
        """Return a mask, weights (R + 1, C), and tested weights (R + 1, K) for each class.

        The mask selects the C patients of the class. Tested weights are the sums of the weights of those patients of
        the class whom a repeat tests.
        """
        chosen = [(mask, self.weights[:, mask]) for mask in (self.positive, ~self.positive)]
        return [(mask, weights, weights @ self.tested[:, mask].T.astype(np.float64)) for mask, weights in chosen]

    @cached_property
    def _pairs(self) -> tuple[Mask, Floats]:
        """Return a mask of the tested pairs, and the number of tested pairs in each resample.

        A pair has a positive and a negative patient. The mask has one row for each repeat.

        """
        together = self.tested[:, self.positive, None] & self.tested[:, None, ~self.positive]
        return together, self._weighted(together.sum(axis=0))

    def _weighted(self, pairs: Floats | NDArray[np.int64]) -> Floats:
        (_, of_positive, _), (_, of_negative, _) = self._classes
        summed: Floats = ((of_positive @ pairs) * of_negative).sum(axis=1)
        return summed


BINS = 10
"""Number of equal bins of a probability from 0 to 1."""


def bins_of(probability: Floats) -> NDArray[np.int64]:
    """Return the bin of each probability, from 0; a probability of 1 is in the last bin."""
    return np.minimum((probability * BINS).astype(np.int64), BINS - 1)


def sums_by(unit: NDArray[np.int64], column: NDArray[np.int64], n_units: int, n_columns: int, values: Floats) -> Floats:
    """Return the sums of `values` by unit and column, (n_units, n_columns) float64."""
    sums = np.bincount(unit * n_columns + column, weights=values, minlength=n_units * n_columns)
    return sums.reshape(n_units, n_columns).astype(np.float64)


@dataclass(frozen=True)
class ProbabilitySums:
    """Sums over the cases of each of P units.

    The calibration error and the Brier score follow from these sums for any weights of the units.

    Attributes
    ----------
    excess : (P, BINS) float64, sums of (probability - truth) by bin of the probability
    squares : (P,) float64, sums of (probability - truth)^2
    n : (P,) float64, numbers of cases

    """

    excess: Floats
    squares: Floats
    n: Floats

    @classmethod
    def of(cls, probability: Floats, truth: Floats, unit: NDArray[np.int64], n_units: int) -> ProbabilitySums:
        """Return the sums of some cases.

        Parameters
        ----------
        probability, truth : (n,) float64
        unit : (n,) int64, index of each case's unit

        """
        squares, n = (
            sums_by(unit, unit * 0, n_units, 1, values)[:, 0]
            for values in ((probability - truth) ** 2, np.ones(len(probability)))
        )
        return cls(sums_by(unit, bins_of(probability), n_units, BINS, probability - truth), squares, n)

    def calibration_error(self, weights: Floats) -> Floats:
        """Return the expected calibration error, (R,).

        This is the mean of |mean probability - share of class 1| over the bins, weighted by their numbers of cases.
        """
        error: Floats = np.abs(weights @ self.excess).sum(axis=1) / (weights @ self.n)
        return error

    def brier(self, weights: Floats) -> Floats:
        """Return the mean of (probability - truth)^2, (R,)."""
        return (weights @ self.squares) / (weights @ self.n)
