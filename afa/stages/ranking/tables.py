"""Rankings of entities at t observations, by what is expected of hidden features and by the scale of the scores.

Three questions to the top-k setting. How much of what a ranking says early is the size of the elicited lists, which is
known before any observation? What is left on scales that take size out? And does a mixture over all entities expect
more of the unobserved features than the two entities of a duel do? Held against full observation, and against labels.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from afa.bundle import Bundle
from afa.cohort.cohort import Cohort
from afa.inference.meanfield import Solver
from afa.mrf import Floats
from afa.orders import random_order
from afa.stages.labels.tasks import shuffled_genes
from afa.stages.ranking.measures import (
    CLINICAL,
    OWN,
    POSTERIOR,
    PRIOR_WRONG,
    SIZE,
    Aims,
    Measured,
    best_constant,
    larger_first,
    measure,
    scales_of,
    size_correlation,
)
from afa.stages.ranking.scales import Scale, cohort_scale
from afa.stages.ranking.ways import METHODS, Known, Signs, known, places, whole_scores

WAY = ["scale", "method"]
AT_ONCE = 20
"""Shuffled bundles that are read at full observation together."""


def ranking_tables(
    bundle: Bundle,
    cohort: Cohort,
    *,
    k: int,
    rounds: Sequence[int],
    seeds: Sequence[int],
    permutations: int,
    whole_permutations: int,
    solver: Solver | None = None,
    threads: int | None = None,
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
    aims, m = Aims.of(bundle, cohort, k), len(bundle.features)
    shown = sorted(t for t in rounds if t < m)
    decisions, rankings, posterior, truth = [], [], [], pd.DataFrame()
    for seed in seeds:
        seen = known(bundle, cohort.values, _orders(bundle, cohort, seed), shown, solver=solver, threads=threads)
        scales = scales_of(bundle, cohort.values, seen.observed)
        found, winners = measure(seen, scales, aims, threads)
        decisions += [_table(one, cohort, seen.rounds, seed) for one in found if one.duels is not None]
        rankings += list(_labelled(found, cohort, seen.rounds, seed))
        posterior += [_table(one, cohort, seen.rounds, seed) for one in found if one.target == POSTERIOR]
        if truth.empty:
            truth, entities = _truth(found, winners, cohort, aims), _entities(bundle, scales, aims)
    null = [
        *_followed_null(bundle, cohort, shown, seeds[0], permutations, aims, solver, threads),
        *_whole_null(bundle, cohort.values, whole_permutations, aims, threads),
    ]
    tables = {
        "decisions": pd.concat(decisions, ignore_index=True),
        "rankings": pd.concat(rankings, ignore_index=True),
        "posterior": pd.concat(posterior, ignore_index=True).drop(columns=[*WAY, "target"]),
        "truth": truth,
        "entities": entities,
        "labels": _labels(bundle, cohort, aims),
        "null": pd.concat(null, ignore_index=True),
    }
    return {name: table.assign(cohort=cohort.name, bundle=bundle.name) for name, table in tables.items()}


def _orders(bundle: Bundle, cohort: Cohort, seed: int) -> NDArray[np.int64]:
    drawn = [random_order(bundle.features, patient=name, seed=seed) for name in cohort.patients]
    return np.array(drawn, dtype=np.int64).reshape(len(cohort.patients), len(bundle.features))


def _table(one: Measured, cohort: Cohort, rounds: Sequence[int], seed: int) -> pd.DataFrame:
    keys = {"scale": one.scale, "method": one.method, "target": one.target, "seed": seed}
    table = {
        "patient": np.repeat(np.array(cohort.patients, dtype=object), len(rounds)),
        "t": np.tile(np.array(rounds, dtype=np.int32), len(cohort.patients)),
        **{name: values.ravel() for name, values in one.numbers.items()},
    }
    return pd.DataFrame(keys | table)


def _labelled(found: Sequence[Measured], cohort: Cohort, rounds: Sequence[int], seed: int) -> Iterator[pd.DataFrame]:
    """Labels and size side by side, way by way."""
    of_size = {(one.scale, one.method): one.numbers for one in found if one.target == SIZE}
    for one in found:
        if one.target == CLINICAL:
            whole = one._replace(numbers=one.numbers | of_size[one.scale, one.method])
            yield _table(whole, cohort, rounds, seed).drop(columns="target")


def _truth(found: Sequence[Measured], winners: Sequence[Signs], cohort: Cohort, aims: Aims) -> pd.DataFrame:
    of_scale = dict(zip(dict.fromkeys(one.scale for one in found), winners, strict=True))
    tables = []
    for one in found:
        if one.method != METHODS[0] or one.duels is None:
            continue
        winner = of_scale[one.scale] if one.target == OWN else winners[0]
        table = {"scale": one.scale, "target": one.target, "patient": list(cohort.patients)}
        counts = {"duels": one.duels, "prior_wrong": one.prior_wrong, "majority": best_constant(winner)}
        whole = {name: np.asarray(each).astype(np.int32) for name, each in counts.items()}
        tables.append(pd.DataFrame({**table, **whole, "larger": larger_first(winner, aims)}))
    return pd.concat(tables, ignore_index=True)


def _entities(bundle: Bundle, scales: dict[str, Scale], aims: Aims) -> pd.DataFrame:
    tables = []
    for name, scale in scales.items():
        mean, sd = (each[:, -1].mean(axis=0) if each.ndim > 1 else each for each in (scale.mean, scale.sd))
        table = {"scale": name, "entity": list(bundle.entities), "support": aims.sizes}
        table |= {"couplings": np.diff(bundle.packed.pointer), "mean": mean, "sd": sd}
        tables.append(pd.DataFrame(table))
    return pd.concat(tables, ignore_index=True)


def _labels(bundle: Bundle, cohort: Cohort, aims: Aims) -> pd.DataFrame:
    p, n = aims.labels.shape
    table = {
        "patient": np.repeat(np.array(cohort.patients, dtype=object), n),
        "entity": np.tile(np.array(bundle.entities, dtype=object), p),
        "label": pd.Series(aims.labels.ravel()).astype("Int8"),
        "k": aims.k,
        "k_clinical": aims.k_clinical,
    }
    return pd.DataFrame(table)


def _followed_null(
    bundle: Bundle,
    cohort: Cohort,
    rounds: Sequence[int],
    seed: int,
    permutations: int,
    aims: Aims,
    solver: Solver | None,
    threads: int | None,
) -> Iterator[pd.DataFrame]:
    """Shuffled bundles before full observation: each gene has the values of another, and the order stays."""
    orders = _orders(bundle, cohort, seed)
    for permutation in range(permutations):
        # contiguous, or each kernel is compiled a second time for another layout of its input
        values = np.ascontiguousarray(cohort.values[:, shuffled_genes(len(bundle.features), permutation)])
        seen: Known = known(bundle, values, orders, rounds, solver=solver, threads=threads)
        found, _ = measure(seen, scales_of(bundle, values, seen.observed), aims, threads)
        lines = [
            (one.scale, one.method, one.target, metric, mean_of(metric, each, one)[:-1])
            for one in found
            for metric, each in one.numbers.items()
            if metric != PRIOR_WRONG
        ]
        yield _null_table(lines, t=seen.rounds[:-1], permutation=permutation)


def _null_table(
    lines: Sequence[tuple[str, str, str, str, Floats]], *, t: int | Sequence[int], permutation: int | Sequence[int]
) -> pd.DataFrame:
    """A row for each value (n,) of each line (scale, method, target, metric, values); t, permutation : one, or n."""
    *keys, values = zip(*lines, strict=True)
    n = len(values[0])
    scale, method, target, metric = (np.repeat(np.array(each, dtype=object), n) for each in keys)
    table = {"scale": scale, "method": method, "target": target}
    for name, number in (("t", t), ("permutation", permutation)):
        table[name] = np.tile(np.broadcast_to(number, n), len(lines))
    return pd.DataFrame({**table, "metric": metric, "value": np.concatenate(values)})


def mean_of(metric: str, values: Floats, one: Measured) -> Floats:
    """(R,) one number of all patients: duels together, all else a mean over the patients who have it, NaN if none."""
    if metric == "accuracy" and one.duels is not None:
        return np.asarray(values.sum(axis=0) / one.duels.sum()) if one.duels.any() else np.full(values.shape[1], np.nan)
    has = ~np.isnan(values)
    count = has.sum(axis=0)
    total = np.where(has, values, 0.0).sum(axis=0)
    mean: Floats = np.divide(total, count, out=np.full(len(total), np.nan), where=count > 0)
    return mean


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
            of_size = {"correlation": size_correlation(place, aims.sizes)}
            for target, found in ((CLINICAL, aims.against_labels(place, threads)), (SIZE, of_size)):
                for metric, each in found.items():
                    value = mean_of(metric, each, Measured(name, "", target, {}))
                    lines += [(name, method, target, metric, value) for method in METHODS]
        yield _null_table(lines, t=m, permutation=numbers)
