"""Define a cell of the allocation grid (a rule with a gain and a schedule), and names of columns in the grid's tables.

This module imports no code of `summarise`, so that the jobs of `run` are not repeated when the code of `summarise`
changes.
"""

from __future__ import annotations

from typing import NamedTuple

CORRECT_DUEL_COLUMNS = ("right", "right_first", "right_prior_wrong")
"""Columns that count duels with a correct decision."""
LIKELIHOOD, CLINICAL, CLINICAL_R = PRECISIONS = ("p_at_k", "clinical_p_at_k", "clinical_r_precision")


class GridCell(NamedTuple):
    """A strategy for choosing features: a rule, a gain and a schedule.

    `allocation` is the name of a rule. The name of a user-defined rule is `module:Class`. `gain` is "" if the rule uses
    no gain.
    """

    allocation: str
    gain: str
    schedule: str

    @property
    def label(self) -> dict[str, str | None]:
        """Return the columns and values that identify this strategy in the summary."""
        return self._asdict() | {"gain": self.gain or None}
