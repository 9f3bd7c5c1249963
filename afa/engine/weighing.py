"""What allocation rules ask of one patient beyond the duels: gains summed under weights, an interval of each entity.

Plain NumPy, in the order of the compiled sums: a weight of 1 on every open duel gives the bytes of `total_gain`.
"""

from __future__ import annotations

import numpy as np

from afa.engine.patient import Patient
from afa.errors import Fault, PlannerError
from afa.mrf import Floats


def weighted_gain(patient: Patient, weights: Floats) -> Floats:
    """(M,) gains summed over the duels, each times its weight; `weights` (Q,), finite (eq:feature_selection)."""
    weight = np.asarray(weights, dtype=np.float64)
    if weight.shape != (len(patient.pairs),) or not np.isfinite(weight).all():
        found = f"shape {weight.shape}, {int((~np.isfinite(weight)).sum())} of them not finite"
        raise PlannerError(
            Fault("weights of duels", found, f"{len(patient.pairs)} finite numbers", "give one weight a duel")
        )
    gains = patient.gain_entries()
    entries = np.repeat(weight, np.diff(gains.first)) * gains.gain
    return np.bincount(gains.feature, weights=entries, minlength=patient.packed.n_features).astype(np.float64)


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
