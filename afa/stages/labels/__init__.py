"""Scores against the labels that patients really have, by reference of the encoding and by closure.

Two readings of an elicited model are held against the paper's, each on its own and both together: values encoded
against the cohort instead of the controls, and couplings shared by both classes instead of a contrast between them.
Every label is a binary task of its own entity. Nothing here is chosen by labels.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import numpy as np
import pandas as pd
from pydantic import Field

from afa.bundle import Bundle
from afa.closure import contraction, shared_factor
from afa.cohort.cohort import Cohort, with_code
from afa.errors import BundleError, CohortError, Fault
from afa.inference.meanfield import Solver
from afa.mrf import Floats
from afa.stages.base import Column, Section, Seeds, Stage, described
from afa.stages.inputs import Reference, explicit_references, note
from afa.stages.labels.numbers import summarise as summarise
from afa.stages.labels.tasks import (
    GREEDY,
    RANDOM,
    Setting,
    Task,
    as_greedy_chooses,
    by_model,
    in_random_order,
    label_null,
    settings_of,
    settled,
    tasks_of,
)
from afa.stats.tables import joined, rows_of

if TYPE_CHECKING:
    from afa.stages.settings import Inference


class Settings(Section):
    """Scores against the cohort's labels by reference and coupling, beside chance; nothing here is chosen by labels."""

    seeds: Seeds = (0, 1, 2)
    """random orders along which scores are held against the cohort's labels"""
    percents: tuple[Annotated[int, Field(gt=0, lt=100)], ...] = Field((5, 10, 25, 50), min_length=1)
    """shares of an entity's support at which that is done, beside 0 and 100"""
    thresholds: tuple[Annotated[float, Field(ge=0)], ...] = Field((0.5, 0.25, 1.0), min_length=1)
    """as `encoding.threshold`; the first is the headline, the others show how much it matters"""
    strengths: tuple[Annotated[float, Field(gt=0, lt=1)], ...] = Field((0.9, 0.5), min_length=1)
    """as `closure.strength`, likewise"""
    permutations: int = Field(20, ge=1)
    """bundles with shuffled genes, followed as the real one; p is never below 1 / (1 + their number)"""
    whole_permutations: int = Field(1000, ge=1)
    """the same at full observation"""


OWN = {
    "label": Column("", "label of the patient: 0 or 1"),
    "reference": Column("", "what values were encoded against: controls, ranges or cohort"),
    "t": Column("per cent", "of the features of the entity's support that have been observed"),
    "control": Column("", "sample of the controls, encoded without itself"),
    "permutation": Column("", "number of the shuffling of genes, from 0"),
    "auroc": Column("0 to 1", "area under the ROC curve of the shuffled bundle"),
    "balanced_accuracy": Column("0 to 1", "of the sign of its raw score"),
    "balanced_accuracy_calibrated": Column("0 to 1", "of the sign of its score less that at no observation"),
    "variant": Column("", "what differs from the settings fixed beforehand; empty for these"),
    "observed": Column("observations", "features of the entity's support observed so far"),
    "raw": Column("nats", "log-odds of class 1, F_1 - F_0"),
    "threshold": Column("robust SD", "distance from the cohort's median beyond which a value is -1 or 1"),
    "strength": Column("", "beta L^2 that shared couplings are scaled down to"),
    "contraction": Column("", "beta L^2 of the elicited couplings"),
    "factor": Column("", "what shared couplings are multiplied by"),
    "positive": Column("count", "patients who have the label"),
    "negative": Column("count", "patients who do not"),
    "score": Column("nats", "S at full observation"),
}
COLUMNS = {
    "labels": "patient entity label cohort bundle",
    "left_out": "entity cohort bundle",
    "controls": "reference coupling entity allocation seed control t observed raw calibrated cohort bundle",
    "null": (
        "reference coupling entity allocation t permutation auroc balanced_accuracy balanced_accuracy_calibrated"
        " cohort bundle"
    ),
    "scores": "reference coupling variant entity allocation seed patient t observed raw calibrated label cohort bundle",
    "tasks": (
        "reference coupling variant entity threshold strength support contraction factor positive negative shift"
        " cohort bundle"
    ),
    "whole": "reference coupling patient entity score cohort bundle",
}
STAGE = Stage(
    inputs=("bundle", "cohort", "by_cohort"),
    settings=("labels", "inference"),
    scopes=True,
    section=Settings,
    labels=True,
    tables=described(OWN, **COLUMNS),
    rows={
        "labels": "how well do scores tell patients with a label from those without, by reference of the "
        "encoding and by closure?",
        "controls": "how often are healthy controls told that they have nothing? Where values are encoded against "
        "controls",
        "specificity": "does an entity's score follow its own label more than the scores of the others do?",
        "null": "`labels` with the genes of the bundle shuffled: what any lists of these sizes and signs come to",
    },
    space_mb=8.3,
)


def run(
    bundle: Bundle,
    cohort: Cohort,
    by_cohort: Path,
    *,
    labels: Settings,
    inference: Inference,
    threads: int | None = None,
) -> dict[str, pd.DataFrame]:
    """The tables of `label_tables`; by_cohort : a file of `afa cohort by-cohort`."""
    encoded = {threshold: with_code(cohort, by_cohort, threshold) for threshold in labels.thresholds}
    tables = label_tables(bundle, cohort, encoded, labels, solver=Solver(**dict(inference)), threads=threads)
    if not len(cohort.controls):
        note("no controls are held against the scores: none is encoded in this cohort")
    for entity in tables["left_out"]["entity"]:
        note(f"label {entity} is left out: all patients have the same")
    return tables


def label_tables(
    bundle: Bundle,
    cohort: Cohort,
    by_cohort: Mapping[float, Cohort],
    labels: Settings,
    *,
    solver: Solver | None = None,
    threads: int | None = None,
) -> dict[str, pd.DataFrame]:
    """All that the labels of a cohort say of the scores, by reference and coupling.

    The settings fixed beforehand take every seed and greedy CMI, the grid around them the first seed alone.

    cohort : the cohort of the run; where it is encoded against controls or by ranges that is a reference of its own.
    by_cohort : the same patients encoded against themselves, by threshold; the first is the headline, as is the first
    of the strengths. A bundle with features of two values is read as `explicit` alone, on the cohort of the run.

    Returns seven tables.

    `scores`, by (setting, entity, allocation, seed, patient, t): `observed` features of the support; `raw`, F_1 - F_0
    in nats, whose sign is the paper's decision; `calibrated`, the same less `shift`, the posterior log-odds; `label`.
    t is 0, each of the percents, and 100: per cent of the support.

    `controls`: the same of healthy controls, each encoded without itself, of every entity, under the settings fixed
    beforehand whose values are encoded as the cohort's own are: there the right answer is no (F9). No controls, no
    rows.

    `tasks`, by (setting, entity): `threshold` and `strength`; size of the `support`; `contraction`, beta L^2 of the
    elicited couplings; `factor`, what shared ones are multiplied by; labels by class; `shift`, F_1 - F_0 at no
    observation less the prior.

    `whole`: S of every entity at full observation, by (reference, coupling, patient, entity), in nats, of the settings
    fixed beforehand; no inference in it. `null` of `label_null`. `labels`, by (patient, entity), of the labels that are
    used; and `left_out`, those of which one class has no patient.

    Raises
    ------
    CohortError : two of the cohorts have other patients or other labels. BundleError : no setting is left.

    """
    own: Reference = (cohort.provenance.get("encoding") or {}).get("reference", "controls")
    cohorts: dict[float | None, Cohort] = dict(by_cohort.items())
    if own != "cohort":
        cohorts[None] = cohort
    for threshold, other in by_cohort.items():
        if other.patients != cohort.patients or not other.labels.equals(cohort.labels):
            where = f"cohort {cohort.name}, threshold {threshold:g}"
            raise CohortError(Fault(where, "other patients or labels", "those of the run's cohort", "build it again"))
    references: list[Reference] = [own, "cohort"] if own != "cohort" else ["cohort"]
    explicit, closed = explicit_references(bundle), bundle.ternary
    settings = settings_of(references if closed else [own], list(by_cohort), labels.strengths, explicit, closed=closed)
    if not settings:
        expected, step = "probabilities of its values", "encode it as the bundle says"
        raise BundleError(Fault(f"cohort {cohort.name}", "features of two values", expected, step))
    tasks, left_out = tasks_of(bundle, cohorts, settings)
    fixed = [setting for setting in settings if not setting.variant]

    def scored(tasks: Sequence[Task]) -> list[pd.DataFrame]:
        return by_model(tasks, lambda own: _followed(own, labels.percents, labels.seeds, solver), threads)

    scores = scored(tasks)
    healthy = scored(_of_controls(bundle, cohort, [setting for setting in fixed if setting.reference != "cohort"]))
    found = {
        "scores": scores,
        "controls": [part.rename(columns={"patient": "control"}) for part in healthy],
        "whole": [_whole_scores(bundle, cohorts[setting.threshold], setting) for setting in fixed],
        "null": label_null([task for task in tasks if not task.setting.variant], labels, solver, threads),
        "labels": [
            pd.DataFrame({"patient": task.patients, "entity": entity, "label": task.positive.astype(np.int8)})
            for entity, task in {task.entity: task for task in tasks}.items()
        ],
    }
    tables = {name: joined(parts, COLUMNS[name].split()[:-2]) for name, parts in found.items()}
    rows = [_described(task, part["shift"].iloc[0]) for task, part in zip(tasks, scores, strict=True)]
    tables["tasks"] = pd.DataFrame(rows, columns=COLUMNS["tasks"].split()[:-2])
    tables["left_out"] = pd.DataFrame({"entity": pd.Series(left_out, dtype="str")})
    return tables


def _described(task: Task, shift: float) -> dict[str, object]:
    """The row of a task in `tasks`."""
    mrf, shared = task.bundle.mrf(task.entity), task.setting.coupling == "shared"
    return {
        **task.setting.keys,
        "entity": task.entity,
        "threshold": task.setting.threshold,
        "strength": task.setting.strength if shared else None,
        "support": len(task.support),
        "contraction": contraction(mrf),
        "factor": shared_factor(mrf, task.setting.strength) if shared else None,
        "positive": int(task.positive.sum()),
        "negative": int((~task.positive).sum()),
        "shift": float(shift),
    }


def _of_controls(bundle: Bundle, cohort: Cohort, settings: Sequence[Setting]) -> list[Task]:
    """The tasks of the healthy, of whom nobody has a label."""
    names, values = tuple(map(str, cohort.controls.index)), cohort.controls.to_numpy(dtype=np.int8)
    ill = np.zeros(len(names), dtype=bool)
    return [
        Task(setting, bundle, entity, names, values, ill) for setting in settings for entity in bundle.entities if names
    ]


def _followed(
    tasks: Sequence[Task], percents: Sequence[int], seeds: Sequence[int], solver: Solver | None
) -> list[pd.DataFrame]:
    """The rows of tasks of one model, task by task."""
    fixed = [i for i, task in enumerate(tasks) if not task.setting.variant]
    runs = [(RANDOM, seed, fixed if later else range(len(tasks))) for later, seed in enumerate(seeds)]
    tables: list[list[pd.DataFrame]] = [[] for _ in tasks]
    for allocation, seed, among in [*runs, (GREEDY, None, fixed)]:
        if not among:
            continue
        values = np.concatenate([tasks[i].values for i in among])
        if allocation == RANDOM:
            raw, shift = in_random_order(tasks[0], values, percents, int(seed or 0), solver)
        else:
            raw, shift = as_greedy_chooses(tasks[0], values, percents, solver)
        for i, own in zip(among, np.split(raw, len(among)), strict=True):
            tables[i].append(_scores(tasks[i], allocation, seed, [0, *percents, 100], own, shift))
    return [pd.concat(parts, ignore_index=True) for parts in tables]


def _scores(
    task: Task, allocation: str, seed: int | None, shown: Sequence[int], raw: Floats, shift: float
) -> pd.DataFrame:
    rows = rows_of(patient=task.patients, t=np.array(shown, dtype=np.int32))
    keys: dict[str, Any] = {**task.setting.keys, "entity": task.entity, "allocation": allocation, "shift": shift}
    return rows.assign(
        **keys,
        seed=pd.array([seed], dtype="Int64").repeat(raw.size),
        observed=np.tile(task.counts(shown), len(task.patients)).astype(np.int32),
        raw=raw.ravel(),
        calibrated=settled(raw - shift).ravel(),
        label=np.repeat(task.positive, len(shown)).astype(np.int8),
    )


def _whole_scores(bundle: Bundle, cohort: Cohort, setting: Setting) -> pd.DataFrame:
    scores = settled(bundle.energies(cohort.values, setting.coupling)).T.ravel()
    table = rows_of(entity=bundle.entities, patient=cohort.patients)
    return table.assign(reference=setting.reference, coupling=setting.coupling, score=scores)
