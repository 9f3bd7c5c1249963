"""A field as the league takes it: its patients' values, what is asked of them, and what to know of the table.

And the gain over entities beside sums over duels (decisions.md F15): on patients that a bundle draws from its own
models, where the gain alone is compared, since the bundle is right about them; or on those of a field.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from tempfile import TemporaryDirectory

import numpy as np
import pandas as pd
from numpy.typing import NDArray
from scipy.special import softmax

from afa.bundle import Bundle
from afa.cohort.table_cohort import encode_cohort, field_cohort, find_table, load_field, read_table_labels
from afa.cohort.tables import read_cells
from afa.engine.course import MISSING
from afa.engine.patient import Patient
from afa.errors import CohortError, ConfigError, Fault
from afa.field import build_field_bundle
from afa.inference.result import probabilities_of
from afa.mrf import Floats
from afa.orders import generator_of, random_order
from afa.planner.explicit import ExplicitPatient
from afa.planner.sides import sides_for
from afa.stats.accuracy import Resampled, auroc

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


GAINS = ("information", "sum over duels", "weighted sum over duels", "random")
ROUNDS = (1, 2, 3, 5, 8, 12)


def gains_of_drawn(bundle: Bundle, n_patients: int, *, seed: int = 0, resamples: int = 1_000) -> pd.DataFrame:
    """`compare_gains` of patients whose entity is drawn uniformly, and each feature from its own marginal."""
    draw, empty = generator_of("gains", bundle.digest, seed), Patient(bundle, gain="cmi")
    own = np.full((len(bundle.entities), len(bundle.features), 3), 1 / 3)
    own[empty.packed.owner, empty.packed.feature] = probabilities_of(empty.state.m, empty.state.q)
    truth = draw.integers(len(bundle.entities), size=n_patients)
    values = (draw.random((n_patients, len(bundle.features), 1)) > own[truth].cumsum(axis=2)[:, :, :2]).sum(axis=2) - 1

    def patient() -> Patient:
        return Patient(bundle, gain="cmi", packed=empty.packed)

    return compare_gains(patient, values, truth, draw, resamples=resamples)


def gains_of_field(entrant: Entrant, *, seed: int = 0, resamples: int = 1_000) -> pd.DataFrame:
    """`compare_gains` of a field's patients who have one of its entities, by how often each value occurs.

    Raises
    ------
    ConfigError : the field does not ask which one of several entities holds.

    """
    task = next((task for task in entrant.tasks if task.main and task.entity is None), None)
    if task is None:
        expected = "one that asks which of several entities holds"
        raise ConfigError(Fault(f"field {entrant.name}", "a question of yes or no", expected, "name another field"))
    bundle = entrant.bundle
    sides = sides_for(bundle, "one", exactly=False, entity=None, discounted=False)

    def patient() -> ExplicitPatient:
        return ExplicitPatient(sides, rivals=True, inference="mean_field", gain="cmi")

    known = (task.answers >= 0) & (task.answers < len(bundle.entities))
    draw = generator_of("gains", bundle.digest, seed)
    return compare_gains(patient, entrant.values[known], task.answers[known], draw, resamples=resamples)


def compare_gains(
    patient: Callable[[], Patient | ExplicitPatient],
    values: NDArray[np.integer],
    truth: NDArray[np.int64],
    draw: np.random.Generator,
    *,
    resamples: int,
) -> pd.DataFrame:
    """How often the right entity comes first after some features, by the gain that chose them.

    Parameters
    ----------
    patient : makes one of whom nothing is known
    values : (P, M) in {-1, 0, +1} or `MISSING`, which is never asked for. truth : (P,) the entity that holds
    draw : of random order
    resamples : of patients, for intervals

    Returns
    -------
    DataFrame : gain, t, first, low, high, lead of `information` on the same patients, lead_low, lead_high

    """
    n_patients, n_features = values.shape
    rounds = [t for t in ROUNDS if t <= n_features]
    right = {gain: np.zeros((n_patients, rounds[-1] + 1)) for gain in GAINS}
    for gain, found in right.items():
        for i in range(n_patients):
            one, left, order = patient(), values[i] != MISSING, draw.permutation(n_features)
            for t in range(1, rounds[-1] + 1):
                if left.any():
                    told = -order.astype(np.float64) if gain == "random" else _told(one, gain)
                    feature = int(np.argmax(np.where(left, told, -np.inf)))
                    one.observe(feature, int(values[i, feature]))
                    left[feature] = False
                found[i, t] = one.log_evidence().argmax() == truth[i]
    resampled = Resampled.of(range(n_patients), resamples=resamples, confidence=0.95, purpose="gains")
    tables, each = [], np.ones((n_patients, len(rounds)))
    for gain, found in right.items():
        first, lead = (resampled.mean([(part[:, rounds], each)]) for part in (found, right["information"] - found))
        table = {"gain": gain, "t": rounds, "first": first["value"], "low": first["low"], "high": first["high"]}
        table |= {"lead": lead["value"], "lead_low": lead["low"], "lead_high": lead["high"]}
        tables.append(pd.DataFrame(table))
    return pd.concat(tables, ignore_index=True)


def _told(patient: Patient | ExplicitPatient, gain: str) -> Floats:
    """(M,) what each feature tells, by `information` or by a sum over all duels, weighted by (w_a + w_b)^2 or not."""
    if gain == "information":
        return patient.information()
    a, b = patient.pairs.T
    posterior = softmax(patient.log_evidence())
    weights = (posterior[a] + posterior[b]) ** 2 if gain.startswith("weighted") else np.ones(len(a))
    return patient.summed_gain(np.arange(len(a)), weights)
