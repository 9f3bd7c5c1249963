"""The closure against the true gauge: duels read out with both pairs of class models (tab:m1agree, tab:m1acc).

The true gauge holds the models of the two entities of a duel; `maxent` is the paper's name for the closure, whose two
models are made from the difference alone. Orders of observation are random, the same as for sign convergence.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import product
from typing import TYPE_CHECKING

import numpy as np
import pandas as pd
from numpy.typing import NDArray
from pydantic import Field

from afa.bundle import Bundle
from afa.cohort.cohort import Cohort
from afa.engine.duels import Pairs, all_pairs
from afa.engine.gauges import COUNTS, READINGS, GaugePaths, gauge_paths
from afa.engine.paths import Signs
from afa.inference.meanfield import Solver
from afa.orders import random_orders
from afa.stages.base import Column, Rounds, Section, Seeds, Stage
from afa.stages.columns import columns
from afa.stages.gauge import numbers
from afa.stages.inputs import rounds_up_to
from afa.stats.accuracy import Resampled
from afa.stats.summary import summary_rows

if TYPE_CHECKING:
    from afa.stages.settings import Bootstrap, Inference


class Settings(Section):
    """The closure of a duel against its true gauge (supp:maxent-vs-truegauge)."""

    seeds: Seeds = Field((0,), description="one random order per patient and seed")
    rounds: Rounds = Field((10, 50, 100, 150, 200), description="t of the correlations, beside 0 and M")


STAGE = Stage(
    settings=("gauge", "inference"),
    section=Settings,
    sharded=True,
    duels=True,
    tables={
        "agreement": columns("patient seed t method agree duels cohort bundle"),
        "rounds": columns(
            "patient seed t method reference target right duels right_first duels_first right_prior_wrong"
            " duels_prior_wrong cohort bundle"
        ),
        "scalars": columns(
            "patient seed t entity_a entity_b two_elbo_true two_elbo_maxent stack_a_true stack_a_maxent cohort bundle"
        ),
        "targets": columns(
            "patient entity_a entity_b likelihood clinical conclusive cohort bundle",
            clinical=Column("sign", "1 or -1 for the entity whose label alone is positive, 0 for neither"),
        ),
        "solves": columns("patient t model solves iterations capped ascended cohort bundle"),
    },
    space_mb=5.3,
    single=("scalars",),
)
TRACKS = ("two_elbo", "stack_a")
LEAST_PATIENTS = 30
KINDS = ("", "_first", "_prior_wrong")


def run(
    bundle: Bundle,
    cohort: Cohort,
    patients: Sequence[int],
    *,
    gauge: Settings,
    inference: Inference,
    threads: int | None = None,
) -> dict[str, pd.DataFrame]:
    """Read every duel of the chosen patients in both gauges, one random order per seed.

    Returns
    -------
    agreement, by (patient, seed, method, t): `agree`, duels on which the two gauges decide alike, of `duels`. Two
    ties agree; a tie against a decision is one half.

    rounds, by (patient, seed, method, reference, target, t): `right`, duels called right, a tie counting one half, of
    `duels` with a winner; the same over those that the first entity wins (`_first`) and those that this method and
    gauge has wrong before any observation (`_prior_wrong`). `reference` is the gauge, empty for `wald`. The target
    `likelihood` is the sign of D at full observation; `clinical` the entity whose label alone is positive, over
    conclusive pairs only, and without rows where the cohort has no such pair.

    scalars, by (patient, seed, entity_a, entity_b, t): `two_elbo_*` in nats, `stack_a_*` in [-1, 1], in each gauge.

    targets, by (patient, entity_a, entity_b): `likelihood` and `clinical`, +1 for a, -1 for b, 0 where neither wins;
    `clinical` is missing where a label is. `conclusive`: in the whole cohort at least 30 patients have exactly one of
    the two labels (S12).

    solves, by (patient, model, t): what the solves of that round took, over all seeds.

    """
    seeds, solver = gauge.seeds, Solver(**dict(inference))
    rounds = rounds_up_to(gauge.rounds, len(bundle.features))
    names = [cohort.patients[p] for p in patients]
    orders = random_orders(bundle.features, names, seeds)
    paths = gauge_paths(bundle, cohort.values[list(patients)], orders, rounds, solver=solver, threads=threads)
    labels = clinical_winners(bundle, cohort)
    conclusive = (np.abs(labels) == 1).sum(axis=0) >= LEAST_PATIENTS
    chosen, final = labels[list(patients)], paths.signs["wald", ""][:, 0, -1]
    winning: dict[str, Signs] = {"likelihood": final}
    if conclusive.any():
        winning["clinical"] = np.where(conclusive, np.nan_to_num(chosen), 0.0).astype(np.int8)
    tables = {
        "agreement": _agreement(paths, names, seeds),
        "rounds": _rounds(paths, winning, names, seeds),
        "scalars": _scalars(paths, names, seeds, rounds, bundle),
        "targets": _targets(final, chosen, conclusive, names, bundle, paths.pairs),
        "solves": _solves(paths, names),
    }
    return {name: table.assign(cohort=cohort.name, bundle=bundle.name) for name, table in tables.items()}


def clinical_winners(bundle: Bundle, cohort: Cohort) -> NDArray[np.float64]:
    """(n_patients, Q) +1 or -1 where label a or b alone is positive, 0 where both or neither is, NaN where unknown."""
    labels = cohort.labels.reindex(columns=list(bundle.entities)).to_numpy(dtype=float, na_value=np.nan)
    pairs = all_pairs(len(bundle.entities))
    winners: NDArray[np.float64] = labels[:, pairs[:, 0]] - labels[:, pairs[:, 1]]
    return winners


def _agreement(paths: GaugePaths, names: Sequence[str], seeds: Sequence[int]) -> pd.DataFrame:
    tables = []
    for method in TRACKS:
        true, closed = paths.signs[method, "true"], paths.signs[method, "maxent"]
        apart = np.abs(true - closed).sum(axis=3, dtype=np.int64)
        table = _by_round(paths, names, seeds).assign(method=method)
        table["agree"] = (true.shape[3] - apart / 2).ravel()
        table["duels"] = np.int32(true.shape[3])
        tables.append(table)
    return pd.concat(tables, ignore_index=True)


def _rounds(paths: GaugePaths, winning: dict[str, Signs], names: Sequence[str], seeds: Sequence[int]) -> pd.DataFrame:
    tables = []
    for (target, winners), (method, reference) in product(winning.items(), READINGS):
        right, duels = _right(paths.signs[method, reference], winners)
        table = _by_round(paths, names, seeds).assign(method=method, reference=reference, target=target)
        for kind, suffix in enumerate(KINDS):
            table[f"right{suffix}"] = right[..., kind].ravel()
            table[f"duels{suffix}"] = np.repeat(duels[..., kind].ravel(), right.shape[2]).astype(np.int32)
        tables.append(table)
    return pd.concat(tables, ignore_index=True)


def _right(signs: Signs, winners: Signs) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """(P, S, M + 1, 3) duels called right among each of `KINDS`, a tie counting one half, and (P, S, 3) duels in all.

    signs : (P, S, M + 1, Q). winners : (P, Q), 0 for a duel without one. Exact, all terms being integers.
    """
    right, total = np.empty((*signs.shape[:3], len(KINDS))), np.empty((*signs.shape[:2], len(KINDS)))
    for patient, order in np.ndindex(*signs.shape[:2]):
        called, winner = signs[patient, order].astype(np.float32), winners[patient].astype(np.float32)
        among = np.stack([winner != 0, winner > 0, (winner != 0) & (called[0] == -winner)], axis=1).astype(np.float32)
        total[patient, order] = among.sum(axis=0)
        right[patient, order] = (called @ (winner[:, None] * among) + total[patient, order]) / 2
    return right, total


def _by_round(paths: GaugePaths, names: Sequence[str], seeds: Sequence[int]) -> pd.DataFrame:
    n_rounds = paths.signs["wald", ""].shape[2]
    index = pd.MultiIndex.from_product([names, seeds, range(n_rounds)], names=["patient", "seed", "t"])
    return index.to_frame(index=False)


def _scalars(
    paths: GaugePaths, names: Sequence[str], seeds: Sequence[int], rounds: Sequence[int], bundle: Bundle
) -> pd.DataFrame:
    entities = np.array(bundle.entities, dtype=object)
    index = pd.MultiIndex.from_product([names, seeds, rounds, range(len(paths.pairs))])
    table = index.to_frame(index=False, name=["patient", "seed", "t", "pair"])
    pair = table.pop("pair").to_numpy()
    table["entity_a"], table["entity_b"] = entities[paths.pairs[pair, 0]], entities[paths.pairs[pair, 1]]
    for (method, reference), values in paths.scalars.items():
        table[f"{method}_{reference}"] = values.ravel()
    return table


def _targets(
    final: Signs,
    clinical: NDArray[np.float64],
    conclusive: NDArray[np.bool_],
    names: Sequence[str],
    bundle: Bundle,
    pairs: Pairs,
) -> pd.DataFrame:
    entities = np.array(bundle.entities, dtype=object)
    return pd.DataFrame(
        {
            "patient": np.repeat(np.array(names, dtype=object), len(pairs)),
            "entity_a": np.tile(entities[pairs[:, 0]], len(names)),
            "entity_b": np.tile(entities[pairs[:, 1]], len(names)),
            "likelihood": final.ravel(),
            "clinical": pd.array(clinical.ravel(), dtype="Float64").astype("Int8"),
            "conclusive": np.tile(conclusive, len(names)),
        }
    )


def _solves(paths: GaugePaths, names: Sequence[str]) -> pd.DataFrame:
    tables = []
    for model, counts in paths.counts.items():
        over_seeds = counts.sum(axis=2)
        index = pd.MultiIndex.from_product([names, range(over_seeds.shape[2])], names=["patient", "t"])
        table = index.to_frame(index=False).assign(model=model)
        for name, values in zip(COUNTS, over_seeds, strict=True):
            table[name] = values.ravel()
        tables.append(table)
    return pd.concat(tables, ignore_index=True)


def summarise(tables: Mapping[str, pd.DataFrame], *, bootstrap: Bootstrap) -> pd.DataFrame:
    """Summary rows of the tables of `gauge`, all patients together.

    `gauge_agreement`: `rate` by method and t, over (pair, patient, seed).

    `gauge_correlation`: `correlation` by method and t. The headline is the mean over pairs of Pearson's r within a pair
    over (patient, seed), n the pairs where it is defined: where one of the two scalars does not vary it is not, and at
    t = 0 it never is. `pair_q25`, `pair_q50`, `pair_q75`, `pair_min`, `pair_max` are over those pairs (no interval
    for the extremes, which resampling does not estimate); the variant `pooled` is over all pairs at once, n the tuples.

    `gauge_accuracy`: by method, gauge (`reference`), target and t `accuracy`, also in the stratum `prior_wrong`, tuples
    that this method and gauge has wrong before any observation, and `balanced_accuracy` over the two sides of a duel;
    `gap`, the accuracy of the closure less that of the true gauge, resampled together. By target: `majority`, the best
    constant answer per pair; `prevalence`, the share that the first entity wins; counts of what is left out. Clinical
    rows are over conclusive pairs alone; where there is none, the counts say so and nothing else is given.
    """
    patients = list(tables["targets"]["patient"].unique())
    resampled = Resampled.of(len(patients), **dict(bootstrap), purpose="gauge")
    agreement = numbers.agreement(tables["agreement"], patients, resampled)
    correlation = pd.concat(numbers.correlations(tables["scalars"], patients, resampled), ignore_index=True)
    shares = numbers.accuracies(tables["rounds"], patients, resampled)
    accuracy = pd.concat([*shares, *numbers.beside(tables["targets"], patients, resampled)], ignore_index=True)
    setting = {"allocation": "random", "schedule": "every", "start": "uniform"}
    parts = {"gauge_agreement": agreement, "gauge_correlation": correlation, "gauge_accuracy": accuracy}
    return pd.concat([summary_rows(name, rows.assign(**setting)) for name, rows in parts.items()], ignore_index=True)
