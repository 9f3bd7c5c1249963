"""`information`: the feature that tells most about which entity holds, over entities and not over duels (F15)."""

from __future__ import annotations

from afa.planner.rules.base import Choice, View, best, fall_back


class Information:
    """Mutual information of the entity that holds and a feature, given what has been observed (decisions.md F15)."""

    looks_at = "entities"

    def choose(self, view: View) -> Choice:
        told = view.information()
        feature = best(told, view.features, ~view.observed)
        if feature is None:
            return fall_back(view)
        return Choice(feature, f"tells most about which one holds: {told[feature]:.4g} nats")
