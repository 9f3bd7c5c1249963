"""The allocation rule `greedy`."""

from __future__ import annotations

import numpy as np

from afa.engine.patient_state import DuelWeights
from afa.planner.rules.base import Choice, View, best, fall_back


class Greedy:
    """Choose the feature that has the largest sum of gains over all unresolved duels (comparisons of two entities)."""

    def choose(self, view: View) -> Choice:
        total = view.total_gain(view.resolved)
        feature = best(total, view.features, ~view.observed)
        if feature is None:
            return fall_back(view)
        open_ = np.flatnonzero(~view.resolved)
        words = f"largest gain, {total[feature]:.4g} summed over {len(open_)} open duels"
        return Choice(feature, words, over=DuelWeights(view.n_duels, open_, np.ones(len(open_))))
