"""How accuracy at full observation falls as elicitation errs: each potential's sign is wrong with some probability.

A flipped model decides two groups of patients: those drawn exactly from the unflipped entity's own class conditionals,
whose class is known, and the cohort's, by their clinical labels. It decides by the sign of its score S~(x), `raw`, as
the paper does, and by the sign of S~(x) - (log Z~_1 - log Z~_0), `calibrated`, which without flips is the best
decision there is on drawn patients.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Annotated

import numpy as np
import pandas as pd
from numpy.typing import NDArray
from pydantic import Field

from afa.bundle import Bundle
from afa.cohort.cohort import Cohort
from afa.engine.compile import in_threads
from afa.engine.elimination import (
    elimination_plan,
    entries_at_no_observation,
    log_partitions,
    score_distribution,
    threads_for,
)
from afa.errors import InferenceError
from afa.inference.order import BYTES
from afa.mrf import ROUNDING, Floats, PairwiseMRF
from afa.orders import generator_of
from afa.stages.base import Column, Section, Stage, described
from afa.stages.elicitation_error.numbers import EXPERIMENT
from afa.stages.elicitation_error.numbers import summarise as summarise
from afa.stages.inputs import drawn_patients, labels_of
from afa.stats.tables import joined, rows_of

Flip = Annotated[float, Field(ge=0, le=0.5)]


class Settings(Section):
    """Accuracy at full observation when signs of the potentials are wrong."""

    flips: tuple[Flip, ...] = Field((0, 0.05, 0.1, 0.15, 0.2, 0.3, 0.4, 0.5), min_length=2)
    """chances that a potential's sign is turned round; must begin with 0"""
    replicates: int = Field(5, ge=1)
    """damaged models of each entity at each chance"""
    simulated: int = Field(200, ge=20, multiple_of=2)
    """patients drawn from each task's own model, half of each class"""


OWN = {
    "positive": Column("count", "patients with a positive label"),
    "calibrated": Column("0 to 1", "exact Bayes accuracy on drawn patients"),
    "raw": Column("0 to 1", "exact accuracy of the sign of S on drawn patients"),
}
COLUMNS = {
    "calls": "population entity patient label flip decision right n cohort bundle",
    "labels": "entity patients positive missing cohort bundle",
    "left_out": "entity quantity reason cohort bundle",
    "profiles": "patient entity unary_sum score cohort bundle",
    "references": "entity calibrated raw shift log_z1 log_z0 expected_sign expected_score cohort bundle",
    "replicates": "population entity flip replicate decision right n right_positive n_positive cohort bundle",
}
STAGE = Stage(
    settings=("elicitation_error",),
    section=Settings,
    figure=("Binary classification", "accuracy against wrong signs"),
    tables=described(OWN, **COLUMNS),
    rows={"elicitation_error": "what wrong potentials cost"},
    space_mb=0.1,
)


def run(
    bundle: Bundle, cohort: Cohort, *, elicitation_error: Settings, threads: int | None = None
) -> dict[str, pd.DataFrame]:
    """Decide drawn and labelled patients by models with a share of wrong signs.

    Every non-zero unary and every coupling has its sign turned with each of the chances; 0 is always done, once. Drawn
    patients are half of each class, in pairs of one patient of either class.

    Returns six tables. `right` counts a tie as one half.

    `calls`, by (population, entity, patient, label, flip, decision): `right` of `n` replicates. The population is
    `drawn` or `clinical`; a drawn patient is named by its pair.

    `replicates`, by (population, entity, flip, replicate, decision): `right` of `n` patients, and `right_positive` of
    `n_positive` of class 1.

    `references`, by entity: exact accuracy on drawn patients without flips, by `calibrated` (Bayes) and `raw` decision;
    `shift`, `log_z1`, `log_z0` and `expected_score` in nats, `expected_sign` (`afa.engine.elimination`).

    `labels`, by entity: `patients` of the cohort, `positive` and `missing` labels; an entity without labels has all
    missing.

    `profiles`, by (patient, entity), all of the cohort: `unary_sum` alpha . x and `score` S(x), nats (erratum 11).

    `left_out`, by (entity, quantity): what could not be done exactly, and the reason: the `calibrated_decision` and all
    of drawn patients, or the `exact_accuracy`.
    """
    replicates = range(elicitation_error.replicates)
    grid = [(0.0, 0), *((flip, r) for flip in elicitation_error.flips if flip > 0 for r in replicates)]
    parts: dict[str, list[pd.DataFrame]] = {name: [] for name in COLUMNS}
    labels = labels_of(bundle, cohort)
    for v, entity in enumerate(bundle.entities):
        models, groups, left_out = flipped_models(bundle, entity, grid), [_labelled(cohort, labels[:, v])], {}
        shifts: Floats | None = None
        try:
            shifts = models.shifts(threads)
            groups.append(_drawn(models.mrf, entity, elicitation_error.simulated))
        except InferenceError as error:
            left_out["calibrated_decision"] = error.faults[0].found
        try:
            parts["references"].append(_reference(models.mrf, threads).assign(entity=entity))
        except InferenceError as error:
            left_out["exact_accuracy"] = error.faults[0].found
        for group in groups:
            for name, table in _decide(models, shifts, group).items():
                parts[name].append(table.assign(entity=entity))
        parts["left_out"].append(pd.DataFrame({"quantity": [*left_out], "reason": left_out.values(), "entity": entity}))
        parts["profiles"].append(
            pd.DataFrame(
                {
                    "patient": cohort.patients,
                    "entity": entity,
                    "unary_sum": cohort.values @ models.mrf.unary,
                    "score": models.scores(cohort.values)[:, 0],
                }
            )
        )
    counts = {"positive": (labels == 1).sum(axis=0), "missing": np.isnan(labels).sum(axis=0)}
    parts["labels"] = [pd.DataFrame({"entity": bundle.entities, "patients": len(cohort.patients), **counts})]
    return {name: joined(parts[name], held.split()[:-2]) for name, held in COLUMNS.items()}


@dataclass(frozen=True)
class Group:
    """Patients of one entity: names (P,), labels (P,) 0 or 1, profiles (P, M)."""

    population: str
    names: NDArray[np.object_]
    labels: NDArray[np.int8]
    values: NDArray[np.int8]


@dataclass(frozen=True)
class Flipped:
    """F models of one entity on the same graph, some of their signs turned.

    flip : (F,) probability that a sign was turned. replicate : (F,) counts the models of one probability. features
    (U,), unary (F, U) : the non-zero unaries. row, column (E,), coupling (F, E) : the couplings.
    """

    mrf: PairwiseMRF
    flip: Floats
    replicate: NDArray[np.int64]
    features: NDArray[np.intp]
    unary: Floats
    row: NDArray[np.int32]
    column: NDArray[np.int32]
    coupling: Floats

    def model(self, i: int) -> PairwiseMRF:
        """The i-th model."""
        unary, couplings = np.zeros(self.mrf.n_features), np.zeros((self.mrf.n_features,) * 2)
        unary[self.features] = self.unary[i]
        couplings[self.row, self.column] = couplings[self.column, self.row] = self.coupling[i]
        return PairwiseMRF(unary, couplings, self.mrf.prior, self.mrf.features)

    def scores(self, values: NDArray[np.int8]) -> Floats:
        """(P, F) energies of the profiles (P, M) in each model, nats."""
        products = (values[:, self.row] * values[:, self.column]).astype(np.float64)
        linear = values[:, self.features].astype(np.float64) @ self.unary.T
        return self.mrf.prior + linear + products @ self.coupling.T

    def shifts(self, threads: int | None) -> Floats:
        """(F,) log Z_1 - log Z_0 at no observation of each model, nats. Raises `InferenceError` where too dense."""
        plan = elimination_plan(self.mrf)
        nothing = np.zeros((1, self.mrf.n_features), dtype=np.int8)
        found = np.empty(len(self.flip))

        def work(first: int, last: int) -> None:
            for i in range(first, last):
                log_z = log_partitions(self.model(i), nothing.astype(bool), nothing, plan=plan, threads=1)
                found[i] = log_z[0, 0] - log_z[0, 1]

        in_threads(work, len(found), threads_for(BYTES * entries_at_no_observation(plan) / 3, threads))
        return found


def flipped_models(bundle: Bundle, entity: str, grid: Sequence[tuple[float, int]]) -> Flipped:
    """The models of one entity for each (flip, replicate); their signs depend on these and the names alone."""
    mrf, (row, column, coupling) = bundle.mrf(entity), bundle.packed.of(bundle.index(entity))
    features = np.flatnonzero(mrf.unary)
    n_unary = len(features)
    signs = np.empty((len(grid), n_unary + len(coupling)))
    for i, (flip, replicate) in enumerate(grid):
        uniforms = generator_of(EXPERIMENT, entity, flip, replicate).random(signs.shape[1])
        signs[i] = np.where(uniforms < flip, -1.0, 1.0)
    return Flipped(
        mrf=mrf,
        flip=np.array([flip for flip, _ in grid]),
        replicate=np.array([replicate for _, replicate in grid]),
        features=features,
        unary=signs[:, :n_unary] * mrf.unary[features],
        row=row,
        column=column,
        coupling=signs[:, n_unary:] * coupling,
    )


def _drawn(mrf: PairwiseMRF, entity: str, draws: int) -> Group:
    """Pairs of drawn patients, the first of each from p_1, the second from p_0."""
    labels = np.tile(np.array([1, 0], dtype=np.int8), draws // 2)
    names = np.repeat(np.array([f"pair {i}" for i in range(draws // 2)], dtype=object), 2)
    return Group("drawn", names, labels, drawn_patients(mrf, labels, EXPERIMENT, entity))


def _labelled(cohort: Cohort, labels: Floats) -> Group:
    """The patients of the cohort who have a label for the entity, labels (P,) in {0, 1, NaN}."""
    known, names = ~np.isnan(labels), np.array(cohort.patients, dtype=object)
    return Group("clinical", names[known], labels[known].astype(np.int8), cohort.values[known])


def _reference(mrf: PairwiseMRF, threads: int | None) -> pd.DataFrame:
    law = score_distribution(mrf, threads=threads)
    exact = {"calibrated": law.bayes_accuracy, "raw": law.accuracy_of_sign()}
    names = ("shift", "log_z1", "log_z0", "expected_sign", "expected_score")
    return pd.DataFrame([exact | {name: getattr(law, name) for name in names}])


def _decide(models: Flipped, shifts: Floats | None, group: Group) -> dict[str, pd.DataFrame]:
    """Decisions of one group: right over the replicates of each flip, and over the patients of each model."""
    scores = models.scores(group.values)
    margins = {"raw": scores} if shifts is None else {"raw": scores, "calibrated": scores - shifts}
    flips, of_flip = np.unique(models.flip, return_inverse=True)
    n_replicates = np.bincount(of_flip)
    positive = group.labels == 1
    calls, replicates = [], []
    for decision, margin in margins.items():
        right = _right(margin, positive, ROUNDING * models.mrf.reach)
        by_flip = np.stack([right[:, of_flip == i].sum(axis=1) for i in range(len(flips))], axis=1)
        each = rows_of(patient=group.names, flip=flips).assign(
            label=np.repeat(group.labels, len(flips)), right=by_flip.ravel(), n=np.tile(n_replicates, len(group.names))
        )
        model = pd.DataFrame(
            {
                "flip": models.flip,
                "replicate": models.replicate,
                "right": right.sum(axis=0),
                "n": len(group.names),
                "right_positive": right[positive].sum(axis=0),
                "n_positive": int(positive.sum()),
            }
        )
        calls.append(each.assign(population=group.population, decision=decision))
        replicates.append(model.assign(population=group.population, decision=decision))
    return {"calls": pd.concat(calls, ignore_index=True), "replicates": pd.concat(replicates, ignore_index=True)}


def _right(margin: Floats, positive: NDArray[np.bool_], tie: float) -> Floats:
    """1 where the sign of the margin (P, F) is the class, 0 where it is the other, 1/2 at a tie (decisions.md S5)."""
    sign = np.where(np.abs(margin) <= tie, 0.0, np.sign(margin))
    return (1 + np.where(positive, 1.0, -1.0)[:, None] * sign) / 2
