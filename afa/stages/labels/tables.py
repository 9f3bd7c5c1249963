"""Scores against the labels that patients really have, by reference of the encoding and by closure.

Two readings of an elicited model are held against the paper's, each on its own and both together: values encoded
against the cohort instead of the controls, and couplings shared by both classes instead of a contrast between them.
Every label is a binary task of its own entity. Nothing here is chosen by labels.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np
import pandas as pd

from afa.bundle import Bundle
from afa.closure import contraction, shared_factor
from afa.cohort.cohort import Cohort
from afa.engine.compile import in_threads
from afa.errors import BundleError, CohortError, Fault
from afa.inference.meanfield import Solver
from afa.mrf import Floats
from afa.stages.inputs import Reference, explicit_references
from afa.stages.labels.null import label_null
from afa.stages.labels.tasks import (
    GREEDY,
    RANDOM,
    Setting,
    Task,
    as_greedy_chooses,
    in_random_order,
    of_one_model,
    settings_of,
    settled,
    tasks_of,
)

KEYS = ["reference", "coupling", "variant"]


def label_tables(
    bundle: Bundle,
    cohort: Cohort,
    by_cohort: Mapping[float, Cohort],
    *,
    percents: Sequence[int],
    seeds: Sequence[int],
    strengths: Sequence[float],
    permutations: int,
    whole_permutations: int,
    solver: Solver | None = None,
    threads: int | None = None,
) -> dict[str, pd.DataFrame]:
    """All that the labels of a cohort say of the scores, by reference and coupling.

    cohort : the cohort of the run; where it is encoded against controls or by ranges that is a reference of its own.
    by_cohort : the same patients encoded against themselves, by threshold; the first is the headline, as is the first
    of `strengths`. A bundle with features of two values is read as `explicit` alone, on the cohort of the run.

    Returns `scores` and `tasks` of `label_scores`, `whole` of `whole_scores`, `controls` of `control_scores`, `null` of
    `label_null`; `labels`, by
    (patient, entity), of the labels that are used; and `left_out`, those of which one class has no patient.

    Raises
    ------
    CohortError : two of the cohorts have other patients or other labels. BundleError : no setting is left.

    """
    own: Reference = (cohort.provenance.get("encoding") or {}).get("reference", "controls")
    cohorts: dict[float | None, Cohort] = {}
    cohorts.update(by_cohort.items())
    if own != "cohort":
        cohorts[None] = cohort
    for threshold, other in by_cohort.items():
        if other.patients != cohort.patients or not other.labels.equals(cohort.labels):
            where = f"cohort {cohort.name}, threshold {threshold:g}"
            raise CohortError(Fault(where, "other patients or labels", "those of the run's cohort", "build it again"))
    references: list[Reference] = [own, "cohort"] if own != "cohort" else ["cohort"]
    explicit, closed = explicit_references(bundle), bundle.ternary
    settings = settings_of(references if closed else [own], list(by_cohort), strengths, explicit, closed=closed)
    if not settings:
        expected, step = "probabilities of its values", "encode it as the bundle says"
        raise BundleError(Fault(f"cohort {cohort.name}", "features of two values", expected, step))
    tasks, left_out = tasks_of(bundle, cohorts, settings)
    found = label_scores(tasks, percents=percents, seeds=seeds, solver=solver, threads=threads)
    found["whole"] = whole_scores(bundle, cohorts, settings)
    found["controls"] = control_scores(bundle, cohort, settings, percents, seeds, solver, threads)
    found["null"] = label_null(
        tasks,
        percents=percents,
        seed=seeds[0],
        permutations=permutations,
        whole_permutations=whole_permutations,
        solver=solver,
        threads=threads,
    )
    found["labels"] = _labels_of(tasks)
    found["left_out"] = pd.DataFrame({"entity": pd.Series(left_out, dtype="str")})
    return {name: table.assign(cohort=cohort.name, bundle=bundle.name) for name, table in found.items()}


def _labels_of(tasks: Sequence[Task]) -> pd.DataFrame:
    once = {task.entity: task for task in tasks}
    parts = [
        pd.DataFrame({"patient": list(task.patients), "entity": task.entity, "label": task.positive.astype(np.int8)})
        for task in once.values()
    ]
    return pd.concat(parts, ignore_index=True) if parts else pd.DataFrame(columns=["patient", "entity", "label"])


def label_scores(
    tasks: Sequence[Task],
    *,
    percents: Sequence[int],
    seeds: Sequence[int],
    solver: Solver | None = None,
    threads: int | None = None,
) -> dict[str, pd.DataFrame]:
    """Follow the labelled patients of every task, in random orders and as greedy CMI chooses.

    The settings fixed beforehand take every seed and greedy CMI, the grid around them the first seed alone.

    Returns two tables.

    `scores`, by (setting, entity, allocation, seed, patient, t): `observed` features of the support; `raw`, F_1 - F_0
    in nats, whose sign is the paper's decision; `calibrated`, the same less `shift`, the posterior log-odds; `label`.
    t is 0, each of `percents`, and 100: per cent of the support.

    `tasks`, by (setting, entity): `threshold` and `strength`; size of the `support`; `contraction`, beta L^2 of the
    elicited couplings; `factor`, what shared ones are multiplied by; labels by class; `shift`, F_1 - F_0 at no
    observation less the prior.
    """
    models = of_one_model(tasks)
    parts: list[pd.DataFrame] = [pd.DataFrame()] * len(tasks)

    def work(first: int, last: int) -> None:
        for members in models[first:last]:
            found = _followed([tasks[i] for i in members], percents, seeds, solver)
            for i, part in zip(members, found, strict=True):
                parts[i] = part

    in_threads(work, len(models), threads)
    rows = [
        {
            **task.setting.keys,
            "entity": task.entity,
            "threshold": task.setting.threshold,
            "strength": task.setting.strength if task.setting.coupling == "shared" else None,
            "support": len(task.support),
            "contraction": contraction(task.bundle.mrf(task.entity)),
            "factor": shared_factor(task.bundle.mrf(task.entity), task.setting.strength)
            if task.setting.coupling == "shared"
            else None,
            "positive": int(task.positive.sum()),
            "negative": int((~task.positive).sum()),
            "shift": float(part["shift"].iloc[0]),
        }
        for task, part in zip(tasks, parts, strict=True)
    ]
    columns = [*KEYS, "entity", "allocation", "seed", "patient", "t", "observed", "raw", "calibrated", "label"]
    whole = pd.concat(parts, ignore_index=True) if parts else pd.DataFrame()
    described = ["threshold", "strength", "support", "contraction", "factor", "positive", "negative", "shift"]
    return {
        "scores": whole.reindex(columns=columns),
        "tasks": pd.DataFrame(rows, columns=[*KEYS, "entity", *described]),
    }


def control_scores(
    bundle: Bundle,
    cohort: Cohort,
    settings: Sequence[Setting],
    percents: Sequence[int],
    seeds: Sequence[int],
    solver: Solver | None = None,
    threads: int | None = None,
) -> pd.DataFrame:
    """The scores of healthy controls, each encoded without itself, of every entity: the right answer is no (F9).

    Rows and columns are those of `scores` of `label_scores`, of the settings fixed beforehand whose values are encoded
    as the cohort's own are; `control` in the place of the patient, and no label. No controls, no rows.
    """
    names, values = tuple(map(str, cohort.controls.index)), cohort.controls.to_numpy(dtype=np.int8)
    chosen = [setting for setting in settings if setting.reference != "cohort" and not setting.variant]
    ill = np.zeros(len(names), dtype=bool)
    tasks = [
        Task(setting, bundle, entity, names, values, ill) for setting in chosen for entity in bundle.entities if names
    ]
    whole = label_scores(tasks, percents=percents, seeds=seeds, solver=solver, threads=threads)["scores"]
    return whole.drop(columns=["variant", "label"]).rename(columns={"patient": "control"})


def _followed(
    tasks: Sequence[Task], percents: Sequence[int], seeds: Sequence[int], solver: Solver | None
) -> list[pd.DataFrame]:
    """The rows of tasks of one model, task by task. All are followed together, because they meet in many states."""
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
    table = {
        **task.setting.keys,
        "entity": task.entity,
        "allocation": allocation,
        "seed": pd.array([seed], dtype="Int64").repeat(raw.size),
        "patient": np.repeat(np.array(task.patients, dtype=object), len(shown)),
        "t": np.tile(shown, len(task.patients)).astype(np.int32),
        "observed": np.tile(task.counts(shown), len(task.patients)).astype(np.int32),
        "raw": raw.ravel(),
        "calibrated": settled(raw - shift).ravel(),
        "label": np.repeat(task.positive, len(shown)).astype(np.int8),
        "shift": shift,
    }
    return pd.DataFrame(table)


def whole_scores(bundle: Bundle, cohorts: Mapping[float | None, Cohort], settings: Sequence[Setting]) -> pd.DataFrame:
    """S of every entity at full observation, by (reference, coupling, patient, entity), in nats; no inference in it.

    Of the settings fixed beforehand alone.
    """
    tables = []
    for setting in (setting for setting in settings if not setting.variant):
        cohort = cohorts[setting.threshold]
        for entity in bundle.entities:
            if setting.coupling == "explicit":
                score = bundle.energies_of(entity, cohort.values, "explicit")
            else:
                model = bundle.contrast(entity, setting.coupling)
                score = np.array([model.energy(profile) for profile in cohort.values])
            table = {
                "reference": setting.reference,
                "coupling": setting.coupling,
                "patient": list(cohort.patients),
                "entity": entity,
                "score": settled(score),
            }
            tables.append(pd.DataFrame(table))
    return pd.concat(tables, ignore_index=True)
