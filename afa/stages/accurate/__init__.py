"""How many decisions the mean-field approximation changes, by t: accurate inference beside it, on the same states.

Some patients of a cohort are followed in one random order. At a few rounds every duel is called by both readings of the
top k, and every entity as a binary task under both closures: once with mean-field, once with the accurate inference of
`afa.stages.accurate.reference`. The models are the same, so that what differs is the approximation.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from functools import partial
from typing import TYPE_CHECKING

import numpy as np
import pandas as pd
from pydantic import Field

from afa.bundle import Bundle
from afa.closure import COUPLINGS, class_models
from afa.cohort.cohort import Cohort
from afa.copeland import ranking
from afa.engine.duels import all_pairs
from afa.engine.layout import Pairs
from afa.engine.paths import snapshots
from afa.engine.tasks import elbo_differences
from afa.inference.meanfield import Solver
from afa.mrf import Floats
from afa.stages.accurate import reference
from afa.stages.base import Rounds, Section, Stage
from afa.stages.inputs import top_k_size
from afa.stats.accuracy import Resampled
from afa.stats.summary import summary_rows
from afa.stats.tables import duel_rows, rows_of

if TYPE_CHECKING:
    from afa.stages.settings import Bootstrap, Closure, Inference


class Settings(Section):
    """Decisions by mean-field and by accurate inference on the same states (docs/accurate.md)."""

    patients: int = Field(50, ge=1)
    """patients on whom mean-field is held against accurate inference (docs/accurate.md), chosen by a hash of their
    names"""
    linearity_patients: int = Field(12, ge=1)
    """of these, those for whom `linearity` is too, which needs moments and takes more time"""
    seed: int = Field(0, ge=0)
    """which patients these are, and the random order of each"""
    rounds: Rounds = (10, 50, 100, 150, 200)
    """t at which that is done, beside 0 and M"""
    chains: int = Field(300, ge=4)
    """annealed chains of a state that is too large for exact inference"""
    steps: int = Field(200, ge=1)
    """steps of each chain from independent features to the model"""
    limit: float = Field(2e7, ge=0)
    """entries that exact inference in one state may take; what takes more is sampled, and with 0 everything"""


STAGE = Stage(
    settings=("accurate", "top_k", "closure.strength", "inference"),
    section=Settings,
    duels=True,
    tables={
        "checked_duels": "patient t method duels open changed apart within cohort bundle",
        "duels": "patient t entity_a entity_b mean_field accurate first second error method cohort bundle",
        "sets": "patient t k shared shared_runs right_mean_field right_accurate method cohort bundle",
        "solves": "patient t entity effective inference quantity error cohort bundle",
        "tasks": (
            "patient t entity coupling mean_field mean_field_posterior accurate accurate_posterior first"
            " first_posterior second second_posterior error error_posterior cohort bundle"
        ),
    },
    rows={
        "meanfield_vs_exact": "which decisions does the mean-field approximation change, and which of them are better "
        "without it?"
    },
    space_mb=1.9,
    single=("duels", "tasks"),
)
TIE = 1e-9
"""Nats: a score of at most this magnitude is rounding, by either inference."""
CHECKED = 2
"""Patients whose exact states are sampled too."""
SCORES = ("mean_field", "accurate", "first", "second")
POSTERIOR = {f"{name}_posterior": name for name in (*SCORES, "error")}
GAP = "accurate_vs_mean_field"
DUEL, TASK = ["entity_a", "entity_b"], ["entity"]


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

    Returns five tables, all by (patient, t), t being 0, `rounds` and M.

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

    `checked_duels`, by method, of states that are solved exactly and sampled too, with the same chains and steps:
    `duels` of two entities that are exact; `open`, those whose sampled difference is within two standard errors of 0;
    `changed`, those of the others that sampling calls otherwise, a tie against a decision being one half; `apart`, the
    sum of the absolute differences in nats; `within`, duels where it is at most two standard errors.
    """
    k, solver = top_k_size(bundle, top_k), Solver(**dict(inference))
    states = reference.States.of(cohort, accurate.patients, accurate.seed, accurate.rounds)
    few = states.first(accurate.linearity_patients)
    if not reference.all_exact(bundle, accurate):
        states = few
    pairs = all_pairs(len(bundle.entities))
    read = snapshots(bundle, states.values, states.orders, states.rounds, solver=solver, threads=threads)
    log_zs = reference.entity_log_zs(bundle, states, accurate, threads)
    expected = reference.entity_expectations(bundle, few, accurate, threads)
    a, b = pairs.T
    duels, sets = [], []
    for method, of, mean_field, (accurately, error) in (
        ("two_elbo", states, read.elbo[..., a] - read.elbo[..., b], reference.log_z_duels(log_zs, pairs)),
        ("linearity", few, read.mean[: len(few.names)], reference.linearity_duels(expected, pairs)),
    ):
        scores = {name: settled(each) for name, each in zip(SCORES, (mean_field, *accurately), strict=True)}
        flat = {name: each.ravel() for name, each in scores.items()}
        duels.append(duel_rows(bundle.entities, **of.axes).assign(method=method, error=error.ravel(), **flat))
        roughly, best, first, second = (_best(bundle, pairs, each, k) for each in scores.values())
        shared = {
            "shared": roughly & best,
            "shared_runs": first & second,
            "right_mean_field": roughly & best[:, -1:],
            "right_accurate": best & best[:, -1:],
        }
        counts = {name: members.sum(axis=-1).ravel() for name, members in shared.items()}
        sets.append(rows_of(**of.axes).assign(method=method, k=np.int16(k), **counts))
    solves = []
    for quantity, of, effective, error in (
        ("log_partition", states, log_zs.effective, log_zs.error),
        ("moments", few, expected.effective, np.full_like(expected.effective, np.nan)),
    ):
        table = rows_of(**of.axes, entity=bundle.entities).assign(quantity=quantity, effective=effective.ravel())
        table["inference"] = np.where(table["effective"].isna(), "exact", "annealed")
        solves.append(table.assign(error=error.ravel()))
    return {
        "duels": pd.concat(duels, ignore_index=True),
        "sets": pd.concat(sets, ignore_index=True),
        "tasks": _tasks(bundle, states, accurate, closure.strength, solver, threads),
        "solves": pd.concat(solves, ignore_index=True),
        "checked_duels": reference.checked_duels(bundle, few.first(CHECKED), log_zs, expected, accurate, threads),
    }


def settled(scores: Floats) -> Floats:
    """Scores with 0 in the place of rounding."""
    return np.where(np.abs(scores) <= TIE, 0.0, scores)


def _best(bundle: Bundle, pairs: Pairs, scores: Floats, k: int) -> reference.Seen:
    """(P, T, N) whether an entity is among the k best by scores of duels (P, T, Q)."""
    matrix = np.zeros((*scores.shape[:2], len(bundle.entities), len(bundle.entities)))
    matrix[..., pairs[:, 0], pairs[:, 1]] = scores
    matrix -= np.swapaxes(matrix, -1, -2)
    best = [[ranking(one, bundle.entities, tie=TIE)[:k] for one in of_patient] for of_patient in matrix]
    return np.array([[np.isin(bundle.entities, names) for names in of_patient] for of_patient in best])


def _tasks(
    bundle: Bundle, states: reference.States, effort: Settings, strength: float, solver: Solver, threads: int | None
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
                reference.log_z(model, f"{entity} {coupling} {side}", observed, values, effort, threads=threads)
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


def summarise(tables: Mapping[str, pd.DataFrame], *, bootstrap: Bootstrap) -> pd.DataFrame:
    """Summary rows `meanfield_vs_exact` of the tables.

    Duels by method, binary tasks by method and coupling. `rate`: of the decisions that accurate inference makes, those
    that mean-field makes otherwise, a tie against a decision being one half. `nats`: mean absolute difference of the
    two scores. `accuracy` against full observation by inference (`reference`), and `gap`, accurate less mean-field. In
    the stratum `top_k` the rate is of patients whose set differs; in the variant `exact_shift` the accurate value at no
    observation is taken off mean-field's log-odds, instead of their own. The rest is in docs/summary.md.
    """
    rows = []
    for name, key, of_part in (
        ("tasks", "coupling", _task_rows),
        ("duels", "method", partial(_decision_rows, keys=DUEL)),
        ("sets", "method", _set_rows),
        ("checked_duels", "method", _checked_rows),
    ):
        for label, part in tables[name].groupby(key, sort=False):
            rows += [table.assign(**{key: str(label)}) for table in of_part(part, bootstrap)]
    for quantity, method in (("log_partition", "two_elbo"), ("moments", "linearity")):
        part = tables["solves"][tables["solves"]["quantity"] == quantity]
        part = part.assign(annealed=part["inference"] == "annealed", one=1)
        share = _resampled(part, bootstrap).share(part, "annealed", "one")
        rows.append(share.assign(metric="rate", stratum="annealed", method=method))
    whole = pd.concat(rows, ignore_index=True).dropna(subset=["value"])
    return summary_rows("meanfield_vs_exact", whole, allocation="random", start="uniform")


def _resampled(table: pd.DataFrame, bootstrap: Bootstrap) -> Resampled:
    return Resampled.of(table["patient"].unique(), **dict(bootstrap), purpose="accurate")


def _task_rows(table: pd.DataFrame, bootstrap: Bootstrap) -> Iterator[pd.DataFrame]:
    posterior = table.drop(columns=list(POSTERIOR.values())).rename(columns=POSTERIOR)
    for method, cases in (("two_elbo", table), ("posterior", posterior)):
        for rows in _decision_rows(cases, bootstrap, TASK):
            yield rows.assign(method=method)
    shift = table["accurate"] - table["accurate_posterior"]
    with_exact_shift = posterior.assign(mean_field=settled((table["mean_field"] - shift).to_numpy(dtype=float)))
    for rows in _decision_rows(with_exact_shift, bootstrap, TASK):
        of_mean_field = "reference" not in rows or (rows["reference"] != "accurate").all()
        if "quantity" not in rows and of_mean_field:
            yield rows.assign(method="posterior", variant="exact_shift")


def _decision_rows(table: pd.DataFrame, bootstrap: Bootstrap, keys: list[str]) -> Iterator[pd.DataFrame]:
    """The rows of decisions by sign: scores `mean_field`, `accurate` with its `error`, `first` and `second`."""
    signs = {name: np.sign(table[name]) for name in SCORES}
    last = table[table["t"] == table["t"].max()].set_index(["patient", *keys])["accurate"]
    target = np.sign(last.loc[pd.MultiIndex.from_frame(table[["patient", *keys]])].to_numpy())
    # an infinite error leaves everything open
    decided = (table["error"] == 0) | (table["accurate"].abs() > reference.OPEN * table["error"])
    apart = (signs["mean_field"] - signs["accurate"]).abs() / 2
    known = target != 0
    sampled = np.isfinite(table["error"]) & (table["error"] > 0)
    table = table[["patient", "t"]].assign(
        one=1,
        decided=decided,
        open=~decided,
        changed=apart.where(decided, 0.0),
        runs=(signs["first"] - signs["second"]).abs() / 2,
        nats=(table["mean_field"] - table["accurate"]).abs(),
        winner=known,
        right_mean_field=np.where(known, (1 + signs["mean_field"] * target) / 2, 0.0),
        right_accurate=np.where(known, (1 + signs["accurate"] * target) / 2, 0.0),
        disputed=decided & known & (apart > 0),
        sampled=sampled,
        error=table["error"].where(sampled, 0.0),
    )
    table["disputed_right"] = table["right_accurate"].where(table["disputed"], 0.0)
    yield from _shares(
        table,
        bootstrap,
        ("changed", "decided", {"metric": "rate"}),
        ("open", "one", {"metric": "rate", "quantity": "undecided"}),
        ("runs", "one", {"metric": "rate", "quantity": "two_runs"}),
        ("disputed_right", "disputed", {"metric": "rate", "quantity": "accurate_right"}),
        ("nats", "one", {"metric": "nats"}),
        ("error", "sampled", {"metric": "nats", "quantity": "error"}),
    )
    yield from _against_full_observation(table, bootstrap, "winner", "accuracy")


def _set_rows(table: pd.DataFrame, bootstrap: Bootstrap) -> Iterator[pd.DataFrame]:
    """The rows of the top k, of patients and of members."""
    table = table.assign(one=1, changed=table["shared"] < table["k"], runs=table["shared_runs"] < table["k"])
    yield from _shares(
        table,
        bootstrap,
        ("changed", "one", {"metric": "rate", "stratum": "top_k"}),
        ("runs", "one", {"metric": "rate", "stratum": "top_k", "quantity": "two_runs"}),
    )
    yield from _against_full_observation(table, bootstrap, "k", "p_at_k", stratum="top_k")


def _checked_rows(table: pd.DataFrame, bootstrap: Bootstrap) -> Iterator[pd.DataFrame]:
    """The rows of sampling against exact inference."""
    rate = {"metric": "rate", "stratum": "annealed_vs_exact"}
    return _shares(
        table.assign(made=table["duels"] - table["open"]),
        bootstrap,
        ("changed", "made", rate),
        ("open", "duels", rate | {"quantity": "undecided"}),
        ("within", "duels", rate | {"quantity": "within"}),
        ("apart", "duels", rate | {"metric": "nats"}),
    )


def _shares(
    table: pd.DataFrame, bootstrap: Bootstrap, *shares: tuple[str, str, Mapping[str, str]]
) -> Iterator[pd.DataFrame]:
    """By t, for each of the shares: what is counted, of what, and the columns that name it."""
    resampled = _resampled(table, bootstrap)
    for counted, total, label in shares:
        yield resampled.share(table, counted, total).assign(**label)


def _against_full_observation(
    table: pd.DataFrame, bootstrap: Bootstrap, total: str, metric: str, **of_gap: str
) -> Iterator[pd.DataFrame]:
    """What either inference has right, and by how much accurate inference has more."""
    resampled = _resampled(table, bootstrap)
    names = ("mean_field", "accurate")
    for name in names:
        share = resampled.share(table, f"right_{name}", total)
        yield share.assign(metric=metric, reference=name, target="likelihood")
    mean_field, accurate, cases = resampled.sums(table, *(f"right_{name}" for name in names), total)
    gap = resampled.gap([(accurate, cases)], [(mean_field, cases)]).assign(t=sorted(table["t"].unique()))
    yield gap.assign(metric="gap", reference=GAP, target="likelihood", **of_gap)
