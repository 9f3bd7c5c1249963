"""Random states of a cohort's patients: which features of whom have been observed, drawn from hashes of names."""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike, NDArray

from afa.bundle import Bundle
from afa.cohort.cohort import Cohort
from afa.engine.layout import Packed
from afa.engine.patient import Patient
from afa.experiments.errata.small_models import generator_of
from afa.inference.meanfield import Solver
from afa.mrf import Floats
from afa.orders import random_order
from afa.stats.resampling import ratio_interval

Objects = NDArray[np.object_]


@dataclass(frozen=True)
class State:
    """One patient after `t` features of a random order over all M: `observed` (t,) are their indices, in order.

    row : of the patient in the cohort. index : of the state among those of this patient.
    """

    patient: str
    row: int
    index: int
    observed: NDArray[np.int64]

    def observations(self, bundle: Bundle, cohort: Cohort) -> dict[str, int]:
        """Values by feature name."""
        return {bundle.features[j]: int(cohort.values[self.row, j]) for j in self.observed}

    def followed(self, bundle: Bundle, cohort: Cohort, packed: Packed, solver: Solver) -> Patient:
        """The engine's patient in this state."""
        patient = Patient(bundle, solver=solver, packed=packed)
        for j in self.observed:
            patient.observe(int(j), int(cohort.values[self.row, j]))
        return patient


def random_states(cohort: Cohort, n: int, *, purpose: str) -> list[State]:
    """`n` states, spread evenly over the patients; t is uniform on 0 to M - 1, so that something is unobserved.

    Which patients come first where there are more than `n` depends on a hash of their names, and not on their order.
    """
    rows = _hashed_rows(cohort.patients, purpose)
    return [_draw(cohort, rows[i % len(rows)], i // len(rows), purpose) for i in range(n)]


def some_patients(cohort: Cohort, most: int, *, purpose: str) -> list[int]:
    """Rows of at most `most` patients, chosen by a hash of their names."""
    return sorted(_hashed_rows(cohort.patients, purpose)[:most])


@dataclass(frozen=True)
class Sampling:
    """How intervals over patients are made: bootstrap resamples, and their confidence in (0, 1)."""

    resamples: int = 1000
    confidence: float = 0.95


def share_interval(hits: ArrayLike, patients: Sequence[str] | Objects, sampling: Sampling) -> tuple[float, float]:
    """Interval of the mean of `hits` (n,) by resampling patients; `patients` (n,) names the patient of each."""
    names, place = np.unique(np.asarray(patients, dtype=str), return_inverse=True)
    right: Floats = np.bincount(place, np.asarray(hits, dtype=np.float64), len(names)).astype(np.float64)[:, None]
    total: Floats = np.bincount(place, minlength=len(names)).astype(np.float64)[:, None]
    low, high = ratio_interval(
        right, total, resamples=sampling.resamples, confidence=sampling.confidence, purpose="errata"
    )
    return float(low[0]), float(high[0])


def _hashed_rows(patients: Sequence[str], purpose: str) -> list[int]:
    keys = [hashlib.sha256(f"errata\0{purpose}\0{name}".encode()).digest() for name in patients]
    return sorted(range(len(patients)), key=keys.__getitem__)


def _draw(cohort: Cohort, row: int, index: int, purpose: str) -> State:
    patient = cohort.patients[row]
    t = int(generator_of(purpose, patient, index).integers(0, len(cohort.features)))
    order = random_order(cohort.features, patient=patient, seed=index, experiment=f"errata {purpose}")
    return State(patient, row, index, order[:t])
