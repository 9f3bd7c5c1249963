"""`greedy`: the feature with the largest gain summed over all unresolved duels (decisions.md A4)."""

from __future__ import annotations

from afa.allocate.base import Choice, View, best, fall_back


class Greedy:
    """Unweighted sum of the gain over every duel that is not resolved."""

    def choose(self, view: View) -> Choice:
        total = view.total_gain(view.resolved)
        feature = best(total, view.features, ~view.observed)
        if feature is None:
            return fall_back(view)
        return Choice(
            feature, f"largest gain, {total[feature]:.4g} summed over {int((~view.resolved).sum())} open duels"
        )
