"""Random states of a cohort's patients: which features of whom have been observed, drawn from hashes of names."""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike, NDArray

from afa.bundle import Bundle
from afa.checks.errata.models import generator_of
from afa.cohort.cohort import Cohort
from afa.engine.duels import duel
from afa.engine.layout import Packed, pack
from afa.engine.patient import Patient
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


@dataclass(frozen=True)
class DuelReadings:
    """One entry per duel and state, state by state; `final_` arrays have one per duel and patient met.

    patients : the name of each entry's patient. mixture, product : E_Q[D] as the mean of products and as the product of
    means, nats, 0 where rounding. stack_a : its score. tight, between : the `l1` budget, and what the paper adds to it.
    final_score : D(x) at full observation. final_constant : the running constant's share in it.
    tie : magnitude up to which a score is rounding.
    """

    patients: NDArray[np.object_]
    mixture: Floats
    product: Floats
    stack_a: Floats
    tight: Floats
    between: Floats
    final_score: Floats
    final_constant: Floats
    tie: float


def duel_readings(bundle: Bundle, cohort: Cohort, states: Sequence[State], solver: Solver) -> DuelReadings:
    """Read every duel of a bundle of at least two entities in every state."""
    packed, above = pack(bundle), np.triu_indices(len(bundle.entities), 1)
    read: dict[str, list[Floats]] = {name: [] for name in ("mixture", "product", "stack_a", "tight", "between")}
    finals: dict[str, tuple[Floats, Floats]] = {}
    for state in states:
        patient = state.followed(bundle, cohort, packed, solver)
        sums = [duel(packed, patient.state, int(a), int(b)) for a, b in zip(*above, strict=True)]
        read["mixture"].append(patient.scores("linearity")[above])
        read["product"].append(_rounded(product_scores(bundle, patient)[above], packed.tie))
        read["stack_a"].append(patient.scores("stack_a")[above])
        read["tight"].append(np.array([one.budget for one in sums]))
        read["between"].append(np.array([one.between for one in sums]))
        if state.patient not in finals:
            for j in np.flatnonzero(~patient.state.observed):
                patient.observe(int(j), int(cohort.values[state.row, j]))
            constant = patient.state.constant
            finals[state.patient] = (patient.scores("linearity")[above], constant[above[0]] - constant[above[1]])
    names = np.repeat(np.array([state.patient for state in states], dtype=object), len(above[0]))
    joined = {name: np.concatenate(parts) for name, parts in read.items()}
    score, constant = (np.concatenate([pair[i] for pair in finals.values()]) for i in (0, 1))
    return DuelReadings(names, **joined, final_score=score, final_constant=constant, tie=packed.tie)


def product_scores(bundle: Bundle, patient: Patient) -> Floats:
    """(N, N) E[D_ab] under one product measure with the averaged moments of a and b, as supp:f1-approx prints it.

    The readable form is `afa.preference.linearity` with `moments="product"`.
    """
    n = len(bundle.entities)
    fields = patient.fields()
    first = np.zeros_like(fields)
    first[patient.packed.owner, patient.packed.feature] = patient.state.m
    expected = np.empty((n, n))
    for v in range(n):
        row, column, value = bundle.packed.of(v)
        mean = (first + first[v]) / 2
        # observed features have a first moment of 0, so that only couplings among unobserved ones count
        expected[v] = patient.state.constant[v] + mean @ fields[v] + (mean[:, row] * mean[:, column]) @ value
    scores: Floats = expected - expected.T
    return scores


def _rounded(values: Floats, tie: float) -> Floats:
    rounded: Floats = np.where(np.abs(values) <= tie, 0.0, values)
    return rounded
