"""What every duel says in the random states of a cohort's patients: both means, both signs, both budgets."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from afa.bundle import Bundle
from afa.cohort.cohort import Cohort
from afa.engine.duels import duel
from afa.engine.layout import pack
from afa.engine.patient import Patient
from afa.experiments.errata.states import State
from afa.inference.meanfield import Solver
from afa.mrf import Floats


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
