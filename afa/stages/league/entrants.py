"""A field as the league takes it: its patients' values, what is asked of them, and what to know of the table."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from tempfile import TemporaryDirectory

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from afa.bundle import Bundle
from afa.cohort.table_cohort import encode_cohort, field_cohort, find_table, load_field, read_table_labels
from afa.cohort.tables import read_cells
from afa.engine.course import MISSING
from afa.errors import CohortError
from afa.field import build_field_bundle
from afa.mrf import Floats
from afa.orders import random_order
from afa.stats.accuracy import auroc

Answers = NDArray[np.int64]
NOBODY = "none of them"


@dataclass(frozen=True)
class Task:
    """A question to the patients: C hypotheses, and of each patient which one holds, (P,), -1 where that is unknown.

    entity : whether this one holds, yes or no. Without one, which of all entities does. main : what the field asks,
    beside which other readings, the null and classifiers stand.
    """

    name: str
    hypotheses: tuple[str, ...]
    answers: Answers
    entity: str | None = None
    main: bool = True

    @property
    def metrics(self) -> tuple[str, ...]:
        return ("auroc", "balanced_accuracy", "average_precision") if self.entity else ("first_place", "by_class")


@dataclass(frozen=True, eq=False)
class Entrant:
    """A field whose table is there: its patients' values (P, M) in {-1, 0, +1} or `MISSING`, and what is asked.

    bundle, directions : with how often each value occurs, and of directions alone.
    rows : (P,) the number of each patient's row of the table among the distinct ones.
    """

    name: str
    patients: tuple[str, ...]
    values: NDArray[np.int8]
    bundle: Bundle
    directions: Bundle
    tasks: tuple[Task, ...]
    confounded: tuple[str, ...]
    rows: NDArray[np.int64]

    @property
    def features(self) -> tuple[str, ...]:
        return self.bundle.features

    def some(self, n: int) -> Entrant:
        """The same with at most n of its patients, drawn by their names alone."""
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
    """A field with its table, or a line that says why that is not there.

    Raises
    ------
    CohortError, ConfigError : what is wrong with files that are there.

    """
    root, config = Path(folder), field_cohort(folder)
    study, table = load_field(root)
    try:
        files = find_table(config, mirror)
    except CohortError as error:
        if table.carried or not all("no such file" in fault.found for fault in error.faults):
            raise
        return f"not fetched: {config.address}"
    encoded = encode_cohort(config, files)
    patients = tuple(encoded.values.index)
    with TemporaryDirectory() as temporary:
        bundle = build_field_bundle(root, Path(temporary) / "bundle", how_often=True)
        directions = build_field_bundle(root, Path(temporary) / "directions")
    labels = read_table_labels(files.labels or config.labels or root, patients)
    known = labels.reindex(columns=list(bundle.entities)).astype("Float64").to_numpy(dtype=np.float64, na_value=np.nan)
    cells, names = read_cells(files.table, "feature", bundle.features), list(bundle.features)
    texts = pd.DataFrame({name: cells.columns[name] for name in names}, index=list(cells.names))
    return Entrant(
        study.name,
        patients,
        encoded.values.fillna(MISSING).to_numpy(dtype=np.int8),
        bundle,
        directions,
        tuple(_tasks(bundle.entities, known, study.holds)),
        study.confounded,
        np.asarray(texts.loc[list(patients)].groupby(names, sort=False).ngroup(), dtype=np.int64),
    )


def _tasks(entities: Sequence[str], labels: Floats, holds: str) -> Iterator[Task]:
    """Each entity as a question; before them, where one holds, which does, of patients with one label, or none."""
    for column, entity in enumerate(entities):
        answers = np.where(np.isnan(labels[:, column]), -1, 1 - np.nan_to_num(labels[:, column])).astype(np.int64)
        if {0, 1} <= set(answers.tolist()):
            yield Task(entity, (entity, f"not {entity}"), answers, entity, main=holds == "several")
    if holds == "several":
        return
    count = np.where(np.isnan(labels).any(axis=1), -1, np.nansum(labels, axis=1))
    answers = np.where(count == 1, np.nan_to_num(labels).argmax(axis=1), -1)
    hypotheses = tuple(entities)
    if holds == "one or none":
        hypotheses, answers = (*entities, NOBODY), np.where(count == 0, len(entities), answers)
    yield Task("which", hypotheses, answers.astype(np.int64))


def facts(entrant: Entrant, followed: int) -> pd.DataFrame:
    """A row a task: patients, how many of them are `followed`, distinct rows, what is missing, the answers, the traps.

    `missingness_auroc` is what the number of measured values alone tells of the label, in whichever direction.
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
