"""Define the cells of the allocation grid (rule, gain and schedule) and the columns of a cell's duels."""

from __future__ import annotations

from typing import NamedTuple

TARGET = {"f_target": "linearity"}
"""Lookahead gain -> the score whose change the gain predicts."""
DUELS = ("right", "right_first", "right_prior_wrong")


class GridCell(NamedTuple):
    """Store one strategy for choosing features: a rule, a gain and a schedule.

    `allocation` is the rule's name, or `module:Class` of a user-defined rule. The attribute `gain` is "" if the rule
    uses no gain.
    """

    allocation: str
    gain: str
    schedule: str

    @property
    def label(self) -> dict[str, str | None]:
        """Return the columns that identify a grid cell in the summary."""
        return self._asdict() | {"gain": self.gain or None}
