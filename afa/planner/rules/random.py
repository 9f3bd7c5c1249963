"""The allocation rule `random`."""

from __future__ import annotations

from afa.model.orders import random_order
from afa.planner.rules.base import Choice, View


class Random:
    """Choose features in a uniformly random order, which depends on the patient and the seed.

    This rule is the baseline that uses no data.
    """

    looks_at = "nothing"

    def choose(self, view: View) -> Choice:
        order = random_order(view.features, patient=view.patient, seed=view.seed)
        feature = next(int(j) for j in order if not view.observed[j])
        return Choice(feature, f"next of the random order of seed {view.seed}")
