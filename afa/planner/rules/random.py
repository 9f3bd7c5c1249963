"""`random`: unobserved features in a random order that depends on patient and seed."""

from __future__ import annotations

from afa.model.orders import random_order
from afa.planner.rules.base import Choice, View


class Random:
    """Choose features in a uniformly random order over all M features. This rule is the baseline that uses no data."""

    looks_at = "nothing"

    def choose(self, view: View) -> Choice:
        order = random_order(view.features, patient=view.patient, seed=view.seed)
        feature = next(int(j) for j in order if not view.observed[j])
        return Choice(feature, f"next of the random order of seed {view.seed}")
