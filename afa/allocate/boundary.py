"""`boundary`: the gain summed over the open duels across the top-k boundary, all alike (spec A12)."""

from __future__ import annotations

import numpy as np

from afa.allocate.base import Choice, View, heaviest, nothing_to_decide


class Boundary:
    """Unweighted sum of the gain over the unresolved duels of a top-k entity against one outside."""

    def choose(self, view: View) -> Choice:
        open_ = view.straddling & ~view.resolved
        if not open_.any():
            return nothing_to_decide(view)
        return heaviest(view, open_.astype(np.float64), f"{int(open_.sum())} open duels across the boundary")
