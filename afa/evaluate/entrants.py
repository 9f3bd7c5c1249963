"""Define the data sets, the variants of a bundle's model and the trained classifiers that the league compares.

A data set contains the patients' values, the questions about the patients, and facts about the table. The compiled
engine evaluates the variants of the model. A feature that was not measured (`MISSING`) is never chosen and has no
effect (docs/decisions.md, F8).
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import numpy as np
import pandas as pd
import scipy.sparse as sp

from afa.cohort.cells import read_cells
from afa.cohort.table_cohort import encode_cohort, field_cohort, find_table, load_field, read_table_labels
from afa.engine.follow import choose, follow
from afa.engine.layout import Models
from afa.engine.run import ENTITIES, MISSING
from afa.engine.tasks import classes_of
from afa.errors import CohortError
from afa.evaluate.accuracy import accuracies, areas_of, auroc, ranking_metrics
from afa.evaluate.field import build_field_bundle
from afa.evaluate.simulate.walks import measured_first
from afa.evaluate.update import NO_ENTITY
from afa.model.arrays import Bools, Codes, Floats, Ints
from afa.model.bundle import Bundle
from afa.model.bundle.rates import STRENGTH, exclusive_of, hypotheses_of, with_groups
from afa.model.closure import Closure
from afa.model.mrf import VALUES, PairwiseMRF
from afa.model.orders import random_order
from afa.planner.sides import Repeats, sides_for


@dataclass(frozen=True)
class FieldTask:
    """Store a question about each patient, with C possible answers (hypotheses).

    Model variants, the null model and classifiers are run only for the main questions of a data set.

    Attributes
    ----------
    name : name of the question
    hypotheses : names of the C hypotheses
    answers : (P,) int64, index of the true hypothesis; -1 if unknown
    entity : the entity of a yes-or-no question, or None if the question is which entity is present
    main : True for a main question of the data set

    """

    name: str
    hypotheses: tuple[str, ...]
    answers: Ints
    entity: str | None = None
    main: bool = True

    @property
    def metrics(self) -> tuple[str, ...]:
        return ("auroc", "balanced_accuracy", "average_precision") if self.entity else ("first_place", "by_class")


@dataclass(frozen=True, eq=False)
class Entrant:
    """Store a data set: the patients' values and the questions.

    Attributes
    ----------
    name : name of the data set
    patients : P names
    values : (P, M) int8, -1, 0, +1 or `MISSING`
    bundle : the bundle with probabilities
    directions : the bundle that states only directions (higher or lower), without probabilities
    tasks : the questions
    confounded : features that reveal a label because of how patients were recruited
    rows : (P,) int64, index of each patient's row among the distinct rows of the table

    """

    name: str
    patients: tuple[str, ...]
    values: Codes
    bundle: Bundle
    directions: Bundle
    tasks: tuple[FieldTask, ...]
    confounded: tuple[str, ...]
    rows: Ints

    @property
    def features(self) -> tuple[str, ...]:
        return self.bundle.features

    def some(self, n: int) -> Entrant:
        """Return the data set with at most n patients. The sample depends only on the names of the patients."""
        if n >= len(self.patients):
            return self
        drawn = np.sort(random_order(self.patients, patient="", seed=0, experiment="league")[:n])
        return replace(
            self,
            patients=tuple(self.patients[i] for i in drawn),
            values=self.values[drawn],
            tasks=tuple(replace(task, answers=task.answers[drawn]) for task in self.tasks),
            rows=self.rows[drawn],
        )


def read_entrant(folder: str | Path, mirror: str | Path | None = None) -> Entrant | str:
    """Return the data set in a folder, or a text that explains why the table of patients is missing.

    Raises
    ------
    CohortError, ConfigError : an existing file is invalid.

    """
    root, config = Path(folder), field_cohort(folder)
    study, table = load_field(root)
    try:
        files = find_table(config, mirror)
    except CohortError as error:
        if table.carried or not all("no such file" in fault.found for fault in error.faults):
            raise
        return f"not fetched: {config.address}"
    if files.labels is None:
        return "no labels.csv, with which answers could be compared"
    encoded = encode_cohort(config, files)
    patients = tuple(encoded.values.index)
    with TemporaryDirectory() as temporary:
        bundle = build_field_bundle(root, Path(temporary) / "bundle", how_often=True)
        directions = build_field_bundle(root, Path(temporary) / "directions")
    labels = read_table_labels(files.labels, patients)
    known = labels.reindex(columns=list(bundle.entities)).astype("Float64").to_numpy(dtype=np.float64, na_value=np.nan)
    cells, names = read_cells(files.table, "feature", bundle.features), list(bundle.features)
    texts = pd.DataFrame({name: cells.columns[name] for name in names}, index=list(cells.names))
    return Entrant(
        study.name,
        patients,
        encoded.values.fillna(MISSING).to_numpy(dtype=np.int8),
        bundle,
        directions,
        tuple(questions_of(bundle.entities, known, study.holds)),
        study.confounded,
        np.asarray(texts.loc[list(patients)].groupby(names, sort=False).ngroup(), dtype=np.int64),
    )


def questions_of(entities: Sequence[str], labels: Floats, holds: str) -> Iterator[FieldTask]:
    """Yield one yes-or-no question for each entity that some patients have and other patients lack.

    If a patient can have at most one entity, one more question is yielded: which entity does the patient have?

    Parameters
    ----------
    labels : (P, N) float64, 0, 1 or NaN

    """
    for column, entity in enumerate(entities):
        answers = np.where(np.isnan(labels[:, column]), -1, 1 - np.nan_to_num(labels[:, column])).astype(np.int64)
        if {0, 1} <= set(answers.tolist()):
            yield FieldTask(entity, (entity, f"not {entity}"), answers, entity, main=holds == "several")
    if holds == "several":
        return
    count = np.where(np.isnan(labels).any(axis=1), -1, np.nansum(labels, axis=1))
    answers = np.where(count == 1, np.nan_to_num(labels).argmax(axis=1), -1)
    hypotheses = tuple(entities)
    if holds == "one or none":
        hypotheses, answers = (*entities, NO_ENTITY), np.where(count == 0, len(entities), answers)
    yield FieldTask("which", hypotheses, answers.astype(np.int64))


def statistics(task: FieldTask, answers: Ints, evidence: Floats, weights: Floats) -> dict[str, Floats]:
    """Return a mapping from the name of each metric to the metric's values, (R, T).

    R is the number of resamples. T is the number of rounds (numbers of observed features) at which answers are
    evaluated.

    `balanced_accuracy` is computed at equal prior probabilities. `first_place` is the share of patients whose true
    hypothesis has the most evidence; a tie of n hypotheses counts 1/n. `by_class` is the mean of `first_place` over C
    groups of patients; the patients of a group have the same true hypothesis.

    Parameters
    ----------
    answers : (P,) int64
    evidence : (P, T, C) float64, log-evidence in nats
    weights : (R, P) float64

    """
    columns: dict[str, list[Floats]] = {metric: [] for metric in task.metrics}
    for t in range(evidence.shape[1]):
        found: tuple[Floats, ...]
        if task.entity is not None:
            score, positive = evidence[:, t, 0] - evidence[:, t, 1], answers == 0
            area, precision = ranking_metrics(score.round(9), positive, weights)
            found = (area, accuracies(score.round(9), positive, weights)[1], precision)
        else:
            rounded = evidence[:, t].round(9)
            first = rounded == rounded.max(axis=1, keepdims=True)
            right = first[np.arange(len(answers)), answers] / first.sum(axis=1)
            classes = (answers[:, None] == np.arange(len(task.hypotheses))).astype(np.float64)
            with np.errstate(invalid="ignore"):
                shares = (weights @ (classes * right[:, None])) / (weights @ classes)
            found = (weights @ right / weights.sum(axis=1), np.nanmean(shares, axis=1))
        for metric, column in zip(columns, found, strict=True):
            columns[metric].append(column)
    return {metric: np.stack(found, axis=1) for metric, found in columns.items()}


def main_metric(task: FieldTask, answers: Ints, evidence: Floats, weights: Floats) -> Floats:
    """Return the main metric of a question, `auroc` or `first_place`, for each resample and t, (R, T).

    Parameters
    ----------
    answers, evidence, weights : as in `statistics`

    """
    if task.entity is None:
        return statistics(task, answers, evidence, weights)[task.metrics[0]]
    return areas_of(evidence[:, :, 0] - evidence[:, :, 1], answers == 0, weights)


def facts(entrant: Entrant, followed: int) -> pd.DataFrame:
    """Return a table with the numbers of patients, distinct rows and features for each question.

    The column `missingness_auroc` shows how well the number of a patient's measured values predicts a yes-or-no answer;
    its value is the larger of AUROC and 1 - AUROC.
    """
    measured = (entrant.values != MISSING).sum(axis=1).astype(np.float64)
    rows = []
    for task in entrant.tasks:
        asked, telling = task.answers >= 0, np.nan
        if task.entity is not None:
            area = auroc(measured[asked][:, None], task.answers[asked] == 0)[0]
            telling = max(area, 1 - area)
        counts = np.bincount(task.answers[asked], minlength=len(task.hypotheses))
        rows.append(
            {
                "task": task.name,
                "main": task.main,
                "patients": int(asked.sum()),
                "followed": min(followed, int(asked.sum())),
                "distinct": len(np.unique(entrant.rows[asked])),
                "complete": int((asked & (measured == len(entrant.features))).sum()),
                "features": len(entrant.features),
                "missing": float((entrant.values[asked] == MISSING).mean()),
                "counts": "; ".join(f"{name} {n}" for name, n in zip(task.hypotheses, counts, strict=True)),
                "exclusive": "; ".join(name for name, _ in entrant.bundle.exclusive),
                "missingness_auroc": telling,
            }
        )
    return pd.DataFrame(rows)


IDENTIFICATION_RULES = ("information", "boundary", "greedy", "priority_all")
"""Rules that search for the true hypothesis. The first rule is the planner's rule. With two hypotheses, all rules
choose the same features."""


@dataclass(frozen=True, eq=False)
class HypothesisModel:
    """Store a model of C hypotheses for the compiled engine; exactly one hypothesis is true of each patient."""

    models: Bundle | Models

    def planned(
        self, values: Codes, rounds: Sequence[int], *, rule: str = IDENTIFICATION_RULES[0], fixed: bool = False
    ) -> Floats:
        """Return the log-evidence of the hypotheses, in nats, after each number of features in `rounds`, (P, T, C).

        The rule chooses the order of features for each patient.

        Parameters
        ----------
        values : (P, M) int8
        rounds : (T,) numbers of observed features
        fixed : True if the rule scores candidates only once, before any observation. All patients then have the same
            order

        """
        most, at = values.shape[1], _rounds_with_zero(rounds)
        partly = [t for t in at if t < most]
        elbo = choose(
            self.models,
            values,
            ENTITIES,
            allocation=rule,
            gain="cmi",
            k=1,
            n_rounds=partly[-1],
            rescoring=(0,) if fixed else None,
            rounds=partly,
        ).elbo
        if most in at:  # at full observation the order of features does not matter
            everything = measured_first(np.tile(np.arange(most), (len(values), 1)), values)
            last = follow(self.models, values, everything, ENTITIES, rounds=[0, most]).elbo
            elbo = np.concatenate([elbo, last[:, 1:]], axis=1)
        return self._evidence_with_prior(elbo, rounds)

    def orders(
        self, values: Codes, rule: str = IDENTIFICATION_RULES[0], *, fixed: bool = False, most: int | None = None
    ) -> Ints:
        """Return the order in which a rule chooses each patient's features, (P, M), or (P, most) if `most` is given.

        In each order, entries after the last measured feature are -1.

        Parameters
        ----------
        values : (P, M) int8

        """
        rescoring = (0,) if fixed else None
        return choose(self.models, values, allocation=rule, gain="cmi", k=1, n_rounds=most, rescoring=rescoring).order

    def along(self, values: Codes, orders: Ints, rounds: Sequence[int], **options: Any) -> Floats:
        """Return the log-evidence of the hypotheses, in nats, (P, T, C). Features are observed in the given `orders`.

        `options` may contain `solver` and `threads`.

        Parameters
        ----------
        values : (P, M) int8
        orders : (P, M) int64

        """
        found = follow(self.models, values, orders, ENTITIES, rounds=_rounds_with_zero(rounds), **options)
        return self._evidence_with_prior(found.elbo, rounds)

    def _evidence_with_prior(self, elbo: Floats, rounds: Sequence[int]) -> Floats:
        """Return the log-evidence of the hypotheses, (P, T, C), including the prior.

        At t = 0 the log-evidence equals the prior (docs/decisions.md, S7 and F3).
        """
        known = np.asarray(self.models.priors) + elbo - elbo[:, :1]
        shown = _rounds_with_zero(rounds)
        return np.asarray(known[:, [shown.index(t) for t in rounds]])


@dataclass(frozen=True, eq=False)
class Discounted(HypothesisModel):
    """Define a model variant in which correlated observations count less, instead of being coupled (F16).

    The log-odds compare each hypothesis with the last hypothesis of `models`. Log-odds are returned only for the
    hypotheses of the variant `asked`.

    Attributes
    ----------
    asked : the model variant that chooses the features
    repeats : one pair for each hypothesis except the last. The first element of a pair, (n,) int64, contains the
        indices of the features in the hypothesis's model. The second element describes how strongly these features are
        correlated

    """

    asked: HypothesisModel
    repeats: tuple[tuple[Ints, Repeats], ...]

    def planned(
        self, values: Codes, rounds: Sequence[int], *, rule: str = IDENTIFICATION_RULES[0], fixed: bool = False
    ) -> Floats:
        """Return the log-odds, shrunk towards the prior, at each t in `rounds`, (P, T, C).

        The model variant `asked` chooses the features.

        Parameters
        ----------
        values : (P, M) int8, -1, 0, +1 or `MISSING`

        """
        orders = self.asked.orders(values, rule, fixed=fixed, most=max(t for t in (0, *rounds) if t < values.shape[1]))
        return self.along(values, completed(orders, values.shape[1]), rounds)

    def along(self, values: Codes, orders: Ints, rounds: Sequence[int], **options: Any) -> Floats:
        """Return the log-odds, shrunk towards the prior, (P, T, C). Features are observed in the given `orders`.

        Parameters
        ----------
        values : (P, M) int8, -1, 0, +1 or `MISSING`
        orders : (P, M) int64, indices of the features in the order of observation

        """
        shown = _rounds_with_zero(rounds)
        evidence = super().along(values, orders, shown, **options)
        odds, rows = evidence - evidence[:, :, -1:], np.arange(len(values))[:, None]
        for place, t in enumerate(shown):
            seen = np.zeros(values.shape, dtype=np.bool_)
            seen[rows, orders[:, :t]] = True
            seen &= values != MISSING
            for c, (at, repeats) in enumerate(self.repeats):
                share = repeats.believed(seen[:, at])
                odds[:, place, c] = odds[:, 0, c] + share * (odds[:, place, c] - odds[:, 0, c])
        return odds[:, [shown.index(t) for t in rounds], : len(self.asked.models.entities)]


def _rounds_with_zero(rounds: Sequence[int]) -> list[int]:
    return sorted({0, *rounds})


def completed(orders: Ints, n_features: int) -> Ints:
    """Return each patient's order with all M features, (P, M).

    Features missing from an order are appended in the order of the bundle.

    Parameters
    ----------
    orders : (P, R) int64, feature indices, then -1

    """
    place = np.full((len(orders), n_features + 1), n_features, dtype=np.int64)
    np.put_along_axis(place, np.where(orders < 0, n_features, orders), np.arange(orders.shape[1])[None], axis=1)
    return place[:, :n_features].argsort(axis=1, kind="stable")


HEADLINE = "how often"
"""Name of the model variant that uses the whole bundle. This variant is compared with the null model and the
classifiers."""
UNCOUPLED, EFFECTIVE_TAU = f"{HEADLINE}, without couplings", f"{HEADLINE}, tau: effective"
WITH_PROBABILITIES = (HEADLINE, UNCOUPLED, EFFECTIVE_TAU)
"""Variants with probabilities: the whole bundle, the bundle without couplings (naive Bayes), and the bundle with shrunk
log-odds. The last two use the same order of features.
"""


def variants(entrant: Entrant, task: FieldTask) -> dict[str, tuple[HypothesisModel, Bools, Codes]]:
    """Map the name of each model variant to three things: its model, a mask of patients (P,), and the values (P, M).

    The values have a row for every patient, but a variant is evaluated only for the patients in its mask.
    """
    bundle, entity, values, asked = entrant.bundle, task.entity, entrant.values, task.answers >= 0
    own = whole(bundle, task)
    found = {HEADLINE: (own, asked, values)}
    if entrant.confounded:
        hidden = values.copy()
        hidden[:, [entrant.features.index(name) for name in entrant.confounded]] = MISSING
        found[f"{HEADLINE}, without {', '.join(entrant.confounded)}"] = (own, asked, hidden)
    if not task.main:
        return found
    complete = asked & (values != MISSING).all(axis=1)
    if complete.sum() < 0.95 * asked.sum() and np.unique(task.answers[complete]).size > 1:
        found[f"{HEADLINE}, of complete patients"] = (own, complete, values)
    found[UNCOUPLED] = (uncoupled(own), asked, values)
    found[EFFECTIVE_TAU] = (discounted(bundle, own, entity), asked, values)
    found[f"{HEADLINE}, plain couplings"] = (plainly_coupled(own), asked, values)
    if entity is not None:
        found["directions"] = (with_and_without(entrant.directions, entity, "differential"), asked, values)
        shared = with_and_without(entrant.directions, entity, "shared")
        found["directions, shared couplings"] = (shared, asked, values)
    else:  # the paper's models lack the hypothesis `none`
        found["directions"] = (
            HypothesisModel(entrant.directions),
            asked & (task.answers < len(bundle.entities)),
            values,
        )
    return found


def whole(bundle: Bundle, task: FieldTask) -> HypothesisModel:
    """Return the variant that uses all probabilities and couplings of a bundle."""
    if task.entity is not None:
        return with_and_without(bundle, task.entity, "explicit")
    return which(bundle, NO_ENTITY if NO_ENTITY in task.hypotheses else None)


def labels_for(bundle: Bundle, task: FieldTask, answers: Ints) -> Floats:
    """Return the labels with which `afa.evaluate.update` updates a bundle: 1, 0 or NaN, (n, N).

    A label is NaN if the question does not concern the entity.

    Parameters
    ----------
    answers : (n,) int64, index of each patient's hypothesis

    """
    if task.entity is None:
        return np.asarray(answers[:, None] == np.arange(len(bundle.entities)), dtype=np.float64)
    labels = np.full((len(answers), len(bundle.entities)), np.nan)
    labels[:, bundle.index(task.entity)] = answers == 0
    return labels


def with_and_without(bundle: Bundle, entity: str, closure: Closure) -> HypothesisModel:
    """Return a model with two hypotheses: the patient has the entity, or the patient does not have the entity."""
    return HypothesisModel(classes_of(bundle, entity, closure, STRENGTH))


def which(bundle: Bundle, no_entity: str | None = None) -> HypothesisModel:
    """Return a model with one hypothesis for each entity: the patient has this entity.

    If `no_entity` is given, it is the name of an additional hypothesis: the patient has no entity, and the values have
    the background probabilities.
    """
    found, names = hypotheses_of(bundle), list(bundle.entities)
    chances = [bundle.how_often(entity)[0] for entity in bundle.entities]
    if no_entity is not None:
        at = np.array(sorted(j for _, members in bundle.exclusive for j in members), dtype=np.intp)
        nothing = PairwiseMRF.from_probabilities(bundle.background[at], np.zeros((len(at), len(at))))
        found, names, chances = [*found, (nothing, at)], [*names, no_entity], [*chances, bundle.background]
    models = tuple(with_groups(bundle, model, at, said) for (model, at), said in zip(found, chances, strict=True))
    spoken = tuple(at for _, at in found)
    groups = exclusive_of(bundle, spoken[0])
    return HypothesisModel(
        Models(bundle.name, tuple(names), bundle.features, models, spoken, bundle.background, groups)
    )


def uncoupled(variant: HypothesisModel) -> HypothesisModel:
    """Return the model variant without couplings, which is naive Bayes (docs/decisions.md, F4)."""
    return _with_changed_models(variant, lambda model: (np.exp(model.terms), 0 * model.couplings))


def discounted(bundle: Bundle, asked: HypothesisModel, entity: str | None) -> Discounted:
    """Return a model variant that, instead of using couplings, shrinks the log-odds for correlated observations (F16).

    A member of an exclusive group is treated as uncorrelated with other observations.
    """
    apart = bundle if bundle.rates is None else replace(bundle, rates=replace(bundle.rates, exclusive=()))
    known = sides_for(apart, "one", exactly=False, entity=entity, discounted=True)
    repeats = tuple((side.at, side.repeats) for side in known.sides if side.repeats is not None and side.at.size)
    models = uncoupled(asked if entity is not None else which(bundle, "none")).models
    return Discounted(models, uncoupled(asked), repeats)


def plainly_coupled(variant: HypothesisModel) -> HypothesisModel:
    """Return the model variant whose couplings multiply values, not deviations from the means (docs/decisions.md, F2a).

    In the compiled engine, couplings always multiply deviations from the means. The function `_uncentred_marginals`
    compensates for this: it adds the term s psi mu to the log-weight of each value s. Here psi is the matrix of
    couplings, and mu is the vector of the features' means.
    """
    return _with_changed_models(variant, lambda model: (_uncentred_marginals(model), model.couplings))


def _uncentred_marginals(model: PairwiseMRF) -> Floats:
    """Return marginals, (M, 3), computed as if the model's couplings multiplied values, not deviations from the means.

    The marginals are computed by mean field, before any observation.
    """
    means = np.asarray(model.centre)
    while True:
        weights = np.exp(model.terms + (model.couplings @ means)[:, None] * VALUES)
        moved: Floats = weights / weights.sum(axis=1, keepdims=True)
        before, means = means, moved @ VALUES
        if np.abs(means - before).max(initial=0.0) < 1e-13:  # weak couplings: converges (F2d)
            return moved


def _with_changed_models(
    variant: HypothesisModel, changed: Callable[[PairwiseMRF], tuple[Floats, sp.csr_array]]
) -> HypothesisModel:
    """Return a copy of `variant`; the function `changed` returns the new probabilities and couplings of each model."""
    if isinstance(variant.models, Bundle):
        raise TypeError("a variant of directions")
    models = [
        PairwiseMRF.from_probabilities(*changed(model), model.prior, model.features) for model in variant.models.models
    ]
    return HypothesisModel(replace(variant.models, models=tuple(models)))
