"""The allocation rule `largest_unary`."""

from __future__ import annotations

from afa.planner.rules.base import Choice, View, best, fall_back


class LargestUnary:
    """Choose the feature with the largest sum of absolute effective unaries over all entities.

    Other rules use this choice if no feature has a positive gain.
    """

    looks_at = "nothing"

    def choose(self, view: View) -> Choice:
        feature = best(view.largest_unary, view.features, ~view.observed)
        if feature is None:
            return fall_back(view, "no unary is left")
        return Choice(feature, "largest effective unary, summed over entities")
