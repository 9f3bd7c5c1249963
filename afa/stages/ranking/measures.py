"""What rankings of entities are held against: duels and the top k at full observation, labels, and sheer size.

There are two targets of the likelihood kind. `likelihood` is the ranking by the raw score at full observation, the
paper's; `own` is that by the scaled score at full observation, which is what a scaled ranking is on its way to.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from afa.bundle import Bundle
from afa.cohort.cohort import Cohort
from afa.engine.duels import all_pairs
from afa.engine.rounds import Truth
from afa.mrf import Floats
from afa.stages.allocation.tables import Targets, clinical_k
from afa.stages.ranking.scales import (
    Scale,
    cohort_scale,
    expected_counts,
    raw_scale,
    shuffled_scale,
    uniform_scale,
)
from afa.stages.ranking.ways import METHODS, Known, Signs, leads, places
from afa.stats.accuracy import constant_answers

LIKELIHOOD, OWN, CLINICAL, SIZE, POSTERIOR = "likelihood", "own", "clinical", "size", "posterior"
PRIOR_WRONG = "accuracy_prior_wrong"


@dataclass(frozen=True, eq=False)
class Aims:
    """What stays the same whatever the scale: P patients, N entities, Q duels.

    pairs : (Q, 2). sizes : (N,) features in the support. labels : (P, N) float, 0, 1 or NaN.
    """

    pairs: NDArray[np.int64]
    sizes: NDArray[np.int64]
    labels: Floats
    k: int
    k_clinical: int

    @classmethod
    def of(cls, bundle: Bundle, cohort: Cohort, k: int) -> Aims:
        labels = cohort.labels.reindex(index=list(cohort.patients), columns=list(bundle.entities))
        return cls(
            all_pairs(len(bundle.entities)),
            np.array([len(bundle.support(entity)) for entity in bundle.entities]),
            labels.astype("Float64").to_numpy(dtype=np.float64, na_value=np.nan),
            k,
            clinical_k(bundle, cohort, k),
        )

    def against_labels(self, place: NDArray[np.int64], threads: int | None) -> dict[str, Floats]:
        """Precision at k' and at all positives, and AUROC, of rankings (P, R, N); each (P, R) (decisions.md S10).

        Precisions are missing where a cohort labels too few entities for any k'.
        """
        nobody = np.zeros(self.labels.shape, dtype=np.bool_)
        none = np.zeros(len(self.labels), dtype=np.int64)
        found = Targets(self.k, self.k_clinical, nobody, nobody, none, self.labels).precisions(
            place.astype(np.int16), threads
        )
        return {
            "p_at_k": found["clinical_p_at_k"],
            "r_precision": found["clinical_r_precision"] if self.k_clinical else np.full(place.shape[:2], np.nan),
            "auroc": patient_auroc(place, self.labels),
        }


class Measured(NamedTuple):
    """One way held against one target. numbers : by metric, (P, R); `accuracy` in duels called right, a tie one half.

    duels, prior_wrong : (P,) duels with a winner, and those of them that this scale's `linearity` calls wrong before
    any observation; of the likelihood targets alone.
    """

    scale: str
    method: str
    target: str
    numbers: dict[str, Floats]
    duels: Floats | None = None
    prior_wrong: Floats | None = None


def scales_of(bundle: Bundle, values: NDArray[np.int8], observed: NDArray[np.bool_]) -> dict[str, Scale]:
    """Every scale by name, for P patients at R rounds: (N,) where it is the same for all, else (P, R, N)."""
    return {
        "raw": raw_scale(bundle),
        "uniform": uniform_scale(bundle),
        "cohort": cohort_scale(bundle, values),
        "shuffled": shuffled_scale(bundle, *expected_counts(values, observed)),
    }


def measure(
    seen: Known, scales: dict[str, Scale], aims: Aims, threads: int | None
) -> tuple[list[Measured], list[Signs]]:
    """Every way against every target, and what `population` rests on; and the winners by scale, (P, Q)."""
    found, winners = [], []
    raw: Truth | None = None
    for name, scale in scales.items():
        lead = np.concatenate([leads(seen, method, scale, aims.pairs) for method in METHODS], axis=1)
        place = places(lead, aims.pairs, len(aims.sizes), scale.tie)
        # at full observation any method, and `linearity`, the first, where all patients are one
        own = Truth(_signs(lead[:, -1]), place[:, -1], _signs(lead[0, 0]))
        raw = raw or own
        winners.append(own.winner)
        targets = {LIKELIHOOD: raw._replace(prior=own.prior)} | ({} if own is raw else {OWN: own})
        every = [_against(truth, target, lead, place, aims, threads) for target, truth in targets.items()]
        every.append(Measured("", "", CLINICAL, aims.against_labels(place, threads)))
        every.append(Measured("", "", SIZE, {"correlation": size_correlation(place, aims.sizes)}))
        for m, method in enumerate(METHODS):
            rounds = slice(m * len(seen.rounds), (m + 1) * len(seen.rounds))
            for one in every:
                numbers = {metric: values[:, rounds] for metric, values in one.numbers.items()}
                found.append(one._replace(scale=name, method=method, numbers=numbers))
    weights = {"of_null": seen.posterior[..., -1], "of_likeliest": seen.posterior[..., :-1].max(axis=2)}
    return [*found, Measured("raw", "population", POSTERIOR, weights)], winners


def _against(
    truth: Truth, target: str, lead: Floats, place: NDArray[np.int64], aims: Aims, threads: int | None
) -> Measured:
    """All methods one after the other along the second axis of lead (P, R, Q) and place (P, R, N)."""
    wrong = (truth.winner != 0) & (truth.prior == -truth.winner)
    called = np.sign(lead).astype(np.float32)
    top = Targets.of(truth, aims.labels, aims.k, aims.k_clinical)
    numbers = {
        "accuracy": _right(called, truth.winner),
        PRIOR_WRONG: _right(called, np.where(wrong, truth.winner, 0)),
        "p_at_k": top.precisions(place.astype(np.int16), threads)["p_at_k"],
    }
    duels, prior_wrong = ((mask != 0).sum(axis=1).astype(np.float64) for mask in (truth.winner, wrong))
    return Measured("", "", target, numbers, duels, prior_wrong)


def _signs(lead: Floats) -> Signs:
    return np.sign(lead).astype(np.int8)


def _right(called: NDArray[np.float32], winner: Signs) -> Floats:
    """(P, R) calls (P, R, Q) that a winner (P, Q) bears out, a tie one half; duels without a winner do not count."""
    agreement = (called @ winner.astype(np.float32)[:, :, None])[..., 0]
    right: Floats = (agreement.astype(np.float64) + (winner != 0).sum(axis=1)[:, None]) / 2
    return right


def best_constant(winner: Signs) -> Floats:
    """(P,) duels that the best constant answer has right, chosen on these same patients."""
    right: Floats = (constant_answers(winner)[0] * winner > 0).sum(axis=1).astype(np.float64)
    return right


def larger_first(winner: Signs, aims: Aims) -> Floats:
    """(P,) duels right where the entity of the larger support is called; equal supports are half right."""
    called = np.sign(aims.sizes[aims.pairs[:, 0]] - aims.sizes[aims.pairs[:, 1]])
    return _right(np.broadcast_to(called.astype(np.float32), (len(winner), 1, len(called))), winner)[:, 0]


def patient_auroc(place: NDArray[np.int64], labels: Floats) -> Floats:
    """(P, R) chance that a positive entity of the patient ranks before a negative one; ties one half.

    place : (P, R, N), equal for ties. labels : (P, N). NaN where the patient has labels of one class only.
    """
    p, r, n = place.shape
    positive, negative = labels == 1, labels == 0
    level = np.arange(p * r).reshape(p, r, 1) * n + place
    of_negatives = np.broadcast_to(negative[:, None, :], place.shape).ravel()
    here = np.bincount(level.ravel(), of_negatives, minlength=p * r * n).reshape(p, r, n)
    behind = here.sum(axis=2, keepdims=True) - np.cumsum(here, axis=2)
    beaten = np.take_along_axis(behind + here / 2, place, axis=2)
    pairs = (positive.sum(axis=1) * negative.sum(axis=1))[:, None].astype(np.float64)
    ahead = (beaten * positive[:, None, :]).sum(axis=2)
    area: Floats = np.divide(ahead, pairs, out=np.full((p, r), np.nan), where=pairs > 0)
    return area


def size_correlation(place: NDArray[np.int64], sizes: NDArray[np.int64]) -> Floats:
    """(P, R) Spearman correlation of standing and support: 1 where the largest support is first and so on down.

    place : (P, R, N). NaN where all entities tie, or have supports of one size.
    """
    flat = pd.DataFrame(place.reshape(-1, place.shape[-1]))
    standing, size = -flat.rank(axis=1).to_numpy().reshape(place.shape), pd.Series(sizes).rank().to_numpy()
    standing -= standing.mean(axis=-1, keepdims=True)
    size = size - size.mean()
    norm = np.sqrt((standing**2).sum(axis=-1) * (size**2).sum())
    correlation: Floats = np.divide(standing @ size, norm, out=np.full(norm.shape, np.nan), where=norm > 0)
    return correlation
