"""Planners kept by what has been observed, so that a row with one more observation does not begin from nothing."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable, Sequence
from typing import Generic, TypeVar

import numpy as np

from afa.formats.batch import OPEN, PASSED, Row
from afa.planner import BinaryPlanner, TopKPlanner

AnyPlanner = TypeVar("AnyPlanner", BinaryPlanner, TopKPlanner)


class PlannerCache(Generic[AnyPlanner]):
    """Planners by row, a row being (M,) int8 of -1, 0, 1, `OPEN` or `PASSED`.

    A row that is not held gets a copy of the planner whose row it extends with fewest additions, or of an empty one,
    and observes the rest in the order of the columns. So an answer depends on the row and not on earlier calls, up to
    rounding, as long as the planner's own does not depend on the order of observations.

    make : makes a planner that has observed nothing; called once.
    most : how many are held; the one used longest ago goes first.
    """

    def __init__(self, make: Callable[[], AnyPlanner], features: Sequence[str], most: int) -> None:
        self._empty: AnyPlanner = make()
        self._features = tuple(features)
        self._most = most
        self._held: OrderedDict[bytes, AnyPlanner] = OrderedDict()

    def at(self, row: Row) -> AnyPlanner:
        """The planner of a row; it is shared, so nothing must be observed on it."""
        key = row.tobytes()
        planner = self._held.get(key)
        if planner is None:
            planner = self._held[key] = self._grown(row)
            if len(self._held) > self._most:
                self._held.popitem(last=False)
        self._held.move_to_end(key)
        return planner

    def _grown(self, row: Row) -> AnyPlanner:
        known, nearest = self._nearest(row)
        planner = nearest.copy()
        for j in np.flatnonzero((row != OPEN) & (known == OPEN)):
            if row[j] == PASSED:
                planner.skip(self._features[j])
            else:
                planner.observe(self._features[j], int(row[j]))
        return planner

    def _nearest(self, row: Row) -> tuple[Row, AnyPlanner]:
        """The held row that agrees with this one wherever it is not open, with the fewest open, and its planner."""
        held = np.frombuffer(b"".join(self._held), dtype=np.int8).reshape(len(self._held), len(row))
        fits = np.flatnonzero(((held == OPEN) | (held == row)).all(axis=1))
        if not len(fits):
            return np.full_like(row, OPEN), self._empty
        best = int(fits[np.argmax((held[fits] != OPEN).sum(axis=1))])
        return held[best], self._held[held[best].tobytes()]
