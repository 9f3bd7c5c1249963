"""The cells of the allocation grid and the columns of their tables, for `run` and for `summarise`.

This module imports nothing of `summarise`, so that a change of the intervals does not repeat the grid.
"""

from __future__ import annotations

from typing import NamedTuple

DUELS = ("right", "right_first", "right_prior_wrong")
"""Columns that count duels with a correct decision."""
LIKELIHOOD, CLINICAL, CLINICAL_R = PRECISIONS = ("p_at_k", "clinical_p_at_k", "clinical_r_precision")


class GridCell(NamedTuple):
    """A strategy for choosing features: a rule, a gain and a schedule.

    `allocation` is the rule's name, or `module:Class` of a user-defined rule. The attribute `gain` is "" if the rule
    uses no gain.
    """

    allocation: str
    gain: str
    schedule: str

    @property
    def label(self) -> dict[str, str | None]:
        """Return the columns and values that identify a grid cell in the summary."""
        return self._asdict() | {"gain": self.gain or None}
