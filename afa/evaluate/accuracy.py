"""Compute accuracies with bootstrap intervals over patients, and the accuracies of constant answers.

All arrays of decisions have patients on the first axis. A decision score of 0 counts as half correct (decisions.md S5).
Decisions with a target of 0 or a missing label are not counted (decisions.md S11). The array `weights`, (R, P),
contains how often each of R bootstrap resamples contains each of P patients. A function with the argument `weights`
returns one statistic for each resample. If a resample lacks a class that the statistic needs, the statistic is NaN.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from functools import cached_property, partial, reduce
from typing import Any, NamedTuple

import numpy as np
import pandas as pd

from afa.evaluate.resampling import patient_weights, with_interval
from afa.model.arrays import Bools, Codes, Floats, Ints

Part = tuple[Floats, Floats]
UNIT = 10_000_000
"""Shares are summed as multiples of 1 / UNIT, so that their weighted sums are exact in any order."""
TIE_DECIMALS = 9
"""Scores in nats count as equal if they agree to this number of decimals. Smaller differences come from the order of
sums.
"""
SURE, TIED = 2, 1
"""Codes of an entity at full observation. `SURE`: it is certainly in the patient's top k. `TIED`: it shares a rank with
other entities across the border of the top k.
"""


@dataclass(frozen=True)
class Resampled:
    """Compute shares of correct decisions, with percentile intervals over patients or other units.

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
        """Return one array for each column: the sum of the column for each unit and each value of `by`.

        Each array has the shape (P, T), with the values of `by` in ascending order. If `by` is None, each array has the
        shape (P, 1). For a unit without rows in the table, the sum is 0.
        """
        if by is None:
            whole = table.groupby(unit, sort=False)[list(columns)].sum().reindex(self.units).fillna(0.0)
            return [whole[[name]].to_numpy(float) for name in columns]
        parts = table.groupby([unit, by], sort=False)[list(columns)].sum().unstack(by).sort_index(axis=1)
        return [parts[name].reindex(self.units).fillna(0.0).to_numpy(float) for name in columns]

    def part(self, table: pd.DataFrame, right: str, total: str, *, by: str | None = "t", unit: str = "patient") -> Part:
        """Return the number of correct decisions and the number of decisions, as computed by `sums`."""
        first, second = self.sums(table, right, total, by=by, unit=unit)
        return first, second

    def share(
        self, table: pd.DataFrame, right: str, total: str, *, by: str | None = "t", unit: str = "patient"
    ) -> pd.DataFrame:
        """Return a table of the share sum(`right`) / sum(`total`) and its interval for each value of `by`."""
        shares = self.mean([self.part(table, right, total, by=by, unit=unit)])
        return shares if by is None else shares.assign(**{by: sorted(table[by].unique())})

    @property
    def every(self) -> Floats:
        """Return the weights of the patients, (1 + R, P): a row of ones, then one row for each resample."""
        return np.vstack([np.ones(self.weights.shape[1]), self.weights])

    @cached_property
    def _weights_by_unit(self) -> Floats:
        return np.ascontiguousarray(self.every.T)

    def drawn(self, names: Iterable[Any]) -> Floats:
        """Return the bootstrap weights of the C patients (or other units) in `names`, (1 + R, C).

        The first row contains ones, and each further row belongs to one resample.
        """
        return self._weights_by_unit[self.places(names)].T

    def places(self, names: Iterable[Any]) -> Ints:
        """Return the positions of the named units, (C,) int64, or -1 for an unknown unit."""
        return np.asarray(self.units.get_indexer(pd.Index(names)), dtype=np.int64)

    def statistic(self, of: Callable[[Floats], Floats], n: int | Ints) -> pd.DataFrame:
        """Return a table of a statistic with the columns `value`, `low`, `high` and `n`.

        The argument `of` is a function that takes the weights of the patients, (R, P), and returns the statistic of
        each resample, (R,) or (R, T).
        """
        found = of(self.every)
        return with_interval(found.reshape(len(found), -1), confidence=self.confidence).assign(n=n)

    def mean(self, parts: list[Part]) -> pd.DataFrame:
        """Return a table of the mean share of right decisions (`mean_ratio`) with its interval, one row for each t."""
        return self.statistic(partial(mean_ratio, parts), _case_counts(parts))

    def gap(self, parts: list[Part], against: list[Part]) -> pd.DataFrame:
        """Return the `mean_ratio` of `parts` minus the `mean_ratio` of `against`, as a table with intervals.

        Both mean ratios are computed from the same resamples.
        """
        return self.statistic(lambda w: mean_ratio(parts, w) - mean_ratio(against, w), _case_counts(parts))

    def of_duels(self, table: pd.DataFrame) -> Iterator[pd.DataFrame]:
        """Yield tables of accuracy for each t, computed from the counts of `afa.engine.outcomes.right_by_kind`.

        The metric `accuracy` is computed over all duels (comparisons of two entities), and again over the duels in the
        stratum `prior_wrong`, which are decided wrongly before any observation. The metric `balanced_accuracy` is the
        mean of the accuracies for the two possible winners of a duel.
        """
        kinds = ("", "_first", "_prior_wrong")
        sums = self.sums(table, *(f"{count}{kind}" for kind in kinds for count in ("right", "duels")))
        every, first, wrong = zip(sums[::2], sums[1::2], strict=True)
        second = every[0] - first[0], every[1] - first[1]
        yield by_t(self.mean([every])).assign(metric="accuracy")
        yield by_t(self.mean([first, second])).assign(metric="balanced_accuracy")
        yield by_t(self.mean([wrong])).assign(metric="accuracy", stratum="prior_wrong")

    def constant(self, target: Codes) -> Iterator[pd.DataFrame]:
        """Yield the accuracies of two constant answers: the more frequent sign in each column of `target`, and +1.

        Parameters
        ----------
        target : (P, Q) int8, -1, 0 or +1

        """
        for metric, answer in zip(("majority", "prevalence"), constant_answers(target), strict=True):
            yield self.mean([right_of(answer[:, :, None], target, target != 0)]).assign(metric=metric)


def mean_ratio(parts: list[Part], weights: Floats) -> Floats:
    """Return the share of right decisions, averaged over `parts`, for each resample and t, (R, T).

    A share is the weighted number of right decisions divided by the weighted number of all decisions. If one of the
    `parts` has no decision in a resample, the mean for this resample is NaN.

    Parameters
    ----------
    parts : pairs of (P, T) float64. The first array counts the right decisions, the second counts all decisions
    weights : (R, P) float64, weights of the patients

    """
    ratios = []
    for right, total in parts:
        constant = bool((total == total[:, :1]).all())  # usually the totals are the same at all t
        numerator, denominator = weights @ right, weights @ (total[:, :1] if constant else total)
        ratios.append(share_of(numerator, denominator))
    return reduce(np.add, ratios) / len(ratios)


def _case_counts(parts: list[Part]) -> Ints:
    cases: Ints = np.asarray(sum(total for _, total in parts)).sum(axis=0).astype(np.int64)
    return cases


def by_t(rows: pd.DataFrame) -> pd.DataFrame:
    """Return the table with a new column `t` that numbers the rows 0, 1, 2 and so on."""
    return rows.assign(t=np.arange(len(rows)))


def right_of(signs: Codes, target: Codes, among: Bools) -> Part:
    """Return two counts for each patient and t, (P, T) each: the correct decisions and all decisions.

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


def auroc(scores: Floats, positive: Bools) -> Floats:
    """Return the AUROC of each column of scores, (T,). Ties count one half.

    The AUROC is NaN if one class has no patients.

    Parameters
    ----------
    scores : (n, T) float64
    positive : (n,) bool

    """
    n_positive = int(positive.sum())
    n_negative = len(positive) - n_positive
    if n_positive == 0 or n_negative == 0:
        return np.full(scores.shape[1], np.nan)
    ranks = pd.DataFrame(scores).rank().to_numpy()[positive].sum(axis=0)
    area: Floats = (ranks - n_positive * (n_positive + 1) / 2) / (n_positive * n_negative)
    return area


def constant_answers(target: Codes) -> tuple[Codes, Codes]:
    """Return two constant answers, (P, E) int8 each: the majority answer of each task, and the answer +1.

    Parameters
    ----------
    target : (P, E) int8, -1, 0 or +1

    """
    majority = np.where(target.sum(axis=0, dtype=np.int64) >= 0, 1, -1).astype(np.int8)
    return np.broadcast_to(majority, target.shape).copy(), np.ones_like(target)


def fixed_top_k(top: Codes, k: int) -> list[int]:
    """Return the k entities with the largest total overlap with the patients' top k at full observation.

    If several sets have the same overlap, the first set found is returned.

    The sets are searched by branch and bound. The upper bound of the search is valid because an entity never adds more
    overlap to a set than to a subset of this set.

    Parameters
    ----------
    top : (P, N) int8. 2 means that the entity is certainly in the patient's top k, 1 that it is tied across rank k, and
        0 that it is not in the top k

    """
    sure, tied = (top == SURE).astype(np.int64), (top == TIED).astype(np.int64)
    room = k - sure.sum(axis=1)
    certain = sure.sum(axis=0)
    most_gained, best = -1, list[int]()

    def extend(members: list[int], gained: int, used: Ints, candidates: list[int]) -> None:
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


def overlap(top: Codes, chosen: list[int], k: int) -> Ints:
    """Return the number of `chosen` entities in each patient's top k, (P,).

    If tied entities compete for the last m places of a top k, at most m of the tied entities are counted.

    Parameters
    ----------
    top : as in `fixed_top_k`

    """
    sure = (top[:, chosen] == SURE).sum(axis=1)
    tied = (top[:, chosen] == TIED).sum(axis=1)
    shared: Ints = sure + np.minimum(tied, k - (top == SURE).sum(axis=1))
    return shared


def precisions_by_prevalence(labels: Floats, k: int) -> dict[str, Floats]:
    """Return the metrics `p_at_k` and `r_precision` of a ranking of the entities by prevalence, (P,) each.

    `p_at_k` and `r_precision` are NaN for a patient without a positive label.

    Parameters
    ----------
    labels : (P, N) float64, 0, 1 or NaN

    """
    known, positives = (~np.isnan(labels)).sum(axis=1), (labels == 1).sum(axis=1)
    return {
        metric: np.where(positives > 0, positives_by_prevalence(labels, places) / np.maximum(places, 1), np.nan)
        for metric, places in (("p_at_k", np.minimum(k, known)), ("r_precision", positives))
    }


def positives_by_prevalence(labels: Floats, places: Ints) -> Floats:
    """Return how many of the most prevalent entities have a positive label in each patient, (P,) float64.

    For each patient, `places` states how many of the most prevalent entities are considered. An entity without a label
    for a patient is removed from this patient's ranking. If entities of equal prevalence are tied for the last places,
    these places are divided equally among the tied entities.

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


def rounded_scores(scores: Floats) -> Floats:
    """Return rounded scores, so that equal sums computed in different orders become equal.

    Parameters
    ----------
    scores : float64 array of any shape, nats

    """
    return np.round(scores, TIE_DECIMALS) + 0.0


def areas_of(scores: Floats, positive: Bools, weights: Floats) -> Floats:
    """Return the area under the ROC curve of each column of scores for each resample, (R, T).

    A pair of patients with tied scores counts one half. Scores tie if they differ only by rounding error. The area is
    NaN if only one class has weight in the resample.

    Parameters
    ----------
    scores : (P, T) float64
    positive : (P,) bool
    weights : (R, P) float64

    """
    weights = np.asfortranarray(weights)
    return np.stack([ranking_metrics(column, positive, weights)[0] for column in rounded_scores(scores).T], axis=1)


def ranking_metrics(scores: Floats, positive: Bools, weights: Floats) -> tuple[Floats, Floats]:
    """Return the area under the ROC curve and the average precision of each resample, (R,) each.

    In the area under the ROC curve, a pair of tied scores counts one half. The average precision is the sum, over all
    thresholds, of the precision times the increase in recall. Tied scores share one threshold: if all scores are equal,
    the average precision is the prevalence. `ranking_metrics` is fast if the weights of a patient are contiguous in
    memory.

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
    """Store shares of right decisions. The balanced accuracy is the mean of sensitivity and specificity.

    Attributes
    ----------
    accuracy : (R,) float64, share of right decisions among all patients, for each resample
    balanced_accuracy : (R,) float64, mean of `sensitivity` and `specificity`
    sensitivity : (R,) float64, share of right decisions among positive patients, or NaN if a resample has none
    specificity : (R,) float64, share of right decisions among negative patients, or NaN if a resample has none

    """

    accuracy: Floats
    balanced_accuracy: Floats
    sensitivity: Floats
    specificity: Floats


def accuracies(scores: Floats, positive: Bools, weights: Floats) -> Decided:
    """Treat the signs of scores as decisions, and return their accuracies for each resample, (R,) each.

    A patient with score 0 counts as half correct.

    Parameters
    ----------
    scores, positive : (P,) float64 and bool
    weights : (R, P) float64

    """
    right = 0.5 + 0.5 * np.sign(scores) * np.where(positive, 1.0, -1.0)
    classes = np.stack([positive, ~positive], axis=1).astype(np.float64)
    counts, earned = weights @ classes, weights @ (classes * right[:, None])
    of_ill, of_others = share_of(earned, counts).T
    return Decided(earned.sum(axis=1) / counts.sum(axis=1), (of_ill + of_others) / 2, of_ill, of_others)


def share_of(part: Floats, whole: Floats) -> Floats:
    """Return `part` divided by `whole`, or NaN where `whole` is 0.

    Parameters
    ----------
    part, whole : float64 arrays of equal shape

    """
    share: Floats = np.divide(part, whole, out=np.full(part.shape, np.nan), where=whole > 0)
    return share


BINS = 10
"""Number of equal bins of a probability from 0 to 1."""


def bins_of(probability: Floats) -> Ints:
    """Return the index, from 0, of the bin that contains each probability; a probability of 1 is in the last bin.

    Parameters
    ----------
    probability : float64 array of any shape, in [0, 1]

    """
    return np.minimum((probability * BINS).astype(np.int64), BINS - 1)
