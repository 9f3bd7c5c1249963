"""A batch as AFABench hands it over, as the rows that a planner's state is made of, and planners kept by such rows."""

from __future__ import annotations

import sys
from collections import OrderedDict
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Generic, TypeVar

import numpy as np
from numpy.typing import NDArray

from afa.bundle import Bundle
from afa.errors import Fault, PlannerError
from afa.features import Features
from afa.mrf import VALUES
from afa.planner import BinaryPlanner, TopKPlanner

OPEN, PASSED = 2, 3
"""What a row holds beside -1, 0 and 1: a feature that can be had, and one that was asked for and gave no value."""

Row = NDArray[np.int8]


@dataclass(frozen=True, eq=False)
class Columns:
    """What the M features of a batch are, flattened, and in which S selections they can be had.

    names : M names. selections : columns of each selection, every column in one. table : `features.csv` in the order
    of the columns; a feature with cut points is encoded by them, any other is -1, 0 or 1 as it comes.
    """

    names: tuple[str, ...]
    selections: tuple[tuple[int, ...], ...]
    table: Features | None = None

    def selection_of(self, name: str) -> int:
        """The selection that a feature comes with."""
        column = self.names.index(name)
        return next(i for i, columns in enumerate(self.selections) if column in columns)

    def coded(self, values: NDArray[Any]) -> NDArray[Any]:
        """(R, M) numbers of which those with cut points are -1 below, 1 above, and 0 between."""
        if self.table is None:
            return values
        cut = self.table.has_range & ~self.table.is_binary
        code = np.where(values > self.table.high, 1.0, np.where(values < self.table.low, -1.0, 0.0))
        return np.where(cut & ~np.isnan(values), code, values)


def columns_of(bundle: Bundle, names: Sequence[str], panels: Mapping[str, Sequence[str]]) -> Columns:
    """The columns of a batch for a bundle: a panel is one selection, at the place of its first column."""
    panel_of = {feature: panel for panel, features in panels.items() for feature in features}
    items: dict[str, list[int]] = {}
    for column, name in enumerate(names):
        items.setdefault(panel_of.get(name, name), []).append(column)
    table = None if bundle.rates is None or bundle.rates.table is None else bundle.rates.table.chosen(names)
    return Columns(tuple(names), tuple(map(tuple, items.values())), table)


def rows_of(
    masked_features: Any, feature_mask: Any, selection_mask: Any, feature_shape: Sequence[int] | None, columns: Columns
) -> tuple[Row, tuple[int, ...]]:
    """Rows (R, M) int8 of a batch `*batch *feature_shape` with these columns; and `batch`.

    feature_mask : bool, True where observed. selection_mask : None, or (*batch, S), True where already asked for.
    feature_shape : the last axis where it is None. A `PlannerError` names the argument of another shape, and the first
    observed value that is not -1, 0 or 1, and for which the bundle has no cut points.
    """
    names = columns.names
    values, mask = as_numpy(masked_features), as_numpy(feature_mask)
    shape = values.shape[-1:] if feature_shape is None else tuple(feature_shape)
    batch: tuple[int, ...] = values.shape[: max(values.ndim - len(shape), 0)]
    if values.shape != (*batch, *shape) or int(np.prod(shape)) != len(names):
        expected = f"{len(names)} features on the last axes"
        step = "pass feature_shape, or name the columns by features"
        raise PlannerError(Fault("masked_features", f"{values.shape}, feature_shape {shape}", expected, step))
    if mask.shape != values.shape or mask.dtype != np.bool_:
        found, expected = f"{mask.dtype} {mask.shape}", f"bool {values.shape}, as masked_features"
        raise PlannerError(Fault("feature_mask", found, expected, "pass a mask of the same batch"))
    values, mask = columns.coded(values.reshape(-1, len(names))), mask.reshape(-1, len(names))
    strange = mask & ~np.isin(values, VALUES)
    if strange.any():
        row, column = (int(index[0]) for index in np.nonzero(strange))
        place = f"masked_features, row {row}, feature {names[column]}"
        step = "give the feature cut points in the bundle's features.csv, or encode it as ternary first"
        raise PlannerError(Fault(place, f"{values[row, column]}", "-1, 0 or 1", step))
    rows = np.full(values.shape, OPEN, dtype=np.int8)
    rows[mask] = values[mask]
    if selection_mask is not None:
        asked = as_numpy(selection_mask)
        if asked.shape != (*batch, len(columns.selections)):
            expected = f"{(*batch, len(columns.selections))}: each feature by itself, or with its panel"
            step = "put what the unmasker reveals at once into panels, or into one measurement of groups.csv"
            raise PlannerError(Fault("selection_mask", f"{asked.shape}", expected, step))
        asked = asked.reshape(len(rows), -1).astype(bool)
        for i, members in enumerate(columns.selections):
            gone = np.ix_(asked[:, i], np.array(members))
            rows[gone] = np.where(mask[gone], rows[gone], PASSED)
    return rows, batch


def as_numpy(given: Any) -> NDArray[Any]:
    """An array of any kind as NumPy's; a tensor of torch may be on another device or part of a graph."""
    torch = sys.modules.get("torch")
    if torch is not None and isinstance(given, torch.Tensor):
        given = given.detach().cpu()
    return np.asarray(given)


def alike(answer: NDArray[Any], given: Any) -> Any:
    """The answer as a tensor on the same device where the batch is one of torch, which is then already imported."""
    torch = sys.modules.get("torch")
    if torch is not None and isinstance(given, torch.Tensor):
        return torch.from_numpy(answer).to(given.device)
    return answer


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
