"""The allocation rule `boundary`."""

from __future__ import annotations

import numpy as np

from afa.planner.rules.base import Choice, View, heaviest, nothing_to_decide


class Boundary:
    """Choose the feature with the largest gain, summed over the unresolved duels across the top-k boundary."""

    def choose(self, view: View) -> Choice:
        if not len(view.contested):
            return nothing_to_decide(view)
        weights = np.ones(len(view.contested))
        return heaviest(view, view.contested, weights, f"{len(weights)} open duels across the boundary")
