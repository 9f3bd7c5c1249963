"""Accuracy over a cohort from signs and targets: shares, their intervals over patients, and what stands beside them.

Decisions are cubes: patients first, everything else of a patient after that. A score of 0 is half right (decisions.md
S5); a target of 0, or a missing label, leaves the decision out (decisions.md S11). Measures under weights (R, P), whole
numbers, take one row a resample and give (R,); NaN where a resample has one class only.
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
"""Surely in a patient's top k at full observation; tied across rank k."""


@dataclass(frozen=True)
class Resampled:
    """Shares over patients, or over other units, with percentile intervals.

    units : names, in the order of the first axis of all counts. weights : (R, P) how often each resample draws a unit.
    """

    units: pd.Index
    weights: Floats
    confidence: float

    @classmethod
    def of(cls, units: Iterable[Any], *, resamples: int, confidence: float, purpose: str) -> Resampled:
        names = pd.Index(list(units))
        return cls(names, patient_weights(len(names), resamples=resamples, purpose=purpose), confidence)

    def sums(self, table: pd.DataFrame, *columns: str, by: str | None = "t", unit: str = "patient") -> list[Floats]:
        """(P, T) sums of each column by unit and by the values of `by`, ascending; 0 without a row. (P, 1) by none."""
        if by is None:
            whole = table.groupby(unit, sort=False)[list(columns)].sum().reindex(self.units).fillna(0.0)
            return [whole[[name]].to_numpy(float) for name in columns]
        parts = table.groupby([unit, by], sort=False)[list(columns)].sum().unstack(by).sort_index(axis=1)
        return [parts[name].reindex(self.units).fillna(0.0).to_numpy(float) for name in columns]

    def part(self, table: pd.DataFrame, right: str, total: str, *, by: str | None = "t", unit: str = "patient") -> Part:
        """`sums` of two columns: what is right, and of how many."""
        first, second = self.sums(table, right, total, by=by, unit=unit)
        return first, second

    def share(
        self, table: pd.DataFrame, right: str, total: str, *, by: str | None = "t", unit: str = "patient"
    ) -> pd.DataFrame:
        """`mean` of the sums of one column over those of another, with the values of `by`."""
        shares = self.mean([self.part(table, right, total, by=by, unit=unit)])
        return shares if by is None else shares.assign(**{by: sorted(table[by].unique())})

    @property
    def every(self) -> Floats:
        """(1 + R, P) weights: every patient once, then the resamples."""
        return np.vstack([np.ones(self.weights.shape[1]), self.weights])

    @cached_property
    def _by_unit(self) -> Floats:
        return np.ascontiguousarray(self.every.T)

    def drawn(self, names: Iterable[Any]) -> Floats:
        """(1 + R, C) `every` of some units by name; those of one unit lie side by side, as `ranking` likes it."""
        return self._by_unit[self.places(names)].T

    def places(self, names: Iterable[Any]) -> NDArray[np.int64]:
        """Places of some units by name; -1 of one that is not among them."""
        return np.asarray(self.units.get_indexer(pd.Index(names)), dtype=np.int64)

    def statistic(self, of: Callable[[Floats], Floats], n: int | NDArray[np.int64]) -> pd.DataFrame:
        """`value`, `low`, `high`, `n` of any statistic that maps weights (R, P) to its values (R,) or (R, T)."""
        plain, drawn = (of(weights) for weights in (np.ones((1, self.weights.shape[1])), self.weights))
        low, high = interval(drawn.reshape(len(drawn), -1), confidence=self.confidence)
        return pd.DataFrame({"value": plain.ravel(), "low": low, "high": high, "n": n})

    def mean(self, parts: list[Part]) -> pd.DataFrame:
        """The same by column of the mean over parts of sum(right) / sum(total), each (P, T)."""
        return self.statistic(partial(mean_ratio, parts), _cases(parts))

    def gap(self, parts: list[Part], against: list[Part]) -> pd.DataFrame:
        """The same for the difference of two such means; both are resampled together."""
        return self.statistic(lambda w: mean_ratio(parts, w) - mean_ratio(against, w), _cases(parts))

    def of_duels(self, table: pd.DataFrame) -> Iterator[pd.DataFrame]:
        """Rows by t of the counts of `afa.engine.rounds.right_by_kind`.

        `accuracy`, `balanced_accuracy` over the two sides of a duel, and `accuracy` in the stratum `prior_wrong`.
        """
        kinds = ("", "_first", "_prior_wrong")
        sums = self.sums(table, *(f"{count}{kind}" for kind in kinds for count in ("right", "duels")))
        every, first, wrong = zip(sums[::2], sums[1::2], strict=True)
        second = every[0] - first[0], every[1] - first[1]
        yield by_t(self.mean([every])).assign(metric="accuracy")
        yield by_t(self.mean([first, second])).assign(metric="balanced_accuracy")
        yield by_t(self.mean([wrong])).assign(metric="accuracy", stratum="prior_wrong")

    def constant(self, target: Signs) -> Iterator[pd.DataFrame]:
        """What needs no observation, target (P, Q): `majority`, the best constant answers, and `prevalence`, of 1."""
        for metric, answer in zip(("majority", "prevalence"), constant_answers(target), strict=True):
            yield self.mean([right_of(answer[:, :, None], target, target != 0)]).assign(metric=metric)


def mean_ratio(parts: list[Part], weights: Floats) -> Floats:
    """Mean over parts of sum(right) / sum(total), (R, T), patients weighted by each row of `weights` (R, P).

    NaN where a part has no case.
    """
    ratios = []
    for right, total in parts:
        constant = bool((total == total[:, :1]).all())  # mostly, and then one product is enough
        numerator, denominator = weights @ right, weights @ (total[:, :1] if constant else total)
        ratios.append(share_of(numerator, denominator))
    return reduce(np.add, ratios) / len(ratios)


def _cases(parts: list[Part]) -> NDArray[np.int64]:
    cases: NDArray[np.int64] = np.asarray(sum(total for _, total in parts)).sum(axis=0).astype(np.int64)
    return cases


def by_t(rows: pd.DataFrame) -> pd.DataFrame:
    """Rows of the rounds 0 to the last, with their t."""
    return rows.assign(t=np.arange(len(rows)))


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


def fixed_top_k(top: Signs, k: int) -> list[int]:
    """The k entities that overlap most, all patients together, with the top-k at full observation; the first such.

    top : (P, N), 2 surely in a patient's top-k, 1 tied across rank k, 0 out. Found by branch and bound: what an entity
    adds to a set only shrinks as the set grows, so the largest additions bound what is still to come.
    """
    sure, tied = (top == SURE).astype(np.int64), (top == TIED).astype(np.int64)
    room = k - sure.sum(axis=1)
    certain = sure.sum(axis=0)
    best_worth, best = -1, list[int]()

    def extend(members: list[int], worth: int, used: NDArray[np.int64], candidates: list[int]) -> None:
        nonlocal best_worth, best
        if len(members) == k:
            if worth > best_worth:
                best_worth, best = worth, members
            return
        added = certain + (used < room).astype(np.int64) @ tied
        order = sorted(candidates, key=lambda v: (-added[v], v))
        for place, v in enumerate(order):
            if worth + int(added[order[place : place + k - len(members)]].sum()) <= best_worth:
                return
            extend([*members, v], worth + int(added[v]), used + tied[:, v], order[place + 1 :])

    extend([], 0, np.zeros(len(top), dtype=np.int64), list(range(top.shape[1])))
    return sorted(best)


def overlap(top: Signs, chosen: list[int], k: int) -> NDArray[np.int64]:
    """(P,) entities of one answer in each patient's top-k; of those tied across rank k as many as there is room for.

    top : as in `fixed_top_k`.
    """
    sure = (top[:, chosen] == SURE).sum(axis=1)
    tied = (top[:, chosen] == TIED).sum(axis=1)
    shared: NDArray[np.int64] = sure + np.minimum(tied, k - (top == SURE).sum(axis=1))
    return shared


def precisions_by_prevalence(labels: Floats, k: int) -> dict[str, Floats]:
    """(P,) `p_at_k` and `r_precision` of the order by prevalence against labels (P, N); NaN without a positive one."""
    known, positives = (~np.isnan(labels)).sum(axis=1), (labels == 1).sum(axis=1)
    return {
        metric: np.where(positives > 0, positives_by_prevalence(labels, places) / np.maximum(places, 1), np.nan)
        for metric, places in (("p_at_k", np.minimum(k, known)), ("r_precision", positives))
    }


def positives_by_prevalence(labels: Floats, places: NDArray[np.int64]) -> Floats:
    """(P,) positive labels that each patient has on the first so many places of the order by prevalence.

    labels : (P, N) in {0, 1}, NaN where missing; prevalence is that of these labels. places : (P,). Entities whose
    label a patient lacks leave that patient's order; entities of equal prevalence share their places evenly.
    """
    known = ~np.isnan(labels)
    prevalence = np.nansum(labels, axis=0) / np.maximum(known.sum(axis=0), 1)
    ahead = known @ (prevalence[:, None] > prevalence).astype(np.float64)
    equal = known @ (prevalence[:, None] == prevalence).astype(np.float64)
    held = np.clip((places[:, None] - ahead) / np.maximum(equal, 1), 0, 1)
    positives: Floats = (held * (labels == 1)).sum(axis=1)
    return positives


def ranking(scores: Floats, positive: Mask, weights: Floats) -> tuple[Floats, Floats]:
    """Area under the ROC curve, ties counted one half; and average precision, ties entering together.

    scores, positive : (P,). Average precision is the sum over thresholds of the precision there times the recall that
    the threshold adds: the prevalence where all scores are equal. Fast where a patient's weights lie side by side.
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
    """Shares of right decisions: of all patients, as the mean over the two classes, and of either class."""

    accuracy: Floats
    balanced_accuracy: Floats
    sensitivity: Floats
    specificity: Floats


def accuracies(scores: Floats, positive: Mask, weights: Floats) -> Decided:
    """How often the signs of scores (P,) are right."""
    right = 0.5 + 0.5 * np.sign(scores) * np.where(positive, 1.0, -1.0)
    classes = np.stack([positive, ~positive], axis=1).astype(np.float64)
    counts, earned = weights @ classes, weights @ (classes * right[:, None])
    of_ill, of_others = share_of(earned, counts).T
    return Decided(earned.sum(axis=1) / counts.sum(axis=1), (of_ill + of_others) / 2, of_ill, of_others)


def share_of(part: Floats, whole: Floats) -> Floats:
    """What `part` is of `whole`; NaN where that is 0."""
    share: Floats = np.divide(part, whole, out=np.full(part.shape, np.nan), where=whole > 0)
    return share


@dataclass(frozen=True)
class RepeatedTests:
    """Who of P patients was asked about in which of K repeats (K, P), and is positive (P,); with weights (R + 1, P)."""

    tested: Mask
    positive: Mask
    weights: Floats

    def auroc(self, scores: Floats) -> Floats:
        """(R + 1,) share of the pairs of one repeat that scores (K, P) put in order, ties one half; NaN without any."""
        (together, pairs), one, other = self._pairs, scores[:, self.positive, None], scores[:, None, ~self.positive]
        higher = np.where(together, (one > other) + 0.5 * (one == other), 0.0).sum(axis=0)
        return share_of(self._weighted(higher), pairs)

    def balanced_accuracy(self, scores: Floats) -> Floats:
        """(R + 1,) mean over classes of the share of signs of scores (K, P) that are right, 0 being half right.

        A mean over repeats, of those in which both classes are drawn; NaN without any.
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
        """Each repeat by itself, with all patients counted once."""
        plain = np.ones((1, len(self.positive)))
        return [RepeatedTests(self.tested[[k]], self.positive, plain) for k in range(len(self.tested))]

    @cached_property
    def _classes(self) -> list[tuple[Mask, Floats, Floats]]:
        """Who is positive and who negative; with their weights (R + 1, C), and those of the tested, (R + 1, K)."""
        chosen = [(mask, self.weights[:, mask]) for mask in (self.positive, ~self.positive)]
        return [(mask, weights, weights @ self.tested[:, mask].T.astype(np.float64)) for mask, weights in chosen]

    @cached_property
    def _pairs(self) -> tuple[Mask, Floats]:
        """Which pairs of both classes are tested in which repeat, and how often each resample has any of them."""
        together = self.tested[:, self.positive, None] & self.tested[:, None, ~self.positive]
        return together, self._weighted(together.sum(axis=0))

    def _weighted(self, pairs: Floats | NDArray[np.int64]) -> Floats:
        (_, of_positive, _), (_, of_negative, _) = self._classes
        summed: Floats = ((of_positive @ pairs) * of_negative).sum(axis=1)
        return summed


BINS = 10
"""Of a probability, from 0 to 1."""


def bins_of(probability: Floats) -> NDArray[np.int64]:
    """The number of each probability's bin, from 0; 1 is in the last."""
    return np.minimum((probability * BINS).astype(np.int64), BINS - 1)


def sums_by(unit: NDArray[np.int64], column: NDArray[np.int64], n_units: int, n_columns: int, values: Floats) -> Floats:
    """(n_units, n_columns) sums of values, each at its unit and column."""
    sums = np.bincount(unit * n_columns + column, weights=values, minlength=n_units * n_columns)
    return sums.reshape(n_units, n_columns).astype(np.float64)


@dataclass(frozen=True)
class ProbabilitySums:
    """Sums over the cases of each of P units, from which the measures follow for any weights of the units, (R, P).

    excess : (P, BINS) probabilities less truths, summed by bin of probability. squares, n : (P,) sums of
    (probability - truth)^2, and cases.
    """

    excess: Floats
    squares: Floats
    n: Floats

    @classmethod
    def of(cls, probability: Floats, truth: Floats, unit: NDArray[np.int64], n_units: int) -> ProbabilitySums:
        """Sums of cases; `unit` is the unit of each."""
        squares, n = (
            sums_by(unit, unit * 0, n_units, 1, values)[:, 0]
            for values in ((probability - truth) ** 2, np.ones(len(probability)))
        )
        return cls(sums_by(unit, bins_of(probability), n_units, BINS, probability - truth), squares, n)

    def calibration_error(self, weights: Floats) -> Floats:
        """Mean over cases of |mean probability - share of class 1| of their bin, (R,)."""
        error: Floats = np.abs(weights @ self.excess).sum(axis=1) / (weights @ self.n)
        return error

    def brier(self, weights: Floats) -> Floats:
        """Mean of (probability - truth)^2, (R,)."""
        return (weights @ self.squares) / (weights @ self.n)
