"""How many decisions the mean-field approximation changes, by t: accurate inference beside it, on the same states.

Some patients of a cohort are followed in one random order. At a few rounds every duel is called by both readings of the
top k, and every entity as a binary task under both closures: once with mean-field, once with the accurate inference of
`afa.stages.accurate.inference`. The models are the same, so that what differs is the approximation.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pandas as pd

from afa.bundle import Bundle
from afa.closure import COUPLINGS, STRENGTH, class_models
from afa.cohort.cohort import Cohort
from afa.copeland import ranking
from afa.engine.duels import Pairs, all_pairs
from afa.engine.paths import snapshots
from afa.engine.tasks import elbo_differences
from afa.inference.meanfield import Solver
from afa.mrf import Floats
from afa.stages.accurate.check import check_tables
from afa.stages.accurate.inference import Effort, log_z
from afa.stages.accurate.states import (
    States,
    all_exact,
    entity_expectations,
    entity_log_zs,
    linearity_duels,
    log_z_duels,
)

TIE = 1e-9
"""Nats: a score of at most this magnitude is rounding, by either inference."""
CHECKED = 2
"""Patients whose exact states are sampled too."""
SCORES = ("mean_field", "accurate", "first", "second")


def accurate_tables(
    bundle: Bundle,
    cohort: Cohort,
    *,
    patients: int,
    linearity_patients: int,
    seed: int,
    rounds: Sequence[int],
    k: int,
    effort: Effort,
    strength: float = STRENGTH,
    solver: Solver | None = None,
    threads: int | None = None,
) -> dict[str, pd.DataFrame]:
    """Decisions of some patients by mean-field and by accurate inference; `linearity` of the first of them alone.

    Where log Z of some entity is too large for exact inference before any observation, everything is of these first
    patients alone: a sampled state takes a thousand times as long as an exact one.

    Returns six tables, all by (patient, t), t being 0, `rounds` and M.

    `duels`, by (method, entity_a, entity_b): scores in nats. `two_elbo` is a difference of ELBOs by `mean_field` and
    log Z_a - log Z_b as `accurate`; `linearity` is mu_D (eq:mu-D) with the moments of either. `error`: standard error
    of the latter, 0 where it is exact. `first`, `second`: the accurate score by two independent runs.

    `sets`, by method: of the top `k` by mean-field, members that are in it by accurate inference too, `shared`; the
    same of the two runs, `shared_runs`; and those that are in it at full observation, `right_mean_field` and
    `right_accurate`.

    `tasks`, by (coupling, entity): log-odds of class 1 in nats in the columns of `duels`; `..._posterior`, each less
    its value at no observation, and `error_posterior`.

    `solves`, by (entity, quantity): whether `log_partition` and `moments` are exact or annealed (`inference`); `error`
    of the log-partition in nats, `effective` chains.

    `check` and `checked_duels`: of `afa.stages.accurate.check.check_tables`.
    """
    states = States.of(cohort, patients, seed, rounds)
    few = states.first(linearity_patients)
    if not all_exact(bundle, effort):
        states = few
    pairs = all_pairs(len(bundle.entities))
    read = snapshots(bundle, states.values, states.orders, states.rounds, solver=solver, threads=threads)
    log_zs = entity_log_zs(bundle, states, effort, threads)
    expected = entity_expectations(bundle, few, effort, threads)
    a, b = pairs.T
    by_method = {
        "two_elbo": (states, read.elbo[..., a] - read.elbo[..., b], *log_z_duels(log_zs, pairs)),
        "linearity": (few, read.mean[: len(few.names)], *linearity_duels(expected, pairs)),
    }
    duels = {name: _duels(bundle, pairs, *parts).assign(method=name) for name, parts in by_method.items()}
    sets = [_sets(bundle, pairs, by_method[name][0], table, k).assign(method=name) for name, table in duels.items()]
    solves = [
        _solves(bundle, states, log_zs.effective).assign(quantity="log_partition", error=log_zs.error.ravel()),
        _solves(bundle, few, expected.effective).assign(quantity="moments"),
    ]
    tables = {
        "duels": pd.concat(duels.values(), ignore_index=True),
        "sets": pd.concat(sets, ignore_index=True),
        "tasks": _tasks(bundle, states, effort, strength, solver, threads),
        "solves": pd.concat(solves, ignore_index=True),
        **check_tables(bundle, few.first(CHECKED), log_zs, expected, pairs, effort, threads),
    }
    return {name: table.assign(cohort=cohort.name, bundle=bundle.name) for name, table in tables.items()}


def settled(scores: Floats) -> Floats:
    """Scores with 0 in the place of rounding."""
    return np.where(np.abs(scores) <= TIE, 0.0, scores)


def _duels(
    bundle: Bundle, pairs: Pairs, states: States, mean_field: Floats, accurate: Floats, error: Floats
) -> pd.DataFrame:
    """One method's lines: mean_field and error (P, T, Q), accurate (3, P, T, Q)."""
    names = np.array(bundle.entities, dtype=object)
    table = states.table(pair=range(len(pairs)))
    pair = table.pop("pair").to_numpy()
    table["entity_a"], table["entity_b"] = names[pairs[pair, 0]], names[pairs[pair, 1]]
    for name, scores in zip(SCORES, (mean_field, *accurate), strict=True):
        table[name] = settled(scores).ravel()
    return table.assign(error=error.ravel())


def _sets(bundle: Bundle, pairs: Pairs, states: States, duels: pd.DataFrame, k: int) -> pd.DataFrame:
    """How far the k best agree, by inference, by run, and with full observation."""
    best: dict[str, list[list[set[str]]]] = {}
    for name in SCORES:
        scores = duels[name].to_numpy().reshape(*states.shape, len(pairs))
        best[name] = [[_best(bundle, pairs, one, k) for one in of_patient] for of_patient in scores]

    def shared(one: str, other: str, *, last: bool = False) -> list[int]:
        whole = zip(best[one], best[other], strict=True)
        return [
            len(x & (theirs[-1] if last else y)) for ours, theirs in whole for x, y in zip(ours, theirs, strict=True)
        ]

    return states.table().assign(
        k=np.int16(k),
        shared=shared("mean_field", "accurate"),
        shared_runs=shared("first", "second"),
        right_mean_field=shared("mean_field", "accurate", last=True),
        right_accurate=shared("accurate", "accurate", last=True),
    )


def _best(bundle: Bundle, pairs: Pairs, scores: Floats, k: int) -> set[str]:
    matrix = np.zeros((len(bundle.entities), len(bundle.entities)))
    matrix[pairs[:, 0], pairs[:, 1]] = scores
    return set(ranking(matrix - matrix.T, bundle.entities, tie=TIE)[:k])


def _tasks(
    bundle: Bundle, states: States, effort: Effort, strength: float, solver: Solver | None, threads: int | None
) -> pd.DataFrame:
    """Every entity as a binary task under both closures, in every state."""
    observed, values = states.rows
    tables = []
    for coupling in COUPLINGS:
        for entity in bundle.entities:
            rough = elbo_differences(
                bundle, entity, observed, values, solver=solver, coupling=coupling, strength=strength, threads=threads
            )
            models = class_models(bundle.mrf(entity), coupling, strength)
            one, zero = (
                log_z(model, f"{entity} {coupling} {side}", observed, values, effort, threads=threads)
                for side, model in zip((1, 0), models, strict=True)
            )
            odds = np.vstack([rough.raw, one.value - zero.value]).reshape(len(SCORES), *states.shape)
            error = np.hypot(one.error, zero.error).reshape(states.shape)
            table = states.table().assign(entity=entity, coupling=coupling)
            for name, raw in zip(SCORES, odds, strict=True):
                table[name] = settled(raw).ravel()
                table[f"{name}_posterior"] = settled(raw - raw[:, :1]).ravel()
            # at no observation the posterior is 0 whatever log Z is
            posterior = np.where(np.array(states.rounds) == 0, 0.0, np.hypot(error, error[:, :1]))
            tables.append(table.assign(error=error.ravel(), error_posterior=posterior.ravel()))
    return pd.concat(tables, ignore_index=True)


def _solves(bundle: Bundle, states: States, effective: Floats) -> pd.DataFrame:
    table = states.table(entity=bundle.entities).assign(effective=effective.ravel())
    return table.assign(inference=np.where(table["effective"].isna(), "exact", "annealed"))
