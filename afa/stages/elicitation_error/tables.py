"""How accuracy at full observation falls as elicitation errs: each potential's sign is wrong with some probability.

A flipped model decides two groups of patients: those drawn exactly from the unflipped entity's own class conditionals,
whose class is known, and the cohort's, by their clinical labels. It decides by the sign of its score S~(x), `raw`, as
the paper does, and by the sign of S~(x) - (log Z~_1 - log Z~_0), `calibrated`, which without flips is the best
decision there is on drawn patients.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import pandas as pd
from numpy.typing import NDArray

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
from afa.errors import ConfigError, Fault, InferenceError
from afa.inference.order import BYTES
from afa.mrf import ROUNDING, Floats, PairwiseMRF
from afa.stages.drawn import drawn_patients, generator_of

EXPERIMENT = "elicitation_error"
FLIPS = (0.0, 0.02, 0.05, 0.1, 0.15, 0.2, 0.3, 0.4, 0.5)
DECISIONS = ("raw", "calibrated")
CALLS = ["population", "entity", "patient", "label", "flip", "decision", "right", "n"]
REPLICATES = ["population", "entity", "flip", "replicate", "decision", "right", "n", "right_positive", "n_positive"]
REFERENCES = ["entity", "calibrated", "raw", "shift", "log_z1", "log_z0", "expected_sign", "expected_score"]
LEFT_OUT = ["entity", "quantity", "reason"]


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
        energies: Floats = self.mrf.prior + linear + products @ self.coupling.T
        return energies

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


def elicitation_error(
    bundle: Bundle,
    cohort: Cohort,
    *,
    entities: Sequence[str] | None = None,
    flips: Sequence[float] = FLIPS,
    replicates: int = 10,
    draws: int = 200,
    threads: int | None = None,
) -> dict[str, pd.DataFrame]:
    """Decide drawn and labelled patients by models with a share of wrong signs.

    entities : those to do, all by default, so that shards can be joined. flips : probabilities with which each non-zero
    unary and each coupling has its sign turned; 0 is always done, once. replicates : flipped models of each other
    probability. draws : patients drawn per entity, half of each class, in pairs of one patient of either class.

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

    Raises
    ------
    ConfigError : a probability outside [0, 1], no replicate, or a number of draws that is odd or not positive.

    """
    _check_settings(flips, replicates, draws)
    grid = [(0.0, 0), *((float(flip), r) for flip in dict.fromkeys(flips) if flip > 0 for r in range(replicates))]
    parts: dict[str, list[pd.DataFrame]] = {name: [] for name in ("calls", "replicates", "references", "left_out")}
    chosen = list(bundle.entities if entities is None else entities)
    for entity in chosen:
        models = flipped_models(bundle, entity, grid)
        groups, left_out = [_labelled(cohort, entity)], []
        shifts: Floats | None = None
        try:
            shifts = models.shifts(threads)
            groups.append(_drawn(models.mrf, entity, draws))
        except InferenceError as error:
            left_out.append({"quantity": "calibrated_decision", "reason": error.faults[0].found})
        try:
            parts["references"].append(_reference(models.mrf, threads).assign(entity=entity))
        except InferenceError as error:
            left_out.append({"quantity": "exact_accuracy", "reason": error.faults[0].found})
        for group in groups:
            calls, by_replicate = _decide(models, shifts, group)
            parts["calls"].append(calls.assign(entity=entity))
            parts["replicates"].append(by_replicate.assign(entity=entity))
        parts["left_out"].append(pd.DataFrame(left_out).assign(entity=entity))
    columns = {"calls": CALLS, "replicates": REPLICATES, "references": REFERENCES, "left_out": LEFT_OUT}
    tables = {name: _joined(parts[name], columns[name]) for name in parts}
    tables |= {"labels": _labels(cohort, chosen), "profiles": _profiles(bundle, cohort, chosen)}
    return {name: table.assign(cohort=cohort.name, bundle=bundle.name) for name, table in tables.items()}


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


def _check_settings(flips: Sequence[float], replicates: int, draws: int) -> None:
    faults = []
    wrong = [flip for flip in flips if not 0 <= flip <= 1]
    if wrong:
        faults.append(Fault(f"{EXPERIMENT}, flips", f"{wrong[0]}", "probabilities from 0 to 1", "correct it"))
    if replicates < 1:
        faults.append(Fault(f"{EXPERIMENT}, replicates", f"{replicates}", "at least 1", "correct it"))
    if draws < 2 or draws % 2:
        found, step = f"{draws}", "pass for example 200"
        faults.append(Fault(f"{EXPERIMENT}, draws", found, "an even number, half of each class", step))
    if faults:
        raise ConfigError(faults)


def _drawn(mrf: PairwiseMRF, entity: str, draws: int) -> Group:
    """Pairs of drawn patients, the first of each from p_1, the second from p_0."""
    labels = np.tile(np.array([1, 0], dtype=np.int8), draws // 2)
    names = np.repeat(np.array([f"pair {i}" for i in range(draws // 2)], dtype=object), 2)
    return Group("drawn", names, labels, drawn_patients(mrf, labels, EXPERIMENT, entity))


def _labelled(cohort: Cohort, entity: str) -> Group:
    """The patients of the cohort who have a label for the entity; nobody where it has no labels."""
    known = np.zeros(len(cohort.patients), dtype=bool)
    if entity in cohort.labels:
        known = cohort.labels[entity].notna().to_numpy(bool)
    labels = cohort.labels.loc[known, entity].to_numpy(np.int8) if known.any() else np.empty(0, dtype=np.int8)
    return Group("clinical", np.array(cohort.patients, dtype=object)[known], labels, cohort.values[known])


def _reference(mrf: PairwiseMRF, threads: int | None) -> pd.DataFrame:
    law = score_distribution(mrf, threads=threads)
    exact = {
        "calibrated": law.bayes_accuracy,
        "raw": law.accuracy_of_sign(),
        "shift": law.shift,
        "log_z1": law.log_z1,
        "log_z0": law.log_z0,
        "expected_sign": law.expected_sign,
        "expected_score": law.expected_score,
    }
    return pd.DataFrame([exact])


def _decide(models: Flipped, shifts: Floats | None, group: Group) -> tuple[pd.DataFrame, pd.DataFrame]:
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
        each = pd.DataFrame(
            {
                "patient": np.repeat(group.names, len(flips)),
                "label": np.repeat(group.labels, len(flips)),
                "flip": np.tile(flips, len(group.names)),
                "right": by_flip.ravel(),
                "n": np.tile(n_replicates, len(group.names)),
            }
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
    return pd.concat(calls, ignore_index=True), pd.concat(replicates, ignore_index=True)


def _right(margin: Floats, positive: NDArray[np.bool_], tie: float) -> Floats:
    """1 where the sign of the margin (P, F) is the class, 0 where it is the other, 1/2 at a tie (decisions.md S5)."""
    sign = np.where(np.abs(margin) <= tie, 0.0, np.sign(margin))
    right: Floats = (1 + np.where(positive, 1.0, -1.0)[:, None] * sign) / 2
    return right


def _labels(cohort: Cohort, entities: Sequence[str]) -> pd.DataFrame:
    known = cohort.labels.reindex(columns=list(entities))
    return pd.DataFrame(
        {
            "entity": list(entities),
            "patients": len(cohort.patients),
            "positive": [int(known[entity].eq(1).sum()) for entity in entities],
            "missing": [int(known[entity].isna().sum()) for entity in entities],
        }
    )


def _profiles(bundle: Bundle, cohort: Cohort, entities: Sequence[str]) -> pd.DataFrame:
    tables = []
    for entity in entities:
        models = flipped_models(bundle, entity, [(0.0, 0)])
        linear = cohort.values @ models.mrf.unary
        score = models.scores(cohort.values)[:, 0]
        tables.append(pd.DataFrame({"patient": cohort.patients, "entity": entity, "unary_sum": linear, "score": score}))
    return pd.concat(tables, ignore_index=True)


def _joined(tables: Sequence[pd.DataFrame], columns: Sequence[str]) -> pd.DataFrame:
    """One table with these columns, whether or not any part has a row."""
    filled = [table for table in tables if len(table)]
    whole = pd.concat(filled, ignore_index=True) if filled else pd.DataFrame()
    return whole.reindex(columns=list(columns))
