"""The allocation rule `information`."""

from __future__ import annotations

from afa.planner.rules.base import Choice, View, best, fall_back


class Information:
    """Choose the feature whose value gives the most information about which entity is present (mutual information)."""

    looks_at = "entities"

    def choose(self, view: View) -> Choice:
        gain = view.information()
        feature = best(gain, view.features, ~view.observed)
        if feature is None:
            return fall_back(view)
        return Choice(feature, f"tells most about which one holds: {gain[feature]:.4g} nats")
