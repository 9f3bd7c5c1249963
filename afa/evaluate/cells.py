"""A cell of the allocation grid, and the columns of its duels: what `run` and `summarise` share."""

from __future__ import annotations

from typing import NamedTuple

TARGET = {"f_target": "linearity"}
"""The score whose sign a gain predicts, by the gain that looks ahead."""
DUELS = ("right", "right_first", "right_prior_wrong")


class GridCell(NamedTuple):
    """One way to choose features: a rule's name or `module:Class`, a gain ("" where the rule uses none), a schedule."""

    allocation: str
    gain: str
    schedule: str

    @property
    def label(self) -> dict[str, str | None]:
        """The columns of the summary that name it."""
        return self._asdict() | {"gain": self.gain or None}
