"""What allocation rules ask of one patient beyond the duels: gains summed under weights, an interval of each entity.

Plain NumPy, in the order of the compiled sums: a weight of 1 on every open duel gives the bytes of `total_gain`.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import DTypeLike

from afa.engine.packed import Indices
from afa.engine.patient import Patient
from afa.errors import Fault, PlannerError
from afa.mrf import Floats


@dataclass(frozen=True)
class DuelWeights:
    """Weights of Q duels, 0 but at some places, ascending; an array (Q,) wherever NumPy asks for one."""

    n_duels: int
    duels: Indices
    weights: Floats

    def __array__(self, dtype: DTypeLike | None = None, copy: bool | None = None) -> Floats:
        every = np.zeros(self.n_duels)
        every[self.duels] = self.weights
        return every

    def __matmul__(self, other: Floats) -> Floats:
        product: Floats = np.asarray(self) @ other
        return product


def weighted_gain(patient: Patient, weights: Floats | DuelWeights) -> Floats:
    """(M,) gains summed over the duels, each times its weight; `weights` (Q,), finite (eq:feature_selection)."""
    if isinstance(weights, DuelWeights) and weights.n_duels == patient.n_duels:
        return patient.summed_gain(weights.duels, weights.weights)
    weight = np.asarray(weights, dtype=np.float64)
    chosen = np.flatnonzero(weight) if weight.shape == (patient.n_duels,) else None
    if chosen is None or not np.isfinite(weight[chosen]).all():
        found = f"shape {weight.shape}, {int((~np.isfinite(weight)).sum())} of them not finite"
        raise PlannerError(
            Fault("weights of duels", found, f"{patient.n_duels} finite numbers", "give one weight a duel")
        )
    return patient.summed_gain(chosen, weight[chosen])


def entity_intervals(patient: Patient) -> Floats:
    """(N, 2) least and greatest S_v of each entity under any completion, the tight `l1` interval (eq:l1-bracket)."""
    packed, n = patient.packed, len(patient.packed.prior)
    hidden = ~patient.state.observed[packed.feature]
    slot = np.repeat(np.arange(len(packed.feature)), np.diff(packed.first_edge))
    left = hidden[slot] & hidden[packed.other_slot]
    unary = np.bincount(packed.owner, weights=np.abs(patient.state.field), minlength=n)
    coupling = np.bincount(packed.owner[slot[left]], weights=np.abs(packed.coupling[left]), minlength=n)
    budget = unary + coupling / 2
    return np.column_stack([patient.state.constant - budget, patient.state.constant + budget])
