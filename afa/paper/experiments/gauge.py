"""Compare two choices of class models (gauges) for comparisons of two entities (tab:m1agree, tab:m1acc).

The score of a duel (a comparison of two entities) is computed from two class models. With the choice `true`, the class
models are the models of the duel's two entities. With the choice `maxent`, the class models have the energies +D/2 and
-D/2, where D is the difference of the two entities' scores. Features are observed in the random orders of the stage
`sign`.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from itertools import product
from typing import TYPE_CHECKING, Any

import numpy as np
import pandas as pd

from afa.cohort.cohort import Cohort
from afa.engine.duels import all_pairs
from afa.engine.gauges import SCORE_GAUGES, SOLVE_COUNTS, GaugePaths, gauge_paths
from afa.engine.outcomes import right_by_kind
from afa.evaluate.accuracy import Part, Resampled, by_t
from afa.evaluate.inputs import label_matrix, rounds_up_to
from afa.evaluate.long_tables import duel_rows, rows_of
from afa.evaluate.resampling import Moments, percentiles
from afa.evaluate.summary import count_rows, summary_rows
from afa.inference.meanfield import Solver
from afa.model.arrays import Codes, Floats
from afa.model.bundle import Bundle
from afa.model.orders import random_orders

if TYPE_CHECKING:
    from afa.paper.experiments.settings import Bootstrap, Gauge, Inference


TRACKED_SCORES = ("two_elbo", "stack_a")
LEAST_PATIENTS = 30
MAXENT_VS_TRUE = "maxent_vs_true"
SUMMARY_KEYS = {"allocation": "random", "schedule": "every", "start": "uniform"}
PAIR_QUARTILES = {"pair_q25": 25, "pair_q50": 50, "pair_q75": 75}


def run(
    bundle: Bundle,
    cohort: Cohort,
    patients: Sequence[int],
    *,
    gauge: Gauge,
    inference: Inference,
    threads: int | None = None,
) -> dict[str, pd.DataFrame]:
    """Compute all duel scores with both choices of class models, for one random order per patient and seed.

    Returns
    -------
    agreement : one row for each (patient, seed, method, t). `agree` is the number of duels for which both choices of
        class models give the same decision, and `duels` is the number of all duels. Two ties count 1. A tie against a
        decision counts one half.
    rounds : one row for each (patient, seed, method, reference, target, t). `duels` is the number of duels with a
        winner, and `right` is the number of correct decisions, where a tie counts one half. `_first` counts only duels
        that the first entity wins. `_prior_wrong` counts only duels that the same score with the same class models
        decides wrongly before any observation. `reference` is the choice of class models, and is empty for `wald`. The
        target `likelihood` is the sign of D at full observation. The target `clinical` is the entity with the only
        positive label, for conclusive pairs. If the cohort has no conclusive pair, there are no rows for `clinical`.
    scalars : one row for each (patient, seed, entity_a, entity_b, t). `two_elbo_*` (nats) and `stack_a_*` (in [-1, 1])
        have one column for each choice of class models.
    targets : one row for each (patient, entity_a, entity_b). `likelihood` and `clinical` are +1 if a wins, -1 if b
        wins, and 0 if neither wins. `clinical` is missing if one of the two labels is missing. `conclusive` is True if
        at least 30 patients of the whole cohort have exactly one of the two labels (S12).
    solves : number and cost of mean-field runs, summed over seeds, for each (patient, model, t).

    """
    rounds = rounds_up_to(gauge.rounds, len(bundle.features))
    names, chosen = [cohort.patients[p] for p in patients], list(patients)
    orders = random_orders(bundle.features, names, gauge.seeds)
    solver = Solver(**dict(inference))
    paths = gauge_paths(bundle, cohort.values[chosen], orders, rounds, solver=solver, threads=threads)
    labels = clinical_winners(bundle, cohort)
    conclusive = (np.abs(labels) == 1).sum(axis=0) >= LEAST_PATIENTS
    winning: dict[str, Codes] = {"likelihood": paths.signs["wald", ""][:, 0, -1]}
    if conclusive.any():
        winning["clinical"] = np.where(conclusive, np.nan_to_num(labels[chosen]), 0.0).astype(np.int8)
    by_round = rows_of(patient=names, seed=gauge.seeds, t=range(orders.shape[2] + 1))
    right = []
    for (target, winners), (method, reference) in product(winning.items(), SCORE_GAUGES):
        signs = paths.signs[method, reference]
        counts = right_by_kind(signs, winners, signs[:, :, 0])
        right.append(by_round.assign(method=method, reference=reference, target=target, **counts))
    scalars = {f"{method}_{reference}": values.ravel() for (method, reference), values in paths.scalars.items()}
    clinical = pd.array(labels[chosen].ravel(), dtype="Float64").astype("Int8")
    solves = []
    for model, kinds in paths.counts.items():
        sums = dict(zip(SOLVE_COUNTS, kinds.sum(axis=2).reshape(len(SOLVE_COUNTS), -1), strict=True))
        solves.append(rows_of(patient=names, t=range(orders.shape[2] + 1)).assign(model=model, **sums))
    return {
        "agreement": agreement_of(paths, by_round),
        "rounds": pd.concat(right, ignore_index=True),
        "scalars": duel_rows(bundle.entities, patient=names, seed=gauge.seeds, t=rounds).assign(**scalars),
        "targets": duel_rows(bundle.entities, patient=names).assign(
            likelihood=winning["likelihood"].ravel(), clinical=clinical, conclusive=np.tile(conclusive, len(names))
        ),
        "solves": pd.concat(solves, ignore_index=True),
    }


def agreement_of(paths: GaugePaths, by_round: pd.DataFrame) -> pd.DataFrame:
    """Return the table `agreement` of `run`: how many duels have the same decision with both choices of class models.

    `by_round` contains the key columns of the result, with one row for each patient, seed and t.
    """
    tables = []
    for method in TRACKED_SCORES:
        true, closed = paths.signs[method, "true"], paths.signs[method, "maxent"]
        apart = np.abs(true - closed).sum(axis=3, dtype=np.int64)
        agree, duels = (true.shape[3] - apart / 2).ravel(), np.int32(true.shape[3])
        tables.append(by_round.assign(method=method, agree=agree, duels=duels))
    return pd.concat(tables, ignore_index=True)


def agreement_rows(agreement: pd.DataFrame, resampled: Resampled) -> pd.DataFrame:
    """Return the rows of `gauge_agreement`: the share of duels with the same decision by both kinds of class models."""
    shares = [
        resampled.share(table, "agree", "duels").assign(metric="rate", method=method, reference=MAXENT_VS_TRUE)
        for method, table in agreement.groupby("method", sort=False)
    ]
    return summary_rows("gauge_agreement", shares, **SUMMARY_KEYS)


def clinical_winners(bundle: Bundle, cohort: Cohort) -> Floats:
    """Return the winner of each duel according to the patient's labels.

    Returns
    -------
    winners : (n_patients, Q) float64, +1 if only label a is positive, -1 if only label b is positive, 0 if both labels
        are equal, NaN if a label is unknown

    """
    labels, (a, b) = label_matrix(bundle, cohort), all_pairs(len(bundle.entities)).T
    return labels[:, a] - labels[:, b]


def summarise(tables: Mapping[str, pd.DataFrame], *, bootstrap: Bootstrap) -> pd.DataFrame:
    """Return the rows of the tables `gauge_agreement`, `gauge_correlation` and `gauge_accuracy` in `summary.csv`.

    For the target `clinical`, only pairs of entities with enough labels are evaluated (column `conclusive` of the table
    `targets`). If no pair has enough labels, only counts are given for the target `clinical`.

    Returns
    -------
    gauge_agreement : `rate` for each method and t, a mean over (pair, patient, seed)
    gauge_correlation : `correlation` for each method and t > 0. Pearson's r between the scores with the two choices of
        class models is computed for each pair of entities, over (patient, seed). It is defined only if both scores
        vary. Rows without quantity and variant have the mean of r over pairs, and n is the number of pairs with a
        defined r. `pair_q25`, `pair_q50`, `pair_q75`, `pair_min` and `pair_max` are quantiles over these pairs. Minimum
        and maximum have no interval, because resampling cannot estimate one. The variant `pooled` computes r over all
        pairs together, and n is the number of cases
    gauge_accuracy : for each method, choice of class models (`reference`), target and t. `accuracy` is also given in
        the stratum `prior_wrong`, the duels that the same score with the same class models decides wrongly before any
        observation. `balanced_accuracy` is the mean of the accuracies on duels that the first entity wins and on duels
        that the second entity wins. `gap` is the accuracy with the choice `maxent` minus the accuracy with the choice
        `true`, on the same resamples. Three numbers are given once for each target: `majority` is the accuracy of the
        best constant answer for each pair, `prevalence` is the share of duels that the first entity wins, and the
        counts are numbers of excluded cases

    """
    patients = list(tables["targets"]["patient"].unique())
    resampled = Resampled.of(patients, **dict(bootstrap), purpose="gauge")
    parts = {
        "gauge_correlation": _correlations(tables["scalars"], patients, resampled),
        "gauge_accuracy": [
            *_accuracies(tables["rounds"], resampled),
            *_constant_answer_rows(tables["targets"], patients, resampled),
        ],
    }
    made = [summary_rows(name, list(rows), **SUMMARY_KEYS) for name, rows in parts.items()]
    return pd.concat([agreement_rows(tables["agreement"], resampled), *made], ignore_index=True)


def _correlations(scalars: pd.DataFrame, patients: Sequence[str], resampled: Resampled) -> Iterator[pd.DataFrame]:
    columns = ["entity_a", "entity_b"]
    for (t, table), method in product(scalars.groupby("t"), TRACKED_SCORES):
        names = [f"{method}_{gauge}" for gauge in ("true", "maxent")]
        wide = table.pivot(index=["patient", "seed"], columns=columns, values=names).loc[list(patients)]
        x, y = (wide[name].to_numpy(float).reshape(len(patients), -1, wide[name].shape[1]) for name in names)
        label: dict[str, Any] = {
            "metric": "correlation",
            "method": method,
            "reference": MAXENT_VS_TRUE,
            "t": int(str(t)),
        }
        yield _pair_correlations(Moments.of(x, y), resampled).assign(**label)
        flat = (len(patients), -1, 1)
        pooled = resampled.statistic(Moments.of(x.reshape(flat), y.reshape(flat)).only, x.size)
        yield pooled.assign(variant="pooled", **label)


def _pair_correlations(moments: Moments, resampled: Resampled) -> pd.DataFrame:
    """Return mean, quartiles, minimum and maximum of the pairs' correlations.

    The correlation is between the scores with the two choices of class models. For each pair of entities, the
    correlation is computed over all patients and seeds.
    """
    plain = moments.correlation(np.ones((1, len(moments.n))))[0]
    defined = ~np.isnan(plain)
    spread = resampled.statistic(lambda w: _mean_and_quartiles(moments.correlation(w)[:, defined]), int(defined.sum()))
    ends = (plain[defined].min(), plain[defined].max()) if defined.any() else (np.nan, np.nan)
    extremes = pd.DataFrame({"quantity": ["pair_min", "pair_max"], "value": ends, "n": int(defined.sum())})
    spread["quantity"] = pd.Series([None, *PAIR_QUARTILES], dtype="object")
    return pd.concat([spread, extremes], ignore_index=True)


def _mean_and_quartiles(values: Floats) -> Floats:
    """Return the mean and the three quartiles of each row, (R, 4). NaN values are ignored.

    If a row has only NaN, the result is NaN.

    Parameters
    ----------
    values : (R, Q)

    """
    found, known = np.full((len(values), 1 + len(PAIR_QUARTILES)), np.nan), ~np.isnan(values).all(axis=1)
    if known.any():
        quartiles = percentiles(values[known].T, list(PAIR_QUARTILES.values()))
        found[known] = np.vstack([np.nanmean(values[known], axis=1), quartiles]).T
    return found


def _accuracies(rounds: pd.DataFrame, resampled: Resampled) -> Iterator[pd.DataFrame]:
    for target, of_target in rounds.groupby("target", sort=False):
        every: dict[tuple[str, str], Part] = {}
        for (method, reference), table in of_target.groupby(["method", "reference"], sort=False):
            every[str(method), str(reference)] = resampled.part(table, "right", "duels")
            label = {"method": str(method), "reference": str(reference) or None, "target": str(target)}
            for rows in resampled.of_duels(table):
                if "stratum" not in rows or rows["n"].any():
                    yield rows.assign(**label)
        for method in [name for name, reference in every if reference == "true"]:
            gap = by_t(resampled.gap([every[method, "maxent"]], [every[method, "true"]]))
            yield gap.assign(metric="gap", method=method, reference=MAXENT_VS_TRUE, target=str(target))


def _constant_answer_rows(
    targets: pd.DataFrame, patients: Sequence[str], resampled: Resampled
) -> Iterator[pd.DataFrame]:
    """Yield the accuracies of constant answers and the numbers of excluded cases, for each target."""
    likelihood, clinical, conclusive = (
        targets.pivot(index="patient", columns=["entity_a", "entity_b"], values=column).loc[list(patients)]
        for column in ("likelihood", "clinical", "conclusive")
    )
    labels = clinical.astype("Float64").to_numpy(dtype=float, na_value=np.nan)
    known, unlabelled = conclusive.to_numpy(bool)[0], np.isnan(labels).all(axis=0)
    winners: dict[str, Codes] = {
        "likelihood": likelihood.to_numpy(np.int8),
        "clinical": np.where(known, np.nan_to_num(labels), 0).astype(np.int8),
    }
    ties = {"tied_at_full_observation": ((winners["likelihood"] == 0).sum(), labels.size)}
    left_out = {
        "pairs_conclusive": (known.sum(), len(known)),
        "pairs_inconclusive": ((~known & ~unlabelled).sum(), len(known)),
        "pairs_without_labels": (unlabelled.sum(), len(known)),
        "tuples": ((winners["clinical"] != 0).sum(), labels.size),
        "tuples_inconclusive": ((np.abs(labels[:, ~known]) == 1).sum(), labels.size),
    }
    yield count_rows(ties).assign(target="likelihood")
    yield count_rows(left_out).assign(target="clinical")
    for target, winner in winners.items():
        if winner.any():
            for rows in resampled.constant(winner):
                yield rows.assign(target=target)
