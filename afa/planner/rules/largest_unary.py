"""`largest_unary`: the feature of largest total absolute effective unary, whatever the duels say (decisions.md A7)."""

from __future__ import annotations

from afa.planner.rules.base import Choice, View, best, fall_back


class LargestUnary:
    """The rule that every other falls back on, as a rule of its own."""

    in_the_grid = 2
    looks_at = "nothing"

    def choose(self, view: View) -> Choice:
        feature = best(view.largest_unary, view.features, ~view.observed)
        if feature is None:
            return fall_back(view, "no unary is left")
        return Choice(feature, "largest effective unary, summed over entities")
