"""The allocation rule `boundary`."""

from __future__ import annotations

import numpy as np

from afa.planner.rules.base import Choice, View, heaviest, nothing_to_decide


class Boundary:
    """Choose the feature that has the largest sum of gains over the unresolved duels across the top-k boundary.

    A duel across the top-k boundary compares an entity in the top k with an entity outside the top k.
    """

    def choose(self, view: View) -> Choice:
        if not len(view.contested):
            return nothing_to_decide(view)
        weights = np.ones(len(view.contested))
        return heaviest(view, view.contested, weights, f"{len(weights)} open duels across the boundary")
