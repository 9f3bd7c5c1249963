"""`greedy`: the feature with the largest gain summed over all unresolved duels (spec A4)."""

from __future__ import annotations

from afa.allocate.base import Choice, View, best, fall_back


class Greedy:
    """Unweighted sum of the gain over every duel that is not resolved."""

    def choose(self, view: View) -> Choice:
        open_duels = ~view.resolved
        total = view.gain(open_duels).sum(axis=0)
        feature = best(total, view.features, ~view.observed)
        if feature is None:
            return fall_back(view)
        return Choice(feature, f"largest gain, {total[feature]:.4g} summed over {int(open_duels.sum())} open duels")
