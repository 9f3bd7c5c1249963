"""How many decisions the mean-field approximation changes, by t: accurate inference beside it, on the same states.

Some patients of a cohort are followed in one random order. At a few rounds every duel is called by both readings of the
top k, and every entity as a binary task under both closures: once with mean-field, once with the accurate inference of
`afa.stages.accurate.inference`. The models are the same, so that what differs is the approximation.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
import pandas as pd

from afa.bundle import Bundle
from afa.closure import COUPLINGS, class_models
from afa.cohort.cohort import Cohort
from afa.copeland import ranking
from afa.engine.duels import Pairs, all_pairs
from afa.engine.paths import snapshots
from afa.engine.tasks import elbo_differences
from afa.inference.meanfield import Solver
from afa.mrf import Floats
from afa.stages.accurate.inference import (
    Expected,
    LogZ,
    Scores,
    Seen,
    States,
    Values,
    all_exact,
    entity_expectations,
    entity_log_zs,
    evidence_of,
    in_every_state,
    linearity_duels,
    log_partitions_of,
    log_z,
    log_z_duels,
    sampled_scores,
    sampled_state,
)
from afa.stages.inputs import top_k_size
from afa.stats.tables import duel_rows, rows_of

if TYPE_CHECKING:
    from afa.stages.accurate import Settings
    from afa.stages.settings import Closure, Inference

TIE = 1e-9
"""Nats: a score of at most this magnitude is rounding, by either inference."""
CHECKED = 2
"""Patients whose exact states are sampled too."""
OPEN = 2.0
"""A sampled difference within so many standard errors of 0 decides nothing."""
SCORES = ("mean_field", "accurate", "first", "second")


def run(
    bundle: Bundle,
    cohort: Cohort,
    *,
    accurate: Settings,
    top_k: int,
    closure: Closure,
    inference: Inference,
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

    `check` and `checked_duels`: of `check_tables`.
    """
    k, solver = top_k_size(bundle, top_k), Solver(**dict(inference))
    states = States.of(cohort, accurate.patients, accurate.seed, accurate.rounds)
    few = states.first(accurate.linearity_patients)
    if not all_exact(bundle, accurate):
        states = few
    pairs = all_pairs(len(bundle.entities))
    read = snapshots(bundle, states.values, states.orders, states.rounds, solver=solver, threads=threads)
    log_zs = entity_log_zs(bundle, states, accurate, threads)
    expected = entity_expectations(bundle, few, accurate, threads)
    a, b = pairs.T
    by_method = {
        "two_elbo": (states, read.elbo[..., a] - read.elbo[..., b], *log_z_duels(log_zs, pairs)),
        "linearity": (few, read.mean[: len(few.names)], *linearity_duels(expected, pairs)),
    }
    duels = {name: _duels(bundle, *parts).assign(method=name) for name, parts in by_method.items()}
    sets = [_sets(bundle, pairs, by_method[name][0], table, k).assign(method=name) for name, table in duels.items()]
    solves = [
        _solves(bundle, states, log_zs.effective).assign(quantity="log_partition", error=log_zs.error.ravel()),
        _solves(bundle, few, expected.effective).assign(quantity="moments"),
    ]
    return {
        "duels": pd.concat(duels.values(), ignore_index=True),
        "sets": pd.concat(sets, ignore_index=True),
        "tasks": _tasks(bundle, states, accurate, closure.strength, solver, threads),
        "solves": pd.concat(solves, ignore_index=True),
        **check_tables(bundle, few.first(CHECKED), log_zs, expected, pairs, accurate, threads),
    }


def settled(scores: Floats) -> Floats:
    """Scores with 0 in the place of rounding."""
    return np.where(np.abs(scores) <= TIE, 0.0, scores)


def _duels(bundle: Bundle, states: States, mean_field: Floats, accurate: Floats, error: Floats) -> pd.DataFrame:
    """One method's lines: mean_field and error (P, T, Q), accurate (3, P, T, Q)."""
    scores = {name: settled(each).ravel() for name, each in zip(SCORES, (mean_field, *accurate), strict=True)}
    return duel_rows(bundle.entities, **states.axes).assign(**scores, error=error.ravel())


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

    return rows_of(**states.axes).assign(
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
    bundle: Bundle, states: States, effort: Settings, strength: float, solver: Solver, threads: int | None
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
            table = rows_of(**states.axes).assign(entity=entity, coupling=coupling)
            for name, raw in zip(SCORES, odds, strict=True):
                table[name] = settled(raw).ravel()
                table[f"{name}_posterior"] = settled(raw - raw[:, :1]).ravel()
            # at no observation the posterior is 0 whatever log Z is
            posterior = np.where(np.array(states.rounds) == 0, 0.0, np.hypot(error, error[:, :1]))
            tables.append(table.assign(error=error.ravel(), error_posterior=posterior.ravel()))
    return pd.concat(tables, ignore_index=True)


def _solves(bundle: Bundle, states: States, effective: Floats) -> pd.DataFrame:
    table = rows_of(**states.axes, entity=bundle.entities).assign(effective=effective.ravel())
    return table.assign(inference=np.where(table["effective"].isna(), "exact", "annealed"))


def check_tables(
    bundle: Bundle,
    states: States,
    log_zs: LogZ,
    expected: Expected,
    pairs: Pairs,
    effort: Settings,
    threads: int | None,
) -> dict[str, pd.DataFrame]:
    """What sampling gets wrong where the exact answer is known: the null of everything that rests on it.

    The states of a few patients that are solved exactly are sampled too, with the same chains and steps. A decision
    that the two make otherwise is the sampler's, and not mean-field's. `log_zs` and `expected` are the accurate ones of
    at least these patients.

    Full observation is left out, where there is nothing to sample.

    Returns two tables. `check`, by (patient, t, entity): log Z_v(x_obs), `exact` and `sampled`, in nats, the standard
    `error` of the latter, and `effective` chains. `checked_duels`, by (patient, t, method): `duels` of two entities
    that are exact; `open`, those whose sampled difference is within two standard errors of 0; `changed`, those of the
    others that sampling calls otherwise, a tie against a decision being one half; `apart`, the sum of the absolute
    differences in nats; `within`, duels where it is at most two standard errors.
    """
    n = len(states.names)
    sampled_z, sampled = _sampled(bundle, states, effort, threads)
    known_z, known = log_zs.error[:n] == 0, np.isnan(expected.effective[:n])
    table = rows_of(**states.axes, entity=bundle.entities).assign(
        exact=log_zs.value[0, :n].ravel(),
        sampled=sampled_z.value[0].ravel(),
        error=sampled_z.error.ravel(),
        effective=sampled_z.effective.ravel(),
    )
    readings = (
        ("two_elbo", log_z_duels(log_zs, pairs), log_z_duels(sampled_z, pairs), known_z),
        ("linearity", linearity_duels(expected, pairs), linearity_duels(sampled, pairs), known),
    )
    duels = [
        rows_of(**states.axes).assign(method=method, **_counts(exact[0][0, :n], *found, chosen, pairs))
        for method, exact, found, chosen in readings
    ]
    hidden = states.rounds[-1]
    both = pd.concat(duels, ignore_index=True)
    return {
        "check": table[known_z.ravel() & (table["t"] < hidden)].reset_index(drop=True),
        "checked_duels": both[both["t"] < hidden].reset_index(drop=True),
    }


def _sampled(bundle: Bundle, states: States, effort: Settings, threads: int | None) -> tuple[LogZ, Expected]:
    """Every entity in every state by sampling, shapes as in `entity_log_zs` and `entity_expectations`."""

    def sampled(entity: str, observed: Seen, values: Values) -> tuple[Any, ...]:
        mrf = bundle.mrf(entity)
        found = sampled_state(mrf, entity, observed, values, effort)
        scores = sampled_scores(Scores.of(bundle, evidence_of(mrf, observed, values)), bundle.index(entity), found)
        return log_partitions_of(found), found.error, *scores

    log_zs, error, value, variance, effective = in_every_state(bundle, states, sampled, threads)
    return LogZ(np.moveaxis(log_zs, 3, 0), error, effective), Expected(np.moveaxis(value, 3, 0), variance, effective)


def _counts(exact: Floats, sampled: Floats, error: Floats, known: Seen, pairs: Pairs) -> dict[str, Floats]:
    """The columns of `checked_duels`, each (P T,): exact (P, T, Q), sampled (3, P, T, Q), error (P, T, Q)."""
    a, b = pairs.T
    both = known[..., a] & known[..., b]
    undecided = both & (np.abs(sampled[0]) <= OPEN * error)
    apart = np.abs(exact - sampled[0])
    signs = np.abs(np.sign(exact) - np.sign(sampled[0])) / 2
    columns = {
        "duels": both,
        "open": undecided,
        "changed": np.where(both & ~undecided, signs, 0.0),
        "apart": np.where(both, apart, 0.0),
        "within": both & (apart <= OPEN * error),
    }
    return {name: values.sum(axis=-1).ravel() for name, values in columns.items()}
