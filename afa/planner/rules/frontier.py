"""The allocation rule `frontier` (docs/frontier.md; not in the paper)."""

from __future__ import annotations

from afa.planner.rules.base import Choice, View, best, fall_back


class Frontier:
    """Choose the feature that most reduces the variance of score differences across the top-k boundary.

    Close differences weigh more.
    """

    looks_at = "background"

    def choose(self, view: View) -> Choice:
        feature = best(view.frontier(), view.features, ~view.observed)
        if feature is None:
            return fall_back(view, "nothing that is left changes the top set")
        return Choice(feature, f"settles most of what is open at the edge of the top {view.k}, by {view.background}")
