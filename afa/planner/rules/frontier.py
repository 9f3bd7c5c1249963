"""The allocation rule `frontier`, which is not in the paper (docs/frontier.md)."""

from __future__ import annotations

from afa.planner.rules.base import Choice, View, best, fall_back


class Frontier:
    """Choose the feature that most reduces the variance of score differences across the top-k boundary.

    A score difference across the boundary is the score of an entity in the top k minus the score of an entity outside.
    Small differences have larger weights.
    """

    looks_at = "background"

    def choose(self, view: View) -> Choice:
        feature = best(view.frontier(), view.features, ~view.observed)
        if feature is None:
            return fall_back(view, "nothing that is left changes the top set")
        return Choice(feature, f"settles most of what is open at the edge of the top {view.k}, by {view.background}")
