"""Scores in binary tasks about the patients' labels, for each encoding of the cohort and each closure.

In this module, t is the percentage of the entity's support (the features of its model) that has been observed. Labels
are used only in metrics.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from itertools import compress
from typing import Any

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from afa.cohort.cohort import Cohort
from afa.engine.compile import in_threads
from afa.engine.elimination_tables import UNOBSERVED
from afa.engine.tasks import elbo_differences, follow_gain, task_of
from afa.evaluate.accuracy import auroc, rounded_scores
from afa.evaluate.inputs import ReferenceVariant, shuffled_genes
from afa.evaluate.long_tables import rows_of
from afa.inference.meanfield import Solver
from afa.model.arrays import Bools, Codes, Floats, Ints
from afa.model.bundle import Bundle
from afa.model.bundle.rates import bundle_models, exclusive_log_odds
from afa.model.closure import COUPLINGS, STRENGTH, Closure, contraction, shared_factor
from afa.model.orders import random_orders

GREEDY = "greedy"
RANDOM = "random"


@dataclass(frozen=True)
class LabelSetting:
    """A pair of settings: an encoding of a cohort, and a closure (how the two class models of a task are made).

    The settings that were fixed in advance have the `variant` "".
    """

    reference: ReferenceVariant
    coupling: Closure
    threshold: float | None = None
    strength: float = STRENGTH
    variant: str = ""

    @property
    def keys(self) -> dict[str, str]:
        return {"reference": self.reference, "coupling": self.coupling, "variant": self.variant}

    @property
    def closure(self) -> dict[str, Any]:
        """Return keyword arguments that determine how class models are made, for functions in `afa.model.closure`."""
        return {"coupling": self.coupling, "strength": self.strength}

    def at_full_observation(self, bundle: Bundle, cohort: Cohort) -> pd.DataFrame:
        """Return a table of the scores S at full observation, in nats, for every entity and patient."""
        table, scores = (
            rows_of(entity=bundle.entities, patient=cohort.patients),
            bundle.energies(cohort.values, self.coupling),
        )
        return table.assign(reference=self.reference, coupling=self.coupling, score=rounded_scores(scores).T.ravel())


def settings_of(
    references: Sequence[ReferenceVariant],
    thresholds: Sequence[float],
    strengths: Sequence[float],
    explicit: Sequence[ReferenceVariant] = (),
    *,
    closed: bool = True,
) -> list[LabelSetting]:
    """Return all combinations of an encoding of the values and a closure (how class models are made).

    Combinations that were fixed in advance come first. The first threshold and the first strength were fixed in
    advance.

    Parameters
    ----------
    explicit : the references for which the bundle's probabilities hold
    closed : True if the bundle has the paper's closures, which need features with three values

    """
    found = []
    for coupling in COUPLINGS if closed else ():
        for strength in strengths if coupling == "shared" else strengths[:1]:
            varied = "" if strength == strengths[0] else f"strength={strength:g}"
            for reference in references:
                for threshold in thresholds if reference == "cohort" else (None,):
                    other = "" if threshold in (None, thresholds[0]) else f"threshold={threshold:g}"
                    found.append(LabelSetting(reference, coupling, threshold, strength, f"{other} {varied}".strip()))
    found += [
        LabelSetting(reference, "explicit", thresholds[0] if reference == "cohort" else None)
        for reference in references
        if reference in explicit
    ]
    return sorted(found, key=lambda setting: setting.variant != "")


@dataclass(frozen=True)
class LabelTask:
    """The binary task of one label in one setting.

    `values` has the shape (P, M) and contains the patients' values. `positive` has the shape (P,) and is True for
    patients with the label.
    """

    setting: LabelSetting
    bundle: Bundle
    entity: str
    patients: tuple[str, ...]
    values: Codes
    positive: Bools

    @classmethod
    def of_controls(cls, setting: LabelSetting, bundle: Bundle, cohort: Cohort) -> list[LabelTask]:
        """Return, for each entity, one binary task whose patients are the healthy controls.

        In these tasks, every control counts as a patient without the label.
        """
        names, values = tuple(map(str, cohort.controls.index)), cohort.controls.to_numpy(dtype=np.int8)
        ill = np.zeros(len(names), dtype=bool)
        return [cls(setting, bundle, entity, names, values, ill) for entity in bundle.entities if names]

    def row(self, shift: float) -> dict[str, object]:
        """Return the row that describes this task in the table `tasks`."""
        mrf, setting, shared = self.bundle.mrf(self.entity), self.setting, self.setting.coupling == "shared"
        return {
            **setting.keys,
            "entity": self.entity,
            "threshold": setting.threshold,
            "strength": setting.strength if shared else None,
            "support": len(self.support),
            "contraction": contraction(mrf),
            "factor": shared_factor(mrf, setting.strength) if shared else None,
            "positive": int(self.positive.sum()),
            "negative": int((~self.positive).sum()),
            "shift": float(shift),
        }

    @property
    def support(self) -> NDArray[np.intp]:
        if self.setting.coupling == "explicit":
            return self.bundle.how_often(self.entity)[2]
        return self.bundle.support(self.entity)

    def counts(self, percents: Sequence[int]) -> list[int]:
        """Return the numbers of features that make up given percentages of the support, rounded up."""
        return [-(-percent * len(self.support) // 100) for percent in percents]

    def seen(self, percents: Sequence[int], seed: int) -> Bools:
        """Return which features of the support are observed at each percentage, in each patient's random order.

        Returns
        -------
        seen : (P, T, S) bool, for T percentages of the support and S features in the support

        """
        rank = random_positions(self.bundle.features, self.patients, seed)[:, self.support]
        place = rank.argsort(axis=1).argsort(axis=1)
        return np.asarray(place[:, None, :] < np.array(self.counts(percents))[:, None])


def tasks_of(
    bundle: Bundle, cohorts: Mapping[float | None, Cohort], settings: Sequence[LabelSetting]
) -> tuple[list[LabelTask], list[str]]:
    """Return two lists: binary tasks for all labels and settings, grouped by label; and the excluded labels.

    A label is excluded if all patients with a known label are in the same class.

    Parameters
    ----------
    cohorts : threshold -> cohort. The key None is for the cohort of the run, encoded by comparison with controls or
        with ranges

    """
    tasks, left_out = [], []
    labels = next(iter(cohorts.values())).labels
    for entity in (name for name in bundle.entities if name in labels):
        known = labels[entity].notna().to_numpy(dtype=bool)
        positive = (labels[entity] == 1).fillna(False).to_numpy(dtype=bool)[known]
        if positive.all() or not positive.any():
            left_out.append(entity)
            continue
        for setting in settings:
            cohort = cohorts[setting.threshold]
            names = tuple(compress(cohort.patients, known))
            tasks.append(LabelTask(setting, bundle, entity, names, cohort.values[known], positive))
    return tasks, left_out


def by_model(
    tasks: Sequence[LabelTask], follow: Callable[[Sequence[LabelTask]], list[pd.DataFrame]], threads: int | None
) -> list[pd.DataFrame]:
    """Return one table for each task, in the order of `tasks`.

    Tasks that differ only in the encoding have the same model and many states in common. `follow` is therefore called
    once for each model, with all tasks of the model.
    """
    models: dict[tuple[Any, ...], list[int]] = {}
    for i, task in enumerate(tasks):
        models.setdefault((task.entity, *task.setting.closure.values()), []).append(i)
    groups, parts = list(models.values()), [pd.DataFrame()] * len(tasks)

    def work(first: int, last: int) -> None:
        for members in groups[first:last]:
            for i, part in zip(members, follow([tasks[i] for i in members]), strict=True):
                parts[i] = part

    in_threads(work, len(groups), threads)
    return parts


def in_random_order(
    task: LabelTask, values: Codes, percents: Sequence[int], seed: int, solver: Solver | None
) -> tuple[Floats, float]:
    """Return the log-odds F_1 - F_0 along a random order of features, and the shift to subtract from the log-odds.

    Only the features of the entity's model are observed. To compute the shift, the prior log-odds are subtracted from
    the value of F_1 - F_0 before any observation.

    If several patients have the same state, inference runs once for this state.

    Parameters
    ----------
    values : (V P, M) int8, the P patients' values in V encodings or permutations

    Returns
    -------
    raw : (V P, T + 2) float64, nats, with 0 %, each of `percents`, and 100 % of the support observed

    """
    support, seen = task.support, task.seen([*percents, 100], seed)
    seen = np.tile(seen, (len(values) // len(seen), 1, 1))
    known = np.where(seen, values[:, None, support], UNOBSERVED).reshape(-1, len(support))
    whole = np.ascontiguousarray(known).view(np.dtype((np.void, len(support))))[:, 0]
    _, first, state_of = np.unique(whole, return_index=True, return_inverse=True)
    values_seen = np.full((len(first), values.shape[1]), UNOBSERVED, dtype=np.int8)
    values_seen[:, support] = known[first]
    observed = values_seen != UNOBSERVED
    values_seen[~observed] = 0
    options: dict[str, Any] = {**task.setting.closure, "solver": solver, "threads": 1}
    solved = elbo_differences(task.bundle, task.entity, observed, values_seen, **options)
    raw = np.column_stack([np.full(len(values), solved.start), solved.raw[state_of].reshape(len(values), -1)])
    return rounded_scores(raw), float(rounded_scores(np.array(solved.shift)))


@lru_cache(maxsize=64)
def random_positions(features: tuple[str, ...], patients: tuple[str, ...], seed: int) -> Ints:
    """Return the position of each feature in each patient's random order.

    The returned array is cached: do not change it.

    Returns
    -------
    places : (P, M) int64, 0 for the first feature of the order

    """
    return np.argsort(random_orders(features, patients, [seed])[:, 0], axis=1)


def as_greedy_chooses(
    task: LabelTask, values: Codes, percents: Sequence[int], solver: Solver | None, *, to_the_end: bool = True
) -> tuple[Floats, float]:
    """Return the log-odds F_1 - F_0 along the order that `greedy` chooses, and the shift to subtract from the log-odds.

    The rule `greedy` chooses features by mutual information. Results for patients with the same observed values are
    computed together. If `to_the_end` is False, features are observed only up to the largest of `percents`, and the
    last column is NaN.

    Parameters
    ----------
    values : (V P, M) int8

    Returns
    -------
    raw : (V P, T + 2) float64, nats

    """
    laid_out = task_of(task.bundle, task.entity, solver=solver, **task.setting.closure)
    counts = task.counts([0, *percents, 100])
    paths = follow_gain(laid_out, values, gain="cmi", last_step=None if to_the_end else max(counts[:-1]))
    shift = float(rounded_scores(np.array(laid_out.shift)))
    raw = rounded_scores(paths.two_elbo[:, 0, counts])
    raw[:, -1] = raw[:, -1] if to_the_end else np.nan
    return raw, shift


def followed(
    tasks: Sequence[LabelTask], percents: Sequence[int], seeds: Sequence[int], solver: Solver | None
) -> list[pd.DataFrame]:
    """Return the table `scores` of each task, for random orders and for the order that `greedy` chooses.

    All `tasks` must have the same model. They may differ in the encoding.
    """
    fixed = [i for i, task in enumerate(tasks) if not task.setting.variant]
    runs = [(RANDOM, seed, fixed if later else range(len(tasks))) for later, seed in enumerate(seeds)]
    tables: list[list[pd.DataFrame]] = [[] for _ in tasks]
    shown = [0, *percents, 100]
    for allocation, seed, among in [*runs, (GREEDY, None, fixed)] if fixed else runs[:1]:
        values = np.concatenate([tasks[i].values for i in among])
        if allocation == RANDOM:
            raw, shift = in_random_order(tasks[0], values, percents, int(seed or 0), solver)
        else:
            raw, shift = as_greedy_chooses(tasks[0], values, percents, solver)
        for i, own in zip(among, np.split(raw, len(among)), strict=True):
            task, rows = tasks[i], rows_of(patient=tasks[i].patients, t=np.array(shown, dtype=np.int32))
            keys: dict[str, Any] = {**task.setting.keys, "entity": task.entity, "allocation": allocation}
            table = rows.assign(
                **keys,
                shift=shift,
                seed=pd.array([seed], dtype="Int64").repeat(own.size),
                observed=np.tile(task.counts(shown), len(task.patients)).astype(np.int32),
                raw=own.ravel(),
                calibrated=rounded_scores(own - shift).ravel(),
                label=np.repeat(task.positive, len(shown)).astype(np.int8),
            )
            tables[i].append(table)
    return [pd.concat(parts, ignore_index=True) for parts in tables]


def _feature_permutation(task: LabelTask, permutation: int) -> Ints:
    """Return a permutation of the bundle's features, made by `shuffled_genes`."""
    bundle = task.bundle
    kinds = () if bundle.ternary else tuple(bundle.kinds.tolist())
    return shuffled_genes(len(bundle.features), permutation, kinds)


def label_null(
    tasks: Sequence[LabelTask],
    percents: Sequence[int],
    seed: int,
    permutations: int,
    whole_permutations: int,
    solver: Solver | None,
    threads: int | None,
) -> list[pd.DataFrame]:
    """Return the metrics of bundles with shuffled genes, one table for each task.

    A shuffled bundle is the real bundle after genes were exchanged at random: a gene gets the potentials and couplings
    of another gene. An elicited bundle should be more accurate than shuffled bundles, which contain no knowledge about
    genes. The code permutes the values of the genes, which is equivalent to permuting the potentials.

    For each percentage of observed features in `percents`, metrics are computed for `permutations` shuffled bundles.
    Features are observed in the random order of the first seed, and again in the order that `greedy` chooses. At full
    observation, metrics are computed only once for both orders, because the order then has no effect. The metrics at
    full observation are computed for `whole_permutations` shuffled bundles. For `balanced_accuracy`, the sign of the
    raw score is the decision about a patient. For `balanced_accuracy_calibrated`, the shift is first subtracted from
    the score. The shift is the raw score before any observation, minus the prior log-odds.
    """

    def follow(own: Sequence[LabelTask]) -> list[pd.DataFrame]:
        # Inference for all shuffled bundles runs together, because they have many states in common.
        shuffles = [_feature_permutation(own[0], permutation) for permutation in range(permutations)]
        values = np.concatenate([task.values[:, genes] for task in own for genes in shuffles])
        tables: list[list[pd.DataFrame]] = [[] for _ in own]
        for allocation in (RANDOM, GREEDY):
            if allocation == RANDOM:
                raw, shift = in_random_order(own[0], values, percents, seed, solver)
            else:
                raw, shift = as_greedy_chooses(own[0], values, percents, solver, to_the_end=False)
            scores = raw[:, 1:-1].reshape(len(own), permutations, -1, len(percents)).swapaxes(1, 2)
            for task, each, found in zip(own, scores, tables, strict=True):
                found.append(
                    _permutation_metrics(task, each, shift).assign(
                        allocation=allocation, t=np.tile(percents, permutations)
                    )
                )
        whole = [_null_at_full_observation(task, whole_permutations, shift) for task in own]
        return [pd.concat([*found, last]) for found, last in zip(tables, whole, strict=True)]

    return by_model(tasks, follow, threads)


def _null_at_full_observation(task: LabelTask, permutations: int, shift: float) -> pd.DataFrame:
    """Return the metrics of shuffled bundles when all features are observed.

    The code permutes the patients' values, which is equivalent to shuffling the bundle.
    """
    support, score = task.support, _score_function(task)
    values = (task.values[:, _feature_permutation(task, permutation)[support]] for permutation in range(permutations))
    scores = np.stack([score(x.astype(np.float64)) for x in values], axis=1)[..., None]
    found = _permutation_metrics(task, rounded_scores(scores), shift).assign(t=100)
    return pd.concat([found.assign(allocation=name) for name in (RANDOM, GREEDY)], ignore_index=True)


def _score_function(task: LabelTask) -> Callable[[Floats], Floats]:
    """Return a function that computes the score S at full observation, in nats.

    The function's argument has the shape (P, n): the values of the n features in the support. Its result has the shape
    (P,).
    """
    support = task.support
    if task.setting.coupling == "explicit":
        bundle, entity = task.bundle, task.entity
        one, zero = bundle_models(bundle, entity, features=support)
        return lambda x: one.energies(x) - zero.energies(x) + exclusive_log_odds(bundle, entity, x, support)
    mrf = task.bundle.contrast(task.entity, task.setting.coupling)
    unary, couplings = mrf.unary[support], mrf.couplings[support][:, support].toarray()
    return lambda x: mrf.prior + x @ unary + 0.5 * ((x @ couplings) * x).sum(axis=1)


def _permutation_metrics(task: LabelTask, scores: Floats, shift: float) -> pd.DataFrame:
    """Return a table with metrics for each permutation and t, from scores of the shape (P, permutations, T)."""
    flat = scores.reshape(len(scores), -1)
    table = {
        "reference": task.setting.reference,
        "coupling": task.setting.coupling,
        "entity": task.entity,
        "permutation": np.repeat(np.arange(scores.shape[1]), scores.shape[2]).astype(np.int32),
        "auroc": auroc(flat, task.positive),
        "balanced_accuracy": _balanced_accuracy(flat, task.positive),
        "balanced_accuracy_calibrated": _balanced_accuracy(rounded_scores(flat - shift), task.positive),
    }
    return pd.DataFrame(table)


def _balanced_accuracy(scores: Floats, positive: Bools) -> Floats:
    """Return the balanced accuracy of decisions by the signs of scores.

    Scores have the shape (P, T), and accuracies have the shape (T,). A score of 0 counts as half correct.
    """
    signs = np.sign(scores)
    share: Floats = 0.5 + 0.25 * (signs[positive].mean(axis=0) - signs[~positive].mean(axis=0))
    return share
