"""The walks of a simulation added up over patients: curves with intervals, and how many features were needed."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from afa.mrf import Floats
from afa.stages.allocation.cubes import UNIT
from afa.stages.labels.tasks import settled
from afa.stages.simulate.walks import DRAWN, IN_UNITS, Walk, Way
from afa.stats.resampling import interval

CURVES = ("allocation", "gain", "score", "seed", "t", "metric", "value", "low", "high", "n")
QUANTILES = {"q25": 0.25, "median": 0.5, "q75": 0.75, "p90": 0.9}
NEEDED = ("allocation", "gain", "score", "criterion", "counted", *QUANTILES, "never", "n", "left_out")
CONSTANT = Way("constant", "", "")
RESAMPLES_AT_ONCE = 100


@dataclass
class Sums:
    """What is known of one run (a way and a seed) once all blocks of patients have been added, in their order.

    right : by metric, (R + 1, M + 1) weighted sums over patients, the first row unweighted; total : (R + 1, 1).
    needed : by criterion and what is counted, features or cost, one array a block. scores : the same, (B, M + 1) each.
    """

    right: dict[str, Floats] = field(default_factory=dict)
    total: dict[str, Floats] = field(default_factory=dict)
    needed: dict[tuple[str, str], list[Floats]] = field(default_factory=dict)
    scores: list[Floats] = field(default_factory=list)
    _areas: Floats | None = None

    def add(self, walk: Walk, weights: Floats, *, keep_scores: bool) -> None:
        """Add a block of B patients; weights (R + 1, B) whole numbers, so that no order of adding up shows."""
        for metric, (right, total) in walk.parts.items():
            self.right[metric] = self.right.get(metric, 0.0) + weights @ right
            self.total[metric] = self.total.get(metric, 0.0) + weights @ total[:, None]
        for counted, needed in (("features", walk.needed), ("cost", walk.spent)):
            for criterion, numbers in needed.items():
                self.needed.setdefault((criterion, counted), []).append(numbers)
        if keep_scores and walk.scores is not None:
            self.scores.append(walk.scores)

    def areas(self, labels: Floats, weights: Floats) -> Floats:
        """(R + 1, M + 1) AUROC of the scores against labels (P,) in {0, 1, NaN}; computed once."""
        if self._areas is None:
            known = ~np.isnan(labels)
            self._areas = areas_of(np.concatenate(self.scores)[known], labels[known] > 0, weights[:, known])
        return self._areas


Runs = Mapping[tuple[Way, int], Sums]


def curves(runs: Runs, weights: Floats, labels: Floats, n_rounds: int, confidence: float) -> pd.DataFrame:
    """`CURVES`, t from 0 to M; `seed` is missing where all runs of a way are taken together.

    weights : (R + 1, P) as the runs were added with. labels : (P,) in {0, 1, NaN}, which the scores of the runs are
    held against. n_rounds : M + 1.
    """
    tables = []
    for way, seed, chosen in _together(runs):
        named = {**way._asdict(), "seed": seed}
        for metric in chosen[0].right:
            right = np.sum([each.right[metric] for each in chosen], axis=0)
            total = np.sum([each.total[metric] for each in chosen], axis=0)
            scale = UNIT if metric in IN_UNITS else 1
            share = np.divide(right, total * scale, out=np.full(right.shape, np.nan), where=total > 0)
            table = _with_interval(np.broadcast_to(share, (len(share), n_rounds)), confidence)
            tables.append(table.assign(**named, metric=metric, n=int(total[0, 0])))
        if chosen[0].scores:
            table = _with_interval(np.mean([each.areas(labels, weights) for each in chosen], axis=0), confidence)
            cases = int((~np.isnan(labels)).sum()) * len(chosen)
            tables.append(table.assign(**named, metric="label_auroc", n=cases))
    whole = pd.concat(tables, ignore_index=True)
    return whole.assign(seed=whole["seed"].astype("Int64"))[list(CURVES)]


def features_needed(runs: Runs) -> pd.DataFrame:
    """`NEEDED`: quantiles over patients, and over the runs of a way, of what a criterion needed in order to hold.

    What is `counted` are the features, and where costs differ their cost too. A quantile is one of the numbers that
    occurred; missing where so many patients never reach it. `never` is the share that does not, of `n`; `left_out`
    counts those for whom the criterion has no meaning.
    """
    rows = []
    for way, seed, chosen in _together(runs):
        if seed is not pd.NA:
            continue
        for criterion, counted in chosen[0].needed:
            rounds = np.concatenate([part for each in chosen for part in each.needed[criterion, counted]])
            known = np.sort(rounds[~np.isnan(rounds)])
            row: dict[str, object] = {**way._asdict(), "criterion": criterion, "counted": counted}
            for name, share in QUANTILES.items():
                value = known[max(int(np.ceil(share * len(known))) - 1, 0)] if len(known) else np.inf
                row[name] = np.nan if np.isinf(value) else value
            row |= {"never": float(np.isinf(known).mean()) if len(known) else np.nan, "n": len(known)}
            rows.append(row | {"left_out": len(rounds) - len(known)})
    return pd.DataFrame(rows, columns=list(NEEDED))


def areas_of(scores: Floats, positive: NDArray[np.bool_], weights: Floats) -> Floats:
    """(R, T) area under the ROC curve of scores (P, T), patients weighted by each row of (R, P); ties count one half.

    Scores that differ by rounding are ties. NaN where only one class has a weight.
    """
    scores = settled(scores)
    areas = np.empty((len(weights), scores.shape[1]))
    for begin in range(0, len(weights), RESAMPLES_AT_ONCE):
        some = slice(begin, begin + RESAMPLES_AT_ONCE)
        for t in range(scores.shape[1]):
            order = np.argsort(scores[:, t], kind="stable")
            ordered = scores[order, t]
            first = np.flatnonzero(np.append(True, ordered[1:] != ordered[:-1]))
            above = np.add.reduceat(weights[some][:, order] * positive[order], first, axis=1)
            below = np.add.reduceat(weights[some][:, order] * ~positive[order], first, axis=1)
            beaten = np.cumsum(below, axis=1) - below / 2
            both = above.sum(axis=1) * below.sum(axis=1)
            area = (above * beaten).sum(axis=1)
            areas[some, t] = np.divide(area, both, out=np.full(len(both), np.nan), where=both > 0)
    return areas


def _together(runs: Runs) -> Iterator[tuple[Way, object, Sequence[Sums]]]:
    """The runs of each way together, seed missing, and where orders are drawn each by itself too."""
    for way in dict.fromkeys(way for way, _ in runs):
        seeds = [seed for of, seed in runs if of == way]
        yield way, pd.NA, [runs[way, seed] for seed in seeds]
        if way.allocation in DRAWN:
            for seed in seeds:
                yield way, seed, [runs[way, seed]]


def _with_interval(statistics: Floats, confidence: float) -> pd.DataFrame:
    """`t`, `value`, `low`, `high` of (R + 1, M + 1), the first row being the value and the others its resamples."""
    low, high = interval(statistics[1:], confidence=confidence)
    return pd.DataFrame({"t": range(statistics.shape[1]), "value": statistics[0], "low": low, "high": high})
