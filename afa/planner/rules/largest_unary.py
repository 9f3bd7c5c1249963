"""`largest_unary`: the largest total absolute effective unary. The unary does not depend on the duels."""

from __future__ import annotations

from afa.planner.rules.base import Choice, View, best, fall_back


class LargestUnary:
    """Choose by the total absolute effective unary. All other rules use this choice as fallback."""

    looks_at = "nothing"

    def choose(self, view: View) -> Choice:
        feature = best(view.largest_unary, view.features, ~view.observed)
        if feature is None:
            return fall_back(view, "no unary is left")
        return Choice(feature, "largest effective unary, summed over entities")
