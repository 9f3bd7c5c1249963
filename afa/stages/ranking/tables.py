"""Rankings of entities at t observations, by what is expected of hidden features and by the scale of the scores.

Three questions to the top-k setting. How much of what a ranking says early is the size of the elicited lists, which is
known before any observation? What is left on scales that take size out? And does a mixture over all entities expect
more of the unobserved features than the two entities of a duel do? Held against full observation, and against labels.

There are two targets of the likelihood kind. `likelihood` is the ranking by the raw score at full observation, the
paper's; `own` is that by the scaled score at full observation, which is what a scaled ranking is on its way to.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
import pandas as pd
from numpy.typing import NDArray
from scipy.stats import rankdata

from afa.bundle import Bundle
from afa.cohort.cohort import Cohort
from afa.engine.duels import all_pairs
from afa.engine.rounds import Truth
from afa.inference.meanfield import Solver
from afa.mrf import Floats
from afa.orders import random_orders
from afa.stages.inputs import labels_of, shuffled_genes, top_k_size
from afa.stages.ranking.ways import METHODS, Known, Scale, cohort_scale, known, leads, places, scales_of, whole_scores
from afa.stages.topk import Targets, clinical_k
from afa.stats.accuracy import Signs, constant_answers, share_of
from afa.stats.tables import rows_of

if TYPE_CHECKING:
    from afa.stages.ranking import Settings
    from afa.stages.settings import Inference

LIKELIHOOD, OWN, CLINICAL, SIZE, POSTERIOR = "likelihood", "own", "clinical", "size", "posterior"
PRIOR_WRONG = "accuracy_prior_wrong"
WAY = ["scale", "method"]
AT_ONCE = 20
"""Shuffled bundles that are read at full observation together."""


def run(
    bundle: Bundle, cohort: Cohort, *, ranking: Settings, top_k: int, inference: Inference, threads: int | None = None
) -> dict[str, pd.DataFrame]:
    """All that the stage knows of N entities ranked at 0, those of `rounds` that are below M, and M, in random orders.

    Returns seven tables; `scale` and `method` are the way of ranking.

    `decisions`, by (way, target, seed, patient, t): `accuracy`, duels called right, a tie one half;
    `accuracy_prior_wrong`, the same of those that this scale's `linearity` calls wrong before any observation;
    `p_at_k`, overlap of the k best with those at full observation, over k. target : `likelihood`, `own`.

    `rankings`, by (way, seed, patient, t): `p_at_k`, `r_precision` and `auroc` against the patient's labels, missing
    where the patient has none positive, or one class only; `correlation` of standing and support.

    `truth`, by (scale, target, patient): `duels` with a winner, those `prior_wrong`, `majority`, those that the best
    constant answer has right, and `larger`, those that the larger support wins. `entities`, by (scale, entity):
    `support`, `couplings`, and `mean` and `sd` of the scale, for `shuffled` those at full observation, a mean over
    patients. `labels`, by (patient, entity).

    `posterior`, by (seed, patient, t): probability `of_null` and `of_likeliest`, the largest of any entity.

    `null`, by (way, target, t, permutation, metric): `value` of bundles with shuffled genes, of all patients;
    `permutations` of them along the orders of the first seed, `whole_permutations` at full observation.
    """
    aims, solver = Aims.of(bundle, cohort, top_k_size(bundle, top_k)), Solver(**dict(inference))
    shown = sorted(t for t in ranking.rounds if t < len(bundle.features))
    decisions, rankings, posterior = list[pd.DataFrame](), list[pd.DataFrame](), list[pd.DataFrame]()
    truth = pd.DataFrame()
    for seed in ranking.seeds:
        seen = known(bundle, cohort.values, _orders(cohort, seed), shown, solver=solver, threads=threads)
        scales = scales_of(bundle, cohort.values, seen.observed)
        found = measure(seen, scales, aims, threads)
        for one in found:
            parts = {CLINICAL: rankings, POSTERIOR: posterior}.get(one.target, decisions)
            parts.append(_table(one, cohort, seen.rounds, seed))
        if truth.empty:
            truth, entities = _truth(found, cohort, aims), _entities(bundle, scales, aims)
    null, orders = list[pd.DataFrame](), _orders(cohort, ranking.seeds[0])
    for permutation in range(ranking.permutations):  # each gene has the values of another, and the order stays
        # contiguous, or each kernel is compiled a second time for another layout of its input
        values = np.ascontiguousarray(cohort.values[:, shuffled_genes(len(bundle.features), permutation)])
        seen = known(bundle, values, orders, shown, solver=solver, threads=threads)
        lines = [
            (one.scale, one.method, target_of(metric, one.target), metric, mean_of(each, one.truth, metric)[:-1])
            for one in measure(seen, scales_of(bundle, values, seen.observed), aims, threads)
            for metric, each in one.numbers.items()
            if metric != PRIOR_WRONG
        ]
        null.append(_null_table(lines, t=seen.rounds[:-1], permutation=permutation))
    null += _whole_null(bundle, cohort.values, ranking.whole_permutations, aims, threads)
    return {
        "decisions": pd.concat(decisions, ignore_index=True),
        "rankings": pd.concat(rankings, ignore_index=True).drop(columns="target"),
        "posterior": pd.concat(posterior, ignore_index=True).drop(columns=[*WAY, "target"]),
        "truth": truth,
        "entities": entities,
        "labels": rows_of(patient=cohort.patients, entity=bundle.entities).assign(
            label=pd.array(aims.labels.ravel(), dtype="Float64").astype("Int8"), k=aims.k, k_clinical=aims.k_clinical
        ),
        "null": pd.concat(null, ignore_index=True),
    }


def _orders(cohort: Cohort, seed: int) -> NDArray[np.int64]:
    return random_orders(cohort.features, cohort.patients, [seed])[:, 0]


def _table(one: Measured, cohort: Cohort, rounds: Sequence[int], seed: int) -> pd.DataFrame:
    keys: dict[str, list[Any]] = {"scale": [one.scale], "method": [one.method], "target": [one.target], "seed": [seed]}
    table = rows_of(**keys, patient=cohort.patients, t=np.array(rounds, dtype=np.int32))
    return table.assign(**{name: values.ravel() for name, values in one.numbers.items()})


def _truth(found: Sequence[Measured], cohort: Cohort, aims: Aims) -> pd.DataFrame:
    tables = []
    for one in found:
        if one.method == METHODS[0] and one.truth is not None:
            winner = one.truth.winner
            right = (constant_answers(winner)[0] * winner > 0).sum(axis=1)
            counts = {"duels": (winner != 0).sum(axis=1), "prior_wrong": wrong_before(one.truth).sum(axis=1)}
            whole = {name: each.astype(np.int32) for name, each in {**counts, "majority": right}.items()}
            table = rows_of(scale=[one.scale], target=[one.target], patient=cohort.patients)
            larger = np.sign(aims.sizes[aims.pairs[:, 0]] - aims.sizes[aims.pairs[:, 1]]).astype(np.float32)
            called = np.broadcast_to(larger, (len(winner), 1, len(larger)))
            tables.append(table.assign(**whole, larger=_right(called, winner)[:, 0]))
    return pd.concat(tables, ignore_index=True)


def _entities(bundle: Bundle, scales: dict[str, Scale], aims: Aims) -> pd.DataFrame:
    tables = []
    for name, scale in scales.items():
        mean, sd = (each[:, -1].mean(axis=0) if each.ndim > 1 else each for each in (scale.mean, scale.sd))
        couplings = np.diff(bundle.packed.pointer)
        table = rows_of(scale=[name], entity=bundle.entities)
        tables.append(table.assign(support=aims.sizes, couplings=couplings, mean=mean, sd=sd))
    return pd.concat(tables, ignore_index=True)


def _null_table(
    lines: Sequence[tuple[str, str, str, str, Floats]], *, t: int | Sequence[int], permutation: int | Sequence[int]
) -> pd.DataFrame:
    """A row for each value (n,) of each line (scale, method, target, metric, values); t, permutation : one, or n."""
    table, n = pd.DataFrame(lines, columns=[*WAY, "target", "metric", "value"]), len(lines[0][-1])
    table = table.loc[table.index.repeat(n)].reset_index(drop=True)
    for name, number in (("t", t), ("permutation", permutation)):
        table[name] = np.tile(np.broadcast_to(number, n), len(lines))
    return table.assign(value=np.concatenate([values for *_, values in lines]))


def mean_of(values: Floats, truth: Truth | None, metric: str) -> Floats:
    """(R,) one number of all patients: duels together, all else a mean over the patients who have it, NaN if none."""
    if metric == "accuracy" and truth is not None:
        return share_of(values.sum(axis=0), np.array([(truth.winner != 0).sum()], dtype=np.float64))
    return share_of(np.nansum(values, axis=0), (~np.isnan(values)).sum(axis=0, dtype=np.float64))


def _whole_null(
    bundle: Bundle, values: NDArray[np.int8], permutations: int, aims: Aims, threads: int | None
) -> Iterator[pd.DataFrame]:
    """Shuffled bundles at full observation, against labels and size; all methods are one there and nothing is inferred.

    Of the other scales a shuffled bundle has those of the real one, as its genes' values are the patient's own.
    """
    p, m = values.shape
    everything = np.ones((p, 1, m), dtype=np.bool_)
    fixed = scales_of(bundle, values, everything)
    for first in range(0, permutations, AT_ONCE):
        numbers = range(first, min(first + AT_ONCE, permutations))
        shuffled = [values[:, shuffled_genes(m, permutation)] for permutation in numbers]
        scores = np.stack([whole_scores(bundle, each) for each in shuffled], axis=1)
        drawn = [cohort_scale(bundle, each) for each in shuffled]
        of_cohort = Scale(np.stack([s.mean for s in drawn]), np.stack([s.sd for s in drawn]), drawn[0].reach)
        lines = []
        for name, scale in (fixed | {"cohort": of_cohort}).items():
            scaled = (scores - scale.mean) * scale.divisor
            lead = scaled[..., aims.pairs[:, 0]] - scaled[..., aims.pairs[:, 1]]
            lead[np.abs(lead) <= scale.tie] = 0.0
            place = places(lead, aims.pairs, len(aims.sizes), scale.tie)
            for metric, each in aims.without_truth(place, threads).items():
                value, target = mean_of(each, None, metric), target_of(metric)
                lines += [(name, method, target, metric, value) for method in METHODS]
        yield _null_table(lines, t=m, permutation=numbers)


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
        sizes = np.array([len(bundle.support(entity)) for entity in bundle.entities])
        pairs, labels = all_pairs(len(bundle.entities)), labels_of(bundle, cohort)
        return cls(pairs, sizes, labels, k, clinical_k(labels, k))

    def without_truth(self, place: NDArray[np.int64], threads: int | None) -> dict[str, Floats]:
        """Precision at k' and at all positives, and AUROC, of rankings (P, R, N); each (P, R) (decisions.md S10).

        And `correlation` with the size of supports.

        Precisions are missing where a cohort labels too few entities for any k'.
        """
        nobody = np.zeros(self.labels.shape, dtype=np.bool_)
        none = np.zeros(len(self.labels), dtype=np.int64)
        top = Targets(self.k, self.k_clinical, nobody, nobody, none, self.labels)
        found = top.precisions(place.astype(np.int16), threads)
        return {
            "p_at_k": found["clinical_p_at_k"],
            "r_precision": found["clinical_r_precision"] if self.k_clinical else np.full(place.shape[:2], np.nan),
            "auroc": patient_auroc(place, self.labels),
            "correlation": size_correlation(place, self.sizes),
        }


class Measured(NamedTuple):
    """One way held against one target. numbers : by metric, (P, R); `accuracy` in duels called right, a tie one half.

    truth : what is right, of the likelihood targets alone; its `prior` is what `linearity` calls on this scale before
    any observation.
    """

    scale: str
    method: str
    target: str
    numbers: dict[str, Floats]
    truth: Truth | None = None


def target_of(metric: str, target: str = CLINICAL) -> str:
    """Size is a target of its own beside the labels."""
    return SIZE if metric == "correlation" else target


def measure(seen: Known, scales: dict[str, Scale], aims: Aims, threads: int | None) -> list[Measured]:
    """Every way against every target, and what `population` rests on."""
    found: list[Measured] = []
    raw: Truth | None = None
    for name, scale in scales.items():
        lead = np.concatenate([leads(seen, method, scale, aims.pairs) for method in METHODS], axis=1)
        place = places(lead, aims.pairs, len(aims.sizes), scale.tie)
        # at full observation any method, and `linearity`, the first, where all patients are one
        own = Truth(np.sign(lead[:, -1]).astype(np.int8), place[:, -1], np.sign(lead[0, 0]).astype(np.int8))
        raw = raw or own
        targets = {LIKELIHOOD: raw._replace(prior=own.prior)} | ({} if own is raw else {OWN: own})
        every, called = list[Measured](), np.sign(lead).astype(np.float32)
        for target, truth in targets.items():
            top = Targets.of(truth, aims.labels, aims.k, aims.k_clinical)
            numbers = {
                "accuracy": _right(called, truth.winner),
                PRIOR_WRONG: _right(called, np.where(wrong_before(truth), truth.winner, 0)),
                "p_at_k": top.precisions(place.astype(np.int16), threads)["p_at_k"],
            }
            every.append(Measured("", "", target, numbers, truth))
        every.append(Measured("", "", CLINICAL, aims.without_truth(place, threads)))
        for m, method in enumerate(METHODS):
            rounds = slice(m * len(seen.rounds), (m + 1) * len(seen.rounds))
            for one in every:
                numbers = {metric: values[:, rounds] for metric, values in one.numbers.items()}
                found.append(one._replace(scale=name, method=method, numbers=numbers))
    weights = {"of_null": seen.posterior[..., -1], "of_likeliest": seen.posterior[..., :-1].max(axis=2)}
    return [*found, Measured("raw", "population", POSTERIOR, weights)]


def wrong_before(truth: Truth) -> NDArray[np.bool_]:
    """(P, Q) the duels that are called for the other entity before any observation."""
    return np.asarray((truth.winner != 0) & (truth.prior == -truth.winner))


def _right(called: NDArray[np.float32], winner: Signs) -> Floats:
    """(P, R) calls (P, R, Q) that a winner (P, Q) bears out, a tie one half; duels without a winner do not count."""
    agreement = (called @ winner.astype(np.float32)[:, :, None])[..., 0]
    right: Floats = (agreement.astype(np.float64) + (winner != 0).sum(axis=1)[:, None]) / 2
    return right


def patient_auroc(place: NDArray[np.int64], labels: Floats) -> Floats:
    """(P, R) chance that a positive entity of the patient ranks before a negative one; ties one half.

    place : (P, R, N), equal for ties. labels : (P, N). NaN where the patient has labels of one class only.
    """
    positive, negative = ((labels == label).sum(axis=1, keepdims=True) for label in (1, 0))
    ranks = rankdata(np.where(np.isnan(labels)[:, None], np.inf, place), axis=2)  # without a label: behind all others
    of_negatives = np.where((labels == 0)[:, None], ranks, 0.0).sum(axis=2)
    return share_of(of_negatives - negative * (negative + 1) / 2, (positive * negative).astype(np.float64))


def size_correlation(place: NDArray[np.int64], sizes: NDArray[np.int64]) -> Floats:
    """(P, R) Spearman correlation of standing and support: 1 where the largest support is first and so on down.

    place : (P, R, N). NaN where all entities tie, or have supports of one size.
    """
    standing, size = -rankdata(place, axis=-1), rankdata(sizes)
    standing, size = standing - standing.mean(axis=-1, keepdims=True), size - size.mean()
    norm = np.sqrt((standing**2).sum(axis=-1) * (size**2).sum())
    return share_of(standing @ size, norm)
